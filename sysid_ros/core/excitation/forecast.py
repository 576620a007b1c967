"""Forecast of the information in a planned trajectory: momentum windows, condition numbers, radii of the bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.excitation.criteria import PAYLOAD, BaseParameters, measured_radius
from sysid_ros.core.excitation.model import ExcitationModel
from sysid_ros.core.model.robot import INERTIAL, RobotModel
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.trajectories.base import Trajectory

Array = NDArray[np.float64]

_STEP = 0.005  # [s] between samples
_BASE_STEP = 0.02
_PRIOR_WEIGHTS = np.logspace(-3, 1, 5)
"""Weights of the prior box, per row of data, that are tried."""


def payload_regressor(robot: RobotModel, trajectory: Trajectory, samples: int = 128) -> Array:
    """Stack the regressor ``W_e`` of the payload at evenly spread samples, (samples n, 10).

    Source: SAFE-ID (30).
    """
    times = (np.arange(samples) + 0.5) * (trajectory.duration / samples)
    return TorqueRegressor(robot, bodies=[robot.n]).evaluate(*trajectory.sample(times))[..., :INERTIAL].reshape(-1, 10)


def momentum_windows(robot: RobotModel, trajectory: Trajectory, window: float) -> Array:
    """Integrate the torque regressor over the momentum windows of a perfectly tracked trajectory.

    Args:
        robot: The arm.
        trajectory: The motion.
        window: Length of the windows [s]; a rest at the end that is shorter is left out.

    Returns:
        Rows ``[B | Y]`` of every window and joint, (windows, n, 14 n + 10).

    Source: SAFE-ID (21); dp/dt of the momentum equals the torque equation, so ``Y = integral of W``.
    """
    per_window = max(int(round(window / _STEP)), 2)
    step = window / per_window
    count = max(int(trajectory.duration / window + 1e-9), 1)
    times = (np.arange(count * per_window) + 0.5) * step
    regressor = TorqueRegressor(robot).evaluate(*trajectory.sample(times))
    last = regressor[..., INERTIAL * (robot.n - 1) : INERTIAL * robot.n]
    rows = np.concatenate([regressor, last], axis=-1)
    return np.asarray(step * rows.reshape(count, per_window, robot.n, -1).sum(axis=1), dtype=np.float64)


def expected_radii(model: ExcitationModel, trajectories: Sequence[Trajectory], window: float) -> Array:
    """Estimate the radii of guaranteed bounds from data of these trajectories, (10,).

    The bound of a left inverse L of Y, ``|L| E + |L B| rad(theta_r)``, with L from weighted least squares; nowhere
    wider than the payload's box. Only torque errors and robot parameters are counted.
    """
    robot, sensors = model.robot, model.robot.sensors
    rows = np.concatenate([momentum_windows(robot, trajectory, window) for trajectory in trajectories])
    torque = rows @ np.concatenate([model.arm_box.center, model.payload])  # integrals over the windows
    error = (sensors.effort_relative_error * np.abs(torque) + sensors.effort_absolute_error * window).ravel()
    error = np.maximum(error, 1e-12)
    flat = rows.reshape(error.size, -1) / error[:, None]
    radius = measured_radius(robot, model.arm_box.radius, model.payload_box.radius)
    known, wanted = flat[:, :-PAYLOAD] * radius[:-PAYLOAD], flat[:, -PAYLOAD:]
    # (1 + K K^T)^-1 Y by the smaller of the two possible inversions
    inner = np.linalg.solve(np.eye(known.shape[1]) + known.T @ known, known.T @ wanted)
    weighted = wanted - known @ inner
    left = np.linalg.pinv(wanted.T @ weighted) @ weighted.T
    found: Array = np.minimum(np.abs(left).sum(axis=1) + np.abs(left @ known).sum(axis=1), radius[-PAYLOAD:])
    return found


def base_regressor(
    robot: RobotModel, base: BaseParameters, trajectories: Sequence[Trajectory], window: float | None = None
) -> Array:
    """Stack the base regressor ``Y_b`` of motions, (rows, nb).

    Args:
        robot: The arm.
        base: Its base parameters.
        trajectories: The motions.
        window: Length of momentum windows whose mean rows are taken [s]; without it, samples at 50 Hz.

    Source: EXCITE (4), (5).
    """
    regressor, parts = TorqueRegressor(robot), []
    for trajectory in trajectories:
        if window is None:
            count = max(int(round(trajectory.duration / _BASE_STEP)), 2)
            times = (np.arange(count) + 0.5) * (trajectory.duration / count)
            rows = regressor.evaluate(*trajectory.sample(times))[..., base.columns]
        else:
            rows = momentum_windows(robot, trajectory, window)[..., base.columns] / window
        parts.append(rows.reshape(-1, base.columns.size))
    return np.concatenate(parts)


def expected_base_radii(
    model: ExcitationModel, base: BaseParameters, trajectories: Sequence[Trajectory], window: float
) -> Array:
    """Estimate the radii of guaranteed bounds of base parameters from data of these motions, (nb,).

    For any matrix L the parameters lie within ``L u +- (|L| E + |1 - L W| radius)``, with rows ``W theta = u`` within
    E. Those L are tried that estimate all parameters from rows and prior box with different weights, and the narrowest
    interval counts. Only torque errors are counted, each the worst at every window; the estimator's bounds use more.
    """
    robot, sensors = model.robot, model.robot.sensors
    last = robot.inertial_slice(robot.n)
    theta, radius = model.arm_box.center.copy(), model.arm_box.radius.copy()
    theta[last] += model.payload
    radius[last] += model.payload_box.radius
    radius = measured_radius(robot, radius, np.zeros(0))
    rows = np.concatenate([momentum_windows(robot, path, window)[..., :-PAYLOAD] for path in trajectories]) / window
    torque = rows @ theta
    error = np.maximum(sensors.effort_relative_error * np.abs(torque) + sensors.effort_absolute_error, 1e-12).ravel()
    flat = rows.reshape(error.size, -1) / error[:, None] * radius  # in units of errors and radii
    wanted = base.matrix * radius  # (nb, 14 n)
    found: Array = np.abs(wanted).sum(axis=1)
    gram = flat.T @ flat
    for weight in _PRIOR_WEIGHTS * len(error):
        left = np.linalg.solve(gram + weight * np.eye(radius.size), flat.T)
        rest = np.eye(radius.size) - left @ flat
        found = np.minimum(found, np.abs(wanted @ left).sum(axis=1) + np.abs(wanted @ rest).sum(axis=1))
    return found


def condition_number(information: Array) -> float:
    """Compute the condition number of rows with the Gram matrix ``information`` (k, k); inf if it is singular."""
    values = np.linalg.eigvalsh(information)
    return float(np.sqrt(values[-1] / values[0])) if values[0] > 1e-14 * values[-1] else float("inf")
