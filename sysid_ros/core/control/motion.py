"""A reference motion as samples on the grid of the kernels: what a tracking bound is computed along.

With a history the samples begin with what has been executed before; the controller's nominal payload, too, is a
function of time then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.errors import ParameterOutOfRange
from sysid_ros.core.planning.base import Trajectory

Array = NDArray[np.float64]

Jump = tuple[int, Array, Array]
Motion = Trajectory | ArrayLike
"""A trajectory, or a posture (n,) [rad] that is held."""

_REST = 1e-6
"""Start velocity that counts as rest [rad/s]."""
_CONTINUITY = 1e-6
"""By how much a motion may miss the state in which the one before is left [rad, rad/s, rad/s^2]."""
_AFTERWARDS = 0.5
"""Time at rest after a trajectory that is looked at too [s]."""


@dataclass(frozen=True)
class MotionSamples:
    """Nodes of a motion, a step apart; between two nodes lies an interval.

    Before the first node the arm rests there, unless the past reaches back further than the loop remembers.

    Attributes:
        q: Positions, (N, n) [rad].
        v: Velocities, (N, n) [rad/s].
        a: Accelerations, (N, n) [rad/s^2].
        payload: Nominal payload of the controller, (N, 10).
        step: Time between nodes [s].
        jumps: Jumps of the acceleration: number of the interval and the accelerations (n,) before and after.
        past: Number of intervals that have been executed already.
    """

    q: Array
    v: Array
    a: Array
    payload: Array
    step: float
    jumps: tuple[Jump, ...]
    past: int = 0

    def slopes(self, values: Array) -> Array:
        """Slopes of values (N, ...) over the intervals, (N - 1, ...)."""
        return np.diff(values, axis=0) / self.step

    def every(self, stride: int) -> MotionSamples:
        """Every few nodes only; the intervals left over at the end are given another node at the last one."""
        chosen = self.chosen(stride)
        jumps = tuple((interval // stride, before, after) for interval, before, after in self.jumps)
        parts = (x[chosen] for x in (self.q, self.v, self.a, self.payload))
        return MotionSamples(*parts, stride * self.step, jumps, self.past // stride)

    def chosen(self, stride: int) -> NDArray[np.intp]:
        """The nodes that :meth:`every` keeps."""
        nodes = len(self.q)
        return np.minimum(np.arange(0, nodes - 1 + stride, stride), nodes - 1)

    def last(self, until: int, intervals: int) -> MotionSamples:
        """At most so many intervals before a node."""
        begin = max(0, until - intervals)
        jumps = tuple((i - begin, before, after) for i, before, after in self.jumps if begin <= i < until)
        parts = (x[begin : until + 1] for x in (self.q, self.v, self.a, self.payload))
        return MotionSamples(*parts, self.step, jumps, until - begin)


def sample_motion(
    motion: Motion,
    n: int,
    step: float,
    payload: Array | None = None,
    past: MotionSamples | None = None,
    blend_time: float = 0.0,
) -> MotionSamples:
    """Samples a motion.

    Args:
        motion: Trajectory or posture (n,) [rad].
        n: Number of joints.
        step: Time between samples [s].
        payload: Nominal payload of the controller, (10,); zero if None.
        past: What has been executed before; the motion starts in its last state.
        blend_time: Time the controller takes to change its nominal payload [s].

    Raises:
        ParameterOutOfRange: The motion is for another number of joints, not finite, does not start at rest, or not
            where the past ends.
    """
    payload = np.zeros(10) if payload is None else np.asarray(payload, dtype=float)
    times, q, v, a, end = _states(motion, n, step, past is not None)
    rest = np.zeros(n)
    jumps = [] if end is None else [(end[0], end[1], rest)]
    if past is None:
        if np.abs(v[0]).max() > _REST:
            raise ParameterOutOfRange("start velocity [rad/s]", v[0].tolist(), "0: a motion that starts at rest")
        starts, head = rest, ()
        payloads = np.repeat(payload[None], len(q), axis=0)
    else:
        _require_continuity(past, q[0], v[0])
        starts, head = past.a[-1], past.jumps
        share = np.minimum(times / blend_time, 1.0) if blend_time > 0.0 else np.ones_like(times)
        payloads = past.payload[-1] + share[:, None] * (payload - past.payload[-1])
    if np.abs(a[0] - starts).max() > (0.0 if past is None else _CONTINUITY):
        jumps.insert(0, (0, starts.copy(), a[0].copy()))
    if past is None:
        return MotionSamples(q, v, a, payloads, step, tuple(jumps))
    old = len(past.q) - 1
    parts = (
        np.concatenate([before[:-1], after])
        for before, after in ((past.q, q), (past.v, v), (past.a, a), (past.payload, payloads))
    )
    return MotionSamples(*parts, step, (*head, *((old + i, x, y) for i, x, y in jumps)), old)


def _states(
    motion: Motion, n: int, step: float, is_long: bool
) -> tuple[Array, Array, Array, Array, tuple[int, Array] | None]:
    """Times, states, and, where the motion ends with an acceleration, the interval and that acceleration."""
    if not isinstance(motion, Trajectory):
        q = np.array(motion, dtype=float)
        if q.shape != (n,) or not np.isfinite(q).all():
            raise ParameterOutOfRange("posture [rad]", motion, f"{n} finite numbers")
        times = step * np.arange(int(np.ceil(_AFTERWARDS / step)) + 1 if is_long else 2)
        still = np.zeros((len(times), n))
        return times, np.tile(q, (len(times), 1)), still, still.copy(), None
    if motion.n != n:
        raise ParameterOutOfRange("number of joints of the trajectory", motion.n, str(n))
    count = int(np.ceil((motion.duration + _AFTERWARDS) / step))
    times = step * np.arange(count + 1)
    before_end = np.nextafter(motion.duration, 0.0)
    q, v, a = motion.sample(np.minimum(times, before_end))
    over = times > motion.duration
    end = a[-1].copy()
    v[over] = a[over] = 0.0
    return times, q, v, a, (int(np.argmax(over)) - 1, end) if np.abs(end).max() > _CONTINUITY else None


def _require_continuity(past: MotionSamples, q: Array, v: Array) -> None:
    for name, end, start in (("position [rad]", past.q[-1], q), ("velocity [rad/s]", past.v[-1], v)):
        if not np.abs(end - start).max() <= _CONTINUITY:
            raise ParameterOutOfRange(f"start {name}", start.tolist(), f"where the past ends, {end.tolist()}")


def larger_neighbour(values: Array) -> Array:
    """The larger of the values at the two nodes of each interval, (N, ...) to (N - 1, ...)."""
    return np.maximum(values[:-1], values[1:])
