"""Find a way between postures around obstacles of a straight motion, or around postures that cannot hold the payload.

Usually one or two postures beside the straight way suffice: of many random ones the best count. Otherwise two trees of
postures grow towards each other from start and goal (RRT-Connect: Kuffner and LaValle, ICRA 2000), and the way is
shortened. In the end its postures are moved to where the legs are about the fastest: short, and with much torque left.
Postures count as free by samples, with margins for tracking errors; nothing is proven here: every leg is certified
before the arm moves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.held_feedback import HeldFeedback
from sysid_ros.core.model.robot import JointLimits
from sysid_ros.core.planning.constraints import AssumedErrors
from sysid_ros.core.planning.distances import FreeDistances
from sysid_ros.core.planning.problem import NoMotion, PlannerModel

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

_STEP = 0.4
"""Largest step of a tree in any joint [rad]."""
_RESOLUTION = 0.05
"""Largest step between tested postures of an edge, in any joint [rad]."""
_DRAWS = 8
"""Random postures that a tree grows towards at once."""
_GOAL_SHARE = 0.2
"""Share of draws that are the other tree's root."""
_TREES = 3
"""Ways that are found by trees, of which the fastest counts: they differ by much."""
_NOT_FREE = 30.0
"""Cost of a leg that is free in other samples only [s]."""
_REACHES = (0.25, 0.5, 1.0, 2.0)
"""How far from the straight way the postures are that are tried to go around by [rad]."""
_BESIDE = 256
"""Number of postures that are tried at each of these distances."""
_MOVES, _MOVED = 24, (0.4, 0.2, 0.1, 0.05)
"""Random displacements of a posture of a way of which the best counts, and how large they are [rad]."""
_ENOUGH_ROOM = 0.3
"""Share of the torque limits that a motion as fast as speed and acceleration allow needs about, besides holding [-]."""
_LEG_TIME = 1.5
"""Cost of another leg: the arm settles and the next one is planned [s]."""
_NEAR_END = 0.5
"""Where margins that start or goal do not keep are kept again, in any joint [rad]."""
_ROUNDING = 1e-9
_PEAK_SPEED, _PEAK_ACCELERATION = 1.875, 10.0 / np.sqrt(3.0)
"""Of a degree-5 motion from rest to rest over 1 in time 1."""


@dataclass(frozen=True)
class RouteMargins:
    """Margins along a way, besides tracking errors.

    Attributes:
        distance: Distance besides the scene's clearance [m].
        growth: Increase of tracking errors over an arm at rest [-].
    """

    distance: float
    growth: float


MARGINS = (RouteMargins(0.03, 0.5), RouteMargins(0.01, 0.3), RouteMargins(0.002, 0.1))
"""Wide margins leave room for fast motions; where no way keeps them, the next ones are tried."""


