from dataclasses import replace

import numpy as np
import pytest

from sysid_ros.core.certification.continuous import (
    PART,
    WINDOW,
    Load,
    TorqueRecord,
    average_squares,
    find_heat,
)
from sysid_ros.core.model.robot import JointLimits

PARTS = round(WINDOW / PART)


def limits_of(peak, continuous):
    n = len(peak)
    wide = np.full(n, 10.0)
    return JointLimits(-wide, wide, wide, wide, np.array(peak, dtype=float), np.array(continuous, dtype=float))


LIMITS = limits_of([30.0], [10.0])


def steady(torque, seconds):
    parts = round(seconds / PART)
    return Load(np.full(parts, PART), np.full((parts, 1), float(torque) ** 2))


def test_an_arm_with_one_limit_has_nothing_to_prove():
    assert find_heat(limits_of([10.0], [10.0]), steady(10.0, 60.0), steady(10.0, 3.0), np.array([100.0])) is None


def test_a_hold_below_the_limit_may_last_for_ever():
    heat = find_heat(LIMITS, steady(9.0, 60.0), steady(9.0, 3.0), np.array([81.0]))
    assert heat.share == pytest.approx(0.9, rel=0.01) and heat.hold == np.inf


def test_how_long_a_hold_above_it_may_last():
    """From no torque at 20 Nm: 400 t = 100 60, so 15 s; with 3 s of 20 Nm before, 3 s less."""
    heat = find_heat(LIMITS, Load.none(1), Load.none(1), np.array([400.0]))
    assert heat.hold == pytest.approx(15.0, abs=2.0 * PART) and heat.hold <= 15.0 and heat.share > 1.0
    after = find_heat(LIMITS, Load.none(1), steady(20.0, 3.0), np.array([400.0]))
    assert after.hold == pytest.approx(heat.hold - 3.0)


def test_a_burst_counts_for_a_minute_and_no_longer():
    """A burst of 30 Nm takes 900 of 6000 Nm^2 s a second: 6.6 s."""
    hold = np.array([0.0])
    assert find_heat(LIMITS, Load.none(1), steady(30.0, 6.0), hold).share < 1.0
    assert find_heat(LIMITS, Load.none(1), steady(30.0, 7.0), hold).share > 1.0
    burst = steady(30.0, 4.0)
    soon, later = burst.followed_by(steady(0.0, 50.0)), burst.followed_by(steady(0.0, 60.0))
    assert find_heat(LIMITS, soon, burst, hold).share > 1.0
    assert find_heat(LIMITS, later, burst, hold).share < 1.0


def test_a_hold_at_the_limit_after_a_burst_is_too_much_where_the_minute_before_was():
    """A steady torque of 9.5 Nm and 1 s of 30 Nm: 90.25 59 + 900 = 6225 of 6000 Nm^2 s."""
    past = steady(9.5, 59.0).followed_by(steady(0.0, 1.0))
    assert find_heat(LIMITS, past, steady(30.0, 1.0), np.array([90.25])).share > 1.0
    assert find_heat(LIMITS, past, steady(9.5, 1.0), np.array([90.25])).share < 1.0


def test_no_minute_is_overlooked():
    """Against sums over every minute at a fine step, of random loads."""
    rng = np.random.default_rng(0)
    limits, step = limits_of([30.0, 30.0], [10.0, 8.0]), 0.05
    for _ in range(50):
        past, plan = (
            Load(rng.uniform(0.05, PART, count), rng.uniform(0.0, 15.0, (count, 2)) ** 2) for count in (260, 12)
        )
        hold = rng.uniform(0.0, 9.0, 2) ** 2
        heat = find_heat(limits, past, plan, hold)
        whole = past.followed_by(plan).followed_by(Load(np.full(2 * PARTS, PART), np.tile(hold, (2 * PARTS, 1))))
        edges = np.append(0.0, np.cumsum(whole.seconds))
        total = np.concatenate([np.zeros((1, 2)), np.cumsum(whole.squares * whole.seconds[:, None], axis=0)])
        ends = np.arange(edges[past.seconds.size], edges[-1], step)
        minutes = [
            np.interp(ends, edges, column) - np.interp(ends - WINDOW, edges, column, left=0.0) for column in total.T
        ]
        exact = np.sqrt(np.stack(minutes, axis=1) / WINDOW) / limits.tau_continuous
        if heat.share <= 1.0:
            assert exact.max() <= heat.share + 1e-9
        else:
            in_hold = ends < edges[past.seconds.size] + plan.seconds.sum() + heat.hold
            assert not np.isfinite(heat.hold) or exact[in_hold].max() <= 1.0 or heat.hold == 0.0
        assert heat.share <= exact.max() * 1.05 or heat.share > 1.0


def test_squares_are_averaged_over_equal_parts():
    """Pieces of 0.15 s with 2 Nm in the first, 4 Nm in the second half of one second."""
    count = 20
    half = np.full(count, 0.5 / count)
    middle = (2.0 * np.arange(count) + 1.0) * half
    torque = np.where(middle < 0.5, 2.0, 4.0)[None]
    np.testing.assert_allclose(average_squares(middle, half, torque), [[4.0], [16.0]])


def test_the_rest_of_a_plan_counts_until_it_is_left():
    plan = Load.of_plan(np.array([[1.0], [4.0], [9.0], [0.0]]), 3.0, begin=0.5)
    np.testing.assert_allclose(plan.seconds, [0.5, 1.0, 1.0])
    np.testing.assert_allclose(plan.until(1.0).seconds, [0.5, 0.5, 0.0])


def test_a_record_keeps_the_last_minute_and_supposes_one_before():
    record = TorqueRecord(np.array([9.0]), 0.01)
    assert find_heat(LIMITS, record.load, Load.none(1), np.zeros(1)).share == pytest.approx(0.9, rel=0.01)
    for _ in range(6100):
        record.add(np.array([-3.0]))
    load = record.load
    assert load.seconds.sum() >= WINDOW
    np.testing.assert_allclose(load.squares, 9.0)
    record.add(np.array([5.0]))  # a part that is not full
    assert record.load.squares[-1] == pytest.approx(25.0) and record.load.seconds[-1] == pytest.approx(0.01)


def test_limits_of_what_may_be_held():
    limits = replace(LIMITS, tau_max=np.array([8.0]))
    np.testing.assert_allclose((LIMITS.tau_held, limits.tau_held), [[9.9], [8.0]])
