import dataclasses
from functools import partial

import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import linprog

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.bounds import consistency
from sysid_ros.core.estimation.bounds.closed_form import bound_with, choose_inverse
from sysid_ros.core.estimation.bounds.consistency import (
    find_inconsistent_rows,
    find_infeasibility_proof,
    infeasibility_margin,
)
from sysid_ros.core.estimation.bounds.set_membership import (
    SidedBounds,
    WarmStart,
    add_cuts,
    bound_by_membership,
    find_cuts,
    seed_cuts,
    solve_programs,
)
from sysid_ros.core.estimation.bounds.shape_cuts import shape_cuts
from sysid_ros.core.estimation.lp import interior_point, row_chain
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.lp.row_chain import RowChain
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.windows.model import WindowModel
from sysid_ros.core.estimation.windows.rows import Rows, build_rows
from sysid_ros.core.estimation.windows.stream import SampleStream
from sysid_ros.core.model.inertia import from_pseudo_inertia, is_physically_consistent
from sysid_ros.core.model.sampling import sample_parameters, sample_payload


@pytest.fixture(scope="module")
def case(robot, tools, dumbbell):
    """Windows of 1.5 s of noisy data of an arm at a corner of its box."""
    rng = np.random.default_rng(3)
    settings = EstimatorSettings()
    block = tools.record(
        robot, sample_parameters(robot, rng, corner=True), dumbbell, tools.FourierMotion(robot, 3), 1.55
    )
    block = tools.measure(robot, block.q, block.v, block.tau, rng)
    unknowns = describe_unknowns(robot, settings)
    model = WindowModel(robot, settings, unknowns)
    windows, _ = SampleStream(robot, settings).add(block)
    rows = Rows.stack([build_rows(model, w) for w in windows])
    return rows, unknowns, robot


@pytest.fixture(scope="module")
def problem(case):
    return centred(case)


def centred(case, box=None, part=slice(None)):
    rows, unknowns, robot = case
    box = box or unknowns.prior
    return Problem.build(rows.select(part), box.center, box.radius, unknowns.radius, unknowns.end_error)


class Reference:
    """The linear program written out in full, for scipy: variables x, delta, eta in their boxes."""

    def __init__(self, problem):
        self.problem, self.matrix = (
            problem,
            scipy.sparse.csr_array(scipy.sparse.hstack([problem.y, problem.b, problem.end_matrix])),
        )
        self.radii = np.concatenate([problem.radius, problem.delta_radius, problem.end_radii])
        # scipy has no ranges; rows in units of their errors, variables in units of their half widths
        scaled = scipy.sparse.diags_array(1.0 / problem.error) @ self.matrix @ scipy.sparse.diags_array(self.radii)
        self.both = scipy.sparse.vstack([scaled, -scaled]).tocsr()
        self.limits = np.concatenate([problem.r / problem.error + 1.0, 1.0 - problem.r / problem.error])

    def bounds(self, parameters):
        """Lower and upper bounds of some parameters."""
        return np.array([[self.optimum(i, sign) for sign in (1.0, -1.0)] for i in parameters]).T

    def optimum(self, i, sign):
        cost = np.zeros(self.radii.size)
        cost[i] = sign
        options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
        outcome = linprog(
            cost, A_ub=self.both, b_ub=self.limits, bounds=(-1.0, 1.0), method="highs-ipm", options=options
        )
        assert outcome.status == 0, outcome.message
        return self.problem.center[i] + sign * outcome.fun * self.problem.radius[i]


@pytest.fixture(scope="module")
def optimum(problem):
    return Reference(problem).bounds(range(10))


def assert_contains(bounds, optimum, slack=1e-8):
    width = optimum[1] - optimum[0]
    assert np.all(bounds.lower <= optimum[0] + slack * width) and np.all(bounds.upper >= optimum[1] - slack * width)


