"""A robot description with the identified parameters of the arm in place of those it had."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.common.spatial import rotation_from_rpy
from sysid_ros.core.model.inertia import from_com_form, is_physically_consistent, to_com_form, transform_parameters
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.model.urdf import build_arm_model, read_urdf

Array = NDArray[np.float64]

_READS_BACK = 1e-9
"""How far what is read back may be from what was written, relative to the largest entry of its body."""


class ArmUrdfError(SysidError):
    """Identified parameters that cannot be written into a robot description.

    Args:
        reason: Why, in a sentence.
    """

    def __init__(self, reason: str):
        super().__init__(f"cannot write the arm's parameters into the URDF: {reason}")


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
        ArmUrdfError: A body has parameters that no body can have, or what was written does not read back the same.
    """
    parser = ET.XMLParser(target=ET.TreeBuilder(insert_comments=True))
    root = ET.fromstring(robot.urdf, parser=parser)
    root.insert(0, ET.Comment(f" {comment.replace('--', '- -')} "))
    links = {link.get("name"): link for link in root.findall("link")}
    joints = root.findall("joint")
    friction = robot.friction(theta)
    for index, name in enumerate(robot.joint_names):
        joint = next(one for one in joints if one.get("name") == name)
        own = links[_end(joint, "child")]
        attached = _attached(joints, links, _end(joint, "child"), robot.joint_names)
        whole = theta[robot.inertial_slice(index + 1)]
        if not is_physically_consistent(whole):
            raise ArmUrdfError(f"no body can have the parameters of everything moved by {name}")
        others = sum((_parameters(link, placement) for link, placement in attached), np.zeros(10))
        rest = whole - others
        if not is_physically_consistent(rest):
            rest = whole
            for link, _ in attached:
                for element in link.findall("inertial"):
                    link.remove(element)
        _set_inertial(own, rest)
        if robot.sensors.effort_meaning.has_friction:
            dynamics = joint.find("dynamics")
            if dynamics is None:
                dynamics = ET.SubElement(joint, "dynamics")
            dynamics.set("damping", repr(float(friction[index, 1])))
            dynamics.set("friction", repr(float(friction[index, 0])))
    ET.indent(root)
    text = '<?xml version="1.0"?>\n' + ET.tostring(root, encoding="unicode") + "\n"
    _require_reads_back(robot, text, theta)
    return text


def _end(joint: ET.Element, tag: str) -> str:
    element = joint.find(tag)
    return "" if element is None else element.get("link", "")


def _attached(
    joints: list[ET.Element], links: dict[str | None, ET.Element], root: str, moving: tuple[str, ...]
) -> list[tuple[ET.Element, tuple[Array, Array]]]:
    """List the links fixed to a link, with their placement in its frame; joints of a hand count at zero."""
    found = []
    open_links = [(root, np.eye(3), np.zeros(3))]
    while open_links:
        parent, rotation, translation = open_links.pop()
        for joint in joints:
            if _end(joint, "parent") != parent or joint.get("name") in moving:
                continue
            origin = joint.find("origin")
            xyz, rpy = (_vector(origin, key) for key in ("xyz", "rpy"))
            child = _end(joint, "child")
            place = rotation @ rotation_from_rpy(rpy), translation + rotation @ xyz
            found.append((links[child], place))
            open_links.append((child, *place))
    return found


def _vector(element: ET.Element | None, key: str) -> Array:
    text = "" if element is None else element.get(key, "")
    return np.array([float(word) for word in text.split()]) if text else np.zeros(3)


def _parameters(link: ET.Element, placement: tuple[Array, Array]) -> Array:
    """Return the ten parameters of a link in the frame it is placed in, (10,)."""
    inertial = link.find("inertial")
    mass = None if inertial is None else inertial.find("mass")
    tensor = None if inertial is None else inertial.find("inertia")
    if inertial is None or mass is None or tensor is None:
        return np.zeros(10)
    i = {key: float(tensor.get(key, "0")) for key in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")}
    matrix = np.array([[i["ixx"], i["ixy"], i["ixz"]], [i["ixy"], i["iyy"], i["iyz"]], [i["ixz"], i["iyz"], i["izz"]]])
    origin = inertial.find("origin")
    turn = rotation_from_rpy(_vector(origin, "rpy"))
    own = from_com_form(float(mass.get("value", "0")), _vector(origin, "xyz"), turn @ matrix @ turn.T)
    return transform_parameters(own, *placement)


def _set_inertial(link: ET.Element, theta: Array) -> None:
    for element in link.findall("inertial"):
        link.remove(element)
    mass, com, tensor = to_com_form(theta)
    inertial = ET.Element("inertial")
    ET.SubElement(inertial, "origin", xyz=" ".join(repr(float(value)) for value in com), rpy="0 0 0")
    ET.SubElement(inertial, "mass", value=repr(float(mass)))
    axes = "xyz"
    entries = {f"i{axes[i]}{axes[j]}": repr(float(tensor[i, j])) for i in range(3) for j in range(i, 3)}
    ET.SubElement(inertial, "inertia", entries)
    link.insert(0, inertial)


def _require_reads_back(robot: RobotModel, text: str, theta: Array) -> None:
    model = build_arm_model(read_urdf(text), robot.joint_names)
    for index, name in enumerate(robot.joint_names):
        seen, wanted = model.inertias[index + 1].toDynamicParameters(), theta[robot.inertial_slice(index + 1)]
        if np.abs(seen - wanted).max() > _READS_BACK * max(1.0, float(np.abs(wanted).max())):
            raise ArmUrdfError(f"what {name} moves reads back as {seen.tolist()} instead of {wanted.tolist()}")
