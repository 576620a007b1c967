"""The Recursive Parameter Nullspace Algorithm: changes of parameters that change no measurement.

Every such change is a sum of transfers between a body and its parent, and each transfer is found from conditions on the
body alone: it must not change the momentum along the joint, and it must reach the parent in a fixed way. From the base
outwards the algorithm carries two spans per body: all velocities it can have (with gravity as one of them) and all
coefficients its parameters can have in the measurements.

A wrench sensor under the base is the same algorithm with the virtual twists of the base in place of one of the two
velocities of the kinetic energy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.spatial import axis_frame, force_cross, motion_cross_matrix, motion_transform
from sysid_ros.core.identifiability.settings import AnalysisSettings
from sysid_ros.core.identifiability.spans import Spans
from sysid_ros.core.identifiability.tree import WORLD, KinematicTree, TreeBody
from sysid_ros.core.model.inertia import PARAMETER_NAMES, PARAMETER_UNITS, unit_inertias

Array = NDArray[np.float64]


INERTIA = unit_inertias()
"""Spatial inertia (6, 6) of each parameter, (10, 6, 6)."""
# Entries of a spatial inertia that hold the ten parameters.
_ROWS = np.array([0, 5, 3, 4, 3, 3, 4, 3, 4, 5])
_COLUMNS = np.array([0, 1, 2, 0, 3, 4, 4, 5, 5, 5])


def parameters_of(inertias: Array) -> Array:
    """Return the ten parameters (..., 10) of spatial inertias (..., 6, 6)."""
    return inertias[..., _ROWS, _COLUMNS]


def transfer_matrix(transform: Array) -> Array:
    """Build the map of a child's parameters to its parent's, (10, 10): ``B`` of RPNA (39), (42)."""
    result: Array = parameters_of(transform.T @ INERTIA @ transform).T
    return result


def mapping_rate(twist: Array) -> Array:
    """Build the rate of that map as the joint moves along a twist (6,), (10, 10): ``A`` of RPNA (40)."""
    cross = motion_cross_matrix(twist)
    result: Array = parameters_of(cross.T @ INERTIA + INERTIA @ cross).T
    return result


def projected_momentum(velocities: Array, motion: Array) -> Array:
    """Compute gradients of ``v^T I phi``, (10, c d), for twists (6, c), motions (6, d): ``M`` of RPNA (36), (52)."""
    result: Array = (velocities.T @ INERTIA @ motion).reshape(10, -1)
    return result


def _momentum_rate(velocity: Array, acceleration: Array) -> Array:
    """Return the rate of momentum of a body by its parameters, (6, 10)."""
    result: Array = (INERTIA @ acceleration + force_cross(velocity, INERTIA @ velocity)).T
    return result


LINK = 10
_AXIAL = np.eye(10)[:, [9]]
_SYMMETRIC = np.zeros((10, 4))
_SYMMETRIC[[0, 3, 9], [0, 1, 3]] = 1.0
_SYMMETRIC[[4, 6], 2] = 1.0
_ROTOR_BASIS = {"axial": _AXIAL, "symmetric": _SYMMETRIC, "full": np.eye(10)}
_ROTOR_NAMES = {
    "axial": ("I_m",),
    "symmetric": ("rotor_m", "rotor_mcz", "rotor_Ixx=Iyy", "I_m"),
    "full": tuple(f"rotor_{name}" for name in PARAMETER_NAMES),
}
_ROTOR_POWERS = {"axial": (2,), "symmetric": (0, 1, 2, 2), "full": (0, 1, 1, 1, 2, 2, 2, 2, 2, 2)}
_UNITS = ("kg", "kg m", "kg m^2")


@dataclass(frozen=True)
class JointUnit:
    """Matrices of one joint, see the module; P extended parameters, S entries of the extended velocity, nd freedoms.

    Attributes:
        names: Names of the parameters after the joint's name, P.
        units: Their units, P.
        scale: Value in SI units of one unit of each parameter, (P,).
        transform: Extended velocity at zero position from the parent's (twist, flag), (S, 7).
        cross: Rate of the extended velocity as each freedom moves, nd matrices (S, S).
        motion: Extended motion of the joint, (S, nd).
        transfer: Effect of the parameters on the parent's ten, (10, P).
        rates: Its change with each freedom, nd matrices (P, P).
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    scale: Array
    transform: Array
    cross: tuple[Array, ...]
    motion: Array
    transfer: Array
    rates: tuple[Array, ...]
    _rotor_basis: Array
    _has_armature: bool
    _has_offset: bool

    def momentum(self, velocities: Array) -> Array:
        """Compute gradients of ``v^T I phi`` by the extended parameters, (P, c nd), for extended velocities (S, c).

        Virtual twists of the base move no joint and carry no weight, so a wrench under the base contains neither
        armature nor torque offset. Source: RPNA appendix I.
        """
        still = np.zeros(len(velocities))
        parts = [self.forces(still, column, self.motion) for column in velocities.T]
        result: Array = np.concatenate([np.zeros((0, len(self.names))), *parts]).T
        return result

    def forces(self, velocity: Array, acceleration: Array, columns: Array) -> Array:
        """Compute generalised forces by the extended parameters, (c, P), in one state.

        Args:
            velocity: Extended velocity, (S,).
            acceleration: Extended acceleration, that of the base upwards in place of weight, (S,).
            columns: Extended velocities along the coordinates the forces belong to, (S, c).
        """
        parts = [columns[:6].T @ _momentum_rate(velocity[:6], acceleration[:6])]
        if self._rotor_basis.shape[1]:
            rotor = _momentum_rate(velocity[6:12], acceleration[6:12]) @ self._rotor_basis
            parts.append(columns[6:12].T @ rotor / self.motion[11, 0])
        if self._has_armature:
            parts.append(columns[-2, :, None] * acceleration[-2])
        if self._has_offset:
            parts.append(columns[-2, :, None] * acceleration[-1])
        return np.concatenate(parts, axis=1)


