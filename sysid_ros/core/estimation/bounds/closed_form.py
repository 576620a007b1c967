"""Guaranteed bounds in closed form, from any matrix L.

A problem says ``y x + b delta + v eta = r + e`` and asks for ``c x``. For every L, left inverse or not,
``c x = L r + L e - L b delta - L v eta + (c - L y) x``, so
``|c x - L r| <= |L| E + |L b| rad(delta) + |L v| rad(eta) + |c - L y| rad(x)``. A bad L only makes the bounds wide.
Source: design of the method in docs/theory/bounds.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.lp.problem import Covariance, Problem, RowBands, floored

Array = NDArray[np.float64]

_NEGLIGIBLE = 0.1
"""Shared errors below this share of the independent error of every row do not guide the choice of L."""


@dataclass(frozen=True)
class LinearBounds:
    """Bounds of K objectives that follow from a matrix L; the radius is the sum of its parts.

    Attributes:
        center: Middle of the bounds, (K,).
        radius: (K,).
        by_rows: Part of each error term, (K, terms).
        by_delta: Part of each entry of the shared nuisance parameters, (K, M).
        by_ends: Parts of the shared errors, (K, S), one column for each of ``SHARED_TERMS``.
        by_prior: Part of the prior box, (K,).
        by_rounding: Part of rounding, (K,).
    """

    center: Array
    radius: Array
    by_rows: Array
    by_delta: Array
    by_ends: Array
    by_prior: Array
    by_rounding: Array

    def select(self, index: NDArray[np.intp]) -> LinearBounds:
        """Select the bounds of some objectives."""
        return LinearBounds(*(getattr(self, field.name)[index] for field in fields(self)))

    @classmethod
    def stack(cls, parts: Sequence[LinearBounds]) -> LinearBounds:
        """Join bounds of several sets of objectives."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))


def bound_with(problem: Problem, inverse: Array, shared: Array | None = None) -> LinearBounds:
    """Compute rigorous bounds of the objectives from any matrix L, (K, R), rounding included.

    Args:
        problem: The problem.
        inverse: L, (K, R).
        shared: Gains of the shared nuisance parameters in the objectives, (K, M); None for zero.
    """
    magnitude = np.abs(inverse)
    by_rows = magnitude @ problem.errors
    left = inverse @ problem.b if shared is None else shared - inverse @ problem.b
    by_delta = np.abs(left) * problem.delta_radius
    by_ends = problem.shared_error(inverse)
    by_prior = np.abs(problem.objectives - inverse @ problem.y) @ problem.radius
    gamma = problem.rounding_unit
    by_rounding = gamma * (magnitude @ problem.content + np.abs(problem.objectives) @ problem.theta_size)
    if shared is not None:
        by_rounding += gamma * (np.abs(shared) @ problem.delta_radius)
    radius = (by_rows.sum(axis=1) + by_delta.sum(axis=1) + by_ends.sum(axis=1) + by_prior + by_rounding) * (1.0 + gamma)
    center = problem.objectives @ problem.center + inverse @ problem.r
    return LinearBounds(center, radius, by_rows, by_delta, by_ends, by_prior, by_rounding)


def bound_without_rows(problem: Problem) -> Box:
    """Return the bounds of the objectives that follow from the box of the problem alone, (K,), rounded outwards."""
    size, gamma = np.abs(problem.objectives), problem.rounding_unit
    center = problem.objectives @ problem.center
    radius = (size @ problem.radius + gamma * (size @ problem.theta_size)) * (1.0 + gamma)
    return Box(np.nextafter(center - radius, -np.inf), np.nextafter(center + radius, np.inf))


def choose_inverse(problem: Problem, reweightings: int, previous: Array | None = None) -> Array:
    """Choose a matrix L, (K, R), with narrow bounds.

    Start from the least-squares solution with every radius as a standard deviation, and reweight it, for each objective
    separately, towards the smallest radius (an L1 problem). ``previous`` (K, r), chosen for the first r rows, is a warm
    start.
    """
    search = _Search(problem)
    inverse = search.start()
    best, best_cost = inverse.copy(), search.costs(inverse)
    smoothing = 0.1
    if previous is not None:
        inverse[:, : previous.shape[1]] = previous
        smoothing *= 0.1
    for step in range(reweightings):
        try:
            smallest = max(smoothing * 0.3**step, 1e-4)
            inverse = np.stack([search.reweight(row, i, smallest) for i, row in enumerate(inverse)])
        except np.linalg.LinAlgError:  # weights too far apart; the best so far gives valid bounds too
            break
        costs = search.costs(inverse)
        is_better = costs < best_cost
        best[is_better], best_cost[is_better] = inverse[is_better], costs[is_better]
    return np.asarray(best)


class _Search:
    def __init__(self, problem: Problem):
        problem = problem.without_negligible(_NEGLIGIBLE)
        self._y, self._b, self._v = problem.y, problem.b, problem.end_matrix
        self._delta, self._ends = problem.delta_radius, problem.end_radii
        self._error = floored(problem.error)
        self._radius, self._objectives = floored(problem.radius), problem.objectives
        self._bands = RowBands(problem, problem.joints)

    def start(self) -> Array:
        bands = self._bands.assemble(self._error**2, self._ends**2)
        covariance = Covariance(bands, self._y, self._b, self._delta**2)
        information = np.diag(self._radius**-2.0) + covariance.gram
        return np.asarray(covariance.solve(np.linalg.solve(information, self._objectives.T)).T)

    def costs(self, inverse: Array) -> Array:
        leftover = np.abs(self._objectives - inverse @ self._y) @ self._radius
        shared = np.abs(inverse @ self._b) @ self._delta + np.abs(inverse @ self._v) @ self._ends
        return np.asarray(np.abs(inverse) @ self._error + shared + leftover)

    def reweight(self, row: Array, i: int, smoothing: float) -> Array:
        """Return the next row of L for objective i: every squared contribution divided by its present size."""
        unit = self._objectives[i]
        sizes = (self._error, self._delta, self._ends, self._radius)
        factors = (row, row @ self._b, row @ self._v, unit - row @ self._y)
        parts = [np.abs(factor) * size for factor, size in zip(factors, sizes, strict=True)]
        floor = smoothing * sum(float(part.sum()) for part in parts) / sum(part.size for part in parts)
        error, delta, ends, radius = (size**2 / (part + floor) for part, size in zip(parts, sizes, strict=True))
        covariance = Covariance(self._bands.assemble(error, ends), self._y, self._b, delta)
        return covariance.solve(np.linalg.solve(np.diag(1.0 / radius) + covariance.gram, unit)[:, None])[:, 0]
