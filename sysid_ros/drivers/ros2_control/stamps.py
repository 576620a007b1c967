"""What the stamps of a stream of states say: which are new, which came twice or late, how many are missing."""

from __future__ import annotations

from collections import deque
from enum import Enum

import numpy as np

from sysid_ros.drivers.arm import Array

_CLOCK_STEP_NS = 1_000_000_000
"""A stamp that is older than the latest by more than this is of a clock that was set back, not a late one."""
_BELIEVED = 3
"""So many stamps of a clock that was set back are needed to believe it."""
_WATCHED_SECONDS = 1.0


class Arrival(Enum):
    """What a stamp is: ``NEW``, ``REPEATED``, ``LATE`` (older than the latest), or the first of a clock set back."""

    NEW = "new"
    REPEATED = "repeated"
    LATE = "late"
    RESTART = "restart"


class StampWatch:
    """Judges one stamp after the other.

    Args:
        period: Nominal time between two [s].

    Attributes:
        counts: How many of each kind, and how many states are missing in gaps.
        missed: States missing just before the latest new one [-].
        gap: Time between the two latest new ones [s].
    """

    def __init__(self, period: float):
        self._period_ns = round(period * 1e9)
        self._latest: int | None = None
        self._older: list[int] = []
        self._gaps: deque[int] = deque(maxlen=max(20, round(_WATCHED_SECONDS / period)))
        self.counts = {**{kind.value: 0 for kind in Arrival}, "missing": 0, "gaps": 0}
        self.missed, self.gap = 0, period

    def judge(self, stamp_ns: int) -> Arrival:
        """What a stamp [ns] is."""
        arrival = self._judge(stamp_ns)
        self.counts[arrival.value] += 1
        if arrival in (Arrival.NEW, Arrival.RESTART):
            self._take(stamp_ns, arrival is Arrival.RESTART)
        return arrival

    @property
    def missing_share(self) -> float:
        """Share of the states of the last second that are missing [-]."""
        missing = sum(self._gaps)
        return missing / (missing + len(self._gaps)) if self._gaps else 0.0

    def _judge(self, stamp_ns: int) -> Arrival:
        latest = self._latest
        if latest is None or stamp_ns > latest:
            return Arrival.NEW
        if stamp_ns == latest:
            return Arrival.REPEATED
        if latest - stamp_ns < _CLOCK_STEP_NS:
            return Arrival.LATE
        if not self._older or stamp_ns > self._older[-1]:
            self._older.append(stamp_ns)
        return Arrival.RESTART if len(self._older) >= _BELIEVED else Arrival.LATE

    def _take(self, stamp_ns: int, is_restart: bool) -> None:
        self._older.clear()
        step = self._period_ns if self._latest is None or is_restart else stamp_ns - self._latest
        self._latest = stamp_ns
        self.gap = step * 1e-9
        self.missed = max(0, round(step / self._period_ns) - 1)
        self.counts["missing"] += self.missed
        self.counts["gaps"] += self.missed > 0
        self._gaps.append(self.missed)


def mean_period(stamps_ns: list[int]) -> float:
    """Mean time between consecutive stamps [s], those that are missing left out: the median is of whole periods.

    Args:
        stamps_ns: At least two increasing stamps [ns].
    """
    steps: Array = np.diff(np.array(stamps_ns, dtype=np.int64)) * 1e-9
    median = float(np.median(steps))
    return float(steps[steps < 1.5 * median].mean())
