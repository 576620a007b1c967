"""Relays of UDP datagrams and TCP connections that inject faults; both ends see ordinary sockets."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import select
import socket
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from typing import TypeVar

from sysid_ros.drivers.network import Address
from sysid_ros.emulators.relays.faults import Cut, FaultyDirection, FaultyStream, NetworkFaults, Piece, StreamFaults

R = TypeVar("R", bound="RelayThread")

_CHUNK = 65536
LONGEST_SLEEP = 0.02
"""How long a relay waits at most for something to do [s]."""


class RelayThread(ABC):
    """Relays in a thread of its own between :meth:`start` and :meth:`stop`."""

    def __init__(self, name: str):
        self._name = name
        self._is_running = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to relay."""
        self._is_running.set()
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the sockets."""
        self._is_running.clear()
        if self._thread is not None:
            self._thread.join()
        self._close()

    def __enter__(self: R) -> R:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _run(self) -> None:
        while self._is_running.is_set():
            self._relay_once()

    @abstractmethod
    def _relay_once(self) -> None:
        """Wait a little while for data, and relay them."""

    @abstractmethod
    def _close(self) -> None:
        """Close the sockets."""


class FaultyRelay(RelayThread):
    """Relays datagrams between a client and its senders, with faults in both directions, to be changed at any time."""

    def __init__(self, client: Address, faults: NetworkFaults | None = None, seed: int = 0):
        super().__init__("faulty_relay")
        self._client = client
        self._server: Address | None = None
        self._front, self._back = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        self._front.bind(("127.0.0.1", 0))
        self._back.bind(("127.0.0.1", 0))
        self._seed = itertools.count(seed)
        self._queue: list[tuple[float, int, bool, bytes]] = []
        self._order = itertools.count()
        self.change(faults or NetworkFaults())

    @property
    def address(self) -> Address:
        """Destination for the server."""
        return self._front.getsockname()

    def change(self, faults: NetworkFaults) -> None:
        """Change the faults from now on."""
        self._directions = FaultyDirection(faults, next(self._seed)), FaultyDirection(faults, next(self._seed))

    def counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the number of faults by name since the last change: from server to client, and back."""
        to_client, to_server = self._directions
        return dict(to_client.counts), dict(to_server.counts)

    def _close(self) -> None:
        self._front.close()
        self._back.close()

    def _relay_once(self) -> None:
        now = time.monotonic()
        wait = min(LONGEST_SLEEP, max(0.0, self._queue[0][0] - now)) if self._queue else LONGEST_SLEEP
        ready, _, _ = select.select([self._front, self._back], [], [], wait)
        for one in ready:
            self._take(one)
        while self._queue and self._queue[0][0] <= time.monotonic():
            _, _, is_to_client, data = heapq.heappop(self._queue)
            target = self._client if is_to_client else self._server
            with contextlib.suppress(OSError):  # that end has closed its socket; datagrams to it are lost
                if target is not None:
                    (self._back if is_to_client else self._front).sendto(data, target)

    def _take(self, one: socket.socket) -> None:
        try:
            data, sender = one.recvfrom(_CHUNK)
        except OSError:
            return
        is_to_client = one is self._front
        if is_to_client:
            self._server = sender
        direction = self._directions[0 if is_to_client else 1]
        now = time.monotonic()
        for delivery in direction.pass_on(data):
            heapq.heappush(self._queue, (now + delivery.delay, next(self._order), is_to_client, delivery.data))


_SEND_TIMEOUT = 1.0
_PERFECT = StreamFaults()
_RESET = struct.pack("ii", 1, 0)
"""Linger for no time: closing resets the connection."""


