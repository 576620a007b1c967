"""Cyclic UDP: one socket with deadlines, sequence counters, and arrival times."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from sysid_ros.core.common.errors import SysidError
from sysid_ros.drivers.arm import ArmError

_MODULUS = 1 << 32
_RESTART_RUN = 3
"""So many datagrams in a row that count on from a step back mean that the sender has started anew."""
LARGEST_GAP = 10_000
"""A larger step is not accepted at once: it can be a corrupted counter."""


class Arrival(Enum):
    """Judgement of a datagram by its counter."""

    NEW = "new"
    OLD = "old"
    RESTART = "restart"


@dataclass
class SequenceCounts:
    """Counts so far."""

    received: int = 0
    """Datagrams that were new."""
    lost: int = 0
    """Counters that were skipped and not seen later."""
    gaps: int = 0
    """Times that counters were skipped."""
    duplicated: int = 0
    """Datagrams seen twice."""
    late: int = 0
    """Datagrams older than one already seen."""
    restarts: int = 0
    """Times the sender started anew."""


class SequenceMonitor:
    """Judges the counters of one sender, modulo 2^32, with its ``counts`` so far."""

    def __init__(self) -> None:
        self.counts = SequenceCounts()
        self._last: int | None = None
        self._back: int | None = None
        self._run = 0

    def judge(self, counter: int) -> Arrival:
        """Count a datagram. NEW: use it. OLD: repeated or late, do not use it. RESTART: use it and discard the past."""
        if self._last is None:
            return self._accept(counter)
        step = (counter - self._last) % _MODULUS
        if step == 0:
            self.counts.duplicated += 1
            return Arrival.OLD
        if step <= LARGEST_GAP:
            self.counts.lost += step - 1
            self.counts.gaps += step > 1
            return self._accept(counter)
        return self._judge_jump(counter)

    @property
    def last(self) -> int:
        """Counter of the newest datagram; 0 before the first."""
        return self._last or 0

    def _judge_jump(self, counter: int) -> Arrival:
        is_next = self._back is not None and counter == (self._back + 1) % _MODULUS
        self._run = self._run + 1 if is_next else 1
        self._back = counter
        if self._run < _RESTART_RUN:
            self.counts.late += 1
            self.counts.lost = max(0, self.counts.lost - 1)  # it was counted as lost when it was skipped
            return Arrival.OLD
        self.counts.restarts += 1
        self._accept(counter)
        return Arrival.RESTART

    def _accept(self, counter: int) -> Arrival:
        self._last, self._back, self._run = counter, None, 0
        self.counts.received += 1
        return Arrival.NEW


_LATE = 0.5
"""Part of a period by which a datagram may be late before it is counted."""


class ArrivalMonitor:
    """Counts datagrams that come more than half a period ``late``; ``latest`` and ``longest`` time between two [s]."""

    def __init__(self) -> None:
        self.late = 0
        self.longest = self.latest = 0.0
        self._last, self._is_first = time.monotonic(), True

    def note(self, period: float) -> None:
        """Record the arrival of a datagram; ``period`` [s] is the sender's."""
        now = time.monotonic()
        if not self._is_first:
            self.latest = now - self._last
            self.longest = max(self.longest, self.latest)
            self.late += self.latest > (1.0 + _LATE) * period
        self._last, self._is_first = now, False

    @property
    def age(self) -> float:
        """Time since the last datagram, or since the start [s]."""
        return time.monotonic() - self._last


_LARGEST = 2048
"""More than any datagram of the supported arms [bytes]; longer ones are cut and then refused by their decoder."""
_MOST_QUEUED = 1000
_BUFFER = 1 << 20
_FREE_PORTS = (61_000, 65_500)
"""Range of free ports: above the ports that Linux chooses itself (to 60999) and the ports of ROS 2 domains."""

Address = tuple[str, int]


class InvalidFrame(SysidError):
    """Bytes that are no message of the protocol; with the fault and their number."""

    def __init__(self, reason: str, size: int):
        self.reason = reason
        self.size = size
        super().__init__(f"{size} bytes refused: {reason}")


