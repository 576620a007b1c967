"""Excitation of a whole arm by motions that are proven before they run, each adding what those before it lack."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.certification.stop_model import (
    STOP_ERRORS,
    PlanRejected,
    TrackingErrors,
    VerifierSettings,
    stop_velocity_errors,
)
from sysid_ros.core.certification.verify import Beginning, certify
from sysid_ros.core.collision.clearance import build_scene_model
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.excitation.criteria import BaseParameters
from sysid_ros.core.excitation.model import ExcitationModel, NoExcitationFound, StartOutsideLimits
from sysid_ros.core.excitation.planner import (
    ExcitationPlan,
    base_regressor,
    condition_number,
    expected_base_radii,
    plan_excitation,
)
from sysid_ros.core.excitation.problem import FourierSpace
from sysid_ros.core.excitation.settings import ARM_TARGET, ExcitationSettings
from sysid_ros.core.tracking_bound.allocation import TrackingAllocation
from sysid_ros.core.tracking_bound.bound import TrackingBound
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable
from sysid_ros.core.trajectories.base import PlanningCancelled, Trajectory
from sysid_ros.core.trajectories.families import FourierTrajectory

Array = NDArray[np.float64]

_LIMIT_SHARES = (1.0, 0.7, 0.5, 0.35, 0.2)
"""Shares of the limits of speed and acceleration that are tried until a motion is proven."""
_HOPEFUL_SHARES = (0.35, 0.2)
"""Shares that are tried once more where none has led to a proof: with the smallest errors of a random motion."""
_STRETCHES = (1.0, 1.08, 1.17, 1.3, 1.5, 1.8)
"""Factors by which a motion's duration is stretched until it is proven."""
_CLOSER = 2
"""Bisections between the stretch that is proven and the one before it, which was not."""
_SCALES = (1.0, 0.98, 0.94, 0.88, 0.8)
"""Shares of its amplitude, where it is the path that is refused."""
_ALLOWANCE = 1.25
"""How much larger tracking errors are allocated than a random motion at the same limits has."""
_PROBES = 2
_OTHER_START = 7919
"""By how much the seeds of two starts differ."""
_LEAST_SEARCH = 0.05
"""Least time for the search from a start [s]."""


class NoProvenMotion(SysidError):
    """No motion of a whole arm could be proven.

    Args:
        reasons: Why each was refused, the slowest last.
    """

    def __init__(self, reasons: tuple[str, ...]):
        self.reasons = reasons
        slowest = _LIMIT_SHARES[-1]
        super().__init__(
            f"no motion could be proven, not even with {100 * slowest:g} % of the speed and acceleration limits: "
            f"{reasons[-1]}; give narrower bounds of what the arm holds, start elsewhere, or leave more room"
        )


@dataclass(frozen=True)
class ArmExcitation:
    """Proven motions that excite a whole arm, and what they will tell together.

    Attributes:
        plans: The motions with their certificates; each starts and ends at rest at the same position.
        excitations: What was planned of each, without what the proof changed.
        base: The base parameters.
        condition_number: Condition number of the base regressor of all motions together [-].
        expected_radii: Radii of the guaranteed bounds expected of the base parameters, (nb,).
        prior_radii: Their radii before, (nb,).
        limit_share: Smallest share of the speed and acceleration limits that a motion was planned with [-].
        planning_time: Time the search took, proofs included [s].
    """

    plans: tuple[CertifiedPlan, ...]
    excitations: tuple[ExcitationPlan, ...]
    base: BaseParameters
    condition_number: float
    expected_radii: Array
    prior_radii: Array
    limit_share: float
    planning_time: float

    @property
    def duration(self) -> float:
        """Duration of all motions [s]."""
        return sum(plan.duration for plan in self.plans)

    @property
    def relative_width(self) -> float:
        """Geometric mean of expected over prior radii, of parameters that are not known before [-]."""
        is_open = self.prior_radii > 0.0
        return float(np.exp(np.log(self.expected_radii[is_open] / self.prior_radii[is_open]).mean()))


