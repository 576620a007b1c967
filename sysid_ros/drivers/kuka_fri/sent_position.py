"""Which position goes with a torque: one that never jumps, and that is or is not the measured one, as it is set."""

from __future__ import annotations

import numpy as np

from sysid_ros.core.model.robot import JointLimits
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.kuka_fri.settings import FriSettings, PositionSent

_STEP = 1.5
"""Largest step of the position sent, in steps at the speed limit: a measurement that jumps must not jump through."""


class SentPosition:
    """The position that is sent, cycle by cycle.

    With an offset it lies beside the measured position on the side of the middle of the joint's range. The side changes
    only where the joint is on the other side of the middle by more than half of what there is to its limit: so it does
    not chatter, and a position within the limits is never sent beyond them.

    Args:
        limits: Positions and speeds of the joints.
        settings: Kind, offset and period.
    """

    def __init__(self, limits: JointLimits, settings: FriSettings):
        is_bounded = np.isfinite(limits.q_lower) & np.isfinite(limits.q_upper)
        lower, upper = (np.where(is_bounded, q, 0.0) for q in (limits.q_lower, limits.q_upper))
        self._middle = 0.5 * (lower + upper)
        self._turn = np.where(is_bounded, 0.25 * (upper - lower), np.inf)
        has_offset = settings.position is PositionSent.OFFSET
        self._offset = np.minimum(settings.position_offset, self._turn) if has_offset else np.zeros(len(lower))
        self._step = _STEP * limits.v_max * settings.period
        self._side = np.zeros(len(lower))
        self._sent = np.zeros(len(lower))

    def restart(self, q: Array) -> None:
        """Begins at the position that the controller was sent last, (n,) [rad]."""
        self._sent = np.array(q)
        self._side = np.where(q > self._middle, -1.0, 1.0)

    def follow(self, q: Array) -> Array:
        """The position to send.

        Args:
            q: Measured positions, (n,) [rad].

        Returns:
            Positions, (n,) [rad].
        """
        is_far = self._side * (q - self._middle) > self._turn
        self._side = np.where(is_far, -self._side, self._side)
        target = q + self._side * self._offset
        self._sent = self._sent + np.clip(target - self._sent, -self._step, self._step)
        return self._sent
