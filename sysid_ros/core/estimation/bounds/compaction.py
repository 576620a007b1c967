"""Replaces many rows by few that say almost the same, so that memory and time stay bounded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.bounds.left_inverse import choose_inverse
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS
from sysid_ros.core.estimation.windows.rows import Rows

Array = NDArray[np.float64]

_VELOCITY = ERROR_TERMS.index("velocity")
_ROUNDING = ERROR_TERMS.index("rounding")


OF_BOUNDS = -2
"""Window number of compacted rows that say again, for certain bounds, what the other compacted rows say."""
_EMPTY = 1e-9
"""Combinations with an error below this part of the largest stand for bounds that do not need these rows."""


def compact(
    rows: Rows, problem: Problem, reweightings: int, multipliers: Array | None = None
) -> tuple[Rows, Array | None]:
    """Few rows that bound each objective about as well as the given rows do.

    One row for each is that of a left inverse. With multipliers there are up to four more: bounds that rest on more
    rows than these then do not suffer, since they can take the same combination of the given rows as before.

    Args:
        rows: The rows.
        problem: The same rows, centred on a box that holds the target.
        reweightings: Steps towards the narrowest bounds.
        multipliers: Combinations of the rows that matter for bounds from these and more rows, (J, R), or None.

    Returns:
        The r new rows, and the same combinations in terms of them, (J, r), or None where none were given.
    """
    parts = [combine(rows, problem, choose_inverse(problem, reweightings))]
    if multipliers is None:
        return parts[0], None
    weights = [np.zeros((len(multipliers), len(parts[0])))]
    # Rows that were compacted before and new ones stay apart, so that their weights can still change.
    for is_part in (rows.window < 0, rows.window >= 0):
        matrix = np.where(is_part, multipliers, 0.0)
        sizes = np.abs(matrix) @ problem.error
        kept = sizes > _EMPTY * max(float(sizes.max(initial=0.0)), 1e-300)
        more = combine(rows, problem, matrix[kept])
        parts.append(replace(more, window=np.full(len(more), OF_BOUNDS)))
        weights.append(np.eye(len(multipliers))[:, kept])
    return Rows.stack(parts), np.concatenate(weights, axis=1)


def combine(rows: Rows, problem: Problem, matrix: Array) -> Rows:
    """The rows ``matrix @ rows``: as true as the rows themselves; (S, R) for any matrix.

    What the combined rows share with other rows, ``delta``, stays shared. The velocity errors at the ends of the
    windows become errors of their own, and the rounding of the products goes to the term ``rounding``.
    """
    size = matrix.shape[0]
    magnitude = np.abs(matrix)
    unit = 4.0 * (matrix.shape[1] + 64) * np.finfo(float).eps
    errors = magnitude @ problem.errors * (1.0 + unit)
    errors[:, _VELOCITY] += np.abs(matrix @ problem.end_matrix) @ problem.end_radii * (1.0 + unit)
    content = np.abs(rows.y) @ problem.theta_size + np.abs(rows.u)
    content += np.abs(problem.b) @ problem.delta_radius + np.abs(rows.b) @ problem.delta_radius[: rows.b.shape[1]]
    content += np.abs(problem.ends).sum(axis=1) @ problem.end_radius
    errors[:, _ROUNDING] += unit * (magnitude @ content)
    none = np.full(size, -1, dtype=np.int64)
    return Rows(
        y=matrix @ rows.y,
        b=matrix @ rows.b,
        u=matrix @ rows.u,
        errors=errors,
        tilt=np.einsum("sr,rak->sak", matrix, rows.tilt),
        ends=np.zeros((size, *rows.ends.shape[1:])),
        window=none,
        joint=none,
        start=np.full(size, rows.start.min()),
        stop=np.full(size, rows.stop.max()),
    )
