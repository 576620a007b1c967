"""What part of its plans an arm has followed: chains, stops, plans that were never followed, late stamps."""

import numpy as np
import pytest

from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.reports.result import MotionRecord, followed_motions

STEP, T_P, T_F = 0.002, 1.5, 3.0
ZERO = np.zeros(3)


def chain(count, amplitude=0.6):
    """Plans that take over from each other at T_P, and when each starts [s]."""
    rng = np.random.default_rng(2)
    plans, state = [], (ZERO, ZERO, ZERO)
    for _ in range(count):
        plans.append(BezierTrajectory(*state, state[0] + amplitude * rng.uniform(-1.0, 1.0, 3), T_F))
        state = plans[-1].evaluate(T_P)
    return plans, [1.0 + T_P * k for k in range(count)]


def desired(pieces, until):
    """Desired positions from (start, clock -> position) pieces, the last one that has started counts."""
    seconds = np.arange(0.0, until, STEP) + 0.0007  # not in step with the starts
    reference = np.zeros((seconds.size, 3))
    for start, position in pieces:
        later = seconds >= start
        reference[later] = position(seconds[later] - start)
    return seconds, reference


def of(plan):
    return lambda times: plan.sample(times)[0]


def records(plans, starts, late=0.0):
    return [MotionRecord(start + late, plan) for start, plan in zip(starts, plans, strict=True)]


@pytest.mark.parametrize("late", [-0.06, 0.0, 0.03, 0.08])
def test_a_chain_is_followed_up_to_each_take_over(late):
    plans, starts = chain(4)
    seconds, reference = desired([(s, of(p)) for s, p in zip(starts, plans, strict=True)], 10.0)
    found = followed_motions(records(plans, starts, late), seconds, reference)
    assert [one.ending for one in found] == ["plan 2 took over", "plan 3 took over", "plan 4 took over", "to its end"]
    np.testing.assert_allclose([one.followed for one in found], [T_P, T_P, T_P, T_F], atol=2e-3)
    np.testing.assert_allclose([one.start for one in found], starts, atol=1e-3)


def test_a_plan_that_never_took_over_was_not_followed():
    plans, starts = chain(3)
    seconds, reference = desired([(starts[0], of(plans[0])), (starts[1], of(plans[1]))], 10.0)
    found = followed_motions(records(plans, starts), seconds, reference)
    assert [one.ending for one in found] == ["plan 2 took over", "to its end", "not followed"]
    assert [one.followed for one in found] == pytest.approx([T_P, T_F, 0.0], abs=2e-3)


@pytest.mark.parametrize("at", [0.4, 0.8, 1.3])
def test_a_stop_on_the_way_is_seen(at):
    plans, starts = chain(2)

    def stopped(times):
        """Brakes along the path within 0.4 s, so the plan that waits never takes over."""
        x = np.clip((times - at) / 0.4, 0.0, 1.0)
        clock = np.where(times < at, times, at + 0.4 * (x - x**3 + 0.5 * x**4))
        return plans[0].sample(clock)[0]

    seconds, reference = desired([(starts[0], stopped)], 6.0)
    first, second = followed_motions(records(plans, starts), seconds, reference)
    assert first.ending == "stopped early" and at - 0.05 <= first.followed <= at + 0.4
    assert second.ending == "not followed" and second.followed == 0.0


def test_plans_from_rest_to_rest_end_by_themselves():
    first = BezierTrajectory(ZERO, ZERO, ZERO, np.full(3, 0.5), T_F)
    second = BezierTrajectory(np.full(3, 0.5), ZERO, ZERO, ZERO, T_F)
    starts = [0.5, 4.2]
    seconds, reference = desired([(0.5, of(first)), (4.2, of(second))], 8.0)
    found = followed_motions(records([first, second], starts), seconds, reference)
    assert [one.ending for one in found] == ["to its end", "to its end"]
    assert [one.followed for one in found] == pytest.approx([T_F, T_F])


def test_samples_that_end_early_or_are_missing():
    plans, starts = chain(2)
    seconds, reference = desired([(s, of(p)) for s, p in zip(starts, plans, strict=True)], 3.3)
    first, second = followed_motions(records(plans, starts), seconds, reference)
    assert first.ending == "plan 2 took over"
    assert second.ending == "stopped early" and second.followed == pytest.approx(0.8, abs=0.01)
    nothing = followed_motions(records(plans, starts), np.empty(0), np.empty((0, 3)))
    assert [one.ending for one in nothing] == ["not followed", "not followed"]
