"""Exciting motions of the paper's dual-arm robot (SPACE), beside its own numbers, and how searches grow with joints.

Everything is planned from the offset parameters of its Table 3 and judged on the true robot. The last rows plan a
second part with what was estimated from the first, by total least squares from data with the paper's noise. Limits of
time are those of this process, so that other load does not count; ``--seconds`` sets them.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np
import pinocchio as pin
from _table import print_table

from sysid_ros.core.free_floating.direction_combinations import plan_by_direction_combinations
from sysid_ros.core.free_floating.dynamics import embed, simulate
from sysid_ros.core.free_floating.excitation import ExcitationSettings, plan_with_free_knots
from sysid_ros.core.free_floating.intervals import FloatingMotion, IntervalInformation, condition_number
from sysid_ros.core.free_floating.kinematics import FloatingTree
from sysid_ros.core.free_floating.measurements import add_noise
from sysid_ros.core.free_floating.minimal_parameters import build_minimal_parameters
from sysid_ros.core.free_floating.regression import estimate_minimal
from sysid_ros.core.free_floating.robot import FreeFlyer, ReactionWheels, load_free_flyer

PAPER = ("SPACE, as printed", 67, "", "", 248.8, "", "")


def judge(robot: FreeFlyer, motions: list[FloatingMotion]) -> float:
    """Return the condition number of motions on the true robot [-]."""
    information = IntervalInformation(robot, robot.truth, 1.0, 20)
    return condition_number(sum(information.gram(one.joints.knots, one.wheel_turns) for one in motions))


def row(robot, name, plans, begin):
    motions = [plan.motion for plan in plans]
    count = sum(motion.joints.intervals for motion in motions)
    gap = min(plan.gap for plan in plans)
    evaluations = sum(plan.evaluations for plan in plans)
    seconds = time.process_time() - begin
    planned, true = plans[-1].condition_number, judge(robot, motions)
    found = (name, count, f"{seconds:.0f}", f"{planned:.1f}", f"{true:.1f}", f"{gap:.2f}", evaluations)
    print(" ", *found, flush=True)
    return found


def compare(seconds: float) -> None:
    robot = load_free_flyer("dual_arm")
    guess, clock = robot.tree.parameters, time.process_time
    settings = ExcitationSettings(time_limit=seconds)
    rows = [PAPER]
    begin = clock()
    written = plan_by_direction_combinations(robot, guess, replace(settings, samples=6), clock)
    rows.append(row(robot, "its method, three steps", [written], begin))
    for count in (67, 40):
        begin = clock()
        plan = plan_with_free_knots(robot, guess, count, settings, clock=clock)
        rows.append(row(robot, "free knots, one part", [plan], begin))
    minimal = build_minimal_parameters(robot.tree)
    for seed in (0, 1):
        begin, parts = clock(), (16, 51)
        limits = [replace(settings, time_limit=seconds * share, seed=seed) for share in (0.2, 0.8)]
        first = plan_with_free_knots(robot, guess, parts[0], limits[0], clock=clock)
        times = np.arange(0.0, first.motion.joints.duration + 1e-9, 0.02)
        data = simulate(robot, robot.truth, first.motion, times)
        noisy = add_noise(robot, data, np.random.default_rng(seed), "trapezoid")
        values = estimate_minimal(robot, minimal, noisy).values
        second = plan_with_free_knots(
            robot, embed(minimal, values), parts[1], limits[1], before=first.motion, clock=clock
        )
        rows.append(row(robot, f"free knots, two parts, seed {seed}", [first, second], begin))
    print_table(("plan", "intervals", "time [s]", "planned [-]", "true robot [-]", "gap [m]", "evaluations"), rows)


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
    print_table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="time limit of each plan of the paper's robot [s]")
    parser.add_argument(
        "--growth-seconds", type=float, default=15.0, help="time limit of each plan with more joints [s]"
    )
    options = parser.parse_args()
    compare(options.seconds)
    grow(options.growth_seconds)


if __name__ == "__main__":
    main()
