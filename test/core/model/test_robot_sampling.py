"""Draws of robots and payloads lie in their boxes, belong to possible bodies, and spread."""

import numpy as np
import pytest
from textbook import load_textbook

from sysid_ros.core.common.box import Box
from sysid_ros.core.model.inertia import is_physically_consistent, largest_share
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import PayloadPrior
from sysid_ros.core.model.sampling import sample_parameters, sample_payload


@pytest.fixture(scope="module", params=["kinova_gen3_2f85", "kuka_lbr_iiwa14"])
def robot(request):
    return load_textbook(request.param)


@pytest.mark.parametrize("corner", [False, True])
def test_parameters_are_possible_and_inside(robot, corner):
    rng = np.random.default_rng(0)
    draws = np.array([sample_parameters(robot, rng, corner) for _ in range(100)])
    for theta in draws:
        assert robot.theta_box.contains(theta)
        for body in range(1, robot.n + 1):
            assert is_physically_consistent(theta[robot.inertial_slice(body)])
    free = robot.theta_box.width > 0.0
    assert np.all(draws[:, ~free] == robot.theta_nominal[~free])
    spread = draws[:, free].std(axis=0) / robot.theta_box.radius[free]
    # A uniform number on [-1, 1] has a standard deviation of 0.58, a corner 1.
    assert np.all(spread > 0.3) and spread.mean() > (0.8 if corner else 0.5)
    if corner:
        friction = draws[:, 10 * robot.n :]
        at_bound = (friction == robot.theta_box.lower[10 * robot.n :]) | (
            friction == robot.theta_box.upper[10 * robot.n :]
        )
        assert at_bound.all()


@pytest.mark.parametrize("corner", [False, True])
def test_payloads_are_possible_and_inside(robot, corner):
    rng = np.random.default_rng(1)
    for prior in robot.payload_priors.values():
        draws = np.array([sample_payload(prior, rng, corner) for _ in range(80)])
        assert all(is_physically_consistent(theta) and prior.box.contains(theta) for theta in draws)
        reached = (draws.max(axis=0) - draws.min(axis=0)) / prior.box.width
        assert reached[0] > 0.7 and np.all(reached > 0.05)


def test_uniform_where_everything_is_possible():
    """Far from the edge of the cone the draws are plain uniform numbers."""
    nominal = np.array([2.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0])
    prior = PayloadPrior(Box.around(nominal, np.full(10, 0.1)), nominal)
    draws = np.array([sample_payload(prior, np.random.default_rng(seed)) for seed in range(500)])
    assert np.abs(draws.mean(axis=0) - nominal).max() < 0.015
    assert (draws.std(axis=0) * np.sqrt(3.0)) == pytest.approx(np.full(10, 0.1), rel=0.1)


@pytest.mark.slow
def test_the_walk_is_uniform_where_little_is_possible():
    """Mean of the walk against that of brute-force rejection, in a box of which few per cent are possible."""
    nominal = np.array([1.0, 0.0, 0.0, 0.0, 0.2, 0.0, 0.2, 0.0, 0.0, 0.2])
    radius = np.array([0.0, 1.5, 1.5, 0.0, 0.15, 0.0, 0.15, 0.0, 0.0, 0.15])
    prior = PayloadPrior(Box.around(nominal, radius), nominal)
    rng = np.random.default_rng(2)
    draws = np.array([sample_payload(prior, rng) for _ in range(300)])
    candidates = rng.uniform(prior.box.lower, prior.box.upper, (20000, 10))
    accepted = np.array([theta for theta in candidates if is_physically_consistent(theta)])
    assert 0.01 < len(accepted) / len(candidates) < 0.07
    assert draws.mean(axis=0) == pytest.approx(accepted.mean(axis=0), abs=0.04)
    assert draws.std(axis=0) == pytest.approx(accepted.std(axis=0), abs=0.04)


@pytest.mark.parametrize("corner", [False, True])
def test_bodies_that_are_known_to_a_share_stay_within_it(corner):
    robot, rng = load_robot("ur5e", known_within=0.2), np.random.default_rng(1)
    reached = 0.0
    for _ in range(40):
        theta = sample_parameters(robot, rng, corner)
        assert robot.theta_box.contains(theta)
        for body in range(1, robot.n + 1):
            part = robot.inertial_slice(body)
            share = largest_share(theta[part], robot.theta_nominal[part])
            assert share <= 0.2
            reached = max(reached, share)
    assert reached > 0.199
