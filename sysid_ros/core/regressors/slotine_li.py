"""Slotine-Li regressor: the model torque of a passivity-based controller, linear in the parameters.

``Y theta = H(q) a_a + C(q, v) v_a + g(q) + F_c sign(v_a) + F_v v_a + I_a a_a + beta`` with the Christoffel ``C``, for
which ``dH/dt - 2 C`` is skew. Friction is taken at the reference velocity ``v_a``: it grows with velocity, so with
``r = v_a - v`` the mismatch ``r . (friction(v) - friction(v_a)) <= 0`` only dissipates, and noise in ``v`` causes no
chatter. Where another velocity is wanted, the friction columns are the last ``4 n``.

Source: design section 7. ``c(q, v) = C(q, v) v`` is quadratic in the velocity, so by polarisation
``C(q, v) v_a = c(q, (v + v_a)/2) - c(q, (v - v_a)/2)``. The difference of two torque regressors of Pinocchio is all of
it if the halves of acceleration and gravity enter with opposite signs too.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.model.robot import FRICTION, EffortMeaning, RobotModel
from sysid_ros.core.regressors.body_columns import Columns
from sysid_ros.core.regressors.joint_tree import JointTree, scale_gravity
from sysid_ros.core.regressors.torque import InvalidSamples, as_samples

Array = NDArray[np.float64]

# (v + v_a)/2, (v - v_a)/2, a_a/2 and -a_a/2 from (q, v, v_a, a_a)
_HALVES = 0.5 * np.array([[0, 1, 1, 0], [0, 1, -1, 0], [0, 0, 0, 1], [0, 0, 0, -1]])
_NAMES = ("q", "v", "v_a", "a_a")


class SlotineLiRegressor:
    """Evaluates the Slotine-Li regressor of one sample (for a control loop) or of many.

    The columns are those of ``theta``, ``[10 per body | F_c, F_v, I_a, beta per joint]``. The object holds buffers: use
    one per thread.

    Args:
        robot: The robot, or a bare Pinocchio model of joints with one degree of freedom.
        meaning: What side the torque acts on, by default the robot's own setting; on the link side the friction columns
            are zero.

    Attributes:
        columns: The columns.

    Raises:
        UnsupportedJoint: A joint is not revolute, prismatic or helical.
    """

    def __init__(self, robot: RobotModel | pin.Model, meaning: EffortMeaning | None = None):
        self.columns = Columns.select(robot, meaning, None)
        n = self._n = JointTree.of(robot).n
        self._plus, self._minus = (scale_gravity(robot, factor) for factor in (0.5, -0.5))
        self._data = self._plus.createData()
        self._inputs, self._halves = np.zeros((4, n)), np.zeros((4, n))
        self._flat, self._rows, self._half_rows = self._inputs.reshape(-1), tuple(self._inputs), tuple(self._halves)
        self._regressor = np.zeros((n, self.columns.count))
        self._inertial = self._regressor[:, : self.columns.inertial]
        friction = self._regressor[:, self.columns.inertial :].reshape(n, n, FRICTION)
        self._friction = tuple(np.einsum("jjk->kj", friction))  # writable views, (n,) each
        if self.columns.has_friction:
            self._friction[3][:] = 1.0

    def evaluate_one(
        self, q: ArrayLike, v: ArrayLike, v_a: ArrayLike, a_a: ArrayLike, direction: ArrayLike | None = None
    ) -> Array:
        """Evaluate the regressor of one sample.

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
        """
        shape = (self._n,)
        for row, vector in zip(self._rows, (q, v, v_a, a_a), strict=True):
            if np.shape(vector) != shape:
                self._refuse((q, v, v_a, a_a))
            row[:] = vector
        if not isfinite(np.dot(self._flat, self._flat)):  # several times faster than looking at every entry
            self._refuse(self._inputs)
        _HALVES.dot(self._inputs, out=self._halves)
        self._write_inertial(self._rows[0], self._half_rows, self._inertial)
        if self.columns.has_friction:
            coulomb, viscous, armature, _ = self._friction
            viscous[:], armature[:] = self._rows[2:]
            if direction is None:
                np.sign(viscous, out=coulomb)
            else:
                coulomb[:] = as_samples(self._n, direction=np.asarray(direction, dtype=float)[None])[0][0]
        return self._regressor

    def evaluate(
        self, q: ArrayLike, v: ArrayLike, v_a: ArrayLike, a_a: ArrayLike, direction: ArrayLike | None = None
    ) -> Array:
        """Evaluate the regressor of many samples.

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
        q, v, v_a, a_a = as_samples(self._n, q=q, v=v, v_a=v_a, a_a=a_a)
        signs = np.sign(v_a) if direction is None else as_samples(self._n, q=q, direction=direction)[1]
        regressor = np.empty((len(q), self._n, self.columns.count))
        halves = _HALVES @ np.stack([q, v, v_a, a_a], axis=1)
        for position, rows, out in zip(q, halves, regressor[:, :, : self.columns.inertial], strict=True):
            self._write_inertial(position, rows, out)
        self.columns.write_friction(regressor, signs, v_a, a_a, 1.0)
        return regressor

    def _write_inertial(self, q: Array, halves: Iterable[Array], out: Array) -> None:
        """Write the inertial columns into ``out`` (n, 10 n), from the vectors ``_HALVES`` makes."""
        velocity, other, acceleration, opposite = halves
        first = pin.computeJointTorqueRegressor(self._plus, self._data, q, velocity, acceleration)
        second = pin.computeJointTorqueRegressor(self._minus, self._data, q, other, opposite)
        np.subtract(first, second, out=out)

    def _refuse(self, vectors: tuple[ArrayLike, ...] | Array) -> None:
        """Raise the error for the vector at fault, if there is one."""
        for name, vector in zip(_NAMES, vectors, strict=True):
            if np.shape(vector) != (self._n,):
                raise InvalidSamples(name, f"shape {np.shape(vector)}, expected ({self._n},)")
            as_samples(self._n, **{name: [vector]})
