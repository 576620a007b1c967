"""Bounds over a box and rows by weak duality: those of the exact program, never tighter, and sound where it fails."""

import numpy as np
import pytest
from scipy.optimize import linprog

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation import arm
from sysid_ros.core.estimation.calibration import bound_linear


def problem(seed, rows=6, size=9):
    """A box, a point in it, and rows that the point satisfies; parameters of very different size, two of them fixed."""
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-4, 2, size)
    center, radius = scale * rng.normal(size=size), scale * rng.uniform(0.1, 1.0, size)
    radius[:2] = 0.0
    truth = center + radius * rng.uniform(-1.0, 1.0, size)
    matrix = rng.normal(size=(rows, size)) / scale
    middle = matrix @ truth
    width = 0.2 * rng.uniform(size=rows)
    return rng.normal(size=(4, size)) / scale, Box.around(center, radius), matrix, middle - width, middle + width, truth


@pytest.mark.parametrize("seed", range(8))
def test_bounds_are_those_of_the_exact_program(seed):
    objectives, box, matrix, low, high, truth = problem(seed)
    lower, upper = bound_linear(objectives, box, matrix, low, high)
    a, b = np.concatenate([matrix, -matrix]), np.concatenate([high, -low])
    for row, found_low, found_high in zip(objectives, lower, upper, strict=True):
        limits = list(zip(box.lower, box.upper, strict=True))
        exact = [sign * linprog(sign * row, a, b, bounds=limits).fun for sign in (1.0, -1.0)]
        assert found_low == pytest.approx(exact[0], rel=1e-5, abs=1e-6)
        assert found_high == pytest.approx(exact[1], rel=1e-5, abs=1e-6)
        assert found_low <= row @ truth <= found_high


def test_bounds_hold_with_any_multipliers(monkeypatch):
    """What the program says only makes bounds tight: nonsense of it leaves them true."""
    objectives, box, matrix, low, high, truth = problem(3)
    exact = bound_linear(objectives, box, matrix, low, high)

    class Nonsense:
        status = 0

        def __init__(self, size):
            self.ineqlin = self
            self.marginals = -np.random.default_rng(size).exponential(size=size)

    monkeypatch.setattr(arm, "linprog", lambda cost, a, b, **_: Nonsense(len(b)))
    lower, upper = bound_linear(objectives, box, matrix, low, high)
    assert np.all(lower <= objectives @ truth) and np.all(objectives @ truth <= upper)
    assert np.all(lower <= exact[0] + 1e-9) and np.any(lower < exact[0] - 1e-3)


def test_without_rows_the_box_bounds():
    objectives, box, _, _, _, _ = problem(1)
    lower, upper = bound_linear(objectives, box, np.zeros((0, 9)), np.zeros(0), np.zeros(0))
    np.testing.assert_allclose(upper - lower, 2.0 * np.abs(objectives) @ box.radius, rtol=1e-9)
