"""The object in MoveIt's planning scene, as a message; MoveIt's own messages are not there as wheels."""

import sys
from types import ModuleType

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import Pose, PoseArray
from rclpy.serialization import deserialize_message, serialize_message
from std_msgs.msg import Header
from visualization_msgs.msg import Marker

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.reports.payload_files import Load, planning_scene
from sysid_ros.ros.services import compare_attached, fill_message


def test_messages_are_filled_from_plain_values():
    pose = {"position": {"x": 1.0, "y": 2.0, "z": 3.0}, "orientation": {"w": 1.0}}
    message = fill_message(PoseArray(), {"header": {"frame_id": "tool"}, "poses": [pose, pose]})
    assert message.header.frame_id == "tool" and [one.position.z for one in message.poses] == [3.0, 3.0]
    assert not fill_message(Marker(), {"points": []}).points
    status = fill_message(DiagnosticStatus(), {"level": 2})
    assert status.level == b"\x02" and deserialize_message(serialize_message(status), DiagnosticStatus) == status
    with pytest.raises(ParameterOutOfRange, match="field of PoseArray .*header, poses"):
        fill_message(PoseArray(), {"pose": {}})


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
        "CollisionObject", header="std_msgs/Header", pose="geometry_msgs/Pose", id="string", operation="octet",
        primitives="sequence<shape_msgs/SolidPrimitive>", primitive_poses="sequence<geometry_msgs/Pose>",
        meshes="sequence<shape_msgs/Mesh>", mesh_poses="sequence<geometry_msgs/Pose>",
        planes="sequence<shape_msgs/Plane>", plane_poses="sequence<geometry_msgs/Pose>",
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


BODY = Load(1.5, np.array([0.0, 0.0, 0.1]), 0.01 * np.eye(3), "tool_link")


@pytest.fixture
def messages(monkeypatch):
    """MoveIt's messages, after its definitions."""
    monkeypatch.setitem(MOVEIT, "std_msgs/Header", Header)
    monkeypatch.setitem(MOVEIT, "geometry_msgs/Pose", Pose)
    for package in ("moveit_msgs", "shape_msgs"):
        made = ModuleType(f"{package}.msg")
        for name, one in MOVEIT.items():
            setattr(made, name.rpartition("/")[2], one)
        monkeypatch.setitem(sys.modules, package, ModuleType(package))
        monkeypatch.setitem(sys.modules, f"{package}.msg", made)


@pytest.mark.usefixtures("messages")
def test_what_moveit_has_is_compared_with_what_was_sent():
    """As MoveIt keeps it: the pose of an only shape at the object, links in order of their names, no weight."""
    (fields,) = planning_scene(BODY)["robot_state"]["attached_collision_objects"]
    fields["touch_links"] = ["tool_link", "finger"]

    def kept(**changes):
        found = fill_message(MOVEIT["moveit_msgs/AttachedCollisionObject"](), fields)
        found.weight, found.touch_links = 0.0, sorted(found.touch_links)
        found.object.pose, found.object.primitive_poses = found.object.primitive_poses[0], [Pose()]
        for name, value in changes.items():
            found.__dict__[name] = value
        return found

    sent = fill_message(MOVEIT["moveit_msgs/AttachedCollisionObject"](), fields)
    assert compare_attached(sent, kept()) == []
    for words, changes in (
        ("the link: tool_link was sent, flange", {"link_name": "flange"}),
        ("the links that may be touched", {"touch_links": ["tool_link"]}),
        ("the weight [kg]: 1.5 was sent, 2.5 is there", {"weight": 2.5}),
    ):
        (told,) = compare_attached(sent, kept(**changes))
        assert words in told
    moved, turned, larger, gone = kept(), kept(), kept(), kept()
    moved.object.pose.position.z += 0.01
    turned.object.pose.orientation.x = 0.1
    larger.object.primitives[0].dimensions = [0.3]
    gone.object.primitives = []
    assert "primitive 1 is 10 mm" in compare_attached(sent, moved)[0]
    assert "0.2 rad from where" in compare_attached(sent, turned)[0]
    assert "of [0.3] m is there" in compare_attached(sent, larger)[0]
    assert "the number of primitives" in compare_attached(sent, gone)[0]


@pytest.mark.usefixtures("messages")
def test_with_moveit_the_object_is_attached_with_its_weight():
    """Written after MoveIt's definitions; tried with messages of these names alone."""
    scene = fill_message(MOVEIT["moveit_msgs/PlanningScene"](), planning_scene(BODY))
    (attached,) = scene.robot_state.attached_collision_objects
    assert scene.is_diff and scene.robot_state.is_diff
    assert (attached.link_name, attached.weight, attached.touch_links) == ("tool_link", 1.5, ["tool_link"])
    assert attached.object.header.frame_id == "tool_link" and attached.object.primitives[0].type == 2
    assert attached.object.primitives[0].dimensions == [pytest.approx(np.sqrt(0.015 / 1.5))]
    assert attached.object.primitive_poses[0].position.z == 0.1
    assert attached.object.operation == b"\0"
