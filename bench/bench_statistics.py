"""The statistical 95 % interval against the truth.

``python bench/bench_statistics.py [--arms N] [--trials N] [--robots ROBOT ...]``. Every arm is drawn in its box, with
sensor errors of one kind: uniform, a wrong gain that lasts, or errors that keep to their limits. Each trial draws a
payload and how the joints stick, and moves for 3 s, moves and rests for as long, or rests alone; with nothing else,
with a calibration, and with a tare, each of 3 s with the empty hand. ``held``: share of trials in which the interval
holds the true mass, and of trials and parameters in which it holds the true parameter; ``width``: median width over
that of the guaranteed bounds; ``widest``: the largest such ratio; ``absent``: intervals that there are none of;
``guaranteed``: share of trials in which the bounds hold all ten.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

import numpy as np
from _containment import random_motion
from _synthetic import Array, TrueArm, measure
from _table import describe_machine, print_table

from sysid_ros.core.estimation.calibration import LoadedRecording, calibrate_arm, empty_hand
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.point.statistics import compute_statistical_interval
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.tare import Tare, known_rows, make_tare
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.calibrated import apply_calibration
from sysid_ros.core.model.calibration import CalibrationRecord
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.simulation import SensorSimulation

PERIOD = 0.004
"""Of the samples [s]."""
MOTION, AFTER, REST = KINDS = ("motion", "rest after motion", "rest alone")
NOISES = (Noise.UNIFORM, Noise.GAIN, Noise.ADVERSARIAL)
SECONDS = 3.0
"""Of motion, and of rest."""
SETTINGS = EstimatorSettings(update_windows=1000, max_windows=1000, bound_tolerance=0.02)
"""Bounds are computed once, from all windows."""


@dataclass(frozen=True)
class Trial:
    """What one trial found; arrays are (10,).

    Attributes:
        held: Whether each interval holds the truth.
        width: Widths over those of the guaranteed bounds; NaN where there is no interval.
        is_guaranteed: Whether the bounds hold the truth.
    """

    held: Array
    width: Array
    is_guaranteed: bool


class Arm:
    """One arm with its sensors, in the same state for all recordings."""

    def __init__(self, robot: RobotModel, noise: Noise, seed: int):
        self.robot, self.rng = robot, np.random.default_rng(seed)
        self.theta = sample_parameters(robot, self.rng)
        self.sensors = SensorSimulation(robot.sensors, noise, seed)
        self.time = 0.0

    def record(self, payload: Array, kind: str) -> SampleBlock:
        """Samples with a payload; joints that stick do so at one place within F_c."""
        robot, start = self.robot, self.time
        plan = random_motion(robot, robot.home, self.rng, SECONDS)
        moving, whole = (0.0, SECONDS) if kind == REST else (SECONDS, 2.0 * SECONDS if kind == AFTER else SECONDS)
        times = start + PERIOD * np.arange(round(whole / PERIOD) + 1)
        self.time = float(times[-1]) + 1.0

        def motion(at: Array) -> tuple[Array, Array, Array]:
            since = np.asarray(at) - start
            q, v, a = plan.sample(np.clip(since, 0.0, moving))
            moves = ((since > 0.0) & (since < moving))[:, None]
            return q, v * moves, a * moves

        arm = TrueArm(robot, self.theta, payload, self.rng.uniform(-1.0, 1.0, robot.n), SETTINGS.stiction_speed)
        q, v, a = motion(times)
        tau = arm.mean_torque(motion, times, PERIOD) if robot.sensors.effort_is_held else arm.torque(q, v, a)
        return measure(self.sensors, times, q, v, tau)

    def calibrated(self) -> RobotModel:
        """The arm's model after a calibration with the empty hand."""
        held = LoadedRecording("empty", [self.record(np.zeros(10), MOTION)], empty_hand())
        record = CalibrationRecord(serial="bench", date=date.today().isoformat())
        return apply_calibration(calibrate_arm(self.robot, [held], record), self.robot)

    def tare(self) -> Tare:
        """What motion with the empty hand tells of the arm."""
        return make_tare(self.robot, [self.record(np.zeros(10), MOTION)], SETTINGS)

    def run(self, model: RobotModel, tare: Tare | None, kind: str) -> Trial:
        """One trial with what is known of the arm."""
        payload, rows = sample_payload(self.robot.payload_prior, self.rng), []
        estimator = StreamingEstimator(model, SETTINGS, on_rows=rows.append, tare=tare)
        estimator.add(self.record(payload, kind))
        estimate = estimator.estimate()
        known = known_rows(model, describe_unknowns(model, SETTINGS), SETTINGS, rows, tare)
        found = compute_statistical_interval(model, SETTINGS, rows, estimate.box, known)
        held = (found.lower <= payload) & (payload <= found.upper)
        return Trial(held, (found.upper - found.lower) / (estimate.upper - estimate.lower), estimate.contains(payload))


def run_trials(
    robots: list[str], arms: int, trials: int, seed: int = 1000
) -> Iterator[tuple[str, Noise, str, str, Trial]]:
    """Yield the trials of all cases: so many arms of each robot and kind of error, so many trials of each case."""
    for name in robots:
        robot = load_robot(name)
        for noise in NOISES:
            for number in range(arms):
                arm = Arm(robot, noise, seed + number)
                for kind in KINDS:
                    for _ in range(trials):
                        yield name, noise, "nothing", kind, arm.run(robot, None, kind)
                        yield name, noise, "tare", kind, arm.run(robot, arm.tare(), kind)
                model = arm.calibrated()
                for kind in KINDS:
                    for _ in range(trials):
                        yield name, noise, "calibration", kind, arm.run(model, None, kind)


def summarize(trials: list[Trial]) -> list[object]:
    """Cells of a table."""
    held, width = (np.array([getattr(one, name) for one in trials]) for name in ("held", "width"))
    guaranteed = np.mean([one.is_guaranteed for one in trials])
    shares = [100.0 * held[:, 0].mean(), 100.0 * held.mean()]
    widths = [np.nanmedian(width[:, 0]), np.nanmedian(width), np.nanmax(width)]
    return [len(trials), *shares, *widths, int(np.isnan(width).sum()), 100.0 * guaranteed]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--robots", nargs="*", default=["kinova_gen3_2f85", "kuka_lbr_iiwa7"])
    parser.add_argument("--arms", type=int, default=2, help="of each robot and kind of error")
    parser.add_argument("--trials", type=int, default=3, help="of each arm and case")
    options = parser.parse_args()
    found = list(run_trials(options.robots, options.arms, options.trials))
    heads = ["trials", "mass held [%]", "all held [%]", "width, mass [-]", "width, all [-]", "widest [-]", "absent"]
    for title, columns, key in (
        ("By data", ["robot", "known", "data"], lambda one: (one[0], one[2], one[3])),
        ("By errors of the sensors", ["robot", "errors"], lambda one: (one[0], one[1].value)),
        ("All", [], lambda one: ()),
    ):
        groups: dict[tuple, list[Trial]] = {}
        for one in found:
            groups.setdefault(key(one), []).append(one[-1])
        rows = [[*case, *summarize(trials)] for case, trials in groups.items()]
        print_table([*columns, *heads, "guaranteed [%]"], rows, f"{title}, confidence 95 %")
    print(describe_machine())


if __name__ == "__main__":
    main()
