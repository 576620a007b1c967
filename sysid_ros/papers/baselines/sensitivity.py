"""Bounds of SAFE-ID by the sensitivity of the fit, Theorem 13 at the nominal point, as in its published code.

They are not rigorous: where the least-squares solution is no body, the consistent one lies on the edge of the cone, its
sensitivity vanishes across the edge, and the bounds fall below the true error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS
from sysid_ros.core.estimation.point.coordinates import derivatives
from sysid_ros.core.estimation.point.fit import Fit, FitObjective, fit

Array = NDArray[np.float64]
_TORQUE_TERMS = np.array([name in ("torque_relative", "torque_absolute") for name in ERROR_TERMS])


@dataclass(frozen=True)
class SensitivityBounds:
    """Theorem 13 at the nominal point.

    Attributes:
        fit: The unweighted physically consistent fit, the middle of the bounds.
        radius: (10,).
        finite_up_to: Shares of the stated errors up to which the interval derivative of the theorem is finite, at the
            coordinates of the fit: errors of torques alone, of the robot's parameters alone, and both, (3,). Beyond
            them, the Hessian over the interval of measurements may be singular.
    """

    fit: Fit
    radius: Array
    finite_up_to: Array

    @property
    def lower(self) -> Array:
        """Lower bounds, (10,)."""
        return self.fit.theta - self.radius

    @property
    def upper(self) -> Array:
        """Upper bounds, (10,)."""
        return self.fit.theta + self.radius


def bound_by_sensitivity(problem: Problem, start: ArrayLike) -> SensitivityBounds:
    """Compute bounds by the sensitivity of the unweighted fit, SAFE-ID (27) and (46).

    Args:
        problem: The rows.
        start: Log-Cholesky coordinates the fit starts from, (10,).

    Raises:
        FitNotConverged: The fit did not converge.
    """
    scale = 1.0 / max(float(np.sqrt(np.mean(problem.error**2))), 1e-12)
    y = problem.y * scale
    objective = FitObjective(y.T @ y, y.T @ problem.r * scale, problem.center)
    solution = fit(objective, start)
    theta, jacobian, curvature = derivatives(solution.eta)
    full = jacobian.T @ objective.gram @ jacobian + np.tensordot(objective.gradient(theta), curvature, axes=1)
    inverse = np.linalg.pinv(full, rcond=1e-13, hermitian=True)
    sensitivity = jacobian @ inverse @ jacobian.T @ y.T * scale
    torques = problem.errors * _TORQUE_TERMS
    by_rows = np.abs(sensitivity) @ torques
    by_delta = np.abs(sensitivity @ problem.b) * problem.delta_radius
    # Measurements enter the Hessian by the gradient, which weighs the curvature of the parameters.
    gradients = np.abs(y.T) @ torques.sum(axis=1) * scale, np.abs(y.T @ problem.b * scale) @ problem.delta_radius
    widened = [np.abs(inverse) @ np.tensordot(one, np.abs(curvature), axes=1) for one in (*gradients, sum(gradients))]
    shares = [1.0 / max(float(np.abs(np.linalg.eigvals(one)).max()), 1e-300) for one in widened]
    return SensitivityBounds(solution, by_rows.sum(axis=1) + by_delta.sum(axis=1), np.array(shares))
