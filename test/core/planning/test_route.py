"""Ways around what a straight motion would touch: found by samples, proven leg by leg by the verifier."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.stop_model import LimitKind, PlanRejected, VerifierSettings
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import Cancelled
from sysid_ros.core.planning import route
from sysid_ros.core.planning.candidates import RobustProver
from sysid_ros.core.planning.constraints import AssumedErrors
from sysid_ros.core.planning.planner import CertifiedPlanner, Deadline
from sysid_ros.core.planning.problem import NoMotion
from sysid_ros.core.planning.request import PlanFailure, PlanFailureCode, PlanRequest
from sysid_ros.core.planning.route import PostureCheck, RouteMargins, find_route
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable
from sysid_ros.core.trajectories.families import BezierTrajectory

TURN = np.array([1.3, 0, 0, 0, 0, 0, 0])
GOAL_WITH_LITTLE_TORQUE = np.array([0.715, -0.281, -0.231, 1.901, 0.63, 1.562, -0.6])


def tool_at(robot, q):
    data = robot.pin_model.createData()
    pin.framesForwardKinematics(robot.pin_model, data, q)
    return data.oMf[robot.pin_model.getFrameId(robot.tool_frame)].translation.copy()


def a_box_in_the_way(robot):
    half = np.array([0.05, 0.05, 0.05])
    return Scene((Obstacle("box", tool_at(robot, robot.home + 0.5 * TURN), half),), ground_height=0.0)


def payload_within(robot, share, scene):
    prior = robot.payload_prior
    box = Box.around(prior.nominal, share * prior.box.radius).intersect(prior.box)
    return Assumptions.of_payload(robot, box, scene=scene)


def check_around_the_box(robot, goal):
    planner, assumptions = CertifiedPlanner(robot), payload_within(robot, 0.05, a_box_in_the_way(robot))
    planner._model.torque.set_boxes(*assumptions.boxes)
    ends = np.stack([robot.home, goal])
    return PostureCheck(planner._model, assumptions, AssumedErrors.none(robot.n), RouteMargins(0.01, 0.0), ends)


def legs_to(planner, assumptions, goal, most=8):
    """Plans from rest to rest until the goal is reached, each one proven."""
    plans, at = [], assumptions.robot.home
    while len(plans) < most and np.abs(at - goal).max() > 1e-9:
        plans.append(planner.plan(PlanRequest(assumptions, at, goal=goal, time_limit=60.0)))
        at = plans[-1].trajectory.end
    return plans


def test_a_goal_in_free_space_is_one_straight_motion_about_as_short_as_can_be_proven(gen3):
    planner, goal = CertifiedPlanner(gen3), gen3.home + 0.5 * TURN
    assumptions = payload_within(gen3, 0.05, Scene())
    (plan,) = legs_to(planner, assumptions, goal)
    np.testing.assert_array_equal(plan.trajectory.end, goal)
    assert plan.handover_time is None and plan.predecessor is None
    with pytest.raises(PlanRejected):
        planner.plan_to(PlanRequest(assumptions, gen3.home, goal=goal), duration=plan.duration / 1.3)


@pytest.mark.slow
def test_a_box_in_the_way_is_gone_around(gen3):
    planner, goal = CertifiedPlanner(gen3), gen3.home + TURN
    assumptions = payload_within(gen3, 0.05, a_box_in_the_way(gen3))
    with pytest.raises(PlanRejected) as straight:
        planner.plan_to(PlanRequest(assumptions, gen3.home, goal=goal))
    assert straight.value.limit is LimitKind.OBSTACLE
    plans = legs_to(planner, assumptions, goal)
    assert 1 < len(plans) < 8
    np.testing.assert_array_equal(plans[-1].trajectory.end, goal)
    for plan, after in zip(plans, plans[1:], strict=False):
        np.testing.assert_array_equal(plan.trajectory.end, after.trajectory.start)


def test_a_goal_where_the_arm_cannot_be_held_is_refused_at_once(gen3):
    planner, goal = CertifiedPlanner(gen3), gen3.home + TURN
    scene = Scene((Obstacle("box", tool_at(gen3, goal), np.full(3, 0.05)),), ground_height=0.0)
    with pytest.raises(PlanFailure, match="cannot be held at the goal with every payload of the box.*box") as caught:
        legs_to(planner, payload_within(gen3, 0.05, scene), goal)
    assert caught.value.code is PlanFailureCode.LIMIT


def test_a_search_can_be_cancelled(gen3):
    wanted = PlanRequest(payload_within(gen3, 0.05, Scene()), gen3.home, goal=gen3.home + TURN)
    with pytest.raises(Cancelled):
        CertifiedPlanner(gen3).plan(wanted, is_cancelled=lambda: True)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["one posture", "two trees"])
def test_margins_are_kept_but_close_to_ends_that_leave_less(gen3, by, monkeypatch):
    """Distances by Pinocchio's placements of the spheres, brute force."""
    if by == "two trees":
        monkeypatch.setattr(route, "_beside", lambda *arguments: None)
    planner, goal = CertifiedPlanner(gen3), gen3.home + TURN
    assumptions = payload_within(gen3, 0.05, a_box_in_the_way(gen3))
    planner._model.torque.set_boxes(*assumptions.boxes)
    none = AssumedErrors.none(gen3.n)
    margins, ends = RouteMargins(0.03, 0.0), np.stack([gen3.home, goal])
    check = PostureCheck(planner._model, assumptions, none, margins, ends)
    assert check.are_free(ends).all() and not check.free_edges(ends[:1], ends[1:])[0]
    way = np.stack([gen3.home, *find_route(check, gen3.home, goal, 0, lambda: False)])
    np.testing.assert_array_equal(way[-1], goal)
    assert len(way) == 3 if by == "one posture" else len(way) > 2
    (box,) = assumptions.scene.obstacles
    data, closest = gen3.pin_model.createData(), np.inf
    for begin, end in zip(way, way[1:], strict=False):
        for share in np.linspace(0.0, 1.0, 40):
            pin.forwardKinematics(gen3.pin_model, data, begin + share * (end - begin))
            for sphere in gen3.spheres:
                if sphere.body > 0:
                    outside = np.abs(data.oMi[sphere.body].act(sphere.center) - box.center) - box.half_extents
                    closest = min(closest, np.linalg.norm(np.maximum(outside, 0.0)) - sphere.radius)
    assert closest > assumptions.scene.clearance + 0.03 - 2e-3  # what lies between samples


