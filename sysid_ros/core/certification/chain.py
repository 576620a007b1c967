"""Where the bodies of an arm are and how they move over pieces of a trajectory, as series, seen from the base frame."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.path import PathPieces, quadratic
from sysid_ros.core.certification.taylor import apply, circle, cross, multiply, negate
from sysid_ros.core.common.spatial import axis_frame
from sysid_ros.core.model.kinematics import joint_axis
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Chain:
    """The constants of the kinematics of an arm. Index i of n is joint i + 1 and the body it moves.

    Attributes:
        turns: From each body's axis frame to the frame the next joint turns in, (n, 3, 3): the axis frame of a body has
            its joint's axis as z.
        offsets: Origin of each joint in the axis frame of the body before, (n, 3) [m]; of the first in the base frame.
        body_turns: Axes of the axis frame of each body in its own joint frame, as columns, (n, 3, 3).
        gravity: In the base frame, (3,) [m/s^2].
    """

    turns: Array
    offsets: Array
    body_turns: Array
    gravity: Array


def build_chain(robot: RobotModel) -> Chain:
    """Return the constants of the kinematics of an arm."""
    model, n = robot.pin_model, robot.n
    base = model.frames[model.getFrameId(robot.base_frame)].placement
    turns, offsets, body_turns = np.empty((n, 3, 3)), np.empty((n, 3)), np.empty((n, 3, 3))
    before = np.array(base.rotation)  # the base frame plays the part of the axis frame of body 0
    for index in range(n):
        placement = model.jointPlacements[index + 1]
        shift = placement.translation - (base.translation if index == 0 else 0.0)
        body_turns[index] = axis_frame(joint_axis(model, index + 1))
        turns[index] = before.T @ placement.rotation @ body_turns[index]
        offsets[index] = before.T @ shift
        before = body_turns[index]
    return Chain(turns, offsets, body_turns, np.array(robot.gravity))


class Motion:
    """Series of the chain over pieces of a path.

    Args:
        chain: The arm.
        path: The pieces.
    """

    def __init__(self, chain: Chain, path: PathPieces):
        self.chain = chain
        self.path = path
        self.velocity = quadratic(path.velocity)
        """Joint velocities, (4, n, P) [rad/s]."""
        self.acceleration = quadratic(path.acceleration)
        """Joint accelerations, (4, n, P) [rad/s^2]."""
        self._place()

    def _place(self) -> None:
        """Rotations of the axis frames, (4, n, 3, 3, P), offsets (4, n, 3, P) and origins (4, n, 3, P) [m]."""
        n, pieces = self.chain.turns.shape[0], self.path.middle.size
        cosine, sine = circle(self.path.position)
        # Row k: how the old x and y axes make the new axis k.
        trigonometry = np.stack([np.stack([cosine, sine], 1), np.stack([negate(sine), cosine], 1)], 1)  # (4,2,2,n,P)
        # Axes as rows of the array: frames[:, i, k] is axis k of body i + 1.
        frames = np.empty((4, n, 3, 3, pieces))
        offsets = np.empty((4, n, 3, pieces))
        before = np.zeros((4, 3, 3, pieces))
        before[0] = np.eye(3)[..., None]
        for index in range(n):
            flat = before.reshape(4, 3, -1)
            offsets[:, index] = apply(self.chain.offsets[index][None], flat).reshape(4, 3, pieces)
            turned = apply(self.chain.turns[index].T, flat).reshape(4, 3, 3, pieces)
            frames[:, index, :2] = multiply(trigonometry[:, :, :, index, None], turned[:, None, :2], axis=2)
            frames[:, index, 2] = turned[:, 2]
            before = frames[:, index]
        self.frames = frames
        self.offsets = offsets
        self.origins = np.cumsum(offsets, axis=1)

    @property
    def axes(self) -> Array:
        """Axes of the joints, (4, n, 3, P)."""
        return self.frames[:, :, 2]

    @cached_property
    def body_axes(self) -> Array:
        """Axes of the joint frames of the bodies, (4, n, 3, 3, P): ``[:, i, k]`` is axis k of body i + 1."""
        shape = self.frames.shape
        return apply(self.chain.body_turns, self.frames.reshape(*shape[:3], -1)).reshape(shape)

    @cached_property
    def rates(self) -> tuple[Array, Array, Array, Array]:
        """Angular velocity and acceleration, velocity and acceleration of the origins, each (4, n, 3, P), in SI.

        In the base frame, gravity not included.
        """
        turning = multiply(self.axes, self.velocity[:, :, None])
        angular = np.cumsum(turning, axis=1)
        before = np.zeros_like(angular)
        before[:, 1:] = angular[:, :-1]
        changes = multiply(self.axes, self.acceleration[:, :, None])
        twisting = cross(before, turning)
        angular_rate = np.cumsum(changes + twisting, axis=1)
        rate_before = np.zeros_like(angular)
        rate_before[:, 1:] = angular_rate[:, :-1]
        steps = cross(before, self.offsets)
        velocity = np.cumsum(steps, axis=1)
        acceleration = np.cumsum(cross(rate_before, self.offsets) + cross(before, steps), axis=1)
        return angular, angular_rate, velocity, acceleration
