"""The command lines of all emulator programs; they are read before anything that takes long to load."""

from __future__ import annotations

import argparse
from enum import Enum

from sysid_ros.core.common.command_line import ENDINGS, CommandParser, port_number
from sysid_ros.drivers.modes import (
    FRI_PORTS,
    KORTEX_PORT,
    KORTEX_PORT_REALTIME,
    RTDE_PORT,
    SCRIPT_PORT,
    TRUTHS,
    FriVersion,
    Noise,
    TorqueCommand,
)

COMMAND_MODES = ("position", "wrench", "torque")
"""Commands of a client of FRI."""


class Compensation(Enum):
    """Compensation added to the client's torques: gravity and Coriolis torques of the controller's model, or none."""

    MODEL = "model"
    NONE = "none"


def add_arm_options(parser: argparse.ArgumentParser, robot: str, robots: str, measured_sign: str) -> None:
    """Add options of the arm and its load.

    Args:
        parser: The command line.
        robot: The default robot.
        robots: Available ones.
        measured_sign: Sign of the measured torque on the real arm.
    """
    add = parser.add_argument
    add("--robot", default=robot, help=f"{robots} (default: %(default)s)")
    add("--truth", default="random", choices=TRUTHS, help="how the arm's own parameters are chosen")
    text = "load of the arm: a name from payloads.yaml, a mass [kg], MASS at X Y Z or none"
    add("--payload", default="none", help=text)
    add("--noise", default=Noise.UNIFORM.value, choices=[n.value for n in Noise], help="errors of the sensors")
    add("--gripper", default="", help="state of the gripper, as the robot's settings name it; empty: any of them")
    add("--seed", type=int, default=0, help="seed of truth and noise")
    add(
        "--measured-sign", type=float, default=0.0,
        help=f"sign of the measured torque, 1 or -1; 0: {measured_sign} (default: 0)",
    )  # fmt: skip
    add("--command-sign", type=float, default=1.0, help="sign with which torques are applied")


def add_program_options(parser: argparse.ArgumentParser) -> None:
    """Add options of the running time and of waiting."""
    add = parser.add_argument
    add("--patience", type=float, default=0.0, help="how long a cycle waits for a slow client [s] (default: 0)")
    add("--seconds", type=float, default=float("inf"), help="how long it runs [s] (default: for ever)")
    add("--real-time-priority", action="store_true", help="ask for it, to test a client that keeps to real time")
    add("--while-stdin", action="store_true", help="end when the standard input is closed, as by a parent that dies")


def add_real_time_factor(parser: argparse.ArgumentParser) -> None:
    """Add the speed of simulated time, for controllers that pace their clients."""
    parser.add_argument(
        "--real-time-factor", type=float, default=1.0, help="how fast simulated time passes, up to 1 (default: 1)"
    )


def fri_parser() -> CommandParser:
    """Build the parser of the command line."""
    parser = CommandParser(
        prog="sysid emulate fri",
        description="Emulates a KUKA LBR controller with FRI.",
        examples=(
            "sysid emulate fri --robot kuka_lbr_med7 --payload 1.5",
            "sysid emulate fri --version 2.5 --seconds 60",
        ),
        endings=ENDINGS,
    )
    add = parser.add_argument
    add_arm_options(parser, "kuka_lbr_med7", "lbr_iiwa7, lbr_iiwa14, lbr_med7 or lbr_med14", "KUKA's, -1")
    add("--version", default="1.15", choices=[v.value for v in FriVersion], help="version of FRI (default: 1.15)")
    add("--client", default="127.0.0.1", help="address of the client (default: %(default)s)")
    add("--port", type=port_number, default=FRI_PORTS[0], help="UDP port of the client (default: %(default)s)")
    add("--bind", default="127.0.0.1", help="own address (default: %(default)s)")
    add("--bind-port", type=port_number, default=0, help="own UDP port; 0 takes any (default: 0)")
    add("--send-period", type=float, default=0.002, help="time between messages [s] (default: 0.002)")
    add("--receive-multiplier", type=int, default=1, help="the client answers every how many messages (default: 1)")
    add("--command-mode", default="torque", choices=COMMAND_MODES, help="command mode of the client (default: torque)")
    add("--start-time", type=float, default=0.5, help="time until the motion starts [s]")
    add("--restart-time", type=float, default=2.0, help="the same after an error [s]")
    add("--load", default="none", help="the load configured on the controller, in the same words")
    add(
        "--compensation", default="model", choices=[c.value for c in Compensation], help="compensation added to torques"
    )
    add("--friction-compensation", type=float, default=0.0, help="share of friction that is compensated, 0 to 1")
    add("--stiffness", type=float, default=0.0, help="stiffness of the joint impedance [Nm/rad] (default: 0)")
    add("--damping-ratio", type=float, default=0.0, help="its damping ratio, 0 to 1 (default: 0)")
    add(
        "--io", dest="ios", action="append", default=[], metavar="NAME:TYPE:DIRECTION[=VALUE]",
        help="an input or output shared with the client, such as gripper_closed:boolean:input=1; may be given 10 times",
    )  # fmt: skip
    add_real_time_factor(parser)
    add_program_options(parser)
    return parser


