"""Collisions of a free-flying robot with itself: spheres of the arms, boxes of the base, and a proof along a motion."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.certification.stop_model import LimitKind, PlanRejected
from sysid_ros.core.collision.scene import Obstacle
from sysid_ros.core.common.spatial import cross
from sysid_ros.core.model.spheres import cover_links, form_of, placement_of, shapes_of_links
from sysid_ros.core.trajectories.families import CycloidTrajectory
from sysid_ros.space.core.momentum import BodyStates
from sysid_ros.space.core.robot import FreeFlyer

Array = NDArray[np.float64]

_SHORTEST = 1.0 / 1024.0
"""Share of an interval below which a piece is not divided any more."""


_ADVICE = "start from another posture, narrow the position limits or ask for less clearance"


@dataclass(frozen=True, eq=False)
class _Pair:
    """Two bodies that must not touch; the first is the base where it has boxes instead of spheres."""

    first: int
    second: int
    boxes: tuple[Obstacle, ...] = ()


class SelfCollisionModel:
    """Pairs of bodies that must not touch: all but neighbours.

    Args:
        robot: The robot. Its simple shapes count, a mesh does not: see :attr:`bare_bodies`.

    Attributes:
        bare_bodies: Names of the bodies without shapes; their collisions are unknown.
        boxes: Boxes of the base, in its axes; empty where it has other shapes.
    """

    def __init__(self, robot: FreeFlyer):
        self._robot = robot
        tree = robot.tree
        self._centers: list[Array] = [np.zeros((0, 3)) for _ in range(tree.count)]
        self._radii: list[Array] = [np.zeros(0) for _ in range(tree.count)]
        self.boxes = boxes = _base_boxes(robot)
        frames = {frame.name: frame for frame in tree.model.frames if frame.type == pin.FrameType.BODY}
        for link, rows in cover_links(robot.urdf).items():
            body, placement = int(frames[link].parentJoint) - 1, frames[link].placement
            if body == 0 and boxes:
                continue
            table = np.array(rows)
            points = table[:, :3] @ placement.rotation.T + placement.translation
            self._centers[body] = np.concatenate([self._centers[body], points])
            self._radii[body] = np.concatenate([self._radii[body], table[:, 3]])
        has_shape = [bool(len(radii)) or (body == 0 and bool(boxes)) for body, radii in enumerate(self._radii)]
        self.bare_bodies = tuple(name for name, known in zip(tree.body_names, has_shape, strict=True) if not known)
        self._pairs = [
            _Pair(a, b, boxes if a == 0 else ())
            for a, b in combinations(range(tree.count), 2)
            if has_shape[a] and has_shape[b] and tree.parents[b] != a
        ]
        self._reaches = [self._reach(body) for body in range(tree.count)]
        hulls = [_hull(points, radii) for points, radii in zip(self._centers, self._radii, strict=True)]
        self._hull_centers, self._hull_radii = (np.array([hull[k] for hull in hulls]) for k in range(2))

    def spheres(self, states: BodyStates) -> list[tuple[Array, float]]:
        """Return centres (3,) in the axes of the base and radii of all spheres at the first sample [m]."""
        bodies = range(self._robot.tree.count)
        places = [self._places(states, body)[0] for body in bodies]
        return [(p, float(r)) for body in bodies for p, r in zip(places[body], self._radii[body], strict=True)]

    def gaps(self, states: BodyStates) -> Array:
        """Compute the gaps between bodies, (N, number of pairs) [m]; negative where they overlap."""
        return np.stack([self._nearest(states, pair)[0] for pair in self._pairs], axis=1) if self._pairs else (
            np.full((len(states.positions), 1), np.inf)
        )  # fmt: skip

    def penalty(self, states: BodyStates, clearance: float) -> tuple[float, Array]:
        """Compute the shortfall of a clearance [m] at N postures.

        Returns:
            The sum of its squares [m^2], and the derivative as a force on each body and its moment about the origin of
            the base, (N, B, 6).
        """
        total, forces = 0.0, np.zeros((*states.positions.shape[:2], 6))
        is_near = self._lower_gaps(states) < clearance
        for index in np.flatnonzero(is_near.any(axis=0)):
            pair, near = self._pairs[index], np.flatnonzero(is_near[:, index])
            gap, place, direction, other = self._nearest(_rows(states, near), pair)
            missing = np.maximum(clearance - gap, 0.0)
            total += float((missing**2).sum())
            force = -2.0 * missing[:, None] * direction
            for body, point, push in ((pair.second, place, force), (pair.first, other, -force)):
                forces[near, body, :3] += push
                forces[near, body, 3:] += cross(point, push)
        return total, forces

    def prove(self, trajectory: CycloidTrajectory, clearance: float) -> float:
        """Prove that no bodies touch along a motion, at all times.

        Every interval is divided until the gap in the middle of a piece exceeds the largest motion within it.

        Args:
            trajectory: The motion of the joints.
            clearance: The required gap [m].

        Returns:
            The smallest sampled gap [m]; the proven one is ``clearance``.

        Raises:
            PlanRejected: They touch, or it cannot be proven.
        """
        turns = np.diff(trajectory.knots, axis=0)
        pieces = np.stack([np.arange(len(turns)), np.full(len(turns), 0.5), np.full(len(turns), 0.5)], axis=1)
        smallest = np.inf
        while len(pieces) and self._pairs:
            index = pieces[:, 0].astype(int)
            q = trajectory.knots[index] + turns[index] * pieces[:, 1:2]
            gaps = self.gaps(self._robot.tree.evaluate(q, np.zeros_like(q)))
            sweeps = np.abs(turns[index]) * pieces[:, 2:3]
            moved = np.stack([sweeps @ (self._reaches[p.first] + self._reaches[p.second]) for p in self._pairs], axis=1)
            smallest = min(smallest, float(gaps.min()))
            failed = (gaps < clearance).any(axis=1) | (
                (gaps - moved < clearance).any(axis=1) & (pieces[:, 2] < _SHORTEST)
            )
            if failed.any():
                piece, which = np.unravel_index(np.argmin(np.where(failed[:, None], gaps, np.inf)), gaps.shape)
                pair = self._pairs[which]
                names = tuple(self._robot.tree.body_names[body] for body in (pair.first, pair.second))
                time = _time_of(trajectory, int(index[piece]), float(pieces[piece, 1]))
                gap = float(gaps[piece, which])
                raise PlanRejected(LimitKind.SELF_COLLISION, names, time, gap, clearance, _ADVICE)
            open_pieces = pieces[(gaps - moved < clearance).any(axis=1)]
            shift = np.array([0.0, 0.5, 0.0]) * open_pieces[:, 2:3]
            halved = open_pieces * [1.0, 1.0, 0.5]
            pieces = np.concatenate([halved - shift, halved + shift])
        return smallest

    def _nearest(self, states: BodyStates, pair: _Pair) -> tuple[Array, Array, Array, Array]:
        """Return gap (N,), the place on the second body, the direction away from the first, and the place on that."""
        points = self._places(states, pair.second)
        radii = self._radii[pair.second]
        rows = np.arange(len(points))
        if pair.boxes:
            distances = np.stack([box.distance(points) for box in pair.boxes], axis=-1)
            flat = (distances - radii[:, None]).reshape(len(points), -1)
            chosen = flat.argmin(axis=1)
            sphere, box_index = chosen // len(pair.boxes), chosen % len(pair.boxes)
            place = points[rows, sphere]
            return flat[rows, chosen], place, _away(pair.boxes, box_index, place), place
        others = self._places(states, pair.first)
        x, y, z = (points[..., k, None] - others[:, None, :, k] for k in range(3))
        lengths = np.sqrt(x * x + y * y + z * z)
        flat = (lengths - radii[:, None] - self._radii[pair.first]).reshape(len(points), -1)
        chosen = flat.argmin(axis=1)
        one, two = chosen // others.shape[1], chosen % others.shape[1]
        place, other = points[rows, one], others[rows, two]
        length = np.maximum(lengths[rows, one, two], 1e-9)
        return flat[rows, chosen], place, (place - other) / length[:, None], other

    def _lower_gaps(self, states: BodyStates) -> Array:
        """Return gaps between one sphere around each body, lower bounds of the pairs' gaps, (N, pairs) [m]."""
        points = (states.rotations @ self._hull_centers[..., None])[..., 0] + states.positions
        first, second = (
            np.array([getattr(pair, end) for pair in self._pairs], dtype=int) for end in ("first", "second")
        )
        between = points[:, second] - points[:, first]
        gaps: Array = np.sqrt((between**2).sum(axis=-1)) - self._hull_radii[second] - self._hull_radii[first]
        if self.boxes:
            beside = [index for index, pair in enumerate(self._pairs) if pair.boxes]
            bodies = second[beside]
            nearest = np.min([box.distance(points[:, bodies]) for box in self.boxes], axis=0)
            gaps[:, beside] = nearest - self._hull_radii[bodies]
        return gaps

    def _places(self, states: BodyStates, body: int) -> Array:
        """Return the centres of the spheres of a body in the axes of the base, (N, S, 3) [m]."""
        places: Array = self._centers[body] @ np.swapaxes(states.rotations[:, body], 1, 2)
        return places + states.positions[:, body, None]

    def _reach(self, body: int) -> Array:
        """Return the largest motion of a sphere of a body per unit of each joint, (n,) [m/rad, m/m]."""
        tree, reach = self._robot.tree, np.zeros(self._robot.n)
        length = float(np.linalg.norm(self._centers[body], axis=1).max()) if len(self._centers[body]) else 0.0
        while body > 0:
            joint = body - 1
            slides = tree.model.joints[body + 1].shortname().startswith("JointModelP")
            length += max(abs(self._robot.q_lower[joint]), abs(self._robot.q_upper[joint])) if slides else 0.0
            reach[joint] = 1.0 if slides else length
            length += float(np.linalg.norm(tree.model.jointPlacements[body + 1].translation))
            body = int(tree.parents[body])
        return reach


