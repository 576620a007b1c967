"""Plans exciting trajectories: several starts in stages, each checked densely and shrunk until every limit holds.

A forecast describes a trajectory: momentum windows, condition numbers, radii of the bounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import OptimizeResult, minimize

from sysid_ros.core.certification.stop_model import LimitKind, PlanRejected
from sysid_ros.core.common.errors import Cancelled
from sysid_ros.core.excitation.criteria import PAYLOAD, SHARP, SMOOTH, BaseParameters, measured_radius
from sysid_ros.core.excitation.model import ExcitationModel, NoExcitationFound, check_clearance
from sysid_ros.core.excitation.problem import ExcitationProblem
from sysid_ros.core.excitation.settings import ExcitationSettings
from sysid_ros.core.model.mechanics import add_payload
from sysid_ros.core.model.robot import INERTIAL, RobotModel
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.core.trajectories.families import FourierTrajectory

Array = NDArray[np.float64]

_PRIOR_WEIGHTS = np.logspace(-3, 1, 5)
"""Weights of the prior box, per row of data, that are tried."""
_STAGES = ((False, 20.0), (True, 20.0), (True, 400.0))
"""Stages of a start: whether distances count, and the weight of violations. The first is left out for a payload, whose
motions are smaller."""
_AHEAD = 0.8
"""Share of the condition number that is enough at which a stage ends: the checks and proofs that follow cost some."""
_SMALLER = 0.9
"""Share of its amplitude below which a result shows so little that the start is solved again, with distances from the
beginning: without them the solver may have left links in each other."""
_HEAVIER = (2e3, 1e4)
"""Weights of violations with which a whole arm's motion is solved once more, where the check refuses it."""
_SCALES = (0.98, 0.95, 0.9, 0.8, 0.65, 0.5, 0.35, 0.2, 0.1)
"""Shares of the amplitude tried for a trajectory that breaks a limit between the samples of the problem."""


def payload_regressor(robot: RobotModel, trajectory: Trajectory, samples: int = 128) -> Array:
    """Stack the regressor ``W_e`` of the payload at evenly spread samples, (samples n, 10).

    Source: SAFE-ID (30).
    """
    times = (np.arange(samples) + 0.5) * (trajectory.duration / samples)
    return TorqueRegressor(robot, bodies=[robot.n]).evaluate(*trajectory.sample(times))[..., :INERTIAL].reshape(-1, 10)


def momentum_windows(robot: RobotModel, trajectory: Trajectory, window: float) -> Array:
    """Integrate the torque regressor over the momentum windows of a perfectly tracked trajectory.

    Args:
        robot: The arm.
        trajectory: The motion.
        window: Length of the windows [s]; a rest at the end that is shorter is left out.

    Returns:
        Rows ``[B | Y]`` of every window and joint, (windows, n, 14 n + 10).

    Source: SAFE-ID (21); dp/dt of the momentum equals the torque equation, so ``Y = integral of W``.
    """
    per_window = max(int(round(window / 0.005)), 2)  # samples 5 ms apart
    step = window / per_window
    count = max(int(trajectory.duration / window + 1e-9), 1)
    times = (np.arange(count * per_window) + 0.5) * step
    regressor = TorqueRegressor(robot).evaluate(*trajectory.sample(times))
    last = regressor[..., INERTIAL * (robot.n - 1) : INERTIAL * robot.n]
    rows = np.concatenate([regressor, last], axis=-1)
    return np.asarray(step * rows.reshape(count, per_window, robot.n, -1).sum(axis=1), dtype=np.float64)


def _rows_in_errors(model: ExcitationModel, trajectories: Sequence[Trajectory], window: float) -> Array:
    """Stack mean rows of momentum windows over their largest torque errors, (rows, 14 n + 10)."""
    sensors = model.robot.sensors
    rows = np.concatenate([momentum_windows(model.robot, path, window) for path in trajectories]) / window
    torque = rows @ np.concatenate([model.arm_box.center, model.payload])
    error = np.maximum(sensors.effort_relative_error * np.abs(torque) + sensors.lasting_error, 1e-12)
    flat: Array = (rows / error[..., None]).reshape(error.size, -1)
    return flat


