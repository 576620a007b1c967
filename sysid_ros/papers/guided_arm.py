"""A simulated arm that a simulated person guides by its tool, cycle by cycle and without a clock.

The estimate of the external wrench depends on a model: its errors push the arm as the person does. In an experiment
they have the RMS torques that models of a real arm have. Docking: the hand leads the tip of an endoscope of 0.15 m
along the axis of a trocar that is 0.1 m away.

Source: EXCITE section V-C, Figures 5 and 6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.control import RobustController
from sysid_ros.core.excitation.problem import FourierSpace
from sysid_ros.core.model.inertia import from_com_form, to_com_form, transform_parameters
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.mechanics import add_payload
from sysid_ros.core.model.robot import INERTIAL, RobotModel, tool_transform
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopModel, LoopSample, LoopSettings
from sysid_ros.drivers.mujoco.arm import MujocoArm, MujocoSettings
from sysid_ros.drivers.mujoco.simulation import draw_truth
from sysid_ros.emulators.lockstep import run_for
from sysid_ros.papers.closed_loop import smooth_step
from sysid_ros.papers.names import EXCITE_ROBOT, NO_TOOL

Array = NDArray[np.float64]

DRIFT_TIME, MOVE_TIME, MOVE_WAY, DOCKING_TIME = 5.0, 3.0, 0.15, 12.0
"""Lengths of the experiments [s], and the way that the hand leads the tool in the second [m]."""
TIP, DEPTH, BEFORE = np.array([0.0, 0.0, 0.15]), 0.1, 0.02
"""Tip in the tool frame, its way in the trocar and the way before it [m]."""
_REACH = 0.6
"""Amplitude of the motion along which errors of models are measured [rad]."""
_PERIOD = 1e-3


@dataclass(frozen=True)
class Hand:
    """A person's hand on the tool: a spring and a damper towards where it wants the tool.

    Attributes:
        stiffness: [N/m].
        damping: [N s/m].
        turning_stiffness: [Nm/rad].
        turning_damping: [Nm s/rad].
        strength: Largest force [N].
        turning_strength: Largest moment [Nm].
    """

    stiffness: float = 500.0
    damping: float = 40.0
    turning_stiffness: float = 8.0
    turning_damping: float = 0.6
    strength: float = 40.0
    turning_strength: float = 4.0

    def wrench(self, wanted: pin.SE3, velocity: Array, tool: pin.SE3, twist: Array) -> Array:
        """Compute force and moment on the tool at its origin, world axes, (6,) [N, Nm].

        Args:
            wanted: Where the hand wants the tool.
            velocity: How fast that moves, (3,) [m/s].
            tool: Where the tool is.
            twist: Its linear and angular velocity, world axes, (6,).
        """
        force = self.stiffness * (wanted.translation - tool.translation) + self.damping * (velocity - twist[:3])
        turn = pin.log3(wanted.rotation @ tool.rotation.T)
        moment = self.turning_stiffness * turn - self.turning_damping * twist[3:]
        return np.concatenate([_limited(force, self.strength), _limited(moment, self.turning_strength)])


@dataclass(frozen=True)
class GuidedCycle:
    """One cycle.

    Attributes:
        tool: True place of the tool.
        hand: True wrench of the hand, (6,) [N, Nm].
        sample: What the loop measured and commanded; None where it had no answer of the arm.
    """

    tool: pin.SE3
    hand: Array
    sample: LoopSample | None


class LockstepGuiding:
    """Runs a loop that guides, with a hand at the tool of its simulated arm.

    Args:
        loop: The loop of a :class:`MujocoArm`, guiding.
        arm: That arm.
        offset: Constant joint torques on it that no model has, (n,) [Nm]; None for none.
    """

    def __init__(self, loop: ControlLoop, arm: MujocoArm, offset: Array | None = None):
        self._loop, self._arm = loop, arm
        self._offset = np.zeros(loop.robot.n) if offset is None else offset
        self._model, self._data = loop.robot.pin_model, loop.robot.pin_model.createData()
        self._frame = self._model.getFrameId(loop.robot.tool_frame)

    def tool(self) -> tuple[pin.SE3, Array]:
        """Return the true place of the tool and its twist in world axes, (6,)."""
        place, twist, _ = self._look()
        return place, twist

    def step(self, hand: Callable[[pin.SE3, Array], Array] | None = None) -> GuidedCycle:
        """Run one cycle.

        Args:
            hand: Maps place and twist of the tool to the wrench of the hand; None for no hand.
        """
        place, twist, jacobian = self._look()
        wrench = np.zeros(6) if hand is None else hand(place, twist)
        self._arm.push(jacobian.T @ wrench + self._offset)
        self._loop.heartbeat()
        return GuidedCycle(place, wrench, self._loop.step())

    def _look(self) -> tuple[pin.SE3, Array, Array]:
        """Return the true place of the tool, its twist and its Jacobian (6, n), in world axes."""
        truth, world = self._arm.truth(), pin.ReferenceFrame.LOCAL_WORLD_ALIGNED
        jacobian = np.array(pin.computeFrameJacobian(self._model, self._data, truth.q, self._frame, world))
        return self._data.oMf[self._frame].copy(), np.asarray(jacobian @ truth.v), jacobian


def _limited(vector: Array, largest: float) -> Array:
    return vector * min(1.0, largest / max(float(np.linalg.norm(vector)), largest))


class Person:
    """A hand whose wish moves smoothly from place to place, each in the same time [s]."""

    def __init__(self, places: list[pin.SE3], duration: float):
        self.hand, self.places, self.duration, self.time = Hand(), places, duration, 0.0

    def __call__(self, tool: pin.SE3, twist: Array) -> Array:
        """Return the wrench of the next cycle; see :class:`LockstepGuiding`."""
        leg = min(int(self.time / self.duration), len(self.places) - 2)
        share, rate, _ = smooth_step(min(1.0, self.time / self.duration - leg))
        start, end = self.places[leg], self.places[leg + 1]
        way = end.translation - start.translation
        wanted = pin.SE3(end.rotation, start.translation + share * way)
        self.time += _PERIOD
        return self.hand.wrench(wanted, rate / self.duration * way, tool, twist)


def draw_tool(robot: RobotModel, rng: np.random.Generator) -> Array:
    """Draw a tool of 0.5 to 1.5 kg, (10,)."""
    mass = rng.uniform(0.5, 1.5)
    inertia = mass * np.diag(rng.uniform(0.03, 0.05, 3) ** 2)
    com = np.append(rng.uniform(-0.02, 0.02, 2), rng.uniform(0.04, 0.1))
    return transform_parameters(from_com_form(mass, com, inertia), *tool_transform(robot))


def weigh(tool: Array) -> Array:
    """Return the tool as a controller's own weighing gives it, (10,): mass and CoM without inertia."""
    mass, com, _ = to_com_form(tool)
    return from_com_form(mass, com, np.zeros((3, 3)))


