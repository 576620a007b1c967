"""``estimate.yaml``: every number of the result, with unit, frame and meaning; and the payload read back from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from sysid_ros.core.common.yaml_files import read_yaml
from sysid_ros.core.estimation.parameters.estimate import (
    CombinationEstimate,
    EstimateStatus,
    ParameterEstimate,
    Quantity,
)
from sysid_ros.core.estimation.parameters.unknowns import Target
from sysid_ros.core.model.inertia import PARAMETER_NAMES, PARAMETER_UNITS
from sysid_ros.reports.folders import require_result, unusable_result
from sysid_ros.reports.payload import (
    Bounded,
    PayloadSummary,
    notices,
    payload_parameters,
    summarize_behind_flange,
    summarize_payload,
)
from sysid_ros.reports.payload_files import RULE, find_well_known, join_names
from sysid_ros.reports.result import BLIND_SPOTS, IdentificationResult

FORMAT = "sysid_ros estimate 1"

_HEADER = """\
# Inertial parameters: m [kg], mc = mass times centre of mass [kg m], I = inertia about the origin of the frame [kg m^2]
# (of inertia_about_com: about the centre of mass). Matrices are rows of the frame's axes. lower and upper are bounds;
# 'guarantee' says what they promise. .inf and -.inf: not bounded. Principal axes and nominal values carry no bounds.
"""


STATISTICAL = (
    "statistical, not guaranteed: likely within the bounds where the arm's parameters and all errors are uniform "
    "within theirs, and errors of different kinds and windows independent; .nan: none, see absence"
)
"""What the statistical interval is."""


def estimate_text(result: IdentificationResult) -> str:
    """Contents of ``estimate.yaml``."""
    return _HEADER + yaml.dump(estimate_data(result), Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


def estimate_data(result: IdentificationResult) -> dict[str, object]:
    """Return the result as plain mappings, lists, numbers and texts."""
    estimate, robot = result.estimate, result.robot
    data: dict[str, object] = {
        "format": FORMAT,
        "created": result.created.isoformat(timespec="seconds"),
        "robot": robot.name,
        "source": result.source,
        "is_usable": result.is_usable,
        "status": estimate.status.name,
        "narrower_than_prior": {quantity.name.lower(): quantity in estimate.narrower for quantity in Quantity},
        "shortfall": estimate.shortfall,
        "payload_change": estimate.payload_change,
        "alarm": estimate.alarm_text,
        "explanation": _explanation(result),
        "target": estimate.target,
        "method": estimate.method,
        "guarantee": estimate.guarantee,
        "data": {
            "seconds": float(estimate.data_seconds),
            "windows": int(estimate.number_of_windows),
            "condition_number": float(estimate.condition_number),
        },
        "estimate": {"frame": estimate.frame, "values_are": "least squares", "parameters": _parameters(result)},
    }
    if result.is_usable:
        data["payload"] = _payload(result)
    data["error_budget"] = {
        "unit": "half width of the bounds each term causes, in the unit of the parameter",
        "order": list(PARAMETER_NAMES),
        "terms": {name: share.tolist() for name, share in estimate.error_budget.items()},
    }
    data["motions"] = [
        {
            "kind": motion.trajectory.kind,
            "hash": motion.trajectory.hash(),
            "start_s": float(motion.start),
            "duration_s": float(motion.trajectory.duration),
            "followed_s": None if motion.followed is None else float(motion.followed),
            "ending": motion.ending or "",
            "condition_number": float(motion.condition_number),
            "certificate_claims": motion.claims or "",
            "certificate_margins": {
                row.kind: {"left": row.value, "margin": float(row.margin), "place": row.place} for row in motion.margins
            },
        }
        for motion in result.motions
    ]
    data["timing_s"] = {name: float(value) for name, value in result.timing.items()}
    if result.statistical is not None:
        found = result.statistical
        data["statistical"] = {"meaning": STATISTICAL, "confidence": float(found.confidence), "absence": found.absence}
    if result.agreement is not None:
        data["agreement"] = {
            "meaning": "share: smallest common scale of all allowed errors at which the data are consistent; width: "
            "found width over that to expect, the least of mass and first moments; lag: of the torques behind the "
            "positions, by least squares",
            "share": float(result.agreement.share),
            "width": float(result.agreement.width),
            "lag_s": float(result.agreement.lag),
            "lag_standard_deviation_s": float(result.agreement.lag_error),
        }
    data["not_shown_by_data"] = [dict(spot) for spot in BLIND_SPOTS]
    data["warnings"] = list(notices(result))
    data["settings"] = _plain(result.settings)
    data["versions"] = dict(result.versions)
    return data


def _explanation(result: IdentificationResult) -> dict[str, object] | None:
    found = result.explanation
    if found is None:
        return None
    return {
        "meaning": found.text,
        "misfit": float(found.misfit),
        "windows": int(found.windows),
        "untried": [one.value for one in found.untried],
        "hypotheses": [
            {
                "assumption": one.assumption.value,
                "joint": one.joint or "",
                "smallest_change": float(one.amount),
                "best_change": None if one.best is None else float(one.best),
                "change_unit": one.unit,
                "relative_to_usual": float(one.change),
                "misfit_with_best": float(one.misfit),
                "sentence": one.text,
                "check": one.check,
            }
            for one in found.hypotheses
        ],
    }


def _parameters(result: IdentificationResult) -> list[dict[str, object]]:
    estimate, prior = result.estimate, result.prior
    columns = (estimate.values, estimate.lower, estimate.upper, prior.lower, prior.upper)
    rows = _rows(PARAMETER_NAMES, PARAMETER_UNITS, *columns)
    for i, row in enumerate(rows):
        if result.statistical is not None:
            row |= {"statistical_lower": float(result.statistical.lower[i])}
            row |= {"statistical_upper": float(result.statistical.upper[i])}
        if result.truth is not None:
            row |= {"truth": float(result.truth[i]), "is_inside": bool(result.holds_truth[i])}
    return rows


def _rows(names: Sequence[str], units: Sequence[str], *columns: NDArray[np.float64]) -> list[dict[str, object]]:
    keys = ("name", "unit", "value", "lower", "upper", "prior_lower", "prior_upper")
    return [
        dict(zip(keys, (name, unit, *map(float, row)), strict=True))
        for name, unit, *row in zip(names, units, *columns, strict=True)
    ]


def _payload(result: IdentificationResult) -> dict[str, object]:
    tool = summarize_payload(result, result.robot.tool_frame)
    known = find_well_known(tool)
    return {
        "meaning": "the estimate in other frames, as summary, report and files for controllers have it",
        "rule": RULE,
        "well_known": {quantity.name.lower(): quantity in known for quantity in Quantity},
        "at_last_joint": _summary(summarize_payload(result)),
        "at_tool": _summary(tool),
        "behind_flange": _summary(summarize_behind_flange(result)),
        "minus_nominal_last_body": payload_parameters(result).values.tolist() != result.estimate.values.tolist(),
    }


def _summary(summary: PayloadSummary) -> dict[str, object]:
    return {
        "frame": summary.frame,
        "mass_kg": _bounded(summary.mass),
        "com_m": _bounded(summary.com),
        "inertia_about_com_kg_m2": _bounded(summary.inertia_com),
        "principal_moments_kg_m2": _bounded(summary.principal_moments),
        "principal_axes": summary.principal_axes.tolist(),
        "parameters": _bounded(summary.parameters),
    }


def read_summary(data: Mapping[str, Any]) -> PayloadSummary:
    """Return a payload as ``estimate.yaml`` has it.

    Raises:
        KeyError, TypeError, ValueError: It has not the form of this file.
    """

    def bounded(name: str) -> Bounded:
        return Bounded(data[name]["value"], data[name]["lower"], data[name]["upper"])

    com, inertia_com = bounded("com_m"), bounded("inertia_about_com_kg_m2")
    moments, axes = bounded("principal_moments_kg_m2"), np.array(data["principal_axes"], dtype=float)
    return PayloadSummary(str(data["frame"]), bounded("parameters"), com, inertia_com, moments, axes)


def _bounded(bounded: Bounded) -> dict[str, object]:
    return {"value": bounded.values.tolist(), "lower": bounded.lower.tolist(), "upper": bounded.upper.tolist()}


def _plain(value: object) -> object:
    """Numbers, texts, lists and mappings only, so that any YAML reader takes the file."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    if isinstance(value, Sequence):
        return [_plain(entry) for entry in value]
    return str(value)


