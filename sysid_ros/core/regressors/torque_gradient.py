"""Torque regressor of many samples and its reverse derivative, for the optimisation of motions."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.model.robot import FRICTION, INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.regressors.body_columns import Columns
from sysid_ros.core.regressors.body_frames import BodyFrameSweep
from sysid_ros.core.regressors.joint_tree import JointTree, chunks
from sysid_ros.core.regressors.torque import as_samples

Array = NDArray[np.float64]

_SIGN_WIDTH = 0.02
"""``sign(v)`` is replaced by ``tanh(v / width)``, which has a derivative [rad/s]."""


class DifferentiableTorqueRegressor:
    """The regressor of :class:`TorqueRegressor` with a smooth sign of the velocity, and its reverse derivative.

    Args:
        robot: The robot, or a bare Pinocchio model of joints with one degree of freedom.
        meaning: What the effort signal measures, by default the robot's own setting; on the link side the friction
            columns are zero.

    Raises:
        UnsupportedJoint: A joint is not revolute, prismatic or helical.
    """

    def __init__(self, robot: RobotModel | pin.Model, meaning: EffortMeaning | None = None):
        self._tree = JointTree.of(robot)
        self.n = self._tree.n
        self._columns = Columns.select(robot, meaning, None)
        self._sweeps: list[BodyFrameSweep] = []

    def evaluate(self, q: ArrayLike, v: ArrayLike, a: ArrayLike) -> Array:
        """Evaluate the regressor ``W`` (N, n, 14 n) at states (N, n), which :meth:`pull_back` refers to."""
        q, v, a = as_samples(self.n, q=q, v=v, a=a)
        result = np.zeros((len(q), self.n, self._columns.count))
        self._slide = np.tanh(v / _SIGN_WIDTH)
        for k, part in enumerate(chunks(len(q))):
            if k == len(self._sweeps):
                self._sweeps.append(BodyFrameSweep(self._tree))
            self._sweeps[k].evaluate(q[part], v[part], a[part])
            self._sweeps[k].write(result[part], slice(0, part.stop - part.start))
        self._columns.fill_friction(result, self._slide, v, a, 1.0)
        return result

    def pull_back(self, weight: Array) -> tuple[Array, Array, Array]:
        """Differentiate ``sum(weight * W)`` of the last evaluation by q, v and a, each (N, n).

        Args:
            weight: (N, n, 14 n).
        """
        slopes = np.empty((3, len(weight), self.n))
        for sweep, part in zip(self._sweeps, chunks(len(weight)), strict=False):
            slopes[:, part] = sweep.pull_back(weight[part])
        dq, dv, da = slopes
        if self._columns.has_friction:
            joints = np.arange(self.n)
            friction = weight[:, :, INERTIAL * self.n :].reshape(len(weight), self.n, self.n, FRICTION)
            own = friction[:, joints, joints]
            dv += own[..., 0] * (1.0 - self._slide**2) / _SIGN_WIDTH + own[..., 1]
            da += own[..., 2]
        return dq, dv, da
