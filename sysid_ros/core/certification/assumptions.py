"""What a proof takes for given: the robot, the boxes of its parameters, the scene, and who controls it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.gains import default_gains
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.mechanics import joint_axis
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.regressors.rest_torque import rest_of
from sysid_ros.core.tracking_bound.bound import TrackingBound, TrackingHistory, tracking_bound
from sysid_ros.core.tracking_bound.motion import Motion
from sysid_ros.core.tracking_bound.nominal_payload import choose_payload
from sysid_ros.core.trajectories.base import fingerprint

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Assumptions:
    """What plans and their proofs take for given.

    Attributes:
        robot: The arm.
        boxes: Boxes that contain the true parameters of the arm (14 n,) and of the payload (10,); to the latter may
            belong what weighing says of both together.
        nominal: Payload the controller computes its torque with, (10,).
        scene: What surrounds the arm and what it carries.
        control_law: The control law that follows the plans.
        encloses_terms: Whether tracking bounds are proven throughout, in seconds; see :func:`tracking_bound`.

    Raises:
        ParameterOutOfRange: The nominal payload is not 10 finite numbers.
    """

    robot: RobotModel
    boxes: tuple[Box, Box]
    nominal: Array
    scene: Scene = Scene()
    control_law: RobustSettings = field(default_factory=RobustSettings)
    encloses_terms: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "nominal", frozen_payload(self.nominal))

    @classmethod
    def of_payload(
        cls,
        robot: RobotModel,
        box: Box | None = None,
        guess: Array | None = None,
        nominal: Array | None = None,
        scene: Scene | None = None,
        control_law: RobustSettings | None = None,
    ) -> Assumptions:
        """Assume the robot's own box of its parameters and a payload in a box.

        Args:
            robot: The arm.
            box: Box that contains the true payload, (10,); that of the robot's prior if None.
            guess: What the payload most probably is, (10,); the prior's if None.
            nominal: Nominal payload of the controller, (10,); None for the one that makes the tracking bound small,
                as drivers choose it too.
            scene: What surrounds the arm; None for nothing.
            control_law: The control law; the one with the arm's default gains if None.
        """
        prior = robot.payload_prior
        boxes = (robot.theta_box, prior.box if box is None else box)
        if nominal is None:
            nominal = choose_payload(robot, boxes, prior.nominal if guess is None else guess)
        return cls(robot, boxes, nominal, scene or Scene(), control_law or default_gains(robot))

    def bound(self, motion: Motion, history: TrackingHistory | None = None) -> TrackingBound:
        """Compute the tracking bound of a motion.

        Args:
            motion: Trajectory, or a posture (n,) [rad] that is held.
            history: What was executed before, in whose last state the motion starts; None for a start from rest.

        Raises:
            BoundNotAvailable: The uncertainty is too large for these gains or this motion.
            ParameterOutOfRange: The motion does not fit the arm, or does not start where the history ends.
        """
        model = ControlModel.of_boxes(self.robot, self.boxes, self.nominal)
        return tracking_bound(self.robot, model, motion, self.control_law, history, self.encloses_terms)


def frozen_payload(values: Array) -> Array:
    """Return a read-only copy of the ten parameters of a payload.

    Raises:
        ParameterOutOfRange: They are not 10 finite numbers.
    """
    payload = np.array(values, dtype=float)
    if payload.shape != (10,) or not np.all(np.isfinite(payload)):
        raise ParameterOutOfRange("the nominal payload", payload.tolist(), "10 finite numbers")
    payload.setflags(write=False)
    return payload


def box_hash(*boxes: Box) -> str:
    """Hash parameter boxes, as 64 hex digits.

    Args:
        boxes: The boxes in a fixed order; by convention the arm's (14 n,) and then the payload's (10,).
    """
    words, parts = ["box"], [bound for box in boxes for bound in (box.lower, box.upper)]
    for rest in (rest_of(box) for box in boxes):
        if rest is not None:
            words += rest.joint_names
            parts += [rest.posture, rest.torque.lower, rest.torque.upper]
    return fingerprint(" ".join(words), *parts)


def robot_hash(robot: RobotModel) -> str:
    """Hash what a proof takes from a robot, as 64 hex digits.

    Joints, limits, spheres and gravity, and what the tracking bound rests on: nominal parameters, what is known of
    whole bodies, sensors and the prior of the payload. The box of the arm's parameters has a hash of its own.
    """
    model = robot.pin_model
    base = model.frames[model.getFrameId(robot.base_frame)].placement
    placements = [model.jointPlacements[joint].homogeneous for joint in range(1, robot.n + 1)]
    axes = [joint_axis(model, joint) for joint in range(1, robot.n + 1)]
    limits, sensors = robot.limits, robot.sensors
    spheres = (*robot.spheres, *robot.payload_prior.spheres)
    rows = [[sphere.body, *sphere.center, sphere.radius] for sphere in spheres]
    measured = (
        sensors.position_resolution, sensors.velocity_error, [sensors.stamp_jitter, sensors.velocity_is_difference]
    )  # fmt: skip
    prior = robot.payload_prior
    shape = [] if prior.shape is None else [*prior.shape.com.lower, *prior.shape.com.upper, prior.shape.gyration]
    known = (robot.theta_nominal, prior.box.lower, prior.box.upper, shape)
    # The posture at home tells which spheres overlap by their making, and so are not compared.
    elastic = () if robot.elasticity is None else robot.elasticity.numbers
    bodies = () if robot.inertia_order is None else (robot.inertia_order.nominal, [robot.inertia_order.share])
    arrays = (base.homogeneous, placements, axes, robot.gravity, rows, robot.home, *known, *measured, *elastic, *bodies)
    pairs = [f"{one}/{other}" for one, other in robot.never_touch]
    links = [robot.base_frame, robot.flange_frame, *(sphere.link for sphere in spheres), *pairs]
    kind = "robot:" + ",".join([*robot.joint_names, *links])
    return fingerprint(kind, *arrays, *vars(limits).values())
