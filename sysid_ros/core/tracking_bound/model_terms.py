"""Norms of the nominal model and of its uncertainty in the error dynamics, at samples of a motion (step 1).

All of it is linear in the parameters and comes from the Slotine-Li regressor. With ``C(q, x)``, the Christoffel matrix
at velocity x, ``dH/dq . x = C(q, x) + C(q, x)^T`` and ``C(q, x) y = C(q, y) x``. Everything is measured relative to the
nominal inertia M: velocities x by ``|x| = (x^T M x)^1/2``, torques h by ``|h| = (h^T M^-1 h)^1/2``, and a matrix that
makes torques of velocities by its norm, the largest singular value of ``M^-1/2 X M^-1/2``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.model.robot import INERTIAL, RobotModel
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.tracking_bound.inertia_columns import (
    congruence,
    coriolis_columns,
    inertia_columns,
    largest_eigenvalue,
    square_root,
)
from sysid_ros.core.tracking_bound.uncertainty import InertialUncertainty

Array = NDArray[np.float64]

_STEP = 1e-4
"""Step of the central differences in position [rad]."""
LEADING, _IMPORTANT = 4, 20
"""Number of parameters whose spread is bounded most tightly, if no other is given, and less tightly."""


@dataclass(frozen=True)
class TermStates:
    """Desired states at S nodes of a motion.

    Attributes:
        q: Positions, (S, n) [rad].
        v: Velocities, (S, n) [rad/s].
        a: Accelerations, (S, n) [rad/s^2].
    """

    q: Array
    v: Array
    a: Array


@dataclass(frozen=True)
class ModelTerms:
    """Terms at S samples or in S intervals, (S,) each but for the last two.

    D stands for H - M, C_0 for the nominal C, C_D for C - C_0.

    A *slope* is the largest norm for any velocity x of norm one, a *rate* the norm for the desired velocity. Terms with
    D are the largest for any parameters there may be.

    Attributes:
        model_slope: Of the derivative of ``M^-1 Y(q, v_d, v_d, a_d) (theta - theta_0)`` by position [1/s^2]; at nodes
            without friction and armature.
        torque_slope: Of the derivative of the nominal torque of the motion by position [1/s^2].
        torque_rate: Norm of the same derivative times the desired velocity.
        inertia_slope: Of M [(kg m^2)^-1/2].
        inertia_rate: Of M [1/s].
        ratio_slope: Of ``E = M^-1 H``.
        ratio_rate: Of E [1/s].
        coriolis_slope: Of ``C_0(q, x)``.
        coriolis_rate: Of ``C_0(q, v_d)`` [1/s].
        drag_slope: Of ``C_0(q, x) - C_D(q, x)^T + dM/dx M^-1 D``, which acts on velocity errors.
        drag_rate: Of ``C_0 + C_D - C_D^T + dM/dt M^-1 D`` at the desired velocity [1/s].
        inertia: M, (S, n, n) [kg m^2].
        torque_gradient: Magnitude of the derivative of torque i by position j, (S, n, n) [Nm/rad].
    """

    model_slope: Array
    torque_slope: Array
    torque_rate: Array
    inertia_slope: Array
    inertia_rate: Array
    ratio_slope: Array
    ratio_rate: Array
    coriolis_slope: Array
    coriolis_rate: Array
    drag_slope: Array
    drag_rate: Array
    inertia: Array
    torque_gradient: Array


@dataclass(frozen=True)
class InertiaTerms:
    """Inertia at S nodes, by parameter and nominal.

    Attributes:
        columns: Inertia by inertial parameter and armature, (S, l, n, n).
        christoffel: Christoffel matrices by parameter at each joint's unit velocity, (S, l, j, n, n).
        inertia: M, (S, n, n) [kg m^2].
        factor: ``M^-1/2``, (S, n, n).
        slopes: Derivatives of M by each joint's position, (S, j, n, n) [kg m^2/rad].
    """

    columns: Array
    christoffel: Array
    inertia: Array
    factor: Array
    slopes: Array

    @classmethod
    def of(cls, robot: RobotModel, uncertainty: InertialUncertainty, q: Array) -> InertiaTerms:
        """Evaluate them at positions (S, n) [rad]."""
        theta = uncertainty.nominal[None, None]
        columns = np.moveaxis(inertia_columns(robot, q), -1, 1)
        christoffel = np.moveaxis(coriolis_columns(robot, q), -1, 1)
        inertia, coriolis = _combine(theta, columns)[:, 0], _combine(theta, christoffel)[:, 0]
        factor = np.asarray(np.linalg.inv(np.linalg.cholesky(inertia)), dtype=np.float64)
        return cls(columns, christoffel, inertia, factor, coriolis + np.swapaxes(coriolis, -1, -2))


@dataclass(frozen=True)
class MotionSlopes:
    """How the torque of a motion changes with position, at S nodes; see :class:`ModelTerms` for the first three.

    Attributes:
        model_slope: (S,).
        torque_slope: (S,).
        torque_rate: Norm of the derivative of the nominal torque times a velocity, (S,).
        gradient: Derivative of nominal torque i by position j, (S, n, n) [Nm/rad].
    """

    model_slope: Array
    torque_slope: Array
    torque_rate: Array
    gradient: Array


def compute_motion_slopes(
    regressor: TorqueRegressor,
    uncertainty: InertialUncertainty,
    states: TermStates,
    inertia: InertiaTerms,
    along: Array | None = None,
    leading: int = LEADING,
) -> MotionSlopes:
    """Differentiate the torque of a motion, and what is not known of it, by position.

    Args:
        regressor: Torque of the arm, motor side.
        uncertainty: Deviation of the true inertial parameters from the nominal ones.
        states: Where to evaluate them.
        inertia: The inertia there.
        along: Velocity with which the position changes, (S, n) [rad/s]; that of the states if None.
        leading: Number of parameters whose spread is bounded most tightly.
    """
    q, v, a = states.q, states.v, states.a
    inertial, factor = slice(0, INERTIAL * q.shape[1]), inertia.factor
    by_position = position_gradient(regressor, q, v, a)  # (S, i, j, l)
    # Of M^-1 Y: the derivative of Y, less what a changing M does to M^-1 Y.
    accelerations = np.linalg.solve(inertia.inertia, regressor.evaluate(q, v, a)[..., inertial])
    moving = np.einsum("sjab,sbl->sajl", inertia.slopes, accelerations)
    gradient = by_position @ uncertainty.nominal[inertial]
    columns = congruence(factor, np.moveaxis(by_position - moving, -1, 1))
    middle = _combine(uncertainty.center[None, None], columns)
    vertices = uncertainty.vertices.largest_norm(middle, columns[:, uncertainty.last, None])
    along = v if along is None else along
    return MotionSlopes(
        model_slope=vertices + spread_norm(columns[:, :, None], uncertainty.spread, leading),
        torque_slope=_norm(factor @ gradient @ np.swapaxes(factor, -1, -2)),
        torque_rate=np.linalg.norm(np.einsum("sia,sab,sb->si", factor, gradient, along), axis=-1),
        gradient=gradient,
    )


def compute_model_terms(
    robot: RobotModel,
    regressor: TorqueRegressor,
    uncertainty: InertialUncertainty,
    states: TermStates,
    terms: InertiaTerms | None = None,
    leading: int = LEADING,
) -> ModelTerms:
    """Evaluate the terms.

    Norms are convex, so over the convex hull of the vertices they are largest at one of them.

    Args:
        robot: The arm.
        regressor: Its torque, motor side.
        uncertainty: Deviation of the true inertial parameters from the nominal ones.
        states: Where to evaluate them.
        terms: The inertia there, if it is known already.
        leading: Number of parameters whose spread is bounded most tightly.
    """
    theta, center, radius = uncertainty.nominal[None, None], uncertainty.center[None, None], uncertainty.spread

    def nominal(matrices: Array) -> Array:  # (S, l, ...) to (S, ...)
        return _combine(theta, matrices)[:, 0]

    def spread(matrices: Array) -> Array:  # (S, l, n, n)
        return slope_spread(matrices[:, :, None])

    def slope_spread(matrices: Array) -> Array:  # (S, l, x, n, n)
        middle = _combine(center, matrices)[:, 0]
        return uncertainty.vertices.largest_norm(middle, matrices[:, uncertainty.last]) + spread_norm(
            matrices, radius, leading
        )

    terms = terms or InertiaTerms.of(robot, uncertainty, states.q)
    inertia, factor = terms.inertia, terms.factor
    # x = factor^T xi with |xi| <= 1 are the velocities of norm one.
    coriolis = _along(factor, congruence(factor, terms.christoffel))  # (S, l, x, n, n)
    xi = np.asarray(np.linalg.solve(np.swapaxes(factor, 1, 2), states.v[..., None])[..., 0], dtype=np.float64)
    coriolis_now = _along(xi[:, None], coriolis)[:, :, 0]
    ratios = congruence(factor, terms.columns)

    inertias, inertias_now = (x + np.swapaxes(x, -1, -2) for x in (coriolis, coriolis_now))
    turned, turned_now = nominal(inertias), nominal(inertias_now)  # dM/dx and dM/dt
    carried, carried_now = turned[:, None] @ ratios[:, :, None], turned_now[:, None] @ ratios
    own, own_now = nominal(coriolis), nominal(coriolis_now)
    drag = _slope(own) + slope_spread(carried - np.swapaxes(coriolis, -1, -2))
    drag_now = _norm(own_now) + spread(carried_now + coriolis_now - np.swapaxes(coriolis_now, -1, -2))

    slopes = compute_motion_slopes(regressor, uncertainty, states, terms, leading=leading)
    return ModelTerms(
        model_slope=slopes.model_slope,
        torque_slope=slopes.torque_slope,
        torque_rate=slopes.torque_rate,
        inertia_slope=_slope(turned),
        inertia_rate=_norm(turned_now),
        ratio_slope=slope_spread(inertias - carried),
        ratio_rate=spread(inertias_now - carried_now),
        coriolis_slope=_slope(own),
        coriolis_rate=_norm(own_now),
        drag_slope=drag,
        drag_rate=drag_now,
        inertia=inertia,
        torque_gradient=np.abs(slopes.gradient),
    )


def position_gradient(regressor: TorqueRegressor, q: Array, v: Array, a: Array) -> Array:
    """Differentiate the inertial columns of the motion's torque by position, (S, i, j, l)."""
    count, n = q.shape
    shifts = _STEP * np.concatenate([np.eye(n), -np.eye(n)])
    shifted = (q[:, None] + shifts).reshape(-1, n)
    v, a = np.repeat(v, 2 * n, axis=0), np.repeat(a, 2 * n, axis=0)
    values = regressor.evaluate(shifted, v, a).reshape(count, 2, n, n, -1)[..., : INERTIAL * n]
    result: Array = ((values[:, 0] - values[:, 1]) / (2.0 * _STEP)).transpose(0, 2, 1, 3)
    return result


