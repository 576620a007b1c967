"""Topics that one publisher may speak on."""

from types import SimpleNamespace

import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.serialization import serialize_message
from std_msgs.msg import String

from sysid_ros.ros import subscriptions as module
from sysid_ros.ros.node import spin_until
from sysid_ros.ros.qos import SAMPLES
from sysid_ros.ros.subscriptions import LOOK_AGAIN, MEMORY, SILENCE, SingleSource, SourceReceiver

OURS, THEIRS = b"\x01" * 16, b"\x02" * 16


class Graph:
    """A node that sees publishers, and a clock."""

    def __init__(self, *present):
        self.present, self.now = list(present), 100.0

    @staticmethod
    def resolve_topic_name(topic):
        return f"/left/{topic}"

    def get_publishers_info_by_topic(self, topic):
        assert topic == "/left/arm_driver/samples"
        return [
            SimpleNamespace(endpoint_gid=list(gid), node_namespace="/left", node_name="arm_driver")
            for gid in self.present
        ]


@pytest.fixture
def graph():
    return Graph(OURS)


@pytest.fixture
def source(graph):
    return SingleSource(graph, "arm_driver/samples", lambda: graph.now)


def says(gid):
    """What rclpy tells of a message of this publisher."""
    return {"publisher_gid": {"implementation_identifier": "rmw_fastrtps_cpp", "data": gid}}


def test_a_second_publisher_of_the_same_name_is_refused_and_named(source, graph):
    assert source.admits(says(OURS)) and source.fault is None
    graph.present.append(THEIRS)
    assert not source.admits(says(THEIRS)) and source.admits(says(OURS))
    assert source.refused == 1 and source.bound == OURS
    assert THEIRS.hex() in source.fault and OURS.hex() in source.fault and "/left/arm_driver/samples" in source.fault
    graph.now += MEMORY + 0.1
    assert source.fault is None


def test_of_two_at_the_start_neither_counts_until_one_has_ended(source, graph):
    graph.present.append(THEIRS)
    assert not source.admits(says(OURS)) and not source.admits(says(THEIRS))
    assert "more than one node publishes" in source.fault and source.bound is None
    graph.present.remove(THEIRS)
    graph.now += 2.0 * LOOK_AGAIN
    assert source.admits(says(OURS)) and source.bound == OURS


def test_a_storm_of_refused_messages_does_not_ask_the_graph_for_each(source, graph):
    asked, ask = [], graph.get_publishers_info_by_topic
    graph.get_publishers_info_by_topic = lambda topic: asked.append(topic) or ask(topic)
    source.admits(says(OURS))
    graph.present.append(THEIRS)
    for _ in range(1000):
        graph.now += 0.001
        assert not source.admits(says(THEIRS)) and source.admits(says(OURS))
    assert source.refused == 1000 and len(asked) <= 2 + 1.0 / LOOK_AGAIN
    graph.present[:] = [THEIRS]
    graph.now += 2.0 * LOOK_AGAIN
    assert source.admits(says(THEIRS))


def test_a_source_that_only_falls_silent_is_not_replaced(source, graph):
    source.admits(says(OURS))
    graph.present.append(THEIRS)
    graph.now += 100.0
    assert not source.admits(says(THEIRS))


def test_a_source_that_has_ended_is_replaced(source, graph):
    source.admits(says(OURS))
    graph.present[:] = [THEIRS]
    assert source.admits(says(THEIRS)) and source.bound == THEIRS


def test_a_new_beginning_replaces_a_silent_source_and_the_old_one_cannot_come_back(source, graph):
    source.admits(says(OURS))
    graph.present.append(THEIRS)  # the first one was killed, and the middleware has not noticed yet
    source.release_if_silent()
    assert source.bound == OURS  # it has just spoken
    graph.now += SILENCE + 0.1
    source.release_if_silent()
    assert source.admits(says(THEIRS)) and not source.admits(says(OURS)) and source.bound == THEIRS


def test_who_spoke_too_early_for_a_new_beginning_is_no_conflict(source, graph):
    source.admits(says(OURS))
    graph.present.append(THEIRS)
    graph.now += SILENCE + 0.1
    assert not source.admits(says(THEIRS)) and source.fault is not None
    source.release_if_silent()
    assert source.fault is None and source.admits(says(THEIRS))


def test_a_source_that_was_only_slow_goes_on_after_a_new_beginning(source, graph):
    source.admits(says(OURS))
    graph.now += SILENCE + 0.1
    source.release_if_silent()
    assert source.admits(says(OURS)) and source.fault is None


def test_without_identities_only_a_topic_with_one_publisher_counts(source, graph):
    assert source.admits({}) and source.bound == OURS
    graph.present.append(THEIRS)
    assert not source.admits({}) and source.refused == 1 and source.fault is not None
    graph.present.remove(OURS)
    assert source.admits({}) and source.bound == THEIRS


def test_who_was_refused_and_has_ended_is_no_conflict_whatever_is_still_on_its_way(source, graph):
    source.admits(says(OURS))
    graph.present.append(THEIRS)
    assert not source.admits(says(THEIRS)) and source.fault is not None
    graph.present.remove(THEIRS)
    for _ in range(100):
        graph.now += 2.0 * LOOK_AGAIN
        assert not source.admits(says(THEIRS)) and source.fault is None


@pytest.fixture
def nodes():
    rclpy.init()
    nodes = [Node(name, namespace="/storm") for name in ("reader", "ours", "theirs")]
    yield nodes
    for node in nodes:
        node.destroy_node()
    rclpy.shutdown()


@pytest.mark.processes
def test_a_backlog_of_others_is_refused_unread_in_a_few_turns_and_what_the_source_says_is_taken(nodes, monkeypatch):
    monkeypatch.setattr(module, "TURN", 10.0)
    reader, ours, theirs = nodes
    heard, faults = [], []
    source = SourceReceiver(
        reader, String, "words", lambda m: heard.append(m.data), SAMPLES, on_refused=faults.append
    ).source
    executor = SingleThreadedExecutor()
    executor.add_node(reader)

    def publisher_of(node):
        publisher = node.create_publisher(String, "words", SAMPLES)
        assert spin_until(executor, publisher.get_subscription_count, 10.0)
        return publisher

    talk = publisher_of(ours)
    talk.publish(String(data="one"))
    assert spin_until(executor, lambda: heard == ["one"], 10.0)
    storm, garbage = publisher_of(theirs), serialize_message(String(data="no"))[:6]  # no string
    assert spin_until(executor, lambda: reader.count_publishers("words") == 2, 10.0)
    for _ in range(500):
        storm.publish(garbage)
    talk.publish(garbage)
    talk.publish(String(data="two"))
    turns = []
    assert spin_until(executor, lambda: turns.append(1) or source.refused == 500 and heard[1:] == ["two"], 10.0)
    assert len(turns) < 100 and faults and "/storm/theirs" in faults[-1]
    executor.shutdown()
