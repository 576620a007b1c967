"""Reads and checks a URDF; geometry is never opened, so missing meshes do not matter.

Numbers and structure are checked on the XML, rounded angles are snapped, limits and dynamics are read with
urdf_parser_py, and a skeleton (links with inertia, joints) is left for Pinocchio.
"""

from __future__ import annotations

import copy
import math
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray
from urdf_parser_py.urdf import URDF, Joint, Link
from urdf_parser_py.xml_reflection import core as reflection
from urdf_parser_py.xml_reflection.core import ParseError

from sysid_ros.core.common.errors import ModelError, NotPhysicallyConsistent, ParameterOutOfRange, raise_together
from sysid_ros.core.common.spatial import rotation_from_rpy
from sysid_ros.core.model.inertia import from_com_form, pseudo_inertia, to_com_form, transform_parameters

Array = NDArray[np.float64]

ROTARY = ("revolute", "continuous")
MOVABLE = (*ROTARY, "prismatic", "planar", "floating")


def label(element: ET.Element) -> str:
    """Describe an element for messages: its tag and its name."""
    return f"{element.tag} '{element.get('name')}'"


def check_numbers(tree: ET.Element) -> None:
    """Raise an error for numbers of links and joints that are not finite.

    Raises:
        ModelError: Such numbers, with element and attribute.
    """
    problems = []
    triples = {"xyz", "rpy", "size"}
    numeric = triples | {"value", "lower", "upper", "velocity", "effort", "damping", "friction", "radius", "length"}
    numeric |= {"ixx", "ixy", "ixz", "iyy", "iyz", "izz"}
    for parent in (*tree.findall("link"), *tree.findall("joint")):
        for element in parent.iter():
            for key in sorted(numeric & element.attrib.keys()):
                words = element.attrib[key].split()
                try:
                    is_good = bool(words) and all(math.isfinite(float(word)) for word in words)
                except ValueError:
                    is_good = False
                if not is_good or len(words) != (3 if key in triples else 1):
                    wanted = "three finite numbers" if key in triples else "a finite number"
                    problem = f'{key}="{element.attrib[key]}" in <{element.tag}> must be {wanted}'
                    problems.append(ModelError(f"URDF, {label(parent)}", problem))
    raise_together(problems)


def find_named(tree: ET.Element, tag: str, name: str) -> ET.Element:
    """Return the link or joint of a checked URDF that has this name."""
    return next(element for element in tree.findall(tag) if element.get("name") == name)


def remove_all(element: ET.Element, *tags: str) -> None:
    """Remove the children with these tags."""
    for child in [child for tag in tags for child in element.findall(tag)]:
        element.remove(child)


def write_inertial(link: ET.Element, theta: Array) -> None:
    """Replace the ``<inertial>`` of a link by parameters (10,) in its frame."""
    remove_all(link, "inertial")
    mass, com, inertia = to_com_form(theta)
    inertial = ET.Element("inertial")
    ET.SubElement(inertial, "origin", xyz=words(com), rpy="0 0 0")
    ET.SubElement(inertial, "mass", value=words([mass]))
    entries = {f"i{'xyz'[i]}{'xyz'[j]}": words([inertia[i, j]]) for i in range(3) for j in range(i, 3)}
    ET.SubElement(inertial, "inertia", entries)
    link.insert(0, inertial)


def words(values: Iterable[float]) -> str:
    """Return numbers as an attribute, with all digits."""
    return " ".join(repr(float(value)) for value in values)


def require_name(element: ET.Element) -> None:
    """Raise an error for a link or joint without a name."""
    if not element.get("name"):
        raise ModelError(f"URDF, a <{element.tag}>", "has no name")


def check_tree(skeleton: ET.Element) -> str:
    """Check that links and joints have names of their own and form one tree, and return its root.

    Raises:
        ModelError: A name used twice, a joint of unknown type, to no link or without an axis, a loop, several roots.
    """
    links = [link.get("name", "") for link in skeleton.findall("link")]
    joints = skeleton.findall("joint")
    problems, parent_of = list[ModelError](), dict[str, str]()
    for names in (links, [joint.get("name", "") for joint in joints]):
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        problems += [ModelError(f"URDF, '{name}'", "is defined twice") for name in twice]
    for joint in joints:
        try:
            parent, child = _check_joint(joint, links)
            if child in parent_of:
                problem = f"closes a loop: link '{child}' already has the parent link '{parent_of[child]}'"
                raise ModelError(f"URDF, {label(joint)}", problem)
        except ModelError as problem_of_joint:
            problems.append(problem_of_joint)
        else:
            parent_of[child] = parent
    raise_together(problems)
    return _find_root(links, parent_of)


