"""Distances of the arm's collision spheres to each other, to the ground and to obstacles.

Everything here is seen from the base frame. Positive distances are free, negative ones collisions.

Pairs of links that position limits keep apart are left out: proven by dividing the ranges of the joints between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.model.mechanics import joint_axis
from sysid_ros.core.model.robot import RobotModel, Sphere
from sysid_ros.core.model.spheres import links_without_spheres

Array = NDArray[np.float64]

Numbers = tuple[float, ...]

_ROUNDING = 1e-9
"""Gaps that are no larger count as touching [m]."""
_GAPS = 1_000_000
"""Largest number of gaps, over cells and pairs of spheres, that are evaluated at once; more end the proof."""
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


def are_kept_apart(robot: RobotModel, inner: Sequence[Sphere], outer: Sequence[Sphere]) -> bool:
    """Return whether spheres of two bodies with one between them are proven never to touch within position limits.

    No means that they touch somewhere, or come too close for the proof.
    """
    model, first = robot.pin_model, inner[0].body
    hinges = []
    for joint in (first + 1, first + 2):
        placement, limits = model.jointPlacements[joint], robot.limits
        lower, upper = float(limits.q_lower[joint - 1]), float(limits.q_upper[joint - 1])
        if not upper - lower < 2.0 * np.pi:
            lower, upper = -np.pi, np.pi  # it turns all the way round
        numbers = (*placement.rotation.ravel(), *placement.translation, *joint_axis(model, joint), lower, upper)
        hinges.append(tuple(map(float, numbers)))
    rows = [tuple((*map(float, s.center), float(s.radius)) for s in spheres) for spheres in (inner, outer)]
    return _prove(*hinges, *rows)


@lru_cache(maxsize=256)
def _prove(first: Numbers, second: Numbers, inner: tuple[Numbers, ...], outer: tuple[Numbers, ...]) -> bool:
    """Prove the same for plain numbers: rotation, translation and axis of both joints, their limits; rows of spheres.

    Turning the second joint by d moves outer centres by at most d times their distance to its axis. Turning the first
    changes distances by at most d times the smaller one of both centres' distances to its axis, since either of them
    may be seen as the one that turns. Cells of joint positions are divided until this is less than the gaps in their
    middles.
    """
    (rotations, shifts, axes), (inner_rows, outer_rows) = _split(first, second), map(np.array, (inner, outer))
    radii = np.add.outer(outer_rows[:, 3], inner_rows[:, 3]) + _ROUNDING
    by_second = np.linalg.norm(np.cross(axes[1], outer_rows[:, :3]), axis=1)
    far = np.linalg.norm(outer_rows[:, :3], axis=1) + np.linalg.norm(shifts[1])
    near = np.linalg.norm(np.cross(rotations[0] @ axes[0], inner_rows[:, :3] - shifts[0]), axis=1)
    reach = np.stack([np.minimum(far[:, None], near), np.broadcast_to(by_second[:, None], radii.shape)])
    ranges = np.array([first[-2:], second[-2:]])
    middle, half = ranges.mean(axis=1)[None], 0.5 * (ranges[:, 1] - ranges[:, 0])[None]
    for _ in range(40):  # divisions of cells; the rest is not proven
        points = outer_rows[:, :3]
        for joint in (1, 0):
            points = _turned(points, axes[joint], middle[:, joint]) @ rotations[joint].T + shifts[joint]
        gaps = np.linalg.norm(points[:, :, None] - inner_rows[:, :3], axis=3) - radii  # (cells, outer, inner)
        if gaps.min() <= 0.0:
            return False
        is_open = (gaps - np.tensordot(half, reach, axes=1)).min(axis=(1, 2)) <= 0.0
        if not is_open.any():
            return True
        middle, half = _divided(middle[is_open], half[is_open], reach.max(axis=(1, 2)))
        if len(middle) * radii.size > _GAPS:
            return False
    return False


def _split(*hinges: Numbers) -> tuple[Array, Array, Array]:
    rows = np.array(hinges)
    return rows[:, :9].reshape(-1, 3, 3), rows[:, 9:12], rows[:, 12:15]


def _turned(points: Array, axis: Array, angles: Array) -> Array:
    """Turn points (k, 3) or (cells, k, 3) about an axis through the origin by one angle per cell, (cells, k, 3)."""
    cosine, sine = np.cos(angles)[:, None, None], np.sin(angles)[:, None, None]
    along = (points @ axis)[..., None] * axis
    return along + cosine * (points - along) + sine * np.cross(axis, points)


def _divided(middle: Array, half: Array, reach: Array) -> tuple[Array, Array]:
    """Cut cells (k, 2) in two where that helps most, (2 k, 2)."""
    longest = np.argmax(half * reach, axis=1)[:, None] == np.arange(half.shape[1])
    half = np.where(longest, 0.5 * half, half)
    shift = np.where(longest, half, 0.0)
    return np.concatenate([middle - shift, middle + shift]), np.concatenate([half, half])


@dataclass(frozen=True)
class CollisionModel:
    """Pairs that must not touch.

    Attributes:
        spheres: Spheres of the arm and of its load.
        pairs: Indices of the spheres that must not touch each other, (m, 2).
        movable: Indices of the spheres that are checked against ground and obstacles: all but the base's, (k,).
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
    """Collect the pairs that must not touch.

    Links with two or more other bodies between them are compared. With one between, tool and payload are; links of the
    arm are unless the position limits are proven to keep them apart, or their spheres overlap in the home posture
    already (:func:`describe_overlapping_links`). Links that ``never_touch`` are not. Everything that moves is checked
    against ground and obstacles; the base stands still and cannot run into anything.

    Args:
        robot: The arm, with its spheres.
        payload_spheres: Spheres that cover the load of the arm, fixed to the last body.
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
    """Collect the pairs that must not touch in a scene; see :func:`build_collision_model`."""
    return build_collision_model(robot, spheres_of_payload(robot, scene), scene.obstacles, scene.ground_height)


def spheres_of_payload(robot: RobotModel, scene: Scene) -> tuple[Sphere, ...]:
    """Return the spheres around the load in a scene: its own, or those of the robot's payload prior."""
    return robot.payload_prior.spheres if scene.payload_spheres is None else scene.payload_spheres


def describe_unchecked_links(robot: RobotModel) -> list[str]:
    """Describe collisions of the arm with itself and others that are not checked; empty if all are."""
    bare = links_without_spheres(robot)
    without = f"collisions of {_list(bare)} (no spheres)" if bare else ""
    return [text for text in (without, describe_overlapping_links(robot)) if text]


def describe_overlapping_links(robot: RobotModel) -> str:
    """Describe links of the arm that are not compared although they may touch; empty where there are none.

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
    """List links that are not compared: pairs that keep apart, and pairs that overlap at home."""
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
