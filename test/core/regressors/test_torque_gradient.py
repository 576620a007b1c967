"""The reverse derivative of the torque regressor with a smooth sign, against finite differences."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest
from textbook import load_textbook

from sysid_ros.core.model.robot import EffortMeaning
from sysid_ros.core.regressors.torque import TorqueRegressor

SAMPLES = 9


def draw(robot, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=(SAMPLES, robot.n)) for _ in range(3))


@pytest.mark.parametrize("meaning", list(EffortMeaning))
@pytest.mark.parametrize("name", ["kinova_gen3_2f85", "kuka_lbr_med7"])
def test_reverse_derivative(name, meaning):
    robot = load_textbook(name)
    regressor, states = TorqueRegressor(robot, meaning, sign_width=0.02), draw(robot, 1)
    states = (states[0], 0.01 * states[1], states[2])  # slow, where the sign of the velocity has a slope
    weight = np.random.default_rng(2).normal(size=regressor.evaluate(*states).shape)
    gradients = regressor.pull_back(*states, weight)
    step = 1e-6
    for which in range(3):
        for joint in range(robot.n):
            values = []
            for sign in (1.0, -1.0):
                moved = [part.copy() for part in states]
                moved[which][:, joint] += sign * step
                values.append((weight * regressor.evaluate(*moved)).sum(axis=(1, 2)))
            slope = (values[0] - values[1]) / (2.0 * step)
            np.testing.assert_allclose(gradients[which][:, joint], slope, rtol=1e-5, atol=1e-5)


def test_prismatic_joints_count_too():
    model = pin.Model()
    placement = pin.SE3(np.eye(3), np.array([0.1, 0.2, 0.3]))
    for joint, name in enumerate(("slide", "turn")):
        kind = pin.JointModelPY() if joint == 0 else pin.JointModelRX()
        body = model.addJoint(joint, kind, placement, name)
        model.appendBodyToJoint(body, pin.Inertia.Random(), pin.SE3.Identity())
    regressor = TorqueRegressor(model, sign_width=0.02)
    rng = np.random.default_rng(3)
    states = [rng.normal(size=(4, 2)) for _ in range(3)]
    expected = TorqueRegressor(model).evaluate(*states, direction=np.tanh(states[1] / 0.02))
    np.testing.assert_allclose(regressor.evaluate(*states), expected, atol=1e-12)
    weight = rng.normal(size=expected.shape)
    dq = regressor.pull_back(*states, weight)[0]
    moved = [(weight * regressor.evaluate(states[0] + sign * 1e-6, *states[1:])).sum() for sign in (1, -1)]
    assert dq.sum() == pytest.approx((moved[0] - moved[1]) / 2e-6, rel=1e-5)


@pytest.mark.parametrize("few", [False, True])
def test_trees_of_any_joints(case, few):
    """Branches, prismatic and helical joints, axes in any direction: values and reverse derivative."""
    regressor, rng = TorqueRegressor(case.model, sign_width=0.02), np.random.default_rng(4)
    states = [np.tile(part, (1 if few else 100, 1)) for part in (case.q, case.v, case.a)]
    expected = TorqueRegressor(case.model).evaluate(case.q, case.v, case.a, direction=np.tanh(case.v / 0.02))
    found = regressor.evaluate(*states)
    np.testing.assert_allclose(found, np.tile(expected, (1 if few else 100, 1, 1)), atol=1e-9)
    weight = rng.normal(size=found.shape)
    slopes, step = regressor.pull_back(*states, weight), 1e-6
    for which, slope in enumerate(slopes):
        away, values = rng.normal(size=states[0].shape), []
        for sign in (1.0, -1.0):
            moved = [part + (sign * step * away if k == which else 0.0) for k, part in enumerate(states)]
            values.append((weight * regressor.evaluate(*moved)).sum())
        assert (slope * away).sum() == pytest.approx((values[0] - values[1]) / (2.0 * step), rel=1e-5)
