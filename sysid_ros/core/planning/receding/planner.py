"""The receding-horizon planner: searches with sampled constraints, returns only what has been bounded and verified."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.model.box import Box
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.base import PlanningCancelled, State, joint_vector
from sysid_ros.core.planning.motion_checks import PlanRejected
from sysid_ros.core.planning.receding.certifier import Bound, CallTimes, Certifier, Verify
from sysid_ros.core.planning.receding.costs import InformationCost, condition_number
from sysid_ros.core.planning.receding.margins import AssumedErrors, Margins
from sysid_ros.core.planning.receding.outcome import PlanOutcome, PlanStatistics
from sysid_ros.core.planning.receding.problem import NoMotion, PlannerModel, PlanProblem, PlanRequest
from sysid_ros.core.planning.receding.quadratic import StepProblem
from sysid_ros.core.planning.receding.search import FEASIBLE, PENALTY, ROWS, Candidate, Search
from sysid_ros.core.planning.receding.settings import RecedingSettings
from sysid_ros.core.planning.scene import Scene

Array = NDArray[np.float64]

_NEAR = 0.3
"""Pairs and obstacles that stay further apart than this in all random motions are left out of the search [m]."""
_APART = 0.5
"""Starts differ by at least this in some coordinate."""
_GROWTH = 0.05
"""By how much measured errors are enlarged for the search: another motion has others."""
_SHRINK = 0.6
"""What is left of the reach when a motion could not be bounded."""
_REPAIR_STARTS = 2


class RecedingPlanner:
    """Plans the next motion of a receding horizon, SAFE-ID (28).

    Not safe to share between threads. It remembers how long the calls took, the last tracking errors and the last end
    position, to start the next search with; :meth:`forget` makes it plan as if it were new.

    Args:
        robot: The arm.
        settings: What is wanted.

    Raises:
        ModelError: The arm branches.
    """

    def __init__(self, robot: RobotModel, settings: RecedingSettings | None = None):
        self._robot = robot
        self._settings = settings or RecedingSettings()
        self._model = PlannerModel(robot, self._settings)
        self._step_problem = StepProblem(robot.n, 2 * ROWS, PENALTY)
        self._times = [CallTimes(0.5 * self._settings.call_time) for _ in range(2)]
        self.forget()

    @property
    def settings(self) -> RecedingSettings:
        """The settings."""
        return self._settings

    def forget(self) -> None:
        """Forgets what earlier plans have taught about tracking errors and good ends."""
        self._errors = AssumedErrors.guess(self._robot.limits)
        self._last_end: Array | None = None

    def plan(
        self,
        start: State,
        information: ArrayLike,
        boxes: tuple[Box, Box],
        payload_nominal: ArrayLike,
        scene: Scene,
        bound: Bound,
        verify: Verify,
        deadline: float,
        is_cancelled: Callable[[], bool] = lambda: False,
        *,
        goal: ArrayLike | None = None,
        is_last: bool = False,
    ) -> PlanOutcome:
        """Plans a motion that starts exactly in a given state and ends at rest.

        Args:
            start: Position [rad], velocity [rad/s] and acceleration [rad/s^2] at the start, each (n,).
            information: Gram matrix of the windows collected so far, (10, 10), as ``StreamingEstimator.information``.
            boxes: Boxes of the parameters of arm (14 n,) and payload (10,).
            payload_nominal: Nominal payload, (10,).
            scene: What surrounds the arm and what it carries.
            bound: Gives the tracking errors of a motion, or raises an error of this package.
            verify: Proves a motion safe with these errors, or raises :class:`PlanRejected`.
            deadline: Time of ``time.monotonic()`` by which to return [s]. No call is begun that, as long as the longest
                of late, would end after it; a call that takes longer than ever before is not interrupted.
            is_cancelled: Looked at between steps.
            goal: Posture to get to, (n,) [rad]; the cost is then the squared distance of the end from it.
            is_last: Whether no plan will follow: all of the plan counts, and nothing must be able to go on from it.

        Returns:
            The plan, or the reason why there is none.

        Raises:
            PlanningCancelled: ``is_cancelled`` said so.
            InvalidTrajectory: A vector has the wrong length or is not finite.
            ParameterOutOfRange: ``information`` is not a finite (10, 10) Gram matrix, or ``bound`` returned no errors.
        """
        n = self._robot.n
        units = ("position [rad]", "velocity [rad/s]", "acceleration [rad/s^2]")
        request = PlanRequest(
            tuple(joint_vector(f"start {unit}", part, n) for unit, part in zip(units, start, strict=True)),
            _checked_information(information),
            boxes,
            np.asarray(payload_nominal, dtype=float),
            scene,
            None if goal is None else joint_vector("goal [rad]", goal, n),
            is_last,
        )
        self._model.torque.set_boxes(*boxes)
        attempt = _Planning(self, request, Certifier(bound, verify, *self._times), deadline, is_cancelled)
        outcome = attempt.run(self._errors)
        self._errors = attempt.errors
        if outcome.trajectory is not None:
            self._last_end = outcome.trajectory.q1
        return outcome


class _Planning:
    """One call of the planner."""

    def __init__(
        self,
        planner: RecedingPlanner,
        request: PlanRequest,
        certifier: Certifier,
        deadline: float,
        is_cancelled: Callable[[], bool],
    ):
        self._begin = time.monotonic()
        self._planner, self._request, self._certifier = planner, request, certifier
        self._settings, self._robot = planner._settings, planner._robot
        self._deadline, self._is_cancelled = deadline, is_cancelled
        self._margins = Margins.of(self._settings, self._robot.n)
        self._reach = 1.0
        self._starts = self._iterations = 0
        self._search_seconds = 0.0
        self._rejections: list[str] = []
        self._was_cut = False

    def run(self, errors: AssumedErrors) -> PlanOutcome:
        """Candidates until one is certified, or nothing is left to try or no time to try it."""
        self.errors = errors
        warm: Array | None = None
        for number in range(self._settings.attempts):
            if self._must_stop():
                break
            try:
                problem = PlanProblem(
                    self._planner._model, self._request, self.errors.grown(_GROWTH), self._margins, self._reach
                )
                candidate = self._search(problem, warm, number)
            except NoMotion as failure:
                self._rejections.append(str(failure))
                if self.errors.is_measured or not self._measure_at_rest():
                    break
                continue
            warm = problem.space.offsets(candidate.k)
            outcome = self._try(problem, candidate)
            if outcome is not None:
                return outcome
        return self._no_plan()

    def _search(self, problem: PlanProblem, warm: Array | None, number: int) -> Candidate:
        """The best candidate of a search; a later one starts from what was rejected."""
        begin = time.monotonic()
        starts = self._first_starts(problem) if warm is None else self._repair_starts(problem, warm)
        search = Search(problem.cost, problem.constraints(), problem.space, self._planner._step_problem)
        iterations = self._settings.iterations
        found = search.run(starts, iterations, self._must_stop)
        self._starts += len(starts)
        self._iterations += search.iterations
        self._search_seconds += time.monotonic() - begin
        return found[0]

    def _first_starts(self, problem: PlanProblem) -> Array:
        """The best of random motions, the gentlest and the one that goes on as before; all different."""
        settings, n = self._settings, self._robot.n
        rng = np.random.default_rng(settings.seed)
        draws = rng.choice([-1.0, 1.0], (settings.draws, n)) * np.sqrt(rng.uniform(0.0, 1.0, (settings.draws, n)))
        special = [problem.gentlest]
        if self._planner._last_end is not None:
            special.append(problem.space.coordinates(self._planner._last_end - self._request.start[0]))
        k = np.concatenate([special, draws])
        x = problem.space.offsets(k)
        problem.leave_out_far(x, _NEAR)
        merit = problem.coarse_cost().evaluate(x)
        merit = merit + PENALTY * np.maximum(problem.coarse_constraints().evaluate(x).worst, 0.0)
        chosen: list[Array] = []
        for index in np.argsort(merit, kind="stable"):
            if all(np.abs(k[index] - other).max() >= _APART for other in chosen):
                chosen.append(k[index])
            if len(chosen) == settings.starts:
                break
        return np.array(chosen)

    def _repair_starts(self, problem: PlanProblem, warm: Array) -> Array:
        """The rejected motion, and halfway from it to the gentlest."""
        k = problem.space.coordinates(warm)
        return np.stack([k, 0.5 * (k + problem.gentlest)])[:_REPAIR_STARTS]

    def _try(self, problem: PlanProblem, candidate: Candidate) -> PlanOutcome | None:
        """Bounds and verifies a candidate; None if it is rejected, with what there is to learn noted."""
        if candidate.worst > FEASIBLE and self.errors.is_measured:
            self._rejections.append(
                "the best motion found breaks a limit at the samples by "
                f"{candidate.worst:.2g} (share of a torque limit, or in units of 0.1 m)"
            )
            return None
        if self._late(self._certifier.expected):
            return None
        trajectory = problem.trajectory(candidate.k)
        try:
            errors = self._certifier.bound(trajectory)
        except PlanningCancelled:
            raise
        except SysidError as failure:
            self._rejections.append(f"no tracking bound: {failure}")
            self._reach *= _SHRINK
            return None
        measured = AssumedErrors.of(errors, self._robot.n)
        is_covered = all(
            np.all(getattr(measured, name) <= (1.0 + _GROWTH) * getattr(self.errors, name) + 1e-12)
            for name in ("position", "velocity", "torque")
        )
        self.errors = measured.larger(self.errors)
        if not (is_covered and candidate.worst <= FEASIBLE) and not self._still_holds(candidate, problem, measured):
            self._rejections.append("the tracking errors of the best motion are larger than it leaves room for")
            return None
        if self._late(self._certifier.expected_verify):
            return None
        try:
            verification = self._certifier.verify(trajectory, errors)
        except PlanRejected as rejection:
            self._rejections.append(str(rejection))
            self._margins = self._margins.grown(rejection, self._robot.joint_names)
            return None
        return self._outcome(problem, candidate, trajectory, errors, verification)

    def _still_holds(self, candidate: Candidate, problem: PlanProblem, errors: AssumedErrors) -> bool:
        """Whether a motion respects the sampled constraints with its own errors."""
        x = problem.space.offsets(candidate.k)
        try:
            own = PlanProblem(self._planner._model, self._request, errors, self._margins, self._reach)
        except NoMotion:
            return False
        inside = np.all(np.abs(x - own.space.center) <= own.space.half + 1e-9)
        return bool(inside and own.constraints().evaluate(x[None]).worst[0] <= FEASIBLE)

    def _measure_at_rest(self) -> bool:
        return False

    def _must_stop(self) -> bool:
        if self._is_cancelled():
            raise PlanningCancelled("the receding-horizon planner was cancelled")
        return self._late(self._certifier.expected)

    def _late(self, needed: float) -> bool:
        """Whether the deadline would pass if this time were spent now [s]."""
        is_late = time.monotonic() + needed > self._deadline
        self._was_cut |= is_late
        return is_late

    def _outcome(self, problem, candidate, trajectory, errors, verification) -> PlanOutcome:
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
        rows = self._planner._model.rows[request.is_last]
        cost = InformationCost(
            rows, request.start, settings.duration, request.information, request.boxes[1].radius, "condition", 1.0
        )
        return cost.information(problem.space.offsets(candidate.k)[None])[0]

    def _no_plan(self) -> PlanOutcome:
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


def _checked_information(information: ArrayLike) -> Array:
    matrix = np.array(information, dtype=float)
    if matrix.shape != (10, 10) or not np.all(np.isfinite(matrix)):
        raise ParameterOutOfRange("information", f"an array of shape {matrix.shape}", "a finite (10, 10) Gram matrix")
    matrix = 0.5 * (matrix + matrix.T)
    values = np.linalg.eigvalsh(matrix)
    if values[0] < -1e-9 * max(values[-1], 1e-12):
        raise ParameterOutOfRange("smallest eigenvalue of information", float(values[0]), "0 or more (a Gram matrix)")
    return matrix
