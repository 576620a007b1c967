"""Plans exciting trajectories: several starts, each checked densely and shrunk until every limit holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.certification.stop_model import LimitKind, PlanRejected
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.excitation.forecast import (
    condition_number,
    expected_radii,
    momentum_windows,
    payload_regressor,
)
from sysid_ros.core.excitation.model import ExcitationModel, NoExcitationFound
from sysid_ros.core.excitation.problem import ExcitationProblem
from sysid_ros.core.excitation.sampled_checks import check_clearance
from sysid_ros.core.excitation.settings import ExcitationSettings
from sysid_ros.core.excitation.solver import IpoptSolver
from sysid_ros.core.trajectories.base import PlanningCancelled
from sysid_ros.core.trajectories.fourier import FourierTrajectory

Array = NDArray[np.float64]

_DRAWS = 12
"""Random trajectories of which the best is a start."""
_CHECK_STEP = 0.005
"""Time between the samples of the final check [s]."""
_SCALES = (1.0, 0.98, 0.95, 0.9, 0.8, 0.65, 0.5, 0.35, 0.2, 0.1)
"""Shares of the amplitude tried for a trajectory that breaks a limit between the samples of the problem."""


@dataclass(frozen=True)
class ExcitationPlan:
    """An exciting trajectory and what it will tell.

    Attributes:
        trajectory: The trajectory; it starts and ends at rest at the same position.
        criterion: Which criterion was optimised.
        cost: Its value.
        condition_number: Condition number of ``W_e`` of this trajectory (SAFE-ID (30)) [-].
        condition_number_windows: Condition number of the momentum windows ``Y`` of this trajectory and those collected
            before [-].
        expected_radii: Radii of the guaranteed bounds expected from this trajectory alone, (10,).
        starts: Starts that were made [-].
        iterations: Solver iterations in all starts together [-].
        scale: Share of the best trajectory's amplitude that the final check left [-].
        planning_time: Time the planning took [s].
    """

    trajectory: FourierTrajectory
    criterion: str
    cost: float
    condition_number: float
    condition_number_windows: float
    expected_radii: Array
    starts: int
    iterations: int
    scale: float
    planning_time: float


def plan_excitation(
    model: ExcitationModel,
    q_start: ArrayLike,
    settings: ExcitationSettings | None = None,
    collected: ArrayLike | None = None,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_progress: Callable[[float, str], None] = lambda fraction, text: None,
) -> ExcitationPlan:
    """Plan a trajectory that makes the payload's parameters visible.

    Args:
        model: The arm and its boxes; ``ExcitationModel.of(robot)`` for the defaults.
        q_start: Start and end position, (n,) [rad].
        settings: Settings of trajectory and search; the defaults without it.
        collected: Gram matrix of the momentum windows collected so far in terms of mean torques, (10, 10), as
            ``StreamingEstimator.information`` gives it; the windows must be as long as ``settings.window``. What they
            already show is not shown again.
        is_cancelled: Looked at in every iteration of the solver.
        on_progress: Called with the fraction done, 0..1, and a sentence.

    Returns:
        The best trajectory found in the time budget; it respects all limits at a denser sampling than was optimised.

    Raises:
        StartOutsideLimits: The start position violates a limit.
        NoExcitationFound: No motion around it respects every limit.
        ParameterOutOfRange: ``collected`` is not a finite (10, 10) matrix without negative eigenvalues.
        PlanningCancelled: ``is_cancelled`` said so.
    """
    settings = settings or ExcitationSettings()
    begin = time.perf_counter()
    problem = ExcitationProblem(model, q_start, settings, _checked_information(collected))
    search = _Search(problem, model, settings, begin + settings.time_budget, is_cancelled)
    starts = 0
    while starts == 0 or (starts < settings.starts and time.perf_counter() < search.deadline):
        on_progress(starts / settings.starts, f"start {starts + 1} of up to {settings.starts}")
        search.run_start()
        starts += 1
    if not np.isfinite(search.cost):
        raise NoExcitationFound(starts)
    plan = _describe(search, model, settings, collected, starts, time.perf_counter() - begin)
    on_progress(1.0, f"condition number {plan.condition_number:.1f}")
    return plan


class _Search:
    """Best trajectory so far, and how to look for a better one."""

    def __init__(
        self,
        problem: ExcitationProblem,
        model: ExcitationModel,
        settings: ExcitationSettings,
        deadline: float,
        is_cancelled: Callable[[], bool],
    ):
        self.problem, self.model, self.settings = problem, model, settings
        self.deadline = deadline
        self.is_cancelled = is_cancelled
        self.cost, self.x, self.scale = np.inf, np.zeros(problem.size), 1.0
        self.iterations = 0
        self._solver = IpoptSolver(problem, settings.max_iterations)
        self._rng = np.random.default_rng(settings.seed)
        self._demand = model.torque_demand

    def run_start(self) -> None:
        """Run one start: the best of some random trajectories, then the solver, then the check of its result."""
        draws = [self._draw() for _ in range(_DRAWS)]
        start = draws[int(np.argmin([self.problem.cost(x) for x in draws]))]
        self._require_not_cancelled()
        remaining = self.deadline - time.perf_counter()
        if remaining > 0.0:
            solution = self._solver.solve(start, remaining, self.is_cancelled)
            self._require_not_cancelled()
            self.iterations += solution.iterations
            self._offer(solution.x)
        if not np.isfinite(self.cost):
            self._offer(start)

    def _draw(self) -> Array:
        """Draw a random trajectory, each joint as large as its position, velocity and acceleration limits allow."""
        x = self._rng.normal(size=self.problem.size)
        return self._scale_joints(x, 1.0 / np.maximum(self._limit_usage(x), 1e-9))

    def _offer(self, x: Array) -> None:
        """Keep a candidate if it is the best, after shrinking it until every limit holds at all times checked."""
        candidate = self._scale_joints(x, 1.0 / np.maximum(self._limit_usage(x), 1.0))
        if self.problem.cost(candidate) >= self.cost:
            return  # shrinking will not make it better
        scale = next((factor for factor in _SCALES if self._passes(factor * candidate)), 0.0)
        cost = self.problem.cost(scale * candidate)
        if scale > 0.0 and cost < self.cost:
            self.cost, self.x, self.scale = cost, scale * candidate, scale

    def _scale_joints(self, x: Array, factors: Array) -> Array:
        return (x.reshape(factors.size, -1) * factors[:, None]).ravel()

    def _limit_usage(self, x: Array) -> Array:
        """Compute the largest share of position, velocity and acceleration limits each joint uses at any time, (n,)."""
        trajectory, limits = self.problem.space.trajectory(x), self.problem.limits
        q_start = trajectory.q_start
        lower, upper = trajectory.position_extrema()
        shares = [(upper - q_start) / np.maximum(limits.position_upper - q_start, 1e-9)]
        shares.append((q_start - lower) / np.maximum(q_start - limits.position_lower, 1e-9))
        low, high = trajectory.velocity_extrema()
        shares.append(np.maximum(-low, high) / limits.velocity)
        low, high = trajectory.acceleration_extrema()
        shares.append(np.maximum(-low, high) / limits.acceleration)
        return np.asarray(np.max(shares, axis=0), dtype=np.float64)

    def _passes(self, x: Array) -> bool:
        trajectory, model = self.problem.space.trajectory(x), self.model
        times = np.linspace(0.0, trajectory.duration, int(np.ceil(trajectory.duration / _CHECK_STEP)) + 1)
        states = trajectory.sample(times)
        try:
            self._demand.check(LimitKind.TORQUE, times, states, self.settings.torque_fraction)
            self._demand.check_stops(trajectory, self.settings.brake_time, self.settings.torque_fraction)
            check_clearance(
                model.robot, model.collision, model.tracking_position, self.settings.clearance, times, states[0]
            )
        except PlanRejected:
            return False
        return True

    def _require_not_cancelled(self) -> None:
        if self.is_cancelled():
            raise PlanningCancelled("the excitation planner was cancelled")


def _describe(
    search: _Search,
    model: ExcitationModel,
    settings: ExcitationSettings,
    collected: ArrayLike | None,
    starts: int,
    planning_time: float,
) -> ExcitationPlan:
    trajectory = search.problem.space.trajectory(search.x)
    rows = momentum_windows(model.robot, trajectory, settings.window)[..., -10:].reshape(-1, 10) / settings.window
    information = rows.T @ rows + (0.0 if collected is None else np.asarray(collected))
    regressor = payload_regressor(model.robot, trajectory)
    widths = expected_radii(model, [trajectory], settings.window)
    widths.setflags(write=False)
    return ExcitationPlan(
        trajectory=trajectory,
        criterion=settings.criterion,
        cost=float(search.cost),
        condition_number=condition_number(regressor.T @ regressor),
        condition_number_windows=condition_number(information),
        expected_radii=widths,
        starts=starts,
        iterations=search.iterations,
        scale=search.scale,
        planning_time=planning_time,
    )


def _checked_information(collected: ArrayLike | None) -> Array | None:
    """Return the Gram matrix, symmetric; None if it is None or zero."""
    if collected is None:
        return None
    matrix = np.array(collected, dtype=float)
    if matrix.shape != (10, 10) or not np.all(np.isfinite(matrix)):
        raise ParameterOutOfRange("collected", f"an array of shape {matrix.shape}", "a finite (10, 10) Gram matrix")
    matrix = 0.5 * (matrix + matrix.T)
    values = np.linalg.eigvalsh(matrix)
    if values[0] < -1e-9 * max(values[-1], 1e-12):
        raise ParameterOutOfRange("smallest eigenvalue of collected", float(values[0]), "0 or more (a Gram matrix)")
    return matrix if values[-1] > 0.0 else None
