import numpy as np
import pytest

from sysid_ros.core.common.errors import NotPhysicallyConsistent
from sysid_ros.core.estimation.point.coordinates import PARAMETER_MAP, derivatives, factor, from_parameters
from sysid_ros.core.estimation.point.fit import BARRIER_GRADIENT, ConePoint
from sysid_ros.core.model.inertia import is_physically_consistent, pseudo_inertia

SAFE_ID_ORDER = [0, 1, 2, 3, 4, 6, 9, 5, 8, 7]
"""Position of each parameter in SAFE-ID (16): m, mcx, mcy, mcz, XX, YY, ZZ, XY, YZ, XZ."""


def to_parameters(eta):
    """Return the inertial parameters of log-Cholesky coordinates."""
    return np.einsum("pij,ij->p", PARAMETER_MAP, factor(eta) @ factor(eta).T)


def published_formula(eta):
    """SAFE-ID (16), in the paper's order."""
    a, d1, d2, d3, s12, s13, s23, s14, s24, s34 = eta
    e1, e2, e3 = np.exp([d1, d2, d3])
    return np.exp(2 * a) * np.array([
        s14**2 + s24**2 + s34**2 + 1,
        s14 * e1,
        s14 * s12 + s24 * e2,
        s14 * s13 + s24 * s23 + s34 * e3,
        s12**2 + s13**2 + s23**2 + e2**2 + e3**2,
        s13**2 + s23**2 + e1**2 + e3**2,
        s12**2 + e1**2 + e2**2,
        -s12 * e1,
        -s12 * s13 - s23 * e2,
        -s13 * e1,
    ])  # fmt: skip


def test_the_factor_gives_consistent_bodies_and_is_inverted():
    rng = np.random.default_rng(0)
    for _ in range(50):
        eta = rng.normal(size=10)
        theta = to_parameters(eta)
        assert is_physically_consistent(theta)
        np.testing.assert_allclose(pseudo_inertia(theta), factor(eta) @ factor(eta).T, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(from_parameters(theta), eta, atol=1e-9)


def test_the_map_is_the_published_one():
    eta = np.random.default_rng(1).normal(size=10)
    np.testing.assert_allclose(to_parameters(eta)[SAFE_ID_ORDER], published_formula(eta), rtol=1e-12)


def test_a_massless_or_impossible_body_has_no_coordinates():
    for theta in (np.zeros(10), np.array([1.0, 0, 0, 0, 1.0, 0, 0.1, 0, 0, 0.1])):
        with pytest.raises(NotPhysicallyConsistent, match="payload"):
            from_parameters(theta)


def test_first_and_second_derivatives():
    rng = np.random.default_rng(2)
    eta = 0.5 * rng.normal(size=10)
    theta, jacobian, curvature = derivatives(eta)
    np.testing.assert_allclose(theta, to_parameters(eta), atol=1e-14)
    step = 1e-6
    for k, unit in enumerate(step * np.eye(10)):
        np.testing.assert_allclose(
            jacobian[:, k], (to_parameters(eta + unit) - to_parameters(eta - unit)) / (2 * step), atol=1e-8
        )
        second = (derivatives(eta + unit)[1] - derivatives(eta - unit)[1]) / (2 * step)
        np.testing.assert_allclose(curvature[:, :, k], second, atol=1e-8)


def test_local_coordinates_of_the_cone():
    rng = np.random.default_rng(3)
    point = ConePoint(factor(0.5 * rng.normal(size=10)))
    z = 0.1 * rng.normal(size=10)
    np.testing.assert_allclose(point.moved(z).theta, point.theta + point.tangent @ z, atol=1e-14)
    step, log_det = 1e-5, lambda x: -np.linalg.slogdet(pseudo_inertia(point.theta + point.tangent @ x))[1]
    gradient = [(log_det(step * unit) - log_det(-step * unit)) / (2 * step) for unit in np.eye(10)]
    np.testing.assert_allclose(gradient, BARRIER_GRADIENT, atol=1e-6)
    longest = point.longest_step(z)
    assert is_physically_consistent(point.theta + 0.999 * longest * point.tangent @ z)
    assert not is_physically_consistent(point.theta + 1.001 * longest * point.tangent @ z)
