"""Kortex over real sockets: timing of the loop, what a bad network does to it, and random datagrams at the decoders.

``python bench/bench_kortex.py [--seconds S] [--fuzz N] [--only timing faults fuzz]``. Emulated base, relay and the
torque loop are processes and threads of this computer; the base runs in real time, without patience. The arm of the
fault campaign moves to and fro; a campaign is survived if nothing crashed, the arm never left its position limits nor
moved faster than 1.5 times its speed limit, and ended at rest, either still obeying or held by its base.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import multiprocessing
import time
from functools import partial
from multiprocessing.connection import Connection

import numpy as np
from _table import describe_machine, print_table
from bench_fri import CAMPAIGN, Watched, echo_row, move, mutate, processor_time

from sysid_ros.core.model.loader import load_robot
from sysid_ros.drivers.kortex.build import KortexSetup, build_kortex_loop
from sysid_ros.drivers.kortex.emulator.plant import PERIOD
from sysid_ros.drivers.kortex.emulator.server import EmulatorServer
from sysid_ros.drivers.kortex.emulator.setup import EmulatorSetup, build_base
from sysid_ros.drivers.kortex.enums import ArmState, FrameType, Function
from sysid_ros.drivers.kortex.errors import KortexDecodeError
from sysid_ros.drivers.kortex.frame import Frame, decode_frame, encode_frame
from sysid_ros.drivers.kortex.messages import (
    Command,
    Feedback,
    decode_command,
    decode_feedback,
    encode_command,
    encode_feedback,
)
from sysid_ros.drivers.kortex.settings import KortexSettings
from sysid_ros.drivers.loop_model import LoopModel
from sysid_ros.drivers.network.faults import NetworkFaults
from sysid_ros.drivers.network.relay import FaultyRelay
from sysid_ros.drivers.pacing import request_real_time
from sysid_ros.drivers.process import LoopProcess, LoopProcessError

MODEL = "kinova_gen3_2f85"
_ATTEMPTS = 4


def emulate(pipe: Connection) -> None:
    """Runs the emulated base in a process of its own until the pipe is written to; answers with what it saw."""
    ended = []
    base = build_base(
        EmulatorSetup(MODEL, payload="0.6"), lambda text: ended.append(text) if text.startswith("faults: ") else None
    )
    server = EmulatorServer(base, tcp_delay=0.02)
    pipe.send((server.address[1], server.address_realtime[1]))
    request_real_time()
    limits = base.arm.robot.limits
    is_limited = np.isfinite(limits.q_upper)
    lower, upper = limits.q_lower[is_limited], limits.q_upper[is_limited]
    middle, half = 0.5 * (upper + lower), 0.5 * (upper - lower)
    position = speed = 0.0
    while not pipe.poll():
        server.cycle()
        position = max(position, float((np.abs(base.arm.q[is_limited] - middle) / half).max()))
        speed = max(speed, float((np.abs(base.arm.v) / limits.v_max).max()))
    faults = sum(text != "faults: none" for text in ended)
    pipe.send(Watched(position, speed, float(np.abs(base.arm.v).max()), faults))


class Emulated:
    """The emulated base as a context."""

    def __enter__(self) -> Emulated:
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("fork").Process(target=emulate, args=(theirs,))
        self._process.start()
        self.port, self.port_realtime = self._pipe.recv()
        return self

    @property
    def pid(self) -> int:
        return self._process.pid

    def finish(self) -> Watched:
        self._pipe.send("end")
        return self._pipe.recv()

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()


def relay(pipe: Connection, port: int) -> None:
    """Runs the relay in a process of its own, with real-time priority: it must not be what is measured."""
    request_real_time()
    with FaultyRelay(("127.0.0.1", port), seed=1) as one:
        pipe.send(one.address[1])
        while (faults := pipe.recv()) is not None:
            one.change(faults)


class Relay:
    """The relay as a context."""

    def __init__(self, port: int):
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("fork").Process(target=relay, args=(theirs, port))

    def __enter__(self) -> Relay:
        self._process.start()
        self.port = self._pipe.recv()
        return self

    def change(self, faults: NetworkFaults) -> None:
        self._pipe.send(faults)

    def __exit__(self, *_: object) -> None:
        self._pipe.send(None)
        self._process.join()


class RunningLoop:
    """The torque loop as a context; on a busy computer the arm may be lost while it is taken over: it tries again."""

    def __init__(self, port: int, port_realtime: int, controller: str = "robust"):
        settings = KortexSettings(robot_ip="127.0.0.1", port=port, port_realtime=port_realtime, connect_timeout=3.0)
        self._build = partial(build_kortex_loop, KortexSetup(MODEL, controller, settings))

    def __enter__(self) -> LoopProcess:
        for attempt in range(_ATTEMPTS):
            self._process = LoopProcess(self._build, 7, capacity=1 << 16)
            try:
                self._process.start()
                return self._process
            except LoopProcessError:
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError

    def __exit__(self, *_: object) -> None:
        self._process.stop()


def timing_row(controller: str, model: LoopModel, seconds: float) -> list[object]:
    with Emulated() as emulated, RunningLoop(emulated.port, emulated.port_realtime, controller) as process:
        time.sleep(0.5)
        cpu, base_cpu, started = processor_time(process.pid), processor_time(emulated.pid), time.monotonic()
        lost = move(process, model, seconds)
        passed = time.monotonic() - started
        shares = [100.0 * (processor_time(p) - c) / passed for p, c in ((process.pid, cpu), (emulated.pid, base_cpu))]
        health, status = process.health(), process.status()
        jitter = 1e6 * np.abs(process.cycle_times(status.cycles)[1:, 0] - PERIOD)
        scheduling = process.scheduling
        process.stop()
        emulated.finish()
    trips = [1e6 * health[f"round trip {q} [s]"] for q in ("p50", "p99", "max")]
    counts = [status.missed_deadlines, health["replies missing"], lost]
    jitters = np.quantile(jitter, [0.5, 0.99, 1.0])
    return [f"Kortex 1 ms, {controller}", status.cycles, *trips, *jitters, *counts, *shares, scheduling.split(" (")[0]]


def run_timing(model: LoopModel, seconds: float) -> None:
    name, cycles, *trips = echo_row(seconds, PERIOD)
    baseline = [name, cycles, *trips[:3], *["-"] * 6, trips[-2], "-", "normal"]
    rows = [baseline, *(timing_row(controller, model, seconds) for controller in ("gravity_pid", "robust"))]
    columns = ["loop", "cycles", "round trip p50 [us]", "p99", "max", "period jitter p50 [us]", "p99", "max"]
    columns += ["missed deadlines", "replies missing", "arm lost", "CPU [%]", "CPU of the base [%]", "scheduling"]
    print_table(columns, rows, "From request to reply; a deadline is missed by half a period")


def fault_row(name: str, faults: NetworkFaults, model: LoopModel, seconds: float) -> list[object]:
    with Emulated() as emulated:
        with Relay(emulated.port_realtime) as between:
            with RunningLoop(emulated.port, between.port) as process:
                time.sleep(0.3)
                between.change(faults)
                lost = move(process, model, seconds)
                health, is_alive, mode = process.health(), process.is_alive, process.status().mode
                process.stop()
            between.change(NetworkFaults())
            time.sleep(0.3)
            seen = emulated.finish()
    is_safe = is_alive and seen.position < 1.0 and seen.speed < 1.5 and seen.last_speed < 0.05
    counted = [
        health[what]
        for what in ("replies missing", "replies late or repeated", "datagrams malformed", "readings not believed")
    ]
    return [name, *counted, lost, seen.ended, mode.name, seen.speed, "yes" if is_safe else "NO"]


def run_faults(model: LoopModel, seconds: float) -> None:
    rows = []
    for name, faults in CAMPAIGN.items():
        try:
            rows.append(fault_row(name, faults, model, seconds))
        except LoopProcessError as error:
            rows.append([name, "-", "-", "-", "-", "-", "-", str(error)[:40], "-", "not taken over"])
    columns = ["fault, both directions", "replies missing", "late, repeated", "malformed", "not believed", "arm lost"]
    title = f"Fault campaign: {seconds:g} s each, moving to and fro; seen by the client"
    print_table([*columns, "faults", "last mode", "largest speed / limit", "survived"], rows, title)


def run_fuzz(count: int) -> None:
    rows, rng, q = [], np.random.default_rng(0), np.linspace(1.0, 300.0, 7)
    request = Frame(FrameType.REQUEST, Function.REFRESH, 5, 6, 0, encode_command(Command(9, q, q / 10.0)))
    ids = (9,) * 7
    state = Feedback(9, ArmState.SERVOING_LOW_LEVEL, q, q / 100.0, q / 10.0, ids, ids, ids, 0, ids)
    reply = request._replace(kind=FrameType.RESPONSE, payload=encode_feedback(state))
    for what, decode, frame in (
        ("frame", lambda data: data, request),
        ("command in a frame", lambda data: decode_command(data.payload, 7), request),
        ("feedback in a frame", lambda data: decode_feedback(data.payload, 7), reply),
    ):
        data = encode_frame(frame)
        accepted = refused = other = 0
        started = time.process_time()
        for k in range(count):
            datagram = mutate(data, rng, k)
            try:
                decode(decode_frame(datagram))
                accepted += 1
            except KortexDecodeError:
                refused += 1
            except Exception:  # noqa: BLE001 - this is what is counted
                other += 1
        rows.append([what, count, accepted, refused, other, 1e6 * (time.process_time() - started) / count])
    columns = ["decoder", "datagrams", "accepted", "refused", "other exceptions", "time each, with making it [us]"]
    print_table(columns, rows, "Random and mutated datagrams")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6.0, help="duration of each measurement [s]")
    parser.add_argument("--fuzz", type=int, default=100_000, help="datagrams per decoder")
    parser.add_argument("--only", nargs="+", default=["timing", "faults", "fuzz"], help="parts to run")
    options = parser.parse_args()
    print(describe_machine() + f", load {os.getloadavg()[0]:.1f}")
    model = LoopModel.nominal(load_robot(MODEL))
    if "timing" in options.only:
        run_timing(model, options.seconds)
    if "faults" in options.only:
        run_faults(model, options.seconds)
    if "fuzz" in options.only:
        run_fuzz(options.fuzz)


if __name__ == "__main__":
    main()
