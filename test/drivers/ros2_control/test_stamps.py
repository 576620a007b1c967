"""What stamps tell: new, repeated, late, missing, a clock set back; and whether a rate is the one that was promised."""

import numpy as np
import pytest

from sysid_ros.drivers.ros2_control.settings import Ros2ControlSettings
from sysid_ros.drivers.ros2_control.states import Arrival, StampMonitor, mean_period
from sysid_ros.drivers.ros2_control.takeover import require_rate
from sysid_ros.drivers.takeover import TakeoverRefused

MS = 1_000_000
START = 1_700_000_000_000 * MS


def judge(watch, *milliseconds):
    return [watch.judge(START + round(ms * MS)) for ms in milliseconds]


def test_duplicates_and_late_ones_are_not_new():
    watch = StampMonitor(0.001)
    assert judge(watch, 0, 1, 1, 2, 1.5, 0, 3) == [
        Arrival.NEW, Arrival.NEW, Arrival.REPEATED, Arrival.NEW, Arrival.LATE, Arrival.LATE, Arrival.NEW,
    ]  # fmt: skip
    assert watch.counts == {"new": 4, "repeated": 1, "late": 2, "restart": 0, "missing": 0, "gaps": 0}


def test_gaps_are_counted_in_states():
    watch = StampMonitor(0.001)
    judge(watch, 0, 1)
    assert watch.missed == 0
    judge(watch, 2.4)  # jitter
    assert watch.missed == 0
    judge(watch, 5.4)
    assert watch.missed == 2 and watch.gap == pytest.approx(0.003)
    judge(watch, 6.4, 7.4)
    assert watch.missed == 0 and watch.counts["missing"] == 2 and watch.counts["gaps"] == 1
    assert watch.missing_share == pytest.approx(2 / 8)


def test_the_share_is_of_the_last_second():
    watch = StampMonitor(0.01)
    judge(watch, 0, *range(100, 200, 10))
    assert watch.missing_share > 0.4
    judge(watch, *range(200, 1300, 10))
    assert watch.missing_share == 0.0


def test_a_clock_set_back_is_believed_after_three_states():
    watch = StampMonitor(0.001)
    judge(watch, 10000, 10001)
    assert judge(watch, 0, 1, 1, 2, 3) == [
        Arrival.LATE, Arrival.LATE, Arrival.LATE, Arrival.RESTART, Arrival.NEW,
    ]  # fmt: skip
    assert watch.missed == 0


def test_one_old_state_is_no_clock_set_back():
    watch = StampMonitor(0.001)
    arrivals = judge(watch, 10000, 0, 10001, 1, 10002, 2, 10003)
    assert Arrival.RESTART not in arrivals


def test_the_mean_period_leaves_gaps_out():
    stamps = [0, 1, 2, 3, 7, 8, 9, 10, 11]
    assert mean_period([START + MS * s for s in stamps]) == pytest.approx(0.001)


def stamps_at(rate, count=200, jitter=0.0, missing=0.0, seed=0):
    rng = np.random.default_rng(seed)
    times = (np.arange(count) + jitter * rng.uniform(-0.5, 0.5, count)) / rate
    return (START + np.round(1e9 * times[rng.uniform(size=count) >= missing]).astype(np.int64)).tolist()


def test_a_regular_rate_is_accepted():
    settings = Ros2ControlSettings(period=0.002)
    assert require_rate(stamps_at(500.0), settings, "/js") == pytest.approx(0.002)
    require_rate(stamps_at(500.0, jitter=0.5), settings, "/js")
    require_rate(stamps_at(500.0, missing=0.02), settings, "/js")


@pytest.mark.parametrize(
    ("stamps", "words"),
    [
        (stamps_at(100.0), "/js comes at 100 Hz, update_rate is 500 Hz .* set update_rate"),
        (stamps_at(1000.0), "comes at 1000 Hz"),
        (stamps_at(470.0), "comes at 470 Hz"),
        (stamps_at(500.0, missing=0.2), "% of the states are missing"),
        (stamps_at(500.0, count=5), "only 5 states came"),
    ],
)
def test_another_rate_is_refused(stamps, words):
    with pytest.raises(TakeoverRefused, match=words):
        require_rate(stamps, Ros2ControlSettings(period=0.002), "/js")
