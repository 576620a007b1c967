"""Velocity from positions, for arms that send none, with a bound of its error that no causal estimate can beat.

Let every reading be within ``e`` of the true position, every stamp within ``J`` of the true time, and let no joint
accelerate beyond ``A`` or move faster than ``V``. The mean velocity over the last ``T`` seconds,

    v^(t) = (y(t) - y(t - T)) / T,      is within      2 (e + V J) / T + A T / 2      of v(t),

because ``q(t - T) = q(t) - T v(t) + r`` with ``|r| <= A T^2 / 2`` (Taylor). The best ``T`` is
``2 sqrt(e / A)`` and gives ``2 sqrt(e A)``: by Landau's inequality for the half-line no estimate from the past alone is
better in the worst case. ``T`` has to be a whole number of periods, and that number is chosen joint by joint.

If the robot file sets ``velocity_is_difference``, ``T`` is one period for every joint. That is hardly worse for a
single velocity, and the tracking bound of the controller is proven for it: it uses that the errors of successive
velocities cancel each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import Array

_MOST_PERIODS = 20
_TOLERANCE = 1e-9


class VelocitySource(Enum):
    """Source of velocities.

    ``FEEDBACK``: the arm sends them; ``sensors.velocity_error`` of the robot file has to bound their error.
    ``POSITIONS``: they are computed from positions, with a bound that is proven and much larger.
    """

    FEEDBACK = "feedback"
    POSITIONS = "positions"


@dataclass(frozen=True)
class VelocityPlan:
    """Averaging periods of each joint, and the guaranteed error."""

    periods: NDArray[np.intp]
    """Number of periods, (n,) [-]."""
    error: Array
    """Largest velocity error, (n,) [rad/s]."""
    is_nominal: bool = False
    """Whether times between readings count as whole periods, whatever their stamps say."""

    def __post_init__(self) -> None:
        self.periods.setflags(write=False)
        self.error.setflags(write=False)


def largest_acceleration(robot: RobotModel) -> Array:
    """Return the acceleration that the estimator's bounds assume for every joint, (n,) [rad/s^2]; used here too."""
    return EstimatorSettings().acceleration_factor * robot.limits.a_max


def plan_velocity(robot: RobotModel, period: float) -> VelocityPlan:
    """Choose the averaging times for readings at a period [s].

    Raises:
        ParameterOutOfRange: The period is not positive.
    """
    if not period > 0.0:
        raise ParameterOutOfRange("period [s]", period, "more than 0")
    sensors = robot.sensors
    reading = 0.5 * sensors.position_resolution + robot.limits.v_max * sensors.stamp_jitter
    most = 1 if sensors.velocity_is_difference else _MOST_PERIODS
    times = period * np.arange(1, most + 1)[:, None]
    errors = 2.0 * reading / times + 0.5 * largest_acceleration(robot) * times
    return VelocityPlan(errors.argmin(axis=0) + 1, errors.min(axis=0), sensors.velocity_is_difference)


def require_velocity_error(robot: RobotModel, period: float) -> VelocityPlan:
    """Return the plan, if the robot's settings allow its error: the estimator's error budget uses them.

    Raises:
        ParameterOutOfRange: ``sensors.velocity_error`` of a joint is smaller than the guaranteed error.
    """
    plan = plan_velocity(robot, period)
    allowed = robot.sensors.velocity_error
    worst = int(np.argmax(plan.error - allowed))
    if plan.error[worst] > allowed[worst] * (1.0 + _TOLERANCE):
        wanted = np.ceil(1e4 * plan.error) / 1e4
        raise ParameterOutOfRange(
            f"sensors.velocity_error of {robot.joint_names[worst]} [rad/s]",
            float(allowed[worst]),
            f"at least {plan.error[worst]:.4f}: velocities are computed from positions that come every "
            f"{1e3 * period:g} ms; set [{', '.join(f'{x:.4f}' for x in wanted)}] for all joints",
        )
    return plan


class VelocityEstimate:
    """Mean velocities over the last few periods [s], as planned; after a gap over the actual time."""

    def __init__(self, plan: VelocityPlan, period: float):
        self._periods, self._is_nominal = plan.periods, plan.is_nominal
        self._joints = np.arange(plan.periods.size)
        self._longest = int(plan.periods.max())
        self._period = period
        self.reset()

    def reset(self) -> None:
        """Discard all readings; the arm is assumed to have rested before the next one."""
        length = self._longest + 1
        self._stamps = np.zeros(length, dtype=np.int64)
        self._readings = np.zeros((length, self._periods.size))
        self._count = self._inexact_left = 0

    @property
    def is_exact(self) -> bool:
        """Whether the latest velocities are within the error of the plan: no average reaches across a gap."""
        return self._inexact_left == 0

    def update(self, stamp_ns: int, q: Array, is_next: bool = True) -> Array:
        """Take positions, (n,) [rad], at a later time [ns] than the last, and return velocities, (n,) [rad/s].

        Across a missing reading the averaging time grows, and with it the error. Not ``is_next``: this reading is known
        not to follow one period after the last; stamps show it, too.
        """
        length = self._longest + 1
        self._inexact_left = max(0, self._inexact_left - 1)
        if self._count == 0:
            steps = np.arange(length, 0, -1) - 1
            self._stamps[:] = stamp_ns - np.round(steps * self._period * 1e9).astype(np.int64)
            self._readings[:] = q
        else:
            is_next = is_next and round(1e-9 * (stamp_ns - int(self._stamps[-1])) / self._period) == 1
            self._stamps[:-1], self._readings[:-1] = self._stamps[1:].copy(), self._readings[1:].copy()
            self._stamps[-1], self._readings[-1] = stamp_ns, q
        if not is_next:
            self._inexact_left = self._longest
        self._count += 1
        past = self._longest - self._periods
        elapsed = 1e-9 * (stamp_ns - self._stamps[past])
        if self._is_nominal:
            elapsed = self._period * np.maximum(np.round(elapsed / self._period), 1.0)
        return (q - self._readings[past, self._joints]) / elapsed
