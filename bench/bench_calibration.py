"""Payload bounds with a calibrated arm and a better error model.

``python bench/bench_calibration.py [--trials N] [--seconds S] [--calibration C]``. Each trial draws an arm in its box,
its gain errors and sensor errors, and a payload: even trials at random, odd ones with the arm at the corners and
errors of constant sign. The arm is calibrated from C s of motion with the empty hand and C s with a reference weight,
then S s of another motion identify the payload under each set of assumptions. The last rows are the limits: the gain
known, and the arm known exactly. Widths are medians over the trials; the processor time of the updates is relative to
that without calibration in the same run.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys
import time
from dataclasses import replace
from datetime import date

import numpy as np
from _containment import random_motion
from _synthetic import TrueArm, measure
from _table import describe_machine, print_table

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.calibration import LoadedRecording, calibrate_arm, empty_hand, reference_weight
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.calibrated import apply_calibration
from sysid_ros.core.model.calibration import ArmCalibration, CalibrationRecord
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import AS_CALIBRATED, INERTIAL, RobotModel
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.simulation import SensorSimulation

Array = np.ndarray

DUMBBELL = from_com_form(1.81, [0.004, -0.006, -0.26], np.diag([0.0087, 0.001, 0.0087]))
"""Table I of SAFE-ID has a payload of this mass; CoM and inertia of a small dumbbell."""
GAIN, REST = 0.025, 0.005
WEIGHT, TOLERANCE = 2.0, 0.002
PERIOD = 0.001
TARGETS = {"m [kg]": 0.08, "mcx": 0.01, "mcy": 0.01, "mcz [kg m]": 0.03, "I [kg m^2]": 0.03}
"""Radii that users want."""


def gripper_of(robot: RobotModel) -> str:
    """State of the gripper, which no trial moves between the calibration and its use."""
    return AS_CALIBRATED if AS_CALIBRATED in robot.gripper_states else ""


def with_uncertainty(robot: RobotModel, share: float) -> RobotModel:
    """The arm with every inertial parameter within a share of the nominal one."""
    radius, count = robot.theta_box.radius.copy(), INERTIAL * robot.n
    radius[:count] = np.maximum(share * np.abs(robot.theta_nominal[:count]), radius[:count])
    return replace(robot, theta_box=Box.around(robot.theta_nominal, radius))


def with_torque_error(robot: RobotModel, gain: float, rest: float) -> RobotModel:
    """The arm with a constant gain error and a rest of this relative size."""
    whole, part = np.full(robot.n, gain + rest), np.full(robot.n, gain)
    return replace(robot, sensors=replace(robot.sensors, effort_relative_error=whole, effort_gain_error=part))


class Trial:
    """One arm with its gains and sensors, in the same state for all recordings."""

    def __init__(self, robot: RobotModel, seed: int):
        self.robot, self.rng, self.is_worst = robot, np.random.default_rng(seed), seed % 2 == 1
        self.theta = sample_parameters(robot, self.rng, corner=self.is_worst)
        noise = Noise.GAIN if self.is_worst else Noise.UNIFORM
        self.sensors = SensorSimulation(robot.sensors, noise, seed)
        self.stiction = self.rng.uniform(-1.0, 1.0, robot.n)
        self.time = 0.0

    def record(self, payload: Array, seconds: float) -> SampleBlock:
        """Samples of a random motion."""
        plan = random_motion(self.robot, self.robot.home, self.rng, seconds)
        start, arm = self.time, TrueArm(self.robot, self.theta, payload, self.stiction, 0.01)
        times = start + PERIOD * np.arange(round(seconds / PERIOD) + 1)
        self.time = float(times[-1]) + 1.0

        def motion(at: Array) -> tuple[Array, Array, Array]:
            return plan.sample(at - start)

        q, v, _ = motion(times)
        return measure(self.sensors, times, q, v, arm.mean_torque(motion, times, PERIOD))


def identify(robot: RobotModel, block: SampleBlock, payload: Array) -> tuple[Array, ...]:
    """Radii, whether the truth is inside all the time, errors of the estimate, processor time of the updates [s]."""
    settings = EstimatorSettings(gripper=gripper_of(robot))
    inside, times = [], []
    estimator = StreamingEstimator(
        robot, settings, on_update=lambda estimate: inside.append(estimate.contains(payload))
    )
    step = round(settings.window_duration / PERIOD) * settings.update_windows
    for first in range(0, len(block), step):
        started = time.process_time()
        notices = estimator.add(block.slice(first, first + step))
        times.append(time.process_time() - started)
        if notices:
            print("notice:", *notices, file=sys.stderr)
    estimate = estimator.estimate()
    good = all(inside) and estimate.contains(payload)
    return estimate.radius, np.array(good), np.abs(estimate.values - payload), np.array(times[1:])


def calibrate(trial: Trial, robot: RobotModel, recordings: list[LoadedRecording]) -> tuple[ArmCalibration, float]:
    """The calibration and the processor time it took [s]."""
    started = time.process_time()
    calibration = calibrate_arm(robot, recordings, CalibrationRecord(serial="bench", date=date.today().isoformat()))
    if not calibration.box.contains(trial.theta):
        print("MISS: an arm outside the box of its calibration", file=sys.stderr)
    return calibration, time.process_time() - started


def run_trial(base: RobotModel, seed: int, seconds: float, calibration_seconds: float) -> dict[str, tuple[Array, ...]]:
    """Results of one trial by assumption."""
    shared = with_torque_error(base, GAIN, REST)
    anywhere = with_torque_error(base, 0.0, GAIN + REST)
    trial = Trial(shared, seed)
    load = reference_weight(shared, WEIGHT, TOLERANCE)
    empty = trial.record(np.zeros(INERTIAL), calibration_seconds)
    weight = trial.record(sample_payload(load.prior, trial.rng), calibration_seconds)
    payload = DUMBBELL if seed % 4 < 2 else sample_payload(base.payload_prior, trial.rng, corner=trial.is_worst)
    block = trial.record(payload, seconds)
    one, both = [LoadedRecording("empty", [empty], empty_hand())], []
    both = [*one, LoadedRecording("weight", [weight], load)]
    results, spent = {}, 0.0
    cases = {"today": anywhere}
    cases["+ empty run"] = apply_calibration(calibrate(trial, anywhere, one)[0], anywhere)
    cases["constant gain, + empty run"] = apply_calibration(calibrate(trial, shared, one)[0], shared)
    calibration, spent = calibrate(trial, shared, both)
    cases["constant gain, + empty run, weight"] = apply_calibration(calibration, shared)
    # The limits: what is constant in the sensors is taken out of the data and known, then the arm too.
    gain = 1.0 + trial.sensors.gain_error
    exact = replace(block, tau=block.tau / gain)
    rest = with_torque_error(base, 0.0, REST / (1.0 - GAIN))
    point = replace(rest, theta_box=Box(trial.theta, trial.theta))
    for name, robot in cases.items():
        results[name] = identify(robot, block, payload)
    results["limit: gain known, arm not"] = identify(rest, exact, payload)
    results["limit: arm and gain known"] = identify(point, exact, payload)
    results["calibration"] = (np.array(spent),)
    return results


def summarise(share: float, trials: list[dict[str, tuple[Array, ...]]]) -> int:
    """Print the table of one uncertainty; return the number of trials with the truth outside."""
    rows, missed, base = [], 0, np.median(np.concatenate([trial["today"][3] for trial in trials]))
    for name in [name for name in trials[0] if name != "calibration"]:
        radius = np.median([trial[name][0] for trial in trials], axis=0)
        error = np.median([trial[name][2] for trial in trials], axis=0)
        inside = sum(bool(trial[name][1]) for trial in trials)
        times = np.concatenate([trial[name][3] for trial in trials])
        missed += len(trials) - inside
        rows.append(
            [name, f"{inside}/{len(trials)}", *radius[:4], radius[[4, 6, 9]].max(), error[0], error[3],
             float(np.median(times) / base)]
        )  # fmt: skip
    rows.append(["wanted", "all", *TARGETS.values(), TARGETS["m [kg]"] / 5, TARGETS["mcz [kg m]"] / 5, 1.5])
    columns = ["assumed", "inside", *TARGETS, "error m", "error mcz", "time of an update"]
    print_table(columns, rows, f"Arm known to {100 * share:.0f} %: median radii of the bounds, errors of the estimate")
    spent = np.median([float(trial["calibration"][0]) for trial in trials])
    print(f"calibration: {spent:.1f} s of processor time\n", flush=True)
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robot", default="kinova_gen3_2f85")
    parser.add_argument("--trials", type=int, default=4, help="arms for each uncertainty")
    parser.add_argument("--first", type=int, default=0, help="seed of the first trial")
    parser.add_argument("--seconds", type=float, default=15.0, help="motion with the payload [s]")
    parser.add_argument("--calibration", type=float, default=15.0, help="each motion of the calibration [s]")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.05, 0.2], help="how well the arm is known [-]")
    options = parser.parse_args()
    print(describe_machine(), flush=True)
    missed = 0
    for share in options.shares:
        robot = with_uncertainty(load_robot(options.robot), share)
        seeds = range(options.first, options.first + options.trials)
        trials = [run_trial(robot, seed, options.seconds, options.calibration) for seed in seeds]
        missed += summarise(share, trials)
    print(f"{missed} with the truth outside")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
