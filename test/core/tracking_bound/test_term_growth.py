"""Proven bounds of the slowly varying terms against Pinocchio: anywhere in the tube, and between the samples."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.linalg import eigh

from sysid_ros.core.common.box import Box
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.inertia import unit_inertias
from sysid_ros.core.model.mechanics import ArmDynamics, add_payload
from sysid_ros.core.model.robot import EffortMeaning
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.core.regressors.slotine_li import SlotineLiRegressor
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.tracking_bound import term_growth as growth
from sysid_ros.core.tracking_bound.between import BodySizes
from sysid_ros.core.tracking_bound.bound import tracking_bound
from sysid_ros.core.tracking_bound.enclosed import EnclosedMap
from sysid_ros.core.tracking_bound.inertia_columns import body_jacobians
from sysid_ros.core.tracking_bound.model_terms import TermStates
from sysid_ros.core.tracking_bound.motion import sample_motion
from sysid_ros.core.tracking_bound.tube import TubeMap
from sysid_ros.core.trajectories.families import BezierTrajectory

sys.path.insert(0, str(Path(__file__).parent))
from test_model_terms import coriolis, directional


class Truth:
    """The terms of one arm and payload, in the norm of the inertia at the desired position."""

    def __init__(self, robot, model, total):
        self._n = robot.n
        self._nominal, self._true = (ArmDynamics(robot, x, armature=True) for x in (model.total, total))
        regressor = SlotineLiRegressor(robot, EffortMeaning.MOTOR_SIDE)
        # Friction and armature have bounds of their own.
        off = (total - model.total) * (np.arange(total.size) < 10 * robot.n)
        ones = np.ones(robot.n)
        self._error = lambda q, v, a: regressor.evaluate_one(q, v, v, a, direction=ones) @ off

    def ratios(self, q):
        """Eigenvalues of E."""
        return eigh(self._true.inertia(q), self._nominal.inertia(q), eigvals_only=True)

    def terms(self, desired, q, x):
        """All terms at a position q, for a desired state, and slopes for a direction x of any length."""
        nominal, true, (q_d, v, a) = self._nominal, self._true, desired
        here = nominal.inertia(q_d)
        root, m = np.linalg.inv(np.linalg.cholesky(here)), nominal.inertia(q)
        off = np.linalg.solve(m, true.inertia(q) - m)
        x = x / np.sqrt(x @ here @ x)

        def norm(matrix):
            return np.linalg.norm(root @ matrix @ root.T, ord=2)

        def inertial(y, twice):
            moving = directional(nominal.inertia, q, y)
            ratio = directional(lambda p: true.inertia(p) - nominal.inertia(p), q, y) - moving @ off
            own = coriolis(nominal, q, y)
            different = coriolis(true, q, y) - own
            drag = own - different.T + moving @ off + (different if twice else 0.0)
            return dict(zip(growth.NAMES, map(norm, (moving, own, ratio, drag)), strict=True))

        found = {f"{name}_rate": value for name, value in inertial(v, True).items()}
        found |= {f"{name}_slope": value for name, value in inertial(x, False).items()}
        units = np.eye(self._n)
        errors = [directional(lambda p: np.linalg.solve(nominal.inertia(p), self._error(p, v, a)), q, e) for e in units]
        torques = [directional(lambda p: nominal.passive_torque(p, v, v, a), q, e) for e in units]
        found["model_slope"], found["torque_slope"] = (
            norm(m @ np.stack(errors, axis=1)),
            norm(np.stack(torques, axis=1)),
        )
        found["torque_rate"] = np.linalg.norm(root @ np.stack(torques, axis=1) @ v)
        return found


@pytest.fixture(scope="module", params=["prior", "narrow"])
def case(robot, request):
    rng = np.random.default_rng(3)
    prior = robot.payload_prior
    box = prior.box if request.param == "prior" else Box.around(prior.nominal, 0.075 * prior.box.width)
    model = ControlModel(robot.theta_nominal, robot.theta_box, prior.nominal, box.intersect(prior.box), prior.shape)
    still, turn = np.zeros(robot.n), rng.uniform(-0.4, 0.4, robot.n)
    motion = BezierTrajectory(robot.home, still, still, robot.home + turn, 1.0)
    settings = RobustSettings()
    tube_map = TubeMap(robot, model, sample_motion(motion, robot.n, settings), settings)
    errors = np.tile(np.linspace(0.02, 0.004, robot.n), (tube_map.intervals, 1))
    truths = []
    while len(truths) < 4:
        payload = sample_payload(prior, rng, corner=len(truths) % 2 == 0)
        if model.payload_box.contains(payload):
            truths.append(add_payload(sample_parameters(robot, rng, corner=True), payload))
        elif request.param == "narrow":
            truths.append(add_payload(sample_parameters(robot, rng, corner=True), prior.nominal))
    return motion, tube_map, errors, [Truth(robot, model, total) for total in truths]


def reached_shares(case, errors, rng):
    """Largest shares of bounds that are reached at random times, positions and directions."""
    motion, tube_map, tube_errors, truths = case
    enclosed = EnclosedMap(tube_map, errors)
    found, still = enclosed.terms.largest, enclosed.still_terms()
    lower, upper = enclosed.ratios_near(errors[0], 1.0)
    shares = {}

    def note(name, value):
        shares[name] = max(shares.get(name, 0.0), value)

    for truth in truths:
        for _ in range(12):
            time = rng.uniform(0.1, 0.9)
            q, v, a = (x[0] for x in motion.sample(np.array([time])))
            interval = int(time / tube_map.samples.step) + tube_map.samples.past
            away, x = tube_errors[interval] * rng.choice([-1.0, 1.0], q.size), rng.normal(size=q.size)
            term = enclosed.spread[interval]
            for name, value in truth.terms((q, v, a), q + away, x).items():
                note(name, value / getattr(found, name)[term])
            at_rest = truth.terms((q, 0.0 * v, 0.0 * a), q + away, x)
            for name in ("model_slope", "torque_slope"):
                note("still " + name, at_rest[name] / still[name][term])
            ratios = truth.ratios(q + away)
            note("lower ratio", lower / ratios[0])
            note("upper ratio", ratios[-1] / upper)
    return shares


def test_terms_are_bounded_anywhere_in_the_tube_and_between_the_samples(case):
    shares = reached_shares(case, case[2], np.random.default_rng(0))
    assert 0.01 < min(shares.values()) and max(shares.values()) <= 1.0


def test_bounds_along_the_motion_are_exceeded_in_the_tube(case):
    """The check above sees bounds that do not grow with the errors."""
    shares = reached_shares(case, 0.0 * case[2], np.random.default_rng(0))
    assert max(shares.values()) > 1.01


def test_torque_of_the_motion_changes_by_no_more_than_is_bounded(robot, case):
    motion, tube_map, errors, _ = case
    enclosed = EnclosedMap(tube_map, errors)
    tube = replace(enclosed.empty_tube(), position=errors)
    limit = enclosed.turn_torque(tube)
    arm, rng, shares = ArmDynamics(robot, tube_map.model.total, armature=True), np.random.default_rng(4), []
    for time in rng.uniform(0.0, 1.0, 40):
        q, v, a = (x[0] for x in motion.sample(np.array([time])))
        interval = int(time / tube_map.samples.step) + tube_map.samples.past
        away = errors[interval] * rng.choice([-1.0, 1.0], robot.n)
        shares.append(np.abs(arm.torque(q + away, v, a) - arm.torque(q, v, a)) / limit[interval])
    assert 0.3 < np.max(shares) <= 1.0


def test_a_bound_that_is_proven_throughout(case):
    """With what is known after an identification it is hardly larger, in stops, too."""
    motion, tube_map, _, _ = case
    of = tube_map.robot, tube_map.model
    start, end = motion.evaluate(0.0)[0], motion.evaluate(1.0)[0]
    slow = BezierTrajectory(start, 0.0 * start, 0.0 * start, end, 4.0)
    estimated, proven = (tracking_bound(*of, slow, encloses_terms=x) for x in (False, True))
    stops = [one.in_stops(0.5) for one in (estimated, proven)]
    wider = 1.05 if tube_map.model.payload_box.width[0] < 1.0 else 1.5
    for name in ("position", "velocity", "torque"):
        assert np.all(getattr(proven, name) <= wider * getattr(estimated, name))
    assert np.all(stops[1].position <= wider * stops[0].position)
    assert np.all(0.99 * estimated.position <= proven.position)
    assert "estimated" in estimated.claims and "estimated" not in proven.claims
    following = BezierTrajectory(*slow.evaluate(2.0), start, 4.0)
    tracking_bound(*of, following, history=proven.until(2.0), encloses_terms=True)


def test_derivatives_at_the_nodes(robot):
    """Those of the inertia and of the torque, against differences of Pinocchio's."""
    rng = np.random.default_rng(1)
    theta = robot.theta_nominal
    dynamics = ArmDynamics(robot, theta, armature=True)
    q, v, a = rng.uniform(-1.0, 1.0, (3, robot.n))
    bends = growth.inertia_bends(robot, theta[None, : 10 * robot.n], q[None])[0, 0]
    units = np.eye(robot.n)
    for k, one in enumerate(units):
        for j, other in enumerate(units):
            twice = directional(lambda p, y=other: directional(dynamics.inertia, p, 10.0 * y), q, 10.0 * one) / 100.0
            np.testing.assert_allclose(bends[k, j], twice, atol=1e-5 * np.abs(bends).max())
    tube_map = SimpleNamespace(regressor=TorqueRegressor(robot, EffortMeaning.MOTOR_SIDE))
    derivatives = growth.torque_derivatives(tube_map, TermStates(q[None], v[None], a[None]))
    _, gradient, curves = (x[0] @ theta[: 10 * robot.n] for x in derivatives)
    links = ArmDynamics(robot, theta)

    def slope(p, y):
        return (links.torque(p + 1e-3 * y, v, a) - links.torque(p - 1e-3 * y, v, a)) / 2e-3

    for k, one in enumerate(units):
        np.testing.assert_allclose(gradient[k], slope(q, one), atol=1e-5 * np.abs(gradient).max())
        for j, other in enumerate(units):
            twice = (slope(q + 1e-3 * one, other) - slope(q - 1e-3 * one, other)) / 2e-3
            np.testing.assert_allclose(curves[k, j], twice, atol=1e-5 * np.abs(curves).max())


