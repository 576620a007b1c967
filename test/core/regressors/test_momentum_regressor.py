"""Momentum regressors: energies differentiated numerically, Pinocchio, and the balance of momentum along motions."""

import numpy as np
import pinocchio as pin
import pytest
from scipy.integrate import solve_ivp
from textbook import load_textbook

from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.model.robot import EffortMeaning
from sysid_ros.core.regressors.momentum import MomentumRegressor
from sysid_ros.core.regressors.torque import TorqueRegressor

NODES, WEIGHTS = np.polynomial.legendre.leggauss(40)


def weightless(model):
    copy = model.copy()
    copy.gravity.linear = np.zeros(3)
    return copy


def test_momentum_is_inertia_times_velocity_with_armature(case):
    momentum = MomentumRegressor(case.model).momentum(case.q, case.v) @ case.theta
    data = case.model.createData()
    for k in range(len(case.q)):
        inertia = pin.crba(case.model, data, case.q[k], pin.Convention.WORLD).copy()
        inertia = np.triu(inertia) + np.triu(inertia, 1).T + np.diag(case.friction[:, 2])
        np.testing.assert_allclose(momentum[k], inertia @ case.v[k], atol=1e-10)
        kinetic = pin.computeKineticEnergy(case.model, data, case.q[k], case.v[k])
        kinetic += 0.5 * case.friction[:, 2] @ case.v[k] ** 2
        np.testing.assert_allclose(0.5 * case.v[k] @ momentum[k], kinetic, rtol=1e-12)


def test_rate_columns_are_the_gradient_of_the_lagrangian(case):
    """Column by column: central differences of Pinocchio's regressors of kinetic minus potential energy."""
    _, rate = MomentumRegressor(case.model).evaluate(case.q, case.v)
    data, step = case.model.createData(), 1e-5

    def lagrangian(q, v):
        kinetic = pin.computeKineticEnergyRegressor(case.model, data, q, v).copy()
        return kinetic - pin.computePotentialEnergyRegressor(case.model, data, q)

    for k in range(len(case.q)):
        for j in range(case.n):
            shift = step * np.eye(case.n)[j]
            expected = lagrangian(case.q[k] + shift, case.v[k]) - lagrangian(case.q[k] - shift, case.v[k])
            np.testing.assert_allclose(rate[k, j, : 10 * case.n], expected / (2 * step), atol=3e-8)


def test_momentum_changes_by_the_integral_along_a_prescribed_motion(case):
    """Torque by RNEA and the friction model, Gauss-Legendre quadrature, velocities that keep their sign."""
    start, end = 0.2, 0.9
    times = 0.5 * (end - start) * NODES + 0.5 * (end + start)
    rng = np.random.default_rng(3)
    speed = rng.uniform(0.6, 1.5, case.n) * rng.choice([-1.0, 1.0], case.n)
    amplitude, frequency = 0.3 * np.abs(speed), rng.uniform(1.0, 3.0, case.n)

    def motion(t):
        phase = np.multiply.outer(t, frequency)
        q = np.multiply.outer(t, speed) - amplitude / frequency * np.cos(phase)
        return q, speed + amplitude * np.sin(phase), amplitude * frequency * np.cos(phase)

    q, v, a = motion(times)
    data = case.model.createData()
    torque = np.stack([pin.rnea(case.model, data, *row) for row in zip(q, v, a, strict=True)])
    torque += case.friction[:, 0] * np.sign(v) + case.friction[:, 1] * v + case.friction[:, 2] * a + case.friction[:, 3]
    weights = 0.5 * (end - start) * WEIGHTS
    regressor = MomentumRegressor(case.model)
    ends = regressor.momentum(*motion(np.array([start, end]))[:2])
    left = ends[1] - ends[0] - regressor.integrate(q, v, weights)
    np.testing.assert_allclose(left @ case.theta, weights @ torque, atol=1e-9)


