"""What is unknown in the rows of the estimator, and how it is split between target and nuisance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.errors import ParameterOutOfRange
from sysid_ros.core.estimation.settings import EstimatorSettings
from sysid_ros.core.model.box import Box
from sysid_ros.core.model.robot import FRICTION, INERTIAL, EffortMeaning, PayloadShape, RobotModel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Unknowns:
    """The target ``theta_e`` and the nuisance ``delta`` that every row shares.

    ``delta`` is ``[arm (14 n), torque lag of each joint (n), gravity direction (3)]``, each entry within
    ``+- radius``; entries that do not apply have radius 0.

    Attributes:
        prior: Box of the target before any data.
        nominal: A physically consistent target inside it, (10,).
        center: Centre of the arm's parameter box without what belongs to the target, (14 n,).
        radius: Half widths of ``delta``, (M,).
        groups: Entries of ``delta`` by source of uncertainty, for the error budget; gravity goes on behind
            ``delta`` with its products with the target.
        total: Box of the inertial parameters of all bodies, payload included, (10 n,).
        armature_upper: Largest armature, (n,) [kg m^2].
        coulomb_upper: Largest Coulomb torque, (n,) [Nm].
        viscous_upper: Largest viscous friction, (n,) [Nm s/rad].
        offset_upper: Largest torque offset, (n,) [Nm].
        shape: What is known of the target as an object; None if nothing is.
    """

    prior: Box
    nominal: Array
    center: Array
    radius: Array
    groups: dict[str, NDArray[np.intp]]
    total: Box
    armature_upper: Array
    coulomb_upper: Array
    viscous_upper: Array
    offset_upper: Array
    shape: PayloadShape | None = None


def describe_unknowns(robot: RobotModel, settings: EstimatorSettings) -> Unknowns:
    """Splits the parameters of robot and payload by the settings.

    Raises:
        ParameterOutOfRange: The target is the payload but the robot's prior describes the whole end effector.
    """
    n = robot.n
    split, last = INERTIAL * n, robot.inertial_slice(n)
    center, radius = robot.theta_box.center.copy(), robot.theta_box.radius.copy()
    lower, upper = robot.theta_box.lower[:split].copy(), robot.theta_box.upper[:split].copy()
    prior, nominal = _target_prior(robot, settings)
    if settings.target == "end_effector":
        center[last], radius[last] = 0.0, 0.0
        lower[last], upper[last] = prior.lower, prior.upper
    else:
        lower[last] += prior.lower
        upper[last] += prior.upper
    friction = split + np.arange(FRICTION * n).reshape(n, FRICTION)
    if robot.sensors.effort_meaning is EffortMeaning.LINK_SIDE:
        # What is left of the friction parameters behind the gear is the zero of the torque sensor.
        center[friction[:, :3]], radius[friction[:, :3]] = 0.0, 0.0
    radius[friction[:, 3]] += settings.torque_offset
    cone, strength = settings.gravity_cone, float(np.linalg.norm(robot.gravity))
    tilt = strength * np.sin(cone) * np.array([1.0, 1.0, np.tan(0.5 * cone)])
    radii = np.concatenate([radius, np.full(n, settings.torque_lag_tolerance), tilt])
    largest = (np.abs(center) + radius)[friction]
    return Unknowns(
        prior=prior,
        nominal=nominal,
        center=center,
        radius=np.where(radii > 0.0, radii * (1.0 + 1e-15), 0.0),
        groups={
            "robot_inertia": np.arange(split),
            "robot_friction": friction.ravel(),
            "shared_torque_lag": np.arange(14 * n, 15 * n),
            "gravity_direction": np.arange(15 * n, 15 * n + (33 if cone > 0.0 else 3)),
        },
        total=_outward(Box(lower, upper)),
        coulomb_upper=largest[:, 0],
        viscous_upper=largest[:, 1],
        armature_upper=largest[:, 2],
        offset_upper=largest[:, 3],
        shape=robot.payload_prior.shape if settings.target == robot.payload_prior.target == "payload" else None,
    )


def _target_prior(robot: RobotModel, settings: EstimatorSettings) -> tuple[Box, Array]:
    """Prior box and nominal point of the target."""
    prior = robot.payload_prior
    if prior.target == settings.target:
        return prior.box, prior.nominal
    if settings.target == "payload":
        raise ParameterOutOfRange(
            "target", settings.target, f"end_effector, since the prior '{prior.name}' describes the whole end effector"
        )
    last = robot.inertial_slice(robot.n)
    box = Box(prior.box.lower + robot.theta_box.lower[last], prior.box.upper + robot.theta_box.upper[last])
    return _outward(box), prior.nominal + robot.theta_nominal[last]


def _outward(box: Box) -> Box:
    return Box(np.nextafter(box.lower, -np.inf), np.nextafter(box.upper, np.inf))
