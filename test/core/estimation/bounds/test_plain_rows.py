"""Bounds over a box and rows without shared errors: those of the exact program, and sound for any numbers."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import linprog

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.bounds.set_membership import SidedBounds, bound_by_membership, solve_exactly
from sysid_ros.core.estimation.lp.problem import Problem


def draw(seed, rows=6, size=9):
    """A problem and a point that satisfies it; parameters of very different size, two of them fixed."""
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-4, 2, size)
    center, radius = scale * rng.normal(size=size), scale * rng.uniform(0.1, 1.0, size)
    radius[:2] = 0.0
    truth = center + radius * rng.uniform(-1.0, 1.0, size)
    matrix = rng.normal(size=(rows, size)) / scale
    width = 0.2 * rng.uniform(size=rows)
    limits, box = Box.around(matrix @ truth, width), Box.around(center, radius)
    return Problem.of_rows(matrix, limits, box, rng.normal(size=(4, size)) / scale), limits, box, truth


@pytest.mark.parametrize("seed", range(8))
def test_bounds_are_those_of_the_exact_program(seed):
    problem, limits, box, truth = draw(seed)
    found = SidedBounds.best_of(problem, [solve_exactly(problem)])
    a, b = np.concatenate([problem.y, -problem.y]), np.concatenate([limits.upper, -limits.lower])
    sides = list(zip(box.lower, box.upper, strict=True))
    for row, low, high in zip(problem.objectives, found.lower, found.upper, strict=True):
        exact = [sign * linprog(sign * row, a, b, bounds=sides).fun for sign in (1.0, -1.0)]
        assert low == pytest.approx(exact[0], rel=1e-5, abs=1e-6)
        assert high == pytest.approx(exact[1], rel=1e-5, abs=1e-6)
        assert low <= row @ truth <= high


def test_bounds_hold_with_any_multipliers():
    """What the solver says only makes bounds tight: nonsense of it leaves them true."""
    problem, _, _, truth = draw(3)
    exact, rng = SidedBounds.best_of(problem, [solve_exactly(problem)]), np.random.default_rng(0)
    loose = SidedBounds.best_of(problem, [(rng.normal(size=(4, 6)), rng.normal(size=(4, 6)))])
    values = problem.objectives @ truth
    assert np.all(loose.lower <= values) and np.all(values <= loose.upper)
    assert np.all(loose.lower <= exact.lower + 1e-9) and np.any(loose.lower < exact.lower - 1e-3)


def test_rows_that_no_point_of_the_box_fulfils_are_infeasible():
    problem, _, _, _ = draw(5)
    beyond = dataclasses.replace(problem, r=problem.r + 1e3)
    assert bound_by_membership(beyond, 1e-6).infeasibility is not None
