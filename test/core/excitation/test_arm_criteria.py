"""Criteria of the whole arm: base regressor, the Frobenius bound and its property, gradients, earlier motions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import linprog
from textbook import load_textbook

from sysid_ros.core.common.box import Box
from sysid_ros.core.excitation.criteria import (
    SHARP,
    SMOOTH,
    BaseParameters,
    ErrorModel,
    build_criterion,
)
from sysid_ros.core.excitation.model import ExcitationModel
from sysid_ros.core.excitation.planner import (
    base_regressor,
    condition_number,
    expected_base_radii,
    momentum_windows,
)
from sysid_ros.core.excitation.problem import ExcitationProblem
from sysid_ros.core.excitation.settings import CRITERIA, ExcitationSettings
from sysid_ros.core.model.robot import EffortMeaning
from sysid_ros.core.regressors.torque import TorqueRegressor

EMPTY = Box(np.zeros(10), np.zeros(10))


@pytest.fixture(scope="module")
def med7():
    return load_textbook("kuka_lbr_med7")


@pytest.fixture(scope="module")
def arm_model(gen3):
    return ExcitationModel.of(gen3, payload_box=EMPTY, payload_spheres=(), ground_height=0.0)


def test_a_sharper_bound_is_nearer_to_the_condition_number(arm_model, gen3):
    settings = ExcitationSettings.for_arm(4.0, parameters="inertial")
    problem = ExcitationProblem(arm_model, gen3.home, settings)
    x = 0.5 * np.random.default_rng(2).normal(size=problem.size)
    rows = base_regressor(gen3, problem.base, [problem.space.trajectory(x)])
    exact, count = np.log(condition_number(rows.T @ rows)), problem.base.columns.size
    smooth = problem.cost(x)
    problem.sharpen(SHARP)
    sharp, gradient = problem.objective(x, has_distances=False, penalty=0.0)
    # The regressor is sampled more coarsely in the search.
    assert abs(sharp - exact) < 0.02 + np.log(count) / SHARP and sharp < smooth <= sharp + np.log(count) / SMOOTH
    direction, step = np.random.default_rng(3).normal(size=x.size), 1e-6
    slope = (problem.cost(x + step * direction) - problem.cost(x - step * direction)) / (2 * step)
    assert gradient @ direction == pytest.approx(slope, rel=1e-4)


def test_the_smooth_criterion_bounds_the_condition_number(arm_model, gen3):
    settings = ExcitationSettings.for_arm(10.0, criterion="condition_number")
    problem = ExcitationProblem(arm_model, gen3.home, settings)
    x = 0.3 * np.random.default_rng(1).normal(size=problem.size)
    regressor = TorqueRegressor(gen3).evaluate(*problem.space.states(x))[..., problem.base.columns]
    condition = np.linalg.cond(regressor.reshape(-1, problem.base.columns.size))
    assert condition <= np.exp(problem.cost(x)) * 1.02 <= 1.7 * condition  # friction's sign is smooth in the cost


def test_the_base_regressor_says_all_that_the_regressor_says(gen3, med7):
    rng = np.random.default_rng(2)
    for robot, count in ((gen3, 43 + 26), (med7, 43)):
        base = BaseParameters.of(robot)
        assert base.columns.size == count
        states = [rng.normal(size=(20, robot.n)) for _ in range(3)]
        whole = TorqueRegressor(robot).evaluate(*states)
        np.testing.assert_allclose(whole[..., base.columns] @ base.matrix, whole, atol=1e-9)
    assert gen3.sensors.effort_meaning is EffortMeaning.MOTOR_SIDE
    assert BaseParameters.of(gen3, ()).columns.size == 43


@pytest.mark.parametrize("parameters", ["measured", "inertial"])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_cost_gradient_of_a_whole_arm(arm_model, gen3, criterion, parameters):
    settings = ExcitationSettings.for_arm(8.0, criterion=criterion, parameters=parameters)
    earlier = ExcitationProblem(arm_model, gen3.home, settings).space
    rng = np.random.default_rng(3)
    before = earlier.trajectory(0.3 * rng.normal(size=earlier.size))
    problem = ExcitationProblem(arm_model, gen3.home, settings, earlier=[before])
    x = 0.3 * rng.normal(size=problem.size)
    value, gradient = problem.objective(x, has_distances=False, penalty=0.0)
    assert value == problem.cost(x)
    for _ in range(3):
        direction, step = rng.normal(size=x.size), 1e-6
        slope = (problem.cost(x + step * direction) - problem.cost(x - step * direction)) / (2 * step)
        assert gradient @ direction == pytest.approx(slope, rel=1e-4, abs=1e-5 * np.linalg.norm(gradient))


@pytest.mark.parametrize("criterion", CRITERIA)
def test_an_earlier_motion_counts_as_if_both_were_one(arm_model, gen3, criterion):
    settings = ExcitationSettings.for_arm(8.0, criterion=criterion)
    problem = ExcitationProblem(arm_model, gen3.home, settings)
    rng, n = np.random.default_rng(4), gen3.n
    one, two = rng.normal(size=(2, 30, n, 14 * n))
    errors = ErrorModel(gen3.theta_nominal, gen3.theta_box.radius, np.full(n, 0.02), np.full(n, 0.1), 0.7, 0.5)
    added, together = (build_criterion(criterion, errors, base=problem.base) for _ in range(2))
    added.add(one, 0.7)
    assert added.evaluate(two)[0] == pytest.approx(together.evaluate(np.concatenate([one, two]))[0], rel=1e-9)


def test_expected_radii_of_base_parameters_contain_those_of_the_linear_program(gen3, arm_model):
    """No bound from torque errors and the box alone can be narrower than the set of all consistent parameters."""
    quiet = {"effort_relative_error": np.full(gen3.n, 0.025), "effort_absolute_error": np.full(gen3.n, 0.02)}
    gen3 = replace(gen3, sensors=replace(gen3.sensors, **quiet))
    arm_model, base = replace(arm_model, robot=gen3), BaseParameters.of(gen3)
    space = ExcitationProblem(arm_model, gen3.home, ExcitationSettings.for_arm(8.0)).space
    rng = np.random.default_rng(5)
    motions = [space.trajectory(0.2 * rng.normal(size=space.size)) for _ in range(2)]
    radius = gen3.theta_box.radius
    prior = np.abs(base.matrix) @ radius
    one, both = (expected_base_radii(arm_model, base, part, 0.4) for part in (motions[:1], motions))
    assert np.all(one <= prior * (1 + 1e-12)) and both.sum() < one.sum() < prior.sum()
    rows = np.concatenate([momentum_windows(gen3, path, 0.4)[..., :-10] for path in motions]) / 0.4
    torque = np.abs(rows @ gen3.theta_box.center)
    error = (gen3.sensors.effort_relative_error * torque + gen3.sensors.lasting_error).ravel()
    matrix = rows.reshape(error.size, -1) * radius / error[:, None]
    for index in range(0, base.columns.size, 9):
        cost, bounds = -base.matrix[index] * radius, [(-1, 1)] * radius.size
        stacked = np.vstack([matrix, -matrix])
        result = linprog(cost, stacked, np.ones(len(stacked)), bounds=bounds, method="highs")
        assert -result.fun <= both[index] * (1 + 1e-6)


def test_condition_number_of_motions_is_that_of_their_stacked_rows(med7):
    base = BaseParameters.of(med7)
    model = ExcitationModel.of(med7, payload_box=EMPTY, payload_spheres=())
    space = ExcitationProblem(model, med7.home, ExcitationSettings.for_arm(8.0)).space
    motion = space.trajectory(0.2 * np.random.default_rng(6).normal(size=space.size))
    rows = base_regressor(med7, base, [motion, motion])
    assert condition_number(rows.T @ rows) == pytest.approx(np.linalg.cond(base_regressor(med7, base, [motion])))
