"""Torques the identified model predicts for recorded samples: for people to look at, never for the estimate.

The estimate itself needs no acceleration; a plot of torque over time does. It comes from the measured velocity by a
Savitzky-Golay filter, so the residual shows the model and the filter together.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.reports.payload import payload_parameters
from sysid_ros.reports.result import IdentificationResult

Array = NDArray[np.float64]

FILTER_TIME = 0.06
"""Length of the filter window [s]: short against the motion, long against the noise of a 1 kHz velocity."""
FILTER_ORDER = 3
STICTION_SPEED = 0.01
"""Speed below which a joint counts as nearly at rest [rad/s]."""
EXPLAINED = 2000
"""Samples at which it is computed what errors explain."""
_CHUNK = 1000


def differentiate(stamps: ArrayLike, values: Array, filter_time: float = FILTER_TIME) -> Array:
    """Time derivative of sampled signals.

    Samples are taken as equally spaced between gaps; a gap (more than 1.5 median periods) splits the record.

    Args:
        stamps: Time of each sample, (N,) [ns].
        values: Signals, (N, n).
        filter_time: Length of the filter window [s].

    Returns:
        Derivatives, (N, n) [unit of values / s]; zero in pieces too short for a derivative.
    """
    times = np.asarray(stamps, dtype=np.int64)
    result = np.zeros_like(values, dtype=float)
    if times.size < 2:
        return result
    steps = np.diff(times)
    period = float(np.median(steps))
    borders = np.concatenate([[0], np.flatnonzero(steps > 1.5 * period) + 1, [times.size]])
    window = 2 * int(round(0.5e9 * filter_time / period)) + 1
    for first, last in zip(borders[:-1], borders[1:], strict=True):
        length = min(window, (last - first - 1) // 2 * 2 + 1)
        if length > FILTER_ORDER:
            result[first:last] = _derivative(values[first:last], _fit(length)) / (1e-9 * period)
    return result


def derivative_weights(length: int) -> Array:
    """Return the weights of samples around one, oldest first, in its derivative by a Savitzky-Golay filter, (length,).

    For samples one apart; scipy has them too, in a package that takes a second to load.
    """
    return np.asarray(_fit(length)[1])


def _fit(length: int) -> Array:
    """Return what makes the coefficients of a polynomial of samples around its origin, (FILTER_ORDER + 1, length)."""
    half = length // 2
    scale = float(half) ** np.arange(FILTER_ORDER + 1)  # powers up to 1 for the pseudo-inverse
    powers = np.vander(np.arange(-half, half + 1) / half, FILTER_ORDER + 1, increasing=True)
    return np.asarray(np.linalg.pinv(powers) / scale[:, None])


def _derivative(values: Array, fit: Array) -> Array:
    """Return derivatives of samples one apart, (N, n): of the polynomial around each, at the ends the outermost."""
    length = fit.shape[1]
    half = length // 2
    result = np.empty_like(values, dtype=float)
    for j in range(values.shape[1]):
        result[half : len(values) - half, j] = np.convolve(values[:, j], fit[1, ::-1], "valid")
    at = np.arange(-half, half + 1)[:, None] ** np.arange(FILTER_ORDER) * np.arange(1, FILTER_ORDER + 1)
    result[:half] = at[:half] @ (fit[1:] @ values[:length])
    result[len(values) - half :] = at[half + 1 :] @ (fit[1:] @ values[len(values) - length :])
    return result


def predict_torque(robot: RobotModel, payload: ArrayLike, q: Array, v: Array, a: Array) -> Array:
    """Torque the effort sensor should show, with nominal arm parameters and a payload.

    Args:
        robot: The arm.
        payload: Ten parameters of the payload about the frame of the last joint, (10,).
        q: Positions, (N, n) [rad].
        v: Velocities, (N, n) [rad/s].
        a: Accelerations, (N, n) [rad/s^2].

    Returns:
        Torques in joint direction, (N, n) [Nm]: SAFE-ID (5), (6); for a link-side sensor without friction and armature.
        Below :data:`STICTION_SPEED`, where the Coulomb torque may be anything, it is taken in proportion to the speed.
    """
    theta = robot.theta_nominal.copy()
    theta[robot.inertial_slice(robot.n)] += np.asarray(payload, dtype=float)
    regressor = TorqueRegressor(robot)
    theta = theta[regressor.columns.indices]
    pieces = [slice(first, first + _CHUNK) for first in range(0, len(q), _CHUNK)]
    direction = np.clip(np.asarray(v) / STICTION_SPEED, -1.0, 1.0)
    torques = [regressor.evaluate(q[piece], v[piece], a[piece], direction[piece]) @ theta for piece in pieces]
    return np.concatenate(torques) if torques else np.zeros((0, robot.n))


def explained_torque(result: IdentificationResult) -> tuple[NDArray[np.int64], Array]:
    """Return how far measured and predicted torques may differ by the errors of sensor, arm and payload.

    What the filter of the acceleration adds is not in it; nor is the torque lag, where there is one.

    Returns:
        At most :data:`EXPLAINED` samples, (K,), and the largest difference at each, (K, n) [Nm].

    Raises:
        ValueError: It has no samples.
    """
    samples, robot = result.samples, result.robot
    if samples is None or len(samples) == 0:
        raise ValueError("a result without samples has no torques")
    picked = np.unique(np.linspace(0, len(samples) - 1, min(EXPLAINED, len(samples))).astype(np.int64))
    acceleration = differentiate(samples.stamps, samples.v)[picked]
    radius = robot.theta_box.radius.copy()
    if result.is_usable:
        payload = payload_parameters(result)
        farther = np.maximum(payload.upper - payload.values, payload.values - payload.lower)
        radius[robot.inertial_slice(robot.n)] += farther
    regressor = TorqueRegressor(robot)
    q, v = samples.q[picked], samples.v[picked]
    effect = np.abs(regressor.evaluate(q, v, acceleration)) @ radius[regressor.columns.indices]
    # Where a joint nearly rests its Coulomb torque may be anything up to its size.
    coulomb = robot.friction(robot.theta_nominal)[:, 0]
    is_resting = np.abs(v) < STICTION_SPEED
    if robot.sensors.effort_meaning.has_friction:
        effect = effect + 2.0 * coulomb * is_resting
    sensors = robot.sensors
    claimed = sensors.effort_relative_error * np.abs(samples.tau[picked]) + sensors.effort_absolute_error
    return picked, np.asarray(effect + claimed)


def with_torque_fit(result: IdentificationResult) -> IdentificationResult:
    """Fill in ``predicted_tau``; leave a result without samples, or without a payload to predict with, as it is."""
    samples, shown = result.samples, result
    if samples is None or len(samples) == 0:
        return result
    if not result.is_usable:
        if result.windows is None:
            return result
        shown = replace(result, estimate=replace(result.estimate, values=result.windows.payload))
    payload = payload_parameters(shown).values
    acceleration = differentiate(samples.stamps, samples.v)
    return replace(result, predicted_tau=predict_torque(result.robot, payload, samples.q, samples.v, acceleration))
