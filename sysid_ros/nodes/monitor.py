"""Node ``monitor``: the suite as RViz markers and, if asked for, in a browser."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from functools import partial

import numpy as np
from rclpy.node import Node
from rclpy.serialization import deserialize_message
from rclpy.subscription import Subscription
from sensor_msgs.msg import JointState
from visualization_msgs.msg import MarkerArray

from sysid_msgs.msg import CertifiedTrajectory, DriverStatus
from sysid_msgs.msg import ParameterEstimate as EstimateMessage
from sysid_msgs.msg import Scene as SceneMessage
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.collision.clearance import spheres_of_payload
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.collision.swept import SweptSpheres, sweep_spheres
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.model.mechanics import BodyPoses
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.common import joint_vector_from_message, stamp_from_message
from sysid_ros.ros.conversions.estimate import estimate_from_message
from sysid_ros.ros.conversions.plans import certified_plan_from_message, scene_from_message
from sysid_ros.ros.markers import MarkerBuilder, PlanCache, draw_plan, draw_scene
from sysid_ros.ros.node import create_timer, spin_main
from sysid_ros.ros.parameters import ParameterServer, parameter
from sysid_ros.ros.robot import FrameParameters, RobotParameters
from sysid_ros.view.scene import ArmView

STATUS_SILENCE = 3.0
"""After this long without a status of the driver, no plan is drawn as followed [s]."""


@dataclass(frozen=True)
class MonitorParameters(FrameParameters, RobotParameters):
    """Parameters of the node ``monitor``."""

    rate: float = parameter(10.0, "Hz", lower=0.5, upper=60.0)
    """Rate at which the arm is drawn, and other markers if they changed."""
    show_spheres: bool = parameter(True)
    """Draw the collision spheres of the arm and of its payload."""
    path_points: int = parameter(100, "-", lower=10, upper=2000)
    """Points on the drawn paths of the tool."""
    swept_postures: int = parameter(12, "-", lower=0, upper=100)
    """Postures of a plan at which its spheres are drawn; 0 leaves them out."""
    view_port: int = parameter(0, "-", lower=0, upper=65535, read_only=True)
    """Port on this machine where a browser shows the arm, the first free one from here on; 0: none."""


class MonitorNode(Node):
    """Publishes three pictures, each complete in itself.

    ``~/markers`` has the arm and the payload with the uncertainty of its CoM, as soon as joint states arrive;
    ``~/plan_markers`` the plan with the room it takes and the margins of its certificate, until it ends;
    ``~/scene_markers`` obstacles and ground. The last two come when they change. Without subscribers nothing is drawn.
    With ``view_port`` a browser on this machine shows the same.
    """

    def __init__(self) -> None:
        super().__init__("monitor")
        self._config = ParameterServer(self, MonitorParameters)
        self._robot = self._config.values.load_robot(self.get_logger())
        self._poses = BodyPoses(self._robot)
        self._joint_state: bytes | None = None
        self._joint_states: Subscription | None = None
        self._estimate: ParameterEstimate | None = None
        self._plans = PlanCache()
        self._drawn_plans: object = None
        self._status_time = np.inf
        self._scene: Scene | None = None
        self._scene_fault: str | None = None
        self._is_scene_drawn = self._is_scene_viewed = True
        self._view = self._open_view(self._config.values.view_port)
        self._viewed_estimate: ParameterEstimate | None = None
        self._viewed_plans: object = None
        self._publisher = self.create_publisher(MarkerArray, "~/markers", qos.MARKERS)
        self._plan_publisher = self.create_publisher(MarkerArray, "~/plan_markers", qos.MARKERS)
        self._scene_publisher = self.create_publisher(MarkerArray, "~/scene_markers", qos.MARKERS)
        self.create_subscription(EstimateMessage, "estimator/estimate", self._take_estimate, qos.LATCHED)
        self.create_subscription(CertifiedTrajectory, "safe_planner/plan", self._take_plan, qos.LATCHED)
        self.create_subscription(SceneMessage, "safe_planner/scene", self._take_scene, qos.LATCHED)
        self.create_subscription(DriverStatus, "arm_driver/status", self._take_status, qos.STATUS)
        self._timer = create_timer(self, 1.0 / self._config.values.rate, self._publish)
        self._config.on_change(lambda new: setattr(self._timer, "timer_period_ns", round(1e9 / new.rate)))

    def _open_view(self, port: int) -> ArmView | None:
        if not port:
            return None
        try:
            view = ArmView(self._robot, port)
        except (SysidError, OSError) as error:
            self.get_logger().error(f"there is no view in a browser: {error}")
            return None
        self.get_logger().info(f"a browser on this machine shows the arm at {view.url}")
        return view

    def destroy_node(self) -> None:
        """End the view, then the node."""
        if self._view is not None:
            self._view.close()
        super().destroy_node()

    # Subscriptions

    def _listen_to_joint_states(self, wanted: bool) -> None:
        # They come often, and each wake-up costs more than its work: only with subscribers.
        if wanted and self._joint_states is None:
            self._joint_states = self.create_subscription(
                JointState, "joint_states", self._take_joint_state, qos.JOINT_STATES_SUBSCRIBER, raw=True
            )
        elif not wanted and self._joint_states is not None:
            self.destroy_subscription(self._joint_states)
            self._joint_states = self._joint_state = None

    def _take_joint_state(self, message: bytes) -> None:
        self._joint_state = message  # only the latest is drawn, so only that one is taken apart

    def _position(self) -> np.ndarray | None:
        """Positions of the arm, (n,) [rad]; None without a recent message."""
        if self._joint_state is None:
            return None
        message = deserialize_message(self._joint_state, JointState)
        try:
            return joint_vector_from_message(
                "JointState", "position", message.name, message.position, self._robot.joint_names
            )
        except SysidError as error:
            self._complain("joint_states", error)
            return None

    def _take_estimate(self, message: EstimateMessage) -> None:
        try:
            self._estimate = estimate_from_message(message)
        except SysidError as error:
            self._complain("estimator/estimate", error)

    def _take_plan(self, message: CertifiedTrajectory) -> None:
        try:
            plan = certified_plan_from_message(message, self._robot.joint_names)
        except SysidError as error:
            self._complain("safe_planner/plan", error)
            return
        self._plans.on_plan(plan)

    def _take_scene(self, message: SceneMessage) -> None:
        before = self._scene_fault, self._scene and self._scene.hash()
        self._scene_fault = None if message.is_known else message.fault
        try:
            self._scene = scene_from_message(message, self._robot.n)
        except SysidError as error:
            # The last usable scene stays in the picture, drawn as no longer valid.
            self._scene_fault = self._scene_fault or f"the scene cannot be used: {error}"
            self._complain("safe_planner/scene", error)
        # Planners repeat it.
        if before != (self._scene_fault, self._scene and self._scene.hash()):
            self._is_scene_drawn = self._is_scene_viewed = False

    def _take_status(self, message: DriverStatus) -> None:
        self._status_time = time.monotonic()
        now = 1e-9 * stamp_from_message(message.header.stamp)
        self._plans.update(message.plan_id or None, message.next_plan_id or None, now)

    def _complain(self, topic: str, error: SysidError) -> None:
        self.get_logger().error(f"{topic}: {error}", throttle_duration_sec=5.0)

    # Pictures

    def _publish(self) -> None:
        if time.monotonic() - self._status_time > STATUS_SILENCE:
            self._plans.lose_driver()
            self._status_time = np.inf
        is_seen = self._publisher.get_subscription_count() > 0
        is_viewed = self._view is not None and self._view.is_watched
        self._listen_to_joint_states(is_seen or is_viewed)
        if is_seen:
            self._publisher.publish(self._draw_arm())
        if self._view is not None:
            self._show(self._view, is_viewed)
        if self._scene_publisher.get_subscription_count() and not self._is_scene_drawn:
            self._is_scene_drawn = True
            self._scene_publisher.publish(self._draw_scene())
        if self._plan_publisher.get_subscription_count():
            values = self._config.values
            wanted = (
                self._plans.shown, self._plans.is_followed, self._plans.waiting, values.path_points,
                values.swept_postures,
            )  # fmt: skip
            if wanted != self._drawn_plans:
                self._drawn_plans = wanted
                self._plan_publisher.publish(self._draw_plans())

    def _show(self, view: ArmView, is_viewed: bool) -> None:
        """Bring the view up to date; rare messages are drawn for later viewers, too."""
        if is_viewed and (q := self._position()) is not None:
            view.show_posture(q)
        estimate = self._estimate
        if estimate is not None and estimate is not self._viewed_estimate:
            self._viewed_estimate = estimate
            view.show_estimate(estimate, estimate.data_seconds)
        if not self._is_scene_viewed:
            self._is_scene_viewed = True
            view.show_scene(self._scene or Scene(), self._scene_fault)
        plan, waiting = self._plans.shown, self._plans.waiting
        if is_viewed and (plan, waiting) != self._viewed_plans:
            self._viewed_plans = (plan, waiting)
            followed, following = (None if one is None else self._path(one.trajectory) for one in (plan, waiting))
            view.show_plans(followed, following, None if plan is None else self._sweep(plan))

    def _builder(self) -> MarkerBuilder:
        return MarkerBuilder(self._config.values.tf_prefix + self._robot.base_frame, self.get_clock().now().to_msg())

    def _draw_arm(self) -> MarkerArray:
        robot, builder = self._robot, self._builder()
        q = self._position()
        if q is None:
            return builder.array()
        rotations, positions = self._poses.compute(q)
        if self._config.values.show_spheres:
            carried = spheres_of_payload(robot, self._scene or Scene())
            for namespace, spheres in (("arm", robot.spheres), ("carried", carried)):
                for sphere in spheres:
                    center = positions[sphere.body] + rotations[sphere.body] @ sphere.center
                    builder.add_sphere(namespace, center, sphere.radius)
        if self._estimate is not None and self._estimate.is_consistent:
            builder.add_payload(self._estimate, rotations[-1], positions[-1])
        return builder.array()

    def _draw_scene(self) -> MarkerArray:
        builder = self._builder()
        draw_scene(builder, self._scene or Scene(), self._scene_fault)
        return builder.array()

    def _draw_plans(self) -> MarkerArray:
        builder, plan, waiting = self._builder(), self._plans.shown, self._plans.waiting
        if plan is not None:
            title = "followed" if self._plans.is_followed else "not followed yet"
            draw_plan(builder, self._path(plan.trajectory), self._sweep(plan), plan.certificate, f"plan {title}")
        if waiting is not None:
            builder.add_path("next_plan", self._path(waiting.trajectory))
        return builder.array()

    def _path(self, trajectory: Trajectory) -> np.ndarray:
        times = np.linspace(0.0, trajectory.duration, self._config.values.path_points)
        return self._poses.tool_path(trajectory.sample(times)[0])

    def _sweep(self, plan: CertifiedPlan) -> SweptSpheres | None:
        postures = self._config.values.swept_postures
        if postures == 0:
            return None
        return sweep_spheres(self._robot, plan.trajectory, plan.scene, plan.certificate.tracking_bound, postures)


main = partial(spin_main, MonitorNode)

if __name__ == "__main__":
    sys.exit(main())
