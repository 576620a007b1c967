"""Derivatives of momentum and of its rate, for given parameters: how encoder errors enter the momentum equation.

With the inertias ``I_k`` of the subtrees (body k and everything beyond it), their momenta ``h_k``, joint axes ``s_k``
and axis rates ``r_k = V_k x s_k``, the wrench ``Q_k = I_k r_k + s_k x* h_k`` gives all of them:
``dp_j/dq_k = s_j . Q_k`` if joint j precedes or is k, ``(I_j s_j) . r_k`` if k precedes j, and the Hessian of the
kinetic energy is ``d2T/dq_j dq_k = r_j . Q_k`` for j before or at k. Gravity is the same, with the uniform field in
place of the twists.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.robot import FRICTION, INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.regressors.body_columns import Columns, body_inertias, sum_subtrees
from sysid_ros.core.regressors.joint_tree import JointTree, Sweep, Workspace, chunks, cross, extend
from sysid_ros.core.regressors.torque import as_samples

Array = NDArray[np.float64]


@dataclass(frozen=True)
class MomentumTerms:
    """Momentum, its rate without torque and friction, and their derivatives.

    Attributes:
        inertia: ``H(q) + diag(I_a)``, (N, n, n) [kg m^2]; also ``dp/dv``.
        momentum: ``p``, (N, n) [Nm s].
        rate: ``c = dT/dq - g``, (N, n) [Nm].
        dp_dq: Entry [j, k] is ``dp_j / dq_k``, (N, n, n).
        dc_dq: Entry [j, k] is ``dc_j / dq_k``, (N, n, n), symmetric.
    """

    inertia: Array
    momentum: Array
    rate: Array
    dp_dq: Array
    dc_dq: Array

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            getattr(self, name).setflags(write=False)

    @property
    def dc_dv(self) -> Array:
        """Entry [j, k] is ``dc_j / dv_k``, (N, n, n); viscous friction would add ``-F_v`` on the diagonal."""
        return self.dp_dq.transpose(0, 2, 1)


class MomentumDerivatives:
    """Evaluates momentum, ``dT/dq - g`` and their derivatives for many samples.

    Args:
        robot: The robot, or a bare Pinocchio model of joints with one degree of freedom.
        meaning: What the effort signal measures, by default the robot's own setting; on the link side the armature does
            not count.

    Raises:
        UnsupportedJoint: A joint is not revolute, prismatic or helical.
    """

    def __init__(self, robot: RobotModel | pin.Model, meaning: EffortMeaning | None = None):
        self.tree = JointTree.of(robot)
        self._has_friction = Columns.select(robot, meaning, None).has_friction
        self._sweep = Sweep(self.tree, Workspace())

    def evaluate(self, theta: ArrayLike, q: ArrayLike, v: ArrayLike) -> MomentumTerms:
        """Evaluates everything at ``theta``.

        Args:
            theta: Parameters, (14 n,): add a payload to the last body's ten.
            q: Positions, (N, n) [rad].
            v: Velocities, (N, n) [rad/s].

        Returns:
            The terms of all samples.

        Raises:
            ParameterOutOfRange: ``theta`` has another length or is not finite.
            InvalidSamples: A shape is wrong or an entry is not finite.
        """
        n = self.tree.n
        parameters = self._checked(theta)
        q, v = as_samples(n, q=q, v=v)
        shapes = ((n, n), (n,), (n,), (n, n), (n, n))
        results = [np.empty((len(q), *shape)) for shape in shapes]
        for part in chunks(len(q)):
            for result, values in zip(results, self._evaluate_chunk(parameters, q[part], v[part]), strict=True):
                result[part] = values
        if self._has_friction:
            armature = parameters[INERTIAL * n :].reshape(n, FRICTION)[:, 2]
            results[0] += np.diag(armature)
            results[1] += armature * v
        return MomentumTerms(*results)

    def _checked(self, theta: ArrayLike) -> Array:
        parameters = np.asarray(theta, dtype=float)
        count = (INERTIAL + FRICTION) * self.tree.n
        if parameters.shape != (count,):
            raise ParameterOutOfRange("shape of theta", parameters.shape, f"({count},)")
        for index in np.flatnonzero(~np.isfinite(parameters)):
            raise ParameterOutOfRange(f"theta[{index}]", parameters[index].item(), "finite numbers")
        return parameters

    def _evaluate_chunk(self, theta: Array, q: Array, v: Array) -> tuple[Array, ...]:
        """Inertia, momentum, rate, dp_dq and dc_dq of the bodies alone."""
        frames = self._sweep.frames(q)
        axes = frames.axes
        twists = self._sweep.accumulate(axes, v.T, "twists")
        rates = self._sweep.axis_rates(twists, axes, "axis rates")
        field = np.zeros_like(twists)
        field[:, 1] = np.append(self.tree.gravity, self.tree.gravity[:2])[:, None]
        field_rates = self._sweep.axis_rates(field, axes, "field rates")

        bodies = body_inertias(theta, frames)
        subtrees = bodies.of_subtrees(self.tree.parents)
        momenta = sum_subtrees(bodies.apply(twists), self.tree.parents)
        weights = subtrees.apply(field)
        axis_momenta = subtrees.apply(axes)
        kinetic = subtrees.apply(rates) + _force_cross(axes, momenta)
        potential = subtrees.apply(field_rates) + _force_cross(axes, weights)

        before = self.tree.is_ancestor  # row before or at column
        after = before.T & ~np.eye(self.tree.n, dtype=bool)
        return (
            _mirrored(_dots(axes, axis_momenta) * before),
            _paired(axes, momenta),
            _paired(rates, momenta) + _paired(axes, weights),
            _dots(axes, kinetic) * before + _dots(axis_momenta, rates) * after,
            _mirrored((_dots(rates, kinetic) + _dots(axes, potential)) * before),
        )


def _force_cross(motions: Array, wrenches: Array) -> Array:
    """The wrenches ``s x* f`` (n, 2, 5, N), how a constant wrench changes when carried along a motion."""
    result, scratch = np.empty_like(wrenches), np.empty_like(wrenches[:, :, :3])
    cross(motions[:, :1], wrenches, result[:, :, :3], scratch)
    result[:, 0, :3] += cross(motions[:, 1], wrenches[:, 1], np.empty_like(scratch[:, 0]), scratch[:, 0])
    return extend(result)


def _dots(left: Array, right: Array) -> Array:
    """Products of every left with every right vector, (N, n, n)."""
    return _by_sample(left) @ _by_sample(right).transpose(0, 2, 1)


def _paired(left: Array, right: Array) -> Array:
    """Products of the vectors of equal index, (N, n)."""
    return np.einsum("jpat,jpat->tj", left[:, :, :3], right[:, :, :3])


def _by_sample(vectors: Array) -> Array:
    """Vectors (n, 2, 5, N) as (N, n, 6)."""
    n, samples = len(vectors), vectors.shape[-1]
    return np.ascontiguousarray(vectors[:, :, :3].transpose(3, 0, 1, 2)).reshape(samples, n, 6)


def _mirrored(upper: Array) -> Array:
    """The symmetric matrices (N, n, n) with these upper triangles."""
    result = upper + upper.transpose(0, 2, 1)
    joints = np.arange(upper.shape[1])
    result[:, joints, joints] = upper[:, joints, joints]
    return result
