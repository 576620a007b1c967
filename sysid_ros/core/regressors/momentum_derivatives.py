"""Derivatives of momentum and of its rate, for given parameters: the effect of encoder errors on the momentum equation.

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
from sysid_ros.core.common.spatial import force_cross
from sysid_ros.core.model.robot import FRICTION, INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.regressors.body_columns import Columns, body_inertias, sum_subtrees
from sysid_ros.core.regressors.joint_tree import JointTree, Sweep, Workspace, chunks, last
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
        result: Array = self.dp_dq.transpose(0, 2, 1)
        return result


class MomentumDerivatives:
    """Momentum, ``dT/dq - g`` and their derivatives for many samples.

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
        """Evaluate all terms at ``theta``.

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
        """Compute inertia, momentum, rate, dp_dq and dc_dq of the bodies alone."""
        frames = self._sweep.frames(q)
        axes = frames.axes
        twists = self._sweep.accumulate(axes, v.T, "twists")
        rates = self._sweep.axis_rates(twists, axes, "axis rates")
        field = np.zeros_like(twists)
        field[:, :3] = self.tree.gravity[:, None]
        field_rates = self._sweep.axis_rates(field, axes, "field rates")

        bodies = body_inertias(theta, frames)
        subtrees = bodies.of_subtrees(self.tree.parents)
        momenta = sum_subtrees(bodies.apply(twists), self.tree.parents)
        weights = subtrees.apply(field)
        axis_momenta = subtrees.apply(axes)
        kinetic = subtrees.apply(rates) + last(force_cross(last(axes), last(momenta)))
        potential = subtrees.apply(field_rates) + last(force_cross(last(axes), last(weights)))

        before = self.tree.is_ancestor  # row before or at column
        after = before.T & ~np.eye(self.tree.n, dtype=bool)
        return (
            _mirrored(_dots(axes, axis_momenta) * before),
            _paired(axes, momenta),
            _paired(rates, momenta) + _paired(axes, weights),
            _dots(axes, kinetic) * before + _dots(axis_momenta, rates) * after,
            _mirrored((_dots(rates, kinetic) + _dots(axes, potential)) * before),
        )


def _dots(left: Array, right: Array) -> Array:
    """Multiply every left with every right vector (n, 6, N), (N, n, n)."""
    result: Array = np.ascontiguousarray(left.transpose(2, 0, 1)) @ np.ascontiguousarray(right.transpose(2, 1, 0))
    return result


def _paired(left: Array, right: Array) -> Array:
    """Multiply the vectors (n, 6, N) of equal index, (N, n)."""
    products: Array = np.einsum("jat,jat->tj", left, right)
    return products


def _mirrored(upper: Array) -> Array:
    """Build the symmetric matrices (N, n, n) with these upper triangles."""
    result: Array = upper + upper.transpose(0, 2, 1)
    joints = np.arange(upper.shape[1])
    result[:, joints, joints] = upper[:, joints, joints]
    return result
