"""Distances of the arm's spheres to each other, to the ground and to boxes over pieces of a path.

For every unit vector n, ``distance(x, K) >= n . x - max_{k in K} n . k`` for a point x and a convex body K. n is taken
from the middle of a piece; along it the centre of a sphere is a series, and position errors e move it by at most

    sum_j |n . J_j(q_m)| e_j + sum_ij R_ij (D_i e_j + e_i e_j / 2),

with q_m the posture in the middle, D_i how far joint i is from it within the piece, and R_ij the bound of
``|d^2 p / dq_i dq_j| = |z_i x (z_j x (p - p_j))|``, i <= j: the largest possible distance of the point to origin j.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.chain import Motion
from sysid_ros.core.certification.stop_model import LimitKind
from sysid_ros.core.collision.clearance import CollisionModel
from sysid_ros.core.model.robot import RobotModel, Sphere

Array = NDArray[np.float64]

_TINY = 1e-12
"""Lengths below this give no direction [m]; the bound is then weaker, not wrong."""


@dataclass(frozen=True)
class Gap:
    """Smallest distances of one kind, one row per pair of things.

    Attributes:
        limit: The limit.
        names: The two objects of each row.
        bound: Lower bound of the distance in a piece, (rows, P) [m].
        middle: The bound in the middle of each piece for a piece without length, (rows, P) [m].
    """

    limit: LimitKind
    names: Sequence[tuple[str, ...]]
    bound: Array
    middle: Array


class SphereBounds:
    """The spheres of an arm, and how far position errors can move them.

    Args:
        robot: The arm.
        collision: Pairs that must not touch.
        error: Largest position errors, (n,) [rad].
    """

    def __init__(self, robot: RobotModel, collision: CollisionModel, error: Array):
        self._collision = collision
        self._error = error
        self._bodies = np.array([sphere.body for sphere in collision.spheres], dtype=int)
        self._radii = np.array([sphere.radius for sphere in collision.spheres])
        self._links = [sphere.link for sphere in collision.spheres]
        base = robot.pin_model.frames[robot.pin_model.getFrameId(robot.base_frame)].placement
        centers = np.array([sphere.center for sphere in collision.spheres], dtype=float).reshape(-1, 3)
        at_base = self._bodies == 0
        centers[at_base] = (centers[at_base] - base.translation) @ base.rotation
        self._centers = centers
        # R_ij of the module: (spheres, n, n).
        reach = _reaches(robot, collision.spheres)
        joints = np.arange(robot.n)
        self._second = reach[:, np.maximum.outer(joints, joints)]
        first, second = collision.pairs.reshape(-1, 2).T
        self._first, self._outer = first, second
        self._pair_names = [(self._links[i], self._links[j]) for i, j in zip(first, second, strict=True)]
        self._ground_names = [(self._links[k],) for k in collision.movable]
        obstacles = collision.obstacles
        self._box_names = [(*link, obstacle.name) for obstacle in obstacles for link in self._ground_names]
        self._boxes = (
            np.array([obstacle.center for obstacle in obstacles]).reshape(-1, 3),
            np.array([obstacle.half_extents for obstacle in obstacles]).reshape(-1, 3),
            np.array([obstacle.rotation for obstacle in obstacles]).reshape(-1, 3, 3),
        )
        # Joints below both bodies move them alike and do not change their distance.
        self._between = (joints >= self._bodies[first][:, None]) & (joints < self._bodies[second][:, None])

    def with_error(self, error: Array) -> SphereBounds:
        """Return the same with other position errors, (n,) [rad]."""
        bounds = copy(self)
        bounds._error = error
        return bounds

    def evaluate(self, motion: Motion) -> list[Gap]:
        """Bounds of all distances over the pieces of a motion, tracking error and radii taken off."""
        collision, movable = self._collision, self._collision.movable
        if not len(self._radii):
            return []
        centers, axes, origins = motion.points(self._bodies, self._centers)
        jacobian = self._jacobian(centers[0], axes, origins)  # (spheres, n, 3, P)
        deviation = np.abs(motion.path.position[1:]).sum(axis=0)  # (n, P)
        gaps = []
        if len(self._first):
            gaps.append(self._pairs(centers, jacobian, deviation))
        if not len(movable):
            return gaps
        every = np.ones((len(movable), deviation.shape[0]), dtype=bool)
        moved = self._moved_by(movable, every, deviation)
        moving, turning, radii = centers[:, movable], jacobian[movable], self._radii[movable, None]
        if collision.ground_height is not None:
            up = np.array([0.0, 0.0, 1.0])[:, None]
            start = moving[0, :, 2] - collision.ground_height - radii
            approach = _Approach(up, start, moving, turning, moved)
            gaps.append(approach.bound(LimitKind.GROUND, self._ground_names, self._error))
        if collision.obstacles:
            normals, start = _towards_boxes(*self._boxes, moving[0])
            start -= radii
            approach = _Approach(normals, start, moving, turning, moved)
            gaps.append(approach.bound(LimitKind.OBSTACLE, self._box_names, self._error))
        return gaps

    def _jacobian(self, centers: Array, axes: Array, origins: Array) -> Array:
        """Motion of the centres with each joint in the middle of the pieces, (spheres, n, 3, P) [m]."""
        arms = centers[:, None] - origins[None]
        jacobian = np.cross(axes[None], arms, axis=2)
        fixed = np.arange(axes.shape[0]) >= self._bodies[:, None]
        jacobian[fixed] = 0.0
        return jacobian

    def _moved_by(self, spheres: NDArray[np.int64], joints: Array, deviation: Array) -> tuple[Array, Array]:
        """Compute the two terms of the module's second sum, (k, P), (k, 1), for errors of some joints (k, n)."""
        second = self._second[spheres]
        errors = joints * self._error
        drift = np.einsum("kij,kj->ki", second, errors) @ deviation
        return drift, 0.5 * np.einsum("ki,kij,kj->k", errors, second, errors)[:, None]

    def _pairs(self, centers: Array, jacobian: Array, deviation: Array) -> Gap:
        first, outer = self._first, self._outer
        difference = centers[:, outer] - centers[:, first]
        difference[3] = centers[3, outer] + centers[3, first]
        length = np.linalg.norm(difference[0], axis=1)
        normals = difference[0] / np.maximum(length, _TINY)[:, None]
        start = length - (self._radii[first] + self._radii[outer])[:, None]
        turning = jacobian[outer] * self._between[..., None, None]
        moved = self._moved_by(outer, self._between, deviation)
        approach = _Approach(normals, start, difference, turning, moved)
        return approach.bound(LimitKind.SELF_COLLISION, self._pair_names, self._error)


