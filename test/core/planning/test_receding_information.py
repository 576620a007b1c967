"""The information a plan promises against that of the estimator when the motion has been made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.planning.costs import condition_number
from sysid_ros.core.regressors.torque import TorqueRegressor


def estimator_information(robot, trajectory, duration):
    """Samples at 1 kHz of the perfectly tracked motion, with the torque of the nominal arm and payload."""
    times = np.arange(0, round(duration * 1000) + 1) * 1e-3
    q, v, a = trajectory.sample(times)
    theta = robot.theta_nominal.copy()
    theta[robot.inertial_slice(robot.n)] += robot.payload_prior.nominal
    tau = TorqueRegressor(robot).evaluate(q, v, a) @ theta
    tau[1:] = 0.5 * (tau[1:] + tau[:-1])  # a sample is the mean since the one before
    sensors = replace(robot.sensors, effort_mean_error=np.inf)  # else windows are longer
    estimator = StreamingEstimator(replace(robot, sensors=sensors))
    stamps = (times * 1e9).round().astype(np.int64) + 1_000_000_000
    estimator.add(SampleBlock(stamps, np.arange(times.size), q, v, tau))
    return estimator.information(), estimator.estimate()


@pytest.mark.parametrize("is_last", [False, True])
def test_information_is_the_estimators(make_problem, gen3, is_last):
    problem = make_problem(start=(gen3.home, np.zeros(7), np.zeros(7)), is_last=is_last)
    k = np.random.default_rng(0).uniform(-0.7, 0.7, 7)
    promised = problem.cost.information(problem.space.offsets(k)[None])[0]
    measured, estimate = estimator_information(gen3, problem.trajectory(k), 3.0 if is_last else 1.5)
    assert estimate.alarm is None
    assert estimate.number_of_windows == (30 if is_last else 15)
    np.testing.assert_allclose(promised, measured, atol=2e-4 * np.abs(measured).max())
    assert condition_number(promised) == pytest.approx(estimate.condition_number, rel=0.01)


def test_information_adds_to_what_has_been_collected(make_problem):
    rows = np.random.default_rng(1).normal(size=(20, 10))
    collected = rows.T @ rows
    x = make_problem().space.offsets(np.zeros((1, 7)))
    alone, both = (make_problem(information=g).cost.information(x)[0] for g in (None, collected))
    np.testing.assert_allclose(both, alone + collected, rtol=1e-12)


def test_cost_is_defined_without_any_information(make_problem, gen3):
    """A motion that does not move: the information is singular, the cost finite."""
    problem = make_problem(start=(gen3.home, np.zeros(7), np.zeros(7)))
    x = np.zeros((1, 7))
    assert condition_number(problem.cost.information(x)[0]) == np.inf
    values, gradients = problem.cost.gradient(x)
    assert np.isfinite(values).all() and np.isfinite(gradients).all()
