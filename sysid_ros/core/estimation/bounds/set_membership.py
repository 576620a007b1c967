"""The smallest box that holds every target consistent with all rows, and proofs of inconsistency.

Both come from linear programmes over all unknowns. What counts is only the dual solution: each row of multipliers is a
row of a matrix L for :func:`~.left_inverse.bound_with`, which is rigorous for any numbers; there is one for the lower
and one for the upper bound of each parameter. docs/bounds.md has the proof.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.bounds.cone_cuts import add_cuts, find_cuts
from sysid_ros.core.estimation.bounds.left_inverse import LinearBounds, bound_with, choose_inverse, rounding_unit
from sysid_ros.core.estimation.lp.interior_point import Solution, solve
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.lp.row_chain import RowChain

Array = NDArray[np.float64]

_MAX_STEPS = 60
_NEGLIGIBLE, _NEGLIGIBLE_AT_MOST = 50.0, 0.1
"""Shared errors that together stay below this multiple of the tolerance, in units of the independent error of every
row, do not guide the programmes. They always count in the bounds, where that costs a hundredth of it, as measured."""
_UNSOLVED = 1e-2
"""With a gap above this, relative to half widths, and above a few times the tolerance there may be no solution."""
_UNUSED = 1e-3
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
        cuts: Inequalities for the next bounds, (C, P): those that mattered, and those that would now.
        cut_multipliers: The part of the rows that belongs to these cuts, (2 K, C).
        notice: What went wrong on the way; empty if nothing did. The bounds hold in any case.
        contradiction: A combination of cuts and rows that proves that no target agrees with them, or None.
    """

    lower: Array
    upper: Array
    below: LinearBounds
    above: LinearBounds
    multipliers: Array
    cuts: Array
    cut_multipliers: Array
    notice: str = ""
    contradiction: Array | None = None

    @classmethod
    def best_of(cls, problem: Problem, candidates: list[tuple[Array, Array]], cuts: int = 0) -> SidedBounds:
        """The best of some matrices for each bound by itself.

        Args:
            problem: The problem.
            candidates: Matrices for the lower and the upper bounds, (K, R) each; rows not finite do not count.
            cuts: Number of rows at the beginning that are no data and do not show in the shares.
        """
        rows, ends, sides = [], [], []
        for side, sign in ((0, 1.0), (1, -1.0)):
            matrices = [_finite(candidate[side]) for candidate in candidates]
            bounds = [bound_with(problem, matrix) for matrix in matrices]
            values = np.stack([sign * b.center - b.half_width for b in bounds])
            best = np.argmax(values, axis=0) * values.shape[1] + np.arange(values.shape[1])
            rows.append(np.concatenate(matrices)[best])
            ends.append(sign * np.nextafter(values.max(axis=0), -np.inf))
            found = LinearBounds.stack(bounds).select(best)
            of_cuts = np.abs(rows[-1][:, :cuts]) @ problem.errors[:cuts]
            by_rows, half_width = np.maximum(found.by_rows - of_cuts, 0.0), found.half_width - of_cuts.sum(axis=1)
            sides.append(replace(found, by_rows=by_rows, half_width=half_width))
        matrix = np.concatenate(rows)
        return cls(*ends, *sides, matrix[:, cuts:], np.zeros((0, problem.center.size)), matrix[:, :cuts])


def bound_by_membership(
    problem: Problem,
    tolerance: float,
    cuts: Array | None = None,
    reweightings: int = 0,
    previous: Array | None = None,
    cut_multipliers: Array | None = None,
    chosen: NDArray[np.bool_] | None = None,
) -> SidedBounds:
    """The smallest box of the objectives that the rows allow, widened by at most about ``tolerance`` of its width.

    Args:
        problem: The rows, centred on what is known beforehand.
        tolerance: Largest gap of the linear programmes relative to the width of the bounds [-].
        cuts: Inequalities ``cuts theta >= 0`` that hold for every target, (C, P), or None.
        reweightings: Steps towards the best left inverse, which stands in where the linear programmes fail.
        previous: Multipliers of earlier bounds for the first r rows, (2 K, r), or None. They prove the same bounds
            again, and the programmes start from them.
        cut_multipliers: The same for the cuts, (2 K, C), or None.
        chosen: The objectives whose programmes are solved, (K,); the others keep what ``previous`` proves. None: all.
    """
    count = len(problem.objectives)
    cuts = np.zeros((0, problem.center.size)) if cuts is None else cuts
    if cut_multipliers is None:  # those that hold everywhere in the box say nothing
        cuts = cuts[cuts @ problem.center < np.abs(cuts) @ problem.radius * (1.0 + 1e-9)]
    whole = add_cuts(problem, cuts) if len(cuts) else problem
    of_cuts = np.zeros((2 * count, len(cuts))) if cut_multipliers is None else cut_multipliers
    if previous is None:
        inverse = choose_inverse(problem, 0)
        start = np.concatenate([of_cuts, np.tile(inverse, (2, 1))], axis=1)
    else:
        start = np.concatenate([of_cuts, previous], axis=1)
        start = np.pad(start, ((0, 0), (0, len(whole.r) - start.shape[1])))
    chosen = np.ones(count, dtype=bool) if chosen is None or previous is None else chosen
    both = np.tile(chosen, 2)
    part = replace(whole, objectives=whole.objectives[chosen])
    solution, found = solve_programmes(part, tolerance, start=start[both])
    multipliers = start.copy()
    multipliers[both] = found
    notice, contradiction = "", None
    if np.any(solution.gap > max(_UNSOLVED, 4.0 * tolerance)):
        contradiction = find_contradiction(whole, multipliers)
    candidates = [multipliers, start]
    if contradiction is None and not np.all(np.isfinite(solution.gap)):
        inverse = choose_inverse(problem, reweightings)
        candidates.append(np.pad(np.tile(inverse, (2, 1)), ((0, 0), (len(cuts), 0))))
        notice = "a linear programme of the bounds failed; the left inverse stands in for it"
    sided = SidedBounds.best_of(whole, [tuple(np.split(one, 2)) for one in candidates], len(cuts))
    if len(cuts):
        sizes = np.abs(sided.cut_multipliers) * whole.error[: len(cuts)]
        is_used = np.any(sizes > _UNUSED * np.tile(_scale(problem), 2)[:, None], axis=0)
        vertices = problem.center + solution.variables[: problem.center.size].T * problem.radius
        more = find_cuts(vertices, problem.bodies)
        of_cuts = np.pad(sided.cut_multipliers[:, is_used], ((0, 0), (0, len(more))))
        sided = replace(sided, cuts=np.concatenate([cuts[is_used], more]), cut_multipliers=of_cuts)
    return replace(sided, notice=notice, contradiction=contradiction)


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
    chain = RowChain(problem, negligible=min(_NEGLIGIBLE * tolerance, _NEGLIGIBLE_AT_MOST))
    # Objectives are scaled so that they stay between -1 and 1 over the box.
    costs, scale = (problem.objectives * problem.radius).T, _scale(problem)
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
    solution = solve(chain, np.zeros(len(problem.r)), cost, 1e-3, _MAX_STEPS, maxima=False)
    candidates.append(solution.dual[:, 0] / chain.error)
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


def _scale(problem: Problem) -> Array:
    """Largest magnitude of each objective over the box, relative to its middle, (K,)."""
    return np.maximum(np.abs(problem.objectives) @ problem.radius, 1e-300)


def _finite(matrix: Array) -> Array:
    """The matrix with rows of zeros in place of those that are not finite."""
    return np.where(np.all(np.isfinite(matrix), axis=1)[:, None], matrix, 0.0)
