"""Coordinates of physically consistent bodies: log-Cholesky ones, and local ones of the cone.

Every point of R^10 is such a body in log-Cholesky coordinates:
``eta = [alpha, d1, d2, d3, s12, s13, s23, s14, s24, s34]`` gives a lower triangular factor L of the pseudo-inertia
``L L^T``, which is the transpose of the matrix M of SAFE-ID (34): the paper's formula (16) is ``M^T M``, not ``M M^T``
as (33) has it. The parameters come out in this package's order, not the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import lapack

from sysid_ros.core.common.errors import NotPhysicallyConsistent
from sysid_ros.core.model.inertia import from_pseudo_inertia, pseudo_inertia

Array = NDArray[np.float64]

_OFF_DIAGONAL = ((1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2))


def _parameter_map() -> Array:
    """Return the linear map (10, 4, 4) from a pseudo-inertia to the ten parameters."""
    result = np.zeros((10, 4, 4))
    for row in range(4):
        for column in range(4):
            unit = np.zeros((4, 4))
            unit[row, column] = unit[column, row] = 1.0 if row == column else 0.5
            result[:, row, column] = from_pseudo_inertia(unit)
    return result


PARAMETER_MAP = _parameter_map()


def factor(eta: ArrayLike) -> Array:
    """Return the lower triangular factor L (4, 4) of the pseudo-inertia, the transpose of SAFE-ID (34)."""
    values = np.asarray(eta, dtype=float)
    result = np.diag(np.append(np.exp(values[1:4]), 1.0))
    for (row, column), value in zip(_OFF_DIAGONAL, values[4:], strict=True):
        result[row, column] = value
    return np.asarray(np.exp(values[0]) * result)


def from_parameters(theta: ArrayLike) -> Array:
    """Return the log-Cholesky coordinates (10,) of inertial parameters (10,).

    Raises:
        NotPhysicallyConsistent: No body has these parameters.
    """
    pseudo = pseudo_inertia(theta)
    try:
        lower = np.asarray(np.linalg.cholesky(pseudo), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise NotPhysicallyConsistent("payload", np.linalg.eigvalsh(pseudo).tolist()) from None
    return from_factor(lower)


def from_factor(matrix: Array) -> Array:
    """Return the log-Cholesky coordinates (10,) of a lower triangular factor (4, 4) with positive diagonal."""
    scaled = matrix / matrix[3, 3]
    off_diagonal = [scaled[index] for index in _OFF_DIAGONAL]
    return np.concatenate([[np.log(matrix[3, 3])], np.log(np.diag(scaled)[:3]), off_diagonal])


def derivatives(eta: ArrayLike) -> tuple[Array, Array, Array]:
    """Compute parameters (10,), their Jacobian (10, 10) and second derivatives (10, 10, 10) by eta analytically.

    Entry [p, k] of the Jacobian is ``d theta_p / d eta_k``, entry [p, k, l] of the last its derivative by ``eta_l``.
    """
    values = np.asarray(eta, dtype=float)
    matrix = factor(values)
    first = np.zeros((10, 4, 4))
    first[0] = matrix
    for axis in range(3):
        first[1 + axis, axis, axis] = matrix[axis, axis]
    scale = np.exp(values[0])
    for k, index in enumerate(_OFF_DIAGONAL):
        first[4 + k][index] = scale
    # Second derivatives of L: alpha repeats every first derivative, d_i repeats itself, the rest vanish.
    second = np.zeros((10, 10, 4, 4))
    second[0], second[:, 0] = first, first
    for axis in range(1, 4):
        second[axis, axis] = first[axis]
    # theta_p = <A_p, L L^T> with A_p symmetric: d = 2 <A_p L, dL>, d2 = 2 <A_p L, d2L> + 2 <A_p dL, dL>.
    turned = (PARAMETER_MAP @ matrix).reshape(10, 16)
    flat = first.reshape(10, 16)
    products = (PARAMETER_MAP[:, None] @ first).reshape(10, 10, 16)
    theta = turned @ matrix.ravel()
    jacobian = 2.0 * turned @ flat.T
    curvature = 2.0 * ((turned @ second.reshape(100, 16).T).reshape(10, 10, 10) + products @ flat.T)
    return theta, jacobian, curvature


def _symmetric_basis() -> Array:
    """Return an orthonormal basis (10, 4, 4) of the symmetric matrices."""
    basis = []
    for row in range(4):
        for column in range(row, 4):
            unit = np.zeros((4, 4))
            unit[row, column] = unit[column, row] = 1.0 if row == column else np.sqrt(0.5)
            basis.append(unit)
    return np.stack(basis)


_BASIS = _symmetric_basis()
_FLAT_BASIS, _IDENTITY = _BASIS.reshape(10, 16), np.eye(4)
BARRIER_GRADIENT = -np.trace(_BASIS, axis1=1, axis2=2)
"""Gradient (10,) of ``-log det`` in z at z = 0; its Hessian is the identity."""


@dataclass(frozen=True)
class ConePoint:
    """A physically consistent body with local coordinates z (10,): its pseudo-inertia is ``L (I + Z) L^T``.

    Attributes:
        factor: Lower triangular L with the pseudo-inertia ``L L^T``, (4, 4).
    """

    factor: Array

    @cached_property
    def theta(self) -> Array:
        """Inertial parameters, (10,)."""
        return np.asarray(PARAMETER_MAP.reshape(10, 16) @ (self.factor @ self.factor.T).ravel())

    @cached_property
    def tangent(self) -> Array:
        """``d theta / d z``, (10, 10); constant, since theta is affine in z."""
        moved = self.factor @ _BASIS @ self.factor.T
        return np.asarray(PARAMETER_MAP.reshape(10, 16) @ moved.reshape(10, 16).T)

    @property
    def eta(self) -> Array:
        """Log-Cholesky coordinates, (10,)."""
        return from_factor(self.factor)

    def longest_step(self, z: Array) -> float:
        """Return the largest s for which ``s z`` stays in the cone; infinite if all do."""
        lowest = float(lapack.dsyev((z @ _FLAT_BASIS).reshape(4, 4), compute_v=0)[0][0])
        return -1.0 / lowest if lowest < 0.0 else np.inf

    def moved(self, z: Array) -> ConePoint:
        """Return the body at z (10,), which must be inside the cone."""
        lower, status = lapack.dpotrf(_IDENTITY + (z @ _FLAT_BASIS).reshape(4, 4), lower=1)
        if status:
            raise np.linalg.LinAlgError("not inside the cone")
        return ConePoint(self.factor @ lower)
