"""How nodes run and end: signals, errors at the start, work beside the executor."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from std_srvs.srv import Trigger

from sysid_ros.ros.node import create_long_service, run_in_thread

PREAMBLE = """
import sys, time
from rclpy.lifecycle import LifecycleNode, TransitionCallbackReturn
from rclpy.node import Node
from sysid_ros.core.common.errors import SysidError
from sysid_ros.ros.node import spin_main
"""

SLOW_TO_STOP = """
class Slow(Node):
    def __init__(self):
        super().__init__("slow")
        self.create_timer(0.05, self.say)
    def say(self):
        print("ready", flush=True)
    def close(self):
        print("stopping the arm", flush=True)
        time.sleep(0.8)
        self.get_logger().info("ROS still works")
        print("arm at rest", flush=True)
sys.exit(spin_main(Slow))
"""

REFUSES = """
class Refuses(Node):
    def __init__(self):
        super().__init__("refuses")
        raise SysidError("joint 'x' is unknown")
sys.exit(spin_main(Refuses))
"""

BREAKS = """
class Breaks(Node):
    def __init__(self):
        super().__init__("breaks")
        self.create_timer(0.05, lambda: 1 / 0)
    def close(self):
        print("arm at rest", flush=True)
sys.exit(spin_main(Breaks))
"""

LIFECYCLE = """
class Cycle(LifecycleNode):
    def __init__(self):
        super().__init__("cycle")
        self.declare_parameter("autostart", True)
    def on_configure(self, state):
        print("configured", flush=True)
        return TransitionCallbackReturn.SUCCESS
    def on_activate(self, state):
        print("active", flush=True)
        return RESULT
sys.exit(spin_main(Cycle))
"""


def start(code):
    words = [sys.executable, "-c", PREAMBLE + code]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["."] + sys.path)}
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_no_further_signal_breaks_the_stopping():
    """One press of Ctrl-C is two signals to a launched node, and people press twice."""
    process = start(SLOW_TO_STOP)
    assert process.stdout.readline() == "ready\n"
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGINT):
        process.send_signal(number)
        time.sleep(0.15)
    out, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    assert "stopping the arm\narm at rest" in out
    assert "ROS still works" in errors
    assert "Traceback" not in errors


WHOLE_LIFE = r"""
import os
import signal
import sys
import sysid_ros.nodes
import time
print("loading", flush=True)
time.sleep(0.3)
from rclpy.lifecycle import LifecycleNode
from sysid_ros.ros.node import spin_main
class Gone:
    def __del__(self, read=os.read, write=os.write):
        write(1, b"being torn down\n")
        read(0, 1)
        write(1, b"gone\n")
signal.gone = Gone()
class Whole(LifecycleNode):
    def __init__(self):
        super().__init__("whole")
        self.declare_parameter("autostart", True)
        print("made", flush=True)
        time.sleep(0.3)
    def on_configure(self, state):
        print("configured", flush=True)
        time.sleep(0.3)
        return super().on_configure(state)
    def on_activate(self, state):
        print("active", flush=True)
        return super().on_activate(state)
    def close(self):
        print("closing", flush=True)
        time.sleep(0.3)
