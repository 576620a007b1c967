"""Baselines with accelerations: a tracking differentiator and bounded least squares of base parameters, as in EXCITE.

The momentum windows of this package need neither; these are baselines for comparison.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.parameters.bounds import hull
from sysid_ros.core.estimation.whole_arm import Motion
from sysid_ros.core.identifiability.data import felt_joint_parameters
from sysid_ros.core.identifiability.settings import AnalysisSettings
from sysid_ros.core.identifiability.structure import analyze_structure
from sysid_ros.core.identifiability.tree_readers import tree_from_model
from sysid_ros.core.model.robot import RobotModel, parameter_names
from sysid_ros.core.regressors.torque import TorqueRegressor

Array = NDArray[np.float64]


def track_velocities(seconds: Array, v: Array, largest_jerk: Array, filter_steps: float = 8.0) -> tuple[Array, Array]:
    """Filter velocities and differentiate them by a tracking differentiator, which lags behind by its filter.

    Args:
        seconds: Times, (N,) [s].
        v: Velocities, (N, n) [rad/s].
        largest_jerk: Largest rate of the acceleration, (n,) [rad/s^3].
        filter_steps: Time constant of the filter in steps; the result lags by two of them.

    Returns:
        Velocities [rad/s] and accelerations [rad/s^2], (N, n) each.

    Raises:
        ParameterOutOfRange: The filter is shorter than a step, or a jerk is not positive.

    Source: EXCITE (12), with the function of Han, "From PID to active disturbance rejection control" (2009).
    """
    if filter_steps < 1.0:
        raise ParameterOutOfRange("filter_steps", filter_steps, "at least 1")
    if np.any(np.asarray(largest_jerk) <= 0.0):
        raise ParameterOutOfRange("largest_jerk [rad/s^3]", largest_jerk, "above 0")
    velocities, accelerations = np.empty_like(v), np.empty_like(v)
    speed, rate = v[0].copy(), np.zeros(v.shape[1])
    for k in range(len(v)):
        velocities[k], accelerations[k] = speed, rate
        if k + 1 < len(v):
            step = float(seconds[k + 1] - seconds[k])
            jerk = _fastest_control(speed - v[k], rate, np.asarray(largest_jerk, dtype=float), filter_steps * step)
            speed, rate = speed + step * rate, rate + step * jerk
    return velocities, accelerations


def _fastest_control(error: Array, rate: Array, limit: Array, step: float) -> Array:
    """Return the control within ``limit`` that brings error and rate to zero fastest, without chatter, (n,)."""
    d = limit * step * step
    a0 = step * rate
    y = error + a0
    a1 = np.sqrt(d * (d + 8.0 * np.abs(y)))
    a2 = a0 + 0.5 * np.sign(y) * (a1 - d)
    a = np.where(np.abs(y) <= d, a0 + y, a2)
    return np.asarray(np.where(np.abs(a) <= d, -limit * a / d, -limit * np.sign(a)))


def tracked(motion: Motion, v: Array, largest_jerk: Array, filter_steps: float = 8.0) -> Motion:
    """Return a motion with velocities and accelerations of the tracking differentiator in place of its own.

    Args:
        motion: The motion.
        v: Measured velocities at its samples, (N, n) [rad/s].
        largest_jerk: See :func:`track_velocities`.
        filter_steps: Likewise.
    """
    velocities, accelerations = np.empty_like(v), np.empty_like(v)
    for part in motion.pieces:
        velocities[part], accelerations[part] = track_velocities(
            motion.seconds[part], v[part], largest_jerk, filter_steps
        )
    return replace(motion, v=velocities, a=accelerations)


@dataclass(frozen=True)
class BoundedRegression:
    """Base parameters within bounds that explain measured torques.

    Attributes:
        names: Parameters they are named after, nb of them.
        columns: Their columns in the torque regressor, (nb,).
        values: Base parameters, (nb,).
        bounds: Their bounds, (nb,).
    """

    names: tuple[str, ...]
    columns: NDArray[np.intp]
    values: Array
    bounds: Box

    def predict(self, robot: RobotModel, motion: Motion) -> Array:
        """Compute the torques that the sensors should show, (N, n) [Nm]."""
        regressor = TorqueRegressor(robot).evaluate(motion.q, motion.v, motion.a)
        return np.asarray(regressor[:, :, self.columns] @ self.values)


def fit_bounded_regression(robot: RobotModel, motion: Motion, box: Box | None = None) -> BoundedRegression:
    """Fit base parameters to torques by least squares within bounds.

    Args:
        robot: The arm.
        motion: Positions, velocities, accelerations and torques.
        box: Box of all parameters, (14 n,), from which the bounds follow; the robot's by default.

    Raises:
        ParameterOutOfRange: The box has another size.

    Source: EXCITE (13).
    """
    box = robot.theta_box if box is None else box
    if box.lower.shape != robot.theta_nominal.shape:
        raise ParameterOutOfRange("parameters of the box", box.lower.size, f"{robot.theta_nominal.size}")
    settings = AnalysisSettings(joint_parameters=felt_joint_parameters(robot))
    structure = analyze_structure(tree_from_model(robot.pin_model), settings)
    where = np.array(structure.columns(parameter_names(robot)))
    matrix = np.zeros((structure.count, robot.theta_nominal.size))
    matrix[:, where] = structure.matrix
    columns, bounds = where[list(structure.chosen)], hull(matrix, box)
    regressor = TorqueRegressor(robot).evaluate(motion.q, motion.v, motion.a)[:, :, columns].reshape(-1, columns.size)
    is_open = bounds.upper > bounds.lower
    values = bounds.center.copy()
    target = motion.tau.ravel() - regressor[:, ~is_open] @ values[~is_open]
    scale = bounds.radius[is_open]
    found = lsq_linear(
        regressor[:, is_open] * scale, target - regressor[:, is_open] @ bounds.center[is_open], bounds=(-1.0, 1.0)
    )
    values[is_open] = np.clip(values[is_open] + scale * found.x, bounds.lower[is_open], bounds.upper[is_open])
    return BoundedRegression(structure.base_names, columns, values, bounds)
