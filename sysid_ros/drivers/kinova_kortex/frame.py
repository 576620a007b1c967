"""Kortex frames: four header words and a payload, bare in a UDP datagram, with a prefix in a TCP stream.

| word         | bits from the top                                                        |
|--------------|--------------------------------------------------------------------------|
| frame_info   | header version 4, frame type 4, device 8, error code 4, error sub code 12 |
| message_info | session 16, message 16                                                   |
| service_info | service version 4, service 12, function 16                               |
| payload_info | reserved 8, payload length 24                                            |
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from sysid_ros.drivers.kinova_kortex.enums import FrameType
from sysid_ros.drivers.network import InvalidFrame
from sysid_ros.drivers.protobuf import build_classes

_ACTUATOR_FLOATS = "position velocity torque current_motor voltage temperature_motor temperature_core"
_BANKS = "fault_bank_a fault_bank_b warning_bank_a warning_bank_b"


def _axes(*names: str) -> str:
    return " ".join(f"{name}_{axis}" for name in names for axis in "xyz")


def _run(first: int, kind: str, names: str) -> tuple[str, ...]:
    return tuple(f"{tag} {kind} {name}" for tag, name in enumerate(names.split(), first))


MESSAGES = {
    "Header": _run(1, "fixed32", "frame_info message_info service_info payload_info"),
    "Frame": ("1 Header header", "2 bytes payload"),
    "Empty": (),
    "Error": ("1 int32 error_code", "2 int32 error_sub_code", "3 bytes error_sub_string"),
    "CreateSessionInfo": (
        "1 bytes username", "2 uint32 session_inactivity_timeout", "3 bytes password",
        "4 uint32 connection_inactivity_timeout",
    ),
    "ServoingModeInformation": ("1 int32 servoing_mode",),
    "ControlModeInformation": ("1 int32 control_mode",),
    "ActuatorInformation": ("1 uint32 count",),
    "ArmStateInformation": ("1 int32 active_state",),
    "SerialNumber": ("1 bytes serial_number",),
    "Position": _run(1, "float", "x y z"),
    "PayloadInformation": ("1 float payload_mass", "2 Position payload_mass_center"),
    "CartesianTransform": _run(1, "float", "x y z theta_x theta_y theta_z"),
    "ToolConfiguration": (
        "1 CartesianTransform tool_transform", "2 float tool_mass", "3 Position tool_mass_center",
    ),
    "DeviceHandle": ("1 int32 device_type", "2 uint32 device_identifier", "3 uint32 order"),
    "DeviceHandles": ("1 repeated DeviceHandle device_handle",),
    "ActuatorCommand": (
        *_run(1, "fixed32", "command_id flags"),
        *_run(3, "float", "position velocity torque_joint current_motor"),
    ),
    "Command": ("1 fixed32 frame_id", "2 repeated ActuatorCommand actuators", "3 bytes interconnect"),
    "ActuatorFeedback": (
        *_run(1, "fixed32", "command_id status_flags jitter_comm"), *_run(4, "float", _ACTUATOR_FLOATS),
        *_run(11, "fixed32", _BANKS),
    ),
    "BaseFeedback": (
        "1 uint32 active_state_connection_identifier", "2 int32 active_state",
        *_run(3, "float", "arm_voltage arm_current temperature_cpu temperature_ambient"),
        *_run(7, "float", _axes("imu_acceleration", "imu_angular_velocity", "tool_pose", "tool_pose_theta")),
        *_run(19, "float", _axes("tool_twist_linear", "tool_twist_angular")),
        *_run(25, "float", _axes("tool_external_wrench_force", "tool_external_wrench_torque")),
        *_run(31, "fixed32", _BANKS),
        *_run(35, "float", _axes("commanded_tool_pose", "commanded_tool_pose_theta")),
    ),
    "Feedback": (
        "1 fixed32 frame_id", "2 BaseFeedback base", "3 repeated ActuatorFeedback actuators", "4 bytes interconnect",
    ),
}  # fmt: skip
"""Fields of every message, each as ``tag [repeated] type name``."""

_classes = cache(lambda: build_classes("sysid_kortex", MESSAGES, "proto3"))


def message_class(name: str) -> Any:
    """Return the protobuf class of a message."""
    return _classes()[name]


TCP_MARK = bytes.fromhex("07784574526f4b07")
"""Begin of every frame in a TCP stream; the length follows in 4 bytes, big endian."""
LARGEST_FRAME = 65507
"""Longest frame; longer ones cannot be a UDP datagram [bytes]."""
ID_MODULUS = 1 << 16
"""Message and frame counters are 16 bits."""

_VERSION = 1
_LENGTH = struct.Struct(">I")
_PREFIX = len(TCP_MARK) + _LENGTH.size


class Frame(NamedTuple):
    """One frame."""

    kind: FrameType
    """Its type."""
    function: int
    """Service id times 65536 plus function id."""
    session: int
    """Session id; 0 before there is one."""
    message: int
    """Message id; a response has its request's."""
    device: int = 0
    """Its receiver; 0 is the base."""
    payload: bytes = b""
    """Encoded message."""
    error: int = 0
    """Error code of a response."""
    sub_error: int = 0
    """Its sub code."""


