"""The object in MoveIt's planning scene, as a message; MoveIt's own messages are not there as wheels."""

import sys
from types import ModuleType

import numpy as np
import pytest
from geometry_msgs.msg import PoseArray
from visualization_msgs.msg import Marker

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.reports.exports import planning_scene
from sysid_ros.reports.payload_files import Load
from sysid_ros.ros.moveit import PlanningScenePublisher, fill_message


def test_messages_are_filled_from_plain_values():
    pose = {"position": {"x": 1.0, "y": 2.0, "z": 3.0}, "orientation": {"w": 1.0}}
    message = fill_message(PoseArray(), {"header": {"frame_id": "tool"}, "poses": [pose, pose]})
    assert message.header.frame_id == "tool" and [one.position.z for one in message.poses] == [3.0, 3.0]
    assert not fill_message(Marker(), {"points": []}).points
    with pytest.raises(ParameterOutOfRange, match="field of PoseArray .*header, poses"):
        fill_message(PoseArray(), {"pose": {}})


class Node:
    def __init__(self):
        self.made, self.sent = [], []

    def create_publisher(self, kind, name, depth):
        self.made.append((kind, name))
        return type("Publisher", (), {"publish": lambda _, message: self.sent.append(message)})()


def test_without_moveit_nothing_is_published(monkeypatch):
    monkeypatch.setitem(sys.modules, "moveit_msgs", None)
    node = Node()
    publisher = PlanningScenePublisher(node)
    publisher.send({"is_diff": True})
    assert not publisher.is_available and not node.made and not node.sent


class Fields:
    """A message as rosidl makes them, of the fields that are used here of MoveIt's."""

    def __init__(self):
        for name, kind in self.KINDS.items():
            setattr(self, name, [] if "sequence" in kind else MOVEIT[kind]() if kind in MOVEIT else None)

    def get_fields_and_field_types(self):
        return self.KINDS


def kind(name, **fields):
    return type(name, (Fields,), {"KINDS": fields})


MOVEIT = {
    "shape_msgs/SolidPrimitive": kind("SolidPrimitive", type="uint8", dimensions="sequence<double, 3>"),
    "moveit_msgs/CollisionObject": kind(
        "CollisionObject", header="std_msgs/Header", id="string", operation="byte",
        primitives="sequence<shape_msgs/SolidPrimitive>", primitive_poses="sequence<geometry_msgs/Pose>",
    ),
    "moveit_msgs/AttachedCollisionObject": kind(
        "AttachedCollisionObject", link_name="string", object="moveit_msgs/CollisionObject",
        touch_links="sequence<string>", weight="double",
    ),
    "moveit_msgs/RobotState": kind(
        "RobotState", is_diff="boolean", attached_collision_objects="sequence<moveit_msgs/AttachedCollisionObject>"
    ),
    "moveit_msgs/PlanningScene": kind("PlanningScene", is_diff="boolean", robot_state="moveit_msgs/RobotState"),
}  # fmt: skip


def test_with_moveit_the_object_is_attached_with_its_weight(monkeypatch):
    """Written after MoveIt's definitions; tried with messages of these names alone."""
    from std_msgs.msg import Header

    monkeypatch.setitem(MOVEIT, "std_msgs/Header", Header)
    for package in ("moveit_msgs", "shape_msgs"):
        messages = ModuleType(f"{package}.msg")
        for name, made in MOVEIT.items():
            setattr(messages, name.rpartition("/")[2], made)
        monkeypatch.setitem(sys.modules, package, ModuleType(package))
        monkeypatch.setitem(sys.modules, f"{package}.msg", messages)
    node = Node()
    publisher = PlanningScenePublisher(node)
    publisher.send(planning_scene(Load(1.5, np.array([0.0, 0.0, 0.1]), 0.01 * np.eye(3), "tool_link")))
    (scene,), (attached,) = node.sent, node.sent[0].robot_state.attached_collision_objects
    assert node.made[0][1] == "planning_scene" and scene.is_diff and scene.robot_state.is_diff
    assert (attached.link_name, attached.weight, attached.touch_links) == ("tool_link", 1.5, ["tool_link"])
    assert attached.object.header.frame_id == "tool_link" and attached.object.primitives[0].type == 2
    assert attached.object.primitives[0].dimensions == [pytest.approx(np.sqrt(0.015 / 1.5))]
    assert attached.object.primitive_poses[0].position.z == 0.1
