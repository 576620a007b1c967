"""Steps from a motion whose tracking errors are known to a better one that can be certified.

The errors of a motion are known only once it has been bounded, and a better motion mostly has larger ones. So a search
with about the errors of the known motion tells where to go, and how far follows from the errors there: those of a
motion between two that have been bounded lie about between theirs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.motion_checks import PlanRejected
from sysid_ros.core.planning.candidates import BoundedMotion, Candidates, CertifiedMotion
from sysid_ros.core.planning.margins import Margins
from sysid_ros.core.planning.problem import NoMotion

Array = NDArray[np.float64]

_GROWTH = 0.05
"""By how much the errors are enlarged for the search."""
_BROKEN = 0.05
"""Largest row (share of a torque limit, 0.1 m) with which a motion is still worth going towards."""
_SHARES = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
"""Parts of the way that are looked at, by bisection."""
_LITTLE = 0.2
"""Part of the way that is tried where no part of it seems to have room."""
_UNBOUNDED_SHARE = 0.5
"""Part of the way to a motion that has no bound."""
_TRIES = 3
"""Motions on the way that are bounded at most."""
_GAIN = 0.03
"""Smallest gain of the cost (of the logarithm of the condition number) that is worth a step."""


class Improvement:
    """Steps to better motions.

    Args:
        candidates: Looks for motions, bounds and verifies them.
        margins: What is kept free besides the errors.
    """

    def __init__(self, candidates: Candidates, margins: Margins):
        self._candidates, self._margins = candidates, margins

    def improve(self, best: CertifiedMotion, is_good: Callable[[CertifiedMotion], bool]) -> CertifiedMotion:
        """Steps as long as there is time, the motion is not good enough, and a step is worth it.

        Args:
            best: Where to begin.
            is_good: Whether a motion is good enough.
        """
        for _ in range(self._candidates.model.settings.improvements):
            if is_good(best):
                break
            better = self.beyond(best.motion, _GAIN)
            if better is None:
                break
            gain, best = best.motion.cost - better.motion.cost, better
            if gain < _GAIN:
                break
        return best

    def beyond(self, known: BoundedMotion, gain: float = 0.0) -> CertifiedMotion | None:
        """A better motion than one whose errors are known.

        Args:
            known: That motion.
            gain: By how much the cost has to promise to be lower.
        """
        candidates = self._candidates
        if candidates.must_stop():
            return None
        try:
            problem = candidates.problem(known.measured.grown(_GROWTH), self._margins)
        except NoMotion:
            return None
        found = candidates.search(problem, problem.space.coordinates(known.offset)[None])
        if found.worst > _BROKEN or found.cost > known.cost - gain:
            return None
        offset = problem.space.offsets(found.k)
        wanted = candidates.bound(candidates.trajectory(offset))
        if wanted is None:
            wanted = candidates.bound(candidates.trajectory(_on_the_way(known, offset, _UNBOUNDED_SHARE)))
        return None if wanted is None else self.between(known, wanted)

    def between(self, known: BoundedMotion, wanted: BoundedMotion) -> CertifiedMotion | None:
        """A motion, or the largest part of the way to it that can be certified and is better than where it begins.

        Args:
            known: Where the way begins.
            wanted: Where it ends.
        """
        candidates = self._candidates
        for _ in range(_TRIES):
            if candidates.holds(wanted.offset, wanted.measured, self._margins):
                found = candidates.verify(wanted)
                if not isinstance(found, PlanRejected):
                    return found
            offset = self._room_on_the_way(known, wanted)
            if offset is None:
                return self._a_little(known, wanted)
            closer = candidates.bound(candidates.trajectory(offset))
            if closer is None or closer.cost > known.cost:
                return None
            wanted = closer
        return None

    def _a_little(self, known: BoundedMotion, wanted: BoundedMotion) -> CertifiedMotion | None:
        """A small part of the way: what the samples, which have margins, do not allow is for the verifier to decide."""
        candidates = self._candidates
        motion = candidates.bound(candidates.trajectory(_on_the_way(known, wanted.offset, _LITTLE)))
        if motion is None or motion.cost > known.cost:
            return None
        found = candidates.verify(motion)
        return None if isinstance(found, PlanRejected) else found

    def _room_on_the_way(self, known: BoundedMotion, wanted: BoundedMotion) -> Array | None:
        """End offset (n,) [rad] of the furthest motion on the way that respects the limits with the errors expected."""
        low, high, best = 0, len(_SHARES), None
        while low < high:
            middle = (low + high) // 2
            offset, share = _on_the_way(known, wanted.offset, _SHARES[middle]), _SHARES[middle]
            if self._candidates.holds(offset, known.measured.towards(wanted.measured, share), self._margins):
                low, best = middle + 1, offset
            else:
                high = middle
        return best


def _on_the_way(known: BoundedMotion, offset: Array, share: float) -> Array:
    return known.offset + share * (offset - known.offset)
