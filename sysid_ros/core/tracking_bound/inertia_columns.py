"""The inertia matrix and its position derivatives by inertial parameter, at many positions at once (step 1).

With the Jacobian ``J = [J_v; J_w]`` of a body in its own frame, its part of the inertia is ``J^T I J``, and ``I`` is
linear in the ten parameters. A column of J turns with every joint between its own and the body: for joints k before j
before the body ``dJ_k/dq_j = J_k x J_j`` (the motion cross product), and zero otherwise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core import kernel
from sysid_ros.core.common.spatial import motion_transform, skew
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


def coriolis_columns(robot: RobotModel, q: Array) -> Array:
    """Compute the Christoffel ``C(q, e_j)`` by inertial parameter and armature (zero), (S, j, n, n, 11 n)."""
    n = robot.n
    columns = np.zeros((len(q), (INERTIAL + 1) * n, n, n, n))
    for body, jacobian in enumerate(body_jacobians(robot, q)):
        own = _without_outer(jacobian)
        m = own.shape[-1]
        half = _products(position_derivative(own), own[:, None]).swapaxes(1, 2)  # (S, 10, j, a, b)
        slope = half + half.swapaxes(3, 4)  # dH/dq_j
        columns[:, robot.inertial_slice(body + 1), :m, :m, :m] = christoffel(slope)
    result: Array = columns.transpose(0, 2, 3, 4, 1)
    return result


def christoffel(slopes: Array) -> Array:
    """Make Christoffel matrices of slopes ``dH/dq_j`` of an inertia, (..., j, a, b) each.

    ``C(e_j)_ab = (dH_ab/dq_j + dH_aj/dq_b - dH_jb/dq_a) / 2``, likewise for j any direction.
    """
    matrices: Array = 0.5 * (slopes + slopes.swapaxes(-3, -1) - slopes.swapaxes(-3, -2))
    return matrices


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


def position_derivative(jacobian: Array) -> Array:
    """Differentiate the Jacobians (S, 6, m) of a body by the first m joints, base first, (S, j, 6, m)."""
    m = jacobian.shape[-1]
    linear, angular = jacobian[:, None, :3], jacobian[:, None, 3:]  # (S, 1, 3, j)
    # Matrices of the cross product J_k x J_j with J_j, (S, k, 3, 3).
    by_linear, by_angular = (skew(x[:, 0].swapaxes(1, 2)) for x in (linear, angular))
    turned = np.concatenate([by_angular @ linear + by_linear @ angular, by_angular @ angular], axis=2)  # (S, k, 6, j)
    is_before = np.arange(m)[:, None] < np.arange(m)  # [k, j]: joint k is nearer to the base
    result: Array = (turned * is_before[:, None]).transpose(0, 3, 2, 1)
    return result


def _products(left: Array, right: Array) -> Array:
    """Compute ``A^T I_l B`` for the ten parameters of a body, of A and B (..., 6, m), (..., 10, m, m)."""
    turned = (_PARAMETER_INERTIAS.reshape(-1, 6) @ right).reshape(*right.shape[:-2], INERTIAL, *right.shape[-2:])
    return np.swapaxes(left, -1, -2)[..., None, :, :] @ turned
