"""Reads bags of ``sensor_msgs/JointState``, as ROS users have them: rosbag2 folders, ``.mcap``, ``.db3``, ``.bag``.

A bag says neither the meaning of the efforts nor which joints belong together, so the joints of the robot are sought in
all streams of joint states (a topic on which two nodes publish has two), and the sign of the efforts is compared with
gravity unless it is stated.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.optional import optional_module
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

JOINT_STATE = "sensor_msgs/msg/JointState"
_QUANTITIES = {"q": "position", "v": "velocity", "tau": "effort"}
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

    def add(self, message: Any, order: list[int], recorded_ns: int) -> None:
        """Take a message in; ``order`` says where in it the joints of the stream are."""
        stamp = message.header.stamp
        own = int(stamp.sec) * 10**9 + int(stamp.nanosec)
        self.unstamped += own == 0
        self.stamps.append(own or recorded_ns)
        for name, attribute in _QUANTITIES.items():
            row = getattr(message, attribute)
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
    streams, notices = _collect(path, options, watch)
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


# Messages


def _collect(path: Path, options: ReadOptions, watch: Watch) -> tuple[list[_Stream], list[str]]:
    streams: dict[tuple[str, tuple[str, ...]], _Stream] = {}
    damage, notices = None, list[str]()
    usual: dict[tuple[str, tuple[str, ...]], tuple[str, ...] | None] = {}
    try:
        for number, (share, topic, recorded_ns, message) in enumerate(_messages(path)):
            if number % WATCHED == 0 and not watch(share):
                notices.append(describe_stop(share))
                break
            if options.topics and topic not in options.topics:
                continue
            names = tuple(message.name)
            key, order = (topic, tuple(sorted(names))), sorted(range(len(names)), key=names.__getitem__)
            if key not in streams:
                streams[key] = _Stream(topic, tuple(options.joint_names.get(name, name) for name in key[1]))
            if usual.setdefault(key, names) not in (names, None):
                notices.append(f"{topic}: joints come in another order from message {number + 1} on; found by name")
                usual[key] = None  # told once
            streams[key].add(message, order, recorded_ns)
    except InvalidRecording:
        raise
    except Exception as error:  # neither reader has a common error for damaged files
        damage = f"{error}" or type(error).__name__
        if not streams:
            raise InvalidRecording(path, "the bag", f"unreadable ({damage})", "a bag of ROS") from error
    if not streams:
        where = " or ".join(options.topics) or "any topic"
        types = f"the messages of type {JOINT_STATE}, or of this suite's samples"
        raise InvalidRecording(path, types, f"none on {where}", "at least two")
    if damage is not None:
        notices.append(f"the bag is cut off or damaged ({damage}); what comes before was read")
    return list(streams.values()), notices


def _messages(path: Path) -> Iterator[tuple[float, str, int, Any]]:
    files = _files(path)
    sizes = np.array([max(file.stat().st_size, 1) for file in files], dtype=float)
    ends = np.cumsum(sizes) / sizes.sum()
    for file, size, end in zip(files, sizes / sizes.sum(), ends, strict=True):
        read = _mcap_messages if file.suffix == ".mcap" else _rosbags_messages
        messages = (_cut_db3_messages if _is_cut_db3(file) else read)(file)
        for share, *rest in messages:
            yield float(end - size * (1.0 - share)), *rest


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


def _mcap_messages(path: Path) -> Iterator[tuple[float, str, int, Any]]:
    """Yield the joint states of an MCAP file, which needs no end and no index."""
    decode, size = message_decoder(JOINT_STATE), path.stat().st_size
    with open(path, "rb") as file:
        reader = mcap_reader.NonSeekingReader(file, validate_crcs=True)
        for schema, channel, message in reader.iter_messages(log_time_order=False):
            if schema is not None and schema.name == JOINT_STATE:
                yield file.tell() / size, channel.topic, message.log_time, decode(message.data)


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


def _cut_db3_messages(path: Path) -> Iterator[tuple[float, str, int, Any]]:
    """Yield the joint states of an SQLite file in the order in which they were written, up to the cut."""
    store = rosbags_types.get_typestore(rosbags_types.Stores.LATEST)
    with closing(_open_db3(path)) as file:
        file.execute("PRAGMA writable_schema = ON")  # opens it nevertheless; nothing is written
        topics = dict(file.execute("SELECT id, name FROM topics WHERE type = ?", (JOINT_STATE,)))
        for topic, stamp, data in file.execute("SELECT topic_id, timestamp, data FROM messages"):
            if topic in topics:
                yield 0.0, topics[topic], stamp, store.deserialize_cdr(data, JOINT_STATE)


def _rosbags_messages(path: Path) -> Iterator[tuple[float, str, int, Any]]:
    store = rosbags_types.get_typestore(rosbags_types.Stores.LATEST)
    with rosbags.AnyReader([path], default_typestore=store) as reader:
        connections = [connection for connection in reader.connections if connection.msgtype == JOINT_STATE]
        total = max(sum(connection.msgcount for connection in connections), 1)
        messages = reader.messages(connections) if connections else ()
        for number, (connection, recorded_ns, data) in enumerate(messages):
            yield number / total, connection.topic, recorded_ns, reader.deserialize(data, connection.msgtype)


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
