"""Quadratic Taylor models: functions of time over many pieces at once, each enclosed in a parabola with a remainder.

A *series* is an array (4, ..., P) of P pieces. Over a piece, with ``u`` in [-1, 1] the time since its middle divided by
its half length, the function lies within ``x[0] + x[1] u + x[2] u^2 +- x[3]``. Every operation keeps this true in exact
arithmetic; rounding is accounted for once, at the end (see :data:`sysid_ros.core.certification.checks.ROUNDING`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_NEXT, _AFTER = np.array([1, 2, 0]), np.array([2, 0, 1])


def constant(value: Array, pieces: int) -> Array:
    """Return the series of a value (...) that does not change, (4, ..., P)."""
    series = np.zeros((4, *np.shape(value), pieces))
    series[0] = np.asarray(value)[..., None]
    return series


def multiply(x: Array, y: Array, axis: int | None = None) -> Array:
    """Multiply two series, and sum over an axis of theirs.

    Args:
        x: Series (4, ..., P).
        y: Series of a shape that broadcasts with x.
        axis: Axis of the product to sum over, counted with the leading 4; None sums over none.

    Returns:
        The series of the product.
    """
    where = None if axis is None else axis - 1

    def total(values: Array) -> Array:
        return values if where is None else np.add.reduce(values, axis=where)

    (x0, x1, x2, rx), (y0, y1, y2, ry) = x, y
    constant_term = total(x0 * y0)
    result = np.empty((4, *constant_term.shape))
    result[0] = constant_term
    result[1] = total(x0 * y1 + x1 * y0)
    result[2] = total(x0 * y2 + x1 * y1 + x2 * y0)
    largest_x, largest_y = np.abs(x[:3]).sum(axis=0), np.abs(y[:3]).sum(axis=0)
    rest = total(largest_x * ry + rx * (largest_y + ry))
    # |u^3|, u^4 <= 1.
    result[3] = np.abs(total(x1 * y2 + x2 * y1)) + np.abs(total(x2 * y2)) + rest
    return result


def cross(x: Array, y: Array) -> Array:
    """Return the cross product of two series of vectors (4, ..., 3, P)."""
    left = np.stack([x[..., _NEXT, :], x[..., _AFTER, :]], axis=1)
    right = np.stack([y[..., _AFTER, :], negate(y[..., _NEXT, :])], axis=1)
    return multiply(left, right, axis=1)


def negate(x: Array) -> Array:
    """Return the series of the opposite."""
    result = -x
    result[3] = x[3]
    return result


def subtract(x: Array, y: Array) -> Array:
    """Return the series of a difference."""
    result = x - y
    result[3] = x[3] + y[3]
    return result


def apply(matrix: Array, x: Array) -> Array:
    """Multiply a constant matrix (..., k, m) with the vectors (4, ..., m, P) of a series, (4, ..., k, P)."""
    result = np.empty((4, *np.broadcast_shapes(matrix.shape[:-2], x.shape[1:-2]), matrix.shape[-2], x.shape[-1]))
    np.matmul(matrix, x[:3], out=result[:3])
    np.matmul(np.abs(matrix), x[3], out=result[3])
    return result


def circle(angle: Array) -> tuple[Array, Array]:
    """Cosine and sine of polynomials in u.

    With f the cosine or sine and q the angle, ``|d^3 f(q)/du^3| <= |q'|^3 + 3 |q'| |q''| + |q'''|``.

    Args:
        angle: Coefficients of u^0, u^1, ... and last what the angle may differ by, (K + 1, ..., P) [rad].

    Returns:
        Their series, each (4, ..., P).
    """
    coefficients, rest = angle[:-1], angle[-1]
    order = np.arange(len(coefficients), dtype=float).reshape(-1, *[1] * rest.ndim)
    size = np.abs(coefficients)
    first = (order * size).sum(axis=0)
    second = (order * (order - 1.0) * size).sum(axis=0)
    third = (order * (order - 1.0) * (order - 2.0) * size).sum(axis=0)
    remainder = (first**3 + 3.0 * first * second + third) / 6.0 + rest
    cosine, sine = np.cos(coefficients[0]), np.sin(coefficients[0])
    slope, curve = coefficients[1], coefficients[2]
    square = 0.5 * slope * slope
    return (
        np.stack([cosine, -sine * slope, -cosine * square - sine * curve, remainder]),
        np.stack([sine, cosine * slope, -sine * square + cosine * curve, remainder]),
    )
