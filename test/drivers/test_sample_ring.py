import os
import threading

import numpy as np
import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.drivers.channel import SampleRing, collect_samples
from sysid_ros.drivers.loop_types import LoopMode, LoopSample

N, CAPACITY = 3, 512


def sample(k, ok=True, tau=0.0):
    vectors = [np.full(N, 10.0 * k + i) for i in range(7)]
    vectors[2] += tau
    return LoopSample(k, 1_000_000 * k, ok, *vectors, LoopMode.TRACK)


@pytest.fixture
def pair():
    descriptor = SampleRing.allocate(N, CAPACITY)
    rings = SampleRing(descriptor, N, CAPACITY), SampleRing(descriptor, N, CAPACITY)
    os.close(descriptor)
    return rings


def test_what_is_written_is_read_once(pair):
    writer, reader = pair
    samples = [sample(k) for k in range(1, 21)]
    for s in samples:
        writer.write(s, 1_000_000, 200_000)
    read, expected = reader.read(), collect_samples(samples, N)
    for name in ("stamps", "sequence", "q", "v", "tau"):
        np.testing.assert_array_equal(getattr(read.block, name), getattr(expected.block, name))
    for name in ("q_d", "v_d", "a_d", "tau_command", "modes"):
        np.testing.assert_array_equal(getattr(read, name), getattr(expected, name))
    assert read.dropped == 0 and len(reader.read().block) == 0


def test_unusable_samples_are_left_out_but_leave_a_gap(pair):
    writer, reader = pair
    samples = [sample(1), sample(2, ok=False), sample(3, tau=np.nan), sample(4)]
    for s in samples:
        writer.write(s, 0, 0)
    assert reader.read().block.sequence.tolist() == [1, 4]
    assert collect_samples(samples, N).block.sequence.tolist() == [1, 4]


def test_a_slow_reader_loses_the_oldest_and_is_told(pair):
    writer, reader = pair
    for k in range(1, 2001):
        writer.write(sample(k), 0, 0)
    read = reader.read()
    assert read.block.sequence[-1] == 2000 and read.block.sequence[0] == 2001 - len(read.block)
    assert CAPACITY - 70 <= len(read.block) < CAPACITY
    assert read.dropped == 2000 - len(read.block)
    writer.write(sample(2001), 0, 0)
    again = reader.read()
    assert again.block.sequence.tolist() == [2001] and again.dropped == read.dropped


def test_samples_are_never_torn_while_writing_goes_on(pair):
    writer, reader = pair
    count = 20_000
    thread = threading.Thread(target=lambda: [writer.write(sample(k), 0, 0) for k in range(1, count + 1)])
    thread.start()
    seen, dropped = [], 0
    while thread.is_alive() or not seen or seen[-1][-1] < count:
        read = reader.read()
        if len(read.block):
            seen.append(read.block.sequence)
            expected = 10.0 * read.block.sequence[:, None] + np.zeros(N)
            np.testing.assert_array_equal(read.block.q, expected)
            np.testing.assert_array_equal(read.tau_command, expected + 6)
        dropped = read.dropped
    thread.join()
    sequence = np.concatenate(seen)
    assert np.all(np.diff(sequence) > 0) and len(sequence) + dropped == count


def test_timing(pair):
    writer, reader = pair
    assert reader.timing().cycles == 0
    for k in range(1, 101):
        writer.write(sample(k), 1_000_000 + 1000 * k, 2000 * k)
    timing = reader.timing()
    assert timing.cycles == 100
    assert timing.period_p50 == pytest.approx(1.0505e-3) and timing.period_max == pytest.approx(1.1e-3)
    assert timing.compute_p99 == pytest.approx(198e-6, rel=1e-2) and timing.compute_max == pytest.approx(200e-6)
    assert reader.timing(10).period_p50 == pytest.approx(1.0955e-3)


def test_a_ring_that_is_too_small_is_refused():
    with pytest.raises(ParameterOutOfRange, match="capacity"):
        SampleRing.allocate(7, 16)
