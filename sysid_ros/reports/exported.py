"""Reads back what ``estimate.yaml`` says may be handed to a controller, and refuses what must not be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sysid_ros.core.common.yaml_files import read_yaml
from sysid_ros.core.estimation.parameters.estimate import Quantity
from sysid_ros.reports.estimate_yaml import FORMAT, read_summary
from sysid_ros.reports.folders import require_result, unusable_result
from sysid_ros.reports.payload import PayloadSummary
from sysid_ros.reports.payload_files import RULE, find_well_known


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
        names = " and ".join(name.value for name in unknown)
        raise unusable_result(path, f"the bounds of {names} are no narrower than before the data")
    loose = {Quantity.MASS, Quantity.COM} - find_well_known(found.at_tool)
    if loose and not accept_uncertain:
        names = " and ".join(name.value for name in Quantity if name in loose)
        raise unusable_result(
            path, f"{names} not well known ({RULE}); calibrate the arm, move it more, or say --accept-uncertain"
        )
    return found