def _norm(matrices: Array) -> Array:
    """Compute the largest singular values of matrices (..., n, n)."""
    return np.asarray(np.linalg.norm(matrices, ord=2, axis=(-2, -1)), dtype=np.float64)


def _slope(matrices: Array) -> Array:
    """Bound the norm of ``sum_x xi_x X_x`` over ``|xi| <= 1`` by that of ``(sum_x X_x X_x^T)^1/2``, X (S, x, n, n)."""
    return np.sqrt(largest_eigenvalue(np.einsum("...xab,...xcb->...ac", matrices, matrices, optimize=True)))


def _combine(weights: Array, matrices: Array) -> Array:
    """Compute ``sum_l w_kl X_l``, (S, K, ...), of X (S, l, ...) with the first l of weights (S or 1, K, L)."""
    count, parameters, *shape = matrices.shape
    flat = matrices.reshape(count, parameters, -1)
    return (weights[..., :parameters] @ flat).reshape(count, weights.shape[1], *shape)


def _along(directions: Array, matrices: Array) -> Array:
    """Compute ``sum_j d_xj X_lj``, (S, l, x, n, n), of X (S, l, j, n, n) with directions (S, x, j)."""
    count, parameters, joints, *shape = matrices.shape
    flat = matrices.reshape(count, parameters, joints, -1)
    return (directions[:, None] @ flat).reshape(count, parameters, directions.shape[1], *shape)


