"""Every gradient of the planner against finite differences, every value against other code."""

from __future__ import annotations

import numpy as np
import pytest

from sysid_ros.core.certification.stop_model import STOP_SPEED
from sysid_ros.core.collision.clearance import build_scene_model
from sysid_ros.core.common.box import Box
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.planning.costs import condition_number, smooth_condition
from sysid_ros.core.planning.distances import ArmSpheres, FreeDistances
from sysid_ros.core.planning.dynamics import WorstTorque
from sysid_ros.core.planning.search import PENALTY, Search, StepProblem
from sysid_ros.core.regressors.rest_torque import RestTorque, WeighedBox

STEP = 1e-6


def random_states(count: int, seed: int = 0):
    return tuple(np.random.default_rng(seed).normal(size=(3, count, 7)))


def differences(function, states, which):
    """Central differences of a function of states (N, n), joint by joint, along one of q, v, a: list of n arrays."""
    results = []
    for joint in range(7):
        values = []
        for sign in (1.0, -1.0):
            moved = [part.copy() for part in states]
            moved[which][:, joint] += sign * STEP
            values.append(function(tuple(moved)))
        results.append((values[0] - values[1]) / (2.0 * STEP))
    return results


@pytest.mark.parametrize("is_weighed", [False, True])
def test_gradients_of_worst_torques(gen3, is_weighed):
    torque, states = WorstTorque(gen3), random_states(15)
    if is_weighed:
        before, prior = torque.evaluate(states).demand, gen3.payload_prior
        known = ArmDynamics(gen3, gen3.theta_nominal, prior.nominal).gravity(gen3.home)
        rest = RestTorque(tuple(gen3.joint_names), gen3.home, Box.around(known, np.full(7, 0.5)))
        torque.set_boxes(gen3.theta_box, WeighedBox.of(prior.box, rest))
        saved = before - torque.evaluate(states).demand
        assert saved.min() > -1e-9 and np.mean(saved > 0.1) > 0.2
    samples, joints = np.repeat(np.arange(15), 7), np.tile(np.arange(7), 15)
    parts = torque.gradients(states, torque.evaluate(states), samples, joints)
    for which, part in enumerate(parts):
        slopes = differences(lambda s: torque.evaluate(s).demand.ravel(), states, which)
        np.testing.assert_allclose(part, np.stack(slopes, axis=1), rtol=1e-5, atol=1e-5)


def test_torques_that_do_not_matter_may_come_out_larger(gen3):
    torque, states, prior = WorstTorque(gen3), random_states(40), gen3.payload_prior
    known = ArmDynamics(gen3, gen3.theta_nominal, prior.nominal).gravity(gen3.home)
    rest = RestTorque(tuple(gen3.joint_names), gen3.home, Box.around(known, np.full(7, 0.5)))
    torque.set_boxes(gen3.theta_box, WeighedBox.of(prior.box, rest))
    exact = torque.evaluate(states)
    little = np.median(exact.demand, axis=0) * np.ones((40, 1))
    found = torque.evaluate(states, little=little)
    matters = exact.demand > little
    np.testing.assert_allclose(found.demand[matters], exact.demand[matters], rtol=1e-12)
    assert np.array_equal(found.side[matters], exact.side[matters])
    rest_of_them = found.demand[~matters]
    assert np.all(rest_of_them >= exact.demand[~matters] - 1e-9) and np.all(rest_of_them <= little[~matters])
    assert np.mean(rest_of_them > exact.demand[~matters] + 0.1) > 0.1


