"""The payload functions of an emulated controller of Universal Robots, for any client.

Two ports: scripts (the secondary interface, which takes a program and answers nothing) and RTDE. It knows the calls
``set_target_payload`` and ``set_payload``, runs no other script and moves no arm. Written after the vendor's guides.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import re
import select
import socket
import socketserver
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from sysid_ros.core.common.errors import SysidError
from sysid_ros.drivers.modes import RTDE_PORT, SCRIPT_PORT
from sysid_ros.emulators.arguments import ur_parser
from sysid_ros.emulators.program import CyclicServer, run_program

LARGEST_INERTIA = 133.0
"""Largest size of an entry of the inertia that a script may give [kg m^2]."""
LARGEST_COM = 4.0
"""Largest offset of the centre of gravity; own rule [m]."""
_PROGRAM = re.compile(r"(sec|def) +(\w+)\(\):\s*\n(.*?)\nend[ \t]*\n", re.DOTALL)
_CALL = re.compile(r"(set_target_payload|set_payload)\((.*)\)$")


@dataclass
class ControllerState:
    """State of the controller: mass [kg] and centre of gravity (3,) [m] of the active payload, and more."""

    mass: float = 0.0
    com: list[float] = field(default_factory=lambda: [0.0] * 3)
    inertia: list[float] = field(default_factory=lambda: [0.0] * 6)
    """[Ixx, Iyy, Izz, Ixy, Ixz, Iyz] (6,) [kg m^2]."""
    speeds: list[float] = field(default_factory=lambda: [0.0] * 6)
    """Speeds of the joints (6,) [rad/s]."""
    is_remote: bool = True
    """Whether it is under remote control; scripts are ignored otherwise."""
    rated: float = 7.5
    """Largest payload [kg]."""
    has_inertia: bool = True
    """Whether its software reports the inertia, as newer ones do."""

    def run(self, call: str) -> None:
        """Execute one call.

        Raises:
            SysidError: It is unknown, or an argument is not allowed.
        """
        found = _CALL.match(call)
        if found is None:
            raise SysidError(f"{call!r} is not emulated")
        try:
            arguments = list(ast.literal_eval(f"({found[2]},)"))
        except (ValueError, SyntaxError) as error:
            raise SysidError(f"{call!r} has arguments that are no numbers ({error})") from error
        fewest, most = (2, 4) if found[1] == "set_target_payload" else (1, 2)
        if not fewest <= len(arguments) <= most:
            raise SysidError(f"{call!r} has {len(arguments)} arguments; expected {fewest} to {most}")
        parts = [*arguments[:3], *[self.com, [0.0] * 6][len(arguments) - 1 :]]
        try:
            values = np.concatenate([np.ravel(part).astype(float) for part in parts])
        except (ValueError, TypeError) as error:
            raise SysidError(f"{call!r} has arguments that are no numbers ({error})") from error
        if [np.size(part) for part in parts] != [1, 3, 6] or not np.isfinite(values).all():
            raise SysidError(f"{call!r} wants a number, three and six")
        if not 0.0 <= values[0] <= self.rated:
            raise SysidError(f"the mass {values[0]:g} kg is not within 0 to {self.rated:g} kg")
        if np.abs(values[1:4]).max() > LARGEST_COM:
            raise SysidError(f"the centre of gravity {values[1:4]} is too far away")
        if np.abs(values[4:]).max() > LARGEST_INERTIA or values[4:7].min() < 0.0:
            raise SysidError(f"the inertia {values[4:]} is not allowed")
        self.mass, self.com, self.inertia = float(values[0]), values[1:4].tolist(), values[4:].tolist()

    def outputs(self) -> dict[str, tuple[str, list[float]]]:
        """Return type and numbers of every output."""
        known = {
            "timestamp": ("DOUBLE", [time.monotonic()]),
            "payload": ("DOUBLE", [self.mass]),
            "payload_cog": ("VECTOR3D", self.com),
            "actual_qd": ("VECTOR6D", self.speeds),
        }
        return known | ({"payload_inertia": ("VECTOR6D", self.inertia)} if self.has_inertia else {})


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


class EmulatedController(CyclicServer[ControllerState]):
    """Serves both ports until it is closed, each connection in a thread of its own.

    Args:
        state: Its state; may be changed from outside.
        script_port: Port of scripts; 0 takes a free one.
        rtde_port: Port of RTDE; 0 takes a free one.
        say: Called with a sentence about every script.

    Raises:
        SysidError: A port is not free.
    """

    cycles_between_polls = 1

    def __init__(
        self,
        state: ControllerState,
        script_port: int = SCRIPT_PORT,
        rtde_port: int = RTDE_PORT,
        say: Callable[[str], None] = lambda text: None,
    ):
        super().__init__(state)
        self.state, self._say = state, say
        self._open: set[socket.socket] = set()
        self._servers: list[_Server] = []
        with contextlib.ExitStack() as undone:
            for port, handle in ((script_port, self._run_programs), (rtde_port, self._report)):
                self._servers.append(undone.enter_context(self._listen(port, handle)))
            undone.pop_all()
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def ports(self) -> tuple[int, int]:
        """Ports of scripts and of RTDE."""
        first, second = (int(server.socket.getsockname()[1]) for server in self._servers)
        return first, second

    @property
    def is_in_use(self) -> bool:
        """Whether a client is connected."""
        return bool(self._open)

    def close(self) -> None:
        """Close all sockets."""
        for server in self._servers:
            server.shutdown()
            server.server_close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def cycle(self) -> None:
        """Wait a moment."""
        time.sleep(0.05)

    def _listen(self, port: int, handle: Callable[[socket.socket], None]) -> _Server:
        class Handler(socketserver.BaseRequestHandler):
            def handle(handler) -> None:  # noqa: N805
                self._open.add(handler.request)
                with contextlib.suppress(OSError, struct.error):
                    handle(handler.request)
                self._open.discard(handler.request)

        try:
            return _Server(("127.0.0.1", port), Handler)
        except OSError as error:
            raise SysidError(f"port {port} of 127.0.0.1 cannot be used ({error.strerror or error})") from error

    def _run_programs(self, connection: socket.socket) -> None:
        text = ""
        while received := connection.recv(65535):
            text += received.decode(errors="replace")
            while found := _PROGRAM.search(text):
                text = text[found.end() :]
                for call in filter(None, map(str.strip, found[3].splitlines())):
                    if not self.state.is_remote:
                        self._say(f"ignored {call}: not under remote control")
                        continue
                    try:
                        self.state.run(call)
                        self._say(f"ran {call}")
                    except SysidError as error:
                        self._say(f"stopped {found[2]}: {error}")
                        break

    def _report(self, connection: socket.socket) -> None:
        received, names, period, due = b"", list[str](), 0.008, float("inf")

        def send(kind: bytes, body: bytes) -> None:
            connection.sendall(struct.pack(">Hc", 3 + len(body), kind) + body)

        while True:
            if select.select([connection], [], [], min(max(due - time.monotonic(), 0.0), 1.0))[0]:
                if not (more := connection.recv(65535)):
                    return
                received += more
            while len(received) >= 3 and len(received) >= (size := max(3, struct.unpack(">H", received[:2])[0])):
                kind, body, received = received[2:3], received[3:size], received[size:]
                if kind == b"V":
                    send(kind, bytes([struct.unpack(">H", body)[0] in (1, 2)]))
                elif kind == b"v":
                    send(kind, struct.pack(">4I", 5, 15, 0, 0))
                elif kind == b"O":
                    known = self.state.outputs()
                    asked = body[8:].decode(errors="replace").removesuffix(",").split(",")  # some clients end so
                    kinds = [known[name][0] if name in known else "NOT_FOUND" for name in asked]
                    names = [] if "NOT_FOUND" in kinds else asked
                    period = 1.0 / struct.unpack(">d", body[:8])[0]
                    send(kind, bytes([bool(names)]) + ",".join(kinds).encode())
                elif kind in (b"S", b"P"):
                    due = time.monotonic() if kind == b"S" and names else float("inf")
                    send(kind, bytes([bool(names)]))
            if due <= time.monotonic():
                due = max(due + period, time.monotonic())
                numbers = [value for name in names for value in self.state.outputs()[name][1]]
                send(b"U", struct.pack(f">B{len(numbers)}d", 1, *numbers))


def run(options: argparse.Namespace) -> int:
    """Run the emulator and return its exit status."""

    def build(say: Callable[[str], None]) -> tuple[EmulatedController, str]:
        state = ControllerState(
            speeds=[options.speed] * 6, is_remote=not options.local, rated=options.rated_payload,
            has_inertia=not options.old,
        )  # fmt: skip
        server = EmulatedController(state, options.script_port, options.rtde_port, say)
        scripts, rtde = server.ports
        return server, f"a controller of Universal Robots: scripts at 127.0.0.1:{scripts}, RTDE at 127.0.0.1:{rtde}"

    return run_program("ur_emulator", options, build)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the emulator as a program of its own."""
    return run(ur_parser().parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
