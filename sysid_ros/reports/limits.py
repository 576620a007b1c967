"""Limits of the bounds, and their cures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sysid_ros.core.estimation.parameters.estimate import Quantity
from sysid_ros.reports.payload import summarize_payload
from sysid_ros.reports.payload_files import find_well_known
from sysid_ros.reports.result import IdentificationResult

TOLD = 3
"""Causes that are named; the error budget has all."""
_LEAST_OF_MASS = 0.2
"""Parts of the half width of the mass are named where the last windows made at least this share of it [-]."""
_STILL = 0.05
"""Bounds of the mass that the second half of a recording narrowed by less will hardly get narrower [-]."""
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


_CALIBRATE = (
    "calibrate it (`sysid calibrate arm` with recordings of such motions with the empty hand, and better with a known "
    "weight, too; or `sysid calibrate run`) and identify with `--calibration`; or state what you know better in the "
    "settings"
)
_CALIBRATE_AGAIN = (
    "what its calibration leaves: recordings of more motions like this one in it narrow that, with the empty hand and "
    "with a known weight, best a heavy one"
)
"""Instead, of an arm that is calibrated."""
GAINS = Cause(
    "gains of the torque sensors",
    ("torque_gain",),
    "a reference weight, once, shows them (`sysid calibrate run` with `--weight`)",
)
SAMPLING = Cause("what lies between two samples", ("torque_interpolation", "jitter", "quadrature"), "sample faster")
CAUSES = (
    SAMPLING,
    Cause(
        "friction where it is not certain which way a joint moves",
        ("coulomb",),
        "move every joint, without creeping; the better friction is known, the less it matters",
    ),
    Cause(
        "positions and velocities",
        ("encoder", "velocity"),
        "state smaller errors of these sensors if they keep them; `sysid calibrate sensors` shows them at rest",
    ),
    Cause(
        "torque sensors",
        ("torque_relative", "torque_absolute", "torque_drift"),
        "state smaller errors of the torques if the sensors keep them; a constant gain (`effort_gain_error`) costs "
        "less than changes from sample to sample",
    ),
    GAINS,
    Cause("friction and torque offsets of the arm", ("robot_friction", "friction"), _CALIBRATE),
    Cause("inertias of the arm", ("robot_inertia", "calibration"), _CALIBRATE),
    Cause(
        "lag of the torques",
        ("torque_lag", "shared_torque_lag"),
        "measure the lag, and state it with a smaller `torque_lag_tolerance`",
    ),
    Cause("direction of gravity", ("gravity", "gravity_direction"), "level the base, and state a smaller cone"),
    Cause("elastic joints", ("elasticity",), "state stiffness and damping of the joints better"),
)


def find_open_parameters(result: IdentificationResult) -> range:
    """Return the parameters that count: the mass until it is known well, then first moments for the CoM, then all."""
    if not result.is_identified:
        return range(4)
    known = find_well_known(summarize_payload(result, result.robot.tool_frame))
    if Quantity.MASS not in known:
        return range(1)
    return range(10) if Quantity.COM in known else range(4)


def find_limits(result: IdentificationResult) -> list[tuple[Cause, float]]:
    """Return what limits the bounds of a payload, with its share of the open width, the largest first.

    Parameters of which the data say nothing count for little: all of their width was there before.
    """
    budget = {name: np.asarray(share, dtype=float) for name, share in result.estimate.error_budget.items()}
    whole = sum(budget.values(), np.zeros(10))
    if not budget or not np.all(np.isfinite(whole)):
        return []
    width, counts = np.where(whole > 0.0, whole, np.inf), find_open_parameters(result)
    shares = {
        one.name: sum(float(np.sum((budget[n] / width)[counts])) for n in one.terms if n in budget) for one in CAUSES
    }
    total = sum(shares.values())
    if not total > 0.0:
        return []
    found = [(one, shares[one.name] / total) for one in CAUSES if shares[one.name] >= _LEAST * total]
    return sorted(found, key=lambda entry: -entry[1])[:TOLD]


def describe_limits(result: IdentificationResult) -> list[str]:
    """Say what limits the bounds, how much of the mass's half width it is, and what to change: a sentence for each."""
    samples, budget = result.samples, result.estimate.error_budget
    texts: list[str] = []
    told: set[str] = set()
    # Where nearly all of the width was there before the last windows, their part says little of it.
    whole = sum(float(share[0]) for share in budget.values())
    tells_mass = whole - float(budget.get("prior", [0.0])[0]) >= _LEAST_OF_MASS * whole
    for cause, share in find_limits(result):
        cure = "the same helps" if cause.cure in told else cause.cure
        if cure is _CALIBRATE and result.robot.calibration is not None:
            cure = _CALIBRATE_AGAIN
        told.add(cause.cure)
        if cause is SAMPLING and samples is not None and len(samples) > 1:
            hertz = 1e9 / float(np.median(np.diff(samples.stamps)))
            cure += f" than {round(hertz, 1):g} Hz; slower motion loses less between samples, but shows inertias less"
        mass = sum(float(budget[name][0]) for name in cause.terms if name in budget)
        of_mass = f" ({mass:.2g} kg of the mass)" if tells_mass else ""
        if cause is GAINS and tells_mass:
            cure += f": about +-{max(whole - mass, 0.0):.2g} kg would be left"
        texts.append(f"{100.0 * share:.0f} % {cause.name}{of_mass}: {cure}")
    return [*texts, *_describe_length(result)] if texts else []


def _describe_length(result: IdentificationResult) -> list[str]:
    history, prior = result.history, result.robot.payload_prior.box.radius[0]
    if result.samples is None or not len(history.time) or not result.estimate.is_consistent:
        return []
    end = float(result.samples.seconds[-1])
    early = int(np.searchsorted(history.time, 0.5 * end, side="right")) - 1
    if early < 0 or history.time[early] < 0.3 * end:  # no bounds from about the first half
        return []
    widths = 0.5 * (history.upper - history.lower)[[early, -1], 0]
    if not np.all(np.isfinite(widths)) or widths[1] >= 0.98 * prior:
        return []
    helps = "recording longer helps" if widths[1] < (1.0 - _STILL) * widths[0] else "longer recordings will hardly help"
    times = history.time[early], end
    figures = [f"{time:.2g} s gave +-{width:.3g} kg" for time, width in zip(times, widths, strict=True)]
    return [f"{', '.join(figures)}: {helps}, with motions like these"]