def test_the_energy_of_what_a_joint_turns_is_bounded_whatever_is_beyond_it(robot):
    """One number for each joint bounds how the velocities of all bodies change with it, whatever outer joints do."""
    rng, shares = np.random.default_rng(5), []
    n, dynamics = robot.n, ArmDynamics(robot, robot.theta_nominal, armature=True)
    bodies = np.tensordot(robot.theta_nominal[: 10 * n].reshape(n, 10), unit_inertias(), (1, 0))
    spreads = 0.1 * np.abs(robot.theta_nominal[: 10 * n]).reshape(n, 10)
    deviations = np.tensordot(spreads * rng.choice([-1.0, 1.0], spreads.shape), unit_inertias(), (1, 0))
    sizes = [BodySizes.of(np.append(x.ravel(), np.zeros(n)), n) for x in (robot.theta_nominal[: 10 * n], spreads)]
    for _ in range(20):
        q = rng.uniform(-np.pi, np.pi, n)
        root = np.linalg.inv(np.linalg.cholesky(dynamics.inertia(q)))
        states = TermStates(*(np.stack([x, x]) for x in (q, 0.0 * q, 0.0 * q)))
        nominal, spread = (
            growth.Energies(robot, one, states, np.stack([root, root]), k == 0) for k, one in enumerate(sizes)
        )
        for k in range(1, n):
            others = np.tile(q, (40, 1))
            others[:, k:] = rng.uniform(-np.pi, np.pi, (40, n - k))
            step = 1e-6 * np.eye(n)[k]
            jacobians = (body_jacobians(robot, others + step) - body_jacobians(robot, others - step)) / 2e-6
            turned = jacobians @ root.T  # (b, 40, 6, n)
            energy = np.einsum("bsxi,bxy,bsyj->sij", turned, bodies, turned)
            shares.append(np.sqrt(np.linalg.eigvalsh(energy)[:, -1].max()) / nominal.kappa[0, k])
            off = np.einsum("bsxi,bxy,bsyj->sij", turned, deviations, turned)
            assert np.abs(np.linalg.eigvalsh(off)).max() <= spread.kappa[0, k] ** 2
    assert 0.6 < np.max(shares) <= 1.0


