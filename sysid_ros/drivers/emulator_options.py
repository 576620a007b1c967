"""Options that the programs of all emulated controllers have."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import fields

from sysid_ros.core.errors import ParameterOutOfRange
from sysid_ros.drivers.emulated_plant import PlantSettings
from sysid_ros.drivers.mock import TRUTHS
from sysid_ros.drivers.sensor_simulation import Noise


def add_arm_options(parser: argparse.ArgumentParser, robot: str, robots: str, measured_sign: str) -> None:
    """Adds what the arm is and what it holds.

    Args:
        parser: The command line.
        robot: The robot if none is given.
        robots: Which there are.
        measured_sign: What the sign of the measured torque is on the real arm.
    """
    plant, add = PlantSettings(), parser.add_argument
    add("--robot", default=robot, help=f"{robots} (default: %(default)s)")
    add("--truth", default="random", choices=TRUTHS, help="how the arm's own parameters are chosen")
    add("--payload", default="none", help="what the arm holds: a name from payloads.yaml, a mass [kg] or none")
    add("--noise", default=plant.noise.value, choices=[n.value for n in Noise], help="errors of the sensors")
    add("--seed", type=int, default=plant.seed, help="seed of truth and noise")
    add(
        "--measured-sign", type=float, default=0.0,
        help=f"sign of the measured torque, 1 or -1; 0: {measured_sign} (default: 0)",
    )  # fmt: skip
    add("--command-sign", type=float, default=plant.command_sign, help="sign with which torques are applied")


def add_program_options(parser: argparse.ArgumentParser) -> None:
    """Adds how long the program runs, and waits."""
    add = parser.add_argument
    add("--patience", type=float, default=0.0, help="how long a cycle waits for a slow client [s] (default: 0)")
    add("--seconds", type=float, default=float("inf"), help="how long it runs [s] (default: for ever)")
    add("--while-stdin", action="store_true", help="end when the standard input is closed, as by a parent that dies")


def add_real_time_factor(parser: argparse.ArgumentParser) -> None:
    """Adds how fast simulated time passes, for controllers that pace their clients."""
    parser.add_argument(
        "--real-time-factor", type=float, default=1.0, help="how fast simulated time passes, up to 1 (default: 1)"
    )


def require_real_time_factor(value: float) -> None:
    """Refuses what is none, and to be faster than the real arm.

    Raises:
        ParameterOutOfRange: With the value.
    """
    if not 0.01 <= value <= 1.0:
        raise ParameterOutOfRange("real_time_factor", value, "0.01 to 1")


def pick(kind: type, values: Mapping[str, object]) -> dict[str, object]:
    """Those of the values that are fields of a dataclass, by name."""
    return {one.name: values[one.name] for one in fields(kind) if one.name in values}