def kortex_parser() -> CommandParser:
    """Build the parser of the command line."""
    parser = CommandParser(
        prog="sysid emulate kortex",
        description="Emulates the base of a Kinova Gen3 with Kortex.",
        examples=("sysid emulate kortex --robot kinova_gen3_2f85 --payload dumbbell_4lb",),
        endings=ENDINGS,
    )
    add = parser.add_argument
    add_arm_options(parser, "kinova_gen3_2f85", "kinova_gen3 or kinova_gen3_2f85", "Kinova's, -1")
    add("--bind", default="127.0.0.1", help="own address (default: %(default)s)")
    add("--port", type=port_number, default=KORTEX_PORT, help="TCP port (default: %(default)s)")
    add("--port-realtime", type=port_number, default=KORTEX_PORT_REALTIME, help="UDP port (default: %(default)s)")
    add("--username", default="admin", help="the only user (default: %(default)s)")
    add("--password", default="admin", help="its password (default: %(default)s)")
    add("--serial-number", default="emulated", help="reported serial number (default: %(default)s)")
    add("--watchdog-time", type=float, default=0.1, help="time without commands until it holds [s]")
    add("--tcp-delay", type=float, default=0.02, help="how long an answer over TCP takes [s] (default: 0.02)")
    add_program_options(parser)
    return parser


def ur_parser() -> CommandParser:
    """Build the parser of the command line."""
    parser = CommandParser(
        prog="sysid emulate ur",
        description="Emulates a controller of Universal Robots as far as its payload goes: scripts that set it, and "
        "RTDE that reports it. It moves no arm.",
        examples=("sysid emulate ur", "sysid emulate ur --local --rated-payload 12.5"),
        endings=ENDINGS,
    )
    add = parser.add_argument
    add("--script-port", type=port_number, default=SCRIPT_PORT, help="TCP port of scripts (default: %(default)s)")
    add("--rtde-port", type=port_number, default=RTDE_PORT, help="TCP port of RTDE (default: %(default)s)")
    add("--rated-payload", type=float, default=7.5, help="largest payload [kg] (default: %(default)s)")
    add("--speed", type=float, default=0.0, help="speed of all joints that it reports [rad/s] (default: 0)")
    add("--local", action="store_true", help="not under remote control: scripts are ignored")
    add("--old", action="store_true", help="software that does not report the inertia")
    add_program_options(parser)
    return parser


def ros2_control_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="sysid emulate ros2_control",
        description="Emulates an arm under ros2_control with an effort controller.",
        examples=("sysid emulate ros2_control --robot kinova_gen3_2f85 --payload 1.0",),
        endings=ENDINGS,
    )
    add = parser.add_argument
    add_arm_options(parser, "kinova_gen3_2f85", "a name from config/ or a YAML file", "the one the robot file expects")
    add("--update-rate", type=float, default=1000.0, help="rate of the controllers [Hz] (default: 1000)")
    commands = [t.value for t in TorqueCommand if t is not TorqueCommand.UNSET]
    add("--torque-command", default=TorqueCommand.FULL.value, choices=commands, help="compensation added to commands")
    add("--state-joints", default="", help="joints in the order of the states, others among them (a,b,c)")
    add("--command-joints", default="", help="joints in the order of the commands (a,b,c)")
    add("--motion", action="store_true", help="a controller of its own moves the arm about home")
    add_real_time_factor(parser)
    add("--namespace", default="", help="ROS namespace")
    add_program_options(parser)
    return parser
