"""Derivatives of the momentum equation, against finite differences and the regressors themselves."""

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.robot import EffortMeaning
from sysid_ros.core.regressors import InvalidSamples, MomentumDerivatives, MomentumRegressor

STEP = 1e-6


def test_values_are_those_of_the_regressors(case):
    terms = MomentumDerivatives(case.model).evaluate(case.theta, case.q, case.v)
    momentum, rate = MomentumRegressor(case.model).evaluate(case.q, case.v)
    np.testing.assert_allclose(terms.momentum, momentum @ case.theta, atol=1e-10)
    np.testing.assert_allclose(terms.rate, rate @ case.inertial, atol=1e-10)


def test_inertia_is_pinocchios_with_armature(case):
    terms = MomentumDerivatives(case.model).evaluate(case.theta, case.q, case.v)
    data = case.model.createData()
    for found, q in zip(terms.inertia, case.q, strict=True):
        upper = np.triu(pin.crba(case.model, data, q))
        np.testing.assert_allclose(found, upper + np.triu(upper, 1).T + np.diag(case.friction[:, 2]), atol=1e-11)


def test_derivatives_agree_with_finite_differences(case):
    derivatives = MomentumDerivatives(case.model)
    terms = derivatives.evaluate(case.theta, case.q, case.v)
    for k in range(case.n):
        shift = STEP * np.eye(case.n)[k]
        ahead, behind = (derivatives.evaluate(case.theta, case.q + s, case.v) for s in (shift, -shift))
        np.testing.assert_allclose(terms.dp_dq[:, :, k], (ahead.momentum - behind.momentum) / (2 * STEP), atol=1e-7)
        np.testing.assert_allclose(terms.dc_dq[:, :, k], (ahead.rate - behind.rate) / (2 * STEP), atol=1e-7)
        ahead, behind = (derivatives.evaluate(case.theta, case.q, case.v + s) for s in (shift, -shift))
        np.testing.assert_allclose(terms.inertia[:, :, k], (ahead.momentum - behind.momentum) / (2 * STEP), atol=1e-7)
        np.testing.assert_allclose(terms.dc_dv[:, :, k], (ahead.rate - behind.rate) / (2 * STEP), atol=1e-7)


def test_gravity_part_is_pinocchios(case):
    terms = MomentumDerivatives(case.model).evaluate(case.theta, case.q, 0 * case.v)
    data = case.model.createData()
    for k, q in enumerate(case.q):
        expected = pin.computeGeneralizedGravityDerivatives(case.model, data, q)
        np.testing.assert_allclose(terms.dc_dq[k], -expected, atol=1e-10)


def test_any_parameters_are_allowed(chain):
    """Derivatives are linear in theta: a sum of bodies, however unphysical the summands."""
    derivatives = MomentumDerivatives(chain.model)
    rng = np.random.default_rng(6)
    one, other = rng.normal(size=(2, 14 * chain.n))
    first, second, both = (derivatives.evaluate(theta, chain.q, chain.v) for theta in (one, other, one + other))
    np.testing.assert_allclose(first.dc_dq + second.dc_dq, both.dc_dq, atol=1e-9)
    np.testing.assert_allclose(first.dp_dq + second.dp_dq, both.dp_dq, atol=1e-9)


def test_on_the_link_side_armature_does_not_count(chain):
    motor, link = (MomentumDerivatives(chain.model, m).evaluate(chain.theta, chain.q, chain.v) for m in EffortMeaning)
    difference = np.broadcast_to(np.diag(chain.friction[:, 2]), motor.inertia.shape)
    np.testing.assert_allclose(motor.inertia - link.inertia, difference, atol=1e-12)
    np.testing.assert_allclose(motor.momentum - link.momentum, chain.friction[:, 2] * chain.v, atol=1e-12)


def test_results_are_frozen(chain):
    terms = MomentumDerivatives(chain.model).evaluate(chain.theta, chain.q, chain.v)
    with pytest.raises(ValueError, match="read-only"):
        terms.momentum[0] = 0.0


def test_bad_input_is_named(chain):
    derivatives = MomentumDerivatives(chain.model)
    with pytest.raises(ParameterOutOfRange, match=r"shape of theta is \(50,\); allowed: \(70,\)"):
        derivatives.evaluate(chain.theta[:50], chain.q, chain.v)
    broken = chain.theta.copy()
    broken[3] = np.nan
    with pytest.raises(ParameterOutOfRange, match=r"theta\[3\] is nan; allowed: finite numbers"):
        derivatives.evaluate(broken, chain.q, chain.v)
    with pytest.raises(InvalidSamples, match="'v': 2 rows"):
        derivatives.evaluate(chain.theta, chain.q, chain.v[:2])
