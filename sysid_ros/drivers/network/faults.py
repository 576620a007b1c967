"""What a bad network does to datagrams, drawn at random but reproducibly; no sockets, no clock."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from sysid_ros.core.errors import ParameterOutOfRange


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
