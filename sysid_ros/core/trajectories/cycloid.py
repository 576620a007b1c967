"""Motions made of cycloids between knots: in every interval each joint turns one way (SPACE section 5.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.trajectories.base import InvalidTrajectory, State, Trajectory, positive_number

Array = NDArray[np.float64]


class CycloidTrajectory(Trajectory):
    """Cycloids through K + 1 knots, one interval of equal length between each two; the arm rests at every knot.

    In an interval ``q = q_i + (q_f - q_i) (s - sin(2 pi s) / (2 pi))`` with s from 0 to 1, so each joint turns one way,
    its velocity is at most ``2 |q_f - q_i| / T`` and its acceleration ``2 pi |q_f - q_i| / T^2``.

    Args:
        knots: Positions at the ends of the intervals, (K + 1, n) [rad].
        period: Length of an interval T [s].

    Raises:
        InvalidTrajectory: There are fewer than two knots, or a number is not finite.

    Source: SPACE (28), (29).
    """

    kind = "cycloid"

    def __init__(self, knots: ArrayLike, period: float):
        values = np.array(knots, dtype=float)
        if values.ndim != 2 or len(values) < 2 or values.shape[1] == 0:
            raise InvalidTrajectory("the shape of knots", values.shape, "(K + 1, n) with one interval or more")
        if not np.all(np.isfinite(values)):
            row, joint = np.argwhere(~np.isfinite(values))[0]
            raise InvalidTrajectory(f"knot {row} of joint {joint + 1}", values[row, joint], "a finite number")
        values.setflags(write=False)
        self.knots = values
        self.period = positive_number("period [s]", period)
        self.n = values.shape[1]
        self.duration = self.period * (len(values) - 1)

    @property
    def intervals(self) -> int:
        """Number of intervals [-]."""
        return len(self.knots) - 1

    def evaluate(self, t: float) -> State:
        """See :meth:`Trajectory.evaluate`."""
        q, v, a = self.sample(np.array([t]))
        return q[0], v[0], a[0]

    def sample(self, times: ArrayLike) -> State:
        """See :meth:`Trajectory.sample`."""
        t = np.asarray(times, dtype=float) / self.period
        index = np.clip(np.floor(t).astype(int), 0, self.intervals - 1)
        phase = np.clip(t - index, 0.0, 1.0)
        start, turn = self.knots[index], self.knots[index + 1] - self.knots[index]
        angle = 2.0 * np.pi * phase
        progress = (phase - np.sin(angle) / (2.0 * np.pi))[:, None]
        rate = ((1.0 - np.cos(angle)) / self.period)[:, None]
        change = (2.0 * np.pi * np.sin(angle) / self.period**2)[:, None]
        return start + turn * progress, turn * rate, turn * change

    def position_extrema(self) -> tuple[Array, Array]:
        """See :meth:`Trajectory.position_extrema`; exact, as every interval is monotonic."""
        return self.knots.min(axis=0), self.knots.max(axis=0)

    def velocity_extrema(self) -> tuple[Array, Array]:
        """See :meth:`Trajectory.velocity_extrema`; exact, SPACE (34)."""
        peaks = 2.0 * np.diff(self.knots, axis=0) / self.period
        return np.minimum(peaks.min(axis=0), 0.0), np.maximum(peaks.max(axis=0), 0.0)

    def acceleration_extrema(self) -> tuple[Array, Array]:
        """See :meth:`Trajectory.acceleration_extrema`; exact, SPACE (35)."""
        peak = 2.0 * np.pi * np.abs(np.diff(self.knots, axis=0)).max(axis=0) / self.period**2
        return -peak, peak

    @property
    def coefficients(self) -> dict[str, Array]:
        """The knots, (K + 1, n) [rad], and the length of an interval, (1,) [s]."""
        return {"knots": self.knots, "period": np.array([self.period])}
