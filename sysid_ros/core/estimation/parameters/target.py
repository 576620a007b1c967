"""Which parameters are identified: those of a payload, of any body, or of all bodies at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.parameters.settings import ALL_BODIES, PAYLOAD, EstimatorSettings
from sysid_ros.core.identifiability.mechanism import MechanismOptions, compare_robot
from sysid_ros.core.identifiability.settings import AnalysisSettings
from sysid_ros.core.identifiability.structure import Structure
from sysid_ros.core.identifiability.wording import describe_combination
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.model.robot import (
    FRICTION_NAMES,
    INERTIAL,
    EffortMeaning,
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
        """Express the base parameters of an analysis in parameters with these names, which hold all its unknown ones.

        Args:
            structure: The analysis.
            names: Names of the target's P parameters.
        """
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
        columns: Entries of ``theta`` (14 n,) whose columns are those of the target, (P,).
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
            prior, point = prior + _part(arm, part), point + nominal[part]
            label = f"body of {joint} with what it carries"
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
        # A sensor on the link side sees no friction, only its own offset.
        is_motor_side = robot.sensors.effort_meaning is EffortMeaning.MOTOR_SIDE
        friction = FRICTION_NAMES if is_motor_side else ("beta",)
    structure = compare_robot(robot, AnalysisSettings(joint_parameters=friction), _BODIES).snapped
    names = parameter_names(robot)[:count]
    return Target(
        label="all bodies",
        body=0,
        frame="",
        columns=np.arange(count),
        is_added=False,
        prior=_part(arm, slice(count)),
        nominal=nominal[:count],
        names=names,
        units=parameter_units(robot)[:count],
        structure=structure,
        combinations=Combinations.of(structure, names),
    )


def _payload_prior(robot: RobotModel, settings: EstimatorSettings) -> tuple[Box, Array]:
    """Return the prior box and the nominal point of payload or end effector."""
    prior = robot.payload_prior
    if prior.target == settings.target:
        return prior.box, prior.nominal
    if settings.target == "payload":
        raise ParameterOutOfRange(
            "target", settings.target, f"end_effector, since the prior '{prior.name}' describes the whole end effector"
        )
    last = robot.inertial_slice(robot.n)
    return prior.box + _part(robot.theta_box, last), prior.nominal + robot.theta_nominal[last]


def _part(box: Box, part: slice) -> Box:
    return Box(box.lower[part], box.upper[part])