def test_momentum_balance_along_a_simulated_free_motion():
    """Forward dynamics by Pinocchio's ABA with viscous friction and armature, integrated to 1e-11."""
    robot = load_textbook()
    model, n = robot.pin_model.copy(), robot.n
    friction = robot.friction(robot.theta_nominal)
    model.armature = friction[:, 2]
    theta = robot.theta_nominal.copy()
    theta[10 * n :].reshape(n, 4)[:, [0, 3]] = 0.0
    data = model.createData()

    def torque(t):
        return 5.0 * np.sin(np.multiply.outer(t, 1.0 + np.arange(n)))

    def derivative(t, state):
        return np.concatenate(
            [state[n:], pin.aba(model, data, state[:n], state[n:], torque(t) - friction[:, 1] * state[n:])]
        )

    start = np.concatenate([robot.home, np.zeros(n)])
    run = solve_ivp(derivative, (0.0, 0.6), start, "DOP853", dense_output=True, rtol=1e-11, atol=1e-11)
    times = 0.3 * NODES + 0.3
    states, ends = run.sol(times).T, run.sol([0.0, 0.6]).T
    regressor = MomentumRegressor(robot, EffortMeaning.MOTOR_SIDE)
    momenta = regressor.momentum(ends[:, :n], ends[:, n:]) @ theta
    integral = regressor.integrate(states[:, :n], states[:, n:], 0.3 * WEIGHTS) @ theta
    np.testing.assert_allclose(momenta[1] - momenta[0], integral + 0.3 * WEIGHTS @ torque(times), atol=1e-7)


@pytest.mark.parametrize("samples", [0, 1, 7, 8, 9, 500])
def test_chunks_do_not_show(chain, samples):
    rng = np.random.default_rng(5)
    q, v = rng.normal(size=(2, samples, chain.n))
    weights, direction = rng.normal(size=samples), rng.uniform(-1, 1, q.shape)
    regressor = MomentumRegressor(chain.model)
    momentum, rate = regressor.evaluate(q, v, direction)
    assert momentum.shape == rate.shape == (samples, chain.n, 14 * chain.n)
    if samples:
        alone = regressor.evaluate(q[-1:], v[-1:], direction[-1:])
        np.testing.assert_allclose(momentum[-1], alone[0][0], atol=1e-13)
        np.testing.assert_allclose(rate[-1], alone[1][0], atol=1e-12)
    np.testing.assert_allclose(regressor.momentum(q, v), momentum, atol=1e-12)
    integral = regressor.integrate(q, v, weights, direction)
    np.testing.assert_allclose(integral, np.tensordot(weights, rate, 1), atol=1e-10)


def test_link_side_torque_has_no_friction_columns(chain):
    motor = MomentumRegressor(chain.model, EffortMeaning.MOTOR_SIDE)
    link = MomentumRegressor(chain.model, EffortMeaning.LINK_SIDE)
    weights, split = np.ones(len(chain.q)), 10 * chain.n
    for a, b in zip(motor.evaluate(chain.q, chain.v), link.evaluate(chain.q, chain.v), strict=True):
        np.testing.assert_array_equal(a[:, :, :split], b[:, :, :split])
        assert a[:, :, split:].any() and not b[:, :, split:].any()
    assert not link.integrate(chain.q, chain.v, weights)[:, split:].any()


def test_the_robots_own_effort_meaning_is_the_default():
    robot = load_textbook()
    _, rate = MomentumRegressor(robot).evaluate(np.zeros((1, robot.n)), np.ones((1, robot.n)))
    assert rate[0, :, 10 * robot.n :].any() == (robot.sensors.effort_meaning is EffortMeaning.MOTOR_SIDE)


def test_direction_replaces_the_sign_of_velocity_only(chain):
    regressor = MomentumRegressor(chain.model)
    middle = np.full_like(chain.v, 0.25)
    plain, replaced = regressor.evaluate(chain.q, chain.v)[1], regressor.evaluate(chain.q, chain.v, middle)[1]
    coulomb = 10 * chain.n + 4 * np.arange(chain.n)
    joints = np.arange(chain.n)
    np.testing.assert_array_equal(replaced[:, joints, coulomb], -middle)
    replaced[:, joints, coulomb] = -np.sign(chain.v)
    np.testing.assert_array_equal(replaced, plain)


def test_results_can_be_written_into_the_callers_arrays(chain):
    regressor = MomentumRegressor(chain.model)
    shape = (len(chain.q), chain.n, regressor.columns.count)
    out = (np.full(shape, np.nan), np.full(shape, np.nan))
    momentum, rate = regressor.evaluate(chain.q, chain.v, out=out)
    assert momentum is out[0] and rate is out[1]
    np.testing.assert_array_equal(rate, regressor.evaluate(chain.q, chain.v)[1])
    with pytest.raises(SysidError, match=r"'out': shape \(3, 5, 70\).*expected C-contiguous float64"):
        regressor.evaluate(chain.q, chain.v, out=(out[0][:3], out[1]))


