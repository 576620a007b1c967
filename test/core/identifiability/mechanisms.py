"""Random mechanisms, and the rank of their regressors by singular values as the independent answer."""

from __future__ import annotations

import numpy as np
import pinocchio as pin

RANK_TOLERANCE = 1e-8  # of the largest singular value; geometry is of order one, exact zeros come out at 1e-14
NICE_AXES = np.concatenate([np.eye(3), -np.eye(3), [[0.6, 0.8, 0.0], [0.0, 0.6, 0.8]]])


def _axis(rng, is_special):
    if is_special:
        return NICE_AXES[rng.integers(len(NICE_AXES))]
    axis = rng.normal(size=3)
    return axis / np.linalg.norm(axis)


def _placement(rng, is_special):
    """Special geometry: right angles, coinciding origins, offsets along one axis."""
    if not is_special:
        return pin.SE3(pin.SE3.Random().rotation, rng.uniform(-0.8, 0.8, 3))
    angles = rng.integers(0, 4, 3) * np.pi / 2
    if rng.random() < 0.5:
        angles = np.zeros(3)  # parallel axes
    rotation = pin.rpy.rpyToMatrix(*angles)
    offset = rng.integers(-1, 2, 3) * rng.choice([0.3, 0.5, 0.7], 3)
    return pin.SE3(rotation, offset if rng.random() < 0.7 else np.zeros(3))


def _joint(rng, kind, is_special):
    axis = _axis(rng, is_special)
    return {
        "revolute": lambda: pin.JointModelRevoluteUnaligned(axis),
        "prismatic": lambda: pin.JointModelPrismaticUnaligned(axis),
        "helical": lambda: pin.JointModelHelicalUnaligned(axis, 0.2),
        "continuous": pin.JointModelRUBY,
        "spherical": pin.JointModelSpherical,
        "euler": pin.JointModelSphericalZYX,
        "planar": pin.JointModelPlanar,
        "translation": pin.JointModelTranslation,
        "floating": pin.JointModelFreeFlyer,
        "universal": lambda: pin.JointModelUniversal(np.eye(3)[0], np.eye(3)[1]),
    }[kind]()


SINGLE = ("revolute", "revolute", "revolute", "prismatic")
ANY = (*SINGLE, "revolute", "helical", "continuous", "spherical", "euler", "planar", "translation", "universal")


def random_tree(rng, kinds, most=12, is_special=None, is_floating=False):
    """A Pinocchio model with 2 to ``most`` bodies that branches, in any gravity or none."""
    model = pin.Model()
    count = int(rng.integers(2, most + 1))
    is_special = bool(rng.random() < 0.6) if is_special is None else is_special
    branching = rng.choice([0.0, 0.3, 0.6])
    for k in range(count):
        kind = "floating" if is_floating and k == 0 else str(rng.choice(kinds))
        parent = 0 if k == 0 else (k if rng.random() >= branching else int(rng.integers(min(is_floating, k), k + 1)))
        joint = model.addJoint(parent, _joint(rng, kind, is_special), _placement(rng, is_special), f"joint_{k + 1}")
        model.appendBodyToJoint(joint, pin.Inertia.Random(), pin.SE3.Identity())
    gravities = [np.zeros(3), [0, 0, -9.81], [0, 0, -9.81], [9.81, 0, 0], [4.905, 0, -8.496], rng.normal(size=3)]
    model.gravity.linear = np.array(gravities[rng.integers(len(gravities))], dtype=float)
    return model


def samples(model, rng, count):
    """Random states, positions spread over most of a turn."""
    for _ in range(count):
        q = pin.integrate(model, pin.neutral(model), rng.uniform(-2.0, 2.0, model.nv))
        yield q, rng.normal(size=model.nv), rng.normal(size=model.nv)


def torque_regressor(model, rng, is_static=False, rows_per_column=2.0):
    """Torque regressors of random states, stacked."""
    data, columns = model.createData(), 10 * (model.njoints - 1)
    count = int(rows_per_column * columns / model.nv) + 6
    parts = []
    for q, v, a in samples(model, rng, count):
        v, a = (0.0 * v, 0.0 * a) if is_static else (v, a)
        parts.append(pin.computeJointTorqueRegressor(model, data, q, v, a).copy())
    return np.concatenate(parts)


def rank(matrix):
    values = np.linalg.svd(matrix, compute_uv=False)
    return int(np.count_nonzero(values > RANK_TOLERANCE * max(values[0], 1e-3))) if values.size else 0
