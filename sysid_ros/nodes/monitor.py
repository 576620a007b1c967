"""Node ``monitor``: what the suite does, as RViz markers."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import numpy as np
from rclpy.node import Node
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import JointState
from visualization_msgs.msg import MarkerArray

from sysid_msgs.msg import CertifiedTrajectory
from sysid_msgs.msg import ParameterEstimate as EstimateMessage
from sysid_ros.core.errors import SysidError
from sysid_ros.core.estimation.estimate import ParameterEstimate
from sysid_ros.core.model.kinematics import BodyPoses
from sysid_ros.ros import qos
from sysid_ros.ros.conversions import estimate_from_message, joint_vector_from_message, trajectory_from_message
from sysid_ros.ros.markers import MarkerBuilder
from sysid_ros.ros.node import spin_main
from sysid_ros.ros.parameters import ParameterServer, parameter
from sysid_ros.ros.robot import RobotParameters

UNSEEN_PERIOD = 1.0
"""Time between two publications to nobody [s]."""


@dataclass(frozen=True)
class MonitorParameters(RobotParameters):
    """Parameters of the node ``monitor``."""

    rate: float = parameter(10.0, "Hz", "How often markers are published", lower=0.5, upper=60.0)
    show_spheres: bool = parameter(True, "", "Draw the collision spheres of the arm")
    path_points: int = parameter(100, "-", "Points on the drawn path of the next plan", lower=10, upper=2000)


class MonitorNode(Node):
    """Publishes ``~/markers``: collision spheres, path of the tool, payload with the uncertainty of its CoM.

    The arm is drawn as soon as somebody says where it is.
    """

    def __init__(self) -> None:
        super().__init__("monitor")
        self._config = ParameterServer(self, MonitorParameters)
        self._robot = self._config.values.load_robot(self.get_logger())
        self._poses = BodyPoses(self._robot)
        self._joint_state: bytes | None = None
        self._next_publish = 0.0
        self._estimate: ParameterEstimate | None = None
        self._path: np.ndarray | None = None
        self._publisher = self.create_publisher(MarkerArray, "~/markers", qos.MARKERS)
        self.create_subscription(
            JointState, "joint_states", self._take_joint_state, qos.JOINT_STATES_SUBSCRIBER, raw=True
        )
        self.create_subscription(EstimateMessage, "estimator/estimate", self._take_estimate, qos.LATCHED)
        self.create_subscription(CertifiedTrajectory, "safe_planner/plan", self._take_plan, qos.LATCHED)
        self._timer = self.create_timer(1.0 / self._config.values.rate, self._publish)
        self._config.on_change(lambda new: setattr(self._timer, "timer_period_ns", round(1e9 / new.rate)))

    def _take_joint_state(self, message: bytes) -> None:
        self._joint_state = message  # only the latest is drawn, so only that one is taken apart

    def _position(self) -> np.ndarray | None:
        """Where the arm is, (n,) [rad]; None where nobody says."""
        if self._joint_state is None:
            return None
        message = deserialize_message(self._joint_state, JointState)
        try:
            return joint_vector_from_message(
                "JointState", "position", message.name, message.position, self._robot.joint_names
            )
        except SysidError as error:
            self.get_logger().error(f"joint_states: {error}", throttle_duration_sec=5.0)
            return None

    def _take_estimate(self, message: EstimateMessage) -> None:
        try:
            self._estimate = estimate_from_message(message)
        except SysidError as error:
            self.get_logger().error(f"estimator/estimate: {error}", throttle_duration_sec=5.0)

    def _take_plan(self, message: CertifiedTrajectory) -> None:
        try:
            plan = trajectory_from_message(message.trajectory, self._robot.joint_names)
        except SysidError as error:
            self.get_logger().error(f"safe_planner/plan: {error}", throttle_duration_sec=5.0)
            return
        times = np.linspace(0.0, plan.duration, self._config.values.path_points)
        self._path = self._poses.tool_path(plan.sample(times)[0])

    def _publish(self) -> None:
        # Without a listener one picture in a while is enough for those who come late.
        if self._publisher.get_subscription_count() == 0 and time.monotonic() < self._next_publish:
            return
        self._next_publish = time.monotonic() + UNSEEN_PERIOD
        self._publisher.publish(self._markers())

    def _markers(self) -> MarkerArray:
        values, robot = self._config.values, self._robot
        builder = MarkerBuilder(robot.base_frame, self.get_clock().now().to_msg())
        if self._path is not None:
            builder.add_path("plan", self._path)
        q = self._position()
        if q is None:
            return builder.array()
        rotations, positions = self._poses.compute(q)
        if values.show_spheres:
            for sphere in robot.spheres:
                center = positions[sphere.body] + rotations[sphere.body] @ sphere.center
                builder.add_sphere("arm", center, sphere.radius)
        if self._estimate is not None and self._estimate.is_consistent:
            builder.add_payload(self._estimate, rotations[-1], positions[-1])
        return builder.array()


def main(argv: list[str] | None = None) -> int:
    """Runs the node until it is stopped; returns the exit status."""
    return spin_main(MonitorNode, argv)


if __name__ == "__main__":
    sys.exit(main())
