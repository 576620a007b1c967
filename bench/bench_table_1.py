"""Identification with SAFE-ID's Table I among the paper's obstacles.

``python bench/bench_table_1.py [--trials N] [--plans N] [--payloads ...] [--workers N] [--results FILE]``. In closed
loop, lock-step, as in bench_closed_loop.py and with its checks: the arm holds the home posture of the Gen3 with a
dumbbell, is weighed for a second, and follows plans that take over from each other, with the controller's proven bound
and the verifier, the box shrinking from plan to plan. The true arm is drawn in its box. Time is simulated: a plan may
take as long as it likes (what it takes is in bench_certified_planner.py). Targets: a condition number of at most 60
after four plans, and every bound of the inertia clearly inside the prior. Baseline: the published code of SAFE-ID with
the same box reached 118 to 358 where anything was feasible. Exit status 1 if anything was violated.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys
from dataclasses import asdict, fields

import numpy as np
from _closed_loop import Outcome, Trial, run_trial
from _table import describe_machine, print_table
from _trials import open_workers, read_results, write_result
from bench_certified_planner import prior_of
from bench_planner import paper_scene

from sysid_ros.core.model.inertia import PARAMETER_NAMES
from sysid_ros.core.model.sampling import sample_parameters
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.simulation import load_payload

KIND = "Table I"


def run_one(payload: str, seed: int, plans: int) -> Outcome:
    """One identification from the home posture."""
    robot = prior_of(KIND)
    theta = sample_parameters(robot, np.random.default_rng(seed), False)
    labels = {"payload": payload, "plans": str(plans)}
    trial = Trial(
        seed, theta, load_payload(robot, payload), Noise.UNIFORM, paper_scene(), robot.home, (1.0,), 1, labels
    )
    return run_trial(robot, CertifiedPlanner(robot), trial, plans, 120.0)


def summarise(outcomes: list[Outcome], payloads: list[str], plans: int) -> None:
    """Prints conditions and widths by payload."""
    rows, widths = [], []
    for payload in payloads:
        group = [one for one in outcomes if one.labels["payload"] == payload]
        whole = [one for one in group if len(one.conditions) >= plans]
        middle = [np.median([one.conditions[k] for one in whole]) if whole else np.nan for k in range(plans)]
        worst = max((one.conditions[plans - 1] for one in whole), default=np.nan)
        bad = sum(len(one.violations) for one in group)
        rows.append([payload, len(group), len(whole), *middle, worst, bad])
        for one in whole:
            widths.append([payload, *one.widths])
    conditions = (f"cond after {k + 1}" for k in range(plans))
    titles = ["payload", "trials", "whole chains", *conditions, "worst", "violations"]
    print_table(titles, rows, f"{KIND}, paper's obstacles: condition number of the information, median")
    rows = []
    for k, name in enumerate(PARAMETER_NAMES):
        values = np.array([row[k + 1] for row in widths])
        rows.append([name, np.median(values), values.max()] if len(values) else [name, np.nan, np.nan])
    print_table(["parameter", "median", "largest"], rows, "Final half width over that of the prior")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=3, help="arms per payload")
    parser.add_argument("--plans", type=int, default=4, help="plans of a chain")
    parser.add_argument("--payloads", nargs="+", default=["dumbbell_4lb", "dumbbell_5lb"], help="from payloads.yaml")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--results", default="", help="file of results, one line per trial")
    arguments = parser.parse_args()
    print(describe_machine(), flush=True)
    names = {one.name for one in fields(Outcome)}  # entries have date and commit, too
    entries = read_results(arguments.results)
    outcomes = [Outcome.of_entry({name: entry[name] for name in names}) for entry in entries]
    done = {(one.labels["payload"], one.seed, one.labels["plans"]) for one in outcomes}
    jobs = [
        (payload, seed, arguments.plans)
        for payload in arguments.payloads
        for seed in range(arguments.trials)
        if (payload, seed, str(arguments.plans)) not in done
    ]
    with open_workers(arguments.workers) as run:
        for outcome in run(run_one, jobs):
            outcomes.append(outcome)
            write_result(arguments.results, asdict(outcome))
            for one in (*outcome.violations, *outcome.refused):
                print(f"seed {outcome.seed}, {outcome.labels['payload']}: {one.text}", flush=True)
    summarise(outcomes, arguments.payloads, arguments.plans)
    return int(any(outcome.violations for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