def typical_regressor(robot: RobotModel, rng: np.random.Generator) -> Array:
    """Evaluate the inertial columns along a random motion of 10 s around home, (N, n, 10 n)."""
    space = FourierSpace(robot.home, 5, 10.0, 200)
    x = rng.normal(size=(robot.n, space.per_joint))
    reach = np.abs(space.states(x)[0] - robot.home).max(axis=0)
    return TorqueRegressor(robot).inertial(*space.states(x * (_REACH / reach)[:, None]))


def draw_error(robot: RobotModel, rms: Array, seed: int) -> tuple[Array, Array]:
    """Draw the error of a model with an RMS torque per joint along a typical motion.

    Inertial parameters are off by as large a share of a random error in the arm's box as no joint's RMS forbids; the
    rest is constant.

    Args:
        robot: The arm.
        rms: The RMS torques, (n,) [Nm].
        seed: Of the random choice.

    Returns:
        Errors of the inertial parameters, (10 n,), and constant torques that the model lacks, (n,) [Nm].
    """
    rng, bodies = np.random.default_rng((seed, 5)), slice(INERTIAL * robot.n)
    error = draw_truth(robot, "random", seed + 1000)[bodies] - robot.theta_nominal[bodies]
    torque = typical_regressor(robot, rng) @ error  # (N, n)
    share = float(np.min(rms / np.sqrt(np.mean(torque**2, axis=0)), initial=1.0))
    mean, spread = share * torque.mean(axis=0), share * torque.std(axis=0)
    return share * error, rng.choice([-1.0, 1.0], robot.n) * np.sqrt(np.maximum(rms**2 - spread**2, 0.0)) - mean


