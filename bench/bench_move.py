"""The same moves with a payload that is known better and better: prior, weighed, identified, tared.

``python bench/bench_move.py [--moves N] [--size S] [--goals N] [--payloads NAME ...]``. Motions from rest to rest are
planned and certified with four boxes of a held dumbbell: the prior, what weighing at rest leaves of it, and what an
exciting motion of 15 s does, without and with a tare before. They are the four legs of SAFE-ID's Experiments (a) and
(b), in both profiles of `sysid papers safe-id`, and random moves of the shipped arm from its home posture. Every one is
about as short as can be proven safe. The row "prior" is the baseline. The bounds are those of one draw of the sensors'
errors, for an arm in the middle of its box.

Then random goals, 0.5 to 1.5 rad away, where the arm can be held with what was identified of the first dumbbell after
a tare, are moved to by legs from rest to rest, as ``~/move_to`` does: in free space, and with a box in the middle of
the straight way. Baseline: the straight motion alone. Two times no straight motion can beat: "rates", of the limits of
speed and acceleration of the joints; "torques", of the torque limits too, with an optimal time law, every payload in
the box, and no more feedback than it takes to hold the arm at the start or at the goal. Where that is not possible
either, there is no straight motion of any duration.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import time
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pinocchio as pin
from _table import describe_machine, print_table
from bench_certified_planner import weigh
from bench_tare import BETWEEN, REST, SECONDS, SETTINGS, TARE_SECONDS, Run, SlowPasses, estimate, random_motion

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.certification.stop_model import PlanRejected
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.estimation.tare import make_tare
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import INERTIAL, RobotModel
from sysid_ros.core.planning.dynamics import WorstTorque
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.request import PlanFailure, PlanRequest
from sysid_ros.core.procedure import ModelPolicy
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.simulation import SensorSimulation, load_payload
from sysid_ros.papers.names import PROFILES
from sysid_ros.papers.safe_id import build_task, experiment_robot

SCENE = Scene((), ground_height=0.0)
TOLERANCE, MOST_LEGS, TIME_LIMIT = 0.01, 12, 30.0  # [rad], [-], [s]: as the nodes
WAY, SPEEDS, PUSHES = 31, 25, 31  # grid of the time law: of the way, of squared speeds, of accelerations


def find_knowledge(robot: RobotModel, name: str, held: np.ndarray) -> dict[str, Assumptions]:
    """What is assumed of a payload with more and more known of it; it is weighed at rest in one posture, (n,) [rad]."""
    payload, begin = load_payload(robot, name), TARE_SECONDS + 2.0 * REST + BETWEEN
    runs = (
        Run(robot, SlowPasses(robot, TARE_SECONDS), TARE_SECONDS, 0.0),
        Run(robot, random_motion(robot, np.random.default_rng(1), SECONDS), SECONDS, begin),
    )
    sensors = SensorSimulation(robot.sensors, Noise.UNIFORM, 1)
    blocks = [
        run.samples(sensors, run.torque(robot.theta_nominal, load, np.zeros(robot.n)))
        for run, load in zip(runs, (np.zeros(INERTIAL), payload), strict=True)
    ]
    known = {
        "prior": Assumptions.of_payload(robot, scene=SCENE),
        "weighed at rest": replace(weigh(robot, held, payload, 1), scene=SCENE),
    }
    for level, tare in (("identified", None), ("tared and identified", make_tare(robot, blocks[:1], SETTINGS))):
        found = estimate(robot, blocks[1], tare)[0][-1]
        if not found.contains(payload):
            raise SystemExit(f"{level}: the bounds miss the truth; {found.alarm_text}")
        model = ModelPolicy(robot).final(found, held)
        known[level] = Assumptions.of_payload(robot, model.box, nominal=model.nominal, scene=SCENE)
    return known


def plan_straight(
    planner: CertifiedPlanner, assumptions: Assumptions, start: np.ndarray, goal: np.ndarray
) -> CertifiedPlan | str:
    """The straight motion from rest to rest, or the limit for which it cannot be certified."""
    try:
        return planner.plan_to(PlanRequest(assumptions, start, goal=goal))
    except (PlanRejected, BoundNotAvailable) as refused:
        return str(refused).split(",")[0].split(":")[0]


def compare_moves(planner: CertifiedPlanner, motions: list, payload: str, known: dict[str, Assumptions]) -> list[list]:
    """Plan the same motions with all that is known: how many are certified, and how long they take."""
    rows, found = [], {}
    for name, assumptions in known.items():
        found[name] = [plan_straight(planner, assumptions, *motion) for motion in motions]
    common = [i for i in range(len(motions)) if not any(isinstance(plans[i], str) for plans in found.values())]
    for name, plans in found.items():
        reasons = Counter(plan for plan in plans if isinstance(plan, str))
        duration = float(np.median([plans[i].trajectory.duration for i in common])) if common else float("nan")
        certified = f"{len(plans) - reasons.total()} of {len(plans)}"
        refused = reasons.most_common(1)[0][0] if reasons else "-"
        rows.append([payload, name, float(known[name].boxes[1].radius[0]), certified, duration, refused])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=12, help="random moves")
    parser.add_argument("--size", type=float, default=0.3, help="size of the moves, of 1.2 rad at most [-]")
    parser.add_argument(
        "--payloads", nargs="+", default=[f"dumbbell_{one}lb" for one in (4, 6, 8)], help="in the tasks"
    )
    parser.add_argument("--goals", type=int, default=40, help="random goals in each scene, 0 for none")
    arguments = parser.parse_args()
    print(describe_machine(), flush=True)
    headings = ["payload", "known of it", "mass +- [kg]", "motions certified", "duration, by all four [s]", "else"]
    for profile in PROFILES:
        knots = [build_task(experiment, profile).knots[:, 0] for experiment in "ab"]
        legs = [pair for each in knots for pair in pairwise(each)]
        planner = CertifiedPlanner(robot := experiment_robot(profile))
        known = {one: find_knowledge(robot, one, legs[0][0]) for one in arguments.payloads}
        rows = [row for payload, levels in known.items() for row in compare_moves(planner, legs, payload, levels)]
        print_table(headings, rows, f"Legs of SAFE-ID's tasks, profile {profile}")
    planner = CertifiedPlanner(robot := load_robot())
    reach = arguments.size * np.array([1.2, 0.5, 1.0, 0.6, 1.0, 0.6, 1.2])
    steps = np.random.default_rng(3).uniform(-reach, reach, (arguments.moves, robot.n))
    payload, moves = arguments.payloads[0], [(robot.home, robot.home + step) for step in steps]
    levels = find_knowledge(robot, payload, robot.home)
    rows = compare_moves(planner, moves, payload, levels)
    print_table(headings, rows, "Random moves of the shipped arm from home")
    if arguments.goals:
        print_goals(planner, levels["tared and identified"], arguments.goals)


def print_goals(planner: CertifiedPlanner, assumptions: Assumptions, count: int) -> None:
    """Move to random goals by legs, in free space and around a box."""
    robot, rows = assumptions.robot, []
    for name, has_box in (("free space", False), ("a box in the way", True)):
        rng = np.random.default_rng(11)
        straight, possible, legs, ratios, shares, seconds, reasons = 0, 0, [], [], [], [], []
        asked = 0
        while asked < count:
            step = rng.uniform(-1.0, 1.0, robot.n)
            goal = robot.home + step * rng.uniform(0.5, 1.5) / np.abs(step).max()
            scene = with_box(robot, goal) if has_box else assumptions.scene
            there = replace(assumptions, scene=scene)
            if not all(can_be_held(planner, there, posture) for posture in (robot.home, goal)):
                continue
            asked += 1
            straight += not isinstance(plan_straight(planner, there, robot.home, goal), str)
            least = least_time(planner, there, goal)
            possible += np.isfinite(least)
            planner.forget()
            begin, plans, reason = time.process_time(), [], ""
            while len(plans) < MOST_LEGS and (not plans or np.abs(plans[-1].trajectory.end - goal).max() > TOLERANCE):
                at = plans[-1].trajectory.end if plans else robot.home
                try:
                    plans.append(planner.plan(PlanRequest(there, at, goal=goal, time_limit=TIME_LIMIT)))
                except PlanFailure as failure:
                    reason = str(failure)
                    break
            seconds.append(time.process_time() - begin)
            if plans and np.abs(plans[-1].trajectory.end - goal).max() <= TOLERANCE:
                legs.append(len(plans))
                took = sum(plan.duration for plan in plans)
                ratios.append(took / shortest_time(robot, goal - robot.home))
                shares.append(took / least)
            else:
                reasons.append(reason or f"not there after {MOST_LEGS} legs")
        reached = f"{len(legs)} of {count}"
        one = sum(number == 1 for number in legs)
        finite = [share for share in shares if share > 0.0]
        medians = [float(np.median(values)) if values else float("nan") for values in (ratios, finite, seconds)]
        rows.append([name, f"{possible} of {count}", f"{straight} of {count}", reached, one, *medians])
        for reason in reasons:
            print(f"    {name}: {reason[:150]}")
    headings = ["scene", "straight possible", "straight alone", "goals reached", "in one leg", "time / rates",
                "time / torques", "planning, CPU [s]"]  # fmt: skip
    print_table(headings, rows, "Random goals with the identified payload; medians over those reached")


def can_be_held(planner: CertifiedPlanner, assumptions: Assumptions, posture: np.ndarray) -> bool:
    """Whether holding the arm there for a second can be certified."""
    limits, rest = assumptions.robot.limits, np.zeros(assumptions.robot.n)
    if np.any((posture < limits.q_lower) | (posture > limits.q_upper)):
        return False
    try:
        planner.certify(BezierTrajectory(posture, rest, rest, posture, 1.0), assumptions)
    except (PlanRejected, BoundNotAvailable):
        return False
    return True


def least_time(planner: CertifiedPlanner, assumptions: Assumptions, goal: np.ndarray) -> float:
    """Time of the straight motion with the best time law, with the least feedback there may be; inf if there is none.

    The largest squared speeds of the way from which rest at its end can be reached, then the time law that is fastest.
    """
    robot, rest = assumptions.robot, np.zeros(assumptions.robot.n)
    limits, step = robot.limits, goal - robot.home
    held = [planner.certify(BezierTrajectory(q, rest, rest, q, 1.0), assumptions).bound for q in (robot.home, goal)]
    room = limits.tau_max - np.minimum(*(bound.torque for bound in held))
    worst = WorstTorque(robot)
    worst.set_boxes(*assumptions.boxes)
    moving = np.abs(step) > 1e-9
    fastest = np.min(limits.v_max[moving] / np.abs(step[moving])) ** 2
    hardest = np.min(limits.a_max[moving] / np.abs(step[moving]))
    way, squares = np.linspace(0.0, 1.0, WAY), fastest * np.linspace(0.0, 1.0, SPEEDS) ** 2
    pushes = hardest * np.linspace(-1.0, 1.0, PUSHES)
    grid = [part.ravel() for part in np.meshgrid(way, squares, pushes, indexing="ij")]
    states = (robot.home + np.outer(grid[0], step), np.outer(np.sqrt(grid[1]), step), np.outer(grid[2], step))
    fits = np.all(worst.evaluate(states).demand <= room, axis=1).reshape(WAY, SPEEDS, PUSHES)
    width, allowed = way[1], np.zeros((WAY, SPEEDS), dtype=bool)
    least, most = np.where(fits, pushes, np.inf).min(axis=2), np.where(fits, pushes, -np.inf).max(axis=2)
    allowed[-1, 0] = fits[-1, 0].any()
    for index in range(WAY - 2, -1, -1):
        top = squares[allowed[index + 1]].max(initial=-1.0)
        allowed[index] = (squares + 2.0 * width * least[index] <= top) & (squares + 2.0 * width * most[index] >= 0.0)
    if not allowed[:, 0].all():
        return np.inf
    now, total = 0.0, 0.0
    for index in range(WAY - 1):
        level = int(np.searchsorted(squares, now, side="right")) - 1
        following = max(min(now + 2.0 * width * most[index, level], squares[allowed[index + 1]].max()), 0.0)
        total += 2.0 * width / max(np.sqrt(now) + np.sqrt(following), 1e-6)
        now = following
    return total


def with_box(robot: RobotModel, goal: np.ndarray) -> Scene:
    """The ground, and a cube of 10 cm where the tool is in the middle of the straight way."""
    data = robot.pin_model.createData()
    pin.framesForwardKinematics(robot.pin_model, data, 0.5 * (robot.home + goal))
    center = data.oMf[robot.pin_model.getFrameId(robot.tool_frame)].translation.copy()
    return Scene((Obstacle("box", center, np.full(3, 0.05)),), ground_height=0.0)


def shortest_time(robot: RobotModel, step: np.ndarray) -> float:
    """Time of the slowest joint at the limits of its speed and acceleration [s]."""
    v, a, step = robot.limits.v_max, robot.limits.a_max, np.abs(step)
    return float(np.where(step > v**2 / a, step / v + v / a, 2.0 * np.sqrt(step / a)).max())


if __name__ == "__main__":
    main()
