"""SAFE-ID section VI with the authors' published settings: arm, motors, limits, and motions of Experiments (a) to (c).

Two profiles:

* ``published``: rigid joints with the rotors and friction that the authors identified, which have many times the
  inertia of the links; their control laws, gains and limits. Torques may be 90 % of the arm's hard limits: with these
  rotors the authors' motions need more than the arm's warnings.
* ``hardware``: joints as on a real arm, elastic, with the shipped friction and torque limits, and the gains that the
  driver allows there.

A motion is two polynomials of degree 5 from the side of the arm to a platform, 0.25 m (a) or 0.50 m (b) in front of it,
with the authors' knots. Their scenes are known from photographs, so obstacles are our choice: one box under the second
half of the path, as near to the motion as :data:`CLEARANCE` says, and no ground, from which dumbbells are taken. The
motion of Experiment (c) is not known: here it is (b) in legs of 1.5 s, close to its obstacle. The payload is anything
up to 4 kg that fits into a sphere of 0.11 m at the fingers: the masses of the paper's Table I, without bodies of its
box that no object of that size can be.

Source: SAFE-ID section VI; the authors' configuration in their kinova_robust_control.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from scipy.interpolate import BPoly

from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.model.builder import build_robot
from sysid_ros.core.model.mechanics import BodyPoses
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.model.robot_files import find_settings
from sysid_ros.core.model.settings import Section
from sysid_ros.core.model.urdf import read_urdf
from sysid_ros.core.trajectories.base import State
from sysid_ros.papers.names import EXPERIMENTS, PUBLISHED

Array = NDArray[np.float64]

ROBOT = "kinova_gen3_2f85"
LARGEST_MASS = 4.0
"""Largest payload [kg]; the paper restricts it to this."""
MOTORS = np.array([
    [0.5217, 0.577, 0.4213, 0.4946, 0.1611, 0.1333, 0.1434],
    [10.5, 7.41, 9.97, 8.27, 8.86, 8.71, 8.89],
    [8.03, 12.0, 9.0, 11.58, 8.47, 8.85, 8.86],
])  # fmt: skip
"""Coulomb friction [Nm], viscous friction [Nm s/rad] and armature [kg m^2] as identified by the authors, (3, 7)."""
UNCERTAINTY = 0.05
"""Of motors and links, relative."""
SPEEDS, TORQUES = np.radians([100.0] * 4 + [180.0] * 3), np.array([90.0] * 4 + [45.0] * 3)
"""Limits of speed [rad/s] and torque [Nm] of the profile ``published``."""
EFFORT = {
    "effort_meaning": "motor_side",
    "effort_relative_error": 0.025,
    "effort_gain_error": 0.0,
    "effort_absolute_error": 0.02,
}
"""Errors of the torques: 2.5 % of any sign at any time (section VI-D)."""
K_RANGE = np.radians([3.75] * 4 + [9.0] * 3)
"""Half range of the end positions of random plans [rad]: pi/48 and pi/20."""
STACK = 0.075
"""Height of a dumbbell in the stack [m]; one that ends further from its place has failed."""
CLEARANCE = {"a": 0.15, "b": 0.15, "c": 0.005}
"""Between the obstacle and the lowest sphere of arm and payload on the desired motion [m]."""
LEG = {"a": 1.0, "b": 1.0, "c": 1.5}
"""Duration of each of the two polynomials [s]."""
_START = [-1.16396061, 0.34987045, -3.68094828, -1.75466411, 0.19968747, -1.09177839, -0.19841415]
_KNOTS = {
    "a": (
        [-0.8979718, -0.20561541, -3.32970829, -1.59927577, -0.00685254, -1.85913974, 0.64003912],
        [0.61727642, -0.51122344, 0.9066071, 0.34166603, -0.10671642, -0.75006636, 1.5709715],
        [0.424540552, 1.87500175, 0.730927099, -0.332258207, 0.873312941, 2.19965295, 0.000250637011],
        [-0.50296838, -0.15090219, -2.74337607, -1.43287251, 0.06063413, -1.8474959, 1.47855803],
    ),
    "b": (
        [-0.66290119, -0.09099118, -3.48809793, -0.79306897, 0.04506539, -1.45191409, 0.6983348],
        [1.27386205, 0.13955803, 0.77060326, 1.17729474, -0.10645826, -0.88696009, 1.68018552],
        [0.58062506, 3.11209306, 0.856248533, -2.0440934, 0.285996558, -0.68416758, -9.24945438e-11],
        [-0.02500949, 0.55020233, -3.05694277, -0.54403656, -0.04979576, -2.04844549, 1.59508374],
    ),
}  # fmt: skip
"""Position, velocity and acceleration half way, and the goal, for legs of 1 s [rad, rad/s, rad/s^2]."""
SETTLE, HOLD = 1.0, 4.0
"""At rest before the motion, and after it until the place is measured: the PID needs so long to settle [s]."""


@lru_cache(maxsize=2)
def experiment_robot(profile: str = PUBLISHED) -> RobotModel:
    """Return the arm of a profile with the payload prior."""
    path = find_settings(ROBOT)
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    values["payload_priors"][values["payload_prior"]]["mass"] = [0.0, LARGEST_MASS]
    values |= (
        _published(values) if profile == PUBLISHED else {"elasticity": values["elasticity"] | {"is_elastic": True}}
    )
    urdf = (path.parent / values["urdf"]).read_text(encoding="utf-8")
    robot = build_robot(ROBOT, read_urdf(urdf), Section(values, path.name))
    torques = {} if profile != PUBLISHED else {"tau_max": TORQUES, "tau_continuous": TORQUES}
    return replace(robot, limits=replace(robot.limits, v_max=SPEEDS, **torques))


def _published(values: dict[str, Any]) -> dict[str, Any]:
    """Return the sections of the robot file that are the authors'."""
    bounded = ("effort_mean_error", "effort_integral_error")
    sensors = {key: one for key, one in values["sensors"].items() if key not in bounded}
    motors = [[*motor, 0.0] for motor in MOTORS.T.tolist()]
    friction = {
        joint: {"nominal": motor, "radius": [UNCERTAINTY * one for one in motor]}
        for joint, motor in zip(values["joints"], motors, strict=True)
    }
    return {"friction": friction, "inertial_uncertainty": {"relative": UNCERTAINTY}, "sensors": sensors | EFFORT}


