"""A synthetic identification: known payload, noisy torques, bounds that shrink around the truth."""

import dataclasses
from datetime import datetime, timezone

import numpy as np
import pytest

from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate, Quantity
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.trajectories.families import FourierTrajectory
from sysid_ros.reports.result import EstimateHistory, IdentificationResult, MotionRecord
from sysid_ros.reports.torque_fit import predict_torque

DURATION = 6.0
PERIOD_NS = 2_000_000
START_NS = 1_700_000_000_000_000_000
TRUTH = from_com_form(1.81, [0.004, -0.006, -0.19], np.diag([0.0042, 0.0045, 0.0012]) + 2e-4 * (1 - np.eye(3)))


@pytest.fixture
def without_figures(monkeypatch):
    """Pages without their drawings, which take most of their time; test_report.py is about them."""
    from sysid_ros.reports import figures

    for name in ("convergence", "shrinkage", "torque_fit", "windows", "error_budget", "motion", "excitation"):
        assert callable(getattr(figures, name))
        monkeypatch.setattr(figures, name, lambda result: None)


@pytest.fixture(scope="session")
def motion(robot):
    rng = np.random.default_rng(3)
    sine, cosine = 0.25 * rng.standard_normal((2, robot.n, 4))
    order = np.arange(1, 5)
    sine -= sine.mean(axis=1, keepdims=True)  # starts and ends at rest
    cosine -= np.outer(cosine @ order, order) / (order @ order)
    trajectory = FourierTrajectory(robot.home, sine, cosine, 1.0 / DURATION, DURATION)
    return MotionRecord(0.0, trajectory, 8.4, "Limits hold at 600 instants; nothing was checked between them.")


@pytest.fixture(scope="session")
def record(robot, motion):
    """Samples of the motion with a payload (10,)."""

    def of(payload):
        rng = np.random.default_rng(4)
        stamps = START_NS + np.arange(0, int(DURATION * 1e9), PERIOD_NS)
        times = (stamps - START_NS) * 1e-9
        q, v, _ = motion.trajectory.sample(times)
        # the sensor holds the mean torque since the previous sample
        parts = (np.arange(8) + 0.5) / 8 - 1.0
        inner = motion.trajectory.sample(np.add.outer(times, parts * PERIOD_NS * 1e-9).ravel())
        tau = predict_torque(robot, payload, *inner).reshape(times.size, 8, robot.n).mean(axis=1)
        tau = tau * (1 + 0.01 * rng.uniform(-1, 1, tau.shape)) + 0.01 * rng.uniform(-1, 1, tau.shape)
        v += 2e-4 * rng.uniform(-1, 1, v.shape)
        return SampleBlock(stamps, np.arange(stamps.size), q, v, tau)

    return of


@pytest.fixture(scope="session")
def samples(record):
    return record(TRUTH)


@pytest.fixture(scope="session")
def half_width():
    return np.array([0.045, 0.004, 0.004, 0.012, 0.006, 0.002, 0.006, 0.002, 0.002, 0.0009])


@pytest.fixture(scope="session")
def estimate(robot, half_width):
    values = from_com_form(1.80, [0.0045, -0.0055, -0.1905], np.diag([0.0041, 0.0046, 0.0011]))
    parts = {"torque sensor": 0.55, "robot parameters": 0.3, "encoder": 0.1, "quadrature": 0.05}
    return ParameterEstimate(
        values=values,
        lower=TRUTH - half_width,
        upper=TRUTH + 1.1 * half_width,
        method="left_inverse",
        guarantee="The true parameters lie inside if the arm's parameters and the sensor errors lie in their boxes.",
        is_guaranteed=True,
        is_consistent=True,
        alarm=None,
        target="payload",
        frame=robot.joint_names[-1],
        number_of_windows=147,
        data_seconds=DURATION,
        condition_number=11.3,
        error_budget={k: part * half_width for k, part in parts.items()},
        narrower=frozenset(Quantity),
    )


@pytest.fixture(scope="session")
def result(robot, motion, samples, estimate, half_width):
    prior = robot.payload_prior.box
    times = np.linspace(0.4, DURATION, 29)
    history = []
    for time in times:
        growth = (DURATION / time) ** 1.7
        lower = np.maximum(TRUTH - growth * half_width, prior.lower)
        upper = np.minimum(TRUTH + 1.1 * growth * half_width, prior.upper)
        values = np.clip(TRUTH + 0.4 * growth * half_width * np.cos(5 * time + np.arange(10)), lower, upper)
        history.append(
            dataclasses.replace(estimate, values=values, lower=lower, upper=upper, condition_number=11 + 60 / time**2)
        )
    q_d, v_d, a_d = motion.trajectory.sample(samples.seconds)
    gram = np.diag([4.0, 90, 80, 60, 900, 1200, 800, 700, 900, 1500]) @ (np.eye(10) + 0.02)
    return IdentificationResult(
        robot=robot,
        estimate=estimate,
        history=EstimateHistory.from_estimates(times, history),
        samples=samples,
        reference_q=q_d,
        reference_v=v_d,
        commanded_tau=samples.tau,
        predicted_tau=predict_torque(robot, estimate.values, samples.q, samples.v, a_d),
        motions=(motion,),
        information=0.5 * (gram + gram.T),
        timing={"planning": 1.92, "motion": DURATION, "estimation": 0.31},
        truth=TRUTH,
        settings={"window": 0.1, "method": "left_inverse", "seed": 7},
        versions={"sysid_ros": "0.1.0"},
        warnings=("the certificate was checked at sampled instants only",),
        created=datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
    )


@pytest.fixture(scope="module")
def short(samples):
    return samples.slice(0, 300)
