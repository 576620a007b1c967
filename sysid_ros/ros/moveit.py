"""The identified object in MoveIt's planning scene, where MoveIt's messages are installed: they are no wheel."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any

from rclpy.node import Node

from sysid_ros.core.common.errors import ParameterOutOfRange

TOPIC = "planning_scene"
"""Topic of MoveIt's planning scene monitor for changes."""
_SEQUENCE = re.compile(r"(?:sequence<)?([\w/]+?)(?:, \d+)?(?:>|\[\d+\])?$")


class PlanningScenePublisher:
    """Publishes changes of MoveIt's planning scene; has nothing to publish with where ``moveit_msgs`` is not installed.

    Args:
        node: The node that publishes.
    """

    def __init__(self, node: Node):
        self._type: Any = None
        try:
            self._type = importlib.import_module("moveit_msgs.msg").PlanningScene
        except ModuleNotFoundError:
            return
        self._publisher = node.create_publisher(self._type, TOPIC, 1)

    @property
    def is_available(self) -> bool:
        """Whether there is anything to publish with."""
        return self._type is not None

    def send(self, fields: Mapping[str, object]) -> None:
        """Publish a change.

        Args:
            fields: Fields of a ``moveit_msgs/PlanningScene`` that differ from their defaults, as in YAML.
        """
        if self._type is not None:
            self._publisher.publish(fill_message(self._type(), fields))


def fill_message(message: Any, fields: Mapping[str, object]) -> Any:
    """Fill a message from plain values and return it.

    Args:
        message: Any message.
        fields: Values by field: a mapping for a message, a list for a sequence.

    Raises:
        ParameterOutOfRange: There is no such field.
    """
    kinds = message.get_fields_and_field_types()
    for name, value in fields.items():
        if name not in kinds:
            raise ParameterOutOfRange(f"field of {type(message).__name__}", name, f"one of {', '.join(kinds)}")
        if isinstance(value, Mapping):
            fill_message(getattr(message, name), value)
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            kind = _message_type(kinds[name])
            setattr(message, name, [fill_message(kind(), item) for item in value])
        elif kinds[name] == "octet" and isinstance(value, int):
            setattr(message, name, bytes([value]))  # a plain number would be sent as whatever lies in memory
        else:
            setattr(message, name, value)
    return message


def _message_type(text: str) -> Any:
    """Return the class of the elements of a sequence, such as ``sequence<geometry_msgs/Point>``."""
    found = _SEQUENCE.match(text)
    package, _, name = (found[1] if found else text).rpartition("/")
    return getattr(importlib.import_module(f"{package}.msg"), name)
