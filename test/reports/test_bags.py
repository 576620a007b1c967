"""Bags of joint states: every form, split and mixed topics, what they leave open, and what is refused."""

import dataclasses
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pinocchio as pin
import pytest
from recording_files import batches_of, write_csv, write_mcap
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from sysid_ros.cli import offline
from sysid_ros.cli.offline import identify_file
from sysid_ros.cli.parse_recordings import offline_parser
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.robot import frame_placement
from sysid_ros.reports.recordings import bags, mcap, tables
from sysid_ros.reports.recordings.files import read_recording
from sysid_ros.reports.recordings.options import InvalidRecording, ReadOptions

STORE = get_typestore(Stores.LATEST)
STATE, HEADER, TIME = (
    STORE.types[name] for name in ("sensor_msgs/msg/JointState", "std_msgs/msg/Header", "builtin_interfaces/msg/Time")
)


@dataclasses.dataclass
class Topic:
    """What is published on one topic: joints and their columns; changes are made to single messages."""

    name: str
    joints: list
    columns: list
    delay_ns: int = 0
    sign: float = 1.0
    has_velocity: bool = True
    has_effort: bool = True
    has_stamps: bool = True
    factor: float = 1.0


def write_bag(folder, samples, topics, plugin=StoragePlugin.MCAP, edit=lambda k, message: message):
    with Writer(folder, version=9, storage_plugin=plugin) as writer:
        names = {topic.name for topic in topics}
        connections = {name: writer.add_connection(name, STATE.__msgtype__, typestore=STORE) for name in names}
        for k, stamp in enumerate(samples.stamps):
            for topic in topics:
                own = int(stamp) + topic.delay_ns
                seconds, rest = divmod(own, 10**9) if topic.has_stamps else (0, 0)
                q, v, tau = (np.append(rows[k], 0.4)[topic.columns] for rows in (samples.q, samples.v, samples.tau))
                message = STATE(
                    HEADER(TIME(seconds, rest), ""),
                    topic.joints,
                    topic.factor * q,
                    v if topic.has_velocity else np.zeros(0),
                    topic.sign * tau if topic.has_effort else np.zeros(0),
                )
                data = STORE.serialize_cdr(edit(k, message), STATE.__msgtype__)
                writer.write(connections[topic.name], own, data)
    return folder


def states(robot, name="/joint_states", **changes):
    """All joints with a finger among them, in another order than the robot's."""
    columns = [7, *reversed(range(robot.n))]
    return Topic(name, [[*robot.joint_names, "finger"][k] for k in columns], columns, **changes)


def part(robot, name, numbers, **changes):
    return Topic(name, [robot.joint_names[k] for k in numbers], list(numbers), **changes)


def same(recording, samples):
    found = recording.samples
    np.testing.assert_array_equal(found.stamps, samples.stamps)
    for name in ("q", "v", "tau"):
        np.testing.assert_array_equal(getattr(found, name), getattr(samples, name))


@pytest.mark.parametrize("plugin", StoragePlugin)
@pytest.mark.parametrize("form", ["folder", "file", "folder of a killed recorder"])
def test_every_form_gives_the_same_samples(plugin, form, robot, short, tmp_path):
    folder = write_bag(tmp_path / "bag", short, [states(robot)], plugin)
    if form == "folder of a killed recorder":
        (folder / "metadata.yaml").unlink()
    path = next(folder.glob("*.mcap" if plugin is StoragePlugin.MCAP else "*.db3")) if form == "file" else folder
    recording = read_recording(path, robot)
    same(recording, short)
    assert recording.velocity_error is None and not recording.notices and not recording.caveats


