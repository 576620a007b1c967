"""Degree-5 Bezier trajectories from any state to rest."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.trajectories.base import BasisTrajectory, joint_vector, positive_number

Array = NDArray[np.float64]

DEGREE = 5
# Row k: coefficient of s^k of the six Bernstein polynomials of degree 5.
_BERNSTEIN_TO_POWER = np.array(
    [
        [1, 0, 0, 0, 0, 0],
        [-5, 5, 0, 0, 0, 0],
        [10, -20, 10, 0, 0, 0],
        [-10, 30, -30, 10, 0, 0],
        [5, -20, 30, -20, 5, 0],
        [-1, 5, -10, 10, -5, 1],
    ],
    dtype=float,
)


class BezierTrajectory(BasisTrajectory):
    """The degree-5 polynomial per joint from a given state to rest at a given position.

    Args:
        q0: Start position, (n,) [rad].
        v0: Start velocity, (n,) [rad/s].
        a0: Start acceleration, (n,) [rad/s^2].
        q1: End position, (n,) [rad].
        duration: Duration [s].

    Raises:
        InvalidTrajectory: An entry is not finite, a length differs or the duration is not positive.

    Source: SAFE-ID section V (the trajectory class of ARMOUR).
    """

    kind = "bezier"

    def __init__(self, q0: ArrayLike, v0: ArrayLike, a0: ArrayLike, q1: ArrayLike, duration: float):
        self.q0 = joint_vector("q0 [rad]", q0)
        n = self.q0.size
        self.v0 = joint_vector("v0 [rad/s]", v0, n)
        self.a0 = joint_vector("a0 [rad/s^2]", a0, n)
        self.q1 = joint_vector("q1 [rad]", q1, n)
        total = positive_number("duration [s]", duration)
        # Relative to q0, so that the rounding error is that of the motion and not that of the position.
        self._power = _BERNSTEIN_TO_POWER @ (self._control_points(total) - self.q0)  # (6, n), in s = t / duration
        velocity = _differentiate(self._power) / total
        matrix = np.concatenate([self._power, velocity, _differentiate(velocity) / total], axis=1)
        matrix[0] = np.concatenate([self.q0, self.v0, self.a0])  # exactly, so that plans join without a step
        super().__init__(matrix, self.q0, self.q1, total)

    @property
    def control_points(self) -> Array:
        """Bezier control points, (6, n) [rad]; every position lies between their extremes."""
        return self._control_points(self.duration)

    @property
    def coefficients(self) -> dict[str, Array]:
        """Start state and end position, each (n,)."""
        return {"q0": self.q0, "v0": self.v0, "a0": self.a0, "q1": self.q1}

    def position_extrema(self) -> tuple[Array, Array]:
        """See :meth:`Trajectory.position_extrema`. Exact, from the roots of the velocity."""
        return self._extrema(0)

    def velocity_extrema(self) -> tuple[Array, Array]:
        """See :meth:`Trajectory.velocity_extrema`. Exact, from the roots of the acceleration."""
        return self._extrema(1)

    def acceleration_extrema(self) -> tuple[Array, Array]:
        """See :meth:`Trajectory.acceleration_extrema`. Exact, from the roots of the jerk."""
        return self._extrema(2)

    def _control_points(self, duration: float) -> Array:
        second = self.q0 + self.v0 * (duration / DEGREE)
        third = self.a0 * (duration**2 / (DEGREE * (DEGREE - 1))) + 2.0 * second - self.q0
        return np.stack([self.q0, second, third, self.q1, self.q1, self.q1])

    def _basis(self, t: float) -> Array:
        s = t / self.duration
        square = s * s
        cube = square * s
        return np.array((1.0, s, square, cube, square * square, square * cube))

    def _basis_at(self, times: Array) -> Array:
        return np.vander(times / self.duration, DEGREE + 1, increasing=True)

    def _extrema(self, derivative: int) -> tuple[Array, Array]:
        powers = self._matrix[:, derivative * self.n : (derivative + 1) * self.n]
        lower, upper = np.empty(self.n), np.empty(self.n)
        for joint in range(self.n):
            lower[joint], upper[joint] = _polynomial_range(powers[:, joint])
        # At rest before and after: only the derivatives of a start in motion are not continued.
        rest = (self.q0, self.q1) if derivative == 0 else (np.zeros(self.n), np.zeros(self.n))
        lower = np.minimum.reduce([lower, *rest])
        upper = np.maximum.reduce([upper, *rest])
        slack = 64.0 * np.finfo(float).eps * (1e-300 + np.abs(powers).sum(axis=0))
        return lower - slack, upper + slack


def _differentiate(powers: Array) -> Array:
    """Compute the power coefficients (K, n) of the derivative, padded to the same length."""
    result = np.zeros_like(powers)
    result[:-1] = powers[1:] * np.arange(1, powers.shape[0])[:, None]
    return result


def _polynomial_range(powers: Array) -> tuple[float, float]:
    """Find the smallest and largest value on [0, 1] of a polynomial with ascending power coefficients (K,)."""
    slope = powers[1:] * np.arange(1, powers.size)
    # Leading coefficients that only hold rounding errors would send roots to infinity and blur the others.
    relevant = np.flatnonzero(np.abs(slope) > 1e-15 * np.abs(slope).max(initial=0.0))
    roots = np.roots(slope[: relevant[-1] + 1][::-1]) if relevant.size else np.empty(0)
    # A double root may come out as a close complex pair: its real part is as good a candidate.
    candidates = np.concatenate([[0.0, 1.0], np.clip(roots.real, 0.0, 1.0)])
    values = np.polynomial.polynomial.polyval(candidates, powers)
    return float(values.min()), float(values.max())
