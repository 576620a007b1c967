"""An arm under ros2_control over real DDS: latency, losses, load.

``python bench/bench_ros2_control.py [--seconds S]``. The emulated arm and the torque loop are processes of this
computer on a private ROS domain on loopback; the arm runs in real time, without patience. The baseline is a node that
answers every message as soon as its executor calls it.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import subprocess
import sys
import time
from functools import partial

from _network import processor_time
from _table import StolenTime, describe_machine, print_table

from sysid_ros.adapters.joint_link import LinkSetup, RosJointLink
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.model.loader import load_robot
from sysid_ros.drivers.modes import TorqueCommand
from sysid_ros.drivers.process import LoopProcess
from sysid_ros.drivers.registry import Driver, LoopSetup, build_loop
from sysid_ros.drivers.ros2_control.settings import Ros2ControlSettings
from sysid_ros.ros.environment import loopback_environment

MODEL = "kinova_gen3_2f85"
COLUMNS = (
    "loop", "states", "state to command p50 / p99 / max [us]", "longest pause [ms]", "missing",
    "cycles without a state", "waiting at most", "ends as", "CPU",
)  # fmt: skip
ECHO = """
import rclpy, sys
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
rclpy.init()
node = rclpy.create_node("effort_controller_user")
answers = node.create_publisher(Float64MultiArray, "/effort_controller/commands", 1)
node.create_subscription(JointState, "/joint_states", lambda m: answers.publish(Float64MultiArray(data=m.effort)), 10)
rclpy.spin(node)
"""


class Arm:
    """The emulated arm as a context."""

    def __init__(self, rate: float, *options: str):
        self._command = [
            sys.executable, "-m", "sysid_ros.emulators.nodes.ros2_control_emulator", "--robot", MODEL,
            "--payload", "0.6", "--update-rate", str(rate), *options, "--while-stdin",
        ]  # fmt: skip

    def __enter__(self) -> Arm:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait()


def loop_row(name: str, rate: float, seconds: float, controller: str = "robust", is_monitor: bool = False) -> tuple:
    """Runs one loop against one arm."""
    robot = load_robot(MODEL)
    connection = Ros2ControlSettings(period=1.0 / rate, torque_command=TorqueCommand.FULL)
    link = LinkSetup(robot.joint_names, commands="" if is_monitor else "/effort_controller/commands")
    driver = Driver.MONITOR if is_monitor else Driver.ROS2_CONTROL
    setup = LoopSetup(MODEL, driver, (connection, partial(RosJointLink, link)), controller)
    with Arm(rate, *(["--motion"] if is_monitor else [])):
        process = LoopProcess(partial(build_loop, setup), robot.n, is_real_time=True)
        try:
            process.start()
        except SysidError as error:
            return (name, "", str(error), "", "", "", "", "not taken over", "")
        before, started = processor_time(process.pid), time.monotonic()
        time.sleep(seconds)
        share = (processor_time(process.pid) - before) / (time.monotonic() - started)
        health, status = process.health(), process.status()
        process.stop()
    reaction = health.get("state to command p50 / p99 / max [us]", "")
    return (
        name, health["states received"], reaction, round(1e3 * health["longest pause [s]"], 1),
        health["states missing"], status.invalid_cycles, health.get("states waiting at most", ""), status.mode.name,
        f"{100.0 * share:.0f} %",
    )  # fmt: skip


def echo_row(seconds: float) -> tuple:
    """The baseline: what an ordinary node costs at 1 kHz; its own reaction cannot be seen from outside."""
    with Arm(1000.0):
        process = subprocess.Popen([sys.executable, "-c", ECHO])
        time.sleep(2.0)
        before, started = processor_time(process.pid), time.monotonic()
        time.sleep(seconds)
        share = (processor_time(process.pid) - before) / (time.monotonic() - started)
        process.terminate()
        process.wait()
    return ("baseline: a node with an executor, 1 kHz", "", "", "", "", "", "", "", f"{100.0 * share:.0f} %")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6.0, help="duration of each row [s]")
    seconds = parser.parse_args().seconds
    os.environ.update(loopback_environment())
    print(describe_machine())
    stolen = StolenTime()
    rows = [
        echo_row(seconds),
        loop_row("gravity PID, 1 kHz", 1000.0, seconds, "gravity_pid"),
        loop_row("robust controller, 1 kHz", 1000.0, seconds),
        loop_row("robust controller, 500 Hz", 500.0, seconds),
        loop_row("robust controller, 250 Hz", 250.0, seconds),
        loop_row("monitoring only, 1 kHz", 1000.0, seconds, is_monitor=True),
    ]
    print_table(COLUMNS, rows, "ros2_control: the loop over DDS on loopback, the arm in real time on the same computer")
    print(stolen.describe())


if __name__ == "__main__":
    main()
