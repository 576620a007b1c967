"""The driver node as the arm of a procedure.

The motion of the arm is read from the driver's status: the plan it follows, and its progress, by the clock of the arm.
When the plans of a chain have begun or will begin follows from there and from their take-over times.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from std_srvs.srv import Trigger

from sysid_msgs.msg import DriverStatus
from sysid_msgs.srv import ApplyEstimate, ExecuteTrajectory
from sysid_ros.adapters.identification.session import REPEAT_AFTER, Session, Suite, converted, node_of
from sysid_ros.core.certification.assumptions import box_hash
from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.model.calibrated import require_same_arm
from sysid_ros.core.procedure import (
    CertifiedPlan,
    IdentificationErrorCode,
    IdentificationFailed,
    ModelRefused,
    MotionState,
    PayloadModel,
    StopUnconfirmed,
)
from sysid_ros.drivers.loop_types import RefusalCode
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.common import joint_vector_from_message, stamp_from_message
from sysid_ros.ros.conversions.plans import certified_plan_to_message
from sysid_ros.ros.other_nodes import GRACE, call_service, wait_until

START_TIMEOUT = 1.0
"""How long after the acceptance of a trajectory its start must appear in the status, in the arm's time [s]."""
SAMPLE_TIMEOUT = qos.ALIVE_LEASE + GRACE + 0.5
"""Without samples for this long the arm counts as silent [s]: a driver that has gone is known, and named, before."""
SECOND_LOOK = 1.5
"""How much longer samples are waited for before the arm counts as silent in motion [s]: on a busy machine it takes a
while until a driver that has gone is known to have."""
_NEEDED = ("estimator", "arm_driver", "safe_planner")
"""Nodes without which no motion goes on: one that goes ends a goal at once, also where it waits for another."""
MODEL_PATIENCE = 2.0
"""How long the driver may report another model than the last one it received [s]."""
STATUS_TIMEOUT = 3.0
"""A status of the driver older than this is stale [s]."""
BRAKE_TIMEOUT = 3.0
"""How long the driver may take to accept a brake request, and again, in the arm's time, to stop the arm [s]."""
BRAKE_AGAIN = 0.3
"""Time without an answer after which the brake request is repeated [s]."""
TAKE_OVER_TIMEOUT = 60.0
"""How long a driver may report that it is taking the arm over [s]."""
TAKEOVER_RESERVE = 0.15
"""How long before its takeover the driver must have a plan that it has proven [s]."""
EXPECTED_CHECK_TIME = 0.3
"""How long the driver may take to prove a plan, before this node has seen it do so [s]."""
_CHECK_RESERVE = 1.3
"""An answer is expected to take at most this much longer than the longest of the last ones."""
REST_PATIENCE = 1.0
"""How much longer than needed to wait until the driver says that the arm has rested long enough [s]."""
_SLOWEST = 0.05
"""Share of real time at which the time of a simulated arm passes at least, on whatever machine [-]."""
_STATUSES_ON_THE_WAY = 2
"""Number of statuses that may be outdated: the latest one, and the one queued behind it."""
_MODES = {
    DriverStatus.MODE_IDLE: ("is not under control", "activate the driver"),
    DriverStatus.MODE_HOLD: ("is being taken over", "try again"),
    DriverStatus.MODE_TRACK: ("is moving", "wait for its end or call arm_driver/brake"),
    DriverStatus.MODE_BRAKE: ("is braking", "try again"),
    DriverStatus.MODE_FAULT: ("has a fault", "remove the cause, then call arm_driver/reconnect"),
}
"""Meaning of each mode of the driver for a motion request, and the remedy."""


