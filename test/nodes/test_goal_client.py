"""Who is believed to have answered a goal."""

import gc

import numpy as np
import pytest
from node_bench import Bench
from rclpy.action import ActionServer
from rclpy.node import Node

from sysid_msgs.action import Identify
from sysid_ros.core.certification.authentication import AuthenticationKey
from sysid_ros.core.common.interrupts import Interrupts
from sysid_ros.ros.conversions.authentication import is_genuine, sign
from sysid_ros.ros.goal_client import GoalClient, GoalLost
from sysid_ros.ros.other_nodes import wait_until

KEY = AuthenticationKey(b"k" * 32)


def light() -> Identify.Result:
    """A payload that nobody has identified."""
    result = Identify.Result(motion_time=3.0, statistical_lower=np.full(10, np.nan))
    result.estimate.values, result.payload.m = [0.111] + 9 * [0.0], 0.111
    return result


class Answering(Node):
    """Offers the action, and answers each goal at once."""

    def __init__(self, name, answer):
        super().__init__(name)
        self._answer = answer
        self._server = ActionServer(self, Identify, "identification/identify", self._execute)

    def close(self):
        """Ends the action, which its node forgets."""
        self._server.destroy()

    def _execute(self, handle):
        handle.succeed()
        return self._answer()


@pytest.fixture
def bench():
    bench = Bench()
    yield bench
    bench.close()


def number_of_servers(node):
    gc.collect()  # rclpy keeps a server until nothing refers to it
    return node.count_publishers("identification/identify/_action/status")


def ask(key):
    node = Node("asking")
    with Interrupts() as stop:
        client = GoalClient(node, Identify, "identification/identify", stop, key)
        try:
            return client.run(Identify.Goal(), lambda feedback: None, lambda: None)
        finally:
            client.close()
            node.destroy_node()


def test_a_result_is_believed_from_the_suite_alone(bench):
    def signed():
        result = light()
        sign(result, KEY)
        return result

    def changed():
        result = signed()
        result.estimate.values[0] = 1.0
        return result

    for index, (answer, key, is_believed) in enumerate(
        [(signed, KEY, True), (light, None, True), (light, KEY, False), (changed, KEY, False)]
    ):
        node = bench.run(Answering(f"answering_{index}", answer))
        if is_believed:
            found = ask(key)
            assert found.estimate.values[0] == 0.111 and (key is None or is_genuine(found, key))
        else:
            with pytest.raises(GoalLost, match="not signed with the key of this suite"):
                ask(key)
        bench.end(node)
        del node
        assert wait_until(lambda: not number_of_servers(bench.node), 10.0)


def test_two_nodes_that_offer_an_action_get_no_goal(bench, monkeypatch):
    monkeypatch.setattr("sysid_ros.ros.goal_client.SERVER_TIMEOUT", 3.0)
    assert wait_until(lambda: not number_of_servers(bench.node), 10.0)
    for name in ("identification", "imposter"):
        bench.run(Answering(name, light))
    with pytest.raises(GoalLost, match="is offered by 2 nodes, of which one alone can be meant"):
        ask(None)
