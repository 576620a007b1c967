"""Samples of the reference motion on the grid of the kernels (step 7 of the proof).

With a history, the samples begin with the executed part of the predecessors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.tracking_bound.between import MotionRates
from sysid_ros.core.tracking_bound.scalar_loop import BIN, BoundNotAvailable
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.core.trajectories.braking import BrakedTrajectory
from sysid_ros.core.trajectories.families import DEGREE, BezierTrajectory, FourierTrajectory

Array = NDArray[np.float64]

Motion = Trajectory | ArrayLike
"""A trajectory, or a posture (n,) [rad] to hold."""

_CONTINUITY = 1e-6
"""Largest difference of a motion's start from the state at the takeover [rad, rad/s, rad/s^2]."""
_ROUNDING = 1e-9
"""Relative rounding error of frequencies and durations."""
_SAME_TIME = 1e-9
"""Difference of two times that counts as rounding [s]."""
_AFTERWARDS = 0.5
"""Time at rest after a trajectory that the bound covers [s]."""
_HIGHEST_FREQUENCY = 10.0
"""Highest frequency in the accelerations of a motion [Hz]."""
_SAMPLES = 10
"""Least number of samples per oscillation."""
SHORTEST_MOTION = 0.5
"""Shortest motion [s]: for shorter ones the factors on slowly varying terms have not been shown to be enough."""
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
        step: Time between nodes [s].
        rates: Largest velocity, acceleration, jerk and snap in the intervals.
        kinks: Jumps of the jerk at the nodes, or in the interval after them, (2, N, n) [rad/s^3].
        jumps: Jumps of the acceleration in the intervals or at their ends, (N - 1, n) [rad/s^2].
        past: Number of intervals that belong to predecessors.
    """

    q: Array
    v: Array
    a: Array
    step: float
    rates: MotionRates
    kinks: Array
    jumps: Array
    past: int = 0

    def slopes(self, values: Array) -> Array:
        """Compute the slopes of values (N, ...) over the intervals, (N - 1, ...)."""
        slopes: Array = np.diff(values, axis=0) / self.step
        return slopes

    def every(self, stride: int) -> MotionSamples:
        """Keep every ``stride``-th node and the last one."""
        chosen = coarse_nodes(len(self.q) - 1, stride)
        q, v, a = (x[chosen] for x in (self.q, self.v, self.a))
        kinks, jumps = self._kinks_over(chosen), np.add.reduceat(self.jumps, chosen[:-1], axis=0)
        at = np.stack([self.kinks[0, chosen], np.concatenate([kinks, np.zeros_like(q[:1])])])
        rates = self.rates_over(chosen)
        return MotionSamples(q, v, a, stride * self.step, rates, at, jumps, self.past // stride)

    def _kinks_over(self, nodes: NDArray[np.intp]) -> Array:
        """Add up the jumps of the jerk strictly between chosen nodes, (P, n)."""
        total = self.kinks.sum(axis=0)
        total[nodes] = self.kinks[1, nodes]
        inside: Array = np.add.reduceat(total[:-1], nodes[:-1], axis=0)
        return inside

    def rates_over(self, nodes: NDArray[np.intp]) -> MotionRates:
        """Return the largest rates between chosen nodes, the first and the last among them."""
        return MotionRates(*(np.maximum.reduceat(x, nodes[:-1], axis=0) for x in self.rates.orders))

    def curvature_over(self, nodes: NDArray[np.intp]) -> MotionRates:
        """Return rates with which ``h^2 / 8 max |f''|`` also covers jumps of jerk and acceleration between the nodes.

        A function whose slope jumps by s is within ``h s / 4`` of the straight line between its ends, one that itself
        jumps by s within s.
        """
        rates, width = self.rates_over(nodes), self.step * np.diff(nodes)[:, None]
        kinks, jumps = self._kinks_over(nodes), np.add.reduceat(self.jumps, nodes[:-1], axis=0)
        snap = rates.snap + 2.0 * kinks / width + 8.0 * jumps / width**2
        return replace(rates, jerk=rates.jerk + 2.0 * jumps / width, snap=snap)

    def last(self, until: int, intervals: int) -> MotionSamples:
        """Keep at most ``intervals`` intervals before the node ``until``, as the past of a successor."""
        begin = max(0, until - intervals)
        q, v, a = (x[begin : until + 1] for x in (self.q, self.v, self.a))
        kinks, jumps = self.kinks[:, begin : until + 1], self.jumps[begin:until]
        rates = MotionRates(*(x[begin:until] for x in self.rates.orders))
        return MotionSamples(q, v, a, self.step, rates, kinks, jumps, until - begin)


def sample_motion(
    motion: Motion,
    n: int,
    settings: RobustSettings,
    past: MotionSamples | None = None,
) -> MotionSamples:
    """Sample a motion.

    Args:
        motion: Trajectory or posture (n,) [rad].
        n: Number of joints.
        settings: Timing of the controller: there is a sample for each bin of the kernels.
        past: Samples of the predecessors; the motion starts in their last state.

    Raises:
        BoundNotAvailable: The motion is too fast for these samples.
        ParameterOutOfRange: The motion is for another number of joints, not finite, or does not start at rest or in
            the last state of the past.
    """
    step = BIN * settings.period
    times, q, v, a = _sample_states(motion, n, step, past is not None)
    rates, kinks, jumps, start = _bound_rates(motion, n, times)
    if past is None:
        if np.abs(v[0]).max() > 1e-6:  # [rad/s]
            raise ParameterOutOfRange("start velocity [rad/s]", v[0].tolist(), "0: a motion that starts at rest")
        whole = MotionSamples(q, v, a, step, rates, kinks, jumps)
        return _after_rest(whole, start) if start[0].max() > _CONTINUITY else whole
    _require_continuity(past, q[0], v[0])
    old = len(past.q) - 1
    change = np.abs(a[0] - past.a[-1]), start[1] + past.rates.jerk[-1]
    q, v, a = (np.concatenate([before[:-1], after]) for before, after in ((past.q, q), (past.v, v), (past.a, a)))
    rates = MotionRates(*(np.concatenate(both) for both in zip(past.rates.orders, rates.orders, strict=True)))
    kinks = np.concatenate([past.kinks[:, :-1], kinks], axis=1)
    jumps = np.concatenate([past.jumps, jumps])
    jumps[old - 1] += change[0]  # the node has the value after the jump
    kinks[0, old] += change[1]
    return MotionSamples(q, v, a, step, rates, kinks, jumps, old)


def _after_rest(samples: MotionSamples, start: Array) -> MotionSamples:
    """Put two intervals of rest before a motion that starts with an acceleration, which jumps in them."""

    def before(values: Array, first: Array) -> Array:
        return np.concatenate([np.repeat(first[None], 2, axis=0), values])

    still = np.zeros_like(samples.q[0])
    rates = MotionRates(*(before(x, still) for x in samples.rates.orders))
    kinks, jumps = np.stack([before(x, still) for x in samples.kinks]), before(samples.jumps, still)
    jumps[1], kinks[0, 2] = start
    q, v, a = before(samples.q, samples.q[0]), before(samples.v, still), before(samples.a, still)
    return replace(samples, q=q, v=v, a=a, rates=rates, kinks=kinks, jumps=jumps, past=2)


def coarse_nodes(last: int, stride: int) -> NDArray[np.intp]:
    """List every ``stride``-th node and the last one."""
    return np.minimum(np.arange(0, last + stride, stride), last)


def _sample_states(motion: Motion, n: int, step: float, is_long: bool) -> tuple[Array, Array, Array, Array]:
    if not isinstance(motion, Trajectory):
        q = np.array(motion, dtype=float)
        if q.shape != (n,) or not np.isfinite(q).all():
            raise ParameterOutOfRange("posture [rad]", motion, f"{n} finite numbers")
        times = step * np.arange(int(np.ceil(_AFTERWARDS / step)) + 1 if is_long else 2, dtype=np.float64)
        still = np.zeros((len(times), n))
        return times, np.tile(q, (len(times), 1)), still, still.copy()
    if motion.n != n:
        raise ParameterOutOfRange("number of joints of the trajectory", motion.n, str(n))
    _require_resolved(motion, step)
    count = int(np.ceil((motion.duration + _AFTERWARDS) / step))
    times = step * np.arange(count + 1, dtype=np.float64)
    q, v, a = motion.sample(np.minimum(times, np.nextafter(motion.duration, 0.0)))
    over = times > motion.duration
    v[over] = a[over] = 0.0
    return times, q, v, a


@dataclass(frozen=True)
class _Piece:
    """A smooth part of a motion."""

    begin: float  # Its start [s]
    end: float  # Its end [s]
    # Function of times (T,) that gives the derivatives 0 to 4 of the position, (5, T, n)
    derivatives: Callable[[Array], Array]
    largest: Array  # Bounds of the magnitudes of the derivatives 0 to 6, (7, n)


def _bound_rates(motion: Motion, n: int, times: Array) -> tuple[MotionRates, Array, Array, Array]:
    """Bound rates between the nodes, jumps of jerk and acceleration there, and those at the start, (2, n)."""
    count = len(times) - 1
    sizes, kinks, jumps = np.zeros((4, count, n)), np.zeros((2, count + 1, n)), np.zeros((count, n))
    before = start = np.zeros((2, n))  # acceleration and jerk
    pieces = _pieces(motion) if isinstance(motion, Trajectory) else []
    for piece in pieces:
        inside = np.clip(times, piece.begin, piece.end)
        is_met = (times[:-1] < piece.end) & (times[1:] > piece.begin)
        at = np.abs(piece.derivatives(inside)[1:])
        ends, sag = np.maximum(at[:, :-1], at[:, 1:]), np.diff(inside)[:, None] ** 2 / 8.0
        snap = ends[3] + sag * piece.largest[6]
        jerk = ends[2] + sag * piece.largest[5]
        found = np.stack([ends[0] + sag * jerk, ends[1] + sag * snap, jerk, snap])
        sizes = np.where(is_met[:, None], np.maximum(sizes, found), sizes)
        first, last = piece.derivatives(np.array([piece.begin, piece.end]))[2:4].swapaxes(0, 1)
        if piece is pieces[0]:
            start = np.abs(first)
        else:
            _note(times, piece.begin, np.abs(first - before), jumps, kinks)
        before = last
    if pieces:
        _note(times, pieces[-1].end, np.abs(before), jumps, kinks)
    return MotionRates(*sizes), kinks, jumps, start


def _note(times: Array, when: float, steps: Array, jumps: Array, kinks: Array) -> None:
    touching = np.flatnonzero((times[:-1] <= when + _SAME_TIME) & (times[1:] >= when - _SAME_TIME))
    jumps[touching] += steps[0]
    node = int(np.argmin(np.abs(times - when)))
    if abs(times[node] - when) <= _SAME_TIME:
        kinks[0, node] += steps[1]
    else:
        kinks[1, touching] += steps[1]


def _pieces(motion: Trajectory) -> list[_Piece]:
    """Divide a motion where its derivatives jump."""
    if isinstance(motion, BezierTrajectory):
        return [_bezier_piece(motion)]
    if isinstance(motion, FourierTrajectory):
        return [_fourier_piece(motion)]
    if not isinstance(motion, BrakedTrajectory):
        raise BoundNotAvailable(f"the highest frequency of a motion of the kind '{motion.kind}' is not known")
    path, begin, brake_time = _pieces(motion.trajectory), motion.t_brake, motion.brake_time
    result = [replace(piece, end=min(piece.end, begin)) for piece in path if piece.begin < begin]
    for piece in path:
        ends = [begin + brake_time * _inverse_clock((x - begin) / brake_time) for x in (piece.begin, piece.end)]
        if ends[1] > ends[0]:
            result.append(_braked_piece(piece, motion, ends[0], ends[1]))
    return result


def _inverse_clock(clock: float) -> float:
    """Return the time, as a share of the brake time, at which the clock of a stop has advanced so far, from 0 to 1."""
    if clock <= 0.0 or clock >= 0.5:
        return 0.0 if clock <= 0.0 else 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        x = 0.5 * (low + high)
        low, high = (x, high) if x - x**3 + 0.5 * x**4 < clock else (low, x)
    return high


def _bezier_piece(motion: BezierTrajectory) -> _Piece:
    order, total = np.arange(DEGREE + 1), motion.duration
    powers = [motion.power_coefficients]
    for taken in range(6):
        powers.append(np.concatenate([powers[taken][1:] * order[1:, None], np.zeros((1, motion.n))]) / total)

    def derivatives(times: Array) -> Array:
        basis = np.vander(times / total, DEGREE + 1, increasing=True)
        return np.stack([basis @ one for one in powers[:5]])

    return _Piece(0.0, total, derivatives, np.stack([np.abs(one).sum(axis=0) for one in powers]))


def _fourier_piece(motion: FourierTrajectory) -> _Piece:
    sine, cosine = motion.sine, motion.cosine
    omega = 2.0 * np.pi * motion.base_frequency * np.arange(1, motion.harmonics + 1)

    def derivatives(times: Array) -> Array:
        phase = np.multiply.outer(times, omega)
        sines, cosines = np.sin(phase), np.cos(phase)
        result = [sines @ (sine / omega).T + (1.0 - cosines) @ (cosine / omega).T]
        rising, falling = sine, cosine
        for _ in range(4):
            result.append(cosines @ rising.T + sines @ falling.T)
            rising, falling = falling * omega, -rising * omega
        return np.stack(result)

    amplitude = np.hypot(sine, cosine)
    return _Piece(
        0.0, motion.duration, derivatives, np.stack([(amplitude * omega ** (k - 1.0)).sum(axis=1) for k in range(7)])
    )


def _braked_piece(piece: _Piece, motion: BrakedTrajectory, begin: float, end: float) -> _Piece:
    t_brake, total = motion.t_brake, motion.brake_time

    def derivatives(times: Array) -> Array:
        x = ((times - t_brake) / total)[:, None]
        clock = (t_brake + total * (x - x**3 + 0.5 * x**4))[:, 0]
        s1, s2, s3 = 1.0 - x * x * (3.0 - 2.0 * x), -6.0 * x * (1.0 - x) / total, (12.0 * x - 6.0) / total**2
        return np.stack(_chain_rule(piece.derivatives(clock), (s1, s2, s3, 12.0 / total**3))[:5])

    clock = (1.0, 1.5 / total, 6.0 / total**2, 12.0 / total**3)
    return _Piece(begin, end, derivatives, np.stack(_chain_rule(piece.largest, clock)))


def _chain_rule(q: Array, clock: tuple[Array | float, ...]) -> list[Array]:
    """Differentiate ``q(s(t))``, with the derivatives 1 to 4 of the clock, the higher ones being zero.

    All coefficients are positive: bounds of the magnitudes give bounds.
    """
    s1, s2, s3, s4 = clock
    result = [
        q[0],
        q[1] * s1,
        q[2] * s1**2 + q[1] * s2,
        q[3] * s1**3 + 3.0 * q[2] * s1 * s2 + q[1] * s3,
        q[4] * s1**4 + 6.0 * q[3] * s1**2 * s2 + q[2] * (4.0 * s1 * s3 + 3.0 * s2**2) + q[1] * s4,
    ]
    if len(q) < 7:
        return result
    third = 10.0 * s1**2 * s3 + 15.0 * s1 * s2**2
    result.append(q[5] * s1**5 + 10.0 * q[4] * s1**3 * s2 + q[3] * third + q[2] * (5.0 * s1 * s4 + 10.0 * s2 * s3))
    fourth, third = 20.0 * s1**3 * s3 + 45.0 * s1**2 * s2**2, 15.0 * s1**2 * s4 + 60.0 * s1 * s2 * s3 + 15.0 * s2**3
    second = 15.0 * s2 * s4 + 10.0 * s3**2
    result.append(q[6] * s1**6 + 15.0 * q[5] * s1**4 * s2 + q[4] * fourth + q[3] * third + q[2] * second)
    return result


def _require_resolved(motion: Trajectory, step: float) -> None:
    """Reject motions that change too fast for their slowly varying terms to be resolved."""
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
        _require_long("lasts", path.duration, max(_WAVES / highest, SHORTEST_MOTION), sampled)
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
