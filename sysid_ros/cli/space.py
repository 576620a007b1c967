"""Identifies a free-flying robot: ``sysid space`` with simulation and nodes, ``sysid space --recording`` offline."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.options import launch_values
from sysid_ros.cli.suite import Suite, client_of, say_where, suite_environment
from sysid_ros.cli.terminal import ProgressDisplay, show, watching, working
from sysid_ros.processes import SPACE_ARGUMENTS, ParameterValue, Spelling, resolve_space
from sysid_ros.reports.folders import make_results_directory
from sysid_ros.space.core.identification import (
    FloatingProgress,
    FreeFlyerIdentification,
    ObjectIdentification,
    ObjectSettings,
    ProcedureSettings,
    Task,
    estimate_free_flyer,
    estimate_held,
    known_before,
    select_motion,
)
from sysid_ros.space.core.measurements import Assumptions, FloatingData
from sysid_ros.space.core.method import Method
from sysid_ros.space.core.robot import load_free_flyer
from sysid_ros.space.report import read_free_flyer_recording, read_known_robot, write_free_flyer, write_held_object
from sysid_ros.start_check import require_modules, require_parameters

CLIENT_MODULE = "sysid_ros.space.nodes.free_flyer_client"
"""Sends the goal and shows progress; its exit status is the runner's."""


def run(options: argparse.Namespace) -> int:
    """Identify with nodes or from a recording; return the exit status."""
    if options.parts:
        ProcedureSettings(parts=options.parts)
    if options.recording is not None:
        return _offline(options)
    robot = load_free_flyer(options.model)
    Assumptions(linear_momentum=options.momentum[0], angular_momentum=options.momentum[1])  # refuses impossible ones
    if options.known is not None:
        read_known_robot(options.known, robot)
    if options.object:
        robot.frame(options.object)
    require_modules(is_simulated=True, is_arm=False)
    started = resolve_space(launch_values(options, SPACE_ARGUMENTS), Spelling.OPTION)
    own: dict[str, dict[str, ParameterValue]] = {
        "free_flyer_driver": {"seed": options.seed},
        "free_flyer_identification": {
            "excitation_time_limit": options.planning_time,
            "linear_momentum": options.momentum[0],
            "angular_momentum": options.momentum[1],
            "object_frame": options.object or "",
            "known_robot": str(options.known or ""),
        },
    }
    require_parameters(started, own, Spelling.OPTION)
    results = make_results_directory(options.results)
    environment = suite_environment(results / "log", options.domain_id, vars(options))
    client = None
    if not options.nodes_only:
        values = {name: getattr(options, name) for name in ("seed", "max_motion_time", "parts")}
        values |= {"results": results} | ({} if options.object is None else {"object": True})
        client = client_of(CLIENT_MODULE, values, options.robot_name)
    say_where(environment, results / "log")
    own["free_flyer_identification"]["results_root"] = str(results)
    return Suite(started, client, results / "log", environment, own).run()


def summarize(identification: FreeFlyerIdentification) -> str:
    """Summarize the result for a robot in a few lines."""
    estimate, before, bounds = identification.estimate, identification.believed, identification.bounds
    scale = np.maximum(np.abs(estimate.values), 1e-12)
    change, deviation = np.abs(estimate.values - before) / scale, estimate.deviations / scale
    lines = [
        f"{identification.minimal.count} minimal parameters from {len(identification.data)} samples, "
        f"condition number {identification.condition_number:.0f}",
        f"median standard deviation {100 * np.median(deviation):.2g} %, largest {100 * deviation.max():.2g} %",
        f"median change from what was believed before {100 * np.median(change):.2g} %",
    ]
    if bounds is not None:
        mass, share = identification.minimal.names.index("base.m"), np.median(bounds.box.width / bounds.prior.width)
        lines.append(
            f"guaranteed bounds: {100 * share:.0f} % of the width of the prior (median), mass of the robot "
            f"{bounds.box.lower[mass]:.1f} to {bounds.box.upper[mass]:.1f} kg"
        )
    if identification.inconsistency is not None:
        lines.append(f"no guaranteed bounds: {identification.inconsistency}")
    return "\n".join(lines)


def summarize_object(held: ObjectIdentification) -> str:
    """Summarize the result for an object in a few lines."""
    if held.inconsistency is not None or held.estimate is None:
        return f"nothing is certain: {held.inconsistency}"
    box, com, frame = held.estimate.bounds.box, held.estimate.com_box, held.estimate.frame
    lines = [f"mass {held.estimate.mass:.3f} kg, certainly {box.lower[0]:.3f} to {box.upper[0]:.3f} kg"]
    for axis, value, lower, upper in zip("xyz", held.estimate.com, com.lower, com.upper, strict=True):
        certain = f"certainly {lower:.4f} to {upper:.4f} m" if np.isfinite(lower) else "perhaps it weighs nothing"
        lines.append(f"CoM {axis} in {frame}: {value:.4f} m, {certain}")
    return "\n".join(lines)


def _offline(options: argparse.Namespace) -> int:
    robot = load_free_flyer(options.model)
    linear, angular = options.momentum
    assumptions = Assumptions(linear_momentum=linear, angular_momentum=angular)
    task = Task(robot, ProcedureSettings(method=Method(options.method)), assumptions=assumptions)

    def read(path: Path) -> FloatingData:
        with watching(f"reading {path}") as watch:
            return select_motion(robot, read_free_flyer_recording(path, robot, watch))

    def tell(progress: FloatingProgress) -> None:
        display.update(progress.text, progress.progress or None)

    data = read(options.recording)
    if options.object is None:
        with ProgressDisplay() as display:
            identification = estimate_free_flyer(task, data, on_progress=tell)
        results = make_results_directory(options.results)
        with working("writing the files"):
            write_free_flyer(identification, results)
        show(summarize(identification))
        is_consistent = identification.inconsistency is None
    else:
        known = known_before(robot) if options.known is None else read_known_robot(options.known, robot)
        before = map(read, options.before)
        known = replace(
            known, recordings=tuple(assumptions.recording(robot, one, holds_object=False) for one in before)
        )
        with ProgressDisplay() as display:
            held = estimate_held(task, ObjectSettings(frame=options.object), known, data, on_progress=tell)
        results = make_results_directory(options.results)
        with working("writing the files"):
            write_held_object(held, results)
        show(summarize_object(held))
        is_consistent = held.inconsistency is None
    print(f"Files: {results}")
    return ExitStatus.OK if is_consistent else ExitStatus.NOT_IDENTIFIED
