"""The momentum of a floating tree, linear in the inertial parameters of its bodies (SPACE sections 3 and 4).

Everything is seen from the base, in its axes and about its origin. Where the total momentum is zero, as before any
external impulse, the momentum model then needs neither the pose of the base nor its integration.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.spatial import cross, skew
from sysid_ros.space.core.kinematics import BodyStates, FloatingTree

Array = NDArray[np.float64]

PARAMETERS = 10
"""Inertial parameters of a body, in Pinocchio's order."""
INERTIA_ENTRIES = ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))
"""Rows and columns of the inertia matrix in that order."""
_FIRST, _SECOND = np.array(INERTIA_ENTRIES).T
_MIXED = np.flatnonzero(_FIRST != _SECOND)


def link_kinematic_matrices(states: BodyStates) -> Array:
    """Compute the matrices that turn the parameters of each body into its momentum.

    Args:
        states: Bodies with their absolute velocities, see :meth:`BodyStates.with_base_twist`.

    Returns:
        Matrices K_i, (N, B, 6, 10): momentum [linear, kg m/s; angular about the origin of the base, kg m^2/s] per
        parameter in Pinocchio's order.

    Source: SPACE (10).
    """
    turn, r, v, w = states.rotations, states.positions, states.linear, states.angular
    matrices = np.zeros((*r.shape[:2], 6, PARAMETERS))
    matrices[..., :3, 0], matrices[..., 3:, 0] = v, cross(r, v)
    spin = skew(w)
    matrices[..., :3, 1:4] = spin @ turn
    matrices[..., 3:, 1:4] = (skew(r) @ spin - skew(v)) @ turn
    rates = (w[..., None, :] @ turn)[..., 0, :]
    matrices[..., 3:, 4:] = turn[..., _FIRST] * rates[..., None, _SECOND]
    matrices[..., 3:, 4 + _MIXED] += turn[..., _SECOND[_MIXED]] * rates[..., None, _FIRST[_MIXED]]
    return matrices


def system_kinematic_matrix(tree: FloatingTree, q: ArrayLike, v: ArrayLike, base_twist: ArrayLike) -> Array:
    """Compute the matrix that turns the parameters of all bodies into the momentum of the robot.

    Args:
        tree: The robot.
        q: Joint positions, (N, nq) [rad, m].
        v: Joint velocities, (N, nv) [rad/s, m/s].
        base_twist: Linear and angular velocity of the base in its own axes, (N, 6) [m/s, rad/s].

    Returns:
        K, (N, 6, 10 B): momentum in the axes of the base and about its origin.

    Raises:
        ParameterOutOfRange: A shape is wrong or a number is not finite.

    Source: SPACE (11).
    """
    states = tree.evaluate(q, v)
    twist = np.asarray(base_twist, dtype=float)
    if twist.shape != (len(states.positions), 6) or not np.all(np.isfinite(twist)):
        raise ParameterOutOfRange(
            "base_twist",
            f"an array of shape {twist.shape}",
            f"({len(states.positions)}, 6) finite numbers [m/s, rad/s], one twist per sample",
        )
    matrices = link_kinematic_matrices(states.with_base_twist(twist))
    samples, bodies = matrices.shape[:2]
    return np.swapaxes(matrices, 1, 2).reshape(samples, 6, bodies * PARAMETERS)


def compute_base_twist(
    tree: FloatingTree, parameters: ArrayLike, q: ArrayLike, v: ArrayLike, momentum: ArrayLike = 0.0
) -> Array:
    """Compute the motion of the base that gives the robot a certain momentum.

    Args:
        tree: The robot.
        parameters: Inertial parameters of all bodies, (10 B,).
        q: Joint positions, (N, nq) [rad, m].
        v: Joint velocities, (N, nv) [rad/s, m/s].
        momentum: Momentum of everything in ``tree`` in the axes of the base and about its origin, (N, 6) [kg m/s, kg
            m^2/s]; the additional momentum of reaction wheels counts with the opposite sign.

    Returns:
        Twist of the base in its own axes, (N, 6) [m/s, rad/s].

    Raises:
        ParameterOutOfRange: A shape is wrong, or the parameters give the robot no positive definite inertia.
    """
    theta = np.asarray(parameters, dtype=float)
    if theta.shape != (PARAMETERS * tree.count,):
        raise ParameterOutOfRange("the shape of parameters", theta.shape, f"({PARAMETERS * tree.count},)")
    return solve_base_twist(tree.evaluate(q, v), theta, momentum)


