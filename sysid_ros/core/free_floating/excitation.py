"""Exciting motions of a free-flying robot: direction combinations as in the paper, and knots that are all free.

Both are made of cycloids of equal length. What an interval tells of the minimal parameters is a Gram matrix that
depends on its own two knots and on the turns of the wheels alone: with no momentum from before, the motion of the base
follows from that of the joints, seen from the base. So matrices of intervals add, and a gradient takes few evaluations.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.free_floating.minimal_parameters import MinimalParameters, build_minimal_parameters
from sysid_ros.core.free_floating.momentum import link_kinematic_matrices, solve_base_twist
from sysid_ros.core.free_floating.robot import FreeFlyer
from sysid_ros.core.trajectories.cycloid import CycloidTrajectory

Array = NDArray[np.float64]

_CHUNK = 4096
"""Samples that are evaluated at once."""
_STEP = 1e-6
"""Step of the finite differences of one interval [rad]."""
_POWER = 6
"""Power of the norm that stands for the largest and the smallest eigenvalue: smooth where two of them meet."""
_SHORT = 1e-12


class ExcitationCancelled(SysidError):
    """Planning ended because its caller asked for it."""


@dataclass(frozen=True)
class ExcitationSettings:
    """Settings of the search.

    Attributes:
        period: Length of an interval T_p [s].
        wheel_turn: Angle by which a wheel turns in an interval [rad].
        samples: Samples of an interval that count in the search [-].
        weight: Weight w of the second term of the cost, SPACE (32) [-].
        iterations: Largest number of iterations of one optimisation [-].
        starts: Random starts of the search with free knots [-].
        time_limit: Time after which a search ends with the best it has [s].
        seed: Seed of the random starts.
        significant: Share delta of the largest singular value from which on one is significant [-].
        patience: Largest number u_max of intervals in a row that are kept although they add no singular value [-].

    Raises:
        ParameterOutOfRange: A value is out of range.
    """

    period: float = 1.0
    wheel_turn: float = 3.0 * np.pi
    samples: int = 6
    weight: float = 1e-3
    iterations: int = 60
    starts: int = 24
    time_limit: float = 60.0
    seed: int = 0
    significant: float = 1.0 / 300.0
    patience: int = 5

    def __post_init__(self) -> None:
        checks = (
            ("period [s]", self.period, 0.0 < self.period < np.inf, "above 0"),
            ("wheel_turn [rad]", self.wheel_turn, 0.0 <= self.wheel_turn < np.inf, "0 or more"),
            ("samples [-]", self.samples, 2 <= self.samples <= 1000, "2 to 1000"),
            ("weight [-]", self.weight, 0.0 <= self.weight < np.inf, "0 or more"),
            ("iterations [-]", self.iterations, 1 <= self.iterations <= 10000, "1 to 10000"),
            ("starts [-]", self.starts, 1 <= self.starts <= 10000, "1 to 10000"),
            ("time_limit [s]", self.time_limit, 0.0 < self.time_limit, "above 0"),
            ("significant [-]", self.significant, 0.0 < self.significant < 1.0, "between 0 and 1"),
            ("patience [-]", self.patience, self.patience >= 0, "0 or more"),
        )
        for name, value, is_allowed, allowed in checks:
            if not is_allowed:
                raise ParameterOutOfRange(name, value, allowed)


@dataclass(frozen=True, eq=False)
class FloatingMotion:
    """A motion of joints and reaction wheels.

    Attributes:
        joints: Motion of the joints.
        wheel_turns: Angle by which each wheel turns in each interval, (K, W) [rad].
    """

    joints: CycloidTrajectory
    wheel_turns: Array

    def wheel_rates(self, times: ArrayLike) -> Array:
        """Return the speeds of the wheels at times (N,) [s], (N, W) [rad/s]."""
        if not self.wheel_turns.shape[1]:
            return np.zeros((np.size(times), 0))
        angles = np.concatenate([np.zeros((1, self.wheel_turns.shape[1])), np.cumsum(self.wheel_turns, axis=0)])
        return CycloidTrajectory(angles, self.joints.period).sample(times)[1]


@dataclass(frozen=True, eq=False)
class ExcitationPlan:
    """An exciting motion and what it is worth.

    Attributes:
        motion: The motion.
        condition_number: Condition number of the regressor with the parameters that were planned with [-].
        directions: Signs of the velocities of joints and wheels per interval, (K, n + W) [-].
        seconds: Time the search took [s].
    """

    motion: FloatingMotion
    condition_number: float
    directions: NDArray[np.int8]
    seconds: float


class IntervalInformation:
    """What intervals tell of the minimal parameters.

    Args:
        robot: The robot.
        parameters: Inertial parameters to plan with, (10 B,).
        settings: Settings of the search.

    Attributes:
        minimal: The minimal parameters.
    """

    def __init__(self, robot: FreeFlyer, parameters: ArrayLike, settings: ExcitationSettings):
        self.robot, self.settings = robot, settings
        self.minimal: MinimalParameters = build_minimal_parameters(robot.tree)
        self._parameters = np.asarray(parameters, dtype=float)
        phases = (np.arange(settings.samples) + 0.5) / settings.samples
        self._progress = phases - np.sin(2.0 * np.pi * phases) / (2.0 * np.pi)
        self._rate = (1.0 - np.cos(2.0 * np.pi * phases)) / settings.period

    def regressors(self, starts: Array, ends: Array, wheel_turns: Array) -> tuple[Array, Array]:
        """Compute the rows of intervals and the velocities they are made with.

        Args:
            starts: First knots, (M, n) [rad].
            ends: Second knots, (M, n) [rad].
            wheel_turns: Turns of the wheels, (M, W) [rad].

        Returns:
            Regressors, (M, 6 S, P), and squares of base twist and joint rates summed over all of them, (M,).
        """
        count, samples = len(starts), self.settings.samples
        turn = ends - starts
        q = (starts[:, None] + turn[:, None] * self._progress[:, None]).reshape(count * samples, -1)
        v = (turn[:, None] * self._rate[:, None]).reshape(count * samples, -1)
        wheels = (wheel_turns[:, None] * self._rate[:, None]).reshape(count * samples, -1)
        rows = np.empty((count * samples, 6, self.minimal.count))
        squares = np.empty(count * samples)
        for begin in range(0, count * samples, _CHUNK):
            part = slice(begin, begin + _CHUNK)
            momentum = -self.robot.wheels.momentum(wheels[part])
            states = self.robot.tree.evaluate(q[part], v[part])
            twist = solve_base_twist(states, self._parameters, momentum)
            matrices = np.swapaxes(link_kinematic_matrices(states.with_base_twist(twist)), 1, 2)
            rows[part] = matrices.reshape(len(twist), 6, -1)[..., self.minimal.kept]
            squares[part] = (twist**2).sum(axis=1) + (v[part] ** 2).sum(axis=1)
        return rows.reshape(count, 6 * samples, -1), squares.reshape(count, samples).sum(axis=1)

    def gram(self, knots: Array, wheel_turns: Array) -> Array:
        """Compute the Gram matrix of a motion, (P, P)."""
        total = np.zeros((self.minimal.count, self.minimal.count))
        step = max(1, _CHUNK // self.settings.samples)
        for begin in range(0, len(wheel_turns), step):
            part = slice(begin, begin + step)
            rows, _ = self.regressors(knots[:-1][part], knots[1:][part], wheel_turns[part])
            flat = rows.reshape(-1, self.minimal.count)
            total += flat.T @ flat
        return total

    def condition_number(self, knots: Array, wheel_turns: Array) -> float:
        """Compute the condition number of the regressor of a motion [-]."""
        return _condition(self.gram(knots, wheel_turns))


def direction_combinations(count: int) -> Iterator[NDArray[np.int8]]:
    """Yield the direction combinations of joints and wheels one by one, the first of them always positive.

    Args:
        count: Number of joints and wheels [-].

    Yields:
        Signs, (count,): ``2^(count - 1)`` of them.

    Source: SPACE section 5.2.
    """
    if count < 1:
        raise ParameterOutOfRange("count of joints and wheels", count, "1 or more")
    for code in range(2 ** (count - 1)):
        bits = (code >> np.arange(count - 1)) & 1
        yield np.concatenate([[1], 1 - 2 * bits]).astype(np.int8)


def plan_by_direction_combinations(
    robot: FreeFlyer,
    parameters: ArrayLike,
    settings: ExcitationSettings | None = None,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_progress: Callable[[float, str], None] = lambda share, text: None,
) -> ExcitationPlan:
    """Plan an exciting motion as the paper does, in three steps: all combinations, pruning, the combinations left.

    Args:
        robot: The robot.
        parameters: Inertial parameters to plan with, (10 B,).
        settings: Settings of the search.
        is_cancelled: Looked at between evaluations.
        on_progress: Called with the share that is done, 0..1, and what is being done.

    Returns:
        The plan.

    Raises:
        ExcitationCancelled: ``is_cancelled`` said so.

    Source: SPACE sections 5.2 to 5.6, (28) to (37), Algorithm 1.
    """
    settings = settings or ExcitationSettings()
    begin = time.monotonic()
    information = IntervalInformation(robot, parameters, settings)
    everything = np.array(list(direction_combinations(robot.n + robot.wheels.count)))
    on_progress(0.0, f"optimising {len(everything)} intervals")
    seeds = _optimize_seeds(information, everything, begin + 0.5 * settings.time_limit, is_cancelled)
    on_progress(0.5, "pruning intervals")
    kept = everything[prune_intervals(information, *_motion_of(information, everything, seeds))]
    on_progress(0.6, f"optimising the {len(kept)} intervals left")
    seeds = _optimize_seeds(information, kept, begin + settings.time_limit, is_cancelled)
    knots, turns = _motion_of(information, kept, seeds)
    on_progress(1.0, "done")
    return _plan(information, knots, turns, begin)


def prune_intervals(information: IntervalInformation, knots: Array, wheel_turns: Array) -> list[int]:
    """Choose the intervals of a motion that are worth their time.

    Args:
        information: What intervals tell.
        knots: Knots, (K + 1, n) [rad].
        wheel_turns: Turns of the wheels, (K, W) [rad].

    Returns:
        Indices of the intervals to keep, ascending.

    Source: SPACE Algorithm 1, with one difference: as printed it counts anew after every interval that is dropped, so
    that at least ``u_max + 1`` of ``u_max + 2`` intervals would stay; here, as its text says and its 67 of 256 need,
    only an interval that helps starts the count anew.
    """
    settings, size = information.settings, information.minimal.count
    first = -(-(size + 1) // (6 * settings.samples))
    kept, gram, waited = list(range(min(first, len(wheel_turns)))), np.zeros((size, size)), 0
    for index in kept:
        gram += _interval_gram(information, knots, wheel_turns, index)
    significant, condition = _significant(gram, settings.significant), _condition(gram)
    for index in range(len(kept), len(wheel_turns)):
        trial = gram + _interval_gram(information, knots, wheel_turns, index)
        now, better = _significant(trial, settings.significant), _condition(trial)
        helps = now > significant or better < condition
        is_patient = not helps and now == significant and waited <= settings.patience
        if helps or is_patient:
            kept.append(index)
            gram, significant, condition = trial, now, better
            waited = waited + 1 if is_patient else 0
    return kept


def plan_with_free_knots(
    robot: FreeFlyer,
    parameters: ArrayLike,
    intervals: int,
    settings: ExcitationSettings | None = None,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_progress: Callable[[float, str], None] = lambda share, text: None,
) -> ExcitationPlan:
    """Plan an exciting motion whose knots are all free, within the same limits and with the same intervals.

    The paper's two numbers per joint keep the arms near where they start; here they travel. Wheels go through their
    combinations in turn. From random walks the best is improved with the gradient of a smooth condition number.

    Args:
        robot: The robot.
        parameters: Inertial parameters to plan with, (10 B,).
        intervals: Number of intervals K [-].
        settings: Settings of the search.
        is_cancelled: Looked at between evaluations.
        on_progress: Called with the share that is done, 0..1, and what is being done.

    Returns:
        The plan.

    Raises:
        ExcitationCancelled: ``is_cancelled`` said so.
        ParameterOutOfRange: ``intervals`` is below 1.
    """
    if intervals < 1:
        raise ParameterOutOfRange("intervals [-]", intervals, "1 or more")
    settings = settings or ExcitationSettings()
    begin = time.monotonic()
    information = IntervalInformation(robot, parameters, settings)
    rng = np.random.default_rng(settings.seed)
    turns = _wheel_cycle(robot, intervals, settings.wheel_turn)
    reach = largest_range(robot, settings.period)
    best, best_cost = _random_walk(robot, rng, intervals, reach), np.inf
    for k in range(settings.starts):
        _require_wanted(is_cancelled)
        if k and time.monotonic() - begin > 0.3 * settings.time_limit:
            break
        knots = best if k == 0 else _random_walk(robot, rng, intervals, reach)
        cost = information.condition_number(knots, turns)
        if cost < best_cost:
            best, best_cost = knots, cost
        on_progress(0.3 * (k + 1) / settings.starts, f"condition number {best_cost:.0f}")
    knots = _improve(information, best, turns, reach, begin + settings.time_limit, is_cancelled, on_progress)
    on_progress(1.0, "done")
    return _plan(information, knots, turns, begin)


def largest_range(robot: FreeFlyer, period: float) -> Array:
    """Return how far each joint may turn in an interval, (n,) [rad].

    Source: SPACE (36).
    """
    return np.minimum(0.5 * period * robot.v_max, period**2 / (2.0 * np.pi) * robot.a_max)


def _motion_of(information: IntervalInformation, directions: NDArray[np.int8], seeds: Array) -> tuple[Array, Array]:
    """Return knots and wheel turns of direction combinations with seeds [starts, ranges], SPACE (30), (31)."""
    n = information.robot.n
    steps = np.concatenate([np.zeros((1, n)), np.cumsum(directions[:, :n], axis=0)])
    turns = np.asarray(information.settings.wheel_turn * directions[:, n:], dtype=float)
    return seeds[:n] + steps * seeds[n:], turns


def _optimize_seeds(
    information: IntervalInformation, directions: NDArray[np.int8], deadline: float, is_cancelled: Callable[[], bool]
) -> Array:
    """Minimise the cost over start and range of each joint, SPACE (32) with (33) and (37)."""
    robot, settings = information.robot, information.settings
    n = robot.n
    steps = np.concatenate([np.zeros((1, n)), np.cumsum(directions[:, :n], axis=0)])
    lowest, highest = steps.min(axis=0), steps.max(axis=0)
    reach = np.minimum(largest_range(robot, settings.period), (robot.q_upper - robot.q_lower) / (highest - lowest))
    scale = np.concatenate([robot.q_upper - robot.q_lower, reach])

    def cost(x: Array) -> float:
        _require_wanted(is_cancelled)
        if time.monotonic() > deadline:
            raise _OutOfTime
        knots, turns = _motion_of(information, directions, x * scale)
        rows, squares = information.regressors(knots[:-1], knots[1:], turns)
        flat = rows.reshape(-1, information.minimal.count)
        size = (6 + n) * squares.size * settings.samples
        value = _condition(flat.T @ flat) + settings.weight * size / squares.sum()
        if value < best[0]:
            best[:] = [value, x.copy()]
        return float(np.log(value))

    # Position limits at the extremes of all knots: linear in start and range.
    rows = np.zeros((2 * n, 2 * n))
    rows[:n, :n], rows[:n, n:] = np.diag(scale[:n]), np.diag(lowest * scale[n:])
    rows[n:, :n], rows[n:, n:] = np.diag(-scale[:n]), np.diag(-highest * scale[n:])
    offsets = np.concatenate([-robot.q_lower, robot.q_upper])
    bounds = [(-1.0, 1.0)] * n + [(1e-3, 1.0)] * n
    middle = np.concatenate([0.5 * (robot.q_lower + robot.q_upper) - 0.25 * (highest + lowest) * reach, 0.5 * reach])
    best: list[Any] = [np.inf, middle / scale]
    try:
        minimize(
            cost,
            middle / scale,
            method="SLSQP",
            bounds=bounds,
            constraints={"type": "ineq", "fun": lambda x: rows @ x + offsets, "jac": lambda x: rows},
            options={"maxiter": settings.iterations, "ftol": 1e-4},
        )
    except _OutOfTime:
        pass
    return _inside(best[1] * scale, lowest, highest, robot)


def _inside(seeds: Array, lowest: Array, highest: Array, robot: FreeFlyer) -> Array:
    """Shift starts by what the solver left beyond a position limit."""
    n = robot.n
    starts, ranges = seeds[:n], seeds[n:]
    starts = np.clip(starts, robot.q_lower - lowest * ranges, robot.q_upper - highest * ranges)
    return np.concatenate([starts, ranges])


class _OutOfTime(Exception):
    """The deadline has passed."""


def _improve(
    information: IntervalInformation,
    knots: Array,
    turns: Array,
    reach: Array,
    deadline: float,
    is_cancelled: Callable[[], bool],
    on_progress: Callable[[float, str], None],
) -> Array:
    """Minimise a smooth condition number over all knots, with start and increments as coordinates."""
    robot, n = information.robot, information.robot.n
    count = len(knots) - 1
    span = robot.q_upper - robot.q_lower
    best: list[Any] = [information.condition_number(knots, turns), knots]

    def knots_of(x: Array) -> Array:
        steps = x[n:].reshape(count, n) * reach
        knots: Array = robot.q_lower + x[:n] * span + np.concatenate([np.zeros((1, n)), np.cumsum(steps, axis=0)])
        return knots

    def cost(x: Array) -> tuple[float, Array]:
        _require_wanted(is_cancelled)
        if time.monotonic() > deadline:
            raise _OutOfTime
        places = knots_of(x)
        beyond = np.maximum(places - robot.q_upper, 0.0) - np.maximum(robot.q_lower - places, 0.0)
        gram = information.gram(places, turns)
        value, weights = _smooth_condition(gram)
        legal = _legal(places, reach, robot)
        reached = information.condition_number(legal, turns)
        if reached < best[0]:
            best[:] = [reached, legal]
            on_progress(0.5, f"condition number {reached:.1f}")
        slope = _knot_gradient(information, places, turns, weights) + 2.0 * 100.0 * beyond
        from_knot = np.cumsum(slope[::-1], axis=0)[::-1]
        gradient = np.concatenate([from_knot[0] * span, (from_knot[1:] * reach).reshape(-1)])
        return value + 100.0 * float((beyond**2).sum()), gradient

    start = np.concatenate([(knots[0] - robot.q_lower) / span, (np.diff(knots, axis=0) / reach).reshape(-1)])
    bounds = [(0.0, 1.0)] * n + [(-1.0, 1.0)] * (count * n)
    try:
        minimize(
            cost,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": information.settings.iterations * 5, "maxcor": 20},
        )
    except _OutOfTime:
        pass
    found: Array = best[1]
    return found


def _legal(knots: Array, reach: Array, robot: FreeFlyer) -> Array:
    """Return knots within the position limits whose steps are no longer than they may be."""
    result = np.clip(knots, robot.q_lower, robot.q_upper)  # clipping never makes a step longer
    steps = np.abs(np.diff(result, axis=0)).max(axis=0)
    if np.any(steps > reach * (1.0 + 1e-9)):
        raise ParameterOutOfRange("largest step of the knots [rad]", steps.tolist(), reach.tolist())
    return result


def _knot_gradient(information: IntervalInformation, knots: Array, turns: Array, weights: Array) -> Array:
    """Return the derivative of ``sum(weights * gram)`` along every knot, (K + 1, n), by differences of intervals."""
    count, n = len(turns), knots.shape[1]
    gradient = np.zeros_like(knots)
    values = []
    perturbations = [(None, 0)] + [(joint, end) for end in range(2) for joint in range(n)]
    for joint, end in perturbations:
        starts, ends = knots[:-1].copy(), knots[1:].copy()
        if joint is not None:
            (starts, ends)[end][:, joint] += _STEP
        rows, _ = information.regressors(starts, ends, turns)
        values.append(np.einsum("mri,ij,mrj->m", rows, weights, rows, optimize=True))
    for (joint, end), value in zip(perturbations[1:], values[1:], strict=True):
        slope = (value - values[0]) / _STEP
        gradient[end : count + end, joint] += slope
    return gradient


def _smooth_condition(gram: Array) -> tuple[float, Array]:
    """Return a smooth stand-in for twice the logarithm of the condition number, and its derivative with the matrix."""
    values, vectors = np.linalg.eigh(gram)
    values = np.maximum(values, _SHORT * values[-1])
    large, small = (values / values[-1]) ** _POWER, (values[0] / values) ** _POWER
    cost = np.log(values[-1]) + np.log(large.sum()) / _POWER - np.log(values[0]) + np.log(small.sum()) / _POWER
    slopes = large / large.sum() / values - small / small.sum() / values
    return float(cost), (vectors * slopes) @ vectors.T


def _random_walk(robot: FreeFlyer, rng: np.random.Generator, intervals: int, reach: Array) -> Array:
    """Return random knots: every joint goes one way for some intervals, as fast as it may, and turns at its limits."""
    knots = np.empty((intervals + 1, robot.n))
    knots[0] = rng.uniform(robot.q_lower, robot.q_upper)
    direction = rng.choice([-1.0, 1.0], robot.n)
    turn_share = rng.uniform(0.02, 0.5, robot.n)
    for k in range(intervals):
        direction = np.where(rng.random(robot.n) < turn_share, -direction, direction)
        step = direction * reach * rng.uniform(0.5, 1.0, robot.n)
        beyond = (knots[k] + step > robot.q_upper) | (knots[k] + step < robot.q_lower)
        direction = np.where(beyond, -direction, direction)
        knots[k + 1] = np.clip(knots[k] + np.where(beyond, -step, step), robot.q_lower, robot.q_upper)
    return knots


def _wheel_cycle(robot: FreeFlyer, intervals: int, turn: float) -> Array:
    """Return turns of the wheels that go through all combinations of directions again and again, (K, W)."""
    wheels = robot.wheels.count
    codes = np.arange(intervals) % max(2**wheels, 1)
    signs: Array = 1.0 - 2.0 * ((codes[:, None] >> np.arange(wheels)) & 1)
    return turn * signs


def _plan(information: IntervalInformation, knots: Array, turns: Array, begin: float) -> ExcitationPlan:
    directions = np.sign(np.concatenate([np.diff(knots, axis=0), turns], axis=1)).astype(np.int8)
    motion = FloatingMotion(CycloidTrajectory(knots, information.settings.period), turns)
    return ExcitationPlan(motion, information.condition_number(knots, turns), directions, time.monotonic() - begin)


def _interval_gram(information: IntervalInformation, knots: Array, turns: Array, index: int) -> Array:
    one = slice(index, index + 1)
    rows, _ = information.regressors(knots[one], knots[index + 1 : index + 2], turns[one])
    gram: Array = rows[0].T @ rows[0]
    return gram


def _condition(gram: Array) -> float:
    values = np.linalg.eigvalsh(gram)
    return float(np.sqrt(values[-1] / max(values[0], np.finfo(float).tiny))) if values[-1] > 0.0 else float("inf")


def _significant(gram: Array, share: float) -> int:
    singular = np.sqrt(np.maximum(np.linalg.eigvalsh(gram), 0.0))
    return int(np.count_nonzero(singular > share * singular[-1]))


def _require_wanted(is_cancelled: Callable[[], bool]) -> None:
    if is_cancelled():
        raise ExcitationCancelled("planning of the exciting motion was cancelled")
