"""Common parts of all strategies: weigh first, monitor the estimate, bring the arm to rest on any failure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.estimation.parameters.estimate import EstimateStatus, ParameterEstimate, Quantity
from sysid_ros.core.procedure.model_policy import ModelPolicy, PayloadModel
from sysid_ros.core.procedure.ports import Arm, ModelRefused, MotionState, Ports
from sysid_ros.core.procedure.types import (
    Collection,
    Identification,
    IdentificationErrorCode,
    IdentificationFailed,
    IdentificationSettings,
    Phase,
    Progress,
    StopUnconfirmed,
    TareStep,
)

T = TypeVar("T")

_POLL_PERIOD = 0.1
"""Time between two looks at the arm while it moves [s]."""
_MOTION_GRACE = 2.0
"""How much longer than planned a motion may take before it counts as failed [s], unless the arm still moves on."""
_SHORTEST_WAIT = 0.01
"""Less time than this is not waited for [s]: clocks differ, and the time of an emulated arm may pass more slowly."""


def require_identified(estimate: ParameterEstimate) -> None:
    """Refuse an estimate whose mass is no narrower than its prior.

    Raises:
        IdentificationFailed: With the code ``NO_WINDOWS`` or ``NOT_IDENTIFIED``; the text has the shortfall.
    """
    if estimate.status is EstimateStatus.NO_DATA:
        text = f"no momentum window could be made of the samples: {estimate.shortfall}"
        raise IdentificationFailed(IdentificationErrorCode.NO_WINDOWS, text)
    if Quantity.MASS not in estimate.narrower:
        raise IdentificationFailed(IdentificationErrorCode.NOT_IDENTIFIED, estimate.shortfall)


def give_prior(arm: Arm, policy: ModelPolicy) -> None:
    """Give the controller the prior again: the payload may be another one than the last time.

    Raises:
        IdentificationFailed: With the code ``DRIVER_NOT_READY`` where it keeps its model.
    """
    model = policy.reset()
    try:
        arm.set_model(model, is_reset=True)
    except ModelRefused as refusal:
        raise IdentificationFailed(IdentificationErrorCode.DRIVER_NOT_READY, str(refusal)) from refusal
    policy.note_given(model)
    arm.wait_until_holding(model)


class Procedure(ABC):
    """One identification.

    Args:
        ports: The planner, the arm and the source of estimates.
        policy: Decides on the payload model that planner and controller use.
        settings: Settings of the user.
        is_cancelled: Polled between steps and while the arm moves.
        on_progress: Called with every change.
    """

    def __init__(
        self,
        ports: Ports,
        policy: ModelPolicy,
        settings: IdentificationSettings,
        is_cancelled: Callable[[], bool],
        on_progress: Callable[[Progress], None],
    ):
        self._planner, self._arm, self._estimates = ports.planner, ports.arm, ports.estimates
        self._policy = policy
        self._settings = settings
        self._is_cancelled = is_cancelled
        self._on_progress = on_progress
        self._plans: list[CertifiedPlan] = []
        self._motion_time = 0.0
        self._progress = 0.0

    def run(self) -> Identification:
        """Run it; on any failure the arm is braked before the error leaves.

        Raises:
            IdentificationFailed: With the code and a sentence.
        """
        return self._end_at_rest(self._identify)

    def collect(self) -> Collection:
        """Move as :meth:`run` does, but for the data alone: the estimate of the payload need not be narrow.

        Raises:
            IdentificationFailed: With the code and a sentence.
        """
        return self._end_at_rest(self._collect)

    def tare(self) -> Collection:
        """Move as :meth:`run` does, with the empty hand; :func:`end_tare` keeps the result.

        No proof depends on the empty hand: motions are proven for every payload that agrees with the data.

        Raises:
            IdentificationFailed: With the code and a sentence.
        """
        return self._end_at_rest(self._tare)

    @property
    @abstractmethod
    def _expected(self) -> int:
        """Largest number of plans."""

    @abstractmethod
    def _move(self) -> str:
        """Move until a stop rule holds, with the arm at rest in the end; return the rule, for people."""

    def _identify(self) -> Identification:
        collection = self._collect()
        estimate = self._final_estimate()
        require_identified(estimate)
        self._give_final_model(estimate)
        return Identification(**vars(collection), estimate=estimate)

    def _tare(self) -> Collection:
        collection = self._collect(TareStep.BEGIN)
        self._give_final_model(self._final_estimate())  # for the way back
        return collection

    def _collect(self, tare: TareStep = TareStep.KEEP) -> Collection:
        self._report(Phase.WAITING, "waiting for the arm and its samples", 0.0)
        self._arm.wait_until_ready()
        self._forget_payload("identification starts", tare)
        self._weigh()
        stop_reason = self._move()
        return Collection(tuple(self._plans), self._motion_time, stop_reason)

    def _end_at_rest(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except IdentificationFailed as failure:
            failure.stop_unconfirmed = self._stop(str(failure))
            raise
        except Exception as error:
            text = f"internal error: {error!r}"
            unconfirmed = self._stop(text)
            if unconfirmed is None:
                raise
            raise IdentificationFailed(IdentificationErrorCode.INTERNAL, text, unconfirmed) from error

    def _stop(self, reason: str) -> StopUnconfirmed | None:
        self._report(Phase.STOPPING, "bringing the arm to rest", self._progress)
        try:
            self._arm.brake(reason)
        except StopUnconfirmed as unconfirmed:
            return unconfirmed
        return None

    # The model of the payload

    def _forget_payload(self, reason: str, tare: TareStep = TareStep.KEEP) -> None:
        give_prior(self._arm, self._policy)
        self._estimates.reset(reason, tare)

    def _give_model(self, model: PayloadModel, phase: Phase = Phase.PLANNING) -> None:
        """Give the controller of the resting arm a model; where it refuses, the one in use stays."""
        if model is self._policy.in_use:
            return
        try:
            self._arm.set_model(model)
        except ModelRefused as refusal:
            self._report(phase, f"the controller keeps its model: {refusal}", self._progress)
        else:
            self._policy.note_given(model)

    def _give_final_model(self, estimate: ParameterEstimate) -> None:
        """Give the controller the identified payload."""
        if not self._policy.may_tighten:
            return
        posture: NDArray[np.float64] | None
        try:
            posture = self._arm.posture()
        except IdentificationFailed:
            posture = None  # an arm under another controller need not report its posture
        self._give_model(self._policy.final(estimate, posture), Phase.REPORTING)

    # Estimates

    def _weigh(self) -> None:
        if self._settings.weighing_time > 0.0:
            self._report(Phase.ESTIMATING, "weighing at rest", 0.0)
            self._rest(self._settings.weighing_time)
            self._policy.require_consistent(self._estimates.latest())
            self._require_not_cancelled()

    def _settle(self, progress: float) -> None:
        self._report(Phase.ESTIMATING, "at rest, evaluating", progress)
        self._rest(self._settings.settle_time)

    def _rest(self, duration: float) -> None:
        """Stay at rest for a while [s], until the estimate covers all samples up to then."""
        if duration > 0.0:
            self._arm.wait(duration)
        self._estimates.catch_up()

    def _final_estimate(self) -> ParameterEstimate:
        estimate = self._estimates.latest()
        if estimate is None:
            raise IdentificationFailed(
                IdentificationErrorCode.NO_SAMPLES, "the estimator has published no estimate although the arm moved"
            )
        self._policy.require_consistent(estimate)
        return estimate

    def _target_is_met(self, estimate: ParameterEstimate | None) -> str | None:
        """Report that the mass is known well enough; None where it is not."""
        target = self._settings.target_mass_width
        if estimate is None or estimate.upper[0] - estimate.lower[0] > target:
            return None
        return f"the mass interval is narrower than {target:g} kg"

    # The arm

    def _follow(
        self,
        plan: CertifiedPlan,
        following: CertifiedPlan | None = None,
        time_left: Callable[[], float] = lambda: np.inf,
        share: float = 0.0,
    ) -> None:
        """Return when the next plan is followed, or at rest without one, or when no time is left [s].

        ``share`` is the plan's share of the progress, 0 where progress counts whole plans.
        """
        deadline, begun = plan.duration + _MOTION_GRACE, self._progress
        elapsed = progress = 0.0
        while True:
            state = self._require_moving_well()
            if state.progress > progress:  # slowly, where the time of an emulated arm waits, but it moves on
                deadline, progress = max(deadline, elapsed + _MOTION_GRACE), state.progress
            if following is not None and self._arm.has_begun(following):
                return
            if not state.is_moving and (following is None or elapsed > 5 * _POLL_PERIOD):
                if following is None:
                    return
                raise IdentificationFailed(
                    IdentificationErrorCode.EXECUTION_FAILED, "the arm came to rest although a plan was to take over"
                )
            left = time_left()
            if left < _SHORTEST_WAIT:
                return
            if elapsed > deadline:
                raise IdentificationFailed(
                    IdentificationErrorCode.TIMEOUT,
                    f"the arm has not come to the end of a plan in {elapsed:.1f} s: it still moves, although the plan "
                    f"takes {plan.duration:.1f} s",
                )
            self._report(Phase.MOVING, "moving", min(1.0, begun + share * state.progress))
            pause = min(_POLL_PERIOD, left)
            self._arm.wait(pause)
            elapsed += pause

    def _require_moving_well(self) -> MotionState:
        """Return the state of the arm; raise an error after a fault."""
        self._require_not_cancelled()
        state = self._arm.motion_state()
        if state.has_failed:
            raise IdentificationFailed(IdentificationErrorCode.EXECUTION_FAILED, state.text)
        self._policy.require_consistent(self._estimates.latest())
        return state

    def _require_not_cancelled(self) -> None:
        if self._is_cancelled():
            raise IdentificationFailed(IdentificationErrorCode.CANCELED, "the goal was cancelled")

    def _report(self, phase: Phase, text: str, progress: float) -> None:
        self._progress = progress
        self._on_progress(Progress(phase, text, progress, len(self._plans), self._expected, self._estimates.latest()))


_LOOK_PERIOD = 0.5
"""Time between two looks at the estimate [s]."""


class ObserveProcedure(Procedure):
    """Monitors for a while, or until the payload is known well enough.

    Any motion of the arm gives data. Without motion, the bounds follow from gravity alone.
    """

    @property
    def _expected(self) -> int:
        return 0

    def _weigh(self) -> None:
        """Skip it: the arm may be moving, so there is no rest to wait for."""

    def _move(self) -> str:
        estimates, longest = self._estimates, self._settings.max_motion_time
        looks = max(1, round(longest / _LOOK_PERIOD))
        for look in range(looks):
            self._report(Phase.ESTIMATING, "watching the arm", look / looks)
            self._arm.wait(_LOOK_PERIOD)
            self._require_not_cancelled()
            self._policy.require_consistent(estimates.latest())
            if met := self._target_is_met(estimates.latest()):
                return met
        self._report(Phase.ESTIMATING, "evaluating", 1.0)
        estimates.catch_up()  # with all that was seen until now, and no more: the arm may go on moving
        self._policy.require_consistent(estimates.latest())
        return f"the arm was watched for {longest:g} s"
