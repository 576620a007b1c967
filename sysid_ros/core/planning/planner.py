"""Plan certified motions that may take over from each other, SAFE-ID Algorithm 2.

The planner searches with sampled constraints, and returns only what has been bounded and proven safe.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.certification.stop_model import PlanRejected, VerifierSettings
from sysid_ros.core.certification.verify import Beginning, make_certificate, verify
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.candidates import CallTimes, Candidate, Candidates, Prover, RobustProver
from sysid_ros.core.planning.constraints import AssumedErrors
from sysid_ros.core.planning.costs import condition_number
from sysid_ros.core.planning.problem import PlannerModel
from sysid_ros.core.planning.request import PlanFailure, PlanRequest, RecedingSettings, Rejection
from sysid_ros.core.planning.strategy import Strategy, WarmStart
from sysid_ros.core.tracking_bound.loop_response import BoundNotAvailable
from sysid_ros.core.tracking_bound.motion import SHORTEST_MOTION
from sysid_ros.core.trajectories.base import PlanningCancelled, Trajectory
from sysid_ros.core.trajectories.families import BezierTrajectory

Array = NDArray[np.float64]

LONGEST = 20.0
"""Longest duration that is tried [s]."""
_STRETCH = 1.25  # a rejected duration is stretched by this
_PEAK_SPEED, _PEAK_ACCELERATION = 1.875, 10.0 / np.sqrt(3.0)  # of a degree-5 motion from rest to rest over 1 in time 1


def _never() -> bool:
    return False


class CertifiedPlanner:
    """Plans and certifies motions of one arm.

    It remembers how long bounds and proofs took, the last tracking errors and the last end position, to start the next
    search with; :meth:`forget` makes it plan as if it were new. Not safe to share between threads.

    Args:
        robot: The arm.
        settings: Settings of the search.
        verifier: Settings of the proof.
        prover: Bounds and verifies the motions of a search; the robust controller's bound and the verifier if None.

    Raises:
        ModelError: The arm branches.
    """

    def __init__(
        self,
        robot: RobotModel,
        settings: RecedingSettings | None = None,
        verifier: VerifierSettings | None = None,
        prover: Prover | None = None,
    ):
        self.robot = robot
        self.settings = settings or RecedingSettings()
        self.verifier = verifier or VerifierSettings()
        self.prover = prover or RobustProver(self.verifier)
        self._model = PlannerModel(robot, self.settings)
        self._times = {name: CallTimes(0.5 * self.settings.call_time) for name in ("bound", "verify")}
        self.forget()

    def forget(self) -> None:
        """Forget what earlier plans have taught about tracking errors and good ends."""
        self._warm_start = WarmStart(AssumedErrors.guess(self.robot.limits))

    def plan(self, request: PlanRequest, now: float = 0.0, is_cancelled: Callable[[], bool] = _never) -> CertifiedPlan:
        """Plan and certify the next part of a motion: it starts exactly in the state asked for and ends at rest.

        Args:
            request: What to plan.
            now: Time of the loop's clock, for the certificate [s].
            is_cancelled: Looked at between steps.

        Raises:
            PlanFailure: Nothing could be certified in time.
            PlanningCancelled: ``is_cancelled`` said so.
            ParameterOutOfRange: The predecessor cannot be left at the takeover time, or the prover gave no errors.
        """
        _ = request.history  # raises where the predecessor cannot be left
        self._model.torque.set_boxes(*request.assumptions.boxes)
        candidates = Candidates(self._model, request, self.prover, self._times, is_cancelled)
        strategy = Strategy(candidates, self._warm_start)
        found = strategy.run()
        if found is None:
            rejection, law = strategy.rejection, request.assumptions.control_law
            raise PlanFailure(rejection, candidates.statistics(), _advice(rejection, law))
        return self._certified(request, found, strategy.information(found), candidates, now)

    def certify(self, trajectory: Trajectory, assumptions: Assumptions, now: float = 0.0) -> CertifiedPlan:
        """Certify a given motion that starts from rest.

        Args:
            trajectory: The motion.
            assumptions: What the proof takes for given.
            now: Time of the loop's clock, for the certificate [s].

        Raises:
            BoundNotAvailable: There is no tracking bound for it.
            PlanRejected: A limit is broken, or could not be proven to hold.
            InvalidTrajectory: The motion does not fit the robot, or is of a kind that cannot be verified.
        """
        try:
            bound = assumptions.bound(trajectory)
        except BoundNotAvailable:
            # A motion that breaks a limit even where it is followed without any error is told so.
            verify(assumptions, trajectory, AssumedErrors.none(self.robot.n), self.verifier)
            raise
        found = verify(assumptions, trajectory, bound, self.verifier)
        beginning = Beginning(rest_before=bound.settling_time, issued_at=now)
        certificate = make_certificate(assumptions, trajectory, bound, found, beginning)
        return CertifiedPlan(
            trajectory, certificate, assumptions.boxes, assumptions.scene, self.robot.name, bound=bound
        )

    def plan_to(
        self,
        request: PlanRequest,
        now: float = 0.0,
        duration: float | None = None,
        is_cancelled: Callable[[], bool] = _never,
    ) -> CertifiedPlan:
        """Plan one straight motion from rest to rest, in joint space, as short as can be proven safe.

        Args:
            request: Its start, its goal and the assumptions; there is no limit of time.
            now: Time of the loop's clock [s].
            duration: Duration [s]; None finds one.
            is_cancelled: Looked at between tries.

        Raises:
            PlanningCancelled: ``is_cancelled`` said so.
            PlanRejected: No duration is good enough; tells what is wrong with the last one.
            BoundNotAvailable: No duration has a tracking bound.
            ParameterOutOfRange: The request has no goal, or takes over from a plan.
        """
        q0, q1, rest = request.start, request.goal, np.zeros(self.robot.n)
        if q0 is None or q1 is None or request.predecessor is not None:
            raise ParameterOutOfRange("request", "one without start or goal, or that takes over", "from rest to a goal")
        total = duration or self._shortest(q1 - q0)
        while not is_cancelled():
            try:
                return self.certify(BezierTrajectory(q0, rest, rest, q1, total), request.assumptions, now)
            except (PlanRejected, BoundNotAvailable) as refusal:
                # A longer duration follows the same path: what is wrong with the path stays wrong.
                is_path = isinstance(refusal, PlanRejected) and refusal.limit.is_of_the_path
                if duration is not None or is_path or total * _STRETCH > LONGEST:
                    raise
            total *= _STRETCH
        raise PlanningCancelled("the planner was cancelled")

    def _shortest(self, distance: Array) -> float:
        """Return the duration at which a degree-5 motion from rest to rest just keeps the limits of its rates [s]."""
        limits, distance = self.robot.limits, np.abs(distance)
        by_velocity = _PEAK_SPEED * distance / limits.v_max
        by_acceleration = np.sqrt(_PEAK_ACCELERATION * distance / limits.a_max)
        return float(max(1.05 * by_velocity.max(), 1.05 * by_acceleration.max(), SHORTEST_MOTION))

    def _certified(
        self, request: PlanRequest, found: Candidate, information: Array, candidates: Candidates, now: float
    ) -> CertifiedPlan:
        before, assumptions = request.predecessor, request.assumptions
        beginning = Beginning(rest_before=found.bound.settling_time, issued_at=now)
        if before is not None:
            beginning = Beginning(before.plan_id, request.takeover_time, issued_at=now)
        assert found.verification is not None  # noqa: S101  # a strategy ends with a proof or without a candidate
        certificate = make_certificate(assumptions, found.trajectory, found.bound, found.verification, beginning)
        gained = information - request.information
        gained.setflags(write=False)
        return CertifiedPlan(
            found.trajectory,
            certificate,
            assumptions.boxes,
            assumptions.scene,
            self.robot.name,
            handover_time=None if request.is_last else self.settings.planning_time,
            information_gained=gained,
            condition_number=condition_number(information),
            bound=found.bound,
            statistics=candidates.statistics(found.cost),
        )


def _advice(rejection: Rejection, control: RobustSettings) -> str:
    """Say what else would help, where the controller's period is longer than it has to be."""
    usual, period = RobustSettings().period, control.period
    if not isinstance(rejection.cause, BoundNotAvailable) or period <= usual:
        return ""
    shorter = f"every {1e3 * usual:g} ms (an LBR's send_period {usual:g})"
    return (
        f". The control law runs every {1e3 * period:g} ms: {shorter}, or with a narrower payload prior, motions "
        "have bounds that have none here"
    )
