"""Which plan the monitor shows, from publication to rest."""

import numpy as np
import pytest

from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.trajectories.bezier import BezierTrajectory
from sysid_ros.nodes.monitor_plans import HeardPlan, PlanBook


def plan(goal, expires=100.0):
    zero = np.zeros(2)
    path = BezierTrajectory(zero, zero, zero, np.full(2, float(goal)), 3.0)
    return HeardPlan(path, Certificate(path.hash(), "", zero, "interval", "", {}, zero, 0.0, expires), None)


def key(one):
    return one.trajectory.hash()


@pytest.fixture
def book():
    return PlanBook()


def test_plans_take_over_and_are_gone_at_rest(book):
    first, second, third = plan(1), plan(2), plan(3)
    assert book.shown is None and book.waiting is None
    book.hear(first)
    assert book.shown is first and not book.is_followed
    book.update(key(first), "", 1.0)
    book.hear(second)
    assert book.shown is first and book.is_followed and book.waiting is None
    book.update(key(first), key(second), 2.0)
    assert book.shown is first and book.waiting is second
    book.update(key(second), "", 3.0)
    book.hear(third)
    assert book.shown is second and book.is_followed and book.waiting is None
    book.update("", "", 4.0)
    assert book.shown is None  # the third was never followed; it started in motion and is over, too
    book.update("", "", 5.0)
    book.hear(first)
    assert book.shown is first and not book.is_followed


def test_a_plan_that_was_never_heard_of_is_not_replaced_by_another(book):
    book.hear(plan(1))
    book.update("0" * 64, "", 1.0)
    assert book.shown is None and not book.is_followed


def test_what_is_no_longer_valid_is_forgotten_unless_it_is_followed(book):
    old, new = plan(1, expires=10.0), plan(2, expires=20.0)
    book.hear(old)
    book.hear(new)
    book.update("", "", 9.0)
    book.update(key(old), "", 15.0)
    assert book.shown is old
    book.update(key(old), "", 25.0)
    assert book.shown is old and book.waiting is None
    book.hear(new)
    book.update("", "", 25.0)
    assert book.shown is None
    book.hear(new)
    book.update("", "", 25.0)
    assert book.shown is None


def test_silence_of_the_driver_ends_what_it_followed_but_not_what_nobody_followed(book):
    one = plan(1)
    book.hear(one)
    book.lose_driver()
    assert book.shown is one
    book.update(key(one), "", 1.0)
    book.lose_driver()
    assert book.shown is None and not book.is_followed


def test_memory_is_bounded(book):
    for goal in range(1, 50):
        book.hear(plan(goal))
    assert len(book._plans) <= 10
