"""Tests of hands-on guiding: the reference follows the hand, and nothing else moves it beyond a limit."""

import numpy as np
import pinocchio as pin
import pytest
from scipy.optimize import minimize
from textbook import load_textbook

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.guiding import (
    GuidingLaw,
    GuidingSettings,
    Wall,
    braking_speed,
    closest_point,
    without_dead_zone,
)

PUSH = {"x": [15.0, 0, 0, 0, 0, 0], "down": [0, 0, -30.0, 0, 0, 0], "twist": [0, 0, 0, 0, 0, 2.0]}


@pytest.fixture(scope="module")
def robot():
    return load_textbook("kinova_gen3")


def tool(robot, q):
    data = robot.pin_model.createData()
    pin.framesForwardKinematics(robot.pin_model, data, q)
    return data.oMf[robot.pin_model.getFrameId(robot.tool_frame)].copy()


def test_the_dead_zone_moves_nothing(robot):
    law = GuidingLaw(robot)
    for _ in range(500):
        reference = law.step([1.9, -1.9, 1.9, 0.09, -0.09, 0.09])
    np.testing.assert_array_equal(reference.q, robot.home)


def test_the_tool_takes_the_speed_of_force_times_admittance(robot):
    settings = GuidingSettings()
    law = GuidingLaw(robot, settings)
    for _ in range(800):
        reference = law.step([0.0, 7.0, 0.0, 0.0, 0.0, 0.0])
    before = tool(robot, reference.q)
    after = tool(robot, law.step([0.0, 7.0, 0.0, 0.0, 0.0, 0.0]).q)
    speed = (after.translation - before.translation) / settings.period
    np.testing.assert_allclose(speed, [0.0, 5.0 * settings.force_admittance, 0.0], atol=1e-3)
    turn = pin.log3(after.rotation @ before.rotation.T) / settings.period
    np.testing.assert_allclose(turn, 0.0, atol=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize("push", PUSH)
def test_no_limit_is_left_however_long_a_hand_pushes(robot, push):
    settings, limits = GuidingSettings(), robot.limits
    law = GuidingLaw(robot, settings)
    last, room = robot.home, np.inf
    for _ in range(4000):
        reference = law.step(PUSH[push])
        np.testing.assert_allclose(reference.q - last, settings.period * reference.v, atol=1e-12)
        assert (np.abs(reference.v) <= settings.joint_speed_share * limits.v_max + 1e-9).all()
        assert (reference.q <= limits.q_upper).all() and (reference.q >= limits.q_lower).all()
        before, after = tool(robot, last).translation, tool(robot, reference.q).translation
        assert np.linalg.norm(after - before) <= 1.001 * settings.speed * settings.period
        last = reference.q
        speed = (settings.joint_speed_share * limits.v_max - np.abs(reference.v)).min()
        room = min(room, speed, (limits.q_upper - last).min(), (last - limits.q_lower).min())
    if push != "twist":
        assert room < 0.1  # the arm's reach is finite


def test_a_wall_holds_the_tip_of_the_tool_and_lets_it_slide(robot):
    tip = np.array([0.0, 0.0, 0.1])
    at = tool(robot, robot.home)
    start = at.act(tip)
    wall = Wall("window", np.array([0.0, 1.0, 0.0]), float(start[1]) + 0.05, tip)
    law = GuidingLaw(robot, walls=[wall])
    closest = np.inf
    for _ in range(3000):
        reference = law.step([0.0, 15.0, 6.0, 0.0, 0.0, 0.0])
        place = tool(robot, reference.q).act(tip)
        closest = min(closest, wall.offset - place[1])
    assert -1e-5 < closest < 1e-3
    assert place[2] > start[2] + 0.05


def test_a_wall_behind_which_the_tool_is_already_is_refused(robot):
    place = tool(robot, robot.home).translation
    with pytest.raises(ParameterOutOfRange, match="glass"):
        GuidingLaw(robot, walls=[Wall("glass", [1.0, 0.0, 0.0], float(place[0]) - 0.01, np.zeros(3))])


def test_speed_before_a_limit_can_be_braked_with_the_deceleration():
    period, deceleration, distance, speed = 1e-3, 2.0, 0.3, None
    while distance > 1e-9:
        allowed = float(braking_speed(distance, deceleration, period))
        assert speed is None or speed - allowed <= deceleration * period * (1 + 1e-9)
        assert allowed * period <= distance
        speed, distance = allowed, distance - allowed * period
        if allowed < 1e-6:
            break
    assert distance < 1e-5


def test_closest_point_is_that_of_a_general_solver():
    rng = np.random.default_rng(4)
    for _ in range(40):
        n, m = 7, 17
        root = rng.normal(size=(n, n))
        hessian = root @ root.T + 0.01 * np.eye(n)
        target, rows, bounds = 3.0 * rng.normal(size=n), rng.normal(size=(m, n)), rng.uniform(0.0, 0.3, m)
        bounds[rng.integers(m)] = 0.0
        x = closest_point(hessian, target, rows, bounds)
        assert (rows @ x <= bounds + 1e-10).all()
        other = minimize(
            lambda y: 0.5 * y @ hessian @ y - target @ y,  # noqa: B023
            np.zeros(n),
            jac=lambda y: hessian @ y - target,  # noqa: B023
            constraints={"type": "ineq", "fun": lambda y: bounds - rows @ y, "jac": lambda y: -rows},  # noqa: B023
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        value = 0.5 * x @ hessian @ x - target @ x
        assert value <= other.fun + 1e-6 * (1.0 + abs(other.fun))


def test_the_dead_zone_of_a_wrench():
    np.testing.assert_allclose(without_dead_zone([3.0, -3.0, 1.0], [2.0, 2.0, 2.0]), [1.0, -1.0, 0.0])


@pytest.mark.parametrize("wrench", [np.full(6, np.nan), np.zeros(5)])
def test_bad_wrenches_are_refused(robot, wrench):
    law = GuidingLaw(robot)
    with pytest.raises(ParameterOutOfRange, match="external wrench"):
        law.step(wrench)


def test_a_start_beyond_a_limit_is_refused(robot):
    with pytest.raises(ParameterOutOfRange, match="start of guiding"):
        GuidingLaw(robot).start(np.full(robot.n, 10.0))
