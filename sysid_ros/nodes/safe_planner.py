"""Node ``safe_planner``: certifies trajectories, and plans certified ones to a posture.

This version checks torques and distances at samples only; its status and every certificate say so.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from sysid_msgs.msg import CertifiedTrajectory, DriverStatus, PlanStatus
from sysid_msgs.msg import ParameterEstimate as EstimateMessage
from sysid_msgs.srv import CertifyTrajectory, PlanTo
from sysid_ros.core.control import feedback_allowance, tracking_allowance
from sysid_ros.core.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.model.box import Box
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.base import PlanningCancelled
from sysid_ros.core.planning.certificate import Certificate
from sysid_ros.core.planning.sampled_planner import SampledCheckSettings, certify_sampled, plan_to
from sysid_ros.core.planning.trajectory import Trajectory
from sysid_ros.ros import qos
from sysid_ros.ros.conversions import (
    certificate_to_message,
    certified_to_message,
    estimate_from_message,
    joint_vector_from_message,
    stamp_from_message,
    trajectory_from_message,
)
from sysid_ros.ros.node import create_long_service, run_in_thread, spin_main, spin_while
from sysid_ros.ros.parameters import ParameterServer, parameter
from sysid_ros.ros.robot import SceneParameters

_DEFAULTS = SampledCheckSettings()
CLOSE_TIMEOUT = 2.0
"""How long the end of the node waits for a running check [s]."""
CHECKED = (
    "position, velocity and acceleration limits over all time, with the tracking error",
    "torque limits for every parameter in the boxes, at samples",
    "distances of the collision spheres to each other and to the ground, at samples",
    "stops along the path, at samples",
)
NOT_CHECKED = ("torques and distances between the samples (no proof over continuous time)", "obstacles: none are known")


@dataclass(frozen=True)
class SafePlannerParameters(SceneParameters):
    """Parameters of the node ``safe_planner``."""

    autostart: bool = parameter(True, "", "Certify as soon as the node runs", read_only=True)
    step: float = parameter(_DEFAULTS.step, "s", "Time between the samples that are checked", lower=1e-5, upper=0.002)
    clearance: float = parameter(0.01, "m", "Distance to keep between spheres and to the ground", lower=0.0, upper=1.0)
    torque_fraction: float = parameter(
        _DEFAULTS.torque_fraction, "-", "Part of the torque limits that may be used", lower=0.01, upper=1.0
    )
    brake_times: tuple[float, ...] = parameter(
        _DEFAULTS.brake_times, "s", "Times to rest that are tried for stops along the path, ascending", lower=0.05,
        upper=10.0,
    )  # fmt: skip
    validity: float = parameter(_DEFAULTS.validity, "s", "How long a certificate is valid", lower=0.1, upper=86400.0)

    def settings(self, feedback_torque: np.ndarray | float = 0.0) -> SampledCheckSettings:
        """The settings of the checks that these parameters stand for.

        Args:
            feedback_torque: Torque the controller may add to what the motion needs, (n,) or one for all [Nm].
        """
        return SampledCheckSettings(
            step=self.step,
            clearance=self.clearance,
            torque_fraction=self.torque_fraction,
            feedback_torque=feedback_torque,
            ground_height=self.ground,
            brake_times=self.brake_times,
            validity=self.validity,
        )

    def check(self) -> None:
        """Refuses what the checks themselves refuse."""
        super().check()
        self.settings()


class SafePlannerNode(LifecycleNode):
    """Serves ``~/certify`` and ``~/plan_to``; every judgement goes to ``~/status``, what it certifies to ``~/plan``."""

    def __init__(self) -> None:
        super().__init__("safe_planner")
        self._config = ParameterServer(self, SafePlannerParameters)
        self._robot: RobotModel | None = None
        self._offset_ns = 0
        self._offered: list[tuple[Callable, Any]] = []
        self._is_active = False
        self._running = 0

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Loads the robot and offers the services, which refuse everything until the node is active."""
        try:
            self._robot = self._config.values.load_robot(self.get_logger())
        except SysidError as error:
            self.get_logger().fatal(str(error))
            return TransitionCallbackReturn.FAILURE
        self._plan_publisher = self.create_publisher(CertifiedTrajectory, "~/plan", qos.LATCHED)
        self._status_publisher = self.create_publisher(PlanStatus, "~/status", qos.STATUS)
        status_subscription = self.create_subscription(DriverStatus, "arm_driver/status", self._take_status, qos.STATUS)
        self._offered = [
            (self.destroy_service, create_long_service(self, CertifyTrajectory, "~/certify", self._certify)),
            (self.destroy_service, create_long_service(self, PlanTo, "~/plan_to", self._plan_to)),
            (self.destroy_subscription, status_subscription),
            (self.destroy_publisher, self._plan_publisher),
            (self.destroy_publisher, self._status_publisher),
        ]
        return TransitionCallbackReturn.SUCCESS

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """From now on trajectories are certified."""
        self._is_active = True
        self.get_logger().info("ready: certificates of this version are checked at samples, they are no proof")
        return TransitionCallbackReturn.SUCCESS

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Nothing is certified any more, so nothing new can move; a running check ends in a refusal."""
        self._is_active = False
        return TransitionCallbackReturn.SUCCESS

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Forgets the robot."""
        if self._running:
            self.get_logger().error("cannot clean up while a trajectory is being checked; try again")
            return TransitionCallbackReturn.FAILURE
        offered, self._offered = self._offered, []
        for destroy, thing in offered:
            destroy(thing)
        return TransitionCallbackReturn.SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Nothing is certified any more."""
        self._is_active = False
        return TransitionCallbackReturn.SUCCESS

    def close(self) -> None:
        """Ends a running search and waits for it."""
        self._is_active = False
        spin_while(self, lambda: self._running > 0, CLOSE_TIMEOUT)

    def _take_status(self, status: DriverStatus) -> None:
        # A certificate is valid in the time of the loop that executes it, which may not be ours.
        if status.mode != DriverStatus.MODE_IDLE:
            self._offset_ns = stamp_from_message(status.header.stamp) - time.time_ns()

    def _now(self) -> float:
        return 1e-9 * (time.time_ns() + min(self._offset_ns, 0))

    # Services

    async def _certify(
        self, request: CertifyTrajectory.Request, response: CertifyTrajectory.Response
    ) -> CertifyTrajectory.Response:
        def check() -> tuple[Trajectory, Certificate]:
            trajectory = trajectory_from_message(request.trajectory, self._robot.joint_names)
            return trajectory, self._check(trajectory, *self._model_of(request.estimate))

        found = await self._judge(check, response)
        if found is not None:
            response.certificate = certificate_to_message(found[1], self._robot.joint_names)
        return response

    async def _plan_to(self, request: PlanTo.Request, response: PlanTo.Response) -> PlanTo.Response:
        found = await self._judge(lambda: self._search(request), response)
        if found is not None:
            response.plan = certified_to_message(*found, self._robot.joint_names, time.time_ns())
        return response

    async def _judge(
        self, work: Callable[[], tuple[Trajectory, Certificate]], response: Any
    ) -> tuple[Trajectory, Certificate] | None:
        """Does the work beside the executor, fills in success, message and status, and tells the others."""
        started = time.perf_counter()
        self._running += 1
        try:
            self._require_active()
            trajectory, certificate = await run_in_thread(self, work)
            self._require_active()
        except Exception as error:  # noqa: BLE001 - whatever fails in a check is a refusal, not the end of the node
            text = str(error) if isinstance(error, SysidError) else f"internal error: {error!r}"
            self.get_logger().error(text)
            response.success, response.message = False, text
            response.status = self._status(False, text, started)
            return None
        else:
            response.success, response.message = True, certificate.claims
            response.status = self._status(True, certificate.claims, started, certificate)
            self._publish(trajectory, certificate)
            return trajectory, certificate
        finally:
            self._running -= 1
            self._status_publisher.publish(response.status)

    def _require_active(self) -> None:
        if not self._is_active:
            raise PlanningCancelled("the safe planner is not active; activate it")

    # The work

    def _check(self, trajectory: Trajectory, boxes: tuple[Box, Box], payload: np.ndarray) -> Certificate:
        allowance = tracking_allowance(self._robot, boxes, trajectory, payload)
        certificate = certify_sampled(
            self._robot,
            trajectory,
            boxes,
            allowance,
            settings=self._settings(boxes),
            now=self._now(),
        )
        return replace(certificate, claims=f"{certificate.claims} Tracking errors: {allowance.claims}")

    def _search(self, request: PlanTo.Request) -> tuple[Trajectory, Certificate]:
        robot = self._robot

        def joints(field: str) -> np.ndarray | None:
            values: Sequence[float] = getattr(request, field)
            if not len(values):
                return None
            return joint_vector_from_message("PlanTo", field, request.joint_names, values, robot.joint_names)

        start, goal = joints("start_position"), joints("goal_position")
        for field, values in (("start_position", start), ("goal_position", goal)):
            if values is None:
                raise ParameterOutOfRange(f"PlanTo.{field}", "empty", f"{robot.n} numbers [rad]")
        boxes, _ = self._model_of(request.estimate)
        allowance = tracking_allowance(robot, boxes)
        found = plan_to(
            robot,
            start,
            goal,
            boxes,
            allowance,
            settings=self._settings(boxes),
            now=self._now(),
            start_velocity=joints("start_velocity"),
            start_acceleration=joints("start_acceleration"),
            duration=request.duration or None,
            is_cancelled=lambda: not self._is_active,
        )
        if found is None:
            raise PlanningCancelled("the safe planner was deactivated")
        trajectory, certificate = found
        return trajectory, replace(certificate, claims=f"{certificate.claims} Tracking errors: {allowance.claims}")

    def _settings(self, boxes: tuple[Box, Box]) -> SampledCheckSettings:
        return self._config.values.settings(
            feedback_torque=feedback_allowance(self._robot, boxes),
        )

    def _model_of(self, message: EstimateMessage) -> tuple[tuple[Box, Box], np.ndarray]:
        """Boxes of the arm's and the payload's parameters, and the payload the controller takes as nominal, (10,)."""
        estimate = estimate_from_message(message)
        if estimate is None:
            prior = self._robot.payload_prior
            return (self._robot.theta_box, prior.box), prior.nominal
        if not estimate.is_consistent or estimate.target != "payload":
            given = estimate.alarm or f"of target {estimate.target}"
            raise ParameterOutOfRange("estimate", given, "a consistent estimate of a payload, or none")
        return (self._robot.theta_box, estimate.box), np.array(estimate.values)

    # Messages

    def _publish(self, trajectory: Trajectory, certificate: Certificate) -> None:
        self._plan_publisher.publish(
            certified_to_message(
                trajectory, certificate, self._robot.joint_names, time.time_ns(), self._robot.base_frame
            )
        )

    def _status(
        self, is_accepted: bool, text: str, started: float, certificate: Certificate | None = None
    ) -> PlanStatus:
        status = PlanStatus(
            planner=self.get_name(),
            method="sampled",
            is_accepted=is_accepted,
            text=text,
            checked=list(CHECKED),
            not_checked=list(NOT_CHECKED),
            planning_time=time.perf_counter() - started,
        )
        status.header.stamp = self.get_clock().now().to_msg()
        if certificate is not None:
            status.plan_hash = certificate.plan_hash
            status.margin_names = list(certificate.margins)
            status.margins = list(certificate.margins.values())
        return status


def main(argv: list[str] | None = None) -> int:
    """Runs the node until it is stopped; returns the exit status."""
    return spin_main(SafePlannerNode, argv)


if __name__ == "__main__":
    sys.exit(main())
