"""Shared by the verifier and the planners: settings, broken limits, and the growth of errors in stops."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.core.trajectories.base import Trajectory

Array = NDArray[np.float64]


class LimitKind(Enum):
    """Kinds of limits a plan must keep."""

    POSITION = "position"
    VELOCITY = "velocity"
    ACCELERATION = "acceleration"
    TORQUE = "torque"
    TORQUE_AT_REST = "torque at rest"
    BRAKING_TORQUE = "braking torque"
    CONTINUOUS_TORQUE = "continuous torque"
    SELF_COLLISION = "self-collision"
    GROUND = "ground"
    OBSTACLE = "obstacle"

    @property
    def unit(self) -> str:
        """Unit of the limit."""
        return _UNITS[self]

    @property
    def margin_unit(self) -> str:
        """Unit of the margin: "-" for a share of the limit."""
        return self.unit if self.is_of_the_path else "-"

    @property
    def is_of_the_path(self) -> bool:
        """Whether it depends on the path alone, so that a slower motion breaks it, too."""
        return self in (LimitKind.POSITION, LimitKind.SELF_COLLISION, LimitKind.GROUND, LimitKind.OBSTACLE)


_UNITS = {
    LimitKind.POSITION: "rad",
    LimitKind.VELOCITY: "rad/s",
    LimitKind.ACCELERATION: "rad/s^2",
    LimitKind.TORQUE: "Nm",
    LimitKind.TORQUE_AT_REST: "Nm",
    LimitKind.BRAKING_TORQUE: "Nm",
    LimitKind.CONTINUOUS_TORQUE: "Nm",
    LimitKind.SELF_COLLISION: "m",
    LimitKind.GROUND: "m",
    LimitKind.OBSTACLE: "m",
}


class PlanRejected(SysidError):
    """A trajectory breaks a limit.

    Args:
        limit: Kind of limit.
        names: Name of the joint, or of the two objects that come too close.
        time: Time since the start of the trajectory [s].
        value: Reached value, in the unit of the limit.
        allowed: Allowed value, in the unit of the limit.
        advice: Further advice, in one clause.

    Attributes:
        excess: By how much the limit is broken, in its unit.
    """

    def __init__(
        self, limit: LimitKind, names: tuple[str, ...], time: float, value: float, allowed: float, advice: str = ""
    ):
        self.limit = limit
        self.names = names
        self.time = time
        self.value = value
        self.allowed = allowed
        self.excess = abs(value - allowed)
        unit, place = limit.unit, place_of(limit, names)
        super().__init__(
            f"{limit.value} limit broken at {place}, {time:.3f} s after the start: {value:.4g} {unit}, "
            f"allowed {allowed:.4g} {unit} ({self.excess:.3g} {unit} too far)" + (advice and f"; {advice}")
        )


def place_of(limit: LimitKind, names: tuple[str, ...]) -> str:
    """Describe where a limit is reached: at a joint, or between two objects."""
    is_distance = limit in (LimitKind.SELF_COLLISION, LimitKind.GROUND, LimitKind.OBSTACLE)
    return " and ".join(names) if is_distance else f"joint '{names[0]}'"


class TrackingErrors(Protocol):
    """Largest errors of the controller, each (n,)."""

    @property
    def position(self) -> Array:
        """Largest position error [rad], (n,)."""

    @property
    def velocity(self) -> Array:
        """Largest velocity error [rad/s], (n,)."""

    @property
    def torque(self) -> Array:
        """Largest torque of the feedback [Nm], (n,)."""


def error_bound(name: str, values: ArrayLike, n: int) -> Array:
    """Return largest errors, one per joint or one for all, as (n,).

    Raises:
        ParameterOutOfRange: An entry is negative or not finite, or the length is wrong.
    """
    vector = np.asarray(values, dtype=float)
    if vector.shape not in ((), (1,), (n,)) or not np.all(np.isfinite(vector) & (vector >= 0.0)):
        raise ParameterOutOfRange(name, vector.tolist(), f"{n} finite numbers, one per joint, 0 or more")
    return np.broadcast_to(vector, (n,))


STOP_ERRORS = 1.75
"""How much larger position and velocity errors are assumed to be in a stop along the path than on it [-].

