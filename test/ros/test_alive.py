"""Who is alive: a killed and a stopped process are told from one that only computes."""

import os
import signal
import subprocess
import sys
import time

import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from sysid_ros.ros import qos
from sysid_ros.ros.other_nodes import GRACE, Peers, announce

PATIENCE = 60.0
CHILD = """
import sys, rclpy
from sysid_ros.ros.other_nodes import announce
rclpy.init()
node = rclpy.create_node("child")
announce(node)
print("ready", flush=True)
sys.stdin.readline()
while True:  # computes, and holds the interpreter
    sum(range(10_000))
"""


@pytest.fixture
def watch():
    """Peers of a node, and what spins the node until something holds; returns how long that took [s]."""
    rclpy.init()
    node, executor = Node("watch"), SingleThreadedExecutor()
    executor.add_node(node)
    peers = Peers(node, ("child", "nobody"))

    def until(condition, seconds=PATIENCE):
        started = time.monotonic()
        while not condition() and time.monotonic() - started < seconds:
            executor.spin_once(timeout_sec=0.05)
        return time.monotonic() - started

    yield peers, until
    executor.shutdown()
    node.destroy_node()
    rclpy.try_shutdown()


@pytest.fixture
def child():
    running = []

    def start():
        command = [sys.executable, "-c", CHILD]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_killed_and_stopped_processes_are_gone_and_others_are_not(watch, child):
    peers, until = watch
    until(lambda: False, 1.0)
    assert peers.find_gone("child", "nobody") is None  # who never was there has not gone
    process = child()
    process.stdin.write("compute\n")
    process.stdin.flush()
    until(lambda: peers.is_gone("child"), qos.ALIVE_LEASE + 2.0)
    assert not peers.is_gone("child")
    os.kill(process.pid, signal.SIGSTOP)
    assert until(lambda: peers.is_gone("child")) < PATIENCE
    text = peers.find_gone("nobody", "child")
    assert text.startswith("the node child has gone: no heartbeat for up to") and "See its log" in text
    assert peers.find_gone("child", since=time.monotonic()) is None
    os.kill(process.pid, signal.SIGCONT)
    assert until(lambda: not peers.is_gone("child")) < PATIENCE
    process.kill()
    assert until(lambda: peers.is_gone("child")) < PATIENCE
    child()
    assert until(lambda: not peers.is_gone("child")) < PATIENCE
    until(lambda: False, 10.0)  # the middleware forgets the killed one meanwhile
    assert not peers.is_gone("child")


def test_a_node_that_ends_in_order_is_gone_after_a_moment(watch):
    peers, until = watch
    node = Node("child")
    announce(node)
    seen = []
    until(lambda: seen.append(1) or len(seen) > 20)
    node.destroy_node()
    assert until(lambda: peers.is_gone("child")) >= GRACE