def encode_frame(frame: Frame) -> bytes:
    """Return the bytes of a frame, as in a UDP datagram."""
    message = message_class("Frame")()
    header = message.header
    header.frame_info = _VERSION << 28 | frame.kind << 24 | frame.device << 16 | frame.error << 12 | frame.sub_error
    header.message_info = frame.session << 16 | frame.message
    header.service_info = _VERSION << 28 | frame.function
    header.payload_info = len(frame.payload)
    message.payload = frame.payload
    return message.SerializeToString()


def decode_frame(data: bytes) -> Frame:
    """Decode a frame; raises :class:`InvalidFrame`, also if it is of another version, or its length does not match."""
    size = len(data)
    if size > LARGEST_FRAME:
        raise InvalidFrame(f"longer than {LARGEST_FRAME} bytes", size)
    message = parse("Frame", data)
    header = message.header
    info, service = header.frame_info, header.service_info
    if info >> 28 != _VERSION or service >> 28 != _VERSION:
        raise InvalidFrame(f"versions of header {info >> 28} and service {service >> 28}, not {_VERSION}", size)
    try:
        kind = FrameType(info >> 24 & 0xF)
    except ValueError:
        raise InvalidFrame(f"frame type {info >> 24 & 0xF}", size) from None
    announced = header.payload_info & 0xFFFFFF
    if announced != len(message.payload):
        raise InvalidFrame(f"payload of {len(message.payload)} bytes, {announced} announced", size)
    words = header.message_info
    return Frame(
        kind, service & 0xFFFFFFF, words >> 16, words & 0xFFFF, info >> 16 & 0xFF, message.payload,
        info >> 12 & 0xF, info & 0xFFF,
    )  # fmt: skip


def encode(name: str, **fields: object) -> bytes:
    """Return the bytes of a message of the schema."""
    return bytes(message_class(name)(**fields).SerializeToString())


def parse(name: str, data: bytes) -> Any:
    """Parse a message of the schema, or raise :class:`InvalidFrame`."""
    try:
        return message_class(name).FromString(data)
    except DecodeError:
        raise InvalidFrame(f"no message {name}", len(data)) from None


def wrap_for_tcp(frame: bytes) -> bytes:
    """Return the bytes of a frame in a TCP stream."""
    return TCP_MARK + _LENGTH.pack(len(frame)) + frame


class TcpFrames:
    """Cuts a TCP stream into frames. Keeps at most one incomplete frame, of :data:`LARGEST_FRAME` at most."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def pending(self) -> int:
        """Number of received bytes of an incomplete frame."""
        return len(self._buffer)

    @property
    def announced(self) -> int:
        """Length of that frame with its prefix [bytes]; 0 if not known yet."""
        if len(self._buffer) < _PREFIX:
            return 0
        return _PREFIX + _LENGTH.unpack(self._buffer[len(TCP_MARK) : _PREFIX])[0]

    def feed(self, data: bytes) -> list[bytes]:
        """Add received bytes and return the complete frames.

        Raises:
            InvalidFrame: The stream does not go on with a frame; it cannot be decoded any further.
        """
        self._buffer += data
        frames = []
        while self._buffer:
            mark = self._buffer[: len(TCP_MARK)]
            if mark != TCP_MARK[: len(mark)]:
                raise InvalidFrame("the stream is not made of Kortex frames", len(self._buffer))
            if len(self._buffer) < _PREFIX:
                break
            (length,) = _LENGTH.unpack(self._buffer[len(TCP_MARK) : _PREFIX])
            if length > LARGEST_FRAME:
                raise InvalidFrame(f"a frame of {length} bytes is announced", len(self._buffer))
            if len(self._buffer) < _PREFIX + length:
                break
            frames.append(bytes(self._buffer[_PREFIX : _PREFIX + length]))
            del self._buffer[: _PREFIX + length]
        return frames
