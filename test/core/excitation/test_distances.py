"""Distances of the search: those of the collision model, and gradients of what is missing of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from textbook import load_textbook

from sysid_ros.core.collision.clearance import Obstacle, build_collision_model, pair_distances, sphere_centers
from sysid_ros.core.excitation.distances import MissingDistances
from sysid_ros.core.model.loader import load_robot

TURN = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
CRATE = Obstacle("crate", [0.3, 0.3, 0.5], [0.2, 0.1, 0.3], TURN)


@pytest.fixture(scope="module")
def postures(gen3):
    return gen3.home + np.random.default_rng(0).normal(size=(30, gen3.n))


@pytest.fixture(scope="module")
def collision(gen3):
    return build_collision_model(gen3, gen3.payload_prior.spheres, [CRATE], 0.1)


def around(gen3):
    return gen3.home - 3.0, gen3.home + 3.0


def test_distances_are_those_of_the_collision_model(gen3, collision, postures):
    distances = MissingDistances(gen3, collision, np.zeros(gen3.n), 10.0, around(gen3))  # no pair is far away
    centers = sphere_centers(gen3, collision.spheres, postures)
    radii = np.array([sphere.radius for sphere in collision.spheres])[collision.movable]
    points = centers[:, collision.movable]
    expected = [
        pair_distances(centers, collision.spheres, collision.pairs),
        points[..., 2] - 0.1 - radii,
        CRATE.distance(points) - radii,
    ]
    np.testing.assert_allclose(distances.evaluate(postures).T, np.concatenate(expected, axis=1), atol=1e-12)


def test_pairs_left_out_never_come_close(gen3, collision, postures):
    near = MissingDistances(gen3, collision, np.zeros(gen3.n), 0.02, around(gen3))
    every = MissingDistances(gen3, collision, np.zeros(gen3.n), 10.0, around(gen3))
    assert 0 < near.rows < every.rows
    assert near.evaluate(postures).min() == pytest.approx(every.evaluate(postures).min())


def test_joints_end_where_a_link_is_folded_onto_another():
    """Beyond the range found no posture is free, at its ends some are; an arm without such places keeps its limits."""
    robot = load_robot("ur5e")
    collision = build_collision_model(robot, ())
    lower, upper = np.maximum(robot.limits.q_lower, robot.home - np.pi), robot.home + np.pi
    upper = np.minimum(robot.limits.q_upper, upper)
    distances = MissingDistances(robot, collision, np.zeros(robot.n), 0.03, (lower, upper))
    low, high = distances.free_range(robot.home, lower, upper, 0.02)
    assert np.all(low <= robot.home) and np.all(high >= robot.home) and np.all(low >= lower) and np.all(high <= upper)
    elbow, rng = robot.joint_names.index("elbow_joint"), np.random.default_rng(1)
    assert 2.2 < high[elbow] < 2.9 < upper[elbow]
    postures = rng.uniform(lower, upper, (3000, robot.n))
    postures[:, elbow] = rng.uniform(high[elbow] + 0.16, upper[elbow], 3000)
    assert distances.evaluate(postures).min(axis=0).max() < 0.02
    postures[:, elbow] = high[elbow]
    assert distances.evaluate(postures).min(axis=0).max() >= 0.02
    free = load_textbook("kuka_lbr_med7")
    limits = free.limits.q_lower, free.limits.q_upper
    distances = MissingDistances(free, build_collision_model(free, ()), np.zeros(free.n), 0.03, limits)
    np.testing.assert_array_equal(distances.free_range(free.home, *limits, 0.02), limits)


def test_errors_are_taken_off(gen3, collision, postures):
    exact, moved = (
        MissingDistances(gen3, collision, np.full(gen3.n, error), 10.0, around(gen3)).evaluate(postures)
        for error in (0.0, 0.02)
    )
    assert np.all(moved < exact)


def check_gradient(function, postures):
    value, gradient = function(postures)
    assert value > 0.0
    for seed in range(4):
        direction = np.random.default_rng(seed).normal(size=postures.shape)
        values = [function(postures + sign * 1e-6 * direction)[0] for sign in (1.0, -1.0)]
        assert (gradient * direction).sum() == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-4)


def test_gradient_of_what_is_missing(gen3, collision, postures):
    check_gradient(MissingDistances(gen3, collision, np.zeros(gen3.n), 0.05, around(gen3)).penalty, postures)


def test_gradient_in_a_turned_base():
    robot = load_textbook("kuka_lbr_med7")
    model = robot.pin_model.copy()
    frame = model.frames[model.getFrameId(robot.base_frame)]
    placement = frame.placement
    placement.rotation = TURN
    placement.translation = np.array([0.1, -0.2, 0.05])
    frame.placement = placement
    turned = replace(robot, pin_model=model)
    postures = robot.home + np.random.default_rng(1).normal(size=(30, robot.n))
    collision = build_collision_model(turned, (), [CRATE], 0.4)
    check_gradient(MissingDistances(turned, collision, np.zeros(7), 0.05, around(robot)).penalty, postures)
