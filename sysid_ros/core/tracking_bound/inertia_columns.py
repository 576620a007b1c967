"""The inertia matrix and its position derivatives by inertial parameter, at many positions at once (step 1).

With the Jacobian ``J = [J_v; J_w]`` of a body in its own frame, its part of the inertia is ``J^T I J``, and ``I`` is
linear in the ten parameters. A column of J turns with every joint between its own and the body: for joints k before j
before the body ``dJ_k/dq_j = J_k x J_j`` (the motion cross product), and zero otherwise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.spatial import motion_transform, skew
from sysid_ros.core.model.inertia import unit_inertias
from sysid_ros.core.model.joint_tree import JointTree
from sysid_ros.core.model.robot import INERTIAL, RobotModel

Array = NDArray[np.float64]

_ROUNDING = 1e-9
"""Relative rounding margin when a matrix is left out because another one is larger."""
_POWERS = (1, 2, 4)
"""Powers of the matrices whose traces are compared."""


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


def square_root(matrices: Array) -> Array:
    """Compute square roots of positive semidefinite matrices (..., n, n)."""
    values, vectors = np.linalg.eigh(matrices)
    result: Array = (vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]) @ np.swapaxes(vectors, -1, -2)
    return result


def largest_eigenvalue(matrices: Array) -> Array:
    """Compute the largest eigenvalues of symmetric matrices (..., n, n)."""
    return np.asarray(np.linalg.eigvalsh(matrices)[..., -1], dtype=np.float64)


def largest_of_any(matrices: Array) -> Array:
    """Compute the largest eigenvalue of any of K positive semidefinite matrices, (S,), of (S, K, n, n).

    With powers p it is at most ``(tr X^2p)^1/2p`` and at least ``(tr X^2p / tr X^p)^1/p``, which leaves few matrices to
    diagonalise.
    """
    count, several, n, _ = matrices.shape
    all_traces = np.einsum("skaa->sk", matrices)
    scale = np.maximum(all_traces.max(axis=1), 1e-300)  # powers of what is much smaller may vanish
    sample, which = np.divmod(np.arange(count * several), several)
    powers = matrices.reshape(-1, n, n) / scale[sample, None, None]
    traces = all_traces.ravel() / scale[sample]
    for exponent in _POWERS:
        squares = np.einsum("kab,kab->k", powers, powers)
        least = np.zeros(count)
        np.maximum.at(least, sample, (squares / np.maximum(traces, 1e-300)) ** (1.0 / exponent))
        kept = (squares > 0.0) & (squares ** (0.5 / exponent) >= (1.0 - _ROUNDING) * least[sample])
        sample, which, traces = sample[kept], which[kept], squares[kept]
        if exponent < _POWERS[-1]:
            powers = powers[kept] @ powers[kept]
    result = np.zeros(count)
    np.maximum.at(result, sample, largest_eigenvalue(matrices[sample, which]))
    return result


def largest_of_several(matrices: Array) -> Array:
    """Compute the largest eigenvalue of any of K symmetric matrices that are much alike, (S,), of (S, K, n, n).

    One that is large is found by Rayleigh quotients with eigenvectors of others; where this less another matrix is
    positive definite, the other one has no larger one, which leaves few to diagonalise.
    """
    count, several, n, _ = matrices.shape
    samples, diagonal = np.arange(count), np.arange(n)
    largest, vectors = np.full(count, -np.inf), np.linalg.eigh(matrices.mean(axis=1))[1]
    for _ in range(2):
        best = vectors[..., -1]
        quotients = np.einsum("ska,sa->sk", (matrices @ best[:, None, :, None])[..., 0], best)
        values, vectors = np.linalg.eigh(matrices[samples, quotients.argmax(axis=1)])
        largest = np.maximum(largest, values[:, -1])
    above = np.ascontiguousarray(-matrices.transpose(2, 3, 0, 1)).reshape(n, n, -1)
    above[diagonal, diagonal] += np.repeat(largest, several)
    others = np.flatnonzero(~_is_positive_definite(above))
    np.maximum.at(largest, others // several, largest_eigenvalue(matrices.reshape(-1, n, n)[others]))
    return largest


def _is_positive_definite(matrices: Array) -> NDArray[np.bool_]:
    """Test symmetric matrices (n, n, N), which are overwritten, by the pivots of elimination, (N,)."""
    n = len(matrices)
    result = np.ones(matrices.shape[2], dtype=bool)
    for k in range(n):
        pivots = matrices[k, k]
        result &= pivots > 0.0
        scaled = matrices[k] / np.where(result, pivots, 1.0)
        for row in range(k + 1, n):
            matrices[row, row:] -= scaled[row] * matrices[k, row:]
    return result


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
    """Cut a Jacobian (S, 6, n) after the last joint that moves the body, (S, 6, m)."""
    return jacobian[..., : np.flatnonzero(jacobian.any(axis=(0, 1)))[-1] + 1]


def position_derivative(jacobian: Array) -> Array:
    """Differentiate the Jacobians (S, 6, m) of a body by the first m joints, base first, (S, j, 6, m)."""
    m = jacobian.shape[-1]
    linear, angular = jacobian[:, None, :3], jacobian[:, None, 3:]  # (S, 1, 3, j)
    # Matrices that make J_k x J_j of J_j, (S, k, 3, 3).
    by_linear, by_angular = (skew(x[:, 0].swapaxes(1, 2)) for x in (linear, angular))
    turned = np.concatenate([by_angular @ linear + by_linear @ angular, by_angular @ angular], axis=2)  # (S, k, 6, j)
    is_before = np.arange(m)[:, None] < np.arange(m)  # [k, j]: joint k is nearer to the base
    result: Array = (turned * is_before[:, None]).transpose(0, 3, 2, 1)
    return result


def _products(left: Array, right: Array) -> Array:
    """Compute ``A^T I_l B`` for the ten parameters of a body, of A and B (..., 6, m), (..., 10, m, m)."""
    turned = (_PARAMETER_INERTIAS.reshape(-1, 6) @ right).reshape(*right.shape[:-2], INERTIAL, *right.shape[-2:])
    return np.swapaxes(left, -1, -2)[..., None, :, :] @ turned
