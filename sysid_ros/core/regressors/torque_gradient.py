"""Torque regressor of many samples and its reverse derivative, for the optimisation of motions.

The wrench regressor of a body in its own frame is linear in twelve numbers z: the acceleration d of the body's origin
with gravity taken off, the angular acceleration and the six products of the angular velocity. With the joint axes X
seen from the body, a block of the regressor is ``X R(z)``, so both directions are products of small matrices. What the
twists and axes owe to a joint is (``V``, ``A`` twist and acceleration of the body, ``p`` the body before, ``S_k`` the
axis, ``r_k = V_k x S_k``), for every body beyond joint k and seen from it:

* by ``q_k``: twist ``r_k``, acceleration ``A_p x S_k - r_k x V_p + r_k x V``, axes before k ``S_j x S_k``;
* by ``v_k``: twist ``S_k``, acceleration ``2 r_k + S_k x V``;
* by ``a_k``: acceleration ``S_k``.
"""

from __future__ import annotations

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ModelError
from sysid_ros.core.common.spatial import cross, force_cross, motion_cross
from sysid_ros.core.model.robot import FRICTION, INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.regressors.body_columns import INERTIA_AXES, Columns
from sysid_ros.core.regressors.joint_tree import JointTree, Sweep, Workspace
from sysid_ros.core.regressors.torque import as_samples

Array = NDArray[np.float64]

_SIGN_WIDTH = 0.02
"""``sign(v)`` is replaced by ``tanh(v / width)``, which has a derivative [rad/s]."""


class DifferentiableTorqueRegressor:
    """The regressor of :class:`TorqueRegressor` with a smooth sign of the velocity, and its reverse derivative.

    Args:
        robot: A serial arm, or a bare Pinocchio model of one.
        meaning: What the effort signal measures, by default the robot's own setting; on the link side the friction
            columns are zero.

    Raises:
        UnsupportedJoint: A joint is not revolute, prismatic or helical.
        ModelError: The arm branches.
    """

    def __init__(self, robot: RobotModel | pin.Model, meaning: EffortMeaning | None = None):
        self._tree = JointTree.of(robot)
        self.n = self._tree.n
        if self._tree.parents != tuple(range(-1, self.n - 1)):
            raise ModelError("the derivative of the torque regressor needs an arm without branches")
        self._has_friction = Columns.select(robot, meaning, None).has_friction
        self._sweep = Sweep(self._tree, Workspace())
        self._tensor = _wrench_tensor()

    def evaluate(self, q: ArrayLike, v: ArrayLike, a: ArrayLike) -> Array:
        """Evaluate the regressor ``W`` (N, n, 14 n) at states (N, n), which :meth:`pull_back` refers to."""
        q, v, a = as_samples(self.n, q=q, v=v, a=a)
        self._place(q, v, a)
        n, samples = self.n, len(q)
        self._wrenches = (self._z @ self._tensor).reshape(samples, n, 6, INERTIAL)
        blocks = self._local_axes @ self._wrenches  # (N, body, joint, 10)
        result = np.zeros((samples, n, (INERTIAL + FRICTION) * n))
        result[:, :, : INERTIAL * n] = blocks.swapaxes(1, 2).reshape(samples, n, -1)
        self._slide = np.tanh(v / _SIGN_WIDTH)
        if self._has_friction:
            joints = np.arange(n)
            for k, column in enumerate((self._slide, v, a, np.ones_like(v))):
                result[:, joints, INERTIAL * n + FRICTION * joints + k] = column
        return result

    def pull_back(self, weight: Array) -> tuple[Array, Array, Array]:
        """Differentiate ``sum(weight * W)`` of the last evaluation by q, v and a, each (N, n).

        Args:
            weight: (N, n, 14 n).
        """
        n, samples = self.n, len(weight)
        blocks = weight[:, :, : INERTIAL * n].reshape(samples, n, n, INERTIAL).swapaxes(1, 2)
        by_axes = _to_base_forces(blocks @ self._wrenches.swapaxes(2, 3), self._rotation, self._origin)
        by_wrench = self._local_axes.swapaxes(2, 3) @ blocks
        by_z = by_wrench.reshape(samples, n, -1) @ self._tensor.T
        by_twist, by_acceleration = self._pull_back_z(by_z)
        axes, rates, twists = self._axes, self._rates, self._twists
        # Sums over the bodies beyond each joint.
        twist = _sum_beyond(by_twist + force_cross(twists, by_acceleration))
        acceleration = _sum_beyond(by_acceleration)
        turned = np.tril(np.ones((n, n)), -1)[..., None] * _sum_beyond(by_axes)  # (N, joint k, joint j before it, 6)
        torsion = force_cross(axes[:, None], turned).sum(axis=2)
        dq = (rates * twist + self._bias * acceleration - axes * torsion).sum(axis=-1)
        dv = (axes * twist + 2.0 * rates * acceleration).sum(axis=-1)
        da = (axes * acceleration).sum(axis=-1)
        if self._has_friction:
            friction = weight[:, :, INERTIAL * n :].reshape(samples, n, n, FRICTION)
            own = friction[:, np.arange(n), np.arange(n)]
            dv += own[..., 0] * (1.0 - self._slide**2) / _SIGN_WIDTH + own[..., 1]
            da += own[..., 2]
        return dq, dv, da

    def _place(self, q: Array, v: Array, a: Array) -> None:
        frames = self._sweep.frames(q)
        self._rotation = np.ascontiguousarray(frames.rotation.transpose(3, 0, 2, 1))
        self._origin = np.ascontiguousarray(frames.origin.transpose(2, 0, 1))
        self._axes = axes = np.ascontiguousarray(frames.axes.transpose(2, 0, 1))
        self._twists = twists = np.cumsum(axes * v[..., None], axis=1)
        self._rates = rates = motion_cross(twists, axes)
        base = np.concatenate([-self._tree.gravity, np.zeros(3)])
        accelerations = np.cumsum(axes * a[..., None] + rates * v[..., None], axis=1) + base
        before = np.concatenate([np.broadcast_to(base, (len(q), 1, 6)), accelerations[:, :-1]], axis=1)
        twist_before = np.concatenate([np.zeros((len(q), 1, 6)), twists[:, :-1]], axis=1)
        self._bias = motion_cross(before, axes) - motion_cross(rates, twist_before)
        joints = np.arange(self.n)
        is_moved = (joints <= joints[:, None])[..., None]  # body, joint
        motions = np.broadcast_to(axes[:, None], (len(q), self.n, self.n, 6)) * is_moved
        motions = np.concatenate([motions, twists[:, :, None], accelerations[:, :, None]], axis=2)
        local = _to_bodies(motions, self._rotation, self._origin)
        self._local_axes, self._twist = local[:, :, : self.n], local[:, :, self.n]
        linear, angular, rate = self._twist[..., :3], self._twist[..., 3:], local[:, :, self.n + 1]
        products = np.stack([angular[..., i] * angular[..., k] for i, k in INERTIA_AXES], axis=-1)
        self._z = np.concatenate([rate[..., :3] + cross(angular, linear), rate[..., 3:], products], axis=-1)

    def _pull_back_z(self, by_z: Array) -> tuple[Array, Array]:
        """Pull gradients by z (N, n, 12) back to twists and accelerations in base axes, (N, n, 6) each, as forces."""
        linear, angular = self._twist[..., :3], self._twist[..., 3:]
        by_linear, products = by_z[..., :3], by_z[..., 6:]
        by_angular = cross(linear, by_linear)
        for k, (i, j) in enumerate(INERTIA_AXES):
            by_angular[..., i] += products[..., k] * angular[..., j]
            by_angular[..., j] += products[..., k] * angular[..., i]
        by_twist = np.concatenate([cross(by_linear, angular), by_angular], axis=-1)
        both = np.stack([by_twist, by_z[..., :6]], axis=2)
        forces = _to_base_forces(both, self._rotation, self._origin)
        return forces[:, :, 0], forces[:, :, 1]


