"""Excitation criteria: functions of the torque regressor at the samples of a trajectory, with their gradients.

All criteria are to be minimised. They see the regressor ``W`` of the whole arm at N evenly spread samples,
(N, n, 14 n + 10); its last ten columns belong to the payload. A sample stands for the momentum windows around it: the
row of a window of length h, divided by h, is the mean of ``W`` over it, so the information of the trajectory is
``duration / (N h)`` times the sum over the samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.identifiability.data import WeakestDirections
from sysid_ros.core.model.robot import EffortMeaning, RobotModel

Array = NDArray[np.float64]

PAYLOAD = 10
_TORQUE_SMOOTHING = 0.1
"""``|tau|`` in the torque error is replaced by ``sqrt(tau^2 + s^2)`` [Nm]."""
_FEWEST_DIRECTIONS = 3
"""Least number of combinations that the cost of the weakest directions looks at."""
_FLOOR = 1e-9
"""Added to the diagonal of scaled information, so that a motionless start has a finite value."""


class Criterion(Protocol):
    """A number to be minimised and its gradient with respect to the regressor."""

    def evaluate(self, regressor: Array) -> tuple[float, Array]:
        """Evaluate the criterion and its derivative (N, n, 14 n + 10) at a regressor of the same shape."""


@dataclass(frozen=True)
class ErrorModel:
    """Uncertainty of robot, payload and torque sensor for the criteria.

    Attributes:
        theta: Nominal parameters of arm and payload, (14 n + 10,).
        radius: Half widths of their boxes, (14 n + 10,).
        relative: Relative torque error, (n,) [-].
        absolute: Absolute torque error, (n,) [Nm].
        weight: Momentum windows a sample stands for, ``duration / (N h)`` [-].
        row_error: Error of a row of data collected earlier [Nm].
    """

    theta: Array
    radius: Array
    relative: Array
    absolute: Array
    weight: float
    row_error: float

    @property
    def payload_scale(self) -> Array:
        """Radii of the payload's box, (10,); a small number where a parameter is known."""
        scale = self.radius[-PAYLOAD:]
        return np.asarray(np.maximum(scale, 1e-6 * max(scale.max(), 1e-6)), dtype=np.float64)

    def torque_error(self, torque: Array) -> Array:
        """Compute the largest torque error at torques (..., n) [Nm]."""
        return self.relative * np.sqrt(torque**2 + _TORQUE_SMOOTHING**2) + self.absolute


def measured_radius(robot: RobotModel, arm_radius: Array, payload_radius: Array) -> Array:
    """Return the radii (14 n + 10,) of the parameters that enter the measured torque.

    A link-side sensor sees neither friction nor armature; there they are left out.
    """
    radius = np.concatenate([arm_radius, payload_radius])
    if robot.sensors.effort_meaning is EffortMeaning.LINK_SIDE:
        radius[10 * robot.n : 14 * robot.n] = 0.0
    return radius


class BoundsCriterion:
    """Sum of the logarithms of the widths the bounds can be expected to have, relative to those of the prior box.

    Payload and robot parameters are estimated together from ``Y theta_e + B delta_r = u``, each row with its torque
    error E and each parameter with its radius as standard deviation:
    ``M = [Y B]^T diag(E)^-2 [Y B] + diag(radius)^-2``. The width of payload parameter i is taken as
    ``sqrt((M^-1)_ii)``; the robot parameters are shared by all rows, as in the bounds. It ranks plans as the guaranteed
    widths of a linear program do (see docs/theory/certificates.md).

    Args:
        errors: Uncertainty.
        collected: Gram matrix of the windows collected so far, (10, 10).
    """

    def __init__(self, errors: ErrorModel, collected: Array | None = None):
        self._errors = errors
        known = errors.radius[:-PAYLOAD]
        self._open = np.concatenate([np.flatnonzero(known > 0.0), known.size + np.arange(PAYLOAD)])
        self._scale = np.concatenate([known[known > 0.0], errors.payload_scale])
        self._prior = np.eye(self._open.size)
        if collected is not None:
            scale = errors.payload_scale
            self._prior[-PAYLOAD:, -PAYLOAD:] += scale[:, None] * collected * scale / errors.row_error**2

    def evaluate(self, regressor: Array) -> tuple[float, Array]:
        """Evaluate the criterion; see :class:`Criterion`."""
        errors, weight = self._errors, self._errors.weight
        torque = regressor @ errors.theta
        sigma = errors.torque_error(torque)[..., None]
        rows = regressor[..., self._open] * self._scale / sigma  # (N, n, K)
        flat = rows.reshape(-1, rows.shape[-1])
        inverse = np.linalg.inv(self._prior + weight * (flat.T @ flat))
        variance = np.diag(inverse)[-PAYLOAD:]
        value = 0.5 * float(np.log(variance).sum())
        columns = inverse[:, -PAYLOAD:]
        d_information = -0.5 * (columns / variance) @ columns.T
        d_rows = (2.0 * weight * flat @ d_information).reshape(rows.shape)
        gradient = np.zeros_like(regressor)
        gradient[..., self._open] = d_rows * self._scale / sigma
        d_sigma = -(d_rows * rows).sum(axis=-1) / sigma[..., 0]
        d_torque = d_sigma * errors.relative * torque / np.sqrt(torque**2 + _TORQUE_SMOOTHING**2)
        return value, gradient + d_torque[..., None] * errors.theta


