"""Sends goals to ``identification`` and shows live progress, then the table.

Run by the runner; on its own: ``python -m sysid_ros.nodes.identify_client --model kinova_gen3_2f85``.
"""

from __future__ import annotations

import argparse
import select
import sys
from functools import partial
from pathlib import Path

import numpy as np
from rclpy.node import Node

from sysid_msgs.action import Identify
from sysid_msgs.msg import DriverStatus, SimulationTruth
from sysid_ros.adapters.identification.monitor import find_timing_doubt
from sysid_ros.adapters.identification.results import interval_of
from sysid_ros.cli.exit_status import ExitStatus, endings
from sysid_ros.cli.terminal import ProgressDisplay, hanging, mass_detail, next_step, result_summary, show
from sysid_ros.core.certification.authentication import key_from_environment
from sysid_ros.core.common.command_line import CommandParser
from sysid_ros.core.common.interrupts import Interrupts
from sysid_ros.core.model.calibrated import describe_unknown_arm
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.reports.folders import TARE
from sysid_ros.reports.recordings.files import weighed
from sysid_ros.reports.recordings.options import read_mass
from sysid_ros.reports.result import EstimateHistory, IdentificationResult
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.estimate import estimate_from_message, truth_from_message
from sysid_ros.ros.goal_client import GoalClient, GoalLost, client_main

_NOT_IDENTIFIED = (Identify.Result.NO_WINDOWS, Identify.Result.NOT_IDENTIFIED)
TARES = ("none", "first", "ask", "only")
"""Steps before the goal: none; a tare, as the hand is empty; a tare, once the user has confirmed that; a tare alone,
without a goal."""
_LOOK_PERIOD = 0.2
"""Time between two looks for an answer, or the end [s]."""
_NO_TARE = (
    Identify.Result.PLAN_FAILED, Identify.Result.CERTIFICATE_REFUSED, Identify.Result.INCONSISTENT,
    Identify.Result.NO_WINDOWS, Identify.Result.RESULTS_NOT_WRITTEN,
)  # fmt: skip
"""Ends of a tare without which the payload is identified all the same."""


TARE_ADVICE = (
    "a tare, some seconds of motion with the empty hand before (sysid tare, or sysid identify without "
    "--tare none): it measures gains, friction and weight of this very arm"
)


def build_parser() -> CommandParser:
    """Return the parser of the command line."""
    parser = CommandParser(
        prog="identify_client",
        description="Sends goals to the running nodes: a tare with the empty hand, where asked for, and identify the "
        "payload the arm holds.",
        examples=("ros2 run sysid_ros identify_client --model kinova_gen3_2f85 --results first",),
        endings=endings(ExitStatus.FAILED, ExitStatus.NOT_IDENTIFIED),
    )
    parser.add_argument("--model", default="kinova_gen3_2f85", help="robot, as given to the nodes")
    parser.add_argument("--action", default="identify", choices=("identify", "weigh"), help="exciting or slow motions")
    parser.add_argument("--results", default="", help="folder below the node's results_root; empty: no files")
    parser.add_argument("--seed", type=int, default=0, help="seed of the excitation search")
    parser.add_argument("--max-motion-time", type=float, default=0.0, help="longest motion [s]; 0: the node's own")
    parser.add_argument("--trajectories", type=int, default=0, help="number of motions; 0: the node's own")
    parser.add_argument("--gripper", default="", help="its state, as the robot's settings name it; empty: any of them")
    parser.add_argument(
        "--mass", default="", help="of the payload, from a scale: MASS[+-TOLERANCE] [kg]; empty: unknown"
    )
    parser.add_argument("--tare", default="none", choices=TARES, help="whether a tare comes first; ask: on a terminal")
    parser.add_argument("--grasp", default="", help="load that a simulated arm grasps after the tare; empty: none")
    parser.add_argument("--target-mass-width", type=float, default=0.0, help="stop at this mass width [kg]; 0: never")
    return parser


class ResultNode(Node):
    """Messages to the client about one goal, from start to end."""

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
            truth=self._truth if estimate.target == "payload" else None,  # the topic is about the payload only
            warnings=warnings,
        )

    def _take_status(self, status: DriverStatus) -> None:
        self._timing_doubt = find_timing_doubt(status) or self._timing_doubt
        self._serial_number = status.serial_number

    def _take_truth(self, message: SimulationTruth) -> None:
        truth = truth_from_message(message)
        self._truth = np.zeros(10) if truth is None else truth

    def show(self, feedback: Identify.Feedback) -> None:
        """Show the progress of the goal."""
        mass = (feedback.mass_lower, feedback.mass, feedback.mass_upper) if feedback.has_estimate else None
        number, count, box = feedback.trajectory_number, feedback.number_of_trajectories, self.robot.payload_prior.box
        motion = f"trajectory {number}" + (f" of {count}" if count else "") if number else ""
        known = mass_detail(mass, (float(box.lower[0]), float(box.upper[0])))
        # work after the motion has no measured progress; the bar must not stand at its end meanwhile
        share = None if feedback.phase == Identify.Feedback.PHASE_REPORTING else feedback.progress
        if feedback.doubt not in ("", self._doubt):
            self._display.message(feedback.doubt)
        self._doubt = feedback.doubt or self._doubt
        self._display.update(feedback.text, share, "  ".join(filter(None, (motion, known))))