@pytest.mark.parametrize("is_tilted", [False, True])
def test_gradients_of_distances(gen3, tilted_gen3, scene, is_tilted):
    robot = tilted_gen3 if is_tilted else gen3
    # A large clearance, so that the effect of errors is worked out in all rows.
    distances = FreeDistances(ArmSpheres(robot, build_scene_model(robot, scene)), np.full(7, 0.02), 5.0)
    q = random_states(15)[0]
    samples = distances.evaluate(q)
    count = samples.free.shape[1]
    chosen, rows = np.repeat(np.arange(15), count), np.tile(np.arange(count), 15)
    gradient = distances.gradients(samples, chosen, rows)
    slopes = differences(lambda s: distances.evaluate(s[0]).free.ravel(), (q, q, q), 0)
    np.testing.assert_allclose(gradient, np.stack(slopes, axis=1), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("cost", ["condition", "determinant", "bounds", "goal"])
@pytest.mark.parametrize("is_last", [False, True])
def test_gradients_of_costs(make_problem, cost, is_last):
    settings = {} if cost == "goal" else {"cost": cost}
    rows = np.random.default_rng(1).normal(size=(30, 10)) * 0.1
    goal = np.linspace(-1.0, 1.0, 7) if cost == "goal" else None
    problem = make_problem(information=rows.T @ rows, is_last=is_last, goal=goal, **settings)
    x = problem.space.offsets(np.random.default_rng(2).uniform(-1.0, 1.0, (3, 7)))
    values, gradients = problem.cost.gradient(x)
    np.testing.assert_allclose(values, problem.cost.evaluate(x), rtol=1e-12)
    for joint in range(7):
        step = np.zeros(7)
        step[joint] = 1e-5
        slope = (problem.cost.evaluate(x + step) - problem.cost.evaluate(x - step)) / 2e-5
        np.testing.assert_allclose(gradients[:, joint], slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("is_slow", [False, True])
def test_linear_models_of_constraints(make_problem, gen3, is_slow):
    """In slow motions the room for the feedback's torque in stops depends on the speed."""
    problem = make_problem(start=(gen3.home, np.zeros(7), np.zeros(7))) if is_slow else make_problem()
    constraints = problem.constraints()
    k = np.random.default_rng(3).uniform(-0.7, 0.7, (2, 7))
    x = problem.space.offsets(problem.minimum_acceleration + 0.3 * (k - problem.minimum_acceleration) if is_slow else k)
    samples = constraints.evaluate(x)
    assert (np.abs(samples.states[1]).max() < STOP_SPEED) == is_slow
    values, slopes = constraints.linearise(samples, np.arange(2), 30)
    used = values > -100.0
    assert used.sum() >= 60
    assert np.all(values.max(axis=1) == samples.worst)
    for joint in range(7):
        step = np.zeros(7)
        step[joint] = STEP
        moved = [constraints.evaluate(x + sign * step) for sign in (1.0, -1.0)]
        for motion in range(2):
            every = [np.concatenate([s.torque[motion].ravel(), s.distance[motion].ravel()]) for s in (samples, *moved)]
            slope = (every[1] - every[2]) / (2.0 * STEP)
            for value, got in zip(values[motion][used[motion]], slopes[motion][used[motion], joint], strict=True):
                same = np.flatnonzero(every[0] == value)
                assert np.abs(slope[same] - got).min() < 1e-4


def test_condition_number_and_its_smooth_bound():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 10)) * np.logspace(-2, 1, 10)
    gram = rows.T @ rows
    exact = np.linalg.cond(rows)
    assert condition_number(gram) == pytest.approx(exact, rel=1e-6)
    for power in (2, 4, 16):
        value = smooth_condition(gram[None], power)[0][0]
        # Squaring makes of rounding in the rows some 1e-16 times the square of the condition number.
        assert np.log(exact) - 1e-9 <= value <= np.log(exact) + np.log(10.0) / power
    assert condition_number(rows[:5].T @ rows[:5]) == np.inf


def test_a_search_models_only_the_motions_it_goes_on_from(make_problem, gen3):
    """Trials that are rejected, and what runs that are given up have come to, need no derivatives."""
    problem = make_problem()
    constraints, counts, calls = problem.constraints(), {"evaluate": 0, "linearise": 0}, []

    class Counted:
        def evaluate(self, x):
            counts["evaluate"] += len(x)
            return constraints.evaluate(x)

        def linearise(self, samples, motions, rows):
            counts["linearise"] += len(motions)
            calls.append((samples, motions))
            return constraints.linearise(samples, motions, rows)

    step_problem = StepProblem(gen3.n)
    search = Search(problem.cost, Counted(), problem.space, step_problem)
    starts = problem.first_starts(None)
    found = search.run(starts, 12, lambda: False)
    assert counts["evaluate"] == len(starts) + search.iterations
    assert 0 < counts["linearise"] < 0.85 * counts["evaluate"]
    assert found.worst == pytest.approx(problem.worst_rows(problem.space.offsets(found.k)[None])[0], abs=1e-12)
    assert found.cost <= min(problem.cost.evaluate(problem.space.offsets(starts))) + PENALTY * max(found.worst, 0.0)
    # A run that has converged is not evaluated again.
    again = Search(problem.cost, Counted(), problem.space, step_problem)
    again.run(found.k[None], 40, lambda: False)
    assert again.iterations < 40


def test_a_feasible_start_stops_where_the_cost_gains_too_little(make_problem, gen3):
    problem = make_problem(start=(gen3.home, np.zeros(7), np.zeros(7)))
    k = problem.first_starts(None)
    found = Search(problem.cost, problem.constraints(), problem.space, StepProblem(gen3.n)).run(k, 12, lambda: False)
    assert found.worst <= 0.0
    problem.cost.little = np.inf
    far = np.random.default_rng(0).choice([-1.0, 1.0], (20, gen3.n))
    infeasible = far[np.argmax(problem.worst_rows(problem.space.offsets(far)))]
    assert problem.worst_rows(problem.space.offsets(infeasible)[None])[0] > 0.1
    for start, takes_steps in ((found.k, False), (infeasible, True)):
        search = Search(problem.cost, problem.constraints(), problem.space, StepProblem(gen3.n))
        search.run(start[None], 5, lambda: False)
        assert (search.iterations > 0) == takes_steps
