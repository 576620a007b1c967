"""Samples of the reference motion on the grid of the kernels (step 7 of the proof).

With a history the samples begin with the executed part of the predecessors, and the controller's nominal payload, too,
is a function of time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.tracking_bound.loop_response import BIN, BoundNotAvailable
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.core.trajectories.braking import BrakedTrajectory
from sysid_ros.core.trajectories.families import BezierTrajectory, FourierTrajectory

Array = NDArray[np.float64]

Jump = tuple[int, Array, Array]
Motion = Trajectory | ArrayLike
"""A trajectory, or a posture (n,) [rad] to hold."""

_REST = 1e-6
"""Start velocity that counts as rest [rad/s]."""
_CONTINUITY = 1e-6
"""Largest difference of a motion's start from the state at the takeover [rad, rad/s, rad/s^2]."""
_ROUNDING = 1e-9
"""Relative rounding error of frequencies and durations."""
_AFTERWARDS = 0.5
"""Time at rest after a trajectory that the bound covers [s]."""
_HIGHEST_FREQUENCY = 10.0
"""Highest frequency in the accelerations of a motion [Hz]."""
_SAMPLES = 10
"""Least number of samples per oscillation: with half as many, bounds may be too small by a fifth instead of by 5 %."""
_WAVES = 2.0
"""Oscillations in a polynomial motion: its acceleration, a cubic, changes its sign up to three times."""
_STOP_WAVES = 1.0
"""Oscillations in a stop: rate and slowdown of the clock are half an oscillation each."""


