"""Runs the whole suite without ``ros2 launch``: ``sysid identify --model kinova_gen3_2f85``.

It starts the processes of :data:`sysid_ros.processes.IDENTIFY`, the same executables with the same parameters as
``identify.launch.py``, on a private ROS domain that stays on this machine; sends one goal through
``sysid_ros.nodes.identify_client``; and ends everything. Ctrl-C stops the arm first, then the nodes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from sysid_ros.cli.exit_status import ExitStatus, endings
from sysid_ros.cli.suite import (
    Suite,
    add_launch_options,
    client_of,
    launch_values,
    require_modules,
    say,
    say_where,
    suite_environment,
)
from sysid_ros.cli.view import add_view_option, free_port
from sysid_ros.core.common.command_line import CommandParser, require_numbers
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.model.loader import load_robot
from sysid_ros.processes import ARGUMENTS, IDENTIFY, Process, is_emulated, network_of, resolve
from sysid_ros.reports.writer import make_results_directory
from sysid_ros.ros.environment import LOOPBACK_PROFILE, PROFILE_VARIABLE
from sysid_ros.view.scene import LOOPBACK

CLIENT_MODULE = "sysid_ros.nodes.identify_client"
"""Sends the goal and shows progress and result; its exit status is that of the runner."""


def build_parser() -> CommandParser:
    """Return the parser of the command line: the launch arguments as options, and what only the runner has."""
    parser = CommandParser(
        prog="sysid identify",
        description="Identifies what an arm holds, with guaranteed bounds: starts the nodes, sends one goal and ends "
        "everything. Ctrl-C brings the arm to rest first.",
        examples=(
            "sysid identify --model kinova_gen3_2f85 --payload dumbbell_4lb",
            "sysid identify --model kuka_lbr_med7 --mode emulated --payload 1.5",
            "sysid identify --mode hardware --robot-ip 192.168.1.10 --max-motion-time 20",
        ),
        endings=endings(ExitStatus.FAILED, ExitStatus.NODE_DIED, ExitStatus.NOT_IDENTIFIED),
        allow_abbrev=False,
    )
    add_launch_options(parser, ARGUMENTS)
    parser.add_argument(
        "--payload",
        default="dumbbell_4lb",
        help="what the simulated arm holds: a name from config/payloads.yaml, a mass [kg] of the default's shape, or "
        "'none' (default: dumbbell_4lb)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulation and the excitation search")
    parser.add_argument("--max-motion-time", type=float, default=0.0, help="longest motion of the arm [s]; 0: default")
    parser.add_argument("--trajectories", type=int, default=0, help="number of exciting motions; 0: default")
    parser.add_argument(
        "--target-mass-width", type=float, default=0.0, help="stop when the mass is known this well [kg]; 0: never"
    )
    add_view_option(parser, "show the arm, its payload, plans and surroundings")
    parser.add_argument("--nodes-only", action="store_true", help="send no goal; run the nodes until Ctrl-C")
    return parser


def client_command(options: argparse.Namespace, results: Path) -> list[str]:
    """Return the command of the client for the given options."""
    words = ["--results", str(results), "--seed", str(options.seed)]
    words += ["--max-motion-time", str(options.max_motion_time), "--trajectories", str(options.trajectories)]
    words += ["--target-mass-width", str(options.target_mass_width), "--model", options.model]
    words += ["--gripper", options.gripper]
    return client_of(CLIENT_MODULE, words, options.robot_name)


def check_options(options: argparse.Namespace, is_simulated: bool) -> None:
    """Refuse what some process would refuse later, before any is started.

    Args:
        options: Of the command line.
        is_simulated: Whether the arm is simulated or emulated, and holds ``--payload``.

    Raises:
        SysidError: No such arm or payload, or a number out of range.
    """
    require_numbers(options, "max_motion_time", "trajectories", "target_mass_width", "seed")
    robot = load_robot(options.model)
    robot.gripper_state(options.gripper)
    require_modules(is_simulated)
    if is_simulated:
        from sysid_ros.drivers.mujoco.simulation import load_payload  # the simulator may not be installed

        load_payload(robot, options.payload)


def main(argv: Sequence[str] | None = None, processes: Sequence[Process] = IDENTIFY) -> int:
    """Run the command ``sysid identify`` and return its exit status."""
    options = build_parser().parse_args(argv)
    is_simulated = options.mode == "mock" or is_emulated(options.mode)
    try:
        if options.view_port != "0":
            options.view_port = str(free_port(options.view_port))
        check_options(options, is_simulated)
        started = resolve(launch_values(options, ARGUMENTS), processes)
        results = make_results_directory(options.results)
        environment = suite_environment(results / "log", options.domain_id, vars(options))
    except SysidError as error:
        print(f"error: {error}", file=sys.stderr)
        return ExitStatus.BAD_INPUT
    client = None if options.nodes_only else client_command(options, results)
    simulation = {"payload": options.payload, "seed": options.seed} if is_simulated else {}
    simulated = "arm_emulator" if is_emulated(options.mode) else "arm_driver"
    say_where(environment, results / "log")
    if options.view_port != "0":
        say(f"a browser on this machine shows the arm at http://{LOOPBACK}:{options.view_port} in some seconds")
    if options.nodes_only and PROFILE_VARIABLE in network_of(vars(options)):
        say(f"another terminal joins with FASTDDS_DEFAULT_PROFILES_FILE={LOOPBACK_PROFILE}; Ctrl-C ends it")
    parameters = {simulated: simulation, "identification": {"results_root": str(results)}}
    return Suite(started, client, results / "log", environment, parameters).run()


if __name__ == "__main__":
    sys.exit(main())
