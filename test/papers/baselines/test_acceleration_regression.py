"""Baselines with accelerations: the tracking differentiator and bounded regression."""

import numpy as np
import pytest
from textbook import load_textbook

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.whole_arm import Motion
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.papers.baselines.acceleration_regression import (
    fit_bounded_regression,
    track_velocities,
    tracked,
)

JERK = np.array([400.0])


def test_the_differentiator_follows_a_sine_and_its_derivative_with_the_lag_of_its_filter():
    t = np.arange(0.0, 4.0, 0.002)
    noisy = np.sin(3.0 * t) + np.random.default_rng(0).uniform(-2e-3, 2e-3, t.size)
    v, a = track_velocities(t, noisy[:, None], JERK)
    lag = 2 * 8 * 0.002  # in the linear range it is a critically damped filter of second order
    later = t > 0.5
    assert np.max(np.abs(v[later, 0] - np.sin(3.0 * (t[later] - lag)))) < 0.01
    assert np.max(np.abs(a[later, 0] - 3.0 * np.cos(3.0 * (t[later] - lag)))) < 0.3
    raw = np.gradient(noisy, t)
    noise = np.std(raw[later] - 3.0 * np.cos(3.0 * t[later]))
    assert np.std(a[later, 0] - 3.0 * np.cos(3.0 * (t[later] - lag))) < 0.1 * noise


def test_a_step_is_reached_without_overshoot_within_the_jerk():
    t = np.arange(0.0, 1.0, 0.001)
    step = np.where(t < 0.1, 0.0, 1.0)[:, None]
    v, a = track_velocities(t, step, JERK, filter_steps=2.0)
    assert v.max() < 1.01 and abs(v[-1, 0] - 1.0) < 1e-3
    assert np.max(np.abs(np.diff(a[:, 0]))) <= JERK[0] * 0.001 * (1.0 + 1e-9)


@pytest.mark.parametrize("name", ["kinova_gen3_2f85", "kuka_lbr_med7"])
def test_exact_data_give_torques_back_and_bounds_are_kept(name):
    robot = load_textbook(name)
    rng = np.random.default_rng(1)
    q, v, a = rng.uniform(-1.0, 1.0, size=(3, 300, robot.n))
    theta = robot.theta_box.lower + rng.uniform(0.2, 0.8, robot.theta_box.lower.size) * robot.theta_box.width
    if name.startswith("kuka"):
        theta[10 * robot.n :] = 0.0  # a sensor on the link side sees no friction; this arm's offset is part of no base
    tau = TorqueRegressor(robot).evaluate(q, v, a) @ theta
    motion = Motion((slice(0, 300),), np.arange(300) * 0.01, q, v, a, tau)
    fit = fit_bounded_regression(robot, motion)
    np.testing.assert_allclose(fit.predict(robot, motion), tau, atol=1e-4)
    assert np.all(fit.bounds.lower <= fit.values) and np.all(fit.values <= fit.bounds.upper)
    narrow = Box(robot.theta_nominal, robot.theta_nominal + 1e-3 * robot.theta_box.radius)
    bounded = fit_bounded_regression(robot, motion, narrow)
    assert np.all(bounded.bounds.lower <= bounded.values) and np.all(bounded.values <= bounded.bounds.upper)
    lower, upper, slack = bounded.bounds.lower, bounded.bounds.upper, 1e-6 * bounded.bounds.width
    assert np.sum((bounded.values <= lower + slack) | (bounded.values >= upper - slack)) > 10


def test_bad_input_is_named():
    robot = load_textbook("kuka_lbr_med7")
    t, v = np.arange(20) * 0.01, np.zeros((20, 7))
    motion = Motion((slice(0, 20),), t, v, v, v, v)
    with pytest.raises(ParameterOutOfRange, match="filter_steps"):
        track_velocities(t, v, np.full(7, 10.0), 0.5)
    with pytest.raises(ParameterOutOfRange, match="largest_jerk"):
        tracked(motion, v, np.zeros(7))
    with pytest.raises(ParameterOutOfRange, match="parameters of the box"):
        fit_bounded_regression(robot, motion, Box(np.zeros(3), np.ones(3)))
