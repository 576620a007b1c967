"""Links that are left out of comparisons because position limits keep them apart: against dense samples."""

from __future__ import annotations

import numpy as np
import pytest

from sysid_ros.core.collision.clearance import pair_distances, sphere_centers
from sysid_ros.core.collision.pair_pruning import are_kept_apart


def smallest_gap(robot, inner, outer, count=31):
    """Of spheres with joints 2 and 3 between them, on a grid of their positions."""
    grids = np.meshgrid(*np.linspace(robot.limits.q_lower[1:3], robot.limits.q_upper[1:3], count).T)
    postures = np.tile(robot.home, (grids[0].size, 1))
    postures[:, 1], postures[:, 2] = (grid.ravel() for grid in grids)
    spheres = (*inner, *outer)
    pairs = np.array([(i, len(inner) + j) for i in range(len(inner)) for j in range(len(outer))])
    return pair_distances(sphere_centers(robot, spheres, postures), spheres, pairs).min()


def of_link(robot, name):
    return [sphere for sphere in robot.spheres if sphere.link == name]


def test_what_is_proven_is_so_and_little_else_is(make_chain):
    """Arms with joints in any direction, some that turn all the way round and some whose range is not about zero."""
    rng, proven, open_gaps = np.random.default_rng(5), 0, []
    for _ in range(40):
        middles, halves = rng.uniform(-2.0, 2.0, 3), rng.uniform(0.1, 3.6, 3)
        axes, turns = rng.normal(size=(3, 3)).tolist(), rng.uniform(-2, 2, (3, 3)).tolist()
        ranges = list(zip((middles - halves).tolist(), (middles + halves).tolist(), strict=True))
        robot = make_chain([0.3, rng.uniform(0.05, 0.4), 0.25], ranges, axes, turns)
        gap = smallest_gap(robot, of_link(robot, "a"), of_link(robot, "c"))
        if are_kept_apart(robot, of_link(robot, "a"), of_link(robot, "c")):
            assert gap > 0.0
            proven += 1
        else:
            open_gaps.append(gap)
    assert proven >= 10 and len(open_gaps) >= 10
    assert max(open_gaps) < 0.03


@pytest.mark.parametrize(("limit", "is_apart"), [(1.3, True), (2.5, False)])
def test_limits_decide(make_chain, limit, is_apart):
    """Links of 0.4, 0.2 and 0.15 m in a plane: the last reaches the first where the elbows close far enough."""
    robot = make_chain([0.4, 0.2, 0.15], [(-1.0, 1.0), (-limit, limit), (-limit, limit)])
    assert are_kept_apart(robot, of_link(robot, "a"), of_link(robot, "c")) == is_apart
    assert (smallest_gap(robot, of_link(robot, "a"), of_link(robot, "c")) > 0.0) == is_apart
