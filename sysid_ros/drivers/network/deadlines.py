"""How regularly the datagrams of a cyclic sender arrive."""

from __future__ import annotations

import time

_LATE = 0.5
"""Part of a period by which a datagram may be late before it is counted."""


class ArrivalWatch:
    """Times of arrival against the period of the sender.

    Attributes:
        late: Datagrams that came more than half a period late.
        longest: Longest time between two [s].
        latest: Time between the latest two [s].
    """

    def __init__(self) -> None:
        self.late = 0
        self.longest = self.latest = 0.0
        self._last = time.monotonic()
        self._is_first = True

    def note(self, period: float) -> None:
        """Notes the arrival of a datagram; ``period`` [s] is what the sender says."""
        now = time.monotonic()
        if not self._is_first:
            self.latest = now - self._last
            self.longest = max(self.longest, self.latest)
            self.late += self.latest > (1.0 + _LATE) * period
        self._last, self._is_first = now, False

    @property
    def silence(self) -> float:
        """Time since the last datagram, or since the start [s]."""
        return time.monotonic() - self._last
