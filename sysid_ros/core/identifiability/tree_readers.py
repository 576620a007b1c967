"""Kinematic trees from Pinocchio models."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange
from sysid_ros.core.common.yaml_files import parse_yaml
from sysid_ros.core.identifiability.settings import MASSLESS
from sysid_ros.core.identifiability.tree import WORLD, KinematicTree, Mimic, Rotor, TreeBody, build_tree
from sysid_ros.core.model.urdf import MOVABLE, UrdfDescription, read_urdf, remove_all

Array = NDArray[np.float64]

_POSITIONS = (0.0, 0.7)
"""Positions at which a joint's motion is compared, to find one that is not constant."""


def tree_from_model(model: pin.Model, *, massless: str = "as_modelled") -> KinematicTree:
    """Read the kinematic tree of a Pinocchio model.

    Args:
        model: The model. Composite and universal joints become a chain of joints with bodies without mass between.
        massless: Meaning of a massless body in the model: ``as_modelled``: a frame without parameters (unless no body
            has mass: then the model has no data on masses); ``unknown``: a body like any other.

    Returns:
        The tree, with the model's gravity.

    Raises:
        ModelError: A joint of a kind that is not supported, a number that is not finite.
        ParameterOutOfRange: ``massless`` is something else.
    """
    if massless not in MASSLESS:
        raise ParameterOutOfRange("massless", massless, "one of " + ", ".join(MASSLESS))
    masses = np.array([inertia.mass for inertia in model.inertias])[1:]
    if not np.all(np.isfinite(masses)):
        raise ModelError("masses", "must be finite numbers")
    counts_masses = massless == "as_modelled" and bool(np.any(masses != 0.0))
    bodies: list[TreeBody] = []
    index_of = {0: WORLD}
    frames: list[str] = []
    for joint_id in range(1, model.njoints):
        has_inertia = not counts_masses or masses[joint_id - 1] != 0.0
        name = model.names[joint_id]
        links = tuple(f.name for f in model.frames if f.parentJoint == joint_id and f.type == pin.FrameType.BODY)
        parts = _parts(model.joints[joint_id], model.jointPlacements[joint_id], name)
        parent = index_of[int(model.parents[joint_id])]
        for k, (part_name, placement, motion) in enumerate(parts):
            is_last = k == len(parts) - 1
            bodies.append(
                TreeBody(
                    name=name if is_last else part_name,
                    parent=parent,
                    rotation=np.array(placement.rotation),
                    translation=np.array(placement.translation),
                    motion=motion,
                    links=links if is_last else (),
                    has_inertia=has_inertia and is_last,
                )
            )
            parent = len(bodies) - 1
        index_of[joint_id] = parent
        if not has_inertia:
            frames.append(name)
    notes = [f"bodies without mass in the model, taken for frames: {', '.join(frames)}"] if frames else []
    tree = build_tree(model.name, bodies, np.array(model.gravity.linear))
    return KinematicTree(tree.name, tree.bodies, tree.gravity, tuple(notes))


def _parts(joint: pin.JointModel, placement: pin.SE3, name: str) -> list[tuple[str, pin.SE3, Array]]:
    """Name, placement and constant motion of the single joints that a joint consists of."""
    kind = joint.shortname()
    if "Mimic" in kind:
        raise ModelError(f"joint '{name}'", "follows another joint (mimic); give the URDF instead, where it may")
    if kind == "JointModelUniversal":
        specific = joint.extract() if hasattr(joint, "extract") else joint
        first, second = (_rotation(np.asarray(axis)) for axis in (specific.axis1, specific.axis2))
        return [(f"{name}#1", placement, first), (f"{name}#2", pin.SE3.Identity(), second)]
    if kind == "JointModelComposite":
        composite = joint.extract() if hasattr(joint, "extract") else joint
        parts = []
        for k, (inner, local) in enumerate(zip(composite.joints, composite.jointPlacements, strict=True)):
            start = placement * local if k == 0 else local
            parts += _parts(inner, start, f"{name}#{k + 1}")
        return parts
    if kind.startswith("JointModelSphericalZYX"):
        # Its axes turn, but together they always span all rotations; only the forces have other coordinates.
        return [(name, placement, np.concatenate([np.zeros((3, 3)), np.eye(3)]))]
    return [(name, placement, _constant_motion(joint, name))]


