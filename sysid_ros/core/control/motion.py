"""A reference motion as samples on the grid of the kernels: what a tracking bound is computed along."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.errors import ParameterOutOfRange
from sysid_ros.core.planning.base import Trajectory

Array = NDArray[np.float64]

Motion = Trajectory | ArrayLike
"""A trajectory, or a posture (n,) [rad] that is held."""

_REST = 1e-6
"""Start velocity that counts as rest [rad/s]."""
_AFTERWARDS = 0.5
"""Time at rest after a trajectory that is looked at too [s]."""


@dataclass(frozen=True)
class MotionSamples:
    """Nodes of a motion, a step apart; between two nodes lies an interval. Before the first node the arm rests there.

    Attributes:
        q: Positions, (N, n) [rad].
        v: Velocities, (N, n) [rad/s].
        a: Accelerations, (N, n) [rad/s^2].
        step: Time between nodes [s].
        jumps: Jumps of the acceleration: number of the interval and the accelerations (n,) before and after.
    """

    q: Array
    v: Array
    a: Array
    step: float
    jumps: tuple[tuple[int, Array, Array], ...]

    def slopes(self, values: Array) -> Array:
        """Slopes of values (N, ...) over the intervals, (N - 1, ...)."""
        return np.diff(values, axis=0) / self.step


def sample_motion(motion: Motion, n: int, step: float) -> MotionSamples:
    """Samples a motion.

    Args:
        motion: Trajectory or posture (n,) [rad].
        n: Number of joints.
        step: Time between samples [s].

    Raises:
        ParameterOutOfRange: The motion is for another number of joints, not finite, or does not start at rest.
    """
    if not isinstance(motion, Trajectory):
        q = np.array(motion, dtype=float)
        if q.shape != (n,) or not np.isfinite(q).all():
            raise ParameterOutOfRange("posture [rad]", motion, f"{n} finite numbers")
        still = np.zeros((2, n))
        return MotionSamples(np.tile(q, (2, 1)), still, still, step, ())
    if motion.n != n:
        raise ParameterOutOfRange("number of joints of the trajectory", motion.n, str(n))
    count = int(np.ceil((motion.duration + _AFTERWARDS) / step))
    times = step * np.arange(count + 1)
    q, v, a = motion.sample(np.minimum(times, motion.duration))
    if np.abs(v[0]).max() > _REST:
        raise ParameterOutOfRange("start velocity [rad/s]", v[0].tolist(), "0: a motion that starts at rest")
    over = times > motion.duration
    end = a[-1].copy()
    v[over] = a[over] = 0.0
    rest = np.zeros(n)
    jumps = tuple(
        (interval, before, after)
        for interval, before, after in ((0, rest, a[0].copy()), (int(np.argmax(over)) - 1, end, rest))
        if (before != after).any()
    )
    return MotionSamples(q, v, a, step, jumps)


def larger_neighbour(values: Array) -> Array:
    """The larger of the values at the two nodes of each interval, (N, ...) to (N - 1, ...)."""
    return np.maximum(values[:-1], values[1:])
