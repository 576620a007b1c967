"""Tests of the online fit against a least-squares solution of all rows at once."""

import numpy as np
import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.online_model.least_squares import (
    OnlineFitSettings,
    OnlineLeastSquares,
    coefficient_of_determination,
)

JOINTS, SIZE = 3, 11


def draw(seed, samples, noise=0.1):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=SIZE)
    y = rng.normal(size=(samples, JOINTS, SIZE)) * np.logspace(0, -3, SIZE)
    return theta, y, y @ theta + noise * rng.normal(size=(samples, JOINTS))


def solve_at_once(y, u, prior, weight, scale):
    rows = np.vstack([weight * y.reshape(-1, SIZE), (1.0 - weight) * np.diag(1.0 / scale)])
    right = np.concatenate([weight * u.ravel(), (1.0 - weight) * prior / scale])
    return np.linalg.lstsq(rows, right, rcond=None)[0]


@pytest.mark.parametrize("is_growing", [False, True])
@pytest.mark.parametrize("capacity", [1, 7, 50])
def test_every_step_is_the_fit_of_the_buffer(is_growing, capacity):
    _, y, u = draw(3, 60)
    rng = np.random.default_rng(8)
    prior, scale = rng.normal(size=SIZE), rng.uniform(0.1, 10.0, SIZE)
    settings = OnlineFitSettings(capacity=capacity, is_growing=is_growing, weight=0.8)
    fit = OnlineLeastSquares(prior, JOINTS, settings, scale)
    np.testing.assert_allclose(fit.solve().theta, prior)
    for k in range(len(y)):
        assert fit.add(y[k], u[k])
        first = 0 if is_growing else max(0, k + 1 - capacity)
        result = fit.solve()
        expected = solve_at_once(y[first : k + 1], u[first : k + 1], prior, 0.8, scale)
        np.testing.assert_allclose(result.theta, expected, rtol=1e-8, atol=1e-9)
        predicted = y[first : k + 1] @ result.theta
        np.testing.assert_allclose(
            result.determination, coefficient_of_determination(u[first : k + 1], predicted), atol=1e-12
        )
        assert (result.samples, result.is_full) == (k + 1 - first, k + 1 >= capacity)


def test_a_large_sample_that_left_leaves_no_trace():
    theta, y, u = draw(5, 40, noise=0.0)
    fit = OnlineLeastSquares(np.zeros(SIZE), JOINTS, OnlineFitSettings(capacity=20, weight=1.0 - 1e-6))
    fit.add(1e9 * y[0], 1e9 * u[0] + 1e6)
    for k in range(1, 40):
        fit.add(y[k], u[k])
    np.testing.assert_allclose(fit.solve().theta, theta, atol=1e-4)


def test_perfect_data_are_explained_and_noise_is_not():
    theta, y, u = draw(6, 60, noise=0.0)
    fit = OnlineLeastSquares(np.zeros(SIZE), JOINTS, OnlineFitSettings(weight=0.999999))
    for one, torque in zip(y, u, strict=True):
        fit.add(one, torque)
    np.testing.assert_allclose(fit.solve().determination, 1.0, atol=1e-6)
    rng = np.random.default_rng(1)
    fit.reset()
    for one in y:
        fit.add(one, 10.0 * rng.normal(size=JOINTS))
    assert (fit.solve().determination < 0.5).all()


def test_samples_that_add_nothing_are_left_out():
    _, y, u = draw(7, 1)
    fit = OnlineLeastSquares(np.zeros(SIZE), JOINTS, OnlineFitSettings(least_information=0.2))
    assert fit.add(y[0], u[0])
    taken = [fit.add(y[0], u[0]) for _ in range(30)]
    assert not taken[-1]
    assert fit.samples == 1 + sum(taken)
    gain = fit.information(y[0])
    rows = np.vstack([0.9 * np.tile(y[0], (fit.samples, 1)), 0.1 * np.eye(SIZE)])
    more = np.vstack([rows, 0.9 * y[0]])
    expected = 0.5 * (np.linalg.slogdet(more.T @ more)[1] - np.linalg.slogdet(rows.T @ rows)[1])
    assert gain == pytest.approx(expected, rel=1e-6)


def test_determination_of_the_paper():
    measured = np.array([[3.0, 0.0], [4.0, 0.0]])
    result = coefficient_of_determination(measured, measured + np.array([[1.0, 1.0], [0.0, 0.0]]))
    assert result[0] == pytest.approx(1.0 - 1.0 / 25.0)
    assert np.isnan(result[1])


def test_bad_input_is_refused():
    with pytest.raises(ParameterOutOfRange, match="prior"):
        OnlineLeastSquares([np.nan], 1)
    with pytest.raises(ParameterOutOfRange, match="scale"):
        OnlineLeastSquares([1.0], 1, scale=[0.0])
    fit = OnlineLeastSquares(np.zeros(SIZE), JOINTS)
    with pytest.raises(ParameterOutOfRange, match="sample"):
        fit.add(np.full((JOINTS, SIZE), np.nan), np.zeros(JOINTS))
    with pytest.raises(ParameterOutOfRange, match="weight"):
        OnlineFitSettings(weight=1.0)