def expected_radii(model: ExcitationModel, trajectories: Sequence[Trajectory], window: float) -> Array:
    """Estimate the radii of guaranteed bounds from data of these trajectories, (10,).

    The bound of a left inverse L of Y, ``|L| E + |L B| rad(theta_r)``, with L from weighted least squares; nowhere
    wider than the payload's box. Only torque errors and robot parameters are counted.
    """
    flat = _rows_in_errors(model, trajectories, window)
    radius = measured_radius(model.robot, model.arm_box.radius, model.payload_box.radius)
    known, wanted = flat[:, :-PAYLOAD] * radius[:-PAYLOAD], flat[:, -PAYLOAD:]
    # (1 + K K^T)^-1 Y by the smaller of the two possible inversions
    inner = np.linalg.solve(np.eye(known.shape[1]) + known.T @ known, known.T @ wanted)
    weighted = wanted - known @ inner
    left = np.linalg.pinv(wanted.T @ weighted) @ weighted.T
    found: Array = np.minimum(np.abs(left).sum(axis=1) + np.abs(left @ known).sum(axis=1), radius[-PAYLOAD:])
    return found


def base_regressor(
    robot: RobotModel, base: BaseParameters, trajectories: Sequence[Trajectory], window: float | None = None
) -> Array:
    """Stack the base regressor ``Y_b`` of motions, (rows, nb).

    Args:
        robot: The arm.
        base: Its base parameters.
        trajectories: The motions.
        window: Length of momentum windows whose mean rows are taken [s]; without it, samples at 50 Hz.

    Source: EXCITE (4), (5).
    """
    regressor, parts = TorqueRegressor(robot), []
    for trajectory in trajectories:
        if window is None:
            count = max(int(round(trajectory.duration / 0.02)), 2)
            times = (np.arange(count) + 0.5) * (trajectory.duration / count)
            rows = regressor.evaluate(*trajectory.sample(times))[..., base.columns]
        else:
            rows = momentum_windows(robot, trajectory, window)[..., base.columns] / window
        parts.append(rows.reshape(-1, base.columns.size))
    return np.concatenate(parts)


def expected_base_radii(
    model: ExcitationModel, base: BaseParameters, trajectories: Sequence[Trajectory], window: float
) -> Array:
    """Estimate the radii of guaranteed bounds of base parameters from data of these motions, (nb,).

    For any matrix L the parameters lie within ``L u +- (|L| E + |1 - L W| radius)``, with rows ``W theta = u`` within
    E. Several L estimate all parameters from rows and prior box with different weights, and the narrowest interval
    counts. Only torque errors are counted, each the worst at every window; the estimator's bounds use more.
    """
    radius = measured_radius(model.robot, add_payload(model.arm_box.radius, model.payload_box.radius), np.zeros(0))
    flat = _rows_in_errors(model, trajectories, window)[:, :-PAYLOAD] * radius
    wanted = base.matrix * radius  # (nb, 14 n)
    found: Array = np.abs(wanted).sum(axis=1)
    gram = flat.T @ flat
    for weight in _PRIOR_WEIGHTS * len(flat):
        left = np.linalg.solve(gram + weight * np.eye(radius.size), flat.T)
        rest = np.eye(radius.size) - left @ flat
        found = np.minimum(found, np.abs(wanted @ left).sum(axis=1) + np.abs(wanted @ rest).sum(axis=1))
    return found


def condition_number(information: Array) -> float:
    """Compute the condition number of rows with the Gram matrix ``information`` (k, k); inf if it is singular."""
    values = np.linalg.eigvalsh(information)
    return float(np.sqrt(values[-1] / values[0])) if values[0] > 1e-14 * values[-1] else float("inf")


