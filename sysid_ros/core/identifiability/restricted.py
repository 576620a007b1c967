"""Restricted motions: mimic joints, and free-flying robots without external forces.

The recursion allows all motions of a tree. Measurements in restricted motions are still functions of the tree's base
parameters, so their rows at random states of the motion show which of these remain.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.identifiability.rpna import LINK, JointUnit
from sysid_ros.core.identifiability.settings import AnalysisSettings
from sysid_ros.core.identifiability.tree import WORLD, KinematicTree, TreeBody
from sysid_ros.core.model.inertia import from_pseudo_inertia

Array = NDArray[np.float64]

_SPREAD = 2.0  # of positions [rad, typical lengths]


def restricted_rows(tree: KinematicTree, units: Sequence[JointUnit], settings: AnalysisSettings) -> Array:
    """Compute rows (N, P) of the measurements at random, always equal, states, by scaled extended parameters.

    Source: RPNA remark 10 (no wrench on the base); joints that follow others are ours.
    """
    rng = np.random.default_rng(0)
    coupling, offsets = _couple(tree)
    free = coupling.shape[1]
    strength = float(np.linalg.norm(tree.gravity))
    upwards = -tree.gravity / strength if strength > 0.0 else np.zeros(3)
    seed = np.concatenate([upwards, np.zeros(3), [1.0]])
    is_measured = np.full(6 + free, settings.sees_joints)
    is_measured[:6] = settings.sees_base
    if tree.is_floating:  # its own coordinates stand for the base
        is_measured[:12] = [False] * 6 + [settings.measured != "joint_torques"] * 6
    parameters = np.concatenate([_draw(rng, unit, body) for unit, body in zip(units, tree.bodies, strict=True)])
    parts: list[Array] = []
    for _ in range(int(1.5 * parameters.size / max(is_measured.sum(), 1)) + 6):
        q = coupling @ rng.uniform(-_SPREAD, _SPREAD, free) + offsets
        v, a = np.zeros((2, free)) if settings.is_static else rng.normal(size=(2, free))
        rows = _rows(tree, units, q, coupling, v, a, seed)
        if settings.is_ballistic:
            # The wrench on the base is affine in its acceleration, which has to make it zero.
            moved = [_rows(tree, units, q, coupling, v, a + push, seed) for push in np.eye(6, free)]
            wrench = rows[6:12] @ parameters
            a[:6] -= np.linalg.solve(np.stack([one[6:12] @ parameters - wrench for one in moved], axis=1), wrench)
            rows = _rows(tree, units, q, coupling, v, a, seed)
        parts.append(rows[is_measured])
    return np.concatenate(parts)


def _draw(rng: np.random.Generator, unit: JointUnit, body: TreeBody) -> Array:
    """Return extended parameters (P,) of some body, which decide the motion of a robot without external forces."""
    factor = rng.normal(size=(4, 4))
    link = from_pseudo_inertia(factor @ factor.T) if body.has_inertia else np.zeros(LINK)
    return np.concatenate([link, rng.uniform(0.1, 0.3, len(unit.names) - LINK)])


def _couple(tree: KinematicTree) -> tuple[Array, Array]:
    """Return the map of the free coordinates to all, (nv, free), and their offsets, (nv,), scaled."""
    starts = np.cumsum([0, *(body.dofs for body in tree.bodies)])
    size = {body.name: tree.length if body.is_translating else 1.0 for body in tree.bodies}
    first = {body.name: int(start) for body, start in zip(tree.bodies, starts, strict=False)}
    coupling, offsets, followers = np.eye(starts[-1]), np.zeros(starts[-1]), []
    for body in tree.bodies:
        if body.follows is not None:
            own, leader = first[body.name], body.follows.joint
            followers.append(own)
            coupling[own, own] = 0.0
            coupling[own, first[leader]] = body.follows.multiplier * size[leader] / size[body.name]
            offsets[own] = body.follows.offset / size[body.name]
    return np.delete(coupling, followers, axis=1), offsets


def _rows(
    tree: KinematicTree, units: Sequence[JointUnit], q: Array, coupling: Array, v: Array, a: Array, seed: Array
) -> Array:
    """Return the rows of the wrench on the base (6) and of the free coordinates, (6 + free, P), in one state."""
    free = coupling.shape[1]
    rates, accelerations = coupling @ v, coupling @ a
    virtual = np.eye(7, 6 + free)
    virtual[6] = 0.0  # a twist of the base moves no joint and carries no weight
    states = {WORLD: (np.zeros(7), seed, virtual)}
    parts, start = [], 0
    for index, (body, unit) in enumerate(zip(tree.bodies, units, strict=True)):
        own = slice(start, start + body.dofs)
        start += body.dofs
        cross = np.array(unit.cross).reshape(body.dofs, len(unit.transform), len(unit.transform))
        transform = unit.transform.copy()
        for block in range(0, len(transform) - 2, 6):  # of the link, and of its rotor
            moved = pin.exp6(unit.motion[block : block + 6] @ q[own]).toActionMatrixInverse()
            transform[block : block + 6] = moved @ transform[block : block + 6]
        before = states[body.parent]
        velocity = transform @ before[0]
        acceleration = transform @ before[1] + unit.motion @ accelerations[own]
        acceleration -= np.tensordot(rates[own], cross, 1) @ velocity
        velocity = velocity + unit.motion @ rates[own]
        columns = transform @ before[2]
        columns[:, 6:] += unit.motion @ coupling[own]
        parts.append(unit.forces(velocity, acceleration, columns))
        kept = [*range(6), -1]
        states[index] = velocity[kept], acceleration[kept], columns[kept]
    return np.concatenate(parts, axis=1)
