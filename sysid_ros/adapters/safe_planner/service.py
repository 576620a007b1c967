"""The services of ``safe_planner``: from requests to certified plans, one search at a time beside the executor.

There is always an answer; :class:`PlanRequests` is called in the thread of a search.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node
from std_srvs.srv import Trigger

from sysid_msgs.msg import CertifiedTrajectory, ControlLaw, DriverStatus, PlanStatus
from sysid_msgs.srv import CertifyTrajectory, PlanNext, PlanTo
from sysid_ros.adapters.safe_planner.scene import SceneStore
from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.authentication import AuthenticationKey
from sysid_ros.core.certification.plan import CertifiedPlan, PlanStatistics
from sysid_ros.core.certification.stop_model import PlanRejected, VerifierSettings
from sysid_ros.core.common.errors import MISSING, Cancelled, ParameterOutOfRange, SysidError
from sysid_ros.core.control.gains import default_gains
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.request import PlanFailure, PlanFailureCode, PlanRequest, RecedingSettings, Rejection
from sysid_ros.core.procedure import ANSWER_TIME
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.authentication import require_authentic
from sysid_ros.ros.conversions.common import joint_vector_from_message, stamp_from_message
from sysid_ros.ros.conversions.estimate import estimate_from_message, nominal_payload_from_message
from sysid_ros.ros.conversions.plans import certified_plan_to_message, control_law_from_message, trajectory_from_message
from sysid_ros.ros.node import Interfaces, LongCallback, run_in_thread, share_repeats
from sysid_ros.ros.parameters import parameter, parameters_from
from sysid_ros.ros.robot import FixedSceneParameters, FrameParameters
from sysid_ros.ros.subscriptions import SourceReceiver


@dataclass(frozen=True)
class SafePlannerParameters(FrameParameters, FixedSceneParameters):
    """Parameters of the node ``safe_planner``."""

    autostart: bool = parameter(True, read_only=True)
    """Certify as soon as the node runs."""
    obstacles_timeout: float = parameter(0.0, "s", lower=0.0, upper=3600.0, read_only=True)
    """Longest time without a message on obstacles, from the start on; after it nothing is certified and a moving arm
    brakes. 0: no limit, obstacles stay until they are deleted."""
    verifier: VerifierSettings = parameters_from(VerifierSettings, read_only=True)
    planner: RecedingSettings = parameters_from(
        RecedingSettings,
        # Wide margins, so that a later plan with a less certain payload still finds room.
        defaults={"position_margin": 0.05, "distance_margin": 0.03},
        computed=("torque_fraction", "brake_time"),
        read_only=True,
    )

    @property
    def search(self) -> RecedingSettings:
        """Settings of the search, which keeps a little more of the torque limits than the proof asks for.

        Raises:
            ParameterOutOfRange: Nothing is left.
        """
        fraction = self.planner.torque_fraction * self.verifier.torque_fraction
        return replace(self.planner, torque_fraction=fraction, brake_time=self.verifier.brake_times[-1])

    def check(self) -> None:
        """Refuse settings that leave the search no torque or no stop."""
        super().check()
        if not self.verifier.brake_times:
            raise ParameterOutOfRange("parameter 'brake_times' [s]", (), "at least one time")
        _ = self.search


_REMEMBERED_PLANS = 8
"""Plans that others may still take over from."""


def not_ready(reason: str) -> PlanFailure:
    """Return the failure of every request while nothing can be certified."""
    nothing = PlanStatistics(0, 0, 0, 0, {}, (), was_cut=False, cost=np.inf)
    return PlanFailure(Rejection(PlanFailureCode.NOT_READY, reason), nothing)


class PlanRequests:
    """Make a certified plan of each request, for the scene and the control law of the moment.

    Args:
        robot: The arm.
        scenes: The known scene.
        values: Parameters of the node.
        key: Key of the suite: the driver knows this planner by it, and this planner estimates; None without one.

    Attributes:
        planning_time: How long a search takes by default [s].
        control: The control law that plans are proven for.
        law_fault: Why the driver's control law cannot be used; None if it can.
    """

    def __init__(
        self, robot: RobotModel, scenes: SceneStore, values: SafePlannerParameters, key: AuthenticationKey | None = None
    ):
        self._robot, self._scenes, self._key = robot, scenes, key
        self._session, self._payload_epoch = "", 0
        self._planner = CertifiedPlanner(robot, values.search, values.verifier)
        self.planning_time = values.planner.planning_time
        self._plans: OrderedDict[str, CertifiedPlan] = OrderedDict()
        self.control = default_gains(robot)
        self.law_fault: str | None = None
        self._loop_ns: int | None = None  # time of the loop, by its last status
        self._heard_ns = 0  # when that was, steady time

    # Assumptions of a proof

    def on_control_law(self, message: ControlLaw) -> bool:
        """Prove bounds for the control law that the driver runs, its period included; return whether it is another.

        Raises:
            SysidError: Nothing is known of such a law; nothing is certified until there is another.
        """
        try:
            control = RobustSettings.of_law(control_law_from_message(message))
        except SysidError as error:
            self.law_fault = str(error)
            raise
        self.law_fault = None
        if control == self.control:
            return False
        self.control = control
        self._planner.forget()
        self._plans.clear()
        return True

    def on_driver_status(self, status: DriverStatus) -> None:
        """Note session, payload and time of the loop that executes plans; certificates are made for them."""
        self._session, self._payload_epoch = status.session, status.payload_epoch
        if status.mode != DriverStatus.MODE_IDLE:
            self._loop_ns, self._heard_ns = stamp_from_message(status.header.stamp), time.monotonic_ns()

    def conditions(self) -> object:
        """Return the conditions of a plan besides its request: under others the plan differs."""
        return (
            self._session,
            self._payload_epoch,
            self.control,
            self.law_fault,
            self._scenes.fault,
            self._scenes.latest.hash(),
        )

    # Plans

    def authenticate(self, plan: CertifiedPlan) -> CertifiedPlan:
        """Return a plan signed for the driver; without a key, as it is."""
        if self._key is None:
            return plan
        return replace(plan, authentication=self._key.authenticate(plan.certificate, self._session))

    def keep(self, plan: CertifiedPlan) -> None:
        """Keep a plan that others may take over from.

        Raises:
            ParameterOutOfRange: It was proven for a scene that is not the present one.
        """
        if plan.certificate.scene_hash != self._scenes.scene.hash():
            raise ParameterOutOfRange("the scene", "changed meanwhile", "the same until the end; plan again")
        self._plans[plan.plan_id] = plan
        while len(self._plans) > _REMEMBERED_PLANS:
            self._plans.popitem(last=False)

    def certify(self, request: CertifyTrajectory.Request) -> CertifiedPlan:
        """Prove a trajectory."""
        trajectory = trajectory_from_message(request.trajectory, self._robot.joint_names)
        return self._planner.certify(trajectory, self._assumptions_of(request), self._now())

    def plan_next(self, request: PlanNext.Request, is_unwanted: Callable[[], bool]) -> CertifiedPlan:
        """Plan the next segment of a motion, from rest or from a plan that is followed."""
        if request.purpose not in (PlanNext.Request.EXCITE, PlanNext.Request.MOVE):
            raise ParameterOutOfRange("PlanNext.purpose", request.purpose, "EXCITE = 0 or MOVE = 1")
        limit = request.time_limit or self.planning_time
        if not ANSWER_TIME < limit <= 3600.0:
            raise ParameterOutOfRange("PlanNext.time_limit [s]", limit, f"above {ANSWER_TIME:g}, at most 3600")
        is_move = request.purpose == PlanNext.Request.MOVE
        predecessor = self._find_plan(request.predecessor) if request.predecessor else None
        wanted = PlanRequest(
            assumptions=self._assumptions_of(request, predecessor),
            start=None if predecessor else self._joints(request, "start_position"),
            predecessor=predecessor,
            takeover_time=request.takeover_time,
            information=np.array(request.information, dtype=float).reshape(10, 10),
            goal=self._joints(request, "goal_position") if is_move else None,
            is_last=request.is_last,
            time_limit=limit - ANSWER_TIME,
        )
        return self._planner.plan(wanted, self._now(), is_unwanted)

    def plan_to(self, request: PlanTo.Request, is_unwanted: Callable[[], bool]) -> CertifiedPlan:
        """Plan a motion from rest to a goal."""
        for name in ("start_velocity", "start_acceleration"):
            if any(getattr(request, name)):
                raise ParameterOutOfRange(f"PlanTo.{name}", list(getattr(request, name)), "zero: use ~/plan_next")
        wanted = PlanRequest(
            self._assumptions_of(request),
            start=self._joints(request, "start_position"),
            goal=self._joints(request, "goal_position"),
        )
        return self._planner.plan_to(wanted, self._now(), request.duration or None, is_unwanted)

    def _now(self) -> float:
        """Return the time of the loop that executes plans [s].

        It is independent of the clock of this machine, which may be set; that one counts only before the first status.
        """
        if self._loop_ns is None:
            return 1e-9 * time.time_ns()
        return 1e-9 * (self._loop_ns + time.monotonic_ns() - self._heard_ns)

    def _find_plan(self, plan_id: str) -> CertifiedPlan:
        if plan_id not in self._plans:
            known = ", ".join(name[:12] for name in self._plans) or "none yet"
            raise ParameterOutOfRange("plan to take over from", plan_id[:12], f"one of the last plans: {known}")
        return self._plans[plan_id]

    def _joints(self, request: PlanNext.Request | PlanTo.Request, field: str) -> NDArray[np.float64]:
        message, values = type(request).__name__.removesuffix("_Request"), getattr(request, field)
        if not len(values):
            raise ParameterOutOfRange(f"{message}.{field}", MISSING, f"{self._robot.n} numbers [rad]")
        return joint_vector_from_message(message, field, request.joint_names, values, self._robot.joint_names)

    def _assumptions_of(
        self,
        request: CertifyTrajectory.Request | PlanNext.Request | PlanTo.Request,
        predecessor: CertifiedPlan | None = None,
    ) -> Assumptions:
        """Return the assumptions of a proof: present scene and control law, and the payload of a request.

        The nominal payload changes at rest only: a plan that takes over keeps the one of its predecessor.
        """
        robot, estimate = self._robot, estimate_from_message(request.estimate)
        # ~/plan_to leaves the nominal payload to the planner.
        nominal = nominal_payload_from_message(type(request).__name__, getattr(request, "nominal_payload", ()))
        if nominal is None and predecessor is not None:
            nominal = predecessor.certificate.nominal_payload
        if estimate is None:
            box = guess = None
        elif not estimate.is_consistent or estimate.target != "payload":
            given = f"of target {estimate.target}" if estimate.alarm is None else estimate.alarm.text
            raise ParameterOutOfRange("estimate", given, "a consistent estimate of a payload, or none")
        else:
            if self._key is not None:
                # The status may be some tenths of a second old; the driver itself compares the numbers.
                newest = max(self._payload_epoch, request.estimate.payload_epoch)
                require_authentic(request.estimate, self._key, self._session, newest)
            box, guess = estimate.box, np.array(estimate.values)
        return Assumptions.of_payload(robot, box, guess, nominal, self._scenes.scene, self.control)


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
        if self._requests.law_fault is not None:
            raise not_ready(self._requests.law_fault)

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
