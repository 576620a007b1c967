"""The emulated base: sessions, services, servoing modes, and the arm. It knows no socket and no clock.

:meth:`KortexBase.answer` takes a frame and returns the response, :meth:`KortexBase.advance` lets a period pass. In
low-level servoing a Refresh starts a cycle: it is answered with the present measurement, and its torques act from now
on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

import numpy as np

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.drivers.kinova_kortex.enums import (
    ArmState,
    ControlMode,
    DeviceType,
    ErrorCode,
    FrameType,
    Function,
    KortexServerError,
    ServoingMode,
    SubError,
    name_faults,
)
from sysid_ros.drivers.kinova_kortex.frame import Frame, decode_frame, encode, encode_frame, message_class, parse
from sysid_ros.drivers.kinova_kortex.messages import Feedback, decode_command, encode_feedback, to_wire
from sysid_ros.drivers.network import InvalidFrame
from sysid_ros.emulators.kortex.actuators import Actuators
from sysid_ros.emulators.plant import PERIOD, EmulatedArm
from sysid_ros.emulators.program import RefusalReporter

_Enum = TypeVar("_Enum", bound=IntEnum)
_FIRST_ID = 0x1001
_AT_ONCE = 1e-9
"""A timeout that every session exceeds [s]."""


@dataclass
class Session:
    """One session of a client: a connection on TCP, an address on UDP."""

    transport: str
    client: object
    inactivity: float
    """Time without a frame after which it ends [s]."""
    connection: float
    """Time without a frame after which its connection counts as dead [s]."""
    last: float
    """Time of the last frame [s]."""


class Sessions(dict[int, Session]):
    """The sessions of the only user, by number."""

    def __init__(self, username: str, password: str):
        super().__init__()
        self._user, self._password = username.encode(), password.encode()
        self._next = _FIRST_ID

    def create(self, transport: str, client: object, payload: bytes, now: float) -> tuple[int, SubError]:
        """Open a session; return its id, or 0 and the reason, or raise :class:`InvalidFrame`."""
        info = parse("CreateSessionInfo", payload)
        if info.username != self._user:
            return 0, SubError.USER_NOT_FOUND
        if info.password != self._password:
            return 0, SubError.INVALID_PASSWORD
        number, self._next = self._next, self._next % 0xFFFF + 1
        timeouts = 1e-3 * info.session_inactivity_timeout, 1e-3 * info.connection_inactivity_timeout
        self[number] = Session(transport, client, *timeouts, now)
        return number, SubError.NONE

    def touch(self, number: int, transport: str, client: object, now: float) -> bool:
        """Whether this client has this session; records its frame."""
        session = self.get(number)
        if session is None or (session.transport, session.client) != (transport, client):
            return False
        session.last = now
        return True

    def close_client(self, transport: str, client: object) -> int:
        """End all sessions of a connection that is gone; return their number."""
        gone = [n for n, one in self.items() if (one.transport, one.client) == (transport, client)]
        return len([self.pop(number) for number in gone])

    def expire(self, now: float) -> list[Session]:
        """End the sessions that have timed out, and return them."""
        expired = []
        for number, session in list(self.items()):
            timeouts = [time for time in (session.inactivity, session.connection) if time > 0.0]
            if timeouts and now - session.last > min(timeouts):
                expired.append(self.pop(number))
        return expired

    def time_out(self, transport: str) -> None:
        """Let the sessions of a transport end at the next check, as if they had timed out."""
        for session in self.values():
            if session.transport == transport:
                session.inactivity = _AT_ONCE


TCP, UDP = "tcp", "udp"
_CYCLIC = (Function.REFRESH, Function.REFRESH_COMMAND, Function.REFRESH_FEEDBACK)
_EVERYWHERE = (Function.CREATE_SESSION, Function.CLOSE_SESSION, Function.KEEP_ALIVE)


@dataclass(frozen=True)
class BaseSettings:
    """The emulated base."""

    username: str = "admin"
    """Its only user."""
    password: str = "admin"
    """Its password."""
    joint_count: int = 0
    """Number of actuators it has; another one than the robot's is for tests of clients."""
    watchdog_time: float = 0.1
    """Time without a cyclic command in low-level servoing after which the arm holds [s]; own rule."""
    device_ids: tuple[int, ...] = ()
    """Device ids of the actuators; empty for 1 to n."""
    serial_number: str = "emulated"
    """Reported serial number; empty: none."""

    def __post_init__(self) -> None:
        if not 0.005 <= self.watchdog_time <= 10.0:
            raise ParameterOutOfRange("watchdog_time [s]", self.watchdog_time, "0.005 to 10")


