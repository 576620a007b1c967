"""The robot as every other module sees it: kinematics, limits, and what is known about its parameters.

``theta`` of an arm with n joints is ``[inertial (10 n) | friction (4 n)]``: the ten inertial parameters of each moving
body (everything fixed to it merged in, about its joint frame), then ``[F_c, F_v, I_a, beta]`` of each joint. The payload
is not part of it: ten parameters of their own, about the frame of the last joint, which add to the last body.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.model.box import Box

Array = NDArray[np.float64]

INERTIAL = 10
"""Inertial parameters of a body."""
FRICTION = 4
"""Friction parameters of a joint: Coulomb F_c [Nm], viscous F_v [Nm s/rad], armature I_a [kg m^2], offset beta [Nm]."""


class EffortMeaning(Enum):
    """What the robot's effort signal measures.

    ``MOTOR_SIDE``: torque before friction and armature, so ``H a + C v + g + friction + I_a a = effort`` (SAFE-ID (5), (6)).
    ``LINK_SIDE``: torque after the gear: friction and armature are not in it, ``H a + C v + g = effort``.
    """

    MOTOR_SIDE = "motor_side"
    LINK_SIDE = "link_side"


@dataclass(frozen=True)
class JointLimits:
    """Limits of the n joints.

    Attributes:
        q_lower: Lower positions, (n,) [rad]; -inf for a continuous joint.
        q_upper: Upper positions, (n,) [rad]; +inf for a continuous joint.
        v_max: Speeds, (n,) [rad/s].
        a_max: Accelerations for planning, (n,) [rad/s^2].
        tau_max: Torques, (n,) [Nm].
    """

    q_lower: Array
    q_upper: Array
    v_max: Array
    a_max: Array
    tau_max: Array


@dataclass(frozen=True)
class SensorModel:
    """What the joint sensors guarantee; every entry enters the error budget of the bounds and the simulated arm.

    Attributes:
        effort_meaning: What the effort signal measures.
        effort_sign: Multiply the vendor's effort by this (+1 or -1) to get the torque in joint direction.
        effort_relative_error: Largest relative torque error, (n,) [-].
        effort_absolute_error: Largest absolute torque error, (n,) [Nm].
        effort_is_held: Whether an effort sample is the mean torque since the previous sample (a held command, an
            averaging sensor); otherwise it is the torque at the stamp.
        position_resolution: Encoder step, (n,) [rad]; the position error is at most half of it.
        velocity_error: Largest velocity error, (n,) [rad/s].
        stamp_jitter: Largest error of a stamp [s].
    """

    effort_meaning: EffortMeaning
    effort_sign: float
    effort_relative_error: Array
    effort_absolute_error: Array
    effort_is_held: bool
    position_resolution: Array
    velocity_error: Array
    stamp_jitter: float


@dataclass(frozen=True)
class Sphere:
    """A collision sphere fixed to a moving body (0 = base, i = body moved by joint i).

    Attributes:
        body: Index of the body.
        center: Centre in the body's joint frame, (3,) [m].
        radius: Radius [m].
        link: Name of the link it covers.
    """

    body: int
    center: Array
    radius: float
    link: str


@dataclass(frozen=True)
class PayloadPrior:
    """What is known of a payload before anything has been measured.

    Attributes:
        box: Box of its ten parameters about the frame of the last joint.
        nominal: A physically consistent point of the box, (10,).
        name: Which prior this is, for reports.
    """

    box: Box
    nominal: Array
    name: str = "default"


@dataclass(frozen=True)
class RobotModel:
    """An arm and what is known about it.

    Attributes:
        name: Name of the model, as in ``config/<name>.yaml``.
        pin_model: Pinocchio model of the arm with its tool and without payload; all n joints have one position and one
            velocity (continuous joints are plain revolute ones), in the order of ``joint_names``; gravity included.
        joint_names: Names of the n joints.
        base_frame: Name of the link that stands still.
        flange_frame: Name of the link tools are mounted to.
        tool_frame: Name of the link a payload is held in (where reports express the payload).
        limits: Joint limits.
        theta_nominal: Nominal parameters, (14 n,) (see the module).
        theta_box: Box that contains the true parameters, (14 n,).
        sensors: Guarantees of the sensors.
        spheres: Collision spheres.
        payload_prior: Prior of an unknown payload.
        rated_payload: Payload the arm is rated for [kg].
        home: Posture identification starts from, (n,) [rad].
        urdf: The URDF text (meshes may be missing).
        warnings: What was noticed and mended while loading.
    """

    name: str
    pin_model: pin.Model
    joint_names: tuple[str, ...]
    base_frame: str
    flange_frame: str
    tool_frame: str
    limits: JointLimits
    theta_nominal: Array
    theta_box: Box
    sensors: SensorModel
    spheres: tuple[Sphere, ...]
    payload_prior: PayloadPrior
    rated_payload: float
    home: Array
    urdf: str = field(repr=False, default="")
    warnings: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.joint_names)

    @property
    def gravity(self) -> Array:
        """Gravity in the base frame, (3,) [m/s^2]."""
        return np.array(self.pin_model.gravity.linear)

    def inertial_slice(self, body: int) -> slice:
        """Entries of ``theta`` that belong to body ``body`` (1..n)."""
        return slice(INERTIAL * (body - 1), INERTIAL * body)

    def friction(self, theta: Array) -> Array:
        """Friction part of ``theta`` as (n, 4): F_c, F_v, I_a, beta."""
        return np.asarray(theta)[INERTIAL * self.n :].reshape(self.n, FRICTION)
