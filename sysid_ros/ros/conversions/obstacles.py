"""Obstacles from ``visualization_msgs/MarkerArray``, as RViz and perception nodes publish them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pinocchio as pin
from visualization_msgs.msg import Marker, MarkerArray

from sysid_ros.core.collision.scene import Obstacle
from sysid_ros.ros.conversions.common import InvalidMessage

_SHAPES = {Marker.CUBE: "CUBE", Marker.SPHERE: "SPHERE", Marker.CYLINDER: "CYLINDER"}
_UNIT = 1e-3
"""Largest distance of a quaternion's norm from 1."""

Key = tuple[str, int]


def obstacles_from_markers(
    message: MarkerArray, present: Mapping[Key, Obstacle], base_frame: str
) -> dict[Key, Obstacle]:
    """Return the obstacles after a message.

    Cubes are taken as they are, spheres and cylinders as the boxes around them. Markers are added, replaced and deleted
    by namespace and number, as RViz does it. Colours and life times mean nothing here: an obstacle stays until it is
    deleted.

    Args:
        message: The message.
        present: The obstacles before it, by namespace and number.
        base_frame: Frame in which all must be given.

    Raises:
        InvalidMessage: A marker has another frame or shape, or numbers that make no box. None of the message is used.
    """
    obstacles = dict(present)
    for marker in message.markers:
        key = key_of(marker)
        if marker.action == Marker.DELETEALL:
            obstacles.clear()
        elif marker.action == Marker.DELETE:
            obstacles.pop(key, None)
        elif marker.action == Marker.ADD:
            obstacles[key] = _obstacle(marker, base_frame)
        else:
            raise InvalidMessage("MarkerArray", _name(marker), f"has the unknown action {marker.action}")
    return obstacles


def key_of(marker: Marker) -> Key:
    """Return the key of an obstacle: namespace and number."""
    return marker.ns, int(marker.id)


def _obstacle(marker: Marker, base_frame: str) -> Obstacle:
    name = _name(marker)
    if marker.header.frame_id != base_frame:
        raise InvalidMessage("MarkerArray", name, f"is given in frame '{marker.header.frame_id}', not '{base_frame}'")
    if marker.type not in _SHAPES:
        raise InvalidMessage(
            "MarkerArray", name, f"is of type {marker.type}; expected {', '.join(sorted(_SHAPES.values()))}"
        )
    position, orientation, scale = marker.pose.position, marker.pose.orientation, marker.scale
    center = np.array([position.x, position.y, position.z])
    edges = np.array([scale.x, scale.y, scale.z])
    quaternion = np.array([orientation.x, orientation.y, orientation.z, orientation.w])
    if not np.all(np.isfinite([*center, *edges, *quaternion])):
        raise InvalidMessage("MarkerArray", name, "has a number that is not finite in pose or scale")
    if not np.all(edges > 0.0):
        raise InvalidMessage("MarkerArray", name, f"has the scale {edges.tolist()} m; each must be above 0")
    norm = float(np.linalg.norm(quaternion))
    if abs(norm - 1.0) > _UNIT:
        raise InvalidMessage("MarkerArray", name, f"has an orientation of norm {norm:.3g}; it must be 1")
    rotation = pin.Quaternion(quaternion / norm).toRotationMatrix()
    return Obstacle(name, center, 0.5 * edges, rotation)


def _name(marker: Marker) -> str:
    return f"{marker.ns or 'obstacle'} {marker.id}"
