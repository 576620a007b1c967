"""Fourier-series trajectories that start and end at rest at the same position."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from sysid_ros.core.trajectories.base import Array, BasisTrajectory, InvalidTrajectory, joint_vector, positive_number

_GRID = 4096
_REST_TOLERANCE = 1e-9


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
        InvalidTrajectory: An entry is not finite, a shape differs, the duration is not a whole number of periods, or
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
            raise InvalidTrajectory("the shape of cosine", self.cosine.shape, f"the shape of sine, {self.sine.shape}")
        self.base_frequency = positive_number("base_frequency [Hz]", base_frequency)
        total = positive_number("duration [s]", duration)
        periods = total * self.base_frequency
        if round(periods) < 1 or abs(periods - round(periods)) > 1e-9 * periods:
            raise InvalidTrajectory("duration in periods", periods, "a whole number, at least 1")
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

    def position_extrema(self) -> tuple[Array, Array]:
        """See :meth:`Trajectory.position_extrema`; wider than the truth by about 1e-6 rad at most."""
        return self._extrema(0)

    def velocity_extrema(self) -> tuple[Array, Array]:
        """See :meth:`Trajectory.velocity_extrema`; wider than the truth by about 1e-6 of its amplitude at most."""
        return self._extrema(1)

    def acceleration_extrema(self) -> tuple[Array, Array]:
        """See :meth:`Trajectory.acceleration_extrema`; wider than the truth by about 1e-6 of its amplitude at most."""
        return self._extrema(2)

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
        """Compute the extremes on a grid, plus what the function can do between two grid points.

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

    Args:
        harmonics: Number of harmonics L, at least 2.

    Returns:
        ``(sine_basis, cosine_basis)``, each (L, L - 1): ``sine = sine_basis @ x`` fulfils ``sum_l a_l = 0`` and
        ``cosine = cosine_basis @ y`` fulfils ``sum_l l b_l = 0`` for any x, y (L - 1,).

    Raises:
        InvalidTrajectory: Fewer than two harmonics (only the motionless trajectory is left).
    """
    if harmonics < 2:
        raise InvalidTrajectory("harmonics", harmonics, "at least 2")
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
        raise InvalidTrajectory(f"the shape of {name}", array.shape, f"({n}, number of harmonics)")
    bad = np.argwhere(~np.isfinite(array))
    if bad.size:
        joint, order = bad[0]
        raise InvalidTrajectory(f"{name} of joint {joint + 1}, harmonic {order + 1}", array[joint, order], "finite")
    array.setflags(write=False)
    return array


def _require_rest(what: str, residual: Array, scale: Array) -> None:
    bad = np.flatnonzero(np.abs(residual) > _REST_TOLERANCE * (1.0 + scale))
    if bad.size:
        raise InvalidTrajectory(f"start {what} of joint {bad[0] + 1}", residual[bad[0]], "0 (start at rest)")
