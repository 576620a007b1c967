"""Tests of the momentum observer in an independent simulation with an external force."""

import mujoco
import numpy as np
import pinocchio as pin
import pytest
from textbook import load_textbook
from true_arm import true_model

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.contact.momentum_observer import MomentumObserver
from sysid_ros.drivers.mujoco.simulation import build_mujoco_model

PERIOD = 1e-3


@pytest.fixture(scope="module", params=["kinova_gen3", "kuka_lbr_med7"])
def robot(request):
    return load_textbook(request.param)


def simulate(robot, force, duration=0.6):
    """Let the arm move under smooth torques and, from half time on, a force at its tool; MuJoCo integrates."""
    theta = robot.theta_nominal.copy()
    theta[10 * robot.n :] = 0.0  # no friction: its sign is another matter
    theta[10 * robot.n + 2 :: 4] = robot.friction(robot.theta_nominal)[:, 2] * (
        robot.sensors.effort_meaning.value == "motor_side"
    )
    model = build_mujoco_model(robot, theta, None, PERIOD)
    data = mujoco.MjData(model)
    data.qpos[:] = robot.home
    pin_model, pin_data = robot.pin_model, robot.pin_model.createData()
    frame = pin_model.getFrameId(robot.tool_frame)
    still = true_model(robot, theta)
    still_data = still.createData()
    cycles = []
    for k in range(round(duration / PERIOD)):
        q, v = data.qpos.copy(), data.qvel.copy()
        hold = pin.computeGeneralizedGravity(still, still_data, q)
        effort = hold + 2.0 * np.sin(0.01 * k) * np.linspace(1.0, 0.1, robot.n) - 0.5 * v
        push = np.zeros(robot.n)
        if k * PERIOD > 0.5 * duration:
            jacobian = pin.computeFrameJacobian(pin_model, pin_data, q, frame, pin.ReferenceFrame.LOCAL_WORLD_ALIGNED)
            push = jacobian.T @ force
        data.qfrc_applied[:] = effort + push
        mujoco.mj_step(model, data)
        cycles.append((data.qpos.copy(), data.qvel.copy(), effort, push))
    return theta, cycles


def test_it_finds_the_torque_of_a_force_at_the_tool(robot):
    force = np.array([10.0, -5.0, 8.0, 0.5, 0.0, -0.3])
    theta, cycles = simulate(robot, force)
    observer = MomentumObserver(robot, theta, PERIOD, gain=100.0)
    found = np.array([observer.update(q, v, effort) for q, v, effort, _ in cycles])
    true = np.array([push for *_, push in cycles])
    expected = np.zeros_like(true)
    for k in range(1, len(true)):  # the push behind a first-order lag of 1 / gain
        expected[k] = expected[k - 1] + 0.1 * (true[k] - expected[k - 1])
    assert np.abs(true).max() > 3.0
    np.testing.assert_allclose(found, expected, atol=0.03)


def test_an_error_of_the_model_looks_like_a_push(robot):
    theta, cycles = simulate(robot, np.zeros(6), duration=0.3)
    wrong = theta.copy()
    wrong[robot.inertial_slice(robot.n)] += np.array([1.0, 0, 0, 0.05, 0.01, 0, 0.01, 0, 0, 0.01])
    observer = MomentumObserver(robot, wrong, PERIOD)
    found = [observer.update(q, v, effort) for q, v, effort, _ in cycles]
    assert np.abs(found[-1]).max() > 0.5


def test_bad_settings_are_refused(robot):
    theta = robot.theta_nominal
    with pytest.raises(ParameterOutOfRange, match="gain"):
        MomentumObserver(robot, theta, PERIOD, gain=2000.0)
    with pytest.raises(ParameterOutOfRange, match="mass of body 1"):
        MomentumObserver(robot, np.zeros_like(theta), PERIOD)
    with pytest.raises(ParameterOutOfRange, match="theta"):
        MomentumObserver(robot, theta[:-1], PERIOD)
