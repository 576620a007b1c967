"""CasADi expressions against Pinocchio and against the collision geometry."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.collision.clearance import Obstacle, build_collision_model, pair_distances, sphere_centers
from sysid_ros.core.common.errors import ModelError
from sysid_ros.core.excitation.sampled_checks import TorqueDemand
from sysid_ros.core.excitation.symbolic import (
    SampledClearance,
    SampledDynamics,
    build_clearance,
    build_torque_regressor,
)
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import INERTIAL
from sysid_ros.core.trajectories.braking import slowdown_states

N = 7


def random_states(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(3, count, N))


@pytest.mark.parametrize("name", ["kinova_gen3_2f85", "kuka_lbr_med7"])
def test_regressor_is_pinocchios(name):
    robot = load_robot(name)
    regressor = build_torque_regressor(robot, sign_width=0.0)
    data = robot.pin_model.createData()
    for q, v, a in random_states(10).transpose(1, 0, 2):
        found = regressor(q, v, a).full()
        inertial = pin.computeJointTorqueRegressor(robot.pin_model, data, q, v, a)
        np.testing.assert_allclose(found[:, : INERTIAL * N], inertial, atol=1e-10)
        np.testing.assert_allclose(found[:, 14 * N :], inertial[:, INERTIAL * (N - 1) :], atol=1e-10)
        friction = found[:, INERTIAL * N : 14 * N].reshape(N, N, 4)
        assert not friction[~np.eye(N, dtype=bool)].any()
        expected = np.stack([np.sign(v), v, a, np.ones(N)], axis=1)
        np.testing.assert_allclose(friction[np.eye(N, dtype=bool)], expected)


def test_torque_is_that_of_rnea_with_a_payload(gen3):
    payload = gen3.payload_prior.nominal
    loaded = pin.Model(gen3.pin_model)
    loaded.inertias[N] = loaded.inertias[N] + pin.Inertia.FromDynamicParameters(payload)
    regressor = build_torque_regressor(gen3)
    frictionless = np.concatenate([gen3.theta_nominal[: INERTIAL * N], np.zeros(4 * N), payload])
    for q, v, a in random_states(10, seed=1).transpose(1, 0, 2):
        torque = pin.rnea(loaded, loaded.createData(), q, v, a)
        np.testing.assert_allclose(regressor(q, v, a).full() @ frictionless, torque, atol=1e-9)


def test_other_joints_are_refused(gen3):
    model = pin.Model()
    first = model.addJoint(0, pin.JointModelRZ(), pin.SE3.Identity(), "turn")
    model.addJoint(first, pin.JointModelPX(), pin.SE3.Identity(), "slide")

    class Robot:
        n, joint_names, pin_model = 2, ("turn", "slide"), model

    with pytest.raises(ModelError, match="joint 'slide': only revolute joints in series"):
        build_torque_regressor(Robot())


def test_samples_and_their_reverse_derivative(gen3):
    dynamics = SampledDynamics(gen3, 4)
    q, v, a = random_states(4, seed=2)
    weight = np.random.default_rng(3).normal(size=(4, N, 14 * N + 10))
    single = build_torque_regressor(gen3)
    np.testing.assert_allclose(dynamics.regressor(q, v, a)[2], single(q[2], v[2], a[2]).full(), atol=1e-12)
    gradients = dynamics.pull_back(q, v, a, weight)
    step = 1e-6
    for which, gradient in enumerate(gradients):
        direction = np.random.default_rng(4).normal(size=(4, N))
        ends = []
        for sign in (1, -1):
            state = [q, v, a]
            state[which] = state[which] + sign * step * direction
            ends.append(np.sum(weight * dynamics.regressor(*state)))
        assert np.sum(gradient * direction) == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5)


def test_torque_usage_is_that_of_the_checker(gen3):
    """The optimiser's worst torque is never below the checker's, for motion and stops, and close to it."""
    states = random_states(6, seed=5)
    demand = TorqueDemand(gen3, gen3.theta_box, gen3.payload_prior.box, np.linspace(0.0, 0.6, N))
    usage = SampledDynamics(gen3, 6).build_torque_usage(demand, brake_time=0.4)
    stops = slowdown_states(tuple(states), 0.4, 11)
    exact = (demand.evaluate(*stops) / gen3.limits.tau_max).reshape(11, 6, N)[[0, 5, 7, 10]].max(axis=(0, 2))
    difference = usage.value(*states)[:, 0] - exact
    assert np.all(difference >= -1e-9) and np.all(difference < 0.07)
    jacobian, step = usage.jacobian(*states), 1e-6
    for column in range(3 * N):
        ahead, behind = states.copy(), states.copy()
        ahead[column // N, :, column % N] += step
        behind[column // N, :, column % N] -= step
        slope = (usage.value(*ahead) - usage.value(*behind)) / (2 * step)
        np.testing.assert_allclose(jacobian[:, :, column], slope, atol=1e-4, rtol=1e-4)


def test_clearances_are_those_of_the_collision_model(gen3):
    box = Obstacle("crate", [0.4, 0.3, 0.2], [0.1, 0.2, 0.1], pin.exp3(np.array([0.1, 0.2, 0.3])))
    collision = build_collision_model(gen3, gen3.payload_prior.spheres, [box], ground_height=-0.1)
    q = gen3.home + np.random.default_rng(0).uniform(-0.8, 0.8, (5, N))
    found = build_clearance(gen3, collision)(q.T).full().T
    centers = sphere_centers(gen3, collision.spheres, q)
    radii = np.array([sphere.radius for sphere in collision.spheres])[collision.movable]
    points = centers[:, collision.movable]
    expected = [pair_distances(centers, collision.spheres, collision.pairs), points[..., 2] + 0.1 - radii]
    expected.append(box.distance(points) - radii)
    np.testing.assert_allclose(found, np.concatenate(expected, axis=1), atol=2e-6)


def test_smallest_clearance_is_below_the_minimum_but_close(gen3):
    clearance = build_clearance(gen3, build_collision_model(gen3, gen3.payload_prior.spheres))
    q = gen3.home + np.random.default_rng(1).uniform(-0.8, 0.8, (5, N))
    smallest = clearance(q.T).full().min(axis=0)
    smooth = SampledClearance(clearance, 5)
    gap = smallest - smooth.value(q)[:, 0]
    assert np.all(gap >= 0.0) and np.all(gap < 0.02)
    step = 1e-6
    slope = [(smooth.value(q + step * row) - smooth.value(q - step * row))[:, 0] / (2 * step) for row in np.eye(N)]
    np.testing.assert_allclose(smooth.jacobian(q)[:, 0], np.array(slope).T, atol=1e-6)
