"""Bounds of any body, or of combinations of the parameters of all bodies: as a table and as ``bodies.yaml``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import yaml
from numpy.typing import NDArray

from sysid_ros.core.estimation.parameters.estimate import CombinationEstimate, EstimateStatus, ParameterEstimate
from sysid_ros.core.estimation.parameters.target import Target

FORMAT = "sysid_ros bodies 1"

_HEADER = """\
# Inertial parameters of bodies: m [kg], mc = mass times centre of mass [kg m], I = inertia about the origin of the
# joint frame [kg m^2]; F_c, F_v, I_a, beta: friction of a joint. 'combinations' are what joint torques tell: sums of
# 'coefficients' times parameters, with bounds. 'guarantee' says what the bounds promise.
"""
_FORMULA_WIDTH = 40


def body_table(target: Target, estimate: ParameterEstimate) -> str:
    """Return the result for a terminal: the parameters of a body, then the combinations."""
    lines = [f"{target.label}" + (f", about the frame of {target.frame}" if target.frame else "")]
    if not estimate.is_consistent:
        return "\n".join([*lines, f"ALARM: {estimate.alarm_text}"])
    if estimate.status in (EstimateStatus.NO_DATA, EstimateStatus.PRIOR_ONLY):
        return "\n".join([*lines, f"NOT IDENTIFIED: {estimate.shortfall}"])
    if target.body:
        prior = target.prior
        lines += ["", _head("parameter", 12)]
        columns = (estimate.names, estimate.units, estimate.values, estimate.lower, estimate.upper, prior.width)
        lines += [_row(12, *row) for row in zip(*columns, strict=True)]
    found = estimate.combinations
    if found is not None:
        lines += ["", "What joint torques tell:", _head("combination", _FORMULA_WIDTH)]
        columns = (found.formulas, found.units, found.values, found.lower, found.upper, found.prior.width)
        lines += [_row(_FORMULA_WIDTH, *row) for row in zip(*columns, strict=True)]
    seconds = f"{estimate.data_seconds:.1f} s of data in {estimate.number_of_windows} windows, {estimate.method}"
    return "\n".join([*lines, "", seconds, estimate.guarantee])


def body_text(
    target: Target, estimate: ParameterEstimate, robot: str, source: str, notices: Sequence[str], settings: Mapping
) -> str:
    """Contents of ``bodies.yaml``.

    Args:
        target: What was identified.
        estimate: The estimate of it.
        robot: Name of the arm.
        source: Where the data come from.
        notices: What was noticed on the way.
        settings: Settings of the estimator.
    """
    is_usable = estimate.status in (EstimateStatus.PARTIAL, EstimateStatus.IDENTIFIED)
    document = {
        "format": FORMAT,
        "robot": robot,
        "source": source,
        "body": target.label,
        "frame": target.frame,
        "is_usable": is_usable,
        "status": estimate.status.name,
        "shortfall": estimate.shortfall,
        "alarm": estimate.alarm_text,
        "method": estimate.method,
        "guarantee": estimate.guarantee,
        "data": {"seconds": float(estimate.data_seconds), "windows": int(estimate.number_of_windows)},
        "parameters": _parameters(target, estimate) if is_usable else [],
        "combinations": _combinations(estimate.combinations, target.names) if is_usable else [],
        "warnings": list(notices),
        "settings": {name: list(v) if isinstance(v, tuple) else v for name, v in settings.items()},
    }
    return _HEADER + yaml.safe_dump(document, sort_keys=False, width=120, allow_unicode=True)


def _parameters(target: Target, estimate: ParameterEstimate) -> list[dict[str, object]]:
    bounds = _numbers(estimate.values, estimate.lower, estimate.upper, target.prior.lower, target.prior.upper)
    return [{"name": n, "unit": u, **row} for n, u, row in zip(target.names, target.units, bounds, strict=True)]


def _combinations(found: CombinationEstimate | None, names: Sequence[str]) -> list[dict[str, object]]:
    if found is None:
        return []
    bounds = _numbers(found.values, found.lower, found.upper, found.prior.lower, found.prior.upper)
    shares = found.error_budget
    return [
        {
            "name": found.names[k],
            "unit": found.units[k],
            **bounds[k],
            "coefficients": {names[int(j)]: float(found.matrix[k, j]) for j in np.flatnonzero(found.matrix[k])},
            "error_shares": {name: float(share[k]) for name, share in shares.items() if share[k] > 0.0},
        }
        for k in range(len(found))
    ]


def _numbers(*columns: NDArray[np.float64]) -> list[dict[str, float]]:
    keys = ("value", "lower", "upper", "prior_lower", "prior_upper")
    return [dict(zip(keys, map(float, row), strict=True)) for row in zip(*columns, strict=True)]


def _head(what: str, width: int) -> str:
    return f"{what:<{width}}{'unit':<10}{'estimate':>12}{'lower':>12}{'upper':>12}{'width':>11}{'prior width':>13}"


def _row(width: int, name: str, unit: str, value: float, lower: float, upper: float, prior: float) -> str:
    text = name if len(name) < width else name[: width - 4].rsplit(" ", 1)[0] + " ..."
    return f"{text:<{width}}{unit:<10}{value:>12.5g}{lower:>12.5g}{upper:>12.5g}{upper - lower:>11.3g}{prior:>13.3g}"
