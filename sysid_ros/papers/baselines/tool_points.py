"""Spheres of a tool from points on it.

The convex hull of the points of a tool is reduced to the means of a Gaussian mixture; spheres about these means that
cover its whole surface make a tool that the verifier can prove.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, QhullError

from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange
from sysid_ros.core.model.robot import RobotModel, Sphere

Array = NDArray[np.float64]

_EM_ROUNDS, _EM_SETTLED = 200, 1e-6
_SMALLEST_SPREAD = 0.01
"""Least standard deviation of a component, as a share of the extent of the points."""
_SHORTEST_EDGE = 0.15
"""Triangles are divided until their edges are below this share of the extent of the hull."""


@dataclass(frozen=True)
class ToolShape:
    """A tool as spheres about the means of a Gaussian mixture.

    Attributes:
        points: Means of the mixture, the paper's feature points, in the frame of the tool, (K, 3) [m].
        radii: Radii about them that together cover the surface of the convex hull, (K,) [m].
        vertices: Vertices of the convex hull, (V, 3) [m].
    """

    points: Array
    radii: Array
    vertices: Array

    def spheres(self, robot: RobotModel, placement: tuple[Array, Array]) -> tuple[Sphere, ...]:
        """Return the spheres as the load of the robot.

        ``placement`` is rotation (3, 3) and origin (3,) [m] of the tool in the frame of the last joint, as
        ``frame_placement`` gives it.
        """
        rotation, origin = placement
        centers = self.points @ np.asarray(rotation).T + origin
        return tuple(Sphere(robot.n, c, float(r), "tool") for c, r in zip(centers, self.radii, strict=True))


def reduce_tool(points: Array, most: int = 12) -> ToolShape:
    """Reduce a tool to the means of a Gaussian mixture of its convex hull, with radii that cover the hull.

    The paper takes the number of components with the largest likelihood, which always grows with their number; the
    Bayesian information criterion decides here.

    Args:
        points: Points of the tool, (V, 3) [m].
        most: Largest number of components.

    Raises:
        ModelError: The points span no volume.
        ParameterOutOfRange: ``most`` is below 1.

    Source: EXCITE (10).
    """
    if most < 1:
        raise ParameterOutOfRange("most", most, "1 or more components")
    try:
        hull = ConvexHull(points)
    except (QhullError, ValueError) as error:
        raise ModelError(f"tool: {len(points)} points span no volume") from error
    triangles = _divide(points[hull.simplices], _SHORTEST_EDGE * float(np.ptp(points, axis=0).max()))
    samples = np.unique(triangles.reshape(-1, 3).round(9), axis=0)
    rng = np.random.default_rng(0)
    fits = [_fit_mixture(samples, count, rng) for count in range(1, min(most, len(samples) // 4 or 1) + 1)]
    means = min(fits, key=lambda fit: fit[1])[0]
    # A ball is convex: it contains a triangle if it contains its corners.
    farthest = np.linalg.norm(triangles[:, :, None] - means, axis=-1).max(axis=1)  # (triangles, K)
    nearest = farthest.argmin(axis=1)
    used = np.unique(nearest)
    radii = np.array([farthest[nearest == k, k].max() for k in used])
    return ToolShape(means[used], np.nextafter(radii * (1.0 + 1e-9), np.inf), points[hull.vertices])


def _divide(triangles: Array, longest: float) -> Array:
    """Divide triangles (T, 3, 3) until no edge is longer than ``longest``."""
    done = []
    while len(triangles):
        a, b, c = triangles.swapaxes(0, 1)
        edges = np.stack([np.linalg.norm(x - y, axis=1) for x, y in ((a, b), (b, c), (c, a))])
        is_small = edges.max(axis=0) <= longest
        done.append(triangles[is_small])
        a, b, c = triangles[~is_small].swapaxes(0, 1)
        ab, bc, ca = 0.5 * (a + b), 0.5 * (b + c), 0.5 * (c + a)
        parts = ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))
        triangles = np.concatenate([np.stack(part, axis=1) for part in parts])
    return np.concatenate(done)


def _fit_mixture(points: Array, count: int, rng: np.random.Generator) -> tuple[Array, float]:
    """Fit a Gaussian mixture by expectation and maximisation; return its means (K, 3) and its BIC."""
    total, dimension = points.shape
    floor = (_SMALLEST_SPREAD * np.ptp(points, axis=0).max()) ** 2 * np.eye(dimension)
    means = points[rng.integers(total)][None]
    for _ in range(count - 1):  # each next start far from those before, as in k-means++
        gap = ((points[:, None] - means) ** 2).sum(axis=-1).min(axis=1)
        means = np.vstack([means, points[rng.choice(total, p=gap / gap.sum())]])
    covariances = np.repeat((np.cov(points.T) / count ** (2.0 / 3.0) + floor)[None], count, axis=0)
    weights, before = np.full(count, 1.0 / count), -np.inf
    for _ in range(_EM_ROUNDS):
        offset = points[:, None] - means  # (N, K, 3)
        size = np.einsum("nki,kij,nkj->nk", offset, np.linalg.inv(covariances), offset)
        logs = np.log(weights) - 0.5 * (size + np.linalg.slogdet(2.0 * np.pi * covariances)[1])
        highest = logs.max(axis=1, keepdims=True)
        likelihood = highest[:, 0] + np.log(np.exp(logs - highest).sum(axis=1))
        share = np.exp(logs - likelihood[:, None])
        mass = share.sum(axis=0) + 1e-12
        weights, means = mass / mass.sum(), share.T @ points / mass[:, None]
        offset = points[:, None] - means
        covariances = np.einsum("nk,nki,nkj->kij", share, offset, offset) / mass[:, None, None] + floor
        now = float(likelihood.sum())
        if now - before < _EM_SETTLED * abs(now):
            break
        before = now
    numbers = count * (1 + dimension + dimension * (dimension + 1) // 2) - 1
    return means, numbers * math.log(total) - 2.0 * now
