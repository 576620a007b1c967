"""The search for proven motions of a whole arm, with scripted plans and proofs: starts, time, rounds, the last try."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from textbook import load_textbook

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.stop_model import LimitKind, PlanRejected
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.excitation import planner, whole_arm
from sysid_ros.core.excitation.model import ExcitationModel, NoExcitationFound, unusable_start
from sysid_ros.core.excitation.planner import plan_excitation
from sysid_ros.core.excitation.problem import FourierSpace, speed_memory
from sysid_ros.core.excitation.settings import ExcitationSettings
from sysid_ros.core.excitation.whole_arm import plan_arm_excitation
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable

DURATION = 4.0


class Script:
    """What a search meets: plans one after the other, the proof of each, and what it shows.

    Args:
        robot: The arm.
        shows: Condition number of each plan; an error where there is none.
        refusals: What refuses plans, by their index; the others are proven.
    """

    def __init__(self, robot, shows, refusals=None):
        self.robot, self.shows, self.refusals = robot, shows, refusals or {}
        self.calls, self.paths, self.tried = [], [], []
        self.time, self.value, self.by_size = 0.0, 55.0, False

    def plan(self, model, q_start, settings, earlier=(), is_cancelled=None, begin_with=None, clock=None):
        self.calls.append(SimpleNamespace(model=model, settings=settings, begin_with=begin_with))
        self.time += 10.0
        shown = self.shows[len(self.calls) - 1]
        if isinstance(shown, Exception):
            raise shown
        space = FourierSpace(q_start, 3, DURATION, 12)
        path = space.trajectory(1e-3 * np.random.default_rng(len(self.calls)).normal(size=space.size))
        self.paths.append((path, shown))
        return SimpleNamespace(trajectory=path, condition_number=shown)

    def index(self, path):
        """Find the plan that a motion is, or was before it was stretched or made smaller."""
        return next(k for k, (one, _) in enumerate(self.paths) if np.isclose(self.shape(one), self.shape(path)))

    def shape(self, path):
        return path.sine[0, 0] / path.sine[1, 0]

    def prove(self, assumptions, path, bound):
        index = self.index(path)
        self.tried.append((index, path.duration))
        refusal = self.refusals.get(index)
        if refusal is not None and (isinstance(refusal, LimitKind | str) or refusal(path)):
            limit = refusal if isinstance(refusal, LimitKind) else LimitKind.TORQUE
            raise PlanRejected(limit, (self.robot.joint_names[1],), 1.0, self.value, 50.0)
        return SimpleNamespace(trajectory=path, bound=bound, duration=path.duration)

    def figure(self, path):
        planned, shown = self.paths[self.index(path)]
        return np.log(shown * (np.ptp(planned.sine) / np.ptp(path.sine) if self.by_size else 1.0))


class Bound:
    """Tracking errors of any motion: twice the torque after its middle, in stops once more."""

    def __init__(self, n, torque=2.0):
        self.position, self.velocity, self.torque = np.full(n, 1e-3), np.full(n, 1e-2), np.full(n, torque)

    def torque_over(self, middle, half):
        return np.where(middle[:, None] > 0.5 * DURATION, 1.0, 0.5) * self.torque

    def in_stops(self, brake_time):
        raise BoundNotAvailable("too short")


class WithStops(Bound):
    """Tracking errors with bounds for stops from 0.8 s on, which take less the shorter they are."""

    asked: list[float] = []

    def in_stops(self, brake_time):
        self.asked.append(brake_time)
        if brake_time < 0.8:
            raise BoundNotAvailable("too short")
        n, torque = self.torque.size, (1.5 + brake_time) * self.torque
        return SimpleNamespace(
            brake_time=brake_time,
            position=np.full(n, 7e-3),
            speed_errors=lambda v_max: np.full(n, 5e-2),
            torque_over=lambda middle, half: np.tile(torque, (middle.size, 1)),
        )


@pytest.fixture(scope="module")
def robot():
    return load_textbook("kuka_lbr_med7")


@pytest.fixture
def search(robot, monkeypatch):
    """Run a search along a script; return it and what was found."""

    def run(shows, refusals=None, bound=None, value=55.0, by_size=False, **settings):
        script = Script(robot, shows, refusals)
        script.value, script.by_size = value, by_size
        bound = bound or (lambda path: Bound(robot.n))
        monkeypatch.setattr(whole_arm, "plan_excitation", script.plan)
        monkeypatch.setattr(whole_arm, "prove_motion", script.prove)
        monkeypatch.setattr(Assumptions, "bound", lambda self, motion, history=None: bound(motion))
        monkeypatch.setattr(whole_arm._ProvenSearch, "_figure", lambda self, path: script.figure(path))
        scene, empty = Scene(ground_height=0.0, payload_spheres=()), Box(np.zeros(10), np.zeros(10))
        assumptions = Assumptions(robot, (robot.theta_box, empty), np.zeros(10), scene)
        values = {"starts": 50, "time_budget": 1000.0, "harmonics": 3} | settings
        wanted = ExcitationSettings.for_arm(DURATION, **values)
        script.told = []
        tell = lambda share, text: script.told.append((share, text))  # noqa: E731
        try:
            script.found = plan_arm_excitation(
                assumptions, robot.home, wanted, on_progress=tell, clock=lambda: script.time
            )
        except Exception as error:  # noqa: BLE001 - some scripts lead to one
            script.found = error
        return script

    return run


def test_other_starts_follow_until_one_is_good_enough(robot, search):
    script = search([30.0, 30.0, 25.0, 25.0, 40.0, 19.0, 10.0])
    assert script.found.starts == (4,) and script.found.plans[0].trajectory is script.paths[5][0]
    seeds = [call.settings.seed for call in script.calls if call.begin_with is None]
    assert len(set(seeds)) == len(seeds) == 4
    # The third start shows less than what is proven already, and is worth no proof.
    assert [index for index, _ in script.tried] == [0, 2, 5]
    assert "start 4, condition number 25.0 so far" in script.told[-2][1] and script.told[-1][0] == 1.0
    assert "20 wanted, 4 starts, 60 s" in script.told[-1][1]
    shares = [share for share, _ in script.told]
    assert shares == sorted(shares)


def test_the_best_proven_motion_counts_when_the_time_is_over(robot, search):
    script = search([30.0, 30.0, 26.0, 26.0, 28.0, 19.0], time_budget=45.0)
    assert script.found.starts == (3,) and script.found.plans[0].trajectory is script.paths[2][0]
    assert script.calls[-1].settings.time_budget == pytest.approx(5.0)
    assert script.found.planning_time == pytest.approx(50.0)


def test_no_more_starts_than_are_allowed(robot, search):
    script = search([30.0, 30.0, 25.0, 25.0, 19.0], starts=2)
    assert script.found.starts == (2,) and script.found.plans[0].trajectory is script.paths[2][0]


def test_without_a_wanted_number_all_starts_are_made(robot, search):
    script = search([5.0, 5.0, 4.0, 4.0, 3.0, 3.0], starts=3, wanted_condition_number=0.0)
    assert script.found.starts == (3,) and script.found.plans[0].trajectory is script.paths[4][0]


def test_what_is_refused_is_planned_again_with_its_own_errors_where_it_has_them(robot, search):
    script = search([15.0, 18.0], {0: "refused"}, bound=lambda path: Bound(robot.n, 3.0))
    assert script.found.starts == (1,) and script.found.plans[0].trajectory is script.paths[1][0]
    first, again = script.calls
    assert first.begin_with is None and again.begin_with is script.paths[0][0]
    np.testing.assert_allclose(first.model.feedback_torque, 1.25 * 3.0)
    assert first.model.moving_speed is None and not first.model.moving_torque.any()
    np.testing.assert_allclose(again.model.feedback_torque, 1.5)  # what the half with little feedback takes
    count = again.settings.samples
    late = np.arange(count) >= count // 2
    np.testing.assert_allclose(again.model.moving_torque, 1.03 * 1.5 * np.tile(late[:, None], robot.n))
    # A motion at its own speeds takes what its bound says, with the margin on what moving adds.
    times = (np.arange(count) + 0.5) * DURATION / count
    squares = speed_memory(times) @ (script.paths[0][0].sample(times)[1] ** 2).sum(axis=1)
    share = (squares / again.model.moving_speed)[:, None]
    takes = again.model.slow_torque + share * again.model.moving_torque / 1.03
    np.testing.assert_allclose(takes, 1.5 * np.tile(late[:, None], robot.n), atol=1e-12)
    assert np.all(share <= 1.0 + 1e-12)


def test_stops_are_left_what_they_take_and_more_each_time_that_they_lack(robot, search):
    refusals = {0: LimitKind.BRAKING_TORQUE, 1: LimitKind.BRAKING_TORQUE}
    script = search([30.0, 30.0, 29.5, 19.0], refusals, bound=lambda path: WithStops(robot.n))
    takes = [call.model.stop_torque.max() for call in script.calls]
    # 2.3 times the torque in stops of 0.8 s, beyond half of it on the path.
    np.testing.assert_allclose(takes, [0.0, 1.1 * 3.6, 1.2 * 3.6, 1.1 * 3.6])
    assert [call.settings.brake_time for call in script.calls] == [0.5, 0.8, 0.8, 0.8], "those that lack the least"
    script = search([30.0, 70.0, 19.0], {0: LimitKind.BRAKING_TORQUE}, bound=lambda path: WithStops(robot.n))
    assert script.calls[-1].begin_with is None and not script.calls[-1].model.stop_torque.any(), "another start"


def test_what_stops_leave_of_other_limits_is_what_they_are_proven_to(robot, search):
    """Where the errors of stops are more than is assumed of them, the next plan leaves room for those of the bound."""
    WithStops.asked.clear()
    script = search([30.0, 25.0, 19.0], {0: LimitKind.POSITION}, bound=lambda path: WithStops(robot.n))
    assert isinstance(script.found, whole_arm.ArmExcitation)
    first, again, last = (call.model for call in script.calls)
    np.testing.assert_allclose(first.tracking_position, 1.75 * 1.25e-3)
    for model in (again, last):
        np.testing.assert_allclose(model.tracking_position, 1.03 * 7e-3)
        np.testing.assert_allclose(model.tracking_velocity, 1.03 * 5e-2)
    assert WithStops.asked[:2] == [0.5, 0.8], "the shortest stops that have a bound"


def test_torque_that_the_start_has_not_is_left_to_fast_parts(robot, search):
    """Errors of a whole motion may be more than its start leaves, where they are less."""
    huge = np.r_[0.9 * robot.limits.tau_max[0], np.ones(robot.n - 1)]
    script = search([15.0, 16.0], {0: "refused"}, bound=lambda path: Bound(robot.n, huge))
    again = script.calls[1].model
    assert np.all(again.feedback_torque + again.moving_torque.max(axis=0) >= huge)
    assert again.feedback_torque[0] < 0.5 * huge[0] + 1e-9 and not script.calls[0].model.moving_torque.any()


def test_a_motion_that_is_proven_but_not_good_enough_gets_more_harmonics(robot, search):
    script = search([30.0, 25.0, 22.0, 19.0], {1: "refused"})
    assert [call.settings.harmonics for call in script.calls] == [3, 5, 5, 7]
    script = search([30.0, 30.0, 19.0])
    assert [call.settings.harmonics for call in script.calls] == [3, 5, 3], "another start begins anew"


def test_what_shows_far_too_little_makes_way_for_another_start(robot, search):
    script = search([50.0, 65.0, 30.0, 19.0], {0: "refused"})
    assert script.found.starts == (2,), "planned again until it is proven, then another start"
    assert [call.begin_with is None for call in script.calls] == [True, False, True, False]


def test_what_is_refused_for_little_is_also_tried_a_little_smaller(robot, search):
    """It counts if nothing better is proven, and is planned again all the same."""
    sizes = []

    def nearly(path):
        sizes.append(np.ptp(path.sine))
        return sizes[-1] > 0.95 * sizes[0]

    script = search([15.0], {0: nearly}, value=52.0)
    assert script.found.starts == (1,) and np.ptp(script.found.plans[0].trajectory.sine) == pytest.approx(sizes[-1])
    np.testing.assert_allclose(np.array(sizes) / sizes[0], [1.0, 0.97, 0.94])
    sizes.clear()
    script = search([30.0, 18.0], {0: nearly}, value=52.0)
    assert script.found.plans[0].trajectory is script.paths[1][0] and script.found.starts == (1,)
    assert [index for index, _ in script.tried] == [0, 0, 0, 1]
    sizes.clear()
    script = search([30.0, 18.0], {0: nearly}, value=53.0)
    assert script.found.plans[0].trajectory is script.paths[1][0]
    assert [index for index, _ in script.tried] == [0, 1], "much was missing: it is planned again at once"
    sizes.clear()
    script = search([30.0, 30.0], {0: nearly}, value=53.0, time_budget=12.0)
    assert np.ptp(script.found.plans[0].trajectory.sine) < np.ptp(script.paths[0][0].sine)
    np.testing.assert_allclose(np.array(sizes)[1:3] / sizes[0], [0.85, 0.925])  # late: a larger step, halved


def test_what_stops_lack_a_little_is_planned_again_rather_than_made_smaller(search):
    script = search([30.0, 19.0], {0: LimitKind.BRAKING_TORQUE}, value=51.0)
    assert [index for index, _ in script.tried] == [0, 0, 1]


def test_of_smaller_motions_the_one_that_is_just_good_enough_is_tried_first(search):
    sizes = []

    def much(path):
        sizes.append(np.ptp(path.sine))
        return sizes[-1] > 0.999 * sizes[0]

    script = search([15.0], {0: much}, by_size=True, time_budget=12.0)
    assert script.found.starts == (1,) and len(sizes) == 2
    assert sizes[1] / sizes[0] == pytest.approx(0.75, abs=0.01), "condition number 15 / 0.75 = 20"


def test_what_has_no_bound_is_tried_a_little_smaller_and_goes_on_from_there(robot, search):
    sizes = []

    def bound(path):
        sizes.append(np.ptp(path.sine))
        if len(sizes) in (3, 4):  # after two random motions: the one that is planned, and 0.85 of it
            raise BoundNotAvailable("too fast")
        return Bound(robot.n)

    script = search([30.0, 18.0], bound=bound)
    assert script.found.starts == (1,) and script.found.plans[0].trajectory is script.paths[1][0]
    again = script.calls[1]
    np.testing.assert_allclose(again.begin_with.sine, 0.775 * script.paths[0][0].sine)
    assert [index for index, _ in script.tried] == [0, 0, 1]


def test_what_leaves_no_room_for_its_errors_is_made_slower_beginning_with_itself(robot, search):
    no_room = unusable_start("the torque", 60.0, "at most 50")
    shows = [14.0, no_room, no_room, no_room, 15.0, no_room, 16.0, 18.0]
    refusals = dict.fromkeys(range(3), "refused")
    script = search(shows, refusals, bound=lambda path: Bound(robot.n, 4.0))
    shares = [call.settings.velocity_fraction / 0.995 for call in script.calls]
    assert shares == pytest.approx([1.0, 1.0, 0.7, 0.5, 0.35, 0.35, 0.28, 0.28]), "fast ones begin anew"
    first, again, slower, last = script.calls[4:]
    assert slower.settings.acceleration_fraction == 0.995 and slower.settings.harmonics == first.settings.harmonics
    assert first.begin_with is None and again.begin_with is slower.begin_with is script.paths[1][0]
    assert last.begin_with is script.paths[2][0]
    torques = [call.model.feedback_torque[0] for call in script.calls[4:]]
    np.testing.assert_allclose(torques, [5.0, 2.0, 4.12, 2.0])  # planned again with what they take when
    assert script.found.speed_share == pytest.approx(0.28) and script.found.starts == (4,)


def test_errors_are_allocated_as_far_as_the_start_has_the_torque(robot, search):
    """At most half of a limit, where the start has the torque that random motions take."""
    limit = robot.limits.tau_max[0]
    script = search([15.0], bound=lambda path: Bound(robot.n, np.r_[0.7 * limit, np.full(robot.n - 1, 1.0)]))
    np.testing.assert_allclose(script.calls[0].model.feedback_torque, np.r_[0.5 * limit, np.full(robot.n - 1, 1.25)])
    script = search([], bound=lambda path: Bound(robot.n, np.r_[limit, np.full(robot.n - 1, 1.0)]))
    assert isinstance(script.found, NoExcitationFound) and not script.calls
    assert "the torque of the feedback at joint 'lbr_A1' [Nm]" in str(script.found)
    assert f"is {limit:.4g}; expected at most" in str(script.found)
    assert str(script.found).endswith("the torque left by holding")


def test_in_a_last_try_what_was_refused_is_stretched(robot, search):
    """None is proven as planned; one of those that were refused is, more slowly."""
    no_room = unusable_start("the torque", 60.0, "at most 50")
    shows = [15.0, no_room, 16.0, no_room, *[no_room] * 4]
    script = search(shows, {0: "always", 1: lambda path: path.duration < 1.2 * DURATION}, starts=1)
    (plan,) = script.found.plans
    assert script.found.speed_share == 0.7, "the second"
    assert 1.2 * DURATION <= plan.duration < 1.3 * DURATION, "bisected between the stretches 1.17 and 1.3"
    stretches = [round(duration / DURATION, 2) for index, duration in script.tried if index == 0]
    assert stretches == [1.0, 1.0, 1.08, 1.17, 1.3, 1.5, 1.8], "as planned, then in the last try"


def test_when_the_time_is_over_what_was_refused_is_stretched_before_slower_ones_are_planned(search):
    script = search([15.0, 16.0], {0: lambda path: path.duration < 1.2 * DURATION}, time_budget=9.0)
    (plan,) = script.found.plans
    assert len(script.calls) == 1 and plan.duration > DURATION and script.found.speed_share == 1.0


def test_why_nothing_is_proven_is_said(robot, search):
    no_room = unusable_start("the torque", 60.0, "at most 50")
    script = search([no_room] * 6)
    assert script.found is no_room

    def no_bound(path):
        raise BoundNotAvailable("too uncertain")

    script = search([], bound=no_bound)
    assert isinstance(script.found, NoExcitationFound) and not script.calls
    assert "not even with 18 % of the speed limits" in str(script.found)


def test_the_wrong_number_of_positions_is_refused(robot):
    scene, empty = Scene(payload_spheres=()), Box(np.zeros(10), np.zeros(10))
    assumptions = Assumptions(robot, (robot.theta_box, empty), np.zeros(10), scene)
    with pytest.raises(NoExcitationFound, match="the number of positions is 3; expected 7"):
        plan_arm_excitation(assumptions, np.zeros(3))


# One start of the planner, with a scripted solver


@pytest.fixture
def solve(robot, monkeypatch):
    """Plan from one start with a solver that does nothing; return its calls and the checks of limits."""

    def run(passes, **named):
        calls, checks = [], []

        def solve(self, x, has_distances, penalty, most=None):
            calls.append((has_distances, penalty))
            return x

        def check(self, x):
            checks.append(float(np.abs(x).max()))
            return passes(len(calls), checks)

        monkeypatch.setattr(planner._Search, "_solve", solve)
        monkeypatch.setattr(planner._Search, "_passes", check)
        model = ExcitationModel.of(robot, payload_box=Box(np.zeros(10), np.zeros(10)), payload_spheres=())
        settings = ExcitationSettings.for_arm(DURATION, starts=1, time_budget=600.0)
        return calls, checks, lambda: plan_excitation(model, robot.home, settings, **named)

    return run


def test_a_motion_that_passes_is_solved_once(robot, solve):
    calls, _, plan = solve(lambda count, checks: True)
    assert plan().scale == 1.0 and calls == [(False, 20.0), (True, 20.0), (True, 400.0)]


def test_a_motion_that_breaks_limits_is_pressed_before_it_is_shrunk(robot, solve):
    calls, _, plan = solve(lambda count, checks: count >= 4)
    assert plan().scale == 1.0 and calls[3:] == [(True, 2e3)]


def test_a_motion_that_had_to_be_shrunk_is_solved_again_with_distances(robot, solve):
    """The second solve begins with the same random motion, and its better result counts."""
    first_passes = lambda count, checks: count >= 7 or (count == 5 and checks[-1] < 0.55 * checks[0])  # noqa: E731
    calls, checks, plan = solve(first_passes)
    assert plan().scale == 1.0
    assert calls == [(False, 20.0), (True, 20.0), (True, 400.0), (True, 2e3), (True, 1e4), (True, 20.0), (True, 400.0)]
    assert checks[-1] == pytest.approx(checks[0]), "the solver here does nothing"


def test_a_given_motion_is_begun_with(robot, solve):
    calls, _, plan = solve(lambda count, checks: True)
    settings = ExcitationSettings.for_arm(DURATION)
    space = FourierSpace(robot.home, settings.harmonics, DURATION, settings.samples)
    x = 1e-2 * np.random.default_rng(5).normal(size=space.size)
    np.testing.assert_allclose(space.coordinates(space.trajectory(x)), x, atol=1e-14)
    finer = FourierSpace(robot.home, settings.harmonics + 2, DURATION, settings.samples)
    same = finer.trajectory(finer.coordinates(space.trajectory(x)))
    np.testing.assert_allclose(same.sine[:, : settings.harmonics], space.trajectory(x).sine, atol=1e-14)
    calls, _, plan = solve(lambda count, checks: True, begin_with=space.trajectory(x))
    np.testing.assert_allclose(plan().trajectory.sine, space.trajectory(x).sine, atol=1e-12)
    assert calls == [(True, 20.0), (True, 400.0)]


def test_slow_motions_keep_accelerations_and_get_harmonics():
    settings = ExcitationSettings.for_arm(24.0)
    assert settings.with_speed_share(1.0) == settings
    slow = settings.with_speed_share(0.35)
    assert slow.velocity_fraction == pytest.approx(0.35 * settings.velocity_fraction)
    assert slow.acceleration_fraction == settings.acceleration_fraction
    assert (settings.harmonics, slow.harmonics) == (12, 18)
    assert ExcitationSettings.for_arm(40.0).with_speed_share(0.2).harmonics == 20, "the most there may be"
    with pytest.raises(Exception, match=r"speed_share \[-\] 0.01: expected from 0.05 to 1"):
        settings.with_speed_share(0.01)
