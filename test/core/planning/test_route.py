"""Ways around what a straight motion would touch: found by samples, proven leg by leg by the verifier."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.stop_model import LimitKind, PlanRejected
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.planning.constraints import AssumedErrors
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.request import PlanFailure, PlanFailureCode, PlanRequest
from sysid_ros.core.planning.route import NoRoute, PostureCheck, RouteMargins, find_route
from sysid_ros.core.trajectories.base import PlanningCancelled

TURN = np.array([1.3, 0, 0, 0, 0, 0, 0])


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
    with pytest.raises(PlanningCancelled):
        CertifiedPlanner(gen3).plan(wanted, is_cancelled=lambda: True)


@pytest.mark.slow
def test_margins_are_kept_but_close_to_ends_that_leave_less(gen3):
    """Distances by Pinocchio's placements of the spheres, brute force."""
    planner, goal = CertifiedPlanner(gen3), gen3.home + TURN
    assumptions = payload_within(gen3, 0.05, a_box_in_the_way(gen3))
    planner._model.torque.set_boxes(*assumptions.boxes)
    none = AssumedErrors.none(gen3.n)
    margins, ends = RouteMargins(0.03, 0.0), np.stack([gen3.home, goal])
    check = PostureCheck(planner._model, assumptions.scene, none, margins, ends)
    assert check.are_free(ends).all() and not check.free_edges(ends[:1], ends[1:])[0]
    way = np.stack([gen3.home, *find_route(check, gen3.home, goal, 0, lambda: False)])
    np.testing.assert_array_equal(way[-1], goal)
    assert len(way) > 2
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
    planner, goal = CertifiedPlanner(gen3), gen3.home + TURN
    assumptions = payload_within(gen3, 0.05, a_box_in_the_way(gen3))
    planner._model.torque.set_boxes(*assumptions.boxes)
    ends = np.stack([gen3.home, goal])
    check = PostureCheck(planner._model, assumptions.scene, AssumedErrors.none(gen3.n), RouteMargins(0.01, 0.0), ends)
    ways = [find_route(check, gen3.home, goal, seed, lambda: False) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(ways[0], ways[1])
    assert len(ways[0]) != len(ways[2]) or not np.array_equal(ways[0], ways[2])
    with pytest.raises(NoRoute, match="the time is up"):
        find_route(check, gen3.home, goal, 0, lambda: True)
