"""Joint sensors as imperfect as the sensor model allows, and no worse."""

from __future__ import annotations

from enum import Enum

import numpy as np

from sysid_ros.core.model.robot import SensorModel
from sysid_ros.drivers.arm import Array

_BLOCK = 1024


class Noise(Enum):
    """How the allowed errors are used.

    ``NONE``: ideal sensors without quantisation. ``UNIFORM``: independent errors, uniform within their bounds.
    ``ADVERSARIAL``: largest effort and velocity errors of constant sign per joint, an offset that grows with the
    effort. ``GAIN``: as before, but the effort error is a constant wrong gain plus a constant offset, the worst case
    for a mass.
    """

    NONE = "none"
    UNIFORM = "uniform"
    ADVERSARIAL = "adversarial"
    GAIN = "gain"


class SensorSimulation:
    """Turns true joint values into measured ones.

    The errors obey ``|error of q| <= position_resolution / 2``, ``|error of v| <= velocity_error``,
    ``|error of tau| <= effort_relative_error |true tau| + effort_absolute_error`` and
    ``|error of the stamp| <= stamp_jitter``.

    Args:
        sensors: The bounds.
        noise: How they are used.
        seed: Seed of all random numbers.
    """

    def __init__(self, sensors: SensorModel, noise: Noise, seed: int):
        self._noise = noise
        self._sensors = sensors
        self._rng = np.random.default_rng(seed)
        self._n = sensors.velocity_error.size
        self._is_quantised = sensors.position_resolution > 0.0
        self._resolution = np.where(self._is_quantised, sensors.position_resolution, 1.0)
        # One sign per joint for the gain, the offset and the velocity error.
        self._signs = self._rng.choice((-1.0, 1.0), size=(3, self._n))
        self._random = iter(())

    def measure(self, stamp_ns: int, q: Array, v: Array, tau: Array) -> tuple[int, Array, Array, Array]:
        """One measurement.

        Args:
            stamp_ns: True time [ns].
            q: True positions, (n,) [rad].
            v: True velocities, (n,) [rad/s].
            tau: True efforts, (n,) [Nm].

        Returns:
            Measured time [ns], positions [rad], velocities [rad/s] and efforts [Nm].
        """
        if self._noise is Noise.NONE:
            return stamp_ns, q.copy(), v.copy(), tau.copy()
        s, n = self._sensors, self._n
        random = self._draw()
        jitter_ns = int(random[-1] * s.stamp_jitter * 1e9)
        position = np.where(self._is_quantised, np.round(q / self._resolution) * self._resolution, q)
        gain, offset, speed = random[: 3 * n].reshape(3, n) if self._noise is Noise.UNIFORM else self._signs
        if self._noise is Noise.ADVERSARIAL:
            gain = np.sign(tau) * offset
        effort = tau * (1.0 + s.effort_relative_error * gain) + s.effort_absolute_error * offset
        # No time before the epoch, which ROS could not express.
        return max(0, stamp_ns + jitter_ns), position, v + s.velocity_error * speed, effort

    def _draw(self) -> Array:
        """Random numbers of one sample, (3 n + 1,) in [-1, 1); drawn in blocks, which is ten times as fast."""
        row = next(self._random, None)
        if row is None:
            self._random = iter(self._rng.uniform(-1.0, 1.0, (_BLOCK, 3 * self._n + 1)))
            row = next(self._random)
        return row
