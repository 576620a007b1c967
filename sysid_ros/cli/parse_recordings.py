"""The command lines that work on recordings, plans and robot descriptions, and of ``sysid calibrate``."""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path

from sysid_ros.cli.exit_status import ExitStatus, endings
from sysid_ros.cli.options import (
    add_known_within,
    add_launch_options,
    add_model_option,
    add_recording_options,
    add_run_options,
    add_set_option,
    add_view_option,
    check_arm,
    check_view,
    launch_values,
    parse_settings,
    read_settings,
    recording_options,
)
from sysid_ros.core.common.command_line import LARGEST_SEED, CommandParser, require_numbers
from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange
from sysid_ros.core.estimation.parameters.settings import METHODS, PAYLOAD, TARGETS, EstimatorSettings
from sysid_ros.core.identifiability.settings import MASSLESS, MEASURED, TOLERANCE, WINDOW
from sysid_ros.core.model.friction_names import FRICTION_NAMES
from sysid_ros.core.model.robot_files import available_robots, require_robot
from sysid_ros.processes import ARGUMENTS, Spelling, resolve
from sysid_ros.reports.folders import ESTIMATE, require_results_root
from sysid_ros.reports.recordings.options import InvalidRecording, read_mass, require_recording, split_load
from sysid_ros.reports.recordings.recording import RECORDING


def offline_parser() -> CommandParser:
    """Return the parser of the command line."""
    defaults = EstimatorSettings()
    parser = CommandParser(
        prog="sysid offline",
        description="Identifies a payload from a recording: of this suite (.mcap), a bag with joint states (a folder "
        "of rosbag2, .mcap, .db3, .bag), or a table (.csv, .npz). Ctrl-C ends it with what the data so far say.",
        examples=(
            "sysid offline recording.mcap --model kinova_gen3_2f85",
            "sysid offline my_bag/ --model ur5e --output first",
            "sysid offline log.csv --model my_arm.yaml --set torque_lag=0.002",
            "sysid offline monday.npz tuesday.npz --model xarm7 --workers 2",
        ),
        check=_check_offline,
        endings=endings(ExitStatus.FAILED, ExitStatus.NOT_IDENTIFIED),
    )
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="the recording, or several; docs/reference/files.md has the forms")
    add_model_option(parser)
    add("--method", default=defaults.method, choices=METHODS, help="how bounds are computed")
    text = "payload (default), the name of a joint or link, or all (combinations of the parameters of all bodies)"
    add("--body", default=defaults.body, help=text)
    add("--target", default=defaults.target, choices=TARGETS, help="what is identified")
    add("--window", type=float, default=defaults.window_duration, help="length of a momentum window [s]")
    add("--calibration", help="calibration of this very arm, a file of sysid calibrate")
    add("--tare", dest="tare_file", metavar="FILE", help="recording of the arm with its hand empty before")
    add_known_within(parser)
    add("--prior", help="name of the payload prior; default: the arm's own")
    add("--mass", metavar="MASS[+-TOLERANCE]", help="mass of the payload from a scale [kg], such as 1.814+-0.002")
    add("--wrench", metavar="TOPIC", help="wrenches of a wrist sensor in the bag: mass and CoM from rests")
    text = "its largest errors at rest besides the bias: force [N] and moment [Nm], such as 0.5 0.02"
    add("--wrench-error", type=float, nargs=2, metavar=("N", "NM"), help=text)
    add("--wrench-frame", metavar="FRAME", help="frame it measures in; default: the messages' own")
    add_set_option(parser)
    add_recording_options(parser)
    text = "folder for a new folder with the files, of several recordings for one of each; '' writes none"
    add("--output", "--results", default="results", help=text)
    add_view_option(parser, "replay the recording with what was known of the payload over time,")
    add_run_options(parser)
    return parser


