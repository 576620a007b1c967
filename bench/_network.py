"""What the benchmarks of drivers on a network share: a fault campaign, a motion to and fro, random datagrams."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, MutableSequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import MappingProxyType

import numpy as np
from _table import StolenTime, describe_machine, print_table
from _unproven import unproven_certificate

from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.child import ChildProcessFailed
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopMode, LoopModel, LoopRefusal
from sysid_ros.drivers.network import UdpEndpoint
from sysid_ros.drivers.pacing import request_scheduling
from sysid_ros.drivers.process import LoopProcess
from sysid_ros.emulators.plant import EmulatedArm
from sysid_ros.emulators.relays.faults import NetworkFaults
from sysid_ros.emulators.relays.relay import FaultyRelay

CAMPAIGN = {
    "none (baseline)": NetworkFaults(),
    "loss 0.1 %": NetworkFaults(loss=0.001),
    "loss 1 %": NetworkFaults(loss=0.01),
    "loss 5 %": NetworkFaults(loss=0.05),
    "loss 20 %": NetworkFaults(loss=0.2),
    "loss 1 % in bursts of 5": NetworkFaults(loss=0.01, burst=5.0),
    "loss 1 % in bursts of 20": NetworkFaults(loss=0.01, burst=20.0),
    "reordering 5 %": NetworkFaults(reorder=0.05),
    "duplication 20 %": NetworkFaults(duplicate=0.2),
    "delay 1 ms": NetworkFaults(delay=0.001),
    "delay 5 ms": NetworkFaults(delay=0.005),
    "delay 50 ms": NetworkFaults(delay=0.05),
    "delay 0 to 5 ms": NetworkFaults(delay_spread=0.005),
    "truncation 2 %": NetworkFaults(truncate=0.02),
    "corruption 2 %": NetworkFaults(corrupt=0.02),
    "random datagrams 20 %": NetworkFaults(insert=0.2),
    "all at once, 1 % each": NetworkFaults(0.01, 3.0, 0.01, 0.01, 0.0, 0.001, 0.01, 0.01, 0.01),
}
_ATTEMPTS = 4


@dataclass(frozen=True)
class Watched:
    """What the true arm did.

    Attributes:
        position: Largest share of its position limits [-].
        speed: Largest share of its speed limits [-].
        last_speed: Speed now [rad/s].
        moved: How far it went from where it was at the last event, or look [rad].
        ended: Motions its controller ended.
        stray: Commands with a torque that came where none may act, and did not.
        applied: Commands of another session than the present one that acted.
    """

    position: float
    speed: float
    last_speed: float
    moved: float
    ended: int
    stray: int = 0
    applied: int = 0

    @property
    def is_safe(self) -> bool:
        """Whether it stayed within its limits and rests."""
        return self.position < 1.0 and self.speed < 1.5 and self.last_speed < 0.05


def watch(
    pipe: Connection,
    arm: EmulatedArm,
    cycle: Callable[[], None],
    count_ended: Callable[[], int],
    count_strays: Callable[[], tuple[int, int]] = lambda: (0, 0),
    events: Mapping[str, Callable[[], None]] = MappingProxyType({}),
    posture: MutableSequence[float] | None = None,
) -> None:
    """Runs an emulated controller until it is told to end; answers with what its arm did.

    Args:
        pipe: Takes "end", "look" (which both are answered) and names of events.
        arm: The arm.
        cycle: One cycle of the controller.
        count_ended: Number of motions it has ended.
        count_strays: Number of commands with a torque that came where none may act, and of those that acted.
        events: What may happen to the controller, by name.
        posture: Where the arm is; shared with whoever survives this process.
    """
    request_scheduling(True)
    limits = arm.robot.limits
    is_limited = np.isfinite(limits.q_upper)
    lower, upper = limits.q_lower[is_limited], limits.q_upper[is_limited]
    middle, half = 0.5 * (upper + lower), 0.5 * (upper - lower)
    position = speed = moved = 0.0
    origin = arm.q
    while True:
        if pipe.poll():
            what = pipe.recv()
            if what in events:
                events[what]()
            else:
                last_speed = float(np.abs(arm.v).max())
                pipe.send(Watched(position, speed, last_speed, moved, count_ended(), *count_strays()))
            if what == "end":
                return
            origin, moved = arm.q, 0.0
        cycle()
        q = arm.q
        position = max(position, float((np.abs(q[is_limited] - middle) / half).max()))
        speed = max(speed, float((np.abs(arm.v) / limits.v_max).max()))
        moved = max(moved, float(np.abs(q - origin).max()))
        if posture is not None:
            posture[:] = q


class Child:
    """A function in a process of its own, with a pipe, as a context.

    Args:
        function: Called with its end of the pipe, the arguments and the options.
        arguments: These.
        options: And these.
    """

    def __init__(self, function: Callable[..., None], *arguments: object, **options: object):
        self.pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=function, args=(theirs, *arguments), kwargs=options)

    def __enter__(self) -> Child:
        self._process.start()
        return self

    @property
    def pid(self) -> int:
        return self._process.pid

    def look(self) -> Watched:
        """What the arm has done so far, of a child that runs :func:`watch`."""
        self.pipe.send("look")
        return self.pipe.recv()

    def finish(self) -> Watched:
        """What the arm did, of a child that runs :func:`watch`; ends it."""
        self.pipe.send("end")
        return self.pipe.recv()

    def kill(self) -> None:
        """Kills the process, as a controller whose power is cut."""
        self._process.kill()
        self._process.join()

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()


def relay(pipe: Connection, port: int) -> None:
    """The relay, in a process of its own with real-time priority: it must not be what is measured."""
    request_scheduling(True)
    with FaultyRelay(("127.0.0.1", port), seed=1) as one:
        pipe.send(one.address[1])
        while True:
            one.change(pipe.recv())


class RunningLoop:
    """The torque loop as a context; on a busy computer the arm may be lost while it is taken over: it tries again."""

    def __init__(self, build: Callable[[], ControlLoop], attempts: int = _ATTEMPTS):
        self._build, self.attempts = build, attempts

    def __enter__(self) -> LoopProcess:
        for attempt in range(self.attempts):
            self._process = LoopProcess(self._build, 7, capacity=1 << 16, is_real_time=True)
            try:
                self._process.start()
                return self._process
            except ChildProcessFailed:
                if attempt == self.attempts - 1:
                    raise
        raise AssertionError

    def __exit__(self, *_: object) -> None:
        self._process.stop()


def start_move(process: LoopProcess, robot: RobotModel, step: float) -> None:
    """Starts a motion of all joints that takes 1.5 s.

    Raises:
        LoopRefusal: The arm may not move, or not yet.
    """
    q, zero = process.status().reference, np.zeros(7)
    plan = BezierTrajectory(q, zero, zero, q + step, 1.5)
    now = process.status().stamp_ns * 1e-9
    process.execute(plan, unproven_certificate(robot, LoopModel.nominal(robot), process.status().law, plan, 0.09, now))


def move(process: LoopProcess, robot: RobotModel, seconds: float) -> int:
    """Moves to and fro; takes the arm over again where it was lost. Returns how often that was."""
    end, direction, reconnects = time.monotonic() + seconds, 1.0, 0
    while time.monotonic() < end:
        process.heartbeat()
        status = process.status()
        try:
            if status.mode is LoopMode.HOLD:
                start_move(process, robot, 0.1 * direction)
                direction = -direction
            elif status.mode is LoopMode.FAULT:
                reconnects += 1
                process.reconnect()
        except (LoopRefusal, ChildProcessFailed):
            pass  # still blending, or the session is not good enough to be taken over: try again
        time.sleep(0.05)
    return reconnects


def processor_time(pid: int) -> float:
    """Processor time a process has used [s]."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def echo_row(seconds: float, period: float) -> list[object]:
    """Baseline: answers without decoding, control or taking over; what sockets and scheduling cost.

    Returns:
        Name, cycles, 50th and 99th percentile and maximum of the time there and back [us], processor time [%].
    """
    one, other = UdpEndpoint("127.0.0.1"), UdpEndpoint("127.0.0.1")
    one.peer = other.address
    times, deadline = [], time.monotonic()
    cpu, started = time.process_time(), deadline
    for _ in range(round(seconds / period)):
        deadline += period
        time.sleep(max(0.0, deadline - time.monotonic()))
        sent = time.monotonic()
        one.send(bytes(400))
        other.send(other.receive(0.1)[:143])
        one.receive(0.1)
        times.append(time.monotonic() - sent)
    share = (time.process_time() - cpu) / (time.monotonic() - started)
    one.close()
    other.close()
    return ["baseline: echo in one process", len(times), *(1e6 * np.quantile(times, [0.5, 0.99, 1.0])), 100.0 * share]


