"""Free distances of many motions at samples, and exact gradients of chosen ones.

Rows: pairs of spheres, then movable spheres to the ground, then to each obstacle. Distances to a box are negative
inside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.clearance import CollisionModel, displacements
from sysid_ros.core.planning.receding.kinematics import SerialArm
from sysid_ros.core.planning.receding.spatial import cross

Array = NDArray[np.float64]


@dataclass(frozen=True)
class DistanceSamples:
    """Distances at N postures.

    Attributes:
        free: Distance left when the tracking error has moved the arm, (N, rows) [m].
        centers: Centres of the spheres in the base frame, (N, spheres, 3) [m].
        axes: Joint axes as motions about the origin of the base frame, (N, n, 6).
    """

    free: Array
    centers: Array
    axes: Array


class FreeDistances:
    """Distances that must stay above a clearance.

    Args:
        robot: The arm.
        collision: What must not touch what.
        error: Largest position errors, (n,) [rad].
    """

    def __init__(self, robot: RobotModel, collision: CollisionModel, error: Array):
        self.n = robot.n
        self._arm = SerialArm(robot)
        base = robot.pin_model.frames[robot.pin_model.getFrameId(robot.base_frame)].placement
        self._base_rotation, self._base_origin = np.array(base.rotation), np.array(base.translation)
        spheres = collision.spheres
        self._bodies = np.array([sphere.body for sphere in spheres], dtype=int)
        self._local = np.array([sphere.center for sphere in spheres], dtype=float).reshape(-1, 3)
        self._radii = np.array([sphere.radius for sphere in spheres])
        lost_pairs, lost = displacements(robot, collision, error)
        self._pairs = np.asarray(collision.pairs, dtype=int).reshape(-1, 2)
        self._pair_taken = self._radii[self._pairs].sum(axis=1) + lost_pairs
        self._movable = np.asarray(collision.movable, dtype=int)
        self._own = self._radii[self._movable] + lost
        self._ground = collision.ground_height if self._movable.size else None
        self._obstacles = collision.obstacles if self._movable.size else ()
        self._index()

    def _index(self) -> None:
        """Lists the rows: first sphere; second sphere, or -1 for the ground, or -2 - k for obstacle k."""
        boxes, movable = self._obstacles, self._movable
        self._box_center = np.array([box.rotation.T @ box.center for box in boxes]).reshape(-1, 3)
        self._box_half = np.array([box.half_extents for box in boxes]).reshape(-1, 3)
        self._box_axes = np.array([box.rotation for box in boxes]).reshape(-1, 3, 3)
        others = [self._pairs[:, 1]] + [np.full(movable.size, -1)] * (self._ground is not None)
        others += [np.full(movable.size, -2 - k) for k in range(len(boxes))]
        self.first = np.concatenate([self._pairs[:, 0], *[movable] * (len(others) - 1)])
        self.second = np.concatenate(others)
        self._taken = np.concatenate([self._pair_taken, *[self._own] * (len(others) - 1)])

    def keep_near(self, samples: DistanceSamples, distance: float) -> None:
        """Leaves out, for speed, pairs and obstacles that no sample comes near to; what is left is renumbered."""
        is_near = samples.free.min(axis=0) < distance
        pairs = is_near[: len(self._pairs)]
        near = set(-2 - self.second[is_near & (self.second <= -2)])
        self._pairs, self._pair_taken = self._pairs[pairs], self._pair_taken[pairs]
        self._obstacles = tuple(box for k, box in enumerate(self._obstacles) if k in near)
        self._index()

    def evaluate(self, q: Array) -> DistanceSamples:
        """Distances at postures (N, n)."""
        rotation, origin, axes = self._arm.frames(q)
        centers = np.empty((len(q), self._bodies.size, 3))
        for body in np.unique(self._bodies):
            mine = self._bodies == body
            local = self._local[mine]
            centers[:, mine] = (
                local if body == 0 else local @ rotation[:, body - 1].swapaxes(1, 2) + origin[:, None, body - 1]
            )
        turn = self._base_rotation
        centers = (centers - self._base_origin) @ turn
        first, second = centers[:, self._pairs[:, 0]], centers[:, self._pairs[:, 1]]
        gaps = [_norm(first - second)]
        points = centers[:, self._movable]
        if self._ground is not None:
            gaps.append(points[..., 2] - self._ground)
        if self._obstacles:
            gaps.append(self._all_box_distances(points))
        angular = axes[..., :3] @ turn
        linear = (axes[..., 3:] + cross(axes[..., :3], self._base_origin)) @ turn
        free = np.concatenate(gaps, axis=1) - self._taken
        return DistanceSamples(free, centers, np.concatenate([angular, linear], axis=-1))

    def gradients(self, samples: DistanceSamples, chosen: Array, rows: Array) -> Array:
        """Derivatives of single distances with respect to q, (P, n), for samples (P,) and rows (P,)."""
        first, second = self.first[rows], self.second[rows]
        centers = samples.centers[chosen]
        index = np.arange(len(rows))
        a = centers[index, first]  # (P, 3)
        direction = np.zeros((len(rows), 3))
        direction[second == -1, 2] = 1.0
        pairs, boxes = second >= 0, second <= -2
        difference = a[pairs] - centers[index[pairs], second[pairs]]
        direction[pairs] = difference / np.maximum(np.linalg.norm(difference, axis=-1, keepdims=True), 1e-12)
        direction[boxes] = self._box_directions(a[boxes], -2 - second[boxes])
        axes = samples.axes[chosen]
        result = self._moves(axes, a, self._bodies[first], direction)
        other = np.where(pairs, second, 0)
        result -= pairs[:, None] * self._moves(axes, centers[index, other], self._bodies[other], direction)
        return result

    def _moves(self, axes: Array, point: Array, body: Array, direction: Array) -> Array:
        """How fast a point of a body moves in a direction per unit of joint velocity, (P, n)."""
        speed = np.einsum("pji,pi->pj", axes[..., 3:], direction)
        speed += np.einsum("pji,pi->pj", axes[..., :3], cross(point, direction))
        return speed * (np.arange(1, self.n + 1) <= body[:, None])

    def _all_box_distances(self, points: Array) -> Array:
        """Distances (N, boxes k) of all points (N, k, 3) to all boxes, box by box."""
        count = len(self._box_half)
        turned = points.reshape(-1, 3) @ self._box_axes.transpose(1, 0, 2).reshape(3, -1)
        beyond = np.abs(turned.reshape(-1, count, 3) - self._box_center) - self._box_half
        depth = np.maximum(np.maximum(beyond[..., 0], beyond[..., 1]), beyond[..., 2])
        distance = _norm(np.maximum(beyond, 0.0)) + np.minimum(depth, 0.0)
        return distance.reshape(*points.shape[:2], count).transpose(0, 2, 1).reshape(len(points), -1)

    def _box_directions(self, points: Array, which: Array) -> Array:
        """Gradients (P, 3) of the distances of points (P, 3) to boxes (P,)."""
        axes = self._box_axes[which]
        turned = np.einsum("pi,pij->pj", points, axes) - self._box_center[which]
        beyond = np.abs(turned) - self._box_half[which]
        depth = beyond.max(axis=-1, keepdims=True)
        normal = np.where(depth <= 0.0, beyond == depth, np.maximum(beyond, 0.0)) * np.sign(turned)
        normal /= np.maximum(np.linalg.norm(normal, axis=-1, keepdims=True), 1e-12)
        return np.einsum("pj,pij->pi", normal, axes)


def _norm(vectors: Array) -> Array:
    """Lengths of (..., 3) vectors; faster than numpy.linalg.norm on many short ones."""
    x, y, z = vectors[..., 0], vectors[..., 1], vectors[..., 2]
    return np.sqrt(x * x + y * y + z * z)
