"""The point estimate of a problem: weighted by the error bounds, inside the bounds; of one body, one that can exist."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.point.covariance import Covariance, RowBands
from sysid_ros.core.estimation.point.fit import Fit, FitObjective, fit
from sysid_ros.core.estimation.point.log_cholesky import from_parameters

Array = NDArray[np.float64]


class PointEstimator:
    """Fits the target, starting from the previous fit.

    Args:
        nominal: Physically consistent target to start from and to lean on where the data say nothing, (10,).
        prior: Box of the target before any data.
        prior_weight: Weight of the nominal target, relative to one prior half width as standard deviation.
    """

    def __init__(self, nominal: Array, prior: Box, prior_weight: float):
        self._nominal = nominal
        self._information = prior_weight**2 / np.maximum(prior.radius, 1e-9) ** 2
        self._start = from_parameters(nominal)

    @property
    def start(self) -> Array:
        """Log-Cholesky coordinates the next fit starts from, (10,)."""
        return self._start

    def estimate(self, problem: Problem, box: Box | None) -> Fit:
        """The physically consistent target that explains the rows best, inside a box if one is given.

        Raises:
            FitNotConverged: The solver gave no solution it can vouch for.
            NoBodyInBox: No physically consistent target lies in the box.
        """
        objective = self.build(problem)
        solution = fit(objective, self._start)
        if box is not None and not box.contains(solution.theta):
            solution = fit(objective, solution.eta, box)
        self._start = solution.eta
        return solution

    def build(self, problem: Problem) -> FitObjective:
        """The least-squares problem, every half width taken for a standard deviation."""
        floor = max(1e-9 * float(problem.error.max(initial=0.0)), 1e-15)
        variances = np.maximum(problem.error, floor) ** 2, problem.delta_radius**2, problem.end_radii**2
        covariance = Covariance(RowBands(problem, problem.joints), problem.y, problem.b, *variances)
        return FitObjective(
            gram=covariance.gram + np.diag(self._information),
            linear=covariance.solve(np.eye(10)).T @ problem.r + self._information * (self._nominal - problem.center),
            center=problem.center,
        )


class LinearEstimator:
    """Estimates all bodies at once; the interface of :class:`PointEstimator`.

    What the rows do not tell stays in the middle of its box. The result need not be bodies that exist.
    """

    start = np.zeros(10)

    def estimate(self, problem: Problem, box: Box) -> LinearFit:
        """The target that explains the rows best, every half width taken for a standard deviation, inside a box."""
        floor = max(1e-9 * float(problem.error.max(initial=0.0)), 1e-15)
        variances = np.maximum(problem.error, floor) ** 2, problem.delta_radius**2, problem.end_radii**2
        scaled, count = problem.y * problem.radius, problem.radius.size
        covariance = Covariance(RowBands(problem, problem.joints), scaled, problem.b, *variances)
        x = np.linalg.solve(np.eye(count) + covariance.gram, covariance.solve(np.eye(count)).T @ problem.r)
        return LinearFit(np.clip(problem.center + problem.radius * x, box.lower, box.upper))


@dataclass(frozen=True)
class LinearFit:
    """Result of :class:`LinearEstimator`.

    Attributes:
        theta: The target, (P,).
    """

    theta: Array
