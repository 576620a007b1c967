"""The planner as a whole: what it returns, when, and why not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from proofs import assume, verify

from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.certification.stop_model import LimitKind, PlanRejected
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.common.errors import Cancelled, ParameterOutOfRange, SysidError
from sysid_ros.core.planning import candidates
from sysid_ros.core.planning.constraints import AssumedErrors, Margins
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.request import PlanFailure, PlanFailureCode, PlanRequest, RecedingSettings

NOTHING = np.zeros((10, 10))
ENOUGH = 60.0  # [s]


@pytest.fixture
def rest(gen3):
    return gen3.home, np.zeros(7), np.zeros(7)


class Stand:
    """Bounds and proofs of a stand-in for the controller and the verifier."""

    def __init__(self, bound, check):
        self._bound, self._check = bound, check

    def bound(self, request, trajectory):
        return self._bound(trajectory)

    def verify(self, request, trajectory, errors):
        return self._check(trajectory, errors)


@dataclass(frozen=True)
class Outcome:
    """A plan or a failure, and all information there is then."""

    plan: CertifiedPlan | None
    failure: PlanFailure | None
    known: np.ndarray

    @property
    def is_found(self):
        return self.plan is not None

    @property
    def reason(self):
        return str(self.failure)

    @property
    def trajectory(self):
        return self.plan.trajectory

    @property
    def errors(self):
        return self.plan.bound

    @property
    def information(self):
        return self.known + self.plan.information_gained

    @property
    def condition_number(self):
        return self.plan.condition_number

    @property
    def statistics(self):
        return (self.plan or self.failure).statistics

    @property
    def cost(self):
        return self.statistics.cost


@pytest.fixture
def ask(make_request):
    """Asks a planner for a plan from any state with given bounds and proofs."""

    def call(
        planner, assumptions, start, bound, check, known=NOTHING, within=ENOUGH, is_cancelled=lambda: False, **more
    ):
        planner.prover = Stand(bound, check)
        planned = SimpleNamespace(until=lambda time: None)
        request = make_request(assumptions, start, planned, information=known, time_limit=within, **more)
        try:
            return Outcome(planner.plan(request, is_cancelled=is_cancelled), None, known)
        except PlanFailure as failure:
            return Outcome(None, failure, known)

    return call


@pytest.fixture
def plan(ask, gen3, boxes, errors, scene, rest):
    """Calls the planner; what is not given is the stand-in controller and the verifier."""

    def call(planner=None, start=rest, environment=scene, bound=None, check=None, **more):
        bound = bound or (lambda trajectory: errors)
        check = check or (lambda trajectory, found: verify(gen3, trajectory, boxes, found, environment))
        assumptions = assume(gen3, boxes, environment)
        return ask(planner or CertifiedPlanner(gen3), assumptions, start, bound, check, **more)

    return call


@pytest.fixture
def moving_start(plan):
    """The state in which the second plan takes over from a first."""
    return plan().trajectory.evaluate(1.5)


def rejection(limit=LimitKind.TORQUE, names=("joint_2",), value=40.0, allowed=39.0):
    return PlanRejected(limit, names, 1.0, value, allowed)


def test_plan_starts_exactly_in_the_given_state_and_is_verified(plan, moving_start, errors):
    outcome = plan(start=moving_start)
    assert outcome.is_found
    for got, given in zip(outcome.trajectory.evaluate(0.0), moving_start, strict=True):
        assert np.array_equal(got, given)
    assert outcome.errors is errors
    assert all(margin.value >= 0.0 for margin in outcome.plan.certificate.margins)
    end = outcome.trajectory.evaluate(3.0)
    assert np.allclose(np.concatenate(end[1:]), 0.0, atol=1e-12)  # at rest


def test_plans_of_a_chain_learn_more_and_more(plan, gen3, rest):
    planner, start, known, found = CertifiedPlanner(gen3), rest, NOTHING, []
    for number in range(4):
        outcome = plan(planner, start=start, known=known, is_last=number == 3)
        assert outcome.is_found, outcome.reason
        found.append(outcome.condition_number)
        start, known = outcome.trajectory.evaluate(1.5), outcome.information
        assert np.linalg.cond(np.linalg.cholesky(known)) == pytest.approx(outcome.condition_number, rel=1e-6)
    assert found == sorted(found, reverse=True)
    assert found[-1] < 15.0


@pytest.mark.parametrize("seed", range(2))
def test_a_plan_leaves_room_for_the_larger_errors_of_the_next(ask, gen3, boxes, errors, seed):
    """Between close limits: for one that takes over, and for one that begins where it ended."""
    close = replace(gen3.limits, q_lower=gen3.home - 0.2, q_upper=gen3.home + 0.2)
    arm, rest, scene = replace(gen3, limits=close), np.zeros(7), Scene()
    small = replace(errors, position=0.3 * errors.position, velocity=0.3 * errors.velocity, torque=0.8 * errors.torque)
    planner = CertifiedPlanner(arm)

    def plan(start, found):
        prove = lambda path, bound: verify(arm, path, boxes, bound, scene)  # noqa: E731
        return ask(planner, assume(arm, boxes, scene), start, lambda _: found, prove)

    first = plan((gen3.home + np.random.default_rng(seed).uniform(-0.15, 0.15, 7), rest, rest), small)
    last = plan(first.trajectory.evaluate(1.5), small).trajectory
    for start in (last.evaluate(1.5), (last.q1, rest, rest)):
        after = plan(start, errors)
        assert after.is_found, after.reason


def test_next_to_a_limit_smaller_motions_are_found(ask, gen3, boxes, errors):
    """Where large motions have no room for their errors, which are known only once one was looked at."""
    close = replace(gen3.limits, q_lower=gen3.home - 0.3, q_upper=gen3.home + 0.3)
    arm, rest, scene = replace(gen3, limits=close), np.zeros(7), Scene()

    def bound(path):
        share = 0.2 + np.abs(path.q1 - path.evaluate(0.0)[0]).max()
        return replace(errors, position=share * errors.position)

    start = gen3.home.copy()
    start[3] = close.q_upper[3] - 1.75 * 0.2 * errors.position[3] - 0.004
    prove = lambda path, found: verify(arm, path, boxes, found, scene)  # noqa: E731
    outcome = ask(CertifiedPlanner(arm), assume(arm, boxes, scene), (start, rest, rest), bound, prove)
    assert outcome.is_found, outcome.reason
    assert outcome.trajectory.q1[3] < start[3] - 0.015  # away from the limit, so that there is a way on


def test_the_same_seed_gives_the_same_plan(plan, gen3):
    one, two, other = (plan(CertifiedPlanner(gen3, RecedingSettings(seed=seed))) for seed in (3, 3, 4))
    assert one.trajectory.hash() == two.trajectory.hash() != other.trajectory.hash()
    assert not one.statistics.was_cut


def test_forget_makes_a_planner_as_new(plan, gen3, moving_start):
    planner = CertifiedPlanner(gen3)
    fresh = plan(planner, start=moving_start)
    again = plan(planner, start=moving_start)
    planner.forget()
    assert plan(planner, start=moving_start).trajectory.hash() == fresh.trajectory.hash() != again.trajectory.hash()


@pytest.mark.slow
def test_search_beats_the_best_of_many_random_motions(plan, make_problem, gen3, rest):
    outcome = plan()
    problem = make_problem(start=rest)
    x = problem.space.offsets(np.random.default_rng(0).uniform(-1.0, 1.0, (500, 7)))
    feasible = problem.constraints().evaluate(x).worst <= 0.0
    assert feasible.sum() > 5
    assert outcome.cost < problem.cost.evaluate(x)[feasible].min()


@pytest.mark.parametrize("kind", ["determinant", "bounds"])
def test_other_costs(plan, gen3, kind):
    outcome = plan(CertifiedPlanner(gen3, RecedingSettings(cost=kind, draws=16, starts=2)))
    assert outcome.is_found and np.isfinite(outcome.condition_number)


def test_a_goal_within_reach_is_reached(plan, gen3):
    goal = gen3.home + np.array([0.3, -0.1, 0.2, -0.1, 0.1, -0.1, 0.2])
    outcome = plan(goal=goal, is_last=True, environment=Scene())
    assert outcome.is_found
    np.testing.assert_allclose(outcome.trajectory.q1, goal, atol=0.02)


def test_a_rejected_candidate_is_replaced_by_one_with_more_room(plan, gen3, boxes, errors, scene):
    """A verifier that asks for more torque than the limits leave until the third candidate is calm enough."""
    seen = []

    def strict(trajectory, found):
        seen.append(trajectory)
        more = replace(found, torque=found.torque + 0.1 * gen3.limits.tau_max)
        return verify(gen3, trajectory, boxes, more, scene)

    outcome = plan(check=strict)
    assert outcome.is_found
    assert 1 < outcome.statistics.verifications == len(seen)
    assert len(outcome.statistics.rejections) == len(seen) - 1
    assert "torque limit broken at joint" in outcome.statistics.rejections[0]


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (rejection(LimitKind.SELF_COLLISION, ("a", "b"), -0.02, 0.0), "distance"),
        (rejection(LimitKind.OBSTACLE, ("a", "b"), 0.01, 0.02), "distance"),
        (rejection(LimitKind.BRAKING_TORQUE), "torque"),
        (rejection(LimitKind.POSITION, ("joint_2",), 2.3, 2.24), "position"),
        (rejection(LimitKind.VELOCITY, ("joint_2",), 1.5, 1.4), "velocity"),
    ],
)
def test_margins_grow_by_what_was_missing(gen3, failure, kind):
    margins = Margins.of(RecedingSettings(), 7)
    grown = margins.grown(failure, gen3.joint_names)
    growth = np.asarray(getattr(grown, kind)) - getattr(margins, kind)
    missing = abs(failure.value - failure.allowed) / (failure.allowed if kind in ("torque", "velocity") else 1.0)
    assert growth.max() > missing
    assert np.ndim(growth) == 0 or np.flatnonzero(growth).tolist() == [1]


def test_motions_that_cannot_be_bounded_make_the_next_smaller(plan, gen3, errors, rest):
    ends = []

    def slow_only(trajectory):
        ends.append(np.abs(trajectory.q1 - rest[0]).max())
        if ends[-1] > 0.5:
            raise SysidError("too fast")
        return errors

    planner = CertifiedPlanner(gen3, RecedingSettings(improvements=0))
    outcome = plan(planner, bound=slow_only)
    assert outcome.is_found and ends[0] == 0.0  # the minimum-acceleration stop
    assert ends[1] > 0.5 >= ends[-1]
    assert outcome.statistics.rejections[0] == "no bound of the tracking errors: too fast"
    # What has been learnt is remembered for the next plan.
    calls = len(ends)
    assert plan(planner, bound=slow_only).is_found
    assert len(ends) - calls < calls


def test_errors_larger_than_assumed_lead_to_another_candidate(plan, gen3, errors):
    large = replace(errors, torque=0.2 * gen3.limits.tau_max)
    outcome = plan(bound=lambda trajectory: large)
    assert outcome.is_found and outcome.statistics.bounds > 1
    assert outcome.statistics.verifications < outcome.statistics.bounds


class Growing:
    """Tracking errors that grow with the motion: torque errors from a share ``least`` of the limits on."""

    def __init__(self, errors, gen3, least=0.1, slope=0.2):
        self._errors, self._limits, self._least, self._slope = errors, gen3.limits.tau_max, least, slope
        self.given = {}

    def __call__(self, trajectory):
        size = np.abs(trajectory.q1 - trajectory.q0).max()
        found = replace(self._errors, torque=(self._least + self._slope * size**2) * self._limits)
        self.given[trajectory.hash()] = found
        return found


@pytest.mark.slow
def test_steps_never_make_a_plan_worse_and_each_is_proven_with_its_own_errors(plan, gen3, errors, boxes, scene):
    """And mostly better by more than the least gain; which motions the search comes to depends on rounding."""
    gains = []
    for least, seed in product((0.1, 0.3), (0, 1)):
        proven, found = [], []

        def check(trajectory, given):
            assert given is bound.given[trajectory.hash()]  # noqa: B023  # called in this turn only
            result = verify(gen3, trajectory, boxes, given, scene)
            proven.append(trajectory.hash())  # noqa: B023
            return result

        for improvements in (0, 4):
            bound = Growing(errors, gen3, least)
            settings = RecedingSettings(improvements=improvements, good_condition=1.0, seed=seed)
            found.append(plan(CertifiedPlanner(gen3, settings), bound=bound, check=check))
            assert found[-1].is_found and found[-1].trajectory.hash() in proven
            assert found[-1].errors is bound.given[found[-1].trajectory.hash()]
        first, better = found
        assert better.cost <= first.cost
        assert better.statistics.seconds["first"] < better.statistics.seconds["total"]
        gains.append(first.cost - better.cost)
    assert np.median(gains) > 0.03


def test_a_plan_that_is_good_enough_is_not_improved(plan, gen3, errors):
    bound = Growing(errors, gen3)
    settings = RecedingSettings(good_condition=1e6)
    outcome = plan(CertifiedPlanner(gen3, settings), bound=bound)
    calls = len(bound.given)
    again = plan(CertifiedPlanner(gen3, replace(settings, improvements=0)), bound=Growing(errors, gen3))
    assert outcome.trajectory.hash() == again.trajectory.hash() and calls == outcome.statistics.bounds


def test_a_step_that_cannot_be_proven_leaves_the_plan_as_it_was(plan, gen3, errors, boxes, scene):
    proven = []

    def check(trajectory, given):
        if proven:
            raise rejection()
        found = verify(gen3, trajectory, boxes, given, scene)
        proven.append(trajectory.hash())
        return found

    planner = CertifiedPlanner(gen3, RecedingSettings(good_condition=1.0))
    outcome = plan(planner, bound=Growing(errors, gen3), check=check)
    assert outcome.is_found and [outcome.trajectory.hash()] == proven
    assert outcome.statistics.verifications > 1


def test_a_motion_that_needs_more_room_than_there_is_is_reached_in_part(plan, gen3, errors):
    """Errors that leave no room at all for the motion that the search wants, and enough for smaller ones."""
    planner = CertifiedPlanner(gen3, RecedingSettings(improvements=0))
    outcome = plan(planner, bound=Growing(errors, gen3, 0.1, 5.0))
    assert outcome.is_found and np.abs(outcome.trajectory.q1 - outcome.trajectory.q0).max() > 0.02


@pytest.mark.slow
def test_the_way_on_to_the_end_of_the_last_plan_is_a_fallback(plan, gen3, errors, boxes, scene):
    """Where nothing but the posture that the arm moves to anyway leaves room, the next plan goes there as well."""
    planner = CertifiedPlanner(gen3, RecedingSettings(improvements=0))
    first = plan(planner)
    start, end = first.trajectory.evaluate(1.5), first.trajectory.q1

    def narrow(trajectory):
        away = np.abs(trajectory.q1 - end).max()
        return replace(errors, torque=min(0.05 + 100.0 * away, 2.0) * gen3.limits.tau_max)

    planner.forget()
    assert not plan(planner, start=start, bound=narrow).is_found
    again = plan(CertifiedPlanner(gen3, RecedingSettings(improvements=0)))
    assert again.trajectory.hash() == first.trajectory.hash()
    planner = CertifiedPlanner(gen3, RecedingSettings(improvements=0))
    plan(planner)
    onward = plan(planner, start=start, bound=narrow)
    assert onward.is_found and np.abs(onward.trajectory.q1 - end).max() < 1e-2


def test_a_start_beyond_the_limits_gives_a_reason(plan, gen3, rest):
    start = (rest[0], np.array([0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0]), rest[2])
    outcome = plan(start=start)
    assert not outcome.is_found and outcome.failure.code is PlanFailureCode.NO_MOTION
    assert "joint 'joint_4'" in outcome.reason and "limits" in outcome.reason


def test_a_start_in_an_obstacle_gives_the_verifiers_reason(plan):
    inside = Scene((Obstacle("block", np.array([0.4, 0.0, 0.45]), np.full(3, 0.1)),))
    outcome = plan(environment=inside)
    assert not outcome.is_found
    assert "block" in outcome.reason or "breaks a limit at the samples" in outcome.reason
    assert any("block" in text for text in outcome.statistics.rejections)


def test_every_candidate_rejected_gives_the_last_reason(plan):
    def never(trajectory, found):
        raise rejection()

    outcome = plan(check=never)
    assert not outcome.is_found and "torque limit broken at joint 'joint_2'" in outcome.reason
    assert outcome.failure.code is PlanFailureCode.LIMIT
    assert outcome.failure.rejection.cause.limit is LimitKind.TORQUE
    assert outcome.statistics.verifications <= RecedingSettings().attempts


@dataclass
class Clock:
    """The planner's time, which passes only in callables that take time: not on how fast the machine is."""

    now: float = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(candidates, "time", clock)
    return clock


