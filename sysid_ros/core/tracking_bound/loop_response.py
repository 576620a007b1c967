"""The sampled control loop of one mode: what a disturbance of size one does to its errors.

In a basis that diagonalises the true inertia H and the nominal one M together, the closed loop with frozen matrices
falls apart into scalar loops, one per generalised eigenvalue E of (H, M),

    E dde + f = a(t),   f_k = (c + K) de_k + c K e_k + eta_k,   eta_(k+1) = eta_k + period * L * c (de_k + K e_k),

where L is the integral gain and the feedback of sample k acts from ``delay`` after it for one period. Held torque,
delay and integral are exact. Where the velocity is the difference of the last two positions, ``de_k`` is the difference
of the last two ``e`` over the period, which is exact, too: then only errors of positions enter.
An error is the integral over the past of the disturbance times a weight g_E that depends on its age. Kernels are the
magnitudes of these weights, summed over bins of age: of the middle of the range they have over all loops, of half that
range, and the largest of all. See docs/control.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.control.settings import RobustSettings

Array = NDArray[np.float64]

POSITION, VELOCITY, FEEDBACK, ACCELERATION = range(4)
"""Columns of the kernels: e [rad], de [rad/s], f without what it has to balance, and dde [rad/s^2]."""
BIN = 10
"""Sampling periods per bin."""
_FINE = 1.02
"""Inertia ratios at which loops are evaluated are powers of this number."""
_STRIDE = 4
"""Every so many of these powers is evaluated between the ends of an interval."""
_DELAYS = 2
"""Delays at which the loops are evaluated, from 0 to the longest."""
_GRID_ALLOWANCE = 1.02
"""Factor on all kernels for what lies between the ratios and delays and beyond the horizon."""
_HORIZON = 12.0
"""Time constants of the slowest nominal pole that are looked back."""
_TAIL = 3e-3


class BoundNotAvailable(SysidError):
    """No finite tracking bound exists for this model and motion.

    Args:
        reason: Why, and what would help.
    """

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(f"no tracking bound: {reason}")


@dataclass(frozen=True)
class Kernel:
    """How one kind of input acts on the four outputs, by bins of age, (B, 4) each; (4,) where summed over all ages.

    Attributes:
        center: Magnitude of the middle between the smallest and the largest weight of any loop.
        deviation: Largest difference of any loop to that: half of the range.
        largest: Largest of any loop.
    """

    center: Array
    deviation: Array
    largest: Array


@dataclass(frozen=True)
class LoopKernels:
    """Kernels of the loops with inertia ratios in an interval.

    Attributes:
        rough: Of a disturbance of which the size is known, per rad/s^2.
        smooth: Of a disturbance of which the rate is known, per rad/s^3.
        step: Of a disturbance that jumps, per rad/s^2: its largest effect in a bin.
        velocity_error: Of errors of the measured velocity, all ages together, per rad/s.
        position_error: Of errors of the measured position, all ages together, per rad.
        travel: How far the weights of ``rough`` move within a bin, the largest of any loop, (B, 4): what a momentum
            that changes with the inertia does.
        travel_age: The same, each movement times its age, (B, 4).
        teeth: Steps of these weights at the samples, times a quarter of a period, (B, 4).
        teeth_age: The same, each step times its age, (B, 4).
        memory_change: Part of the feedback of the middle that may be off because the inertia has changed since [-].
        bin: Width of a bin [s].
    """

    rough: Kernel
    smooth: Kernel
    step: Kernel
    velocity_error: Kernel
    position_error: Kernel
    travel: Array
    travel_age: Array
    teeth: Array
    teeth_age: Array
    memory_change: float
    bin: float


def loop_kernels(
    settings: RobustSettings,
    ratios: tuple[float, float],
    growth: float,
    most: float = np.inf,
    is_difference: bool = False,
) -> LoopKernels:
    """Computes the kernels.

    Args:
        settings: Gains and timing.
        ratios: Smallest and largest inertia ratio E.
        growth: Rate at which norms of the past may grow [1/s]: the past is weighted by ``exp(growth age)``.
        most: Largest exponent there is in the time the loop remembers [-].
        is_difference: Whether the measured velocity is the difference of the last two positions over the period.

    Raises:
        BoundNotAvailable: A loop is unstable or decays too slowly.
    """
    if not ratios[0] > 0.0:
        raise BoundNotAvailable(
            "the smallest possible inertia is not positive in every direction; narrow the parameter boxes"
        )
    lower = int(np.floor(np.log(ratios[0]) / np.log(_FINE)))
    upper = int(np.ceil(np.log(ratios[1]) / np.log(_FINE)))
    most = min(most, growth * memory(settings))
    growth, most = float(np.ceil(4.0 * growth) / 4.0), float(np.ceil(10.0 * most) / 10)
    return _cached_kernels(settings, lower, upper, growth, most, is_difference)


def memory(settings: RobustSettings) -> float:
    """How far the kernels look back [s]."""
    return settings.period * _samples(settings)


def _samples(settings: RobustSettings) -> int:
    slowest = min(settings.position_gain, settings.integral_gain)
    return BIN * int(np.ceil(_HORIZON / slowest / settings.period / BIN))


@lru_cache(maxsize=64)
def _cached_kernels(
    settings: RobustSettings, lower: int, upper: int, growth: float, most: float, is_difference: bool
) -> LoopKernels:
    envelopes = _envelopes(settings, lower, upper, is_difference)
    return _worst([_kernels(envelope, settings, growth, most) for envelope in envelopes])


@lru_cache(maxsize=16)
def _envelopes(settings: RobustSettings, lower: int, upper: int, is_difference: bool) -> tuple[_Envelope, ...]:
    """Of the loops with each delay."""
    powers = (*range(lower, upper, _STRIDE), upper)
    delays = np.unique(np.linspace(0.0, settings.delay, _DELAYS))
    return tuple(
        _envelope(_loops(settings, float(delay), is_difference).responses(powers), _FINE ** np.array(powers), settings)
        for delay in delays
    )


class _Loops:
    """Responses of loops with different inertia ratios, each computed once."""

    def __init__(self, settings: RobustSettings, delay: float, is_difference: bool):
        self._settings, self._delay, self._is_difference = settings, delay, is_difference
        self._known: dict[int, _Responses] = {}

    def responses(self, powers: tuple[int, ...]) -> _Responses:
        """Those of the ratios that are these powers of the grid's base."""
        missing = [power for power in powers if power not in self._known]
        if missing:
            found = _respond(self._settings, _FINE ** np.array(missing), self._delay, self._is_difference)
            for index, power in enumerate(missing):
                self._known[power] = _Responses(*(getattr(found, x.name)[index] for x in fields(_Responses)))
        chosen = [self._known[power] for power in powers]
        return _Responses(*(np.stack([getattr(one, x.name) for one in chosen]) for x in fields(_Responses)))


