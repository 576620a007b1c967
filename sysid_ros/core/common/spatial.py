"""Spatial algebra: cross products, frames and transforms of motions and forces, for the whole core.

Spatial vectors have Pinocchio's order, linear before angular: a motion is the velocity of the point of the body at the
origin, then the angular velocity; a force is the force, then the moment about the origin. Components are the last axis
of an array; arrays with the samples last are passed as transposed views.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def rotation_from_rpy(rpy: ArrayLike) -> Array:
    """Compute the (3, 3) rotation of URDF angles (roll, pitch, yaw) [rad]: about the fixed axes x, then y, then z."""
    roll, pitch, yaw = np.asarray(rpy, dtype=float)
    cr, sr, cp, sp, cy, sy = np.cos(roll), np.sin(roll), np.cos(pitch), np.sin(pitch), np.cos(yaw), np.sin(yaw)
    return np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )


def inverse_placement(rotation: ArrayLike, translation: ArrayLike) -> tuple[Array, Array]:
    """Invert a placement: frame A in frame B, rotation (3, 3) and translation (3,) [m], from B in A."""
    transposed = np.asarray(rotation, dtype=float).T
    return transposed, -transposed @ np.asarray(translation, dtype=float)


def axis_frame(axis: Array) -> Array:
    """Build a right-handed rotation (3, 3) whose third column is the unit vector ``axis`` (3,)."""
    if np.array_equal(axis, [0.0, 0.0, 1.0]):
        return np.eye(3)
    helper = np.eye(3)[int(np.argmin(np.abs(axis)))]
    first = np.cross(helper, axis)
    first /= np.linalg.norm(first)
    return np.column_stack([first, np.cross(axis, first), axis])


def skew(vectors: Array) -> Array:
    """Build the matrices (..., 3, 3) of the cross product with vectors (..., 3) from the left."""
    result = np.zeros((*vectors.shape, 3))
    result[..., 2, 1], result[..., 0, 2], result[..., 1, 0] = vectors[..., 0], vectors[..., 1], vectors[..., 2]
    result -= result.swapaxes(-1, -2)
    return result


def cross(left: Array, right: Array) -> Array:
    """Compute cross products (..., 3); much faster than numpy.cross on small arrays.

    Args:
        left: (..., 3).
        right: Of a shape that broadcasts with ``left``.
    """
    x, y, z = left[..., 0], left[..., 1], left[..., 2]
    a, b, c = right[..., 0], right[..., 1], right[..., 2]
    first = y * c - z * b
    out = np.empty((*first.shape, 3))
    out[..., 0], out[..., 1], out[..., 2] = first, z * a - x * c, x * b - y * a
    return out


def motion_cross(left: Array, right: Array) -> Array:
    """Compute the motions (..., 6) ``left x right``: the rate of ``right`` where it is carried along by ``left``."""
    turn = left[..., 3:]
    linear = cross(turn, right[..., :3]) + cross(left[..., :3], right[..., 3:])
    return np.concatenate([linear, cross(turn, right[..., 3:])], axis=-1)


def force_cross(left: Array, right: Array) -> Array:
    """Compute the forces (..., 6) ``left x* right``, with ``(left x* f) . m = -f . (left x m)`` for every motion m."""
    turn = left[..., 3:]
    angular = cross(turn, right[..., 3:]) + cross(left[..., :3], right[..., :3])
    return np.concatenate([cross(turn, right[..., :3]), angular], axis=-1)


def motion_cross_matrix(motion: Array) -> Array:
    """Build the matrix (6, 6) of the cross product with a motion (6,) from the left."""
    result: Array = motion_cross(motion, np.eye(6)).T
    return result


def motion_transform(rotation: Array, translation: Array) -> Array:
    """Build the matrices (..., 6, 6) that express motions of a parent frame in a child frame.

    Args:
        rotation: Rotations of the child frame in its parent, (..., 3, 3).
        translation: Its origins in the parent, (..., 3) [m].
    """
    result = np.zeros((*rotation.shape[:-2], 6, 6))
    back = rotation.swapaxes(-1, -2)
    result[..., :3, :3] = result[..., 3:, 3:] = back
    result[..., :3, 3:] = -back @ skew(translation)
    return result
