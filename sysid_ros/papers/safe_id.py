"""The three experiments of SAFE-ID section VI as tasks: arm, dumbbells, obstacles, motions.

The paper shows its scenes in photographs and gives few numbers: five dumbbells of 4 to 8 lb, platforms 0.25 m and 0.50
m in front of the arm, a low and a high obstacle, motions of 2 s from two polynomials of degree 5. The rest is our
choice:

* A dumbbell is picked up beside the arm, :data:`PICK`, and placed on the platform, the k-th one :data:`STACK` above the
  one before. Platform and stack are no obstacles, as the task is to touch them; what counts is where the dumbbell ends.
* The obstacle stands half way, across the path, :data:`CLEARANCE` below the lowest sphere of arm and dumbbell on the
  desired motion: in Experiment (c) nearer than in (a) and (b), as the paper says.
* Motions minimise the jerk through a raised posture half way, as the paper's do with obstacles.
* The payload is anything up to 4 kg that fits into a sphere of 0.11 m at the fingers: the masses of the paper's Table
  I, without bodies of its box that no object of that size can be. With the table's own box no motion with 7 lb or more
  can be proven for this arm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pinocchio as pin
import yaml
from numpy.typing import NDArray
from scipy.optimize import least_squares

from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.model.builder import build_robot
from sysid_ros.core.model.mechanics import BodyPoses
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.model.robot_files import find_settings
from sysid_ros.core.model.settings import Section
from sysid_ros.core.model.urdf import read_urdf
from sysid_ros.core.trajectories.base import State
from sysid_ros.papers.names import DUMBBELLS, EXPERIMENTS

Array = NDArray[np.float64]

ROBOT = "kinova_gen3_2f85"
LARGEST_MASS = 4.0
"""Largest payload [kg]; the paper restricts it to this."""
ARM = {
    "friction": {
        f"joint_{k}": {"nominal": nominal, "radius": radius}
        for joints, nominal, radius in (
            (range(1, 5), [0.5, 1.0, 0.25, 0.0], [0.05, 0.1, 0.0125, 0.05]),
            (range(5, 8), [0.15, 0.3, 0.1, 0.0], [0.015, 0.03, 0.005, 0.02]),
        )
        for k in joints
    },
    "inertial_uncertainty": {"relative": 0.05},
}
"""Of the paper's arm, not of a real one: bodies within 5 %, torques with friction and rotors (SAFE-ID (5), (6), VI)."""
PICK = (0.38, np.radians(55.0), 0.17)
"""Where dumbbells are picked up: distance from the axis of joint 1 [m], angle about it [rad], height [m]."""
IDENTIFY = (0.30, np.radians(55.0), 0.35)
"""Where the hand is when the identification begins: distance [m], angle [rad], height [m]."""
PLATFORM = {"a": (0.25, 0.17), "b": (0.50, 0.17), "c": (0.50, 0.20)}
"""Where dumbbells are placed: distance [m] (SAFE-ID VI-B for a and b), height of the lowest one [m]."""
STACK = 0.03
"""Height of a dumbbell in the stack [m]."""
LIFT = {"a": 0.02, "b": 0.06, "c": 0.06}
"""How far the hand rises half way, above the higher end [m]: a low and a high obstacle."""
CLEARANCE = {"a": 0.02, "b": 0.02, "c": 0.005}
"""Between obstacle and the lowest sphere on the desired motion [m]."""
PIECE = 1.0
"""Duration of each of the two polynomials [s] (SAFE-ID VI-D)."""
SETTLE, HOLD = 1.0, 0.5
"""At rest before and after the motion [s]."""
_BERNSTEIN_GRID = 201


@lru_cache(maxsize=1)
def experiment_robot() -> RobotModel:
    """Return the arm with the payload prior."""
    path = find_settings(ROBOT)
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    prior = values["payload_priors"][values["payload_prior"]]
    prior["mass"] = [0.0, LARGEST_MASS]
    values = {**values, **ARM, "sensors": {**values["sensors"], "effort_meaning": "motor_side"}}
    urdf = (path.parent / values["urdf"]).read_text(encoding="utf-8")
    return build_robot(ROBOT, read_urdf(urdf), Section(values, path.name))


