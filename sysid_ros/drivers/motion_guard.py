"""Watches whether the arm does what it was told. Each check returns a sentence, empty where all is well."""

from __future__ import annotations

import numpy as np

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.loop_types import LoopSettings


class MotionGuard:
    """Compares measured with desired motion.

    Args:
        robot: Limits, sensors and names.
        settings: Thresholds.
    """

    def __init__(self, robot: RobotModel, settings: LoopSettings):
        self._names = robot.joint_names
        self._settings = settings
        self._v_max = robot.limits.v_max
        self._measurement_error = 0.5 * robot.sensors.position_resolution

    def find_bound_violation(self, error: Array, bound: Array) -> str:
        """Whether the arm has left the tube its certificate is about.

        Args:
            error: Absolute difference of path and measured position, (n,) [rad].
            bound: Bound the trajectory was certified with, (n,) [rad].
        """
        excess = error - bound - self._measurement_error
        joint = int(excess.argmax())
        if excess[joint] <= 0.0:
            return ""
        return (
            f"{self._names[joint]} is {error[joint]:.4f} rad away from its path "
            f"(certified bound {bound[joint]:.4f} rad)"
        )

    def find_following_error(self, q_d: Array, q: Array) -> str:
        """Whether the arm no longer follows at all.

        Args:
            q_d: Desired positions, (n,) [rad].
            q: Measured positions, (n,) [rad].
        """
        error = np.abs(q_d - q)
        joint = int(error.argmax())
        allowed = self._settings.following_error
        if error[joint] <= allowed:
            return ""
        return f"{self._names[joint]} is {error[joint]:.4f} rad away from its reference (allowed {allowed:g} rad)"

    def find_overspeed(self, v: Array) -> str:
        """Whether a joint is much faster than it may be.

        Args:
            v: Measured velocities, (n,) [rad/s].
        """
        share = np.abs(v) / self._v_max
        joint = int(share.argmax())
        factor = self._settings.overspeed_factor
        if share[joint] <= factor:
            return ""
        return (
            f"{self._names[joint]} moves with {v[joint]:.3f} rad/s "
            f"(limit {self._v_max[joint]:.3f} rad/s, allowed {factor:g} times that)"
        )

    def find_silence(self, silence: float) -> str:
        """Whether the commanding side has gone.

        Args:
            silence: Time since its last sign of life [s].
        """
        allowed = self._settings.heartbeat_timeout
        if silence <= allowed:
            return ""
        return f"no sign of life of the commanding side for {silence:.3f} s (allowed {allowed:g} s)"
