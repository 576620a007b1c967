"""Requests that come more than once: one piece of work, one answer."""

import threading

import pytest
import rclpy
from std_srvs.srv import SetBool

from sysid_ros.ros.node import create_long_service, run_in_thread, share_repeats
from sysid_ros.ros.other_nodes import call_service, wait_until

PATIENCE = 20.0


class Planner:
    """A service whose work waits for a gate; the request says whether it is to succeed."""

    def __init__(self, node):
        self.gate, self.works, self.conditions, self.now = threading.Event(), [], 0, 100.0
        self._node = node
        shared = share_repeats(self._answer, lambda: self.conditions, memory=2.0, clock=lambda: self.now)
        create_long_service(node, SetBool, "plan", shared)
        self._client = node.create_client(SetBool, "plan")
        assert self._client.wait_for_service(PATIENCE)

    async def _answer(self, request, response):
        self.works.append(request.data)
        await run_in_thread(self._node, lambda: self.gate.wait(PATIENCE))
        response.success, response.message = request.data, f"work {len(self.works)}"
        return response

    def ask(self, data=True):
        return self._client.call_async(SetBool.Request(data=data))

    def answers(self, *calls):
        assert wait_until(lambda: all(call.done() for call in calls), PATIENCE)
        return [call.result().message for call in calls]


@pytest.fixture
def planner(spinning):
    with spinning("planner") as node:
        yield Planner(node)


def test_equal_requests_share_the_work_and_others_do_not(planner):
    calls = [planner.ask() for _ in range(3)]
    other = planner.ask(False)
    assert wait_until(lambda: len(planner.works) == 2, PATIENCE)
    planner.gate.set()
    assert len(set(planner.answers(*calls))) == 1
    planner.answers(other)
    assert sorted(planner.works) == [False, True]


def test_a_success_is_given_again_for_a_while_and_a_failure_is_not(planner):
    planner.gate.set()
    for _ in range(2):
        assert planner.answers(planner.ask()) == ["work 1"]
    planner.now += 2.1
    assert planner.answers(planner.ask()) == ["work 2"]
    planner.answers(planner.ask(False))
    planner.answers(planner.ask(False))
    assert planner.works == [True, True, False, False]


def test_under_other_conditions_the_same_request_is_another_one(planner):
    first = planner.ask()
    assert wait_until(lambda: len(planner.works) == 1, PATIENCE)
    planner.conditions += 1
    second = planner.ask()
    assert wait_until(lambda: len(planner.works) == 2, PATIENCE)
    planner.gate.set()
    planner.answers(first, second)
    assert planner.answers(planner.ask()) == planner.answers(second) and len(planner.works) == 2


def test_a_request_that_got_lost_is_repeated_and_one_that_was_slow_is_not_done_twice(planner):
    sent, call_async = [], planner._client.call_async

    def lose_the_first(request):
        sent.append(request)
        return rclpy.task.Future() if len(sent) == 1 else call_async(request)

    planner._client.call_async = lose_the_first
    threading.Timer(1.0, planner.gate.set).start()
    answer = call_service(planner._node, planner._client, SetBool.Request(data=True), PATIENCE, repeat_after=0.2)
    assert answer.success and len(sent) > 2 and planner.works == [True]
