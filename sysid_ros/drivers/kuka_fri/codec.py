"""Datagrams to messages and back, for every version of FRI.

Data from the network are not trusted: anything but a message of this version with seven finite values per joint array
is a :class:`InvalidFrame`, and no other exception leaves the decoders.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from enum import IntEnum
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np
from google.protobuf.message import DecodeError

from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.kuka_fri.messages import (
    JOINTS,
    Command,
    CommandMode,
    ControlMode,
    DriveState,
    IoDirection,
    IoType,
    IoValue,
    Monitoring,
    OverlayType,
    Quality,
    SafetyState,
    SessionState,
)
from sysid_ros.drivers.modes import FriVersion
from sysid_ros.drivers.network import InvalidFrame
from sysid_ros.drivers.protobuf import build_classes

# tag, label, type, name; `packed` is a repeated field in one piece.
_COMMON = {
    "JointValues": ("1 repeated double value",),
    "TimeStamp": ("1 required uint32 sec", "2 required uint32 nanosec"),
    "CartesianVector": ("1 packed double element",),
    "FriIOValue": (
        "1 required bytes name", "2 required int32 type", "3 required int32 direction",
        "4 optional uint64 digitalValue", "5 optional double analogValue",
    ),
    "MessageHeader": (
        "1 required uint32 messageIdentifier", "2 required uint32 sequenceCounter",
        "3 required uint32 reflectedSequenceCounter",
    ),
    "ConnectionInfo": (
        "1 required int32 sessionState", "2 required int32 quality", "3 optional uint32 sendPeriod",
        "4 optional uint32 receiveMultiplier",
    ),
    "RobotInfo": (
        "1 optional int32 numberOfJoints", "2 optional int32 safetyState", "5 repeated int32 driveState",
        "6 optional int32 operationMode", "7 optional int32 controlMode",
    ),
    "FRIMonitoringMessage": (
        "1 required MessageHeader header", "2 optional RobotInfo robotInfo",
        "3 optional MessageMonitorData monitorData", "4 optional ConnectionInfo connectionInfo",
        "5 optional MessageIpoData ipoData",
    ),
    "FRICommandMessage": ("1 required MessageHeader header", "2 optional MessageCommandData commandData"),
    "MessageMonitorData": (
        "1 optional JointValues measuredJointPosition", "2 optional JointValues measuredTorque",
        "4 optional JointValues commandedTorque", "5 optional JointValues externalTorque",
        "8 repeated FriIOValue readIORequest", "15 optional TimeStamp timestamp",
    ),
    "MessageIpoData": (
        "1 optional JointValues jointPosition", "10 optional int32 clientCommandMode",
        "11 optional int32 overlayType", "12 optional double trackingPerformance",
    ),
    "MessageCommandData": (
        "1 optional JointValues jointPosition", "2 optional CartesianVector cartesianWrenchFeedForward",
        "3 optional JointValues jointTorque", "5 repeated FriIOValue writeIORequest",
    ),
}  # fmt: skip

_END_OF_MESSAGE = {
    "Checksum": ("1 optional int32 crc32",),
    "MessageEndOf": ("1 optional int32 messageLength", "2 optional Checksum messageChecksum"),
    "FRIMonitoringMessage": ("15 optional MessageEndOf endOfMessageData",),
    "FRICommandMessage": ("15 optional MessageEndOf endOfMessageData",),
}

_ONLY_1 = {
    "Transformation": ("1 required bytes name", "2 packed double matrix", "3 optional TimeStamp timestamp"),
    "FRIMonitoringMessage": ("6 repeated Transformation requestedTransformations",),
    "MessageMonitorData": ("3 optional JointValues commandedJointPosition",),
    "MessageCommandData": ("4 repeated Transformation commandedTransformations",),
}

_SINCE_2 = {
    "QuaternionTransformation": ("1 required bytes name", "2 packed double element", "3 optional TimeStamp timestamp"),
    "RedundancyInformation": ("1 required int32 strategy", "2 required double value"),
    "FRIMonitoringMessage": ("6 repeated QuaternionTransformation requestedTransformations",),
    "MessageMonitorData": (
        "9 optional QuaternionTransformation measuredCartesianPose",
        "10 optional RedundancyInformation measuredRedundancyInformation",
    ),
    "MessageIpoData": (
        "2 optional QuaternionTransformation cartesianPose",
        "3 optional RedundancyInformation redundancyInformation",
    ),
    "MessageCommandData": (
        "4 repeated QuaternionTransformation commandedTransformations",
        "6 optional QuaternionTransformation cartesianPose",
        "7 optional RedundancyInformation redundancyInformation",
    ),
}

_SINCE_2_7: dict[str, tuple[str, ...]] = {"MessageMonitorData": ("6 optional CartesianVector externalForce",)}

_PARTS: dict[FriVersion, tuple[dict[str, tuple[str, ...]], ...]] = {
    FriVersion.V1_15: (_COMMON, _END_OF_MESSAGE, _ONLY_1),
    FriVersion.V2_5: (_COMMON, _END_OF_MESSAGE, _SINCE_2),
    FriVersion.V2_7: (_COMMON, _SINCE_2, _SINCE_2_7),
}


@cache
def message_classes(version: FriVersion) -> dict[str, Any]:
    """Return the protobuf classes of a version by message name."""
    fields: dict[str, tuple[str, ...]] = {}
    for part in _PARTS[version]:
        for name, more in part.items():
            fields[name] = fields.get(name, ()) + more
    return build_classes("fri_" + version.value.replace(".", "_"), fields, "proto2")


MONITORING_ID = 0x245142
COMMAND_ID = 0x34001
LARGEST_DATAGRAM = 1500
"""Longest message in either direction [bytes]."""
MOST_IOS = 10
"""Inputs and outputs in one message at most."""

_LENGTH = struct.Struct("<I")
_WRENCH = 6
_REDUNDANCY_E1 = 0
_LARGEST_VALUE = 1e6
"""Positions [rad], torques [Nm] and forces [N] beyond this are no measurement of any arm."""
_LARGEST_PERIOD_MS = 100
_LARGEST_MULTIPLIER = 100
_NANOSECONDS = 1_000_000_000
_JOINT_VALUES = {
    "q": "measuredJointPosition", "tau": "measuredTorque", "tau_commanded": "commandedTorque",
    "tau_external": "externalTorque", "q_commanded": "commandedJointPosition",
}  # fmt: skip
"""Fields of the measured data by attribute of a message; and below of the robot's, some with an enumeration."""
_ROBOT_INFO: dict[str, tuple[str, type[IntEnum] | None]] = {
    "joint_count": ("numberOfJoints", None),
    "safety": ("safetyState", SafetyState),
    "operation_mode": ("operationMode", None),
    "control_mode": ("controlMode", ControlMode),
}
_Enum = TypeVar("_Enum", bound=IntEnum)


