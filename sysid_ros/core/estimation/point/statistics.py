"""A statistical interval beside the guaranteed one: what others report, from residuals, robust to their correlation.

Least squares for payload and nuisance parameters together. The parameters of the arm and the gains of its torques count
as random, uniform in their box, and the windows' errors as a stationary process whose covariance the residuals show: a
sandwich with the kernel of Newey and West over neighbouring windows. What is wrong in all windows alike does not show
in residuals, so trials are left more often than the normal distribution says; standard errors are multiplied by
:data:`CALIBRATION`, from trials. Unlike a guaranteed bound the interval is left in a share of cases.

Source: W. K. Newey, K. D. West, A simple, positive semi-definite, heteroskedasticity and autocorrelation consistent
covariance matrix, 1987, eq. (5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import Unknowns, describe_unknowns
from sysid_ros.core.estimation.windows.rows import Rows
from sysid_ros.core.model.robot import INERTIAL, RobotModel

Array = NDArray[np.float64]

CONFIDENCE, _QUANTILE = 0.95, 1.959963984540054
"""Share of cases that the interval is meant to hold, and the normal quantile of it."""
CALIBRATION = 1.5
"""Standard errors are multiplied by this [-], so that the worst group of the trials that it was chosen on (seeds 100 to
107 of bench/bench_statistics.py) is held as often as stated; that benchmark runs other seeds."""
LEAST_WINDOWS = 20
"""With fewer windows there is no interval: their covariance would be a guess."""
_UNIFORM = 3.0
"""Inverse of the variance of a number uniform between -1 and 1."""
_WEAK = 1e-8


@dataclass(frozen=True)
class StatisticalInterval:
    """An interval that holds each parameter with a stated confidence, under statistical assumptions.

    Attributes:
        values: Least-squares estimate, (10,); no body need have it.
        standard_error: Of each, calibrated, (10,).
        confidence: Share of cases that each interval is meant to hold [-].
        windows: Number of windows.
        lags: Neighbouring windows whose errors count as correlated.
    """

    values: Array
    standard_error: Array
    confidence: float
    windows: int
    lags: int

    @classmethod
    def from_ends(cls, lower: Array, upper: Array, confidence: float) -> StatisticalInterval:
        """Return the interval with these ends, (10,) each; windows and lags are not known (0)."""
        return cls(0.5 * (lower + upper), 0.5 * (upper - lower) / _QUANTILE, confidence, 0, 0)

    @property
    def lower(self) -> Array:
        """Lower ends, (10,)."""
        return self.values - _QUANTILE * self.standard_error

    @property
    def upper(self) -> Array:
        """Upper ends, (10,)."""
        return self.values + _QUANTILE * self.standard_error


class WeightedColumns:
    """Rows of windows as a least-squares problem, each unknown in units of its radius.

    Columns are those of the payload, then of every nuisance parameter that is not known exactly.

    Args:
        robot: The arm.
        unknowns: What the rows are about; the target is one body.

    Attributes:
        center: Middle of the payload's prior, (10,).
        radius: Its radii, (10,).
    """

    def __init__(self, robot: RobotModel, unknowns: Unknowns):
        self.center, self.radius = unknowns.prior.center, unknowns.prior.radius
        self._unknowns = unknowns
        self._gain_error = robot.sensors.effort_relative_error

    def build(self, rows: Rows) -> tuple[Array, Array, Array]:
        """Return columns (R, K), weights (R,) and right-hand side (R,) [Nms] of R rows."""
        unknowns = self._unknowns
        problem = Problem.build(rows, self.center, self.radius, unknowns.radius, unknowns.end_error)
        spans = problem.delta_radius.copy()
        gains = unknowns.groups["torque_gain"]
        # A relative error of the torque may last, as a gain does.
        spans[gains] = np.maximum(spans[gains], self._gain_error)
        columns = np.concatenate([problem.y * self.radius, (problem.b * spans)[:, spans > 0.0]], axis=1)
        allowed = problem.error + np.abs(problem.ends).sum(axis=1) @ problem.end_radius
        return columns, _UNIFORM / allowed**2, problem.r


def weak_prior(count: int) -> Array:
    """Return the inverse variances of the columns, (count,): hardly any for the payload, else uniform in the box."""
    prior = np.full(count, _UNIFORM)
    prior[:INERTIAL] = _WEAK
    return prior


def long_run_covariance(scores: Array) -> Array:
    """Return the covariance (K, K) of the sum of N correlated scores (N, K), with the kernel of Newey and West."""
    lags = _lags(len(scores))
    spread: Array = scores.T @ scores
    for lag in range(1, lags + 1):
        cross = scores[lag:].T @ scores[:-lag]
        spread += (1.0 - lag / (lags + 1.0)) * (cross + cross.T)
    return spread


def _lags(count: int) -> int:
    """Return how many neighbours count as correlated."""
    return int(np.floor(4.0 * (count / 100.0) ** (2.0 / 9.0)))


def compute_statistical_interval(
    robot: RobotModel, settings: EstimatorSettings, rows: Sequence[Rows]
) -> StatisticalInterval | None:
    """Compute the interval of a payload from the rows of all windows.

    Args:
        robot: The arm.
        settings: Those the rows were made with.
        rows: Rows of each window, in order of time.

    Returns:
        The interval; None with fewer than :data:`LEAST_WINDOWS` windows.
    """
    if len(rows) < LEAST_WINDOWS:
        return None
    columns = WeightedColumns(robot, describe_unknowns(robot, settings))
    a, weight, r = columns.build(Rows.stack(rows))
    prior, count = weak_prior(a.shape[1]), len(rows)
    inverse = np.linalg.inv((a.T * weight) @ a + np.diag(prior))
    z = inverse @ ((a.T * weight) @ r)
    rest = r - a @ z
    used = float(np.trace(inverse @ ((a.T * weight) @ a)))
    scores = (a * (weight * rest)[:, None]).reshape(count, robot.n, -1).sum(axis=1)
    spread = long_run_covariance(scores)
    size = count * robot.n
    spread *= size / max(size - used, 1.0)
    covariance = inverse @ (spread + np.diag(np.where(np.arange(prior.size) < INERTIAL, 0.0, prior))) @ inverse
    error = CALIBRATION * columns.radius * np.sqrt(np.maximum(np.diag(covariance)[:INERTIAL], 0.0))
    values = columns.center + columns.radius * z[:INERTIAL]
    return StatisticalInterval(values, error, CONFIDENCE, count, _lags(count))
