"""Spatial vectors of many samples at once, all in base axes and about the base origin.

Arrays keep the samples last, so that numpy's inner loops run over them: a 3-vector is ``(..., 5, N)`` with components
``x, y, z, x, y``. The repeated two make a cross product four calls on contiguous views instead of nine. A motion vector
is ``(..., 2, 5, N)``: angular part, then the velocity of the point of the body that passes the base origin.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.common.errors import ModelError
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]


def extend(vector: Array) -> Array:
    """Writes the repeated components of ``(..., 5, N)`` in place and returns it."""
    vector[..., 3:, :] = vector[..., :2, :]
    return vector


def cross(left: Array, right: Array, out: Array, scratch: Array) -> Array:
    """Writes ``left x right`` into ``out``, both factors extended, ``out`` and ``scratch`` ``(..., 3, N)``."""
    np.multiply(left[..., 1:4, :], right[..., 2:5, :], out=out)
    np.multiply(left[..., 2:5, :], right[..., 1:4, :], out=scratch)
    out -= scratch
    return out


def motion_cross(left: Array, right: Array, out: Array, scratch: Array) -> Array:
    """Writes the motion vector ``left x right`` (Lie bracket of twists) into ``out``.

    Args:
        left: Motion vectors, (n, 2, 5, N).
        right: Motion vectors, (n, 2, 5, N).
        out: Result, (n, 2, 5, N), extended.
        scratch: At least as large as ``out``'s (n, 2, 3, N).
    """
    angular = left[:, :1]
    result, extra = out[:, :, :3], scratch[:, :, :3]
    cross(angular, right, result, extra)
    linear = cross(left[:, 1], right[:, 0], extra[:, 0], extra[:, 1])
    result[:, 1] += linear
    return extend(out)


CHUNK = 520
"""Samples handled at a time: hides the cost of a numpy call, takes about 8 MB for seven joints; no power of two, whose
strides collide in the cache."""


class Workspace:
    """Named float buffers. Not safe to share between threads: give each thread its own regressor object."""

    def __init__(self) -> None:
        self._buffers: dict[str, Array] = {}
        self._zeroed: dict[str, Array] = {}

    def array(self, name: str, *shape: int) -> Array:
        """An array of this shape with arbitrary content, valid until the name is asked for again."""
        size = prod(shape)
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < size:
            buffer = self._buffers[name] = np.empty(size)
        return buffer[:size].reshape(shape)

    def zeroed(self, name: str, *shape: int) -> Array:
        """An array whose entries are zero wherever the caller, always the same, never writes."""
        buffer = self._zeroed.get(name)
        if buffer is None or buffer.shape != shape:
            buffer = self._zeroed[name] = np.zeros(shape)
        return buffer


def chunks(samples: int) -> list[slice]:
    """Splits ``samples`` into consecutive slices of at most :data:`CHUNK`."""
    return [slice(start, min(start + CHUNK, samples)) for start in range(0, samples, CHUNK)]


class UnsupportedJoint(ModelError):
    """A joint whose motion is not one constant screw.

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
        """Reads the tree from a robot or a Pinocchio model.

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
    """Returns the Pinocchio model of a robot, or the bare model given."""
    return robot.pin_model if isinstance(robot, RobotModel) else robot


def scale_gravity(robot: RobotModel | pin.Model, factor: float) -> pin.Model:
    """Returns a copy of the robot's model in ``factor`` times its gravity."""
    copy = pinocchio_model(robot).copy()
    copy.gravity.linear = factor * np.array(copy.gravity.linear)
    return copy


def _screw(model: pin.Model, joint_id: int) -> tuple[Array, Array]:
    """Linear and angular part of the joint's motion in its own frame, at zero position."""
    data = _joint_data(model, joint_id, 0.0)
    screw = np.asarray(data.S, dtype=float).ravel()
    return screw[:3], screw[3:]


def _joint_data(model: pin.Model, joint_id: int, position: float) -> pin.JointData:
    joint = model.joints[joint_id]
    data = joint.createData()
    joint.calc(data, np.full(model.nq, position))
    return data


