"""Worst-case torques of a serial arm at many samples, with exact derivatives.

The torque is linear in the parameters, so its largest value over a box is ``|W center| + |W| radius``, reached
at a corner of the box. Where no entry of ``W`` changes sign its derivative is that of the torque at this corner.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ModelError
from sysid_ros.core.model.joint_tree import JointTree
from sysid_ros.core.model.robot import FRICTION, INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.regressors.rest_torque import RestSavings, rest_of
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.trajectories.base import State

Array = NDArray[np.float64]
Index = NDArray[np.intp]


@dataclass(frozen=True)
class TorqueSamples:
    """Largest torques at N samples.

    Attributes:
        demand: Largest ``|tau|`` of any parameters in the boxes, with the share of Coulomb friction that counts in the
            worst direction, (N, n) [Nm].
        side: Sign of that torque, (N, n).
        regressor: The torque regressor, (N, n, 14 n), its Coulomb columns zero.
    """

    demand: Array
    side: Array
    regressor: Array


class WorstTorque:
    """Largest torques over boxes of the parameters of arm and payload.

    Attributes:
        coulomb: Largest Coulomb friction, (n,) [Nm].

    Raises:
        ModelError: The arm branches.
    """

    def __init__(self, robot: RobotModel):
        self.n = robot.n
        self._robot = robot
        if JointTree.of(robot).parents != tuple(range(-1, self.n - 1)):
            raise ModelError("the receding-horizon planner needs an arm without branches")
        self._regressor = TorqueRegressor(robot, EffortMeaning.MOTOR_SIDE)
        self.set_boxes(robot.theta_box, robot.payload_prior.box)

    def set_boxes(self, arm: Box, payload: Box) -> None:
        """Use other boxes: the arm's (14 n,) and the payload's (10,), which adds to the last body's."""
        rest = rest_of(payload)
        self._savings = None if rest is None else RestSavings(self._robot, arm, payload, rest)
        last = self._robot.inertial_slice(self.n)
        self._center, self._radius = arm.center.copy(), arm.radius.copy()
        self._center[last] += payload.center
        self._radius[last] += payload.radius
        sliding = slice(INERTIAL * self.n, None, FRICTION)
        self.coulomb: Array = np.abs(self._center[sliding]) + self._radius[sliding]
        self._center[sliding] = self._radius[sliding] = 0.0

    def evaluate(self, states: State, friction: Array | float = 1.0, little: Array | float = -np.inf) -> TorqueSamples:
        """Compute the largest torques at states.

        Args:
            states: The states, each (N, n).
            friction: Shares of Coulomb friction that count, (N, n) or one for all [-].
            little: Torques that do not matter, (N, n) or one for all [Nm]. The known torque at rest, which takes time,
                is not subtracted where the torque is no larger than this without it.
        """
        regressor = self._regressor.evaluate(*states, direction=np.zeros_like(states[1]))
        nominal = regressor @ self._center
        spread = np.abs(regressor) @ self._radius + friction * self.coulomb
        if self._savings is None:
            return TorqueSamples(np.abs(nominal) + spread, np.sign(nominal), regressor)
        above, below = nominal, -nominal
        matters = np.abs(nominal) + spread > little
        for joint in range(self.n):
            here = np.flatnonzero(matters[:, joint])
            own, negative = self._savings.evaluate_both(joint, regressor[here, joint, self._moved(joint)])
            above[here, joint] -= own
            below[here, joint] -= negative
        return TorqueSamples(np.maximum(above, below) + spread, np.where(above >= below, 1.0, -1.0), regressor)

    def _moved(self, joint: int) -> slice:
        """Return the columns of the bodies that a joint moves."""
        return slice(INERTIAL * joint, INERTIAL * self.n)

    def demand_at_rest(self, q: Array) -> Array:
        """Return the demand of :meth:`evaluate` where the arm rests in postures (N, n) [rad], (N, n) [Nm]."""
        rest = np.zeros_like(q)
        return self.evaluate((q, rest, rest)).demand

    def gradients(self, states: State, samples: TorqueSamples, chosen: Index, joints: Index) -> State:
        """Differentiate single entries of ``demand`` with respect to the state of their sample.

        Args:
            states: States (N, n).
            samples: The torques there.
            chosen: Samples of the P entries, (P,).
            joints: Their joints, (P,).

        Returns:
            With respect to q, v and a, each (P, n); Coulomb friction counts as if its share stayed as it is.
        """
        q, v, a = (part[chosen] for part in states)
        rows, side = samples.regressor[chosen, joints], samples.side[chosen, joints][:, None]
        parameters = side * self._center + np.sign(rows) * self._radius
        if self._savings is not None:
            for joint in np.unique(joints):
                here, moved = joints == joint, self._moved(joint)
                places = self._savings.locate(joint, side[here] * rows[here, moved])
                parameters[here, moved] = side[here] * (self._center[moved] + places)
        weight = np.zeros((len(joints), self.n, parameters.shape[1]))
        weight[np.arange(len(joints)), joints] = parameters
        return self._regressor.pull_back(q, v, a, weight)
