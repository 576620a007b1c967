"""The paper's bounds by sensitivity: those of Theorem 13, and not rigorous."""

import dataclasses
import itertools

import numpy as np

from sysid_ros.core.estimation.bounds.closed_form import bound_with, choose_inverse
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS
from sysid_ros.core.estimation.point.coordinates import derivatives, from_parameters
from sysid_ros.core.estimation.windows.rows import Rows
from sysid_ros.core.model.inertia import from_com_form, from_pseudo_inertia, pseudo_inertia
from sysid_ros.papers.baselines.sensitivity import bound_by_sensitivity


def make(theta, errors, seed=0, count=60):
    """Rows of a body with torque errors only, and the errors (count,) that were made."""
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(count, 10)) * np.array([1, 1, 1, 1, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3])
    budget = np.zeros((count, len(ERROR_TERMS)))
    budget[:, ERROR_TERMS.index("torque_absolute")] = 0.01
    none = np.zeros(count, dtype=np.int64)
    rows = Rows(
        y=y,
        b=np.zeros((count, 2)),
        u=y @ theta + errors,
        errors=budget,
        ends=np.zeros((count, 2, 1, 12)),
        tilt=np.zeros((count, 0, 10)),
        window=none,
        joint=none,
        start=np.arange(count),
        stop=np.arange(count) + 1,
    )
    return Problem.build(rows, np.zeros(10), np.full(10, 3.0), np.zeros(2), np.zeros(1))


def test_half_widths_are_sensitivities_of_the_fit():
    theta = from_com_form(1.8, [0.1, 0.05, -0.2], np.diag([0.05, 0.06, 0.07]))
    start = from_parameters(theta)
    problem = make(theta, np.zeros(24), count=24)
    bounds = bound_by_sensitivity(problem, start)
    np.testing.assert_allclose(bounds.fit.theta, theta, atol=1e-4)
    sensitivity = []
    for row in range(24):
        moved = [dataclasses.replace(problem, r=problem.r + sign * 1e-3 * np.eye(24)[row]) for sign in (1, -1)]
        plus, minus = (bound_by_sensitivity(item, start).fit.theta for item in moved)
        sensitivity.append((plus - minus) / 2e-3)
    np.testing.assert_allclose(np.abs(sensitivity).sum(axis=0) * 0.01, bounds.radius, rtol=2e-2, atol=1e-5)


def test_the_interval_derivative_is_finite_up_to_the_stated_share():
    """Below it no Hessian whose entries are within their intervals is singular, a few times beyond it one is."""
    theta = from_com_form(1.8, [0.1, 0.05, -0.2], np.diag([0.05, 0.06, 0.07]))
    problem = make(theta, np.zeros(24), count=24)
    bounds = bound_by_sensitivity(problem, from_parameters(theta))
    (share, _, both) = bounds.finite_up_to
    assert share == both  # nothing of the robot is uncertain
    values, jacobian, curvature = derivatives(bounds.fit.eta)
    gram = problem.y.T @ problem.y
    gradient = gram @ (values - problem.center) - problem.y.T @ problem.r
    hessian = jacobian.T @ gram @ jacobian + np.tensordot(gradient, curvature, axes=1)
    radius = np.tensordot(np.abs(problem.y).sum(axis=0) * 0.01, np.abs(curvature), axes=1)
    rng = np.random.default_rng(0)

    def sign_changes(scale):
        signs = [rng.choice([-1.0, 1.0], (10, 10)) for _ in range(2000)]
        signs.append(-np.sign(np.linalg.inv(hessian)).T)
        return sum(np.linalg.det(hessian + scale * one * radius) <= 0.0 for one in signs)

    assert np.linalg.det(hessian) > 0.0 and sign_changes(0.99 * share) == 0
    assert sign_changes(10.0 * share) > 0


def test_the_baseline_loses_the_truth_at_the_edge_of_the_cone_where_the_left_inverse_keeps_it():
    """Errors push the plain solution out of the cone: the fit stops at its edge, and its sensitivity vanishes there."""
    lost, largest = 0, 0.0
    for seed, width in itertools.product(range(4), (0.002, 0.003, 0.004)):
        body = from_com_form(1.8, [0.1, 0.05, -0.2], np.diag([0.05 + width, 0.05, 2 * width]))
        _, vectors = np.linalg.eigh(pseudo_inertia(body))
        outward = -from_pseudo_inertia(np.outer(vectors[:, 0], vectors[:, 0]))  # lowers the smallest eigenvalue
        problem = make(body, 0.01 * np.sign(make(body, np.zeros(60), seed).y @ outward), seed)
        local = bound_by_sensitivity(problem, from_parameters(body))
        ratio = float(np.max(np.abs(body - local.fit.theta) / local.radius))
        lost, largest = lost + (ratio > 1.0), max(largest, ratio)
        rigorous = bound_with(problem, choose_inverse(problem, 2))
        assert np.all(np.abs(body - rigorous.center) <= rigorous.radius)
    assert lost > 0, largest
