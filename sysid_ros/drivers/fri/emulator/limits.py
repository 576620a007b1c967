"""Limits of position and speed that an emulated controller watches, whatever is commanded."""

from __future__ import annotations

import numpy as np

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import Array


class LimitWatch:
    """Compares an arm with the limits of its robot file. That nothing is allowed beyond them is an own rule.

    Args:
        robot: Limits.
    """

    def __init__(self, robot: RobotModel):
        limits = robot.limits
        self._names = robot.joint_names
        self._bounds = np.concatenate([limits.q_upper, -limits.q_lower, limits.v_max])

    def find_broken(self, q: Array, v: Array) -> str:
        """The first limit that is left, in words; empty if none is.

        Args:
            q: Positions, (n,) [rad].
            v: Velocities, (n,) [rad/s].
        """
        is_broken = np.concatenate([q, -q, np.abs(v)]) > self._bounds
        if not is_broken.any():
            return ""
        kind, joint = divmod(int(is_broken.argmax()), len(self._names))
        value, unit = ((q, "deg"), (q, "deg"), (v, "deg/s"))[kind]
        limit = np.degrees(self._bounds[kind * len(self._names) + joint]) * (-1.0 if kind == 1 else 1.0)
        return f"{self._names[joint]} at {np.degrees(value[joint]):.1f} {unit}, its limit is {limit:.1f} {unit}"
