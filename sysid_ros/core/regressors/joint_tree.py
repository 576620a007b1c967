"""Kinematic trees and their kinematics for many samples at once, in base axes and about the base origin.

Arrays keep the samples last, so that numpy's inner loops run over them: a vector is ``(..., 3, N)``, a motion or force
``(..., 6, N)``, linear before angular.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.common.errors import ModelError
from sysid_ros.core.common.spatial import cross, motion_cross, skew
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]

CHUNK = 520
"""Samples per chunk: hides the cost of a numpy call, takes about 8 MB for seven joints; no power of two, whose strides
collide in the cache."""


def last(array: Array) -> Array:
    """Return a view (..., N, k) of samples (..., k, N), for functions that take the components last."""
    result: Array = array.swapaxes(-1, -2)
    return result


class Workspace:
    """Named float buffers; not safe to share between threads."""

    def __init__(self) -> None:
        self._buffers: dict[str, Array] = {}

    def array(self, name: str, *shape: int) -> Array:
        """Return an array of this shape with arbitrary content, valid until the next call with the name."""
        size = prod(shape)
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < size:
            buffer = self._buffers[name] = np.empty(size)
        return buffer[:size].reshape(shape)


def chunks(samples: int) -> list[slice]:
    """Split ``samples`` into consecutive slices of at most :data:`CHUNK`."""
    return [slice(start, min(start + CHUNK, samples)) for start in range(0, samples, CHUNK)]


class UnsupportedJoint(ModelError):
    """A joint without a constant screw axis.

    Args:
        name: Name of the joint.
        kind: Its Pinocchio type.
    """

    def __init__(self, name: str, kind: str):
        self.name = name
        self.kind = kind
        super().__init__(
            f"joint '{name}' is a {kind}; the regressors need joints with one position, one velocity and a constant "
            "axis: revolute, prismatic or helical (make a continuous joint a plain revolute one, lock the others)"
        )


@dataclass(frozen=True)
class JointTree:
    """Joints and bodies 0..n-1 (Pinocchio's 1..n), each joint moving the body of the same number.

    The pose of body i in its parent is ``rotation R = R0 + R1 cos q + R2 sin q`` and ``position p = p0 + p1 q``, for
    revolute (p1 = 0), prismatic (R1 = R2 = 0) and helical joints alike.

    Attributes:
        names: Joint names, n of them.
        parents: Parent body of each body, -1 for the base.
        is_ancestor: Whether joint j moves body i, (n, n) bool, entry [j, i]; true on the diagonal.
        pose_terms: Coefficients of (1, cos q, sin q, q), (n, 12, 4); rows: the rotation's columns, then the position.
        axis_angular: Direction of rotation in the body's frame, (n, 3).
        axis_linear: Velocity of the body frame's origin, in its axes, per unit of joint velocity, (n, 3) [- or m/rad].
        gravity: Gravity in the base frame, (3,) [m/s^2].
    """

    names: tuple[str, ...]
    parents: tuple[int, ...]
    is_ancestor: NDArray[np.bool_]
    pose_terms: Array
    axis_angular: Array
    axis_linear: Array
    gravity: Array

    @property
    def n(self) -> int:
        """Number of joints and of moving bodies."""
        return len(self.parents)

    @classmethod
    def of(cls, robot: RobotModel | pin.Model) -> JointTree:
        """Read the tree from a robot or a Pinocchio model.

        Raises:
            UnsupportedJoint: A joint is not revolute, prismatic or helical.
        """
        model = pinocchio_model(robot)
        n = model.njoints - 1
        terms, angular, linear = np.zeros((n, 12, 4)), np.zeros((n, 3)), np.zeros((n, 3))
        for i in range(n):
            joint = model.joints[i + 1]
            if joint.nq != 1 or joint.nv != 1:
                raise UnsupportedJoint(model.names[i + 1], joint.shortname())
            linear[i], angular[i] = _screw(model, i + 1)
            terms[i] = _pose_terms(model.jointPlacements[i + 1], linear[i], angular[i])
            _require_same_motion(model, i + 1, terms[i])
        parents = tuple(int(parent) - 1 for parent in list(model.parents)[1:])
        return cls(
            names=tuple(model.names[1:]),
            parents=parents,
            is_ancestor=_ancestors(parents),
            pose_terms=terms,
            axis_angular=angular,
            axis_linear=linear,
            gravity=np.array(model.gravity.linear),
        )


def pinocchio_model(robot: RobotModel | pin.Model) -> pin.Model:
    """Return the Pinocchio model of a robot, or the bare model given."""
    return robot.pin_model if isinstance(robot, RobotModel) else robot


def scale_gravity(robot: RobotModel | pin.Model, factor: float) -> pin.Model:
    """Return a copy of the robot's model in ``factor`` times its gravity."""
    copy = pinocchio_model(robot).copy()
    copy.gravity.linear = factor * np.array(copy.gravity.linear)
    return copy


def _screw(model: pin.Model, joint_id: int) -> tuple[Array, Array]:
    """Return the linear and angular part of the joint's motion in its own frame, at zero position."""
    data = _joint_data(model, joint_id, 0.0)
    screw = np.asarray(data.S, dtype=float).ravel()
    return screw[:3], screw[3:]


def _joint_data(model: pin.Model, joint_id: int, position: float) -> pin.JointData:
    joint = model.joints[joint_id]
    data = joint.createData()
    joint.calc(data, np.full(model.nq, position))
    return data


def _pose_terms(placement: pin.SE3, linear: Array, angular: Array) -> Array:
    """Compute the coefficients (12, 4) of a body's pose in its parent, with the rotation by Rodrigues' formula."""
    along = np.outer(angular, angular)
    is_rotating = bool(angular.any())
    rotation = (
        [along, np.eye(3) - along, skew(angular), np.zeros((3, 3))]
        if is_rotating
        else [np.eye(3), *[np.zeros((3, 3))] * 3]
    )
    terms = np.zeros((12, 4))
    for k, matrix in enumerate(rotation):
        terms[:9, k] = (placement.rotation @ matrix).T.ravel()  # columns of the rotation, one after the other
    terms[9:, 0] = placement.translation
    terms[9:, 3] = placement.rotation @ linear
    return terms


def _require_same_motion(model: pin.Model, joint_id: int, terms: Array) -> None:
    """Compare the pose with Pinocchio's at an arbitrary position, to catch every joint type not foreseen here."""
    position = 0.7
    expected = model.jointPlacements[joint_id] * _joint_data(model, joint_id, position).M
    pose = terms @ [1.0, np.cos(position), np.sin(position), position]
    if not np.allclose(pose, np.concatenate([expected.rotation.T.ravel(), expected.translation]), atol=1e-9):
        raise UnsupportedJoint(model.names[joint_id], model.joints[joint_id].shortname())


def _ancestors(parents: tuple[int, ...]) -> NDArray[np.bool_]:
    n = len(parents)
    result = np.eye(n, dtype=bool)
    for i, parent in enumerate(parents):
        if parent >= 0:
            result[:, i] |= result[:, parent]
    return result


@dataclass(frozen=True)
class Frames:
    """Poses of the bodies and motions of the joints.

    Attributes:
        rotation: Base components of the body axes, (n, 3, 3, N), entry [i, b] is axis b of body i.
        origin: Origins of the body frames, (n, 3, N) [m].
        axes: Motion of each joint per unit of its velocity, (n, 6, N).
    """

    rotation: Array
    origin: Array
    axes: Array


class Sweep:
    """Kinematics of a tree for one chunk of samples at a time.

    Args:
        tree: The kinematic tree.
        workspace: Buffers of the results, which the next chunk overwrites.
    """

    def __init__(self, tree: JointTree, workspace: Workspace):
        self.tree = tree
        self.workspace = workspace

    def frames(self, q: Array) -> Frames:
        """Compute poses and joint axes for positions (N, n) [rad or m]."""
        n, samples = self.tree.n, len(q)
        pose = self.workspace.array("pose", n, 4, 3, samples)
        self._compose(self._relative_poses(q), pose)
        rotation, origin = pose[:, :3], pose[:, 3]

        axes = self.workspace.array("axes", n, 6, samples)
        linear, angular = axes[:, :3], axes[:, 3:]
        _rotate(rotation, self.tree.axis_angular, angular, self.workspace.array("scratch", n, 3, samples))
        cross(last(origin), last(angular), last(linear))
        for b in np.flatnonzero(self.tree.axis_linear.any(axis=0)):
            linear += self.tree.axis_linear[:, b, None, None] * rotation[:, b]
        return Frames(rotation, origin, axes)

    def accumulate(self, axes: Array, rates: Array, name: str) -> Array:
        """Sum ``axes * rates`` from the base to each body: the bodies' twists if ``rates`` are joint velocities.

        Args:
            axes: Motions of the joints, (n, 6, N).
            rates: Their factors, (n, N).
            name: Name of the result's buffer.

        Returns:
            Motions of the bodies, (n, 6, N).
        """
        result = self.workspace.array(name, *axes.shape)
        np.multiply(axes, rates[:, None], out=result)
        for body, parent in enumerate(self.tree.parents):
            if parent >= 0:
                result[body] += result[parent]
        return result

    def axis_rates(self, twists: Array, axes: Array, name: str) -> Array:
        """Compute the motions ``V_j x s_j`` (n, 6, N): the rates of the joint axes.

        Seen from any body i beyond joint j, the derivative of its twist is ``d V_i / d q_j = V_j x s_j``.
        """
        result = self.workspace.array(name, *axes.shape)
        motion_cross(last(twists), last(axes), last(result))
        return result

    def _relative_poses(self, q: Array) -> Array:
        """Compute the poses of the bodies in their parents, (n, 4, 3, N): three rotation columns and the position."""
        n, samples = self.tree.n, len(q)
        basis = self.workspace.array("pose basis", n, 4, samples)
        basis[:, 0] = 1.0
        np.cos(q.T, out=basis[:, 1])
        np.sin(q.T, out=basis[:, 2])
        basis[:, 3] = q.T
        relative = self.workspace.array("relative pose", n, 12, samples)
        np.matmul(self.tree.pose_terms, basis, out=relative)
        return relative.reshape(n, 4, 3, samples)

    def _compose(self, relative: Array, pose: Array) -> None:
        """Chain relative poses (n, 4, 3, N) to poses in the base (n, 4, 3, N)."""
        scratch = self.workspace.array("scratch pose", *relative.shape[1:])
        for body, parent in enumerate(self.tree.parents):
            out = pose[body]
            if parent < 0:
                out[...] = relative[body]
                continue
            before = pose[parent]
            np.multiply(before[0], relative[body, :, :1], out=out)
            for b in (1, 2):
                out += np.multiply(before[b], relative[body, :, b : b + 1], out=scratch)
            out[3] += before[3]


def _rotate(rotation: Array, vectors: Array, out: Array, scratch: Array) -> None:
    """Write constant body vectors (n, 3) in base axes into ``out`` (n, 3, N)."""
    used = np.flatnonzero(vectors.any(axis=0))
    out[...] = 0.0
    for b in used:
        out += np.multiply(rotation[:, b], vectors[:, b, None, None], out=scratch)
