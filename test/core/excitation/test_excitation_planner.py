"""Planned excitation: limits at a much denser sampling, how good it is, repeatability, cancelling, wrong inputs."""

from __future__ import annotations

import numpy as np
import pytest
from proofs import certify
from scipy.optimize import linprog

from sysid_ros.core.certification.stop_model import VerifierSettings
from sysid_ros.core.collision.clearance import build_collision_model, pair_distances, sphere_centers
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.errors import Cancelled, ParameterOutOfRange
from sysid_ros.core.excitation.distances import MissingDistances
from sysid_ros.core.excitation.model import ExcitationModel, NoExcitationFound
from sysid_ros.core.excitation.planner import (
    condition_number,
    expected_radii,
    momentum_windows,
    payload_regressor,
    plan_excitation,
)
from sysid_ros.core.excitation.settings import ExcitationSettings
from sysid_ros.core.trajectories.families import FourierTrajectory, rest_projection

N = 7
SETTINGS = ExcitationSettings(starts=1, max_iterations=80, time_budget=60.0)


class Tracking:
    position = np.full(N, 0.01)
    velocity = np.full(N, 0.02)
    torque = np.zeros(N)


def test_limits_hold_at_dense_samples(plan, model, gen3):
    times = np.linspace(0.0, plan.trajectory.duration, 5001)  # the optimiser used 40 samples
    q, v, a = plan.trajectory.sample(times)
    limits = gen3.limits
    assert np.abs(q - gen3.home).max() <= SETTINGS.amplitude + 1e-6
    assert np.all(q - 0.01 >= limits.q_lower) and np.all(q + 0.01 <= limits.q_upper)
    assert np.all(np.abs(v).max(axis=0) + 0.02 <= 0.95 * limits.v_max + 1e-6)
    assert np.all(np.abs(a).max(axis=0) <= 0.95 * limits.a_max + 1e-5)
    torque = model.torque_demand.evaluate(q, v, a)
    assert np.all(torque.max(axis=0) <= 0.9 * limits.tau_held + 0.05)
    at_rest = model.torque_demand.evaluate(q, 0 * v, 0 * a)
    assert np.all(at_rest.max(axis=0) <= 0.9 * limits.tau_held + 0.05)  # so it can stop anywhere
    centers = sphere_centers(gen3, model.collision.spheres, q[::5])
    assert pair_distances(centers, model.collision.spheres, model.collision.pairs).min() > SETTINGS.clearance
    radii = np.array([sphere.radius for sphere in model.collision.spheres])
    assert (centers[..., 2] - radii)[:, model.collision.movable].min() > SETTINGS.clearance


def test_it_starts_and_ends_at_rest_where_it_was_asked_to(plan, gen3):
    for time in (0.0, plan.trajectory.duration - 1e-9):
        q, v, a = plan.trajectory.evaluate(time)
        np.testing.assert_allclose(q, gen3.home, atol=1e-9)
        np.testing.assert_allclose(v, 0.0, atol=1e-7)
        np.testing.assert_allclose(a, 0.0, atol=1e-6)


def test_the_safe_planner_certifies_it(plan, gen3, boxes_of):
    settings = VerifierSettings(brake_times=(SETTINGS.brake_time,))
    certificate = certify(gen3, plan.trajectory, boxes_of(gen3), Tracking(), Scene(ground_height=0.0), settings)
    certificate.matches(plan.trajectory, *boxes_of(gen3))
    assert certificate.brake_time == SETTINGS.brake_time


def test_it_is_far_better_than_random_motion(plan, model, gen3):
    assert plan.condition_number < 12 and plan.condition_number_windows < 12
    rng = np.random.default_rng(0)
    sine_basis, cosine_basis = rest_projection(5)
    costs = []
    for _ in range(5):
        sine, cosine = 0.1 * rng.normal(size=(2, N, 4))
        motion = FourierTrajectory(gen3.home, sine @ sine_basis.T, cosine @ cosine_basis.T, 0.2, 5.0)
        scale = np.min(0.9 * gen3.limits.v_max / np.maximum(*np.abs(motion.velocity_extrema())))
        motion = FourierTrajectory(gen3.home, scale * motion.sine, scale * motion.cosine, 0.2, 5.0)
        costs.append(np.log(expected_radii(model, [motion], 0.1)).mean())
    assert np.log(plan.expected_radii).mean() < min(costs) - 0.3


def test_windows_are_integrals_of_the_regressor(plan, gen3):
    windows = momentum_windows(gen3, plan.trajectory, 0.1)
    assert windows.shape == (50, N, 14 * N + 10)
    regressor = payload_regressor(gen3, plan.trajectory, samples=50 * 40).reshape(50, 40, N, 10)
    np.testing.assert_allclose(windows[..., -10:], 0.1 * regressor.mean(axis=1), atol=2e-4)
    flat = windows[..., -10:].reshape(-1, 10)
    assert plan.condition_number_windows == pytest.approx(np.linalg.cond(flat), rel=1e-6)
    assert plan.condition_number == pytest.approx(np.linalg.cond(payload_regressor(gen3, plan.trajectory)), rel=1e-6)
    assert condition_number(np.diag([0.0] + [1.0] * 9)) == np.inf


