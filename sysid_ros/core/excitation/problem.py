"""The excitation problem: cost and limits of a Fourier trajectory as functions of its coordinates. Solves nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.certification.stop_model import STOP_SPEED
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.excitation.criteria import (
    BaseParameters,
    ErrorModel,
    InformationCriterion,
    build_criterion,
    measured_radius,
)
from sysid_ros.core.excitation.distances import MissingDistances
from sysid_ros.core.excitation.model import ExcitationModel, build_limits, unusable_start
from sysid_ros.core.excitation.settings import ARM_TARGET, ExcitationSettings
from sysid_ros.core.model.mechanics import add_payload
from sysid_ros.core.model.robot import FRICTION, INERTIAL, EffortMeaning
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.core.trajectories.braking import clock_rates
from sysid_ros.core.trajectories.families import FourierTrajectory, rest_projection

Array = NDArray[np.float64]

State = tuple[Array, Array, Array]


class FourierSpace:
    """Coordinates of the Fourier trajectories of n joints from one start position, one period long.

    The coordinates ``x`` are, joint by joint, the coefficients of the sines and then of the cosines in the null space
    of the conditions of rest; any x is a trajectory that starts and ends at rest, and x = 0 does not move.

    Args:
        q_start: Start and end position, (n,) [rad].
        harmonics: Number of harmonics L.
        duration: Duration [s].
        samples: Number of sample times, evenly spread over the duration.

    Raises:
        ParameterOutOfRange: Fewer than two harmonics.
    """

    def __init__(self, q_start: ArrayLike, harmonics: int, duration: float, samples: int):
        self.q_start = np.array(q_start, dtype=float)
        self.duration = float(duration)
        self.n = self.q_start.size
        self._sine_basis, self._cosine_basis = rest_projection(harmonics)
        self.per_joint = 2 * (harmonics - 1)
        """Coordinates of one joint."""
        self.times = (np.arange(samples) + 0.5) * (self.duration / samples)
        omega = 2.0 * np.pi / self.duration * np.arange(1, harmonics + 1)
        sine, cosine = np.sin(np.outer(omega, self.times)), np.cos(np.outer(omega, self.times))
        omega = omega[:, None]
        self.position_basis = self._project(sine / omega, (1.0 - cosine) / omega)
        """Position of a joint relative to its start per coordinate, (per_joint, N) [rad]."""
        self.velocity_basis = self._project(cosine, sine)
        """Velocity of a joint per coordinate, (per_joint, N) [rad/s]."""
        self.acceleration_basis = self._project(-sine * omega, cosine * omega)
        """Acceleration of a joint per coordinate, (per_joint, N) [rad/s^2]."""

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.n * self.per_joint

    def states(self, x: ArrayLike) -> State:
        """Compute positions, velocities and accelerations at the sample times, each (N, n), of coordinates (size,)."""
        coordinates = np.asarray(x, dtype=float).reshape(self.n, self.per_joint)
        position = (coordinates @ self.position_basis).T + self.q_start
        return position, (coordinates @ self.velocity_basis).T, (coordinates @ self.acceleration_basis).T

    def pull_back(self, dq: Array, dv: Array, da: Array) -> Array:
        """Pull gradients by the states, each (N, n), back to the coordinates, (size,)."""
        gradient = self.position_basis @ dq + self.velocity_basis @ dv + self.acceleration_basis @ da
        result: Array = gradient.T.ravel()
        return result

    def coordinates(self, trajectory: FourierTrajectory) -> Array:
        """Compute the coordinates (size,) of a trajectory of this space, or of one with fewer harmonics."""
        more = ((0, 0), (0, len(self._sine_basis) - trajectory.sine.shape[1]))
        sine, cosine = np.pad(trajectory.sine, more), np.pad(trajectory.cosine, more)
        parts = sine @ self._sine_basis, cosine @ self._cosine_basis
        return np.concatenate(parts, axis=1).ravel()

    def trajectory(self, x: ArrayLike) -> FourierTrajectory:
        """Build the trajectory with coordinates (size,)."""
        sines, cosines = np.split(np.asarray(x, dtype=float).reshape(self.n, self.per_joint), 2, axis=1)
        sine, cosine = sines @ self._sine_basis.T, cosines @ self._cosine_basis.T
        return FourierTrajectory(self.q_start, sine, cosine, 1.0 / self.duration, self.duration)

    def _project(self, of_sines: Array, of_cosines: Array) -> Array:
        return np.concatenate([self._sine_basis.T @ of_sines, self._cosine_basis.T @ of_cosines])


_BETWEEN, _BETWEEN_ARM = 0.98, 0.99
"""Part of the limits used at the samples, as a margin between them, the latter of a whole arm's speeds and
accelerations, which are made to fit exactly; a plan is checked densely afterwards."""
_ROOM = 0.01
"""Distance kept in the search beyond the clearance, which penalties alone would not quite keep [m]."""
_STOP_PROGRESS = (0.6, 1.0)
"""Fractions of the progress of a stop at which its torque is about largest, and at rest after it."""
_IDLE_TORQUE = 0.9
"""Share of the allowed torques below which, in random motions at the other limits, stops are left to the last check."""
_MEMORY = 0.3
"""Time constant with which feedback forgets how fast a motion was [s]."""


def speed_memory(times: ArrayLike) -> Array:
    """Return weights (N, N) that average values at evenly spaced times, (N,) [s], over the memory of the feedback."""
    times = np.asarray(times, dtype=float)
    age = times[:, None] - times
    weights = np.where(age >= 0.0, np.exp(-np.maximum(age, 0.0) / _MEMORY), 0.0)
    # Before the first sample the arm rests.
    result: Array = weights * (1.0 - np.exp(-(times[1] - times[0]) / _MEMORY))
    return result


class ExcitationProblem:
    """Minimise ``cost(x)`` of a motion that keeps its limits at the samples.

    The coordinates x are those of a :class:`FourierSpace`, so the motion starts and ends at rest. Violations of
    position, velocity, acceleration and torque limits and of distances count by their squares. The torque is that of
    the worst parameters in the boxes, ``|W center| + |W| radius``, in the motion and, where torques come close to their
    limits, in stops along its path. One reverse derivative of the regressor serves cost and torques.

    Args:
        model: Arm, boxes and tracking errors.
        q_start: Start position, (n,) [rad].
        settings: Settings of trajectory and search.
        collected: Gram matrix of the windows collected so far, see :func:`plan_excitation`; None for nothing.
        earlier: Motions made before, for a whole arm.

    Raises:
        NoExcitationFound: The start position violates a limit, or cannot be held with the worst payload.
        ParameterOutOfRange: ``collected`` is not a finite matrix of the right size without negative eigenvalues.

    Source: EXCITE (9a)-(9g), (11c); SAFE-ID (28), (30).
    """

    def __init__(
        self,
        model: ExcitationModel,
        q_start: ArrayLike,
        settings: ExcitationSettings,
        collected: ArrayLike | None = None,
        earlier: Sequence[Trajectory] = (),
    ):
        robot = model.robot
        self.space = FourierSpace(q_start, settings.harmonics, settings.duration, settings.samples)
        self.limits = build_limits(model, self.space.q_start, settings)
        self.base = BaseParameters.of_settings(robot, settings) if settings.target == ARM_TARGET else None
        """Base parameters to be identified; None for a payload."""
        self._between = _BETWEEN if self.base is None else _BETWEEN_ARM
        self._regressor = TorqueRegressor(robot, EffortMeaning.MOTOR_SIDE, sign_width=0.02)
        self._last = robot.inertial_slice(robot.n)
        around = (self.limits.position_lower, self.limits.position_upper)
        self._distances = MissingDistances(
            robot, model.collision, model.tracking_position, self.limits.clearance + _ROOM, around
        )
        self._require_start(model)
        if self.base is not None:
            lower, upper = self._distances.free_range(self.space.q_start, *around, self.limits.clearance)
            self.limits = replace(self.limits, position_lower=lower, position_upper=upper)
        self._set_torques(model)
        errors = self._errors(model, settings)
        given = _checked_information(collected, INERTIAL if self.base is None else self.base.columns.size)
        self._criterion = build_criterion(settings.criterion, errors, given, self.base)
        for trajectory in earlier:
            count = max(int(round(trajectory.duration / settings.duration * settings.samples)), 2)
            times = (np.arange(count) + 0.5) * (trajectory.duration / count)
            weight = trajectory.duration / (count * settings.window)
            self._criterion.add(self._columns(self._regressor.evaluate(*trajectory.sample(times))), weight)
        stops = [clock_rates(progress, settings.brake_time) for progress in _STOP_PROGRESS]
        self._stages = [(1.0, 0.0), *((float(rate), float(slowdown)) for rate, slowdown in stops)]
        grows = self._stop_torque.any() or self._moving_torque.any()
        if not grows and self._largest_torque() < _IDLE_TORQUE * self.limits.torque_usage:
            del self._stages[1:]

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.space.size

    def sharpen(self, power: float) -> None:
        """Choose the power of the norms that bound a condition number: a greater one is tighter and less smooth."""
        if isinstance(self._criterion, InformationCriterion):
            self._criterion.power = power

    def cost(self, x: Array) -> float:
        """Evaluate the criterion at coordinates (size,)."""
        return self._criterion.evaluate(self._columns(self._regressor.evaluate(*self.space.states(x))))[0]

    def objective(self, x: Array, has_distances: bool = True, penalty: float = 20.0) -> tuple[float, Array]:
        """Evaluate the cost with the penalty of all violations, and its gradient (size,).

        Args:
            x: Coordinates, (size,).
            has_distances: Whether distances count; the first stage of EXCITE IV-A is without them.
            penalty: Weight of the squares of violations, each relative to its limit (positions in rad, distances in
                units of 5 cm), against the cost.
        """
        q, v, a = states = self.space.states(x)
        samples = len(q)
        staged = self._staged(states)
        regressor = self._regressor.evaluate(*staged)
        value, slope = self._criterion.evaluate(self._columns(regressor[:samples]))
        violation, weight, by_v = self._torque_violation(regressor, v)
        weight *= penalty
        weight[:samples] += self._merge(slope)
        by_stage = [part.reshape(len(self._stages), samples, -1) for part in self._regressor.pull_back(*staged, weight)]
        dq, dv, da = by_stage[0].sum(axis=0), penalty * by_v, np.zeros_like(a)
        for (rate, slowdown), of_v, of_a in zip(self._stages, by_stage[1], by_stage[2], strict=True):
            dv += rate * of_v + slowdown * of_a
            da += rate**2 * of_a
        limits = self.limits
        fastest, strongest = self._between * limits.velocity, self._between * limits.acceleration
        bounds = (
            (q, limits.position_lower, limits.position_upper, np.ones(q.shape[1]), dq),
            (v, -fastest, fastest, fastest, dv),
            (a, -strongest, strongest, strongest, da),
        )
        for values, lower, upper, unit, gradient in bounds:
            beyond = (np.maximum(values - upper, 0.0) - np.maximum(lower - values, 0.0)) / unit
            violation += float((beyond**2).sum())
            gradient += 2.0 * penalty * beyond / unit
        if has_distances:
            missing, by_q = self._distances.penalty(q)
            violation += missing
            dq += penalty * by_q
        return value + penalty * violation, self.space.pull_back(dq, dv, da)

    def _staged(self, states: State) -> State:
        """Stack the states of the motion and of the stops along it."""
        q, v, a = states
        return (
            np.concatenate([q] * len(self._stages)),
            np.concatenate([rate * v for rate, _ in self._stages]),
            np.concatenate([rate**2 * a + slowdown * v for rate, slowdown in self._stages]),
        )

    def _torque_violation(self, regressor: Array, v: Array) -> tuple[float, Array, Array]:
        """Sum the squares of torques beyond their limits, with its derivatives by the regressor and the velocity."""
        nominal, demand = self._worst_torque(regressor)
        # Feedback grows with the speed, in stops with the speed at their beginning.
        grown, by_square = self._grow((v**2).sum(axis=1))
        stages = len(self._stages)
        moving, stopping = (np.broadcast_to(part, v.shape) for part in (self._moving_torque, self._stop_torque))
        growing = np.stack([moving] + [moving + stopping] * (stages - 1))
        demand += (self._slow_torque + grown[:, None] * growing).reshape(demand.shape)
        limit = _BETWEEN * self.limits.torque_usage
        beyond = np.maximum(demand / self._torque_limits - limit, 0.0)
        weight = np.zeros_like(regressor)
        sample, joint = np.nonzero(beyond)
        if sample.size:
            rows = regressor[sample, joint]
            factor = 2.0 * beyond[sample, joint] / self._torque_limits[joint]
            side = np.sign(nominal[sample, joint])[:, None] * self._center
            weight[sample, joint] = factor[:, None] * (side + np.sign(rows) * self._radius)
        by_growth = np.einsum("snj,snj->n", (2.0 * beyond / self._torque_limits).reshape(growing.shape), growing)
        return float((beyond**2).sum()), weight, 2.0 * by_square(by_growth)[:, None] * v

    def _grow(self, squares: Array) -> tuple[Array, Callable[[Array], Array]]:
        """Return the part of the moving torque at these squares of the speed, (N,), and the adjoint derivative."""
        if self._shares is None:
            one = 1.0 + squares / STOP_SPEED**2
            return 1.0 - 1.0 / one, lambda slope: slope / (STOP_SPEED * one) ** 2
        shares = self._shares
        return shares @ squares, lambda slope: slope @ shares

    def _worst_torque(self, regressor: Array) -> tuple[Array, Array]:
        """Compute the torque of the middle of the boxes and the largest of any parameters in them, (N, n) [Nm]."""
        nominal = regressor @ self._center
        return nominal, np.abs(nominal) + np.abs(regressor) @ self._radius + self._constant

    def _set_torques(self, model: ExcitationModel) -> None:
        center = add_payload(model.arm_box.center, model.payload_box.center)
        radius = add_payload(model.arm_box.radius, model.payload_box.radius)
        sliding = slice(INERTIAL * model.robot.n, None, FRICTION)
        # Coulomb friction counts in the worst direction.
        self._constant = np.abs(center[sliding]) + radius[sliding] + model.feedback_torque
        center[sliding] = radius[sliding] = 0.0
        self._center, self._radius, self._torque_limits = center, radius, model.robot.limits.tau_held
        self._slow_torque, self._moving_torque = model.slow_torque, model.moving_torque
        self._stop_torque = model.stop_torque
        speed = model.moving_speed
        self._shares = None if speed is None else speed_memory(self.space.times) / speed[:, None]

    def _largest_torque(self) -> float:
        """Compute the largest share of a torque limit in random motions that reach the other limits."""
        rng, limits, space, largest = np.random.default_rng(0), self.limits, self.space, 0.0
        room = np.minimum(limits.position_upper - space.q_start, space.q_start - limits.position_lower)
        for _ in range(8):
            x = rng.normal(size=(space.n, space.per_joint))
            q, v, a = space.states(x)
            reach, v, a = (np.abs(part).max(axis=0) for part in (q - space.q_start, v, a))
            reach /= np.maximum(room, 1e-9)
            x /= np.maximum.reduce([reach, v / limits.velocity, a / limits.acceleration])[:, None]
            q, v, a = space.states(x)
            for rate, slowdown in self._stages:
                regressor = self._regressor.evaluate(q, rate * v, rate**2 * a + slowdown * v)
                largest = max(largest, float((self._worst_torque(regressor)[1] / self._torque_limits).max()))
        return largest

    def _columns(self, regressor: Array) -> Array:
        return regressor if self.base is not None else np.concatenate([regressor, regressor[..., self._last]], axis=-1)

    def _merge(self, slope: Array) -> Array:
        """Add the derivatives by the payload's columns to those of the last body, whose columns they are."""
        if self.base is not None:
            return slope
        merged = slope[..., :-INERTIAL]
        merged[..., self._last] += slope[..., -INERTIAL:]
        return merged

    def _errors(self, model: ExcitationModel, settings: ExcitationSettings) -> ErrorModel:
        robot, sensors = model.robot, model.robot.sensors
        theta = np.concatenate([model.arm_box.center, model.payload])
        radius = measured_radius(robot, model.arm_box.radius, model.payload_box.radius)
        if self.base is not None:
            theta[self._last] += theta[-INERTIAL:]
            radius[self._last] += radius[-INERTIAL:]
            theta, radius = theta[:-INERTIAL], radius[:-INERTIAL]
        rest = np.zeros((1, self.space.n))
        regressor = self._columns(self._regressor.evaluate(rest + self.space.q_start, rest, rest))[0]
        known = np.arange(radius.size) < 14 * robot.n
        unknown = 0.0 if self.base is not None else np.abs(regressor) @ (radius * known)
        row_error = sensors.effort_relative_error * np.abs(regressor @ theta) + sensors.lasting_error + unknown
        return ErrorModel(
            theta=theta,
            radius=radius,
            relative=sensors.effort_relative_error,
            absolute=np.maximum(sensors.lasting_error, 1e-6),
            weight=settings.duration / (settings.samples * settings.window),
            row_error=max(float(np.median(row_error)), 1e-6),
        )

    def _require_start(self, model: ExcitationModel) -> None:
        robot, q, limits = model.robot, self.space.q_start[None], self.limits
        usage = model.torque_demand.evaluate(q, 0.0 * q, 0.0 * q)[0] / robot.limits.tau_held
        joint = int(np.argmax(usage))
        if usage[joint] > limits.torque_usage:
            what = f"the torque to hold the worst payload of the box at joint '{robot.joint_names[joint]}' [Nm]"
            allowed = f"at most {limits.torque_usage * robot.limits.tau_held[joint]:.4g}"
            raise unusable_start(what, float(usage[joint] * robot.limits.tau_held[joint]), allowed)
        distances = self._distances.evaluate(q)
        if distances.size and distances.min() < limits.clearance:
            what = "the smallest distance of collision spheres to each other, ground and obstacles [m]"
            raise unusable_start(what, float(distances.min()), f"at least {limits.clearance:.4g}")


def _checked_information(collected: ArrayLike | None, size: int) -> Array | None:
    """Return the Gram matrix, symmetric; None if it is None or zero."""
    if collected is None:
        return None
    matrix = np.array(collected, dtype=float)
    if matrix.shape != (size, size) or not np.all(np.isfinite(matrix)):
        allowed = f"a finite ({size}, {size}) Gram matrix"
        raise ParameterOutOfRange("collected", f"an array of shape {matrix.shape}", allowed)
    matrix = 0.5 * (matrix + matrix.T)
    values = np.linalg.eigvalsh(matrix)
    if values[0] < -1e-9 * max(values[-1], 1e-12):
        raise ParameterOutOfRange("smallest eigenvalue of collected", float(values[0]), "0 or more (a Gram matrix)")
    return matrix if values[-1] > 0.0 else None
