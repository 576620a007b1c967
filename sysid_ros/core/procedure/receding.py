"""Identification by plans that take over from each other in motion, SAFE-ID Algorithm 2.

While one certified plan is followed, the next one is planned, as late as there is time for it, with the bounds as they
are by then; it takes over in motion, together with the tighter model. Every plan ends at rest by itself, so where there
is no next one in time the arm comes to rest on a certified path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.procedure.base import MOTION_GRACE, POLL_PERIOD, Procedure
from sysid_ros.core.procedure.types import IdentificationErrorCode, IdentificationFailed, Phase, PlannedPart

HAND_OVER_RESERVE = 0.25
"""How much more than the time to plan in (t_p, the takeover time) before its take-over a plan is asked for [s].

What is measured after the request neither tightens the box of the plan nor tells it which motion is worth most, so it
is asked for as late as possible. The planner is to have t_p; the rest is for its answer, the checks of it and the loop,
and is what the nodes take off the time that is left: 0.15 s in ``identification``, 0.1 s in ``safe_planner``.
"""
_EARLIER = 0.5
"""By how much of t_p plans are asked for earlier after one was not found in time, up to t_p: on a slower machine."""
_SHORTEST_WAIT = 0.01
"""Less time than this is not waited for [s]: clocks differ, and the time of an emulated arm may pass more slowly."""
_STARTS = 3
"""How often in a row a motion may come to rest for want of a plan before the procedure ends."""
_TRIES = 3
"""How often a first plan is asked for."""
_SHRINK_PARTS = 3
"""Over so many parts an interval must shrink by the threshold, or it has stopped shrinking."""


@dataclass(frozen=True)
class Ending:
    """Why a chain of plans ended, and whether the procedure ends with it."""

    reason: str
    is_final: bool


class RecedingProcedure(Procedure):
    """Alternates certified exciting plans with updates of the estimate, without stops in between."""

    _plan_duration = 3.0
    _takeover_time = 1.5
    _planned = 0
    _earlier = 0.0  # share of t_p

    @property
    def _expected(self) -> int:
        if self._settings.trajectories:
            return self._settings.trajectories
        left = self._settings.max_motion_time - self._plan_duration
        return max(1, 1 + int((left + 1e-9) // self._takeover_time))

    def _move(self) -> str:
        reason = ""
        for _ in range(_STARTS):
            done = self._run_chain()
            self._settle(self._fraction)
            if done.is_final:
                return done.reason
            reason = done.reason
            if self._motion_time + self._plan_duration > self._settings.max_motion_time + 1e-9:
                return f"{reason}, and no time for another motion"
        return f"the motion came to rest {_STARTS} times: {reason}"

    def _run_chain(self) -> Ending:
        """Moves from rest to rest; while the arm follows a part, the next one already waits to take over."""
        self._report(Phase.PLANNING, "planning the first motions", self._fraction)
        self._require_not_cancelled()
        part = self._plan_first()
        longest = self._settings.max_motion_time - self._motion_time
        if self._plan_duration > longest + 1e-9:
            raise IdentificationFailed(
                IdentificationErrorCode.INVALID_GOAL,
                f"a plan takes {self._plan_duration:g} s with its stop, but only {longest:g} s of motion are allowed",
            )
        widths, ending = [self._widths()], self._stop_rule([], ahead=0)
        following = None if ending else self._plan_after(part, (part,))
        self._backend.execute_next(part, None)
        self._note(part)
        while following is not None:
            if not self._hand_over(following, part):
                break
            self._wait_to_plan(part, following)
            ending = self._stop_rule(widths, ahead=1)
            after = None if ending else self._plan_after(following, (part, following))
            self._follow(part, following)
            self._motion_time += part.takeover_time
            self._note(following)
            widths.append(self._widths())
            part, following = following, after
        self._follow(part, None)
        self._motion_time += part.motion.trajectory.duration
        return ending or Ending("no next plan was found in time", False)

    def _plan_first(self) -> PlannedPart:
        """A plan from rest; the planner learns from what it could not certify, so it is asked more than once."""
        for _ in range(_TRIES - 1):
            try:
                return self._plan(None, ())
            except IdentificationFailed as failure:
                if failure.code is not IdentificationErrorCode.PLAN_FAILED:
                    raise
                self._require_not_cancelled()
                self._report(Phase.PLANNING, f"planning again ({failure})", self._fraction)
        return self._plan(None, ())

    def _plan(self, before: PlannedPart | None, ahead: Sequence[PlannedPart]) -> PlannedPart:
        """Plans a part; ``ahead`` are the parts whose data are not all in yet."""
        information = self._backend.information()
        information = sum((self._backend.share_to_come(part) * part.gained for part in ahead), information)
        part = self._backend.plan_next(before, information)
        self._plan_duration, self._takeover_time = part.motion.trajectory.duration, part.takeover_time
        self._planned += 1
        return part

    def _plan_after(self, before: PlannedPart, ahead: Sequence[PlannedPart]) -> PlannedPart | None:
        """The part that will take over; None where there is none in time, which is no failure."""
        try:
            return self._plan(before, ahead)
        except IdentificationFailed as failure:
            if failure.code is not IdentificationErrorCode.PLAN_FAILED:
                raise
            self._say_that_it_ends(failure)
            self._earlier = min(self._earlier + _EARLIER, 1.0)
            return None

    def _hand_over(self, following: PlannedPart, part: PlannedPart) -> bool:
        """Lets a part take over; returns whether it will."""
        self._require_not_cancelled()
        try:
            self._backend.execute_next(following, part)
        except IdentificationFailed as failure:
            if failure.code is not IdentificationErrorCode.EXECUTION_FAILED:
                raise
            self._say_that_it_ends(failure)
            return False
        return True

    def _say_that_it_ends(self, failure: IdentificationFailed) -> None:
        self._report(Phase.MOVING, f"the motion will come to rest: {failure}", self._fraction)

    def _wait_to_plan(self, part: PlannedPart, following: PlannedPart) -> None:
        """Returns when the plan that will take over from the following part is to be asked for."""
        lead = (1.0 + self._earlier) * following.takeover_time + HAND_OVER_RESERVE
        self._follow(part, following, lambda: self._backend.time_until_takeover(following) - lead)

    def _follow(
        self, part: PlannedPart, following: PlannedPart | None, time_left: Callable[[], float] = lambda: np.inf
    ) -> None:
        """Returns when the next part is followed, or at rest without one, or when no time is left [s]."""
        deadline = part.motion.trajectory.duration + MOTION_GRACE
        elapsed = progress = 0.0
        while True:
            state = self._require_moving_well()
            if state.progress > progress:  # slowly, where the time of an emulated arm waits, but it moves on
                deadline, progress = max(deadline, elapsed + MOTION_GRACE), state.progress
            if following is not None and self._backend.is_followed(following):
                return
            if not state.is_moving and (following is None or elapsed > 5 * POLL_PERIOD):
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
                    IdentificationErrorCode.TIMEOUT, f"the arm has not come to the end of a plan in {elapsed:.1f} s"
                )
            self._report(Phase.MOVING, "moving", self._fraction)
            pause = min(POLL_PERIOD, left)
            self._backend.wait(pause)
            elapsed += pause

    def _stop_rule(self, widths: Sequence[NDArray[np.float64]], ahead: int) -> Ending | None:
        """Why no further part is planned.

        Args:
            widths: Widths of the intervals when each part so far was first seen to be followed.
            ahead: Parts that wait to take over from the present one.
        """
        settings = self._settings
        if met := self._target_is_met(self._backend.estimate()):
            return Ending(met, True)
        if self._planned >= self._expected:
            return Ending(f"all {self._expected} plans are done", True)
        if not self._has_time(ahead):
            return Ending(f"another plan would exceed {settings.max_motion_time:g} s of motion", True)
        if len(widths) > _SHRINK_PARTS:
            then, now = widths[-1 - _SHRINK_PARTS], widths[-1]
            if np.all(now >= (1.0 - settings.shrink_threshold) * then):
                text = f"the last {_SHRINK_PARTS} plans shrank no interval by more than"
                return Ending(f"{text} {100 * settings.shrink_threshold:g} %", True)
        return None

    def _has_time(self, ahead: int = 0) -> bool:
        """Whether another plan may follow the present one and the parts ahead."""
        time = self._motion_time + (1 + ahead) * self._takeover_time + self._plan_duration
        return time <= self._settings.max_motion_time + 1e-9

    def _widths(self) -> NDArray[np.float64]:
        estimate = self._backend.estimate()
        return np.full(10, np.inf) if estimate is None else estimate.upper - estimate.lower

    def _note(self, part: PlannedPart) -> None:
        self._motions.append(part.motion)
        self._certificates.append(part.certificate)
        text = f"moving (condition number {part.motion.condition_number:.1f})"
        self._report(Phase.MOVING, text, self._fraction)

    @property
    def _fraction(self) -> float:
        return min(1.0, len(self._motions) / (self._expected + 1.0))
