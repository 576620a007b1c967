"""Constraints of many motions at samples: required margins and errors, torque limits, free distances.

Constraints are rows that must not be positive: torque rows are shares of the limits, distance rows are in units of 0.1
m, so that 0.01 has similar weight in both. Margins grow after rejected candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.stop_model import (
    STOP_ERRORS,
    STOP_SPEED,
    LimitKind,
    PlanRejected,
    TrackingErrors,
    counted_friction,
    error_bound,
    stop_torque_growth,
    stop_torque_shape,
    stop_velocity_errors,
)
from sysid_ros.core.model.robot import JointLimits
from sysid_ros.core.planning.distances import DistanceSamples, FreeDistances
from sysid_ros.core.planning.dynamics import Index, TorqueSamples, WorstTorque
from sysid_ros.core.planning.motions import MotionBasis, StateLimits
from sysid_ros.core.planning.request import RecedingSettings
from sysid_ros.core.trajectories.base import State
from sysid_ros.core.trajectories.braking import clock_rates

Array = NDArray[np.float64]

_FIRST_POSITION, _FIRST_VELOCITY, _FIRST_TORQUE = 0.02, 0.05, 0.05  # [rad], [rad/s], share of the limits
_BEYOND = 1.2
"""Margins grow by this share of the shortfall, besides the steps below."""
_STEPS = {"torque": 0.005, "distance": 0.001, "position": 0.001, "velocity": 0.002, "acceleration": 0.002}
_MARGIN_OF = {
    LimitKind.POSITION: "position",
    LimitKind.VELOCITY: "velocity",
    LimitKind.ACCELERATION: "acceleration",
    LimitKind.TORQUE: "torque",
    LimitKind.TORQUE_AT_REST: "torque",
    LimitKind.BRAKING_TORQUE: "torque",
    LimitKind.CONTINUOUS_TORQUE: "torque",
    LimitKind.SELF_COLLISION: "distance",
    LimitKind.GROUND: "distance",
    LimitKind.OBSTACLE: "distance",
}
"""The margin that widens where a limit was broken."""
DISTANCE_UNIT = 0.1  # [m]
LITTLE = -0.5
"""Torque rows that are no larger than this are not worked out exactly: a step seldom changes one by so much."""
_STOP_PROGRESS = (0.5, 0.7)
"""Fractions of the progress of a stop where its torque tends to be largest."""


@dataclass(frozen=True)
class AssumedErrors:
    """Tracking errors to plan with.

    Attributes:
        position: (n,) [rad].
        velocity: (n,) [rad/s].
        torque: (n,) [Nm].
        is_measured: Whether they come from the bound of a motion, or are a guess.
    """

    position: Array
    velocity: Array
    torque: Array
    is_measured: bool = False

    @classmethod
    def none(cls, n: int) -> AssumedErrors:
        """Assume no errors at all."""
        return cls(np.zeros(n), np.zeros(n), np.zeros(n))

    @classmethod
    def guess(cls, limits: JointLimits) -> AssumedErrors:
        """Guess errors before any motion has been bounded."""
        n = limits.tau_max.size
        return cls(np.full(n, _FIRST_POSITION), np.full(n, _FIRST_VELOCITY), _FIRST_TORQUE * limits.tau_continuous)

    @classmethod
    def of(cls, errors: TrackingErrors, n: int) -> AssumedErrors:
        """Take the errors of a bound, each one number or (n,).

        Raises:
            ParameterOutOfRange: An entry is negative or not finite, or a length is wrong.
        """
        position = error_bound("position [rad]", errors.position, n)
        velocity = error_bound("velocity [rad/s]", errors.velocity, n)
        return cls(position, velocity, error_bound("torque [Nm]", errors.torque, n), is_measured=True)

    def grown(self, share: float) -> AssumedErrors:
        """Enlarge all errors by a share."""
        return self._combine(self, lambda one, _: (1.0 + share) * one)

    def towards(self, other: AssumedErrors, share: float) -> AssumedErrors:
        """Interpolate: the errors a share of the way from these to others."""
        return self._combine(other, lambda one, another: one + share * (another - one))

    def is_within(self, other: AssumedErrors) -> bool:
        """Return whether none of these errors exceeds the other's."""
        return all(bool(np.all(one <= another)) for one, another in zip(self._parts, other._parts, strict=True))

    def larger(self, other: AssumedErrors) -> AssumedErrors:
        """Take the larger of both, one by one; a measured one replaces a guess."""
        if self.is_measured != other.is_measured:
            return self if self.is_measured else other
        return self._combine(other, np.maximum)

    @property
    def _parts(self) -> tuple[Array, Array, Array]:
        return self.position, self.velocity, self.torque

    def _combine(self, other: AssumedErrors, function: Callable[[Array, Array], Array]) -> AssumedErrors:
        position, velocity, torque = map(function, self._parts, other._parts)
        return AssumedErrors(position, velocity, torque, self.is_measured)