def unavailable_socket(address: Address, reason: str) -> ArmError:
    """Return the error of a local port that cannot be opened."""
    return ArmError(f"UDP port {address[0]}:{address[1]} cannot be opened ({reason}); does another driver run?")


class UdpEndpoint:
    """A bound UDP socket.

    Args:
        host: Local address; None for all interfaces.
        port: Local port; 0 for any.
        peer_host: Datagrams of other hosts are ignored; None accepts all hosts.
        peer: Destination of :meth:`send` before the first message.
        is_from_peer: Returns whether a datagram comes from the peer. The sender of the first such one is the peer, by
            address and port, until :meth:`forget_peer`: others are ignored, and nothing is sent before. None makes the
            last sender the peer.

    Attributes:
        peer: Destination of :meth:`send`; None without a peer.
        first_ignored: Sender of the first of the ``ignored`` datagrams; None before.

    Raises:
        ArmError: The port is in use or forbidden, or a host is unknown.
    """

    def __init__(
        self,
        host: str | None = None,
        port: int = 0,
        peer_host: str | None = None,
        peer: Address | None = None,
        is_from_peer: Callable[[bytes], bool] | None = None,
    ):
        self._peer_host: str | None = None
        self._is_from_peer = is_from_peer
        self.peer = peer
        self.ignored = 0
        self.first_ignored: Address | None = None
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._peer_host = None if peer_host is None else socket.gethostbyname(peer_host)
            if peer is not None:
                self.peer = socket.gethostbyname(peer[0]), peer[1]
            self._socket.bind((host or "", port))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        except OSError as error:
            self._socket.close()
            raise unavailable_socket((host or "0.0.0.0", port), str(error)) from None
        self._socket.setblocking(False)

    @property
    def address(self) -> Address:
        """Local address and port."""
        return self._socket.getsockname()

    def receive(self, timeout: float) -> bytes | None:
        """Return the next datagram in the order of arrival, after at most a timeout [s]; None if none came in time."""
        deadline = time.monotonic() + timeout
        while True:
            datagram = self._take()
            if datagram is not None:
                return datagram
            remaining = deadline - time.monotonic()
            if remaining <= 0.0 or not select.select([self._socket], [], [], remaining)[0]:
                return None

    def receive_all(self) -> list[bytes]:
        """Return all datagrams that have arrived, oldest first; does not wait."""
        datagrams: list[bytes] = []
        while len(datagrams) < _MOST_QUEUED and (datagram := self._take()) is not None:
            datagrams.append(datagram)
        return datagrams

    def send(self, datagram: bytes) -> bool:
        """Send to the peer; return whether the system accepted it: a full buffer loses it, as a network may."""
        if self.peer is None:
            return False
        try:
            self._socket.sendto(datagram, self.peer)
        except OSError:
            return False
        return True

    def forget_peer(self) -> None:
        """Accept a new peer: the present one may have restarted."""
        self.peer = None

    def close(self) -> None:
        """Close the socket."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def _take(self) -> bytes | None:
        for _ in range(_MOST_QUEUED):
            try:
                datagram, sender = self._socket.recvfrom(_LARGEST)
            except BlockingIOError:
                return None
            except ConnectionError:
                continue  # the peer's port was closed when we sent; it may be opened again
            except OSError:
                return None
            if self._peer_host is not None and sender[0] != self._peer_host:
                self._ignore(sender)
                continue
            if self._is_from_peer is None:
                self.peer = sender
            elif self.peer is None:
                self.peer = sender if self._is_from_peer(datagram) else None
            elif sender != self.peer:
                self._ignore(sender)
                continue
            return datagram
        return None

    def _ignore(self, sender: Address) -> None:
        self.ignored += 1
        self.first_ignored = self.first_ignored or sender


def free_port() -> int:
    """Find an unused UDP and TCP port on loopback that neither Linux nor ROS 2 hands out itself."""
    while True:
        port = random.randrange(*_FREE_PORTS)
        with contextlib.suppress(OSError):
            for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
                with socket.socket(socket.AF_INET, kind) as one:
                    one.bind(("127.0.0.1", port))
            return port
