"""How an arm comes to rest once the loop has given it up: balanced and damped, then handed over."""

from __future__ import annotations

import numpy as np

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.loop_types import LoopSettings

_REST_SPEED = 0.02
"""Speed below which the arm counts as resting [rad/s]."""
_REST_CYCLES = 20


class FaultStop:
    """Damps an arm until it rests or its time is up.

    Args:
        robot: Torque and speed limits, which set the damping.
        settings: Damping and times.
        period: Duration of a cycle [s].
    """

    def __init__(self, robot: RobotModel, settings: LoopSettings, period: float):
        self._damping = settings.fault_damping * robot.limits.tau_max / robot.limits.v_max
        self._settings = settings
        self._period = period
        self.start(is_blind=False)

    def start(self, is_blind: bool) -> None:
        """Begins; ``is_blind`` says that a measurement is wrong although it looks right (a stuck encoder)."""
        self._is_blind = is_blind
        self._time, self._rest_cycles = 0.0, 0

    def is_over(self, v: Array, is_valid: bool) -> bool:
        """Whether to hand the arm over; to be asked once per cycle.

        Args:
            v: Last known velocities, (n,) [rad/s].
            is_valid: Whether they are of this cycle.
        """
        is_resting = is_valid and np.abs(v).max() < _REST_SPEED
        self._rest_cycles = self._rest_cycles + 1 if is_resting else 0
        self._time += self._period
        settings = self._settings
        is_blind = self._is_blind or not is_valid
        limit = settings.fault_blind_time if is_blind else settings.fault_damping_time
        return self._rest_cycles >= _REST_CYCLES or self._time > limit

    def torque(self, balance: Array, v: Array, is_valid: bool) -> Array:
        """The torque, (n,) [Nm]: what balances the arm, and damping where the velocity is known."""
        return balance - self._damping * v if is_valid else balance
