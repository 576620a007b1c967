"""All motions of the Bezier family from one state as affine functions of their ends, and the ends that limits allow.

Every motion is ``q(t) = q0 + f_v(t) v0 + f_a(t) a0 + blend(t) x`` with ``x = q1 - q0``, joint by joint, and so are its
velocities and accelerations: limits on them are intervals of x, and derivatives along x are three numbers per time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import NDArray

from sysid_ros.core.trajectories.base import State

Array = NDArray[np.float64]

_S = Polynomial([0.0, 1.0])
# Over s = t / duration, from the control points q0, q0 + v0 T / 5, q0 + 2 v0 T / 5 + a0 T^2 / 20 and three times q1.
_SHAPES = (
    _S * (1 - _S) ** 4 + 4 * _S**2 * (1 - _S) ** 3,  # of v0 T
    _S**2 * (1 - _S) ** 3 / 2,  # of a0 T^2
    10 * _S**3 - 15 * _S**4 + 6 * _S**5,  # of x
)


def _coefficients(order: int) -> Array:
    derivatives = [shape.deriv(order).coef for shape in _SHAPES]
    return np.stack([np.pad(coefficients, (0, 6 - coefficients.size)) for coefficients in derivatives])


def _minimum_acceleration() -> tuple[float, float]:
    """Compute the end offset with the smallest integral of the squared acceleration, per v0 T and per a0 T^2."""
    accelerations = [shape.deriv(2) for shape in _SHAPES]
    by_velocity, by_acceleration, square = ((accelerations[2] * one).integ()(1.0) for one in accelerations)
    return -float(by_velocity / square), -float(by_acceleration / square)


_COEFFICIENTS = np.stack([_coefficients(order) for order in range(3)])
"""Of position, velocity and acceleration (first index) per shape (second index), (3, 3, 6)."""
_MINIMUM_ACCELERATION = _minimum_acceleration()


def shape_functions(duration: float, times: Array) -> Array:
    """Evaluate position, velocity and acceleration (first index) at times (T,) per v0, a0 and x (second), (3, 3, T)."""
    powers = (np.asarray(times) / duration) ** np.arange(6)[:, None]
    orders, scales = duration ** -np.arange(3.0), np.array([duration, duration**2, 1.0])
    shapes: Array = (orders[:, None, None] * scales[:, None] * _COEFFICIENTS) @ powers
    return shapes


@dataclass(frozen=True)
class MotionBasis:
    """The motions of one start state at chosen times.

    Attributes:
        times: Times since the start, (T,) [s].
        free: Positions, velocities and accelerations of the motion that ends where it starts, (3, T, n).
        blend: Their change per unit of ``x``, (3, T) [-, 1/s, 1/s^2].
    """

    times: Array
    free: Array
    blend: Array

    @classmethod
    def of(cls, start: State, duration: float, times: Array) -> MotionBasis:
        """Build the basis for a start (position, velocity, acceleration), each (n,), at times (T,) in the duration."""
        shapes = shape_functions(duration, times)
        q0, v0, a0 = start
        free = shapes[:, 0, :, None] * v0 + shapes[:, 1, :, None] * a0
        free[0] += q0
        return cls(np.asarray(times), free, shapes[:, 2])

    @classmethod
    def continuation(cls, start: State, duration: float, take_over: float, times: Array) -> MotionBasis:
        """Build the continuations of every motion: they take over and go to the same ends in another ``duration``.

        Args:
            start: Position, velocity and acceleration of the first motions, each (n,).
            duration: Duration of both motions [s].
            take_over: Time at which the second begins [s].
            times: Times since then, (T,) [s].
        """
        q0, v0, a0 = start
        first, second = shape_functions(duration, np.array([take_over]))[..., 0], shape_functions(duration, times)
        # Per v0, a0 and x: state at takeover, remaining distance to the end, and their part of the second motion.
        left = np.array([0.0, 0.0, 1.0]) - first[0]
        shapes = np.einsum("oct,ci->oit", second, np.stack([first[1], first[2], left]))
        shapes[0] += first[0][:, None]
        free = shapes[:, 0, :, None] * v0 + shapes[:, 1, :, None] * a0
        free[0] += q0
        return cls(take_over + np.asarray(times), free, shapes[:, 2])

    def joined(self, other: MotionBasis) -> MotionBasis:
        """Join the times of both, these first."""
        parts = ((self.times, other.times, 0), (self.free, other.free, 1), (self.blend, other.blend, 1))
        return MotionBasis(*(np.concatenate([one, two], axis=axis) for one, two, axis in parts))

    def states(self, x: Array) -> State:
        """Evaluate the states of motions with end offsets x (B, n) [rad]: q, v and a, each (B T, n)."""
        n = x.shape[1]
        values = self.free[:, None] + self.blend[:, None, :, None] * x[None, :, None, :]
        q, v, a = values.reshape(3, -1, n)
        return q, v, a

    def chain(self, dq: Array, dv: Array, da: Array) -> Array:
        """Sum the derivatives along x over times, (..., n), from those with respect to the states, each (..., T, n)."""
        blends = self.blend[..., None]
        gradients: Array = (dq * blends[0] + dv * blends[1] + da * blends[2]).sum(axis=-2)
        return gradients


def minimum_acceleration_offset(start: State, duration: float) -> Array:
    """Compute the end offset (n,) [rad] with the smallest integral of the squared acceleration, joint by joint."""
    by_velocity, by_acceleration = _MINIMUM_ACCELERATION
    return by_velocity * duration * start[1] + by_acceleration * duration**2 * start[2]


_TIMES = 120
"""Intervals between samples: overshoot between them is below the shares left of the limits."""


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


def end_intervals(start: State, limits: StateLimits, duration: float) -> tuple[Array, Array]:
    """Compute the interval of end offsets of each joint for which its limits hold, ``lower > upper`` where none does.

    Args:
        start: Position [rad], velocity [rad/s] and acceleration [rad/s^2], each (..., n).
        limits: The limits.
        duration: Duration of the motions [s].

    Returns:
        Lower and upper offsets ``q1 - q0``, each (..., n) [rad].
    """
    q0, v0, a0 = start
    shapes = shape_functions(duration, np.linspace(0.0, duration, _TIMES + 1))
    lower, upper = np.full(q0.shape, -np.inf), np.full(q0.shape, np.inf)
    bounds = (
        (limits.q_lower - q0, limits.q_upper - q0),
        (-limits.v_max, limits.v_max),
        (-limits.a_max, limits.a_max),
    )
    for (low, high), shape in zip(bounds, shapes, strict=True):
        useful = np.abs(shape[2]) > 1e-4  # at other times the end has no influence
        by_v, by_a, by_end = (part[useful] for part in shape)
        free = v0[..., None] * by_v + a0[..., None] * by_a
        first, second = (low[..., None] - free) / by_end, (high[..., None] - free) / by_end
        lower = np.maximum(lower, np.minimum(first, second).max(axis=-1))
        upper = np.minimum(upper, np.maximum(first, second).min(axis=-1))
    return lower, upper


def allowed_ends(
    start: State, limits: StateLimits, preferred: StateLimits, duration: float, reach: Array
) -> tuple[Array, Array]:
    """Compute the end offsets to choose from: allowed, and within reach of the minimum-acceleration stop.

    Each joint respects the preferred limits all the way if it can, else at least at the end, else not at all. Where a
    motion respects limits, so does one that takes over from it halfway: 20 000 random cases showed no exception, and it
    is not required.

    Args:
        start: Position, velocity and acceleration, each (n,).
        limits: The limits.
        preferred: Limits with something to spare.
        duration: Duration of the motions [s].
        reach: Largest distance of the end from the minimum-acceleration stop's, (n,) [rad].

    Returns:
        Lower and upper offsets, each (n,) [rad]; ``lower > upper`` for joints without any.
    """
    lower, upper = end_intervals(start, limits, duration)
    at_end = np.maximum(lower, preferred.q_lower - start[0]), np.minimum(upper, preferred.q_upper - start[0])
    for low, high in (at_end, end_intervals(start, preferred, duration)):
        lower, upper = np.where(low <= high, [low, high], [lower, upper])
    middle = np.clip(minimum_acceleration_offset(start, duration), lower, np.maximum(lower, upper))
    return np.maximum(lower, middle - reach), np.minimum(upper, middle + reach)
