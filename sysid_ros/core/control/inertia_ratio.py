"""How much the true inertia can differ from the nominal one, in any direction.

For all parameters in the boxes the generalised eigenvalues of (H, M) lie in an interval that follows from the
parameters one by one: with ``W_l = M^-1/2 (dH/dtheta_l) M^-1/2 = W_l^+ - W_l^-``, split into its positive and negative
part, a deviation of parameter l between d <= 0 and D >= 0 adds at most ``D W_l^+ - d W_l^-``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.control.model import ControlModel, PassiveDynamics
from sysid_ros.core.model.robot import INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.regressors.slotine_li import SlotineLiRegressor

Array = NDArray[np.float64]

_STEP = 0.02
"""Step of the central differences in position [rad]."""


@dataclass(frozen=True)
class InertiaRatio:
    """Range of the generalised eigenvalues of (H, M) over samples of a motion.

    Attributes:
        lower: Smallest one at any sample.
        upper: Largest one at any sample.
        lower_slope: How fast ``lower`` may change with each joint, (n,) [1/rad].
        upper_slope: How fast ``upper`` may change, (n,) [1/rad].
    """

    lower: float
    upper: float
    lower_slope: Array
    upper_slope: Array

    def near(self, position: Array) -> tuple[float, float]:
        """The range for positions within ``position`` (n,) [rad] of the samples."""
        return self.lower - float(self.lower_slope @ position), self.upper + float(self.upper_slope @ position)


def compute_inertia_ratio(robot: RobotModel, model: ControlModel, q: Array, probes: Array) -> InertiaRatio:
    """Bounds the ratio at positions (S, n); its slopes are differences at the positions ``probes`` (P, n)."""
    n = robot.n
    steps = _STEP * np.concatenate([np.eye(n), -np.eye(n)])
    near = (probes[:, None] + steps).reshape(-1, n)
    lower, upper = inertia_ratios(robot, model, np.concatenate([q, near]))
    slopes = []
    for values in (lower, upper):
        around = values[len(q) :].reshape(-1, 2, n)
        slopes.append(np.abs(around[:, 0] - around[:, 1]).max(axis=0) / (2.0 * _STEP))
    return InertiaRatio(float(lower[: len(q)].min()), float(upper[: len(q)].max()), *slopes)


def inertia_ratios(robot: RobotModel, model: ControlModel, q: Array) -> tuple[Array, Array]:
    """Smallest and largest ratio at positions (S, n), (S,) each.

    From below there are three bounds, of which the best counts: the boxes; that the last body and its payload together
    have no negative kinetic energy; and that the payload alone has none.
    """
    n = robot.n
    factor = np.linalg.inv(np.linalg.cholesky(PassiveDynamics(robot, model.total).inertia(q)))
    parts = congruence(factor, inertia_columns(robot, q))  # (S, l, n, n)
    positive = 0.5 * (magnitude(parts) + parts)
    negative = positive - parts

    def select(theta: Array) -> Array:
        return np.concatenate([theta[: INERTIAL * n], robot.friction(theta)[:, 2]])

    def loss(lower: Array, upper: Array, kept: NDArray[np.bool_]) -> Array:
        """Most that parameters between these deviations can take away, only the kept ones counting."""
        down, up = np.where(kept, lower, 0.0), np.where(kept, upper, 0.0)
        return np.tensordot(negative, up, (1, 0)) - np.tensordot(positive, down, (1, 0))

    lower, upper = (select(bound) for bound in model.deviation)
    gain = np.tensordot(positive, upper, (1, 0)) - np.tensordot(negative, lower, (1, 0))
    one, everything = np.eye(n), np.ones(lower.size, dtype=bool)
    highest = largest_eigenvalue(one + gain)

    last = robot.inertial_slice(n)
    others = everything.copy()
    others[last] = False
    body = np.tensordot(parts[:, last], model.total[last], (1, 0))
    losses = [loss(lower, upper, everything), body + loss(lower, upper, others)]
    if model.payload_box.lower[0] >= 0.0:
        payload = np.tensordot(parts[:, last], model.payload, (1, 0))
        arm = (select(bound - model.theta) for bound in (model.theta_box.lower, model.theta_box.upper))
        losses.append(payload + loss(*arm, everything))
    lowest = np.max([1.0 - largest_eigenvalue(one_loss) for one_loss in losses], axis=0)
    return lowest, highest


def congruence(factor: Array, columns: Array) -> Array:
    """``factor X_l factor^T`` of matrices (..., n, n, l), as (..., l, n, n)."""
    matrices = np.moveaxis(columns, -1, -3)
    return factor[..., None, :, :] @ matrices @ np.swapaxes(factor, -1, -2)[..., None, :, :]


def magnitude(matrices: Array) -> Array:
    """Matrix absolute values ``(X^2)^1/2`` of symmetric matrices (..., n, n)."""
    values, vectors = np.linalg.eigh(matrices)
    return (vectors * np.abs(values)[..., None, :]) @ np.swapaxes(vectors, -1, -2)


def largest_eigenvalue(matrices: Array) -> Array:
    """Largest eigenvalues of symmetric matrices (..., n, n)."""
    return np.linalg.eigvalsh(matrices)[..., -1]


def inertia_columns(robot: RobotModel, q: Array) -> Array:
    """The inertia by inertial parameter and armature, (S, n, n, 11 n)."""
    count, n = q.shape
    a = np.tile(np.concatenate([np.zeros((1, n)), np.eye(n)]), (count, 1))
    still = np.zeros_like(a)
    regressor = SlotineLiRegressor(robot, EffortMeaning.MOTOR_SIDE)
    values = regressor.evaluate(np.repeat(q, n + 1, axis=0), still, still, a).reshape(count, n + 1, n, -1)
    columns = np.zeros((count, n, n, (INERTIAL + 1) * n))
    columns[..., : INERTIAL * n] = (values[:, 1:] - values[:, :1])[..., : INERTIAL * n].transpose(0, 2, 1, 3)
    joints = np.arange(n)
    columns[:, joints, joints, INERTIAL * n + joints] = 1.0
    return columns
