"""Compares measured with commanded torque: where both are of the motor, they differ by the sensor's error alone."""

from __future__ import annotations

import numpy as np

from sysid_ros.core.model.robot import EffortMeaning, RobotModel
from sysid_ros.drivers.arm import Array

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