def _check_joint(joint: ET.Element, links: list[str]) -> tuple[str, str]:
    """Check type, ends and axis of a joint, and return its parent and child link."""
    if joint.get("type") not in (*MOVABLE, "fixed"):
        problem = f"has the unknown type '{joint.get('type')}'; types are {', '.join((*MOVABLE, 'fixed'))}"
        raise ModelError(f"URDF, {label(joint)}", problem)
    ends = []
    for tag in ("parent", "child"):
        element = joint.find(tag)
        ends.append("" if element is None else element.get("link", ""))
        if ends[-1] not in links:
            raise ModelError(f"URDF, {label(joint)}", f"has the {tag} link '{ends[-1]}', which does not exist")
    axis = joint.find("axis")
    if joint.get("type") != "fixed" and axis is not None:
        direction = np.array([float(word) for word in axis.get("xyz", "1 0 0").split()])
        if np.linalg.norm(direction) < 1e-6:
            raise ModelError(f"URDF, {label(joint)}", "has a zero axis")
    return ends[0], ends[1]


def _find_root(links: list[str], parent_of: dict[str, str]) -> str:
    roots = [name for name in links if name not in parent_of]
    if not roots:
        raise ModelError("URDF, links", "form a loop: none is without a parent joint")
    if len(roots) > 1:
        raise ModelError("URDF, links", f"have several roots ({', '.join(roots)}); all but one need a parent joint")
    for name in links:
        walked, link = {name}, name
        while link in parent_of:
            link = parent_of[link]
            if link in walked:
                raise ModelError(f"URDF, link '{name}'", "is part of a loop of joints")
            walked.add(link)
    return roots[0]


_ODD_RADIUS, _IMPOSSIBLE_RADIUS = 1.0, 3.0
"""Radii of gyration from which on units are asked about, and that no link of an arm has [m]."""


def parameters_of(link: Link) -> Array:
    """Return the parameters (10,) of a link in its frame, zeros without mass or inertia."""
    if (inertial := link.inertial) is None or inertial.mass is None or inertial.inertia is None:
        return np.zeros(10)
    alone = from_com_form(inertial.mass, np.zeros(3), np.array(inertial.inertia.to_matrix()))
    return transform_parameters(alone, *_placement(inertial.origin))


def parts_of_bodies(robot: URDF) -> dict[str, dict[str, Array]]:
    """Return the bodies that joints move as a whole: links that are fixed to each other are one.

    Returns:
        For the first link of each body, its links with inertia: their parameters (10,) in the frame of the first.
    """
    above = {joint.child: joint for joint in robot.joints}
    bodies: dict[str, dict[str, Array]] = {}
    for link in robot.links:
        theta, head = parameters_of(link), link.name
        if not theta.any():
            continue
        while head in above and above[head].type == "fixed":
            theta, head = transform_parameters(theta, *_placement(above[head].origin)), above[head].parent
        bodies.setdefault(head, {})[link.name] = theta
    return bodies


def judge_inertias(robot: URDF) -> tuple[list[ModelError], list[str]]:
    """Judge the bodies that joints move as a whole; a rod is allowed.

    Returns:
        Faults: mass or inertia missing, a body that cannot exist, inertias in other units. And notes: links that could
            not exist alone, links that never move, and odd sizes.
    """
    half = [i for i in robot.links if i.inertial is not None and None in (i.inertial.mass, i.inertial.inertia)]
    problems = [ModelError(f"URDF, link '{i.name}'", "has an <inertial> without <mass> or <inertia>") for i in half]
    notes, ignored, odd = list[str](), list[str](), 0
    moved = {joint.child for joint in robot.joints}
    for head, parts in parts_of_bodies(robot).items():
        alone = [name for name, theta in parts.items() if not can_exist(theta)]
        if head not in moved:
            ignored += alone
            continue
        for name, theta in parts.items():
            size = np.sqrt(max(np.linalg.eigvalsh(to_com_form(theta)[2])[-1], 0.0) / max(theta[0], 1e-12))
            if theta[0] > 0.0 and size > _ODD_RADIUS:
                length = f"{1e-3 * size:.2g} km" if size >= 1e3 else f"{size:.2g} m"
                what = f"link '{name}' of {theta[0]:g} kg would have a radius of gyration of {length}: units?"
                what += "" if odd else " <inertia> is in kg m^2; in g mm^2 its numbers are 1e9 times as large"
                odd += 1
                problems += [ModelError(f"URDF, {what}")] if size > _IMPOSSIBLE_RADIUS else []
                notes += [what] if size <= _IMPOSSIBLE_RADIUS else []
        whole = np.sum(list(parts.values()), axis=0)
        if not can_exist(whole):
            names = ", ".join(alone or [head])
            problems.append(NotPhysicallyConsistent(names, np.linalg.eigvalsh(pseudo_inertia(whole)).tolist()))
        elif alone:
            names = ", ".join(alone)
            notes.append(f"no body has the inertia of {names} alone; everything that moves with it could exist")
    if ignored:
        notes.append(f"no body has the inertia of {', '.join(ignored)}; it counts for nothing, as nothing moves it")
    return problems, notes


