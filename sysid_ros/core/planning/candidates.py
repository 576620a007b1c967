"""What one call of the planner does with candidates: looks for them, bounds them, verifies them, and keeps count."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.motion_checks import PlanRejected, TrackingErrors
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.planning.margins import AssumedErrors, Margins, Reserve
from sysid_ros.core.planning.problem import NoMotion, PlannerModel, PlanProblem, PlanRequest, build_cost
from sysid_ros.core.planning.search import FEASIBLE, Candidate, Search, StepProblem
from sysid_ros.core.trajectories.base import PlanningCancelled, Trajectory
from sysid_ros.core.trajectories.bezier import BezierTrajectory

if TYPE_CHECKING:
    from sysid_ros.core.certification.verify import Verification

Array = NDArray[np.float64]


@dataclass(frozen=True)
class PlanStatistics:
    """What it took to find a plan, or not to find one.

    Attributes:
        starts: Starts of the solver, of all searches.
        iterations: Iterations of the solver, of all starts.
        bounds: Calls of ``bound``.
        verifications: Calls of ``verify``.
        seconds: Time spent by part: "search", "bound", "verify", "total", and until the "first" certified plan (0
            without) [s].
        rejections: Why candidates were rejected, in order.
        was_cut: Whether the time ran out before the search was over; the plan then depends on how busy the machine is.
    """

    starts: int
    iterations: int
    bounds: int
    verifications: int
    seconds: Mapping[str, float]
    rejections: tuple[str, ...]
    was_cut: bool


@dataclass(frozen=True)
class PlanOutcome:
    """The best certified plan, or why there is none.

    Attributes:
        trajectory: The plan; None if there is none.
        errors: What ``bound`` gave for it.
        verification: What ``verify`` gave for it.
        cost: Its cost.
        information: Information collected before and by the part of the plan that will be executed, (10, 10).
        condition_number: Condition number of the rows with this information (that of Y in SAFE-ID) [-].
        reason: Why there is no plan, in one sentence; empty if there is one.
        statistics: What it took.
    """

    trajectory: BezierTrajectory | None
    errors: TrackingErrors | None
    verification: Verification | None
    cost: float
    information: Array
    condition_number: float
    reason: str
    statistics: PlanStatistics = field(repr=False)

    def __post_init__(self) -> None:
        information = np.array(self.information, dtype=float)
        information.setflags(write=False)
        object.__setattr__(self, "information", information)

    @property
    def is_found(self) -> bool:
        """Whether there is a plan."""
        return self.trajectory is not None


Bound = Callable[[Trajectory], TrackingErrors]
Verify = Callable[[Trajectory, TrackingErrors], "Verification"]

_REMEMBERED = 20
_RESERVE = 1.2
"""A call is expected to take at most this much longer than the longest of the last ones."""


class CallTimes:
    """How long calls have taken lately, kept from plan to plan.

    Args:
        expected: What a call is expected to take before the first [s].
    """

    def __init__(self, expected: float):
        self._expected = expected
        self._recent: deque[float] = deque(maxlen=_REMEMBERED)

    @property
    def expected(self) -> float:
        """What the next call may take [s]."""
        return _RESERVE * max(self._recent) if self._recent else self._expected

    def doubt(self) -> None:
        """Halves what is expected: it has kept a call from being made, and so from being measured.

        Without this a single slow call, on a machine that was busy for a moment, would keep every later plan from
        being tried.
        """
        self._recent = deque((0.5 * seconds for seconds in self._recent), self._recent.maxlen)
        self._expected *= 0.5

    def note(self, seconds: float) -> None:
        """Notes what a call took [s]."""
        self._recent.append(seconds)


class Certifier:
    """Calls ``bound`` and ``verify`` and keeps their times.

    Args:
        bound: Gives the tracking errors of a motion.
        verify: Proves a motion safe with these errors.
        bound_times: Times of earlier calls of ``bound``.
        verify_times: Times of earlier calls of ``verify``.
    """

    def __init__(self, bound: Bound, verify: Verify, bound_times: CallTimes, verify_times: CallTimes):
        self._bound, self._verify = bound, verify
        self._times = {"bound": bound_times, "verify": verify_times}
        self.seconds = {"bound": 0.0, "verify": 0.0}
        self.calls = {"bound": 0, "verify": 0}

    @property
    def expected(self) -> float:
        """What bounding and verifying one candidate may take [s]."""
        return sum(times.expected for times in self._times.values())

    @property
    def expected_verify(self) -> float:
        """What verifying one candidate may take [s]."""
        return self._times["verify"].expected

    def doubt(self) -> None:
        """Notes that what calls are expected to take has kept all of them from being made."""
        for times in self._times.values():
            times.doubt()

    def bound(self, trajectory: Trajectory) -> TrackingErrors:
        """The tracking errors of a motion."""
        return self._timed("bound", lambda: self._bound(trajectory))

    def verify(self, trajectory: Trajectory, errors: TrackingErrors) -> Verification:
        """Proof that a motion is safe."""
        return self._timed("verify", lambda: self._verify(trajectory, errors))

    def _timed(self, name: str, call: Callable[[], object]):  # noqa: ANN202  # as the call
        begin = time.monotonic()
        try:
            return call()
        finally:
            seconds = time.monotonic() - begin
            self._times[name].note(seconds)
            self.seconds[name] += seconds
            self.calls[name] += 1


@dataclass(frozen=True)
class BoundedMotion:
    """A motion with its tracking errors.

    Attributes:
        trajectory: The motion.
        errors: What ``bound`` gave for it.
        measured: The same, to plan other motions with.
        cost: What it is chosen for; smaller is better.
    """

    trajectory: BezierTrajectory
    errors: TrackingErrors
    measured: AssumedErrors
    cost: float

    @property
    def offset(self) -> Array:
        """End less start position, (n,) [rad]."""
        return self.trajectory.q1 - self.trajectory.q0


@dataclass(frozen=True)
class CertifiedMotion:
    """A motion that has been proven safe.

    Attributes:
        motion: The motion.
        verification: What ``verify`` gave for it.
    """

    motion: BoundedMotion
    verification: Verification


class Candidates:
    """Looks for candidates, bounds and verifies them, until a deadline.

    Args:
        model: What is built once per robot.
        step_problem: Quadratic program of the solver.
        request: What is wanted.
        certifier: Bounds and verifies candidates.
        deadline: Time of ``time.monotonic()`` by which to return [s].
        is_cancelled: Looked at between steps.
    """

    def __init__(
        self,
        model: PlannerModel,
        step_problem: StepProblem,
        request: PlanRequest,
        certifier: Certifier,
        deadline: float,
        is_cancelled: Callable[[], bool],
    ):
        self._begin = time.monotonic()
        self.model, self.request = model, request
        self._cost = build_cost(model, request, model.rows)
        self._step_problem, self._certifier = step_problem, certifier
        self._deadline, self._is_cancelled = deadline, is_cancelled
        self._starts = self._iterations = 0
        self._search_seconds = self._first_seconds = 0.0
        self.rejections: list[str] = []
        self._was_cut = False

    def problem(self, errors: AssumedErrors, margins: Margins, reach: float = 1.0) -> PlanProblem:
        """The problem with these errors and margins.

        Raises:
            NoMotion: No end position satisfies the limits of a joint.
        """
        return PlanProblem(self.model, self.request, errors, margins, reach)

    def trajectory(self, offset: Array) -> BezierTrajectory:
        """The motion from the start with an end offset (n,) [rad]."""
        q0, v0, a0 = self.request.start
        return BezierTrajectory(q0, v0, a0, q0 + offset, self.model.settings.duration)

    def search(self, problem: PlanProblem, starts: Array) -> Candidate:
        """The best candidate that is found from starts (B, n)."""
        begin = time.monotonic()
        search = Search(problem.cost, problem.constraints(), problem.space, self._step_problem)
        found = search.run(starts, self.model.settings.iterations, self.must_stop)
        self._starts += len(starts)
        self._iterations += search.iterations
        self._search_seconds += time.monotonic() - begin
        return found[0]

    def bound(self, trajectory: BezierTrajectory) -> BoundedMotion | None:
        """A motion with its errors; None if there is no time, or if there are none, with the reason noted.

        Raises:
            PlanningCancelled: ``is_cancelled`` said so.
            ParameterOutOfRange: ``bound`` returned no errors.
        """
        if self.must_stop():
            return None
        try:
            errors = self._certifier.bound(trajectory)
        except PlanningCancelled:
            raise
        except SysidError as failure:
            self.rejections.append(f"no bound of the tracking errors: {failure}")
            return None
        measured = AssumedErrors.of(errors, self.model.robot.n)
        cost = float(self._cost.evaluate((trajectory.q1 - trajectory.q0)[None])[0])
        return BoundedMotion(trajectory, errors, measured, cost)

    def verify(self, motion: BoundedMotion) -> CertifiedMotion | PlanRejected | None:
        """The motion with its proof, or why there is none; None if there is no time."""
        if self._late(self._certifier.expected_verify):
            return None
        try:
            verification = self._certifier.verify(motion.trajectory, motion.errors)
        except PlanRejected as rejection:
            self.rejections.append(str(rejection))
            return rejection
        if not self._first_seconds:
            self._first_seconds = time.monotonic() - self._begin
        return CertifiedMotion(motion, verification)

    def holds(self, offset: Array, errors: AssumedErrors, margins: Margins, reach: float = 1.0) -> bool:
        """Whether a motion respects the sampled constraints with these errors, leaving no reserve.

        Args:
            offset: End less start position, (n,) [rad].
            errors: The errors.
            margins: What is kept free besides, but for the reserve.
            reach: Share of the settings' k_range that may be used [-].
        """
        try:
            problem = self.problem(errors, replace(margins, reserve=Reserve.none()), reach)
        except NoMotion:
            return False
        return bool(problem.worst_rows(offset[None])[0] <= FEASIBLE)

    def must_stop(self) -> bool:
        """Whether there is no time to bound and verify another candidate.

        Raises:
            PlanningCancelled: ``is_cancelled`` said so.
        """
        if self._is_cancelled():
            raise PlanningCancelled("the receding-horizon planner was cancelled")
        return self._late(self._certifier.expected)

    def _late(self, needed: float) -> bool:
        """Whether the deadline would pass if this time were spent now [s]."""
        is_late = time.monotonic() + needed > self._deadline
        self._was_cut |= is_late
        return is_late

    def give_up(self) -> str:
        """The reason why there is no plan, in one sentence; calls that were never made are expected to take less."""
        if self._was_cut and not any(self._certifier.calls.values()):
            self._certifier.doubt()
        return self.rejections[-1] if self.rejections else "the time was up before a candidate could be verified"

    def statistics(self) -> PlanStatistics:
        """What it has taken so far."""
        total = time.monotonic() - self._begin
        seconds = {
            "search": self._search_seconds,
            **self._certifier.seconds,
            "first": self._first_seconds,
            "total": total,
        }
        calls = self._certifier.calls
        return PlanStatistics(
            self._starts,
            self._iterations,
            calls["bound"],
            calls["verify"],
            seconds,
            tuple(self.rejections),
            self._was_cut,
        )
