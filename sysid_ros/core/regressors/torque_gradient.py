"""Torque regressor of many samples and its reverse derivative, for the optimisation of motions."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.model.robot import FRICTION, INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.regressors.body_columns import Columns
from sysid_ros.core.regressors.body_frames import LARGEST_CHUNK, BodyFrameSweep
from sysid_ros.core.regressors.joint_tree import JointTree
from sysid_ros.core.regressors.torque import as_output, as_samples

Array = NDArray[np.float64]

_SIGN_WIDTH = 0.02
"""``sign(v)`` is replaced by ``tanh(v / width)``, which has a derivative [rad/s]."""


def _chunks(samples: int) -> list[slice]:
    return [slice(first, min(first + LARGEST_CHUNK, samples)) for first in range(0, samples, LARGEST_CHUNK)]


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
        self._sweep = BodyFrameSweep(self._tree)

    def evaluate(self, q: ArrayLike, v: ArrayLike, a: ArrayLike, out: Array | None = None) -> Array:
        """Evaluate the regressor ``W`` (N, n, 14 n) at states (N, n), which :meth:`pull_back` refers to.

        Args:
            q: Positions, (N, n) [rad].
            v: Velocities, (N, n) [rad/s].
            a: Accelerations, (N, n) [rad/s^2].
            out: Array to write into.

        Raises:
            InvalidSamples: A shape is wrong or an entry is not finite.
        """
        self._states = np.array(as_samples(self.n, q=q, v=v, a=a))
        speed, acceleration = self._states[1:]
        result = as_output((len(speed), self.n, self._columns.count), out)
        self._slide = np.tanh(speed / _SIGN_WIDTH)
        for part in _chunks(len(speed)):
            self._place(part)
            result[part] = 0.0
            self._sweep.write(result[part])
            self._columns.fill_friction(result[part], self._slide[part], speed[part], acceleration[part], 1.0)
        return result

    def pull_back(self, weight: Array) -> tuple[Array, Array, Array]:
        """Differentiate ``sum(weight * W)`` of the last evaluation by q, v and a, each (N, n).

        Args:
            weight: (N, n, 14 n).
        """
        slopes = np.empty((3, len(weight), self.n))
        for part in reversed(_chunks(len(weight))):  # the last one is still placed
            if part != self._placed:
                self._place(part)
            slopes[:, part] = self._sweep.pull_back(weight[part])
            if self._columns.has_friction:  # here, while the weights are in the cache
                self._pull_back_friction(weight[part], self._slide[part], slopes[:, part])
        dq, dv, da = slopes
        return dq, dv, da

    def _pull_back_friction(self, weight: Array, slide: Array, slopes: Array) -> None:
        """Add what the friction columns contribute to the slopes, (3, N, n)."""
        friction = weight[:, :, INERTIAL * self.n :].reshape(len(weight), self.n, self.n, FRICTION)
        coulomb, viscous, armature = np.einsum("tjjk->ktj", friction)[:3]  # a view
        slopes[1] += coulomb * (1.0 - slide**2) / _SIGN_WIDTH + viscous
        slopes[2] += armature

    def _place(self, part: slice) -> None:
        self._sweep.evaluate(*self._states[:, part])
        self._placed = part
