"""Bounds by any method, and what they guarantee: one interface."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.bounds.cone_cuts import seed_cuts
from sysid_ros.core.estimation.bounds.left_inverse import LinearBounds, bound_with, choose_inverse
from sysid_ros.core.estimation.bounds.sensitivity import bound_by_sensitivity
from sysid_ros.core.estimation.bounds.set_membership import SidedBounds, WarmStart, bound_by_membership
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.settings import ALL_BODIES, ERROR_TERMS, METHODS, PAYLOAD, EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import Unknowns

Array = NDArray[np.float64]

_ASSUMPTIONS = (
    "Contains the true parameters if the robot's kinematics and gravity are as modelled, its parameters and friction "
    "lie in their box, the sensors keep their error bounds, the acceleration stays within its assumed bounds, "
)
_CARRIED = "the payload lies in its prior box and has not changed during the data"
_NAMED = "the object on the body lies in its prior box, {hand}, and nothing has changed during the data"
_ALL = "{hand}, and nothing has changed during the data"
_EMPTY_HAND, _IN_HAND = "the hand is empty", "what the hand holds lies in the payload prior"
_SMALLEST = (
    "Each bound is that of the smallest box around all parameters consistent with all windows, up to this update or at "
    "most two before it; compaction of old windows and the tolerance of the solver can only widen it"
)


@dataclass(frozen=True)
class Bounds:
    """Bounds of the objectives of a problem from the data.

    Attributes:
        lower: Lower bounds, (K,).
        upper: Upper bounds, (K,). Below ``lower`` only where the data are infeasible.
        shares: Share of each source of error in the radius, name -> (K,).
        is_rigorous: Whether they contain the truth whenever the assumptions hold.
        values: The point estimate of a method that is not rigorous, (10,), or None.
        warm_start: What bounds of more rows start from.
        infeasibility: A combination of the rows that proves them infeasible, (R,), or None.
        notice: What failed on the way, or None.
    """

    lower: Array
    upper: Array
    shares: dict[str, Array]
    is_rigorous: bool
    values: Array | None = None
    warm_start: WarmStart = WarmStart()
    infeasibility: Array | None = None
    notice: str | None = None

    @property
    def radius(self) -> Array:
        """Radii of the bounds, half their widths, (K,)."""
        return 0.5 * (self.upper - self.lower)


def compute_bounds(
    problem: Problem,
    unknowns: Unknowns,
    settings: EstimatorSettings,
    start: Array,
    warm_start: WarmStart | None = None,
    active: NDArray[np.bool_] | None = None,
) -> Bounds:
    """Compute bounds of the objectives by the method of the settings.

    Args:
        problem: The rows, centred on a box that holds the target.
        unknowns: Names of the entries of the shared nuisance parameters.
        settings: Method and its settings.
        start: Log-Cholesky coordinates of a plausible target, (10,), for methods that need a fit.
        warm_start: From earlier bounds of the first of the rows, or None.
        active: Objectives that ``set_membership`` solves again, (K,); the others keep the bounds that the warm start
            proves. None: all.

    Raises:
        FitNotConverged: The method needs a fit and it did not converge.
        ParameterOutOfRange: The method is unknown.
    """
    if settings.method == "set_membership":
        if warm_start is None and settings.use_cone:
            warm_start = WarmStart(cuts=seed_cuts(unknowns.nominal, problem.bodies))
        sided = bound_by_membership(problem, settings.bound_tolerance, warm_start, settings.reweightings, active)
        return Bounds(
            lower=sided.lower,
            upper=sided.upper,
            shares=_sided_shares(sided, unknowns),
            is_rigorous=True,
            warm_start=sided.warm_start,
            infeasibility=None if sided.infeasibility is None else sided.infeasibility[-len(problem.r) :],
            notice=sided.notice,
        )
    if settings.method == "left_inverse":
        previous = None if warm_start is None else warm_start.multipliers
        inverse = choose_inverse(problem, settings.reweightings, previous)
        linear = bound_with(problem, inverse)
        lower = np.nextafter(linear.center - linear.radius, -np.inf)
        upper = np.nextafter(linear.center + linear.radius, np.inf)
        return Bounds(lower, upper, _linear_shares(linear, unknowns), is_rigorous=True, warm_start=WarmStart(inverse))
    if settings.method == "sensitivity":
        local = bound_by_sensitivity(problem, start)
        shares = _shares(local.by_rows, local.by_delta, unknowns)
        theta, radius = local.fit.theta, local.radius
        return Bounds(theta - radius, theta + radius, shares, is_rigorous=False, values=theta)
    raise ParameterOutOfRange("method", settings.method, "one of " + ", ".join(METHODS))


def is_guaranteed(settings: EstimatorSettings) -> bool:
    """Return whether the bounds are guaranteed: by a rigorous method, with all error terms."""
    return settings.method != "sensitivity" and not settings.left_out_terms


def describe_guarantee(settings: EstimatorSettings) -> str:
    """Say in one sentence what the bounds guarantee."""
    if settings.method == "sensitivity":
        return (
            "Not guaranteed: SAFE-ID Theorem 13 evaluated at the nominal point, for torque and robot parameter errors "
            "only; the truth can lie outside."
        )
    hand = _IN_HAND if settings.payload_in_hand else _EMPTY_HAND
    special = {PAYLOAD: _CARRIED, ALL_BODIES: _ALL}.get(settings.body, _NAMED)
    text = _ASSUMPTIONS + special.format(hand=hand)
    if settings.method == "set_membership":
        text += f". {_SMALLEST}"
        if settings.use_cone:
            text += "; bodies that are not physically consistent are cut off in part"
    if settings.left_out_terms:
        left_out = ", ".join(settings.left_out_terms)
        text += f"; NOT guaranteed where these errors are present, which were left out: {left_out}"
    return text + "."


def _sided_shares(sided: SidedBounds, unknowns: Unknowns) -> dict[str, Array]:
    """Compute the effect of a small change of each source of error on the radii, scaled so that the sum is the radius.

    By the envelope theorem the derivative of a bound in the size of an error is that error's part for the optimal
    multipliers. The parts add up to more than the radius, because the measured data rule out that all errors reach
    their limits.
    """
    below, above = (_linear_shares(side, unknowns) for side in (sided.below, sided.above))
    total = 0.5 * (sided.below.radius + sided.above.radius)
    scale = np.maximum(0.5 * (sided.upper - sided.lower), 0.0) / np.maximum(total, 1e-300)
    return {name: 0.5 * scale * (below[name] + above[name]) for name in below}


def _linear_shares(linear: LinearBounds, unknowns: Unknowns) -> dict[str, Array]:
    shares = _shares(linear.by_rows, linear.by_delta, unknowns)
    shares["velocity"] = shares["velocity"] + linear.by_ends[:, 0]
    shares["encoder"] = shares["encoder"] + linear.by_ends[:, 1]
    shares["rounding"] = shares["rounding"] + linear.by_rounding
    shares["prior"] = linear.by_prior
    return shares


def _shares(by_rows: Array, by_delta: Array, unknowns: Unknowns) -> dict[str, Array]:
    shares = {name: by_rows[:, k] for k, name in enumerate(ERROR_TERMS)}
    for name, entries in unknowns.groups.items():
        shares[name] = by_delta[:, entries].sum(axis=1)
    return shares
