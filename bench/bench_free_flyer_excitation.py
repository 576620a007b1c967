"""Exciting motions of SPACE's dual-arm robot with free knots.

    python bench/bench_free_flyer_excitation.py [--seconds 60] [--seeds 6] [--growth-seconds 15] [--intervals 3000]

Everything is planned from the offset parameters of its Table 3 and judged on the true robot. In two parts the second is
planned with what was estimated from the first, by total least squares from data with the paper's noise. Limits of time
are those of this process for all steps together, the estimate in between included, so that other load counts little.
The limit is the condition number of the best mixture of random single intervals on the true robot, whether or not one
motion could connect them.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np
import pinocchio as pin
from _space import add_noise, simulate
from _table import print_table
from scipy.optimize import minimize

from sysid_ros.papers.baselines.direction_combinations import plan_by_direction_combinations
from sysid_ros.space.core.excitation import (
    ExcitationPlan,
    ExcitationSettings,
    largest_range,
    largest_wheel_turns,
    plan_with_free_knots,
)
from sysid_ros.space.core.intervals import (
    FloatingMotion,
    IntervalInformation,
    condition_number,
    smooth_condition,
)
from sysid_ros.space.core.minimal_parameters import build_minimal_parameters, estimate_minimal
from sysid_ros.space.core.momentum import FloatingTree
from sysid_ros.space.core.robot import FreeFlyer, ReactionWheels, load_free_flyer
from sysid_ros.space.core.self_collision import SelfCollisionModel

FIRST, FIRST_TIME = 11, 0.25
"""Intervals of the first of two parts, and share of the time for planning before it."""


def judge(robot: FreeFlyer, motions: list[FloatingMotion]) -> float:
    """Return the condition number of motions on the true robot [-]."""
    information = IntervalInformation(robot, robot.truth, 1.0, 20)
    return condition_number(sum(information.gram(one.joints.knots, one.wheel_turns) for one in motions))


def row(robot, name, is_clear, plans, begin):
    motions = [plan.motion for plan in plans]
    count = sum(motion.joints.intervals for motion in motions)
    gap = min(plan.gap for plan in plans)
    evaluations = sum(plan.evaluations for plan in plans)
    seconds = time.process_time() - begin
    planned, true = plans[-1].condition_number, judge(robot, motions)
    found = (name, "yes" if is_clear else "no", count, round(seconds), round(planned, 1), round(true, 1))
    found += (f"{gap:.2f}" if np.isfinite(gap) else "", evaluations)
    print(" ", *found, flush=True)
    return found


def plan_in_two_parts(robot, settings: ExcitationSettings, intervals: int) -> list[ExcitationPlan]:
    """Plan all intervals, execute the first few, and plan the others anew with what was estimated; return all three."""
    minimal, clock = build_minimal_parameters(robot.tree), time.process_time
    begin, early = clock(), replace(settings, time_limit=FIRST_TIME * settings.time_limit)
    whole = plan_with_free_knots(robot, robot.tree.parameters, intervals, early, clock=clock)
    first, rest = whole.motion.part(0, FIRST), whole.motion.part(FIRST)
    data = simulate(robot, robot.truth, first, np.arange(0.0, first.joints.duration + 1e-9, 0.02))
    noisy = add_noise(robot, data, np.random.default_rng(settings.seed), "trapezoid")
    parameters = minimal.embed(estimate_minimal(robot, minimal, noisy).values)
    late = replace(settings, time_limit=max(settings.time_limit - (clock() - begin), 1.0))
    second = plan_with_free_knots(robot, parameters, intervals - FIRST, late, before=first, guess=rest, clock=clock)
    return [whole, replace(whole, motion=first), second]


def compare(seconds: float, seeds: int) -> None:
    robot = load_free_flyer("dual_arm")
    clock = time.process_time
    settings = ExcitationSettings(time_limit=seconds)
    rows = []
    cases = [(67, True, seed) for seed in range(seeds)] + [(40, True, 0)]
    for count, is_clear, seed in cases:
        begin = clock()
        chosen = replace(settings, seed=seed, clearance=0.05 if is_clear else -1.0)
        whole, *plans = plan_in_two_parts(robot, chosen, count)
        print("  without planning again", round(judge(robot, [whole.motion]), 1), "on the true robot", flush=True)
        rows.append(row(robot, f"free knots, two parts, seed {seed}", is_clear, plans, begin))
    found = [row[5] for row in rows if row[2] == 67 and row[1] == "yes" and "two parts" in row[0]]
    if found:
        spread = (len(found), np.median(found), min(found), max(found), sum(value <= 100.0 for value in found))
        heads = ("seeds", "median [-]", "least [-]", "largest [-]", "of 100 or less")
        print_table(heads, [spread], "True robot, 67 intervals in two parts, clear of itself")
    head = (
        "plan",
        "clear of itself",
        "intervals",
        "CPU [s]",
        "planned [-]",
        "true robot [-]",
        "gap [m]",
        "evaluations",
    )
    print_table(head, rows)


def find_limits(count: int) -> None:
    robot, rows = load_free_flyer("dual_arm"), []
    for is_clear in (True, False):
        value, support, names = limit(robot, count, is_clear)
        rows.append(("yes" if is_clear else "no", count, support, round(value, 1), ", ".join(names)))
        print(" ", *rows[-1], flush=True)
    head = ("clear of itself", "intervals drawn", "used", "condition number [-]", "least excited parameters")
    print_table(head, rows, "Limit of the condition number on the true robot: any mixture of intervals")


def limit(robot: FreeFlyer, count: int, is_clear: bool) -> tuple[float, int, list[str]]:
    """Return condition number of the best mixture of random intervals, how many it uses, and the weakest parameters."""
    rng = np.random.default_rng(0)
    information = IntervalInformation(robot, robot.truth, 1.0, 2)
    reach, turn = largest_range(robot, 1.0), largest_wheel_turns(robot, 1.0)
    collisions, places = SelfCollisionModel(robot), np.zeros((0, robot.n))
    while len(places) < count:
        drawn = rng.uniform(robot.q_lower, robot.q_upper, (count, robot.n))
        gaps = collisions.gaps(robot.tree.evaluate(drawn, np.zeros_like(drawn))).min(axis=1)
        places = np.concatenate([places, drawn[gaps > 0.1] if is_clear else drawn])[:count]
    steps = reach * rng.choice([-1.0, 1.0, 0.0, 0.5, -0.5], places.shape, p=[0.35, 0.35, 0.1, 0.1, 0.1])
    turns = turn * rng.choice([-1.0, 1.0, 0.0], (count, robot.wheels.count), p=[0.45, 0.45, 0.1])
    size = information.count
    grams = np.empty((count, size * size))
    for begin in range(0, count, 500):
        part = slice(begin, begin + 500)
        intervals = information.evaluate(places[part], places[part] + steps[part], turns[part])
        flat = intervals.rows.reshape(-1, 12, size)
        grams[part] = (np.swapaxes(flat, 1, 2) @ flat).reshape(len(flat), -1)

    def cost(x: np.ndarray) -> tuple[float, np.ndarray]:
        weights = np.exp(x - x.max())
        weights /= weights.sum()
        value, slope = smooth_condition((weights @ grams).reshape(size, size))
        along = grams @ slope.reshape(-1)
        return value, weights * (along - weights @ along)

    found = minimize(cost, np.zeros(count), jac=True, method="L-BFGS-B", options={"maxiter": 400})
    weights = np.exp(found.x - found.x.max())
    weights /= weights.sum()
    gram = (weights @ grams).reshape(size, size)
    weakest = np.argsort(-np.abs(np.linalg.eigh(gram)[1][:, 0]))[:3]
    names = [information.minimal.names[k] for k in weakest]
    return condition_number(gram), int(np.count_nonzero(weights > 1e-4)), names


def many_joints(count: int) -> FreeFlyer:
    """Return a robot with arms of up to five joints and three wheels."""
    model = pin.Model()
    base = model.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3.Identity(), "root")
    model.appendBodyToJoint(base, pin.Inertia.FromBox(500.0, 1.0, 1.0, 1.0), pin.SE3.Identity())
    rng = np.random.default_rng(count)
    parent = base
    for k in range(count):
        at = pin.SE3(np.eye(3), np.array([0.6, 0.0, 0.0]))
        if k % 5 == 0:
            parent, at = base, pin.SE3(np.eye(3), rng.uniform(-0.6, 0.6, 3))
        axis = np.eye(3)[k % 3]
        parent = model.addJoint(parent, pin.JointModelRevoluteUnaligned(axis), at, f"joint_{k + 1}")
        model.appendBodyToJoint(
            parent, pin.Inertia.FromCylinder(10.0, 0.05, 0.6), pin.SE3(np.eye(3), np.array([0.3, 0, 0]))
        )
    tree, ones = FloatingTree(model), np.ones(count)
    wheels = ReactionWheels(("x", "y", "z"), np.eye(3), np.full(3, 0.1), np.full(3, 100.0))
    names = tree.body_names[1:]
    return FreeFlyer("many", "<robot name='many'/>", tree, names, 0 * ones, -2 * ones, 2 * ones, 0.2 * ones, ones,
                     wheels, np.full(3, 5e-5), tree.parameters)  # fmt: skip


def grow(seconds: float) -> None:
    rows = []
    for count in (6, 9, 12, 15):
        robot = many_joints(count)
        settings = ExcitationSettings(time_limit=seconds, clearance=-1.0)
        begin = time.process_time()
        plan = plan_by_direction_combinations(robot, robot.truth, settings, time.process_time)
        combined = (time.process_time() - begin, plan.motion.joints.intervals, plan.condition_number)
        begin = time.process_time()
        free = plan_with_free_knots(robot, robot.truth, 10 * count, settings, clock=time.process_time)
        each = 1e3 * (time.process_time() - begin) / free.evaluations
        rows.append(
            (count, 2 ** (count + 2), f"{combined[0]:.0f}", combined[1], f"{combined[2]:.0f}",
             10 * count, f"{free.condition_number:.0f}", f"{each:.0f}")
        )  # fmt: skip
        print(" ", *rows[-1], flush=True)
    head = (
        "joints",
        "combinations",
        "time [s]",
        "kept",
        "condition [-]",
        "free: intervals",
        "condition [-]",
        "ms/evaluation",
    )
    print_table(head, rows, "Growth with the number of joints; collisions not looked at")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="time limit of each plan of the paper's robot [s]")
    parser.add_argument("--seeds", type=int, default=6, help="seeds of plans in two parts")
    parser.add_argument("--intervals", type=int, default=3000, help="intervals drawn for the limit; 0 leaves it out")
    parser.add_argument(
        "--growth-seconds", type=float, default=15.0, help="time limit of each plan with more joints [s]"
    )
    options = parser.parse_args()
    if options.intervals:
        find_limits(options.intervals)
    if options.seconds:
        compare(options.seconds, options.seeds)
    if options.growth_seconds:
        grow(options.growth_seconds)


if __name__ == "__main__":
    main()