def find_missing(suite: Suite, is_moved_by_others: bool) -> str | None:
    """Return in words the condition that a goal would wait for; None if it could begin at once."""
    monitor, now = suite.monitor, time.monotonic()
    status, clients = monitor.status, suite.clients
    if status is None or now - monitor.status_time > STATUS_TIMEOUT:
        return "the driver, which sends no status"
    if not is_moved_by_others and (status.mode != DriverStatus.MODE_HOLD or status.is_taking_over):
        return f"the driver to hold the arm; its status is '{status.text}'"
    if now - monitor.sample_time > SAMPLE_TIMEOUT:
        return "samples of the driver"
    needed = [clients.reset]
    if not is_moved_by_others:
        needed += [clients.plan, clients.plan_next, clients.execute, clients.set_model]
    silent = sorted({node_of(client) for client in needed if not client.service_is_ready()})
    return " and ".join(silent) or None


class RosArm:
    """One goal's :class:`sysid_ros.core.procedure.Arm`.

    Args:
        session: The suite.
        is_moved_by_others: Whether another system moves the arm, and holds it.
    """

    def __init__(self, session: Session, is_moved_by_others: bool = False):
        self._session, self._monitor = session, session.monitor
        self._robot = session.robot
        self._is_moved_by_others = is_moved_by_others
        self._chain: list[CertifiedPlan] = []  # sent to the driver since the arm last rested
        self._started, self._started_ns = 0.0, 0  # when the first of them was accepted: monotonic [s], arm's clock [ns]

    @property
    def motion_time(self) -> float:
        """How long the arm has moved for this goal [s], as reported by its driver."""
        monitor, status, total, is_past = self._monitor, self._monitor.status, 0.0, False
        plans = [plan for _, plan in monitor.records.plans]
        for plan, successor in reversed(list(itertools.zip_longest(plans, plans[1:]))):
            report = monitor.followed.get(plan.plan_id)
            if is_past:  # a later one has begun
                is_left = successor is not None and successor.predecessor == plan.plan_id
                total += successor.takeover_time if is_left else plan.duration
            elif report is not None:
                is_over = status is not None and status.plan_id != plan.plan_id and status.code == DriverStatus.CODE_OK
                total += plan.duration if is_over else report.progress * plan.duration
            is_past = is_past or report is not None
        return total

    # Arm

    @property
    def check_time(self) -> float:
        """See :class:`Arm`."""
        times = self._monitor.check_times
        return TAKEOVER_RESERVE + (_CHECK_RESERVE * max(times) if times else EXPECTED_CHECK_TIME)

    def wait_until_ready(self) -> None:
        """See :class:`Arm`."""
        session, monitor = self._session, self._monitor

        def is_reporting() -> bool:
            is_recent = time.monotonic() - monitor.status_time < STATUS_TIMEOUT
            return is_recent and not monitor.peers.is_gone("arm_driver")

        is_there = self._wait_until(is_reporting)
        if not is_there and monitor.status is not None and monitor.status.is_taking_over:
            is_there = self._wait_until(is_reporting, TAKE_OVER_TIMEOUT)  # no status until the arm has answered
        if not is_there:
            error = session.describe_timeout("arm_driver/status", "driver status", qos.STATUS)
            raise IdentificationFailed(IdentificationErrorCode.DRIVER_NOT_READY, error)
        self._wait_for_hold(None)
        converted(
            lambda: require_same_arm(self._robot, self._status.serial_number), IdentificationErrorCode.DRIVER_NOT_READY
        )
        if not self._wait_until(self._samples_arrive):
            timeout = session.describe_timeout("arm_driver/samples", "samples", qos.SAMPLES)
            error = timeout if monitor.sample_fault is None else monitor.sample_fault
            raise IdentificationFailed(IdentificationErrorCode.NO_SAMPLES, error)
        # Two drivers answer every service of one: once a goal moves the arm, messages of others are only refused.
        if monitor.source_conflict is not None:
            raise IdentificationFailed(IdentificationErrorCode.DRIVER_NOT_READY, monitor.source_conflict)

    def posture(self) -> NDArray[np.float64]:
        """See :class:`Arm`."""
        status, names = self._status, self._robot.joint_names
        return converted(
            lambda: joint_vector_from_message(
                "DriverStatus", "reference_position", status.joint_names, status.reference_position, names
            ),
            IdentificationErrorCode.DRIVER_NOT_READY,
        )

    def set_model(self, model: PayloadModel, is_reset: bool = False) -> None:
        """See :class:`Arm`."""
        session, code = self._session, IdentificationErrorCode.DRIVER_NOT_READY
        if is_reset:
            response = session.call(session.clients.set_model, ApplyEstimate.Request(), code)
            # Samples of the next payload begin now. The estimator is to begin with them, not before.
            if response.success:
                self._wait_until(lambda: (self._monitor.sample_epoch or 0) >= response.payload_epoch)
        else:
            request = ApplyEstimate.Request(
                estimate=session.model_message(model), nominal_payload=model.nominal.tolist()
            )
            try:
                # Not cancellable: which model is in use must be known.
                response = session.call(session.clients.set_model, request, code, is_cancelled=lambda: False)
            except IdentificationFailed as failure:
                raise ModelRefused(str(failure)) from failure
        if not response.success:
            raise ModelRefused(response.message)

    def wait_until_holding(self, model: PayloadModel) -> None:
        """See :class:`Arm`."""
        self._wait_for_hold(self._box_hash(model))

    def has_model(self, model: PayloadModel) -> bool:
        """Return whether the controller works with the bounds of a model, by the next statuses of the driver.

        A status in transit may be older than an answer of the driver to another client.
        """
        monitor, heard = self._monitor, []

        def is_news() -> bool:
            if monitor.status_time not in heard:
                heard.append(monitor.status_time)
            return len(heard) > _STATUSES_ON_THE_WAY

        self._wait_until(is_news)
        return monitor.status is not None and monitor.status.model_box_hash == self._box_hash(model)

    def execute(self, plan: CertifiedPlan, model: PayloadModel | None = None) -> None:
        """See :class:`Arm`."""
        session, monitor, failed = self._session, self._monitor, IdentificationErrorCode.EXECUTION_FAILED
        message = certified_plan_to_message(plan, self._robot.joint_names, time.time_ns())
        request = ExecuteTrajectory.Request(plan=message)
        monitor.forget_plan(plan.plan_id)
        if plan.predecessor is None:
            self._wait_until_settled(plan.certificate)
            self._chain = [plan]
            self._started, self._started_ns = time.monotonic(), monitor.sample_stamp_ns
        elif model is not None:
            request.estimate = session.model_message(model)
            request.nominal_payload = model.nominal.tolist()
        asked = time.monotonic()
        # Not cancellable: whether the arm moves must be known before anything else is done.
        try:
            timeout = session.options.service_timeout
            response = call_service(
                session.node, session.clients.execute, request, timeout, self._is_driver_gone, REPEAT_AFTER
            )
        except IdentificationFailed:
            raise
        except SysidError as error:
            raise IdentificationFailed(failed, str(error)) from error
        if response.proof_time > 0.0:
            monitor.check_times.append(time.monotonic() - asked)
            monitor.records.timing[f"proof of plan {len(monitor.records.plans) + 1}"] = float(response.proof_time)
        if not response.accepted and not self._was_accepted_before(response, plan):
            raise IdentificationFailed(failed, response.message)
        if plan.predecessor is None:
            self._started, self._started_ns = time.monotonic(), monitor.sample_stamp_ns
        else:
            self._chain.append(plan)
        monitor.records.plans.append((self._begins_ns()[plan], plan))

    def has_begun(self, plan: CertifiedPlan) -> bool:
        """See :class:`Arm`; by now it may even have ended, on a busy machine."""
        return plan.plan_id in self._monitor.followed

    def begin_ns(self, plan: CertifiedPlan) -> int | None:
        """See :class:`Arm`."""
        return self._begins_ns().get(plan)

    def now_ns(self) -> int:
        """See :class:`Arm`."""
        monitor, now = self._monitor, time.monotonic()
        if not monitor.sample_stamp_ns:
            return round(1e9 * now)  # no sample has come yet
        return monitor.sample_stamp_ns + round(1e9 * (now - monitor.sample_time))

    def motion_state(self) -> MotionState:
        """See :class:`Arm`."""
        session, monitor, status = self._session, self._monitor, self._status
        session.require_alive(*_NEEDED)
        # A process that was kept from running has not read its messages yet.
        if not self._samples_arrive() and not self._wait_until(self._samples_arrive, SECOND_LOOK):
            timeout = session.describe_timeout("arm_driver/samples", "samples", qos.SAMPLES, SAMPLE_TIMEOUT)
            error = timeout if monitor.sample_fault is None else monitor.sample_fault
            return MotionState(False, True, 0.0, f"while the arm moved: {error}")
        is_followed = any(plan.plan_id == status.plan_id for plan in self._chain)
        was_seen = any(self.has_begun(plan) for plan in self._chain)
        since = 1e-9 * (stamp_from_message(status.header.stamp) - self._started_ns)
        # From before this chain; a lack of newer statuses is left to their timeout.
        is_old = not was_seen and (since < START_TIMEOUT or monitor.status_time < self._started)
        has_fault = status.mode in (DriverStatus.MODE_FAULT, DriverStatus.MODE_IDLE)
        if has_fault or (status.code != DriverStatus.CODE_OK and not is_old):
            return MotionState(status.mode == DriverStatus.MODE_BRAKE, True, float(status.progress), status.text)
        progress = float(status.progress) if is_followed else 0.0 if is_old else 1.0
        return MotionState(is_followed or is_old, False, progress, status.text)

    def brake(self, reason: str) -> None:
        """See :class:`Arm`. If this goal has not moved the arm, it does not brake motions of others."""
        if not self._chain:
            return
        session = self._session
        session.node.get_logger().warning(f"bringing the arm to rest: {reason}")
        asked, patience = time.monotonic(), BRAKE_TIMEOUT
        text = f"the driver has not reported the arm at rest within {BRAKE_TIMEOUT:g} s"
        try:
            self._is_driver_gone()
            brake, request = session.clients.brake, Trigger.Request()
            call_service(session.node, brake, request, BRAKE_TIMEOUT, self._is_driver_gone, BRAKE_AGAIN)
            asked = time.monotonic()
        except SysidError as error:  # of which IdentificationFailed is one
            text = f"the brake request failed ({error}); without heartbeats the driver brakes by itself"
            patience = 0.2  # it has had its time
        # A driver that ends does not answer any more, but reports that it has handed the arm back.
        if not self._wait_in_arm_time(
            lambda: self._monitor.status_time > asked and not self._monitor.is_moving, patience, wait_until
        ):
            session.node.get_logger().error(text)
            raise StopUnconfirmed(text)

    def wait(self, duration: float) -> None:
        """See :class:`Arm`; it is the arm's time that passes."""
        end_ns, limit = self.now_ns() + round(1e9 * duration), duration / _SLOWEST
        while limit > 0.0 and (left := 1e-9 * (end_ns - self.now_ns())) > 0.0:
            turn = max(left, 1e-3)
            self._session.sleep(turn, *_NEEDED)
            limit -= turn

    # Helpers

    def _wait_in_arm_time(
        self, condition: Callable[[], bool], seconds: float, wait: Callable[[Callable[[], bool], float], bool]
    ) -> bool:
        """Wait until a condition holds; return false if it does not within the time of the arm [s].

        On a busy machine the time of a simulated arm passes more slowly than real time. Without samples, the
        clock of this machine counts.
        """
        end_ns = self.now_ns() + round(1e9 * seconds)
        wait(lambda: condition() or self.now_ns() >= end_ns, seconds / _SLOWEST)
        return condition()

    def _wait_until(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        def holds() -> bool:
            if condition():
                return True
            self._session.require_alive(*_NEEDED)
            return False

        return self._session.wait_until(holds, seconds)

    @property
    def _status(self) -> DriverStatus:
        status = self._monitor.status
        if status is None:
            error = self._session.describe_timeout("arm_driver/status", "driver status", qos.STATUS)
            raise IdentificationFailed(IdentificationErrorCode.DRIVER_NOT_READY, error)
        return status

    def _is_driver_gone(self) -> bool:
        self._session.require_alive("arm_driver")
        return False

    def _was_accepted_before(self, response: ExecuteTrajectory.Response, plan: CertifiedPlan) -> bool:
        """Return whether an answer is to a repetition, with the answer to the first request lost.

        The certificate has been used then, and the driver says that it follows the plan, or will.
        """

        def is_taken() -> bool:
            return self.has_begun(plan) or self._status.next_plan_id == plan.plan_id

        return bool(response.code == RefusalCode.REPLAYED and self._wait_until(is_taken, START_TIMEOUT))

    def _begins_ns(self) -> dict[CertifiedPlan, int]:
        """Return when the plans of the chain begin, by the arm's clock [ns].

        Best known is the begin of the last reported plan: from its progress, by the clock of the arm, which is slower
        than others where an emulated arm waits.
        """
        takeovers = np.cumsum([plan.takeover_time for plan in self._chain])
        known, begin_ns = 0, self._started_ns
        for index, plan in enumerate(self._chain):
            report = self._monitor.followed.get(plan.plan_id)
            if report is not None:
                known, begin_ns = index, report.stamp_ns - round(1e9 * report.progress * plan.duration)
        after = np.round(1e9 * (takeovers - takeovers[known])).astype(int) if self._chain else ()
        return {plan: begin_ns + int(later) for plan, later in zip(self._chain, after, strict=True)}

    def _box_hash(self, model: PayloadModel) -> str:
        return box_hash(self._robot.theta_box, model.box)

    def _wait_for_hold(self, wanted: str | None) -> None:
        """Wait until the arm is held, with the model of that box hash; None for any."""
        if self._is_moved_by_others:
            return
        monitor, strange_since = self._monitor, np.inf  # first report of another model

        def is_decided() -> bool:
            nonlocal strange_since
            if self._is_holding(wanted) or not self._is_holding(None):
                strange_since = np.inf
                return self._is_holding(wanted) or self._status.mode == DriverStatus.MODE_FAULT
            # A request of a moment ago may not show in the status of the driver yet.
            strange_since = min(strange_since, monitor.status_time)
            return monitor.status_time - strange_since > MODEL_PATIENCE

        self._wait_until(lambda: is_decided() or self._status.is_taking_over)
        self._wait_until(lambda: not self._status.is_taking_over, TAKE_OVER_TIMEOUT)
        self._wait_until(is_decided)
        if not self._is_holding(wanted):
            status = self._status
            state, advice = _MODES.get(status.mode, (f"is in the unknown mode {status.mode}", "update this node"))
            if status.mode == DriverStatus.MODE_HOLD and not status.is_taking_over:
                state, advice = (
                    "is held with another model of the payload than it was given last",
                    "send the goal again",
                )
            text = f"the arm {state}: the driver reports '{status.text}'; {advice}"
            raise IdentificationFailed(IdentificationErrorCode.DRIVER_NOT_READY, text)

    def _wait_until_settled(self, certificate: Certificate) -> None:
        """Wait until the arm has been held as long as a certificate asks for; the driver refuses it before."""
        needed, wanted = certificate.rest_before, certificate.box_hash

        def is_decided() -> bool:
            return self._status.rested >= needed or not self._is_holding(wanted)

        self._wait_in_arm_time(is_decided, needed + REST_PATIENCE, self._wait_until)

    def _samples_arrive(self) -> bool:
        return time.monotonic() - self._monitor.sample_time < SAMPLE_TIMEOUT

    def _is_holding(self, wanted: str | None) -> bool:
        status = self._status
        has_model = wanted is None or status.model_box_hash == wanted
        return status.mode == DriverStatus.MODE_HOLD and not status.is_taking_over and has_model
