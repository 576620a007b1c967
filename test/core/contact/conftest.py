"""A simulated arm that something pushes at the tool, independent of the package's regressors (Pinocchio's RNEA)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pinocchio as pin
import pytest
from textbook import load_steady
from true_arm import true_model

from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.robot import INERTIAL, RobotModel
from sysid_ros.core.model.sampling import sample_parameters, sample_payload

RATE = 500.0
NODES, WEIGHTS = np.polynomial.legendre.leggauss(3)


@dataclass
class PushedArm:
    """Moves along sines while a wrench in axes of the tool acts at the tool from ``since`` on."""

    robot: RobotModel
    seed: int
    wrench: np.ndarray
    since: float = np.inf

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed)
        robot = self.robot
        self.theta = sample_parameters(robot, self.rng, self.seed % 2 == 0)
        self.payload = sample_payload(robot.payload_prior, self.rng, corner=False)
        self.model = true_model(robot, self.theta, self.payload)
        self.data = self.model.createData()
        self.omega = 2.0 * np.pi * self.rng.uniform(0.1, 0.5, robot.n)
        self.phase = self.rng.uniform(-np.pi, np.pi, robot.n)
        self.amplitude = np.minimum(0.4, 0.8 * robot.limits.a_max / self.omega**2)

    def motion(self, t):
        angle = np.multiply.outer(t, self.omega) + self.phase
        q = np.array(self.robot.home) + self.amplitude * np.sin(angle)
        v = self.amplitude * self.omega * np.cos(angle)
        return q, v, -self.amplitude * self.omega**2 * np.sin(angle)

    def external(self, t):
        """External joint torques at some times, (N, n)."""
        frame = self.model.getFrameId(self.robot.tool_frame)
        result = np.zeros((len(t), self.robot.n))
        for k, q in enumerate(self.motion(t)[0]):
            if t[k] >= self.since:
                reference = pin.ReferenceFrame.LOCAL
                result[k] = pin.computeFrameJacobian(self.model, self.data, q, frame, reference).T @ self.wrench
        return result

    def torque(self, t):
        """What an ideal sensor shows, (N, n)."""
        q, v, a = self.motion(t)
        tau = np.array([pin.rnea(self.model, self.data, *row) for row in zip(q, v, a, strict=True)])
        coulomb, viscous, armature, offset = self.theta[INERTIAL * self.robot.n :].reshape(-1, 4).T
        meaning = self.robot.sensors.effort_meaning
        if meaning.has_friction:
            tau = tau + coulomb * np.sign(v) + viscous * v + meaning.has_armature * armature * a
        return tau + offset - self.external(t)

    def record(self, seconds, is_adversarial=False):
        """Samples at 500 Hz with random errors, or with errors at their limits."""
        sensors, period = self.robot.sensors, 1.0 / RATE
        t = np.arange(round(seconds * RATE) + 1) * period
        q, v, _ = self.motion(t)
        if sensors.effort_is_held:
            parts = [self.torque(t + 0.5 * period * (node - 1.0)) for node in NODES]
            tau = 0.5 * np.tensordot(WEIGHTS, parts, axes=1)
        else:
            tau = self.torque(t)
        draw = (
            (lambda: self.rng.choice([-1.0, 1.0], q.shape))
            if is_adversarial
            else (lambda: self.rng.uniform(-1.0, 1.0, q.shape))
        )
        size = sensors.effort_relative_error * np.abs(tau) + sensors.effort_absolute_error
        return SampleBlock(
            np.round(1e9 * t).astype(np.int64),
            np.arange(len(t)),
            q + 0.4999 * sensors.position_resolution * draw(),
            v + 0.9999 * sensors.velocity_error * draw(),
            tau + 0.9999 * size * draw(),
        )

    def mean_external(self, window):
        """True mean of the external torques over a window, (n,)."""
        start, stop = 1e-9 * window.start, 1e-9 * window.stop
        edges = np.unique(np.clip([start, self.since, stop], start, stop))
        total = np.zeros(self.robot.n)
        nodes, weights = np.polynomial.legendre.leggauss(8)
        for low, high in zip(edges[:-1], edges[1:], strict=True):
            t = 0.5 * (low + high) + 0.5 * (high - low) * nodes
            total += 0.5 * (high - low) * weights @ self.external(t)
        return total / (stop - start)


@pytest.fixture(scope="session", params=["kinova_gen3_2f85", "kuka_lbr_med7"])
def robot(request):
    """With momentum windows of 0.1 s."""
    return load_steady(request.param)


@pytest.fixture(scope="session")
def pushed():
    return PushedArm
