"""Algorithm 2 on randomised simulated arms, checked against their true state.

``python bench/bench_closed_loop.py [--robot NAME ...] [--trials N] [--plans N] [--workers N] [--results FILE]``.
Every trial draws an arm in its box, a payload of the prior (a quarter at the corners, a quarter none), the kind of
sensor errors, up to eight turned boxes, a posture in which the arm can be held whatever it carries, and the simulated
time that planning takes (some plans come too late). The procedure of the nodes runs in lock-step with the simulated
arm, by MuJoCo (Runge-Kutta or semi-implicit steps) or by steps of our own with Pinocchio. In every period the *true*
state is compared with limits, obstacles (coal), the bounds of the certificate in force and its margins, and every
estimate with the true payload. N counts the trials in which the arm moved; where no first plan is found it does not.
Any violation is printed with its seed; ``--seed K`` repeats one trial. With ``--results`` every trial is noted in a
file as soon as it is done, and those that are there already are not run again: with 0 trials the tables are made of it
alone. Exit status 1 if anything was violated.

``NAME:elastic`` gives arm and model the elastic gears of the robot file, from the softest to the stiffest there may be.
``--broken N`` runs N trials of each kind in which an assumption is broken on purpose, with the first robot, and tells
what became of it.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import gc
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from traceback import extract_tb

import numpy as np
from _closed_loop import ERROR, NO_START, REFUSED, ROUNDING, TOO_LATE, Outcome, Violation, draw_trial, run_trial
from _closed_loop_faults import BRAKE, FAULTS, OBSTACLE, run_broken
from _table import describe_machine, print_table
from _trials import describe_results, open_workers, read_results, write_result

from sysid_ros.core.model.inertia import PARAMETER_NAMES
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.drivers.loop_types import LoopCode


@lru_cache
def tools(name: str) -> tuple[RobotModel, CertifiedPlanner]:
    """Robot and planner of this process."""
    robot = load_robot(name)
    return robot, CertifiedPlanner(robot)


def run_one(name: str, seed: int, plans: int, fault: str, time_limit: float) -> Outcome:
    """One trial; with a fault, one in which an assumption is broken."""
    gc.collect()  # a trial is full of references in circles, and large
    robot, planner = tools(name)
    trial = draw_trial(robot, planner, seed)
    if trial is None:
        return Outcome(seed, {}, failure=NO_START)
    try:
        if fault:
            return run_broken(robot, planner, trial, plans, fault, time_limit)
        return run_trial(robot, planner, trial, plans, time_limit)
    except Exception as error:  # noqa: BLE001 - a trial that cannot be run is a finding, not the end of the others
        frames = extract_tb(error.__traceback__)[:-6:-1]
        where = " < ".join(f"{frame.name} {Path(frame.filename).name}:{frame.lineno}" for frame in frames)
        crash = Violation("error", f"{type(error).__name__}: {error}, in {where}")
        return Outcome(seed, trial.labels, violations=[crash], failure=ERROR)


def run_all(arguments: argparse.Namespace, robot: str, fault: str, wanted: int) -> list[Outcome]:
    """Trials until enough of them have moved, or enough were broken; those in the file are not run again."""

    def counts(outcome: Outcome) -> bool:
        return bool(outcome.event) if fault else outcome.plans > 0

    done = read_outcomes(arguments.results, robot, fault)
    outcomes = [outcome for seed, outcome in sorted(done.items()) if seed >= arguments.first]
    moved = sum(counts(outcome) for outcome in outcomes)
    if moved >= wanted:
        return outcomes
    seeds = (seed for seed in iter_from(arguments.first) if seed not in done)
    job = (arguments.plans, fault, arguments.time_limit)
    begin = time.monotonic()

    def take(outcome: Outcome) -> None:
        nonlocal moved
        outcomes.append(outcome)
        moved += counts(outcome)
        write_result(arguments.results, {"robot": robot, "fault": fault, "outcome": asdict(outcome)})
        for violation in outcome.violations if fault in ("", BRAKE) else ():
            print(f"VIOLATION {robot}, seed {outcome.seed}: {violation.kind}: {violation.text}", flush=True)
        if sys.stderr.isatty():
            print(f"\r{fault} {moved} of {wanted}, {time.monotonic() - begin:.0f} s", end="", file=sys.stderr)

    with open_workers(arguments.workers) as run:
        while moved < wanted:
            several = max(arguments.workers, min(50, wanted - moved))
            count = 1 if arguments.workers == 1 else several
            for outcome in run(run_one, [(robot, next(seeds), *job) for _ in range(count)]):
                take(outcome)
    return outcomes


def iter_from(first: int) -> Iterator[int]:
    while True:
        yield first
        first += 1


def read_outcomes(path: str, robot: str, fault: str) -> dict[int, Outcome]:
    entries = (entry for entry in read_results(path) if (entry["robot"], entry["fault"]) == (robot, fault))
    return {entry["outcome"]["seed"]: Outcome.of_entry(entry["outcome"]) for entry in entries}


# Tables


def summarise(outcomes: list[Outcome], title: str) -> None:
    """Print what came of trials in which all assumptions hold."""
    moved = [outcome for outcome in outcomes if outcome.plans]
    asked, found = sum(o.asked for o in outcomes), sum(len(o.conditions) for o in outcomes)
    planning = np.array([value for o in outcomes for value in o.planning])
    first = sum(1 for o in outcomes if o.asked)
    refused = Counter(refusal.code for o in outcomes for refusal in o.refused)
    rows = [
        ["trials", len(outcomes)],
        ["with motion", len(moved)],
        ["no start posture found", sum(o.failure == NO_START for o in outcomes)],
        ["first plan found [%]", 100.0 * len(moved) / max(1, first)],
        ["plans followed", sum(o.plans for o in moved)],
        ["plans asked for", asked],
        ["of these found [%]", 100.0 * found / max(1, asked)],
        ["plans refused by the loop: too late", refused[TOO_LATE]],
        ["plans refused by the loop: else", refused[REFUSED]],
        ["motion [s]", sum(o.motion for o in moved)],
        ["planning, median [s]", np.median(planning) if planning.size else np.nan],
        ["planning, 99 % [s]", np.percentile(planning, 99) if planning.size else np.nan],
        ["trials with a violation", sum(bool(o.violations) for o in outcomes)],
        ["violations", sum(len(o.violations) for o in outcomes)],
        ["stops of the loop", sum(len(o.stops) for o in outcomes)],
    ]  # fmt: skip
    print_table(["quantity", "value"], rows, title)
    kinds = sorted({kind for o in outcomes for kind in o.ratios})
    rows = []
    for kind in kinds:
        values = np.array([o.ratios[kind] for o in outcomes if kind in o.ratios])
        rows.append(
            [
                kind,
                len(values),
                np.median(values),
                np.percentile(values, 99),
                values.max(),
                int((values > 1.0 + ROUNDING).sum()),
            ]
        )
    print_table(
        ["error or quantity over its bound", "trials", "median", "99 %", "max", "above 1"], rows, "Bounds and limits"
    )
    rows = []
    for kind in sorted({kind for o in outcomes for kind in o.margins}):
        values = np.array([o.margins[kind] for o in outcomes if kind in o.margins])
        rows.append([kind, len(values), np.median(values), values.min(), int((values < -1e-7).sum())])
    print_table(
        ["smallest per trial [m, rad, share]", "trials", "median", "min", "negative"], rows, "Distances and margins"
    )
    rows = []
    for number in range(max((len(o.conditions) for o in moved), default=0)):
        values = [o.conditions[number] for o in moved if len(o.conditions) > number]
        rows.append([number + 1, len(values), *np.quantile(values, [0.1, 0.5, 0.9], method="nearest")])
    print_table(
        ["plans", "trials", "10 %", "median", "90 %"], rows, "Condition number of the information planned so far"
    )
    widths = np.array([o.widths for o in moved if o.widths])
    if len(widths):
        rows = [
            [name, *np.quantile(widths[:, k], [0.1, 0.5, 0.9]), widths[:, k].max()]
            for k, name in enumerate(PARAMETER_NAMES)
        ]
        print_table(["parameter", "10 %", "median", "90 %", "max"], rows, "Final radius over that of the prior")
    for label in ("simulation", "arm", "payload", "noise", "obstacles", "planning", "delay"):
        groups = Counter(o.labels.get(label, "-") for o in outcomes)
        rows = []
        for value in sorted(groups):
            group = [o for o in outcomes if o.labels.get(label, "-") == value]
            bad = sum(bool(o.violations) for o in group)
            rows.append([label, value, len(group), sum(o.plans > 0 for o in group), sum(o.plans for o in group), bad])
        print_table(["drawn", "value", "trials", "moved", "plans", "with a violation"], rows)
    ends = Counter(shorten(o.ended) if o.failure is None else o.failure for o in outcomes)
    print_table(["how it ended", "trials"], [[text, count] for text, count in ends.most_common()])
    reasons = Counter(f"{one.code}: {shorten(one.text)}" for o in outcomes for one in o.refused)
    print_table(["why there was no plan, or it was refused", "times"], [list(pair) for pair in reasons.most_common(12)])


def shorten(reason: str) -> str:
    return "".join("#" if letter.isdigit() else letter for letter in reason)[:100]


def summarise_broken(results: dict[str, list[Outcome]]) -> None:
    """Print what became of broken assumptions."""
    rows, tale = [], []
    for fault, outcomes in results.items():
        moved = [o for o in outcomes if o.event]
        broken = [o for o in moved if o.violations]
        silent = [o for o in broken if not o.labels["noticed"]]
        how = Counter(o.labels["noticed"] or "not noticed" for o in moved)
        delays = [float(o.labels["delay"]) for o in moved if o.labels.get("delay")]
        kinds = ("position error", "position error, in a stop")
        worst = max((o.ratios.get(kind, 0.0) for o in moved for kind in kinds), default=0.0)
        reactions = [value for value in map(reaction, moved) if np.isfinite(value)]
        noticed = ", ".join(f"{count} {text}" for text, count in how.most_common())
        rows.append([
            fault, len(moved), sum(o.plans == 0 for o in moved), noticed,
            np.median(delays) if delays else np.nan, max(reactions, default=np.nan), worst, len(broken), len(silent),
        ])  # fmt: skip
        kinds = Counter(kind for o in moved for kind in {violation.kind for violation in o.violations})
        for kind, count in kinds.most_common():
            without = sum(breaks(o, kind) and not o.labels["noticed"] for o in moved)
            tale.append([fault, kind, count, without])
    for avoidable, where in (("yes", "far enough for a stop"), ("no", "nearer than a stop is long")):
        group = [o for o in results.get(OBSTACLE, ()) if o.labels.get("avoidable") == avoidable]
        touched = sum(breaks(o, "obstacle") for o in group)
        if group:
            tale.append([OBSTACLE, f"contact with a box that is {where} ({len(group)} trials)", touched, 0])
    columns = [
        "broken on purpose",
        "trials",
        "never moved",
        "noticed by",
        "after, median [s]",
        "alarm to brake, max [s]",
        "largest position error / bound",
        "something broken",
        "of these not noticed",
    ]
    print_table(columns, rows, "Assumptions broken on purpose")
    print_table(["broken on purpose", "what was broken", "trials", "of these not noticed"], tale, "What was broken")


def breaks(outcome: Outcome, kind: str) -> bool:
    """Return whether a kind of limit or bound was broken."""
    return any(violation.kind == kind for violation in outcome.violations)


def reaction(outcome: Outcome) -> float:
    """Time from an alarm in motion to the brake [s]; not a number where there was none."""
    brakes = [stop.time for stop in outcome.stops if stop.code == LoopCode.BRAKE_REQUESTED.name]
    return max(0.0, brakes[0] - outcome.alarm) if brakes and outcome.alarm is not None else np.nan


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=6, help="number of trials in which the arm moves")
    parser.add_argument("--first", type=int, default=0, help="seed of the first trial")
    parser.add_argument("--seed", type=int, help="only this trial, with all that came of it")
    parser.add_argument("--plans", type=int, default=5, help="plans per trial")
    parser.add_argument("--robot", nargs="+", default=["kinova_gen3_2f85"], help="names of the robots")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--results", default="", help="file of results, one line per trial")
    parser.add_argument(
        "--time-limit", type=float, default=1.3, help="real time a plan may take while the arm moves [s]"
    )
    parser.add_argument("--broken", type=int, default=1, help="trials of each kind with a broken assumption")
    parser.add_argument("--kinds", nargs="*", default=list(FAULTS), choices=list(FAULTS), help="broken assumptions")
    arguments = parser.parse_args()
    print(describe_machine(), flush=True)
    if arguments.seed is not None:
        outcome = run_one(arguments.robot[0], arguments.seed, arguments.plans, "", arguments.time_limit)
        print(json.dumps(asdict(outcome), indent=1, default=float))
        return int(bool(outcome.violations))
    violated = False
    for robot in arguments.robot:
        outcomes = run_all(arguments, robot, "", arguments.trials)
        if outcomes:
            summarise(outcomes, f"{robot}: trials with all assumptions, up to {arguments.plans} plans each")
        violated |= any(outcome.violations for outcome in outcomes)
    broken = {fault: run_all(arguments, arguments.robot[0], fault, arguments.broken) for fault in arguments.kinds}
    if any(broken.values()):
        summarise_broken(broken)
    violated |= any(outcome.violations for outcome in broken.get(BRAKE, ()))
    if arguments.results:
        print(describe_results(arguments.results))
    return int(violated)


if __name__ == "__main__":
    sys.exit(main())
