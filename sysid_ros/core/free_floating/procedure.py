"""The identification of a free-flying robot: plan, move, estimate, and once more with what was estimated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.core.free_floating.dynamics import embed
from sysid_ros.core.free_floating.excitation import ExcitationSettings, plan_with_free_knots
from sysid_ros.core.free_floating.intervals import FloatingMotion
from sysid_ros.core.free_floating.measurements import FloatingData, data_from_rates
from sysid_ros.core.free_floating.minimal_parameters import MinimalParameters, build_minimal_parameters
from sysid_ros.core.free_floating.momentum import compute_base_twist, system_kinematic_matrix
from sysid_ros.core.free_floating.regression import Method, MinimalEstimate, NotIdentifiable, estimate_minimal
from sysid_ros.core.free_floating.robot import FreeFlyer
from sysid_ros.core.trajectories.cycloid import CycloidTrajectory

Array = NDArray[np.float64]

_FIRST_SHARE = 0.25
"""Share of the intervals, and of the time for planning, that the first part gets; the others share the rest."""

_PLANNING_SHARE = 0.4
"""Share of a part's progress that planning counts for; the motion is the rest."""


@dataclass(frozen=True)
class ProcedureSettings(Settings):
    """Settings of the identification.

    Raises:
        ParameterOutOfRange: A value is out of range.
    """

    intervals: int = setting(60, "-", lower=2, upper=100000)
    """Intervals of the whole motion."""
    parts: int = setting(2, "-", lower=1, upper=20)
    """Parts of the motion: each but the first is planned with what was estimated before."""
    method: Method = setting(Method.TOTAL)
    """How the minimal parameters are estimated."""
    is_momentum_zero: bool = setting(True)
    """Whether robot and wheels together have no momentum at the start; if not, it is estimated too."""


@dataclass(frozen=True, eq=False)
class Samples:
    """What the sensors measured.

    Attributes:
        times: Ascending, (N,) [s].
        twist: Linear and angular velocity of the base in its own axes, (N, 6) [m/s, rad/s].
        q: Positions of joints, then angles of wheels, (N, n + W) [rad].
        v: Their rates, (N, n + W) [rad/s].
    """

    times: Array
    twist: Array
    q: Array
    v: Array


class Stage(Enum):
    """What is being done."""

    PLANNING = "planning"
    MOVING = "moving"
    ESTIMATING = "estimating"


@dataclass(frozen=True)
class Progress:
    """How far an identification is.

    Attributes:
        share: Share that is done, 0..1.
        stage: What is being done.
        part: Number of the part, from 1; 0 after the last.
        parts: How many there are.
        detail: What was found so far, in words; empty for nothing.
    """

    share: float
    stage: Stage
    part: int
    parts: int
    detail: str = ""

    @property
    def text(self) -> str:
        """In words."""
        head = f"{self.stage.value}, part {self.part} of {self.parts}" if self.part else self.stage.value
        return f"{head}: {self.detail}" if self.detail else head


class FreeFlyerPort(Protocol):
    """What the procedure needs of a robot: to move it, and what was measured."""

    def reference(self) -> Array:
        """Return where joints and wheels are told to be, at rest, (n + W,) [rad]."""

    def follow(self, trajectory: CycloidTrajectory, on_progress: Callable[[float], None]) -> None:
        """Follow a trajectory of joints and wheels to its end.

        Raises:
            SysidError: It was refused or did not come to its end.
        """

    def samples(self) -> Samples:
        """Return all that was measured since the port was opened."""


@dataclass(frozen=True)
class Part:
    """One part of the motion.

    Attributes:
        begin: Time of its first sample [s].
        end: Time of its last sample [s].
        intervals: Number of intervals [-].
        planned: Condition number it was planned for, with the parts before it [-].
        reached: Condition number of the data up to its end [-].
        gap: Smallest gap between bodies seen along it [m].
        seconds: Time the search took [s].
    """

    begin: float
    end: float
    intervals: int
    planned: float
    reached: float
    gap: float
    seconds: float


@dataclass(frozen=True, eq=False)
class FreeFlyerIdentification:
    """What was identified.

    Attributes:
        robot: The robot.
        minimal: Its minimal parameters.
        believed: What was believed of them beforehand, (P,).
        estimate: The estimate.
        data: The samples it rests on: those of the motion.
        parts: The parts of the motion; empty where it is not known.
        condition_number: Condition number of the data [-].
        residual: Root mean square of what the momentum equation leaves, linear and angular, (2,) [kg m/s, kg m^2/s].
        settings: How it was done.
    """

    robot: FreeFlyer
    minimal: MinimalParameters
    believed: Array
    estimate: MinimalEstimate
    data: FloatingData
    parts: tuple[Part, ...]
    condition_number: float
    residual: Array
    settings: ProcedureSettings


