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
    start: State, limits: StateLimits, preferred: StateLimits, duration: float, reach: Array
) -> tuple[Array, Array]:
    """End offsets to choose from: allowed, and within reach of the gentlest motion.

    Each joint respects the preferred limits all the way if it can, else at least at the end, else not at all.
    Where a motion respects limits, so does one that takes over from it halfway: that was never found otherwise in
    20 000 random cases, and is not asked for.

    Args:
        start: Position, velocity and acceleration, each (n,).
        limits: The limits.
        preferred: Limits with something to spare.
        duration: Duration of the motions [s].
        reach: Largest distance of the end from that of the gentlest motion, (n,) [rad].

    Returns:
        Lower and upper offsets, each (n,) [rad]; ``lower > upper`` for joints without any.
    """
    lower, upper = end_intervals(*start, limits, duration)
    at_end = np.maximum(lower, preferred.q_lower - start[0]), np.minimum(upper, preferred.q_upper - start[0])
    for low, high in (at_end, end_intervals(*start, preferred, duration)):
        lower, upper = np.where(low <= high, [low, high], [lower, upper])
    middle = np.clip(gentlest_offset(start, duration), lower, np.maximum(lower, upper))
    return np.maximum(lower, middle - reach), np.minimum(upper, middle + reach)
