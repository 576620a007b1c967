"""What a plan is chosen for, as a function of the end offsets of many motions, with exact gradients.

The information of a plan is that of all windows collected so far plus that of the part of the plan which will be
executed, ``G = G_collected + sum of row^T row``, in the unit of :meth:`StreamingEstimator.information` (rows are mean
torques). Before anything has been measured G can be close to singular, so what is optimised contains the prior too:
``G + s^2 diag(radius)^-2``, the information of ten rows that measure each parameter to within its half width in the
payload's prior with the torque error s. The condition numbers that are reported are those of G itself.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.excitation.criteria import BoundsCriterion, ErrorModel, measured_radius
from sysid_ros.core.model.robot import INERTIAL, RobotModel
from sysid_ros.core.planning.motions import MotionBasis
from sysid_ros.core.planning.payload_windows import PAYLOAD, WindowRows
from sysid_ros.core.planning.torques import WorstTorque
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.trajectories.base import State

Array = NDArray[np.float64]

_POWER = 4


class PlanCost(Protocol):
    """A number per motion to be minimised."""

    def evaluate(self, x: Array) -> Array:
        """Values (B,) at end offsets x (B, n) [rad]."""

    def gradient(self, x: Array) -> tuple[Array, Array]:
        """Values (B,) and gradients (B, n) at end offsets x (B, n) [rad]."""


class InformationCost:
    """A function of the information that will have been collected.

    Args:
        rows: Windows of the part of the plan that will be executed.
        start: Position, velocity and acceleration, each (n,).
        duration: Duration of the motions [s].
        collected: Information collected so far, (10, 10).
        radius: Half widths of the payload's prior, (10,).
        kind: "condition" or "determinant".
        prior_error: Torque error s of the prior's rows [Nm].

    Source: SAFE-ID (30), with the data collected before.
    """

    def __init__(
        self,
        rows: WindowRows,
        start: State,
        duration: float,
        collected: Array,
        radius: Array,
        kind: str,
        prior_error: float,
    ):
        self._rows = rows
        self._basis = MotionBasis.of(start, duration, rows.times)
        scale = np.maximum(radius, 1e-6 * max(float(radius.max()), 1e-6))
        self.collected = collected
        self._prior = np.diag((prior_error / scale) ** 2)
        self._kind = kind

    def information(self, x: Array) -> Array:
        """Information with that of the motions, without the prior's, (B, 10, 10)."""
        rows, _ = self._rows.evaluate(self._basis, x)
        return self.collected + rows.transpose(0, 2, 1) @ rows

    def evaluate(self, x: Array) -> Array:
        """See :class:`PlanCost`."""
        return self._function(self.information(x) + self._prior)[0]

    def gradient(self, x: Array) -> tuple[Array, Array]:
        """See :class:`PlanCost`."""
        rows, samples = self._rows.evaluate(self._basis, x)
        values, slope = self._function(self.collected + self._prior + rows.transpose(0, 2, 1) @ rows)
        return values, self._rows.pull_back(self._basis, samples, 2.0 * rows @ slope)

    def _function(self, information: Array) -> tuple[Array, Array]:
        if self._kind == "determinant":
            return -np.linalg.slogdet(information)[1], -np.linalg.inv(information)
        return smooth_condition(information)


class GoalCost:
    """Squared distance of the end posture to a goal.

    Args:
        start: Position, velocity and acceleration, each (n,).
        goal: Posture to get to, (n,) [rad].
    """

    def __init__(self, start: State, goal: Array):
        self._offset = goal - start[0]

    def evaluate(self, x: Array) -> Array:
        """See :class:`PlanCost`."""
        return ((x - self._offset) ** 2).sum(axis=1)

    def gradient(self, x: Array) -> tuple[Array, Array]:
        """See :class:`PlanCost`."""
        return self.evaluate(x), 2.0 * (x - self._offset)


def smooth_condition(information: Array, power: int = _POWER) -> tuple[Array, Array]:
    """A smooth upper bound of the logarithm of the condition number of the rows, and its derivative.

    ``log(tr(G^p) tr(G^-p)) / (2 p)``: where eigenvalues meet, the condition number has no gradient and a solver stalls;
    this function has one everywhere and exceeds ``log sqrt(l_max / l_min)`` by at most ``log(10) / p``.

    Args:
        information: Positive definite matrices G, (B, 10, 10).
        power: The power p; 2 to 8 were found equally good.

    Returns:
        Values (B,) and derivatives (B, 10, 10).
    """
    values, vectors = np.linalg.eigh(information)
    smallest, largest = values[:, :1], values[:, -1:]
    high, low = (values / largest) ** power, (smallest / values) ** power
    sum_high, sum_low = high.sum(axis=1), low.sum(axis=1)
    ratio = np.log(largest[:, 0] / smallest[:, 0]) + np.log(sum_high * sum_low) / power
    slope = 0.5 * (high / sum_high[:, None] - low / sum_low[:, None]) / values
    return 0.5 * ratio, (vectors * slope[:, None]) @ vectors.transpose(0, 2, 1)