@lru_cache(maxsize=8)
def _loops(settings: RobustSettings, delay: float, is_difference: bool) -> _Loops:
    return _Loops(settings, delay, is_difference)


@dataclass(frozen=True)
class _Responses:
    """Responses of all ratios at the samples after an input, each (ratios, N, 3).

    Attributes:
        late: To an impulse at the end of the sampling interval before the first sample.
        early: To one at its beginning.
        velocity: To a velocity error of the first sample alone.
        position: To a position error of the first sample alone.
    """

    late: Array
    early: Array
    velocity: Array
    position: Array


def _respond(settings: RobustSettings, ratios: Array, delay: float, is_difference: bool) -> _Responses:
    c, k, period = settings.bandwidth, settings.position_gain, settings.period
    learning = period * settings.integral_gain * c
    count = _samples(settings)
    rest = period - delay
    old = -np.array([0.5 * delay**2 + delay * rest, delay]) / ratios[:, None]  # what f_(k-1) does, (ratios, 2)
    new = -np.array([0.5 * rest**2, rest]) / ratios[:, None]

    # State (e, de, eta, f_(k-1), e_(k-1) as measured); errors and velocities are measured as rows of it.
    position = np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    velocity = np.array([1.0, 0.0, 0.0, 0.0, -1.0]) / period if is_difference else np.eye(5)[1]
    learnt = np.eye(5)[2]
    gain = c * k * position + (c + k) * velocity + learnt  # the feedback of this sample
    step = np.zeros((ratios.size, 5, 5))
    step[:, :2, :2] = [[1.0, period], [0.0, 1.0]]
    step[:, :2, 3] += old
    step[:, :2] += new[:, :, None] * gain
    step[:, 2] = learnt + learning * (velocity + k * position)
    step[:, 3] = gain
    step[:, 4] = position
    radius = np.abs(np.linalg.eigvals(step)).max(axis=1)
    if radius.max() >= 1.0:
        raise BoundNotAvailable(
            f"the sampled loop is unstable where the true inertia is {ratios[int(np.argmax(radius))]:.2f} times the "
            "nominal one; lower the bandwidth or narrow the parameter boxes"
        )
    # Inputs: impulse at the end, impulse at the beginning, velocity error, position error.
    state = np.zeros((ratios.size, 5, 4))
    state[:, 0, 1] = period / ratios
    state[:, 1, :2] = 1.0 / ratios[:, None]
    outputs = np.stack([np.eye(5)[0], np.eye(5)[1], gain])
    # Per unit of velocity and of position error: what is measured wrongly now, and of the difference in a period.
    wrong_velocity = np.array([1.0, velocity[0]])
    noise = (c + k) * wrong_velocity + c * k * np.array([0.0, 1.0])  # of the feedback
    first = outputs @ state
    first[:, 2, 2:] += noise
    state = step @ state
    state[:, :2, 2:] += new[:, :, None] * noise
    state[:, 2, 2:] += learning * (wrong_velocity + k * np.array([0.0, 1.0]))
    state[:, 3, 2:] += noise
    state[:, 4, 3] += 1.0
    later = _propagate(outputs, step, state, count - 1)
    return _Responses(*np.concatenate([first[:, None], later], axis=1).transpose(3, 0, 1, 2))


