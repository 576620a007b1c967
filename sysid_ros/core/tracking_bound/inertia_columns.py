"""The inertia matrix by inertial parameter, at many positions at once (step 1).

With the Jacobian ``J = [J_v; J_w]`` of a body in its own frame, its part of the inertia is ``J^T I J``, and ``I`` is
linear in the ten parameters.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core import kernel
from sysid_ros.core.common.spatial import motion_transform
from sysid_ros.core.model.inertia import unit_inertias
from sysid_ros.core.model.joint_tree import JointTree
from sysid_ros.core.model.robot import INERTIAL, RobotModel

Array = NDArray[np.float64]


def congruence(factor: Array, matrices: Array) -> Array:
    """Compute ``F X F^T`` of X (S, ..., n, n) with F (S, n, n)."""
    count, n, _ = factor.shape
    right = matrices.reshape(count, -1, n) @ np.swapaxes(factor, 1, 2)  # all rows in one product
    result: Array = factor.reshape(count, *(1,) * (matrices.ndim - 3), n, n) @ right.reshape(matrices.shape)
    return result


def magnitude(matrices: Array) -> Array:
    """Compute matrix absolute values ``(X^2)^1/2`` of symmetric matrices (..., n, n)."""
    values, vectors = np.linalg.eigh(matrices)
    result: Array = (vectors * np.abs(values)[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return result


def largest_eigenvalue(matrices: Array) -> Array:
    """Compute the largest eigenvalues of symmetric matrices (..., n, n), n up to 8."""
    *shape, n, _ = matrices.shape
    return largest_of_several(matrices.reshape(-1, 1, n, n)).reshape(shape)


def largest_of_several(matrices: Array) -> Array:
    """Compute the largest eigenvalue of any of K symmetric matrices, (S,), of (S, K, n, n), n up to 8."""
    largest = np.empty(len(matrices))
    kernel.largest_eigenvalues(np.ascontiguousarray(matrices), largest)
    return largest


_PARAMETER_INERTIAS = unit_inertias()


def inertia_columns(robot: RobotModel, q: Array) -> Array:
    """Compute the inertia by inertial parameter and armature, (S, n, n, 11 n), at positions (S, n) [rad]."""
    n = robot.n
    columns = np.zeros((len(q), (INERTIAL + 1) * n, n, n))
    for body, jacobian in enumerate(body_jacobians(robot, q)):
        own = _without_outer(jacobian)
        m = own.shape[-1]
        columns[:, robot.inertial_slice(body + 1), :m, :m] = _products(own, own)
    joints = np.arange(n)
    columns[:, INERTIAL * n + joints, joints, joints] = 1.0
    result: Array = columns.transpose(0, 2, 3, 1)
    return result


def body_jacobians(robot: RobotModel, q: Array) -> Array:
    """Compute the Jacobians of all bodies in their own frames, linear before angular, (n, S, 6, n)."""
    tree = JointTree.of(robot)
    frames = tree.frames(q)
    rotations, origins, axes = (np.moveaxis(part, -1, 1) for part in (frames.rotation, frames.origin, frames.axes))
    # Motions seen from the bodies; the rows of a rotation here are the axes of its body.
    seen = motion_transform(rotations.swapaxes(-1, -2), origins)  # (n, S, 6, 6)
    result: Array = seen @ axes.transpose(1, 2, 0) * tree.is_ancestor.T[:, None, None]
    return result


def _without_outer(jacobian: Array) -> Array:
    return jacobian[..., : np.flatnonzero(jacobian.any(axis=(0, 1)))[-1] + 1]


def _products(left: Array, right: Array) -> Array:
    """Compute ``A^T I_l B`` for the ten parameters of a body, of A and B (..., 6, m), (..., 10, m, m)."""
    turned = (_PARAMETER_INERTIAS.reshape(-1, 6) @ right).reshape(*right.shape[:-2], INERTIAL, *right.shape[-2:])
    return np.swapaxes(left, -1, -2)[..., None, :, :] @ turned
