"""Transforms, for RViz where ROS has them, and for recordings: tf2's messages come with ROS, not as a wheel."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pinocchio as pin
from geometry_msgs.msg import Pose, Quaternion, Transform, TransformStamped, Vector3
from rclpy.node import Node
from rclpy.serialization import serialize_message
from std_msgs.msg import Header

from sysid_ros.core.model.links import LinkPose
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.common import stamp_to_message

try:
    from tf2_msgs.msg import TFMessage
except ImportError:  # on a machine without ROS there is no listener
    TFMessage = None


TRANSFORMS, FIXED_TRANSFORMS, TRANSFORM_TYPE = "/tf", "/tf_static", "tf2_msgs/msg/TFMessage"
"""Topics of transforms, and the type of their messages."""
RECORDED_PERIOD_NS = 40_000_000
"""Time between two transforms of a frame in a recording [ns]."""

Write = Callable[[str, str, Any, int], object]
"""Takes topic, type, message (or a mapping of its fields) and stamp [ns]: writes into a recording."""


def contents_of(message: Any) -> Any:
    """Return a message as a recording takes it: serialized, but for a mapping of fields, which stays as it is."""
    return message if isinstance(message, dict) else serialize_message(message)


def transforms_of(poses: Iterable[LinkPose], stamp_ns: int) -> list[TransformStamped]:
    """Return poses of links as transforms, with a stamp [ns]."""
    transforms = []
    for pose in poses:
        x, y, z = map(float, pose.translation)
        a, b, c, w = map(float, pin.Quaternion(pose.rotation).normalized().coeffs())
        transform = Transform(translation=Vector3(x=x, y=y, z=z), rotation=Quaternion(x=a, y=b, z=c, w=w))
        header = Header(stamp=stamp_to_message(stamp_ns), frame_id=pose.parent)
        transforms.append(TransformStamped(header=header, child_frame_id=pose.child, transform=transform))
    return transforms


def write_transforms(write: Write, topic: str, poses: Iterable[LinkPose], stamp_ns: int) -> None:
    """Write poses of links, with a stamp [ns], as transforms of ``/tf`` or ``/tf_static``."""
    write(topic, TRANSFORM_TYPE, {"transforms": transforms_of(poses, stamp_ns)}, stamp_ns)


class TransformBroadcaster:
    """Publishes poses on ``/tf``; does nothing where tf2 is not installed."""

    def __init__(self, node: Node):
        self._publisher = None if TFMessage is None else node.create_publisher(TFMessage, "/tf", qos.JOINT_STATES)

    def send(self, header: Header, child_frame_id: str, pose: Pose) -> None:
        """Publish the pose of a frame.

        Args:
            header: Stamp, and frame in which the pose is.
            child_frame_id: The frame whose pose it is.
            pose: Its pose.
        """
        if self._publisher is None:
            return
        place = pose.position
        transform = Transform(translation=Vector3(x=place.x, y=place.y, z=place.z), rotation=pose.orientation)
        stamped = TransformStamped(header=header, child_frame_id=child_frame_id, transform=transform)
        self._publisher.publish(TFMessage(transforms=[stamped]))
