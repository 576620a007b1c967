"""Node ``safe_planner``: plans and certifies motions. Nothing moves without a certificate of it."""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from std_srvs.srv import Trigger
from visualization_msgs.msg import MarkerArray

from sysid_msgs.msg import CertifiedTrajectory, ControlLaw, DriverStatus, PlanStatus
from sysid_msgs.msg import Scene as SceneMessage
from sysid_msgs.srv import CertifyTrajectory, PlanNext, PlanTo
from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.certification.stop_model import PlanRejected, VerifierSettings
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.request import PlanFailure, PlanFailureCode, PlanRequest
from sysid_ros.core.planning.settings import RecedingSettings
from sysid_ros.core.tracking_bound.loop_response import BoundNotAvailable
from sysid_ros.core.trajectories.base import PlanningCancelled
from sysid_ros.drivers.admission import SCENE_PERIOD
from sysid_ros.ros import qos
from sysid_ros.ros.conversions import (
    certified_plan_to_message,
    control_law_from_message,
    estimate_from_message,
    joint_vector_from_message,
    nominal_payload_from_message,
    scene_to_message,
    stamp_from_message,
    trajectory_from_message,
)
from sysid_ros.ros.conversions.obstacles import key_of
from sysid_ros.ros.node import create_long_service, run_in_thread, spin_main, spin_while
from sysid_ros.ros.parameters import ParameterServer, parameter, parameters_from
from sysid_ros.ros.robot import SceneParameters
from sysid_ros.ros.scene_store import SceneStore, load_scene

CLOSE_TIMEOUT = 2.0
"""How long the end of the node waits for a running search [s]."""
ANSWER_RESERVE = 0.1
"""Part of the time limit of a request that is left for the answer's way back [s]."""
_REMEMBERED_MESSAGES = 1000
_REMEMBERED_PLANS = 8
"""Plans that others may still take over from."""
CHECKED = (
    "position, velocity and acceleration limits with the tracking error, over all time",
    "torque limits for every parameter in the boxes, with what feedback may add, over all time",
    "distances of the spheres of arm and payload to each other, to the ground and to obstacles, over all time",
    "torque limits in stops along the path, begun at any time, if errors grow there no more than is allowed for, which "
    "is measured, not proven",
)
NOT_CHECKED = ("what docs/theory/certificates.md names as assumptions",)


@dataclass(frozen=True)
class SafePlannerParameters(SceneParameters):
    """Parameters of the node ``safe_planner``."""

    autostart: bool = parameter(True, read_only=True)
    """Certify as soon as the node runs."""
    scene: str = parameter("", read_only=True)
    """Obstacles: a name from config/scenes or the path of a YAML file; empty for none."""
    clearance: float = parameter(0.01, "m", lower=0.0, upper=1.0, read_only=True)
    """Distance to keep between spheres, to the ground and to obstacles; a scene may ask for more."""
    obstacles_timeout: float = parameter(0.0, "s", lower=0.0, upper=3600.0, read_only=True)
    """Longest time without a message on obstacles, from the start on; after it nothing is certified, and what moves
    brakes. 0: none need come, and obstacles stay until they are deleted."""
    verifier: VerifierSettings = parameters_from(VerifierSettings, read_only=True)
    planner: RecedingSettings = parameters_from(
        RecedingSettings,
        # Wide margins, so that a later plan with a less certain payload still finds room.
        defaults={"position_margin": 0.05, "distance_margin": 0.03},
        computed=("torque_fraction", "brake_time"),
        read_only=True,
    )

    def fixed_scene(self) -> Scene:
        """Return what is there whatever the topic says; a scene that names a ground knows better than the parameter.

        Raises:
            ParameterOutOfRange: The scene cannot be used.
        """
        scene = load_scene(self.scene)
        ground = self.ground if scene.ground_height is None else scene.ground_height
        return replace(scene, ground_height=ground, clearance=max(scene.clearance, self.clearance))

    @property
    def search(self) -> RecedingSettings:
        """Settings of the search, which keeps a little more of the torque limits than the proof asks for.

        Raises:
            ParameterOutOfRange: Nothing is left.
        """
        fraction = self.planner.torque_fraction * self.verifier.torque_fraction
        return replace(self.planner, torque_fraction=fraction, brake_time=self.verifier.brake_times[-1])

    def check(self) -> None:
        """Refuse what leaves the search no torque or no stop."""
        super().check()
        if not self.verifier.brake_times:
            raise ParameterOutOfRange("parameter 'brake_times' [s]", (), "at least one time")
        _ = self.search


