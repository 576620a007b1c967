"""Description and transforms in the recording of a free-floating robot, for viewers."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
from nav_msgs.msg import Odometry
from sensor_msgs.msg import JointState
from std_msgs.msg import String

from sysid_ros.core.model.links import LinkPose, LinkTree
from sysid_ros.ros.transforms import FIXED_TRANSFORMS, RECORDED_PERIOD_NS, TRANSFORMS, Write, write_transforms
from sysid_ros.space.core.robot import FreeFlyer


class FloatingPictures:
    """Description and transforms of one goal, written by a function."""

    def __init__(self, robot: FreeFlyer, write: Write):
        self._robot, self._write = robot, write
        model = pin.buildModelFromXML(robot.urdf)
        self._joints, self._links = list(model.names)[1:], LinkTree(model)
        self._last: dict[type, int] = {}

    def on_message(self, message: object, stamp_ns: int) -> None:
        """Add the pose of the base, or the positions of the joints."""
        kind = type(message)
        if not self._last:
            self._write("/robot_description", "std_msgs/msg/String", String(data=self._robot.urdf), stamp_ns)
            write_transforms(self._write, FIXED_TRANSFORMS, self._links.fixed, stamp_ns)
        elif 0 <= stamp_ns - self._last.get(kind, -RECORDED_PERIOD_NS) < RECORDED_PERIOD_NS:
            return
        self._last[kind] = stamp_ns
        if isinstance(message, Odometry):
            place, turn = message.pose.pose.position, message.pose.pose.orientation
            rotation = pin.Quaternion(turn.w, turn.x, turn.y, turn.z).normalized().matrix()
            position = np.array([place.x, place.y, place.z])
            base = LinkPose(message.header.frame_id, self._links.bodies[0], rotation, position)
            write_transforms(self._write, TRANSFORMS, [base], stamp_ns)
        elif isinstance(message, JointState):
            found = dict(zip(message.name, message.position, strict=False))
            if all(name in found for name in self._joints):
                q = np.array([found[name] for name in self._joints])
                write_transforms(self._write, TRANSFORMS, self._links.moving(q), stamp_ns)
