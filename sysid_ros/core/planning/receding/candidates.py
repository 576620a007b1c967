"""What one call of the planner does with candidates: looks for them, bounds them, verifies them, and keeps count."""

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
from sysid_ros.core.planning.receding.margins import AssumedErrors, Margins, Reserve
from sysid_ros.core.planning.receding.outcome import PlanStatistics
from sysid_ros.core.planning.receding.problem import NoMotion, PlannerModel, PlanProblem, PlanRequest, build_cost
from sysid_ros.core.planning.receding.quadratic import StepProblem
from sysid_ros.core.planning.receding.search import FEASIBLE, Candidate, Search

if TYPE_CHECKING:
    from sysid_ros.core.planning.verifier.verify import Verification

Array = NDArray[np.float64]


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
