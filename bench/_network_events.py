"""What happens to a controller while its arm moves, or is taken over: restarts, sessions that end, another robot.

The time of the emulated controller waits for a loop that is not run in time, so that nothing but the event is seen.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from _network import Child, RunningLoop, Watched, start_move
from _table import print_table

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.child import ChildProcessFailed
from sysid_ros.drivers.loop_types import LoopMode, LoopRefusal
from sysid_ros.drivers.process import LoopProcess

KILL = "kill"
PATIENCE = 0.05
"""How long the time of the emulated controller waits for the loop [s]."""
_NOTICE, _SETTLE, _LONGEST = 3.5, 0.5, 20.0
"""Longest time until something is noticed, time to come to rest, and until the arm is had again [s]."""
_STEP, _SPEED = 0.2, 0.1
"""Size of the motion [rad], and the speed it must have when something happens [rad/s]."""
_LARGEST_STOP, _LARGEST_TAKEOVER = 0.1, 0.02
"""How far the arm may go until it rests, and while it is taken over [rad]; a refused sign of torques costs 20 mrad."""
_WORDS = 90

COLUMNS = [
    "in a motion", "speed then [rad/s]", "what the user is told", "moved until at rest [rad]",
    "torques of before: refused", "applied", "had again", "moved by that [rad]", "obeys again", "survived",
]  # fmt: skip


@dataclass(frozen=True)
class Event:
    """Something that happens to a controller.

    Attributes:
        name: What, in words.
        act: Name of the event of the child; :data:`KILL` kills its process.
        undo: Name of the event that has to follow before the arm can be had again; empty for none.
        pause: Time until a killed controller runs again [s]; 0 starts it at once.
        successor: Options of the controller that runs then.
        refusal: What the refusal to take the arm over must say; empty where the arm must be had again.
    """

    name: str
    act: str
    undo: str = ""
    pause: float = 0.5
    successor: dict[str, object] = field(default_factory=dict)
    refusal: str = ""


StartController = Callable[..., Child]
"""Starts an emulated controller; takes the shared posture, whether its arm starts there, and options.

