"""The problem without a solver: derivatives, bounds, the space of trajectories, and starts it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sysid_ros.core.collision.clearance import Obstacle
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.excitation.criteria import BoundsCriterion, ErrorModel
from sysid_ros.core.excitation.distances import MissingDistances
from sysid_ros.core.excitation.model import ExcitationModel, NoExcitationFound
from sysid_ros.core.excitation.problem import ExcitationProblem, FourierSpace, speed_memory
from sysid_ros.core.excitation.settings import CRITERIA, ExcitationSettings

N = 7
COLLECTED = np.diag(np.linspace(0.1, 1.0, 10))


@pytest.fixture(scope="module")
def problem(model, gen3):
    return ExcitationProblem(model, gen3.home, ExcitationSettings())


@pytest.fixture
def x(problem):
    return 0.3 * np.random.default_rng(0).normal(size=problem.size)


def test_the_space_is_that_of_the_trajectory():
    space = FourierSpace(np.linspace(-1, 1, N), 4, 3.0, 25)
    x = np.random.default_rng(1).normal(size=space.size)
    trajectory = space.trajectory(x)
    for one, other in zip(space.states(x), trajectory.sample(space.times), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    _, v, a = trajectory.evaluate(1e-12)
    np.testing.assert_allclose([v, a], 0.0, atol=1e-9)
    assert space.size == N * 2 * 3


@pytest.mark.parametrize("collected", [None, COLLECTED])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_cost_gradient(model, gen3, x, criterion, collected):
    problem = ExcitationProblem(model, gen3.home, ExcitationSettings(criterion=criterion), collected)
    value, gradient = problem.objective(x, has_distances=False, penalty=0.0)
    assert value == problem.cost(x)
    for seed in range(3):
        direction, step = np.random.default_rng(seed).normal(size=x.size), 1e-6
        slope = (problem.cost(x + step * direction) - problem.cost(x - step * direction)) / (2 * step)
        assert gradient @ direction == pytest.approx(slope, rel=2e-5)


@pytest.mark.parametrize("has_distances", [False, True])
@pytest.mark.parametrize(
    ("size", "moving", "stops"), [(0.3, 0.0, 0.0), (1.0, 0.0, 0.0), (2.0, 0.0, 0.0), (1.0, 0.0, 8.0), (1.0, 7.0, 3.0)]
)
def test_gradient_of_the_objective_with_its_penalties(model, gen3, size, moving, stops, has_distances):
    crate = Obstacle("crate", [0.2, 0.75, 0.3], [0.2, 0.2, 0.2])
    around = replace(model, collision=replace(model.collision, obstacles=(crate,)), feedback_torque=np.full(N, 2.0))
    around = replace(around, moving_torque=np.full(N, moving), stop_torque=np.full(N, stops))
    problem = ExcitationProblem(around, gen3.home, ExcitationSettings(amplitude=3.0, torque_fraction=1.0))
    x = size * np.random.default_rng(4).normal(size=problem.size)
    value, gradient = problem.objective(x, has_distances)
    assert value > problem.cost(x)
    for seed in range(3):
        direction, step = np.random.default_rng(seed).normal(size=x.size), 1e-7
        values = [problem.objective(x + sign * step * direction, has_distances)[0] for sign in (1, -1)]
        slope = (values[0] - values[1]) / (2 * step)
        assert gradient @ direction == pytest.approx(slope, rel=1e-4, abs=1e-4 * np.linalg.norm(gradient))


def test_gradient_with_feedback_that_is_known_at_every_sample(model, gen3):
    settings, rng = ExcitationSettings(amplitude=3.0, torque_fraction=1.0), np.random.default_rng(6)
    count = settings.samples
    known = replace(
        model,
        slow_torque=rng.uniform(0.0, 8.0, (count, N)),
        moving_torque=rng.uniform(0.0, 8.0, (count, N)),
        stop_torque=rng.uniform(0.0, 8.0, (count, N)),
        moving_speed=rng.uniform(0.2, 2.0, count),
    )
    problem, plain = (ExcitationProblem(one, gen3.home, settings) for one in (known, model))
    x = rng.normal(size=problem.size)
    assert problem.objective(x)[0] > plain.objective(x)[0]
    gradient = problem.objective(x)[1]
    for seed in range(3):
        direction, step = np.random.default_rng(seed).normal(size=x.size), 1e-7
        values = [problem.objective(x + sign * step * direction)[0] for sign in (1, -1)]
        slope = (values[0] - values[1]) / (2 * step)
        assert gradient @ direction == pytest.approx(slope, rel=1e-4, abs=1e-4 * np.linalg.norm(gradient))


def test_feedback_remembers_the_speeds_of_about_the_last_third_of_a_second():
    times = 0.05 * np.arange(60)
    weights = speed_memory(times)
    np.testing.assert_allclose(np.triu(weights, 1), 0.0)
    assert weights[-1].sum() == pytest.approx(1.0, abs=1e-3), "after a long time at one speed: its square"
    assert weights[0].sum() < 0.2, "before the motion is rest"
    age = weights[-1] @ (times[-1] - times) / weights[-1].sum()
    assert 0.2 < age < 0.4


@pytest.mark.parametrize(("name", "stages"), [("stop_torque", 2.0), ("moving_torque", 3.0)])
def test_torque_of_fast_motions_counts_by_speed(gen3, name, stages):
    """It is none at rest, half at 0.75 rad/s and all at high speed; that of stops counts in their two stages alone."""
    free, settings = ExcitationModel.of(gen3), ExcitationSettings(amplitude=3.0, torque_fraction=1.0)
    torque = np.zeros(N)
    torque[1] = 10.0 * gen3.limits.tau_held[1]  # far beyond the limit wherever it counts
    plain = ExcitationProblem(replace(free, **{name: 1e-9 * torque}), gen3.home, settings)
    more = ExcitationProblem(replace(free, **{name: torque}), gen3.home, settings)
    x = 1e-4 * np.random.default_rng(5).normal(size=plain.size)
    violations = [problem.objective(x)[0] - problem.cost(x) for problem in (plain, more)]
    assert violations[0] == pytest.approx(0.0, abs=1e-9) and violations[1] == pytest.approx(0.0, abs=1e-9)
    x *= 1e3
    speed = np.square(plain.space.states(x)[1]).sum(axis=1)
    share = speed / (speed + 0.75**2)
    violation = (more.objective(x, penalty=1.0)[0] - more.cost(x)) - (
        plain.objective(x, penalty=1.0)[0] - plain.cost(x)
    )
    # Each stage has a demand of at least nothing and at most the whole limit before.
    assert stages * np.square(np.maximum(10.0 * share - 1.0, 0.0)).sum() <= violation
    assert violation <= stages * np.square(10.0 * share + 0.03).sum()


def test_each_limit_is_part_of_the_penalty(model, gen3):
    """Where only one of them is broken, its violation alone counts."""
    wide = {"amplitude": 3.0, "torque_fraction": 1.0, "clearance": 0.0}
    x = 0.1 * np.random.default_rng(5).normal(size=N * 8)
    free_model = ExcitationModel.of(gen3)
    free = ExcitationProblem(free_model, gen3.home, ExcitationSettings(**wide))
    assert free.objective(x)[0] == pytest.approx(free.cost(x))
    limits = (
        ExcitationSettings(**{**wide, "amplitude": 0.05}),
        ExcitationSettings(**wide, velocity_fraction=0.1),
        ExcitationSettings(**wide, acceleration_fraction=0.05),
        ExcitationSettings(**{**wide, "torque_fraction": 0.75}),
    )
    penalties = []
    for settings in limits:
        problem = ExcitationProblem(free_model, gen3.home, settings)
        penalties.append(problem.objective(x)[0] - problem.cost(x))
    around = (gen3.home - 1.0, gen3.home + 1.0)
    room = MissingDistances(gen3, free_model.collision, np.zeros(N), 0.1, around).evaluate(gen3.home[None]).min()
    near = ExcitationProblem(free_model, gen3.home, ExcitationSettings(**{**wide, "clearance": room - 1e-3}))
    penalties.append(near.objective(x)[0] - near.cost(x))
    assert min(penalties) > 1e-4
    assert near.objective(x, has_distances=False)[0] == pytest.approx(near.cost(x))


def test_standing_still_breaks_no_limit(problem):
    still = np.zeros(problem.size)
    assert problem.objective(still)[0] == pytest.approx(problem.cost(still))


def test_more_collected_data_leave_less_to_learn(model, gen3, x):
    costs = [ExcitationProblem(model, gen3.home, ExcitationSettings(), k * COLLECTED).cost(x) for k in (0.01, 1, 100)]
    assert costs[0] > costs[1] > costs[2]


def test_bounds_criterion_is_the_posterior_of_the_joint_estimate():
    rng = np.random.default_rng(6)
    regressor = rng.normal(size=(5, 2, 14 * 2 + 10))
    errors = ErrorModel(rng.normal(size=38), rng.uniform(0.1, 1, 38), np.zeros(2), np.full(2, 0.3), 2.0, 0.5)
    rows = regressor.reshape(-1, 38)
    information = 2.0 * rows.T @ rows / 0.3**2 + np.diag(errors.radius**-2.0)
    relative = np.sqrt(np.diag(np.linalg.inv(information)))[-10:] / errors.radius[-10:]
    assert BoundsCriterion(errors).evaluate(regressor)[0] == pytest.approx(np.log(relative).sum())


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({3: 2.565}, r"joint 'joint_4' \[rad\] is 2.565; expected -2.56 to 2.56"),
        ({1: np.nan}, r"joint 'joint_2' \[rad\] is nan; expected -2.23 to 2.23"),
        ({1: 1.3, 3: 0.2, 5: 0.1}, r"the torque to hold the worst payload .* at joint 'joint_\d' \[Nm\]"),
    ],
)
def test_bad_starts_are_refused(model, gen3, start, message):
    q = gen3.home.copy()
    for joint, value in start.items():
        q[joint] = value
    with pytest.raises(NoExcitationFound, match=message):
        ExcitationProblem(model, q, ExcitationSettings())


def test_a_start_of_the_wrong_length_is_refused(model, gen3):
    with pytest.raises(NoExcitationFound, match="number of positions is 6; expected 7, one per joint"):
        ExcitationProblem(model, gen3.home[:6], ExcitationSettings())


def test_a_start_inside_an_obstacle_is_refused(gen3):
    model = ExcitationModel.of(gen3, obstacles=[Obstacle("crate", [0.45, 0, 0.4], [0.2, 0.2, 0.2])])
    with pytest.raises(NoExcitationFound, match="smallest distance of collision spheres"):
        ExcitationProblem(model, gen3.home, ExcitationSettings())


def test_a_controller_that_needs_all_torque_is_refused(model, gen3):
    feedback = np.where(np.arange(N) == 4, 8.0, 0.0)
    with pytest.raises(NoExcitationFound, match="at joint 'joint_5'"):
        ExcitationProblem(replace(model, feedback_torque=feedback), gen3.home, ExcitationSettings())


def test_a_tracking_error_that_leaves_no_speed_is_refused(model, gen3):
    with pytest.raises(NoExcitationFound, match="speed left at joint 'joint_1'"):
        ExcitationProblem(replace(model, tracking_velocity=np.full(N, 2.0)), gen3.home, ExcitationSettings())


def test_a_slow_motion_may_have_tracking_errors_faster_than_itself(model, gen3):
    """Both together keep the limit: a slow motion leaves more room for errors, not less."""
    slow, errors = ExcitationSettings().with_speed_share(0.2), np.full(N, 0.5)
    limits = ExcitationProblem(replace(model, tracking_velocity=errors), gen3.home, slow).limits
    np.testing.assert_allclose(limits.velocity, slow.velocity_fraction * gen3.limits.v_max)
    fast = ExcitationProblem(replace(model, tracking_velocity=errors), gen3.home, ExcitationSettings()).limits.velocity
    assert np.all(fast + errors < gen3.limits.v_max)


def test_the_model_takes_the_middle_of_a_box_without_the_nominal_payload(gen3):
    box = Box(gen3.payload_prior.nominal + 0.01, gen3.payload_prior.nominal + 0.02)
    np.testing.assert_allclose(ExcitationModel.of(gen3, payload_box=box).payload, box.center)


def test_another_duration_keeps_the_highest_frequency():
    settings = ExcitationSettings(duration=5.0, harmonics=5, seed=3)
    longer = settings.with_duration(7.5)
    assert (longer.duration, longer.harmonics, longer.seed) == (7.5, 8, 3)
    assert settings.with_duration(0.5).harmonics == 2
    with pytest.raises(ParameterOutOfRange, match=r"duration \[s\] nan"):
        settings.with_duration(float("nan"))
