"""Point estimates weighted by the error bounds, inside the bounds; that of a single body is physically consistent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.point.covariance import Covariance, RowBands
from sysid_ros.core.estimation.point.fit import Fit, FitNotConverged, FitObjective, NoBodyInBox, fit, has_shape
from sysid_ros.core.estimation.point.log_cholesky import from_parameters
from sysid_ros.core.model.robot import PayloadShape

Array = NDArray[np.float64]

_SHAPE_ROUNDS = 2


class PointEstimator:
    """Fits one body, starting from the previous fit.

    Args:
        nominal: Physically consistent target, (10,): start of the first fit, and the estimate where data say nothing.
        prior: Box of the target before any data.
        prior_weight: Weight of the nominal target, relative to one prior radius as standard deviation.
        shape: Shape of the target as an object; None if unknown.
    """

    def __init__(self, nominal: Array, prior: Box, prior_weight: float, shape: PayloadShape | None = None):
        self._nominal, self._shape = nominal, shape
        self._information = prior_weight**2 / np.maximum(prior.radius, 1e-9) ** 2
        self._start = from_parameters(nominal)

    @property
    def start(self) -> Array:
        """Log-Cholesky coordinates the next fit starts from, (10,)."""
        return self._start

    def estimate(self, problem: Problem, box: Box | None) -> Array:
        """Fit a physically consistent target (10,) to the rows, inside a box and of the known shape if one is given.

        Where no fit of the known shape is found inside the box, the estimate is that of the box alone.

        Raises:
            FitNotConverged: The solver found no solution of the required accuracy.
            NoBodyInBox: No physically consistent target lies in the box.
        """
        objective = self.build(problem)
        solution = fit(objective, self._start)
        if box is not None and not box.contains(solution.theta):
            solution = fit(objective, solution.eta, box)
        if box is not None and self._shape is not None and not has_shape(solution.theta, self._shape):
            solution = self._fit_shape(objective, solution, box, self._shape)
        self._start = solution.eta
        return solution.theta

    def _fit_shape(self, objective: FitObjective, solution: Fit, box: Box, shape: PayloadShape) -> Fit:
        """Fit again with the shape, the second time about the CoM found the first time."""
        try:
            for _ in range(_SHAPE_ROUNDS):
                solution = fit(objective, solution.eta, box, shape=shape)
        except (NoBodyInBox, FitNotConverged):
            pass
        return solution

    def build(self, problem: Problem) -> FitObjective:
        """Build the least-squares problem with every radius as a standard deviation."""
        covariance = _covariance(problem, problem.y)
        return FitObjective(
            gram=covariance.gram + np.diag(self._information),
            linear=covariance.solve(np.eye(10)).T @ problem.r + self._information * (self._nominal - problem.center),
            center=problem.center,
        )


class LinearEstimator:
    """Estimates all bodies at once; the interface of :class:`PointEstimator`.

    What the rows do not determine stays in the middle of its box. The result need not be physically consistent.
    """

    start = np.zeros(10)

    def estimate(self, problem: Problem, box: Box) -> Array:
        """Fit the target (P,) to the rows with every radius as a standard deviation, clipped to a box."""
        count = problem.radius.size
        covariance = _covariance(problem, problem.y * problem.radius)
        x = np.linalg.solve(np.eye(count) + covariance.gram, covariance.solve(np.eye(count)).T @ problem.r)
        return np.clip(problem.center + problem.radius * x, box.lower, box.upper)


def _covariance(problem: Problem, y: Array) -> Covariance:
    """Factorise the covariance of the rows with every radius as a standard deviation, for gains y (R, k)."""
    floor = max(1e-9 * float(problem.error.max(initial=0.0)), 1e-15)
    variances = np.maximum(problem.error, floor) ** 2, problem.delta_radius**2, problem.end_radii**2
    return Covariance(RowBands(problem, problem.joints), y, problem.b, *variances)
