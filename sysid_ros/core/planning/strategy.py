"""The steps of a planner from a request to a proven motion, and from there to better ones.

The errors of a motion are known only after it has been bounded, and a better motion mostly has larger ones. So a search
with about the errors of the known motion gives the direction, and the errors there the distance: between two bounded
motions, errors are about in between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.stop_model import PlanRejected
from sysid_ros.core.planning.candidates import Candidate, Candidates
from sysid_ros.core.planning.constraints import AssumedErrors, Margins
from sysid_ros.core.planning.costs import condition_number
from sysid_ros.core.planning.motions import minimum_acceleration_offset
from sysid_ros.core.planning.problem import NoMotion, PlanProblem
from sysid_ros.core.planning.request import PlanFailureCode, Rejection
from sysid_ros.core.planning.search import FEASIBLE, Iterate

Array = NDArray[np.float64]

_GROWTH = 0.4
"""By how much measured errors are enlarged for the search: another motion has others, up to several times as large.
With 0.12 plans excite more, as long as any time may be taken; within the planning time they do not, and one in three
plans in motion is only certified after two more bounds."""
_FIRST_GROWTH = 0.2
"""Factor on the errors of the minimum-acceleration stop for the first search."""
_SHRINK = 0.5
"""Factor on the reach when a motion could not be bounded."""
_FALLBACK_REACH = 0.25
"""Factor on the reach where the errors of a motion have no room; unlike the above not kept."""
_REGROW = 1.25
"""By how much the reach may grow again from plan to plan."""
_STEP_GROWTH = 0.05
"""By how much the errors of the known motion are enlarged for the search of a better one."""
_BROKEN = 0.05
"""Largest row (share of a torque limit, 0.1 m) with which a motion is still worth going towards."""
_SHARES = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
"""Parts of the way that are tried, by bisection."""
_LITTLE = 0.2
"""Part of the way that is tried where no part of it seems to have room."""
_UNBOUNDED_SHARE = 0.5
"""Part of the way to a motion that has no bound."""
_GAIN = 0.03
"""Smallest gain of the cost (of the logarithm of the condition number) that is worth a step."""


@dataclass
class WarmStart:
    """State that is kept from plan to plan.

    Attributes:
        errors: Tracking errors to plan with.
        reach: Share of the k_range to plan with [-].
        last_end: End position of the last plan, (n,) [rad]; None before the first.
        way: Where the last motion to a goal ends, and the postures from there on to the goal, (n,) each [rad].
    """

    errors: AssumedErrors
    reach: float = 1.0
    last_end: Array | None = None
    way: tuple[Array, ...] = ()


class Improvement:
    """Steps to better motions."""

    def __init__(self, candidates: Candidates, margins: Margins):
        self._candidates, self._margins = candidates, margins

    def improve(self, best: Candidate, is_good: Callable[[Candidate], bool]) -> Candidate:
        """Step while there is time, the motion is not good enough, and a step is worth it."""
        for _ in range(self._candidates.model.settings.improvements):
            if is_good(best):
                break
            better = self.beyond(best, _GAIN)
            if better is None:
                break
            gain, best = best.cost - better.cost, better
            if gain < _GAIN:
                break
        return best

    def beyond(self, known: Candidate, gain: float = 0.0) -> Candidate | None:
        """Find a better motion than one whose errors are known; the cost has to promise this gain."""
        candidates = self._candidates
        if candidates.must_stop():
            return None
        try:
            problem = candidates.problem(known.errors.grown(_STEP_GROWTH), self._margins)
        except NoMotion:
            return None
        found = candidates.search(problem, problem.space.coordinates(known.offset)[None])
        if found.worst > _BROKEN or found.cost > known.cost - gain:
            return None
        offset = problem.space.offsets(found.k)
        wanted = candidates.bound(candidates.trajectory(offset))
        if wanted is None:
            wanted = candidates.bound(candidates.trajectory(_on_the_way(known, offset, _UNBOUNDED_SHARE)))
        return None if wanted is None else self.between(known, wanted)

    def between(self, known: Candidate, wanted: Candidate) -> Candidate | None:
        """Prove a motion, or the largest provable part of the way to it that is better than its start."""
        candidates = self._candidates
        for _ in range(3):
            if candidates.holds(wanted.offset, wanted.errors, self._margins):
                found = candidates.verify(wanted)
                if not isinstance(found, PlanRejected):
                    return found
            offset = self._room_on_the_way(known, wanted)
            if offset is None:
                return self._a_little(known, wanted)
            closer = candidates.bound(candidates.trajectory(offset))
            if closer is None or closer.cost > known.cost:
                return None
            wanted = closer
        return None

    def _a_little(self, known: Candidate, wanted: Candidate) -> Candidate | None:
        """Try a small part of the way: samples with their margins may be too strict, and the verifier decides."""
        candidates = self._candidates
        motion = candidates.bound(candidates.trajectory(_on_the_way(known, wanted.offset, _LITTLE)))
        if motion is None or motion.cost > known.cost:
            return None
        found = candidates.verify(motion)
        return None if isinstance(found, PlanRejected) else found

    def _room_on_the_way(self, known: Candidate, wanted: Candidate) -> Array | None:
        """Find the furthest end offset on the way that respects the limits with the expected errors, (n,) [rad]."""
        low, high, best = 0, len(_SHARES), None
        while low < high:
            middle = (low + high) // 2
            offset, share = _on_the_way(known, wanted.offset, _SHARES[middle]), _SHARES[middle]
            if self._candidates.holds(offset, known.errors.towards(wanted.errors, share), self._margins):
                low, best = middle + 1, offset
            else:
                high = middle
        return best


def _on_the_way(known: Candidate, offset: Array, share: float) -> Array:
    return known.offset + share * (offset - known.offset)


class Strategy:
    """The steps of one call of the planner."""

    def __init__(self, candidates: Candidates, warm_start: WarmStart):
        self._candidates, self._warm_start = candidates, warm_start
        self._model, self._request = candidates.model, candidates.request
        self._settings, self._robot = self._model.settings, self._model.robot
        self._margins = Margins.of(self._settings, self._robot.n)
        self._improvement = Improvement(candidates, self._margins)
        self._is_relaxed, self._share = False, 1.0
        self._errors, self._reach = warm_start.errors, warm_start.reach
        self._stop: Candidate | None = None  # the minimum-acceleration stop
        self._fallback: Candidate | None = None
        self._proven_fallback: Candidate | None = None
        self._rejection: Rejection | None = None

    @property
    def rejection(self) -> Rejection:
        """Why there is no plan."""
        return self._rejection or self._candidates.last_rejection()

    def run(self) -> Candidate | None:
        """Try candidates until one is proven and good, or candidates or time run out.

        Returns:
            The best proven candidate; None if there is none, see :attr:`rejection`.

        Raises:
            Cancelled: The call was cancelled.
            ParameterOutOfRange: The prover returned no errors.
        """
        found = self._first() or self._proven_fallback
        if found is None:
            return None
        if self._request.goal is None:
            found = self._improvement.improve(found, self._is_good)
        self._warm_start.errors = found.errors
        self._warm_start.reach = min(_REGROW * self._reach, 1.0)
        self._warm_start.last_end = found.trajectory.q1
        return found

    def information(self, found: Candidate) -> Array:
        """Compute the information before and of a motion together, (10, 10)."""
        gained: Array = self._model.rows(self._request).information(found.offset[None])[0]
        return self._request.information + gained

    def _first(self) -> Candidate | None:
        warm: Array | None = None
        if not self._errors.is_measured:
            stop = self._bound_stop()
            if stop is not None:
                self._errors = stop.errors.grown(_FIRST_GROWTH)
        for _ in range(self._settings.attempts):
            if self._candidates.must_stop():
                break
            try:
                problem = self._problem(self._errors.grown(0.0 if self._is_relaxed else _GROWTH))
            except NoMotion as failure:
                self._candidates.rejections.append(Rejection(PlanFailureCode.NO_MOTION, str(failure), failure))
                if not self._fall_back():
                    break
                continue
            last_end = self._warm_start.last_end
            starts = problem.first_starts(last_end) if warm is None else problem.repair_starts(warm)
            solution = self._candidates.search(problem, starts)
            is_tight = solution.worst > FEASIBLE and self._errors.is_measured
            if is_tight:
                self._note_tight(solution)
            candidate = self._candidates.bound(problem.trajectory(solution.k))
            if candidate is None:
                self._reach *= _SHRINK
            else:
                found = self._judge(candidate, solution, is_tight)
                if found is not None:
                    return found
            warm = problem.space.offsets(solution.k)
            if is_tight:
                found = self._between_fallback_and(candidate)
                if found is not None or self._fallback is None:
                    return found
                self._relax()
                self._share *= _SHRINK
                warm = 0.5 * (self._fallback.offset + warm)
        return None

    def _judge(self, candidate: Candidate, solution: Iterate, is_tight: bool) -> Candidate | None:
        """Verify a candidate, and record the effect of a rejection."""
        errors = candidate.errors
        has_room = solution.worst <= FEASIBLE and errors.is_within(self._errors.grown(_GROWTH))
        self._warm_start.errors = errors
        self._errors = errors.larger(self._errors)
        # The verifier decides where the samples, which have margins and look further ahead, are too strict.
        reach = self._share * self._reach
        if not (has_room or is_tight or self._candidates.holds(candidate.offset, errors, self._margins, reach)):
            text = "the tracking errors of the best motion are larger than it leaves room for"
            self._candidates.rejections.append(Rejection(PlanFailureCode.NO_ROOM, text))
            return None
        found = self._candidates.verify(candidate)
        if isinstance(found, PlanRejected):
            if not is_tight:
                # Widen the margin that was missing.
                self._margins = self._margins.grown(found, self._robot.joint_names)
            return None
        return found

    def _between_fallback_and(self, wanted: Candidate | None) -> Candidate | None:
        """Prove motions between the fallback and a motion that leaves too little room for its errors."""
        is_first = self._fallback is None
        fallback = self._fallback = self._fallback or self._bound_fallback()
        if fallback is None:
            return None
        self._warm_start.errors = self._errors = fallback.errors
        improvement = Improvement(self._candidates, Margins.least(self._robot.n))
        found = None if wanted is None else improvement.between(fallback, wanted)
        if found is None and is_first:
            found = improvement.beyond(fallback)
            self._proven_fallback = None if found else self._verify_fallback(fallback)
        return found

    def _bound_fallback(self) -> Candidate | None:
        """Bound the minimum-acceleration stop, or the way to the end of the last plan if it leaves more room."""
        start, candidates, last_end = self._request.state, self._candidates, self._warm_start.last_end
        if last_end is not None and np.any(start[1]):
            onward = last_end - start[0]
            offsets = np.stack([minimum_acceleration_offset(start, self._settings.duration), onward])
            try:
                problem = candidates.problem(self._warm_start.errors, Margins.least(self._robot.n))
            except NoMotion:
                return self._bound_stop()
            stop, onwards = problem.worst_rows(offsets)
            if onwards < stop:
                return candidates.bound(candidates.trajectory(onward))
        return self._bound_stop()

    def _verify_fallback(self, fallback: Candidate) -> Candidate | None:
        """Verify the fallback itself; its fault is the plainest reason for no plan."""
        found = self._candidates.verify(fallback)
        if isinstance(found, PlanRejected):
            self._rejection = Rejection(PlanFailureCode.LIMIT, str(found), found)
            return None
        return found

    def _problem(self, errors: AssumedErrors) -> PlanProblem:
        return self._candidates.problem(errors, self._margins, self._share * self._reach)

    def _fall_back(self) -> bool:
        """Continue with the errors of the minimum-acceleration stop, and with smaller motions the next time.

        Next to a limit there may be no room for the errors of the tried motions, or for guessed ones.

        Returns:
            Whether that leaves something to try.
        """
        if self._stop is None:
            stop = self._bound_stop()
            if stop is not None:
                self._errors = self._warm_start.errors = stop.errors
            return stop is not None
        if self._errors is self._stop.errors and self._is_relaxed:
            return False
        self._relax()
        self._share *= _FALLBACK_REACH
        self._errors = self._stop.errors
        return True

    def _bound_stop(self) -> Candidate | None:
        if self._stop is None:
            offset = minimum_acceleration_offset(self._request.state, self._settings.duration)
            self._stop = self._candidates.bound(self._candidates.trajectory(offset))
        return self._stop

    def _note_tight(self, solution: Iterate) -> None:
        text = (
            f"the best motion found breaks a limit at the samples by {solution.worst:.2g} (share of a torque "
            "limit, or in units of 0.1 m)"
        )
        self._candidates.rejections.append(Rejection(PlanFailureCode.NO_MOTION, text))

    def _relax(self) -> None:
        """Give up the search's margins for gaps between samples; the verifier decides then."""
        if not self._is_relaxed:
            self._is_relaxed, self._margins = True, Margins.least(self._robot.n)

    def _is_good(self, found: Candidate) -> bool:
        return condition_number(self.information(found)) <= self._settings.good_condition
