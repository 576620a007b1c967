"""Unknowns of the rows of the estimator, split into the target and nuisance parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.parameters.settings import PAYLOAD, EstimatorSettings
from sysid_ros.core.estimation.parameters.target import Target, describe_target
from sysid_ros.core.model.robot import FRICTION, INERTIAL, EffortMeaning, PayloadShape, RobotModel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Unknowns:
    """The target ``theta_e`` and the nuisance parameters ``delta`` that all rows share.

    ``delta`` is ``[arm (14 n), torque lag of each joint (n), torque gain of each joint (n), gravity direction (3)]``,
    each entry within ``+- radius``; entries that do not apply have radius 0.

    Attributes:
        target: What is identified.
        center: Centre of the arm's parameter box without what belongs to the target, (14 n,).
        radius: Radii of ``delta``, (M,).
        rest_center: Centre of all parameters but those of a single body that is the target, (14 n,): for their
            products with errors that rows share.
        rest_radius: Radii of the same, (14 n,).
        end_error: Largest errors of velocities and positions, at the ends of windows and inside, in the order of the
            rows' ``ends``, (4 n,) [rad/s, rad].
        groups: Entries of ``delta`` by source of uncertainty, for the error budget; gravity goes on behind
            ``delta`` with its products with the target.
        others: Box of the inertial parameters of all bodies without the target, (10 n,).
        total: Box of the inertial parameters of all bodies, payload included, (10 n,).
        armature_upper: Largest armature, (n,) [kg m^2].
        coulomb_upper: Largest Coulomb torque, (n,) [Nm].
        viscous_upper: Largest viscous friction, (n,) [Nm s/rad].
        offset_upper: Largest torque offset, (n,) [Nm].
    """

    target: Target
    center: Array
    radius: Array
    rest_center: Array
    rest_radius: Array
    end_error: Array
    groups: dict[str, NDArray[np.intp]]
    others: Box
    total: Box
    armature_upper: Array
    coulomb_upper: Array
    viscous_upper: Array
    offset_upper: Array

    @property
    def prior(self) -> Box:
        """Box of the target before any data, (P,)."""
        return self.target.prior

    @property
    def nominal(self) -> Array:
        """A physically consistent target inside it, (P,)."""
        return self.target.nominal

    def narrowed(self, box: Box) -> Unknowns:
        """Return the unknowns for error budgets that hold for a target in a narrower box, (P,), only."""
        return replace(self, total=_total(self.others, self.target, box))

    @property
    def shape(self) -> PayloadShape | None:
        """Known shape of the target as an object; None if unknown."""
        return self.target.shape


def _total(others: Box, target: Target, box: Box) -> Box:
    """Return the box of all inertial parameters, (10 n,), for a box of the target, (P,)."""
    lower, upper = others.lower.copy(), others.upper.copy()
    inertial = target.columns[target.columns < lower.size]
    lower[inertial] += box.lower[: inertial.size]
    upper[inertial] += box.upper[: inertial.size]
    return Box(np.nextafter(lower, -np.inf), np.nextafter(upper, np.inf))


def describe_unknowns(robot: RobotModel, settings: EstimatorSettings) -> Unknowns:
    """Split the parameters of robot and payload as the settings ask for.

    Raises:
        ParameterOutOfRange: There is no such body, or the target is the payload but the robot's prior describes the
            whole end effector.
    """
    n = robot.n
    split = INERTIAL * n
    friction = split + np.arange(FRICTION * n).reshape(n, FRICTION)
    arm, nominal = _arm_box(robot, settings, friction)
    target = describe_target(robot, settings, arm, nominal)
    center, radius = arm.center.copy(), arm.radius.copy()
    lower, upper = arm.lower[:split].copy(), arm.upper[:split].copy()
    if not target.is_added:
        inertial = target.columns[target.columns < split]
        lower[inertial], upper[inertial] = 0.0, 0.0
    others = Box(lower, upper)
    if robot.sensors.effort_meaning is EffortMeaning.LINK_SIDE:
        # A sensor on the link side sees no friction, only its own offset.
        center[friction[:, :3]], radius[friction[:, :3]] = 0.0, 0.0
    rest_center, rest_radius = center.copy(), radius.copy()
    if not target.is_added:
        center[target.columns], radius[target.columns] = 0.0, 0.0
    if target.body:
        rest_center, rest_radius = center, radius
    cone, strength = settings.gravity_cone, float(np.linalg.norm(robot.gravity))
    tilt = strength * np.sin(cone) * np.array([1.0, 1.0, np.tan(0.5 * cone)])
    largest = np.maximum(np.abs(arm.lower), np.abs(arm.upper))[friction]
    if robot.sensors.effort_meaning is EffortMeaning.LINK_SIDE:
        largest[:, :3] = 0.0
    products = 3 * target.coupled if cone > 0.0 else 0
    return Unknowns(
        target=target,
        center=center,
        radius=_outward(
            np.concatenate([radius, np.full(n, settings.torque_lag_tolerance), robot.sensors.gain_radius, tilt])
        ),
        rest_center=rest_center,
        rest_radius=_outward(rest_radius),
        end_error=np.tile(
            np.concatenate(
                [
                    robot.sensors.velocity_error * ("velocity" in settings.error_terms),
                    0.5 * robot.sensors.position_resolution * ("encoder" in settings.error_terms),
                ]
            ),
            2,
        ),
        groups={
            "robot_inertia": np.arange(split),
            "robot_friction": friction.ravel(),
            "shared_torque_lag": np.arange(14 * n, 15 * n),
            "torque_gain": np.arange(15 * n, 16 * n),
            "gravity_direction": np.arange(16 * n, 16 * n + 3 + products),
        },
        others=others,
        total=_total(others, target, target.prior),
        coulomb_upper=largest[:, 0],
        viscous_upper=largest[:, 1],
        armature_upper=largest[:, 2],
        offset_upper=largest[:, 3],
    )


def shared_center(unknowns: Unknowns, settings: EstimatorSettings) -> Array:
    """Return what ``delta`` counts from, (M,): the same unknowns in absolute values are this plus ``delta``."""
    n = unknowns.coulomb_upper.size
    return np.concatenate([unknowns.center, np.full(n, settings.torque_lag), np.zeros(n + 3)])


def _arm_box(robot: RobotModel, settings: EstimatorSettings, friction: NDArray[np.intp]) -> tuple[Box, Array]:
    """Return the box of the arm's parameters, widened as the settings ask for, and a point inside, each (14 n,)."""
    lower, upper = robot.theta_box.lower.copy(), robot.theta_box.upper.copy()
    nominal = np.array(robot.theta_nominal)
    if settings.body != PAYLOAD and settings.payload_in_hand:
        last, prior = robot.inertial_slice(robot.n), robot.payload_prior
        part = prior.box if prior.target == "end_effector" else prior.box + Box(lower[last], upper[last])
        nominal[last] = prior.nominal if prior.target == "end_effector" else nominal[last] + prior.nominal
        lower[last], upper[last] = part.lower, part.upper
    if settings.friction_range:
        largest = settings.friction_range * np.maximum(np.abs(lower), np.abs(upper))[friction]
        lower[friction[:, :3]] = np.minimum(lower[friction[:, :3]], 0.0)
        lower[friction[:, 3]] = np.minimum(lower[friction[:, 3]], -largest[:, 3])
        upper[friction] = np.maximum(upper[friction], largest)
    lower[friction[:, 3]] -= settings.torque_offset
    upper[friction[:, 3]] += settings.torque_offset
    if settings.torque_offset:
        lower, upper = np.nextafter(lower, -np.inf), np.nextafter(upper, np.inf)
    return Box(lower, upper), nominal


def _outward(radius: Array) -> Array:
    """Enlarge radii by the rounding of a centre; zeros stay."""
    return np.where(radius > 0.0, radius * (1.0 + 1e-15), 0.0)