@dataclass(frozen=True)
class Task:
    """A motion that places a dumbbell.

    Attributes:
        knots: Position, velocity and acceleration at the beginning, half way and at the end, (3, 3, n).
        leg: Duration of each of the two polynomials [s].
        scene: Obstacles and ground.
    """

    knots: Array
    leg: float
    scene: Scene

    @property
    def start(self) -> Array:
        """Posture in which the dumbbell is held at the beginning, (n,) [rad]."""
        return np.asarray(self.knots[0, 0])

    @property
    def goal(self) -> Array:
        """Posture in which it is placed, (n,) [rad]."""
        return np.asarray(self.knots[2, 0])

    @cached_property
    def _path(self) -> tuple[BPoly, BPoly, BPoly]:
        position = BPoly.from_derivatives([0.0, self.leg, 2.0 * self.leg], self.knots)
        return position, position.derivative(), position.derivative(2)

    def evaluate(self, t: float) -> State:
        """Evaluate the motion at a time from its beginning [s]; at rest before and after."""
        if 0.0 < t < 2.0 * self.leg:
            q, v, a = (one(t) for one in self._path)
            return q, v, a
        posture = self.start if t <= 0.0 else self.goal
        return posture.copy(), np.zeros_like(posture), np.zeros_like(posture)


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


@lru_cache(maxsize=2 * len(EXPERIMENTS))
def build_task(experiment: str, profile: str = PUBLISHED) -> Task:
    """Build the task of an experiment."""
    rest = np.zeros(len(_START))
    middle, v, a, goal = (np.array(one) for one in _KNOTS["b" if experiment == "c" else experiment])
    leg = LEG[experiment]
    knots = np.array([[_START, rest, rest], [middle, v / leg, a / leg**2], [goal, rest, rest]])
    task = Task(knots, leg, Scene())
    obstacle = _obstacle(experiment_robot(profile), task, CLEARANCE[experiment])
    return replace(task, scene=Scene((obstacle,), clearance=0.0))


def identification_scene(profile: str = PUBLISHED) -> Scene:
    """Return the environment during identification: the obstacles of the three experiments, and the ground."""
    tasks = [build_task(experiment, profile) for experiment in EXPERIMENTS]
    boxes = [replace(task.scene.obstacles[0], name=f"obstacle {k}") for task, k in zip(tasks, EXPERIMENTS, strict=True)]
    return Scene(tuple(boxes), ground_height=0.0, clearance=0.0)


def _obstacle(robot: RobotModel, task: Task, clearance: float) -> Obstacle:
    """Return a box under the path of the hand after half of it, across it and as high as the clearance allows."""
    spheres = Spheres(robot)
    center = BodyPoses(robot).tool_path(task.evaluate(1.3 * task.leg)[0][None])[0]
    angle, half = np.arctan2(center[1], center[0]), np.array([0.06, 0.015])
    turn = np.array([[np.cos(angle), -np.sin(angle), 0.0], [np.sin(angle), np.cos(angle), 0.0], [0.0, 0.0, 1.0]])
    lowest = np.inf
    for t in np.arange(0.0, 2.0 * task.leg, 0.01):
        local = (spheres.centers(task.evaluate(t)[0]) - [center[0], center[1], 0.0]) @ turn
        beside = np.linalg.norm(np.maximum(np.abs(local[:, :2]) - half, 0.0), axis=1)
        reach = spheres.radii + clearance
        near = beside < reach
        lowest = min(lowest, np.min(local[near, 2] - np.sqrt(reach[near] ** 2 - beside[near] ** 2), initial=np.inf))
    half_height = 0.5 * float(lowest)
    return Obstacle("obstacle", np.array([center[0], center[1], half_height]), np.array([*half, half_height]), turn)
