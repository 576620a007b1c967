"""Excitation criteria: functions of the torque regressor at the samples of a trajectory, with their gradients.

All criteria are minimised. They use the regressor ``W`` of the whole arm at N evenly spread samples, with the columns
of ``theta``, (N, n, 14 n), and for the identification of a payload its ten columns after them, (N, n, 14 n + 10). A
sample stands for the momentum windows around it: the row of a window of length h, divided by h, is the mean of ``W``
over it, so the information of the trajectory is ``duration / (N h)`` times the sum over the samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.excitation.settings import INERTIAL_ONLY, ExcitationSettings
from sysid_ros.core.identifiability.settings import AnalysisSettings
from sysid_ros.core.identifiability.structure import analyze_structure
from sysid_ros.core.identifiability.tree_readers import tree_from_model
from sysid_ros.core.model.robot import FRICTION_NAMES, EffortMeaning, RobotModel, parameter_names

Array = NDArray[np.float64]

PAYLOAD = 10
_TORQUE_SMOOTHING = 0.1
"""``|tau|`` in the torque error is replaced by ``sqrt(tau^2 + s^2)`` [Nm]."""
SMOOTH, SHARP = 8.0, 32.0
"""Powers of the Schatten norms that bound a condition number: of a first search, and for the last per cent."""
_FLOOR = 1e-9
"""Added to the diagonal of scaled information, so that a motionless start has a finite value."""


@dataclass(frozen=True)
class ErrorModel:
    """Uncertainty of robot, payload and torque sensor for the criteria.

    Attributes:
        theta: Nominal parameters, one per column of the regressor.
        radius: Radii of their boxes, one per column.
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

    A link-side sensor measures neither friction nor armature.
    """
    radius = np.concatenate([arm_radius, payload_radius])
    if robot.sensors.effort_meaning is EffortMeaning.LINK_SIDE:
        radius[10 * robot.n : 14 * robot.n] = 0.0
    return radius


class BoundsCriterion:
    """Sum of the logarithms of the widths the bounds can be expected to have, relative to those of the prior box.

    All parameters are estimated together, each row with its torque error E and each parameter with its radius as
    standard deviation: ``M = W^T diag(E)^-2 W + diag(radius)^-2``. The width of a target ``c . theta`` is taken as
    ``sqrt(c . M^-1 c)``: of the payload's ten parameters, where those of the robot are shared by all rows, as in the
    bounds; or of the base parameters of the arm. It ranks plans as the guaranteed widths of a linear program do (see
    docs/theory/certificates.md).

    Args:
        errors: Uncertainty.
        collected: Gram matrix of the windows collected so far, of the payload (10, 10) or the base parameters (nb, nb).
        base: Base parameters as the target; None for the payload.
    """

    def __init__(self, errors: ErrorModel, collected: Array | None = None, base: BaseParameters | None = None):
        self._errors = errors
        if base is None:
            radius = np.concatenate([errors.radius[:-PAYLOAD], errors.payload_scale])
            wanted = np.eye(radius.size)[-PAYLOAD:]
        else:
            radius, wanted = errors.radius, base.matrix
        self._open = np.flatnonzero(radius > 0.0)
        self._scale = radius[self._open]
        combinations = wanted[:, self._open] * self._scale
        sizes = np.linalg.norm(combinations, axis=1)
        is_open = sizes > 0.0  # a combination of parameters that are known has no width
        self._wanted = combinations[is_open] / sizes[is_open, None]  # relative to the prior's deviation, (w, K)
        self._prior = np.eye(self._open.size)
        if collected is not None:
            self._prior += combinations.T @ collected @ combinations / errors.row_error**2

    def evaluate(self, regressor: Array) -> tuple[float, Array]:
        """Evaluate the criterion and its derivative at a regressor (N, n, columns), which has the same shape."""
        errors, weight = self._errors, self._errors.weight
        torque, sigma, rows = self._rows(regressor)
        flat = rows.reshape(-1, rows.shape[-1])
        columns = np.linalg.solve(self._prior + weight * (flat.T @ flat), self._wanted.T)  # (K, w)
        variance = (self._wanted.T * columns).sum(axis=0)
        value = 0.5 * float(np.log(variance).sum())
        d_information = -0.5 * (columns / variance) @ columns.T
        d_rows = (2.0 * weight * flat @ d_information).reshape(rows.shape)
        gradient = np.zeros_like(regressor)
        gradient[..., self._open] = d_rows * self._scale / sigma
        d_sigma = -(d_rows * rows).sum(axis=-1) / sigma[..., 0]
        d_torque = d_sigma * errors.relative * torque / np.sqrt(torque**2 + _TORQUE_SMOOTHING**2)
        return value, gradient + d_torque[..., None] * errors.theta

    def add(self, regressor: Array, weight: float) -> None:
        """Add the regressor (N, n, columns) of a motion made before; a sample of it counts ``weight``."""
        rows = self._rows(regressor)[-1].reshape(-1, self._scale.size)
        self._prior = self._prior + weight * (rows.T @ rows)

    def _rows(self, regressor: Array) -> tuple[Array, Array, Array]:
        """Compute torques (N, n), their errors (N, n, 1) [Nm] and the rows in units of both (N, n, K)."""
        torque = regressor @ self._errors.theta
        sigma = self._errors.torque_error(torque)[..., None]
        return torque, sigma, regressor[..., self._open] * self._scale / sigma


@dataclass(frozen=True)
class BaseParameters:
    """Base parameters of a whole arm, the payload counted to the last body.

    Attributes:
        names: Parameters they are named after, nb of them.
        columns: Their columns in the regressor, (nb,); as the map has the identity there, these are ``Y_b``.
        matrix: Base parameters are ``matrix @ theta``, (nb, 14 n); zero for parameters outside the measured torque.
    """

    names: tuple[str, ...]
    columns: NDArray[np.intp]
    matrix: Array

    @classmethod
    def of(cls, robot: RobotModel, joint_parameters: Sequence[str] | None = None) -> BaseParameters:
        """Find the base parameters of an arm.

        Args:
            robot: The arm.
            joint_parameters: Which of F_c, F_v, I_a, beta count as unknown; by default all in the measured torque, none
                on the link side.

        Source: EXCITE (4), (5), with the choice of RPNA.
        """
        if joint_parameters is None:
            is_seen = robot.sensors.effort_meaning is EffortMeaning.MOTOR_SIDE
            joint_parameters = FRICTION_NAMES if is_seen else ()
        settings = AnalysisSettings(joint_parameters=tuple(joint_parameters))
        structure = analyze_structure(tree_from_model(robot.pin_model), settings)
        where = np.array(structure.columns(parameter_names(robot)))
        matrix = np.zeros((structure.count, robot.theta_nominal.size))
        matrix[:, where] = structure.matrix
        return cls(structure.base_names, where[list(structure.chosen)], matrix)

    @classmethod
    def of_settings(cls, robot: RobotModel, settings: ExcitationSettings) -> BaseParameters:
        """Find the base parameters that the settings count."""
        return cls.of(robot, () if settings.parameters == INERTIAL_ONLY else None)


class InformationCriterion:
    """A function of the information about some parameters alone, their Gram matrix G.

    Args:
        columns: Columns of these k parameters in the regressor.
        scale: Unit of each, (k,).
        weight: Weight of a sample.
        collected: Gram matrix of the data collected so far, (k, k).
        kind: "d_optimal": -log det of G with scaled columns; "condition_number": log of that number of the rows
            (SAFE-ID (30)).

    Attributes:
        power: Of the Schatten norms whose ratio is a smooth bound of the condition number, above its logarithm by at
            most log(k) / power.
    """

    def __init__(
        self, columns: slice | NDArray[np.intp], scale: Array, weight: float, collected: Array | None, kind: str
    ):
        self._is_scaled, self.power = kind == "d_optimal", SMOOTH
        self._scale = scale if self._is_scaled else np.ones_like(scale)
        self._columns, self._weight = columns, weight
        given = np.zeros((scale.size, scale.size)) if collected is None else collected
        self._collected = self._scale[:, None] * given * self._scale

    def evaluate(self, regressor: Array) -> tuple[float, Array]:
        """See :meth:`BoundsCriterion.evaluate`."""
        rows = self._rows(regressor)
        flat = rows.reshape(-1, self._scale.size)
        information = self._collected + self._weight * (flat.T @ flat)
        floor = _FLOOR * max(float(np.trace(information)), 1e-300)
        information += floor * np.eye(self._scale.size)
        value, slope = _d_optimal(information) if self._is_scaled else _norm_ratio(information, self.power)
        gradient = np.zeros_like(regressor)
        gradient[..., self._columns] = (2.0 * self._weight * flat @ slope).reshape(rows.shape) * self._scale
        return value, gradient

    def add(self, regressor: Array, weight: float) -> None:
        """See :meth:`BoundsCriterion.add`."""
        flat = self._rows(regressor).reshape(-1, self._scale.size)
        self._collected = self._collected + weight * (flat.T @ flat)

    def _rows(self, regressor: Array) -> Array:
        return regressor[..., self._columns] * self._scale


def build_criterion(
    kind: str, errors: ErrorModel, collected: Array | None = None, base: BaseParameters | None = None
) -> BoundsCriterion | InformationCriterion:
    """Build the criterion of a payload or of a whole arm.

    Args:
        kind: A name of :data:`sysid_ros.core.excitation.settings.CRITERIA`.
        errors: Uncertainty; of a whole arm with the payload counted to the last body.
        collected: Gram matrix of the windows collected so far, of the payload (10, 10) or the base parameters (nb, nb).
        base: Base parameters of a whole arm; None for a payload.
    """
    if kind == "bounds":
        return BoundsCriterion(errors, collected, base)
    if base is None:
        columns: slice | NDArray[np.intp] = slice(errors.theta.size - PAYLOAD, None)
        scale = errors.payload_scale
    else:
        columns, scale = base.columns, np.ones(base.columns.size)
    return InformationCriterion(columns, scale, errors.weight, collected, kind)


def _d_optimal(information: Array) -> tuple[float, Array]:
    return -float(np.linalg.slogdet(information)[1]), np.asarray(-np.linalg.inv(information), dtype=np.float64)


def _norm_ratio(information: Array, power: float) -> tuple[float, Array]:
    """Compute half the log of ``|H|_p |H^-1|_p``, with the Schatten norms of a power p."""
    values, vectors = np.linalg.eigh(information)
    logs = np.log(values)
    large, small = np.exp(power * (logs - logs[-1])), np.exp(power * (logs[0] - logs))
    ratio = logs[-1] - logs[0] + (np.log(large.sum()) + np.log(small.sum())) / power
    slope = (vectors * (0.5 * (large / large.sum() - small / small.sum()) / values)) @ vectors.T
    return 0.5 * float(ratio), slope
