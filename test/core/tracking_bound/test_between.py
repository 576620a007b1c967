"""What lies between the samples of a motion, against evaluations twenty times as dense."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from scipy.linalg import eigh

import sysid_ros.core.tracking_bound.term_nodes as term_nodes
import sysid_ros.core.tracking_bound.tube as tube_module
from sysid_ros.core.common.box import Box
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.mechanics import ArmDynamics, add_payload
from sysid_ros.core.model.robot import EffortMeaning
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.core.tracking_bound.bound import tracking_bound
from sysid_ros.core.tracking_bound.disturbance import speed_range
from sysid_ros.core.tracking_bound.model_terms import ModelTerms, TermStates, compute_model_terms
from sysid_ros.core.tracking_bound.motion import larger_neighbour, sample_motion
from sysid_ros.core.tracking_bound.tube import SAMPLING, TubeMap
from sysid_ros.core.trajectories.braking import BrakedTrajectory
from sysid_ros.core.trajectories.families import BezierTrajectory, FourierTrajectory, rest_projection
from sysid_ros.papers.baselines.slotine_li import SlotineLiRegressor

DENSE = 20
STEP = 0.01


def draw_motion(kind, robot, rng):
    """A random motion: short, oscillating at up to 10 Hz, or a stop that begins and ends between two samples."""
    still, n = np.zeros(robot.n), robot.n
    if kind == "short":
        return BezierTrajectory(robot.home, still, still, robot.home + rng.uniform(-0.2, 0.2, n), 0.5)
    if kind == "fast":
        sine, cosine = rest_projection(5)
        size = rng.normal(size=(2, n, 4)) * 0.05
        return FourierTrajectory(robot.home, size[0] @ sine.T, size[1] @ cosine.T, 2.0, 1.0)
    if kind == "tremor":
        sine, cosine = rest_projection(3)
        size = rng.normal(size=(2, n, 2)) * 0.005
        return FourierTrajectory(robot.home, size[0] @ sine.T, size[1] @ cosine.T, 10.0 / 3.0, 0.9)
    path = BezierTrajectory(robot.home, still, still, robot.home + rng.uniform(-1.0, 1.0, n), rng.uniform(1.5, 3.0))
    return path if kind == "long" else BrakedTrajectory(path, rng.uniform(0.3, 1.4), rng.uniform(0.3, 0.9))


KINDS = "short", "fast", "long", "stop"


@pytest.mark.parametrize("kind", KINDS)
def test_rates_bound_the_motion_between_the_nodes(robot, kind):
    """Also the distance from straight lines between chosen nodes, where jerk and acceleration jump."""
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(5):
        motion = draw_motion(kind, robot, rng)
        samples = sample_motion(motion, robot.n, RobustSettings())
        count = len(samples.q) - 1
        _, v, a = motion.sample(STEP / DENSE * np.arange(count * DENSE + 1))
        interval = np.arange(count * DENSE) // DENSE
        assert np.all(np.abs(v[:-1]) <= samples.rates.v[interval] + 1e-9)
        assert np.all(np.abs(a[:-1]) <= samples.rates.a[interval] + 1e-9)
        closest = 0.0
        for stride in (1, 2, 7):
            nodes = np.unique(np.r_[np.arange(0, count, stride), count])
            curvature = samples.curvature_over(nodes)
            for index, (begin, end) in enumerate(zip(nodes[:-1], nodes[1:], strict=True)):
                inside = slice(begin * DENSE, end * DENSE + 1)
                share = np.linspace(0.0, 1.0, (end - begin) * DENSE + 1)[:, None]
                sag = (STEP * (end - begin)) ** 2 / 8.0
                for values, largest in ((v[inside], curvature.jerk[index]), (a[inside], curvature.snap[index])):
                    line = (1.0 - share) * values[0] + share * values[-1]
                    away = np.abs(values - line).max(axis=0)
                    assert np.all(away <= sag * largest + 1e-9)
                    closest = max(closest, (away / (sag * largest + 1e-6)).max())
        assert closest > 0.5


def dense_shares(robot, tube_map, motion, rng, cells):
    """Largest share of the missed torque that random arms reach between nodes, per cell."""
    settings, model = tube_map.settings, tube_map.model
    regressor = SlotineLiRegressor(robot, EffortMeaning.MOTOR_SIDE)
    nominal = ArmDynamics(robot, model.total, armature=True)
    times = STEP * (tube_map.fine - tube_map.samples.past)
    share, shares = np.linspace(0.0, 1.0, DENSE + 1)[:, None], []
    arms = [
        add_payload(sample_parameters(robot, rng, corner=True), sample_payload(robot.payload_prior, rng, corner=k % 2))
        for k in range(6)
    ]
    for cell in cells:
        q, v, a = motion.sample(times[cell] + share[:, 0] * (times[cell + 1] - times[cell]))
        columns = regressor.evaluate(q, v, v, a, direction=settings.friction_share(v))
        inertia = nominal.inertia(q)
        for true in arms:
            error = np.linalg.solve(inertia, (columns @ (true - model.total))[..., None])[..., 0]
            polygon = (1.0 - share) * error[0] + share * error[-1]
            missed = np.abs(np.einsum("tij,tj->ti", inertia, error - polygon)).max(axis=0)
            shares.append((missed / (tube_map.smooth.missed[cell] + 1e-9)).max())
    return np.array(shares)


@pytest.mark.parametrize("kind", KINDS)
def test_missed_torque_covers_the_model_error_between_the_nodes(robot, kind):
    rng = np.random.default_rng(10 + KINDS.index(kind))
    model, reached = ControlModel.of_boxes(robot), []
    for _ in range(2):
        motion = draw_motion(kind, robot, rng)
        tube_map = TubeMap(robot, model, sample_motion(motion, robot.n, RobustSettings()), RobustSettings())
        cells = rng.choice(len(tube_map.smooth.missed), 12, replace=False)
        reached.append(dense_shares(robot, tube_map, motion, rng, cells))
    assert np.max(reached) <= 1.0
    assert np.max(reached) > 0.03


def test_an_enclosure_that_is_too_small_is_caught(robot, monkeypatch):
    """The check above sees an enclosure that is wrong."""
    rng = np.random.default_rng(3)
    model, motion = ControlModel.of_boxes(robot), draw_motion("long", robot, rng)
    original = tube_module.compute_smooth_disturbance

    def wrong(*arguments):
        smooth = original(*arguments)
        return replace(smooth, missed=0.02 * smooth.missed)

    monkeypatch.setattr(tube_module, "compute_smooth_disturbance", wrong)
    tube_map = TubeMap(robot, model, sample_motion(motion, robot.n, RobustSettings()), RobustSettings())
    cells = rng.choice(len(tube_map.smooth.missed), 12, replace=False)
    assert dense_shares(robot, tube_map, motion, rng, cells).max() > 1.0


@pytest.mark.parametrize("kind", KINDS)
def test_inertia_between_the_nodes_is_near_that_at_the_nearer_one(robot, kind):
    """Lemma 4, and bounds of the inverse between nodes of the slowly varying terms, against Pinocchio's inertia."""
    rng = np.random.default_rng(30 + KINDS.index(kind))
    model, motion = ControlModel.of_boxes(robot), draw_motion(kind, robot, rng)
    tube_map = TubeMap(robot, model, sample_motion(motion, robot.n, RobustSettings()), RobustSettings())
    nominal, change, terms = ArmDynamics(robot, model.total, armature=True), tube_map.inertia_change, tube_map.terms
    times, step = STEP * (tube_map.fine - tube_map.samples.past), 1e-5
    of_term = tube_map.spread[tube_map.fine[:-1]]
    used = []
    for cell in rng.choice(len(change.nearby), 25, replace=False):
        share = rng.uniform(0.05, 0.95)
        time = times[cell] + share * (times[cell + 1] - times[cell])
        before, here, after = nominal.inertia(motion.sample(time + step * np.array([-1.0, 0.0, 1.0]))[0])
        ratios = eigh(here, tube_map.inertia[cell + round(share)], eigvals_only=True)
        assert 1.0 / change.nearby[cell] <= ratios[0] + 1e-9 and ratios[-1] <= change.nearby[cell] + 1e-9
        rate = np.abs(eigh((after - before) / (2.0 * step), here, eigvals_only=True)).max()
        assert rate <= change.rate[cell] + 1e-6
        allowed = np.array([change.nearby[cell] - 1.0, change.rate[cell]]) + 1e-9
        used.append(np.max([np.abs(ratios - 1.0).max(), rate] / allowed))
        term = of_term[cell]
        assert np.all(np.abs(here) <= terms.largest.inertia[term] + 1e-9)
        x = np.linalg.solve(here, rng.normal(size=(robot.n, 40)))
        torques = here @ x
        limit = np.max([np.einsum("ik,ij,jk->k", torques, one[term], torques) for one in terms.inverses], axis=0)
        assert np.all(np.einsum("ik,ik->k", torques, x) <= limit * (1.0 + 1e-9))
    assert max(used) > 0.1