def _placement(origin: Any) -> tuple[Array, Array]:
    """Return rotation (3, 3) and position (3,) [m] of an origin; without one the parent's."""
    rpy, xyz = (getattr(origin, name, None) for name in ("rpy", "xyz"))
    return rotation_from_rpy(np.array(rpy or np.zeros(3))), np.array(xyz or np.zeros(3))


def can_exist(theta: Array) -> bool:
    """Return whether a body (10,) can exist, up to rounding as thin as a rod or a point."""
    if theta[0] <= 0.0:
        return False
    mass, _, inertia = to_com_form(theta)
    second = pseudo_inertia(from_com_form(mass, np.zeros(3), inertia))[:3, :3]
    return bool(np.linalg.eigvalsh(second)[0] >= -1e-9 * max(np.trace(second), theta[4] + theta[6] + theta[9]))


_SNAP_STEP = math.pi / 12  # rounded multiples of 15 degrees are taken for the exact angle
_SNAP_DIGITS = 3  # an angle written with fewer decimals may be meant as written


def snap_angle(word: str) -> float | None:
    """Return the exact multiple of 15 degrees [rad] that the written angle is a rounding of, or None."""
    value = float(word)
    exact = round(value / _SNAP_STEP) * _SNAP_STEP
    decimals = -int(Decimal(word).as_tuple().exponent)
    is_rounded = decimals >= _SNAP_DIGITS and abs(value - exact) <= 0.51 * 10.0**-decimals
    # Some files truncate (3.1415) instead of rounding.
    is_truncated = decimals >= _SNAP_DIGITS + 1 and abs(value - exact) < 10.0**-decimals
    # Closer than 1e-9 rad nothing was rounded.
    if exact == 0.0 or abs(value - exact) < 1e-9 or not (is_rounded or is_truncated):
        return None
    return exact


def snap_origins(tree: ET.Element) -> list[str]:
    """Replace rounded angles of joint and inertia origins by the exact ones, in place; return a sentence for each."""
    warnings = []
    for parent in tree:
        if parent.tag not in ("link", "joint"):
            continue
        path = "inertial/origin" if parent.tag == "link" else "origin"
        for origin in parent.findall(path):
            words = origin.get("rpy", "0 0 0").split()
            exact = [snap_angle(word) for word in words]
            if any(value is not None for value in exact):
                new = [word if value is None else repr(value) for word, value in zip(words, exact, strict=True)]
                origin.set("rpy", " ".join(new))
                changes = [f"{w} -> {v:.12g}" for w, v in zip(words, exact, strict=True) if v is not None]
                warnings.append(f"{label(parent)}: rounded angle taken as exact, {', '.join(changes)} rad")
    return warnings


_KEPT_IN_JOINT = ("origin", "parent", "child", "axis", "limit", "dynamics", "mimic")


@dataclass(frozen=True)
class UrdfDescription:
    """A checked URDF.

    Attributes:
        text: The URDF text, with rounded angles snapped.
        robot: Skeleton (links with inertia, joints) as read by urdf_parser_py.
        skeleton: XML tree of that skeleton.
        root: Name of the fixed link.
        warnings: Faults mended.
        problems: Why bodies that move cannot be used.
    """

    text: str
    robot: URDF
    root: str
    warnings: tuple[str, ...]
    skeleton: ET.Element = field(repr=False)
    problems: tuple[ModelError, ...] = ()

    def joint(self, name: str) -> Joint:
        """Return the joint of that name.

        Raises:
            ParameterOutOfRange: There is none; lists the movable joints.
        """
        joint = self.robot.joint_map.get(name)
        if joint is None or joint.type not in MOVABLE:
            raise ParameterOutOfRange(
                "joint", name, f"one of {', '.join([j.name for j in self.robot.joints if j.type in MOVABLE])}"
            )
        return joint

    def path_to(self, link: str) -> list[str]:
        """List the movable joints between the root and the link, from the root on.

        Raises:
            ModelError: There is no such link.
        """
        if link not in self.robot.link_map:
            raise ModelError(f"URDF, link '{link}'", f"does not exist; links are {', '.join(self.robot.link_map)}")
        names = self.robot.get_chain(self.root, link, joints=True, links=False, fixed=True)
        return [name for name in names if self.robot.joint_map[name].type in MOVABLE]


