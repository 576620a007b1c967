"""SPACE's own experiments: simulated motion, its noise and integration, validation by predicted torques."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.common.spatial import skew
from sysid_ros.space.core.intervals import FloatingMotion
from sysid_ros.space.core.measurements import FloatingData, data_from_rates
from sysid_ros.space.core.momentum import composite_inertia, compute_momentum, solve_base_twist
from sysid_ros.space.core.robot import FreeFlyer

Array = NDArray[np.float64]

_SINGULAR = 1e-3
"""Cosine of the middle Euler angle below which Euler angles count as singular."""


def simulate(
    robot: FreeFlyer,
    parameters: ArrayLike,
    motion: FloatingMotion,
    times: ArrayLike,
    momentum: Callable[[Array], Array] | None = None,
) -> FloatingData:
    """Simulate the base while joints and wheels move as prescribed.

    The velocity of the base follows from the momentum, exactly; only its pose is integrated, by the Runge-Kutta method
    of fourth order.

    Args:
        robot: The robot.
        parameters: Inertial parameters, (10 B,).
        motion: Motion of joints and wheels.
        times: Ascending, (N,) [s].
        momentum: Linear and angular momentum of robot and wheels at times (M,), in the axes of the first sample and
            about its origin, (M, 6) [kg m/s, kg m^2/s]; zero by default.

    Returns:
        The motion, without errors.
    """
    theta, stamps = np.asarray(parameters, dtype=float), np.asarray(times, dtype=float)
    nodes = np.empty(2 * stamps.size - 1)
    nodes[::2], nodes[1::2] = stamps, 0.5 * (stamps[1:] + stamps[:-1])
    q, v, _ = motion.joints.sample(nodes)
    wheel_rates = motion.wheel_rates(nodes)
    states = robot.tree.evaluate(q, v)
    inverse = np.linalg.inv(composite_inertia(states, theta))
    own = compute_momentum(states, theta)
    own += robot.wheels.momentum(wheel_rates)
    total = np.zeros((nodes.size, 6)) if momentum is None else np.asarray(momentum(nodes), dtype=float)

    def twist(node: int, turn: Array, place: Array) -> Array:
        linear = total[node, :3]
        seen = np.concatenate([turn.T @ linear, turn.T @ (total[node, 3:] - np.cross(place, linear))])
        result: Array = inverse[node] @ (seen - own[node])
        return result

    def rate(node: int, turn: Array, place: Array) -> tuple[Array, Array]:
        now = twist(node, turn, place)
        return turn @ skew(now[3:]), turn @ now[:3]

    rotations, positions, twists = np.empty((stamps.size, 3, 3)), np.empty((stamps.size, 3)), np.empty((stamps.size, 6))
    turn, place = np.eye(3), np.zeros(3)
    for k in range(stamps.size):
        rotations[k], positions[k], twists[k] = turn, place, twist(2 * k, turn, place)
        if k + 1 == stamps.size:
            break
        h = stamps[k + 1] - stamps[k]
        a = rate(2 * k, turn, place)
        b = rate(2 * k + 1, turn + 0.5 * h * a[0], place + 0.5 * h * a[1])
        c = rate(2 * k + 1, turn + 0.5 * h * b[0], place + 0.5 * h * b[1])
        d = rate(2 * k + 2, turn + h * c[0], place + h * c[1])
        u, _, w = np.linalg.svd(turn + h / 6.0 * (a[0] + 2.0 * b[0] + 2.0 * c[0] + d[0]))
        turn, place = u @ w, place + h / 6.0 * (a[1] + 2.0 * b[1] + 2.0 * c[1] + d[1])
    return FloatingData(stamps, twists, q[::2], v[::2], wheel_rates[::2], rotations, positions)


def add_noise(
    robot: FreeFlyer, truth: FloatingData, rng: np.random.Generator, rule: str = "forward_euler"
) -> FloatingData:
    """Measure a simulated motion as the paper does: white noise on the rates, and all else integrated from them.

    Args:
        robot: The robot, with the standard deviations of its sensors.
        truth: The motion without errors.
        rng: Random numbers.
        rule: Rule of integration, see :func:`data_from_rates`.

    Source: SPACE sections 6.3 and 7.3.
    """
    angles = euler_angles(truth.rotations)
    matrices = euler_rate_matrices(angles, truth.times)
    rates = np.linalg.solve(matrices, truth.base_twist[:, 3:, None])[..., 0]
    linear, angular, joint = robot.noise
    velocity = np.einsum("nij,nj->ni", truth.rotations, truth.base_twist[:, :3])
    velocity += rng.normal(0.0, linear, (len(truth), 3))
    rates = rates + rng.normal(0.0, angular, (len(truth), 3))
    v = truth.v + rng.normal(0.0, joint, truth.v.shape)
    return data_from_euler_rates(robot, truth.times, velocity, rates, v, truth.wheel_rates, truth.q[0], rule)


def data_from_euler_rates(
    robot: FreeFlyer,
    times: np.ndarray,
    velocity: np.ndarray,
    euler_rates: np.ndarray,
    v: np.ndarray,
    wheel_rates: np.ndarray | None = None,
    start: np.ndarray | None = None,
    rule: str = "forward_euler",
) -> FloatingData:
    """Build samples as the paper does: inertial velocity, Euler and joint rates are measured, all else integrated.

    Args:
        robot: The robot.
        times: (N,) [s].
        velocity: Of the base in inertial axes, (N, 3) [m/s].
        euler_rates: Rates of the Z-X-Y Euler angles, which start at zero, (N, 3) [rad/s].
        v: Joint rates, (N, n) [rad/s].
        wheel_rates: Speeds of the wheels, (N, W) [rad/s]; None if all rest.
        start: Joint positions at the first sample, (n,); the home position by default.
        rule: ``forward_euler``, or ``trapezoid``.

    Source: SPACE (44) to (47), appendix 7.2.
    """
    angles = integrate(times, euler_rates, rule)
    turns = euler_rotations(angles)
    angular = np.einsum("nij,nj->ni", euler_rate_matrices(angles, times), euler_rates)
    twist = np.concatenate([np.einsum("nji,nj->ni", turns, velocity), angular], axis=1)
    data = data_from_rates(robot, times, twist, v, wheel_rates, start)
    q = (robot.home if start is None else start) + integrate(times, v, rule)
    return replace(data, q=q, rotations=turns, positions=integrate(times, velocity, rule))


def integrate(times: np.ndarray, rates: np.ndarray, rule: str) -> np.ndarray:
    """Integrate rates (N, k) over times (N,), from zero at the first; SPACE (44), (45), (47) by forward Euler."""
    means = rates[:-1] if rule == "forward_euler" else 0.5 * (rates[1:] + rates[:-1])
    return np.concatenate([np.zeros((1, rates.shape[1])), np.cumsum(means * np.diff(times)[:, None], axis=0)])


def euler_angles(rotations: Array) -> Array:
    """Return the Z-X-Y Euler angles (N, 3) [rad] of rotations (N, 3, 3)."""
    about_x = np.arcsin(np.clip(rotations[:, 2, 1], -1.0, 1.0))
    about_z = np.arctan2(-rotations[:, 0, 1], rotations[:, 1, 1])
    return np.stack([about_z, about_x, np.arctan2(-rotations[:, 2, 0], rotations[:, 2, 2])], axis=1)


def euler_rotations(angles: Array) -> Array:
    """Return the rotations (N, 3, 3) of Z-X-Y Euler angles (N, 3) [rad]: about z, the new x, then the new y."""
    (cz, cx, cy), (sz, sx, sy) = np.cos(angles).T, np.sin(angles).T
    rows = (
        (cz * cy - sz * sx * sy, -sz * cx, cz * sy + sz * sx * cy),
        (sz * cy + cz * sx * sy, cz * cx, sz * sy - cz * sx * cy),
        (-cx * sy, sx, cx * cy),
    )
    return np.stack([np.stack(row, -1) for row in rows], -2)


def euler_rate_matrices(angles: Array, times: Array) -> Array:
    """Return the matrices M (N, 3, 3) that turn Euler rates into body rates, at Z-X-Y Euler angles (N, 3) [rad].

    ``times`` (N,) [s] are for the error.

    Raises:
        SysidError: The middle angle is close to a right angle.

    Source: SPACE (46).
    """
    (_, cx, cy), (_, sx, sy) = np.cos(angles).T, np.sin(angles).T
    singular = np.flatnonzero(np.abs(cx) < _SINGULAR)
    if singular.size:
        raise SysidError(
            f"the Z-X-Y Euler angles of the base are singular at {times[singular[0]]:.3f} s: the angle about x is "
            f"{np.degrees(angles[singular[0], 1]):.2f} deg; expected away from +-90 deg. Give the twist of the base in "
            "its own axes"
        )
    zero, one = np.zeros_like(cx), np.ones_like(cx)
    rows = ((-cx * sy, cy, zero), (sx, zero, one), (cx * cy, sy, zero))
    return np.stack([np.stack(row, -1) for row in rows], -2)


def predict_torques(
    robot: FreeFlyer, parameters: ArrayLike, q: ArrayLike, v: ArrayLike, a: ArrayLike
) -> tuple[Array, Array]:
    """Predict the motion of the base and the joint torques of a joint motion, with the wheels at rest and no momentum.

    Args:
        robot: The robot.
        parameters: Inertial parameters, (10 B,).
        q: Joint positions, (N, n) [rad].
        v: Joint velocities, (N, n) [rad/s].
        a: Joint accelerations, (N, n) [rad/s^2].

    Returns:
        Twist of the base in its own axes, (N, 6) [m/s, rad/s], and joint torques, (N, n) [Nm].

    Raises:
        ParameterOutOfRange: A shape is wrong, or the robot as a whole has no positive definite inertia.

    Source: SPACE section 6.4.
    """
    theta, accelerations = np.asarray(parameters, dtype=float), np.asarray(a, dtype=float)
    states = robot.tree.evaluate(q, v)
    if accelerations.shape != np.shape(v):
        raise ParameterOutOfRange("the shape of a", accelerations.shape, f"{np.shape(v)}, that of v")
    twist = solve_base_twist(states, theta)
    inertia = composite_inertia(states, theta)
    model, data = robot.tree.model, robot.tree.model.createData()
    place = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    torques = np.empty(np.shape(v))
    for k, (here, rates) in enumerate(zip(np.asarray(q, dtype=float), np.asarray(v, dtype=float), strict=True)):
        position, velocity = np.concatenate([place, here]), np.concatenate([twist[k], rates])
        moved = np.concatenate([np.zeros(6), accelerations[k]])
        # The wrench on the base is zero: that fixes its acceleration.
        wrench = pin.computeJointTorqueRegressor(model, data, position, velocity, moved)[:6] @ theta
        moved[:6] = -np.linalg.solve(inertia[k], wrench)
        torques[k] = pin.computeJointTorqueRegressor(model, data, position, velocity, moved)[6:] @ theta
    return twist, torques


def validation_motion(robot: FreeFlyer, rng: np.random.Generator, times: ArrayLike) -> tuple[Array, Array, Array]:
    """Return a Fourier motion like the paper's validation, with random coefficients within the limits.

    Args:
        robot: The robot.
        rng: Random numbers; the coefficients of the paper's own motion are only in a figure.
        times: (N,) [s]; one period is 40 s.

    Returns:
        Positions, velocities and accelerations, (N, n) each.

    Source: SPACE (40), (41) with two harmonics and ``omega_f = pi / 20``.
    """
    orders = 0.05 * np.pi * np.arange(1, 3)
    phases = np.multiply.outer(np.asarray(times, dtype=float), orders)
    sine, cosine = rng.normal(size=(2, 2, robot.n)) / orders[:, None]
    fine = np.multiply.outer(np.linspace(0.0, 40.0, 401), orders)
    v = (np.cos(fine) * orders) @ sine - (np.sin(fine) * orders) @ cosine
    q = np.sin(fine) @ sine + np.cos(fine) @ cosine
    room = 0.9 * np.minimum(robot.q_upper - robot.home, robot.home - robot.q_lower)
    scale = np.minimum(0.99 * robot.v_max / np.abs(v).max(axis=0), room / np.abs(q).max(axis=0))
    sine, cosine = sine * scale, cosine * scale
    return (
        robot.home + np.sin(phases) @ sine + np.cos(phases) @ cosine,
        (np.cos(phases) * orders) @ sine - (np.sin(phases) * orders) @ cosine,
        -(np.sin(phases) * orders**2) @ sine - (np.cos(phases) * orders**2) @ cosine,
    )
