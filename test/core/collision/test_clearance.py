from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pinocchio as pin
import pytest
from proofs import certify, verify

from sysid_ros.core.certification.stop_model import LimitKind, PlanRejected
from sysid_ros.core.collision.clearance import (
    Obstacle,
    are_kept_apart,
    build_collision_model,
    build_scene_model,
    describe_overlapping_links,
    pair_distances,
    sphere_centers,
)
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.excitation.model import check_clearance
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot_files import available_robots
from sysid_ros.core.trajectories.families import BezierTrajectory


def test_sphere_centers_are_those_of_the_frames(gen3):
    rng = np.random.default_rng(0)
    q = rng.uniform(-2, 2, (3, 7))
    centers = sphere_centers(gen3, gen3.spheres, q)
    data = gen3.pin_model.createData()
    for posture, found in zip(q, centers, strict=True):
        pin.framesForwardKinematics(gen3.pin_model, data, posture)
        for sphere, center in zip(gen3.spheres, found, strict=True):
            np.testing.assert_allclose(data.oMi[sphere.body].act(sphere.center), center, atol=1e-12)


def test_pairs_leave_out_neighbours_and_count_the_payload(gen3):
    model = build_collision_model(gen3, gen3.payload_prior.spheres)
    bodies = np.array([sphere.body for sphere in model.spheres])
    gaps = bodies[model.pairs[:, 1]] - bodies[model.pairs[:, 0]]
    assert gaps.min() == 2 and len(model.spheres) == len(gen3.spheres) + 1
    close = {model.spheres[j].link for (i, j), gap in zip(model.pairs, gaps, strict=True) if gap == 2}
    assert close == {"robotiq_85_base_link", "payload"}
    assert np.all(bodies[model.movable] >= 1) and set(range(1, 8)) == set(bodies[model.movable])


@pytest.mark.parametrize("name", [name for name in available_robots() if load_robot(name).protocol])
def test_of_our_arms_only_tools_are_compared_across_one_body(name):
    """Position limits keep the others apart, which is proven when the arm is loaded, so comparing costs nothing."""
    robot = load_robot(name)
    model = build_collision_model(robot)
    bodies = np.array([sphere.body for sphere in model.spheres])
    close = model.pairs[bodies[model.pairs[:, 1]] - bodies[model.pairs[:, 0]] == 2]
    assert all("robotiq" in model.spheres[j].link for _, j in close)
    assert describe_overlapping_links(robot) == ""


def compared(robot):
    return {(robot.spheres[i].link, robot.spheres[j].link) for i, j in build_scene_model(robot, Scene()).pairs}


def folding(robot, end):
    """A plan that ends at a posture, parameter boxes and small errors."""
    still, start = np.zeros(robot.n), np.zeros(robot.n)
    errors = SimpleNamespace(**{name: np.full(robot.n, 1e-3) for name in ("position", "velocity", "torque")})
    return BezierTrajectory(start, still, still, np.array(end), 6.0), (robot.theta_box, robot.payload_prior.box), errors


def test_an_arm_that_can_fold_into_itself_is_compared_with_itself(make_chain):
    robot = make_chain([0.4, 0.4, 0.4, 0.4])
    assert compared(robot) == {("a", "c"), ("b", "d"), ("a", "d")} and describe_overlapping_links(robot) == ""
    plan, *given = folding(robot, [0.0, 2.3, 2.3, -0.5])
    with pytest.raises(PlanRejected, match="self-collision limit broken at a and c"):
        verify(robot, plan, *given)
    model, times = build_scene_model(robot, Scene()), np.linspace(0.0, 6.0, 601)
    with pytest.raises(PlanRejected, match="self-collision limit broken at a and c"):
        check_clearance(robot, model, given[1].position, 0.0, times, plan.sample(times)[0])
    assert verify(robot, *folding(robot, [0.0, 1.0, 1.0, -0.5])).margins[LimitKind.SELF_COLLISION].value > 0.0


def test_links_that_are_said_never_to_touch_are_not_compared(make_chain):
    robot = make_chain([0.4, 0.4, 0.4, 0.4], never_touch=[["c", "a"], ["a", "d"]])
    assert compared(robot) == {("b", "d")} and describe_overlapping_links(robot) == ""


def test_links_that_overlap_at_home_are_named_as_not_proven(make_chain):
    robot = make_chain([0.4, 0.03, 0.4, 0.4])
    assert compared(robot) == {("b", "d"), ("a", "d")}
    plan, *given = folding(robot, [0.0, 0.3, 0.3, 0.3])
    missing = "collisions of a with c (their spheres overlap in the home posture)"
    claims = certify(robot, plan, *given).claims
    assert missing in claims.lower().split("not ")[-1], claims
    folded = replace(make_chain([0.4, 0.4, 0.4, 0.4]), home=np.array([0.0, 2.3, 2.3, -0.5]))
    assert ("a", "c") not in compared(folded) and "a with c (" in describe_overlapping_links(folded)
    many = describe_overlapping_links(make_chain([0.03] * 8))
    assert many.startswith("collisions of a with c, b with d, c with e, d with f and 2 more (")


