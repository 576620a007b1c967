"""Faults of datagrams and streams, drawn at random but reproducibly; no sockets, no clock."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, setting


@dataclass(frozen=True)
class NetworkFaults(Settings, library_only=True):
    """Rates of faults in each direction; the default is a perfect network."""

    loss: float = setting(0.0, "-", lower=0.0, upper=1.0)
    """Share of datagrams that are lost."""
    burst: float = setting(1.0, "-", lower=1.0, upper=1e4)
    """Mean number of datagrams lost in a row; 1 loses each independently (Gilbert's model beyond)."""
    duplicate: float = setting(0.0, "-", lower=0.0, upper=1.0)
    """Share that arrives twice."""
    reorder: float = setting(0.0, "-", lower=0.0, upper=1.0)
    """Share that is held back until the next one has passed."""
    delay: float = setting(0.0, "s", lower=0.0, upper=1.0)
    """Delay of every datagram."""
    delay_spread: float = setting(0.0, "s", lower=0.0, upper=1.0)
    """Further delay, uniform up to this; more than the period reorders too."""
    truncate: float = setting(0.0, "-", lower=0.0, upper=1.0)
    """Share that is cut at a random length."""
    corrupt: float = setting(0.0, "-", lower=0.0, upper=1.0)
    """Share with one to four flipped bits."""
    insert: float = setting(0.0, "-", lower=0.0, upper=1.0)
    """Share that is followed by a datagram of random bytes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss == 1.0 and self.burst > 1.0:
            raise ParameterOutOfRange("burst", self.burst, "1 where everything is lost")


@dataclass(frozen=True)
class Delivery:
    """One datagram on its way: its delay from now [s], and its data."""

    delay: float
    data: bytes


class FaultyDirection:
    """One direction of a bad network.

    Attributes:
        counts: Number of faults by name.
    """

    def __init__(self, faults: NetworkFaults, seed: int):
        self.faults = faults
        self._rng = np.random.default_rng(seed)
        self._is_losing = False
        self._held: bytes | None = None
        self.counts: dict[str, int] = {}

    def pass_on(self, data: bytes) -> list[Delivery]:
        """Return the deliveries of a datagram (and of the one held back before it)."""
        if self._is_lost():
            self._count("lost")
            return []
        data = self._spoil(data)
        held, self._held = self._held, None
        if held is None and self._happens(self.faults.reorder, "reordered"):
            self._held = data
            return []
        copies = [data] if held is None else [data, held]
        if self._happens(self.faults.duplicate, "duplicated"):
            copies.append(data)
        if self._happens(self.faults.insert, "inserted"):
            copies.append(self._rng.bytes(int(self._rng.integers(1, 600))))
        self._count("delivered", len(copies))
        return [Delivery(self.faults.delay + self.faults.delay_spread * self._rng.random(), copy) for copy in copies]

    def _is_lost(self) -> bool:
        faults = self.faults
        if faults.burst == 1.0:
            return self._rng.random() < faults.loss
        leave = 1.0 / faults.burst
        enter = leave * faults.loss / (1.0 - faults.loss)  # makes the long-run share of losses `loss`
        self._is_losing = self._rng.random() >= leave if self._is_losing else self._rng.random() < enter
        return self._is_losing

    def _spoil(self, data: bytes) -> bytes:
        if data and self._happens(self.faults.truncate, "truncated"):
            data = data[: int(self._rng.integers(len(data)))]
        if data and self._happens(self.faults.corrupt, "corrupted"):
            changed = bytearray(data)
            for _ in range(int(self._rng.integers(1, 5))):
                changed[int(self._rng.integers(len(changed)))] ^= 1 << int(self._rng.integers(8))
            data = bytes(changed)
        return data

    def _happens(self, rate: float, name: str) -> bool:
        if rate > 0.0 and self._rng.random() < rate:
            self._count(name)
            return True
        return False

    def _count(self, name: str, number: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + number


class Cut(Enum):
    """How a stream ends.

    ``NONE``: not at all. ``FIN``: it is closed, as by an end that leaves in order. ``RST``: it is reset, as by an end
    that has died. ``SILENCE``: nothing comes any more, as where a cable is pulled; bytes sent meanwhile come when
    the cable is plugged in again.
    """

    NONE = "none"
    FIN = "fin"
    RST = "rst"
    SILENCE = "silence"


@dataclass(frozen=True)
class StreamFaults(Settings, library_only=True):
    """Faults of one direction; the default is a perfect stream. Bytes count from the start of the faults."""

    delay: float = setting(0.0, "s", lower=0.0, upper=60.0)
    """Delay of every byte."""
    piece: int = setting(0, "-", lower=0, upper=1 << 16)
    """Largest number of bytes that are passed on together; 0 for as many as come."""
    pause: float = setting(0.0, "s", lower=0.0, upper=1.0)
    """Time between two pieces."""
    gather: float = setting(0.0, "s", lower=0.0, upper=60.0)
    """Bytes are held back and passed on together every so often; 0 passes them on as they come."""
    corrupt_at: int | None = setting(None, "-", lower=0)
    """Number of the byte that is changed; None changes none."""
    corrupt_with: int = setting(0xFF, "-", lower=1, upper=0xFF)
    """Its bits that are flipped."""
    cut: Cut = setting(Cut.NONE)
    """How the stream ends."""
    cut_at: int = setting(0, "-", lower=0)
    """After how many bytes."""


class Piece(NamedTuple):
    """Bytes on their way: the time they are due [s], infinite where they are held back for good, and the data."""

    due: float
    data: bytes


class FaultyStream:
    """One direction of a bad connection.

    Attributes:
        passed: Number of bytes that were taken.
    """

    def __init__(self, faults: StreamFaults):
        self.faults = faults
        self.passed = 0
        self._last_due = -math.inf

    @property
    def is_cut(self) -> bool:
        """Whether the end has been reached: nothing after it arrives."""
        return self.faults.cut is not Cut.NONE and self.passed >= self.faults.cut_at

    def pass_on(self, data: bytes, now: float) -> list[Piece]:
        """Return the deliveries of bytes that come now [s], in order."""
        faults, start = self.faults, self.passed
        self.passed += len(data)
        data = self._spoil(data, start)
        held = b""
        if faults.cut is not Cut.NONE and self.passed > faults.cut_at:
            keep = max(0, faults.cut_at - start)
            data, held = data[:keep], data[keep:]
        size = faults.piece or max(1, len(data))
        pieces = [Piece(self._due(now), data[k : k + size]) for k in range(0, len(data), size)]
        if held and faults.cut is Cut.SILENCE:
            pieces.append(Piece(math.inf, held))
        return pieces

    def _spoil(self, data: bytes, start: int) -> bytes:
        place = -1 if self.faults.corrupt_at is None else self.faults.corrupt_at - start
        if not 0 <= place < len(data):
            return data
        return data[:place] + bytes([data[place] ^ self.faults.corrupt_with]) + data[place + 1 :]

    def _due(self, now: float) -> float:
        faults = self.faults
        due = max(now + faults.delay, self._last_due + faults.pause)
        if faults.gather:
            due = math.ceil(due / faults.gather) * faults.gather
        self._last_due = due
        return due
