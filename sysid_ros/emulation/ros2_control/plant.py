"""The arm behind the emulated controllers: MuJoCo physics, and what the hardware does with an effort command."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.arm_dynamics import ArmDynamics
from sysid_ros.drivers.ros2_control.settings import TorqueCommand
from sysid_ros.emulation import plant as emulated_plant
from sysid_ros.emulation.plant import PERIOD, EmulatedPlant

_TRACKING_RATE = 25.0
"""Natural frequency with which the emulated trajectory controller follows its reference [rad/s]."""


@dataclass(frozen=True)
class PlantSettings(emulated_plant.PlantSettings):
    """How the arm is simulated.

    Attributes:
        period: Time between two updates of the controllers [s], a multiple of 0.001.
        torque_command: What the hardware adds to an effort command.
    """

    measured_sign: float = 1.0
    period: float = 0.001
    torque_command: TorqueCommand = TorqueCommand.FULL

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps < 1 or abs(self.steps * PERIOD - self.period) > 1e-9 or self.steps > 20:
            raise ParameterOutOfRange("period [s]", self.period, "a multiple of 0.001, up to 0.02")
        if self.torque_command is TorqueCommand.UNSET:
            raise ParameterOutOfRange("torque_command", "unset", "full, overlay_gravity or overlay")

    @property
    def steps(self) -> int:
        """Simulated steps per update."""
        return round(self.period / PERIOD)


@dataclass(frozen=True)
class Measured:
    """What the state interfaces say. Arrays are (n,).

    Attributes:
        stamp_ns: When [ns].
        q: Positions [rad].
        v: Velocities [rad/s].
        tau: Efforts with the sign that is reported [Nm].
    """

    stamp_ns: int
    q: Array
    v: Array
    tau: Array


class EmulatedHardware(EmulatedPlant):
    """One simulated arm as a hardware component.

    Args:
        robot: What is known of the arm.
        theta: Its true parameters, (14 n,).
        payload: Its true payload about the frame of the last joint, (10,); None for none.
        settings: How it is simulated.
        stamp_ns: Time of its start [ns].
    """

    def __init__(
        self,
        robot: RobotModel,
        theta: Array,
        payload: Array | None = None,
        settings: PlantSettings | None = None,
        stamp_ns: int = 0,
    ):
        super().__init__(robot, theta, payload, settings or PlantSettings())
        self._own = ArmDynamics(robot, robot.theta_nominal, None)
        self._held = np.array(robot.home)
        self._start_ns = stamp_ns
        self._updates = 0
        gravity = self._true.gravity(self.q)
        self._effort = gravity if self._is_link_side else gravity + self._friction[:, 3]

    @property
    def stamp_ns(self) -> int:
        """Simulated time [ns]."""
        return self._start_ns + round(self._updates * self.settings.period * 1e9)

    def measure(self) -> Measured:
        """What the sensors say now; the effort is the mean since the update before."""
        stamp, q, v, tau = self._sensors.measure(self.stamp_ns, self.q, self.v, self._effort)
        return Measured(stamp, q, v, self.settings.measured_sign * tau)

    def hold(self) -> None:
        """Simulates until the next update without any command: the hardware holds the arm."""
        self._advance(lambda q, v: self._holding_torque(q, v, self._held))

    def apply(self, command: Array) -> None:
        """Simulates until the next update with effort commands, (n,) [Nm] in the order of the model."""
        settings = self.settings
        tau = settings.command_sign * np.array(command)
        self._advance(lambda q, v: tau + self._added(q, v))
        self._held = self.q

    def follow(self, q_d: Array, v_d: Array, a_d: Array) -> None:
        """Simulates until the next update under a trajectory controller of the arm's own, which knows its payload.

        Args:
            q_d: Desired positions, (n,) [rad].
            v_d: Desired velocities, (n,) [rad/s].
            a_d: Desired accelerations, (n,) [rad/s^2].
        """
        coulomb, viscous, _, offset = self._friction.T

        def torque(q: Array, v: Array) -> Array:
            rate = _TRACKING_RATE
            feedback = self._inertia(q) * (rate**2 * (q_d - q) + 2.0 * rate * (v_d - v))
            friction = coulomb * np.tanh(v_d / 0.05) + viscous * v_d + self._friction[:, 2] * a_d + offset
            return self._true.torque(q, v, a_d) + friction + feedback

        self._advance(torque)
        self._held = self.q

    def _advance(self, torque) -> None:  # noqa: ANN001
        limit, effort = self.robot.limits.tau_max, np.zeros(self.robot.n)
        before = (self.q, self.v)
        for _ in range(self.settings.steps):
            applied = np.clip(torque(self.q, self.v), -limit, limit)
            self._step(applied)
            effort += applied / self.settings.steps
        self._updates += 1
        after = (self.q, self.v)
        self._effort = self._true.mean_torque(before, after, self.settings.period) if self._is_link_side else effort

    def _added(self, q: Array, v: Array) -> Array:
        if self.settings.torque_command is TorqueCommand.OVERLAY:
            return self._own.torque(q, v, np.zeros_like(v))
        if self.settings.torque_command is TorqueCommand.OVERLAY_GRAVITY:
            return self._own.gravity(q)
        return np.zeros_like(q)
