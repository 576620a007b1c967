"""Errors of positions behind elastic gears whose motors are measured, against deflections written down."""

from dataclasses import replace

import numpy as np
import pytest
from textbook import load_textbook

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS, EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.windows.errors import integrate_torque, position_integral
from sysid_ros.core.estimation.windows.model import Window, WindowModel
from sysid_ros.core.estimation.windows.rows import build_rows
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.robot import EffortMeaning, SensorModel

N = 7


def elastic(meaning: EffortMeaning, **sensors):
    robot = load_textbook("kinova_gen3", is_elastic=True)
    return replace(robot, sensors=replace(robot.sensors, effort_meaning=meaning, **sensors))


def model_of(robot, settings):
    return WindowModel(robot, settings, describe_unknowns(robot, settings))


def at_rest(times, tau, stop):
    still = np.zeros((len(times), N))
    return Window(SampleBlock((1e9 * times).astype(np.int64), np.arange(len(times)), still, still, tau), 0, stop, 0)


def without_errors():
    """Gears without damping, the softest possible, and sensors and motors without errors or friction."""
    none = np.zeros(N)
    perfect = SensorModel(EffortMeaning.LINK_SIDE, 1.0, none, none, False, none, none, 0.0)
    robot = load_textbook("kinova_gen3", is_elastic=True)
    theta = np.append(robot.theta_nominal[: 10 * N], np.zeros(4 * N))
    elasticity = replace(robot.elasticity, damping=none)
    return replace(robot, sensors=perfect, theta_box=Box(theta, theta), theta_nominal=theta, elasticity=elasticity)


@pytest.mark.parametrize("error", [-0.02, 0.02])
def test_deflections_of_reversing_torques_hold_where_the_lag_is_uncertain(error):
    """From minus to plus the same torque, seen late or early; half of that change was once left out."""
    robot, settings = without_errors(), EstimatorSettings(torque_lag=0.02, torque_lag_tolerance=0.02)
    times, slope = 1e-3 * np.arange(600), 0.8 * robot.elasticity.torque_rate
    window = at_rest(times, np.outer(times - 0.27, slope), 500)
    model = model_of(robot, settings)
    signals, rows = window.signals(model), build_rows(model, window)
    softest = robot.elasticity.within(-1.0).stiffness
    deflection = np.outer(times[:501] + 0.02 + error - 0.27, slope / softest)
    assert np.all(np.abs(deflection) <= signals.position_error)
    torque = integrate_torque(signals.torque_times, signals.tau, 0.02, signals.duration + 0.02, model.sensors)
    middle, radius = position_integral(model, signals, torque, rows.errors)
    assert np.all(np.abs(np.trapezoid(deflection, times[:501], axis=0) - middle) <= radius)


def test_deflections_hold_where_a_late_torque_is_of_a_longer_step():
    """The torque of the last 15 ms is a mean, less than where it began; these are beyond the window."""
    robot, settings = without_errors(), EstimatorSettings(torque_lag=0.002)
    robot = replace(robot, sensors=replace(robot.sensors, effort_is_held=True))
    times = np.append(1e-3 * np.arange(102), [0.116, 0.117])
    most = 0.95 * robot.elasticity.torque_rate

    def integral(time):
        """Of a torque that grows until the stop of the window, and falls from then on."""
        rise, fall = np.minimum(time, 0.102), np.maximum(time - 0.102, 0.0)
        return 0.5 * rise**2 + 0.102 * fall - 0.5 * fall**2

    seen = np.diff(integral(np.append(-1e-3, times))) / np.diff(np.append(-1e-3, times))
    window = at_rest(times, np.outer(seen, most), 100)
    deflection = 0.102 * most / robot.elasticity.within(-1.0).stiffness
    assert np.all(deflection <= window.signals(model_of(robot, settings)).position_error)


def test_where_position_errors_do_not_count_no_deflection_is_taken_out():
    terms = tuple(name for name in ERROR_TERMS if name != "encoder")
    for settings, is_known in ((EstimatorSettings(), True), (EstimatorSettings(error_terms=terms), False)):
        model = model_of(elastic(EffortMeaning.GEAR_SIDE), settings)
        window = at_rest(1e-3 * np.arange(101), np.full((101, N), 20.0), 100)
        signals, rows = window.signals(model), build_rows(model, window)
        torque = integrate_torque(signals.torque_times, signals.tau, 0.0, signals.duration, model.sensors)
        assert position_integral(model, signals, torque, rows.errors)[0].any() == is_known


def test_gears_count_on_friction_and_rotors_as_wide_as_the_settings_ask_for():
    robot = elastic(EffortMeaning.MOTOR_SIDE)
    _, viscous, armature, _ = robot.friction(robot.theta_box.upper).T
    model = model_of(robot, EstimatorSettings(friction_range=3.0))
    np.testing.assert_allclose(model.unknowns.armature_upper, 3.0 * armature)
    np.testing.assert_allclose(model.elastic_turn, 6.0 * viscous)
    np.testing.assert_allclose(model.elastic_momentum, 6.0 * armature * robot.elasticity.deflection_rate)


def test_the_sign_of_friction_behind_a_sensor_is_that_of_the_links():
    window = at_rest(1e-3 * np.arange(101), np.zeros((101, N)), 100)
    slack = []
    for meaning in (EffortMeaning.GEAR_SIDE, EffortMeaning.LINK_SIDE):
        robot = elastic(meaning, effort_friction=1.0 if meaning is EffortMeaning.LINK_SIDE else 0.0)
        model = model_of(robot, EstimatorSettings())
        slack.append(model.sign_slack(window.signals(model)))
    np.testing.assert_allclose(slack[1] - slack[0], robot.elasticity.deflection_rate)
