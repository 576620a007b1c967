"""Tests of computed torque with a model fitted online: the gate, and what it does to an arm with a wrong model."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from textbook import load_textbook

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.baselines import GateSettings, ModelGate, OnlineModelController, OnlineModelSettings
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.model_fitter import FittedModel, ModelFitter
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.model.mechanics import add_payload
from sysid_ros.core.online_model.least_squares import ModelObserver, Observation, OnlineFit, OnlineFitSettings
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.drivers.mujoco.arm import MujocoArm


@pytest.fixture(scope="module")
def robot():
    return load_textbook("kinova_gen3")


def fit(least, is_full=True, inertia=(0.5, 2.0)):
    one = OnlineFit(np.zeros(1), np.array([1.0, least]), 50, is_full)
    return FittedModel(one, np.zeros(1), inertia, np.ones(2), np.ones(2))


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


@pytest.mark.parametrize("inertia", [(-0.1, 2.0), (0.05, 2.0), (0.5, 11.0), (np.nan, np.nan)])
def test_a_fit_whose_inertia_cannot_be_keeps_the_gate_closed(inertia):
    """Computed torque with an inertia that is not positive pushes away from the reference, however good R^2 is."""
    gate = ModelGate()
    gate.judge(fit(1.0, inertia=inertia))
    assert not gate.is_open
    as_the_paper = ModelGate(GateSettings(inertia_ratio=np.inf))
    as_the_paper.judge(fit(1.0, inertia=inertia))
    assert as_the_paper.is_open


def test_the_gate_closes_where_fits_stay_away_while_the_arm_moves():
    gate = ModelGate(GateSettings(patience=1.0))
    gate.judge(fit(1.0))
    gate.advance(5.0, is_moving=False)
    assert gate.is_open  # at rest nothing is measured, and nothing has to be
    gate.advance(0.9, is_moving=True)
    assert gate.is_open
    gate.judge(fit(1.0))
    gate.advance(0.9, is_moving=True)
    assert gate.is_open
    gate.advance(0.2, is_moving=True)
    assert not gate.is_open


@pytest.mark.parametrize("kind", Observation)
def test_equations_hold_for_the_true_parameters(robot, kind):
    """The momentum is exact to the quadrature; moving averages lag alike, or torques would be off by up to 1 Nm."""
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
    assert (worst < (0.03 if kind is Observation.MOMENTUM else 0.1)).all()
    rows = np.array([y.any(axis=1) for y, _ in equations])
    assert rows.all() or (kind is Observation.ACCELERATION and rows.mean() > 0.9)  # at rest friction may be anything


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
    rng, fitter = np.random.default_rng(0), controller._fitter
    for _ in range(30):  # what was measured has nothing to do with the model any more
        fitter._fit.add(rng.normal(size=(robot.n, robot.theta_nominal.size)), 20.0 * rng.normal(size=robot.n))
    controller.gate.judge(replace(controller.status.model, fit=fitter._fit.solve()))
    assert not controller.gate.is_open


def test_nothing_is_proven_for_it(robot):
    with pytest.raises(ParameterOutOfRange, match="no other law has a proven tracking bound"):
        RobustSettings.of_law(OnlineModelController(robot).law)


def test_a_measurement_that_is_not_finite_is_refused(robot):
    controller = OnlineModelController(robot)
    zero = np.zeros(robot.n)
    with pytest.raises(ParameterOutOfRange, match="finite"):
        controller.compute(np.full(robot.n, np.nan), zero, zero, zero, zero)


# Models from beside the loop


def moving_samples(robot, theta, seconds, start=0, at_rest=False):
    """What a noiseless arm with these parameters measures on a motion, and whether it moves."""
    period = 1e-3
    t = period * (start + np.arange(round(seconds / period)))[:, None]
    rate, reach = np.linspace(2.0, 4.0, robot.n), 0.0 if at_rest else 0.4
    q, v = robot.home + reach * np.sin(rate * t), reach * rate * np.cos(rate * t)
    tau = np.einsum("ijk,k->ij", TorqueRegressor(robot).evaluate(q, v, -reach * rate**2 * np.sin(rate * t)), theta)
    number = start + np.arange(len(t))
    return SampleBlock(1_000_000 * number, number, q, v, tau), np.full(len(t), not at_rest)


def make_fitter(robot, model, **changes):
    return ModelFitter(robot, model, OnlineFitSettings(**{"capacity": 20, "rate": 10.0, **changes}), 1e-3)


@pytest.fixture(scope="module")
def heavy(robot):
    """Parameters of the arm with 2 kg at its hand, and a nominal model that knows nothing of them."""
    payload = from_com_form(2.0, [0.0, 0.02, 0.1], np.diag([0.005, 0.005, 0.003]))
    nominal = ControlModel(robot.theta_nominal, robot.theta_box, np.zeros(10), robot.payload_prior.box)
    return add_payload(robot.theta_nominal, payload), nominal


def test_a_fit_beside_the_loop_tells_of_inertia_and_bounds(robot, heavy):
    theta, nominal = heavy
    fitted = make_fitter(robot, nominal).add(*moving_samples(robot, theta, 2.5))
    assert fitted.fit.is_full and (fitted.fit.determination > 0.999).all()
    assert 0.5 < fitted.inertia[0] <= 1.01 < fitted.inertia[1] < 10.0
    # The bounds contain the true errors of both models on the motion.
    block, _ = moving_samples(robot, theta, 2.0)
    for parameters, bound in ((fitted.fit.theta, fitted.error_bound), (nominal.total, fitted.nominal_error_bound)):
        errors = block.tau - moving_samples(robot, parameters, 2.0)[0].tau
        assert (np.abs(errors.reshape(20, 100, robot.n).mean(axis=1)).max(axis=0) < bound).all()


def test_rest_and_gaps_make_no_sample(robot, heavy):
    theta, nominal = heavy
    fitter = make_fitter(robot, nominal)
    assert fitter.add(*moving_samples(robot, theta, 1.0, at_rest=True)) is None
    fitted = fitter.add(*moving_samples(robot, theta, 0.55, start=1000))
    assert fitted.fit.samples == 5
    assert fitter.add(*moving_samples(robot, theta, 0.08, start=1560)) is None  # a gap: what was begun is dropped
    assert fitter.add(*moving_samples(robot, theta, 0.08, start=1640)).fit.samples == 6
    assert fitter.add(*moving_samples(robot, theta, 0.15, start=9000)).fit.samples == 1  # whatever happened meanwhile


def test_the_torque_follows_models_without_a_jump_and_bad_ones_not_at_all(robot, heavy):
    theta, nominal = heavy
    controller = OnlineModelController(robot, learns=False)
    controller.set_model(nominal.theta, nominal.theta_box, nominal.payload, nominal.payload_box)
    fitted = make_fitter(robot, nominal).add(*moving_samples(robot, theta, 2.5))
    zero = np.zeros(robot.n)

    def torques(seconds, moving=1e-9):
        # A desired speed that only says that the arm moves.
        return np.array([controller.compute(robot.home, zero, robot.home, zero + moving, zero) for _ in range(seconds)])

    def holding(parameters):
        return TorqueRegressor(robot).evaluate(robot.home[None], zero[None], zero[None])[0] @ parameters

    before = torques(10)
    np.testing.assert_allclose(before[-1], holding(nominal.total), atol=1e-6)
    assert controller.offer(fitted) and controller.status.is_open
    rising = torques(600)
    np.testing.assert_allclose(rising[-1], holding(fitted.fit.theta), atol=1e-6)
    spoiled = replace(fitted, fit=replace(fitted.fit, theta=3.0 * theta, determination=np.full(robot.n, 0.5)))
    assert controller.offer(spoiled) and not controller.status.is_open
    falling = torques(600)
    np.testing.assert_allclose(falling[-1], holding(nominal.total), atol=1e-6)
    run = np.concatenate([before, rising, falling])
    assert np.abs(np.diff(run, axis=0)).max() < 1.1e-2 * np.abs(rising[-1] - before[-1]).max()
    assert not controller.offer(replace(fitted, nominal=theta)) and not controller.status.is_open  # of another model
    with pytest.raises(ParameterOutOfRange, match="98 finite numbers"):
        controller.offer(replace(fitted, fit=replace(fitted.fit, theta=np.nan * theta)))
