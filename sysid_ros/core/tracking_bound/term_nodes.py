"""Nodes of a motion for slowly varying terms, and estimates of the terms in between.

Terms change with the position, and some are proportional to the velocity, so they follow the turns of the joints as
well as their oscillations, however small these are. Their values between two nodes are estimated from their curvature
at the nodes about them; where these exceed the nodes by more than a little, nodes are added.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from sysid_ros.core.tracking_bound.motion import MotionSamples, larger_neighbour

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_ANGLE, _STEP, _PHASE = 0.35, 0.25, 0.8
"""Largest sum of the turns of the joints [rad], time [s] and phase of an oscillation [rad] between nodes."""
_BENT = 1.5
"""Factor on the downward curvature that is estimated."""
_MOST, _AIM = 0.02, 0.01
"""Share of a term by which it may exceed its nodes, where nodes can be added, and the target after adding."""
_SMALL = 0.05
"""Share of the largest value of a term below which nodes are not added for it."""


def fastest_oscillation(samples: MotionSamples) -> float:
    """Estimate the largest angular frequency of a motion [rad/s]; its square is the jerk divided by the velocity."""
    speed, _, jerk, _ = (rate.max() for rate in samples.rates.orders)
    return float(np.sqrt(jerk / speed)) if speed > 0.0 else 0.0


def choose_term_nodes(samples: MotionSamples, nodes: Index) -> Index:
    """Choose the nodes at which the slowly varying terms are evaluated, the first and the last among them.

    They are the denser the faster the joints turn, and the faster they oscillate.
    """
    sums = [rate.sum(axis=1) for rate in samples.rates.orders]
    reach = round(_STEP / samples.step)
    speed = sliding_window_view(np.pad(sums[0], reach), 2 * reach + 1).max(axis=1)
    frequency = np.sqrt(sums[2] / np.maximum(speed, 1e-300))
    turns = [one ** (1.0 / order) / _ANGLE for order, one in enumerate(sums, start=1)]
    density = np.clip(np.max([*turns, frequency / _PHASE], axis=0), 1.0 / _STEP, 1.0 / samples.step)
    total = np.concatenate([[0.0], np.cumsum(density)])[nodes] * samples.step
    count = int(np.ceil(total[-1]))
    spread = np.searchsorted(total, np.linspace(0.0, total[-1], count + 1)).clip(0, len(nodes) - 1)
    # Where the jerk jumps an interval ends.
    bends = np.searchsorted(nodes, np.flatnonzero(samples.kinks.any(axis=(0, 2))))
    chosen: Index = nodes[np.unique(np.concatenate([spread, bends]))]
    return chosen


def largest_between(times: Array, values: Array) -> Array:
    """Estimate the largest values of functions in the intervals between nodes, (S - 1, ...).

    The parabola through both ends with the largest downward curvature at these and the nodes beside them, times 1.5.

    Args:
        times: Times of the nodes, (S,) [s].
        values: Functions there, not negative, (S, ...).
    """
    larger = larger_neighbour(values)
    if len(times) < 3:
        return larger
    width = np.diff(times).reshape(-1, *(1,) * (values.ndim - 1))
    change = np.diff(values, axis=0)
    curvature = -2.0 * np.diff(change / width, axis=0) / (width[1:] + width[:-1])
    ends = curvature[:1], curvature[-1:]
    around = np.concatenate([ends[0], ends[0], curvature, ends[1], ends[1]])  # of the nodes and one more at each end
    most = np.max([around[k : len(around) - 3 + k] for k in range(4)], axis=0)
    bend = _BENT * np.maximum(most, 0.0) * width**2
    rise = np.maximum(0.5 * bend - np.abs(change), 0.0)
    result: Array = larger + rise**2 / (2.0 * np.maximum(bend, 1e-300))
    return result


def nodes_to_add(samples: MotionSamples, nodes: Index, chosen: Index, terms: Iterable[Array]) -> Index:
    """List nodes to add to the chosen ones, where terms exceed the larger value at two of them by too much.

    Args:
        samples: The motion.
        nodes: Numbers of the nodes to choose from.
        chosen: The S nodes at which the terms are known.
        terms: The terms, (S,) each.
    """
    times, share = samples.step * chosen.astype(np.float64), np.zeros(len(chosen) - 1)
    for values in terms:
        larger = larger_neighbour(values)
        above = largest_between(times, values) - larger
        share = np.maximum(share, above / np.maximum(larger, _SMALL * values.max() + 1e-300))
    parts = np.where(share > _MOST, np.ceil(np.sqrt(share / _AIM)), 1.0).astype(int)
    at = np.searchsorted(nodes, chosen)
    wanted = [np.linspace(*one).round().astype(int) for one in zip(at[:-1], at[1:], parts + 1, strict=True)]
    added: Index = nodes[np.setdiff1d(np.concatenate(wanted), at)]
    return added
