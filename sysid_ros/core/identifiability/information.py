"""Information of data: Gram matrices of regressors with rows in standard deviations of their error.

A row is the mean torque of one joint over a window of momentum, so information of recordings and of planned motions is
in the same unit: one over the square of the parameters' units.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.identifiability.structure import Structure
from sysid_ros.core.model.robot import FRICTION_NAMES, EffortMeaning, RobotModel, parameter_names
from sysid_ros.core.regressors.momentum import MomentumRegressor
from sysid_ros.core.regressors.torque import TorqueRegressor

Array = NDArray[np.float64]

WINDOW = 0.1
"""Length of a momentum window [s]."""
_SMALLEST_ERROR = 1e-6
"""Smallest error of a torque sensor: one without any would outweigh all others [Nm]."""


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
    """List the friction parameters in the regressors of an arm: all on the motor side, none on the link side."""
    return FRICTION_NAMES if robot.sensors.effort_meaning is EffortMeaning.MOTOR_SIDE else ()


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
        if robot.sensors.effort_meaning is EffortMeaning.LINK_SIDE:
            self._nuisance[10 * robot.n :] = 0.0
        self._momentum, self._torque = MomentumRegressor(robot), TorqueRegressor(robot)

    def of_recording(self, seconds: ArrayLike, q: ArrayLike, v: ArrayLike) -> Array:
        """Compute the information of a recording, window by window, without accelerations.

        Args:
            seconds: Times of the samples, (N,) [s], rising; a gap longer than a window ends a window.
            q: Positions, (N, n) [rad].
            v: Velocities, (N, n) [rad/s].

        Returns:
            Information (P, P); zero if there is no whole window.

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
        error = sensors.effort_relative_error * torque + np.maximum(sensors.effort_absolute_error, _SMALLEST_ERROR)
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
