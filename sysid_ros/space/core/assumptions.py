"""Assumptions of guaranteed bounds: errors of sensors, the momentum, and external forces."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.space.core.measurements import FloatingData
from sysid_ros.space.core.robot import FreeFlyer

Array = NDArray[np.float64]


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
