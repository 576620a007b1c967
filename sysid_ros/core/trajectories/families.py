"""Families of trajectories: Bezier from any state to rest, Fourier series from rest to rest, cycloids between knots."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.trajectories.base import (
    Array,
    BasisTrajectory,
    State,
    Trajectory,
    joint_vector,
    positive_number,
)

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
_GRID = 4096


class BezierTrajectory(BasisTrajectory):
    """The degree-5 polynomial per joint from a given state to rest at a given position.

    Args:
        q0: Start position, (n,) [rad].
        v0: Start velocity, (n,) [rad/s].
        a0: Start acceleration, (n,) [rad/s^2].
        q1: End position, (n,) [rad].
        duration: Duration [s].

    Raises:
        ParameterOutOfRange: An entry is not finite, a length differs or the duration is not positive.

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
        # Relative to q0, so that the rounding error is relative to the motion and not to the position.
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
    def power_coefficients(self) -> Array:
        """Coefficients of the powers of ``t / duration`` in the displacement from the start, (6, n) [rad]."""
        return self._power

    @property
    def coefficients(self) -> dict[str, Array]:
        """Start state and end position, each (n,)."""
        return {"q0": self.q0, "v0": self.v0, "a0": self.a0, "q1": self.q1}

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
        """Compute the exact extremes, from the roots of the next derivative."""
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


class FourierTrajectory(BasisTrajectory):
    """``q = q_start + sum_l a_l / (w l) sin(w l t) + b_l / (w l) (1 - cos(w l t))`` per joint, ``w = 2 pi f``.

    It starts and ends at rest when ``sum_l a_l = 0`` and ``sum_l l b_l = 0`` and the duration is a whole number of
    periods (:func:`rest_projection` makes any coefficients so).

    Args:
        q_start: Start and end position, (n,) [rad].
        sine: Coefficients a_l (of the sines of the position), (n, L) [rad/s].
        cosine: Coefficients b_l (of the cosines of the position), (n, L) [rad/s].
        base_frequency: Frequency f [Hz].
        duration: Duration [s].

    Raises:
        ParameterOutOfRange: An entry is not finite, a shape differs, the duration is not a whole number of periods, or
            the trajectory does not start at rest.

    Source: EXCITE (9b), (9c).
    """

    kind = "fourier"

    def __init__(self, q_start: ArrayLike, sine: ArrayLike, cosine: ArrayLike, base_frequency: float, duration: float):
        self.q_start = joint_vector("q_start [rad]", q_start)
        n = self.q_start.size
        self.sine = _harmonics("sine [rad/s]", sine, n)
        self.cosine = _harmonics("cosine [rad/s]", cosine, n)
        if self.sine.shape != self.cosine.shape:
            raise ParameterOutOfRange("the shape of cosine", self.cosine.shape, f"the shape of sine, {self.sine.shape}")
        self.base_frequency = positive_number("base_frequency [Hz]", base_frequency)
        total = positive_number("duration [s]", duration)
        periods = total * self.base_frequency
        if round(periods) < 1 or abs(periods - round(periods)) > 1e-9 * periods:
            raise ParameterOutOfRange("duration in periods", periods, "a whole number, at least 1")
        order = np.arange(1, self.sine.shape[1] + 1)
        self._omega = 2.0 * np.pi * self.base_frequency * order  # (L,)
        _require_rest("velocity [rad/s]", self.sine.sum(axis=1), np.abs(self.sine).sum(axis=1))
        start_acceleration = self.cosine * self._omega
        _require_rest("acceleration [rad/s^2]", start_acceleration.sum(axis=1), np.abs(start_acceleration).sum(axis=1))
        super().__init__(self._build_matrix(), self.q_start, self.q_start, total)

    @property
    def harmonics(self) -> int:
        """Number of harmonics L."""
        return int(self.sine.shape[1])

    @property
    def coefficients(self) -> dict[str, Array]:
        """``q_start`` (n,), ``sine`` and ``cosine`` (n, L), ``base_frequency`` (1,)."""
        frequency = np.array([self.base_frequency])
        return {"q_start": self.q_start, "sine": self.sine, "cosine": self.cosine, "base_frequency": frequency}

    def _build_matrix(self) -> Array:
        a, b, omega = self.sine, self.cosine, self._omega
        # Rows: 1, sin(w l t), cos(w l t); columns: q, v, a.
        constant = np.concatenate([self.q_start + (b / omega).sum(axis=1), np.zeros(2 * self.q_start.size)])
        sines = np.concatenate([a / omega, b, -a * omega]).T
        cosines = np.concatenate([-b / omega, a, b * omega]).T
        return np.concatenate([constant[None], sines, cosines])

    def _basis(self, t: float) -> Array:
        angles = self._omega * t
        basis = np.empty(2 * angles.size + 1)
        basis[0] = 1.0
        np.sin(angles, out=basis[1 : angles.size + 1])
        np.cos(angles, out=basis[angles.size + 1 :])
        return basis

    def _basis_at(self, times: Array) -> Array:
        angles = np.multiply.outer(times, self._omega)
        return np.concatenate([np.ones((times.size, 1)), np.sin(angles), np.cos(angles)], axis=1)

    def _extrema(self, derivative: int) -> tuple[Array, Array]:
        """Compute the extremes on a grid, plus the largest overshoot between two grid points, about 1e-6 of them.

        At an extremum the slope is zero, and the nearest grid point is at most h/2 away, so the grid misses at most
        ``max |f''| (h/2)^2 / 2``. The grid is one period; it contains the state of rest.
        """
        columns = slice(derivative * self.n, (derivative + 1) * self.n)
        step = 1.0 / (self.base_frequency * _GRID)
        values = self._basis_at(step * np.arange(float(_GRID))) @ self._matrix[:, columns]
        amplitude = np.hypot(self.sine, self.cosine) * self._omega ** (derivative - 1)  # (n, L)
        curvature = (amplitude * self._omega**2).sum(axis=1)
        slack = curvature * step**2 / 8.0 + 1e-12 * (amplitude.sum(axis=1) + np.abs(self._matrix[0, columns]))
        return values.min(axis=0) - slack, values.max(axis=0) + slack


