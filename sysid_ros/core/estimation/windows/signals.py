"""The measured signals of one window and the regressors evaluated on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.windows.model import WindowModel
from sysid_ros.core.estimation.windows.samples import InvalidSamples, SampleBlock

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Velocities:
    """Velocities at the inner samples of a recording.

    Attributes:
        v: (N - 2 m, n) [rad/s], of the samples ``m`` to ``N - m - 1``.
        error: Largest error of each joint, (n,) [rad/s], if the assumptions hold.
        half_width: Samples on either side that each velocity rests on, m.
    """

    v: Array
    error: Array
    half_width: int


def differentiate_positions(
    seconds: ArrayLike,
    q: ArrayLike,
    position_error: ArrayLike,
    jerk: ArrayLike,
    stamp_jitter: float = 0.0,
    half_width: int | None = None,
    largest_half_width: int = 20,
) -> Velocities:
    """Velocities by local parabolas (Savitzky-Golay), without phase shift.

    The slope of the parabola fitted to the samples from ``k - m`` to ``k + m`` is a weighted sum of positions with
    error at most ``sum |w| (e_q + |v| e_t) + jerk sum |w| |t - t_k|^3 / 6``; m is chosen to make that small.

    Args:
        seconds: Stamps, (N,) [s], increasing; steps may differ.
        q: Positions, (N, n) [rad].
        position_error: Largest position error, (n,) or a number [rad].
        jerk: Largest third derivative of the true motion, (n,) or a number [rad/s^3]: an assumption.
        stamp_jitter: Largest error of a stamp [s].
        half_width: m, or None to choose it.
        largest_half_width: Largest m to try.

    Raises:
        InvalidSamples: Too few samples, or stamps that do not increase.
        ParameterOutOfRange: The half width is below 1.
    """
    times, positions = np.asarray(seconds, dtype=float), np.asarray(q, dtype=float)
    n = positions.shape[1]
    if times.ndim != 1 or len(times) != len(positions) or np.any(np.diff(times) <= 0.0):
        raise InvalidSamples("stamps", "must be increasing, one for each row of q")
    if half_width is not None and half_width < 1:
        raise ParameterOutOfRange("half_width [samples]", half_width, "1 or more")
    widths = [half_width] if half_width is not None else range(1, largest_half_width + 1)
    widths = [m for m in widths if 2 * m + 1 <= len(times)]
    if not widths:
        raise InvalidSamples("q", f"has only {len(times)} samples; at least 3 are needed to differentiate")
    errors = [np.broadcast_to(np.asarray(value, dtype=float), (n,)) for value in (position_error, jerk)]
    candidates = [_differentiate(times, positions, *errors, stamp_jitter, m) for m in widths]
    return min(candidates, key=lambda candidate: float(np.sum(candidate.error)))


def _differentiate(times: Array, q: Array, position_error: Array, jerk: Array, jitter: float, m: int) -> Velocities:
    weights, offsets = _slope_weights(times, m)
    windows = np.lib.stride_tricks.sliding_window_view(q, 2 * m + 1, axis=0)
    v = np.einsum("kw,kjw->kj", weights, windows)
    gain = np.max(np.sum(np.abs(weights), axis=1))
    cubic = np.max(np.sum(np.abs(weights) * (np.abs(offsets) + jitter) ** 3, axis=1)) / 6.0
    # The stamp of the middle sample is wrong too, and shifts the velocity by acceleration times jitter.
    fastest = np.max(np.abs(v), axis=0)
    base = gain * position_error + cubic * jerk
    shift = jitter * (gain * (fastest + base) + _largest_acceleration(times, q))
    return Velocities(v, (base + 1.1 * shift) * (1.0 + 1e-9), m)


def _slope_weights(times: Array, m: int) -> tuple[Array, Array]:
    """Weights of the slope of local parabolas and the times they refer to, (N - 2 m, 2 m + 1) each."""
    offsets = np.lib.stride_tricks.sliding_window_view(times, 2 * m + 1) - times[m : len(times) - m, None]
    scale = offsets[:, -1:] - offsets[:, :1]
    powers = np.stack([np.ones_like(offsets), offsets / scale, (offsets / scale) ** 2], axis=-1)
    solved = np.linalg.solve(powers.transpose(0, 2, 1) @ powers, powers.transpose(0, 2, 1))
    return solved[:, 1] / scale, offsets


def _largest_acceleration(times: Array, q: Array) -> Array:
    """Largest second difference, (n,) [rad/s^2]."""
    v = np.diff(q, axis=0) / np.diff(times)[:, None]
    return np.max(np.abs(np.diff(v, axis=0)), axis=0) / np.min(np.diff(times))


Evaluate = Callable[[Array, Array], tuple[Array, Array]]

_SHIFTS = (2.0 * np.arange(1, 5) - 1.0) * np.pi / 4.0
_WEIGHTS = np.array([1.0, -1.0, 1.0, -1.0]) / (8.0 * np.sin(0.5 * _SHIFTS) ** 2)


@dataclass(frozen=True)
class RegressorDerivatives:
    """Both regressors and their derivatives at K points; the last axis is the joint the derivative is taken for.

    Attributes:
        momentum: ``W_m``, (K, n, p).
        force: ``W_c``, (K, n, p).
        momentum_q: ``d W_m / d q``, (K, n, p, n).
        momentum_v: ``d W_m / d v``, (K, n, p, n).
        force_q: ``d W_c / d q``, (K, n, p, n).
        force_v: ``d W_c / d v``, (K, n, p, n).
    """

    momentum: Array
    force: Array
    momentum_q: Array
    momentum_v: Array
    force_q: Array
    force_v: Array


def differentiate_regressors(evaluate: Evaluate, q: Array, v: Array) -> RegressorDerivatives:
    """Derivatives of the inertial columns of the momentum regressors at K points, exact up to rounding.

    Args:
        evaluate: Maps q (N, n) and v (N, n) to ``W_m`` and ``W_c``, each (N, n, p), without friction columns.
        q: Positions, (K, n) [rad].
        v: Velocities, (K, n) [rad/s].
    """
    count, n = q.shape
    units = np.eye(n)
    # One batch: the points, 4 n angle shifts, then n unit velocities, of K points each.
    angles = _SHIFTS[:, None, None, None] * units[:, None, :]
    shifted = (q + angles).reshape(-1, n)
    velocities = np.concatenate([np.tile(v, (4 * n + 1, 1)), units.repeat(count, axis=0)])
    momentum, force = evaluate(np.concatenate([q, shifted, np.tile(q, (n, 1))]), velocities)
    first, last = count, (4 * n + 1) * count

    def by_angle(regressor: Array) -> Array:
        turned = regressor[first:last].reshape(4, -1)
        return np.moveaxis((_WEIGHTS @ turned).reshape(n, count, n, -1), 0, -1)

    momentum_q = by_angle(momentum)
    return RegressorDerivatives(
        momentum=momentum[:first],
        force=force[:first],
        momentum_q=momentum_q,
        momentum_v=np.moveaxis(momentum[last:].reshape(n, count, n, -1), 0, -1),
        force_q=by_angle(force),
        force_v=momentum_q.transpose(0, 3, 2, 1),
    )


@dataclass(frozen=True)
class WindowSignals:
    """Signals of one window of N samples; times count from its first sample.

    Attributes:
        start_stamp: First stamp [ns].
        stop_stamp: Last stamp [ns].
        times: Stamps, (N,) [s].
        q: Positions, (N, n) [rad].
        v: Velocities, (N, n) [rad/s].
        torque_times: Stamps of the torque samples, which go on behind the window where the torque lags, (N',) [s].
        tau: Torques, (N', n) [Nm].
        points: Samples at which the regressors and their derivatives are known: both ends and some between, (K,).
        derivatives: The inertial columns of the regressors and their derivatives there.
        inertial: Inertial columns of the rows, (n, 10 n).
        tilted: The same for unit gravity in three directions (none if gravity is known), each (n, 10 n).
        speed: No joint is faster than this during the window, (n,) [rad/s].
        slope: Mean acceleration between two samples is never above this, (n,) [rad/s^2].
        velocity_drift: Distance of the true velocity from the nearest measured one, at any time, (n,) [rad/s].
        position_drift: The same for positions, (n,) [rad].
    """

    start_stamp: int
    stop_stamp: int
    times: Array
    q: Array
    v: Array
    torque_times: Array
    tau: Array
    points: NDArray[np.intp]
    derivatives: RegressorDerivatives
    inertial: Array
    tilted: tuple[Array, ...]
    speed: Array
    slope: Array
    velocity_drift: Array
    position_drift: Array

    @classmethod
    def of(cls, model: WindowModel, block: SampleBlock, start: int, stop: int) -> WindowSignals:
        """Signals of the window from sample ``start`` to sample ``stop`` of contiguous samples."""
        seconds = (block.stamps - block.stamps[start]).astype(float) * 1e-9
        times, q, v = (array[start : stop + 1] for array in (seconds, block.q, block.v))
        points = choose_points(times, model.settings.sensitivity_spacing)
        derivatives = differentiate_regressors(model.regressor.evaluate, q[points], v[points])
        change = derivatives.momentum[-1] - derivatives.momentum[0]
        weights = quadrature_weights(times, model.settings.quadrature)
        steps = np.diff(times)
        half_step = 0.5 * float(steps.max()) + model.sensors.stamp_jitter
        shortest = max(float(steps.min()) - 2.0 * model.sensors.stamp_jitter, 1e-9)
        slope = (np.max(np.abs(np.diff(v, axis=0)), axis=0) + 2.0 * model.sensors.velocity_error) / shortest
        velocity_drift = model.sensors.velocity_error + model.acceleration * half_step
        speed = np.max(np.abs(v), axis=0) + velocity_drift
        return cls(
            start_stamp=int(block.stamps[start]),
            stop_stamp=int(block.stamps[stop]),
            times=times,
            q=q,
            v=v,
            torque_times=seconds[start:],
            tau=block.tau[start:],
            points=points,
            derivatives=derivatives,
            inertial=change - model.regressor.integrate(q, v, weights),
            tilted=tuple(-regressor.integrate(q, np.zeros_like(v), weights) for regressor in model.tilted),
            speed=speed,
            slope=np.minimum(slope, model.acceleration),
            velocity_drift=velocity_drift,
            position_drift=model.position_error + speed * half_step,
        )

    @property
    def steps(self) -> Array:
        """Step lengths, (N - 1,) [s]."""
        return np.diff(self.times)

    @property
    def duration(self) -> float:
        """Length of the window [s]."""
        return float(self.times[-1])


def choose_points(times: Array, spacing: float) -> NDArray[np.intp]:
    """Samples about ``spacing`` [s] apart, both ends included."""
    count = max(int(np.ceil((times[-1] - times[0]) / spacing)) + 1, 2)
    return np.unique(np.linspace(0, len(times) - 1, count).round().astype(int))


def quadrature_weights(times: Array, quadrature: str) -> Array:
    """Weights (N,) [s] of the samples in the integral from the first to the last of ``times``."""
    steps = np.diff(times)
    if quadrature == "forward_euler":
        return np.append(steps, 0.0)
    return 0.5 * (np.append(steps, 0.0) + np.append(0.0, steps))
