"""Counters of a sender: against a plain simulation of what was lost."""

import numpy as np

from sysid_ros.drivers.network import Arrival, SequenceMonitor


def test_random_losses_repetitions_and_delays_are_counted_as_they_were_made():
    rng = np.random.default_rng(7)
    watch, lost, duplicated, late, new = SequenceMonitor(), 0, 0, 0, 0
    held = None
    for k in range(1, 20_000):
        if rng.random() < 0.05:
            lost += 1
            continue
        if held is None and rng.random() < 0.02:
            held = k
            continue
        assert watch.judge(k) is Arrival.NEW
        new += 1
        if rng.random() < 0.03:
            assert watch.judge(k) is Arrival.OLD
            duplicated += 1
        elif held is not None and k - held > 1:
            assert watch.judge(held) is Arrival.OLD
            late, held = late + 1, None
    counts = watch.counts
    assert (counts.received, counts.duplicated, counts.late, counts.restarts) == (new, duplicated, late, 0)
    assert abs(counts.lost - lost) <= 2 and counts.gaps > 500


def test_a_restart_is_believed_only_in_a_row():
    watch = SequenceMonitor()
    for k in (1000, 1001, 5, 1002, 6, 1003):
        assert watch.judge(k) is (Arrival.NEW if k >= 1000 else Arrival.OLD)
    assert [watch.judge(k) for k in (7, 8, 9, 10)] == [Arrival.OLD, Arrival.OLD, Arrival.RESTART, Arrival.NEW]
    assert watch.last == 10 and watch.counts.restarts == 1
