"""Measurements of a free-flying robot: twist of the base, rates of joints and wheels; poses by integration.

The base moves in the axes it has at the first sample, and starts at their origin.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import MISSING, ParameterOutOfRange, SysidError
from sysid_ros.core.common.spatial import skew
from sysid_ros.space.core.robot import FreeFlyer

Array = NDArray[np.float64]

_SINGULAR = 1e-3
"""Cosine of the middle Euler angle below which Euler angles count as singular."""
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
    rule: str = "trapezoid",
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
        rule: ``trapezoid``, or ``forward_euler`` as SPACE (44) to (47).

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
        joints = begin + integrate(stamps, rates, rule)
    else:
        joints = _table("q [rad]", q, stamps.size, robot.n)
        _require_same_motion(robot, joints, integrate(stamps, rates, rule))
    rotations = integrate_rotations(stamps, twist[:, 3:], rule)
    velocity = np.einsum("nij,nj->ni", rotations, twist[:, :3])
    return FloatingData(stamps, twist, joints, rates, turns, rotations, integrate(stamps, velocity, rule))


def data_from_euler_rates(
    robot: FreeFlyer,
    times: ArrayLike,
    velocity: ArrayLike | None,
    euler_rates: ArrayLike | None,
    v: ArrayLike,
    wheel_rates: ArrayLike | None = None,
    start: ArrayLike | None = None,
    rule: str = "forward_euler",
) -> FloatingData:
    """Build samples as the paper does: inertial velocity, Euler and joint rates are measured, all else integrated.

    Args:
        robot: The robot.
        times: (N,) [s].
        velocity: Of the base in inertial axes, (N, 3) [m/s].
        euler_rates: Rates of the Z-X-Y Euler angles, which start at zero, (N, 3) [rad/s].
        v: Joint rates, (N, n) [rad/s].
        wheel_rates: See :func:`data_from_rates`.
        start: See :func:`data_from_rates`.
        rule: See :func:`data_from_rates`.

    Raises:
        SysidError: The middle angle comes close to a right angle.
        ParameterOutOfRange: See :func:`data_from_rates`.

    Source: SPACE (44) to (47), appendix 7.2.
    """
    stamps = np.asarray(times, dtype=float)
    linear = _table("velocity [m/s]", velocity, stamps.size, 3)
    rates = _table("euler_rates [rad/s]", euler_rates, stamps.size, 3)
    angles = integrate(stamps, rates, rule)
    turns = euler_rotations(angles)
    angular = np.einsum("nij,nj->ni", euler_rate_matrices(angles, stamps), rates)
    twist = np.concatenate([np.einsum("nji,nj->ni", turns, linear), angular], axis=1)
    data = data_from_rates(robot, stamps, twist, v, wheel_rates, start, rule=rule)
    return replace(data, rotations=turns, positions=integrate(stamps, linear, rule))


def integrate(times: Array, rates: Array, rule: str = "trapezoid") -> Array:
    """Integrate rates (N, k) over times (N,), from zero at the first; SPACE (44), (45), (47) by forward Euler."""
    steps = np.diff(times)[:, None]
    if rule == "trapezoid":
        parts = 0.5 * (rates[1:] + rates[:-1]) * steps
    elif rule == "forward_euler":
        parts = rates[:-1] * steps
    else:
        raise ParameterOutOfRange("rule", rule, "trapezoid or forward_euler")
    return np.concatenate([np.zeros((1, rates.shape[1])), np.cumsum(parts, axis=0)])


def integrate_rotations(times: Array, angular: Array, rule: str = "trapezoid") -> Array:
    """Integrate angular velocities in body axes (N, 3) [rad/s] to rotations (N, 3, 3) from the identity."""
    turns = np.diff(integrate(times, angular, rule), axis=0)
    angles = np.linalg.norm(turns, axis=1)[:, None, None]
    matrices = skew(turns)
    steps = np.eye(3) + np.sinc(angles / np.pi) * matrices
    steps += 0.5 * np.sinc(0.5 * angles / np.pi) ** 2 * (matrices @ matrices)
    result = np.empty((len(times), 3, 3))
    result[0] = np.eye(3)
    for k, step in enumerate(steps):
        result[k + 1] = result[k] @ step
    return result


def euler_rotations(angles: Array) -> Array:
    """Return the rotations (N, 3, 3) of Z-X-Y Euler angles (N, 3) [rad]: about z, the new x, then the new y."""
    (cz, cx, cy), (sz, sx, sy) = np.cos(angles).T, np.sin(angles).T
    rows = (
        (cz * cy - sz * sx * sy, -sz * cx, cz * sy + sz * sx * cy),
        (sz * cy + cz * sx * sy, cz * cx, sz * sy - cz * sx * cy),
        (-cx * sy, sx, cx * cy),
    )
    return np.stack([np.stack(row, -1) for row in rows], -2)


def euler_rate_matrices(angles: Array, times: Array) -> Array:
    """Return the matrices M (N, 3, 3) that turn Euler rates into body rates, at Z-X-Y Euler angles (N, 3) [rad].

    ``times`` (N,) [s] are for the error.

    Raises:
        SysidError: The middle angle is close to a right angle.

    Source: SPACE (46).
    """
    (_, cx, cy), (_, sx, sy) = np.cos(angles).T, np.sin(angles).T
    singular = np.flatnonzero(np.abs(cx) < _SINGULAR)
    if singular.size:
        raise SysidError(
            f"the Z-X-Y Euler angles of the base are singular at {times[singular[0]]:.3f} s: the angle about x is "
            f"{np.degrees(angles[singular[0], 1]):.2f} deg; expected away from +-90 deg. Give the twist of the base in "
            "its own axes"
        )
    zero, one = np.zeros_like(cx), np.ones_like(cx)
    rows = ((-cx * sy, cy, zero), (sx, zero, one), (cx * cy, sy, zero))
    return np.stack([np.stack(row, -1) for row in rows], -2)


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
