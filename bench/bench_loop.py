"""The 1 kHz loop: jitter, computing time, missed deadlines.

``python bench/bench_loop.py [--seconds S] [--controllers gravity_pid robust]``. The loop runs as its own process with
the simulated arm, as in the demo; the baselines are what one writes first, a loop around ``time.sleep``, and the pacing
of the loop without any work. They follow each other in one run. A second table shows where the time of a cycle goes.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import time
from functools import partial

import numpy as np
from _table import StolenTime, describe_machine, print_table
from _unproven import unproven_certificate

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.loop_types import LoopMode, LoopModel
from sysid_ros.drivers.pacing import Pacer, request_scheduling
from sysid_ros.drivers.process import LoopProcess
from sysid_ros.drivers.registry import LoopSetup, build_loop

PERIOD = 0.001
LATE = 0.5 * PERIOD
"""A period longer than the nominal one by this counts as a missed deadline."""


def sleep_loop(seconds: float) -> tuple[np.ndarray, float]:
    """Periods [s] and processor share of the loop one writes first."""
    starts, cpu = [], time.process_time()
    for _ in range(round(seconds / PERIOD)):
        starts.append(time.monotonic())
        time.sleep(max(0.0, PERIOD - (time.monotonic() - starts[-1])))
    return np.diff(starts), (time.process_time() - cpu) / seconds


def paced_loop(seconds: float) -> tuple[np.ndarray, float]:
    """Periods [s] and processor share of absolute deadlines without work."""
    pacer, starts, cpu = Pacer(PERIOD), [], time.process_time()
    for _ in range(round(seconds / PERIOD)):
        pacer.wait()
        starts.append(time.monotonic())
    return np.diff(starts), (time.process_time() - cpu) / seconds


def processor_time(pid: int) -> float:
    """Processor time a process has used [s]."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_process(controller: str, seconds: float) -> tuple[np.ndarray, float]:
    """Cycle times (cycles, 2) [s] and processor share of the loop process, moving to and fro."""
    setup = LoopSetup.mock(controller=controller)
    robot = build_loop(setup).robot
    with LoopProcess(partial(build_loop, setup), robot.n, capacity=1 << 16) as process:
        time.sleep(0.5)
        first, cpu, started, direction = process.status().cycles, processor_time(process.pid), time.monotonic(), 1.0
        while time.monotonic() - started < seconds:
            process.heartbeat()
            if process.status().mode is LoopMode.HOLD:
                start_move(process, robot, 0.2 * direction)
                direction = -direction
            time.sleep(0.05)
        share = (processor_time(process.pid) - cpu) / (time.monotonic() - started)
        return process.cycle_times(process.status().cycles - first), share


def start_move(process: LoopProcess, robot: RobotModel, step: float) -> None:
    q = process.status().reference
    plan = BezierTrajectory(q, 0 * q, 0 * q, q + step, 1.5)
    now = process.status().stamp_ns * 1e-9
    process.execute(plan, unproven_certificate(robot, LoopModel.nominal(robot), process.status().law, plan, 0.09, now))


def jitter_row(name: str, periods: np.ndarray, compute: np.ndarray | None, share: float) -> list[object]:
    jitter = 1e6 * np.abs(periods - PERIOD)
    spent = ["-", "-"] if compute is None else [1e6 * np.quantile(compute, q) for q in (0.5, 0.99)]
    late = int(np.count_nonzero(periods > PERIOD + LATE))
    return [name, len(periods), *np.quantile(jitter, [0.5, 0.99, 0.999, 1.0]), *spent, late, 100.0 * share]


def lockstep_rows(controllers: list[str], cycles: int = 1500, rounds: int = 3) -> list[list[object]]:
    """Time per cycle without a clock, of the fastest round: the arm alone, then the whole loop."""
    rows = []
    loop = build_loop(LoopSetup.mock(controller=controllers[0]))
    arm = loop.arm
    arm.connect()
    torque = arm.read().tau
    rows.append(["simulated arm alone", fastest(lambda: (arm.read(), arm.command(torque)), cycles, rounds)])
    for controller in controllers:
        loop = build_loop(LoopSetup.mock(controller=controller))
        loop.connect()
        rows.append([f"loop with simulated arm, {controller}", fastest(loop.step, cycles, rounds)])
    return rows


def fastest(work, cycles: int, rounds: int) -> float:  # noqa: ANN001
    times = []
    for _ in range(rounds):
        started = time.process_time()
        for _ in range(cycles):
            work()
        times.append((time.process_time() - started) / cycles)
    return 1e6 * min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of each measurement [s]")
    parser.add_argument("--controllers", nargs="+", default=["gravity_pid", "robust"], help="controllers to measure")
    arguments = parser.parse_args()
    print(describe_machine() + f", load {os.getloadavg()[0]:.1f}")
    stolen = StolenTime()
    periods, share = sleep_loop(arguments.seconds)
    rows = [jitter_row("baseline: time.sleep, normal scheduling", periods, None, share)]
    scheduling = request_scheduling(True)
    for name, loop in (("baseline: time.sleep", sleep_loop), ("pacing without work", paced_loop)):
        periods, share = loop(arguments.seconds)
        rows.append(jitter_row(name, periods, None, share))
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    for controller in arguments.controllers:
        times, share = run_process(controller, arguments.seconds)
        rows.append(jitter_row(f"loop process, {controller}", times[1:, 0], times[1:, 1], share))
    columns = ["loop at 1 kHz", "cycles", "jitter p50 [us]", "p99", "p99.9", "max", "compute p50 [us]", "p99"]
    print_table([*columns, "periods > 1.5 ms", "CPU [%]"], rows, f"Real time; from the second row on with {scheduling}")
    print(stolen.describe() + "\n")
    print_table(["lock-step", "time per cycle [us]"], lockstep_rows(arguments.controllers))


if __name__ == "__main__":
    main()
