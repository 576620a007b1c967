"""Sends one goal to ``free_flyer_identification`` and shows its progress; run by ``sysid_space``."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import rclpy
from rclpy.action import ActionClient
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import remove_ros_args

from sysid_msgs.action import Identify
from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.ros.node import StopRequest
from sysid_ros.ros.waiting import ServerProbe

_SERVER_TIMEOUT = 60.0
_CANCEL_TIMEOUT = 15.0


def main(argv: Sequence[str] | None = None) -> int:
    """Send the goal and show it to its end; returns the exit status."""
    words = list(sys.argv if argv is None else argv)
    parser = argparse.ArgumentParser(description="Identifies a free-flying robot.")
    parser.add_argument("--results", default="", help="folder for the files; empty writes none")
    parser.add_argument("--seed", type=int, default=0, help="seed of the excitation search")
    parser.add_argument("--max-motion-time", type=float, default=0.0, help="longest motion [s]; 0: the node's own")
    parser.add_argument("--parts", type=int, default=0, help="parts of the motion; 0: the node's own")
    options = parser.parse_args(remove_ros_args(words)[1:])
    goal = Identify.Goal(
        max_motion_time=options.max_motion_time,
        number_of_trajectories=options.parts,
        seed=options.seed,
        results_directory=options.results,
    )
    with StopRequest() as stop:
        rclpy.init(args=words, signal_handler_options=SignalHandlerOptions.NO)
        node, executor = Node("free_flyer_client"), SingleThreadedExecutor()
        executor.add_node(node)
        try:
            return _run(node, executor, goal, stop)
        finally:
            executor.shutdown(timeout_sec=1.0)
            node.destroy_node()
            rclpy.try_shutdown()


def _run(node: Node, executor: SingleThreadedExecutor, goal: Identify.Goal, stop: StopRequest) -> int:
    client: Any = ActionClient(node, Identify, "free_flyer_identification/identify")
    probe, said = ServerProbe(client), [""]

    def show(message: Any) -> None:
        feedback = message.feedback
        text = f"{100.0 * feedback.progress:3.0f} %  {feedback.text}"
        if text != said[0]:
            said[0] = text
            print(text, flush=True)

    def spin(condition: Callable[[], bool], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while not condition() and time.monotonic() < end:
            executor.spin_once(timeout_sec=0.1)
        return condition()

    # A goal that is sent before the server knows where to send its answer runs, and nobody here learns of it.
    if not spin(lambda: probe.is_answered() or stop.is_set, _SERVER_TIMEOUT):
        print("nobody offers the action free_flyer_identification/identify; see the logs of the nodes")
        return ExitStatus.FAILED
    sent = client.send_goal_async(goal, feedback_callback=show)
    if stop.is_set or not spin(sent.done, _SERVER_TIMEOUT):
        return ExitStatus.STOPPED if stop.is_set else ExitStatus.FAILED
    outcome = sent.result().get_result_async()
    spin(lambda: outcome.done() or stop.is_set, float("inf"))
    if not outcome.done():
        print("stopping: the robot is brought to rest first", flush=True)
        sent.result().cancel_goal_async()
        spin(outcome.done, _CANCEL_TIMEOUT)
        return ExitStatus.STOPPED
    result = outcome.result().result
    if result.error_code != Identify.Result.NONE:
        print(f"not identified (error {result.error_code}): {result.error_text}")
        is_data = result.error_code == Identify.Result.NOT_IDENTIFIED
        return ExitStatus.NOT_IDENTIFIED if is_data else ExitStatus.FAILED
    print(f"Identified; motion of the robot: {result.motion_time:.1f} s")
    if result.results_directory:
        print(f"Files: {result.results_directory}")
    return ExitStatus.OK


if __name__ == "__main__":
    sys.exit(main())
