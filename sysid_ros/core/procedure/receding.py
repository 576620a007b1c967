"""Identify by plans that take over from each other in motion, SAFE-ID Algorithm 2.

While one certified plan is followed, the next one is planned, as late as possible, with the bounds known by then; it
takes over in motion, together with the tighter model. Every plan ends at rest by itself, so where there is no next one
in time the arm comes to rest on a certified path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.procedure.base import Procedure
from sysid_ros.core.procedure.model_policy import PayloadModel
from sysid_ros.core.procedure.ports import MotionRequest
from sysid_ros.core.procedure.types import IdentificationErrorCode, IdentificationFailed, Phase

ANSWER_TIME = 0.1
"""How much more than the time to plan in (t_p, the takeover time) the planner's answer may take on its way [s]."""
_EARLIER = 0.5
"""By how much of t_p plans are asked for earlier after one was not found in time, up to t_p: on a slower machine."""
_STARTS = 3
"""Consecutive motions that may come to rest without a second plan before the procedure ends."""
_SHRINK_PLANS = 3
"""Over so many plans an interval must shrink by the threshold, or it has stopped shrinking."""


@dataclass(frozen=True)
class Ending:
    """Why a chain of plans ended, for people, and whether the procedure ends with it."""

    reason: str
    is_final: bool


