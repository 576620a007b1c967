"""FRI over real sockets: timing of the loop, what a bad network does to it, and random datagrams at the decoders.

``python bench/bench_fri.py [--seconds S] [--fuzz N] [--only timing faults fuzz]``. Emulated controller, relay and the
torque loop are processes and threads of this computer. The arm of the fault campaign moves to and fro; a campaign is
survived if nothing crashed, the arm never left its position limits nor moved faster than 1.5 times its speed limit, and
ended at rest, either still obeying or handed back to its controller.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import multiprocessing
import time
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection

import numpy as np
from _table import describe_machine, print_table

from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.planning.certificate import Certificate, box_hash
from sysid_ros.core.planning.trajectory import BezierTrajectory
from sysid_ros.drivers.fri.build import FriSetup, build_fri_loop
from sysid_ros.drivers.fri.codec import FriCodec
from sysid_ros.drivers.fri.emulator.controller import ControllerSettings
from sysid_ros.drivers.fri.emulator.server import EmulatorServer
from sysid_ros.drivers.fri.emulator.setup import EmulatorSetup, build_controller
from sysid_ros.drivers.fri.enums import FriVersion, Quality, SessionState
from sysid_ros.drivers.fri.errors import FriDecodeError
from sysid_ros.drivers.fri.messages import Command, Monitoring
from sysid_ros.drivers.fri.settings import FriSettings
from sysid_ros.drivers.loop_model import LoopModel
from sysid_ros.drivers.loop_types import LoopMode, LoopRefusal
from sysid_ros.drivers.network.faults import NetworkFaults
from sysid_ros.drivers.network.relay import FaultyRelay
from sysid_ros.drivers.network.udp import UdpEndpoint
from sysid_ros.drivers.pacing import request_real_time
from sysid_ros.drivers.process import LoopProcess, LoopProcessError

MODEL = "kuka_lbr_med7"
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
    """What the true arm did: largest share of its position and speed limits, last speed [rad/s], motions ended."""

    position: float
    speed: float
    last_speed: float
    ended: int


def emulate(pipe: Connection, port: int, version: FriVersion, period: float) -> None:
    """Runs the emulated controller in a process of its own until the pipe is written to; answers with what it saw."""
    ended = []
    controller = build_controller(
        EmulatorSetup(MODEL, payload="0.6", controller=ControllerSettings(version, period, start_time=0.2)),
        lambda text: ended.append(text) if "ended" in text else None,
    )
    server = EmulatorServer(controller, ("127.0.0.1", port))
    request_real_time()
    limits = controller.arm.robot.limits
    middle, half = 0.5 * (limits.q_upper + limits.q_lower), 0.5 * (limits.q_upper - limits.q_lower)
    position = speed = 0.0
    while not pipe.poll():
        server.cycle()
        position = max(position, float((np.abs(controller.arm.q - middle) / half).max()))
        speed = max(speed, float((np.abs(controller.arm.v) / limits.v_max).max()))
    pipe.send(Watched(position, speed, float(np.abs(controller.arm.v).max()), len(ended)))


class Emulated:
    """The emulated controller as a context."""

    def __init__(self, port: int, version: FriVersion, period: float):
        self._pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=emulate, args=(theirs, port, version, period))

    def __enter__(self) -> Emulated:
        self._process.start()
        return self

    def finish(self) -> Watched:
        self._pipe.send("end")
        return self._pipe.recv()

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()


def free_port() -> int:
    endpoint = UdpEndpoint("127.0.0.1")
    port = endpoint.address[1]
    endpoint.close()
    return port


def start_move(process: LoopProcess, model: LoopModel, step: float) -> None:
    q, zero = process.status().reference, np.zeros(7)
    plan = BezierTrajectory(q, zero, zero, q + step, 1.5)
    now = process.status().stamp_ns * 1e-9
    boxes = box_hash(model.theta_box, model.payload_box)
    claims = "nothing was checked; for a benchmark in simulation only"
    process.execute(
        plan, Certificate(plan.hash(), boxes, q, "sampled", claims, {}, np.full(7, 0.09), now - 1.0, now + 60.0)
    )


def move(process: LoopProcess, model: LoopModel, seconds: float) -> int:
    """Moves to and fro; takes the arm over again where it was lost. Returns how often that was."""
    end, direction, reconnects = time.monotonic() + seconds, 1.0, 0
    while time.monotonic() < end:
        process.heartbeat()
        status = process.status()
        try:
            if status.mode is LoopMode.HOLD:
                start_move(process, model, 0.1 * direction)
                direction = -direction
            elif status.mode is LoopMode.FAULT:
                reconnects += 1
                process.reconnect()
        except (LoopRefusal, LoopProcessError):
            pass  # still blending, or the session is not good enough to be taken over: try again
        time.sleep(0.05)
    return reconnects


class RunningLoop:
    """The torque loop as a context; on a busy computer the arm may be lost while it is taken over: it tries again."""

    def __init__(self, port: int, version: FriVersion, period: float, **settings: float):
        fri = FriSettings(version=version, robot_ip="127.0.0.1", port=port, period=period, **settings)
        self._build = partial(build_fri_loop, FriSetup(MODEL, "robust", fri))

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


def processor_time(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def timing_row(name: str, version: FriVersion, period: float, model: LoopModel, seconds: float) -> list[object]:
    port = free_port()
    with Emulated(port, version, period) as emulated, RunningLoop(port, version, period) as process:
        time.sleep(0.3)
        cpu, started = processor_time(process.pid), time.monotonic()
        lost = move(process, model, seconds)
        share = (processor_time(process.pid) - cpu) / (time.monotonic() - started)
        health, cycles = process.health(), process.status().cycles
        jitter = 1e6 * np.abs(process.cycle_times(cycles)[1:, 0] - period)
        scheduling = process.scheduling
        process.stop()
        emulated.finish()
    reaction = [1e6 * health[f"reaction {q} [s]"] for q in ("p50", "p99", "max")]
    late = [health["messages late"], health["messages overtaken"], lost]
    return [name, cycles, *reaction, *np.quantile(jitter, [0.5, 0.99]), *late, 100.0 * share, scheduling.split(" (")[0]]


def echo_row(seconds: float, period: float = 0.002) -> list[object]:
    """Baseline: answers without decoding, control or taking over; what sockets and scheduling cost."""
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
    quantiles = list(1e6 * np.quantile(times, [0.5, 0.99, 1.0]))
    one.close()
    other.close()
    return ["baseline: echo in one process", len(times), *quantiles, "-", "-", "-", "-", "-", 100.0 * share, "normal"]


def run_timing(model: LoopModel, seconds: float) -> None:
    rows = [echo_row(seconds)]
    for version, period in ((FriVersion.V1_15, 0.002), (FriVersion.V2_7, 0.002), (FriVersion.V1_15, 0.001)):
        rows.append(timing_row(f"FRI {version.value}, {1e3 * period:g} ms", version, period, model, seconds))
    columns = ["loop", "cycles", "reaction p50 [us]", "p99", "max", "period jitter p50 [us]", "p99", "late messages"]
    columns += ["overtaken", "arm lost", "CPU [%]", "scheduling"]
    print_table(columns, rows, "From message to answer, robust controller; late: by more than half a period")


def fault_row(name: str, faults: NetworkFaults, model: LoopModel, seconds: float) -> list[object]:
    port, version, period = free_port(), FriVersion.V2_5, 0.002
    relay = FaultyRelay(("127.0.0.1", port), seed=1)
    with relay, Emulated(relay.address[1], version, period) as emulated:
        with RunningLoop(port, version, period, connect_timeout=3.0) as process:
            time.sleep(0.3)
            relay.change(faults)
            lost = move(process, model, seconds)
            health, is_alive = process.health(), process.is_alive
            mode = process.status().mode
            process.stop()
        relay.change(NetworkFaults())
        time.sleep(0.3)
        seen = emulated.finish()
    is_safe = is_alive and seen.position < 1.0 and seen.speed < 1.5 and seen.last_speed < 0.05
    counted = [health[f"messages {what}"] for what in ("lost", "duplicated", "out of order", "malformed")]
    return [name, *counted, lost, seen.ended, mode.name, seen.speed, "yes" if is_safe else "NO"]


def run_faults(model: LoopModel, seconds: float) -> None:
    rows = []
    for name, faults in CAMPAIGN.items():
        try:
            rows.append(fault_row(name, faults, model, seconds))
        except LoopProcessError as error:
            rows.append([name, "-", "-", "-", "-", "-", "-", str(error)[:40], "-", "not taken over"])
    columns = ["fault, both directions", "lost", "duplicated", "late", "malformed", "arm lost", "motions ended"]
    title = f"Fault campaign: {seconds:g} s each, FRI 2.5, 2 ms, moving to and fro; seen by the client"
    print_table([*columns, "last mode", "largest speed / limit", "survived"], rows, title)


def run_fuzz(count: int) -> None:
    rows, rng = [], np.random.default_rng(0)
    q = np.linspace(-1.0, 1.0, 7)
    for version in FriVersion:
        codec = FriCodec(version)
        active = SessionState.COMMANDING_ACTIVE
        good = Monitoring(1, 1, active, Quality.GOOD, 0.002, 1, 7, q=q, tau=q, q_ipo=q, stamp_ns=1)
        for what, decode, data in (
            ("monitoring", codec.decode_monitoring, codec.encode_monitoring(good)),
            ("command", codec.decode_command, codec.encode_command(Command(1, 1, q, q))),
        ):
            accepted = refused = other = 0
            started = time.process_time()
            for k in range(count):
                datagram = mutate(data, rng, k)
                try:
                    decode(datagram)
                    accepted += 1
                except FriDecodeError:
                    refused += 1
                except Exception:  # noqa: BLE001 - this is what is counted
                    other += 1
            each = 1e6 * (time.process_time() - started) / count
            rows.append([f"FRI {version.value} {what}", count, accepted, refused, other, each])
    columns = ["decoder", "datagrams", "accepted", "refused", "other exceptions", "time each, with making it [us]"]
    print_table(columns, rows, "Random and mutated datagrams")


def mutate(data: bytes, rng: np.random.Generator, k: int) -> bytes:
    if k % 4 == 0:
        return rng.bytes(int(rng.integers(0, 1600)))
    changed = bytearray(data)
    for _ in range(1 + k % 5):
        changed[int(rng.integers(len(changed)))] = int(rng.integers(256))
    return bytes(changed[: int(rng.integers(len(changed)))] if k % 4 == 1 else changed)


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
