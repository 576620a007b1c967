"""A point of the cone of physically consistent bodies and the coordinates around it in which the cone looks round.

With the log-Cholesky factor L of the pseudo-inertia, ``L (1 + Z) L^T`` with symmetric Z reaches every body. In
orthonormal coordinates z of Z the barrier ``-log det`` has gradient ``-tr`` and Hessian 1 at the point itself,
however close to the edge of the cone it lies, which keeps Newton's method well conditioned where the parameters, or
eta, are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.log_cholesky import PARAMETER_MAP, from_factor

Array = NDArray[np.float64]


def _symmetric_basis() -> Array:
    """Orthonormal basis (10, 4, 4) of the symmetric matrices."""
    basis = []
    for row in range(4):
        for column in range(row, 4):
            unit = np.zeros((4, 4))
            unit[row, column] = unit[column, row] = 1.0 if row == column else np.sqrt(0.5)
            basis.append(unit)
    return np.stack(basis)


_BASIS = _symmetric_basis()
BARRIER_GRADIENT = -np.trace(_BASIS, axis1=1, axis2=2)
"""Gradient (10,) of ``-log det`` in z at z = 0; its Hessian is the identity."""


@dataclass(frozen=True)
class ConePoint:
    """A physically consistent body.

    Attributes:
        factor: Lower triangular L with the pseudo-inertia ``L L^T``, (4, 4).
    """

    factor: Array

    @cached_property
    def theta(self) -> Array:
        """Inertial parameters, (10,)."""
        return PARAMETER_MAP.reshape(10, 16) @ (self.factor @ self.factor.T).ravel()

    @cached_property
    def tangent(self) -> Array:
        """``d theta / d z``, (10, 10); constant, since theta is affine in z."""
        moved = self.factor @ _BASIS @ self.factor.T
        return PARAMETER_MAP.reshape(10, 16) @ moved.reshape(10, 16).T

    @property
    def eta(self) -> Array:
        """Log-Cholesky coordinates, (10,)."""
        return from_factor(self.factor)

    def longest_step(self, z: Array) -> float:
        """Largest s for which ``s z`` stays in the cone; infinite if all do."""
        lowest = float(np.linalg.eigvalsh(np.tensordot(z, _BASIS, axes=1))[0])
        return -1.0 / lowest if lowest < 0.0 else np.inf

    def moved(self, z: Array) -> ConePoint:
        """The body at z (10,), which must be inside the cone."""
        inner = np.eye(4) + np.tensordot(z, _BASIS, axes=1)
        return ConePoint(self.factor @ np.linalg.cholesky(inner))
