"""Narrows a box of ten inertial parameters by what holds for every body with mass.

With the second moments ``S_xx = (I_yy + I_zz - I_xx) / 2`` and so on, the pseudo-inertia is positive semidefinite,
so its diagonal is not negative and every 2x2 minor neither: ``(m c_x)^2 <= m S_xx``, ``I_xy^2 <= S_xx S_yy``.
Interval arithmetic on these, rounded outwards, keeps every body that was in the box.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.model.box import Box
from sysid_ros.core.model.robot import PayloadShape

Array = NDArray[np.float64]

_ROUNDS = 3
_DIAGONAL = np.array([4, 6, 9])  # Ixx, Iyy, Izz
_PRODUCTS = ((5, 0, 1), (7, 0, 2), (8, 1, 2))  # Ixy, Ixz, Iyz and their axes
_OTHERS = ((1, 2), (0, 2), (0, 1))
_SLACK = 1e-14


def tighten(box: Box) -> Box | None:
    """The part of a box (10,) that can hold a body, as a box; None where no body fits.

    Args:
        box: Box of ``[m, mcx, mcy, mcz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz]``.
    """
    lower, upper = box.lower.copy(), box.upper.copy()
    for _ in range(_ROUNDS):
        low, high = _second_moments(lower, upper)
        mass_low, mass_high = max(lower[0], 0.0), upper[0]
        if mass_high < 0.0 or np.any(high < 0.0):
            return None
        moment_low, moment_high = _square_range(lower[1:4], upper[1:4])
        for axis in range(3):
            low[axis] = max(low[axis], _quotient(moment_low[axis], mass_high))
            mass_low = max(mass_low, _quotient(moment_low[axis], high[axis]))
        products = np.array([index for index, _, _ in _PRODUCTS])
        square_low, _ = _square_range(lower[products], upper[products])
        for (_, a, b), square in zip(_PRODUCTS, square_low, strict=True):
            low[a], low[b] = max(low[a], _quotient(square, high[b])), max(low[b], _quotient(square, high[a]))
        lower[0] = max(lower[0], mass_low)
        limit = np.sqrt(mass_high * high) * (1.0 + _SLACK)
        lower[1:4], upper[1:4] = np.maximum(lower[1:4], -limit), np.minimum(upper[1:4], limit)
        for axis, (a, b) in enumerate(_OTHERS):
            index = _DIAGONAL[axis]
            lower[index] = max(lower[index], _down(low[a] + low[b]))
            upper[index] = min(upper[index], _up(high[a] + high[b]))
        for index, a, b in _PRODUCTS:
            limit_ab = np.sqrt(high[a] * high[b]) * (1.0 + _SLACK)
            lower[index], upper[index] = max(lower[index], -limit_ab), min(upper[index], limit_ab)
        if np.any(lower > upper):
            return None
    return Box(lower, upper)


def tighten_to_shape(box: Box, shape: PayloadShape) -> Box | None:
    """The part of a box (10,) that can hold a body of a known shape, as a box; None where no such body fits.

    The CoM ``c = (m c) / m`` lies in both its own box and that of the quotient, and with ``0 <= Ic <= m r^2``

        ``I_xx = Ic_xx + (m c_y) c_y + (m c_z) c_z``,  ``I_xy = Ic_xy - (m c_x) c_y``,  ``|Ic_xy| <= m r^2 / 2``.

    Interval arithmetic, rounded outwards.

    Args:
        box: Box of the ten parameters.
        shape: What is known of the payload as an object, in the same frame.
    """
    lower, upper = box.lower.copy(), box.upper.copy()
    mass_low, mass_high = max(float(lower[0]), 0.0), float(upper[0])
    if mass_high <= 0.0:
        return box
    com_low, com_high = shape.com.lower.copy(), shape.com.upper.copy()
    if mass_low > 0.0:
        masses = np.array([mass_low, mass_high])
        quotients = np.stack([lower[1:4, None] / masses, upper[1:4, None] / masses])
        size = _SLACK * np.abs(quotients).max(axis=(0, 2))
        com_low = np.maximum(com_low, quotients.min(axis=(0, 2)) - size)
        com_high = np.minimum(com_high, quotients.max(axis=(0, 2)) + size)
    if np.any(com_low > com_high):
        return None
    spin = mass_high * shape.gyration**2
    moment = [(float(lower[1 + k]), float(upper[1 + k])) for k in range(3)]
    com = [(float(com_low[k]), float(com_high[k])) for k in range(3)]

    def keep(index: int, low: float, high: float) -> None:
        size = _SLACK * max(abs(low), abs(high), spin)
        lower[index], upper[index] = max(lower[index], low - size), min(upper[index], high + size)

    for k in range(3):
        keep(1 + k, *_product((mass_low, mass_high), com[k]))
    for axis, (a, b) in enumerate(_OTHERS):
        squares = [_product(moment[k], com[k]) for k in (a, b)]
        keep(_DIAGONAL[axis], sum(max(low, 0.0) for low, _ in squares), sum(high for _, high in squares) + spin)
    for index, a, b in _PRODUCTS:
        ranges = (_product(moment[a], com[b]), _product(moment[b], com[a]))
        keep(index, -min(high for _, high in ranges) - 0.5 * spin, -max(low for low, _ in ranges) + 0.5 * spin)
    return None if np.any(lower > upper) else Box(lower, upper)


def _product(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    """Range of the product of two intervals."""
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _second_moments(lower: Array, upper: Array) -> tuple[Array, Array]:
    """Range of ``S_xx, S_yy, S_zz``, each (3,); the lower end is not negative."""
    low, high = np.empty(3), np.empty(3)
    for axis, (a, b) in enumerate(_OTHERS):
        own, first, second = _DIAGONAL[[axis, a, b]]
        size = _SLACK * np.max(np.abs([lower[[own, first, second]], upper[[own, first, second]]]))
        low[axis] = max(0.5 * (lower[first] + lower[second] - upper[own]) - size, 0.0)
        high[axis] = 0.5 * (upper[first] + upper[second] - lower[own]) + size
    for axis, (a, b) in enumerate(_OTHERS):  # I_axis = S_a + S_b
        index = _DIAGONAL[axis]
        for one, other in ((a, b), (b, a)):
            high[one] = min(high[one], _up(upper[index] - low[other]) if upper[index] >= low[other] else -np.inf)
    return low, high


def _square_range(lower: Array, upper: Array) -> tuple[Array, Array]:
    """Range of the squares of intervals."""
    nearest = np.where((lower <= 0.0) & (upper >= 0.0), 0.0, np.minimum(np.abs(lower), np.abs(upper)))
    return nearest**2, np.maximum(np.abs(lower), np.abs(upper)) ** 2


def _quotient(square: float, size: float) -> float:
    """Lower bound of ``square / size``; infinite where nothing but zero fits and the square is not zero."""
    if square == 0.0:
        return 0.0
    return square / size * (1.0 - _SLACK) if size > 0.0 else np.inf


def _down(value: float) -> float:
    return value * (1.0 - _SLACK)


def _up(value: float) -> float:
    return value * (1.0 + _SLACK)
