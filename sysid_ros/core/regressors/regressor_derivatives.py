"""Derivatives of the momentum regressors themselves: those of the momentum equation for every parameter.

The momentum columns of a body are products ``(x, y) = x . J y`` of two motions with its inertia J for a unit parameter:
``W_m = (s_j, V)`` and ``W_c = (r_j, V) + (s_j, g)`` with its twist V, the joint axes ``s_j``, their rates
``r_j = V_j x s_j`` and the uniform field g of gravity. Seen from a body that joints j and k move, joint k changes the
axis of a joint j before it by ``s_j x s_k``, the twist by ``r_k``, the field by ``g x s_k``, and the rate of axis j by
``r_a x s_b``, where a is the former and b the latter of both joints. So

* ``d W_m / d v_k = (s_j, s_k)``
* ``d W_m / d q_k = (s_j x s_k, V) + (s_j, r_k)``
* ``d W_c / d q_k = (r_a x s_b, V) + (r_j, r_k) + (s_j x s_k, g) + (s_j, g x s_k)``

with ``s_j x s_k`` only where j precedes k, and ``d W_c / d v`` is the transpose of ``d W_m / d q``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.spatial import cross, motion_cross, motion_transform, skew
from sysid_ros.core.model.robot import INERTIAL, RobotModel
from sysid_ros.core.regressors.body_columns import INERTIA_AXES
from sysid_ros.core.regressors.joint_tree import JointTree, Sweep, Workspace
from sysid_ros.core.regressors.torque import as_samples

Array = NDArray[np.float64]

_MOST_POINTS = 32
"""Points that are evaluated together: more take megabytes and no less time each."""


def _unit_inertias() -> Array:
    """Return the spatial inertias of bodies with unit parameter, (6, 60): motion, then force component, parameter."""
    result = np.zeros((INERTIAL, 6, 6))
    result[0, :3, :3] = np.eye(3)
    result[1:4, 3:, :3] = skew(np.eye(3))
    result[1:4, :3, 3:] = -skew(np.eye(3))
    for k, (a, b) in enumerate(INERTIA_AXES):
        result[4 + k, 3 + a, 3 + b] = result[4 + k, 3 + b, 3 + a] = 1.0
    return np.ascontiguousarray(result.transpose(2, 1, 0)).reshape(6, 6 * INERTIAL)


_UNIT_INERTIAS = _unit_inertias()


@dataclass(frozen=True)
class RegressorDerivatives:
    """Inertial columns of both momentum regressors and their derivatives at K points; the last axis is their joint.

    Attributes:
        momentum: ``W_m``, (K, n, p).
        force: ``W_c``, (K, n, p).
        momentum_q: ``d W_m / d q``, (K, n, p, n).
        momentum_v: ``d W_m / d v``, (K, n, p, n).
        force_q: ``d W_c / d q``, (K, n, p, n).
        force_v: ``d W_c / d v``, (K, n, p, n).
    """

    momentum: Array
    force: Array
    momentum_q: Array
    momentum_v: Array
    force_q: Array
    force_v: Array


class RegressorDifferentiator:
    """Derivatives of the inertial columns of all bodies of both momentum regressors, for few points at a time.

    The object holds buffers: use one per thread.

    Args:
        robot: The robot, or a bare Pinocchio model of joints with one degree of freedom.

    Raises:
        UnsupportedJoint: A joint is not revolute, prismatic or helical.
    """

    def __init__(self, robot: RobotModel | pin.Model):
        self._tree = JointTree.of(robot)
        self._sweep = Sweep(self._tree, Workspace())
        upto = self._tree.is_ancestor.astype(float)  # joint before or at a joint or body
        before = upto - np.eye(len(upto))
        self._orders = np.stack([before, upto])[:, None, ..., None]  # (2, 1, joint, joint, 1)
        self._moves = np.tile(upto.T, 3)[..., None]  # (body, three sets of joints, 1)
        self._both_move = (upto[:, None] * upto)[..., None]  # (joint, joint, body, 1)

    def evaluate(self, q: ArrayLike, v: ArrayLike) -> RegressorDerivatives:
        """Evaluate the regressors and their derivatives, exact up to rounding.

        Args:
            q: Positions, (K, n) [rad].
            v: Velocities, (K, n) [rad/s].

        Raises:
            InvalidSamples: A shape is wrong or an entry is not finite.
        """
        q, v = as_samples(self._tree.n, q=q, v=v)
        starts = range(0, max(len(q), 1), _MOST_POINTS)
        parts = [self._evaluate(q[k : k + _MOST_POINTS], v[k : k + _MOST_POINTS]) for k in starts]
        if len(parts) == 1:
            return parts[0]
        names = [field.name for field in fields(RegressorDerivatives)]
        return RegressorDerivatives(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def _evaluate(self, q: Array, v: Array) -> RegressorDerivatives:
        count, n, gravity = len(q), self._tree.n, self._tree.gravity
        columns = INERTIAL * n
        frames = self._sweep.frames(q)
        axes = np.ascontiguousarray(frames.axes.transpose(2, 0, 1))
        twists = self._sweep.accumulate(frames.axes, v.T, "twists").transpose(2, 0, 1)
        rates, field_rates = motion_cross(twists, axes), np.zeros_like(axes)
        field_rates[..., :3] = cross(gravity, axes[..., 3:])
        # s_j x s_k and r_a x s_b, (K, joint, joint, 6) each.
        turned, turned_rates = self._orders * motion_cross(np.stack([axes, rates])[..., None, :], axes[:, None])
        turned_rates += (turned_rates * self._orders[0]).swapaxes(1, 2)

        # Seen from each body i, (K, i, motion, 6): axes, rates and field rates of its joints, its twist, the field.
        seen = motion_transform(frames.rotation.transpose(3, 0, 2, 1), frames.origin.transpose(2, 0, 1))
        back = seen.swapaxes(-1, -2)
        of_joints = np.concatenate([axes, rates, field_rates], axis=1)[:, None] @ back
        motions = np.empty((count, n, 3 * n + 2, 6))
        np.multiply(of_joints, self._moves, out=motions[:, :, : 3 * n])
        motions[:, :, 3 * n] = (seen @ twists[..., None])[..., 0]
        motions[:, :, 3 * n + 1] = seen[..., :3] @ gravity
        # Their momenta with unit parameters, (K, i, force component, motion, parameter).
        momenta = (motions.reshape(-1, 6) @ _UNIT_INERTIAS).reshape(count, n, 3 * n + 2, 6, INERTIAL)
        momenta = np.ascontiguousarray(momenta.swapaxes(2, 3))

        def products(left: Array, right: Array) -> Array:
            """Return products (K, j, motion, i, parameter) of axes or rates with momenta."""
            result = left @ right.reshape(count, n, 6, -1)
            return np.asarray(result.reshape(count, n, n, -1, INERTIAL).transpose(0, 2, 3, 1, 4))

        of_axes = products(motions[:, :, :n], momenta)
        of_rates = products(motions[:, :, n : 2 * n], momenta[:, :, :, n : 2 * n])
        power = products(motions[:, :, n : 2 * n], momenta[:, :, :, 3 * n, None])
        # Momenta of twist and field in base axes, (K, 6, 10 i) each.
        own = (back @ momenta[:, :, :, 3 * n :].reshape(count, n, 6, -1)).reshape(count, n, 6, 2, INERTIAL)
        of_twist, of_field = own.transpose(3, 0, 2, 1, 4).reshape(2, count, 6, columns)

        def by_joint(values: Array) -> Array:
            """Return (K, j, k, i, 10) as (K, j, 10 i, k)."""
            return np.asarray(values.reshape(count, n, n, columns).swapaxes(2, 3))

        def turn(turning: Array, momenta: Array) -> Array:
            """Return products of what turns, (K, j, k, 6), for the bodies that both joints move, (K, j, k, i, 10)."""
            result = turning.reshape(count, n * n, -1) @ momenta
            return np.asarray(result.reshape(count, n, n, n, INERTIAL) * self._both_move)

        momentum_q = turn(turned, of_twist) + of_axes[:, :, n : 2 * n]
        both, of_both = np.concatenate([turned_rates, turned], axis=-1), np.concatenate([of_twist, of_field], axis=1)
        force_q = turn(both, of_both) + of_axes[:, :, 2 * n : 3 * n]
        force_q += of_rates
        return RegressorDerivatives(
            momentum=of_axes[:, :, 3 * n].reshape(count, n, columns),
            force=(power[:, :, 0] + of_axes[:, :, 3 * n + 1]).reshape(count, n, columns),
            momentum_q=by_joint(momentum_q),
            momentum_v=by_joint(of_axes[:, :, :n]),
            force_q=by_joint(force_q),
            force_v=by_joint(momentum_q).transpose(0, 3, 2, 1),
        )
