"""The room a plan takes, for pictures: spheres of arm and payload at some of its postures, and the tightest place.

Pictures only: nothing is proven here. The verifier proves distances at all times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.collision.clearance import (
    CollisionModel,
    build_scene_model,
    displacements,
    pair_distances,
    sphere_centers,
)
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.model.robot import RobotModel, Sphere
from sysid_ros.core.trajectories.base import Trajectory

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Nearest:
    """The smallest distance at the evaluated postures.

    Attributes:
        distance: Free distance between surfaces, less the effect of position errors [m].
        time: Time since the start of the plan [s].
        names: Link, and the other link, the obstacle or "ground".
        points: Points of both surfaces that are closest, errors left aside, in the base frame, (2, 3) [m].
        clearance: Distance to keep [m].
    """

    distance: float
    time: float
    names: tuple[str, str]
    points: Array
    clearance: float = 0.0


@dataclass(frozen=True)
class SweptSpheres:
    """Spheres of what moves, at some postures of a plan.

    Attributes:
        times: Times of the postures since the start of the plan, (K,) [s].
        centers: Centres in the base frame, (K, m, 3) [m].
        radii: Radii with how far the position errors can move each sphere, (m,) [m].
        spheres: The m spheres.
        nearest: Where it is tightest; None where there is nothing to touch.
    """

    times: Array
    centers: Array
    radii: Array
    spheres: tuple[Sphere, ...]
    nearest: Nearest | None


def sweep_spheres(
    robot: RobotModel, trajectory: Trajectory, scene: Scene, error: ArrayLike, postures: int = 12
) -> SweptSpheres:
    """Compute the room a plan takes.

    Args:
        robot: The arm.
        trajectory: The plan.
        scene: Environment and load of the arm.
        error: Largest position errors of the controller, (n,) [rad].
        postures: How many postures are kept, start and end among them; between two of them the sphere that moves most
            goes equally far.
    """
    model = build_scene_model(robot, scene)
    times = np.linspace(0.0, trajectory.duration, 100)
    centers = sphere_centers(robot, model.spheres, trajectory.sample(times)[0])
    moved = displacements(robot, model, np.broadcast_to(np.asarray(error, dtype=float), robot.n))
    moving = centers[:, model.movable]
    kept = _thin(moving, postures)
    spheres = tuple(model.spheres[k] for k in model.movable)
    return SweptSpheres(
        times=times[kept],
        centers=moving[kept],
        radii=np.array([sphere.radius for sphere in spheres]) + moved[1],
        spheres=spheres,
        nearest=_find_nearest(model, times, centers, moved, scene.clearance),
    )


def _thin(centers: Array, count: int) -> NDArray[np.int64]:
    """Choose postures between which the fastest sphere goes equally far, for centres (N, m, 3); their indices."""
    if not centers.size:
        return np.array([0], dtype=int)
    steps = np.linalg.norm(np.diff(centers, axis=0), axis=-1).max(axis=1)
    way = np.concatenate([[0.0], np.cumsum(steps)])
    return np.unique(np.searchsorted(way, np.linspace(0.0, way[-1], count)).clip(0, len(way) - 1))


def _find_nearest(
    model: CollisionModel, times: Array, centers: Array, displaced: tuple[Array, Array], clearance: float
) -> Nearest | None:
    """Find where it is tightest; ``displaced`` is how far errors move pairs and movable spheres [m]."""
    pairs_moved, moved = displaced
    links = [sphere.link for sphere in model.spheres]
    radii = np.array([sphere.radius for sphere in model.spheres])
    found: list[Nearest] = []

    def keep(free: Array, others: list[str], ends: ArrayLike, own: ArrayLike, other_radii: ArrayLike) -> None:
        """Keep the smallest of ``free`` (N, k); ``ends`` (N, k, 3): what spheres ``own`` (k,) are measured against."""
        index, which = np.unravel_index(int(np.argmin(free)), free.shape)
        sphere, end = int(np.asarray(own)[which]), np.asarray(ends)[index, which]
        start = centers[index, sphere]
        gap = end - start
        unit = gap / max(float(np.linalg.norm(gap)), 1e-12)
        points = np.array([start + radii[sphere] * unit, end - np.asarray(other_radii)[which] * unit])
        names = (links[sphere], others[int(which)])
        found.append(Nearest(float(free[index, which]), float(times[index]), names, points, clearance))

    if len(model.pairs):
        first, second = model.pairs.T
        free = pair_distances(centers, model.spheres, model.pairs) - pairs_moved
        keep(free, [links[j] for j in second], centers[:, second], first, radii[second])
    movable, own = model.movable, radii[model.movable] + moved
    points, none = centers[:, movable], np.zeros(len(movable))
    if len(movable) and model.ground_height is not None:
        ground = points.copy()
        ground[..., 2] = model.ground_height
        keep(points[..., 2] - model.ground_height - own, ["ground"] * len(movable), ground, movable, none)
    for obstacle in model.obstacles if len(movable) else ():
        inside = (points - obstacle.center) @ obstacle.rotation
        on_box = np.clip(inside, -obstacle.half_extents, obstacle.half_extents) @ obstacle.rotation.T + obstacle.center
        keep(obstacle.distance(points) - own, [obstacle.name] * len(movable), on_box, movable, none)
    return min(found, key=lambda nearest: nearest.distance, default=None)
