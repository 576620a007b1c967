"""How long commands take to begin, and an offline identification of 10 s at 1 kHz, beside `import pinocchio`.

``python bench/bench_start.py [--repetitions N]``. Each command is a process of its own, and the repetitions are
interleaved, so that what else the machine does meets all of them alike. Times are medians; ratios are medians of the
ratios to the import in the same repetition.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _attacks_share import GEN3, draw, record, robot_of
from _table import print_table

from sysid_ros.cli.main import COMMANDS

IMPORT = [sys.executable, "-c", "import pinocchio"]
SYSID = [sys.executable, "-m", "sysid_ros.cli.main"]
SECONDS = 10.0
OK, REFUSED = 0, 2
TARGETS = {"help": 0.7, "refused": 0.7, "missing": 0.7, "offline": 4.0}
"""Largest wanted ratio of processor times, by kind of command."""


def write_recording(path: Path) -> None:
    """Write a simulated recording of a Gen3 with a payload."""
    robot = robot_of(GEN3)
    theta, payload = draw(robot, 1)
    block = record(robot, theta, payload, 1, seconds=SECONDS)
    units = "t=ns, q=rad, v=rad/s, tau=Nm"
    np.savez(path, t=block.stamps, q=block.q, v=block.v, tau=block.tau, joints=list(robot.joint_names), units=units)


def commands_of(folder: Path) -> dict[str, tuple[str, list[str], int]]:
    """Return by title: kind, command line and exit status that it has to have."""
    names = [name for name, one in COMMANDS.items() if not one.commands]
    names += [f"{name} {inner}" for name, one in COMMANDS.items() for inner in one.commands]
    recording, results = str(folder / "log.npz"), str(folder / "results")
    helps = {f"{name} --help": ("help", [*SYSID, *name.split(), "--help"], OK) for name in ["", *names]}
    return {
        **{title.strip(): one for title, one in helps.items()},
        "demo --mode no_such_mode": ("refused", [*SYSID, "demo", "--mode", "no_such_mode"], REFUSED),
        "identify --model no_such_arm": ("refused", [*SYSID, "identify", "--model", "no_such_arm"], REFUSED),
        "offline of a missing file": ("missing", [*SYSID, "offline", "none.npz", "--model", GEN3], REFUSED),
        f"offline of {SECONDS:g} s at 1 kHz": (
            "offline", [*SYSID, "offline", recording, "--model", GEN3, "--results", results], OK,
        ),
    }  # fmt: skip


def run(command: list[str], status: int) -> tuple[float, float]:
    """Run a command to its end; return its wall and processor time [s].

    Raises:
        RuntimeError: It ends otherwise than it has to: its time would mean nothing.
    """
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != status:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}, not {status}:\n{done.stderr}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(commands: dict[str, tuple[str, list[str], int]], repetitions: int) -> dict[str, np.ndarray]:
    """Return by title wall and processor times, (repetitions, 2) [s]; the import is under ``import pinocchio``."""
    everything = {"import pinocchio": ("", IMPORT, OK), **commands}
    times: dict[str, list[tuple[float, float]]] = {title: [] for title in everything}
    for number in range(repetitions + 1):
        for title, (_, command, status) in everything.items():
            found = run(command, status)
            if number:  # the first finds no compiled files, and nothing in the cache of the disk
                times[title].append(found)
    return {title: np.array(found) for title, found in times.items()}


def main() -> int:
    """Measure and print; return 1 where a ratio is above its target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_recording(Path(folder) / "log.npz")
        commands = commands_of(Path(folder))
        times = measure(commands, max(options.repetitions, 1))
    unit, rows, is_missed = times["import pinocchio"], [], False
    for title, found in times.items():
        (wall, cpu), (wall_ratio, ratio) = np.median(found, axis=0), np.median(found / unit, axis=0)
        kind = commands[title][0] if title in commands else ""
        is_above = bool(kind) and ratio > TARGETS[kind]
        is_missed |= is_above
        wanted = f"{TARGETS[kind]:g}, missed" if is_above else f"{TARGETS[kind]:g}" if kind else "-"
        name = f"sysid {title}" if kind else title
        rows.append((name, float(wall), float(cpu), float(wall_ratio), float(ratio), wanted))
    columns = ("command", "wall [s]", "processor [s]", "ratio of wall", "ratio of processor", "wanted at most")
    print_table(columns, rows, f"medians of {max(options.repetitions, 1)} interleaved repetitions")
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main())
