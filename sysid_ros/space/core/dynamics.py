"""Motion of the base and joint torques of a free-flying robot, predicted as in the paper's validation.

Masses enter by their momentum only, so parameters need not belong to possible bodies: the minimal parameters alone,
with zeros elsewhere, give the same motion (:meth:`MinimalParameters.embed`).
"""

from __future__ import annotations

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.space.core.momentum import composite_inertia, solve_base_twist
from sysid_ros.space.core.robot import FreeFlyer

Array = NDArray[np.float64]


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
