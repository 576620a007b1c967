"""``report.html``: one self-contained page, the answer first, then its grounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.parameters.estimate import Quantity
from sysid_ros.core.identifiability.mechanism import PayloadIdentifiability
from sysid_ros.core.identifiability.report import describe_data
from sysid_ros.core.model.inertia import PARAMETER_NAMES, PARAMETER_UNITS
from sysid_ros.reports import figures
from sysid_ros.reports.limits import describe_limits, find_open_parameters
from sysid_ros.reports.pages import render
from sysid_ros.reports.payload import notices, summarize_payload
from sysid_ros.reports.picture import arm_pictures
from sysid_ros.reports.result import BLIND_SPOTS, IdentificationResult
from sysid_ros.reports.torque_fit import explained_torque

_DIGITS = {"kg": 3, "kg m": 4, "kg m^2": 5, "m": 4}
_MEANINGS = (
    "mass",
    *(f"mass × centre of mass, {axis}" for axis in "xyz"),
    *(f"inertia {axes} about the frame’s origin" for axes in ("xx", "xy", "yy", "xz", "yz", "zz")),
)
_BAR = 220.0
"""Width of the picture of the bounds inside the prior."""


def report_html(result: IdentificationResult) -> str:
    """Return the page as one text; it loads nothing from anywhere."""
    robot, estimate = result.robot, result.estimate
    drawings = {
        "bounds": "".join(filter(None, (figures.convergence(result), figures.shrinkage(result)))),
        "torque": figures.torque_fit(result),
        "windows": figures.windows(result),
        "budget": figures.error_budget(result),
        "motion": figures.motion(result),
        "excitation": figures.excitation(result),
    }
    sentences = [estimate.guarantee, *robot.assumptions, *robot.warnings]
    groups = [
        ("Settings", result.settings),
        ("Time [s]", {name: f"{value:.3g}" for name, value in result.timing.items()}),
        ("Versions", result.versions),
    ]
    answer: dict[str, Any] = {}
    if result.is_usable:
        tool, joint = summarize_payload(result, robot.tool_frame), summarize_payload(result)
        answer = {
            "mass": joint.mass,
            "knows_com": Quantity.COM in estimate.narrower,
            "median": float(np.median(result.shrinkage)),
            "picture": arm_pictures(result),
            "parameters": list(zip(PARAMETER_NAMES, PARAMETER_UNITS, _MEANINGS, strict=True)),
            "bars": [_bar(result, i) for i in range(10)],
            "bodies": [("Tool frame", tool), ("Frame of the last joint", joint)],
        }
    return render(
        "report.html",
        result=result,
        robot=robot,
        estimate=estimate,
        digits=_DIGITS,
        has_truth=result.truth is not None,
        warnings=notices(result),
        drawings=drawings,
        fit=_fit(result),
        windows=result.windows,
        limits=describe_limits(result),
        limits_of={1: "the mass", 4: "mass and centre of mass", 10: "all parameters"}[
            len(find_open_parameters(result))
        ],
        contradictions=[] if result.windows is None else result.windows.contradictions(robot.joint_names),
        margins=_margins(result),
        claims=_claims(result),
        known=_known(result),
        blind_spots=BLIND_SPOTS,
        assumptions=[text for text in dict.fromkeys(sentences) if text],
        groups=[(title, table) for title, table in groups if table],
        **answer,
    )


def _bar(result: IdentificationResult, i: int) -> dict[str, float] | None:
    """Places of bounds, estimate and truth on the interval of the prior; None where that has no width."""
    prior, estimate = result.prior, result.estimate
    width = prior.upper[i] - prior.lower[i]
    if not width > 0.0:
        return None

    def place(value: float) -> float:
        return float(np.clip(_BAR * (value - prior.lower[i]) / width, 0.0, _BAR))

    first, last, middle = place(estimate.lower[i]), place(estimate.upper[i]), place(estimate.values[i])
    if last - first < 3.0:
        first, last = max(0.0, middle - 1.5), min(_BAR, middle + 1.5)
    truth = {} if result.truth is None else {"truth": place(result.truth[i])}
    return {"first": first, "last": last, "middle": middle, **truth}


def _fit(result: IdentificationResult) -> list[tuple[Any, ...]]:
    """Per joint: name, RMS, largest and mean residual [Nm], R squared, shares explained by all, by the sensor [%]."""
    samples, predicted = result.samples, result.predicted_tau
    if samples is None or predicted is None or len(samples) == 0:
        return []
    rest, sensors = samples.tau - predicted, result.robot.sensors
    claimed = sensors.effort_relative_error * np.abs(samples.tau) + sensors.effort_absolute_error
    picked, allowed = explained_torque(result)
    spread = np.var(samples.tau, axis=0)
    columns = (
        np.sqrt(np.mean(rest**2, axis=0)),
        np.abs(rest).max(axis=0),
        rest.mean(axis=0),
        1.0 - np.var(rest, axis=0) / np.where(spread > 0.0, spread, np.nan),
        100.0 * np.mean(np.abs(rest[picked]) <= allowed, axis=0),
        100.0 * np.mean(np.abs(rest) <= claimed, axis=0),
    )
    return list(zip(result.robot.joint_names, *columns, strict=True))


def _margins(result: IdentificationResult) -> dict[str, Any]:
    """Kinds of margins, the margins of each plan by kind, and the least of each kind."""
    kinds = list(dict.fromkeys(row.kind for motion in result.motions for row in motion.margins))
    plans = [{row.kind: row for row in motion.margins} for motion in result.motions]
    least = {kind: min(rows[kind].margin for rows in plans if kind in rows) for kind in kinds}
    return {"kinds": kinds, "plans": plans, "least": least}


def _claims(result: IdentificationResult) -> list[tuple[str, str]]:
    """Return the claims of the certificates, each sentence once, with the plans it speaks of."""
    plans: dict[str, list[str]] = {}
    for number, motion in enumerate(result.motions, start=1):
        plans.setdefault(motion.claims or "Nothing is known of its certificate.", []).append(str(number))
    if len(plans) == 1:
        return [("All plans", claims) for claims in plans]
    return [
        (f"Plan{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}", claims) for claims, numbers in plans.items()
    ]


def _known(result: IdentificationResult) -> str | None:
    information, samples = result.information, result.samples
    if information is None or not np.any(information):
        return None
    try:
        payload = PayloadIdentifiability(result.robot, result.prior)
        box = result.estimate.box if result.is_usable and result.is_rigorous else None
        analysis = payload.analyze(information, box)
        speeds = None if samples is None or not len(samples) else np.abs(samples.v).max(axis=0)
        return describe_data(analysis, payload.advise(analysis, information, speeds))
    except SysidError as error:
        return f"What the data know cannot be said: {error}."
