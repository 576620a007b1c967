"""Sends one goal to ``identification`` that calibrates the arm, and shows progress and result.

Run by ``sysid calibrate run``; on its own: ``python -m sysid_ros.nodes.calibrate_client --serial K0123 --results DIR``.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

import numpy as np
from rclpy.node import Node
from rich.console import RenderableType

from sysid_msgs.action import IdentifyArm
from sysid_ros.cli.exit_status import ExitStatus, endings
from sysid_ros.cli.terminal import ProgressDisplay, make_table, show
from sysid_ros.core.certification.authentication import key_from_environment
from sysid_ros.core.common.command_line import CommandParser
from sysid_ros.core.common.interrupts import Interrupts
from sysid_ros.core.procedure import IdentificationErrorCode
from sysid_ros.reports.arm import MEAN_TIME
from sysid_ros.ros.goal_client import GoalClient, client_main

_NOT_IDENTIFIED = (IdentificationErrorCode.NO_WINDOWS, IdentificationErrorCode.NOT_IDENTIFIED)


def build_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="calibrate_client",
        description="Sends one goal to the running nodes: calibrate the arm with a known load.",
        examples=("ros2 run sysid_ros calibrate_client --serial K0123 --results empty",),
        endings=endings(ExitStatus.FAILED, ExitStatus.NOT_IDENTIFIED),
    )
    parser.add_argument("--serial", required=True, help="serial number of the arm")
    parser.add_argument("--mass", type=float, default=0.0, help="mass of the held load [kg]; 0: empty hand")
    parser.add_argument("--tolerance", type=float, default=0.0, help="largest error of this mass [kg]")
    parser.add_argument(
        "--com", type=_numbers, default=[], metavar="X,Y,Z", help="its CoM in the frame of the last joint [m]"
    )
    parser.add_argument("--com-tolerance", type=float, default=0.0, help="largest error of its coordinates [m]")
    parser.add_argument(
        "--recording", action="append", default=[], help="earlier recording to use, too: FILE or FILE=MASS+-TOLERANCE"
    )
    parser.add_argument("--results", default="", help="folder below the node's results_root; empty: no files")
    parser.add_argument("--seed", type=int, default=0, help="seed of the excitation search")
    parser.add_argument("--motion-time", type=float, default=0.0, help="time of motion [s]; 0: the node's own")
    parser.add_argument("--validation-time", type=float, default=0.0, help="time of the check [s]; 0: the node's own")
    return parser


def _numbers(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


def run(options: argparse.Namespace, stop: Interrupts) -> int:
    """Send the goal and show it to its end; return the exit status."""
    display, node = ProgressDisplay(), Node("calibrate_client")
    client = GoalClient(node, IdentifyArm, "identification/identify_arm", stop, key_from_environment())

    def tell(feedback: IdentifyArm.Feedback) -> None:
        width = f"widths {100.0 * feedback.relative_width:.0f} %" if feedback.relative_width < 1.0 else ""
        display.update(feedback.text, feedback.progress, width)

    try:
        result = client.run(_goal(options), tell, lambda: display.message("stopping: the arm is brought to rest first"))
    finally:
        display.finish()
        client.close()
        node.destroy_node()
    if result.error_code not in (IdentificationErrorCode.NONE, IdentificationErrorCode.RESULTS_NOT_WRITTEN):
        show(f"not calibrated (error {result.error_code}): {result.error_text}")
        if stop.is_set:
            return ExitStatus.STOPPED
        return ExitStatus.NOT_IDENTIFIED if result.error_code in _NOT_IDENTIFIED else ExitStatus.FAILED
    show("", *describe(result))
    if result.error_text:
        show(result.error_text)
    if result.results_directory:
        show(f"Files: {result.results_directory}")
    return ExitStatus.OK if result.error_code == IdentificationErrorCode.NONE else ExitStatus.FAILED


def describe(result: IdentifyArm.Result) -> list[RenderableType]:
    """Describe a calibrated arm: widths, and torques of the validation motion."""
    before, after = (float(np.linalg.norm(values)) for values in (result.residual_before, result.residual_after))
    columns = zip(result.joint_names, result.residual_before, result.residual_after, strict=True)
    rows = [(name, f"{one:.3f}", f"{other:.3f}") for name, one, other in [*columns, ("all", before, after)]]
    return [
        f"Combinations of parameters are known within {100.0 * result.relative_width:.0f} % of the range before "
        "(geometric mean)",
        f"Motion of the arm: {result.motion_time:.1f} s",
        f"RMS torque residual of the validation motion [Nm], of means over {MEAN_TIME:g} s in motion, with the "
        "parameters before and now",
        make_table(("joint", "before", "now"), rows),
    ]


def _goal(options: argparse.Namespace) -> IdentifyArm.Goal:
    return IdentifyArm.Goal(
        serial_number=options.serial,
        load_mass=options.mass,
        load_mass_tolerance=options.tolerance,
        load_com=options.com,
        load_com_tolerance=options.com_tolerance,
        recordings=options.recording,
        motion_time=options.motion_time,
        validation_time=options.validation_time,
        seed=options.seed,
        results_directory=options.results,
    )


main = partial(client_main, build_parser, run)

if __name__ == "__main__":
    sys.exit(main())
