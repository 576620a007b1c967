"""Direction combinations of the paper's dual-arm robot (SPACE 6.2).

    python bench/bench_direction_combinations.py [--seconds 60] [--results results/space]

Planned from the offset parameters of its Table 3, judged on the true robot. Seconds are those of this process.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from _table import print_figure, print_table
from matplotlib.figure import Figure

from sysid_ros.papers.baselines.direction_combinations import (
    CombinationSettings,
    direction_combinations,
    plan_by_direction_combinations,
    prune_intervals,
    seeded_knots,
    significant_values,
)
from sysid_ros.space.core.excitation import largest_wheel_turns
from sysid_ros.space.core.intervals import IntervalInformation, condition_number
from sysid_ros.space.core.robot import FreeFlyer, load_free_flyer

STARTS = np.deg2rad([40.661, -109.403, -78.782, 125.089, -110.0, 51.228])
RANGES = np.deg2rad([0.524, 2.51, 2.51, 2.513, 2.036, 2.5])
"""The paper's Table 4."""
PAPER = ("SPACE, as printed", 67, 248.8, "8 to 11", 11, 20, 38, 46, 52, "")
SETTINGS = CombinationSettings(samples=6)


def paper_motion(robot: FreeFlyer, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return knots and wheel turns of the paper's seeds with direction combinations."""
    return seeded_knots(directions, STARTS, RANGES), largest_wheel_turns(robot, 1.0) * directions[:, robot.n :]


def judge(name: str, robot: FreeFlyer, knots: np.ndarray, turns: np.ndarray, seconds: str = "") -> tuple:
    """Return the row of a motion on the true robot."""
    grams = IntervalInformation(robot, robot.truth, 1.0, SETTINGS.samples).grams(knots, turns)
    total = np.cumsum(grams, axis=0)
    alone = [significant_values(gram, SETTINGS.significant) for gram in grams]
    after = [significant_values(total[k - 1], SETTINGS.significant) for k in (1, 3, 20, 40, len(total))]
    found = (name, len(grams), round(condition_number(total[-1]), 1), f"{min(alone)} to {max(alone)}", *after, seconds)
    print(" ", *found, flush=True)
    return found


def draw_figure_4(robot: FreeFlyer, knots: np.ndarray, turns: np.ndarray, path: Path) -> None:
    """Draw condition numbers and numbers of significant singular values, of intervals and of all up to them."""
    information = IntervalInformation(robot, robot.truth, 1.0, SETTINGS.samples)
    # Of the rows, not of their Gram matrices: these have no condition numbers beyond 1e8.
    rows = information.evaluate(knots[:-1], knots[1:], turns).rows.reshape(len(turns), -1, information.count)
    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    conditions, counts = figure.subplots(1, 2)
    index = np.arange(1, len(rows) + 1)
    parts = {"interval alone": rows, "all intervals up to it": [np.concatenate(rows[:k]) for k in index]}
    for label, part in parts.items():
        values = np.array([np.linalg.svd(one, compute_uv=False)[[0, -1]] for one in part])
        conditions.semilogy(index, values[:, 0] / np.maximum(values[:, 1], 1e-300), label=label)
        counts.plot(index, [significant_values(one.T @ one, SETTINGS.significant) for one in part], label=label)
    conditions.axhline(248.8, color="black", linestyle=":", label="paper, all intervals")
    conditions.set_ylabel("condition number [-]")
    counts.set_ylabel("significant singular values [-]")
    for axes in (conditions, counts):
        axes.set_xlabel("interval [-]")
        axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    print_figure(
        str(path), "SPACE Figure 4 on the true robot: the paper's seeds with the combinations that pruning keeps"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="time limit of the three steps [s]; 0: without")
    parser.add_argument("--results", type=Path, default=Path("results/space"), help="folder of the figure")
    options = parser.parse_args()
    robot = load_free_flyer("dual_arm")
    directions = np.array(list(direction_combinations(robot.n + robot.wheels.count)))
    rows = [PAPER, judge("its seeds (Table 4), all combinations", robot, *paper_motion(robot, directions))]
    planned = IntervalInformation(robot, robot.tree.parameters, 1.0, SETTINGS.samples)
    grams = planned.grams(*paper_motion(robot, directions))
    for gain in (0.0, 0.03, SETTINGS.gain):
        kept = directions[prune_intervals(grams, replace(SETTINGS, gain=gain))]
        rows.append(judge(f"its seeds, pruned with a gain of {gain:g}", robot, *paper_motion(robot, kept)))
    draw_figure_4(robot, *paper_motion(robot, kept), options.results / "space_figure_4.png")
    for gain in (0.03, SETTINGS.gain) if options.seconds else ():
        begin = time.process_time()
        settings = replace(SETTINGS, time_limit=options.seconds, gain=gain)
        motion = plan_by_direction_combinations(robot, robot.tree.parameters, settings, time.process_time).motion
        seconds = f"{time.process_time() - begin:.0f}"
        name = f"its method, three steps, gain of {gain:g}"
        rows.append(judge(name, robot, motion.joints.knots, motion.wheel_turns, seconds))
    head = (
        "motion",
        "intervals",
        "condition number [-]",
        "significant: one interval",
        "after 1",
        "after 3",
        "after 20",
    )
    print_table((*head, "after 40", "after all", "CPU [s]"), rows)


if __name__ == "__main__":
    main()
