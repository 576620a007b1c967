"""Completes a URDF: joints fixed where they rest, impossible inertias repaired, missing masses proposed.

Each function returns the text of another URDF, so that everything that reads URDFs sees one and the same arm.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange
from sysid_ros.core.common.spatial import inverse_placement
from sysid_ros.core.model.defaults import COM_UNCERTAINTY, INERTIAL_UNCERTAINTY, absolute_uncertainty
from sysid_ros.core.model.inertia import from_com_form, to_com_form, transform_parameters
from sysid_ros.core.model.spheres import form_of, placement_of, shapes_of_links
from sysid_ros.core.model.urdf import (
    ROTARY,
    UrdfDescription,
    build_arm_model,
    can_exist,
    find_named,
    parts_of_bodies,
    remove_all,
    words,
    write_inertial,
)

Array = NDArray[np.float64]

SHAPE_FACTOR, LENGTH_FACTOR = 3.0, 8.0
"""Factors within which masses follow from volumes of shapes, and of assumed ones where a link has no shape [-].

Of the shipped arms masses are 0.36 to 2.4 times the proposed ones, and 0.12 to 5 times without shapes
(``test_complete_urdf.py``)."""
_FORMS = {
    "box": (np.full(3, 1.0 / 3.0), 8.0),
    "cylinder": (np.array([0.25, 0.25, 1.0 / 3.0]), 2.0 * np.pi),
    "sphere": (np.full(3, 0.2), 4.0 / 3.0 * np.pi),
}
"""Second moment over the squares of half the edges (3,) [-], and volume over their product [-]."""
_THICKNESS = 0.06
"""A link without a shape reaches this share of the arm's length around the line to the next joint [-]."""
_THINNEST = 1e-4
"""Least second moment of a repaired body, as a share of its largest [-]."""


def lock_joints(description: UrdfDescription, positions: Mapping[str, float]) -> str:
    """Return the URDF with joints fixed at positions [rad or m].

    Raises:
        ParameterOutOfRange: There is no such joint, or it cannot be there.
        ModelError: A joint of several degrees of freedom.
    """
    tree = ET.fromstring(description.text)
    for name, position in positions.items():
        joint, element = description.joint(name), find_named(tree, "joint", name)
        if joint.type not in (*ROTARY, "prismatic"):
            raise ModelError(f"URDF, joint '{name}'", f"is {joint.type}; only joints with one position can be locked")
        unit, limit = "m" if joint.type == "prismatic" else "rad", joint.limit
        is_limited = limit is not None and limit.lower is not None and joint.type != "continuous"
        lower, upper = (limit.lower, limit.upper) if is_limited else (-math.inf, math.inf)
        if not lower <= position <= upper:
            raise ParameterOutOfRange(f"position of '{name}'", position, f"{lower:g} to {upper:g} [{unit}]")
        axis = np.array(joint.axis or (1.0, 0.0, 0.0), dtype=float)
        axis /= np.linalg.norm(axis)
        rotation, xyz = placement_of(element)
        if unit == "m":
            xyz = xyz + rotation @ (position * axis)
        else:
            rotation = rotation @ pin.AngleAxis(position, axis).matrix()
        remove_all(element, "origin", "axis", "limit", "dynamics", "mimic")
        element.set("type", "fixed")
        ET.SubElement(element, "origin", xyz=words(xyz), rpy=words(pin.rpy.matrixToRpy(rotation)))
    return ET.tostring(tree, encoding="unicode")


def repair_inertias(description: UrdfDescription) -> tuple[str, list[str]]:
    """Replace the inertia of each moved body that cannot exist by the nearest possible one of its mass and CoM.

    Nearest is meant for the second moments about the CoM, in the Frobenius norm: negative ones become (almost) zero.

    Returns:
        The URDF, and a sentence for each change.
    """
    tree, sentences = ET.fromstring(description.text), []
    moved = {joint.child for joint in description.robot.joints}
    for head, parts in parts_of_bodies(description.robot).items():
        whole = np.sum(list(parts.values()), axis=0)
        alone = [name for name, theta in parts.items() if theta[0] > 0.0 and not can_exist(theta)]
        if head not in moved or can_exist(whole) or whole[0] <= 0.0 or not alone:
            continue
        inertia = to_com_form(whole)[2]
        moments, axes = np.linalg.eigh(0.5 * np.trace(inertia) * np.eye(3) - inertia)
        change = axes @ np.diag(np.maximum(moments, _THINNEST * moments[-1]) - moments) @ axes.T
        change = np.trace(change) * np.eye(3) - change
        theta, link = parts[alone[0]] + from_com_form(0.0, np.zeros(3), change), alone[0]
        placement = _placement_in(description, link, head)
        write_inertial(find_named(tree, "link", link), transform_parameters(theta, *inverse_placement(*placement)))
        size = float(np.abs(np.linalg.eigvalsh(change)).max())
        sentences.append(f"inertia of {link} repaired: the nearest body differs by {size:.2g} kg m^2")
    return ET.tostring(tree, encoding="unicode"), sentences