def tool_down(robot: RobotModel, position: Array, near: Array) -> Array:
    """Find a posture with the hand at a position, the fingers down, (n,) [rad].

    Args:
        robot: The arm.
        position: Of the grip, 0.14 m out of the flange, in the base frame, (3,) [m].
        near: A posture; of many solutions the one close to it is returned.
    """
    model, data = robot.pin_model, robot.pin_model.createData()
    frame = model.getFrameId(robot.tool_frame)
    free = np.isfinite(robot.limits.q_lower)
    lower = np.where(free, robot.limits.q_lower + 0.05, near - np.pi)
    upper = np.where(free, robot.limits.q_upper - 0.05, near + np.pi)

    def residual(q: Array) -> Array:
        pin.framesForwardKinematics(model, data, q)
        pose = data.oMf[frame]
        grip = pose.translation + 0.14 * pose.rotation[:, 2]
        return np.concatenate([grip - position, pose.rotation[:, 2] + [0.0, 0.0, 1.0], 1e-4 * (q - near)])

    found = least_squares(residual, np.clip(near, lower, upper), bounds=(lower, upper), xtol=1e-14, ftol=1e-14)
    return np.asarray(found.x, dtype=np.float64)


@dataclass(frozen=True)
class Task:
    """A motion that places a dumbbell.

    Attributes:
        knots: Position, velocity and acceleration at the beginning, half way and at the end, (3, 3, n).
        scene: Obstacles and ground.
    """

    knots: Array
    scene: Scene

    @property
    def start(self) -> Array:
        """Posture in which the dumbbell is picked up, (n,) [rad]."""
        return np.asarray(self.knots[0, 0])

    @property
    def goal(self) -> Array:
        """Posture in which it is placed, (n,) [rad]."""
        return np.asarray(self.knots[2, 0])

    def evaluate(self, t: float) -> State:
        """Evaluate the motion at a time from its beginning [s]; at rest before and after."""
        if t <= 0.0 or t >= 2.0 * PIECE:
            posture = self.start if t <= 0.0 else self.goal
            return posture.copy(), np.zeros_like(posture), np.zeros_like(posture)
        number = int(t >= PIECE)
        return _quintic(self.knots[number], self.knots[number + 1], t - number * PIECE)


def _quintic(before: Array, after: Array, t: float) -> State:
    """Evaluate the polynomial of degree 5 between two states, (3, n) each, that are a piece apart."""
    coefficients = _quintic_matrix() @ np.concatenate([before, after])
    powers = t ** np.arange(6)
    rate = np.concatenate([[0.0], np.arange(1, 6) * powers[:5]])
    second = np.concatenate([[0.0, 0.0], np.arange(2, 6) * np.arange(1, 5) * powers[:4]])
    return powers @ coefficients, rate @ coefficients, second @ coefficients


@lru_cache(maxsize=1)
def _quintic_matrix() -> Array:
    """Return the matrix from the two end states to the coefficients of the powers of time, (6, 6)."""
    rows = []
    for t in (0.0, PIECE):
        powers = np.array([t**k for k in range(6)])
        rows += [
            powers,
            np.array([k * t ** max(k - 1, 0) for k in range(6)]),
            np.array([k * (k - 1) * t ** max(k - 2, 0) for k in range(6)]),
        ]
    return np.asarray(np.linalg.inv(np.array(rows)))


def least_jerk(start: Array, middle: Array, goal: Array) -> Array:
    """Return the knots of two polynomials of degree 5 through three postures with the least squared jerk, (3, 3, n)."""
    times = np.linspace(0.0, PIECE, _BERNSTEIN_GRID)
    thirds = np.array([[k * (k - 1) * (k - 2) * t ** max(k - 3, 0) for k in range(6)] for t in times])
    jerk = thirds @ _quintic_matrix()  # of the two end states
    zero = np.zeros_like(start)
    # Unknown are velocity and acceleration half way: in the first piece states 4, 5, in the second 1, 2.
    fixed = [np.array([start, zero, zero, middle, zero, zero]), np.array([middle, zero, zero, goal, zero, zero])]
    unknown = np.concatenate([jerk[:, 4:6], jerk[:, 1:3]])
    free = np.linalg.lstsq(unknown, -np.concatenate([jerk @ part for part in fixed]), rcond=None)[0]
    return np.array([[start, zero, zero], [middle, *free], [goal, zero, zero]])


