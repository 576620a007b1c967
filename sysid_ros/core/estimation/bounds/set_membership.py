"""Set membership: the smallest box that holds every target consistent with all rows.

It comes from linear programs over all unknowns. Only the dual solution counts: each row of multipliers is a row of a
matrix L for :func:`~.closed_form.bound_with`, which is rigorous for any numbers; one for the lower and one for the
upper bound of each objective. docs/theory/bounds.md has the proof.

Physical consistency enters as cuts: with the pseudo-inertia ``P(theta)``, linear in theta, ``z^T P(theta) z >= 0``
holds for every body and any z. So does the shape of a payload (:mod:`~.shape_cuts`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.bounds.closed_form import LinearBounds, bound_with, bound_without_rows, choose_inverse
from sysid_ros.core.estimation.bounds.consistency import find_infeasibility_proof
from sysid_ros.core.estimation.lp.interior_point import MAX_STEPS, Programs, Solution, solve
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.lp.row_chain import RowChain
from sysid_ros.core.model.inertia import pseudo_inertia
from sysid_ros.core.model.robot import INERTIAL

Array = NDArray[np.float64]

_PSEUDO = np.stack([pseudo_inertia(unit) for unit in np.eye(10)])
_LENGTH = 0.2
"""Length [m] that makes masses, first and second moments comparable when eigenvectors are taken; any would do."""
_NOTICEABLE = 1e-2
"""Negative eigenvalues smaller than this part of the largest one make no cut."""
_ROUNDING = 1e-12
_NEGLIGIBLE, _NEGLIGIBLE_AT_MOST = 80.0, 0.8
"""Shared errors that together stay below this multiple of the tolerance, in units of the independent error of every
row, are left out of the programs. They always count in the bounds, which widen by a hundredth of it, as measured."""
_UNSOLVED = 1e-2
"""A gap above this, relative to radii, and above a few times the tolerance may mean infeasible rows."""
_WORTH_IT = 0.2
"""Known inequalities that solutions violate by less than this part of what they vary in the box make no cut: each that
binds costs steps of the solver, and those that hardly bind narrow hardly anything."""
_UNUSED = 2e-2
"""Cuts that contribute less than this to every bound, relative to radii, are left out the next time."""


def seed_cuts(nominal: Array, bodies: int = 1) -> Array:
    """Return the first cuts, (C, P): second moments along the axes and between them, about the origins and the CoMs.

    Args:
        nominal: A target of physically consistent bodies, (P,).
        bodies: Number of bodies whose parameters come first in the target.
    """
    parts = nominal[: INERTIAL * bodies].reshape(bodies, INERTIAL)
    return np.concatenate([_placed(_seed(part), b, nominal.size) for b, part in enumerate(parts)])


def _seed(nominal: Array) -> Array:
    com = nominal[1:4] / max(float(nominal[0]), 1e-6)
    axes = np.eye(3)
    directions = [*axes, *(axes[a] + sign * axes[b] for a, b in ((0, 1), (0, 2), (1, 2)) for sign in (-1.0, 1.0))]
    points = [np.append(one, -height) for one in directions for height in (0.0, float(one @ com))]
    return np.stack([_cut(z) for z in points])


def find_cuts(thetas: Array, bodies: int = 1) -> Array:
    """Return the cuts that given targets (J, P) violate the most, (C, P); see :func:`seed_cuts`."""
    thetas = thetas[np.all(np.isfinite(thetas), axis=1)]
    parts = thetas[:, : INERTIAL * bodies].reshape(len(thetas), bodies, INERTIAL)
    return np.concatenate([_placed(_violated(parts[:, b]), b, thetas.shape[1]) for b in range(bodies)])


def _violated(thetas: Array) -> Array:
    scale = np.array([1.0, 1.0, 1.0, _LENGTH])  # the last row and column hold first moments and mass
    values, vectors = np.linalg.eigh(np.tensordot(thetas, _PSEUDO, axes=1) * np.outer(scale, scale))
    cuts = [np.zeros((0, INERTIAL))]
    for one, directions in zip(values, vectors, strict=True):
        cuts += [_cut(z)[None] for z in directions[:, one < -_NOTICEABLE * abs(one[-1])].T * scale]
    return np.concatenate(cuts)


def _placed(cuts: Array, body: int, size: int) -> Array:
    """Write cuts of one body (C, 10) as cuts of the whole target, (C, P)."""
    result = np.zeros((len(cuts), size))
    result[:, INERTIAL * body : INERTIAL * (body + 1)] = cuts
    return result


def add_cuts(problem: Problem, cuts: Array) -> Problem:
    """Add cuts ``a theta >= 0`` (C, P) to a problem as rows before the others."""
    none = np.zeros((len(cuts), problem.b.shape[1]))
    return add_inequalities(problem, cuts, none, cuts @ problem.center, np.abs(cuts) @ problem.theta_size)


def add_inequalities(problem: Problem, y: Array, b: Array, value: Array, most: Array) -> Problem:
    """Add inequalities ``y x + b delta + value >= 0`` (C,) to a problem as rows before the others.

    The left side stays below some ``2 s``, so an inequality is the row ``y x + b delta = s - value + e`` with
    ``|e| <= s``, of which only the lower end of e matters.

    Args:
        problem: The problem.
        y: Gains of the target, (C, P).
        b: Gains of the shared nuisance parameters, (C, M).
        value: The left side in the middle of the box, (C,).
        most: Its upper bound: the sum of the magnitudes of all summands, (C,).
    """
    size = 0.5 * most * (1.0 + _ROUNDING)
    errors = np.zeros((len(y), problem.errors.shape[1]))
    errors[:, -1] = size * (1.0 + 8.0 * _ROUNDING)  # covers the rounding of the inequality itself
    return replace(
        problem,
        y=np.concatenate([y, problem.y]),
        b=np.concatenate([b, problem.b]),
        ends=np.concatenate([np.zeros((len(y), *problem.ends.shape[1:])), problem.ends]),
        end_index=np.concatenate([np.full((len(y), 2), -1), problem.end_index]),
        r=np.concatenate([size - value, problem.r]),
        errors=np.concatenate([errors, problem.errors]),
    )


def _cut(z: Array) -> Array:
    """Return the cut ``z^T P(theta) z >= 0`` as a row (10,) of unit size."""
    row = np.einsum("a,kab,b->k", z, _PSEUDO, z)
    return np.asarray(row / np.linalg.norm(row))


@dataclass(frozen=True)
class WarmStart:
    """Start of the bounds of more rows: multipliers of rows and cuts in bounds found before.

    Attributes:
        multipliers: Combinations of the first r rows behind bounds of K objectives: a matrix (K, r), or (2 K, r) with
            rows for the lower bounds, then for the upper ones. None before there are any.
        cuts: Inequalities ``cuts theta >= 0`` that hold for every target, (C, P); None without cuts.
        cut_multipliers: The part of the combinations that belongs to the cuts, (2 K, C), or None.
        active: Objectives whose programs are solved again, (K,); the others keep the bounds that the multipliers prove.
            None: all.
    """

    multipliers: Array | None = None
    cuts: Array | None = None
    cut_multipliers: Array | None = None
    active: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class SidedBounds:
    """Bounds of K objectives with a row of multipliers for each side.

    Attributes:
        lower: Lower bounds, (K,), rounded down.
        upper: Upper bounds, (K,), rounded up.
        below: Bounds by the rows of multipliers behind the lower bounds.
        above: Bounds by the rows of multipliers behind the upper bounds.
        warm_start: The multipliers, and cuts for the next bounds: used or now violated ones.
        notice: A failure on the way, or None. The bounds hold in any case.
        infeasibility: A combination of cuts and rows that proves them infeasible, or None.
    """

    lower: Array
    upper: Array
    below: LinearBounds
    above: LinearBounds
    warm_start: WarmStart
    notice: str | None = None
    infeasibility: Array | None = None

    @classmethod
    def best_of(cls, problem: Problem, candidates: list[tuple[Array, Array]], cuts: int = 0) -> SidedBounds:
        """Select the best of some matrices for each bound by itself.

        Args:
            problem: The problem.
            candidates: Matrices for the lower and the upper bounds, (K, R) each; rows not finite do not count.
            cuts: Number of rows at the beginning that are cuts, not data; they do not show in the shares.
        """
        count, rows, ends, sides = len(problem.objectives), [], [], []
        matrices = np.concatenate([_finite(candidate[side]) for side in (0, 1) for candidate in candidates])
        # All at once: the sums over the rows cost little beside the fixed cost of each call.
        repeated = replace(problem, objectives=np.tile(problem.objectives, (2 * len(candidates), 1)))
        bounds = bound_with(repeated, matrices)
        for part, sign in zip(np.split(np.arange(len(matrices)), 2), (1.0, -1.0), strict=True):
            values = (sign * bounds.center[part] - bounds.radius[part]).reshape(-1, count)
            best = part[np.argmax(values, axis=0) * count + np.arange(count)]
            rows.append(matrices[best])
            ends.append(sign * np.nextafter(values.max(axis=0), -np.inf))
            found = bounds.select(best)
            of_cuts = np.abs(rows[-1][:, :cuts]) @ problem.errors[:cuts]
            by_rows, radius = np.maximum(found.by_rows - of_cuts, 0.0), found.radius - of_cuts.sum(axis=1)
            sides.append(replace(found, by_rows=by_rows, radius=radius))
        matrix = np.concatenate(rows)
        warm_start = WarmStart(matrix[:, cuts:], None, matrix[:, :cuts])
        return cls(ends[0], ends[1], sides[0], sides[1], warm_start)


def bound_by_membership(
    problem: Problem,
    tolerance: float,
    warm_start: WarmStart | None = None,
    reweightings: int = 0,
    on_step: Callable[[int], None] = lambda step: None,
    known: Array | None = None,
) -> SidedBounds:
    """Compute the smallest box of the objectives, widened by at most about ``tolerance`` of its width.

    Args:
        problem: The rows, centred on a box that holds the target.
        tolerance: Largest gap of the linear programs relative to the width of the bounds [-].
        warm_start: Multipliers (2 K, r) of earlier bounds for the first r rows, which prove these bounds again and
            start the programs; and cuts.
        reweightings: Steps towards the best left inverse, the fallback where the linear programs fail.
        on_step: Called before every step of the solver with the number of those before; an error that it raises ends
            the work.
        known: More inequalities ``known theta >= 0`` that hold for every target, (C, P); violated ones become cuts of
            the next bounds.
    """
    count, warm_start = len(problem.objectives), warm_start or WarmStart()
    cuts = np.zeros((0, problem.center.size)) if warm_start.cuts is None else warm_start.cuts
    of_cuts, previous = warm_start.cut_multipliers, warm_start.multipliers
    if of_cuts is None:  # cuts that the whole box fulfils are useless
        cuts = cuts[cuts @ problem.center < np.abs(cuts) @ problem.radius * (1.0 + 1e-9)]
        of_cuts = np.zeros((2 * count, len(cuts)))
    whole = add_cuts(problem, cuts) if len(cuts) else problem
    if previous is None:
        start = np.concatenate([of_cuts, np.tile(choose_inverse(problem, 0), (2, 1))], axis=1)
    else:
        start = np.concatenate([of_cuts, previous], axis=1)
        start = np.pad(start, ((0, 0), (0, len(whole.r) - start.shape[1])))
    active = np.ones(count, dtype=bool) if previous is None or warm_start.active is None else warm_start.active
    both = np.tile(active, 2)
    part = replace(whole, objectives=whole.objectives[active])
    solution, found = solve_programs(part, tolerance, start=start[both], on_step=on_step)
    multipliers = start.copy()
    multipliers[both] = found
    notice, infeasibility = None, None
    if np.any(solution.gap > max(_UNSOLVED, 4.0 * tolerance)):
        infeasibility = find_infeasibility_proof(whole, multipliers)
    candidates = [_halves(multipliers), _halves(start)]
    if infeasibility is None and not np.all(np.isfinite(solution.gap)):
        inverse = np.pad(choose_inverse(problem, reweightings), ((0, 0), (len(cuts), 0)))
        candidates.append((inverse, inverse))
        notice = "a linear program of the bounds failed; the left inverse replaces it"
    sided = SidedBounds.best_of(whole, candidates, len(cuts))
    used = sided.warm_start
    if warm_start.cuts is not None and len(cuts) and used.cut_multipliers is not None:
        sizes = np.abs(used.cut_multipliers) * whole.error[: len(cuts)]
        is_used = np.any(sizes > _UNUSED * np.tile(_scale(problem), 2)[:, None], axis=0)
        vertices = problem.center + solution.variables[: problem.center.size].T * problem.radius
        more = find_cuts(vertices, problem.bodies)
        if known is not None:
            least = np.min(known @ vertices[np.all(np.isfinite(vertices), axis=1)].T, axis=1, initial=np.inf)
            more = np.concatenate([more, known[least < -_WORTH_IT * (np.abs(known) @ problem.radius)]])
        of_cuts = np.pad(used.cut_multipliers[:, is_used], ((0, 0), (0, len(more))))
        used = replace(used, cuts=np.concatenate([cuts[is_used], more]), cut_multipliers=of_cuts)
    # The solver stops where a bound equals the box's: its multipliers may be weaker by then.
    box = bound_without_rows(problem)
    lower, upper = np.maximum(sided.lower, box.lower), np.minimum(sided.upper, box.upper)
    return replace(sided, lower=lower, upper=upper, warm_start=used, notice=notice, infeasibility=infeasibility)


def solve_programs(
    problem: Problem,
    tolerance: float,
    max_steps: int = MAX_STEPS,
    start: Array | None = None,
    on_step: Callable[[int], None] = lambda step: None,
) -> tuple[Solution, Array]:
    """Compute minimum and maximum of every objective over all unknowns; arguments as in :func:`bound_by_membership`.

    ``start`` holds rows of multipliers for a warm start, (2 K, R), or None.

    Returns:
        The solution, whose first P variables are ``x / radius``, and the rows of multipliers for the lower and the
        upper bounds, (2 K, R).
    """
    # Half of the omitted errors count as independent errors of each row; none or all widens more.
    chain = RowChain(problem, negligible=min(_NEGLIGIBLE * tolerance, _NEGLIGIBLE_AT_MOST), counted=0.5)
    # Objectives are scaled so that they stay between -1 and 1 over the box.
    costs, scale = (problem.objectives * problem.radius).T, _scale(problem)
    dual, count = None, scale.size
    if start is not None:
        signs = np.repeat([1.0, -1.0], count)
        dual = np.nan_to_num((start / (signs * np.tile(scale, 2))[:, None] * chain.error).T, posinf=0.0, neginf=0.0)
    solution = solve(Programs(chain, problem.r / chain.error, costs / scale), tolerance, dual, max_steps, on_step)
    multipliers = (solution.dual / chain.error[:, None]).T * np.tile(scale, 2)[:, None]
    multipliers[count:] *= -1.0
    return solution, multipliers


def solve_exactly(problem: Problem) -> tuple[Array, Array]:
    """Compute multipliers of lower and upper bounds, (K, R) each, of a small problem without shared errors by HiGHS.

    They are a vertex's, which the interior-point method only approaches. Where HiGHS fails they are zero.
    """
    from scipy.optimize import linprog  # takes a third of a second to load, and few problems need it

    scaled = problem.y * problem.radius
    size = np.tile(np.maximum(np.abs(scaled).max(axis=1), 1e-300), 2)
    a = np.concatenate([scaled, -scaled]) / size[:, None]
    b = np.concatenate([problem.error + problem.r, problem.error - problem.r]) / size
    result = np.zeros((2, len(problem.objectives), len(scaled)))
    for k, cost in enumerate(problem.objectives * problem.radius):
        unit = float(np.abs(cost).max()) or 1.0
        for side, sign in enumerate((1.0, -1.0)):
            solution = linprog(sign * cost / unit, a, b, bounds=(-1.0, 1.0), method="highs-ds")
            if solution.status == 0:
                below, above = np.split(unit * np.minimum(solution.ineqlin.marginals, 0.0) / size, 2)
                result[side, k] = sign * (below - above)
    return result[0], result[1]


def _scale(problem: Problem) -> Array:
    """Return the largest magnitude of each objective over the box, relative to its middle, (K,)."""
    return np.asarray(np.maximum(np.abs(problem.objectives) @ problem.radius, 1e-300))


def _finite(matrix: Array) -> Array:
    return np.where(np.all(np.isfinite(matrix), axis=1)[:, None], matrix, 0.0)


def _halves(matrix: Array) -> tuple[Array, Array]:
    """Split rows for lower and upper bounds (2 K, R) into two matrices."""
    count = len(matrix) // 2
    return matrix[:count], matrix[count:]
