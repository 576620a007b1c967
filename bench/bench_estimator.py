"""Time of the estimator, from scratch and per update.

``python bench/bench_estimator.py [--robot NAME] [--rounds R] [--stream S]``. The processor time of the fastest round
counts, because other processes only ever add time. Baselines: what one writes without this package (Pinocchio's
regressor sample by sample, forward Euler over windows of 0.1 s, least squares, and the linear bound
``|pinv(Y) dU/dm| rad(m)`` for torque and robot parameters only), and scipy's ``linprog`` for the linear programs of
the bounds, each from scratch; also the programs with all rows factorised in every step. Targets: 0.5 s from scratch
for 7.5 s of data at 4 kHz, 60 ms for 99 of 100 updates with a calibration. The streams with one are always of the Gen3.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pinocchio as pin
import scipy.sparse
from _table import describe_machine, print_table
from bench_calibration import (
    DUMBBELL,
    GAIN,
    REST,
    TOLERANCE,
    WEIGHT,
    Trial,
    calibrate,
    gripper_of,
    with_torque_error,
    with_uncertainty,
)
from scipy.optimize import linprog

from sysid_ros.core.estimation.bounds.state import compute_bounds
from sysid_ros.core.estimation.calibration import LoadedRecording, empty_hand, reference_weight
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.lp.row_chain import RowChain
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.point.fit import PointEstimator
from sysid_ros.core.estimation.streaming import StreamingEstimator, estimate_from_samples
from sysid_ros.core.estimation.windows.model import Window, WindowModel
from sysid_ros.core.estimation.windows.rows import Rows, build_rows
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.estimation.windows.stream import SampleStream
from sysid_ros.core.model.calibrated import apply_calibration
from sysid_ros.core.model.inertia import PARAMETER_NAMES
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import INERTIAL
from sysid_ros.core.model.sampling import sample_payload

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
    # Copies, because a window keeps its signals.
    return Rows.stack([build_rows(model, replace(window)) for window in windows])


def with_errors(robot, block: SampleBlock) -> SampleBlock:  # noqa: ANN001
    """The samples with random errors of velocities and torques within their bounds."""
    rng, sensors = np.random.default_rng(1), robot.sensors
    limit = sensors.effort_relative_error * np.abs(block.tau) + sensors.effort_absolute_error
    tau = block.tau + rng.uniform(-1.0, 1.0, block.tau.shape) * limit / (1.0 + sensors.effort_relative_error)
    v = block.v + rng.uniform(-1.0, 1.0, block.v.shape) * sensors.velocity_error
    return SampleBlock(block.stamps, block.sequence, block.q, v, tau)


def solve_with_scipy(problem: Problem) -> np.ndarray:
    """Half widths from 20 linear programs, each solved from scratch by HiGHS (interior point) through scipy."""
    radii = np.concatenate([problem.radius, problem.delta_radius, problem.end_radii])
    matrix = scipy.sparse.hstack([problem.y, problem.b, problem.end_matrix])
    matrix = scipy.sparse.diags_array(1.0 / problem.error) @ matrix @ scipy.sparse.diags_array(radii)
    both = scipy.sparse.vstack([matrix, -matrix]).tocsr()
    limits = np.concatenate([problem.r / problem.error + 1.0, 1.0 - problem.r / problem.error])
    ends = np.zeros((10, 2))
    for i in range(10):
        for side, sign in enumerate((1.0, -1.0)):
            cost = np.zeros(radii.size)
            cost[i] = sign
            ends[i, side] = linprog(cost, A_ub=both, b_ub=limits, bounds=(-1.0, 1.0), method="highs-ipm").fun
    return -0.5 * ends.sum(axis=1) * problem.radius


@contextmanager
def factorise_all_rows() -> Iterator[None]:
    """Factorises matrices of the size of the rows in every step, as if the programs had no few shared columns."""
    fast = RowChain.factorise
    RowChain.factorise = lambda chain, weight, is_hard=None: fast(chain, weight, np.ones(weight.shape[1], dtype=bool))
    try:
        yield
    finally:
        RowChain.factorise = fast


def streaming_baseline(robot, seconds: float) -> list[list[object]]:  # noqa: ANN001
    """The stream with all rows factorised."""
    with factorise_all_rows():
        rows = streaming_rows(robot, "set_membership", seconds)
    return [[f"baseline, all rows factorised: {name}", *rest] for name, *rest in rows]


def batch_rows(robot, rounds: int) -> tuple[list[list[object]], dict[str, np.ndarray]]:  # noqa: ANN001
    """Everything on 7.5 s of data, from scratch; and the half widths of each method."""
    settings = EstimatorSettings()
    unknowns = describe_unknowns(robot, settings)
    model = WindowModel(robot, settings, unknowns)
    table, rows = [], None
    for rate in (1000.0, 4000.0):
        block = with_errors(robot, synthetic_data(robot, rate))
        windows, _ = SampleStream(robot, settings).add(block)
        spent, rows = fastest(lambda windows=windows: build_windows(model, windows), rounds)
        table.append([f"windows and error budget, {rate / 1000:g} kHz", 1e3 * spent, len(block) / spent])
    spent, final = fastest(lambda: estimate_from_samples(robot, [block])[0], rounds)
    table.append(["all of it by the estimator, 4 kHz (target 500 ms)", 1e3 * spent, len(block) / spent])
    block = synthetic_data(robot, 1000.0)
    baseline = PlainLoop(robot)
    spent, (columns, torques) = fastest(lambda: baseline.windows(block, 100), max(1, rounds // 3))
    table.append(["baseline: windows sample by sample, 1 kHz", 1e3 * spent, len(block) / spent])

    prior = unknowns.prior
    problem = Problem.build(rows, prior.center, prior.radius, unknowns.radius, unknowns.end_error)
    widths = {"prior": prior.radius}
    spent, _ = fastest(lambda: PointEstimator(unknowns.nominal, prior, 1e-3).estimate(problem, None), rounds)
    table.append(["physically consistent fit", 1e3 * spent, "-"])
    methods = {
        "set_membership": settings,
        "set_membership, no cuts": replace(settings, use_cone=False),
        "set_membership, to 1e-6": replace(settings, bound_tolerance=1e-6),
        "left_inverse": replace(settings, method="left_inverse"),
    }
    for name, one in methods.items():
        spent, bounds = fastest(lambda one=one: compute_bounds(problem, unknowns, one), rounds)
        table.append([f"bounds, {name}", 1e3 * spent, "-"])
        widths[name] = bounds.radius
    with factorise_all_rows():
        spent, bounds = fastest(lambda: compute_bounds(problem, unknowns, settings), rounds)
    table.append(["baseline: bounds, set_membership, all rows factorised", 1e3 * spent, "-"])
    widths["set_membership, all rows factorised"] = bounds.radius
    spent, widths["linprog"] = fastest(lambda: solve_with_scipy(problem), 1)
    table.append(["baseline: 20 linear programs by linprog, no cuts", 1e3 * spent, "-"])
    spent, widths["plain"] = fastest(lambda: baseline.estimate(columns, torques), rounds)
    table.append(["baseline: least squares and linear bound", 1e3 * spent, "-"])
    widths["estimator (updates, cuts, minors)"] = final.radius
    return table, widths


def streaming_rows(robot, method: str, seconds: float) -> list[list[object]]:  # noqa: ANN001
    """Time per batch, per update and per 1.5 s of data while the data keep coming."""
    block = with_errors(robot, synthetic_data(robot, 1000.0))
    return stream(robot, EstimatorSettings(method=method), block, max(1, round(seconds / SECONDS)), method)


def calibrated_rows() -> list[list[object]]:
    """The same with a calibration: an arm known to 20 %, 15 s with the empty hand and 15 s with a reference weight."""
    robot = with_torque_error(with_uncertainty(load_robot("kinova_gen3_2f85"), 0.2), GAIN, REST)
    trial, load = Trial(robot, 0), reference_weight(robot, WEIGHT, TOLERANCE)
    empty = trial.record(np.zeros(INERTIAL), 15.0)
    weight = trial.record(sample_payload(load.prior, trial.rng), 15.0)
    recordings = [LoadedRecording("empty", [empty], empty_hand()), LoadedRecording("weight", [weight], load)]
    calibration, _ = calibrate(trial, robot, recordings)
    known, block = apply_calibration(calibration, robot), trial.record(DUMBBELL, 15.0)
    settings = EstimatorSettings(gripper=gripper_of(known))
    result = stream(known, settings, block, 1, f"set_membership, {len(calibration.matrix)} rows of a calibration")
    with factorise_all_rows():
        baseline = stream(known, settings, block, 1, "the same, baseline, all rows factorised")
    return result + baseline


def stream(robot, settings: EstimatorSettings, block: SampleBlock, repeats: int, label: str) -> list[list[object]]:  # noqa: ANN001
    """Stream the same samples several times, in batches of 20."""
    span = float(block.seconds[-1])
    updates: list[float] = []
    estimator = StreamingEstimator(robot, settings, on_update=lambda _: updates.append(0.0))
    plain, renewals, known = [], [], 0
    portion, stamps, count = 20, 0, len(block)
    for repeat in range(repeats):
        for first in range(0, count - portion, portion):
            part = block.slice(first, first + portion)
            moved = SampleBlock(part.stamps + stamps, part.sequence + repeat * count, part.q, part.v, part.tau)
            started = time.process_time()
            estimator.add(moved)
            spent = 1e3 * (time.process_time() - started)
            (renewals if len(updates) > known else plain).append(spent)
            known = len(updates)
        stamps += round((span + 0.001) * 1e9)
    stored = sum(len(rows) for rows in estimator.stored_windows)
    share = 1.5e3 * (sum(plain) + sum(renewals)) / (1e-6 * stamps)
    name = f"{settings.update_windows * settings.window_duration:g} s"
    return [
        [f"{label}: 20 samples (one batch at 50 Hz)", len(plain), *np.quantile(plain, [0.5, 0.99, 1.0]), "-", "-"],
        [
            f"{label}: bounds and fit, every {name}",
            len(renewals),
            *np.quantile(renewals, [0.5, 0.99, 1.0]),
            share,
            stored,
        ],
    ]


def print_widths(widths: dict[str, np.ndarray]) -> None:
    columns = ["half width, 7.5 s of data with random errors", *PARAMETER_NAMES]
    print_table(columns, [[name, *values] for name, values in widths.items()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--robot", default="kinova_gen3_2f85", help="name of the robot")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of which the fastest counts")
    parser.add_argument("--stream", type=float, default=30.0, help="seconds of data that are streamed")
    arguments = parser.parse_args()
    robot = load_robot(arguments.robot)
    print(describe_machine() + f", load {os.getloadavg()[0]:.1f}")
    rows, widths = batch_rows(robot, arguments.rounds)
    print_table(["7.5 s of data, from scratch", "processor time [ms]", "samples/s"], rows, robot.name)
    print_widths(widths)
    heading = f"{arguments.stream:g} s of streaming at 1 kHz"
    columns = [heading, "calls", "p50 [ms]", "p99 [ms]", "max [ms]", "per 1.5 s of data [ms]", "rows kept"]
    both = [
        row for method in ("set_membership", "left_inverse") for row in streaming_rows(robot, method, arguments.stream)
    ]
    print_table(columns, both + streaming_baseline(robot, arguments.stream) + calibrated_rows())


if __name__ == "__main__":
    main()
