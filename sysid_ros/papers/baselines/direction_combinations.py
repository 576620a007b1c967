"""Exciting motions as planned in the paper: direction combinations, seed parameters, pruning (SPACE section 5)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import setting
from sysid_ros.core.trajectories.families import CycloidTrajectory
from sysid_ros.space.core.excitation import (
    ExcitationPlan,
    ExcitationSettings,
    largest_range,
    largest_wheel_turns,
    require_wanted,
)
from sysid_ros.space.core.intervals import FloatingMotion, IntervalInformation, condition_number
from sysid_ros.space.core.robot import FreeFlyer
from sysid_ros.space.core.self_collision import SelfCollisionModel

Array = NDArray[np.float64]

_SMALLEST_RANGE = 1e-3
"""Smallest range parameter as a share of the largest: a range is above zero."""


@dataclass(frozen=True)
class CombinationSettings(ExcitationSettings):
    """Settings of the search by direction combinations; those of random starts mean nothing here."""

    weight: float = setting(1e-3, "-", lower=0.0, upper=1e6)
    """Weight of the term for slow motions in the cost."""
    combinations: int = setting(1024, "-", lower=2, upper=100000)
    """Largest number of direction combinations tried; of more, as many are drawn by the seed."""
    significant: float = setting(1.0 / 300.0, "-", above=0.0, below=1.0)
    """Share of the largest singular value from which on one is significant."""
    patience: int = setting(5, "-", lower=0, upper=100000)
    """Largest number of intervals in a row that are kept although they add no significant singular value."""
    gain: float = setting(0.1, "-", lower=0.0, below=1.0)
    """Share by which an interval has to lower the condition number to be kept for that."""


def direction_combinations(count: int, most: int | None = None, seed: int = 0) -> Iterator[NDArray[np.int8]]:
    """Yield direction combinations of joints and wheels one by one, the first of them always positive.

    Args:
        count: Number of joints and wheels [-].
        most: Largest number of combinations; of more, as many are drawn without forming the others. None for all.
        seed: Seed of the draw.

    Yields:
        Signs, (count,), of ``2^(count - 1)`` combinations in the order of binary counting, the second joint first and
        the last wheel fastest. The paper does not print its order; this one has its numbers of significant singular
        values, interval by interval.

    Source: SPACE section 5.2, 6.2.5.
    """
    if count < 1:
        raise ParameterOutOfRange("count of joints and wheels", count, "1 or more")
    codes = range(2 ** (count - 1))
    chosen = codes if most is None or len(codes) <= most else sorted(random.Random(seed).sample(codes, most))
    for code in chosen:
        bits = np.array([(code >> bit) & 1 for bit in reversed(range(count - 1))], dtype=np.int8)
        yield np.concatenate([[1], 1 - 2 * bits]).astype(np.int8)


def plan_by_direction_combinations(
    robot: FreeFlyer,
    parameters: ArrayLike,
    settings: CombinationSettings | None = None,
    clock: Callable[[], float] = time.monotonic,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_progress: Callable[[float, str], None] = lambda share, text: None,
) -> ExcitationPlan:
    """Plan an exciting motion as the paper does, in three steps: all combinations, pruning, the remaining ones.

    Collisions do not enter the search, as in the paper; the plan has the smallest gap of its bodies.

    Args:
        robot: The robot.
        parameters: Inertial parameters to plan with, (10 B,).
        settings: Settings of the search.
        clock: Clock of the time limit [s].
        is_cancelled: Polled between evaluations.
        on_progress: Called with the done share, 0..1, and the present step.

    Returns:
        The plan.

    Raises:
        Cancelled: ``is_cancelled`` returned true.

    Source: SPACE sections 5.2 to 5.6, (28) to (37), Algorithm 1.
    """
    settings = settings or CombinationSettings()
    begin = clock()
    information = IntervalInformation(robot, parameters, settings.period, settings.samples)
    count = robot.n + robot.wheels.count
    everything = np.array(list(direction_combinations(count, settings.combinations, settings.seed)))
    steps = _Steps(information, settings, clock, is_cancelled)
    on_progress(0.0, f"optimising {len(everything)} intervals")
    seeds = steps.optimize(everything, begin + 0.5 * settings.time_limit)
    on_progress(0.5, "pruning intervals")
    knots, turns = steps.motion(everything, seeds)
    kept = everything[prune_intervals(information.grams(knots, turns), settings)]
    on_progress(0.6, f"optimising the {len(kept)} intervals left")
    seeds = steps.optimize(kept, begin + settings.time_limit)
    knots, turns = steps.motion(kept, seeds)
    value = information.condition_number(knots, turns)
    on_progress(1.0, f"condition number {value:.1f}")
    collisions = SelfCollisionModel(robot)
    gap = float(collisions.gaps(robot.tree.evaluate(knots, np.zeros_like(knots))).min())
    motion = FloatingMotion(CycloidTrajectory(knots, settings.period), turns)
    return ExcitationPlan(motion, value, gap, clock() - begin, steps.evaluations)


def seeded_knots(directions: NDArray[np.int8], starts: ArrayLike, ranges: ArrayLike) -> Array:
    """Return the knots of direction combinations with seed parameters.

    Args:
        directions: Signs of joints and wheels, (K, n + W).
        starts: Start parameters, (n,) [rad].
        ranges: Range parameters, (n,) [rad].

    Returns:
        Knots of the joints, (K + 1, n) [rad].

    Source: SPACE (30), (31).
    """
    first = np.asarray(starts, dtype=float)
    knots: Array = first + _counts(directions, first.size) * np.asarray(ranges, dtype=float)
    return knots


def significant_values(gram: Array, share: float) -> int:
    """Count the singular values of the regressor with a Gram matrix (P, P) that exceed a share of the largest."""
    singular = np.sqrt(np.maximum(np.linalg.eigvalsh(gram), 0.0))
    return int(np.count_nonzero(singular > share * singular[-1]))


def prune_intervals(grams: Array, settings: CombinationSettings) -> list[int]:
    """Choose the intervals of a motion that are worth their time.

    Args:
        grams: Gram matrices of the intervals, (K, P, P).
        settings: Settings of the search.

    Returns:
        Indices of the intervals to keep, ascending.

    Source: SPACE Algorithm 1 with three differences. As printed it never renews the numbers it compares with, and keeps
    everything; here they are those of the intervals kept so far. Intervals without a new significant singular value
    count as in the text, kept or not: at most ``patience`` in a row stay for that reason. And a condition number has to
    fall by the share ``gain``, as nearly every interval lowers it a little.
    """
    first = -(-(grams.shape[1] + 1) // (6 * settings.samples))
    kept, equal = list(range(min(first, len(grams)))), 0
    gram = grams[kept].sum(axis=0)
    significant, condition = significant_values(gram, settings.significant), condition_number(gram)
    for index in range(len(kept), len(grams)):
        trial = gram + grams[index]
        now, better = significant_values(trial, settings.significant), condition_number(trial)
        equal = equal + 1 if now == significant else 0
        is_waiting = 0 < equal <= settings.patience
        if now > significant or better < condition * (1.0 - settings.gain) or is_waiting:
            kept.append(index)
            gram, significant, condition = trial, now, better
    return kept


class _Steps:
    """Steps 1 and 3: the best seed parameters of given direction combinations."""

    def __init__(
        self,
        information: IntervalInformation,
        settings: CombinationSettings,
        clock: Callable[[], float],
        is_cancelled: Callable[[], bool],
    ):
        self._information, self._settings = information, settings
        self._clock, self._is_cancelled = clock, is_cancelled
        self.evaluations = 0

    def motion(self, directions: NDArray[np.int8], seeds: Array) -> tuple[Array, Array]:
        """Return knots and wheel turns of direction combinations with seeds [starts, ranges]."""
        robot = self._information.robot
        turns = largest_wheel_turns(robot, self._settings.period) * directions[:, robot.n :]
        return seeded_knots(directions, *np.split(seeds, 2)), turns

    def optimize(self, directions: NDArray[np.int8], deadline: float) -> Array:
        """Minimise the cost over start and range of each joint, SPACE (32) with (33) and (37)."""
        robot, n = self._information.robot, self._information.robot.n
        counts = _counts(directions, n)
        lowest, highest = counts.min(axis=0), counts.max(axis=0)
        span = robot.q_upper - robot.q_lower
        reach = np.minimum(largest_range(robot, self._settings.period), span / (highest - lowest))
        scale = np.concatenate([span, reach])
        rates = (6 + n) * len(directions) * self._settings.samples * self._settings.weight

        def cost(x: Array) -> tuple[float, Array]:
            require_wanted(self._is_cancelled)
            if self._clock() > deadline and best[0] < np.inf:
                raise TimeoutError
            self.evaluations += 1
            knots, turns = self.motion(directions, x * scale)
            intervals = self._information.evaluate(knots[:-1], knots[1:], turns)
            values, vectors = np.linalg.eigh(intervals.gram())
            condition, squares = float(np.sqrt(values[-1] / max(values[0], 1e-300))), intervals.squares()
            value = condition + rates / squares
            if value < best[0]:
                best[:] = [value, x.copy()]
            largest, smallest = vectors[:, -1:], vectors[:, :1]
            weights = 0.5 * condition * (largest @ largest.T / values[-1] - smallest @ smallest.T / values[0])
            starts, ends, _ = self._information.gradient(intervals, weights, -rates / squares**2)
            slope = np.zeros_like(knots)
            slope[:-1] += starts
            slope[1:] += ends
            gradient = np.concatenate([slope.sum(axis=0), (slope * counts).sum(axis=0)]) * scale
            return float(np.log(value)), gradient / value

        # Position limits at the extremes of all knots: linear in start and range.
        rows = np.zeros((2 * n, 2 * n))
        rows[:n, :n], rows[:n, n:] = np.diag(scale[:n]), np.diag(lowest * scale[n:])
        rows[n:, :n], rows[n:, n:] = np.diag(-scale[:n]), np.diag(-highest * scale[n:])
        offsets = np.concatenate([-robot.q_lower, robot.q_upper])
        middle = 0.5 * (robot.q_lower + robot.q_upper) - 0.25 * (highest + lowest) * reach
        start = np.concatenate([middle, 0.5 * reach]) / scale
        best: list[Any] = [np.inf, start]
        try:
            minimize(
                cost,
                start,
                jac=True,
                method="SLSQP",
                bounds=[(-1.0, 1.0)] * n + [(_SMALLEST_RANGE, 1.0)] * n,
                constraints={"type": "ineq", "fun": lambda x: rows @ x + offsets, "jac": lambda x: rows},
                options={"maxiter": self._settings.iterations, "ftol": 1e-6},
            )
        except TimeoutError:
            pass
        # Violations of a position limit by the solver are shifted back.
        starts, ranges = np.split(best[1] * scale, 2)
        starts = np.clip(starts, robot.q_lower - lowest * ranges, robot.q_upper - highest * ranges)
        return np.concatenate([starts, ranges])


def _counts(directions: NDArray[np.int8], n: int) -> Array:
    """Return how many ranges each joint is from its start at every knot, (K + 1, n)."""
    return np.concatenate([np.zeros((1, n)), np.cumsum(directions[:, :n], axis=0, dtype=float)])
