"""Estimates of a free-flying robot beside the tables of SPACE.

    python bench/bench_free_floating.py [--seeds 50] [--rates 10 50 100] [--plan-seconds 60]

Simulated on the paper's dual-arm robot with its true parameters, measured with its noise. The motion with free knots is
planned from the offset parameters in two parts, the second with the estimate of the first; direction combinations are
planned by the paper's three steps. Cases of 20 and 40 intervals use the first of all. The paper does not give its
rate, on which errors depend.
``--seeds 2 --rates 10 --plan-seconds 5`` is the short form.
"""

from __future__ import annotations

import argparse
import time
from itertools import product

import _table
import numpy as np
from _space import add_noise, predict_torques, simulate, validation_motion
from bench_free_flyer_excitation import plan_in_two_parts

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.trajectories.families import CycloidTrajectory
from sysid_ros.papers.baselines.direction_combinations import CombinationSettings, plan_by_direction_combinations
from sysid_ros.space.core.excitation import ExcitationSettings
from sysid_ros.space.core.intervals import FloatingMotion, IntervalInformation
from sysid_ros.space.core.method import Method
from sysid_ros.space.core.minimal_parameters import MomentumRegression, build_minimal_parameters
from sysid_ros.space.core.robot import FreeFlyer, load_free_flyer

PAPER = {67: (2.08, 174.02), 40: (12.28, 2141.79), 20: (150.22, 51817.41)}
"""Median and largest relative error [%] by number of intervals; one run each."""


def plan_motion(robot: FreeFlyer, seconds: float) -> FloatingMotion:
    """Plan 67 intervals in two parts and return the whole motion."""
    plans = plan_in_two_parts(robot, ExcitationSettings(time_limit=seconds), 67)
    first, second = (plan.motion for plan in plans[1:])
    knots = np.concatenate([first.joints.knots, second.joints.knots[1:]])
    turns = np.concatenate([first.wheel_turns, second.wheel_turns])
    return FloatingMotion(CycloidTrajectory(knots, first.joints.period), turns)


def rms(errors: np.ndarray) -> np.ndarray:
    """Root mean squares of columns, SPACE (42)."""
    return np.sqrt(np.mean(np.square(errors), axis=0))


def sample_times(motion: FloatingMotion, rate: int) -> np.ndarray:
    return np.arange(round(motion.joints.duration * rate) + 1) / rate


def plan_motions(robot, seconds: float) -> dict[str, FloatingMotion]:
    settings = CombinationSettings(time_limit=seconds, samples=6, gain=0.1)  # keeps about as many as the paper
    plan = plan_by_direction_combinations(robot, robot.tree.parameters, settings, clock=time.process_time)
    motions = {"free knots": plan_motion(robot, seconds), "direction combinations": plan.motion}
    information = IntervalInformation(robot, robot.truth, settings.period, settings.samples)
    rows = []
    for name, motion in motions.items():
        value = information.condition_number(motion.joints.knots, motion.wheel_turns)
        rows.append((name, motion.joints.intervals, value))
    rows.append(("paper, direction combinations", 67, 248.8))
    _table.print_table(["motion", "intervals", "condition number on the true robot"], rows, "Motions")
    return motions


def compare_estimates(robot, minimal, motions, seeds: int, rates: list[int]) -> None:
    truth, rows, predictions = minimal.values(robot.truth), [], {}
    for rate, (name, motion) in product(rates, motions.items()):
        for count in (motion.joints.intervals, 40, 20):
            part = motion.part(0, count)
            exact = simulate(robot, robot.truth, part, sample_times(part, rate))
            errors: dict[Method, list[np.ndarray]] = {method: [] for method in Method}
            for seed in range(seeds):
                data = add_noise(robot, exact, np.random.default_rng(seed))
                regression = MomentumRegression(robot, minimal, data)
                for method in Method:
                    try:
                        values = regression.estimate(method).values
                    except ParameterOutOfRange:  # did not converge
                        continue
                    errors[method].append(100.0 * np.abs((values - truth) / truth))
                    if count == motion.joints.intervals and rate == rates[0]:
                        predictions.setdefault((name, method), []).append(values)
            paper = PAPER[{40: 40, 20: 20}.get(count, 67)]
            for method, found in errors.items():
                medians = np.median(found, axis=1) if found else np.full(1, np.nan)
                spread = f"{medians.min():.3g} to {medians.max():.3g}"
                largest = np.mean(np.max(found, axis=1)) if found else np.nan
                rows.append((name, rate, count, method.value, np.mean(medians), spread, largest, len(found), *paper))
    cases = [("paper", "not given", "least squares", *(median for median, _ in PAPER.values()))]
    for method, (rate, name) in product(("least squares", "total least squares"), product(rates, motions)):
        medians = (row[4] for row in rows if (row[0], row[1], row[3]) == (name, rate, method))
        cases.append((name, rate, method, *medians))
    columns = ["motion", "samples per second", "method", "67 intervals [%]", "40 [%]", "20 [%]"]
    _table.print_table(columns, cases, "Median relative error of the 52 minimal parameters, cases 1 to 3 (Table 5)")
    columns = ["motion", "samples per second", "intervals", "method", "median [%]", "of single runs", "largest [%]"]
    columns += ["converged", "paper median [%]", "paper largest [%]"]
    title = f"Relative errors of the 52 minimal parameters, mean over {seeds} seeds of noise"
    _table.print_table(columns, rows, title)
    compare_predictions(robot, minimal, predictions)


def compare_predictions(robot, minimal, predictions) -> None:
    q, v, a = validation_motion(robot, np.random.default_rng(1), np.arange(0.0, 40.0, 0.2))
    twist, torque = predict_torques(robot, robot.truth, q, v, a)
    rows, torques = [], []
    for (name, method), estimates in predictions.items():
        found = []
        for values in estimates:
            try:
                found.append(predict_torques(robot, minimal.embed(values), q, v, a))
            except ParameterOutOfRange:  # an estimate without positive definite inertia predicts nothing
                continue
        if found:
            rows.append(
                (
                    name,
                    method.value,
                    *np.mean([rms(one[0] - twist) for one in found], axis=0),
                )
            )
            torques.append(
                (
                    name,
                    method.value,
                    *np.mean([rms(one[1] - torque) for one in found], axis=0),
                )
            )
    names = ["vx [m/s]", "vy [m/s]", "vz [m/s]", "wx [rad/s]", "wy [rad/s]", "wz [rad/s]"]
    _table.print_table(["motion", "method", *names], rows, "RMS errors of the predicted base twist, validation motion")
    joints = [f"{name} [Nm]" for name in robot.joint_names]
    _table.print_table(["motion", "method", *joints], torques, "RMS errors of the predicted torques, validation motion")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--rates", type=int, nargs="+", default=[10, 50, 100])
    parser.add_argument("--plan-seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    print(_table.describe_machine())
    robot = load_free_flyer("dual_arm")
    minimal = build_minimal_parameters(robot.tree)
    motions = plan_motions(robot, arguments.plan_seconds)
    compare_estimates(robot, minimal, motions, arguments.seeds, arguments.rates)


if __name__ == "__main__":
    main()