def _check_offline(options: argparse.Namespace) -> None:
    is_payload, is_one = read_settings(options).body == PAYLOAD, len(options.files) == 1
    if not is_one and (not options.output or not is_payload or options.view_port != "0"):
        raise ParameterOutOfRange("several recordings", options.files, "a folder --output, no --body and no --view")
    if options.view_port != "0" and not is_payload:
        raise ParameterOutOfRange("--view", "given", "with the payload only, without --body")
    check_view(options)
    check_arm(options)
    recording_options(options)
    if (options.wrench is None) != (options.wrench_error is None):
        raise ParameterOutOfRange("--wrench", options.wrench, "a topic, and --wrench-error with its errors")
    if options.wrench_error is not None and not all(0.0 <= one < math.inf for one in options.wrench_error):
        raise ParameterOutOfRange("--wrench-error", options.wrench_error, "0 or more [N], [Nm]")
    if options.wrench is not None and not is_payload:
        raise ParameterOutOfRange("--wrench", options.wrench, "with the payload only, without --body")
    if options.mass is not None:
        if not is_payload:
            raise ParameterOutOfRange("--mass", options.mass, "with the payload only, without --body")
        read_mass(options.mass)
    for file in options.files:
        require_recording(file)
    if options.output:
        require_results_root(options.output)


def report_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="sysid report",
        description="Makes the report and the payload files again, with the software as it is now: from the recording "
        "in a results folder, or from any recording. Of a run of this suite the report also has the motions with their "
        "certificates, and what a simulated arm truly held.",
        examples=(
            "sysid report results/2026-11-23_10-00-00",
            "sysid report results/2026-11-23_10-00-00 --model my_arm.yaml",
            "sysid report my_bag/ --model ur5e --output first",
        ),
        check=_check_report,
        endings=endings(ExitStatus.FAILED, ExitStatus.NOT_IDENTIFIED),
    )
    add = parser.add_argument
    add("source", type=Path, metavar="FOLDER", help="results folder, or a recording")
    add("--model", help="the arm: a name or a settings file (default: the one that the run names)")
    add("--prior", help="name of the payload prior; default: the arm's own")
    add_set_option(parser)
    add_recording_options(parser)
    add("--output", "--results", default="results", help="folder for a new folder with the files")
    return parser


def locate(source: Path) -> tuple[Path, str | None]:
    """Return the recording of a results folder, or the given one, and the name of the arm where it is known.

    Raises:
        InvalidRecording: It is missing, or a folder with results but no recording.
    """
    if not source.exists():
        raise InvalidRecording(source, "the folder or file", "missing", "a results folder, or a recording")
    if not (source / ESTIMATE).is_file():
        return (source / RECORDING, None) if (source / RECORDING).is_file() else (source, None)
    from sysid_ros.core.common.yaml_files import read_yaml  # not for help

    known = read_yaml(source / ESTIMATE)
    if not (source / RECORDING).is_file():
        made_from = known.get("source", "a recording")
        raise InvalidRecording(source, RECORDING, "missing", f"the recording itself ({made_from}), with --model")
    return source / RECORDING, str(known["robot"])


def _check_report(options: argparse.Namespace) -> None:
    path, known = locate(options.source)
    require_recording(path)
    if options.model or known:
        require_robot(options.model or str(known))
    parse_settings(options.set)
    recording_options(options)
    if options.output:
        require_results_root(options.output)


def import_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="sysid import",
        description="Turns a recording into a table in SI units and the robot's joint order. What every command does "
        "with a bag, done once and kept: joints by name, sign of the efforts, samples left out, and velocities where "
        "nobody measured them. Ctrl-C keeps what was read by then.",
        examples=(
            "sysid import my_bag/ --model ur5e --units 'q=deg' --effort-sign -1",
            "sysid import log.csv --model xarm7 --output log.npz",
        ),
        check=_check_import,
        endings=endings(),
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="a bag, a table, or a recording of this suite")
    add_model_option(parser)
    add("--output", type=Path, help="the table, .npz (default: beside the recording)")
    add_recording_options(parser)
    return parser


def _check_import(options: argparse.Namespace) -> None:
    require_robot(options.model)
    output = options.output or options.file.with_suffix(".npz")
    if output.suffix.lower() != ".npz":
        raise InvalidRecording(output, "the ending", f"'{output.suffix}'", ".npz")
    if not output.absolute().parent.is_dir():
        raise InvalidRecording(output, "its folder", f"missing ({output.parent})", "one that exists")
    if output.exists():
        raise InvalidRecording(output, "the file", "there already", "a new name: --output")
    require_recording(options.file)
    recording_options(options)


def new_robot_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="sysid new-robot",
        description="Writes the settings file of any arm from its URDF, and from a bag what it shows of the sensors. "
        "It is a commented YAML file; with it every command takes the arm: --model my_arm.yaml. With --total-mass, "
        "--lock or --repair it names a URDF of its own, NAME_completed.urdf, which is written beside it.",
        examples=(
            "sysid new-robot ur5e.urdf",
            "sysid new-robot panda.urdf --tool panda_hand_tcp --from-bag motion/",
            "sysid new-robot irb1200.urdf --total-mass 54 --lock lift=0.4",
        ),
        check=_check_new_robot,
        endings=endings(),
    )
    add = parser.add_argument
    add("urdf", type=Path, metavar="URDF", help="the URDF, with all xacro macros expanded; meshes may be missing")
    add("--name", help="name of the arm (default: that of the URDF file)")
    add("--tool", metavar="LINK", help="link that holds the payload (default: the last)")
    add("--joints", help="joints of the arm from the base on, with commas (default: all to the tool)")
    text = "mass of the arm and its base from the data sheet: links without one get a share, in wide boxes"
    add("--total-mass", type=float, metavar="KG", help=text)
    text = "joints (a lift, the vertical one of a SCARA) that rest in all recordings, where [m or rad]"
    add("--lock", nargs="+", default=[], metavar="JOINT=POSITION", help=text)
    add("--repair", action="store_true", help="take the nearest possible body for each that cannot exist")
    text = "a recording of the arm: home posture, and errors and sign of its sensors where it rests for a second"
    add("--from-bag", type=Path, metavar="BAG", help=text)
    add("--output", type=Path, help="the settings file (default: NAME.yaml)")
    add_recording_options(parser)
    return parser


def _check_new_robot(options: argparse.Namespace) -> None:
    require_robot(options.urdf if options.urdf.suffix == ".urdf" else options.urdf.with_suffix(".urdf"))
    name = options.name or options.urdf.stem
    if Path(name).name != name:
        raise ParameterOutOfRange("--name", name, "a name without slashes; --output says where")
    output = options.output or Path(f"{name}.yaml")
    if output.suffix not in (".yaml", ".yml"):
        raise ParameterOutOfRange("--output", str(output), "a file .yaml")
    if output.exists():
        raise ParameterOutOfRange("--output", str(output), "a new file; this one is there already")
    recording_options(options)
    if options.from_bag is not None:
        require_recording(options.from_bag)


def verify_parser() -> CommandParser:
    """Return the parser of the options of the command."""
    parser = CommandParser(
        prog="sysid verify",
        description="Re-verifies all certified plans of a recording from scratch: hashes, start states, times, the "
        "controller's tracking bound from plan to plan and in stops, and the proof over continuous time. Ctrl-C ends "
        "it with the plans so far.",
        examples=(
            "sysid verify recording.mcap",
            "sysid verify plans.json --model kinova_gen3_2f85",
            "sysid verify recording.mcap --enclose-terms",
        ),
        check=_check_verify,
        endings=endings(ExitStatus.FAILED),
    )
    add = parser.add_argument
    add("file", metavar="FILE", type=Path, help="recording (.mcap), or certified plans as YAML or JSON")
    add("--model", help="name or settings file of the robot; default: the name in each plan")
    text = (
        "least height of the ground in the scenes that plans are proven for [m], as the safe planner was started "
        "with; none: there need be no ground (default: any height, but there is one)"
    )
    add("--ground", metavar="HEIGHT", default="any", help=text)
    text = (
        "also prove that all limits are kept with tracking bounds that are proven throughout: terms of the model "
        "are bounded, not estimated with a measured allowance. Takes seconds for a plan"
    )
    add("--enclose-terms", action="store_true", help=text)
    return parser


def _check_verify(options: argparse.Namespace) -> None:
    if options.model is not None:
        require_robot(options.model)
    if not options.file.is_file():
        allowed = "a recording (.mcap) or certified plans (.yaml, .json)"
        raise InvalidRecording(options.file, "the file", "missing", allowed)


def identifiability_parser() -> CommandParser:
    """Return the parser of the options of the command."""
    parser = CommandParser(
        prog="sysid identifiability",
        description="Says which inertial parameters of a robot can be known: of any URDF, meshes are not needed, and "
        "no running system is. With --data it also says what a recording knows.",
        examples=(
            "sysid identifiability --model ur5e",
            "sysid identifiability --urdf robot.urdf --floating --html report.html",
            "sysid identifiability --model xarm7 --data log.npz --unknown payload",
        ),
        check=_check_identifiability,
        endings=endings(),
    )
    add = parser.add_argument
    robot = parser.add_mutually_exclusive_group(required=True)
    robot.add_argument("--urdf", type=Path, help="URDF of any robot (xacro expanded; meshes are not needed)")
    robot.add_argument("--model", help=f"an arm of this package ({', '.join(available_robots())}) or a settings file")
    text = "gravity in the frame of the root link [m/s^2], 0 0 0 for none; default 0 0 -9.81, or the arm's own"
    add("--gravity", nargs=3, type=float, metavar=("X", "Y", "Z"), help=text)
    add("--floating", action="store_true", help="the root link floats freely (a legged or space robot)")
    add("--lock", nargs="+", default=[], metavar="JOINT", help="joints that do not move, at zero")
    text = "what bodies without mass in a URDF are: frames, or bodies of unknown inertia (default %(default)s)"
    add("--massless", choices=MASSLESS, default="as_modelled", help=text)
    add("--rotors", type=Path, help="YAML with the rotors of the motors, see docs/theory/identifiability.md")
    add("--measured", choices=MEASURED, default="generalized_forces", help="what is measured (default %(default)s)")
    add("--static", action="store_true", help="postures only, nothing moves")
    text = "which friction parameters of each joint are unknown too; default none, with --data what the sensor feels"
    add("--joint-parameters", nargs="*", choices=FRICTION_NAMES, help=text)
    add("--known", nargs="+", default=[], metavar="JOINT", help="joints whose bodies are known")
    add("--tolerance", type=float, default=TOLERANCE, help="what counts as zero, relative [-] (default %(default)g)")
    add("--data", type=Path, help="recording (.mcap, .csv, .npz) to say what it knows; with --model")
    text = "with --data: what is to be identified (default %(default)s)"
    add("--unknown", choices=("arm", "payload"), default="arm", help=text)
    add("--window", type=float, default=WINDOW, help="momentum window [s] (default %(default)g)")
    add("--html", type=Path, help="write the report as one HTML page")
    add("--markdown", type=Path, help="write the report as Markdown")
    add("--yaml", type=Path, help="write base parameters with all coefficients as YAML, for programs")
    return parser


def _check_identifiability(options: argparse.Namespace) -> None:
    if options.data is not None and options.model is None:
        raise ParameterOutOfRange("--data", str(options.data), "a recording of an arm that --model names")
    if options.model is not None:
        require_robot(options.model)
    if options.data is not None:
        require_recording(options.data)
    for path in filter(None, (options.urdf, options.rotors)):
        if not path.is_file():
            raise ModelError(f"{path}: there is no such file")


COM_TOLERANCE = 0.01
"""Largest error of the coordinates of a centre of mass, where nothing is said [m]."""


def calibrate_parser() -> CommandParser:
    """Build the command line."""
    moves = endings(ExitStatus.FAILED, ExitStatus.NODE_DIED, ExitStatus.NOT_IDENTIFIED)
    of_arm = (
        "sysid calibrate arm empty.mcap weight.mcap=2.0+-0.002 \\\n      --model kinova_gen3_2f85 --serial K0123",
    )
    of_run = (
        "sysid calibrate run --model kinova_gen3_2f85 --serial K0123 \\\n      --weight 2.0+-0.002 --com 0 0 0.14",
    )
    of_sensors = ("sysid calibrate sensors rest.mcap --model kinova_gen3_2f85",)
    parser = CommandParser(
        prog="sysid calibrate",
        description="Calibrates an arm or its sensors.\n\n"
        "run starts the nodes, moves the arm, simulated or real, with the empty hand and then with each reference "
        "weight, and calibrates it. arm does the same from recordings. Both write a calibration file, which a robot "
        "file names as calibration: or sysid offline --calibration takes. sensors: a recording at standstill shows "
        "what can be measured of the errors of the sensors, with the data it rests on.",
        examples=(*of_run, *of_arm, *of_sensors),
        endings=moves,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    arm = commands.add_parser(
        "arm",
        help="from recordings with the empty hand and reference weights",
        description="Calibrates an arm from recordings with the empty hand and with reference weights.",
        examples=of_arm,
        endings=endings(ExitStatus.FAILED),
        check=_check_arm,
    )
    add = arm.add_argument
    text = "a recording (a bag, .csv, .npz): of the empty hand, or of a reference weight of this mass [kg]"
    add("files", nargs="+", metavar="FILE[=MASS[+-TOLERANCE]]", help=text)
    add("--serial", required=True, help="serial number of the arm")
    add("--date", help="day of the recordings (default: today)")
    _add_record_options(arm, 180, "")
    text = "how much a torque offset may change between recordings and until use [Nm]; one number or one per joint"
    add("--offset-change", type=float, nargs="+", default=[0.0], metavar="NM", help=text)
    add_set_option(arm)
    add("--output", default="arm.yaml", help="the calibration file that is written")
    text = "a recording that is not used, to compare its torques with the identified parameters"
    add("--check", metavar="FILE[=MASS]", help=text)
    add("--report", metavar="FOLDER", help="also write a page, and the URDF, into this folder")
    run = commands.add_parser(
        "run",
        help="move the arm with the empty hand and reference weights",
        description="Moves the arm with the empty hand and with each reference weight, and calibrates it.",
        examples=of_run,
        endings=moves,
        check=_check_run,
        allow_abbrev=False,
    )
    add_launch_options(run, ARGUMENTS)
    _add_record_options(run, None, "; the node's own by default")
    add = run.add_argument
    text = "a reference weight to be attached after the motion with the empty hand [kg]; repeatable"
    add("--weight", action="append", default=[], metavar="MASS[+-TOLERANCE]", help=text)
    text = "where the centre of mass of every weight is, in the tool frame [m]; without it the arm must move slowly"
    add("--com", type=float, nargs=3, metavar=("X", "Y", "Z"), help=text)
    text = "largest error of each of its coordinates [m] (default: %(default)s)"
    add("--com-tolerance", type=float, default=COM_TOLERANCE, help=text)
    add("--motion-time", type=float, default=0.0, help="motion with each load [s]; 0: the node's own")
    add("--validation-time", type=float, default=0.0, help="motion to be predicted [s]; 0: the node's own")
    text = "time of slow motions there and back before the others, which show friction [s]; 0: the node's own"
    add("--sweep-time", type=float, default=0.0, help=text)
    add("--seed", type=int, default=0, help="seed of the simulation and the excitation search")
    sensors = commands.add_parser(
        "sensors",
        help="from a recording at standstill",
        description="Measures errors of sensors from a recording at standstill.",
        examples=of_sensors,
        endings=endings(),
        check=_check_recorded,
    )
    sensors.add_argument("file", help="the recording")
    sensors.add_argument("--output", default="sensors.yaml", help="the file that is written")
    for command in (arm, sensors):
        add_model_option(command)
        add_recording_options(command)
    add_known_within(arm)
    return parser


def _add_record_options(command: argparse.ArgumentParser, valid_days: int | None, without: str) -> None:
    text = f"days for which it may be used; 0: without end{without}"
    command.add_argument("--valid-days", type=int, default=valid_days, help=text)
    command.add_argument("--firmware", help="firmware of the arm")
    command.add_argument("--temperature", type=float, help="temperature of joints or room [degC]")


def _check_record(options: argparse.Namespace, serial: str) -> None:
    if options.valid_days is not None:
        require_numbers(options, "valid_days")
    if options.temperature is not None:
        require_numbers(options, "temperature", least=-273.15, most=1000.0)
    if not serial.strip():
        raise ParameterOutOfRange("--serial", serial, "the serial number of the arm")


def _check_run(options: argparse.Namespace) -> None:
    require_numbers(options, "motion_time", "validation_time", "sweep_time")
    require_numbers(options, "seed", most=LARGEST_SEED - len(options.weight))
    require_robot(options.model)
    resolve(launch_values(options, ARGUMENTS), spelling=Spelling.OPTION)
    _check_record(options, options.serial_number)


def _check_arm(options: argparse.Namespace) -> None:
    _check_record(options, options.serial)
    parse_settings(options.set)
    _check_recorded(options, *options.files, *filter(None, [options.check]))


def _check_recorded(options: argparse.Namespace, *loads: str) -> None:
    """Refuse an arm, recordings (the only one has no load) or an output that cannot be used."""
    check_arm(options)
    recording_options(options)
    path = Path(options.output)
    if path.is_dir() or not path.parent.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ParameterOutOfRange("--output", options.output, "a file in a folder that exists and may be written to")
    for file in [split_load(text)[0] for text in loads] or [options.file]:
        require_recording(file)