def _hull(centers: Array, radii: Array) -> tuple[Array, float]:
    if not len(radii):
        return np.zeros(3), 0.0
    middle = 0.5 * (centers.min(axis=0) + centers.max(axis=0))
    return middle, float((np.linalg.norm(centers - middle, axis=1) + radii).max())


def _rows(states: BodyStates, rows: NDArray[np.intp]) -> BodyStates:
    return BodyStates(states.rotations[rows], states.positions[rows], states.linear[rows], states.angular[rows])


def _away(boxes: tuple[Obstacle, ...], index: NDArray[np.intp], points: Array) -> Array:
    """Return the directions in which the distances of points (N, 3) to the boxes of an index (N,) grow, (N, 3)."""
    turns = np.stack([box.rotation for box in boxes])[index]
    local = np.einsum("nji,nj->ni", turns, points - np.stack([box.center for box in boxes])[index])
    beyond = np.abs(local) - np.stack([box.half_extents for box in boxes])[index]
    outside = np.maximum(beyond, 0.0)
    length = np.linalg.norm(outside, axis=1, keepdims=True)
    inside = np.eye(3)[beyond.argmax(axis=1)]
    direction = np.where(length > 0.0, outside / np.maximum(length, 1e-12), inside) * np.where(local < 0.0, -1.0, 1.0)
    result: Array = np.einsum("nij,nj->ni", turns, direction)
    return result


def _time_of(trajectory: CycloidTrajectory, interval: int, progress: float) -> float:
    """Return when an interval has come a share of its way [s]."""
    phases = np.linspace(0.0, 1.0, 1001)
    phase = np.interp(progress, phases - np.sin(2.0 * np.pi * phases) / (2.0 * np.pi), phases)
    return float((interval + phase) * trajectory.period)


def _base_boxes(robot: FreeFlyer) -> tuple[Obstacle, ...]:
    """Return the base as boxes, which fit it better than spheres; empty unless all its shapes are boxes."""
    model = robot.tree.model
    links = {f.name: f for f in model.frames if f.type == pin.FrameType.BODY and f.parentJoint == 1}
    boxes = []
    for link, shapes in shapes_of_links(robot.urdf).items():
        for shape in shapes if link in links else []:
            (tag, half), (rotation, center), place = form_of(shape), placement_of(shape), links[link].placement
            if tag != "box":
                return ()
            boxes.append(Obstacle(link, place.act(center), half, np.asarray(place.rotation @ rotation, dtype=float)))
    return tuple(boxes)
