"""Sampled closed-loop response: what a disturbance of size one does to the tracking errors (step 3 of the proof).

In a basis that diagonalises the true inertia H and the nominal one M together, the closed loop with both held constant
decouples into scalar loops, one per generalised eigenvalue E of (H, M),

    E dde + f = a(t),   f_k = (c + K) de_k + c K e_k + eta_k,   eta_(k+1) = eta_k + period * L * c (de_k + K e_k),

where L is the integral gain and the feedback of sample k acts from ``delay`` after it for one period. Held torque,
delay and integral are exact. Where the velocity is the difference of the last two positions, ``de_k`` is the difference
of the last two ``e`` over the period, which is exact, too: then only errors of positions enter.
An error is the convolution of the disturbance with the impulse response g_E of its loop. Kernels are magnitudes of
these responses, summed over bins of age: of the middle of their range over all loops, of half that range, and the
largest of all. Source: docs/theory/tracking_bound.md, "The sampled closed-loop response".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.control.settings import RobustSettings

Array = NDArray[np.float64]

POSITION, VELOCITY, FEEDBACK, ACCELERATION = range(4)
"""Columns of the kernels: e [rad], de [rad/s], f less the disturbance it balances, and dde [rad/s^2]."""
BIN = 10
"""Sampling periods per bin."""
_FINE = 1.02
"""Inertia ratios at which loops are evaluated are powers of this number."""
_STRIDE = 4
"""Every so many of these powers is evaluated between the ends of an interval."""
_DELAYS = 2
"""Delays at which the loops are evaluated, from 0 to the longest."""
_CELL = _FINE**_STRIDE - 1.0
"""Largest distance of two evaluated inverse ratios, as a share of the smaller one."""
_GRID_MARGIN = 1.02
"""Factor on all kernels for delays between those evaluated, and for ages beyond the horizon."""
_HORIZON = 14.0
"""Length of the responses, in time constants of the slowest nominal pole."""
_TAIL = 3e-3
"""Largest share of a step response that may be left at the end of the horizon."""


class BoundNotAvailable(SysidError):
    """No finite tracking bound exists for this model and motion.

    Args:
        reason: Cause and remedy.
    """

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(f"no tracking bound: {reason}")


@dataclass(frozen=True)
class Kernel:
    """Effect of one kind of input on the four outputs, by bins of age, (B, 4) each; (4,) where summed over all ages.

    Attributes:
        center: Magnitude of the middle between the smallest and the largest response of any loop.
        deviation: Largest difference of any loop from that middle: half the range.
        largest: Largest magnitude of any loop.
    """

    center: Array
    deviation: Array
    largest: Array


@dataclass(frozen=True)
class LoopKernels:
    """Kernels of the loops with inertia ratios in an interval.

    Attributes:
        residual: For a disturbance of bounded magnitude, per rad/s^2.
        smooth: For a disturbance of bounded rate, per rad/s^3.
        step: For a jump of the disturbance, per rad/s^2: its largest effect in a bin.
        velocity_error: For errors of the measured velocity, summed over all ages, per rad/s.
        position_error: For errors of the measured position, summed over all ages, per rad.
        variation: Total variation of the impulse response within a bin, the largest of any loop, (B, 4): the response
            to a momentum that changes with the inertia.
        variation_age: The same, weighted by age, (B, 4) [s].
        sampling_jumps: Jumps of the impulse response at the samples, times a quarter of a period, (B, 4).
        sampling_jumps_age: The same, weighted by age, (B, 4) [s].
        inertia_drift: Share of the centre's feedback that a changing inertia may add or take away [-].
        bin: Width of a bin [s].
    """

    residual: Kernel
    smooth: Kernel
    step: Kernel
    velocity_error: Kernel
    position_error: Kernel
    variation: Array
    variation_age: Array
    sampling_jumps: Array
    sampling_jumps_age: Array
    inertia_drift: float
    bin: float


def loop_kernels(
    settings: RobustSettings,
    ratios: tuple[float, float],
    growth: float,
    largest_exponent: float = np.inf,
    is_difference: bool = False,
) -> LoopKernels:
    """Compute the kernels.

    Args:
        settings: Gains and timing.
        ratios: Smallest and largest inertia ratio E.
        growth: Rate at which norms may grow since an input acted [1/s]: inputs are weighted by ``exp(growth age)``.
        largest_exponent: Upper bound of ``growth age`` within the horizon [-].
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
    exponent = min(largest_exponent, growth * horizon(settings))
    # Rounded up, so that the kernels of similar motions are found in the cache.
    growth, exponent = float(np.ceil(4.0 * growth) / 4.0), float(np.ceil(10.0 * exponent) / 10)
    return _cached_kernels(settings, lower, upper, (growth, exponent), is_difference)


