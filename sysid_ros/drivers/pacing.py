"""Real time: absolute deadlines on the monotonic clock, real-time priority, and simulated time that slows down."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from sysid_ros.core.common.machine import describe_load

_SPIN_NS = 50_000
"""Last part of a wait that is spun instead of slept, at most."""
_PR_SET_TIMERSLACK = 29
_PRIORITY = 80


class Pacer:
    """Starts cycles at absolute deadlines, a period [s] apart.

    After a delay of more than a period the missed cycles are left out; simulated time then slows down. An exact pacer
    spins in the last part of a wait, for hardware; simulated time need not start to the microsecond.
    """

    def __init__(self, period: float, is_exact: bool = True):
        self._period_ns = round(period * 1e9)
        self._spin_ns = _SPIN_NS if is_exact else 0
        self.restart()

    def restart(self) -> None:
        """Let the first deadline be one period from now."""
        self._deadline_ns = time.monotonic_ns()

    def wait(self) -> float:
        """Wait for the next deadline; return the lateness [s], 0 or a few microseconds in normal operation."""
        self._deadline_ns += self._period_ns
        remaining = self._deadline_ns - time.monotonic_ns()
        if remaining > self._spin_ns:
            time.sleep((remaining - self._spin_ns) * 1e-9)
        while (now := time.monotonic_ns()) < self._deadline_ns:
            pass
        lateness = now - self._deadline_ns
        if lateness > self._period_ns:
            self._deadline_ns = now
        return lateness * 1e-9


_SPEED_WINDOW = 5.0
"""Time over which the speed of simulated time is measured [s]."""
_SLOW = 0.8
"""Share of the wanted speed below which simulated time counts as slow [-]."""


class SimulatedClock:
    """Measures the ``speed`` of simulated time [-]; reports once if this machine cannot reach the wanted one."""

    def __init__(self, say: Callable[[str], None], wanted: float = 1.0):
        self._say, self._wanted = say, wanted
        self.speed = wanted
        self._last: tuple[float, float] | None = None  # simulated and real time when the window began
        self._has_said = False

    def note(self, simulated: float) -> None:
        """Record that simulated time is now ``simulated`` [s]."""
        now = time.monotonic()
        before, began = self._last or (simulated, now)
        self._last = before, began
        if now - began < _SPEED_WINDOW:
            return
        self.speed, self._last = (simulated - before) / (now - began), (simulated, now)
        if self.speed < _SLOW * self._wanted and not self._has_said:
            self._has_said = True
            self._say(f"{describe_load()}; the simulated arm runs at {self.speed:.2g} of real time")


@dataclass(frozen=True)
class Scheduling:
    """Scheduling of a process: whether it has real-time priority, and the granted scheduling in words."""

    has_priority: bool
    text: str

    def __str__(self) -> str:
        return self.text


def request_scheduling(is_real_time: bool) -> Scheduling:
    """Request exact timers and no garbage collection for this process, and for hardware real-time priority.

    A simulated arm (not ``is_real_time``) would only take the processors away from its own planner.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    is_linux = sys.platform.startswith("linux")
    if is_linux:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)  # wake up to the nanosecond, not to 50 us
    if not is_real_time:
        return Scheduling(False, "normal scheduling, as no real arm waits")
    if not is_linux:
        return Scheduling(False, "normal scheduling (real-time priority is only requested on Linux)")
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    except OSError as error:
        refused = f"normal scheduling (SCHED_FIFO was refused: {error.strerror}; grant rtprio to this user)"
        return Scheduling(False, refused)
    return Scheduling(True, f"SCHED_FIFO {_PRIORITY}")
