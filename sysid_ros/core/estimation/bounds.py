"""Bounds by any method, and what they guarantee: one interface."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.errors import ParameterOutOfRange
from sysid_ros.core.estimation.left_inverse import bound_with, choose_inverse
from sysid_ros.core.estimation.problem import Problem
from sysid_ros.core.estimation.settings import ERROR_TERMS, METHODS, EstimatorSettings
from sysid_ros.core.estimation.theorem13 import bound_by_sensitivity
from sysid_ros.core.estimation.unknowns import Unknowns

Array = NDArray[np.float64]

_ASSUMPTIONS = (
    "Contains the true parameters if the robot's kinematics and gravity are as modelled, its parameters and friction "
    "lie in their box, the sensors keep their error bounds, the acceleration stays within its assumed bounds, the "
    "payload lies in its prior box and has not changed during the data"
)


@dataclass(frozen=True)
class Bounds:
    """Bounds of the target from the data.

    Attributes:
        center: Middle, (10,).
        half_width: (10,).
        shares: Share of each source of error in the half width, name -> (10,).
        is_rigorous: Whether they contain the truth whenever the assumptions hold.
        inverse: Matrix behind the bounds, to go on from when rows are added, (10, R); None if there is none.
    """

    center: Array
    half_width: Array
    shares: dict[str, Array]
    is_rigorous: bool
    inverse: Array | None = None


def compute_bounds(
    problem: Problem, unknowns: Unknowns, settings: EstimatorSettings, start: Array, previous: Array | None = None
) -> Bounds:
    """Bounds of the target by the method of the settings.

    Args:
        problem: The rows, centred on what is known beforehand.
        unknowns: Names of the entries of the shared nuisance.
        settings: Method and its settings.
        start: Log-Cholesky coordinates of a plausible target, (10,); used by methods that need a fit.
        previous: ``inverse`` of earlier bounds from the first of the rows, or None.

    Raises:
        FitNotConverged: The method needs a fit and it did not converge.
        ParameterOutOfRange: The method is unknown.
    """
    if settings.method == "left_inverse":
        inverse = choose_inverse(problem, settings.reweightings, previous)
        linear = bound_with(problem, inverse)
        shares = _shares(linear.by_rows, linear.by_delta, unknowns)
        shares["velocity"] = shares["velocity"] + linear.by_ends
        shares["rounding"] = shares["rounding"] + linear.by_rounding
        shares["prior"] = linear.by_prior
        return Bounds(linear.center, linear.half_width, shares, is_rigorous=True, inverse=inverse)
    if settings.method == "sensitivity":
        local = bound_by_sensitivity(problem, start)
        shares = _shares(local.by_rows, local.by_delta, unknowns)
        return Bounds(local.fit.theta, local.half_width, shares, is_rigorous=False)
    raise ParameterOutOfRange("method", settings.method, "one of " + ", ".join(METHODS))


def describe_guarantee(settings: EstimatorSettings) -> str:
    """One sentence on what the bounds guarantee."""
    if settings.method == "sensitivity":
        return (
            "Not guaranteed: SAFE-ID Theorem 13 evaluated at the nominal point, for torque and robot parameter errors "
            "only; the truth can lie outside."
        )
    text = _ASSUMPTIONS
    if settings.left_out_terms:
        left_out = ", ".join(settings.left_out_terms)
        text += f"; NOT guaranteed where these errors are present, which were left out: {left_out}"
    return text + "."


def _shares(by_rows: Array, by_delta: Array, unknowns: Unknowns) -> dict[str, Array]:
    shares = {name: by_rows[:, k] for k, name in enumerate(ERROR_TERMS)}
    for name, entries in unknowns.groups.items():
        shares[name] = by_delta[:, entries].sum(axis=1)
    return shares