def horizon(settings: RobustSettings) -> float:
    """Return the length of the kernels [s]: the time after which a disturbance no longer counts."""
    return settings.period * _count_samples(settings)


def _count_samples(settings: RobustSettings) -> int:
    slowest = min(settings.position_gain, settings.integral_gain)
    return BIN * int(np.ceil(_HORIZON / slowest / settings.period / BIN))


@lru_cache(maxsize=64)
def _cached_kernels(
    settings: RobustSettings, lower: int, upper: int, growth: tuple[float, float], is_difference: bool
) -> LoopKernels:
    envelopes = _envelopes(settings, lower, upper, is_difference)
    return _largest_kernels([_kernels(envelope, settings, *growth) for envelope in envelopes])


@lru_cache(maxsize=16)
def _envelopes(settings: RobustSettings, lower: int, upper: int, is_difference: bool) -> tuple[_Envelope, ...]:
    """Compute the envelope over all inertia ratios, for each delay."""
    powers = (*range(lower, upper, _STRIDE), upper)
    delays = np.unique(np.linspace(0.0, settings.delay, _DELAYS))
    result = []
    for delay in delays:
        cache = _cache_of(settings, float(delay), is_difference)
        responses = cache.get(powers)
        result.append(_envelope(responses, _FINE ** np.array(powers), settings, cache.slack(powers)))
    return tuple(result)


class _ResponseCache:
    """Responses of loops with different inertia ratios, each computed once."""

    def __init__(self, settings: RobustSettings, delay: float, is_difference: bool):
        self._settings, self._delay, self._is_difference = settings, delay, is_difference
        self._known: dict[int, _Responses] = {}
        self._slack: dict[int, Array] = {}

    def get(self, powers: tuple[int, ...]) -> _Responses:
        """Return the responses for inertia ratios that are these powers of :data:`_FINE`."""
        missing = [power for power in powers if power not in self._known]
        if missing:
            ratios = _FINE ** np.array(missing)
            found = _respond(self._settings, ratios, self._delay, self._is_difference)
            slack = _bound_slack(found, ratios, self._settings, self._delay)
            for index, power in enumerate(missing):
                self._known[power] = _Responses(*(getattr(found, x.name)[index] for x in fields(_Responses)))
                self._slack[power] = slack[index]
        chosen = [self._known[power] for power in powers]
        return _Responses(*(np.stack([getattr(one, x.name) for one in chosen]) for x in fields(_Responses)))

    def slack(self, powers: tuple[int, ...]) -> Array:
        """Return the largest of :func:`_bound_slack` over these powers, (7, N, 4), after :meth:`get`."""
        slack: Array = np.max([self._slack[power] for power in powers], axis=0)
        return slack