def rest_projection(harmonics: int) -> tuple[Array, Array]:
    """Compute orthonormal bases of the coefficients of one joint that start and end at rest.

    Returns:
        ``(sine_basis, cosine_basis)``, each (L, L - 1): ``sine = sine_basis @ x`` fulfils ``sum_l a_l = 0`` and
        ``cosine = cosine_basis @ y`` fulfils ``sum_l l b_l = 0`` for any x, y (L - 1,).

    Raises:
        ParameterOutOfRange: Fewer than two harmonics (only the motionless trajectory is left).
    """
    if harmonics < 2:
        raise ParameterOutOfRange("harmonics", harmonics, "at least 2")
    order = np.arange(1.0, harmonics + 1.0)
    return _null_space(np.ones(harmonics)), _null_space(order)


def _null_space(row: Array) -> Array:
    basis: Array = np.linalg.svd(row[None])[2][1:].T
    return basis


def _harmonics(name: str, values: ArrayLike, n: int) -> Array:
    array = np.array(values, dtype=float)
    if array.ndim == 1 and array.size and array.size % n == 0:
        array = array.reshape(n, -1)
    if array.ndim != 2 or array.shape[0] != n or array.shape[1] == 0:
        raise ParameterOutOfRange(f"the shape of {name}", array.shape, f"({n}, number of harmonics)")
    bad = np.argwhere(~np.isfinite(array))
    if bad.size:
        joint, order = bad[0]
        raise ParameterOutOfRange(f"{name} of joint {joint + 1}, harmonic {order + 1}", array[joint, order], "finite")
    array.setflags(write=False)
    return array


def _require_rest(what: str, residual: Array, scale: Array) -> None:
    bad = np.flatnonzero(np.abs(residual) > 1e-9 * (1.0 + scale))
    if bad.size:
        raise ParameterOutOfRange(f"start {what} of joint {bad[0] + 1}", residual[bad[0]], "0 (start at rest)")


class CycloidTrajectory(Trajectory):
    """Cycloids through K + 1 knots, one interval of equal length between each two; the arm rests at every knot.

    In an interval ``q = q_i + (q_f - q_i) (s - sin(2 pi s) / (2 pi))`` with s from 0 to 1, so each joint turns one way,
    its velocity is at most ``2 |q_f - q_i| / T`` and its acceleration ``2 pi |q_f - q_i| / T^2``.

    Args:
        knots: Positions at the ends of the intervals, (K + 1, n) [rad].
        period: Length of an interval T [s].

    Raises:
        ParameterOutOfRange: There are fewer than two knots, or a number is not finite.

    Source: SPACE (28), (29).
    """

    kind = "cycloid"

    def __init__(self, knots: ArrayLike, period: float):
        values = np.array(knots, dtype=float)
        if values.ndim != 2 or len(values) < 2 or values.shape[1] == 0:
            raise ParameterOutOfRange("the shape of knots", values.shape, "(K + 1, n) with one interval or more")
        if not np.all(np.isfinite(values)):
            row, joint = np.argwhere(~np.isfinite(values))[0]
            raise ParameterOutOfRange(f"knot {row} of joint {joint + 1}", values[row, joint], "a finite number")
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
