"""What bounds are good for: the same moves from rest to rest with the payload's prior, after weighing, and identified.

``python bench/bench_move.py [--moves N] [--size S] [--goals N] [--payload NAME]``. A simulated arm holds a payload. Its
identification runs in lock-step (Algorithm 2 with certified plans), then random moves from the home posture are planned
and certified with three boxes of the payload: the prior, what weighing at rest has left of it, and what was identified.
Every move is about as short as can be proven safe. The row "prior" is the baseline.

Then random goals, 0.5 to 1.5 rad away, where the arm can be held with what was identified, are moved to by legs from
rest to rest, as ``~/move_to`` does: in free space, and with a box in the middle of the straight way. Baseline: the
straight motion alone. The shortest time is that of the limits of speed and acceleration of the joints, which no motion
can beat; torque limits and tracking errors allow less.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import time
from dataclasses import replace

import numpy as np
import pinocchio as pin
from _closed_loop import Running, Trial, run_trial
from _table import describe_machine, print_table
from bench_certified_planner import weigh

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.stop_model import LimitKind, PlanRejected
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.request import PlanFailure, PlanRequest
from sysid_ros.core.tracking_bound.loop_response import BoundNotAvailable
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.mujoco.simulation import Noise, load_payload

SCENE = Scene((), ground_height=0.0)
TOLERANCE, MOST_LEGS, TIME_LIMIT = 0.01, 12, 10.0  # [rad], [-], [s]


def identify(robot, planner: CertifiedPlanner, payload: np.ndarray):  # noqa: ANN001, ANN201
    """Estimate of the payload after five certified plans."""
    trial = Trial(1, robot.theta_nominal, payload, Noise.UNIFORM, SCENE, robot.home, (0.3,), 1, {})
    seen: dict[str, Running] = {}
    outcome = run_trial(
        robot, planner, trial, plans=5, time_limit=10.0, event=lambda running: seen.update(trial=running)
    )
    estimate = seen["trial"].backend.latest()
    if outcome.violations or estimate is None or not estimate.is_consistent:
        raise SystemExit(f"the identification ended with: {outcome.ended}; {outcome.violations}")
    return estimate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=12, help="random moves")
    parser.add_argument("--size", type=float, default=0.3, help="size of the moves, of 1.2 rad at most [-]")
    parser.add_argument("--payload", default="dumbbell_4lb", help="what the arm holds")
    parser.add_argument("--goals", type=int, default=40, help="random goals in each scene, 0 for none")
    arguments = parser.parse_args()
    robot = load_robot()
    planner, payload = CertifiedPlanner(robot), load_payload(robot, arguments.payload)
    weighed, estimate = weigh(robot, robot.home, payload, 1), identify(robot, planner, payload)
    known = {
        "prior": Assumptions.of_payload(robot, scene=SCENE),
        "weighed at rest": Assumptions.of_payload(robot, weighed.boxes[1], scene=SCENE),
        "identified": Assumptions.of_payload(robot, estimate.box, estimate.values, scene=SCENE),
    }
    rng = np.random.default_rng(3)
    reach = arguments.size * np.array([1.2, 0.5, 1.0, 0.6, 1.0, 0.6, 1.2])
    steps = rng.uniform(-reach, reach, (arguments.moves, robot.n))
    print(describe_machine())
    found: dict[str, list] = {}
    for name, assumptions in known.items():
        found[name] = []
        for step in steps:
            try:
                found[name].append(planner.plan_to(PlanRequest(assumptions, robot.home, goal=robot.home + step)))
            except (PlanRejected, BoundNotAvailable):
                found[name].append(None)
    common = [i for i in range(len(steps)) if all(plans[i] is not None for plans in found.values())]
    limits = robot.limits.tau_max

    def median(name: str, value) -> float:  # noqa: ANN001
        return float(np.median([value(found[name][i]) for i in common])) if common else float("nan")

    rows = [
        [
            name,
            float(known[name].boxes[1].radius[0]),
            f"{sum(plan is not None for plan in plans)} of {len(plans)}",
            median(name, lambda plan: plan.trajectory.duration),
            median(name, lambda plan: float(np.degrees(plan.certificate.tracking_bound.max()))),
            median(name, lambda plan: float((plan.certificate.torque_bound / limits).max())),
            median(name, lambda plan: next(m.value for m in plan.certificate.margins if m.limit is LimitKind.TORQUE)),
        ]
        for name, plans in found.items()
    ]
    headings = ["payload", "mass +- [kg]", "moves certified", "duration [s]", "tracking bound [deg]",
                "feedback torque [-]", "torque margin [-]"]  # fmt: skip
    title = f"Medians over the {len(common)} moves that all can make; torques as shares of their limits"
    print_table(headings, rows, title)
    if arguments.goals:
        print_goals(planner, known["identified"], arguments.goals)


def print_goals(planner: CertifiedPlanner, assumptions: Assumptions, count: int) -> None:
    """Move to random goals by legs, in free space and around a box."""
    robot, rows = assumptions.robot, []
    for name, has_box in (("free space", False), ("a box in the way", True)):
        rng = np.random.default_rng(11)
        straight, legs, ratios, seconds, reasons = 0, [], [], [], []
        asked = 0
        while asked < count:
            step = rng.uniform(-1.0, 1.0, robot.n)
            goal = robot.home + step * rng.uniform(0.5, 1.5) / np.abs(step).max()
            scene = with_box(robot, goal) if has_box else assumptions.scene
            there = replace(assumptions, scene=scene)
            if not all(can_be_held(planner, there, posture) for posture in (robot.home, goal)):
                continue
            asked += 1
            straight += is_straight(planner, there, goal)
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
                ratios.append(sum(plan.duration for plan in plans) / shortest_time(robot, goal - robot.home))
            else:
                reasons.append(reason or f"not there after {MOST_LEGS} legs")
        reached = f"{len(legs)} of {count}"
        one = sum(number == 1 for number in legs)
        rows.append([name, f"{straight} of {count}", reached, one, float(np.median(ratios)), float(np.median(seconds))])
        for reason in reasons:
            print(f"    {name}: {reason[:150]}")
    headings = ["scene", "straight alone", "goals reached", "in one leg", "time / shortest", "planning, CPU [s]"]
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


def is_straight(planner: CertifiedPlanner, assumptions: Assumptions, goal: np.ndarray) -> bool:
    """Whether a straight motion can be certified."""
    try:
        planner.plan_to(PlanRequest(assumptions, assumptions.robot.home, goal=goal))
    except (PlanRejected, BoundNotAvailable):
        return False
    return True


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
