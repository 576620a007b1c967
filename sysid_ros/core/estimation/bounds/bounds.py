"""Bounds by any method, and what they guarantee: one interface."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.bounds.cone_cuts import seed_cuts
from sysid_ros.core.estimation.bounds.left_inverse import LinearBounds, bound_with, choose_inverse
from sysid_ros.core.estimation.bounds.sensitivity import bound_by_sensitivity
from sysid_ros.core.estimation.bounds.set_membership import SidedBounds, bound_by_membership
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
    "Each bound is that of the smallest box around all parameters that agree with all windows, up to this update or at "
    "most two before it; compacting old windows and the tolerance of the solver can only widen it"
)


@dataclass(frozen=True)
class Bounds:
    """Bounds of the objectives of a problem from the data.

    Attributes:
        lower: Lower bounds, (K,).
        upper: Upper bounds, (K,). Below ``lower`` only where no target agrees with the data.
        values: A plausible target that comes with the bounds, (10,); None if none does.
        shares: Share of each source of error in the half width, name -> (K,).
        is_rigorous: Whether they contain the truth whenever the assumptions hold.
        multipliers: Matrix behind the bounds, (K, R), or (2 K, R) with rows for lower and upper bounds by themselves;
            None if there is none.
        cuts: Cuts of the cone of physically consistent bodies for the next bounds, (C, P); None if there are none.
        cut_multipliers: What belongs to the cuts in the matrix, (2 K, C); None if there are none.
        contradiction: A combination of the rows that proves that no target agrees with the data, (R,), or None.
        notice: What went wrong on the way; empty if nothing did.
    """

    lower: Array
    upper: Array
    shares: dict[str, Array]
    is_rigorous: bool
    values: Array | None = None
    multipliers: Array | None = None
    cuts: Array | None = None
    cut_multipliers: Array | None = None
    contradiction: Array | None = None
    notice: str = ""

    @property
    def half_width(self) -> Array:
        """Half widths, (K,)."""
        return 0.5 * (self.upper - self.lower)


def compute_bounds(
    problem: Problem,
    unknowns: Unknowns,
    settings: EstimatorSettings,
    start: Array,
    previous: Bounds | None = None,
    chosen: NDArray[np.bool_] | None = None,
) -> Bounds:
    """Bounds of the objectives by the method of the settings.

    Args:
        problem: The rows, centred on what is known beforehand.
        unknowns: Names of the entries of the shared nuisance.
        settings: Method and its settings.
        start: Log-Cholesky coordinates of a plausible target, (10,); used by methods that need a fit.
        previous: Earlier bounds from the first of the rows, or None.
        chosen: The objectives that ``set_membership`` solves anew, (K,); the others keep what the multipliers of
            ``previous`` prove. None: all.

    Raises:
        FitNotConverged: The method needs a fit and it did not converge.
        ParameterOutOfRange: The method is unknown.
    """
    if settings.method == "set_membership":
        has_cuts = settings.use_cone
        cuts = seed_cuts(unknowns.nominal, problem.bodies) if has_cuts else None
        multipliers, cut_multipliers = None, None
        if previous is not None:
            multipliers, cuts, cut_multipliers = previous.multipliers, previous.cuts, previous.cut_multipliers
        sided = bound_by_membership(
            problem, settings.bound_tolerance, cuts, settings.reweightings, multipliers, cut_multipliers, chosen
        )
        contradiction = sided.contradiction
        return Bounds(
            lower=sided.lower,
            upper=sided.upper,
            shares=_sided_shares(sided, unknowns),
            is_rigorous=True,
            multipliers=sided.multipliers,
            cuts=sided.cuts if has_cuts else None,
            cut_multipliers=sided.cut_multipliers if has_cuts else None,
            contradiction=None if contradiction is None else contradiction[-len(problem.r) :],
            notice=sided.notice,
        )
    if settings.method == "left_inverse":
        inverse = choose_inverse(problem, settings.reweightings, None if previous is None else previous.multipliers)
        linear = bound_with(problem, inverse)
        lower = np.nextafter(linear.center - linear.half_width, -np.inf)
        upper = np.nextafter(linear.center + linear.half_width, np.inf)
        return Bounds(lower, upper, _linear_shares(linear, unknowns), is_rigorous=True, multipliers=inverse)
    if settings.method == "sensitivity":
        local = bound_by_sensitivity(problem, start)
        shares = _shares(local.by_rows, local.by_delta, unknowns)
        theta, half_width = local.fit.theta, local.half_width
        return Bounds(theta - half_width, theta + half_width, shares, is_rigorous=False, values=theta)
    raise ParameterOutOfRange("method", settings.method, "one of " + ", ".join(METHODS))


def describe_guarantee(settings: EstimatorSettings) -> str:
    """One sentence on what the bounds guarantee."""
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
    """What a small change of each source of error changes in the half widths, scaled so that the sum is the half width.

    By the envelope theorem the derivative of a bound in the size of an error is that error's part for the optimal
    multipliers. The parts add up to more than the half width, because what the data really show rules out that all
    errors reach their limits.
    """
    below, above = (_linear_shares(side, unknowns) for side in (sided.below, sided.above))
    total = 0.5 * (sided.below.half_width + sided.above.half_width)
    scale = np.maximum(0.5 * (sided.upper - sided.lower), 0.0) / np.maximum(total, 1e-300)
    return {name: 0.5 * scale * (below[name] + above[name]) for name in below}


def _linear_shares(linear: LinearBounds, unknowns: Unknowns) -> dict[str, Array]:
    shares = _shares(linear.by_rows, linear.by_delta, unknowns)
    shares["velocity"] = shares["velocity"] + linear.by_ends
    shares["rounding"] = shares["rounding"] + linear.by_rounding
    shares["prior"] = linear.by_prior
    return shares


def _shares(by_rows: Array, by_delta: Array, unknowns: Unknowns) -> dict[str, Array]:
    shares = {name: by_rows[:, k] for k, name in enumerate(ERROR_TERMS)}
    for name, entries in unknowns.groups.items():
        shares[name] = by_delta[:, entries].sum(axis=1)
    return shares
