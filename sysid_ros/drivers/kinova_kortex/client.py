"""The native client: TCP session for the services, UDP session for the cyclic one."""

from __future__ import annotations

import time

from sysid_ros.drivers.kinova_kortex.enums import (
    ArmState,
    ControlMode,
    FrameType,
    Function,
    KortexConnectionLost,
    KortexDecodeError,
    ServoingMode,
)
from sysid_ros.drivers.kinova_kortex.frame import ID_MODULUS, Frame, decode_frame, encode_frame, message_class, parse
from sysid_ros.drivers.kinova_kortex.link import Call, CyclicCounts, KortexLink
from sysid_ros.drivers.kinova_kortex.messages import (
    Command,
    Feedback,
    decode_actuators,
    decode_arm_state,
    decode_feedback,
    encode_command,
)
from sysid_ros.drivers.kinova_kortex.settings import KortexSettings
from sysid_ros.drivers.kinova_kortex.tcp import TcpSession, error_of, session_request
from sysid_ros.drivers.network import UdpEndpoint

_ATTEMPTS = 10
"""Requests over UDP that open the session until one is answered; the network may lose them."""


class KortexClient(KortexLink):
    """Speaks with one base.

    Args:
        settings: Addresses, user, time-outs.
        n: Number of actuators the arm must have.
    """

    def __init__(self, settings: KortexSettings, n: int):
        self._settings, self._n = settings, n
        self._tcp = TcpSession(settings)
        self._udp: UdpEndpoint | None = None
        self._message = self._session = 0
        self.counts = CyclicCounts()
        self.sent_at = time.monotonic()

    def open(self) -> None:
        """See :meth:`KortexLink.open`."""
        self._tcp.open()
        self._udp = self._open_endpoint()
        self._message = self._session = 0
        for _ in range(_ATTEMPTS):
            payload = session_request(self._settings)
            if self._exchange(Function.CREATE_SESSION, payload, self._settings.connect_timeout / _ATTEMPTS) is not None:
                return
        raise KortexConnectionLost(f"{self._settings.robot_ip} does not answer at UDP {self._settings.port_realtime}")

    def clear_faults(self) -> Call[None]:
        """See :meth:`KortexLink.clear_faults`."""
        return self._tcp.start(Function.CLEAR_FAULTS)

    def set_servoing_mode(self, mode: ServoingMode) -> Call[None]:
        """See :meth:`KortexLink.set_servoing_mode`."""
        payload = message_class("ServoingModeInformation")(servoing_mode=mode).SerializeToString()
        return self._tcp.start(Function.SET_SERVOING_MODE, payload)

    def set_control_mode(self, mode: ControlMode, device: int) -> Call[None]:
        """See :meth:`KortexLink.set_control_mode`."""
        payload = message_class("ControlModeInformation")(control_mode=mode).SerializeToString()
        return self._tcp.start(Function.SET_CONTROL_MODE, payload, device)

    def count_actuators(self) -> Call[int]:
        """See :meth:`KortexLink.count_actuators`."""
        return self._tcp.start(Function.GET_ACTUATOR_COUNT, read=lambda data: parse("ActuatorInformation", data).count)

    def find_actuators(self) -> Call[tuple[int, ...]]:
        """See :meth:`KortexLink.find_actuators`."""
        return self._tcp.start(Function.READ_ALL_DEVICES, read=decode_actuators)

    def ask_arm_state(self) -> Call[ArmState]:
        """See :meth:`KortexLink.ask_arm_state`."""
        return self._tcp.start(Function.GET_ARM_STATE, read=decode_arm_state)

    def refresh(self, command: Command | None, timeout: float) -> Feedback | None:
        """See :meth:`KortexLink.refresh`."""
        function = Function.REFRESH_FEEDBACK if command is None else Function.REFRESH
        payload = b"" if command is None else encode_command(command)
        counts = self.counts
        frame = self._exchange(function, payload, timeout)
        if frame is not None:
            received = time.monotonic()
            try:
                feedback = decode_feedback(frame.payload, self._n)
            except KortexDecodeError as error:
                counts.malformed += 1
                counts.rejected = str(error)
            else:
                counts.note(received - self.sent_at)
                return feedback
        counts.missed += 1
        return None

    def keep_alive(self) -> None:
        """See :meth:`KortexLink.keep_alive`."""
        self._tcp.keep_alive()

    @property
    def silence(self) -> float:
        """See :attr:`KortexLink.silence`."""
        return self._tcp.silence

    @property
    def broken(self) -> str:
        """See :attr:`KortexLink.broken`."""
        return "" if self._tcp.is_open else self._tcp.reason

    def close(self) -> None:
        """See :meth:`KortexLink.close`."""
        if self._udp is not None:
            if self._session:
                self._send(Function.CLOSE_SESSION, b"")
            self._udp.close()
            self._udp = None
        self._tcp.close()

    def _open_endpoint(self) -> UdpEndpoint:
        return UdpEndpoint("", 0, self._settings.robot_ip)

    def _exchange(self, function: Function, payload: bytes, timeout: float) -> Frame | None:
        """Sends a request over UDP and waits for the response to it; everything else that comes is only counted."""
        endpoint = self._udp
        if endpoint is None:
            raise KortexConnectionLost("not connected")
        self._send(function, payload)
        deadline = self.sent_at + timeout
        while (datagram := endpoint.receive(deadline - time.monotonic())) is not None:
            frame = self._match(datagram, function)
            if frame is not None:
                return frame
            if time.monotonic() > deadline:
                break
        return None

    def _send(self, function: Function, payload: bytes) -> None:
        self._message = (self._message + 1) % ID_MODULUS
        frame = Frame(FrameType.REQUEST, function, self._session, self._message, 0, payload)
        self._udp.peer = self._settings.robot_ip, self._settings.port_realtime
        self.sent_at = time.monotonic()
        self.counts.sent += 1
        self.counts.unsent += not self._udp.send(encode_frame(frame))

    def _match(self, datagram: bytes, function: Function) -> Frame | None:
        counts = self.counts
        try:
            frame = decode_frame(datagram)
        except KortexDecodeError as error:
            counts.malformed += 1
            counts.rejected = str(error)
            return None
        is_ours = frame.session == self._session or function is Function.CREATE_SESSION or frame.error
        if frame.kind is not FrameType.RESPONSE or not is_ours:
            counts.malformed += 1
            counts.rejected = f"{frame.kind.name} of session {frame.session}"
            return None
        if frame.message != self._message or frame.function != function:
            counts.late += 1
            return None
        if frame.error or frame.sub_error:
            raise error_of(function.name, frame)
        if function is Function.CREATE_SESSION:
            self._session = frame.session
        return frame
