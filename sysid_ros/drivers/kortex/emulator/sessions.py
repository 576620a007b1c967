"""Sessions of an emulated base, on both transports."""

from __future__ import annotations

from dataclasses import dataclass

from sysid_ros.drivers.kortex.enums import SubError
from sysid_ros.drivers.kortex.frame import parse

_FIRST_ID = 0x1001
_AT_ONCE = 1e-9
"""A silence that everybody keeps [s]."""


@dataclass
class Session:
    """One session.

    Attributes:
        transport: ``tcp`` or ``udp``.
        client: Who opened it: a connection on TCP, an address on UDP.
        inactivity: Silence after which it ends [s].
        connection: Silence after which its connection counts as dead [s].
        last: When something was heard last [s].
    """

    transport: str
    client: object
    inactivity: float
    connection: float
    last: float


class Sessions:
    """Opens, checks and ends sessions.

    Args:
        username: The only user.
        password: Its password.
    """

    def __init__(self, username: str, password: str):
        self._user, self._password = username.encode(), password.encode()
        self._next = _FIRST_ID
        self._sessions: dict[int, Session] = {}

    def create(self, transport: str, client: object, payload: bytes, now: float) -> tuple[int, SubError]:
        """Opens a session.

        Returns:
            Its id, or 0 and why there is none.

        Raises:
            KortexDecodeError: The payload is no request for a session.
        """
        info = parse("CreateSessionInfo", payload)
        if info.username != self._user:
            return 0, SubError.USER_NOT_FOUND
        if info.password != self._password:
            return 0, SubError.INVALID_PASSWORD
        number, self._next = self._next, self._next % 0xFFFF + 1
        timeouts = 1e-3 * info.session_inactivity_timeout, 1e-3 * info.connection_inactivity_timeout
        self._sessions[number] = Session(transport, client, *timeouts, now)
        return number, SubError.NONE

    def touch(self, number: int, transport: str, client: object, now: float) -> bool:
        """Whether this client has this session; notes the sign of life."""
        session = self._sessions.get(number)
        if session is None or (session.transport, session.client) != (transport, client):
            return False
        session.last = now
        return True

    def close(self, number: int) -> None:
        """Ends a session."""
        self._sessions.pop(number, None)

    def close_client(self, transport: str, client: object) -> int:
        """Ends all sessions of a connection that is gone; returns their number."""
        gone = [n for n, one in self._sessions.items() if (one.transport, one.client) == (transport, client)]
        for number in gone:
            del self._sessions[number]
        return len(gone)

    def expire(self, now: float) -> list[Session]:
        """Ends the sessions that have been silent for too long, and returns them."""
        expired = []
        for number, session in list(self._sessions.items()):
            timeouts = [time for time in (session.inactivity, session.connection) if time > 0.0]
            if timeouts and now - session.last > min(timeouts):
                expired.append(self._sessions.pop(number))
        return expired

    def time_out(self, transport: str) -> None:
        """The sessions of a transport end at the next look, as if they had been silent for too long."""
        for session in self._sessions.values():
            if session.transport == transport:
                session.inactivity = _AT_ONCE

    def clear(self) -> None:
        """Ends all, as a restart of the base does."""
        self._sessions.clear()

    def __len__(self) -> int:
        return len(self._sessions)
