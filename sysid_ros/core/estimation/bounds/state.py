"""Bounds by the method of the settings, and their state between updates.

The state is the rows, bounds that only shrink, the active objectives and the warm start. Compaction combines old rows
into few with almost the same bounds, so that memory and time stay bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.bounds.closed_form import LinearBounds, bound_with, choose_inverse
from sysid_ros.core.estimation.bounds.consistency import find_inconsistent_rows
from sysid_ros.core.estimation.bounds.set_membership import (
    SidedBounds,
    WarmStart,
    add_cuts,
    bound_by_membership,
    seed_cuts,
    solve_exactly,
)
from sysid_ros.core.estimation.bounds.shape_cuts import COM_CUTS, shape_cuts
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.bounds import ParameterBounds
from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS, METHODS, SHARED_TERMS, EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import Unknowns
from sysid_ros.core.estimation.windows.rows import BOUNDS_ONLY, COMPACTED, Rows

Array = NDArray[np.float64]

_ROUNDING = ERROR_TERMS.index("rounding")
_EMPTY = 1e-9
"""Combinations with an error below this part of the largest belong to bounds that do not need these rows."""
SOLVED_WITHIN = 3
"""Every objective is solved at least once in this many updates."""
_SETTLED = 5e-3
"""An objective whose range lost less than this share of its width when it was last solved is not always active."""
_LARGE_CHANGE = 0.05
"""A range that loses more than this share makes all objectives active."""
_MANY_ROWS = 250
"""Rows from which an update is made in two parts: as many as there are with a calibration, not without."""


@dataclass(frozen=True)
class Bounds:
    """Bounds of the objectives of a problem from the data.

    Attributes:
        lower: Lower bounds, (K,).
        upper: Upper bounds, (K,). Below ``lower`` only where the data are infeasible.
        shares: Share of each source of error in the radius, name -> (K,).
        warm_start: Start of the bounds of more rows.
        infeasibility: A combination of the rows that proves them infeasible, (R,), or None.
        notice: A failure on the way, or None.
    """

    lower: Array
    upper: Array
    shares: dict[str, Array]
    warm_start: WarmStart = WarmStart()
    infeasibility: Array | None = None
    notice: str | None = None

    @property
    def radius(self) -> Array:
        """Radii of the bounds, half their widths, (K,)."""
        return 0.5 * (self.upper - self.lower)


def compute_bounds(
    problem: Problem,
    unknowns: Unknowns,
    settings: EstimatorSettings,
    warm_start: WarmStart | None = None,
) -> Bounds:
    """Compute bounds of the objectives by the method of the settings.

    Args:
        problem: The rows, centred on a box that holds the target.
        unknowns: Names of the entries of the shared nuisance parameters.
        settings: Method and its settings.
        warm_start: From earlier bounds of the first of the rows, or None.

    Raises:
        ParameterOutOfRange: The method is unknown.
    """
    if settings.method == "set_membership":
        known = None
        if settings.use_cone and unknowns.shape is not None:
            known = shape_cuts(unknowns.shape, Box.around(problem.center, problem.radius))
        if warm_start is None and settings.use_cone:
            seeds = [seed_cuts(unknowns.nominal, problem.bodies)]
            if known is not None:
                seeds.append(known[:COM_CUTS])
            warm_start = WarmStart(cuts=np.concatenate(seeds))
        sided = bound_by_membership(problem, settings.bound_tolerance, warm_start, settings.reweightings, known=known)
        return Bounds(
            lower=sided.lower,
            upper=sided.upper,
            shares=_sided_shares(sided, unknowns),
            warm_start=sided.warm_start,
            infeasibility=None if sided.infeasibility is None else sided.infeasibility[-len(problem.r) :],
            notice=sided.notice,
        )
    if settings.method == "left_inverse":
        previous = None if warm_start is None else warm_start.multipliers
        inverse = choose_inverse(problem, settings.reweightings, previous)
        linear = bound_with(problem, inverse)
        lower = np.nextafter(linear.center - linear.radius, -np.inf)
        upper = np.nextafter(linear.center + linear.radius, np.inf)
        return Bounds(lower, upper, _linear_shares(linear, unknowns), warm_start=WarmStart(inverse))
    raise ParameterOutOfRange("method", settings.method, "one of " + ", ".join(METHODS))


def _sided_shares(sided: SidedBounds, unknowns: Unknowns) -> dict[str, Array]:
    """Compute the effect of a small change of each source of error on the radii, scaled so that the sum is the radius.

    By the envelope theorem the derivative of a bound in the size of an error is that error's part for the optimal
    multipliers. The parts exceed the radius together: the data exclude that all errors reach their limits at once.
    """
    below, above = (_linear_shares(side, unknowns) for side in (sided.below, sided.above))
    total = 0.5 * (sided.below.radius + sided.above.radius)
    scale = np.maximum(0.5 * (sided.upper - sided.lower), 0.0) / np.maximum(total, 1e-300)
    return {name: 0.5 * scale * (below[name] + above[name]) for name in below}


def _linear_shares(linear: LinearBounds, unknowns: Unknowns) -> dict[str, Array]:
    shares = {name: linear.by_rows[:, k] for k, name in enumerate(ERROR_TERMS)}
    shares |= {name: linear.by_delta[:, entries].sum(axis=1) for name, entries in unknowns.groups.items()}
    for name, part in zip(SHARED_TERMS, linear.by_ends.T, strict=True):
        shares[name] = shares[name] + part
    shares["rounding"] = shares["rounding"] + linear.by_rounding
    shares["prior"] = linear.by_prior
    return shares


def compact(rows: Rows, problem: Problem, reweightings: int, multipliers: Array) -> tuple[Rows, Array]:
    """Combine rows into few that bound each objective about as well.

    One row per objective is a left inverse's, improved in ``reweightings`` steps. For every row of multipliers (J, R)
    up to two more let later bounds form the same combination of the given rows as before.

    Returns:
        The r new rows, and the same combinations in terms of them, (J, r).
    """
    parts = [combine(rows, problem, choose_inverse(problem, reweightings))]
    weights = [np.zeros((len(multipliers), len(parts[0])))]
    # Rows compacted before and new ones are combined apart, so that their weights can still change.
    for is_part in (rows.window < 0, rows.window >= 0):
        matrix = np.where(is_part, multipliers, 0.0)
        sizes = np.abs(matrix) @ problem.error
        kept = sizes > _EMPTY * max(float(sizes.max(initial=0.0)), 1e-300)
        more = combine(rows, problem, matrix[kept])
        parts.append(replace(more, window=np.full(len(more), BOUNDS_ONLY)))
        weights.append(np.eye(len(multipliers))[:, kept])
    return Rows.stack(parts), np.concatenate(weights, axis=1)


def combine(rows: Rows, problem: Problem, matrix: Array) -> Rows:
    """Combine rows to ``matrix @ rows``, which hold whenever the rows do, for any matrix (S, R).

    The nuisance parameters ``delta`` stay shared with other rows. Errors that rows of windows share become independent,
    and the rounding of the products goes to the term ``rounding``.
    """
    size = matrix.shape[0]
    magnitude = np.abs(matrix)
    unit = 4.0 * (matrix.shape[1] + 64) * np.finfo(float).eps
    errors = magnitude @ problem.errors * (1.0 + unit)
    for name, part in zip(SHARED_TERMS, problem.shared_error(matrix).T, strict=True):
        errors[:, ERROR_TERMS.index(name)] += part * (1.0 + unit)
    content = np.abs(rows.y) @ problem.theta_size + np.abs(rows.u)
    content += np.abs(problem.b) @ problem.delta_radius + np.abs(rows.b) @ problem.delta_radius[: rows.b.shape[1]]
    content += np.abs(problem.ends).sum(axis=1) @ problem.end_radius
    errors[:, _ROUNDING] += unit * (magnitude @ content)
    return Rows(
        y=matrix @ rows.y,
        b=matrix @ rows.b,
        u=matrix @ rows.u,
        errors=errors,
        tilt=np.einsum("sr,rak->sak", matrix, rows.tilt),
        ends=np.zeros((size, *rows.ends.shape[1:])),
        window=np.full(size, COMPACTED, dtype=np.int64),
        joint=np.full(size, -1, dtype=np.int64),
        start=np.full(size, rows.start.min()),
        stop=np.full(size, rows.stop.max()),
    )


class ActiveObjectives:
    """Selects the objectives that an update solves again: all that still shrink, and the others in turns.

    A range that is not solved again still holds, since new data only exclude targets. It may be a little wider than all
    data allow, for two updates at most.
    """

    def __init__(self, count: int):
        self._is_shrinking = np.ones(count, dtype=bool)
        self._age = np.zeros(count, dtype=int)
        self._solved, self._shrinkage = np.zeros(count, dtype=bool), np.zeros(count)
        self.waiting = np.zeros(count, dtype=bool)
        """Objectives that the last part of an update has left for the next one."""

    def select(self) -> NDArray[np.bool_]:
        """Return the active objectives of the next update, (K,): all that shrink, and the oldest of the others."""
        settled = np.flatnonzero(~self._is_shrinking)
        turn = -(-settled.size // SOLVED_WITHIN)
        result = self._is_shrinking.copy()
        result[settled[np.argsort(-self._age[settled], kind="stable")[:turn]]] = True
        return np.asarray(result | (self._age >= SOLVED_WITHIN - 1))

    def select_part(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return the active objectives of the next of two parts of an update, and the ones left over, (K,) each."""
        if self.waiting.any():
            return self.waiting, np.zeros_like(self.waiting)
        active = self.select()
        is_first = np.cumsum(active) <= -(-active.size // 2)
        return active & is_first, active & ~is_first

    def record(self, solved: NDArray[np.bool_], shrinkage: Array, waiting: NDArray[np.bool_] | None = None) -> None:
        """Record an update, or a part of it.

        Args:
            solved: Objectives that were solved, (K,).
            shrinkage: Share of the width that their ranges lost, (K,).
            waiting: Objectives that are left for the next part, (K,), or None.
        """
        self._solved, self._shrinkage = self._solved | solved, np.where(solved, shrinkage, self._shrinkage)
        self.waiting = np.zeros_like(solved) if waiting is None else waiting
        if self.waiting.any():
            return
        solved, shrinkage, self._solved = self._solved, self._shrinkage, np.zeros_like(solved)
        self._age = np.where(solved, 0, self._age + 1)
        self._is_shrinking = np.where(solved, shrinkage > _SETTLED, self._is_shrinking)
        if np.any(solved & (shrinkage > _LARGE_CHANGE)):
            self._is_shrinking[:] = True


def _bounds_without_data(unknowns: Unknowns) -> ParameterBounds:
    """Return the bounds before any data, from the prior and its shape.

    The box around a box that lies askew holds much that no object of the prior reaches; data need not exclude that.
    """
    known = ParameterBounds.from_prior(unknowns.target)
    if unknowns.shape is None or unknowns.shape.turned is None:  # the prior is the smallest box of all its objects
        return known
    cuts = np.concatenate([seed_cuts(unknowns.nominal), shape_cuts(unknowns.shape, known.box)])
    nothing = Problem.of_rows(cuts[:0], Box(np.zeros(0), np.zeros(0)), known.box, unknowns.target.objectives)
    problem = add_cuts(nothing, cuts)
    sided = SidedBounds.best_of(problem, [solve_exactly(problem)])
    return known.intersect(sided.lower, sided.upper) or known


@dataclass(frozen=True)
class BoundUpdate:
    """Bounds from all rows of a :class:`BoundState`, not yet part of it.

    Attributes:
        rows: All rows.
        problem: The same, centred.
        active: Objectives that were solved again, (K,).
        waiting: Objectives that are left for the next update, (K,), or None.
        bounds: Bounds of the objectives from these rows.
        known: The bounds so far, narrowed; None where the rows are infeasible.
    """

    rows: Rows
    problem: Problem
    active: NDArray[np.bool_]
    waiting: NDArray[np.bool_] | None
    bounds: Bounds
    known: ParameterBounds | None


class BoundState:
    """Rows of the windows so far and the bounds from them; memory stays bounded by compaction.

    Args:
        unknowns: Target and nuisance parameters.
        settings: Method, tolerances, number of windows kept.
        calibration: Rows that hold before any window, or None; never compacted.
    """

    def __init__(self, unknowns: Unknowns, settings: EstimatorSettings, calibration: Rows | None = None):
        self._unknowns, self._settings = unknowns, settings
        self.fixed = [] if calibration is None or not len(calibration) else [calibration]
        """Rows that hold before any window, of a calibration and of a tare; they stay as they are."""
        self._warm_start: WarmStart | None = None
        self._active = ActiveObjectives(len(unknowns.target.objectives))
        self.rows: list[Rows] = []
        """Rows of each window."""
        self.compacted: list[Rows] = []
        """What older windows were combined to: none or one."""
        self.known = _bounds_without_data(unknowns)
        """Intersection of all bounds so far."""
        self.prior = self.known.box
        """Box of the target before any data, (P,)."""

    @property
    def all_rows(self) -> list[Rows]:
        """Rows behind the bounds: compacted ones, fixed ones, windows'."""
        return [*self.compacted, *self.fixed, *self.rows]

    @property
    def cuts(self) -> Array:
        """Cuts of the last bounds, (C, P)."""
        cuts = None if self._warm_start is None else self._warm_start.cuts
        return np.zeros((0, self._unknowns.nominal.size)) if cuts is None else cuts

    @property
    def is_waiting(self) -> bool:
        """Whether the last update has left objectives for the next one."""
        return bool(self._active.waiting.any())

    def build_problem(self, rows: Rows) -> Problem:
        """Centre rows on the bounds so far."""
        box, objectives = self.known.box, self._unknowns.target.objectives
        return Problem.build(rows, box.center, box.radius, self._unknowns.radius, self._unknowns.end_error, objectives)

    def evaluate(self, in_parts: bool = False) -> BoundUpdate:
        """Compute bounds from all rows (one at least) without a change of the state.

        With ``in_parts``, many rows are solved for half of the objectives, or for the rest of the last such update, so
        that no call takes long.
        """
        rows, active, waiting = Rows.stack(self.all_rows), self._active.select(), None
        if in_parts and self._settings.method == "set_membership" and (self.is_waiting or len(rows) > _MANY_ROWS):
            active, waiting = self._active.select_part()
        problem = self.build_problem(rows)
        warm_start = None if self._warm_start is None else replace(self._warm_start, active=active)
        bounds = compute_bounds(problem, self._unknowns, self._settings, warm_start)
        known = None
        if bounds.infeasibility is None and not find_inconsistent_rows(problem).size:
            known = self.known.intersect(bounds.lower, bounds.upper)
        return BoundUpdate(rows, problem, active, waiting, bounds, known)

    def accept(self, update: BoundUpdate) -> None:
        """Take over the bounds of an update that is feasible."""
        if update.known is None:
            raise ValueError("bounds from infeasible rows cannot be taken over")
        bounds = update.bounds
        self._active.record(update.active, self.known.shrinkage(bounds.lower, bounds.upper), update.waiting)
        self._warm_start = bounds.warm_start
        self.known = update.known

    def compact(self) -> None:
        """Compact the older rows if with the next update there would be too many windows."""
        settings = self._settings
        keep = max(1, settings.max_windows // 2)
        if len(self.rows) + settings.update_windows <= settings.max_windows or len(self.rows) <= keep:
            return
        old, recent = Rows.stack([*self.compacted, *self.rows[:-keep]]), self.rows[-keep:]
        self.rows, before = recent, sum(len(part) for part in self.compacted)
        if self._warm_start is None or self._warm_start.multipliers is None:
            self.compacted = []
            return
        parts = np.cumsum([before, sum(len(part) for part in self.fixed)])
        first, fixed, others = np.split(self._warm_start.multipliers, parts, axis=1)
        own = np.concatenate([first, others], axis=1)
        # The combinations behind sided bounds are tighter than any left inverse.
        steps = 0 if settings.method == "set_membership" else settings.reweightings
        compacted, combined = compact(old, self.build_problem(old), steps, own[:, : len(old)])
        self.compacted = [compacted]
        multipliers = np.concatenate([combined, fixed, own[:, len(old) :]], axis=1)
        self._warm_start = replace(self._warm_start, multipliers=multipliers)
