"""Compaction: few rows in place of many with almost the same bounds, so that memory and time stay bounded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.bounds.left_inverse import choose_inverse
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS
from sysid_ros.core.estimation.windows.rows import BOUNDS_ONLY, COMPACTED, Rows

Array = NDArray[np.float64]

_VELOCITY, _ENCODER = ERROR_TERMS.index("velocity"), ERROR_TERMS.index("encoder")
_ROUNDING = ERROR_TERMS.index("rounding")
_EMPTY = 1e-9
"""Combinations with an error below this part of the largest belong to bounds that do not need these rows."""


def compact(rows: Rows, problem: Problem, reweightings: int, multipliers: Array) -> tuple[Rows, Array]:
    """Combine rows to few that bound each objective about as well.

    One row for each objective is that of a left inverse. For every multiplier row there are up to two more, with which
    bounds from these and more rows can form the same combination of the given rows as before.

    Args:
        rows: The rows.
        problem: The same rows, centred on a box that holds the target.
        reweightings: Steps towards the narrowest bounds.
        multipliers: Combinations of the rows in bounds from these and more rows, (J, R).

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

    The nuisance parameters ``delta`` stay shared with other rows. The errors that rows of windows share become
    independent, and the rounding of the products goes to the term ``rounding``.
    """
    size = matrix.shape[0]
    magnitude = np.abs(matrix)
    unit = 4.0 * (matrix.shape[1] + 64) * np.finfo(float).eps
    errors = magnitude @ problem.errors * (1.0 + unit)
    errors[:, [_VELOCITY, _ENCODER]] += problem.shared_error(matrix) * (1.0 + unit)
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
