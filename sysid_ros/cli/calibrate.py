"""Calibrates an arm or its sensors: ``sysid calibrate run``, ``arm`` and ``sensors``."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml
from rich.console import RenderableType

from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.offline import load_known, read_with_progress
from sysid_ros.cli.options import launch_values, parse_settings, recording_options
from sysid_ros.cli.parse_recordings import COM_TOLERANCE
from sysid_ros.cli.suite import Suite, client_of, say, say_where, suite_environment
from sysid_ros.cli.terminal import ProgressDisplay, hanging, make_table, round_up, show, watching, working
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import Cancelled, ParameterOutOfRange, SysidError
from sysid_ros.core.common.interrupts import Interrupts
from sysid_ros.core.estimation.calibration import CalibrationProgress, describe_doubts, reference_weight
from sysid_ros.core.estimation.openings import HeldOutFit, calibrate_openly, fit_halves
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.sensor_statistics import SensorStatistics, measure_sensors
from sysid_ros.core.estimation.whole_arm import SLOW
from sysid_ros.core.model.calibrated import open_arm
from sysid_ros.core.model.calibration import (
    ArmCalibration,
    CalibrationRecord,
    ConstantBounds,
    opened_settings,
    save_calibration,
)
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel, parameter_names, parameter_units, tool_transform
from sysid_ros.core.procedure.arm import stated_box
from sysid_ros.drivers.modes import Mode
from sysid_ros.processes import ARGUMENTS, ParameterValue, Spelling, resolve
from sysid_ros.reports.arm import MEAN_TIME, TorqueCheck, make_result, prepare_files, robot_files, write_arm_result
from sysid_ros.reports.folders import make_results_directory
from sysid_ros.reports.recordings.files import KnownRecordings, read_recordings
from sysid_ros.reports.recordings.options import read_mass
from sysid_ros.reports.recordings.recording import RECORDING
from sysid_ros.start_check import check_suite, require_movable

CLIENT_MODULE = "sysid_ros.nodes.calibrate_client"
"""Sends the goal and shows progress; its exit status is the runner's."""
LARGEST_CHANGE = 1e4
"""Of torque offsets: more than any joint has [Nm]."""
_LISTED = 20
"""Parameters listed in the report: the ones that narrowed most."""


def run_arm(options: argparse.Namespace) -> int:
    """Calibrate an arm; return the exit status."""
    robot = load_known(options)
    settings = parse_settings(options.set)
    robot.gripper_state(settings.gripper)
    change = np.asarray(options.offset_change, dtype=float)
    if change.size not in (1, robot.n) or not np.all((change >= 0.0) & (change <= LARGEST_CHANGE)):
        allowed = f"one number or {robot.n}, from 0 to {LARGEST_CHANGE:g}"
        raise ParameterOutOfRange("--offset-change [Nm]", options.offset_change, allowed)
    try:
        day = datetime.date.fromisoformat(options.date) if options.date else datetime.date.today()
    except ValueError:
        raise ParameterOutOfRange("--date", options.date, "a date like 2026-11-22") from None
    try:
        last = day + datetime.timedelta(days=options.valid_days) if options.valid_days else None
    except OverflowError:
        raise ParameterOutOfRange("--valid-days", options.valid_days, "0 for no end, or fewer") from None
    folder = None if options.report is None else Path(options.report)
    if folder is not None:
        prepare_files(folder, robot)
    reading = recording_options(options)
    with watching("reading the recordings") as watch:
        used = read_recordings(options.files, robot, options.serial, reading, watch, settings.gripper)
    kept = None
    if options.check is not None:
        with watching(f"reading {options.check}") as watch:
            kept = read_recordings([options.check], robot, options.serial, reading, watch, settings.gripper)
    warnings = [*used.warnings, *(() if kept is None else kept.warnings)]
    for sentence in warnings:
        show(hanging("warning: ", sentence))
    record = CalibrationRecord(
        serial=options.serial,
        date=day.isoformat(),
        expires=None if last is None else last.isoformat(),
        firmware=options.firmware,
        temperature=options.temperature,
        offset_change=tuple(np.broadcast_to(change, robot.n).tolist()),
    )
    with working("fitting the arm"):
        fit, text = None, ""
        try:
            fit = fit_halves(used.robot, used.recordings)
        except SysidError as error:
            text = str(error)
    if fit is not None and fit.lag is not None and not settings.torque_lag and not settings.torque_lag_tolerance:
        record = replace(record, openings=(fit.lag,))
    calibration, was_stopped = _calibrate_with_progress(used, record, settings)
    save_calibration(calibration, options.output)
    show("", *describe_calibration(robot, calibration))
    show("", *(describe_fit(robot, fit) if fit is not None else [f"no fit beside the bounds: {text}"]))
    show(*(hanging("warning: ", sentence) for sentence in describe_doubts(calibration.record)))
    show(f"File: {options.output}")
    opened = opened_settings(calibration.record.openings)
    if opened:
        needed = " ".join(f"--set {name}={round_up(value, 4):.10g}" for name, value in opened.items())
        show(hanging("Use it with: ", needed))
    if was_stopped:
        return ExitStatus.STOPPED
    if folder is None and kept is None:
        return ExitStatus.OK
    with working("bounding the base parameters"):
        result = make_result(used.robot, calibration, settings, None if kept is None else kept.recordings[0], warnings)
    if result.check is not None:
        show("", *describe_check(robot, result.check))
    if folder is not None:
        with working("writing the files"):
            found = write_arm_result(result, folder, options.model)
        for sentence in found:
            show(hanging("warning: ", sentence))
        print(f"Files: {folder}")
    return ExitStatus.OK


