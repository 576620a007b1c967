"""Adaptive baselines: their law, what they learn of a payload, and that no bound is claimed for them."""

import numpy as np
import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.model.mechanics import ArmDynamics, add_payload
from sysid_ros.drivers.mujoco.arm import MujocoArm
from sysid_ros.papers.baselines.adaptive import AdaptiveController, AdaptiveSettings

PAYLOAD = from_com_form(1.6, [0.0, 0.01, -0.15], np.diag([0.006, 0.006, 0.003]))


def test_the_torque_is_the_law_of_the_module(robot):
    """With Pinocchio's inverse dynamics in place of the regressor."""
    rng = np.random.default_rng(0)
    q, v, q_d, v_d, a_d = robot.home + rng.normal(size=(5, robot.n)) * np.array([[0.2], [0.3], [0.2], [1.5], [2.0]])
    v, v_d, a_d = v - robot.home, v_d - robot.home, a_d - robot.home
    controller = AdaptiveController(robot, AdaptiveSettings(adaptation=0.0))
    gains, model = controller.settings, controller.model
    v_r = v_d + gains.position_gain * (q_d - q)
    a_r = a_d + gains.position_gain * (v_d - v)
    theta = add_payload(model.theta, controller.payload)
    dynamics = ArmDynamics(robot, theta, armature=True)
    coulomb, viscous, _, offset = robot.friction(theta).T
    expected = dynamics.passive_torque(q, v, v_r, a_r) + coulomb * RobustSettings().friction_share(v_d)
    expected += viscous * v_r + offset + gains.bandwidth * np.diag(dynamics.inertia(robot.home)) * (v_r - v)
    np.testing.assert_allclose(controller.compute(q, v, q_d, v_d, a_d), expected, rtol=1e-9, atol=1e-9)
    assert np.array_equal(controller.payload, model.payload)


def swing(robot, controller, seconds):
    """Let a simulated arm with the payload swing; return its errors, (N, n) [rad]."""
    arm = MujocoArm(robot, payload=PAYLOAD)
    arm.connect()
    controller.reset()
    errors = []
    reach, rate = np.array([0.3, 0.2, 0.3, 0.3, 0.5, 0.4, 0.5]), np.linspace(1.5, 3.0, robot.n)
    for k in range(round(seconds / arm.period)):
        state, t = arm.read(), k * arm.period
        s = min(1.0, t / 2.0)
        q_d = robot.home + s * reach * np.sin(rate * t)
        v_d, a_d = s * reach * rate * np.cos(rate * t), -s * reach * rate**2 * np.sin(rate * t)
        arm.command(controller.compute(state.q, state.v, q_d, v_d, a_d))
        errors.append(q_d - state.q)
    return np.array(errors)


@pytest.mark.slow
def test_composite_adaptation_finds_the_payload_and_the_direct_law_reduces_the_error(robot):
    fixed = AdaptiveController(robot, AdaptiveSettings(adaptation=0.0))
    direct = AdaptiveController(robot, AdaptiveSettings(adaptation=10.0))
    composite = AdaptiveController(robot, AdaptiveSettings(adaptation=0.1, prediction=1.0))
    worst = {}
    for name, controller in {"fixed": fixed, "direct": direct, "composite": composite}.items():
        errors = swing(robot, controller, 6.0)
        worst[name] = np.abs(errors[3000:]).max()
        assert robot.payload_prior.box.contains(controller.payload)
    assert worst["direct"] < 0.8 * worst["fixed"] and worst["composite"] < 0.8 * worst["fixed"]
    assert np.array_equal(fixed.payload, robot.payload_prior.nominal)
    assert abs(composite.payload[0] - PAYLOAD[0]) < 0.15
    assert np.abs(composite.payload[1:4] - PAYLOAD[1:4]).max() < 0.03


def test_an_arm_that_sags_is_taken_for_heavier(robot):
    """Held at rest below where it should be, every step adds mass."""
    controller = AdaptiveController(robot, AdaptiveSettings(adaptation=10.0))
    zero, sagged = np.zeros(robot.n), robot.home.copy()
    dynamics = ArmDynamics(robot, robot.theta_nominal)
    pull = dynamics.gravity(sagged)
    sagged = sagged - 0.001 * np.sign(pull)  # where gravity has pulled it
    masses = [controller.payload[0]]
    for _ in range(50):
        controller.compute(sagged, zero, robot.home, zero, zero)
        masses.append(controller.payload[0])
    assert np.all(np.diff(masses) > 0.0)


def test_nothing_is_proven_for_it_and_bad_measurements_are_refused(robot):
    controller, zero = AdaptiveController(robot), np.zeros(robot.n)
    with pytest.raises(ParameterOutOfRange, match="no other law has a proven tracking bound"):
        RobustSettings.of_law(controller.law)
    with pytest.raises(ParameterOutOfRange, match="finite"):
        controller.compute(np.full(robot.n, np.nan), zero, zero, zero, zero)
