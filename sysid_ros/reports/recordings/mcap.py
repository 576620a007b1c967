"""Reads the samples of a recording (MCAP) of this suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.common.optional import optional_module
from sysid_ros.core.estimation.windows.samples import SampleBlock, split_into_blocks
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.reports.recordings.options import InvalidRecording, ReadOptions
from sysid_ros.reports.recordings.readers import (
    WATCHED,
    Recording,
    Watch,
    choose_joints,
    describe_gaps,
    describe_stop,
    read_all,
)
from sysid_ros.reports.recordings.recording import FIRST_STAMP, LAST_STAMP, METADATA

mcap_exceptions = optional_module("mcap.exceptions")
mcap_reader, mcap_records = optional_module("mcap.reader"), optional_module("mcap.records")
mcap_stream_reader, rosbags_types = optional_module("mcap.stream_reader"), optional_module("rosbags.typesys")

Array = NDArray[np.float64]

SAMPLES = "sysid_msgs/msg/SampleBatch"
_END = 2**63 - 1
_PER_JOINT = {
    "q": "positions",
    "v": "velocities",
    "tau": "efforts",
    "q_d": "reference_positions",
    "v_d": "reference_velocities",
    "tau_command": "commanded_efforts",
}


class DamagedRecording(SysidError):
    """An MCAP file that cannot be read to its end.

    Args:
        path: The file.
        reason: What the reader says.
    """

    def __init__(self, path: Path | str, reason: str):
        self.path = Path(path)
        self.reason = reason
        super().__init__(f"{self.path.name} is not a complete MCAP file: {reason}")


@dataclass
class _Collected:
    """What has been read so far; arrays of the samples that became part of a block."""

    first_stamp: int  # Samples before this stamp are not used [ns]
    last_stamp: int  # Samples after this stamp are not used [ns]
    batches: list[SampleBlock] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    extra: dict[str, list[Array]] = field(default_factory=lambda: {"q_d": [], "v_d": [], "tau_command": []})
    notices: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class McapMessage:
    """One decoded message.

    Attributes:
        topic: Topic it was recorded from.
        type_name: ``package/msg/Name``.
        stamp_ns: Time it was recorded with [ns].
        message: Object with the message's fields.
    """

    topic: str
    type_name: str
    stamp_ns: int
    message: Any


def read_mcap(path: Path, robot: RobotModel, options: ReadOptions, watch: Watch = read_all) -> Recording:
    """Read all sample batches of one topic.

    Args:
        path: The file; one that was cut off by a crash is read as far as it goes.
        robot: The arm; joints are matched by name.
        options: Names the topic of the batches where there are several; the rest such a file says itself.
        watch: Told how far it is, and may end it.

    Raises:
        DamagedRecording: Not an MCAP file, or nothing in it can be read.
        InvalidRecording: No batches, more than one topic of them, contradictory lengths, or a joint is missing.
    """
    metadata = read_metadata(path)
    first, last = _described_stamp(path, metadata, FIRST_STAMP, 0), _described_stamp(path, metadata, LAST_STAMP, _END)
    collected, topics, damage, stops = _Collected(first, last), set(), "", []

    def goes_on(share: float) -> bool:
        if not watch(share):
            stops.append(share)
        return not stops

    try:
        for entry in read_messages(path, {SAMPLES}, goes_on):
            topics.add(entry.topic)
            if not options.topics or entry.topic in options.topics:
                _add(path, robot, entry.message, collected)
    except DamagedRecording as error:
        if not collected.batches:
            raise
        damage = error.reason
    if not options.topics and len(topics) > 1:
        raise InvalidRecording(path, "the topic of the samples", "not given", "one of " + ", ".join(sorted(topics)))
    if not collected.batches:
        found = ", ".join(sorted(topics)) or "no topic"
        raise InvalidRecording(
            path, f"the messages of type {SAMPLES}", f"none on {' or '.join(options.topics) or 'any topic'}", found
        )
    notices = [text if count == 1 else f"{text} ({count} batches)" for text, count in collected.notices.items()]
    if damage:
        notices.append(f"the recording is cut off or damaged ({damage}); what comes before was read")
    notices += map(describe_stop, stops)
    batches = tuple(collected.batches)
    notices += describe_gaps(SampleBlock.concatenate(batches))
    extra = {name: np.concatenate(parts) for name, parts in collected.extra.items()}
    return Recording(
        path.name,
        batches,
        tuple(collected.epochs),
        reference_q=extra["q_d"],
        reference_v=extra["v_d"],
        commanded_tau=extra["tau_command"],
        metadata=metadata,
        notices=tuple(notices),
    )


def holds(path: Path, type_name: str) -> bool:
    """Return whether a file, or the rest of one, says that it holds messages of a type."""
    try:
        with open(path, "rb") as file:
            summary = mcap_reader.make_reader(file).get_summary()
            if summary is not None:
                return any(schema.name == type_name for schema in summary.schemas.values())
    except Exception:  # noqa: S110 - without an end there is no summary, and all of it is searched
        pass
    try:
        with open(path, "rb") as file:
            return any(
                isinstance(record, mcap_records.Schema) and record.name == type_name
                for record in mcap_stream_reader.StreamReader(file).records
            )
    except Exception:  # cut off or damaged before the type came; reading the samples names the fault
        return False


def read_messages(path: Path, types: Collection[str] | None = None, watch: Watch = read_all) -> Iterator[McapMessage]:
    """Yield ROS 2 messages of a file in the order they were written; no index is needed.

    Args:
        path: The file.
        types: Only messages of these types; None takes all.
        watch: Told how far it is, and may end it.

    Raises:
        DamagedRecording: The file is cut off or damaged; what comes before has been delivered.
    """
    size = path.stat().st_size
    with open(path, "rb") as file:
        reader = mcap_reader.NonSeekingReader(file, validate_crcs=True)
        decoders: dict[int, Callable[[bytes], Any]] = {}
        try:
            for number, (schema, channel, message) in enumerate(reader.iter_messages(log_time_order=False)):
                if number % WATCHED == 0 and not watch(file.tell() / size):
                    return
                type_name = schema.name if schema else ""
                if types is not None and type_name not in types:
                    continue
                if channel.id not in decoders:
                    if schema is None or channel.message_encoding != "cdr":
                        raise DamagedRecording(path, f"messages of {channel.topic} are not in CDR")
                    decoders[channel.id] = message_decoder(type_name, schema.data.decode())
                yield McapMessage(channel.topic, type_name, message.log_time, decoders[channel.id](message.data))
        except DamagedRecording:
            raise
        except mcap_exceptions.InvalidMagic:
            raise DamagedRecording(path, "it does not begin as one") from None
        except Exception as error:  # the reader has no common error for damaged files
            raise DamagedRecording(path, f"{error}" or type(error).__name__) from error


def message_decoder(type_name: str, definition: str = "") -> Callable[[bytes], Any]:
    """Return a decoder of messages in CDR; their arrays are of numpy.

    Args:
        type_name: ``package/msg/Name``.
        definition: Their full definition, as they were recorded; empty takes the latest ROS.
    """
    stores = rosbags_types.Stores
    store = rosbags_types.get_typestore(stores.EMPTY if definition else stores.LATEST)
    if definition:
        store.register(rosbags_types.get_types_from_msg(definition, type_name))
    known = store.get_msgdef(type_name)
    decoders = {b"\x00\x00": known.deserialize_cdr_be, b"\x00\x01": known.deserialize_cdr_le}

    def decode(data: bytes) -> Any:
        if data[:2] not in decoders:
            raise ValueError(f"a message of {type_name} is not in plain CDR")
        # Not by deserialize_cdr of the store, which refuses what rclpy serializes with room behind its end.
        return decoders[data[:2]](data[4:], 0, known.cls, store)[0]

    return decode


def read_metadata(path: Path) -> dict[str, str]:
    """Return the writer's words about the recording; empty if there are none."""
    found: dict[str, str] = {}
    try:
        with open(path, "rb") as file:
            for record in mcap_stream_reader.StreamReader(file, emit_chunks=True).records:
                if isinstance(record, mcap_records.Metadata) and record.name == METADATA:
                    found.update(record.metadata)
    except Exception:  # cut off or damaged, which reading the samples has told already
        return found
    return found


