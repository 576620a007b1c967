"""Data-driven identifiability: which base parameters and combinations of them the data determine, and how well.

Everything is relative to the prior. With the prior covariance ``C = P diag(scale)^2 P^T`` of the base parameters and
the information ``G`` of the data, the square roots of the eigenvalues of ``L^T G L``, ``C = L L^T``, are the ratios of
prior to data deviation of independent combinations; they depend neither on units nor on the choice of base parameters.

Information is the Gram matrix of regressors with rows in standard deviations of their error. A row is the mean torque
of one joint over a window of momentum, so information of recordings and of planned motions is in the same unit: one
over the square of the parameters' units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.identifiability.settings import WINDOW
from sysid_ros.core.identifiability.structure import Structure
from sysid_ros.core.model.robot import FRICTION_NAMES, RobotModel, parameter_names
from sysid_ros.core.regressors.momentum import MomentumRegressor
from sysid_ros.core.regressors.torque import TorqueRegressor

Array = NDArray[np.float64]

_SMALLEST_ERROR = 1e-6
"""Smallest error of a torque sensor: one without any would outweigh all others [Nm]."""
DETERMINED = 1.0
"""A combination is determined if its prior deviation is at least this many times that from the data."""
_SAME_MECHANISM = 1e-6
"""Largest relative part of the information that the base parameters may leave unexplained."""


def gram(regressor: ArrayLike, deviation: ArrayLike) -> Array:
    """Compute the information (P, P) of rows (..., P) whose errors have a standard deviation (...) [unit of the rows].

    Raises:
        ParameterOutOfRange: A deviation is not positive, or something is not finite.
    """
    rows, sigma = np.asarray(regressor, dtype=float), np.asarray(deviation, dtype=float)
    if not np.all(np.isfinite(rows)):
        raise ParameterOutOfRange("regressor", "not finite", "finite numbers")
    if not np.all(np.isfinite(sigma)) or np.any(sigma <= 0.0):
        raise ParameterOutOfRange("standard deviation of the rows", sigma.min(initial=np.inf), "positive, finite")
    scaled = (rows / sigma[..., None]).reshape(-1, rows.shape[-1])
    information: Array = scaled.T @ scaled
    return information


def felt_joint_parameters(robot: RobotModel) -> tuple[str, ...]:
    """List the friction parameters in the regressors of an arm, which depend on the side of its sensor."""
    meaning = robot.sensors.effort_meaning
    felt = (meaning.has_friction, meaning.has_friction, meaning.has_armature, meaning.has_friction)
    return tuple(name for name, is_felt in zip(FRICTION_NAMES, felt, strict=True) if is_felt)


class ArmInformation:
    """Information of recorded or planned motions of an arm on the unknown parameters of an analysis.

    Args:
        robot: The arm.
        structure: Result of the structural analysis; its unknown parameters are entries of the arm's ``theta`` by name,
            those of a payload the last body's.
        window: Length of a momentum window [s].

    Raises:
        ParameterOutOfRange: A parameter of the analysis does not belong to the arm (a rotor's does not), or the window
            is not positive.
    """

    def __init__(self, robot: RobotModel, structure: Structure, window: float = WINDOW):
        if not window > 0.0:
            raise ParameterOutOfRange("window [s]", window, "positive")
        self._robot, self.window = robot, window
        self.columns = structure.columns(parameter_names(robot))
        known = np.ones(robot.theta_nominal.size, dtype=bool)
        known[self.columns] = False
        # Parameters that the sensor does not measure add no error either.
        self._nuisance = np.where(known, robot.theta_box.radius, 0.0)
        felt = felt_joint_parameters(robot)
        for entry, name in enumerate(FRICTION_NAMES):
            if name not in felt:
                self._nuisance[10 * robot.n + entry :: len(FRICTION_NAMES)] = 0.0
        self._momentum, self._torque = MomentumRegressor(robot), TorqueRegressor(robot)

    def of_recording(self, seconds: ArrayLike, q: ArrayLike, v: ArrayLike) -> Array:
        """Compute the information of a recording, window by window, without accelerations.

        Args:
            seconds: Times of the samples, (N,) [s], rising; a gap longer than a window ends a window.
            q: Positions, (N, n) [rad].
            v: Velocities, (N, n) [rad/s].

        Returns:
            Information (P, P); zero without a whole window.

        Source: SAFE-ID (13), each row divided by the length of its window.
        """
        times, q, v = (np.asarray(part, dtype=float) for part in (seconds, q, v))
        total = np.zeros((len(self.columns),) * 2)
        for start, stop in self._windows(times):
            part = slice(start, stop + 1)
            steps = np.diff(times[part])
            weights = 0.5 * (np.append(steps, 0.0) + np.append(0.0, steps))
            ends = self._momentum.momentum(q[[start, stop]], v[[start, stop]])
            length = times[stop] - times[start]
            rows = (ends[1] - ends[0] - self._momentum.integrate(q[part], v[part], weights)) / length
            total += gram(rows[:, self.columns], self._deviation(rows))
        return total

    def of_motion(self, q: ArrayLike, v: ArrayLike, a: ArrayLike, duration: float) -> Array:
        """Compute the information (P, P) of a planned motion from evenly spread samples.

        Args:
            q: Positions, (N, n) [rad].
            v: Velocities, (N, n) [rad/s].
            a: Accelerations, (N, n) [rad/s^2].
            duration: Length of the motion [s].

        Returns:
            Information of its windows; a sample stands for ``duration / (N window)`` of them.
        """
        rows = self._torque.evaluate(q, v, a)
        return duration / (len(rows) * self.window) * gram(rows[..., self.columns], self._deviation(rows))

    def row_deviation(self, q: ArrayLike, v: ArrayLike, a: ArrayLike) -> Array:
        """Compute the standard deviation of mean torques, (N, n) [Nm], around states (N, n)."""
        return self._deviation(self._torque.evaluate(q, v, a))

    def _deviation(self, rows: Array) -> Array:
        """Compute the errors of mean torques, (..., n) [Nm]: of the sensor, and of uncertain known parameters."""
        sensors = self._robot.sensors
        torque = np.abs(rows @ self._robot.theta_nominal)
        error = sensors.effort_relative_error * torque + np.maximum(sensors.lasting_error, _SMALLEST_ERROR)
        total: Array = np.hypot(error, np.linalg.norm(rows * self._nuisance, axis=-1))
        return total

    def _windows(self, times: Array) -> Sequence[tuple[int, int]]:
        found, start = [], 0
        for k in range(1, len(times)):
            if not times[k] > times[k - 1] or times[k] - times[k - 1] > self.window:
                start = k
            elif times[k] - times[start] >= self.window * (1.0 - 1e-9):
                found.append((start, k))
                start = k
        return found


@dataclass(frozen=True)
class DataAnalysis:
    """Analysis of data on nb base parameters; arrays are read-only.

    Attributes:
        structure: Result of the structural analysis.
        singular_values: Ratio of prior to data deviation of each combination, falling, (nb,) [-].
        directions: Changes of the base parameters along those combinations, one prior deviation long, (nb, nb), one in
            each row, [units of the base parameters].
        shares: Share of each base parameter in each combination, (nb, nb) [-], rows add up to one.
        prior_deviations: Standard deviations of the base parameters before the data, (nb,).
        deviations: Expected standard deviations from the data alone, (nb,); inf where the data contain no information.
        deviations_with_prior: Expected standard deviations from data and prior together, (nb,).
        lower: Guaranteed lower bounds of the base parameters, (nb,), where an estimator gave bounds; otherwise None.
        upper: Guaranteed upper bounds, (nb,), or None.
    """

    structure: Structure
    singular_values: Array
    directions: Array
    shares: Array
    prior_deviations: Array
    deviations: Array
    deviations_with_prior: Array
    lower: Array | None
    upper: Array | None

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    @property
    def determined(self) -> int:
        """Number of combinations the data determine."""
        return int(np.count_nonzero(self.singular_values >= DETERMINED))

    @property
    def condition_number(self) -> float:
        """Condition number of the regressor of the base parameters, in units of the prior [-]."""
        if not self.singular_values.size:
            return 1.0
        smallest = float(self.singular_values[-1])
        return float(self.singular_values[0]) / smallest if smallest > 0.0 else np.inf

    @property
    def is_determined(self) -> NDArray[np.bool_]:
        """Whether the data alone determine each base parameter better than the prior, (nb,)."""
        return self.deviations <= self.prior_deviations / DETERMINED

    def weakest(self, count: int) -> Array:
        """Return the ``count`` least determined directions, (count, nb), the weakest first."""
        return self.directions[::-1][:count]


def analyze_data(
    structure: Structure, information: ArrayLike, scale: ArrayLike, box: Box | None = None
) -> DataAnalysis:
    """Compare the information of data with the structural answer.

    Args:
        structure: Structural analysis of P unknown parameters.
        information: Gram matrix of the regressor's columns for these parameters, rows counted in standard deviations of
            their error, (P, P).
        scale: Prior standard deviation of each parameter, (P,), for instance the radii of a prior box.
        box: Guaranteed bounds of the parameters (P,), from an estimator.

    Returns:
        The analysis.

    Raises:
        ParameterOutOfRange: Wrong shapes, a scale that is not positive, information of another mechanism.
    """
    size, chosen, matrix = len(structure.names), list(structure.chosen), structure.matrix
    gathered, spread = np.asarray(information, dtype=float), np.asarray(scale, dtype=float)
    if gathered.shape != (size, size) or not np.all(np.isfinite(gathered)):
        raise ParameterOutOfRange("information", gathered.shape, f"finite, of shape ({size}, {size})")
    if spread.shape != (size,) or not np.all(np.isfinite(spread)) or np.any(spread <= 0.0):
        raise ParameterOutOfRange("scale", spread.tolist(), f"{size} positive numbers; leave out known parameters")
    if box is not None and box.lower.shape != (size,):
        raise ParameterOutOfRange("box", box.lower.shape, f"bounds of {size} parameters")
    base = 0.5 * (gathered + gathered.T)[np.ix_(chosen, chosen)]
    _require_same_mechanism(gathered, matrix.T @ base @ matrix, spread)

    prior = (matrix * spread**2) @ matrix.T
    root = np.linalg.cholesky(prior) if len(chosen) else prior
    values, vectors = np.linalg.eigh(root.T @ base @ root)
    # Rounding leaves about eps of the largest eigenvalue where there is no information.
    floor = max(1.0, float(values[-1])) * len(values) * np.finfo(float).eps if values.size else 0.0
    values = np.where(values > floor, values, 0.0)
    order = np.argsort(values)[::-1]
    values, vectors = values[order], vectors[:, order]
    directions = (root @ vectors).T
    prior_deviations = np.sqrt(np.diag(prior))
    with np.errstate(divide="ignore", invalid="ignore"):
        # Combinations without information only count for base parameters they change.
        part = directions**2
        significant = part > 1e-16 * prior_deviations**2
        alone = np.where(significant, part / values[:, None], 0.0).sum(axis=0)
    lower, upper = _interval(matrix, box)
    shares = (np.abs(directions) / prior_deviations) ** 2
    return DataAnalysis(
        structure=structure,
        singular_values=np.sqrt(values),
        directions=directions,
        shares=shares / shares.sum(axis=1, keepdims=True) if len(chosen) else shares,
        prior_deviations=prior_deviations,
        deviations=np.sqrt(alone),
        deviations_with_prior=np.sqrt((part / (1.0 + values[:, None])).sum(axis=0)),
        lower=lower,
        upper=upper,
    )


def _require_same_mechanism(given: Array, explained: Array, scale: Array) -> None:
    size = np.sqrt(np.abs(np.diag(given))) * scale
    wrong = np.abs(given - explained) * np.outer(scale, scale)
    if wrong.size and wrong.max() > _SAME_MECHANISM * max(float(size.max()) ** 2, 1e-300):
        raise ParameterOutOfRange(
            "information",
            f"up to {wrong.max() / size.max() ** 2:.1e} of it",
            "information that the base parameters explain: of the same mechanism, gravity and parameters",
        )


def _interval(matrix: Array, box: Box | None) -> tuple[Array | None, Array | None]:
    """Compute the range of the base parameters over a box, rounded outwards."""
    if box is None:
        return None, None
    positive, negative = np.maximum(matrix, 0.0), np.minimum(matrix, 0.0)
    lower = positive @ box.lower + negative @ box.upper
    upper = positive @ box.upper + negative @ box.lower
    # Rounding of the sums is about 1e-15 of this; the coefficients of the map are eliminated to about 1e-9 at worst.
    pad = 1e-9 * (np.abs(matrix) @ np.maximum(np.abs(box.lower), np.abs(box.upper)))
    return lower - pad, upper + pad


def prior_scale(structure: Structure, names: tuple[str, ...], radius: ArrayLike) -> Array:
    """Select the radii (P,) of the unknown parameters of an analysis from those (k,) of named parameters.

    Parameters with radius zero are given a thousandth of the largest one of the same unit, because the analysis is
    relative to the prior.

    Raises:
        ParameterOutOfRange: A parameter is not among the names, or nothing is unknown.
    """
    values = np.asarray(radius, dtype=float)[structure.columns(names)]
    result: Array = values.copy()
    for unit in set(structure.units):
        same = np.array([found == unit for found in structure.units])
        largest = float(values[same].max())
        result[same] = np.maximum(values[same], 1e-3 * largest if largest > 0.0 else 1e-3)
    return result
