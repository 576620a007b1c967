"""Plans that take over from each other: each inherits the errors of its predecessor, which its identity tells."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from textbook import load_textbook

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.checks import AllowedErrors
from sysid_ros.core.certification.recheck import BoundRechecker, check_sequence, recheck
from sysid_ros.core.certification.reproof import Reprover
from sysid_ros.core.certification.stop_model import LimitKind, PlanRejected, VerifierSettings
from sysid_ros.core.certification.verify import prove_throughout, verify
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import Cancelled, ParameterOutOfRange, SysidError
from sysid_ros.core.planning.candidates import RobustProver
from sysid_ros.core.planning.planner import CertifiedPlanner, Try
from sysid_ros.core.planning.request import PlanFailure, PlanFailureCode, PlanRequest, RecedingSettings
from sysid_ros.core.tracking_bound.bound import TrackingBound
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
    with pytest.raises(ParameterOutOfRange, match="plan to take over from .* whose tracking bound is known here"):
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
        assert certificate.is_proven_throughout
        if plan.predecessor is None:
            assert certificate.rest_before == max(one.settling_time for one in bounds)
        for name, values in (("position", certificate.tracking_bound), ("torque", certificate.torque_bound)):
            np.testing.assert_array_equal(values, np.maximum(*(getattr(one, name) for one in bounds)))
        assert "the bounds of the errors throughout" in certificate.claims and "estimated" not in certificate.claims
        assert recheck(gen3, plan, bound=plan.bound).problems == ()
        for checker in checkers:
            assert checker.check(plan) == ()
            assert recheck(gen3, plan, bound=checker.latest, takes_larger=checker.encloses_terms).problems == ()
        driver.prove(plan.trajectory, certificate, plan.assumptions(gen3))
    assert proven[1].statistics.seconds["total"] > proven[1].statistics.seconds["proof"] > 0.0


def test_certificates_with_estimated_terms_say_so(chain):
    for plan in chain:
        assert "estimated" in plan.certificate.claims and plan.proven is None
        assert not plan.certificate.is_proven_throughout


def test_certificates_of_elastic_arms_say_so(chain):
    robot = load_textbook("kinova_gen3_2f85:elastic")
    still = BezierTrajectory(robot.home, ZERO, ZERO, robot.home, 1.0)
    certificate = CertifiedPlanner(robot, FAST).certify(still, payload_within(robot, 0.05)).certificate
    assert "elasticity of the joints" in certificate.claims.split("Not proven:")[1]
    assert all("elasticity" not in plan.certificate.claims for plan in chain)


def test_a_proof_throughout_goes_on_from_such_a_proof(gen3, narrow, chain):
    with pytest.raises(ParameterOutOfRange, match="plan to take over from.*proven throughout"):
        take_over(CertifiedPlanner(gen3, THROUGHOUT), narrow, chain[0])


class Doubtful(RobustProver):
    """Refuses proofs throughout, one after the other, and notes how much room verified motions had."""

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
NO_BOUND = BoundNotAvailable("the tube grows")


def test_a_motion_that_cannot_be_proven_throughout_is_no_plan(gen3, narrow):
    """Others are tried that leave more room, and then the reason is told; the next request begins as if new.

    But for how far exciting motions may go: where there is no bound, later requests begin with smaller ones, too.
    """
    prover = Doubtful(*[TOO_MUCH] * 9)
    planner = CertifiedPlanner(gen3, THROUGHOUT, prover=prover)
    for left in (6, 3):
        with pytest.raises(
            PlanFailure, match="proven throughout.*braking torque limit broken at joint 'joint_5'"
        ) as found:
            planner.plan(PlanRequest(narrow, start=gen3.home, time_limit=60.0))
        assert found.value.code is PlanFailureCode.LIMIT and len(prover.refusals) == left
        np.testing.assert_allclose(sorted({round(room, 6) for room in prover.rooms}), [0.02, 0.05, 0.12])
        assert planner._warm_start.last_end is None and planner._try == Try() and planner._share == 1.0
    with pytest.raises(PlanRejected, match="joint_5"):
        planner.certify(first(gen3), narrow)
    prover.refusals[0] = NO_BOUND
    with pytest.raises(BoundNotAvailable, match="the tube grows"):
        planner.certify(first(gen3), narrow)
    with pytest.raises(PlanRejected, match="joint_5"):
        planner.plan_to(PlanRequest(narrow, start=gen3.home, goal=gen3.home + 0.1), duration=3.0)
    assert prover.refusals == [] and planner._share == 1.0


def test_motions_to_a_goal_that_cannot_be_proven_throughout_are_tried_more_slowly(gen3, narrow):
    prover, durations = Doubtful(*[NO_BOUND] * 3), []
    prover.prove = lambda request, motion, bound: (
        durations.append(motion.duration) or Doubtful.prove(prover, *[None] * 3)
    )
    planner = CertifiedPlanner(gen3, THROUGHOUT, prover=prover)
    with pytest.raises(BoundNotAvailable, match="the tube grows"):
        planner.plan_to(PlanRequest(narrow, start=gen3.home, goal=gen3.home + 0.1))
    assert durations[1] >= 1.09 * durations[0] and durations[2] >= 1.29 * durations[0]


def test_exciting_motions_without_a_bound_throughout_are_tried_with_smaller_ones(gen3, narrow):
    prover, reached = Doubtful(*[NO_BOUND] * 9), []
    prover.prove = lambda request, motion, bound: reached.append(motion.end) or Doubtful.prove(prover, *[None] * 3)
    planner = CertifiedPlanner(gen3, THROUGHOUT, prover=prover)
    for _ in range(3):
        with pytest.raises(PlanFailure, match="the tube grows") as found:
            planner.plan(PlanRequest(narrow, start=gen3.home, time_limit=60.0))
        assert found.value.code is PlanFailureCode.NO_TRACKING_BOUND
    sizes, shares = np.abs(np.array(reached) - gen3.home).max(axis=1), np.maximum(0.5 ** np.arange(9), 1.0 / 32.0)
    np.testing.assert_array_less(sizes, THROUGHOUT.k_range * shares + 1e-6)
    assert planner._share == 1.0 / 32.0


def test_there_is_no_plan_where_there_is_no_time_to_prove_it(gen3, narrow):
    """What the proof is expected to take is not searched in; it is tried again with less in the end."""
    prover = Doubtful(*[TOO_MUCH] * 9)
    planner = CertifiedPlanner(gen3, replace(THROUGHOUT, proof_time=50.0), prover=prover)
    for goal in (None, gen3.home + 0.1):
        wanted = PlanRequest(narrow, start=gen3.home, goal=goal, time_limit=20.0)
        with pytest.raises(
            PlanFailure, match=r"takes about .* s, besides the search, and the plan was due in 20.0 s; plan"
        ) as found:
            planner.plan(wanted)
        assert found.value.code is PlanFailureCode.NO_TIME and len(prover.refusals) == 9
    for _ in range(2):
        with pytest.raises(PlanFailure):
            planner.plan(wanted)
    assert len(prover.refusals) < 9


def test_a_plan_that_is_overdue_says_by_how_much_and_what_the_arm_will_do(gen3, narrow):
    planner = CertifiedPlanner(gen3, THROUGHOUT, prover=Doubtful())
    at_rest, moving = PlanRequest(narrow, start=gen3.home), SimpleNamespace(predecessor=object())
    assert "the plan was due 6.1 s ago; plan with a longer time_limit" in str(planner._no_time(at_rest, -6.14))
    assert "was due 6.1 s ago; the arm comes to rest and goes on from there" in str(planner._no_time(moving, -6.14))


def test_a_search_that_needs_what_is_left_for_the_proof_says_so_and_expects_less(gen3, narrow):
    """Otherwise the same request would fail in the same way for ever."""
    planner = CertifiedPlanner(gen3, replace(THROUGHOUT, proof_time=1.0), prover=Doubtful(TOO_MUCH))
    with pytest.raises(PlanFailure, match="takes about 1.0 s"):
        planner.plan(PlanRequest(narrow, start=gen3.home, time_limit=1.001))
    assert planner._proof_time.expected == 0.5 and len(planner.prover.refusals) == 1


def test_a_search_that_is_cancelled_is_not_proven(gen3, narrow):
    prover, asked = Doubtful(TOO_MUCH), []
    planner = CertifiedPlanner(gen3, THROUGHOUT, prover=prover)

    def is_cancelled():
        return bool(asked)

    prover.prove = lambda *given: asked.append(1) or Doubtful.prove(prover, *given)
    with pytest.raises(Cancelled):
        planner.plan(PlanRequest(narrow, start=gen3.home, time_limit=60.0), is_cancelled=is_cancelled)
    assert asked == [1]


@pytest.mark.slow
def test_the_next_motion_is_proven_where_the_first_cannot(gen3, narrow):
    planner = CertifiedPlanner(gen3, THROUGHOUT, prover=Doubtful(TOO_MUCH))
    plan = planner.plan(PlanRequest(narrow, start=gen3.home, time_limit=60.0))
    assert plan.proven.is_proven and not planner.prover.refusals


@pytest.mark.slow
def test_bounds_that_drivers_do_not_accept_are_none(gen3, narrow):
    """Much larger than with estimated terms; a driver does not believe a certificate that states so much."""
    planner = CertifiedPlanner(gen3, THROUGHOUT)
    estimated = planner.prover.bound(PlanRequest(narrow, start=gen3.home), first(gen3))
    smaller = replace(estimated, velocity=estimated.velocity / 1.3)
    with pytest.raises(BoundNotAvailable, match="velocity error of joint_.* is 1.[23].* times"):
        planner.prover.prove(PlanRequest(narrow, start=gen3.home), first(gen3), smaller)


def test_a_driver_accepts_no_larger_errors_because_a_certificate_says_how_they_were_proven(gen3, narrow, chain):
    """It has not proven that; rounding apart, no smaller ones either."""
    plan, prove = chain[0], Reprover(gen3).prove
    cases = product(("tracking_bound", "velocity_bound", "torque_bound"), (False, True), (1.0, 1.009, 1.15, 0.98, 1.25))
    for name, is_throughout, factor in cases:
        larger = {name: factor * getattr(plan.certificate, name), "is_proven_throughout": is_throughout}
        stated, problem = replace(plan.certificate, **larger), None
        if factor not in (1.0, 1.009):
            problem = "no less than" if factor < 1.0 else "only"
        if problem is None:
            prove(plan.trajectory, stated, narrow)
            continue
        with pytest.raises(SysidError, match=problem):
            prove(plan.trajectory, stated, narrow)


@dataclass(frozen=True)
class Larger:
    """A tracking bound, larger by shares of one's own at half of the joints, on the path or in stops."""

    of: TrackingBound
    path: float = 0.0
    stops: float = 0.0
    is_proven: bool = True

    def __getattr__(self, name):
        values = getattr(self.of, name)
        return values * self.factors(self.path) if name in ("position", "velocity", "torque") else values

    @staticmethod
    def factors(share):
        return np.where(np.arange(7) % 2, 1.0 + share, 1.0 - share)

    def torque_over(self, middle, half):
        return self.of.torque_over(middle, half) * self.factors(self.path)

    def in_stops(self, brake_time):
        found, factor = self.of.in_stops(brake_time), self.factors(self.stops)
        parts = {name: getattr(found, name) * factor for name in ("position", "velocity", "torque")}
        return replace(found, **parts)

    def without_proof(self):
        return self