@dataclass(frozen=True)
class MotionSamples:
    """Nodes of a motion, a step apart, with an interval between each two.

    Before the first node the arm rests, unless the samples reach back further than the horizon of the kernels.

    Attributes:
        q: Positions, (N, n) [rad].
        v: Velocities, (N, n) [rad/s].
        a: Accelerations, (N, n) [rad/s^2].
        payload: Nominal payload of the controller, (N, 10).
        step: Time between nodes [s].
        jumps: Jumps of the acceleration: number of the interval and the accelerations (n,) before and after.
        past: Number of intervals that belong to predecessors.
        payload_goal: Nominal payload the controller is blending to, (10,); None for that of the last node.
        blend_left: Time from the last node until the controller has reached it [s]; negative if before.
    """

    q: Array
    v: Array
    a: Array
    payload: Array
    step: float
    jumps: tuple[Jump, ...]
    past: int = 0
    payload_goal: Array | None = None
    blend_left: float = 0.0

    @property
    def goal(self) -> Array:
        """Nominal payload the controller is blending to, (10,)."""
        return self.payload[-1] if self.payload_goal is None else self.payload_goal

    def slopes(self, values: Array) -> Array:
        """Compute the slopes of values (N, ...) over the intervals, (N - 1, ...)."""
        slopes: Array = np.diff(values, axis=0) / self.step
        return slopes

    def every(self, stride: int) -> MotionSamples:
        """Keep every ``stride``-th node and the last one."""
        last = len(self.q) - 1
        chosen = np.minimum(np.arange(0, last + stride, stride), last)
        jumps = tuple((interval // stride, before, after) for interval, before, after in self.jumps)
        q, v, a, payload = (x[chosen] for x in (self.q, self.v, self.a, self.payload))
        return MotionSamples(q, v, a, payload, stride * self.step, jumps, self.past // stride)

    def last(self, until: int, intervals: int) -> MotionSamples:
        """Keep at most ``intervals`` intervals before the node ``until``, as the past of a successor."""
        begin = max(0, until - intervals)
        jumps = tuple((i - begin, before, after) for i, before, after in self.jumps if begin <= i < until)
        q, v, a, payload = (x[begin : until + 1] for x in (self.q, self.v, self.a, self.payload))
        left = self.blend_left + self.step * (len(self.q) - 1 - until)
        return MotionSamples(q, v, a, payload, self.step, jumps, until - begin, self.payload_goal, left)


def sample_motion(
    motion: Motion,
    n: int,
    settings: RobustSettings,
    payload: Array | None = None,
    past: MotionSamples | None = None,
) -> MotionSamples:
    """Sample a motion.

    Args:
        motion: Trajectory or posture (n,) [rad].
        n: Number of joints.
        settings: Timing of the controller: a sample for each bin of the kernels, and how long it takes to change its
            nominal payload.
        payload: Nominal payload of the controller, (10,); zero if None.
        past: Samples of the predecessors; the motion starts in their last state.

    Raises:
        BoundNotAvailable: The motion is too fast for these samples.
        ParameterOutOfRange: The motion is for another number of joints, not finite, or does not start at rest or in
            the last state of the past.
    """
    step = BIN * settings.period
    payload = np.zeros(10) if payload is None else np.asarray(payload, dtype=float)
    times, q, v, a, end = _sample_states(motion, n, step, past is not None)
    rest = np.zeros(n)
    jumps: list[Jump] = [] if end is None else [(end[0], end[1], rest)]
    if past is None:
        if np.abs(v[0]).max() > _REST:
            raise ParameterOutOfRange("start velocity [rad/s]", v[0].tolist(), "0: a motion that starts at rest")
        starts = rest
        payloads = np.repeat(payload[None], len(q), axis=0)
    else:
        _require_continuity(past, q[0], v[0])
        starts = past.a[-1]
        # Blending to the same payload goes on; to another one, it begins anew from the one in use.
        blend_left = past.blend_left if np.array_equal(payload, past.goal) else settings.blend_time
        share = np.minimum(times / blend_left, 1.0) if blend_left > 0.0 else np.ones_like(times)
        payloads = past.payload[-1] + share[:, None] * (payload - past.payload[-1])
        payloads[share >= 1.0] = payload
    if np.abs(a[0] - starts).max() > (0.0 if past is None else _CONTINUITY):
        jumps.insert(0, (0, starts.copy(), a[0].copy()))
    if past is None:
        return MotionSamples(q, v, a, payloads, step, tuple(jumps), payload_goal=payload)
    old = len(past.q) - 1
    q, v, a, payloads = (
        np.concatenate([before[:-1], after])
        for before, after in ((past.q, q), (past.v, v), (past.a, a), (past.payload, payloads))
    )
    all_jumps = (*past.jumps, *((old + i, x, y) for i, x, y in jumps))
    return MotionSamples(q, v, a, payloads, step, all_jumps, old, payload, blend_left - times[-1])


def _sample_states(
    motion: Motion, n: int, step: float, is_long: bool
) -> tuple[Array, Array, Array, Array, tuple[int, Array] | None]:
    """Return times, states, and, where the motion ends with an acceleration, the interval and that acceleration."""
    if not isinstance(motion, Trajectory):
        q = np.array(motion, dtype=float)
        if q.shape != (n,) or not np.isfinite(q).all():
            raise ParameterOutOfRange("posture [rad]", motion, f"{n} finite numbers")
        times = step * np.arange(int(np.ceil(_AFTERWARDS / step)) + 1 if is_long else 2, dtype=np.float64)
        still = np.zeros((len(times), n))
        return times, np.tile(q, (len(times), 1)), still, still.copy(), None
    if motion.n != n:
        raise ParameterOutOfRange("number of joints of the trajectory", motion.n, str(n))
    _require_resolved(motion, step)
    count = int(np.ceil((motion.duration + _AFTERWARDS) / step))
    times = step * np.arange(count + 1, dtype=np.float64)
    before_end = np.nextafter(motion.duration, 0.0)
    q, v, a = motion.sample(np.minimum(times, before_end))
    over = times > motion.duration
    end = a[-1].copy()
    v[over] = a[over] = 0.0
    return times, q, v, a, (int(np.argmax(over)) - 1, end) if np.abs(end).max() > _CONTINUITY else None


def _require_resolved(motion: Trajectory, step: float) -> None:
    """Refuse motions that change too fast between two samples for the 5 % of margin to cover it."""
    highest = min(_HIGHEST_FREQUENCY, 1.0 / (_SAMPLES * step))
    sampled = f"samples {1e3 * step:g} ms apart do not resolve it"
    path = motion
    while isinstance(path, BrakedTrajectory):
        _require_long("stops within", path.brake_time, _STOP_WAVES / highest, sampled)
        path = path.trajectory
    if isinstance(path, FourierTrajectory):
        used = np.flatnonzero(np.any((path.sine != 0.0) | (path.cosine != 0.0), axis=0))
        frequency = path.base_frequency * (used[-1] + 1) if used.size else 0.0
        if frequency > highest * (1.0 + _ROUNDING):
            raise BoundNotAvailable(
                f"the highest harmonic of the motion has {frequency:g} Hz, at most {highest:g} Hz are allowed: "
                f"{sampled}"
            )
    elif isinstance(path, BezierTrajectory):
        _require_long("lasts", path.duration, _WAVES / highest, sampled)
    else:
        raise BoundNotAvailable(f"the highest frequency of a motion of the kind '{path.kind}' is not known")


def _require_long(what: str, duration: float, shortest: float, why: str) -> None:
    if duration < shortest * (1.0 - _ROUNDING):
        raise BoundNotAvailable(f"the motion {what} {duration:g} s, at least {shortest:g} s are needed: {why}")


def _require_continuity(past: MotionSamples, q: Array, v: Array) -> None:
    for name, end, start in (("position [rad]", past.q[-1], q), ("velocity [rad/s]", past.v[-1], v)):
        if not np.abs(end - start).max() <= _CONTINUITY:
            raise ParameterOutOfRange(f"start {name}", start.tolist(), f"the state at the takeover, {end.tolist()}")


def larger_neighbour(values: Array) -> Array:
    """Return the larger of the values at the two nodes of each interval, (N, ...) to (N - 1, ...)."""
    return np.maximum(values[:-1], values[1:])
