"""The thread in which a relay runs."""

from __future__ import annotations

import heapq
import itertools
import select
import socket
import threading
import time
from abc import ABC, abstractmethod
from typing import TypeVar

from sysid_ros.drivers.network.udp import Address
from sysid_ros.emulation.relays.faults import FaultyDirection, NetworkFaults

R = TypeVar("R", bound="RelayThread")

LONGEST_SLEEP = 0.02
"""How long a relay waits at most for something to do [s]."""


class RelayThread(ABC):
    """Relays in a thread of its own between :meth:`start` and :meth:`stop`.

    Args:
        name: Of the thread.
    """

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
        """Ends the thread and closes the sockets."""
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
        """Waits a little while for something to do, and does it."""

    @abstractmethod
    def _close(self) -> None:
        """Closes the sockets."""


_LARGEST = 65536


class FaultyRelay(RelayThread):
    """Relays datagrams between a client and whoever sends to it.

    Args:
        client: Address of the client.
        faults: What happens to datagrams in both directions; may be changed at any time with :meth:`change`.
        seed: Of all random choices.
    """

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
        """Where the server has to send."""
        return self._front.getsockname()

    def change(self, faults: NetworkFaults) -> None:
        """Changes what happens from now on."""
        self._directions = FaultyDirection(faults, next(self._seed)), FaultyDirection(faults, next(self._seed))

    def counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """Number of faults by name since the last change: from server to client, and back."""
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
        self._deliver()

    def _take(self, one: socket.socket) -> None:
        try:
            data, sender = one.recvfrom(_LARGEST)
        except OSError:
            return
        is_to_client = one is self._front
        if is_to_client:
            self._server = sender
        direction = self._directions[0 if is_to_client else 1]
        now = time.monotonic()
        for delivery in direction.pass_on(data):
            heapq.heappush(self._queue, (now + delivery.delay, next(self._order), is_to_client, delivery.data))

    def _deliver(self) -> None:
        while self._queue and self._queue[0][0] <= time.monotonic():
            _, _, is_to_client, data = heapq.heappop(self._queue)
            target = self._client if is_to_client else self._server
            one = self._back if is_to_client else self._front
            if target is not None:
                try:
                    one.sendto(data, target)
                except OSError:
                    continue  # that end has closed its socket; datagrams to it are lost