class PostureCheck:
    """Tests which postures between a start and a goal are free.

    Start and goal may leave less room than the margins: then less is enough, the closer to them the less.

    Args:
        model: Model of the planner; with the boxes of the assumptions.
        assumptions: Boxes of the parameters, scene and control law.
        errors: Tracking errors at rest, and the feedback torque then.
        margins: Margins besides.
        ends: Start and goal, (2, n) [rad].
    """

    def __init__(
        self, model: PlannerModel, assumptions: Assumptions, errors: AssumedErrors, margins: RouteMargins, ends: Array
    ):
        self._limits, self._torque = model.robot.limits, model.torque
        limits, scene = self._limits, assumptions.scene
        spheres, wide = model.spheres_in(scene), errors.grown(margins.growth)
        clearance = scene.clearance + margins.distance
        self._distances = FreeDistances(spheres, wide.position, clearance) if spheres.has_rows else None
        self._torque_limit, self._clearance = HeldFeedback.bound(assumptions, wide).largest_rest(limits), clearance
        self._ends = ends
        needed, free = self._rooms(ends)
        self._more_torque = np.maximum(needed - self._torque_limit, 0.0)
        self._less_distance = np.maximum(clearance - free, 0.0)
        self.lower = np.minimum(limits.q_lower + wide.position, ends.min(axis=0))
        self.upper = np.maximum(limits.q_upper - wide.position, ends.max(axis=0))

    def _rooms(self, q: Array) -> tuple[Array, Array]:
        """Return the torque needed at rest (N, n) [Nm] and the free distances (N, rows) [m] at postures (N, n)."""
        torque = self._torque.demand_at_rest(q)
        if self._distances is None:
            return torque, np.empty((len(q), 0))
        return torque, self._distances.evaluate(q).free

    def are_free(self, q: Array) -> Bools:
        """Return which postures (N, n) are within limits, free, and can be held with every payload, (N,)."""
        return self._look(q)[0]

    def _look(self, q: Array) -> tuple[Bools, Array]:
        """Return which postures (N, n) are free, and the torque left there, the least share of a limit, (N,)."""
        torque, free = self._rooms(q)
        room = ((self._torque_limit - torque) / self._limits.tau_held).min(axis=1)
        near = np.maximum(1.0 - np.abs(q[:, None] - self._ends).max(axis=2) / _NEAR_END, 0.0)[..., None]  # (N, 2, 1)
        torque -= (near * self._more_torque).max(axis=1)
        free += (near * self._less_distance).max(axis=1)
        is_free: Bools = np.all((q >= self.lower) & (q <= self.upper), axis=1)
        is_free &= np.all(torque <= self._torque_limit + _ROUNDING, axis=1)
        is_free &= np.all(free >= self._clearance - _ROUNDING, axis=1)
        return is_free, room

    def free_edges(self, begins: Array, ends: Array) -> Bools:
        """Return which straight ways (B, n) to (B, n) are free at samples, (B,)."""
        return np.asarray(np.isfinite(self.times(begins, ends)))

    def times(self, begins: Array, ends: Array) -> Array:
        """Estimate how long straight motions from rest at (B, n) to rest at (B, n) take, (B,) [s]; inf if not free.

        Time by the limits of speed and acceleration, longer where little torque is left: accelerations take a share of
        the torque that falls with the square of the duration.
        """
        count = max(2, int(np.ceil(np.abs(ends - begins).max() / _RESOLUTION)) + 1)
        along = np.linspace(0.0, 1.0, count)[:, None]
        postures = begins[:, None] + along * (ends - begins)[:, None]
        is_free, room = self._look(postures.reshape(-1, begins.shape[1]))
        least = np.maximum(room.reshape(-1, count).min(axis=1), 1e-2)
        seconds = shortest_time(self._limits, ends - begins) * np.sqrt(np.maximum(_ENOUGH_ROOM / least, 1.0))
        return np.where(is_free.reshape(-1, count).all(axis=1), seconds, np.inf)


def shortest_time(limits: JointLimits, distance: Array) -> Array:
    """Return the duration at which a degree-5 motion from rest to rest over (..., n) just keeps their limits, (...)."""
    distance = np.abs(distance)
    by_velocity = _PEAK_SPEED * distance / limits.v_max
    by_acceleration = np.sqrt(_PEAK_ACCELERATION * distance / limits.a_max)
    return np.asarray(np.maximum(by_velocity, by_acceleration).max(axis=-1))


class _Tree:
    def __init__(self, root: Array):
        self.postures, self._parents = root[None].copy(), [-1]

    def nearest(self, q: Array) -> NDArray[np.intp]:
        """Return the numbers of the postures nearest to others (B, n), (B,)."""
        distances = np.abs(self.postures[None] - q[:, None]).max(axis=2)
        return np.asarray(distances.argmin(axis=1))

    def add(self, q: Array, parents: NDArray[np.intp]) -> None:
        """Add postures (B, n) reached from others (B,)."""
        self.postures = np.concatenate([self.postures, q])
        self._parents.extend(int(parent) for parent in parents)

    def way_to_root(self, index: int) -> list[Array]:
        way = []
        while index >= 0:
            way.append(self.postures[index])
            index = self._parents[index]
        return way


