"""Minimal parameters of a floating tree in closed form, from its geometry alone (SPACE section 4).

Parameters that a joint cannot separate are known beforehand. A distribution of mass on the axis of a revolute joint,
for instance, moves in the same way as a part of the child or of the parent: three parameters, its mass, its first
moment along the axis and its second moment. From the leaves to the base these are taken from each child and added to
its parent; the rest are the minimal parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange
from sysid_ros.core.model.inertia import PARAMETER_NAMES, PARAMETER_UNITS, pack, transform_matrix
from sysid_ros.space.core.momentum import PARAMETERS, FloatingTree, joint_axis

Array = NDArray[np.float64]

_MASS, _FIRST_MOMENT, _INERTIA = 0, slice(1, 4), slice(4, 10)
_DIAGONAL = (4, 6, 9)
_ZERO = 1e-12
_SPHERICAL = ("JointModelSpherical", "JointModelSphericalZYX", "JointModelUniversal")


@dataclass(frozen=True, eq=False)
class MinimalParameters:
    """The minimal parameters of a floating tree.

    Attributes:
        kept: Indices of the full parameters whose columns remain, (M,).
        matrix: Maps the full parameters to the minimal ones, (M, 10 B).
        body_names: Names of the bodies, (B,).
    """

    kept: NDArray[np.intp]
    matrix: Array
    body_names: tuple[str, ...]

    @property
    def count(self) -> int:
        """Number of minimal parameters [-]."""
        return len(self.kept)

    def values(self, parameters: ArrayLike) -> Array:
        """Return the minimal parameters (M,) of full parameters (10 B,)."""
        theta = np.asarray(parameters, dtype=float)
        if theta.shape != (self.matrix.shape[1],):
            raise ParameterOutOfRange("the shape of parameters", theta.shape, f"({self.matrix.shape[1]},)")
        values: Array = self.matrix @ theta
        return values

    def embed(self, values: ArrayLike) -> Array:
        """Return full parameters (10 B,) with the momentum of minimal ones (M,), with zeros for those not kept."""
        result = np.zeros(self.matrix.shape[1])
        result[self.kept] = values
        return result

    def box(self, parameters: Box) -> Box:
        """Return the box (M,) of the minimal parameters of all full parameters in a box (10 B,), rounded outwards."""
        center, radius = self.values(parameters.center), np.abs(self.matrix) @ parameters.radius
        return Box.around(center, radius + 1e-12 * (np.abs(self.matrix) @ np.abs(parameters.center) + radius))

    def columns(self, kinematic_matrix: Array) -> Array:
        """Return the columns (..., M) of a system kinematic matrix (..., 10 B) that the minimal parameters have.

        Source: SPACE (24).
        """
        columns: Array = kinematic_matrix[..., self.kept]
        return columns

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters they are called after, such as ``joint_1.Ixx``, (M,)."""
        return tuple(f"{self.body_names[k // PARAMETERS]}.{PARAMETER_NAMES[k % PARAMETERS]}" for k in self.kept)

    @property
    def units(self) -> tuple[str, ...]:
        """Their units, (M,)."""
        return tuple(PARAMETER_UNITS[k % PARAMETERS] for k in self.kept)

    def describe(self, index: int) -> str:
        """Return a minimal parameter written out, such as ``joint_2.Ixx - joint_2.Iyy + 0.25 joint_3.m``."""
        row, own = self.matrix[index], self.kept[index]
        text = self.names[index]
        for k in np.flatnonzero(np.abs(row) > _ZERO):
            if k != own:
                size = abs(row[k])
                factor = "" if abs(size - 1.0) < _ZERO else f"{size:.4g} "
                name = f"{self.body_names[k // PARAMETERS]}.{PARAMETER_NAMES[k % PARAMETERS]}"
                text += f" {'+' if row[k] > 0 else '-'} {factor}{name}"
        return text


def build_minimal_parameters(tree: FloatingTree) -> MinimalParameters:
    """Build the minimal parameters of a floating tree by recursion from the leaves to the base.

    Returns:
        The minimal parameters: of a tree of revolute joints ``10 + 7 n``.

    Raises:
        ModelError: A joint is of a kind without a closed form.

    Source: SPACE (21) to (25); for revolute joints with any axis and for other kinds of joints the same recursion with
    :func:`shared_parameters`.
    """
    size = PARAMETERS * tree.count
    grouped = np.eye(size).reshape(tree.count, PARAMETERS, size)
    kept: list[list[int]] = [list(range(PARAMETERS)) for _ in range(tree.count)]
    for body in range(tree.count - 1, 0, -1):
        joint, placement = tree.model.joints[body + 1], tree.model.jointPlacements[body + 1]
        shared = shared_parameters(joint)
        moved = _redundant(joint, shared)
        amounts = np.linalg.solve(shared[moved], grouped[body][moved])
        to_parent = transform_matrix(placement.rotation, placement.translation)
        grouped[tree.parents[body]] += to_parent @ shared @ amounts
        grouped[body] -= shared @ amounts
        kept[body] = [k for k in range(PARAMETERS) if k not in moved]
    indices = np.array([PARAMETERS * body + k for body, own in enumerate(kept) for k in own])
    matrix = grouped.reshape(size, size)[indices]
    matrix[np.abs(matrix) < _ZERO] = 0.0
    matrix.setflags(write=False)
    return MinimalParameters(indices, matrix, tree.body_names)


def shared_parameters(joint: pin.JointModel) -> Array:
    """Return the changes of a child's parameters that its parent could have instead, as columns (10, K).

    They change nothing where the joint moves: their momentum due to the joint is zero, and the parent sees them alike
    in every position of the joint.

    Raises:
        ModelError: There is no closed form for this kind of joint.

    Source: SPACE (18) to (20) for a revolute joint about z.
    """
    kind, axis = joint.shortname(), joint_axis(joint)
    zero, nothing = np.zeros(3), np.zeros((3, 3))
    point = pack(1.0, zero, nothing)
    if kind.startswith("JointModelP") and axis is not None or kind == "JointModelTranslation":
        return np.eye(PARAMETERS)[:, _INERTIA]
    if axis is not None:
        return np.stack([point, pack(0.0, axis, nothing), pack(0.0, zero, np.eye(3) - np.outer(axis, axis))], axis=1)
    if kind in _SPHERICAL:
        return point[:, None]
    turning = {"JointModelPlanar": "Z", "JointModelHX": "X", "JointModelHY": "Y", "JointModelHZ": "Z"}.get(kind)
    if turning is not None:
        along = np.eye(3)["XYZ".index(turning)]
        return pack(0.0, zero, np.eye(3) - np.outer(along, along))[:, None]
    if kind == "JointModelFreeFlyer":
        return np.zeros((PARAMETERS, 0))
    raise ModelError(f"there is no closed form of minimal parameters for a {kind}")


def _redundant(joint: pin.JointModel, shared: Array) -> list[int]:
    """Return the parameters of the child that are given up, one per shared change, the later ones of equals."""
    if shared.shape[1] == 6:
        return list(range(PARAMETERS))[_INERTIA]
    chosen = []
    for column in shared.T:
        entries = (_MASS,) if column[_MASS] else (1, 2, 3) if np.any(column[_FIRST_MOMENT]) else _DIAGONAL
        sizes = np.abs(column[list(entries)])
        # Of equal ones the later, as in the paper, but not the inertia about the axis itself, which stands alone.
        best = max(range(len(entries)), key=lambda k: (sizes[k] > sizes.max() - _ZERO, k))
        chosen.append(entries[best])
    return chosen
