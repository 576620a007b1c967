"""The planner nodes and the estimator as ports of a procedure."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from std_srvs.srv import Trigger

from sysid_msgs.srv import CertifyTrajectory, PlanExcitation, PlanNext, ResetEstimator
from sysid_ros.adapters.identification.monitor import NOTHING, Stated, TareSamples
from sysid_ros.adapters.identification.results import samples_of_estimate
from sysid_ros.adapters.identification.session import REPEAT_AFTER, Session, converted
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.planning.request import PlanFailureCode
from sysid_ros.core.procedure import (
    CertifiedPlan,
    ExcitationRequest,
    IdentificationErrorCode,
    IdentificationFailed,
    MotionRequest,
    PayloadModel,
    TareStep,
)
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.plans import certified_plan_from_message, trajectory_from_message, trajectory_to_message
from sysid_ros.ros.waiting import call_service

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
