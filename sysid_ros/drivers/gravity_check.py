"""The static test before the first motion: do the measured torques of a resting arm balance gravity, with this sign?

At rest the effort lies in ``g(q, theta, payload) + beta`` for some parameters of the robot's boxes, give or take the
sensor's error and, on the motor side of a gear, Coulomb friction. Gravity is linear in the parameters, so this interval
is exact. An arm outside it has another payload, mount, zero of its sensors or sign than its settings say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from sysid_ros.core.model.robot import EffortMeaning, RobotModel
from sysid_ros.drivers.arm import ArmError, Array

_SLACK = 1e-9


class GravityTestFailed(ArmError):
    """The measured torques of the resting arm are not those of its model; nothing may move.

    Args:
        reason: Which joint, by how much, and what may be wrong.
        joint: Name of the joint that is worst.
        is_contradiction: Whether torques and model contradict each other; else the posture tells too little.
    """

    def __init__(self, reason: str, joint: str, is_contradiction: bool = True):
        self.reason = reason
        self.joint = joint
        self.is_contradiction = is_contradiction
        super().__init__(f"static gravity test: {reason}")


@dataclass(frozen=True)
class GravityTest:
    """What was compared.

    Attributes:
        measured: Mean efforts in joint direction, (n,) [Nm].
        lower: Smallest effort the model allows, (n,) [Nm].
        upper: Largest one, (n,) [Nm].
        sign_is_proven: Whether the opposite sign would have been noticed in a joint.
    """

    measured: Array
    lower: Array
    upper: Array
    sign_is_proven: bool


def static_effort_interval(robot: RobotModel, q: Array) -> tuple[Array, Array]:
    """Interval of the true efforts of the arm at rest for all parameters and payloads in the robot's boxes.

    Args:
        robot: Kinematics, boxes and meaning of the effort.
        q: Positions, (n,) [rad].

    Returns:
        Lower and upper efforts, each (n,) [Nm].
    """
    model = robot.pin_model
    zero = np.zeros(robot.n)
    regressor = pin.computeJointTorqueRegressor(model, model.createData(), q, zero, zero)
    arm, payload = robot.theta_box, robot.payload_prior.box
    center = regressor @ arm.center[: 10 * robot.n] + regressor[:, -10:] @ payload.center
    radius = np.abs(regressor) @ arm.radius[: 10 * robot.n] + np.abs(regressor[:, -10:]) @ payload.radius
    coulomb, _, _, offset = robot.friction(arm.center).T
    coulomb_radius, _, _, offset_radius = robot.friction(arm.radius).T
    center, radius = center + offset, radius + offset_radius
    if robot.sensors.effort_meaning is not EffortMeaning.LINK_SIDE:
        radius = radius + coulomb + coulomb_radius
    return center - radius, center + radius


def check_gravity(robot: RobotModel, q: Array, tau: Array) -> GravityTest:
    """Compares the efforts of the resting arm with its model.

    Args:
        robot: The arm.
        q: Mean positions, (n,) [rad].
        tau: Mean efforts in joint direction, (n,) [Nm].

    Raises:
        GravityTestFailed: An effort is outside its interval, or the posture tells nothing about the sign.
    """
    sensors = robot.sensors
    lower, upper = static_effort_interval(robot, q)
    # |error| <= rho |true| + a gives |error| <= (rho |measured| + a) / (1 - rho)
    error = (sensors.effort_relative_error * np.abs(tau) + sensors.effort_absolute_error) / (
        1.0 - sensors.effort_relative_error
    ) + _SLACK
    excess = np.maximum(lower - error - tau, tau - upper - error)
    reversed_excess = np.maximum(lower - error + tau, -tau - upper - error)
    joint = int(excess.argmax())
    if excess[joint] > 0.0:
        hint = "payload, mount, tool or torque offsets are not as configured"
        if reversed_excess.max() <= 0.0:
            hint = "with the opposite sign all joints would agree: check sensors.effort_sign"
        raise GravityTestFailed(
            f"{robot.joint_names[joint]} measures {tau[joint]:.2f} Nm at rest, its model allows "
            f"{lower[joint]:.2f} to {upper[joint]:.2f} Nm (+- {error[joint]:.2f} Nm of the sensor); {hint}",
            robot.joint_names[joint],
        )
    is_proven = bool(reversed_excess.max() > 0.0)
    if not is_proven:
        heaviest = int(np.abs(tau).argmax())
        raise GravityTestFailed(
            f"no joint carries enough in this posture to tell the sign of the torques ({robot.joint_names[heaviest]}, "
            f"the most loaded, {tau[heaviest]:.2f} Nm); stretch the arm out and try again",
            robot.joint_names[heaviest],
            is_contradiction=False,
        )
    return GravityTest(tau, lower, upper, is_proven)
