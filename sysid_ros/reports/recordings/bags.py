"""Reads bags of joint states, as ROS users have them: rosbag2 folders, ``.mcap``, ``.db3``, ``.bag``.

Messages are ``sensor_msgs/JointState``, or where there are none of the arm, those that arms publish themselves.

A bag says neither the meaning of the efforts nor which joints belong together, so the joints of the robot are sought in
all streams of joint states (a topic on which two nodes publish has two), and the sign of the efforts is compared with
gravity unless it is stated.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.optional import optional_module
from sysid_ros.core.estimation.windows.samples import Wrenches
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.reports.recordings.mcap import message_decoder
from sysid_ros.reports.recordings.options import BAGS, UNITS, InvalidRecording, ReadOptions
from sysid_ros.reports.recordings.readers import (
    WATCHED,
    Recording,
    Watch,
    cut_repeats,
    describe_stop,
    missing_joints,
    read_all,
)
from sysid_ros.reports.recordings.sense import RawSamples, make_recording, unwrap

mcap_reader = optional_module("mcap.reader")
rosbags, rosbags_types = optional_module("rosbags.highlevel"), optional_module("rosbags.typesys")

Array = NDArray[np.float64]

JOINT_STATE, _WRENCH = "sensor_msgs/msg/JointState", "geometry_msgs/msg/WrenchStamped"
_QUANTITIES = {"q": "position", "v": "velocity", "tau": "effort"}
_Joints = tuple[tuple[str, ...], int, Mapping[str, Array]]
"""Names, stamp [ns], 0 without one, and quantities in SI units; one that is empty is missing."""


def _stamp(stamp: Any) -> int:
    return int(stamp.sec) * 10**9 + int(stamp.nanosec)


def _of_joint_state(message: Any, _: tuple[str, ...]) -> _Joints:
    values = {name: getattr(message, attribute) for name, attribute in _QUANTITIES.items()}
    return tuple(message.name), _stamp(message.header.stamp), values


def _of_franka_state(message: Any, _: tuple[str, ...]) -> _Joints:
    names, own, values = _of_joint_state(message.measured_joint_state, _)
    return names, own or _stamp(message.header.stamp), values


def _of_lbr_state(message: Any, joint_names: tuple[str, ...]) -> _Joints:
    # It has no names: its joints are those of the arm, from base to flange. It has no velocities either.
    stamp = int(message.time_stamp_sec) * 10**9 + int(message.time_stamp_nano_sec)
    if len(message.measured_joint_position) != len(joint_names):
        return (f"{len(message.measured_joint_position)} joints without names",), stamp, {}
    values = {"q": message.measured_joint_position, "v": np.zeros(0), "tau": message.measured_torque}
    return joint_names, stamp, values


def _of_dynamic_state(message: Any, _: tuple[str, ...]) -> _Joints:
    joints = [dict(zip(one.interface_names, one.values, strict=True)) for one in message.interface_values]
    values = {name: np.array([one.get(attribute, np.nan) for one in joints]) for name, attribute in _QUANTITIES.items()}
    return tuple(message.joint_names), _stamp(message.header.stamp), values


_TYPES: Mapping[str, Callable[[Any, tuple[str, ...]], _Joints]] = {
    JOINT_STATE: _of_joint_state,
    "franka_msgs/msg/FrankaRobotState": _of_franka_state,
    "lbr_fri_idl/msg/LBRState": _of_lbr_state,
    "control_msgs/msg/DynamicJointState": _of_dynamic_state,
}
"""Types of messages that are read."""
_SAME_TIME = 1000
"""Stamps of two streams that differ by less are one [ns]."""


_Columns = tuple[tuple[str, ...], NDArray[np.int64], Mapping[str, Array]]
"""Names of joints, stamps (N,) [ns], and of each quantity (N, number of joints) in SI units."""


@dataclass
class _Stream:
    """Joint states of one topic with the same names; numbers that a message lacks are NaN."""

    topic: str
    names: tuple[str, ...]  # after renaming
    stamps: list[int] = field(default_factory=list)  # of the headers, or of the recorder where one has none [ns]
    values: dict[str, list[Array]] = field(default_factory=lambda: {name: [] for name in _QUANTITIES})
    unstamped: int = 0

    def add(self, own_ns: int, values: Mapping[str, Array], order: list[int], recorded_ns: int) -> None:
        """Take a message in; ``order`` says where in it the joints of the stream are."""
        self.unstamped += own_ns == 0
        self.stamps.append(own_ns or recorded_ns)
        for name, row in values.items():
            self.values[name].append(row[order] if len(row) == len(order) else np.full(len(order), np.nan))


def read_bag(path: Path, robot: RobotModel, options: ReadOptions, watch: Watch = read_all) -> Recording:
    """Read the joints of an arm from a bag.

    Args:
        path: A folder of rosbag2, or a file ``.mcap``, ``.db3`` or ``.bag``; one that was cut off is read as far as
            it goes.
        robot: The arm; joints are matched by name, other joints are ignored.
        options: Topics, names, units and sign, where the bag leaves them open.
        watch: Told how far it is, and may end it.

    Raises:
        InvalidRecording: No joint states, a joint is missing or is there twice, efforts are missing, their sign is
            not clear, or numbers do not fit this arm.
    """
    if "t" in options.units:
        raise InvalidRecording(path, "the unit of t", "given", "none: stamps of a bag have one")
    streams, notices = list[_Stream](), list[str]()
    for types in [tuple(_TYPES)] if options.topics else [(JOINT_STATE,), tuple(_TYPES)[1:]]:
        if not set(robot.joint_names) <= {name for stream in streams for name in stream.names}:
            found, notices = _collect(path, robot, options, watch, types)
            streams += found
    if not streams:
        where = " or ".join(options.topics) or "any topic"
        types_text = f"the messages of type {', '.join(_TYPES)}, or of this suite's samples"
        raise InvalidRecording(path, types_text, f"none on {where}", "at least two")
    chosen = _choose(path, robot, streams, options)
    caveats = []
    unstamped = sum(stream.unstamped for stream in chosen)
    if unstamped:
        caveats.append(f"{unstamped} messages have no stamp: the time at which they were recorded is taken for it")
    columns, told = zip(*(_tidy(path, stream, options) for stream in chosen), strict=True)
    notices += [sentence for sentences in told for sentence in sentences]
    stamps, values, joined = _join(path, robot, columns)
    caveats += joined
    raw = RawSamples(stamps, values["q"], values["v"], values["tau"], tuple(notices), tuple(caveats))
    return make_recording(path, robot, raw, options)


def read_wrenches(path: Path, topic: str) -> tuple[Wrenches, str]:
    """Read ``geometry_msgs/WrenchStamped`` of a topic of a bag; return the wrenches and the frame they are in.

    Messages with numbers that are not finite are left out; a bag that was cut off is read as far as it goes.

    Raises:
        InvalidRecording: There is none on this topic, or they are in several frames.
    """
    stamps, rows, frames, others = list[int](), list[list[float]](), set[str](), set[str]()
    damage = ""
    try:
        for _, name, _, recorded_ns, message in _messages(path, (_WRENCH,)):
            others.add(name)
            force, moment = message.wrench.force, message.wrench.torque
            row = [force.x, force.y, force.z, moment.x, moment.y, moment.z]
            if name == topic and np.isfinite(row).all():
                stamps.append(_stamp(message.header.stamp) or recorded_ns)
                rows.append(row)
                frames.add(message.header.frame_id)
    except Exception as error:  # as of joint states
        damage = f"; the bag is cut off, damaged or none ({error})"
    if not rows:
        found = f"none on {topic}" + (f", but on {', '.join(sorted(others))}" if others else "") + damage
        raise InvalidRecording(path, f"the messages of type {_WRENCH}", found, "those of the wrist sensor (--wrench)")
    if len(frames) > 1:
        raise InvalidRecording(path, f"the frame of {topic}", ", ".join(map(repr, sorted(frames))), "a single frame")
    order = np.argsort(stamps, kind="stable")
    return Wrenches(np.array(stamps, dtype=np.int64)[order], np.array(rows)[order]), frames.pop()


# Messages


def _collect(
    path: Path, robot: RobotModel, options: ReadOptions, watch: Watch, types: tuple[str, ...]
) -> tuple[list[_Stream], list[str]]:
    streams: dict[tuple[str, tuple[str, ...]], _Stream] = {}
    damage, notices = None, list[str]()
    usual: dict[tuple[str, tuple[str, ...]], tuple[str, ...] | None] = {}
    try:
        for number, (share, topic, kind, recorded_ns, message) in enumerate(_messages(path, types)):
            if number % WATCHED == 0 and not watch(share):
                notices.append(describe_stop(share))
                break
            if options.topics and topic not in options.topics:
                continue
            names, own_ns, values = _TYPES[kind](message, robot.joint_names)
            key, order = (topic, tuple(sorted(names))), sorted(range(len(names)), key=names.__getitem__)
            if key not in streams:
                streams[key] = _Stream(topic, tuple(options.joint_names.get(name, name) for name in key[1]))
            if usual.setdefault(key, names) not in (names, None):
                notices.append(f"{topic}: joints come in another order from message {number + 1} on; found by name")
                usual[key] = None  # told once
            streams[key].add(own_ns, values, order, recorded_ns)
    except InvalidRecording:
        raise
    except Exception as error:  # neither reader has a common error for damaged files
        damage = f"{error}" or type(error).__name__
        if not streams:
            raise InvalidRecording(path, "the bag", f"unreadable ({damage})", "a bag of ROS") from error
    if damage is not None:
        notices.append(f"the bag is cut off or damaged ({damage}); what comes before was read")
    return list(streams.values()), notices


_Message = tuple[float, str, str, int, Any]
"""Share of the bag that is read, topic, type, time of the recorder [ns], and content."""


def _messages(path: Path, types: tuple[str, ...]) -> Iterator[_Message]:
    files = _files(path)
    sizes = np.array([max(file.stat().st_size, 1) for file in files], dtype=float)
    ends = np.cumsum(sizes) / sizes.sum()
    for file, size, end in zip(files, sizes / sizes.sum(), ends, strict=True):
        read = _mcap_messages if file.suffix == ".mcap" else _rosbags_messages
        messages = (_cut_db3_messages if _is_cut_db3(file) else read)(file, types)
        for share, topic, kind, stamp, message in messages:
            yield float(end - size * (1.0 - share)), topic, kind, stamp, message


def _files(path: Path) -> list[Path]:
    """Return what one reader can open each: of a folder that lacks metadata or whose files are cut off, its files."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in BAGS)
    if (path / "metadata.yaml").is_file() and not any(map(_is_cut_db3, files)):
        return [path]
    if not files:
        raise InvalidRecording(path, "the folder", "without a bag", "metadata.yaml, or files " + ", ".join(BAGS))
    return files