def condition_number(information: Array) -> float:
    """Condition number of rows with this Gram matrix (10, 10); inf where they do not determine all ten parameters."""
    values = np.linalg.eigvalsh(information)
    floor = PAYLOAD * np.finfo(float).eps * values[-1]
    return float(np.sqrt(values[-1] / values[0])) if values[0] > floor else float("inf")


_TYPICAL_SHARE = 0.1
"""Share of the torque limits taken as the torque of rows collected earlier, of which only the Gram matrix is known."""


class WidthCost:
    """Sum of the logarithms of the widths expected of an estimate of payload and arm together.

    The criterion is :class:`~sysid_ros.core.excitation.criteria.BoundsCriterion` at the mean rows of the windows. Its
    gradient is that of the torques of arms whose parameters are the criterion's weights.

    Args:
        robot: The arm.
        torque: Any worst-case torques of it; only its derivatives are used.
        rows: Windows of the part of the plan that will be executed.
        start: Position, velocity and acceleration, each (n,).
        duration: Duration of the motions [s].
        collected: Information collected so far, (10, 10).
        boxes: Boxes of the parameters of arm (14 n,) and payload (10,).
        payload: Nominal payload, (10,).
    """

    def __init__(
        self,
        robot: RobotModel,
        torque: WorstTorque,
        rows: WindowRows,
        start: State,
        duration: float,
        collected: Array,
        boxes: tuple[Box, Box],
        payload: Array,
    ):
        sensors = robot.sensors
        typical = sensors.effort_relative_error * _TYPICAL_SHARE * robot.limits.tau_max
        self._criterion = BoundsCriterion(
            ErrorModel(
                theta=np.concatenate([boxes[0].center, payload]),
                radius=measured_radius(robot, boxes[0].radius, boxes[1].radius),
                relative=sensors.effort_relative_error,
                absolute=sensors.effort_absolute_error,
                weight=1.0,
                row_error=float(np.mean(typical + sensors.effort_absolute_error)),
            ),
            collected,
        )
        self._n, self._rows = robot.n, rows
        self._torque, self._regressor = torque, TorqueRegressor(robot)
        self._basis = MotionBasis.of(start, duration, rows.times)

    def evaluate(self, x: Array) -> Array:
        """See :class:`~sysid_ros.core.planning.costs.PlanCost`."""
        return np.array([self._evaluate_one(states)[0] for states in self._states(x)])

    def gradient(self, x: Array) -> tuple[Array, Array]:
        """See :class:`~sysid_ros.core.planning.costs.PlanCost`."""
        values, gradients = zip(*[self._gradient_one(states) for states in self._states(x)], strict=True)
        return np.array(values), np.array(gradients)

    def _states(self, x: Array) -> list[State]:
        return [self._basis.states(one[None]) for one in x]

    def _evaluate_one(self, states: State) -> tuple[float, Array]:
        """Value and derivative with respect to the mean rows (windows, n, 14 n + 10)."""
        arm = self._regressor.evaluate(*states)
        last = arm[..., INERTIAL * (self._n - 1) : INERTIAL * self._n]
        samples = np.concatenate([arm, last], axis=-1).reshape(self._rows.windows, -1, self._n, arm.shape[-1] + PAYLOAD)
        return self._criterion.evaluate(np.einsum("wgip,g->wip", samples, self._rows.weights))

    def _gradient_one(self, states: State) -> tuple[float, Array]:
        value, slope = self._evaluate_one(states)
        parameters = slope[..., :-PAYLOAD].copy()
        parameters[..., INERTIAL * (self._n - 1) : INERTIAL * self._n] += slope[..., -PAYLOAD:]
        nodes = self._rows.weights.size
        weighted = parameters[:, None] * self._rows.weights[:, None, None]
        weighted = np.broadcast_to(weighted, (len(parameters), nodes, *parameters.shape[1:]))
        joints = np.tile(np.arange(self._n), len(parameters) * nodes)
        repeated = tuple(np.repeat(part, self._n, axis=0) for part in states)
        parts = self._torque.parameter_gradients(repeated, joints, weighted.reshape(joints.size, -1))
        shape = (self._basis.times.size, self._n, self._n)
        return value, self._basis.chain(*(part.reshape(shape).sum(axis=1) for part in parts))
