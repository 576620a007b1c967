"""Hands-on guiding: a person moves the arm by its tool, and the arm follows as if it were light.

The external wrench ``f`` at the tool, without its dead zone, drives a virtual mass and damper per direction,

    time_constant dV/dt + V = admittance dead_zone(f),

and the joint velocities are those closest to the wanted twist ``V``,

    min |W (J dq - V)|^2 + damping |dq|^2    subject to    |dq| <= share of v_max,   A dq <= allowed speed,

where the rows ``A`` approach a joint limit or a virtual wall and the allowed speed is the one that can still be braked
within the remaining distance. ``dq = 0`` is always feasible. The result is a reference for a controller of the torque
loop; no certificate covers it, because the motion of the hand is unknown.

Source: EXCITE section V-C for the admittance and its dead zone; walls, limits and the least-distance program are our
own. The program is solved as non-negative least squares (Lawson and Hanson, Solving Least Squares Problems, ch. 23).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.core.contact.momentum_observer import MomentumObserver
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]

_MOMENT_UNITS = np.repeat([1.0, 0.1], 3)
"""Sizes of a force [N] and a moment [Nm] that count alike where joint torques leave open which of them acts."""
_ROUNDING = 1e-10
"""Excess over a bound that is rounding [rad/s, m/s]."""
_DAMPING = 1e-4
"""Weight of joint speeds beside the tool's, which keeps them bounded near singular postures."""

_OBSERVER_GAIN = 30.0
"""Rate at which the estimate of external torques follows [1/s]."""


@dataclass(frozen=True)
class GuidingSettings(Settings, library_only=True):
    """Response of an arm to a hand."""

    force_dead_zone: float = setting(2.0, "N", lower=0.0, upper=100.0)
    """Dead zone of the force at the tool, per axis."""
    torque_dead_zone: float = setting(0.1, "Nm", lower=0.0, upper=20.0)
    """Dead zone of the torque at the tool, per axis."""
    force_admittance: float = setting(0.02, "m/s/N", lower=1e-4, upper=0.5)
    """Speed of the tool per force beyond the dead zone."""
    torque_admittance: float = setting(0.3, "rad/s/Nm", lower=1e-3, upper=5.0)
    """Angular speed of the tool per torque beyond the dead zone."""
    time_constant: float = setting(0.1, "s", lower=0.01, upper=2.0)
    """Time in which the tool takes on the speed; the virtual mass is this over the admittance."""
    speed: float = setting(0.25, "m/s", lower=0.001, upper=0.25)
    """Largest speed of the tool: at most the reduced speed of ISO 10218-1."""
    angular_speed: float = setting(0.6, "rad/s", lower=0.001, upper=2.0)
    """Largest angular speed of the tool."""
    joint_speed_share: float = setting(0.5, "-", lower=0.01, upper=1.0)
    """Largest joint speed over the joint's limit."""
    deceleration_share: float = setting(0.2, "-", lower=0.01, upper=1.0)
    """Deceleration before position limits over the joint's acceleration limit."""
    wall_deceleration: float = setting(0.5, "m/s^2", lower=0.01, upper=10.0)
    """Deceleration of the tool before virtual walls."""
    margin: float = setting(0.02, "rad", lower=0.0, upper=0.5)
    """Distance that is kept from position limits."""
    period: float = setting(1e-3, "s", lower=1e-4, upper=0.02)
    """Sampling period."""


@dataclass(frozen=True)
class Wall:
    """A plane that a point of the tool does not cross: ``normal . p <= offset``.

    Attributes:
        name: Its name, for messages.
        normal: Unit vector that points into the wall, (3,), world frame.
        offset: Distance of the plane from the origin along the normal [m].
        point: The point that is kept before the wall, in the tool frame, (3,) [m].
    """

    name: str
    normal: Array
    offset: float
    point: Array

    def __post_init__(self) -> None:
        normal = np.array(self.normal, dtype=float)
        if normal.shape != (3,) or not abs(np.linalg.norm(normal) - 1.0) < 1e-6:
            raise ParameterOutOfRange(f"normal of the wall '{self.name}'", self.normal, "a unit vector of 3 numbers")
        object.__setattr__(self, "normal", normal)
        object.__setattr__(self, "point", np.array(self.point, dtype=float))


@dataclass(frozen=True)
class GuidedReference:
    """Reference of one cycle.

    Attributes:
        q: Positions, (n,) [rad].
        v: Velocities, (n,) [rad/s].
        a: Accelerations since the last cycle, (n,) [rad/s^2].
    """

    q: Array
    v: Array
    a: Array


def without_dead_zone(wrench: ArrayLike, dead_zone: ArrayLike) -> Array:
    """Return the part of each component of a wrench beyond its dead zone, with its sign."""
    wrench, dead_zone = np.asarray(wrench, dtype=float), np.asarray(dead_zone, dtype=float)
    return np.asarray(wrench - np.clip(wrench, -dead_zone, dead_zone))


