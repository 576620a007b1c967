"""What a bad network, or a bad end, does to a stream of bytes; no sockets, no clock."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from sysid_ros.core.errors import ParameterOutOfRange, require_ranges


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
