"""Two processes talk with our own messages, at the rate and size of the real ones, and nothing is lost."""

import os
import subprocess
import sys

import numpy as np
import pytest

from sysid_msgs.msg import SampleBatch
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.samples import samples_from_message
from sysid_ros.ros.other_nodes import wait_until

JOINTS = tuple(f"joint_{k}" for k in range(1, 8))
BATCHES = 60

PEER = """
import sys, time
import numpy as np
from rclpy.node import Node
from sysid_msgs.msg import SampleBatch
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.samples import Samples, samples_to_message
from sysid_ros.ros.node import spin_main

JOINTS = tuple(f"joint_{k}" for k in range(1, 8))

class Peer(Node):
    def __init__(self):
        super().__init__("peer")
        self.number = 0
        self.publisher = self.create_publisher(SampleBatch, "~/samples", qos.SAMPLES)
        self.create_timer(0.02, self.send)

    def send(self):
        if self.publisher.get_subscription_count() == 0 or self.number >= 20 * BATCHES:
            return
        sequence = self.number + np.arange(20)
        values = sequence[:, None] + 0.1 * np.arange(7)
        samples = Samples(sequence * 1_000_000, sequence, *(values + k for k in range(7)),
                          valid=np.ones(20, bool), mode=np.ones(20, np.uint8))
        self.publisher.publish(samples_to_message(samples, JOINTS, "base"))
        self.number += 20

sys.exit(spin_main(Peer))
"""


@pytest.fixture(scope="module")
def peer():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([".", *sys.path])}
    code = PEER.replace("BATCHES", str(BATCHES))
    process = subprocess.Popen([sys.executable, "-c", code], env=environment)
    yield process
    process.terminate()
    assert process.wait(timeout=20) == 0


@pytest.fixture(scope="module")
def node(peer, spinning):
    with spinning("listener") as node:
        yield node


def test_batches_arrive_complete_and_in_order(peer, node):
    received = []
    node.create_subscription(SampleBatch, "peer/samples", received.append, qos.SAMPLES)
    assert wait_until(lambda: len(received) >= BATCHES, 60.0), f"{len(received)} of {BATCHES} batches came"
    samples = [samples_from_message(batch, JOINTS) for batch in received]
    sequence = np.concatenate([one.sequence for one in samples])
    np.testing.assert_array_equal(sequence, np.arange(20 * BATCHES))
    np.testing.assert_array_equal(np.concatenate([one.tau for one in samples])[:, 6], sequence + 0.1 * 6 + 2)
