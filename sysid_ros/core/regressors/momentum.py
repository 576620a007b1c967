"""Momentum regressors: the equation of motion without accelerations.

With ``p = H(q) v + I_a v`` the motion obeys ``dp/dt = dT/dq - g(q) - F_c sign(v) - F_v v - beta + tau``. Both ``p``
and everything but ``tau`` on the right are linear in the parameters: ``p = W_m theta``, ``dp/dt = W_c theta + tau``.

Let ``h_i`` be the momentum of body i, ``s_j`` the motion of joint j and ``V_j`` the twist of the body it moves.
Then ``p_j = sum s_j . h_i`` and, since ``q_j`` changes the twist of a body beyond joint j by ``V_j x s_j`` (seen from
that body), ``dT/dq_j = sum (V_j x s_j) . h_i``, both over the bodies i that joint j moves. So one set of momentum
columns per body serves both regressors and all joints.

Source: SAFE-ID Theorems 5 and 8, (7)-(13), with the armature's share inside the momentum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.model.joint_tree import JointTree
from sysid_ros.core.model.robot import FRICTION, INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.regressors.columns import Columns, as_output, as_samples, as_weights

Array = NDArray[np.float64]


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


class MomentumRegressor:
    """Momentum regressors of many samples.

    The columns are those of ``theta``, ``[10 per body | F_c, F_v, I_a, beta per joint]``. A payload adds to the last
    body, so its columns are the last body's.

    Args:
        robot: The robot, or a bare Pinocchio model of joints with one degree of freedom.
        meaning: Meaning of the effort signal, by default the robot's. On the link side friction and armature do not act
            on the measured torque and their columns are zero.
        bodies: Bodies with inertial columns, 1..n; all by default.

    Attributes:
        columns: The columns, with their ``indices`` in ``theta``.

    Raises:
        ModelError: A joint is not revolute, prismatic or helical.
        ParameterOutOfRange: A body does not exist.
    """

    def __init__(
        self,
        robot: RobotModel | pin.Model,
        meaning: EffortMeaning | None = None,
        bodies: Sequence[int] | None = None,
    ):
        self.columns = Columns.select(robot, meaning, bodies)
        self._tree = JointTree.of(robot)

    def evaluate(
        self,
        q: ArrayLike,
        v: ArrayLike,
        direction: ArrayLike | None = None,
        out: tuple[Array, Array] | None = None,
    ) -> tuple[Array, Array]:
        """Evaluate both regressors.

        Args:
            q: Positions, (N, n) [rad].
            v: Velocities, (N, n) [rad/s].
            direction: Values in place of ``sign(v)``, (N, n) in [-1, 1]: the middle of an interval where the sign is
                not certain. The F_c column of ``W_c`` is minus this.
            out: Arrays to write ``W_m`` and ``W_c`` into.

        Returns:
            ``W_m`` with ``p = W_m theta`` [Nm s] and ``W_c`` with ``dp/dt = W_c theta + tau`` [Nm], both (N, n, k).

        Raises:
            SysidError: A shape is wrong or an entry is not finite.

        Source: SAFE-ID (11), (12).
        """
        q, v, direction = self._checked(q, v, direction)
        shape = (len(q), self.columns.n, self.columns.count)
        momentum, rate = (as_output(shape, given) for given in ((None, None) if out is None else out))
        self._tree.compiled.momentum(self.columns.compiled, q, v, direction, momentum, rate)
        return momentum, rate

    def momentum(self, q: ArrayLike, v: ArrayLike) -> Array:
        """Evaluate ``W_m`` alone, (N, n, k) [Nm s]; see :meth:`evaluate`."""
        return self.evaluate(q, v)[0]

    def integrate(self, q: ArrayLike, v: ArrayLike, weights: ArrayLike, direction: ArrayLike | None = None) -> Array:
        """Evaluate ``sum_k weights_k W_c(q_k, v_k)`` without forming the ``W_c`` of any sample.

        Args:
            q: Positions, (N, n) [rad].
            v: Velocities, (N, n) [rad/s].
            weights: Weights of the samples, (N,) [s]: those of a quadrature rule give the integral over a window.
            direction: As in :meth:`evaluate`, (N, n).

        Returns:
            The sum, (n, k) [Nm s].

        Raises:
            SysidError: A shape is wrong or an entry is not finite.

        Source: the integral in SAFE-ID (13); a sum over samples of products is a matrix product over the samples.
        """
        q, v, direction = self._checked(q, v, direction)
        weights = as_weights(weights, len(q))
        n, inertial = self.columns.n, self.columns.inertial
        result, sums = np.zeros((n, self.columns.count)), np.empty((n, inertial))
        self._tree.compiled.integrate(self.columns.compiled, q, v, weights, sums)
        result[:, :inertial] = sums
        if self.columns.has_friction:
            joints = np.arange(n)
            for k, factor in ((0, weights @ direction), (1, weights @ v), (3, weights.sum())):
                result[joints, inertial + FRICTION * joints + k] = -factor
        return result

    def differentiate(self, q: ArrayLike, v: ArrayLike) -> RegressorDerivatives:
        """Evaluate the inertial columns of all bodies and their derivatives, exact up to rounding.

        Args:
            q: Positions, (K, n) [rad].
            v: Velocities, (K, n) [rad/s].

        Raises:
            SysidError: A shape is wrong or an entry is not finite.
        """
        n = self.columns.n
        q, v = as_samples(n, q=q, v=v)
        shape = (len(q), n, INERTIAL * n)
        result = RegressorDerivatives(*(np.empty(shape + more) for more in ((), (), (n,), (n,), (n,), (n,))))
        self._tree.compiled.momentum_derivatives(q, v, *(getattr(result, name) for name in result.__dataclass_fields__))
        return result

    def _checked(self, q: ArrayLike, v: ArrayLike, direction: ArrayLike | None) -> tuple[Array, ...]:
        if direction is None:
            q, v = as_samples(self.columns.n, q=q, v=v)
            return q, v, np.sign(v)
        return as_samples(self.columns.n, q=q, v=v, direction=direction)