class _Direction:
    """One direction of a connection: bytes from ``source`` go to ``target`` as its stream determines."""

    def __init__(self, source: socket.socket, target: socket.socket, faults: StreamFaults):
        self.source, self.target, self.stream = source, target, FaultyStream(faults)
        self._queue: deque[Piece] = deque()
        self.has_ended = self._is_closed = False

    def change(self, faults: StreamFaults) -> None:
        """Set other faults from now on; held-back bytes go on, as retransmissions do."""
        self.stream = FaultyStream(faults)
        self._queue = deque(Piece(min(one.due, time.monotonic()), one.data) for one in self._queue)

    def take(self) -> None:
        data = self.source.recv(_CHUNK)
        if not data:
            self.has_ended = True
        self._queue.extend(self.stream.pass_on(data, time.monotonic()))

    def deliver(self) -> bool:
        """Pass on due pieces in one go, and the end of the stream after the last; return whether that is all."""
        now, due = time.monotonic(), []
        while self._queue and self._queue[0].due <= now:
            due.append(self._queue.popleft().data)
            if self.stream.faults.piece:
                break  # pieces are not put together again
        if due:
            self.target.sendall(b"".join(due))
        if self.has_ended and not self._queue and not self._is_closed:
            self._is_closed = True
            self.target.shutdown(socket.SHUT_WR)
        return self._is_closed

    @property
    def next_due(self) -> float:
        return self._queue[0].due if self._queue else float("inf")

    @property
    def is_cut(self) -> bool:
        held = self._queue and self._queue[0].due < float("inf")
        return self.stream.is_cut and not held


class _Connection:
    def __init__(self, client: socket.socket, server: socket.socket, faults: tuple[StreamFaults, StreamFaults]):
        self.client, self.server = client, server
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.settimeout(_SEND_TIMEOUT)
        self.directions = _Direction(client, server, faults[0]), _Direction(server, client, faults[1])
        self._is_ending = False

    def sources(self) -> list[socket.socket]:
        return [one.source for one in self.directions if not one.has_ended]

    def serve(self, ready: list[socket.socket]) -> bool:
        """Goes on; returns whether the connection still stands."""
        try:
            return self._serve(ready)
        except OSError:
            self.end(Cut.RST)
            return False

    def _serve(self, ready: list[socket.socket]) -> bool:
        for one in self.directions:
            if one.source in ready:
                if self._is_ending:  # closed from here already: further bytes are dropped
                    one.has_ended = not one.source.recv(_CHUNK)
                else:
                    one.take()
        if self._is_ending:
            if all(one.has_ended for one in self.directions):
                self.end(Cut.NONE)
                return False
            return True
        is_over = [one.deliver() for one in self.directions]
        cuts = [one.stream.faults.cut for one in self.directions if one.is_cut]
        if Cut.RST in cuts:
            self.end(Cut.RST)
            return False
        if Cut.FIN in cuts:
            self._is_ending = True
            for end in (self.client, self.server):
                end.shutdown(socket.SHUT_WR)
        if all(is_over):
            self.end(Cut.NONE)
        return not all(is_over)

    def end(self, how: Cut) -> None:
        for one in (self.client, self.server):
            with contextlib.suppress(OSError):
                if how is Cut.RST:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                one.close()


class TcpRelay(RelayThread):
    """Relays TCP connections to a server, with faults in both directions."""

    def __init__(self, server: Address, to_server: StreamFaults = _PERFECT, to_client: StreamFaults = _PERFECT):
        super().__init__("tcp_relay")
        self._server, self._faults = server, (to_server, to_client)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[_Connection] = []
        self._lock = threading.Lock()

    @property
    def address(self) -> Address:
        """Destination for the client."""
        return self._listener.getsockname()

    def change(self, to_server: StreamFaults = _PERFECT, to_client: StreamFaults = _PERFECT) -> None:
        """Change the faults from now on, of existing and new connections."""
        with self._lock:
            self._faults = to_server, to_client
            for connection in self._connections:
                for direction, faults in zip(connection.directions, self._faults, strict=True):
                    direction.change(faults)

    def passed(self) -> tuple[int, int]:
        """Bytes since the last change that have come from the client and from the server of the latest connection."""
        with self._lock:
            if not self._connections:
                return 0, 0
            to_server, to_client = self._connections[-1].directions
            return to_server.stream.passed, to_client.stream.passed

    def _close(self) -> None:
        for connection in self._connections:
            connection.end(Cut.RST)
        self._listener.close()

    def _relay_once(self) -> None:
        with self._lock:
            sockets = [self._listener, *(s for one in self._connections for s in one.sources())]
            due = min((d.next_due for one in self._connections for d in one.directions), default=float("inf"))
        wait = min(LONGEST_SLEEP, max(0.0, due - time.monotonic()))
        ready, _, _ = select.select(sockets, [], [], wait)
        with self._lock:
            if self._listener in ready:
                self._accept()
            self._connections = [one for one in self._connections if one.serve(ready)]

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self._server, _SEND_TIMEOUT)
        except OSError:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            client.close()
            return
        self._connections.append(_Connection(client, server, self._faults))
