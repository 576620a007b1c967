"""Rigid-body torques of an arm with given parameters, friction and armature left out."""

from __future__ import annotations

import numpy as np
import pinocchio as pin

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import Array


class ArmDynamics:
    """An arm with given inertial parameters.

    Args:
        robot: Kinematics and gravity.
        theta: Parameters of the arm, (14 n,).
        payload: Payload about the frame of the last joint, (10,); None for no payload.
    """

    def __init__(self, robot: RobotModel, theta: Array, payload: Array | None):
        model = robot.pin_model.copy()
        for body in range(1, robot.n + 1):
            parameters = np.array(theta[robot.inertial_slice(body)], dtype=float)
            if payload is not None and body == robot.n:
                parameters += payload
            model.inertias[body] = pin.Inertia.FromDynamicParameters(parameters)
        model.armature = np.zeros(robot.n)
        self._model = model
        self._data = model.createData()

    def gravity(self, q: Array) -> Array:
        """Torque that balances gravity, (n,) [Nm]."""
        return np.array(pin.computeGeneralizedGravity(self._model, self._data, q))

    def torque(self, q: Array, v: Array, a: Array) -> Array:
        """``H a + C v + g``, (n,) [Nm]."""
        return np.array(pin.rnea(self._model, self._data, q, v, a))

    def mean_torque(self, before: tuple[Array, Array], after: tuple[Array, Array], period: float) -> Array:
        """Mean of ``H a + C v + g`` between two states ``(q, v)`` a period [s] apart, (n,) [Nm].

        From the momentum of the links, so that it is right through a reversal too, where friction jumps:
        ``int tau dt = [H v] - int (C^T v - g) dt`` with the trapezoidal rule (error about 1e-5 Nm at 1 kHz).

        Source: SAFE-ID section IV (momentum form).
        """
        (momentum_0, force_0), (momentum_1, force_1) = self._momentum(*before), self._momentum(*after)
        return (momentum_1 - momentum_0) / period - 0.5 * (force_0 + force_1)

    def _momentum(self, q: Array, v: Array) -> tuple[Array, Array]:
        """``H v`` and ``C^T v - g``, each (n,)."""
        gravity = self.gravity(q)
        momentum = pin.rnea(self._model, self._data, q, np.zeros_like(v), v) - gravity
        coriolis = pin.computeCoriolisMatrix(self._model, self._data, q, v)
        return momentum, coriolis.T @ v - gravity
