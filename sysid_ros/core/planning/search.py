"""Sequential quadratic programming from several starts in step, all evaluated in one batch.

Per start: a quadratic model of the cost (damped BFGS), linear models of the worst rows with one slack for all of them,
a trust region. Steps count if they lower ``cost + penalty max(0, worst row)``. After a few iterations only the better
half of the starts goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.optional import optional_module
from sysid_ros.core.planning.constraints import ConstraintSamples, MotionConstraints
from sysid_ros.core.planning.costs import PlanCost

ca = optional_module("casadi")

Array = NDArray[np.float64]

PENALTY = 20.0
"""Weight of the largest row against the cost."""
ROWS = 20
"""Rows of each kind in the linear model."""
FEASIBLE = 1e-6
_FIRST_RADIUS, _SMALLEST_RADIUS = 0.4, 2e-3
_ACCEPT, _GOOD = 0.05, 0.6
_CONVERGED = 1e-4
"""Predicted gain of the merit below which a start that breaks a row is done; one that breaks none stops sooner."""


@dataclass(frozen=True)
class Iterate:
    """A motion reached by the search.

    Attributes:
        k: Coordinates, (n,).
        cost: Its cost.
        gradient: Gradient of the cost, (n,).
        worst: Its largest row; feasible if not positive.
    """

    k: Array
    cost: float
    gradient: Array
    worst: float

    @property
    def merit(self) -> float:
        """Cost with the penalty of its violations."""
        return self.cost + PENALTY * max(self.worst, 0.0)

    @property
    def rank(self) -> tuple[bool, float]:
        """Key for comparing solutions: feasible ones first, then by cost, or by merit."""
        is_infeasible = self.worst > FEASIBLE
        return is_infeasible, self.merit if is_infeasible else self.cost


@dataclass(frozen=True)
class LinearRows:
    """Linear model of the worst rows of a motion.

    Attributes:
        values: The rows, (m,).
        slopes: Their derivatives along k, (m, n).
    """

    values: Array
    slopes: Array


class StepProblem:
    """``min g d + d H d / 2 + PENALTY t`` with ``values + slopes d <= t``, ``t >= 0`` and bounds of d.

    Built once: the number of unknowns and of rows is fixed. Not to be used by two threads at a time.

    Args:
        size: Number of unknowns n.
        rows: Number of rows m.
    """

    def __init__(self, size: int, rows: int = 2 * ROWS):
        self._size = size
        pattern = {"h": ca.Sparsity.dense(size + 1, size + 1), "a": ca.Sparsity.dense(rows, size + 1)}
        solver = ca.conic("step", "daqp", pattern, {"error_on_fail": False})
        # Arrays that the solver reads and writes in place: a call with arrays takes six times as long, since CasADi
        # tries its types in turn, and once returned a symbolic result.
        self._given = {
            "h": np.zeros((size + 1, size + 1)),
            "g": np.full(size + 1, PENALTY),
            "a": np.full((rows, size + 1), -1.0, order="F"),
            "lba": np.full(rows, -np.inf),
            "uba": np.zeros(rows),
            "lbx": np.zeros(size + 1),
            "ubx": np.full(size + 1, np.inf),
        }
        self._given["h"][size, size] = 1e-6
        self._x = np.zeros(size + 1)
        self._buffer, self._run = solver.buffer()
        for name, array in self._given.items():
            self._buffer.set_arg(solver.index_in(name), array.ravel(order="A").data)
        self._buffer.set_res(solver.index_out("x"), self._x.data)

    def solve(self, gradient: Array, rows: LinearRows, hessian: Array, lower: Array, upper: Array) -> Array | None:
        """Compute the step d (n,); None if the solver fails.

        Args:
            gradient: g, (n,).
            rows: Rows at d = 0 with their derivatives.
            hessian: H, positive definite, (n, n).
            lower: Lower bounds of d, (n,).
            upper: Upper bounds of d, (n,).
        """
        n, given = self._size, self._given
        given["h"][:n, :n] = hessian
        given["g"][:n] = gradient
        given["a"][:, :n] = rows.slopes
        given["uba"][:] = -rows.values
        given["lbx"][:n], given["ubx"][:n] = lower, upper
        self._run()
        step = self._x[:n]
        is_solved = self._buffer.stats()["success"] and np.isfinite(step).all()
        return np.clip(step, lower, upper) if is_solved else None


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
        """Compute end offsets, (..., n) [rad]."""
        return self.center + self.half * k

    def coordinates(self, x: Array) -> Array:
        """Compute coordinates of end offsets (..., n) [rad], the nearest inside."""
        return np.clip((x - self.center) / self.half, -1.0, 1.0)


class Search:
    """One search over the motions of a space."""

    def __init__(self, cost: PlanCost, constraints: MotionConstraints, space: Space, step_problem: StepProblem):
        self._cost, self._constraints, self._space, self._step_problem = cost, constraints, space, step_problem
        self.iterations = 0

    def run(self, starts: Array, iterations: int, must_stop: Callable[[], bool]) -> Iterate:
        """Improve starts k (B, n) and return the best solution, a feasible one if any is.

        Args:
            starts: Coordinates, (B, n).
            iterations: Iterations per start.
            must_stop: Polled before every iteration; the solutions so far count.
        """
        begins, samples = self._evaluate(starts)
        runs = [_Run(begin, place, self._cost.little) for place, begin in enumerate(begins)]
        active = runs
        for iteration in range(iterations):
            if not active or must_stop():
                break
            samples = self._advance(active, samples)
            active = [run for run in active if not run.is_done]
            if iteration + 1 == 3:
                active = sorted(active, key=lambda run: run.now.merit)[: max((len(runs) + 1) // 2, 1)]
        found = [run.now for run in runs] + [run.feasible for run in runs if run.feasible is not None]
        return min(found, key=lambda one: one.rank)

    def _advance(self, runs: list[_Run], samples: ConstraintSamples) -> ConstraintSamples:
        self._linearise([run for run in runs if run.rows is None], samples)
        tried = [(run, run.propose(self._step_problem)) for run in runs]
        tried = [(run, step) for run, step in tried if not run.is_done]
        if not tried:
            return samples
        self.iterations += len(tried)
        trials, samples = self._evaluate(np.array([np.clip(run.now.k + step, -1.0, 1.0) for run, step in tried]))
        for place, ((run, step), trial) in enumerate(zip(tried, trials, strict=True)):
            run.take(step, trial, place)
        return samples

    def _evaluate(self, k: Array) -> tuple[list[Iterate], ConstraintSamples]:
        x = self._space.offsets(k)
        costs, gradients = self._cost.gradient(x)
        samples = self._constraints.evaluate(x)
        parts = zip(k, costs.tolist(), gradients * self._space.half, samples.worst.tolist(), strict=True)
        return [Iterate(*part) for part in parts], samples

    def _linearise(self, runs: list[_Run], samples: ConstraintSamples) -> None:
        """Model the rows of the motions that runs have reached, which are among the samples."""
        if not runs:
            return
        values, slopes = self._constraints.linearise(samples, np.array([run.place for run in runs]), ROWS)
        for run, value, slope in zip(runs, values, slopes * self._space.half, strict=True):
            run.rows = LinearRows(value, slope)


class _Run:
    """State of one start.

    Attributes:
        now: Its present motion.
        place: Place of that motion among those evaluated with it.
        rows: Linear model of its rows; None until it is needed.
        is_done: Whether no step is worth it any more.
        feasible: The best motion that breaks no row.
    """

    def __init__(self, start: Iterate, place: int, little: float):
        self.now, self.place = start, place
        self.rows: LinearRows | None = None
        self._hessian = np.eye(start.k.size) * max(float(np.abs(start.gradient).max()), 1e-3)
        self._little = little
        self._is_first = True
        self._radius = _FIRST_RADIUS
        self._predicted = 0.0
        self.is_done = False
        self.feasible: Iterate | None = None
        self._note()

    def propose(self, problem: StepProblem) -> Array:
        """Compute the next step, (n,); zero if there is none. The run is done where it promises too little."""
        now, rows = self.now, self.rows
        assert rows is not None  # noqa: S101  # linearised before
        lower, upper = np.maximum(-1.0 - now.k, -self._radius), np.minimum(1.0 - now.k, self._radius)
        step = problem.solve(now.gradient, rows, self._hessian, lower, upper)
        if step is None:
            step = np.zeros_like(now.k)
        left = max(float((rows.values + rows.slopes @ step).max()), 0.0)
        growth = float(now.gradient @ step + 0.5 * step @ self._hessian @ step)
        self._predicted = PENALTY * (max(now.worst, 0.0) - left) - growth
        self.is_done = self._predicted < (_CONVERGED if now.worst > FEASIBLE else self._little)
        return step

    def take(self, step: Array, trial: Iterate, place: int) -> None:
        """Move to the trial, which has this place among those evaluated with it, or shrink the trust region."""
        self._update_hessian(step, trial.gradient - self.now.gradient)
        ratio = (self.now.merit - trial.merit) / self._predicted
        length = float(np.abs(step).max())
        if ratio >= _GOOD:
            self._radius = max(self._radius, min(2.0 * length, 2.0))
        elif ratio < _ACCEPT:
            self._radius = 0.35 * length
        if ratio >= _ACCEPT:
            self.now, self.place, self.rows = trial, place, None
            self._note()
        self.is_done = self._radius < _SMALLEST_RADIUS

    def _note(self) -> None:
        if self.now.worst <= FEASIBLE and (self.feasible is None or self.now.cost < self.feasible.cost):
            self.feasible = self.now

    def _update_hessian(self, step: Array, change: Array) -> None:
        """Update by damped BFGS (Powell), which stays positive definite."""
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
