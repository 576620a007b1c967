import numpy as np
import pytest

from sysid_ros.core.estimation.windows.errors import (
    abel_bound,
    integrate_sign,
    integrate_torque,
    range_around,
    sample_torque,
)


@pytest.fixture
def held(robot, tools):
    return tools.with_sensors(robot, effort_relative_error=0.02, effort_absolute_error=0.1, stamp_jitter=0.0).sensors


@pytest.fixture
def sampled(robot, tools):
    changed = tools.with_sensors(
        robot, effort_relative_error=0.0, effort_absolute_error=0.0, stamp_jitter=0.0, effort_is_held=False
    )
    return changed.sensors


def test_held_samples_are_summed_exactly(held):
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.uniform(0.01, 0.05, 30))
    tau = rng.normal(size=(30, 7))
    result = integrate_torque(times, tau, times[3], times[20], held)
    np.testing.assert_allclose(result.value, np.diff(times[3:21]) @ tau[4:21], atol=1e-15)
    assert np.all(result.interpolation <= 1e-15)
    shifted = integrate_torque(times, tau, times[3] + 1e-3, times[20] + 1e-3, held)
    steps = np.diff(times[3:21])
    expected = steps @ tau[4:21] - 1e-3 * tau[4] + 1e-3 * tau[21]
    np.testing.assert_allclose(shifted.value, expected, atol=1e-14)


def test_a_torque_between_its_samples_stays_inside_the_hull(sampled):
    rng = np.random.default_rng(1)
    times = np.linspace(0, 1, 21)
    tau = rng.normal(size=(21, 7)).cumsum(axis=0)
    result = integrate_torque(times, tau, 0.1, 0.9, sampled)
    for _ in range(50):
        place = rng.uniform(size=20)[:, None]  # the mean of each step lies anywhere between its ends
        means = (1 - place) * tau[:-1] + place * tau[1:]
        assert np.all(np.abs(0.05 * means[2:18].sum(axis=0) - result.value) <= result.interpolation + 1e-12)
    extreme = 0.05 * np.maximum(tau[:-1], tau[1:])[2:18].sum(axis=0)
    np.testing.assert_allclose(extreme - result.value, result.interpolation, atol=1e-12)


@pytest.mark.parametrize("rate", [20.0, 30.0, 50.0])
def test_the_peaks_of_a_smooth_torque_between_slow_samples_are_covered(sampled, rate):
    rng = np.random.default_rng(3)
    times = np.arange(0.0, 2.0, 1.0 / rate)
    worst = 0.0
    for _ in range(20):
        omega, phase = 2 * np.pi * rng.uniform(0.3, 3.0), rng.uniform(-np.pi, np.pi, 7)
        tau = np.sin(omega * times[:, None] + phase)
        for k in range(5, len(times) - 8):
            result = integrate_torque(times, tau, times[k], times[k + 2], sampled)
            true = (np.cos(omega * times[k] + phase) - np.cos(omega * times[k + 2] + phase)) / omega
            error = np.abs(true - result.value)
            assert np.all(error <= result.interpolation + 1e-12)
            worst = max(worst, float(np.max(error / result.interpolation)))
    assert worst > 0.1


def test_summation_by_parts_bounds_any_stamp_errors():
    rng = np.random.default_rng(2)
    values = rng.normal(size=(40, 3)).cumsum(axis=0)
    bound = abel_bound(values)
    for _ in range(300):
        ends = rng.choice([-1.0, 1.0], 41)
        assert np.all(np.abs(np.diff(ends) @ values) <= bound + 1e-12)
    ends = np.sign(values[[0, -1], 0])
    worst = np.concatenate([[-ends[0]], -np.sign(np.diff(values[:, 0])), [ends[1]]])
    np.testing.assert_allclose(np.diff(worst) @ values[:, 0], bound[0])


def test_torque_around_a_time(held):
    times, tau = np.linspace(0, 1, 11), np.arange(11.0)[:, None] * np.ones(7)
    np.testing.assert_allclose(sample_torque(times, tau, 0.25), 2.5)
    lower, upper = range_around(times, tau, 0.5, 0.05, held)
    assert np.all(lower < 4.0) and np.all(upper > 6.0)
    lower, upper = range_around(times, tau, 1.0, 0.05, held)
    assert np.all(upper > 10.0)


def test_certain_and_uncertain_time():
    v = np.array([[0.2, -0.2], [0.1, -0.1], [0.005, -0.3], [-0.1, -0.2], [-0.2, -0.1]])
    steps = np.array([1.0, 2.0, 4.0, 8.0])
    result = integrate_sign(v, steps, np.array([0.01, 0.01]))
    np.testing.assert_allclose(result.value, [1.0 - 8.0, -15.0])
    np.testing.assert_allclose(result.uncertain, [6.0, 0.0])
    np.testing.assert_array_equal(result.is_steady, [True, False, False, True])


def test_the_true_integral_is_inside_for_every_speed_within_the_slack():
    rng = np.random.default_rng(0)
    fine = np.linspace(0, 1, 10001)
    v = np.stack([0.3 * np.sin(7 * fine + phase) + 0.1 for phase in (0.0, 1.0, 2.0)], axis=1)
    slack = 0.02 + 0.5 * 0.01 * 0.3 * 7
    true = np.trapezoid(np.sign(v), fine, axis=0)
    for _ in range(20):
        measured = v[::100] + rng.choice([-0.02, 0.02], v[::100].shape)
        result = integrate_sign(measured, np.diff(fine[::100]), np.full(3, slack))
        assert np.all(np.abs(true - result.value) <= result.uncertain + 1e-3)
        assert np.all(result.uncertain < 0.35)