def describe_fit(robot: RobotModel, fit: HeldOutFit) -> list[RenderableType]:
    """Describe a fit: how well halves of the recordings predict each other, lag, tilt, and friction terms."""
    rows = [
        (name, f"{before:.3f}", f"{after:.3f}")
        for name, before, after in zip(robot.joint_names, fit.nominal, fit.residual, strict=True)
    ]
    lags = " and ".join(f"{1e3 * half.torque_lag:.0f}" for half in fit.halves)
    lines: list[RenderableType] = [
        f"Fit beside the bounds (least squares, no guarantee): gravity tilted by {np.degrees(fit.fit.tilt):.1f} deg, "
        f"torques {1e3 * fit.fit.torque_lag:.0f} ms late ({lags} ms in halves)",
        f"RMS torque residual below {SLOW:g} Hz [Nm], of halves of the recordings predicted from the other halves",
        make_table(("joint", "nominal", "fit"), rows),
    ]
    worse = [name for name, is_worse in zip(robot.joint_names, fit.residual > fit.nominal, strict=True) if is_worse]
    if worse:
        lines.append(
            f"the fit predicts {', '.join(worse)} worse than the nominal model: half of the motion is too little"
        )
    for test in fit.tests:
        joints = [name for name, need in zip(robot.joint_names, test.is_needed, strict=True) if need]
        if joints:
            lines.append(f"friction with {test.name} predicts better: {', '.join(joints)}")
    return lines


def _calibrate_with_progress(
    used: KnownRecordings, record: CalibrationRecord, settings: EstimatorSettings
) -> tuple[ArmCalibration, bool]:
    with ProgressDisplay() as display, Interrupts(patience=1) as interrupts:

        def tell(progress: CalibrationProgress) -> None:
            width = f"widths {100.0 * progress.relative_width:.0f} %" if progress.relative_width < 1.0 else ""
            display.update(progress.phase, progress.share, width)

        try:
            stop = (lambda: interrupts.is_set, lambda one: display.message(f"contradicted, and opened: {one}"))
            return calibrate_openly(used.robot, used.recordings, record, settings, tell, *stop), False
        except Cancelled as cancelled:
            if cancelled.partial is None:
                display.message("stopped before anything was proven; the recordings are as they were")
                raise KeyboardInterrupt from None
            display.message("stopped: bounds proven so far are kept")
            return cancelled.partial, True


