"""One call of the planner: searches, bounds, verifies and learns from rejections until a plan is certified."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.errors import SysidError
from sysid_ros.core.planning.base import PlanningCancelled
from sysid_ros.core.planning.bezier import BezierTrajectory
from sysid_ros.core.planning.motion_checks import PlanRejected, TrackingErrors
from sysid_ros.core.planning.receding.certifier import Certifier
from sysid_ros.core.planning.receding.costs import InformationCost, condition_number
from sysid_ros.core.planning.receding.margins import AssumedErrors, Margins, Reserve
from sysid_ros.core.planning.receding.motions import gentlest_offset
from sysid_ros.core.planning.receding.outcome import PlanOutcome, PlanStatistics
from sysid_ros.core.planning.receding.problem import NoMotion, PlannerModel, PlanProblem, PlanRequest
from sysid_ros.core.planning.receding.quadratic import StepProblem
from sysid_ros.core.planning.receding.search import FEASIBLE, Candidate, Search
from sysid_ros.core.planning.receding.starts import first_starts, repair_starts

if TYPE_CHECKING:
    from sysid_ros.core.planning.verifier.verify import Verification

Array = NDArray[np.float64]

_GROWTH = 0.12
"""By how much measured errors are enlarged for the search: another motion has others."""
_SHRINK = 0.5
"""What is left of the reach when a motion could not be bounded."""
_GENTLER = 0.25
"""What is left of the reach where the errors of a motion have no room; unlike the above nothing to remember."""
_REGROW = 1.25
"""By how much the reach may grow again from plan to plan."""


@dataclass
class Memory:
    """What is kept from plan to plan.

    Attributes:
        errors: Tracking errors to plan with.
        reach: Share of the k_range to plan with [-].
        last_end: End position of the last plan, (n,) [rad].
    """

    errors: AssumedErrors
    reach: float = 1.0
    last_end: Array | None = None


class PlanningRun:
    """One call of the planner.

    Args:
        model: What is built once per robot.
        step_problem: Quadratic program of the solver.
        request: What is wanted.
        memory: What earlier plans have taught; changed in place.
        certifier: Bounds and verifies candidates.
        deadline: Time of ``time.monotonic()`` by which to return [s].
        is_cancelled: Looked at between steps.
    """

    def __init__(
        self,
        model: PlannerModel,
        step_problem: StepProblem,
        request: PlanRequest,
        memory: Memory,
        certifier: Certifier,
        deadline: float,
        is_cancelled: Callable[[], bool],
    ):
        self._begin = time.monotonic()
        self._model, self._step_problem, self._request, self._certifier = model, step_problem, request, certifier
        self._settings, self._robot = model.settings, model.robot
        self._memory, self._deadline, self._is_cancelled = memory, deadline, is_cancelled
        self._margins = Margins.of(self._settings, self._robot.n)
        self._is_relaxed, self._share = False, 1.0
        self._gentle: AssumedErrors | None = None
        self._errors, self._reach = memory.errors, memory.reach
        self._starts = self._iterations = 0
        self._search_seconds = 0.0
        self._rejections: list[str] = []
        self._was_cut = False

    def run(self) -> PlanOutcome:
        """Candidates until one is certified, or nothing is left to try or no time to try it.

        Raises:
            PlanningCancelled: ``is_cancelled`` said so.
            ParameterOutOfRange: ``bound`` returned no errors.
        """
        warm: Array | None = None
        for _ in range(self._settings.attempts):
            if self._must_stop():
                break
            try:
                problem = self._problem(self._errors.grown(0.0 if self._is_relaxed else _GROWTH))
            except NoMotion as failure:
                self._rejections.append(str(failure))
                if not self._look_gently():
                    break
                continue
            candidate = self._search(problem, warm)
            outcome, tried = self._try(problem, candidate)
            if outcome is not None:
                self._memory.reach = min(_REGROW * self._reach, 1.0)
                self._memory.last_end = outcome.trajectory.q1
                return outcome
            warm = problem.space.offsets(tried.k)
        return self._no_plan()

    def _problem(self, errors: AssumedErrors, margins: Margins | None = None) -> PlanProblem:
        return PlanProblem(self._model, self._request, errors, margins or self._margins, self._share * self._reach)

    def _look_gently(self) -> bool:
        """Goes on with the errors of the gentlest motion, and with smaller motions the next time.

        Next to a limit there may be no room for the errors of the motions that were looked at, or that were guessed.

        Returns:
            Whether that leaves something to try.
        """
        if self._gentle is None:
            self._gentle = self._bound_gentlest()
            if self._gentle is not None:
                self._errors = self._memory.errors = self._gentle
            return self._gentle is not None
        if self._errors is self._gentle and self._is_relaxed:
            return False
        self._relax()
        self._share *= _GENTLER
        self._errors = self._gentle
        return True

    def _bound_gentlest(self) -> AssumedErrors | None:
        q0, v0, a0 = self._request.start
        duration = self._settings.duration
        trajectory = BezierTrajectory(q0, v0, a0, q0 + gentlest_offset(self._request.start, duration), duration)
        measured = None if self._late(self._certifier.expected) else self._bound(trajectory)
        return None if measured is None else AssumedErrors.of(measured, self._robot.n)

    def _search(self, problem: PlanProblem, warm: Array | None) -> Candidate:
        """The best candidate of a search; a later one starts from what was rejected."""
        begin = time.monotonic()
        starts = first_starts(problem, self._memory.last_end) if warm is None else repair_starts(problem, warm)
        search = Search(problem.cost, problem.constraints(), problem.space, self._step_problem)
        found = search.run(starts, self._settings.iterations, self._must_stop)
        self._starts += len(starts)
        self._iterations += search.iterations
        self._search_seconds += time.monotonic() - begin
        return found[0]

    def _try(self, problem: PlanProblem, candidate: Candidate) -> tuple[PlanOutcome | None, Candidate]:
        """Bounds and verifies a candidate, or one pulled in from it; notes what a rejection teaches."""
        is_pulled_in = is_tight = candidate.worst > FEASIBLE and self._errors.is_measured
        if is_tight:
            self._rejections.append(
                f"the best motion found breaks a limit at the samples by {candidate.worst:.2g} (share of a torque "
                "limit, or in units of 0.1 m)"
            )
            is_pulled_in = self._is_relaxed
            self._relax()
        if is_pulled_in:  # a smaller motion has smaller errors
            self._reach *= _SHRINK
            k = problem.gentlest + _SHRINK * (candidate.k - problem.gentlest)
            candidate = Candidate(k, float(problem.cost.evaluate(problem.space.offsets(k)[None])[0]), np.inf)
        if self._late(self._certifier.expected):
            return None, candidate
        trajectory = problem.trajectory(candidate.k)
        errors = self._bound(trajectory)
        if errors is None:
            self._reach *= _SHRINK
            return None, candidate
        measured = AssumedErrors.of(errors, self._robot.n)
        has_room = candidate.worst <= FEASIBLE and measured.is_within(self._errors.grown(_GROWTH))
        self._memory.errors = measured
        self._errors = measured if is_pulled_in else measured.larger(self._errors)
        # The verifier has the last word on what the samples, which have margins and look further ahead, do not allow.
        if not (has_room or is_tight or self._still_holds(candidate, problem, measured)):
            self._rejections.append("the tracking errors of the best motion are larger than it leaves room for")
            return None, candidate
        if self._late(self._certifier.expected_verify):
            return None, candidate
        try:
            verification = self._certifier.verify(trajectory, errors)
        except PlanRejected as rejection:
            self._rejections.append(str(rejection))
            if not is_tight:
                self._learn(rejection)
            return None, candidate
        return self._outcome(problem, candidate, trajectory, errors, verification), candidate

    def _relax(self) -> None:
        """Gives up what the search keeps free for what lies between samples; the verifier decides then."""
        if not self._is_relaxed:
            self._is_relaxed, self._margins = True, Margins.least(self._robot.n)

    def _bound(self, trajectory: BezierTrajectory) -> TrackingErrors | None:
        """Tracking errors of a motion; None if there are none, with the reason noted."""
        try:
            return self._certifier.bound(trajectory)
        except PlanningCancelled:
            raise
        except SysidError as failure:
            self._rejections.append(f"no bound of the tracking errors: {failure}")
            return None

    def _learn(self, rejection: PlanRejected) -> None:
        """Widens the margin that was missing; where that is not possible, looks for smaller motions."""
        wider = self._margins.grown(rejection, self._robot.joint_names)
        if wider is self._margins:
            self._reach *= _SHRINK
        self._margins = wider

    def _still_holds(self, candidate: Candidate, problem: PlanProblem, errors: AssumedErrors) -> bool:
        """Whether a motion respects the sampled constraints with its own errors."""
        x = problem.space.offsets(candidate.k)
        try:
            own = self._problem(errors, replace(self._margins, reserve=Reserve.none()))
        except NoMotion:
            return False
        inside = np.all(np.abs(x - own.space.center) <= own.space.half + 1e-9)
        return bool(inside and own.constraints().evaluate(x[None]).worst[0] <= FEASIBLE)

    def _must_stop(self) -> bool:
        if self._is_cancelled():
            raise PlanningCancelled("the receding-horizon planner was cancelled")
        return self._late(self._certifier.expected)

    def _late(self, needed: float) -> bool:
        """Whether the deadline would pass if this time were spent now [s]."""
        is_late = time.monotonic() + needed > self._deadline
        self._was_cut |= is_late
        return is_late

    def _outcome(
        self,
        problem: PlanProblem,
        candidate: Candidate,
        trajectory: BezierTrajectory,
        errors: TrackingErrors,
        verification: Verification,
    ) -> PlanOutcome:
        information = self._information_of(problem, candidate)
        return PlanOutcome(
            trajectory=trajectory,
            errors=errors,
            verification=verification,
            family=problem.family,
            k=candidate.k,
            cost=candidate.cost,
            information=information,
            condition_number=condition_number(information),
            reason="",
            statistics=self._statistics(),
        )

    def _information_of(self, problem: PlanProblem, candidate: Candidate) -> Array:
        request, settings = self._request, self._settings
        rows = self._model.rows[request.is_last]
        cost = InformationCost(
            rows, request.start, settings.duration, request.information, request.boxes[1].radius, "condition", 1.0
        )
        return cost.information(problem.space.offsets(candidate.k)[None])[0]

    def _no_plan(self) -> PlanOutcome:
        if self._was_cut and not any(self._certifier.calls.values()):
            self._certifier.doubt()
        reason = self._rejections[-1] if self._rejections else "the time was up before a candidate could be verified"
        return PlanOutcome(
            None,
            None,
            None,
            None,
            np.empty(0),
            float("inf"),
            self._request.information,
            condition_number(self._request.information),
            reason,
            self._statistics(),
        )

    def _statistics(self) -> PlanStatistics:
        seconds = {"search": self._search_seconds, **self._certifier.seconds, "total": time.monotonic() - self._begin}
        calls = self._certifier.calls
        return PlanStatistics(
            self._starts,
            self._iterations,
            calls["bound"],
            calls["verify"],
            seconds,
            tuple(self._rejections),
            self._was_cut,
        )
