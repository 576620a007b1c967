"""Plans that take over from each other: each inherits the errors of its predecessor, which its identity tells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.checks import AllowedErrors
from sysid_ros.core.certification.recheck import BoundRechecker, check_sequence, recheck
from sysid_ros.core.certification.reproof import NotProven, Reprover
from sysid_ros.core.certification.stop_model import LimitKind, PlanRejected, VerifierSettings
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.planning.candidates import RobustProver
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.request import PlanFailure, PlanFailureCode, PlanRequest, RecedingSettings
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable
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


THROUGHOUT = replace(FAST, proves_throughout=True)


@pytest.fixture(scope="module")
def proven(gen3, narrow):
    """A plan and one that takes over from it, both proven throughout."""
    planner = CertifiedPlanner(gen3, THROUGHOUT)
    plan = planner.certify(first(gen3), narrow, 10.0)
    return plan, take_over(planner, narrow, plan)


@pytest.mark.slow
def test_plans_are_proven_throughout_where_that_is_asked_for(gen3, proven):
    """Their certificates hold with either kind of bound, for the driver and for who checks them afterwards."""
    driver, checkers = Reprover(gen3), [BoundRechecker(gen3, encloses_terms=kind) for kind in (False, True)]
    for plan in proven:
        certificate, bounds = plan.certificate, (plan.bound, plan.proven)
        assert [one.is_proven for one in bounds] == [False, True] and plan.proven.proof is None
        for name, values in (("position", certificate.tracking_bound), ("torque", certificate.torque_bound)):
            np.testing.assert_array_equal(values, np.maximum(*(getattr(one, name) for one in bounds)))
        assert "the bounds of the errors throughout" in certificate.claims and "estimated" not in certificate.claims
        assert recheck(gen3, plan, bound=plan.bound).problems == ()
        for checker in checkers:
            assert checker.check(plan) == ()
            assert recheck(gen3, plan, bound=checker.latest, takes_larger=checker.encloses_terms).problems == ()
        driver.prove(plan.trajectory, certificate, plan.assumptions(gen3))
    assert proven[0].certificate.rest_before >= max(one.settling_time for one in bounds)
    assert proven[1].statistics.seconds["total"] > proven[1].statistics.seconds["proof"] > 0.0


def test_certificates_with_estimated_terms_say_so(chain):
    assert all("estimated" in plan.certificate.claims and plan.proven is None for plan in chain)


def test_certificates_of_elastic_arms_say_so(chain):
    robot = load_robot("kinova_gen3_2f85:elastic")
    still = BezierTrajectory(robot.home, ZERO, ZERO, robot.home, 1.0)
    certificate = CertifiedPlanner(robot, FAST).certify(still, payload_within(robot, 0.05)).certificate
    assert "elasticity of the joints" in certificate.claims.split("Not proven:")[1]
    assert all("elasticity" not in plan.certificate.claims for plan in chain)


def test_a_proof_throughout_goes_on_from_such_a_proof(gen3, narrow, chain):
    with pytest.raises(ParameterOutOfRange, match="plan to take over from.*proven throughout"):
        take_over(CertifiedPlanner(gen3, THROUGHOUT), narrow, chain[0])


class Doubtful(RobustProver):
    """Refuses proofs throughout, one after the other, and notes with which errors motions were verified."""

    def __init__(self, *refusals):
        super().__init__(VerifierSettings())
        self.refusals, self.rooms = list(refusals), []

    def verify(self, request, trajectory, errors):
        if isinstance(errors, AllowedErrors):
            self.rooms.append(float((errors.position / request.assumptions.bound(trajectory).position).max()) - 1.0)
        return super().verify(request, trajectory, errors)

    def prove(self, request, trajectory, bound):
        if self.refusals:
            raise self.refusals.pop(0)
        return super().prove(request, trajectory, bound)


TOO_MUCH = PlanRejected(LimitKind.BRAKING_TORQUE, ("joint_5",), 0.5, 9.1, 9.0)


def test_a_motion_that_cannot_be_proven_throughout_is_no_plan(gen3, narrow):
    """Others are tried that leave more room, and then the reason is told."""
    prover = Doubtful(*[TOO_MUCH] * 9)
    planner = CertifiedPlanner(gen3, THROUGHOUT, prover=prover)
    with pytest.raises(PlanFailure, match="proven throughout.*braking torque limit broken at joint 'joint_5'") as found:
        planner.plan(PlanRequest(narrow, start=gen3.home, time_limit=60.0))
    assert found.value.code is PlanFailureCode.LIMIT and len(prover.refusals) == 6
    np.testing.assert_allclose(sorted({round(room, 6) for room in prover.rooms}), [0.02, 0.04, 0.06])
    with pytest.raises(PlanRejected, match="joint_5"):
        planner.certify(first(gen3), narrow)
    assert len(prover.refusals) == 5
    prover.refusals[0] = BoundNotAvailable("the tube grows")
    with pytest.raises(BoundNotAvailable, match="the tube grows"):
        planner.certify(first(gen3), narrow)
    with pytest.raises(PlanRejected, match="joint_5"):
        planner.plan_to(PlanRequest(narrow, start=gen3.home, goal=gen3.home + 0.1), duration=3.0)
    assert len(prover.refusals) == 3


def test_there_is_no_plan_where_there_is_no_time_to_prove_it(gen3, narrow):
    """What the proof is expected to take is not searched in; it is tried again with less in the end."""
    prover = Doubtful(*[TOO_MUCH] * 9)
    planner = CertifiedPlanner(gen3, replace(THROUGHOUT, proof_time=50.0), prover=prover)
    wanted = PlanRequest(narrow, start=gen3.home, time_limit=20.0)
    with pytest.raises(
        PlanFailure, match="proven throughout is expected to take 50.0 s, and there are 20.0 s"
    ) as found:
        planner.plan(wanted)
    assert found.value.code is PlanFailureCode.NO_TIME and len(prover.refusals) == 9
    for _ in range(3):
        with pytest.raises(PlanFailure):
            planner.plan(wanted)
    assert len(prover.refusals) < 9


@pytest.mark.slow
def test_the_next_motion_is_proven_where_the_first_cannot(gen3, narrow):
    planner = CertifiedPlanner(gen3, THROUGHOUT, prover=Doubtful(TOO_MUCH))
    plan = planner.plan(PlanRequest(narrow, start=gen3.home, time_limit=60.0))
    assert plan.proven.is_proven and not planner.prover.refusals


@pytest.mark.slow
def test_bounds_that_drivers_do_not_accept_are_none(gen3, narrow, monkeypatch):
    """Much larger than with estimated terms; a driver does not believe a certificate that states so much."""
    planner = CertifiedPlanner(gen3, THROUGHOUT)
    estimated = planner.prover.bound(PlanRequest(narrow, start=gen3.home), first(gen3))
    smaller = replace(estimated, velocity=estimated.velocity / 1.3)
    with pytest.raises(BoundNotAvailable, match="velocity error of joint_.* is 1.[23].* times"):
        planner.prover.prove(PlanRequest(narrow, start=gen3.home), first(gen3), smaller)


def test_a_driver_accepts_certificates_that_state_somewhat_larger_errors(gen3, narrow, chain):
    """As those may that are proven throughout, but no smaller ones, and not any larger ones."""
    plan, _ = chain
    for factor, problem in ((1.15, None), (0.98, "no less than"), (1.25, "only")):
        stated = replace(plan.certificate, tracking_bound=factor * plan.certificate.tracking_bound)
        prove = Reprover(gen3).prove
        if problem is None:
            prove(plan.trajectory, stated, narrow)
            continue
        with pytest.raises(NotProven, match=problem):
            prove(plan.trajectory, stated, narrow)


def test_the_larger_errors_of_two_bounds(gen3, wide, narrow):
    bounds = [one.bound(first(gen3)) for one in (wide, narrow)]
    larger = AllowedErrors.larger_of(*reversed(bounds))
    middle, half = np.linspace(0.1, 2.9, 5), np.full(5, 0.1)
    both = [larger.torques(middle, half), *(one.torque_over(middle, half) for one in bounds)]
    np.testing.assert_array_equal(both[0], np.maximum(*both[1:]))
    stops = [larger.stops(0.5), *(one.in_stops(0.5) for one in bounds)]
    for name in ("position", "velocity", "torque"):
        np.testing.assert_array_equal(getattr(stops[0], name), np.maximum(*(getattr(one, name) for one in stops[1:])))
        grown = getattr(larger.scaled(1.5).stops(0.5), name)
        np.testing.assert_allclose(grown, 1.5 * getattr(stops[0], name))
    np.testing.assert_allclose(larger.scaled(1.5).torques(middle, half), 1.5 * both[0])
    assert np.all(larger.position >= bounds[0].position) and not larger.is_proven
