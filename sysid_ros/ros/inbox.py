"""A topic to be polled, without callbacks: messages wait in the middleware until they are taken.

An executor spends a third of a millisecond on every message, most of it on scheduling. That is too much for a topic
of 1 kHz, and useless where only the latest message counts.
"""

from __future__ import annotations

from typing import Any

from rclpy.callback_groups import CallbackGroup
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.qos import QoSProfile


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
