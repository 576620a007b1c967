"""Replaces many rows by ten that say almost the same, so that memory and time stay bounded."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.left_inverse import choose_inverse
from sysid_ros.core.estimation.problem import Problem
from sysid_ros.core.estimation.rows import Rows
from sysid_ros.core.estimation.settings import ERROR_TERMS

Array = NDArray[np.float64]

_VELOCITY = ERROR_TERMS.index("velocity")
_ROUNDING = ERROR_TERMS.index("rounding")


def compact(rows: Rows, problem: Problem, reweightings: int) -> Rows:
    """Ten rows that bound each parameter as well as the given rows do by themselves.

    Args:
        rows: The rows.
        problem: The same rows, centred on a box that holds the target.
        reweightings: Steps towards the narrowest bounds.
    """
    return combine(rows, problem, choose_inverse(problem, reweightings))


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
