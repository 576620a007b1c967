"""The mean torque of an arm that is held: its bound against Pinocchio, and against simulated arms that are held."""

import numpy as np
import pytest

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.held_feedback import WINDOW, HeldFeedback
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.robust import RobustController
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.core.tracking_bound.bound import tracking_bound
from sysid_ros.drivers.mujoco.arm import MujocoArm, MujocoSettings
from sysid_ros.papers.closed_loop import follow


class Errors:
    def __init__(self, position, velocity, torque):
        self.position, self.velocity, self.torque = position, velocity, torque


@pytest.mark.parametrize("name", ["kinova_gen3_2f85", "ur5e", "kuka_lbr_med7"])
def test_levers_of_the_stretched_chain_bound_gravity_momentum_and_energy(name):
    """By finite differences of Pinocchio's gravity and kinetic energy, anywhere, with parameters of the boxes."""
    robot, rng, step = load_robot(name), np.random.default_rng(4), 1e-6
    errors = Errors(rng.uniform(0.002, 0.01, robot.n), rng.uniform(0.02, 0.2, robot.n), np.ones(robot.n))
    bound = HeldFeedback.bound(Assumptions.of_payload(robot, nominal=robot.payload_prior.nominal), errors)
    closest = 0.0
    for _ in range(40):
        theta, payload = sample_parameters(robot, rng), sample_payload(robot.payload_prior, rng)
        dynamics = ArmDynamics(robot, theta, payload, armature=True)
        q = rng.uniform(-np.pi, np.pi, robot.n)
        v = rng.choice([-1.0, 1.0], robot.n) * errors.velocity
        coulomb, viscous = robot.friction(theta).T[:2]
        mean = np.array(coulomb)
        for k, one in enumerate(np.eye(robot.n)):
            after, before = q + step * one, q - step * one
            gravity = (dynamics.gravity(after) - dynamics.gravity(before)) / (2.0 * step)
            mean += np.abs(gravity) * errors.position[k]
            energies = [0.5 * v @ dynamics.inertia(at) @ v for at in (after, before)]
            mean[k] += abs(energies[0] - energies[1]) / (2.0 * step)
        momentum = np.abs(dynamics.inertia(q) @ v) + viscous * errors.position
        assert np.all(mean <= bound.mean) and np.all(2.0 * momentum <= bound.impulse)
        closest = max(closest, float((mean / bound.mean).max()))
    assert closest > 0.2, "the bound is of this size"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kinova_gen3_2f85", "kinova_gen3_2f85:elastic:at_fingertips"])
def test_arms_that_are_held_keep_the_bound(name):
    robot = load_robot(name)
    known = Assumptions.of_payload(robot)
    model = ControlModel.of_boxes(robot, known.boxes, known.nominal)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        theta, payload = sample_parameters(robot, rng), sample_payload(robot.payload_prior, rng)
        held = tracking_bound(robot, model, robot.home, known.control_law)
        bound = HeldFeedback.bound(known, held)
        arm = MujocoArm(robot, theta, payload, robot.home, MujocoSettings(seed=seed))
        controller = RobustController(robot, known.control_law)
        controller.set_model(model.theta, model.theta_box, model.payload, model.payload_box)
        dynamics = ArmDynamics(robot, theta, payload)
        rest = dynamics.gravity(robot.home) + robot.friction(theta)[:, 3]
        controller.reset(rest)
        zero = np.zeros(robot.n)
        trace = follow(arm, controller, lambda t, zero=zero: (robot.home, zero, zero), held.settling_time + 6.0)
        tau = trace.command[trace.t > held.settling_time]
        assert np.all(np.abs(tau - rest).max(axis=0) <= bound.largest)
        for count in (500, 2000, len(tau)):
            windows = np.abs(np.cumsum(tau - rest, axis=0)[count - 1 :: count]) / count
            assert np.all(windows <= bound.mean + bound.impulse / (1e-3 * count))
        squares, more = bound.squares(np.abs(rest))
        assert np.all(np.mean(tau**2, axis=0) <= squares + more / (1e-3 * len(tau)))


def test_the_largest_torque_at_rest_is_the_one_whose_mean_square_is_the_limit():
    """Or the one that leaves 0.3 of the peak for braking, where that is less; never less than by the peak feedback."""
    robot = load_robot("kinova_gen3_2f85")
    limits, ones = robot.limits, np.ones(robot.n)
    averaged, unknown = HeldFeedback(4.0 * ones, ones, 2.0 * ones), HeldFeedback(2.0 * ones, np.inf * ones, 0.0 * ones)
    rest = unknown.largest_rest(limits)
    np.testing.assert_allclose(rest + 2.0, limits.tau_held)
    squares, more = unknown.squares(rest)
    np.testing.assert_allclose(np.sqrt(squares), limits.tau_held)
    assert not more.any()
    rest = averaged.largest_rest(limits)
    squares, more = averaged.squares(rest)
    np.testing.assert_allclose(squares, rest**2 + 2.0 * rest * (1.0 + 2.0 / WINDOW) + 16.0)
    assert np.all(more > 0.0) and np.all(rest > limits.tau_held - 4.0)
    np.testing.assert_allclose(rest[:4] + 4.0, 0.7 * limits.tau_max[:4])
    np.testing.assert_allclose(np.sqrt(squares)[4:], limits.tau_held[4:])


def test_a_joint_that_needs_no_torque_at_rest_has_a_finite_mean_square():
    unknown = HeldFeedback(np.full(2, 3.0), np.full(2, np.inf), np.zeros(2))
    np.testing.assert_allclose(unknown.squares(np.array([0.0, 2.0]))[0], [9.0, 25.0])
