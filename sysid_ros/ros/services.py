"""Sends a payload to services of other packages: Universal Robots' driver, and MoveIt's planning scene.

Their messages are looked for at run time, as they are no wheels; :func:`~sysid_ros.ros.moveit.fill_message` fills them.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import rclpy
from numpy.typing import NDArray
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from scipy.spatial.transform import Rotation

from sysid_ros.core.common.errors import SysidError
from sysid_ros.ros.moveit import fill_message
from sysid_ros.ros.waiting import ServiceFailed, nobody_offers

Array = NDArray[np.float64]

PATIENCE = 10.0
"""How long to wait for a service, and again for its answer [s]."""
ATTACHED_OBJECTS = 4
"""``moveit_msgs/PlanningSceneComponents.ROBOT_STATE_ATTACHED_OBJECTS``."""
LENGTH, ANGLE = 1e-4, 1e-3
"""Largest differences of an object that was read back, of lengths [m] and angles [rad]."""


def service_type(package: str, name: str, cure: str) -> Any:
    """Return the type of a service.

    Raises:
        SysidError: Its package is not installed.
    """
    try:
        return getattr(importlib.import_module(f"{package}.srv"), name)
    except ModuleNotFoundError as error:
        raise SysidError(
            f"the messages {package} are not installed, or their workspace is not sourced; {cure}"
        ) from error


class ServiceCaller:
    """A node that calls services, one after the other, from the thread that it is made in."""

    def __init__(self) -> None:
        self._context = Context()
        rclpy.init(context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        self._node = Node("sysid_apply", context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)

    def __enter__(self) -> ServiceCaller:
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown(timeout_sec=1.0)
        self._node.destroy_node()
        rclpy.try_shutdown(context=self._context)

    def call(self, kind: Any, name: str, fields: Mapping[str, object]) -> Any:
        """Call a service and return its answer.

        Args:
            kind: Type of the service.
            name: Its name.
            fields: Fields of the request that differ from their defaults.

        Raises:
            SysidError: There is no server.
            ServiceFailed: It does not answer.
        """
        client: Any = self._node.create_client(kind, name)
        try:
            if not client.wait_for_service(timeout_sec=PATIENCE):
                raise nobody_offers(name, PATIENCE, self._node.get_node_names())
            future = client.call_async(fill_message(kind.Request(), fields))
            end = time.monotonic() + PATIENCE
            while not future.done() and time.monotonic() < end:
                self._executor.spin_once(timeout_sec=0.1)
            if not future.done():
                raise ServiceFailed(name, f"did not answer within {PATIENCE:g} s")
            return future.result()
        finally:
            self._node.destroy_client(client)


def set_ur_payload(
    caller: ServiceCaller, kind: Any, name: str, mass: float, com: Array, inertia_com: Array | None
) -> bool:
    """Give a payload to the service ``set_payload`` of Universal Robots' driver.

    Args:
        caller: Calls the service.
        kind: ``ur_msgs/srv/SetPayload``; only newer versions have the inertia.
        name: Name of the service.
        mass: Mass of all that is behind the flange [kg].
        com: Its CoM in the flange frame, (3,) [m].
        inertia_com: Its inertia about the CoM, axes of the flange, (3, 3) [kg m^2]; None leaves it out.

    Returns:
        Whether the inertia was set.

    Raises:
        ServiceFailed: It answers that it failed, or does not answer.
        SysidError: There is no server.
    """
    fields: dict[str, object] = {
        "mass": float(mass),
        "center_of_gravity": dict(zip("xyz", map(float, com), strict=True)),
    }
    sets_inertia = inertia_com is not None and "ixx" in kind.Request.get_fields_and_field_types()
    if inertia_com is not None and sets_inertia:
        entries = {"ixx": (0, 0), "iyy": (1, 1), "izz": (2, 2), "ixy": (0, 1), "ixz": (0, 2), "iyz": (1, 2)}
        fields |= {name: float(inertia_com[place]) for name, place in entries.items()}
    if not caller.call(kind, name, fields).success:
        raise ServiceFailed(name, "answered that it failed")
    return sets_inertia


def apply_scene(caller: ServiceCaller, kind: Any, name: str, scene: Mapping[str, object]) -> None:
    """Apply a change to MoveIt's planning scene.

    Args:
        caller: Calls the service.
        kind: ``moveit_msgs/srv/ApplyPlanningScene``.
        name: Name of the service.
        scene: Fields of a ``moveit_msgs/PlanningScene``.

    Raises:
        ServiceFailed: It answers that it failed, or does not answer.
        SysidError: There is no server.
    """
    if not caller.call(kind, name, {"scene": dict(scene)}).success:
        raise ServiceFailed(name, "answered that it failed")


def read_attached(caller: ServiceCaller, kind: Any, name: str, object_id: str) -> Any | None:
    """Return the ``moveit_msgs/AttachedCollisionObject`` of a name in MoveIt's planning scene; None without one.

    Args:
        caller: Calls the service.
        kind: ``moveit_msgs/srv/GetPlanningScene``.
        name: Name of the service.
        object_id: Name of the object.

    Raises:
        ServiceFailed: It does not answer.
        SysidError: There is no server.
    """
    answer = caller.call(kind, name, {"components": {"components": ATTACHED_OBJECTS}})
    found = [one for one in answer.scene.robot_state.attached_collision_objects if one.object.id == object_id]
    return found[0] if found else None


def compare_attached(sent: Any, found: Any) -> list[str]:
    """Return how an attached object that was read back differs from the one that was sent, a sentence each.

    MoveIt sorts the links that may be touched, moves the pose of an only shape to the object, and keeps no weight: a
    weight of zero is no difference.

    Args:
        sent: ``moveit_msgs/AttachedCollisionObject``, its object in the frame of the link.
        found: The same, as MoveIt has it.
    """
    differences = []
    for what, wanted, has in (
        ("the link", sent.link_name, found.link_name),
        ("the frame", sent.object.header.frame_id, found.object.header.frame_id),
        ("the links that may be touched", sorted(sent.touch_links), sorted(found.touch_links)),
        ("the number of primitives", len(sent.object.primitives), len(found.object.primitives)),
        ("the number of meshes", len(sent.object.meshes), len(found.object.meshes)),
        ("the number of planes", len(sent.object.planes), len(found.object.planes)),
    ):
        if wanted != has:
            differences.append(f"{what}: {wanted} was sent, {has} is there")
    if found.weight != 0.0 and abs(found.weight - sent.weight) > 1e-3:
        differences.append(f"the weight: {sent.weight:g} kg was sent, {found.weight:g} kg is there")
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
