"""Which plan the monitor shows, from publication to rest."""

import numpy as np
import pytest
from doubles import make_certificate

from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.ros.markers import PlanCache


def plan(goal, expires=100.0):
    zero, box = np.zeros(2), Box(np.zeros(10), np.ones(10))
    path = BezierTrajectory(zero, zero, zero, np.full(2, float(goal)), 3.0)
    return CertifiedPlan(path, make_certificate(path, expires_at=expires), (box, box), Scene(), "an arm")


def key(one):
    return one.plan_id


@pytest.fixture
def cache():
    return PlanCache()


def test_plans_take_over_and_are_gone_at_rest(cache):
    first, second, third = plan(1), plan(2), plan(3)
    assert cache.shown is None and cache.waiting is None
    cache.on_plan(first)
    assert cache.shown is first and not cache.is_followed
    cache.update(key(first), None, 1.0)
    cache.on_plan(second)
    assert cache.shown is first and cache.is_followed and cache.waiting is None
    cache.update(key(first), key(second), 2.0)
    assert cache.shown is first and cache.waiting is second
    cache.update(key(second), None, 3.0)
    cache.on_plan(third)
    assert cache.shown is second and cache.is_followed and cache.waiting is None
    cache.update(None, None, 4.0)
    assert cache.shown is None  # the third was never followed; it started in motion and is over, too
    cache.update(None, None, 5.0)
    cache.on_plan(first)
    assert cache.shown is first and not cache.is_followed


def test_a_plan_that_was_never_published_is_not_replaced_by_another(cache):
    cache.on_plan(plan(1))
    cache.update("0" * 64, None, 1.0)
    assert cache.shown is None and not cache.is_followed


def test_what_is_no_longer_valid_is_forgotten_unless_it_is_followed(cache):
    old, new = plan(1, expires=10.0), plan(2, expires=20.0)
    cache.on_plan(old)
    cache.on_plan(new)
    cache.update(None, None, 9.0)
    cache.update(key(old), None, 15.0)
    assert cache.shown is old
    cache.update(key(old), None, 25.0)
    assert cache.shown is old and cache.waiting is None
    cache.on_plan(new)
    cache.update(None, None, 25.0)
    assert cache.shown is None
    cache.on_plan(new)
    cache.update(None, None, 25.0)
    assert cache.shown is None


def test_losing_the_driver_ends_what_it_followed_but_not_what_nobody_followed(cache):
    one = plan(1)
    cache.on_plan(one)
    cache.lose_driver()
    assert cache.shown is one
    cache.update(key(one), None, 1.0)
    cache.lose_driver()
    assert cache.shown is None and not cache.is_followed


def test_memory_is_bounded(cache):
    for goal in range(1, 50):
        cache.on_plan(plan(goal))
    assert len(cache._plans) <= 10