@lru_cache(maxsize=8)
def _cache_of(settings: RobustSettings, delay: float, is_difference: bool) -> _ResponseCache:
    return _ResponseCache(settings, delay, is_difference)


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
    integral = period * settings.integral_gain * c
    count = _count_samples(settings)
    rest = period - delay
    old = -np.array([0.5 * delay**2 + delay * rest, delay]) / ratios[:, None]  # effect of f_(k-1), (ratios, 2)
    new = -np.array([0.5 * rest**2, rest]) / ratios[:, None]  # effect of f_k

    # State (e, de, eta, f_(k-1), e_(k-1) as measured); errors and velocities are measured as rows of it.
    position = np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    velocity = np.array([1.0, 0.0, 0.0, 0.0, -1.0]) / period if is_difference else np.eye(5)[1]
    integral_state = np.eye(5)[2]
    gain = c * k * position + (c + k) * velocity + integral_state  # the feedback of this sample
    step = np.zeros((ratios.size, 5, 5))
    step[:, :2, :2] = [[1.0, period], [0.0, 1.0]]
    step[:, :2, 3] += old
    step[:, :2] += new[:, :, None] * gain
    step[:, 2] = integral_state + integral * (velocity + k * position)
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
    # Error of the velocity used, per unit of velocity error and of position error.
    wrong_velocity = np.array([1.0, velocity[0]])
    noise = (c + k) * wrong_velocity + c * k * np.array([0.0, 1.0])  # of the feedback
    first = outputs @ state
    first[:, 2, 2:] += noise
    state = step @ state
    state[:, :2, 2:] += new[:, :, None] * noise
    state[:, 2, 2:] += integral * (wrong_velocity + k * np.array([0.0, 1.0]))
    state[:, 3, 2:] += noise
    state[:, 4, 3] += 1.0
    later = _propagate(outputs, step, state, count - 1)
    return _Responses(*np.concatenate([first[:, None], later], axis=1).transpose(3, 0, 1, 2))


def _propagate(outputs: Array, step: Array, state: Array, count: int) -> Array:
    """Compute ``outputs step^j state`` for j = 0 to count - 1, by blocks, (ratios, count, 3, 4)."""
    block, size = int(np.ceil(np.sqrt(count))), step.shape[-1]
    rows, columns = [np.broadcast_to(outputs, (len(step), 3, size))], [state]
    jump = np.linalg.matrix_power(step, block)
    for _ in range(block - 1):
        rows.append(rows[-1] @ step)
        columns.append(jump @ columns[-1])
    left = np.stack(rows, axis=1).reshape(len(step), 3 * block, size)
    right = np.stack(columns, axis=2).reshape(len(step), size, 4 * block)
    products = (left @ right).reshape(len(step), block, 3, block, 4)
    result: Array = products.transpose(0, 3, 1, 2, 4).reshape(len(step), block * block, 3, 4)[:, :count]
    return result


_LATE, _EARLY, _STEP, _VELOCITY, _POSITION, _CORNERS, _JUMPS = range(7)
"""Rows of the slack."""


def _bound_slack(responses: _Responses, ratios: Array, settings: RobustSettings, delay: float) -> Array:
    """Bound how far responses are from straight lines between those of neighbouring loops, (ratios, 7, N, 4).

    With ``y = 1 / E`` the loop is ``dde = y (a - f)``. Let w be the response to a force that is held for a period, per
    y. A loop with ``y + d`` is that with y and the force ``d / y (a - f)`` beside it, so a response o has
    ``do/dy = o / y - w * f`` (sensor errors: ``-w * f``) and ``d^2 o/dy^2 = -2 w * df/dy``, and at ``y + d`` the latter
    is that convolved three times with ``(1 + d w_f)^-1``, of which a Neumann series bounds the magnitude. A response is
    within ``D^2 / 8`` times the largest second derivative of the straight line between two loops D apart.
    """
    period, count = settings.period, responses.late.shape[1]
    rest, length = period - delay, next_fast_len(2 * count, real=True)

    def convolve(one: Array, other: Array) -> Array:
        product: Array = irfft(rfft(one, length, axis=1) * rfft(other, length, axis=1), length, axis=1)[:, :count]
        return product

    late, early = responses.late, responses.early

    def response_to(position: float, velocity: float) -> Array:
        return (early - late) * (position / period) + late * velocity

    force = np.zeros_like(late)  # times y, as all that follows
    force[:, 1:] += response_to(0.5 * rest**2, rest)[:, :-1]
    force[:, 2:] += response_to(0.5 * delay**2 + delay * rest, delay)[:, :-2]
    feedback = force[:, :, FEEDBACK, None]
    share = 0.5 * _CELL * np.abs(feedback)
    if not share.sum(axis=1).max() < 0.5:
        raise BoundNotAvailable("the loops of neighbouring inertia ratios differ too much; lower the bandwidth")
    echo = term = np.eye(1, count)[0, None, :, None] * np.ones_like(share)
    while term.sum(axis=1).max() > 1e-12:
        term = np.maximum(convolve(term, share), 0.0)
        echo = echo + term
    echo = convolve(echo, convolve(echo, echo)) + 1e-9 * echo.max()
    bent = []
    for index, kind in enumerate((late, early, responses.velocity, responses.position)):
        own = kind[:, :, FEEDBACK, None]
        slope = (own if index < 2 else 0.0) - convolve(feedback, own)
        curve = -2.0 * convolve(force, slope)
        acceleration = (2.0 * slope + curve[:, :, FEEDBACK:]) / ratios[:, None, None]
        bent.append(np.concatenate([curve, acceleration], axis=2))
    first, second, velocity, position = bent
    corners = np.concatenate([first[:, :1], 0.5 * (second[:, :-1] + first[:, 1:])], axis=1)
    jumps = np.zeros_like(first)
    jumps[:, :-1] = second[:, :-1] - first[:, 1:]
    steps = np.cumsum(0.5 * period * (first + second), axis=1)
    kinds = [first, second, steps, velocity, position, np.diff(corners, axis=1, append=corners[:, -1:]), jumps]
    result: Array = np.stack([_CELL**2 / 8.0 * np.maximum(convolve(echo, np.abs(x)), 0.0) for x in kinds], axis=1)
    return result