def test_the_larger_errors_of_two_bounds(gen3, narrow):
    """Each by itself: on the path, at each time of it, and in stops."""
    one = narrow.bound(first(gen3))
    other = Larger(one, 0.1, 0.2)
    factors, in_stops = np.maximum(Larger.factors(0.1), 1.0), np.maximum(Larger.factors(0.2), 1.0)
    middle, half = np.linspace(0.1, 2.9, 5), np.full(5, 0.1)
    for larger in (AllowedErrors.larger_of(one, other), AllowedErrors.larger_of(other, one)):
        assert larger.is_proven and larger.friction_speed == one.whole.settings.friction_speed
        np.testing.assert_allclose(larger.torques(middle, half), one.torque_over(middle, half) * factors)
        grown = larger.enlarged(0.5)
        np.testing.assert_allclose(grown.torques(middle, half), 1.5 * one.torque_over(middle, half) * factors)
        for name in ("position", "velocity", "torque"):
            np.testing.assert_allclose(getattr(larger, name), getattr(one, name) * factors)
            np.testing.assert_allclose(getattr(grown, name), 1.5 * getattr(larger, name))
            expected = getattr(one.in_stops(0.5), name) * in_stops
            np.testing.assert_allclose(getattr(larger.stops(0.5), name), expected)
            np.testing.assert_allclose(getattr(grown.stops(0.5), name), 1.5 * expected)


@pytest.mark.parametrize("where", ["path", "stops"])
def test_limits_are_proven_with_errors_that_are_larger_throughout(gen3, narrow, monkeypatch, where):
    """What a torque limit just allows with estimated terms is refused with errors that are larger than these."""
    motion, bound = first(gen3), narrow.bound(first(gen3))
    monkeypatch.setattr(Assumptions, "bound", lambda *_: Larger(bound, **{where: 0.008 if where == "path" else 0.15}))
    limits = [prove_throughout(narrow, motion, bound).verification, verify(narrow, motion, bound)]
    assert limits[0].is_proven_throughout and not limits[1].is_proven_throughout
    kind = LimitKind.TORQUE if where == "path" else LimitKind.BRAKING_TORQUE
    proven, estimated = (one.margins[kind].value for one in limits)
    assert proven < estimated - 1e-4
    if where == "path":
        return  # with errors that may be larger by no more than a hundredth, torques in stops decide before
    least = VerifierSettings(torque_fraction=1.0 - 0.5 * (proven + estimated))
    verify(narrow, motion, bound, least)
    with pytest.raises(PlanRejected, match=kind.value):
        prove_throughout(narrow, motion, bound, settings=least)
