"""Truth and guaranteed bounds in randomised simulations.

``python bench/bench_containment.py [--trials N] [--first K] [--robots NAME ...] [--kinds KIND ...] [--workers N]
[--results FILE] [--seconds S]``. Every trial draws an arm inside its parameter box (every other one at a corner), a
payload of 0 to the arm's rating, the kind of sensor errors and a motion; some kinds of trials are built to break the
bounds (``_containment.py`` describes them). N trials of each kind are run for each robot. The identification never sees
the true parameters; the same seed gives the same trial. ``estimator`` is what a user gets: set membership, renewed
every 1.5 s of data and intersected. The methods below it are computed from the same rows at once. With ``--results``
every trial is noted as soon as it is done and not run again. Exit status 1 if any guaranteed bound misses the truth,
at any time, or an alarm is raised or a trial fails; ``sensitivity`` guarantees nothing and only counts.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys
from functools import cache
from itertools import product
from traceback import extract_tb

import numpy as np
from _containment import EMPTY, ESTIMATOR, EXACT, KINDS, LOOP, METHODS, PAYLOAD_KINDS, run_trial
from _table import describe_machine, print_table
from _trials import open_workers, read_results, write_result

from sysid_ros.core.model.inertia import PARAMETER_NAMES
from sysid_ros.core.model.loader import load_robot

ROBOTS = ("kinova_gen3_2f85", "kuka_lbr_iiwa7", "kuka_lbr_med14")
GUARANTEED = (ESTIMATOR, "set_membership", "left_inverse")
ALL = (ESTIMATOR, *METHODS)
LIGHT = 0.1
"""Payloads below this share of the rating do not count for widths relative to the payload."""

robot_of = cache(load_robot)


def run_one(name: str, kind: str, seed: int, seconds: float) -> dict:
    """One trial; one that cannot be run is a finding, not the end of the others."""
    try:
        return run_trial(robot_of(name), kind, seed, seconds)
    except Exception as error:  # noqa: BLE001 - see above
        frame = extract_tb(error.__traceback__)[-1]
        where = f"{frame.name}, {os.path.basename(frame.filename)}:{frame.lineno}"
        return {"robot": name, "kind": kind, "seed": seed, "error": f"{type(error).__name__}: {error} ({where})"}


def run_all(arguments: argparse.Namespace) -> list[dict]:
    """All trials that were asked for; those in the file of results are not run again."""
    seeds = range(arguments.first, arguments.first + arguments.trials)
    wanted = [(name, kind, seed) for seed, kind, name in product(seeds, arguments.kinds, arguments.robots)]
    done = {(entry["robot"], entry["kind"], entry["seed"]): entry for entry in read_results(arguments.results)}
    trials = [done[key] for key in wanted if key in done]
    jobs = [(*key, arguments.seconds) for key in wanted if key not in done]
    with open_workers(arguments.workers) as run:
        for entry in run(run_one, jobs):
            trials.append(entry)
            write_result(arguments.results, entry)
            if is_miss(entry):
                print(describe_miss(entry), flush=True)
            if sys.stderr.isatty():
                print(f"\r{len(trials)} of {len(wanted)}", end="", file=sys.stderr)
    return trials


def is_miss(entry: dict) -> bool:
    return "error" in entry or bool(entry["alarm"]) or not all(entry["inside"].get(name, True) for name in GUARANTEED)


def describe_miss(entry: dict) -> str:
    which = f"MISS {entry['robot']}, {entry['kind']}, seed {entry['seed']}"
    if "error" in entry:
        return f"{which}: {entry['error']}"
    outside = []
    names = entry.get("names", PARAMETER_NAMES)
    for name in GUARANTEED:
        if name not in entry["bounds"]:
            continue
        (lower, upper), truth = np.array(entry["bounds"][name]), np.array(entry["payload"])
        for k in np.flatnonzero(~((lower <= truth) & (truth <= upper))):
            outside.append(f"{name} {names[k]} = {truth[k]:.6g} not in [{lower[k]:.6g}, {upper[k]:.6g}]")
    return f"{which} ({entry['noise']}, {entry['arm']}): {'; '.join(outside) or 'an earlier update'}; {entry['alarm']}"


# Tables


def half_widths(entry: dict, name: str) -> np.ndarray:
    lower, upper = np.array(entry["bounds"][name])
    return 0.5 * (upper - lower)


def nearest(entry: dict, name: str) -> float:
    """Largest distance of the truth from the middle of its bounds, in half widths."""
    middle = np.mean(entry["bounds"][name], axis=0)
    return float(np.max(np.abs(np.array(entry["payload"]) - middle) / half_widths(entry, name)))


def payload_scale(entry: dict) -> np.ndarray:
    """``m``, ``m |c|`` and ``m |c|^2`` of the payload, for the ten parameters about the last joint."""
    mass, *first = entry["payload"][:4]
    reach = float(np.linalg.norm(first)) / mass
    return mass * reach ** np.repeat([0, 1, 2], [1, 3, 6])


def containment_rows(trials: list[dict], label: str) -> list[list[object]]:
    rows = []
    for robot, value in sorted({(entry["robot"], entry[label]) for entry in trials}):
        group = [entry for entry in trials if (entry["robot"], entry[label]) == (robot, value)]
        counts = [f"{sum(entry['inside'][name] for entry in group)} of {len(group)}" for name in ALL]
        shares = [max(nearest(entry, name) for entry in group) for name in (ESTIMATOR, "left_inverse")]
        alarms, stops = (sum(bool(entry[what]) for entry in group) for what in ("alarm", "stop"))
        costs = [float(np.median([entry[what] for entry in group])) for what in ("data", "time")]
        rows.append([robot, value, *counts, *shares, alarms, stops, *costs])
    return rows


def width_rows(trials: list[dict]) -> list[list[object]]:
    """Median half widths, relative to the payload, of each method."""
    rows = []
    for robot in sorted({entry["robot"] for entry in trials}):
        rating = robot_of(robot).rated_payload
        group = [e for e in trials if e["robot"] == robot and e["payload"][0] >= LIGHT * rating]
        for name in (*ALL, "prior") if group else ():
            half = [half_widths({"bounds": {**e["bounds"], "prior": e["prior"]}}, name) for e in group]
            relative = np.array(half) / [payload_scale(entry) for entry in group]
            rows.append([robot, name, len(group), *np.median(relative, axis=0)])
    return rows


def body_rows(trials: list[dict]) -> list[list[object]]:
    """Trials of other bodies than the payload: widths of what joint torques can tell, over those of the prior."""
    rows = []
    for robot, kind in sorted({(entry["robot"], entry["kind"]) for entry in trials}):
        group = [entry for entry in trials if (entry["robot"], entry["kind"]) == (robot, kind)]
        shares = []
        for entry in group:
            prior = 0.5 * (np.array(entry["prior"][1]) - entry["prior"][0])
            shares.append(half_widths(entry, ESTIMATOR)[prior > 0.0] / prior[prior > 0.0])
        inside = f"{sum(entry['inside'][ESTIMATOR] for entry in group)} of {len(group)}"
        quantiles = np.quantile(np.concatenate(shares), [0.0, 0.25, 0.5])
        alarms, spent = sum(bool(entry["alarm"]) for entry in group), np.median([entry["time"] for entry in group])
        rows.append([robot, kind, inside, alarms, *quantiles, float(spent)])
    return rows


def prior_rows(trials: list[dict]) -> list[list[object]]:
    """Median half widths of the estimator over those of the prior, by kind."""
    rows = []
    for robot, kind in product(sorted({entry["robot"] for entry in trials}), PAYLOAD_KINDS):
        group = [entry for entry in trials if (entry["robot"], entry["kind"]) == (robot, kind)]
        if group:
            prior = 0.5 * np.diff(np.array([entry["prior"] for entry in group]), axis=1)[:, 0]
            shares = np.array([half_widths(entry, ESTIMATOR) for entry in group]) / prior
            rows.append([robot, kind, len(group), *np.median(shares, axis=0)])
    return rows


def summarise(trials: list[dict]) -> None:
    done = [entry for entry in trials if "error" not in entry]
    good = [entry for entry in done if entry["kind"] in PAYLOAD_KINDS]
    columns = ["inside", "alarms", "width / prior: least", "1st quartile", "median", "estimation [s]"]
    bodies = body_rows([entry for entry in done if entry["kind"] not in PAYLOAD_KINDS])
    if bodies:
        print_table(["robot", "kind", *columns], bodies, "Other bodies: all that joint torques can tell inside")
    if not good:
        return
    columns = [*(f"inside: {name}" for name in ALL), "nearest: estimator", "nearest: left_inverse", "alarms", "stops"]
    columns += ["data [s]", "estimation [s]"]
    title = "Trials with all ten parameters inside; nearest: largest distance from the middle [half widths]"
    print_table(["robot", "kind", *columns], containment_rows(good, "kind"), title)
    print_table(["robot", "sensor errors", *columns], containment_rows(good, "noise"), "By sensor errors")
    print_table(["robot", "arm in its box", *columns], containment_rows(good, "arm"), "By parameters of the arm")
    names = ["robot", "method", "trials", *PARAMETER_NAMES]
    plain = [entry for entry in good if entry["kind"] in (LOOP, EXACT)]
    title = f"Median half width over m, m |c|, m |c|^2 of the payload (above {100 * LIGHT:.0f} % of the rating)"
    print_table(names, width_rows(plain), f"{title}: {LOOP}, {EXACT}")
    print_table(names, width_rows([entry for entry in good if entry["kind"] != EMPTY]), f"{title}: all kinds")
    names = ["robot", "kind", "trials", *PARAMETER_NAMES]
    print_table(names, prior_rows(good), "Median half width of the estimator over that of the prior")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10, help="number of trials of each kind for each robot")
    parser.add_argument("--first", type=int, default=0, help="seed of the first trial")
    parser.add_argument("--robots", nargs="+", default=list(ROBOTS), help="names of the robots")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS, help="kinds of trials")
    parser.add_argument("--seconds", type=float, default=3.0, help="duration of the motions [s]")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--results", default="", help="file of results, one line per trial")
    arguments = parser.parse_args()
    print(describe_machine(), flush=True)
    trials = run_all(arguments)
    summarise(trials)
    missed = [entry for entry in trials if is_miss(entry)]
    count = sum(len(entry["payload"]) for entry in trials if "error" not in entry)
    print(f"{len(trials)} trials, {count} parameters; {len(missed)} with a miss, an alarm or an error")
    for entry in missed:
        print(describe_miss(entry))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