def run(options: argparse.Namespace, stop: Interrupts) -> int:
    """Send the goals and show them to their end; return the exit status."""
    robot = weighed(load_robot(options.model), options.mass)
    result, is_tare = Identify.Result(), options.tare != "none"
    if options.tare == "ask":
        is_tare = ask("Take the load off the hand for a tare, then press Enter (n: no tare) ", stop)
    folder = str(Path(options.results) / TARE) if options.results else ""
    tare = Identify.Goal(seed=options.seed, gripper=options.gripper, results_directory=folder)
    steps = [(TARE, tare)] * is_tare + [_goal(options)] * (options.tare != "only")
    display = ProgressDisplay()
    node = ResultNode(robot, display)
    try:
        for name, goal in steps:
            client = GoalClient(node, Identify, f"identification/{name}", stop, key_from_environment())
            try:
                result = client.run(
                    goal, node.show, lambda: display.message("stopping: the arm is brought to rest first")
                )
                if name == TARE and not _goes_on(options, display, result):
                    failed = ExitStatus.STOPPED if stop.is_set else ExitStatus.FAILED
                    return ExitStatus.OK if result.error_code == Identify.Result.NONE else failed
                if name == TARE and options.grasp:
                    _grasp(client, node, options.grasp, stop)
            finally:
                client.close()
            is_asked = name == TARE and options.tare == "ask"
            if is_asked and not ask("Put the load into the hand, then press Enter ", stop):
                raise GoalLost("stopped before the payload was identified", True)
    finally:
        display.finish()
        node.destroy_node()
    return _show_result(node, result, was_stopped=stop.is_set)


def ask(question: str, stop: Interrupts) -> bool:
    """Wait for Enter at the terminal; return false for n, the end of the input, or the end of the run."""
    print(question, end="", flush=True)
    while not stop.is_set:
        if select.select([sys.stdin], [], [], _LOOK_PERIOD)[0]:
            answer = sys.stdin.readline()
            return bool(answer) and not answer.strip().lower().startswith("n")
    return False


def _goal(options: argparse.Namespace) -> tuple[str, Identify.Goal]:
    mass, tolerance = read_mass(options.mass or "0")
    return options.action, Identify.Goal(
        mass=mass,
        mass_tolerance=tolerance,
        max_motion_time=options.max_motion_time,
        target_mass_width=options.target_mass_width,
        number_of_trajectories=options.trajectories,
        seed=options.seed,
        gripper=options.gripper,
        results_directory=options.results,
    )


def _grasp(client: GoalClient, node: ResultNode, name: str, stop: Interrupts) -> None:
    from sysid_ros.drivers.mujoco.simulation import load_payload  # the simulator may not be installed

    payload = load_payload(node.robot, name)
    if payload is None:
        return
    fault = client.grasp("arm_driver", payload)
    if fault:
        raise GoalLost(f"the arm has not grasped {name}: {fault}", stop.is_set)


def _goes_on(options: argparse.Namespace, display: ProgressDisplay, result: Identify.Result) -> bool:
    """Report the end of a tare; return whether to identify the payload after it."""
    if result.error_code == Identify.Result.NONE:
        display.message(f"{result.tare}; the arm moved for {result.motion_time:.1f} s")
    else:
        display.message(f"no tare (error {result.error_code}): {result.error_text}")
    return options.tare != "only" and result.error_code in (Identify.Result.NONE, *_NO_TARE)


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
        if summary is not None and not result.tare and node.robot.calibration is None:
            show(hanging("Narrower: ", TARE_ADVICE))
        if summary is not None:
            show(hanging("Next: ", next_step(summary, result.results_directory, bool(hypotheses))))
    if result.error_code == Identify.Result.NONE:
        return ExitStatus.OK
    is_partial = summary is not None and summary.is_usable and not summary.is_identified
    return ExitStatus.NOT_IDENTIFIED if is_partial else ExitStatus.FAILED


main = partial(client_main, build_parser, run)

if __name__ == "__main__":
    sys.exit(main())
