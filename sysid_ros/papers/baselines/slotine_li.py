"""Slotine-Li regressor: the model torque of a passivity-based controller, linear in the parameters.

``Y theta = H(q) a_a + C(q, v) v_a + g(q) + F_c sign(v_a) + F_v v_a + I_a a_a + beta`` with the Christoffel ``C``, for
which ``dH/dt - 2 C`` is skew. Friction is taken at the reference velocity ``v_a``: it grows with velocity, so with
``r = v_a - v`` the mismatch ``r . (friction(v) - friction(v_a)) <= 0`` only dissipates, and noise in ``v`` causes no
chatter. Where another velocity is wanted, the friction columns are the last ``4 n``.

Source: design section 7. ``c(q, v) = C(q, v) v`` is quadratic in the velocity, so by polarisation
``C(q, v) v_a = c(q, (v + v_a)/2) - c(q, (v - v_a)/2)``.
"""

from __future__ import annotations

from math import isfinite

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.model.joint_tree import JointTree
from sysid_ros.core.model.robot import EffortMeaning, RobotModel
from sysid_ros.core.regressors.columns import Columns, as_samples

Array = NDArray[np.float64]


class SlotineLiRegressor:
    """Evaluates the Slotine-Li regressor of one sample (for a control loop) or of many.

    The columns are those of ``theta``, ``[10 per body | F_c, F_v, I_a, beta per joint]``.

    Args:
        robot: The robot, or a bare Pinocchio model of joints with one degree of freedom.
        meaning: What side the torque acts on, by default the robot's own setting; on the link side the friction columns
            are zero.

    Attributes:
        columns: The columns.

    Raises:
        ModelError: A joint is not revolute, prismatic or helical.
    """

    def __init__(self, robot: RobotModel | pin.Model, meaning: EffortMeaning | None = None):
        self.columns = Columns.select(robot, meaning, None)
        self._tree = JointTree.of(robot)

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
            ``Y``, (n, 14 n).

        Raises:
            SysidError: A shape is wrong or an entry is not finite.
        """
        n = self.columns.n
        try:
            rows = np.array((q, v, v_a, a_a), dtype=float)
            flat = rows.reshape(-1)  # one product is several times faster than looking at every entry
            is_sound = rows.shape == (4, n) and isfinite(np.dot(flat, flat))
        except ValueError:
            is_sound = False
        if not is_sound or direction is not None:
            q, v, v_a, a_a = (np.asarray(values, dtype=float)[None] for values in (q, v, v_a, a_a))
            signs = None if direction is None else np.asarray(direction, dtype=float)[None]
            return np.asarray(self.evaluate(q, v, v_a, a_a, signs)[0])
        result = np.empty((1, n, self.columns.count))
        samples = rows[:, None]
        self._tree.compiled.slotine_li(self.columns.compiled, *samples, np.sign(samples[2]), result)
        return np.asarray(result[0])

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
            SysidError: A shape is wrong or an entry is not finite.
        """
        n = self.columns.n
        q, v, v_a, a_a = as_samples(n, q=q, v=v, v_a=v_a, a_a=a_a)
        signs = np.sign(v_a) if direction is None else as_samples(n, q=q, direction=direction)[1]
        regressor = np.empty((len(q), n, self.columns.count))
        self._tree.compiled.slotine_li(self.columns.compiled, q, v, v_a, a_a, signs, regressor)
        return regressor