def _placement_in(description: UrdfDescription, link: str, head: str) -> tuple[Array, Array]:
    """Return rotation (3, 3) and position (3,) [m] of a link in the first link of its body."""
    model = build_arm_model(description, [j.name for j in description.robot.joints if j.type in ROTARY])
    own, first = (model.frames[model.getFrameId(name)].placement for name in (link, head))
    return (first.inverse() * own).rotation, (first.inverse() * own).translation


@dataclass(frozen=True)
class Solid:
    """A homogeneous solid in the frame of its link.

    Attributes:
        volume: [m^3].
        center: (3,) [m].
        inertia: About the centre for each kg, (3, 3) [m^2].
        box: Box around it [m].
    """

    volume: float
    center: Array
    inertia: Array
    box: Box

    @classmethod
    def of(cls, tag: str, half: Array, rotation: Array, center: Array) -> Solid:
        """Return a ``box``, ``cylinder`` or ``sphere`` with half edges (3,) [m] and its placement."""
        shares, fill = _FORMS[tag]
        squares = shares * half**2
        inertia = rotation @ np.diag(squares.sum() - squares) @ rotation.T
        return cls(fill * float(np.prod(half)), center, inertia, Box.around(center, np.abs(rotation) @ half))


def solids_of_links(
    urdf_text: str, boxes: Mapping[str, Sequence[tuple[Array, Array, Array]]]
) -> dict[str, list[Solid]]:
    """Return the solids of each link: its simple shapes, or else the boxes around its meshes.

    Args:
        urdf_text: The URDF.
        boxes: See :class:`~.mesh_spheres.MeshSpheres`.
    """
    solids: dict[str, list[Solid]] = {}
    for link, shapes in shapes_of_links(urdf_text).items():
        simple = [Solid.of(*form_of(shape), *placement_of(shape)) for shape in shapes if form_of(shape)[0]]
        meshes = [Solid.of("box", 0.5 * size, rotation, center) for rotation, center, size in boxes.get(link, ())]
        solids[link] = [solid for solid in simple or meshes if solid.volume > 0.0]
    return solids


@dataclass(frozen=True)
class Proposal:
    """Masses that a URDF does not state.

    Attributes:
        text: The URDF with them.
        ranges: Box of the ten parameters of the body that a joint moves, by joint, where it has such masses.
        assumption: What is assumed, in a sentence.
    """

    text: str
    ranges: dict[str, Box]
    assumption: str


