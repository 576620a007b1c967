"""Rates and slowdowns of the clock that a stop along a path goes through, enclosed in a polytope."""

from __future__ import annotations

from functools import lru_cache
from math import comb

import numpy as np
from numpy.polynomial import Polynomial
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

Array = NDArray[np.float64]

_DEGREE = 6
_PARTS = 4
_PROGRESS = Polynomial([0.0, 1.0])
_RATE = 1.0 - 3.0 * _PROGRESS**2 + 2.0 * _PROGRESS**3
_SLOWDOWN = -6.0 * _PROGRESS * (1.0 - _PROGRESS)  # times the brake time


@lru_cache(maxsize=1)
def stop_corners() -> Array:
    """Corners of a polytope that contains all stops of brake time 1 s.

    With x from 0 to 1 the share of the brake time that has passed, a stop runs through ``r = 1 - 3 x^2 + 2 x^3``, its
    square and ``d = dr/dt``. The curve is cut into four parts; each lies in the hull of its Bernstein coefficients.

    Returns:
        Rows (r, r^2, d times the brake time), (k, 3).
    """
    points = []
    for part in range(_PARTS):
        here = (_PROGRESS + part) / _PARTS
        columns = [_bernstein(curve(here)) for curve in (_RATE, _RATE**2, _SLOWDOWN)]
        points.append(np.stack(columns, axis=1))
    controls = np.concatenate(points)
    corners = controls[ConvexHull(controls).vertices]
    corners.setflags(write=False)
    return corners


def _bernstein(polynomial: Polynomial) -> Array:
    """Bernstein coefficients of degree 6 on [0, 1]."""
    powers = np.zeros(_DEGREE + 1)
    powers[: polynomial.coef.size] = polynomial.coef
    return np.array([sum(comb(i, j) / comb(_DEGREE, j) * powers[j] for j in range(i + 1)) for i in range(_DEGREE + 1)])
