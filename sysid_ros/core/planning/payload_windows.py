"""Rows of the momentum windows for the payload, of many motions at once, with exact reverse derivatives.

A window's row divided by its length is the mean of the torque regressor over it (SAFE-ID (21): the momentum equation is
the integral of the torque equation), which a Gauss rule with two nodes gives to about 1e-5. Everything is computed in
the frame of the last body, where the inertias of unit parameters ``K_p`` are constant:
``F_p = K_p A + V x* K_p V`` and ``W_ip = S_i . F_p``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.spatial import cross, force_cross
from sysid_ros.core.model.inertia import unit_inertias
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.kinematics import ChainMotion, SerialArm
from sysid_ros.core.planning.motions import MotionBasis

Array = NDArray[np.float64]

PAYLOAD = 10


@dataclass(frozen=True)
class PayloadSamples:
    """What the derivative of the regressor at N samples needs.

    Attributes:
        motion: Motions of joints and bodies in the frame of the last body.
        force: Wrenches of unit parameters, (N, 6, 10).
    """

    motion: ChainMotion
    force: Array


class PayloadRegressor:
    """The ten columns of the last body in the torque regressor, and their reverse derivative.

    Args:
        robot: The arm.

    Raises:
        ModelError: The arm branches.
    """

    def __init__(self, robot: RobotModel):
        self._arm = SerialArm(robot)
        inertias = unit_inertias()
        self._linear = inertias.transpose(2, 1, 0).reshape(6, 60)  # A -> F, (6, 10) flattened
        self._adjoint = inertias.transpose(2, 0, 1).reshape(60, 6)  # M (6, 10) -> sum_p K_p M_p
        quadratic = np.zeros((6, 6, 6, PAYLOAD))  # [V, V, F, p]
        for first in range(6):
            spin = np.broadcast_to(np.eye(6)[first], (6, PAYLOAD, 6))
            momenta = inertias.transpose(2, 0, 1)  # [V, p, component]
            quadratic[first] = force_cross(spin, momenta).transpose(0, 2, 1)
        self._quadratic = quadratic.reshape(36, 60)

    def evaluate(self, q: Array, v: Array, a: Array) -> tuple[Array, PayloadSamples]:
        """The columns (N, n, 10) at states (N, n), and what their derivative needs."""
        rotation, origin, axes = self._arm.frames(q)
        last, point = rotation[:, -1], origin[:, -1, None]
        angular = axes[..., 3:]
        linear = axes[..., :3] + cross(angular, point)
        local = np.concatenate([linear @ last, angular @ last], axis=-1)
        gravity = np.zeros((len(q), 6))
        gravity[:, :3] = -self._arm.tree.gravity @ last
        motion = ChainMotion.of(local, gravity, v, a)
        twist = motion.velocity[:, -1]
        products = (twist[:, :, None] * twist[:, None, :]).reshape(-1, 36)
        force = (motion.acceleration[:, -1] @ self._linear + products @ self._quadratic).reshape(-1, 6, PAYLOAD)
        return local @ force, PayloadSamples(motion, force)

    def pull_back(self, samples: PayloadSamples, weight: Array) -> tuple[Array, Array, Array]:
        """Derivatives of ``sum(weight * regressor)`` with respect to q, v and a, each (N, n); weight is (N, n, 10)."""
        motion, axes = samples.motion, samples.motion.axes
        twist = motion.velocity[:, -1]
        pulled = (axes.transpose(0, 2, 1) @ weight).reshape(-1, 60)  # sum_i S_i weight_ip
        wrench = pulled @ self._adjoint
        bilinear = (pulled @ self._quadratic.T).reshape(-1, 6, 6)
        by_twist = ((bilinear + bilinear.transpose(0, 2, 1)) @ twist[..., None])[..., 0] + force_cross(twist, wrench)
        # Row i loses S_i x S_j . (F weight_i) for all joints j behind it.
        turned = force_cross(axes, weight @ samples.force.transpose(0, 2, 1))
        behind = np.cumsum(turned, axis=1) - turned
        u, w = wrench[:, None], by_twist[:, None]
        rates = motion.rates
        dq = (u * motion.position_bias + w * rates - axes * behind).sum(axis=-1)
        dv = (2.0 * u * rates + w * axes).sum(axis=-1)
        return dq, dv, (u * axes).sum(axis=-1)


class WindowRows:
    """Mean rows of the windows that one part of a motion fills.

    Args:
        regressor: The regressor.
        duration: Length of that part, from the start on [s].
        window: Length of a window [s]; a rest at the end that is shorter is left out.
        nodes: Nodes of the Gauss rule in each window.
    """

    def __init__(self, regressor: PayloadRegressor, duration: float, window: float, nodes: int = 2):
        self._regressor = regressor
        self.windows = max(int(duration / window + 1e-9), 1)
        length = min(window, duration)
        points, weights = np.polynomial.legendre.leggauss(nodes)
        self.weights = 0.5 * weights
        """Weights of the nodes of a window, adding up to 1."""
        starts = length * np.arange(self.windows)
        self.times = (starts[:, None] + 0.5 * length * (points + 1.0)).ravel()
        """Times the motions are needed at, (T,) [s]."""

    def evaluate(self, basis: MotionBasis, x: Array) -> tuple[Array, PayloadSamples]:
        """Rows (B, windows n, 10) of the motions with end offsets x (B, n), and what their derivative needs.

        Args:
            basis: The motions at :attr:`times`.
            x: End offsets, (B, n) [rad].
        """
        values, samples = self._regressor.evaluate(*basis.states(x))
        shape = (len(x), self.windows, self.weights.size, x.shape[1], PAYLOAD)
        rows = np.einsum("bwgip,g->bwip", values.reshape(shape), self.weights)
        return rows.reshape(len(x), -1, PAYLOAD), samples

    def pull_back(self, basis: MotionBasis, samples: PayloadSamples, weight: Array) -> Array:
        """Gradients along x, (B, n), of ``sum(weight * rows)``; weight is (B, windows n, 10)."""
        count = len(weight)
        by_window = weight.reshape(count, self.windows, 1, -1, PAYLOAD)
        spread = by_window * self.weights[:, None, None]
        parts = self._regressor.pull_back(samples, spread.reshape(count * self.times.size, -1, PAYLOAD))
        return basis.chain(*(part.reshape(count, self.times.size, -1) for part in parts))
