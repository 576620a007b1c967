"""Which end positions the position, velocity and acceleration limits allow, as an interval per joint.

At any time these limits are linear in the end position of the same joint and of nothing else, so the allowed ends of a
joint are one interval: the k_range of the family need not be guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.planning.base import State
from sysid_ros.core.planning.receding.motions import gentlest_offset, shape_functions

Array = NDArray[np.float64]

_TIMES = 120
"""Intervals between the times looked at: what a motion does between them is below the shares left of the limits."""
_SMALL = 1e-4
"""Influence of the end below which a time says nothing about it."""
_TAKE_OVER_POINTS = 17


@dataclass(frozen=True)
class StateLimits:
    """Limits of the desired motion, tracking errors and margins taken off.

    Attributes:
        q_lower: Lower positions, (n,) [rad].
        q_upper: Upper positions, (n,) [rad].
        v_max: Speeds, (n,) [rad/s].
        a_max: Accelerations, (n,) [rad/s^2].
    """

    q_lower: Array
    q_upper: Array
    v_max: Array
    a_max: Array


def end_intervals(q0: Array, v0: Array, a0: Array, limits: StateLimits, duration: float) -> tuple[Array, Array]:
    """Smallest and largest end offset of each joint for which its limits hold, ``lower > upper`` where there is none.

    Args:
        q0: Start positions, (..., n) [rad].
        v0: Start velocities, (..., n) [rad/s].
        a0: Start accelerations, (..., n) [rad/s^2].
        limits: The limits.
        duration: Duration of the motions [s].

    Returns:
        Lower and upper offsets ``q1 - q0``, each (..., n) [rad].
    """
    shapes = shape_functions(duration, np.linspace(0.0, duration, _TIMES + 1))
    lower, upper = np.full(q0.shape, -np.inf), np.full(q0.shape, np.inf)
    bounds = (
        (limits.q_lower - q0, limits.q_upper - q0),
        (-limits.v_max, limits.v_max),
        (-limits.a_max, limits.a_max),
    )
    for (low, high), shape in zip(bounds, shapes, strict=True):
        useful = np.abs(shape[2]) > _SMALL
        by_v, by_a, by_end = (part[useful] for part in shape)
        free = v0[..., None] * by_v + a0[..., None] * by_a
        first, second = (low[..., None] - free) / by_end, (high[..., None] - free) / by_end
        lower = np.maximum(lower, np.minimum(first, second).max(axis=-1))
        upper = np.minimum(upper, np.maximum(first, second).min(axis=-1))
    return lower, upper


def allowed_ends(
    start: State, limits: StateLimits, duration: float, take_over: float | None, reach: Array
) -> tuple[Array, Array]:
    """End offsets to choose from: allowed, within reach of the gentlest motion, and open to a next plan.

    Args:
        start: Position, velocity and acceleration, each (n,).
        limits: The limits.
        duration: Duration of the motions [s].
        take_over: Time at which the next plan begins, from whose state some motion must respect the limits [s]; None
            if there will be none.
        reach: Largest distance of the end from that of the gentlest motion, (n,) [rad].

    Returns:
        Lower and upper offsets, each (n,) [rad]; ``lower > upper`` for joints without any.
    """
    lower, upper = end_intervals(*start, limits, duration)
    middle = np.clip(gentlest_offset(start, duration), lower, np.maximum(lower, upper))
    lower, upper = np.maximum(lower, middle - reach), np.minimum(upper, middle + reach)
    if take_over is None or np.any(lower > upper):
        return lower, upper
    ends = lower + np.linspace(0.0, 1.0, _TAKE_OVER_POINTS)[:, None] * (upper - lower)
    shapes = shape_functions(duration, np.array([take_over]))[..., 0]
    states = shapes[:, 0, None, None] * start[1] + shapes[:, 1, None, None] * start[2] + shapes[:, 2, None, None] * ends
    next_lower, next_upper = end_intervals(start[0] + states[0], states[1], states[2], limits, duration)
    goes_on = next_lower <= next_upper
    return (
        np.where(goes_on, ends, np.inf).min(axis=0),
        np.where(goes_on, ends, -np.inf).max(axis=0),
    )