def _described_stamp(path: Path, metadata: Mapping[str, str], name: str, default: int) -> int:
    text = metadata.get(name, default)
    try:
        return int(text)
    except ValueError:
        raise InvalidRecording(path, f"the description '{name}'", repr(text), "a whole number [ns]") from None


def _add(path: Path, robot: RobotModel, batch: Any, collected: _Collected) -> None:
    order = choose_joints(path, batch.joint_names, robot)
    stamps = np.asarray(batch.stamps, dtype=np.int64)
    count, n = stamps.size, len(batch.joint_names)
    arrays = {}
    for name, field_name in _PER_JOINT.items():
        values = np.asarray(getattr(batch, field_name), dtype=float)
        if values.size != count * n:
            raise InvalidRecording(path, f"the length of {field_name} in a batch", values.size, f"{count * n}")
        arrays[name] = values.reshape(count, n)[:, order]
    valid = np.asarray(batch.valid, dtype=bool)
    if valid.size != count:
        raise InvalidRecording(path, "the length of valid in a batch", valid.size, f"{count}")
    is_used = (stamps >= collected.first_stamp) & (stamps <= collected.last_stamp)
    stamps, valid = stamps[is_used], valid[is_used]
    arrays = {name: values[is_used] for name, values in arrays.items()}
    sequence = int(batch.first_sequence) + np.flatnonzero(is_used)
    blocks, notices = split_into_blocks(
        stamps[valid], sequence[valid], *(arrays[name][valid] for name in ("q", "v", "tau"))
    )
    collected.notices.update(notices)
    if not valid.all():
        collected.notices["samples the driver marked as not valid were left out"] += 1
    last = collected.batches[-1].stamps[-1] if collected.batches else -1
    for block in blocks:
        if block.stamps[0] <= last:
            collected.notices["batches that repeat earlier samples were left out"] += 1
            continue
        last = block.stamps[-1]
        kept = np.searchsorted(stamps, block.stamps)
        collected.batches.append(block)
        collected.epochs.append(int(batch.payload_epoch))
        for name, parts in collected.extra.items():
            parts.append(arrays[name][kept])
