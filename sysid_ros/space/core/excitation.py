"""Exciting motions of a free-flying robot with knots that are all free, within its limits and clear of itself.

A motion is made of cycloids of equal length, one interval between two knots. Its start, all its steps and the turns of
the wheels are variables; the cost is a smooth condition number with an analytic gradient. Earlier motions count, so a
motion can be planned in parts, each with the estimate from the parts before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from sysid_ros.core.certification.stop_model import PlanRejected
from sysid_ros.core.common.errors import Cancelled, ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.core.trajectories.families import CycloidTrajectory
from sysid_ros.space.core.intervals import FloatingMotion, IntervalInformation, condition_number, smooth_condition
from sysid_ros.space.core.robot import FreeFlyer
from sysid_ros.space.core.self_collision import SelfCollisionModel

Array = NDArray[np.float64]

_START_SHARE = 0.35
"""Share of the time for the starts; the best of them gets the rest."""
_REFINED = 3
"""Random starts that are refined a little before one is chosen."""
_CHANGED, _CHANGE = 0.3, 0.4
"""Share of the intervals that a restart changes, and by how much of the largest steps (standard deviation)."""
_WORTH_IT = 5e-3
"""Gain of a search, in twice the logarithm of the condition number, from which on another begins where it ended."""
_LIMIT_WEIGHT = 1e3
"""Weight of squares beyond position limits [1/rad^2]; the rest is clipped."""
_COLLISION_WEIGHTS = (1e2, 1e4, 1e6)
"""Weights of missing clearance [1/m^2]: of the search, and of the searches that follow where it was not enough."""
_MENDING = 200
"""Evaluations that each of those gets, however late it is: a motion with contact is useless."""
_WHEEL_RESERVE = 1e-3
"""Share of the speed of a wheel that is left to its servo, which may overshoot a little."""
_RESERVES = (0.02, 0.04, 0.08)
"""Clearance of these searches beyond the proof's [m]: they use samples only."""


@dataclass(frozen=True)
class ExcitationSettings(Settings):
    """Settings of the search.

    Raises:
        ParameterOutOfRange: A value is out of range.
    """

    period: float = setting(1.0, "s", lower=0.01, upper=1000.0)
    """Length of an interval."""
    samples: int = setting(2, "-", lower=1, upper=1000)
    """Samples of an interval that count in the search; one alone does not see how near bodies come at its ends."""
    clearance: float = setting(0.05, "m", lower=-1.0, upper=10.0)
    """Gap that bodies keep between each other; negative: collisions of the robot with itself are ignored."""
    iterations: int = setting(2000, "-", lower=1, upper=100000)
    """Largest number of iterations of one optimisation."""
    starts: int = setting(16, "-", lower=1, upper=10000)
    """Random starts of the search."""
    restarts: int = setting(1000, "-", lower=0, upper=100000)
    """Largest number of searches that begin where the one before ended, in part changed, while there is time."""
    time_limit: float = setting(60.0, "s", lower=0.01, upper=86400.0)
    """Time after which a search ends with the best it has."""
    seed: int = setting(0, "-", lower=0, upper=2**32 - 1, library_only=True)
    """Seed of the random starts."""


@dataclass(frozen=True, eq=False)
class ExcitationPlan:
    """An exciting motion and its quality.

    Attributes:
        motion: The motion.
        condition_number: Condition number of the regressor, with the motion before if there is one, for the planning
            parameters [-].
        gap: Smallest sampled gap between bodies [m]; infinite where collisions are ignored.
        seconds: Time the search took [s].
        evaluations: Evaluations of the cost [-].
    """

    motion: FloatingMotion
    condition_number: float
    gap: float
    seconds: float
    evaluations: int

    @property
    def directions(self) -> NDArray[np.int8]:
        """Signs of the velocities of joints and wheels per interval, (K, n + W) [-]."""
        steps = np.concatenate([np.diff(self.motion.joints.knots, axis=0), self.motion.wheel_turns], axis=1)
        signs: NDArray[np.int8] = np.sign(steps).astype(np.int8)
        return signs