def plan_arm_excitation(
    assumptions: Assumptions,
    q_start: ArrayLike,
    settings: ExcitationSettings | None = None,
    motions: int = 1,
    verifier: VerifierSettings | None = None,
    now: float = 0.0,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_progress: Callable[[float, str], None] = lambda fraction, text: None,
) -> ArmExcitation:
    """Plan and prove motions that make the base parameters of a whole arm visible.

    From several starts, a motion is planned with the tracking errors that a random motion at the same limits has,
    then proven with its own; the best that is proven counts. Where the tracking bound does not exist or the verifier
    refuses the motion, it is made slower, or smaller where its path is refused; where no start leads to a proof all
    are planned anew with lower limits, in the end with less room for tracking errors: the proof goes by those of the
    motion itself. With ``wanted_condition_number`` the search for the first motion ends as soon as one that is proven
    has it.

    Args:
        assumptions: Arm, boxes of its and its tool's parameters, scene and control law.
        q_start: Start and end position, (n,) [rad].
        settings: Settings of trajectories and search, for a whole arm; :meth:`ExcitationSettings.for_arm` without it.
        motions: Number of motions.
        verifier: What the motions may use.
        now: Time of the loop's clock, from which certificates are valid [s].
        is_cancelled: Looked at in every iteration.
        on_progress: Called with the fraction done, 0..1, and a sentence.

    Raises:
        StartOutsideLimits: The start position violates a limit.
        NoExcitationFound: No motion around it respects every limit at the samples.
        NoProvenMotion: None could be proven.
        ParameterOutOfRange: The settings are for a payload, or there is to be no motion.
        PlanningCancelled: ``is_cancelled`` said so.

    Source: EXCITE III, IV-A.
    """
    settings = settings or ExcitationSettings.for_arm()
    if settings.target != ARM_TARGET:
        raise ParameterOutOfRange("target", settings.target, ARM_TARGET)
    if motions < 1:
        raise ParameterOutOfRange("motions", motions, "1 or more")
    begin, robot = time.perf_counter(), assumptions.robot
    plans: list[CertifiedPlan] = []
    excitations: list[ExcitationPlan] = []
    smallest = 1.0
    for index in range(motions):
        if is_cancelled():
            raise PlanningCancelled("the excitation planner was cancelled")
        on_progress(index / motions, f"motion {index + 1} of {motions}")
        one = replace(settings, seed=settings.seed + index)
        earlier = tuple(plan.trajectory for plan in plans)
        search = _ProvenSearch(assumptions, np.asarray(q_start, dtype=float), verifier or VerifierSettings(), now)
        plan, excitation, share = search.run(one, earlier, is_cancelled)
        plans.append(plan)
        excitations.append(excitation)
        smallest = min(smallest, share)
    base = BaseParameters.of_settings(robot, settings)
    paths = [plan.trajectory for plan in plans]
    model = _excitation_model(assumptions)
    rows = base_regressor(robot, base, paths)
    radius = assumptions.boxes[0].radius.copy()
    radius[robot.inertial_slice(robot.n)] += assumptions.boxes[1].radius
    widths, before = expected_base_radii(model, base, paths, settings.window), np.abs(base.matrix) @ radius
    for array in (widths, before):
        array.setflags(write=False)
    found = condition_number(rows.T @ rows)
    on_progress(1.0, f"condition number {found:.1f}")
    seconds = time.perf_counter() - begin
    return ArmExcitation(tuple(plans), tuple(excitations), base, found, widths, before, smallest, seconds)


@dataclass(frozen=True)
class ShortestMotion:
    """The shortest motion found that reaches a wanted width.

    Attributes:
        excitation: The motion, proven.
        tried: Durations [s] and relative widths [-] that were tried, in order.
    """

    excitation: ArmExcitation
    tried: tuple[tuple[float, float], ...]


