"""Tracking errors that are assumed while a plan is looked for, and what rejected candidates have taught."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.stop_model import (
    STOP_ERRORS,
    LimitKind,
    PlanRejected,
    TrackingErrors,
    error_bound,
    stop_velocity_errors,
)
from sysid_ros.core.model.robot import JointLimits
from sysid_ros.core.planning.motions import minimum_acceleration_offset, shape_functions
from sysid_ros.core.planning.settings import RecedingSettings
from sysid_ros.core.trajectories.base import State

Array = NDArray[np.float64]

_TIMES = 120
"""Intervals between the times looked at: what a motion does between them is below the shares left of the limits."""
_SMALL = 1e-4
"""Influence of the end below which a time says nothing about it."""


@dataclass(frozen=True)
class StateLimits:
    """Limits of the desired motion, tracking errors and margins taken off.

    Attributes:
        q_lower: Lower positions, (n,) [rad].
        q_upper: Upper positions, (n,) [rad].
        v_max: Speeds, (n,) [rad/s].
        a_max: Accelerations, (n,) [rad/s^2].
    """

    q_lower: Array
    q_upper: Array
    v_max: Array
    a_max: Array


def end_intervals(q0: Array, v0: Array, a0: Array, limits: StateLimits, duration: float) -> tuple[Array, Array]:
    """Smallest and largest end offset of each joint for which its limits hold, ``lower > upper`` where there is none.

    Args:
        q0: Start positions, (..., n) [rad].
        v0: Start velocities, (..., n) [rad/s].
        a0: Start accelerations, (..., n) [rad/s^2].
        limits: The limits.
        duration: Duration of the motions [s].

    Returns:
        Lower and upper offsets ``q1 - q0``, each (..., n) [rad].
    """
    shapes = shape_functions(duration, np.linspace(0.0, duration, _TIMES + 1))
    lower, upper = np.full(q0.shape, -np.inf), np.full(q0.shape, np.inf)
    bounds = (
        (limits.q_lower - q0, limits.q_upper - q0),
        (-limits.v_max, limits.v_max),
        (-limits.a_max, limits.a_max),
    )
    for (low, high), shape in zip(bounds, shapes, strict=True):
        useful = np.abs(shape[2]) > _SMALL
        by_v, by_a, by_end = (part[useful] for part in shape)
        free = v0[..., None] * by_v + a0[..., None] * by_a
        first, second = (low[..., None] - free) / by_end, (high[..., None] - free) / by_end
        lower = np.maximum(lower, np.minimum(first, second).max(axis=-1))
        upper = np.minimum(upper, np.maximum(first, second).min(axis=-1))
    return lower, upper


def allowed_ends(
    start: State, limits: StateLimits, preferred: StateLimits, duration: float, reach: Array
) -> tuple[Array, Array]:
    """End offsets to choose from: allowed, and within reach of the minimum-acceleration stop.

    Each joint respects the preferred limits all the way if it can, else at least at the end, else not at all.
    Where a motion respects limits, so does one that takes over from it halfway: that was never found otherwise in
    20 000 random cases, and is not asked for.

    Args:
        start: Position, velocity and acceleration, each (n,).
        limits: The limits.
        preferred: Limits with something to spare.
        duration: Duration of the motions [s].
        reach: Largest distance of the end from that of the minimum-acceleration stop, (n,) [rad].

    Returns:
        Lower and upper offsets, each (n,) [rad]; ``lower > upper`` for joints without any.
    """
    lower, upper = end_intervals(*start, limits, duration)
    at_end = np.maximum(lower, preferred.q_lower - start[0]), np.minimum(upper, preferred.q_upper - start[0])
    for low, high in (at_end, end_intervals(*start, preferred, duration)):
        lower, upper = np.where(low <= high, [low, high], [lower, upper])
    middle = np.clip(minimum_acceleration_offset(start, duration), lower, np.maximum(lower, upper))
    return np.maximum(lower, middle - reach), np.minimum(upper, middle + reach)


_FIRST_POSITION, _FIRST_VELOCITY, _FIRST_TORQUE = 0.02, 0.05, 0.05  # [rad], [rad/s], share of the limits
_BEYOND = 1.2
"""Margins grow by this much of what was missing, besides the steps below."""
_STEPS = {"torque": 0.005, "distance": 0.001, "position": 0.001, "velocity": 0.002, "acceleration": 0.002}
_MARGIN_OF = {
    LimitKind.POSITION: "position",
    LimitKind.VELOCITY: "velocity",
    LimitKind.ACCELERATION: "acceleration",
    LimitKind.TORQUE: "torque",
    LimitKind.TORQUE_AT_REST: "torque",
    LimitKind.BRAKING_TORQUE: "torque",
    LimitKind.SELF_COLLISION: "distance",
    LimitKind.GROUND: "distance",
    LimitKind.OBSTACLE: "distance",
}
"""The margin that widens where a limit was broken."""


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
        """No errors at all."""
        return cls(np.zeros(n), np.zeros(n), np.zeros(n))

    @classmethod
    def guess(cls, limits: JointLimits) -> AssumedErrors:
        """What is assumed before any motion has been bounded."""
        n = limits.tau_max.size
        return cls(np.full(n, _FIRST_POSITION), np.full(n, _FIRST_VELOCITY), _FIRST_TORQUE * limits.tau_max)

    @classmethod
    def of(cls, errors: TrackingErrors, n: int) -> AssumedErrors:
        """Those of a bound, each one number or (n,).

        Raises:
            ParameterOutOfRange: An entry is negative or not finite, or a length is wrong.
        """
        units = {"position": "rad", "velocity": "rad/s", "torque": "Nm"}
        return cls(*(error_bound(f"{name} [{units[name]}]", getattr(errors, name), n) for name in units), True)

    def grown(self, share: float) -> AssumedErrors:
        """All errors larger by a share."""
        factor = 1.0 + share
        return replace(
            self, position=factor * self.position, velocity=factor * self.velocity, torque=factor * self.torque
        )

    def towards(self, other: AssumedErrors, share: float) -> AssumedErrors:
        """The errors a share of the way from these to others."""
        parts = ((getattr(self, name), getattr(other, name)) for name in ("position", "velocity", "torque"))
        return AssumedErrors(*(one + share * (another - one) for one, another in parts), self.is_measured)

    def is_within(self, other: AssumedErrors) -> bool:
        """Whether none of these errors exceeds the other's."""
        names = ("position", "velocity", "torque")
        return all(bool(np.all(getattr(self, name) <= getattr(other, name))) for name in names)

    def larger(self, other: AssumedErrors) -> AssumedErrors:
        """The larger of both, one by one; a guess gives way to what has been measured."""
        if self.is_measured != other.is_measured:
            return self if self.is_measured else other
        pairs = ((getattr(self, name), getattr(other, name)) for name in ("position", "velocity", "torque"))
        return AssumedErrors(*(np.maximum(*pair) for pair in pairs), self.is_measured)


