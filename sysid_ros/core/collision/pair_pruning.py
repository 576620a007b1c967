"""Which links position limits keep apart: proven by dividing the ranges of the joints between them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.model.kinematics import joint_axis
from sysid_ros.core.model.robot import RobotModel, Sphere

Array = NDArray[np.float64]

Numbers = tuple[float, ...]

_ROUNDING = 1e-9
"""Gaps that are no larger count as touching [m]."""
_ROUNDS = 40
"""Times cells are divided; what is open then is not proven."""
_GAPS = 1_000_000
"""Largest number of gaps, over cells and pairs of spheres, that are looked at at once; with more nothing is proven."""


def are_kept_apart(robot: RobotModel, inner: Sequence[Sphere], outer: Sequence[Sphere]) -> bool:
    """Return whether spheres of two bodies with one between them are proven never to touch within position limits.

    The answer no means that they touch somewhere, or that they come too close to prove that they do not.

    Args:
        robot: The arm.
        inner: Spheres of one body.
        outer: Spheres of the body two joints further out.
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
    for _ in range(_ROUNDS):
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
