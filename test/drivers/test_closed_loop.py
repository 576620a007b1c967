"""A few of the trials of bench/bench_closed_loop.py: Algorithm 2 in lock-step, checked against the true state."""

from dataclasses import replace

import _closed_loop
import numpy as np
import pytest
from _closed_loop import (
    SIMULATIONS,
    Change,
    Geometry,
    Outcome,
    Trial,
    build_arm,
    check_estimates,
    check_motion,
    draw_trial,
    run_trial,
)
from _closed_loop_faults import run_broken
from _pinocchio_physics import solve_friction
from textbook import load_textbook

from sysid_ros.core.collision.clearance import build_scene_model, pair_distances, sphere_centers
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.drivers.modes import Noise

PATIENCE = 60.0  # seconds of real time: what is found must not depend on how fast the machine is


@pytest.mark.parametrize("is_elastic", [False, True])
@pytest.mark.parametrize("name", ["kinova_gen3_2f85", "kuka_lbr_med7"])
def test_simulations_that_share_no_integrator_agree(name, is_elastic):
    """Joints that slide, stick and turn about; the payload is dropped on the way."""
    robot, rng = load_textbook(name, is_elastic=is_elastic), np.random.default_rng(0)
    truth = sample_parameters(robot, rng, True), sample_payload(robot.payload_prior, rng, False)
    frequencies, moves, paths = 2.0 * np.pi * np.linspace(0.4, 1.3, robot.n), np.arange(robot.n) != 0, []
    for simulation in SIMULATIONS:
        trial = Trial(
            0, *truth, Noise.NONE, Scene((), ground_height=0.0), robot.home, (0.0,), 0, 1.0, simulation=simulation
        )
        arm, path = build_arm(robot, trial), []
        arm.connect()
        balance, coulomb = arm.physics.static_torque(), arm.physics.friction[:, 0]
        for cycle in range(500):
            if cycle == 400:
                arm.physics.set_payload(None)
            wave = np.sin(1e-3 * cycle * frequencies)
            push = np.where(moves, 1.2 * coulomb * np.sign(wave) + 0.04 * robot.limits.tau_max * wave, 0.2 * coulomb)
            arm.physics.advance(balance + push)
            path.append((*arm.physics.measured, arm.physics.q))
        paths.append(np.array(path))
    moved = np.ptp(paths[0][:, 2], axis=0)
    sticks = np.abs(paths[0][:, 1]) < 1e-3
    assert moved.max() > 0.1 and 10 < sticks.sum(axis=0).max() < 500, (
        "joints have to move, and one to stick for a while"
    )
    for other in paths[1:]:
        off = np.abs(other - paths[0]).max(axis=(0, 2))
        assert max(off[0], off[2]) < 0.005 * moved.max() and off[1] < 0.05, off
    lost = np.abs(paths[2][-1, 1] - paths[2][400, 1])
    assert lost.max() > 0.1, "the lost payload has to show"


def test_friction_of_the_second_simulation_obeys_its_law():
    rng, stuck = np.random.default_rng(3), 0
    for _ in range(200):
        factor = rng.normal(size=(7, 7)) * 10.0 ** rng.uniform(-0.5, 0.5, 7)
        inverse, largest = factor @ factor.T + 0.01 * np.eye(7), rng.uniform(0.0, 1.0, 7)
        free = inverse @ (rng.uniform(-2.0, 2.0, 7) * largest)
        v, impulse = solve_friction(inverse, free, largest, rng.uniform(-1.0, 1.0, 7) * largest)
        np.testing.assert_allclose(v, free - inverse @ impulse, atol=1e-9 * np.abs(free).max())
        assert np.all(np.abs(impulse) <= largest)
        held = np.abs(impulse) < largest * (1.0 - 1e-9)
        assert np.all(np.abs(v[held]) < 1e-6) and np.all(v[~held] * impulse[~held] >= -1e-6)
        stuck += int(held.sum())
    assert 100 < stuck < 1300


@pytest.fixture(scope="module")
def planner(robot):
    return CertifiedPlanner(robot)