def run_motions(options: argparse.Namespace) -> int:
    """Start the nodes and move the arm, once with each load; return the exit status.

    The nodes end before a load is changed: meanwhile the arm's own controller holds it.
    """
    robot, arguments = load_robot(options.model), launch_values(options, ARGUMENTS)
    started = resolve(arguments, spelling=Spelling.OPTION)
    if options.com is None and options.com_tolerance != COM_TOLERANCE:
        raise ParameterOutOfRange("--com-tolerance", options.com_tolerance, "nothing without --com")
    (robot.uncalibrated or robot).gripper_state(options.gripper)
    com = None if options.com is None else _com_box(robot, options.com, options.com_tolerance)
    masses = [read_mass(text) for text in options.weight]
    for one in masses:
        stated_box(robot, reference_weight(robot, *one, com))
    mode = Mode(options.mode)
    is_simulated, simulated = mode.is_simulated, "arm_emulator" if mode.is_emulated else "arm_driver"
    first = {simulated: {"payload": "none", "seed": options.seed}} if is_simulated else {}
    found = check_suite(arguments, started, first, Spelling.OPTION)
    values = found["identification"]
    if values.is_moved_by_others:
        allowed = "one in which this package moves the arm; record what others move, and calibrate with"
        raise ParameterOutOfRange("--mode", options.mode, f"{allowed} sysid calibrate arm")
    times = {name: getattr(options, name) for name in ("motion_time", "validation_time", "sweep_time")}
    names = ("valid_days", "firmware", "temperature")
    record = {name: value for name in names if (value := getattr(options, name)) is not None}
    replace(values.arm, **record, **{name: value for name, value in times.items() if value})
    require_movable(found, "sysid calibrate run", Spelling.OPTION)
    results = make_results_directory(options.results)
    recorded: list[str] = []
    for number, (mass, tolerance) in enumerate([(0.0, 0.0), *masses]):
        folder = results / (f"{number + 1}_weight" if number else "1_empty")
        if not is_simulated:
            _ask(f"Attach the reference weight of {mass:g} kg" if number else "Empty the hand")
        elif number:
            say(f"the simulated arm holds a reference weight of {mass:g} kg now")
        log = folder / "log"
        environment = suite_environment(log, options.domain_id, vars(options))
        say_where(environment, log)
        known: dict[str, ParameterValue] = {"results_root": str(results), "arm_gripper": options.gripper}
        known.update({f"arm_{name}": value for name, value in record.items()})
        if options.sweep_time and not number:  # friction of the empty hand
            known["arm_sweep_time"] = options.sweep_time
        own = {"identification": known}
        if is_simulated:
            place = " at " + " ".join(map(repr, options.com)) if options.com is not None else ""
            own[simulated] = {"payload": f"{mass!r}{place}" if number else "none", "seed": options.seed}
        goal: dict[str, object] = {"serial": options.serial_number, "results": folder}
        goal |= {"seed": options.seed + number, "mass": mass, "tolerance": tolerance}
        if number and com is not None:
            goal["com"] = ",".join(map(repr, com.center.tolist()))
            goal["com_tolerance"] = float(com.radius.max())
        goal |= {"motion_time": options.motion_time, "validation_time": options.validation_time, "recording": recorded}
        client = client_of(CLIENT_MODULE, goal, options.robot_name)
        status = Suite(started, client, log, environment, own).run()
        if status != ExitStatus.OK:
            return status
        recorded.append(f"{folder / RECORDING}={mass!r}+-{tolerance!r}" if number else str(folder / RECORDING))
    print(f"To use it: sysid identify --model {folder / robot_files(robot)[0]} --serial {options.serial_number}")
    return ExitStatus.OK


def _com_box(robot: RobotModel, com: Sequence[float], tolerance: float) -> Box:
    """Return the box of a CoM given in the tool frame [m] in the last joint's frame, (3,)."""
    if not 0.0 <= tolerance < np.inf:
        raise ParameterOutOfRange("--com-tolerance [m]", tolerance, "0 or more")
    rotation, origin = tool_transform(robot)
    return Box.around(rotation @ np.array(com) + origin, np.abs(rotation) @ np.full(3, tolerance))


def _ask(request: str) -> None:
    try:
        input(f"{request}, then press Enter: ")
    except EOFError:
        raise SysidError(f"{request}: there is no terminal to confirm it in; run the command in one") from None


def describe_check(robot: RobotModel, check: TorqueCheck) -> list[RenderableType]:
    """Describe the torque residuals of a motion that was not used."""
    columns = zip(robot.joint_names, check.before, check.after, strict=True)
    rows = [(name, f"{before:.3f}", f"{after:.3f}") for name, before, after in columns]
    title = (
        f"{check.name}, not used: RMS torque residual [Nm], of means over {MEAN_TIME:g} s in motion, with the "
        "parameters before and now"
    )
    return [title, make_table(("joint", "before", "now"), rows)]