@dataclass(frozen=True)
class _Approach:
    """Approach of k points towards objects that they must not touch."""

    normals: Array  # Directions away from it, (..., k, 3, P)
    start: Array  # Distances along them in the middle of the pieces, (..., k, P) [m]
    points: Array  # The points as series, (4, k, 3, P) [m]
    turning: Array  # How they move with each joint in the middle, (k, n, 3, P) [m]
    moved: tuple[Array, Array]  # The two terms of the module's second sum, (k, P) and (k, 1) [m]

    def bound(self, limit: LimitKind, names: Sequence[tuple[str, ...]], error: Array) -> Gap:
        """Bound the distances for position errors of the joints, (n,) [rad]."""
        slope = (self.normals * self.points[1]).sum(axis=-2)
        curve = (self.normals * self.points[2]).sum(axis=-2)
        rest = (np.abs(self.normals) * self.points[3]).sum(axis=-2)
        errors = np.tensordot(error, np.abs(_project(self.normals, self.turning)), axes=1)
        # Smallest value of slope u + curve u^2 on [-1, 1].
        is_inside = 2.0 * curve > np.abs(slope)
        lowest = np.where(is_inside, -(slope**2) / np.where(is_inside, 4.0 * curve, 1.0), curve - np.abs(slope))
        drift, second = self.moved
        middle = self.start - errors - second
        shape = (-1, self.points.shape[-1])
        return Gap(limit, names, (middle + lowest - rest - drift).reshape(shape), middle.reshape(shape))


def _project(normals: Array, turning: Array) -> Array:
    """Components along normals (..., k, 3, P) of the columns of Jacobians (k, n, 3, P), (n, ..., k, P)."""
    columns = np.moveaxis(turning, 1, 0)  # (n, k, 3, P)
    extra = (len(columns), *[1] * max(normals.ndim - 3, 0), columns.shape[1], columns.shape[-1])
    parts = [normals[..., i, :] * columns[:, :, i].reshape(extra) for i in range(3)]
    return parts[0] + parts[1] + parts[2]


def _reaches(robot: RobotModel, spheres: Sequence[Sphere]) -> Array:
    """Largest possible distance of each sphere's centre to the origin of each joint, (spheres, n) [m]; 0 if fixed."""
    lengths = [float(np.linalg.norm(placement.translation)) for placement in robot.pin_model.jointPlacements[1:]]
    result = np.zeros((len(spheres), robot.n))
    for row, sphere in zip(result, spheres, strict=True):
        far = float(np.linalg.norm(sphere.center))
        for joint in reversed(range(sphere.body)):
            row[joint] = far
            far += lengths[joint]
    return result


def _towards_boxes(centers: Array, halves: Array, rotations: Array, points: Array) -> tuple[Array, Array]:
    """Return unit normals (boxes, k, 3, P) from boxes to points (k, 3, P), and distances on them, (boxes, k, P) [m]."""
    away = points - centers[:, None, :, None]
    half = halves[:, None, :, None]
    local = np.matmul(rotations.transpose(0, 2, 1)[:, None], away)
    beyond = np.abs(local) - half
    normal = np.sign(local) * np.maximum(beyond, 0.0)
    inside = np.all(beyond <= 0.0, axis=2)
    if inside.any():
        nearest = np.argmax(beyond, axis=2)[:, :, None] == np.arange(3)[:, None]
        normal = np.where(inside[:, :, None], nearest * np.where(local < 0.0, -1.0, 1.0), normal)
    # Back in the base frame, of length 1 and with the support of the box along it, whatever the rounding of its axes.
    world = np.matmul(rotations[:, None], normal)
    world /= np.maximum(np.linalg.norm(world, axis=2, keepdims=True), _TINY)
    support = (np.abs(np.matmul(rotations.transpose(0, 2, 1)[:, None], world)) * half).sum(axis=2)
    return world, (world * away).sum(axis=2) - support
