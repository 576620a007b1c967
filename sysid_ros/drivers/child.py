"""A process of our own that answers calls over a socket pair; it ends when its parent does."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from sysid_ros.core.certification.authentication import KEY_FILE_VARIABLE
from sysid_ros.core.common.errors import SysidError
from sysid_ros.drivers.channel import Channel, Outcome
from sysid_ros.drivers.loop_types import LoopRefusal

REPLY_TIMEOUT = 5.0
"""How long an answer may take where the call does not say [s]."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class ChildProcessFailed(SysidError):
    """A process of the driver does not run or does not answer."""

    def __init__(self, name: str, reason: str):
        self.name, self.reason = name, reason
        super().__init__(f"the {name} process {reason}")


class ChildProcess:
    """Start, call and end a process. Calls may come from several threads; one is answered after the other.

    Attributes:
        name: Its name in messages.
        module: Module that it runs; the first argument is the file descriptor of its end of the socket pair.
    """

    name: ClassVar[str]
    module: ClassVar[str]

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Process id; None before the start."""
        return None if self._process is None else self._process.pid

    def _spawn(self, descriptors: Sequence[int] = ()) -> None:
        own = {**dict.fromkeys(_THREAD_VARIABLES, "1"), "PYTHONPATH": os.pathsep.join(sys.path)}
        others = {
            name: value for name, value in os.environ.items() if name != KEY_FILE_VARIABLE
        }  # the key is ours alone
        ours, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.module, str(theirs.fileno()), *map(str, descriptors)],
                pass_fds=(theirs.fileno(), *descriptors),
                env={**others, **own},
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in our terminal is ours to handle
            )
        finally:
            theirs.close()
        self._channel = Channel(ours)

    def _call(self, name: str, *arguments: object, timeout: float = REPLY_TIMEOUT) -> Any:
        with self._lock:
            number = next(self._numbers)
            channel = self._send((number, name, arguments))
            reply = self._wait_for_reply(channel, number, name, time.monotonic() + timeout)
        outcome, content = reply
        if outcome is Outcome.REFUSED:
            raise LoopRefusal(*content)
        if outcome is Outcome.FAILED:
            raise ChildProcessFailed(self.name, f"failed in '{name}': {content}")
        return content

    def _send(self, message: object) -> Channel:
        if self._channel is None:
            raise ChildProcessFailed(self.name, "is not running; call start() first")
        try:
            self._channel.send(message)
        except EOFError as closed:
            raise self._ended() from closed
        return self._channel

    def _wait_for_reply(self, channel: Channel, number: int, name: str, deadline: float) -> tuple[Outcome, Any]:
        while (remaining := deadline - time.monotonic()) > 0.0:
            try:
                channel.flush()
                messages = channel.wait(min(remaining, 0.1))
            except EOFError as closed:
                raise self._ended() from closed
            for reply_number, outcome, content in messages:
                if reply_number == number:
                    return outcome, content
        raise ChildProcessFailed(self.name, f"did not answer '{name}' in time")

    def _ended(self) -> ChildProcessFailed:
        if self._process is None:
            return ChildProcessFailed(self.name, "was never started")
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return ChildProcessFailed(self.name, "has closed its channel")
        return ChildProcessFailed(self.name, f"has ended with exit status {code}")

    def _end(self, kill_after: float) -> None:
        """Close the channel, which ends the process, and kill it where it does not end in time [s]."""
        with self._lock:
            if self._channel is not None:
                self._channel.close()
                self._channel = None
        if self._process is None:
            return
        try:
            self._process.wait(kill_after)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