def propose_masses(
    description: UrdfDescription,
    joint_names: Sequence[str],
    tool_frame: str,
    total: float,
    solids: Mapping[str, Sequence[Solid]],
) -> Proposal:
    """Distribute the mass that a URDF does not state over the links without one, by volume.

    A link is a homogeneous solid of its shapes. A body without any mass or shape is a box around the line to the next
    joint. The ranges hold every distribution of a mass within a factor of the proposed one
    (:data:`SHAPE_FACTOR`) inside the box around the shapes and :data:`~.defaults.COM_UNCERTAINTY` beyond.

    Args:
        description: The URDF.
        joint_names: Joints of the arm, (n,).
        tool_frame: Link that holds the payload.
        total: Mass of the arm with its base, from the data sheet [kg].
        solids: Solids of the links, in their frames.

    Raises:
        ParameterOutOfRange: The total is not more than the URDF states, or all that moves has a mass.
    """
    model = build_arm_model(description, joint_names)
    base = description.joint(joint_names[0]).parent
    links = [f for f in model.frames if f.type == pin.FrameType.BODY and (f.parentJoint > 0 or f.name == base)]
    masses = {link.name: link.inertial.mass for link in description.robot.links if link.inertial is not None}
    proposed = {f.name: list(solids.get(f.name, ())) for f in links if f.name not in masses}
    lines = _lines_to_next(model, description, joint_names, tool_frame)
    with_something = {f.parentJoint for f in links if f.name in masses or proposed.get(f.name)}
    assumed = [link for body, link in enumerate(lines) if body not in with_something]
    proposed |= {link: [lines[link]] for link in assumed}
    proposed = {link: own for link, own in proposed.items() if own}
    if not any(f.parentJoint > 0 and f.name in proposed for f in links):
        raise ParameterOutOfRange("--total-mass", total, "none: every body that moves has a mass in the URDF")
    stated = sum(masses.get(f.name, 0.0) for f in links)
    rest, volume = total - stated, sum(solid.volume for own in proposed.values() for solid in own)
    if not 0.0 < rest < math.inf:
        raise ParameterOutOfRange("--total-mass", total, f"more than {stated:g} kg, which the URDF states")

    tree = ET.fromstring(description.text)
    factor = LENGTH_FACTOR if set(assumed) - {base} else SHAPE_FACTOR
    boxes: dict[int, Box] = {}
    for frame in (f for f in links if f.name in proposed):
        parts = [(rest * solid.volume / volume, solid) for solid in proposed[frame.name]]
        theta = np.sum([from_com_form(m, s.center, m * s.inertia) for m, s in parts], axis=0)
        write_inertial(find_named(tree, "link", frame.name), theta)
        if (body := frame.parentJoint) > 0:
            known = model.inertias[body].toDynamicParameters()
            error = INERTIAL_UNCERTAINTY * np.abs(known) + absolute_uncertainty(known)
            before = boxes.get(body, Box.around(known, error))
            around = _turned(proposed[frame.name], frame.placement)
            boxes[body] = before + bodies_inside(Box(theta[:1] / factor, np.minimum(factor * theta[:1], rest)), around)
    sentence = (
        f"masses of {', '.join(proposed)}: assumed from geometry and the total mass of the data sheet, {total:g} kg, "
        f"each within a factor of {factor:g}, anywhere in a box {1e3 * COM_UNCERTAINTY:g} mm larger than the geometry"
    )
    sentence += f"; of {', '.join(assumed)} the geometry is assumed, too" if assumed else ""
    return Proposal(
        ET.tostring(tree, encoding="unicode"), {joint_names[body - 1]: box for body, box in boxes.items()}, sentence
    )


def bodies_inside(mass: Box, region: Box) -> Box:
    """Return the box of the parameters (10,) of all bodies of a mass (1,) [kg] in a region (3,) [m], rounded outwards.

    Each parameter is the integral over the mass of a function of the place, so it is between the mass times the least
    and the largest value of that function.
    """
    lower, upper = region.lower, region.upper
    products = np.stack([np.outer(a, b) for a, b in product((lower, upper), repeat=2)])
    least, most = products.min(axis=0), products.max(axis=0)
    squares = np.diag(least).copy()
    squares[(lower < 0.0) & (upper > 0.0)] = 0.0
    rows, columns = (0, 0, 1), (1, 2, 2)
    values = []
    for own, others, square in ((lower, -most, squares), (upper, -least, np.diag(most))):
        xy, xz, yz = others[rows, columns]
        xx, yy, zz = square
        values.append(np.array([1.0, *own, yy + zz, xy, xx + zz, xz, yz, xx + yy]))
    corners = np.stack([m * value for m in (mass.lower, mass.upper) for value in values])
    pad = 8.0 * np.finfo(float).eps * np.abs(corners).max(axis=0)
    pad[0] = 0.0
    return Box(corners.min(axis=0) - pad, corners.max(axis=0) + pad)


def _lines_to_next(
    model: pin.Model, description: UrdfDescription, joint_names: Sequence[str], tool_frame: str
) -> dict[str, Solid]:
    """Return a box for the base (0) and each body, by link: around the line from its joint to the next or the tool."""
    base = description.joint(joint_names[0]).parent
    inside = model.frames[model.getFrameId(base)].placement.inverse()
    ends = [inside.act(model.jointPlacements[1].translation), *(p.translation for p in list(model.jointPlacements)[2:])]
    ends.append(model.frames[model.getFrameId(tool_frame)].placement.translation)
    thickness = _THICKNESS * sum(float(np.linalg.norm(end)) for end in ends)
    links = [base, *(description.joint(name).child for name in joint_names)]
    halves = [0.5 * np.abs(end) + thickness for end in ends]
    return {
        link: Solid.of("box", half, np.eye(3), 0.5 * end) for link, end, half in zip(links, ends, halves, strict=True)
    }


def _turned(solids: Iterable[Solid], placement: pin.SE3) -> Box:
    """Return the box around solids of a link, with the margin of the CoM, in the frame of its joint."""
    centers = np.array([placement.act(solid.box.center) for solid in solids])
    radii = np.array([np.abs(placement.rotation) @ solid.box.radius for solid in solids]) + COM_UNCERTAINTY
    return Box((centers - radii).min(axis=0), (centers + radii).max(axis=0))