def braking_speed(distance: Array | float, deceleration: Array | float, period: float) -> Array:
    """Return the largest speed that can be braked within a distance, where it may act for one more period.

    It solves ``v period + v^2 / (2 deceleration) = distance``. From one period to the next it falls by at most
    ``deceleration period``; it is 0 at distance 0.
    """
    lost = deceleration * period
    return np.asarray(np.sqrt(lost**2 + 2.0 * deceleration * np.maximum(distance, 0.0)) - lost)


def closest_point(hessian: Array, target: Array, rows: Array, bounds: Array) -> Array:
    """Minimise ``x' hessian x / 2 - target' x`` subject to ``rows x <= bounds``, where ``x = 0`` is feasible.

    Args:
        hessian: Positive definite, (n, n).
        target: Linear term, (n,).
        rows: Constraints, (m, n).
        bounds: Their upper bounds, (m,), none negative.

    Returns:
        The minimiser, (n,); scaled back where it is farther beyond a constraint than rounding explains.
    """
    x = np.asarray(np.linalg.solve(hessian, target), dtype=np.float64)
    if (rows @ x <= bounds).all():
        return x
    factor = np.linalg.cholesky(hessian)
    scaled = np.linalg.solve(factor, rows.T).T
    shift = np.linalg.solve(factor, target)
    excess = scaled @ shift - bounds
    dual, _ = nnls(np.vstack([-scaled.T, excess]), np.append(np.zeros(len(target)), 1.0))
    residual = np.append(-scaled.T @ dual, excess @ dual - 1.0)
    x = np.linalg.solve(factor.T, shift - residual[:-1] / residual[-1])
    reach = rows @ x
    over = reach > bounds + _ROUNDING
    return np.asarray(x * min(1.0, float(np.min(bounds[over] / reach[over], initial=1.0))))


def wrench_of(jacobian: Array, torque: Array) -> Array:
    """Return the wrench at the tool that explains external joint torques best, by damped least squares.

    Near a singular posture joint torques do not determine some directions; the damping leaves those at zero.

    Args:
        jacobian: Of the tool, linear part first, in world axes, (6, n).
        torque: External joint torques, (n,) [Nm].

    Returns:
        Force and moment in world axes, (6,) [N, Nm].
    """
    scaled = jacobian.T * _MOMENT_UNITS
    normal = scaled.T @ scaled + 1e-4 * np.eye(6)
    return np.asarray(np.linalg.solve(normal, scaled.T @ torque) * _MOMENT_UNITS)


