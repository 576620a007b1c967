"""How good or bad a part of a node is, for ``/diagnostics``."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.node import Node
from std_msgs.msg import Header

from sysid_ros.ros.conversions.common import stamp_to_message


class Level(Enum):
    """How good or bad it is."""

    OK = DiagnosticStatus.OK
    WARN = DiagnosticStatus.WARN
    ERROR = DiagnosticStatus.ERROR
    STALE = DiagnosticStatus.STALE


def diagnostic_message(
    stamp_ns: int, name: str, hardware_id: str, state: tuple[Level, str], values: Mapping[str, object]
) -> DiagnosticArray:
    """Make one status for ``/diagnostics``, for a name and hardware as below; the unit of a value is in its name."""
    texts = {key: f"{value:.6g}" if isinstance(value, float) else str(value) for key, value in values.items()}
    pairs = [KeyValue(key=key, value=text) for key, text in texts.items()]
    level, text = state
    status = DiagnosticStatus(level=level.value, name=name, message=text, hardware_id=hardware_id, values=pairs)
    return DiagnosticArray(header=Header(stamp=stamp_to_message(stamp_ns)), status=[status])


def name_of(node: Node, part: str) -> str:
    """Return the name of a status, with the namespace of its node: 'left/arm_driver: control loop'."""
    return f"{node.get_fully_qualified_name().strip('/')}: {part}"


def hardware_id_of(node: Node, robot: str, address: str = "") -> str:
    """Return which arm a status is about: two of one model differ in namespace, real ones in their address too."""
    name = "/".join(filter(None, (node.get_namespace().strip("/"), robot)))
    return f"{name}@{address}" if address else name