def test_pair_distances(gen3):
    model = build_collision_model(gen3)
    centers = sphere_centers(gen3, model.spheres, gen3.home[None])
    distances = pair_distances(centers, model.spheres, model.pairs)[0]
    (i, j), distance = model.pairs[7], distances[7]
    gap = np.linalg.norm(centers[0, i] - centers[0, j]) - model.spheres[i].radius - model.spheres[j].radius
    assert distance == pytest.approx(gap) and distances.min() > 0.0


def test_distance_to_a_turned_box_against_its_points():
    rng = np.random.default_rng(1)
    rotation = pin.exp3(rng.normal(size=3))
    box = Obstacle("crate", rng.normal(size=3), np.array([0.2, 0.3, 0.1]), rotation)
    grid = np.stack(np.meshgrid(*[np.linspace(-h, h, 41) for h in box.half_extents]), axis=-1).reshape(-1, 3)
    surface = grid[np.any(np.isclose(np.abs(grid), box.half_extents), axis=1)] @ rotation.T + box.center
    for point in rng.normal(size=(50, 3)) + box.center:
        brute = np.linalg.norm(surface - point, axis=1).min()
        inside = np.all(np.abs(rotation.T @ (point - box.center)) < box.half_extents)
        assert box.distance(point) == pytest.approx(-brute if inside else brute, abs=0.015)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"center": [np.nan, 0, 0]}, "center of obstacle 'crate'"),
        ({"half_extents": [0.1, 0.0, 0.1]}, r"half_extents \[m\] of obstacle 'crate'"),
        ({"rotation": np.ones((3, 3))}, "rotation of obstacle 'crate' .* orthonormal"),
        ({"center": [0, 0]}, r"finite, shape \(3,\)"),
    ],
)
def test_bad_obstacles_are_refused(changes, message):
    with pytest.raises(ParameterOutOfRange, match=message):
        Obstacle(**{"name": "crate", "center": [0, 0, 0], "half_extents": [0.1, 0.1, 0.1], **changes})


def smallest_gap(robot, inner, outer, count=31):
    """Of spheres with joints 2 and 3 between them, on a grid of their positions."""
    grids = np.meshgrid(*np.linspace(robot.limits.q_lower[1:3], robot.limits.q_upper[1:3], count).T)
    postures = np.tile(robot.home, (grids[0].size, 1))
    postures[:, 1], postures[:, 2] = (grid.ravel() for grid in grids)
    spheres = (*inner, *outer)
    pairs = np.array([(i, len(inner) + j) for i in range(len(inner)) for j in range(len(outer))])
    return pair_distances(sphere_centers(robot, spheres, postures), spheres, pairs).min()


def of_link(robot, name):
    return [sphere for sphere in robot.spheres if sphere.link == name]


def test_what_is_proven_is_so_and_little_else_is(make_chain):
    """Arms with joints in any direction, some that turn all the way round and some whose range is not about zero."""
    rng, proven, open_gaps = np.random.default_rng(5), 0, []
    for _ in range(40):
        middles, halves = rng.uniform(-2.0, 2.0, 3), rng.uniform(0.1, 3.6, 3)
        axes, turns = rng.normal(size=(3, 3)).tolist(), rng.uniform(-2, 2, (3, 3)).tolist()
        ranges = list(zip((middles - halves).tolist(), (middles + halves).tolist(), strict=True))
        robot = make_chain([0.3, rng.uniform(0.05, 0.4), 0.25], ranges, axes, turns)
        gap = smallest_gap(robot, of_link(robot, "a"), of_link(robot, "c"))
        if are_kept_apart(robot, of_link(robot, "a"), of_link(robot, "c")):
            assert gap > 0.0
            proven += 1
        else:
            open_gaps.append(gap)
    assert proven >= 10 and len(open_gaps) >= 10
    assert max(open_gaps) < 0.03


@pytest.mark.parametrize(("limit", "is_apart"), [(1.3, True), (2.5, False)])
def test_limits_decide(make_chain, limit, is_apart):
    """Links of 0.4, 0.2 and 0.15 m in a plane: the last reaches the first where the elbows close far enough."""
    robot = make_chain([0.4, 0.2, 0.15], [(-1.0, 1.0), (-limit, limit), (-limit, limit)])
    assert are_kept_apart(robot, of_link(robot, "a"), of_link(robot, "c")) == is_apart
    assert (smallest_gap(robot, of_link(robot, "a"), of_link(robot, "c")) > 0.0) == is_apart
