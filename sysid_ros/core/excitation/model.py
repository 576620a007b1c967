"""What is known and what is allowed when an exciting motion is planned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.errors import SysidError
from sysid_ros.core.excitation.settings import ExcitationSettings
from sysid_ros.core.model.box import Box
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.clearance import CollisionModel, build_collision_model

Array = NDArray[np.float64]


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
    """

    robot: RobotModel
    arm_box: Box
    payload_box: Box
    payload: Array
    tracking_position: Array
    tracking_velocity: Array
    collision: CollisionModel

    @classmethod
    def of(cls, robot: RobotModel) -> ExcitationModel:
        """Everything as the robot's settings have it, a perfect controller, no ground and no obstacles."""
        prior, zero = robot.payload_prior, np.zeros(robot.n)
        collision = build_collision_model(robot, prior.spheres)
        return cls(robot, robot.theta_box, prior.box, prior.nominal, zero, zero, collision)


@dataclass(frozen=True)
class MotionLimits:
    """Limits of the n joints with every margin taken off.

    Attributes:
        position_lower: Lower positions, (n,) [rad].
        position_upper: Upper positions, (n,) [rad].
        velocity: Speeds, (n,) [rad/s].
        acceleration: Accelerations, (n,) [rad/s^2].
        torque: Torques of the worst model, (n,) [Nm].
        clearance: Distances between spheres, to ground and to obstacles [m].
    """

    position_lower: Array
    position_upper: Array
    velocity: Array
    acceleration: Array
    torque: Array
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
        torque=settings.torque_fraction * joint_limits.tau_max,
        clearance=settings.clearance,
    )
