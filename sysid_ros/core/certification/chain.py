"""Where the bodies of an arm are and how they move over pieces of a trajectory, as Taylor models seen from the base.

A *series*, the quadratic Taylor model of a function of time over P pieces at once, is an array (4, ..., P). Over a
piece, with ``u`` in [-1, 1] the time since its middle divided by its half length, the function lies within
``x[0] + x[1] u + x[2] u^2 +- x[3]``. Every operation keeps this true in exact arithmetic; rounding is accounted for
once, at the end (see :data:`sysid_ros.core.certification.checks.ROUNDING`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.path import PathPieces, quadratic
from sysid_ros.core.common.spatial import axis_frame
from sysid_ros.core.model.kinematics import joint_axis
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]

_NEXT, _AFTER = np.array([1, 2, 0]), np.array([2, 0, 1])


def constant(value: Array, pieces: int) -> Array:
    """Return the series of a value (...) that does not change, (4, ..., P)."""
    series = np.zeros((4, *np.shape(value), pieces))
    series[0] = np.asarray(value)[..., None]
    return series


def multiply(x: Array, y: Array, axis: int | None = None) -> Array:
    """Multiply two series, and sum over an axis of theirs.

    Args:
        x: Series (4, ..., P).
        y: Series of a shape that broadcasts with x.
        axis: Axis of the product to sum over, counted with the leading 4; None sums over none.

    Returns:
        The series of the product.
    """
    where = None if axis is None else axis - 1

    def total(values: Array) -> Array:
        return values if where is None else np.add.reduce(values, axis=where)

    (x0, x1, x2, rx), (y0, y1, y2, ry) = x, y
    constant_term = total(x0 * y0)
    result = np.empty((4, *constant_term.shape))
    result[0] = constant_term
    result[1] = total(x0 * y1 + x1 * y0)
    result[2] = total(x0 * y2 + x1 * y1 + x2 * y0)
    largest_x, largest_y = np.abs(x[:3]).sum(axis=0), np.abs(y[:3]).sum(axis=0)
    rest = total(largest_x * ry + rx * (largest_y + ry))
    # |u^3|, u^4 <= 1.
    result[3] = np.abs(total(x1 * y2 + x2 * y1)) + np.abs(total(x2 * y2)) + rest
    return result


def cross(x: Array, y: Array) -> Array:
    """Return the cross product of two series of vectors (4, ..., 3, P)."""
    left = np.stack([x[..., _NEXT, :], x[..., _AFTER, :]], axis=1)
    right = np.stack([y[..., _AFTER, :], negate(y[..., _NEXT, :])], axis=1)
    return multiply(left, right, axis=1)


def negate(x: Array) -> Array:
    """Return the series of the opposite."""
    result = -x
    result[3] = x[3]
    return result


def subtract(x: Array, y: Array) -> Array:
    """Return the series of a difference."""
    result = x - y
    result[3] = x[3] + y[3]
    return result


def apply(matrix: Array, x: Array) -> Array:
    """Multiply a constant matrix (..., k, m) with the vectors (4, ..., m, P) of a series, (4, ..., k, P)."""
    result = np.empty((4, *np.broadcast_shapes(matrix.shape[:-2], x.shape[1:-2]), matrix.shape[-2], x.shape[-1]))
    np.matmul(matrix, x[:3], out=result[:3])
    np.matmul(np.abs(matrix), x[3], out=result[3])
    return result


def circle(angle: Array) -> tuple[Array, Array]:
    """Cosine and sine of polynomials in u.

    With f the cosine or sine and q the angle, ``|d^3 f(q)/du^3| <= |q'|^3 + 3 |q'| |q''| + |q'''|``.

    Args:
        angle: Coefficients of u^0, u^1, ... and last what the angle may differ by, (K + 1, ..., P) [rad].

    Returns:
        Their series, each (4, ..., P).
    """
    coefficients, rest = angle[:-1], angle[-1]
    order = np.arange(len(coefficients), dtype=float).reshape(-1, *[1] * rest.ndim)
    size = np.abs(coefficients)
    first = (order * size).sum(axis=0)
    second = (order * (order - 1.0) * size).sum(axis=0)
    third = (order * (order - 1.0) * (order - 2.0) * size).sum(axis=0)
    remainder = (first**3 + 3.0 * first * second + third) / 6.0 + rest
    cosine, sine = np.cos(coefficients[0]), np.sin(coefficients[0])
    slope, curve = coefficients[1], coefficients[2]
    square = 0.5 * slope * slope
    return (
        np.stack([cosine, -sine * slope, -cosine * square - sine * curve, remainder]),
        np.stack([sine, cosine * slope, -sine * square + cosine * curve, remainder]),
    )


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