class FriCodec:
    """Encodes and decodes the messages of one version."""

    def __init__(self, version: FriVersion):
        self.version = version
        classes = message_classes(version)
        self._monitoring_class = classes["FRIMonitoringMessage"]
        self._command_class = classes["FRICommandMessage"]
        self._is_framed = version is FriVersion.V2_7
        known = classes["MessageMonitorData"].DESCRIPTOR.fields_by_name
        self._joint_values = {name: field for name, field in _JOINT_VALUES.items() if field in known}

    def decode_monitoring(self, datagram: bytes) -> Monitoring:
        """Decode a message of the controller.

        Raises:
            InvalidFrame: It is not one.
        """
        message = self._parse(self._monitoring_class, datagram, MONITORING_ID)
        size, header = len(datagram), message.header
        fields: dict[str, Any] = {}
        if message.HasField("connectionInfo"):
            info = message.connectionInfo
            state = _member(SessionState, info.sessionState, "sessionState", size)
            quality = _member(Quality, info.quality, "quality", size)
            period, multiplier = info.sendPeriod, info.receiveMultiplier
            if period > _LARGEST_PERIOD_MS or multiplier > _LARGEST_MULTIPLIER:
                raise InvalidFrame(f"send period {period} ms, receive multiplier {multiplier}", size)
            fields["send_period"], fields["receive_multiplier"] = 1e-3 * period, max(1, multiplier)
        else:
            state, quality = SessionState.IDLE, Quality.POOR
        if message.HasField("robotInfo"):
            fields.update(_read_robot_info(message.robotInfo, size))
        count = fields.get("joint_count", JOINTS)
        if state is not SessionState.IDLE and count != JOINTS:
            raise InvalidFrame(f"an arm with {count} joints; FRI arms have {JOINTS}", size)
        if message.HasField("monitorData"):
            fields.update(self._read_monitor_data(message.monitorData, size))
        if message.HasField("ipoData"):
            fields.update(_read_ipo_data(message.ipoData, size))
        return Monitoring(header.sequenceCounter, header.reflectedSequenceCounter, state, quality, **fields)

    def decode_command(self, datagram: bytes) -> Command:
        """Decode a message of the client.

        Raises:
            InvalidFrame: It is not one.
        """
        message = self._parse(self._command_class, datagram, COMMAND_ID)
        size, header = len(datagram), message.header
        q = tau = wrench = None
        ios: tuple[IoValue, ...] = ()
        if message.HasField("commandData"):
            data = message.commandData
            q, tau = _joints(data, "jointPosition", size), _joints(data, "jointTorque", size)
            if data.HasField("cartesianWrenchFeedForward"):
                wrench = _finite(data.cartesianWrenchFeedForward.element, _WRENCH, "wrench", size)
            ios = _read_ios(data.writeIORequest, size)
        return Command(header.sequenceCounter, header.reflectedSequenceCounter, q, tau, wrench, ios)

    def encode_command(self, command: Command) -> bytes:
        """Encode a message of the client."""
        message = self._command_class()
        self._write_header(message.header, COMMAND_ID, command.sequence, command.reflected)
        if command.q is not None:
            _write_joints(message.commandData.jointPosition, command.q)
        if command.wrench is not None:
            message.commandData.cartesianWrenchFeedForward.element.extend(map(float, command.wrench))
        if command.tau is not None:
            _write_joints(message.commandData.jointTorque, command.tau)
        if command.ios:
            _write_ios(message.commandData.writeIORequest, command.ios)
        return self._frame(message.SerializeToString())

    def encode_monitoring(self, state: Monitoring) -> bytes:
        """Encode a message of the controller."""
        message = self._monitoring_class()
        self._write_header(message.header, MONITORING_ID, state.sequence, state.reflected)
        message.robotInfo.driveState.extend(map(int, state.drives))
        for name, (field, _) in _ROBOT_INFO.items():
            if (value := getattr(state, name)) is not None:
                setattr(message.robotInfo, field, int(value))
        self._write_monitor_data(message.monitorData, state)
        info = message.connectionInfo
        info.sessionState, info.quality = int(state.state), int(state.quality)
        info.sendPeriod, info.receiveMultiplier = round(1e3 * state.send_period), state.receive_multiplier
        ipo = message.ipoData
        if state.q_ipo is not None:
            _write_joints(ipo.jointPosition, state.q_ipo)
        ipo.clientCommandMode, ipo.overlayType = int(state.command_mode or 0), int(state.overlay or 0)
        ipo.trackingPerformance = state.tracking_performance
        return self._frame(message.SerializeToString())

    # Framing

    def _frame(self, message: bytes) -> bytes:
        if not self._is_framed:
            return message
        return _LENGTH.pack(len(message)) + message + _LENGTH.pack(zlib.crc32(message))

    def _parse(self, kind: Any, datagram: bytes, identifier: int) -> Any:
        size = len(datagram)
        if size > LARGEST_DATAGRAM:
            raise InvalidFrame(f"longer than {LARGEST_DATAGRAM} bytes", size)
        message = kind()
        try:
            message.ParseFromString(self._unframe(datagram))
            is_complete = message.IsInitialized()
        except (DecodeError, ValueError, RuntimeError) as error:
            raise InvalidFrame(f"not a {kind.DESCRIPTOR.name} of FRI {self.version.value} ({error})", size) from None
        if not is_complete:
            raise InvalidFrame("a required field is missing", size)
        if message.header.messageIdentifier != identifier:
            raise InvalidFrame(
                f"message identifier {message.header.messageIdentifier:#x} instead of {identifier:#x}", size
            )
        return message

    def _unframe(self, datagram: bytes) -> bytes:
        if not self._is_framed:
            return datagram
        size = len(datagram)
        if size < 2 * _LENGTH.size:
            raise InvalidFrame("too short for length and checksum", size)
        length = _LENGTH.unpack_from(datagram)[0]
        if length != size - 2 * _LENGTH.size:
            raise InvalidFrame(f"its length field says {length} bytes", size)
        message = datagram[_LENGTH.size : -_LENGTH.size]
        if _LENGTH.unpack_from(datagram, size - _LENGTH.size)[0] != zlib.crc32(message):
            raise InvalidFrame("the checksum is wrong", size)
        return message

    # Fields

    def _read_monitor_data(self, data: Any, size: int) -> dict[str, Any]:
        fields: dict[str, Any] = {name: _joints(data, field, size) for name, field in self._joint_values.items()}
        if data.HasField("timestamp"):
            stamp = data.timestamp
            if stamp.nanosec >= _NANOSECONDS:
                raise InvalidFrame(f"a time stamp with {stamp.nanosec} ns", size)
            fields["stamp_ns"] = stamp.sec * _NANOSECONDS + stamp.nanosec
        if data.readIORequest:
            fields["ios"] = _read_ios(data.readIORequest, size)
        return fields

    def _write_monitor_data(self, data: Any, state: Monitoring) -> None:
        for name, field in self._joint_values.items():
            if (values := getattr(state, name)) is not None:
                _write_joints(getattr(data, field), values)
        if state.stamp_ns is not None:
            data.timestamp.sec, data.timestamp.nanosec = divmod(state.stamp_ns, _NANOSECONDS)
        if self.version is not FriVersion.V1_15 and state.flange is not None and state.redundancy is not None:
            data.measuredCartesianPose.name = b""
            data.measuredCartesianPose.element.extend(state.flange.tolist())
            data.measuredRedundancyInformation.strategy = _REDUNDANCY_E1
            data.measuredRedundancyInformation.value = state.redundancy
        if self.version is FriVersion.V2_7 and state.force is not None:
            data.externalForce.element.extend(state.force.tolist())
        _write_ios(data.readIORequest, state.ios)

    @staticmethod
    def _write_header(header: Any, identifier: int, sequence: int, reflected: int) -> None:
        header.messageIdentifier = identifier
        header.sequenceCounter, header.reflectedSequenceCounter = sequence, reflected