class RecedingProcedure(Procedure):
    """Alternate certified exciting plans with updates of the estimate, without stops in between."""

    _plan_duration = 3.0
    _handover_time = 1.5
    _planned = 0
    _earlier = 0.0  # share of t_p

    @property
    def _expected(self) -> int:
        if self._settings.trajectories:
            return self._settings.trajectories
        left = self._settings.max_motion_time - self._plan_duration
        return max(1, 1 + int((left + 1e-9) // self._handover_time))

    def _move(self) -> str:
        single = 0
        while True:
            before = len(self._plans)
            done = self._run_chain()
            self._settle(self._fraction)
            if done.is_final:
                return done.reason
            if self._motion_time + self._plan_duration > self._settings.max_motion_time + 1e-9:
                return f"{done.reason}, and no time for another motion"
            single = single + 1 if len(self._plans) == before + 1 else 0
            if single == _STARTS:
                return f"the motion came to rest {_STARTS} times: {done.reason}"

    def _run_chain(self) -> Ending:
        """Move from rest to rest; while the arm follows a plan, the next one already waits to take over."""
        self._report(Phase.PLANNING, "planning the first motions", self._fraction)
        self._require_not_cancelled()
        plan, _ = self._plan_first()
        longest = self._settings.max_motion_time - self._motion_time
        if self._plan_duration > longest + 1e-9:
            raise IdentificationFailed(
                IdentificationErrorCode.INVALID_GOAL,
                f"a plan takes {self._plan_duration:g} s with its stop, but only {longest:g} s of motion are allowed",
            )
        widths, ending = [self._widths()], self._stop_rule([], ahead=0)
        if plan.time_until_next >= plan.duration and not self._target_is_met(self._estimates.latest()):
            self._planned -= 1  # it excites nothing
            ending = Ending("the arm has moved to where more can be proven", False)
        following = None if ending else self._plan_after(plan, (plan,))
        if self._arm.now_ns() >= 1e9 * plan.certificate.expires_at:
            # On a slow machine the second took longer than the first may wait: one motion by itself, then.
            self._report(Phase.PLANNING, "planning again (the first plan has expired)", self._fraction)
            (plan, _), following = self._plan_first(), None
        self._arm.execute(plan)
        self._note(plan)
        while following is not None:
            successor, model = following
            if not self._hand_over(successor, model):
                break
            self._wait_to_plan(plan, successor)
            ending = self._stop_rule(widths, ahead=1)
            following = None if ending else self._plan_after(successor, (plan, successor))
            self._follow(plan, successor)
            self._motion_time += successor.takeover_time
            self._note(successor)
            widths.append(self._widths())
            plan = successor
        self._follow(plan)
        self._motion_time += plan.duration
        return ending or Ending("no next plan was found in time", False)

    # Plans

    def _plan_first(self) -> tuple[CertifiedPlan, PayloadModel]:
        """Plan from rest, more than once: the planner learns from refused plans.

        The last time with the nominal payload that is easiest to hold: the arm may rest where little torque is left.
        """
        for _ in range(2):
            try:
                return self._plan(None, ())
            except IdentificationFailed as failure:
                if failure.code is not IdentificationErrorCode.PLAN_FAILED:
                    raise
                self._require_not_cancelled()
                self._report(Phase.PLANNING, f"planning again ({failure})", self._fraction)
        self._give_model(self._policy.easiest_to_hold(self._arm.posture()))
        return self._plan(None, ())

    def _plan_after(
        self, before: CertifiedPlan, ahead: Sequence[CertifiedPlan]
    ) -> tuple[CertifiedPlan, PayloadModel] | None:
        """Plan the motion that will take over; None without one in time, which is no failure."""
        try:
            return self._plan(before, ahead)
        except IdentificationFailed as failure:
            if failure.code is not IdentificationErrorCode.PLAN_FAILED:
                raise
            self._say_that_it_ends(failure)
            self._earlier = min(self._earlier + _EARLIER, 1.0)
            return None

    def _plan(self, before: CertifiedPlan | None, ahead: Sequence[CertifiedPlan]) -> tuple[CertifiedPlan, PayloadModel]:
        """Plan with the model known by then; return both. ``ahead`` are plans whose data are not all in yet."""
        information = self._estimates.information()
        for one in ahead:
            information = information + self._share_to_come(one) * one.information_gained
        start = None
        if before is None:
            start = self._arm.posture()
            self._give_model(self._policy.for_chain(self._estimates.latest(), start))
            model = self._policy.in_use
            self._arm.wait_until_holding(model)
            start = self._arm.posture()
        else:
            model = self._policy.for_plan(self._estimates.latest())
        time_left = np.inf if before is None else self._time_until_handover(before) - self._arm.check_time
        plan = self._planner.plan(MotionRequest(model, information, start, before, time_left, self._posture_wanted))
        self._plan_duration, self._handover_time = plan.duration, plan.time_until_next
        self._planned += 1
        return plan, model

    @property
    def _posture_wanted(self) -> NDArray[np.float64] | None:
        """Goal of plans, (n,) [rad]; None for exciting ones."""
        return None

    def _share_to_come(self, plan: CertifiedPlan) -> float:
        """Return the share of a plan's information that has not been measured yet, 0..1, assumed to come evenly."""
        begin_ns = self._arm.begin_ns(plan)
        if begin_ns is None:
            return 1.0
        seen = 1e-9 * (self._estimates.stamp_ns() - begin_ns)
        return float(np.clip(1.0 - seen / plan.time_until_next, 0.0, 1.0))

    def _time_until_handover(self, plan: CertifiedPlan) -> float:
        """Return the time until another plan has to take over from this one [s]; infinite before it is executed."""
        begin_ns = self._arm.begin_ns(plan)
        return np.inf if begin_ns is None else plan.time_until_next - 1e-9 * (self._arm.now_ns() - begin_ns)

    # Motion

    def _hand_over(self, plan: CertifiedPlan, model: PayloadModel) -> bool:
        self._require_not_cancelled()
        try:
            self._arm.execute(plan, None if model is self._policy.in_use else model)
        except IdentificationFailed as failure:
            if failure.code is not IdentificationErrorCode.EXECUTION_FAILED:
                raise
            self._say_that_it_ends(failure)
            return False
        self._policy.note_given(model)
        return True

    def _say_that_it_ends(self, failure: IdentificationFailed) -> None:
        self._report(Phase.MOVING, f"the motion will come to rest: {failure}", self._fraction)

    def _wait_to_plan(self, plan: CertifiedPlan, following: CertifiedPlan) -> None:
        """Return when to request the plan that will take over from the following one."""
        # Measurements after the request neither tighten the box of the plan nor guide its choice, so it is requested as
        # late as possible: the planner needs t_p, and the arm time to check the plan.
        lead = (1.0 + self._earlier) * following.time_until_next + ANSWER_TIME + self._arm.check_time
        self._follow(plan, following, lambda: self._time_until_handover(following) - lead)

    # When it ends

    def _stop_rule(self, widths: Sequence[NDArray[np.float64]], ahead: int) -> Ending | None:
        """Return why no further plan is made; None where there is a next one.

        ``widths`` are those of the intervals when each plan so far was first seen to be followed; plans ``ahead`` wait
        to take over.
        """
        settings = self._settings
        if met := self._target_is_met(self._estimates.latest()):
            return Ending(met, True)
        if self._planned >= self._expected:
            return Ending(f"all {self._expected} plans are done", True)
        if not self._has_time(ahead):
            return Ending(f"another plan would exceed {settings.max_motion_time:g} s of motion", True)
        if settings.shrink_threshold > 0.0 and len(widths) > _SHRINK_PLANS:
            then, now = widths[-1 - _SHRINK_PLANS], widths[-1]
            if np.all(now >= (1.0 - settings.shrink_threshold) * then):
                text = f"the last {_SHRINK_PLANS} plans shrank no interval by more than"
                return Ending(f"{text} {100 * settings.shrink_threshold:g} %", True)
        return None

    def _has_time(self, ahead: int = 0) -> bool:
        """Return whether another plan may follow the present one and the plans ahead."""
        time = self._motion_time + (1 + ahead) * self._handover_time + self._plan_duration
        return time <= self._settings.max_motion_time + 1e-9

    def _widths(self) -> NDArray[np.float64]:
        estimate = self._estimates.latest()
        return np.full(10, np.inf) if estimate is None else estimate.upper - estimate.lower

    def _note(self, plan: CertifiedPlan) -> None:
        self._plans.append(plan)
        number = plan.condition_number
        excites = number is not None and number >= 1.0
        text = f"moving (condition number {number:.1f})" if excites else "moving to a posture from where to excite"
        self._report(Phase.MOVING, text, self._fraction)

    @property
    def _fraction(self) -> float:
        return min(1.0, len(self._plans) / (self._expected + 1.0))
