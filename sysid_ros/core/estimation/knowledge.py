"""What is known of the target at a time: a box of its parameters and a range of each combination."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.estimate import CombinationEstimate
from sysid_ros.core.estimation.target import Target
from sysid_ros.core.estimation.tighten import tighten, tighten_to_shape
from sysid_ros.core.model.box import Box
from sysid_ros.core.model.robot import INERTIAL

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Knowledge:
    """Bounds that only shrink; every true target of the prior that agrees with all the data is inside.

    Attributes:
        target: What is identified.
        box: Box of its parameters, (P,).
        ranges: Ranges of the objectives, (K,).
    """

    target: Target
    box: Box
    ranges: Box

    @classmethod
    def of_prior(cls, target: Target) -> Knowledge:
        """What is known before any data."""
        return cls(target, target.prior, hull(target.objectives, target.prior))

    def gain(self, lower: Array, upper: Array) -> Array:
        """By how much bounds of the objectives, (K,) each, shrink their ranges, as a part of these, (K,)."""
        shrunk = np.maximum(lower - self.ranges.lower, 0.0) + np.maximum(self.ranges.upper - upper, 0.0)
        return shrunk / np.maximum(self.ranges.upper - self.ranges.lower, 1e-300)

    def narrowed(self, lower: Array, upper: Array) -> Knowledge | None:
        """With bounds of the objectives from data, (K,) each; None where nothing is left."""
        if np.any(lower > upper):
            return None
        ranges = Box(lower, upper).intersect(self.ranges)
        box = None if ranges is None else self._box(ranges)
        if box is None:
            return None
        ranges = ranges.intersect(hull(self.target.objectives, box))
        return None if ranges is None else Knowledge(self.target, box, ranges)

    def _box(self, ranges: Box) -> Box | None:
        """The box of the parameters: of one body, with what holds for every body."""
        if self.target.body:
            box = Box(ranges.lower[:INERTIAL], ranges.upper[:INERTIAL]).intersect(self.box)
            box = None if box is None else tighten(box)
            return box if box is None or self.target.shape is None else tighten_to_shape(box, self.target.shape)
        combinations = self.target.combinations
        single, lower, upper = combinations.is_single, self.box.lower.copy(), self.box.upper.copy()
        entries = combinations.chosen[single]
        lower[entries] = np.maximum(lower[entries], ranges.lower[single])
        upper[entries] = np.minimum(upper[entries], ranges.upper[single])
        return None if np.any(lower > upper) else Box(lower, upper)

    def combinations(self, values: Array, shares: Mapping[str, Array]) -> CombinationEstimate | None:
        """What joint torques can tell, with bounds; None where they tell each parameter by itself.

        Args:
            values: A target, (P,).
            shares: Share of each source of error in the half widths of the objectives, name -> (K,).
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
        """Which objective each combination is."""
        known = self.target.combinations
        if not self.target.body:
            return np.arange(len(known))
        index = INERTIAL - 1 + np.cumsum(~known.is_single)
        return np.where(known.is_single, known.chosen, index)


def hull(matrix: Array, box: Box) -> Box:
    """The range of ``matrix @ theta`` over a box, (K, P) and (P,) to (K,), rounded outwards."""
    positive, negative = np.maximum(matrix, 0.0), np.minimum(matrix, 0.0)
    lower = positive @ box.lower + negative @ box.upper
    upper = positive @ box.upper + negative @ box.lower
    size = np.abs(matrix) @ np.maximum(np.abs(box.lower), np.abs(box.upper))
    pad = 4.0 * (matrix.shape[1] + 8) * np.finfo(float).eps * size
    return Box(lower - pad, upper + pad)
