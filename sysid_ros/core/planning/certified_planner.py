"""Plans the parts of a motion one after the other, each with a proof: planner, tracking bound and verifier together."""

from __future__ import annotations

import itertools
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.certificate import AssumedControl
from sysid_ros.core.certification.motion_checks import PlanRejected, TrackingErrors
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.certification.settings import VerifierSettings
from sysid_ros.core.certification.verify import Verification, make_certificate, verify
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.candidates import PlanStatistics
from sysid_ros.core.planning.margins import AssumedErrors
from sysid_ros.core.planning.planner import RecedingPlanner
from sysid_ros.core.planning.settings import RecedingSettings
from sysid_ros.core.tracking_bound.bound import TrackingBound, bound_motion
from sysid_ros.core.tracking_bound.loop_response import BoundNotAvailable
from sysid_ros.core.tracking_bound.nominal_payload import choose_payload
from sysid_ros.core.trajectories.base import PlanningCancelled, State, Trajectory, joint_vector
from sysid_ros.core.trajectories.bezier import BezierTrajectory

Array = NDArray[np.float64]

_REMEMBERED = 8
"""Plans that others may still take over from."""
_SEEN = 1000
"""Plans whose bounds are remembered as fingerprints; certificates of those before have expired long since."""
_APART = 1e-12
"""How far the ends of plans are moved to tell two apart that are the same motion with different bounds [rad]."""
_PROOF_TIME = 0.5
"""What is left of the planning time for that, at least [s]."""
LONGEST = 20.0
"""Longest duration that is tried [s]."""
_STRETCH = 1.25  # a rejected duration is stretched by this
_NO_BOUND = "no tracking bound"
_OF_THE_PATH = ("position", "self-collision", "ground", "obstacle")
_PEAK_SPEED, _PEAK_ACCELERATION = 1.875, 10.0 / np.sqrt(3.0)  # of a degree-5 motion from rest to rest over 1 in time 1


class NoPlan(SysidError):
    """No motion could be certified; the arm stays at rest or comes to rest on the plan it follows.

    Args:
        reason: What was wrong with the best candidate.
    """

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(f"no certified plan: {reason}")


@dataclass(frozen=True)
class PayloadKnowledge:
    """What is known of the payload.

    Attributes:
        box: Box that contains the truth, (10,).
        nominal: Payload the controller takes for true, (10,).
    """

    box: Box
    nominal: Array

    @classmethod
    def of(
        cls, robot: RobotModel, box: Box | None = None, guess: Array | None = None, nominal: Array | None = None
    ) -> PayloadKnowledge:
        """A payload in a box.

        Args:
            robot: The arm.
            box: Box that contains the truth, (10,); that of the robot's prior if None.
            guess: What it most probably is, (10,); the prior's if None.
            nominal: What the controller takes it for, (10,); None for what makes the tracking bound small, as drivers
                choose it too.
        """
        prior = robot.payload_prior
        box = prior.box if box is None else box
        guess = prior.nominal if guess is None else guess
        return cls(box, choose_payload(robot, (robot.theta_box, box), guess) if nominal is None else nominal)


@dataclass(frozen=True)
class NextPlan:
    """What to plan.

    Attributes:
        payload: What is known of the payload from the start of the plan on.
        start: Position to start at from rest, (n,) [rad]; not used where it takes over.
        after: Hash of the plan it takes over from; empty for a start from rest.
        at: Time of that plan at which it takes over [s].
        information: Gram matrix of the windows collected until then, (10, 10).
        goal: Posture to get to, (n,) [rad]; None for exciting motions.
        is_last: Whether nothing will take over from it.
        time_limit: Time after which the answer must be there [s].
    """

    payload: PayloadKnowledge
    start: Array | None = None
    after: str = ""
    at: float = 0.0
    information: Array = field(default_factory=lambda: np.zeros((10, 10)))
    goal: Array | None = None
    is_last: bool = False
    time_limit: float = 1.3


@dataclass(frozen=True)
class PlannedPart:
    """A certified part of a motion.

    Attributes:
        plan: The plan with its certificate and all that rests on.
        information: Gram matrix with what the part up to the next take-over will add, (10, 10).
        condition_number: Condition number of that [-].
        statistics: What it took.
    """

    plan: CertifiedPlan
    information: Array
    condition_number: float
    statistics: PlanStatistics = field(repr=False)


@dataclass(frozen=True)
class _Issued:
    trajectory: Trajectory
    bound: TrackingBound
    is_ambiguous: bool = False


