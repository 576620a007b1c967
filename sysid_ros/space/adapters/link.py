"""The link to a free-flying robot over topics: its measurements, and trajectories that it follows.

A driver, simulated or real, publishes odometry and joint states with equal stamps and a status; it follows trajectories
from their topic, and answers with the hash in its status.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
from nav_msgs.msg import Odometry
from rclpy.client import Client
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Empty
from std_srvs.srv import Trigger

from sysid_msgs.msg import DriverStatus, NamedArray, Trajectory
from sysid_ros.core.common.errors import Cancelled, SysidError
from sysid_ros.core.procedure.types import IdentificationErrorCode, IdentificationFailed
from sysid_ros.core.trajectories.families import CycloidTrajectory
from sysid_ros.drivers.arm import Array
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.common import InvalidMessage, joint_order, stamp_from_message
from sysid_ros.ros.conversions.plans import trajectory_to_message
from sysid_ros.ros.other_nodes import wait_until
from sysid_ros.space.adapters.messages import odometry_from_message
from sysid_ros.space.core.identification import Samples
from sysid_ros.space.core.robot import FreeFlyer
from sysid_ros.space.report import SimulationTruth

_STOP_TIMEOUT = 10.0
"""How long the robot may take to come to rest after it was asked to, by the clock on the wall [s]."""


def _driver_silent(what: str, seconds: float) -> IdentificationFailed:
    advice = "start it, or check namespace and ROS_DOMAIN_ID"
    text = f"no {what} from free_flyer_driver within {seconds:g} s; {advice}"
    return IdentificationFailed(IdentificationErrorCode.DRIVER_NOT_READY, text)


def _motion_failed(text: str) -> IdentificationFailed:
    return IdentificationFailed(IdentificationErrorCode.EXECUTION_FAILED, f"the motion failed: {text}")


class FreeFlyerLink:
    """The port of the procedure, over topics; its work runs beside the executor that spins the node.

    Args:
        node: The node.
        robot: The robot.
        timeout: Longest silence of the driver [s].
        on_sample: Called with topic, type, message and stamp [ns] of every measurement, to record it.

    Attributes:
        logger: Log of the node.
        is_cancelled: Whether the goal is cancelled.
        planned: The present motion; None while the robot rests.
    """

    def __init__(
        self,
        node: Node,
        robot: FreeFlyer,
        timeout: float,
        on_sample: Callable[[str, str, object, int], None] = lambda topic, kind, message, stamp_ns: None,
    ):
        self._node, self._robot, self.timeout, self._on_sample = node, robot, timeout, on_sample
        self.logger = node.get_logger()
        self._simulated: dict[str, Array] = {}
        self._names = [*robot.joint_names, *robot.wheels.names]
        self._lock = threading.Lock()
        self._bases: dict[int, tuple[Array, Array, Array]] = {}
        self._joints: dict[int, tuple[Array, Array]] = {}
        self._status: DriverStatus | None = None
        self._invalid: SysidError | None = None
        self.is_cancelled: Callable[[], bool] = lambda: False
        self.planned: CycloidTrajectory | None = None
        node.create_subscription(Odometry, "free_flyer_driver/odometry", self._take_odometry, qos.SAMPLES)
        node.create_subscription(JointState, "joint_states", self._take_joints, qos.SAMPLES)
        node.create_subscription(DriverStatus, "free_flyer_driver/status", self._take_status, qos.STATUS)
        # Truth of a simulated robot; only compared with at the end, in the files.
        node.create_subscription(NamedArray, "free_flyer_driver/truth", self._take_simulated, qos.LATCHED)
        node.create_subscription(NamedArray, "free_flyer_driver/held", self._take_simulated, qos.LATCHED)
        node.create_subscription(NamedArray, "free_flyer_driver/drift", self._take_simulated, qos.LATCHED)
        self._trajectories = node.create_publisher(Trajectory, "free_flyer_driver/trajectory", 1)
        self._heartbeat = node.create_publisher(Empty, "free_flyer_driver/heartbeat", 1)
        self._brake: Client = node.create_client(Trigger, "free_flyer_driver/brake")

    # Subscriptions

    def _take_odometry(self, message: Odometry) -> None:
        stamp = stamp_from_message(message.header.stamp)
        try:
            values = odometry_from_message(self._robot, message)
        except InvalidMessage as error:
            self._invalid = error
            return
        with self._lock:
            self._bases[stamp] = values
        self._on_sample("/free_flyer_driver/odometry", "nav_msgs/msg/Odometry", message, stamp)

    def _take_joints(self, message: JointState) -> None:
        stamp = stamp_from_message(message.header.stamp)
        try:
            order = joint_order("JointState", message.name, self._names)
            if len(message.position) != len(message.name) or len(message.velocity) != len(message.name):
                raise InvalidMessage("JointState", "position and velocity", "must have one number for each name")
        except InvalidMessage as error:
            self._invalid = error
            return
        with self._lock:
            self._joints[stamp] = np.array(message.position)[order], np.array(message.velocity)[order]
        self._on_sample("/joint_states", "sensor_msgs/msg/JointState", message, stamp)

    def _take_status(self, message: DriverStatus) -> None:
        self._status = message

    def _take_simulated(self, message: NamedArray) -> None:
        self._simulated[message.name] = np.array(message.data)

    @property
    def truth(self) -> SimulationTruth | None:
        """Truth of a simulated robot, from its driver; None of a real one."""
        parameters = self._simulated.get("parameters")
        if parameters is None:
            return None
        held = self._simulated.get("held", np.zeros_like(parameters))
        return SimulationTruth(parameters, held, self._simulated.get("drift"))

    # The port

    def forget(self) -> None:
        """Drop all samples: a new identification begins."""
        with self._lock:
            self._bases.clear()
            self._joints.clear()
        self._invalid = None

    def samples(self) -> Samples:
        """See :meth:`FreeFlyerPort.samples`: base and joints matched by equal stamps.

        Raises:
            InvalidMessage: A message could not be used.
        """
        if self._invalid is not None:
            raise self._invalid
        with self._lock:
            stamps = sorted(self._bases.keys() & self._joints.keys())
            axes = len(self._names)
            if not stamps:
                return Samples(np.zeros(0), np.zeros((0, 6)), np.zeros((0, axes)), np.zeros((0, axes)))
            twist, rotations, positions = (np.array([self._bases[stamp][k] for stamp in stamps]) for k in range(3))
            q, v = (np.array([self._joints[stamp][k] for stamp in stamps]) for k in range(2))
        return Samples(1e-9 * (np.array(stamps) - stamps[0]), twist, q, v, rotations, positions)

    def wait_until_ready(self) -> None:
        """Wait for the status of the driver and for samples.

        Raises:
            IdentificationFailed: One of them does not come.
            InvalidMessage: Odometry or joint states do not fit the robot.
        """
        self._wait(lambda: self._status is not None, "status")
        self._wait(lambda: len(self.samples().times) > 1, "odometry with joint states")

    def reference(self) -> Array:
        """See :meth:`FreeFlyerPort.reference`."""
        status = self._require_status()
        if status.mode != DriverStatus.MODE_HOLD:
            raise _motion_failed(f"the robot does not rest: {status.text}")
        order = joint_order("DriverStatus", status.joint_names, self._names)
        return np.array(status.reference_position)[order]

    def follow(self, trajectory: CycloidTrajectory, on_progress: Callable[[float], None]) -> None:
        """See :meth:`FreeFlyerPort.follow`.

        Raises:
            IdentificationFailed: The driver does not answer, refused the motion, or ended it early.
            Cancelled: ``is_cancelled`` returned true; the robot has been brought to rest.
        """
        try:
            self.planned = trajectory
            self._follow(trajectory, on_progress)
        finally:
            self.planned = None

    def latest(self) -> Array | None:
        """Return the last received joint positions, (n,) [rad]; None before any."""
        with self._lock:
            return next(reversed(self._joints.values()))[0][: self._robot.n] if self._joints else None

    def _follow(self, trajectory: CycloidTrajectory, on_progress: Callable[[float], None]) -> None:
        message = trajectory_to_message(
            trajectory, self._names, self._node.get_clock().now().nanoseconds, self._robot.base_link
        )
        self._heartbeat.publish(Empty())
        self._trajectories.publish(message)
        self._wait(lambda: self._require_status().plan_id == message.hash, "answer to a trajectory")
        status = self._require_status()
        if status.mode == DriverStatus.MODE_HOLD:
            raise _motion_failed(status.text)
        while (status := self._require_status()).plan_id == message.hash:
            self._heartbeat.publish(Empty())
            if self.is_cancelled():
                self._stop()
                raise Cancelled("cancelled; the robot has come to rest")
            if status.mode == DriverStatus.MODE_TRACK:
                on_progress(float(status.progress))
            time.sleep(0.1)
        if status.code != DriverStatus.CODE_OK:
            raise _motion_failed(status.text)

    def _stop(self) -> None:
        """Bring the robot to rest; without the service it brakes by itself after the last heartbeat."""
        if self._brake.service_is_ready():
            self._brake.call_async(Trigger.Request())
        wait_until(lambda: self._require_status().mode == DriverStatus.MODE_HOLD, _STOP_TIMEOUT)

    def _require_status(self) -> DriverStatus:
        if self._status is None:
            raise _driver_silent("status", 0.0)
        return self._status

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        if not wait_until(condition, self.timeout, self.is_cancelled):
            raise _driver_silent(what, self.timeout)
