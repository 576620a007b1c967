"""Kinematic trees of joints with one degree of freedom, for the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core import kernel
from sysid_ros.core.common.errors import ModelError
from sysid_ros.core.common.spatial import axis_frame
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]

_NEGLIGIBLE = 1e-15
"""Entries of constant rotations below this are rounding of zero."""

_JOINTS_NEEDED = (
    "the regressors need joints with one position, one velocity and a constant axis: revolute, prismatic or helical "
    "(make a continuous joint a plain revolute one, lock the others)"
)


@dataclass(frozen=True)
class Frames:
    """Poses of the bodies and motions of the joints in the base, the samples last.

    Attributes:
        rotation: Base components of the body axes, (n, 3, 3, N), entry [i, b] is axis b of body i.
        origin: Origins of the body frames, (n, 3, N) [m].
        axes: Motion of each joint per unit of its velocity about the base origin, linear before angular, (n, 6, N).
    """

    rotation: Array
    origin: Array
    axes: Array


@dataclass(frozen=True)
class JointTree:
    """Joints and bodies 0..n-1 (Pinocchio's 1..n), each joint moving the body of the same number.

    Attributes:
        names: Joint names, n of them.
        parents: Parent body of each body, -1 for the base.
        is_ancestor: Whether joint j moves body i, (n, n) bool, entry [j, i]; true on the diagonal.
        compiled: The tree in the kernel.
    """

    names: tuple[str, ...]
    parents: tuple[int, ...]
    is_ancestor: NDArray[np.bool_]
    compiled: Any

    @property
    def n(self) -> int:
        """Number of joints and of moving bodies."""
        return len(self.parents)

    @classmethod
    def of(cls, robot: RobotModel | pin.Model, in_base: bool = False) -> JointTree:
        """Return the tree of a robot or a Pinocchio model.

        Reading takes longer than a cycle of the torque loop, so a robot's tree is read once and kept with it. With
        ``in_base`` the robot's base frame takes the place of the model's own.

        Raises:
            ModelError: A joint is not revolute, prismatic or helical.
        """
        if not isinstance(robot, RobotModel):
            return cls._read(robot, pin.SE3.Identity())
        trees = _KEPT.setdefault(robot, {})
        if in_base not in trees:
            model = robot.pin_model
            base = model.frames[model.getFrameId(robot.base_frame)].placement if in_base else pin.SE3.Identity()
            trees[in_base] = cls._read(model, base)
        return trees[in_base]

    @classmethod
    def _read(cls, model: pin.Model, base: pin.SE3) -> JointTree:
        n = model.njoints - 1
        parents = tuple(int(parent) - 1 for parent in list(model.parents)[1:])
        spins, pitches = np.zeros((2, n))
        turns, places, frames = np.empty((n, 3, 3)), np.empty((n, 3)), np.empty((n, 3, 3))
        for i in range(n):
            placement = model.jointPlacements[i + 1] if parents[i] >= 0 else base.actInv(model.jointPlacements[i + 1])
            frames[i], spins[i], pitches[i] = _screw(model, i + 1)
            before = frames[parents[i]] if parents[i] >= 0 else np.eye(3)
            turns[i] = _snap(frames[i].T @ placement.rotation.T @ before)
            places[i] = before.T @ placement.translation
        gravity = base.rotation.T @ model.gravity.linear
        return cls(
            names=tuple(model.names[1:]),
            parents=parents,
            is_ancestor=_ancestors(parents),
            compiled=kernel.Tree(parents, turns, places, spins, pitches, _snap(frames), gravity),
        )

    def frames(self, q: ArrayLike) -> Frames:
        """Compute poses and joint axes for positions (N, n) [rad or m]."""
        q = np.ascontiguousarray(q, dtype=float)
        shapes = ((self.n, 3, 3, len(q)), (self.n, 3, len(q)), (self.n, 6, len(q)))
        result = Frames(*(np.empty(shape) for shape in shapes))
        self.compiled.frames(q, result.rotation, result.origin, result.axes)
        return result


_KEPT: WeakKeyDictionary[RobotModel, dict[bool, JointTree]] = WeakKeyDictionary()
"""Trees of robots that are in use."""


def _screw(model: pin.Model, joint_id: int) -> tuple[Array, float, float]:
    """Return a frame (3, 3) whose z is the axis of a joint, and its rotation and translation along it per position."""
    joint = model.joints[joint_id]
    if joint.nq != 1 or joint.nv != 1:
        raise ModelError(f"joint '{model.names[joint_id]}' is a {joint.shortname()}", _JOINTS_NEEDED)
    screw = np.asarray(_joint_data(model, joint_id, 0.0).S, dtype=float).ravel()
    linear, angular = screw[:3], screw[3:]
    axis = angular if angular.any() else linear / np.linalg.norm(linear)
    spin, pitch = float(angular @ axis), float(linear @ axis)
    # Compared with Pinocchio's pose at an arbitrary position, to catch every type of joint not foreseen here.
    position = 0.7
    moved = _joint_data(model, joint_id, position).M
    turned = pin.AngleAxis(spin * position, axis).toRotationMatrix()
    if not (np.allclose(moved.rotation, turned, atol=1e-9) and np.allclose(moved.translation, pitch * position * axis)):
        raise ModelError(f"joint '{model.names[joint_id]}' is a {joint.shortname()}", _JOINTS_NEEDED)
    return axis_frame(axis), spin, pitch


def _joint_data(model: pin.Model, joint_id: int, position: float) -> pin.JointData:
    joint = model.joints[joint_id]
    data = joint.createData()
    joint.calc(data, np.full(model.nq, position))
    return data


def _snap(matrices: Array) -> Array:
    """Make entries that are 0 or 1 up to rounding exactly that."""
    snapped = np.where(np.abs(np.abs(matrices) - 1.0) < _NEGLIGIBLE, np.sign(matrices), matrices)
    return np.where(np.abs(snapped) < _NEGLIGIBLE, 0.0, snapped)


def _ancestors(parents: tuple[int, ...]) -> NDArray[np.bool_]:
    n = len(parents)
    result = np.eye(n, dtype=bool)
    for i, parent in enumerate(parents):
        if parent >= 0:
            result[:, i] |= result[:, parent]
    return result