def find_route(
    check: PostureCheck, start: Array, goal: Array, seed: int, must_stop: Callable[[], bool], is_short: bool = False
) -> tuple[Array, ...]:
    """Find postures between which straight ways are free, from start to goal.

    Args:
        check: Test of postures.
        start: Where it begins, (n,) [rad].
        goal: Where it ends, (n,) [rad].
        seed: Of the random postures; the same seed gives the same way, unless the time runs out.
        must_stop: Whether to give up.
        is_short: Whether to search only for ways by one or two postures beside the straight one.

    Returns:
        The postures after the start, (n,) each; the goal is the last.

    Raises:
        NoMotion: No way was found.
    """
    rng = np.random.default_rng(seed)
    way = _beside(check, start, goal, rng, must_stop)
    if way is None and is_short:
        raise NoMotion("no way to the goal was found: there is none by two postures beside the straight one")
    if way is None:
        ways = list[list[Array]]()
        while not ways or (len(ways) < _TREES and not must_stop()):
            try:
                ways.append(_shortened(check, _connect(check, start, goal, rng, must_stop), rng, must_stop))
            except NoMotion:  # the time is up
                if not ways:
                    raise
        way = min(ways, key=lambda one: _time_of(check, one))
    return tuple(_faster(check, way, rng, must_stop)[1:])


def _time_of(check: PostureCheck, way: list[Array]) -> float:
    """Estimate how long a way takes [s]; one that is free in other samples only counts as a long one."""
    seconds = [float(check.times(*pair[:, None])[0]) for pair in np.stack([way[:-1], way[1:]], axis=1)]
    return float(np.minimum(seconds, _NOT_FREE).sum()) + _LEG_TIME * (len(way) - 1)


def _beside(
    check: PostureCheck, start: Array, goal: Array, rng: np.random.Generator, must_stop: Callable[[], bool]
) -> list[Array] | None:
    """Find the fastest of some ways by one or two postures beside the straight way; None where none is free.

    Two postures are beside it in the same direction: the obstacle in between is passed at a distance.
    """
    best, least = None, np.inf
    for reach in _REACHES:
        shape = (_BESIDE, start.size)
        draws = reach * rng.uniform(-1.0, 1.0, shape) * (rng.random(shape) < 0.5)
        first, last = np.sort(rng.uniform(0.1, 0.9, (2, _BESIDE, 1)), axis=0)
        one, other = (start + share * (goal - start) + draws for share in (first, last))
        for way in ((one,), (one, other)):
            if must_stop():
                return best
            found, seconds = _fastest(check, start, goal, way)
            seconds += _LEG_TIME * len(way)
            if found is not None and seconds < least:
                best, least = found, seconds
    return best


def _fastest(
    check: PostureCheck, start: Array, goal: Array, middles: tuple[Array, ...]
) -> tuple[list[Array] | None, float]:
    """Find the fastest of B ways by postures (B, n) each; None where none is free."""
    free = np.all([check.are_free(q) for q in middles], axis=0)
    stops = [np.broadcast_to(start, middles[0].shape), *middles, np.broadcast_to(goal, middles[0].shape)]
    times = np.where(free, 0.0, np.inf)
    for begins, ends in zip(stops, stops[1:], strict=False):
        known = np.isfinite(times)
        if not known.any():
            return None, np.inf
        times[known] += check.times(begins[known], ends[known])
    index = int(times.argmin())
    return ([q[index].copy() for q in stops], float(times[index])) if np.isfinite(times[index]) else (None, np.inf)


