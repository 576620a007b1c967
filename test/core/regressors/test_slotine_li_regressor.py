"""Slotine-Li regressor: Christoffel symbols from finite differences of the inertia matrix, skewness, both paths."""

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.model.robot import EffortMeaning
from sysid_ros.papers.baselines.slotine_li import SlotineLiRegressor

STEP = 1e-5


def inertia(case, q):
    data = case.model.createData()
    upper = np.triu(pin.crba(case.model, data, q))
    return upper + np.triu(upper, 1).T


def inertia_gradient(case, q):
    """d H_ij / d q_k by central differences, (n, n, n)."""
    shifts = STEP * np.eye(case.n)
    return np.stack([(inertia(case, q + s) - inertia(case, q - s)) / (2 * STEP) for s in shifts], axis=2)


def coriolis(case, regressor, q, v):
    """C(q, v), column by column, from the regressor."""
    zero = np.zeros(case.n)
    gravity = regressor.evaluate_one(q, v, zero, zero) @ case.inertial
    columns = [regressor.evaluate_one(q, v, unit, zero) @ case.inertial - gravity for unit in np.eye(case.n)]
    return np.stack(columns, axis=1)


def test_coriolis_matrix_is_made_of_christoffel_symbols(case):
    q, v = case.q[0], case.v[0]
    gradient = inertia_gradient(case, q)
    symbols = 0.5 * (gradient + gradient.transpose(0, 2, 1) - gradient.transpose(2, 1, 0))  # [i, j, k]
    found = coriolis(case, SlotineLiRegressor(case.model), q, v)
    np.testing.assert_allclose(found, symbols @ v, atol=1e-7)


def test_torque_is_inertia_coriolis_gravity_and_friction_at_the_reference(case):
    q, v, v_a, a_a = case.q[0], case.v[0], case.v[1], case.a[0]
    data = case.model.createData()
    expected = inertia(case, q) @ a_a + pin.computeCoriolisMatrix(case.model, data, q, v) @ v_a
    expected += pin.computeGeneralizedGravity(case.model, data, q)
    coulomb, viscous, armature, offset = case.friction.T
    expected += coulomb * np.sign(v_a) + viscous * v_a + armature * a_a + offset
    found = SlotineLiRegressor(case.model).evaluate_one(q, v, v_a, a_a) @ case.theta
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_one_sample_and_many_agree(case):
    regressor = SlotineLiRegressor(case.model)
    v_a, direction = case.v[::-1], np.random.default_rng(4).uniform(-1, 1, case.v.shape)
    many = regressor.evaluate(case.q, case.v, v_a, case.a, direction)
    for k in range(len(case.q)):
        one = regressor.evaluate_one(case.q[k], case.v[k], v_a[k], case.a[k], direction[k])
        np.testing.assert_allclose(one, many[k], atol=1e-10)


def test_link_side_torque_has_no_friction_columns(chain):
    regressor = SlotineLiRegressor(chain.model, EffortMeaning.LINK_SIDE)
    assert not regressor.evaluate_one(chain.q[0], chain.v[0], chain.v[1], chain.a[0])[:, 50:].any()
    assert not regressor.evaluate(chain.q, chain.v, chain.v, chain.a)[:, :, 50:].any()


def test_bad_input_is_named(chain):
    regressor = SlotineLiRegressor(chain.model)
    q, v, a = chain.q[0], chain.v[0], chain.a[0]
    with pytest.raises(SysidError, match=r"'v_a': shape \(1, 4\), expected \(N, 5\)"):
        regressor.evaluate_one(q, v, v[:4], a)
    broken = a.copy()
    broken[2] = np.nan
    with pytest.raises(SysidError, match="'a_a': entry nan of sample 0, joint 2 is not finite"):
        regressor.evaluate_one(q, v, v, broken)
    with pytest.raises(SysidError, match=r"'direction': shape \(1, 3\)"):
        regressor.evaluate_one(q, v, v, a, direction=[1.0, 0.0, 1.0])
    with pytest.raises(SysidError, match="'a_a': 3 rows, expected 4 as in 'q'"):
        regressor.evaluate(chain.q, chain.v, chain.v, chain.a[:3])
    with pytest.raises(SysidError, match=r"'direction': shape \(4, 2\)"):
        regressor.evaluate(chain.q, chain.v, chain.v, chain.a, direction=chain.v[:, :2])
