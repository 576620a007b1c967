"""Cuts of the cone of physically consistent bodies: linear inequalities that each fulfils, as rows of a problem.

With the pseudo-inertia ``P(theta)``, linear in theta, ``z^T P(theta) z >= 0`` holds for every body and any z.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.model.inertia import pseudo_inertia
from sysid_ros.core.model.robot import INERTIAL

Array = NDArray[np.float64]

_PSEUDO = np.stack([pseudo_inertia(unit) for unit in np.eye(10)])
_LENGTH = 0.2
"""Length [m] that makes masses, first and second moments comparable when eigenvectors are taken; any would do."""
_NOTICEABLE = 1e-4
"""Negative eigenvalues smaller than this part of the largest one make no cut."""
_ROUNDING = 1e-12
_COLUMN = -1
"""Column of rounding, the last one in every error budget."""


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
    """Return the cuts that parameters of one body (J, 10) violate, (C, 10)."""
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
    """Add cuts ``a theta >= 0`` (C, P) to a problem as rows before the others.

    Over the box ``a theta`` stays below some ``2 s``, so a cut is the row ``a theta = s + e`` with ``|e| <= s``, of
    which only the lower end of e matters.
    """
    size = 0.5 * np.abs(cuts) @ problem.theta_size * (1.0 + _ROUNDING)
    errors = np.zeros((len(cuts), problem.errors.shape[1]))
    errors[:, _COLUMN] = size * (1.0 + 8.0 * _ROUNDING)  # covers the rounding of the cut itself
    return replace(
        problem,
        y=np.concatenate([cuts, problem.y]),
        b=np.concatenate([np.zeros((len(cuts), problem.b.shape[1])), problem.b]),
        ends=np.concatenate([np.zeros((len(cuts), *problem.ends.shape[1:])), problem.ends]),
        end_index=np.concatenate([np.full((len(cuts), 2), -1), problem.end_index]),
        r=np.concatenate([size - cuts @ problem.center, problem.r]),
        errors=np.concatenate([errors, problem.errors]),
    )


def _cut(z: Array) -> Array:
    """Return the cut ``z^T P(theta) z >= 0`` as a row (10,) of unit size."""
    row = np.einsum("a,kab,b->k", z, _PSEUDO, z)
    return np.asarray(row / np.linalg.norm(row))
