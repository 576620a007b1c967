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


class Service(IntEnum):
    """Services that are used or emulated."""

    SESSION = 1
    BASE = 2
    BASE_CYCLIC = 3
    DEVICE_CONFIG = 9
    ACTUATOR_CONFIG = 10
    DEVICE_MANAGER = 23


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
    READ_ALL_DEVICES = 0x170001


class ServoingMode(IntEnum):
    """Servoing mode of the base."""

    SINGLE_LEVEL = 2
    LOW_LEVEL = 3
    BYPASS = 4


class ControlMode(IntEnum):
    """Control mode of an actuator."""

    POSITION = 1
    VELOCITY = 2
    TORQUE = 3
    CURRENT = 4


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


class DeviceType(IntEnum):
    """Kinds of devices in the arm."""

    BASE = 1
    VISION = 2
    BIG_ACTUATOR = 3
    SMALL_ACTUATOR = 4
    INTERCONNECT = 5
    GRIPPER = 6
    MEDIUM_ACTUATOR = 7
    XBIG_ACTUATOR = 8

    @property
    def is_actuator(self) -> bool:
        """Whether it moves a joint."""
        return self in (
            DeviceType.BIG_ACTUATOR, DeviceType.SMALL_ACTUATOR, DeviceType.MEDIUM_ACTUATOR, DeviceType.XBIG_ACTUATOR,
        )  # fmt: skip


class ErrorCode(IntEnum):
    """Source of an error."""

    NONE = 0
    PROTOCOL_SERVER = 1
    PROTOCOL_CLIENT = 2
    DEVICE = 3
    INTERNAL = 4


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


class CommandFlag(IntFlag):
    """Flags of an actuator's command."""

    SERVO_ENABLE = 1
    BRAKE_DISABLE = 2
    CLEAR_MAJOR = 4
    CLEAR_MINOR = 8


class Status(IntFlag):
    """Flags of an actuator's feedback."""

    BRAKING = 0x400
    SERVOING = 0x800
    MAJOR_FAULT = 0x1000
    MINOR_FAULT = 0x2000
    CALIBRATED_TORQUE = 0x4000


class Safety(IntFlag):
    """Bank A of an actuator's faults and warnings."""

    FOLLOWING_ERROR = 0x1
    MAXIMUM_VELOCITY = 0x2
    JOINT_LIMIT_HIGH = 0x4
    JOINT_LIMIT_LOW = 0x8
    STRAIN_GAUGE_MISMATCH = 0x10
    MAXIMUM_TORQUE = 0x20
    UNRELIABLE_ABSOLUTE_POSITION = 0x40
    MAGNETIC_POSITION = 0x80
    HALL_POSITION = 0x100
    HALL_SEQUENCE = 0x200
    INPUT_ENCODER_HALL_MISMATCH = 0x400
    INPUT_ENCODER_INDEX_MISMATCH = 0x800
    INPUT_ENCODER_MAGNETIC_MISMATCH = 0x1000
    MAXIMUM_MOTOR_CURRENT = 0x2000
    MOTOR_CURRENT_MISMATCH = 0x4000
    MAXIMUM_VOLTAGE = 0x8000
    MINIMUM_VOLTAGE = 0x10000
    MAXIMUM_MOTOR_TEMPERATURE = 0x20000
    MAXIMUM_CORE_TEMPERATURE = 0x40000
    NON_VOLATILE_MEMORY_CORRUPTED = 0x80000
    MOTOR_DRIVER_FAULT = 0x100000
    EMERGENCY_LINE_ASSERTED = 0x200000
    COMMUNICATION_TICK_LOST = 0x400000
    WATCHDOG_TRIGGERED = 0x800000
    UNRELIABLE_CAPACITIVE_SENSOR = 0x1000000
    UNEXPECTED_GEAR_RATIO = 0x2000000
    HALL_MAGNETIC_MISMATCH = 0x4000000
    BRAKE_DRIVE_FAULT = 0x8000000
    BRAKE_RELEASE_MOTION_OUT_OF_RANGE = 0x10000000


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
