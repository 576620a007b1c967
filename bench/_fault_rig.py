"""The suite as processes that can be killed, stopped and started again one by one, and goals sent to it."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rclpy
from _shifted_clock import ShiftedClock
from rclpy.action import ActionClient
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from std_srvs.srv import Trigger

from sysid_msgs.action import Identify
from sysid_msgs.msg import DriverStatus, SampleBatch
from sysid_ros.cli.suite import ProcessGroup, Suite, node_command, stop_groups, suite_environment
from sysid_ros.core.model.loader import load_robot
from sysid_ros.drivers.mujoco.simulation import load_payload
from sysid_ros.processes import IDENTIFY, resolve
from sysid_ros.ros import qos
from sysid_ros.ros.node import spin_until
from sysid_ros.ros.other_nodes import Peers, ServerProbe

NAMES = tuple(process.executable for process in IDENTIFY)
LONG = {"max_motion_time": 4.5, "number_of_trajectories": 2}
"""The goal that is disturbed."""
SHORT = {"max_motion_time": 3.0, "number_of_trajectories": 1}
"""The goal that shows that all is well again."""
PATIENCE = 240.0
"""How long anything may take [s]; what takes longer counts as lost."""
RESTING_SPEED = 0.02
"""Largest measured joint speed of an arm at rest [rad/s]: the noise of the sensors is in it."""
PAYLOAD = "dumbbell_4lb"
PARAMETERS = {
    "arm_driver": {"payload": PAYLOAD, "truth": "random", "seed": 5},
    "identification": {"weighing_time": 0.5, "return_to_start": False},
}


@dataclass
class Outcome:
    """What became of a goal.

    Attributes:
        code: Its error code; None where there was no result.
        text: Its sentence.
        seconds: Time from the event that was waited from until its end [s].
        contains_truth: Whether the bounds contain the true payload; None without bounds.
    """

    code: int | None
    text: str
    seconds: float
    contains_truth: bool | None = None


class Rig:
    """The suite, and a node that watches it.

    Args:
        folder: For logs, parameters and results.
        domain_id: ROS domain of this process too.
        namespace: Namespace of the suite.
        clock: Clock of its processes; None for that of the machine.
    """

    def __init__(self, folder: Path, domain_id: int, namespace: str = "", clock: ShiftedClock | None = None):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        started = resolve({"robot_name": namespace, "results_root": str(folder / "results")})
        environment = suite_environment(folder, domain_id)
        suite = Suite(started, None, folder, environment, PARAMETERS)
        self._commands = {one.process.executable: node_command(one, suite._write_parameters(one)) for one in started}
        own = {} if clock is None else clock.variables
        self._environments = {one.process.executable: {**suite.environment_of(one), **own} for one in started}
        self.groups: dict[str, ProcessGroup] = {}
        self._truth = load_payload(load_robot(), PAYLOAD)
        self.node = Node(f"campaign_{namespace}")
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self.node)
        prefix = f"/{namespace}/" if namespace else "/"
        self.prefix = prefix
        self.status: DriverStatus | None = None
        self.status_time = self.sample_time = -1e9
        self.speed = self.bound_used = 0.0
        self.peers = Peers(self.node, [f"{prefix}{name}" for name in NAMES])
        self.node.create_subscription(DriverStatus, f"{prefix}arm_driver/status", self._on_status, qos.STATUS)
        self.node.create_subscription(SampleBatch, f"{prefix}arm_driver/samples", self._on_samples, qos.SAMPLES)
        self._client: ActionClient = ActionClient(self.node, Identify, f"{prefix}identification/identify")
        self._reconnect = self.node.create_client(Trigger, f"{prefix}arm_driver/reconnect")

    def _on_status(self, status: DriverStatus) -> None:
        self.status, self.status_time = status, time.monotonic()
        if status.mode in (DriverStatus.MODE_TRACK, DriverStatus.MODE_BRAKE):
            pairs = zip(status.tracking_error_max, status.tracking_bound, strict=True)
            self.bound_used = max([self.bound_used, *(error / bound for error, bound in pairs if bound > 0.0)])

    def _on_samples(self, batch: SampleBatch) -> None:
        self.sample_time = time.monotonic()
        if len(batch.velocities):
            self.speed = max(abs(velocity) for velocity in batch.velocities[-len(batch.joint_names) :])

    # Processes

    def start(self, *names: str) -> None:
        """Start processes; all without names."""
        for name in names or NAMES:
            log = self.folder / f"{name}.log"
            self.groups[name] = ProcessGroup(name, self._commands[name], self._environments[name], log)

    def restart(self, name: str) -> bool:
        """Start a process again that has ended, and wait until it says that it is alive."""
        self.start(name)
        return self.spin_until(lambda: not self.peers.is_gone(f"{self.prefix}{name}"))

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process alone; what it has started is on its own."""
        os.kill(self.groups[name].pid, number)

    def loop_pids(self) -> list[int]:
        """Return the processes that the driver has started: the torque loop, and the proof of plans."""
        tasks = Path(f"/proc/{self.groups['arm_driver'].pid}/task")  # its children have sessions of their own
        return [int(pid) for path in tasks.glob("*/children") for pid in path.read_text().split()]

    def limit_file_size(self, name: str, size: int) -> None:
        """Let a running process write no file beyond a size [bytes]; -1 for any."""
        resource.prlimit(self.groups[name].pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def stop(self) -> None:
        """End all processes."""
        for group in self.groups.values():
            group.send(signal.SIGCONT)
        stop_groups(list(self.groups.values()))

    def close(self) -> None:
        """End all processes and the node."""
        self.stop()
        self._executor.shutdown(timeout_sec=1.0)
        self.node.destroy_node()

    # Watching

    def spin_until(self, condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
        """Spin until a condition holds; return whether it does within the time [s]."""
        return spin_until(self._executor, condition, seconds)

    def is_at_rest(self) -> bool:
        """Return whether the driver says, now, that the arm is held, and the samples that it does not move."""
        now = time.monotonic()
        status = self.status
        is_held = status is not None and status.mode == DriverStatus.MODE_HOLD and not status.is_taking_over
        return is_held and now - self.status_time < 1.5 and now - self.sample_time < 1.0 and self.speed < RESTING_SPEED

    def come_to_rest(self) -> bool:
        """Wait until the arm is held at rest; where the driver has a fault, ask it to take the arm over again."""

        def has_fault() -> bool:
            return self.status is not None and self.status.mode == DriverStatus.MODE_FAULT

        def is_fresh() -> bool:
            return time.monotonic() - self.status_time < 1.5

        if not self.spin_until(lambda: is_fresh() and (self.is_at_rest() or has_fault())):
            return False
        if has_fault():
            self._reconnect.call_async(Trigger.Request())
        return self.spin_until(self.is_at_rest)

    def is_ready(self) -> bool:
        """Wait until goals are answered and the arm is held."""
        probe = ServerProbe(self._client)
        return self.spin_until(probe.is_answered) and self.come_to_rest()

    # Goals

    def send(self, fields: dict[str, Any]) -> Any:
        """Send a goal and return the future of its result; None where it was not answered."""
        sent = self._client.send_goal_async(Identify.Goal(**fields))
        if not self.spin_until(sent.done, 30.0) or not sent.result().accepted:
            return None
        return sent.result().get_result_async()

    def wait(self, result: Any, since: float) -> Outcome:
        """Wait for the end of a goal, or for identification itself to be known as gone; times count from ``since``."""
        gone = f"{self.prefix}identification"
        self.spin_until(lambda: result.done() or self.peers.is_gone(gone))
        seconds = time.monotonic() - since
        if not result.done():
            return Outcome(None, self.peers.find_gone(gone) or "no result", seconds)
        answer = result.result().result
        lower, upper = answer.estimate.lower, answer.estimate.upper
        inside = None
        if answer.error_code == Identify.Result.NONE and len(lower) == 10:
            inside = all(low <= true <= high for low, true, high in zip(lower, self._truth, upper, strict=True))
        return Outcome(answer.error_code, answer.error_text, seconds, inside)

    def identify(self, fields: dict[str, Any]) -> Outcome:
        """Send a goal and wait for its end."""
        started = time.monotonic()
        result = self.send(fields)
        return (
            Outcome(None, "the goal was not answered", time.monotonic() - started)
            if result is None
            else self.wait(result, started)
        )


def begin_ros() -> None:
    """Open the ROS context of this process."""
    rclpy.init(args=[sys.argv[0]], signal_handler_options=SignalHandlerOptions.NO)
