"""Distances of the arm's collision spheres to each other, to the ground and to obstacles.

Everything here is seen from the base frame. Positive distances are free, negative ones collisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.collision.pair_pruning import are_kept_apart
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.model.robot import RobotModel, Sphere
from sysid_ros.core.model.spheres import links_without_spheres

Array = NDArray[np.float64]

__all__ = [
    "CollisionModel",
    "Obstacle",
    "axis_reaches",
    "build_collision_model",
    "build_scene_model",
    "describe_overlapping_links",
    "describe_unchecked_links",
    "displacement_factors",
    "displacements",
    "pair_distances",
    "sphere_centers",
    "spheres_of_payload",
]

LinkPair = tuple[list[int], list[int]]
"""Indices of the spheres of two links, of the one closer to the base first."""

_NAMES = 4
"""Links, or pairs of links, that are listed by name."""


@dataclass(frozen=True)
class CollisionModel:
    """What must not touch what.

    Attributes:
        spheres: Spheres of the arm and of what it carries.
        pairs: Indices of the spheres that must not touch each other, (m, 2).
        movable: Indices of the spheres that are checked against ground and obstacles: all but those of the base, (k,).
        obstacles: Boxes nothing may touch.
        ground_height: Height of the ground in the base frame [m], None for none.
    """

    spheres: tuple[Sphere, ...]
    pairs: NDArray[np.int64]
    movable: NDArray[np.int64]
    obstacles: tuple[Obstacle, ...]
    ground_height: float | None


def build_collision_model(
    robot: RobotModel,
    payload_spheres: Sequence[Sphere] = (),
    obstacles: Sequence[Obstacle] = (),
    ground_height: float | None = None,
) -> CollisionModel:
    """Collect what must not touch what.

    Links with two or more other bodies between them are compared. With one between, tool and payload are; links of the
    arm are unless the position limits are proven to keep them apart, or their spheres overlap in the home posture
    already (:func:`describe_overlapping_links`). Links that ``never_touch`` are not. Everything that moves is checked
    against ground and obstacles; the base stands still and cannot run into anything.

    Args:
        robot: The arm, with its spheres.
        payload_spheres: Spheres that cover what the arm carries, fixed to the last body.
        obstacles: Boxes to keep away from.
        ground_height: Height of the ground in the base frame [m]; None for no ground.
    """
    spheres = (*robot.spheres, *payload_spheres)
    bodies = np.array([sphere.body for sphere in spheres], dtype=int)
    is_compared = bodies[None, :] - bodies[:, None] >= 2
    for left_out in _pairs_left_out(robot):
        for inner, outer in left_out:
            is_compared[np.ix_(inner, outer)] = False
    pairs = np.argwhere(is_compared)
    return CollisionModel(spheres, pairs, np.flatnonzero(bodies >= 1), tuple(obstacles), ground_height)


def build_scene_model(robot: RobotModel, scene: Scene) -> CollisionModel:
    """Collect what must not touch what in a scene; see :func:`build_collision_model`."""
    return build_collision_model(robot, spheres_of_payload(robot, scene), scene.obstacles, scene.ground_height)


def spheres_of_payload(robot: RobotModel, scene: Scene) -> tuple[Sphere, ...]:
    """Return the spheres around what the arm carries in a scene: its own, or those of the robot's payload prior."""
    return robot.payload_prior.spheres if scene.payload_spheres is None else scene.payload_spheres


def describe_unchecked_links(robot: RobotModel) -> list[str]:
    """Say what is not known of collisions of the arm with itself and others; empty where all of it is checked."""
    bare = links_without_spheres(robot)
    without = f"collisions of {_list(bare)} (no spheres)" if bare else ""
    return [text for text in (without, describe_overlapping_links(robot)) if text]


def describe_overlapping_links(robot: RobotModel) -> str:
    """Say which links of the arm are not compared although nothing keeps them apart; empty where there are none.

    Spheres that overlap in the home posture are too large there; comparing them would forbid every motion.
    """
    _, overlapping = _pairs_left_out(robot)
    pairs = [f"{robot.spheres[one[0]].link} with {robot.spheres[other[0]].link}" for one, other in overlapping]
    return f"collisions of {_list(pairs)} (their spheres overlap in the home posture)" if pairs else ""


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more


def _is_tool(robot: RobotModel, link: str) -> bool:
    """Return whether a link hangs on the flange."""
    model = robot.pin_model
    if not model.existFrame(link):
        return False
    frame = model.getFrameId(link)
    flange = model.getFrameId(robot.flange_frame)
    while frame != 0:
        frame = model.frames[frame].parentFrame
        if frame == flange:
            return True
    return False


