"""When the program of an emulated controller ends that a parent has started: after its client has let go of the arm."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable

HAND_BACK_SECONDS = 6.0
"""How long an emulator whose parent is gone waits for its client to brake and to hand the arm back [s]."""


class UntilHandedBack:
    """Whether an emulator is wanted: until its standard input is closed, and then until its client has let go.

    Ctrl-C reaches the driver and the parent of the emulator together. A real controller would not end with them.

    Args:
        is_in_use: Whether a client commands the arm.
        seconds: How long it may after the end of the parent [s].
        is_parent_there: Whether the parent still is.
    """

    def __init__(
        self,
        is_in_use: Callable[[], bool],
        seconds: float = HAND_BACK_SECONDS,
        is_parent_there: Callable[[], bool] | None = None,
    ):
        self._is_in_use, self._seconds = is_in_use, seconds
        self._is_parent_there = is_parent_there or _is_stdin_open
        self._end = float("inf")

    def __call__(self) -> bool:
        """Whether the emulator is to go on; asked between its cycles."""
        if self._end == float("inf") and not self._is_parent_there():
            self._end = time.monotonic() + self._seconds
        return self._end == float("inf") or (self._is_in_use() and time.monotonic() < self._end)


def _is_stdin_open() -> bool:
    return not select.select([sys.stdin], [], [], 0.0)[0] or bool(sys.stdin.buffer.read1(1))
