"""What is wrong with a URDF: numbers, names, structure and inertias, each told by the element at fault."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import numpy as np
from urdf_parser_py.urdf import URDF

from sysid_ros.core.errors import ModelError
from sysid_ros.core.model.inertia import from_com_form, pseudo_inertia, require_physically_consistent
from sysid_ros.core.model.rotation import rotation_from_rpy

ROTARY = ("revolute", "continuous")
MOVABLE = (*ROTARY, "prismatic", "planar", "floating")


class InvalidUrdf(ModelError):
    """A URDF that cannot be used.

    Args:
        element: The element at fault, such as ``joint 'joint_3'``.
        problem: What is wrong and what to do.
    """

    def __init__(self, element: str, problem: str):
        self.element = element
        self.problem = problem
        super().__init__(f"URDF, {element}: {problem}")


class MissingLimit(ModelError):
    """An arm joint without a limit that has to be known.

    Args:
        joint: Name of the joint.
        missing: Which limit, with its unit.
    """

    def __init__(self, joint: str, missing: str):
        self.joint = joint
        self.missing = missing
        super().__init__(f"joint '{joint}' has no {missing} limit; add it to the joint's <limit> in the URDF")


def label(element: ET.Element) -> str:
    """How messages name an element: its tag and its name."""
    return f"{element.tag} '{element.get('name')}'"


def check_numbers(tree: ET.Element) -> None:
    """Refuses what should be a number and is none, or is not finite; what is only shown is of no interest.

    Raises:
        InvalidUrdf: Such a number, with its element and attribute.
    """
    numeric = {"xyz", "rpy", "value", "lower", "upper", "velocity", "effort", "damping", "friction"}
    numeric |= {"ixx", "ixy", "ixz", "iyy", "iyz", "izz"}
    for parent in tree:
        if parent.tag not in ("link", "joint"):
            continue
        top = parent.findall("inertial") if parent.tag == "link" else [parent]
        for element in (item for part in top for item in part.iter()):
            for key in numeric & element.attrib.keys():
                words = element.attrib[key].split()
                try:
                    is_good = bool(words) and all(math.isfinite(float(word)) for word in words)
                except ValueError:
                    is_good = False
                if not is_good or (key in ("xyz", "rpy") and len(words) != 3):
                    wanted = "three finite numbers" if key in ("xyz", "rpy") else "a finite number"
                    problem = f'{key}="{element.attrib[key]}" in <{element.tag}> must be {wanted}'
                    raise InvalidUrdf(label(parent), problem)


def require_name(element: ET.Element) -> None:
    """Refuses a link or joint without a name."""
    if not element.get("name"):
        raise InvalidUrdf(f"a <{element.tag}>", "has no name")


def check_tree(skeleton: ET.Element) -> str:
    """Checks that links and joints have names of their own and form one tree; returns its root.

    Raises:
        InvalidUrdf: A name used twice, a joint of unknown type, to no link or without an axis, a loop, several roots.
    """
    links = [link.get("name", "") for link in skeleton.findall("link")]
    joints = skeleton.findall("joint")
    for names in (links, [joint.get("name", "") for joint in joints]):
        for name in names:
            if names.count(name) > 1:
                raise InvalidUrdf(f"'{name}'", "is defined twice")
    parent_of: dict[str, str] = {}
    for joint in joints:
        parent, child = _check_joint(joint, links)
        if child in parent_of:
            problem = f"closes a loop: link '{child}' already has the parent link '{parent_of[child]}'"
            raise InvalidUrdf(label(joint), problem)
        parent_of[child] = parent
    return _find_root(links, parent_of)


def _check_joint(joint: ET.Element, links: list[str]) -> tuple[str, str]:
    """Checks type, ends and axis of a joint; returns its parent and child link."""
    if joint.get("type") not in (*MOVABLE, "fixed"):
        problem = f"has the unknown type '{joint.get('type')}'; types are {', '.join((*MOVABLE, 'fixed'))}"
        raise InvalidUrdf(label(joint), problem)
    ends = []
    for tag in ("parent", "child"):
        element = joint.find(tag)
        ends.append("" if element is None else element.get("link", ""))
        if ends[-1] not in links:
            raise InvalidUrdf(label(joint), f"has the {tag} link '{ends[-1]}', which does not exist")
    axis = joint.find("axis")
    if joint.get("type") != "fixed" and axis is not None:
        direction = np.array([float(word) for word in axis.get("xyz", "1 0 0").split()])
        if np.linalg.norm(direction) < 1e-6:
            raise InvalidUrdf(label(joint), "has a zero axis")
    return ends[0], ends[1]


def _find_root(links: list[str], parent_of: dict[str, str]) -> str:
    roots = [name for name in links if name not in parent_of]
    if not roots:
        raise InvalidUrdf("links", "form a loop: none is without a parent joint")
    if len(roots) > 1:
        raise InvalidUrdf("links", f"have several roots ({', '.join(roots)}); all but one need a parent joint")
    for name in links:
        walked, link = {name}, name
        while link in parent_of:
            link = parent_of[link]
            if link in walked:
                raise InvalidUrdf(f"link '{name}'", "is part of a loop of joints")
            walked.add(link)
    return roots[0]


def check_inertias(robot: URDF) -> None:
    """Refuses links with an inertia no body can have; a rod or a point is allowed.

    Raises:
        InvalidUrdf: An <inertial> lacks mass or inertia.
        NotPhysicallyConsistent: Mass not positive, or principal moments against the triangle inequality.
    """
    for link in robot.links:
        inertial = link.inertial
        if inertial is None:
            continue
        if inertial.mass is None or inertial.inertia is None:
            raise InvalidUrdf(f"link '{link.name}'", "has an <inertial> without <mass> or <inertia>")
        xyz, rpy = np.zeros(3), np.zeros(3)
        if inertial.origin is not None:
            xyz, rpy = np.array(inertial.origin.xyz or xyz), np.array(inertial.origin.rpy or rpy)
        rotation = rotation_from_rpy(rpy)
        inertia = rotation @ np.array(inertial.inertia.to_matrix()) @ rotation.T
        theta = from_com_form(inertial.mass, xyz, inertia)
        # Bodies as thin as a rod or a point are limits of real ones; rounding may push them out by a little.
        about_com = pseudo_inertia(from_com_form(inertial.mass, np.zeros(3), inertia))
        if inertial.mass <= 0.0 or np.linalg.eigvalsh(about_com[:3, :3])[0] < -1e-9 * np.trace(about_com[:3, :3]):
            require_physically_consistent(theta, link.name)
