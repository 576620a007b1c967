"""What a calibration says about the arm in base parameters, with bounds proven from its rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.parameters.estimate import CombinationEstimate
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.target import Combinations
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns, shared_center
from sysid_ros.core.identifiability.information import felt_joint_parameters
from sysid_ros.core.identifiability.mechanism import MechanismOptions, compare_robot
from sysid_ros.core.identifiability.settings import AnalysisSettings
from sysid_ros.core.model.calibration import ArmCalibration
from sysid_ros.core.model.robot import RobotModel, parameter_names

Array = NDArray[np.float64]

_BODIES = MechanismOptions(massless="unknown")
_PAD = 1e-12
"""Rounding of a bound, as a share of the terms it is a sum of."""


@dataclass(frozen=True)
class ArmIdentification:
    """A calibration with what it says of the base parameters.

    Attributes:
        calibration: The calibration.
        base: Base parameters with point estimate, proven bounds, and bounds before.
        row_shares: Width of each certified row over that before, rising, (R,) [-].
    """

    calibration: ArmCalibration
    base: CombinationEstimate
    row_shares: Array

    @property
    def relative_width(self) -> float:
        """Geometric mean of the widths of the certified rows over those before [-]; 1 without rows."""
        if not self.row_shares.size:
            return 1.0
        return float(np.exp(np.mean(np.log(np.maximum(self.row_shares, 1e-12)))))


def describe_arm(
    robot: RobotModel, calibration: ArmCalibration, settings: EstimatorSettings | None = None
) -> ArmIdentification:
    """Bound the base parameters of an arm with the rows of its calibration.

    Args:
        robot: The arm as it was before.
        calibration: Its calibration.
        settings: Those the calibration was made with: they bound torque lag and tilt of gravity, which its rows share.

    Returns:
        Bounds that hold if the calibration's hold: each is proven by its own multipliers (weak duality), so that an
        inexact solver can only widen it.
    """
    names = parameter_names(robot)
    analysis = AnalysisSettings(joint_parameters=felt_joint_parameters(robot))
    combinations = Combinations.of(compare_robot(robot, analysis, _BODIES).snapped, names)
    settings = settings or EstimatorSettings()
    unknowns = describe_unknowns(robot, settings)
    center, radius = shared_center(unknowns, settings), unknowns.radius
    shared = Box(center - radius, center + radius)
    size = len(names)
    old = _interval(calibration.matrix, shared)
    shares = np.minimum((calibration.upper - calibration.lower) / np.maximum(old[1] - old[0], 1e-300), 1.0)
    low, high = shared.lower.copy(), shared.upper.copy()
    low[:size], high[:size] = calibration.box.lower, calibration.box.upper
    padded = np.zeros((len(combinations), low.size))
    padded[:, :size] = combinations.matrix
    lower, upper = bound_linear(padded, Box(low, high), calibration.matrix, calibration.lower, calibration.upper)
    before = Box(*_interval(combinations.matrix, robot.theta_box))
    lower, upper = np.maximum(lower, before.lower), np.minimum(upper, before.upper)
    values = np.clip(combinations.matrix @ calibration.nominal, lower, upper)
    base = CombinationEstimate(
        combinations.names, combinations.formulas, combinations.units, combinations.matrix, values, lower, upper, before
    )
    return ArmIdentification(calibration, base, np.sort(shares))


def bound_linear(objectives: Array, box: Box, matrix: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Bound linear functions over a box and rows ``lower <= matrix x <= upper``, by weak duality.

    For any multipliers ``mu``, ``c x = (c - mu matrix) x + mu (matrix x)``, and both terms are bounded by the box and
    by the rows. The multipliers come from a linear program; they need not be optimal for the bound to hold.

    Args:
        objectives: The functions, (K, M).
        box: Box of x, (M,).
        matrix: Rows, (R, M).
        lower: Their lower bounds, (R,).
        upper: Their upper bounds, (R,).

    Returns:
        Lower and upper bounds, (K,) each, rounded outwards.
    """
    if not len(matrix):
        return _interval(objectives, box)
    is_open = box.radius > 0.0
    scale = np.where(is_open, box.radius, 1.0)
    fixed = matrix @ box.center
    scaled = matrix[:, is_open] * scale[is_open]
    size = np.maximum(np.abs(scaled).max(axis=1), 1e-300)
    a = np.concatenate([scaled, -scaled]) / np.tile(size, 2)[:, None]
    b = np.concatenate([upper - fixed, fixed - lower]) / np.tile(size, 2)
    results = []
    for row in objectives:
        cost = row[is_open] * scale[is_open]
        unit = float(np.abs(cost).max(initial=0.0)) or 1.0
        sides = []
        for sign in (1.0, -1.0):
            solution = linprog(sign * cost / unit, a, b, bounds=(-1.0, 1.0), method="highs")
            multipliers = np.zeros(len(matrix))
            if solution.status == 0:
                both = unit * np.minimum(solution.ineqlin.marginals, 0.0) / np.tile(size, 2)
                multipliers = both[: len(matrix)] - both[len(matrix) :]
            sides.append(sign * _proven_lower(sign * row, multipliers, box, matrix, lower, upper))
        results.append(sides)
    found = np.array(results).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _proven_lower(row: Array, multipliers: Array, box: Box, matrix: Array, lower: Array, upper: Array) -> float:
    rest = row - multipliers @ matrix
    terms = np.concatenate(
        [
            np.where(rest > 0.0, rest * box.lower, rest * box.upper),
            np.where(multipliers > 0.0, multipliers * lower, multipliers * upper),
        ]
    )
    # What rounding of ``rest`` can change counts with the sizes of all that was added up.
    largest = (np.abs(row) + np.abs(multipliers) @ np.abs(matrix)) @ np.maximum(np.abs(box.lower), np.abs(box.upper))
    return float(terms.sum() - _PAD * (np.abs(terms).sum() + largest))


def _interval(matrix: Array, box: Box) -> tuple[Array, Array]:
    middle, half = matrix @ box.center, np.abs(matrix) @ box.radius
    pad = _PAD * (np.abs(matrix) @ (np.abs(box.center) + box.radius))
    return middle - half - pad, middle + half + pad