def build_unit(body: TreeBody, length: float, gravity: float, joint_parameters: tuple[str, ...]) -> JointUnit:
    """Build the extended body of a joint.

    Args:
        body: The body and its joint.
        length: Unit of length [m].
        gravity: Unit of acceleration [m/s^2].
        joint_parameters: Which of ``I_a`` and ``beta`` are parameters; joints with several freedoms and
            those that follow others have none.

    Returns:
        Its matrices.
    """
    translation = body.translation / length
    motion = _scaled_motion(body, length)
    is_single = body.dofs == 1 and body.follows is None
    has_armature = is_single and "I_a" in joint_parameters
    has_offset = is_single and "beta" in joint_parameters
    link_transform = motion_transform(body.rotation, translation)
    transforms, crosses, motions = [link_transform], [[motion_cross_matrix(column) for column in motion.T]], [motion]
    transfers, rates = [transfer_matrix(link_transform)], [[mapping_rate(column) for column in motion.T]]
    names, units, scale = list(PARAMETER_NAMES), list(PARAMETER_UNITS), [1.0, *[length] * 3, *[length**2] * 6]

    rotor_basis = np.zeros((10, 0))
    if body.rotor is not None:
        rotor, kind = body.rotor, body.rotor.parameters
        # One turn of a prismatic joint's rotor is per scaled length.
        ratio = rotor.gear_ratio * (length if body.is_translating else 1.0)
        rotor_basis, spin = _ROTOR_BASIS[kind], np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
        rotation = body.rotation @ axis_frame(np.asarray(rotor.axis))
        origin = translation + body.rotation @ np.asarray(rotor.origin) / length
        transform = motion_transform(rotation, origin)
        transforms.append(transform)
        crosses.append([ratio * motion_cross_matrix(spin)])
        motions.append(ratio * spin[:, None])
        transfers.append(transfer_matrix(transform) @ rotor_basis / ratio)
        # The bases are closed under A: columns of a symmetric rotor stay zero, a full rotor needs all ten.
        rates.append([ratio * rotor_basis.T @ mapping_rate(spin) @ rotor_basis])
        names += _ROTOR_NAMES[kind]
        units += [_UNITS[power] for power in _ROTOR_POWERS[kind]]
        scale += [length**power / ratio for power in _ROTOR_POWERS[kind]]

    power = 0 if body.is_translating else 1
    extra = int(has_armature) + int(has_offset)
    if has_armature:
        names.append("I_a")
        units.append("kg" if body.is_translating else "kg m^2")
        scale.append(length ** (2 * power))
    if has_offset:
        names.append("beta")
        units.append("N" if body.is_translating else "Nm")
        scale.append(gravity * length**power)
    size = sum(len(part) for part in transforms) + 2
    extended_transform = np.zeros((size, 7))
    extended_transform[: size - 2, :6] = np.concatenate(transforms)
    extended_transform[-1, 6] = 1.0
    rate = np.full((1, body.dofs), 1.0 if is_single else 0.0)
    extended_motion = np.concatenate([*motions, rate, np.zeros((1, body.dofs))])
    return JointUnit(
        names=tuple(names),
        units=tuple(units),
        scale=np.array(scale),
        transform=extended_transform,
        cross=tuple(_blocks([part[k] for part in crosses], 2) for k in range(body.dofs)),
        motion=extended_motion,
        transfer=np.concatenate([*transfers, np.zeros((10, extra))], axis=1),
        rates=tuple(_blocks([part[k] for part in rates], extra) for k in range(body.dofs)),
        _rotor_basis=rotor_basis,
        _has_armature=has_armature,
        _has_offset=has_offset,
    )


