"""Writes everything about one identification into one folder."""

from __future__ import annotations

import platform
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.common.spatial import inverse_placement
from sysid_ros.core.estimation.parameters.estimate import Quantity
from sysid_ros.core.model.robot import RobotModel, frame_placement
from sysid_ros.reports.estimate_yaml import estimate_text
from sysid_ros.reports.folders import ESTIMATE
from sysid_ros.reports.payload import payload_parameters, summarize_behind_flange, summarize_payload
from sysid_ros.reports.payload_files import Load, add_payload, describe_load, join_names, payload_file
from sysid_ros.reports.result import IdentificationResult


def folder_below(root: Path | str, wanted: str) -> Path:
    """Return a folder for results, with all links followed; nothing is made.

    Args:
        root: Where results may be.
        wanted: The folder, from ``root`` on or absolute.

    Raises:
        ParameterOutOfRange: It is neither ``root`` nor below it.
        ParameterOutOfRange: Its name has a control character, which terminals and logs would obey.
    """
    base = Path(root).expanduser().absolute().resolve()
    if not wanted.isprintable():
        raise ParameterOutOfRange("results_directory", wanted, f"{base} or a folder below it, of printable characters")
    with suppress(OSError, RuntimeError, ValueError):  # a loop of links, an unknown user, a zero byte
        folder = (base / Path(wanted).expanduser()).resolve()
        if folder.is_relative_to(base):
            return folder
    allowed = f"a folder below {base}, the node's parameter 'results_root'"
    raise ParameterOutOfRange("results_directory", wanted, allowed)


_PACKAGES = {"sysid_ros": "sysid_ros", "numpy": "numpy", "scipy": "scipy", "pinocchio": "pin"}


def software_versions() -> dict[str, str]:
    """Versions by name; "source tree" for a package that is not installed but used from its folder."""
    found = {}
    for name, distribution in _PACKAGES.items():
        try:
            found[name] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            found[name] = "source tree"
    return {**found, "python": platform.python_version()}


URDF, REPORT = "robot_with_payload.urdf", "report.html"
KINOVA, KUKA, UR, MOVEIT = "payload_kinova.yaml", "payload_kuka.yaml", "payload_ur.script", "payload_moveit.yaml"
FRANKA, SDF, MJCF, XACRO = "payload_franka.json", "payload.sdf", "payload_mjcf.xml", "payload.xacro"
NEEDED = dict.fromkeys((URDF, KINOVA, KUKA, UR, MOVEIT, FRANKA, SDF, MJCF, XACRO), frozenset(Quantity))
NEEDED[KINOVA] = frozenset({Quantity.MASS, Quantity.COM})
"""Quantities a file hands to a controller: it is written only if the data know each better than the prior."""


@dataclass(frozen=True)
class WrittenFiles:
    """What was written.

    Attributes:
        directory: The folder.
        files: Names of the files, in the order they were written.
        left_out: Files that were not written, with the reason, a sentence each.
    """

    directory: Path
    files: tuple[str, ...]
    left_out: tuple[str, ...]


def write_results(result: IdentificationResult, directory: Path | str) -> WrittenFiles:
    """Write estimate, URDF, payload settings and report of one identification.

    Without a usable estimate only ``estimate.yaml`` and the report are written: both say so, and nothing that a robot
    could be fed with is left behind. The same holds for each file with a quantity that is no narrower than its prior.

    Raises:
        SysidError: A file cannot be written.
    """
    folder = Path(directory)
    known = result.estimate.narrower
    files: list[str] = []
    reasons: dict[str, list[str]] = {}  # why files were left out, and which
    for name, contents in _builders(result).items():
        missing = NEEDED.get(name, frozenset()) - known
        if missing:
            reason = f"the bounds of {join_names(missing)} are no narrower than before the data"
            reasons.setdefault(reason, []).append(name)
            continue
        try:
            text = contents()
        except SysidError as error:
            reasons.setdefault(str(error), []).append(name)
            continue
        try:
            (folder / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise SysidError(f"cannot write {folder / name}: {error.strerror or error}") from error
        files.append(name)
    left_out = [
        f"{', '.join(names)} {'was' if len(names) == 1 else 'were'} not written: {reason}"
        for reason, names in reasons.items()
    ]
    if not result.is_usable:
        left_out.append("the URDF and the payload settings were not written: no usable estimate")
    return WrittenFiles(folder, tuple(files), tuple(left_out))


def _builders(result: IdentificationResult) -> dict[str, Callable[[], str]]:
    from sysid_ros.reports.report import report_html  # templates take a while to load

    estimate: dict[str, Callable[[], str]] = {ESTIMATE: lambda: estimate_text(result)}
    report: dict[str, Callable[[], str]] = {REPORT: lambda: report_html(result)}
    if not result.is_usable:
        return estimate | report
    robot, note = result.robot, _note(result)

    @cache
    def values() -> dict[str, Load | NDArray[np.float64]]:  # where a file needs them: it may fail
        seen = {"tool": summarize_payload(result, robot.tool_frame), "whole": summarize_behind_flange(result)}
        seen["flange"] = summarize_payload(result, robot.flange_frame)
        loads = {name: Load.from_summary(one) for name, one in seen.items()}
        return {**loads, "tool_in_flange": _tool_in_flange(robot)}

    files: dict[str, Callable[[], str]] = {
        name: lambda name=name: payload_file(name, note, **values())  # type: ignore[misc]
        for name in NEEDED
    }
    return {**estimate, **files, URDF: lambda: updated_urdf(result), **report}


def updated_urdf(result: IdentificationResult) -> str:
    """Return the robot description with the payload as a link at the tool frame.

    Raises:
        NotPhysicallyConsistent: No body can have the estimated parameters.
        SysidError: The description does not take the payload.
    """
    robot = result.robot
    load = Load.from_summary(summarize_payload(result, robot.tool_frame))
    comment = "; ".join([_note(result), *describe_load(load)])
    return add_payload(robot.urdf, robot.tool_frame, load.parameters, comment=comment)


def _tool_in_flange(robot: RobotModel) -> NDArray[np.float64]:
    """Return the homogeneous transform (4, 4) of the tool frame in the flange frame [m]."""
    flange = inverse_placement(*frame_placement(robot, robot.flange_frame))
    tool = frame_placement(robot, robot.tool_frame)
    return np.block([[flange[0] @ tool[0], (flange[0] @ tool[1] + flange[1])[:, None]], [np.zeros((1, 3)), 1.0]])


def _note(result: IdentificationResult) -> str:
    mass = payload_parameters(result)
    created = result.created.strftime("%Y-%m-%d %H:%M:%S")
    bounds = f"between {mass.lower[0]:.3f} and {mass.upper[0]:.3f} kg ({result.estimate.method})"
    who = f"Payload of {result.robot.name}, identified {created}"
    return f"{who}: mass {bounds}. The estimate follows."