def _faster(
    check: PostureCheck, way: list[Array], rng: np.random.Generator, must_stop: Callable[[], bool]
) -> list[Array]:
    """Move the postures of a way to where its legs take the least time, and remove needless ones."""
    way = list(way)
    for reach in _MOVED:
        index = 1
        while index < len(way) - 1:
            if must_stop():
                return way
            shape = (_MOVES, way[index].size)
            draws = reach * rng.uniform(-1.0, 1.0, shape) * (rng.random(shape) < 0.5)
            draws[0] = 0.0
            middles = np.clip(way[index] + draws, check.lower, check.upper)
            before, after = (np.broadcast_to(way[i], middles.shape) for i in (index - 1, index + 1))
            times = check.times(before, middles) + check.times(middles, after)
            straight = check.times(way[index - 1][None], way[index + 1][None])[0]
            if np.isfinite(straight) and straight <= times.min() + _LEG_TIME:
                del way[index]
                continue
            if np.isfinite(times.min()):
                way[index] = middles[int(times.argmin())]
            index += 1
    return way


def _connect(
    check: PostureCheck, start: Array, goal: Array, rng: np.random.Generator, must_stop: Callable[[], bool]
) -> list[Array]:
    """Grow both trees until they meet; return the way from start to goal."""
    if check.free_edges(start[None], goal[None])[0]:
        return [start, goal]
    # Joints without limits are searched within a turn of the start.
    lower = np.maximum(check.lower, np.minimum(start, goal) - np.pi)
    upper = np.minimum(check.upper, np.maximum(start, goal) + np.pi)
    trees = [_Tree(start), _Tree(goal)]
    growing = 0
    while not must_stop():
        tree, other = trees[growing], trees[1 - growing]
        draws = rng.uniform(lower, upper, (_DRAWS, start.size))
        draws[rng.random(_DRAWS) < _GOAL_SHARE] = other.postures[0]
        parents = tree.nearest(draws)
        begins = tree.postures[parents]
        steps = draws - begins
        ends = begins + steps * np.minimum(1.0, _STEP / np.maximum(np.abs(steps).max(axis=1), 1e-9))[:, None]
        free = check.free_edges(begins, ends)
        first = len(tree.postures)
        tree.add(ends[free], parents[free])
        added = tree.postures[first:]
        if len(added):
            near = other.nearest(added)
            meets = np.flatnonzero(check.free_edges(other.postures[near], added))
            if meets.size:
                one = int(meets[0])
                halves = tree.way_to_root(first + one), other.way_to_root(int(near[one]))
                here, there = halves if growing == 0 else halves[::-1]
                return [*here[::-1], *there]
        growing = 1 - growing
    raise NoMotion("no way to the goal was found: the time is up")


def _shortened(
    check: PostureCheck, way: list[Array], rng: np.random.Generator, must_stop: Callable[[], bool]
) -> list[Array]:
    """Cut corners between random points of a way, then remove needless postures."""
    for _ in range(120):
        if len(way) == 2 or must_stop():
            break
        one, other = np.sort(rng.uniform(0.0, len(way) - 1.0, 2))
        i, j = int(one), int(other)
        if i == j:
            continue
        begin = way[i] + (one - i) * (way[i + 1] - way[i])
        end = way[j] + (other - j) * (way[min(j + 1, len(way) - 1)] - way[j])
        if check.free_edges(begin[None], end[None])[0]:
            way = [*way[: i + 1], begin, end, *way[j + 1 :]]
            way = _without_needless(check, way)
    return _without_needless(check, way)


def _without_needless(check: PostureCheck, way: list[Array]) -> list[Array]:
    """Go from each posture straight to the last one that can be reached so."""
    kept, index = [way[0]], 0
    while index < len(way) - 1:
        ends = np.stack(way[index + 1 :])
        free = check.free_edges(np.repeat(way[index][None], len(ends), axis=0), ends)
        free[0] = True
        index += 1 + int(np.flatnonzero(free)[-1])
        kept.append(way[index])
    return kept
