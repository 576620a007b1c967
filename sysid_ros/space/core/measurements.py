"""Measurements of a free-flying robot: twist of the base, rates of joints and wheels; poses by integration.

The base moves in the axes it has at the first sample, and starts at their origin.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import MISSING, ParameterOutOfRange
from sysid_ros.core.common.spatial import skew
from sysid_ros.space.core.robot import FreeFlyer

Array = NDArray[np.float64]

_TOO_FAST = 1.5
"""Multiple of a velocity limit from which on a rate can only be in another unit."""
_DISAGREEMENT = 0.5
"""Share of the distance a joint covers by which its positions may differ from its integrated rates."""
_SHORT_DISTANCE = 0.02
"""Distances [rad, m] up to which they may differ in any case."""


@dataclass(frozen=True, eq=False)
class FloatingData:
    """Samples of a motion; arrays are read-only.

    Attributes:
        times: Ascending, (N,) [s].
        base_twist: Linear and angular velocity of the base in its own axes, (N, 6) [m/s, rad/s].
        q: Joint positions, (N, n) [rad, m].
        v: Joint rates, (N, n) [rad/s, m/s].
        wheel_rates: Speeds of the reaction wheels, (N, W) [rad/s].
        rotations: Axes of the base seen from those at the first sample, (N, 3, 3).
        positions: Origin of the base seen from the first sample, (N, 3) [m].

    Raises:
        ParameterOutOfRange: A shape differs, a number is not finite, or times do not ascend.
    """

    times: Array
    base_twist: Array
    q: Array
    v: Array
    wheel_rates: Array
    rotations: Array
    positions: Array

    def __post_init__(self) -> None:
        count = np.size(self.times)
        for name in ("times", "base_twist", "q", "v", "wheel_rates", "rotations", "positions"):
            values = np.array(getattr(self, name), dtype=float)
            if len(np.atleast_1d(values)) != count:
                raise ParameterOutOfRange(f"the number of samples of {name}", len(values), f"{count}, as many as times")
            if not np.all(np.isfinite(values)):
                raise ParameterOutOfRange(name, "not finite", "finite numbers")
            values.setflags(write=False)
            object.__setattr__(self, name, values)
        if count < 2 or np.any(np.diff(self.times) <= 0.0):
            raise ParameterOutOfRange("times [s]", f"{count} samples", "two or more in ascending order")

    def __len__(self) -> int:
        """Return the number of samples."""
        return int(self.times.size)

    def select(self, index: NDArray[np.intp] | NDArray[np.bool_] | slice) -> FloatingData:
        """Select some of the samples."""
        names = ("times", "base_twist", "q", "v", "wheel_rates", "rotations", "positions")
        return FloatingData(**{name: getattr(self, name)[index] for name in names})

    def rebased(self) -> FloatingData:
        """Return the same with poses seen from the first sample, and stamps kept."""
        back = self.rotations[0].T
        return replace(self, rotations=back @ self.rotations, positions=(self.positions - self.positions[0]) @ back.T)

    @property
    def velocities(self) -> Array:
        """Twist of the base and rates of the joints, (N, 6 + n)."""
        return np.concatenate([self.base_twist, self.v], axis=1)


def data_from_rates(
    robot: FreeFlyer,
    times: ArrayLike,
    base_twist: ArrayLike | None,
    v: ArrayLike,
    wheel_rates: ArrayLike | None = None,
    start: ArrayLike | None = None,
    q: ArrayLike | None = None,
) -> FloatingData:
    """Build samples from a twist of the base in its own axes; unmeasured poses and positions are integrated.

    Args:
        robot: The robot.
        times: (N,) [s].
        base_twist: (N, 6) [m/s, rad/s].
        v: Joint rates, (N, n) [rad/s, m/s].
        wheel_rates: Speeds of the wheels, (N, W) [rad/s]; None if all rest.
        start: Joint positions at the first sample, (n,); the home position by default.
        q: Measured joint positions, (N, n); None to integrate the rates.

    Raises:
        ParameterOutOfRange: The twist is missing, a shape differs, a wheel saturates, or a unit is wrong.
    """
    stamps = np.asarray(times, dtype=float)
    twist = _table("base_twist [m/s, rad/s]", base_twist, stamps.size, 6)
    rates = _table("v [rad/s]", v, stamps.size, robot.n)
    turns = np.zeros((stamps.size, robot.wheels.count)) if wheel_rates is None else wheel_rates
    turns = _table("wheel_rates [rad/s]", turns, stamps.size, robot.wheels.count)
    robot.wheels.momentum(turns)
    require_plausible_rates(robot, rates)
    begin = robot.home if start is None else np.asarray(start, dtype=float)
    if q is None:
        joints = begin + integrate(stamps, rates)
    else:
        joints = _table("q [rad]", q, stamps.size, robot.n)
        _require_same_motion(robot, joints, integrate(stamps, rates))
    rotations = integrate_rotations(stamps, twist[:, 3:])
    velocity = np.einsum("nij,nj->ni", rotations, twist[:, :3])
    return FloatingData(stamps, twist, joints, rates, turns, rotations, integrate(stamps, velocity))


def integrate(times: Array, rates: Array) -> Array:
    """Integrate rates (N, k) over times (N,) by the trapezoid rule, from zero at the first."""
    parts = 0.5 * (rates[1:] + rates[:-1]) * np.diff(times)[:, None]
    return np.concatenate([np.zeros((1, rates.shape[1])), np.cumsum(parts, axis=0)])


def integrate_rotations(times: Array, angular: Array) -> Array:
    """Integrate angular velocities in body axes (N, 3) [rad/s] to rotations (N, 3, 3) from the identity."""
    turns = np.diff(integrate(times, angular), axis=0)
    angles = np.linalg.norm(turns, axis=1)[:, None, None]
    matrices = skew(turns)
    steps = np.eye(3) + np.sinc(angles / np.pi) * matrices
    steps += 0.5 * np.sinc(0.5 * angles / np.pi) ** 2 * (matrices @ matrices)
    result = np.empty((len(times), 3, 3))
    result[0] = np.eye(3)
    for k, step in enumerate(steps):
        result[k + 1] = result[k] @ step
    return result


def require_plausible_rates(robot: FreeFlyer, rates: Array) -> None:
    """Raise an error for joint rates (N, n) that are far beyond the limits.

    Raises:
        ParameterOutOfRange: A joint is faster than it can be.
    """
    limit = _TOO_FAST * robot.v_max + 10.0 * robot.noise[2]
    for joint in np.flatnonzero(np.abs(rates).max(axis=0) > limit):
        raise ParameterOutOfRange(
            f"rate of {robot.joint_names[joint]} [rad/s]",
            float(np.abs(rates[:, joint]).max()),
            f"at most its limit {robot.v_max[joint]:g} rad/s; are these deg/s?",
        )


def _require_same_motion(robot: FreeFlyer, q: Array, travelled: Array) -> None:
    moved = q - q[0]
    difference = np.abs(moved - travelled).max(axis=0)
    allowed = _SHORT_DISTANCE + _DISAGREEMENT * np.abs(travelled).max(axis=0)
    for joint in np.flatnonzero(difference > allowed):
        raise ParameterOutOfRange(
            f"motion of {robot.joint_names[joint]} by its positions [rad]",
            float(np.abs(moved[:, joint]).max()),
            f"the integral of its rates, {np.abs(travelled[:, joint]).max():.4g} rad; are units or joints mixed up?",
        )


def _table(name: str, values: ArrayLike | None, samples: int, columns: int) -> Array:
    if values is None:
        raise ParameterOutOfRange(name, MISSING, f"({samples}, {columns}): the momentum equation needs it")
    table = np.asarray(values, dtype=float)
    if table.shape != (samples, columns):
        raise ParameterOutOfRange(f"the shape of {name}", table.shape, f"({samples}, {columns})")
    return table
