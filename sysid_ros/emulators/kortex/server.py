"""The emulated base built from plain values, and on its sockets in real time."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import KORTEX
from sysid_ros.drivers.arm import ArmError
from sysid_ros.drivers.kinova_kortex.frame import LARGEST_FRAME, TcpFrames, wrap_for_tcp
from sysid_ros.drivers.network import Address, InvalidFrame, unavailable_socket
from sysid_ros.emulators.kortex.base import TCP, UDP, BaseSettings, KortexBase
from sysid_ros.emulators.plant import PERIOD
from sysid_ros.emulators.program import CyclicServer, EmulatorSetup


def build_base(
    setup: EmulatorSetup, settings: BaseSettings | None = None, report: Callable[[str], None] = lambda _: None
) -> KortexBase:
    """Build the emulated base with its arm."""
    robot = load_robot(setup.robot)
    if robot.protocol != KORTEX:
        raise ParameterOutOfRange("robot", robot.name, "one with 'protocol: kortex' in its settings")
    return KortexBase(setup.build_arm(robot), settings, report)


_GRACE = 0.25
"""How late a request may be before its cycle passes without it, in periods."""
_EARLIEST = 0.5
"""How early it may be and still start a cycle, in periods."""
_BACKLOG = 10.0
"""So many periods behind, it does not try to catch up."""


@dataclass
class _Connection:
    socket: socket.socket
    frames: TcpFrames = field(default_factory=TcpFrames)


class EmulatorServer(CyclicServer[KortexBase]):
    """Serves any number of clients; one of them cycles the arm.

    Args:
        base: The base.
        host: Own address.
        port: TCP port; 0 takes any.
        port_realtime: UDP port; 0 takes any.
        patience: While torques act, time that stands still for the next request [s]; after that the tick is lost. 0 is
            real time. Pauses of this computer do not count. May be changed at any time.
        tcp_delay: Delay of an answer over TCP [s].

    Raises:
        ArmError: A port cannot be opened.
    """

    def __init__(
        self,
        base: KortexBase,
        host: str = "127.0.0.1",
        port: int = 0,
        port_realtime: int = 0,
        patience: float = 0.0,
        tcp_delay: float = 0.0,
    ):
        super().__init__(base, base.arm)
        self.base, self.patience, self._tcp_delay = base, patience, tcp_delay
        self._listener = _bind(socket.SOCK_STREAM, (host, port))
        try:
            self._udp = _bind(socket.SOCK_DGRAM, (host, port_realtime))
        except ArmError:
            self._listener.close()
            raise
        self._listener.listen()
        self._connections: dict[int, _Connection] = {}
        self._due: deque[tuple[float, _Connection, bytes]] = deque()
        self._started = time.monotonic()

    @property
    def address(self) -> Address:
        """Own address and TCP port."""
        return self._listener.getsockname()

    @property
    def address_realtime(self) -> Address:
        """Own address and UDP port."""
        return self._udp.getsockname()

    @property
    def is_in_use(self) -> bool:
        """Whether there is a session."""
        return len(self.base.sessions) > 0

    def cycle(self) -> None:
        """Serve for one period, then let it pass for the arm."""
        base = self.base
        base.is_fresh = False
        deadline, spent = self._started + PERIOD, 0.0
        while not self._is_over(deadline, spent):
            now = time.monotonic()
            self._serve(min(max(self._time_left(deadline, spent), 0.0), PERIOD))
            self._call_waiting()
            if now >= deadline:
                spent += min(time.monotonic() - now, PERIOD)
        base.advance()
        while self._due and self._due[0][0] <= base.time:
            _, connection, data = self._due.popleft()
            self._send(connection, data)

    def _is_over(self, deadline: float, spent: float) -> bool:
        """Whether the period ends now; called before the next request is served, which belongs to the next period."""
        base, now = self.base, time.monotonic()
        if base.is_fresh and (self.patience or now >= deadline - _EARLIEST * PERIOD):
            self._started = now
            return True
        if self._time_left(deadline, spent) > 0.0:
            return False
        if base.is_waiting_for_client and self.patience and not base.is_fresh:
            base.actuators.lose_tick()
        self._started = now if now > deadline + _BACKLOG * PERIOD else deadline
        return True

    def _time_left(self, deadline: float, spent: float) -> float:
        """Return the rest of the period without further requests [s], with this part of the patience spent."""
        to_deadline = deadline - time.monotonic()
        if self.base.is_fresh or not self.base.is_waiting_for_client:
            return to_deadline
        return max(to_deadline, 0.0) + self.patience - spent if self.patience else to_deadline + _GRACE * PERIOD

    def drop_connections(self) -> None:
        """Close all TCP connections, as a restart of the base does."""
        for number in list(self._connections):
            self._drop(number)

    def close(self) -> None:
        """Close all sockets."""
        self.drop_connections()
        self._listener.close()
        self._udp.close()

    def _serve(self, timeout: float) -> None:
        sockets = {self._listener.fileno(): None, self._udp.fileno(): None, **self._connections}
        ready, _, _ = select.select(sockets, [], [], timeout)
        for number in ready:
            if number == self._udp.fileno():
                self._serve_udp()
            elif number == self._listener.fileno():
                accepted, _ = self._listener.accept()
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._connections[accepted.fileno()] = _Connection(accepted)
            elif number in self._connections:
                self._serve_tcp(number)

    def _serve_udp(self) -> None:
        with contextlib.suppress(OSError):  # a client whose port is closed, or nothing to read after all
            data, client = self._udp.recvfrom(LARGEST_FRAME)
            answer = self.base.answer(UDP, client, data)
            if answer is not None:
                self._udp.sendto(answer, client)

    def _serve_tcp(self, number: int) -> None:
        connection = self._connections[number]
        try:
            data = connection.socket.recv(LARGEST_FRAME)
            frames = connection.frames.feed(data)
        except BlockingIOError:
            return
        except (OSError, InvalidFrame):
            data, frames = b"", []
        if not data:
            self._drop(number)
            return
        for frame in frames:
            answer = self.base.answer(TCP, number, frame)
            if answer is None:
                continue
            if self._tcp_delay:
                self._due.append((self.base.time + self._tcp_delay, connection, wrap_for_tcp(answer)))
            else:
                self._send(connection, wrap_for_tcp(answer))

    def _send(self, connection: _Connection, data: bytes) -> None:
        with contextlib.suppress(OSError):
            connection.socket.sendall(data)

    def _drop(self, number: int) -> None:
        connection = self._connections.pop(number)
        connection.socket.close()
        self.base.disconnect(number)


def _bind(kind: int, address: Address) -> socket.socket:
    one = socket.socket(socket.AF_INET, kind)
    try:
        if kind == socket.SOCK_STREAM:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(address)
    except OSError as error:
        one.close()
        raise unavailable_socket(address, str(error)) from None
    one.setblocking(False)
    return one
