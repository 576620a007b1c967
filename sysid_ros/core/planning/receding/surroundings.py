"""Distances of many points to boxes, and their directions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.planning.scene import Obstacle

Array = NDArray[np.float64]

_TINY = 1e-12


class Boxes:
    """Solid boxes.

    Args:
        obstacles: The boxes, in the base frame.
    """

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
        """Some of them."""
        return Boxes([self._obstacles[index] for index in indices])

    def distances(self, points: Array) -> Array:
        """Distances (N, boxes k) of points (N, k, 3) to all boxes, box by box; negative inside [m]."""
        turned = points.reshape(-1, 3) @ self._axes.transpose(1, 0, 2).reshape(3, -1)
        beyond = np.abs(turned.reshape(-1, self.count, 3) - self._center) - self._half
        depth = np.maximum(np.maximum(beyond[..., 0], beyond[..., 1]), beyond[..., 2])
        distance = lengths(np.maximum(beyond, 0.0)) + np.minimum(depth, 0.0)
        return distance.reshape(*points.shape[:2], self.count).transpose(0, 2, 1).reshape(len(points), -1)

    def directions(self, points: Array, which: Array) -> tuple[Array, Array]:
        """Gradients (P, 3) and Hessians (P, 3, 3) of the distances of points (P, 3) to boxes (P,)."""
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
    """Lengths of (..., 3) vectors; faster than numpy.linalg.norm on many short ones."""
    x, y, z = vectors[..., 0], vectors[..., 1], vectors[..., 2]
    return np.sqrt(x * x + y * y + z * z)