class CertifiedPlanner:
    """Plans certified motions that may take over from each other, SAFE-ID Algorithm 2.

    It remembers the last plans it has certified, with their tracking bounds: what takes over from one of them inherits
    its errors. Not safe to share between threads.

    Args:
        robot: The arm.
        settings: Settings of the search.
        verifier: Settings of the proof.
        control: Settings of the controller that is to follow the plans.
    """

    def __init__(
        self,
        robot: RobotModel,
        settings: RecedingSettings | None = None,
        verifier: VerifierSettings | None = None,
        control: RobustSettings | None = None,
    ):
        self.robot = robot
        self.control = control or RobustSettings()
        self.settings = settings or RecedingSettings()
        self.verifier = verifier or VerifierSettings()
        self._planner = RecedingPlanner(robot, self.settings)
        self._issued: OrderedDict[str, _Issued] = OrderedDict()
        self._seen: OrderedDict[str, str] = OrderedDict()  # bounds by plan, as fingerprints; empty where it has several

    def plan(
        self, wanted: NextPlan, scene: Scene, now: float = 0.0, is_cancelled: Callable[[], bool] = lambda: False
    ) -> PlannedPart:
        """Plans and certifies the next part of a motion.

        Args:
            wanted: What to plan.
            scene: What surrounds the arm.
            now: Time of the loop's clock, for the certificate [s].
            is_cancelled: Looked at between steps.

        Raises:
            NoPlan: Nothing could be certified in time.
            PlanningCancelled: ``is_cancelled`` said so.
            ParameterOutOfRange: The plan it takes over from is not known, or a number is out of range.
        """
        deadline = time.monotonic() + wanted.time_limit
        boxes = (self.robot.theta_box, wanted.payload.box)
        start, history = self._start(wanted)
        bounds: dict[str, TrackingBound] = {}

        def bound(trajectory: Trajectory) -> TrackingBound:
            found = bound_motion(self.robot, boxes, wanted.payload.nominal, trajectory, history, self.control)
            bounds[trajectory.hash()] = found
            return found

        def prove(trajectory: Trajectory, errors: TrackingErrors) -> Verification:
            return verify(self.robot, trajectory, boxes, errors, scene, self.verifier)

        outcome = self._planner.plan(
            start,
            wanted.information,
            boxes,
            wanted.payload.nominal,
            scene,
            bound,
            prove,
            deadline,
            is_cancelled,
            goal=wanted.goal,
            is_last=wanted.is_last,
        )
        if outcome.trajectory is None:
            raise NoPlan(outcome.reason + self._hint(outcome.reason))
        trajectory, errors, verification = outcome.trajectory, outcome.errors, outcome.verification
        found = bounds[trajectory.hash()]
        if self._was_issued_otherwise(trajectory, found) and time.monotonic() + _PROOF_TIME < deadline:
            # As the way to a place with another object: what takes over from it must know which of the two it was.
            trajectory = self._told_apart(trajectory)
            try:
                errors = found = bound(trajectory)
                verification = prove(trajectory, errors)
            except (PlanRejected, BoundNotAvailable) as refusal:
                raise NoPlan(str(refusal)) from refusal
        self._remember(trajectory, found)
        control = _assumed_control(found, wanted.payload, wanted.after, wanted.at)
        plan = self._certified(trajectory, boxes, errors, control, scene, verification, now)
        return PlannedPart(plan, outcome.information, outcome.condition_number, outcome.statistics)

    def certify(
        self, trajectory: Trajectory, payload: PayloadKnowledge, scene: Scene, now: float = 0.0
    ) -> CertifiedPlan:
        """Certifies a given motion that starts from rest.

        Raises:
            BoundNotAvailable: There is no tracking bound for it.
            PlanRejected: A limit is broken, or could not be proven to hold.
            InvalidTrajectory: The motion does not fit the robot, or is of a kind that cannot be verified.
        """
        boxes = (self.robot.theta_box, payload.box)
        try:
            bound = bound_motion(self.robot, boxes, payload.nominal, trajectory, settings=self.control)
        except BoundNotAvailable:
            # A motion that breaks a limit even where it is followed without any error is told so.
            verify(self.robot, trajectory, boxes, AssumedErrors.none(self.robot.n), scene, self.verifier)
            raise
        found = verify(self.robot, trajectory, boxes, bound, scene, self.verifier)
        self._remember(trajectory, bound)
        return self._certified(trajectory, boxes, bound, _assumed_control(bound, payload), scene, found, now)

    def plan_to(
        self,
        start: Array,
        goal: Array,
        payload: PayloadKnowledge,
        scene: Scene,
        now: float = 0.0,
        duration: float | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> CertifiedPlan:
        """Plans one straight motion from rest to rest, in joint space, as short as can be proven safe.

        Args:
            start: Start position, (n,) [rad].
            goal: End position, (n,) [rad].
            payload: What is known of the payload.
            scene: What surrounds the arm.
            now: Time of the loop's clock [s].
            duration: Duration [s]; None finds one.
            is_cancelled: Looked at between tries.

        Raises:
            PlanningCancelled: ``is_cancelled`` said so.
            PlanRejected: No duration is good enough; tells what is wrong with the last one.
            BoundNotAvailable: No duration has a tracking bound.
            InvalidTrajectory: A vector is not finite or of the wrong length.
        """
        q0, q1 = (joint_vector(f"{name} [rad]", q, self.robot.n) for name, q in (("start", start), ("goal", goal)))
        rest = np.zeros(self.robot.n)
        total = duration or self._shortest(q1 - q0)
        while not is_cancelled():
            try:
                return self.certify(BezierTrajectory(q0, rest, rest, q1, total), payload, scene, now)
            except (PlanRejected, BoundNotAvailable) as refusal:
                # A longer duration follows the same path: what is wrong with the path stays wrong.
                is_path = isinstance(refusal, PlanRejected) and refusal.check in _OF_THE_PATH
                if duration is not None or is_path or total * _STRETCH > LONGEST:
                    raise
            total *= _STRETCH
        raise PlanningCancelled("the planner was cancelled")

    def _shortest(self, distance: Array) -> float:
        """Duration at which a degree-5 motion from rest to rest just keeps velocities and accelerations [s]."""
        limits, distance = self.robot.limits, np.abs(distance)
        by_velocity = _PEAK_SPEED * distance / limits.v_max
        by_acceleration = np.sqrt(_PEAK_ACCELERATION * distance / limits.a_max)
        return float(max(1.05 * by_velocity.max(), 1.05 * by_acceleration.max(), 0.2))

    def _certified(
        self,
        trajectory: Trajectory,
        boxes: tuple[Box, Box],
        errors: TrackingErrors,
        control: AssumedControl,
        scene: Scene,
        found: Verification,
        now: float,
    ) -> CertifiedPlan:
        certificate = make_certificate(self.robot, trajectory, boxes, errors, scene, self.verifier, found, now, control)
        return CertifiedPlan(trajectory, certificate, boxes, scene, self.robot.name, certificate.robot_hash)

    def _start(self, wanted: NextPlan) -> tuple[State, object]:
        if not wanted.after:
            if wanted.start is None:
                raise ParameterOutOfRange("start", None, "a posture (n,) [rad], or a plan to take over from")
            rest = np.zeros(self.robot.n)
            return (np.asarray(wanted.start, dtype=float), rest, rest), None
        before = self._issued.get(wanted.after)
        if before is None:
            known = ", ".join(name[:12] for name in self._issued) or "none yet"
            raise ParameterOutOfRange("plan to take over from", wanted.after[:12], f"one of the last plans: {known}")
        if before.is_ambiguous:
            # By its hash alone nobody can tell with which of them the arm moves, and so which errors it has.
            allowed = "one that was certified with one payload only"
            raise ParameterOutOfRange("plan to take over from", wanted.after[:12], f"{allowed}; begin from rest")
        return before.trajectory.evaluate(wanted.at), before.bound.until(wanted.at)

    def _hint(self, reason: str) -> str:
        """What else would help against a refusal, where the controller's period is longer than it has to be."""
        usual, period = RobustSettings().period, self.control.period
        if _NO_BOUND not in reason or period <= usual:
            return ""
        shorter = f"every {1e3 * usual:g} ms (an LBR's send_period {usual:g})"
        return (
            f". The control law runs every {1e3 * period:g} ms: {shorter}, or with a narrower payload prior, motions "
            "have bounds that have none here"
        )

    def _remember(self, trajectory: Trajectory, bound: TrackingBound) -> None:
        name, is_other = trajectory.hash(), self._was_issued_otherwise(trajectory, bound)
        for known in (self._issued, self._seen):
            known.pop(name, None)
        self._issued[name] = _Issued(trajectory, bound, is_other)
        self._seen[name] = "" if is_other else bound.digest()
        while len(self._issued) > _REMEMBERED:
            self._issued.popitem(last=False)
        while len(self._seen) > _SEEN:
            self._seen.popitem(last=False)

    def _was_issued_otherwise(self, trajectory: Trajectory, bound: TrackingBound) -> bool:
        """Whether this motion was issued with another bound before."""
        digest = bound.digest()
        return self._seen.get(trajectory.hash(), digest) != digest

    def _told_apart(self, path: BezierTrajectory) -> BezierTrajectory:
        """The same motion, with an end that differs by less than anything can measure, and so another hash."""
        ends = (path.q1 + number * _APART for number in itertools.count(1))
        others = (BezierTrajectory(path.q0, path.v0, path.a0, end, path.duration) for end in ends)
        return next(other for other in others if other.hash() not in self._seen)


def _assumed_control(
    bound: TrackingBound, payload: PayloadKnowledge, after: str = "", after_time: float = 0.0
) -> AssumedControl:
    """What a motion must begin with for its tracking bound to hold."""
    return AssumedControl(bound.law, payload.nominal, 0.0 if after else bound.settling_time, after, after_time)