def _mcap_messages(path: Path, types: tuple[str, ...]) -> Iterator[_Message]:
    """Yield the joint states of an MCAP file, which needs no end and no index."""
    decoders: dict[str, Callable[[bytes], Any]] = {}
    size = path.stat().st_size
    with open(path, "rb") as file:
        reader = mcap_reader.NonSeekingReader(file, validate_crcs=True)
        for schema, channel, message in reader.iter_messages(log_time_order=False):
            if schema is None or schema.name not in types:
                continue
            if schema.name not in decoders:
                definition = "" if schema.name in (JOINT_STATE, _WRENCH) else schema.data.decode()
                decoders[schema.name] = message_decoder(schema.name, definition)
            content = decoders[schema.name](message.data)
            yield file.tell() / size, channel.topic, schema.name, message.log_time, content


def _open_db3(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)


def _is_cut_db3(path: Path) -> bool:
    if path.suffix != ".db3":
        return False
    with closing(_open_db3(path)) as file:
        try:
            file.execute("SELECT name FROM sqlite_master").fetchall()
        except sqlite3.DatabaseError:
            return True
    return False


def _cut_db3_messages(path: Path, types: tuple[str, ...]) -> Iterator[_Message]:
    """Yield the joint states of an SQLite file in the order in which they were written, up to the cut."""
    store = rosbags_types.get_typestore(rosbags_types.Stores.LATEST)
    with closing(_open_db3(path)) as file:
        file.execute("PRAGMA writable_schema = ON")  # opens it nevertheless; nothing is written
        rows = file.execute("SELECT id, name, type FROM topics").fetchall()
        topics = {one: (name, kind) for one, name, kind in rows if kind in types and kind in store.types}
        for topic, stamp, data in file.execute("SELECT topic_id, timestamp, data FROM messages"):
            if topic in topics:
                yield 0.0, *topics[topic], stamp, store.deserialize_cdr(data, topics[topic][1])


