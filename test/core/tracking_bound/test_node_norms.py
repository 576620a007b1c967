"""Norms at the nodes of a motion: of sums over joints, over all payloads, and of what is not known of the arm."""

from __future__ import annotations

import numpy as np
import pytest

from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.tracking_bound.inertia_columns import body_jacobians
from sysid_ros.core.tracking_bound.model_terms import TermStates
from sysid_ros.core.tracking_bound.motion import sample_motion
from sysid_ros.core.tracking_bound.node_norms import (
    Derivatives,
    NodeEvaluation,
    PayloadNorms,
    norm_of_sum,
    products_of,
)
from sysid_ros.core.tracking_bound.term_derivatives import jacobian_derivatives, joints_of
from sysid_ros.core.tracking_bound.tube import TubeMap


def vertices_and_values(rng):
    """Vertices of a set of payloads, what is not known about them, and matrices by joint, linear in the payload."""
    payloads, spread = rng.uniform(0.0, 1.0, (20, 10)), rng.uniform(0.0, 0.1, 10)
    return payloads, spread, rng.normal(size=(3, 12, 5, 4, 4))


@pytest.mark.parametrize("seed", range(3))
def test_norms_of_sums_over_joints_are_bounded_for_all_payloads(seed):
    rng = np.random.default_rng(seed)
    payloads, spread, values = vertices_and_values(rng)
    norms = PayloadNorms(payloads, spread)
    bounds = (
        (norms.products_of_nominal(values), norms.nominal(values)),
        (norms.products_of_vertices(values), norms.vertices(values)),
        (norms.products_of_spread(values), norms.spread(values)),
    )
    size = rng.uniform(0.0, 1.0, (3, 5))
    shares = [[], [], []]
    for _ in range(200):
        weights = size * rng.choice([-1.0, 1.0], size.shape)
        mixture = rng.dirichlet(0.1 * np.ones(len(payloads))) @ payloads
        off = spread * rng.choice([-1.0, 1.0], 10)
        parts = (
            values[:, 0],
            values[:, 1] + np.tensordot(values[:, 2:], mixture - payloads.mean(axis=0), (1, 0)),
            np.tensordot(values[:, 2:], off, (1, 0)),
        )
        for part, (products, each), found in zip(parts, bounds, shares, strict=True):
            assert np.all(np.linalg.norm(part, axis=(2, 3)) <= each * (1.0 + 1e-12))
            whole = np.linalg.norm(np.einsum("sk,skab->sab", weights, part), axis=(1, 2))
            found.append(np.max(whole / norm_of_sum(size, products)))
    assert np.max(shares) <= 1.0 + 1e-12 and min(np.max(x) for x in shares) > 0.4
    assert np.all(norm_of_sum(size, bounds[0][0]) < norm_of_sum(size, products_of(bounds[0][1])))


def test_taylor_polynomials_of_norms():
    """Of a quadratic form everything is exact but for signs."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=4), rng.normal(size=(4, 4))
    second = second + second.T
    pairs = np.array([abs(second[joints]) for joints in joints_of(4, 2)])
    growth = Derivatives.of(products_of(np.abs(first)[None]), pairs[None])
    away, turns, none = rng.uniform(0.0, 1.0, (1, 4)), rng.uniform(0.0, 1.0, (1, 4)), np.zeros(1)
    bounds = *growth.near(away, none), growth.first_along(turns, away, none), growth.twice(turns, turns)
    shares = []
    for _ in range(300):
        e, d = (x[0] * rng.choice([-1.0, 1.0], 4) for x in (away, turns))
        values = first @ e, 0.5 * e @ second @ e, d @ (first + second @ e), d @ second @ d
        shares.append([abs(value) / bound[0] for value, bound in zip(values, bounds, strict=True)])
    assert np.all(np.max(shares, axis=0) <= 1.0 + 1e-12) and np.all(np.max(shares, axis=0) > 0.25)


def test_derivatives_of_jacobians(robot):
    q, step = np.random.default_rng(1).uniform(-1.0, 1.0, robot.n), 1e-5
    body = robot.n - 1
    once, twice = jacobian_derivatives(body_jacobians(robot, q[None])[body])
    for k, unit in enumerate(np.eye(robot.n)):
        near = body_jacobians(robot, q + step * np.stack([unit, -unit]))[body]
        np.testing.assert_allclose(once[0, k], (near[0] - near[1]) / (2.0 * step), atol=1e-8)
        ahead, behind = jacobian_derivatives(near)[0]
        np.testing.assert_allclose(twice[0, k], (ahead - behind) / (2.0 * step), atol=1e-8)


def test_what_is_not_known_of_the_arm_changes_with_the_joints_by_no_more_than_is_bounded(robot):
    rng, n = np.random.default_rng(2), robot.n
    prior = robot.payload_prior
    model = ControlModel(robot.theta_nominal, robot.theta_box, prior.nominal, prior.box, prior.shape)
    settings = RobustSettings()
    tube_map = TubeMap(robot, model, sample_motion(robot.home, n, settings), settings)
    q, v = robot.home + rng.uniform(-0.5, 0.5, n), rng.uniform(-1.0, 1.0, n)
    root = np.linalg.inv(np.linalg.cholesky(ArmDynamics(robot, model.total, armature=True).inertia(q)))
    evaluation = NodeEvaluation(tube_map, TermStates(q[None], v[None], 0.0 * v[None]))
    xi = np.linalg.solve(root.T, v)
    bounds = evaluation._slopes_of_arm(q[None], root[None], xi[None])
    radius = robot.theta_box.radius.copy()
    radius[robot.inertial_slice(n)] = 0.0
    radius[10 * n :] = 0.0
    shares, nominal = [], ArmDynamics(robot, robot.theta_nominal).inertia
    for _ in range(20):
        inertia = ArmDynamics(robot, robot.theta_nominal + rng.choice([-1.0, 1.0], radius.size) * radius).inertia
        x = rng.normal(size=n)
        x /= np.linalg.norm(np.linalg.solve(root.T, x))
        for kind, direction in (("slope", x), ("rate", v)):
            for k, unit in enumerate(np.eye(n)):
                step, twice = 1e-3, 0.0
                for a, b in ((1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)):
                    near = q + step * (a * unit + b * direction)
                    twice = twice + a * b * (inertia(near) - nominal(near)) / (4.0 * step**2)
                size = np.linalg.norm(root @ twice @ root.T, ord=2)
                assert size <= bounds[kind][0, k] * (1.0 + 1e-3) + 1e-9
                shares.append(size / max(bounds[kind][0, k], 1e-9))
    assert max(shares) > 0.1