It says that it is built and waits for "go".
"""


@dataclass
class Cell:
    """One emulated controller with its loop, over the whole of an event."""

    start: StartController
    posture: Sequence[float]
    emulated: Child

    @classmethod
    def build(cls, start: StartController) -> Cell:
        posture = multiprocessing.get_context("fork").RawArray("d", 7)
        emulated = _start(start, posture, False)
        emulated.pipe.send("go")
        return cls(start, posture, emulated)

    def happen(self, event: Event) -> None:
        """Lets the event happen; a successor is built before, so that it can run at once."""
        if event.act != KILL:
            self.emulated.pipe.send(event.act)
            return
        successor = _start(self.start, self.posture, True, **event.successor)
        self.emulated.kill()
        time.sleep(event.pause)
        successor.pipe.send("go")
        self.emulated = successor


def in_motion_row(start: StartController, loop: Callable[[], RunningLoop], robot: RobotModel, event: Event) -> list:
    """One event in the middle of a motion."""
    cell = Cell.build(start)
    try:
        with loop() as process:
            before = _begin_motion(cell, process, robot)
            cell.happen(event)
            told = _wait_for_the_end(process)
            time.sleep(_SETTLE)
            rest = cell.emulated.look()
            if event.undo:
                cell.emulated.pipe.send(event.undo)
            refusal = _reconnect(process, event.refusal)
            again = cell.emulated.look()
            obeys = not refusal and _obeys(process, robot)
            is_alive = process.is_alive
        last = cell.emulated.finish()
    finally:
        cell.emulated.__exit__()
    is_right = event.refusal in refusal if event.refusal else obeys
    moves = rest.moved < _LARGEST_STOP and again.moved < _LARGEST_TAKEOVER
    survived = is_alive and is_right and moves and rest.last_speed < 0.05 and last.is_safe and not last.applied
    return [
        event.name, before.last_speed, told[:_WORDS], rest.moved, again.stray, last.applied,
        f"refused: {refusal[-_WORDS:]}" if refusal else "yes", again.moved,
        "-" if event.refusal else "yes" if obeys else "NO", "yes" if survived else "NO",
    ]  # fmt: skip


def takeover_row(
    start: StartController, loop: Callable[[], RunningLoop], name: str, options: dict[str, object], refusal: str
) -> list:
    """Something that is so, or happens, while the arm is taken over.

    Args:
        start: The controller.
        loop: The driver.
        name: What, in words.
        options: Of the controller.
        refusal: What the refusal must say; empty where the arm must be taken over.
    """
    cell = Cell.build(partial(start, **options))
    told = ""
    try:
        try:
            with loop() as process:
                is_held = process.status().mode is LoopMode.HOLD
        except ChildProcessFailed as error:
            is_held, told = False, str(error).removeprefix("the loop process ").removeprefix("failed in 'start': ")
        time.sleep(_SETTLE)
        seen: Watched = cell.emulated.finish()
    finally:
        cell.emulated.__exit__()
    is_right = refusal in told and bool(told) and seen.moved < 1e-3 if refusal else is_held
    is_right = is_right and seen.is_safe and seen.moved < _LARGEST_TAKEOVER and not seen.applied
    return [name, "yes" if is_held else "refused", told[-150:] or "-", seen.moved, "yes" if is_right else "NO"]


def print_events(
    start: StartController,
    loop: Callable[[], RunningLoop],
    robot: RobotModel,
    events: Sequence[Event],
    takeovers: Sequence[tuple[str, dict[str, object], str]],
    title: str,
) -> None:
    """Both tables; a row whose motion could not even begin says so."""
    rows = []
    for event in events:
        try:
            rows.append(in_motion_row(start, loop, robot, event))
        except (ChildProcessFailed, NotMoving) as error:
            rows.append([event.name, "-", f"not begun: {error}"[:_WORDS], *["-"] * 6, "not tried"])
    print_table(COLUMNS, rows, f"{title}: in the middle of a motion")
    rows = [takeover_row(start, loop, *one) for one in takeovers]
    columns = ["while it is taken over", "had", "what the user is told", "moved [rad]", "survived"]
    print_table(columns, rows, f"Taken over, {title}")


def _start(start: StartController, posture: Sequence[float], is_successor: bool, **options: object) -> Child:
    """A controller that is built and waits for "go"."""
    child = start(posture, is_successor, **options).__enter__()
    child.pipe.recv()
    return child


class NotMoving(Exception):
    """The motion in which something was to happen did not come about."""


def _begin_motion(cell: Cell, process: LoopProcess, robot: RobotModel) -> Watched:
    """Waits until the arm is in the middle of a motion."""
    end = time.monotonic() + _LONGEST
    while True:
        try:
            start_move(process, robot, _STEP)
            break
        except LoopRefusal as refusal:
            if time.monotonic() > end:
                raise NotMoving(str(refusal)) from None
            time.sleep(0.1)
    begin = time.monotonic()
    while time.monotonic() < begin + 0.6:
        process.heartbeat()
        time.sleep(0.02)
    seen = cell.emulated.look()
    if process.status().mode is not LoopMode.TRACK or seen.last_speed < _SPEED:
        raise NotMoving(process.status().reason)
    return seen


def _wait_for_the_end(process: LoopProcess) -> str:
    """Why the loop does not follow the motion any more; heartbeats go on."""
    end = time.monotonic() + _NOTICE
    while time.monotonic() < end:
        process.heartbeat()
        status = process.status()
        if status.mode is LoopMode.FAULT:
            return status.reason
        time.sleep(0.01)
    return f"nothing; {process.status().mode.name}: {process.status().reason}"


def _reconnect(process: LoopProcess, expected: str) -> str:
    """Tries to have the arm again; returns why it is refused, empty if it is not."""
    end, refusal = time.monotonic() + _LONGEST, "not tried"
    while time.monotonic() < end:
        try:
            if process.status().mode is not LoopMode.HOLD:
                process.reconnect()
            return ""
        except LoopRefusal as error:
            refusal = error.reason
            if expected and expected in refusal:
                return refusal
        time.sleep(0.1)
    return refusal


def _obeys(process: LoopProcess, robot: RobotModel) -> bool:
    """Whether a motion can be started, and ends where it is to."""
    end, is_started = time.monotonic() + _LONGEST, False
    while time.monotonic() < end:
        process.heartbeat()
        status = process.status()
        if status.mode is LoopMode.FAULT:
            return False
        if status.mode is LoopMode.HOLD:
            if is_started:
                return status.reason == "trajectory done"
            try:
                start_move(process, robot, -0.5 * _STEP)
                is_started = True
            except LoopRefusal:
                pass
        time.sleep(0.02)
    return False