def _pairs_left_out(robot: RobotModel) -> tuple[list[LinkPair], list[LinkPair]]:
    """List links that might be compared but are not: those that keep apart, and those that overlap at home."""
    by_link: dict[tuple[int, str], list[int]] = {}
    for index, sphere in enumerate(robot.spheres):
        by_link.setdefault((sphere.body, sphere.link), []).append(index)
    never = {frozenset(pair) for pair in robot.never_touch}
    apart, overlapping = [], []
    for ((body, one), inner), ((further, other), outer) in permutations(by_link.items(), 2):
        if further - body >= 2 and frozenset((one, other)) in never:
            apart.append((inner, outer))
        elif further - body == 2 and not _is_tool(robot, one) and not _is_tool(robot, other):
            if are_kept_apart(robot, *([robot.spheres[i] for i in indices] for indices in (inner, outer))):
                apart.append((inner, outer))
            elif _overlap_at_home(robot, inner, outer):
                overlapping.append((inner, outer))
    return apart, overlapping


def _overlap_at_home(robot: RobotModel, inner: Sequence[int], outer: Sequence[int]) -> bool:
    centers = sphere_centers(robot, robot.spheres, robot.home[None])
    pairs = np.array([(i, j) for i in inner for j in outer])
    return bool(pair_distances(centers, robot.spheres, pairs).min() <= 0.0)


def sphere_centers(robot: RobotModel, spheres: Sequence[Sphere], q: ArrayLike) -> Array:
    """Compute centres of spheres in the base frame, (N, number of spheres, 3) [m], at postures (N, n) [rad]."""
    postures = np.asarray(q, dtype=float)
    model, data = robot.pin_model, robot.pin_model.createData()
    rotations, origins = np.empty((len(postures), robot.n + 1, 3, 3)), np.empty((len(postures), robot.n + 1, 3))
    for index, posture in enumerate(postures):
        pin.forwardKinematics(model, data, posture)
        for body in range(robot.n + 1):
            rotations[index, body], origins[index, body] = data.oMi[body].rotation, data.oMi[body].translation
    bodies = [sphere.body for sphere in spheres]
    local = np.array([sphere.center for sphere in spheres], dtype=float).reshape(-1, 3)
    world = np.einsum("nsij,sj->nsi", rotations[:, bodies], local) + origins[:, bodies]
    base = model.frames[model.getFrameId(robot.base_frame)].placement
    centers: Array = (world - base.translation) @ base.rotation
    return centers


def pair_distances(centers: Array, spheres: Sequence[Sphere], pairs: NDArray[np.int64]) -> Array:
    """Compute gaps between spheres, (N, m) [m], for centres (N, number of spheres, 3) and pairs (m, 2)."""
    radii = np.array([sphere.radius for sphere in spheres])
    first, second = np.asarray(pairs, dtype=int).reshape(-1, 2).T
    gaps: Array = np.linalg.norm(centers[:, first] - centers[:, second], axis=-1) - (radii[first] + radii[second])
    return gaps


def displacements(robot: RobotModel, collision: CollisionModel, error: Array) -> tuple[Array, Array]:
    """Bound how far position errors (n,) [rad] move spheres, at any posture; see :func:`displacement_factors`."""
    pairs, movable = displacement_factors(robot, collision)
    return pairs @ error, movable @ error


def displacement_factors(robot: RobotModel, collision: CollisionModel) -> tuple[Array, Array]:
    """Bound how far position errors move spheres per joint, at any posture.

    An error e moves a point by at most ``sum_j e_j r_j``, with r_j its largest possible distance to axis j.

    Args:
        robot: The arm.
        collision: The spheres.

    Returns:
        Of the pairs against each other (m, n) and of the movable spheres in the base frame (k, n), both [m/rad].
    """
    reach = axis_reaches(robot, collision)
    bodies = np.array([sphere.body for sphere in collision.spheres], dtype=int)
    first, second = collision.pairs.reshape(-1, 2).T
    # Only the joints between two bodies move them against each other.
    between = np.arange(robot.n) >= bodies[first][:, None]
    return np.where(between, reach[second], 0.0), reach[collision.movable]


def axis_reaches(robot: RobotModel, collision: CollisionModel) -> Array:
    """Bound the distance of each sphere's centre to each axis that moves it, (spheres, n) [m]; zero elsewhere."""
    lengths = np.array([np.linalg.norm(placement.translation) for placement in robot.pin_model.jointPlacements[1:]])
    reach = np.zeros((len(collision.spheres), robot.n))
    for row, sphere in zip(reach, collision.spheres, strict=True):
        for joint in range(sphere.body):
            row[joint] = lengths[joint + 1 : sphere.body].sum() + np.linalg.norm(sphere.center)
    return reach
