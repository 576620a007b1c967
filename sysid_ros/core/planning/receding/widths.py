"""The width of the bounds that a plan can be expected to give, as a cost with exact gradients."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.excitation.criteria import PAYLOAD, BoundsCriterion, ErrorModel, measured_radius
from sysid_ros.core.model.box import Box
from sysid_ros.core.model.robot import INERTIAL, RobotModel
from sysid_ros.core.planning.base import State
from sysid_ros.core.planning.receding.motions import MotionBasis
from sysid_ros.core.planning.receding.payload_windows import WindowRows
from sysid_ros.core.planning.receding.torques import WorstTorque
from sysid_ros.core.regressors.torque import TorqueRegressor

Array = NDArray[np.float64]

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
        """See :class:`~sysid_ros.core.planning.receding.costs.PlanCost`."""
        return np.array([self._evaluate_one(states)[0] for states in self._states(x)])

    def gradient(self, x: Array) -> tuple[Array, Array]:
        """See :class:`~sysid_ros.core.planning.receding.costs.PlanCost`."""
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
