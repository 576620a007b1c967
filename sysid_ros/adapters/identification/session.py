"""The other nodes of the suite for one goal: requests, waits, and planners and estimator as ports of a procedure."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from rcl_interfaces.srv import GetParameters
from rclpy.client import Client
from rclpy.node import Node
from rclpy.qos import QoSProfile
from std_srvs.srv import Trigger

from sysid_msgs.msg import ParameterEstimate as EstimateMessage
from sysid_msgs.srv import ApplyEstimate, CertifyTrajectory, ExecuteTrajectory, PlanExcitation, PlanNext, ResetEstimator
from sysid_ros.adapters.goals import ResultParameters
from sysid_ros.adapters.identification.monitor import NOTHING, Stated, SuiteMonitor, TareSamples, samples_of_estimate
from sysid_ros.core.certification.authentication import AuthenticationKey
from sysid_ros.core.common.errors import Cancelled, SysidError
from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.excitation.creep_sweep import SPEEDS
from sysid_ros.core.excitation.settings import CRITERIA
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.request import PlanFailureCode
from sysid_ros.core.procedure import (
    CertifiedPlan,
    ExcitationRequest,
    IdentificationErrorCode,
    IdentificationFailed,
    IdentificationSettings,
    MotionRequest,
    PayloadModel,
    TareStep,
)
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.authentication import sign
from sysid_ros.ros.conversions.estimate import estimate_to_message
from sysid_ros.ros.conversions.plans import certified_plan_from_message, trajectory_from_message, trajectory_to_message
from sysid_ros.ros.other_nodes import ServiceFailed, call_service, no_messages, wait_for_service, wait_until
from sysid_ros.ros.parameters import parameter, parameters_from
from sysid_ros.ros.robot import FrameParameters, RobotParameters

T = TypeVar("T")

SERVICE_PATIENCE = 10.0
"""How long a node may be away before its services are given up [s]; their answers may take longer."""
REPEAT_AFTER = 1.0
"""Time without an answer after which a request is repeated [s]: the middleware drops requests and answers where many
come at once. Repetitions do no harm: setting a model and restarting are idempotent, and plans and proofs are shared
 (:func:`sysid_ros.ros.node.share_repeats`)."""
_LONGEST_SLEEP = 0.1
"""Polling period for the cancellation of the goal [s]."""


class SuiteClients:
    """Clients of all services an identification needs."""

    def __init__(self, node: Node):
        self.plan: Client = node.create_client(PlanExcitation, "excitation_planner/plan")
        self.cancel_plan: Client = node.create_client(Trigger, "excitation_planner/cancel")
        self.certify: Client = node.create_client(CertifyTrajectory, "safe_planner/certify")
        self.plan_next: Client = node.create_client(PlanNext, "safe_planner/plan_next")
        self.cancel_next: Client = node.create_client(Trigger, "safe_planner/cancel")
        self.execute: Client = node.create_client(ExecuteTrajectory, "arm_driver/execute")
        self.brake: Client = node.create_client(Trigger, "arm_driver/brake")
        self.set_model: Client = node.create_client(ApplyEstimate, "arm_driver/set_model")
        self.reset: Client = node.create_client(ResetEstimator, "estimator/reset")
        self.estimator_parameters: Client = node.create_client(GetParameters, "estimator/get_parameters")


UNKNOWN_TEMPERATURE = -273.15
"""No joint is that cold [degC]."""


@dataclass(frozen=True)
class ArmGoalSettings(Settings):
    """How the arm itself is identified."""

    motion_time: float = setting(30.0, "s", lower=2.0, upper=300.0)
    """How long the arm moves to be identified; where a proof asks for slower motions, up to 1.8 times as long."""
    motion_duration: float = setting(15.0, "s", lower=2.0, upper=60.0)
    """Longest single motion: each is planned to excite what earlier ones left weak."""
    validation_time: float = setting(8.0, "s", lower=2.0, upper=60.0)
    """Duration of the last motion, which is not used but predicted."""
    sweep_time: float = setting(0.0, "s", lower=0.0, upper=180.0)
    """Time of slow motions there and back, made before the others, that show friction at creep speeds; 0: none."""
    search_time: float = setting(30.0, "s", lower=0.05, upper=600.0)
    """Time after which the search for a motion begins no other start and ends the present one."""
    starts: int = setting(20, "-", lower=1, upper=100)
    """Largest number of starts of the search for a motion."""
    wanted_condition_number: float = setting(20.0, "-", lower=0.0, upper=1e6)
    """The search ends early with a proven motion that has, with all earlier ones, a base regressor of this condition
    number; 0: it takes all its time. Only for the criterion condition_number."""
    criterion: str = setting("condition_number", choices=CRITERIA)
    """What motions are planned for, see docs/theory/excitation.md."""
    offset_change: float = setting(0.0, "Nm", lower=0.0, upper=50.0)
    """How much each torque offset may differ between recordings, and between them and later use."""
    valid_days: int = setting(180, "days", lower=0, upper=36500)
    """Days for which the calibration may be used; 0: without end."""
    gripper: str = setting("")
    """State of the gripper in all recordings of the arm, as the settings of the robot name it; empty: not stated."""
    firmware: str = setting("")
    """Firmware of the arm, for the record; empty: not known."""
    temperature: float = setting(UNKNOWN_TEMPERATURE, "degC", lower=UNKNOWN_TEMPERATURE, upper=1000.0)
    """Temperature of the joints or the room, for the record; -273.15: not known."""

    @property
    def motions(self) -> int:
        """Number of motions to identify from."""
        return max(1, math.ceil(self.motion_time / self.motion_duration - 1e-9))

    @property
    def sweeps(self) -> int:
        """Number of slow motions before them."""
        return SPEEDS if self.sweep_time else 0

    @property
    def each_duration(self) -> float:
        """Duration of each of them [s]."""
        return self.motion_time / self.motions


@dataclass(frozen=True)
class IdentificationParameters(ResultParameters, FrameParameters, RobotParameters):
    """Parameters of the node ``identification``; a goal that leaves a field 0 gets the value given here."""

    procedure: IdentificationSettings = parameters_from(IdentificationSettings)
    arm: ArmGoalSettings = parameters_from(ArmGoalSettings, prefix="arm_")
    tare_time: float = parameter(10.0, "s", lower=3.0, upper=60.0)
    """~/tare: motion with the empty hand; slower is narrower."""
    service_timeout: float = parameter(10.0, "s", lower=0.1, upper=600.0)
    """How long another node may take to answer, planning excluded."""
    planning_timeout: float = parameter(60.0, "s", lower=0.1, upper=3600.0)
    """How long the search for an exciting trajectory may take."""
    apply_estimate: bool = parameter(True)
    """Give the identified payload to the controller at the end of a successful goal."""
    return_to_start: bool = parameter(True)
    """Move back to where the arm was, by certified plans with the payload as identified, after a success of ~/identify;
    a tare always does."""
    move_tolerance: float = parameter(0.01, "rad", lower=1e-4, upper=1.0)
    """~/move_to: largest distance of a joint from its goal at the end."""
    move_time: float = parameter(60.0, "s", lower=1.0, upper=3600.0)
    """~/move_to: longest motion."""

    def settings_of(self, action: str) -> IdentificationSettings:
        """Return the settings of an action (identify, weigh or tare) whose goal gives none."""
        own = self.procedure
        if action == "identify" or self.is_moved_by_others:
            return own
        time = self.tare_time if action == "tare" else own.max_motion_time
        return replace(own, strategy="postures", trajectories=0, max_motion_time=time)

    @property
    def is_moved_by_others(self) -> bool:
        """Whether another system moves the arm, and holds it."""
        return self.procedure.strategy == "observe"


@dataclass(frozen=True)
class Suite:
    """The suite as the node knows it.

    Attributes:
        node: The node.
        robot: The robot.
        monitor: Its subscriptions.
        clients: The services.
        key: Key that the others know this node by; None without one.
    """

    node: Node
    robot: RobotModel
    monitor: SuiteMonitor
    clients: SuiteClients
    key: AuthenticationKey | None = None


class Session:
    """The suite during one goal. Where it waits, a goal that is cancelled ends with the code ``CANCELED``."""

    def __init__(self, suite: Suite, options: IdentificationParameters, is_cancelled: Callable[[], bool]):
        self.node, self.robot, self.monitor, self.clients = suite.node, suite.robot, suite.monitor, suite.clients
        self.options, self._key = options, suite.key
        self.is_cancelled = is_cancelled
        self._began = time.monotonic()

    def call(
        self,
        client: Any,
        request: Any,
        code: IdentificationErrorCode,
        seconds: float | None = None,
        is_cancelled: Callable[[], bool] | None = None,
    ) -> Any:
        """Ask a service, again where it does not answer; it must be there soon and answer within ``seconds``.

        Without ``seconds`` that is ``service_timeout``; by default the cancellation of the goal ends the waiting. The
        code is for a failure without a server.

        Raises:
            IdentificationFailed: There is no answer, or its node has gone (``INTERRUPTED``).
        """
        timeout, ends, server = self.options.service_timeout, is_cancelled or self.is_cancelled, node_of(client)

        def is_unwanted() -> bool:
            self.require_alive(server)
            return ends()

        try:
            # One that had gone before the goal began may have been started again, and be there in a moment.
            patience = min(timeout, SERVICE_PATIENCE)
            if not wait_until(lambda: not self.monitor.peers.is_gone(server), patience, is_unwanted):
                raise IdentificationFailed(
                    IdentificationErrorCode.INTERRUPTED, str(self.monitor.peers.find_gone(server))
                )
            wait_for_service(self.node, client, patience, is_unwanted)
            return call_service(self.node, client, request, seconds or timeout, is_unwanted, REPEAT_AFTER)
        except Cancelled as cancelled:
            raise _cancelled() from cancelled
        except IdentificationFailed:
            raise
        except ServiceFailed as error:
            raise IdentificationFailed(IdentificationErrorCode.TIMEOUT, str(error)) from error
        except SysidError as error:
            raise IdentificationFailed(code, str(error)) from error

    def require_alive(self, *names: str) -> None:
        """Raise the code ``INTERRUPTED`` where one of these nodes has gone since the goal began."""
        gone = self.monitor.peers.find_gone(*names, since=self._began)
        if gone is not None:
            raise IdentificationFailed(IdentificationErrorCode.INTERRUPTED, gone)

    def wait_until(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until a condition holds; false if it does not within the time [s], or ``service_timeout``."""
        timeout = self.options.service_timeout if seconds is None else seconds
        try:
            return wait_until(condition, timeout, self.is_cancelled)
        except Cancelled as cancelled:
            raise _cancelled() from cancelled

    def sleep(self, duration: float, *needed: str) -> None:
        """Let time pass [s]; the needed nodes must not go meanwhile, see :meth:`require_alive`."""
        end = time.monotonic() + duration
        while (left := end - time.monotonic()) > 0.0:
            time.sleep(min(left, _LONGEST_SLEEP))
            self.require_not_cancelled()
            self.require_alive(*needed)

    def require_not_cancelled(self) -> None:
        """Raise the code ``CANCELED`` where the goal is to end."""
        if self.is_cancelled():
            raise _cancelled()

    def describe_timeout(self, topic: str, what: str, profile: QoSProfile, seconds: float | None = None) -> str:
        """Return the error of a topic silent for some time [s], or ``service_timeout``, with its publishers."""
        timeout = self.options.service_timeout if seconds is None else seconds
        return str(no_messages(self.node, topic, what, timeout, profile))

    def model_message(self, model: PayloadModel) -> EstimateMessage:
        """Return the bounds of a payload model as they are sent; without names, for the prior."""
        if model.estimate is None:
            return EstimateMessage()
        message = estimate_to_message(model.estimate, self.monitor.estimate_stamp_ns)
        if self._key is not None and message.session:
            sign(message, self._key)
        return message


