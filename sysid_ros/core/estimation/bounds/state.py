"""State of the bounds between updates: rows, bounds that only shrink, active objectives and warm start."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.bounds.compaction import compact
from sysid_ros.core.estimation.bounds.consistency import find_inconsistent_rows
from sysid_ros.core.estimation.bounds.methods import Bounds, compute_bounds
from sysid_ros.core.estimation.bounds.set_membership import WarmStart
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.bounds import ParameterBounds
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import Unknowns
from sysid_ros.core.estimation.windows.rows import Rows

Array = NDArray[np.float64]

SOLVED_WITHIN = 3
"""Every objective is solved at least once in this many updates."""
_SETTLED = 5e-3
"""An objective whose range lost less than this share of its width when it was last solved is not always active."""
_LARGE_CHANGE = 0.05
"""A range that loses more than this share makes all objectives active."""


class ActiveObjectives:
    """Selects the objectives that an update solves again: those that still shrink, and the others in turns.

    A range that is not solved again still holds, since new data only exclude targets. It may be a little wider than all
    data allow, for two updates at most.

    Args:
        count: Number of objectives K.
    """

    def __init__(self, count: int):
        self._is_shrinking = np.ones(count, dtype=bool)
        self._age = np.zeros(count, dtype=int)

    def select(self) -> NDArray[np.bool_]:
        """Return the active objectives of the next update, (K,): all that shrink, and the oldest of the others."""
        settled = np.flatnonzero(~self._is_shrinking)
        turn = -(-settled.size // SOLVED_WITHIN)
        result = self._is_shrinking.copy()
        result[settled[np.argsort(-self._age[settled], kind="stable")[:turn]]] = True
        return np.asarray(result | (self._age >= SOLVED_WITHIN - 1))

    def record(self, solved: NDArray[np.bool_], shrinkage: Array) -> None:
        """Record an update.

        Args:
            solved: Objectives that were solved, (K,).
            shrinkage: Share of the width that their ranges lost, (K,).
        """
        self._age = np.where(solved, 0, self._age + 1)
        self._is_shrinking = np.where(solved, shrinkage > _SETTLED, self._is_shrinking)
        if np.any(solved & (shrinkage > _LARGE_CHANGE)):
            self._is_shrinking[:] = True


@dataclass(frozen=True)
class BoundUpdate:
    """Bounds from all rows of a :class:`BoundState`, not yet part of it.

    Attributes:
        rows: All rows.
        problem: The same, centred.
        active: Objectives that were solved again, (K,).
        bounds: Bounds of the objectives from these rows.
        known: The bounds so far, narrowed; None where the rows are infeasible.
    """

    rows: Rows
    problem: Problem
    active: NDArray[np.bool_]
    bounds: Bounds
    known: ParameterBounds | None


class BoundState:
    """Rows of the windows so far and the bounds they gave; memory stays bounded by compaction.

    Args:
        unknowns: Target and nuisance parameters.
        settings: Method, tolerances, number of windows kept.
        calibration: Rows that hold before any window, or None; they stay as they are.
    """

    def __init__(self, unknowns: Unknowns, settings: EstimatorSettings, calibration: Rows | None = None):
        self._unknowns, self._settings = unknowns, settings
        self._fixed = [] if calibration is None or not len(calibration) else [calibration]
        self._warm_start: WarmStart | None = None
        self._active = ActiveObjectives(len(unknowns.target.objectives))
        self.rows: list[Rows] = []
        """Rows of each window, compacted ones first."""
        self.known = ParameterBounds.from_prior(unknowns.target)
        """Intersection of all bounds so far."""

    @property
    def all_rows(self) -> list[Rows]:
        """Rows behind the bounds: those of the calibration, compacted ones, those of windows."""
        return [*self._fixed, *self.rows]

    @property
    def compacted(self) -> list[Rows]:
        """Rows of the calibration and compacted rows."""
        return [part for part in self.all_rows if part.window[0] < 0]

    @property
    def cuts(self) -> Array:
        """Cuts of the last bounds, (C, P)."""
        cuts = None if self._warm_start is None else self._warm_start.cuts
        return np.zeros((0, self._unknowns.nominal.size)) if cuts is None else cuts

    def build_problem(self, rows: Rows) -> Problem:
        """Centre rows on the bounds so far."""
        box, objectives = self.known.box, self._unknowns.target.objectives
        return Problem.build(rows, box.center, box.radius, self._unknowns.radius, self._unknowns.end_error, objectives)

    def evaluate(self, start: Array) -> BoundUpdate:
        """Compute bounds from all rows (one at least); changes nothing.

        Args:
            start: Log-Cholesky coordinates of a plausible target, (10,).

        Raises:
            FitNotConverged: The method needs a fit and it did not converge.
        """
        rows, active = Rows.stack(self.all_rows), self._active.select()
        problem = self.build_problem(rows)
        bounds = compute_bounds(problem, self._unknowns, self._settings, start, self._warm_start, active)
        known: ParameterBounds | None = self.known
        if bounds.is_rigorous:
            known = None if bounds.infeasibility is not None else self.known.intersect(bounds.lower, bounds.upper)
        if find_inconsistent_rows(problem).size:
            known = None
        return BoundUpdate(rows, problem, active, bounds, known)

    def accept(self, update: BoundUpdate) -> None:
        """Take over the bounds of an update that is feasible."""
        if update.known is None:
            raise ValueError("bounds from infeasible rows cannot be taken over")
        bounds = update.bounds
        self._active.record(update.active, self.known.shrinkage(bounds.lower, bounds.upper))
        self._warm_start = bounds.warm_start
        self.known = update.known

    def compact(self) -> None:
        """Compact the older rows if with the next update there would be too many windows."""
        settings = self._settings
        stored = sum(1 for rows in self.rows if rows.window[0] >= 0)
        if stored + settings.update_windows <= settings.max_windows:
            return
        keep = max(1, settings.max_windows // 2)
        old, recent = Rows.stack(self.rows[:-keep]), self.rows[-keep:]
        if self._warm_start is not None and self._warm_start.multipliers is not None:
            fixed = sum(len(part) for part in self._fixed)
            kept, multipliers = np.split(self._warm_start.multipliers, [fixed], axis=1)
            # The combinations behind sided bounds say more than a left inverse, however good.
            steps = 0 if settings.method == "set_membership" else settings.reweightings
            compacted, combined = compact(old, self.build_problem(old), steps, multipliers[:, : len(old)])
            recent = [compacted, *recent]
            multipliers = np.concatenate([kept, combined, multipliers[:, len(old) :]], axis=1)
            self._warm_start = replace(self._warm_start, multipliers=multipliers)
        self.rows = recent
