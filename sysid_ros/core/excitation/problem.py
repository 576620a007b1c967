"""The excitation problem: cost and limits of a Fourier trajectory as functions of its coordinates. Solves nothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.collision.clearance import CollisionModel
from sysid_ros.core.excitation.criteria import PAYLOAD, Criterion, ErrorModel, build_criterion, measured_radius
from sysid_ros.core.excitation.model import (
    ExcitationModel,
    StartOutsideLimits,
    build_limits,
)
from sysid_ros.core.excitation.settings import ExcitationSettings
from sysid_ros.core.excitation.symbolic import SampledClearance, SampledDynamics, build_clearance
from sysid_ros.core.trajectories.fourier import FourierTrajectory, rest_projection

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
        InvalidTrajectory: Fewer than two harmonics.
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

    def chain(self, jacobian: Array) -> Array:
        """Compute the Jacobian by the coordinates.

        Args:
            jacobian: Of m functions of the state at each sample with respect to it, (N, m, 3 n): q, then v, then a; or
                (N, m, n) with respect to q alone.

        Returns:
            (N, m, size).
        """
        samples, rows, columns = jacobian.shape
        bases = (self.position_basis, self.velocity_basis, self.acceleration_basis)[: columns // self.n]
        blocks = jacobian.reshape(samples, rows, len(bases), self.n)
        result: Array = np.einsum("smbj,bks->smjk", blocks, np.stack(bases), optimize=True)
        return result.reshape(samples, rows, self.size)

    def trajectory(self, x: ArrayLike) -> FourierTrajectory:
        """Build the trajectory with coordinates (size,)."""
        sines, cosines = np.split(np.asarray(x, dtype=float).reshape(self.n, self.per_joint), 2, axis=1)
        sine, cosine = sines @ self._sine_basis.T, cosines @ self._cosine_basis.T
        return FourierTrajectory(self.q_start, sine, cosine, 1.0 / self.duration, self.duration)

    def _project(self, of_sines: Array, of_cosines: Array) -> Array:
        return np.concatenate([self._sine_basis.T @ of_sines, self._cosine_basis.T @ of_cosines])


_BETWEEN = 0.98
"""Part of the limits used at the samples, for what happens between them; a plan is checked densely afterwards."""
_NEARBY = 0.1
"""Pairs of spheres further apart than the clearance plus this in random postures around the start are left out [m]."""
_PROBES = 300
"""Random postures used to find the pairs that may come close."""


class ExcitationProblem:
    """Minimise ``cost(x)`` subject to ``lower <= constraints(x) <= upper``.

    The coordinates x are those of a :class:`FourierSpace`, so the motion starts and ends at rest. The rows of the
    constraints are, each at all samples: positions, velocities, accelerations (linear in x), the largest share of a
    torque limit that the worst model needs (in the motion and in stops along its path), the smallest clearance.

    Args:
        model: Arm, boxes and tracking errors.
        q_start: Start position, (n,) [rad].
        settings: Settings of trajectory and search.
        collected: Gram matrix of the windows collected so far, (10, 10), see :func:`plan_excitation`; None for nothing.

    Raises:
        StartOutsideLimits: The start position violates a limit, or cannot be held with the worst payload.

    Source: EXCITE (9a)-(9g); SAFE-ID (28), (30).
    """

    def __init__(
        self, model: ExcitationModel, q_start: ArrayLike, settings: ExcitationSettings, collected: Array | None = None
    ):
        robot = model.robot
        self.space = FourierSpace(q_start, settings.harmonics, settings.duration, settings.samples)
        self.limits = build_limits(model, self.space.q_start, settings)
        self._dynamics = SampledDynamics(robot, settings.samples)
        self._torque_usage = self._dynamics.build_torque_usage(model.torque_demand, settings.brake_time)
        nearby = build_clearance(robot, self._nearby(model, settings), model.tracking_position)
        self._clearance = SampledClearance(nearby, settings.samples) if nearby.numel_out(0) else None
        self._require_start(model)
        self._criterion: Criterion = build_criterion(settings.criterion, self._errors(model, settings), collected)
        self._linear = self._build_linear_rows()
        self.lower, self.upper = self._build_bounds()

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.space.size

    def cost(self, x: Array) -> float:
        """Evaluate the criterion at coordinates (size,)."""
        return self._criterion.evaluate(self._dynamics.regressor(*self.space.states(x)))[0]

    def cost_gradient(self, x: Array) -> tuple[float, Array]:
        """Evaluate the criterion and its gradient (size,)."""
        states = self.space.states(x)
        value, slope = self._criterion.evaluate(self._dynamics.regressor(*states))
        return value, self.space.pull_back(*self._dynamics.pull_back(*states, slope))

    def constraints(self, x: Array) -> Array:
        """Evaluate all constrained quantities, (rows,)."""
        q, v, a = self.space.states(x)
        parts = [q, v, a, self._torque_usage.value(q, v, a)]
        if self._clearance is not None:
            parts.append(self._clearance.value(q))
        return np.concatenate([part.ravel() for part in parts])

    def constraint_jacobian(self, x: Array) -> Array:
        """Differentiate the constrained quantities, (rows, size)."""
        q, v, a = self.space.states(x)
        parts = [self._torque_usage.jacobian(q, v, a)]
        if self._clearance is not None:
            parts.append(self._clearance.jacobian(q))
        return np.concatenate([self._linear, *(self.space.chain(part).reshape(-1, self.size) for part in parts)])

    @property
    def jacobian_pattern(self) -> NDArray[np.bool_]:
        """Where the Jacobian can be other than zero, (rows, size)."""
        full = np.ones((self.lower.size - len(self._linear), self.size), dtype=bool)
        return np.concatenate([self._linear != 0.0, full])

    def _build_linear_rows(self) -> Array:
        n = self.space.n
        bases = (self.space.position_basis, self.space.velocity_basis, self.space.acceleration_basis)
        # Rows sample by sample, in each the joints; columns joint by joint.
        return np.concatenate([np.einsum("ij,ks->sijk", np.eye(n), basis).reshape(-1, self.size) for basis in bases])

    def _build_bounds(self) -> tuple[Array, Array]:
        limits, samples = self.limits, self.space.times.size
        velocity, acceleration = _BETWEEN * limits.velocity, _BETWEEN * limits.acceleration
        lower = [limits.position_lower, -velocity, -acceleration, np.array([-np.inf])]
        upper = [limits.position_upper, velocity, acceleration, np.array([_BETWEEN * limits.torque_usage])]
        if self._clearance is not None:
            lower.append(np.array([limits.clearance]))
            upper.append(np.array([np.inf]))
        return _repeat(lower, samples), _repeat(upper, samples)

    def _nearby(self, model: ExcitationModel, settings: ExcitationSettings) -> CollisionModel:
        """Return the collision model without the pairs of spheres that stay apart around the start."""
        collision = model.collision
        if not len(collision.pairs):
            return collision
        only_pairs = CollisionModel(collision.spheres, collision.pairs, collision.movable, (), None)
        rng = np.random.default_rng(0)
        postures = self.space.q_start + settings.amplitude * rng.uniform(-1.0, 1.0, (_PROBES, self.space.n))
        distances = build_clearance(model.robot, only_pairs, model.tracking_position)(postures.T)
        close = distances.full().min(axis=1) < settings.clearance + _NEARBY
        pairs = collision.pairs[close]
        return CollisionModel(collision.spheres, pairs, collision.movable, collision.obstacles, collision.ground_height)

    def _errors(self, model: ExcitationModel, settings: ExcitationSettings) -> ErrorModel:
        robot, sensors = model.robot, model.robot.sensors
        theta = np.concatenate([model.arm_box.center, model.payload])
        radius = measured_radius(robot, model.arm_box.radius, model.payload_box.radius)
        rest = np.zeros((self.space.times.size, self.space.n))
        regressor = self._dynamics.regressor(rest + self.space.q_start, rest, rest)[0]
        unknown = np.abs(regressor[:, :-PAYLOAD]) @ radius[:-PAYLOAD]
        row_error = sensors.effort_relative_error * np.abs(regressor @ theta) + sensors.effort_absolute_error + unknown
        return ErrorModel(
            theta=theta,
            radius=radius,
            relative=sensors.effort_relative_error,
            absolute=np.maximum(sensors.effort_absolute_error, 1e-6),
            weight=settings.duration / (settings.samples * settings.window),
            row_error=max(float(np.median(row_error)), 1e-6),
        )

    def _require_start(self, model: ExcitationModel) -> None:
        robot, q, limits = model.robot, self.space.q_start[None], self.limits
        usage = model.torque_demand.evaluate(q, 0.0 * q, 0.0 * q)[0] / robot.limits.tau_max
        joint = int(np.argmax(usage))
        if usage[joint] > limits.torque_usage:
            what = f"the torque to hold the worst payload of the box at joint '{robot.joint_names[joint]}' [Nm]"
            allowed = f"at most {limits.torque_usage * robot.limits.tau_max[joint]:.4g}"
            raise StartOutsideLimits(what, float(usage[joint] * robot.limits.tau_max[joint]), allowed)
        distances = build_clearance(robot, model.collision, model.tracking_position)(q[0]).full()
        if distances.size and distances.min() < limits.clearance:
            what = "the smallest distance of collision spheres to each other, ground and obstacles [m]"
            raise StartOutsideLimits(what, float(distances.min()), f"at least {limits.clearance:.4g}")


def _repeat(parts: list[Array], samples: int) -> Array:
    """Repeat every part once per sample and concatenate them."""
    return np.concatenate([np.tile(part, samples) for part in parts])
