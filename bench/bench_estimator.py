"""Time of the estimator: windows with their error budget, point estimate and bounds, per batch and per update.

``python bench/bench_estimator.py [--robot NAME] [--rounds R]``. The candidates take turns and the processor time of the
fastest round counts, because other processes only ever add time. The baseline is what one writes without this package:
Pinocchio's regressor sample by sample, forward Euler over windows of 0.1 s, least squares, and the linear bound
``|pinv(Y) dU/dm| rad(m)`` for torque and robot parameters only. The target for fit and bounds on 7.5 s is 100 ms.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import time
from collections.abc import Callable

import numpy as np
import pinocchio as pin
from _table import describe_machine, print_table

from sysid_ros.core.estimation.bounds import compute_bounds
from sysid_ros.core.estimation.point import PointEstimator
from sysid_ros.core.estimation.problem import Problem
from sysid_ros.core.estimation.rows import Rows
from sysid_ros.core.estimation.samples import SampleBlock
from sysid_ros.core.estimation.settings import EstimatorSettings
from sysid_ros.core.estimation.stream import SampleStream, Window
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.unknowns import describe_unknowns
from sysid_ros.core.estimation.window_model import WindowModel
from sysid_ros.core.estimation.windows import build_rows
from sysid_ros.core.model.loader import load_robot

SECONDS = 7.5
STEP = 1e-6


def synthetic_data(robot, rate: float) -> SampleBlock:  # noqa: ANN001
    """A smooth motion around home with the torques of the nominal arm and payload; errors do not matter here."""
    count = round(SECONDS * rate) + 1
    t = np.arange(count) / rate
    rng = np.random.default_rng(0)
    omega = 2.0 * np.pi * 0.2 * np.arange(1, 5)
    size = 0.5 * rng.uniform(0.3, 1.0, (robot.n, 4)) / np.arange(1, 5) / 2.0
    angle = np.multiply.outer(t, np.ones((robot.n, 1)) * omega) + rng.uniform(-np.pi, np.pi, (robot.n, 4))
    q = robot.home + (size * np.sin(angle)).sum(-1)
    v, a = (size * omega * np.cos(angle)).sum(-1), -(size * omega**2 * np.sin(angle)).sum(-1)
    model = robot.pin_model.copy()
    theta = robot.theta_nominal[robot.inertial_slice(robot.n)] + robot.payload_prior.nominal
    model.inertias[robot.n] = pin.Inertia.FromDynamicParameters(theta)
    data = model.createData()
    f_c, f_v, i_a, beta = robot.friction(robot.theta_nominal).T
    friction = f_c * np.sign(v) + f_v * v + i_a * a + beta
    tau = np.array([pin.rnea(model, data, *row) for row in zip(q, v, a, strict=True)]) + friction
    return SampleBlock(np.round(t * 1e9).astype(np.int64), np.arange(count), q, v, tau)


class PlainLoop:
    """The baseline; see the module."""

    def __init__(self, robot):  # noqa: ANN001
        self.robot, self.n, self.model = robot, robot.n, robot.pin_model
        self.data = self.model.createData()
        self.weightless = self.model.copy()
        self.weightless.gravity.linear = np.zeros(3)

    def momentum(self, q: np.ndarray, v: np.ndarray) -> np.ndarray:
        return pin.computeJointTorqueRegressor(self.weightless, self.data, q, np.zeros(self.n), v)

    def windows(self, block: SampleBlock, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Inertial columns and torque integrals of all windows, sample by sample with forward Euler."""
        step = float(block.seconds[1])
        columns, torques = [], []
        for start in range(0, len(block) - length, length):
            integral = np.zeros((self.n, 10 * self.n))
            for k in range(start, start + length):
                q, v = block.q[k], block.v[k]
                change = self.momentum(q + STEP * v, v) - self.momentum(q, v)
                bias = pin.computeJointTorqueRegressor(self.model, self.data, q, v, np.zeros(self.n))
                integral += step * (change / STEP - bias)
            ends = [self.momentum(block.q[k], block.v[k]) for k in (start, start + length)]
            columns.append(ends[1] - ends[0] - integral)
            torques.append(step * block.tau[start : start + length].sum(axis=0))
        return np.concatenate(columns), np.concatenate(torques)

    def estimate(self, columns: np.ndarray, torques: np.ndarray) -> np.ndarray:
        """Half widths of the linear bound."""
        last = slice(10 * self.n - 10, 10 * self.n)
        inverse = np.linalg.pinv(columns[:, last])
        radius = self.robot.theta_box.radius[: 10 * self.n]
        return np.abs(inverse @ columns) @ radius + np.abs(inverse) @ (0.025 * np.abs(torques))


