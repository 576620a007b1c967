import numpy as np
import pytest
from scipy.optimize import minimize

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.spatial import rotation_from_rpy
from sysid_ros.core.estimation.point import fit as fit_module
from sysid_ros.core.estimation.point.coordinates import from_parameters
from sysid_ros.core.estimation.point.fit import (
    FitNotConverged,
    FitObjective,
    NoBodyInBox,
    PointEstimator,
    fit,
    has_shape,
)
from sysid_ros.core.model.inertia import from_com_form, from_pseudo_inertia, is_physically_consistent, pseudo_inertia
from sysid_ros.core.model.robot import PayloadShape, TurnedBox

START = from_parameters(from_com_form(1.2, [0, 0, -0.2], 0.01 * np.eye(3)))
SCALE = 30 * np.array([1, 1, 1, 1, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3])


def random_objective(seed, noise, massless=False):
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(60, 10)) * SCALE
    truth = from_com_form(1.8, 0.1 * rng.normal(size=3), np.diag([0.008, 0.001, 0.008])) * (not massless)
    center = rng.normal(size=10) * 0.1
    r = y @ (truth - center) + noise * rng.normal(size=60)
    return FitObjective(y.T @ y, y.T @ r, center), truth


def solve_by_full_factor(objective):
    """An independent solution: the pseudo-inertia as F F^T with any 4x4 matrix F, which reaches the cone's edge."""

    def value_and_gradient(x):
        matrix = x.reshape(4, 4)
        theta = from_pseudo_inertia(matrix @ matrix.T)
        slope = objective.gradient(theta)
        units = [
            np.tensordot(slope, np.array([from_pseudo_inertia(_unit(i, j))]).T, axes=1)[0]
            for i in range(4)
            for j in range(4)
        ]
        return objective.value(theta), 2.0 * (np.array(units).reshape(4, 4) @ matrix).ravel()

    rng = np.random.default_rng(0)
    best = None
    for _ in range(4):
        x = np.linalg.cholesky(
            pseudo_inertia(from_com_form(1.0, [0, 0, -0.1], 0.02 * np.eye(3)))
        ).ravel() + 0.1 * rng.normal(size=16)
        for _ in range(3):
            x = minimize(value_and_gradient, x, jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 3000}).x
        value = value_and_gradient(x)[0]
        best = value if best is None else min(best, value)
    return best


def _unit(i, j):
    unit = np.zeros((4, 4))
    unit[i, j] += 0.5
    unit[j, i] += 0.5
    return unit


@pytest.mark.parametrize(("seed", "noise"), [(0, 0.01), (1, 1.0), (2, 5.0), (3, 5.0)])
def test_the_minimum_is_that_of_an_independent_solver(seed, noise):
    objective, _ = random_objective(seed, noise)
    solution = fit(objective, START)
    assert is_physically_consistent(solution.theta) and solution.gap <= 1.01e-6
    reference = solve_by_full_factor(objective)
    assert abs(solution.objective - reference) < 1e-5 * (1.0 + abs(reference) * 1e-6)
    plain = objective.center + np.linalg.solve(objective.gram, objective.linear)
    assert is_physically_consistent(plain) == (abs(objective.value(plain) - solution.objective) < 1e-5)


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_a_massless_payload_is_found_at_the_tip_of_the_cone(noise):
    objective, truth = random_objective(5, noise, massless=True)
    solution = fit(objective, START)
    reference = solve_by_full_factor(objective) if noise else objective.value(truth)
    assert abs(solution.objective - reference) < 1e-5 * max(1.0, abs(reference))
    assert np.all(np.abs(solution.theta) < 1e-3 + 0.1 * noise)


