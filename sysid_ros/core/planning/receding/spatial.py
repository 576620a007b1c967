"""Spatial vectors of many samples, ``(..., 6)``: angular part first, then linear. Motions twist, wrenches push."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def cross_motion(left: Array, right: Array) -> Array:
    """The motion ``left x right``, the rate of ``right`` where it is carried along by ``left``."""
    turn = left[..., :3]
    turned = cross(turn, right[..., :3])
    carried = cross(turn, right[..., 3:]) + cross(left[..., 3:], right[..., :3])
    return np.concatenate([turned, carried], axis=-1)


def cross_force(left: Array, right: Array) -> Array:
    """The wrench ``left x* right``, with ``left x* f . m = - f . (left x m)`` for every motion m."""
    turn, force = left[..., :3], right[..., 3:]
    moment = cross(turn, right[..., :3]) + cross(left[..., 3:], force)
    return np.concatenate([moment, cross(turn, force)], axis=-1)


def cross(left: Array, right: Array) -> Array:
    """Cross products (..., 3); much faster than numpy.cross on small arrays."""
    x, y, z = left[..., 0], left[..., 1], left[..., 2]
    a, b, c = right[..., 0], right[..., 1], right[..., 2]
    first = y * c - z * b
    result = np.empty((*first.shape, 3))
    result[..., 0], result[..., 1], result[..., 2] = first, z * a - x * c, x * b - y * a
    return result
