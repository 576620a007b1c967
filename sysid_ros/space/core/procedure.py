"""The procedure that identifies a free-flying robot or its load: plan, move, estimate, and repeat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.procedure.types import Phase
from sysid_ros.core.trajectories.families import CycloidTrajectory
from sysid_ros.space.core.bounds import ObjectEstimate, object_columns
from sysid_ros.space.core.excitation import plan_with_free_knots
from sysid_ros.space.core.identification import (
    FloatingProgress,
    FreeFlyerIdentification,
    KnownRobot,
    ObjectIdentification,
    ObjectSettings,
    Part,
    Samples,
    Task,
    condition_of_data,
    estimate_free_flyer,
    estimate_held,
    scaled_columns,
    select_motion,
)
from sysid_ros.space.core.intervals import FloatingMotion, IntervalInformation
from sysid_ros.space.core.measurements import FloatingData
from sysid_ros.space.core.minimal_parameters import MinimalParameters, build_minimal_parameters, estimate_minimal
from sysid_ros.space.core.momentum import compute_base_twist
from sysid_ros.space.core.momentum_rows import ROWS
from sysid_ros.space.core.robot import FreeFlyer

Array = NDArray[np.float64]

_FIRST_SHARE, _FIRST_TIME = 0.15, 0.25
"""Shares of the intervals, and of the time for planning, that the first part gets; the others share the rest."""
_FIRST_SPARE = 2
"""Intervals of the first part in addition to as many rows as there are parameters."""


class FreeFlyerPort(Protocol):
    """The procedure's interface to a robot: motion and measurements."""

    def reference(self) -> Array:
        """Return the desired positions of joints and wheels at rest, (n + W,) [rad]."""

    def follow(self, trajectory: CycloidTrajectory, on_progress: Callable[[float], None]) -> None:
        """Follow a trajectory of joints and wheels to its end."""

    def samples(self) -> Samples:
        """Return all measurements since the port was opened."""


def identify_free_flyer(
    task: Task,
    port: FreeFlyerPort,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_progress: Callable[[FloatingProgress], None] = lambda progress: None,
) -> FreeFlyerIdentification:
    """Identify a free-flying robot from its present posture.

    Args:
        task: The identification.
        port: The link to the robot.
        is_cancelled: Polled while planning and bounding; the port ends a motion by itself.
        on_progress: Called with every change.

    Raises:
        Cancelled: ``is_cancelled`` returned true.
        PlanRejected: No motion that keeps clear was found.
        ParameterOutOfRange: The data do not determine all minimal parameters.
        SysidError: What the port raises.
    """
    minimal = build_minimal_parameters(task.robot.tree)
    run = _Run(task, port, task.robot.tree.parameters, is_cancelled, on_progress)
    run.length = 0.9 if task.settings.is_bounded else 1.0
    while run.advance():
        run.parameters = _updated(task, minimal, run.data(), run.parameters)

    def tell(progress: FloatingProgress) -> None:
        share = run.length + (1.0 - run.length) * progress.progress
        on_progress(replace(progress, progress=share, trajectories=len(run.parts)))

    return estimate_free_flyer(task, run.data(), tuple(run.parts), is_cancelled, tell)


