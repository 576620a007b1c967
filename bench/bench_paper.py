"""The experiment of SAFE-ID section VI in simulation, five dumbbells, all methods.

``python bench/bench_paper.py [--dumbbells NAME ...] [--candidates N] [--seed K] [--results FILE]``.
A Kinova Gen3 with its gripper holds a dumbbell of 4 to 8 lb. Prior of Table I, arm and friction known within 5 %,
torques within 2.5 %, everything else exact, 4 kHz, windows of h = 400 samples, four Bezier plans in 7.5 s, in the range
that the authors have published. Tables like the paper's Figures 6 to 10 and Table V (condition number of Y).
``forward Euler`` is the paper's rule; ``sensitivity`` with it is the paper's method, which takes the derivative at the
nominal point. The last table says up to which errors its Theorem 13 could take the interval derivative that it asks
for: beyond, the Hessian over the interval of measurements may be singular, and the bounds are infinite.

What differs from the paper: simulated measurements with uniform errors; dumbbells, friction and gripper are ours; the
motion is followed exactly; a plan is the best of ``--candidates`` random ones within the limits of positions and
velocities, instead of the optimum of a nonlinear program with limits of torques and obstacles; its cost counts the
plans before it and only what is followed of it. Exit status 1 if a guaranteed bound misses the truth.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from _containment import METHODS, PAPER_METHOD, bounds_by, build_problem, collect_rows
from _paper import TORQUE_ERROR, UNCERTAINTY, draw_plans, paper_robot, record
from _table import describe_machine, print_figure, print_table
from _trials import read_results, write_result
from matplotlib.figure import Figure

from sysid_ros.core.estimation.parameters.settings import QUADRATURES, EstimatorSettings
from sysid_ros.core.model.inertia import PARAMETER_NAMES, PARAMETER_UNITS
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.mujoco.simulation import load_payload
from sysid_ros.papers.safe_id_report import TABLE_V
from sysid_ros.papers.tables import save_figures

DUMBBELLS = tuple(f"dumbbell_{pounds}lb" for pounds in range(4, 9))
EXCITING, RANDOM = "exciting", "random"
PAPER = (PAPER_METHOD, "forward_euler")
VARIANTS = [(method, rule) for rule in QUADRATURES for method in METHODS]


@dataclass(frozen=True)
class Result:
    """Bounds after one identification.

    Attributes:
        dumbbell: Name of what is held.
        motion: Kind of plans.
        truth: True parameters of the end effector, (10,).
        bounds: Method and quadrature rule -> lower and upper bounds, before they are cut to the prior, (2, 10).
        condition: Condition number of Y.
        finite_up_to: Shares of the errors up to which Theorem 13 is finite, with forward Euler, (3,).
    """

    dumbbell: str
    motion: str
    truth: np.ndarray
    bounds: dict[tuple[str, str], np.ndarray]
    condition: float
    finite_up_to: np.ndarray

    def half_width(self, variant: tuple[str, str]) -> np.ndarray:
        return 0.5 * np.diff(self.bounds[variant], axis=0)[0]

    def inside(self, variant: tuple[str, str]) -> np.ndarray:
        lower, upper = self.bounds[variant]
        return (lower <= self.truth) & (self.truth <= upper)


def identify(robot: RobotModel, dumbbell: str, motion: str, candidates: int, seed: int) -> Result:
    """One identification, by all methods with both rules."""
    plans = draw_plans(robot, np.random.default_rng(seed), candidates if motion == EXCITING else 1)
    block, truth = record(robot, plans, load_payload(robot, dumbbell), seed)
    bounds = {}
    for method, rule in VARIANTS:
        settings = EstimatorSettings(target="end_effector", quadrature=rule)
        if method == METHODS[0]:
            rows, unknowns = collect_rows(robot, [block], settings)
            problem = build_problem(robot, rows, unknowns)
        found = bounds_by(method, problem, unknowns, settings)
        bounds[method, rule] = np.array([found.lower, found.upper])
        if (method, rule) == PAPER:
            finite_up_to = found.finite_up_to
    return Result(dumbbell, motion, truth, bounds, float(np.linalg.cond(rows.y)), finite_up_to)


def identify_all(arguments: argparse.Namespace, robot: RobotModel) -> list[Result]:
    """Both kinds of plans for every dumbbell; what is in the file of results is not run again."""
    done = {tuple(entry["key"]): entry for entry in read_results(arguments.results)}
    results = []
    for dumbbell, motion in product(arguments.dumbbells, (EXCITING, RANDOM)):
        seed = arguments.seed + DUMBBELLS.index(dumbbell)
        key = (dumbbell, motion, arguments.candidates, seed)
        entry = done.get(key)
        if entry is None:
            result = identify(robot, *key)
            bounds = [bounds.tolist() for bounds in result.bounds.values()]
            numbers = {"condition": result.condition, "finite_up_to": result.finite_up_to.tolist()}
            entry = {"key": key, "truth": result.truth.tolist(), "bounds": bounds, **numbers}
            write_result(arguments.results, entry)
        bounds = dict(zip(VARIANTS, map(np.array, entry["bounds"]), strict=True))
        results.append(
            Result(
                dumbbell, motion, np.array(entry["truth"]), bounds, entry["condition"], np.array(entry["finite_up_to"])
            )
        )
    return results


# Tables


def print_results(results: list[Result], robot: RobotModel) -> None:
    names = [f"{name} [{unit}]" for name, unit in zip(PARAMETER_NAMES, PARAMETER_UNITS, strict=True)]
    rows = []
    for result in results:
        rows.append([result.dumbbell, result.motion, "truth", "", "", *result.truth])
        for variant in VARIANTS:
            count = f"{int(result.inside(variant).sum())} of 10"
            rows.append([result.dumbbell, result.motion, *variant, count, *result.half_width(variant)])
    rows.append(["any", "", "prior (Table I)", "", "", *robot.payload_prior.box.radius])
    print_table(["held", "plans", "method", "rule", "inside", *names], rows, "Half widths (Figures 6 to 10)")
    rows = []
    for motion in (EXCITING, RANDOM):
        group = [result for result in results if result.motion == motion]
        for variant in VARIANTS if group else ():
            ratio = [result.half_width(PAPER) / result.half_width(variant) for result in group]
            inside = sum(int(result.inside(variant).sum()) for result in group)
            rows.append([motion, *variant, f"{inside} of {10 * len(group)}", *np.median(ratio, axis=0)])
    title = "How many times narrower than the paper's method (sensitivity, forward Euler) with the same data, median"
    print_table(["plans", "method", "rule", "inside", *PARAMETER_NAMES], rows, title)
    rows = []
    for dumbbell in dict.fromkeys(result.dumbbell for result in results):
        ours = {result.motion: result.condition for result in results if result.dumbbell == dumbbell}
        rows.append([dumbbell, ours[EXCITING], ours[RANDOM], *TABLE_V[dumbbell]])
    columns = ["held", EXCITING, RANDOM, f"paper: {EXCITING}", f"paper: {RANDOM}"]
    print_table(columns, rows, "Condition number of Y (Table V)")
    allowed = 100.0 * np.array([TORQUE_ERROR, UNCERTAINTY, 1.0])
    rows = [[one.dumbbell, one.motion, *(allowed * one.finite_up_to)] for one in results]
    columns = ["held", "plans", "torques alone [%]", "robot alone [%]", "both, share of what is assumed [%]"]
    print_table(columns, rows, "Errors up to which Theorem 13 is finite with the interval derivative")


def draw_finite(results: list[Result], folder: Path) -> None:
    """Draw for which errors of torques and robot Theorem 13 is finite, and how wide set membership is for the paper's.

    Three points are known of a border: where one error alone, and where both in the paper's ratio make it infinite.
    """
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    axes, smallest = figure.subplots(), 1e-6
    for motion, color in ((EXCITING, "tab:green"), (RANDOM, "tab:orange")):
        for k, one in enumerate(one for one in results if one.motion == motion):
            torques, robot = 100.0 * TORQUE_ERROR * one.finite_up_to[[0, 2]], 100.0 * UNCERTAINTY * one.finite_up_to[1:]
            border = np.array([(torques[0], smallest), (torques[1], robot[1]), (smallest, robot[0])])
            label = f"border after {motion} plans, a line per dumbbell: Theorem 13 is finite below it"
            axes.loglog(*border.T, ".-", color=color, linewidth=0.8, label=None if k else label)
    membership = (METHODS[0], "trapezoid")
    widths = [one.half_width(membership)[0] for one in results if one.motion == EXCITING]
    axes.loglog(100.0 * TORQUE_ERROR, 100.0 * UNCERTAINTY, "k*", markersize=12.0)
    text = f"errors in the paper; set membership:\nmass +- {min(widths):.2f} to {max(widths):.2f} kg"
    axes.text(80.0 * TORQUE_ERROR, 200.0 * UNCERTAINTY, text, ha="right")
    axes.set(xlim=(smallest, 20.0), ylim=(smallest, 100.0))
    axes.set(xlabel="errors of torques [%]", ylabel="errors of arm and friction [%]")
    axes.legend(loc="center right", fontsize=8)
    caption = "Errors for which Theorem 13 with its interval derivative is finite at all. Set membership always is."
    for path, text in save_figures([("paper_theorem_13", figure, caption)], folder):
        print_figure(str(path), text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dumbbells", nargs="+", default=list(DUMBBELLS), choices=DUMBBELLS, help="what is held")
    parser.add_argument("--candidates", type=int, default=100, help="random plans from which an exciting one is chosen")
    parser.add_argument("--seed", type=int, default=0, help="seed")
    parser.add_argument("--results", default="", help="file of results, one line per identification")
    parser.add_argument("--figures", type=Path, default=Path("results/paper"), help="folder of the figure")
    arguments = parser.parse_args()
    robot = paper_robot()
    print(describe_machine(), flush=True)
    results = identify_all(arguments, robot)
    print_results(results, robot)
    draw_finite(results, arguments.figures)
    guaranteed = [variant for variant in VARIANTS if variant[0] != PAPER_METHOD]
    return int(not all(result.inside(variant).all() for result in results for variant in guaranteed))


if __name__ == "__main__":
    sys.exit(main())
