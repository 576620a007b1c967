"""The arm, the planners and the estimator of the identification procedure, over topics and services."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node
from rclpy.qos import QoSProfile
from std_srvs.srv import Trigger

from sysid_msgs.msg import CertifiedTrajectory, DriverStatus
from sysid_msgs.msg import ParameterEstimate as EstimateMessage
from sysid_msgs.srv import (
    ApplyEstimate,
    CertifyTrajectory,
    ExecuteTrajectory,
    PlanExcitation,
    PlanNext,
    ResetEstimator,
)
from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.procedure import (
    IdentificationErrorCode,
    IdentificationFailed,
    MotionState,
    PlannedMotion,
    PlannedPart,
)
from sysid_ros.core.tracking_bound.nominal_payload import best_payload, choose_payload, weighed_payload
from sysid_ros.core.trajectories.serialization import Trajectory
from sysid_ros.drivers.loop_model import LoopModel
from sysid_ros.nodes.identification_watch import SuiteWatch
from sysid_ros.ros import qos
from sysid_ros.ros.conversions import (
    certificate_from_message,
    certified_from_message,
    certified_to_message,
    estimate_from_message,
    estimate_to_message,
    joint_vector_from_message,
    trajectory_from_message,
    trajectory_to_message,
)
from sysid_ros.ros.waiting import Cancelled, ServiceTimeout, call_service, no_messages, wait_for_service, wait_until

if TYPE_CHECKING:
    from sysid_ros.nodes.identification import IdentificationParameters

START_TIMEOUT = 1.0
"""How long after the acceptance of a trajectory its start must show in the driver's status [s]."""
SAMPLE_SILENCE = 3.0
"""Without samples for this long the arm counts as silent [s]."""
STATUS_SILENCE = 3.0
"""A status of the driver older than this says nothing about the arm [s]."""
BRAKE_TIMEOUT = 3.0
"""How long the driver may take to take in a request to brake, and again to bring the arm to rest [s]."""
TAKE_OVER_TIMEOUT = 60.0
"""How long a driver that says that it takes the arm over may need for it [s]."""
REST_PATIENCE = 1.0
"""How much longer than needed to wait until the driver says that the arm has rested long enough [s]."""
CANCEL_TIMEOUT = 2.0
"""How long the excitation planner may take to take in that its plan is no longer wanted [s]."""
CANCEL_TRIES = 5
FIRST_PLAN_TIME = 30.0
"""How long the safe planner may search for a plan while the arm rests [s]: a second of computing, on a busy machine."""
TAKEOVER_RESERVE = 0.15
"""How long before the take-over a plan must be there, to be checked and handed to the loop [s].

With ``ANSWER_RESERVE`` of the node ``safe_planner`` it makes up ``HAND_OVER_RESERVE`` of the procedure.
"""
LEAST_PLAN_TIME = 0.2
"""Less time than this is not worth asking for a plan [s]."""
SERVICE_RESERVE = 1.0
"""How much longer than its time limit the answer of the safe planner is waited for while the arm moves [s]."""
REPEAT_AFTER = 5.0
"""How long the estimator's answer that it forgets is waited for before it is asked again [s]."""
SERVICE_PATIENCE = 10.0
"""How long a node may be away before its services are given up [s]; their answers may take longer."""
_MODES = {
    DriverStatus.MODE_IDLE: ("is not under control", "activate the driver"),
    DriverStatus.MODE_HOLD: ("is being taken over", "try again"),
    DriverStatus.MODE_TRACK: ("is moving", "wait for its end or call arm_driver/brake"),
    DriverStatus.MODE_BRAKE: ("is braking", "try again"),
    DriverStatus.MODE_FAULT: ("has a fault", "remove the cause, then call arm_driver/reconnect"),
}
"""What each mode of the driver means for somebody who wants to move the arm, and what to do about it."""