class _Range(NamedTuple):
    """Ranges of responses over all loops: any loop's is within ``half`` of ``center``, (N, 4) each."""

    center: Array
    half: Array


@dataclass(frozen=True)
class _Envelope:
    """Ranges of the responses of all loops, before weighting by age; (N, 4) or (N - 1, 4) each.

    Attributes:
        late: To an impulse at the end of the sampling interval before each sample.
        early: To one at its beginning.
        step: To a step, anywhere within a period.
        velocity: To a velocity error of one sample.
        position: To a position error of one sample.
        variation: Largest variation of the impulse response within a period.
        sampling_jumps: Largest jump of the impulse response at a sample, times a quarter of a period.
        tail: Largest share of a step response that is left at the end of the horizon.
        direct_acceleration: Largest immediate acceleration per unit of disturbance.
    """

    late: _Range
    early: _Range
    step: _Range
    velocity: _Range
    position: _Range
    variation: Array
    sampling_jumps: Array
    tail: float
    direct_acceleration: float


def _envelope(responses: _Responses, ratios: Array, settings: RobustSettings, slack: Array) -> _Envelope:
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
    # The response jumps where a sample is taken; a polygon through the middle of these jumps does not.
    corners = np.concatenate([late[:, :1], 0.5 * (early[:, :-1] + late[:, 1:])], axis=1)
    return _Envelope(
        late=_range(late, slack[_LATE]),
        early=_range(early, slack[_EARLY]),
        # A step response is between these in a period.
        step=_range(np.concatenate([before, steps]), np.maximum(slack[_STEP], np.roll(slack[_STEP], 1, axis=0))),
        velocity=_range(velocity, slack[_VELOCITY]),
        position=_range(position, slack[_POSITION]),
        variation=np.abs(np.diff(corners, axis=1)).max(axis=0) + slack[_CORNERS, :-1],
        sampling_jumps=0.25 * period * (np.abs(early[:, :-1] - late[:, 1:]).max(axis=0) + slack[_JUMPS, :-1]),
        tail=float((np.abs(steps[:, -1]) / np.maximum(np.abs(steps).max(axis=1), 1e-300)).max()),
        direct_acceleration=1.0 / float(ratios.min()),
    )


