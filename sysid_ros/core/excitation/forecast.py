"""Forecast of the information in a planned trajectory: momentum windows, condition numbers, radii of the bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.excitation.criteria import PAYLOAD, measured_radius
from sysid_ros.core.excitation.model import ExcitationModel
from sysid_ros.core.model.robot import INERTIAL, RobotModel
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.trajectories.base import Trajectory

Array = NDArray[np.float64]

_STEP = 0.005  # [s] between samples


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


def condition_number(information: Array) -> float:
    """Compute the condition number of rows with the Gram matrix ``information`` (10, 10); inf if it is singular."""
    values = np.linalg.eigvalsh(information)
    return float(np.sqrt(values[-1] / values[0])) if values[0] > 1e-14 * values[-1] else float("inf")
