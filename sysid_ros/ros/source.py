"""A topic that one publisher may speak on: what another one says is refused, and the other one named."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from rclpy.node import Node

SILENCE = 1.0
"""A source that has said nothing for longer may be replaced where a new beginning is announced [s]."""
MEMORY = 2.0
"""How long others that were refused are spoken of after their last word [s]."""
LOOK_AGAIN = 0.05
"""How soon the graph is asked again for somebody who was refused [s]: a storm is not to keep a node busy."""

Gid = bytes


class SingleSource:
    """Bind a topic to one publisher.

    The first publisher that speaks is the source, if there is no other at that time. It stays so until it ends, or
    falls silent and a new beginning is announced (:meth:`release_if_silent`). Names of nodes prove nothing: publishers
    are told apart by the identity that the middleware gives each of them.

    Args:
        node: The node that subscribes.
        topic: Topic, as subscribed.
        clock: Steady time [s].

    Attributes:
        bound: Identity of the source; None while there is none.
        refused: Messages that were refused so far.
    """

    def __init__(self, node: Node, topic: str, clock: Callable[[], float] = time.monotonic):
        self._node, self._topic, self._clock = node, topic, clock
        self.bound: Gid | None = None
        self.refused = 0
        self._name = ""
        self._spoke = 0.0
        self._looked = -math.inf
        self._retired: set[Gid] = set()
        self._others: dict[Gid, tuple[str, float]] = {}  # those refused: name, when they spoke last

    def admits(self, info: Mapping[str, object]) -> bool:
        """Return whether a message comes from the source; binds to its publisher where there is none yet.

        Args:
            info: What rclpy tells beside a message, to a callback with two arguments.
        """
        now, gid = self._clock(), _gid_of(info)
        if gid is not None and gid == self.bound:
            self._spoke = now
            return True
        if gid in self._others and now - self._looked < LOOK_AGAIN:
            return self._refuse(gid, self._others[gid][0], now)
        present, self._looked = self._present(), now
        if gid is None:  # rclpy of older distributions does not say: only a topic with one publisher is certain
            gid = next(iter(present)) if len(present) == 1 else b""
        self._retired &= set(present)
        if self.bound is not None and self.bound not in present and self.bound != gid:
            self.bound = None  # it has ended
        if gid and self.bound is None and not set(present) - self._retired - {gid}:
            self.bound, self._name = gid, present.get(gid, "a node that is not known yet")
            self._others.pop(gid, None)
            self._retired.discard(gid)
        if gid == self.bound:
            self._spoke = now
            return True
        return self._refuse(gid, present.get(gid, "a publisher that is not known"), now)

    def release_if_silent(self) -> None:
        """Let another publisher become the source if this one has fallen silent: something new begins."""
        if self.bound is not None and self._clock() - self._spoke > SILENCE:
            self._retired.add(self.bound)
            self.bound = None
            self._others.clear()  # they were refused for its sake

    @property
    def fault(self) -> str | None:
        """Who else speaks on the topic, with what to do; None while nobody does."""
        now = self._clock()
        self._others = {gid: one for gid, one in self._others.items() if now - one[1] <= MEMORY}
        if not self._others:
            return None
        topic = self._node.resolve_topic_name(self._topic)
        others = ", ".join(_describe(name, gid) for gid, (name, _) in sorted(self._others.items()))
        if self.bound is None:
            names = ", ".join(_describe(name, gid) for gid, name in sorted(self._present().items()))
            return f"more than one node publishes {topic} ({names}) and nobody knows which is right; stop all but one"
        return f"what {others} publishes on {topic} is refused: the source is {self.text}; stop the others"

    @property
    def text(self) -> str:
        """Name of the source."""
        return "none" if self.bound is None else _describe(self._name, self.bound)

    def _refuse(self, gid: Gid, name: str, now: float) -> bool:
        self.refused += 1
        self._others[gid] = (name, now)
        return False

    def _present(self) -> dict[Gid, str]:
        """Return the name of the node of every publisher of the topic."""
        infos = self._node.get_publishers_info_by_topic(self._node.resolve_topic_name(self._topic))
        return {bytes(one.endpoint_gid): f"{one.node_namespace.rstrip('/')}/{one.node_name}" for one in infos}


def _gid_of(info: Mapping[str, object]) -> Gid | None:
    gid = info.get("publisher_gid")
    data = gid.get("data") if isinstance(gid, Mapping) else None
    return bytes(data) if data is not None else None


def _describe(name: str, gid: Gid) -> str:
    return f"{name} (publisher {gid.hex()})" if gid else name