def test_expected_widths_contain_those_of_the_linear_program(plan, model, gen3):
    """No bound can be narrower than the set of all consistent parameters; the left inverse comes close to it."""
    rows = momentum_windows(gen3, plan.trajectory, 0.2)
    sensors = gen3.sensors
    torque = rows @ np.concatenate([model.arm_box.center, model.payload])
    error = (sensors.effort_relative_error * np.abs(torque) + sensors.lasting_error * 0.2).ravel()
    radius = np.concatenate([model.arm_box.radius, model.payload_box.radius])
    matrix = rows.reshape(error.size, -1) * radius / error[:, None]
    expected = expected_radii(model, [plan.trajectory], 0.2) / model.payload_box.radius
    for index in range(10):
        cost = np.zeros(radius.size)
        cost[14 * N + index] = -1.0
        both = np.vstack([matrix, -matrix])
        result = linprog(cost, both, np.ones(len(both)), bounds=[(-1, 1)] * radius.size, method="highs")
        assert -result.fun <= expected[index] * (1 + 1e-6) <= 4.0 * -result.fun


def test_the_same_seed_gives_the_same_plan_and_another_another(model, gen3):
    short = ExcitationSettings(starts=1, max_iterations=3, time_budget=60.0, harmonics=3)
    one, same = (plan_excitation(model, gen3.home, short) for _ in range(2))
    other = plan_excitation(
        model, gen3.home, ExcitationSettings(starts=1, max_iterations=3, time_budget=60.0, harmonics=3, seed=1)
    )
    assert one.trajectory.hash() == same.trajectory.hash() != other.trajectory.hash()


def test_with_no_time_left_there_is_still_a_plan_within_the_limits(model, gen3, boxes_of):
    plan = plan_excitation(model, gen3.home, ExcitationSettings(time_budget=0.05))
    assert plan.starts == 1 and plan.planning_time < 20.0
    settings = VerifierSettings(brake_times=(SETTINGS.brake_time,))
    certify(gen3, plan.trajectory, boxes_of(gen3), Tracking(), Scene(ground_height=0.0), settings)
    assert np.isfinite(plan.condition_number)


def test_more_starts_are_never_worse(model, gen3):
    settings = [ExcitationSettings(starts=k, max_iterations=4, time_budget=60.0, harmonics=3) for k in (1, 2)]
    one, two = (plan_excitation(model, gen3.home, each) for each in settings)
    assert two.starts == 2 and two.cost <= one.cost


def test_it_can_be_cancelled_on_the_way(model, gen3):
    calls = []

    def is_cancelled() -> bool:
        calls.append(1)
        return len(calls) > 4

    with pytest.raises(Cancelled):
        plan_excitation(model, gen3.home, SETTINGS, is_cancelled=is_cancelled)
    assert len(calls) < 10


def test_no_room_to_move_is_said(gen3):
    """Just outside the clearance at the start, every motion comes too close."""
    collision = build_collision_model(gen3, gen3.payload_prior.spheres)
    around = (gen3.home - 1.0, gen3.home + 1.0)
    free = MissingDistances(gen3, collision, np.zeros(N), 0.1, around).evaluate(gen3.home[None]).min()
    settings = ExcitationSettings(starts=1, max_iterations=2, clearance=free - 1e-7, harmonics=2)
    with pytest.raises(NoExcitationFound, match="none of 1 exciting motions"):
        plan_excitation(ExcitationModel.of(gen3), gen3.home, settings)


def test_progress_is_reported(model, gen3):
    seen = []
    settings = ExcitationSettings(starts=2, max_iterations=1, time_budget=60.0, harmonics=2)
    plan_excitation(model, gen3.home, settings, on_progress=lambda fraction, text: seen.append((fraction, text)))
    assert [fraction for fraction, _ in seen] == [0.0, 0.5, 1.0] and "condition number" in seen[-1][1]


@pytest.mark.parametrize(
    ("collected", "message"),
    [
        (np.zeros((9, 9)), "finite \\(10, 10\\) Gram matrix"),
        (np.full((10, 10), np.nan), "finite \\(10, 10\\) Gram matrix"),
        (-np.eye(10), "smallest eigenvalue of collected -1.0: expected 0 or more"),
    ],
)
def test_bad_information_is_refused(model, gen3, collected, message):
    with pytest.raises(ParameterOutOfRange, match=message):
        plan_excitation(model, gen3.home, SETTINGS, collected)


def test_a_share_of_the_limits_is_a_share_of_speed_and_acceleration_only():
    settings = ExcitationSettings().with_limit_share(0.5)
    assert settings.velocity_fraction == pytest.approx(0.475) and settings.acceleration_fraction == pytest.approx(0.475)
    assert settings.torque_fraction == ExcitationSettings().torque_fraction
    for share in (0.0, 1.01, float("nan")):
        with pytest.raises(ParameterOutOfRange, match="limit_share"):
            ExcitationSettings().with_limit_share(share)
