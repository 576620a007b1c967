"""Counters of datagrams: what was lost, repeated or out of order, and when the sender started anew."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

_MODULUS = 1 << 32
_RESTART_RUN = 3
"""So many datagrams in a row that count on from a step back mean that the sender has started anew."""
LARGEST_GAP = 10_000
"""A larger step is not believed at once: it can be a corrupted counter."""


class Arrival(Enum):
    """What a datagram is, judged by its counter."""

    NEW = "new"
    OLD = "old"
    RESTART = "restart"


@dataclass(frozen=True)
class SequenceCounts:
    """What was noticed so far.

    Attributes:
        received: Datagrams that were new.
        lost: Counters that were skipped and not seen later.
        gaps: Times that counters were skipped.
        duplicated: Datagrams seen twice.
        late: Datagrams older than one already seen.
        restarts: Times the sender started anew.
    """

    received: int = 0
    lost: int = 0
    gaps: int = 0
    duplicated: int = 0
    late: int = 0
    restarts: int = 0


class SequenceWatch:
    """Judges the counters of one sender, modulo 2^32."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._back: int | None = None
        self._run = 0
        self._received = self._lost = self._gaps = self._duplicated = self._late = self._restarts = 0

    def judge(self, counter: int) -> Arrival:
        """Counts one datagram.

        Returns:
            NEW: use it. OLD: a repeated or late one, use it not. RESTART: use it, and forget the past.
        """
        if self._last is None:
            return self._accept(counter)
        step = (counter - self._last) % _MODULUS
        if step == 0:
            self._duplicated += 1
            return Arrival.OLD
        if step <= LARGEST_GAP:
            self._lost += step - 1
            self._gaps += step > 1
            return self._accept(counter)
        return self._judge_jump(counter)

    @property
    def last(self) -> int:
        """Counter of the newest datagram; 0 before the first."""
        return self._last or 0

    @property
    def counts(self) -> SequenceCounts:
        """What was noticed so far."""
        return SequenceCounts(
            self._received, self._lost, self._gaps, self._duplicated, self._late, self._restarts
        )  # fmt: skip

    def _judge_jump(self, counter: int) -> Arrival:
        is_next = self._back is not None and counter == (self._back + 1) % _MODULUS
        self._run = self._run + 1 if is_next else 1
        self._back = counter
        if self._run < _RESTART_RUN:
            self._late += 1
            self._lost = max(0, self._lost - 1)  # it was counted as lost when it was skipped
            return Arrival.OLD
        self._restarts += 1
        self._accept(counter)
        return Arrival.RESTART

    def _accept(self, counter: int) -> Arrival:
        self._last, self._back, self._run = counter, None, 0
        self._received += 1
        return Arrival.NEW