def excess(bounds, optimum):
    return ((bounds.upper - bounds.lower) - (optimum[1] - optimum[0])) / (optimum[1] - optimum[0])


@pytest.mark.slow
def test_the_bounds_are_those_of_the_linear_program(problem, optimum):
    default = bound_by_membership(problem, EstimatorSettings().bound_tolerance)
    assert_contains(default, optimum)
    assert excess(default, optimum).max() < 3.0 * EstimatorSettings().bound_tolerance
    bounds = bound_by_membership(problem, 1e-6)
    assert_contains(bounds, optimum)
    assert np.all(np.abs(bounds.lower - optimum[0]) <= 1e-5 * (optimum[1] - optimum[0]))
    assert np.all(np.abs(bounds.upper - optimum[1]) <= 1e-5 * (optimum[1] - optimum[0]))
    assert bounds.notice is None and bounds.infeasibility is None
    inverse = bound_with(problem, choose_inverse(problem, 10))
    assert np.all(2.0 * inverse.radius >= (bounds.upper - bounds.lower) * (1 - 1e-6))
    assert np.any(2.0 * inverse.radius > 1.2 * (bounds.upper - bounds.lower))


def test_a_sloppy_solver_only_widens_the_bounds(problem, optimum):
    good = bound_by_membership(problem, 1e-6)
    previous = 0.0
    for tolerance in (1e-4, 1e-2):
        bounds = bound_by_membership(problem, tolerance)
        assert_contains(bounds, optimum)
        loss = excess(bounds, optimum)
        assert loss.max() > previous and loss.max() < 3.0 * tolerance
        previous = loss.max()
    assert excess(good, optimum).max() < 1e-4


@pytest.mark.parametrize("steps", [0, 1, 3, 6])
def test_a_solver_that_is_stopped_early_only_widens_the_bounds(problem, optimum, steps):
    solution, multipliers = solve_programs(problem, 1e-6, steps)
    bounds = SidedBounds.best_of(problem, [(multipliers[:10], multipliers[10:])])
    assert_contains(bounds, optimum)
    assert solution.steps <= steps and excess(bounds, optimum).max() > 1e-3


@pytest.mark.parametrize("reached", [1.0, 0.5])
def test_a_minimum_at_the_edge_of_the_box_shows_before_the_multipliers_do(problem, reached):
    """Rows that say next to nothing, a point that satisfies them, and multipliers that prove nothing."""
    chain = RowChain(dataclasses.replace(problem, errors=1e3 * problem.errors))
    programs = interior_point.Programs(chain, problem.r / chain.error, np.eye(10))
    price = np.concatenate([np.eye(10), -np.eye(10)], axis=1)
    dual = np.random.default_rng(0).normal(size=(len(problem.r), 20))
    state = interior_point._State.start(programs, price, dual)
    state.z = np.zeros_like(state.z)
    state.z[:10] = -reached * price
    state.z[-len(problem.r) :] = programs.r[:, None] - chain.times(state.z)  # the errors of the rows
    assert np.abs(state.z).max() <= 1.0
    state._balance()
    np.testing.assert_allclose(state.gap(), 1.0 - reached, atol=1e-9)


@pytest.mark.parametrize("size", [1e-8, 1e-4, 1e-2, 1.0])
def test_wrong_multipliers_only_widen_the_bounds(problem, optimum, size):
    rng = np.random.default_rng(0)
    _, multipliers = solve_programs(problem, 1e-6)
    scale = np.abs(multipliers).mean(axis=1, keepdims=True)
    for _ in range(5):
        wrong = multipliers + size * scale * rng.normal(size=multipliers.shape)
        wrong[rng.integers(20, size=3)] *= -1.0
        bounds = SidedBounds.best_of(problem, [(wrong[:10], wrong[10:])])
        assert_contains(bounds, optimum)
    nothing = np.full((10, len(problem.r)), np.nan)
    bounds = SidedBounds.best_of(problem, [(nothing, nothing)])
    np.testing.assert_allclose(bounds.upper, problem.center + problem.radius, rtol=1e-9, atol=1e-9)


