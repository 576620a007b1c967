"""Nodes whose machine's clock is set while they run: in bench/bench_fault_campaign.py a whole suite, here one node."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NODE = """
import sys, time
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from std_msgs.msg import Empty
from sysid_ros.ros.other_nodes import Waker, announce
from sysid_ros.ros.node import create_timer
rclpy.init()
node, executor, calls = Node("stepped"), SingleThreadedExecutor(), {"ours": 0, "of the clock": 0}
executor.add_node(node)
def count(name):
    calls[name] += 1
create_timer(node, 0.02, lambda: count("ours"))
node.create_timer(0.02, lambda: count("of the clock"))
watch = Waker(node, announce(node))
def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        executor.spin_once(timeout_sec=0.1)
spin(0.3)
wall, steady = time.time(), time.monotonic()  # before the clock may be set
print("runs", flush=True)
sys.stdin.readline()
calls.update(dict.fromkeys(calls, 0))
print(f"{time.time() - wall:.0f} {time.monotonic() - steady < 60.0}")
spin(1.0)
watch.close()
print(calls["ours"] > 10, calls["of the clock"] > 10)
executor.shutdown()
node.destroy_node()
rclpy.try_shutdown()
"""


@pytest.fixture
def clock(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "bench")
    from _shifted_clock import ShiftedClock

    return ShiftedClock(tmp_path)


def test_timers_go_on_where_the_clock_is_set_back(clock):
    process = subprocess.Popen(
        [sys.executable, "-c", NODE],
        env={**os.environ, **clock.variables, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "runs\n"
        clock.jump(-3600.0)
        said, warned = process.communicate("\n", timeout=120.0)
    finally:
        process.kill()
    # A timer by the clock of the node stands still for an hour: what the test would say of one that is not steady.
    assert said.splitlines() == ["-3600 True", "True False"]
    assert "the clock of this machine was set back by 3600.0 s" in warned
