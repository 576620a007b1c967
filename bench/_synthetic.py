"""Measurements of an arm that follows a motion exactly, with the torques its true parameters need.

No controller and no simulator takes part: torques come from Pinocchio's RNEA and the friction law, integrated over
every period, and go through the simulated sensors. This is all that the estimator's assumptions say about data, so
what it needs to cover is what happens here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pinocchio as pin

from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.robot import INERTIAL, RobotModel
from sysid_ros.drivers.mujoco.simulation import SensorSimulation

Array = np.ndarray
Motion = Callable[[Array], tuple[Array, Array, Array]]
"""Times (N,) [s] to positions, velocities and accelerations, each (N, n)."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(3)
EPOCH_NS = 10**9


class TrueArm:
    """Inverse dynamics of the arm as it really is.

    Args:
        robot: The kinematics, and what the effort signal measures.
        theta: True parameters of the arm, (14 n,).
        payload: True payload, (10,).
        stiction: What share of F_c acts on each joint below ``stiction_speed``, (n,) in [-1, 1].
        stiction_speed: [rad/s].
    """

    def __init__(self, robot: RobotModel, theta: Array, payload: Array, stiction: Array, stiction_speed: float):
        self._model = robot.pin_model.copy()
        for body in range(1, robot.n + 1):
            inertia = theta[robot.inertial_slice(body)] + (payload if body == robot.n else 0.0)
            self._model.inertias[body] = pin.Inertia.FromDynamicParameters(inertia)
        self._data = self._model.createData()
        self._friction = theta[INERTIAL * robot.n :].reshape(robot.n, 4).T
        self._meaning, self._behind = robot.sensors.effort_meaning, 0.5 * robot.sensors.effort_friction
        self._stiction, self._stiction_speed = stiction, stiction_speed

    def torque(self, q: Array, v: Array, a: Array) -> Array:
        """What an ideal sensor shows, (N, n) [Nm]."""
        tau = np.array([pin.rnea(self._model, self._data, *row) for row in zip(q, v, a, strict=True)])
        coulomb, viscous, armature, offset = self._friction
        share = 1.0 if self._meaning.has_friction else self._behind
        direction = np.where(np.abs(v) < self._stiction_speed, self._stiction, np.sign(v))
        return tau + share * (coulomb * direction + viscous * v) + self._meaning.has_armature * armature * a + offset

    def mean_torque(self, motion: Motion, times: Array, period: float) -> Array:
        """Mean torque over the period before each time, (N, n) [Nm]; three Gauss points."""
        shifts = 0.5 * period * (_NODES - 1.0)
        parts = [self.torque(*motion(times + shift)) for shift in shifts]
        return 0.5 * np.tensordot(_WEIGHTS, parts, axes=1)


def measure(sensors: SensorSimulation, times: Array, q: Array, v: Array, tau: Array) -> SampleBlock:
    """What the sensors make of true values at true times (N,) [s]."""
    stamps = EPOCH_NS + np.round(1e9 * times).astype(np.int64)
    rows = [sensors.measure(int(stamp), *row) for stamp, *row in zip(stamps, q, v, tau, strict=True)]
    measured = [np.array(column) for column in zip(*rows, strict=True)]
    return SampleBlock(measured[0], np.arange(len(times)), *measured[1:])
