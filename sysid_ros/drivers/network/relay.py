"""A relay between the two ends of a UDP connection that makes the network between them bad, for tests and benchmarks.

The server (the controller) sends to the relay instead of the client; the relay sends on to the client and takes its
answers back. Both ends see ordinary sockets.
"""

from __future__ import annotations

import heapq
import itertools
import select
import socket
import time

from sysid_ros.drivers.network.faults import FaultyDirection, NetworkFaults
from sysid_ros.drivers.network.relay_thread import LONGEST_SLEEP, RelayThread
from sysid_ros.drivers.network.udp import Address

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
