"""Candidates of one call of the planner: finds, bounds, verifies and counts them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.plan import PlanStatistics
from sysid_ros.core.certification.stop_model import PlanRejected, TrackingErrors, VerifierSettings
from sysid_ros.core.certification.verify import Proof, Verification, prove_throughout, verify, with_room
from sysid_ros.core.common.errors import Cancelled, SysidError
from sysid_ros.core.planning.constraints import AssumedErrors, Margins, Reserve
from sysid_ros.core.planning.problem import NoMotion, PlannerModel, PlanProblem, build_cost
from sysid_ros.core.planning.request import PlanFailureCode, PlanRequest, Rejection
from sysid_ros.core.planning.search import FEASIBLE, Iterate, Search
from sysid_ros.core.tracking_bound.bound import TrackingBound
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.core.trajectories.families import BezierTrajectory

Array = NDArray[np.float64]

_Result = TypeVar("_Result")


class Prover(Protocol):
    """Bounds the tracking errors of motions and proves them safe."""

    def bound(self, request: PlanRequest, trajectory: Trajectory) -> TrackingBound:
        """Compute the tracking bound of a motion that is requested, or raise an error of this package."""

    def verify(self, request: PlanRequest, trajectory: Trajectory, errors: TrackingErrors) -> Verification:
        """Prove a motion safe with these errors, or raise :class:`PlanRejected`."""

    def prove(self, request: PlanRequest, trajectory: Trajectory, bound: TrackingBound) -> Proof:
        """Prove the tracking errors of a motion throughout, and the motion safe with these and a bound's."""


class RobustProver:
    """The robust controller's tracking bound and the verifier."""

    def __init__(self, settings: VerifierSettings):
        self._settings = settings

    def bound(self, request: PlanRequest, trajectory: Trajectory) -> TrackingBound:
        """See :class:`Prover`."""
        return request.assumptions.bound(trajectory, request.history)

    def verify(self, request: PlanRequest, trajectory: Trajectory, errors: TrackingErrors) -> Verification:
        """See :class:`Prover`."""
        return verify(request.assumptions, trajectory, errors, self._settings)

    def prove(self, request: PlanRequest, trajectory: Trajectory, bound: TrackingBound) -> Proof:
        """See :class:`Prover`."""
        given = request.assumptions, trajectory, bound, request.proven_history
        return prove_throughout(*given, self._settings)


_RESERVE = 1.2
"""A call is expected to take at most this much longer than the longest of the last ones."""


class CallTimes:
    """Remember how long calls have taken lately, from plan to plan.

    Args:
        expected: Expected duration before the first call [s].
    """

    def __init__(self, expected: float):
        self._expected = expected
        self._recent: deque[float] = deque(maxlen=20)

    @property
    def expected(self) -> float:
        """Expected duration of the next call [s]."""
        return _RESERVE * max(self._recent) if self._recent else self._expected

    def halve(self) -> None:
        """Halve the expected duration: it has kept a call from being made, and so from being measured.

        Without this a single slow call, on a machine that was busy for a moment, would keep every later plan from being
        tried.
        """
        self._recent = deque((0.5 * seconds for seconds in self._recent), self._recent.maxlen)
        self._expected *= 0.5

    def note(self, seconds: float) -> None:
        """Record the duration of a call [s]."""
        self._recent.append(seconds)


@dataclass(frozen=True)
class Candidate:
    """A motion whose tracking errors are known.

    Attributes:
        trajectory: The motion.
        bound: Its tracking bound.
        errors: The same, to plan other motions with.
        cost: Its cost; smaller is better.
        verification: Its proof; None before.
    """

    trajectory: BezierTrajectory
    bound: TrackingBound
    errors: AssumedErrors
    cost: float
    verification: Verification | None = None

    @property
    def offset(self) -> Array:
        """End less start position, (n,) [rad]."""
        return self.trajectory.q1 - self.trajectory.q0


