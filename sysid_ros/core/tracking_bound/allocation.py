"""What planners leave for the controller: proven bounds where there are any, typical values that say so where not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.control.model import ControlModel, PassiveDynamics
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.robot import EffortMeaning, RobotModel
from sysid_ros.core.regressors.slotine_li import SlotineLiRegressor
from sysid_ros.core.tracking_bound.bound import tracking_bound
from sysid_ros.core.tracking_bound.loop_response import BoundNotAvailable
from sysid_ros.core.trajectories.base import Trajectory

Array = NDArray[np.float64]

TYPICAL_POSITION = np.radians(1.0)
"""Position error that simulations stay well below [rad]; not proven."""
TYPICAL_VELOCITY = 0.1
"""Velocity error that simulations stay well below [rad/s]; not proven."""


@dataclass(frozen=True)
class TrackingAllowance:
    """Tracking errors a plan has to leave room for.

    Attributes:
        position: Of ``|q_d - q|``, (n,) [rad].
        velocity: Of ``|v_d - v|``, (n,) [rad/s].
        torque: Of the difference between commanded torque and what the desired motion needs, (n,) [Nm].
        is_proven: Whether they are bounds of the robust controller for this motion and these boxes.
        claims: What they are, in a sentence.
    """

    position: Array
    velocity: Array
    torque: Array
    is_proven: bool
    claims: str

    def __post_init__(self) -> None:
        for array in (self.position, self.velocity, self.torque):
            array.setflags(write=False)


def tracking_allowance(
    robot: RobotModel,
    boxes: tuple[Box, Box] | None = None,
    trajectory: Trajectory | None = None,
    payload: ArrayLike | None = None,
    settings: RobustSettings | None = None,
) -> TrackingAllowance:
    """Says what tracking errors to plan with.

    Args:
        robot: The arm.
        boxes: Boxes of the parameters of arm (14 n,) and payload (10,); the robot's own without them.
        trajectory: The motion; without it, before there is one, the typical values are returned.
        payload: Nominal payload the controller uses, (10,); see :meth:`ControlModel.of_boxes`.
        settings: Gains and timing of the controller.

    Returns:
        The bound of the robust controller, or typical values that are not proven.
    """
    if trajectory is None:
        return _typical(robot, boxes, settings, "no motion is known yet")
    model = ControlModel.of_boxes(robot, boxes, payload)
    try:
        bound = tracking_bound(robot, model, trajectory, settings)
    except BoundNotAvailable as reason:
        return _typical(robot, boxes, settings, str(reason))
    errors = (np.array(x) for x in (bound.position, bound.velocity, bound.torque))
    return TrackingAllowance(*errors, True, bound.claims)


def feedback_allowance(
    robot: RobotModel, boxes: tuple[Box, Box] | None = None, settings: RobustSettings | None = None
) -> Array:
    """Typical torque that feedback adds to the model's, (n,) [Nm]; not proven.

    It is what the largest error of a joint's own velocity sensor causes at the robot's home posture. The proven bound,
    :attr:`TrackingBound.torque`, assumes that all errors of all joints conspire for as long as they like.

    Args:
        robot: The arm.
        boxes: Boxes of the parameters of arm (14 n,) and payload (10,); the robot's own without them.
        settings: Gains of the controller.
    """
    settings = settings or RobustSettings()
    inertia = PassiveDynamics(robot, ControlModel.of_boxes(robot, boxes).total).inertia(robot.home)
    return (settings.bandwidth + settings.position_gain) * np.diag(inertia) * robot.sensors.velocity_error


def worst_case_torque(
    robot: RobotModel, model: ControlModel, feedback: ArrayLike, q: ArrayLike, v: ArrayLike, a: ArrayLike
) -> Array:
    """Largest torque the controller may command at states of a motion, for any parameters in the boxes.

    The model is linear in the parameters, so the extreme over the boxes is exact; Coulomb friction counts in the worst
    direction.

    Args:
        robot: The arm.
        model: Nominal parameters and boxes.
        feedback: What feedback may add, (n,) [Nm]: :attr:`TrackingBound.torque`.
        q: Desired positions, (N, n) [rad].
        v: Desired velocities, (N, n) [rad/s].
        a: Desired accelerations, (N, n) [rad/s^2].

    Returns:
        Magnitudes, (N, n) [Nm].
    """
    regressor = SlotineLiRegressor(robot, EffortMeaning.MOTOR_SIDE)
    columns = regressor.evaluate(q, v, v, a, direction=np.zeros_like(np.asarray(v, dtype=float)))
    lower, upper = (model.total + bound for bound in model.deviation)
    middle, radius = 0.5 * (lower + upper), 0.5 * (upper - lower)
    return np.abs(columns @ middle) + np.abs(columns) @ radius + model.friction_upper()[:, 0] + np.asarray(feedback)


def _typical(
    robot: RobotModel, boxes: tuple[Box, Box] | None, settings: RobustSettings | None, why: str
) -> TrackingAllowance:
    return TrackingAllowance(
        np.full(robot.n, TYPICAL_POSITION),
        np.full(robot.n, TYPICAL_VELOCITY),
        feedback_allowance(robot, boxes, settings),
        False,
        f"Tracking errors are typical values, not proven bounds: {why}.",
    )
