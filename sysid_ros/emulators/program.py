"""Common parts of the emulator programs: their options, run and end, calls from other threads."""

from __future__ import annotations

import abc
import argparse
import contextlib
import os
import queue
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from sysid_ros.core.common.command_line import require_numbers, tell
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.simulation import draw_truth, load_payload
from sysid_ros.drivers.pacing import SimulatedClock, request_scheduling
from sysid_ros.emulators.plant import EmulatedArm, PlantSettings

Controller = TypeVar("Controller")
Result = TypeVar("Result")
HAND_BACK_SECONDS = 6.0
"""How long an emulator whose parent is gone waits for its client to brake and to hand the arm back [s]."""

_REPORT_PERIOD = 2.0
"""How often refusals are reported at most [s]."""


@dataclass(frozen=True)
class EmulatorSetup:
    """The arm that is emulated, from plain values."""

    robot: str
    """Robot, as :func:`load_robot` takes it."""
    truth: str = "random"
    """Choice of the arm's own parameters, see :data:`sysid_ros.drivers.mujoco.simulation.TRUTHS`."""
    payload: str = "none"
    """Its load: a name from ``config/payloads.yaml``, a mass [kg], a mass at X Y Z [kg, m], or ``none``."""
    load: str = "none"
    """The same for the configured load of its controller, where there is one."""
    plant: PlantSettings = PlantSettings()
    """Settings of the simulation."""
    gripper: str = ""
    """State of its gripper, as the settings of the robot name it; empty for any of them."""

    @classmethod
    def of(cls, options: argparse.Namespace, measured_sign: float = -1.0) -> EmulatorSetup:
        """Return the arm of the options of :func:`add_arm_options`, with the sign of the torque where they set none.

        Raises:
            ParameterOutOfRange: A value is not allowed.
        """
        values = vars(options) | {
            "noise": Noise(options.noise),
            "measured_sign": options.measured_sign or measured_sign,
        }
        return cls(plant=PlantSettings(**pick(PlantSettings, values)), **pick(cls, values))

    def build_arm(self, robot: RobotModel, stamp_ns: int = 0) -> EmulatedArm:
        """Build the arm; it starts at ``stamp_ns`` [ns].

        Raises:
            SysidError: There is no such truth, payload or state of the gripper.
        """
        truth = draw_truth(robot, self.truth, self.plant.seed, self.gripper)
        return EmulatedArm(robot, truth, load_payload(robot, self.payload), self.plant, stamp_ns)


def require_real_time_factor(value: float) -> None:
    """Refuse an invalid factor, or one above the real arm's speed; raises :class:`ParameterOutOfRange`."""
    if not 0.01 <= value <= 1.0:
        raise ParameterOutOfRange("real_time_factor", value, "0.01 to 1")


def run_program(
    name: str, options: argparse.Namespace, build: Callable[[Callable[[str], None]], tuple[CyclicServer[Any], str]]
) -> int:
    """Build an emulator and run it until it has to end; return the exit status, 2 where it cannot be built.

    Args:
        name: Of the program, before every line it prints.
        options: Options of :func:`add_program_options`.
        build: Makes the emulator, from a function that prints a sentence, and its name and address in words.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

    def say(text: str) -> None:
        tell(f"[{name}] ", text)

    try:
        require_numbers(options, "patience")
        if not options.seconds > 0.0:
            raise ParameterOutOfRange("--seconds", options.seconds, "more than 0")
        server, title = build(say)
    except SysidError as error:
        say(str(error))
        return 2
    say(title)
    say(f"scheduling: {request_scheduling(options.real_time_priority)}")
    clock, end = SimulatedClock(say, getattr(options, "real_time_factor", 1.0)), float("inf")

    def is_wanted() -> bool:
        """Poll, between cycles, whether to go on.

        Ctrl-C reaches the driver and the parent of the emulator together. A real controller would not end with them: it
        goes on after its standard input is closed until its client has released the arm.
        """
        nonlocal end
        if server.arm is not None:
            clock.note(1e-9 * server.arm.stamp_ns)
        is_asked = options.while_stdin and end == float("inf")
        if is_asked and select.select([sys.stdin], [], [], 0.0)[0] and not os.read(sys.stdin.fileno(), 1):
            end = time.monotonic() + HAND_BACK_SECONDS
        return end == float("inf") or (server.is_in_use and time.monotonic() < end)

    with contextlib.suppress(KeyboardInterrupt):
        server.run(options.seconds, is_wanted)
    server.close()
    return 0


def pick(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are fields of a dataclass, by name."""
    return {one.name: values[one.name] for one in fields(kind) if one.name in values}


class RefusalReporter:
    """Reports refusals with the reason: the first one, and then every two seconds of simulated time."""

    def __init__(self, report: Callable[[str], None]):
        self._report, self._next = report, -float("inf")

    def say(self, what: str, counts: str, now: float) -> None:
        """Report a refusal with its reason and the counts so far, at a simulated time [s]; not in quick succession."""
        if now >= self._next:
            self._next = now + _REPORT_PERIOD
            self._report(f"refused {what} ({counts} so far)")


class CyclicServer(abc.ABC, Generic[Controller]):
    """Serves the clients of an emulated controller, cycle by cycle.

    Attributes:
        arm: The emulated arm; None without one.
    """

    cycles_between_polls = 50

    def __init__(self, controller: Controller, arm: EmulatedArm | None = None):
        self._controller, self.arm = controller, arm
        self._waiting: queue.SimpleQueue[tuple[Future, Callable[[Controller], object]]] = queue.SimpleQueue()

    @property
    @abc.abstractmethod
    def is_in_use(self) -> bool:
        """Whether a client commands the arm."""

    @abc.abstractmethod
    def cycle(self) -> None:
        """Serve for one period."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close all sockets."""

    def run(self, seconds: float = float("inf"), is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Run for a time [s], or until it has to end, polled between cycles."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and is_wanted():
            for _ in range(self.cycles_between_polls):
                self.cycle()

    def between_cycles(self, action: Callable[[Controller], Result], seconds: float = 60.0) -> Result:
        """Let the thread of the cycles call a function of the controller; return its result or raise its error.

        Raises:
            concurrent.futures.TimeoutError: It was not called within a time [s]. It may still be.
        """
        future: Future = Future()
        self._waiting.put((future, action))
        return future.result(seconds)

    def _call_waiting(self) -> None:
        while not self._waiting.empty():
            future, action = self._waiting.get()
            try:
                future.set_result(action(self._controller))
            except Exception as error:
                future.set_exception(error)
