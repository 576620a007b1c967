"""The inertia matrix and its derivatives by inertial parameter, at many positions at once.

With the Jacobian ``J = [J_v; J_w]`` of a body in its own frame, its part of the inertia is ``J^T I J``, and ``I`` is
linear in the ten parameters. A column of J turns with every joint between its own and the body: for joints k before j
before the body ``dJ_k/dq_j = J_k x J_j`` (the motion product), and zero else, as a frame that moves along sees
nothing of what is behind it.
"""

from __future__ import annotations

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.model.robot import INERTIAL, RobotModel

Array = NDArray[np.float64]


def inertia_columns(robot: RobotModel, q: Array) -> Array:
    """The inertia by inertial parameter and armature, (S, n, n, 11 n), at positions (S, n) [rad]."""
    n = robot.n
    columns = np.zeros((len(q), (INERTIAL + 1) * n, n, n))
    for body, jacobian in enumerate(_body_jacobians(robot, q)):
        moving = np.flatnonzero(jacobian.any(axis=(0, 1)))
        own = jacobian[..., moving]
        columns[:, robot.inertial_slice(body + 1), moving[:, None], moving] = _products(own, own)
    joints = np.arange(n)
    columns[:, INERTIAL * n + joints, joints, joints] = 1.0
    return columns.transpose(0, 2, 3, 1)


def coriolis_columns(robot: RobotModel, q: Array) -> Array:
    """``C(q, e_j)`` by inertial parameter and armature (which adds nothing), (S, j, n, n, 11 n); Christoffel's."""
    n = robot.n
    columns = np.zeros((len(q), (INERTIAL + 1) * n, n, n, n))
    for body, jacobian in enumerate(_body_jacobians(robot, q)):
        moving = np.flatnonzero(jacobian.any(axis=(0, 1)))
        own = jacobian[..., moving]
        half = _products(_position_derivative(own), own[:, None])  # (S, j, 10, a, b)
        slope = half + half.swapaxes(3, 4)  # dH/dq_j
        # C(e_j)_ab = (dH_ab/dq_j + dH_aj/dq_b - dH_jb/dq_a) / 2
        christoffel = 0.5 * (slope + slope.transpose(0, 4, 2, 3, 1) - slope.transpose(0, 3, 2, 1, 4))
        parameters = np.arange(INERTIAL * body, INERTIAL * (body + 1))
        places = np.ix_(np.arange(len(q)), parameters, moving, moving, moving)
        columns[places] = christoffel.swapaxes(1, 2)
    return columns.transpose(0, 2, 3, 4, 1)


def _body_jacobians(robot: RobotModel, q: Array) -> Array:
    """Jacobians of all bodies in their own frames, linear and then angular, (n, S, 6, n)."""
    model, n = robot.pin_model, robot.n
    data, result = model.createData(), np.empty((n, len(q), 6, n))
    for sample, position in enumerate(np.asarray(q, dtype=float)):
        pin.computeJointJacobians(model, data, position)
        for body in range(n):
            result[body, sample] = pin.getJointJacobian(model, data, body + 1, pin.LOCAL)
    return result


def _position_derivative(jacobian: Array) -> Array:
    """Derivatives of the Jacobians (S, 6, m) of a body by the m joints that move it, base first, (S, j, 6, m)."""
    columns = np.swapaxes(jacobian, -1, -2)  # (S, k, 6)
    v, w = columns[..., :3], columns[..., 3:]
    v_k, w_k, v_j, w_j = v[:, None], w[:, None], v[:, :, None], w[:, :, None]  # (S, j, k, 3)
    turned = np.concatenate([np.cross(w_k, v_j) + np.cross(v_k, w_j), np.cross(w_k, w_j)], axis=-1)
    m = jacobian.shape[-1]
    is_before = np.arange(m) < np.arange(m)[:, None]  # [j, k]: joint k is nearer to the base
    return np.swapaxes(np.where(is_before[..., None], turned, 0.0), -1, -2)


def _products(left: Array, right: Array) -> Array:
    """``A^T I_l B`` for the ten parameters of a body, of A and B (..., 6, m), (..., 10, m, m).

    ``I = [[m 1, -[h]x], [[h]x, I_o]]`` with the moments of inertia I_o about the frame's origin.
    """

    def outer(i: int, j: int) -> Array:
        return left[..., i, :, None] * right[..., j, None, :]

    x, y, z, u, v, w = range(6)
    shape = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    result = np.empty((*shape, INERTIAL, left.shape[-1], right.shape[-1]))
    for parameter, values in enumerate((
        outer(x, x) + outer(y, y) + outer(z, z),
        outer(y, w) - outer(z, v) + outer(w, y) - outer(v, z),
        outer(z, u) - outer(x, w) + outer(u, z) - outer(w, x),
        outer(x, v) - outer(y, u) + outer(v, x) - outer(u, y),
        outer(u, u),
        outer(u, v) + outer(v, u),
        outer(v, v),
        outer(u, w) + outer(w, u),
        outer(v, w) + outer(w, v),
        outer(w, w),
    )):  # fmt: skip
        result[..., parameter, :, :] = values
    return result
