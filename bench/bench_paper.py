"""The experiment of SAFE-ID section VI in simulation, five dumbbells, all methods.

``python bench/bench_paper.py [--out FOLDER] [--dumbbells NAME ...] [--candidates N] [--motions N] [--seed K]
[--results FILE]``.
A Kinova Gen3 with its gripper holds a dumbbell of 4 to 8 lb. Prior of Table I, arm and friction known within 5 %,
torques within 2.5 %, everything else exact, 4 kHz, windows of h = 400 samples, four Bezier plans in 7.5 s. Tables and
plots like the paper's Figures 6 to 10, Table V (condition number of Y) and Table IV (correlation of the condition
numbers of W and Y). ``forward Euler`` is the paper's rule; ``sensitivity`` with it is the paper's method.

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
from _containment import METHODS, PAPER_METHOD, bounds_by, build_problem, collect_rows, random_motion
from _paper import draw_plans, paper_robot, record
from _table import describe_machine, print_table
from _trials import read_results, write_result

from sysid_ros.core.estimation.parameters.settings import QUADRATURES, EstimatorSettings
from sysid_ros.core.model.inertia import PARAMETER_NAMES, PARAMETER_UNITS
from sysid_ros.core.model.robot import INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.regressors.momentum import MomentumRegressor
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.drivers.mujoco.simulation import load_payload
from sysid_ros.papers.safe_id_conditions import HORIZONS
from sysid_ros.papers.safe_id_conditions import PAPER as PAPER_CORRELATIONS
from sysid_ros.papers.safe_id_report import TABLE_V

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
    """

    dumbbell: str
    motion: str
    truth: np.ndarray
    bounds: dict[tuple[str, str], np.ndarray]
    condition: float

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
    return Result(dumbbell, motion, truth, bounds, float(np.linalg.cond(rows.y)))


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
            entry = {"key": key, "truth": result.truth.tolist(), "bounds": bounds, "condition": result.condition}
            write_result(arguments.results, entry)
        bounds = dict(zip(VARIANTS, map(np.array, entry["bounds"]), strict=True))
        results.append(Result(dumbbell, motion, np.array(entry["truth"]), bounds, entry["condition"]))
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


def correlate(robot: RobotModel, motions: int, seed: int) -> None:
    """Table IV: Pearson correlation of the condition numbers of W and Y for random Fourier motions of 10 s at 1 kHz.

    Windows follow each other without overlap, integrals by forward Euler. The paper does not give the frequencies of
    its motions, so there are slow ones and fast ones.
    """
    slow, fast = (condition_numbers(robot, motions, seed, period) for period in (10.0, 2.0))
    rows = []
    for j, h in enumerate(HORIZONS):
        correlations = [np.corrcoef(of_w, of_y[:, j])[0, 1] for of_w, of_y in (slow, fast)]
        rows.append(
            [h, *correlations, PAPER_CORRELATIONS[j], *(np.median(of_y[:, j] / of_w) for of_w, of_y in (slow, fast))]
        )
    kinds = "0.1 to 0.5 Hz", "0.5 to 2.5 Hz"
    columns = ["h", *(f"correlation, {kind}" for kind in kinds), "paper"]
    columns += [f"median cond(Y)/cond(W), {kind}" for kind in kinds]
    print_table(columns, rows, f"Condition numbers of W and Y, {motions} random motions of each kind (Table IV)")


