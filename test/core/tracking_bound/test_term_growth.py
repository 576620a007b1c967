"""Proven bounds of the slowly varying terms against Pinocchio: anywhere in the tube, and between the samples."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import eigh

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.inertia import unit_inertias
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.mechanics import ArmDynamics, add_payload
from sysid_ros.core.model.robot import EffortMeaning
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.core.tracking_bound import enclosed
from sysid_ros.core.tracking_bound.between import BodySizes
from sysid_ros.core.tracking_bound.bound import tracking_bound
from sysid_ros.core.tracking_bound.derivative_bounds import Energies, TorqueDerivatives
from sysid_ros.core.tracking_bound.enclosed import EnclosedMap
from sysid_ros.core.tracking_bound.inertia_columns import body_jacobians
from sysid_ros.core.tracking_bound.motion import sample_motion
from sysid_ros.core.tracking_bound.node_norms import NAMES
from sysid_ros.core.tracking_bound.tube import TubeMap
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.papers.baselines.slotine_li import SlotineLiRegressor

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
            return dict(zip(NAMES, map(norm, (moving, own, ratio, drag)), strict=True))

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


def make_case(robot, kind, turn):
    """A motion, its tube map, errors, and arms with payloads that are known roughly or well."""
    rng, prior = np.random.default_rng(3), robot.payload_prior
    box = prior.box if kind == "prior" else Box.around(prior.nominal, 0.075 * prior.box.width)
    model = ControlModel(robot.theta_nominal, robot.theta_box, prior.nominal, box.intersect(prior.box), prior.shape)
    still = np.zeros(robot.n)
    motion = BezierTrajectory(robot.home, still, still, robot.home + turn, 1.0)
    settings = RobustSettings()
    tube_map = TubeMap(robot, model, sample_motion(motion, robot.n, settings), settings)
    errors = np.tile(np.linspace(0.02, 0.004, robot.n), (tube_map.intervals, 1))
    truths = []
    while len(truths) < 4:
        payload = sample_payload(prior, rng, corner=len(truths) % 2 == 0)
        if model.payload_box.contains(payload):
            truths.append(add_payload(sample_parameters(robot, rng, corner=True), payload))
        elif kind == "narrow":
            truths.append(add_payload(sample_parameters(robot, rng, corner=True), prior.nominal))
    return motion, tube_map, errors, [Truth(robot, model, total) for total in truths]


@pytest.fixture(scope="module", params=["prior", "narrow"])
def case(robot, request):
    return make_case(robot, request.param, np.random.default_rng(3).uniform(-0.4, 0.4, robot.n))


def reached_shares(case, errors, rng):
    """Largest shares of bounds that are reached at random times, positions and directions."""
    motion, tube_map, tube_errors, truths = case
    enclosed = EnclosedMap(tube_map, errors)
    found, still = enclosed.terms.largest, enclosed.still_terms()
    lower, upper = enclosed.ratios_near(errors[0], 1.0)
    shares = {}

    def note(name, value, bound):
        shares[name] = max(shares.get(name, 0.0), value / max(bound, 1e-9))

    for truth in truths:
        for _ in range(12):
            time = rng.uniform(0.1, 0.9)
            q, v, a = (x[0] for x in motion.sample(np.array([time])))
            interval = int(time / tube_map.samples.step) + tube_map.samples.past
            away, x = tube_errors[interval] * rng.choice([-1.0, 1.0], q.size), rng.normal(size=q.size)
            term = enclosed.spread[interval]
            for name, value in truth.terms((q, v, a), q + away, x).items():
                note(name, value, getattr(found, name)[term])
            at_rest = truth.terms((q, 0.0 * v, 0.0 * a), q + away, x)
            for name in ("model_slope", "torque_slope"):
                note("still " + name, at_rest[name], still[name][term])
            ratios = truth.ratios(q + away)
            note("lower ratio", lower, ratios[0])
            note("upper ratio", ratios[-1], upper)
    return shares


def test_terms_are_bounded_anywhere_in_the_tube_and_between_the_samples(case):
    shares = reached_shares(case, case[2], np.random.default_rng(0))
    assert 0.01 < min(shares.values()) and max(shares.values()) <= 1.0


def test_coriolis_matrices_change_with_the_errors_where_only_the_base_turns(robot):
    """The inertia does not change with the first joint, so its rate is zero, but Coriolis matrices are not."""
    motion, tube_map, errors, truths = make_case(robot, "narrow", 0.4 * np.eye(robot.n)[0])
    shares = reached_shares((motion, tube_map, 2.0 * errors, truths), 2.0 * errors, np.random.default_rng(5))
    assert max(shares[name] for name in ("coriolis_rate", "drag_rate")) > 0.5
    assert max(shares.values()) <= 1.0


def test_bounds_along_the_motion_are_exceeded_in_the_tube(case, monkeypatch):
    """The check above sees bounds that do not grow with the errors."""
    monkeypatch.setattr(enclosed, "_TURN", 0.02)
    monkeypatch.setattr(enclosed, "_SAG", 1e-5)
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


def test_gradients_change_by_no_more_than_is_bounded_from_either_end_of_a_line(monkeypatch):
    """The end with the smaller gradient may be the one where it changes by more."""
    monkeypatch.setattr(enclosed, "_TURN", 0.2)
    monkeypatch.setattr(enclosed, "_SAG", 0.01)
    monkeypatch.setattr(enclosed, "_SHARE", 0.05)
    robot, shares, settings = load_robot("ur5e"), [], RobustSettings()
    still, nominal = np.zeros(robot.n), robot.payload_prior.nominal
    model = ControlModel(robot.theta_nominal, robot.theta_box, nominal, Box(nominal, nominal))
    links, arm = ArmDynamics(robot, model.total), ArmDynamics(robot, model.total, armature=True)
    middle, turn = np.array([-0.5506, 0.6665, -0.161, -0.3587, -0.0231, -0.8879]), 0.606 * np.eye(robot.n)[3]
    motion = BezierTrajectory(middle - turn, still, still, middle + turn, 2.5)
    tube_map = TubeMap(robot, model, sample_motion(motion, robot.n, settings), settings)
    away = 0.08 * np.eye(robot.n)[3]
    enclosed_map = EnclosedMap(tube_map, np.tile(away, (tube_map.intervals, 1)))
    enclosure, nodes = enclosed_map._enclosure, tube_map.samples.q[enclosed_map._nodes]
    turned = enclosure.bound(np.tile(away, (enclosure.intervals, 1))).still["turned"]

    def gradient(q):
        units = 1e-5 * np.eye(robot.n)
        return np.stack([(links.gravity(q + e) - links.gravity(q - e)) / 2e-5 for e in units], axis=1)

    for k, limit in enumerate(turned):
        for q in nodes[k : k + 2]:
            root = np.linalg.inv(np.linalg.cholesky(arm.inertia(q)))
            for sign in (1.0, -1.0):
                change = root @ (gradient(q + sign * away) - gradient(q)) @ root.T
                shares.append(np.linalg.norm(change, ord=2) / limit)
    assert 0.8 < max(shares) <= 1.0


def test_a_bound_that_is_proven_throughout(case):
    """With what is known after an identification it is hardly larger, in stops, too."""
    motion, tube_map, _, _ = case
    of = tube_map.robot, tube_map.model
    start, end = motion.evaluate(0.0)[0], motion.evaluate(1.0)[0]
    slow = BezierTrajectory(start, 0.0 * start, 0.0 * start, end, 4.0)
    estimated, proven = (tracking_bound(*of, slow, encloses_terms=x) for x in (False, True))
    stops = [one.in_stops(0.5) for one in (estimated, proven)]
    wider = 1.05 if tube_map.model.payload_box.width[0] < 1.0 else 1.1
    for name in ("position", "velocity", "torque"):
        assert np.all(getattr(proven, name) <= wider * getattr(estimated, name))
    assert np.all(stops[1].position <= wider * stops[0].position)
    assert np.all(0.95 * estimated.position <= proven.position)
    assert "estimated" in estimated.claims and "estimated" not in proven.claims
    following = BezierTrajectory(*slow.evaluate(2.0), start, 4.0)
    assert tracking_bound(*of, following, history=proven.until(2.0), encloses_terms=True).is_proven
    assert not estimated.is_proven
    with pytest.raises(ParameterOutOfRange, match="terms of the model in the history"):
        tracking_bound(*of, following, history=estimated.until(2.0), encloses_terms=True)


def derivative(function, q, *directions):
    """Mixed derivative of a function of the position along directions, by central differences."""
    if not directions:
        return function(q)
    first, *others = directions
    ahead, behind = (derivative(function, q + sign * 5e-3 * first, *others) for sign in (1.0, -1.0))
    return (ahead - behind) / 1e-2


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
        nominal, spread = (
            Energies(robot, one, q[None], 0.0 * q[None], root[None], k == 0) for k, one in enumerate(sizes)
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


def test_derivatives_of_the_inertia_near_a_node_are_bounded(robot):
    """Of the inertia, its slope and its rate, for random directions, up to the highest order that is used."""
    rng, shares, n = np.random.default_rng(2), {}, robot.n
    dynamics = ArmDynamics(robot, robot.theta_nominal, armature=True)
    sizes = BodySizes.of(np.append(robot.theta_nominal[: 10 * n], np.zeros(n)), n)
    for _ in range(8):
        q, v, away = rng.uniform(-1.5, 1.5, n), rng.uniform(-0.5, 0.5, n), rng.uniform(0.0, 0.1, n)
        m = dynamics.inertia(q)
        root = np.linalg.inv(np.linalg.cholesky(m))
        energies = Energies(robot, sizes, q[None], np.abs(v)[None], root[None], True)
        for order in range(1, 5):
            directions = rng.uniform(-1.0, 1.0, (order, n)) * rng.choice([0.1, 1.0], (order, n))
            beside, x = q + away * rng.choice([-1.0, 1.0], n), rng.normal(size=n)
            x /= np.sqrt(x @ m @ x)
            for kind, along in (("inertia", []), ("slope", [x]), ("rate", [v])):
                found = derivative(dynamics.inertia, beside, *directions, *along)
                bound = getattr(energies, kind)(away[None], *np.abs(directions)[:, None])[0]
                share = np.linalg.norm(root @ found @ root.T, ord=2) / bound
                shares[kind, order] = max(shares.get((kind, order), 0.0), share)
    assert max(shares.values()) <= 1.0
    assert min(shares[kind, 1] for kind in ("inertia", "slope", "rate")) > 0.01


def test_derivatives_of_the_torque_are_bounded_anywhere(robot):
    rng, shares, n = np.random.default_rng(3), [], robot.n
    links, zero = ArmDynamics(robot, robot.theta_nominal), np.zeros(robot.n)
    sizes = BodySizes.of(np.append(robot.theta_nominal[: 10 * n], zero), n)
    for order in (0, 2, 3, 4):
        bounds = TorqueDerivatives(robot, sizes, order)
        for scales in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)):
            q, v, a = rng.uniform(-np.pi, np.pi, n), *(size * rng.uniform(-2.0, 2.0, n) for size in scales)
            direction = rng.choice([-1.0, 1.0], n) * rng.dirichlet(np.ones(n))
            states, along = (np.abs(v)[None], np.abs(a)[None], np.ones(1)), (direction,) * order
            found = derivative(lambda p, v=v, a=a: links.torque(p, v, a), q, *along)
            shares.append(np.max(np.abs(found) / bounds.torque(*states)[0]))
            slope = bounds.slope(*states)[0]
            for k, unit in enumerate(np.eye(n)):
                found = derivative(lambda p, v=v, a=a: links.torque(p, v, a), q, *along, unit)
                shares.append(np.max(np.abs(found) / np.maximum(slope[k], 1e-9 + 1e-3 * slope.max())))
    assert 0.1 < max(shares) <= 1.0


def test_terms_of_few_nodes_are_bounded_as_well(case, monkeypatch):
    """Where nodes are as far apart as can be, what happens along the lines between them counts most."""
    monkeypatch.setattr(enclosed, "_TURN", 0.4)
    monkeypatch.setattr(enclosed, "_SAG", 0.02)
    monkeypatch.setattr(enclosed, "_SHARE", 0.2)
    shares = reached_shares(case, case[2], np.random.default_rng(1))
    assert 0.005 < min(shares.values()) and max(shares.values()) <= 1.0