def solve_base_twist(
    states: BodyStates, parameters: ArrayLike, momentum: ArrayLike = 0.0, inertia: Array | None = None
) -> Array:
    """Compute the same as :func:`compute_base_twist` from bodies as they move relative to the base.

    The composite inertia (N, 6, 6) need not be given.
    """
    theta = np.asarray(parameters, dtype=float)
    relative = compute_momentum(states, theta)
    inertia = composite_inertia(states, theta) if inertia is None else inertia
    try:
        np.linalg.cholesky(inertia)
    except np.linalg.LinAlgError:
        problem = "a composite inertia that is not positive definite"
        raise ParameterOutOfRange("parameters", problem, "physical bodies") from None
    missing: Array = np.asarray(momentum, dtype=float) - relative
    twist: NDArray[np.floating] = np.linalg.solve(inertia, missing[..., None])[..., 0]
    return twist.astype(float, copy=False)


def composite_inertia(states: BodyStates, parameters: ArrayLike) -> Array:
    """Compute the spatial inertia of the whole robot with its joints locked.

    Args:
        states: The bodies.
        parameters: Inertial parameters of all bodies, (10 B,).

    Returns:
        Inertia in the axes of the base and about its origin, linear before angular, (N, 6, 6).
    """
    turn, r = states.rotations, states.positions
    mass, moment, own = _body_parameters(states, parameters)
    weighted = mass[:, None] * r
    first = (weighted + moment).sum(axis=1)
    mixed = np.swapaxes(r, 1, 2) @ (0.5 * weighted + moment)
    shift = mixed + np.swapaxes(mixed, 1, 2)
    rotational = (turn @ own @ np.swapaxes(turn, -1, -2)).sum(axis=1)
    rotational += np.trace(shift, axis1=1, axis2=2)[:, None, None] * np.eye(3) - shift
    result = np.zeros((len(r), 6, 6))
    result[:, :3, :3] = mass.sum() * np.eye(3)
    moment_matrix = skew(first)
    result[:, 3:, :3], result[:, :3, 3:] = moment_matrix, -moment_matrix
    result[:, 3:, 3:] = rotational
    return result


def compute_momentum(states: BodyStates, parameters: ArrayLike) -> Array:
    """Compute the momentum of bodies as they move.

    Args:
        states: The bodies.
        parameters: Inertial parameters of all bodies, (10 B,).

    Returns:
        Momentum in the axes of the base and about its origin, (N, 6) [kg m/s, kg m^2/s].

    Source: SPACE (4), (8).
    """
    turn, r, v, w = states.rotations, states.positions, states.linear, states.angular
    mass, moment, own = _body_parameters(states, parameters)
    linear = mass[:, None] * v + cross(w, moment)
    spin = turn @ (own @ (np.swapaxes(turn, -1, -2) @ w[..., None]))
    angular = cross(r, linear) + cross(moment, v) + spin[..., 0]
    return np.concatenate([linear.sum(axis=1), angular.sum(axis=1)], axis=1)


def _body_parameters(states: BodyStates, parameters: ArrayLike) -> tuple[Array, Array, Array]:
    """Return masses (B,), first moments in the axes of the base (N, B, 3), and inertias in those of the bodies."""
    theta = np.asarray(parameters, dtype=float).reshape(-1, PARAMETERS)
    xx, xy, yy, xz, yz, zz = theta[:, 4:].T
    own = np.moveaxis(np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]), -1, 0)
    return theta[:, 0], (states.rotations @ theta[:, 1:4, None])[..., 0], own
