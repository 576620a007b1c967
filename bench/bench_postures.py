"""Random postures in which an arm can hold whatever it may carry: from how many an identification can begin.

``python bench/bench_postures.py [--postures N] [--robot NAME] [--results FILE]``. A posture is drawn within the limits,
with a payload of the prior, until nothing touches anything and no payload that is left after weighing there (one second
of what sensors with their allowed errors read) needs more than the torque limits at rest. Then an identification is
planned as the nodes do it: nominal payload chosen by what was weighed, an exciting plan from rest, or a certified move
to a better posture and a plan from there. Where neither can be proven, the reason is named, with the nearest posture
found that works. "Held for certain": holding still can be proven with what feedback may need besides, without which no
motion can. Every posture has a seed of its own; FILE keeps what was found, and a later run goes on from it.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from _closed_loop import can_hold
from _table import describe_machine, print_table
from bench_certified_planner import draw_payload, weigh

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.constraints import AssumedErrors
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.problem import PlannerModel
from sysid_ros.core.planning.request import PlanFailure, PlanRequest, RecedingSettings
from sysid_ros.core.planning.route import PostureCheck, RouteMargins
from sysid_ros.core.tracking_bound.nominal_payload import weighed_payload

SCENE = Scene((), ground_height=0.0)
TIME_LIMIT, TRIES = 30.0, 4  # [s], [-]: as the nodes plan from rest; moves and plans until one excites
PLAN, MOVE, NAMED, NOTHING = "exciting plan", "move, then exciting plan", "reason and posture named", "nothing named"


def draw(robot: RobotModel, model: PlannerModel, seed: int) -> tuple[np.ndarray, Assumptions]:
    """A posture in which the arm touches nothing and holds every payload that it may have as weighed there."""
    rng, limits = np.random.default_rng(seed), robot.limits
    lower, upper = np.maximum(limits.q_lower, -np.pi), np.minimum(limits.q_upper, np.pi)
    nothing, none = AssumedErrors.none(robot.n), RouteMargins(0.0, 0.0)
    while True:
        q, payload = rng.uniform(lower, upper), draw_payload(robot, rng)
        # The check lets ends be worse than the limits, so they are postures that are free for certain: home.
        model.torque.set_boxes(robot.theta_box, robot.payload_prior.box)
        check = PostureCheck(model, SCENE, nothing, none, np.stack([robot.home, robot.home]))
        light = replace(robot.payload_prior.box, lower=np.zeros(10), upper=np.zeros(10))
        model.torque.set_boxes(robot.theta_box, light)
        if not check.are_free(q[None])[0]:
            continue
        known = replace(weigh(robot, q, payload, seed), scene=SCENE)
        model.torque.set_boxes(*known.boxes)
        if check.are_free(q[None])[0]:
            return q, known


def identify_from(planner: CertifiedPlanner, q: np.ndarray, known: Assumptions) -> dict:
    """What comes of planning an identification from a posture."""
    planner.forget()
    nominal = weighed_payload(known.robot, known.boxes, known.nominal, q)
    known = replace(known, nominal=nominal)
    found = {"is_held": can_hold(planner, q, known, seconds=1.0), "posture": np.round(q, 4).tolist()}
    begin, at, legs, failures = time.process_time(), q, 0, 0
    while legs + failures < TRIES:
        try:
            plan = planner.plan(PlanRequest(known, at, time_limit=TIME_LIMIT))
        except PlanFailure as failure:
            found |= {"outcome": NAMED if "nearest posture" in str(failure) else NOTHING, "reason": str(failure)}
            failures += 1
            if found["outcome"] == NAMED:
                break
            continue
        if plan.condition_number is not None:
            found |= {"outcome": PLAN if legs == 0 else MOVE, "reason": "", "condition": plan.condition_number}
            break
        at, legs = plan.trajectory.end, legs + 1
    return found | {"legs": legs, "seconds": time.process_time() - begin}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robot", default="kinova_gen3_2f85")
    parser.add_argument("--postures", type=int, default=40)
    parser.add_argument("--results", type=Path, help="file that later runs go on from")
    arguments = parser.parse_args()
    robot = load_robot(arguments.robot)
    planner, model = CertifiedPlanner(robot), PlannerModel(robot, RecedingSettings())
    print(describe_machine())
    lines = arguments.results.read_text().splitlines() if arguments.results and arguments.results.exists() else []
    found = {entry["seed"]: entry for entry in map(json.loads, lines) if entry["robot"] == robot.name}
    for seed in range(arguments.postures):
        if seed in found:
            continue
        entry = {"robot": robot.name, "seed": seed} | identify_from(planner, *draw(robot, model, seed))
        found[seed] = entry
        if arguments.results:
            with arguments.results.open("a") as file:
                file.write(json.dumps(entry) + "\n")
    entries = [found[seed] for seed in range(arguments.postures)]
    rows = []
    for name, chosen in (("all", entries), ("held for certain", [one for one in entries if one["is_held"]])):
        counts, count = Counter(one["outcome"] for one in chosen), len(chosen)
        good = counts[PLAN] + counts[MOVE]
        share = 100.0 * good / count if count else float("nan")
        seconds = float(np.median([one["seconds"] for one in chosen])) if chosen else float("nan")
        rows.append([name, count, *(counts[kind] for kind in (PLAN, MOVE, NAMED, NOTHING)), share, seconds])
    headings = ["postures", "number", PLAN, MOVE, NAMED, NOTHING, "begin [%]", "planning, CPU [s]"]
    print_table(headings, rows, "Random postures in which the arm holds every payload that weighing leaves")
    for one in entries:
        if one["outcome"] in (NAMED, NOTHING):
            print(f"    {one['seed']}: {one['reason'].rsplit('every payload of the box: ')[-1][:230]}")


if __name__ == "__main__":
    main()
