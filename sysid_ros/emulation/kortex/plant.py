"""The arm behind the emulated base: MuJoCo physics and the inner loops of the actuators, 1 ms at a time.

An actuator holds a position or applies a torque. It holds with the true gravity: the integral part of a position
controller would have found it. There is no compensation of gravity or friction under torque control; the inner velocity
and current loops of a real actuator are not modelled: the torque commanded is the torque of the motor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import Array
from sysid_ros.emulation.plant import PERIOD, EmulatedPlant, PlantSettings


@dataclass(frozen=True)
class Measured:
    """What the actuators measure at the end of a period; arrays are (n,).

    Attributes:
        q: Positions [rad].
        v: Velocities [rad/s].
        tau: Torques with the sign that is reported [Nm].
    """

    q: Array
    v: Array
    tau: Array


class EmulatedArm(EmulatedPlant):
    """One simulated arm.

    Args:
        robot: What is known of the arm.
        theta: Its true parameters, (14 n,).
        payload: Its true payload about the frame of the last joint, (10,); None for none.
        settings: How it is simulated.
    """

    def __init__(
        self, robot: RobotModel, theta: Array, payload: Array | None = None, settings: PlantSettings | None = None
    ):
        super().__init__(robot, theta, payload, settings or PlantSettings())

    def advance(self, q_hold: Array, is_torque: Array, tau: Array) -> Measured:
        """Simulates one period and measures at its end.

        Args:
            q_hold: Positions to hold, (n,) [rad], unwrapped.
            is_torque: Which actuators apply torques instead, (n,) bool.
            tau: Those torques in joint direction, (n,) [Nm].
        """
        q, v, limit = self.q, self.v, self.robot.limits.tau_max
        applied = self.settings.command_sign * np.clip(tau, -limit, limit)
        if not is_torque.all():
            applied = np.where(is_torque, applied, self._holding_torque(q, v, q_hold))
        self._step(applied)
        effort = self._true.mean_torque((q, v), (self.q, self.v), PERIOD) if self._is_link_side else applied
        _, position, velocity, effort = self._sensors.measure(0, self.q, self.v, effort)
        return Measured(position, velocity, self.settings.measured_sign * effort)
