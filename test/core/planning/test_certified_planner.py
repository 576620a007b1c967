"""Plans that take over from each other: each inherits the errors of its predecessor, which its identity tells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.recheck import BoundRechecker, check_sequence, recheck
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.request import PlanRequest, RecedingSettings
from sysid_ros.core.trajectories.families import BezierTrajectory

ZERO, TAKEOVER = np.zeros(7), 1.5
FAST = RecedingSettings(draws=8, starts=1, k_range=0.3)


def payload_within(robot, share):
    prior = robot.payload_prior
    return Assumptions.of_payload(robot, Box.around(prior.nominal, share * prior.box.radius).intersect(prior.box))


@pytest.fixture(scope="module")
def wide(gen3):
    return payload_within(gen3, 0.2)


@pytest.fixture(scope="module")
def narrow(gen3):
    return payload_within(gen3, 0.05)


def first(gen3):
    """Always a new object with the same numbers, as from a service call."""
    return BezierTrajectory(gen3.home, ZERO, ZERO, gen3.home + 0.2, 3.0)


def take_over(planner, assumptions, plan, time=TAKEOVER):
    return planner.plan(PlanRequest(assumptions, predecessor=plan, takeover_time=time, time_limit=60.0), 11.5)


@pytest.fixture(scope="module")
def chain(gen3, narrow):
    """A plan and one that takes over from it."""
    planner = CertifiedPlanner(gen3, FAST)
    plan = planner.certify(first(gen3), narrow, 10.0)
    return plan, take_over(planner, narrow, plan)


def test_a_chain_holds_together(gen3, chain):
    plan, after = chain
    assert after.predecessor == plan.plan_id and after.takeover_time == TAKEOVER and plan.predecessor is None
    assert plan.certificate.rest_before > 0.0 == after.certificate.rest_before
    assert after.handover_time == FAST.planning_time and after.condition_number > 1.0
    checker = BoundRechecker(gen3)
    assert [(checker.check(one), recheck(gen3, one, bound=checker.latest).problems) for one in chain] == [((), ())] * 2
    assert check_sequence(chain) == [(), ()]
    assert all("stops along the path that begin at any time" in one.certificate.claims for one in chain)


def test_the_same_path_for_another_payload_is_another_plan(gen3, wide, narrow):
    """As the way to a place with another object: what takes over knows from which of the two."""
    planner, known = CertifiedPlanner(gen3, FAST), replace(narrow, nominal=wide.nominal)
    plans = [planner.certify(first(gen3), one, now) for one, now in ((wide, 1.0), (known, 2.0), (wide, 3.0))]
    assert plans[0] == plans[2] != plans[1] and len({plan.trajectory.hash() for plan in plans}) == 1
    bounds = [take_over(planner, known, plan).certificate.tracking_bound.max() for plan in plans[:2]]
    assert bounds[0] != bounds[1]


def test_an_arm_that_cannot_move_does_not_rest_twice_alike(gen3, narrow):
    """Two plans of a chain that stay where they are have one path, but two identities."""
    planner = CertifiedPlanner(gen3, replace(FAST, k_range=1e-3))
    still = planner.certify(BezierTrajectory(gen3.home, ZERO, ZERO, gen3.home, 3.0), narrow)
    plans = [still]
    for _ in range(2):
        wanted = PlanRequest(narrow, predecessor=plans[-1], takeover_time=TAKEOVER, goal=gen3.home, time_limit=60.0)
        plans.append(planner.plan(wanted))
    assert len({plan.plan_id for plan in plans}) == 3
    np.testing.assert_allclose([plan.trajectory.end for plan in plans], [gen3.home] * 3, atol=1e-3)


def test_what_takes_over_inherits_the_errors_of_its_own_predecessor(gen3, wide, narrow, chain):
    """Where the arm moves with the errors of the wide payload, the proof for the narrow one is not about it."""
    plan, after = chain
    with_wide = CertifiedPlanner(gen3, FAST).certify(first(gen3), wide, 9.0)
    checker = BoundRechecker(gen3)
    assert checker.check(with_wide) == ()
    assert "takes over from plan" in checker.check(after)[0] and "not here" in checker.check(after)[0]
    forged = replace(after, certificate=replace(after.certificate, predecessor=with_wide.plan_id))
    problems = checker.check(forged)
    assert any("its certificate states a" in text or "cannot be proven" in text for text in problems), problems


def test_a_predecessor_must_have_a_bound_and_a_time(gen3, narrow, chain):
    plan, _ = chain
    with pytest.raises(ParameterOutOfRange, match="plan to take over from is .* whose tracking bound is known here"):
        PlanRequest(narrow, predecessor=replace(plan, bound=None), takeover_time=TAKEOVER)
    with pytest.raises(ParameterOutOfRange, match="a multiple of"):
        take_over(CertifiedPlanner(gen3, FAST), narrow, plan, 1.5003)
