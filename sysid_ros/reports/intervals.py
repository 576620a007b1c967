"""Numbers with bounds, and the few operations on them a report needs, rounded outwards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

_ROUNDING = 64.0 * np.finfo(float).eps
"""Relative widening that covers the rounding of sums of up to ten products."""


@dataclass(frozen=True)
class Bounded:
    """Values with bounds; all three arrays have one shape.

    Attributes:
        values: Point estimates.
        lower: Lower bounds; -inf where nothing is known.
        upper: Upper bounds; +inf where nothing is known.
    """

    values: Array
    lower: Array
    upper: Array

    def __post_init__(self) -> None:
        for name in ("values", "lower", "upper"):
            array = np.array(getattr(self, name), dtype=float)
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @property
    def width(self) -> Array:
        """Upper minus lower bound."""
        return self.upper - self.lower

    def contains(self, point: ArrayLike) -> NDArray[np.bool_]:
        """Entry by entry, whether the point lies inside, borders included."""
        return (self.lower <= np.asarray(point)) & (np.asarray(point) <= self.upper)


def widened(lower: Array, upper: Array, scale: ArrayLike) -> tuple[Array, Array]:
    """Bounds moved outwards by a few rounding errors of numbers as large as ``scale``."""
    slack = _ROUNDING * np.asarray(scale, dtype=float)
    return lower - slack, upper + slack


def linear_map(matrix: Array, bounded: Bounded) -> Bounded:
    """``matrix @ x`` for every x inside: matrix (m, k), x (k,), result (m,)."""
    positive, negative = np.maximum(matrix, 0.0), np.minimum(matrix, 0.0)
    lower = positive @ bounded.lower + negative @ bounded.upper
    upper = positive @ bounded.upper + negative @ bounded.lower
    scale = np.abs(matrix) @ np.maximum(np.abs(bounded.lower), np.abs(bounded.upper))
    return Bounded(matrix @ bounded.values, *widened(lower, upper, scale))


def product(a: Bounded, b: Bounded) -> Bounded:
    """``x y`` for independent x in a and y in b, entry by entry; a square needs :func:`square`."""
    corners = np.stack([a.lower * b.lower, a.lower * b.upper, a.upper * b.lower, a.upper * b.upper])
    lower, upper = corners.min(axis=0), corners.max(axis=0)
    return Bounded(a.values * b.values, *widened(lower, upper, np.abs(corners).max(axis=0)))


def square(a: Bounded) -> Bounded:
    """``x x`` for x in a, entry by entry."""
    ends = np.stack([a.lower**2, a.upper**2])
    has_zero = (a.lower <= 0.0) & (a.upper >= 0.0)
    lower, upper = np.where(has_zero, 0.0, ends.min(axis=0)), ends.max(axis=0)
    lower, upper = widened(lower, upper, upper)
    return Bounded(a.values**2, np.maximum(lower, 0.0), upper)


def quotient(a: Bounded, b: Bounded) -> Bounded:
    """``x / y`` for independent x in a and y in b; unbounded where b touches zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        corners = np.stack([a.lower / b.lower, a.lower / b.upper, a.upper / b.lower, a.upper / b.upper])
        values = a.values / b.values
    lower, upper = widened(corners.min(axis=0), corners.max(axis=0), np.abs(corners).max(axis=0))
    touches_zero = (b.lower <= 0.0) & (b.upper >= 0.0)
    return Bounded(values, np.where(touches_zero, -np.inf, lower), np.where(touches_zero, np.inf, upper))


def total(*terms: Bounded) -> Bounded:
    """Sum of independent terms of one shape."""
    values, lower, upper = (
        np.asarray(sum(getattr(t, name) for t in terms), dtype=np.float64) for name in ("values", "lower", "upper")
    )
    scale = sum(np.maximum(np.abs(t.lower), np.abs(t.upper)) for t in terms)
    return Bounded(values, *widened(lower, upper, scale))


def negated(a: Bounded) -> Bounded:
    """``-x`` for x in a."""
    return Bounded(-a.values, -a.upper, -a.lower)


def symmetric_eigenvalues(matrix: Bounded) -> Bounded:
    """Eigenvalues (k,), ascending, of every symmetric matrix (k, k) inside.

    Weyl: they lie within the spectral norm of the radius matrix of those of the midpoint.
    """
    values = np.asarray(np.linalg.eigvalsh(matrix.values), dtype=np.float64)
    if not np.all(np.isfinite(matrix.lower) & np.isfinite(matrix.upper)):
        return Bounded(values, np.full_like(values, -np.inf), np.full_like(values, np.inf))
    center = 0.5 * (matrix.lower + matrix.upper)
    radius = np.maximum(matrix.upper - center, center - matrix.lower)
    distance = np.linalg.eigvalsh(radius)[-1]
    middle = np.linalg.eigvalsh(center)
    scale = np.linalg.norm(center) + distance
    return Bounded(values, *widened(middle - distance, middle + distance, scale))
