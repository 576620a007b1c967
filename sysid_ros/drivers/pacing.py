"""Real time: absolute deadlines on the monotonic clock, and the scheduling a loop would like to have."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import time
from dataclasses import dataclass

_SPIN_NS = 50_000
"""Last part of a wait that is spun instead of slept, at most."""
_LARGEST_BACKLOG_NS = 250_000_000
_PR_SET_TIMERSLACK = 29
_PRIORITY = 80


class Pacer:
    """Starts cycles at absolute deadlines.

    Args:
        period: Time between deadlines [s].
        catches_up: What happens after a delay. True (simulation): the cycles that were missed follow at once, so that
            simulated time keeps up with real time. False (hardware): they are left out.
    """

    def __init__(self, period: float, catches_up: bool):
        self._period_ns = round(period * 1e9)
        self._catches_up = catches_up
        self.restart()

    def restart(self) -> None:
        """Let the first deadline be one period from now."""
        self._deadline_ns = time.monotonic_ns()

    def wait(self) -> float:
        """Wait for the next deadline.

        Returns:
            How late it is [s]; 0 or a few microseconds where all is well.
        """
        self._deadline_ns += self._period_ns
        remaining = self._deadline_ns - time.monotonic_ns()
        if remaining > _SPIN_NS:
            time.sleep((remaining - _SPIN_NS) * 1e-9)
        while (now := time.monotonic_ns()) < self._deadline_ns:
            pass
        lateness = now - self._deadline_ns
        if lateness > (_LARGEST_BACKLOG_NS if self._catches_up else self._period_ns):
            self._deadline_ns = now
        return lateness * 1e-9


@dataclass(frozen=True)
class Scheduling:
    """How a process is scheduled.

    Attributes:
        has_priority: Whether it has real-time priority.
        text: What was granted, in words.
    """

    has_priority: bool
    text: str

    def __str__(self) -> str:
        return self.text


def request_real_time() -> Scheduling:
    """Ask for real-time scheduling, exact timers and no garbage collection for this process.

    Returns:
        What was granted.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    if not sys.platform.startswith("linux"):
        return Scheduling(False, "normal scheduling (real-time priority is only requested on Linux)")
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)  # wake up to the nanosecond, not to 50 us
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    except OSError as error:
        refused = f"normal scheduling (SCHED_FIFO was refused: {error.strerror}; grant rtprio to this user)"
        return Scheduling(False, refused)
    return Scheduling(True, f"SCHED_FIFO {_PRIORITY}")