def _rotation(axis: Array) -> Array:
    return np.concatenate([np.zeros(3), axis])[:, None]


def _constant_motion(joint: pin.JointModel, name: str) -> Array:
    """Return the motion (6, nv) of a joint in its own frame, compared at several positions."""
    single = pin.Model()
    single.addJoint(0, joint, pin.SE3.Identity(), "joint")
    model = single.joints[1]
    data = model.createData()
    found = []
    for position in _POSITIONS:
        q = pin.integrate(single, pin.neutral(single), np.full(single.nv, position))
        model.calc(data, q)
        found.append(np.asarray(data.S, dtype=float).reshape(6, -1, order="F"))
    if not np.allclose(found[0], found[1], atol=1e-9):
        raise ModelError(f"joint '{name}'", f"is a {joint.shortname()}, whose axes are not constant; not supported")
    return found[0]


STANDARD_GRAVITY = (0.0, 0.0, -9.81)
"""Gravity in the frame of the root link [m/s^2]."""
_ROTOR_KEYS = ("gear_ratio", "axis", "origin", "parameters")


def tree_from_urdf(
    text: str,
    *,
    gravity: ArrayLike = STANDARD_GRAVITY,
    is_floating: bool = False,
    locked: Sequence[str] = (),
    snap_angles: bool = False,
    massless: str = "as_modelled",
) -> KinematicTree:
    """Read the kinematic tree of a URDF; meshes are not needed.

    Args:
        text: The URDF, with xacro macros expanded.
        gravity: Gravity in the frame of the root link, (3,) [m/s^2].
        is_floating: Whether the root link floats freely.
        locked: Joints that do not move (at zero).
        snap_angles: Take rounded angles such as 1.5708 for the exact ones.
        massless: See :func:`sysid_ros.core.identifiability.tree_readers.tree_from_model`.

    Returns:
        The tree. Links joined by fixed or locked joints are one body. Of inertias only whether there is a mass counts.

    Raises:
        ModelError: Not a URDF, a number that is not finite, a zero axis, a loop, several roots.
        ModelError: Nothing moves, or a joint mimics one that is locked or has several degrees of freedom.
        ParameterOutOfRange: A locked joint does not exist.
    """
    description = read_urdf(text, snap_angles)
    root = _require_motion(description, locked)
    skeleton = _with_locked(description.skeleton, locked)
    if is_floating:
        model = pin.buildModelFromXML(skeleton, pin.JointModelFreeFlyer(), root)
    else:
        model = pin.buildModelFromXML(skeleton)
    model.name = description.robot.name
    model.gravity.linear = np.array(gravity, dtype=float)
    tree = tree_from_model(model, massless=massless)
    mimics = {joint.name: joint.mimic for joint in description.robot.joints if joint.mimic is not None}
    bodies = [replace(body, follows=_resolve(body.name, mimics)) for body in tree.bodies]
    names = ", ".join(body.name for body in bodies if body.follows is not None)
    notes = [f"joints that follow others, without a torque of their own: {names}"] if names else []
    return replace(tree, bodies=tuple(bodies), notes=(*tree.notes, *notes))


def _resolve(joint: str, mimics: dict[str, Any]) -> Mimic | None:
    """Return the joint that a joint follows in the end, through mimicked mimics; None for an independent one."""
    if joint not in mimics:
        return None
    found, passed = Mimic(joint), [joint]
    while found.joint in mimics:
        mimic = mimics[found.joint]
        multiplier, offset = (
            value if given is None else given for given, value in ((mimic.multiplier, 1.0), (mimic.offset, 0.0))
        )
        found = Mimic(mimic.joint, found.multiplier * multiplier, found.offset + found.multiplier * offset)
        if mimic.joint in passed:
            raise ModelError(f"joint '{joint}'", f"follows itself, by way of {', '.join(passed)}")
        passed.append(mimic.joint)
    return found