def test_bad_input_is_named(chain):
    regressor = MomentumRegressor(chain.model)
    with pytest.raises(SysidError, match=r"'q': shape \(5,\), expected \(N, 5\)"):
        regressor.evaluate(chain.q[0], chain.v)
    with pytest.raises(SysidError, match="'v': 3 rows, expected 4 as in 'q'"):
        regressor.evaluate(chain.q, chain.v[:3])
    broken = chain.v.copy()
    broken[2, 1] = np.nan
    for call in (regressor.evaluate, regressor.momentum, lambda q, v: regressor.integrate(q, v, np.ones(4))):
        with pytest.raises(SysidError, match="'v': entry nan of sample 2, joint 1 is not finite"):
            call(chain.q, broken)
    with pytest.raises(SysidError, match=r"'weights': shape \(3,\), expected \(4,\)"):
        regressor.integrate(chain.q, chain.v, np.ones(3))
    with pytest.raises(SysidError, match="'weights': entry 1 is not finite"):
        regressor.integrate(chain.q, chain.v, [1.0, np.inf, 1.0, 1.0])
    with pytest.raises(SysidError, match="'direction': 2 rows"):
        regressor.evaluate(chain.q, chain.v, chain.v[:2])


@pytest.mark.parametrize("bodies", [(0,), (6,), (2, 2), ()])
def test_bodies_that_do_not_exist_are_refused(chain, bodies):
    with pytest.raises(ParameterOutOfRange, match="different numbers of bodies, at least one, each 1 to 5"):
        MomentumRegressor(chain.model, bodies=bodies)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("samples", [5, 60])
def test_chains_of_few_joints(count, samples):
    """A pendulum is shorter than any arm: the buffers are long enough all the same."""
    model = pin.Model()
    for joint in range(count):
        place = pin.SE3(pin.utils.rotate("x", 0.3 * joint), np.array([0.2, 0.0, 0.1 * joint]))
        index = model.addJoint(joint, pin.JointModelRX() if joint % 2 else pin.JointModelRZ(), place, f"joint_{joint}")
        model.appendBodyToJoint(index, pin.Inertia.Random(), pin.SE3.Identity())
    rng, data = np.random.default_rng(count), model.createData()
    q, v, a = rng.normal(size=(3, samples, count))
    weights, direction = rng.normal(size=samples), np.zeros((samples, count))
    regressor = MomentumRegressor(model)
    momentum, rate = regressor.evaluate(q, v, direction)
    integral = regressor.integrate(q, v, weights, direction)
    np.testing.assert_allclose(integral, np.tensordot(weights, rate, 1), atol=1e-10)
    torque = TorqueRegressor(model).evaluate(q, v, a, direction)
    inertial = slice(0, 10 * count)
    for k in range(samples):
        expected = np.array(pin.computeJointTorqueRegressor(model, data, q[k], v[k], a[k]))
        np.testing.assert_allclose(torque[k, :, inertial], np.reshape(expected, (count, -1)), atol=1e-10)
        own = np.array(pin.computeJointTorqueRegressor(model, data, q[k], np.zeros(count), v[k]))
        own = own - pin.computeJointTorqueRegressor(model, data, q[k], np.zeros(count), np.zeros(count))
        np.testing.assert_allclose(momentum[k, :, inertial], np.reshape(own, (count, -1)), atol=1e-10)
    gains = rng.normal(size=torque.shape)
    gains[..., inertial.stop :] = 0.0
    for state, part in enumerate(TorqueRegressor(model).pull_back(q, v, a, gains)):
        for joint in range(count):
            moved = [[q.copy(), v.copy(), a.copy()] for _ in range(2)]
            for sign, one in zip((1.0, -1.0), moved, strict=True):
                one[state][:, joint] += sign * 1e-6
            change = [(gains * TorqueRegressor(model).evaluate(*one, direction)).sum(axis=(1, 2)) for one in moved]
            np.testing.assert_allclose(part[:, joint], (change[0] - change[1]) / 2e-6, atol=1e-5)
