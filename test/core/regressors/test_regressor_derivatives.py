"""Derivatives of the momentum regressors against central differences and other formulas for given parameters."""

import dataclasses

import numpy as np
import pytest

from sysid_ros.core.regressors import (
    InvalidSamples,
    MomentumDerivatives,
    MomentumRegressor,
    RegressorDifferentiator,
)
from sysid_ros.core.regressors import regressor_derivatives as module

STEP = 1e-5


def inertial_columns(regressor, q, v):
    return [columns[..., : regressor.columns.inertial] for columns in regressor.evaluate(q, v)]


def test_values_are_those_of_the_regressors(case):
    found = RegressorDifferentiator(case.model).evaluate(case.q, case.v)
    momentum, force = inertial_columns(MomentumRegressor(case.model), case.q, case.v)
    np.testing.assert_allclose(found.momentum, momentum, atol=1e-11)
    np.testing.assert_allclose(found.force, force, atol=1e-11)


def test_derivatives_agree_with_central_differences(case):
    regressor = MomentumRegressor(case.model)
    found = RegressorDifferentiator(case.model).evaluate(case.q, case.v)
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


def test_with_parameters_they_are_those_of_the_momentum_equation(case):
    found = RegressorDifferentiator(case.model).evaluate(case.q, case.v)
    theta = case.inertial[: 10 * case.n]
    terms = MomentumDerivatives(case.model).evaluate(case.inertial, case.q, case.v)
    for name, expected in (
        ("momentum_q", terms.dp_dq),
        ("momentum_v", terms.inertia),
        ("force_q", terms.dc_dq),
        ("force_v", terms.dc_dv),
    ):
        of_theta = np.einsum("kipl,p->kil", getattr(found, name), theta)
        np.testing.assert_allclose(of_theta, expected, atol=1e-10, err_msg=name)


def test_many_points_are_evaluated_in_parts(chain, monkeypatch):
    differentiator = RegressorDifferentiator(chain.model)
    whole = differentiator.evaluate(chain.q, chain.v)
    monkeypatch.setattr(module, "_MOST_POINTS", 3)
    for field in dataclasses.fields(whole):
        parts = getattr(differentiator.evaluate(chain.q, chain.v), field.name)
        np.testing.assert_allclose(parts, getattr(whole, field.name), atol=1e-12)
    with pytest.raises(InvalidSamples, match="v"):
        differentiator.evaluate(chain.q, chain.v[:, 1:])
