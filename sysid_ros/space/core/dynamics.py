"""Motion of a free-flying robot from conservation of momentum, and its joint torques.

Masses enter by their momentum only, so parameters need not be those of possible bodies: the minimal parameters alone,
with zeros elsewhere, give the same motion (:func:`embed`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.spatial import skew
from sysid_ros.space.core.intervals import FloatingMotion
from sysid_ros.space.core.measurements import FloatingData
from sysid_ros.space.core.minimal_parameters import MinimalParameters
from sysid_ros.space.core.momentum import composite_inertia, compute_momentum, solve_base_twist
from sysid_ros.space.core.robot import FreeFlyer

Array = NDArray[np.float64]


def embed(minimal: MinimalParameters, values: ArrayLike) -> Array:
    """Return full parameters (10 B,) with the momentum of minimal ones (M,), with zeros for those not kept."""
    result = np.zeros(minimal.matrix.shape[1])
    result[minimal.kept] = values
    return result


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


def rms(errors: ArrayLike) -> Array:
    """Return the root mean squares (k,) of errors (N, k), SPACE (42)."""
    values: Array = np.sqrt(np.mean(np.square(np.asarray(errors, dtype=float)), axis=0))
    return values


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