def _rosbags_messages(path: Path, types: tuple[str, ...]) -> Iterator[_Message]:
    store = rosbags_types.get_typestore(rosbags_types.Stores.LATEST)
    with rosbags.AnyReader([path], default_typestore=store) as reader:
        wanted = [connection for connection in reader.connections if connection.msgtype in types]
        connections = [one for one in wanted if one.msgtype in reader.typestore.types]
        if wanted and not connections:
            allowed = "in the bag: convert it to MCAP with `ros2 bag convert` where that package is installed"
            raise InvalidRecording(path, f"the definition of {wanted[0].msgtype}", "missing", allowed)
        total = max(sum(connection.msgcount for connection in connections), 1)
        messages = reader.messages(connections) if connections else ()
        for number, (connection, recorded_ns, data) in enumerate(messages):
            content = reader.deserialize(data, connection.msgtype)
            yield number / total, connection.topic, connection.msgtype, recorded_ns, content


# From streams to samples


def _choose(path: Path, robot: RobotModel, streams: list[_Stream], options: ReadOptions) -> list[_Stream]:
    wanted, known = set(robot.joint_names), sorted({name for stream in streams for name in stream.names})
    streams = [stream for stream in streams if wanted & set(stream.names) and len(stream.stamps) > 1]
    whole = [stream for stream in streams if wanted <= set(stream.names)]
    if len(whole) == 1:
        return whole
    topics = ", ".join(sorted({stream.topic for stream in streams}))
    if len(whole) > 1:
        raise InvalidRecording(path, "the topic of the joint states", "not given", f"one of {topics} (--topic)")
    names = [name for stream in streams for name in stream.names if name in wanted]
    missing = [name for name in robot.joint_names if name not in names]
    if missing:
        raise missing_joints(path, robot, missing, known)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        found = f"on several topics ({topics})"
        raise InvalidRecording(path, f"joint {twice[0]}", found, "one topic for each joint: choose with --topic")
    return streams


