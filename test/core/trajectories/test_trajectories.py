"""All trajectories: derivatives, ends, bounds over time, hashes, the way over the wire, and what they refuse."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.trajectories.braking import BrakedTrajectory, trajectory_from_dict
from sysid_ros.core.trajectories.families import BezierTrajectory, FourierTrajectory, rest_projection

N = 7
SEEDS = range(4)
ZERO, ONES = np.zeros(N), np.ones(N)


@pytest.mark.parametrize("seed", SEEDS)
def test_velocity_and_acceleration_are_derivatives(make_trajectory, seed):
    trajectory = make_trajectory(seed)
    h = 1e-5
    times = np.linspace(0.02, trajectory.duration - 0.02, 301)
    (q_after, v_after, _), (q_before, v_before, _) = trajectory.sample(times + h), trajectory.sample(times - h)
    _, v, a = trajectory.sample(times)
    np.testing.assert_allclose((q_after - q_before) / (2 * h), v, atol=1e-7)
    np.testing.assert_allclose((v_after - v_before) / (2 * h), a, atol=1e-5)


def test_evaluate_and_sample_agree_everywhere(make_trajectory):
    trajectory = make_trajectory(0)
    times = np.concatenate([[-1.0, -1e-9, 0.0], np.linspace(0.0, trajectory.duration, 57), [trajectory.duration + 3.0]])
    single = [np.stack(parts) for parts in zip(*(trajectory.evaluate(float(t)) for t in times), strict=True)]
    for one, many in zip(single, trajectory.sample(times), strict=True):
        np.testing.assert_allclose(one, many, rtol=0, atol=1e-12)


def test_it_rests_before_and_after(make_trajectory):
    trajectory = make_trajectory(1)
    for time, position in ((-0.5, trajectory.start), (trajectory.duration, trajectory.end), (99.0, trajectory.end)):
        q, v, a = trajectory.evaluate(time)
        np.testing.assert_allclose(q, position, rtol=0, atol=1e-15)
        assert not v.any() and not a.any()


def test_it_comes_to_rest_smoothly(make_trajectory):
    trajectory = make_trajectory(2)
    q, v, a = trajectory.evaluate(trajectory.duration - 1e-6)
    np.testing.assert_allclose(q, trajectory.end, atol=1e-5)
    np.testing.assert_allclose(v, 0.0, atol=1e-4)
    np.testing.assert_allclose(a, 0.0, atol=1e-3)


@pytest.mark.parametrize("seed", SEEDS)
def test_bounds_over_time_hold_and_are_tight(make_trajectory, seed):
    trajectory = make_trajectory(seed)
    states = trajectory.sample(np.linspace(0.0, trajectory.duration, 20001))
    bounds = trajectory.position_extrema(), trajectory.velocity_extrema(), trajectory.acceleration_extrema()
    for values, (lower, upper) in zip(states, bounds, strict=True):
        assert np.all(lower <= values.min(axis=0)) and np.all(values.max(axis=0) <= upper)
        if not isinstance(trajectory, BrakedTrajectory):
            reach = 1e-4 * (1.0 + np.abs(values).max(axis=0))
            assert np.all(values.min(axis=0) - lower < reach) and np.all(upper - values.max(axis=0) < reach)


@pytest.mark.parametrize("seed", SEEDS)
def test_bezier_extrema_are_those_of_the_dense_polynomial(make_bezier, seed):
    trajectory = make_bezier(seed)
    control = trajectory.control_points
    lower, upper = trajectory.position_extrema()
    assert np.all(control.min(axis=0) <= lower + 1e-9) and np.all(upper <= control.max(axis=0) + 1e-9)
    dense = trajectory.sample(np.linspace(0.0, trajectory.duration, 200001))[0]
    np.testing.assert_allclose(lower, dense.min(axis=0), atol=1e-9)
    np.testing.assert_allclose(upper, dense.max(axis=0), atol=1e-9)


@pytest.mark.parametrize(
    ("q1", "v0", "a0"), [(ZERO, ZERO, ZERO), (ONES, ZERO, ZERO), (ZERO, 1e-13 * ONES, ZERO), (1e-8 * ONES, ZERO, ONES)]
)
def test_bezier_extrema_of_degenerate_polynomials(q1, v0, a0):
    trajectory = BezierTrajectory(ZERO, v0, a0, q1, 2.0)
    q = trajectory.sample(np.linspace(0.0, 2.0, 10001))[0]
    lower, upper = trajectory.position_extrema()
    np.testing.assert_allclose([lower, upper], [q.min(axis=0), q.max(axis=0)], atol=1e-8)
    assert np.all(lower <= q.min(axis=0)) and np.all(q.max(axis=0) <= upper)


def test_bezier_meets_its_boundary_conditions():
    rng = np.random.default_rng(5)
    q0, v0, a0, q1 = rng.normal(size=(4, N))
    trajectory = BezierTrajectory(q0, v0, a0, q1, 3.0)
    for value, wanted in zip(trajectory.evaluate(0.0), (q0, v0, a0), strict=True):
        np.testing.assert_allclose(value, wanted, atol=1e-12)
    np.testing.assert_array_equal(trajectory.end, q1)


def test_fourier_is_the_series(make_fourier):
    trajectory = make_fourier(3)
    t, omega = 1.234, 2 * np.pi * 0.2 * np.arange(1, 6)
    a, b = trajectory.sine, trajectory.cosine
    expected = trajectory.q_start + (a / omega * np.sin(omega * t) + b / omega * (1 - np.cos(omega * t))).sum(axis=1)
    np.testing.assert_allclose(trajectory.evaluate(t)[0], expected, atol=1e-13)


@pytest.mark.parametrize("seed", SEEDS)
def test_braking_stays_on_the_path_and_within_its_bounds(make_fourier, seed):
    path, brake_time = make_fourier(seed), 0.7
    braked = BrakedTrajectory(path, 1.3, brake_time)
    before = np.linspace(0.0, 1.3, 50, endpoint=False)
    for one, other in zip(braked.sample(before), path.sample(before), strict=True):
        np.testing.assert_array_equal(one, other)
    q, v, a = braked.sample(np.linspace(1.3, 1.3 + brake_time, 400))
    on_path = path.sample(np.linspace(1.3, 1.3 + 0.5 * brake_time, 40001))[0]
    assert max(np.abs(on_path - point).max(axis=1).min() for point in q[::20]) < 1e-4
    v_max, a_max = (np.maximum(-low, high) for low, high in (path.velocity_extrema(), path.acceleration_extrema()))
    assert np.all(np.abs(v) <= v_max)
    assert np.all(np.abs(a) <= a_max + 1.5 * v_max / brake_time)
    np.testing.assert_allclose(braked.end, path.evaluate(1.3 + 0.5 * brake_time)[0])


def test_braking_has_no_jump_of_the_acceleration(make_fourier):
    braked = BrakedTrajectory(make_fourier(0), 2.0, 0.4)
    for time in (2.0, 2.4):
        before, after = (braked.evaluate(time + step) for step in (-1e-7, 1e-7))
        for one, other in zip(before, after, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-4)


# Over the wire


@pytest.mark.parametrize("is_flat", [False, True])
def test_round_trip_keeps_hash_and_values(make_trajectory, is_flat):
    trajectory = make_trajectory(0)
    coefficients = {name: value.ravel() if is_flat else value for name, value in trajectory.coefficients.items()}
    copy = trajectory_from_dict(trajectory.kind, trajectory.duration, coefficients)
    assert copy.hash() == trajectory.hash() and type(copy) is type(trajectory)
    for one, other in zip(copy.evaluate(0.7), trajectory.evaluate(0.7), strict=True):
        np.testing.assert_array_equal(one, other)


def test_hash_changes_with_every_coefficient_and_the_duration(make_trajectory):
    trajectory = make_trajectory(0)
    hashes = {trajectory.hash()}
    free = [name for name in trajectory.coefficients if name not in ("base_frequency", "sine", "cosine")]  # see below
    for name in free:
        changed = trajectory.coefficients[name].copy()
        changed.flat[-1] = np.nextafter(changed.flat[-1], np.inf)
        copy = trajectory_from_dict(trajectory.kind, trajectory.duration, {**trajectory.coefficients, name: changed})
        hashes.add(copy.hash())
    if trajectory.kind == "bezier":
        longer = np.nextafter(trajectory.duration, 9.0)
        hashes.add(trajectory_from_dict(trajectory.kind, longer, trajectory.coefficients).hash())
    assert len(hashes) == len(free) + 1 + (trajectory.kind == "bezier")
    assert all(len(one) == 64 for one in hashes)


def test_hash_of_a_series_changes_with_its_coefficients_and_period(make_fourier):
    one = make_fourier(0)
    more = [
        FourierTrajectory(one.q_start, 1.001 * one.sine, one.cosine, 0.2, 5.0),
        FourierTrajectory(one.q_start, one.sine, 1.001 * one.cosine, 0.2, 5.0),
        FourierTrajectory(one.q_start, one.cosine * 0.0, one.cosine, 0.2, 5.0),
        FourierTrajectory(one.q_start, one.sine, one.cosine, 0.2, 10.0),
        FourierTrajectory(one.q_start, one.sine, one.cosine, 0.4, 5.0),
    ]
    assert len({trajectory.hash() for trajectory in (one, *more)}) == 6


def test_hash_is_the_same_in_another_process(make_bezier):
    code = (
        "import numpy as np; from sysid_ros.core.trajectories.braking import BezierTrajectory as B;"
        "print(B(*np.arange(28.0).reshape(4, 7) / 3, duration=2.5).hash())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    here = BezierTrajectory(*np.arange(28.0).reshape(4, 7) / 3, duration=2.5).hash()
    assert other == here == "0e4ee92ead5d0fb4468d77e950bca19ab0897bba3c12b2c5a0a31dc650ebed1b"


def test_minus_zero_is_zero():
    assert (
        BezierTrajectory(ZERO, ZERO, ZERO, ONES, 1.0).hash() == BezierTrajectory(-ZERO, ZERO, -ZERO, ONES, 1.0).hash()
    )


def test_coefficients_are_read_only(make_trajectory):
    for value in make_trajectory(0).coefficients.values():
        if value.size > 1:
            with pytest.raises(ValueError, match="read-only"):
                value[0] = 1.0


# What is refused

SINE_BASIS, COSINE_BASIS = rest_projection(3)
SINE, COSINE = np.tile(SINE_BASIS[:, 0], (N, 1)), np.tile(COSINE_BASIS[:, 0], (N, 1))


def with_entry(value: float, shape: tuple[int, ...] = (N,)) -> np.ndarray:
    array = np.zeros(shape)
    array.flat[2] = value
    return array


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: BezierTrajectory(with_entry(np.nan), ZERO, ZERO, ZERO, 1.0),
            r"q0 \[rad\] of joint 3 nan: .* finite",
        ),
        (lambda: BezierTrajectory(ZERO, with_entry(np.inf), ZERO, ZERO, 1.0), r"v0 \[rad/s\] of joint 3 inf"),
        (lambda: BezierTrajectory(ZERO, ZERO, with_entry(np.nan), ZERO, 1.0), r"a0 \[rad/s\^2\] of joint 3"),
        (lambda: BezierTrajectory(ZERO, ZERO, ZERO, with_entry(-np.inf), 1.0), r"q1 \[rad\] of joint 3 -inf"),
        (lambda: BezierTrajectory(ZERO, ZERO[:6], ZERO, ZERO, 1.0), r"shape of v0 \[rad/s\] \(6,\): expected 7"),
        (lambda: BezierTrajectory(ZERO[None], ZERO, ZERO, ZERO, 1.0), r"shape of q0 .* one number per joint"),
        (lambda: BezierTrajectory(ZERO, ZERO, ZERO, ZERO, 0.0), r"duration \[s\] 0.0: expected .* above 0"),
        (lambda: BezierTrajectory(ZERO, ZERO, ZERO, ZERO, np.nan), r"duration \[s\] nan"),
        (lambda: FourierTrajectory(ZERO, with_entry(np.nan, (N, 3)), COSINE, 1.0, 1.0), "joint 1, harmonic 3 nan"),
        (lambda: FourierTrajectory(ZERO, SINE[:6], COSINE, 1.0, 1.0), r"shape of sine .* \(6, 3\)"),
        (lambda: FourierTrajectory(ZERO, SINE[:, :2], COSINE, 1.0, 1.0), r"shape of cosine \(7, 3\): .* \(7, 2\)"),
        (lambda: FourierTrajectory(ZERO, SINE, COSINE, 0.0, 1.0), "base_frequency"),
        (
            lambda: FourierTrajectory(ZERO, SINE, COSINE, 1.0, 1.5),
            "duration in periods 1.5: expected a whole number",
        ),
        (
            lambda: FourierTrajectory(ZERO, SINE + with_entry(0.1, (N, 3)), COSINE, 1.0, 1.0),
            "start velocity .* joint 1",
        ),
        (lambda: FourierTrajectory(ZERO, SINE, COSINE + with_entry(0.1, (N, 3)), 1.0, 1.0), "start acceleration"),
        (lambda: rest_projection(1), "harmonics 1: expected at least 2"),
        (lambda: trajectory_from_dict("spline", 1.0, {}), "kind 'spline': expected one of bezier, fourier, cycloid"),
        (
            lambda: trajectory_from_dict("bezier", 1.0, {"q0": ZERO}),
            r"coefficients \['q0'\]: expected exactly q0, v0, a0, q1",
        ),
        (lambda: trajectory_from_dict("braked:bezier", 1.0, {"q0": ZERO}), "number of entries of path_duration 0"),
        (
            lambda: trajectory_from_dict(
                "fourier", 1.0, {"q_start": ZERO, "sine": SINE, "cosine": COSINE, "base_frequency": [1.0, 2.0]}
            ),
            "number of entries of base_frequency 2: expected 1",
        ),
    ],
)
def test_bad_coefficients_are_refused(make, message):
    with pytest.raises(ParameterOutOfRange, match=message):
        make()


@pytest.mark.parametrize(("t_brake", "brake_time"), [(-0.1, 0.5), (9.0, 0.5), (np.nan, 0.5), (0.5, 0.0), (0.5, np.inf)])
def test_bad_brake_times_are_refused(make_bezier, t_brake, brake_time):
    with pytest.raises(ParameterOutOfRange, match=r"(t_brake|brake_time) \[s\]"):
        BrakedTrajectory(make_bezier(0), t_brake, brake_time)
