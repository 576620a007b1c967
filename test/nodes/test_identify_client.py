"""The client of the runner: goals reach the server, and the end of each becomes an exit status."""

import dataclasses
import time

import pytest
from node_bench import PATIENCE, Bench
from rclpy.action import ActionServer, CancelResponse
from rclpy.node import Node

from sysid_msgs.action import Identify
from sysid_msgs.srv import SetPayload
from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.core.common.interrupts import Interrupts
from sysid_ros.core.estimation.parameters.estimate import Quantity
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.nodes import identify_client
from sysid_ros.ros import goal_client
from sysid_ros.ros.conversions.estimate import estimate_to_message

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
    """Answers every goal with the same result, and every tare with another one."""

    def __init__(self, result, lost=0, tare=None):
        super().__init__("identification")
        self.result, self.tare, self.goals, self.cancelled = result, tare, [], []
        self.server = ActionServer(self, Identify, "~/identify", self._execute, cancel_callback=self._cancel)
        self.tares = ActionServer(self, Identify, "~/tare", self._execute_tare)
        self.grasped = []
        self.create_service(SetPayload, "arm_driver/set_payload", self._grasp)
        self.server._handle = Deaf(self.server._handle, lost)

    def _execute_tare(self, handle):
        self.goals.append(handle.request)
        handle.succeed()
        return self.tare

    def _grasp(self, request, response):
        self.grasped += [request] * (request.operation == SetPayload.Request.ATTACH)
        response.success, response.message = bool(request.payload[0] < 2.0), "too heavy"
        return response

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


def run_client(result, monkeypatch, lost=0, tare=None, words=()):
    monkeypatch.setattr(goal_client, "SERVER_TIMEOUT", PATIENCE)
    # Action servers of earlier tests may linger in this process; test_goal_client.py counts them.
    monkeypatch.setattr(goal_client.GoalClient, "_servers", lambda self: 1)
    bench = Bench()
    try:
        server = bench.run(Server(result, lost, tare))
        options = identify_client.build_parser().parse_args(["--seed", "7", *words])
        try:
            return identify_client.run(options, Interrupts()), server
        except goal_client.GoalLost as lost:  # as client_main ends
            print(lost)
            return goal_client.EXIT_STOPPED if lost.was_stopped else goal_client.EXIT_LOST, server
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
    ("known", "status"), [((Quantity.MASS,), ExitStatus.NOT_IDENTIFIED), (tuple(Quantity), ExitStatus.FAILED)]
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


FAILED = Identify.Result(error_code=Identify.Result.NOT_IDENTIFIED, error_text="no motion")
TARED = Identify.Result(tare="tare of 7.5 s", motion_time=7.5)


def test_after_a_tare_a_simulated_arm_grasps_what_is_identified(monkeypatch, capsys):
    words = ["--tare", "first", "--grasp", "dumbbell_4lb", "--results", "here", "--gripper", "open"]
    words += ["--mass", "1.814+-0.002"]
    status, server = run_client(FAILED, monkeypatch, tare=TARED, words=words)
    assert [(goal.results_directory, goal.gripper) for goal in server.goals] == [
        ("here/tare", "open"),
        ("here", "open"),
    ]
    assert [(goal.mass, goal.mass_tolerance) for goal in server.goals] == [(0.0, 0.0), (1.814, 0.002)]
    assert [request.payload[0] for request in server.grasped] == [pytest.approx(1.814, abs=1e-3)]
    assert status == ExitStatus.NOT_IDENTIFIED and "tare of 7.5 s; the arm moved for 7.5 s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "tare", "goals", "status", "said"),
    [
        (["--tare", "only"], TARED, 1, ExitStatus.OK, "tare of 7.5 s"),
        (
            ["--tare", "only"],
            Identify.Result(error_code=2, error_text="silence"),
            1,
            ExitStatus.FAILED,
            "no tare (error 2)",
        ),
        (
            ["--tare", "first"],
            Identify.Result(error_code=2, error_text="silence"),
            1,
            ExitStatus.FAILED,
            "no tare (error 2)",
        ),
        (["--tare", "first"], Identify.Result(error_code=7, error_text="held"), 2, ExitStatus.NOT_IDENTIFIED, "held"),
        (["--tare", "first", "--grasp", "2.4"], TARED, 1, ExitStatus.FAILED, "not grasped 2.4: too heavy"),
    ],
)
def test_without_a_tare_the_payload_is_identified_where_the_arm_can_move(
    monkeypatch, capsys, words, tare, goals, status, said
):
    found, server = run_client(FAILED, monkeypatch, tare=tare, words=words)
    assert found == status and len(server.goals) == goals and said in capsys.readouterr().out


@pytest.mark.parametrize(("typed", "goals"), [("\n\n", 2), ("n\n", 1), ("", 1)])
def test_a_person_is_asked_to_empty_the_hand(monkeypatch, capsys, tmp_path, typed, goals):
    (tmp_path / "typed").write_text(typed)
    monkeypatch.setattr(identify_client.select, "select", lambda *_: ([True], [], []))
    with (tmp_path / "typed").open() as terminal:
        monkeypatch.setattr(identify_client.sys, "stdin", terminal)
        status, server = run_client(FAILED, monkeypatch, tare=TARED, words=["--tare", "ask"])
    shown = capsys.readouterr().out
    assert len(server.goals) == goals and "Take the load off the hand" in shown
    assert ("Put the load into the hand" in shown) == (goals == 2) and status == ExitStatus.NOT_IDENTIFIED
