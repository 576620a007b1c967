"""Calibrates an arm or its sensors from recordings: ``sysid calibrate arm`` and ``sysid calibrate sensors``.

``arm``: recordings of one arm with the empty hand and with reference weights become a calibration file, which a robot
file names as ``calibration:`` or ``sysid offline --calibration`` takes. ``sensors``: a recording at standstill shows
what can be measured of the errors of the sensors, with the data it rests on.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml

from sysid_ros.cli.exit_status import ExitStatus, run_command
from sysid_ros.cli.offline import add_recording_options, parse_settings, recording_options, with_velocity_error
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.calibration import (
    CalibrationInconsistent,
    KnownLoad,
    LoadedRecording,
    calibrate_arm,
    empty_hand,
    reference_weight,
)
from sysid_ros.core.estimation.sensor_statistics import SensorStatistics, measure_sensors
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.calibration import ArmCalibration, CalibrationRecord, save_calibration
from sysid_ros.core.model.loader import available_robots, load_robot
from sysid_ros.core.model.robot import RobotModel, parameter_names, parameter_units
from sysid_ros.reports.arm import TorqueCheck, make_result, prepare_files, write_arm_result
from sysid_ros.reports.recordings.files import read_recording
from sysid_ros.reports.recordings.readers import Recording

_LISTED = 20
"""Parameters listed in the report: those that narrowed most."""


def build_parser() -> argparse.ArgumentParser:
    """Build the command line."""
    parser = argparse.ArgumentParser(
        prog="sysid calibrate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    arm = commands.add_parser("arm", help="from recordings with the empty hand and reference weights")
    arm.add_argument(
        "files",
        nargs="+",
        metavar="FILE[=MASS[+-TOLERANCE]]",
        help="a recording (a bag, .csv, .npz): of the empty hand, or of a reference weight of this mass [kg]",
    )
    arm.add_argument("--serial", required=True, help="serial number of the arm")
    arm.add_argument("--date", default=None, help="day of the recordings (default: today)")
    arm.add_argument("--valid-days", type=int, default=180, help="days for which it may be used; 0: without end")
    arm.add_argument("--firmware", default=None, help="firmware of the arm")
    arm.add_argument("--temperature", type=float, default=None, help="temperature of joints or room [degC]")
    arm.add_argument(
        "--offset-change",
        type=float,
        nargs="+",
        default=[0.0],
        metavar="NM",
        help="how much a torque offset may change between recordings and until use [Nm]; one number or one per joint",
    )
    arm.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the estimator")
    arm.add_argument("--output", default="arm.yaml", help="the calibration file that is written")
    arm.add_argument(
        "--check",
        metavar="FILE[=MASS]",
        default=None,
        help="a recording that is not used, to compare its torques with those of the identified parameters",
    )
    arm.add_argument(
        "--report", metavar="FOLDER", default=None, help="also write a page, and the URDF, into this folder"
    )
    sensors = commands.add_parser("sensors", help="from a recording at standstill")
    sensors.add_argument("file", help="the recording")
    sensors.add_argument("--output", default="sensors.yaml", help="the file that is written")
    for command in (arm, sensors):
        known = ", ".join(available_robots())
        command.add_argument("--model", required=True, help=f"the arm: one of {known}, or a settings file")
        add_recording_options(command)
    return parser


def read_load(text: str, robot: RobotModel) -> tuple[Path, KnownLoad]:
    """Split ``FILE[=MASS[+-TOLERANCE]]`` into the file and what the hand held.

    Raises:
        ParameterOutOfRange: The mass or its tolerance is no number.
    """
    name, separator, mass = text.rpartition("=")
    if not separator:
        return Path(text), empty_hand()
    value, _, tolerance = mass.partition("+-")
    try:
        return Path(name), reference_weight(robot, float(value), float(tolerance or 0.0))
    except ValueError:
        raise ParameterOutOfRange(
            "FILE=MASS+-TOLERANCE", text, "numbers in kg, such as weight.mcap=1.0+-0.002"
        ) from None


def run_arm(options: argparse.Namespace) -> int:
    """Calibrate an arm; return the exit status.

    Raises:
        SysidError: The input cannot be used.
    """
    robot = load_robot(options.model)
    settings = parse_settings(options.set)
    change = np.asarray(options.offset_change, dtype=float)
    if change.size not in (1, robot.n) or np.any(change < 0.0):
        allowed = f"one number or {robot.n}, not negative"
        raise ParameterOutOfRange("--offset-change [Nm]", options.offset_change, allowed)
    folder = None if options.report is None else Path(options.report)
    if folder is not None:
        prepare_files(folder)
    recordings, computed = [], robot
    warnings: list[str] = []

    def read(text: str) -> tuple[LoadedRecording, Recording]:
        path, load = read_load(text, robot)
        recording = read_recording(path, robot, recording_options(options))
        for sentence in [*recording.notices, *recording.caveats]:
            warnings.append(f"{path.name}: {sentence}")
            print(f"warning: {warnings[-1]}")
        return LoadedRecording(path.name, recording.batches, load), recording

    for text in options.files:
        loaded, recording = read(text)
        computed = with_velocity_error(computed, recording)
        recordings.append(loaded)
    check = None if options.check is None else read(options.check)[0]
    try:
        day = datetime.date.fromisoformat(options.date) if options.date else datetime.date.today()
    except ValueError:
        raise ParameterOutOfRange("--date", options.date, "a date like 2026-11-22") from None
    last = day + datetime.timedelta(days=options.valid_days) if options.valid_days else None
    record = CalibrationRecord(
        serial=options.serial,
        date=day.isoformat(),
        expires=None if last is None else last.isoformat(),
        firmware=options.firmware,
        temperature=options.temperature,
        offset_change=tuple(np.broadcast_to(change, robot.n).tolist()),
    )
    phases: list[str] = []

    def show(share: float, phase: str) -> None:
        if phase not in phases[-1:]:
            phases.append(phase)
            print(f"{100.0 * share:3.0f} %  {phase}", flush=True)

    calibration = calibrate_arm(computed, recordings, record, settings, show)
    save_calibration(calibration, options.output)
    print("\n" + describe_calibration(robot, calibration))
    print(f"File: {options.output}")
    if folder is None and check is None:
        return ExitStatus.OK
    kept = None if check is None else (check.name, SampleBlock.concatenate(check.blocks), check.load)
    result = make_result(computed, calibration, settings, kept, warnings)
    if result.check is not None:
        print("\n" + describe_check(robot, result.check))
    if folder is not None:
        for sentence in write_arm_result(result, folder):
            print(f"warning: {sentence}")
        print(f"Files: {folder}")
    return ExitStatus.OK


def describe_check(robot: RobotModel, check: TorqueCheck) -> str:
    """Describe the torque residuals of a motion that was not used."""
    lines = [
        f"{check.name}, not used: RMS torque residual [Nm] with the parameters before and now",
        f"  {'joint':<12}{'before':>10}{'now':>10}",
    ]
    for name, before, after in zip(robot.joint_names, check.before, check.after, strict=True):
        lines.append(f"  {name:<12}{before:10.3f}{after:10.3f}")
    return "\n".join(lines)


def describe_calibration(robot: RobotModel, calibration: ArmCalibration) -> str:
    """Describe what a calibration knows: where from, and the parameters that narrowed most."""
    record = calibration.record
    until = f", to be used until {record.expires}" if record.expires else ""
    lines = [f"Arm {record.serial} ({calibration.robot}), {record.date}{until}", *(f"  {t}" for t in record.recordings)]
    lines.append(f"{len(calibration.matrix)} certified rows on what the recordings share")
    before, after = robot.theta_box.width, calibration.box.width
    share = np.divide(after, before, out=np.ones_like(after), where=before > 0.0)
    order = [int(k) for k in np.argsort(share)[:_LISTED] if share[k] < 0.99]
    if not order:
        return "\n".join([*lines, "no single parameter narrowed, only combinations of them"])
    lines.append(f"{'parameter':<14}{'lower':>11}{'upper':>11}{'nominal':>11}  of the range before")
    names, units = parameter_names(robot), parameter_units(robot)
    for k in order:
        values = (calibration.box.lower[k], calibration.box.upper[k], calibration.nominal[k])
        numbers = "".join(f"{value:11.4g}" for value in values)
        lines.append(f"{names[k]:<14}{numbers}  {100.0 * share[k]:3.0f} %  {units[k]}")
    return "\n".join(lines)


def run_sensors(options: argparse.Namespace) -> int:
    """Measure sensors at standstill; return the exit status.

    Raises:
        SysidError: The input cannot be used.
    """
    robot = load_robot(options.model)
    recording = read_recording(options.file, robot, recording_options(options))
    found = measure_sensors(robot, recording.batches)
    print(describe_sensors(robot, found))
    values = {
        "source": recording.source,
        "standstill_seconds": round(found.seconds, 3),
        "sampling_period": found.period,
        "stamp_jitter": found.jitter,
        "error_windows": found.lengths.tolist(),
        "joints": {
            name: {
                "effort_rest": found.torque[:, j].tolist(),
                "effort_allan_deviation": found.torque_allan[:, j].tolist(),
                "effort_drift": float(found.drift[j]),
                "velocity_error": found.velocity[:, j].tolist(),
                "position_step": None if np.isnan(found.position_step[j]) else float(found.position_step[j]),
            }
            for j, name in enumerate(robot.joint_names)
        },
    }
    text = (
        "# Measured at standstill: what these data show, no bound on what other data may do. Gains and offsets are\n"
        "# constant and do not show. The lists belong to the windows in error_windows [s]; units: Nm, rad/s, rad, s.\n"
    )
    Path(options.output).write_text(text + yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    print(f"File: {options.output}")
    return ExitStatus.OK


def describe_sensors(robot: RobotModel, found: SensorStatistics) -> str:
    """Describe measured errors beside what the robot file assumes."""
    sensors = robot.sensors
    lines = [
        f"{found.seconds:.3g} s at standstill in {found.segments} pieces, {1.0 / found.period:.4g} Hz",
        f"stamps: within {1e6 * found.jitter:.3g} us of a straight line (assumed {1e6 * sensors.stamp_jitter:.3g} us)",
    ]
    for title, unit, table, assumed in (
        ("torque less its mean", "Nm", found.torque, sensors.effort_absolute_error),
        ("velocity", "rad/s", found.velocity, sensors.velocity_error),
    ):
        lines.append(f"{title}: largest mean over a window [{unit}]")
        heads = "".join(f"{'sample' if length == 0.0 else f'{length:g} s':>10}" for length in found.lengths)
        lines.append(f"  {'joint':<12}{heads}{'assumed':>10}")
        for j, name in enumerate(robot.joint_names):
            lines.append(f"  {name:<12}{''.join(f'{value:10.2g}' for value in table[:, j])}{assumed[j]:10.2g}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its :class:`~sysid_ros.cli.exit_status.ExitStatus`."""
    options = build_parser().parse_args(argv)
    work = run_arm if options.command == "arm" else run_sensors
    return run_command(lambda: work(options), failures=(CalibrationInconsistent,))


if __name__ == "__main__":
    sys.exit(main())
