"""Norms of the nominal model and of its uncertainty in the error dynamics, at samples of a motion (step 1).

All of it is linear in the parameters. With ``C(q, x)``, the Christoffel matrix at velocity x,
``dH/dq . x = C(q, x) + C(q, x)^T`` and ``C(q, x) y = C(q, y) x``. Everything is measured relative to the nominal
inertia M: velocities x by ``|x| = (x^T M x)^1/2``, torques h by ``|h| = (h^T M^-1 h)^1/2``, and a matrix that makes
torques of velocities by its norm, the largest singular value of ``M^-1/2 X M^-1/2``. A slope, ``sum_x xi_x X_x`` for
any ``|xi| <= 1``, is at most the norm of ``(sum_x X_x X_x^T)^1/2``.

Over the payload's set, norms are largest at its vertices, as they are convex. Unknown parts, ``sum_l d_l X_l`` with
``|d_l| <= r_l``, add at most ``(sum_l r_l w_l |sum_l r_l / w_l X_l X_l^T|)^1/2`` for any weights w: with a unit vector
u, ``sum_l r_l |X_l^T u|`` is at most that by the Cauchy-Schwarz inequality. The kernel (``terms.hpp``) takes the roots
of the sums of squares of X_l for w.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.model.joint_tree import JointTree
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.tracking_bound.uncertainty import InertialUncertainty

Array = NDArray[np.float64]

OF_INERTIA = tuple(f"{name}_{kind}" for name in ("inertia", "ratio", "coriolis", "drag") for kind in ("slope", "rate"))
"""Terms in the order of the kernel."""


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
class MotionSlopes:
    """Derivatives of the torque of a motion by position, at S nodes; see :class:`ModelTerms` for the first three.

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
    robot: RobotModel, uncertainty: InertialUncertainty, states: TermStates, along: Array
) -> MotionSlopes:
    """Differentiate the torque of a motion and its uncertainty by position.

    Args:
        robot: The arm, of at most 8 joints.
        uncertainty: Deviation of the true inertial parameters from the nominal ones.
        states: Where to evaluate them.
        along: Velocity with which the position changes, (S, n) [rad/s].
    """
    return _evaluate(robot, uncertainty, states, along, False)[1]


def compute_model_terms(robot: RobotModel, uncertainty: InertialUncertainty, states: TermStates) -> ModelTerms:
    """Evaluate the terms."""
    terms, slopes, inertia = _evaluate(robot, uncertainty, states, states.v, True)
    return ModelTerms(
        model_slope=slopes.model_slope,
        torque_slope=slopes.torque_slope,
        torque_rate=slopes.torque_rate,
        **dict(zip(OF_INERTIA, terms.T, strict=True)),
        inertia=inertia,
        torque_gradient=np.abs(slopes.gradient),
    )


def _evaluate(
    robot: RobotModel, uncertainty: InertialUncertainty, states: TermStates, along: Array, with_inertia: bool
) -> tuple[Array, MotionSlopes, Array]:
    """Evaluate the terms with the inertia, (S, 8) or nothing, the slopes of the torque, and the inertia."""
    count, n = states.q.shape
    vertices, first = uncertainty.vertices, uncertainty.last.start
    terms, slopes = np.empty((count if with_inertia else 0, 8)), np.empty((count, 3))
    inertia, gradient = np.empty((count, n, n)), np.empty((count, n, n))
    JointTree.of(robot).compiled.model_terms(
        np.stack([uncertainty.nominal, uncertainty.center, uncertainty.spread]),
        (first + vertices.used).tolist(), vertices.weights, np.stack([states.q, states.v, states.a]),
        np.ascontiguousarray(along), terms, slopes, inertia, gradient,
    )  # fmt: skip
    return terms, MotionSlopes(slopes[:, 0], slopes[:, 1], slopes[:, 2], gradient), inertia
