"""Plan certified motions that may take over from each other, SAFE-ID Algorithm 2.

The search uses sampled constraints; only bounded and proven motions are returned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.held_feedback import HeldFeedback
from sysid_ros.core.certification.plan import CertifiedPlan, PlanStatistics
from sysid_ros.core.certification.stop_model import LimitKind, PlanRejected, VerifierSettings
from sysid_ros.core.certification.verify import Beginning, Proof, make_certificate, with_room
from sysid_ros.core.common.errors import Cancelled, ParameterOutOfRange
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.candidates import CallTimes, Candidate, Candidates, Prover, RobustProver
from sysid_ros.core.planning.constraints import AssumedErrors
from sysid_ros.core.planning.costs import condition_number
from sysid_ros.core.planning.problem import NoMotion, PlannerModel
from sysid_ros.core.planning.request import PlanFailure, PlanFailureCode, PlanRequest, RecedingSettings, Rejection
from sysid_ros.core.planning.route import MARGINS, PostureCheck, find_route, shortest_time
from sysid_ros.core.planning.strategy import Strategy, WarmStart
from sysid_ros.core.tracking_bound.motion import SHORTEST_MOTION
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.core.trajectories.families import BezierTrajectory

Array = NDArray[np.float64]

LONGEST = 20.0
"""Longest duration that is tried [s]."""
_STRETCH, _STRETCHES = 1.25, 4  # a rejected duration is stretched by this, so often
_BARELY = 1.02
"""Where only a speed or acceleration was too large, the duration is stretched by a little more than it was."""
_RATES = (LimitKind.VELOCITY, LimitKind.ACCELERATION)
_PRECISION, _WORTH = 0.06, 0.4  # [-], [s]; a duration that can be shorter by less is not tried, since trying takes time


_LEG_SHARE = 0.75
"""Share of the time in which a straight motion or a way around is looked for."""
_WAYS = 3
"""Ways around that are tried, of different random numbers."""
_LEG_PARTS = (1.0, 0.5, 0.25)
"""Parts of the first leg of a way that are tried."""
_LONG = 5.0
"""Straight motions that take longer are tried in two parts [s]."""
_PAUSE = 1.5
"""Duration of a rest between two motions, and of planning the second one [s]."""
_PROFILE = 41
"""Postures of a straight way at which the torque is evaluated."""
_TIGHT = 0.12
"""Share of the torque limits left for feedback at an end below which it slows down the whole motion [-]."""
_RADII = (0.1, 0.2, 0.4, 0.8, 1.6)
"""How far random postures may be from where the arm cannot be held [rad]."""
_POSTURES = 1200
"""Random postures that are tried."""
_ROOM = 0.02
"""Share of the torque limits that a posture is to leave besides the feedback at home [-]: elsewhere it may be more."""
_FARTHER = 1.15
"""How much farther than a posture that could not be certified the next one is that is tried [-]."""
_HARDLY_EXCITING = 1e4
"""Condition number above which a motion from rest is so uninformative that another posture comes first [-]."""
_SAME_POSTURE = 1e-3
"""Postures closer than this are the same [rad]."""


def _never() -> bool:
    return False


class Deadline:
    """A deadline, from now on, that also polls for cancellation.

    Args:
        seconds: The time [s].
        is_cancelled: Whether the work is cancelled.
    """

    def __init__(self, seconds: float, is_cancelled: Callable[[], bool] = _never):
        self._deadline = time.monotonic() + seconds
        self._is_cancelled = is_cancelled

    def is_up(self) -> bool:
        """Return whether the time is up.

        Raises:
            Cancelled: ``is_cancelled`` returned true.
        """
        if self._is_cancelled():
            raise Cancelled("the planner was cancelled")
        return time.monotonic() > self._deadline

    def part(self, share: float) -> Deadline:
        """Return the deadline for a part of the remaining time."""
        return Deadline(share * (self._deadline - time.monotonic()), self._is_cancelled)


@dataclass(frozen=True)
class Try:
    """Parameters of the search for a motion that is to be proven throughout.

    Attributes:
        room: By how much larger than bounded with estimated terms the errors may be [-].
        longer: How much longer straight motions take than they must [-].
    """

    room: float = 0.0
    longer: float = 1.0


_TRIES = Try(0.02), Try(0.05, 1.1), Try(0.12, 1.3)
_SMALLER, _LEAST, _REGROW = 0.5, 1.0 / 32.0, 1.5
"""Factor on the share of the settings' k_range that exciting motions may use where one could not be bounded
throughout, the least that is left of it, and by how much it grows with each one that could."""


class CertifiedPlanner:
    """Plans and certifies motions of one arm.

    It keeps durations of bounds and proofs, the last tracking errors and the last end position to start the next search
    with; :meth:`forget` discards them. Not safe to share between threads.

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
        self._proof_time = CallTimes(self.settings.proof_time)
        self._try = Try()
        self.forget()

    def forget(self) -> None:
        """Discard tracking errors and good ends of earlier plans."""
        self._warm_start = WarmStart(AssumedErrors.guess(self.robot.limits))
        self._share = 1.0

    def plan(self, request: PlanRequest, now: float = 0.0, is_cancelled: Callable[[], bool] = _never) -> CertifiedPlan:
        """Plan and certify the next part of a motion: it starts exactly in the state asked for and ends at rest.

        From rest to a goal that is a straight motion as fast as can be proven, or the first leg around obstacles; only
        where neither can be proven it is a motion of the settings' duration that gets closer. Where no exciting motion
        can be proven from rest, or only one that hardly moves, it is one towards the home posture, to its end at rest.

        If the settings ask for it, the motion is then proven throughout; if that fails, another one that leaves more
        room is searched for while there is time.

        Args:
            request: What to plan.
            now: Time of the loop's clock, for the certificate [s].
            is_cancelled: Polled between steps.

        Raises:
            PlanFailure: Nothing could be certified in time.
            Cancelled: ``is_cancelled`` returned true.
            ParameterOutOfRange: The predecessor cannot be left at the takeover time, or the prover gave no errors.
        """
        _ = request.history  # raises where the predecessor cannot be left
        if not self.settings.proves_throughout:
            return self._plan(request, now, is_cancelled)
        _ = request.proven_history

        def search(seconds: float) -> CertifiedPlan:
            return self._plan(replace(request, time_limit=seconds), now, is_cancelled)

        try:
            plan = self._prove(request, now, search, _TRIES, is_cancelled, request.time_limit)
            self._share = min(_REGROW * self._share, 1.0)
            return plan
        except (PlanRejected, BoundNotAvailable) as refusal:
            raise _failed(_refused(refusal, "the motion cannot be proven throughout")) from refusal

    def _prove(
        self,
        request: PlanRequest,
        now: float,
        search: Callable[[float], CertifiedPlan],
        tries: Sequence[Try],
        is_cancelled: Callable[[], bool] = _never,
        seconds: float = np.inf,
    ) -> CertifiedPlan:
        """Search for a motion, and if the settings ask for it, for one that can be proven throughout."""
        if not self.settings.proves_throughout:
            return search(seconds)
        begin, proving = time.monotonic(), 0.0
        deadline, known = Deadline(seconds, is_cancelled), replace(self._warm_start)
        refusal: PlanRejected | BoundNotAvailable | None = None
        try:
            for one in tries:
                self._try, expected = one, self._proof_time.expected
                left = seconds - (time.monotonic() - begin) - expected
                try:
                    plan = search(left) if left > 0.0 else None
                except PlanFailure as failure:
                    if refusal is not None or failure.code is not PlanFailureCode.NO_TIME:
                        raise refusal or failure from None
                    plan = None
                if plan is None or deadline.is_up() or time.monotonic() - begin + expected > seconds:
                    raise refusal or self._no_time(request, seconds)
                assert plan.bound is not None  # noqa: S101  # of a plan that was certified here
                proof, took = None, time.monotonic()
                try:
                    proof = self.prover.prove(request, plan.trajectory, plan.bound)
                except (PlanRejected, BoundNotAvailable) as why:
                    refusal = why
                    self._warm_start.last_end, self._warm_start.way = known.last_end, known.way
                    if isinstance(why, BoundNotAvailable) and plan.condition_number is not None:  # an exciting one
                        self._share = max(_SMALLER * self._share, _LEAST)
                took = time.monotonic() - took
                proving += took
                self._proof_time.note(took)
                _ = deadline.is_up()  # raises where it was cancelled
                if proof is not None:
                    return _with_proof(request, now, plan, proof, proving, time.monotonic() - begin)
        finally:
            self._try = Try()
        assert refusal is not None  # noqa: S101  # nothing else ends the loop
        raise refusal

    def _no_time(self, request: PlanRequest, seconds: float) -> PlanFailure:
        """Return the failure of a proof throughout that takes longer than the remaining time [s]; expect less later."""
        due = f"was due in {seconds:.1f} s" if seconds > 0.0 else f"was due {-seconds:.1f} s ago"
        then = "plan with a longer time_limit"
        if request.predecessor is not None:
            then = "the arm comes to rest and goes on from there; with a longer planning_time it would not stop"
        text = (
            f"this machine is too slow for this plan: proving a motion throughout takes about "
            f"{self._proof_time.expected:.1f} s, besides the search, and the plan {due}; {then}"
        )
        self._proof_time.halve()
        nothing = PlanStatistics(0, 0, 0, 0, {}, (text,), True, np.inf)
        return PlanFailure(Rejection(PlanFailureCode.NO_TIME, text), nothing)

    def _plan(self, request: PlanRequest, now: float, is_cancelled: Callable[[], bool]) -> CertifiedPlan:
        deadline = Deadline(request.time_limit, is_cancelled)
        self._model.torque.set_boxes(*request.assumptions.boxes)
        if request.goal is not None and request.predecessor is None:
            begin = time.monotonic()
            try:
                leg = self._plan_leg(request, now, Deadline(_LEG_SHARE * request.time_limit, is_cancelled))
            except (PlanRejected, BoundNotAvailable) as refusal:
                raise _not_held(refusal) from refusal
            if leg is not None:
                return leg
            request = replace(request, time_limit=max(0.0, request.time_limit - (time.monotonic() - begin)))
        given = self._model, request, self.prover, self._times, is_cancelled
        candidates = Candidates(*given, self._try.room, self._share)
        strategy = Strategy(candidates, self._warm_start)
        found = strategy.run()
        if found is None:
            is_late = candidates.must_stop()  # with the present expected durations; a rejection may change them
            advice = _advice(strategy.rejection, request.assumptions)
            failure = PlanFailure(strategy.rejection, candidates.statistics(), advice)
            if is_late or request.predecessor is not None:
                raise failure
            return self._elsewhere(request, failure, now, deadline)
        information = strategy.information(found)
        is_first = request.predecessor is None and request.goal is None
        if is_first and condition_number(information) > _HARDLY_EXCITING and not deadline.is_up():
            with suppress(PlanRejected, BoundNotAvailable):
                leg = self._leg_home(request, now, deadline)
                if leg is not None:
                    return leg
        return self._certified(request, found, information, candidates, now)

    def certify(self, trajectory: Trajectory, assumptions: Assumptions, now: float = 0.0) -> CertifiedPlan:
        """Certify a given motion that starts from rest.

        Args:
            trajectory: The motion.
            assumptions: Assumptions of the proof.
            now: Time of the loop's clock, for the certificate [s].

        Raises:
            BoundNotAvailable: There is no tracking bound for it.
            PlanRejected: A limit is broken, or could not be proven to hold.
            ParameterOutOfRange: The motion does not fit the robot, or is of a kind that cannot be verified.
        """
        request = PlanRequest(assumptions, start=trajectory.start)
        return self._prove(request, now, lambda _: self._certify(request, trajectory, now), [Try()])

    def _certify(self, request: PlanRequest, trajectory: Trajectory, now: float, room: float = 0.0) -> CertifiedPlan:
        """Certify a motion from rest that leaves room for errors larger by a share."""
        assumptions = request.assumptions
        try:
            bound = self.prover.bound(request, trajectory)
        except BoundNotAvailable:
            # A motion that breaks a limit even without tracking error gets that message.
            self.prover.verify(request, trajectory, AssumedErrors.none(self.robot.n))
            raise
        found = self.prover.verify(request, trajectory, with_room(bound, room))
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
            is_cancelled: Polled between tries.

        Raises:
            Cancelled: ``is_cancelled`` returned true.
            PlanRejected: No duration is good enough; states the fault of the last one.
            BoundNotAvailable: No duration has a tracking bound.
            ParameterOutOfRange: The request has no goal, or takes over from a plan.
        """
        if request.start is None or request.goal is None or request.predecessor is not None:
            raise ParameterOutOfRange("request", "one without start or goal, or that takes over", "from rest to a goal")
        goal, deadline = request.goal, Deadline(np.inf, is_cancelled)

        def search(_: float) -> CertifiedPlan:
            return self._straight(request, goal, now, deadline, duration)

        return self._prove(request, now, search, [Try()] if duration else _TRIES, is_cancelled)

    def _straight(
        self, request: PlanRequest, goal: Array, now: float, deadline: Deadline, duration: float | None = None
    ) -> CertifiedPlan:
        """Certify a straight motion from the start of a request, of a duration or about as short as can be proven.

        Where durations close to the shortest one are refused, the longest one shows whether there is any. Bisection
        finds the shortest one as far as it saves more than it takes.
        """
        rest, start = np.zeros(self.robot.n), request.state[0]

        def certified(seconds: float) -> CertifiedPlan:
            motion = BezierTrajectory(start, rest, rest, goal, seconds)
            return self._certify(request, motion, now, self._try.room)

        best, refused = None, 0.0
        wanted = duration or min(self._shortest(goal - start), LONGEST)
        for _ in range(_STRETCHES):
            is_late = deadline.is_up()
            try:
                best = certified(wanted)
                break
            except (PlanRejected, BoundNotAvailable) as refusal:
                # A longer duration follows the same path: faults of the path remain.
                is_path = isinstance(refusal, PlanRejected) and refusal.limit.is_of_the_path
                if duration is not None or is_path or is_late or wanted == LONGEST:
                    raise
                refused, wanted = wanted, min(wanted * _stretch(refusal), LONGEST)
        best = best or certified(LONGEST)
        for _ in range(6 if refused else 0):  # bisections
            if best.duration - refused < max(_WORTH, _PRECISION * best.duration) or deadline.is_up():
                break
            middle = float(np.sqrt(refused * best.duration))
            try:
                best = certified(middle)
            except (PlanRejected, BoundNotAvailable):
                refused = middle
        return best if self._try.longer == 1.0 else certified(min(self._try.longer * best.duration, LONGEST))

    def _plan_leg(self, request: PlanRequest, now: float, deadline: Deadline) -> CertifiedPlan | None:
        """Plan straight to the goal, or along the first leg of a way there; None where neither can be proven."""
        goal = request.goal
        assert goal is not None  # noqa: S101  # asked for by the caller
        way, leg = self._remembered_way(request.state[0], goal), None
        if way is not None:
            leg = self._follow_route(way, request, now, deadline)
        else:
            try:
                leg = self._straight(request, goal, now, deadline)
            except (PlanRejected, BoundNotAvailable):
                leg = None
            if (leg is None or leg.duration > _LONG) and not deadline.is_up():
                leg = self._in_two(request, leg, now, deadline)
        if leg is not None or deadline.is_up():
            return leg
        errors = self._held_errors(request, goal)
        for number in range(_WAYS):
            way = self._find_way(request, errors, number, deadline.part(1.0 / (_WAYS - number)))
            leg = None if way is None else self._follow_route(way, request, now, deadline)
            if leg is not None or deadline.is_up():
                break
        return leg

    def _in_two(
        self, request: PlanRequest, whole: CertifiedPlan | None, now: float, deadline: Deadline
    ) -> CertifiedPlan | None:
        """Divide a straight motion with an end that leaves little torque into a fast and a slow one to save time.

        A motion needs room for its largest feedback all along, so such an end makes all of it slow.
        """
        goal, middle = request.goal, self._where_room_ends(request)
        if goal is None or middle is None:
            return whole
        try:
            first = self._straight(request, middle, now, deadline)
            second = self._straight(replace(request, start=middle), goal, now, deadline)
        except (PlanRejected, BoundNotAvailable):
            return whole
        if whole is not None and whole.duration <= first.duration + second.duration + _PAUSE:
            return whole
        self._warm_start.way = (middle, goal)
        return first

    def _where_room_ends(self, request: PlanRequest) -> Array | None:
        """Find where the straight way enters or leaves the part next to an end that leaves little torque for feedback.

        Returns:
            The posture, (n,) [rad]; None without such an end, or if little is left everywhere.
        """
        start, goal = request.state[0], request.goal
        assert goal is not None  # noqa: S101  # asked for by the caller
        q = start + np.linspace(0.0, 1.0, _PROFILE)[:, None] * (goal - start)
        room = self._torque_room(q, request, self._held_errors(request, goal))
        if room.min() <= 0.0 or min(room[0], room[-1]) >= _TIGHT:
            return None
        is_wide = np.flatnonzero(room >= max(_TIGHT, 0.5 * room.max()))
        if not is_wide.size:
            return None
        index = int(is_wide[-1] if room[-1] < room[0] else is_wide[0])
        return None if index in (0, _PROFILE - 1) else q[index]

    def _follow_route(
        self, way: tuple[Array, ...], request: PlanRequest, now: float, deadline: Deadline
    ) -> CertifiedPlan | None:
        start = request.state[0]
        for share in _LEG_PARTS:
            end = way[0] if share == 1.0 else start + share * (way[0] - start)
            try:
                plan = self._straight(request, end, now, deadline)
            except (PlanRejected, BoundNotAvailable):
                if deadline.is_up():
                    return None
                continue
            after = way if share < 1.0 else way[1:]
            if plan.duration > _LONG and not deadline.is_up():
                plan = self._in_two(replace(request, goal=end), plan, now, deadline) or plan
                if np.abs(plan.trajectory.end - end).max() > _SAME_POSTURE:
                    after = (end, *after)
            self._warm_start.way = (plan.trajectory.end, *after)
            return plan
        return None

    def _remembered_way(self, start: Array, goal: Array) -> tuple[Array, ...] | None:
        """Return the rest of the way found for the last leg, if the request continues it."""
        way = self._warm_start.way
        if len(way) < 2 or not np.array_equal(way[-1], goal) or np.abs(way[0] - start).max() > _SAME_POSTURE:
            return None
        return way[1:]

    def _leg_home(self, request: PlanRequest, now: float, deadline: Deadline) -> CertifiedPlan | None:
        """Plan towards the home posture, where more can be proven; None where that cannot be, or the arm is there."""
        home = self.robot.home
        if np.abs(home - request.state[0]).max() <= _SAME_POSTURE:
            return None
        return self._plan_leg(replace(request, goal=home), now, deadline)

    def _elsewhere(self, request: PlanRequest, failure: PlanFailure, now: float, deadline: Deadline) -> CertifiedPlan:
        start = request.state[0]
        try:
            try:
                self._hold(request, start)
            except PlanRejected as refusal:
                if refusal.limit is not LimitKind.CONTINUOUS_TORQUE:  # else it may be held until it leaves
                    raise
            leg = self._leg_home(request, now, deadline) if request.goal is None else None
            if leg is not None:
                return leg
        except (PlanRejected, BoundNotAvailable) as refusal:
            advice, nearest = failure.advice, self._nearest_held(request, deadline)
            if nearest is not None:
                numbers = np.array2string(nearest, precision=2, separator=", ", suppress_small=True)
                far = float(np.abs(nearest - start).max())
                advice += f". The nearest posture found where it can: {numbers} rad, {far:.2f} rad away"
            why = _refused(refusal, "the arm cannot be held where it is")
            raise PlanFailure(why, failure.statistics, advice) from refusal
        raise failure

    def _nearest_held(self, request: PlanRequest, deadline: Deadline) -> Array | None:
        """Find the nearest posture in which the arm can certainly be held: a random one, or one on the way home."""
        start, home = request.state[0], self.robot.home
        try:
            errors = self._held_errors(request, home)
        except (PlanRejected, BoundNotAvailable):
            return None
        ends = np.stack([home, home])
        check = PostureCheck(self._model, request.assumptions, errors, MARGINS[-1], ends)
        rng = np.random.default_rng(self.settings.seed)
        draws = rng.choice(_RADII, (_POSTURES, 1)) * rng.uniform(-1.0, 1.0, (_POSTURES, self.robot.n))
        draws = draws * (rng.random(draws.shape) < 0.5)  # mostly it is about few joints
        q = np.concatenate([start + draws, start + np.linspace(0.0, 1.0, _PROFILE)[:, None] * (home - start)])
        q = q[check.are_free(q)]
        room, far = self._torque_room(q, request, errors), np.abs(q - start).max(axis=1)
        last = 0.0
        for index in np.argsort(far, kind="stable"):
            if far[index] >= np.abs(home - start).max() or deadline.is_up():
                break
            if room[index] < _ROOM or far[index] < _FARTHER * last:
                continue
            last = far[index]
            try:
                self._hold(request, q[index])
            except (PlanRejected, BoundNotAvailable):
                continue
            return np.asarray(q[index])
        return home

    def _held_errors(self, request: PlanRequest, goal: Array) -> AssumedErrors:
        """Compute the errors of an arm held at the goal: errors of slow motions are little larger."""
        held = self._hold(request, goal)
        assert held.bound is not None  # noqa: S101  # of a plan that was certified here
        return AssumedErrors.of(held.bound, self.robot.n)

    def _hold(self, request: PlanRequest, posture: Array) -> CertifiedPlan:
        """Certify that the arm can be held in a posture, (n,) [rad]; for questions about it, not to be executed."""
        rest = np.zeros(self.robot.n)
        return self._certify(request, BezierTrajectory(posture, rest, rest, posture, 1.0), 0.0)

    def _torque_room(self, q: Array, request: PlanRequest, errors: AssumedErrors) -> Array:
        """Return the share of the torque limits that is left at rest in postures (N, n) beside feedback, (N,) [-]."""
        limits = self.robot.limits
        left = HeldFeedback.bound(request.assumptions, errors).largest_rest(limits)
        return np.asarray(((left - self._model.torque.demand_at_rest(q)) / limits.tau_held).min(axis=1))

    def _find_way(
        self, request: PlanRequest, errors: AssumedErrors, number: int, deadline: Deadline
    ) -> tuple[Array, ...] | None:
        """Find a short way, or any, with the widest margins that start and goal leave."""
        start, goal = request.state[0], request.goal
        assert goal is not None  # noqa: S101  # asked for by the caller
        tries = [(is_short, margins) for is_short in (True, False) for margins in MARGINS]
        for done, (is_short, margins) in enumerate(tries):
            until = deadline.part(1.0 / (len(tries) - done))
            try:
                check = PostureCheck(self._model, request.assumptions, errors, margins, np.stack([start, goal]))
                return find_route(check, start, goal, self.settings.seed + number, until.is_up, is_short)
            except NoMotion:
                if deadline.is_up():
                    break
        return None

    def _shortest(self, distance: Array) -> float:
        """Return the duration at which a degree-5 motion from rest to rest just keeps the limits of its rates [s]."""
        return max(1.05 * float(shortest_time(self.robot.limits, distance)), SHORTEST_MOTION)

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


def _with_proof(
    request: PlanRequest, now: float, plan: CertifiedPlan, proof: Proof, proving: float, total: float
) -> CertifiedPlan:
    """Return a plan with the certificate of its proof throughout, and the duration of that and of all of it [s]."""
    rest = plan.certificate.rest_before
    if plan.predecessor is None:
        rest = max(rest, proof.bound.settling_time)
    beginning, statistics = Beginning(plan.predecessor, plan.takeover_time, rest, now), plan.statistics
    given = request.assumptions, plan.trajectory, proof.errors, proof.verification, beginning
    if statistics is not None:
        statistics = replace(statistics, seconds={**statistics.seconds, "proof": proving, "total": total})
    certificate, bound = make_certificate(*given), proof.bound.without_proof()
    return replace(plan, certificate=certificate, proven=bound, statistics=statistics)


def _stretch(refusal: PlanRejected | BoundNotAvailable) -> float:
    """Return the factor on the duration of the next try of a refused motion [-]."""
    if isinstance(refusal, PlanRejected) and refusal.limit in _RATES:
        return min(_BARELY * refusal.value / refusal.allowed, _STRETCH)
    return _STRETCH


def _not_held(refusal: PlanRejected | BoundNotAvailable) -> PlanFailure:
    """Return the failure with the reason why the arm cannot be held at a goal."""
    return _failed(_refused(refusal, "the arm cannot be held at the goal"))


def _failed(why: Rejection) -> PlanFailure:
    is_limit = why.code is PlanFailureCode.LIMIT
    return PlanFailure(why, PlanStatistics(0, 0, 1, int(is_limit), {}, (why.text,), False, np.inf))


def _refused(refusal: PlanRejected | BoundNotAvailable, what: str) -> Rejection:
    """Describe that something cannot be certified with every payload of the box."""
    is_limit = isinstance(refusal, PlanRejected)
    code = PlanFailureCode.LIMIT if is_limit else PlanFailureCode.NO_TRACKING_BOUND
    return Rejection(code, f"{what} with every payload of the box: {refusal}", refusal)


def _advice(rejection: Rejection, known: Assumptions) -> str:
    """Describe remedies where there is no tracking bound: a better known payload, or a shorter period."""
    if not isinstance(rejection.cause, BoundNotAvailable):
        return ""
    usual, period, prior = RobustSettings().period, known.control_law.period, known.robot.payload_prior
    advice = ""
    if period > usual:
        shorter = f"every {1e3 * usual:g} ms (an LBR's send_period {usual:g})"
        advice = (
            f". The control law runs every {1e3 * period:g} ms: {shorter}, or with a narrower payload prior, motions "
            "have bounds that have none here"
        )
    narrower = [
        f"':{one.name}'"
        for one in known.robot.payload_priors.values()
        if one.target == prior.target and one.name != prior.name and one.box.is_subset_of(prior.box)
    ]
    if narrower:
        advice += f". If the payload is in a narrower prior, say so after the name of the model: {', '.join(narrower)}"
    return advice