def node_of(client: Client) -> str:
    """Return the name of the node whose own service a client asks."""
    return str(client.service_name).rsplit("/", 2)[-2]


def converted(convert: Callable[[], T], code: IdentificationErrorCode) -> T:
    """Return the result of a function; an error of it is a failure with the code, or with ``CANCELED``."""
    try:
        return convert()
    except Cancelled as cancelled:
        raise _cancelled() from cancelled
    except SysidError as error:
        raise IdentificationFailed(code, str(error)) from error


def _cancelled() -> IdentificationFailed:
    return IdentificationFailed(IdentificationErrorCode.CANCELED, "the goal was cancelled")


FIRST_PLAN_TIME = 30.0
"""How long the safe planner may search for a plan while the arm rests [s]: a second of computing, on a busy machine."""
LEAST_PLAN_TIME = 0.2
"""Less time than this is not worth asking for a plan [s]."""
SERVICE_RESERVE = 1.0
"""Margin beyond the time limit for the answer of the safe planner while the arm moves [s]."""
CANCEL_TIMEOUT = 2.0
"""How long a planner may take to accept the cancellation of a search [s]."""
CANCEL_TRIES = 5


class RosPlanner:
    """Certified plans of `safe_planner`, others of `excitation_planner`, as a :class:`core.procedure.Planner`."""

    def __init__(self, session: Session, seed: int = 0):
        self._session = session
        self._seed = seed
        self._answers, self._has_said_late = 0, False

    def plan(self, request: MotionRequest) -> CertifiedPlan:
        """See :class:`Planner`."""
        session, before, limit = self._session, request.predecessor, FIRST_PLAN_TIME
        message = PlanNext.Request(
            joint_names=list(session.robot.joint_names),
            information=request.information.reshape(100),
            estimate=session.model_message(request.model),
            nominal_payload=request.model.nominal.tolist(),
        )
        if request.start is not None:
            message.start_position = request.start.tolist()
        if before is not None:
            message.predecessor, message.takeover_time = before.plan_id, before.handover_time
        if np.isfinite(request.time_left):
            limit = request.time_left
            if limit <= LEAST_PLAN_TIME:
                text = f"only {limit:.2f} s are left to plan in" if limit > 0.0 else "no time is left to plan in"
                raise IdentificationFailed(IdentificationErrorCode.PLAN_FAILED, text)
        if request.goal is not None:
            message.purpose, message.goal_position = PlanNext.Request.MOVE, request.goal.tolist()
        message.time_limit = limit
        return self._plan_of(self._ask(message, before is not None))

    def _ask(self, message: PlanNext.Request, is_moving: bool) -> PlanNext.Response:
        session, failed, started = self._session, IdentificationErrorCode.PLAN_FAILED, time.monotonic()
        timeout = message.time_limit + (SERVICE_RESERVE if is_moving else session.options.service_timeout)
        try:
            response = session.call(session.clients.plan_next, message, failed, timeout, self._is_unwanted)
        except IdentificationFailed as failure:
            if failure.code is IdentificationErrorCode.INTERRUPTED:
                raise
            if failure.code is not failed:
                self._end_search(session.clients.cancel_next)
            if failure.code is IdentificationErrorCode.TIMEOUT and is_moving:
                # An answer that comes too late is as good as none: the arm comes to rest on the plan it follows.
                raise IdentificationFailed(failed, str(failure)) from failure
            estimate = session.monitor.estimate
            if estimate is not None and not estimate.is_consistent:
                raise IdentificationFailed(IdentificationErrorCode.INCONSISTENT, estimate.alarm_text) from failure
            raise
        self._answers += 1
        session.monitor.records.timing[f"planning {self._answers}"] = time.monotonic() - started
        if not response.success:
            is_late, has_said = response.status.failure == int(PlanFailureCode.NO_TIME), self._has_said_late
            self._has_said_late |= is_late
            is_known = is_late and is_moving and has_said  # one that ends the goal is reported in full
            raise IdentificationFailed(failed, "again no plan in time" if is_known else response.message)
        return response

    def _plan_of(self, response: PlanNext.Response) -> CertifiedPlan:
        names = self._session.robot.joint_names
        plan = converted(lambda: certified_plan_from_message(response.plan, names), IdentificationErrorCode.PLAN_FAILED)
        return replace(
            plan,
            handover_time=float(response.handover_time),
            information_gained=np.array(response.information_gained).reshape(10, 10),
            condition_number=float(response.condition_number),
        )

    def plan_excitation(self, request: ExcitationRequest) -> tuple[Trajectory, float]:
        """See :class:`Planner`; a search for a plan that is not needed any more is ended too."""
        session, failed = self._session, IdentificationErrorCode.PLAN_FAILED
        session.require_not_cancelled()
        message = PlanExcitation.Request(
            joint_names=list(session.robot.joint_names),
            start_position=request.start.tolist(),
            duration=request.duration,
            information=request.information.reshape(100),
            estimate=session.model_message(request.model),
            limit_share=request.limit_share,
            seed=(self._seed + request.index) % 2**32,
        )
        started = time.monotonic()
        try:
            response = session.call(session.clients.plan, message, failed, session.options.planning_timeout)
        except IdentificationFailed as failure:
            if failure.code is not failed:
                self._end_search(session.clients.cancel_plan)
            raise
        session.monitor.records.timing[f"planning {request.index + 1}"] = time.monotonic() - started
        if not response.success:
            raise IdentificationFailed(failed, response.message)
        trajectory = converted(lambda: trajectory_from_message(response.trajectory, session.robot.joint_names), failed)
        return trajectory, float(response.condition_number)

    def certify(self, trajectory: Trajectory, model: PayloadModel) -> CertifiedPlan:
        """See :class:`Planner`."""
        session, refused, started = self._session, IdentificationErrorCode.CERTIFICATE_REFUSED, time.monotonic()
        names, records = session.robot.joint_names, session.monitor.records
        message = CertifyTrajectory.Request(
            trajectory=trajectory_to_message(trajectory, names, time.time_ns()),
            estimate=session.model_message(model),
            nominal_payload=model.nominal.tolist(),
        )
        response = session.call(session.clients.certify, message, refused, session.options.planning_timeout)
        records.timing[f"certifying {len(records.plans) + 1}"] = time.monotonic() - started
        if not response.success:
            raise IdentificationFailed(refused, response.message)
        return converted(lambda: certified_plan_from_message(response.plan, names), refused)

    def _is_unwanted(self) -> bool:
        """Return whether a plan is of no use any more: the goal is cancelled, or the data are inconsistent."""
        self._session.require_alive("estimator", "arm_driver")
        estimate = self._session.monitor.estimate
        return self._session.is_cancelled() or (estimate is not None and not estimate.is_consistent)

    def _end_search(self, cancel: Any) -> None:
        """End the search for a plan; ask again where the request to plan may still be on its way."""
        node = self._session.node
        try:
            for _ in range(CANCEL_TRIES):
                if call_service(node, cancel, Trigger.Request(), CANCEL_TIMEOUT, repeat_after=REPEAT_AFTER).success:
                    return
                time.sleep(0.1)
        except SysidError as error:
            node.get_logger().warning(f"the search for a plan goes on: {error}")