def identify_free_flyer(
    robot: FreeFlyer,
    port: FreeFlyerPort,
    settings: ProcedureSettings,
    excitation: ExcitationSettings,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> FreeFlyerIdentification:
    """Identify a free-flying robot from where it is.

    Args:
        robot: The robot, with the parameters that are believed beforehand.
        port: The way to it.
        settings: Settings of the procedure.
        excitation: Settings of the searches; their time limit is shared by all of them.
        is_cancelled: Looked at while planning; the port ends a motion by itself.
        on_progress: Called with every change.

    Raises:
        PlanningCancelled: ``is_cancelled`` said so while planning.
        SelfCollision: No motion that keeps clear was found.
        NotIdentifiable: The data do not determine all minimal parameters.
        SysidError: What the port raises.
    """
    minimal = build_minimal_parameters(robot.tree)
    parameters, parts = robot.tree.parameters, list[Part]()
    before: FloatingMotion | None = None
    counts = _split(settings.intervals, settings.parts)
    done = 0.0
    for number, count in enumerate(counts, start=1):
        share = count / settings.intervals
        teller = _PartTeller(on_progress, number, len(counts), (done, share))
        place = port.reference()
        plan = plan_with_free_knots(
            robot,
            parameters,
            count,
            replace(excitation, time_limit=excitation.time_limit * share),
            start=np.clip(place[: robot.n], robot.q_lower, robot.q_upper),
            before=before,
            is_cancelled=is_cancelled,
            on_progress=teller.tell_planning,
        )
        begin = _last_time(port)
        port.follow(axes_trajectory(plan.motion, place), teller.tell_moving)
        before = plan.motion if before is None else _joined(before, plan.motion)
        data = select_motion(robot, port.samples(), [(p.begin, p.end) for p in parts] + [(begin, np.inf)])
        end, reached = float(data.times[-1]), data_condition_number(robot, minimal, data)
        parts.append(Part(begin, end, count, plan.condition_number, reached, plan.gap, plan.seconds))
        done += share
        if number < len(counts):
            parameters = _updated(robot, minimal, data, settings, parameters)
    on_progress(Progress(1.0, Stage.ESTIMATING, 0, len(counts)))
    windows = [(part.begin, part.end) for part in parts]
    return estimate_free_flyer(robot, select_motion(robot, port.samples(), windows), settings, tuple(parts))


def estimate_free_flyer(
    robot: FreeFlyer, data: FloatingData, settings: ProcedureSettings, parts: tuple[Part, ...] = ()
) -> FreeFlyerIdentification:
    """Estimate the minimal parameters from samples, of a motion just made or of a recording.

    Args:
        robot: The robot.
        data: The samples.
        settings: Settings of the procedure.
        parts: The parts of the motion, where known.

    Raises:
        NotIdentifiable: The data do not determine all minimal parameters.
    """
    minimal = build_minimal_parameters(robot.tree)
    estimate = estimate_minimal(robot, minimal, data, settings.method, settings.is_momentum_zero)
    rows = minimal.columns(system_kinematic_matrix(robot.tree, data.q, data.v, data.base_twist))
    left = rows @ estimate.values + robot.wheels.momentum(data.wheel_rates)
    if not settings.is_momentum_zero:
        back = np.swapaxes(data.rotations, 1, 2)
        linear = np.einsum("nij,j->ni", back, estimate.momentum[:3])
        turning = estimate.momentum[3:] - np.cross(data.positions, estimate.momentum[:3])
        left -= np.concatenate([linear, np.einsum("nij,nj->ni", back, turning)], axis=1)
    residual = np.sqrt((left.reshape(-1, 2, 3) ** 2).sum(axis=2).mean(axis=0))
    return FreeFlyerIdentification(
        robot,
        minimal,
        minimal.values(robot.tree.parameters),
        estimate,
        data,
        parts,
        data_condition_number(robot, minimal, data),
        residual,
        settings,
    )


def select_motion(robot: FreeFlyer, samples: Samples, windows: list[tuple[float, float]] | None = None) -> FloatingData:
    """Build the data of the samples in which the robot moves.

    Args:
        robot: The robot.
        samples: All samples, without gaps in their times.
        windows: First and last times of motions [s]; None finds them by the speeds of joints and wheels.

    Raises:
        ParameterOutOfRange: There are none, or samples do not belong together.
    """
    n = robot.n
    if len(samples.times) < 2:
        raise ParameterOutOfRange("number of samples", len(samples.times), "two or more; is the driver running?")
    data = data_from_rates(
        robot, samples.times, samples.twist, samples.v[:, :n], samples.v[:, n:], samples.q[0, :n], samples.q[:, :n]
    )
    if windows is None:
        least = np.concatenate([np.full(n, 10.0 * robot.noise[2] + 1e-4), np.full(robot.wheels.count, 1e-2)])
        is_moving = np.asarray((np.abs(samples.v) > least).any(axis=1))
    else:
        is_moving = np.zeros(len(data), dtype=bool)
        for begin, end in windows:
            is_moving |= (data.times >= begin) & (data.times <= end)
    if np.count_nonzero(is_moving) < 2:
        raise ParameterOutOfRange("samples in motion", int(np.count_nonzero(is_moving)), "two or more")
    return data.select(is_moving)


def axes_trajectory(motion: FloatingMotion, place: Array) -> CycloidTrajectory:
    """Return one trajectory of joints and wheels, which begins where the wheels are, ``place`` (n + W,) [rad]."""
    n = motion.joints.n
    turned = np.concatenate([np.zeros((1, len(place) - n)), np.cumsum(motion.wheel_turns, axis=0)])
    knots = np.concatenate([motion.joints.knots, place[n:] + turned], axis=1)
    knots[0] = place
    return CycloidTrajectory(knots, motion.joints.period)


def data_condition_number(robot: FreeFlyer, minimal: MinimalParameters, data: FloatingData) -> float:
    """Compute the condition number of the regressor of samples [-]."""
    rows = minimal.columns(system_kinematic_matrix(robot.tree, data.q, data.v, data.base_twist))
    return float(np.linalg.cond(rows.reshape(-1, minimal.count)))


def _updated(
    robot: FreeFlyer, minimal: MinimalParameters, data: FloatingData, settings: ProcedureSettings, parameters: Array
) -> Array:
    """Return the parameters to plan the next part with: estimated ones where they can be, else those of before."""
    try:
        values = embed(
            minimal, estimate_minimal(robot, minimal, data, settings.method, settings.is_momentum_zero).values
        )
        require_usable(robot, values)
        return values
    except (NotIdentifiable, ParameterOutOfRange):
        return parameters


def require_usable(robot: FreeFlyer, parameters: Array) -> None:
    """Require that the robot as a whole has a positive inertia with parameters, at home.

    Raises:
        ParameterOutOfRange: It has not.
    """
    compute_base_twist(robot.tree, parameters, robot.home[None], np.zeros((1, robot.n)))


@dataclass(frozen=True)
class _PartTeller:
    """Tells the progress of the whole from that of one part, which begins at a share of it and has another."""

    on_progress: Callable[[Progress], None]
    number: int
    parts: int
    begin_and_span: tuple[float, float]

    def tell_planning(self, share: float, detail: str) -> None:
        self._tell(Stage.PLANNING, _PLANNING_SHARE * share, detail)

    def tell_moving(self, share: float) -> None:
        self._tell(Stage.MOVING, _PLANNING_SHARE + (1.0 - _PLANNING_SHARE) * share)

    def _tell(self, stage: Stage, share: float, detail: str = "") -> None:
        begin, span = self.begin_and_span
        self.on_progress(Progress(min(begin + span * share, 1.0), stage, self.number, self.parts, detail))


def _split(intervals: int, parts: int) -> list[int]:
    """Return the intervals of each part."""
    if parts == 1:
        return [intervals]
    if intervals < 2 * parts:
        raise ParameterOutOfRange("intervals [-]", intervals, f"at least {2 * parts}, two for each part")
    first = max(2, round(_FIRST_SHARE * intervals))
    rest = np.diff(np.linspace(0, intervals - first, parts).round().astype(int))
    return [first, *(int(count) for count in rest)]


def _last_time(port: FreeFlyerPort) -> float:
    times = port.samples().times
    return float(times[-1]) if len(times) else -np.inf


def _joined(first: FloatingMotion, second: FloatingMotion) -> FloatingMotion:
    knots = np.concatenate([first.joints.knots, second.joints.knots[1:]])
    turns = np.concatenate([first.wheel_turns, second.wheel_turns])
    return FloatingMotion(CycloidTrajectory(knots, first.joints.period), turns)