def spread_norm(matrices: Array, radius: Array, leading: int) -> Array:
    """Bound the norm of ``sum_x sum_l xi_x d_l X_lx`` over ``|xi| <= 1`` and ``|d_l| <= radius_l``.

    With ``L_l = sum_x X_lx X_lx^T`` and R_l likewise from the right, it is at most ``(|sum_l radius_l L_l^1/2| |sum_l
    radius_l R_l^1/2|)^1/2``. That is evaluated for the parameters with the largest effect, at each sample by itself, so
    that the bound does not depend on the others; for the next ones the cheaper ``(sum_l radius_l w_l |sum_l radius_l
    L_l / w_l|)^1/2``, which holds for any weights w, and for the others ``sum_l radius_l (tr L_l)^1/2``.

    Args:
        matrices: X, (S, l, x, n, n).
        radius: (L,), of the l parameters and maybe more.
        leading: Number of parameters with the largest effect.
    """
    radius = radius[: matrices.shape[1]]
    size = np.sqrt(np.einsum("slxab,slxab->sl", matrices, matrices))
    order, samples = np.argsort(-radius * size, axis=1), np.arange(len(size))[:, None]
    first, second, rest = np.split(order, [leading, leading + _IMPORTANT], axis=1)
    # As (S, l, a, x b) or (S, l, b, x a), so that a product sums over x.
    some = matrices[samples, first]
    sides = (some.transpose(0, 1, *axes).reshape(*some.shape[:2], some.shape[3], -1) for axes in ((3, 2, 4), (4, 2, 3)))
    roots = (square_root(x @ np.swapaxes(x, -1, -2)) for x in sides)
    largest = [largest_eigenvalue(np.einsum("slab,sl->sab", root, radius[first])) for root in roots]
    own, weights = radius[second], np.maximum(size[samples, second], 1e-300)
    scaled = np.sqrt(own / weights)[..., None, None, None] * matrices[samples, second]
    scaled = scaled.transpose(0, 3, 1, 2, 4).reshape(len(scaled), scaled.shape[3], -1)
    products = scaled @ np.swapaxes(scaled, 1, 2)
    middle = np.sqrt((weights * own).sum(axis=1) * largest_eigenvalue(products))
    others = (size[samples, rest] * radius[rest]).sum(axis=1)
    bound: Array = np.sqrt(largest[0] * largest[1]) + middle + others
    return bound
