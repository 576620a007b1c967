"""The payload of a controller of Universal Robots: set by URScript over TCP, read back over RTDE.

RTDE is the vendor's Real-Time Data Exchange, protocol version 2: packages of a size (two bytes, the header included), a
type (one byte) and data, all numbers big-endian.
"""

from __future__ import annotations

import socket
import struct
import time
from enum import IntEnum

import numpy as np

from sysid_ros.drivers.arm import ArmError, ControllerPayload
from sysid_ros.drivers.modes import RTDE_PORT, SCRIPT_PORT

TIMEOUT = 5.0
"""How long to wait for a connection, and for an answer [s]."""
SETTLE = 3.0
"""How long after a script the controller may take to report its payload [s]."""
FREQUENCY = 25.0
"""How often the controller is to send its state [Hz]."""
_VERSION = 2


class Package(IntEnum):
    """Types of RTDE packages."""

    PROTOCOL_VERSION = ord("V")
    TEXT = ord("M")
    DATA = ord("U")
    SETUP_OUTPUTS = ord("O")
    START = ord("S")


_SIZES = {"DOUBLE": 1, "VECTOR3D": 3, "VECTOR6D": 6}
"""Numbers of each type that is read, all doubles."""
_WANTED = {"payload": "DOUBLE", "payload_cog": "VECTOR3D", "actual_qd": "VECTOR6D", "payload_inertia": "VECTOR6D"}
"""Outputs, with their types. The last one came later than the others."""


class RtdeClient:
    """Reads payload and speeds of a controller.

    Raises:
        ArmError: It cannot be reached, or its software does not report the payload.
    """

    def __init__(self, host: str, port: int = RTDE_PORT):
        self._where = f"the controller at {host}:{port}"
        self._socket = _connect(host, port)
        self._stream = self._socket.makefile("rb")
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._socket.close()

    def __enter__(self) -> RtdeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self) -> ControllerPayload:
        """Return the next report of the controller.

        Raises:
            ArmError: It does not answer.
        """
        body = self._answer(Package.DATA)
        counts = [_SIZES[_WANTED[name]] for name in self._names]
        if len(body) != 1 + 8 * sum(counts) or body[0] != self._recipe:
            raise ArmError(self._where, f"sent a data package of {len(body)} bytes, which was not asked for")
        numbers = np.array(struct.unpack(f">{sum(counts)}d", body[1:]))
        found = dict(zip(self._names, np.split(numbers, np.cumsum(counts)[:-1]), strict=True))
        inertia = found.get("payload_inertia")
        return ControllerPayload(
            float(found["payload"][0]), found["payload_cog"], inertia, float(np.abs(found["actual_qd"]).max())
        )

    def latest(self) -> ControllerPayload:
        """Return the present report of the controller: unread older ones are left out."""
        end = time.monotonic() + 2.0 / FREQUENCY
        found = self.read()
        while time.monotonic() < end:
            found = self.read()
        return found

    def _begin(self) -> None:
        self._send(Package.PROTOCOL_VERSION, struct.pack(">H", _VERSION))
        if self._answer(Package.PROTOCOL_VERSION)[:1] != b"\x01":
            raise ArmError(self._where, f"does not speak version {_VERSION} of RTDE; its software is too old")
        self._names = list(_WANTED)
        missing = self._ask()
        if missing == ["payload_inertia"]:
            self._names.remove("payload_inertia")
            missing = self._ask()
        if missing:
            text = f"does not report {', '.join(missing)}; its software is too old to be read back"
            raise ArmError(self._where, text)
        self._send(Package.START, b"")
        if self._answer(Package.START)[:1] != b"\x01":
            raise ArmError(self._where, "refused to send its state")

    def _ask(self) -> list[str]:
        self._send(Package.SETUP_OUTPUTS, struct.pack(">d", FREQUENCY) + ",".join(self._names).encode())
        body = self._answer(Package.SETUP_OUTPUTS)
        types = body[1:].decode(errors="replace").split(",")
        if len(types) != len(self._names):
            raise ArmError(self._where, f"answered {len(types)} types for {len(self._names)} outputs")
        self._recipe = body[0]
        return [name for name, kind in zip(self._names, types, strict=True) if kind != _WANTED[name]]

    def _send(self, kind: Package, body: bytes) -> None:
        try:
            self._socket.sendall(struct.pack(">HB", 3 + len(body), kind) + body)
        except OSError as error:
            raise ArmError(self._where, f"closed the connection ({error.strerror or error})") from error

    def _answer(self, kind: Package) -> bytes:
        """Return the data of the next package of a type; others, such as texts, are skipped."""
        end = time.monotonic() + TIMEOUT
        while time.monotonic() < end:
            size, found = struct.unpack(">HB", self._take(3))
            if size < 3:
                raise ArmError(self._where, f"sent a package of size {size}: this is no RTDE")
            body = self._take(size - 3)
            if found == kind:
                return body
        raise ArmError(self._where, f"did not answer within {TIMEOUT:g} s")

    def _take(self, count: int) -> bytes:
        try:
            taken = self._stream.read(count)
        except TimeoutError as error:
            raise ArmError(self._where, f"did not answer within {TIMEOUT:g} s") from error
        except OSError as error:
            raise ArmError(self._where, f"closed the connection ({error.strerror or error})") from error
        if len(taken) < count:
            raise ArmError(self._where, "closed the connection")
        return taken


def send_payload(host: str, call: str, port: int = SCRIPT_PORT) -> None:
    """Let a controller execute one call beside its program: as a secondary program, which stops no other.

    The controller does not report the outcome, and ignores it unless it is under remote control.

    Args:
        host: Address of the controller.
        call: A line of URScript that takes no time.
        port: Port of the secondary interface.

    Raises:
        ArmError: It cannot be reached.
    """
    with _connect(host, port) as connection:
        try:
            connection.sendall(f"sec identified_payload():\n  {call}\nend\n".encode("ascii"))
        except OSError as error:
            text = f"the controller at {host}:{port} closed the connection ({error.strerror or error})"
            raise ArmError(text) from error


def _connect(host: str, port: int) -> socket.socket:
    try:
        return socket.create_connection((host, port), TIMEOUT)
    except OSError as error:  # an address that is none is an OSError, too
        reason = f"no answer within {TIMEOUT:g} s" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise ArmError(f"the controller at {host}:{port}", f"cannot be reached ({reason})") from error
