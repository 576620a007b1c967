"""Tests of computed torque with a model fitted online: the gate, and what it does to an arm with a wrong model."""

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.baselines import GateSettings, ModelGate, OnlineModelController, OnlineModelSettings
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.online_model.least_squares import ModelObserver, Observation, OnlineFit, OnlineFitSettings
from sysid_ros.drivers.mujoco.arm import MujocoArm


@pytest.fixture(scope="module")
def robot():
    return load_robot("kinova_gen3")


def fit(least, is_full=True):
    return OnlineFit(np.zeros(1), np.array([1.0, least]), 50, is_full)


def test_the_gate_has_hysteresis_and_a_ramp():
    gate = ModelGate(GateSettings(determination=0.95, hysteresis=0.02, blend_time=0.1))
    gate.judge(fit(0.99, is_full=False))
    assert not gate.is_open
    gate.judge(fit(np.nan))
    assert not gate.is_open
    gate.judge(fit(0.94))
    assert not gate.is_open
    gate.judge(fit(0.951))
    assert gate.is_open and gate.share == 0.0
    shares = []
    for _ in range(120):
        gate.advance(1e-3)
        shares.append(gate.share)
    assert shares[-1] == 1.0 and np.max(np.diff(shares)) < 0.011
    gate.judge(fit(0.935))
    assert gate.is_open
    gate.judge(fit(0.929))
    assert not gate.is_open
    gate.advance(0.05)
    assert gate.share == pytest.approx(0.5)


@pytest.mark.parametrize("kind", Observation)
def test_equations_hold_for_the_true_parameters(robot, kind):
    """The momentum is exact to the quadrature; the moving average lags."""
    period, steps = 1e-3, 2001
    t = period * np.arange(steps)[:, None]
    phase, rate = np.linspace(0.0, 2.0, robot.n), np.linspace(2.0, 4.0, robot.n)
    q = robot.home + 0.3 * np.sin(rate * t + phase)
    v, a = 0.3 * rate * np.cos(rate * t + phase), -0.3 * rate**2 * np.sin(rate * t + phase)
    theta = robot.theta_nominal.copy()
    friction = robot.friction(theta)
    model = robot.pin_model.copy()
    model.armature = friction[:, 2].copy()
    data = model.createData()
    tau = np.array([pin.rnea(model, data, *state) for state in zip(q, v, a, strict=True)])
    tau += friction[:, 0] * np.sign(v) + friction[:, 1] * v + friction[:, 3]
    mean = np.vstack([tau[:1], 0.5 * (tau[1:] + tau[:-1])])
    observer = ModelObserver(robot, kind, period, every=100, time_constant=0.01)
    equations = [observer.note(*cycle) for cycle in zip(q, v, mean, strict=True)]
    equations = [one for one in equations if one is not None]
    assert len(equations) == 20
    worst = np.max([np.abs(y @ theta - u) for y, u in equations], axis=0)
    assert (worst < (0.03 if kind is Observation.MOMENTUM else 1.0)).all()


def run_arm(robot, controller, payload, duration):
    """Let a simulated arm swing between two postures; return its errors, (N, n) [rad]."""
    arm = MujocoArm(robot, payload=payload)
    arm.connect()
    controller.reset()
    errors = []
    reach = np.array([0.5, 0.4, 0.5, 0.4, 0.5, 0.4, 0.5])
    rate = np.linspace(1.5, 3.0, robot.n)
    for k in range(round(duration / arm.period)):
        state = arm.read()
        t = k * arm.period
        ramp = np.minimum(1.0, t / 2.0)
        q_d = robot.home + ramp * reach * np.sin(rate * t)
        v_d = ramp * reach * rate * np.cos(rate * t)
        a_d = -ramp * reach * rate**2 * np.sin(rate * t)
        arm.command(controller.compute(state.q, state.v, q_d, v_d, a_d))
        errors.append(q_d - state.q)
    return np.array(errors)


@pytest.mark.slow
@pytest.mark.parametrize("observation", Observation)
def test_a_wrong_model_is_replaced_and_the_bias_falls(robot, observation):
    payload = from_com_form(2.0, [0.0, 0.02, 0.1], np.diag([0.005, 0.005, 0.003]))
    settings = OnlineModelSettings(
        observation=observation,
        fit=OnlineFitSettings(capacity=40, rate=10.0, weight=0.95),
        gate=GateSettings(determination=0.9),
    )
    controller = OnlineModelController(robot, settings)
    controller.set_model(robot.theta_nominal, robot.theta_box, np.zeros(10), robot.payload_prior.box)
    early = run_arm(robot, controller, payload, 3.5)
    assert not controller.status.is_open and controller.gate.share == 0.0
    errors = run_arm(robot, controller, payload, 9.0)
    status = controller.status
    assert status.is_open and status.share == 1.0 and not status.joints
    bias_before = np.abs(early[2000:].mean(axis=0)).max()
    bias_after = np.abs(errors[-2500:].mean(axis=0)).max()
    assert bias_after < 0.4 * bias_before


def test_a_payload_that_is_lost_closes_the_gate_again(robot):
    payload = from_com_form(2.0, [0.0, 0.02, 0.1], np.diag([0.005, 0.005, 0.003]))
    settings = OnlineModelSettings(
        observation=Observation.MOMENTUM, fit=OnlineFitSettings(capacity=40, rate=10.0, weight=0.95)
    )
    controller = OnlineModelController(robot, settings)
    run_arm(robot, controller, payload, 6.5)
    assert controller.status.is_open
    controller._observer.reset()
    rng = np.random.default_rng(0)
    for _ in range(30):  # what was measured has nothing to do with the model any more
        controller._fit.add(rng.normal(size=(robot.n, robot.theta_nominal.size)), 20.0 * rng.normal(size=robot.n))
    controller.gate.judge(controller._fit.solve())
    assert not controller.gate.is_open


def test_nothing_is_proven_for_it(robot):
    with pytest.raises(ParameterOutOfRange, match="no other law has a proven tracking bound"):
        RobustSettings.of_law(OnlineModelController(robot).law)


def test_a_measurement_that_is_not_finite_is_refused(robot):
    controller = OnlineModelController(robot)
    zero = np.zeros(robot.n)
    with pytest.raises(ParameterOutOfRange, match="finite"):
        controller.compute(np.full(robot.n, np.nan), zero, zero, zero, zero)