def refusal(sub_code: SubError, text: str | None = None, code: ErrorCode = ErrorCode.DEVICE) -> KortexServerError:
    """Return the error that the base answers."""
    return KortexServerError("a request", code, sub_code, text)


def _member(kind: type[_Enum], number: int, name: str) -> _Enum:
    try:
        return kind(number)
    except ValueError:
        raise refusal(SubError.INVALID_PARAM, f"{name} {number}") from None


_FUNCTION_NAMES = {function.value: function.name for function in Function}


class KortexBase:
    """One base with one arm; ``report`` is called with a sentence at every change of state."""

    def __init__(
        self, arm: EmulatedArm, settings: BaseSettings | None = None, report: Callable[[str], None] = lambda _: None
    ):
        self.settings = settings or BaseSettings()
        self.arm = arm
        self.actuators = Actuators(arm, self.settings.watchdog_time)
        self.sessions = Sessions(self.settings.username, self.settings.password)
        self.servoing = ServoingMode.SINGLE_LEVEL
        self.time = 0.0
        self.malformed = self.refused = 0
        self._report, self._refusals = report, RefusalReporter(report)
        self._feedback_frame = 0
        self._reported = 0
        self._count = self.settings.joint_count or arm.robot.n
        self._devices = self.settings.device_ids or tuple(range(1, self._count + 1))
        self.load: dict[Function, bytes] = {}
        self.is_fresh = False  # a command was accepted since this was last set to False

    # Requests

    def answer(self, transport: str, client: object, data: bytes) -> bytes | None:
        """Return the response to a frame of a client over :data:`TCP` or :data:`UDP`; None without one."""
        try:
            frame = decode_frame(data)
        except InvalidFrame as error:
            self.malformed += 1
            self._say_refused(f"a frame over {transport}: {error}")
            return None
        if frame.kind is FrameType.PING:
            return encode_frame(frame._replace(kind=FrameType.PONG))
        if frame.kind is not FrameType.REQUEST:
            return None
        response = frame._replace(kind=FrameType.RESPONSE, payload=b"")
        try:
            response = self._serve(transport, client, frame, response)
        except KortexServerError as refused:
            response = self._refuse(transport, frame, response, refused)
        except InvalidFrame as error:
            unreadable = refusal(SubError.PAYLOAD_DECODING_ERR, str(error), ErrorCode.PROTOCOL_SERVER)
            response = self._refuse(transport, frame, response, unreadable)
        return encode_frame(response)

    def disconnect(self, client: object) -> None:
        """End the session of a TCP connection that is gone; that torques end then is this emulator's own rule."""
        if self.sessions.close_client(TCP, client):
            self.leave_low_level("the TCP connection of a session is gone")

    def _serve(self, transport: str, client: object, frame: Frame, response: Frame) -> Frame:
        try:
            function = Function(frame.function)
        except ValueError:
            known = frame.function >> 16 in {one >> 16 for one in Function}
            sub_error = SubError.UNSUPPORTED_METHOD if known else SubError.UNSUPPORTED_SERVICE
            raise refusal(sub_error, None, ErrorCode.PROTOCOL_SERVER) from None
        if function is Function.CREATE_SESSION:
            number, sub_error = self.sessions.create(transport, client, frame.payload, self.time)
            if sub_error:
                raise refusal(sub_error, None, ErrorCode.PROTOCOL_SERVER)
            return response._replace(session=number)
        if not self.sessions.touch(frame.session, transport, client, self.time):
            raise refusal(SubError.INVALID_SESSION, None, ErrorCode.PROTOCOL_SERVER)
        if function not in _EVERYWHERE and (transport == UDP) != (function in _CYCLIC):
            raise refusal(SubError.UNSUPPORTED_SERVICE, f"not over {transport}", ErrorCode.PROTOCOL_SERVER)
        if function is Function.CLOSE_SESSION:
            self.sessions.pop(frame.session)
        elif function in _CYCLIC:
            return response._replace(payload=self._cycle(function, frame.payload))
        else:
            return response._replace(payload=self._call(function, frame))
        return response

    def _call(self, function: Function, frame: Frame) -> bytes:
        if function is Function.CLEAR_FAULTS or function is Function.ACTUATOR_CLEAR_FAULTS:
            self.actuators.clear_faults()
        elif function is Function.APPLY_EMERGENCY_STOP:
            self.press_emergency_stop()
        elif function is Function.SET_SERVOING_MODE:
            self._set_servoing(parse("ServoingModeInformation", frame.payload).servoing_mode)
        elif function is Function.GET_SERVOING_MODE:
            return encode("ServoingModeInformation", servoing_mode=self.servoing)
        elif function is Function.SET_CONTROL_MODE:
            self._set_control(frame.device, parse("ControlModeInformation", frame.payload).control_mode)
        elif function is Function.GET_CONTROL_MODE:
            return encode("ControlModeInformation", control_mode=self.actuators.modes[self._joint(frame.device)])
        elif function is Function.GET_ACTUATOR_COUNT:
            return encode("ActuatorInformation", count=self._count)
        elif function is Function.GET_ARM_STATE:
            return encode("ArmStateInformation", active_state=self.state)
        elif function is Function.GET_SERIAL_NUMBER:
            return encode("SerialNumber", serial_number=self.settings.serial_number.encode())
        elif function is Function.READ_ALL_DEVICES:
            return self._device_handles()
        elif function in (Function.SET_PAYLOAD_INFORMATION, Function.SET_TOOL_CONFIGURATION):
            self._set_load(function, frame.payload)
        elif function is Function.GET_PAYLOAD_INFORMATION or function is Function.GET_TOOL_CONFIGURATION:
            return self.load.get(function, b"")
        return b""

    def _set_load(self, function: Function, payload: bytes) -> None:
        """Keep tool or payload; which values are refused is this emulator's own rule."""
        name = "payload" if function is Function.SET_PAYLOAD_INFORMATION else "tool"
        message = parse("PayloadInformation" if name == "payload" else "ToolConfiguration", payload)
        mass, center = getattr(message, f"{name}_mass"), getattr(message, f"{name}_mass_center")
        if not (mass >= 0.0 and np.isfinite([mass, center.x, center.y, center.z]).all()):
            raise refusal(SubError.INVALID_PARAM, f"{name} mass {mass:g}")
        self.load[Function(function + 1)] = payload  # its Get follows each Set

    # Servoing

    @property
    def state(self) -> ArmState:
        """State of the arm."""
        if self.actuators.is_in_fault:
            return ArmState.IN_FAULT
        is_low = self.servoing is ServoingMode.LOW_LEVEL
        return ArmState.SERVOING_LOW_LEVEL if is_low else ArmState.SERVOING_READY

    @property
    def is_waiting_for_client(self) -> bool:
        """Whether torques act that a client has to keep up to date."""
        return self.actuators.is_tracking

    def press_emergency_stop(self, is_pressed: bool = True) -> None:
        """Press the emergency stop, or release it again; releasing clears no fault."""
        self.actuators.emergency_stop = is_pressed
        if is_pressed:
            self.leave_low_level("emergency stop")

    def restart(self) -> None:
        """Restart the base: no sessions, no faults, the arm held in place."""
        self.sessions.clear()
        self.leave_low_level("restart")
        self.actuators.hold()
        self.actuators.clear_faults()
        self.actuators.frame = 0

    def advance(self) -> None:
        """One period passes."""
        self.time += PERIOD
        self.actuators.advance()
        faults = int(np.bitwise_or.reduce(self.actuators.faults))
        if faults != self._reported:
            self._reported = faults
            self._report(f"faults: {name_faults(faults)}")
        if faults:
            self.leave_low_level(name_faults(faults))
        for session in self.sessions.expire(self.time):
            self._report(f"{session.transport} session ended: timeout")
            self.leave_low_level(f"a {session.transport} session has ended")

    def _set_servoing(self, number: int) -> None:
        mode = _member(ServoingMode, number, "servoing mode")
        if mode is ServoingMode.BYPASS:
            raise refusal(SubError.CONTROL_PERMISSION_DENIED, "bypass is for Kinova's own tools")
        if mode is ServoingMode.LOW_LEVEL:
            self._require_no_fault()
            if self.servoing is not mode:
                self.actuators.enter_low_level()
                self._report("low-level servoing")
            self.servoing = mode
        else:
            self.leave_low_level("asked for")

    def _set_control(self, device: int, number: int) -> None:
        joint, mode = self._joint(device), _member(ControlMode, number, "control mode")
        if mode not in (ControlMode.POSITION, ControlMode.TORQUE):
            raise refusal(SubError.INVALID_PARAM, f"control mode {mode.name} is not emulated")
        if mode is ControlMode.TORQUE:
            self._require_no_fault()
            if self.servoing is not ServoingMode.LOW_LEVEL:
                raise refusal(SubError.WRONG_SERVOING_MODE, "torque control needs low-level servoing")
        self.actuators.set_mode(joint, mode)

    def _joint(self, device: int) -> int:
        try:
            return self._devices.index(device)
        except ValueError:
            raise refusal(SubError.INVALID_DEVICE, f"device {device}") from None

    def _require_no_fault(self) -> None:
        if self.actuators.emergency_stop:
            raise refusal(SubError.ROBOT_IN_EMERGENCY_STOP)
        if self.actuators.is_in_fault:
            raise refusal(SubError.ROBOT_IN_FAULT)

    def leave_low_level(self, reason: str) -> None:
        """Leave low-level servoing, also without a request, as when a person takes the joystick of the base."""
        if self.servoing is ServoingMode.LOW_LEVEL:
            self._report(f"the base holds the arm: {reason}")
            self.servoing = ServoingMode.SINGLE_LEVEL
            self.actuators.hold()

    # Cyclic service

    def _cycle(self, function: Function, payload: bytes) -> bytes:
        if function is not Function.REFRESH_FEEDBACK:
            if self.servoing is not ServoingMode.LOW_LEVEL:
                raise refusal(SubError.WRONG_SERVOING_MODE, "wrong servoing mode")
            command = decode_command(payload, self._count)
            measured = encode_feedback(self._feedback(command.frame))
            self.is_fresh = self.actuators.accept(command)
            if not self.is_fresh:
                self._say_refused(f"a command with frame {command.frame}: the last had {self.actuators.frame}")
            return b"" if function is Function.REFRESH_COMMAND else measured
        self._feedback_frame = (self._feedback_frame + 1) & 0xFFFF
        return encode_feedback(self._feedback(self._feedback_frame))

    def _feedback(self, frame: int) -> Feedback:
        measured, actuators = self.actuators.measured, self.actuators

        def fit(values: np.ndarray) -> np.ndarray:
            return values if self._count == len(values) else np.resize(values, self._count)

        return Feedback(
            frame,
            self.state,
            fit(to_wire(measured.q)),
            fit(np.degrees(measured.v)),
            fit(measured.tau),
            (actuators.frame,) * self._count,
            tuple(fit(actuators.faults).tolist()),
            tuple(fit(actuators.warnings).tolist()),
            0,
            tuple(fit(np.array(actuators.status)).tolist()),
        )

    def _device_handles(self) -> bytes:
        message = message_class("DeviceHandles")()
        message.device_handle.add(device_type=DeviceType.BASE, device_identifier=0)
        # Kinova: the order is not guaranteed.
        for device in reversed(self._devices):
            kind = DeviceType.BIG_ACTUATOR if device <= 4 else DeviceType.SMALL_ACTUATOR
            message.device_handle.add(device_type=kind, device_identifier=device, order=device)
        message.device_handle.add(device_type=DeviceType.INTERCONNECT, device_identifier=len(self._devices) + 1)
        return message.SerializeToString()

    def _refuse(self, transport: str, frame: Frame, response: Frame, refused: KortexServerError) -> Frame:
        self.refused += 1
        text = SubError(refused.sub_code).name.lower().replace("_", " ") if refused.text is None else refused.text
        payload = encode(
            "Error", error_code=refused.code, error_sub_code=refused.sub_code, error_sub_string=text.encode()
        )
        name = _FUNCTION_NAMES.get(frame.function, f"function {frame.function:#x}")
        self._say_refused(f"{name} over {transport}: {text}")
        return response._replace(payload=payload, error=refused.code, sub_error=refused.sub_code)

    def _say_refused(self, text: str) -> None:
        counts = f"{self.malformed} frames, {self.refused} requests and {self.actuators.rejected} old commands"
        self._refusals.say(text, counts, self.time)
