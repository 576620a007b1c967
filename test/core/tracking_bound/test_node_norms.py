"""Norms at the nodes of a motion against differences of the inertia and the torque, by parameter, for all vertices."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from sysid_ros.core.common.box import Box
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.robot import EffortMeaning
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.tracking_bound.inertia_columns import inertia_columns
from sysid_ros.core.tracking_bound.model_terms import TermStates
from sysid_ros.core.tracking_bound.motion import sample_motion
from sysid_ros.core.tracking_bound.node_norms import LINE_STEP, Derivatives, compute_node_norms, norm_of_sum
from sysid_ros.core.tracking_bound.tube import TubeMap
from sysid_ros.core.tracking_bound.uncertainty import extreme_inertias

STEP = 4e-3
ALLOWED = 1.001
"""Allowance for differences of the torque in the kernel."""


def differentiate(function, q, order):
    """All derivatives of a function of positions (S, n), (n, ..., n, ...), by central differences."""
    n, signs = q.size, list(product((1.0, -1.0), repeat=order))
    joints = list(product(range(n), repeat=order))
    points = np.array([[q + STEP * sum(s * np.eye(n)[k] for s, k in zip(sign, at, strict=True)) for sign in signs]
                       for at in joints])  # fmt: skip
    values = function(points.reshape(-1, n))
    weights = np.prod(np.array(signs), axis=1) / (2.0 * STEP) ** order
    values = np.tensordot(values.reshape(len(joints), len(signs), *values.shape[1:]), weights, (1, 0))
    return values.reshape(*(n,) * order, *values.shape[1:])


class Oracle:
    """Forms by parameter at one node, in coordinates in which the nominal inertia is the unit matrix."""

    def __init__(self, robot, kind):
        self.robot, rng, prior = robot, np.random.default_rng(4), robot.payload_prior
        n = self.n = robot.n
        box = prior.box if kind == "prior" else Box.around(prior.nominal, 0.1 * prior.box.width)
        model = ControlModel(robot.theta_nominal, robot.theta_box, prior.nominal, box.intersect(prior.box), prior.shape)
        settings = RobustSettings()
        tube_map = TubeMap(robot, model, sample_motion(robot.home, n, settings), settings)
        known = self.known = tube_map.uncertainty
        q = robot.home + np.cumsum(rng.uniform(-0.2, 0.2, (3, n)), axis=0)
        self.states = TermStates(q, *rng.uniform(-1.0, 1.0, (2, 3, n)))
        self.norms = compute_node_norms(tube_map, self.states)
        self.q, self.v, self.a = (x[1] for x in (self.states.q, self.states.v, self.states.a))
        self.last, self.spread = known.last, known.spread[: 10 * n]
        self.vertices = np.tile(known.center, (len(known.payloads.vertices), 1))
        self.vertices[:, known.last] += known.payloads.vertices - known.payloads.vertices.mean(axis=0)
        self.inertia = inertia_columns(robot, q)[1]
        self.root = np.linalg.inv(np.linalg.cholesky(self.inertia @ known.nominal))
        self.xi = np.linalg.solve(self.root.T, self.v)
        self._regressor = TorqueRegressor(robot, EffortMeaning.MOTOR_SIDE)

    def columns(self, q):
        """Inertia of bodies by parameter, (S, n, n, 10 n)."""
        return inertia_columns(self.robot, q)[..., : 10 * self.n]

    def torques(self, q, v, a):
        """Torque by parameter, (S, n, 10 n), with a velocity and an acceleration."""
        return self._regressor.inertial(q, np.tile(v, (len(q), 1)), np.tile(a, (len(q), 1)))

    def by_direction(self, values):
        """Sum the derivatives (..., j, a, b, l) of an inertia to those by direction, in the coordinates."""
        return np.einsum("xj,ai,bm,...jiml->...xabl", self.root, self.root, self.root, values, optimize=True)

    def whiten(self, values):
        """Turn matrices (..., a, b, l) into the coordinates."""
        return np.einsum("ai,bj,...ijl->...abl", self.root, self.root, values, optimize=True)

    def of(self, values, parameters):
        """Contract (..., l) with parameters."""
        return values @ parameters[: values.shape[-1]]


def close(found, expected, tolerance=2e-4):
    np.testing.assert_allclose(found, expected, atol=tolerance * np.abs(expected).max() + 1e-10)


def inner(values):
    """Magnitudes of the inner products of (k, ...) by two joints."""
    flattened = values.reshape(len(values), -1)
    return np.abs(flattened @ flattened.T)


def frobenius(values, joints):
    """Roots of sums of squares of (joints ..., entries ...)."""
    return np.sqrt(np.sum(values.reshape(*values.shape[:joints], -1) ** 2, axis=-1))


def christoffel(slopes):
    """Christoffel matrices (..., x, a, b) by the definition, of slopes of an inertia."""
    return 0.5 * (slopes + np.einsum("...bax->...xab", slopes) - np.einsum("...axb->...xab", slopes))


@pytest.fixture(scope="module", params=["prior", "narrow"])
def oracle(robot, request):
    return Oracle(robot, request.param)


def check_growth(oracle, growth, once, twice):
    """Compare nominal norms, the largest of any vertex, and those of the spread, with derivatives by parameter."""
    nominal, vertices, spread = ([x.first[1], x.second[1]] for x in growth)
    of = oracle.of
    close(nominal[0][0], inner(of(once, oracle.known.nominal)))
    close(nominal[1], frobenius(of(twice, oracle.known.nominal), 2))
    close(vertices[0][0], np.max([inner(of(once, x)) for x in oracle.vertices], axis=0))
    close(vertices[1], np.max([frobenius(of(twice, x), 2) for x in oracle.vertices], axis=0))
    radius = oracle.spread
    own = [radius[p] ** 2 * inner(once[..., p]) for p in range(oracle.last.start, oracle.last.stop)]
    close(spread[0][:-1], np.array(own))
    arm = sum(radius[p] * frobenius(once[..., p], 1) for p in range(oracle.last.start))
    close(spread[0][-1], np.outer(arm, arm))
    close(spread[1], sum(radius[p] * frobenius(twice[..., p], 2) for p in range(oracle.last.start, oracle.last.stop)))


@pytest.fixture(scope="module")
def derivatives(oracle):
    """Derivatives of the inertia by parameter, of order 1 to 3."""
    return [differentiate(oracle.columns, oracle.q, order) for order in (1, 2, 3)]


def test_the_inertia(oracle, derivatives):
    norms, known = oracle.norms, oracle.known
    once, twice = (oracle.whiten(x) for x in derivatives[:2])
    check_growth(oracle, (norms.inertia, norms.deviation, norms.spread), once, twice)
    close(norms.arm_change[1], sum(known.radius[p] * frobenius(once[..., p], 1) for p in range(once.shape[-1])))
    unknown, radius = oracle.whiten(oracle.inertia), known.spread
    size = np.maximum(np.sqrt(np.sum(unknown**2, axis=(0, 1))), 1e-300)
    squares = np.einsum("l,abl,cbl->ac", radius / size, unknown, unknown)
    close(norms.known[1], np.sqrt((radius @ size) * np.linalg.eigvalsh(squares)[-1]), 1e-9)


def test_slopes_rates_and_coriolis_matrices(oracle, derivatives):
    once, twice = (oracle.by_direction(x) for x in derivatives[1:])
    found = oracle.norms.slopes
    check_growth(oracle, found["slope"], once, twice)
    now = [np.einsum("...xabl,x->...abl", x, oracle.xi) for x in (once, twice)]
    check_growth(oracle, found["rate"], *now)
    turning = [np.moveaxis(christoffel(np.moveaxis(x, -1, 0)), 0, -1) for x in (once, twice)]
    check_growth(oracle, found["coriolis"], *(np.einsum("...xabl,x->...abl", x, oracle.xi) for x in turning))


def test_terms_with_a_changing_metric(oracle, derivatives):
    """First derivatives of the slope and the rate of E and of the drag, in which P M^-1 D is differentiated whole."""
    known, root = oracle.known, oracle.root
    armature = np.diag(known.nominal[10 * oracle.n :])
    largest = {}
    slopes = oracle.by_direction(derivatives[1])
    own = christoffel(oracle.of(slopes, known.nominal))
    for parameters in oracle.vertices:
        off_armature = np.diag(parameters[10 * oracle.n :])

        def carried(q, parameters=parameters, off_armature=off_armature):
            m, off = (oracle.of(oracle.columns(q), x) for x in (known.nominal, parameters))
            units = STEP * np.eye(oracle.n)
            ahead, behind = (np.stack([oracle.of(oracle.columns(q + s * e), known.nominal) for e in units], axis=1)
                             for s in (1.0, -1.0))  # fmt: skip
            ratio = np.linalg.solve(m + armature, off + off_armature)
            return np.einsum("xj,ai,bm,sjim->sxab", root, root, root, (ahead - behind) / (2.0 * STEP) @ ratio[:, None])

        product_, off = differentiate(carried, oracle.q, 1), oracle.of(slopes, parameters)
        coriolis = christoffel(off)
        turned = coriolis.swapaxes(-1, -2)

        def now(values):
            return np.einsum("kxab,x->kab", values, oracle.xi)

        terms = {
            "ratio_slope": off - product_, "drag_slope": product_ - turned, "ratio_rate": now(off - product_),
            "drag_rate": now(product_ + coriolis - turned),
        }  # fmt: skip
        for name, values in terms.items():
            largest[name] = np.maximum(largest.get(name, 0.0), inner(values))
    first = oracle.norms.first
    for name, values in largest.items():
        close(first[name][1, 0], values)
    for kind, values in (("slope", own), ("rate", np.einsum("kxab,x->kab", own, oracle.xi))):
        close(first["coriolis_" + kind][1, 0], inner(values))
        close(first["drag_" + kind][1, 1], inner(values))
    nominal = oracle.of(slopes, known.nominal)
    close(first["inertia_slope"][1, 0], inner(nominal))
    close(first["inertia_rate"][1, 0], inner(np.einsum("kxab,x->kab", nominal, oracle.xi)))


def test_extreme_eigenvalues(oracle, derivatives):
    """Where an inertia is far from the most extreme one, only by how much is known."""
    known, (once, twice) = oracle.known, (oracle.whiten(x) for x in derivatives[:2])
    # The kernel has coordinates of its own: its matrices are turned back.
    turn = oracle.root @ np.linalg.inv(oracle.norms.factor[1])
    for sign, found, (inertias, payloads) in zip(
        (-1.0, 1.0), oracle.norms.extremes, extreme_inertias(oracle.robot, known, oracle.states.q), strict=True
    ):
        values, vectors = np.linalg.eigh(sign * turn @ inertias[1] @ turn.T)
        most = values.max() + 1e-9
        close(found.ratio[1], sign * most, 1e-9)
        first, second = [], []
        for k, payload in enumerate(payloads):
            parameters = known.center + (1.0 - sign * most) * known.nominal
            parameters[known.last] += payload - known.payloads.vertices.mean(axis=0)
            change, u = oracle.of(once, parameters), vectors[k, :, -1]
            first.append(inner(change))
            second.append(frobenius(oracle.of(twice, parameters), 2))
            below = most - values[k, -1]
            if found.gap[1, k] == 0.0 and below > 0.03:
                assert found.below[1, k] <= below and found.own[1, k].min() > 1e3
                continue
            close(found.below[1, k], below, 1e-8)
            close(found.gap[1, k], values[k, -1] - values[k, -2], 1e-8)
            turned = change @ u
            close(found.own[1, k], np.abs(turned @ u), 1e-3)
            close(found.across[1, k], np.linalg.norm(turned - np.outer(turned @ u, u), axis=1), 1e-3)
        close(found.changes.first[1, 0], np.max(first, axis=0), 1e-3)
        close(found.changes.second[1], np.max(second, axis=0), 1e-3)


@pytest.mark.parametrize("at_rest", [False, True])
def test_the_torque(oracle, derivatives, at_rest):
    known, root, radius = oracle.known, oracle.root, oracle.spread
    v, a = ((1.0 - at_rest) * x for x in (oracle.v, oracle.a))
    found = oracle.norms.still if at_rest else oracle.norms.moving
    size = np.abs(root.T @ root)

    def torques(q):
        return oracle.torques(q, v, a)

    once, twice, thrice = (differentiate(torques, oracle.q, order) for order in (1, 2, 3))
    here = torques(oracle.q[None])[0]

    def curve(values):  # (..., j, i, l), as matrices of torque and joint
        return oracle.whiten(np.swapaxes(values, -3, -2))

    def length(values):
        return np.sqrt(np.einsum("...i,ij,...j->...", values, size, values))

    nominal = oracle.of(curve(twice), known.nominal)
    close(found.torque.first[1, 0], ALLOWED**2 * inner(nominal))
    close(found.torque.second[1], ALLOWED * frobenius(oracle.of(curve(thrice), known.nominal), 2), 1e-3)
    close(found.rate.first[1, 0], ALLOWED**2 * inner(nominal @ oracle.xi))
    close(found.rate.second[1], ALLOWED * frobenius(oracle.of(curve(thrice), known.nominal) @ oracle.xi, 2), 1e-3)
    error_spread, by_joint, bent = (np.abs(x) @ radius for x in (here, once, twice))
    close(found.error_spread[1], length(error_spread))
    close(found.errors_spread[1], ALLOWED * length(by_joint))
    flat = [np.sqrt(np.sum(x * (size @ x @ size))) for x in bent]
    close(found.curved_spread[1], ALLOWED * np.array(flat))
    close(found.speed[1], np.linalg.norm(oracle.xi))
    parts = {"model": [], "third": [], "errors": [], "second": [], "error": []}
    slope, curvature = (oracle.of(x, known.nominal) for x in derivatives[:2])
    inverse = root.T @ root
    for parameters in oracle.vertices:
        torque, gradient, second = (oracle.of(x, parameters) for x in (here, once, twice))
        ratio, moved = (
            inverse @ torque,
            [inverse @ (x - y @ inverse @ torque) for x, y in zip(gradient, slope, strict=True)],
        )
        changed = np.stack([
            np.stack([second[k, j] - curvature[k, j] @ ratio - slope[j] @ moved[k] for j in range(oracle.n)], axis=1)
            for k in range(oracle.n)
        ])  # fmt: skip
        parts["model"].append(inner(root @ changed @ root.T))
        parts["third"].append(frobenius(oracle.of(curve(thrice), parameters), 2))
        parts["errors"].append(inner(gradient @ root.T))
        parts["second"].append(frobenius(second @ root.T, 2))
        parts["error"].append(np.linalg.norm(root @ torque))
    largest = {name: np.max(values, axis=0) for name, values in parts.items()}
    known_last = range(oracle.last.start, oracle.last.stop)
    third = sum(radius[p] * frobenius(curve(thrice)[..., p], 2) for p in known_last)
    close(found.model.first[1, 0], ALLOWED**2 * largest["model"])
    close(found.model.second[1], ALLOWED * (largest["third"] + third), 1e-3)
    close(found.errors.first[1, 0], ALLOWED**2 * largest["errors"])
    close(found.errors.first[1, 1], ALLOWED**2 * np.outer(length(by_joint), length(by_joint)))
    close(found.errors.second[1], ALLOWED * (largest["second"] + length(bent)))
    close(found.error[1], largest["error"] + length(error_spread))


@pytest.mark.parametrize("side", [0, 1])
def test_torques_along_lines(oracle, side):
    known, root, radius, states = oracle.known, oracle.root, oracle.spread, oracle.states
    size, other = np.abs(root.T @ root), 0 if side else 2

    def bent(order):
        values = []
        for step in (LINE_STEP, -LINE_STEP, 0.0):
            q, v, a = (x[1] + step * (x[other] - x[1]) for x in (states.q, states.v, states.a))
            values.append(differentiate(lambda p, v=v, a=a: oracle.torques(p, v, a), q, order))
        return (values[0] + values[1] - 2.0 * values[2]) / LINE_STEP**2

    value, gradient, second = (bent(order) for order in range(3))
    gradient = gradient.swapaxes(0, 1)  # torque, joint
    second = oracle.whiten(np.swapaxes(second, 1, 2))
    found, known_last = oracle.norms.lines[side], range(oracle.last.start, oracle.last.stop)

    def largest(values, joints):
        return np.max([frobenius(oracle.of(values, x), joints) for x in oracle.vertices], axis=0)

    def spread(values):
        return sum(radius[p] * frobenius(values[..., p], 1) for p in known_last)

    entries, torques = np.abs(gradient) @ radius, np.abs(value) @ radius
    flat, length = np.sqrt(np.sum(entries * (size @ entries @ size))), np.sqrt(torques @ size @ torques)
    turned, pushed = np.einsum("ai,jil->jal", root, gradient.swapaxes(0, 1)), np.tensordot(root, value, (1, 0))
    close(found.torque[1], ALLOWED * frobenius(oracle.of(oracle.whiten(gradient), known.nominal), 0), 1e-3)
    close(found.model[1], ALLOWED * (largest(oracle.whiten(gradient), 0) + flat), 1e-3)
    close(found.error[1], ALLOWED * (largest(pushed, 0) + length), 1e-3)
    close(found.torque_slope[1], ALLOWED * frobenius(oracle.of(second, known.nominal), 1), 2e-3)
    close(found.model_slope[1], ALLOWED * (largest(second, 1) + spread(second)), 2e-3)
    close(found.error_slope[1], ALLOWED * (largest(turned, 1) + spread(turned)), 1e-3)


def test_norms_of_sums_over_joints_are_bounded_for_all_payloads(oracle, derivatives):
    """For any convex combination of the vertices and any spread about it."""
    rng, once, norms, shares = np.random.default_rng(1), oracle.whiten(derivatives[0]), oracle.norms, []
    size = rng.uniform(0.0, 1.0, (3, oracle.n))
    bound = norm_of_sum(size, norms.deviation.first)[1]
    wider = bound + norm_of_sum(size, norms.spread.first)[1]
    for _ in range(300):
        weights = size[1] * rng.choice([-1.0, 1.0], oracle.n)
        mixture = rng.dirichlet(0.1 * np.ones(len(oracle.vertices))) @ oracle.vertices
        unknown = mixture[: 10 * oracle.n] + oracle.spread * rng.choice([-1.0, 1.0], 10 * oracle.n)
        found = [np.linalg.norm(np.tensordot(weights, oracle.of(once, x), (0, 0))) for x in (mixture, unknown)]
        assert found[1] <= wider * (1.0 + 1e-5)
        shares.append(found[0] / bound)
    assert 0.3 < max(shares) <= 1.0 + 1e-5


def test_taylor_polynomials_of_norms():
    """Of a quadratic form everything is exact but for signs."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=4), rng.normal(size=(4, 4))
    second = second + second.T
    growth = Derivatives(np.abs(np.outer(first, first))[None, None], np.abs(second)[None])
    away, turns, none = rng.uniform(0.0, 1.0, (1, 4)), rng.uniform(0.0, 1.0, (1, 4)), np.zeros(1)
    bounds = *growth.near(away, none), growth.first_along(turns, away, none), growth.twice(turns, turns)
    shares = []
    for _ in range(300):
        e, d = (x[0] * rng.choice([-1.0, 1.0], 4) for x in (away, turns))
        values = first @ e, 0.5 * e @ second @ e, d @ (first + second @ e), d @ second @ d
        shares.append([abs(value) / bound[0] for value, bound in zip(values, bounds, strict=True)])
    assert np.all(np.max(shares, axis=0) <= 1.0 + 1e-12) and np.all(np.max(shares, axis=0) > 0.25)


def test_what_is_not_known_of_the_arm_changes_with_the_joints_by_no_more_than_is_bounded(robot):
    rng, n = np.random.default_rng(2), robot.n
    prior = robot.payload_prior
    model = ControlModel(robot.theta_nominal, robot.theta_box, prior.nominal, prior.box, prior.shape)
    settings = RobustSettings()
    tube_map = TubeMap(robot, model, sample_motion(robot.home, n, settings), settings)
    q, v = robot.home + rng.uniform(-0.5, 0.5, n), rng.uniform(-1.0, 1.0, n)
    root = np.linalg.inv(np.linalg.cholesky(ArmDynamics(robot, model.total, armature=True).inertia(q)))
    norms = compute_node_norms(tube_map, TermStates(q[None], v[None], 0.0 * v[None]))
    bounds = {kind: np.sqrt(np.diagonal(norms.slopes[kind][2].first[0, -1]))[None] for kind in ("slope", "rate")}
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
