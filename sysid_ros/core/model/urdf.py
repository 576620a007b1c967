"""Reads and checks a URDF; geometry is never opened, so missing meshes do not matter.

The text goes through four hands: numbers and structure are checked on the XML, rounded angles are snapped, limits and
dynamics are read with urdf_parser_py, and a skeleton (links with inertia, joints) is left for Pinocchio.
"""

from __future__ import annotations

import copy
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass, field

from urdf_parser_py.urdf import URDF, Joint
from urdf_parser_py.xml_reflection.core import ParseError

from sysid_ros.core.errors import JointNotFound
from sysid_ros.core.model.urdf_angles import snap_origins
from sysid_ros.core.model.urdf_checks import (
    MOVABLE,
    InvalidUrdf,
    check_inertias,
    check_numbers,
    check_tree,
    require_name,
)

_KEPT_IN_JOINT = ("origin", "parent", "child", "axis", "limit", "dynamics", "mimic")


@dataclass(frozen=True)
class UrdfDescription:
    """A checked URDF.

    Attributes:
        text: The URDF text, with rounded angles snapped.
        robot: What urdf_parser_py read from its skeleton (links with inertia, joints).
        skeleton: XML tree of that skeleton.
        root: Name of the link nothing moves.
        warnings: What was mended.
    """

    text: str
    robot: URDF
    root: str
    warnings: tuple[str, ...]
    skeleton: ET.Element = field(repr=False)

    def joint(self, name: str) -> Joint:
        """The joint of that name.

        Raises:
            JointNotFound: There is none; lists the movable joints.
        """
        joint = self.robot.joint_map.get(name)
        if joint is None or joint.type not in MOVABLE:
            raise JointNotFound(name, [j.name for j in self.robot.joints if j.type in MOVABLE])
        return joint

    def path_to(self, link: str) -> list[str]:
        """Names of the movable joints between the root and the link, from the root on.

        Raises:
            InvalidUrdf: There is no such link.
        """
        if link not in self.robot.link_map:
            raise InvalidUrdf(f"link '{link}'", f"does not exist; links are {', '.join(self.robot.link_map)}")
        names = self.robot.get_chain(self.root, link, joints=True, links=False, fixed=True)
        return [name for name in names if self.robot.joint_map[name].type in MOVABLE]


def read_urdf(text: str, snap_angles: bool = True) -> UrdfDescription:
    """Reads, checks and mends a URDF.

    Args:
        text: The URDF, with all xacro macros expanded.
        snap_angles: Replace angles that are roundings of a multiple of 15 degrees (1.5708, 3.1416) by the exact ones.
            A rounded angle tilts a joint axis and makes parameters look identifiable that are not.

    Returns:
        The description; its warnings tell what was snapped.

    Raises:
        InvalidUrdf: Not a URDF, a number that is none or not finite, a zero axis, a loop, several roots.
        NotPhysicallyConsistent: The inertia of a link cannot belong to a body.
    """
    tree = _parse(text)
    check_numbers(tree)
    warnings = snap_origins(tree) if snap_angles else []
    skeleton = _skeleton(tree)
    root = check_tree(skeleton)
    try:
        robot = URDF.from_xml_string(ET.tostring(skeleton, encoding="unicode"))
    except (ParseError, ValueError, AssertionError) as error:
        raise InvalidUrdf("document", str(error)) from error
    check_inertias(robot)
    mended = ET.tostring(tree, encoding="unicode") if warnings else text
    return UrdfDescription(mended, robot, root, tuple(warnings), skeleton)


def build_arm_xml(description: UrdfDescription, joint_names: Sequence[str]) -> str:
    """The URDF as Pinocchio gets it: the arm's joints revolute, every other joint fixed at zero, nothing to draw.

    Limits in it are placeholders; the caller knows the true ones.
    """
    tree = copy.deepcopy(description.skeleton)
    for joint in tree.findall("joint"):
        for tag in ("limit", "dynamics", "mimic"):
            for child in joint.findall(tag):
                joint.remove(child)
        is_moving = joint.get("name") in joint_names
        joint.set("type", "revolute" if is_moving else "fixed")
        if is_moving:
            ET.SubElement(joint, "limit", lower="-1e3", upper="1e3", velocity="1e3", effort="1e6")
    return ET.tostring(tree, encoding="unicode")


def _parse(text: str) -> ET.Element:
    try:
        tree = ET.fromstring(text)
    except ET.ParseError as error:
        raise InvalidUrdf("document", f"is not XML ({error})") from error
    if tree.tag != "robot":
        raise InvalidUrdf("document", f"starts with <{tree.tag}>, a URDF starts with <robot>")
    for element in tree.iter():
        has_macro = "xacro" in element.tag or any("${" in value for value in element.attrib.values())
        if has_macro:
            raise InvalidUrdf("document", "contains xacro macros; expand it first (xacro robot.xacro > robot.urdf)")
    return tree


def _skeleton(tree: ET.Element) -> ET.Element:
    """Links with inertia and joints; a link whose mass and inertia are all zero counts as a frame."""
    result = ET.Element("robot", name=tree.get("name", "robot"))
    for link in tree.findall("link"):
        require_name(link)
        kept = ET.SubElement(result, "link", name=link.get("name", ""))
        inertial = link.find("inertial")
        if inertial is not None and not _is_zero(inertial):
            kept.append(copy.deepcopy(inertial))
    for joint in tree.findall("joint"):
        require_name(joint)
        kept = ET.SubElement(result, "joint", name=joint.get("name", ""), type=joint.get("type", ""))
        kept.extend(copy.deepcopy(child) for child in joint if child.tag in _KEPT_IN_JOINT)
    return result


def _is_zero(inertial: ET.Element) -> bool:
    numbers = [
        float(value)
        for tag in ("mass", "inertia")
        for element in inertial.findall(tag)
        for value in element.attrib.values()
    ]
    return all(number == 0.0 for number in numbers)
