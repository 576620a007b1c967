"""Says which inertial parameters of a robot can be known: ``sysid identifiability --urdf robot.urdf``."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from rich.console import RenderableType

from sysid_ros.cli.exit_status import ExitStatus
from sysid_ros.cli.terminal import hanging, make_table, show, working
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange, SysidError
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.identifiability.advice import Advice, advise
from sysid_ros.core.identifiability.data import (
    ArmInformation,
    DataAnalysis,
    analyze_data,
    felt_joint_parameters,
    prior_scale,
)
from sysid_ros.core.identifiability.mechanism import Comparison, MechanismOptions, compare_robot, compare_urdf
from sysid_ros.core.identifiability.report import describe_data, structural_text
from sysid_ros.core.identifiability.settings import AnalysisSettings
from sysid_ros.core.identifiability.structure import Structure
from sysid_ros.core.identifiability.wording import Symbol, symbol_table
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel, parameter_names
from sysid_ros.library.identify import identify_recording
from sysid_ros.reports.identifiability import (
    IdentifiabilityResult,
    dimensions,
    identifiability_html,
    identifiability_markdown,
    identifiability_yaml,
)
from sysid_ros.reports.recordings.files import read_recording
from sysid_ros.reports.recordings.options import ReadOptions
from sysid_ros.reports.recordings.readers import Recording


def run(options: argparse.Namespace) -> int:
    """Print the answer and write the files asked for; return the exit status."""
    try:
        with working("analysing"):
            result = _analyze(options)
        show(*_summary(result))
        for path, text in (
            (options.html, lambda: identifiability_html(result)),
            (options.markdown, lambda: identifiability_markdown(result)),
            (options.yaml, lambda: identifiability_yaml(result.comparison)),
        ):
            if path is not None:
                path.write_text(text(), encoding="utf-8")
                show(f"written: {path}")
    except OSError as error:
        raise SysidError(error.filename, error.strerror) from error
    return ExitStatus.OK


def _analyze(options: argparse.Namespace) -> IdentifiabilityResult:
    robot = load_robot(options.model) if options.model is not None else None
    if robot is None and options.data:
        raise ParameterOutOfRange("--data", str(options.data), "only with --model, which says how good its sensors are")
    settings, mechanism = _settings(options, robot), _mechanism(options)
    if robot is not None:
        comparison = compare_robot(robot, settings, mechanism)
    else:
        comparison = compare_urdf(_read(options.urdf), settings, mechanism)
    source = options.model or options.urdf.name
    if robot is None or options.data is None:
        return IdentifiabilityResult(comparison, source=source)
    # Data are compared with the geometry their regressors are made of.
    analysis, advice, reason = _analyze_recording(options, robot, comparison.raw)
    plain = Comparison(comparison.raw, comparison.raw, ())
    payload = f"payload, named after {robot.joint_names[-1]}, of " if options.unknown == "payload" else ""
    return IdentifiabilityResult(plain, analysis, advice, f"{payload}{source}, {options.data.name}", reason)


def _mechanism(options: argparse.Namespace) -> MechanismOptions:
    rotors = _read(options.rotors) if options.rotors else ""
    if options.rotors and not rotors.strip():
        raise ModelError(f"{options.rotors} is empty; it must hold a mapping `rotors:` from joint names to rotors")
    return MechanismOptions(
        gravity=None if options.gravity is None else tuple(options.gravity),
        is_floating=options.floating,
        locked=tuple(options.lock),
        massless=options.massless,
        rotors=rotors,
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeError as error:
        raise ModelError(f"{path} is not a text file: {error}") from error


def _settings(options: argparse.Namespace, robot: RobotModel | None) -> AnalysisSettings:
    joint_parameters, known = options.joint_parameters, tuple(options.known)
    if robot is not None and options.data is not None:
        if options.unknown == "payload":
            known, joint_parameters = robot.joint_names[:-1], joint_parameters or ()
        elif joint_parameters is None:
            joint_parameters = felt_joint_parameters(robot)
    return AnalysisSettings(
        measured=options.measured,
        motion="static" if options.static else "dynamic",
        joint_parameters=tuple(joint_parameters or ()),
        known=known,
        tolerance=options.tolerance,
    )


def _analyze_recording(
    options: argparse.Namespace, robot: RobotModel, structure: Structure
) -> tuple[DataAnalysis, Advice | None, str]:
    recording = read_recording(options.data, robot, ReadOptions(needs_torques=False))
    samples = recording.samples
    source = ArmInformation(robot, structure, options.window)
    information = source.of_recording(samples.seconds, samples.q, samples.v)
    box, reason = _guaranteed(options, robot, structure, recording)
    radius = robot.theta_box.radius.copy()
    if options.unknown == "payload":
        radius[robot.inertial_slice(robot.n)] = robot.payload_prior.box.radius
    analysis = analyze_data(structure, information, prior_scale(structure, parameter_names(robot), radius), box)
    speeds = np.abs(samples.v).max(axis=0, initial=0.0)
    return analysis, advise(robot, analysis, source, information, speeds), reason


def _guaranteed(
    options: argparse.Namespace, robot: RobotModel, structure: Structure, recording: Recording
) -> tuple[Box | None, str]:
    """Guaranteed bounds of a payload, from the estimator of the package; it bounds nothing else."""
    if options.unknown != "payload":
        return None, ""
    if len(structure.names) != 10:
        return None, "Guaranteed bounds are there only for a payload alone, with no joint parameters unknown."
    result = identify_recording(recording, robot, EstimatorSettings())
    if not result.is_usable or not result.is_rigorous:
        why = result.estimate.alarm_text or " ".join(result.caveats) or result.estimate.guarantee
        return None, f"No guaranteed bounds of the payload: {why}"
    return result.estimate.box, ""


def _summary(result: IdentifiabilityResult) -> list[RenderableType]:
    structure = result.structure
    rows = [(name, tuple(s.value for s in row)) for name, row in symbol_table(structure)] + dimensions(structure)
    heads = ["", *(str(k + 1) for k in range(len(structure.bodies)))]
    parts: list[RenderableType] = [structural_text(result.comparison), ""]
    parts.append(make_table(heads, [(name, *row) for name, row in rows]))
    columns = ", ".join(f"{k + 1} {body.name}" for k, body in enumerate(structure.bodies))
    parts += ["", hanging("columns: ", columns)]
    parts += [hanging(f"{symbol.value} ", symbol.meaning) for symbol in Symbol if symbol is not Symbol.NONE]
    if result.analysis is not None:
        parts += ["", describe_data(result.analysis, result.advice)]
        parts += [result.reason] if result.reason else []
    return parts