def largest_range(robot: FreeFlyer, period: float) -> Array:
    """Return the largest turn of each joint in an interval, (n,) [rad].

    Source: SPACE (36).
    """
    return np.minimum(0.5 * period * robot.v_max, period**2 / (2.0 * np.pi) * robot.a_max)


def largest_wheel_turns(robot: FreeFlyer, period: float) -> Array:
    """Return the largest turn of each wheel in an interval, (W,) [rad]."""
    turns: Array = 0.5 * period * robot.wheels.speeds * (1.0 - _WHEEL_RESERVE)
    return turns


def plan_with_free_knots(
    robot: FreeFlyer,
    parameters: ArrayLike,
    intervals: int,
    settings: ExcitationSettings | None = None,
    start: ArrayLike | None = None,
    before: FloatingMotion | None = None,
    columns: Array | None = None,
    guess: FloatingMotion | None = None,
    clock: Callable[[], float] = time.monotonic,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_progress: Callable[[float, str], None] = lambda share, text: None,
) -> ExcitationPlan:
    """Plan an exciting motion whose knots are all free.

    The two numbers per joint of the paper keep the arms near where they start; here they travel.

    Args:
        robot: The robot.
        parameters: Inertial parameters to plan with, (10 B,).
        intervals: Number of intervals K [-].
        settings: Settings of the search.
        start: Joint positions, (n,) [rad]; None for the last knot of ``before``, or else free.
        before: Earlier motion, which counts too.
        columns: Parameters of interest, see :class:`IntervalInformation`; None for the minimal parameters.
        guess: Motion of as many intervals that is one of the starts of the search; None for random ones alone.
        clock: Clock of the time limit [s]; ``time.process_time`` does not count other processes.
        is_cancelled: Polled between evaluations.
        on_progress: Called with the done share, 0..1, and the present step.

    Returns:
        The plan: within the limits by the exact extrema of its cycloids, and proven clear of itself at all times.

    Raises:
        Cancelled: ``is_cancelled`` returned true.
        PlanRejected: No motion that keeps clear of itself was found.
        ParameterOutOfRange: ``intervals`` is below 1, the guess has another number, or the start is beyond a limit.
    """
    if intervals < 1:
        raise ParameterOutOfRange("intervals [-]", intervals, "1 or more")
    settings = settings or ExcitationSettings()
    information = IntervalInformation(robot, parameters, settings.period, settings.samples, columns)
    search = _Search(information, intervals, settings, start, before)
    if guess is not None:
        search.begin_with(guess)
    search.clock, search.is_cancelled, search.on_progress = clock, is_cancelled, on_progress
    return search.run()


