"""What a bad TCP connection does to an arm: while it is taken over, while it moves, and while it is handed back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection

from _network import Child, RunningLoop, start_move
from _table import print_table

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.child import ChildProcessFailed
from sysid_ros.drivers.loop_types import LoopMode, LoopRefusal
from sysid_ros.drivers.pacing import request_scheduling
from sysid_ros.drivers.process import LoopProcess
from sysid_ros.emulators.relays.faults import Cut, StreamFaults
from sysid_ros.emulators.relays.relay import TcpRelay

START, MOTION, STOP = "start", "motion", "stop"
PATIENCE = 0.2
"""How long the time of the emulated base waits for the loop [s]."""
_MOTION, _LONGEST, _SETTLE, _LARGEST_MOVE = 2.5, 15.0, 0.5, 0.02
_WORDS = 110
_MANY = 1000
"""More motions than there is time for."""

COLUMNS = [
    "TCP", "when", "taken over", "moves", "arm lost", "what the user is told", "moved after the end [rad]",
    "held by its base", "survived",
]  # fmt: skip


@dataclass(frozen=True)
class TcpCase:
    """A bad connection.

    Attributes:
        name: For the table.
        to_client: Faults of what the base sends.
        to_server: Faults of what the driver sends.
        when: From which phase on: :data:`START`, :data:`MOTION` or :data:`STOP`.
        is_ridden_through: Whether nothing may come of it.
    """

    name: str
    to_client: StreamFaults = StreamFaults()
    to_server: StreamFaults = StreamFaults()
    when: str = START
    is_ridden_through: bool = False


def both(name: str, is_ridden_through: bool, **faults: float) -> TcpCase:
    """The same faults in both directions, from the start on."""
    return TcpCase(name, StreamFaults(**faults), StreamFaults(**faults), START, is_ridden_through)


def cuts() -> list[TcpCase]:
    """Ends of the connection, in all phases, at bytes that lie in different parts of frames."""
    cases = []
    for k, place in enumerate((0, 20, 58, 111, 300, 480)):
        cases.append(TcpCase(f"{('FIN', 'RST')[k % 2]} at byte {place}", _cut(k, place), when=START))
    for cut in (Cut.FIN, Cut.RST, Cut.SILENCE):
        cases.append(TcpCase(f"{cut.name} in the motion", StreamFaults(cut=cut), StreamFaults(cut=cut), MOTION))
    for k, place in enumerate((0, 20, 58, 200)):
        cases.append(TcpCase(f"{('FIN', 'RST')[k % 2]} at byte {place}", _cut(k, place), when=STOP))
    cases.append(TcpCase("SILENCE", StreamFaults(cut=Cut.SILENCE), StreamFaults(cut=Cut.SILENCE), STOP))
    return cases


def _cut(k: int, place: int) -> StreamFaults:
    return StreamFaults(cut=(Cut.FIN, Cut.RST)[k % 2], cut_at=place)


CASES = (
    both("none (baseline)", True),
    both("delay 25 ms", True, delay=0.025),
    both("delay 200 ms", False, delay=0.2),
    both("delay 1.5 s", False, delay=1.5),
    both("pieces of 1 byte, 0.2 ms apart", True, piece=1, pause=2e-4),
    both("pieces of 7 bytes, 1 ms apart", True, piece=7, pause=1e-3),
    both("lumps every 50 ms", True, gather=0.05),
    *(
        TcpCase(f"byte {place} changed ({what})", StreamFaults(corrupt_at=place, corrupt_with=flip), when=when)
        for when in (START, MOTION)
        for place, flip, what in (
            (2, 0x01, "mark"),
            (8, 0x80, "length: beyond all"),
            (10, 0x40, "length: 16 kB more"),
            (11, 0x08, "length"),
            (17, 0x20, "header"),
        )
    ),
    *cuts(),
)


def tcp_relay(pipe: Connection, port: int) -> None:
    """The relay, in a process of its own; takes the faults in both directions and answers when they are in force."""
    request_scheduling(True)
    with TcpRelay(("127.0.0.1", port)) as one:
        pipe.send(one.address[1])
        while True:
            one.change(*pipe.recv())
            pipe.send("changed")


def tcp_row(
    start: Callable[[], Child], loop: Callable[[int, int], RunningLoop], robot: RobotModel, case: TcpCase
) -> list[object]:
    """One bad connection.

    Args:
        start: Starts the base; it says its TCP and UDP ports, and how many joints it has not got back as motions ended.
        loop: The driver for two ports.
        model: What the loop knows.
        case: The connection.
    """
    with start() as base:
        port, port_realtime = base.pipe.recv()
        with Child(tcp_relay, port) as between:
            port = between.pipe.recv()

            def change(*faults: StreamFaults) -> None:
                between.pipe.send(faults)
                between.pipe.recv()

            if case.when == START:
                change(case.to_server, case.to_client)
            is_taken_over, moves, lost, told, begun = False, 0, 0, "", 0.0
            try:
                with loop(port, port_realtime) as process:
                    is_taken_over = True
                    if case.when == MOTION:
                        moves, lost, told = _move(process, robot, partial(change, case.to_server, case.to_client))
                    else:
                        moves, lost, told = _move(process, robot, None)
                    base.look()
                    if case.when == STOP:
                        change(case.to_server, case.to_client)
                    begun = time.monotonic()
                    process.stop("the benchmark ends")
            except ChildProcessFailed as error:
                told = str(error).removeprefix("the loop process failed in 'start': ")
            seconds = time.monotonic() - begun if begun else 0.0
            time.sleep(_SETTLE)
            seen = base.finish()
    is_held = not seen.ended and seen.last_speed < 0.05
    is_right = is_taken_over and moves > 0 and not lost if case.is_ridden_through else True
    is_told = bool(told) or is_taken_over
    survived = is_held and is_right and is_told and seen.is_safe and seen.moved < _LARGEST_MOVE and seconds < 9.0
    return [
        case.name, case.when, "yes" if is_taken_over else "refused", moves, lost, told[:_WORDS] or "-", seen.moved,
        "yes" if is_held else "NO", "yes" if survived else "NO",
    ]  # fmt: skip


def print_tcp(start: Callable[[], Child], loop: Callable[[int, int], RunningLoop], robot: RobotModel) -> None:
    """One row per case."""
    rows = [tcp_row(start, loop, robot, case) for case in CASES]
    print_table(COLUMNS, rows, "Faults of the TCP connection; a stop counts until half a second after the driver's end")


def _move(process: LoopProcess, robot: RobotModel, change: Callable[[], None] | None) -> tuple[int, int, str]:
    """Moves once, or for a while after the change; takes the arm over again where it was lost.

    Returns:
        Motions done, how often the arm was lost, and the first reason for either.
    """
    end, direction, done, lost, told, is_moving = time.monotonic() + _LONGEST, 1.0, 0, 0, "", False
    is_over = False
    while not is_over:
        process.heartbeat()
        status = process.status()
        if status.mode is LoopMode.TRACK and change is not None and status.progress > 0.3:
            change()
            change, end, done = None, time.monotonic() + _MOTION, -_MANY
        if status.mode in (LoopMode.BRAKE, LoopMode.FAULT) and not told:
            told = status.reason
        try:
            if status.mode is LoopMode.HOLD:
                done += is_moving and status.reason == "trajectory done"
                is_moving = False
                start_move(process, robot, 0.1 * direction)
                direction, is_moving = -direction, True
            elif status.mode is LoopMode.FAULT:
                lost += 1
                is_moving = False
                process.reconnect()
        except (LoopRefusal, ChildProcessFailed) as error:
            told = told or ("" if "blended" in str(error) else str(error))
        is_over = done > 0 or time.monotonic() > end
        time.sleep(0.05)
    while process.status().mode in (LoopMode.TRACK, LoopMode.BRAKE):
        process.heartbeat()
        time.sleep(0.02)
    return done % _MANY, lost, told