This, :func:`stop_velocity_errors` and :func:`stop_torque_growths` are what planners leave for stops, and what the
verifier allows for where it is given errors without bounds of those in stops. Those of a plan with a tracking bound
are proven (:meth:`TrackingBound.in_stops`), and decide.
"""


def stop_velocity_errors(errors: Array, v_max: Array) -> Array:
    """Compute the velocity errors to add to the speed on the path, so that speed limits hold in stops, too.

    Errors answer to slowing down with a delay: while more than 0.65 of the speed is left they are at most 1.05 times
    those on the path. Later they may be ``STOP_ERRORS`` times as large, but then there is room, unless they take more
    than 0.35 of the limit.

    Args:
        errors: Velocity errors on the path, (n,) [rad/s].
        v_max: Speed limits, (n,) [rad/s].

    Returns:
        Errors, (n,) [rad/s].
    """
    return np.where(STOP_ERRORS * errors <= 0.35 * v_max, 1.05, STOP_ERRORS) * errors


STOP_SPEED = 0.75
"""Largest speed of any joint in a path from which on stops need all of their growth [rad/s]."""


def stop_torque_growth(brake_time: float) -> float:
    """Compute the share by which the feedback torque may grow in stops from the top speed of a fast path [-]."""
    return 0.12 + 0.22 / brake_time


def stop_torque_shape(rate: float | Array, square: float | Array) -> float | Array:
    """Compute the part of that growth that counts where the rate of the clock in a stop is r [-], at most about 1.

    Errors answer to slowing down with a delay: nothing at r = 1, all at r = 0.4, half at the end of the stop. It is
    linear in ``r`` and ``r^2``, so that its largest value with a convex function of both is at a corner of what holds
    them.
    """
    return 0.55 * (1.0 - rate) + 2.7 * (rate - square)


def stop_torque_growths(trajectory: Trajectory, brake_time: float, middle: Array, half: Array | float = 0.0) -> Array:
    """Compute the share by which the feedback torque may grow in stops, where they pass parts of the path [-].

    Slowing down takes torque in proportion to the speed at which the stop begins, and the uncertain inertia adds to the
    feedback; stops that begin slowly, as all do on a slow path, need no more than the path itself.

    Args:
        trajectory: The path.
        brake_time: Time to rest of the stops [s].
        middle: Middles of the parts of its time, (P,) [s].
        half: Their half lengths, (P,) [s].

    Returns:
        Shares, (P,).
    """
    times = np.linspace(0.0, trajectory.duration, 301)
    speed = np.abs(trajectory.sample(times)[1]).max(axis=1)
    share = speed / max(float(speed.max()), STOP_SPEED)
    return stop_torque_growth(brake_time) * _largest_before(times, share, 0.5 * brake_time, middle, half)


def _largest_before(times: Array, values: Array, reach: float, middle: Array, half: Array | float) -> Array:
    """Return the largest values from ``reach`` before the parts to their ends, a sample more on both sides, (P,)."""
    step = times[1] - times[0]
    first = np.clip(np.floor((middle - half - reach) / step).astype(int), 0, times.size - 1)
    last = np.clip(np.ceil((middle + half) / step).astype(int), 0, times.size - 1)
    return np.array([values[i : j + 1].max() for i, j in zip(np.atleast_1d(first), np.atleast_1d(last), strict=True)])


def counted_friction(speed: Array, rate: float | Array, friction_speed: float) -> Array:
    """Compute the share of Coulomb friction that a proof counts beside feedback that is bounded for a control law.

    The bound of the feedback includes the remaining friction: it is about the commanded torque less the torque with the
    friction that the law compensates, none below half of its friction speed and all from there on. While the clock of
    the path runs at the rate r, that share is convex in r for paths no faster than the friction speed, so the largest
    sum with a convex function of ``(r, r^2, d)`` is at a corner of their polytope; on faster parts all of it counts.

    Args:
        speed: Largest speeds of the path, any shape [rad/s].
        rate: r [-].
        friction_speed: Of the control law [rad/s]; 0 where the bound is for none: friction counts in any direction.

    Returns:
        Shares from 0 to 1, of the shape of the speeds.
    """
    if friction_speed <= 0.0:
        return np.ones_like(speed)
    share = np.clip(2.0 * rate * speed / friction_speed - 1.0, 0.0, 1.0)
    return np.where(speed <= friction_speed, share, 1.0)


SHORTEST_STOP, LONGEST_STOP = 0.1, 10.0
"""Times to rest of a stop that an arm can follow, and that ends before anybody is in its way [s]."""


@dataclass(frozen=True)
class VerifierSettings(Settings):
    """Limits that a plan may use, and how finely its time is divided."""

    torque_fraction: float = setting(1.0, "-", lower=0.01, upper=1.0)
    """Fraction of the torque limits that may be used."""
    brake_times: tuple[float, ...] = setting((0.5, 0.8, 1.2, 2.0), "s", lower=SHORTEST_STOP, upper=LONGEST_STOP)
    """Times to rest of stops along the path, ascending; the first that passes is noted, and a plan that none can stop
    is rejected."""
    piece: float = setting(0.15, "s", above=0.0, upper=1.0, library_only=True)
    """Longest piece of time."""
    shortest_piece: float = setting(0.002, "s", lower=1e-5, upper=0.1, library_only=True)
    """A piece this short whose bound still breaks a limit is not divided further."""
    rate_tolerance: float = setting(0.01, "-", above=0.0, below=1.0, library_only=True)
    """Share of a velocity, acceleration or torque limit by which a margin may be underestimated for want of division,
    where the plan passes anyway."""
    distance_tolerance: float = setting(0.005, "m", above=0.0, below=1.0, library_only=True)
    """The same of distances, and of distances to position limits [rad]."""
    validity: float = setting(60.0, "s", above=0.0, upper=86400.0)
    """How long a certificate is valid."""

    def __post_init__(self) -> None:
        super().__post_init__()
        times = self.brake_times
        if any(earlier >= later for earlier, later in zip(times, times[1:], strict=False)):
            raise ParameterOutOfRange("brake_times [s]", times, "ascending")
