"""The controllers of an emulated arm as seen from outside, and its hardware, which applies their commands.

They behave like joint_state_broadcaster and forward_command_controller of ros2_controllers: the broadcaster names the
joints in an order of its own, other joints among them, and fills unmeasured fields with NaN. The forward controller
drops a command with a number that is not finite, does not apply one of the wrong length, and repeats the last good one
for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import ArmState, Array
from sysid_ros.drivers.modes import TorqueCommand
from sysid_ros.drivers.reference import fade_out
from sysid_ros.drivers.ros2_control.states import JointStates
from sysid_ros.emulators.plant import PERIOD, EmulatedArm

FIELDS = ("position", "velocity", "effort")


@dataclass(frozen=True)
class BroadcastFaults(Settings):
    """Faults of the published states; none by default."""

    is_silent: bool = setting(False)
    """Publish nothing."""
    not_measured: tuple[str, ...] = setting((), choices=("", *FIELDS))
    """Fields that are NaN, as of an arm that does not measure them."""
    left_out: tuple[str, ...] = setting((), choices=("", *FIELDS))
    """Fields that are left empty."""
    nan_efforts: tuple[str, ...] = setting(())
    """Joints whose effort is NaN."""
    renamed: tuple[str, ...] = setting(())
    """Joints that get another name."""
    repeats: bool = setting(False)
    """Publish every message twice."""
    drop_every: int = setting(0, "-", lower=0, upper=1000)
    """Leave out every n-th message; 0 leaves out none."""


class Broadcaster:
    """Converts states into messages, in an order of joints, the model's and others; empty for the model's order.

    Raises:
        ParameterOutOfRange: A joint of the model is missing in the order.
    """

    def __init__(self, robot: RobotModel, order: Sequence[str] = ()):
        self._order = tuple(order) or robot.joint_names
        missing = sorted(set(robot.joint_names) - set(self._order))
        if missing:
            raise ParameterOutOfRange("order of joint states", ", ".join(self._order), f"with {', '.join(missing)} too")
        self._places = [self._order.index(name) for name in robot.joint_names]
        # Joints of others: a gripper that measures no effort.
        self._others = {field: np.full(len(self._order), np.nan if field == "effort" else 0.0) for field in FIELDS}
        self.faults = BroadcastFaults()
        self._count = 0

    def messages(self, measured: ArmState) -> list[JointStates]:
        """Return the messages for one state: one, or none or two where that is the fault."""
        faults = self.faults
        self._count += 1
        if faults.is_silent or (faults.drop_every and self._count % faults.drop_every == 0):
            return []
        columns = {}
        for field, values in zip(FIELDS, (measured.q, measured.v, measured.tau), strict=True):
            row = self._others[field].copy()
            row[self._places] = values
            columns[field] = np.empty(0) if field in faults.left_out else row
            if field in faults.not_measured:
                row[:] = np.nan
        for name in faults.nan_efforts:
            if columns["effort"].size:
                columns["effort"][self._order.index(name)] = np.nan
        names = tuple(f"{name}_renamed" if name in faults.renamed else name for name in self._order)
        position, velocity, effort = (columns[field].tolist() for field in FIELDS)
        message = JointStates(measured.stamp_ns, names, position, velocity, effort)
        return [message, message] if faults.repeats else [message]


class ForwardController:
    """Takes commands in an order of joints; empty for the model's order.

    Attributes:
        joints: The joints in that order.
        taken: Number of accepted commands.
        command: The command in force, (n,) [Nm] in the order of the model; None before the first.

    Raises:
        ParameterOutOfRange: A joint is not one of the model.
    """

    def __init__(self, robot: RobotModel, joints: Sequence[str] = ()):
        self.joints = tuple(joints) or robot.joint_names
        for name in self.joints:
            if name not in robot.joint_names:
                raise ParameterOutOfRange("joint", name, f"one of {', '.join(robot.joint_names)}")
        self._places = [robot.joint_names.index(name) for name in self.joints]
        self._n = robot.n
        self.taken = 0
        self._is_dead = False
        self.command: Array | None = None

    @property
    def is_dead(self) -> bool:
        """Whether it has stopped taking commands, as a controller whose process hangs; the last one stays in force.

        Restarted it has no command: until the first one the hardware holds the arm.
        """
        return self._is_dead

    @is_dead.setter
    def is_dead(self, value: bool) -> None:
        """Lets it die, or starts it anew."""
        if self._is_dead and not value:
            self.command = None
        self._is_dead = value

    def take(self, data: Sequence[float]) -> str | None:
        """Take a command, [Nm] in the order of its joints; return its complaint, or None."""
        values = np.array(data, dtype=float)
        if self._is_dead:
            return None
        if not np.isfinite(values).all():
            return "Non-finite value received. Dropping message"
        if values.size != len(self.joints):
            return f"command size ({values.size}) does not match number of interfaces ({len(self.joints)})"
        self.command = np.zeros(self._n)
        self.command[self._places] = values
        self.taken += 1
        return None


_HARMONICS = 3
_BASE_FREQUENCY = 0.15
_RAMP = 2.0
_SPEED, _REACH = 0.4, 0.5
"""Largest speed over the limit of each joint [-], and largest distance from home [rad]."""


class HomeMotion:
    """Sums of sines about home, of random amplitudes and phases, which begin gently at ``start`` [s] and never end."""

    def __init__(self, robot: RobotModel, seed: int = 0, start: float = 0.0):
        rng = np.random.default_rng((seed, 11))
        n = robot.n
        self._home, self._start = np.array(robot.home), start
        self._omega = 2.0 * np.pi * _BASE_FREQUENCY * np.arange(1, _HARMONICS + 1)[:, None] * rng.uniform(0.8, 1.2, n)
        amplitude = rng.uniform(0.3, 1.0, (_HARMONICS, n)) / np.arange(1, _HARMONICS + 1)[:, None]
        self._phase = rng.uniform(0.0, 2.0 * np.pi, (_HARMONICS, n))
        limits = robot.limits
        room = np.minimum(_REACH, 0.8 * np.minimum(limits.q_upper - robot.home, robot.home - limits.q_lower))
        # The ramp adds a third of the amplitude per second at most; half of every limit is left for it.
        most = np.min([
            np.maximum(room, 0.0) / amplitude.sum(axis=0),
            0.5 * _SPEED * limits.v_max / (amplitude * self._omega).sum(axis=0),
            0.5 * _SPEED * limits.a_max / (amplitude * self._omega**2).sum(axis=0),
        ], axis=0)  # fmt: skip
        self._amplitude = amplitude * most

    def evaluate(self, time: float) -> tuple[Array, Array, Array]:
        """Positions [rad], velocities [rad/s] and accelerations [rad/s^2], each (n,), at a time [s]."""
        t = max(0.0, time - self._start)
        angle = self._omega * t + self._phase
        q = (self._amplitude * np.sin(angle)).sum(axis=0)
        v = (self._amplitude * self._omega * np.cos(angle)).sum(axis=0)
        a = -(self._amplitude * self._omega**2 * np.sin(angle)).sum(axis=0)
        rest, slope, curvature = fade_out(min(1.0, t / _RAMP))
        share, rate, change = 1.0 - rest, -slope / _RAMP, -curvature / _RAMP**2
        return (self._home + share * q, share * v + rate * q, share * a + 2.0 * rate * v + change * q)


_TRACKING_RATE = 25.0
"""Natural frequency with which the emulated trajectory controller follows its reference [rad/s]."""
_LARGEST_STEPS = 20


@dataclass(frozen=True)
class HardwareSettings:
    """The hardware component."""

    period: float = 0.001
    """Time between two updates of the controllers [s], a multiple of 0.001."""
    torque_command: TorqueCommand = TorqueCommand.FULL
    """Torques that the hardware adds to an effort command."""

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= _LARGEST_STEPS or abs(self.steps * PERIOD - self.period) > 1e-9:
            raise ParameterOutOfRange("period [s]", self.period, "a multiple of 0.001, up to 0.02")
        if self.torque_command is TorqueCommand.UNSET:
            raise ParameterOutOfRange("torque_command", "unset", "full, overlay_gravity or overlay")

    @property
    def steps(self) -> int:
        """Simulated steps per update."""
        return round(self.period / PERIOD)


class EmulatedHardware:
    """One simulated arm as a hardware component."""

    def __init__(self, arm: EmulatedArm, settings: HardwareSettings | None = None):
        self.arm, self.settings = arm, settings or HardwareSettings()
        self._model = ArmDynamics(arm.robot, arm.robot.theta_nominal, None)
        self._held = np.array(arm.robot.home)
        gravity = arm.dynamics.gravity(arm.q)
        self._effort = gravity if arm.is_link_side else gravity + arm.friction[:, 3]

    def measure(self) -> ArmState:
        """Measure now; the effort is the mean since the update before."""
        return self.arm.measure(self._effort)

    def hold(self) -> None:
        """Simulate until the next update without any command: the hardware holds the arm."""
        self._advance(lambda q, v: self.arm.holding_torque(q, v, self._held))

    def apply(self, command: Array) -> None:
        """Simulate until the next update with effort commands, (n,) [Nm] in the order of the model."""
        tau = self.arm.settings.command_sign * np.array(command)
        self._advance(lambda q, v: tau + self._added(q, v))
        self._held = self.arm.q

    def follow(self, q_d: Array, v_d: Array, a_d: Array) -> None:
        """Simulate until the next update under a trajectory controller of the arm's own, which knows its payload.

        Desired positions [rad], velocities [rad/s] and accelerations [rad/s^2] are (n,).
        """
        arm = self.arm
        coulomb, viscous, armature, offset = arm.friction.T

        def torque(q: Array, v: Array) -> Array:
            rate = _TRACKING_RATE
            feedback = arm.inertia(q) * (rate**2 * (q_d - q) + 2.0 * rate * (v_d - v))
            friction = coulomb * np.tanh(v_d / 0.05) + viscous * v_d + armature * a_d + offset
            return arm.dynamics.torque(q, v, a_d) + friction + feedback

        self._advance(torque)
        self._held = arm.q

    def _advance(self, torque: Callable[[Array, Array], Array]) -> None:
        self._effort = self.arm.advance(lambda q, v: self.arm.clip(torque(q, v)), self.settings.steps)

    def _added(self, q: Array, v: Array) -> Array:
        if self.settings.torque_command is TorqueCommand.OVERLAY:
            return self._model.torque(q, v, np.zeros_like(v))
        if self.settings.torque_command is TorqueCommand.OVERLAY_GRAVITY:
            return self._model.gravity(q)
        return np.zeros_like(q)
