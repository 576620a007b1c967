"""Runs the whole suite without ``ros2 launch``: ``sysid identify --model kinova_gen3_2f85``, or ``sysid weigh``.

It starts the processes of :data:`sysid_ros.processes.IDENTIFY`, the same executables with the same parameters as
``identify.launch.py``, on a private ROS domain that stays on this machine; sends one goal through
``sysid_ros.nodes.identify_client``; and ends everything. Ctrl-C stops the arm first, then the nodes.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

from sysid_ros.cli.options import launch_values
from sysid_ros.cli.parse_suites import DEFAULT_PAYLOAD
from sysid_ros.cli.suite import Suite, client_of, say, say_where, suite_environment
from sysid_ros.core.common.command_line import LARGEST_SEED
from sysid_ros.core.model.loader import load_robot
from sysid_ros.drivers.modes import Mode
from sysid_ros.processes import ARGUMENTS, ParameterValue, Spelling, StartedProcess, network_of, resolve
from sysid_ros.reports.folders import make_results_directory
from sysid_ros.reports.recordings.files import weighed
from sysid_ros.ros.environment import LOOPBACK_PROFILE, PROFILE_VARIABLE
from sysid_ros.start_check import check_suite, require_movable
from sysid_ros.view.address import LOOPBACK, free_port

CLIENT_MODULE = "sysid_ros.nodes.identify_client"
"""Sends the goal and shows progress and result; its exit status is the runner's."""


def client_command(options: argparse.Namespace, results: Path) -> list[str]:
    """Return the command of the client for the given options."""
    tare = choose_tare(options)
    names = ("action", "model", "gripper", "seed", "max_motion_time", "trajectories", "target_mass_width", "mass")
    values = {"results": results, "tare": tare, **{name: getattr(options, name) for name in names}}
    if tare == "first":
        values["grasp"] = options.payload or DEFAULT_PAYLOAD
    return client_of(CLIENT_MODULE, values, options.robot_name)


def choose_tare(options: argparse.Namespace) -> str:
    """Return how a tare comes first, as the client takes it.

    A simulated hand is empty at first; a person is asked to empty a real one. An arm that is calibrated needs none, and
    one that others move, or whose emulated controller holds the payload from the beginning, gets none.
    """
    if options.tare == "none" or load_robot(options.model).calibration is not None:
        return "none"
    if options.mode == "mock":
        return "first"
    return "ask" if options.mode in ("hardware", "ros2_control") and sys.stdin.isatty() else "none"


def check_options(options: argparse.Namespace) -> tuple[list[StartedProcess], dict[str, dict[str, ParameterValue]]]:
    """Refuse what some process would refuse later, before any is started.

    Returns:
        The processes, and parameters by executable that override theirs.

    Raises:
        SysidError: No such arm or payload, a value out of range, options that do not go together, or an arm that cannot
            be moved.
    """
    mode = Mode(options.mode)
    values = launch_values(options, ARGUMENTS)
    weighed(load_robot(options.model), options.mass)  # says more of one that does not exist
    started = resolve(values, spelling=Spelling.OPTION)
    own: dict[str, dict[str, ParameterValue]] = {"identification": {"results_root": str(options.results)}}
    if mode.is_simulated:
        # One that ends with its result need not move back: that is two more certified plans to wait for.
        own["identification"] |= {} if options.nodes_only else {"return_to_start": False}
        simulated = "arm_emulator" if mode.is_emulated else "arm_driver"
        own[simulated] = {"payload": options.payload or DEFAULT_PAYLOAD, "seed": options.seed}
    found = check_suite(values, started, own, Spelling.OPTION)
    if not options.nodes_only:
        from sysid_msgs.action import Identify  # ROS may not be installed
        from sysid_ros.adapters.identification.goals import settings_of

        goal = Identify.Goal(
            max_motion_time=options.max_motion_time,
            target_mass_width=options.target_mass_width,
            number_of_trajectories=min(options.trajectories, LARGEST_SEED),
        )
        settings_of(found["identification"].settings_of(options.action), goal)  # refuses impossible goals
    require_movable(found, options.command, Spelling.OPTION, has_goal=not options.nodes_only)
    if not options.nodes_only and choose_tare(options) == "first":
        own["arm_driver"]["payload"] = "none"  # the client lets it grasp the payload later
    return started, own


def run(options: argparse.Namespace) -> int:
    """Run the nodes and send one goal; return the exit status."""
    if options.view_port != "0":
        options.view_port = str(free_port(options.view_port))
    started, own = check_options(options)
    results = make_results_directory(options.results)
    environment = suite_environment(results / "log", options.domain_id, vars(options))
    client = None if options.nodes_only else client_command(options, results)
    say_where(environment, results / "log")
    if options.view_port != "0":
        say(f"a browser on this machine shows the arm at http://{LOOPBACK}:{options.view_port} in some seconds")
    if options.nodes_only and PROFILE_VARIABLE in network_of(vars(options)):
        say(f"another terminal joins with FASTDDS_DEFAULT_PROFILES_FILE={LOOPBACK_PROFILE}; Ctrl-C ends it")
    own["identification"]["results_root"] = str(results)
    return Suite(started, client, results / "log", environment, own).run()


def run_tare(options: argparse.Namespace) -> NoReturn:
    """Become the client of running nodes that move the arm with the empty hand, and end with its exit status."""
    values = {"tare": "only", **{name: getattr(options, name) for name in ("model", "gripper", "seed", "results")}}
    command = client_of(CLIENT_MODULE, values, options.robot_name)
    os.execv(command[0], command)