class SuiteClients:
    """Clients of all services an identification needs.

    Args:
        node: The node they belong to.
    """

    def __init__(self, node: Node):
        self.plan = node.create_client(PlanExcitation, "excitation_planner/plan")
        self.cancel_plan = node.create_client(Trigger, "excitation_planner/cancel")
        self.certify = node.create_client(CertifyTrajectory, "safe_planner/certify")
        self.plan_next = node.create_client(PlanNext, "safe_planner/plan_next")
        self.cancel_next = node.create_client(Trigger, "safe_planner/cancel")
        self.execute = node.create_client(ExecuteTrajectory, "arm_driver/execute")
        self.brake = node.create_client(Trigger, "arm_driver/brake")
        self.set_model = node.create_client(ApplyEstimate, "arm_driver/set_model")
        self.reset = node.create_client(ResetEstimator, "estimator/reset")


@dataclass(frozen=True)
class KnownModel:
    """What a controller was given.

    Attributes:
        estimate: The payload with its bounds; without names the prior.
        box_hash: Hash of the parameter boxes; empty if nothing was given.
        nominal: The ten parameters it takes for true.
    """

    estimate: EstimateMessage = field(default_factory=EstimateMessage)
    box_hash: str = ""
    nominal: Sequence[float] = ()


class RosBackend:
    """One goal's :class:`sysid_ros.core.procedure.IdentificationBackend`, with the nodes of this package.

    Called from the thread of a goal. Where it waits, it looks at ``is_cancelled`` and ends with code ``CANCELED``.

    Args:
        node: The node it belongs to.
        robot: The robot.
        watch: What the node hears.
        clients: The services.
        parameters: Parameters of the node.
        seed: Seed of the excitation search.
        is_cancelled: Whether the goal is to end.

    Attributes:
        unrest: Why the arm could not be seen to come to rest after a failure; empty if it was.
    """

    def __init__(
        self,
        node: Node,
        robot: RobotModel,
        watch: SuiteWatch,
        clients: SuiteClients,
        parameters: IdentificationParameters,
        seed: int = 0,
        is_cancelled: Callable[[], bool] = lambda: False,
    ):
        self._node = node
        self._robot = robot
        self._watch = watch
        self._clients = clients
        self._parameters = parameters
        self._seed = seed
        self._is_cancelled = is_cancelled
        self._model_estimate = EstimateMessage()
        self._model_box_hash = ""
        self._model_box: Box | None = None
        self._keeps_model = False
        # What the controller takes for true stays the same while bounds shrink: changing it would cost tracking bound.
        self._nominal = LoopModel.nominal(robot).payload.tolist()
        self._plan_hash = ""
        self._plan_was_seen = False
        self._plan_time = 0.0
        self._ended_time, self._present_time = 0.0, 0.0
        self._uncounted_hash = ""  # the plan whose time is not yet part of the time that has ended
        self._takeovers: dict[str, float] = {}  # plans by hash: time of the plan before at which they take over [s]
        self._begins: dict[str, float] = {}  # plans by hash: when they begin, monotonic [s]
        self._plans = 0
        self._part_messages: dict[PlannedPart, tuple[CertifiedTrajectory, EstimateMessage]] = {}
        self.unrest = ""

    @property
    def motion_time(self) -> float:
        """How long the arm has moved for this goal [s]."""
        return self._ended_time + self._present_time

    def apply_final_estimate(self, estimate: ParameterEstimate) -> None:
        """Gives the controller what was identified, and for true what makes its feedback need the least torque."""
        robot, box = self._robot, self._inside_model(estimate).box
        boxes = (robot.theta_box, box)
        options = [self._nominal, choose_payload(robot, boxes, np.clip(estimate.values, box.lower, box.upper))]
        try:
            posture = self._reference_position()
        except IdentificationFailed:
            posture = robot.home  # where nobody says where the arm is, any posture tells enough
        self._nominal = best_payload(robot, boxes, options, posture).tolist()
        self.apply_estimate(estimate)

    def apply_estimate(self, estimate: ParameterEstimate) -> None:
        """Gives the payload as it is known now to the controller, and from then on to the planners.

        Whoever plans and certifies must use the box the controller uses. A failure is a warning: all go on with the
        wider box they have.
        """
        estimate = self._inside_model(estimate)
        message = estimate_to_message(estimate, self._watch.estimate_stamp_ns)
        request = ApplyEstimate.Request(estimate=message, nominal_payload=self._nominal)
        try:
            response = call_service(self._node, self._clients.set_model, request, self._parameters.service_timeout)
            refusal = "" if response.success else response.message
        except SysidError as error:
            refusal = str(error)
        if refusal:
            self._node.get_logger().warning(f"the controller keeps its model: {refusal}")
        else:
            self._model_estimate, self._model_box_hash = message, response.model_box_hash
            self._model_box = estimate.box

    # IdentificationBackend

    def check_ready(self) -> None:
        """See :class:`IdentificationBackend`."""
        watch = self._watch

        def is_heard() -> bool:
            return time.monotonic() - watch.status_time < STATUS_SILENCE

        is_there = self._wait_until(is_heard)
        if not is_there and watch.status is not None and watch.status.is_taking_over:
            is_there = self._wait_until(is_heard, TAKE_OVER_TIMEOUT)  # it says nothing until the arm has answered
        if not is_there:
            error = self._silence("arm_driver/status", "driver status", qos.STATUS)
            raise IdentificationFailed(IdentificationErrorCode.DRIVER_NOT_READY, error)
        self._wait_for_hold()
        if not self._wait_until(self._samples_arrive):
            error = watch.sample_fault or self._silence("arm_driver/samples", "samples", qos.SAMPLES)
            raise IdentificationFailed(IdentificationErrorCode.NO_SAMPLES, error)

    def reset_estimate(self, reason: str) -> None:
        """See :class:`IdentificationBackend`."""
        # The payload may be another one than the last time: the controller must not trust what it was told of that.
        self.forget_payload()
        request = ResetEstimator.Request(reason=reason, until=self._watch.sample_stamp_ns)
        # To forget the same data twice does no harm, and this is the first that a node just started is asked.
        response = self._call(self._clients.reset, request, IdentificationErrorCode.TIMEOUT, repeat_after=REPEAT_AFTER)
        if not response.success:
            raise IdentificationFailed(IdentificationErrorCode.INTERNAL, f"estimator: {response.message}")
        self._watch.forget_estimates(response.until)

    def forget_payload(self) -> None:
        """Takes the controller back to the payload's prior.

        Raises:
            IdentificationFailed: The driver cannot do it.
        """
        response = self._call(
            self._clients.set_model, ApplyEstimate.Request(), IdentificationErrorCode.DRIVER_NOT_READY
        )
        if not response.success:
            raise IdentificationFailed(IdentificationErrorCode.DRIVER_NOT_READY, response.message)
        self._model_estimate, self._model_box_hash = EstimateMessage(), response.model_box_hash
        self._model_box = None
        self._wait_for_hold()

    def plan(self, index: int, duration: float, information: NDArray[np.float64], limit_share: float) -> PlannedMotion:
        """See :class:`IdentificationBackend`."""
        self._tighten_model()
        request = PlanExcitation.Request(
            joint_names=list(self._robot.joint_names),
            start_position=[float(value) for value in self._reference_position()],
            duration=duration,
            information=information.reshape(100),
            estimate=self._model_estimate,
            limit_share=limit_share,
            seed=(self._seed + index) % 2**32,
        )
        started = time.monotonic()
        response = self._call_planner(request)
        self._watch.records.timing[f"planning {index + 1}"] = time.monotonic() - started
        if not response.success:
            raise IdentificationFailed(IdentificationErrorCode.PLAN_FAILED, response.message)
        trajectory = self._checked(
            lambda: trajectory_from_message(response.trajectory, self._robot.joint_names),
            IdentificationErrorCode.PLAN_FAILED,
        )
        return PlannedMotion(trajectory, float(response.condition_number))

    def certify(self, motion: PlannedMotion) -> Certificate:
        """See :class:`IdentificationBackend`."""
        refused = IdentificationErrorCode.CERTIFICATE_REFUSED
        request = CertifyTrajectory.Request(
            trajectory=trajectory_to_message(motion.trajectory, self._robot.joint_names, time.time_ns()),
            estimate=self._model_estimate,
            nominal_payload=self._nominal,
        )
        records, started = self._watch.records, time.monotonic()
        response = self._call(self._clients.certify, request, refused, self._parameters.planning_timeout)
        records.timing[f"certifying {len(records.motions) + 1}"] = time.monotonic() - started
        if not response.success:
            raise IdentificationFailed(refused, response.message)
        certificate = self._checked(
            lambda: certificate_from_message(response.certificate, self._robot.joint_names), refused
        )
        if certificate is None:
            raise IdentificationFailed(refused, "the safe planner accepted the trajectory but sent no certificate")
        return certificate

    def execute(self, motion: PlannedMotion, certificate: Certificate) -> None:
        """See :class:`IdentificationBackend`."""
        plan = certified_to_message(motion.trajectory, certificate, self._robot.joint_names, time.time_ns())
        self._send_plan(ExecuteTrajectory.Request(plan=plan), motion, certificate, None)

    def _send_plan(
        self,
        request: ExecuteTrajectory.Request,
        motion: PlannedMotion,
        certificate: Certificate,
        before: PlannedPart | None,
    ) -> None:
        trajectory: Trajectory = motion.trajectory
        if before is None:
            self._wait_until_settled(certificate)
            self._plan_hash = self._uncounted_hash = trajectory.hash()
            self._plan_was_seen = False
        failed = IdentificationErrorCode.EXECUTION_FAILED
        # Not cancellable: whether the arm moves must be known before anything else is done.
        try:
            response = call_service(self._node, self._clients.execute, request, self._parameters.service_timeout)
        except SysidError as error:
            raise IdentificationFailed(failed, str(error)) from error
        if not response.accepted:
            raise IdentificationFailed(failed, response.message)
        stamp_ns = self._watch.sample_stamp_ns
        if before is None:
            self._plan_time = time.monotonic()
            self._begins = {trajectory.hash(): self._plan_time}
        else:
            wait = self.time_until_takeover(before)
            self._begins[trajectory.hash()] = time.monotonic() + wait
            stamp_ns += round(1e9 * max(0.0, wait))
        self._watch.records.motions.append((stamp_ns, trajectory, motion.condition_number, certificate))

    def adopt_model(self, known: KnownModel) -> None:
        """Works with what the controller was given by an earlier goal; neither is changed."""
        self._model_estimate, self._model_box_hash, self._nominal = known.estimate, known.box_hash, known.nominal
        self._keeps_model = True
        self._watch.use_estimates()

    def begin_with_prior(self) -> None:
        """Works with the payload's prior, whatever is estimated meanwhile; all data up to now are forgotten.

        Raises:
            IdentificationFailed: Driver or estimator cannot do it.
        """
        self._keeps_model = True
        self.reset_estimate("a move with the prior of the payload starts")

    @property
    def model(self) -> KnownModel:
        """What the controller has been given."""
        return KnownModel(self._model_estimate, self._model_box_hash, self._nominal)

    def plan_next(
        self, before: PlannedPart | None, information: NDArray[np.float64], goal: NDArray[np.float64] | None = None
    ) -> PlannedPart:
        """See :class:`IdentificationBackend`; the model gets tighter with every part."""
        estimate = self._model_estimate
        request = PlanNext.Request(joint_names=list(self._robot.joint_names), information=information.reshape(100))
        if before is None:
            self._choose_nominal()
            self._tighten_model()
            estimate = self._model_estimate
            request.start_position = [float(value) for value in self._reference_position()]
            request.time_limit = FIRST_PLAN_TIME
        else:
            if self._may_tighten():
                tighter = self._inside_model(self._watch.estimate)
                estimate = estimate_to_message(tighter, self._watch.estimate_stamp_ns)
            request.continues_plan = before.motion.trajectory.hash()
            request.takeover_time = before.takeover_time
            left = self.time_until_takeover(before) - TAKEOVER_RESERVE
            if left <= LEAST_PLAN_TIME:
                text = f"only {left:.2f} s are left to plan in"
                raise IdentificationFailed(IdentificationErrorCode.PLAN_FAILED, text)
            request.time_limit = left
        request.estimate, request.nominal_payload = estimate, self._nominal
        if goal is not None:
            request.purpose, request.goal_position = PlanNext.Request.MOVE, goal.tolist()
        return self._ask_for_part(request)

    def _ask_for_part(self, request: PlanNext.Request) -> PlannedPart:
        failed, records, started = IdentificationErrorCode.PLAN_FAILED, self._watch.records, time.monotonic()
        try:
            reserve = SERVICE_RESERVE if request.continues_plan else self._parameters.service_timeout
            timeout = request.time_limit + reserve
            response = self._call(self._clients.plan_next, request, failed, timeout, self._is_unwanted)
        except IdentificationFailed as failure:
            if failure.code != failed:
                self._end_search(self._clients.cancel_next)
            if failure.code == IdentificationErrorCode.TIMEOUT and request.continues_plan:
                # An answer that comes too late is as good as none: the arm comes to rest on the plan it follows.
                raise IdentificationFailed(failed, str(failure)) from failure
            estimate = self._watch.estimate
            if estimate is not None and not estimate.is_consistent:
                raise IdentificationFailed(IdentificationErrorCode.INCONSISTENT, estimate.alarm) from failure
            raise
        self._plans += 1
        records.timing[f"planning {self._plans}"] = time.monotonic() - started
        if not response.success:
            raise IdentificationFailed(failed, response.message)
        trajectory, certificate = self._checked(
            lambda: certified_from_message(response.plan, self._robot.joint_names), failed
        )
        if certificate is None:
            raise IdentificationFailed(failed, "the safe planner sent a plan without a certificate")
        gained = np.array(response.information).reshape(10, 10) - np.array(request.information).reshape(10, 10)
        motion = PlannedMotion(trajectory, float(response.condition_number))
        part = PlannedPart(motion, certificate, float(response.takeover_time), gained)
        self._part_messages[part] = (response.plan, request.estimate)
        return part

    def execute_next(self, part: PlannedPart, before: PlannedPart | None) -> None:
        """See :class:`IdentificationBackend`."""
        plan, estimate = self._part_messages.pop(part)
        request = ExecuteTrajectory.Request(plan=plan)
        if before is not None:
            request.continues_plan = before.motion.trajectory.hash()
            request.takeover_time = before.takeover_time
            if not self._keeps_model:
                request.estimate, request.nominal_payload = estimate, self._nominal
            self._takeovers[part.motion.trajectory.hash()] = before.takeover_time
        self._send_plan(request, part.motion, part.certificate, before)
        if before is not None:
            self._model_estimate, self._model_box_hash = estimate, part.certificate.box_hash
            taken = estimate_from_message(estimate)
            self._model_box = self._model_box if taken is None else taken.box

    def is_followed(self, part: PlannedPart) -> bool:
        """See :class:`IdentificationBackend`; notes when it was first seen."""
        wanted = part.motion.trajectory.hash()
        if wanted not in self._watch.followed:  # by now it may even have ended, on a busy machine
            return False
        if self._plan_hash != wanted:
            self._ended_time += self._takeovers[wanted]
            self._plan_hash = self._uncounted_hash = wanted
            self._present_time = 0.0
            self._note_progress()
        return True

    def time_until_takeover(self, part: PlannedPart) -> float:
        """See :class:`IdentificationBackend`; while the arm rests, as long as the first plan may take."""
        begins = self._begins.get(part.motion.trajectory.hash())
        return FIRST_PLAN_TIME if begins is None else begins + part.takeover_time - time.monotonic()

    def share_to_come(self, part: PlannedPart) -> float:
        """See :class:`IdentificationBackend`, by the stamps of samples."""
        motions = self._watch.records.motions
        # Not by hash: an arm that cannot move rests twice alike.
        begins_ns = [stamp_ns for stamp_ns, _, _, certificate in motions if certificate is part.certificate]
        return part.share_after(1e-9 * (self._watch.estimate_stamp_ns - begins_ns[-1])) if begins_ns else 1.0

    def motion_state(self) -> MotionState:
        """See :class:`IdentificationBackend`."""
        status = self._watch.status
        if not self._samples_arrive():
            error = self._silence("arm_driver/samples", "samples", qos.SAMPLES, SAMPLE_SILENCE)
            return MotionState(False, True, 0.0, f"while the arm moved: {error}")
        is_ours = self._note_progress()
        self._plan_was_seen |= is_ours
        since = time.monotonic() - self._plan_time
        # Speaks of the time before this trajectory; where nothing was heard since, that is for the silence to tell.
        is_old = not self._plan_was_seen and (since < START_TIMEOUT or self._watch.status_time < self._plan_time)
        has_fault = status.mode in (DriverStatus.MODE_FAULT, DriverStatus.MODE_IDLE)
        if has_fault or (status.code != DriverStatus.CODE_OK and not is_old):
            return MotionState(status.mode == DriverStatus.MODE_BRAKE, True, float(status.progress), status.text)
        is_moving = is_ours or is_old
        return MotionState(is_moving, False, _progress(status, is_ours, is_old), status.text)

    def brake(self, reason: str) -> None:
        """See :class:`IdentificationBackend`; returns at rest, or notes in :attr:`unrest` why nobody knows.

        Where this goal has moved nothing, whatever moves is not its own to brake.
        """
        if not self._plan_hash:
            return
        self._node.get_logger().warning(f"bringing the arm to rest: {reason}")
        asked, patience = time.monotonic(), BRAKE_TIMEOUT
        doubt = f"the driver has not said that the arm rests within {BRAKE_TIMEOUT:g} s"
        try:
            call_service(self._node, self._clients.brake, Trigger.Request(), BRAKE_TIMEOUT)
            asked = time.monotonic()
        except SysidError as error:
            doubt = f"the brake could not be asked for ({error}); a driver that hears nobody brakes by itself"
            patience = 0.2  # it has had its time
        # A driver that ends does not answer any more, but says that it has handed the arm back.
        if not wait_until(lambda: self._has_come_to_rest(asked), patience):
            self.unrest = doubt
            self._node.get_logger().error(doubt)

    def _has_come_to_rest(self, since: float) -> bool:
        """Whether a status from after ``since`` says so; notes how far the motion got."""
        watch = self._watch
        self._note_progress()
        return watch.status_time > since and not watch.is_moving

    def _note_progress(self) -> bool:
        """Notes how long the present plan has been followed, if it is one of this goal's; returns whether it is."""
        heard, status = self._watch.status_time, self._watch.status
        plan = self._own_plans().get(status.plan_hash)
        if plan is not None:
            self._present_time = status.progress * plan.duration
            self._correct_begins(status.plan_hash, heard - self._present_time)
        return plan is not None

    def _correct_begins(self, followed: str, begins: float) -> None:
        """Plans begin in the time of the arm, which passes more slowly than real time where an emulated one waits.

        Args:
            followed: Hash of the plan that is followed.
            begins: When it began by what has been done of it, monotonic [s].
        """
        plans = [motion[1].hash() for motion in self._watch.records.motions[-2:]]
        if len(set(plans)) < len(plans):  # rests twice alike: which of the two it is cannot be told
            return
        self._begins[followed] = begins
        waiting = plans[-1]
        if waiting != followed and waiting in self._takeovers:
            self._begins[waiting] = begins + self._takeovers[waiting]

    def estimate(self) -> ParameterEstimate | None:
        """See :class:`IdentificationBackend`."""
        return self._watch.estimate

    def information(self) -> NDArray[np.float64]:
        """See :class:`IdentificationBackend`."""
        return self._watch.information

    def settle(self, duration: float) -> None:
        """See :class:`IdentificationBackend`; waits as long as the estimator makes headway."""
        watch = self._watch
        ended = self._own_plans().get(self._uncounted_hash)
        self._ended_time += ended.duration if ended is not None else 0.0
        self._uncounted_hash, self._present_time = "", 0.0
        self._wait_until(lambda: False, duration)
        wanted = watch.sample_stamp_ns
        while (reached := watch.estimate_stamp_ns) < wanted:
            if not self._wait_until(lambda: watch.estimate_stamp_ns > reached):  # noqa: B023 - called before it changes
                error = self._silence("estimator/estimate", "new estimate", qos.LATCHED)
                raise IdentificationFailed(IdentificationErrorCode.TIMEOUT, error)

    def wait(self, duration: float) -> None:
        """See :class:`IdentificationBackend`."""
        time.sleep(duration)

    # Helpers

    def _choose_nominal(self) -> None:
        """Once the payload has been weighed: takes that for true with which the first motions have the best bounds."""
        if self._may_tighten() and not self._plan_hash and not self._plans:
            boxes = (self._robot.theta_box, self._inside_model(self._watch.estimate).box)
            self._nominal = weighed_payload(self._robot, boxes, self._nominal, self._reference_position()).tolist()

    def _tighten_model(self) -> None:
        """Gives the controller what is known by now, while the arm rests."""
        if self._may_tighten():
            self.apply_estimate(self._watch.estimate)
            self._wait_for_hold()

    def _may_tighten(self) -> bool:
        return not self._keeps_model and self._parameters.apply_estimate and self._watch.estimate is not None

    def _inside_model(self, estimate: ParameterEstimate) -> ParameterEstimate:
        """The estimate with what was already given to the controller: both hold, and a model may only get tighter."""
        box = None if self._model_box is None else estimate.box.intersect(self._model_box)
        if box is None:  # nothing was given yet, or the two contradict each other, which the driver will refuse
            return estimate
        values = np.clip(estimate.values, box.lower, box.upper)
        return replace(estimate, values=values, lower=box.lower, upper=box.upper)

    def _own_plans(self) -> dict[str, Trajectory]:
        """The last two plans of this goal by hash: one is followed, the other may wait to take over."""
        return {motion[1].hash(): motion[1] for motion in self._watch.records.motions[-2:]}

    def _is_unwanted(self) -> bool:
        """Whether a plan is of no use any more: the goal is cancelled, or the data contradict the assumptions."""
        estimate = self._watch.estimate
        return self._is_cancelled() or (estimate is not None and not estimate.is_consistent)

    def _call(
        self,
        client: Any,
        request: Any,
        code: IdentificationErrorCode,
        seconds: float | None = None,
        is_cancelled: Callable[[], bool] | None = None,
        repeat_after: float = math.inf,
    ) -> Any:
        """Asks a service; it must be there soon and answer within ``seconds``, or ``service_timeout``."""
        timeout, is_cancelled = self._parameters.service_timeout, is_cancelled or self._is_cancelled
        try:
            wait_for_service(self._node, client, min(timeout, SERVICE_PATIENCE), is_cancelled)
            return call_service(self._node, client, request, seconds or timeout, is_cancelled, repeat_after)
        except Cancelled as cancelled:
            raise _cancelled() from cancelled
        except ServiceTimeout as error:
            raise IdentificationFailed(IdentificationErrorCode.TIMEOUT, str(error)) from error
        except SysidError as error:
            raise IdentificationFailed(code, str(error)) from error

    def _call_planner(self, request: PlanExcitation.Request) -> PlanExcitation.Response:
        """Asks for a plan; where nobody waits for it any longer, the search is ended too."""
        failed = IdentificationErrorCode.PLAN_FAILED
        if self._is_cancelled():
            raise _cancelled()
        try:
            return self._call(self._clients.plan, request, failed, self._parameters.planning_timeout)
        except IdentificationFailed as failure:
            if failure.code != failed:
                self._end_search(self._clients.cancel_plan)
            raise

    def _end_search(self, cancel: Any) -> None:
        """Ends the search for a plan; asks again where the request to plan may still be on its way."""
        try:
            for _ in range(CANCEL_TRIES):
                if call_service(self._node, cancel, Trigger.Request(), CANCEL_TIMEOUT).success:
                    return
                time.sleep(0.1)
        except SysidError as error:
            self._node.get_logger().warning(f"the search for a plan goes on: {error}")

    def _wait_until(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        timeout = self._parameters.service_timeout if seconds is None else seconds
        try:
            return wait_until(condition, timeout, self._is_cancelled)
        except Cancelled as cancelled:
            raise _cancelled() from cancelled

    def _silence(self, topic: str, what: str, profile: QoSProfile, seconds: float | None = None) -> str:
        timeout = self._parameters.service_timeout if seconds is None else seconds
        return str(no_messages(self._node, topic, what, timeout, profile))

    @staticmethod
    def _checked(convert: Callable[[], Any], code: IdentificationErrorCode) -> Any:
        try:
            return convert()
        except SysidError as error:
            raise IdentificationFailed(code, str(error)) from error

    def _reference_position(self) -> NDArray[np.float64]:
        status = self._watch.status
        return self._checked(
            lambda: joint_vector_from_message(
                "DriverStatus",
                "reference_position",
                status.joint_names,
                status.reference_position,
                self._robot.joint_names,
            ),
            IdentificationErrorCode.DRIVER_NOT_READY,
        )

    def _wait_for_hold(self) -> None:
        if self._parameters.strategy == "observe":
            return  # whoever moves the arm holds it, too
        watch, fault = self._watch, DriverStatus.MODE_FAULT
        # What was asked of the driver a moment ago may not show in its status yet.
        self._wait_until(lambda: self._is_holding() or watch.status.is_taking_over or watch.status.mode == fault)
        self._wait_until(lambda: not watch.status.is_taking_over, TAKE_OVER_TIMEOUT)
        self._wait_until(lambda: self._is_holding() or watch.status.mode == fault)
        if not self._is_holding():
            status = watch.status
            state, advice = _MODES.get(status.mode, (f"is in the unknown mode {status.mode}", "update this node"))
            text = f"the arm {state}: the driver says '{status.text}'; {advice}"
            raise IdentificationFailed(IdentificationErrorCode.DRIVER_NOT_READY, text)

    def _wait_until_settled(self, certificate: Certificate) -> None:
        """Waits until the arm has been held as long as a certificate asks for; the driver refuses it before."""
        needed = 0.0 if certificate.control is None else certificate.control.rest_before
        self._wait_until(lambda: self._watch.status.rested >= needed or not self._is_holding(), needed + REST_PATIENCE)

    def _samples_arrive(self) -> bool:
        return time.monotonic() - self._watch.sample_time < SAMPLE_SILENCE

    def _is_holding(self) -> bool:
        status = self._watch.status
        has_model = self._model_box_hash in ("", status.model_box_hash)
        return status.mode == DriverStatus.MODE_HOLD and not status.is_taking_over and has_model


def _progress(status: DriverStatus, is_ours: bool, is_old: bool) -> float:
    if is_ours:
        return float(status.progress)
    return 0.0 if is_old else 1.0


def _cancelled() -> IdentificationFailed:
    return IdentificationFailed(IdentificationErrorCode.CANCELED, "the goal was cancelled")
