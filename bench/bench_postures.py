"""Random postures from which an identification can begin.

``python bench/bench_postures.py [--postures N] [--robot NAME] [--results FILE]``. A posture is drawn within the limits,
with a payload of the prior, until nothing touches anything and no payload that is left after weighing there (one second
of what sensors with their allowed errors read) needs more than the torque limits at rest. Then an identification is
planned as the nodes do it: nominal payload chosen by what was weighed, an exciting plan from rest, or a certified move
to a better posture and a plan from there; in the end with the nominal payload that is easiest to hold. Where nothing
can be proven, the reason is named, with the nearest posture found that works. "Held for certain": holding still can be
proven with what feedback may need besides, without which no motion can. Every posture has a seed of its own; FILE keeps
what was found, and a later run goes on from it.

The limit: of postures that cannot be held for certain, the shares of the torque limit of the joint that decides, with
the nominal payload that is easiest to hold; and how many postures could be held if one thing were otherwise, with the
best of that, the true and no nominal payload: the payload's inertia known, lower gains, or half of an error. "Friction
alone": with nothing of the feedback but the torque that Coulomb friction takes.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import json
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from _closed_loop import can_hold
from _table import describe_machine, print_table
from bench_certified_planner import draw_payload, weigh

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.constraints import AssumedErrors
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.problem import PlannerModel
from sysid_ros.core.planning.request import PlanFailure, PlanRequest, RecedingSettings
from sysid_ros.core.planning.route import PostureCheck, RouteMargins
from sysid_ros.core.regressors.rest_torque import largest_rest_torque
from sysid_ros.core.tracking_bound.nominal_payload import easiest_payload, weighed_payload
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable

SCENE = Scene((), ground_height=0.0)
TIME_LIMIT, LEGS = 30.0, 4  # [s], [-]: as the nodes plan from rest; moves and plans until one excites
PLAN, MOVE, NAMED, NOTHING = "exciting plan", "move, then exciting plan", "reason and posture named", "nothing named"
KNOWN, LOWER, SENSORS, FRICTION = (
    "payload's inertia known", "gains 150, 5, 5", "half the error of velocities", "half the Coulomb friction"
)  # fmt: skip
ALONE = "friction alone"
LOWER_GAINS = RobustSettings(bandwidth=150.0, position_gain=5.0, integral_gain=5.0)


@dataclass(frozen=True)
class Drawn:
    """A posture, what is known there, and the payload."""

    q: np.ndarray
    known: Assumptions
    payload: np.ndarray


def draw(robot: RobotModel, model: PlannerModel, seed: int) -> Drawn:
    """A posture in which the arm touches nothing and holds every payload that it may have as weighed there."""
    rng, limits = np.random.default_rng(seed), robot.limits
    lower, upper = np.maximum(limits.q_lower, -np.pi), np.minimum(limits.q_upper, np.pi)
    nothing, none = AssumedErrors.none(robot.n), RouteMargins(0.0, 0.0)
    wide = Assumptions.of_payload(robot, nominal=robot.payload_prior.nominal, scene=SCENE)
    while True:
        q, payload = rng.uniform(lower, upper), draw_payload(robot, rng)
        # The check lets ends be worse than the limits, so they are postures that are free for certain: home.
        model.torque.set_boxes(robot.theta_box, robot.payload_prior.box)
        check = PostureCheck(model, wide, nothing, none, np.stack([robot.home, robot.home]))
        light = replace(robot.payload_prior.box, lower=np.zeros(10), upper=np.zeros(10))
        model.torque.set_boxes(robot.theta_box, light)
        if not check.are_free(q[None])[0]:
            continue
        known = replace(weigh(robot, q, payload, seed), scene=SCENE)
        model.torque.set_boxes(*known.boxes)
        if check.are_free(q[None])[0]:
            return Drawn(q, known, payload)


def identify_from(planner: CertifiedPlanner, drawn: Drawn) -> dict:
    """What comes of planning an identification from a posture."""
    planner.forget()
    q, robot, boxes = drawn.q, drawn.known.robot, drawn.known.boxes
    begin = time.process_time()
    weighed = replace(drawn.known, nominal=weighed_payload(robot, boxes, drawn.known.nominal, q))
    found = {"is_held": can_hold(planner, q, weighed, seconds=1.0), "posture": np.round(q, 4).tolist()}
    found |= plan_from(planner, q, weighed)
    if found["outcome"] in (NAMED, NOTHING):
        easy = replace(weighed, nominal=easiest_payload(robot, boxes, weighed.nominal, q))
        found["is_held"] |= can_hold(planner, q, easy, seconds=1.0)
        found |= plan_from(planner, q, easy)
        if not found["is_held"]:
            found |= limit_of(drawn, easy)
    return found | {"seconds": time.process_time() - begin}


def plan_from(planner: CertifiedPlanner, q: np.ndarray, known: Assumptions) -> dict:
    """What comes of it with one nominal payload."""
    at, legs, failures = q, 0, 0
    found: dict = {"outcome": NOTHING, "reason": f"no motion that excites after {LEGS} certified moves"}
    while legs + failures < LEGS:
        try:
            plan = planner.plan(PlanRequest(known, at, time_limit=TIME_LIMIT))
        except PlanFailure as failure:
            found = {"outcome": NAMED if "nearest posture" in str(failure) else NOTHING, "reason": str(failure)}
            failures += 1
            if found["outcome"] == NAMED:
                break
            continue
        if plan.condition_number is not None:
            found = {"outcome": PLAN if legs == 0 else MOVE, "reason": "", "condition": plan.condition_number}
            break
        at, legs = plan.trajectory.end, legs + 1
    return found | {"legs": legs}


def use_of_holding(known: Assumptions, q: np.ndarray, needed: np.ndarray) -> float:
    """Largest share of a torque limit that holding takes, with what it takes besides the feedback."""
    try:
        return float(((needed + known.bound(q).torque) / known.robot.limits.tau_max).max())
    except BoundNotAvailable:
        return np.inf


def limit_of(drawn: Drawn, easy: Assumptions) -> dict:
    """Shares of the torque limits that holding takes, and what they would be if one thing were otherwise."""
    robot, (arm, box), payload = easy.robot, easy.boxes, drawn.payload
    limits, needed = robot.limits.tau_max, largest_rest_torque(robot, easy.boxes, drawn.q)
    sliding = np.zeros(arm.lower.size, dtype=bool)
    sliding[10 * robot.n :: 4] = True
    halved = Box(*(np.where(sliding, 0.5 * bound, bound) for bound in (arm.lower, arm.upper)))
    size = 1e-6 * np.maximum(np.abs(payload), 1e-3)
    finer = replace(robot.sensors, velocity_error=0.5 * robot.sensors.velocity_error)
    others = {
        KNOWN: replace(easy, boxes=(arm, Box(payload - size, payload + size))),
        LOWER: replace(easy, control_law=LOWER_GAINS),
        SENSORS: replace(easy, robot=replace(robot, sensors=finer)),
        FRICTION: replace(easy, boxes=(halved, box)),
    }
    used = {ALONE: float(((needed + robot.friction(arm.upper)[:, 0]) / limits).max())}
    for name, other in others.items():
        nominals = (easy.nominal, np.zeros(10), payload)
        used[name] = min(use_of_holding(replace(other, nominal=nominal), drawn.q, needed) for nominal in nominals)
    try:
        bound = easy.bound(drawn.q)
    except BoundNotAvailable:
        return {"used": used}
    joint = int(((needed + bound.torque) / limits).argmax())
    parts = {"at rest": needed, **bound.torque_shares}
    shares = {name: float(values[joint] / limits[joint]) for name, values in parts.items()}
    return {"used": used, "joint": robot.joint_names[joint], "shares": shares}


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
        entry = {"robot": robot.name, "seed": seed} | identify_from(planner, draw(robot, model, seed))
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
    print_limit(entries)


def print_limit(entries: list[dict]) -> None:
    """Print where the torque goes in postures that cannot be held, and what would move the limit."""
    split = [one for one in entries if "shares" in one]
    if split:
        names = list(split[0]["shares"])
        rows = [
            [
                one["seed"],
                one["joint"],
                *(100.0 * one["shares"][name] for name in names),
                100.0 * sum(one["shares"].values()),
            ]
            for one in split
        ]
        print_table(
            ["posture", "joint", *names, "sum"], rows, "Postures that cannot be held: shares of the torque limit [%]"
        )
    without = [one for one in entries if not one["is_held"]]
    held = len(entries) - len(without)
    rows = [["as it is", held, 100.0 * held / len(entries)]]
    for name in (ALONE, KNOWN, LOWER, SENSORS, FRICTION):
        count = held + sum(one.get("used", {}).get(name, np.inf) <= 1.0 for one in without)
        rows.append([name, count, 100.0 * count / len(entries)])
    print_table(["what is otherwise", "held for certain", "[%]"], rows, "What would move the limit")


if __name__ == "__main__":
    main()
