"""The TCP session: requests and answers of the services of the base."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from sysid_ros.drivers.kinova_kortex.enums import FrameType, Function, KortexConnectionLost, KortexServerError
from sysid_ros.drivers.kinova_kortex.frame import (
    ID_MODULUS,
    Frame,
    TcpFrames,
    decode_frame,
    encode,
    encode_frame,
    parse,
    wrap_for_tcp,
)
from sysid_ros.drivers.kinova_kortex.settings import KortexSettings
from sysid_ros.drivers.network import InvalidFrame

T = TypeVar("T")
_CHUNK = 65536
_RETRY = 0.1
"""Time between two attempts to connect [s]."""
_KEEP_ALIVES = 4.0
"""Keep-alive requests per timeout of the connection."""
_FRAME_TIME = 0.5
"""How long a frame may take to come, over that time-out: the reason is to be known before a timeout is reported."""


def session_request(settings: KortexSettings) -> bytes:
    """Return the message that opens a session, on either transport."""
    return encode(
        "CreateSessionInfo",
        username=settings.username.encode(),
        password=settings.password.encode(),
        session_inactivity_timeout=round(1e3 * settings.session_inactivity_timeout),
        connection_inactivity_timeout=round(1e3 * settings.connection_inactivity_timeout),
    )


def error_of(call: str, frame: Frame) -> KortexServerError:
    """Return the error a response stands for."""
    text: str | None = None
    with contextlib.suppress(InvalidFrame):
        text = parse("Error", frame.payload).error_sub_string.decode(errors="replace") or None
    return KortexServerError(call, frame.error, frame.sub_error, text)


class TcpCall(Generic[T]):
    """A request on a :class:`TcpSession`, with its name and message id."""

    def __init__(self, session: TcpSession, name: str, message: int, read: Callable[[bytes], T]):
        self.name, self.message = name, message
        self._session, self._read = session, read
        self._frame: Frame | None = None

    def is_done(self) -> bool:
        """Whether the answer has arrived, or never will. Does not wait."""
        if self._frame is None:
            self._session.poll()
            self._frame = self._session.take(self.message)
        return self._frame is not None or not self._session.is_open

    def result(self) -> T:
        """Return the answer, or raise as :func:`wait_for`."""
        frame = self._frame
        if frame is None:
            raise KortexConnectionLost(self._session.reason or f"no answer to {self.name} yet")
        if frame.error or frame.sub_error:
            raise error_of(self.name, frame)
        try:
            return self._read(frame.payload)
        except InvalidFrame as error:
            raise KortexConnectionLost(f"the answer to {self.name} cannot be read: {error}") from None


class TcpSession:
    """Connection and session on TCP; nothing waits but :meth:`open`.

    Attributes:
        is_open: Whether the connection stands.
        reason: Why it does not.
    """

    def __init__(self, settings: KortexSettings):
        self._settings = settings
        self._socket: socket.socket | None = None
        self.is_open = False
        self.reason: str | None = "not connected"
        self._reset()

    def _reset(self) -> None:
        self.session = self._message = 0
        self._frames = TcpFrames()
        self._responses: dict[int, Frame] = {}
        self._waiting: set[int] = set()
        self._answered_at = self._begun_at = time.monotonic()
        self._next_keep_alive: float = 0.0
        self._keep_alive: TcpCall[bytes] | None = None

    def open(self) -> None:
        """Connect and open a session.

        Raises:
            KortexConnectionLost: The base cannot be reached.
            KortexServerError: It refuses.
        """
        settings = self._settings
        address = settings.robot_ip, settings.port
        try:
            self._socket = _connect(address, settings.connect_timeout)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setblocking(False)
        except OSError as error:
            self.close()
            raise KortexConnectionLost(f"TCP {address[0]}:{address[1]}: {error}") from None
        self.open_session()

    def open_session(self) -> None:
        """Open a session on the socket that is connected; raises as :meth:`open`."""
        self._reset()
        self.is_open, self.reason = True, None
        request = self.start(Function.CREATE_SESSION, session_request(self._settings))
        self.wait(request, self._settings.connect_timeout)

    def start(
        self, function: Function, payload: bytes = b"", device: int = 0, read: Callable[[bytes], Any] = bytes
    ) -> TcpCall[Any]:
        """Send an encoded message to a device; ``read`` converts the payload of the answer into its result."""
        self._message = (self._message + 1) % ID_MODULUS
        frame = Frame(FrameType.REQUEST, function, self.session, self._message, device, payload)
        self._waiting.add(self._message)
        self._send(frame)
        name = function.name if not device else f"{function.name} of device {device}"
        return TcpCall(self, name, self._message, read)

    def wait(self, call: TcpCall[T], seconds: float) -> T:
        """See :func:`wait_for`."""
        return wait_for(call, seconds, self._wait_for_data)

    def _wait_for_data(self, seconds: float) -> None:
        if self._socket is not None:
            select.select([self._socket], [], [], seconds)

    def poll(self) -> None:
        """Read all that has arrived."""
        if not self.is_open or self._socket is None:
            return
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            self._check_incomplete_frame()
            return
        except OSError as error:
            self._break(f"the TCP connection has broken ({error.strerror})")
            return
        if not data:
            self._break("the base has closed the TCP connection")
            return
        was_complete = not self._frames.pending
        try:
            frames = self._frames.feed(data)
            for one in frames:
                self._receive(decode_frame(one))
        except InvalidFrame as error:
            self._break(f"the TCP stream cannot be followed: {error}")
            return
        if was_complete or frames:
            self._begun_at = time.monotonic()

    def take(self, message: int) -> Frame | None:
        """Return the response with a message id, if it has arrived."""
        return self._responses.pop(message, None)

    def keep_alive(self) -> None:
        """Send a keep-alive request if one is due, and read all that has arrived. Does not wait."""
        now = time.monotonic()
        if self.is_open and now >= self._next_keep_alive:
            self._next_keep_alive = now + self._settings.connection_inactivity_timeout / _KEEP_ALIVES
            if self._keep_alive is not None:  # another one is sent even where the answer to the last one was lost
                self._waiting.discard(self._keep_alive.message)
            self._keep_alive = self.start(Function.KEEP_ALIVE)
        self.poll()
        if self._keep_alive is not None and self._keep_alive.is_done():
            self._keep_alive = None

    @property
    def overdue(self) -> float:
        """Time for which the base has owed an answer to a keep-alive request [s]; infinite without a connection."""
        if not self.is_open:
            return float("inf")
        return 0.0 if self._keep_alive is None else time.monotonic() - self._answered_at

    def close(self, seconds: float = 0.3) -> None:
        """Close session and connection; wait at most this long [s]. Never raise."""
        if self.is_open:
            with contextlib.suppress(KortexConnectionLost, KortexServerError, OSError):
                self.wait(self.start(Function.CLOSE_SESSION), seconds)
        self.is_open, self.reason = False, self.reason or "closed"
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _receive(self, frame: Frame) -> None:
        self._answered_at = time.monotonic()
        if frame.kind is FrameType.PING:
            self._send(frame._replace(kind=FrameType.PONG))
        elif frame.kind is FrameType.RESPONSE and frame.message in self._waiting:
            self._waiting.discard(frame.message)
            self._responses[frame.message] = frame
            if not self.session:  # the answer that opens the session says which it is, no other one
                self.session = frame.session

    def _check_incomplete_frame(self) -> None:
        """Break where a frame stays incomplete: with a damaged length all later bytes would be its rest."""
        pending, seconds = self._frames.pending, _FRAME_TIME * self._settings.connection_inactivity_timeout
        if pending and time.monotonic() - self._begun_at > seconds:
            announced = self._frames.announced
            whole = f"of {announced} bytes" if announced else "whose length is not known"
            self._break(f"a frame {whole} is not complete after {seconds:g} s ({pending} bytes have come)")

    def _send(self, frame: Frame) -> None:
        if not self.is_open or self._socket is None:
            return
        try:
            self._socket.sendall(wrap_for_tcp(encode_frame(frame)))
        except BlockingIOError:  # requests are few and small
            self._break("the base has stopped reading from the TCP connection")
        except OSError as error:
            self._break(f"the TCP connection has broken ({error.strerror})")

    def _break(self, reason: str) -> None:
        self.is_open, self.reason = False, reason


def wait_for(call: TcpCall[T], seconds: float, meanwhile: Callable[[float], object]) -> T:
    """Wait for the answer to a call for some seconds [s]; ``meanwhile`` is called with the time it may spend [s].

    Raises:
        KortexServerError: The base refused.
        KortexConnectionLost: No answer came.
    """
    deadline = time.monotonic() + seconds
    while not call.is_done():
        remaining = deadline - time.monotonic()
        if remaining <= 0.0:
            raise KortexConnectionLost(f"no answer to {call.name} for {seconds:g} s")
        meanwhile(remaining)
    return call.result()


def _connect(address: tuple[str, int], seconds: float) -> socket.socket:
    """Connect; a base that starts up refuses it for a while, so it is tried again for some seconds."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection(address, max(0.05, deadline - time.monotonic()))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY)
