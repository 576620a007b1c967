"""The files of an identified arm: its calibration, updated robot descriptions, and a page about the result."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.calibration import ArmIdentification, LoadedRecording, describe_arm, describe_doubts
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.calibrated import apply_calibration
from sysid_ros.core.model.calibration import ArmCalibration, save_calibration
from sysid_ros.core.model.inertia import is_physically_consistent
from sysid_ros.core.model.loader import calibrated_settings
from sysid_ros.core.model.robot import FRICTION_NAMES, FRICTION_UNITS, RobotModel
from sysid_ros.core.model.urdf import build_arm_model, find_named, parameters_of, read_urdf, remove_all, write_inertial
from sysid_ros.reports.torque_fit import STICTION_SPEED, differentiate, predict_torque

Array = NDArray[np.float64]

CALIBRATION, URDF, REPORT = "arm.yaml", "arm.urdf", "arm.html"

MEAN_TIME = 0.1
"""Torques are compared as means over so much time [s]."""


@dataclass(frozen=True)
class TorqueCheck:
    """Torque residuals of a motion that the calibration did not use; for people, no guarantee rests on them.

    They are of means over :data:`MEAN_TIME` in which the joint moves: in single samples the noise of the sensors
    hides what parameters change, and at rest friction may be anything up to its limit. Of a joint that never moves for
    so long they are of all means.

    Attributes:
        name: Name of the recording.
        seconds: Its length [s].
        before: RMS residual with the parameters the arm had before, (n,) [Nm].
        after: RMS residual with the identified ones, (n,) [Nm].
        torque: RMS of the measured torque less its mean over the motion, (n,) [Nm].
    """

    name: str
    seconds: float
    before: Array
    after: Array
    torque: Array


@dataclass(frozen=True)
class ArmResult:
    """An identified arm.

    Attributes:
        before: The arm as it was.
        after: The arm with its calibration.
        identification: The calibration and its base parameters.
        check: Torque residuals on a motion that was not used; None where there is none.
        warnings: What a reader should know, a sentence each.
        created: When.
    """

    before: RobotModel
    after: RobotModel
    identification: ArmIdentification
    check: TorqueCheck | None = None
    warnings: tuple[str, ...] = ()
    created: datetime = field(default_factory=datetime.now)


def make_result(
    robot: RobotModel,
    calibration: ArmCalibration,
    settings: EstimatorSettings | None = None,
    check: LoadedRecording | None = None,
    warnings: Sequence[str] = (),
) -> ArmResult:
    """Evaluate a calibration of an arm.

    Args:
        robot: The arm as it was before.
        calibration: Its calibration.
        settings: Settings it was made with.
        check: A motion that it did not use.
        warnings: What a reader should know, a sentence each.
    """
    after, identification = apply_calibration(calibration, robot), describe_arm(robot, calibration, settings)
    tested = None if check is None else check_torques(robot, after, identification.gains, check)
    doubts = describe_doubts(calibration.record)
    return ArmResult(robot, after, identification, tested, (*warnings, *doubts))


def check_torques(before: RobotModel, after: RobotModel, gains: Array, recording: LoadedRecording) -> TorqueCheck:
    """Compare measured torques with two models of the same arm.

    Args:
        before: The arm as it was.
        after: The arm with its calibration.
        gains: Gain of each joint with the latter, (n,): a true torque is ``1 + g`` times the measured one.
        recording: What was measured.
    """
    name, payload = recording.name, recording.load.prior.nominal
    if not sum(len(block) for block in recording.blocks):
        raise SysidError(f"{name}: there are no samples to check the parameters with")
    samples = SampleBlock.concatenate(recording.blocks)
    acceleration = differentiate(samples.stamps, samples.v)
    states = samples.q, samples.v, acceleration
    _, first, count = np.unique(samples.seconds // MEAN_TIME, return_index=True, return_counts=True)

    def means(values: Array) -> Array:
        return np.asarray(np.add.reduceat(values, first, axis=0) / count[:, None])

    moves = np.minimum.reduceat(np.abs(samples.v), first, axis=0) > STICTION_SPEED
    moves |= ~np.any(moves, axis=0)

    def rms(values: Array) -> Array:
        return np.asarray(np.sqrt(np.mean(means(values) ** 2, axis=0, where=moves)))

    old, new = (
        rms(predict_torque(arm, payload, *states) / (1.0 + gain) - samples.tau)
        for arm, gain in ((before, 0.0), (after, gains))
    )
    return TorqueCheck(name, float(samples.seconds[-1]), old, new, np.std(means(samples.tau), axis=0))


def robot_files(robot: RobotModel) -> tuple[str, str]:
    """Return the names of the files that describe the calibrated arm to all nodes: its settings, and their URDF."""
    return f"{robot.name}.yaml", f"{robot.name}.urdf"


def prepare_files(folder: Path, robot: RobotModel) -> None:
    """Refuse a folder that holds files of an earlier result."""
    for name in (CALIBRATION, URDF, REPORT, *robot_files(robot)):
        if (folder / name).exists():
            raise SysidError(f"the results folder {folder} holds the {name} of an earlier result; give another folder")


def write_arm_result(result: ArmResult, folder: Path, model: str) -> tuple[str, ...]:
    """Write calibration, descriptions and page into a folder.

    Args:
        result: The identified arm.
        folder: The folder; it is made if it is missing.
        model: Name or settings file of the arm. Its settings are written, too, with the calibration in them.

    Returns:
        What was left out, a sentence each.

    Raises:
        SysidError: A file cannot be written.
    """
    record, left_out = result.identification.calibration.record, []
    texts: dict[str, str] = {}
    try:
        comment = f"Arm {record.serial}, parameters identified {record.date} by sysid_ros"
        texts[URDF] = arm_urdf(result.before, result.after.theta_nominal, comment)
    except SysidError as error:
        left_out.append(f"{URDF} was not written: {error}")
    texts[REPORT] = arm_html(result)
    settings, description = robot_files(result.before)
    texts[description] = result.before.urdf
    texts[settings] = calibrated_settings(model, description, CALIBRATION)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_calibration(result.identification.calibration, folder / CALIBRATION)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SysidError(f"cannot write into {folder}: {error.strerror or error}") from error
    return tuple(left_out)


def arm_html(result: ArmResult) -> str:
    """Return the page as one text; it loads nothing from anywhere."""
    from sysid_ros.reports.pages import render  # templates take a while to load

    robot, identification, check = result.before, result.identification, result.check
    base, calibration = identification.base, identification.calibration
    before, after = base.prior.width, base.upper - base.lower
    share = np.divide(after, before, out=np.ones_like(after), where=before > 0.0)
    old = base.matrix @ robot.theta_nominal
    columns = (base.formulas, base.units, old, base.values, base.lower, base.upper, share)
    found = identification.constants
    bounds = (found.prior.lower, found.prior.upper, found.lower, found.upper)
    ratio = 1.0 if check is None else np.linalg.norm(check.after) / max(float(np.linalg.norm(check.before)), 1e-12)
    return render(
        "arm.html",
        result=result,
        record=calibration.record,
        robot=robot,
        identification=identification,
        narrowed=np.count_nonzero(base.is_narrower),
        ratio=ratio,
        rows=list(zip(*columns, strict=True)),
        friction=_friction(result),
        constants=list(zip(found.names, found.units, *bounds, strict=True)),
        check=check,
        residuals=[]
        if check is None
        else list(zip(robot.joint_names, check.torque, check.before, check.after, strict=True)),
        mean_time=MEAN_TIME,
        unknown=[base.formulas[k] for k in range(len(base)) if share[k] > 0.95],
        entries={
            "robot": calibration.robot,
            "date": calibration.record.date,
            "last day": calibration.record.expires or "none stated",
            "state of the gripper": calibration.record.gripper or "not stated",
            "recordings": "; ".join(calibration.record.recordings),
            "data (SHA-256)": calibration.record.data or "",
        },
    )


def _friction(result: ArmResult) -> list[tuple[Any, ...]]:
    """Per joint and parameter: its names and unit, its value before and now, and its bounds."""
    robot, after = result.before, result.after
    tables = [
        robot.friction(one) for one in (robot.theta_nominal, after.theta_nominal, *vars(after.theta_box).values())
    ]
    return [
        (joint, name, unit, *(table[j, k] for table in tables))
        for j, joint in enumerate(robot.joint_names)
        for k, (name, unit) in enumerate(zip(FRICTION_NAMES, FRICTION_UNITS, strict=True))
    ]


_READS_BACK = 1e-9
"""Largest difference of numbers that are read back, relative to the largest entry of their body."""


def arm_urdf(robot: RobotModel, theta: Array, comment: str = "identified parameters of the arm") -> str:
    """Return the description with these parameters; fixed links keep their own where a body is left for the moved one.

    A joint moves its link and everything fixed to that. The difference to the new parameters goes into the link itself;
    where no body has the rest, the link takes the whole, and everything fixed to it is left without inertia.
    Friction of a motor-side arm goes into ``<dynamics>``.

    Args:
        robot: The arm, with its description.
        theta: The parameters, (14 n,).
        comment: One line for the reader of the file.

    Raises:
        SysidError: A body has parameters that no body can have, or the text does not read back the same.
    """
    root = ET.fromstring(robot.urdf, parser=ET.XMLParser(target=ET.TreeBuilder(insert_comments=True)))
    root.insert(0, ET.Comment(f" {comment.replace('--', '- -')} "))
    description = read_urdf(robot.urdf)
    model, friction = build_arm_model(description, robot.joint_names), robot.friction(theta)
    for body, name in enumerate(robot.joint_names, start=1):
        whole, own = theta[robot.inertial_slice(body)], description.joint(name).child
        if not is_physically_consistent(whole):
            raise SysidError(
                "cannot write the arm's parameters into the URDF",
                f"no body can have the parameters of everything moved by {name}",
            )
        before = parameters_of(description.robot.link_map[own])
        rest = whole - (model.inertias[body].toDynamicParameters() - before)
        if not is_physically_consistent(rest):
            rest = whole
            fixed = [
                frame.name for frame in model.frames if frame.parentJoint == body and frame.type == pin.FrameType.BODY
            ]
            for link in fixed:
                remove_all(find_named(root, "link", link), "inertial")
        write_inertial(find_named(root, "link", own), rest)
        if robot.sensors.effort_meaning.has_friction:
            joint = find_named(root, "joint", name)
            dynamics = joint.find("dynamics")
            if dynamics is None:
                dynamics = ET.SubElement(joint, "dynamics")
            dynamics.set("damping", repr(float(friction[body - 1, 1])))
            dynamics.set("friction", repr(float(friction[body - 1, 0])))
    ET.indent(root)
    text = '<?xml version="1.0"?>\n' + ET.tostring(root, encoding="unicode") + "\n"
    _require_reads_back(robot, text, theta)
    return text


def _require_reads_back(robot: RobotModel, text: str, theta: Array) -> None:
    model = build_arm_model(read_urdf(text), robot.joint_names)
    for index, name in enumerate(robot.joint_names):
        seen, wanted = model.inertias[index + 1].toDynamicParameters(), theta[robot.inertial_slice(index + 1)]
        if np.abs(seen - wanted).max() > _READS_BACK * max(1.0, float(np.abs(wanted).max())):
            raise SysidError(
                "cannot write the arm's parameters into the URDF",
                f"what {name} moves reads back as {seen.tolist()} instead of {wanted.tolist()}",
            )
