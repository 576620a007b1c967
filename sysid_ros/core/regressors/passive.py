"""Inertial columns of ``H(q) a_a + C(q, v) v_a + g(q)`` with the Christoffel ``C``.

``C`` follows from the quadratic ``c(q, v) = C(q, v) v`` by polarisation, that is by making it bilinear and symmetric. Body
by body: with the twists ``V`` and ``V_a`` that the velocities ``v`` and ``v_a`` cause, half the sum of both orders of
``V x* (I V_a)`` and of both orders of the velocity-dependent acceleration ``V x s v_a``. For ``v_a = v`` and ``a_a = a`` it
is the torque regressor.

Source: SAFE-ID (10); Slotine and Li's regressor of design section 7.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.model.robot import INERTIAL
from sysid_ros.core.regressors.columns import Columns
from sysid_ros.core.regressors.sweep import Frames, Sweep
from sysid_ros.core.regressors.tree import JointTree
from sysid_ros.core.regressors.vectors import cross, extend
from sysid_ros.core.regressors.workspace import Workspace
from sysid_ros.core.regressors.wrenches import BodyWrenches, WrenchColumns, write_columns, write_rows

Array = NDArray[np.float64]


class PassiveProducts:
    """Evaluates the inertial columns for one chunk of samples at a time.

    Args:
        tree: The kinematic tree.
        columns: The columns wanted.
    """

    def __init__(self, tree: JointTree, columns: Columns):
        self.tree = tree
        self.columns = columns
        self._workspace = Workspace()
        self._sweep = Sweep(tree, self._workspace)
        self._wrenches = BodyWrenches(columns.body_index, self._workspace)

    def write(self, regressor: Array, q: Array, v: Array, v_a: Array, a_a: Array) -> None:
        """Writes the inertial columns.

        Args:
            regressor: Written in place, (N, n, k).
            q: Positions, (N, n) [rad].
            v: Velocities, (N, n) [rad/s].
            v_a: Reference velocities ``C(q, v)`` multiplies, (N, n) [rad/s]; the same object as ``v`` saves time.
            a_a: Reference accelerations, (N, n) [rad/s^2].
        """
        samples, m = len(q), len(self.columns.bodies)
        frames = self._sweep.frames(q)
        columns = self._force_columns(frames, v, v_a, a_a)
        rows = self._workspace.array("rows", samples, self.tree.n, 6)
        write_rows(frames.axes, rows)
        by_sample = self._workspace.zeroed("columns", samples, 6, m, INERTIAL)
        write_columns(columns, by_sample)
        np.matmul(rows, by_sample.reshape(samples, 6, -1), out=regressor[:, :, : self.columns.inertial])
        self.columns.clear_unrelated(regressor, self.tree)

    def _force_columns(self, frames: Frames, v: Array, v_a: Array, a_a: Array) -> WrenchColumns:
        twists = self._sweep.accumulate(frames.axes, v.T, "twists")
        if v_a is v:
            total = self._wrenches.columns(frames, self._accelerations(frames, a_a, [(twists, v, 1.0)]), "force")
            self._add_gyroscopic(frames, twists, twists, 1.0, total)
            return total
        others = self._sweep.accumulate(frames.axes, v_a.T, "reference twists")
        accelerations = self._accelerations(frames, a_a, [(twists, v_a, 0.5), (others, v, 0.5)])
        total = self._wrenches.columns(frames, accelerations, "force")
        self._add_gyroscopic(frames, twists, others, 0.5, total)
        self._add_gyroscopic(frames, others, twists, 0.5, total)
        return total

    def _accelerations(self, frames: Frames, a_a: Array, terms: list[tuple[Array, Array, float]]) -> Array:
        """Accelerations (n, 2, 5, N) of the bodies, gravity included as an upward acceleration of the base.

        Args:
            frames: Poses and joint axes.
            a_a: Joint accelerations, (N, n).
            terms: Twists V (n, 2, 5, N), velocities u (N, n) and factors of the terms ``V_j x s_j u_j``.
        """
        total = self._sweep.accumulate(frames.axes, a_a.T, "accelerations")
        for twists, rates, factor in terms:
            moving = self._sweep.axis_rates(twists, frames.axes, "axis rates")
            total += self._sweep.accumulate(moving, factor * rates.T, "bias")
        total[:, 1] -= np.append(self.tree.gravity, self.tree.gravity[:2])[:, None]
        return total

    def _add_gyroscopic(
        self, frames: Frames, twists: Array, carried: Array, factor: float, total: WrenchColumns
    ) -> None:
        """Adds ``factor * V x* (I V_c)`` of twists V and carried twists V_c, both (n, 2, 5, N)."""
        momenta = self._wrenches.columns(frames, carried, "momentum")
        extend(momenta.moment)
        bodies = self._wrenches.bodies
        angular = factor * twists[bodies, 0, None]
        linear = factor * twists[bodies, 1, None]
        shape = (2, *momenta.moment.shape[:2], 3, momenta.moment.shape[-1])
        result, scratch = self._workspace.array("gyroscopic", *shape)
        total.moment[:, :, :3] += cross(angular, momenta.moment, result, scratch)
        total.moment[:, :4, :3] += cross(linear, momenta.force, result[:, :4], scratch[:, :4])
        total.force[:, :, :3] += cross(angular, momenta.force, result[:, :4], scratch[:, :4])