class _Dumper(yaml.SafeDumper):
    """Rows of numbers on one line, everything else in blocks; texts are quoted where YAML wants it."""


def _represent_list(dumper: yaml.SafeDumper, value: list[object]) -> yaml.Node:
    is_row = all(isinstance(entry, int | float) for entry in value)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=is_row)


def _represent_mapping(dumper: yaml.SafeDumper, value: dict[str, object]) -> yaml.Node:
    is_row = "unit" in value and "value" in value
    return dumper.represent_mapping("tag:yaml.org,2002:map", value.items(), flow_style=is_row)


_Dumper.add_representer(list, _represent_list)
_Dumper.add_representer(dict, _represent_mapping)


BODY_FORMAT = "sysid_ros bodies 1"

_BODY_HEADER = """\
# Inertial parameters of bodies: m [kg], mc = mass times centre of mass [kg m], I = inertia about the origin of the
# joint frame [kg m^2]; F_c, F_v, I_a, beta: friction of a joint. 'combinations' are what joint torques tell: sums of
# 'coefficients' times parameters, with bounds. 'guarantee' says what the bounds promise.
"""


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
    columns = (estimate.values, estimate.lower, estimate.upper, target.prior.lower, target.prior.upper)
    document = {
        "format": BODY_FORMAT,
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
        "parameters": _rows(target.names, target.units, *columns) if is_usable else [],
        "combinations": _combinations(estimate.combinations, target.names) if is_usable else [],
        "warnings": list(notices),
        "settings": dict(settings),
    }
    return _BODY_HEADER + yaml.safe_dump(document, sort_keys=False, width=120, allow_unicode=True)