def describe_calibration(robot: RobotModel, calibration: ArmCalibration) -> list[RenderableType]:
    """Describe a calibration: its recordings, and the parameters that narrowed most."""
    record = calibration.record
    until = f", to be used until {record.expires}" if record.expires else ""
    lines: list[RenderableType] = [f"Arm {record.serial} ({calibration.robot}), {record.date}{until}"]
    lines += [f"  {text}" for text in record.recordings]
    if robot.gripper_change is not None:
        lines.append(f"state of the gripper: {record.gripper or 'not stated'}")
    if record.share is not None:
        lines.append(f"{100.0 * record.share:.0f} % of the allowed errors used")
    lines.append(f"{len(calibration.matrix)} certified rows on the parameters that recordings share")
    before, after = open_arm(robot, record.openings).theta_box.width, calibration.box.width
    share = np.divide(after, before, out=np.ones_like(after), where=before > 0.0)
    order = [int(k) for k in np.argsort(share)[:_LISTED] if share[k] < 0.99]
    constants = _describe_constants(calibration.constants)
    if not order:
        only = ", only combinations of them" if len(calibration.matrix) else ""
        return [*lines, f"no single parameter narrowed{only}", *constants]
    names, units = parameter_names(robot), parameter_units(robot)
    rows = []
    for k in order:
        values = (calibration.box.lower[k], calibration.box.upper[k], calibration.nominal[k])
        rows.append((names[k], units[k], *(f"{value:.4g}" for value in values), f"{100.0 * share[k]:.0f} %"))
    heads = ("parameter", "unit", "lower", "upper", "nominal", "of the range before")
    return [*lines, make_table(heads, rows, left=2), *constants]


def _describe_constants(constants: ConstantBounds) -> list[RenderableType]:
    if not len(constants):
        return []
    columns = (constants.lower, constants.upper, constants.prior.lower, constants.prior.upper)
    rows = [
        (name, unit, *(f"{value + 0.0:.4g}" for value in bounds))
        for name, unit, *bounds in zip(constants.names, constants.units, *columns, strict=True)
    ]
    heads = ("sensors and mounting", "unit", "lower", "upper", "lower before", "upper before")
    return [make_table(heads, rows, left=2)]


def run_sensors(options: argparse.Namespace) -> int:
    """Measure sensors at standstill; return the exit status."""
    robot = load_robot(options.model)
    recording, _ = read_with_progress(options.file, robot, recording_options(options))
    with working("measuring"):
        found = measure_sensors(robot, recording.batches)
    show(*describe_sensors(robot, found))
    (effort, effort_integral), (velocity, velocity_integral) = map(
        found.integral_bounds, (found.torque, found.velocity)
    )
    values = {
        "source": recording.source,
        "standstill_seconds": round(found.seconds, 3),
        "sampling_period": found.period,
        "stamp_jitter": found.jitter,
        "error_windows": found.lengths.tolist(),
        "joints": {
            name: {
                "effort_rest": found.torque[:, j].tolist(),
                "effort_mean_error": float(effort[j]),
                "effort_integral_error": float(effort_integral[j]),
                "effort_allan_deviation": found.torque_allan[:, j].tolist(),
                "effort_drift": float(found.drift[j]),
                "velocity_error": found.velocity[:, j].tolist(),
                "velocity_mean_error": float(velocity[j]),
                "velocity_integral_error": float(velocity_integral[j]),
                "position_step": None if np.isnan(found.position_step[j]) else float(found.position_step[j]),
            }
            for j, name in enumerate(robot.joint_names)
        },
    }
    text = (
        "# Measured at standstill: what these data show, no bound on what other data may do. Gains and offsets are\n"
        "# constant and do not show. Lists belong to the windows in error_windows [s]; units: Nm, Nms, rad/s, rad, s.\n"
    )
    Path(options.output).write_text(text + yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    print(f"File: {options.output}")
    return ExitStatus.OK


def describe_sensors(robot: RobotModel, found: SensorStatistics) -> list[RenderableType]:
    """Describe measured errors beside the assumptions of the robot file."""
    sensors = robot.sensors
    lines: list[RenderableType] = [
        f"{found.seconds:.3g} s at standstill in {found.segments} pieces, {1.0 / found.period:.4g} Hz",
        f"stamps: within {1e6 * found.jitter:.3g} us of a straight line (assumed {1e6 * sensors.stamp_jitter:.3g} us)",
    ]
    heads = ["sample" if length == 0.0 else f"{length:g} s" for length in found.lengths]
    for title, unit, table, assumed in (
        ("torque less its mean", "Nm", found.torque, sensors.effort_absolute_error),
        ("velocity", "rad/s", found.velocity, sensors.velocity_error),
    ):
        columns = [*table, assumed, *found.integral_bounds(table)]
        rows = [(name, *(f"{column[j]:.2g}" for column in columns)) for j, name in enumerate(robot.joint_names)]
        lines += [
            f"{title}: largest mean over a window [{unit}], and m and I of its integral m T + I",
            make_table(("joint", *heads, "assumed", "m", "I"), rows),
        ]
    return lines


def run(options: argparse.Namespace) -> int:
    """Calibrate, and return the exit status."""
    return {"run": run_motions, "arm": run_arm, "sensors": run_sensors}[options.command](options)
