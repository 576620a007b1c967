import numpy as np
import pytest

from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.reference import Reference, fade_out

PERIOD = 0.001
START = np.array([0.1, -0.4])


def trajectory(start=START):
    return BezierTrajectory(start, np.zeros(2), np.zeros(2), start + [0.8, -0.5], 1.0)


def advance(reference, cycles):
    rows = []
    for _ in range(cycles):
        reference.advance(PERIOD)
        rows.append(np.concatenate([reference.q, reference.v, reference.a]))
    return np.array(rows)


def require_consistent(rows, before):
    """Velocity and acceleration are the derivatives of the position, also where the source changes."""
    q = np.vstack([before, rows[:, :2]])
    v = np.vstack([np.zeros(2), rows[:, 2:4]])
    a = np.vstack([np.zeros(2), rows[:, 4:]])
    np.testing.assert_allclose(np.diff(q, axis=0), PERIOD * 0.5 * (v[1:] + v[:-1]), atol=2e-7)
    np.testing.assert_allclose(np.diff(v, axis=0), PERIOD * 0.5 * (a[1:] + a[:-1]), atol=2e-4)


def test_rest_stays():
    reference = Reference(START, 0.2)
    rows = advance(reference, 5)
    np.testing.assert_array_equal(rows[:, :2], np.tile(START, (5, 1)))
    assert not rows[:, 2:].any() and reference.is_finished and reference.progress == 1.0


def test_a_trajectory_is_followed_to_its_end():
    reference = Reference(START, 0.2)
    reference.follow(trajectory())
    assert not reference.is_finished
    rows = advance(reference, 1000)
    assert reference.is_finished and reference.progress == 1.0
    np.testing.assert_allclose(reference.q, trajectory().end, atol=1e-12)
    np.testing.assert_allclose(rows[499, :2], trajectory().evaluate(0.5)[0], atol=1e-12)
    require_consistent(rows, START)


def test_a_start_offset_fades_out_without_a_jump():
    reference = Reference(START, 0.2)
    reference.follow(trajectory(START + [0.002, -0.001]))
    rows = advance(reference, 1000)
    require_consistent(rows, START)
    np.testing.assert_allclose(reference.q, START + [0.802, -0.501], atol=1e-12)
    np.testing.assert_allclose(rows[300, :2], trajectory(START + [0.002, -0.001]).evaluate(0.301)[0], atol=1e-12)


@pytest.mark.parametrize("when", [3, 150, 480, 990])
def test_braking_stays_on_the_path_and_ends_at_rest(when):
    reference = Reference(START, 0.2)
    path = trajectory(START + [0.001, 0.0])
    reference.follow(path)
    rows = advance(reference, when)
    reference.brake(0.25)
    rows = np.vstack([rows, advance(reference, 260)])
    require_consistent(rows, START)
    assert reference.is_finished and not reference.v.any()
    _, v, _ = path.evaluate(when * PERIOD)
    np.testing.assert_allclose(reference.path, path.evaluate(when * PERIOD + 0.125)[0], atol=1e-9)
    assert np.all(np.abs(rows[when:, 2:4]) <= np.abs(path.sample(np.linspace(0, 1, 500))[1]).max(axis=0) + 1e-9)


def test_braking_twice_does_not_start_again():
    reference = Reference(START, 0.2)
    reference.follow(trajectory())
    advance(reference, 300)
    reference.brake(0.25)
    advance(reference, 200)
    reference.brake(0.25)
    advance(reference, 51)
    assert reference.is_finished


def test_fade_out_and_its_derivatives():
    assert fade_out(0.0) == (1.0, 0.0, 0.0)
    np.testing.assert_allclose(fade_out(1.0), 0.0, atol=1e-12)
    h = 1e-5
    for x in np.linspace(0.05, 0.95, 7):
        low, middle, high = fade_out(x - h), fade_out(x), fade_out(x + h)
        assert (high[0] - low[0]) / (2 * h) == pytest.approx(middle[1], abs=1e-8)
        assert (high[1] - low[1]) / (2 * h) == pytest.approx(middle[2], abs=1e-7)
