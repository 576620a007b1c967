"""Excitation of a whole arm by motions that are proven before they run, each complementing the earlier ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.certification.stop_model import (
    STOP_ERRORS,
    LimitKind,
    PlanRejected,
    TrackingErrors,
    VerifierSettings,
    stop_velocity_errors,
)
from sysid_ros.core.certification.verify import Beginning, certify
from sysid_ros.core.collision.clearance import build_scene_model
from sysid_ros.core.common.errors import Cancelled, ParameterOutOfRange
from sysid_ros.core.excitation.criteria import BaseParameters
from sysid_ros.core.excitation.model import ExcitationModel, NoExcitationFound, unusable_start
from sysid_ros.core.excitation.planner import (
    ExcitationPlan,
    base_regressor,
    condition_number,
    expected_base_radii,
    plan_excitation,
)
from sysid_ros.core.excitation.problem import FourierSpace, speed_memory
from sysid_ros.core.excitation.settings import ARM_TARGET, MOST_HARMONICS, ExcitationSettings
from sysid_ros.core.model.mechanics import add_payload
from sysid_ros.core.tracking_bound.bound import TrackingBound
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable
from sysid_ros.core.tracking_bound.stops import StopBound
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.core.trajectories.braking import slowdown_states
from sysid_ros.core.trajectories.families import FourierTrajectory

Array = NDArray[np.float64]

_SPEED_SHARES = (1.0, 0.7, 0.5, 0.35, 0.25, 0.18)
"""Shares of the speed limits that are tried until a motion is proven."""
_STRETCHES = (1.0, 1.08, 1.17, 1.3, 1.5, 1.8)
"""Factors by which a motion's duration is stretched until it is proven."""
_LITTLE, _NEARLY = 0.05, (0.97, 0.94, 0.91)
"""Share of a limit that is little, and shares of its amplitude that are tried of a motion that lacks no more."""
_SMALLER = (1.0, 0.85, 0.7, 0.55)
"""Shares of the amplitude with which a motion is just good enough that are tried of one that lacks more."""
_SCALES = (1.0, 0.98, 0.94, 0.88, 0.8)
"""Shares of its amplitude, where it is the path that is refused."""
_ALLOWANCE = 1.25
"""How much larger tracking errors are allocated than random motions at the same limits have."""
_MOST = 0.5
"""Share of the torque limits that is allocated to the feedback at most, before a motion has shown its need."""
_OF_ROOM = 0.9
"""Share of the torque that holding leaves at the start that feedback may take all the same."""
_SLOW, _SLOWER = 0.35, 0.8
"""Share of the speed limits from which on a motion that leaves no room for its errors is made slower, beginning with
itself, and by how much; faster ones make way for another start, which shows more at the same speed."""
_MARGIN = 1.03
"""How much larger tracking errors are allocated than a motion has with which the search for a better one begins."""
_GROWTH = 0.5
"""Power of the amplitude with which errors are taken to grow from a motion that is proven with a smaller one."""
_CAUTION = 0.1, 0.5
"""Largest increase of the assumed feedback in stops each time that these lack torque, and in total; it is
what they lack of the limit, and half of it is forgotten once a motion is proven."""
_STOP_POINTS = 5
"""States of a stop at which its torque is evaluated."""
_LATE = 0.25
"""Share of the time that is kept for smaller motions, where none is proven."""
_LESS_AHEAD = 1.15
"""Factor on the condition number that is wanted with which a motion that is planned again is: what changes less keeps
its errors."""
_FEW = 200
"""Iterations per stage of the solver where a motion is planned again with the errors that it has."""
_LEAST_SHARE = 0.1
"""Least share of the feedback at high speed that is assumed for slow parts of a motion."""
_PROBES, _PROBE_TIME = 2, 8.0
"""Random motions whose errors are computed, and their longest duration [s]."""
_ROUNDS = 20
"""How often the motion of one start is tried to be proven: first as planned, then planned again with its own errors."""
_FAR = 3.0
"""Ratio of a condition number to the wanted one above which another start promises more than planning the
motion of this one again."""
_GAIN = 0.004
"""Decrease of the logarithm of the criterion that makes a motion worth a proof."""
_LEAST_SEARCH = 0.05
"""Least time for the search from a start [s]."""


_VERIFIER = VerifierSettings()
"""Limits of the motions."""