def _scaled_motion(body: TreeBody, length: float) -> Array:
    """Scale the lengths of a joint motion; a translation is counted in units of the typical length."""
    motion = np.array(body.motion)
    turns = motion[3:].any(axis=0)
    motion[:3, turns] /= length
    return motion


def _blocks(parts: list[Array], zeros: int) -> Array:
    sizes = [len(part) for part in parts]
    result = np.zeros((sum(sizes) + zeros,) * 2)
    start = 0
    for part in parts:
        result[start : start + len(part), start : start + len(part)] = part
        start += len(part)
    return result


@dataclass(frozen=True)
class BodyNullspace:
    """Result of the algorithm for one body; P extended parameters (see :class:`JointUnit`), in scaled units.

    Attributes:
        unit: The body's matrices.
        descriptor: Orthonormal rows (r, P): a transfer to the parent is invisible if they all vanish on it.
        velocities: Basis of the link's attainable velocities and gravity, (6, dim V).
        coefficients: Basis of the coefficients of the link's ten parameters in the measurements, (10, dim K).
    """

    unit: JointUnit
    descriptor: Array
    velocities: Array
    coefficients: Array

    @property
    def transfers(self) -> int:
        """Dim T: number of independent invisible transfers to the parent."""
        return int(self.descriptor.shape[1] - self.descriptor.shape[0])


