"""The passive dynamics against the mass matrix alone: Christoffel symbols by finite differences."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest
from true_arm import true_model

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.model.mechanics import ArmDynamics, add_payload
from sysid_ros.core.model.robot import EffortMeaning
from sysid_ros.papers.baselines.slotine_li import SlotineLiRegressor

STEP = 1e-5


@pytest.fixture(scope="module")
def case(robot):
    model = ControlModel.of_boxes(robot)
    return model, ArmDynamics(robot, model.total, armature=True)


def test_agrees_with_the_regressor_and_with_pinocchio(robot, case):
    model, dynamics = case
    rng = np.random.default_rng(3)
    q, v, v_a, a = rng.normal(size=(4, robot.n))
    theta = model.total
    friction = theta[10 * robot.n :].reshape(robot.n, 4)
    friction[:, [0, 1, 3]] = 0.0
    regressor = SlotineLiRegressor(robot, EffortMeaning.MOTOR_SIDE).evaluate_one(q, v, v_a, a)
    np.testing.assert_allclose(dynamics.passive_torque(q, v, v_a, a), regressor @ theta, atol=1e-12)
    arm = true_model(robot, theta)
    expected = pin.rnea(arm, arm.createData(), q, v, a) + friction[:, 2] * a
    np.testing.assert_allclose(dynamics.passive_torque(q, v, v, a), expected, atol=1e-12)


def test_inertia_of_several_positions(robot, case):
    _, dynamics = case
    q = np.random.default_rng(4).normal(size=(3, robot.n))
    together = dynamics.inertia(q)
    for one, single in zip(q, together, strict=True):
        np.testing.assert_array_equal(dynamics.inertia(one), single)


def test_refuses_a_body_without_mass(robot):
    model = ControlModel.of_boxes(robot)
    weightless = add_payload(model.total, np.r_[-10.0, np.zeros(9)])
    with pytest.raises(ParameterOutOfRange, match=r"mass of body 7 \[kg\] .* expected more than 0"):
        ArmDynamics(robot, weightless, armature=True)


def test_model_refuses_what_does_not_fit(robot):
    payload, box = np.zeros(10), Box(np.zeros(10), np.ones(10))
    with pytest.raises(ParameterOutOfRange, match=r"theta\[0\] .*: expected "):
        ControlModel(2.0 * robot.theta_nominal, robot.theta_box, payload, box)
    with pytest.raises(ParameterOutOfRange, match=r"payload\[1\] nan"):
        ControlModel(robot.theta_nominal, robot.theta_box, np.where(np.arange(10) == 1, np.nan, payload), box)
    with pytest.raises(ParameterOutOfRange, match="length of payload 9: expected 10"):
        ControlModel(robot.theta_nominal, robot.theta_box, payload[:9], box)


def test_deviation_covers_every_sum_of_arm_and_payload(robot):
    model = ControlModel.of_boxes(robot)
    lower, upper = model.deviation
    rng = np.random.default_rng(5)
    for _ in range(20):
        theta = np.where(rng.integers(0, 2, 14 * robot.n), model.theta_box.lower, model.theta_box.upper)
        payload = np.where(rng.integers(0, 2, 10), model.payload_box.lower, model.payload_box.upper)
        difference = add_payload(theta, payload) - model.total
        assert np.all((lower <= difference) & (difference <= upper))


def test_momentum_and_what_changes_it_are_those_of_the_mass_matrix(robot, case):
    """``d(H v)/dt = torque + C^T v - g``, friction left out; without armature those of the links alone."""
    model, dynamics = case
    rng = np.random.default_rng(5)
    q, v, a = robot.home + 0.3 * rng.normal(size=robot.n), rng.normal(size=robot.n), rng.normal(size=robot.n)
    momentum, rate = dynamics.momentum(q, v)
    np.testing.assert_allclose(momentum, dynamics.inertia(q) @ v, atol=1e-12)
    (after, _), (before, _) = (dynamics.momentum(q + s * v * STEP, v + s * a * STEP) for s in (1.0, -1.0))
    np.testing.assert_allclose((after - before) / (2 * STEP), dynamics.torque(q, v, a) + rate, atol=1e-6)
    links = ArmDynamics(robot, model.theta, model.payload)
    np.testing.assert_allclose(dynamics.inertia(q) - links.inertia(q), np.diag(model.friction[:, 2]), atol=1e-12)
