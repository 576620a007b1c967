"""The sampled loop of rigid and elastic joints, against an integration of its own and against its own definition."""

from dataclasses import replace

import numpy as np
import pytest
from textbook import load_textbook

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.control.gains import GAIN_MARGIN, NOISE_SHARE, PHASE_MARGIN, choose_gains, with_bandwidth
from sysid_ros.core.control.sampled_loop import LoopCase, LoopMargins, SampledLoop
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.robot import PositionSide

GAINS = RobustSettings(bandwidth=60.0, position_gain=6.0, integral_gain=5.0, delay=0.0004)


@pytest.fixture(scope="module")
def gen3():
    return load_textbook("kinova_gen3", is_elastic=True)


def changed(robot, **values):
    return replace(robot, elasticity=replace(robot.elasticity, **values))


def at_home(robot, share=0.0):
    return LoopCase(robot.home, robot.theta_nominal, robot.theta_nominal, share)


def integrate(robot, settings, joint, count, steps=40):
    """Deflect one motor for one period and return positions where they are measured: explicit small steps."""
    n, elasticity, h = robot.n, robot.elasticity, settings.period
    armature = robot.friction(robot.theta_nominal)[:, 2]
    whole = ArmDynamics(robot, robot.theta_nominal, armature=True).inertia(robot.home)
    links = np.linalg.inv(whole - np.diag(armature))
    q, motor, v, w, applied = np.zeros((5, n))
    eta, before, last, found = np.zeros(n), np.zeros(n), np.zeros(n), []
    first = round(steps * settings.delay / h)
    for sample in range(count):
        y, speed = (motor, w) if elasticity.position_side is PositionSide.MOTOR else (q, v)
        if robot.sensors.velocity_is_difference:
            speed = (y - last) / h
        last = y.copy()
        found.append(y.copy())
        r = -(speed + settings.position_gain * y)
        tau = whole @ (settings.bandwidth * r - settings.position_gain * speed + eta)
        eta = eta + h * settings.integral_gain * settings.bandwidth * r
        for step in range(steps):
            command = tau if step >= first else before
            disturbance = np.eye(n)[joint] if sample == 0 else 0.0
            share = 1.0 if elasticity.actuator_lag == 0.0 else -np.expm1(-h / steps / elasticity.actuator_lag)
            applied = applied + share * (command - applied)
            for _ in range(25):  # semi-implicit Euler
                small = h / steps / 25
                torque = elasticity.stiffness * (motor - q) + elasticity.damping * (w - v)
                active = elasticity.torque_damping * elasticity.stiffness * (w - v)
                v = v + small * links @ torque
                w = w + small * (applied + disturbance - torque - active) / armature
                q, motor = q + small * v, motor + small * w
        before = tau
    return np.array(found)


@pytest.mark.parametrize(
    ("side", "is_difference", "lag"), [("motor", False, 0.0), ("link", True, 0.0), ("motor", False, 0.002)]
)
def test_responses_are_those_of_an_integration(gen3, side, is_difference, lag):
    robot = changed(gen3, position_side=PositionSide(side), torque_damping=np.full(7, 0.004), actuator_lag=lag)
    robot = replace(robot, sensors=replace(robot.sensors, velocity_is_difference=is_difference))
    loop = SampledLoop(robot, GAINS, at_home(robot))
    joint, count = 1, 40
    expected = integrate(robot, GAINS, joint, count)[1:]
    found = loop.responses(count - 1)[0, :, 0, :, joint]
    assert np.abs(found - expected).max() < 0.02 * np.abs(expected).max()


def test_a_rigid_arm_has_the_same_margins_in_all_joints():
    robot = load_textbook("kinova_gen3")
    margins = SampledLoop(robot, RobustSettings(), at_home(robot)).margins()
    assert margins.radius < 1.0
    np.testing.assert_allclose(margins.gain, margins.gain[0], rtol=1e-6)
    # c (1 + small) / s with a period of delay and half a period of hold: pi / 2 = 1.5 h w, gain 1 at c.
    assert margins.gain[0] == pytest.approx(np.pi / 2.0 / (1.5e-3 * 207.0), rel=0.06)


def with_one_gain(loop, joint, gain):
    row = np.zeros_like(loop.torque)
    row[joint] = (gain - 1.0) * loop.torque[joint]
    return np.abs(np.linalg.eigvals(loop.step + loop._command @ row)).max()


def test_a_joint_survives_its_gain_margin_and_not_more(gen3):
    loop = SampledLoop(gen3, with_bandwidth(RobustSettings(), 60.0), at_home(gen3))
    margins = loop.margins()
    for joint in range(4):
        assert with_one_gain(loop, joint, 0.98 * margins.gain[joint]) < 1.0
        assert with_one_gain(loop, joint, 1.02 * margins.gain[joint]) > 1.0
    assert np.all(1.0 / (1.0 - margins.distance) <= margins.gain * 1.02)
    assert np.all(2.0 * np.arcsin(0.5 * margins.distance) <= margins.phase + 1e-3)
    assert loop.radius_with(1.0) == loop.radius < 1.0 < loop.radius_with(2.0 * margins.gain.min())


def test_an_unstable_loop_has_no_margins(gen3):
    link_side = changed(gen3, position_side=PositionSide.LINK)
    margins = SampledLoop(link_side, RobustSettings(), at_home(link_side)).margins()
    assert margins.radius > 1.0 and np.isnan(margins.gain).all()
    stable = SampledLoop(gen3, with_bandwidth(RobustSettings(), 60.0), at_home(gen3)).margins()
    assert np.isnan(LoopMargins.least([stable, margins]).gain).all()


def test_gains_are_the_highest_that_keep_the_margins(gen3):
    choice = choose_gains(gen3, RobustSettings())
    assert 60.0 < choice.settings.bandwidth < 150.0
    assert np.all(choice.margins.gain >= GAIN_MARGIN) and np.all(choice.margins.phase >= PHASE_MARGIN)
    assert np.all(choice.noise <= NOISE_SHARE)
    higher = with_bandwidth(RobustSettings(), choice.settings.bandwidth * 10.0**0.1)
    with pytest.raises(SysidError, match="no gains keep the margins"):
        choose_gains(changed(gen3, position_side=PositionSide.LINK, stiffness=np.full(7, 1000.0)), higher)


def test_gains_of_rigid_arms_are_those_asked_for_unless_their_sensors_are_too_noisy():
    robot = load_textbook("kinova_gen3")
    assert choose_gains(robot, RobustSettings()).settings == RobustSettings()
    noisy = replace(robot, sensors=replace(robot.sensors, velocity_error=10.0 * robot.sensors.velocity_error))
    choice = choose_gains(noisy, RobustSettings())
    assert choice.settings.bandwidth < 80.0 and choice.noise.max() <= NOISE_SHARE