def condition_numbers(robot: RobotModel, motions: int, seed: int, period: float) -> tuple[np.ndarray, np.ndarray]:
    """Condition numbers of W, (motions,), and of Y, (motions, horizons), for periodic motions [s]."""
    rng = np.random.default_rng(seed)
    last = [robot.n]
    inverse = TorqueRegressor(robot, EffortMeaning.LINK_SIDE, last)
    momentum = MomentumRegressor(robot, EffortMeaning.LINK_SIDE, last)
    times = np.arange(10001) * 1e-3
    of_w, of_y = np.zeros(motions), np.zeros((motions, len(HORIZONS)))
    for k in range(motions):
        q, v, a = random_motion(robot, robot.home, rng, period).sample(times % period)
        of_w[k] = np.linalg.cond(inverse.evaluate(q, v, a)[:-1, :, :INERTIAL].reshape(-1, INERTIAL))
        w_m, w_c = (columns[:, :, :INERTIAL] for columns in momentum.evaluate(q, v))
        for j, h in enumerate(HORIZONS):
            ends = np.arange(0, len(times), h)
            integral = 1e-3 * np.add.reduceat(w_c[: ends[-1]], ends[:-1], axis=0)
            of_y[k, j] = np.linalg.cond((np.diff(w_m[ends], axis=0) - integral).reshape(-1, INERTIAL))
    return of_w, of_y


# Plots

SHOWN = (
    (EXCITING, *PAPER, "sensitivity, forward Euler (the paper's method)", "tab:red"),
    (EXCITING, "left_inverse", "trapezoid", "left inverse", "tab:blue"),
    (EXCITING, "set_membership", "trapezoid", "set membership", "tab:green"),
    (RANDOM, *PAPER, "random plans: sensitivity, forward Euler", "lightcoral"),
    (RANDOM, "set_membership", "trapezoid", "random plans: set membership", "yellowgreen"),
)


def plot(results: list[Result], folder: Path) -> None:
    """One figure for a dumbbell: its ten parameters with the bounds of the methods, as PNG and SVG."""
    from matplotlib.figure import Figure

    by_motion = {result.motion: result for result in results}
    dumbbell, truth = results[0].dumbbell, results[0].truth
    figure = Figure(figsize=(13.0, 6.5), layout="constrained")
    for k, axes in enumerate(figure.subplots(2, 5).flat):
        line = axes.axhline(0.0, color="black", linewidth=1.0, linestyle="--", label="truth")
        handles = [line]
        for place, (motion, method, rule, label, color) in enumerate(SHOWN):
            result = by_motion[motion]
            lower, upper = result.bounds[method, rule][:, k] - result.truth[k]
            handles.append(axes.vlines(place, lower, upper, color=color, linewidth=7.0, label=label))
            axes.plot(place, 0.5 * (lower + upper), "_", color="black", markersize=7.0)
        axes.set_title(f"{PARAMETER_NAMES[k]} [{PARAMETER_UNITS[k]}], truth {truth[k]:.3g}", fontsize=9)
        axes.set_xticks([])
        axes.set_xlim(-0.7, len(SHOWN) - 0.3)
        axes.tick_params(labelsize=8)
    figure.suptitle(f"End effector with {dumbbell}: bounds relative to the truth after 7.5 s")
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=9)
    for ending in ("png", "svg"):
        figure.savefig(folder / f"intervals_{dumbbell}.{ending}", dpi=110)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="", help="folder for the plots; none without")
    parser.add_argument("--dumbbells", nargs="+", default=list(DUMBBELLS), choices=DUMBBELLS, help="what is held")
    parser.add_argument("--candidates", type=int, default=100, help="random plans from which an exciting one is chosen")
    parser.add_argument("--motions", type=int, default=50, help="random motions for Table IV; 0 leaves it out")
    parser.add_argument("--seed", type=int, default=0, help="seed")
    parser.add_argument("--results", default="", help="file of results, one line per identification")
    arguments = parser.parse_args()
    robot = paper_robot()
    print(describe_machine(), flush=True)
    results = identify_all(arguments, robot)
    if arguments.out:
        Path(arguments.out).mkdir(parents=True, exist_ok=True)
        for dumbbell in arguments.dumbbells:
            plot([result for result in results if result.dumbbell == dumbbell], Path(arguments.out))
    print_results(results, robot)
    if arguments.motions:
        correlate(robot, arguments.motions, arguments.seed)
    guaranteed = [variant for variant in VARIANTS if variant[0] != PAPER_METHOD]
    return int(not all(result.inside(variant).all() for result in results for variant in guaranteed))


if __name__ == "__main__":
    sys.exit(main())
