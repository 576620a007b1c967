"""The Kortex messages as protobuf classes, made at run time from a table (proto3, as Kinova's public interface has it).

Descriptors built here work with every version of the protobuf library and live in a pool of their own, so that they
do not collide with Kinova's package where that is installed too. Enumerations are plain integers. What hangs behind the
last joint (interconnect, gripper) is kept as bytes and not looked into.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "sysid_kortex"
_ACTUATOR_FLOATS = "position velocity torque current_motor voltage temperature_motor temperature_core"
_BANKS = "fault_bank_a fault_bank_b warning_bank_a warning_bank_b"


def _axes(*names: str) -> str:
    return " ".join(f"{name}_{axis}" for name in names for axis in "xyz")


def _run(first: int, kind: str, names: str) -> tuple[str, ...]:
    """Fields of one type with consecutive tags."""
    return tuple(f"{tag} {kind} {name}" for tag, name in enumerate(names.split(), first))


_MESSAGES = {
    "Header": _run(1, "fixed32", "frame_info message_info service_info payload_info"),
    "Frame": ("1 Header header", "2 bytes payload"),
    "Error": ("1 int32 error_code", "2 int32 error_sub_code", "3 bytes error_sub_string"),
    "CreateSessionInfo": (
        "1 bytes username", "2 uint32 session_inactivity_timeout", "3 bytes password",
        "4 uint32 connection_inactivity_timeout",
    ),
    "ServoingModeInformation": ("1 int32 servoing_mode",),
    "ControlModeInformation": ("1 int32 control_mode",),
    "ActuatorInformation": ("1 uint32 count",),
    "ArmStateInformation": ("1 int32 active_state",),
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

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {name: getattr(_FIELD, f"TYPE_{name.upper()}") for name in ("float", "fixed32", "int32", "uint32", "bytes")}


def message_fields() -> dict[str, tuple[str, ...]]:
    """Fields of every message, each as ``tag [repeated] type name``."""
    return dict(_MESSAGES)


@cache
def message_class(name: str) -> Any:
    """The protobuf class of a message."""
    descriptor = _pool().FindMessageTypeByName(f"{_PACKAGE}.{name}")
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory().GetPrototype(descriptor)  # protobuf before 4.22


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for tag, *label, kind, field_name in (field.split() for field in fields):
            field = message.field.add(name=field_name, number=int(tag))
            field.label = _FIELD.LABEL_REPEATED if label else _FIELD.LABEL_OPTIONAL
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:
                field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool
