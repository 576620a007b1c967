"""The command line of ``sysid calibrate``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from sysid_ros.cli.exit_status import ExitStatus, endings
from sysid_ros.cli.options import (
    add_known_within,
    add_launch_options,
    add_model_option,
    add_recording_options,
    add_set_option,
    check_arm,
    launch_values,
    parse_settings,
    recording_options,
)
from sysid_ros.core.common.command_line import LARGEST_SEED, CommandParser, require_numbers
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.robot_files import require_robot
from sysid_ros.processes import ARGUMENTS, Spelling, resolve
from sysid_ros.reports.recordings.options import require_recording, split_load

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
    text = "a recording that is not used, to compare its torques with those of the identified parameters"
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