@dataclass(frozen=True)
class PlannedErrors:
    """Tracking errors that a plan leaves room for: of similar motions, with stops; no bounds of the planned motion.

    Attributes:
        position: ``|q_d - q|``, (n,) [rad].
        velocity: ``|v_d - v|``, (n,) [rad/s].
        torque: Commanded torque less the torque the desired motion needs, (n,) [Nm].
    """

    position: Array
    velocity: Array
    torque: Array


@dataclass(frozen=True)
class ArmExcitation:
    """Proven motions that excite a whole arm, and their information together.

    Attributes:
        plans: The motions with their certificates; each starts and ends at rest at the same position.
        excitations: The plan of each, before changes by the proof.
        base: The base parameters.
        condition_number: Condition number of the base regressor of all motions together [-].
        expected_radii: Radii of the guaranteed bounds expected of the base parameters, (nb,).
        prior_radii: Their radii before, (nb,).
        speed_share: Smallest share of the speed limits that a motion was planned with [-].
        starts: Starts of the search for each motion [-].
        planning_time: Time the search took, proofs included [s].
    """

    plans: tuple[CertifiedPlan, ...]
    excitations: tuple[ExcitationPlan, ...]
    base: BaseParameters
    condition_number: float
    expected_radii: Array
    prior_radii: Array
    speed_share: float
    starts: tuple[int, ...]
    planning_time: float

    @property
    def duration(self) -> float:
        """Duration of all motions [s]."""
        return sum(plan.duration for plan in self.plans)

    @property
    def relative_width(self) -> float:
        """Geometric mean of expected over prior radii, of initially unknown parameters [-]."""
        is_open = self.prior_radii > 0.0
        return float(np.exp(np.log(self.expected_radii[is_open] / self.prior_radii[is_open]).mean()))


def plan_arm_excitation(
    assumptions: Assumptions,
    q_start: ArrayLike,
    settings: ExcitationSettings | None = None,
    motions: int = 1,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_progress: Callable[[float, str], None] = lambda fraction, text: None,
    clock: Callable[[], float] = time.perf_counter,
) -> ArmExcitation:
    """Plan and prove motions that excite the base parameters of a whole arm.

    A motion is planned with the tracking errors of random motions at the same limits, then proven with its own. While
    it is refused, or not good enough, it is planned again, beginning with itself, with its own errors, and more slowly
    where they leave no room. If that leads to no proof, the next start has lower speed limits. If none is proven at
    last, the refused ones are stretched, and made smaller where their path is refused. After the first proven one,
    other starts follow, until one is proven that has with the motions before it the ``wanted_condition_number``, or
    ``starts`` or ``time_budget``, which counts for each motion, are used up; the best proven one counts.

    Args:
        assumptions: Arm, boxes of its and its tool's parameters, scene and control law.
        q_start: Start and end position, (n,) [rad].
        settings: Settings of trajectories and search, for a whole arm; :meth:`ExcitationSettings.for_arm` without it.
        motions: Number of motions.
        is_cancelled: Polled in every iteration.
        on_progress: Called with the fraction done, 0..1, and a sentence.
        clock: Clock of the time budget [s]; ``time.process_time`` does not count other processes.

    Raises:
        NoExcitationFound: The start position violates a limit, no motion around it respects every limit at the samples,
            or none could be proven.
        ParameterOutOfRange: The settings are for a payload, or there is to be no motion.
        Cancelled: ``is_cancelled`` returned true.

    Source: EXCITE III, IV-A.
    """
    settings = settings or ExcitationSettings.for_arm()
    if settings.target != ARM_TARGET:
        raise ParameterOutOfRange("target", settings.target, ARM_TARGET)
    if motions < 1:
        raise ParameterOutOfRange("motions", motions, "1 or more")
    begin, robot = clock(), assumptions.robot
    start = np.asarray(q_start, dtype=float)
    if start.shape != (robot.n,):
        raise unusable_start("the number of positions", float(start.size), f"{robot.n}, one per joint")
    plans, excitations, shares, starts = list[CertifiedPlan](), list[ExcitationPlan](), list[float](), list[int]()
    for index in range(motions):
        if is_cancelled():
            raise Cancelled("the excitation planner was cancelled")

        def tell(share: float, text: str, index: int = index) -> None:
            on_progress((index + share) / motions, f"motion {index + 1} of {motions}{text}")

        tell(0.0, "")
        task = _Task(assumptions, start, is_cancelled, tell, clock)
        one = replace(settings, seed=settings.seed + index)
        search = _ProvenSearch(task, one, tuple(plan.trajectory for plan in plans))
        plan, excitation, share = search.run()
        plans.append(plan)
        excitations.append(excitation)
        shares.append(share)
        starts.append(search.starts)
    base = BaseParameters.of_settings(robot, settings)
    paths = [plan.trajectory for plan in plans]
    model = excitation_model(assumptions)
    rows = base_regressor(robot, base, paths)
    before = np.abs(base.matrix) @ add_payload(*(box.radius for box in assumptions.boxes))
    widths = expected_base_radii(model, base, paths, settings.window)
    for array in (widths, before):
        array.setflags(write=False)
    found = condition_number(rows.T @ rows)
    seconds = clock() - begin
    wanted = f", {settings.enough:g} wanted" if settings.enough > 0.0 else ""
    on_progress(1.0, f"condition number {found:.1f}{wanted}, {sum(starts)} starts, {seconds:.0f} s")
    return ArmExcitation(
        tuple(plans), tuple(excitations), base, found, widths, before, min(shares), tuple(starts), seconds
    )


