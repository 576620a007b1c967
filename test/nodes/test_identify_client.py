"""The client of the runner: goals reach the server, and the end of each becomes an exit status."""

import dataclasses
import time

import pytest
from node_bench import PATIENCE, Bench
from rclpy.action import ActionServer, CancelResponse
from rclpy.node import Node

from sysid_msgs.action import Identify
from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.core.common.interrupts import Interrupts
from sysid_ros.core.estimation.parameters.estimate import Quantity
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.nodes import identify_client
from sysid_ros.ros import goal_client
from sysid_ros.ros.conversions import estimate_to_message

pytestmark = pytest.mark.processes


class Deaf:
    """The handle of an action server whose first answers get lost, as before it has found its client.

    Args:
        handle: The handle.
        lost: How many answers of any kind.
    """

    def __init__(self, handle, lost):
        self._handle, self.lost = handle, lost

    def __getattr__(self, name):
        found = getattr(self._handle, name)
        return self._lose if self.lost and name in ("send_goal_response", "send_cancel_response") else found

    def _lose(self, *_):
        self.lost -= 1

    def __enter__(self):
        return self._handle.__enter__()

    def __exit__(self, *given):
        return self._handle.__exit__(*given)


class Server(Node):
    """Answers every goal with the same result."""

    def __init__(self, result, lost=0):
        super().__init__("identification")
        self.result, self.goals, self.cancelled = result, [], []
        self.server = ActionServer(self, Identify, "~/identify", self._execute, cancel_callback=self._cancel)
        self.server._handle = Deaf(self.server._handle, lost)

    def _execute(self, handle):
        self.goals.append(handle.request)
        for doubt in ("", "another arm?", "another arm?", ""):
            time.sleep(0.2)  # before its goal is accepted a client hears none
            handle.publish_feedback(Identify.Feedback(text="moving", doubt=doubt))
        handle.succeed()
        return self.result

    def _cancel(self, handle):
        self.cancelled.append(handle)
        return CancelResponse.ACCEPT


def run_client(result, monkeypatch, lost=0):
    monkeypatch.setattr(goal_client, "SERVER_TIMEOUT", PATIENCE)
    bench = Bench()
    try:
        server = bench.run(Server(result, lost))
        options = identify_client.build_parser().parse_args(["--seed", "7"])
        return identify_client.run(options, Interrupts()), server
    finally:
        bench.close()


@pytest.mark.parametrize("lost", [0, 2])
def test_a_goal_is_sent_once_the_server_can_answer(monkeypatch, capsys, lost):
    result = Identify.Result(error_code=Identify.Result.TIMEOUT, error_text="the planner did not answer")
    status, server = run_client(result, monkeypatch, lost)
    shown = capsys.readouterr().out
    assert "the goal was not answered" not in shown and shown.count("another arm?") == 1
    assert status == ExitStatus.FAILED and [goal.seed for goal in server.goals] == [7]
    assert server.cancelled == [] and server.server._handle.lost == 0


@pytest.mark.parametrize("code", [Identify.Result.NO_WINDOWS, Identify.Result.NOT_IDENTIFIED])
def test_what_is_not_identified_has_a_status_of_its_own(monkeypatch, capsys, code):
    result = Identify.Result(error_code=code, error_text="samples come every 0.08 s: sample faster")
    status, _ = run_client(result, monkeypatch)
    assert status == ExitStatus.NOT_IDENTIFIED and "sample faster" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("known", "status"),
    [((Quantity.MASS,), ExitStatus.NOT_IDENTIFIED), (tuple(Quantity), ExitStatus.FAILED)],
)
def test_files_that_are_missing_because_little_is_known_are_no_failure(monkeypatch, capsys, robot, known, status):
    prior = StreamingEstimator(robot, EstimatorSettings()).estimate()
    estimate = dataclasses.replace(
        prior, number_of_windows=5, narrower=frozenset(known), values=robot.payload_prior.nominal
    )
    text = "identified in part, but payload_kuka.yaml was not written"
    code = Identify.Result.RESULTS_NOT_WRITTEN
    result = Identify.Result(error_code=code, error_text=text, estimate=estimate_to_message(estimate, 1))
    assert run_client(result, monkeypatch)[0] == status
    assert text in capsys.readouterr().out