def _pose_terms(placement: pin.SE3, linear: Array, angular: Array) -> Array:
    """Coefficients (12, 4) of the pose of a body in its parent: rotation by Rodrigues' formula, translation linear."""
    along = np.outer(angular, angular)
    is_rotating = bool(angular.any())
    rotation = (
        [along, np.eye(3) - along, pin.skew(angular), np.zeros((3, 3))]
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
    """Compares the pose with Pinocchio's at an arbitrary position, which catches every joint type not foreseen here."""
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
    """Poses of the bodies and motion vectors of the joints (layout: see :mod:`vectors`).

    Attributes:
        rotation: Base components of the body axes, (n, 3, 5, N), entry [i, b] is axis b of body i.
        origin: Origins of the body frames, (n, 5, N) [m].
        axes: Motion vector of each joint per unit of its velocity, (n, 2, 5, N).
    """

    rotation: Array
    origin: Array
    axes: Array


class Sweep:
    """Evaluates kinematics of a tree for one chunk of samples at a time.

    Args:
        tree: The kinematic tree.
        workspace: Where the results live; they are overwritten by the next chunk.
    """

    def __init__(self, tree: JointTree, workspace: Workspace):
        self.tree = tree
        self.workspace = workspace

    def frames(self, q: Array) -> Frames:
        """Poses and joint axes for positions (N, n) [rad or m]."""
        n, samples = self.tree.n, len(q)
        pose = self.workspace.array("pose", n, 4, 5, samples)
        self._compose(self._relative_poses(q), pose)
        rotation, origin = pose[:, :3], pose[:, 3]

        axes = self.workspace.array("axes", n, 2, 5, samples)
        scratch = self.workspace.array("scratch", n, 2, 3, samples)
        angular, linear = axes[:, 0], axes[:, 1, :3]
        _rotate(rotation, self.tree.axis_angular, angular, self.workspace.array("scratch 5", n, 5, samples))
        cross(origin, angular, linear, scratch[:, 0])
        for b in np.flatnonzero(self.tree.axis_linear.any(axis=0)):
            linear += self.tree.axis_linear[:, b, None, None] * rotation[:, b, :3]
        extend(axes[:, 1])
        return Frames(rotation, origin, axes)

    def accumulate(self, axes: Array, rates: Array, name: str) -> Array:
        """Sums ``axes * rates`` from the base to each body: the bodies' twists if ``rates`` are joint velocities.

        Args:
            axes: Motion vectors of the joints, (n, 2, 5, N).
            rates: Their factors, (n, N).
            name: Name of the result's buffer.

        Returns:
            Motion vectors of the bodies, (n, 2, 5, N).
        """
        result = self.workspace.array(name, *axes.shape)
        np.multiply(axes, rates[:, None, None], out=result)
        for body, parent in enumerate(self.tree.parents):
            if parent >= 0:
                result[body] += result[parent]
        return result

    def axis_rates(self, twists: Array, axes: Array, name: str) -> Array:
        """Motion vectors ``V_j x s_j`` (n, 2, 5, N): how the joint axes move.

        Seen from any body i beyond joint j, the derivative of its twist is ``d V_i / d q_j = V_j x s_j``.
        """
        scratch = self.workspace.array("scratch", *axes.shape[:2], 3, axes.shape[-1])
        return motion_cross(twists, axes, self.workspace.array(name, *axes.shape), scratch)

    def _relative_poses(self, q: Array) -> Array:
        """Poses of the bodies in their parents, (n, 4, 3, N): three rotation columns and the position."""
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
        """Chains relative poses (n, 4, 3, N) to poses in the base (n, 4, 5, N)."""
        scratch = self.workspace.array("scratch pose", *relative.shape[1:])
        for body, parent in enumerate(self.tree.parents):
            out = pose[body, :, :3]
            if parent < 0:
                out[...] = relative[body]
                continue
            before = pose[parent, :, :3]
            np.multiply(before[0], relative[body, :, :1], out=out)
            for b in (1, 2):
                out += np.multiply(before[b], relative[body, :, b : b + 1], out=scratch)
            out[3] += before[3]
        extend(pose)


def _rotate(rotation: Array, vectors: Array, out: Array, scratch: Array) -> None:
    """Writes constant body vectors (n, 3) in base axes into ``out`` (n, 5, N)."""
    used = np.flatnonzero(vectors.any(axis=0))
    out[...] = 0.0
    for b in used:
        out += np.multiply(rotation[:, b], vectors[:, b, None, None], out=scratch)