def test_a_failed_solver_leaves_the_left_inverse_and_says_so(problem, optimum, monkeypatch):
    monkeypatch.setattr(interior_point.RowChain, "factorise", lambda self, weight, is_hard=None: _Broken())
    bounds = bound_by_membership(problem, 1e-6, reweightings=3)
    assert "the left inverse replaces it" in bounds.notice and bounds.infeasibility is None
    assert_contains(bounds, optimum)
    assert bounds.upper[0] - bounds.lower[0] < 1.5 * (optimum[1] - optimum[0])[0]


def test_programs_are_stalled_where_their_gap_keeps_rising(problem, monkeypatch):
    """From good multipliers it rises first and then falls; only a program that goes on rising needs all rows."""
    gaps = iter(np.array([[0.1, 0.2, 0.15, 0.16, 0.09, 0.0], [0.1, 0.2, 0.3, 0.25, 0.2, 0.0]]).T)
    hard = []
    monkeypatch.setattr(interior_point._State, "gap", lambda self: next(gaps))
    monkeypatch.setattr(interior_point._State, "advance", lambda self, is_hard: hard.append(is_hard.tolist()))
    chain = interior_point.RowChain(problem)
    interior_point.solve(interior_point.Programs(chain, problem.r / chain.error, np.eye(chain.size)[:10, :1]), 1e-6)
    assert hard == [[False, False]] * 2 + [[False, True]] * 3


class _Broken:
    def solve(self, right):
        return np.full_like(right, np.nan)


class TestMatrix:
    @pytest.mark.parametrize("few", [1000, 0])
    def test_products_and_factors_are_those_of_the_dense_matrix(self, problem, monkeypatch, few):
        monkeypatch.setattr(row_chain, "_FEW_ROWS", few)  # more are not factorised as a whole
        chain = RowChain(problem)
        unit = np.eye(chain.size)
        dense = chain.times(unit)
        np.testing.assert_array_equal(dense[:, -len(problem.r) :], np.eye(len(problem.r)))
        rng = np.random.default_rng(0)
        weight = rng.uniform(0.1, 1.0, (chain.size, 3))
        right = rng.normal(size=(len(problem.r), 3))
        np.testing.assert_allclose(chain.transposed(right), dense.T @ right, rtol=1e-9, atol=1e-9)
        for is_hard in (None, np.ones(3, dtype=bool), np.array([False, True, False])):
            found = chain.factorise(weight, is_hard).solve(right)
            for s in range(3):
                expected = np.linalg.solve(dense * weight[:, s] @ dense.T, right[:, s])
                np.testing.assert_allclose(found[:, s], expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max())
            broken = chain.factorise(np.where(np.arange(3) == 1, np.nan, weight), is_hard).solve(right)
            assert np.all(np.isnan(broken[:, 1])) and np.all(np.isfinite(broken[:, [0, 2]]))

    def test_solutions_of_many_rows_are_refined(self, problem, monkeypatch):
        monkeypatch.setattr(row_chain, "_FEW_ROWS", 0)
        chain, rng = RowChain(problem), np.random.default_rng(0)
        weight = np.ones((chain.size, 2))
        weight[chain.shared.shape[1] :] = 1e-8  # as in late steps: errors at their bounds
        right = rng.normal(size=(len(problem.r), 2))

        def missing(is_hard):
            found = chain.factorise(weight, is_hard).solve(right)
            return np.abs(right - chain.times(weight * chain.transposed(found))).max(axis=0)

        assert np.all(missing(np.array([True, True])) < 0.02 * missing(None))
        assert missing(np.array([True, False]))[0] < 0.02 * missing(None)[0]

    def test_negligible_errors_are_left_out_only_up_to_their_share(self, problem):
        whole, part = RowChain(problem), RowChain(problem, negligible=1e-2)
        assert part.size < whole.size
        dual = np.random.default_rng(0).normal(size=(len(problem.r), 1))
        sizes = [np.abs(chain.transposed(dual)).sum() for chain in (whole, part)]
        assert sizes[1] < sizes[0] <= sizes[1] + 2.0 * 1e-2 * np.abs(dual).sum()

    def test_what_is_left_out_can_count_in_the_errors_of_rows(self, problem):
        whole, part = RowChain(problem), RowChain(problem, negligible=0.5, counted=1.0)
        assert part.size < whole.size and np.all(part.error >= whole.error) and np.any(part.error > whole.error)
        dual = np.random.default_rng(0).normal(size=(len(problem.r), 1)) / problem.error[:, None]
        # The support function of all errors is no larger than before: each row by itself is the worst case.
        sizes = [np.abs(chain.transposed(dual * chain.error[:, None])).sum() for chain in (whole, part)]
        assert sizes[0] <= sizes[1] * (1.0 + 1e-12)

    def test_bounds_lose_no_more_than_the_tolerance_by_what_is_left_out(self, problem, optimum):
        assert excess(bound_by_membership(problem, 1e-2), optimum).max() < 1e-2

    def test_earlier_multipliers_prove_the_same_bounds_again(self, problem):
        first = bound_by_membership(problem, 1e-4)
        again = bound_by_membership(problem, 0.1, first.warm_start)
        assert np.all(again.lower >= first.lower) and np.all(again.upper <= first.upper)
        assert np.all(again.upper - again.lower <= first.upper - first.lower)

    def test_columns_are_those_of_the_problem(self, problem):
        chain, reference = RowChain(problem), Reference(problem)
        matrix = reference.matrix.toarray() * reference.radii / problem.error[:, None]
        rng = np.random.default_rng(1)
        dual = rng.normal(size=(len(problem.r), 1))
        ours = np.sort(np.abs(chain.transposed(dual)[: -len(problem.r), 0]))
        theirs = np.sort(np.abs(matrix.T @ dual[:, 0]))
        np.testing.assert_allclose(ours.sum(), theirs.sum(), rtol=1e-9)
        np.testing.assert_allclose(ours[-500:], theirs[-500:], rtol=1e-9)


