"""Base parameters: a minimal set, and the linear maps between it and all parameters.

Bodies are visited from the tips to the base. Of each body the parameters that the invisible transfers can remove are
set to zero, and what they stood for is added to the parameters that stay and to the parent's. So the map costs one
small step per body and every coefficient has a meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.identifiability.rpna import BodyNullspace
from sysid_ros.core.identifiability.spans import Spans
from sysid_ros.core.identifiability.tree import WORLD, KinematicTree

Array = NDArray[np.float64]

_CLEAN = 1e-9
"""Scaled coefficients below this are rounding errors of zero."""


@dataclass(frozen=True)
class BaseMap:
    """The base parameters ``pi_b = matrix @ pi`` of P parameters.

    Attributes:
        matrix: (nb, P) [units of the base parameters per unit of each parameter]; the columns ``chosen`` are the
            identity.
        chosen: The parameter each base parameter is named after, (nb,), rising.
    """

    matrix: Array
    chosen: tuple[int, ...]


def build_base_map(
    tree: KinematicTree, nullspaces: Sequence[BodyNullspace], is_unknown: Sequence[bool], spans: Spans
) -> BaseMap:
    """Chooses base parameters by the paper's rule and computes the map to them.

    Args:
        tree: The mechanism.
        nullspaces: Result of the algorithm for each body.
        is_unknown: Whether each of all parameters is unknown, body by body; the others are known or zero.
        spans: Computes bases.

    Returns:
        The map of the unknown parameters, in SI units.

    Source: RPNA appendix G and the rule of section 9.1; the elimination from the tips to the base is ours.
    """
    counts = [len(body.unit.names) for body in nullspaces]
    starts = np.concatenate([[0], np.cumsum(counts)])
    # What the tree beyond a body has handed down to it, per parameter of that subtree.
    received: dict[int, Array] = {k: np.zeros((10, starts[-1])) for k in range(WORLD, len(counts))}
    rows, chosen = [], []
    for index in reversed(range(len(counts))):
        body = nullspaces[index]
        total = np.zeros((counts[index], starts[-1]))
        total[:10] = received[index]
        total[:, starts[index] : starts[index + 1]] += np.eye(counts[index])
        kept = spans.first_columns(body.descriptor)
        combination = np.zeros((len(kept), counts[index]))
        if kept:
            combination = np.linalg.solve(body.descriptor[:, kept], body.descriptor)
        rows.append(combination @ total)
        chosen.append([int(starts[index]) + k for k in kept])
        removed = np.eye(counts[index])
        removed[kept] -= combination
        removed[:, kept] = 0.0
        received[tree.bodies[index].parent] += body.unit.transfer @ (removed @ total)
    matrix = np.concatenate(rows[::-1])
    matrix[np.abs(matrix) < _CLEAN] = 0.0
    order = [k for part in reversed(chosen) for k in part]
    scale = np.concatenate([body.unit.scale for body in nullspaces])
    unknown = np.flatnonzero(is_unknown)
    if unknown.size < starts[-1]:
        matrix, order = _restrict(matrix, order, unknown, spans)
        scale = scale[unknown]
    matrix = scale[order][:, None] * matrix / scale
    return BaseMap(matrix, tuple(order))


def _restrict(matrix: Array, chosen: Sequence[int], unknown: Array, spans: Spans) -> tuple[Array, list[int]]:
    """Base parameters of a part of all parameters, from the map (nb, P) of all of them.

    Parameters that stay unknown keep their rows, as no other row has an entry in their columns. Only the rows of those
    that are known are reduced again, among themselves: a reduction of all rows would mix rows of very different size.
    """
    stays = np.isin(chosen, unknown)
    kept, freed = matrix[stays][:, unknown], matrix[~stays][:, unknown]
    position = {int(k): n for n, k in enumerate(unknown)}
    order = [position[k] for k in chosen if k in position]
    sizes = np.linalg.norm(freed, axis=1)
    freed = freed[sizes > 0.0] / sizes[sizes > 0.0, None]
    rows = spans.row_basis(freed)
    added = spans.first_columns(rows)
    if added:
        rows = np.linalg.solve(rows[:, added], rows)
        rows[:, added] = np.eye(len(added))
        kept = kept - kept[:, added] @ rows
    result, order = np.concatenate([kept, rows]), np.array([*order, *added], dtype=int)
    result[np.abs(result) < _CLEAN] = 0.0
    sequence = np.argsort(order)
    return result[sequence], [int(k) for k in order[sequence]]