def print_campaign(fault_row: Callable[[str, NetworkFaults], list[object]], columns: list[str], title: str) -> None:
    """One row per fault; one of an arm that could not be taken over has the reason in its last but two column."""
    rows = []
    for name, faults in CAMPAIGN.items():
        try:
            rows.append(fault_row(name, faults))
        except ChildProcessFailed as error:
            rows.append([name, *["-"] * (len(columns) - 4), str(error)[:40], "-", "not taken over"])
    print_table(columns, rows, title)


def fuzz_row(
    name: str, data: bytes, decode: Callable[[bytes], object], refusal: type[Exception], count: int
) -> list[object]:
    """Random datagrams, and ones with changed or missing bytes, at one decoder."""
    rng, accepted, refused, other = np.random.default_rng(0), 0, 0, 0
    started = time.process_time()
    for k in range(count):
        datagram = _mutate(data, rng, k)
        try:
            decode(datagram)
            accepted += 1
        except refusal:
            refused += 1
        except Exception:  # noqa: BLE001 - this is what is counted
            other += 1
    return [name, count, accepted, refused, other, 1e6 * (time.process_time() - started) / count]


def print_fuzz(rows: list[list[object]]) -> None:
    columns = ["decoder", "datagrams", "accepted", "refused", "other exceptions", "time each, with making it [us]"]
    print_table(columns, rows, "Random and mutated datagrams")


def _mutate(data: bytes, rng: np.random.Generator, k: int) -> bytes:
    if k % 4 == 0:
        return rng.bytes(int(rng.integers(0, 1600)))
    changed = bytearray(data)
    for _ in range(1 + k % 5):
        changed[int(rng.integers(len(changed)))] = int(rng.integers(256))
    return bytes(changed[: int(rng.integers(len(changed)))] if k % 4 == 1 else changed)


def run_parts(
    description: str, robot: str, parts: Mapping[str, Callable[[RobotModel, argparse.Namespace], None]]
) -> None:
    """The command line: which parts to run, for how long."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6.0, help="duration of each measurement [s]")
    parser.add_argument("--fuzz", type=int, default=100_000, help="datagrams per decoder")
    parser.add_argument("--only", nargs="+", default=list(parts), choices=list(parts), help="parts to run")
    options = parser.parse_args()
    print(describe_machine() + f", load {os.getloadavg()[0]:.1f}")
    arm = load_robot(robot)
    for name, run in parts.items():
        if name in options.only:
            stolen = StolenTime()
            run(arm, options)
            print(stolen.describe() + "\n", flush=True)
