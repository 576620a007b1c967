"""Numbers of the Kortex interface."""

from __future__ import annotations

from enum import IntEnum, IntFlag

from sysid_ros.drivers.arm import ArmError


class FrameType(IntEnum):
    """Type of a frame."""

    REQUEST = 1
    RAW = 2
    RESPONSE = 3
    NOTIFICATION = 5
    PING = 7
    PONG = 8


class Function(IntEnum):
    """Functions by service id times 65536 plus function id."""

    CREATE_SESSION = 0x10001
    CLOSE_SESSION = 0x10002
    KEEP_ALIVE = 0x10003
    REFRESH = 0x30001
    REFRESH_COMMAND = 0x30002
    REFRESH_FEEDBACK = 0x30003
    APPLY_EMERGENCY_STOP = 0x20000 + 145
    CLEAR_FAULTS = 0x20000 + 146
    SET_SERVOING_MODE = 0x20000 + 152
    GET_SERVOING_MODE = 0x20000 + 153
    GET_ACTUATOR_COUNT = 0x20000 + 171
    GET_ARM_STATE = 0x20000 + 175
    GET_SERIAL_NUMBER = 0x90008
    GET_CONTROL_MODE = 0xA0006
    SET_CONTROL_MODE = 0xA0007
    ACTUATOR_CLEAR_FAULTS = 0xA0000 + 25
    SET_PAYLOAD_INFORMATION = 0x100003
    GET_PAYLOAD_INFORMATION = 0x100004
    SET_TOOL_CONFIGURATION = 0x100005
    GET_TOOL_CONFIGURATION = 0x100006
    READ_ALL_DEVICES = 0x170001


ServoingMode = IntEnum("ServoingMode", "SINGLE_LEVEL LOW_LEVEL BYPASS", start=2)
"""Servoing mode of the base."""
ControlMode = IntEnum("ControlMode", "POSITION VELOCITY TORQUE CURRENT")
"""Control mode of an actuator."""


class ArmState(IntEnum):
    """State of the whole arm."""

    UNSPECIFIED = 0
    BASE_INITIALIZATION = 1
    IDLE = 2
    INITIALIZATION = 3
    IN_FAULT = 4
    MAINTENANCE = 5
    SERVOING_LOW_LEVEL = 6
    SERVOING_READY = 7
    SERVOING_PLAYING_SEQUENCE = 8
    SERVOING_MANUALLY_CONTROLLED = 9
    BRAKE_RELEASING = 10
    RESERVED = 255


DeviceType = IntEnum(
    "DeviceType", "BASE VISION BIG_ACTUATOR SMALL_ACTUATOR INTERCONNECT GRIPPER MEDIUM_ACTUATOR XBIG_ACTUATOR"
)
"""Kinds of devices in the arm."""
ACTUATORS = (
    DeviceType.BIG_ACTUATOR, DeviceType.SMALL_ACTUATOR, DeviceType.MEDIUM_ACTUATOR, DeviceType.XBIG_ACTUATOR,
)  # fmt: skip
"""Devices that move a joint."""
ErrorCode = IntEnum("ErrorCode", "NONE PROTOCOL_SERVER PROTOCOL_CLIENT DEVICE INTERNAL", start=0)
"""Source of an error."""


class SubError(IntEnum):
    """Sub code of an error; the ones that this package sends or mentions."""

    NONE = 0
    METHOD_FAILED = 1
    INVALID_PARAM = 3
    UNSUPPORTED_SERVICE = 4
    UNSUPPORTED_METHOD = 5
    FRAME_DECODING_ERR = 8
    INCOMPATIBLE_HEADER_VERSION = 9
    UNSUPPORTED_FRAME_TYPE = 10
    INVALID_SESSION = 12
    PAYLOAD_DECODING_ERR = 13
    INVALID_PASSWORD = 15
    USER_NOT_FOUND = 16
    ROBOT_NOT_READY = 21
    ROBOT_IN_FAULT = 22
    ROBOT_IN_MAINTENANCE = 23
    ROBOT_IN_EMERGENCY_STOP = 25
    DEVICE_DISCONNECTED = 50
    DEVICE_NOT_READY = 51
    INVALID_DEVICE = 52
    CONTROL_ACTUATOR_COUNT_MISMATCH = 57
    WRONG_SERVOING_MODE = 75
    SESSION_NOT_IN_CONTROL = 130
    METHOD_TIMEOUT = 131
    CONTROL_PERMISSION_DENIED = 141


CommandFlag = IntFlag("CommandFlag", "SERVO_ENABLE BRAKE_DISABLE CLEAR_MAJOR CLEAR_MINOR")
"""Flags of an actuator's command."""


class Status(IntFlag):
    """Flags of an actuator's feedback."""

    BRAKING = 0x400
    SERVOING = 0x800
    MAJOR_FAULT = 0x1000
    MINOR_FAULT = 0x2000
    CALIBRATED_TORQUE = 0x4000


Safety = IntFlag(
    "Safety",
    "FOLLOWING_ERROR MAXIMUM_VELOCITY JOINT_LIMIT_HIGH JOINT_LIMIT_LOW STRAIN_GAUGE_MISMATCH MAXIMUM_TORQUE "
    "UNRELIABLE_ABSOLUTE_POSITION MAGNETIC_POSITION HALL_POSITION HALL_SEQUENCE INPUT_ENCODER_HALL_MISMATCH "
    "INPUT_ENCODER_INDEX_MISMATCH INPUT_ENCODER_MAGNETIC_MISMATCH MAXIMUM_MOTOR_CURRENT MOTOR_CURRENT_MISMATCH "
    "MAXIMUM_VOLTAGE MINIMUM_VOLTAGE MAXIMUM_MOTOR_TEMPERATURE MAXIMUM_CORE_TEMPERATURE "
    "NON_VOLATILE_MEMORY_CORRUPTED MOTOR_DRIVER_FAULT EMERGENCY_LINE_ASSERTED COMMUNICATION_TICK_LOST "
    "WATCHDOG_TRIGGERED UNRELIABLE_CAPACITIVE_SENSOR UNEXPECTED_GEAR_RATIO HALL_MAGNETIC_MISMATCH "
    "BRAKE_DRIVE_FAULT BRAKE_RELEASE_MOTION_OUT_OF_RANGE",
)
"""Bank A of an actuator's faults and warnings, from bit 0 on."""


def name_faults(bits: int) -> str:
    """Name the bits of bank A, and the rest as a number; "none" without any."""
    if not bits:
        return "none"
    names = [str(flag.name) for flag in Safety if bits & flag]
    rest = bits & ~sum(Safety)
    return ", ".join([*names, *([f"bits {rest:#x}"] if rest else [])])


class KortexServerError(ArmError):
    """The base answers a request with an error.

    Args:
        call: The request.
        code: Source of the error.
        sub_code: The error.
        text: Message of the base; None without one.
    """

    def __init__(self, call: str, code: int, sub_code: int, text: str | None = None):
        self.call = call
        self.code, self.sub_code = code, sub_code
        self.text = text
        names = f"{_name(ErrorCode, code)}, {_name(SubError, sub_code)}"
        super().__init__(f"{call} was refused by the base: {names}{'' if text is None else f' ({text})'}")


class KortexConnectionLost(ArmError):
    """The connection to the base is gone, or was never there."""

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(f"no connection to the base: {reason}")


def _name(kind: type[IntEnum], value: int) -> str:
    try:
        return kind(value).name
    except ValueError:
        return f"{kind.__name__} {value}"
