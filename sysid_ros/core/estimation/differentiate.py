"""Velocities from positions, with a bound on their error, for recordings that hold no velocities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.errors import ParameterOutOfRange
from sysid_ros.core.estimation.samples import InvalidSamples

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