def _wrench_tensor() -> Array:
    """Build the tensor (12, 60) that makes the wrench regressor (6, 10) of a body from its z (12,)."""
    tensor = np.zeros((12, 6, INERTIAL))
    basis = np.eye(3)
    units = np.zeros((6, 3, 3))  # symmetric matrices of the six moments of inertia
    for k, (i, j) in enumerate(INERTIA_AXES):
        units[k, i, j] = units[k, j, i] = 1.0
    for i in range(3):
        tensor[i, :3, 0] = basis[i]
        spin = cross(basis[i], basis).T  # matrix of the cross product with the axis
        tensor[i, 3:, 1:4] = -spin
        tensor[3 + i, :3, 1:4] = spin
        tensor[3 + i, 3:, 4:] = (units @ basis[i]).T
    for k, (i, j) in enumerate(INERTIA_AXES):
        spins = [cross(basis[axis], basis).T for axis in (i, j)]
        pairs = ((0, 1), (1, 0)) if i != j else ((0, 0),)
        for first, second in pairs:
            axes = (i, j)
            tensor[6 + k, :3, 1:4] += spins[first] @ spins[second]
            tensor[6 + k, 3:, 4:] += spins[first] @ (units @ basis[axes[second]]).T
    return tensor.reshape(12, -1)


def _to_bodies(motions: Array, rotation: Array, origin: Array) -> Array:
    """Express motions (N, n, k, 6) about the base origin in the frame of their body."""
    result = np.empty_like(motions)
    result[..., :3] = (motions[..., :3] + cross(motions[..., 3:], origin[:, :, None])) @ rotation
    result[..., 3:] = motions[..., 3:] @ rotation
    return result


def _to_base_forces(forces: Array, rotation: Array, origin: Array) -> Array:
    """Express forces (N, n, k, 6) in the frame of their body about the base origin."""
    result = np.empty_like(forces)
    turn = rotation.swapaxes(2, 3)
    result[..., :3] = forces[..., :3] @ turn
    result[..., 3:] = forces[..., 3:] @ turn + cross(origin[:, :, None], result[..., :3])
    return result


def _sum_beyond(values: Array) -> Array:
    """Sum values (N, n, ...) over each body and those beyond it."""
    return np.cumsum(values[:, ::-1], axis=1)[:, ::-1]