def _read_robot_info(info: Any, size: int) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "drives": tuple(_member(DriveState, drive, "driveState", size) for drive in info.driveState)
    }
    for name, (field, kind) in _ROBOT_INFO.items():
        if info.HasField(field):
            value = getattr(info, field)
            fields[name] = value if kind is None else _member(kind, value, field, size)
    return fields


def _read_ipo_data(data: Any, size: int) -> dict[str, Any]:
    performance = data.trackingPerformance
    if not np.isfinite(performance):
        raise InvalidFrame(f"trackingPerformance is {performance}", size)
    return {
        "q_ipo": _joints(data, "jointPosition", size),
        "command_mode": _member(CommandMode, data.clientCommandMode, "clientCommandMode", size),
        "overlay": _member(OverlayType, data.overlayType, "overlayType", size),
        "tracking_performance": performance,
    }


def _read_ios(requests: Sequence[Any], size: int) -> tuple[IoValue, ...]:
    if len(requests) > MOST_IOS:
        raise InvalidFrame(f"{len(requests)} inputs and outputs; at most {MOST_IOS} fit in a message", size)
    return tuple(_read_io(one, size) for one in requests)


def _read_io(one: Any, size: int) -> IoValue:
    try:
        name = one.name.decode()
    except UnicodeDecodeError:
        raise InvalidFrame(f"an input or output with the name {one.name!r}", size) from None
    kind, direction = _member(IoType, one.type, "type", size), _member(IoDirection, one.direction, "direction", size)
    field = "analogValue" if kind is IoType.ANALOG else "digitalValue"
    if not one.HasField(field):
        raise InvalidFrame(f"'{name}' of type {kind.name} without a {field}", size)
    value = getattr(one, field)
    if not np.isfinite(value):
        raise InvalidFrame(f"'{name}' is {value}", size)
    return IoValue(name, kind, direction, value)


