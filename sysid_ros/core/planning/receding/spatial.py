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


def unit_inertias() -> Array:
    """Spatial inertias of unit parameters (10, 6, 6) about the frame's origin, in the order m, m c, Ixx..Izz."""
    inertias = np.zeros((10, 6, 6))
    inertias[0, 3:, 3:] = np.eye(3)
    for axis in range(3):
        skew = np.cross(np.eye(3)[axis], np.eye(3)).T  # skew @ x = e x x
        inertias[1 + axis, :3, 3:], inertias[1 + axis, 3:, :3] = skew, skew.T
    for index, (row, column) in enumerate(((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))):
        inertias[4 + index, row, column] = inertias[4 + index, column, row] = 1.0
    return inertias


def cross(left: Array, right: Array) -> Array:
    """Cross products (..., 3); much faster than numpy.cross on small arrays."""
    x, y, z = left[..., 0], left[..., 1], left[..., 2]
    a, b, c = right[..., 0], right[..., 1], right[..., 2]
    result = np.empty(np.broadcast_shapes(left.shape, right.shape))
    result[..., 0], result[..., 1], result[..., 2] = y * c - z * b, z * a - x * c, x * b - y * a
    return result
