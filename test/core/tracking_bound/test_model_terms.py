"""The terms of the bound against finite differences and random parameters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.model.mechanics import ArmDynamics, add_payload
from sysid_ros.core.model.robot import EffortMeaning
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.tracking_bound.inertia_columns import inertia_columns
from sysid_ros.core.tracking_bound.model_terms import TermStates, compute_model_terms
from sysid_ros.core.tracking_bound.uncertainty import inertial_uncertainties
from sysid_ros.papers.baselines.slotine_li import SlotineLiRegressor

STEP = 1e-5


@pytest.fixture(scope="module")
def case(robot):
    rng = np.random.default_rng(0)
    model = ControlModel.of_boxes(robot)
    q = robot.home + rng.uniform(-0.8, 0.8, size=(3, robot.n))
    v, a = rng.uniform(-0.8, 0.8, size=(3, robot.n)), rng.uniform(-2.0, 2.0, size=(3, robot.n))
    uncertainty = inertial_uncertainties(robot, model)[-1]
    terms = compute_model_terms(robot, uncertainty, TermStates(q, v, a))
    return model, (q, v, a), terms


def coriolis(dynamics, q, x):
    """C(q, x) from the passive torque, column by column."""
    zero = np.zeros_like(q)
    columns = [dynamics.passive_torque(q, x, e, zero) - dynamics.gravity(q) for e in np.eye(q.size)]
    return np.stack(columns, axis=1)


def directional(function, q, x):
    """Derivative of a function of the position along x."""
    return (function(q + STEP * x) - function(q - STEP * x)) / (2.0 * STEP)


def coriolis_columns(robot, q):
    """The Christoffel ``C(q, e_j)`` by parameter, (S, j, n, n, 11 n), of differences of the fourth order."""
    step = 2e-3 * np.eye(robot.n)
    near = [[inertia_columns(robot, q + k * one) for one in step] for k in (1, -1, 2, -2)]
    ahead, behind, far_ahead, far_behind = (np.stack(x, axis=1) for x in near)
    slope = (8.0 * (ahead - behind) - (far_ahead - far_behind)) / (12.0 * 2e-3)
    return 0.5 * (slope + np.einsum("sbajl->sjabl", slope) - np.einsum("sajbl->sjabl", slope))


def truths(robot, count, rng):
    for trial in range(count):
        yield add_payload(
            sample_parameters(robot, rng, corner=trial % 2 == 0),
            sample_payload(robot.payload_prior, rng, corner=trial % 3 == 0),
        )


def test_nominal_terms(robot, case):
    model, motion, terms = case
    dynamics = ArmDynamics(robot, model.total, armature=True)
    rng = np.random.default_rng(1)
    for s, (q, v, a) in enumerate(zip(*motion, strict=True)):
        inverse_root = np.linalg.inv(np.linalg.cholesky(dynamics.inertia(q)))

        def norm(x, root=inverse_root):
            return np.linalg.norm(root @ x @ root.T, ord=2)

        def torque(p, v=v, a=a):
            return dynamics.passive_torque(p, v, v, a)

        gradient = np.stack([directional(torque, q, e) for e in np.eye(robot.n)], axis=1)
        np.testing.assert_allclose(terms.torque_slope[s], norm(gradient), rtol=1e-4)
        np.testing.assert_allclose(terms.torque_rate[s], np.linalg.norm(inverse_root @ gradient @ v), rtol=1e-4)
        np.testing.assert_allclose(terms.torque_gradient[s], np.abs(gradient), atol=1e-4)
        np.testing.assert_allclose(terms.inertia_rate[s], norm(directional(dynamics.inertia, q, v)), rtol=1e-6)
        np.testing.assert_allclose(terms.coriolis_rate[s], norm(coriolis(dynamics, q, v)), rtol=1e-8)
        for _ in range(30):
            x = rng.normal(size=robot.n)
            x /= np.sqrt(x @ dynamics.inertia(q) @ x)
            assert norm(coriolis(dynamics, q, x)) <= terms.coriolis_slope[s]
            assert norm(directional(dynamics.inertia, q, x)) <= terms.inertia_slope[s] * (1.0 + 1e-6)


def test_spreads_cover_random_arms_and_payloads(robot, case):
    model, motion, terms = case
    nominal = ArmDynamics(robot, model.total, armature=True)
    regressor = SlotineLiRegressor(robot, EffortMeaning.MOTOR_SIDE)
    rng = np.random.default_rng(2)
    closest = dict.fromkeys(("ratio_rate", "ratio_slope", "drag_rate", "drag_slope", "model_slope"), 0.0)
    for total in truths(robot, 24, rng):
        true = ArmDynamics(robot, total, armature=True)
        for s, (q, v, a) in enumerate(zip(*motion, strict=True)):
            m = nominal.inertia(q)
            root = np.linalg.inv(np.linalg.cholesky(m))
            back = np.linalg.inv(root)

            def norm(x, root=root):
                return np.linalg.norm(root @ x @ root.T, ord=2)

            def ratio_derivative(x, q=q, true=true, root=root, back=back):
                ratio = directional(lambda p: np.linalg.solve(nominal.inertia(p), true.inertia(p)), q, x)
                return np.linalg.norm(back.T @ ratio @ root.T, ord=2)

            def drag(x, twice, q=q, m=m, true=true):
                """The matrix that acts on velocity errors."""
                own, different = coriolis(nominal, q, x), coriolis(true, q, x) - coriolis(nominal, q, x)
                moving = directional(nominal.inertia, q, x) @ np.linalg.solve(m, true.inertia(q) - m)
                return own - different.T + moving + (different if twice else 0.0)

            def model_error(p, v=v, a=a, total=total):
                y = regressor.evaluate_one(p, v, v, a, direction=np.ones(robot.n))
                return np.linalg.solve(nominal.inertia(p), y @ (total - model.total))

            x = rng.normal(size=robot.n)
            x /= np.sqrt(x @ m @ x)
            slope = np.stack([directional(model_error, q, e) for e in np.eye(robot.n)], axis=1)
            reached = {
                "ratio_rate": ratio_derivative(v),
                "ratio_slope": ratio_derivative(x),
                "drag_rate": norm(drag(v, True)),
                "drag_slope": norm(drag(x, False)),
                "model_slope": np.linalg.norm(back.T @ slope @ root.T, ord=2),
            }
            for name, value in reached.items():
                limit = getattr(terms, name)[s]
                assert value <= limit, name
                closest[name] = max(closest[name], value / limit)
    assert min(closest.values()) > 0.05, closest  # not vacuous


def test_parameters_outside_the_box_break_the_spreads(robot, case):
    model, motion, terms = case
    q, v, _ = (x[0] for x in motion)
    m = ArmDynamics(robot, model.total, armature=True)
    heavy = ArmDynamics(robot, add_payload(model.total, 30.0 * model.payload), armature=True)
    ratio = directional(lambda p: np.linalg.solve(m.inertia(p), heavy.inertia(p)), q, v)
    root = np.linalg.inv(np.linalg.cholesky(m.inertia(q)))
    assert np.linalg.norm(np.linalg.inv(root).T @ ratio @ root.T, ord=2) > terms.ratio_rate[0]


@pytest.mark.parametrize("column", [None, 21, 75])
def test_terms_of_the_vertices_and_of_one_more_parameter_are_exact(robot, case, column):
    """They are those of the worst vertex, one by one, and of a single first moment or armature, if that is unknown."""
    model, motion, _ = case
    (q, v, _), uncertainty = motion, inertial_uncertainties(robot, model)[-1]
    radius, one = np.zeros_like(uncertainty.radius), np.zeros_like(uncertainty.radius)
    if column is not None:
        radius[column], one[column] = 0.02, 1.0
    payloads = replace(uncertainty.payloads, radius=np.zeros(10))
    known = replace(uncertainty, radius=radius, payloads=payloads)
    terms = compute_model_terms(robot, known, TermStates(*motion))
    columns, coriolis_of = inertia_columns(robot, q), coriolis_columns(robot, q)
    factor = np.linalg.inv(np.linalg.cholesky(columns @ known.nominal))
    xi = np.linalg.solve(factor.swapaxes(1, 2), v[..., None])[..., 0]

    def christoffel(parameters):  # in coordinates in which M is the unit matrix, in the direction of each of them
        turned = factor[:, None] @ (coriolis_of @ parameters) @ factor[:, None].swapaxes(2, 3)
        return np.einsum("sxj,sjab->sxab", factor, turned)

    def norms(parameters):
        own, off = christoffel(known.nominal), christoffel(parameters)
        moving = (own + own.swapaxes(2, 3)) @ (factor @ (columns @ parameters) @ factor.swapaxes(1, 2))[:, None]
        ratio, drag = off + off.swapaxes(2, 3) - moving, moving - off.swapaxes(2, 3)
        now = [np.einsum("sx,sxab->sab", xi, x) for x in (ratio, drag + off)]
        model = model_slope(robot, known, parameters[: 10 * robot.n], motion)
        return np.array([norm_of_slope(ratio), norm_of_slope(drag), *np.linalg.norm(now, 2, axis=(2, 3)), model])

    found = []
    for offset in known.payloads.vertices - known.payloads.vertices.mean(axis=0):
        parameters = known.center.copy()
        parameters[known.last] += offset
        found.append(norms(parameters))
    expected = np.max(found, axis=0) + (0.0 if column is None else radius[column] * norms(one))
    expected[[1, 3]] += terms.coriolis_slope, terms.coriolis_rate
    names = ("ratio_slope", "drag_slope", "ratio_rate", "drag_rate", "model_slope")
    for name, value in zip(names, expected, strict=True):
        np.testing.assert_allclose(getattr(terms, name), value, rtol=1e-6 if name == "model_slope" else 1e-9)


def model_slope(robot, known, parameters, motion):
    """The norm of the slope of ``M^-1 Y`` times deviations of the bodies, by differences, at each sample."""
    regressor, slopes = TorqueRegressor(robot, EffortMeaning.MOTOR_SIDE), []
    for q, v, a in zip(*motion, strict=True):

        def error(p, v=v, a=a):
            torque = regressor.evaluate(p[None], v[None], a[None])[0, :, : parameters.size] @ parameters
            return np.linalg.solve(inertia_columns(robot, p[None])[0] @ known.nominal, torque)

        m = inertia_columns(robot, q[None])[0] @ known.nominal
        factor = np.linalg.inv(np.linalg.cholesky(m))
        slope = np.stack([directional(error, q, e) for e in np.eye(robot.n)], axis=1)
        slopes.append(np.linalg.norm(factor @ m @ slope @ factor.T, ord=2))
    return np.array(slopes)


def norm_of_slope(matrices):
    """The norm of ``(sum_x X_x X_x^T)^1/2``, X (S, x, n, n)."""
    return np.sqrt(np.linalg.eigvalsh(np.einsum("sxab,sxcb->sac", matrices, matrices))[:, -1])
