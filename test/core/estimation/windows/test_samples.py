import numpy as np
import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.windows.samples import (
    InvalidSamples,
    SampleBlock,
    differentiate_positions,
    split_into_blocks,
)


def arrays(count=6, n=3):
    stamps = np.arange(count, dtype=np.int64) * 1_000_000
    values = np.arange(count * n, dtype=float).reshape(count, n)
    return [stamps, np.arange(count), values, values + 100, values - 100]


def test_fields_are_frozen_copies():
    data = arrays()
    block = SampleBlock(*data)
    data[2][0, 0] = 99.0
    assert block.q[0, 0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        block.v[0, 0] = 1.0
    assert (len(block), block.n) == (6, 3)
    np.testing.assert_allclose(block.seconds, np.arange(6) * 1e-3)


def test_slices_and_concatenation_are_inverse():
    block = SampleBlock(*arrays())
    again = SampleBlock.concatenate([block.slice(0, 2), block.slice(2, 2), block.slice(2)])
    for name in ("stamps", "sequence", "q", "v", "tau"):
        np.testing.assert_array_equal(getattr(again, name), getattr(block, name))
    assert len(SampleBlock.empty(3)) == 0


@pytest.mark.parametrize(
    ("field", "change", "text"),
    [
        (3, lambda a: a[:, :2], r"v has shape \(6, 2\), but q has shape \(6, 3\)"),
        (2, lambda a: a.ravel(), r"q must have shape \(N, n\)"),
        (4, lambda a: np.where(a == a[4, 1], np.nan, a), "tau is not finite at sample 4, joint 1"),
        (0, lambda a: a[::-1], "stamps must increase"),
        (1, lambda a: np.zeros_like(a), "sequence must increase, but entry 1 is 0 after 0"),
        (0, lambda a: a * 1e-9, "stamps must be integers"),
    ],
)
def test_faulty_blocks_are_refused(field, change, text):
    data = arrays()
    data[field] = change(data[field])
    with pytest.raises(InvalidSamples, match=text):
        SampleBlock(*data)


def test_blocks_that_overlap_or_differ_are_not_joined():
    block = SampleBlock(*arrays())
    with pytest.raises(InvalidSamples, match="stamps must increase"):
        SampleBlock.concatenate([block, block])
    with pytest.raises(InvalidSamples, match="different joint counts"):
        SampleBlock.concatenate([block, SampleBlock.empty(2)])
    with pytest.raises(InvalidSamples, match="at least one"):
        SampleBlock.concatenate([])


def test_raw_data_are_cut_at_faults_and_nothing_else_is_lost():
    stamps, sequence, q, v, tau = arrays(10)
    order = [0, 1, 2, 2, 4, 3, 5, 6, 7, 8, 9]  # a duplicate and a late sample
    q[7, 1] = np.nan
    blocks, notices = split_into_blocks(*(array[order] for array in (stamps, sequence, q, v, tau)))
    assert [block.sequence.tolist() for block in blocks] == [[0, 1, 2], [2, 4], [3, 5, 6, 8, 9]]
    assert notices == ["1 samples with values that are not finite left out, first counter 7"]
    good, none = split_into_blocks(*arrays(4))
    assert [len(block) for block in good] == [4] and none == []
    with pytest.raises(InvalidSamples, match="tau has shape"):
        split_into_blocks(stamps, sequence, q, v, tau[:-1])


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