def read_urdf(text: str, snap_angles: bool = True) -> UrdfDescription:
    """Read, check and mend a URDF.

    Args:
        text: The URDF, with all xacro macros expanded.
        snap_angles: Replace angles that are roundings of a multiple of 15 degrees (1.5708, 3.1416) by the exact ones.
            A rounded angle tilts a joint axis and makes parameters look identifiable that are not.

    Returns:
        The description; its warnings list snapped angles, its problems faults of bodies.

    Raises:
        ModelError: Not a URDF, an invalid number, a zero axis, a loop, several roots.
    """
    tree = _parse(text)
    check_numbers(tree)
    warnings = snap_origins(tree) if snap_angles else []
    is_snapped = bool(warnings)
    skeleton, massless = _skeleton(tree)
    root = check_tree(skeleton)
    if massless:
        warnings.append(f"an inertia without a mass belongs to no body and is ignored: {', '.join(massless)}")
    # urdf_parser_py prints a line for every tag and attribute that it does not know.
    unknown = list[str]()
    previous, reflection.on_error = reflection.on_error, unknown.append
    try:
        robot = URDF.from_xml_string(ET.tostring(skeleton, encoding="unicode"))
    except (ParseError, ValueError, TypeError, AssertionError) as error:
        raise ModelError("URDF", f"cannot be read: {error}") from error
    finally:
        reflection.on_error = previous
    problems, notes = judge_inertias(robot)
    warnings += notes
    if unknown:
        first = f"were passed over; first: {unknown[0]}"
        warnings.append(f"{len(unknown)} tags or attributes of the URDF are unknown and {first}")
    mended = ET.tostring(tree, encoding="unicode") if is_snapped else text
    return UrdfDescription(mended, robot, root, tuple(warnings), skeleton, tuple(problems))


def build_arm_model(description: UrdfDescription, joint_names: Sequence[str]) -> pin.Model:
    """Return Pinocchio's model of the arm: its joints revolute, every other joint fixed at zero.

    A link and a joint may have one name, as in some vendors' files; the frame of the link keeps it, and the joint's
    becomes ``NAME (joint)``. Joints keep theirs.
    """
    tree = copy.deepcopy(description.skeleton)
    for joint in tree.findall("joint"):
        remove_all(joint, "limit", "dynamics", "mimic")
        is_moving = joint.get("name") in joint_names
        joint.set("type", "revolute" if is_moving else "fixed")
        if is_moving:  # limits are the caller's
            ET.SubElement(joint, "limit", lower="-1e3", upper="1e3", velocity="1e3", effort="1e6")
    model = pin.buildModelFromXML(ET.tostring(tree, encoding="unicode"))
    links = {frame.name for frame in model.frames if frame.type == pin.FrameType.BODY}
    for frame in model.frames:
        if frame.type != pin.FrameType.BODY and frame.name in links:
            frame.name = f"{frame.name} (joint)"
    return model


def _parse(text: str) -> ET.Element:
    try:
        tree = ET.fromstring(text)
    except ET.ParseError as error:
        raise ModelError("URDF", f"is not XML, or not all of it ({error})") from error
    if tree.tag != "robot":
        raise ModelError("URDF", f"starts with <{tree.tag}>, and must start with <robot>")
    for element in tree.iter():
        has_macro = "xacro" in element.tag or any("${" in value for value in element.attrib.values())
        if has_macro:
            raise ModelError("URDF", "contains xacro macros; expand it first (xacro robot.xacro > robot.urdf)")
    return tree


def _skeleton(tree: ET.Element) -> tuple[ET.Element, list[str]]:
    """Return links with inertia and joints, and the links that have an inertia without a mass.

    A link without mass counts as a frame. Public URDFs give such frames placeholders of 0.1 kg m^2.
    """
    result, massless = ET.Element("robot", name=tree.get("name", "robot")), []
    for link in tree.findall("link"):
        require_name(link)
        kept = ET.SubElement(result, "link", name=link.get("name", ""))
        inertial = link.find("inertial")
        if inertial is None or _is_zero(inertial, "mass", "inertia"):
            continue
        if inertial.find("mass") is not None and _is_zero(inertial, "mass"):
            massless.append(link.get("name", ""))
        else:
            kept.append(copy.deepcopy(inertial))
    for joint in tree.findall("joint"):
        require_name(joint)
        kept = ET.SubElement(result, "joint", name=joint.get("name", ""), type=joint.get("type", ""))
        kept.extend(copy.deepcopy(child) for child in joint if child.tag in _KEPT_IN_JOINT)
    return result, massless


def _is_zero(inertial: ET.Element, *tags: str) -> bool:
    numbers = [float(value) for tag in tags for element in inertial.findall(tag) for value in element.attrib.values()]
    return all(number == 0.0 for number in numbers)
