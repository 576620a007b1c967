"""Measurements of a free-flying robot, and the assumptions of guaranteed bounds: errors, momentum, external forces.

Measured are the twist of the base and rates of joints and wheels; poses come by integration. The base moves in the
axes it has at the first sample, and starts at their origin.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import MISSING, ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, setting
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


@dataclass(frozen=True, eq=False)
class SensorBounds:
    """Largest errors of measurements, each component by itself.

    Attributes:
        linear: Velocity of the base [m/s].
        angular: Angular velocity of the base [rad/s].
        joint_rate: Rates of the joints [rad/s, m/s].
        joint_position: Positions of the joints, a number or (N, n) [rad, m]. Integrated from
            rates by the trapezoid rule: each step h adds ``h joint_rate + h^2 a_max / 4``.
        means: The first three for errors averaged over a block of samples, (3,); None for the same as of one.
        wheel_rate: Speeds of the wheels [rad/s].
        wheel_inertia: Inertias of the wheels, relative, the same all the time [-].
        attitude: Angle by which the rotations of the base may be wrong, a number or (N,) [rad].
        place: Distance by which its positions may be wrong, a number or (N,) [m].
        probability: Probability that any of the first three, or of their means, is exceeded in a recording [-]: 0 for
            given bounds, else see :meth:`of_noise`.

    Raises:
        ParameterOutOfRange: A bound is negative or not finite.
    """

    linear: float
    angular: float
    joint_rate: float
    joint_position: ArrayLike
    means: ArrayLike | None = None
    wheel_rate: float = 0.0
    wheel_inertia: float = 0.0
    attitude: ArrayLike = 0.0
    place: ArrayLike = 0.0
    probability: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            size = np.asarray(0.0 if value is None else value, dtype=float)
            if not np.all(np.isfinite(size) & (size >= 0.0)):
                raise ParameterOutOfRange(f"bound '{name}' of the sensors", value, "finite and not negative")

    @classmethod
    def of_noise(
        cls, deviations: ArrayLike, joint_position: ArrayLike, block: int, count: int, probability: float
    ) -> SensorBounds:
        """Return bounds of Gaussian white noise, of single samples and of means, that all hold but with a probability.

        Args:
            deviations: Standard deviations of base velocity, angular velocity and joint rates, (3,).
            joint_position: Bound of the joint positions, see above.
            block: Samples of a mean.
            count: Number of samples times number of velocities.
            probability: Largest probability that any of the bounds is exceeded [-].

        Raises:
            ParameterOutOfRange: The probability is not between 0 and 1.
        """
        if not 0.0 < probability < 1.0:
            raise ParameterOutOfRange("probability [-]", probability, "between 0 and 1")
        sizes = np.asarray(deviations, dtype=float)
        one = sizes * -ndtri(0.25 * probability / count)
        means = sizes / np.sqrt(block) * -ndtri(0.25 * probability * block / count)
        linear, angular, joint_rate = one.tolist()
        return cls(linear, angular, joint_rate, joint_position, np.minimum(one, means), probability=probability)

    def velocity(self, n: int, of_means: bool) -> Array:
        """Return the bounds of the errors of base twist and joint rates, (6 + n,)."""
        one = np.array([self.linear, self.angular, self.joint_rate])
        sizes = np.minimum(one, one if self.means is None else np.asarray(self.means)) if of_means else one
        return np.repeat(sizes, [3, 3, n])


@dataclass(frozen=True, eq=False)
class MomentumRange:
    """Bounds of the momentum of robot and wheels together, in the inertial frame of the poses of the data.

    Attributes:
        initial: Linear and angular momentum at the first sample, box (6,) [kg m/s, kg m^2/s].
        force: Largest component of the external force (thrusters, drag) [N].
        torque: Largest component of the external torque about the inertial origin (gravity gradient) [Nm].
        knots: Number of pieces in which the external impulse counts as linear; more are tighter and slower [-].
    """

    initial: Box = field(default_factory=lambda: Box(np.zeros(6), np.zeros(6)))
    force: float = 0.0
    torque: float = 0.0
    knots: int = 6

    def __post_init__(self) -> None:
        if self.initial.lower.shape != (6,) or not np.all(np.isfinite(self.initial.width)):
            raise ParameterOutOfRange("initial momentum", self.initial, "a finite box of six entries")
        if not (0.0 <= self.force < np.inf and 0.0 <= self.torque < np.inf and self.knots >= 1):
            raise ParameterOutOfRange("force, torque, knots", (self.force, self.torque, self.knots), "0, 0, 1 or more")


@dataclass(frozen=True, eq=False)
class Recording:
    """A motion with bounds of its errors.

    Attributes:
        data: Samples.
        sensors: Bounds of their errors.
        momentum: Bounds of the momentum; at rest with the wheels at rest it is zero.
        block: Samples that are averaged to one set of rows [-].
        holds_object: Whether an object to be identified was held.
    """

    data: FloatingData
    sensors: SensorBounds
    momentum: MomentumRange = field(default_factory=MomentumRange)
    block: int = 1
    holds_object: bool = True


@dataclass(frozen=True)
class Assumptions(Settings):
    """Assumptions about sensors and environment for guaranteed bounds.

    Raises:
        ParameterOutOfRange: A value is out of range.
    """

    probability: float = setting(1e-6, "-", above=0.0, below=1.0)
    """Probability that white noise of the sensors' standard deviations exceeds any of the error bounds made of it."""
    averaged: float = setting(0.5, "s", lower=0.0, upper=1000.0)
    """Time over which samples are averaged to one set of rows; 0: every sample."""
    joint_position_error: float = setting(1e-5, "rad", lower=0.0, upper=1.0)
    """Largest error of a joint position."""
    wheel_rate_error: float = setting(0.0, "rad/s", lower=0.0, upper=1e3)
    """Largest error of the speed of a wheel."""
    wheel_inertia_error: float = setting(0.0, "-", lower=0.0, upper=1.0)
    """Largest relative error of the inertia of a wheel, the same all the time."""
    attitude_error: float = setting(1e-3, "rad", lower=0.0, upper=1.0)
    """Angle by which the attitude since the first sample may be wrong; counts where there is momentum."""
    place_error: float = setting(1e-3, "m", lower=0.0, upper=1e3)
    """Distance by which the position since the first sample may be wrong; counts where there is momentum."""
    linear_momentum: float = setting(0.0, "kg m/s", lower=0.0, upper=1e9)
    """Largest component of the linear momentum of robot and wheels at the first sample; 0 and the next 0: none."""
    angular_momentum: float = setting(0.0, "kg m^2/s", lower=0.0, upper=1e9)
    """Largest component of their angular momentum about the origin of the base at the first sample."""
    force: float = setting(0.0, "N", lower=0.0, upper=1e6)
    """Largest component of the force from outside: thrusters, drag."""
    torque: float = setting(0.0, "Nm", lower=0.0, upper=1e6)
    """Largest component of the torque from outside about where the base was at the first sample: gravity gradient."""

    @property
    def is_momentum_zero(self) -> bool:
        """Whether robot and wheels together have no momentum at the first sample."""
        return self.linear_momentum == 0.0 and self.angular_momentum == 0.0

    def recording(self, robot: FreeFlyer, data: FloatingData, holds_object: bool = True) -> Recording:
        """Return samples with bounds of their errors, by the standard deviations of the robot's sensors.

        ``holds_object``: whether an object to be identified was held.
        """
        step = float(np.median(np.diff(data.times)))
        block = min(max(1, round(self.averaged / step)), len(data))
        count = len(data) * (6 + robot.n)
        noise = SensorBounds.of_noise(robot.noise, self.joint_position_error, block, count, self.probability)
        sensors = replace(
            noise,
            wheel_rate=self.wheel_rate_error,
            wheel_inertia=self.wheel_inertia_error,
            attitude=self.attitude_error,
            place=self.place_error,
        )
        size = np.repeat([self.linear_momentum, self.angular_momentum], 3)
        known = MomentumRange(Box(-size, size), self.force, self.torque)
        return Recording(data, sensors, known, block, holds_object)