class TestCone:
    def test_every_body_fulfils_the_cuts(self, robot):
        rng = np.random.default_rng(0)
        bodies = []
        for _ in range(200):
            root = rng.normal(size=(4, 4)) * rng.choice([1.0, 1e-3], size=4)
            bodies.append(from_pseudo_inertia(root @ root.T))
        cuts = np.concatenate([seed_cuts(robot.payload_prior.nominal), find_cuts(rng.normal(size=(50, 10)))])
        assert len(cuts) > 60
        products = np.array(bodies) @ cuts.T
        assert np.all(products >= -1e-12 * np.abs(bodies) @ np.abs(cuts.T))

    def test_cuts_remove_what_is_no_body(self):
        rng = np.random.default_rng(0)
        for theta in rng.normal(size=(50, 10)):
            cuts = find_cuts(theta[None])
            assert bool(len(cuts)) != is_physically_consistent(theta)
            assert np.all(cuts @ theta < 0.0)

    def test_cuts_of_several_bodies_concern_one_each(self, robot):
        rng = np.random.default_rng(0)
        bodies = np.array([from_pseudo_inertia(root @ root.T) for root in rng.normal(size=(60, 4, 4))]).reshape(20, 30)
        targets = np.concatenate([bodies, rng.normal(size=(20, 4))], axis=1)  # friction comes behind
        none = rng.normal(size=(20, 34))
        cuts = np.concatenate([seed_cuts(targets[0], 3), find_cuts(none, 3)])
        assert len(cuts) > 100 and not np.any(cuts[:, 30:])
        assert np.all(np.count_nonzero(np.any(cuts[:, :30].reshape(-1, 3, 10), axis=2), axis=1) == 1)
        assert np.all(targets @ cuts.T >= -1e-12 * np.abs(targets) @ np.abs(cuts.T))
        violated = [find_cuts(one[None], 3) @ one for one in none]
        assert all(np.all(values < 0.0) and len(values) for values in violated)

    def test_cuts_narrow_the_bounds_and_keep_the_truth(self, problem, dumbbell, robot):
        plain = bound_by_membership(problem, 1e-4)
        bounds = bound_by_membership(problem, 1e-4, WarmStart(cuts=seed_cuts(robot.payload_prior.nominal)))
        again = bound_by_membership(problem, 1e-4, WarmStart(cuts=bounds.warm_start.cuts))
        widths = [b.upper - b.lower for b in (plain, bounds, again)]
        assert np.all(widths[1] <= widths[0] * (1 + 1e-3)) and np.all(widths[2] <= widths[1] * (1 + 1e-3))
        assert np.min(widths[1] / widths[0]) < 0.9 and np.sum(widths[2]) < np.sum(widths[1])
        for one in (plain, bounds, again):
            assert np.all((one.lower <= dumbbell) & (dumbbell <= one.upper))
        assert bounds.warm_start.multipliers.shape == (20, len(problem.r))

    @pytest.mark.parametrize("of_shape", [False, True])
    def test_with_cuts_the_bounds_are_those_of_the_linear_program_with_cuts(self, problem, robot, of_shape):
        prior = robot.payload_prior
        cuts = shape_cuts(prior.shape, prior.box) if of_shape else seed_cuts(prior.nominal)
        bounds = bound_by_membership(problem, 1e-6, WarmStart(cuts=cuts))
        reference = Reference(problem)
        rows = np.zeros((len(cuts), reference.radii.size))
        size = np.abs(cuts) @ problem.theta_size
        rows[:, :10] = -cuts * problem.radius / size[:, None]
        reference.both = scipy.sparse.vstack([reference.both, rows]).tocsr()
        reference.limits = np.concatenate([reference.limits, cuts @ problem.center / size])
        lower, upper = reference.bounds([4, 6])
        np.testing.assert_allclose(bounds.lower[[4, 6]], lower, atol=2e-6 * np.max(upper - lower))
        np.testing.assert_allclose(bounds.upper[[4, 6]], upper, atol=2e-6 * np.max(upper - lower))

    def test_what_else_holds_becomes_a_cut_where_the_bounds_violate_it(self, problem, robot):
        known = shape_cuts(robot.payload_prior.shape, robot.payload_prior.box)
        seeds = WarmStart(cuts=seed_cuts(robot.payload_prior.nominal))
        without = bound_by_membership(problem, 1e-4, seeds)
        first = bound_by_membership(problem, 1e-4, seeds, known=known)
        again = bound_by_membership(problem, 1e-4, first.warm_start, known=known)
        added = len(first.warm_start.cuts) - len(without.warm_start.cuts)
        assert 0 < added < len(known)
        assert np.min((again.upper - again.lower) / (without.upper - without.lower)) < 0.97

    def test_the_rows_of_cuts_hold_for_bodies_in_the_box(self, problem, robot):
        cuts = seed_cuts(robot.payload_prior.nominal)
        whole = add_cuts(problem, cuts)
        rng = np.random.default_rng(0)
        for _ in range(20):
            x = sample_payload(robot.payload_prior, rng) - problem.center
            rest = whole.r[: len(cuts)] - whole.y[: len(cuts)] @ x
            assert np.all(np.abs(rest) <= whole.error[: len(cuts)])


