"""Bounds of the parameters that data only narrow, and the effect of physical consistency on them.

For every body with mass the pseudo-inertia is positive semidefinite. With the second moments
``S_xx = (I_yy + I_zz - I_xx) / 2`` and so on, its diagonal is not negative and neither is any 2x2 minor:
``(m c_x)^2 <= m S_xx``, ``I_xy^2 <= S_xx S_yy``. Interval arithmetic on these, rounded outwards, narrows a box of ten
parameters and keeps every body that was in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.parameters.estimate import NARROWER, CombinationEstimate, ParameterEstimate, Quantity
from sysid_ros.core.estimation.parameters.unknowns import Target
from sysid_ros.core.identifiability.report import Report, report_bounds
from sysid_ros.core.model.inertia import bound_com
from sysid_ros.core.model.robot import INERTIAL, PayloadShape

Array = NDArray[np.float64]

_DIAGONAL = np.array([4, 6, 9])  # Ixx, Iyy, Izz
_PRODUCTS = ((5, 0, 1), (7, 0, 2), (8, 1, 2))  # Ixy, Ixz, Iyz and their axes
_OTHERS = ((1, 2), (0, 2), (0, 1))
_SLACK = 1e-14
_WEIGHED = 0.1
"""Width of the prior of the mass, relative to its upper end, up to which a scale has told it."""


@dataclass(frozen=True)
class ParameterBounds:
    """Bounds that only shrink; every target in the prior that is consistent with all data lies inside.

    Attributes:
        target: The target.
        box: Box of its parameters, (P,).
        ranges: Ranges of the objectives, (K,).
    """

    target: Target
    box: Box
    ranges: Box

    @classmethod
    def from_prior(cls, target: Target) -> ParameterBounds:
        """Return the bounds before any data."""
        return cls(target, target.prior, hull(target.objectives, target.prior))

    def shrinkage(self, lower: Array, upper: Array) -> Array:
        """Return the share (K,) of their width that the ranges lose by bounds of the objectives, (K,) each."""
        shrunk = np.maximum(lower - self.ranges.lower, 0.0) + np.maximum(self.ranges.upper - upper, 0.0)
        return np.asarray(shrunk / np.maximum(self.ranges.upper - self.ranges.lower, 1e-300))

    def intersect(self, lower: Array, upper: Array) -> ParameterBounds | None:
        """Intersect with bounds of the objectives from data, (K,) each; None if the intersection is empty."""
        if np.any(lower > upper):
            return None
        ranges = Box(lower, upper).intersect(self.ranges)
        box = None if ranges is None else self._narrow_box(ranges)
        if ranges is None or box is None:
            return None
        ranges = ranges.intersect(hull(self.target.objectives, box))
        return None if ranges is None else ParameterBounds(self.target, box, ranges)

    def _narrow_box(self, ranges: Box) -> Box | None:
        """Narrow the box by the ranges of the objectives, and by physical consistency where the target is one body."""
        if self.target.body:
            box = ranges.select(slice(INERTIAL)).intersect(self.box)
            box = None if box is None else tighten(box)
            return box if box is None or self.target.shape is None else tighten_to_shape(box, self.target.shape)
        combinations = self.target.combinations
        single, lower, upper = combinations.is_single, self.box.lower.copy(), self.box.upper.copy()
        entries = combinations.chosen[single]
        lower[entries] = np.maximum(lower[entries], ranges.lower[single])
        upper[entries] = np.minimum(upper[entries], ranges.upper[single])
        return None if np.any(lower > upper) else Box(lower, upper)

    def estimate_combinations(self, values: Array, shares: Mapping[str, Array]) -> CombinationEstimate | None:
        """Return the identifiable combinations with bounds; None where each parameter is identifiable by itself.

        Args:
            values: A target, (P,).
            shares: Share of each source of error in the radii of the objectives, name -> (K,).
        """
        known = self.target.combinations
        if self.target.body and len(known) == INERTIAL and np.all(known.is_single):
            return None
        index = self._objective_of_combination()
        entries = known.chosen
        lower = np.where(known.is_single, self.box.lower[entries], self.ranges.lower[index])
        upper = np.where(known.is_single, self.box.upper[entries], self.ranges.upper[index])
        return CombinationEstimate(
            names=known.names,
            formulas=known.formulas,
            units=known.units,
            matrix=known.matrix,
            values=np.clip(known.matrix @ values, lower, upper),
            lower=lower,
            upper=upper,
            prior=hull(known.matrix, self.target.prior),
            error_budget={name: share[index] for name, share in shares.items() if share.size == len(self.ranges.lower)},
        )

    def _objective_of_combination(self) -> NDArray[np.intp]:
        """Return the objective that each combination is, (K,)."""
        known = self.target.combinations
        if not self.target.body:
            return np.arange(len(known))
        index = INERTIAL - 1 + np.cumsum(~known.is_single)
        return np.where(known.is_single, known.chosen, index)


def hull(matrix: Array, box: Box) -> Box:
    """Return the range (K,) of ``matrix @ theta`` over a box (P,), rounded outwards, for a matrix (K, P)."""
    positive, negative = np.maximum(matrix, 0.0), np.minimum(matrix, 0.0)
    lower = positive @ box.lower + negative @ box.upper
    upper = positive @ box.upper + negative @ box.lower
    size = np.abs(matrix) @ np.maximum(np.abs(box.lower), np.abs(box.upper))
    pad = 4.0 * (matrix.shape[1] + 8) * np.finfo(float).eps * size
    return Box(lower - pad, upper + pad)


def report_combinations(target: Target, estimate: ParameterEstimate) -> Report:
    """Report the identifiable combinations of a target with guaranteed bounds; NaN where an alarm leaves none."""
    known = target.combinations
    prior = hull(known.matrix, target.prior)
    found = estimate.combinations
    if found is not None:
        lower, upper = found.lower, found.upper
    elif estimate.is_consistent:  # each parameter is one of them
        lower, upper = estimate.lower[known.chosen], estimate.upper[known.chosen]
    else:
        lower = upper = np.full(len(known), np.nan)
    text = f"{target.label}: {estimate.alarm_text or estimate.guarantee}"
    return report_bounds(target.structure, lower, upper, prior, estimate.condition_number, text)


def tighten(box: Box) -> Box | None:
    """Narrow a box (10,) to the part that can hold a body, as a box; None where no body fits.

    The parameters are ``[m, mcx, mcy, mcz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz]``.
    """
    lower, upper = box.lower.copy(), box.upper.copy()
    for _ in range(3):  # passes over all inequalities of the pseudo-inertia
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
    """Narrow a box (10,) to the part that can hold a body of a known shape, as a box; None where no such body fits.

    The CoM ``c = (m c) / m`` lies in both its own box and that of the quotient, and with ``0 <= Ic <= m r^2``

        ``I_xx = Ic_xx + (m c_y) c_y + (m c_z) c_z``,  ``I_xy = Ic_xy - (m c_x) c_y``,  ``|Ic_xy| <= m r^2 / 2``.

    Interval arithmetic, rounded outwards.
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


