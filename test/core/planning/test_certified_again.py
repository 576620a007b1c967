"""Plans that were certified more than once: their hash does not tell which errors they are executed with."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from sysid_ros.core.certification.plan import recheck
from sysid_ros.core.certification.recheck import BoundRechecker
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.planning import certified_planner
from sysid_ros.core.planning.certified_planner import CertifiedPlanner, NextPlan, PayloadKnowledge
from sysid_ros.core.planning.settings import RecedingSettings
from sysid_ros.core.trajectories.serialization import BezierTrajectory

ZERO, TAKE_OVER = np.zeros(7), 1.5
FAST = RecedingSettings(draws=8, starts=1, k_range=0.3)


def payload_within(robot, share):
    prior = robot.payload_prior
    return PayloadKnowledge.of(robot, Box.around(prior.nominal, share * prior.box.radius).intersect(prior.box))


@pytest.fixture(scope="module")
def wide(gen3):
    return payload_within(gen3, 0.2)


@pytest.fixture(scope="module")
def narrow(gen3):
    return payload_within(gen3, 0.05)


def first(gen3):
    """Always a new object with the same numbers, as from a service call."""
    return BezierTrajectory(gen3.home, ZERO, ZERO, gen3.home + 0.2, 3.0)


def take_over(planner, payload, path):
    wanted = NextPlan(payload, after=path.hash(), at=TAKE_OVER, time_limit=60.0)
    return planner.plan(wanted, Scene(), 11.5).plan


@pytest.fixture(scope="module")
def continued(gen3, narrow):
    """A plan, certified twice with the same payload, and one that takes over from it."""
    planner = CertifiedPlanner(gen3, FAST)
    plans = [planner.certify(first(gen3), narrow, Scene(), now) for now in (10.0, 10.1)]
    return plans[0], take_over(planner, narrow, first(gen3))


def test_nothing_takes_over_from_a_plan_that_was_certified_with_two_payloads(gen3, wide, narrow):
    for payloads in ((wide, narrow), (narrow, wide), (narrow, wide, narrow)):
        planner = CertifiedPlanner(gen3, FAST)
        for payload in payloads:
            planner.certify(first(gen3), payload, Scene())
        with pytest.raises(ParameterOutOfRange, match="plan to take over from is .* with one payload only.*from rest"):
            take_over(planner, narrow, first(gen3))


def test_certifying_again_with_the_same_payload_changes_nothing(gen3, continued):
    again, after = continued
    assert after.certificate.control.after == again.certificate.plan_hash == first(gen3).hash()


def test_a_plan_that_is_found_again_for_another_payload_is_told_apart(gen3, wide, narrow):
    """As the way to the next object. It starts at the same place, and differs by less than anything can measure."""
    planner = CertifiedPlanner(gen3, FAST)
    goal = gen3.home + 0.02
    plans = []
    for payload in (wide, wide, narrow, wide):
        wanted = NextPlan(payload, start=gen3.home, goal=goal, time_limit=60.0)
        plans.append(planner.plan(wanted, Scene()).plan)
        after = take_over(planner, payload, plans[-1].trajectory)
        assert after.certificate.control.after == plans[-1].certificate.plan_hash
    for one, other in itertools.combinations(plans, 2):
        if one.certificate.plan_hash == other.certificate.plan_hash:
            np.testing.assert_array_equal(one.certificate.tracking_bound, other.certificate.tracking_bound)
    assert recheck(gen3, plans[2]).problems == ()


def test_two_plans_for_the_same_motion_have_two_hashes(gen3, narrow):
    planner = CertifiedPlanner(gen3, FAST)
    wanted = NextPlan(narrow, start=gen3.home, goal=gen3.home + 0.02, time_limit=60.0)
    usual = planner.plan(wanted, Scene()).plan
    assert planner.plan(wanted, Scene()).plan.certificate.plan_hash == usual.certificate.plan_hash
    planner._seen[usual.certificate.plan_hash] = "that of another payload"
    apart = planner.plan(wanted, Scene()).plan
    assert apart.certificate.plan_hash != usual.certificate.plan_hash and recheck(gen3, apart).problems == ()
    np.testing.assert_allclose(apart.trajectory.end, usual.trajectory.end, atol=1e-11)
    assert take_over(planner, narrow, apart.trajectory).certificate.control.after == apart.certificate.plan_hash


def test_what_was_forgotten_cannot_come_back_with_other_errors(gen3, wide, narrow, monkeypatch):
    monkeypatch.setattr(certified_planner, "_REMEMBERED", 1)
    planner, other = CertifiedPlanner(gen3, FAST), BezierTrajectory(gen3.home, ZERO, ZERO, gen3.home - 0.1, 3.0)
    for path, payload in ((first(gen3), wide), (other, narrow)):
        planner.certify(path, payload, Scene())
    with pytest.raises(ParameterOutOfRange, match="one of the last plans"):
        take_over(planner, narrow, first(gen3))
    planner.certify(first(gen3), narrow, Scene())
    with pytest.raises(ParameterOutOfRange, match="with one payload only"):
        take_over(planner, narrow, first(gen3))


def test_what_takes_over_must_hold_for_every_bound_of_the_plan_before(gen3, wide, narrow, continued):
    """The planner of the last one knows only the narrow payload; the arm may move with the errors of the wide one."""
    again, after = continued
    with_wide = CertifiedPlanner(gen3, FAST).certify(first(gen3), wide, Scene(), 9.0)
    assert with_wide.certificate.plan_hash == again.certificate.plan_hash

    alone = BoundRechecker(gen3)
    assert [alone.check(plan) for plan in (again, after)] == [(), ()]
    for both in ((with_wide, again), (again, with_wide)):
        checker = BoundRechecker(gen3)
        assert [checker.check(plan) for plan in both] == [(), ()]
        problems = checker.check(after)
        assert any("its certificate states a" in text or "cannot be proven" in text for text in problems), problems


@pytest.mark.parametrize("brake_time", [0.0, -0.5, np.nan, np.inf])
def test_a_brake_time_that_cannot_be_is_a_problem_of_stops(gen3, continued, brake_time):
    again, _ = continued
    changed = replace(again, certificate=replace(again.certificate, brake_time=brake_time))
    problems = BoundRechecker(gen3, stop_spacing=1.0).check(changed)
    assert problems == (f"its stops have no bounds: the brake time of its certificate is {brake_time:g} s",)
