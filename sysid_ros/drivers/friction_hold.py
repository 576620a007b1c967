"""Whether a joint whose reading stands still can stand still, or whether its encoder must be stuck."""

from __future__ import annotations

import numpy as np

from sysid_ros.core.model.box import Box
from sysid_ros.core.model.robot import INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.regressors import TorqueRegressor
from sysid_ros.drivers.arm import Array

_WINDOW_SECONDS = 0.02
"""Torques and accelerations are means over so long."""
_LOOSE_SECONDS = 0.01
"""So long nothing may be able to hold a joint before a reading that stands still is not believed."""


class FrictionHold:
    """Compares the torque of a joint whose reading stands still with what could hold it.

    If the reading is right, ``tau = L + beta + f`` with ``|f| <= F_c`` and the load L: gravity and what the motion of
    all joints asks of this one. L is linear in the parameters and known but for their boxes, with accelerations from
    measured velocities over a window. So between the window in which the reading changed last and the present one the
    torque has changed by no more than ``2 F_c``, less in the direction in which the joint moved then, and the change of
    the load (viscous friction added). Where it has changed by more, for a while, the joint moves whatever its reading
    says: a controller that gets no answer drives it further and further. A sensor behind the gear measures the load
    itself: then ``|tau - beta - measured| <= F_c`` within its error. A sensor before the gear tells whether the motor
    obeys: the torque it measures must have changed as much, too. To be told of every cycle; :meth:`restart` where some
    were left out.

    Args:
        robot: The arm.
        period: Duration of a cycle [s].
    """

    def __init__(self, robot: RobotModel, period: float):
        n, self._robot = robot.n, robot
        self._measures_load = robot.sensors.effort_meaning is EffortMeaning.LINK_SIDE
        self._regressor = TorqueRegressor(robot, EffortMeaning.LINK_SIDE)
        self._length = max(5, round(_WINDOW_SECONDS / period))
        self._loose_cycles = max(5, round(_LOOSE_SECONDS / period))
        self._duration = self._length * period
        self._sums = np.zeros((self._length + 2, 4, n))  # running sums of q, v, tau, effort
        self._speeds = np.zeros((self._length + 2, n))
        # What a velocity that is measured wrong by as much as it may be makes of the acceleration over a window.
        self._acceleration_error = 2.0 * robot.sensors.velocity_error / self._duration
        self.restart()

    def set_boxes(self, theta_box: Box, payload_box: Box) -> None:
        """Takes the boxes of the arm's parameters, (14 n,), and of the payload's, (10,)."""
        robot, n = self._robot, self._robot.n
        lower, upper = (box[: INERTIAL * n].copy() for box in (theta_box.lower, theta_box.upper))
        last = robot.inertial_slice(n)
        lower[last] += payload_box.lower
        upper[last] += payload_box.upper
        self._middle, self._radius = 0.5 * (lower + upper), 0.5 * (upper - lower)
        self._friction, self._viscous, self._armature, offset = robot.friction(theta_box.upper).T
        self._least_friction = robot.friction(theta_box.lower)[:, 0]
        self._offset = np.stack([robot.friction(theta_box.lower)[:, 3], offset])
        self.restart()

    def restart(self) -> None:
        """Forgets what was seen."""
        n = self._robot.n
        self._cycles = 0
        self._sums[:] = 0.0
        self._last = np.full(n, np.nan)
        self._still, self._loose = np.zeros((2, n), dtype=int)
        self._excess, self._joint = np.zeros(n), 0
        self._before = np.zeros((3, n, n))  # mean position, velocity and acceleration, by joint that moved last then
        self._room = np.zeros((2, n))  # by how much friction can have grown and fallen since then
        self._torques_before = np.zeros((2, n))  # mean of the commanded torque and of the measured effort

    def note(self, q: Array, v: Array, tau: Array, effort: Array) -> None:
        """Takes in a cycle.

        Args:
            q: Measured positions, (n,) [rad].
            v: Measured velocities, (n,) [rad/s].
            tau: Torques that act, (n,) [Nm].
            effort: Measured efforts, (n,) [Nm].
        """
        size = self._length + 2
        now = self._cycles % size
        np.add(self._sums[now - 1], (q, v, tau, effort), out=self._sums[now])
        self._speeds[now] = v
        self._cycles += 1
        self._still = np.where(q == self._last, self._still + 1, 0)
        self._last = q
        if self._cycles < size:
            return
        has_stopped = self._still == 1 if self._cycles > size else np.full(q.size, True)
        if has_stopped.any():
            self._before[:, has_stopped] = self._mean_state(now - 1)[:, None]
            self._torques_before[:, has_stopped] = self._mean_torques(now - 1)[:, has_stopped]
            self._room[:, has_stopped] = self._find_room(now)[:, has_stopped]
        torques = self._mean_torques(now)
        change = torques[0] - self._torques_before[0]
        is_suspect = (change > self._room[0]) | (change < -self._room[1])
        if self._measures_load:
            excess = self._excess_by_sensor(*torques)
            is_suspect |= excess > 0.0
        is_suspect &= self._still >= self._length
        self._loose *= is_suspect
        if not is_suspect.any():
            return
        # Looking at one takes a while: one after the other.
        joint = self._joint = next(k for k in (*range(self._joint + 1, q.size), *range(q.size)) if is_suspect[k])
        model = self._excess_by_model(joint, self._mean_state(now), torques[:, joint])
        self._excess[joint] = max(model, excess[joint]) if self._measures_load else model
        self._loose[joint] = self._loose[joint] + np.count_nonzero(is_suspect) if self._excess[joint] > 0.0 else 0

    def is_possible(self, joint: int) -> bool:
        """Whether this joint may truly stand still."""
        return bool(self._loose[joint] < self._loose_cycles)

    def find_loose_joint(self) -> str:
        """Why a joint cannot stand still although its reading does, empty if all can."""
        worst = int(self._loose.argmax())
        if self._loose[worst] < self._loose_cycles:
            return ""
        return (
            f"the position of {self._robot.joint_names[worst]} has not changed although its torque is "
            f"{self._excess[worst]:.2f} Nm beyond what load and friction (at most {self._friction[worst]:.2f} Nm) can "
            "explain: the encoder is stuck, something holds the joint, or the load is another one"
        )

    def _find_room(self, now: int) -> Array:
        """By how much friction of a joint that comes to rest now can grow and fall, (2, n): less where it is known.

        A joint that has surely moved in one direction all the time has had nearly all friction in that direction.
        """
        speeds = np.delete(self._speeds, now, axis=0)  # a frozen reading says that it rests now
        error = self._robot.sensors.velocity_error
        known = np.stack([(speeds > error).all(axis=0), (speeds < -error).all(axis=0)])
        return np.where(known, self._friction - self._least_friction, 2.0 * self._friction)

    def _mean_torques(self, end: int) -> Array:
        """Torque and effort over the window that ends there, (2, n)."""
        means: Array = (self._sums[end, 2:] - self._sums[end - self._length, 2:]) / self._length
        return means

    def _mean_state(self, end: int) -> Array:
        """Position, velocity and acceleration over the window that ends there, (3, n)."""
        q, v = (self._sums[end, :2] - self._sums[end - self._length, :2]) / self._length
        return np.stack([q, v, (self._speeds[end] - self._speeds[end - self._length]) / self._duration])

    def _excess_by_sensor(self, tau: Array, effort: Array) -> Array:
        sensors = self._robot.sensors
        # The true load t has |t - effort| <= relative |t| + absolute.
        relative, absolute = sensors.effort_relative_error, sensors.effort_absolute_error
        error = (relative * np.abs(effort) + absolute) / (1.0 - relative)
        rest = tau - effort - self._offset  # friction, for the smallest and the largest offset
        nearest = np.where(rest[0] * rest[1] <= 0.0, 0.0, np.abs(rest).min(axis=0))
        excess: Array = nearest - self._friction - error
        return excess

    def _excess_by_model(self, joint: int, present: Array, torques: Array) -> float:
        n = self._robot.n
        states = np.empty((3, n + 3, n))  # before, now, now at rest, now at rest but for one acceleration each
        states[:, 0], states[:, 1:] = self._before[:, joint], present[:, None]
        states[1:, 2:] = 0.0
        states[2, 3:] = np.diag(self._acceleration_error)
        q, v, a = states
        before, after, still, *tilted = self._regressor.evaluate(q, v, a)[:, joint, : self._middle.size]
        # Both accelerations may be wrong, each by the errors of all joints at once.
        slopes = np.subtract(tilted, still)
        wrong = 2.0 * (np.abs(slopes @ self._middle) + np.abs(slopes) @ self._radius).sum()
        own = self._armature[joint] * (np.abs(a[:2, joint]).sum() + 2.0 * self._acceleration_error[joint])
        change = after - before
        viscous = self._viscous[joint] * np.abs(v[:2, joint]).sum()
        unknown = np.abs(change) @ self._radius + wrong + own + viscous
        rest = torques - self._torques_before[:, joint] - change @ self._middle
        excess = np.maximum(rest - self._room[0, joint], -rest - self._room[1, joint]) - unknown
        sensors = self._robot.sensors
        if self._measures_load:
            return float(excess[0])
        efforts = np.abs([torques[1], self._torques_before[1, joint]])
        error = (sensors.effort_relative_error[joint] * efforts + sensors.effort_absolute_error[joint]).sum()
        return float(min(excess[0], excess[1] - error))
