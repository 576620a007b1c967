"""The receding-horizon planner: searches with sampled constraints, returns only what has been bounded and verified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.certification.motion_checks import PlanRejected
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.candidates import (
    Bound,
    BoundedMotion,
    CallTimes,
    Candidates,
    CertifiedMotion,
    Certifier,
    PlanOutcome,
    Verify,
)
from sysid_ros.core.planning.costs import InformationCost, condition_number
from sysid_ros.core.planning.improvement import Improvement
from sysid_ros.core.planning.margins import AssumedErrors, Margins
from sysid_ros.core.planning.motions import gentlest_offset
from sysid_ros.core.planning.problem import NoMotion, PlannerModel, PlanProblem, PlanRequest
from sysid_ros.core.planning.search import FEASIBLE, PENALTY, ROWS, Candidate, StepProblem
from sysid_ros.core.planning.settings import RecedingSettings
from sysid_ros.core.planning.starts import first_starts, repair_starts
from sysid_ros.core.trajectories.base import State, joint_vector

Array = NDArray[np.float64]

_GROWTH = 0.4
"""By how much measured errors are enlarged for the search: another motion has others, up to several times as large.
With 0.12 plans excite more, as long as any time may be taken; within the planning time they do not, and one in three
plans in motion is only certified after two more bounds."""
_FIRST_GROWTH = 0.2
"""By how much those of the gentlest motion are enlarged for the first search."""
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
        candidates: Looks for motions, bounds and verifies them.
        memory: What earlier plans have taught; changed in place.
    """

    def __init__(self, candidates: Candidates, memory: Memory):
        self._candidates, self._memory = candidates, memory
        self._model, self._request = candidates.model, candidates.request
        self._settings, self._robot = self._model.settings, self._model.robot
        self._margins = Margins.of(self._settings, self._robot.n)
        self._improvement = Improvement(candidates, self._margins)
        self._is_relaxed, self._share = False, 1.0
        self._gentlest: BoundedMotion | None = None
        self._anchor: BoundedMotion | None = None
        self._errors, self._reach = memory.errors, memory.reach
        self._fallback: CertifiedMotion | None = None
        self._reason = ""

    def run(self) -> PlanOutcome:
        """Candidates until one is certified and good, or nothing is left to try or no time to try it.

        Raises:
            PlanningCancelled: The call was cancelled.
            ParameterOutOfRange: ``bound`` returned no errors.
        """
        found = self._first() or self._fallback
        if found is None:
            return self._no_plan()
        if self._request.goal is None:
            found = self._improvement.improve(found, self._is_good)
        self._memory.errors = found.motion.measured
        self._memory.reach = min(_REGROW * self._reach, 1.0)
        self._memory.last_end = found.motion.trajectory.q1
        return self._outcome(found)

    def _first(self) -> CertifiedMotion | None:
        """The first motion that can be certified."""
        warm: Array | None = None
        if not self._errors.is_measured:
            gentlest = self._bound_gentlest()
            if gentlest is not None:
                self._errors = gentlest.measured.grown(_FIRST_GROWTH)
        for _ in range(self._settings.attempts):
            if self._candidates.must_stop():
                break
            try:
                problem = self._problem(self._errors.grown(0.0 if self._is_relaxed else _GROWTH))
            except NoMotion as failure:
                self._candidates.rejections.append(str(failure))
                if not self._look_gently():
                    break
                continue
            starts = first_starts(problem, self._memory.last_end) if warm is None else repair_starts(problem, warm)
            candidate = self._candidates.search(problem, starts)
            is_tight = candidate.worst > FEASIBLE and self._errors.is_measured
            if is_tight:
                self._note_tight(candidate)
            motion = self._candidates.bound(problem.trajectory(candidate.k))
            if motion is None:
                self._reach *= _SHRINK
            else:
                found = self._judge(motion, candidate, is_tight)
                if found is not None:
                    return found
            warm = problem.space.offsets(candidate.k)
            if is_tight:
                found = self._from_the_anchor(motion)
                if found is not None or self._anchor is None:
                    return found
                self._relax()
                self._share *= _SHRINK
                warm = 0.5 * (self._anchor.offset + warm)
        return None

    def _judge(self, motion: BoundedMotion, candidate: Candidate, is_tight: bool) -> CertifiedMotion | None:
        """Verifies a candidate that has been bounded; notes what a rejection teaches."""
        measured = motion.measured
        has_room = candidate.worst <= FEASIBLE and measured.is_within(self._errors.grown(_GROWTH))
        self._memory.errors = measured
        self._errors = measured.larger(self._errors)
        # The verifier has the last word on what the samples, which have margins and look further ahead, do not allow.
        reach = self._share * self._reach
        if not (has_room or is_tight or self._candidates.holds(motion.offset, measured, self._margins, reach)):
            self._candidates.rejections.append(
                "the tracking errors of the best motion are larger than it leaves room for"
            )
            return None
        found = self._candidates.verify(motion)
        if isinstance(found, PlanRejected):
            if not is_tight:
                self._learn(found)
            return None
        return found

    def _from_the_anchor(self, wanted: BoundedMotion | None) -> CertifiedMotion | None:
        """What can be certified between the anchor and a motion that leaves too little room for its errors."""
        is_first = self._anchor is None
        anchor = self._anchor = self._anchor or self._bound_anchor()
        if anchor is None:
            return None
        self._memory.errors = self._errors = anchor.measured
        improvement = Improvement(self._candidates, Margins.least(self._robot.n))
        found = None if wanted is None else improvement.between(anchor, wanted)
        if found is None and is_first:
            found = improvement.beyond(anchor)
            self._fallback = None if found else self._alone(anchor)
        return found

    def _bound_anchor(self) -> BoundedMotion | None:
        """The gentlest motion, or that to the end of the last plan if it leaves more room, with its errors."""
        start, candidates = self._request.start, self._candidates
        if self._memory.last_end is not None and np.any(start[1]):
            onward = self._memory.last_end - start[0]
            offsets = np.stack([gentlest_offset(start, self._settings.duration), onward])
            try:
                problem = candidates.problem(self._memory.errors, Margins.least(self._robot.n))
            except NoMotion:
                return self._bound_gentlest()
            gentlest, onwards = problem.worst_rows(offsets)
            if onwards < gentlest:
                return candidates.bound(candidates.trajectory(onward))
        return self._bound_gentlest()

    def _alone(self, motion: BoundedMotion) -> CertifiedMotion | None:
        """The anchor itself; what is wrong with it is the plainest reason why there is no plan."""
        found = self._candidates.verify(motion)
        if isinstance(found, PlanRejected):
            self._reason = str(found)
            return None
        return found

    def _problem(self, errors: AssumedErrors) -> PlanProblem:
        return self._candidates.problem(errors, self._margins, self._share * self._reach)

    def _look_gently(self) -> bool:
        """Goes on with the errors of the gentlest motion, and with smaller motions the next time.

        Next to a limit there may be no room for the errors of the motions that were looked at, or that were guessed.

        Returns:
            Whether that leaves something to try.
        """
        if self._gentlest is None:
            gentlest = self._bound_gentlest()
            if gentlest is not None:
                self._errors = self._memory.errors = gentlest.measured
            return gentlest is not None
        if self._errors is self._gentlest.measured and self._is_relaxed:
            return False
        self._relax()
        self._share *= _GENTLER
        self._errors = self._gentlest.measured
        return True

    def _bound_gentlest(self) -> BoundedMotion | None:
        if self._gentlest is None:
            offset = gentlest_offset(self._request.start, self._settings.duration)
            self._gentlest = self._candidates.bound(self._candidates.trajectory(offset))
        return self._gentlest

    def _note_tight(self, candidate: Candidate) -> None:
        self._candidates.rejections.append(
            f"the best motion found breaks a limit at the samples by {candidate.worst:.2g} (share of a torque "
            "limit, or in units of 0.1 m)"
        )

    def _relax(self) -> None:
        """Gives up what the search keeps free for what lies between samples; the verifier decides then."""
        if not self._is_relaxed:
            self._is_relaxed, self._margins = True, Margins.least(self._robot.n)

    def _learn(self, rejection: PlanRejected) -> None:
        """Widens the margin that was missing; where that is not possible, looks for smaller motions."""
        wider = self._margins.grown(rejection, self._robot.joint_names)
        if wider is self._margins:
            self._reach *= _SHRINK
        self._margins = wider

    def _is_good(self, found: CertifiedMotion) -> bool:
        return condition_number(self._information_of(found)) <= self._settings.good_condition

    def _outcome(self, found: CertifiedMotion) -> PlanOutcome:
        information, motion = self._information_of(found), found.motion
        return PlanOutcome(
            trajectory=motion.trajectory,
            errors=motion.errors,
            verification=found.verification,
            cost=motion.cost,
            information=information,
            condition_number=condition_number(information),
            reason="",
            statistics=self._candidates.statistics(),
        )

    def _information_of(self, found: CertifiedMotion) -> Array:
        request, settings = self._request, self._settings
        rows = self._model.rows[request.is_last]
        cost = InformationCost(
            rows, request.start, settings.duration, request.information, request.boxes[1].radius, "condition", 1.0
        )
        return cost.information(found.motion.offset[None])[0]

    def _no_plan(self) -> PlanOutcome:
        reason = self._reason or self._candidates.give_up()
        return PlanOutcome(
            None,
            None,
            None,
            float("inf"),
            self._request.information,
            condition_number(self._request.information),
            reason,
            self._candidates.statistics(),
        )


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
        self._memory = Memory(AssumedErrors.guess(self._robot.limits))

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
        certifier = Certifier(bound, verify, *self._times)
        candidates = Candidates(self._model, self._step_problem, request, certifier, deadline, is_cancelled)
        return PlanningRun(candidates, self._memory).run()


def _checked_information(information: ArrayLike) -> Array:
    matrix = np.array(information, dtype=float)
    if matrix.shape != (10, 10) or not np.all(np.isfinite(matrix)):
        raise ParameterOutOfRange("information", f"an array of shape {matrix.shape}", "a finite (10, 10) Gram matrix")
    matrix = 0.5 * (matrix + matrix.T)
    values = np.linalg.eigvalsh(matrix)
    if values[0] < -1e-9 * max(values[-1], 1e-12):
        raise ParameterOutOfRange("smallest eigenvalue of information", float(values[0]), "0 or more (a Gram matrix)")
    return matrix
