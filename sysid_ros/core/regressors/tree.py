"""The kinematic tree as constant arrays: what a batched sweep over samples needs from a Pinocchio model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.errors import ModelError
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]


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
