"""The bound of velocities from positions: it holds for the worst motions, and no smaller one would."""

from dataclasses import replace

import numpy as np
import pytest
from textbook import load_textbook

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.drivers.velocity_estimate import (
    VelocityEstimate,
    VelocityPlan,
    largest_acceleration,
    plan_velocity,
    require_velocity_error,
)

ROBOT = load_textbook("kuka_lbr_med7")


def integrate(accelerations, period, parts=20):
    """Positions and velocities at the samples for accelerations that are constant over parts of a period."""
    h = period / parts
    v = np.vstack([np.zeros(7), np.cumsum(accelerations * h, axis=0)])
    q = np.vstack([np.zeros(7), np.cumsum(v[:-1] * h + 0.5 * accelerations * h * h, axis=0)])
    return q[::parts], v[::parts]


@pytest.mark.parametrize("period", [0.001, 0.002, 0.005])
@pytest.mark.parametrize("kind", ["random", "bang", "slow"])
def test_no_motion_within_the_limits_breaks_the_bound(period, kind):
    """Accelerations at their limits, reversing at every time scale; readings rounded; stamps wrong."""
    rng = np.random.default_rng(3)
    limit = largest_acceleration(ROBOT)
    samples, parts = 1500, 20
    n = samples * parts
    if kind == "random":
        a = rng.uniform(-1.0, 1.0, (n, 7))
    elif kind == "bang":
        a = np.sign(np.sin(2.0 * np.pi * np.arange(n)[:, None] / rng.uniform(3, 200, 7)))
    else:
        a = np.sin(2.0 * np.pi * np.arange(n)[:, None] / rng.uniform(1000, 8000, 7))
    q, v = integrate(a * limit, period)
    v_max = np.abs(v).max(axis=0)
    scale = np.minimum(1.0, ROBOT.limits.v_max / v_max)
    q, v = q * scale, v * scale
    sensors = ROBOT.sensors
    stamps = np.round((period * np.arange(len(q)) + rng.uniform(-1, 1, len(q)) * sensors.stamp_jitter) * 1e9)
    readings = np.round(q / sensors.position_resolution) * sensors.position_resolution
    plan = plan_velocity(ROBOT, period)
    estimate = VelocityEstimate(plan, period)
    errors = np.array(
        [estimate.update(int(s), r) - w for s, r, w in zip(stamps + 10**9, readings, v, strict=True)]
    )  # fmt: skip
    assert (np.abs(errors) <= plan.error * (1.0 + 1e-3)).all()
    if kind == "bang":
        assert (np.abs(errors).max(axis=0) > 0.25 * plan.error).all()  # or the motions are too tame


def test_the_bound_is_reached():
    """Largest acceleration throughout, readings at the ends of their steps, stamps wrong: no smaller bound would do."""
    robot = replace(ROBOT, sensors=replace(ROBOT.sensors, stamp_jitter=0.0))
    plan, period = plan_velocity(robot, 0.001), 0.001
    limit, half = largest_acceleration(robot), 0.5 * robot.sensors.position_resolution
    k = plan.periods
    assert len(set(k)) == 1
    times = np.arange(k[0] + 1) * period
    v = limit * times[-1]
    readings = 0.5 * limit * times[:, None] ** 2
    readings[0] += half
    readings[-1] -= half
    estimate = VelocityEstimate(plan, period)
    for t, reading in zip(times, readings, strict=True):
        found = estimate.update(round(t * 1e9) + 10**9, reading)
    np.testing.assert_allclose(v - found, plan.error, rtol=1e-9)


def test_the_averaging_time_is_the_best_and_close_to_landaus_optimum():
    robot = replace(ROBOT, sensors=replace(ROBOT.sensors, stamp_jitter=0.0))
    reading, limit = 0.5 * robot.sensors.position_resolution, largest_acceleration(robot)
    optimum = 2.0 * np.sqrt(reading * limit)
    plan = plan_velocity(robot, 1e-5)
    np.testing.assert_allclose(plan_velocity(robot, 2.0 * np.sqrt(reading / limit)[0]).error[0], optimum[0], rtol=1e-9)
    assert (plan.error >= optimum * (1 - 1e-12)).all()


def test_a_missing_reading_lengthens_the_time_it_is_averaged_over():
    estimate = VelocityEstimate(plan_velocity(ROBOT, 0.002), 0.002)
    v = np.linspace(0.1, 0.7, 7)
    for k in [0, 1, 2, 3, 6, 7, 8]:
        found = estimate.update(10**9 + k * 2_000_000, v * k * 0.002)
        if k > 2:
            np.testing.assert_allclose(found, v, rtol=1e-6)


def test_at_the_start_the_arm_is_taken_to_have_rested():
    estimate = VelocityEstimate(plan_velocity(ROBOT, 0.002), 0.002)
    np.testing.assert_array_equal(estimate.update(10**9, ROBOT.home), np.zeros(7))
    estimate.update(10**9 + 2_000_000, ROBOT.home + 1e-3)
    estimate.reset()
    np.testing.assert_array_equal(estimate.update(10**9 + 4_000_000, ROBOT.home + 2e-3), np.zeros(7))


@pytest.mark.parametrize("name", ["iiwa7", "iiwa14", "med7", "med14"])
@pytest.mark.parametrize("period", [0.001, 0.002])
def test_shipped_robots_allow_for_what_is_guaranteed(name, period):
    robot = load_textbook(f"kuka_lbr_{name}")
    plan = require_velocity_error(robot, period)
    assert (plan.error > 0.7 * robot.sensors.velocity_error).all()  # and not for much more


def test_settings_that_promise_more_are_refused_with_what_to_write():
    robot = replace(ROBOT, sensors=replace(ROBOT.sensors, velocity_error=0.5 * ROBOT.sensors.velocity_error))
    with pytest.raises(ParameterOutOfRange, match=r"velocity_error of lbr_A\d.*every 1 ms; set \[0.0"):
        require_velocity_error(robot, 0.001)
    with pytest.raises(ParameterOutOfRange, match="period"):
        plan_velocity(ROBOT, 0.0)


def test_it_is_told_which_velocities_reach_across_a_gap():
    period, step = 0.001, 1_000_000
    averaged = VelocityPlan(np.array([1, 3, 2]), np.ones(3))
    estimate = VelocityEstimate(averaged, period)
    told = []
    for k in [0, 1, 2, 4, 5, 6, 7, 8]:
        estimate.update(10**9 + k * step, np.zeros(3))
        told.append(estimate.is_exact)
    assert told == [True, True, True, False, False, False, True, True]
    estimate.update(10**9 + 9 * step, np.zeros(3), is_next=False)  # the stamps do not show it
    assert not estimate.is_exact
    estimate.reset()
    estimate.update(10**9 + 30 * step, np.zeros(3))
    assert estimate.is_exact


def test_velocities_across_a_gap_can_be_worse_than_the_bound():
    period = 0.001
    plan, limit = plan_velocity(ROBOT, period), largest_acceleration(ROBOT)
    estimate, wrong = VelocityEstimate(plan, period), []
    for k in [0, 1, 2, 3, 6, 7]:  # the largest acceleration throughout
        t = k * period
        found = estimate.update(10**9 + round(1e9 * t), 0.5 * limit * t**2)
        wrong.append((np.abs(found - limit * t) > plan.error).any())
        assert estimate.is_exact != wrong[-1]
    assert wrong == [False, False, False, False, True, False]