def build(
    robot: RobotModel, theta: Array, tool: Array, model: Array, seed: int, offset: Array | None = None
) -> LockstepGuiding:
    """Return a guided arm whose controller and observer have the model (14 n,), payload included."""
    arm = MujocoArm(robot, theta, tool, settings=MujocoSettings(seed=seed))
    in_use = replace(LoopModel.nominal(robot), theta=model, theta_box=Box.around(model, 0.0), payload=np.zeros(10))
    loop = ControlLoop(arm, RobustController(robot), robot, LoopSettings(allows_guiding=True), in_use)
    loop.connect()
    run_for(loop, 0.5)
    loop.guide()
    return LockstepGuiding(loop, arm, offset)


def drift(run: LockstepGuiding) -> Array:
    """Return the way of the tool without a hand after each cycle [mm] and its angle [deg], (N, 2)."""
    start, _ = run.tool()
    ways = [start.actInv(run.step().tool) for _ in range(round(DRIFT_TIME / _PERIOD))]
    return np.array(
        [(1e3 * np.linalg.norm(way.translation), np.degrees(np.linalg.norm(pin.log3(way.rotation)))) for way in ways]
    )


def effort(run: LockstepGuiding, direction: Array) -> tuple[float, float]:
    """Return the mean and the largest force of the hand on its way [N]."""
    start, _ = run.tool()
    person = Person([start, pin.SE3(start.rotation, start.translation + MOVE_WAY * direction)], MOVE_TIME)
    forces = [np.linalg.norm(run.step(person).hand[:3]) for _ in range(round(MOVE_TIME / _PERIOD))]
    return float(np.mean(forces)), float(np.max(forces))


def dock(run: LockstepGuiding) -> tuple[Array, float]:
    """Return depth and distance of the tip from the trocar's axis in it, (K, 2) [mm], and when it is in [s]."""
    start, _ = run.tool()
    side = pin.SE3(start.rotation, start.translation + 0.1 * start.rotation[:, 0])
    inside = pin.SE3(start.rotation, side.translation + (BEFORE + DEPTH) * start.rotation[:, 2])
    axis, entry = start.rotation[:, 2], side.act(TIP) + BEFORE * start.rotation[:, 2]
    person, path, arrived = Person([start, side, side, inside], 2.5), [], np.inf
    for cycle in range(round(DOCKING_TIME / _PERIOD)):
        tip = run.step(person).tool.act(TIP) - entry
        depth = float(axis @ tip)
        if depth > 0.0:
            path.append((depth, float(np.linalg.norm(tip - depth * axis))))
        if depth > 0.8 * DEPTH:
            arrived = _PERIOD * cycle
            break
    return 1e3 * np.array(path).reshape(-1, 2), arrived


def run_guiding(model: str, rms: list[float], seed: int) -> dict[str, Any]:
    """Guide an arm with a model that has these RMS torque errors, and in one case lacks the tool as well."""
    arm, rng = load_robot(EXCITE_ROBOT), np.random.default_rng((seed, 11))
    theta, tool, direction = draw_truth(arm, "random", seed), draw_tool(arm, rng), rng.normal(size=3)
    error, offset = draw_error(arm, np.array(rms), seed)
    believed = theta + np.append(error, np.zeros(theta.size - error.size))
    believed = believed if model == NO_TOOL else add_payload(believed, weigh(tool))
    runs = [build(arm, theta, tool, believed, seed, offset) for _ in range(3)]
    ways, forces = drift(runs[0]), effort(runs[1], direction / np.linalg.norm(direction))
    path, arrived = dock(runs[2])
    return {
        "drift": ways[-1, 0],
        "turned": ways[-1, 1],
        "forces": forces,
        "off_axis": float(np.max(path[:, 1], initial=0.0)),
        "docked": arrived if np.isfinite(arrived) else None,
        "shown": {"drift": ways[::50, 0], "path": path[::20]},
    }
