"""A robot description with the identified parameters of the arm in place of those it had."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.model.inertia import is_physically_consistent
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.model.urdf import build_arm_model, find_named, parameters_of, read_urdf, remove_all, write_inertial

Array = NDArray[np.float64]

_READS_BACK = 1e-9
"""How far what is read back may be from what was written, relative to the largest entry of its body."""


def arm_urdf(robot: RobotModel, theta: Array, comment: str = "identified parameters of the arm") -> str:
    """Return the description with these parameters; what is fixed to a link keeps its own where a body is left for it.

    A joint moves its link and everything fixed to that. The difference to the new parameters goes into the link itself;
    where no body has what is left for it, the link takes the whole, and what is fixed to it is left without inertia.
    Friction of a motor-side arm goes into ``<dynamics>``.

    Args:
        robot: The arm, with its description.
        theta: The parameters, (14 n,).
        comment: One line for the reader of the file.

    Raises:
        SysidError: A body has parameters that no body can have, or what was written does not read back the same.
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
