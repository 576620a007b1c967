"""Arms with true parameters, by Pinocchio's dynamics: independent of the package's own."""

import numpy as np
import pinocchio as pin

from sysid_ros.core.model.robot import RobotModel

SUBSTEPS = 4
CREEP = 1e-3  # rad/s over which Coulomb friction changes its sign


def true_model(robot: RobotModel, theta=None, payload=0.0) -> pin.Model:
    """Pinocchio's model of an arm with the parameters theta (nominal by default) and a payload, without armature."""
    theta = robot.theta_nominal if theta is None else np.asarray(theta)
    model = robot.pin_model.copy()
    for body in range(1, robot.n + 1):
        own = theta[robot.inertial_slice(body)] + (payload if body == robot.n else 0.0)
        model.inertias[body] = pin.Inertia.FromDynamicParameters(own)
    model.armature = np.zeros(robot.n)
    return model


class Plant:
    """The true arm: articulated-body algorithm, Runge-Kutta of order 4."""

    def __init__(self, robot: RobotModel, theta: np.ndarray, payload: np.ndarray, q: np.ndarray):
        self.model = true_model(robot, theta, payload)
        self.coulomb, self.viscous, armature, self.offset = robot.friction(theta).T
        self.model.armature = armature.copy()
        self.data = self.model.createData()
        self.q, self.v = q.copy(), np.zeros(robot.n)

    def acceleration(self, q: np.ndarray, v: np.ndarray, tau: np.ndarray) -> np.ndarray:
        sign = np.minimum(np.maximum(v / CREEP, -1.0), 1.0)
        return pin.aba(self.model, self.data, q, v, tau - self.coulomb * sign - self.viscous * v - self.offset).copy()

    def advance(self, tau: np.ndarray, duration: float, substeps: int = SUBSTEPS) -> None:
        h = duration / substeps
        for _ in range(substeps):
            q, v = self.q, self.v
            k1 = self.acceleration(q, v, tau)
            k2 = self.acceleration(q + 0.5 * h * v, v + 0.5 * h * k1, tau)
            k3 = self.acceleration(q + 0.5 * h * (v + 0.5 * h * k1), v + 0.5 * h * k2, tau)
            k4 = self.acceleration(q + h * (v + 0.5 * h * k2), v + h * k3, tau)
            self.q = q + h * v + h * h / 6.0 * (k1 + k2 + k3)
            self.v = v + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
