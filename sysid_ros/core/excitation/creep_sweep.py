"""Creep sweeps: slow motions along a line and back that show friction and torque offsets, proven before they run.

All joints move along one line from the start and back the same way, each at a nearly constant speed of its own: just
above the speed at which its direction is certain, and in steps up to ten times the stiction speed. Gravity torques are
the same on the way back, so the difference of both ways is friction.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.certification.stop_model import PlanRejected
from sysid_ros.core.common.errors import Cancelled, ParameterOutOfRange, SysidError
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.excitation.whole_arm import prove_motion
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable
from sysid_ros.core.trajectories.families import FourierTrajectory

Array = NDArray[np.float64]

SPEEDS = 3
"""Speeds of a sweep, each a motion of its own."""
_FASTEST = 0.1
"""The fastest of them, unless joints are certain to move only when faster [rad/s]."""
_SLOWEST_MARGIN, _STEP = 1.6, 1.4
"""The slowest speed over the certain one, for the controller does not hold it exactly; least ratio of two speeds."""
_ORDERS = np.arange(1, 20, 2)
"""Harmonics of the speed. Odd ones: the way back mirrors the way there, with halves alike."""
_EDGE = 0.13
"""Share of each way in which the speed rises, and in which it falls."""
_SHORTER = (1.0, 0.6, 0.35)
"""Shares of the duration that are tried where the path is refused: the speeds stay."""


def certain_speed(robot: RobotModel, settings: EstimatorSettings, period: float) -> Array:
    """Return the measured speed above which the direction of each joint is certain at this period [s], (n,) [rad/s]."""
    drift = 0.5 * settings.acceleration_factor * robot.limits.a_max * (period + 2.0 * robot.sensors.stamp_jitter)
    return np.asarray(robot.link_sensors.velocity_error + drift + settings.stiction_speed)


@dataclass(frozen=True)
class CreepSweep:
    """Proven slow motions.

    Attributes:
        plans: The motions with their certificates, the slowest first; each starts and ends at rest at one position.
        speeds: Planned speeds of the joints, (K, n) [rad/s].
    """

    plans: tuple[CertifiedPlan, ...]
    speeds: Array

    @property
    def duration(self) -> float:
        """Duration of all motions [s]."""
        return sum(plan.duration for plan in self.plans)


def creep_speeds(robot: RobotModel, period: float, settings: EstimatorSettings | None = None) -> Array:
    """Choose the speeds of a sweep, (K, n) [rad/s], rising.

    Args:
        robot: The arm.
        period: Between samples [s].
        settings: Settings of the later estimator, which set the speed at which the direction is certain.
    """
    slowest = _SLOWEST_MARGIN * certain_speed(robot, settings or EstimatorSettings(), period)
    fastest = np.maximum(_FASTEST, _STEP ** (SPEEDS - 1) * slowest)
    return np.asarray(slowest * (fastest / slowest) ** (np.arange(SPEEDS)[:, None] / (SPEEDS - 1)))


def sweep_motion(q_start: ArrayLike, speed: ArrayLike, duration: float) -> FourierTrajectory:
    """Return a motion along a line and back, at nearly constant speed.

    Args:
        q_start: Start and end position, (n,) [rad].
        speed: Speed of each joint on its way there, with its direction, (n,) [rad/s].
        duration: Duration of both ways [s].
    """
    profile = np.zeros(_ORDERS[-1])
    profile[_ORDERS - 1] = _plateau()
    cosine = np.multiply.outer(np.asarray(speed, dtype=float), profile)
    return FourierTrajectory(q_start, np.zeros_like(cosine), cosine, 1.0 / duration, duration)


def _plateau() -> Array:
    """Return coefficients c of ``sum c_l sin(l x)`` that is about 1 but at the ends of (0, pi), and rises from rest."""
    x = np.linspace(0.0, np.pi, 401)
    rise = np.clip(np.minimum(x, np.pi - x) / (2.0 * _EDGE * np.pi), 0.0, 0.5)
    wanted = 0.5 * (1.0 - np.cos(2.0 * np.pi * rise))
    null = np.linalg.svd(_ORDERS[None].astype(float))[2][1:].T  # no acceleration at the start: sum l c_l = 0
    found: Array = null @ np.linalg.lstsq(np.sin(np.outer(x, _ORDERS)) @ null, wanted, rcond=None)[0]
    return found


def plan_creep_sweep(
    assumptions: Assumptions,
    q_start: ArrayLike,
    duration: float = 8.0,
    period: float = 1e-3,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_progress: Callable[[float, str], None] = lambda fraction, text: None,
) -> CreepSweep:
    """Plan and prove the motions of a sweep, by the same proof as exciting motions of a whole arm.

    Where a path is refused, all joints go the other way, then every other one, then less far.

    Args:
        assumptions: Arm, boxes of its and its tool's parameters, scene and control law.
        q_start: Start and end position, (n,) [rad].
        duration: Duration of each motion, there and back [s].
        period: Between samples [s].
        is_cancelled: Polled before every proof.
        on_progress: Called with the fraction done, 0..1, and a sentence.

    Raises:
        SysidError: One of the motions could not be proven.
        ParameterOutOfRange: The duration is not positive.
        Cancelled: ``is_cancelled`` returned true.
    """
    if not 0.0 < duration < np.inf:
        raise ParameterOutOfRange("duration of a sweep [s]", duration, "above 0")
    robot, start = assumptions.robot, np.asarray(q_start, dtype=float)
    speeds = creep_speeds(robot, period)
    plans = []
    for number, speed in enumerate(speeds):
        on_progress(number / SPEEDS, f"sweep {number + 1} of {SPEEDS}")
        reasons: list[str] = []
        for share, directions in itertools.product(_SHORTER, _directions(robot, start)):
            if is_cancelled():
                raise Cancelled("the planner of a sweep was cancelled")
            try:
                path = sweep_motion(start, directions * speed, share * duration)
                plans.append(prove_motion(assumptions, path))
                break
            except (BoundNotAvailable, PlanRejected) as reason:
                reasons.append(str(reason))
        else:
            raise SysidError(
                f"no creep sweep of up to {speed.max():.3g} rad/s could be proven from here: {reasons[-1]}; start "
                "elsewhere, or leave more room"
            )
    on_progress(1.0, f"{SPEEDS} motions")
    return CreepSweep(tuple(plans), speeds)


def _directions(robot: RobotModel, start: Array) -> Iterator[Array]:
    """Return the directions to try, (n,) each: first away from the nearer limit of each joint."""
    lower, upper = robot.limits.q_lower, robot.limits.q_upper
    has_limits = np.isfinite(lower) & np.isfinite(upper)
    middle = np.where(has_limits, 0.5 * (np.where(has_limits, lower, 0.0) + np.where(has_limits, upper, 0.0)), start)
    inwards = np.where(start > middle, -1.0, 1.0)
    alternating = np.where(np.arange(robot.n) % 2 == 0, 1.0, -1.0)
    yield from (inwards, -inwards, inwards * alternating, -inwards * alternating)
