"""How often the statistical 95 % interval holds the truth, and how wide it is beside the guaranteed bounds.

``python bench/bench_statistics.py [ROBOT ...] [--trials N] [--seconds S]``. Every trial draws an arm and a payload in
their boxes, a motion, and sensor errors: uniform, or with a gain error that lasts. ``held``: share of trials in which
the interval holds the true mass, and of trials and parameters in which it holds the true parameter; ``width``: median
width over that of the guaranteed bounds; ``guaranteed``: share of trials in which those hold all ten.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse

import numpy as np
from _containment import random_motion
from _synthetic import TrueArm, measure
from _table import describe_machine, print_table

from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.point.statistics import compute_statistical_interval
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.rows import Rows
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.simulation import SensorSimulation

PERIOD = 0.002
"""Of the samples [s]."""


def run_trial(robot: RobotModel, noise: Noise, seed: int, seconds: float) -> tuple[np.ndarray, np.ndarray, bool]:
    """Whether each interval holds the truth, widths over the guaranteed ones, each (10,), and whether those hold it."""
    rng = np.random.default_rng(seed)
    theta, payload = sample_parameters(robot, rng), sample_payload(robot.payload_prior, rng)
    plan = random_motion(robot, robot.home, rng, 3.0)
    times = PERIOD * np.arange(round(seconds / PERIOD) + 1)

    def motion(at: np.ndarray) -> tuple[np.ndarray, ...]:
        return plan.sample(np.mod(at, 3.0))

    q, v, a = motion(times)
    settings = EstimatorSettings(bound_tolerance=0.05)
    arm = TrueArm(robot, theta, payload, rng.uniform(-1.0, 1.0, robot.n), settings.stiction_speed)
    tau = arm.mean_torque(motion, times, PERIOD) if robot.sensors.effort_is_held else arm.torque(q, v, a)
    rows: list[Rows] = []
    estimator = StreamingEstimator(robot, settings, on_rows=rows.append)
    estimator.add(measure(SensorSimulation(robot.sensors, noise, seed), times, q, v, tau))
    estimate = estimator.estimate()
    interval = compute_statistical_interval(robot, settings, rows)
    held = (interval.lower <= payload) & (payload <= interval.upper)
    return held, (interval.upper - interval.lower) / (estimate.upper - estimate.lower), estimate.contains(payload)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("robots", nargs="*", default=["kinova_gen3_2f85", "kuka_lbr_iiwa7", "ur5e"])
    parser.add_argument("--trials", type=int, default=30, help="of each arm and kind of error")
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    rows = []
    for name in options.robots:
        robot = load_robot(name)
        for noise in (Noise.UNIFORM, Noise.GAIN):
            found = [run_trial(robot, noise, seed, options.seconds) for seed in range(options.trials)]
            held, widths, bounds = (np.array(column) for column in zip(*found, strict=True))
            coverage = [100.0 * held[:, 0].mean(), 100.0 * held.mean()]
            rows.append([name, noise.value, len(found), *coverage, np.median(widths), 100.0 * bounds.mean()])
    columns = ["robot", "sensor errors", "trials", "mass held [%]", "all held [%]", "width [-]", "guaranteed [%]"]
    print_table(columns, rows, f"{options.seconds:g} s of data at {1.0 / PERIOD:g} Hz, confidence 95 %")
    print(describe_machine())


if __name__ == "__main__":
    main()
