"""Node ``excitation_planner``: trajectories that excite the payload's parameters."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from rclpy.node import Node
from std_srvs.srv import Trigger

from sysid_msgs.msg import PlanStatus
from sysid_msgs.srv import PlanExcitation
from sysid_ros.core.collision.clearance import build_collision_model
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.excitation.model import ExcitationModel
from sysid_ros.core.excitation.planner import ExcitationPlan, plan_excitation
from sysid_ros.core.excitation.settings import PAYLOAD_TARGET, ExcitationSettings
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.common import joint_vector_from_message
from sysid_ros.ros.conversions.estimate import estimate_from_message
from sysid_ros.ros.conversions.plans import trajectory_to_message
from sysid_ros.ros.node import create_long_service, run_in_thread, share_repeats, spin_main, spin_while
from sysid_ros.ros.parameters import ParameterServer, parameters_from
from sysid_ros.ros.robot import SceneParameters

CLOSE_TIMEOUT = 2.0
"""How long the end of the node waits for a running search [s]."""


@dataclass(frozen=True)
class ExcitationPlannerParameters(SceneParameters):
    """Parameters of the node ``excitation_planner``; a request that leaves a field 0 gets the value given here."""

    planner: ExcitationSettings = parameters_from(ExcitationSettings)


TYPICAL_POSITION, TYPICAL_VELOCITY = np.radians(1.0), 0.1
"""Tracking errors that simulations stay well below [rad], [rad/s]; not proven, as the motion is not known yet."""


class ExcitationPlannerNode(Node):
    """Serve ``~/plan``, one search at a time, in a thread of its own; ``~/cancel`` ends it early."""

    def __init__(self) -> None:
        super().__init__("excitation_planner")
        self._config = ParameterServer(self, ExcitationPlannerParameters)
        self._robot = self._config.values.load_robot(self.get_logger())
        self._is_planning = False
        self._is_cancelled = False
        self._status_publisher = self.create_publisher(PlanStatus, "~/status", qos.STATUS)
        shared = share_repeats(self._plan, lambda: self._is_planning and self._is_cancelled)
        create_long_service(self, PlanExcitation, "~/plan", shared)
        self.create_service(Trigger, "~/cancel", self._cancel)
        self.get_logger().info("ready: call ~/plan")

    def close(self) -> None:
        """End a running search and wait for it."""
        self._is_cancelled = True
        spin_while(self, lambda: self._is_planning, CLOSE_TIMEOUT)

    def _cancel(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._is_cancelled = True
        response.success = self._is_planning
        response.message = "the search ends" if self._is_planning else "no search is running"
        return response

    async def _plan(
        self, request: PlanExcitation.Request, response: PlanExcitation.Response
    ) -> PlanExcitation.Response:
        if self._is_planning:
            response.success, response.message = False, "another search is running; try again when it has ended"
            return response
        self._is_planning, self._is_cancelled = True, False
        try:
            plan = await run_in_thread(self, lambda: self._search(request))
            self._accept(plan, response)
        except Exception as error:  # noqa: BLE001 - a failed search is an answer, not the end of the node
            text = str(error) if isinstance(error, SysidError) else f"internal error: {error!r}"
            response.success, response.message = False, text
            response.status = self._status(False, text)
            self.get_logger().error(text)
        finally:
            self._is_planning = False
        self._status_publisher.publish(response.status)
        return response

    def _search(self, request: PlanExcitation.Request) -> ExcitationPlan:
        robot, values = self._robot, self._config.values
        q_start = joint_vector_from_message(
            "PlanExcitation", "start_position", request.joint_names, request.start_position, robot.joint_names
        )
        settings = replace(values.planner, seed=int(request.seed))
        if request.criterion:
            settings = replace(settings, criterion=request.criterion)
        if request.duration != 0.0:
            settings = settings.with_duration(request.duration)
        if request.limit_share != 0.0:
            settings = settings.with_limit_share(request.limit_share)
        model = ExcitationModel.of(robot)
        estimate = estimate_from_message(request.estimate)
        if estimate is not None:
            if not estimate.is_consistent:
                raise ParameterOutOfRange("estimate", "without bounds (an alarm)", "a consistent estimate, or none")
            if estimate.target == "payload":
                model = replace(model, payload_box=estimate.box, payload=np.array(estimate.values))
        model = replace(
            model,
            tracking_position=np.full(robot.n, TYPICAL_POSITION),
            tracking_velocity=np.full(robot.n, TYPICAL_VELOCITY),
            collision=build_collision_model(robot, robot.payload_prior.spheres, ground_height=values.ground),
        )
        # Messages hold the information of a payload; each motion of a whole arm is planned by itself.
        is_payload = settings.target == PAYLOAD_TARGET
        information = np.array(request.information, dtype=float).reshape(10, 10) if is_payload else None
        return plan_excitation(model, q_start, settings, information, is_cancelled=lambda: self._is_cancelled)

    def _accept(self, plan: ExcitationPlan, response: PlanExcitation.Response) -> None:
        text = (
            f"condition number {plan.condition_number:.1f} of this trajectory, "
            f"{plan.condition_number_windows:.1f} with the data before; {plan.starts} starts in "
            f"{plan.planning_time:.1f} s"
        )
        if self._config.values.planner.target == PAYLOAD_TARGET:
            text += f"; expected mass bound +-{plan.expected_radii[0]:.3f} kg"
        stamp_ns = self.get_clock().now().nanoseconds
        response.success, response.message = True, text
        response.trajectory = trajectory_to_message(
            plan.trajectory, self._robot.joint_names, stamp_ns, self._robot.base_frame
        )
        response.condition_number = float(plan.condition_number_windows)
        response.status = self._status(True, text)
        response.status.condition_number = float(plan.condition_number_windows)
        response.status.planning_time = float(plan.planning_time)
        self.get_logger().info(text)

    def _status(self, is_accepted: bool, text: str) -> PlanStatus:
        status = PlanStatus(
            planner=self.get_name(),
            is_accepted=is_accepted,
            text=text,
            checked=["position, velocity, acceleration limits", "torque of the worst model", "distances of spheres"],
            not_checked=["anything between the samples: the safe planner certifies"],
        )
        status.header.stamp = self.get_clock().now().to_msg()
        return status


main = partial(spin_main, ExcitationPlannerNode)

if __name__ == "__main__":
    sys.exit(main())
