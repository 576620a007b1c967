"""Identification of a free-flying robot and of its load, from samples of a motion or of a recording."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import MISSING, ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.core.estimation.parameters.bounds import find_narrower
from sysid_ros.core.estimation.parameters.estimate import NARROWER, Alarm, AlarmCode, ParameterEstimate, Quantity
from sysid_ros.core.estimation.parameters.unknowns import object_within
from sysid_ros.core.procedure.types import Phase, Progress
from sysid_ros.space.core.bounds import (
    FloatingBounds,
    InconsistentMomentum,
    ObjectEstimate,
    bound_minimal,
    estimate_object,
    known_minimal,
    object_columns,
)
from sysid_ros.space.core.excitation import ExcitationSettings
from sysid_ros.space.core.measurements import Assumptions, FloatingData, Recording, data_from_rates
from sysid_ros.space.core.method import Method
from sysid_ros.space.core.minimal_parameters import (
    MinimalEstimate,
    MinimalParameters,
    build_minimal_parameters,
    estimate_minimal,
)
from sysid_ros.space.core.momentum import system_kinematic_matrix
from sysid_ros.space.core.momentum_rows import ROWS
from sysid_ros.space.core.robot import FreeFlyer

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ProcedureSettings(Settings):
    """Settings of the identification.

    Raises:
        ParameterOutOfRange: A value is out of range.
    """

    intervals: int = setting(60, "-", lower=2, upper=100000)
    """Intervals of the whole motion."""
    parts: int = setting(2, "-", lower=1, upper=20)
    """Parts of the motion: each but the first is planned with the estimate before it."""
    method: Method = setting(Method.TOTAL)
    """How the minimal parameters are estimated."""
    is_bounded: bool = setting(True)
    """Whether the minimal parameters get guaranteed bounds beside the estimate; an object always does."""


@dataclass(frozen=True)
class ObjectSettings(Settings):
    """Range of objects in the hand.

    Raises:
        ParameterOutOfRange: A value is out of range.
    """

    frame: str = setting("")
    """Link or joint in whose frame the object is described, and whose body holds it; empty: the robot's ``tool``."""
    mass: float = setting(100.0, "kg", above=0.0, upper=1e6)
    """Largest mass it may have."""
    reach: float = setting(1.5, "m", above=0.0, upper=100.0)
    """Distance from the origin of its frame within which all of it lies."""
    target_width: float = setting(0.0, "kg", lower=0.0, upper=1e6, library_only=True)
    """Width of the bounds of the mass at which the motion ends before its last part; 0: never."""

    @property
    def prior(self) -> Box:
        """Box of the parameters of every such object, all of it within its reach, (10,)."""
        return object_within(self.mass, self.reach)[0]


@dataclass(frozen=True)
class Task:
    """An identification and its settings.

    Attributes:
        robot: The robot, with its nominal parameters.
        settings: Settings of the procedure.
        excitation: Settings of the searches; their time limit is shared by all of them.
        assumptions: Assumptions of the bounds.
    """

    robot: FreeFlyer
    settings: ProcedureSettings = field(default_factory=ProcedureSettings)
    excitation: ExcitationSettings = field(default_factory=ExcitationSettings)
    assumptions: Assumptions = field(default_factory=Assumptions)


@dataclass(frozen=True, eq=False)
class KnownRobot:
    """Bounds of a robot that has caught something.

    Attributes:
        values: Its nominal minimal parameters without the object, (M,).
        box: Box that holds them, (M,).
        recordings: Motions before the catch; they narrow the box together with the object's.
    """

    values: Array
    box: Box
    recordings: tuple[Recording, ...] = ()


@dataclass(frozen=True, eq=False)
class Samples:
    """Measurements of the sensors.

    Attributes:
        times: Ascending, (N,) [s].
        twist: Linear and angular velocity of the base in its own axes, (N, 6) [m/s, rad/s].
        q: Positions of joints, then angles of wheels, (N, n + W) [rad].
        v: Their rates, (N, n + W) [rad/s].
        rotations: Axes of the base in inertial ones, (N, 3, 3); None to integrate the twist.
        positions: Origin of the base, (N, 3) [m]; None to integrate the twist.
    """

    times: Array
    twist: Array
    q: Array
    v: Array
    rotations: Array | None = None
    positions: Array | None = None


@dataclass(frozen=True)
class FloatingProgress(Progress):
    """Progress of an identification; a trajectory is a part of the motion, 0 after the last.

    Attributes:
        held: Estimate of an object in the hand so far; None without one.
    """

    estimate: None = None
    held: ObjectEstimate | None = None


