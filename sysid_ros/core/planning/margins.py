"""Tracking errors that are assumed while a plan is looked for, and what rejected candidates have taught."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from sysid_ros.core.planning.motions import StateLimits
from sysid_ros.core.planning.settings import RecedingSettings

Array = NDArray[np.float64]

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
        """Assume no errors at all."""
        return cls(np.zeros(n), np.zeros(n), np.zeros(n))

    @classmethod
    def guess(cls, limits: JointLimits) -> AssumedErrors:
        """Guess errors before any motion has been bounded."""
        n = limits.tau_max.size
        return cls(np.full(n, _FIRST_POSITION), np.full(n, _FIRST_VELOCITY), _FIRST_TORQUE * limits.tau_max)

    @classmethod
    def of(cls, errors: TrackingErrors, n: int) -> AssumedErrors:
        """Take those of a bound, each one number or (n,).

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
        """Take the larger of both, one by one; a guess gives way to what has been measured."""
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
        """Keep the part that only narrows the ends to choose from, and so never leaves nothing to choose."""
        return cls(distance=0.0, torque=0.0)

    @classmethod
    def none(cls) -> Reserve:
        """Leave no reserve."""
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
        """Take the margins of the settings."""
        fractions = (settings.torque_fraction, settings.velocity_fraction, settings.acceleration_fraction)
        torque, velocity, acceleration = (np.full(n, 1.0 - fraction) for fraction in fractions)
        return cls(torque, settings.distance_margin, np.full(n, settings.position_margin), velocity, acceleration)

    @classmethod
    def least(cls, n: int) -> Margins:
        """Return what is needed at least for what happens between the times looked at."""
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
        """Enlarge the margin of the limit a candidate was rejected for, by what was missing."""
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

    def torque_limit(self, limits: JointLimits) -> Array:
        """Compute what model and feedback may need together, (n,) [Nm]."""
        return (1.0 - self.torque) * limits.tau_max
