"""Attacks on the time of a simulated arm: priority over its planner, running after the wall clock, a busy machine.

``python bench/_attacks_load.py --trials N [--demo N]`` prints the rows of the page "attacks and faults" as JSON lines;
``--demo`` also times the demo alone and beside one busy process on each core.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from sysid_ros.drivers.process import LoopProcess
from sysid_ros.drivers.registry import LoopSetup, build_loop

STALL = 0.6
"""How long the loop is stopped [s]."""
AHEAD = 0.05
"""How much more simulated time may have passed than the loop had time to run [s]."""
CROWD = 8
"""Busy processes on the one core that the loop may use."""
LONGEST = 2.5
"""Largest ratio of the demo's time beside busy processes to that without them [-]."""
BUSY = "import os\np = os.getppid()\nwhile os.getppid() == p:\n    sum(range(100000))"


@contextmanager
def busy(count: int, core: int | None = None) -> Iterator[None]:
    """Run busy processes beside, on all cores or on one."""
    crowd = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        for one in crowd if core is not None else ():
            os.sched_setaffinity(one.pid, {core})
        yield
    finally:
        for one in crowd:
            one.kill()
            one.wait()


def simulated_loop() -> LoopProcess:
    return LoopProcess(partial(build_loop, LoopSetup.mock()), 7)


def takes_priority() -> bool:
    """Whether a simulated loop or an emulated controller runs ahead of all others."""
    with simulated_loop() as loop:
        policies = [os.sched_getscheduler(loop.pid)]
    for module, model in (("fri", "kuka_lbr_med7"), ("kortex", "kinova_gen3_2f85")):
        command = [sys.executable, "-m", f"sysid_ros.emulators.{module}", "--robot", model, "--seconds", "1"]
        output = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
        if "scheduling: " not in output:
            raise RuntimeError(output)
        policies.append(os.SCHED_FIFO if "scheduling: SCHED_FIFO" in output else os.SCHED_OTHER)
    return any(policy != os.SCHED_OTHER for policy in policies)


def runs_after_the_clock() -> bool:
    """Whether simulated time catches up with real time after a stall."""
    with simulated_loop() as loop:
        time.sleep(0.3)
        before, started = loop.status(), time.monotonic()
        os.kill(loop.pid, signal.SIGSTOP)
        stopped = time.monotonic()
        time.sleep(STALL)
        resumed = time.monotonic()
        os.kill(loop.pid, signal.SIGCONT)
        time.sleep(0.3)
        gained = 1e-9 * (loop.status().stamp_ns - before.stamp_ns)
        return gained > time.monotonic() - resumed + stopped - started + AHEAD


def says_nothing() -> bool:
    """Whether a simulated arm that cannot keep up keeps that to itself."""
    with simulated_loop() as loop, busy(CROWD, core=0):
        os.sched_setaffinity(loop.pid, {0})
        time.sleep(12.0)
        words = " ".join(str(value) for value in loop.health().values())
        return not re.search(
            r"this machine is .*: load \d+ on .*; the simulated arm runs at [\d.]+ of real time", words
        )


def run(trials: int) -> list[dict]:
    """Return the rows; ``failed`` is how often the fault showed."""
    attacks = {
        "simulated loop or emulated controller at real-time priority": takes_priority,
        f"simulated time runs after the wall clock, loop stopped for {STALL:g} s": runs_after_the_clock,
        f"{CROWD} busy processes on the core of the simulated arm, which says nothing": says_nothing,
    }
    return [
        {"point": "4", "attack": name, "trials": trials, "failed": sum(fault() for _ in range(trials)), "note": ""}
        for name, fault in attacks.items()
    ]


def time_demo() -> tuple[float, str]:
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        command = [sys.executable, "-m", "sysid_ros.cli.main", "demo"]
        output = subprocess.run([*command, "--results", folder], capture_output=True, text=True)
        if output.returncode:
            raise RuntimeError(output.stdout + output.stderr)
        return time.monotonic() - started, output.stdout + output.stderr


def run_demo(trials: int) -> list[dict]:
    """Return the row of the demo beside one busy process on each core."""
    ratios = []
    for _ in range(trials):
        quiet, _ = time_demo()
        with busy(len(os.sched_getaffinity(0))):
            ratios.append(time_demo()[0] / quiet)
    note = f"largest ratio {max(ratios):.2f}"
    attack = f"demo beside a busy process on each core takes {LONGEST:g} times its quiet time"
    failed = sum(ratio >= LONGEST for ratio in ratios)
    return [{"point": "4", "attack": attack, "trials": trials, "failed": failed, "note": note}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--demo", type=int, default=0, help="trials of the demo, minutes each")
    options = parser.parse_args()
    for row in run(options.trials) + (run_demo(options.demo) if options.demo else []):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
