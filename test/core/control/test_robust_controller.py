"""The robust control law on its own: its formula, its energy, changes of the model, bad input."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control import CONTROLLERS, RobustController, RobustSettings, build_controller
from sysid_ros.core.model.mechanics import ArmDynamics, add_payload
from sysid_ros.core.model.sampling import sample_parameters, sample_payload


def states(robot, seed, scale=0.1):
    """q, v, q_d, v_d, a_d near each other."""
    rng = np.random.default_rng(seed)
    q, v = robot.home + rng.normal(size=robot.n), rng.normal(size=robot.n)
    return q, v, q + scale * rng.normal(size=robot.n), v + scale * rng.normal(size=robot.n), rng.normal(size=robot.n)


def test_torque_is_the_law_of_the_module(robot):
    gains = RobustSettings(bandwidth=40.0, position_gain=7.0, integral_gain=3.0, friction_speed=0.4)
    controller = RobustController(robot, gains)
    model = controller.model
    dynamics = ArmDynamics(robot, model.total, armature=True)
    coulomb, viscous, _, offset = model.friction.T
    eta = np.zeros(robot.n)
    for seed in range(4):  # several cycles, so that something is learnt
        q, v, q_d, v_d, a_d = states(robot, seed, scale=0.01)
        e, de = q_d - q, v_d - v
        r = de + 7.0 * e
        v_a, a_a = v_d + 7.0 * e, a_d + 7.0 * de
        share = np.sign(v_d) * np.clip((np.abs(v_d) - 0.2) / 0.2, 0.0, 1.0)
        expected = dynamics.passive_torque(q, v, v_a, a_a) + coulomb * share + viscous * v + offset
        expected += dynamics.inertia(q) @ (40.0 * r + eta)
        np.testing.assert_allclose(controller.compute(q, v, q_d, v_d, a_d), expected, atol=1e-9)
        eta += 1e-3 * 3.0 * 40.0 * r
    assert controller.saturated_cycles == 0


@pytest.mark.parametrize("name", ["robust", "gravity_pid"])
def test_the_first_torque_is_the_one_that_balances_the_arm(robot, name):
    controller, rest = build_controller(name, robot), np.zeros(robot.n)
    balance = ArmDynamics(robot, controller.model.total).gravity(robot.home) + np.linspace(-1.0, 2.0, robot.n)
    controller.reset(balance)
    for _ in range(3):
        tau = controller.compute(robot.home, rest, robot.home, rest, rest)
        np.testing.assert_allclose(tau, balance, atol=1e-9)
    controller.reset()
    assert np.abs(controller.compute(robot.home, rest, robot.home, rest, rest) - balance).max() > 0.5


def test_energy_of_the_sliding_variable_changes_as_proven(robot, tools):
    """d/dt (r^T H r / 2) = r^T (w - nu) with w the model error, evaluated with the true accelerations."""
    rng = np.random.default_rng(7)
    controller = RobustController(robot)
    k = controller.settings.position_gain
    for seed in range(5):
        q, v, q_d, v_d, a_d = states(robot, seed)
        theta, payload = (
            sample_parameters(robot, rng, corner=True),
            sample_payload(robot.payload_prior, rng, corner=True),
        )
        controller.reset()
        tau = controller.compute(q, v, q_d, v_d, a_d)
        plant = tools.plant(robot, theta, payload, q)
        a = plant.acceleration(q, v, tau)
        e, de = q_d - q, v_d - v
        r, dr = de + k * e, a_d - a + k * de
        v_a, a_a = v_d + k * e, a_d + k * de

        true = ArmDynamics(robot, add_payload(theta, payload), armature=True)
        step = 1e-6
        inertia_rate = (true.inertia(q + step * v) - true.inertia(q - step * v)) / (2 * step)
        change = r @ true.inertia(q) @ dr + 0.5 * r @ inertia_rate @ r

        friction = theta[10 * robot.n :].reshape(robot.n, 4)
        needed = true.passive_torque(q, v, v_a, a_a) + friction[:, 0] * np.clip(v / 1e-3, -1, 1) + friction[:, 1] * v
        needed += friction[:, 3]
        nominal = ArmDynamics(robot, controller.model.total, armature=True)
        robust = controller.settings.bandwidth * nominal.inertia(q) @ r
        w = needed - (tau - robust)
        np.testing.assert_allclose(change, r @ (w - robust), rtol=1e-6, atol=1e-6)
        # The model error is what the boxes allow, joint by joint.
        lower, upper = controller.model.deviation
        assert np.all(lower - 1e-12 <= add_payload(theta, payload) - controller.model.total)
        assert np.all(add_payload(theta, payload) - controller.model.total <= upper + 1e-12)


def test_change_of_model_does_not_move_the_torque(robot):
    gains = RobustSettings(blend_time=0.5)
    controller = RobustController(robot, gains)
    q, _, q_d, v_d, a_d = states(robot, 3, scale=1e-3)
    v = v_d = a_d = np.zeros(robot.n)
    for _ in range(50):
        before = controller.compute(q, v, q_d, v_d, a_d)
    box = robot.payload_prior.box
    controller.set_model(robot.theta_nominal, robot.theta_box, 0.5 * robot.payload_prior.nominal, box)
    controller.set_model(robot.theta_nominal, robot.theta_box, 0.2 * robot.payload_prior.nominal, box)
    torques = [controller.compute(q, v, q_d, v_d, a_d)]
    np.testing.assert_allclose(torques[0], before, atol=0.2)
    for _ in range(600):
        torques.append(controller.compute(q, v, q_d, v_d, a_d))
    assert np.abs(np.diff(torques, axis=0)).max() < 0.2  # no jump on the way
    # In the end it is the new model's, with what was learnt.
    fresh = RobustController(robot, gains)
    fresh.set_model(robot.theta_nominal, robot.theta_box, 0.2 * robot.payload_prior.nominal, box)
    r = gains.position_gain * (q_d - q)
    learnt = len(torques) + 49
    inertia = ArmDynamics(robot, fresh.model.total, armature=True).inertia(q)
    expected = fresh.compute(q, v, q_d, v_d, a_d) + inertia @ r * learnt * 1e-3 * gains.integral_gain * gains.bandwidth
    np.testing.assert_allclose(torques[-1], expected, atol=1e-6)
    assert np.abs(torques[-1] - torques[0]).max() > 0.5


def test_the_same_payload_with_a_narrower_box_does_not_start_a_change_anew(robot):
    """Whoever counts the time since the payload was changed must be right."""
    controller = RobustController(robot, RobustSettings(blend_time=0.5))
    state = states(robot, 1, scale=1e-3)
    prior = robot.payload_prior
    light = 0.4 * prior.nominal
    assert controller.blend_left == 0.0
    controller.compute(*state)
    before = controller.model.total
    controller.set_model(robot.theta_nominal, robot.theta_box, light, prior.box)
    assert 0.5 <= controller.blend_left < 0.502
    for _ in range(250):
        controller.compute(*state)
    narrower = Box.around(light, 0.1 * prior.box.radius)
    controller.set_model(robot.theta_nominal, robot.theta_box, light, narrower)
    assert controller.model.payload_box is narrower
    assert controller.blend_left == pytest.approx(0.25, abs=2e-3)
    for _ in range(252):
        assert (controller.blend_left == 0.0) == np.array_equal(controller._total, controller.model.total)
        controller.compute(*state)
    assert controller.blend_left == 0.0
    np.testing.assert_array_equal(controller._total, controller.model.total)
    # Back and forth between two cycles is no change either.
    controller.set_model(robot.theta_nominal, robot.theta_box, prior.nominal, prior.box)
    controller.set_model(robot.theta_nominal, robot.theta_box, light, prior.box)
    assert controller.blend_left == 0.0 and np.any(before != controller.model.total)


def test_reset_forgets(robot):
    controller = RobustController(robot)
    state = states(robot, 1, scale=1e-3)
    first = controller.compute(*state)
    assert np.abs(controller.compute(*state) - first).max() > 1e-6
    controller.reset()
    np.testing.assert_array_equal(controller.compute(*state), first)


def test_saturation_is_reported_and_stops_learning(robot):
    weak = replace(robot, limits=replace(robot.limits, tau_max=0.01 * robot.limits.tau_max))
    controller = RobustController(weak)
    state = states(weak, 1)
    first, second = controller.compute(*state), controller.compute(*state)
    np.testing.assert_array_equal(first, second)  # nothing was learnt
    assert controller.saturated_cycles == 2
    strong = RobustController(robot)
    strong.compute(robot.home, *np.zeros((1, 7)), robot.home, *np.zeros((2, 7)))
    assert strong.saturated_cycles == 0


@pytest.mark.parametrize("name", CONTROLLERS)
def test_refuses_numbers_that_are_not_finite(robot, name):
    controller = build_controller(name, robot)
    q, v, q_d, v_d, a_d = states(robot, 0)
    with pytest.raises(ParameterOutOfRange, match="expected finite numbers"):
        controller.compute(np.where(np.arange(robot.n) == 3, np.nan, q), v, q_d, v_d, a_d)
    controller.compute(q, v, q_d, v_d, a_d)


@pytest.mark.parametrize("name", CONTROLLERS)
def test_refuses_a_model_outside_its_box(robot, name):
    controller, prior = build_controller(name, robot), robot.payload_prior
    with pytest.raises(ParameterOutOfRange, match=r"theta\[0\] 2.754.*: expected 1.308.* to 1.446"):
        controller.set_model(2.0 * robot.theta_nominal, robot.theta_box, prior.nominal, prior.box)
    with pytest.raises(ParameterOutOfRange, match=r"payload\[3\] nan"):
        unknown = np.where(np.arange(10) == 3, np.nan, prior.nominal)
        controller.set_model(robot.theta_nominal, robot.theta_box, unknown, prior.box)
    with pytest.raises(ParameterOutOfRange, match="mass of body 7"):
        controller.set_model(robot.theta_nominal, robot.theta_box, -2.0 * prior.nominal, prior.box)
    assert controller.model.payload[0] == prior.nominal[0]  # as before


def test_unknown_controller_is_named():
    with pytest.raises(ParameterOutOfRange, match="controller 'magic': expected one of robust, gravity_pid"):
        build_controller("magic", None)


def test_friction_share_has_a_dead_zone_and_saturates():
    settings = RobustSettings(friction_speed=0.4)
    speeds = np.array([-1.0, -0.4, -0.3, -0.2, 0.0, 0.1, 0.2, 0.3, 0.4, 2.0])
    np.testing.assert_allclose(settings.friction_share(speeds), [-1, -1, -0.5, 0, 0, 0, 0, 0.5, 1, 1], atol=1e-12)