@pytest.mark.slow
def test_the_same_seed_gives_the_same_way_and_no_time_gives_none(gen3):
    goal = gen3.home + TURN
    check = check_around_the_box(gen3, goal)
    ways = [find_route(check, gen3.home, goal, seed, lambda: False) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(ways[0], ways[1])
    assert len(ways[0]) != len(ways[2]) or not np.array_equal(ways[0], ways[2])
    with pytest.raises(NoMotion, match="the time is up"):
        find_route(check, gen3.home, goal, 0, lambda: True)


@pytest.mark.slow
def test_postures_of_a_way_move_to_where_it_is_faster_and_needless_ones_are_left_out(gen3):
    goal = gen3.home + TURN
    check = check_around_the_box(gen3, goal)
    rng = np.random.default_rng(0)
    middle = route._beside(check, gen3.home, goal, rng, lambda: False)[1]
    start = gen3.home
    way = [start, start + 0.5 * (middle - start), middle, middle + 0.5 * (goal - middle), goal]
    found = np.stack(route._faster(check, way, rng, lambda: False))
    assert 3 <= len(found) < len(way)
    before, after = np.stack([start, middle, goal]), found
    seconds = [check.times(one[:-1], one[1:]).sum() for one in (before, after)]
    assert seconds[1] < seconds[0] < np.inf


def test_legs_with_little_torque_left_are_estimated_to_take_longer(gen3):
    planner = CertifiedPlanner(gen3)
    known = payload_within(gen3, 0.05, Scene())
    planner._model.torque.set_boxes(*known.boxes)
    ends = np.stack([gen3.home, gen3.home + TURN])
    seconds = []
    for needed in (0.0, 0.4):
        errors = AssumedErrors.none(gen3.n)
        errors = replace(errors, torque=needed * gen3.limits.tau_max)
        check = PostureCheck(planner._model, known, errors, RouteMargins(0.0, 0.0), ends)
        seconds.append(float(check.times(ends[:1], ends[1:])[0]))
    least = route.shortest_time(gen3.limits, TURN)
    motion = BezierTrajectory(ends[0], np.zeros(7), np.zeros(7), ends[1], float(least))
    _, v, a = motion.sample(np.linspace(0.0, motion.duration, 2001))
    used = np.maximum(np.abs(v) / gen3.limits.v_max, np.abs(a) / gen3.limits.a_max).max()
    np.testing.assert_allclose(used, 1.0, rtol=1e-5)
    assert least <= seconds[0] < seconds[1] < np.inf


class NoExcitement(RobustProver):
    """Knows no bound of motions that last as long as exciting ones."""

    def bound(self, request, trajectory):
        if trajectory.duration == 3.0:
            raise BoundNotAvailable("the motion excites")
        return super().bound(request, trajectory)


@pytest.mark.slow
def test_where_nothing_exciting_can_be_proven_the_arm_moves_towards_home(gen3):
    planner = CertifiedPlanner(gen3, prover=NoExcitement(VerifierSettings()))
    start = gen3.home + 0.1 * TURN
    plan = planner.plan(PlanRequest(payload_within(gen3, 0.05, Scene()), start, time_limit=60.0))
    np.testing.assert_array_equal(plan.trajectory.start, start)
    np.testing.assert_array_equal(plan.trajectory.end, gen3.home)
    assert plan.time_until_next == plan.duration and plan.condition_number is None


@pytest.mark.slow
def test_a_motion_that_hardly_excites_gives_way_to_one_towards_home(gen3, monkeypatch):
    monkeypatch.setattr("sysid_ros.core.planning.planner.condition_number", lambda information: 1e6)
    start, assumptions = gen3.home + 0.2, payload_within(gen3, 0.05, Scene())
    plan = CertifiedPlanner(gen3).plan(PlanRequest(assumptions, start, time_limit=60.0))
    np.testing.assert_array_equal(plan.trajectory.start, start)
    np.testing.assert_array_equal(plan.trajectory.end, gen3.home)
    assert plan.time_until_next == plan.duration and plan.condition_number is None
    # At home there is nowhere else to go.
    plan = CertifiedPlanner(gen3).plan(PlanRequest(assumptions, gen3.home, time_limit=60.0))
    assert plan.condition_number == 1e6


@pytest.mark.slow
def test_an_arm_that_cannot_be_held_where_it_is_learns_of_the_nearest_posture_where_it_can(gen3):
    planner, assumptions = CertifiedPlanner(gen3), payload_within(gen3, 0.5, Scene())
    start = gen3.home + [0.0, 1.2, 0.0, 0.0, 0.0, 0.0, 0.0]
    with pytest.raises(PlanFailure, match="cannot be held where it is with every payload.*nearest posture") as caught:
        planner.plan(PlanRequest(assumptions, start, time_limit=60.0))
    assert caught.value.code is PlanFailureCode.LIMIT
    nearest = planner._nearest_held(PlanRequest(assumptions, start), Deadline(60.0))
    rest = np.zeros(7)
    planner.certify(BezierTrajectory(nearest, rest, rest, nearest, 1.0), assumptions)
    assert 0.0 < np.abs(nearest - start).max() < np.abs(gen3.home - start).max()


@pytest.mark.slow
def test_a_goal_that_leaves_little_torque_is_approached_by_a_fast_and_a_slow_motion(gen3):
    """Where the longest straight motion is too fast for the torque that is left at its end."""
    planner, assumptions = CertifiedPlanner(gen3), payload_within(gen3, 0.25, Scene())
    request = PlanRequest(assumptions, gen3.home, goal=GOAL_WITH_LITTLE_TORQUE)
    planner._model.torque.set_boxes(*assumptions.boxes)
    middle = planner._where_room_ends(request)
    along = (middle - gen3.home) / (GOAL_WITH_LITTLE_TORQUE - gen3.home)
    assert np.ptp(along) < 1e-9 and 0.5 < along[0] < 1.0
    first = planner._in_two(request, None, 0.0, Deadline(60.0))
    np.testing.assert_array_equal(first.trajectory.end, middle)
    second = planner.plan(PlanRequest(assumptions, middle, goal=GOAL_WITH_LITTLE_TORQUE, time_limit=60.0))
    np.testing.assert_array_equal(second.trajectory.end, GOAL_WITH_LITTLE_TORQUE)