class RosEstimates:
    """An :class:`sysid_ros.core.procedure.EstimateSource`."""

    def __init__(self, session: Session, stated: Stated = NOTHING):
        self._session, self._monitor, self._stated = session, session.monitor, stated

    def reset(self, reason: str, tare: TareStep = TareStep.KEEP) -> None:
        """See :class:`EstimateSource`."""
        session = self._session
        request = ResetEstimator.Request(
            reason=reason, until=self._monitor.sample_stamp_ns, tare=int(tare), **self._stated._asdict()
        )
        response = session.call(session.clients.reset, request, IdentificationErrorCode.TIMEOUT)
        if not response.success:
            code = IdentificationErrorCode.INCONSISTENT if tare is TareStep.END else IdentificationErrorCode.INTERNAL
            raise IdentificationFailed(code, f"estimator: {response.message}")
        monitor = self._monitor
        block = samples_of_estimate(monitor.records) if tare is TareStep.END else None
        if block is not None:
            monitor.tare = TareSamples(response.tare, block, monitor.records.gripper)
        monitor.forget_estimates(response.until, self._stated._replace(gripper=response.gripper), response.tare)

    def latest(self) -> ParameterEstimate | None:
        """See :class:`EstimateSource`."""
        return self._monitor.estimate

    def information(self) -> NDArray[np.float64]:
        """See :class:`EstimateSource`."""
        return self._monitor.information

    def stamp_ns(self) -> int:
        """See :class:`EstimateSource`."""
        return self._monitor.estimate_stamp_ns

    def catch_up(self) -> None:
        """See :class:`EstimateSource`; waits as long as the estimator makes progress."""
        session, monitor = self._session, self._monitor
        wanted = monitor.sample_stamp_ns
        while (reached := monitor.estimate_stamp_ns) < wanted:

            def has_moved_on(since: int = reached) -> bool:
                session.require_alive("estimator", "arm_driver")
                if monitor.estimate_fault is not None:
                    raise IdentificationFailed(IdentificationErrorCode.INTERRUPTED, monitor.estimate_fault)
                return monitor.estimate_stamp_ns > since

            if not session.wait_until(has_moved_on):
                behind = 1e-9 * (monitor.sample_stamp_ns - max(reached, monitor.records.first_stamp_ns - 1))
                error = session.describe_timeout("estimator/estimate", "new estimate", qos.LATCHED)
                text = f"the estimator runs but is {behind:.1f} s of samples behind: {error}"
                raise IdentificationFailed(IdentificationErrorCode.TIMEOUT, text)