def _propagate(outputs: Array, step: Array, state: Array, count: int) -> Array:
    """``outputs step^j state`` for j = 0 to count - 1, by blocks, (ratios, count, 3, 4)."""
    block, size = int(np.ceil(np.sqrt(count))), step.shape[-1]
    rows, columns = [np.broadcast_to(outputs, (len(step), 3, size))], [state]
    jump = np.linalg.matrix_power(step, block)
    for _ in range(block - 1):
        rows.append(rows[-1] @ step)
        columns.append(jump @ columns[-1])
    left = np.stack(rows, axis=1).reshape(len(step), 3 * block, size)
    right = np.stack(columns, axis=2).reshape(len(step), size, 4 * block)
    products = (left @ right).reshape(len(step), block, 3, block, 4)
    return products.transpose(0, 3, 1, 2, 4).reshape(len(step), block * block, 3, 4)[:, :count]


class _Range(NamedTuple):
    """Ranges of weights over all loops: any loop's is within ``half`` of ``center``, (N, 4) each."""

    center: Array
    half: Array


@dataclass(frozen=True)
class _Envelope:
    """Ranges of the weights of all loops, whatever the past is weighted with; (N, 4) or (N - 1, 4) each.

    Attributes:
        late: To an impulse at the end of the sampling interval before each sample.
        early: To one at its beginning.
        reached: Of the step response, within a period.
        velocity: To a velocity error of one sample.
        position: To a position error of one sample.
        travel: How far the weights of a disturbance move within a period, at most.
        teeth: Steps of these weights at the samples, times a quarter of a period, at most.
        tail: Largest share of a step response that is left at the end of what is looked at.
        quickest: Largest acceleration by a unit of disturbance.
    """

    late: _Range
    early: _Range
    reached: _Range
    velocity: _Range
    position: _Range
    travel: Array
    teeth: Array
    tail: float
    quickest: float


def _envelope(responses: _Responses, ratios: Array, settings: RobustSettings) -> _Envelope:
    period = settings.period
    late, early, velocity, position = (
        np.concatenate([x, x[:, :, FEEDBACK:] / ratios[:, None, None]], axis=2)
        for x in (responses.late, responses.early, responses.velocity, responses.position)
    )
    steps = np.cumsum(0.5 * period * (late + early), axis=1)
    steps[:, :, FEEDBACK] -= 1.0  # the feedback has to balance the disturbance
    steps[:, :, ACCELERATION] -= 1.0 / ratios[:, None]
    start = np.stack([np.zeros_like(ratios), np.zeros_like(ratios), -np.ones_like(ratios), -1.0 / ratios], axis=1)
    before = np.concatenate([start[:, None], steps[:, :-1]], axis=1)
    # The weights jump where a sample is taken; a polygon through the middle of these steps does not.
    corners = np.concatenate([late[:, :1], 0.5 * (early[:, :-1] + late[:, 1:])], axis=1)
    return _Envelope(
        late=_range(late),
        early=_range(early),
        reached=_range(np.concatenate([before, steps])),  # a step response is between these in a period
        velocity=_range(velocity),
        position=_range(position),
        travel=np.abs(np.diff(corners, axis=1)).max(axis=0),
        teeth=0.25 * period * np.abs(early[:, :-1] - late[:, 1:]).max(axis=0),
        tail=float((np.abs(steps[:, -1]) / np.maximum(np.abs(steps).max(axis=1), 1e-300)).max()),
        quickest=1.0 / float(ratios.min()),
    )