class TestInfeasibility:
    def violated(self, problem, row=50, factor=6.0):
        """One row off by several times its error: each row alone can be explained, all together cannot."""
        r = problem.r.copy()
        r[row] += factor * problem.error[row]
        return dataclasses.replace(problem, r=r)

    def test_consistent_data_have_none(self, problem):
        assert find_infeasibility_proof(problem) is None

    def test_is_proven_and_names_the_row(self, problem):
        wrong = self.violated(problem)
        assert not find_inconsistent_rows(wrong).size
        bounds = bound_by_membership(wrong, 1e-3)
        assert bounds.infeasibility is not None and infeasibility_margin(wrong, bounds.infeasibility) > 0.0
        assert int(np.argmax(np.abs(bounds.infeasibility) * wrong.error)) == 50
        outcome = linprog(
            np.zeros(Reference(wrong).radii.size),
            A_ub=Reference(wrong).both,
            b_ub=Reference(wrong).limits,
            bounds=(-1, 1),
        )
        assert outcome.status == 2  # infeasible, says another solver

    def test_only_a_proof_counts(self, problem):
        rng = np.random.default_rng(0)
        candidates = rng.normal(size=(200, len(problem.r))) / problem.error
        assert all(infeasibility_margin(problem, one) < 0.0 for one in candidates)
        _, multipliers = solve_programs(problem, 1e-3)
        assert all(infeasibility_margin(problem, one) < 0.0 for one in multipliers[:10] - multipliers[10:])

    def test_a_solver_that_gives_up_raises_no_alarm(self, problem, monkeypatch):
        monkeypatch.setattr(consistency, "solve_for_scale", partial(consistency.solve_for_scale, max_steps=2))
        solution, _ = solve_programs(problem, 1e-6, 2)
        assert np.any(solution.gap > 1e-3)
        assert find_infeasibility_proof(problem) is None


