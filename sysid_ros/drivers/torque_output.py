"""The last step before a motor: torque goes over smoothly where its source changes, and never exceeds its limit."""

from __future__ import annotations

import numpy as np

from sysid_ros.core.model.robot import EffortMeaning, RobotModel
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.reference import fade_out

_FORGIVEN = 20
"""After so many times the allowed duration without a difference a sensor is believed again."""


class TorqueCheck:
    """Finds joints whose torque is not the one that was commanded: a wrong gain or sign, a motor that does not obey.

    A command takes effect within one cycle, so the torque that is measured lies between the last two commands, within
    the error of the sensor. A sensor on the link side measures something else; then nothing is checked.

    Args:
        robot: Sensors and joint names.
        duration: How long the two must differ without a break [s]; 0 checks nothing.
        period: Duration of a cycle [s].
    """

    def __init__(self, robot: RobotModel, duration: float, period: float):
        sensors = robot.sensors
        self._names = robot.joint_names
        self._relative, self._absolute = sensors.effort_relative_error, sensors.effort_absolute_error
        self._is_on = duration > 0.0 and sensors.effort_meaning is EffortMeaning.MOTOR_SIDE
        self._right, self._fault = 0, ""
        self._cycles = max(1, round(duration / period))
        self._duration = duration
        self.restart()

    def restart(self) -> None:
        """Forgets the commands, as after cycles in which nobody knows what the motors did."""
        self._last = self._before = np.full(len(self._names), np.nan)
        self._wrong = np.zeros(len(self._names), dtype=int)

    def note(self, command: Array) -> None:
        """Takes in what was sent in this cycle, (n,) [Nm]."""
        self._before, self._last = self._last, command

    def find_mismatch(self, tau: Array) -> str:
        """Why the efforts, now (n,) [Nm], are not believed to be those that were commanded, empty if they are."""
        if not self._is_on or np.isnan(self._before).any():
            return ""
        lower, upper = np.minimum(self._before, self._last), np.maximum(self._before, self._last)
        size = np.maximum(np.abs(tau), np.maximum(np.abs(lower), np.abs(upper)))
        allowed = self._relative * size + self._absolute
        is_wrong = ~(np.maximum(lower - tau, tau - upper) <= allowed)
        self._wrong = np.where(is_wrong, self._wrong + 1, 0)
        self._right = 0 if is_wrong.any() else self._right + 1
        if self._right >= _FORGIVEN * self._cycles:
            self._fault = ""
        joint = int(self._wrong.argmax())
        if self._wrong[joint] >= self._cycles and not self._fault:  # the first finding stays, not new words every cycle
            self._fault = self._describe(joint, tau[joint], allowed[joint])
        return self._fault

    def _describe(self, joint: int, tau: float, allowed: float) -> str:
        return (
            f"the torque of {self._names[joint]} is {tau:.3f} Nm, commanded were {self._last[joint]:.3f} Nm: more "
            f"than the sensor's error of {allowed:.3f} Nm apart for {1e3 * self._duration:.0f} ms"
        )


class TorqueOutput:
    """Blends and limits torques.

    Args:
        tau_max: Torque limits, (n,) [Nm].
        blend_time: Duration of a blend [s].
        period: Duration of a cycle [s].

    Attributes:
        last: Torque of the last cycle, (n,) [Nm].
        saturated_cycles: Cycles in which a limit cut the torque.
        blend_left: Time until the present blend ends [s]; 0 without one.
    """

    def __init__(self, tau_max: Array, blend_time: float, period: float):
        self._limit = tau_max
        self._blend_time = blend_time
        self._period = period
        self._from: Array | None = None
        self._difference = np.zeros_like(tau_max)
        self.blend_left = 0.0
        self.last = np.zeros_like(tau_max)
        self.saturated_cycles = 0

    def start_blend(self, tau: Array) -> None:
        """Lets the next torques start from ``tau`` (n,) [Nm]; does nothing where it is not finite."""
        if np.all(np.isfinite(tau)):
            self._from, self.blend_left = np.array(tau), self._blend_time

    def blend(self, tau: Array) -> Array:
        """The torque (n,) [Nm] with what is left of the difference to the one blended from."""
        if self.blend_left <= 0.0:
            return tau
        if self._from is not None:
            self._difference, self._from = self._from - tau, None
        share = fade_out(1.0 - self.blend_left / self._blend_time)[0]
        self.blend_left -= self._period
        return tau + share * self._difference

    def limit(self, tau: Array) -> Array:
        """The torque (n,) [Nm] within its limits; counts cuts and remembers the result."""
        self.last = np.minimum(np.maximum(tau, -self._limit), self._limit)
        if (self.last != tau).any():
            self.saturated_cycles += 1
        return self.last
