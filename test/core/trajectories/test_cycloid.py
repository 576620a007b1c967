"""Cycloids: derivatives by finite differences, extrema that are reached and never exceeded."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.trajectories.braking import BrakedTrajectory, trajectory_from_dict
from sysid_ros.core.trajectories.families import CycloidTrajectory


@pytest.fixture
def motion():
    return CycloidTrajectory(np.random.default_rng(0).normal(size=(6, 3)), 0.8)


def test_velocity_and_acceleration_are_derivatives(motion):
    times, step = np.random.default_rng(1).uniform(0.01, motion.duration - 0.01, 200), 1e-6
    _, v, a = motion.sample(times)
    (before, v_before, _), (after, v_after, _) = motion.sample(times - step), motion.sample(times + step)
    np.testing.assert_allclose(v, (after - before) / (2 * step), atol=1e-7)
    # The third derivative jumps at knots; none of the times is that near to one.
    np.testing.assert_allclose(a, (v_after - v_before) / (2 * step), atol=1e-5)


def test_extrema_are_exact(motion):
    q, v, a = motion.sample(np.linspace(0.0, motion.duration, 40001))
    for values, (lower, upper) in (
        (q, motion.position_extrema()),
        (v, motion.velocity_extrema()),
    ):
        assert np.all(values >= lower - 1e-12)
        assert np.all(values <= upper + 1e-12)
        np.testing.assert_allclose([values.min(axis=0), values.max(axis=0)], [lower, upper], atol=1e-6)
    np.testing.assert_allclose(np.abs(a).max(axis=0), motion.acceleration_extrema()[1], rtol=1e-6)


def test_it_rests_at_knots_and_outside(motion):
    times = motion.period * np.arange(6)
    q, v, a = motion.sample(times)
    np.testing.assert_allclose(q, motion.knots, atol=1e-12)
    assert np.abs(v).max() < 1e-12
    assert np.abs(a).max() < 1e-12
    for t, knot in ((-1.0, 0), (100.0, -1)):
        q, v, a = motion.evaluate(t)
        np.testing.assert_allclose(q, motion.knots[knot], atol=1e-12)
        assert not v.any() or np.abs(v).max() < 1e-12


def test_every_interval_turns_one_way(motion):
    for k in range(motion.intervals):
        _, v, _ = motion.sample(np.linspace(k, k + 1, 50)[1:-1] * motion.period)
        assert np.all(np.sign(v) == np.sign(motion.knots[k + 1] - motion.knots[k]))


@pytest.mark.parametrize("is_flat", [False, True])
@pytest.mark.parametrize("is_braked", [False, True])
def test_round_trip_keeps_hash_and_values(motion, is_flat, is_braked):
    sent = BrakedTrajectory(motion, 1.3, 0.7) if is_braked else motion
    numbers = {name: value.ravel() if is_flat else value for name, value in sent.coefficients.items()}
    received = trajectory_from_dict(
        sent.kind, sent.duration, json.loads(json.dumps(numbers, default=np.ndarray.tolist))
    )
    assert type(received) is type(sent) and received.hash() == sent.hash()
    times = np.linspace(-0.1, sent.duration + 0.1, 50)
    for one, other in zip(received.sample(times), sent.sample(times), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"duration": 4.1}, r"duration \[s\] 4.1: expected a whole number of periods of 0.8 s"),
        ({"duration": 3.2}, r"shape of knots \(6, 3\): expected \(5, n\)"),
        ({"duration": np.inf}, "duration .* inf"),
        ({"period": [0.0]}, r"a whole number of periods of 0.0 s"),
        ({"period": [0.8, 0.8]}, "number of entries of period 2: expected 1"),
        ({"knots": np.zeros(17)}, r"shape of knots \(17,\): expected \(6, n\)"),
        ({"knots": np.full((6, 3), np.nan)}, "knot 0 of joint 1 nan"),
    ],
)
def test_messages_that_make_no_cycloid(motion, change, text):
    parts = {"duration": motion.duration, **motion.coefficients, **change}
    duration = parts.pop("duration")
    with pytest.raises(ParameterOutOfRange, match=text):
        trajectory_from_dict("cycloid", duration, parts)


@pytest.mark.parametrize(
    ("knots", "period", "text"),
    [
        ([[0.0, 1.0]], 1.0, "shape of knots"),
        ([[0.0], [np.nan]], 1.0, "knot 1 of joint 1 nan"),
        ([[0.0], [1.0]], 0.0, r"period \[s\] 0"),
    ],
)
def test_input_that_cannot_be_used(knots, period, text):
    with pytest.raises(ParameterOutOfRange, match=text):
        CycloidTrajectory(knots, period)
