"""What makes a recording something to look at: transforms of all links, and markers where they belong."""

import dataclasses

import numpy as np
import pinocchio as pin
import pytest
from doubles import estimate_around_nominal
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
from nav_msgs.msg import Odometry
from rclpy.serialization import serialize_message
from sensor_msgs.msg import JointState
from std_msgs.msg import Header

from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.model.mechanics import BodyPoses
from sysid_ros.core.model.robot import tool_transform
from sysid_ros.reports.recordings.recording import RecordingWriter
from sysid_ros.ros.markers import FIXED_TRANSFORMS, MARKERS, RECORDED_PERIOD_NS, TRANSFORMS, Pictures
from sysid_ros.space.adapters.messages import FloatingPictures
from sysid_ros.space.core.robot import load_free_flyer

START = 1_700_000_000_000_000_000


@pytest.fixture
def written(robot):
    messages = []
    pictures = Pictures(robot, lambda *entry: messages.append(entry))
    return pictures, messages


def turned(quaternion):
    x, y, z, w = quaternion.x, quaternion.y, quaternion.z, quaternion.w
    return np.array([
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ])  # fmt: skip


def pose_in_root(transforms, link):
    """Follow the transforms up to the link that has none."""
    by_child = {one.child_frame_id: one for one in transforms}
    assert len(by_child) == len(transforms), "a link has two parents"
    rotation, position = np.eye(3), np.zeros(3)
    while link in by_child:
        step = by_child[link]
        place = step.transform.translation
        turn = turned(step.transform.rotation)
        rotation, position = turn @ rotation, turn @ position + [place.x, place.y, place.z]
        link = step.header.frame_id
    return link, rotation, position


def test_transforms_place_every_link(robot, written):
    pictures, messages = written
    q = robot.home + 0.3
    pictures.on_posture(q, START)
    topics = {topic: contents["transforms"] for topic, kind, contents, _ in messages if kind.endswith("TFMessage")}
    assert set(topics) == {TRANSFORMS, FIXED_TRANSFORMS}
    transforms = topics[TRANSFORMS] + topics[FIXED_TRANSFORMS]
    root, rotation, position = pose_in_root(transforms, robot.tool_frame)
    rotations, origins = BodyPoses(robot).compute(q)
    turn, moved = tool_transform(robot)
    np.testing.assert_allclose(position, origins[-1] + rotations[-1] @ moved, atol=1e-12)
    np.testing.assert_allclose(rotation, rotations[-1] @ turn, atol=1e-12)
    links = {frame.name for frame in robot.pin_model.frames if frame.type.name == "BODY"}
    assert {one.child_frame_id for one in transforms} == links - {root}


def test_postures_come_at_most_once_in_a_period(robot, written):
    pictures, messages = written
    for k in range(100):
        pictures.on_posture(robot.home, START + k * RECORDED_PERIOD_NS // 4)
    assert sum(topic == TRANSFORMS for topic, *_ in messages) == 25
    assert sum(topic == FIXED_TRANSFORMS for topic, *_ in messages) == 1


def test_markers_stick_to_links(robot, written):
    pictures, messages = written
    pictures.on_estimate(estimate_around_nominal(robot), START)
    ((topic, _, markers, _),) = messages
    assert topic == MARKERS
    drawn = markers.markers[1:]
    links = {frame.name for frame in robot.pin_model.frames}
    assert {one.header.frame_id for one in drawn} <= links and all(one.frame_locked for one in drawn)
    assert sum(one.ns == "arm" for one in drawn) == len(robot.spheres)
    (box,) = [one for one in drawn if one.ns == "com_bounds"]
    assert box.header.frame_id == "bracelet_link", "the link at the last joint, in whose frame estimates are"
    messages.clear()
    pictures.on_estimate(dataclasses.replace(estimate_around_nominal(robot), is_consistent=False), START)
    assert {one.ns for one in messages[0][2].markers[1:]} == {"arm", "carried"}


def test_a_recording_has_them_and_stays_small(robot, tmp_path):
    """Ten seconds of transforms, and as many markers as there are estimates."""
    path = tmp_path / "recording.mcap"
    with RecordingWriter(path) as recorder:

        def write(topic, kind, contents, stamp_ns):
            data = contents if isinstance(contents, dict) else serialize_message(contents)
            assert recorder.write("/" + topic.lstrip("/"), kind, data, stamp_ns)

        pictures = Pictures(robot, write)
        table = Obstacle("table", [0.5, 0.1, 0.05], [0.2, 0.35, 0.05], np.eye(3))
        pictures.on_scene(Scene(obstacles=(table,)), None, START)
        rng = np.random.default_rng(0)
        for k in range(200):
            stamp = START + k * 50_000_000
            pictures.on_posture(robot.home + 0.2 * np.sin(0.05 * k + rng.uniform(0, 0.01, robot.n)), stamp)
            if k % 10 == 0:
                pictures.on_estimate(estimate_around_nominal(robot), stamp)
    with open(path, "rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        found = {}
        for schema, channel, _, message in reader.iter_decoded_messages():
            found.setdefault((channel.topic, schema.name), []).append(message)
    assert {(topic, len(messages)) for (topic, _), messages in found.items()} == {
        ("/tf", 200), ("/tf_static", 1), ("/monitor/markers", 21), ("/monitor/scene_markers", 1)
    }  # fmt: skip
    first = found["/tf", "tf2_msgs/msg/TFMessage"][0].transforms[0]
    assert first.child_frame_id == "shoulder_link" and first.header.stamp.sec == START // 10**9
    assert path.stat().st_size < 300_000, "a second of samples alone takes about as much"


@pytest.mark.parametrize("name", ["servicer", "dual_arm"])
def test_a_robot_that_floats_is_placed_by_its_odometry_and_joints(name):
    robot, messages = load_free_flyer(name), []
    pictures = FloatingPictures(robot, lambda *entry: messages.append(entry))
    odometry = Odometry(header=Header(frame_id="world"))
    odometry.pose.pose.position.x, odometry.pose.pose.orientation.w = 0.3, 1.0
    names = [*robot.joint_names, *robot.wheels.names]
    q = np.concatenate([robot.home + 0.2, np.zeros(len(robot.wheels.names))])
    joints = JointState(name=names[::-1], position=q[::-1].tolist())
    for k in range(20):
        pictures.on_message(odometry, START + k * RECORDED_PERIOD_NS // 4)
        pictures.on_message(joints, START + k * RECORDED_PERIOD_NS // 4)
    kinds = [topic for topic, *_ in messages]
    assert kinds.count("/robot_description") == kinds.count(FIXED_TRANSFORMS) == 1 and kinds.count(TRANSFORMS) == 10
    sent = [
        one for topic, _, contents, _ in messages[:5] if topic != "/robot_description" for one in contents["transforms"]
    ]
    latest = {one.child_frame_id: one for one in sent}.values()
    model = pin.buildModelFromXML(robot.urdf)
    data = model.createData()
    order = [list(robot.joint_names).index(joint) for joint in list(model.names)[1:]]
    pin.framesForwardKinematics(model, data, (robot.home + 0.2)[order])
    tool = model.frames[-1].name
    root, _, position = pose_in_root(latest, tool)
    assert root == "world"
    np.testing.assert_allclose(position, data.oMf[model.getFrameId(tool)].translation + [0.3, 0.0, 0.0], atol=1e-9)
