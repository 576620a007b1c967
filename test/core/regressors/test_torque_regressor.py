"""Torque regressor, against inverse dynamics and the balance of momentum."""

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.model.robot import EffortMeaning
from sysid_ros.core.regressors.momentum import MomentumRegressor
from sysid_ros.core.regressors.torque import TorqueRegressor


def test_every_column_is_the_rate_of_momentum_minus_its_cause(case):
    """``W theta = dp/dt - W_c theta`` for any theta, with ``dp/dt`` of ``W_m`` by central differences."""
    regressor = TorqueRegressor(case.model).evaluate(case.q, case.v, case.a)
    momenta, step = MomentumRegressor(case.model), 1e-5
    ahead, behind = (momenta.momentum(case.q + h * case.v, case.v + h * case.a) for h in (step, -step))
    expected = (ahead - behind) / (2 * step) - momenta.evaluate(case.q, case.v)[1]
    np.testing.assert_allclose(regressor, expected, atol=1e-7)


def test_torque_is_inverse_dynamics_plus_the_friction_model(case):
    torque = TorqueRegressor(case.model).evaluate(case.q, case.v, case.a) @ case.theta
    coulomb, viscous, armature, offset = case.friction.T
    data = case.model.createData()
    for k, (q, v, a) in enumerate(zip(case.q, case.v, case.a, strict=True)):
        expected = pin.rnea(case.model, data, q, v, a) + coulomb * np.sign(v) + viscous * v + armature * a + offset
        np.testing.assert_allclose(torque[k], expected, atol=1e-10)


@pytest.mark.parametrize("count", [101, 1300])
def test_batches_are_pinocchio_sample_by_sample(case, count):
    q, v, a = np.random.default_rng(9).uniform(-2.5, 2.5, size=(3, count, case.n))
    found = TorqueRegressor(case.model).evaluate(q, v, a, out=np.full((count, case.n, 14 * case.n), np.nan))
    data = case.model.createData()
    expected = np.array(
        [pin.computeJointTorqueRegressor(case.model, data, *state) for state in zip(q, v, a, strict=True)]
    )
    np.testing.assert_allclose(found[:, :, : 10 * case.n], expected, rtol=1e-10, atol=1e-10)
    some = TorqueRegressor(case.model, bodies=(case.n, 2))
    chosen = some.evaluate(q, v, a)
    np.testing.assert_allclose(chosen, found[:, :, some.columns.indices], rtol=1e-12, atol=1e-12)


def test_selected_bodies_direction_and_output(chain):
    whole = TorqueRegressor(chain.model).evaluate(chain.q, chain.v, chain.a)
    part = TorqueRegressor(chain.model, bodies=(5, 2))
    out = np.full((4, 5, part.columns.count), np.nan)
    assert part.evaluate(chain.q, chain.v, chain.a, out=out) is out
    np.testing.assert_allclose(out, whole[:, :, part.columns.indices], atol=1e-12)
    zero = TorqueRegressor(chain.model).evaluate(chain.q, chain.v, chain.a, direction=0 * chain.v)
    assert not zero[:, :, 50::4].any()
    np.testing.assert_array_equal(zero[:, :, 51::4], whole[:, :, 51::4])


def test_link_side_torque_has_no_friction_columns(chain):
    regressor = TorqueRegressor(chain.model, EffortMeaning.LINK_SIDE).evaluate(chain.q, chain.v, chain.a)
    assert regressor[:, :, :50].any() and not regressor[:, :, 50:].any()


def test_bad_input_is_named(chain):
    regressor = TorqueRegressor(chain.model)
    with pytest.raises(SysidError, match=r"'a': shape \(4, 4\), expected \(N, 5\)"):
        regressor.evaluate(chain.q, chain.v, chain.a[:, :4])
    broken = chain.a.copy()
    broken[3, 4] = np.inf
    with pytest.raises(SysidError, match="'a': entry inf of sample 3, joint 4 is not finite"):
        regressor.evaluate(chain.q, chain.v, broken)