@pytest.mark.parametrize("form", ["csv", "mcap", "bag", "db3", "folder"])
def test_reading_tells_how_far_it_is_and_may_be_ended(form, robot, short, tmp_path, monkeypatch):
    """What was read by then is the recording, and says so."""
    for module in (bags, mcap):
        monkeypatch.setattr(module, "WATCHED", 3)
    monkeypatch.setattr(tables, "_PIECE", 50)
    if form == "csv":
        path = write_csv(tmp_path / "a.csv", robot, short)
    elif form == "mcap":
        path = write_mcap(tmp_path / "a.mcap", batches_of(robot, short))
    else:
        plugin = StoragePlugin.SQLITE3 if form == "db3" else StoragePlugin.MCAP
        path = write_bag(tmp_path / "bag", short, [states(robot)], plugin)
        path = path if form == "folder" else next(file for file in path.iterdir() if file.suffix in (".mcap", ".db3"))
    shares = []
    whole = read_recording(path, robot, watch=lambda share: shares.append(share) is None)
    assert len(whole.samples) == len(short) and len(shares) > 3
    is_one_chunk = form in ("mcap", "bag")  # read at once
    assert shares == sorted(shares) and 0.5 < shares[-1] <= 1.0 and (is_one_chunk or shares[0] < 0.5)
    asked = []
    cut = read_recording(path, robot, watch=lambda share: asked.append(share) is None and len(asked) < len(shares) // 2)
    assert 0.1 < len(cut.samples) / len(short) < 0.8
    assert any(text.startswith("reading was stopped after") for text in cut.notices)
    same(dataclasses.replace(whole, batches=(whole.samples.slice(0, len(cut.samples)),)), cut.samples)


VENDORS = {
    "franka_msgs/msg/FrankaRobotState": (
        "std_msgs/Header header\nsensor_msgs/JointState measured_joint_state\n"
        "sensor_msgs/JointState tau_ext_hat_filtered\nuint8 robot_mode\n"
    ),
    "lbr_fri_idl/msg/LBRState": (
        "float64 sample_time\nint8 session_state\nuint32 time_stamp_sec\nuint32 time_stamp_nano_sec\n"
        "float64[7] measured_joint_position\nfloat64[7] measured_torque\nfloat64[7] external_torque\n"
    ),
    "control_msgs/msg/DynamicJointState": (
        "std_msgs/Header header\nstring[] joint_names\nInterfaceValue[] interface_values\n"
        + "=" * 80
        + "\nMSG: control_msgs/msg/InterfaceValue\nstring[] interface_names\nfloat64[] values\n"
    ),
}
"""Messages that arms publish, with the fields that matter here."""


def write_vendor_bag(folder, robot, samples, kind, plugin=StoragePlugin.MCAP):
    store = get_typestore(Stores.LATEST)
    store.register(get_types_from_msg(VENDORS[kind], kind))
    types, names = store.types, list(robot.joint_names)
    with Writer(folder, version=9, storage_plugin=plugin) as writer:
        connection = writer.add_connection("/robot", kind, typestore=store)
        for k, stamp in enumerate(samples.stamps):
            time = divmod(int(stamp), 10**9)
            header, (q, v, tau) = HEADER(TIME(*time), ""), (rows[k] for rows in (samples.q, samples.v, samples.tau))
            if "Franka" in kind:
                joints = STATE(HEADER(TIME(0, 0), ""), names, q, v, tau)
                message = types[kind](header, joints, STATE(header, names, q, v, 0.1 * tau), 2)
            elif "LBR" in kind:
                message = types[kind](0.005, 4, *time, q, tau, 0.1 * tau)
            else:
                value = types["control_msgs/msg/InterfaceValue"]
                rows = [value(["effort", "position", "velocity"], np.array(row)) for row in zip(tau, q, v, strict=True)]
                rows.append(value(["temperature"], np.array([40.0])))
                message = types[kind](header, [*names, "gripper"], rows)
            writer.write(connection, int(stamp), store.serialize_cdr(message, kind))
    return folder


@pytest.mark.parametrize("plugin", StoragePlugin)
@pytest.mark.parametrize("kind", VENDORS)
def test_messages_that_arms_publish_themselves_are_read(kind, plugin, robot, short, tmp_path):
    recording = read_recording(write_vendor_bag(tmp_path / "bag", robot, short, kind, plugin), robot)
    if "LBR" not in kind:
        assert not recording.caveats
        return same(recording, short)
    assert "velocities were computed from the positions" in recording.caveats[0]
    return same(recording, dataclasses.replace(short, v=recording.samples.v))


def test_joint_states_come_before_the_same_joints_in_other_messages(robot, short, tmp_path):
    """As a controller manager publishes both; a topic that is named is taken."""
    folder = tmp_path / "both"
    folder.mkdir()
    other, kind = dataclasses.replace(short, tau=2.0 * short.tau), "control_msgs/msg/DynamicJointState"
    bags_of = write_bag(tmp_path / "a", short, [states(robot)]), write_vendor_bag(tmp_path / "b", robot, other, kind)
    for number, made in enumerate(bags_of):
        shutil.copy(next(made.glob("*.mcap")), folder / f"{number}.mcap")
    same(read_recording(folder, robot), short)
    named = read_recording(folder, robot, ReadOptions(topics=("/robot",)))
    np.testing.assert_array_equal(named.samples.tau, 2.0 * short.tau)
    shutil.copy(next(write_bag(tmp_path / "c", short, [part(robot, "/joint_states", [0])]).glob("*.mcap")), folder)
    (folder / "0.mcap").unlink()  # joint states of one joint are none of the arm
    np.testing.assert_array_equal(read_recording(folder, robot).samples.tau, 2.0 * short.tau)


def test_messages_that_say_too_little_are_refused_with_what_lacks(robot, short, tmp_path):
    """SQLite bags of older ROS have no definitions; states of an LBR no names."""
    bag = write_vendor_bag(tmp_path / "lbr", robot, short, "lbr_fri_idl/msg/LBRState", StoragePlugin.SQLITE3)
    with pytest.raises(InvalidRecording, match="the file has 7 joints without names"):
        read_recording(bag, load_robot("kinova_gen3_6dof"))
    with closing(sqlite3.connect(next(bag.glob("*.db3")))) as file:
        file.execute("DELETE FROM message_definitions")
        file.commit()
    with pytest.raises(InvalidRecording, match="definition of lbr_fri_idl/msg/LBRState is missing.*ros2 bag convert"):
        read_recording(bag, robot)


def write_wrist_bag(folder, robot, payload, bias, rate=200, frames=()):
    """Three rests of an arm, with the wrenches of a sensor at its flange."""
    store, model = get_typestore(Stores.LATEST), robot.pin_model
    kinds = {"/joint_states": STATE.__msgtype__, "/ft": "geometry_msgs/msg/WrenchStamped"}
    wrench, stamped, vector = (
        store.types[f"geometry_msgs/msg/{one}"] for one in ("Wrench", "WrenchStamped", "Vector3")
    )
    rng, arm = np.random.default_rng(3), ArmDynamics(robot, robot.theta_nominal, payload)
    to_sensor = pin.SE3(*frame_placement(robot, robot.flange_frame)).inverse()
    with Writer(folder, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        topics = {name: writer.add_connection(name, kind, typestore=store) for name, kind in kinds.items()}
        for rest in range(3):
            q, data = robot.home + rng.uniform(-0.6, 0.6, robot.n), model.createData()
            pin.forwardKinematics(model, data, q)
            gravity = pin.Motion(data.oMi[robot.n].rotation.T @ robot.gravity, np.zeros(3))
            measured = (to_sensor * (pin.Inertia.FromDynamicParameters(payload) * gravity)).vector + bias
            for k in range(int(1.5 * rate)):
                own = 10**9 * (100 + 5 * rest) + k * 10**9 // rate
                header = HEADER(TIME(*divmod(own, 10**9)), robot.flange_frame)
                noise = 1e-4 * rng.uniform(-1.0, 1.0, (2, robot.n))
                messages = {
                    "/joint_states": STATE(header, list(robot.joint_names), q, noise[0], arm.gravity(q) + noise[1]),
                    "/ft": stamped(header, wrench(vector(*measured[:3]), vector(*measured[3:]))),
                }
                if frames:  # each sample in another one, the first of no number
                    messages["/ft"].header.frame_id = frames[k % len(frames)]
                    messages["/ft"].wrench.force.x = np.nan if k == 0 else measured[0]
                for name, message in messages.items():
                    writer.write(topics[name], own, store.serialize_cdr(message, kinds[name]))
    return folder


def test_a_wrist_sensor_in_the_bag_narrows_the_payload(tmp_path):
    """Of an arm without a tool; the sensor's bias is not known."""
    robot = load_robot("kinova_gen3")
    payload = from_com_form(1.2, robot.payload_prior.shape.com.center, 0.003 * np.eye(3))
    bag = write_wrist_bag(tmp_path / "bag", robot, payload, [3.0, -2.0, 8.0, 0.1, 0.2, -0.1])
    words = [str(bag), "--model", "kinova_gen3", "--effort-sign", "1", "--output", str(tmp_path)]
    plain, weighed = (
        identify_file(file=words[0], folder=name, **vars(offline_parser().read([*words, *more])))
        for name, more in (("a", []), ("b", ["--wrench", "/ft", "--wrench-error", "0.2", "0.01"]))
    )
    for one in (plain, weighed):
        assert np.all((one["lower"] <= payload) & (payload <= one["upper"]))
    assert weighed["upper"][0] - weighed["lower"][0] < min(0.2, 0.3 * (plain["upper"][0] - plain["lower"][0]))
    with pytest.raises(InvalidRecording, match="none on /other, but on /ft"):
        bags.read_wrenches(bag, "/other")
    bodies = ["--wrench", "/ft", "--wrench-error", "1", "1", "--body", "all"]
    for more in (
        bodies,
        ["--wrench", "/ft"],
        ["--wrench", "/ft", "--wrench-error", "1", "nan"],
        ["--wrench-error", "1", "1"],
        ["--wrench", "/ft", "--wrench-error", "-1", "1"],
    ):
        with pytest.raises((SystemExit, ParameterOutOfRange)):
            offline_parser().read([*words, *more])


def test_a_tare_of_the_same_sensor_takes_the_tool_off(tmp_path):
    robot, bias = load_robot("kinova_gen3"), np.array([3.0, -2.0, 8.0, 0.1, 0.2, -0.1])
    payload = from_com_form(1.2, robot.payload_prior.shape.com.center, 0.003 * np.eye(3))
    tool = from_com_form(0.3, 0.5 * robot.payload_prior.shape.com.center, 1e-3 * np.eye(3))
    bag = write_wrist_bag(tmp_path / "bag", robot, tool + payload, bias)
    empty = write_wrist_bag(tmp_path / "empty", robot, tool, bias)
    other = write_wrist_bag(tmp_path / "other", robot, tool, bias, 200, ("another",))
    words = [str(bag), "--model", "kinova_gen3", "--wrench", "/ft", "--wrench-error", "0.2", "0.01", "--tare"]
    recording, tare = (read_recording(one, robot, ReadOptions(effort_sign=1.0)) for one in (bag, empty))
    options = offline_parser().read([*words, str(empty)])
    prior = offline._weighed_at_the_wrist(options, str(bag), robot, recording, tare).payload_prior
    assert prior.contains(payload) and prior.box.width[0] < 0.3
    options = offline_parser().read([*words, str(other)])
    with pytest.raises(InvalidRecording, match="the frame of /ft is 'another'"):
        offline._weighed_at_the_wrist(options, str(bag), robot, recording, tare)


def test_wrenches_are_finite_of_one_frame_and_read_up_to_a_cut(tmp_path):
    robot = load_robot("kinova_gen3")
    payload = from_com_form(1.2, robot.payload_prior.shape.com.center, 0.003 * np.eye(3))
    bag = write_wrist_bag(tmp_path / "one", robot, payload, np.zeros(6), 20, (robot.flange_frame,))
    wrenches, frame = bags.read_wrenches(bag, "/ft")
    assert len(wrenches.stamps) == 3 * 29 and np.isfinite(wrenches.values).all() and frame == robot.flange_frame
    with pytest.raises(InvalidRecording, match="frame of /ft is 'a', 'b'"):
        bags.read_wrenches(write_wrist_bag(tmp_path / "two", robot, payload, np.zeros(6), 20, "ab"), "/ft")
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(next(bag.glob("*.mcap")).read_bytes()[:-60_000])
    table = tmp_path / "table.csv"
    table.write_text("time,q1\n")
    for path in (cut, table):
        with pytest.raises(InvalidRecording, match="the bag is cut off, damaged or none"):
            bags.read_wrenches(path, "/ft")


def test_a_cut_bag_is_read_up_to_the_cut(robot, short, tmp_path):
    file = next(write_bag(tmp_path / "bag", short, [states(robot)]).glob("*.mcap"))
    whole = file.read_bytes()
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(whole[: len(whole) * 2 // 3])
    with pytest.raises(InvalidRecording, match="the bag is unreadable"):
        read_recording(cut, robot)  # this writer makes one chunk, and that is not whole
    shutil.copytree(tmp_path / "bag", tmp_path / "two")
    shutil.copy(cut, tmp_path / "two" / "later.mcap")
    (tmp_path / "two" / "metadata.yaml").unlink()
    recording = read_recording(tmp_path / "two", robot)
    same(recording, short)
    assert "cut off or damaged" in recording.notices[0]


def test_a_cut_sqlite_file_is_read_up_to_the_cut(robot, short, tmp_path):
    """Alone, and where the folder with its metadata was copied in part."""
    file = next(write_bag(tmp_path / "bag", short, [states(robot)], StoragePlugin.SQLITE3).glob("*.db3"))
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) * 2 // 3])
    for path in (file, file.parent):
        recording = read_recording(path, robot)
        count = len(recording.samples)
        assert 0.3 * len(short) < count < 0.8 * len(short)
        same(recording, short.slice(0, count))
        assert "cut off or damaged" in recording.notices[0]


def test_joints_split_over_topics_are_put_together(robot, short, tmp_path):
    topics = [part(robot, "/left", (4, 0, 1)), part(robot, "/right", (2, 3, 5, 6)), Topic("/hand", ["finger"], [7])]
    recording = read_recording(write_bag(tmp_path / "bag", short, topics), robot)
    same(recording, short)
    assert not recording.caveats


def test_publishers_that_share_a_topic_are_told_apart(robot, short, tmp_path):
    arm, hand = states(robot), Topic("/joint_states", ["finger"], [7], delay_ns=300_000)
    same(read_recording(write_bag(tmp_path / "bag", short, [arm, hand]), robot), short)


def test_topics_with_stamps_of_their_own_are_interpolated_and_that_is_said(robot, short, tmp_path):
    topics = [part(robot, "/left", range(3)), part(robot, "/right", range(3, 7), delay_ns=200_000)]
    recording = read_recording(write_bag(tmp_path / "bag", short, topics), robot)
    found = recording.samples
    at = np.searchsorted(short.stamps, found.stamps)
    np.testing.assert_allclose(found.q[5:-5], short.q[at][5:-5], atol=1e-3)
    assert "was interpolated" in recording.caveats[0] and "0.2 ms" not in recording.notices


def test_the_sign_of_efforts_is_what_gravity_shows(robot, short, tmp_path):
    turned = write_bag(tmp_path / "bag", short, [states(robot, sign=-1.0)])
    recording = read_recording(turned, robot)
    same(recording, short)
    assert "against the joint direction, as gravity shows" in recording.notices[0]
    stated = read_recording(turned, robot, ReadOptions(effort_sign=1.0))
    np.testing.assert_array_equal(stated.samples.tau, -short.tau)


def test_velocities_that_nobody_measured_are_computed(robot, short, tmp_path):
    def still(k, message):
        return dataclasses.replace(message, velocity=np.zeros(len(message.name)))

    for name, topic, edit in (
        ("none", states(robot, has_velocity=False), lambda k, message: message),
        ("zero", states(robot), still),
    ):
        recording = read_recording(write_bag(tmp_path / name, short, [topic], edit=edit), robot)
        assert recording.velocity_error is not None and "computed from the positions" in recording.caveats[0]
        assert "all velocities are computed from positions" in recording.notices[0]


def test_single_bad_messages_are_left_out(robot, short, tmp_path):
    def edit(k, message):
        if k == 20:
            return dataclasses.replace(message, effort=np.full(len(message.name), np.nan))
        if k == 30:  # the same message again, as it were
            previous = divmod(int(short.stamps[29]), 10**9)
            return dataclasses.replace(message, header=HEADER(TIME(*previous), ""))
        return message

    recording = read_recording(write_bag(tmp_path / "bag", short, [states(robot)], edit=edit), robot)
    kept = np.delete(short.stamps, [20, 30])
    np.testing.assert_array_equal(recording.samples.stamps, kept)
    assert "/joint_states: 1 repeated or late sample left out" in recording.notices[0]
    assert "1 sample left out in which a number is missing" in recording.notices[1]


def test_names_units_and_missing_stamps(robot, short, tmp_path):
    topic = states(robot, factor=180.0 / np.pi, has_stamps=False)
    topic.joints = [f"ur_{name}" for name in topic.joints]
    options = ReadOptions(joint_names={f"ur_{name}": name for name in robot.joint_names}, units={"q": "deg"})
    recording = read_recording(write_bag(tmp_path / "bag", short, [topic]), robot, options)
    np.testing.assert_array_equal(recording.samples.stamps, short.stamps)
    np.testing.assert_allclose(recording.samples.q, short.q, rtol=1e-12)
    assert "300 messages have no stamp" in recording.caveats[0]


REFUSED = {
    "degrees": (
        lambda r: [states(r, factor=180.0 / np.pi)],
        "the position of joint_. in sample .*they may be in degrees: say --units 'q=deg'",
    ),
    "no efforts": (lambda r: [states(r, has_effort=False)], "the effort of joint_1 is missing, or zero throughout"),
    "a joint is missing": (
        lambda r: [part(r, "/arm", range(6))],
        "the list of joints is without joint_7; the file has joint_1.*--map NAME=JOINT",
    ),
    "two arms": (lambda r: [states(r, "/a"), states(r, "/b")], "the topic of .* one of /a, /b .--topic."),
    "a joint twice": (
        lambda r: [part(r, "/a", range(4)), part(r, "/b", range(3, 7))],
        "joint joint_4 is on several topics ./a, /b.",
    ),
    "no arm": (lambda r: [Topic("/hand", ["finger"], [7])], "the list of joints is without joint_1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_refused_by_name(case, robot, short, tmp_path):
    make, message = REFUSED[case]
    with pytest.raises(InvalidRecording, match=message):
        read_recording(write_bag(tmp_path / "bag", short, make(robot)), robot)


def test_a_topic_may_be_chosen(robot, short, tmp_path):
    bag = write_bag(tmp_path / "bag", short, [states(robot, "/a"), states(robot, "/b", factor=2.0)])
    same(read_recording(bag, robot, ReadOptions(topics=("/a",))), short)
    with pytest.raises(InvalidRecording, match="JointState, or of this suite's samples is none on /c"):
        read_recording(bag, robot, ReadOptions(topics=("/c",)))


def test_folders_that_are_no_bags_and_wrong_options_are_refused(robot, tmp_path):
    with pytest.raises(InvalidRecording, match="the folder is without a bag; expected metadata.yaml, or files .mcap"):
        read_recording(tmp_path, robot)
    with pytest.raises(ParameterOutOfRange, match="q=grad.*q=rad or deg"):
        ReadOptions(units={"q": "grad"})
    with pytest.raises(ParameterOutOfRange, match="1 or -1"):
        ReadOptions(effort_sign=2.0)
