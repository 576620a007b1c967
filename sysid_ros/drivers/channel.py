"""Pickled messages between two processes over a socket pair; nothing blocks unless asked to."""

from __future__ import annotations

import pickle
import select
import socket
import struct
import time
from collections.abc import Iterator
from enum import Enum
from typing import Any

from sysid_ros.core.common.errors import SysidError

_LENGTH = struct.Struct("<I")
_CHUNK = 1 << 16


class Outcome(Enum):
    """What became of a call to the other process."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


class ChannelClosed(SysidError):
    """The other end is gone."""

    def __init__(self) -> None:
        super().__init__("the other end of the channel is closed")


class Channel:
    """One end of a socket pair that carries Python objects.

    Args:
        end: The socket; owned from now on.
    """

    def __init__(self, end: socket.socket):
        end.setblocking(False)
        self._socket = end
        self._readable = select.poll()
        self._readable.register(end, select.POLLIN)
        self._incoming = bytearray()
        self._outgoing = bytearray()

    def send(self, message: object) -> None:
        """Queues a message and sends what fits; :meth:`flush` sends the rest.

        Raises:
            ChannelClosed: The other end is gone.
        """
        body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        self._outgoing += _LENGTH.pack(len(body)) + body
        self.flush()

    def flush(self) -> bool:
        """Send what fits into the socket, and return whether everything has been sent.

        Raises:
            ChannelClosed: The other end is gone.
        """
        while self._outgoing:
            try:
                sent = self._socket.send(self._outgoing[:_CHUNK])
            except BlockingIOError:
                return False
            except OSError as error:
                raise ChannelClosed from error
            del self._outgoing[:sent]
        return True

    def poll(self) -> list[Any]:
        """Return the complete messages that have arrived, without waiting.

        Raises:
            ChannelClosed: The other end is gone and all its messages have been read.
        """
        if not self._readable.poll(0):
            return []
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return []
        except OSError as error:
            raise ChannelClosed from error
        if not data:
            raise ChannelClosed
        self._incoming += data
        return list(self._take_messages())

    def wait(self, timeout: float) -> list[Any]:
        """Return the next messages, after waiting for at most ``timeout`` [s]; none if there were none.

        Raises:
            ChannelClosed: The other end is gone.
        """
        deadline = time.monotonic() + timeout
        while True:
            messages = self.poll()
            remaining = deadline - time.monotonic()
            if messages or remaining <= 0.0:
                return messages
            self._readable.poll(1000.0 * remaining)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def _take_messages(self) -> Iterator[Any]:
        buffer = self._incoming
        while len(buffer) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(buffer)[0]
            if len(buffer) < end:
                return
            body = bytes(buffer[_LENGTH.size : end])
            del buffer[:end]
            yield pickle.loads(body)
