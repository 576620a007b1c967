"""Writes ``recording.mcap``: an MCAP file with ROS 2 messages that standard tools read."""

from __future__ import annotations

import atexit
import os
import queue
import re
import site
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.common.optional import optional_module

mcap_writer = optional_module("mcap.writer")
mcap_ros2_dynamic = optional_module("mcap_ros2._dynamic")  # its public writer takes no serialized messages

RECORDING = "recording.mcap"
"""The file, in the folder of a run."""
SEPARATOR = "=" * 80
_PRIMITIVES = {
    *("bool", "byte", "char", "string", "wstring", "float32", "float64"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}
_FIELD = re.compile(r"^\s*([A-Za-z][\w/]*)(?:<=\d+)?(?:\[[<=\d]*\])?\s+\w+")


_KNOWN = {"tf2_msgs/TFMessage": "geometry_msgs/TransformStamped[] transforms\n"}
"""Definitions of messages that every installed ROS has, but no wheel."""


def share_directories() -> tuple[Path, ...]:
    """Folders with the shares of installed packages: the ament prefixes, this Python's prefix and its site-packages."""
    prefixes = [Path(prefix) for prefix in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if prefix]
    prefixes += [Path(sys.prefix), *map(Path, site.getsitepackages())]
    candidates = (prefix / "share" for prefix in prefixes)
    return tuple(dict.fromkeys(folder for folder in candidates if folder.is_dir()))


def message_definition(type_name: str, shares: Sequence[Path] | None = None) -> str:
    """Return the full definition of a message, as tools expect it in a recording.

    Args:
        type_name: ``package/msg/Name``.
        shares: Folders that hold ``<package>/msg/<Name>.msg``; None takes :func:`share_directories`.

    Returns:
        The text of the ``.msg`` file; then, for every message it uses directly or indirectly, a line of 80 ``=``, a
        line ``MSG: package/Name`` and that message's text.

    Raises:
        SysidError: A definition is not installed.
    """
    folders = share_directories() if shares is None else tuple(map(Path, shares))
    texts: dict[str, str] = {}

    def collect(package: str, name: str) -> None:
        texts[f"{package}/{name}"] = text = _read(package, name, folders)
        for used in _used_messages(text, package):
            if used not in texts:
                collect(*used.split("/"))

    collect(*type_name.split("/msg/"))
    first, *others = texts.items()
    return (
        "\n".join([first[1].rstrip(), *(f"{SEPARATOR}\nMSG: {used}\n{text.rstrip()}" for used, text in others)]) + "\n"
    )


def _read(package: str, name: str, folders: Sequence[Path]) -> str:
    for folder in folders:
        path = folder / package / "msg" / f"{name}.msg"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    if f"{package}/{name}" in _KNOWN:
        return _KNOWN[f"{package}/{name}"]
    raise SysidError(
        f"no definition of message {package}/msg/{name} found; looked into "
        f"{', '.join(map(str, folders)) or 'nowhere: set AMENT_PREFIX_PATH'}"
    )


def _used_messages(text: str, package: str) -> list[str]:
    used = []
    for line in text.splitlines():
        match = _FIELD.match(line.split("#", 1)[0])
        if match is None or match.group(1) in _PRIMITIVES:
            continue
        parts = match.group(1).split("/")
        used.append(f"{package}/{parts[0]}" if len(parts) == 1 else f"{parts[0]}/{parts[-1]}")
    return used


METADATA = "sysid_ros"
"""Name of the metadata record that describes the recording."""
QUEUE_LENGTH = 5000
"""Messages that may wait for the disk before the next one is dropped and counted."""
CHUNK_BYTES = 256 * 1024
"""Size of a chunk; a killed process may lose one."""
CLOSE_TIMEOUT = 20.0
"""Longest wait for the disk when closing [s]."""


GRIPPER = "gripper"
"""Name of the metadata that says in which state the gripper was."""
FIRST_STAMP = "first_stamp_ns"
"""Name of the description that says with which sample the estimate began: earlier ones are not used offline either."""
LAST_STAMP = "last_stamp_ns"
"""Name of the description that says with which sample the final estimate ended: later ones are not used offline."""


@dataclass(frozen=True)
class _Entry:
    topic: str
    type_name: str
    message: Any
    stamp_ns: int


class RecordingWriter:
    """Writes messages to an MCAP file in a thread of its own.

    :meth:`write` never waits: messages that the disk cannot take in time are dropped and counted. The file is complete
    after :meth:`close`, which also runs when the interpreter ends, so after Ctrl-C. Use it with ``with``.

    Args:
        path: The file; its folder must exist.
        metadata: Texts that describe the recording, by name (robot, versions, settings).
        definitions: Full definitions of messages by type name; others are looked up where ROS packages are installed.

    Raises:
        SysidError: The file cannot be created.
    """

    def __init__(
        self, path: Path | str, metadata: Mapping[str, str] | None = None, definitions: Mapping[str, str] | None = None
    ):
        self.path = Path(path)
        self._definitions = dict(definitions or {})
        self._queue: queue.Queue[_Entry | dict[str, str] | None] = queue.Queue(QUEUE_LENGTH)
        self._lock = threading.Lock()
        self._dropped = 0
        self._error: Exception | None = None
        self._faults: dict[str, str] = {}
        self._is_closed = False
        try:
            self._file = open(self.path, "wb")  # noqa: SIM115 - closed by the thread
        except OSError as error:
            raise self._fault(str(error.strerror or error)) from error
        self._metadata = dict(metadata or {})
        # A daemon, so that an interpreter that ends does not wait for it before the exit handler closes it.
        self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
        self._thread.start()
        atexit.register(self._close_at_exit)

    @property
    def dropped(self) -> int:
        """Messages that found no room."""
        return self._dropped

    def write(self, topic: str, type_name: str, message: Any, stamp_ns: int | None = None) -> bool:
        """Take a message; never waits and never raises for the disk.

        Args:
            topic: Full topic name.
            type_name: ``package/msg/Name``.
            message: The serialized message (CDR bytes, as ``rclpy`` subscriptions with ``raw=True`` deliver them and
                ``rclpy.serialization.serialize_message`` makes them), or an object or mapping with its fields.
            stamp_ns: Time of the message [ns]; None takes the wall clock.

        Returns:
            Whether it was taken; a message that was not is counted in :attr:`dropped`.
        """
        stamp_ns = time.time_ns() if stamp_ns is None else stamp_ns
        is_taken = self._take(_Entry(topic, type_name, message, stamp_ns))
        self._dropped += not is_taken
        return is_taken

    def describe(self, **texts: str) -> bool:
        """Add texts that describe the recording, by name, as :data:`FIRST_STAMP`; like :meth:`write` it never waits.

        Returns:
            Whether they were taken.
        """
        return self._take(texts)

    def _take(self, entry: _Entry | dict[str, str]) -> bool:
        if self._is_closed or self._error is not None:
            return False
        try:
            self._queue.put_nowait(entry)
        except queue.Full:
            return False
        return True

    def close(self) -> None:
        """Write all waiting messages, finish the file and close it; doing so twice is harmless.

        Raises:
            SysidError: Not everything that was taken is in the file.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            atexit.unregister(self._close_at_exit)
            end = time.monotonic() + CLOSE_TIMEOUT
            while self._thread.is_alive():
                try:
                    self._queue.put(None, timeout=0.1)
                    break
                except queue.Full:
                    if time.monotonic() > end:
                        raise self._fault("the disk is too slow, messages are still waiting") from None
            self._thread.join(max(0.1, end - time.monotonic()))
        if self._thread.is_alive():
            raise self._fault(f"the disk takes longer than {CLOSE_TIMEOUT:g} s")
        if self._error is not None:
            raise self._fault(str(self._error)) from self._error
        if self._faults:
            raise self._fault("messages are missing: " + "; ".join(self._faults.values()))

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _fault(self, reason: str) -> SysidError:
        return SysidError(f"cannot write the recording {self.path}: {reason}")

    def _close_at_exit(self) -> None:
        try:
            self.close()
        except SysidError as error:
            os.write(2, f"{error}\n".encode())

    def _run(self) -> None:
        try:
            with self._file:
                file = _McapFile(self._file, self._metadata, self._definitions)
                while (entry := self._queue.get()) is not None:
                    if isinstance(entry, dict):
                        file.writer.add_metadata(METADATA, entry)
                    else:
                        self._add(file, entry)
                file.writer.finish()
        except Exception as error:  # kept for close(), which raises it
            self._error = error

    def _add(self, file: _McapFile, entry: _Entry) -> None:
        """One message; its faults must not cost the others."""
        try:
            file.add(entry)
        except OSError:
            raise
        except Exception as error:
            self._dropped += 1
            self._faults.setdefault(entry.topic, f"{entry.topic} ({entry.type_name}): {error}")


class _McapFile:
    """Schemas, channels and messages of one file."""

    def __init__(self, file: BinaryIO, metadata: Mapping[str, str], definitions: Mapping[str, str]):
        self.writer = mcap_writer.Writer(file, chunk_size=CHUNK_BYTES, compression=mcap_writer.CompressionType.ZSTD)
        self.writer.start(profile="ros2", library="sysid_ros")
        self.writer.add_metadata(METADATA, dict(metadata))
        self._definitions = definitions
        self._schemas: dict[str, int] = {}
        self._channels: dict[str, int] = {}
        self._sequence: dict[str, int] = {}
        self._encoders: dict[str, Any] = {}

    def add(self, entry: _Entry) -> None:
        data = entry.message if isinstance(entry.message, bytes | bytearray | memoryview) else self._encode(entry)
        channel = self._channel(entry)
        self._sequence[entry.topic] = self._sequence.get(entry.topic, -1) + 1
        self.writer.add_message(
            channel_id=channel,
            log_time=entry.stamp_ns,
            publish_time=entry.stamp_ns,
            sequence=self._sequence[entry.topic],
            data=bytes(data),
        )

    def _definition(self, type_name: str) -> str:
        return self._definitions.get(type_name) or message_definition(type_name)

    def _channel(self, entry: _Entry) -> int:
        if entry.type_name not in self._schemas:
            text = self._definition(entry.type_name).encode()
            self._schemas[entry.type_name] = self.writer.register_schema(entry.type_name, "ros2msg", text)
        if entry.topic not in self._channels:
            self._channels[entry.topic] = self.writer.register_channel(
                topic=entry.topic,
                message_encoding="cdr",
                schema_id=self._schemas[entry.type_name],
                metadata={"offered_qos_profiles": ""},  # rosbag2 looks for it
            )
        return self._channels[entry.topic]

    def _encode(self, entry: _Entry) -> bytes:
        if entry.type_name not in self._encoders:
            definition = self._definition(entry.type_name)
            encoders = mcap_ros2_dynamic.serialize_dynamic(entry.type_name, definition)
            self._encoders[entry.type_name] = encoders[entry.type_name]
        return self._encoders[entry.type_name](entry.message)