sys.exit(spin_main(Whole))
"""
"""An executable as installations make it: a script by the name of a node, which loads it, runs it and is torn down."""


@pytest.mark.parametrize("moment", ["loading", "made", "configured", "active", "closing", "being torn down"])
def test_no_signal_ends_an_executable_by_itself_at_any_moment_of_its_life(tmp_path, moment):
    """None before it has come up starts anything that the next one would have to stop."""
    script = tmp_path / "monitor"
    script.write_text(WHOLE_LIFE)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, str(script)], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    said = []
    for line in process.stdout:
        said.append(line.strip())
        stops = [moment] + (["active"] if moment in ("closing", "being torn down") else [])
        if said[-1] in stops:
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGTERM)
        if said[-1] == "being torn down":
            process.stdin.write("x")
            process.stdin.flush()
    assert process.wait(timeout=20) == 0, said
    process.stdin.close()
    process.stdout.close()
    steps = ["loading", "made", "configured", "active"]
    reached = steps[: steps.index(moment) + 1] if moment in steps else steps
    assert said == [*reached, *(["closing"] if moment != "loading" else []), "being torn down", "gone"]


def test_refusal_at_the_start_is_one_sentence_and_status_2():
    process = start(REFUSES)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "cannot start: joint 'x' is unknown" in errors
    assert "Traceback" not in errors


def test_error_in_a_callback_stops_the_arm_and_shows_where():
    process = start(BREAKS)
    out, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "arm at rest" in out
    assert "ZeroDivisionError" in errors


def test_autostart_configures_and_activates():
    process = start(LIFECYCLE.replace("RESULT", "TransitionCallbackReturn.SUCCESS"))
    assert [process.stdout.readline() for _ in range(2)] == ["configured\n", "active\n"]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 0


def test_failed_activation_is_status_2():
    process = start(LIFECYCLE.replace("RESULT", "TransitionCallbackReturn.FAILURE"))
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "cannot start: activate failed" in errors


@pytest.fixture
def worker(spinning):
    """A node that is spun by a thread."""
    with spinning("worker") as node:
        yield node


def call(node, name):
    client = node.create_client(Trigger, name)
    assert client.wait_for_service(5.0)
    done, future = threading.Event(), client.call_async(Trigger.Request())
    future.add_done_callback(lambda _: done.set())
    return done, future


def test_long_work_does_not_stop_the_executor(worker):
    gate = threading.Event()

    async def slow(_, response):
        response.message = await run_in_thread(worker, lambda: "done" if gate.wait(10) else "late")
        return response

    def fast(_, response):
        response.message = "here"
        return response

    create_long_service(worker, Trigger, "slow", slow)
    worker.create_service(Trigger, "fast", fast)
    slow_done, slow_future = call(worker, "slow")
    fast_done, fast_future = call(worker, "fast")
    assert fast_done.wait(5)
    assert fast_future.result().message == "here"
    assert not slow_done.is_set()
    gate.set()
    assert slow_done.wait(5)
    assert slow_future.result().message == "done"


def test_second_call_of_a_long_service_can_be_refused(worker):
    gate, busy = threading.Event(), []

    async def plan(_, response):
        if busy:
            response.message = "busy"
            return response
        busy.append(True)
        response.message = await run_in_thread(worker, lambda: "planned" if gate.wait(10) else "late")
        return response

    create_long_service(worker, Trigger, "plan", plan)
    first_done, first = call(worker, "plan")
    second_done, second = call(worker, "plan")
    assert second_done.wait(5)
    assert second.result().message == "busy"
    gate.set()
    assert first_done.wait(5)
    assert first.result().message == "planned"


def test_error_of_the_work_is_raised_where_it_is_awaited(worker):
    def fail():
        raise ValueError("no plan")

    async def slow(_, response):
        try:
            await run_in_thread(worker, fail)
        except ValueError as error:
            response.message = f"caught: {error}"
        return response

    create_long_service(worker, Trigger, "slow", slow)
    done, future = call(worker, "slow")
    assert done.wait(5)
    assert future.result().message == "caught: no plan"


CLOCKED = """
import os
import signal
import threading
from rosgraph_msgs.msg import Clock
from sysid_ros.ros.node import _CLOCK_PATIENCE
class Clocked(Node):
    def __init__(self):
        super().__init__("clocked")
        if "gives" in sys.argv:
            self.publisher = self.create_publisher(Clock, "/clock", 1)
            threading.Thread(target=self.tick, daemon=True).start()
    def tick(self):
        message, came = Clock(), None
        for message.clock.sec in range(1, 100_000):
            self.publisher.publish(message)
            time.sleep(0.05)
            if came is None and self.get_clock().now().nanoseconds:
                came = time.monotonic()
            if came is not None and time.monotonic() - came > 2.0 * _CLOCK_PATIENCE:
                return os.kill(os.getpid(), signal.SIGINT)
    def close(self):
        print(f"ends at {self.get_clock().now().nanoseconds}", flush=True)
sys.exit(spin_main(Clocked, [word for word in sys.argv if word != "gives"]))
"""


@pytest.mark.parametrize("gives", [False, True])
def test_a_clock_that_nobody_gives_is_missed_aloud(gives):
    words = [sys.executable, "-c", PREAMBLE + CLOCKED, *(["gives"] if gives else [])]
    process = subprocess.Popen(
        [*words, "--ros-args", "-p", "use_sim_time:=true"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    killer = threading.Timer(120.0, process.kill)
    killer.start()
    said = []
    for line in process.stdout:
        said.append(line)
        if "no time has come on /clock" in line:
            process.send_signal(signal.SIGINT)
    killer.cancel()
    assert process.wait(timeout=60) == 0, said
    process.stdout.close()
    assert ("ends at 0\n" in said) != gives  # with a clock there was time
    assert any("use_sim_time is true and no time has come on /clock (0 publishers)" in line for line in said) != gives
