"""The static test before the first motion: exact interval, sign, and what it says."""

from dataclasses import replace

import numpy as np
import pytest
from textbook import load_textbook

from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.sampling import sample_parameters
from sysid_ros.drivers.takeover import TakeoverRefused, check_gravity, check_rest, static_effort_interval

ROBOTS = {name: load_textbook(name) for name in ("kuka_lbr_med7", "kinova_gen3_2f85")}


@pytest.fixture(params=ROBOTS)
def robot(request):
    return ROBOTS[request.param]


def postures(robot, count, seed):
    limits = robot.limits
    lower, upper = np.maximum(limits.q_lower, -3.0), np.minimum(limits.q_upper, 3.0)
    return np.random.default_rng(seed).uniform(lower, upper, (count, robot.n))


def test_every_arm_with_every_payload_is_inside(robot):
    rng = np.random.default_rng(1)
    box = robot.payload_prior.box
    for k, q in enumerate(postures(robot, 40, 2)):
        lower, upper = static_effort_interval(robot, q)
        theta = sample_parameters(robot, rng, corner=k % 2 == 0)
        payload = np.where(rng.random(10) < 0.5, box.lower, box.upper)
        tau = ArmDynamics(robot, theta, payload).gravity(q) + robot.friction(theta)[:, 3]
        assert (lower - 1e-9 <= tau).all() and (tau <= upper + 1e-9).all()


def test_the_interval_is_no_wider_than_it_must_be():
    """Each end is reached by some parameters of the boxes; checked joint by joint with the worst ones."""
    robot = ROBOTS["kuka_lbr_med7"]
    q = postures(robot, 1, 4)[0]
    lower, upper = static_effort_interval(robot, q)
    box, arm = robot.payload_prior.box, robot.theta_box
    for joint in range(robot.n):
        best = 0.0
        for values, width in ((arm.center.copy(), arm.radius), (box.center.copy(), box.radius)):
            is_arm = values.size > 10
            for i in np.flatnonzero(width):
                changed = values.copy()
                changed[i] += width[i]
                pair = (changed, box.center) if is_arm else (arm.center, changed)
                center = (arm.center, box.center)
                tau = [
                    (ArmDynamics(robot, theta, payload).gravity(q) + robot.friction(theta)[:, 3])[joint]
                    for theta, payload in (pair, center)
                ]
                best += abs(tau[0] - tau[1])
        assert 0.5 * (upper - lower)[joint] == pytest.approx(best, rel=1e-6, abs=1e-9)


def test_the_arm_as_modelled_passes_and_tells_its_sign(robot):
    q = robot.home
    tau = ArmDynamics(robot, robot.theta_nominal, robot.payload_prior.nominal).gravity(q)
    assert not check_gravity(robot, q, tau)
    with pytest.raises(TakeoverRefused, match="with the opposite sign all joints would agree: check sensors.effort"):
        check_gravity(robot, q, -tau)


def test_a_single_wrong_joint_is_named(robot):
    tau = ArmDynamics(robot, robot.theta_nominal, robot.payload_prior.nominal).gravity(robot.home)
    lower, upper = static_effort_interval(robot, robot.home)
    tau[2] = upper[2] + 3.0
    with pytest.raises(TakeoverRefused, match=f"{robot.joint_names[2]} measures .* its model allows.*payload, mount"):
        check_gravity(robot, robot.home, tau)


def test_a_posture_that_tells_no_sign_is_refused():
    """Upright, every joint carries next to nothing."""
    robot = ROBOTS["kuka_lbr_med7"]
    with pytest.raises(TakeoverRefused, match="to show the sign of the torques.*stretch the arm out"):
        check_rest(robot, np.zeros(7), np.zeros(7))


def test_the_error_of_the_sensor_is_allowed_and_no_more():
    robot = ROBOTS["kuka_lbr_med7"]
    lower, upper = static_effort_interval(robot, robot.home)
    tau = ArmDynamics(robot, robot.theta_nominal, robot.payload_prior.nominal).gravity(robot.home)
    relative, absolute = robot.sensors.effort_relative_error[1], robot.sensors.lasting_error[1]
    for factor, is_refused in ((1.0, False), (1.2, True)):
        tau[1] = lower[1] - factor * (relative * abs(lower[1]) + absolute)
        if is_refused:
            with pytest.raises(TakeoverRefused, match="lbr_A2"):
                check_gravity(robot, robot.home, tau)
        else:
            check_gravity(robot, robot.home, tau)


def test_on_the_motor_side_friction_may_hold_the_arm():
    robot = ROBOTS["kinova_gen3_2f85"]
    width = np.subtract(*static_effort_interval(robot, robot.home)[::-1])
    sensors = replace(robot.sensors, effort_meaning=ROBOTS["kuka_lbr_med7"].sensors.effort_meaning)
    link_side = np.subtract(*static_effort_interval(replace(robot, sensors=sensors), robot.home)[::-1])
    friction = robot.friction(robot.theta_box.center)[:, 0] + robot.friction(robot.theta_box.radius)[:, 0]
    np.testing.assert_allclose(width - link_side, 2.0 * friction)
