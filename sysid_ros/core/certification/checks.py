"""The checks of a plan over pieces of its time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.chain import Motion, PathPieces, bounds, stop_corners
from sysid_ros.core.certification.distance import SphereBounds
from sysid_ros.core.certification.stop_model import (
    STOP_ERRORS,
    LimitKind,
    PlanRejected,
    TrackingErrors,
    VerifierSettings,
    error_bound,
    stop_torque_shape,
    stop_velocity_errors,
)
from sysid_ros.core.certification.torque import TorqueBounds, spread_parameters
from sysid_ros.core.collision.clearance import build_scene_model
from sysid_ros.core.tracking_bound.bound import TrackingBound
from sysid_ros.core.tracking_bound.stops import StopBound

Array = NDArray[np.float64]

ROUNDING = 1e-9
"""By how much every margin is lowered for rounding [-, rad, m].

A margin is the result of fewer than 1e4 additions and multiplications of double precision, one depending on the other,
of numbers whose products stay below 1e2 (limits are 1, lengths of the arm a few m, torques below 10 times their limit,
or the plan is rejected): the error stays below 1e4 * 1e2 * 2^-53 = 1.1e-10.
"""


@dataclass(frozen=True)
class Check:
    """Margins of one kind of limit over P pieces.

    Attributes:
        limit: Kind of limit.
        names: Subject of each row: a joint, or two objects.
        margin: Lower bounds of the margin, (rows, P).
        middle: The lower bound at the middle of each piece for a piece without length, (rows, P).
        value: Function of row and margin that returns the reached and the allowed value, in the unit.
        tolerance: By how much the smallest margin may be underestimated.
    """

    limit: LimitKind
    names: Sequence[tuple[str, ...]]
    margin: Array
    middle: Array
    value: Callable[[int, float], tuple[float, float]]
    tolerance: float


@dataclass
class Tightest:
    """The smallest margin of one kind found so far.

    Attributes:
        margin: Lower bound of all margins.
        middle: Smallest margin in the middle of any piece: no division raises ``margin`` above it.
        where: Its subject.
        when: Its time [s].
    """

    margin: float = np.inf
    middle: float = np.inf
    where: tuple[str, ...] = ()
    when: float = 0.0

    def take_middle(self, check: Check, times: Array) -> None:
        """Take in the margins in the middle of pieces, (rows, P), at times (P,)."""
        row, piece = np.unravel_index(int(np.argmin(check.middle)), check.middle.shape)
        if check.middle[row, piece] < self.middle:
            self.middle, self.when = float(check.middle[row, piece]), float(times[piece])
            self.where = check.names[int(row)]


@dataclass
class Division:
    """Divides time until all checks pass.

    Attributes:
        shortest: Half length below which a piece is not divided [s].
        tightest: Smallest margin of each kind.
        pieces: Pieces evaluated so far.
    """

    shortest: float
    tightest: dict[LimitKind, Tightest] = field(default_factory=dict)
    pieces: int = 0

    def run(
        self, evaluate: Callable[[Array, Array], Sequence[Check]], middle: Array, half: Array
    ) -> dict[LimitKind, Tightest]:
        """Evaluate pieces and divide those that decide.

        Args:
            evaluate: Function of middles and half lengths of pieces, each (P,) [s], that gives the checks.
            middle: Middles of the first pieces, (P,) [s].
            half: Their half lengths, (P,) [s].

        Returns:
            The smallest margin of each kind; all are at least 0.

        Raises:
            PlanRejected: A limit is broken in the middle of a piece, or the bound over a piece of the shortest length
                still breaks it.
        """
        self.tightest = {}
        while middle.size:
            self.pieces += middle.size
            checks = evaluate(middle, half)
            self.require_middles(checks, middle)
            for check in checks:
                self.tightest.setdefault(check.limit, Tightest()).take_middle(check, middle)
            flagged = np.zeros(middle.size, dtype=bool)
            for check in checks:
                lowest = check.margin.min(axis=0) - ROUNDING
                decides = lowest < self.tightest[check.limit].middle - check.tolerance
                flagged |= (lowest < 0.0) | decides | np.isnan(lowest)
            flagged &= half > self.shortest
            done = ~flagged
            for check in checks:
                self._require(check, check.margin[:, done] - ROUNDING, middle[done])
                tightest = self.tightest[check.limit]
                tightest.margin = min(tightest.margin, float(check.margin[:, done].min(initial=np.inf)) - ROUNDING)
            half = np.repeat(0.5 * half[flagged], 2)
            middle = np.repeat(middle[flagged], 2) + np.tile([-1.0, 1.0], flagged.sum()) * half
        return self.tightest

    def require_middles(self, checks: Sequence[Check], middle: Array) -> None:
        """Require that nothing is broken in the middle of any piece, at times (P,) [s].

        Raises:
            PlanRejected: A limit is broken there.
        """
        for check in checks:
            self._require(check, check.middle, middle)

    def _require(self, check: Check, margins: Array, times: Array) -> None:
        if not margins.size or margins.min() >= 0.0:
            return
        row, piece = np.unravel_index(int(np.argmin(np.where(np.isnan(margins), -np.inf, margins))), margins.shape)
        value, allowed = check.value(int(row), float(margins[row, piece]))
        raise PlanRejected(check.limit, check.names[int(row)], float(times[piece]), value, allowed)


@dataclass(frozen=True)
class AllowedErrors:
    """Largest errors of the controller that a proof allows for, each (n,).

    Attributes:
        position: Position error [rad].
        velocity: Velocity error [rad/s].
        torque: Commanded torque less the torque that the true parameters need for the plan [Nm].
        torques: Function that bounds the same over pieces of the plan, of their middles and half lengths (P,) [s], as
            (P, n) [Nm]; None where only the largest is known.
        stops: Function that bounds the errors in all stops of a time to rest [s]; None where no bounds are known.
        friction_speed: Of the control law that the torque is bounded for [rad/s]: it includes the Coulomb friction that
            the law does not compensate, see :func:`counted_friction`. 0 without a law.
        is_proven: Whether they are proven throughout, and no term of the model estimated.
    """

    position: Array
    velocity: Array
    torque: Array
    torques: Callable[[Array, Array], Array] | None = None
    stops: Callable[[float], StopBound] | None = None
    friction_speed: float = 0.0
    is_proven: bool = False

    def torque_over(self, middle: Array, half: Array) -> Array:
        """Return the torque of the feedback over pieces of the plan, (n, P) or (n, 1) [Nm].

        Pieces have their middles (P,) [s] and half lengths (P,) [s].
        """
        return self.torque[:, None] if self.torques is None else self.torques(middle, half).T

    @classmethod
    def of(cls, errors: TrackingErrors, n: int) -> AllowedErrors:
        """Return the errors, one per joint.

        Raises:
            ParameterOutOfRange: An entry is negative or not finite, or a length is wrong.
        """
        units = (("position", "rad"), ("velocity", "rad/s"), ("torque", "Nm"))
        position, velocity, torque = (
            error_bound(f"errors.{name} [{unit}]", getattr(errors, name), n) for name, unit in units
        )
        if isinstance(errors, TrackingBound):
            speed = errors.whole.settings.friction_speed
            return cls(position, velocity, torque, errors.torque_over, errors.in_stops, speed, errors.is_proven)
        if isinstance(errors, AllowedErrors):
            return replace(errors, position=position, velocity=velocity, torque=torque)
        return cls(position, velocity, torque)

    @classmethod
    def larger_of(cls, one: TrackingBound, other: TrackingBound) -> AllowedErrors:
        """Return the larger errors of two bounds of a motion under the same controller."""

        def torques(middle: Array, half: Array) -> Array:
            return np.maximum(one.torque_over(middle, half), other.torque_over(middle, half))

        def stops(brake_time: float) -> StopBound:
            return one.in_stops(brake_time).larger(other.in_stops(brake_time))

        values = ((getattr(one, name), getattr(other, name)) for name in ("position", "velocity", "torque"))
        position, velocity, torque = (np.maximum(*both) for both in values)
        is_proven = one.is_proven or other.is_proven
        return cls(position, velocity, torque, torques, stops, one.whole.settings.friction_speed, is_proven)

    def enlarged(self, share: float) -> AllowedErrors:
        """Return errors that are larger by a share."""
        torques, stops, factor = self.torques, self.stops, 1.0 + abs(share)
        return replace(
            self,
            position=factor * self.position,
            velocity=factor * self.velocity,
            torque=factor * self.torque,
            torques=None if torques is None else lambda middle, half: factor * torques(middle, half),
            stops=None if stops is None else lambda brake_time: stops(brake_time).enlarged(share),
        )

    def with_stops(self, stops: StopBound, v_max: Array) -> AllowedErrors:
        """Return the errors in the plan and in stops with these bounds, but for the torque in stops."""
        position = np.maximum(self.position, stops.position)
        return AllowedErrors(position, np.maximum(self.velocity, stops.speed_errors(v_max)), self.torque)

    def with_assumed_stops(self, v_max: Array) -> AllowedErrors:
        """Return the errors in the plan and those assumed in stops, but for the torque, which grows along a stop."""
        velocity = stop_velocity_errors(self.velocity, v_max)
        return AllowedErrors(STOP_ERRORS * self.position, velocity, self.torque)


class MotionChecks:
    """Margins of a plan over pieces of its time, and of the stops along it where the settings name brake times.

    A stop passes the same positions, but errors may be larger in it: as proven, or by ``STOP_ERRORS`` and
    ``stop_torque_growths`` for errors without bounds in stops.
    """

    def __init__(self, assumptions: Assumptions, errors: AllowedErrors, settings: VerifierSettings):
        robot, scene = assumptions.robot, assumptions.scene
        self._limits = robot.limits
        self._names = [(name,) for name in robot.joint_names]
        self._errors, self._friction_speed = errors, errors.friction_speed
        if settings.brake_times and errors.stops is None:
            self._errors = errors.with_assumed_stops(robot.limits.v_max)
        self._spread = spread_parameters(robot, assumptions.boxes)
        self._spheres = SphereBounds(robot, build_scene_model(robot, scene), self._errors.position)
        self._clearance = scene.clearance
        self._settings = settings
        self._tau = settings.torque_fraction * robot.limits.tau_max

    def with_stops(self, stops: StopBound) -> MotionChecks:
        """Return the checks with bounds of the errors in stops, but for the torque in stops."""
        checks = copy(self)
        checks._errors = self._errors.with_stops(stops, self._limits.v_max)
        checks._spheres = self._spheres.with_error(checks._errors.position)
        return checks

    def limits(self, path: PathPieces) -> list[Check]:
        """Position, velocity and acceleration limits."""
        rates = (
            (LimitKind.VELOCITY, path.velocity, self._errors.velocity, self._limits.v_max),
            (LimitKind.ACCELERATION, path.acceleration, np.zeros_like(self._errors.velocity), self._limits.a_max),
        )
        return [self._positions(path), *(self._rates(*arguments) for arguments in rates)]

    def torques(self, motion: Motion) -> TorqueBounds:
        """Worst-case torques over the pieces."""
        return TorqueBounds(self._spread, motion, self._friction_speed)

    def largest_torque(self, torques: TorqueBounds, feedback: Array) -> Array:
        """Return what torque and feedback of :meth:`motion_torque` never exceed in the pieces, (n, P) [Nm]."""
        return torques.largest([(1.0, 1.0, 0.0)], [feedback], self._tau)[0]

    def motion_torque(self, torques: TorqueBounds, feedback: Array) -> list[Check]:
        """Torque limits of the plan itself, with a feedback torque of (n, P) or (n, 1) [Nm] over the pieces."""
        return [self._torque(LimitKind.TORQUE, torques, [(1.0, 1.0, 0.0)], [feedback])]

    def stop_torque(self, torques: TorqueBounds, brake_time: float, feedback: Array) -> list[Check]:
        """Torque limits of stops that pass the pieces at any share of their progress.

        The torque is convex in (r, r^2, d), so the largest one over the polytope is at a corner.

        Args:
            torques: Worst-case torques over the pieces.
            brake_time: Time to rest [s].
            feedback: Torque of the feedback in stops that pass the pieces, (n, P) [Nm].
        """
        clocks = stop_corners() / [1.0, 1.0, brake_time]
        return [self._torque(LimitKind.BRAKING_TORQUE, torques, clocks, [feedback] * len(clocks))]

    def assumed_stop_torque(self, torques: TorqueBounds, brake_time: float, growths: Array) -> list[Check]:
        """Torque limits of the same with errors that are not proven.

        The torque is convex in (r, r^2, d) and the growth of the feedback linear, so the largest sum over the polytope
        is at a corner.

        Args:
            torques: Worst-case torques over the pieces.
            brake_time: Time to rest [s].
            growths: :func:`stop_torque_growths` of the pieces, (P,).
        """
        clocks, errors = stop_corners() / [1.0, 1.0, brake_time], self._errors.torque[:, None]
        feedback = [errors + stop_torque_shape(r, square) * growths * errors for r, square, _ in clocks]
        return [self._torque(LimitKind.BRAKING_TORQUE, torques, clocks, feedback)]

    def distances(self, motion: Motion) -> list[Check]:
        """Distances of spheres to each other, to the ground and to obstacles."""
        return [
            Check(
                gap.limit,
                gap.names,
                gap.bound - self._clearance,
                gap.middle - self._clearance,
                lambda row, margin: (margin + self._clearance, self._clearance),
                self._settings.distance_tolerance,
            )
            for gap in self._spheres.evaluate(motion)
        ]

    def _positions(self, path: PathPieces) -> Check:
        lower, upper = bounds(path.position)
        limits, error = self._limits, self._errors.position[:, None]
        n = len(self._names)

        def margins(lowest: Array, highest: Array) -> Array:
            below = lowest - error - limits.q_lower[:, None]
            return np.concatenate([below, limits.q_upper[:, None] - highest - error])

        def value(row: int, margin: float) -> tuple[float, float]:
            is_low = row < n
            allowed = float((limits.q_lower if is_low else limits.q_upper)[row % n])
            return (allowed + margin if is_low else allowed - margin), allowed

        middle = margins(path.position[0], path.position[0])
        tolerance = self._settings.distance_tolerance
        return Check(LimitKind.POSITION, self._names * 2, margins(lower, upper), middle, value, tolerance)

    def _rates(self, kind: LimitKind, polynomials: Array, error: Array, limit: Array) -> Check:
        lower, upper = bounds(polynomials)
        largest = np.maximum(-lower, upper)
        return self._relative(kind, (largest, np.abs(polynomials[0])), error[:, None], limit)

    def _torque(self, kind: LimitKind, torques: TorqueBounds, clocks: ArrayLike, feedback: Sequence[Array]) -> Check:
        return self._relative(kind, torques.largest(clocks, feedback, self._tau), np.zeros((1, 1)), self._tau)

    def _relative(self, kind: LimitKind, sizes: tuple[Array, Array], error: Array, limit: Array) -> Check:
        """Return the margins of sizes over and in the middle of pieces, each (n, P), as shares of limits (n,).

        The errors are (n, P) or (n, 1).
        """

        def margins(size: Array) -> Array:
            return 1.0 - (size + error) / limit[:, None]

        def value(row: int, margin: float) -> tuple[float, float]:
            return float((1.0 - margin) * limit[row]), float(limit[row])

        bound, middle = (margins(size) for size in sizes)
        return Check(kind, self._names, bound, middle, value, self._settings.rate_tolerance)
