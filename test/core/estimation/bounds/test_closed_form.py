import dataclasses

import numpy as np
import pytest
from scipy.optimize import linprog

from sysid_ros.core.estimation.bounds.closed_form import (
    bound_with,
    bound_without_rows,
    choose_inverse,
)
from sysid_ros.core.estimation.bounds.state import combine, compact
from sysid_ros.core.estimation.lp.problem import Covariance, Problem, RowBands
from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS
from sysid_ros.core.estimation.windows.rows import Rows

N, WINDOWS, SHARED = 3, 12, 8


def random_rows(rng, windows=WINDOWS, gap_at=5, compacted=0):
    """Rows with all kinds of errors; two stretches of neighbouring windows."""
    count = N * windows
    y = rng.normal(size=(count, 10))
    stamps = np.arange(windows + 1) * 100
    start, stop = stamps[:-1].copy(), stamps[1:].copy()
    start[gap_at:] += 1000
    stop[gap_at:] += 1000
    gains = rng.normal(size=(windows + 2, N, N, 12)) * 0.3  # instant, joint, row
    gains[..., 11] = np.abs(gains[..., 11])
    first = np.arange(windows) + (np.arange(windows) >= gap_at)
    ends = np.stack([gains[first].transpose(0, 2, 1, 3), gains[first + 1].transpose(0, 2, 1, 3)], axis=2)
    return Rows(
        y=y,
        b=rng.normal(size=(count, SHARED)),
        u=np.zeros(count),
        errors=rng.uniform(0.0, 0.05, (count, len(ERROR_TERMS))),
        ends=ends.reshape(count, 2, N, 12),
        tilt=np.zeros((count, 0, 10)),
        window=np.arange(windows).repeat(N),
        joint=np.tile(np.arange(N), windows),
        start=start.repeat(N),
        stop=stop.repeat(N),
    )


class Truth:
    """Random true values of everything, and the right-hand sides they lead to."""

    def __init__(self, rng, rows, center, radius, delta_radius, velocity_error, extreme=True):
        draw = (lambda size: rng.choice([-1.0, 1.0], size)) if extreme else (lambda size: rng.uniform(-1, 1, size))
        self.theta = center + radius * draw(10)
        delta = delta_radius * draw(SHARED)
        instants = np.unique(np.concatenate([rows.start, rows.stop]))
        speed = {stamp: velocity_error * draw(N) for stamp in instants}
        gain = rows.ends[..., :10] @ self.theta + rows.ends[..., 10] + rows.ends[..., 11] * draw(rows.ends.shape[:3])
        at_start = np.einsum("rl,rl->r", gain[:, 0], np.array([speed[s] for s in rows.start]))
        at_stop = np.einsum("rl,rl->r", gain[:, 1], np.array([speed[s] for s in rows.stop]))
        error = rows.error * draw(len(rows))
        self.rows = dataclasses.replace(rows, u=rows.y @ self.theta + rows.b @ delta + at_stop - at_start + error)


@pytest.fixture
def world():
    rng = np.random.default_rng(7)
    rows = random_rows(rng)
    center, radius = rng.normal(size=10), rng.uniform(0.5, 2.0, 10)
    return rng, rows, center, radius, rng.uniform(0.0, 0.1, SHARED), np.full(N, 0.05)