def solve_semidefinite(objective, box=None):
    """The same problem as a semidefinite program, in variables and coordinates of similar size."""
    cvxpy = pytest.importorskip("cvxpy")  # comes with requirements-test.txt
    scale = np.array([1.0, 0.3, 0.3, 0.3, *(0.05,) * 6])
    pseudo_scale = np.diag([4.0, 4.0, 4.0, 1.0])
    theta = cvxpy.Variable(10)
    root = np.linalg.cholesky(objective.gram).T
    target = np.linalg.solve(root.T, objective.linear)
    size = np.linalg.norm(root * scale)
    units = [pseudo_scale @ pseudo_inertia(unit) @ pseudo_scale for unit in np.diag(scale)]
    constraints = [sum(theta[k] * units[k] for k in range(10)) >> 0]
    if box is not None:
        constraints += [theta >= box.lower / scale, theta <= box.upper / scale]
    cost = cvxpy.sum_squares((root * scale / size) @ theta - (root @ objective.center + target) / size)
    settings = {"tol_gap_abs": 1e-14, "tol_gap_rel": 1e-13, "tol_feas": 1e-12}
    cvxpy.Problem(cvxpy.Minimize(cost), constraints).solve(solver="CLARABEL", **settings)
    return scale * theta.value


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")
@pytest.mark.parametrize("in_box", [False, True])
@pytest.mark.parametrize(("seed", "noise"), [(0, 0.01), (1, 1.0), (2, 5.0), (3, 5.0), (4, 20.0)])
def test_the_semidefinite_program_agrees(seed, noise, in_box):
    objective, truth = random_objective(seed, noise)
    box = Box.around(fit(objective, START).theta + 0.1 * np.abs(truth), 0.2 * np.abs(truth) + 0.02) if in_box else None
    reference, solution = solve_semidefinite(objective, box), fit(objective, START, box)
    # The sum of squared residuals, which is never negative, makes "relative" mean something.
    rest = 0.5 * objective.linear @ np.linalg.solve(objective.gram, objective.linear)
    best, found = objective.value(reference) + rest, objective.value(solution.theta) + rest
    tolerance = 1e-6 * best + solution.gap
    assert abs(found - best) <= tolerance
    np.testing.assert_allclose(solution.theta, reference, atol=1e-4 * np.max(np.abs(reference)))
    worse = objective.value(reference * (1.0 + 1e-3)) + rest
    assert abs(worse - best) > tolerance  # the comparison can fail