class _Search:
    """One search; its variables are the start, the steps as shares of the largest ones, and the turns of the wheels."""

    clock: Callable[[], float]
    is_cancelled: Callable[[], bool]
    on_progress: Callable[[float, str], None]

    def __init__(
        self,
        information: IntervalInformation,
        intervals: int,
        settings: ExcitationSettings,
        start: ArrayLike | None,
        before: FloatingMotion | None,
    ):
        robot = information.robot
        self._robot, self._settings, self._count = robot, settings, intervals
        self._information = information
        self._known = np.zeros((information.count,) * 2)
        self._start = None if start is None else _checked_start(robot, start)
        if before is not None:
            self._known = information.gram(before.joints.knots, before.wheel_turns)
            self._start = before.joints.knots[-1] if self._start is None else self._start
        self._collisions = SelfCollisionModel(robot) if settings.clearance >= 0.0 else None
        self._reach, self._turns = largest_range(robot, settings.period), largest_wheel_turns(robot, settings.period)
        self._span = robot.q_upper - robot.q_lower
        self._collision_weight, self._reserve = _COLLISION_WEIGHTS[0], _RESERVES[0]
        self._evaluations, self._told, self._condition = 0, 0.0, np.inf
        self._guess: Array | None = None

    def begin_with(self, guess: FloatingMotion) -> None:
        if guess.joints.intervals != self._count:
            raise ParameterOutOfRange("intervals of the guess [-]", guess.joints.intervals, f"{self._count}")
        knots = guess.joints.knots
        steps, turns = np.diff(knots, axis=0) / self._reach, guess.wheel_turns / self._turns
        first = np.clip((knots[0] - self._robot.q_lower) / self._span, 0.0, 1.0)
        self._guess = np.concatenate(
            [first, np.clip(np.concatenate([steps.reshape(-1), turns.reshape(-1)]), -1.0, 1.0)]
        )

    def run(self) -> ExcitationPlan:
        begin, limit = self.clock(), self._settings.time_limit
        self._begin, self._end = begin, begin + limit
        x = self._wander(self._best_start(begin, limit))
        for weight, reserve in zip(_COLLISION_WEIGHTS, _RESERVES, strict=True):
            self._collision_weight, self._reserve = weight, reserve
            if weight > _COLLISION_WEIGHTS[0]:
                x = self._minimize(x, self.clock() + 0.3 * limit, _MENDING)
            knots, turns = self._motion(x)
            legal = np.clip(knots, self._robot.q_lower, self._robot.q_upper)  # never makes a step longer
            motion = FloatingMotion(CycloidTrajectory(legal, self._settings.period), turns)
            try:
                gap = np.inf
                if self._collisions is not None:
                    gap = self._collisions.prove(motion.joints, self._settings.clearance)
                break
            except PlanRejected:
                if weight == _COLLISION_WEIGHTS[-1]:
                    raise
        value = condition_number(self._known + self._information.gram(motion.joints.knots, turns))
        self.on_progress(1.0, f"condition number {value:.1f}")
        return ExcitationPlan(motion, value, gap, self.clock() - begin, self._evaluations)

    def _best_start(self, begin: float, limit: float) -> Array:
        """Rank random walks, refine the best few and the guess a little, and return the best of those."""
        rng = np.random.default_rng(self._settings.seed)
        walks: list[tuple[float, Array]] = []
        for k in range(self._settings.starts):
            if k and self.clock() - begin > 0.3 * _START_SHARE * limit:
                break
            x = self._random_walk(rng)
            walks.append((self._cost(x)[0], x))
        walks.sort(key=lambda walk: walk[0])
        # A plan for another parameter estimate is near an optimum, but seldom near the best of this one.
        chosen = [x for _, x in walks[:_REFINED]] + ([] if self._guess is None else [self._guess])
        refined = []
        for k, x in enumerate(chosen):
            x = self._minimize(x, begin + _START_SHARE * limit * (k + 1) / len(chosen))
            refined.append((self._cost(x)[0], x))
        return min(refined, key=lambda walk: walk[0])[1]

    def _wander(self, x: Array) -> Array:
        """Improve variables until the time is over: where a search ends, the next begins with a part of it changed."""
        rng = np.random.default_rng(self._settings.seed + 1)
        n, count = self._robot.n, self._count
        best = self._minimize(x, self._end)
        cost = self._cost(best)[0]
        for _ in range(self._settings.restarts):
            if self.clock() >= self._end:
                break
            trial, changed = best.copy(), rng.random(count) < _CHANGED
            for part in (trial[n : n + count * n], trial[n + count * n :]):
                rows = part.reshape(count, -1)
                rows[changed] += rng.normal(0.0, _CHANGE, rows[changed].shape)
            trial = self._minimize(np.clip(trial, np.r_[np.zeros(n), -np.ones(len(x) - n)], 1.0), self._end)
            found = self._cost(trial)[0]
            if found < cost:
                best, cost = trial, found
        return best

    def _motion(self, x: Array) -> tuple[Array, Array]:
        """Return knots (K + 1, n) and turns of the wheels (K, W) of variables."""
        n, count = self._robot.n, self._count
        steps = x[n : n + count * n].reshape(count, n) * self._reach
        first = self._robot.q_lower + x[:n] * self._span if self._start is None else self._start
        knots = first + np.concatenate([np.zeros((1, n)), np.cumsum(steps, axis=0)])
        return knots, x[n + count * n :].reshape(count, -1) * self._turns

    def _cost(self, x: Array) -> tuple[float, Array]:
        knots, turns = self._motion(x)
        self._evaluations += 1
        intervals = self._information.evaluate(knots[:-1], knots[1:], turns)
        value, weights = smooth_condition(self._known + intervals.gram())
        self._condition = float(np.exp(0.5 * value))
        forces = None
        if self._collisions is not None:
            missing, forces = self._collisions.penalty(intervals.joints, self._settings.clearance + self._reserve)
            value, forces = value + self._collision_weight * missing, self._collision_weight * forces
        starts, ends, along_turns = self._information.gradient(intervals, weights, forces=forces)
        beyond = np.maximum(knots - self._robot.q_upper, 0.0) - np.maximum(self._robot.q_lower - knots, 0.0)
        slope = 2.0 * _LIMIT_WEIGHT * beyond
        slope[:-1] += starts
        slope[1:] += ends
        from_knot = np.cumsum(slope[::-1], axis=0)[::-1]
        first = from_knot[0] * self._span * (self._start is None)
        gradient = [first, (from_knot[1:] * self._reach).reshape(-1), (along_turns * self._turns).reshape(-1)]
        return value + _LIMIT_WEIGHT * float((beyond**2).sum()), np.concatenate(gradient)

    def _minimize(self, x: Array, deadline: float, least: int = 1) -> Array:
        """Minimise the cost from variables on, until a deadline but with at least this number of evaluations."""
        best: list[Any] = [np.inf, x]
        begun = self._evaluations

        def cost(trial: Array) -> tuple[float, Array]:
            require_wanted(self.is_cancelled)
            if self.clock() > deadline and self._evaluations - begun >= least:
                raise TimeoutError
            value, gradient = self._cost(trial)
            if value < best[0]:
                best[:] = [value, trial.copy()]
                self._tell()
            return value, gradient

        n, rest = self._robot.n, len(x) - self._robot.n
        before = np.inf
        try:
            # Where the nearest pair of bodies changes, the slope jumps and a search ends before its time.
            while not best[0] > before - _WORTH_IT:
                before = best[0]
                minimize(
                    cost,
                    best[1],
                    jac=True,
                    method="L-BFGS-B",
                    bounds=[(0.0, 1.0)] * n + [(-1.0, 1.0)] * rest,
                    options={"maxiter": self._settings.iterations, "maxfun": 10**9, "maxcor": 20},
                )
        except TimeoutError:
            pass
        found: Array = best[1]
        return found

    def _tell(self) -> None:
        share = min((self.clock() - self._begin) / (self._end - self._begin), 0.99)
        if share > self._told + 0.01:
            self._told = share
            self.on_progress(share, f"condition number about {self._condition:.0f}")

    def _random_walk(self, rng: np.random.Generator) -> Array:
        """Return variables of a random motion.

        Every joint goes one way for some intervals and turns at its limits; wheels go through their combinations.
        """
        robot, count = self._robot, self._count
        first = rng.uniform(robot.q_lower, robot.q_upper) if self._start is None else self._start
        place, steps = first.copy(), np.empty((count, robot.n))
        direction = rng.choice([-1.0, 1.0], robot.n)
        turn_share = rng.uniform(0.02, 0.5, robot.n)
        for k in range(count):
            direction = np.where(rng.random(robot.n) < turn_share, -direction, direction)
            step = direction * rng.uniform(0.5, 1.0, robot.n)
            after = place + step * self._reach
            beyond = (after > robot.q_upper) | (after < robot.q_lower)
            direction = np.where(beyond, -direction, direction)
            steps[k] = np.where(beyond, -step, step)
            place = np.clip(place + steps[k] * self._reach, robot.q_lower, robot.q_upper)
        wheels = robot.wheels.count
        signs = 1.0 - 2.0 * ((np.arange(count)[:, None] % 2**wheels >> np.arange(wheels)) & 1)
        return np.concatenate([(first - robot.q_lower) / self._span, steps.reshape(-1), signs.reshape(-1)])


def _checked_start(robot: FreeFlyer, start: ArrayLike) -> Array:
    values = np.array(start, dtype=float)
    if values.shape != (robot.n,) or not np.all((values >= robot.q_lower) & (values <= robot.q_upper)):
        allowed = f"{robot.n} positions from {robot.q_lower.tolist()} to {robot.q_upper.tolist()}"
        raise ParameterOutOfRange("start [rad]", values.tolist(), allowed)
    return values


def require_wanted(is_cancelled: Callable[[], bool]) -> None:
    """Raise an error if the work is cancelled."""
    if is_cancelled():
        raise Cancelled("planning of the exciting motion was cancelled")
