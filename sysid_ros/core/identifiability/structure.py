"""Structural identifiability: the parameters of a robot that perfect data of any motion could determine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange
from sysid_ros.core.identifiability.restricted import restricted_rows
from sysid_ros.core.identifiability.rpna import BodyNullspace, find_nullspaces
from sysid_ros.core.identifiability.settings import AnalysisSettings
from sysid_ros.core.identifiability.spans import Spans
from sysid_ros.core.identifiability.tree import WORLD, KinematicTree, TreeBody

Array = NDArray[np.float64]

_CLEAN = 1e-9
"""Scaled coefficients below this are rounding errors of zero."""


@dataclass(frozen=True)
class BaseMap:
    """The base parameters ``pi_b = matrix @ pi`` of P parameters.

    Attributes:
        matrix: (nb, P) [units of the base parameters per unit of each parameter]; the columns ``chosen`` are the
            identity.
        chosen: The parameter each base parameter is named after, (nb,), rising.
    """

    matrix: Array
    chosen: tuple[int, ...]


def build_base_map(
    tree: KinematicTree, nullspaces: Sequence[BodyNullspace], is_unknown: Sequence[bool], spans: Spans
) -> BaseMap:
    """Choose base parameters by the paper's rule and compute the map of the unknown parameters to them, in SI units.

    Source: RPNA appendix G and the rule of section 9.1; the elimination from the tips to the base is ours.
    """
    counts = [len(body.unit.names) for body in nullspaces]
    starts = np.concatenate([[0], np.cumsum(counts)])
    # Transfers from the subtree beyond a body, per parameter of that subtree.
    received: dict[int, Array] = {k: np.zeros((10, starts[-1])) for k in range(WORLD, len(counts))}
    rows, chosen = [], []
    for index in reversed(range(len(counts))):
        body = nullspaces[index]
        total = np.zeros((counts[index], starts[-1]))
        total[:10] = received[index]
        total[:, starts[index] : starts[index + 1]] += np.eye(counts[index])
        kept = spans.first_columns(body.descriptor)
        combination = np.zeros((len(kept), counts[index]))
        if kept:
            combination[:] = np.linalg.solve(body.descriptor[:, kept], body.descriptor)
        rows.append(combination @ total)
        chosen.append([int(starts[index]) + k for k in kept])
        removed = np.eye(counts[index])
        removed[kept] -= combination
        removed[:, kept] = 0.0
        received[tree.bodies[index].parent] += body.unit.transfer @ (removed @ total)
    matrix = np.concatenate(rows[::-1])
    matrix[np.abs(matrix) < _CLEAN] = 0.0
    order = [k for part in reversed(chosen) for k in part]
    scale = np.concatenate([body.unit.scale for body in nullspaces])
    unknown = np.flatnonzero(is_unknown)
    if unknown.size < starts[-1]:
        matrix, order = _restrict(matrix, order, unknown, spans)
        scale = scale[unknown]
    matrix = scale[order][:, None] * matrix / scale
    return BaseMap(matrix, tuple(order))


def _restrict(matrix: Array, chosen: Sequence[int], unknown: NDArray[np.intp], spans: Spans) -> tuple[Array, list[int]]:
    """Choose base parameters of a part of all parameters, from the map (nb, P) of all of them.

    Parameters that stay unknown keep their rows, as no other row has an entry in their columns. Only rows of known
    parameters are reduced again, among themselves: a reduction of all rows would mix rows of very different size.
    """
    stays = np.isin(chosen, unknown)
    kept, freed = matrix[stays][:, unknown], matrix[~stays][:, unknown]
    position = {int(k): n for n, k in enumerate(unknown)}
    order = [position[k] for k in chosen if k in position]
    sizes = np.linalg.norm(freed, axis=1)
    freed = freed[sizes > 0.0] / sizes[sizes > 0.0, None]
    rows = spans.row_basis(freed)
    added = spans.first_columns(rows)
    if added:
        rows = np.asarray(np.linalg.solve(rows[:, added], rows), dtype=np.float64)
        rows[:, added] = np.eye(len(added))
        kept = kept - kept[:, added] @ rows
    result, parameters = np.concatenate([kept, rows]), np.array([*order, *added], dtype=int)
    result[np.abs(result) < _CLEAN] = 0.0
    sequence = np.argsort(parameters)
    return result[sequence], [int(k) for k in parameters[sequence]]


def _reduce(base: BaseMap, rows: Array, scale: Array, spans: Spans) -> BaseMap:
    """Choose the base parameters that rows (N, P) of a restricted motion, in scaled units, separate."""
    chosen = list(base.chosen)
    sizes = np.linalg.norm(rows[:, chosen], axis=0)
    is_seen = sizes > spans.tolerance * sizes.max(initial=0.0)
    sizes[~is_seen] = 1.0
    basis = spans.row_basis(np.asarray(np.linalg.qr(rows[:, chosen] * is_seen / sizes, mode="r")))
    kept = spans.first_columns(basis)
    combination = np.linalg.solve(basis[:, kept], basis)
    combination[np.abs(combination) < spans.tolerance] = 0.0
    sizes = sizes / scale[chosen]
    return BaseMap((combination * sizes / sizes[kept, None]) @ base.matrix, tuple(chosen[k] for k in kept))


_FRICTION = ("F_c", "F_v")


class Class(Enum):
    """Identifiability of a parameter; the values are those of ``IdentifiabilityReport``."""

    IDENTIFIABLE = 0
    IN_COMBINATION = 1
    UNIDENTIFIABLE = 2


@dataclass(frozen=True)
class BodySummary:
    """One body of the analysed mechanism.

    Attributes:
        name: Name of its joint.
        kind: Kind of the joint, in words.
        links: Links that make it up.
        velocity_dimension: dim V, of attainable velocities and gravity together.
        coefficient_dimension: dim K, of the coefficients of its parameters in the measurements.
        transfer_dimension: dim T, of invisible transfers to its parent (rotor included).
        velocities: Basis of V, (6, dim V), ``[linear; angular]`` in the body's frame, lengths in typical link lengths.
    """

    name: str
    kind: str
    links: tuple[str, ...]
    velocity_dimension: int
    coefficient_dimension: int
    transfer_dimension: int
    velocities: Array


@dataclass(frozen=True)
class Structure:
    """Result of the structural analysis of P unknown parameters; arrays are read-only.

    Attributes:
        mechanism: The mechanism as it was given.
        tree: The mechanism that was analysed, with its base as a body where that counts.
        settings: The settings.
        bodies: One summary per body.
        names: Names of the unknown parameters, ``<joint>.<parameter>``, body by body, P of them.
        units: Their units.
        body_of: Index of the body each belongs to, (P,).
        classes: Identifiability of each, P of them.
        matrix: Base parameters are ``matrix @ parameters``, (nb, P).
        chosen: Index of the parameter each base parameter is named after, (nb,).
        weakest: Smallest singular value that counted as not zero, relative to the largest. Below about 1e-3 some
            parameters are identifiable only because of a small offset or angle.
    """

    mechanism: KinematicTree
    tree: KinematicTree
    settings: AnalysisSettings
    bodies: tuple[BodySummary, ...]
    names: tuple[str, ...]
    units: tuple[str, ...]
    body_of: tuple[int, ...]
    classes: tuple[Class, ...]
    matrix: Array
    chosen: tuple[int, ...]
    weakest: float

    @property
    def count(self) -> int:
        """Number of base parameters."""
        return len(self.chosen)

    @property
    def base_names(self) -> tuple[str, ...]:
        """Names of the parameters the base parameters are named after."""
        return tuple(self.names[k] for k in self.chosen)

    @property
    def base_units(self) -> tuple[str, ...]:
        """Units of the base parameters."""
        return tuple(self.units[k] for k in self.chosen)

    def count_of_body(self, index: int) -> int:
        """Count the base parameters named after parameters of a body."""
        return sum(self.body_of[k] == index for k in self.chosen)

    def columns(self, names: Sequence[str]) -> list[int]:
        """Return the position of each unknown parameter in ``names``, to select columns of a regressor.

        Raises:
            ParameterOutOfRange: A parameter of the analysis is not among them.
        """
        position = {name: k for k, name in enumerate(names)}
        missing = [name for name in self.names if name not in position]
        if missing:
            raise ParameterOutOfRange("names", missing, "names that hold every unknown parameter of the analysis")
        return [position[name] for name in self.names]


def analyze_structure(tree: KinematicTree, settings: AnalysisSettings | None = None) -> Structure:
    """Determine which parameters of a mechanism are identifiable.

    Returns:
        Base parameters, the maps to and from them, and the identifiability of each parameter.

    Raises:
        ModelError: The settings name a joint that does not exist.

    Source: RPNA.
    """
    settings = settings or AnalysisSettings()
    mechanism, wanted = tree, settings
    names = [body.name for body in tree.bodies]
    for name in settings.known:
        if name not in names:
            raise ModelError(f"known body '{name}'", f"there is no such joint; joints are {', '.join(names)}")
    if settings.sees_base and not tree.is_floating:
        base_name = "base" if "base" not in names else "base of the robot"
        tree = tree.with_base_body(base_name)
        if not settings.base_body:
            settings = replace(settings, known=(*settings.known, base_name))
    spans = Spans(settings.tolerance)
    if settings.is_ballistic and (not tree.is_floating or settings.is_static):
        raise ParameterOutOfRange("measured", "ballistic", "only of a floating base, and not of static postures")
    nullspaces = find_nullspaces(tree, settings, spans)
    columns = [
        (f"{tree.bodies[i].name}.{name}", unit, i)
        for i, found in enumerate(nullspaces)
        for name, unit in zip(found.unit.names, found.unit.units, strict=True)
    ]
    unknown = []  # what is not the link's own is unknown in any case
    for body, found in zip(tree.bodies, nullspaces, strict=True):
        is_link_unknown = body.has_inertia and body.name not in settings.known
        unknown += [is_link_unknown] * 10 + [True] * (len(found.unit.names) - 10)
    base = build_base_map(tree, nullspaces, unknown, spans)
    if settings.is_ballistic or tree.followers:
        rows = restricted_rows(tree, [found.unit for found in nullspaces], settings)
        scale = np.concatenate([found.unit.scale for found in nullspaces])
        free, base = base, _reduce(base, rows[:, unknown], scale[unknown], spans)
        if settings.is_ballistic and len(base.chosen) < len(free.chosen) and not tree.followers:
            problem = "has less information without external forces, and it depends on the parameters themselves"
            raise ModelError("floating base", f"{problem}; expected joints that move it")
    base, columns = _with_friction(base, tree, settings, [columns[k] for k in np.flatnonzero(unknown)])
    base.matrix.setflags(write=False)
    return Structure(
        mechanism=mechanism,
        tree=tree,
        settings=wanted,
        bodies=tuple(_summary(body, found) for body, found in zip(tree.bodies, nullspaces, strict=True)),
        names=tuple(name for name, _, _ in columns),
        units=tuple(unit for _, unit, _ in columns),
        body_of=tuple(body for _, _, body in columns),
        classes=_classify(base),
        matrix=base.matrix,
        chosen=base.chosen,
        weakest=spans.weakest,
    )


def _summary(body: TreeBody, found: BodyNullspace) -> BodySummary:
    velocities = found.velocities
    velocities.setflags(write=False)
    return BodySummary(
        name=body.name,
        kind=body.kind,
        links=body.links,
        velocity_dimension=velocities.shape[1],
        coefficient_dimension=found.coefficients.shape[1],
        transfer_dimension=found.transfers,
        velocities=velocities,
    )


def _with_friction(
    base: BaseMap, tree: KinematicTree, settings: AnalysisSettings, parameters: list[tuple[str, str, int]]
) -> tuple[BaseMap, list[tuple[str, str, int]]]:
    """Append Coulomb and viscous friction to the parameters: name, unit and body of each.

    They are odd in the velocity while all torques of inertia and gravity are even or linear in the acceleration, so
    they depend on no others; without motion or without a torque sensor at the joint they have no effect.
    """
    wanted = [name for name in _FRICTION if name in settings.joint_parameters]
    joints = [i for i, found in enumerate(tree.bodies) if found.dofs == 1 and found.follows is None]
    extra = [(i, name) for i in joints for name in wanted]
    if not extra:
        return base, parameters
    is_seen = settings.sees_joints and not settings.is_static
    rows, columns = base.matrix.shape
    added = len(extra) if is_seen else 0
    matrix = np.zeros((rows + added, columns + len(extra)))
    matrix[:rows, :columns] = base.matrix
    matrix[rows:, columns : columns + added] = np.eye(added)
    chosen = (*base.chosen, *(columns + k for k in range(added)))
    units = {True: ("N", "N s/m"), False: ("Nm", "Nm s/rad")}
    added_parameters = [
        (f"{tree.bodies[i].name}.{name}", units[tree.bodies[i].is_translating][_FRICTION.index(name)], i)
        for i, name in extra
    ]
    return BaseMap(matrix, chosen), parameters + added_parameters


def _classify(base: BaseMap) -> tuple[Class, ...]:
    """Classify by RPNA section 2: alone in its base parameter, together with others, or in none."""
    is_used = base.matrix != 0.0
    partners = is_used.sum(axis=1)
    alone = {k for row, k in enumerate(base.chosen) if partners[row] == 1}
    seen = is_used.any(axis=0)
    return tuple(
        Class.IDENTIFIABLE if k in alone else Class.IN_COMBINATION if seen[k] else Class.UNIDENTIFIABLE
        for k in range(base.matrix.shape[1])
    )
