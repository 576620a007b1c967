"""Sequential quadratic programming from several starts in step, all evaluated in one batch.

Per start: a quadratic model of the cost (damped BFGS), linear models of the worst rows with one slack for all of them,
a trust region. Steps count if they lower ``cost + penalty max(0, worst row)``. After a few iterations only the better
half of the starts goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import casadi as ca
import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.planning.constraints import MotionConstraints
from sysid_ros.core.planning.costs import PlanCost

Array = NDArray[np.float64]

_SLACK_CURVATURE = 1e-6


class StepProblem:
    """``min g d + d H d / 2 + penalty t`` with ``values + slopes d <= t``, ``t >= 0`` and bounds of d.

    Built once: the number of unknowns and of rows is fixed.

    Args:
        size: Number of unknowns n.
        rows: Number of rows m.
        penalty: Weight of the largest violation t.
    """

    def __init__(self, size: int, rows: int, penalty: float):
        self._size, self._penalty = size, penalty
        pattern = {"h": ca.Sparsity.dense(size + 1, size + 1), "a": ca.Sparsity.dense(rows, size + 1)}
        self._solver = ca.conic("step", "daqp", pattern, {"error_on_fail": False})
        self._h = np.zeros((size + 1, size + 1))
        self._h[size, size] = _SLACK_CURVATURE
        self._a = np.full((rows, size + 1), -1.0)

    def solve(
        self, gradient: Array, hessian: Array, values: Array, slopes: Array, lower: Array, upper: Array
    ) -> Array | None:
        """The step d (n,), or None if the solver fails.

        Args:
            gradient: g, (n,).
            hessian: H, positive definite, (n, n).
            values: Rows at d = 0, (m,).
            slopes: Their derivatives, (m, n).
            lower: Lower bounds of d, (n,).
            upper: Upper bounds of d, (n,).
        """
        n = self._size
        self._h[:n, :n] = hessian
        self._a[:, :n] = slopes
        result = self._solver(
            h=self._h,
            g=np.append(gradient, self._penalty),
            a=self._a,
            uba=-values,
            lba=-np.inf,
            lbx=np.append(lower, 0.0),
            ubx=np.append(upper, np.inf),
        )
        step = np.array(result["x"]).ravel()[:n]
        is_solved = self._solver.stats()["success"] and np.isfinite(step).all()
        return np.clip(step, lower, upper) if is_solved else None


PENALTY = 20.0
"""Weight of the largest row against the cost."""
ROWS = 20
"""Rows of each kind in the linear model."""
FEASIBLE = 1e-6
_FIRST_RADIUS, _SMALLEST_RADIUS = 0.4, 2e-3
_HALVE_AFTER = 3
_ACCEPT, _GOOD = 0.05, 0.6
_CONVERGED = 1e-4
"""Predicted gain below which a start is done."""


@dataclass(frozen=True)
class Space:
    """Coordinates ``k`` in [-1, 1] of the end offsets: ``x = center + half k``.

    Attributes:
        center: (n,) [rad].
        half: (n,) [rad].
    """

    center: Array
    half: Array

    def offsets(self, k: Array) -> Array:
        """End offsets, (..., n) [rad]."""
        return self.center + self.half * k

    def coordinates(self, x: Array) -> Array:
        """Coordinates of end offsets (..., n) [rad], the nearest inside."""
        return np.clip((x - self.center) / self.half, -1.0, 1.0)


@dataclass(frozen=True)
class Solution:
    """A motion the search found.

    Attributes:
        k: Coordinates, (n,).
        cost: Its cost.
        worst: Its largest row; feasible if not positive.
    """

    k: Array
    cost: float
    worst: float

    @property
    def merit(self) -> float:
        """Cost with the penalty of what it violates."""
        return self.cost + PENALTY * max(self.worst, 0.0)


class Search:
    """One search over the motions of a space.

    Args:
        cost: What is minimised.
        constraints: What must not be positive.
        space: Coordinates.
        step_problem: Quadratic program for n unknowns and ``2 * ROWS`` rows.
    """

    def __init__(self, cost: PlanCost, constraints: MotionConstraints, space: Space, step_problem: StepProblem):
        self._cost, self._constraints, self._space, self._step_problem = cost, constraints, space, step_problem
        self.iterations = 0

    def run(self, starts: Array, iterations: int, must_stop: Callable[[], bool]) -> list[Solution]:
        """Improves starts k (B, n) and returns the solutions, feasible ones first, cheaper ones first.

        Args:
            starts: Coordinates, (B, n).
            iterations: Iterations per start.
            must_stop: Looked at before every iteration; the solutions so far count.
        """
        runs = [_Run(k, *values) for k, *values in zip(starts, *self._evaluate(starts), strict=True)]
        active = list(range(len(runs)))
        for iteration in range(iterations):
            if not active or must_stop():
                break
            self._advance([runs[i] for i in active])
            active = [i for i in active if not runs[i].is_done]
            if iteration + 1 == _HALVE_AFTER:
                active = sorted(active, key=lambda i: runs[i].merit)[: max((len(runs) + 1) // 2, 1)]
        found = [Solution(run.k, run.cost, run.worst) for run in runs]
        found += [run.feasible for run in runs if run.feasible is not None]
        return sorted(found, key=lambda c: (c.worst > FEASIBLE, c.cost if c.worst <= FEASIBLE else c.merit))

    def _advance(self, runs: list[_Run]) -> None:
        self.iterations += len(runs)
        steps = [run.propose(self._step_problem) for run in runs]
        trials = np.array([np.clip(run.k + step, -1.0, 1.0) for run, step in zip(runs, steps, strict=True)])
        for run, step, k, *values in zip(runs, steps, trials, *self._evaluate(trials), strict=True):
            run.take(k, step, *values)

    def _evaluate(self, k: Array) -> tuple[Array, ...]:
        """Costs, gradients, worst rows, values and slopes of the linear models, along k."""
        x, half = self._space.offsets(k), self._space.half
        cost, gradient = self._cost.gradient(x)
        samples = self._constraints.evaluate(x)
        values, slopes = self._constraints.linearise(samples, np.arange(len(k)), ROWS)
        return cost, gradient * half, samples.worst, values, slopes * half


class _Run:
    """State of one start."""

    def __init__(self, k: Array, cost: float, gradient: Array, worst: float, values: Array, slopes: Array):
        self.k, self.cost, self.worst = k, float(cost), float(worst)
        self._gradient, self._values, self._slopes = gradient, values, slopes
        self._hessian = np.eye(k.size) * max(float(np.abs(gradient).max()), 1e-3)
        self._is_first = True
        self._radius = _FIRST_RADIUS
        self._predicted = 0.0
        self.is_done = False
        self.feasible: Solution | None = None
        self._note()

    @property
    def merit(self) -> float:
        return self.cost + PENALTY * max(self.worst, 0.0)

    def propose(self, problem: StepProblem) -> Array:
        """The next step, (n,); zero if there is none."""
        lower, upper = np.maximum(-1.0 - self.k, -self._radius), np.minimum(1.0 - self.k, self._radius)
        step = problem.solve(self._gradient, self._hessian, self._values, self._slopes, lower, upper)
        if step is None:
            step = np.zeros_like(self.k)
        left = max(float((self._values + self._slopes @ step).max()), 0.0)
        model = self._gradient @ step + 0.5 * step @ self._hessian @ step
        self._predicted = PENALTY * (max(self.worst, 0.0) - left) - model
        return step

    def take(
        self, k: Array, step: Array, cost: float, gradient: Array, worst: float, values: Array, slopes: Array
    ) -> None:
        """Moves to the trial or shrinks the trust region."""
        if self._predicted < _CONVERGED:
            self.is_done = True
            return
        self._update_hessian(step, gradient - self._gradient)
        gain = self.merit - (float(cost) + PENALTY * max(float(worst), 0.0))
        ratio = gain / self._predicted
        length = float(np.abs(step).max())
        if ratio >= _GOOD:
            self._radius = max(self._radius, min(2.0 * length, 2.0))
        elif ratio < _ACCEPT:
            self._radius = 0.35 * length
        if ratio >= _ACCEPT:
            self.k, self.cost, self.worst = k, float(cost), float(worst)
            self._gradient, self._values, self._slopes = gradient, values, slopes
            self._note()
        self.is_done = self._radius < _SMALLEST_RADIUS

    def _note(self) -> None:
        if self.worst <= FEASIBLE and (self.feasible is None or self.cost < self.feasible.cost):
            self.feasible = Solution(self.k, self.cost, self.worst)

    def _update_hessian(self, step: Array, change: Array) -> None:
        """Damped BFGS (Powell): stays positive definite."""
        if self._is_first and step @ change > 0.0:  # the size of the curvature is only known now
            self._hessian = np.eye(step.size) * float(step @ change) / float(step @ step)
        self._is_first = False
        product = self._hessian @ step
        curvature, along = float(step @ product), float(step @ change)
        if curvature <= 1e-12:
            return
        if along < 0.2 * curvature:
            share = 0.8 * curvature / (curvature - along)
            change = share * change + (1.0 - share) * product
            along = float(step @ change)
        self._hessian += np.outer(change, change) / along - np.outer(product, product) / curvature
