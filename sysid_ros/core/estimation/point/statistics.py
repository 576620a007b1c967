"""A statistical interval beside the guaranteed one: likely values where the bounds give the possible ones.

Generalised least squares with priors, from the same rows as the bounds. Constants of the session are one unknown each,
uniform in their box: the arm's parameters, friction, offsets, gains, and lasting torque errors. Each error term of a
window is uniform within its bound and independent of the others, or of the windows that do not share it. Windows at
rest in one posture are one measurement, however many there are: friction there is one constant, anywhere within F_c.
Rows of a calibration are widths of one convex body of many dimensions, most of which lies near its middle in every
single direction. The normal distribution that results is cut to the guaranteed bounds. Unlike a guaranteed bound the
interval is missed in a share of cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.special import ndtr, ndtri

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.lp.problem import Problem, RowBands, floored
from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS, EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import Unknowns, describe_unknowns
from sysid_ros.core.estimation.windows.rows import CALIBRATED, TARED, Rows
from sysid_ros.core.model.inertia import PARAMETER_NAMES
from sysid_ros.core.model.robot import FRICTION, INERTIAL, RobotModel

Array = NDArray[np.float64]

CONFIDENCE = 0.95
"""Share of cases that the interval is meant to hold [-]."""
_UNIFORM = 1.0 / 3.0
"""Variance of a number uniform between -1 and 1."""
_STICTION = ERROR_TERMS.index("coulomb")
_WHOLE = 1.0 - 1e-6
"""A joint sticks where its friction is unknown for this share of a window [-]."""


@dataclass(frozen=True)
class StatisticalInterval:
    """An interval that holds each parameter with a stated confidence, under statistical assumptions.

    Attributes:
        lower: Lower ends, (10,), within the guaranteed bounds; NaN where likely and possible values do not overlap.
        upper: Upper ends, (10,); NaN likewise.
        confidence: Share of cases that each interval is meant to hold [-].
    """

    lower: Array
    upper: Array
    confidence: float = CONFIDENCE

    @property
    def absence(self) -> str:
        """The parameters without an interval, and why, in a sentence; empty where all have one."""
        names = [name for name, end in zip(PARAMETER_NAMES, self.lower, strict=True) if np.isnan(end)]
        if not names:
            return ""
        return (
            f"none of {', '.join(names)}: the likely values lie outside the guaranteed bounds, so errors are not as "
            "they are assumed to be on average"
        )


def compute_statistical_interval(
    robot: RobotModel, settings: EstimatorSettings, rows: Sequence[Rows], bounds: Box, known: Sequence[Rows] = ()
) -> StatisticalInterval | None:
    """Compute the interval of a payload from the rows of all windows and known rows of the arm.

    Args:
        robot: The arm.
        settings: The rows' settings.
        rows: Rows of each window, in order of time.
        bounds: Guaranteed bounds from the same data, (10,).
        known: Rows of a calibration and of a tare, see :func:`~sysid_ros.core.estimation.tare.known_rows`.

    Returns:
        The interval; None without windows.
    """
    if not rows:
        return None
    unknowns = describe_unknowns(robot, settings)
    parts = [_usual(part) if part.window[0] == CALIBRATED else part for part in known]
    parts += _one_per_rest(rows, unknowns.coulomb_upper)
    prior = unknowns.prior
    stacked = Rows.stack(parts)
    problem = Problem.build(stacked, prior.center, prior.radius, unknowns.radius, unknowns.end_error)
    found = least_squares(problem, lasting_errors(robot, unknowns, problem, stacked))
    center = prior.center + prior.radius * found.values[:INERTIAL]
    deviation = np.maximum(prior.radius * np.sqrt(np.diag(found.covariance)[:INERTIAL]), np.finfo(float).tiny)
    return StatisticalInterval(*_cut(center, deviation, bounds))


def lasting_errors(robot: RobotModel, unknowns: Unknowns, problem: Problem, rows: Rows) -> Array:
    """Return what torque errors that last, of windows and others at the tare, do in the rows of a problem, (R, 4 n).

    They act like a gain and an offset. They may keep to their limits, so these are their standard deviations, not those
    of a uniform distribution.
    """
    n, sensors = robot.n, robot.sensors
    gains, offsets = unknowns.groups["torque_gain"], INERTIAL * n + 3 + FRICTION * np.arange(n)
    rest = np.broadcast_to(sensors.effort_relative_error - sensors.effort_gain_error, (n,))
    lasting = problem.b[:, [*gains, *offsets]] * np.concatenate([rest, sensors.effort_integral[0]])
    return np.concatenate([lasting * mask[:, None] for mask in (rows.window >= 0, rows.window == TARED)], axis=1)


def _usual(calibration: Rows) -> Rows:
    """Return rows of a calibration with errors whose variance is that of a direction in their convex body."""
    # Uniform within an ellipsoid of d dimensions, a direction has the variance of its half width over d + 2.
    shrinkage = np.sqrt((np.linalg.matrix_rank(calibration.b) + 2.0) * _UNIFORM)
    return replace(calibration, errors=calibration.errors / shrinkage)


@dataclass(frozen=True)
class LeastSquares:
    """Target and shared unknowns over their radii, then further ones, (P + M + F,), and their covariance."""

    values: Array
    covariance: Array
    _white: Array  # Gains of the unknowns in rows without covariance, (R, P + M + F)
    _factor: Array  # Of the covariance of the rows, banded

    def gains(self, unknown: int) -> Array:
        """Return how an unknown follows from the right-hand sides, (R,)."""
        white = self._white @ self.covariance[unknown]
        return np.asarray(lapack.dtbtrs(self._factor, white[:, None], uplo="L", trans="T")[0][:, 0])


def least_squares(problem: Problem, further: Array) -> LeastSquares:
    """Solve rows by generalised least squares, with errors and unknowns uniform within their bounds.

    Args:
        problem: The rows.
        further: Gains of further unknowns, (R, F), of which the variance is one before any data.
    """
    columns = np.concatenate([problem.y * problem.radius, problem.b * problem.delta_radius, further], axis=1)
    own, ends = floored(np.sqrt(np.sum(problem.errors**2, axis=1))), problem.end_radii
    bands = RowBands(problem, problem.joints).assemble(_UNIFORM * own**2, _UNIFORM * ends**2)
    factor = scipy.linalg.cholesky_banded(bands, lower=True, check_finite=False)
    white = lapack.dtbtrs(factor, np.concatenate([columns, problem.r[:, None]], axis=1), uplo="L")[0]
    white, rest = white[:, :-1], white[:, -1]
    priors = np.full(columns.shape[1], 1.0 / _UNIFORM)
    priors[columns.shape[1] - further.shape[1] :] = 1.0
    covariance = np.linalg.inv(white.T @ white + np.diag(priors))
    return LeastSquares(covariance @ (white.T @ rest), covariance, white, factor)


def _one_per_rest(rows: Sequence[Rows], coulomb: Array) -> Iterable[Rows]:
    """Yield the rows of each window, (n,) at a time, and the mean of those of windows at rest one after another.

    Args:
        rows: Rows of each window, in order of time.
        coulomb: Largest F_c of each joint, (n,) [Nm].
    """

    def is_at_rest(one: Rows) -> bool:
        return bool(coulomb.any() and np.all(one.errors[:, _STICTION] >= _WHOLE * coulomb * one.duration))

    for rests, run in groupby(rows, is_at_rest):
        if not rests:
            yield from run
            continue
        same = list(run)
        fields = ("y", "b", "u", "errors", "ends", "tilt")
        yield replace(same[0], **{name: np.mean([getattr(one, name) for one in same], axis=0) for name in fields})


def _cut(center: Array, deviation: Array, bounds: Box) -> tuple[Array, Array]:
    """Return the middle share of normal distributions within bounds, lower and upper ends; NaN where they are apart."""
    below, above = ndtr((bounds.lower - center) / deviation), ndtr((bounds.upper - center) / deviation)
    tail = 0.5 * (1.0 - CONFIDENCE)
    is_apart = (above <= tail) | (below >= 1.0 - tail)
    with np.errstate(invalid="ignore"):
        lower, upper = (
            np.clip(center + deviation * ndtri(below + share * (above - below)), bounds.lower, bounds.upper)
            for share in (tail, 1.0 - tail)
        )
    return np.where(is_apart, np.nan, lower), np.where(is_apart, np.nan, upper)