def test_speeds_between_the_nodes_are_in_range(robot):
    rng = np.random.default_rng(5)
    motion = draw_motion("fast", robot, rng)
    samples = sample_motion(motion, robot.n, RobustSettings())
    nodes = np.arange(len(samples.q))
    slowest, fastest = speed_range(samples.v, STEP**2 / 8.0 * samples.curvature_over(nodes).jerk)
    speed = np.abs(motion.sample(STEP / DENSE * np.arange((len(nodes) - 1) * DENSE))[1])
    interval = np.arange(len(speed)) // DENSE
    assert np.all(slowest[interval] <= speed + 1e-9) and np.all(speed <= fastest[interval] + 1e-9)


def term_shares(robot, tube_map, motion):
    """Largest share of what is used in an interval that each term reaches at, and between, the samples of a motion.

    Terms that are next to nothing, less than a twentieth of their largest value, are left out. The spread of all
    parameters is bounded tightly, so that the terms are compared, and not how tightly they are bounded.
    """
    samples, used = tube_map.samples, tube_map.terms.largest
    times = 0.5 * samples.step * np.arange(2 * tube_map.intervals)
    inside = times < motion.duration
    interval = np.flatnonzero(inside) // 2 + samples.past
    states = TermStates(*motion.sample(times[inside]))
    terms = compute_model_terms(robot, tube_map.uncertainty, states)
    shares = {}
    for name in (one.name for one in fields(ModelTerms) if one.name not in ("inertia", "torque_gradient")):
        values = getattr(terms, name)
        counts = values > 0.05 * values.max()
        shares[name] = (values[counts] / getattr(used, name)[tube_map.spread[interval[counts]]]).max()
    return shares