@dataclass(frozen=True)
class Reserve:
    """Additional margin of a plan for the following ones: their tracking errors may be larger than its own.

    It keeps planning going and is not needed for safety: where it cannot be left, it is given up.

    Attributes:
        position: [rad].
        velocity: Share of the limits [-].
        distance: [m].
        torque: Share of the limits [-].
    """

    position: float = 0.02
    velocity: float = 0.03
    distance: float = 0.005
    torque: float = 0.01

    @classmethod
    def of_joints(cls) -> Reserve:
        """Keep the part that only narrows the ends to choose from, and so always leaves a choice."""
        return cls(distance=0.0, torque=0.0)

    @classmethod
    def none(cls) -> Reserve:
        """Leave no reserve."""
        return cls(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Margins:
    """Margins of each kind of limit, besides tracking errors.

    Attributes:
        torque: Share of the limits, (n,) [-].
        distance: [m].
        position: (n,) [rad].
        velocity: Share of the limits, (n,) [-].
        acceleration: Share of the limits, (n,) [-].
        reserve: Additional margin for the following plans.
    """

    torque: Array
    distance: float
    position: Array
    velocity: Array
    acceleration: Array
    reserve: Reserve = Reserve()

    @classmethod
    def of(cls, settings: RecedingSettings, n: int) -> Margins:
        """Take the margins of the settings."""
        fractions = (settings.torque_fraction, settings.velocity_fraction, settings.acceleration_fraction)
        torque, velocity, acceleration = (np.full(n, 1.0 - fraction) for fraction in fractions)
        return cls(torque, settings.distance_margin, np.full(n, settings.position_margin), velocity, acceleration)

    @classmethod
    def least(cls, n: int) -> Margins:
        """Return the least margins, for the gaps between samples."""
        ones = np.ones(n)
        steps = _STEPS
        return cls(
            0.5 * steps["torque"] * ones,
            0.5 * steps["distance"],
            0.5 * steps["position"] * ones,
            steps["velocity"] * ones,
            steps["acceleration"] * ones,
            Reserve.of_joints(),
        )

    def grown(self, rejection: PlanRejected, joint_names: Sequence[str]) -> Margins:
        """Enlarge the margin of the limit a candidate was rejected for, by its shortfall."""
        kind = _MARGIN_OF[rejection.limit]
        missing = rejection.excess
        if kind in ("torque", "velocity", "acceleration"):
            missing /= max(abs(rejection.allowed), 1e-9)
        growth = _BEYOND * missing + _STEPS[kind]
        if kind == "distance":
            return replace(self, distance=self.distance + growth)
        named = np.isin(joint_names, rejection.names)
        return replace(self, **{kind: getattr(self, kind) + growth * (named if named.any() else 1.0)})

    def state_limits(self, limits: JointLimits, errors: AssumedErrors) -> StateLimits:
        """Compute the limits of the desired motion: errors and margins taken off."""
        taken = STOP_ERRORS * errors.position + self.position
        return StateLimits(
            limits.q_lower + taken,
            limits.q_upper - taken,
            (1.0 - self.velocity) * limits.v_max - stop_velocity_errors(errors.velocity, limits.v_max),
            (1.0 - self.acceleration) * limits.a_max,
        )

    def with_reserve(self) -> Margins:
        """Add the reserve of positions and velocities to these margins."""
        reserve = self.reserve
        return replace(self, position=self.position + reserve.position, velocity=self.velocity + reserve.velocity)


@dataclass(frozen=True)
class ConstraintSamples:
    """Rows of B motions and the data for their derivatives.

    Attributes:
        torque: (B, stages, T, n) [-]: in the motion, at rest on its path, and in a stop.
        distance: (B, T, rows) [0.1 m].
        limits: Torques of which the torque rows are shares, (B, stages, T, n) [Nm].
        states: The states of the torque rows, each (stages B T, n).
        torques: The torques there.
        distances: The distances, or None without any.
    """

    torque: Array
    distance: Array
    limits: Array
    states: State
    torques: TorqueSamples
    distances: DistanceSamples | None

    @property
    def worst(self) -> Array:
        """Largest row of each motion, (B,)."""
        torque: Array = self.torque.reshape(len(self.torque), -1).max(axis=1)
        distance = self.distance.reshape(len(self.distance), -1)
        return np.maximum(torque, distance.max(axis=1)) if distance.shape[1] else torque


@dataclass(frozen=True)
class Room:
    """Limits of motions at T sample times.

    Attributes:
        torque: Torque that model and feedback may need together, (T, n) [Nm].
        rest: The same at rest there, (T, n) [Nm].
        feedback: Part of it for the feedback on the path, (n,) [Nm].
        clearance: Distance to keep, margins included, (T,) [m].
        friction_speed: Of the control law that the feedback is bounded for [rad/s], see :func:`counted_friction`.
    """

    torque: Array
    rest: Array
    feedback: Array
    clearance: Array
    friction_speed: float = 0.0


_REST = 1
"""Index of the stage at rest on the path."""


class MotionConstraints:
    """Torque and distance rows of the motions from one state.

    Args:
        torque: Worst-case torques, with the boxes set.
        distances: Free distances, with the tracking error taken off; None without collision spheres.
        basis: The motions at the sample times.
        room: Their limits there.
        brake_time: Time to rest of the stops along the path [s]; None leaves stops out but for their end at rest.
    """

    def __init__(
        self,
        torque: WorstTorque,
        distances: FreeDistances | None,
        basis: MotionBasis,
        room: Room,
        brake_time: float | None,
    ):
        self._torque, self._distances, self._basis = torque, distances, basis
        self._clearances, self._feedback, self._friction_speed = room.clearance, room.feedback, room.friction_speed
        self._model_limits, self._less_at_rest = room.torque - room.feedback, room.torque - room.rest  # (T, n)
        # The motion, rest on its path, and points of a stop: rate and slowdown of the clock.
        self._stages = [(1.0, 0.0), (0.0, 0.0)]
        if brake_time is not None:
            self._stages += [clock_rates(progress, brake_time) for progress in _STOP_PROGRESS]
        self._growths = np.zeros((len(self._stages), basis.times.size))  # of the feedback's torque, in fast motions
        if brake_time is not None:
            rates = np.array([rate for rate, _ in self._stages])[:, None]
            self._growths += stop_torque_shape(rates, rates**2) * self._stop_growths(brake_time)

    def evaluate(self, x: Array, little: float = LITTLE) -> ConstraintSamples:
        """Compute all rows of motions with end offsets x (B, n) [rad].

        Torque rows up to ``little`` may come out larger than they are, but not above it.
        """
        count, n = x.shape
        q, v, a = self._basis.states(x)
        states = (
            np.concatenate([q] * len(self._stages)),
            np.concatenate([rate * v for rate, _ in self._stages]),
            np.concatenate([rate**2 * a + slowdown * v for rate, slowdown in self._stages]),
        )
        rates = np.array([rate for rate, _ in self._stages]).repeat(len(v))[:, None]
        friction = counted_friction(np.tile(np.abs(v), (len(self._stages), 1)), rates, self._friction_speed)
        share = np.minimum(self._fastest(states, count)[0] / STOP_SPEED, 1.0)
        growths = share[:, None, None] * self._growths
        limits = self._model_limits - growths[..., None] * self._feedback  # (B, stages, T, n)
        limits[:, _REST] -= self._less_at_rest
        limits = np.maximum(limits, 1e-3)
        torques = self._torque.evaluate(states, friction, (1.0 + little) * limits.swapaxes(0, 1).reshape(-1, n))
        demand = torques.demand.reshape(len(self._stages), count, -1, n).swapaxes(0, 1)
        usage = demand / limits - 1.0
        if self._distances is None:
            none = np.empty((count, self._basis.times.size, 0))
            return ConstraintSamples(usage, none, limits, states, torques, None)
        distances = self._distances.evaluate(q)
        free = distances.free.reshape(count, self._basis.times.size, -1)
        missing = (self._clearances[:, None] - free) / DISTANCE_UNIT
        return ConstraintSamples(usage, missing, limits, states, torques, distances)

    def _friction_slope(self, v: Array, rate: Array, joint: Index) -> Array:
        """Differentiate the Coulomb friction that counts by the velocities of the path, (P,) [Nm s/rad]."""
        if self._friction_speed <= 0.0:
            return np.zeros_like(v)
        share = counted_friction(np.abs(v), rate, self._friction_speed)
        steep = np.where((share > 0.0) & (share < 1.0), 2.0 * rate / self._friction_speed, 0.0)
        slope: Array = self._torque.coulomb[joint] * steep * np.sign(v)
        return slope

    def _fastest(self, states: State, count: int) -> tuple[Array, Array]:
        """Find the largest speeds of any joint in B motions, (B,) [rad/s], and their derivatives along x, (B, n)."""
        n = states[1].shape[1]
        speeds = states[1].reshape(len(self._stages), count, -1)[0]
        index, motions = np.argmax(np.abs(speeds), axis=1), np.arange(count)
        speed, slope = speeds[motions, index], np.zeros((count, n))
        slope[motions, index % n] = np.sign(speed) * self._basis.blend[1, index // n]
        return np.abs(speed), slope

    def _stop_growths(self, brake_time: float) -> Array:
        """Estimate :func:`stop_torque_growths` of fast motions at the samples, (T,), the same for all of them.

        From rest all joints have the same course of speed, whatever the end; of other motions the first half counts as
        fast. Samples of possible later motions begin in the middle of it and get the largest one.
        """
        basis = self._basis
        is_from_rest = not np.any(basis.free[1])
        falls = np.flatnonzero(np.diff(basis.times) < 0.0)
        count = int(falls[0]) + 1 if falls.size else basis.times.size
        share, duration = np.ones(basis.times.size), basis.times[count - 1]
        for i, time in enumerate(basis.times[:count]):
            begins = np.clip(np.linspace(time - 0.5 * brake_time, time, 20), 0.0, duration) / duration
            speeds = 16.0 * begins**2 * (1.0 - begins) ** 2
            share[i] = np.max(speeds if is_from_rest else np.where(begins < 0.5, 1.0, speeds))
        return stop_torque_growth(brake_time) * share

    def linearise(self, samples: ConstraintSamples, motions: Index, rows: int) -> tuple[Array, Array]:
        """Compute the worst rows of some motions and their derivatives along x.

        Args:
            samples: Rows of B motions.
            motions: Which motions, (A,).
            rows: Number of rows of each kind.

        Returns:
            Values (A, 2 rows) and derivatives (A, 2 rows, n), padded with rows that never count.
        """
        n, times = self._model_limits.shape[1], self._basis.times.size
        values = np.full((len(motions), 2 * rows), -1e3)
        slopes = np.zeros((len(motions), 2 * rows, n))
        time, index = _pick(samples.torque[motions].swapaxes(1, 2), rows)
        found = time.shape[1]
        motion, time, index = (x.ravel() for x in np.broadcast_arrays(motions[:, None], time, index))
        stage, joint = np.divmod(index, n)
        chosen = (stage * len(samples.torque) + motion) * times + time
        dq, dv, da = self._torque.gradients(samples.states, samples.torques, chosen, joint)
        rate, slowdown = np.array(self._stages).T[:, stage, None]
        blend = self._basis.blend[:, time, None]
        slope = dq * blend[0] + dv * rate * blend[1] + da * (rate**2 * blend[2] + slowdown * blend[1])
        v = samples.states[1][motion * times + time, joint]  # of the path, the first stage
        slope[np.arange(len(joint)), joint] += self._friction_slope(v, rate[:, 0], joint) * blend[1, :, 0]
        usage = samples.torque[motion, stage, time, joint]
        # Demand over limit: the faster the motion, the less is left for the model.
        speed, faster = self._fastest(samples.states, len(samples.torque))
        faster = np.where(speed < STOP_SPEED, 1.0, 0.0)[:, None] * faster / STOP_SPEED
        taken = self._growths[stage, time] * self._feedback[joint] * (1.0 + usage)
        slope += taken[:, None] * faster[motion]
        values[:, :found] = usage.reshape(len(motions), -1)
        slopes[:, :found] = (slope / samples.limits[motion, stage, time, joint, None]).reshape(len(motions), -1, n)
        if self._distances is not None and samples.distances is not None and samples.distance.shape[2]:
            time, row = _pick(samples.distance[motions], rows)
            found = rows + time.shape[1]
            motion, time, row = (x.ravel() for x in np.broadcast_arrays(motions[:, None], time, row))
            slope = self._distances.gradients(samples.distances, motion * times + time, row)
            slope *= -self._basis.blend[0, time, None] / DISTANCE_UNIT
            values[:, rows:found] = samples.distance[motion, time, row].reshape(len(motions), -1)
            slopes[:, rows:found] = slope.reshape(len(motions), -1, n)
        return values, slopes


def _pick(values: Array, rows: int) -> tuple[Index, Index]:
    """Return the times and flat row numbers of the worst entries of motions (A, T, ...), (A, at most rows) each.

    Of every row they are its worst in each part of the time, worst first.
    """
    flat = values.reshape(*values.shape[:2], -1)
    parts = np.array_split(np.arange(flat.shape[1]), 3)
    worst = [part[0] + flat[:, part[0] : part[-1] + 1].argmax(axis=1) for part in parts]
    time = np.concatenate(worst, axis=1)  # (A, parts R)
    entry = np.tile(np.arange(flat.shape[2]), len(parts))
    motion = np.arange(len(flat))[:, None]
    order = np.argsort(-flat[motion, time, entry], axis=1, kind="stable")[:, :rows]
    return time[motion, order], entry[order]