def _combinations(found: CombinationEstimate | None, names: Sequence[str]) -> list[dict[str, object]]:
    if found is None:
        return []
    columns = (found.values, found.lower, found.upper, found.prior.lower, found.prior.upper)
    return [
        row
        | {
            "coefficients": {names[int(j)]: float(found.matrix[k, j]) for j in np.flatnonzero(found.matrix[k])},
            "error_shares": {name: float(share[k]) for name, share in found.error_budget.items() if share[k] > 0.0},
        }
        for k, row in enumerate(_rows(found.names, found.units, *columns))
    ]


@dataclass(frozen=True)
class ExportedPayload:
    """The body of a result that files for controllers have.

    Attributes:
        path: The file it was read from.
        robot: The arm it was identified on.
        created: When, as the file says.
        at_tool: The payload alone, at the tool frame.
        behind_flange: Payload and tool, which is nominal, at the flange.
    """

    path: Path
    robot: str
    created: str
    at_tool: PayloadSummary
    behind_flange: PayloadSummary


def read_exported(folder: Path | str, accept_uncertain: bool = False) -> ExportedPayload:
    """Read the payload of a result.

    Args:
        folder: A folder of results, or its ``estimate.yaml``.
        accept_uncertain: Take mass and CoM although they are not well known.

    Raises:
        SysidError: There is no usable payload, or its mass or CoM is no better known than before the data, or
            not well known.
        ModelError: The file is no YAML.
    """
    path = require_result(folder)
    data = read_yaml(path)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise unusable_result(path, f"no result of an identification (its first line should be 'format: {FORMAT}')")
    try:
        if not data["is_usable"]:
            raise unusable_result(path, f"not usable ({data['alarm'] or data['shortfall'] or data['status']})")
        narrower = data["narrower_than_prior"]
        unknown = [name for name in (Quantity.MASS, Quantity.COM) if not narrower[name.name.lower()]]
        payload = data["payload"]
        if "behind_flange" not in payload:
            raise unusable_result(path, f"of an older version; make it again with: sysid report {path.parent}")
        loads = read_summary(payload["at_tool"]), read_summary(payload["behind_flange"])
        found = ExportedPayload(path, str(data["robot"]), str(data["created"]), *loads)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise unusable_result(path, f"damaged ({type(error).__name__}: {error})") from error
    if unknown:
        raise unusable_result(path, f"the bounds of {join_names(unknown)} are no narrower than before the data")
    loose = {Quantity.MASS, Quantity.COM} - find_well_known(found.at_tool)
    if loose and not accept_uncertain:
        cure = "calibrate the arm, move it more, or say --accept-uncertain"
        raise unusable_result(path, f"{join_names(loose)} not well known ({RULE}); {cure}")
    return found
