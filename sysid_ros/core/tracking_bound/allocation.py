"""Tracking-error allocation of a plan: the proven bound where there is one, else typical values labelled as such."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.control.gains import default_gains
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.tracking_bound.bound import tracking_bound
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable
from sysid_ros.core.trajectories.base import Trajectory

Array = NDArray[np.float64]

TYPICAL_POSITION = np.radians(1.0)
"""Position error that simulations stay well below [rad]; not proven."""
TYPICAL_VELOCITY = 0.1
"""Velocity error that simulations stay well below [rad/s]; not proven."""


@dataclass(frozen=True)
class TrackingAllocation:
    """Tracking errors that a plan leaves room for.

    Attributes:
        position: Of ``|q_d - q|``, (n,) [rad].
        velocity: Of ``|v_d - v|``, (n,) [rad/s].
        torque: Of the commanded torque less the torque the desired motion needs, (n,) [Nm].
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


def allocate_tracking_errors(
    robot: RobotModel,
    boxes: tuple[Box, Box] | None = None,
    trajectory: Trajectory | None = None,
    payload: ArrayLike | None = None,
    settings: RobustSettings | None = None,
) -> TrackingAllocation:
    """Allocate tracking errors to a plan.

    Args:
        robot: The arm.
        boxes: Boxes of the parameters of arm (14 n,) and payload (10,); the robot's own without them.
        trajectory: The motion; before it is known, the typical values are allocated.
        payload: Nominal payload of the controller, (10,); see :meth:`ControlModel.of_boxes`.
        settings: Gains and timing of the controller.

    Returns:
        The bound of the robust controller, or typical values that are not proven.
    """
    if trajectory is None:
        return _typical(robot, boxes, settings, "the motion is not known yet")
    try:
        bound = tracking_bound(robot, ControlModel.of_boxes(robot, boxes, payload), trajectory, settings)
    except BoundNotAvailable as reason:
        return _typical(robot, boxes, settings, str(reason))
    return TrackingAllocation(
        np.array(bound.position), np.array(bound.velocity), np.array(bound.torque), True, bound.claims
    )


def typical_feedback_torque(
    robot: RobotModel, boxes: tuple[Box, Box] | None = None, settings: RobustSettings | None = None
) -> Array:
    """Estimate the torque that feedback adds to the model's, (n,) [Nm]; not proven.

    It is the feedback to the largest error of a joint's own velocity sensor at the robot's home posture. The proven
    bound, :attr:`TrackingBound.torque`, lets all errors of all joints have the worst sign at all times.

    Args:
        robot: The arm.
        boxes: Boxes of the parameters of arm (14 n,) and payload (10,); the robot's own without them.
        settings: Gains of the controller.
    """
    settings = settings or default_gains(robot)
    inertia = ArmDynamics(robot, ControlModel.of_boxes(robot, boxes).total, armature=True).inertia(robot.home)
    return (settings.bandwidth + settings.position_gain) * np.diag(inertia) * robot.sensors.velocity_error


def _typical(
    robot: RobotModel, boxes: tuple[Box, Box] | None, settings: RobustSettings | None, why: str
) -> TrackingAllocation:
    return TrackingAllocation(
        np.full(robot.n, TYPICAL_POSITION),
        np.full(robot.n, TYPICAL_VELOCITY),
        typical_feedback_torque(robot, boxes, settings),
        False,
        f"Tracking errors are typical values, not proven bounds: {why}.",
    )
