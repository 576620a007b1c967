"""What another controller does with an arm that is only watched: smooth motions about home."""

from __future__ import annotations

import numpy as np

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import Array

_HARMONICS = 3
_BASE_FREQUENCY = 0.15
_RAMP = 2.0


class HomeMotion:
    """Sums of sines about home, which begin gently and go on for ever.

    Args:
        robot: Home, limits.
        seed: Of amplitudes and phases.
        speed: Largest speed over the limit of each joint [-].
        reach: Largest distance from home [rad].
        start: When it begins [s].
    """

    def __init__(self, robot: RobotModel, seed: int = 0, speed: float = 0.4, reach: float = 0.5, start: float = 0.0):
        rng = np.random.default_rng((seed, 11))
        n = robot.n
        self._home, self._start = np.array(robot.home), start
        self._omega = 2.0 * np.pi * _BASE_FREQUENCY * np.arange(1, _HARMONICS + 1)[:, None] * rng.uniform(0.8, 1.2, n)
        amplitude = rng.uniform(0.3, 1.0, (_HARMONICS, n)) / np.arange(1, _HARMONICS + 1)[:, None]
        self._phase = rng.uniform(0.0, 2.0 * np.pi, (_HARMONICS, n))
        limits = robot.limits
        room = np.minimum(reach, 0.8 * np.minimum(limits.q_upper - robot.home, robot.home - limits.q_lower))
        # The ramp adds a third of the amplitude per second at most; half of every limit is left for it.
        most = np.min([
            np.maximum(room, 0.0) / amplitude.sum(axis=0),
            0.5 * speed * limits.v_max / (amplitude * self._omega).sum(axis=0),
            0.5 * speed * limits.a_max / (amplitude * self._omega**2).sum(axis=0),
        ], axis=0)  # fmt: skip
        self._amplitude = amplitude * most

    def evaluate(self, time: float) -> tuple[Array, Array, Array]:
        """Positions [rad], velocities [rad/s] and accelerations [rad/s^2], each (n,), at a time [s]."""
        t = max(0.0, time - self._start)
        angle = self._omega * t + self._phase
        q = (self._amplitude * np.sin(angle)).sum(axis=0)
        v = (self._amplitude * self._omega * np.cos(angle)).sum(axis=0)
        a = -(self._amplitude * self._omega**2 * np.sin(angle)).sum(axis=0)
        x = min(1.0, t / _RAMP)
        share = x**3 * (10.0 - 15.0 * x + 6.0 * x**2)
        rate = 30.0 * x**2 * (1.0 - x) ** 2 / _RAMP
        change = 60.0 * x * (1.0 - x) * (1.0 - 2.0 * x) / _RAMP**2
        return (
            self._home + share * q,
            share * v + rate * q,
            share * a + 2.0 * rate * v + change * q,
        )
