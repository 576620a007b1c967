"""The single checks of a motion at samples: each returns its margin or raises with joint, time and amount."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.collision.clearance import CollisionModel, displacements, pair_distances, sphere_centers
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.model.robot import INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.core.trajectories.braking import slowdown_states

Array = NDArray[np.float64]

STOP_STEP = 0.01
"""Time between the positions on a path at which stops are checked [s]."""
_STOP_POINTS = 9
_SPEED_SAMPLES = 301
STOP_ERRORS = 1.75
"""How much larger position and velocity errors may be in a stop along the path than on it [-].

This, :func:`stop_velocity_errors` and :func:`stop_torque_growths` are above what was found proving the bounds of many
stops (docs/theory/certificates.md). :class:`~sysid_ros.core.certification.recheck.BoundRechecker` proves those of
a plan at chosen times.
"""


def stop_velocity_errors(errors: Array, v_max: Array) -> Array:
    """Velocity errors to add to the speed on the path, so that speed limits hold in stops, too, (n,) [rad/s].

    Errors answer to slowing down with a delay: while more than 0.65 of the speed is left they are at most 1.05 times
    those on the path. Later they may be ``STOP_ERRORS`` times as large, but then there is room, unless they take more
    than 0.35 of the limit.

    Args:
        errors: Velocity errors on the path, (n,) [rad/s].
        v_max: Speed limits, (n,) [rad/s].
    """
    return np.where(STOP_ERRORS * errors <= 0.35 * v_max, 1.05, STOP_ERRORS) * errors


STOP_SPEED = 0.75
"""Largest speed of any joint in a path from which on stops need all of their growth [rad/s]."""


def stop_torque_growth(brake_time: float) -> float:
    """By which share the torque of the feedback may grow in stops that begin at the top speed of a fast path [-]."""
    return 0.12 + 0.22 / brake_time


def stop_torque_shape(rate: float | Array, square: float | Array) -> float | Array:
    """Part of that growth that counts where the rate of the clock in a stop is r [-], at most about 1.

    Errors answer to slowing down with a delay: nothing at r = 1, all at r = 0.4, half at the end of the stop. It is
    linear in ``r`` and ``r^2``, so that its largest value with a convex function of both is at a corner of what holds
    them.

    Args:
        rate: r.
        square: r^2.
    """
    return 0.55 * (1.0 - rate) + 2.7 * (rate - square)


def stop_torque_growths(trajectory: Trajectory, brake_time: float, middle: Array, half: Array | float = 0.0) -> Array:
    """By which share the torque of the feedback may grow in stops, where they pass parts of the path [-].

    Slowing down takes torque in proportion to the speed at which the stop begins, and what is not known of the inertia
    adds to the feedback; stops that begin slowly need no more than the path itself. On a slow path all do.

    Args:
        trajectory: The path.
        brake_time: Time to rest of the stops [s].
        middle: Middles of the parts of its time, (P,) [s].
        half: Their half lengths, (P,) [s].

    Returns:
        Shares, (P,).
    """
    times = np.linspace(0.0, trajectory.duration, _SPEED_SAMPLES)
    speed = np.abs(trajectory.sample(times)[1]).max(axis=1)
    share = speed / max(float(speed.max()), STOP_SPEED)
    return stop_torque_growth(brake_time) * _largest_before(times, share, 0.5 * brake_time, middle, half)


def _largest_before(times: Array, values: Array, reach: float, middle: Array, half: Array | float) -> Array:
    """Largest values between ``reach`` before the parts and their ends, a sample more on both sides, (P,)."""
    step = times[1] - times[0]
    first = np.clip(np.floor((middle - half - reach) / step).astype(int), 0, times.size - 1)
    last = np.clip(np.ceil((middle + half) / step).astype(int), 0, times.size - 1)
    return np.array([values[i : j + 1].max() for i, j in zip(np.atleast_1d(first), np.atleast_1d(last), strict=True)])


class TrackingErrors(Protocol):
    """Largest errors of the controller, as :mod:`sysid_ros.core.control` gives them, each (n,).

    Attributes:
        position: Of the position [rad].
        velocity: Of the velocity [rad/s].
        torque: Difference between the commanded torque and what the true parameters need for the desired motion [Nm].
            The checks at samples take it from their settings instead.
    """

    position: Array
    velocity: Array
    torque: Array


def error_bound(name: str, values: ArrayLike, n: int) -> Array:
    """Largest errors, one per joint or one for all, as (n,).

    Raises:
        ParameterOutOfRange: An entry is negative or not finite, or the length is wrong.
    """
    vector = np.asarray(values, dtype=float)
    if vector.shape not in ((), (1,), (n,)) or not np.all(np.isfinite(vector) & (vector >= 0.0)):
        raise ParameterOutOfRange(name, vector.tolist(), f"{n} finite numbers, one per joint, 0 or more")
    return np.broadcast_to(vector, (n,))


class PlanRejected(SysidError):
    """A trajectory that breaks a limit.

    Args:
        check: Which kind of limit: "position", "velocity", "acceleration", "torque", "torque at rest",
            "braking torque",
            "ground", "obstacle", "self-collision".
        where: Joint, link or pair of links.
        time: When, since the start of the trajectory [s].
        value: What it reaches.
        allowed: What is allowed.
        unit: Unit of both.
    """

    def __init__(self, check: str, where: str, time: float, value: float, allowed: float, unit: str):
        self.check = check
        self.where = where
        self.time = time
        self.value = value
        self.allowed = allowed
        self.unit = unit
        super().__init__(
            f"{check} limit broken at {where}, {time:.3f} s after the start: {value:.4g} {unit}, allowed {allowed:.4g} "
            f"{unit} ({abs(value - allowed):.3g} {unit} too far)"
        )


def check_positions(robot: RobotModel, trajectory: Trajectory, error: Array, times: Array, q: Array) -> float:
    """Smallest distance to a position limit over all time, tracking error included [rad]; inf without limits.

    Args:
        robot: The arm.
        trajectory: The motion; its extrema count, the samples only tell when.
        error: Largest position error, (n,) [rad].
        times: Sample times, (N,) [s].
        q: Positions there, (N, n) [rad].

    Raises:
        PlanRejected: A limit is broken.
    """
    lower, upper = trajectory.position_extrema()
    below, above = lower - error - robot.limits.q_lower, robot.limits.q_upper - upper - error
    joint = int(np.argmin(np.minimum(below, above)))
    if not min(below[joint], above[joint]) >= 0.0:
        is_low = below[joint] < above[joint]
        value = (lower - error)[joint] if is_low else (upper + error)[joint]
        allowed = robot.limits.q_lower[joint] if is_low else robot.limits.q_upper[joint]
        index = int(np.argmin(q[:, joint]) if is_low else np.argmax(q[:, joint]))
        raise _rejected("position", robot, joint, times[index], value, allowed, "rad")
    return float(min(below[joint], above[joint]))


def check_rates(
    check: str, robot: RobotModel, extrema: tuple[Array, Array], error: Array, times: Array, values: Array
) -> float:
    """Smallest distance to a velocity or acceleration limit over all time, relative to the limit [-].

    Args:
        check: "velocity" or "acceleration".
        robot: The arm.
        extrema: Bounds over all time, each (n,).
        error: Largest error, (n,).
        times: Sample times, (N,) [s].
        values: Velocities or accelerations there, (N, n).

    Raises:
        PlanRejected: A limit is broken.
    """
    limit, unit = (robot.limits.v_max, "rad/s") if check == "velocity" else (robot.limits.a_max, "rad/s^2")
    largest = np.maximum(-extrema[0], extrema[1]) + error
    margin = 1.0 - largest / limit
    joint = int(np.argmin(margin))
    if not margin[joint] >= 0.0:
        index = int(np.argmax(np.abs(values[:, joint])))
        raise _rejected(check, robot, joint, times[index], largest[joint], limit[joint], unit)
    return float(margin[joint])


@dataclass(frozen=True)
class TorqueDemand:
    """Worst-case torques of an arm over boxes of its and its payload's parameters.

    Attributes:
        robot: The arm.
        arm_box: Box of the arm's parameters, (14 n,).
        payload_box: Box of the payload's parameters, (10,).
        feedback: Torque the controller may add to what the motion needs, (n,) [Nm].
    """

    robot: RobotModel
    arm_box: Box
    payload_box: Box
    feedback: Array

    def evaluate(self, q: Array, v: Array, a: Array) -> Array:
        """Largest torque of any parameters in the boxes at states (N, n), (N, n) [Nm].

        Linear in the parameters, so ``|W center| + |W| radius`` is exact. Coulomb friction counts in the worst
        direction.
        """
        n = self.robot.n
        regressor = TorqueRegressor(self.robot, EffortMeaning.MOTOR_SIDE).evaluate(q, v, a, direction=np.zeros_like(v))
        payload = regressor[:, :, INERTIAL * (n - 1) : INERTIAL * n]
        nominal = regressor @ self.arm_box.center + payload @ self.payload_box.center
        spread = np.abs(regressor) @ self.arm_box.radius + np.abs(payload) @ self.payload_box.radius
        coulomb = self.robot.friction(np.maximum(np.abs(self.arm_box.lower), np.abs(self.arm_box.upper)))[:, 0]
        return np.abs(nominal) + spread + coulomb + self.feedback

    def check(self, name: str, times: Array, states: tuple[Array, Array, Array], fraction: float = 1.0) -> float:
        """Smallest distance to a torque limit at the samples, relative to the limit [-].

        Args:
            name: Which check it is, for the message.
            times: Sample times, (N,) [s].
            states: Positions, velocities and accelerations, each (N, n).
            fraction: Part of the limits that may be used [-].

        Raises:
            PlanRejected: A limit is broken.
        """
        limit = fraction * self.robot.limits.tau_max
        demand = self.evaluate(*states)
        index, joint = np.unravel_index(int(np.argmax(demand / limit)), demand.shape)
        if not demand[index, joint] <= limit[joint]:
            raise _rejected(name, self.robot, int(joint), times[index], demand[index, joint], limit[joint], "Nm")
        return float(1.0 - demand[index, joint] / limit[joint])

    def check_stops(self, trajectory: Trajectory, brake_time: float, fraction: float = 1.0) -> float:
        """Smallest distance to a torque limit in stops that begin anywhere on a trajectory, relative to the limit [-].

        Args:
            trajectory: The motion; looked at every 10 ms, with nine points of every stop, rest among them.
            brake_time: Time to rest of the stops [s].
            fraction: Part of the limits that may be used [-].

        Raises:
            PlanRejected: A limit is broken.
        """
        times = np.linspace(0.0, trajectory.duration, int(np.ceil(trajectory.duration / STOP_STEP)) + 1)
        states = slowdown_states(trajectory.sample(times), brake_time, _STOP_POINTS)
        return self.check("braking torque", np.tile(times, _STOP_POINTS), states, fraction)


def check_clearance(
    robot: RobotModel, collision: CollisionModel, error: Array, clearance: float, times: Array, q: Array
) -> dict[str, float]:
    """Smallest free distances at the samples, tracking error taken off, by name [m].

    Args:
        robot: The arm.
        collision: What must not touch what.
        error: Largest position error, (n,) [rad].
        clearance: Distance to keep [m].
        times: Sample times, (N,) [s].
        q: Positions there, (N, n) [rad].

    Raises:
        PlanRejected: Something comes too close.
    """
    if not collision.spheres:
        return {}
    centers = sphere_centers(robot, collision.spheres, q)
    pairs_moved, moved = displacements(robot, collision, error)
    radii = np.array([sphere.radius for sphere in collision.spheres])
    links = [sphere.link for sphere in collision.spheres]
    margins: dict[str, float] = {}

    def keep(check: str, distances: Array, names: Sequence[str]) -> None:
        index, which = np.unravel_index(int(np.argmin(distances)), distances.shape)
        smallest = float(distances[index, which])
        if not smallest >= clearance:
            raise PlanRejected(check, names[int(which)], float(times[index]), smallest, clearance, "m")
        name = f"{check} [m]"
        margins[name] = min(smallest - clearance, margins.get(name, np.inf))

    if len(collision.pairs):
        names = [f"{links[i]} and {links[j]}" for i, j in collision.pairs]
        keep("self-collision", pair_distances(centers, collision.spheres, collision.pairs) - pairs_moved, names)
    own = radii[collision.movable] + moved
    points, names = centers[:, collision.movable], [links[k] for k in collision.movable]
    if collision.ground_height is not None and names:
        keep("ground", points[..., 2] - collision.ground_height - own, names)
    for obstacle in collision.obstacles:
        if names:
            keep("obstacle", obstacle.distance(points) - own, [f"{name} and {obstacle.name}" for name in names])
    return margins


def _rejected(
    check: str, robot: RobotModel, joint: int, time: float, value: float, allowed: float, unit: str
) -> PlanRejected:
    where = f"joint '{robot.joint_names[joint]}'"
    return PlanRejected(check, where, float(time), float(value), float(allowed), unit)