class GuidingLaw:
    """Reference of an arm that a person moves by its tool; keeps Pinocchio's workspace, so use one per thread.

    Args:
        robot: The arm; the hand holds it at the tool frame.
        settings: Its response.
        walls: Virtual walls.
    """

    def __init__(self, robot: RobotModel, settings: GuidingSettings | None = None, walls: Sequence[Wall] = ()):
        self.robot = robot
        self.settings = settings or GuidingSettings()
        self.walls = tuple(walls)
        self._data = robot.pin_model.createData()
        self._frame = robot.pin_model.getFrameId(robot.tool_frame)
        s, limits = self.settings, robot.limits
        self._admittance = np.repeat([s.force_admittance, s.torque_admittance], 3)
        self._dead_zone = np.repeat([s.force_dead_zone, s.torque_dead_zone], 3)
        eye = np.eye(robot.n)
        self._damping = _DAMPING * eye
        self._joint_rows = np.vstack([eye, -eye])
        self._joint_ends = np.concatenate([limits.q_upper, -limits.q_lower]) - s.margin
        self._joint_speeds = np.tile(s.joint_speed_share * limits.v_max, 2)
        self._is_limited = np.isfinite(self._joint_ends)
        self._decelerations = np.tile(s.deceleration_share * limits.a_max, 2)[self._is_limited]
        self.start(robot.home)

    def start(self, q: ArrayLike) -> None:
        """Begin at rest at positions (n,) [rad].

        Raises:
            ParameterOutOfRange: They are not n finite numbers within the position limits, or a point of the tool is
                behind a wall.
        """
        q = np.array(q, dtype=float)
        limits = self.robot.limits
        if q.shape != (self.robot.n,) or not ((limits.q_lower <= q) & (q <= limits.q_upper)).all():
            raise ParameterOutOfRange("start of guiding [rad]", q, f"{limits.q_lower} to {limits.q_upper}")
        self._q, self._v, self._twist = q, np.zeros(self.robot.n), np.zeros(6)
        self._move()
        for wall, distance in zip(self.walls, self._wall_rows()[1], strict=True):
            if distance < 0.0:
                raise ParameterOutOfRange(
                    f"distance of the tool before the wall '{wall.name}' [m]",
                    float(distance),
                    "at least 0 at the start",
                )

    @property
    def jacobian(self) -> Array:
        """Jacobian of the tool at the reference, linear part first, in world axes, (6, n)."""
        return self._jacobian

    @property
    def is_at_rest(self) -> bool:
        """Whether the reference has come to rest."""
        return bool(np.abs(self._v).max() < 1e-4)  # [rad/s]

    def step(self, wrench: ArrayLike) -> GuidedReference:
        """Compute the reference of the next cycle.

        Args:
            wrench: Estimated external force and torque on the tool at the origin of its frame, world axes,
                (6,) [N, Nm].

        Raises:
            ParameterOutOfRange: The wrench is not six finite numbers.
        """
        s = self.settings
        wrench = np.asarray(wrench, dtype=float)
        if wrench.shape != (6,) or not np.isfinite(wrench).all():
            raise ParameterOutOfRange("external wrench [N, Nm]", wrench, "6 finite numbers")
        push = without_dead_zone(wrench, self._dead_zone)
        self._twist += s.period / s.time_constant * (self._admittance * push - self._twist)
        for part, most in ((slice(0, 3), s.speed), (slice(3, 6), s.angular_speed)):
            self._twist[part] *= min(1.0, most / max(float(np.linalg.norm(self._twist[part])), most))
        v = self._joint_velocities()
        a = (v - self._v) / s.period
        self._q, self._v = self._q + s.period * v, v
        self._move()
        return GuidedReference(self._q.copy(), v, a)

    def _joint_velocities(self) -> Array:
        """Return the joint velocities closest to the twist, (n,) [rad/s]."""
        s = self.settings
        # A rotation counts as a motion 1 m away: a tool held back at its tip stops rather than pivots about it.
        hessian = self._jacobian.T @ self._jacobian + self._damping
        bounds, is_limited = self._joint_speeds.copy(), self._is_limited
        left = (self._joint_ends - self._joint_rows @ self._q)[is_limited]
        bounds[is_limited] = np.minimum(bounds[is_limited], braking_speed(left, self._decelerations, s.period))
        rows = self._joint_rows
        if self.walls:
            wall_rows, distances = self._wall_rows()
            bounds = np.append(bounds, braking_speed(distances, s.wall_deceleration, s.period))
            rows = np.vstack([rows, wall_rows])
        v = closest_point(hessian, self._jacobian.T @ self._twist, rows, bounds)
        # Where a limit bends the motion, the tool must not become faster than the hand could make it.
        linear = float(np.linalg.norm(self._jacobian[:3] @ v))
        return v * min(1.0, s.speed / max(linear, s.speed))

    def _wall_rows(self) -> tuple[Array, Array]:
        """Return speeds towards the walls per joint velocity, (w, n), and distances from them, (w,) [m]."""
        rows, distances = np.zeros((len(self.walls), self.robot.n)), np.zeros(len(self.walls))
        for k, wall in enumerate(self.walls):
            arm = self._placement.rotation @ wall.point
            rows[k] = wall.normal @ (self._jacobian[:3] + np.cross(self._jacobian[3:].T, arm).T)
            distances[k] = wall.offset - wall.normal @ (self._placement.translation + arm)
        return rows, distances

    def _move(self) -> None:
        """Compute placement and Jacobian (6, n) of the tool, linear part first, in world axes."""
        model, world = self.robot.pin_model, pin.ReferenceFrame.LOCAL_WORLD_ALIGNED
        self._jacobian: Array = np.array(pin.computeFrameJacobian(model, self._data, self._q, self._frame, world))
        self._placement = self._data.oMf[self._frame].copy()


class HandGuide:
    """Guiding from measurements: estimates the wrench of the hand with a nominal model and returns the reference.

    Args:
        robot: The arm; the hand holds its tool frame.
        theta: Nominal parameters with the load, (14 n,).
        settings: Response of the arm.
        walls: Virtual walls.

    Attributes:
        law: The guiding law.
        wrench: Estimated wrench of the last cycle at the origin of the tool frame, world axes, (6,) [N, Nm].
    """

    def __init__(
        self,
        robot: RobotModel,
        theta: ArrayLike,
        settings: GuidingSettings | None = None,
        walls: Sequence[Wall] = (),
    ):
        self.law = GuidingLaw(robot, settings, walls)
        self._observer = MomentumObserver(robot, theta, self.law.settings.period, _OBSERVER_GAIN)
        self._is_ending = False
        self.wrench = np.zeros(6)

    def start(self, q: ArrayLike) -> None:
        """Begin at rest at positions (n,) [rad]; raises as :meth:`GuidingLaw.start`."""
        self.law.start(q)
        self._observer.reset()
        self._is_ending = False
        self.wrench = np.zeros(6)

    def end(self) -> None:
        """Stop following the hand: the arm comes to rest within a few time constants."""
        self._is_ending = True

    @property
    def is_over(self) -> bool:
        """Whether the arm has come to rest after :meth:`end`."""
        return self._is_ending and self.law.is_at_rest

    def step(self, q: Array, v: Array, effort: Array | None) -> GuidedReference:
        """Compute the reference of the next cycle.

        Args:
            q: Measured positions, (n,) [rad].
            v: Measured velocities, (n,) [rad/s].
            effort: Mean effort since the cycle before, (n,) [Nm]; None where it was not measured: the estimate then
                begins again.
        """
        if effort is None or not np.isfinite(effort).all():
            self._observer.reset()
            self.wrench = np.zeros(6)
        else:
            self.wrench = wrench_of(self.law.jacobian, self._observer.update(q, v, effort))
        return self.law.step(np.zeros(6) if self._is_ending else self.wrench)
