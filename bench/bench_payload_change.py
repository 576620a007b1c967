"""How soon a changed payload is noticed, against a linear programme over all rows since the start.

``python bench/bench_payload_change.py [--robot NAME] [--trials N] [--first K] [--seconds S]``. Every trial draws an arm
in its parameter box, a motion, a payload before and one after, and when the change happens; samples carry random errors
within their limits. ``allowed`` is the first window with which scipy's ``linprog`` finds no unknowns that agree with
all rows of all windows so far, none of them compacted. The estimator, which forgets old windows but for a few
combinations of their rows, can be earlier (it also knows that a payload is a body) or later. Exit status 1 if it is
later by more than a window.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys

import numpy as np
import scipy.sparse
from _containment import build_problem, random_motion
from _synthetic import TrueArm, measure
from _table import describe_machine, print_table
from scipy.optimize import linprog

from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.model import WindowModel
from sysid_ros.core.estimation.windows.rows import Rows, build_rows
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.estimation.windows.stream import SampleStream
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.drivers.mujoco.simulation import Noise, SensorSimulation

PERIOD = 0.001
"""Of the samples [s]."""
NEVER = 10**6
"""Number of the window if there is none."""


def record(robot: RobotModel, seed: int, seconds: float) -> tuple[SampleBlock, float]:
    """Samples with a payload that changes, and when it does [s]."""
    rng = np.random.default_rng(seed)
    theta = sample_parameters(robot, rng, seed % 2 == 0)
    before, other = (sample_payload(robot.payload_prior, rng) for _ in range(2))
    after = before + rng.uniform(0.05, 0.5) * (other - before)
    change = rng.uniform(0.2, 0.8) * seconds
    plan = random_motion(robot, robot.home, rng, 3.0)

    def motion(times: np.ndarray) -> tuple[np.ndarray, ...]:
        return plan.sample(np.mod(times, 3.0))

    times = PERIOD * np.arange(round(seconds / PERIOD) + 1)
    q, v, a = motion(times)
    stiction, torques = rng.uniform(-1.0, 1.0, robot.n), []
    for payload in (before, after):
        arm = TrueArm(robot, theta, payload, stiction, EstimatorSettings().stiction_speed)
        is_held = robot.sensors.effort_is_held
        torques.append(arm.mean_torque(motion, times, PERIOD) if is_held else arm.torque(q, v, a))
    tau = np.where((times <= change)[:, None], *torques)
    return measure(SensorSimulation(robot.sensors, Noise.UNIFORM, seed), times, q, v, tau), change


def is_possible(problem: Problem) -> bool:
    """Whether any unknowns within their bounds agree with all rows, by HiGHS through scipy."""
    radii = np.concatenate([problem.radius, problem.delta_radius, problem.end_radii])
    matrix = scipy.sparse.hstack([problem.y, problem.b, problem.end_matrix])
    matrix = scipy.sparse.diags_array(1.0 / problem.error) @ matrix @ scipy.sparse.diags_array(radii)
    both = scipy.sparse.vstack([matrix, -matrix]).tocsr()
    limits = np.concatenate([problem.r / problem.error + 1.0, 1.0 - problem.r / problem.error])
    return linprog(np.zeros(radii.size), A_ub=both, b_ub=limits, bounds=(-1.0, 1.0), method="highs-ipm").status == 0


def first_impossible(robot: RobotModel, block: SampleBlock, least: int) -> int:
    """First window, not before ``least``, with which no unknowns agree with all rows."""
    settings = EstimatorSettings()
    unknowns = describe_unknowns(robot, settings)
    model = WindowModel(robot, settings, unknowns)
    windows, _ = SampleStream(robot, settings).add(block)
    parts = [build_rows(model, w) for w in windows]

    def holds(last: int) -> bool:
        return is_possible(build_problem(robot, Rows.stack(parts[: last + 1]), unknowns))

    low, high = least - 1, len(parts) - 1
    if holds(high):
        return NEVER
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high


def first_noticed(robot: RobotModel, block: SampleBlock) -> int:
    """First window with which the estimator notices."""
    estimator, taken = StreamingEstimator(robot, EstimatorSettings(detect_payload_change=True)), 100
    for start in range(0, len(block), taken):
        if any("restarted" in text for text in estimator.add(block.slice(start, start + taken))):
            return start // taken - 1
    return NEVER


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--robot", default="kinova_gen3_2f85", help="name of the robot")
    parser.add_argument("--trials", type=int, default=20, help="number of trials")
    parser.add_argument("--first", type=int, default=0, help="seed of the first trial")
    parser.add_argument("--seconds", type=float, default=8.0, help="duration of the data [s]")
    arguments = parser.parse_args()
    print(describe_machine(), flush=True)
    robot, rows = load_robot(arguments.robot), []
    for seed in range(arguments.first, arguments.first + arguments.trials):
        block, change = record(robot, seed, arguments.seconds)
        noticed = first_noticed(robot, block)
        allowed = first_impossible(robot, block, int(change / EstimatorSettings().window_duration))
        late = noticed - allowed if max(noticed, allowed) < NEVER else NEVER * np.sign(noticed - allowed)
        rows.append([seed, change, noticed, allowed, int(late)])
        print(f"seed {seed}: change at {change:.2f} s, noticed {noticed}, allowed {allowed}", flush=True)
    found = [row for row in rows if row[3] < NEVER]
    late = np.array([row[4] for row in found])
    counts = [len(rows), len(found), *(int(np.sum(late == k)) for k in (0, 1)), int(np.sum(late < 0))]
    columns = ["trials", "contradict", "same window", "one later", "earlier", "later than that"]
    print_table(columns, [[*counts, int(np.sum(late > 1))]], "Windows by which a change is noticed later than possible")
    false = [row[0] for row in rows if row[2] * EstimatorSettings().window_duration < row[1] - 0.2]
    print(f"noticed before the change: {false}")
    return int(bool(false) or np.any(late > 1))


if __name__ == "__main__":
    sys.exit(main())
