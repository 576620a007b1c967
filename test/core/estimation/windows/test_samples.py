import numpy as np
import pytest

from sysid_ros.core.estimation.windows.samples import (
    InvalidSamples,
    SampleBlock,
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
