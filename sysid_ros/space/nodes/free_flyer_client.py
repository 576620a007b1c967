"""Sends goals to ``free_flyer_identification`` and shows their progress; run by ``sysid space``."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import numpy as np
from rclpy.node import Node

from sysid_msgs.action import Identify
from sysid_ros.cli.exit_status import ExitStatus, endings
from sysid_ros.cli.terminal import ProgressDisplay
from sysid_ros.core.common.command_line import CommandParser
from sysid_ros.core.common.interrupts import Interrupts
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.ros.goal_client import GoalClient, client_main

CAUGHT = from_com_form(12.0, [0.62, 0.05, -0.03], np.diag([0.4, 0.7, 0.6]))
"""Object that a simulated robot catches, about the last joint, (10,)."""


def build_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="free_flyer_client",
        description="Sends goals to the running nodes: identify a free-flying robot, and its load.",
        examples=("ros2 run sysid_ros free_flyer_client --object --results first",),
        endings=endings(ExitStatus.FAILED, ExitStatus.NOT_IDENTIFIED),
    )
    parser.add_argument("--results", default="", help="folder below the node's results_root; empty: no files")
    parser.add_argument("--seed", type=int, default=0, help="seed of the excitation search")
    parser.add_argument("--max-motion-time", type=float, default=0.0, help="longest motion [s]; 0: the node's own")
    parser.add_argument("--parts", type=int, default=0, help="parts of the motion; 0: the node's own")
    parser.add_argument("--object", action="store_true", help="let a simulated robot catch something, and identify it")
    return parser


def run(options: argparse.Namespace, stop: Interrupts) -> int:
    """Send the goal, or both, and show them to their ends; return the exit status."""
    node = Node("free_flyer_client")
    try:
        return _identify(node, options, stop)
    finally:
        node.destroy_node()


def _identify(node: Node, options: argparse.Namespace, stop: Interrupts) -> int:
    goal = Identify.Goal(
        max_motion_time=options.max_motion_time,
        number_of_trajectories=options.parts,
        seed=options.seed,
        results_directory=options.results,
    )
    result, status = _send(node, "identify", goal, stop)
    if status != ExitStatus.OK:
        return status
    print(f"Identified; motion of the robot: {result.motion_time:.1f} s")
    _say_files(result)
    if not options.object:
        return status
    goal.results_directory = str(Path(options.results) / "object") if options.results else ""
    result, status = _send(node, "identify_object", goal, stop)
    if status == ExitStatus.OK:
        estimate, com = result.estimate, result.payload.com
        certain = f"{estimate.lower[0]:.3f} to {estimate.upper[0]:.3f} kg"
        print(f"In the hand: {estimate.values[0]:.3f} kg, certainly {certain}")
        print(f"Its CoM in {estimate.header.frame_id}: {com.x:.4f}, {com.y:.4f}, {com.z:.4f} m")
        _say_files(result)
    return status


def _send(node: Node, name: str, goal: Identify.Goal, stop: Interrupts) -> tuple[Identify.Result, ExitStatus]:
    client, display = GoalClient(node, Identify, f"free_flyer_identification/{name}", stop), ProgressDisplay()

    def show(feedback: Identify.Feedback) -> None:
        mass = f"{feedback.mass_lower:.2f} to {feedback.mass_upper:.2f} kg" if feedback.has_estimate else ""
        display.update(feedback.text, feedback.progress, mass)

    try:
        if name == "identify_object":  # a real robot grasps nothing on request
            fault = client.grasp("free_flyer_driver", CAUGHT)
            print(f"the robot caught nothing: {fault}" if fault else "The robot has caught something.", flush=True)
        result = client.run(goal, show, lambda: display.message("stopping: the robot is brought to rest first"))
    finally:
        display.finish()
        client.close()
    if result.error_code == Identify.Result.NONE:
        return result, ExitStatus.OK
    print(f"not identified (error {result.error_code}): {result.error_text}")
    if stop.is_set:
        return result, ExitStatus.STOPPED
    is_data = result.error_code in (Identify.Result.NOT_IDENTIFIED, Identify.Result.INCONSISTENT)
    return result, ExitStatus.NOT_IDENTIFIED if is_data else ExitStatus.FAILED


def _say_files(result: Identify.Result) -> None:
    if result.results_directory:
        print(f"Files: {result.results_directory}")


main = partial(client_main, build_parser, run)

if __name__ == "__main__":
    sys.exit(main())
