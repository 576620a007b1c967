"""Sampled closed-loop response: the effect of a disturbance of size one on the tracking errors (step 3 of the proof).

In a basis that diagonalises the true inertia H and the nominal one M together, the closed loop with both held constant
decouples into scalar loops, one per generalised eigenvalue E of (H, M),

    E dde + f = a(t),   f_k = (c + K) de_k + c K e_k + eta_k,   eta_(k+1) = eta_k + period * L * c (de_k + K e_k),

where L is the integral gain and the feedback of sample k acts from ``delay`` after it for one period. Zero-order hold,
delay and integral are exact. Where the velocity is the difference of the last two positions, ``de_k`` is the difference
of the last two ``e`` over the period, which is exact, too: then only errors of positions enter. An error is the
convolution of the disturbance with the impulse response g_E of its loop. Kernels are magnitudes of these responses,
summed over bins of age: of the middle of their range over all loops, of half that range, and the largest of all.
Source: docs/theory/tracking_bound.md, "The sampled closed-loop response".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.tracking_bound.scalar_loop import (
    ACCELERATION,
    BIN,
    CORNERS,
    EARLY,
    FEEDBACK,
    JUMPS,
    LATE,
    POSITION,
    POSITION_ERROR,
    STEP,
    VELOCITY,
    VELOCITY_ERROR,
    BoundNotAvailable,
    Cell,
    Responses,
    bound_integral,
    bound_slack,
    count_samples,
    respond,
)

Array = NDArray[np.float64]

_FINE = 1.02
"""Inertia ratios at which loops are evaluated are powers of this number."""
_STRIDE = 4
"""Every so many of these powers is evaluated between the ends of an interval."""
_BLOCK = 2
"""Loops beside each other whose range is kept, as many intervals have it inside them."""
_CELL = _FINE**_STRIDE - 1.0
"""Largest distance of two evaluated inverse ratios, as a share of the smaller one."""
_EARLY_SAMPLES = 20 * BIN
"""Age up to which responses depend so much on the delay that many delays are evaluated."""
_TAIL = 0.1
"""Largest share of a step response that may be left at the end of the horizon."""


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
        left: Largest outputs at the end of the horizon of states at its beginning, (6, 4): e, de, the integral state,
            the feedback and the measured e of the sample before, and the smooth disturbance.
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
    left: Array
    bin: float

    def left_over(
        self, position: float, velocity: float, integral: float, feedback: float, disturbance: float
    ) -> Array:
        """Bound the norms of the remaining outputs of everything before the horizon, (4,).

        Arguments are the largest norms there: of position errors, measured or not, velocity errors, the integral state,
        the feedback and the smooth disturbance.
        """
        result: Array = np.array([position, velocity, integral, feedback, position, disturbance]) @ self.left
        return result


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
    return _binned_kernels(settings, lower, upper, is_difference).grown(growth, largest_exponent)


_Sizes = Array
"""Kernels of one input, center, deviation and largest by bins of age, (3, B, 4)."""


class _Bins(NamedTuple):
    """Parts of kernels by bins of age, the largest for any delay; see :class:`LoopKernels`."""

    residual: _Sizes
    smooth: _Sizes
    step: _Sizes
    velocity_error: _Sizes
    position_error: _Sizes
    variation: Array
    variation_age: Array
    sampling_jumps: Array
    sampling_jumps_age: Array


@dataclass(frozen=True)
class _BinnedKernels:
    bins: _Bins  # The kernels
    bin: float  # Width of a bin [s]
    tail: float  # Largest share of a step response that is left at the end of the horizon
    beyond: Array  # Largest step response after the horizon, (4,)
    left: Array  # See :class:`LoopKernels`, (6, 4)
    direct_acceleration: float  # Largest immediate acceleration per unit of disturbance

    def grown(self, growth: float, largest_exponent: float) -> LoopKernels:
        """Weight effects on norms by age, see :func:`loop_kernels`; each bin as its oldest part."""
        bins = self.bins
        ages = self.bin * np.arange(1, len(bins.variation) + 1)[:, None]
        weight = np.exp(np.minimum(growth * ages, largest_exponent))
        if not self.tail * weight[-1] <= _TAIL:
            raise BoundNotAvailable(
                "disturbances decay too slowly for a motion that may change the inertia so fast; narrow the parameter "
                "boxes or slow the motion down"
            )

        def kernel(sizes: _Sizes) -> Kernel:  # the centre is the same number in all directions, its norm does not grow
            return Kernel(sizes[0], weight * sizes[1], weight * sizes[2])

        def total(sizes: _Sizes) -> Kernel:
            of = kernel(sizes)
            return Kernel(of.center.sum(axis=0), of.deviation.sum(axis=0), of.largest.sum(axis=0))

        residual, step = kernel(bins.residual), kernel(bins.step)
        residual.largest[0, ACCELERATION] += self.direct_acceleration
        step.deviation[-1] += weight[-1] * self.beyond
        step.largest[-1] += weight[-1] * self.beyond
        return LoopKernels(
            residual=residual,
            smooth=kernel(bins.smooth),
            step=step,
            velocity_error=total(bins.velocity_error),
            position_error=total(bins.position_error),
            variation=weight * bins.variation,
            variation_age=weight * bins.variation_age,
            sampling_jumps=weight * bins.sampling_jumps,
            sampling_jumps_age=weight * bins.sampling_jumps_age,
            inertia_drift=float((weight[:, 0] ** 2 - 1.0) @ residual.center[:, FEEDBACK]),
            left=weight[-1] * self.left,
            bin=self.bin,
        )


@lru_cache(maxsize=64)
def _binned_kernels(settings: RobustSettings, lower: int, upper: int, is_difference: bool) -> _BinnedKernels:
    """Compute the kernels of loops with inertia ratios between two powers of :data:`_FINE`."""
    inner = range((lower // _STRIDE + 1) * _STRIDE, upper, _STRIDE)
    powers = sorted({lower, *inner, upper})
    ages = [_ages_of(settings, is_difference, part) for part in range(len(_AGES))]
    bins = _Bins(*(np.concatenate(parts, axis=-2) for parts in zip(*(one.bin(powers) for one in ages), strict=True)))
    states = ages[-1].left(powers)
    last, largest = bins.step[2, -1], bins.step[2].max(axis=0)
    # The rest of a step response, after the horizon, is the remainder of its state a horizon earlier.
    speed = float(largest[VELOCITY] + settings.period * largest[ACCELERATION])
    position, feedback = float(largest[POSITION]), float(largest[FEEDBACK])
    integral = bound_integral(settings, feedback, position, speed)
    beyond = np.array([position, speed, integral, feedback, position]) @ states
    # The change of E over the horizon times de is a momentum that acts like an impulse.
    momentum = (_FINE ** (upper - lower) - 1.0) * (states[1] + settings.period * states[0])
    left = np.concatenate([states, last[None]])
    left[1] += momentum
    tail = float((last / largest).max())
    return _BinnedKernels(bins, BIN * settings.period, tail, beyond, left, _FINE**-lower)


class _Part(NamedTuple):
    """Ages of responses, in samples, and how many delays from 0 to the longest are evaluated there."""

    begin: int  # First sample
    end: int | None  # Last sample plus one; None for the horizon's
    delays: int  # Number of delays at which responses are evaluated
    nodes: int  # Number of intervals of delays in the middle of which bounds of second derivatives are evaluated


_AGES = _Part(0, _EARLY_SAMPLES, 17, 5), _Part(_EARLY_SAMPLES, None, 9, 3)
_BEFORE = JUMPS + 1
"""Kind of response: to a step that begins a sample later than :data:`STEP`."""


class _Range(NamedTuple):
    """Smallest and largest responses of any loop, for each delay."""

    lower: Array
    upper: Array

    @property
    def center(self) -> Array:
        size: Array = 0.5 * np.abs(self.lower + self.upper)
        return size

    @property
    def half(self) -> Array:
        return 0.5 * (self.upper - self.lower)

    @property
    def largest(self) -> Array:
        return np.maximum(self.upper, -self.lower)


class _Node(NamedTuple):
    """Bounds of the loops in between at some ages, near one inertia ratio."""

    slack: Array  # How far responses may be from straight lines, by kind, (8, N, 4)
    left: Array  # Remainder at the end of the horizon, see :class:`Slack`; (5, 4)


class _Ages:
    """Responses at some ages of loops with different inertia ratios, powers of :data:`_FINE`, each computed once."""

    def __init__(self, settings: RobustSettings, is_difference: bool, part: _Part):
        self._settings, self._is_difference, self._part = settings, is_difference, part
        self._end = part.end or count_samples(settings)
        self._loops: dict[int, Array] = {}
        self._nodes: dict[int, _Node] = {}
        self._blocks: dict[int, _Range] = {}

    def _respond(self, ratios: Array, delay: float) -> Responses:
        return respond(self._settings, ratios, delay, self._is_difference, self._end + 1)  # differences need one more

    def responses(self, powers: list[int]) -> list[Array]:
        """Return the responses of loops by kind, (delays, 8, N, 4) each."""
        missing = [power for power in powers if power not in self._loops]
        if missing:
            ratios, found = _FINE ** np.array(missing), []
            for delay in np.unique(np.linspace(0.0, self._settings.delay, self._part.delays)):
                kinds = _list_kinds(self._respond(ratios, float(delay)), ratios, self._settings.period)
                found.append(kinds[:, :, self._part.begin : self._end])
            self._loops.update(zip(missing, np.stack(found, axis=1), strict=True))
        return [self._loops[power] for power in powers]

    def nodes(self, powers: list[int]) -> dict[int, _Node]:
        """Return the bounds between loops at all multiples of the stride about these powers."""
        first, last = powers[0] // _STRIDE * _STRIDE, -(-powers[-1] // _STRIDE) * _STRIDE
        wanted = range(first, last + 1, _STRIDE)
        missing = [power for power in wanted if power not in self._nodes]
        if missing:
            self._nodes.update(zip(missing, self._bound(_FINE ** np.array(missing)), strict=True))
        return {power: self._nodes[power] for power in wanted}

    def _bound(self, ratios: Array) -> list[_Node]:
        settings, part, longest = self._settings, self._part, self._settings.delay
        off = 0.5 * longest / part.nodes
        cell = Cell(_CELL, longest / (part.delays - 1), off)
        found = [
            bound_slack(self._respond(ratios, float(delay)), ratios, settings, float(delay), cell)
            for delay in np.unique(off + 2.0 * off * np.arange(part.nodes))
        ]
        slack = reduce(np.maximum, (one.ratio for one in found)) + reduce(np.maximum, (one.delay for one in found))
        before = np.concatenate([np.zeros_like(slack[:, :1, :1]), slack[:, STEP : STEP + 1, :-1]], axis=2)
        slack = np.concatenate([slack, before], axis=1)[:, :, part.begin : self._end]
        left = np.max([one.left for one in found], axis=0)
        return [_Node(*one) for one in zip(slack, left, strict=True)]

    def left(self, powers: list[int]) -> Array:
        """Return the remainder at the end of states of size one at the beginning, of any loop, (5, 4)."""
        largest: Array = np.max([node.left for node in self.nodes(powers).values()], axis=0)
        return largest

    def _range(self, powers: list[int]) -> _Range:
        self.responses(powers)  # reports an unstable loop before the bounds between loops
        nodes, few, blocks = self.nodes(powers), {powers[0], powers[-1]}, []
        for block, members in groupby(powers[1:-1], lambda power: power // (_STRIDE * _BLOCK)):
            several = list(members)
            if len(several) < _BLOCK:
                few.update(several)
                continue
            if block not in self._blocks:  # of many intervals
                self._blocks[block] = self._join(several, nodes)
            blocks.append(self._blocks[block])
        result = self._join(sorted(few), nodes)
        for one in blocks:
            np.minimum(result.lower, one.lower, out=result.lower)
            np.maximum(result.upper, one.upper, out=result.upper)
        return result

    def _join(self, powers: list[int], nodes: dict[int, _Node]) -> _Range:
        result: _Range | None = None
        for power, responses in zip(powers, self.responses(powers), strict=True):
            # On either side of a loop the bounds of both nodes about it count.
            slack = reduce(np.maximum, (node.slack for at, node in nodes.items() if abs(at - power) <= _STRIDE))
            if result is None:
                result = _Range(responses - slack, responses + slack)
                continue
            np.minimum(result.lower, responses - slack, out=result.lower)
            np.maximum(result.upper, responses + slack, out=result.upper)
        assert result is not None
        return result

    def bin(self, powers: list[int]) -> _Bins:
        """Sum the magnitudes of the responses of all loops between these powers over bins of age."""
        ranges = self._range(powers)
        kinds = [_Range(ranges.lower[:, kind], ranges.upper[:, kind]) for kind in range(ranges.lower.shape[1])]
        period, count = self._settings.period, ranges.lower.shape[2]
        ages = period * (self._part.begin + 1.0 + np.arange(count))[:, None]
        starts = np.arange(0, count, BIN)

        def total(values: Array) -> Array:
            sums: Array = np.add.reduceat(values, starts, axis=1).max(axis=0)
            return sums

        def sizes(ranges: list[_Range], scale: float) -> _Sizes:
            # Between the two ends of an interval the response is linear, so the trapezoid is not below its magnitude.
            several = ([getattr(one, name) for one in ranges] for name in ("center", "half", "largest"))
            return np.stack([total(scale * np.sum(one, axis=0)) for one in several])

        # A step response is between these in a period.
        step = _Range(
            np.minimum(kinds[STEP].lower, kinds[_BEFORE].lower), np.maximum(kinds[STEP].upper, kinds[_BEFORE].upper)
        )
        largest_steps = [
            np.maximum.reduceat(x, starts, axis=1).max(axis=0) for x in (step.center, step.half, step.largest)
        ]
        variation, jumps = kinds[CORNERS].largest, 0.25 * period * kinds[JUMPS].largest
        return _Bins(
            residual=sizes([kinds[LATE], kinds[EARLY]], 0.5 * period),
            smooth=sizes([step], period),
            step=np.stack(largest_steps),
            velocity_error=sizes([kinds[VELOCITY_ERROR]], 1.0),
            position_error=sizes([kinds[POSITION_ERROR]], 1.0),
            variation=total(variation),
            variation_age=total(ages * variation),
            sampling_jumps=total(jumps),
            sampling_jumps_age=total(ages * jumps),
        )


@lru_cache(maxsize=8)
def _ages_of(settings: RobustSettings, is_difference: bool, part: int) -> _Ages:
    return _Ages(settings, is_difference, _AGES[part])


def _with_acceleration(responses: Array, ratios: Array) -> Array:
    return np.concatenate([responses, responses[:, :, FEEDBACK:] / ratios[:, None, None]], axis=2)


def _list_kinds(responses: Responses, ratios: Array, period: float) -> Array:
    """List all kinds of responses, and :data:`_BEFORE`, (ratios, 8, N, 4)."""
    late, early, velocity, position = (
        _with_acceleration(x, ratios) for x in (responses.late, responses.early, responses.velocity, responses.position)
    )
    steps = np.cumsum(0.5 * period * (late + early), axis=1)
    steps[:, :, FEEDBACK] -= 1.0  # the feedback has to balance the disturbance
    steps[:, :, ACCELERATION] -= 1.0 / ratios[:, None]
    start = np.stack([np.zeros_like(ratios), np.zeros_like(ratios), -np.ones_like(ratios), -1.0 / ratios], axis=1)
    before = np.concatenate([start[:, None], steps[:, :-1]], axis=1)
    # The response jumps where a sample is taken; a polygon through the middle of these jumps does not.
    corners = np.concatenate([late[:, :1], 0.5 * (early[:, :-1] + late[:, 1:])], axis=1)
    variation, jumps = np.diff(corners, axis=1, append=corners[:, -1:]), np.zeros_like(late)
    jumps[:, :-1] = early[:, :-1] - late[:, 1:]
    return np.stack([late, early, steps, velocity, position, variation, jumps, before], axis=1)
