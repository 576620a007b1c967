"""Simulated arms for the tests of the estimator, independent of its own regressors (all dynamics from Pinocchio)."""

from __future__ import annotations

import dataclasses

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.estimation.samples import SampleBlock
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import FRICTION, INERTIAL, EffortMeaning, RobotModel

GAUSS_NODES, GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(4)


class FourierMotion:
    """q(t) as a sum of sines around home, known in closed form."""

    def __init__(self, robot: RobotModel, seed: int, amplitude: float = 0.5, base_frequency: float = 0.2):
        rng = np.random.default_rng(seed)
        self.home = np.array(robot.home)
        self.omega = 2 * np.pi * base_frequency * np.arange(1, 5)
        size = rng.uniform(0.3, 1.0, (robot.n, 4)) / np.arange(1, 5)
        self.amplitude = amplitude * size / size.sum(axis=1, keepdims=True)
        self.phase = rng.uniform(-np.pi, np.pi, (robot.n, 4))

    def __call__(self, t):
        angle = np.multiply.outer(np.asarray(t, dtype=float), np.ones((len(self.home), 1)) * self.omega) + self.phase
        q = self.home + (self.amplitude * np.sin(angle)).sum(-1)
        v = (self.amplitude * self.omega * np.cos(angle)).sum(-1)
        a = -(self.amplitude * self.omega**2 * np.sin(angle)).sum(-1)
        return q, v, a


def true_model(robot: RobotModel, theta, payload, gravity=None) -> pin.Model:
    """Pinocchio model of an arm with the parameters theta and a payload."""
    model = pin.Model(robot.pin_model)
    for body in range(1, robot.n + 1):
        parameters = np.array(theta[robot.inertial_slice(body)])
        if body == robot.n:
            parameters = parameters + payload
        model.inertias[body] = pin.Inertia.FromDynamicParameters(parameters)
    model.armature = np.zeros(robot.n)
    model.friction = np.zeros(robot.n)
    model.damping = np.zeros(robot.n)
    if gravity is not None:
        model.gravity = pin.Motion(np.asarray(gravity, dtype=float), np.zeros(3))
    return model


def friction_parameters(robot: RobotModel, theta):
    if robot.sensors.effort_meaning is EffortMeaning.LINK_SIDE:
        return np.zeros((robot.n, FRICTION))
    return np.asarray(theta)[INERTIAL * robot.n :].reshape(robot.n, FRICTION)


def rigid_torque(model, q, v, a):
    data = model.createData()
    return np.array([pin.rnea(model, data, *row) for row in zip(q, v, a)])


def torque_at(robot, model, theta, motion, times):
    """The true torque at some times, (N, n)."""
    q, v, a = motion(times)
    f_c, f_v, i_a, beta = friction_parameters(robot, theta).T
    return rigid_torque(model, q, v, a) + f_c * np.sign(v) + f_v * v + i_a * a + beta


def mean_torque(robot, model, theta, motion, times):
    """The mean of the true torque over each step, (N - 1, n); the jumps of sign(v) are integrated exactly."""
    steps = np.diff(times)
    nodes = times[:-1, None] + 0.5 * steps[:, None] * (1.0 + GAUSS_NODES)
    q, v, a = motion(nodes.ravel())
    rigid = rigid_torque(model, q, v, a).reshape(len(steps), len(GAUSS_NODES), robot.n)
    mean = 0.5 * np.einsum("g,kgi->ki", GAUSS_WEIGHTS, rigid)
    f_c, f_v, i_a, beta = friction_parameters(robot, theta).T
    q_end, v_end, _ = motion(times)
    sign = np.sign(v_end[:-1])
    for k, i in np.argwhere(v_end[1:] * v_end[:-1] < 0):
        low, high = times[k], times[k + 1]
        for _ in range(40):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if motion(middle)[1][i] * v_end[k, i] > 0 else (low, middle)
        sign[k, i] *= 2 * (low - times[k]) / steps[k] - 1
    return mean + f_c * sign + (f_v * np.diff(q_end, axis=0) + i_a * np.diff(v_end, axis=0)) / steps[:, None] + beta


def record(robot, theta, payload, motion, duration, rate=1000.0, gravity=None, true_times=None):
    """A recording without any error: stamps on a grid (the true times may differ), exact states, exact torques."""
    count = int(round(duration * rate)) + 1
    stamps = np.round(np.arange(count) / rate * 1e9).astype(np.int64)
    times = stamps * 1e-9 if true_times is None else true_times
    model = true_model(robot, theta, payload, gravity)
    q, v, _ = motion(times)
    if robot.sensors.effort_is_held:
        tau = np.concatenate([np.zeros((1, robot.n)), mean_torque(robot, model, theta, motion, times)])
    else:
        tau = torque_at(robot, model, theta, motion, times)
    return SampleBlock(stamps, np.arange(count), q, v, tau)


def with_sensors(robot: RobotModel, **changes) -> RobotModel:
    """The robot with other sensors; numbers are broadcast to the joints."""
    values = {
        name: np.full(robot.n, float(value)) if name not in ("effort_is_held", "stamp_jitter", "effort_meaning") else value
        for name, value in changes.items()
    }
    return dataclasses.replace(robot, sensors=dataclasses.replace(robot.sensors, **values))


def perfect_sensors(robot: RobotModel) -> RobotModel:
    return with_sensors(
        robot,
        effort_relative_error=0.0,
        effort_absolute_error=0.0,
        position_resolution=0.0,
        velocity_error=0.0,
        stamp_jitter=0.0,
    )


class Tools:
    """What the tests of this folder share (a fixture, since test folders are not packages)."""

    FourierMotion = FourierMotion
    true_model = staticmethod(true_model)
    torque_at = staticmethod(torque_at)
    mean_torque = staticmethod(mean_torque)
    record = staticmethod(record)
    with_sensors = staticmethod(with_sensors)
    perfect_sensors = staticmethod(perfect_sensors)


@pytest.fixture(scope="session")
def tools():
    return Tools


@pytest.fixture(scope="session")
def robot():
    return load_robot("kinova_gen3_2f85")


@pytest.fixture(scope="session")
def dumbbell(robot):
    """A 1.81 kg payload inside the prior, about the frame of the last joint."""
    from sysid_ros.core.model.inertia import from_com_form

    return from_com_form(1.814, [0.004, -0.006, -0.26], np.array([[0.0087, 4e-4, 0], [4e-4, 0.001, 0], [0, 0, 0.0087]]))
