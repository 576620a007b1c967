"""Angles from 0 to 360 degrees on the wire, and continuous joint angles here."""

from __future__ import annotations

import numpy as np

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import Array


def wrap_degrees(angle: Array) -> Array:
    """The same angles from -180 (included) to 180 [deg]."""
    return np.mod(angle + 180.0, 360.0) - 180.0


def to_wire(q: Array) -> Array:
    """Joint angles (n,) [rad] as they are sent, from 0 (included) to 360 [deg]."""
    return np.mod(np.degrees(q), 360.0)


class Unwrapper:
    """Makes continuous joint angles of those on the wire.

    The first reading is taken at the turn inside the position limits of the joint; a joint without limits at the turn
    nearest to its home position. Between two readings no joint turns by half a turn: at its largest speed that takes
    over a second, much longer than the driver lives without readings.

    Args:
        robot: Limits and home.
    """

    def __init__(self, robot: RobotModel):
        limits = robot.limits
        is_limited = np.isfinite(limits.q_lower) & np.isfinite(limits.q_upper)
        middle = 0.5 * (np.where(is_limited, limits.q_lower, 0.0) + np.where(is_limited, limits.q_upper, 0.0))
        self._middle = np.degrees(np.where(is_limited, middle, robot.home))
        self._last: Array | None = None

    def reset(self) -> None:
        """Forgets the turns."""
        self._last = None

    def update(self, angle: Array) -> Array:
        """The joint angles (n,) [rad] of a reading (n,) [deg]."""
        reference = self._middle if self._last is None else self._last
        self._last = reference + wrap_degrees(angle - reference)
        return np.radians(self._last)
