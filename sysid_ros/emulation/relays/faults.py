"""Faults of datagrams and streams, drawn at random but reproducibly; no sockets, no clock."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import Enum
from typing import NamedTuple

import numpy as np

from sysid_ros.core.common.errors import ParameterOutOfRange, require_ranges


@dataclass(frozen=True)
class NetworkFaults:
    """Rates of faults in each direction; the default is a perfect network.

    Attributes:
        loss: Share of datagrams that are lost [-].
        burst: Mean number of datagrams lost in a row [-]; 1 loses each independently (Gilbert's model beyond).
        duplicate: Share that arrives twice [-].
        reorder: Share that is held back until the next one has passed [-].
        delay: Delay of every datagram [s].
        delay_spread: Further delay, uniform up to this [s]; more than the period reorders too.
        truncate: Share that is cut at a random length [-].
        corrupt: Share with one to four flipped bits [-].
        insert: Share that is followed by a datagram of random bytes [-].
    """

    loss: float = 0.0
    burst: float = 1.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay: float = 0.0
    delay_spread: float = 0.0
    truncate: float = 0.0
    corrupt: float = 0.0
    insert: float = 0.0

    def __post_init__(self) -> None:
        for one in fields(self):
            lower, upper = (1.0, 1e4) if one.name == "burst" else (0.0, 1.0)
            if not lower <= getattr(self, one.name) <= upper:
                raise ParameterOutOfRange(one.name, getattr(self, one.name), f"{lower} to {upper}")
        if self.loss == 1.0 and self.burst > 1.0:
            raise ParameterOutOfRange("burst", self.burst, "1 where everything is lost")


@dataclass(frozen=True)
class Delivery:
    """One datagram on its way.

    Attributes:
        delay: When it arrives, from now [s].
        data: What arrives.
    """

    delay: float
    data: bytes


class FaultyDirection:
    """One direction of a bad network.

    Args:
        faults: The rates.
        seed: Of all random choices.

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
        """What becomes of a datagram (and of the one held back before it)."""
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
        return [Delivery(self._delay(), copy) for copy in copies]

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

    def _delay(self) -> float:
        return self.faults.delay + self.faults.delay_spread * self._rng.random()

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
    that has died. ``SILENCE``: nothing comes any more, as where a cable is pulled; what was sent meanwhile comes when
    the cable is plugged in again.
    """

    NONE = "none"
    FIN = "fin"
    RST = "rst"
    SILENCE = "silence"


_RANGES = {"delay": (0.0, 60.0), "pause": (0.0, 1.0), "gather": (0.0, 60.0), "piece": (0, 1 << 16)}


@dataclass(frozen=True)
class StreamFaults:
    """Faults of one direction; the default is a perfect stream. Bytes are counted from when the faults begin.

    Attributes:
        delay: Delay of every byte [s].
        piece: Largest number of bytes that are passed on together; 0 for as many as come.
        pause: Time between two pieces [s].
        gather: Bytes are held back and passed on together every so often [s]; 0 passes them on as they come.
        corrupt_at: Number of the byte that is changed; None changes none.
        corrupt_with: Its bits that are flipped, 1 to 255.
        cut: How the stream ends.
        cut_at: After how many bytes.
    """

    delay: float = 0.0
    piece: int = 0
    pause: float = 0.0
    gather: float = 0.0
    corrupt_at: int | None = None
    corrupt_with: int = 0xFF
    cut: Cut = Cut.NONE
    cut_at: int = 0

    def __post_init__(self) -> None:
        require_ranges(self, _RANGES)
        if not 1 <= self.corrupt_with <= 0xFF:
            raise ParameterOutOfRange("corrupt_with", self.corrupt_with, "1 to 255")
        if self.cut_at < 0 or (self.corrupt_at or 0) < 0:
            raise ParameterOutOfRange("cut_at and corrupt_at", (self.cut_at, self.corrupt_at), "0 or more")


class Piece(NamedTuple):
    """Bytes on their way.

    Attributes:
        due: When they arrive [s]; infinite where they are held back for good.
        data: What arrives.
    """

    due: float
    data: bytes


class FaultyStream:
    """One direction of a bad connection.

    Args:
        faults: What is wrong with it.

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
        """What becomes of bytes that come now [s], in order."""
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