@pytest.mark.parametrize("kind", [*KINDS, "tremor"])
def test_terms_between_their_nodes_are_about_as_estimated(robot, kind):
    rng = np.random.default_rng(40)
    model = ControlModel.of_boxes(robot)
    for _ in range(2):
        motion = draw_motion(kind, robot, rng)
        tube_map = TubeMap(robot, model, sample_motion(motion, robot.n, RobustSettings()), RobustSettings())
        shares = term_shares(robot, tube_map, motion)
        print(kind, len(tube_map.terms.times), {name: round(float(share), 4) for name, share in shares.items()})
        assert max(shares.values()) <= 0.5 * (1.0 + SAMPLING)


@pytest.mark.parametrize(("kind", "phase"), [("fast", 0.8), ("tremor", np.inf)])
def test_nodes_that_miss_an_oscillation_are_caught(robot, monkeypatch, kind, phase):
    """The check above sees terms that exceed both nodes about them by more than the factor."""
    rng = np.random.default_rng(40)
    model, motion = ControlModel.of_boxes(robot), draw_motion(kind, robot, rng)
    monkeypatch.setattr(term_nodes, "_PHASE", phase)
    monkeypatch.setattr(tube_module, "_REFINEMENTS", 0)
    monkeypatch.setattr(tube_module, "largest_between", lambda times, values: larger_neighbour(values))
    tube_map = TubeMap(robot, model, sample_motion(motion, robot.n, RobustSettings()), RobustSettings())
    assert max(term_shares(robot, tube_map, motion).values()) > SAMPLING


def test_the_largest_value_between_nodes_is_that_of_a_curve_through_them():
    times = np.array([0.0, 0.1, 0.25, 0.3, 0.5, 0.55, 0.7])
    dense = np.linspace(0.0, 0.7, 701)
    for phase in np.linspace(0.0, 3.0, 13):
        curves = [lambda t, p=phase: 1.5 + np.cos(5.0 * t + p), lambda t, p=phase: 2.0 + np.sin(6.0 * t + p) + t**2]
        for curve in curves:
            found = term_nodes.largest_between(times, curve(times))
            at = np.searchsorted(times, dense[:-1], side="right") - 1
            assert np.all(curve(dense[:-1]) <= found[at] * 1.001)
            assert np.all(found <= 1.2 * larger_neighbour(curve(times)))
    rising = np.exp(times)
    np.testing.assert_array_equal(term_nodes.largest_between(times, rising), rising[1:])


@pytest.mark.parametrize("kind", KINDS)
def test_a_bound_from_denser_terms_without_their_factor_is_smaller(robot, kind, monkeypatch):
    """What the slowly varying terms leave to their factor is covered by it."""
    rng = np.random.default_rng(20 + KINDS.index(kind))
    payload = robot.payload_prior.nominal
    box = Box.around(payload, 0.15 * np.array([1.25, 0.08, 0.08, 0.28, 0.07, 0.02, 0.07, 0.02, 0.02, 0.02]))
    model = ControlModel(robot.theta_nominal, robot.theta_box, payload, box)
    motion = draw_motion(kind, robot, rng)
    bound = tracking_bound(robot, model, motion)
    monkeypatch.setattr(tube_module, "SAMPLING", 1.0)
    for name, value in (("_ANGLE", 0.05), ("_STEP", 0.04)):
        monkeypatch.setattr(term_nodes, name, value)
    dense = tracking_bound(robot, model, motion)
    assert np.all(dense.position <= bound.position) and np.all(dense.velocity <= bound.velocity)
    assert np.all(dense.torque <= bound.torque)
