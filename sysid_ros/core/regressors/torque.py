"""Torque regressor: the equation of motion with accelerations, and its reverse derivative.

Source: SAFE-ID (5), (6), (10).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.model.joint_tree import JointTree
from sysid_ros.core.model.robot import FRICTION, EffortMeaning, RobotModel
from sysid_ros.core.regressors.columns import Columns, as_output, as_samples

Array = NDArray[np.float64]


class TorqueRegressor:
    """Evaluates ``W`` with ``W theta = H a + C v + g + F_c sign(v) + F_v v + I_a a + beta = tau``.

    The columns are those of ``theta``, ``[10 per body | F_c, F_v, I_a, beta per joint]``.

    Args:
        robot: The robot, or a bare Pinocchio model of joints with one degree of freedom.
        meaning: Meaning of the effort signal, by default the robot's; on the link side the friction columns are zero.
        bodies: Bodies with inertial columns, 1..n; all by default.
        sign_width: Width of a smooth ``tanh(v / width)`` in place of ``sign(v)``, for an optimisation [rad/s].

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
        sign_width: float | None = None,
    ):
        self.columns = Columns.select(robot, meaning, bodies)
        self._tree = JointTree.of(robot)
        self._sign_width = sign_width

    def evaluate(
        self,
        q: ArrayLike,
        v: ArrayLike,
        a: ArrayLike,
        direction: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Evaluate the regressor.

        Args:
            q: Positions, (N, n) [rad].
            v: Velocities, (N, n) [rad/s].
            a: Accelerations, (N, n) [rad/s^2].
            direction: Values in place of ``sign(v)``, (N, n) in [-1, 1].
            out: Array to write into.

        Returns:
            ``W``, (N, n, k) [Nm per unit of the parameter].

        Raises:
            SysidError: A shape is wrong or an entry is not finite.

        Source: SAFE-ID (10).
        """
        if direction is None:
            q, v, a = as_samples(self.columns.n, q=q, v=v, a=a)
            direction = np.sign(v) if self._sign_width is None else np.tanh(v / self._sign_width)
        else:
            q, v, a, direction = as_samples(self.columns.n, q=q, v=v, a=a, direction=direction)
        regressor = as_output((len(q), self.columns.n, self.columns.count), out)
        self._tree.compiled.torque(self.columns.compiled, q, v, a, direction, regressor)
        return regressor

    def inertial(self, q: ArrayLike, v: ArrayLike, a: ArrayLike) -> Array:
        """Evaluate the inertial columns alone, (N, n, 10 m); see :meth:`evaluate`."""
        q, v, a = as_samples(self.columns.n, q=q, v=v, a=a)
        regressor = np.empty((len(q), self.columns.n, self.columns.inertial))
        self._tree.compiled.torque(self.columns.compiled, q, v, a, v, regressor)
        return regressor

    def pull_back(self, q: ArrayLike, v: ArrayLike, a: ArrayLike, weight: Array) -> tuple[Array, Array, Array]:
        """Differentiate ``sum(weight * W)`` by q, v and a, each (N, n).

        Coulomb friction has a derivative only where its sign is smooth.

        Args:
            q: Positions, (N, n) [rad].
            v: Velocities, (N, n) [rad/s].
            a: Accelerations, (N, n) [rad/s^2].
            weight: (N, n, k), or (N, n, 10 m) for the inertial columns alone.

        Raises:
            SysidError: A shape is wrong or an entry is not finite.
        """
        q, v, a = as_samples(self.columns.n, q=q, v=v, a=a)
        slopes = np.empty((3, *q.shape))
        self._tree.compiled.torque_pull_back(self.columns.compiled, q, v, a, weight, slopes)
        if self._sign_width is not None and self.columns.has_friction and weight.shape[2] == self.columns.count:
            friction = weight[:, :, self.columns.inertial :: FRICTION]
            slide = np.tanh(v / self._sign_width)
            slopes[1] += np.einsum("njj->nj", friction) * (1.0 - slide**2) / self._sign_width
        dq, dv, da = slopes
        return dq, dv, da