@pytest.mark.slow
def test_nothing_is_violated_while_all_assumptions_hold(robot, planner, monkeypatch):
    kept = []
    monkeypatch.setattr(
        _closed_loop, "check_estimates", lambda running: (kept.append(running), check_estimates(running))
    )
    trial = replace(draw_trial(robot, planner, 5), planning_times=(0.0, 1.0))
    outcome = run_trial(robot, planner, trial, plans=2, time_limit=PATIENCE)
    assert outcome.plans == 2 and outcome.motion == pytest.approx(4.5, abs=0.01)
    assert not outcome.violations and not outcome.stops
    assert 0.05 < outcome.ratios["position error"] < 0.6 and 0.02 < outcome.ratios["feedback torque"] < 0.6
    assert outcome.margins["true less certified: ground"] >= 0.0

    # The same motion with other things said of it: every check can fail.
    running = kept[0]
    limits = robot.limits
    small = replace(limits, v_max=0.005 * limits.v_max, tau_max=0.05 * limits.tau_max)
    small = replace(small, q_lower=running.log.q[-1] + 0.01)
    scene = Scene((Obstacle("here", tool_place(robot, running.log.q[-1]), np.full(3, 0.05)),), ground_height=1.5)
    for attempt in running.backend.records.attempts:
        if attempt.plan is None:  # a first try that found nothing
            continue
        certificate = attempt.plan.certificate
        for name in ("tracking_bound", "velocity_bound", "torque_bound"):
            object.__setattr__(certificate, name, 0.01 * getattr(certificate, name))
        more = tuple(replace(margin, value=margin.value + 1.0) for margin in certificate.margins)
        object.__setattr__(certificate, "margins", more)
    running.outcome = Outcome(trial.seed, {})
    running.changes = [Change(0, 0, trial.theta, trial.payload + 0.2 * robot.payload_prior.box.radius, scene)]
    running.robot = replace(robot, limits=small)
    check_motion(running)
    check_estimates(running)
    broken = {violation.kind for violation in running.outcome.violations}
    assert broken >= {
        "position limit", "velocity limit", "torque limit", "ground", "obstacle", "position error", "velocity error",
        "feedback torque", "certified margin of ground", "certified margin of torque",
        "truth in payload bounds", "truth in the model",
    }  # fmt: skip


def tool_place(robot, q):
    return sphere_centers(robot, robot.payload_prior.spheres, q[None])[0, 0]


@pytest.mark.slow
def test_a_lost_payload_is_noticed(robot, planner):
    trial = replace(draw_trial(robot, planner, 2), planning_times=(0.0,))
    outcome = run_broken(robot, planner, trial, 2, "payload lost in motion", PATIENCE)
    assert outcome.event and outcome.labels["noticed"] in ("estimator: alarm", "loop: TRACKING_ERROR")
    assert float(outcome.labels["delay"]) < 1.0
    assert outcome.failure in ("INCONSISTENT", "EXECUTION_FAILED")


def test_distances_of_the_check_are_those_of_spheres(robot):
    rng = np.random.default_rng(3)
    boxes = tuple(Obstacle(f"{k}", rng.uniform(-0.8, 0.8, 3), rng.uniform(0.05, 0.2, 3)) for k in range(4))
    scene = Scene(boxes, ground_height=0.1)
    geometry, model = Geometry(robot, scene), build_scene_model(robot, scene)
    radii = np.array([sphere.radius for sphere in model.spheres])
    for q in rng.uniform(-2.0, 2.0, (20, robot.n)):
        found = geometry.distances(q)
        centers = sphere_centers(robot, model.spheres, q[None])
        points, own = centers[0, model.movable], radii[model.movable]
        assert found["ground"] == pytest.approx((points[:, 2] - own).min() - 0.1, abs=1e-6)
        nearest = min((box.distance(points) - own).min() for box in boxes)
        assert found["obstacle"] == pytest.approx(nearest, abs=1e-5) or max(found["obstacle"], nearest) < 0.0
        # More pairs are compared than the planner needs to compare.
        assert found["self-collision"] <= pair_distances(centers, model.spheres, model.pairs).min() + 1e-6
