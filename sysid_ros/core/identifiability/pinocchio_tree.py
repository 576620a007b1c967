"""Kinematic trees from Pinocchio models."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.errors import ParameterOutOfRange
from sysid_ros.core.identifiability.errors import InvalidTree
from sysid_ros.core.identifiability.tree import WORLD, KinematicTree, TreeBody, build_tree

Array = NDArray[np.float64]

MASSLESS = ("as_modelled", "unknown")
_POSITIONS = (0.0, 0.7)
"""Positions at which a joint's motion is compared, to find one that is not constant."""


def tree_from_model(model: pin.Model, *, massless: str = "as_modelled") -> KinematicTree:
    """The kinematic tree of a Pinocchio model.

    Args:
        model: The model. Composite and universal joints become a chain of joints with bodies without mass between.
        massless: What a body without mass in the model is: ``as_modelled``: a frame without parameters (unless no body
            has mass, which means that the model says nothing about masses); ``unknown``: a body like any other.

    Returns:
        The tree, with the model's gravity.

    Raises:
        InvalidTree: A joint of a kind that is not supported, a number that is not finite.
        ParameterOutOfRange: ``massless`` is something else.
    """
    if massless not in MASSLESS:
        raise ParameterOutOfRange("massless", massless, "one of " + ", ".join(MASSLESS))
    masses = np.array([inertia.mass for inertia in model.inertias])[1:]
    if not np.all(np.isfinite(masses)):
        raise InvalidTree("masses", "must be finite numbers")
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
    """Name, placement and constant motion of the single joints a joint consists of."""
    kind = joint.shortname()
    if "Mimic" in kind:
        raise InvalidTree(f"joint '{name}'", "follows another joint (mimic), which is not supported; lock it")
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
    """Motion (6, nv) of a joint in its own frame, compared at several positions."""
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
        raise InvalidTree(f"joint '{name}'", f"is a {joint.shortname()}, whose axes are not constant; not supported")
    return found[0]
