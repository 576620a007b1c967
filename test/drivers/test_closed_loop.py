"""A few of the trials of bench/bench_closed_loop.py: Algorithm 2 in lock-step, checked against the true state."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import _closed_loop  # noqa: E402
from _closed_loop import Change, Geometry, Outcome, check_estimates, check_motion, draw_trial, run_trial  # noqa: E402
from _closed_loop_faults import run_broken  # noqa: E402

from sysid_ros.core.collision.clearance import build_scene_model, pair_distances, sphere_centers  # noqa: E402
from sysid_ros.core.collision.scene import Obstacle, Scene  # noqa: E402
from sysid_ros.core.planning.planner import CertifiedPlanner  # noqa: E402

PATIENCE = 60.0  # seconds of real time: what is found must not depend on how fast the machine is


@pytest.fixture(scope="module")
def planner(robot):
    return CertifiedPlanner(robot)


@pytest.mark.slow
def test_nothing_is_violated_while_all_assumptions_hold(robot, planner, monkeypatch):
    kept = []
    monkeypatch.setattr(
        _closed_loop, "check_estimates", lambda running: (kept.append(running), check_estimates(running))
    )
    trial = replace(draw_trial(robot, planner, 4), planning_times=(0.0, 1.0))
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