class InformationCriterion:
    """A function of the information about the payload alone, the Gram matrix G of the windows (as mean torques).

    Args:
        errors: Uncertainty; only its scales and weights are used.
        collected: Gram matrix of the windows collected so far, (10, 10).
        kind: "d_optimal": -log det of G with columns scaled by the payload's box; "a_optimal": log of the trace of its
            inverse, scaled alike; "condition_number": log of the condition number of the stacked ``W_e`` (SAFE-ID
            (30)).
    """

    def __init__(self, errors: ErrorModel, collected: Array | None, kind: str):
        self._functions = {"d_optimal": _d_optimal, "a_optimal": _a_optimal, "condition_number": _condition}
        self._function = self._functions[kind]
        self._scale = np.ones(PAYLOAD) if kind == "condition_number" else errors.payload_scale
        self._weight = errors.weight
        given = np.zeros((PAYLOAD, PAYLOAD)) if collected is None else collected
        self._collected = self._scale[:, None] * given * self._scale

    def evaluate(self, regressor: Array) -> tuple[float, Array]:
        """Evaluate the criterion; see :class:`Criterion`."""
        rows = regressor[..., -PAYLOAD:] * self._scale
        flat = rows.reshape(-1, PAYLOAD)
        information = self._collected + self._weight * (flat.T @ flat)
        floor = _FLOOR * max(float(np.trace(information)), 1e-300)
        value, slope = self._function(information + floor * np.eye(PAYLOAD))
        gradient = np.zeros_like(regressor)
        gradient[..., -PAYLOAD:] = (2.0 * self._weight * flat @ slope).reshape(rows.shape) * self._scale
        return value, gradient


def build_criterion(kind: str, errors: ErrorModel, collected: Array | None = None) -> Criterion:
    """Build the criterion of a name of :data:`sysid_ros.core.excitation.settings.CRITERIA`."""
    if kind == "weakest_directions":
        return _weakest_directions(errors, collected)
    return BoundsCriterion(errors, collected) if kind == "bounds" else InformationCriterion(errors, collected, kind)


def _weakest_directions(errors: ErrorModel, collected: Array | None) -> WeakestDirections:
    """Select the payload combinations that the data determine less well than the box, or the three weakest."""
    scale = errors.payload_scale
    given = np.zeros((PAYLOAD, PAYLOAD)) if collected is None else collected
    values, vectors = np.linalg.eigh(scale[:, None] * given * scale / errors.row_error**2)
    count = max(int(np.count_nonzero(values < 1.0)), _FEWEST_DIRECTIONS)
    deviation = np.full(errors.relative.shape, errors.row_error)
    known = np.diag(np.maximum(values[:count], 0.0))
    return WeakestDirections(vectors[:, :count].T * scale, known, np.arange(-PAYLOAD, 0), deviation, errors.weight)


def _d_optimal(information: Array) -> tuple[float, Array]:
    return -float(np.linalg.slogdet(information)[1]), np.asarray(-np.linalg.inv(information), dtype=np.float64)


def _a_optimal(information: Array) -> tuple[float, Array]:
    inverse = np.linalg.inv(information)
    trace = float(np.trace(inverse))
    return float(np.log(trace)), -inverse @ inverse / trace


def _condition(information: Array) -> tuple[float, Array]:
    """Compute half the log of the eigenvalues' ratio: the log of the condition number of the rows."""
    values, vectors = np.linalg.eigh(information)
    smallest, largest = vectors[:, 0], vectors[:, -1]
    slope = np.outer(largest, largest) / values[-1] - np.outer(smallest, smallest) / values[0]
    return 0.5 * float(np.log(values[-1] / values[0])), 0.5 * slope
