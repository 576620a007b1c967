"""Gravity-compensated PID: its formula, its integral, and that it holds an arm."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
from true_arm import true_model

from sysid_ros.core.control import GravityPid, PidSettings


def test_balances_gravity_of_the_nominal_arm_at_rest(robot):
    controller = GravityPid(robot)
    zero = np.zeros(robot.n)
    arm = true_model(robot, payload=robot.payload_prior.nominal)
    expected = pin.computeGeneralizedGravity(arm, arm.createData(), robot.home)
    np.testing.assert_allclose(controller.compute(robot.home, zero, robot.home, zero, zero), expected, atol=1e-9)


def test_integral_is_limited(robot):
    controller = GravityPid(robot, PidSettings(integral_gain=50.0, integral_share=0.1))
    zero, q_d = np.zeros(robot.n), robot.home + 0.1
    first = controller.compute(robot.home, zero, q_d, zero, zero)
    for _ in range(2000):
        last = controller.compute(robot.home, zero, q_d, zero, zero)
    np.testing.assert_allclose(last - first, 0.1 * robot.limits.tau_continuous)
    controller.reset()
    np.testing.assert_array_equal(controller.compute(robot.home, zero, q_d, zero, zero), first)


def test_holds_an_unknown_payload(robot, tools):
    payload = 0.6 * robot.payload_prior.nominal
    hold = lambda t: (robot.home, np.zeros(robot.n), np.zeros(robot.n))  # noqa: E731
    run = tools.run(robot, GravityPid(robot), (robot.theta_nominal, payload), hold, 0.0, 3.0)
    assert np.abs(run.after(-0.5).position).max() < np.radians(2.0)
    assert np.abs(run.after(-0.5).velocity).max() < 0.02
