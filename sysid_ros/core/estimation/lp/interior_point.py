"""Interior-point method for linear programs that share one matrix and differ in their objectives.

    minimise and maximise  c z   subject to   A z = r,  -1 <= z <= 1      for several c

Mehrotra's predictor-corrector method. All programs advance together, so that a step is few operations on arrays; solved
ones drop out. The result only guides the choice of bounds, so it need not be exact (docs/theory/bounds.md).

Source: S. Mehrotra, On the implementation of a primal-dual interior point method, SIAM J. Optim. 2 (1992).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.lp.row_chain import RowChain

Array = NDArray[np.float64]

MAX_STEPS = 60
"""Largest number of steps unless asked for."""
_STEP = 0.9995
"""Share of the way to the boundary that a step may take."""
_CLOSEST = 0.9
"""Largest magnitude of a variable at the start."""
_RISES, _STALLED = 2, 5
"""Steps in a row with a larger gap than before, and steps without a smaller one than ever, after which a program's
rows themselves are factorised. From good multipliers the first step leads up, and it takes a few to come back."""
_PATIENCE = 8
"""Steps without progress after which a program is given up."""


@dataclass(frozen=True)
class Solution:
    """Approximate solutions of S linear programs: P minima, or first the minima of P costs, then their maxima.

    Attributes:
        variables: The variables z at the solutions, (T, S), ``RowChain.shared`` first.
        dual: Multipliers of the rows, (R, S): for any l ``r l - |c - A^T l|_1`` is a lower bound of the minimum of c z,
            and with -c for the maxima.
        gap: Distance of the objective from that bound plus the infeasibility, (S,).
        steps: Steps taken.
    """

    variables: Array
    dual: Array
    gap: Array
    steps: int


@dataclass(frozen=True)
class Programs:
    """Linear programs with one matrix.

    Attributes:
        chain: The matrix A.
        r: Right-hand side, (R,).
        costs: Costs of the first variables, (k, P); the others cost nothing.
        maxima: Whether to compute the maxima as well as the minima.
    """

    chain: RowChain
    r: Array
    costs: Array
    maxima: bool = True


def solve(
    programs: Programs,
    tolerance: float,
    start: Array | None = None,
    max_steps: int = MAX_STEPS,
    on_step: Callable[[int], None] = lambda step: None,
) -> Solution:
    """Solve the programs as far as ``max_steps`` allows.

    Args:
        programs: The programs.
        tolerance: A program is solved when its gap is below this part of the distance of maximum and minimum; of the
            minimum itself without maxima.
        start: Multipliers for a warm start, (R, S), or None.
        max_steps: Largest number of steps.
        on_step: Called before every step with the number of those before; an error that it raises ends the work.
    """
    costs, maxima = programs.costs, programs.maxima
    half = costs.shape[1]
    price = np.concatenate([costs, -costs], axis=1) if maxima else costs
    count = price.shape[1]
    with np.errstate(all="ignore"):  # overflows are dropped as not finite
        state = _State.start(programs, price, start)
        best, dual, gap = state.z.copy(), state.dual.copy(), np.full(count, np.inf)
        objective, progress = np.tile(-1.0, count), np.zeros(count, dtype=int)
        last, rises = np.full(count, np.inf), np.zeros(count, dtype=int)
        active, steps, is_hard = np.arange(count), 0, np.zeros(count, dtype=bool)
        while True:
            on_step(steps)
            present, value = state.gap(), state.objective()
            rises[active] = np.where(present < last[active], 0, rises[active] + 1)
            last[active] = present
            is_better = present < gap[active]
            better = active[is_better]
            dual[:, better], gap[better] = state.dual[:, is_better], present[is_better]
            best[:, better] = state.z[:, is_better]
            objective[better], progress[better] = value[is_better], steps
            width = np.tile(objective[:half] + objective[half:], 2) if maxima else objective
            is_open = (gap > tolerance * np.maximum(np.abs(width), 1e-12))[active]
            is_open &= np.isfinite(present) & (steps - progress[active] < _PATIENCE)
            if steps >= max_steps or not np.any(is_open):
                return Solution(best, dual, gap, steps)
            active, state = active[is_open], state.select(is_open)
            is_hard[active] |= (rises[active] >= _RISES) | (steps - progress[active] >= _STALLED)
            state.advance(is_hard[active])
            steps += 1


def solve_for_scale(
    chain: RowChain,
    column: Array,
    right: Array,
    tolerance: float,
    start: Array | None = None,
    max_steps: int = MAX_STEPS,
) -> tuple[RowChain, Solution]:
    """Maximise tau, at most 1, subject to ``A z + tau column = right``: how far rows can be scaled, or errors down.

    Args:
        chain: The matrix A.
        column: Gains of tau, (R,) in units of the rows.
        right: Right-hand side, (R,) likewise.
        tolerance: See :func:`solve`.
        start: Multipliers for a warm start, (R, 1), or None.
        max_steps: Largest number of steps.

    Returns:
        The matrix with the column of tau, its last shared one, and the solution.
    """
    chain = chain.extended(column[:, None])
    cost = np.zeros((chain.shared.shape[1], 1))
    cost[-1] = -1.0
    return chain, solve(Programs(chain, right / chain.error, cost, maxima=False), tolerance, start, max_steps)


@dataclass
class _State:
    """Iterates of S programs (columns): variables, multipliers of the rows and of the bounds -1 and 1 (rows)."""

    programs: Programs
    price: Array
    z: Array
    dual: Array
    lower: Array
    upper: Array

    def __post_init__(self) -> None:
        self.chain = self.programs.chain
        self._balance()

    @classmethod
    def start(cls, programs: Programs, price: Array, dual: Array | None) -> _State:
        """Start near the centre: least-squares solution of the rows, balanced multipliers of the bounds."""
        chain, r, count = programs.chain, programs.r, price.shape[1]
        dual = np.zeros((r.size, count)) if dual is None else dual.copy()
        full = np.zeros((chain.size, count))
        full[: len(price)] = price
        z = chain.transposed(chain.factorise(np.ones((chain.size, 1))).solve(r[:, None]))
        z = np.clip(z, -_CLOSEST, _CLOSEST).repeat(count, axis=1)
        slope = full - chain.transposed(dual)
        spread = np.abs(slope).mean(axis=0) + 1e-3
        return cls(programs, full, z, dual, np.maximum(slope, 0.0) + spread, np.maximum(-slope, 0.0) + spread)

    def select(self, kept: NDArray[np.bool_]) -> _State:
        if np.all(kept):
            return self
        result = copy(self)
        for name in ("price", "z", "dual", "lower", "upper", "slope", "missing"):
            setattr(result, name, np.ascontiguousarray(getattr(self, name)[:, kept]))
        return result

    def _balance(self) -> None:
        self.slope = self.price - self.chain.transposed(self.dual)
        self.missing = self.programs.r[:, None] - self.chain.times(self.z)

    def objective(self) -> Array:
        return _dot(self.price, self.z)

    def gap(self) -> Array:
        """Return the duality gaps with an allowance for infeasibility, (S,).

        No minimum is below the bound from the variables alone, so one at that edge is found before the multipliers show
        it.
        """
        bound = self.programs.r @ self.dual - np.abs(self.slope).sum(axis=0)
        bound = np.maximum(bound, -np.abs(self.price).sum(axis=0))
        return np.asarray(np.abs(self.objective() - bound) + _dot(np.abs(self.missing), np.abs(self.dual)))

    def advance(self, is_hard: NDArray[np.bool_]) -> None:
        """Take one predictor-corrector step; hard ones (S,) with a slower factorisation, exact to more digits."""
        lower, upper, size = self.lower, self.upper, 2.0 * self.chain.size
        below, above = 1.0 + self.z, 1.0 - self.z
        lower_over, upper_over = lower / below, upper / above
        weight = 1.0 / (lower_over + upper_over)
        factor = self.chain.factorise(weight, is_hard)
        unbalanced = self.slope - lower + upper

        def direction(first: Array, second: Array) -> tuple[Array, Array, Array, Array]:
            """Return Newton's direction towards ``lower + first`` and ``upper + second`` for fixed variables."""
            push = first - second - unbalanced
            d_dual = factor.solve(self.missing - self.chain.times(weight * push))
            d_z = weight * (self.chain.transposed(d_dual) + push)
            return d_z, d_dual, first - lower_over * d_z, second + upper_over * d_z

        d_z, d_dual, d_lower, d_upper = direction(-lower, -upper)
        primal, multiplier = _longest(below, above, d_z, -d_z), _longest(lower, upper, d_lower, d_upper)
        mu = (_dot(below, lower) + _dot(above, upper)) / size
        reached = _dot(below + primal * d_z, lower + multiplier * d_lower)
        reached += _dot(above - primal * d_z, upper + multiplier * d_upper)
        target = mu * (reached / (size * mu)) ** 3
        first = (target - d_z * d_lower) / below - lower
        second = (target + d_z * d_upper) / above - upper
        d_z, d_dual, d_lower, d_upper = direction(first, second)
        primal = np.minimum(1.0, _STEP * _longest(below, above, d_z, -d_z))
        multiplier = np.minimum(1.0, _STEP * _longest(lower, upper, d_lower, d_upper))
        self.z = self.z + primal * d_z
        self.dual = self.dual + multiplier * d_dual
        self.lower, self.upper = lower + multiplier * d_lower, upper + multiplier * d_upper
        self._balance()


def _dot(a: Array, b: Array) -> Array:
    return np.asarray(np.einsum("ts,ts->s", a, b))


def _longest(first: Array, second: Array, d_first: Array, d_second: Array) -> Array:
    """Return the largest steps (S,), at most 1e3, that keep both positive."""
    least = np.minimum((d_first / first).min(axis=0), (d_second / second).min(axis=0))
    return np.asarray(1.0 / np.maximum(-least, 1e-3))
