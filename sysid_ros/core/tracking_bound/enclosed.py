"""The tube map, and bounds of stops, with proven terms of the model in place of estimates and their allowance.

Terms are bounded in given position errors (:mod:`term_growth`). So a tube is found with estimated ones first, then the
terms are bounded in a slightly larger one, which must contain the tube that is invariant with them; otherwise the same
again.
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

_TURN, _SAG = 0.07, 0.001
"""Largest turn of all joints together between two nodes, and distance of their positions from a straight line [rad]."""
_SHARE, _SPEED = 0.005, 0.3
"""That of their velocities, as a share of the largest speed or of at least this [rad/s]."""
_LARGE_SHARE, _ACCELERATION = 0.02, 0.3
"""Likewise of their accelerations [rad/s^2]."""
_ROUNDS = 5
"""Largest number of times that terms are bounded."""
_IN_STOPS = 1.3
"""Size of the errors in stops in which they are bounded first, relative to those on the path."""
_LARGER, _CLOSE = 1.1, 1.03
"""Size of the errors next, relative to the found ones: where these are larger than assumed, or much smaller."""


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
        if isinstance(estimated, EnclosedMap):
            self._enclosure: Enclosure = estimated._enclosure
        else:
            self._nodes = self._choose_nodes()
            self._enclosure = Enclosure(self, self._nodes)
        # Of measured positions; held values are from a moment before, in this interval or the one before it.
        errors = errors + self.sensor_errors[1]
        found = self._enclosure.bound(np.maximum.reduceat(errors, self._nodes[:-1], axis=0))
        starts = np.searchsorted(self.samples.step * self._nodes, self.terms.times[:-1] - 1e-9)

        def joined(values: dict[str, Array]) -> dict[str, Array]:  # between the nodes of the slowly varying terms
            late = ((name, np.maximum(one, np.concatenate([one[:1], one[:-1]]))) for name, one in values.items())
            return {name: np.maximum.reduceat(one, starts) for name, one in late}

        moving = joined(found.moving)
        self.turned = moving.pop("turned")[self.spread]
        self.terms = replace(self.terms, largest=replace(self.terms.largest, **moving))
        self._still, self._ratios = joined(found.still), found.ratios
        self._use_terms()

    def _choose_nodes(self) -> NDArray[np.intp]:
        """Choose the nodes: the ones of the slowly varying terms, and as many between as the motion takes."""
        speed, acceleration, jerk, snap = (rate.sum(axis=1) for rate in self.samples.rates.orders)
        fastest, hardest = max(float(speed.max()), _SPEED), max(float(acceleration.max()), _ACCELERATION)
        sags = acceleration / _SAG, jerk / (_SHARE * fastest), snap / (_LARGE_SHARE * hardest)
        density = np.max([speed / _TURN, *(np.sqrt(sag / 8.0) for sag in sags)], axis=0)
        passed = np.concatenate([[0.0], np.cumsum(np.clip(self.samples.step * density, 1e-6, 1.0))])
        given = np.rint(self.terms.times / self.samples.step).astype(np.intp)
        parts = np.ceil(np.diff(passed[given]) - 1e-9).astype(int)
        wanted = [np.linspace(*x) for x in zip(passed[given[:-1]], passed[given[1:]], parts + 1, strict=True)]
        nodes: NDArray[np.intp] = np.union1d(given, np.searchsorted(passed, np.concatenate(wanted) - 1e-9))
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