def test_a_smaller_box_gives_smaller_bounds(case, dumbbell):
    wide = bound_by_membership(centred(case), 1e-4)
    box = Box(wide.lower, wide.upper)
    narrow = bound_by_membership(centred(case, box), 1e-4)
    assert np.all(narrow.upper - narrow.lower <= (wide.upper - wide.lower) * (1 + 1e-4))
    assert np.all((narrow.lower <= dumbbell) & (dumbbell <= narrow.upper))


class TestChosen:
    """Bounds of some objectives solved anew, the others kept."""

    def test_chosen_ones_are_solved_and_the_others_keep_their_bounds(self, case, robot):
        seeds = WarmStart(cuts=seed_cuts(robot.payload_prior.nominal))
        first = bound_by_membership(centred(case, part=slice(0, 70)), 1e-4, seeds)
        whole = centred(case)
        chosen = np.isin(np.arange(10), (0, 3, 6))
        some = bound_by_membership(whole, 1e-4, dataclasses.replace(first.warm_start, active=chosen))
        full = bound_by_membership(whole, 1e-4, first.warm_start)
        width = full.upper - full.lower
        for bounds, sign in (("lower", 1.0), ("upper", -1.0)):
            one, all_of_them, old = (sign * getattr(b, bounds) for b in (some, full, first))
            assert np.all(np.abs(one - all_of_them)[chosen] <= 1e-3 * width[chosen])
            # What the multipliers proved for fewer rows they prove for more, cuts included.
            assert np.all(one >= old - 1e-3 * width) and np.all(one <= all_of_them + 1e-3 * width)
        assert np.any((some.upper - some.lower)[~chosen] > 1.01 * width[~chosen])

    def test_cuts_that_others_need_are_kept(self, case, problem, robot):
        first = bound_by_membership(problem, 1e-4, WarmStart(cuts=seed_cuts(robot.payload_prior.nominal)))
        chosen = np.arange(10) == 0
        some = bound_by_membership(problem, 1e-4, dataclasses.replace(first.warm_start, active=chosen))
        again = bound_by_membership(problem, 1e-4, dataclasses.replace(some.warm_start, active=chosen))
        width = first.upper - first.lower
        assert np.all(again.upper - again.lower <= width * (1 + 1e-3))
        assert some.warm_start.cut_multipliers.shape == (20, len(some.warm_start.cuts))