def test_what_is_beyond_first_order(robot, case):
    """Of the inertia and its slope, for random errors, and their derivatives along lines."""
    _, tube_map, _, _ = case
    rng, shares = np.random.default_rng(2), []
    dynamics = ArmDynamics(robot, tube_map.model.total, armature=True)
    sizes = BodySizes.of(tube_map.uncertainty.nominal, robot.n)
    for _ in range(10):
        q, v = robot.home + rng.uniform(-1.0, 1.0, robot.n), rng.uniform(-0.5, 0.5, robot.n)
        size = rng.uniform(0.0, 0.1, robot.n)
        m = dynamics.inertia(q)
        root = np.linalg.inv(np.linalg.cholesky(m))
        states = TermStates(*(np.stack([x, x]) for x in (q, v, v)))
        energies = growth.Energies(robot, sizes, states, np.stack([root, root]), True)
        change, line = energies.change(np.stack([size, size])), energies.line(np.stack([size, size]), 0.0 * states.q)

        def norm(x, root=root):
            return np.linalg.norm(root @ x @ root.T, ord=2)

        def moving(p, y=v):
            return directional(dynamics.inertia, p, y)

        for _ in range(20):
            away = size * rng.choice([-1.0, 1.0], robot.n)
            first = directional(dynamics.inertia, q, away)
            shares.append(norm(dynamics.inertia(q + away) - m - first) / change.inertia[2][0])
            shares.append(norm(dynamics.inertia(q + away) - m) / change.inertia[1][0])
            shares.append(norm(first) / line.inertia[1][0])
            shares.append(norm(moving(q + away) - moving(q)) / change.rate[1][0])
            slope = (moving(q + 0.01 * away) - moving(q - 0.01 * away)) / 0.02
            shares.append(norm(slope) / line.rate[1][0])
            shares.append(norm(moving(q + away) - moving(q) - slope) / change.rate[2][0])
            x = rng.normal(size=robot.n)
            x /= np.sqrt(x @ m @ x)
            shares.append(norm(moving(q + away, x) - moving(q, x)) / change.slope[1][0])
    assert 0.1 < max(shares) <= 1.0