@dataclass(frozen=True)
class Part:
    """One part of the motion.

    Attributes:
        begin: Time of its first sample [s].
        end: Time of its last sample [s].
        intervals: Number of intervals [-].
        planned: Condition number it was planned for, with the parts before it [-].
        reached: Condition number of the data up to its end [-].
        gap: Smallest sampled gap between bodies along it [m].
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
    """Result of the identification of a robot.

    Attributes:
        task: The task.
        minimal: Its minimal parameters.
        believed: Their nominal values, (M,).
        estimate: The estimate.
        data: The samples of the motion, from which it was computed.
        parts: The parts of the motion; empty if unknown.
        condition_number: Condition number of the data [-].
        residual: Root mean square residual of the momentum equation, linear and angular, (2,) [kg m/s, kg m^2/s].
        bounds: Guaranteed bounds; None if not requested, if the robot's settings give no prior, or if no parameters are
            consistent with the data.
        inconsistency: The last of these, an alarm: an assumption is violated. None if all is well.
    """

    task: Task
    minimal: MinimalParameters
    believed: Array
    estimate: MinimalEstimate
    data: FloatingData
    parts: tuple[Part, ...]
    condition_number: float
    residual: Array
    bounds: FloatingBounds | None = None
    inconsistency: InconsistentMomentum | None = None

    @property
    def known_robot(self) -> KnownRobot:
        """Its bounds of the robot, for the identification of an object in its hand.

        Raises:
            ParameterOutOfRange: There are no bounds.
        """
        if self.bounds is None:
            raise ParameterOutOfRange("bounds of the robot", MISSING, "an identification with guaranteed bounds")
        recording = self.task.assumptions.recording(self.task.robot, self.data, holds_object=False)
        return KnownRobot(self.estimate.values, self.bounds.box, (recording,))


@dataclass(frozen=True, eq=False)
class ObjectIdentification:
    """Result of the identification of an object.

    Attributes:
        task: The task.
        settings: Range of objects.
        known_robot: Bounds of the robot.
        estimate: Bounds and estimate of the object; of earlier data, if there were any, where the last ones are
            inconsistent.
        data: The samples of the motion.
        parts: The parts of the motion; empty if unknown.
        condition_number: Condition number of the data, each parameter scaled by its prior [-].
        inconsistency: Why there is no estimate; None if all is well.
    """

    task: Task
    settings: ObjectSettings
    known_robot: KnownRobot
    estimate: ObjectEstimate | None
    data: FloatingData
    parts: tuple[Part, ...]
    condition_number: float
    inconsistency: InconsistentMomentum | None = None

    def as_estimate(self) -> ParameterEstimate:
        """Return the estimate in the form of payloads of arms."""
        found, nothing = self.estimate, np.full(10, np.nan)
        step = float(np.median(np.diff(self.data.times)))
        block = self.task.assumptions.recording(self.task.robot, self.data).block
        about: dict[str, Any] = {
            "method": "set_membership",
            "is_guaranteed": True,
            "target": "payload",
            "frame": self.settings.frame or self.task.robot.tool,
            "number_of_windows": len(self.data) // block,
            "data_seconds": step * len(self.data),
            "condition_number": self.condition_number,
        }
        if found is None or self.inconsistency is not None:
            row = None if self.inconsistency is None else self.inconsistency.row
            code = AlarmCode.JOINTLY_INCONSISTENT if row is None else AlarmCode.WINDOW_INCONSISTENT
            alarm = Alarm(code, str(self.inconsistency), None, None if row is None else row // ROWS)
            return ParameterEstimate(nothing, nothing, nothing, guarantee="", is_consistent=False, alarm=alarm, **about)
        box, prior = found.bounds.box, found.bounds.prior
        narrower = find_narrower(box, prior, None)
        missing = [quantity.value for quantity in Quantity if quantity not in narrower]
        is_fitted = bool(np.all(np.isfinite(found.values)))
        unfitted = Alarm(AlarmCode.FIT_NOT_CONVERGED, "the bounds hold, but the point estimate was not found")
        return ParameterEstimate(
            found.values,
            box.lower,
            box.upper,
            guarantee=found.bounds.guarantee,
            is_consistent=True,
            alarm=None if is_fitted else unfitted,
            error_budget=found.bounds.error_budget,
            is_narrower=box.width <= NARROWER * prior.width,
            narrower=narrower,
            shortfall=f"the data add no information on {', '.join(missing)}" if missing else "",
            **about,
        )


def estimate_free_flyer(
    task: Task,
    data: FloatingData,
    parts: tuple[Part, ...] = (),
    is_cancelled: Callable[[], bool] = lambda: False,
    on_progress: Callable[[FloatingProgress], None] = lambda progress: None,
) -> FreeFlyerIdentification:
    """Estimate the minimal parameters from samples, of a motion just made or of a recording, and bound them.

    Raises:
        Cancelled: ``is_cancelled`` returned true.
        ParameterOutOfRange: The data do not determine all minimal parameters.
    """
    robot, is_momentum_zero = task.robot, task.assumptions.is_momentum_zero
    minimal = build_minimal_parameters(robot.tree)
    on_progress(FloatingProgress(Phase.ESTIMATING, "estimating", 0.0, 0, len(parts)))
    estimate = estimate_minimal(robot, minimal, data, task.settings.method, is_momentum_zero)
    rows = minimal.columns(system_kinematic_matrix(robot.tree, data.q, data.v, data.base_twist))
    left = rows @ estimate.values + robot.wheels.momentum(data.wheel_rates)
    if not is_momentum_zero:
        back = np.swapaxes(data.rotations, 1, 2)
        linear = np.einsum("nij,j->ni", back, estimate.momentum[:3])
        turning = estimate.momentum[3:] - np.cross(data.positions, estimate.momentum[:3])
        left -= np.concatenate([linear, np.einsum("nij,nj->ni", back, turning)], axis=1)
    residual = np.sqrt((left.reshape(-1, 2, 3) ** 2).sum(axis=2).mean(axis=0))
    condition = condition_of_data(robot, data)
    believed = minimal.values(robot.tree.parameters)
    result = FreeFlyerIdentification(task, minimal, believed, estimate, data, parts, condition, residual)
    if not task.settings.is_bounded or robot.prior is None:
        on_progress(FloatingProgress(Phase.ESTIMATING, "estimating", 1.0, 0, len(parts)))
        return result

    def tell(share: float, text: str) -> None:
        on_progress(FloatingProgress(Phase.ESTIMATING, f"bounding: {text}", share, 0, len(parts)))

    try:
        recording = task.assumptions.recording(robot, data)
        prior = minimal.box(robot.prior)
        bounds = bound_minimal(robot, minimal, [recording], prior, is_cancelled=is_cancelled, on_progress=tell)
    except InconsistentMomentum as error:
        return replace(result, inconsistency=error)
    return replace(result, bounds=bounds)


def known_before(robot: FreeFlyer) -> KnownRobot:
    """Return the prior from the settings of a robot.

    Raises:
        ParameterOutOfRange: They give no ranges.
    """
    if robot.prior is None:
        allowed = "ranges of mass, CoM and inertia of every body, or the estimate of an identification with bounds"
        raise ParameterOutOfRange(f"section 'prior' of {robot.name}", MISSING, allowed)
    minimal = build_minimal_parameters(robot.tree)
    return KnownRobot(minimal.values(robot.tree.parameters), minimal.box(robot.prior))


def estimate_held(
    task: Task,
    settings: ObjectSettings,
    known_robot: KnownRobot,
    data: FloatingData,
    parts: tuple[Part, ...] = (),
    before: ObjectIdentification | None = None,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_progress: Callable[[FloatingProgress], None] = lambda progress: None,
) -> ObjectIdentification:
    """Bound and estimate the load of a robot from samples, of a motion just made or of a recording.

    Args:
        task: The identification.
        settings: Range of objects.
        known_robot: Bounds of the robot without the object.
        data: The samples.
        parts: The parts of the motion, where known.
        before: Result from fewer samples of the same object; bounds only become narrower.
        is_cancelled: Polled between programs.
        on_progress: Called with every change.

    Raises:
        Cancelled: ``is_cancelled`` returned true.
        ParameterOutOfRange: There is no such frame.
    """

    def tell(share: float, text: str) -> None:
        on_progress(FloatingProgress(Phase.ESTIMATING, f"bounding: {text}", share, 0, len(parts)))

    robot, frame = task.robot, settings.frame or task.robot.tool
    minimal = build_minimal_parameters(robot.tree)
    condition = condition_of_data(robot, data, scaled_columns(robot, settings))
    earlier = None if before is None else before.estimate
    result = ObjectIdentification(task, settings, known_robot, earlier, data, parts, condition)
    try:
        found = estimate_object(
            robot,
            frame,
            [*known_robot.recordings, task.assumptions.recording(robot, data)],
            known_minimal(minimal, known_robot.box),
            settings.prior,
            earlier=None if earlier is None else earlier.bounds,
            is_cancelled=is_cancelled,
            on_progress=tell,
        )
    except InconsistentMomentum as error:
        return replace(result, inconsistency=error)
    return replace(result, estimate=found)


def select_motion(robot: FreeFlyer, samples: Samples, windows: list[tuple[float, float]] | None = None) -> FloatingData:
    """Build the data of the samples in which the robot moves.

    Args:
        robot: The robot.
        samples: All samples, without gaps in their times.
        windows: First and last times of motions [s]; None finds them by the speeds of joints and wheels.

    Raises:
        ParameterOutOfRange: There are none, or samples do not match.
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
    if samples.rotations is not None and samples.positions is not None:
        data = replace(data, rotations=samples.rotations, positions=samples.positions)
    return data.select(is_moving).rebased()


def condition_of_data(robot: FreeFlyer, data: FloatingData, columns: Array | None = None) -> float:
    """Compute the condition number of the regressor of samples [-].

    Args:
        robot: The robot.
        data: The samples.
        columns: Parameters of interest, see :class:`IntervalInformation`; None for the minimal parameters.
    """
    rows = system_kinematic_matrix(robot.tree, data.q, data.v, data.base_twist)
    rows = build_minimal_parameters(robot.tree).columns(rows) if columns is None else rows @ columns
    return float(np.linalg.cond(rows.reshape(-1, rows.shape[2])))


def scaled_columns(robot: FreeFlyer, settings: ObjectSettings) -> Array:
    """Return the columns of an object's parameters, each times the radius of its prior, (10 B, 10)."""
    return object_columns(robot, settings.frame or robot.tool) * settings.prior.radius
