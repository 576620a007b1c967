"""Poses, joint axes and motions of a serial arm at many samples, and how they change with a joint's state.

With the motion vectors ``S_j`` of the joints, velocities ``V_j = sum S_i v_i`` and accelerations
``A_j = sum S_i a_i + (V_i x S_i) v_i - gravity`` of the bodies, what a body beyond joint j sees changes as follows
(``r_j = V_j x S_j``, index p: the body before j):

* with ``q_j``: velocity by ``r_j``, acceleration by ``A_p x S_j - r_j x V_p + r_j x V``;
* with ``v_j``: velocity by ``S_j``, acceleration by ``2 r_j + S_j x V``;
* with ``a_j``: acceleration by ``S_j``.

Seen from there the axes of the joints before j turn by ``S_i x S_j`` per unit of ``q_j``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.errors import ModelError
from sysid_ros.core.common.spatial import motion_cross
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.regressors.joint_tree import JointTree, Sweep, Workspace

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ChainMotion:
    """Motions of the joints and bodies of N samples, (N, n, 6) each, in one common frame.

    Attributes:
        axes: Motion vectors ``S_j`` of the joints per unit of velocity.
        rates: ``r_j = V_j x S_j``.
        velocity: Velocities ``V_j`` of the bodies.
        acceleration: Accelerations ``A_j`` of the bodies, gravity taken off.
        gravity: Acceleration of the base, ``-gravity``, (N, 6).
    """

    axes: Array
    rates: Array
    velocity: Array
    acceleration: Array
    gravity: Array

    @classmethod
    def of(cls, axes: Array, gravity: Array, v: Array, a: Array) -> ChainMotion:
        """Accumulates the motions of joint axes (N, n, 6) with velocities and accelerations (N, n)."""
        velocity = np.cumsum(axes * v[..., None], axis=1)
        rates = motion_cross(velocity, axes)
        acceleration = np.cumsum(axes * a[..., None] + rates * v[..., None], axis=1) + gravity[:, None]
        return cls(axes, rates, velocity, acceleration, gravity)

    @property
    def position_bias(self) -> Array:
        """``A_p x S_j - r_j x V_p``, (N, n, 6): the change of acceleration with ``q_j`` without its ``r_j x V``."""
        before_v = np.concatenate([np.zeros_like(self.velocity[:, :1]), self.velocity[:, :-1]], axis=1)
        before_a = np.concatenate([self.gravity[:, None], self.acceleration[:, :-1]], axis=1)
        return motion_cross(before_a, self.axes) - motion_cross(self.rates, before_v)


class SerialArm:
    """Forward kinematics of a serial arm for many postures at once.

    Args:
        robot: The arm.

    Raises:
        ModelError: The arm branches.
        UnsupportedJoint: A joint is not revolute, prismatic or helical.
    """

    def __init__(self, robot: RobotModel):
        self.tree = JointTree.of(robot)
        if self.tree.parents != tuple(range(-1, self.tree.n - 1)):
            raise ModelError("the receding-horizon planner needs an arm without branches")
        self._sweep = Sweep(self.tree, Workspace())

    def frames(self, q: Array) -> tuple[Array, Array, Array]:
        """Orientations (N, n, 3, 3), origins (N, n, 3) of the bodies and joint axes (N, n, 6) at postures (N, n).

        All in the frame of the Pinocchio model's world; the axes are motions about its origin.
        """
        frames = self._sweep.frames(q)
        rotation, axes = frames.rotation.transpose(3, 0, 2, 1), frames.axes.transpose(2, 0, 1)
        return np.ascontiguousarray(rotation), frames.origin.transpose(2, 0, 1).copy(), axes.copy()
