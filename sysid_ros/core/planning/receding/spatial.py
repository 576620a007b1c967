"""Spatial vectors of many samples, ``(..., 6)``: angular part first, then linear. Motions twist, wrenches push."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def cross_motion(left: Array, right: Array) -> Array:
    """The motion ``left x right``, the rate of ``right`` where it is carried along by ``left``."""
    return np.concatenate(
        [
            cross(left[..., :3], right[..., :3]),
            cross(left[..., :3], right[..., 3:]) + cross(left[..., 3:], right[..., :3]),
        ],
        axis=-1,
    )


def cross_force(left: Array, right: Array) -> Array:
    """The wrench ``left x* right``, with ``left x* f . m = - f . (left x m)`` for every motion m."""
    return np.concatenate(
        [
            cross(left[..., :3], right[..., :3]) + cross(left[..., 3:], right[..., 3:]),
            cross(left[..., :3], right[..., 3:]),
        ],
        axis=-1,
    )


def cross(left: Array, right: Array) -> Array:
    """Cross products (..., 3); much faster than numpy.cross on small arrays."""
    x, y, z = left[..., 0], left[..., 1], left[..., 2]
    a, b, c = right[..., 0], right[..., 1], right[..., 2]
    result = np.empty(np.broadcast_shapes(left.shape, right.shape))
    result[..., 0], result[..., 1], result[..., 2] = y * c - z * b, z * a - x * c, x * b - y * a
    return result