@dataclass
class Slow:
    """A callable that takes its time."""

    clock: Clock
    seconds: float
    calls: int = 0

    def __call__(self, *arguments):
        self.calls += 1
        self.clock.now += self.seconds
        raise rejection()


@pytest.mark.slow
def test_deadline_holds_with_slow_callables(plan, gen3, clock):
    """Calls are begun only while there is time for the longest of late."""
    planner = CertifiedPlanner(gen3)
    check = Slow(clock, 0.3)
    for within in (1.5, 1.0, 0.7):
        begin = clock.now
        outcome = plan(planner, check=check, within=within)
        assert within - 0.6 < clock.now - begin <= within + 1e-9
        assert not outcome.is_found
    assert check.calls >= 1
    before = check.calls
    outcome = plan(planner, check=check, within=0.25)  # less than one call takes: none is begun
    assert check.calls == before and outcome.statistics.was_cut
    assert outcome.failure.code is PlanFailureCode.NO_TIME and "the time was up before a candidate" in outcome.reason


def test_no_call_is_begun_that_may_end_too_late(plan, gen3, clock):
    """Before the first call, the settings say how long one may take."""
    check = Slow(clock, 0.0)
    outcome = plan(CertifiedPlanner(gen3, RecedingSettings(call_time=10.0)), check=check, within=9.0)
    assert not outcome.is_found and outcome.statistics.was_cut
    assert check.calls == outcome.statistics.bounds == 0


