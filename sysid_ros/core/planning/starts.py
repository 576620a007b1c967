"""Where the search begins."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.planning.problem import PlanProblem
from sysid_ros.core.planning.search import PENALTY

Array = NDArray[np.float64]

_NEAR = 0.3
"""Pairs and obstacles that stay further apart than this in all random motions are left out of the search [m]."""
_APART = 0.5
"""Starts differ by at least this in some coordinate."""


def first_starts(problem: PlanProblem, last_end: Array | None) -> Array:
    """Return the best of random motions, the gentlest stop, going on as before and to the goal, all different; (B, n).

    Far pairs and obstacles are left out of the problem on the way.

    Args:
        problem: The problem.
        last_end: End position of the last plan, (n,) [rad]; None without one.
    """
    settings, n = problem.model.settings, problem.model.robot.n
    rng = np.random.default_rng(settings.seed)
    # Large motions excite: most draws are near the faces of the cube.
    draws = rng.choice([-1.0, 1.0], (settings.draws, n)) * np.sqrt(rng.uniform(0.0, 1.0, (settings.draws, n)))
    special = [problem.minimum_acceleration]
    if last_end is not None:
        special.append(problem.space.coordinates(last_end - problem.request.state[0]))
    if problem.request.goal is not None:
        special.append(problem.space.coordinates(problem.request.goal - problem.request.state[0]))
    k = np.concatenate([special, draws])
    x = problem.space.offsets(k)
    samples = problem.coarse_constraints().evaluate(x)
    merit = problem.coarse_cost().evaluate(x) + PENALTY * np.maximum(samples.worst, 0.0)
    problem.leave_out_far(samples, _NEAR)
    chosen: list[Array] = []
    for index in np.argsort(merit, kind="stable"):
        if all(np.abs(k[index] - other).max() >= _APART for other in chosen):
            chosen.append(k[index])
        if len(chosen) == settings.starts:
            break
    return np.array(chosen)


def repair_starts(problem: PlanProblem, rejected: Array) -> Array:
    """Return a rejected motion, end offset (n,) [rad], and one halfway to the minimum-acceleration stop; (2, n)."""
    k = problem.space.coordinates(rejected)
    return np.stack([k, 0.5 * (k + problem.minimum_acceleration)])
