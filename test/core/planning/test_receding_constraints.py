"""What the planner imposes at samples, against the checks of motions that exist apart from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sysid_ros.core.certification.stop_model import counted_friction, stop_torque_growths
from sysid_ros.core.collision.clearance import build_scene_model, displacements, pair_distances, sphere_centers
from sysid_ros.core.collision.scene import Obstacle
from sysid_ros.core.excitation.model import TorqueDemand
from sysid_ros.core.planning.constraints import DISTANCE_UNIT, Reserve
from sysid_ros.core.planning.distances import ArmSpheres, FreeDistances
from sysid_ros.core.trajectories.braking import BrakedTrajectory, clock_rates
from sysid_ros.core.trajectories.families import BezierTrajectory


@pytest.fixture
def motion(make_problem):
    problem = make_problem(samples=201)
    k = np.random.default_rng(0).uniform(-0.6, 0.6, 7)
    return problem, problem.trajectory(k), problem.constraints().evaluate(problem.space.offsets(k)[None])


def test_torque_rows_are_those_of_the_sampled_checks(motion, gen3, boxes, errors):
    problem, trajectory, samples = motion
    times = np.linspace(0.0, 3.0, 201)
    demand = TorqueDemand(gen3, *boxes, errors.torque).evaluate(*trajectory.sample(times))
    limit = problem.model.settings.torque_fraction * gen3.limits.tau_max
    used = samples.torque[0, 0, :201] * (limit - errors.torque) + limit
    speed = np.abs(trajectory.sample(times)[1])
    np.testing.assert_allclose(used, demand - friction_left_out(problem, gen3, speed, 1.0), atol=1e-9)


def friction_left_out(problem, robot, speed, rate):
    """Coulomb friction that is in the bound of the feedback, where the speed of the path is (..., n) [Nm]."""
    law, coulomb = problem.request.assumptions.control_law, robot.friction(robot.theta_box.upper)[:, 0]
    return coulomb * (1.0 - counted_friction(speed, rate, law.friction_speed))


def test_torque_rows_cover_stops_along_the_path(motion, gen3, boxes, errors):
    """At the fractions of a stop that are looked at, the torque is that of the braked trajectory."""
    problem, trajectory, samples = motion
    settings = problem.model.settings
    demand = TorqueDemand(gen3, *boxes, errors.torque)
    times = np.linspace(0.0, 3.0, 201)
    room = samples.limits[0, :, :201]
    used = (samples.torque[0, :, :201] + 1.0) * room + errors.torque
    for stage, progress in ((1, 1.0), (2, 0.5), (3, 0.7)):
        for index in (40, 100, 160):
            # The stop that passes this position at this progress began earlier on the path.
            clock = settings.brake_time * (progress - progress**3 + 0.5 * progress**4)
            begin = times[index] - clock
            if begin < 0.0:
                continue
            braked = BrakedTrajectory(trajectory, begin, settings.brake_time)
            state = tuple(part[None] for part in braked.evaluate(begin + progress * settings.brake_time))
            speed, rate = np.abs(trajectory.evaluate(times[index])[1]), clock_rates(progress, settings.brake_time)[0]
            wanted = demand.evaluate(*state)[0] - friction_left_out(problem, gen3, speed, rate)
            np.testing.assert_allclose(used[stage, index], wanted, atol=1e-6)


@pytest.mark.parametrize("is_from_rest", [True, False])
def test_the_feedback_has_room_for_its_torque_in_stops(make_problem, gen3, errors, is_from_rest):
    """At least what the verifier asks for with the speeds of the motion itself, and just that for starts from rest."""
    rest = gen3.home, np.zeros(7), np.zeros(7)
    problem = make_problem(samples=301, is_last=True, **({"start": rest} if is_from_rest else {}))
    settings, times = problem.model.settings, np.linspace(0.0, 3.0, 301)
    limit = settings.torque_fraction * gen3.limits.tau_max
    rates = np.array([0.0, *(1.0 - 3.0 * x**2 + 2.0 * x**3 for x in (0.5, 0.7))])[:, None]
    ends = np.random.default_rng(0).uniform(-0.6, 0.6, (5, 7))
    for k in (*ends, problem.minimum_acceleration + 0.1 * (ends[0] - problem.minimum_acceleration)):
        left = problem.constraints().evaluate(problem.space.offsets(k)[None]).limits[0]
        np.testing.assert_allclose(left[0], np.broadcast_to(limit - errors.torque, (301, 7)))
        growths = stop_torque_growths(problem.trajectory(k), settings.brake_time, times)
        factors = 1.0 + growths * (0.55 * (1.0 - rates) + 2.7 * rates * (1.0 - rates))
        exact = limit - factors[..., None] * errors.torque
        assert np.all(left[1:] <= exact + (0.02 if is_from_rest else 1e-9) * errors.torque)
        if is_from_rest:
            np.testing.assert_allclose(left[1:], exact, rtol=0.01)


def test_rows_cover_a_motion_that_takes_over(make_problem, gen3, boxes, errors):
    """All but the last plan: from its state at t_p to the same end must be possible too."""
    k = np.random.default_rng(0).uniform(-0.6, 0.6, 7)
    last, other = make_problem(samples=25, is_last=True), make_problem(samples=25)
    x = other.space.offsets(k)
    assert last.constraints().evaluate(x[None]).torque.shape[2] == 25
    rows = other.constraints().evaluate(x[None]).torque[0, 0, 25:]
    assert len(rows) >= 5
    first = other.trajectory(k)
    second = BezierTrajectory(*first.evaluate(1.5), first.q1, 3.0)
    times = np.linspace(0.0, 3.0, len(rows) + 1)[1:]
    demand = TorqueDemand(gen3, *boxes, errors.torque).evaluate(*second.sample(times))
    limit = other.model.settings.torque_fraction * gen3.limits.tau_max * (1.0 - Reserve().torque)
    left_out = friction_left_out(other, gen3, np.abs(second.sample(times)[1]), 1.0)
    np.testing.assert_allclose(rows * (limit - errors.torque) + limit, demand - left_out, atol=1e-9)


def test_distances_without_errors_are_exact(gen3, scene):
    collision = build_scene_model(gen3, scene)
    q = np.random.default_rng(0).normal(size=(30, 7))
    free = FreeDistances(ArmSpheres(gen3, collision), np.zeros(7), 0.0).evaluate(q).free
    centers = sphere_centers(gen3, collision.spheres, q)
    radii = np.array([sphere.radius for sphere in collision.spheres])[collision.movable]
    points = centers[:, collision.movable]
    expected = [pair_distances(centers, collision.spheres, collision.pairs), points[..., 2] - radii]
    expected += [obstacle.distance(points) - radii for obstacle in collision.obstacles]
    np.testing.assert_allclose(free, np.concatenate(expected, axis=1), atol=1e-12)


def test_no_position_error_brings_anything_closer_than_the_rows_say(gen3, scene):
    collision, error = build_scene_model(gen3, scene), np.full(7, 0.03)
    rng = np.random.default_rng(1)
    q = rng.normal(size=(20, 7))
    allowed = FreeDistances(ArmSpheres(gen3, collision), error, 5.0).evaluate(q).free
    exact = FreeDistances(ArmSpheres(gen3, collision), np.zeros(7), 0.0)
    closest = np.full(allowed.shape, np.inf)
    for _ in range(200):
        moved = q + error * rng.choice([-1.0, 1.0], q.shape)
        closest = np.minimum(closest, exact.evaluate(moved).free)
    is_outside = exact.evaluate(q).free > 0.0  # inside a box the distance is not convex
    assert np.all((closest - allowed)[is_outside] >= -1e-9)
    # and not by far too much: tighter than what errors can do at the worst posture
    pairs_lost, lost = displacements(gen3, collision, error)
    coarse = exact.evaluate(q).free - np.concatenate([pairs_lost, *[lost] * 3])
    assert np.all(allowed >= coarse - 0.01) and np.median(allowed - coarse) > 0.01


def test_far_rows_can_be_left_out_without_changing_the_worst(make_problem, scene):
    crowded = replace(scene, obstacles=(*scene.obstacles, Obstacle("far", np.full(3, 3.0), np.full(3, 0.1))))
    every, fewer = make_problem(environment=crowded), make_problem(environment=crowded)
    k = np.random.default_rng(0).uniform(-1.0, 1.0, (50, 7))
    fewer.leave_out_far(fewer.constraints().evaluate(fewer.space.offsets(k)))
    x = every.space.offsets(0.6 * k[:5])
    one, two = (problem.constraints().evaluate(x) for problem in (every, fewer))
    assert two.distance.shape[2] < one.distance.shape[2]
    np.testing.assert_allclose(two.worst, one.worst, atol=1e-12)
    np.testing.assert_allclose(two.distance.max(axis=(1, 2)), one.distance.max(axis=(1, 2)), atol=1e-12)


def test_clearance_and_margin_are_kept(make_problem, scene):
    near, far = make_problem(), make_problem(environment=replace(scene, clearance=0.1))
    x = near.space.offsets(np.zeros((1, 7)))
    one, two = (problem.constraints().evaluate(x).distance for problem in (near, far))
    # Rows near the limit take the errors off by posture, those far from it by a coarser bound.
    shift = (two - one) * DISTANCE_UNIT
    assert np.all(shift <= 0.1 + 1e-12) and shift.max() == pytest.approx(0.1)
    wider = make_problem(distance_margin=0.05).constraints().evaluate(x).distance
    assert ((wider - one) * DISTANCE_UNIT).max() == pytest.approx(0.047)
