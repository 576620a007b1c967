"""Interval operations contain what they must, by sampling."""

import numpy as np
import pytest

from sysid_ros.reports.payload import (
    Bounded,
    linear_map,
    negated,
    product,
    quotient,
    square,
    symmetric_eigenvalues,
    total,
)


def _random(rng, size, low=-2.0, high=2.0):
    ends = np.sort(rng.uniform(low, high, (2, *np.atleast_1d(size))), axis=0)
    return Bounded(ends.mean(axis=0), ends[0], ends[1])


def _points(rng, bounded, count=400):
    inner = rng.uniform(bounded.lower, bounded.upper, (count, *bounded.lower.shape))
    corners = np.where(rng.random((count, *bounded.lower.shape)) < 0.5, bounded.lower, bounded.upper)
    return np.concatenate([inner, corners])


@pytest.mark.parametrize("seed", range(5))
def test_arithmetic_contains_every_sampled_result(seed):
    rng = np.random.default_rng(seed)
    a, b, positive = _random(rng, 6), _random(rng, 6), _random(rng, 6, 0.1, 3.0)
    x, y, z = _points(rng, a), _points(rng, b), _points(rng, positive)
    matrix = rng.standard_normal((4, 6))
    assert product(a, b).contains(x * y).all()
    assert square(a).contains(x * x).all()
    assert quotient(a, positive).contains(x / z).all()
    assert total(a, b, positive).contains(x + y + z).all()
    assert negated(a).contains(-x).all()
    assert linear_map(matrix, a).contains(x @ matrix.T).all()


def test_bounds_are_tight_at_the_corners():
    a, b = Bounded(0.5, -1.0, 2.0), Bounded(3.5, 3.0, 4.0)
    assert product(a, b).lower == pytest.approx(-4.0) and product(a, b).upper == pytest.approx(8.0)
    assert quotient(a, b).lower == pytest.approx(-1 / 3) and quotient(a, b).upper == pytest.approx(2 / 3)
    assert square(a).lower == 0.0 and square(a).upper == pytest.approx(4.0)


def test_dividing_by_an_interval_around_zero_is_unbounded():
    result = quotient(Bounded([1.0], [0.5], [1.5]), Bounded([0.1], [0.0], [0.2]))
    assert result.lower == -np.inf and result.upper == np.inf


@pytest.mark.parametrize("seed", range(5))
def test_eigenvalues_of_every_matrix_inside_are_inside(seed):
    rng = np.random.default_rng(seed)
    center = rng.standard_normal((3, 3))
    center = center + center.T
    radius = 0.3 * rng.random((3, 3))
    radius = radius + radius.T
    bounds = symmetric_eigenvalues(Bounded(center, center - radius, center + radius))
    reached = np.zeros(3)
    for signs in rng.uniform(-1, 1, (300, 3, 3)):
        signs = np.sign(np.triu(signs) + np.triu(signs, 1).T)
        values = np.linalg.eigvalsh(center + signs * radius)
        assert bounds.contains(values).all()
        reached = np.maximum(reached, np.abs(values - bounds.values) / (0.5 * bounds.width))
    assert reached.max() > 0.5, "bounds far wider than anything reached would prove nothing"


def test_a_value_outside_is_noticed():
    assert not Bounded([0.0], [-1.0], [1.0]).contains([1.0001]).any()
