"""The simulation obeys the momentum balance of the estimator, far more closely than the estimator's error budget."""

import numpy as np
import pinocchio as pin
import pytest
from scipy.integrate import cumulative_simpson
from true_arm import true_model

from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.arm import MujocoArm, MujocoSettings

STEP = 5e-4
WINDOW = 0.1


def simulate(robot, theta, payload, seconds, substeps):
    """Drives every joint through reversals; one record per integration step of the 1 kHz arm with two substeps."""
    settings = MujocoSettings(period=STEP, substeps=substeps, noise=Noise.NONE)
    arm = MujocoArm(robot, theta, payload, settings=settings)
    model = true_model(robot, theta, payload)
    data = model.createData()
    coulomb, viscous, armature, offset = robot.friction(theta).T
    omega = 2.0 * np.pi * np.array([0.5, 0.4, 0.6, 0.5, 0.7, 0.6, 0.8])
    arm.connect()
    q_all, v_all, tau_all = [], [], []
    for cycle in range(round(seconds / STEP)):
        state = arm.read()
        t = cycle * STEP
        q_d, v_d = robot.home + 0.3 * (1 - np.cos(omega * t)), 0.3 * omega * np.sin(omega * t)
        a = 0.3 * omega**2 * np.cos(omega * t) + 100.0 * (q_d - state.q) + 20.0 * (v_d - state.v)
        friction = coulomb * np.tanh(state.v / 0.05) + viscous * state.v + offset
        arm.command(pin.rnea(model, data, state.q, state.v, a) + armature * a + friction)
        q_all.append(state.q)
        v_all.append(state.v)
        tau_all.append(state.tau)
    return model, np.array(q_all), np.array(v_all), np.array(tau_all)


def residuals(robot, theta, payload, substeps=1, seconds=3.0):
    """Momentum residuals (windows, n) [Nms] without Coulomb friction, and bounds of the friction's impulse."""
    model, q, v, tau = simulate(robot, theta, payload, seconds, substeps)
    data = model.createData()
    coulomb, viscous, armature, offset = robot.friction(theta).T
    momentum, force = np.empty_like(q), np.empty_like(q)
    for k in range(len(q)):
        inertia = pin.crba(model, data, q[k])
        inertia = np.triu(inertia) + np.triu(inertia, 1).T
        coriolis = pin.computeCoriolisMatrix(model, data, q[k], v[k])
        momentum[k] = inertia @ v[k] + armature * v[k]
        force[k] = coriolis.T @ v[k] - pin.computeGeneralizedGravity(model, data, q[k]) - viscous * v[k] - offset
    impulse = cumulative_simpson(force, dx=STEP, axis=0, initial=0.0)
    impulse += np.vstack([np.zeros(robot.n), np.cumsum(tau[1:] * STEP, axis=0)])
    h = round(WINDOW / STEP)
    starts = np.arange(0, len(q) - h, h)
    missing = momentum[starts + h] - momentum[starts] - (impulse[starts + h] - impulse[starts])
    # Impulse of the friction: known where the joint slides throughout a step, else anything up to F_c.
    slides = np.sign(v[1:]) * ((np.sign(v[1:]) == np.sign(v[:-1])) & (np.minimum(abs(v[1:]), abs(v[:-1])) > 2e-3))
    known = np.array([-coulomb * slides[s : s + h].sum(axis=0) * STEP for s in starts])
    unknown = np.array([coulomb * (slides[s : s + h] == 0).sum(axis=0) * STEP for s in starts])
    return missing - known, unknown


@pytest.mark.parametrize("seed", [0, 1])
def test_momentum_balance(robot, seed):
    rng = np.random.default_rng(seed)
    theta = sample_parameters(robot, rng, corner=bool(seed))
    payload = sample_payload(robot.payload_prior, rng)
    residual, friction_impulse = residuals(robot, theta, payload)
    is_sliding = friction_impulse == 0.0
    assert is_sliding.any(axis=0).all() and not is_sliding.all(axis=0).any()
    print("largest residual while sliding [Nms]:", np.where(is_sliding, np.abs(residual), 0.0).max(axis=0))
    print("largest residual with a reversal [Nms]:", np.where(is_sliding, 0.0, np.abs(residual)).max(axis=0))
    assert np.abs(residual)[is_sliding].max() < 2e-7
    assert np.all(np.abs(residual) <= friction_impulse + 2e-7)


def test_a_wrong_parameter_would_be_noticed(robot):
    theta = robot.theta_nominal
    payload = robot.payload_prior.nominal
    residual, friction_impulse = residuals(robot, theta, payload, seconds=1.0)
    is_sliding = friction_impulse == 0.0
    assert np.abs(residual)[is_sliding].max() < 2e-7
    arm = MujocoArm(robot, theta, payload)
    arm.connect()
    arm.read()
    heavier = payload * 1.0001
    arm.set_payload(heavier)
    before = arm.physics.static_torque()
    arm.set_payload(payload)
    assert np.abs(before - arm.physics.static_torque()).max() * WINDOW > 2e-5
