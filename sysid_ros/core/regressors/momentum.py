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

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.model.robot import EffortMeaning, RobotModel
from sysid_ros.core.regressors.body_columns import Columns
from sysid_ros.core.regressors.joint_tree import JointTree, chunks, scale_gravity
from sysid_ros.core.regressors.momentum_frames import MomentumSweep
from sysid_ros.core.regressors.torque import TorqueRegressor, as_output, as_samples, as_weights

Array = NDArray[np.float64]


class MomentumRegressor:
    """Momentum regressors of many samples.

    The columns are those of ``theta``, ``[10 per body | F_c, F_v, I_a, beta per joint]``. A payload adds to the last
    body, so its columns are the last body's. The object holds buffers: use one per thread.

    Args:
        robot: The robot, or a bare Pinocchio model of joints with one degree of freedom.
        meaning: What the effort signal measures, by default the robot's own setting. On the link side friction and
            armature do not act on the measured torque and their columns are zero.
        bodies: Bodies whose inertial columns are wanted, 1..n, by default all.

    Attributes:
        tree: The kinematic tree.
        columns: The columns, with their ``indices`` in ``theta``.

    Raises:
        UnsupportedJoint: A joint is not revolute, prismatic or helical.
        ParameterOutOfRange: A body does not exist.
    """

    def __init__(
        self,
        robot: RobotModel | pin.Model,
        meaning: EffortMeaning | None = None,
        bodies: Sequence[int] | None = None,
    ):
        self.tree = JointTree.of(robot)
        self.columns = Columns.select(robot, meaning, bodies)
        self._sweep = MomentumSweep(self.tree, [body - 1 for body in self.columns.bodies])
        self._torque_at_rest = TorqueRegressor(scale_gravity(robot, 0.0), EffortMeaning.LINK_SIDE, bodies)

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
            direction: What to use for ``sign(v)``, (N, n) in [-1, 1]: the middle of an interval where the sign is not
                certain. The F_c column of ``W_c`` is minus this.
            out: Arrays to write ``W_m`` and ``W_c`` into.

        Returns:
            ``W_m`` with ``p = W_m theta`` [Nm s] and ``W_c`` with ``dp/dt = W_c theta + tau`` [Nm], both (N, n, k).

        Raises:
            InvalidSamples: A shape is wrong or an entry is not finite.

        Source: SAFE-ID (11), (12).
        """
        q, v, direction = self._checked(q, v, direction)
        shape = (len(q), self.tree.n, self.columns.count)
        momentum, rate = (as_output(shape, given) for given in ((None, None) if out is None else out))
        for part in chunks(len(q)):
            momentum[part], rate[part] = 0.0, 0.0
            self._sweep.write(q[part], v[part], momentum[part], rate[part])
            self.columns.fill_friction(momentum[part], 0.0, 0.0, v[part], 0.0)
            self.columns.fill_friction(rate[part], -direction[part], -v[part], 0.0, -1.0)
        return momentum, rate

    def momentum(self, q: ArrayLike, v: ArrayLike) -> Array:
        """Evaluate ``W_m`` alone, (N, n, k) [Nm s], fast for few samples too; see :meth:`evaluate`.

        Source: ``p = H(q) v`` is the torque of acceleration ``v`` at rest without gravity.
        """
        q, v = as_samples(self.tree.n, q=q, v=v)
        momentum = self._torque_at_rest.evaluate(q, np.zeros_like(q), v)
        self.columns.write_friction(momentum, 0.0, 0.0, v, 0.0)
        return momentum

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
            InvalidSamples: A shape is wrong or an entry is not finite.

        Source: the integral in SAFE-ID (13); a sum over samples of products is a matrix product over the samples.
        """
        q, v, direction = self._checked(q, v, direction)
        weights = as_weights(weights, len(q))
        result = np.zeros((self.tree.n, self.columns.count))
        for part in chunks(len(q)):
            result[:, : self.columns.inertial] += self._sweep.integrate(q[part], v[part], weights[part])
        self.columns.fill_friction(result, -(weights @ direction), -(weights @ v), 0.0, -weights.sum())
        return result

    def _checked(self, q: ArrayLike, v: ArrayLike, direction: ArrayLike | None) -> tuple[Array, ...]:
        if direction is None:
            q, v = as_samples(self.tree.n, q=q, v=v)
            return q, v, np.sign(v)
        return as_samples(self.tree.n, q=q, v=v, direction=direction)
