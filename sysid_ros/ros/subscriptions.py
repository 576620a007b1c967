"""Subscriptions that rclpy lacks: polled without callbacks, and to topics with one accepted publisher.

An executor spends a third of a millisecond on every message, most of it on scheduling: too much for a topic of 1 kHz,
and useless where only the latest message counts. Messages of other publishers are refused, and their nodes named.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from threading import RLock
from typing import Any

from rclpy.callback_groups import CallbackGroup
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.serialization import deserialize_message

from sysid_ros.ros.node import Interfaces


class _Never(CallbackGroup):
    """Callbacks that no executor may call."""

    def can_execute(self, entity: Any) -> bool:
        """No."""
        return False

    def beginning_execution(self, entity: Any) -> bool:
        """No."""
        return False

    def ending_execution(self, entity: Any) -> None:
        """Never comes to that."""


class Inbox:
    """Messages of one topic. To be used by one thread; an executor may spin the node meanwhile.

    Args:
        node: Node that subscribes.
        kind: Type of the messages.
        topic: Their topic.
        profile: Quality of service; its depth says how many wait at most, older ones are lost.
        raw: Whether messages are left as they came, serialized.
    """

    def __init__(self, node: Node, kind: type, topic: str, profile: QoSProfile, raw: bool = False):
        self._group = _Never()
        self._subscription = node.create_subscription(
            kind, topic, lambda _: None, profile, callback_group=self._group, raw=raw
        )
        self._kind, self._raw = kind, raw
        context = node.context.handle
        if context is None:
            raise RuntimeError("a node outlived its ROS context")
        self._wait_set = rclpy_implementation.WaitSet(1, 0, 0, 0, 0, 0, context)

    def wait(self, timeout: float) -> None:
        """Wait until there are messages, for at most ``timeout`` [s]."""
        self._wait_set.clear_entities()
        with self._subscription.handle:
            self._wait_set.add_subscription(self._subscription.handle)
            self._wait_set.wait(round(1e9 * max(0.0, timeout)))

    def take(self) -> list[Any]:
        """Return all messages that wait, the oldest first."""
        messages = []
        with self._subscription.handle:
            while (taken := self._subscription.handle.take_message(self._kind, self._raw)) is not None:
                messages.append(taken[0])
        return messages


SILENCE = 1.0
"""A source that has been silent for longer may be replaced when a new beginning is announced [s]."""
MEMORY = 2.0
"""How long refused publishers are reported after their last message [s]."""
LOOK_AGAIN = 0.05
"""Least time between two graph queries about a refused publisher [s], so that a storm does not keep a node busy."""
TURN = 0.02
"""Longest time that one turn of the executor may refuse messages [s]; other callbacks run in between."""

Gid = bytes


class SingleSource:
    """Bind a topic to one publisher.

    The first publisher to send a message is the source, if it is the only one at that time. It stays so until it
    ends, or falls silent and a new beginning is announced (:meth:`release_if_silent`). Names of nodes prove nothing:
    publishers are distinguished by the identity that the middleware gives each of them.

    Threads may share it.

    Args:
        node: The node that subscribes.
        topic: Topic, as subscribed.
        clock: Steady time [s].

    Attributes:
        topic: Topic, as subscribed.
        bound: Identity of the source; None while there is none.
        refused: Messages that were refused so far.
    """

    def __init__(self, node: Node, topic: str, clock: Callable[[], float] = time.monotonic):
        self._node, self.topic, self._clock = node, topic, clock
        self._lock = RLock()
        self.bound: Gid | None = None
        self.refused = 0
        self._name = ""
        self._spoke = 0.0
        self._looked = -math.inf
        self._seen: dict[Gid, str] = {}  # names of the publishers when the graph was asked last
        self._retired: set[Gid] = set()
        self._others: dict[Gid, tuple[str, float]] = {}  # those refused: name, when they spoke last

    def admits(self, info: Mapping[str, object]) -> bool:
        """Return whether a message, by its information of rclpy, comes from the source; bind to the first publisher."""
        with self._lock:
            now, gid = self._clock(), _gid_of(info)
            if gid is not None and gid == self.bound:
                self._spoke = now
                return True
            if gid in self._others and now - self._looked < LOOK_AGAIN:
                return self._refuse(gid, self._others[gid][0], now)
            self._looked = -math.inf  # the current graph decides which one is the source
            present = self._present(now)
            if gid is None:  # older rclpy gives no identity: only a topic with one publisher is certain
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
        with self._lock:
            if self.bound is not None and self._clock() - self._spoke > SILENCE:
                self._retired.add(self.bound)
                self.bound = None
                self._others.clear()  # they were refused for its sake

    @property
    def fault(self) -> str | None:
        """Sentence about other publishers on the topic, with a remedy; None while there are none.

        Publishers that have ended do not count, even while messages of theirs still arrive.
        """
        with self._lock:
            now = self._clock()
            self._others = {gid: one for gid, one in self._others.items() if now - one[1] <= MEMORY}
            if not self._others:
                return None
            present = self._present(now)
            others = {gid: name for gid, (name, _) in sorted(self._others.items()) if gid in present or not gid}
            if not others:
                return None
            topic = self._node.resolve_topic_name(self.topic)
            if self.bound is None:
                names = ", ".join(_describe(name, gid) for gid, name in sorted(present.items()))
                return f"more than one node publishes {topic} ({names}) and none can be trusted; stop all but one"
            named = ", ".join(_describe(present.get(gid, name), gid) for gid, name in others.items())
            return f"messages of {named} on {topic} are refused: the source is {self.text}; stop the others"

    @property
    def text(self) -> str:
        """Name of the source."""
        return "none" if self.bound is None else _describe(self._name, self.bound)

    def _refuse(self, gid: Gid, name: str, now: float) -> bool:
        self.refused += 1
        self._others[gid] = (name, now)
        return False

    def _present(self, now: float) -> dict[Gid, str]:
        if now - self._looked >= LOOK_AGAIN:
            infos = self._node.get_publishers_info_by_topic(self._node.resolve_topic_name(self.topic))
            self._seen = {bytes(one.endpoint_gid): f"{one.node_namespace.rstrip('/')}/{one.node_name}" for one in infos}
            self._looked = now
        return self._seen


class SourceReceiver:
    """A subscription to a topic with one accepted publisher.

    Messages of others are refused undecoded, many in one turn of the executor, so that a storm of them neither delays
    nor displaces messages of the source.

    Args:
        node: Node that subscribes.
        kind: Type of the messages.
        topic: Topic.
        take: Called with each message of the source, in the executor of the node.
        profile: Quality of service.
        on_refused: Called with a sentence while others publish, at most once in a turn; it is logged anyhow.
        interfaces: Destroys the subscription in its time; None for the node.

    Attributes:
        source: The accepted publisher.
    """

    def __init__(
        self,
        node: Node,
        kind: type,
        topic: str,
        take: Callable[[Any], None],
        profile: QoSProfile,
        on_refused: Callable[[str], None] = lambda fault: None,
        interfaces: Interfaces | None = None,
    ):
        self._node, self._kind, self._take, self._on_refused = node, kind, take, on_refused
        self.source = SingleSource(node, topic)
        self._subscription = (interfaces or node).create_subscription(kind, topic, self._receive, profile, raw=True)

    def _receive(self, data: bytes, info: Mapping[str, object]) -> None:
        """Refuse waiting messages up to the first one of the source, and pass that on."""
        end, refused = time.monotonic() + TURN, self.source.refused
        waiting: tuple[Any, Any] | None = (data, info)
        while waiting is not None and not self.source.admits(waiting[1]):
            waiting = self._next() if time.monotonic() < end else None
        if self.source.refused > refused and (fault := self.source.fault) is not None:
            self._node.get_logger().error(fault, throttle_duration_sec=5.0)
            self._on_refused(fault)
        if waiting is not None and (message := self._read(waiting[0])) is not None:
            self._take(message)

    def _next(self) -> tuple[Any, Any] | None:
        with self._subscription.handle:
            return self._subscription.handle.take_message(self._kind, True)

    def _read(self, data: bytes) -> Any | None:
        try:
            return deserialize_message(data, self._kind)
        except RuntimeError as error:
            text = f"{self.source.topic}: a message of {self.source.text} cannot be read: {error}"
            self._node.get_logger().error(text, throttle_duration_sec=5.0)
            return None


def _gid_of(info: Mapping[str, object]) -> Gid | None:
    gid = info.get("publisher_gid")
    data = gid.get("data") if isinstance(gid, Mapping) else None
    return bytes(data) if data is not None else None


def _describe(name: str, gid: Gid) -> str:
    return f"{name} (publisher {gid.hex()})" if gid else name
