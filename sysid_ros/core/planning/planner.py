"""Plan certified motions that may take over from each other, SAFE-ID Algorithm 2.

The planner searches with sampled constraints, and returns only what has been bounded and proven safe.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.plan import CertifiedPlan, PlanStatistics
from sysid_ros.core.certification.stop_model import PlanRejected, VerifierSettings
from sysid_ros.core.certification.verify import Beginning, make_certificate
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.candidates import CallTimes, Candidate, Candidates, Prover, RobustProver
from sysid_ros.core.planning.constraints import AssumedErrors
from sysid_ros.core.planning.costs import condition_number
from sysid_ros.core.planning.problem import PlannerModel
from sysid_ros.core.planning.request import PlanFailure, PlanFailureCode, PlanRequest, RecedingSettings, Rejection
from sysid_ros.core.planning.route import MARGINS, NoRoute, PostureCheck, find_route
from sysid_ros.core.planning.strategy import Strategy, WarmStart
from sysid_ros.core.tracking_bound.loop_response import BoundNotAvailable
from sysid_ros.core.tracking_bound.motion import SHORTEST_MOTION
from sysid_ros.core.trajectories.base import PlanningCancelled, Trajectory
from sysid_ros.core.trajectories.families import BezierTrajectory

Array = NDArray[np.float64]

LONGEST = 20.0
"""Longest duration that is tried [s]."""
_STRETCH, _STRETCHES = 1.25, 4  # a rejected duration is stretched by this, so often
_BISECTIONS = 4
_PEAK_SPEED, _PEAK_ACCELERATION = 1.875, 10.0 / np.sqrt(3.0)  # of a degree-5 motion from rest to rest over 1 in time 1


_LEG_SHARE = 0.75
"""Share of the time in which a straight motion or a way around is looked for."""
_WAYS = 3
"""Ways around that are tried, of different random numbers."""
_LEG_PARTS = (1.0, 0.5, 0.25)
"""Parts of the first leg of a way that are tried."""
_HOLD = 1.0
"""How long an arm is held whose errors at rest are looked at [s]."""
_SAME_POSTURE = 1e-3
"""Postures closer than this are the same [rad]."""


def _never() -> bool:
    return False


class Patience:
    """How long something may take, from now on.

    Args:
        seconds: How long [s].
        is_cancelled: Whether it is not wanted any more.
    """

    def __init__(self, seconds: float, is_cancelled: Callable[[], bool] = _never):
        self._deadline = time.monotonic() + seconds
        self._is_cancelled = is_cancelled

    def is_up(self) -> bool:
        """Return whether the time is up.

        Raises:
            PlanningCancelled: ``is_cancelled`` said so.
        """
        if self._is_cancelled():
            raise PlanningCancelled("the planner was cancelled")
        return time.monotonic() > self._deadline

    def part(self, share: float) -> Patience:
        """Return the patience for a part of what is left to do."""
        return Patience(share * (self._deadline - time.monotonic()), self._is_cancelled)


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

        From rest to a goal that is a straight motion as fast as can be proven, or the first of a way around what is in
        between; only where neither can be proven it is a motion of the settings' duration that gets closer.

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
        if request.goal is not None and request.predecessor is None:
            begin = time.monotonic()
            try:
                leg = self._plan_leg(request, now, Patience(_LEG_SHARE * request.time_limit, is_cancelled))
            except (PlanRejected, BoundNotAvailable) as refusal:
                raise _not_held(refusal) from refusal
            if leg is not None:
                return leg
            request = replace(request, time_limit=max(0.0, request.time_limit - (time.monotonic() - begin)))
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
        return self._certify(PlanRequest(assumptions, start=trajectory.start), trajectory, now)

    def _certify(self, request: PlanRequest, trajectory: Trajectory, now: float) -> CertifiedPlan:
        """Certify a motion from rest."""
        assumptions = request.assumptions
        try:
            bound = self.prover.bound(request, trajectory)
        except BoundNotAvailable:
            # A motion that breaks a limit even where it is followed without any error is told so.
            self.prover.verify(request, trajectory, AssumedErrors.none(self.robot.n))
            raise
        found = self.prover.verify(request, trajectory, bound)
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
        if request.start is None or request.goal is None or request.predecessor is not None:
            raise ParameterOutOfRange("request", "one without start or goal, or that takes over", "from rest to a goal")
        return self._straight(request, request.goal, now, Patience(np.inf, is_cancelled), duration)

    def _straight(
        self, request: PlanRequest, goal: Array, now: float, patience: Patience, duration: float | None = None
    ) -> CertifiedPlan:
        """Certify a straight motion from the start of a request, of a duration or about as short as can be proven.

        Where durations close to the shortest one are refused the longest one tells whether there is any, and the
        shortest of those is found by bisection.
        """
        rest, start = np.zeros(self.robot.n), request.state[0]

        def certified(seconds: float) -> CertifiedPlan:
            return self._certify(request, BezierTrajectory(start, rest, rest, goal, seconds), now)

        refused = duration or min(self._shortest(goal - start), LONGEST)
        for _ in range(_STRETCHES):
            is_late = patience.is_up()
            try:
                return certified(refused)
            except (PlanRejected, BoundNotAvailable) as refusal:
                # A longer duration follows the same path: what is wrong with the path stays wrong.
                is_path = isinstance(refusal, PlanRejected) and refusal.limit.is_of_the_path
                if duration is not None or is_path or is_late or refused == LONGEST:
                    raise
            refused = min(refused * _STRETCH, LONGEST)
        best = certified(LONGEST)
        for _ in range(_BISECTIONS):
            if patience.is_up():
                break
            middle = float(np.sqrt(refused * best.duration))
            try:
                best = certified(middle)
            except (PlanRejected, BoundNotAvailable):
                refused = middle
        return best

    def _plan_leg(self, request: PlanRequest, now: float, patience: Patience) -> CertifiedPlan | None:
        """Plan straight to the goal, or along the first leg of a way there; None where neither can be proven.

        Raises:
            PlanRejected: The arm cannot be held at the goal.
            BoundNotAvailable: Likewise.
        """
        goal = request.goal
        assert goal is not None  # noqa: S101  # asked for by the caller
        way, leg = self._remembered_way(request.state[0], goal), None
        if way is not None:
            leg = self._along(way, request, now, patience)
        else:
            try:
                return self._straight(request, goal, now, patience)
            except (PlanRejected, BoundNotAvailable):
                pass
        if leg is not None or patience.is_up():
            return leg
        errors = self._held_errors(request, goal)
        for number in range(_WAYS):
            way = self._find_way(request, errors, number, patience.part(1.0 / (_WAYS - number)))
            leg = None if way is None else self._along(way, request, now, patience)
            if leg is not None or patience.is_up():
                break
        return leg

    def _along(
        self, way: tuple[Array, ...], request: PlanRequest, now: float, patience: Patience
    ) -> CertifiedPlan | None:
        """Plan along the first leg of a way, or a part of it."""
        start = request.state[0]
        for share in _LEG_PARTS:
            end = start + share * (way[0] - start)
            try:
                plan = self._straight(request, end, now, patience)
            except (PlanRejected, BoundNotAvailable):
                if patience.is_up():
                    return None
                continue
            self._warm_start.way = (end, *(way if share < 1.0 else way[1:]))
            return plan
        return None

    def _remembered_way(self, start: Array, goal: Array) -> tuple[Array, ...] | None:
        """Return what is left of the way that was found for the last leg, if this is where it goes on."""
        way = self._warm_start.way
        if len(way) < 2 or not np.array_equal(way[-1], goal) or np.abs(way[0] - start).max() > _SAME_POSTURE:
            return None
        return way[1:]

    def _held_errors(self, request: PlanRequest, goal: Array) -> AssumedErrors:
        """Compute the errors of an arm that is held at the goal: those of slow motions are little larger."""
        rest = np.zeros(self.robot.n)
        held = self._certify(request, BezierTrajectory(goal, rest, rest, goal, _HOLD), 0.0)
        assert held.bound is not None  # noqa: S101  # of a plan that was certified here
        return AssumedErrors.of(held.bound, self.robot.n)

    def _find_way(
        self, request: PlanRequest, errors: AssumedErrors, number: int, patience: Patience
    ) -> tuple[Array, ...] | None:
        """Find a way with the widest margins that start and goal leave."""
        start, goal = request.state[0], request.goal
        assert goal is not None  # noqa: S101  # asked for by the caller
        for done, margins in enumerate(MARGINS):
            until = patience.part(1.0 / (len(MARGINS) - done))
            try:
                check = PostureCheck(self._model, request.assumptions.scene, errors, margins, np.stack([start, goal]))
                return find_route(check, start, goal, self.settings.seed + number, until.is_up)
            except NoRoute:
                if patience.is_up():
                    break
        return None

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


def _not_held(refusal: PlanRejected | BoundNotAvailable) -> PlanFailure:
    """Return the failure that tells why the arm cannot be held at a goal."""
    is_limit = isinstance(refusal, PlanRejected)
    code = PlanFailureCode.LIMIT if is_limit else PlanFailureCode.NO_TRACKING_BOUND
    text = f"the arm cannot be held at the goal with every payload of the box: {refusal}"
    return PlanFailure(
        Rejection(code, text, refusal), PlanStatistics(0, 0, 1, int(is_limit), {}, (text,), False, np.inf)
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
