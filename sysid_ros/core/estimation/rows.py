"""Rows of the linear system that binds the target: ``Y theta_e + B delta = u`` within an error bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """R rows ``y theta_e + b delta = u + e`` with ``|e| <= errors.sum(axis=1)``; ``delta`` is shared by all rows.

    ``delta`` (M,) collects everything that is unknown but the same in every row: the rest of the robot and its friction
    relative to the centre of their box, and, where asked for, torque lags and the direction of gravity.

    The velocity errors at the two ends of a window are kept apart from the other errors, because the window before and
    after share them: with ``theta_e`` known they act like ``sum_l (arm_l + target_l theta_e) (e_stop,l - e_start,l)``.
    ``target_l`` has C columns: ten if the target is one body, none if it is all of them; then ``arm_l`` is all bodies.

    Attributes:
        y: (R, P).
        b: (R, M).
        u: (R,) [Nms].
        errors: (R, K) [Nms], one column for each of ``settings.ERROR_TERMS``.
        ends: Gain of the velocity error of each joint at start and stop, (R, 2, n, C + 2): columns for the target,
            then centre and half width of what the rest of the arm adds.
        tilt: What gravity from another direction adds by the target: columns for unit gravity along three axes,
            (R, 3, C), or (R, 0, C) where the direction of gravity is known.
        window: Number of the window each row stems from, (R,); -1 for compacted rows.
        joint: Joint each row belongs to, counted from 0, (R,); -1 for compacted rows.
        start: Start of the window, (R,) int64 [ns].
        stop: End of the window, (R,) int64 [ns].
    """

    y: Array
    b: Array
    u: Array
    errors: Array
    ends: Array
    tilt: Array
    window: NDArray[np.int64]
    joint: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]

    def __len__(self) -> int:
        """Number of rows."""
        return int(self.u.size)

    @property
    def error(self) -> Array:
        """Error bound of each row, (R,) [Nms]."""
        return self.errors.sum(axis=1)

    @property
    def duration(self) -> Array:
        """Duration of each row's window, (R,) [s]."""
        return (self.stop - self.start) * 1e-9

    def select(self, index: NDArray | slice) -> Rows:
        """Some of the rows."""
        return Rows(*(getattr(self, name)[index] for name in _FIELDS))

    @classmethod
    def stack(cls, parts: Sequence[Rows]) -> Rows:
        """All rows of the parts (one at least), in their order."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in _FIELDS))


_FIELDS = ("y", "b", "u", "errors", "ends", "tilt", "window", "joint", "start", "stop")
