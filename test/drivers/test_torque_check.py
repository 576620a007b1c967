from dataclasses import replace

import numpy as np
import pytest
from textbook import load_steady, load_textbook, with_sensors

from sysid_ros.core.model.robot import EffortMeaning
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.monitors import TorqueCheck
from sysid_ros.drivers.mujoco.simulation import SensorSimulation

PERIOD = 0.001


@pytest.fixture(scope="module")
def robot():
    return load_steady()


def find_first(check, readings, commands):
    """Number of the first cycle with a mismatch and what was said; None without one."""
    for k, (tau, command) in enumerate(zip(readings, commands, strict=True)):
        fault = check.find_mismatch(tau)
        if fault is not None:
            return k, fault.reason
        check.note(command)
    return None


def measured(robot, commands, noise=Noise.NONE, delay=0.5, seed=0):
    """What is read one cycle later: commands that took effect after a part of the cycle, with the sensor's errors."""
    sensor = SensorSimulation(robot.sensors, noise, seed)
    before = np.vstack([commands[:1], commands[:1], commands[:-2]])
    last = np.vstack([commands[:1], commands[:-1]])
    means = delay * before + (1.0 - delay) * last
    zero = np.zeros(7)
    stamps = (round(1e9 * PERIOD) * k for k in range(len(means)))
    return np.array([sensor.measure(stamp, zero, zero, mean)[3] for stamp, mean in zip(stamps, means, strict=True)])


@pytest.fixture
def commands():
    """Torques that jump, rise and change their sign."""
    rng = np.random.default_rng(1)
    return np.cumsum(rng.normal(size=(3000, 7)), axis=0) * 0.4 + np.sign(np.sin(0.01 * np.arange(3000)))[:, None]


@pytest.mark.parametrize("noise", Noise)
@pytest.mark.parametrize("delay", [0.0, 0.3, 1.0])
def test_errors_of_the_sensor_are_no_mismatch(robot, commands, noise, delay):
    check = TorqueCheck(robot, PERIOD, PERIOD)  # not even one cycle may be wrong
    assert find_first(check, measured(robot, commands, noise, delay), commands) is None


def test_a_wrong_gain_of_one_joint_is_named_after_the_time_that_is_allowed(robot):
    commands = np.full((200, 7), 5.0)
    readings = measured(robot, commands)
    readings[100:, 3] *= 1.04
    k, text = find_first(TorqueCheck(robot, 0.05, PERIOD), readings, commands)
    assert k == 149 and text.startswith("the torque of joint_4 is 5.200 Nm, commanded were 5.000 Nm")
    readings[120, 3] = 5.0
    assert find_first(TorqueCheck(robot, 0.05, PERIOD), readings, commands)[0] == 170


def test_nothing_is_compared_where_it_means_nothing(robot):
    commands = np.full((200, 7), 5.0)
    wrong = -commands
    sensors = replace(robot.sensors, effort_meaning=EffortMeaning.LINK_SIDE)
    for check in (TorqueCheck(robot, 0.0, PERIOD), TorqueCheck(replace(robot, sensors=sensors), 0.05, PERIOD)):
        assert find_first(check, wrong, commands) is None
    gear = replace(robot, sensors=replace(robot.sensors, effort_meaning=EffortMeaning.GEAR_SIDE))
    rotor = 2.9 * robot.friction(robot.theta_nominal)[:, 2] * robot.limits.a_max
    assert find_first(TorqueCheck(gear, 0.05, PERIOD), commands - rotor, commands) is None
    assert find_first(TorqueCheck(robot, 0.05, PERIOD), commands - rotor, commands) is not None
    assert find_first(TorqueCheck(gear, 0.05, PERIOD), commands - 2.0 * rotor, commands) is not None
    check = TorqueCheck(robot, 0.05, PERIOD)
    assert find_first(check, wrong[:40], commands[:40]) is None
    check.restart()
    assert find_first(check, wrong[:40], commands[:40]) is None
    assert find_first(check, wrong, commands)[0] > 0


def test_a_sensor_is_believed_again_after_a_while_without_a_difference(robot):
    check = TorqueCheck(robot, 0.05, PERIOD)
    commands = np.full((3000, 7), 5.0)
    readings = measured(robot, commands)
    readings[100:200, 3] = -5.0
    told = []
    for tau, command in zip(readings, commands, strict=True):
        told.append(check.find_mismatch(tau) is not None)
        check.note(command)
    assert np.flatnonzero(told).tolist() == list(range(149, 1199))


def test_torques_that_vibrate_are_compared_in_the_mean(robot):
    """A sensor of 4 % too much, under vibration of 0.8 Nm that hides it in each sample."""
    shaking = with_sensors(robot, effort_absolute_error=1.0, effort_mean_error=0.01, effort_integral_error=0.005)
    commands = np.full((2000, 7), 5.0)
    readings = measured(robot, commands) + 0.8 * np.where(np.arange(2000) % 2 == 0, 1.0, -1.0)[:, None]
    assert find_first(TorqueCheck(shaking, 0.05, PERIOD), readings, commands) is None
    readings[:, 3] += 0.04 * 5.0
    k, text = find_first(TorqueCheck(shaking, 0.05, PERIOD), readings, commands)
    assert k <= 501 and text.startswith("the torque of joint_4 is") and "in the mean" in text


@pytest.mark.parametrize("noise", [Noise.UNIFORM, Noise.ADVERSARIAL, Noise.GAIN])
def test_errors_in_the_mean_are_no_mismatch(noise):
    vibrating = load_textbook()
    commands = np.cumsum(np.random.default_rng(2).normal(size=(4000, 7)), axis=0) * 0.1
    check = TorqueCheck(vibrating, 0.05, PERIOD)
    assert find_first(check, measured(vibrating, commands, noise, seed=4), commands) is None