def identify_object(
    task: Task,
    settings: ObjectSettings,
    known_robot: KnownRobot,
    port: FreeFlyerPort,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_progress: Callable[[FloatingProgress], None] = lambda progress: None,
) -> ObjectIdentification:
    """Identify the load of a robot by exciting motions; bounds are renewed after each part.

    Args:
        task: The identification; its number of intervals and parts.
        settings: Range of objects.
        known_robot: Bounds of the robot without it.
        port: The link to the robot.
        is_cancelled: Polled while planning and bounding; the port ends a motion by itself.
        on_progress: Called with every change; after each part with the estimate of the object.

    Raises:
        Cancelled: ``is_cancelled`` returned true.
        PlanRejected: No motion that keeps clear was found.
        ParameterOutOfRange: There is no such frame.
        SysidError: An error of the port.
    """
    minimal = build_minimal_parameters(task.robot.tree)
    parameters = _usable(task.robot, minimal.embed(known_robot.values), task.robot.tree.parameters)
    run = _Run(task, port, parameters, is_cancelled, on_progress)
    run.columns, run.length = scaled_columns(task.robot, settings), 0.95
    found: ObjectIdentification | None = None
    while True:
        is_more = run.advance()
        run.tell(Phase.ESTIMATING, "bounding", 1.0)
        found = estimate_held(task, settings, known_robot, run.data(), tuple(run.parts), found, is_cancelled)
        run.held = found.estimate
        if found.estimate is None or found.inconsistency is not None:
            return found
        if not is_more or found.estimate.bounds.box.width[0] <= settings.target_width:
            on_progress(FloatingProgress(Phase.ESTIMATING, "bounding", 1.0, 0, len(run.parts), held=run.held))
            return found
        if np.all(np.isfinite(found.estimate.values)):
            held = object_columns(task.robot, found.estimate.frame) @ found.estimate.values
            run.parameters = _usable(task.robot, parameters + held, parameters)


class _Run:
    """A motion in parts: each is planned from where the robot is, followed, and measured.

    Attributes:
        parameters: Inertial parameters to plan the next part with, (10 B,).
        columns: Parameters of interest, see :class:`IntervalInformation`; None for the minimal parameters.
        length: Share of the parts in the identification.
        held: Estimate of an object.
        parts: The parts that are done.
    """

    columns: Array | None = None
    length: float = 1.0
    held: ObjectEstimate | None = None

    def __init__(
        self,
        task: Task,
        port: FreeFlyerPort,
        parameters: Array,
        is_cancelled: Callable[[], bool],
        on_progress: Callable[[FloatingProgress], None],
    ):
        self._task, self._port, self._is_cancelled, self._on_progress = task, port, is_cancelled, on_progress
        self._before: FloatingMotion | None = None
        self._rest: FloatingMotion | None = None
        self.parameters = parameters
        self.parts: list[Part] = []

    @cached_property
    def _counts(self) -> list[int]:
        robot, settings = self._task.robot, self._task.settings
        count = build_minimal_parameters(robot.tree).count if self.columns is None else self.columns.shape[1]
        return _split(settings.intervals, settings.parts, count)

    def advance(self) -> bool:
        """Execute the next part; return whether another one is left."""
        task, robot, number = self._task, self._task.robot, len(self.parts)
        count, left = self._counts[number], sum(self._counts[number:])
        place = self._port.reference()
        # All remaining parts are planned, and only the first is executed: later ones can be as good.
        plan = plan_with_free_knots(
            robot,
            self.parameters,
            left,
            replace(task.excitation, time_limit=task.excitation.time_limit * self._time_share(number)),
            start=np.clip(place[: robot.n], robot.q_lower, robot.q_upper),
            before=self._before,
            columns=self.columns,
            guess=self._rest,
            is_cancelled=self._is_cancelled,
            on_progress=lambda done, text: self.tell(Phase.PLANNING, "planning", 0.4 * done, text),
        )
        motion = plan.motion.part(0, count)
        self._rest = plan.motion.part(count) if count < left else None
        begin = _last_time(self._port)
        self._port.follow(
            axes_trajectory(motion, place), lambda done: self.tell(Phase.MOVING, "moving", 0.4 + 0.6 * done)
        )
        self._before = motion if self._before is None else _joined(self._before, motion)
        part = Part(begin, _last_time(self._port), count, self._condition(), np.nan, plan.gap, plan.seconds)
        self.parts.append(part)
        self.parts[-1] = replace(part, reached=condition_of_data(robot, self.data(), self.columns))
        return len(self.parts) < len(self._counts)

    def _time_share(self, number: int) -> float:
        parts = len(self._counts)
        if parts == 1:
            return 1.0
        return _FIRST_TIME if number == 0 else (1.0 - _FIRST_TIME) / (parts - 1)

    def _condition(self) -> float:
        excitation, motion = self._task.excitation, self._before
        if motion is None:
            return np.inf
        information = IntervalInformation(
            self._task.robot, self.parameters, excitation.period, excitation.samples, self.columns
        )
        return information.condition_number(motion.joints.knots, motion.wheel_turns)

    def tell(self, phase: Phase, what: str, within: float, detail: str = "") -> None:
        """Report the progress within the present part, 0..1; of the last one when its motion has ended."""
        number, parts = len(self.parts) - (phase is Phase.ESTIMATING), len(self._counts)
        done = (sum(self._counts[:number]) + within * self._counts[number]) / sum(self._counts)
        text = f"{what}, part {number + 1} of {parts}{f': {detail}' if detail else ''}"
        share = min(self.length * done, 1.0)
        self._on_progress(FloatingProgress(phase, text, share, number + 1, parts, held=self.held))

    def data(self) -> FloatingData:
        """Return the samples of all parts that are done."""
        windows = [(part.begin, part.end) for part in self.parts]
        return select_motion(self._task.robot, self._port.samples(), windows)