def _tidy(path: Path, stream: _Stream, options: ReadOptions) -> tuple[_Columns, list[str]]:
    stamps = np.array(stream.stamps, dtype=np.int64)
    kept, notices = cut_repeats(path, stamps)
    values = {
        name: UNITS[name].get(options.units.get(name, ""), 1.0) * np.array(rows, dtype=float)[kept]
        for name, rows in stream.values.items()
    }
    return (stream.names, stamps[kept], values), [f"{stream.topic}: {sentence}" for sentence in notices]


def _join(
    path: Path, robot: RobotModel, columns: Sequence[_Columns]
) -> tuple[NDArray[np.int64], dict[str, Array], list[str]]:
    """Put joints together at the times of the stream with the fewest samples; say what makes that no guarantee."""
    base = min((stamps for _, stamps, _ in columns), key=len)
    start, end = max(stamps[0] for _, stamps, _ in columns), min(stamps[-1] for _, stamps, _ in columns)
    stamps = base[(base >= start) & (base <= end)]
    if len(stamps) < 2:
        raise InvalidRecording(path, "the time that the topics have in common", "empty", "topics recorded together")
    values = {name: np.full((len(stamps), robot.n), np.nan) for name in _QUANTITIES}
    worst = 0
    for names, own, quantities in columns:
        places = [place for place, name in enumerate(robot.joint_names) if name in names]
        order = [names.index(robot.joint_names[place]) for place in places]
        after = np.clip(np.searchsorted(own, stamps), 1, len(own) - 1)
        nearest = after - (stamps - own[after - 1] < own[after] - stamps)
        away = int(np.abs(own[nearest] - stamps).max())
        worst = max(worst, away)
        for name, all_rows in quantities.items():
            rows = all_rows[:, order]
            if away > _SAME_TIME:
                rows = unwrap(rows) if name == "q" else rows
                at, times = 1e-9 * (stamps - own[0]), 1e-9 * (own - own[0])
                values[name][:, places] = np.column_stack([np.interp(at, times, one) for one in rows.T])
            else:
                values[name][:, places] = rows[nearest]
    if worst <= _SAME_TIME:
        return stamps, values, []
    return stamps, values, [
        f"joints come on several topics whose stamps differ by up to {1e-6 * worst:.3g} ms: what lies between two "
        "stamps was interpolated"
    ]  # fmt: skip
