"""Assumptions of a proof: the robot, the boxes of its parameters, the scene, and the control law."""

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
    """Assumptions of plans and their proofs.

    Attributes:
        robot: The arm.
        boxes: Boxes that contain the true parameters of the arm (14 n,) and of the payload (10,); the latter may have
            the torque at rest of both together.
        nominal: Payload the controller computes its torque with, (10,).
        scene: Environment and load of the arm.
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
            box: Box that contains the true payload, (10,); the robot's prior if None.
            guess: Most probable payload, (10,); the prior's if None.
            nominal: Nominal payload of the controller, (10,); None for the one with a small tracking bound, as in
                drivers.
            scene: Environment of the arm; None for an empty one.
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
            history: The earlier motion, in whose last state this one starts; None for a start from rest.

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
    """Hash parameter boxes in a fixed order, the arm's (14 n,), then the payload's (10,), as 64 hex digits."""
    words, parts = ["box"], [bound for box in boxes for bound in (box.lower, box.upper)]
    for rest in (rest_of(box) for box in boxes):
        if rest is not None:
            words += rest.joint_names
            parts += [rest.posture, rest.torque.lower, rest.torque.upper]
    return fingerprint(" ".join(words), *parts)


def robot_hash(robot: RobotModel) -> str:
    """Hash the part of a robot that a proof uses, as 64 hex digits.

    Joints, limits, spheres and gravity, and the basis of the tracking bound: nominal parameters, bounds of whole
    bodies, sensors and the prior of the payload. The box of the arm's parameters has a hash of its own.
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
    # The posture at home shows which spheres overlap by construction, and so are not compared.
    elastic = () if robot.elasticity is None else robot.elasticity.numbers
    bodies = () if robot.inertia_order is None else (robot.inertia_order.nominal, [robot.inertia_order.share])
    arrays = (base.homogeneous, placements, axes, robot.gravity, rows, robot.home, *known, *measured, *elastic, *bodies)
    pairs = [f"{one}/{other}" for one, other in robot.never_touch]
    links = [robot.base_frame, robot.flange_frame, *(sphere.link for sphere in spheres), *pairs]
    kind = "robot:" + ",".join([*robot.joint_names, *links])
    return fingerprint(kind, *arrays, *vars(limits).values())