def axes_trajectory(motion: FloatingMotion, place: Array) -> CycloidTrajectory:
    """Return one trajectory of joints and wheels, which begins at the place of the wheels, ``place`` (n + W,) [rad]."""
    n = motion.joints.n
    turned = np.concatenate([np.zeros((1, len(place) - n)), np.cumsum(motion.wheel_turns, axis=0)])
    knots = np.concatenate([motion.joints.knots, place[n:] + turned], axis=1)
    knots[0] = place
    return CycloidTrajectory(knots, motion.joints.period)


def _updated(task: Task, minimal: MinimalParameters, data: FloatingData, parameters: Array) -> Array:
    """Return the parameters to plan the next part with: estimated ones where possible, else the earlier ones."""
    method, is_momentum_zero = task.settings.method, task.assumptions.is_momentum_zero
    try:
        values = estimate_minimal(task.robot, minimal, data, method, is_momentum_zero).values
    except ParameterOutOfRange:
        return parameters
    return _usable(task.robot, minimal.embed(values), parameters)


def _usable(robot: FreeFlyer, parameters: Array, otherwise: Array) -> Array:
    """Return parameters if the robot as a whole has a positive inertia with them, at home; else the others."""
    try:
        require_usable(robot, parameters)
    except ParameterOutOfRange:
        return otherwise
    return parameters


def require_usable(robot: FreeFlyer, parameters: Array) -> None:
    """Require that the robot as a whole has a positive inertia with parameters, at home.

    Raises:
        ParameterOutOfRange: It has not.
    """
    compute_base_twist(robot.tree, parameters, robot.home[None], np.zeros((1, robot.n)))


def _split(intervals: int, parts: int, parameters: int) -> list[int]:
    """Return the intervals of each part: the first is as short as an estimate of all parameters allows."""
    if parts == 1:
        return [intervals]
    if intervals < 2 * parts:
        raise ParameterOutOfRange("intervals [-]", intervals, f"at least {2 * parts}, two for each part")
    enough = -(-parameters // ROWS) + _FIRST_SPARE
    first = min(max(enough, round(_FIRST_SHARE * intervals)), intervals // parts)
    rest = np.diff(np.linspace(0, intervals - first, parts).round().astype(int))
    return [first, *(int(count) for count in rest)]


def _last_time(port: FreeFlyerPort) -> float:
    times = port.samples().times
    return float(times[-1]) if len(times) else -np.inf


def _joined(first: FloatingMotion, second: FloatingMotion) -> FloatingMotion:
    knots = np.concatenate([first.joints.knots, second.joints.knots[1:]])
    turns = np.concatenate([first.wheel_turns, second.wheel_turns])
    return FloatingMotion(CycloidTrajectory(knots, first.joints.period), turns)
