"""Tests of the regressors by unit parameters against Pinocchio, on trees with joints of several degrees of freedom."""

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.papers.baselines.unit_parameters import TreeRegressor, regressor_of


def random_tree(seed, joints):
    rng = np.random.default_rng(seed)
    model = pin.Model()
    kinds = [
        pin.JointModelRX(), pin.JointModelPY(), pin.JointModelSpherical(), pin.JointModelFreeFlyer(),
        pin.JointModelPlanar(), pin.JointModelRevoluteUnaligned(np.array([0.6, 0.0, 0.8])),
    ]  # fmt: skip
    for k in range(joints):
        joint = model.addJoint(int(rng.integers(k + 1)), kinds[k % len(kinds)], pin.SE3.Random(), f"j{k}")
        model.appendBodyToJoint(joint, pin.Inertia.Random(), pin.SE3.Identity())
    model.gravity.linear = np.array([1.0, -2.0, -9.0])
    return model


@pytest.mark.parametrize("seed", range(4))
def test_both_are_pinocchio_s(seed):
    pin.seed(seed)
    model = random_tree(seed, 9)
    rng = np.random.default_rng(seed)
    q = pin.integrate(model, pin.neutral(model), rng.normal(size=model.nv))
    v, a = rng.normal(size=(2, model.nv))
    expected = pin.computeJointTorqueRegressor(model, model.createData(), q, v, a)
    ours = TreeRegressor(model).evaluate(q, v, a)
    np.testing.assert_allclose(ours, expected, atol=1e-12 * np.abs(expected).max())
    theta = np.concatenate([inertia.toDynamicParameters() for inertia in model.inertias[1:]])
    np.testing.assert_allclose(ours @ theta, pin.rnea(model, model.createData(), q, v, a), atol=1e-10)

    def inverse_dynamics(theta):
        changed = model.copy()
        total = np.zeros(model.nv)
        # Pinocchio takes no body without mass: each is given two, and what was added is taken away again.
        for sign, extra in ((1.0, 1.0), (-1.0, 0.0)):
            for body in range(1, model.njoints):
                part = np.array([1.0, 0, 0, 0, 1, 0, 1, 0, 0, 1]) + extra * theta[10 * (body - 1) : 10 * body]
                changed.inertias[body] = pin.Inertia.FromDynamicParameters(part)
            total += sign * pin.rnea(changed, changed.createData(), q, v, a)
        return total

    np.testing.assert_allclose(regressor_of(inverse_dynamics, model.njoints - 1), expected, atol=1e-10)


def test_bad_states_are_refused():
    model = random_tree(0, 3)
    regressor, q = TreeRegressor(model), pin.neutral(model)
    with pytest.raises(ParameterOutOfRange, match="^v"):
        regressor.evaluate(q, np.zeros(model.nv + 1), np.zeros(model.nv))
    with pytest.raises(ParameterOutOfRange, match="^a"):
        regressor.evaluate(q, np.zeros(model.nv), np.full(model.nv, np.inf))
