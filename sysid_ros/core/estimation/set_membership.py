"""The smallest box that holds every target consistent with all rows, and proofs of inconsistency.

Both come from linear programmes over all unknowns. What counts is only the dual solution: each row of multipliers is a
row of a matrix L for :func:`~.left_inverse.bound_with`, which is rigorous for any numbers; there is one for the lower
and one for the upper bound of each parameter. docs/bounds.md has the proof.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.cone_cuts import add_cuts, find_cuts
from sysid_ros.core.estimation.interior_point import Solution, solve
from sysid_ros.core.estimation.left_inverse import LinearBounds, bound_with, choose_inverse, rounding_unit
from sysid_ros.core.estimation.problem import Problem
from sysid_ros.core.estimation.row_chain import RowChain

Array = NDArray[np.float64]

_MAX_STEPS = 60
_NEGLIGIBLE = 0.1
"""Shared errors below this part of the tolerance, all together, do not guide the programmes."""
_UNSOLVED = 1e-2
"""With a gap above this, relative to half widths, and above a few times the tolerance there may be no solution."""
_UNUSED = 1e-5
"""Cuts that matter less for all bounds, relative to half widths, are left out the next time."""


@dataclass(frozen=True)
class SidedBounds:
    """Bounds of K objectives with a row of multipliers for each side.

    Attributes:
        lower: Lower bounds, (K,), rounded down.
        upper: Upper bounds, (K,), rounded up.
        below: What the rows behind the lower bounds give.
        above: What the rows behind the upper bounds give.
        multipliers: The rows, lower bounds first, (2 K, R).
        cuts: Inequalities for the next bounds, (K, 10): those that mattered, and those that would now.
        notice: What went wrong on the way; empty if nothing did. The bounds hold in any case.
        contradiction: A combination of cuts and rows that proves that no target agrees with them, or None.
    """

    lower: Array
    upper: Array
    below: LinearBounds
    above: LinearBounds
    multipliers: Array
    cuts: Array
    notice: str = ""
    contradiction: Array | None = None

    @classmethod
    def best_of(cls, problem: Problem, candidates: list[tuple[Array, Array]], cuts: int = 0) -> SidedBounds:
        """The best of some matrices for each bound by itself.

        Args:
            problem: The problem.
            candidates: Matrices for the lower and the upper bounds, (K, R) each; rows not finite do not count.
            cuts: Number of rows at the beginning that are no data and do not show in the shares and multipliers.
        """
        rows, ends = [], []
        for side, sign in ((0, 1.0), (1, -1.0)):
            matrices = np.stack([_finite(candidate[side]) for candidate in candidates])
            values = np.stack([sign * b.center - b.half_width for b in (bound_with(problem, m) for m in matrices)])
            rows.append(matrices[np.argmax(values, axis=0), np.arange(values.shape[1])])
            ends.append(sign * np.nextafter(values.max(axis=0), -np.inf))
        errors = problem.errors.copy()
        errors[:cuts] = 0.0
        below, above = (bound_with(replace(problem, errors=errors), matrix) for matrix in rows)
        return cls(*ends, below, above, np.concatenate(rows)[:, cuts:], np.zeros((0, 10)))


def bound_by_membership(
    problem: Problem,
    tolerance: float,
    cuts: Array | None = None,
    reweightings: int = 0,
    previous: Array | None = None,
) -> SidedBounds:
    """The smallest box of the objectives that the rows allow, widened by at most about ``tolerance`` of its width.

    Args:
        problem: The rows, centred on what is known beforehand.
        tolerance: Largest gap of the linear programmes relative to the width of the bounds [-].
        cuts: Inequalities ``cuts theta >= 0`` that hold for every target, (K, 10), or None.
        reweightings: Steps towards the best left inverse, which stands in where the linear programmes fail.
        previous: Multipliers of earlier bounds for the first r rows, (2 K, r), or None. They prove the same bounds
            again, and the programmes start from them.
    """
    cuts = np.zeros((0, 10)) if cuts is None else cuts
    whole = add_cuts(problem, cuts) if len(cuts) else problem
    if previous is None:
        start = choose_inverse(problem, 0)
        start = np.concatenate([start, start])
    else:
        start = np.pad(previous, ((0, 0), (0, len(problem.r) - previous.shape[1])))
    solution, multipliers = solve_programmes(whole, tolerance, start=_pad(start, len(cuts)))
    notice, contradiction = "", None
    if np.any(solution.gap > max(_UNSOLVED, 4.0 * tolerance)):
        contradiction = find_contradiction(whole, multipliers)
    candidates = [multipliers, _pad(start, len(cuts))]
    if contradiction is None and not np.all(np.isfinite(solution.gap)):
        inverse = choose_inverse(problem, reweightings)
        candidates.append(_pad(np.concatenate([inverse, inverse]), len(cuts)))
        notice = "a linear programme of the bounds failed; the left inverse stands in for it"
    sided = SidedBounds.best_of(whole, [tuple(np.split(one, 2)) for one in candidates], len(cuts))
    is_used = np.any(np.abs(solution.dual[: len(cuts)]) > _UNUSED, axis=1)
    if len(cuts):
        vertices = problem.center + solution.variables[: problem.center.size].T * problem.radius
        cuts = np.concatenate([cuts[is_used], find_cuts(vertices)])
    return replace(sided, notice=notice, contradiction=contradiction, cuts=cuts)


def solve_programmes(
    problem: Problem, tolerance: float, max_steps: int = _MAX_STEPS, start: Array | None = None
) -> tuple[Solution, Array]:
    """Minimum and maximum of every objective over all unknowns.

    Args:
        problem: The problem.
        tolerance: See :func:`bound_by_membership`.
        max_steps: Largest number of steps of the solver.
        start: Rows of multipliers to start from, (2 K, R), or None.

    Returns:
        The solution, whose first P variables are ``x / radius``, and the rows of multipliers for the lower and the
        upper bounds, (2 K, R).
    """
    chain = RowChain(problem, negligible=_NEGLIGIBLE * tolerance)
    # Objectives are scaled so that they stay between -1 and 1 over the box.
    costs = (problem.objectives * problem.radius).T
    scale = np.maximum(np.abs(costs).sum(axis=0), 1e-300)
    dual, count = None, scale.size
    if start is not None:
        signs = np.repeat([1.0, -1.0], count)
        dual = np.nan_to_num((start / (signs * np.tile(scale, 2))[:, None] * chain.error).T, posinf=0.0, neginf=0.0)
    solution = solve(chain, problem.r / chain.error, costs / scale, tolerance, max_steps, dual)
    multipliers = (solution.dual / chain.error[:, None]).T * np.tile(scale, 2)[:, None]
    multipliers[count:] *= -1.0
    return solution, multipliers


def find_contradiction(problem: Problem, multipliers: Array | None = None) -> Array | None:
    """A combination of rows that no target in the box can explain, (R,); None where none was found.

    Candidates are the differences of given multipliers of lower and upper bounds, then the solution of ``max tau``
    subject to ``A z = tau r``, whose multipliers are such a combination if tau stays below one. A candidate counts only
    if :func:`contradiction_margin` proves it.

    Args:
        problem: The problem.
        multipliers: Rows behind lower and upper bounds, (2 K, R), or None.
    """
    candidates = [] if multipliers is None else list(np.subtract(*np.split(multipliers, 2)))
    chain = RowChain(problem, extra=-problem.r[:, None])
    cost = np.zeros((chain.shared.shape[1], 1))
    cost[-1] = -1.0
    candidates.append(solve(chain, np.zeros(len(problem.r)), cost, 1e-3, _MAX_STEPS).dual[:, 0] / chain.error)
    candidates = [candidate for candidate in candidates if np.all(np.isfinite(candidate)) and np.any(candidate)]
    margins = [contradiction_margin(problem, candidate) for candidate in candidates]
    if not candidates or max(margins) <= 0.0:
        return None
    return candidates[int(np.argmax(margins))]


def contradiction_margin(problem: Problem, combination: Array) -> float:
    """By how much a combination ``l`` (R,) of rows exceeds everything that can explain it, relative to it.

    ``|l r| <= |l| E + |l b| rad(delta) + |l v| rad(eta) + |l y| rad(x)`` holds for every target in the box and all
    errors within their bounds, so a positive margin, rounding included, proves that there are none.
    """
    size = np.abs(combination)
    allowed = size @ problem.error + np.abs(combination @ problem.b) @ problem.delta_radius
    allowed += np.abs(combination @ problem.end_matrix) @ problem.end_radii
    allowed += np.abs(combination @ problem.y) @ problem.radius
    allowed = allowed * (1.0 + rounding_unit(problem)) + rounding_unit(problem) * (size @ problem.content)
    value = abs(float(combination @ problem.r))
    return (value - float(allowed)) / max(value, 1e-300)


def _pad(matrix: Array, count: int) -> Array:
    """The matrix with columns of zeros for so many rows before the others."""
    return np.pad(matrix, ((0, 0), (count, 0)))


def _finite(matrix: Array) -> Array:
    """The matrix with rows of zeros in place of those that are not finite."""
    return np.where(np.all(np.isfinite(matrix), axis=1)[:, None], matrix, 0.0)
