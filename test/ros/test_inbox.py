"""A topic whose messages wait until they are asked for, even where an executor spins the node."""

import time

import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.serialization import deserialize_message
from std_msgs.msg import String

from sysid_ros.ros.qos import EFFORT_COMMANDS, LATCHED, SAMPLES
from sysid_ros.ros.subscriptions import Inbox


@pytest.fixture
def node():
    rclpy.init()
    node = Node("reader", namespace="/inbox")
    yield node
    node.destroy_node()
    rclpy.shutdown()


def publish(node, profile, *words):
    publisher = node.create_publisher(String, "words", profile)
    deadline = time.monotonic() + 10.0
    while not publisher.get_subscription_count() and time.monotonic() < deadline:
        time.sleep(0.01)
    for word in words:
        publisher.publish(String(data=word))


def test_messages_wait_in_order_and_no_executor_takes_them(node):
    inbox, heard = Inbox(node, String, "words", SAMPLES), []
    node.create_subscription(String, "words", lambda m: heard.append(m.data), SAMPLES)
    assert inbox.take() == []
    publish(node, SAMPLES, "one", "two", "three")
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    deadline = time.monotonic() + 10.0
    while len(heard) < 3 and time.monotonic() < deadline:
        executor.spin_once(timeout_sec=0.1)
    executor.shutdown()
    inbox.wait(10.0)
    assert [message.data for message in inbox.take()] == heard == ["one", "two", "three"]
    assert inbox.take() == []


def test_only_as_many_wait_as_the_profile_says(node):
    inbox = Inbox(node, String, "words", EFFORT_COMMANDS)
    publish(node, EFFORT_COMMANDS, "one", "two")
    inbox.wait(10.0)
    deadline, found = time.monotonic() + 10.0, []
    while "two" not in found and time.monotonic() < deadline:
        found = [message.data for message in inbox.take()] or found
    assert found == ["two"]


def test_raw_messages_and_waiting_in_vain(node):
    inbox = Inbox(node, String, "words", LATCHED, raw=True)
    started = time.monotonic()
    inbox.wait(0.05)
    assert time.monotonic() - started > 0.04
    publish(node, LATCHED, "late")
    inbox.wait(10.0)
    (message,) = inbox.take()
    assert deserialize_message(message, String).data == "late"
