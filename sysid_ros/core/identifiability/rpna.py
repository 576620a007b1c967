"""The Recursive Parameter Nullspace Algorithm: which changes of parameters no measurement can ever see.

Every such change is a sum of transfers between a body and its parent, and each transfer is found from conditions on the
body alone: it must not change the momentum along the joint, and it must reach the parent in a fixed way. From the base
outwards the algorithm carries two spans per body: all velocities it can have (with gravity as one of them) and all
coefficients its parameters can have in what is measured.

A wrench sensor under the base is the same algorithm with the virtual twists of the base in place of one of the two
velocities of the kinetic energy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.identifiability.settings import AnalysisSettings
from sysid_ros.core.identifiability.spans import Spans
from sysid_ros.core.identifiability.spatial import projected_momentum
from sysid_ros.core.identifiability.tree import WORLD, KinematicTree
from sysid_ros.core.identifiability.unit import LINK, JointUnit, build_unit

Array = NDArray[np.float64]

_STANDARD_GRAVITY = 9.81  # [m/s^2], unit of acceleration where there is no gravity


@dataclass(frozen=True)
class BodyNullspace:
    """What the algorithm finds out about one body; P extended parameters (see :class:`JointUnit`), in scaled units.

    Attributes:
        unit: The body's matrices.
        descriptor: Orthonormal rows (r, P): a transfer to the parent is invisible if they all vanish on it.
        velocities: Basis of the link's attainable velocities and gravity, (6, dim V).
        coefficients: Basis of the coefficients of the link's ten parameters in what is measured, (10, dim K).
    """

    unit: JointUnit
    descriptor: Array
    velocities: Array
    coefficients: Array

    @property
    def transfers(self) -> int:
        """Dim T: number of independent invisible transfers to the parent."""
        return self.descriptor.shape[1] - self.descriptor.shape[0]


def find_nullspaces(tree: KinematicTree, settings: AnalysisSettings, spans: Spans) -> tuple[BodyNullspace, ...]:
    """Runs the algorithm.

    Args:
        tree: The mechanism.
        settings: What is measured, and in which motions.
        spans: Computes bases.

    Returns:
        One result per body.

    Source: RPNA Algorithms 1, 2 (3 is a special case of 2), remark 8, appendices F and I.
    """
    strength = float(np.linalg.norm(tree.gravity))
    # The world accelerates upwards instead of weights pulling down, so that weights and offsets have the same sign.
    upwards = -tree.gravity / strength if strength > 0.0 else np.zeros(3)
    unit_gravity = strength if strength > 0.0 else _STANDARD_GRAVITY
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
        """Momentum and mapping conditions of one body, (rows, P)."""
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
        """Momentum and mapping conditions of one body, (rows, P)."""
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
            rows.append(carried.T)  # nothing below the sensor takes over what this body gives away
        return np.concatenate(rows)
