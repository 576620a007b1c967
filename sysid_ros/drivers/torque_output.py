"""The last step before a motor: torque goes over smoothly where its source changes, and never exceeds its limit."""

from __future__ import annotations

import numpy as np

from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.reference import fade_out


class TorqueOutput:
    """Blends and limits torques.

    Args:
        tau_max: Torque limits, (n,) [Nm].
        blend_time: Duration of a blend [s].
        period: Duration of a cycle [s].

    Attributes:
        last: Torque of the last cycle, (n,) [Nm].
        saturated_cycles: Cycles in which a limit cut the torque.
        blend_left: Time until the present blend ends [s]; 0 without one.
    """

    def __init__(self, tau_max: Array, blend_time: float, period: float):
        self._limit = tau_max
        self._blend_time = blend_time
        self._period = period
        self._from: Array | None = None
        self._difference = np.zeros_like(tau_max)
        self.blend_left = 0.0
        self.last = np.zeros_like(tau_max)
        self.saturated_cycles = 0

    def start_blend(self, tau: Array) -> None:
        """Lets the next torques start from ``tau`` (n,) [Nm]; does nothing where it is not finite."""
        if np.all(np.isfinite(tau)):
            self._from, self.blend_left = np.array(tau), self._blend_time

    def blend(self, tau: Array) -> Array:
        """The torque (n,) [Nm] with what is left of the difference to the one blended from."""
        if self.blend_left <= 0.0:
            return tau
        if self._from is not None:
            self._difference, self._from = self._from - tau, None
        share = fade_out(1.0 - self.blend_left / self._blend_time)[0]
        self.blend_left -= self._period
        return tau + share * self._difference

    def limit(self, tau: Array) -> Array:
        """The torque (n,) [Nm] within its limits; counts cuts and remembers the result."""
        self.last = np.minimum(np.maximum(tau, -self._limit), self._limit)
        if (self.last != tau).any():
            self.saturated_cycles += 1
        return self.last
