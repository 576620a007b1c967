"""The same moves with prior, weighed and identified payload.

``python bench/bench_move.py [--moves N] [--size S] [--goals N] [--payload NAME]``. A simulated arm holds a payload. Its
identification runs in lock-step (Algorithm 2 with certified plans), then random moves from the home posture are planned
and certified with three boxes of the payload: the prior, what weighing at rest has left of it, and what was identified.
Every move is about as short as can be proven safe. The row "prior" is the baseline.

Then random goals, 0.5 to 1.5 rad away, where the arm can be held with what was identified, are moved to by legs from
rest to rest, as ``~/move_to`` does: in free space, and with a box in the middle of the straight way. Baseline: the
straight motion alone. Two times no straight motion can beat: "rates", of the limits of speed and acceleration of the
joints; "torques", of the torque limits too, with an optimal time law, every payload in the box, and no more feedback
than it takes to hold the arm at the start or at the goal. Where that is not possible either, there is no straight
motion of any duration.
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
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.dynamics import WorstTorque
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.request import PlanFailure, PlanRequest
from sysid_ros.core.procedure import ModelPolicy
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.simulation import load_payload

SCENE = Scene((), ground_height=0.0)
TOLERANCE, MOST_LEGS, TIME_LIMIT = 0.01, 12, 30.0  # [rad], [-], [s]: as the nodes
WAY, SPEEDS, PUSHES = 31, 25, 31  # grid of the time law: of the way, of squared speeds, of accelerations


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


def identified(robot: RobotModel, estimate: ParameterEstimate) -> Assumptions:
    """What planner and controller assume after the identification."""
    model = ModelPolicy(robot).final(estimate, robot.home)
    return Assumptions.of_payload(robot, model.box, nominal=model.nominal, scene=SCENE)


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
        "identified": identified(robot, estimate),
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
            straight += is_straight(planner, there, goal)
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