def find_nullspaces(tree: KinematicTree, settings: AnalysisSettings, spans: Spans) -> tuple[BodyNullspace, ...]:
    """Run the algorithm; return one result per body.

    Source: RPNA Algorithms 1, 2 (3 is a special case of 2), remark 8, appendices F and I.
    """
    strength = float(np.linalg.norm(tree.gravity))
    # The world accelerates upwards instead of weights pulling down, so that weights and offsets have the same sign.
    upwards = -tree.gravity / strength if strength > 0.0 else np.zeros(3)
    unit_gravity = strength if strength > 0.0 else 9.81  # [m/s^2]
    seed = np.concatenate([upwards, np.zeros(3), [1.0]])[:, None]
    joints = _JointView(tree, settings, spans, seed)
    base = _BaseView(settings, spans, seed)
    results = []
    for index, body in enumerate(tree.bodies):
        unit = build_unit(body, tree.length, unit_gravity, settings.joint_parameters)
        rows = [np.zeros((0, len(unit.names)))]
        seen_by_joints = joints.visit(index, body.parent, unit)
        if settings.sees_joints:
            rows.append(seen_by_joints)
        if settings.sees_base:
            rows.append(base.visit(index, body.parent, unit))
        view = joints if settings.sees_joints else base
        results.append(
            BodyNullspace(
                unit=unit,
                descriptor=spans.row_basis(np.concatenate(rows)),
                velocities=spans.basis(joints.velocities[index][:6]),
                coefficients=view.coefficients[index],
            )
        )
    return tuple(results)


class _JointView:
    """The recursion for measured joint forces; velocities are (twist, flag), (7, dim)."""

    def __init__(self, tree: KinematicTree, settings: AnalysisSettings, spans: Spans, seed: Array):
        self.velocities: dict[int, Array] = {WORLD: seed}
        self.coefficients: dict[int, Array] = {WORLD: np.zeros((LINK, 0))}
        self._settings, self._spans = settings, spans
        # With joint torques alone, the wrench on a floating base is not measured.
        self._unmeasured = 0 if tree.is_floating and settings.measured == "joint_torques" else None

    def visit(self, index: int, parent: int, unit: JointUnit) -> Array:
        """Compute the momentum and mapping conditions of one body, (rows, P)."""
        spans = self._spans
        velocities = spans.invariant(unit.cross, unit.transform @ self.velocities[parent])
        if not self._settings.is_static:
            velocities = np.concatenate([velocities, unit.motion / np.linalg.norm(unit.motion, axis=0)], axis=1)
        momentum = unit.momentum(velocities)
        mapped = spans.invariant([rate.T for rate in unit.rates], unit.transfer.T @ self.coefficients[parent])
        self.velocities[index] = spans.basis(np.concatenate([velocities[:6], velocities[-1:]]))
        self.coefficients[index] = spans.basis(np.concatenate([mapped[:LINK], momentum[:LINK]], axis=1))
        if index == self._unmeasured:
            return np.zeros((0, len(unit.names)))
        return np.concatenate([momentum.T, *(mapped.T @ rate for rate in unit.rates)])


class _BaseView:
    """The recursion for a measured base wrench: one velocity of each pair is a virtual twist of the base."""

    def __init__(self, settings: AnalysisSettings, spans: Spans, seed: Array):
        self.coefficients: dict[int, Array] = {WORLD: spans.basis(projected_momentum(np.eye(6), seed[:6]))}
        self._twists: dict[int, Array] = {WORLD: np.eye(7)[:, :6]}
        self._settings, self._spans = settings, spans

    def visit(self, index: int, parent: int, unit: JointUnit) -> Array:
        """Compute the momentum and mapping conditions of one body, (rows, P)."""
        spans = self._spans
        twists = spans.invariant(unit.cross, unit.transform @ self._twists[parent])
        momentum = unit.momentum(twists)
        if self._settings.is_static:
            momentum = momentum[:, :0]
        carried = unit.transfer.T @ self.coefficients[parent]
        mapped = spans.invariant([rate.T for rate in unit.rates], carried)
        self._twists[index] = spans.basis(np.concatenate([twists[:6], twists[-1:]]))
        self.coefficients[index] = spans.basis(np.concatenate([mapped[:LINK], momentum[:LINK]], axis=1))
        rows = [momentum.T, *(mapped.T @ rate for rate in unit.rates)]
        if parent == WORLD:
            rows.append(carried.T)  # no body below the sensor takes over its transfers
        return np.concatenate(rows)
