"""Which nodes are alive, by the liveliness of the middleware: its own thread asserts it, however busy Python is.

A node that is killed, or stopped by a signal, falls silent at once; one that only computes for long does not.
"""

from __future__ import annotations

import math
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence

from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.event_handler import QoSLivelinessChangedInfo, SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.publisher import Publisher
from std_msgs.msg import Empty

from sysid_ros.ros import qos

TOPIC = "alive"
_LOOK_SECONDS = 0.2
"""Period at which the clock of the machine is checked [s]."""
_SET_BACK = 0.05
"""Smaller steps back of the clock do no harm: waits only last that much longer [s]."""
GRACE = 0.5
"""How long a node may be missing before it counts as gone [s]: a successor of the same name may be starting."""


def announce(node: Node) -> Publisher[Empty]:
    """Let others know that a node is alive, for as long as it is, and return the publisher that does.

    One latched message is enough: every node that discovers this one receives it at once, before any assertion.
    """
    publisher: Publisher[Empty] = node.create_publisher(Empty, f"~/{TOPIC}", qos.ALIVE)
    publisher.publish(Empty())
    return publisher


class Waker:
    """Wake a node up where a signal has come, or the clock of its machine was set back.

    Python runs signal handlers only between two waits of the executor, so the executor would have to poll for them
    all the time.

    Fast DDS as wheels bring it (made for a C library older than 2.30) waits for steady times by the wall clock: a wait
    that had begun before goes on for as long as the clock was set back, and with it the executor and the assertion that
    the node is alive. Any message to send wakes its threads; from then on their waits are right again.

    Args:
        node: The node; made in the main thread.
        alive: Its publisher of :func:`announce`.
    """

    def __init__(self, node: Node, alive: Publisher[Empty]):
        self._node, self._alive = node, alive
        # Ends a wait of the executor, also while a callback of another group awaits something.
        self._turn = node.create_guard_condition(lambda: None, callback_group=ReentrantCallbackGroup())
        self._signals, self._ours = socket.socketpair()
        self._ours.setblocking(False)
        self._before = signal.set_wakeup_fd(self._ours.fileno(), warn_on_full_buffer=False)
        self._is_over = False
        self._thread = threading.Thread(target=self._watch, name="waker", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the watch."""
        self._is_over = True
        signal.set_wakeup_fd(self._before)
        self._ours.close()
        self._thread.join()
        self._signals.close()

    def _watch(self) -> None:
        ahead = time.time() - time.monotonic()
        while not self._is_over:
            if select.select([self._signals], [], [], _LOOK_SECONDS)[0] and self._signals.recv(64):
                self._turn.trigger()
            now = time.time() - time.monotonic()
            if ahead - now > _SET_BACK:
                self._alive.publish(Empty())
                self._turn.trigger()
                text = (
                    f"the clock of this machine was set back by {ahead - now:.1f} s; stamps of messages go back with it"
                )
                self._node.get_logger().warning(text)
            ahead = now


class Peers:
    """Watch over the life of other nodes.

    Args:
        node: The node that watches; its executor must spin.
        names: Names of the others, relative to its namespace.
    """

    def __init__(self, node: Node, names: Sequence[str]):
        self._gone_since: dict[str, float] = dict.fromkeys(names, math.inf)
        for name in names:
            events = SubscriptionEventCallbacks(liveliness=self._note_of(name))
            node.create_subscription(Empty, f"{name}/{TOPIC}", lambda _: None, qos.ALIVE, event_callbacks=events)

    def is_gone(self, name: str) -> bool:
        """Return whether a node was there and is not any more; false where it never said that it is alive."""
        return time.monotonic() - self._gone_since.get(name, math.inf) > GRACE

    def find_gone(self, *names: str, since: float = -math.inf) -> str | None:
        """Return a sentence about a node that has gone since a steady time [s]; None if none has.

        Nodes that went before may be about to come back.
        """
        name = next((name for name in names if self.is_gone(name) and self._gone_since[name] >= since), None)
        if name is None:
            return None
        seconds = time.monotonic() - self._gone_since[name] + qos.ALIVE_LEASE
        return (
            f"the node {name} has gone: no heartbeat for up to {seconds:.1f} s; it was killed, has ended or "
            "stands still. See its log"
        )

    def _note_of(self, name: str) -> Callable[[QoSLivelinessChangedInfo], None]:
        def note(event: QoSLivelinessChangedInfo) -> None:
            is_alive = event.alive_count > 0
            if is_alive:
                self._gone_since[name] = math.inf
            elif math.isinf(self._gone_since[name]):
                self._gone_since[name] = time.monotonic()

        return note
