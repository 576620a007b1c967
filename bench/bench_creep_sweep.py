"""What a creep sweep says of the friction of an arm.

``python bench/bench_creep_sweep.py [--trials N] [--sweep S] [--calibration C]``. Each trial draws an arm in its box,
its gain errors and sensor errors: even trials at random, odd ones with the arm at the corners and errors of constant
sign. How wide a calibration with C s of motion of the empty hand leaves friction, alone, with a creep sweep of S s, and
with S s more of random motion; and how narrow the intervals of ``sysid calibrate friction`` are with the sweep. Exit
status 1 if the truth is outside any of them.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys

import numpy as np
from _synthetic import TrueArm, measure
from _table import describe_machine, print_table
from bench_calibration import GAIN, PERIOD, REST, Trial, calibrate, with_torque_error, with_uncertainty

from sysid_ros.core.estimation.calibration import LoadedRecording, empty_hand
from sysid_ros.core.estimation.friction_curves import measure_friction
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.excitation.creep_sweep import creep_speeds, sweep_motion
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import INERTIAL, RobotModel

Array = np.ndarray


def record_sweep(trial: Trial, seconds: float) -> SampleBlock:
    """Samples of a creep sweep, with a second of rest before each motion."""
    robot, pause = trial.robot, 1.0
    speeds = creep_speeds(robot, PERIOD)
    paths = [sweep_motion(robot.home, speed, seconds / len(speeds)) for speed in speeds]
    whole = pause + paths[0].duration
    start = trial.time
    times = start + PERIOD * np.arange(round(len(paths) * whole / PERIOD) + 1)
    trial.time = float(times[-1]) + 1.0

    def motion(at: Array) -> tuple[Array, ...]:
        index = np.clip(((at - start) / whole).astype(int), 0, len(paths) - 1)
        parts = [path.sample(at - start - k * whole - pause) for k, path in enumerate(paths)]
        return tuple(np.choose(index[:, None], [part[order] for part in parts]) for order in range(3))

    arm = TrueArm(robot, trial.theta, np.zeros(INERTIAL), trial.stiction, 0.01)
    q, v, _ = motion(times)
    return measure(trial.sensors, times, q, v, arm.mean_torque(motion, times, PERIOD))


def compare_sweeps(robot: RobotModel, seeds: range, seconds: float, sweep_seconds: float) -> int:
    """Print what a creep sweep says of friction; return the number of calibrations and curves that miss the truth."""
    shares: dict[str, list[Array]] = {}
    radii, missed = [], 0
    for seed in seeds:
        trial = Trial(with_torque_error(robot, GAIN, REST), seed)
        blocks = [trial.record(np.zeros(INERTIAL), seconds), record_sweep(trial, sweep_seconds)]
        blocks.append(trial.record(np.zeros(INERTIAL), sweep_seconds))
        empty, sweep, more = (
            LoadedRecording(name, [block], empty_hand())
            for name, block in zip(("empty", "sweep", "more"), blocks, strict=True)
        )
        before = robot.friction(robot.theta_box.width)
        for name, used in {"motion": [empty], "+ sweep": [empty, sweep], "+ more motion": [empty, more]}.items():
            calibration, spent = calibrate(trial, trial.robot, used)
            missed += not calibration.box.contains(trial.theta)
            width = robot.friction(calibration.box.width)
            shares.setdefault(name, []).append(np.append(np.mean(width / before, axis=0), spent))
        for curve, law in zip(measure_friction(trial.robot, [sweep]), robot.friction(trial.theta), strict=True):
            friction = law[0] + law[1] * curve.speeds
            missed += not (curve.friction.contains(friction) and curve.offset.contains(np.full_like(friction, law[3])))
            radii.append([curve.friction.radius.min(), curve.offset.radius.min(), law[0]])
    columns = ["recordings", *(f"{name}" for name in ("F_c", "F_v", "I_a", "beta")), "processor time [s]"]
    rows = [[name, *np.median(found, axis=0)] for name, found in shares.items()]
    print_table(columns, rows, "Widths of the calibration relative to before, mean over joints, median over trials")
    table = np.median(np.reshape(radii, (len(seeds), robot.n, 3)), axis=0)
    rows = [[name, *values] for name, values in zip(robot.joint_names, table, strict=True)]
    print_table(["joint", "friction +-", "offset +-", "true F_c"], rows, "Friction by speed, the narrowest class [Nm]")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robot", default="kinova_gen3_2f85")
    parser.add_argument("--trials", type=int, default=4, help="arms")
    parser.add_argument("--first", type=int, default=0, help="seed of the first trial")
    parser.add_argument("--calibration", type=float, default=15.0, help="motion of the calibration [s]")
    parser.add_argument("--sweep", type=float, default=20.0, help="time of the creep sweep [s]")
    parser.add_argument("--share", type=float, default=0.2, help="how well the arm is known [-]")
    options = parser.parse_args()
    print(describe_machine(), flush=True)
    robot = with_uncertainty(load_robot(options.robot), options.share)
    print(f"Arm known to {100 * options.share:.0f} %, {options.trials} trials: {options.calibration:g} s of motion, "
          f"a sweep of {options.sweep:g} s")  # fmt: skip
    seeds = range(options.first, options.first + options.trials)
    missed = compare_sweeps(robot, seeds, options.calibration, options.sweep)
    print(f"{missed} with the truth outside")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
