"""Simulated arms for the tests of the estimator, independent of its own regressors (all dynamics from Pinocchio)."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
from textbook import with_sensors
from true_arm import Plant, true_model

from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.robot import FRICTION, INERTIAL, RobotModel

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


def friction_parameters(robot: RobotModel, theta):
    meaning = robot.sensors.effort_meaning
    felt = meaning.has_friction * np.array([1.0, 1.0, meaning.has_armature, 1.0])
    return felt * np.asarray(theta)[INERTIAL * robot.n :].reshape(robot.n, FRICTION)


def rigid_torque(model, q, v, a):
    data = model.createData()
    return np.array([pin.rnea(model, data, *row) for row in zip(q, v, a, strict=True)])


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
    model = true_model(robot, theta, payload)
    if gravity is not None:
        model.gravity = pin.Motion(np.asarray(gravity, dtype=float), np.zeros(3))
    q, v, _ = motion(times)
    if robot.sensors.effort_is_held:
        tau = np.concatenate([np.zeros((1, robot.n)), mean_torque(robot, model, theta, motion, times)])
    else:
        tau = torque_at(robot, model, theta, motion, times)
    return SampleBlock(stamps, np.arange(count), q, v, tau)


def perfect_sensors(robot: RobotModel) -> RobotModel:
    return with_sensors(
        robot,
        effort_relative_error=0.0,
        effort_gain_error=0.0,
        effort_absolute_error=0.0,
        position_resolution=0.0,
        velocity_error=0.0,
        stamp_jitter=0.0,
    )


class ClosedLoop:
    """A simulated arm under computed torque with nominal parameters; the torque is held over each period."""

    def __init__(self, robot, theta, payload, motion, gains=(60.0, 12.0)):
        self.robot, self.motion, self.gains = robot, motion, gains
        self.plant = Plant(robot, theta, payload, motion(0.0)[0])
        self.nominal = true_model(robot, payload=robot.payload_prior.nominal)
        self.nominal_data = self.nominal.createData()

    def control(self, t, q, v):
        q_d, v_d, a_d = self.motion(t)
        kp, kd = self.gains
        f_c, f_v, i_a, _ = np.asarray(self.robot.theta_nominal)[INERTIAL * self.robot.n :].reshape(-1, FRICTION).T
        a = a_d + kp * (q_d - q) + kd * (v_d - v)
        return pin.rnea(self.nominal, self.nominal_data, q, v, a) + i_a * a + f_v * v_d + f_c * np.tanh(v_d / 0.05)

    def run(self, duration, rng, period=1e-3):
        """States at the samples and the torque held before each, (N, n) each; measured states feed the controller."""
        n, count = self.robot.n, int(round(duration / period)) + 1
        sensors = self.robot.sensors
        states, torques = np.zeros((count, 2, n)), np.zeros((count, n))
        self.plant.q, self.plant.v, _ = self.motion(0.0)
        for k in range(count):
            states[k] = q, v = self.plant.q, self.plant.v
            noise = rng.uniform(-1, 1, (2, n)) * np.stack([0.5 * sensors.position_resolution, sensors.velocity_error])
            tau = self.control(k * period, q + noise[0], v + noise[1])
            if k + 1 < count:
                torques[k + 1] = tau
            self.plant.advance(tau, period)
        return states[:, 0], states[:, 1], torques


def measure(robot, q, v, tau, rng, adversarial=False, period=1e-3):
    """Adds the largest allowed errors to true signals: random ones, or adversarial signs that last."""
    sensors, shape = robot.sensors, q.shape
    if adversarial:
        sign = {name: rng.choice([-1.0, 1.0], (1, shape[1])) * np.ones(shape) for name in ("q", "v", "tau")}
        if rng.integers(2):
            block = rng.choice([-1.0, 1.0], (shape[0] // 100 + 1, shape[1])).repeat(100, axis=0)[: shape[0]]
            sign["v"], sign["tau"] = block, block * rng.choice([-1.0, 1.0], shape[1])
    else:
        sign = {name: rng.uniform(-1, 1, shape) for name in ("q", "v", "tau")}
    step = sensors.position_resolution
    measured_q = q + 0.4999 * step * sign["q"] if adversarial else np.round(q / step) * step
    torque_error = sensors.effort_relative_error * np.abs(tau) + sensors.effort_absolute_error
    shift = rng.choice([-1.0, 1.0], shape[0]) if adversarial else rng.uniform(-1, 1, shape[0])
    times = np.arange(shape[0]) * period + 0.999 * sensors.stamp_jitter * shift
    return SampleBlock(
        np.round(times * 1e9).astype(np.int64) + 10**9,
        np.arange(shape[0]),
        measured_q,
        v + 0.9999 * sensors.velocity_error * sign["v"],
        tau + 0.9999 * torque_error * sign["tau"],
    )