def test_a_warm_start_gives_the_same_answer():
    objective, truth = random_objective(1, 1.0)
    cold = fit(objective, START)
    warm = fit(objective, cold.eta)
    np.testing.assert_allclose(warm.theta, cold.theta, atol=1e-5)
    far = fit(objective, from_parameters(from_com_form(500.0, [3, 0, 0], 90 * np.eye(3))))
    np.testing.assert_allclose(far.theta, cold.theta, atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_a_start_at_the_tip_of_the_cone_is_left(seed):
    """A weak barrier, which a start close to the solution deserves, makes no progress from there."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(10, 10)))[0]
    gram = turn @ np.diag(np.geomspace(1e2, 4e5, 10)) @ turn.T
    center = np.array([0.106, 0.0, 0.0, -0.034, 0.014, 0.0, 0.014, 0.0, 0.0, 0.0019])
    objective = FitObjective(gram, rng.normal(size=10) * 300.0, center)
    tip = from_parameters(from_com_form(1e-8, [0.0, 0.0, -0.1], 1e-9 * np.eye(3)))
    np.testing.assert_allclose(fit(objective, tip).theta, fit(objective, START).theta, atol=1e-6)


def test_an_unconverged_fit_raises(monkeypatch):
    objective, _ = random_objective(1, 1.0)
    monkeypatch.setattr(fit_module, "_MAX_STEPS", 2)
    monkeypatch.setattr(fit_module, "_PATIENCE", 2)
    with pytest.raises(FitNotConverged, match="did not converge in 2 steps"):
        fit(objective, START)


def test_the_fit_inside_a_box():
    objective, _ = random_objective(2, 5.0)
    free = fit(objective, START)
    box = Box.around(free.theta + 0.3 * np.abs(free.theta), 0.2 * np.abs(free.theta) + 0.02)
    assert not box.contains(free.theta)
    inside = fit(objective, START, box)
    assert box.contains(inside.theta) and is_physically_consistent(inside.theta)
    assert inside.objective > free.objective
    rng = np.random.default_rng(1)
    tried = 0
    for point in inside.theta + rng.normal(size=(4000, 10)) * 0.02 * (np.abs(free.theta) + 0.02):
        if box.contains(point) and is_physically_consistent(point):
            tried += 1
            assert objective.value(point) >= inside.objective - 1e-5
    assert tried > 20
    wide = fit(objective, START, Box.around(free.theta, np.full(10, 10.0)))
    np.testing.assert_allclose(wide.theta, free.theta, atol=1e-4)


def test_a_box_without_a_body_is_noticed():
    objective, _ = random_objective(2, 5.0)
    empty = Box(
        np.array([1.0, 0.9, 0, 0, 0, 0, 0, 0, 0, 0]), np.array([1.1, 1.0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1])
    )
    with pytest.raises(NoBodyInBox, match="no physically consistent body has parameters within these bounds"):
        fit(objective, START, empty)


SHAPE = PayloadShape(Box([-0.06, -0.06, -0.3], [0.06, 0.06, -0.1]), 0.1)


def test_has_shape():
    inside = from_com_form(2.0, [0.0, 0.05, -0.2], 2.0 * 0.0099 * np.eye(3))
    assert has_shape(inside, SHAPE)
    assert not has_shape(from_com_form(2.0, [0.0, 0.07, -0.2], 0.01 * np.eye(3)), SHAPE)
    assert not has_shape(from_com_form(2.0, [0.0, 0.05, -0.2], 2.0 * 0.0101 * np.eye(3)), SHAPE)
    assert not has_shape(np.zeros(10), SHAPE)


def test_a_fit_stays_in_a_box_of_the_centre_of_mass_along_other_axes():
    axes = rotation_from_rpy([0.0, 0.0, np.pi / 4.0])
    narrow = PayloadShape(SHAPE.com, SHAPE.gyration, TurnedBox(axes, Box([-0.05, -0.01, -0.3], [0.05, 0.01, -0.1])))
    body = from_com_form(1.8, [0.05, -0.05, -0.2], 0.004 * np.eye(3))
    assert has_shape(body, SHAPE) and not has_shape(body, narrow)
    objective, box = FitObjective(np.eye(10), np.zeros(10), body), Box(body - 0.5, body + 0.5)
    assert np.abs(fit(objective, START, box, shape=SHAPE).theta - body).max() < 1e-3
    found = fit(objective, START, box, shape=narrow).theta
    assert has_shape(found, narrow) and abs((axes.T @ found[1:4])[1]) > 0.0095 * found[0]


@pytest.mark.parametrize("seed", range(6))
def test_a_fit_of_a_known_shape_is_the_best_of_its_convex_part(seed):
    """Against CVXPY: the radius of gyration limited about the given point, the CoM in its box, inside a box."""
    cp = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(40, 10)) * SCALE
    body = from_com_form(1.8, [0.05, 0.0, -0.12], np.diag([0.03, 0.03, 0.002]))  # wider than the shape allows
    center = 0.1 * rng.normal(size=10)
    r = y @ (body - center) + 0.5 * rng.normal(size=40)
    objective = FitObjective(y.T @ y, y.T @ r, center)
    box = Box(body - 0.5, body + 0.5)
    free = fit(objective, START, box)
    assert not has_shape(free.theta, SHAPE)
    found = fit(objective, free.eta, box, shape=SHAPE)
    assert has_shape(found.theta, SHAPE) and box.contains(found.theta) and is_physically_consistent(found.theta)
    com = np.clip(free.theta[1:4] / free.theta[0], SHAPE.com.lower, SHAPE.com.upper)
    theta = cp.Variable(10)
    unit = np.eye(10)
    pseudo = sum(theta[k] * pseudo_inertia(unit[k]) for k in range(10))
    inertia = sum(theta[k] * np.array(fit_module._inertia_about(unit[k], com)) for k in range(10))
    constraints = [
        pseudo >> 0,
        theta[0] * SHAPE.gyration**2 * np.eye(3) - inertia >> 0,
        theta[1:4] <= SHAPE.com.upper * theta[0],
        theta[1:4] >= SHAPE.com.lower * theta[0],
        theta >= box.lower,
        theta <= box.upper,
    ]
    offset = theta - center
    root = np.linalg.cholesky(objective.gram + 1e-12 * np.eye(10))
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(root.T @ offset) - objective.linear @ offset), constraints)
    problem.solve(solver="CLARABEL")
    scale = max(1.0, abs(problem.value))
    assert found.objective <= problem.value + 1e-4 * scale
    assert found.objective >= problem.value - 1e-4 * scale
    again = fit(objective, found.eta, box, shape=SHAPE)
    assert again.objective <= found.objective + 1e-5 * scale, "about its own CoM the part is larger"


def test_no_body_of_a_shape_in_a_box():
    objective, _ = random_objective(0, 0.1)
    far = from_com_form(1.8, [0.5, 0.5, -0.2], 0.01 * np.eye(3))
    with pytest.raises(NoBodyInBox):
        fit(objective, START, Box(far - 0.01, far + 0.01), shape=SHAPE)


def _shaped_sides(rng):
    body = from_com_form(2.0, [0.0, 0.05, -0.2], 2.0 * 0.005 * np.eye(3))
    sides = fit_module._Sides(Box(body - 0.5, body + 0.5), SHAPE, np.array([0.01, 0.03, -0.2]))
    return sides, body + 1e-3 * rng.normal(size=10)


@pytest.mark.parametrize("size", [1.0, 1.3])
def test_the_barrier_of_box_and_shape_is_minus_the_logarithm_of_the_room(size):
    rng = np.random.default_rng(0)
    sides, theta = _shaped_sides(rng)

    def value(theta, size):
        room, spin = sides._room(theta, size)
        return -np.log(room).sum() - np.linalg.slogdet(spin)[1]

    at, step = np.append(theta, size), 1e-5
    gradient, hessian = sides.barrier(theta, size)
    assert sides.distance(theta) < 1.0
    for k, unit in enumerate(np.eye(11)):
        ahead, behind = at + step * unit, at - step * unit
        slope = (value(ahead[:10], ahead[10]) - value(behind[:10], behind[10])) / (2.0 * step)
        np.testing.assert_allclose(gradient[k], slope, rtol=1e-5, atol=1e-5 * np.abs(gradient).max())
        curve = (sides.barrier(ahead[:10], ahead[10])[0] - sides.barrier(behind[:10], behind[10])[0]) / (2.0 * step)
        np.testing.assert_allclose(hessian[k], curve, rtol=1e-4, atol=1e-5 * np.abs(hessian).max())
    if size == 1.0:
        np.testing.assert_allclose(sides.slope(theta), gradient[:10], rtol=1e-9)


def test_the_longest_step_ends_on_a_side():
    rng = np.random.default_rng(1)
    sides, theta = _shaped_sides(rng)
    by_shape = 0
    for _ in range(30):
        move = rng.normal(size=10)
        longest = sides.longest_step(theta, move)
        for share, is_inside in ((1.0 - 1e-6, True), (1.0 + 1e-6, False)):
            room, spin = sides._room(theta + share * longest * move, 1.0)
            assert (room.min() > 0.0 and np.linalg.eigvalsh(spin)[0] > 0.0) == is_inside
        by_shape += bool(room.min() > 0.0)
    assert 0 < by_shape < 30


def test_the_next_fit_starts_a_little_inside_of_the_last_solution():
    """From the edge of the cone, where the solution lies, the fit of more data takes more steps to the same body."""
    nominal = from_com_form(1.0, [0.0, 0.0, 0.05], 0.004 * np.eye(3))
    from_edge, from_inside = [], []
    for seed in range(6):
        objective, _ = random_objective(seed, 5.0)
        estimator = PointEstimator(nominal, Box(nominal - 1.0, nominal + 1.0), 1e-3)
        estimator.build = lambda problem, found=objective: found
        theta = estimator.estimate(None, None)
        rng = np.random.default_rng(100 + seed)
        y = rng.normal(size=(60, 10)) * SCALE
        linear = objective.linear + y.T @ (y @ (theta - objective.center) + 5.0 * rng.normal(size=60))
        more = FitObjective(objective.gram + y.T @ y, linear, objective.center)
        edge, inside = fit(more, fit(objective, from_parameters(nominal)).eta), fit(more, estimator._start)
        np.testing.assert_allclose(inside.theta, edge.theta, atol=1e-6)
        from_edge.append(edge.steps)
        from_inside.append(inside.steps)
    assert sum(from_inside) < 0.95 * sum(from_edge)