def _kernels(envelope: _Envelope, settings: RobustSettings, growth: float, most: float) -> LoopKernels:
    period = settings.period
    ages = period * np.arange(1, len(envelope.late.center) + 1)[:, None]
    weight = np.exp(np.minimum(growth * ages, most))
    if not envelope.tail * weight[-1] <= _TAIL:
        raise BoundNotAvailable(
            "the loop forgets disturbances too slowly for a motion that may change the inertia so fast; narrow the "
            "parameter boxes or slow the motion down"
        )
    # Between the two ends of an interval the response is linear, so the trapezoid is not below its magnitude.
    ends = [envelope.late, envelope.early]
    rough = _weighted(ends, 0.5 * period, weight, _sum_bins)
    rough.largest[0, ACCELERATION] += envelope.quickest  # a disturbance accelerates at once
    travel, teeth = weight[:-1] * envelope.travel, weight[:-1] * envelope.teeth
    errors = [_weighted([x], 1.0, weight, _sum_bins) for x in (envelope.velocity, envelope.position)]
    remembered = 0.5 * sum(np.abs(one.center[:, FEEDBACK]) for one in ends)
    return LoopKernels(
        rough=rough,
        smooth=_weighted([envelope.reached], period, weight, _sum_bins),
        step=_weighted([envelope.reached], 1.0, weight, _largest_in_bins),
        velocity_error=_total(errors[0]),
        position_error=_total(errors[1]),
        travel=_sum_bins(travel),
        travel_age=_sum_bins(travel * ages[:-1]),
        teeth=_sum_bins(teeth),
        teeth_age=_sum_bins(teeth * ages[:-1]),
        memory_change=float((period * (weight[:, 0] ** 2 - 1.0) * remembered).sum()),
        bin=BIN * period,
    )


def _range(weights: Array) -> _Range:
    """Over all loops, (loops, N, 4)."""
    lower, upper = weights.min(axis=0), weights.max(axis=0)
    return _Range(0.5 * (lower + upper), 0.5 * (upper - lower))


def _weighted(ranges: list[_Range], scale: float, growth: Array, gather: Callable[[Array], Array]) -> Kernel:
    """Gathers magnitudes in bins; the middle is the same number in all directions, so it does not grow."""
    center = sum(scale * np.abs(one.center) for one in ranges)
    deviation = sum(scale * growth * one.half for one in ranges)
    largest = sum(scale * growth * (np.abs(one.center) + one.half) for one in ranges)
    return Kernel(*(gather(x) for x in (center, deviation, largest)))


def _sum_bins(values: Array) -> Array:
    """Sums of values (N, 4) over bins, (B, 4)."""
    return np.add.reduceat(values, np.arange(0, len(values), BIN), axis=0)


def _largest_in_bins(values: Array) -> Array:
    return np.maximum.reduceat(values, np.arange(0, len(values), BIN), axis=0)


def _total(kernel: Kernel) -> Kernel:
    return Kernel(kernel.center.sum(axis=0), kernel.deviation.sum(axis=0), kernel.largest.sum(axis=0))


def _worst(kernels: list[LoopKernels]) -> LoopKernels:
    """The largest of each kernel, with the allowance for the grids."""

    def largest(values: list[Array]) -> Array:
        result = _GRID_ALLOWANCE * np.max(values, axis=0)
        result.setflags(write=False)
        return result

    def of(name: str) -> Kernel:
        parts = [getattr(one, name) for one in kernels]
        return Kernel(*(largest([getattr(part, x) for part in parts]) for x in ("center", "deviation", "largest")))

    return LoopKernels(
        **{name: of(name) for name in ("rough", "smooth", "step", "velocity_error", "position_error")},
        **{x: largest([getattr(one, x) for one in kernels]) for x in ("travel", "travel_age", "teeth", "teeth_age")},
        memory_change=_GRID_ALLOWANCE * max(one.memory_change for one in kernels),
        bin=kernels[0].bin,
    )
