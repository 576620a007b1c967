"""Sends one goal to ``identification`` and shows what a person wants to see: live progress, then the table.

Run by the runner; on its own: ``python -m sysid_ros.nodes.identify_client --model kinova_gen3_2f85``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np
from rclpy.node import Node

from sysid_msgs.action import Identify
from sysid_msgs.msg import DriverStatus, SimulationTruth
from sysid_ros.adapters.identification.evidence import interval_of
from sysid_ros.adapters.identification.monitor import find_timing_doubt
from sysid_ros.cli.exit_status import ExitStatus, endings
from sysid_ros.cli.terminal import ProgressDisplay, hanging, mass_detail, next_step, result_summary, show
from sysid_ros.core.common.command_line import CommandParser
from sysid_ros.core.common.interrupts import Interrupts
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.model.calibrated import describe_unknown_arm
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.reports.result import EstimateHistory, IdentificationResult
from sysid_ros.ros import qos
from sysid_ros.ros.conversions import estimate_from_message, truth_from_message
from sysid_ros.ros.goal_client import GoalClient, GoalLost, client_main

_NOT_IDENTIFIED = (Identify.Result.NO_WINDOWS, Identify.Result.NOT_IDENTIFIED)


def build_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="identify_client",
        description="Sends one goal to the running nodes: identify the payload the arm holds.",
        examples=("ros2 run sysid_ros identify_client --model kinova_gen3_2f85 --results first",),
        endings=endings(ExitStatus.FAILED, ExitStatus.NOT_IDENTIFIED),
    )
    parser.add_argument("--model", default="kinova_gen3_2f85", help="robot, as given to the nodes")
    parser.add_argument("--results", default="", help="folder below the node's results_root; empty: no files")
    parser.add_argument("--seed", type=int, default=0, help="seed of the excitation search")
    parser.add_argument("--max-motion-time", type=float, default=0.0, help="longest motion [s]; 0: the node's own")
    parser.add_argument("--trajectories", type=int, default=0, help="number of exciting motions; 0: the node's own")
    parser.add_argument("--gripper", default="", help="its state, as the robot's settings name it; empty: any of them")
    parser.add_argument("--target-mass-width", type=float, default=0.0, help="stop at this mass width [kg]; 0: never")
    return parser


class ResultNode(Node):
    """What the client hears of one goal, from start to end.

    Args:
        robot: The robot, for names and prior.
        display: Where progress is shown.
    """

    def __init__(self, robot: RobotModel, display: ProgressDisplay):
        super().__init__("identify_client")
        self._display = display
        self._truth: np.ndarray | None = None
        self.robot = robot
        self._timing_doubt: str | None = None
        self._serial_number = self._doubt = ""
        self.create_subscription(SimulationTruth, "arm_driver/truth", self._take_truth, qos.LATCHED)
        self.create_subscription(DriverStatus, "arm_driver/status", self._take_status, qos.STATUS)

    def summarize(self, result: Identify.Result) -> IdentificationResult | None:
        """Return the outcome for the table, None where there is no estimate at all."""
        estimate = estimate_from_message(result.estimate)
        if estimate is None:
            return None
        timing = [self._timing_doubt] if self._timing_doubt else []
        warnings = (*timing, *describe_unknown_arm(self.robot, self._serial_number))
        history = EstimateHistory.from_estimates((), ())
        return IdentificationResult(
            self.robot,
            estimate,
            history,
            statistical=interval_of(result),
            truth=self._truth_of(estimate),
            warnings=warnings,
        )

    def _take_status(self, status: DriverStatus) -> None:
        self._timing_doubt = find_timing_doubt(status) or self._timing_doubt
        self._serial_number = status.serial_number

    def _truth_of(self, estimate: ParameterEstimate) -> np.ndarray | None:
        # The truth that is published is that of the payload alone.
        return self._truth if estimate.target == "payload" else None

    def _take_truth(self, message: SimulationTruth) -> None:
        truth = truth_from_message(message)
        self._truth = np.zeros(10) if truth is None else truth

    def show(self, feedback: Identify.Feedback) -> None:
        """Show the progress of the goal."""
        mass = (feedback.mass_lower, feedback.mass, feedback.mass_upper) if feedback.has_estimate else None
        number, count, box = feedback.trajectory_number, feedback.number_of_trajectories, self.robot.payload_prior.box
        motion = f"trajectory {number}" + (f" of {count}" if count else "") if number else ""
        known = mass_detail(mass, (float(box.lower[0]), float(box.upper[0])))
        # what comes after the motion is measured by nobody, and the bar is not to stand at its end meanwhile
        share = None if feedback.phase == Identify.Feedback.PHASE_REPORTING else feedback.progress
        if feedback.doubt not in ("", self._doubt):
            self._display.message(feedback.doubt)
        self._doubt = feedback.doubt or self._doubt
        self._display.update(feedback.text, share, "  ".join(filter(None, (motion, known))))


def run(options: argparse.Namespace, stop: Interrupts) -> int:
    """Send the goal and show it to its end; return the exit status."""
    robot = load_robot(options.model)
    display = ProgressDisplay()
    node = ResultNode(robot, display)
    client = GoalClient(node, Identify, "identification/identify", stop)
    try:
        result = client.run(
            _goal(options), node.show, lambda: display.message("stopping: the arm is brought to rest first")
        )
    except GoalLost as lost:
        display.message(str(lost))
        return ExitStatus.STOPPED if lost.was_stopped else ExitStatus.FAILED
    finally:
        display.finish()
        client.close()
        node.destroy_node()
    return _show_result(node, result, was_stopped=stop.is_set)


def _goal(options: argparse.Namespace) -> Identify.Goal:
    return Identify.Goal(
        max_motion_time=options.max_motion_time,
        target_mass_width=options.target_mass_width,
        number_of_trajectories=options.trajectories,
        seed=options.seed,
        gripper=options.gripper,
        results_directory=options.results,
    )


def _show_result(node: ResultNode, result: Identify.Result, was_stopped: bool) -> int:
    has_result = (Identify.Result.NONE, Identify.Result.INCONSISTENT, Identify.Result.RESULTS_NOT_WRITTEN)
    if result.error_code not in has_result:
        show(f"not identified (error {result.error_code}): {result.error_text}")
        if result.results_directory:
            show(f"Files: {result.results_directory}")
        if was_stopped:
            return ExitStatus.STOPPED
        return ExitStatus.NOT_IDENTIFIED if result.error_code in _NOT_IDENTIFIED else ExitStatus.FAILED
    summary = node.summarize(result)
    hypotheses = [(one.text, one.check) for one in result.hypotheses]
    show("", result.error_text if summary is None else result_summary(summary, hypotheses))
    show(f"Motion of the arm: {result.motion_time:.1f} s")
    if result.error_code == Identify.Result.RESULTS_NOT_WRITTEN:
        show(result.error_text)
    if result.results_directory:
        show(f"Files: {result.results_directory}")
        if summary is not None:
            show(hanging("Next: ", next_step(summary, result.results_directory, bool(hypotheses))))
    if result.error_code == Identify.Result.NONE:
        return ExitStatus.OK
    is_partial = summary is not None and summary.is_usable and not summary.is_identified
    return ExitStatus.NOT_IDENTIFIED if is_partial else ExitStatus.FAILED


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return client_main(build_parser(), run, argv)


if __name__ == "__main__":
    sys.exit(main())
