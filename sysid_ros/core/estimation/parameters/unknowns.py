"""Unknowns of the rows of the estimator: the target, of a payload, any body or all bodies, and nuisance parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.parameters.settings import ALL_BODIES, PAYLOAD, SHARED_TERMS, EstimatorSettings
from sysid_ros.core.identifiability.mechanism import MechanismOptions, compare_robot
from sysid_ros.core.identifiability.settings import AnalysisSettings
from sysid_ros.core.identifiability.structure import Structure
from sysid_ros.core.identifiability.wording import describe_combination
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.model.robot import (
    FRICTION,
    FRICTION_NAMES,
    INERTIAL,
    PayloadShape,
    RobotModel,
    parameter_names,
    parameter_units,
)

Array = NDArray[np.float64]

_BODIES = MechanismOptions(massless="unknown")
"""A body without mass in the model may carry something."""


@dataclass(frozen=True)
class Combinations:
    """K identifiable linear combinations of the target: its base parameters.

    Attributes:
        names: The parameter each is named after.
        formulas: Each written out, coefficients in SI units.
        units: Unit of each.
        matrix: Their values are ``matrix @ theta_e``, (K, P). Bounds hold for these coefficients as they are.
        chosen: The entry of the target each is named after, (K,).
    """

    names: tuple[str, ...]
    formulas: tuple[str, ...]
    units: tuple[str, ...]
    matrix: Array
    chosen: NDArray[np.intp]

    @classmethod
    def of(cls, structure: Structure, names: tuple[str, ...]) -> Combinations:
        """Express the base parameters of an analysis in parameters of these names, which include all its unknowns."""
        columns = np.array(structure.columns(names), dtype=np.intp)
        matrix = np.zeros((structure.count, len(names)))
        matrix[:, columns] = structure.matrix
        formulas = tuple(describe_combination(structure, k) for k in range(structure.count))
        chosen = columns[np.array(structure.chosen, dtype=np.intp)]
        matrix[np.arange(len(chosen)), chosen] = 1.0  # up to the rounding of the scale, they are
        return cls(structure.base_names, formulas, structure.base_units, matrix, chosen)

    def select(self, kept: NDArray[np.bool_]) -> Combinations:
        """Select some of the combinations."""
        index = np.flatnonzero(kept)
        names, formulas, units = (tuple(part[k] for k in index) for part in (self.names, self.formulas, self.units))
        return Combinations(names, formulas, units, self.matrix[index], self.chosen[index])

    def __len__(self) -> int:
        """Return the number of combinations."""
        return len(self.names)

    @property
    def is_single(self) -> NDArray[np.bool_]:
        """Which combinations are a single parameter of the target, (K,)."""
        return np.asarray(np.count_nonzero(self.matrix, axis=1) == 1)


@dataclass(frozen=True)
class Target:
    """The unknown ``theta_e`` of P parameters.

    Attributes:
        label: What it is, in words; ``payload`` and ``end_effector`` for the last body.
        body: Index of the body, 1..n; 0 for all of them.
        frame: Name of the joint in whose frame the parameters are; empty for all bodies.
        columns: Entries of ``theta`` (14 n,) that are the target's columns, (P,).
        is_added: Whether the target adds to the arm's own parameters.
        prior: Box of the target before any data.
        nominal: A target inside it, of bodies that exist, (P,).
        names: Names of the P parameters.
        units: Their units.
        structure: Identifiability of the parameters.
        combinations: Their identifiable combinations.
        shape: Known shape of the target as an object; None if unknown.
    """

    label: str
    body: int
    frame: str
    columns: NDArray[np.intp]
    is_added: bool
    prior: Box
    nominal: Array
    names: tuple[str, ...]
    units: tuple[str, ...]
    structure: Structure
    combinations: Combinations
    shape: PayloadShape | None = None

    @property
    def coupled(self) -> int:
        """Number of parameters whose products with shared errors are unknowns of their own: those of a single body.

        For all bodies at once these products count among the independent errors instead, which are wider.
        """
        return INERTIAL if self.body else 0

    @property
    def objectives(self) -> Array:
        """Combinations to bound, (K, P): the parameters of one body first, then those of several parameters."""
        matrix = self.combinations.matrix
        if not self.body:
            return matrix
        return np.concatenate([np.eye(INERTIAL), matrix[~self.combinations.is_single]])


def find_body(robot: RobotModel, name: str) -> int:
    """Return the index 1..n of the body that a joint moves or a link belongs to.

    Raises:
        ParameterOutOfRange: There is no such joint or link, or the link does not move; lists the names.
    """
    if name in robot.joint_names:
        return robot.joint_names.index(name) + 1
    links = {f.name: int(f.parentJoint) for f in robot.pin_model.frames if f.type == pin.FrameType.BODY}
    if not links.get(name):
        moving = ", ".join([*robot.joint_names, *(link for link, joint in links.items() if joint)])
        raise ParameterOutOfRange("body", name, f"{PAYLOAD}, {ALL_BODIES}, or a joint or moving link: {moving}")
    return links[name]


def object_within(mass: float, reach: float) -> tuple[Box, Array]:
    """Return the prior of any object up to a mass, all of it within a distance of the origin of the frame.

    ``|m c| <= m r``, the moments of inertia about the origin are at most ``m r^2`` and the products half of that.

    Args:
        mass: Largest mass [kg].
        reach: Largest distance [m].

    Returns:
        The box of its parameters, (10,), and a body inside: half the mass, a ball of half the size around the origin.
    """
    moment = np.where(np.isin(np.arange(6), (0, 2, 5)), 1.0, 0.5) * mass * reach**2
    upper = np.concatenate([[mass], np.full(3, mass * reach), moment]) * (1.0 + 1e-14)
    lower = np.where(np.isin(np.arange(INERTIAL), (0, 4, 6, 9)), 0.0, -upper)
    return Box(lower, upper), from_com_form(0.5 * mass, np.zeros(3), 0.4 * 0.5 * mass * (0.5 * reach) ** 2 * np.eye(3))


def describe_target(robot: RobotModel, settings: EstimatorSettings, arm: Box, nominal: Array) -> Target:
    """Describe the target that the settings ask for.

    Args:
        robot: The arm.
        settings: Body and target.
        arm: Box of the parameters of the arm, as wide as the settings ask for, with the payload in the hand if there
            may be one while another body is identified, (14 n,).
        nominal: A point of that box, (14 n,).

    Raises:
        ParameterOutOfRange: There is no such body, or the target is the payload but the robot's prior describes the
            whole end effector.
    """
    if settings.body == ALL_BODIES:
        return _all_bodies(robot, settings, arm, nominal)
    body = robot.n if settings.body == PAYLOAD else find_body(robot, settings.body)
    part, joint = robot.inertial_slice(body), robot.joint_names[body - 1]
    shape = None
    if settings.body == PAYLOAD:
        prior, point = _payload_prior(robot, settings)
        shape = robot.payload_prior.shape if settings.target == robot.payload_prior.target == "payload" else None
        label = settings.target
    else:
        prior, point = object_within(settings.body_mass, settings.body_reach)
        label = f"object on {joint}"
        if settings.target == "end_effector":
            prior, point = prior + arm.select(part), point + nominal[part]
            label = f"body of {joint} with its load"
    known = tuple(name for name in robot.joint_names if name != joint)
    structure = compare_robot(robot, AnalysisSettings(known=known), _BODIES).snapped
    names = tuple(parameter_names(robot)[part])
    return Target(
        label=label,
        body=body,
        frame=joint,
        columns=np.arange(part.start, part.stop),
        is_added=settings.target == "payload",
        prior=prior,
        nominal=point,
        names=names,
        units=parameter_units(robot)[part],
        structure=structure,
        combinations=Combinations.of(structure, names),
        shape=shape,
    )


def _all_bodies(robot: RobotModel, settings: EstimatorSettings, arm: Box, nominal: Array) -> Target:
    count = (INERTIAL + 4 if settings.friction_range else INERTIAL) * robot.n
    friction: tuple[str, ...] = ()
    if settings.friction_range:
        friction = tuple(np.delete(FRICTION_NAMES, unseen_friction(robot, settings)))
    structure = compare_robot(robot, AnalysisSettings(joint_parameters=friction), _BODIES).snapped
    names = parameter_names(robot)[:count]
    return Target(
        label="all bodies",
        body=0,
        frame="",
        columns=np.arange(count),
        is_added=False,
        prior=arm.select(slice(count)),
        nominal=nominal[:count],
        names=names,
        units=parameter_units(robot)[:count],
        structure=structure,
        combinations=Combinations.of(structure, names),
    )


def _payload_prior(robot: RobotModel, settings: EstimatorSettings) -> tuple[Box, Array]:
    prior = robot.payload_prior
    if prior.target == settings.target:
        return prior.box, prior.nominal
    if settings.target == "payload":
        raise ParameterOutOfRange(
            "target", settings.target, f"end_effector, since the prior '{prior.name}' describes the whole end effector"
        )
    last = robot.inertial_slice(robot.n)
    return prior.box + robot.theta_box.select(last), prior.nominal + robot.theta_nominal[last]


@dataclass(frozen=True)
class Unknowns:
    """The target ``theta_e`` and the nuisance parameters ``delta`` that all rows share.

    ``delta`` is ``[arm (14 n), torque lag of each joint (n), torque gain of each joint (n), gravity direction (3)]``,
    each entry within ``+- radius``; entries that do not apply have radius 0.

    Attributes:
        target: The target.
        center: Centre of the arm's parameter box without the target's part, (14 n,).
        radius: Radii of ``delta``, (M,).
        rest_center: Centre of all parameters but those of a single body that is the target, (14 n,): for their
            products with errors that rows share.
        rest_radius: Radii of the same, (14 n,).
        end_error: Largest errors that rows share, in the order of their ``ends``, (5 n,) [rad/s, rad, Nms]: of
            velocities and positions at the ends of windows and inside, of integrals of the torque up to the ends.
        groups: Entries of ``delta`` by source of uncertainty, for the error budget; gravity goes on behind
            ``delta`` with its products with the target.
        others: Box of the inertial parameters of all bodies without the target, (10 n,).
        total: Box of the inertial parameters of all bodies, payload included, (10 n,).
        coulomb_upper: Largest Coulomb torque, (n,) [Nm].
        viscous_upper: Largest viscous friction, (n,) [Nm s/rad].
        armature_upper: Largest armature that is in the efforts, (n,) [kg m^2].
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
    coulomb_upper: Array
    viscous_upper: Array
    armature_upper: Array
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
        ParameterOutOfRange: There is no such body or state of the gripper, or the target is the payload but the robot's
            prior describes the whole end effector.
    """
    robot = robot.with_gripper(settings.gripper)
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
    unseen = friction[:, unseen_friction(robot, settings)]
    center[unseen], radius[unseen] = 0.0, 0.0
    rest_center, rest_radius = center.copy(), radius.copy()
    if not target.is_added:
        center[target.columns], radius[target.columns] = 0.0, 0.0
    if target.body:
        rest_center, rest_radius = center, radius
    cone, strength = settings.gravity_cone, float(np.linalg.norm(robot.gravity))
    tilt = strength * np.sin(cone) * np.array([1.0, 1.0, np.tan(0.5 * cone)])
    largest = np.maximum(np.abs(arm.lower), np.abs(arm.upper))[friction]
    largest[:, unseen_friction(robot, settings)] = 0.0
    products = 3 * target.coupled if cone > 0.0 else 0
    of_links = robot.link_sensors
    shared = [of_links.velocity_error, 0.5 * of_links.position_resolution] * 2 + [0.5 * of_links.effort_integral[1]]
    return Unknowns(
        target=target,
        center=center,
        radius=_outward(
            np.concatenate([radius, np.full(n, settings.torque_lag_tolerance), robot.sensors.gain_radius, tilt])
        ),
        rest_center=rest_center,
        rest_radius=_outward(rest_radius),
        end_error=np.concatenate(
            [size * (name in settings.error_terms) for size, name in zip(shared, SHARED_TERMS, strict=True)]
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


def unseen_friction(robot: RobotModel, settings: EstimatorSettings) -> list[int]:
    """Return which of ``[F_c, F_v, I_a, beta]`` are not in the efforts.

    Efforts on the link side of a gear contain none of its friction. With ``effort_friction`` of the sensor, or
    ``friction_range``, they contain friction behind the sensor: of bearings, seals and cables. The box of the robot,
    which is about the gear, sets its scale.
    """
    meaning = robot.sensors.effort_meaning
    if meaning.has_armature:
        return []
    is_felt = meaning.has_friction or settings.friction_range or robot.sensors.effort_friction
    return [2] if is_felt else [0, 1, 2]


def is_of_arm(robot: RobotModel) -> NDArray[np.bool_]:
    """Return which entries of ``delta`` are parameters of the arm, (M,).

    Torque lag, gain and gravity are not, nor are F_c and F_v of efforts on the link side: friction behind the sensor is
    not the gear's, which is the arm's.
    """
    n = robot.n
    result = np.arange(16 * n + 3) < 14 * n
    if not robot.sensors.effort_meaning.has_friction:
        for entry in (0, 1):
            result[INERTIAL * n + entry : 14 * n : FRICTION] = False
    return result


def shared_center(unknowns: Unknowns, settings: EstimatorSettings) -> Array:
    """Return the origin of ``delta``, (M,): the same unknowns in absolute values are this plus ``delta``."""
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
    largest = settings.friction_range * np.maximum(np.abs(lower), np.abs(upper))[friction]
    if robot.sensors.effort_friction:
        behind = friction[:, :2]
        lower[behind], upper[behind] = 0.0, robot.sensors.effort_friction * upper[behind]
        nominal[behind] = 0.5 * upper[behind]
    if settings.friction_range:
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
