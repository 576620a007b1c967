"""A joint with everything that moves with it: link, rotor, armature and torque offset as one extended body.

The extended velocity is ``[twist of the link; twist of the rotor; joint velocity; 1 if it belongs to gravity]`` and the
extended parameters are ``[ten of the link | of the rotor | I_a | beta]``. Then the equations of the paper's appendix I
hold for all of them alike: an armature is inertia that only the joint's velocity moves, and an offset is a torque that
looks like gravity of a body whose weight acts the same way in every posture.

Lengths are in units of the tree's typical length, gravity in units of its strength; a rotor's parameters are counted
``gear_ratio`` times, so that all numbers are of order one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.identifiability.spatial import (
    align_z,
    mapping_rate,
    motion_cross,
    motion_transform,
    projected_momentum,
    transfer_matrix,
)
from sysid_ros.core.identifiability.tree import TreeBody
from sysid_ros.core.model.inertia import PARAMETER_NAMES, PARAMETER_UNITS

Array = NDArray[np.float64]

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
        transfer: How the parameters add to the parent's ten, (10, P).
        rates: How that changes with each freedom, nd matrices (P, P).
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    scale: Array
    transform: Array
    cross: tuple[Array, ...]
    motion: Array
    transfer: Array
    rates: tuple[Array, ...]
    _link_motion: Array
    _rotor_motion: Array
    _rotor_basis: Array
    _has_armature: bool
    _has_offset: bool

    def momentum(self, velocities: Array) -> Array:
        """Gradients of ``v^T I phi`` by the extended parameters, (P, c nd), for extended velocities (S, c).

        Args:
            velocities: Extended velocities, or virtual twists of the base: these move no joint and carry no weight, so
                a wrench under the base feels neither armature nor torque offset.

        Returns:
            The gradients.

        Source: RPNA appendix I.
        """
        count, freedoms = velocities.shape[1], self._link_motion.shape[1]
        parts = [projected_momentum(velocities[:6], self._link_motion)]
        if self._rotor_basis.shape[1]:
            parts.append(self._rotor_basis.T @ projected_momentum(velocities[6:12], self._rotor_motion))
        if self._has_armature:
            parts.append(velocities[None, -2])
        if self._has_offset:
            parts.append(velocities[None, -1])
        return np.concatenate(parts) if count * freedoms else np.zeros((len(self.names), 0))


def build_unit(body: TreeBody, length: float, gravity: float, joint_parameters: tuple[str, ...]) -> JointUnit:
    """The extended body of a joint.

    Args:
        body: The body and its joint.
        length: Unit of length [m].
        gravity: Unit of acceleration [m/s^2].
        joint_parameters: Which of ``I_a`` and ``beta`` are parameters; only joints with one freedom have them.

    Returns:
        Its matrices.
    """
    translation = body.translation / length
    motion = _scaled_motion(body, length)
    is_single = body.dofs == 1
    has_armature = is_single and "I_a" in joint_parameters
    has_offset = is_single and "beta" in joint_parameters
    link_transform = motion_transform(body.rotation, translation)
    transforms, crosses, motions = [link_transform], [[motion_cross(column) for column in motion.T]], [motion]
    transfers, rates = [transfer_matrix(link_transform)], [[mapping_rate(column) for column in motion.T]]
    names, units, scale = list(PARAMETER_NAMES), list(PARAMETER_UNITS), [1.0, *[length] * 3, *[length**2] * 6]

    rotor_basis, rotor_motion = np.zeros((10, 0)), np.zeros((6, 1))
    if body.rotor is not None:
        rotor, kind = body.rotor, body.rotor.parameters
        # One turn of a prismatic joint's rotor is per scaled length.
        ratio = rotor.gear_ratio * (length if body.is_translating else 1.0)
        rotor_basis, spin = _ROTOR_BASIS[kind], np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
        rotation = body.rotation @ align_z(np.asarray(rotor.axis))
        origin = translation + body.rotation @ np.asarray(rotor.origin) / length
        transform = motion_transform(rotation, origin)
        transforms.append(transform)
        crosses.append([ratio * motion_cross(spin)])
        motions.append(ratio * spin[:, None])
        transfers.append(transfer_matrix(transform) @ rotor_basis / ratio)
        # The bases are closed under A: columns of a symmetric rotor stay zero, a full rotor needs all ten.
        rates.append([ratio * rotor_basis.T @ mapping_rate(spin) @ rotor_basis])
        rotor_motion = spin[:, None]
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
    rate = np.ones((1, 1)) if is_single else np.zeros((1, body.dofs))
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
        _link_motion=motion,
        _rotor_motion=rotor_motion,
        _rotor_basis=rotor_basis,
        _has_armature=has_armature,
        _has_offset=has_offset,
    )


def _scaled_motion(body: TreeBody, length: float) -> Array:
    """Joint motion with lengths scaled; a translation is counted in units of the typical length."""
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