def fastest(work: Callable[[], object], rounds: int) -> tuple[float, object]:
    """Processor time of the fastest round [s] and the last result."""
    times, result = [], None
    for _ in range(rounds):
        started = time.process_time()
        result = work()
        times.append(time.process_time() - started)
    return min(times), result


def build_windows(model: WindowModel, windows: list[Window]) -> Rows:
    return Rows.stack([build_rows(model, w.block, w.start, w.stop, w.number) for w in windows])


def batch_rows(robot, rounds: int) -> list[list[object]]:  # noqa: ANN001
    """Everything on 7.5 s of data, from scratch."""
    settings = EstimatorSettings()
    unknowns = describe_unknowns(robot, settings)
    model = WindowModel(robot, settings, unknowns)
    table, kept = [], None
    for rate in (1000.0, 4000.0):
        block = synthetic_data(robot, rate)
        windows, _ = SampleStream(robot, settings).add(block)
        spent, rows = fastest(lambda windows=windows: build_windows(model, windows), rounds)
        table.append([f"windows and error budget, {rate / 1000:g} kHz", 1e3 * spent, len(block) / spent])
        kept = rows if kept is None else kept
    block = synthetic_data(robot, 1000.0)
    baseline = PlainLoop(robot)
    spent, (columns, torques) = fastest(lambda: baseline.windows(block, 100), max(1, rounds // 3))
    table.append(["baseline: windows sample by sample, 1 kHz", 1e3 * spent, len(block) / spent])
    prior = unknowns.prior
    sensors = robot.sensors.velocity_error

    def problem() -> Problem:
        return Problem.build(kept, prior.center, prior.radius, unknowns.radius, sensors)

    ready, point = problem(), PointEstimator(unknowns.nominal, prior, settings.prior_weight)
    fit_time, _ = fastest(lambda: PointEstimator(unknowns.nominal, prior, 1e-3).estimate(problem(), None), rounds)
    bound_time, bounds = fastest(lambda: compute_bounds(problem(), unknowns, settings, point.start), rounds)
    local = EstimatorSettings(method="sensitivity")
    local_time, _ = fastest(lambda: compute_bounds(ready, unknowns, local, point.start), rounds)
    plain_time, plain = fastest(lambda: baseline.estimate(columns, torques), rounds)
    table.append(["physically consistent fit", 1e3 * fit_time, "-"])
    table.append([f"bounds, left_inverse, {settings.reweightings} reweightings", 1e3 * bound_time, "-"])
    table.append(["fit and bounds together (target 100 ms)", 1e3 * (fit_time + bound_time), "-"])
    table.append(["bounds, sensitivity (the paper's, with its fit)", 1e3 * local_time, "-"])
    table.append(["baseline: least squares and linear bound", 1e3 * plain_time, "-"])
    print(f"mass half width: {bounds.half_width[0]:.3f} kg with every error, {plain[0]:.3f} kg by the baseline")
    return table


def streaming_rows(robot, seconds: float = 30.0) -> list[list[object]]:  # noqa: ANN001
    """Time per portion of 20 samples and per update while the data keep coming."""
    block = synthetic_data(robot, 1000.0)
    estimator = StreamingEstimator(robot, EstimatorSettings())
    plain, updates = [], []
    portion, stamps, count = 20, 0, len(block)
    for repeat in range(int(seconds / SECONDS)):
        for first in range(0, count - portion, portion):
            part = block.slice(first, first + portion)
            moved = SampleBlock(part.stamps + stamps, part.sequence + repeat * count, part.q, part.v, part.tau)
            before = estimator._windows // EstimatorSettings().update_windows
            started = time.process_time()
            estimator.add(moved)
            spent = 1e3 * (time.process_time() - started)
            is_update = estimator._windows // EstimatorSettings().update_windows > before
            (updates if is_update else plain).append(spent)
        stamps += round((SECONDS + 0.001) * 1e9)
    stored = sum(len(rows) for rows in estimator._rows)
    return [
        ["20 samples (one batch at 50 Hz)", len(plain), *np.quantile(plain, [0.5, 0.99, 1.0]), "-"],
        ["renewal of bounds and fit, every 0.5 s", len(updates), *np.quantile(updates, [0.5, 0.99, 1.0]), stored],
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--robot", default="kinova_gen3_2f85", help="name of the robot")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of which the fastest counts")
    arguments = parser.parse_args()
    robot = load_robot(arguments.robot)
    print(describe_machine() + f", load {os.getloadavg()[0]:.1f}")
    rows = batch_rows(robot, arguments.rounds)
    print_table(["7.5 s of data, from scratch", "processor time [ms]", "samples/s"], rows, robot.name)
    columns = ["30 s of streaming at 1 kHz", "calls", "p50 [ms]", "p99 [ms]", "max [ms]", "rows kept"]
    print_table(columns, streaming_rows(robot))


if __name__ == "__main__":
    main()