def find_narrower(box: Box, prior: Box, shape: PayloadShape | None) -> frozenset[Quantity]:
    """Return the quantities with narrower bounds than the prior: by 1 % of its width in every parameter.

    Facts that hold for every body, or for every body of the shape, are part of the prior and not learnt from data. A
    weighed mass counts where data narrow the CoM.

    Args:
        box: Bounds of the ten parameters.
        prior: The same before any data.
        shape: Known shape of the payload, None if unknown.
    """
    is_narrower = box.width <= NARROWER * without_data(prior, shape).width
    # First moments narrow with the mass alone: the CoM counts only where they are narrower than that makes them.
    mass_only = without_data(
        Box(np.append(box.lower[:1], prior.lower[1:]), np.append(box.upper[:1], prior.upper[1:])), shape
    )
    is_com = np.all(box.width[1:4] <= NARROWER * mass_only.width[1:4])
    if shape is not None:
        # So does the torque of gravity at rest, a sum of the mass and them; two coordinates of the CoM itself it does
        # not.
        low, high = bound_com(box.lower, box.upper, shape.com)
        is_com = is_com and np.count_nonzero(high - low <= NARROWER * shape.com.width) >= 2
    is_found = {
        Quantity.MASS: is_narrower[0] or (is_com and prior.width[0] <= _WEIGHED * prior.upper[0]),
        Quantity.COM: is_com,
        Quantity.INERTIA: np.all(is_narrower[4:]),
    }
    return frozenset(quantity for quantity, found in is_found.items() if found)


def without_data(prior: Box, shape: PayloadShape | None) -> Box:
    """Return the box that a prior of ten parameters implies for a body, of a known shape if given: no wider box."""
    known = tighten(prior)
    if known is not None and shape is not None:
        known = tighten_to_shape(known, shape)
    return prior if known is None else known


def _product(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _second_moments(lower: Array, upper: Array) -> tuple[Array, Array]:
    """Return the ranges of ``S_xx, S_yy, S_zz``, each (3,); the lower end is not negative."""
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
    nearest = np.where((lower <= 0.0) & (upper >= 0.0), 0.0, np.minimum(np.abs(lower), np.abs(upper)))
    return nearest**2, np.maximum(np.abs(lower), np.abs(upper)) ** 2


def _quotient(square: float, size: float) -> float:
    """Return a lower bound of ``square / size``; infinite where only zero fits and the square is not zero."""
    if square == 0.0:
        return 0.0
    return square / size * (1.0 - _SLACK) if size > 0.0 else np.inf


def _down(value: float) -> float:
    return value * (1.0 - _SLACK)


def _up(value: float) -> float:
    return value * (1.0 + _SLACK)