class Candidates:
    """Finds candidates, bounds and verifies them, until a deadline.

    Args:
        model: Model of the robot, built once.
        request: The request.
        prover: Bounds and verifies candidates.
        times: Durations of calls of ``bound`` and ``verify`` of the prover.
        is_cancelled: Polled between steps.
        room: By how much larger than bounded the errors may be in verified motions [-].
        share: Share of the settings' k_range that may be used at all [-].
    """

    def __init__(
        self,
        model: PlannerModel,
        request: PlanRequest,
        prover: Prover,
        times: dict[str, CallTimes],
        is_cancelled: Callable[[], bool],
        room: float = 0.0,
        share: float = 1.0,
    ):
        self._begin = time.monotonic()
        self._deadline = self._begin + request.time_limit
        self.model, self.request = model, request
        self._cost = build_cost(model, request)
        self._prover, self._times, self._is_cancelled = prover, times, is_cancelled
        self._room, self._share = room, share
        self._starts = self._iterations = 0
        self._seconds = {"search": 0.0, "bound": 0.0, "verify": 0.0, "first": 0.0}
        self._calls = {"bound": 0, "verify": 0}
        self.rejections: list[Rejection] = []
        self._was_cut = False

    def problem(self, errors: AssumedErrors, margins: Margins, reach: float = 1.0) -> PlanProblem:
        """Build the problem with these errors and margins.

        Raises:
            NoMotion: No end position satisfies the limits of a joint.
        """
        return PlanProblem(self.model, self.request, errors, margins, self._share * reach)

    def trajectory(self, offset: Array) -> BezierTrajectory:
        """Return the motion from the start with an end offset (n,) [rad]."""
        q0, v0, a0 = self.request.state
        return BezierTrajectory(q0, v0, a0, q0 + offset, self.model.settings.duration)

    def search(self, problem: PlanProblem, starts: Array) -> Iterate:
        """Find the best motion from starts (B, n)."""
        begin = time.monotonic()
        search = Search(problem.cost, problem.constraints(), problem.space, self.model.step_problem)
        found = search.run(starts, self.model.settings.iterations, self.must_stop)
        self._starts += len(starts)
        self._iterations += search.iterations
        self._seconds["search"] += time.monotonic() - begin
        return found

    def bound(self, trajectory: BezierTrajectory) -> Candidate | None:
        """Bound the errors of a motion; None without time, or without a bound, with the reason recorded.

        Raises:
            Cancelled: ``is_cancelled`` returned true.
            ParameterOutOfRange: The prover returned no errors.
        """
        if self.must_stop():
            return None
        try:
            bound = self._timed("bound", lambda: self._prover.bound(self.request, trajectory))
        except Cancelled:
            raise
        except SysidError as failure:
            text = f"no bound of the tracking errors: {failure}"
            self.rejections.append(Rejection(PlanFailureCode.NO_TRACKING_BOUND, text, failure))
            return None
        errors = AssumedErrors.of(bound, self.model.robot.n)
        cost = float(self._cost.evaluate((trajectory.q1 - trajectory.q0)[None])[0])
        return Candidate(trajectory, bound, errors, cost)

    def verify(self, candidate: Candidate) -> Candidate | PlanRejected | None:
        """Prove a candidate safe, or return why it is not; None if there is no time, or no bound of its stops."""
        if self._is_late(self._times["verify"].expected):
            return None
        errors = with_room(candidate.bound, self._room)
        try:
            proof = self._timed("verify", lambda: self._prover.verify(self.request, candidate.trajectory, errors))
        except PlanRejected as rejection:
            self.rejections.append(Rejection(PlanFailureCode.LIMIT, str(rejection), rejection))
            return rejection
        except BoundNotAvailable as failure:
            text = f"no bound of the tracking errors in stops: {failure}"
            self.rejections.append(Rejection(PlanFailureCode.NO_TRACKING_BOUND, text, failure))
            return None
        if not self._seconds["first"]:
            self._seconds["first"] = time.monotonic() - self._begin
        return replace(candidate, verification=proof)

    def holds(self, offset: Array, errors: AssumedErrors, margins: Margins, reach: float = 1.0) -> bool:
        """Return whether a motion respects the sampled constraints with these errors, leaving no reserve.

        Args:
            offset: End less start position, (n,) [rad].
            errors: The errors.
            margins: Margins, used without their reserve.
            reach: Share of the settings' k_range that may be used [-].
        """
        try:
            problem = self.problem(errors, replace(margins, reserve=Reserve.none()), reach)
        except NoMotion:
            return False
        return bool(problem.worst_rows(offset[None])[0] <= FEASIBLE)

    def must_stop(self) -> bool:
        """Return whether there is no time to bound and verify another candidate.

        Raises:
            Cancelled: ``is_cancelled`` returned true.
        """
        if self._is_cancelled():
            raise Cancelled("the receding-horizon planner was cancelled")
        return self._is_late(sum(times.expected for times in self._times.values()))

    def last_rejection(self) -> Rejection:
        """Return the reason why there is no plan; expect less of calls that were never made."""
        if self._was_cut and not any(self._calls.values()):
            for times in self._times.values():
                times.halve()
        if self.rejections:
            return self.rejections[-1]
        return Rejection(PlanFailureCode.NO_TIME, "the time was up before a candidate could be verified")

    def statistics(self, cost: float = np.inf) -> PlanStatistics:
        """Return the effort so far, and the cost of the plan that was found."""
        return PlanStatistics(
            starts=self._starts,
            iterations=self._iterations,
            bounds=self._calls["bound"],
            verifications=self._calls["verify"],
            seconds={**self._seconds, "total": time.monotonic() - self._begin},
            rejections=tuple(rejection.text for rejection in self.rejections),
            was_cut=self._was_cut,
            cost=cost,
        )

    def _timed(self, name: str, call: Callable[[], _Result]) -> _Result:
        begin = time.monotonic()
        try:
            return call()
        finally:
            seconds = time.monotonic() - begin
            self._times[name].note(seconds)
            self._seconds[name] += seconds
            self._calls[name] += 1

    def _is_late(self, needed: float) -> bool:
        is_late = time.monotonic() + needed > self._deadline
        self._was_cut |= is_late
        return is_late
