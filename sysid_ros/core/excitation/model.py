"""What is known and what is allowed when an exciting motion is planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import casadi as ca
import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.certification.motion_checks import TorqueDemand, TrackingErrors, error_bound
from sysid_ros.core.collision.clearance import CollisionModel, Obstacle, build_collision_model
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.excitation.settings import ExcitationSettings
from sysid_ros.core.excitation.symbolic import build_torque_regressor
from sysid_ros.core.model.robot import FRICTION, INERTIAL, RobotModel, Sphere
from sysid_ros.core.trajectories.braking import clock_rates

Array = NDArray[np.float64]

_DISTANCE_SMOOTHING = 0.004
"""Length s over which the minimum of distances is smoothed [m]."""
_USAGE_SMOOTHING = 0.02
"""Share of the limits over which the maximum of torques is smoothed [-]."""
_STOP_PROGRESS = (0.5, 0.7, 1.0)
"""Fractions of the progress of a stop at which its torque is looked at; the last is rest."""
_SMOOTHING = 1e-3
"""``|x|`` is replaced by ``sqrt(x^2 + s^2) >= |x|``: s in Nm for torques, in units of the regressor for its entries."""


class SampledDynamics:
    """The torque regressor at N samples and its reverse derivative.

    Args:
        robot: The arm.
        samples: Number of samples N.
    """

    def __init__(self, robot: RobotModel, samples: int):
        self.n = robot.n
        self.samples = samples
        single = build_torque_regressor(robot)
        pattern = single.sparsity_out(0)
        self.columns = pattern.size2()
        self._rows = np.array(pattern.row())
        self._cols = np.repeat(np.arange(self.columns), np.diff(pattern.colind()))
        state = [ca.SX.sym(name, self.n) for name in ("q", "v", "a")]
        regressor = single(*state)
        weight = ca.SX.sym("weight", pattern)
        gradient = [ca.gradient(ca.dot(regressor, weight), x) for x in state]
        self._regressor = single.map(samples)
        self._pull_back = ca.Function("pull_back", [*state, weight], gradient).map(samples)
        self._weight_pattern = self._pull_back.sparsity_in(3)
        self._state, self._single = state, single

    def regressor(self, q: Array, v: Array, a: Array) -> Array:
        """The regressor at the samples, (N, n, 14 n + 10); q, v, a are (N, n)."""
        result = np.zeros((self.samples, self.n, self.columns))
        values = np.array(self._regressor(q.T, v.T, a.T).nonzeros())
        result[:, self._rows, self._cols] = values.reshape(self.samples, -1)
        return result

    def pull_back(self, q: Array, v: Array, a: Array, weight: Array) -> tuple[Array, Array, Array]:
        """Gradient of ``sum(weight * regressor)`` with respect to q, v and a, each (N, n); weight as the regressor."""
        values = ca.DM(self._weight_pattern, weight[:, self._rows, self._cols].ravel())
        dq, dv, da = self._pull_back(q.T, v.T, a.T, values)
        return dq.full().T, dv.full().T, da.full().T

    def build_torque_usage(self, demand: TorqueDemand, brake_time: float) -> TorqueUsage:
        """The largest share of a torque limit that any parameters in the boxes need.

        It covers the motion itself and stops along its path, at the fractions of their progress where they are hardest
        and at rest after them. Coulomb friction counts in the worst direction.

        Args:
            demand: Boxes of the parameters, and the torque of the controller.
            brake_time: Time to rest of the stops [s].
        """
        center = np.concatenate([demand.arm_box.center, demand.payload_box.center])
        radius = np.concatenate([demand.arm_box.radius, demand.payload_box.radius])
        q, v, a = self._state
        states = [(q, v, a)]
        for progress in _STOP_PROGRESS:
            rate, slowdown = clock_rates(progress, brake_time)
            states.append((q, rate * v, rate**2 * a + slowdown * v))
        feedback, limits = ca.DM(demand.feedback), ca.DM(demand.robot.limits.tau_max)
        shares = [(self._worst_torque(state, center, radius) + feedback) / limits for state in states]
        return TorqueUsage(ca.vertcat(*shares), self._state, self.samples)

    def _worst_torque(self, state: tuple[ca.SX, ca.SX, ca.SX], center: Array, radius: Array) -> ca.SX:
        """``|W center| + |W| radius`` with smooth absolute values, never below it."""
        sliding = np.zeros(self.columns, dtype=bool)
        sliding[INERTIAL * self.n : (INERTIAL + FRICTION) * self.n : FRICTION] = True
        coulomb = np.abs(center[sliding]) + radius[sliding]
        regressor = self._single(*state)
        torque = regressor @ ca.DM(np.where(sliding, 0.0, center))
        size = [ca.sqrt(entry**2 + _SMOOTHING**2) for entry in regressor.nonzeros()]
        spread = ca.SX(regressor.sparsity(), ca.vertcat(*size)) @ ca.DM(np.where(sliding, 0.0, radius))
        return ca.sqrt(torque**2 + _SMOOTHING**2) + spread + ca.DM(coulomb)


class TorqueUsage:
    """The largest of several shares of torque limits at N samples, slightly rounded up to be smooth, with its Jacobian.

    Args:
        shares: The shares, (m,) [-].
        state: Symbols of q, v and a, each (n,).
        samples: Number of samples N.
    """

    def __init__(self, shares: ca.SX, state: list[ca.SX], samples: int):
        # The log of a sum of exponentials is never below the maximum, and above it by at most s log(m).
        largest = _USAGE_SMOOTHING * ca.log(ca.sum1(ca.exp(shares / _USAGE_SMOOTHING)))
        jacobian = ca.densify(ca.jacobian(largest, ca.vertcat(*state)))
        self._value = ca.Function("torque_usage", state, [largest]).map(samples)
        self._jacobian = ca.Function("torque_usage_jacobian", state, [jacobian]).map(samples)
        self._shape = (samples, 1, jacobian.numel())

    def value(self, q: Array, v: Array, a: Array) -> Array:
        """Largest shares, (N, 1) [-]; q, v, a are (N, n)."""
        return self._value(q.T, v.T, a.T).full().T

    def jacobian(self, q: Array, v: Array, a: Array) -> Array:
        """Derivatives with respect to q, v, a, (N, 1, 3 n)."""
        return self._jacobian(q.T, v.T, a.T).full().reshape(self._shape)


class SampledClearance:
    """The smallest of several distances at N samples, slightly rounded down to be smooth, with its Jacobian.

    Args:
        clearance: Function ``q (n,) -> distances (m,)`` [m], at least one.
        samples: Number of samples N.
    """

    def __init__(self, clearance: ca.Function, samples: int):
        q = ca.SX.sym("q", clearance.size1_in(0))
        # Minus the log of a sum of exponentials is never above the minimum, and below it by at most s log(m).
        smallest = -_DISTANCE_SMOOTHING * ca.log(ca.sum1(ca.exp(-clearance(q) / _DISTANCE_SMOOTHING)))
        self._value = ca.Function("clearance", [q], [smallest]).map(samples)
        jacobian = ca.densify(ca.jacobian(smallest, q))
        self._jacobian = ca.Function("clearance_jacobian", [q], [jacobian]).map(samples)
        self._shape = (samples, 1, q.numel())

    def value(self, q: Array) -> Array:
        """Smallest distances, (N, 1) [m]; q is (N, n)."""
        return self._value(q.T).full().T

    def jacobian(self, q: Array) -> Array:
        """Derivatives with respect to q, (N, 1, n)."""
        return self._jacobian(q.T).full().reshape(self._shape)


class StartOutsideLimits(SysidError):
    """A start position no motion can begin at.

    Args:
        what: What is violated, with joint and unit.
        value: Its value at the start.
        allowed: What is allowed, in words.
    """

    def __init__(self, what: str, value: float, allowed: str):
        self.what = what
        self.value = value
        self.allowed = allowed
        super().__init__(f"the start position cannot be used: {what} is {value:.4g}; allowed: {allowed}")


class NoExcitationFound(SysidError):
    """No motion at all around the start position respects every limit.

    Args:
        starts: Starts that were tried.
    """

    def __init__(self, starts: int):
        self.starts = starts
        super().__init__(
            f"none of {starts} exciting motions around the start position respects all limits, however small it is "
            "made; start elsewhere, or give narrower bounds of the payload"
        )


@dataclass(frozen=True)
class ExcitationModel:
    """What is known when a motion is planned.

    Attributes:
        robot: The arm.
        arm_box: Box of its parameters, (14 n,).
        payload_box: Box of the payload's parameters, (10,).
        payload: Nominal payload, (10,).
        tracking_position: Largest position error of the controller, (n,) [rad].
        tracking_velocity: Largest velocity error of the controller, (n,) [rad/s].
        collision: What must not touch what.
        feedback_torque: Torque the controller may add to what the motion needs, (n,) [Nm].
    """

    robot: RobotModel
    arm_box: Box
    payload_box: Box
    payload: Array
    tracking_position: Array
    tracking_velocity: Array
    collision: CollisionModel
    feedback_torque: Array

    @property
    def torque_demand(self) -> TorqueDemand:
        """The torques this model may need."""
        return TorqueDemand(self.robot, self.arm_box, self.payload_box, self.feedback_torque)

    @classmethod
    def of(
        cls,
        robot: RobotModel,
        arm_box: Box | None = None,
        payload_box: Box | None = None,
        payload: ArrayLike | None = None,
        tracking: TrackingErrors | None = None,
        obstacles: Sequence[Obstacle] = (),
        ground_height: float | None = None,
        payload_spheres: Sequence[Sphere] | None = None,
        feedback_torque: ArrayLike = 0.0,
    ) -> ExcitationModel:
        """Puts a model together; what is not given is taken from the robot's settings.

        Args:
            robot: The arm.
            arm_box: Box of its parameters, (14 n,).
            payload_box: Box of the payload's parameters, (10,), such as the bounds of an estimate.
            payload: Nominal payload, (10,); without it the prior's if that lies in the box, else the middle of the box.
            tracking: Errors of the controller; none without it.
            obstacles: Boxes to keep away from.
            ground_height: Height of the ground in the base frame [m]; no ground without it.
            payload_spheres: Spheres that cover what the arm carries.
            feedback_torque: Torque the controller may add to what the motion needs, (n,) or one for all [Nm].

        Raises:
            ParameterOutOfRange: An error or a torque is negative or not finite.
        """
        prior = robot.payload_prior
        box = payload_box or prior.box
        nominal = prior.nominal if box.contains(prior.nominal) else box.center
        spheres = prior.spheres if payload_spheres is None else payload_spheres
        position, velocity = (0.0, 0.0) if tracking is None else (tracking.position, tracking.velocity)
        return cls(
            robot=robot,
            arm_box=arm_box or robot.theta_box,
            payload_box=box,
            payload=nominal if payload is None else np.array(payload, dtype=float),
            tracking_position=error_bound("tracking.position [rad]", position, robot.n),
            tracking_velocity=error_bound("tracking.velocity [rad/s]", velocity, robot.n),
            collision=build_collision_model(robot, spheres, obstacles, ground_height),
            feedback_torque=error_bound("feedback_torque [Nm]", feedback_torque, robot.n),
        )


@dataclass(frozen=True)
class MotionLimits:
    """Limits of the n joints with every margin taken off.

    Attributes:
        position_lower: Lower positions, (n,) [rad].
        position_upper: Upper positions, (n,) [rad].
        velocity: Speeds, (n,) [rad/s].
        acceleration: Accelerations, (n,) [rad/s^2].
        torque_usage: Share of the torque limits that the worst model may need [-].
        clearance: Distances between spheres, to ground and to obstacles [m].
    """

    position_lower: Array
    position_upper: Array
    velocity: Array
    acceleration: Array
    torque_usage: float
    clearance: float


def build_limits(model: ExcitationModel, q_start: Array, settings: ExcitationSettings) -> MotionLimits:
    """The limits of a motion from a start position.

    Raises:
        StartOutsideLimits: The start position is not finite, of the wrong length or outside the position limits.
    """
    robot, joint_limits = model.robot, model.robot.limits
    if q_start.shape != (robot.n,):
        raise StartOutsideLimits("the number of positions", float(q_start.size), f"{robot.n}, one per joint")
    lower = joint_limits.q_lower + model.tracking_position
    upper = joint_limits.q_upper - model.tracking_position
    for name, value, low, high in zip(robot.joint_names, q_start, lower, upper, strict=True):
        if not (np.isfinite(value) and low <= value <= high):
            raise StartOutsideLimits(f"joint '{name}' [rad]", float(value), f"{low:.4g} to {high:.4g}")
    velocity = settings.velocity_fraction * joint_limits.v_max - model.tracking_velocity
    for name, value in zip(robot.joint_names, velocity, strict=True):
        if value <= 0.0:
            what = f"the speed left at joint '{name}' by velocity_fraction and tracking error [rad/s]"
            raise StartOutsideLimits(what, float(value), "above 0")
    return MotionLimits(
        position_lower=np.maximum(lower, q_start - settings.amplitude),
        position_upper=np.minimum(upper, q_start + settings.amplitude),
        velocity=velocity,
        acceleration=settings.acceleration_fraction * joint_limits.a_max,
        torque_usage=settings.torque_fraction,
        clearance=settings.clearance,
    )
