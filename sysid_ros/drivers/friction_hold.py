"""Whether friction can be what holds a joint whose reading stands still, or whether the reading must be stuck."""

from __future__ import annotations

import numpy as np

from sysid_ros.core.common.box import Box
from sysid_ros.core.model.robot import INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.regressors import TorqueRegressor
from sysid_ros.drivers.arm import Array

_LOOSE_CYCLES = 20
"""So many cycles in a row friction cannot hold a joint before a reading that stands still must be stuck."""
_SETTLED_CYCLES = 5
"""After so many cycles without a change of its reading a joint is taken to rest, if the reading is right."""


class FrictionHold:
    """Compares the torque of a joint with what friction could take of it.

    While friction holds a joint, ``tau = L + beta + f`` with ``|f| <= F_c`` and its load L, gravity and what the other
    joints' motion asks of it. So since the joint came to rest, the torque has changed by no more than ``2 F_c`` and the
    change of the load, which is linear in the parameters and known but for their boxes; of accelerations, which are
    not measured, the whole effect counts as unknown. Where the torque has changed by more, the joint moves whatever
    its reading says. A sensor behind the gear measures the load itself: then ``|tau - beta - measured| <= F_c`` within
    its error, or the joint moves. A joint that has just broken loose needs some cycles for its first encoder step.

    Args:
        robot: The arm.
    """

    def __init__(self, robot: RobotModel):
        n, self._robot = robot.n, robot
        self._regressor = TorqueRegressor(robot, EffortMeaning.LINK_SIDE)
        self._last = np.full(n, np.nan)
        self._still, self._loose = np.zeros((2, n), dtype=int)
        self._states = np.zeros((3, n, n))  # positions, velocities, accelerations by joint that came to rest then
        self._torques = np.full(n, np.nan)

    def set_boxes(self, theta_box: Box, payload_box: Box) -> None:
        """Takes the boxes of the arm's parameters, (14 n,), and of the payload's, (10,)."""
        robot, n = self._robot, self._robot.n
        lower, upper = (box[: INERTIAL * n].copy() for box in (theta_box.lower, theta_box.upper))
        last = robot.inertial_slice(n)
        lower[last] += payload_box.lower
        upper[last] += payload_box.upper
        self._middle, self._radius = 0.5 * (lower + upper), 0.5 * (upper - lower)
        friction = robot.friction(theta_box.upper)
        self._friction, self._offset = friction[:, 0], np.stack([robot.friction(theta_box.lower)[:, 3], friction[:, 3]])

    def note(self, q: Array, v: Array, a_d: Array, tau: Array, effort: Array) -> None:
        """Takes in a cycle.

        Args:
            q: Measured positions, (n,) [rad].
            v: Measured velocities, (n,) [rad/s].
            a_d: Desired accelerations, (n,) [rad/s^2].
            tau: Torques that act, (n,) [Nm].
            effort: Measured efforts, (n,) [Nm].
        """
        self._still = np.where(q == self._last, self._still + 1, 0)
        self._last = q
        self._loose[self._still == 0] = 0
        settled = self._still == _SETTLED_CYCLES
        if settled.any():
            self._states[:, settled] = np.stack([q, v, a_d])[:, None]
            self._torques[settled] = tau[settled]
        self._present, self._tau, self._effort = np.stack([q, v, a_d]), tau, effort

    def is_possible(self, joint: int) -> bool:
        """Whether friction may hold this joint now, whose reading has not changed for a while; once per cycle."""
        if self._still[joint] < _SETTLED_CYCLES:
            return True
        is_held = self._is_possible_by_sensor(joint) and self._is_possible_by_model(joint)
        self._loose[joint] = 0 if is_held else self._loose[joint] + 1
        return bool(self._loose[joint] < _LOOSE_CYCLES)

    def _is_possible_by_sensor(self, joint: int) -> bool:
        sensors, effort = self._robot.sensors, self._effort[joint]
        if sensors.effort_meaning is not EffortMeaning.LINK_SIDE or not np.isfinite(effort):
            return True
        # The true load t has |t - effort| <= relative |t| + absolute.
        relative, absolute = sensors.effort_relative_error[joint], sensors.effort_absolute_error[joint]
        error = (relative * abs(effort) + absolute) / (1.0 - relative)
        rest = self._tau[joint] - effort - self._offset[:, joint]  # friction, for the smallest and the largest offset
        nearest = 0.0 if rest[0] * rest[1] <= 0.0 else np.abs(rest).min()
        return bool(nearest <= self._friction[joint] + error)

    def _is_possible_by_model(self, joint: int) -> bool:
        states = np.stack([self._states[:, joint], self._present], axis=1)  # (3, 2, n)
        states[1:, :, joint] = 0.0
        (q, v, a), still = states, np.zeros_like(states[0])
        loads = self._regressor.evaluate(q, v, a)[:, joint, : self._middle.size]
        static = self._regressor.evaluate(q, v, still)[:, joint, : self._middle.size]
        unknown = np.abs((loads - static) @ self._middle).sum() + np.abs(loads - static).sum(axis=0) @ self._radius
        change = static[1] - static[0]
        excess = abs(self._tau[joint] - self._torques[joint] - change @ self._middle)
        return bool(excess <= 2.0 * self._friction[joint] + np.abs(change) @ self._radius + unknown)
