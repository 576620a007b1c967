"""Writes the settings file of any arm: ``sysid new-robot ARM.urdf``, with errors of its sensors from a bag."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import RenderableType

from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.options import recording_options
from sysid_ros.cli.terminal import hanging, round_up, show, working
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ModelError, NotPhysicallyConsistent, ParameterOutOfRange, SysidError
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.sensor_statistics import measure_sensors
from sysid_ros.core.model.complete_urdf import lock_joints, propose_masses, repair_inertias, solids_of_links
from sysid_ros.core.model.defaults import HOME_ASSUMED, default_settings, find_arm, last_fixed_link
from sysid_ros.core.model.loader import load_robot, load_robot_from_urdf, read_urdf_file
from sysid_ros.core.model.mesh_spheres import MeshSpheres, cover_meshes
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.model.robot_files import available_robots, read_settings
from sysid_ros.core.model.settings_text import SettingsNotes, settings_text
from sysid_ros.core.model.spheres import cover_links
from sysid_ros.core.model.urdf import UrdfDescription, build_arm_model, read_urdf
from sysid_ros.reports.recordings.files import read_recording
from sysid_ros.reports.recordings.options import ReadOptions
from sysid_ros.reports.recordings.readers import Recording
from sysid_ros.reports.recordings.sense import EffortComparison

_SPARE = 2.0
"""Errors of sensors that a standstill shows are taken this many times, for a motion may show more."""


def describe_sensors(robot: RobotModel, recording: Recording, stated: float | None) -> tuple[dict[str, Any], list[str]]:
    """Return settings of sensors that a recording shows, and notes on the others, a sentence each.

    Args:
        robot: The arm with its default settings.
        recording: The recording, with efforts as they were recorded.
        stated: Sign of the efforts, where it was stated.
    """
    samples, source = recording.samples, recording.source
    found: dict[str, Any] = {}
    sign = stated if stated is not None else EffortComparison(robot, samples).shown_sign()
    if sign:
        found["effort_sign"] = int(sign)
        notes = [f"{source}: efforts are {'in' if sign > 0 else 'against'} joint direction"]
    else:
        notes = [f"{source}: gravity does not show the sign of the efforts"]
    try:
        shown = measure_sensors(robot, recording.batches, EstimatorSettings())
    except SysidError as error:
        return found, [*notes, f"{source}: {error}; errors of sensors are defaults"]
    absolute = np.maximum(_SPARE * shown.torque[0], 1e-3)
    step = np.where(np.isfinite(shown.position_step), shown.position_step, robot.sensors.position_resolution)
    found |= {
        "effort_absolute_error": [round_up(v, 3) for v in absolute],
        "velocity_error": [round_up(max(_SPARE * v, 1e-4), 3) for v in shown.velocity[0]],
        "position_resolution": [round_up(v, 3) for v in step],
        "stamp_jitter": round_up(max(_SPARE * shown.jitter, 1e-6), 3),
    }
    rest = f"{shown.seconds:.3g} s at rest, every {1e3 * shown.period:.3g} ms"
    return found, [*notes, f"{source}: errors are {_SPARE:g} times the largest of {rest}; a motion may show more"]


def complete(
    description: UrdfDescription, options: argparse.Namespace, meshes: MeshSpheres
) -> tuple[UrdfDescription, dict[str, Any]]:
    """Lock joints, repair inertias and propose masses, as far as the command line asks for it.

    Returns:
        The URDF, and settings from it, with ranges that hold for the stated and the changed bodies.

    Raises:
        SysidError: It asks for something that is not possible, or the URDF cannot be used.
    """
    joints = None if options.joints is None else [name.strip() for name in options.joints.split(",") if name.strip()]
    if joints == []:
        raise ParameterOutOfRange("--joints", options.joints, "names of joints, with commas")
    assumptions, ranges = list[str](), dict[str, Box]()
    if options.lock:
        description = read_urdf(lock_joints(description, _positions(options.lock)))
        assumptions += [f"joints that rest in every recording, at [m or rad]: {', '.join(options.lock)}"]
    names = joints or find_arm(description, options.tool)
    stated = build_arm_model(description, names)
    if options.repair:
        text, changes = repair_inertias(description)
        description, assumptions = read_urdf(text) if changes else description, assumptions + changes
    repaired = build_arm_model(description, names)
    if options.total_mass is not None:
        tool = options.tool or last_fixed_link(description, description.joint(names[-1]).child)
        solids = solids_of_links(description.text, meshes.boxes)
        proposal = propose_masses(description, names, tool, options.total_mass, solids)
        description, ranges = read_urdf(proposal.text), proposal.ranges
        assumptions = [*assumptions, proposal.assumption]
    settings = default_settings(description, names, options.tool, {**meshes.spheres, **cover_links(description.text)})
    settings["assumptions"] += assumptions
    absolute = settings["inertial_uncertainty"]["absolute"]
    for body, name in enumerate(names, start=1):
        before, after = (model.inertias[body].toDynamicParameters() for model in (stated, repaired))
        change = np.abs(after - before)
        if name in ranges:
            del absolute[name]
            lower, upper = change - ranges[name].lower, ranges[name].upper + change
            entry = {"lower": [-round_up(v, 3) for v in lower], "upper": [round_up(v, 3) for v in upper]}
            settings["inertial_uncertainty"].setdefault("range", {})[name] = entry
        elif change.any():
            absolute[name] = [round_up(v, 3) for v in absolute[name] + change]
    return description, settings


def _positions(words: list[str]) -> dict[str, float]:
    """Read ``JOINT=POSITION`` of the command line."""
    try:
        return {name: float(position) for name, _, position in (word.partition("=") for word in words)}
    except ValueError:
        raise ParameterOutOfRange("--lock", " ".join(words), "JOINT=POSITION, in m or rad") from None


def make_settings(
    description: UrdfDescription, options: argparse.Namespace
) -> tuple[UrdfDescription, dict[str, Any], dict[str, list[str]]]:
    """Return the URDF, completed as far as asked, the settings of its arm, and comments on them by section.

    Args:
        description: The URDF.
        options: Of the command line.

    Raises:
        SysidError: The URDF or the recording cannot be used.
    """
    meshes, comments = cover_meshes(description.text, options.urdf), dict[str, list[str]]()
    description, settings = complete(description, options, meshes)
    if options.total_mass is not None:
        wide = "bounds of payloads will be wide until `sysid calibrate arm` narrows the assumed masses"
        comments["inertial_uncertainty"] = [wide]
    bare = {link: why for link, why in meshes.problems.items() if link not in settings["spheres"]}
    if bare:
        (first, why), *_ = bare.items()
        comments["spheres"] = [f"{', '.join(bare)} have none; of {first}, for instance, {why}"]
    robot = load_robot_from_urdf(description.text, joint_names=list(settings["joints"]), settings=settings)
    if options.from_bag is None:
        return description, settings, comments
    stated = recording_options(options)
    # Efforts as they were recorded.
    raw = ReadOptions(stated.topics, stated.joint_names, stated.units, 1.0, stated.effort_scale)
    recording = read_recording(options.from_bag, robot, raw)
    found, comments["sensors"] = describe_sensors(robot, recording, stated.effort_sign)
    settings["sensors"] |= found
    start = np.clip(recording.samples.q[0], robot.limits.q_lower, robot.limits.q_upper)
    for name, angle in zip(robot.joint_names, start, strict=True):
        settings["joints"][name]["home"] = float(f"{angle:.6g}")
    settings["assumptions"].remove(HOME_ASSUMED)
    comments["joints"] = [f"home: where {recording.source} begins"]
    comments["sensors"] += [*recording.notices, *recording.caveats]
    return description, settings, comments


def shipped_twins(description: UrdfDescription) -> str:
    """Return which arms with joints of these names are shipped, in a sentence; nothing if none is."""
    own = {joint.name for joint in description.robot.joints}
    arms = {name: set(read_settings(name)[1]["joints"]) for name in available_robots()}
    twins = [name for name, of in arms.items() if of <= own and not any(of < more <= own for more in arms.values())]
    if not twins:
        return ""
    words = " or ".join(f"--model {name}" for name in twins)
    return f"{', '.join(twins)} {'is' if len(twins) == 1 else 'are'} shipped: {words} (its joints have these names)"


def run(options: argparse.Namespace) -> int:
    """Write the file and load it; return the exit status.

    Raises:
        SysidError: The URDF or the bag cannot be used, or the file is there already.
    """
    given = read_urdf(read_urdf_file(options.urdf))
    name = options.name or options.urdf.stem
    output = options.output or Path(f"{name}.yaml")
    shipped = shipped_twins(given)
    try:
        with working("making the settings"):
            description, settings, comments = make_settings(given, options)
    except ModelError as error:
        hints = [shipped] if shipped else []
        if not options.repair and any(isinstance(problem, NotPhysicallyConsistent) for problem in given.problems):
            hints.append("--repair takes the nearest possible body in place of each that cannot exist")
        raise ModelError("\n".join([f"{error}", *hints])) from error
    comments["joints"] = [*comments.get("joints", []), *([shipped] if shipped else [])]
    urdf, texts = options.urdf, {output: ""}
    if description is not given:
        urdf = output.with_name(f"{output.stem}_completed.urdf")
        texts[urdf] = f"<!-- {options.urdf.name}, completed by `sysid new-robot` -->\n{description.text}\n"
        comments["urdf"] = [text for text in given.warnings if text not in description.warnings]
    place = Path(os.path.relpath(urdf.resolve(), output.resolve().parent)).as_posix()
    texts[output] = settings_text(settings, SettingsNotes(name, place, options.urdf.name, comments))
    written = []
    try:
        for path, text in texts.items():
            with path.open("x", encoding="utf-8") as file:
                written.append(path)
                file.write(text)
        robot = load_robot(output)
    except (OSError, SysidError) as error:
        for path in written:
            path.unlink()
        if isinstance(error, OSError):
            raise SysidError(f"cannot write {error.filename}: {error.strerror or error}") from error
        raise
    show(*_summary(robot, comments))
    show(f"Settings: {', '.join(map(str, texts))}")
    show(f"Next: read it, then for instance  sysid offline BAG --model {output}")
    return ExitStatus.OK


def _summary(robot: RobotModel, comments: dict[str, list[str]]) -> list[RenderableType]:
    moving = sum(robot.pin_model.inertias[body].mass for body in range(1, robot.n + 1))
    return [
        f"{robot.name}: {robot.n} joints ({', '.join(robot.joint_names)}), tool frame {robot.tool_frame}, "
        f"moving mass {moving:.3g} kg",
        f"{len(robot.spheres)} collision spheres on {len({sphere.link for sphere in robot.spheres})} links",
        *(hanging("note: ", text) for texts in comments.values() for text in texts),
        *(hanging("note: ", text) for text in robot.warnings),
        "Assumed, because the URDF does not say it:",
        *(hanging("  - ", text) for text in robot.assumptions),
    ]