def find_shortest_motion(
    assumptions: Assumptions,
    q_start: ArrayLike,
    wanted: float,
    settings: ExcitationSettings | None = None,
    shortest: float = 2.0,
    rounds: int = 5,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> ShortestMotion:
    """Find how short a motion can be for a wanted width, by bisection over durations.

    Args:
        assumptions: As in :func:`plan_arm_excitation`.
        q_start: Start and end position, (n,) [rad].
        wanted: Largest :attr:`ArmExcitation.relative_width` allowed [-].
        settings: Settings; their duration is the longest that is tried, and their number of harmonics is kept.
        shortest: Shortest duration that is tried [s].
        rounds: Number of bisections.
        is_cancelled: Looked at in every iteration.

    Raises:
        ParameterOutOfRange: Not even the longest duration reaches the width.
        SysidError: As :func:`plan_arm_excitation`, for the longest duration.
    """
    settings = settings or ExcitationSettings.for_arm(criterion="bounds")
    best = plan_arm_excitation(assumptions, q_start, settings, is_cancelled=is_cancelled)
    tried = [(settings.duration, best.relative_width)]
    if best.relative_width > wanted:
        raise ParameterOutOfRange("wanted width [-]", wanted, f"at least {best.relative_width:.3g}, or longer motions")
    lower, upper = shortest, settings.duration
    for _ in range(rounds):
        middle = float(np.sqrt(lower * upper))
        try:
            found = plan_arm_excitation(
                assumptions, q_start, replace(settings, duration=middle), is_cancelled=is_cancelled
            )
        except NoProvenMotion:
            lower = middle
            continue
        tried.append((middle, found.relative_width))
        if found.relative_width <= wanted:
            best, upper = found, middle
        else:
            lower = middle
    return ShortestMotion(best, tuple(tried))


class _ProvenSearch:
    """Plan one motion until it is proven."""

    def __init__(self, assumptions: Assumptions, q_start: Array, verifier: VerifierSettings, now: float):
        self._assumptions, self._q_start, self._verifier, self._now = assumptions, q_start, verifier, now
        self._reasons: list[str] = []

    def run(
        self, settings: ExcitationSettings, earlier: tuple[Trajectory, ...], is_cancelled: Callable[[], bool]
    ) -> tuple[CertifiedPlan, ExcitationPlan, float]:
        """Return the best proven motion, what was planned of it, and its share of the limits."""
        tries = [(share, False) for share in _LIMIT_SHARES] + [(share, True) for share in _HOPEFUL_SHARES]
        probes: dict[float, list[TrackingBound]] = {}
        for share, is_hopeful in tries:
            slower = settings.with_limit_share(share)
            if share not in probes:
                probes[share] = self._probe(slower, share in _HOPEFUL_SHARES)
            bounds = probes[share]
            if len(bounds) < (1 if is_hopeful else _PROBES):
                continue
            allocation = self._allocate(bounds, is_hopeful)
            try:
                found = self._search(_excitation_model(self._assumptions, allocation), slower, earlier, is_cancelled)
            except (StartOutsideLimits, NoExcitationFound) as reason:
                # Slower motions have smaller tracking errors, which leave more of the limits.
                if (share, is_hopeful) == tries[-1]:
                    raise
                self._reasons.append(str(reason))
                continue
            if found is not None:
                return *found, share
        raise NoProvenMotion(tuple(self._reasons))

    def _search(
        self,
        model: ExcitationModel,
        settings: ExcitationSettings,
        earlier: tuple[Trajectory, ...],
        is_cancelled: Callable[[], bool],
    ) -> tuple[CertifiedPlan, ExcitationPlan] | None:
        """Plan from each start and prove what may be the best: what the proof leaves of it counts.

        The fastest motions show the most, and often have no tracking bound until they are made much slower.
        """
        deadline = time.perf_counter() + settings.time_budget
        best: tuple[CertifiedPlan, ExcitationPlan] | None = None
        least, refusal = np.inf, None
        for start in range(settings.starts):
            left = deadline - time.perf_counter()
            if start and left <= _LEAST_SEARCH:
                break
            seed = (settings.seed + start * _OTHER_START) % 2**32
            one = replace(settings, starts=1, seed=seed, time_budget=max(left, _LEAST_SEARCH))
            try:
                plan = plan_excitation(model, self._q_start, one, is_cancelled=is_cancelled, earlier=earlier)
            except NoExcitationFound as reason:
                refusal = reason
                continue
            paths = (*earlier, plan.trajectory)
            # Slower or smaller it shows less.
            if self._figure(model, settings, paths) >= least:
                continue
            proven = self._prove(plan.trajectory)
            figure = np.inf if proven is None else self._figure(model, settings, (*earlier, proven.trajectory))
            if proven is not None and figure < least:
                best, least = (proven, plan), figure
            if settings.enough > 0.0 and not earlier and least <= settings.enough:
                break
        if best is None and not self._reasons and refusal is not None:
            raise refusal
        return best

    def _figure(self, model: ExcitationModel, settings: ExcitationSettings, paths: Sequence[Trajectory]) -> float:
        """Return what tells which motions are the best: condition number, or the mean width of the bounds [-]."""
        base = BaseParameters.of_settings(self._assumptions.robot, settings)
        if settings.criterion == "condition_number":
            rows = base_regressor(self._assumptions.robot, base, paths)
            return condition_number(rows.T @ rows)
        return float(np.log(np.maximum(expected_base_radii(model, base, paths, settings.window), 1e-300)).mean())

    def _probe(self, settings: ExcitationSettings, goes_on: bool) -> list[TrackingBound]:
        """Bound the tracking errors of random motions as fast as the settings allow.

        Args:
            settings: The settings.
            goes_on: Whether to go on after a motion without a bound.

        Returns:
            The bounds there are.
        """
        robot = self._assumptions.robot
        space = FourierSpace(self._q_start, settings.harmonics, settings.duration, settings.samples)
        rng, found = np.random.default_rng(settings.seed), list[TrackingBound]()
        for _ in range(_PROBES):
            x = rng.normal(size=(space.n, space.per_joint))
            _, v, a = (np.abs(part).max(axis=0) for part in space.states(x))
            speed = settings.velocity_fraction * robot.limits.v_max
            x /= np.maximum(v / speed, a / (settings.acceleration_fraction * robot.limits.a_max))[:, None]
            try:
                found.append(self._assumptions.bound(space.trajectory(x)))
            except BoundNotAvailable as reason:
                self._reasons.append(str(reason))
                if not goes_on:
                    break
        return found

    def _allocate(self, bounds: list[TrackingBound], is_hopeful: bool) -> TrackingAllocation:
        """Allocate the largest of these errors, with an allowance, or, in hope, the smallest without one."""
        robot, choose, allowance = self._assumptions.robot, np.max, _ALLOWANCE
        if is_hopeful:
            choose, allowance = np.min, 1.0
        chosen = [choose([getattr(b, name) for b in bounds], axis=0) for name in ("position", "velocity", "torque")]
        position, velocity, torque = (allowance * part for part in chosen)
        # Stops along the path need more, and are proven, too.
        velocity = stop_velocity_errors(velocity, robot.limits.v_max)
        claims = "Tracking errors of random motions at the same limits, with stops; not a bound of the motion planned."
        return TrackingAllocation(STOP_ERRORS * position, velocity, torque, False, claims)

    def _prove(self, trajectory: FourierTrajectory) -> CertifiedPlan | None:
        refused = 1.0
        for stretch in _STRETCHES:
            proven = self._prove_stretched(trajectory, stretch)
            if proven is None:
                refused = stretch
                continue
            # A slower motion shows less: its accelerations fall with the square.
            for _ in range(_CLOSER if stretch > 1.0 else 0):
                middle = 0.5 * (refused + stretch)
                faster = self._prove_stretched(trajectory, middle)
                if faster is None:
                    refused = middle
                else:
                    proven, stretch = faster, middle
            return proven
        return None

    def _prove_stretched(self, trajectory: FourierTrajectory, stretch: float) -> CertifiedPlan | None:
        for scale in _SCALES:
            try:
                path = _stretched(trajectory, stretch, scale)
                return prove_motion(self._assumptions, path, self._verifier, self._now)
            except BoundNotAvailable as reason:
                self._reasons.append(str(reason))
                return None
            except PlanRejected as reason:
                self._reasons.append(str(reason))
                if not reason.limit.is_of_the_path:
                    return None
        return None


def prove_motion(
    assumptions: Assumptions, path: Trajectory, verifier: VerifierSettings, now: float = 0.0
) -> CertifiedPlan:
    """Prove a motion from rest with its own tracking bound.

    Args:
        assumptions: Arm, boxes of its and its tool's parameters, scene and control law.
        path: The motion.
        verifier: What it may use.
        now: Time of the loop's clock, from which the certificate is valid [s].

    Raises:
        BoundNotAvailable: There is no tracking bound.
        PlanRejected: The motion violates a limit.
    """
    bound = assumptions.bound(path)
    certificate = certify(assumptions, path, bound, verifier, Beginning(rest_before=bound.settling_time, issued_at=now))
    return CertifiedPlan(path, certificate, assumptions.boxes, assumptions.scene, assumptions.robot.name, bound=bound)


def _stretched(path: FourierTrajectory, stretch: float, scale: float) -> FourierTrajectory:
    """Stretch the duration of a motion, and scale its amplitude."""
    factor = scale / stretch
    sine, cosine = factor * path.sine, factor * path.cosine
    return FourierTrajectory(path.q_start, sine, cosine, path.base_frequency / stretch, path.duration * stretch)


def _excitation_model(assumptions: Assumptions, bound: TrackingErrors | None = None) -> ExcitationModel:
    arm_box, payload_box = assumptions.boxes
    model = ExcitationModel.of(
        assumptions.robot,
        arm_box,
        payload_box,
        np.clip(assumptions.nominal, payload_box.lower, payload_box.upper),
        bound,
        feedback_torque=0.0 if bound is None else bound.torque,
    )
    return replace(model, collision=build_scene_model(assumptions.robot, assumptions.scene))
