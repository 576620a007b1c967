"""The native client: TCP session for the services, UDP session for the cyclic one."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from sysid_ros.drivers.kinova_kortex.enums import ControlMode, FrameType, Function, KortexConnectionLost, ServoingMode
from sysid_ros.drivers.kinova_kortex.frame import ID_MODULUS, Frame, decode_frame, encode, encode_frame, parse
from sysid_ros.drivers.kinova_kortex.messages import Command, Feedback, decode_feedback, encode_command
from sysid_ros.drivers.kinova_kortex.settings import KortexSettings
from sysid_ros.drivers.kinova_kortex.tcp import TcpCall, TcpSession, error_of, session_request
from sysid_ros.drivers.network import InvalidFrame, UdpEndpoint

_KEPT = 2000
"""Round trips that are kept for statistics."""
_ATTEMPTS = 10
"""Requests over UDP that open the session until one is answered; the network may lose them."""


class CyclicCounts:
    """Outcomes of the requests of the cyclic service.

    Attributes:
        rejected: Fault of the latest invalid datagram; None without any.
        round_trips: The latest times from request to reply [s].
        shortest: Shortest of all [s].
    """

    def __init__(self) -> None:
        self.sent = self.answered = self.missed = self.late = self.malformed = self.unsent = 0
        self.rejected: str | None = None
        self.round_trips: deque[float] = deque(maxlen=_KEPT)
        self.shortest = float("inf")

    def note(self, seconds: float) -> None:
        """Record one round trip [s]."""
        self.answered += 1
        self.round_trips.append(seconds)
        self.shortest = min(self.shortest, seconds)

    def report(self) -> dict[str, object]:
        """Return the round-trip times by name."""
        times = np.array(self.round_trips or [0.0])
        return {
            "requests sent": self.sent,
            "replies": self.answered,
            "replies missing": self.missed,
            "replies late or repeated": self.late,
            "datagrams malformed": self.malformed,
            "requests not taken by the network": self.unsent,
            "round trip p50 [s]": float(np.quantile(times, 0.5)),
            "round trip p99 [s]": float(np.quantile(times, 0.99)),
            "round trip max [s]": float(times.max()),
        }


class KortexClient:
    """Client of one base: a session over TCP for its services, one over UDP for the cyclic exchange.

    Attributes:
        counts: Outcomes of cyclic requests.
        sent_at: Time of the last cyclic request [s of the monotonic clock].
    """

    def __init__(self, settings: KortexSettings, n: int):
        self._settings, self._n = settings, n
        self._tcp = TcpSession(settings)
        self._udp: UdpEndpoint | None = None
        self._message = self._session = 0
        self.counts = CyclicCounts()
        self.sent_at = time.monotonic()

    def open(self) -> None:
        """Connect both transports and open a session on each.

        Raises:
            KortexConnectionLost: The base cannot be reached.
            KortexServerError: It refuses, because of user or password for instance.
        """
        self._tcp.open()
        self._udp = self._open_endpoint()
        self._message = self._session = 0
        for _ in range(_ATTEMPTS):
            payload = session_request(self._settings)
            if self._exchange(Function.CREATE_SESSION, payload, self._settings.connect_timeout / _ATTEMPTS) is not None:
                return
        raise KortexConnectionLost(f"{self._settings.robot_ip} does not answer at UDP {self._settings.port_realtime}")

    def call(self, function: Function, answer: str, payload: bytes = b"") -> Any:
        """Request a function of the base and return the answer, a message of this name; raises as :meth:`open`."""
        request = self._tcp.start(function, payload, read=lambda data: parse(answer, data))
        return self._tcp.wait(request, self._settings.call_timeout)

    def start(self, function: Function, read: Callable[[bytes], Any] = bytes) -> TcpCall[Any]:
        """Request a function without arguments; ``read`` converts the payload of its answer."""
        return self._tcp.start(function, read=read)

    def set_servoing_mode(self, mode: ServoingMode) -> TcpCall[bytes]:
        """Request another servoing mode of the base."""
        return self._tcp.start(Function.SET_SERVOING_MODE, encode("ServoingModeInformation", servoing_mode=mode))

    def set_control_mode(self, mode: ControlMode, device: int) -> TcpCall[bytes]:
        """Request a control mode of one actuator."""
        return self._tcp.start(Function.SET_CONTROL_MODE, encode("ControlModeInformation", control_mode=mode), device)

    def refresh(self, command: Command | None, timeout: float) -> Feedback | None:
        """Do one cyclic exchange; without a command only feedback is requested.

        Returns:
            The reply to this very request; None if none came within a timeout [s].

        Raises:
            KortexServerError: The base refused, for instance because it has left low-level servoing.
        """
        function = Function.REFRESH_FEEDBACK if command is None else Function.REFRESH
        payload = b"" if command is None else encode_command(command)
        counts = self.counts
        frame = self._exchange(function, payload, timeout)
        if frame is not None:
            received = time.monotonic()
            try:
                feedback = decode_feedback(frame.payload, self._n)
            except InvalidFrame as error:
                counts.malformed += 1
                counts.rejected = str(error)
            else:
                counts.note(received - self.sent_at)
                return feedback
        counts.missed += 1
        return None

    def keep_alive(self) -> None:
        """Keep the TCP session alive; to be called in every cycle, does not wait."""
        self._tcp.keep_alive()

    @property
    def overdue(self) -> float:
        """Time for which the TCP session has owed an answer [s]; 0 if none is due."""
        return self._tcp.overdue

    def find_break(self) -> str | None:
        """Return why there is no TCP connection any more; None while it stands."""
        self.keep_alive()
        return None if self._tcp.is_open else self._tcp.reason

    def close(self) -> None:
        """Close both sessions and transports. Never raises."""
        if self._udp is not None:
            if self._session:
                self._send(self._udp, Function.CLOSE_SESSION, b"")
            self._udp.close()
            self._udp = None
        self._tcp.close()

    def _open_endpoint(self) -> UdpEndpoint:
        return UdpEndpoint(None, 0, self._settings.robot_ip)

    def _exchange(self, function: Function, payload: bytes, timeout: float) -> Frame | None:
        endpoint = self._udp
        if endpoint is None:
            raise KortexConnectionLost("not connected")
        self._send(endpoint, function, payload)
        deadline = self.sent_at + timeout
        while (datagram := endpoint.receive(deadline - time.monotonic())) is not None:
            frame = self._match(datagram, function)
            if frame is not None:
                return frame
            if time.monotonic() > deadline:
                break
        return None

    def _send(self, endpoint: UdpEndpoint, function: Function, payload: bytes) -> None:
        self._message = (self._message + 1) % ID_MODULUS
        frame = Frame(FrameType.REQUEST, function, self._session, self._message, 0, payload)
        endpoint.peer = self._settings.robot_ip, self._settings.port_realtime
        self.sent_at = time.monotonic()
        self.counts.sent += 1
        self.counts.unsent += not endpoint.send(encode_frame(frame))

    def _match(self, datagram: bytes, function: Function) -> Frame | None:
        counts = self.counts
        try:
            frame = decode_frame(datagram)
        except InvalidFrame as error:
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
