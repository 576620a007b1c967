import re

import numpy as np
import pytest

from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.windows.samples import InvalidSamples, SampleBlock
from sysid_ros.core.estimation.windows.stream import SampleStream


def make_block(start, stop, n=7, offset=0):
    k = np.arange(start, stop)
    q = np.sin(k * 1e-3)[:, None] * np.ones(n)
    return SampleBlock(k * 1_000_000 + offset, k, q, np.cos(k * 1e-3)[:, None] * np.ones(n), q)


def windows_of(robot, blocks, **settings):
    stream = SampleStream(robot, EstimatorSettings(window_duration=0.05, **settings))
    windows, notices = [], []
    for block in blocks:
        found, said = stream.add(block)
        windows += found
        notices += said
    return [(w.number, int(w.block.stamps[w.start]), int(w.block.stamps[w.stop])) for w in windows], notices


def spans(windows):
    return [(start // 1_000_000, stop // 1_000_000) for _, start, stop in windows]


def test_windows_share_their_ends_and_do_not_depend_on_the_blocks(robot):
    whole, notices = windows_of(robot, [make_block(0, 1001)])
    assert spans(whole) == [(50 * k, 50 * k + 50) for k in range(20)] and notices == []
    rng = np.random.default_rng(0)
    for _ in range(5):
        cuts = np.sort(rng.choice(np.arange(1, 1001), 12, replace=False))
        blocks = [make_block(a, b) for a, b in zip([0, *cuts], [*cuts, 1001], strict=True)]
        assert windows_of(robot, blocks) == (whole, [])


def test_a_missing_sample_splits_the_windows(robot):
    for blocks in (
        [make_block(0, 120), make_block(121, 300)],
        [SampleBlock.concatenate([make_block(0, 120), make_block(121, 300)])],
    ):
        windows, notices = windows_of(robot, blocks)
        assert spans(windows) == [(0, 50), (50, 100), (121, 171), (171, 221), (221, 271)]
        assert len(notices) == 1 and "1 samples missing (1 place, the first after counter 119)" in notices[0]


def test_late_and_duplicate_samples_are_left_out(robot):
    windows, notices = windows_of(
        robot, [make_block(0, 80), make_block(60, 100), make_block(40, 60), make_block(100, 160)]
    )
    assert spans(windows) == [(0, 50), (50, 100), (100, 150)]
    assert [notice.split(" late")[0] for notice in notices] == ["20", "20"]


def test_a_long_step_splits_the_windows(robot):
    first, second = make_block(0, 75), make_block(75, 200, offset=40_000_000)
    windows, notices = windows_of(robot, [first, second])
    assert spans(windows) == [(0, 50), (115, 165), (165, 215)]
    assert "steps longer than 0.015 s" in notices[0]
    assert len(windows_of(robot, [first, second], max_gap=0.1, acceleration_factor=100.0)[1]) == 0


def slow_block(period_ns, count, jitter=0.0, lost=()):
    """Samples of a source without a counter: what is lost leaves a long step."""
    rng = np.random.default_rng(7)
    k = np.setdiff1d(np.arange(count), lost)
    stamps = np.round((k + jitter * rng.uniform(-0.5, 0.5, len(k))) * period_ns).astype(np.int64)
    q = np.zeros((len(k), 7))
    return SampleBlock(stamps, np.arange(len(k)), q, q, q)


@pytest.mark.parametrize("rate", [25.0, 30.0, 50.0, 100.0, 1000.0])
def test_the_longest_step_follows_the_rate(robot, rate):
    period = round(1e9 / rate)
    whole = slow_block(period, 200, jitter=0.2)
    windows, notices = windows_of(robot, [whole])
    assert notices == [] and len(windows) > 0.6 * (whole.seconds[-1] / max(0.05 + 1.2 / rate, 2.0 / rate))
    rng = np.random.default_rng(1)
    cuts = np.sort(rng.choice(np.arange(1, 199), 40, replace=False))
    parts = [whole.slice(a, b) for a, b in zip([0, *cuts], [*cuts, None], strict=True)]
    assert windows_of(robot, parts) == (windows, [])  # however the samples are cut into blocks
    lost = np.arange(100, 100 + max(1, round(0.03 * rate)))
    windows, notices = windows_of(robot, [slow_block(period, 200, lost=lost)])
    assert len(notices) == 1 and "steps longer than" in notices[0] and "after counter 99" in notices[0]
    assert not any(start < 1e9 * 99.5 / rate < stop for start, stop in (window[1:] for window in windows))


def test_a_given_longest_step_is_kept(robot):
    block = slow_block(20_000_000, 100)
    assert windows_of(robot, [block], max_gap=0.015)[0] == []
    assert len(windows_of(robot, [block], max_gap=0.021)[0]) == 33
    assert windows_of(robot, [slow_block(60_000_000, 100)])[0] == []
    assert len(windows_of(robot, [slow_block(60_000_000, 100)], max_gap=0.1)[0]) == 99


def test_another_rate_is_learnt(robot):
    fast, slow = slow_block(1_000_000, 300), slow_block(30_000_000, 100)
    later = SampleBlock(slow.stamps + fast.stamps[-1] + 30_000_000, slow.sequence + 300, slow.q, slow.v, slow.tau)
    windows, _ = windows_of(robot, [fast, later])
    assert len(windows) > 5 + 35


def test_the_text_says_why_there_is_no_window(robot):
    settings = EstimatorSettings()
    cases = [
        ([], "no samples have come"),
        ([slow_block(1_000_000, 60)], "the longest recording without a gap lasts 0.059 s; samples come every 0.001 s"),
        (
            [slow_block(100_000_000, 60)],
            r"every 0.1 s \(10 Hz\); a window takes steps of at most 0.05 s: sample faster",
        ),
        ([slow_block(1_000_000, 600, lost=np.flatnonzero(np.arange(600) % 60 < 20))], "lasts 0.039 s, with 9 gaps"),
    ]
    for blocks, text in cases:
        stream = SampleStream(robot, settings)
        assert [window for block in blocks for window in stream.add(block)[0]] == [] or "gaps" in text
        assert re.search(text, stream.describe_shortfall()), stream.describe_shortfall()


def test_a_jump_of_the_velocity_splits_the_windows(robot):
    block = make_block(0, 200)
    v = block.v.copy()
    v[90:, 2] += 0.5
    windows, notices = windows_of(robot, [SampleBlock(block.stamps, block.sequence, block.q, v, block.tau)])
    assert spans(windows) == [(0, 50), (90, 140), (140, 190)]
    assert "more acceleration than acceleration_factor allows" in notices[0]
    factor = float(re.search(r"acceleration_factor=([0-9.]+) is true", notices[0])[1])
    settings = EstimatorSettings(acceleration_factor=factor)
    stream = SampleStream(robot, settings)
    assert stream.add(SampleBlock(block.stamps, block.sequence, block.q, v, block.tau))[1] == []


def test_restarts_of_counter_and_clock_split_the_windows(robot):
    again = make_block(0, 110)
    later = SampleBlock(again.stamps + 10**9, again.sequence, again.q, again.v, again.tau)
    windows, notices = windows_of(robot, [make_block(0, 70), later])
    assert (
        spans(windows) == [(0, 50), (1000, 1050), (1050, 1100)] and "the counter restarted at 0 after 69" in notices[0]
    )
    back = SampleBlock(again.stamps, again.sequence + 500, again.q, again.v, again.tau)
    windows, notices = windows_of(robot, [later, back])
    assert len(windows) == 4 and "the clock was set back by" in notices[0]


def test_many_events_make_few_notices(robot):
    block = make_block(0, 1000)
    kept = np.arange(1000) % 7 > 0
    _, notices = windows_of(
        robot, [SampleBlock(*(getattr(block, f)[kept] for f in ("stamps", "sequence", "q", "v", "tau")))]
    )
    assert len(notices) == 1 and "142 places" in notices[0]


def test_windows_wait_for_a_lagging_torque(robot):
    settings = dict(torque_lag=0.02, torque_lag_tolerance=0.002)
    for end in range(60, 80):
        windows, _ = windows_of(robot, [make_block(0, end)], **settings)
        assert len(windows) == (end >= 74)  # samples 0 to 73: the lag, its tolerance and one more
    stream = SampleStream(robot, EstimatorSettings(window_duration=0.05, **settings))
    (window,), _ = stream.add(make_block(0, 100))
    assert window.block.stamps[-1] >= (50 + 22) * 1_000_000


def test_another_robot_is_refused(robot):
    with pytest.raises(InvalidSamples, match="has 6 joints, the robot has 7"):
        SampleStream(robot, EstimatorSettings()).add(make_block(0, 10, n=6))
