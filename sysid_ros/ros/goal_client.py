"""Sends a goal to an action and follows it to its end, for programs that a user runs and may stop."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import rclpy
from numpy.typing import ArrayLike
from rclpy.action import ActionClient
from rclpy.action.client import ClientGoalHandle
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import remove_ros_args

from sysid_msgs.srv import SetPayload
from sysid_ros.core.certification.authentication import AuthenticationKey
from sysid_ros.core.common.command_line import tell
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.common.interrupts import Interrupts
from sysid_ros.ros.conversions.authentication import is_genuine
from sysid_ros.ros.node import EXIT_REFUSED, spin_until
from sysid_ros.ros.other_nodes import Peers, ServerProbe

EXIT_LOST, EXIT_STOPPED = 1, 130
SERVER_TIMEOUT = 60.0
"""How long to wait for the action server, and again for its answer to the goal [s]."""
CANCEL_TIMEOUT = 20.0
"""How long a cancelled goal may take to bring the robot to rest [s]."""
GRASP_TIMEOUT = 10.0
"""How long a simulated robot may take to grasp something [s]."""
GONE_AFTER = 2.0
"""A server undiscovered for this long has gone; shorter absences are normal, as at the start [s]."""


def client_main(
    build_parser: Callable[[], argparse.ArgumentParser],
    run: Callable[[argparse.Namespace, Interrupts], int],
    argv: Sequence[str] | None = None,
) -> int:
    """Run a client from its command line, which may have arguments for ROS as well, to its end.

    Returns:
        Exit status of ``run``; or, with one sentence, 1 if a goal has no result, 130 if the user stopped it, and 2
        if an option cannot be used.
    """
    parser = build_parser()
    arguments = list(sys.argv if argv is None else [parser.prog, *argv])
    options = parser.parse_args(remove_ros_args(arguments)[1:])
    with Interrupts() as stop:
        # Signals are the stop request's: a client still needs ROS to cancel its goal.
        rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
        try:
            return run(options, stop)
        except GoalLost as lost:
            tell("", str(lost), sys.stdout)
            return EXIT_STOPPED if lost.was_stopped else EXIT_LOST
        except SysidError as error:
            tell("", str(error))
            return EXIT_REFUSED
        finally:
            rclpy.try_shutdown()


class GoalLost(SysidError):
    """A goal has no result.

    Args:
        text: Why, and what to do.
        was_stopped: Whether the user has stopped it.
    """

    def __init__(self, text: str, was_stopped: bool = False):
        self.was_stopped = was_stopped
        super().__init__(text)


class GoalClient:
    """Sends goals to one action, one after the other.

    Args:
        node: A node that no executor has yet.
        action: Type of the action.
        name: Its name, ``<node>/<action>``.
        stop: The request to stop.
        key: Key that results must be signed with; None: unsigned results are accepted.
    """

    def __init__(self, node: Node, action: Any, name: str, stop: Interrupts, key: AuthenticationKey | None = None):
        self._node, self._name, self._stop, self._key = node, name, stop, key
        self._server = name.rpartition("/")[0]
        self._client: ActionClient[Any, Any, Any] = ActionClient(node, action, name)
        self._probe = ServerProbe(self._client)
        self._seen = -math.inf
        self._peers = Peers(node, (self._server,))
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(node)

    def close(self) -> None:
        """Spin the node no more."""
        self._executor.shutdown(timeout_sec=1.0)

    def run(self, goal: Any, on_feedback: Callable[[Any], None], on_stop: Callable[[], None]) -> Any:
        """Send a goal and return its result; cancel it on a request to stop, after a call of ``on_stop``.

        Raises:
            GoalLost: There is no result.
        """
        # If the server has not discovered this client yet, the goal would run and its answer would be lost.
        if not self.spin_until(
            lambda: (self._probe.is_answered() and self._servers() == 1) or self._stop.is_set, SERVER_TIMEOUT
        ):
            fault = "is offered, but not answered" if self._client.server_is_ready() else "has no server"
            if self._servers() > 1:
                fault = f"is offered by {self._servers()} nodes, of which one alone can be meant: end the others"
            raise GoalLost(f"the action {self._name} {fault}; see the logs of the nodes")
        if self._stop.is_set:
            raise GoalLost("stopped before anything was asked for", True)
        self._seen = time.monotonic()
        sent = self._client.send_goal_async(goal, feedback_callback=lambda message: on_feedback(message.feedback))
        # A goal that is on its way must be answered before it can be cancelled.
        if not self.spin_until(lambda: sent.done() or self._is_gone(), SERVER_TIMEOUT) or not sent.done():
            raise GoalLost(f"the goal was not answered; see the log of {self._server}", self._stop.is_set)
        handle: ClientGoalHandle[Any, Any, Any] | None = sent.result()
        if handle is None or not handle.accepted:
            raise GoalLost(f"the goal was refused; see the log of {self._server}")
        return self._follow(handle, on_stop)

    def spin_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Spin until a condition holds; return whether it does within the time [s]."""
        return spin_until(self._executor, condition, seconds)

    def grasp(self, driver: str, payload: ArrayLike) -> str:
        """Let a simulated robot let go of its load and grasp a payload, (10,); return why it has not, empty if it has.

        ``driver`` is the node that simulates it.
        """
        service: Any = self._node.create_client(SetPayload, f"{driver}/set_payload")

        def ask(operation: int, repeat_after: float, **fields: Any) -> SetPayload.Response | None:
            answers: list[Any] = []

            def is_answered() -> bool:
                if not answers or time.monotonic() >= asked + repeat_after * len(answers):
                    answers.append(service.call_async(SetPayload.Request(operation=operation, **fields)))
                return self._stop.is_set or any(one.done() for one in answers)

            asked = time.monotonic()
            self.spin_until(is_answered, GRASP_TIMEOUT)
            return next((one.result() for one in answers if one.done()), None)

        # Before the driver has found this client its answers get lost, so the hand lets go until that is answered.
        response = ask(SetPayload.Request.DETACH, 1.0)
        if response is not None:
            response = ask(SetPayload.Request.ATTACH, math.inf, payload=payload, announce=True)
        if response is None:
            return "the driver does not answer" if service.service_is_ready() else f"{driver} has no ~/set_payload"
        return "" if response.success else response.message

    def _servers(self) -> int:
        return self._node.count_publishers(f"{self._name}/_action/status")

    def _is_gone(self) -> bool:
        """Return whether the server is not to be found any more; called again and again."""
        now = time.monotonic()
        if self._client.server_is_ready():
            self._seen = now
        return now - self._seen > GONE_AFTER or self._peers.is_gone(self._server)

    def _follow(self, handle: ClientGoalHandle[Any, Any, Any], on_stop: Callable[[], None]) -> Any:
        outcome = handle.get_result_async()
        self.spin_until(lambda: outcome.done() or self._stop.is_set or self._is_gone(), math.inf)
        if not outcome.done() and self._is_gone():
            raise GoalLost(f"{self._server} has gone; without its messages the driver brakes by itself")
        if not outcome.done():
            on_stop()
            handle.cancel_goal_async()
            self.spin_until(lambda: outcome.done() or self._is_gone(), CANCEL_TIMEOUT)
            if not outcome.done():
                raise GoalLost("the goal did not end; the driver stops the robot when its node ends", True)
        response = outcome.result()
        if response is None:
            raise GoalLost(f"the goal ended without a result; see the log of {self._server}")
        if self._key is not None and not is_genuine(response.result, self._key):
            raise GoalLost(
                f"the result of {self._name} is not signed with the key of this suite, so another program answered: "
                "nothing it says is to be believed; end that program, or use a network of your own"
            )
        return response.result