@pytest.mark.slow
def test_a_call_that_was_slow_once_does_not_end_planning_for_ever(plan, gen3, errors, clock):
    """A machine that was busy for a moment: later plans are tried again, though their time limit is shorter."""
    planner, delays = CertifiedPlanner(gen3), [3.0]

    def bound(trajectory):
        clock.now += delays.pop() if delays else 0.0
        return errors

    plan(planner, bound=bound)
    tries = [plan(planner, bound=bound, within=3.4) for _ in range(5)]  # less than 1.2 times the slow call
    assert not tries[0].is_found and tries[0].statistics.was_cut and tries[0].statistics.bounds == 0
    assert any(one.is_found for one in tries)


def test_no_time_at_all_is_a_reason_too(plan):
    outcome = plan(within=-1.0)
    assert outcome.failure.code is PlanFailureCode.NO_TIME and "the time was up before a candidate" in outcome.reason
    assert outcome.statistics.bounds == outcome.statistics.verifications == 0


def test_cancelling(plan):
    with pytest.raises(Cancelled, match="cancelled"):
        plan(is_cancelled=lambda: True)


def test_what_cannot_be_planned_with_is_refused(plan, gen3, rest, boxes):
    for wrong in (np.zeros((3, 3)), np.full((10, 10), np.nan), -np.eye(10)):
        with pytest.raises(ParameterOutOfRange, match="information"):
            plan(known=wrong)
    with pytest.raises(ParameterOutOfRange, match="start"):
        plan(start=(rest[0][:6], np.zeros(6), np.zeros(6)))
    with pytest.raises(ParameterOutOfRange, match="start None"):
        PlanRequest(assume(gen3, boxes))
    with pytest.raises(ParameterOutOfRange, match="position"):
        plan(bound=lambda trajectory: AssumedErrors(np.full(7, np.nan), np.zeros(7), np.zeros(7)))
    for wrong in ({"planning_time": 3.0}, {"cost": "best"}, {"k_range": float("nan")}, {"samples": 2}):
        with pytest.raises(ParameterOutOfRange, match=next(iter(wrong))):
            RecedingSettings(**wrong)