def _mark_of(message: MarkerArray, info: dict[str, Any]) -> tuple:
    """Return what tells messages about obstacles apart."""
    return info["source_timestamp"], *(key_of(one) for one in message.markers)


class NotReady(SysidError):
    """Nothing can be certified now."""


def _failure_code(error: Exception) -> int:
    """Return the number of a failure in ``PlanStatus``."""
    if isinstance(error, PlanFailure):
        return int(error.code)
    kinds: tuple[tuple[type[Exception], PlanFailureCode], ...] = (
        (NotReady, PlanFailureCode.NOT_READY),
        (PlanningCancelled, PlanFailureCode.CANCELLED),
        (PlanRejected, PlanFailureCode.LIMIT),
        (BoundNotAvailable, PlanFailureCode.NO_TRACKING_BOUND),
        (SysidError, PlanFailureCode.REQUEST),
    )
    return int(next((code for kind, code in kinds if isinstance(error, kind)), PlanFailureCode.INTERNAL))


class SafePlannerNode(LifecycleNode):
    """Serves ``~/plan_next``, ``~/plan_to`` and ``~/certify``; publishes the scene, plans and judgements."""

    def __init__(self) -> None:
        super().__init__("safe_planner")
        self._config = ParameterServer(self, SafePlannerParameters)
        self._config.on_change(self._change_scene)
        self._robot: RobotModel | None = None
        self._scenes: SceneStore | None = None
        self._plans: OrderedDict[str, CertifiedPlan] = OrderedDict()
        self._offset_ns = 0
        self._offered: list[tuple[Callable, Any]] = []
        self._is_active = False
        self._running = 0
        self._cancelled = 0  # searches begun up to this number are to end
        self._begun = 0
        self._planning = threading.Lock()
        self._control = RobustSettings()
        self._law_fault: str | None = None
        self._source = f"{self.get_fully_qualified_name()} {uuid.uuid4().hex[:8]}"
        self._latched_marks: deque[tuple] = deque(maxlen=_REMEMBERED_MESSAGES)

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load robot and scene and offer the services, which refuse everything until the node is active."""
        values = self._config.values
        try:
            robot = self._robot = values.load_robot(self.get_logger())
            self._planner = CertifiedPlanner(robot, values.search, values.verifier)
            self._plans.clear()
            self._scenes = SceneStore(robot, values.fixed_scene(), values.obstacles_timeout)
        except SysidError as error:
            self.get_logger().fatal(str(error))
            return TransitionCallbackReturn.FAILURE
        self._plan_publisher = self.create_publisher(CertifiedTrajectory, "~/plan", qos.LATCHED)
        self._status_publisher = self.create_publisher(PlanStatus, "~/status", qos.STATUS)
        self._scene_publisher = self.create_publisher(SceneMessage, "~/scene", qos.SCENE)
        status_subscription = self.create_subscription(DriverStatus, "arm_driver/status", self._on_status, qos.STATUS)
        # A subscription that hears what was published before it came does not hear publishers with the defaults of ROS.
        quiet = SubscriptionEventCallbacks(use_default_callbacks=False)  # the other one hears those
        latched = self.create_subscription(
            MarkerArray, "obstacles", self._on_latched_obstacles, qos.OBSTACLES, event_callbacks=quiet
        )
        volatile = self.create_subscription(MarkerArray, "obstacles", self._on_obstacles, qos.OBSTACLES_VOLATILE)
        law = self.create_subscription(ControlLaw, "arm_driver/control_law", self._on_control_law, qos.LATCHED)
        self._offered = [
            (self.destroy_service, create_long_service(self, CertifyTrajectory, "~/certify", self._certify)),
            (self.destroy_service, create_long_service(self, PlanNext, "~/plan_next", self._plan_next)),
            (self.destroy_service, create_long_service(self, PlanTo, "~/plan_to", self._plan_to)),
            (self.destroy_service, self.create_service(Trigger, "~/cancel", self._cancel)),
            (self.destroy_subscription, status_subscription),
            (self.destroy_subscription, latched),
            (self.destroy_subscription, volatile),
            (self.destroy_timer, self.create_timer(SCENE_PERIOD, self._repeat_scene)),
            (self.destroy_subscription, law),
            (self.destroy_publisher, self._plan_publisher),
            (self.destroy_publisher, self._status_publisher),
            (self.destroy_publisher, self._scene_publisher),
        ]
        self._publish_scene()
        return TransitionCallbackReturn.SUCCESS

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """From now on motions are planned and certified."""
        self._is_active = True
        self.get_logger().info(f"ready: {self._describe_scene()}; plans are proven over continuous time")
        return TransitionCallbackReturn.SUCCESS

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Nothing is certified any more, so nothing new can move; a running search ends in a refusal."""
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
        """End a running search and wait for it."""
        self._is_active = False
        spin_while(self, lambda: self._running > 0, CLOSE_TIMEOUT)

    def _on_control_law(self, message: ControlLaw) -> None:
        """Prove bounds for the control law that the driver runs, its period included."""
        try:
            control = RobustSettings.of_law(control_law_from_message(message))
        except SysidError as error:
            self._law_fault = str(error)
            self.get_logger().error(f"nothing is certified: {error}")
            return
        self._law_fault = None
        if control != self._control:
            self._control = control
            self._planner.forget()
            self._plans.clear()
            self.get_logger().info(f"plans are for the driver's control law: {control.law}")

    def _on_status(self, status: DriverStatus) -> None:
        # A certificate is valid in the time of the loop that executes it, which may not be ours.
        if status.mode != DriverStatus.MODE_IDLE:
            self._offset_ns = stamp_from_message(status.header.stamp) - time.time_ns()

    def _now(self) -> float:
        return 1e-9 * (time.time_ns() + min(self._offset_ns, 0))

    # The scene

    def _change_scene(self, values: SafePlannerParameters) -> None:
        if self._scenes is None:
            return
        self._scenes.change_fixed(values.fixed_scene)
        if self._scenes.fault is not None:
            self.get_logger().error(f"nothing is certified: {self._scenes.fault}")
        self._publish_scene()

    def _on_latched_obstacles(self, message: MarkerArray, info: dict[str, Any]) -> None:
        self._latched_marks.append(_mark_of(message, info))
        self._update_obstacles(message)

    def _on_obstacles(self, message: MarkerArray, info: dict[str, Any]) -> None:
        # Else it came by the other subscription before.
        if not info["source_timestamp"] or _mark_of(message, info) not in self._latched_marks:
            self._update_obstacles(message)

    def _update_obstacles(self, message: MarkerArray) -> None:
        if not self._scenes.update(message, time.monotonic()):
            return
        if self._scenes.fault is not None:
            self.get_logger().error(f"nothing is certified until obstacles can be used again: {self._scenes.fault}")
        else:
            self.get_logger().info(f"obstacles have changed: {self._describe_scene()}")
        self._publish_scene()

    def _repeat_scene(self) -> None:
        """Publish the scene again: who receives it from two planners knows that it cannot believe either."""
        if self._scenes.check_timeout(time.monotonic()) and self._scenes.fault is not None:
            self.get_logger().error(f"nothing is certified: {self._scenes.fault}")
        self._publish_scene()

    def _publish_scene(self) -> None:
        scenes, frame = self._scenes, self._robot.base_frame
        message = scene_to_message(scenes.latest, time.time_ns(), frame, self._source, scenes.fault)
        self._scene_publisher.publish(message)

    def _describe_scene(self) -> str:
        scene = self._scenes.latest
        ground = "no ground" if scene.ground_height is None else f"ground at {scene.ground_height:g} m"
        return f"{ground}, {len(scene.obstacles)} obstacles"

    # Services

    async def _certify(
        self, request: CertifyTrajectory.Request, response: CertifyTrajectory.Response
    ) -> CertifyTrajectory.Response:
        def check() -> CertifiedPlan:
            trajectory = trajectory_from_message(request.trajectory, self._robot.joint_names)
            return self._planner.certify(trajectory, self._assumptions_of(request), self._now())

        plan = await self._judge(check, response)
        if plan is not None:
            response.plan = self._message(plan)
        return response

    async def _plan_to(self, request: PlanTo.Request, response: PlanTo.Response) -> PlanTo.Response:
        plan = await self._judge(lambda: self._search_to(request), response)
        if plan is not None:
            response.plan = self._message(plan)
        return response

    async def _plan_next(self, request: PlanNext.Request, response: PlanNext.Response) -> PlanNext.Response:
        plan = await self._judge(lambda: self._search_next(request), response)
        if plan is not None:
            response.plan = self._message(plan)
            response.handover_time = self._config.values.planner.planning_time
            response.information_gained = plan.information_gained.reshape(100)
            response.condition_number = response.status.condition_number = float(plan.condition_number)
            seconds = ", ".join(f"{name} {value:.2f} s" for name, value in plan.statistics.seconds.items())
            response.message = f"condition number {plan.condition_number:.1f}; {seconds}"
        return response

    def _cancel(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._cancelled = self._begun
        response.success = self._running > 0
        response.message = "the search ends" if self._running else "no search is running"
        return response

    def _is_unwanted(self) -> Callable[[], bool]:
        """Return what a search that begins now looks at: whether it is to end."""
        self._begun += 1
        number = self._begun
        return lambda: not self._is_active or number <= self._cancelled

    async def _judge(self, work: Callable[[], CertifiedPlan], response: Any) -> CertifiedPlan | None:
        """Do the work beside the executor, fill in success, message and status, and publish them."""
        started = time.perf_counter()
        self._running += 1
        try:
            self._require_active()
            plan = await run_in_thread(self, lambda: self._run_alone(work))
            self._require_active()
            if plan.certificate.scene_hash != self._scenes.scene.hash():
                raise ParameterOutOfRange("the scene", "changed meanwhile", "the same until the end; plan again")
        except Exception as error:  # noqa: BLE001 - whatever fails in a check is a refusal, not the end of the node
            text = str(error) if isinstance(error, SysidError) else f"internal error: {error!r}"
            self.get_logger().error(text)
            response.success, response.message = False, text
            response.status = self._status(text, started, failure=_failure_code(error))
            return None
        else:
            self._plans[plan.plan_id] = plan
            while len(self._plans) > _REMEMBERED_PLANS:
                self._plans.popitem(last=False)
            response.success, response.message = True, plan.certificate.claims
            response.status = self._status(plan.certificate.claims, started, plan)
            self._plan_publisher.publish(self._message(plan))
            return plan
        finally:
            self._running -= 1
            self._status_publisher.publish(response.status)

    def _run_alone(self, work: Callable[[], CertifiedPlan]) -> CertifiedPlan:
        with self._planning:  # the planner keeps what it has learnt for the next plan
            return work()

    def _require_active(self) -> None:
        if not self._is_active:
            raise NotReady("the safe planner is not active; activate it")
        if self._law_fault is not None:
            raise NotReady(self._law_fault)

    # The work

    def _search_next(self, request: PlanNext.Request) -> CertifiedPlan:
        values = self._config.values
        if request.purpose not in (PlanNext.Request.EXCITE, PlanNext.Request.MOVE):
            raise ParameterOutOfRange("PlanNext.purpose", request.purpose, "EXCITE = 0 or MOVE = 1")
        limit = request.time_limit or values.planner.planning_time
        if not ANSWER_RESERVE < limit <= 3600.0:
            raise ParameterOutOfRange("PlanNext.time_limit [s]", limit, f"above {ANSWER_RESERVE:g}, at most 3600")
        is_move = request.purpose == PlanNext.Request.MOVE
        wanted = PlanRequest(
            assumptions=self._assumptions_of(request),
            start=None if request.predecessor else self._joints("PlanNext", request, "start_position"),
            predecessor=self._find_plan(request.predecessor) if request.predecessor else None,
            takeover_time=request.takeover_time,
            information=np.array(request.information, dtype=float).reshape(10, 10),
            goal=self._joints("PlanNext", request, "goal_position") if is_move else None,
            is_last=request.is_last,
            time_limit=limit - ANSWER_RESERVE,
        )
        return self._planner.plan(wanted, self._now(), self._is_unwanted())

    def _find_plan(self, plan_id: str) -> CertifiedPlan:
        if plan_id not in self._plans:
            known = ", ".join(name[:12] for name in self._plans) or "none yet"
            raise ParameterOutOfRange("plan to take over from", plan_id[:12], f"one of the last plans: {known}")
        return self._plans[plan_id]

    def _search_to(self, request: PlanTo.Request) -> CertifiedPlan:
        for name in ("start_velocity", "start_acceleration"):
            if any(getattr(request, name)):
                raise ParameterOutOfRange(f"PlanTo.{name}", list(getattr(request, name)), "zero: use ~/plan_next")
        wanted = PlanRequest(
            self._assumptions_of(request),
            start=self._joints("PlanTo", request, "start_position"),
            goal=self._joints("PlanTo", request, "goal_position"),
        )
        return self._planner.plan_to(wanted, self._now(), request.duration or None, self._is_unwanted())

    def _joints(self, message: str, request: Any, field: str) -> np.ndarray:
        values: Sequence[float] = getattr(request, field)
        if not len(values):
            raise ParameterOutOfRange(f"{message}.{field}", "empty", f"{self._robot.n} numbers [rad]")
        return joint_vector_from_message(message, field, request.joint_names, values, self._robot.joint_names)

    def _assumptions_of(self, request: Any) -> Assumptions:
        """Return what a proof takes for given: scene and control law of now, and the payload of a request."""
        estimate = estimate_from_message(request.estimate)
        given = getattr(request, "nominal_payload", ())
        nominal = nominal_payload_from_message(type(request).__name__, given)
        known = {"nominal": nominal, "scene": self._scenes.scene, "control_law": self._control}
        if estimate is None:
            return Assumptions.of_payload(self._robot, **known)
        if not estimate.is_consistent or estimate.target != "payload":
            given = estimate.alarm_text or f"of target {estimate.target}"
            raise ParameterOutOfRange("estimate", given, "a consistent estimate of a payload, or none")
        return Assumptions.of_payload(self._robot, estimate.box, np.array(estimate.values), **known)

    # Messages

    def _message(self, plan: CertifiedPlan) -> CertifiedTrajectory:
        return certified_plan_to_message(plan, self._robot.joint_names, time.time_ns(), self._robot.base_frame)

    def _status(
        self,
        text: str,
        started: float,
        plan: CertifiedPlan | None = None,
        failure: int = PlanStatus.FAILURE_NONE,
    ) -> PlanStatus:
        status = PlanStatus(
            planner=self.get_name(),
            is_accepted=plan is not None,
            is_proven=plan is not None,
            failure=failure,
            text=text,
            checked=list(CHECKED),
            not_checked=list(NOT_CHECKED),
            planning_time=time.perf_counter() - started,
        )
        status.header.stamp = self.get_clock().now().to_msg()
        if plan is not None:
            status.plan_id = plan.plan_id
            status.margin_limits = [margin.limit.value for margin in plan.certificate.margins]
            status.margins = [margin.value for margin in plan.certificate.margins]
        return status


def main(argv: list[str] | None = None) -> int:
    """Run the node until it is stopped; return the exit status."""
    return spin_main(SafePlannerNode, argv)


if __name__ == "__main__":
    sys.exit(main())
