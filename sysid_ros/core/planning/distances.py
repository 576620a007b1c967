"""Free distances of many motions at samples, and exact gradients of chosen ones.

Rows: pairs of spheres, then movable spheres to the ground, then to each obstacle. A row is the distance of the centre p
of a sphere along a direction n, which points from the other object to the sphere, less the radii and less the largest
effect of position errors e of the joints between the two,

    sum_j e_j |n . J_j| + sum_ij R_ij e_i e_j / 2,

with ``J_j = z_j x (p - p_j)`` and R_ij the largest possible distance of p to the axis of the later joint. The first sum
is computed only where a posture-independent bound of it leaves little room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.collision.clearance import CollisionModel, axis_reaches, displacement_factors
from sysid_ros.core.collision.scene import Obstacle
from sysid_ros.core.common.spatial import cross
from sysid_ros.core.model.joint_tree import JointTree
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.dynamics import Index

Array = NDArray[np.float64]

_TINY = 1e-12


class Boxes:
    """Solid boxes."""

    def __init__(self, obstacles: Sequence[Obstacle]):
        self._obstacles = tuple(obstacles)
        self._center = np.array([box.rotation.T @ box.center for box in obstacles]).reshape(-1, 3)
        self._half = np.array([box.half_extents for box in obstacles]).reshape(-1, 3)
        self._axes = np.array([box.rotation for box in obstacles]).reshape(-1, 3, 3)

    @property
    def count(self) -> int:
        """Number of boxes."""
        return len(self._obstacles)

    def subset(self, indices: Sequence[int]) -> Boxes:
        """Return some of them."""
        return Boxes([self._obstacles[index] for index in indices])

    def distances(self, points: Array) -> Array:
        """Compute distances (N, boxes k) of points (N, k, 3) to all boxes, box by box; negative inside [m]."""
        turned = points.reshape(-1, 3) @ self._axes.transpose(1, 0, 2).reshape(3, -1)
        beyond = np.abs(turned.reshape(-1, self.count, 3) - self._center) - self._half
        depth = np.maximum(np.maximum(beyond[..., 0], beyond[..., 1]), beyond[..., 2])
        distance: Array = lengths(np.maximum(beyond, 0.0)) + np.minimum(depth, 0.0)
        by_box: Array = distance.reshape(*points.shape[:2], self.count).transpose(0, 2, 1)
        return by_box.reshape(len(points), -1)

    def directions(self, points: Array, which: Index) -> tuple[Array, Array]:
        """Compute gradients (P, 3) and Hessians (P, 3, 3) of the distances of points (P, 3) to boxes (P,)."""
        axes = self._axes[which]
        turned = np.einsum("pi,pij->pj", points, axes) - self._center[which]
        beyond = np.abs(turned) - self._half[which]
        depth = beyond.max(axis=-1, keepdims=True)
        is_inside = depth <= 0.0
        normal = np.where(is_inside, beyond == depth, np.maximum(beyond, 0.0)) * np.sign(turned)
        length = np.maximum(lengths(normal), _TINY)[:, None]
        normal /= length
        free = np.eye(3) * (beyond > 0.0)[:, None, :]
        hessian = ~is_inside[..., None] * (free - normal[:, :, None] * normal[:, None, :]) / length[..., None]
        return np.einsum("pj,pij->pi", normal, axes), axes @ hessian @ axes.swapaxes(1, 2)


def lengths(vectors: Array) -> Array:
    """Compute lengths of (..., 3) vectors; faster than numpy.linalg.norm on many short ones."""
    x, y, z = vectors[..., 0], vectors[..., 1], vectors[..., 2]
    result: Array = np.sqrt(x * x + y * y + z * z)
    return result


_NEAR = 0.03
"""Room above the clearance below which errors are worked out for the posture [m]."""


@dataclass(frozen=True)
class DistanceSamples:
    """Distances at N postures.

    Attributes:
        free: Distance left when the tracking error has moved the arm, (N, rows) [m].
        is_near: Where the effect of the error has been worked out for the posture, (N, rows).
        centers: Centres of the spheres in the base frame, (N, spheres, 3) [m].
        axes: Directions of the joint axes and their moments about the origin of the base frame, (N, n, 6).
    """

    free: Array
    is_near: NDArray[np.bool_]
    centers: Array
    axes: Array


class ArmSpheres:
    """Posture-independent data of arm and environment for free distances, whatever the errors are."""

    def __init__(self, robot: RobotModel, collision: CollisionModel):
        self.n = robot.n
        self._tree = JointTree.of(robot)
        base = robot.pin_model.frames[robot.pin_model.getFrameId(robot.base_frame)].placement
        self._base_rotation, self._base_origin = np.array(base.rotation), np.array(base.translation)
        spheres = collision.spheres
        self.bodies = np.array([sphere.body for sphere in spheres], dtype=int)
        self._groups = [(body, np.flatnonzero(self.bodies == body)) for body in np.unique(self.bodies)]
        self._local = np.array([sphere.center for sphere in spheres], dtype=float).reshape(-1, 3)
        self.radii = np.array([sphere.radius for sphere in spheres])
        self.pairs = np.asarray(collision.pairs, dtype=int).reshape(-1, 2)
        self.movable = np.asarray(collision.movable, dtype=int)
        self.ground = collision.ground_height if self.movable.size else None
        self.boxes = Boxes(collision.obstacles if self.movable.size else ())
        self.pair_factors, self.factors = displacement_factors(robot, collision)
        joints = np.arange(self.n)
        # R_ij: distance to the axis of the later joint; zero where one of the joints does not move the sphere.
        self.second_order = axis_reaches(robot, collision)[:, np.maximum.outer(joints, joints)]

    def place(self, q: Array) -> tuple[Array, Array]:
        """Compute centres (N, spheres, 3) [m] and joint axes (N, n, 6) in the base frame at postures (N, n)."""
        frames = self._tree.frames(q)
        columns, origin, axes = (np.moveaxis(part, -1, 0) for part in (frames.rotation, frames.origin, frames.axes))
        count, turn = len(q), self._base_rotation
        linear = axes[..., :3] + cross(axes[..., 3:], self._base_origin)
        axes = np.concatenate([_turned(linear, turn), _turned(axes[..., 3:], turn)], axis=-1)
        columns = _turned(columns, turn)  # of the rotations, as rows
        origin = _turned(origin - self._base_origin, turn)
        centers = np.empty((count, self.bodies.size, 3))
        for body, mine in self._groups:
            if body == 0:
                centers[:, mine] = (self._local[mine] - self._base_origin) @ turn
            else:
                centers[:, mine] = self._local[mine] @ columns[:, body - 1] + origin[:, None, body - 1]
        return centers, axes

    @property
    def has_rows(self) -> bool:
        """Whether anything could touch anything."""
        has_environment = self.ground is not None or bool(self.boxes.count)
        return bool(len(self.pairs)) or (has_environment and bool(self.movable.size))


class FreeDistances:
    """Distances that must stay above a clearance.

    Args:
        spheres: Arm and environment.
        error: Largest position errors, (n,) [rad].
        clearance: Distance that will be kept, to know where accuracy matters [m].
    """

    def __init__(self, spheres: ArmSpheres, error: Array, clearance: float):
        self.n = spheres.n
        self._spheres = spheres
        self._error, self._clearance = error, clearance
        self._pairs, self._boxes = spheres.pairs, spheres.boxes
        self._pairs_lost, self._lost = spheres.pair_factors @ error, spheres.factors @ error
        self._second_order = 0.5 * spheres.second_order @ error @ error
        self._index()

    def _index(self) -> None:
        inner, outer = self._pairs.T
        movable = self._spheres.movable
        others = [np.full(movable.size, -1)] * (self._spheres.ground is not None)
        others += [np.full(movable.size, -2 - k) for k in range(self._boxes.count)]
        self._moving = np.concatenate([outer, *[movable] * len(others)])
        self._other = np.concatenate([inner, *others])
        is_pair = self._other >= 0
        inner_body = np.where(is_pair, self._spheres.bodies[np.where(is_pair, self._other, 0)], 0)
        joints = np.arange(self.n)
        self._counts = (joints >= inner_body[:, None]) & (joints < self._spheres.bodies[self._moving][:, None])
        radii = self._spheres.radii
        self._radius = radii[self._moving] + is_pair * radii[np.where(is_pair, self._other, 0)]
        self._most_lost = np.concatenate([self._pairs_lost, *[self._lost] * len(others)])

    def keep_near(self, samples: DistanceSamples, distance: float) -> None:
        """Leave out, for speed, pairs and obstacles that no sample comes near to; the rest is renumbered."""
        is_near = samples.free.min(axis=0) < distance
        pairs = is_near[: len(self._pairs)]
        near = set(-2 - self._other[is_near & (self._other <= -2)])
        self._pairs, self._pairs_lost = self._pairs[pairs], self._pairs_lost[pairs]
        self._boxes = self._boxes.subset(sorted(near))
        self._index()

    def evaluate(self, q: Array) -> DistanceSamples:
        """Compute the distances at postures (N, n)."""
        centers, axes = self._spheres.place(q)
        gaps = [lengths(centers[:, self._pairs[:, 1]] - centers[:, self._pairs[:, 0]])]
        points = centers[:, self._spheres.movable]
        if self._spheres.ground is not None:
            gaps.append(points[..., 2] - self._spheres.ground)
        if self._boxes.count:
            gaps.append(self._boxes.distances(points))
        free = np.concatenate(gaps, axis=1) - self._radius
        is_near = free - self._most_lost < self._clearance + _NEAR
        chosen, rows = np.nonzero(is_near)
        near = free[chosen, rows]
        free -= self._most_lost
        if rows.size:
            normal, _ = self._directions(centers[chosen], rows)
            speeds = np.einsum("pi,pji->pj", normal, self._jacobian(centers, axes, chosen, rows))
            free[chosen, rows] = near - np.abs(speeds) @ self._error - self._second_order[self._moving[rows]]
        return DistanceSamples(free, is_near, centers, axes)

    def gradients(self, samples: DistanceSamples, chosen: Index, rows: Index) -> Array:
        """Differentiate single distances with respect to q, (P, n), for samples (P,) and rows (P,)."""
        normal, bend = self._directions(samples.centers[chosen], rows)
        jacobian = self._jacobian(samples.centers, samples.axes, chosen, rows)
        speeds = np.einsum("pi,pji->pj", normal, jacobian)
        # d/dq_k of n . J_j: n turns with the point, and J_j with z_min(j,k) x J_max(j,k).
        joints = np.arange(self.n)
        earlier, later = np.minimum.outer(joints, joints), np.maximum.outer(joints, joints)
        directions = samples.axes[chosen, :, 3:]
        bent = cross(directions[:, earlier], jacobian[:, later])
        change = np.einsum("pi,pjki->pjk", normal, bent)
        change += jacobian @ bend @ jacobian.swapaxes(1, 2)
        change *= self._counts[rows][:, None, :]
        signs = np.sign(speeds) * self._error
        gradients: Array = speeds - samples.is_near[chosen, rows][:, None] * np.einsum("pj,pjk->pk", signs, change)
        return gradients

    def _jacobian(self, centers: Array, axes: Array, chosen: Index, rows: Index) -> Array:
        """Compute the motion of the moving spheres' centres against the other object with each joint, (P, n, 3) [m]."""
        point, axis = centers[chosen, self._moving[rows]][:, None], axes[chosen]
        jacobian: Array = (cross(axis[..., 3:], point) + axis[..., :3]) * self._counts[rows][..., None]
        return jacobian

    def _directions(self, centers: Array, rows: Index) -> tuple[Array, Array]:
        """Compute directions n (P, 3) and their derivatives with respect to the moving sphere's centre, (P, 3, 3)."""
        other = self._other[rows]
        index = np.arange(len(rows))
        point = centers[index, self._moving[rows]]
        normal, bend = np.zeros((len(rows), 3)), np.zeros((len(rows), 3, 3))
        normal[other == -1, 2] = 1.0
        pairs, boxes = other >= 0, other <= -2
        difference = point[pairs] - centers[index[pairs], other[pairs]]
        length = np.maximum(lengths(difference), _TINY)[:, None]
        unit = difference / length
        normal[pairs] = unit
        bend[pairs] = (np.eye(3) - unit[:, :, None] * unit[:, None, :]) / length[..., None]
        normal[boxes], bend[boxes] = self._boxes.directions(point[boxes], -2 - other[boxes])
        return normal, bend


def _turned(vectors: Array, rotation: Array) -> Array:
    return (vectors.reshape(-1, 3) @ rotation).reshape(vectors.shape)