def _require_motion(description: UrdfDescription, locked: Sequence[str]) -> str:
    """Check the joints and return the name of the root."""
    movable = [joint.name for joint in description.robot.joints if joint.type in MOVABLE]
    for name in locked:
        if name not in movable:
            raise ParameterOutOfRange("joint", name, f"one of {', '.join(movable)}")
    for joint in description.robot.joints:
        if joint.mimic is not None and joint.name in movable and joint.name not in locked:
            leader = joint.mimic.joint
            if leader in locked or leader not in movable:
                problem = (
                    f"mimics '{leader}', which {'is locked' if leader in locked else 'does not move'}; lock it, too"
                )
                raise ModelError(f"joint '{joint.name}'", problem)
    if not set(movable) - set(locked):
        raise ModelError("URDF", "no joint of it moves")
    return description.root


def _with_locked(skeleton: ElementTree.Element, locked: Sequence[str]) -> str:
    """Return the skeleton with locked joints fixed, and with limits and bodies where Pinocchio needs them."""
    copy = ElementTree.fromstring(ElementTree.tostring(skeleton))
    for inertial in copy.iter("inertial"):
        inertial.clear()
        ElementTree.SubElement(inertial, "mass", value="1")
        ElementTree.SubElement(inertial, "inertia", dict(ixx="1", iyy="1", izz="1", ixy="0", ixz="0", iyz="0"))
    for joint in copy.findall("joint"):
        if joint.get("name") in locked:
            joint.set("type", "fixed")
        remove_all(joint, "limit", "dynamics", "mimic")
        if joint.get("type") in ("revolute", "prismatic"):
            ElementTree.SubElement(joint, "limit", lower="-1e3", upper="1e3", velocity="1e3", effort="1e6")
    return ElementTree.tostring(copy, encoding="unicode")


def read_rotors(text: str, tree: KinematicTree) -> dict[str, Rotor]:
    """Read rotors from YAML.

    Args:
        text: ``rotors: {joint: {gear_ratio: 100, axis: [0, 0, 1], origin: [0, 0, 0], parameters: axial}}``; axis and
            origin [m] in the joint's frame at zero position, by default the joint's own axis through its origin.
        tree: The mechanism the rotors belong to.

    Returns:
        The rotors by joint, for :meth:`KinematicTree.with_rotors`.

    Raises:
        ModelError: Not YAML.
        ParameterOutOfRange: A key is unknown or missing, or a value has the wrong form.
    """
    document = parse_yaml(text, "rotors")
    if not isinstance(document, dict) or set(document) != {"rotors"} or not isinstance(document["rotors"], dict):
        raise ParameterOutOfRange("rotors", document, "a mapping `rotors:` from joint names to rotors")
    bodies = {body.name: body for body in tree.bodies}
    result = {}
    for joint, values in document["rotors"].items():
        if joint not in bodies:
            raise ParameterOutOfRange("joint", str(joint), f"one of {', '.join(list(bodies))}")
        path = f"rotors.{joint}"
        if not isinstance(values, dict) or not set(values) <= set(_ROTOR_KEYS) or "gear_ratio" not in values:
            allowed = f"a mapping with gear_ratio and, where wanted, {', '.join(_ROTOR_KEYS[1:])}"
            raise ParameterOutOfRange(path, values, allowed)
        body = bodies[joint]
        own = body.motion[:3, 0] if body.is_translating else body.motion[3:, 0] if body.dofs == 1 else np.zeros(3)
        result[joint] = Rotor(
            gear_ratio=float(_numbers(path, values, "gear_ratio", 1)[0]),
            axis=_numbers(path, values, "axis", 3) if "axis" in values else own,
            origin=_numbers(path, values, "origin", 3) if "origin" in values else (0.0, 0.0, 0.0),
            parameters=str(values.get("parameters", "axial")),
        )
    return result


def _numbers(path: str, values: dict[str, Any], key: str, count: int) -> np.ndarray:
    given = values[key]
    try:
        numbers = np.array(given, dtype=float).reshape(-1)
    except (TypeError, ValueError):
        numbers = np.zeros(0)
    if numbers.size != count or not np.all(np.isfinite(numbers)) or isinstance(given, bool):
        raise ParameterOutOfRange(f"{path}.{key}", given, f"{count} finite number{'s' if count > 1 else ''}")
    return numbers
