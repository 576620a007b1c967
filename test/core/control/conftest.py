"""An arm to control that shares no code with the controller: forward dynamics, fine steps, held torque, bad sensors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.fourier import FourierTrajectory

PERIOD = 1e-3
SUBSTEPS = 4
CREEP = 1e-3  # rad/s over which Coulomb friction changes its sign


class Plant:
    """The true arm: articulated-body algorithm, Runge-Kutta of order 4."""

    def __init__(self, robot: RobotModel, theta: np.ndarray, payload: np.ndarray, q: np.ndarray):
        n = robot.n
        self.model = robot.pin_model.copy()
        for body in range(n):
            parameters = theta[10 * body : 10 * body + 10] + (payload if body == n - 1 else 0.0)
            self.model.inertias[body + 1] = pin.Inertia.FromDynamicParameters(parameters)
        self.coulomb, self.viscous, armature, self.offset = theta[10 * n :].reshape(n, 4).T
        self.model.armature = armature.copy()
        self.data = self.model.createData()
        self.q, self.v = q.copy(), np.zeros(n)

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


@dataclass(frozen=True)
class Run:
    """What happened: times, true errors and torques, one row per sample."""

    time: np.ndarray
    position: np.ndarray
    velocity: np.ndarray
    torque: np.ndarray

    def after(self, time: float) -> Run:
        """The samples from a time on."""
        late = self.time >= time
        return Run(self.time[late], self.position[late], self.velocity[late], self.torque[late])


def simulate(
    robot: RobotModel,
    controller,
    truth: tuple[np.ndarray, np.ndarray],
    reference: Callable,
    duration: float,
    hold: float,
    noise: str = "uniform",
    delay: int = 1,
    seed: int = 0,
) -> Run:
    """Holds the start of a motion for ``hold``, then follows it; the torque acts ``delay`` samples late.

    Velocity errors are drawn evenly ("uniform"), or have their largest size and the sign that drives the error on
    ("pushing") or that undamps it ("undamping"). Where the velocity is the difference of two positions, those have
    such errors instead; with "undamping" from sample to sample of the other sign.
    """
    rng = np.random.default_rng(seed)
    resolution, largest = robot.sensors.position_resolution, robot.sensors.velocity_error
    plant = Plant(robot, *truth, reference(0.0)[0])
    waiting, before = deque([np.zeros(robot.n)] * 0), None
    rows = []
    for sample in range(round((hold + duration) / PERIOD)):
        time = sample * PERIOD - hold
        q_d, v_d, a_d = reference(time)
        rows.append((time, q_d - plant.q, v_d - plant.v))
        error = {
            "uniform": rng.uniform(-largest, largest),
            "pushing": largest * np.sign(q_d - plant.q),
            "undamping": -2.0 * largest * (v_d - plant.v > 0.0) + largest,
        }[noise]
        q, v = np.round(plant.q / resolution) * resolution, plant.v + error
        if robot.sensors.velocity_is_difference:
            size = 0.5 * resolution + robot.sensors.stamp_jitter * np.abs(plant.v)
            sign = error / largest if noise != "undamping" else np.full(robot.n, (-1.0) ** sample)
            q = plant.q + size * sign
            v = (q - (q if before is None else before)) / PERIOD
            before = q
        waiting.append(controller.compute(q, v, q_d, v_d, a_d))
        tau = waiting.popleft() if len(waiting) > delay else waiting[0]
        rows[-1] += (tau,)
        plant.advance(tau, PERIOD)
    return Run(*(np.array(column) for column in zip(*rows, strict=True)))


def fast_fourier(robot: RobotModel, seed: int, amplitude: float = 0.5) -> FourierTrajectory:
    """Five seconds of 0.2 to 0.6 Hz in all joints."""
    rng = np.random.default_rng(seed)
    order = np.arange(1, 4)
    sine, cosine = rng.normal(size=(2, robot.n, order.size))
    sine -= sine.mean(axis=1, keepdims=True)
    cosine -= np.outer(cosine @ order, order) / (order @ order)
    shape = FourierTrajectory(robot.home, sine, cosine, 0.2, 5.0)
    lower, upper = shape.position_extrema()
    scale = (amplitude / np.maximum(upper - robot.home, robot.home - lower))[:, None]
    return FourierTrajectory(robot.home, scale * sine, scale * cosine, 0.2, 5.0)


@pytest.fixture(scope="session")
def robot() -> RobotModel:
    return load_robot("kinova_gen3_2f85")


@pytest.fixture(scope="session")
def tools():
    """What tests of the closed loop share."""

    class Tools:
        plant = Plant
        run = staticmethod(simulate)
        fourier = staticmethod(fast_fourier)

    return Tools
