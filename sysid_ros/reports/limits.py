"""What keeps bounds from being narrower, and what a person can do about it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sysid_ros.reports.result import IdentificationResult

TOLD = 3
"""Causes that are told; the error budget has all."""
_LEAST = 0.05
"""A cause with a smaller share is not worth telling [-]."""


@dataclass(frozen=True)
class Cause:
    """What limits bounds: some terms of the error budget that have one cure.

    Attributes:
        name: What it is called.
        terms: The terms.
        cure: What makes it smaller.
    """

    name: str
    terms: tuple[str, ...]
    cure: str


SAMPLING = Cause(
    "what lies between two samples", ("torque_interpolation", "jitter", "quadrature", "coulomb"), "sample faster"
)
CAUSES = (
    SAMPLING,
    Cause(
        "positions and velocities",
        ("encoder", "velocity"),
        "state smaller errors of these sensors if they keep them; `sysid calibrate sensors` shows them at rest",
    ),
    Cause(
        "torque sensors",
        ("torque_relative", "torque_absolute", "torque_drift", "torque_gain"),
        "state smaller errors of the torques if the sensors keep them, or calibrate the arm: `sysid calibrate`",
    ),
    Cause(
        "friction of the arm",
        ("robot_friction", "friction"),
        "calibrate the arm: `sysid calibrate`; or record every joint moving both ways at one speed, with the empty "
        "hand: `sysid calibrate friction` tells what to state in the settings",
    ),
    Cause(
        "inertias of the arm",
        ("robot_inertia", "calibration"),
        "calibrate the arm: `sysid calibrate`; or state a smaller `inertial_uncertainty` if that is true",
    ),
    Cause(
        "lag of the torques",
        ("torque_lag", "shared_torque_lag"),
        "measure the lag, and state it with a smaller `torque_lag_tolerance`",
    ),
    Cause("direction of gravity", ("gravity", "gravity_direction"), "level the base, and state a smaller cone"),
    Cause("elastic joints", ("elasticity",), "state stiffness and damping of the joints better"),
)


def find_limits(result: IdentificationResult) -> list[tuple[Cause, float]]:
    """Return what limits the bounds of a payload, with its share of what the data leave open, the largest first.

    Parameters of which the data say nothing count for little: all of their width was there before.

    Args:
        result: What was found, with an error budget.
    """
    budget = {name: np.asarray(share, dtype=float) for name, share in result.estimate.error_budget.items()}
    whole = sum(budget.values(), np.zeros(10))
    if not budget or not np.all(np.isfinite(whole)):
        return []
    width = np.where(whole > 0.0, whole, np.inf)
    shares = {one.name: sum(float(np.sum(budget[n] / width)) for n in one.terms if n in budget) for one in CAUSES}
    total = sum(shares.values())
    if not total > 0.0:
        return []
    found = [(one, shares[one.name] / total) for one in CAUSES if shares[one.name] >= _LEAST * total]
    return sorted(found, key=lambda entry: -entry[1])[:TOLD]


def describe_limits(result: IdentificationResult) -> list[str]:
    """Say what limits the bounds and what to change, a sentence for each cause."""
    samples, texts = result.samples, []
    for cause, share in find_limits(result):
        rate = ""
        if cause is SAMPLING and samples is not None and len(samples) > 1:
            hertz = 1e9 / float(np.median(np.diff(samples.stamps)))
            rate = f" than {round(hertz, 1):g} Hz; slower motion loses less between samples, but shows inertias less"
        texts.append(f"{100.0 * share:.0f} % {cause.name}: {cause.cure}{rate}")
    return texts
