import numpy as np
import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.windows.samples import InvalidSamples, differentiate_positions


def motion(t):
    w, p = np.array([2.0, 5.0, 9.0]), np.array([0.0, 1.0, 2.0])
    return np.sin(np.multiply.outer(t, w) + p), w * np.cos(np.multiply.outer(t, w) + p), w**3


@pytest.mark.parametrize(("error", "jitter"), [(1e-5, 0.0), (1e-3, 0.0), (1e-5, 2e-4)])
def test_the_error_bound_holds_and_is_not_far_off(error, jitter):
    rng = np.random.default_rng(0)
    stamps = np.arange(500) * 0.01
    worst = np.zeros(3)
    for trial in range(30):
        times = stamps + jitter * rng.choice([-1, 1], 500)
        q, v, jerk = motion(times)
        measured = q + error * (rng.choice([-1, 1], q.shape) if trial % 2 else np.sign(np.sin(1e3 * stamps))[:, None])
        result = differentiate_positions(stamps, measured, error, jerk, jitter)
        m = result.half_width
        actual = np.max(np.abs(result.v - v[m:-m]), axis=0)
        assert np.all(actual <= result.error)
        worst = np.maximum(worst, actual / result.error)
    assert worst.max() > 0.25


def test_irregular_stamps_and_parabolas_are_exact():
    rng = np.random.default_rng(1)
    times = np.cumsum(rng.uniform(0.005, 0.02, 60))
    q = np.stack([1 + 2 * times, 3 - times + 0.5 * times**2], axis=1)
    result = differentiate_positions(times, q, 0.0, 0.0, half_width=3)
    np.testing.assert_allclose(result.v, np.stack([2 + 0 * times, times - 1], axis=1)[3:-3], atol=1e-9)
    np.testing.assert_allclose(result.error, 0.0, atol=1e-12)


def test_noise_asks_for_more_samples_and_jerk_for_fewer():
    times = np.arange(200) * 0.01
    q, _, jerk = motion(times)
    widths = [differentiate_positions(times, q, error, jerk).half_width for error in (1e-6, 1e-4, 1e-2)]
    assert widths == sorted(widths) and widths[0] < widths[-1]


def test_a_jerk_bound_that_is_too_small_is_what_the_bound_rests_on():
    times = np.arange(200) * 0.01
    q, v, jerk = motion(times)
    result = differentiate_positions(times, q, 0.0, 0.3 * jerk, half_width=5)
    assert np.any(np.abs(result.v - v[5:-5]) > result.error)


def test_bad_input():
    times, q = np.arange(10) * 0.01, np.zeros((10, 2))
    with pytest.raises(InvalidSamples, match="increasing"):
        differentiate_positions(times[::-1], q, 1e-5, 1.0)
    with pytest.raises(InvalidSamples, match="at least 3"):
        differentiate_positions(times[:2], q[:2], 1e-5, 1.0)
    with pytest.raises(ParameterOutOfRange, match="half_width"):
        differentiate_positions(times, q, 1e-5, 1.0, half_width=0)
