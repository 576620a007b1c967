"""What all windows of one robot have in common: regressors, boxes, sensor guarantees."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.estimation.curvature import CurvatureBounds
from sysid_ros.core.estimation.settings import EstimatorSettings
from sysid_ros.core.estimation.unknowns import Unknowns
from sysid_ros.core.model.robot import INERTIAL, RobotModel
from sysid_ros.core.regressors.momentum import MomentumRegressor

Array = NDArray[np.float64]


class InertialRegressor:
    """The momentum regressors without their friction and armature columns.

    Args:
        robot: The robot or its Pinocchio model.
        n: Number of joints.
    """

    def __init__(self, robot: RobotModel | pin.Model, n: int):
        self._regressor = MomentumRegressor(robot)
        self._count = INERTIAL * n

    def evaluate(self, q: Array, v: Array) -> tuple[Array, Array]:
        """``W_m`` and ``W_c`` at q, v (N, n), each (N, n, 10 n)."""
        momentum, force = self._regressor.evaluate(q, v)
        return momentum[..., : self._count], force[..., : self._count]

    def integrate(self, q: Array, v: Array, weights: Array) -> Array:
        """``sum_k weights_k W_c(q_k, v_k)``, (n, 10 n)."""
        return self._regressor.integrate(q, v, weights)[..., : self._count]


class WindowModel:
    """Constants of the windows of one robot.

    Args:
        robot: The arm, its parameter box and the guarantees of its sensors.
        settings: Quadrature, error terms and assumptions.
        unknowns: Split of the parameters (``describe_unknowns`` of the same robot and settings).
    """

    def __init__(self, robot: RobotModel, settings: EstimatorSettings, unknowns: Unknowns):
        self.n = robot.n
        self.settings = settings
        self.unknowns = unknowns
        self.sensors = robot.sensors
        self.joint_names = robot.joint_names
        self.position_error = 0.5 * robot.sensors.position_resolution
        """Largest position error, (n,) [rad]."""
        self.acceleration = settings.acceleration_factor * robot.limits.a_max
        """Largest acceleration between samples, (n,) [rad/s^2]."""
        self.acceleration_change = settings.acceleration_change * robot.limits.a_max
        """Largest change of acceleration between two samples while no joint may stick or reverse, (n,) [rad/s^2]."""
        self.center = unknowns.total.center
        self.radius = unknowns.total.radius
        self.regressor = InertialRegressor(robot, robot.n)
        strength = float(np.linalg.norm(robot.gravity))
        self.tilt = strength * 2.0 * np.sin(0.5 * settings.gravity_cone)
        """Largest distance of the true gravity vector from the nominal one [m/s^2]."""
        self.curvature = CurvatureBounds(robot.pin_model, unknowns.total, strength + self.tilt)
        self.tilted = tilted_regressors(robot) if settings.gravity_cone > 0.0 else []
        """Regressors for unit gravity across (two) and along nominal gravity; ``W_c`` is affine in gravity."""

    def magnitude(self, columns: Array) -> Array:
        """Largest ``|columns @ theta|`` over the box of all inertial parameters, (..., p) to (...)."""
        return np.abs(columns @ self.center) + np.abs(columns) @ self.radius


def tilted_regressors(robot: RobotModel) -> list[InertialRegressor]:
    """Regressors of the robot for unit gravity along three axes: two across nominal gravity and one along it."""
    along = robot.gravity / np.linalg.norm(robot.gravity)
    first = np.cross(along, np.eye(3)[int(np.argmin(np.abs(along)))])
    first /= np.linalg.norm(first)
    regressors = []
    for axis in (first, np.cross(along, first), along):
        model = pin.Model(robot.pin_model)
        model.gravity = pin.Motion(axis, np.zeros(3))
        regressors.append(InertialRegressor(model, robot.n))
    return regressors
