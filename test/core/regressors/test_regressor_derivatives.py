"""Derivatives of the momentum regressors against central differences and other formulas for given parameters."""

import numpy as np
import pytest

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.regressors.momentum import MomentumRegressor

STEP = 1e-5


def inertial_columns(regressor, q, v):
    return [columns[..., : regressor.columns.inertial] for columns in regressor.evaluate(q, v)]


def test_values_are_those_of_the_regressors(case):
    found = MomentumRegressor(case.model).differentiate(case.q, case.v)
    momentum, force = inertial_columns(MomentumRegressor(case.model), case.q, case.v)
    np.testing.assert_allclose(found.momentum, momentum, atol=1e-11)
    np.testing.assert_allclose(found.force, force, atol=1e-11)


def test_derivatives_agree_with_central_differences(case):
    regressor = MomentumRegressor(case.model)
    found = MomentumRegressor(case.model).differentiate(case.q, case.v)
    for joint in range(case.n):
        shift = STEP * np.eye(case.n)[joint]
        for name, ahead, behind in (
            ("q", (case.q + shift, case.v), (case.q - shift, case.v)),
            ("v", (case.q, case.v + shift), (case.q, case.v - shift)),
        ):
            ends = zip(inertial_columns(regressor, *ahead), inertial_columns(regressor, *behind), strict=True)
            for what, (one, other) in zip(("momentum", "force"), ends, strict=True):
                derivative = getattr(found, f"{what}_{name}")[..., joint]
                np.testing.assert_allclose(derivative, (one - other) / (2 * STEP), atol=1e-7, err_msg=what + name)


def test_bad_input_is_named(chain):
    with pytest.raises(SysidError, match="v"):
        MomentumRegressor(chain.model).differentiate(chain.q, chain.v[:, 1:])
