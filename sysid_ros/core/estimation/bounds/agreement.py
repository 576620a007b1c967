"""How much of the allowed errors data use, and whether their bounds are as narrow as such a motion permits.

The share s is the smallest common scale of all error bounds, radii of nuisance parameters and shared errors at which
some payload of the prior satisfies all rows; the payload's own box stays. Data are consistent if and only if it is at
most one. The rows of the payload that needs the smallest errors, without errors, give the expected width; a bound is
never narrower than ``1 - s`` of it (docs/theory/bounds.md). Both are indicators without a guarantee. A torque lag hides
below the vibration that windows allow, so the share does not show it: least squares estimate it together with payload
and nuisance parameters, and it is reported where it is significant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.bounds.set_membership import (
    WarmStart,
    add_inequalities,
    bound_by_membership,
    seed_cuts,
)
from sysid_ros.core.estimation.bounds.shape_cuts import shape_cuts
from sysid_ros.core.estimation.lp.interior_point import solve_for_scale
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.lp.row_chain import RowChain
from sysid_ros.core.estimation.parameters.unknowns import Unknowns
from sysid_ros.core.estimation.point.statistics import lasting_errors, least_squares
from sysid_ros.core.estimation.windows.rows import CALIBRATED, TARED, Rows
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]

MOST_SHARE, LEAST_WIDTH, MOST_LAG = 0.9, 0.3, 0.012
"""Share [-], relative width [-] and lag [s] beyond which data are out of the ordinary; bench/_attacks_share.py."""
EARLY_SECONDS = 4.0
"""Motion after which :class:`StreamingEstimator` checks for the first time [s]; as long as in the trials."""
_LARGEST = 20.0
"""Inverse of the smallest share that is reported."""
_PRIOR_LAG = 0.05
"""Standard deviation of the lag before any data [s]."""
_SIGNIFICANT = 3.0
"""A lag counts from so many of its standard deviations on."""
_TOLERANCE, _WIDTH_TOLERANCE = 2e-3, 0.05
_MASS_AND_MOMENTS = 4
_MOST_WINDOWS = 300
"""Of more windows only the newest count, and there is no width: that is of all."""


@dataclass(frozen=True)
class Agreement:
    """Agreement of data and assumptions.

    Attributes:
        share: Share of the allowed errors that the data use [-]; above 1 they are inconsistent.
        width: Found width over expected width, the least of mass and first moments [-]; NaN where there are no bounds.
        lag: Lag of the torques behind the positions with which they agree best [s].
        lag_error: Its standard deviation, with errors uniform within their bounds [s].
        has_calibration: Whether the rows of a calibration of the arm count.
    """

    share: float
    width: float
    lag: float
    lag_error: float
    has_calibration: bool = False

    @property
    def doubt(self) -> str:
        """Unusual agreement with its likely causes, in sentences; empty if all is usual."""
        found, causes = [], []
        if self.share > MOST_SHARE:
            found.append(f"the data use {100.0 * self.share:.0f} % of the errors that are allowed")
        if self.width < LEAST_WIDTH:
            found.append(f"the bounds have {100.0 * self.width:.0f} % of the width that such a motion gives")
        if abs(self.lag) > max(MOST_LAG, _SIGNIFICANT * self.lag_error):
            where = "behind" if self.lag > 0.0 else "ahead of"
            found.append(f"they agree best with torques {1e3 * abs(self.lag):.0f} ms {where} the positions")
            causes.append("a lag of the torques (compare stamps in a fast motion; setting torque_lag)")
        if not found:
            return ""
        if self.has_calibration:
            causes.append("the calibration is of another arm, or its reference weight was wrong")
        causes += ["a gripper or cable that the model of the arm lacks", "a tilted base", "contact"]
        return f"{' and '.join(found)}: an assumption is probably wrong. Likely causes: {'; '.join(causes)}"

    @property
    def width_text(self) -> str:
        """The width in a clause; empty where there is none."""
        return "" if np.isnan(self.width) else f"bounds {100.0 * self.width:.0f} % as wide as such a motion gives"

    @property
    def text(self) -> str:
        """Both numbers in a clause."""
        return ", ".join(filter(None, (f"{100.0 * self.share:.0f} % of the allowed errors used", self.width_text)))


def measure_agreement(
    robot: RobotModel, unknowns: Unknowns, parts: list[Rows], found: Box | None = None
) -> Agreement | None:
    """Compare rows with the assumptions about a payload.

    Args:
        robot: The arm.
        unknowns: Target, one body, and nuisance parameters.
        parts: Rows of all windows, calibration and tare first; None without any.
        found: Bounds of the ten parameters from these rows.
    """
    known, windows = (
        [part for part in parts if (part.window[0] in (CALIBRATED, TARED)) == is_known] for is_known in (True, False)
    )
    if not windows or not unknowns.target.body:
        return None
    prior, rows = unknowns.prior, Rows.stack([*known, *windows[-_MOST_WINDOWS:]])
    problem = Problem.build(rows, prior.center, prior.radius, unknowns.radius, unknowns.end_error)
    cuts = seed_cuts(unknowns.nominal)
    if unknowns.shape is not None:
        cuts = np.concatenate([cuts, shape_cuts(unknowns.shape, prior)])
    share, target = find_least_scale(problem, cuts)
    lags = problem.b[:, unknowns.groups["shared_torque_lag"]].sum(axis=1)
    lag, lag_error = _estimate_lag(problem, lags, lasting_errors(robot, unknowns, problem, rows))
    width = np.nan
    if found is not None and len(windows) <= _MOST_WINDOWS and np.all(np.isfinite(found.width)):
        virtual = replace(
            problem, r=problem.y @ (target - prior.center), objectives=np.eye(target.size)[:_MASS_AND_MOMENTS]
        )
        wide = bound_by_membership(virtual, _WIDTH_TOLERANCE, WarmStart(cuts=cuts))
        expected = np.minimum(wide.upper - wide.lower, prior.width[:_MASS_AND_MOMENTS])
        width = float(np.min(found.width[:_MASS_AND_MOMENTS] / np.maximum(expected, 1e-300)))
    return Agreement(share, width, lag, lag_error, any(part.window[0] == CALIBRATED for part in known))


def _estimate_lag(problem: Problem, lags: Array, lasting: Array) -> tuple[float, float]:
    """Estimate a lag of all torques and its standard deviation by least squares [s]; lags: effect of 1 s, (R,).

    An arm vibrates in all joints at once, so at each instant their errors count as one.
    """
    found = least_squares(problem, np.column_stack([lasting, _PRIOR_LAG * lags]))
    size = np.abs(found.gains(-1) @ problem.end_matrix) * problem.end_radii
    by_instant = size.reshape(-1, max(problem.end_radius.size, 1))
    shared = np.sum(by_instant.sum(axis=1) ** 2 - np.sum(by_instant**2, axis=1)) / 3.0
    return _PRIOR_LAG * float(found.values[-1]), _PRIOR_LAG * float(np.sqrt(found.covariance[-1, -1] + shared))


def find_least_scale(problem: Problem, cuts: Array) -> tuple[float, Array]:
    """Find the smallest common scale of all errors at which a problem is feasible.

    With ``tau`` its inverse, the rows times tau are ``y x' + b delta + v eta - tau r = e`` with all errors within their
    bounds; tau is maximised. The box of the target and the cuts have no errors; for ``x' = tau x`` they read
    ``|x'| <= tau radius`` and ``cuts (tau center + x') >= 0``.

    Args:
        problem: The rows, centred on the prior.
        cuts: Inequalities ``cuts theta >= 0`` that hold for every target, (C, P).

    Returns:
        The scale, and the target that needs the smallest errors, (P,).
    """
    center, radius, count = problem.center, problem.radius, problem.center.size
    scaled = replace(
        problem,
        radius=_LARGEST * radius,
        theta_size=_LARGEST * problem.theta_size,
        r=np.zeros(len(problem.r)),
    )
    sides = np.eye(count) / np.maximum(radius, 1e-300)
    y = np.concatenate([sides, -sides, cuts])
    of_scale = np.concatenate([np.ones(2 * count), cuts @ center, -problem.r])
    most = np.concatenate([np.full(2 * count, 2.0), np.abs(cuts) @ problem.theta_size])
    none = np.zeros((len(y), scaled.b.shape[1]))
    scaled = add_inequalities(scaled, y, none, np.zeros(len(y)), _LARGEST * most)
    chain, solution = solve_for_scale(RowChain(scaled, 0.01), _LARGEST * of_scale, scaled.r, _TOLERANCE)
    x, _, inverse, _ = chain.values(solution.variables[:, 0])
    scale = 1.0 / max(_LARGEST * float(inverse[0]), 1e-300)
    return scale, np.clip(center + x * scale, center - radius, center + radius)
