"""FRI over real sockets: timing, bad networks, random datagrams.

``python bench/bench_fri.py [--seconds S] [--fuzz N] [--only timing faults events fuzz]``. Emulated controller, relay
and the torque loop are processes and threads of this computer. The arm of the fault campaign moves to and fro; a
campaign is survived if nothing crashed, the arm never left its position limits nor moved faster than 1.5 times its
speed limit, and ended at rest, either still obeying or handed back to its controller. An event is survived if, besides,
the arm went no further than 0.1 rad after it and 20 mrad while it was taken over again, no torque of the session before
acted, and the arm obeys again without the loop being started anew, or is refused in the words it should be.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import time
from collections.abc import MutableSequence, Sequence
from functools import partial
from multiprocessing.connection import Connection

import numpy as np
from _network import (
    Child,
    RunningLoop,
    echo_row,
    fuzz_row,
    move,
    print_campaign,
    print_fuzz,
    processor_time,
    relay,
    run_parts,
    watch,
)
from _network_events import KILL, PATIENCE, Event, print_events
from _table import print_table

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.kuka_fri.codec import FriCodec
from sysid_ros.drivers.kuka_fri.messages import Command, Monitoring, Quality, SessionState
from sysid_ros.drivers.kuka_fri.settings import FriSettings
from sysid_ros.drivers.modes import FriVersion
from sysid_ros.drivers.network import InvalidFrame, free_port
from sysid_ros.drivers.registry import Driver, LoopSetup, build_loop
from sysid_ros.emulators.fri.controller import ControllerSettings, FriController
from sysid_ros.emulators.fri.server import EmulatorServer, build_controller
from sysid_ros.emulators.program import EmulatorSetup
from sysid_ros.emulators.relays.faults import NetworkFaults

MODEL = "kuka_lbr_med7"
PERIOD = 0.002
"""Of the campaigns [s]."""


def emulate(pipe: Connection, port: int, version: FriVersion, period: float) -> None:
    """The emulated controller, in a process of its own."""
    ended = []
    controller = build_controller(
        EmulatorSetup(MODEL, payload="0.6"),
        ControllerSettings(version, period, start_time=0.2),
        report=lambda text: ended.append(text) if "ended" in text else None,
    )
    server = EmulatorServer(controller, ("127.0.0.1", port))
    watch(pipe, controller.arm, server.cycle, lambda: len(ended))


def running_loop(port: int, version: FriVersion, period: float, **settings: float) -> RunningLoop:
    fri = FriSettings(version=version, robot_ip="127.0.0.1", port=port, period=period, **settings)
    return RunningLoop(partial(build_loop, LoopSetup(MODEL, Driver.FRI, (fri,))))


def timing_row(name: str, version: FriVersion, period: float, robot: RobotModel, seconds: float) -> list[object]:
    port = free_port()
    with Child(emulate, port, version, period) as emulated, running_loop(port, version, period) as process:
        time.sleep(0.3)
        cpu, started = processor_time(process.pid), time.monotonic()
        lost = move(process, robot, seconds)
        share = (processor_time(process.pid) - cpu) / (time.monotonic() - started)
        health, cycles = process.health(), process.status().cycles
        jitter = 1e6 * np.abs(process.cycle_times(cycles)[1:, 0] - period)
        scheduling = process.scheduling
        process.stop()
        emulated.finish()
    reaction = [1e6 * health[f"reaction {q} [s]"] for q in ("p50", "p99", "max")]
    late = [health[what] for what in ("messages late", "messages overtaken", "answers later than a period")] + [lost]
    return [
        name,
        cycles,
        *reaction,
        *np.quantile(jitter, [0.5, 0.99]),
        *late,
        100.0 * share,
        scheduling.text.split(" (")[0],
    ]


def run_timing(robot: RobotModel, seconds: float) -> None:
    *baseline, share = echo_row(seconds, 0.002)
    rows = [[*baseline, *["-"] * 6, share, "normal"]]
    for version, period in ((FriVersion.V1_15, 0.002), (FriVersion.V2_7, 0.002), (FriVersion.V1_15, 0.001)):
        rows.append(timing_row(f"FRI {version.value}, {1e3 * period:g} ms", version, period, robot, seconds))
    columns = ["loop", "cycles", "reaction p50 [us]", "p99", "max", "period jitter p50 [us]", "p99", "late messages"]
    columns += ["overtaken", "answers later than a period", "arm lost", "CPU [%]", "scheduling"]
    print_table(columns, rows, "From message to answer, robust controller; late: by more than half a period")


def fault_row(robot: RobotModel, seconds: float, name: str, faults: NetworkFaults) -> list[object]:
    port, version, period = free_port(), FriVersion.V2_5, PERIOD
    with Child(relay, port) as between, Child(emulate, between.pipe.recv(), version, period) as emulated:
        with running_loop(port, version, period, connect_timeout=3.0) as process:
            time.sleep(0.3)
            between.pipe.send(faults)
            lost = move(process, robot, seconds)
            health, is_alive = process.health(), process.is_alive
            mode = process.status().mode
            process.stop()
        between.pipe.send(NetworkFaults())
        time.sleep(0.3)
        seen = emulated.finish()
    counted = [health[f"messages {what}"] for what in ("lost", "duplicated", "out of order", "malformed")]
    survived = "yes" if is_alive and seen.is_safe else "NO"
    return [name, *counted, lost, seen.ended, mode.name, seen.speed, survived]


def run_faults(robot: RobotModel, seconds: float) -> None:
    columns = ["fault, both directions", "lost", "duplicated", "late", "malformed", "arm lost", "motions ended"]
    columns += ["last mode", "largest speed / limit", "survived"]
    title = f"Fault campaign: {seconds:g} s each, FRI 2.5, 2 ms, moving to and fro; seen by the client"
    print_campaign(partial(fault_row, robot, seconds), columns, title)


class Strays:
    """Counts the torques that come where none may act, and those of another session than the present one that act."""

    def __init__(self, controller: FriController):
        self._controller, self._begin, self._codec = controller, controller.begin, FriCodec(controller.settings.version)
        self._first = self.refused = self.applied = 0
        controller.begin = self.begin

    def begin(self, datagrams: Sequence[bytes]) -> bytes:
        controller, was_active = self._controller, self._controller.state is SessionState.COMMANDING_ACTIVE
        commands = [self._codec.decode_command(one) for one in datagrams]
        commands = [one for one in commands if one.tau is not None and np.abs(one.tau).max() > 0.0]
        message = self._begin(datagrams)
        for command in commands:
            if not was_active or controller.state is not SessionState.COMMANDING_ACTIVE:
                self.refused += 1
            elif not self._first <= command.reflected <= controller._sequence:
                self.applied += 1
        if controller.state is SessionState.COMMANDING_ACTIVE and not was_active:
            self._first = controller._sequence
        return message


def emulate_events(
    pipe: Connection, ports: tuple[int, int], posture: MutableSequence[float], is_successor: bool, **options: object
) -> None:
    """A controller to which something happens, in a process of its own; begins when it is told to."""
    is_interrupted = bool(options.pop("falls_back", False))
    settings = {"version": FriVersion.V2_5, "send_period": PERIOD, "start_time": 0.3, "restart_time": 0.6, **options}
    controller = build_controller(EmulatorSetup(MODEL, payload="0.6"), ControllerSettings(**settings))
    strays = Strays(controller)

    def fall_back(state: SessionState, reason: str) -> None:
        if state is SessionState.COMMANDING_WAIT and is_interrupted and not falls:
            falls.append(reason)
            controller.end_motion("somebody stopped the application")

    falls: list[str] = []
    enter = controller._enter
    controller._enter = lambda state, reason: (enter(state, reason), fall_back(state, reason))
    pipe.send("built")
    pipe.recv()
    if is_successor:
        controller.arm.place(np.array(posture))
        controller.restart()
    server = EmulatorServer(controller, ("127.0.0.1", ports[0]), ("127.0.0.1", ports[1]), PATIENCE)
    events = {
        "fall back": lambda: controller.end_motion("somebody stopped the application"),
        "lose quality": controller.lose_quality,
        "restart": controller.restart,
        "press": controller.press_emergency_stop,
        "release": lambda: controller.press_emergency_stop(False),
    }
    watch(
        pipe, controller.arm, server.cycle, lambda: 0, lambda: (strays.refused, strays.applied), events, posture
    )  # fmt: skip


EVENTS = (
    Event("controller killed, started again after 0.5 s", KILL),
    Event("controller killed, started again at once", KILL, pause=0.0),
    Event("controller killed, one with 6 joints in its place", KILL, successor={"joint_count": 6}, refusal="6 joints"),
    Event("application started anew", "restart"),
    Event("session falls back to MONITORING_READY", "fall back"),
    Event("quality falls, session falls back", "lose quality"),
    Event("emergency stop", "press", "release"),
)
TAKEOVERS = (
    ("session falls back from COMMANDING_WAIT once", {"falls_back": True}, ""),
    ("6 joints", {"joint_count": 6}, "6 joints"),
    ("8 joints", {"joint_count": 8}, "8 joints"),
)


def run_events(robot: RobotModel) -> None:
    ports = free_port(), free_port()
    print_events(
        lambda posture, is_successor, **options: Child(emulate_events, ports, posture, is_successor, **options),
        partial(running_loop, ports[0], FriVersion.V2_5, PERIOD, connect_timeout=3.0, wait_time=0.06, late_limit=0.2),
        robot, EVENTS, TAKEOVERS, "FRI 2.5, 2 ms",
    )  # fmt: skip


def run_fuzz(count: int) -> None:
    rows, q, active = [], np.linspace(-1.0, 1.0, 7), SessionState.COMMANDING_ACTIVE
    for version in FriVersion:
        codec = FriCodec(version)
        good = Monitoring(1, 1, active, Quality.GOOD, 0.002, 1, 7, q=q, tau=q, q_ipo=q, stamp_ns=1)
        for what, decode, data in (
            ("monitoring", codec.decode_monitoring, codec.encode_monitoring(good)),
            ("command", codec.decode_command, codec.encode_command(Command(1, 1, q, q))),
        ):
            rows.append(fuzz_row(f"FRI {version.value} {what}", data, decode, InvalidFrame, count))
    print_fuzz(rows)


if __name__ == "__main__":
    parts = {
        "timing": lambda robot, options: run_timing(robot, options.seconds),
        "faults": lambda robot, options: run_faults(robot, options.seconds),
        "events": lambda robot, _: run_events(robot),
        "fuzz": lambda _, options: run_fuzz(options.fuzz),
    }
    run_parts(__doc__, MODEL, parts)
