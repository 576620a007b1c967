"""Model and limits of an exciting motion: boxes of the parameters, tracking errors, collisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.certification.stop_model import TrackingErrors, error_bound
from sysid_ros.core.collision.clearance import CollisionModel, Obstacle, build_collision_model
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.excitation.sampled_checks import TorqueDemand
from sysid_ros.core.excitation.settings import ExcitationSettings
from sysid_ros.core.excitation.tool_points import VirtualShapes
from sysid_ros.core.model.robot import RobotModel, Sphere

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
    """Model of the arm, the payload and the controller for planning a motion.

    Attributes:
        robot: The arm.
        arm_box: Box of its parameters, (14 n,).
        payload_box: Box of the payload's parameters, (10,).
        payload: Nominal payload, (10,).
        tracking_position: Largest position error of the controller, (n,) [rad].
        tracking_velocity: Largest velocity error of the controller, (n,) [rad/s].
        collision: Spheres, pairs and obstacles.
        feedback_torque: Torque of the feedback on top of the model's, (n,) [Nm].
        virtual: Points and ellipsoids that the search keeps apart in place of the distances of spheres; those decide in
            the end all the same. None for the spheres.
    """

    robot: RobotModel
    arm_box: Box
    payload_box: Box
    payload: Array
    tracking_position: Array
    tracking_velocity: Array
    collision: CollisionModel
    feedback_torque: Array
    virtual: VirtualShapes | None = None

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
        """Build a model; whatever is not given is taken from the robot's settings.

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
    """Build the limits of a motion from a start position.

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
