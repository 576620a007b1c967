"""The command line of ``sysid calibrate``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from sysid_ros.cli.exit_status import ExitStatus, endings
from sysid_ros.cli.options import (
    add_known_within,
    add_launch_options,
    add_recording_options,
    check_arm,
    launch_values,
    parse_settings,
    recording_options,
)
from sysid_ros.core.common.command_line import LARGEST_SEED, CommandParser, require_numbers
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.robot_files import available_robots, require_robot
from sysid_ros.processes import ARGUMENTS, Spelling, resolve
from sysid_ros.reports.recordings.options import require_recording, split_load

COM_TOLERANCE = 0.01
"""Largest error of the coordinates of a centre of mass, where nothing is said [m]."""


def calibrate_parser() -> CommandParser:
    """Build the command line."""
    whole = endings(ExitStatus.FAILED)
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
        check=_check,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    arm = commands.add_parser(
        "arm",
        help="from recordings with the empty hand and reference weights",
        description="Calibrates an arm from recordings with the empty hand and with reference weights.",
        examples=of_arm,
        endings=whole,
    )
    arm.add_argument(
        "files",
        nargs="+",
        metavar="FILE[=MASS[+-TOLERANCE]]",
        help="a recording (a bag, .csv, .npz): of the empty hand, or of a reference weight of this mass [kg]",
    )
    arm.add_argument("--serial", required=True, help="serial number of the arm")
    arm.add_argument("--date", default=None, help="day of the recordings (default: today)")
    add_record_options(arm, 180)
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
    run = commands.add_parser(
        "run",
        help="move the arm with the empty hand and reference weights",
        description="Moves the arm with the empty hand and with each reference weight, and calibrates it.",
        examples=of_run,
        endings=moves,
        allow_abbrev=False,
    )
    add_launch_options(run, ARGUMENTS)
    add_record_options(run)
    run.add_argument(
        "--weight",
        action="append",
        default=[],
        metavar="MASS[+-TOLERANCE]",
        help="a reference weight to be attached after the motion with the empty hand [kg]; repeatable",
    )
    run.add_argument(
        "--com",
        type=float,
        nargs=3,
        default=None,
        metavar=("X", "Y", "Z"),
        help="where the centre of mass of every weight is, in the tool frame [m]; without it the arm must move slowly",
    )
    run.add_argument(
        "--com-tolerance",
        type=float,
        default=COM_TOLERANCE,
        help="largest error of each of its coordinates [m] (default: %(default)s)",
    )
    run.add_argument("--motion-time", type=float, default=0.0, help="motion with each load [s]; 0: the node's own")
    run.add_argument("--validation-time", type=float, default=0.0, help="motion to be predicted [s]; 0: the node's own")
    run.add_argument(
        "--sweep-time",
        type=float,
        default=0.0,
        help="time of slow motions there and back before the others, which show friction [s]; 0: the node's own",
    )
    run.add_argument("--seed", type=int, default=0, help="seed of the simulation and the excitation search")
    sensors = commands.add_parser(
        "sensors",
        help="from a recording at standstill",
        description="Measures errors of sensors from a recording at standstill.",
        examples=of_sensors,
        endings=endings(),
    )
    sensors.add_argument("file", help="the recording")
    sensors.add_argument("--output", default="sensors.yaml", help="the file that is written")
    for command in (arm, sensors):
        known = ", ".join(available_robots())
        command.add_argument("--model", required=True, help=f"the arm: one of {known}, or a settings file")
        add_recording_options(command)
    add_known_within(arm)
    return parser


def add_record_options(command: argparse.ArgumentParser, valid_days: int | None = None) -> None:
    """Add what the record of a calibration says of the arm, besides its serial number; None: the node's own days."""
    text = "days for which it may be used; 0: without end" + ("; the node's own by default" * (valid_days is None))
    command.add_argument("--valid-days", type=int, default=valid_days, help=text)
    command.add_argument("--firmware", default=None, help="firmware of the arm")
    command.add_argument("--temperature", type=float, default=None, help="temperature of joints or room [degC]")


def check_record_options(options: argparse.Namespace) -> None:
    """Refuse numbers that cannot be.

    Raises:
        ParameterOutOfRange: One of them is out of range.
    """
    if options.valid_days is not None:
        require_numbers(options, "valid_days")
    if options.temperature is not None:
        require_numbers(options, "temperature", least=-273.15, most=1000.0)


def require_serial(serial: str) -> None:
    """Refuse a serial number that is none.

    Raises:
        ParameterOutOfRange: It is empty.
    """
    if not serial.strip():
        raise ParameterOutOfRange("--serial", serial, "the serial number of the arm")


def require_writable(path: Path) -> None:
    """Refuse a file that could not be written, before the work for it.

    Raises:
        ParameterOutOfRange: Its folder is missing or closed, or it is no file.
    """
    if path.is_dir() or not path.parent.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ParameterOutOfRange("--output", str(path), "a file in a folder that exists and may be written to")


def _check(options: argparse.Namespace) -> None:
    if options.command == "run":
        require_numbers(options, "motion_time", "validation_time", "sweep_time")
        require_numbers(options, "seed", most=LARGEST_SEED - len(options.weight))
        require_robot(options.model)
        resolve(launch_values(options, ARGUMENTS), spelling=Spelling.OPTION)
    else:
        check_arm(options)
        recording_options(options)
    if options.command in ("arm", "run"):
        check_record_options(options)
    if options.command != "sensors":
        require_serial(options.serial_number if options.command == "run" else options.serial)
    if options.command != "run":
        parse_settings(getattr(options, "set", ()))
        require_writable(Path(options.output))
        check = getattr(options, "check", None)
        loads = [options.file] if options.command == "sensors" else [*options.files, *filter(None, [check])]
        for text in loads:
            require_recording(text if options.command == "sensors" else split_load(text)[0])
