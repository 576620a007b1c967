"""The hardware of an emulated arm under ros2_control: what it does with effort commands, or with none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.arm_dynamics import ArmDynamics
from sysid_ros.drivers.ros2_control.settings import TorqueCommand
from sysid_ros.emulation.plant import PERIOD, EmulatedArm, Measured

_TRACKING_RATE = 25.0
"""Natural frequency with which the emulated trajectory controller follows its reference [rad/s]."""
_LARGEST_STEPS = 20


@dataclass(frozen=True)
class HardwareSettings:
    """The hardware component.

    Attributes:
        period: Time between two updates of the controllers [s], a multiple of 0.001.
        torque_command: What the hardware adds to an effort command.
    """

    period: float = 0.001
    torque_command: TorqueCommand = TorqueCommand.FULL

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
    """One simulated arm as a hardware component.

    Args:
        arm: The arm.
        settings: The component.
    """

    def __init__(self, arm: EmulatedArm, settings: HardwareSettings | None = None):
        self.arm, self.settings = arm, settings or HardwareSettings()
        self._model = ArmDynamics(arm.robot, arm.robot.theta_nominal, None)
        self._held = np.array(arm.robot.home)
        gravity = arm.dynamics.gravity(arm.q)
        self._effort = gravity if arm.is_link_side else gravity + arm.friction[:, 3]

    def measure(self) -> Measured:
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

        Args:
            q_d: Desired positions, (n,) [rad].
            v_d: Desired velocities, (n,) [rad/s].
            a_d: Desired accelerations, (n,) [rad/s^2].
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