def test_the_factorised_covariance_is_the_dense_one(world):
    rng, rows, *sizes = world
    problem = Problem.build(rows, *sizes)
    error, delta = rng.uniform(0.1, 1, len(rows)), rng.uniform(0.1, 1, SHARED)
    ends = rng.uniform(0.1, 1, problem.end_radii.size)
    v = problem.end_matrix.toarray()
    dense = np.diag(error) + v * ends @ v.T + problem.b * delta @ problem.b.T
    expected = np.linalg.solve(dense, problem.y)
    bands = RowBands(problem, N).assemble(error, ends)
    covariance = Covariance(bands, problem.y, problem.b, delta)
    np.testing.assert_allclose(covariance.solve(np.eye(10)), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(covariance.gram, problem.y.T @ expected, rtol=1e-9, atol=1e-9)
    alone = Covariance(bands, problem.y, problem.b[:, :0], delta[:0])
    without = np.linalg.solve(np.diag(error) + v * ends @ v.T, problem.y)
    np.testing.assert_allclose(alone.solve(np.eye(10)), without, rtol=1e-9, atol=1e-9)


def test_the_truth_is_inside_for_the_worst_errors_and_any_matrix(world):
    rng, rows, *sizes = world
    narrow, nearest = np.inf, 0.0
    for trial in range(200):
        truth = Truth(rng, rows, *sizes, extreme=trial % 4 > 0)
        problem = Problem.build(truth.rows, *sizes)
        matrix = choose_inverse(problem, trial % 3) if trial % 2 else rng.normal(size=(10, len(rows))) * 0.02
        bounds = bound_with(problem, matrix)
        distance = np.abs(truth.theta - bounds.center) / bounds.radius
        assert np.all(distance <= 1.0)
        if trial % 2:
            nearest, narrow = max(nearest, float(distance.max())), min(narrow, float(bounds.radius.max()))
    assert nearest > 0.25 and narrow < 1.2


def test_the_bound_is_reached_by_some_errors(world):
    """The half width is exact: errors of the worst signs put the truth on the edge."""
    _, rows, center, radius, delta_radius, velocity_error = world
    rows = dataclasses.replace(rows, ends=np.zeros_like(rows.ends))
    problem = Problem.build(rows, center, radius, delta_radius, velocity_error)
    inverse = choose_inverse(problem, 3)
    bounds = bound_with(problem, inverse)
    for i in range(10):
        x = radius * np.sign(np.eye(10)[i] - inverse[i] @ problem.y)
        delta = -delta_radius * np.sign(inverse[i] @ problem.b)
        u = rows.y @ (center + x) + rows.b @ delta - rows.error * np.sign(inverse[i])
        again = bound_with(
            Problem.build(dataclasses.replace(rows, u=u), center, radius, delta_radius, velocity_error), inverse
        )
        np.testing.assert_allclose(center[i] + x[i] - again.center[i], bounds.radius[i], rtol=1e-9)


def test_the_box_alone_bounds_as_no_combination_of_rows_does(world):
    rng, rows, *sizes = world
    problem = Problem.build(rows, *sizes, objectives=rng.normal(size=(4, 10)))
    box, nothing = bound_without_rows(problem), bound_with(problem, np.zeros((4, len(rows))))
    np.testing.assert_allclose(box.lower, nothing.center - nothing.radius, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(box.upper, nothing.center + nothing.radius, rtol=1e-14, atol=1e-14)
    corners = rng.choice([-1.0, 1.0], (500, 10)) * problem.radius + problem.center
    values = np.concatenate([corners @ problem.objectives.T, [problem.objectives @ problem.center]])
    assert np.all((box.lower <= values) & (values <= box.upper))


def test_a_wrong_error_bound_loses_the_truth(world):
    rng, rows, *sizes = world
    lost = 0
    for _ in range(40):
        truth = Truth(rng, rows, *sizes)
        small = dataclasses.replace(truth.rows, errors=0.2 * rows.errors, ends=0.2 * rows.ends, b=0.2 * rows.b)
        bounds = bound_with(problem := Problem.build(small, *sizes), choose_inverse(problem, 2))
        lost += bool(np.any(np.abs(truth.theta - bounds.center) > bounds.radius))
    assert lost > 10


def test_reweighting_comes_near_the_best_left_inverse(world):
    _, rows, *sizes = world
    problem = Problem.build(rows, *sizes)
    v = problem.end_matrix.toarray()
    factors = [np.eye(len(rows)), problem.b.T, v.T, problem.y.T]
    sizes_of = [problem.error, problem.delta_radius, problem.end_radii, problem.radius]
    matrix, size = np.vstack(factors), np.concatenate(sizes_of)
    found = bound_with(problem, choose_inverse(problem, 12)).radius
    least_squares = bound_with(problem, choose_inverse(problem, 0)).radius
    for i in (0, 5):
        target = np.concatenate([np.zeros(matrix.shape[0] - 10), np.eye(10)[i]])
        count = matrix.shape[0]
        # minimise size . t over l with |matrix l - target| <= t
        cost = np.concatenate([np.zeros(len(rows)), size])
        upper = np.block([[matrix, -np.eye(count)], [-matrix, -np.eye(count)]])
        limit = np.concatenate([target, -target])
        best = linprog(cost, A_ub=upper, b_ub=limit, bounds=[(None, None)] * len(rows) + [(0, None)] * count).fun
        assert best * (1 - 1e-9) <= found[i] <= 1.05 * best
        assert found[i] <= least_squares[i]


def test_without_data_on_a_parameter_the_answer_is_the_prior(world):
    rng, rows, center, radius, delta_radius, velocity_error = world
    y, ends = rows.y.copy(), rows.ends.copy()
    y[:, 4], ends[..., 4] = 0.0, 0.0
    y[:, 6] = y[:, 5]
    truth = Truth(rng, dataclasses.replace(rows, y=y, ends=ends), center, radius, delta_radius, velocity_error)
    problem = Problem.build(truth.rows, center, radius, delta_radius, velocity_error)
    bounds = bound_with(problem, choose_inverse(problem, 3))
    assert bounds.radius[4] == pytest.approx(radius[4], rel=1e-6)
    assert np.all(np.abs(truth.theta - bounds.center) <= bounds.radius)
    nothing = bound_with(Problem.build(dataclasses.replace(rows, y=0 * y), *world[2:]), np.zeros((10, len(rows))))
    np.testing.assert_allclose(nothing.radius, radius, rtol=1e-9)
    assert np.all(nothing.radius >= radius)


def test_compacted_rows_keep_the_truth_and_most_of_the_information(world):
    rng, rows, *sizes = world
    for trial in range(30):
        truth = Truth(rng, rows, *sizes, extreme=trial % 2 == 0)
        old, new = truth.rows.select(slice(0, 8 * N)), truth.rows.select(slice(8 * N, None))
        problem = Problem.build(old, *sizes)
        small, _ = compact(old, problem, 2, np.zeros((0, len(old))))
        assert len(small) == 10 and np.all(small.window == -1)
        joined = Rows.stack([small, new])
        compacted = Problem.build(joined, *sizes)
        bounds = bound_with(compacted, choose_inverse(compacted, 2))
        assert np.all(np.abs(truth.theta - bounds.center) <= bounds.radius)
        whole = Problem.build(truth.rows, *sizes)
        reference = bound_with(whole, choose_inverse(whole, 2))
        assert np.all(bounds.radius <= 2.0 * reference.radius)
    arbitrary = combine(old, problem, rng.normal(size=(4, len(old))))
    residual = arbitrary.y @ truth.theta - arbitrary.u
    assert np.all(np.abs(residual) <= arbitrary.error + np.abs(arbitrary.b) @ sizes[2])


def test_without_shared_errors_there_is_nothing_to_share(world):
    rng, rows, center, radius, *_ = world
    nothing = Truth(rng, rows, center, radius, np.zeros(SHARED), np.zeros(N))
    problem = Problem.build(nothing.rows, center, radius, np.zeros(SHARED), np.zeros(N))
    assert problem.without_negligible(0.1).b.shape[1] == 0
    bounds = bound_with(problem, choose_inverse(problem, 2))
    assert np.all(np.abs(nothing.theta - bounds.center) <= bounds.radius)
    assert np.all(bounds.by_ends == 0.0) and np.all(bounds.by_delta == 0.0)
