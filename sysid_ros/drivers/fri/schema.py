"""The FRI messages as protobuf classes, made at run time from a table.

Descriptors built here work with every version of the protobuf library; generated code is refused by a library older
than the generator. Each version of FRI has a descriptor pool of its own, so nothing collides with other users of
protobuf in the process. Enumerations are plain integers here: a closed enumeration of proto2 would hide an unknown
value as if the field were absent. Names are bytes, because they are never read as text and need not be UTF-8.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from sysid_ros.drivers.fri.enums import FriVersion

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

_SINCE_2_7 = {"MessageMonitorData": ("6 optional CartesianVector externalForce",)}

_PARTS = {
    FriVersion.V1_15: (_COMMON, _END_OF_MESSAGE, _ONLY_1),
    FriVersion.V2_5: (_COMMON, _END_OF_MESSAGE, _SINCE_2),
    FriVersion.V2_7: (_COMMON, _SINCE_2, _SINCE_2_7),
}
_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {name: getattr(_FIELD, f"TYPE_{name.upper()}") for name in ("double", "int32", "uint32", "uint64", "bytes")}


def fields_of(version: FriVersion) -> dict[str, tuple[str, ...]]:
    """Fields of every message of a version, each as ``tag label type name``."""
    messages: dict[str, tuple[str, ...]] = {}
    for part in _PARTS[version]:
        for name, fields in part.items():
            messages[name] = messages.get(name, ()) + fields
    return messages


@cache
def message_classes(version: FriVersion) -> dict[str, Any]:
    """The protobuf classes of a version by message name."""
    package = "fri_" + version.value.replace(".", "_")
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    for name, fields in fields_of(version).items():
        message = file.message_type.add(name=name)
        for field in fields:
            _add_field(message, package, *field.split())
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {name: _class_of(pool.FindMessageTypeByName(f"{package}.{name}")) for name in fields_of(version)}


def _add_field(message: Any, package: str, tag: str, label: str, kind: str, name: str) -> None:
    field = message.field.add(name=name, number=int(tag))
    is_packed = label == "packed"
    field.label = _FIELD.LABEL_REPEATED if is_packed else getattr(_FIELD, f"LABEL_{label.upper()}")
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{package}.{kind}"
    if is_packed:
        field.options.packed = True


def _class_of(descriptor: Any) -> Any:
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory().GetPrototype(descriptor)  # protobuf before 4.22
