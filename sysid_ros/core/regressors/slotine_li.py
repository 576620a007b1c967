"""Slotine-Li regressor: the model torque of a passivity-based controller, linear in the parameters.

``Y theta = H(q) a_a + C(q, v) v_a + g(q) + F_c sign(v_a) + F_v v_a + I_a a_a + beta`` with the Christoffel ``C``, for which
``dH/dt - 2 C`` is skew. Friction is taken at the reference velocity ``v_a``: friction grows with velocity, so with
``r = v_a - v`` the mismatch ``r . (friction(v) - friction(v_a)) <= 0`` only dissipates, and noise in ``v`` does not chatter.
Where another velocity is wanted the friction columns are the last ``4 n``.
"""

from __future__ import annotations

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.model.robot import EffortMeaning, RobotModel
from sysid_ros.core.regressors.columns import Columns
from sysid_ros.core.regressors.passive import PassiveProducts
from sysid_ros.core.regressors.samples import InvalidSamples, as_samples
from sysid_ros.core.regressors.tree import JointTree
from sysid_ros.core.regressors.workspace import chunks

Array = NDArray[np.float64]


class SlotineLiRegressor:
    """Evaluates the Slotine-Li regressor of one sample (fast, for a control loop) or of many.

    The columns are those of ``theta``, ``[10 per body | F_c, F_v, I_a, beta per joint]``. The object holds buffers: use one
    per thread.

    Args:
        robot: The robot, or a bare Pinocchio model of joints with one degree of freedom.
        meaning: What side the torque acts on, by default the robot's own setting; on the link side the friction columns
            are zero.

    Attributes:
        tree: The kinematic tree.
        columns: The columns.

    Raises:
        UnsupportedJoint: A joint is not revolute, prismatic or helical.
    """

    def __init__(self, robot: RobotModel | pin.Model, meaning: EffortMeaning | None = None):
        self.tree = JointTree.of(robot)
        self.columns = Columns.select(robot, meaning, None)
        self._products = PassiveProducts(self.tree, self.columns)
        model = robot.pin_model if isinstance(robot, RobotModel) else robot
        self._models = [_with_gravity(model, 0.5), _with_gravity(model, -0.5)]
        self._data = self._models[0].createData()
        self._inputs = np.zeros((4, self.tree.n))
        self._regressor = np.zeros((self.tree.n, self.columns.count))
        friction = self._regressor[:, self.columns.inertial :].reshape(self.tree.n, self.tree.n, 4)
        self._friction = np.einsum("jjk->jk", friction)  # a writable view of the diagonal, (n, 4)

    def evaluate_one(
        self, q: ArrayLike, v: ArrayLike, v_a: ArrayLike, a_a: ArrayLike, direction: ArrayLike | None = None
    ) -> Array:
        """Evaluates the regressor of one sample.

        Args:
            q: Positions, (n,) [rad].
            v: Velocities, (n,) [rad/s].
            v_a: Reference velocities, (n,) [rad/s].
            a_a: Reference accelerations, (n,) [rad/s^2].
            direction: What to use for ``sign(v_a)`` in the Coulomb columns, (n,) in [-1, 1].

        Returns:
            ``Y``, (n, 14 n); the same array every time, overwritten by the next call.

        Raises:
            InvalidSamples: A shape is wrong or an entry is not finite.

        Source: with ``c`` quadratic in the velocity, ``C(q, v) v_a = c(q, (v + v_a)/2) - c(q, (v - v_a)/2)``; halves of
        opposite sign of acceleration and gravity make two ordinary torque regressors of Pinocchio enough.
        """
        values = self._inputs
        for k, (name, value) in enumerate((("q", q), ("v", v), ("v_a", v_a), ("a_a", a_a))):
            if np.shape(value) != (self.tree.n,):
                raise InvalidSamples(name, f"shape {np.shape(value)}, expected ({self.tree.n},)")
            values[k] = value
        if not np.isfinite(values).all():
            row, joint = np.argwhere(~np.isfinite(values))[0]
            name = ("q", "v", "v_a", "a_a")[row]
            raise InvalidSamples(name, f"entry {values[row, joint]} of joint {joint} is not finite")
        q, v, v_a, a_a = values
        half = 0.5 * a_a
        plus, minus = self._models
        first = pin.computeJointTorqueRegressor(plus, self._data, q, 0.5 * (v + v_a), half)
        second = pin.computeJointTorqueRegressor(minus, self._data, q, 0.5 * (v - v_a), -half)
        np.subtract(first, second, out=self._regressor[:, : self.columns.inertial])
        if self.columns.has_friction:
            self._friction[:, 0] = np.sign(v_a) if direction is None else direction
            self._friction[:, 1] = v_a
            self._friction[:, 2] = a_a
            self._friction[:, 3] = 1.0
        return self._regressor

    def evaluate(
        self, q: ArrayLike, v: ArrayLike, v_a: ArrayLike, a_a: ArrayLike, direction: ArrayLike | None = None
    ) -> Array:
        """Evaluates the regressor of many samples.

        Args:
            q: Positions, (N, n) [rad].
            v: Velocities, (N, n) [rad/s].
            v_a: Reference velocities, (N, n) [rad/s].
            a_a: Reference accelerations, (N, n) [rad/s^2].
            direction: What to use for ``sign(v_a)`` in the Coulomb columns, (N, n) in [-1, 1].

        Returns:
            ``Y``, (N, n, 14 n).

        Raises:
            InvalidSamples: A shape is wrong or an entry is not finite.
        """
        q, v, v_a, a_a = as_samples(self.tree.n, q=q, v=v, v_a=v_a, a_a=a_a)
        sign = np.sign(v_a) if direction is None else as_samples(self.tree.n, q=q, direction=direction)[1]
        regressor = np.empty((len(q), self.tree.n, self.columns.count))
        for part in chunks(len(q)):
            self._products.write(regressor[part], q[part], v[part], v_a[part], a_a[part])
            self.columns.write_friction(regressor[part], sign[part], v_a[part], a_a[part], 1.0)
        return regressor


def _with_gravity(model: pin.Model, factor: float) -> pin.Model:
    """A copy of the model in scaled gravity."""
    copy = model.copy()
    copy.gravity.linear = factor * np.array(model.gravity.linear)
    return copy
