"""Bounding and verifying candidates, with the time it takes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from sysid_ros.core.planning.base import Trajectory
from sysid_ros.core.planning.motion_checks import TrackingErrors

if TYPE_CHECKING:
    from sysid_ros.core.planning.verifier.verify import Verification

Bound = Callable[[Trajectory], TrackingErrors]
Verify = Callable[[Trajectory, TrackingErrors], "Verification"]

_REMEMBERED = 20
_RESERVE = 1.2
"""A call is expected to take at most this much longer than the longest of the last ones."""


class CallTimes:
    """How long calls have taken lately, kept from plan to plan.

    Args:
        expected: What a call is expected to take before the first [s].
    """

    def __init__(self, expected: float):
        self._expected = expected
        self._recent: deque[float] = deque(maxlen=_REMEMBERED)

    @property
    def expected(self) -> float:
        """What the next call may take [s]."""
        return _RESERVE * max(self._recent) if self._recent else self._expected

    def doubt(self) -> None:
        """Halves what is expected: it has kept a call from being made, and so from being measured.

        Without this a single slow call, on a machine that was busy for a moment, would keep every later plan from
        being tried.
        """
        self._recent = deque((0.5 * seconds for seconds in self._recent), self._recent.maxlen)
        self._expected *= 0.5

    def note(self, seconds: float) -> None:
        """Notes what a call took [s]."""
        self._recent.append(seconds)


class Certifier:
    """Calls ``bound`` and ``verify`` and keeps their times.

    Args:
        bound: Gives the tracking errors of a motion.
        verify: Proves a motion safe with these errors.
        bound_times: Times of earlier calls of ``bound``.
        verify_times: Times of earlier calls of ``verify``.
    """

    def __init__(self, bound: Bound, verify: Verify, bound_times: CallTimes, verify_times: CallTimes):
        self._bound, self._verify = bound, verify
        self._times = {"bound": bound_times, "verify": verify_times}
        self.seconds = {"bound": 0.0, "verify": 0.0}
        self.calls = {"bound": 0, "verify": 0}

    @property
    def expected(self) -> float:
        """What bounding and verifying one candidate may take [s]."""
        return sum(times.expected for times in self._times.values())

    @property
    def expected_verify(self) -> float:
        """What verifying one candidate may take [s]."""
        return self._times["verify"].expected

    def doubt(self) -> None:
        """Notes that what calls are expected to take has kept all of them from being made."""
        for times in self._times.values():
            times.doubt()

    def bound(self, trajectory: Trajectory) -> TrackingErrors:
        """The tracking errors of a motion."""
        return self._timed("bound", lambda: self._bound(trajectory))

    def verify(self, trajectory: Trajectory, errors: TrackingErrors) -> Verification:
        """Proof that a motion is safe."""
        return self._timed("verify", lambda: self._verify(trajectory, errors))

    def _timed(self, name: str, call: Callable[[], object]):  # noqa: ANN202  # as the call
        begin = time.monotonic()
        try:
            return call()
        finally:
            seconds = time.monotonic() - begin
            self._times[name].note(seconds)
            self.seconds[name] += seconds
            self.calls[name] += 1
