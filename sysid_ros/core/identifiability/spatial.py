"""Rigid-body inertias as linear functions of ten parameters; twists ``[linear; angular]``, parameters in our order.

The helper functions of RPNA section 5, in Pinocchio's order of parameters
``[m, mcx, mcy, mcz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz]``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def skew(vector: Array) -> Array:
    """The matrix (3, 3) of the cross product with a vector (3,) from the left."""
    x, y, z = vector
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])


def _inertia_basis() -> Array:
    basis = np.zeros((10, 6, 6))
    basis[0, :3, :3] = np.eye(3)
    for axis in range(3):
        moment = skew(np.eye(3)[axis])
        basis[1 + axis, :3, 3:], basis[1 + axis, 3:, :3] = -moment, moment
    for entry, (row, column) in enumerate(((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))):
        basis[4 + entry, 3 + row, 3 + column] = basis[4 + entry, 3 + column, 3 + row] = 1.0
    basis.setflags(write=False)
    return basis


INERTIA = _inertia_basis()
"""Spatial inertia (6, 6) of each parameter, (10, 6, 6)."""
# Entries of a spatial inertia that hold the ten parameters.
_ROWS = np.array([0, 5, 3, 4, 3, 3, 4, 3, 4, 5])
_COLUMNS = np.array([0, 1, 2, 0, 3, 4, 4, 5, 5, 5])


def parameters_of(inertias: Array) -> Array:
    """The ten parameters (..., 10) of spatial inertias (..., 6, 6)."""
    return inertias[..., _ROWS, _COLUMNS]


def motion_cross(twist: Array) -> Array:
    """The matrix (6, 6) of the cross product of motion vectors with a twist (6,) from the left (RPNA appendix A)."""
    result = np.zeros((6, 6))
    result[:3, :3] = result[3:, 3:] = skew(twist[3:])
    result[:3, 3:] = skew(twist[:3])
    return result


def motion_transform(rotation: Array, translation: Array) -> Array:
    """The matrix (6, 6) that gives the twist in a child frame placed at (rotation, translation) in its parent."""
    result = np.zeros((6, 6))
    result[:3, :3] = result[3:, 3:] = rotation.T
    result[:3, 3:] = -rotation.T @ skew(translation)
    return result


def transfer_matrix(transform: Array) -> Array:
    """How parameters of a child add to its parent's, (10, 10): ``B`` of RPNA (39), (42)."""
    return parameters_of(transform.T @ INERTIA @ transform).T


def mapping_rate(twist: Array) -> Array:
    """How that changes as the joint moves along a twist (6,), (10, 10): ``A`` of RPNA (40)."""
    cross = motion_cross(twist)
    return parameters_of(cross.T @ INERTIA + INERTIA @ cross).T


def projected_momentum(velocities: Array, motion: Array) -> Array:
    """Gradients of ``v^T I phi``, (10, c d), for twists (6, c) and joint motions (6, d): ``M`` of RPNA (36), (52)."""
    return (velocities.T @ INERTIA @ motion).reshape(10, -1)


def align_z(axis: Array) -> Array:
    """A rotation (3, 3) whose third column is the unit vector (3,)."""
    helper = np.eye(3)[int(np.argmin(np.abs(axis)))]
    first = np.cross(helper, axis)
    first /= np.linalg.norm(first)
    return np.column_stack([first, np.cross(axis, first), axis])