@dataclass(frozen=True)
class Reserve:
    """What a plan leaves, besides, for those that follow: their tracking errors may be larger than its own.

    It is a matter of going on, not of safety: where it cannot be left, it is given up.

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
        """The part that only narrows the ends to choose from, and so never leaves nothing to choose."""
        return cls(distance=0.0, torque=0.0)

    @classmethod
    def none(cls) -> Reserve:
        """No reserve."""
        return cls(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Margins:
    """What is kept free of each kind of limit, besides tracking errors.

    Attributes:
        torque: Share of the limits, (n,) [-].
        distance: [m].
        position: (n,) [rad].
        velocity: Share of the limits, (n,) [-].
        acceleration: Share of the limits, (n,) [-].
        reserve: What is left for the plans that follow.
    """

    torque: Array
    distance: float
    position: Array
    velocity: Array
    acceleration: Array
    reserve: Reserve = Reserve()

    @classmethod
    def of(cls, settings: RecedingSettings, n: int) -> Margins:
        """Those of the settings."""
        fractions = (settings.torque_fraction, settings.velocity_fraction, settings.acceleration_fraction)
        torque, velocity, acceleration = (np.full(n, 1.0 - fraction) for fraction in fractions)
        return cls(torque, settings.distance_margin, np.full(n, settings.position_margin), velocity, acceleration)

    @classmethod
    def least(cls, n: int) -> Margins:
        """What is needed at least for what happens between the times looked at."""
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
        """Larger where a candidate was rejected, by what was missing."""
        kind = _MARGIN_OF[rejection.limit]
        missing = abs(rejection.value - rejection.allowed)
        if kind in ("torque", "velocity", "acceleration"):
            missing /= max(abs(rejection.allowed), 1e-9)
        growth = _BEYOND * missing + _STEPS[kind]
        if kind == "distance":
            return replace(self, distance=self.distance + growth)
        named = np.isin(joint_names, rejection.names)
        return replace(self, **{kind: getattr(self, kind) + growth * (named if named.any() else 1.0)})

    def state_limits(self, limits: JointLimits, errors: AssumedErrors) -> StateLimits:
        """Limits of the desired motion."""
        taken = STOP_ERRORS * errors.position + self.position
        return StateLimits(
            limits.q_lower + taken,
            limits.q_upper - taken,
            (1.0 - self.velocity) * limits.v_max - stop_velocity_errors(errors.velocity, limits.v_max),
            (1.0 - self.acceleration) * limits.a_max,
        )

    def with_reserve(self) -> Margins:
        """These margins with the reserve of positions and velocities as a part of them."""
        reserve = self.reserve
        return replace(self, position=self.position + reserve.position, velocity=self.velocity + reserve.velocity)

    def torque_limit(self, limits: JointLimits) -> Array:
        """What model and feedback may need together, (n,) [Nm]."""
        return (1.0 - self.torque) * limits.tau_max