class Spheres:
    """Collision spheres of arm and payload, against a scene and the joint limits.

    Args:
        robot: The arm; the payload is covered by the spheres of its prior.
    """

    def __init__(self, robot: RobotModel):
        self._poses = BodyPoses(robot)
        self._spheres = [one for one in (*robot.spheres, *robot.payload_prior.spheres) if one.body > 0]
        self.radii = np.array([one.radius for one in self._spheres])

    def centers(self, q: Array) -> Array:
        """Return the centres at a posture, (S, 3) [m]."""
        rotations, origins = self._poses.compute(q)
        return np.array([origins[one.body] + rotations[one.body] @ one.center for one in self._spheres])

    def clearance(self, q: Array, scene: Scene) -> float:
        """Return the least distance to obstacles and ground at a posture [m]; below zero they touch."""
        centers = self.centers(q)
        distances = [one.distance(centers) - self.radii for one in scene.obstacles]
        if scene.ground_height is not None:
            distances.append(centers[:, 2] - self.radii - scene.ground_height)
        return float(np.min(distances)) if distances else float("inf")


@lru_cache(maxsize=len(EXPERIMENTS) * len(DUMBBELLS))
def build_task(experiment: str, dumbbell: str) -> Task:
    """Build the task of an experiment with a dumbbell."""
    robot, number = experiment_robot(), DUMBBELLS.index(dumbbell)
    distance, angle, height = PICK
    start = tool_down(robot, _place(distance, angle, height), _near(robot, angle))
    reach, low = PLATFORM[experiment]
    top = low + (0.0 if experiment == "c" else number * STACK)
    goal = tool_down(robot, _place(reach, 0.0, top), _near(robot, 0.0))
    half = _place(0.5 * (distance + reach), 0.5 * angle, max(height, top) + LIFT[experiment])
    middle = tool_down(robot, half, 0.5 * (start + goal))
    task = Task(least_jerk(start, middle, goal), Scene(ground_height=0.0, clearance=0.0))
    return replace(task, scene=Scene((_obstacle(robot, task, experiment),), ground_height=0.0, clearance=0.0))


def identification_scene() -> Scene:
    """Return the environment during identification: the obstacles of the three experiments, and the ground."""
    tasks = [build_task(experiment, DUMBBELLS[0]) for experiment in EXPERIMENTS]
    boxes = [replace(task.scene.obstacles[0], name=f"obstacle {k}") for task, k in zip(tasks, EXPERIMENTS, strict=True)]
    return Scene(tuple(boxes), ground_height=0.0, clearance=0.0)


def _place(distance: float, angle: float, height: float) -> Array:
    return np.array([distance * np.cos(angle), distance * np.sin(angle), height])


def _near(robot: RobotModel, angle: float) -> Array:
    near = robot.home.copy()
    near[0] = -angle  # joint 1 of this arm turns the other way
    return near


def _obstacle(robot: RobotModel, task: Task, experiment: str) -> Obstacle:
    """Return a box under the middle of the path, as high as the clearance allows."""
    spheres, angle = Spheres(robot), 0.5 * PICK[1]
    radius = 0.5 * (PICK[0] + PLATFORM[experiment][0])
    center, half = _place(radius, angle, 0.0), np.array([0.06, 0.015])
    turn = pin.utils.rotate("z", angle)
    lowest = np.inf
    for t in np.arange(0.0, 2.0 * PIECE, 0.01):
        for point, size in zip(spheres.centers(task.evaluate(t)[0]), spheres.radii, strict=True):
            local = turn.T @ (point - center)
            beside = np.linalg.norm(np.maximum(np.abs(local[:2]) - half, 0.0))
            if beside < size + CLEARANCE[experiment]:
                lowest = min(lowest, local[2] - np.sqrt((size + CLEARANCE[experiment]) ** 2 - beside**2))
    edges = np.array([half[0], half[1], 0.5 * lowest])
    return Obstacle("obstacle", np.array([center[0], center[1], 0.5 * lowest]), edges, turn)


@lru_cache(maxsize=1)
def identification_posture() -> Array:
    """Return the posture for identification: with the hand near the axis, where the arm can hold any payload."""
    distance, angle, height = IDENTIFY
    return tool_down(experiment_robot(), _place(distance, angle, height), _near(experiment_robot(), angle))
