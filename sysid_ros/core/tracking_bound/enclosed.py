"""The tube map, and bounds of stops, with proven terms of the model in place of estimates and their allowance.

Terms are bounded in given position errors (:mod:`term_growth`), which takes a second or two for a motion. So a tube is
found with estimated ones first, the terms are bounded in one that is a little larger, and the tube that they map into
itself must lie in that; otherwise the same again.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.tracking_bound.elasticity import link_errors
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable
from sysid_ros.core.tracking_bound.stops import PathCells, StopBound, bound_stops
from sysid_ros.core.tracking_bound.term_growth import Enclosure
from sysid_ros.core.tracking_bound.tube import ErrorBounds, Tube, TubeMap

Array = NDArray[np.float64]

_CHUNK = 40
"""Nodes that are worked on at once."""
_TURN = 0.015
"""Sum of the turns of the joints between two nodes [rad] from which there are more of them."""
_ROUNDS = 5
"""Largest number of times that terms are bounded."""
_IN_STOPS = 1.3
"""Size of the errors in stops in which they are bounded first, relative to those on the path."""
_LARGER, _CLOSE = 1.1, 1.03
"""Size of the errors next, relative to those that were found: where these are larger than assumed, or much smaller."""


class EnclosedMap(TubeMap):
    """The tube map with proven bounds of the slowly varying terms, for given errors.

    Args:
        estimated: The map with estimated ones.
        errors: Position errors for which the terms are bounded, (I, n) [rad].

    Raises:
        BoundNotAvailable: They may change the inertia by half.
    """

    def __init__(self, estimated: TubeMap, errors: Array):
        self.__dict__.update(estimated.__dict__)  # all that does not depend on the terms
        self._enclosures: list[Enclosure]
        if isinstance(estimated, EnclosedMap):
            self._enclosures = estimated._enclosures
        else:
            nodes = self._nodes = self._choose_nodes()
            cuts = [*range(0, len(nodes) - 1, _CHUNK), len(nodes) - 1]
            self._enclosures = [Enclosure(self, nodes[i : j + 1]) for i, j in zip(cuts[:-1], cuts[1:], strict=True)]
        largest = np.maximum.reduceat(errors, self._nodes[:-1], axis=0)
        parts = np.split(largest, np.cumsum([one.intervals for one in self._enclosures])[:-1])
        found = [one.bound(part) for one, part in zip(self._enclosures, parts, strict=True)]
        starts = np.searchsorted(self.samples.step * self._nodes, self.terms.times[:-1] - 1e-9)

        def joined(parts: list[dict[str, Array]]) -> dict[str, Array]:  # between the nodes of the slowly varying terms
            return {x: np.maximum.reduceat(np.concatenate([part[x] for part in parts]), starts) for x in parts[0]}

        moving = joined([one.moving for one in found])
        self.turned = moving.pop("turned")[self.spread]
        self.terms = replace(self.terms, largest=replace(self.terms.largest, **moving))
        self._still = joined([one.still for one in found])
        self._ratios = min(one.ratios[0] for one in found), max(one.ratios[1] for one in found)
        self._use_terms()

    def _choose_nodes(self) -> NDArray[np.intp]:
        """Choose the samples at which the terms are evaluated: all of them where the arm turns fast."""
        turns = np.abs(np.diff(self.samples.q[self.fine], axis=0)).sum(axis=1)
        fast = np.repeat(turns > _TURN, np.diff(self.fine))
        nodes: NDArray[np.intp] = np.union1d(self.fine, np.flatnonzero(fast))
        return nodes

    def still_terms(self) -> dict[str, Array]:
        """Return the largest slopes of the torque at rest; see :meth:`TubeMap.still_terms`."""
        return self._still

    def ratios_near(self, errors: Array, allowance: float) -> tuple[float, float]:
        """Return the range of the eigenvalues of E in the errors for which the terms are bounded."""
        return self._ratios


def enclosed_stops(path: EnclosedMap, tube: Tube, bounds: ErrorBounds, duration: float, brake_time: float) -> StopBound:
    """Bound the errors in all stops of a motion; see :func:`bound_stops`.

    Raises:
        BoundNotAvailable: No tube was found.
    """
    errors = _IN_STOPS * tube.position[path.samples.past :].max(axis=0)
    off, _ = link_errors(path.robot)
    found = None
    for _ in range(_ROUNDS):
        wider = EnclosedMap(path, np.maximum(tube.position, errors))
        stops = bound_stops(PathCells(wider), tube, bounds, duration, brake_time)
        reached = stops.position - off
        if np.all(reached <= errors):
            found = stops
            if np.all(errors <= _LARGER * reached):
                break
            errors = np.minimum(errors, _CLOSE * reached)
        elif found is not None:
            break
        else:
            errors = _LARGER * np.maximum(errors, reached)
    if found is None:
        raise BoundNotAvailable("the tube of the stops grows as long as terms are bounded in a larger one")
    return found
