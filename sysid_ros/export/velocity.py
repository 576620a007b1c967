"""Velocities of recordings that hold positions only."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.signal import savgol_coeffs

from sysid_ros.core.errors import SysidError
from sysid_ros.export.torque_fit import differentiate

Array = NDArray[np.float64]

SHORT, LONG = 0.05, 0.08
"""Lengths of the filter windows whose difference shows the truncation error [s]."""


def estimate_velocity(stamps: ArrayLike, q: Array, resolution: ArrayLike) -> tuple[Array, Array]:
    """Velocity from positions, and how good it probably is.

    The error has two parts: encoder steps passed through the filter (a bound), and the curvature the filter smooths
    away (an estimate: twice the largest difference between two filter lengths). So the sum is no guarantee.

    Args:
        stamps: (N,) [ns], rising.
        q: Positions, (N, n) [rad].
        resolution: Encoder step, (n,) [rad].

    Returns:
        Velocities (N, n) [rad/s] and their estimated largest errors (n,) [rad/s].

    Raises:
        SysidError: There are too few samples to differentiate.
    """
    times = np.asarray(stamps, dtype=np.int64)
    period = 1e-9 * float(np.median(np.diff(times)))
    length = 2 * int(round(0.5 * SHORT / period)) + 1
    if length < 5:
        raise SysidError(
            f"velocities cannot be computed from positions sampled every {period:.4g} s; at most {SHORT / 4:.4g} s "
            "are needed, or a velocity column"
        )
    if times.size < length:
        raise SysidError(f"velocities cannot be computed from {times.size} samples; {length} are needed")
    short, long = differentiate(times, q, SHORT), differentiate(times, q, LONG)
    gain = np.abs(savgol_coeffs(length, 3, deriv=1, delta=period)).sum()
    steps = 0.5 * np.asarray(resolution, dtype=float) * gain
    return short, steps + 2.0 * np.abs(short - long).max(axis=0)
