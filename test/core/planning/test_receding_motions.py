"""Motions as affine functions of their ends, and the ends that limits allow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from sysid_ros.core.planning.motions import (
    MotionBasis,
    StateLimits,
    allowed_ends,
    end_intervals,
    minimum_acceleration_offset,
)
from sysid_ros.core.trajectories.families import BezierTrajectory

DURATION, TAKE_OVER = 3.0, 1.5


@pytest.fixture
def limits(gen3):
    unlimited = np.isfinite(gen3.limits.q_lower)
    lower, upper = np.where(unlimited, -0.6, -np.inf), np.where(unlimited, 2.0, np.inf)
    return StateLimits(lower, upper, gen3.limits.v_max, gen3.limits.a_max)


def respects(trajectory: BezierTrajectory, limits: StateLimits) -> np.ndarray:
    """Which joints keep their limits, by the exact extrema of the trajectory."""
    lower, upper = trajectory.position_extrema()
    slow, fast = trajectory.velocity_extrema()
    least, most = trajectory.acceleration_extrema()
    tolerance = 1e-9
    kept = (lower >= limits.q_lower - tolerance) & (upper <= limits.q_upper + tolerance)
    kept &= np.maximum(-slow, fast) <= limits.v_max + tolerance
    return kept & (np.maximum(-least, most) <= limits.a_max + tolerance)


def test_states_are_those_of_the_bezier_trajectory():
    rng = np.random.default_rng(0)
    start, x = tuple(rng.normal(size=(3, 7))), rng.normal(size=(4, 7))
    times = np.linspace(0.0, DURATION, 9)[:-1]
    states = MotionBasis.of(start, DURATION, times).states(x)
    for index, end in enumerate(x):
        expected = BezierTrajectory(*start, start[0] + end, DURATION).sample(times)
        for got, wanted in zip(states, expected, strict=True):
            np.testing.assert_allclose(got.reshape(4, 8, 7)[index], wanted, atol=1e-12)


def test_continuation_goes_on_from_the_state_at_take_over_to_the_same_end():
    rng = np.random.default_rng(1)
    start, x = tuple(rng.normal(size=(3, 7))), rng.normal(size=7)
    first = BezierTrajectory(*start, start[0] + x, DURATION)
    second = BezierTrajectory(*first.evaluate(TAKE_OVER), first.q1, DURATION)
    times = np.linspace(0.0, DURATION, 9)[:-1]
    states = MotionBasis.continuation(start, DURATION, TAKE_OVER, times).states(x[None])
    for got, wanted in zip(states, second.sample(times), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-12)


def test_minimum_acceleration_stop_has_the_least_squared_acceleration():
    rng = np.random.default_rng(2)
    start = tuple(rng.normal(size=(3, 7)))
    found = minimum_acceleration_offset(start, DURATION)
    times = np.linspace(0.0, DURATION, 2001)
    for joint in range(7):

        def effort(offset, joint=joint):
            end = start[0] + found
            end[joint] = start[0][joint] + offset
            return np.trapezoid(BezierTrajectory(*start, end, DURATION).sample(times[:-1])[2][:, joint] ** 2)

        assert minimize_scalar(effort).x == pytest.approx(found[joint], abs=1e-3)


@pytest.mark.parametrize("tight", [{"v_max": 1.2}, {"a_max": 1.5}, {}])
def test_ends_inside_the_interval_keep_the_limits_and_ends_outside_break_them(limits, moving_start, tight):
    q0, v0, a0 = moving_start
    limits = replace(limits, **{name: np.full(7, value) for name, value in tight.items()})
    lower, upper = end_intervals((q0, v0, a0), limits, DURATION)
    assert np.all(lower < upper)
    width = upper - lower
    for share in (0.002, 0.3, 0.998):
        inside = BezierTrajectory(q0, v0, a0, q0 + lower + share * width, DURATION)
        assert respects(inside, limits).all()
    for end in (q0 + lower - 0.01, q0 + upper + 0.01):
        assert not respects(BezierTrajectory(q0, v0, a0, end, DURATION), limits).any()


def test_a_joint_that_cannot_stop_in_time_has_no_end(limits):
    q0, v0 = np.zeros(7), np.zeros(7)
    q0[1], v0[1] = 1.9, 1.2
    lower, upper = end_intervals((q0, v0, np.zeros(7)), limits, DURATION)
    assert list(lower > upper) == [False, True, False, False, False, False, False]


def test_limits_leave_a_next_plan_a_motion(limits):
    """Not asked for when ends are chosen, because it is always so."""
    rng = np.random.default_rng(4)
    looked_at = 0
    for _ in range(40):
        start = rng.uniform(-0.6, 2.0, 7), rng.uniform(-1.2, 1.2, 7), rng.uniform(-2.0, 2.0, 7)
        lower, upper = allowed_ends(start, limits, limits, DURATION, np.full(7, 2.0))
        usable = lower <= upper
        looked_at += usable.sum()
        for end in (lower, upper):
            trajectory = BezierTrajectory(*start, start[0] + np.where(usable, end, 0.0), DURATION)
            next_lower, next_upper = end_intervals(trajectory.evaluate(TAKE_OVER), limits, DURATION)
            assert np.all((next_lower <= next_upper + 1e-9)[usable])
    assert looked_at > 100


def test_reach_limits_the_distance_from_the_end_of_the_minimum_acceleration_stop(limits, moving_start):
    lower, upper = allowed_ends(moving_start, limits, limits, DURATION, np.full(7, 0.1))
    assert np.all(upper - lower <= 0.2 + 1e-12)
    middle = minimum_acceleration_offset(moving_start, DURATION)
    allowed = end_intervals(moving_start, limits, DURATION)
    is_allowed = (allowed[0] <= middle) & (middle <= allowed[1])
    assert np.array_equal((lower <= middle) & (middle <= upper), is_allowed) and 0 < is_allowed.sum() < 7


def test_ends_keep_what_is_preferred_where_they_can(limits):
    """All the way in free space, at the end when starting too close to a limit, not at all beyond it."""
    q0 = np.zeros(7)
    joints = np.flatnonzero(np.isfinite(limits.q_upper))[:3]
    q0[joints] = 1.0, 1.99, 2.0
    preferred = replace(limits, q_upper=limits.q_upper - 0.02)
    rest = np.zeros(7)
    lower, upper = allowed_ends((q0, rest, rest), limits, preferred, DURATION, np.full(7, 2.0))
    assert np.all(lower < upper)
    np.testing.assert_allclose((q0 + upper)[joints], 1.98)
    tight = replace(limits, q_upper=np.full(7, 1.985), q_lower=np.full(7, 1.975))
    barely = replace(tight, q_upper=np.full(7, 1.97))
    q0 = np.full(7, 1.98)
    lower, upper = allowed_ends((q0, rest, rest), tight, barely, DURATION, np.full(7, 2.0))
    np.testing.assert_allclose([q0 + lower, q0 + upper], [np.full(7, 1.975), np.full(7, 1.985)])
