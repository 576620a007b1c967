"""Shortfall of a motion's distances at samples, and its reverse derivative.

A distance acts on two bodies at one point, along the direction in which it grows; so the gradient of any sum of
distances is the torque of these forces in the joints between the two bodies.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.collision.clearance import CollisionModel, displacements
from sysid_ros.core.collision.scene import Obstacle
from sysid_ros.core.model.joint_tree import Frames, JointTree
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]

_UNIT = 0.05
"""A distance that is missing counts in units of this [m]."""
_SWEEP = 21
"""Positions of the joint, from the start to each end of its range."""
_TINY = 1e-9


class MissingDistances:
    """Shortfall of the distances between spheres, to the ground and to obstacles from a clearance.

    Args:
        robot: The arm.
        collision: Pairs that must not touch.
        error: Largest position errors, (n,) [rad], which are taken off the distances.
        clearance: Distance to keep [m].
        around: Lower and upper positions between which the arm moves, each (n,) [rad].
    """

    def __init__(
        self, robot: RobotModel, collision: CollisionModel, error: Array, clearance: float, around: tuple[Array, Array]
    ):
        self._tree, self._clearance = JointTree.of(robot), clearance
        spheres = collision.spheres
        self._bodies = np.array([sphere.body for sphere in spheres], dtype=np.intp)
        self._local = np.array([sphere.center for sphere in spheres], dtype=float).reshape(-1, 3)
        self._radii = np.array([sphere.radius for sphere in spheres])
        self._pairs = np.asarray(collision.pairs, dtype=np.intp).reshape(-1, 2)
        self._movable = np.asarray(collision.movable, dtype=np.intp)
        pairs_moved, moved = displacements(robot, collision, error)
        self._pair_size = self._radii[self._pairs].sum(axis=1) + pairs_moved
        self._size = self._radii[self._movable] + moved
        base = robot.pin_model.frames[robot.pin_model.getFrameId(robot.base_frame)].placement
        self._turn, self._shift = np.array(base.rotation), np.array(base.translation)
        self._ground = collision.ground_height
        self._obstacles = collision.obstacles
        lower, upper = around
        self._postures = np.random.default_rng(0).uniform(lower, upper, (1000, robot.n))
        distances = self._pair_distances(self._centers(self._postures)[1])
        is_near = distances.min(axis=1, initial=np.inf) < clearance + 0.1
        self._pairs, self._pair_size = self._pairs[is_near], self._pair_size[is_near]

    @property
    def rows(self) -> int:
        """Number of distances."""
        return len(self._pairs) + len(self._movable) * ((self._ground is not None) + len(self._obstacles))

    def evaluate(self, q: Array) -> Array:
        """Compute all distances at postures (N, n), errors taken off, (rows, N) [m]."""
        return self._distances(self._centers(q)[1])

    def free_range(self, q_start: Array, lower: Array, upper: Array, clearance: float) -> tuple[Array, Array]:
        """Find the range of each joint around the start beyond which the arm touches something in any posture.

        A link that is folded onto another is pushed out on either side, also beyond the joint's limit, where a search
        gets stuck. Found with random postures, without a proof for the excluded range.

        Args:
            q_start: The start, (n,) [rad].
            lower: Lower positions, (n,) [rad].
            upper: Upper positions, (n,) [rad].
            clearance: Distance with which a posture counts as free [m].

        Returns:
            Lower and upper ends, each (n,) [rad], between those given.
        """
        is_free = self.evaluate(self._postures).min(axis=0, initial=np.inf) >= clearance
        postures = np.concatenate([q_start[None], self._postures[is_free][:48]])
        found = np.array([lower, upper], dtype=float)
        for joint in range(q_start.size):
            for end in found:
                swept = np.repeat(postures[None], _SWEEP, axis=0)
                swept[:, :, joint] = positions = np.linspace(q_start[joint], end[joint], _SWEEP)[:, None]
                distances = self.evaluate(swept.reshape(-1, q_start.size)).min(axis=0, initial=np.inf)
                blocked = np.flatnonzero(np.all(distances.reshape(_SWEEP, -1) < clearance, axis=1))
                if blocked.size:
                    end[joint] = positions[max(int(blocked[0]) - 1, 0), 0]
        return found[0], found[1]

    def penalty(self, q: Array) -> tuple[float, Array]:
        """Sum the squares of the shortfall of the clearance at postures (N, n) [rad], in units of 5 cm.

        Returns:
            The sum and its gradient, (N, n).
        """
        frames, centers = self._centers(q)
        missing = (self._clearance - self._distances(centers)) / _UNIT
        row, sample = np.nonzero(missing > 0.0)
        if not row.size:
            return 0.0, np.zeros_like(q)
        short = missing[row, sample]
        direction, moving, other = self._directions(centers, row, sample)
        force = -2.0 * short[:, None] / _UNIT * direction
        at = centers[moving, :, sample]
        wrenches = np.zeros((len(frames.axes) + 1, len(q), 6))  # about the origin, of the world (0) and the bodies
        wrench = np.concatenate([force, np.cross(at, force)], axis=1)
        np.add.at(wrenches, (self._bodies[moving], sample), wrench)
        is_pair = other >= 0
        np.subtract.at(wrenches, (self._bodies[other[is_pair]], sample[is_pair]), wrench[is_pair])
        beyond = np.cumsum(wrenches[:0:-1], axis=0)[::-1]
        return float(short @ short), np.einsum("jct,jtc->tj", frames.axes, beyond)

    def _distances(self, centers: Array) -> Array:
        """Compute all distances of spheres at centres (spheres, 3, N) of the world, (rows, N) [m]."""
        parts = [self._pair_distances(centers)]
        points = np.einsum("ba,kbt->kat", self._turn, centers[self._movable] - self._shift[:, None])  # in the base
        if self._ground is not None:
            parts.append(points[:, 2] - self._ground - self._size[:, None])
        parts += [one.distance(points.swapaxes(1, 2)) - self._size[:, None] for one in self._obstacles]
        return np.concatenate(parts)

    def _directions(
        self, centers: Array, row: NDArray[np.intp], sample: NDArray[np.intp]
    ) -> tuple[Array, NDArray[np.intp], NDArray[np.intp]]:
        """Compute directions (P, 3) in which distances grow, the sphere that moves along them, and the other or -1."""
        pairs, movable = len(self._pairs), len(self._movable)
        is_pair = row < pairs
        which, thing = np.mod(row - pairs, max(movable, 1)), (row - pairs) // max(movable, 1)
        moving, other = self._movable[which] if movable else which, np.full(row.size, -1)
        moving = np.where(is_pair, self._pairs[np.where(is_pair, row, 0), 1] if pairs else moving, moving)
        other[is_pair] = self._pairs[row[is_pair], 0]
        direction = np.zeros((row.size, 3))
        between = centers[moving[is_pair], :, sample[is_pair]] - centers[other[is_pair], :, sample[is_pair]]
        direction[is_pair] = between / np.maximum(np.linalg.norm(between, axis=1, keepdims=True), _TINY)
        first = 0
        if self._ground is not None:
            direction[~is_pair & (thing == 0)] = self._turn[:, 2]
            first = 1
        for k, obstacle in enumerate(self._obstacles):
            mine = np.flatnonzero(~is_pair & (thing == first + k))
            points = (centers[moving[mine], :, sample[mine]] - self._shift) @ self._turn
            direction[mine] = _box_normals(obstacle, points) @ self._turn.T
        return direction, moving, other

    def _centers(self, q: Array) -> tuple[Frames, Array]:
        """Return the poses at positions (N, n), and the centres in the world, (spheres, 3, N) [m]."""
        frames, centers = self._tree.frames(q), np.repeat(self._local[:, :, None], len(q), axis=2)
        for body in np.unique(self._bodies[self._bodies > 0]):
            mine = self._bodies == body
            turned = np.tensordot(self._local[mine], frames.rotation[body - 1], axes=(1, 0))
            centers[mine] = turned + frames.origin[body - 1]
        return frames, centers

    def _pair_distances(self, centers: Array) -> Array:
        between = centers[self._pairs[:, 1]] - centers[self._pairs[:, 0]]
        gaps: Array = np.sqrt((between**2).sum(axis=1)) - self._pair_size[:, None]
        return gaps


def _box_normals(obstacle: Obstacle, points: Array) -> Array:
    """Compute the directions (P, 3) in which the distances of points (P, 3) to a box grow."""
    local = (points - obstacle.center) @ obstacle.rotation
    beyond = np.abs(local) - obstacle.half_extents
    is_inside = np.all(beyond <= 0.0, axis=1, keepdims=True)
    size = np.where(is_inside, beyond == beyond.max(axis=1, keepdims=True), np.maximum(beyond, 0.0))
    normal = size * np.sign(local)
    unit: Array = (normal / np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), _TINY)) @ obstacle.rotation.T
    return unit
