"""The services of ``safe_planner``: one search at a time beside the executor, and always an answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from rclpy.node import Node
from std_srvs.srv import Trigger

from sysid_msgs.msg import CertifiedTrajectory, ControlLaw, DriverStatus, PlanStatus
from sysid_msgs.srv import CertifyTrajectory, PlanNext, PlanTo
from sysid_ros.adapters.safe_planner.requests import PlanRequests, not_ready
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.certification.stop_model import PlanRejected
from sysid_ros.core.common.errors import Cancelled, SysidError
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.request import PlanFailure, PlanFailureCode
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.plans import certified_plan_to_message
from sysid_ros.ros.node import Interfaces, LongCallback, run_in_thread, share_repeats
from sysid_ros.ros.subscriptions import SourceReceiver

CHECKED = (
    "position, velocity and acceleration limits with the tracking error, over all time",
    "torque limits for every parameter in the boxes, with what feedback may add, over all time",
    "distances of the spheres of arm and payload to each other, to the ground and to obstacles, over all time",
    "position, velocity and torque limits and distances in stops along the path, begun at any time, with the tracking "
    "error bounded in all of them",
)
NOT_CHECKED = ("assumptions, listed in docs/theory/certificates.md",)


_ROUTINE = (
    PlanFailureCode.NO_TRACKING_BOUND,
    PlanFailureCode.LIMIT,
    PlanFailureCode.NO_MOTION,
    PlanFailureCode.NO_ROOM,
    PlanFailureCode.NO_TIME,
    PlanFailureCode.CANCELLED,
)
"""Failures that belong to a normal run: there is no such motion, or not in time; the arm rests or comes to rest."""


_MOST_SEARCHES = 4
"""Most searches running or queued: each has a thread, and a flood of requests must not leave hours of work behind."""

_REMEMBERED = 2.0
"""A request repeated within this time gets the same plan [s]; longer than callers wait before they repeat."""


class PlanService:
    """Answer requests to plan and to certify, and publish plans and judgements.

    The executor begins and cancels searches; a search polls whether it is to end.

    Attributes:
        is_open: Whether anything is searched for; every search ends where not.
        running: Searches that run or wait their turn.
    """

    def __init__(self, node: Node, robot: RobotModel, requests: PlanRequests):
        self._node, self._robot, self._requests = node, robot, requests
        self.is_open, self.running = False, 0
        self._begun = self._cancelled = 0  # searches begun so far, and up to which of them they are to end
        self._one_at_a_time = threading.Lock()  # the planner keeps its search results for the next plan
        self._offered = Interfaces(node)
        self._plan_publisher = self._offered.create_publisher(CertifiedTrajectory, "~/plan", qos.LATCHED)
        self._status_publisher = self._offered.create_publisher(PlanStatus, "~/status", qos.STATUS)
        self._offered.create_subscription(DriverStatus, "arm_driver/status", requests.on_driver_status, qos.STATUS)
        # The law is sent once: a foreign one that came after it would stay.
        SourceReceiver(
            node, ControlLaw, "arm_driver/control_law", self._on_control_law, qos.LATCHED, interfaces=self._offered
        )
        self._offered.create_service(Trigger, "~/cancel", self._cancel)
        self._offered.create_long_service(CertifyTrajectory, "~/certify", self._shared(self._certify))
        self._offered.create_long_service(PlanNext, "~/plan_next", self._shared(self._plan_next))
        self._offered.create_long_service(PlanTo, "~/plan_to", self._shared(self._plan_to))

    def _shared(self, callback: LongCallback) -> LongCallback:
        """Return a callback that shares repeated requests as long as the answer would be the same."""

        def conditions() -> object:
            return self.is_open, self._cancelled, self._requests.conditions()

        return share_repeats(callback, conditions, _REMEMBERED)

    def close(self) -> None:
        """Answer nothing any more."""
        self._offered.destroy()

    def _on_control_law(self, message: ControlLaw) -> None:
        try:
            if self._requests.on_control_law(message):
                self._node.get_logger().info(f"plans are for the driver's control law: {self._requests.control.law}")
        except SysidError as error:
            self._node.get_logger().warning(f"nothing is certified: {error}")

    def _cancel(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._cancelled = self._begun
        response.success = self.running > 0
        response.message = "the search ends" if response.success else "no search is running"
        return response

    def _begin(self) -> Callable[[], bool]:
        """Return the stop condition of a search that begins now."""
        self._begun += 1
        number = self._begun
        return lambda: not self.is_open or number <= self._cancelled

    async def _certify(
        self, request: CertifyTrajectory.Request, response: CertifyTrajectory.Response
    ) -> CertifyTrajectory.Response:
        await self._judge(lambda: self._requests.certify(request), response)
        return response

    async def _plan_to(self, request: PlanTo.Request, response: PlanTo.Response) -> PlanTo.Response:
        is_unwanted = self._begin()
        await self._judge(lambda: self._requests.plan_to(request, is_unwanted), response)
        return response

    async def _plan_next(self, request: PlanNext.Request, response: PlanNext.Response) -> PlanNext.Response:
        is_unwanted = self._begin()
        plan = await self._judge(lambda: self._requests.plan_next(request, is_unwanted), response)
        if plan is not None:
            response.handover_time = plan.time_until_next
            response.information_gained = plan.information_gained.reshape(100)
            words = []
            if plan.condition_number is not None:
                response.condition_number = response.status.condition_number = float(plan.condition_number)
                words.append(f"condition number {plan.condition_number:.1f}")
            if plan.statistics is not None:
                words.append(", ".join(f"{name} {value:.2f} s" for name, value in plan.statistics.seconds.items()))
            response.message = "; ".join(words)
        return response

    async def _judge(self, work: Callable[[], CertifiedPlan], response: Any) -> CertifiedPlan | None:
        """Do the work beside the executor; fill in and publish plan, success, message and status."""
        started = time.perf_counter()
        self.running += 1
        try:
            if self.running > _MOST_SEARCHES:
                raise not_ready(
                    f"{_MOST_SEARCHES} requests to plan or to certify run or wait their turn, and no more may; "
                    "ask again when one of them is answered"
                )
            self._require_ready()
            plan = await run_in_thread(self._node, lambda: self._run_alone(work))
            self._require_ready()
            self._requests.keep(plan)
            plan = self._requests.authenticate(plan)
        except Exception as error:  # noqa: BLE001 - a failed check is a refusal, not the end of the node
            text = str(error) if isinstance(error, SysidError) else f"internal error: {error!r}"
            response.success, response.message = False, text
            response.status = self._status(text, started)
            response.status.failure = failure_code(error)
            if response.status.failure == int(PlanFailureCode.NO_TIME):  # a slow machine stays slow
                self._node.get_logger().warning(f"{text} (this is said once)", once=True)
            elif response.status.failure in _ROUTINE:
                self._node.get_logger().warning(text)
            else:
                self._node.get_logger().error(text)
            return None
        else:
            response.plan = certified_plan_to_message(
                plan, self._robot.joint_names, time.time_ns(), self._robot.base_frame
            )
            response.success, response.message = True, plan.certificate.claims
            response.status = self._status(plan.certificate.claims, started, plan)
            self._plan_publisher.publish(response.plan)
            return plan
        finally:
            self.running -= 1
            self._status_publisher.publish(response.status)

    def _run_alone(self, work: Callable[[], CertifiedPlan]) -> CertifiedPlan:
        with self._one_at_a_time:
            return work()

    def _require_ready(self) -> None:
        if not self.is_open:
            raise not_ready("the safe planner is not active; activate it")
        self._requests.require_ready()

    def _status(self, text: str, started: float, plan: CertifiedPlan | None = None) -> PlanStatus:
        status = PlanStatus(
            planner=self._node.get_name(),
            is_accepted=plan is not None,
            is_proven=plan is not None,
            failure=PlanStatus.FAILURE_NONE,
            text=text,
            checked=list(CHECKED),
            not_checked=list(NOT_CHECKED),
            planning_time=time.perf_counter() - started,
        )
        status.header.stamp = self._node.get_clock().now().to_msg()
        if plan is not None:
            status.plan_id = plan.plan_id
            status.margin_limits = [margin.limit.value for margin in plan.certificate.margins]
            status.margins = [margin.value for margin in plan.certificate.margins]
        return status


def failure_code(error: Exception) -> int:
    """Return the number of a failure in ``PlanStatus``."""
    if isinstance(error, PlanFailure):
        return int(error.code)
    kinds: tuple[tuple[type[Exception], PlanFailureCode], ...] = (
        (Cancelled, PlanFailureCode.CANCELLED),
        (PlanRejected, PlanFailureCode.LIMIT),
        (BoundNotAvailable, PlanFailureCode.NO_TRACKING_BOUND),
        (SysidError, PlanFailureCode.REQUEST),
    )
    return int(next((code for kind, code in kinds if isinstance(error, kind)), PlanFailureCode.INTERNAL))
