"""Exact first derivatives of the inertial columns of the momentum regressors, from the regressors alone.

In each joint angle the regressors of an arm with revolute joints are trigonometric polynomials of degree two (``H`` is
quadratic in every rotation matrix, and so is its derivative), so the interpolation formula of M. Riesz gives their
derivative exactly from four shifted values. In the velocity ``W_m`` is linear, so unit velocities give its derivative,
and ``dc_i/dv_l = d2T/dq_i dv_l = dp_l/dq_i`` gives that of ``W_c``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Evaluate = Callable[[Array, Array], tuple[Array, Array]]

_SHIFTS = (2.0 * np.arange(1, 5) - 1.0) * np.pi / 4.0
_WEIGHTS = np.array([1.0, -1.0, 1.0, -1.0]) / (8.0 * np.sin(0.5 * _SHIFTS) ** 2)


@dataclass(frozen=True)
class RegressorDerivatives:
    """Both regressors and their derivatives at K points; the last axis is the joint the derivative is taken for.

    Attributes:
        momentum: ``W_m``, (K, n, p).
        force: ``W_c``, (K, n, p).
        momentum_q: ``d W_m / d q``, (K, n, p, n).
        momentum_v: ``d W_m / d v``, (K, n, p, n).
        force_q: ``d W_c / d q``, (K, n, p, n).
        force_v: ``d W_c / d v``, (K, n, p, n).
    """

    momentum: Array
    force: Array
    momentum_q: Array
    momentum_v: Array
    force_q: Array
    force_v: Array


def differentiate_regressors(evaluate: Evaluate, q: Array, v: Array) -> RegressorDerivatives:
    """Derivatives of the inertial columns of the momentum regressors at K points, exact up to rounding.

    Args:
        evaluate: Maps q (N, n) and v (N, n) to ``W_m`` and ``W_c``, each (N, n, p), without friction columns.
        q: Positions, (K, n) [rad].
        v: Velocities, (K, n) [rad/s].
    """
    count, n = q.shape
    units = np.eye(n)
    # One batch: the points, 4 n angle shifts, then n unit velocities, of K points each.
    angles = _SHIFTS[:, None, None, None] * units[:, None, :]
    shifted = (q + angles).reshape(-1, n)
    velocities = np.concatenate([np.tile(v, (4 * n + 1, 1)), units.repeat(count, axis=0)])
    momentum, force = evaluate(np.concatenate([q, shifted, np.tile(q, (n, 1))]), velocities)
    first, last = count, (4 * n + 1) * count

    def by_angle(regressor: Array) -> Array:
        turned = regressor[first:last].reshape(4, -1)
        return np.moveaxis((_WEIGHTS @ turned).reshape(n, count, n, -1), 0, -1)

    momentum_q = by_angle(momentum)
    return RegressorDerivatives(
        momentum=momentum[:first],
        force=force[:first],
        momentum_q=momentum_q,
        momentum_v=np.moveaxis(momentum[last:].reshape(n, count, n, -1), 0, -1),
        force_q=by_angle(force),
        force_v=momentum_q.transpose(0, 3, 2, 1),
    )
