"""The actuators of an emulated arm: physics, modes, following error, limits, faults, lost commands.

An actuator holds a position or applies a torque. It holds with the true gravity: the integral part of a position
controller would have found it. There is no compensation of gravity or friction under torque control; the inner velocity
and current loops of a real actuator are not modelled: the torque commanded is the torque of the motor.

Following error, velocity and torque limits are from Kinova's user guide. That a fault of one actuator makes the
whole arm hold, and after how long without commands the tick counts as lost, is this emulator's own rule.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.drivers.arm import ArmState, Array
from sysid_ros.drivers.kinova_kortex.enums import CommandFlag, ControlMode, Safety, Status
from sysid_ros.drivers.kinova_kortex.frame import ID_MODULUS
from sysid_ros.drivers.kinova_kortex.messages import Command, wrap_degrees
from sysid_ros.emulators.plant import PERIOD, EmulatedArm

FOLLOWING_WARNING, FOLLOWING_ERROR = np.radians([3.0, 5.0])
"""Difference between commanded and measured position [rad]."""
_LARGE_TORQUE = 20.0
"""Actuators whose limit is above this are large ones [Nm]."""
_SPEED = np.radians([200.0, 120.0])
"""Speeds at which small and large ones trip [rad/s]."""
_TORQUE = np.array([51.3, 104.5])
"""Torques at which they trip [Nm]."""
_FAULTS = np.array([
    Safety.MAXIMUM_VELOCITY, Safety.MAXIMUM_TORQUE, Safety.JOINT_LIMIT_HIGH, Safety.JOINT_LIMIT_LOW,
    Safety.FOLLOWING_ERROR,
], dtype=int)  # fmt: skip
_SERVO_ENABLE = int(CommandFlag.SERVO_ENABLE)
_WELL, _MAJOR_FAULT = int(Status.CALIBRATED_TORQUE | Status.SERVOING), int(Status.MAJOR_FAULT)


class Actuators:
    """All actuators of one arm under low-level servoing or held by the base.

    Args:
        arm: The arm.
        watchdog_time: Time without an accepted command after which the tick counts as lost [s].
    """

    def __init__(self, arm: EmulatedArm, watchdog_time: float):
        self.arm, self.watchdog_time = arm, watchdog_time
        n = arm.robot.n
        limits = arm.robot.limits
        is_large = (limits.tau_continuous > _LARGE_TORQUE).astype(int)
        upper, lower = limits.q_upper + np.radians(1.0), limits.q_lower - np.radians(1.0)
        self._bounds = np.array(
            [_SPEED[is_large], _TORQUE[is_large], upper, -lower, np.full(n, FOLLOWING_WARNING)]
        )  # (5, n), in the order of _FAULTS
        self.modes = [ControlMode.POSITION] * n
        self._none = np.zeros(n, dtype=int)
        self.faults, self.warnings = np.zeros(n, dtype=int), self._none
        self.emergency_stop = False
        self.rejected = 0
        self.frame = 0
        self._is_low_level = False
        self.hold()
        self.measured = self.move(self._held, np.zeros(n, dtype=bool), np.zeros(n))

    def enter_low_level(self) -> None:
        """Commands act from now on."""
        self.hold()
        self._is_low_level = True
        self._is_first = True
        self._unanswered = 0.0

    def hold(self) -> None:
        """Let the base hold the arm in place; commands do not act."""
        self._held = self._commanded = self.arm.q
        self._tau = np.zeros(self.arm.robot.n)
        self._is_low_level = False
        self._is_servoing = True
        self.modes = [ControlMode.POSITION] * self.arm.robot.n

    def set_mode(self, joint: int, mode: ControlMode) -> None:
        """Change the mode of one actuator; it begins at its present position."""
        if mode is ControlMode.POSITION:
            self._held[joint] = self._commanded[joint] = self.arm.q[joint]
        self.modes[joint] = mode

    def accept(self, command: Command) -> bool:
        """Take a command; one that is not newer than the last is rejected by its id."""
        step = (command.frame - self.frame) % ID_MODULUS
        if not self._is_first and not 0 < step < ID_MODULUS // 2:
            self.rejected += 1
            return False
        self.frame, self._is_first, self._unanswered = command.frame, False, 0.0
        q = self.arm.q
        self._commanded = q + np.radians(wrap_degrees(command.q - np.degrees(q)))
        self._tau = command.tau
        self._is_servoing = bool(command.flags & _SERVO_ENABLE)
        return True

    def advance(self) -> None:
        """One period."""
        is_torque = np.array([mode is ControlMode.TORQUE for mode in self.modes])
        if self._is_low_level and self._is_servoing:
            self._unanswered += PERIOD
            target = np.where(is_torque, self._held, self._commanded)
        else:
            is_torque, target = np.zeros_like(is_torque), self._held
        self.measured = self.move(target, is_torque, self._tau)
        self._monitor()

    def move(self, q_hold: Array, is_torque: NDArray[np.bool_], tau: Array) -> ArmState:
        """Simulate one period and measure at its end.

        Args:
            q_hold: Positions to hold, (n,) [rad], unwrapped.
            is_torque: Which actuators apply torques instead, (n,).
            tau: Those torques in joint direction, (n,) [Nm].
        """
        arm = self.arm

        def torque(q: Array, v: Array) -> Array:
            commanded = arm.settings.command_sign * arm.clip(tau)
            return commanded if is_torque.all() else np.where(is_torque, commanded, arm.holding_torque(q, v, q_hold))

        return arm.measure(arm.advance(torque))

    def lose_tick(self) -> None:
        """No command has come for too long."""
        self.faults |= int(Safety.COMMUNICATION_TICK_LOST)

    def clear_faults(self) -> None:
        """Clear faults whose cause is over."""
        self.faults[:] = Safety.EMERGENCY_LINE_ASSERTED if self.emergency_stop else 0

    @property
    def is_in_fault(self) -> bool:
        """Whether an actuator is in fault."""
        return bool(self.faults.any())

    @property
    def is_tracking(self) -> bool:
        """Whether an actuator applies torques."""
        return self._is_low_level and ControlMode.TORQUE in self.modes

    @property
    def status(self) -> tuple[int, ...]:
        """Status flags, (n,)."""
        return tuple(_WELL | (_MAJOR_FAULT if fault else 0) for fault in self.faults.tolist())

    def _monitor(self) -> None:
        if self._is_low_level and self._unanswered > self.watchdog_time:
            self.lose_tick()
        measured = self.measured
        following: Array = np.abs(self._commanded - measured.q) if self._is_low_level else np.zeros(len(self.modes))
        values = np.array([np.abs(measured.v), np.abs(measured.tau), measured.q, -measured.q, following])
        is_beyond = values > self._bounds
        if not is_beyond.any() and not self.emergency_stop:  # most of the time none is exceeded
            self.warnings = self._none
            return
        self.warnings = np.where(is_beyond[-1], int(Safety.FOLLOWING_ERROR), 0)
        is_beyond[-1] = following > FOLLOWING_ERROR
        found = _FAULTS @ is_beyond
        if self.emergency_stop:
            found |= int(Safety.EMERGENCY_LINE_ASSERTED)
        self.faults |= found
