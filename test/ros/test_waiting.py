"""What the waiting helpers say when nobody answers."""

import os
import threading
import time

import pytest
import rclpy
from rclpy.callback_groups import ReentrantCallbackGroup
from std_srvs.srv import Trigger

from sysid_msgs.msg import SampleBatch
from sysid_ros.core.common.errors import Cancelled, SysidError
from sysid_ros.ros import qos
from sysid_ros.ros.other_nodes import ServiceFailed, call_service, no_messages, wait_until


@pytest.fixture
def node(spinning):
    with spinning("asker", namespace="/cell") as node:
        yield node


def test_service_nobody_offers(node):
    client = node.create_client(Trigger, "excitation_planner/plan")
    with pytest.raises(SysidError, match="no server offers the service /cell/excitation_planner/plan") as caught:
        call_service(node, client, Trigger.Request(), 0.2)
    assert "/cell/asker" in str(caught.value)  # those of other tests may still be seen for a while
    assert "Start the node" in str(caught.value) and "SIGSTOP" in str(caught.value)
    client = node.create_client(Trigger, "asker/plan")
    with pytest.raises(SysidError, match="/cell/asker is there and does not offer it: it still starts"):
        call_service(node, client, Trigger.Request(), 0.2)


def offer_silence(node, then=lambda: None):
    """A service that takes requests, does something ``then``, and never answers."""

    async def never(_, response):
        then()
        await rclpy.task.Future(executor=node.executor)
        return response

    return node.create_service(Trigger, "plan", never)


def test_an_answer_that_was_lost_is_asked_for_again(node, monkeypatch):
    sent, asked = [], []

    async def second_time(_, response):
        asked.append(response)
        if len(asked) == 1:
            await rclpy.task.Future(executor=node.executor)
        response.message = "planned"
        return response

    node.create_service(Trigger, "plan", second_time, callback_group=ReentrantCallbackGroup())
    client = node.create_client(Trigger, "plan")
    send = client.call_async
    monkeypatch.setattr(client, "call_async", lambda request: sent.append(time.monotonic()) or send(request))
    assert call_service(node, client, Trigger.Request(), 20.0, repeat_after=0.3).message == "planned"
    # Where the server stands still it is asked more often, but never sooner.
    assert len(sent) >= 2 and all(later - sooner >= 0.3 for sooner, later in zip(sent[:-1], sent[1:], strict=True))


def test_asking_again_ends_in_time(node):
    offer_silence(node)
    client = node.create_client(Trigger, "plan")
    with pytest.raises(ServiceFailed, match="/cell/plan did not answer within 0.5 s"):
        call_service(node, client, Trigger.Request(), 0.5, repeat_after=0.1)
    assert not client._pending_requests  # nothing waits for an answer any more


def test_service_that_goes_away(node, monkeypatch):
    monkeypatch.setattr("sysid_ros.ros.other_nodes._LOST_SECONDS", 0.5)
    server = offer_silence(node, lambda: threading.Timer(0.5, lambda: node.destroy_service(server)).start())
    client = node.create_client(Trigger, "plan")
    with pytest.raises(ServiceFailed, match="the service /cell/plan has gone before it answered"):
        call_service(node, client, Trigger.Request(), 60.0)


def test_waiting_can_be_cancelled(node):
    client = node.create_client(Trigger, "plan")
    start = time.monotonic()
    with pytest.raises(Cancelled):
        call_service(node, client, Trigger.Request(), 30.0, is_cancelled=lambda: time.monotonic() > start + 0.2)
    assert time.monotonic() - start < 25.0


def test_silent_topic_without_publisher_names_topic_and_qos(node):
    error = no_messages(node, "arm_driver/samples", "samples", 2.0, qos.SAMPLES)
    assert str(error) == (
        "no samples on topic /cell/arm_driver/samples within 2 s with QoS reliable, volatile, keep last 1000; "
        "publishers seen: none: is its node running?"
    )


def test_silent_topic_with_an_incompatible_publisher_shows_its_qos(node):
    node.create_publisher(SampleBatch, "arm_driver/samples", qos.JOINT_STATES_SUBSCRIBER)
    assert wait_until(lambda: node.count_publishers("arm_driver/samples") == 1, 5.0)
    error = no_messages(node, "arm_driver/samples", "samples", 2.0, qos.SAMPLES)
    assert "publishers seen: /cell/asker (best effort, volatile): the QoS is incompatible" in str(error)


def test_a_silent_topic_whose_qos_fits_does_not_blame_it_but_names_the_load(node, monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (40.0, 1.0, 1.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    node.create_publisher(SampleBatch, "arm_driver/samples", qos.SAMPLES)
    assert wait_until(lambda: node.count_publishers("arm_driver/samples") == 1, 5.0)
    text = str(no_messages(node, "arm_driver/samples", "samples", 2.0, qos.SAMPLES))
    assert "the QoS fits" in text and text.endswith("this machine is busy: load 40 on 2 cores")