@dataclass(frozen=True)
class ExcitationPlan:
    """An exciting trajectory and its expected information.

    Attributes:
        trajectory: The trajectory; it starts and ends at rest at the same position.
        criterion: The optimised criterion.
        cost: Its value.
        condition_number: Condition number of ``W_e`` of this trajectory (SAFE-ID (30)); of a whole arm of the base
            regressor ``Y_b`` of this trajectory (EXCITE III-A) [-].
        condition_number_windows: Condition number of the momentum windows of this trajectory and those collected before
            [-].
        expected_radii: Radii of the guaranteed bounds expected from this trajectory alone, (10,); of a whole arm of its
            base parameters from this trajectory and the earlier ones, (nb,).
        starts: Starts that were made [-].
        iterations: Solver iterations in all starts together [-].
        scale: Share of the best trajectory's amplitude after the final check [-].
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
    earlier: Sequence[Trajectory] = (),
    begin_with: FourierTrajectory | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> ExcitationPlan:
    """Plan a trajectory that excites the payload's parameters, or the base parameters of the whole arm.

    Args:
        model: The arm and its boxes; ``ExcitationModel.of(robot)`` for the defaults.
        q_start: Start and end position, (n,) [rad].
        settings: Settings of trajectory and search; the defaults without it.
        collected: Gram matrix of the momentum windows collected so far in terms of mean torques, (10, 10), as
            ``StreamingEstimator.information`` gives it; the windows must be as long as ``settings.window``. Their
            information is not collected again. Of a whole arm that of its base regressor, (nb, nb).
        is_cancelled: Polled in every iteration of the solver.
        on_progress: Called with the fraction done, 0..1, and a sentence.
        earlier: Motions of a whole arm made before; the new one complements them.
        begin_with: A motion of the same start and duration with no more harmonics, such as one planned with other
            tracking errors; the first start begins with it in place of a random one, with distances from the beginning.
        clock: Clock of the time budget [s]; ``time.process_time`` does not count other processes.

    Returns:
        The best trajectory found in the time budget; it respects all limits at a denser sampling than was optimised.

    Raises:
        NoExcitationFound: The start position violates a limit, or no motion around it respects every limit.
        ParameterOutOfRange: ``collected`` is not a finite matrix of that size without negative eigenvalues.
        Cancelled: ``is_cancelled`` returned true.
    """
    settings = settings or ExcitationSettings()
    begin = clock()
    problem = ExcitationProblem(model, q_start, settings, collected, earlier)
    search = _Search(problem, model, settings, begin + settings.time_budget, is_cancelled, bool(earlier), clock)
    starts = 0
    while starts == 0 or (starts < settings.starts and clock() < search.deadline):
        on_progress(starts / settings.starts, f"start {starts + 1} of up to {settings.starts}")
        search.run_start(None if starts or begin_with is None else problem.space.coordinates(begin_with))
        starts += 1
    if not np.isfinite(search.cost):
        raise NoExcitationFound(
            f"none of {starts} exciting motions around the start position respects all limits, however small it is "
            "made; start elsewhere, or give narrower bounds of the payload"
        )
    plan = search.describe(collected, earlier, starts, clock() - begin)
    on_progress(1.0, f"condition number {plan.condition_number:.1f}")
    return plan


class _Search:
    def __init__(
        self,
        problem: ExcitationProblem,
        model: ExcitationModel,
        settings: ExcitationSettings,
        deadline: float,
        is_cancelled: Callable[[], bool],
        has_earlier: bool,
        clock: Callable[[], float],
    ):
        self.problem, self.model, self.settings = problem, model, settings
        self.deadline = deadline
        self.is_cancelled, self.clock = is_cancelled, clock
        self.cost, self.x, self.scale = np.inf, np.zeros(problem.size), 1.0
        self.iterations = 0
        self._enough = np.log(_AHEAD * settings.enough) if settings.enough > 0.0 and not has_earlier else -np.inf
        self._rng = np.random.default_rng(settings.seed)

    def run_start(self, begin_with: Array | None = None) -> None:
        """Run one start: the best of some random trajectories, the stages of the solver, the check of the result.

        Args:
            begin_with: Coordinates (size,) of a motion to begin with in place of a random one.

        Source: EXCITE IV-A.
        """
        start = self._best_draw() if begin_with is None else begin_with
        is_random_arm = begin_with is None and self.problem.base is not None
        share = self._offer(self._run_stages(start, _STAGES if is_random_arm else _STAGES[1:]))
        if is_random_arm and share < _SMALLER:
            self._offer(self._run_stages(start, _STAGES[1:]))
        if not np.isfinite(self.cost):
            self._offer(start)

    def _run_stages(self, x: Array, stages: Sequence[tuple[bool, float]]) -> Array:
        for has_distances, penalty in stages:
            self._require_not_cancelled()
            if self.clock() < self.deadline:
                x = self._solve(x, has_distances, penalty)
        return x

    def _solve(self, x: Array, has_distances: bool, penalty: float, most: int | None = None) -> Array:
        """Minimise the cost with its penalties by L-BFGS; return the best iterate when the time is over."""
        best = [x]
        if self.problem.base is not None:
            self.problem.sharpen(SHARP if penalty >= _STAGES[-1][1] else SMOOTH)

        def follow(intermediate_result: OptimizeResult) -> None:
            self.iterations += 1
            best[0] = intermediate_result.x
            self._require_not_cancelled()
            # The cost is not below the logarithm of the condition number, and violations add to it.
            if self.clock() >= self.deadline or intermediate_result.fun <= self._enough:
                raise StopIteration

        iterations = min(self.settings.max_iterations, most or self.settings.max_iterations)
        options = {"maxiter": iterations, "maxcor": 30, "ftol": 1e-6}
        minimize(
            self.problem.objective, x, (has_distances, penalty), "L-BFGS-B", jac=True, options=options, callback=follow
        )
        return best[0]

    def _best_draw(self) -> Array:
        draws = [self._draw() for _ in range(12)]
        return draws[int(np.argmin([self.problem.cost(x) for x in draws]))]

    def _draw(self) -> Array:
        """Draw a random trajectory, each joint as large as its position, velocity and acceleration limits allow."""
        x = self._rng.normal(size=self.problem.size)
        return self._scale_joints(x, 1.0 / np.maximum(self._limit_usage(x), 1e-9))

    def _offer(self, x: Array) -> float:
        """Keep a candidate if it is the best, after scaling it until every limit holds when checked.

        Returns:
            The share of its amplitude with which limits hold [-]; 1 for a candidate that is no better anyway.
        """
        candidate = self._within_range(x)
        if self.problem.cost(candidate) >= self.cost:
            return 1.0  # shrinking will not make it better
        passes = self._passes(candidate)
        # Near a start that leaves little room, a smaller motion breaks the same limits.
        for penalty in _HEAVIER if self.problem.base is not None else ():
            if passes or self.clock() >= self.deadline:
                break
            candidate = self._within_range(self._solve(candidate, True, penalty, 80))
            passes = self._passes(candidate)
        scale = 1.0 if passes else next((factor for factor in _SCALES if self._passes(factor * candidate)), 0.0)
        cost = self.problem.cost(scale * candidate)
        if scale > 0.0 and cost < self.cost:
            self.cost, self.x, self.scale = cost, scale * candidate, scale
        return scale

    def _within_range(self, x: Array) -> Array:
        """Shrink joints until their positions, velocities and accelerations keep their limits at any time."""
        return self._scale_joints(x, 1.0 / np.maximum(self._limit_usage(x), 1.0))

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
        times = np.linspace(0.0, trajectory.duration, int(np.ceil(trajectory.duration / 0.005)) + 1)
        states = trajectory.sample(times)
        share = self.settings.torque_fraction
        if self.problem.base is not None:  # these motions are proven, and planned again where they lack a little
            share = 1.05  # of the torque limits
        try:
            model.torque_demand.check(LimitKind.TORQUE, times, states, share)
            model.torque_demand.check_stops(trajectory, self.settings.brake_time, share)
            check_clearance(
                model.robot, model.collision, model.tracking_position, self.settings.clearance, times, states[0]
            )
        except PlanRejected:
            return False
        return True

    def _require_not_cancelled(self) -> None:
        if self.is_cancelled():
            raise Cancelled("the excitation planner was cancelled")

    def describe(
        self, collected: ArrayLike | None, earlier: Sequence[Trajectory], starts: int, planning_time: float
    ) -> ExcitationPlan:
        trajectory, model = self.problem.space.trajectory(self.x), self.model
        robot, window, base = model.robot, self.settings.window, self.problem.base
        motions = (*earlier, trajectory)
        if base is None:
            regressor = payload_regressor(robot, trajectory)
            rows = momentum_windows(robot, trajectory, window)[..., -10:].reshape(-1, 10) / window
            widths = expected_radii(model, [trajectory], window)
        else:
            regressor = base_regressor(robot, base, [trajectory])
            rows = base_regressor(robot, base, motions, window)
            widths = expected_base_radii(model, base, motions, window)
        information = rows.T @ rows + (0.0 if collected is None else np.asarray(collected))
        widths.setflags(write=False)
        return ExcitationPlan(
            trajectory=trajectory,
            criterion=self.settings.criterion,
            cost=float(self.cost),
            condition_number=condition_number(regressor.T @ regressor),
            condition_number_windows=condition_number(information),
            expected_radii=widths,
            starts=starts,
            iterations=self.iterations,
            scale=self.scale,
            planning_time=planning_time,
        )