def _kernels(envelope: _Envelope, settings: RobustSettings, growth: float, largest_exponent: float) -> LoopKernels:
    period = settings.period
    ages = period * np.arange(1, len(envelope.late.center) + 1)[:, None]
    weight = np.exp(np.minimum(growth * ages, largest_exponent))
    if not envelope.tail * weight[-1] <= _TAIL:
        raise BoundNotAvailable(
            "disturbances decay too slowly for a motion that may change the inertia so fast; narrow the parameter "
            "boxes or slow the motion down"
        )
    # Between the two ends of an interval the response is linear, so the trapezoid is not below its magnitude.
    ends = [envelope.late, envelope.early]
    residual = _weighted(ends, 0.5 * period, weight, _sum_bins)
    residual.largest[0, ACCELERATION] += envelope.direct_acceleration
    variation, sampling_jumps = weight[:-1] * envelope.variation, weight[:-1] * envelope.sampling_jumps
    errors = [_weighted([x], 1.0, weight, _sum_bins) for x in (envelope.velocity, envelope.position)]
    feedback = 0.5 * (np.abs(ends[0].center[:, FEEDBACK]) + np.abs(ends[1].center[:, FEEDBACK]))
    return LoopKernels(
        residual=residual,
        smooth=_weighted([envelope.step], period, weight, _sum_bins),
        step=_weighted([envelope.step], 1.0, weight, _largest_in_bins),
        velocity_error=_total(errors[0]),
        position_error=_total(errors[1]),
        variation=_sum_bins(variation),
        variation_age=_sum_bins(variation * ages[:-1]),
        sampling_jumps=_sum_bins(sampling_jumps),
        sampling_jumps_age=_sum_bins(sampling_jumps * ages[:-1]),
        inertia_drift=float((period * (weight[:, 0] ** 2 - 1.0) * feedback).sum()),
        bin=BIN * period,
    )


def _range(responses: Array, slack: Array) -> _Range:
    """Compute the range over all loops of responses (loops, N, 4), with the slack (N, 4) of those between."""
    lower, upper = responses.min(axis=0), responses.max(axis=0)
    return _Range(0.5 * (lower + upper), 0.5 * (upper - lower) + slack)


def _weighted(ranges: list[_Range], scale: float, growth: Array, gather: Callable[[Array], Array]) -> Kernel:
    """Gather magnitudes in bins; the centre is the same number in all directions, so its norm does not grow."""
    center = np.sum([scale * np.abs(one.center) for one in ranges], axis=0)
    deviation = np.sum([scale * growth * one.half for one in ranges], axis=0)
    largest = np.sum([scale * growth * (np.abs(one.center) + one.half) for one in ranges], axis=0)
    return Kernel(*(gather(x) for x in (center, deviation, largest)))


def _sum_bins(values: Array) -> Array:
    """Sum values (N, 4) over bins, (B, 4)."""
    return np.add.reduceat(values, np.arange(0, len(values), BIN), axis=0)


def _largest_in_bins(values: Array) -> Array:
    return np.maximum.reduceat(values, np.arange(0, len(values), BIN), axis=0)


def _total(kernel: Kernel) -> Kernel:
    return Kernel(kernel.center.sum(axis=0), kernel.deviation.sum(axis=0), kernel.largest.sum(axis=0))


def _largest_kernels(kernels: list[LoopKernels]) -> LoopKernels:
    """Take the largest of each kernel, enlarged by :data:`_GRID_MARGIN`."""

    def largest(values: list[Array]) -> Array:
        result: Array = _GRID_MARGIN * np.max(values, axis=0)
        result.setflags(write=False)
        return result

    def of(parts: list[Kernel]) -> Kernel:
        return Kernel(*(largest([getattr(part, x.name) for part in parts]) for x in fields(Kernel)))

    return LoopKernels(
        residual=of([one.residual for one in kernels]),
        smooth=of([one.smooth for one in kernels]),
        step=of([one.step for one in kernels]),
        velocity_error=of([one.velocity_error for one in kernels]),
        position_error=of([one.position_error for one in kernels]),
        variation=largest([one.variation for one in kernels]),
        variation_age=largest([one.variation_age for one in kernels]),
        sampling_jumps=largest([one.sampling_jumps for one in kernels]),
        sampling_jumps_age=largest([one.sampling_jumps_age for one in kernels]),
        inertia_drift=_GRID_MARGIN * max(one.inertia_drift for one in kernels),
        bin=kernels[0].bin,
    )