def _write_ios(requests: Any, ios: Sequence[IoValue]) -> None:
    for one in ios:
        entry = requests.add(name=one.name.encode(), type=int(one.kind), direction=int(one.direction))
        if one.kind is IoType.ANALOG:
            entry.analogValue = one.value
        else:
            entry.digitalValue = int(one.value)


def _joints(message: Any, name: str, size: int) -> Array | None:
    return _finite(getattr(message, name).value, JOINTS, name, size) if message.HasField(name) else None


def _finite(values: Sequence[float], count: int, name: str, size: int) -> Array:
    if len(values) != count:
        raise InvalidFrame(f"{name} has {len(values)} values instead of {count}", size)
    numbers = list(values)
    # The comparisons are false for NaN.
    if not all(-_LARGEST_VALUE < number < _LARGEST_VALUE for number in numbers):
        raise InvalidFrame(f"{name} is {numbers}", size)
    return np.array(numbers)


def _write_joints(message: Any, values: Array) -> None:
    message.value.extend(values.tolist())


def _member(kind: type[_Enum], value: int, name: str, size: int) -> _Enum:
    # A fifth of the time of kind(value), 12 times per message.
    member = cast("_Enum | None", kind._value2member_map_.get(value))
    if member is None:
        raise InvalidFrame(f"{name} is {value}, which no version of FRI has", size)
    return member
