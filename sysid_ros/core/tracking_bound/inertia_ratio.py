"""Range of the ratio of true to nominal inertia in any direction: the eigenvalues of ``E = M^-1 H`` (step 2).

The largest eigenvalue of a symmetric matrix is convex in it and the smallest one concave, so over a convex hull they
are attained at its vertices: those of the payload set (:mod:`uncertainty`). The arm's parameters are many but known
well; with ``W_l = M^-1/2 (dH/dtheta_l) M^-1/2`` a deviation of at most d_l adds at most ``d_l (W_l^2)^1/2``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.model.robot import INERTIAL, RobotModel
from sysid_ros.core.tracking_bound.inertia_columns import congruence, inertia_columns, largest_eigenvalue, magnitude
from sysid_ros.core.tracking_bound.uncertainty import InertialUncertainty

Array = NDArray[np.float64]

_ROUNDING = 1e-9
_IS_POSITIVE = np.isin(np.arange(INERTIAL), [0, 4, 6, 9])
"""Parameters of a body that add a positive semidefinite inertia: mass and moments about the axes."""
_MOST_IMPORTANT = 16
"""Number of parameters for which the magnitude of the change is computed as a matrix."""
_STEP = 0.02
"""Step of the differences in position [rad]."""


@dataclass(frozen=True)
class InertiaRatio:
    """Range of the generalised eigenvalues of (H, M) over samples of a motion.

    Attributes:
        lower: Smallest one at any sample.
        upper: Largest one at any sample.
        lower_slope: Largest slope of ``lower`` with each joint, (n,) [1/rad].
        upper_slope: Largest slope of ``upper``, (n,) [1/rad].
    """

    lower: float
    upper: float
    lower_slope: Array
    upper_slope: Array

    def near(self, position: Array) -> tuple[float, float]:
        """Extend the range to positions within ``position`` (n,) [rad] of the samples."""
        return self.lower - float(self.lower_slope @ position), self.upper + float(self.upper_slope @ position)


def compute_inertia_ratio(
    robot: RobotModel, uncertainty: InertialUncertainty, q: Array, payload: Array, probes: Array
) -> InertiaRatio:
    """Bound the ratio at positions (S, n) with nominal payloads (S, 10); its slopes are differences.

    Args:
        robot: The arm.
        uncertainty: Deviation of the true inertial parameters from the nominal ones.
        q: Positions, (S, n) [rad].
        payload: Nominal payloads there, (S, 10).
        probes: Indices of the positions at which slopes are taken, (P,).
    """
    n = robot.n
    steps = _STEP * np.concatenate([np.eye(n), -np.eye(n)])
    near = (q[probes, None] + steps).reshape(-1, n)
    payloads = np.concatenate([payload, np.repeat(payload[probes], 2 * n, axis=0)])
    lower, upper = inertia_ratios(robot, uncertainty, np.concatenate([q, near]), payloads)
    slopes = []
    for values in (lower, upper):
        around = values[len(q) :].reshape(-1, 2, n)
        slopes.append(np.abs(around - values[probes, None, None]).max(axis=(0, 1)) / _STEP)
    return InertiaRatio(float(lower[: len(q)].min()), float(upper[: len(q)].max()), *slopes)


def inertia_ratios(
    robot: RobotModel, uncertainty: InertialUncertainty, q: Array, payload: Array
) -> tuple[Array, Array]:
    """Bound the ratio at positions (S, n) with nominal payloads (S, 10): smallest and largest, (S,) each."""
    columns, payloads = inertia_columns(robot, q), uncertainty.payloads
    nominal = np.einsum("sabl,sl->sab", columns, uncertainty.nominal(payload))
    factor = np.linalg.inv(np.linalg.cholesky(nominal))
    radius, positive = uncertainty.radius, np.resize(_IS_POSITIVE, uncertainty.radius.size)
    positive[INERTIAL * robot.n :] = True  # armatures
    others = np.flatnonzero(~positive & (radius > 0.0))
    spread = _spread(congruence(factor, np.moveaxis(columns[..., others], -1, 1)), radius[others])
    spread += congruence(factor, columns @ np.where(positive, radius, 0.0))
    arm = congruence(factor, columns @ uncertainty.arm)
    last = congruence(factor, np.moveaxis(columns[..., uncertainty.last], -1, 1))  # (S, 10, n, n)

    def carrying(bodies: Array) -> Array:
        result: Array = np.tensordot(last, bodies, (1, 1)).transpose(0, 3, 1, 2)  # (S, K, n, n)
        return result

    options = [largest_eigenvalue((arm + spread)[:, None] + carrying(one)).max(axis=1) for one in payloads.upper]
    highest = np.min(options, axis=0)
    lowest = -largest_eigenvalue((spread - arm)[:, None] - carrying(payloads.lower)).max(axis=1)
    without = -largest_eigenvalue(spread - arm)  # a payload has no negative kinetic energy
    return np.maximum(lowest, without) - _ROUNDING, highest + _ROUNDING


def _spread(matrices: Array, radius: Array) -> Array:
    """Bound ``sum_l d_l X_l`` for ``|d_l| <= radius_l`` by a matrix, (S, n, n), of symmetric X (S, l, n, n).

    For the parameters with the largest effect that is ``radius_l |X_l|``, for the others ``radius_l (tr X_l^2)^1/2 1``.
    """
    size = np.linalg.norm(matrices, axis=(-2, -1))
    first, rest = np.split(np.argsort(-(radius * size).max(axis=0)), [_MOST_IMPORTANT])
    leading = np.tensordot(magnitude(matrices[:, first]), radius[first], (1, 0))
    bound: Array = leading + (size[:, rest] @ radius[rest])[:, None, None] * np.eye(matrices.shape[-1])
    return bound
