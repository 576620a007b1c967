"""Hands a payload to services of other packages: drivers of vendors, and MoveIt's planning scene.

Their messages are looked for at run time, as they are no wheels.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import rclpy
from numpy.typing import NDArray
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from rclpy.signals import SignalHandlerOptions
from scipy.spatial.transform import Rotation

from sysid_ros.core.common.errors import NotConfirmed, ParameterOutOfRange, SysidError
from sysid_ros.ros.node import spin_until
from sysid_ros.ros.other_nodes import no_messages, nobody_offers

Array = NDArray[np.float64]

PATIENCE = 10.0
"""How long to wait for a service, and again for its answer [s]."""
LENGTH, ANGLE = 1e-4, 1e-3
"""Largest differences of an object that was read back, of lengths [m] and angles [rad]."""


_SEQUENCE = re.compile(r"(?:sequence<)?([\w/]+?)(?:, \d+)?(?:>|\[\d+\])?$")
_CURES = {
    "ur_msgs": "Universal Robots' driver, ros-<distribution>-ur-msgs; without ROS there is: sysid apply ur",
    "moveit_msgs": "MoveIt, ros-<distribution>-moveit-msgs",
    "franka_msgs": "franka_ros2",
}


def _find_type(name: str) -> Any:
    package, kind, one = name.split("/")
    try:
        return getattr(importlib.import_module(f"{package}.{kind}"), one)
    except ModuleNotFoundError as error:
        raise SysidError(
            f"the messages {package} are not installed, or their workspace is not sourced; they come with "
            f"{_CURES.get(package, 'ROS')}"
        ) from error


class ServiceCaller:
    """A node that calls services, one after the other, from the thread that it is made in.

    Args:
        kinds: Types of services and messages that will be needed, such as ``std_srvs/srv/Trigger``.

    Raises:
        SysidError: A package of them is not installed.
    """

    def __init__(self, kinds: Sequence[str]) -> None:
        self._kinds = {kind: _find_type(kind) for kind in kinds}
        self._context = Context()
        rclpy.init(context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        self._node = Node("sysid_apply", context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)

    def close(self) -> None:
        """End the node."""
        self._executor.shutdown(timeout_sec=1.0)
        self._node.destroy_node()
        rclpy.try_shutdown(context=self._context)

    def has_fields(self, kind: str, names: Iterable[str]) -> bool:
        """Return whether requests of a service have all these fields."""
        return set(names) <= set(self._kinds[kind].Request.get_fields_and_field_types())

    def call(self, kind: str, name: str, fields: Mapping[str, object], advice: str = "see the log of its node") -> Any:
        """Call a service and return its answer; ``fields`` differ from the defaults of its request.

        Raises:
            SysidError: Nobody offers it.
            NotConfirmed: It does not answer, or answers that it failed.
        """
        client: Any = self._node.create_client(self._kinds[kind], name)
        try:
            if not client.wait_for_service(timeout_sec=PATIENCE):
                raise nobody_offers(name, PATIENCE, self._node.get_node_names())
            future = client.call_async(fill_message(self._kinds[kind].Request(), fields))
            is_answered = spin_until(self._executor, future.done, PATIENCE)
        finally:
            self._node.destroy_client(client)
        if not is_answered:
            raise NotConfirmed(f"the service {name} did not answer within {PATIENCE:g} s; {advice}")
        answer: Any = future.result()
        if not getattr(answer, "success", True):
            reason = f" ({answer.error})" if getattr(answer, "error", "") else ""
            raise NotConfirmed(f"the service {name} answered that it failed{reason}; {advice}")
        return answer

    def receive(self, kind: str, topic: str) -> Any:
        """Return the next message of a topic.

        Raises:
            SysidError: None comes.
        """
        found: list[Any] = []
        subscription = self._node.create_subscription(self._kinds[kind], topic, found.append, qos_profile_sensor_data)
        try:
            if not spin_until(self._executor, lambda: bool(found), PATIENCE):
                raise no_messages(self._node, topic, kind, PATIENCE, qos_profile_sensor_data)
        finally:
            self._node.destroy_subscription(subscription)
        return found[-1]


def fill_message(message: Any, fields: Mapping[str, object]) -> Any:
    """Fill a message from plain values by field, a mapping for a message, a list for a sequence; return the message.

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
    found = _SEQUENCE.match(text)
    package, _, name = (found[1] if found else text).rpartition("/")
    return getattr(importlib.import_module(f"{package}.msg"), name)


def compare_attached(sent: Any, found: Any) -> list[str]:
    """Return how an attached object that was read back differs from the one that was sent, a sentence each.

    MoveIt sorts the links that may be touched, moves the pose of an only shape to the object, and keeps no weight: a
    weight of zero is no difference.

    Args:
        sent: ``moveit_msgs/AttachedCollisionObject``, its object in the frame of the link.
        found: The same, as MoveIt has it.
    """
    pair = (sent, found)
    rows = [
        ("the link", *(one.link_name for one in pair)),
        ("the frame", *(one.object.header.frame_id for one in pair)),
        ("the links that may be touched", *(sorted(one.touch_links) for one in pair)),
        *(
            (f"the number of {n}", *(len(getattr(one.object, n)) for one in pair))
            for n in ("primitives", "meshes", "planes")
        ),
    ]
    if found.weight != 0.0 and abs(found.weight - sent.weight) > 1e-3:
        rows.append(("the weight [kg]", sent.weight, found.weight))
    differences = [f"{what}: {wanted} was sent, {has} is there" for what, wanted, has in rows if wanted != has]
    if differences:
        return differences
    for number, (wanted, has) in enumerate(zip(sent.object.primitives, found.object.primitives, strict=True), start=1):
        if wanted.type != has.type or not np.allclose(wanted.dimensions, has.dimensions, rtol=0.0, atol=LENGTH):
            differences.append(
                f"primitive {number}: type {wanted.type} of {list(wanted.dimensions)} m was sent, type {has.type} of "
                f"{list(has.dimensions)} m is there"
            )
    for shapes in ("primitive_poses", "mesh_poses", "plane_poses"):
        pairs = zip(getattr(sent.object, shapes), getattr(found.object, shapes), strict=True)
        for number, (wanted, has) in enumerate(pairs, start=1):
            (turned, moved), (turned_there, moved_there) = _place(sent.object, wanted), _place(found.object, has)
            off, angle = np.linalg.norm(moved - moved_there), (turned.inv() * turned_there).magnitude()
            if off > LENGTH or angle > ANGLE:
                kind = shapes.removesuffix("_poses")
                differences.append(f"{kind} {number} is {1e3 * off:.2g} mm and {angle:.2g} rad from where it should be")
    return differences


def _place(body: Any, shape: Any) -> tuple[Rotation, Array]:
    """Return where a shape of an object is in the frame of its header: rotation, and translation (3,) [m]."""
    outer, there = _pose(body.pose)
    inner, moved = _pose(shape)
    return outer * inner, there + outer.apply(moved)


def _pose(pose: Any) -> tuple[Rotation, Array]:
    q, p = pose.orientation, pose.position
    quaternion = np.array([q.x, q.y, q.z, q.w], dtype=float)
    turn = Rotation.from_quat(quaternion) if np.any(quaternion) else Rotation.identity()  # not set
    return turn, np.array([p.x, p.y, p.z], dtype=float)