@dataclass(frozen=True)
class _Task:
    """Common data of all motions of a sequence, as in :func:`plan_arm_excitation`."""

    assumptions: Assumptions
    q_start: Array
    is_cancelled: Callable[[], bool]
    on_progress: Callable[[float, str], None]
    """As there, for one motion; the sentence goes on."""
    clock: Callable[[], float]


@dataclass(frozen=True)
class _Attempt:
    """Outcome of an attempt to prove a motion."""

    proven: CertifiedPlan | None = None  # The motion with its certificate; None where it was refused
    bound: TrackingBound | None = None  # Its tracking bound; None where there is none
    refusal: PlanRejected | None = None  # The verifier's refusal; None without one, or without a bound
    scale: float = 1.0  # Share of its amplitude that was tried [-]

    @property
    def lack(self) -> float:
        """By which share of a limit it was refused [-]; infinite where there is no tracking bound."""
        if self.refusal is None:
            return 0.0 if self.proven is not None else np.inf
        return self.refusal.excess / max(abs(self.refusal.allowed), 1e-9)


class _ProvenSearch:
    """Plans one motion until it is proven, then from other starts until it is good enough or the time is over."""

    def __init__(self, task: _Task, settings: ExcitationSettings, earlier: tuple[Trajectory, ...]):
        self._task, self._assumptions, self._clock = task, task.assumptions, task.clock
        self._settings, self._earlier = settings, earlier
        self._deadline = task.clock() + settings.time_budget
        robot = task.assumptions.robot
        self._base = BaseParameters.of_settings(robot, settings)
        self._model = excitation_model(task.assumptions)
        rest = np.zeros((1, robot.n))
        holding = self._model.torque_demand.evaluate(task.q_start[None], rest, rest)[0]
        self._room: Array = settings.torque_fraction * robot.limits.tau_held - holding
        """Torque left by holding the start, (n,) [Nm]."""
        self._reasons: list[str] = []
        self._refused: list[tuple[float, ExcitationPlan]] = []
        self._best: tuple[CertifiedPlan, ExcitationPlan, float] | None = None
        self._least = np.inf
        self._seed, self.starts = settings.seed, 0
        self._caution = 0.0
        """Assumed increase of the feedback in stops of this start's motions over the last one's [-]."""
        self._finer = 0
        """Harmonics that motions of this start have more than the settings say."""
        self._is_close = False
        """Whether a motion was refused for what position or velocity errors leave of the limits."""

    def run(self) -> tuple[CertifiedPlan, ExcitationPlan, float]:
        """Return the best proven motion, its plan, and its share of the speed limits."""
        self._find_share()
        while self._best is not None and self.starts < self._settings.starts and not self._is_over:
            bound, share = self._best[0].bound, self._best[2]
            assert bound is not None
            try:
                # The best motion shows the tracking errors of such motions, of which the start may leave a part.
                errors = self._allocate([bound], _MARGIN)
                least = replace(errors, torque=0.5 * errors.torque)
                self._run_start(share, self._within_room(errors, least), self._left)
            except NoExcitationFound as reason:
                self._reasons.append(str(reason))
        assert self._best is not None
        return self._best

    @property
    def _left(self) -> float:
        return self._deadline - self._clock()

    @property
    def _is_over(self) -> bool:
        enough = self._settings.enough
        return (enough > 0.0 and self._least <= np.log(enough)) or self._left <= _LEAST_SEARCH

    def _find_share(self) -> None:
        refusal: NoExcitationFound | None = None
        for share in _SPEED_SHARES:
            if self._left <= _LEAST_SEARCH and self._slow_refused_down():
                return
            bounds, refusal = self._probe(self._settings.with_speed_share(share)), None
            if not bounds:
                continue
            hope = min((self._allocate([bound], 1.0) for bound in bounds), key=lambda one: float(one.torque.sum()))
            try:
                errors = self._within_room(self._allocate(bounds, _ALLOWANCE), hope)
                self._require_room(errors)
                most = _MOST * self._assumptions.robot.limits.tau_held
                self._run_start(share, replace(errors, torque=np.minimum(errors.torque, most)), 0.5 * self._left)
            except NoExcitationFound as reason:
                refusal = reason
                self._reasons.append(str(reason))
            if self._best is not None:
                return
        if not self._slow_refused_down():
            raise refusal or NoExcitationFound(
                f"no motion could be proven, not even with {100 * _SPEED_SHARES[-1]:g} % of the speed limits: "
                f"{self._reasons[-1]}; give narrower bounds of the load, start elsewhere, or leave more room"
            )

    def _slow_refused_down(self) -> bool:
        """Try to prove refused motions more slowly, one after the other; return whether one is proven."""
        while self._refused and self._best is None:
            share, plan = self._refused.pop(0)
            attempt = self._slow_down(plan.trajectory)
            if attempt.proven is not None:
                self._keep(attempt.proven, plan, share)
        return self._best is not None

    def _run_start(self, share: float, errors: PlannedErrors, seconds: float) -> None:
        """Plan from one start and prove motions that may be the best after the proof.

        A motion that leaves too little room for its tracking errors is refused, and one that leaves too much is poor.
        So it is planned again, beginning with itself, with its own errors.
        """
        self._tell()
        self._seed = (self._settings.seed + self.starts * 7919) % 2**32
        self.starts += 1
        self._caution, self._finer = 0.0, 0
        plan: ExcitationPlan | None = self._plan(share, errors, seconds)
        for left in reversed(range(_ROUNDS)):
            # Slower or smaller motions are less informative.
            if plan is None or self._figure(plan.trajectory) >= self._least - _GAIN:
                return
            attempt = self._attempt(plan.trajectory)
            nearly, path = attempt, plan.trajectory
            if attempt.proven is None:
                nearly, attempt = self._attempt_smaller_ones(path, attempt)
                path = _stretched(path, 1.0, attempt.scale)
            if nearly.proven is not None:
                self._keep(nearly.proven, plan, share)
            made, plan = plan, None
            if left and not self._is_over and not (self._best is not None and self._is_far(made)):
                plan, errors, share = self._plan_again(share, attempt, path, errors)
            if plan is None and nearly.proven is None:
                self._refused.append((share, made))

    def _is_far(self, plan: ExcitationPlan) -> bool:
        """Whether a motion is so far from the wanted number that another start promises more."""
        enough, starts = self._settings.enough, self._settings.starts
        return enough > 0.0 and self.starts < starts and self._figure(plan.trajectory) > np.log(_FAR * enough)

    def _plan(
        self,
        share: float,
        errors: PlannedErrors,
        seconds: float,
        begin_with: FourierTrajectory | None = None,
        bound: TrackingBound | None = None,
    ) -> ExcitationPlan:
        """Plan a motion, from a random one or from one whose bound gives the feedback torque along it."""
        settings = self._settings.with_speed_share(share)
        settings = replace(
            settings,
            harmonics=min(settings.harmonics + self._finer, max(settings.harmonics, MOST_HARMONICS)),
            starts=1,
            seed=self._seed,
            time_budget=max(seconds, _LEAST_SEARCH),
        )
        model = excitation_model(self._assumptions, errors)
        if begin_with is not None and bound is not None:
            model, brake_time = self._with_feedback(model, bound, begin_with, settings.samples)
            settings = replace(
                settings,
                max_iterations=min(settings.max_iterations, _FEW),
                brake_time=brake_time or settings.brake_time,
                wanted_condition_number=min(_LESS_AHEAD * settings.wanted_condition_number, 1e6),
            )
        elif begin_with is not None:
            # At rest the feedback takes less than the most on the path, which may be more than the start leaves.
            rest = np.minimum(errors.torque, np.maximum(_OF_ROOM * self._room, 0.0))
            model = replace(model, feedback_torque=rest, moving_torque=errors.torque - rest)
        return plan_excitation(
            model, self._task.q_start, settings, earlier=self._earlier,
            is_cancelled=self._task.is_cancelled, begin_with=begin_with, clock=self._clock,
        )  # fmt: skip

    def _with_feedback(
        self, model: ExcitationModel, bound: TrackingBound, path: FourierTrajectory, count: int
    ) -> tuple[ExcitationModel, float | None]:
        """Return the model with the feedback torque of a motion at its samples, and in stops.

        Also return the time to rest of these stops [s], the ones that lack the least; None where stops have no bound.
        """
        half = 0.5 * path.duration / count
        times = np.asarray((2.0 * np.arange(count) + 1.0) * half, dtype=np.float64)
        halves, states = np.full(count, half), path.sample(times)
        along = bound.torque_over(times, halves)
        stopping, brake_time, least = np.zeros_like(along), None, np.inf
        demand, limits = replace(model.torque_demand, feedback=np.zeros(along.shape[1])), model.robot.limits.tau_held
        for stops in self._stops_of(bound):
            takes = stops.torque_over(times, halves)
            needs = demand.evaluate(*slowdown_states(states, stops.brake_time, _STOP_POINTS)).reshape(-1, *along.shape)
            worst = float(((needs.max(axis=0) + takes) / limits).max())
            if worst < least:
                stopping, brake_time, least = np.maximum(takes - along, 0.0), stops.brake_time, worst
        squares = speed_memory(times) @ (states[1] ** 2).sum(axis=1)
        speed = np.maximum(squares, _LEAST_SHARE * squares.mean())
        rest = np.minimum(along.min(axis=0), np.maximum(_OF_ROOM * self._room, 0.0))
        model = replace(
            model,
            feedback_torque=rest,
            slow_torque=(along - rest) * (1.0 - squares / speed)[:, None],
            moving_torque=_MARGIN * (along - rest),
            # The largest moments of stops move when the motion changes.
            stop_torque=(1.0 + self._caution)
            * sliding_window_view(np.pad(stopping, ((1, 1), (0, 0))), 3, axis=0).max(axis=-1),
            moving_speed=speed,
        )
        return model, brake_time

    def _stops_of(self, bound: TrackingBound) -> Iterator[StopBound]:
        """Bound the errors of a motion in stops, for each time to rest with a bound."""
        for brake_time in _VERIFIER.brake_times:
            try:
                yield bound.in_stops(brake_time)
            except BoundNotAvailable:
                continue

    def _tell(self) -> None:
        text = f", start {self.starts + 1}"
        if self._best is not None and self._settings.criterion == "condition_number":
            text += f", condition number {np.exp(self._least):.1f} so far"
        used = 1.0 - self._left / self._settings.time_budget
        self._task.on_progress(min(max(used, 0.0), 1.0), text)

    def _plan_again(
        self, share: float, attempt: _Attempt, path: FourierTrajectory, before: PlannedErrors
    ) -> tuple[ExcitationPlan | None, PlannedErrors, float]:
        """Plan with the errors of a motion, beginning with it; more slowly where they leave no room."""
        if attempt.proven is not None:
            self._finer += 2  # harmonics
        if attempt.bound is not None:
            errors, refusal = self._allocate([attempt.bound], _MARGIN * attempt.scale**-_GROWTH), attempt.refusal
            if refusal is None:
                self._caution *= 0.5
            elif refusal.limit is LimitKind.BRAKING_TORQUE:
                self._caution = min(self._caution + min(attempt.lack, _CAUTION[0]), _CAUTION[1])
            elif refusal.limit in (LimitKind.POSITION, LimitKind.VELOCITY):
                self._is_close = True
            if self._is_close:
                errors = self._with_stops(errors, attempt.bound)
            try:
                return self._plan(share, errors, self._left, path, attempt.bound), errors, share
            except NoExcitationFound as reason:
                self._reasons.append(str(reason))
            before = self._within_room(errors, before)
        slower = _SLOWER * share
        # A motion without any bound seldom gets one by being slower: another start does.
        if attempt.refusal is not None and share <= _SLOW and slower >= _SPEED_SHARES[-1]:
            try:
                return self._plan(slower, before, self._left, path), before, slower
            except NoExcitationFound as reason:
                self._reasons.append(str(reason))
        return None, before, share

    def _keep(self, proven: CertifiedPlan, plan: ExcitationPlan, share: float) -> None:
        figure = self._figure(proven.trajectory)
        if figure < self._least:
            self._best, self._least = (proven, plan, share), figure

    def _figure(self, path: Trajectory) -> float:
        """Return the figure of merit of motions: log of the condition number, or mean log of the bounds' widths."""
        settings, paths = self._settings, (*self._earlier, path)
        if settings.criterion == "condition_number":
            rows = base_regressor(self._assumptions.robot, self._base, paths)
            return float(np.log(condition_number(rows.T @ rows)))
        radii = expected_base_radii(self._model, self._base, paths, settings.window)
        return float(np.log(np.maximum(radii, 1e-300)).mean())

    def _probe(self, settings: ExcitationSettings) -> list[TrackingBound]:
        """Bound the tracking errors of random motions as fast as the settings allow; return the bounds found."""
        robot, short = self._assumptions.robot, settings.with_duration(min(settings.duration, _PROBE_TIME))
        space = FourierSpace(self._task.q_start, short.harmonics, short.duration, short.samples)
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
        return found

    def _with_stops(self, errors: PlannedErrors, bound: TrackingBound) -> PlannedErrors:
        """Return errors with a motion's bounds in stops, in place of assumed ones."""
        stops = next(self._stops_of(bound), None)
        if stops is None:
            return errors
        fast = stops.speed_errors(self._assumptions.robot.limits.v_max)
        position, velocity = np.maximum(bound.position, stops.position), np.maximum(bound.velocity, fast)
        return replace(errors, position=_MARGIN * position, velocity=_MARGIN * velocity)

    def _require_room(self, errors: PlannedErrors) -> None:
        """Raise NoExcitationFound where holding the start leaves less torque than these errors take."""
        room, robot = self._room, self._assumptions.robot
        joint = int((errors.torque - room).argmax())
        if errors.torque[joint] > room[joint]:
            what = f"the torque of the feedback at joint '{robot.joint_names[joint]}' [Nm]"
            raise unusable_start(
                what, float(errors.torque[joint]), f"at most {room[joint]:.4g}, the torque left by holding"
            )

    def _within_room(self, errors: PlannedErrors, least: PlannedErrors) -> PlannedErrors:
        """Return errors whose torque is no more than the start has left, and no less than the least ones."""
        lowest = np.minimum(least.torque, errors.torque)
        return replace(errors, torque=np.clip(_OF_ROOM * self._room, lowest, errors.torque))

    def _allocate(self, bounds: list[TrackingBound], allowance: float) -> PlannedErrors:
        """Allocate the largest of these errors with an allowance, and the additional part of stops."""
        robot = self._assumptions.robot
        chosen = [np.max([getattr(b, name) for b in bounds], axis=0) for name in ("position", "velocity", "torque")]
        position, velocity, torque = (allowance * part for part in chosen)
        # Stops along the path need more, and are proven, too.
        velocity = stop_velocity_errors(velocity, robot.limits.v_max)
        return PlannedErrors(STOP_ERRORS * position, velocity, torque)

    def _attempt(self, path: FourierTrajectory, scale: float = 1.0, stretch: float = 1.0) -> _Attempt:
        """Try to prove a motion with a share of its amplitude, slower by a factor."""
        bound, path = None, _stretched(path, stretch, scale)
        if self._task.is_cancelled():
            raise Cancelled("the excitation planner was cancelled")
        try:
            bound = self._assumptions.bound(path)
            return _Attempt(prove_motion(self._assumptions, path, bound), bound, scale=scale)
        except BoundNotAvailable as reason:
            self._reasons.append(str(reason))
            return _Attempt(scale=scale)
        except PlanRejected as reason:
            self._reasons.append(str(reason))
            return _Attempt(None, bound, reason, scale)

    def _slow_down(self, path: FourierTrajectory) -> _Attempt:
        """Make a refused motion slower, or smaller, until it is proven."""
        refused, best = 1.0, _Attempt()
        for stretch in _STRETCHES:
            best = self._attempt_stretched(path, stretch)
            if best.proven is not None:
                break
            refused = stretch
        if best.proven is None or stretch == 1.0:
            return best
        # A slower motion is less informative: its accelerations fall with the square.
        for _ in range(2):  # bisections towards the stretch that is not proven
            middle = 0.5 * (refused + stretch)
            faster = self._attempt_stretched(path, middle)
            if faster.proven is None:
                refused = middle
            else:
                best, stretch = faster, middle
        return best

    def _attempt_stretched(self, path: FourierTrajectory, stretch: float) -> _Attempt:
        """Try to prove a motion, stretched, smaller and smaller where its path is refused."""
        for scale in _SCALES:
            attempt = self._attempt(path, scale, stretch)
            if attempt.refusal is None or not attempt.refusal.limit.is_of_the_path:
                break
        return attempt

    def _attempt_smaller_ones(self, path: FourierTrajectory, attempt: _Attempt) -> tuple[_Attempt, _Attempt]:
        """Try to prove a refused motion with smaller amplitudes, while it would be the best.

        Returns:
            The largest proven one, if any; and the one to go on from: that, or the one that lacks the least.
        """
        refusal = attempt.refusal
        is_near = attempt.lack <= _LITTLE
        if (
            refusal is not None
            and not is_near
            and (refusal.limit.is_of_the_path or self._left > _LATE * self._settings.time_budget)
        ):
            return _Attempt(), attempt
        enough, tries = self._scale_of_enough(path), [attempt]
        proven, refused = _Attempt(), attempt
        scales = (*(_NEARLY if is_near else ()), *(share * enough for share in _SMALLER))
        if is_near and refusal is not None and refusal.limit is LimitKind.BRAKING_TORQUE:
            scales = _NEARLY[:1]  # more room for stops in another plan is better than a smaller motion
        for scale in scales:
            if scale >= refused.scale:
                continue
            tried = self._attempt_scaled(path, scale)
            if tried.proven is not None:
                proven = tried
                break
            if tried.scale < scale or (self._best is not None and self._is_over):
                break
            tries.append(tried)
            if refused.refusal is not None and tried.lack > refused.lack:
                break  # where it is smaller it needs more
            refused = tried
        if proven.proven is None:
            return proven, min(tries, key=lambda one: one.lack)
        if proven.scale < min(0.93 * refused.scale, enough) and not self._is_over:  # a step worth halving
            between = self._attempt_scaled(path, 0.5 * (refused.scale + proven.scale))
            proven, refused = (between, refused) if between.proven is not None else (proven, between)
        return proven, proven

    def _scale_of_enough(self, path: FourierTrajectory) -> float:
        """Return the share of its amplitude with which a motion is just good enough, or 0.9 without a target."""
        if self._settings.enough <= 0.0:
            return 0.9
        low, high = 0.5, 1.0
        for _ in range(6):
            middle = 0.5 * (low + high)
            is_enough = self._figure(_stretched(path, 1.0, middle)) <= np.log(self._settings.enough)
            low, high = (low, middle) if is_enough else (middle, high)
        return high

    def _attempt_scaled(self, path: FourierTrajectory, scale: float) -> _Attempt:
        """Try to prove a motion with a share of its amplitude; the scale is 0 where it would not be the best."""
        if self._figure(_stretched(path, 1.0, scale)) >= self._least - _GAIN:
            return _Attempt(scale=0.0)
        return self._attempt(path, scale)


def prove_motion(assumptions: Assumptions, path: Trajectory, bound: TrackingBound | None = None) -> CertifiedPlan:
    """Prove a motion from rest with its own tracking bound, which is computed where it is not given.

    Raises:
        BoundNotAvailable: There is no tracking bound.
        PlanRejected: The motion violates a limit.
    """
    bound = assumptions.bound(path) if bound is None else bound
    beginning = Beginning(rest_before=bound.settling_time, issued_at=0.0)
    certificate = certify(assumptions, path, bound, _VERIFIER, beginning)
    return CertifiedPlan(path, certificate, assumptions.boxes, assumptions.scene, assumptions.robot.name, bound=bound)


def _stretched(path: FourierTrajectory, stretch: float, scale: float) -> FourierTrajectory:
    if stretch == scale == 1.0:
        return path
    factor = scale / stretch
    sine, cosine = factor * path.sine, factor * path.cosine
    return FourierTrajectory(path.q_start, sine, cosine, path.base_frequency / stretch, path.duration * stretch)


def excitation_model(assumptions: Assumptions, bound: TrackingErrors | None = None) -> ExcitationModel:
    """Build the model that motions of a whole arm are planned with, with room for tracking errors, if given."""
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
