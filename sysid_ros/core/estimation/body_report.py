"""Bounds of any body, or of all bodies, in the form in which combinations are shown, written and sent."""

from __future__ import annotations

import numpy as np

from sysid_ros.core.estimation.parameters.bounds import hull
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.estimation.parameters.target import Target
from sysid_ros.core.identifiability.report import Report, report_bounds


def report_combinations(target: Target, estimate: ParameterEstimate) -> Report:
    """What joint torques tell of a target, with guaranteed bounds; NaN where an alarm leaves none.

    Args:
        target: What was identified.
        estimate: The estimate of it.
    """
    known = target.combinations
    prior = hull(known.matrix, target.prior)
    found = estimate.combinations
    if found is not None:
        lower, upper = found.lower, found.upper
    elif estimate.is_consistent:  # each parameter is one of them
        lower, upper = estimate.lower[known.chosen], estimate.upper[known.chosen]
    else:
        lower = upper = np.full(len(known), np.nan)
    text = f"{target.label}: {estimate.alarm or estimate.guarantee}"
    return report_bounds(target.structure, lower, upper, prior, estimate.condition_number, text)
