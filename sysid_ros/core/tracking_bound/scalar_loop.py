"""The scalar loops of step 3: their responses, and how far responses of loops in between may be from them.

A loop is given by its inertia ratio E and by the delay, see :mod:`loop_response`. E and the delay enter only by the
effect of a held feedback within a period, and responses are linear in that; so responses of one loop are exactly those
of another one plus the effect of the difference. Source: docs/theory/tracking_bound.md, "The sampled closed-loop
response".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

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
LATE, EARLY, STEP, VELOCITY_ERROR, POSITION_ERROR, CORNERS, JUMPS = range(7)
"""Kinds of responses between which straight lines are taken; the last two are differences of the first two."""
_HORIZON = 12.0
"""Length of the responses, in time constants of the slowest nominal pole."""


_LARGEST_SHARE, _ROUNDING = 0.9, 1e-12
"""Largest gain of the change between neighbouring loops, and the remainder of sums [-]."""


class BoundNotAvailable(SysidError):
    """No finite tracking bound exists for this model and motion."""

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(f"no tracking bound: {reason}")


def horizon(settings: RobustSettings) -> float:
    """Return the length of the kernels [s]: the time after which a disturbance no longer counts by itself."""
    return settings.period * count_samples(settings)


def count_samples(settings: RobustSettings) -> int:
    """Return the number of samples of the horizon, a multiple of :data:`BIN`."""
    slowest = min(settings.position_gain, settings.integral_gain)
    return BIN * int(np.ceil(_HORIZON / slowest / settings.period / BIN))


@dataclass(frozen=True)
class Responses:
    """Responses of all ratios at the N samples after an input, each (ratios, N, 3).

    Attributes:
        late: To an impulse at the end of the sampling interval before the first sample.
        early: To one at its beginning.
        velocity: To a velocity error of the first sample alone.
        position: To a position error of the first sample alone.
        integral: To an integral state of one before the first sample.
        previous: To a position of one measured at the sample before the first.
    """

    late: Array
    early: Array
    velocity: Array
    position: Array
    integral: Array
    previous: Array


@dataclass(frozen=True)
class Cell:
    """Distances between compared loops.

    Attributes:
        ratio: Largest distance of two evaluated inverse ratios, as a share of the smaller one.
        delay: Largest distance of two delays between which straight lines are taken [s].
        off: Largest distance of a delay from the one at which second derivatives are evaluated [s].
    """

    ratio: float
    delay: float
    off: float


@dataclass(frozen=True)
class Slack:
    """How much responses of loops between those evaluated may differ, for all ratios.

    Attributes:
        ratio: From straight lines between neighbouring ratios, by kind, (ratios, 7, N, 4).
        delay: From straight lines between neighbouring delays, at any ratio, likewise.
        left: Largest outputs at the end of the horizon of states of size one at its beginning, of any loop nearby,
            (ratios, 5, 4): e, de, the integral state, the feedback and the measured e of the sample before.
    """

    ratio: Array
    delay: Array
    left: Array


def bound_integral(settings: RobustSettings, feedback: float, position: float, velocity: float) -> float:
    """Bound ``eta = f - c K e - (c + K) de`` by bounds of f and of measured errors of position and velocity."""
    c, k = settings.bandwidth, settings.position_gain
    return feedback + c * k * position + (c + k) * velocity


def respond(
    settings: RobustSettings, ratios: Array, delay: float, is_difference: bool, count: int | None = None
) -> Responses:
    """Compute the responses of loops with a given delay [s], over the horizon or so many samples.

    Raises:
        BoundNotAvailable: A loop is unstable.
    """
    c, k, period = settings.bandwidth, settings.position_gain, settings.period
    integral = period * settings.integral_gain * c
    count = count or count_samples(settings)
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
    # Inputs: impulse at the end, impulse at the beginning, velocity error, position error, and two states.
    state = np.zeros((ratios.size, 5, 6))
    state[:, 0, 1] = period / ratios
    state[:, 1, :2] = 1.0 / ratios[:, None]
    state[:, 2, 4] = state[:, 4, 5] = 1.0
    outputs = np.stack([np.eye(5)[0], np.eye(5)[1], gain])
    # Error of the velocity used, per unit of velocity error and of position error.
    errors = slice(2, 4)
    wrong_velocity = np.array([1.0, velocity[0]])
    noise = (c + k) * wrong_velocity + c * k * np.array([0.0, 1.0])  # of the feedback
    first = outputs @ state
    first[:, 2, errors] += noise
    state = step @ state
    state[:, :2, errors] += new[:, :, None] * noise
    state[:, 2, errors] += integral * (wrong_velocity + k * np.array([0.0, 1.0]))
    state[:, 3, errors] += noise
    state[:, 4, 3] += 1.0
    later = _propagate(outputs, step, state, count - 1)
    return Responses(*np.concatenate([first[:, None], later], axis=1).transpose(3, 0, 1, 2))


def _propagate(outputs: Array, step: Array, state: Array, count: int) -> Array:
    """Compute ``outputs step^j state`` for j = 0 to count - 1, by blocks, (ratios, count, 3, inputs)."""
    block, size, inputs = int(np.ceil(np.sqrt(count))), step.shape[-1], state.shape[-1]
    rows, columns = [np.broadcast_to(outputs, (len(step), 3, size))], [state]
    jump = np.linalg.matrix_power(step, block)
    for _ in range(block - 1):
        rows.append(rows[-1] @ step)
        columns.append(jump @ columns[-1])
    left = np.stack(rows, axis=1).reshape(len(step), 3 * block, size)
    right = np.stack(columns, axis=2).reshape(len(step), size, inputs * block)
    products = (left @ right).reshape(len(step), block, 3, block, inputs)
    result: Array = products.transpose(0, 3, 1, 2, 4).reshape(len(step), block * block, 3, inputs)[:, :count]
    return result


def bound_slack(responses: Responses, ratios: Array, settings: RobustSettings, delay: float, cell: Cell) -> Slack:
    """Bound the distance of responses from straight lines between neighbouring loops.

    With ``y = 1 / E`` the loop is ``dde = y (a - F f)``, where F holds the feedback f. Let w be the response to a force
    that is held for a period, times y, u the response to an impulse as the delay ends, and p the response to a force
    from there to d later. The loop with ``y (1 + s)`` and a delay longer by d is this one with the additional
    acceleration ``s y (a - F f)`` and the effect of ``(1 + s) p`` on the backward difference D f. So with
    ``Q = -s w_f + (1 + s) p_f D`` its feedback is ``(1 - Q)^-1`` times this loop's, times 1 + s for impulses; a Neumann
    series bounds that.

    Second derivatives of a response o, exact at this loop and bounded at all those nearby:

        by y (times y^2):  -2 w * (f - w_f * f)            by the delay:  (u' + 2 u * D u_f) * D f

    with u' the derivative of u where the loop stays. A response is within ``h^2 / 8`` times the largest one of a
    straight line of length h: first between two delays, then between two inertia ratios.

    Args:
        responses: Of loops with these ratios and this delay.
        ratios: (ratios,).
        settings: Gains and timing.
        delay: [s].
        cell: How far apart loops are.

    Raises:
        BoundNotAvailable: Neighbouring loops differ too much.
    """
    period, count = settings.period, responses.late.shape[1]
    rest, length = period - delay, next_fast_len(2 * count, real=True)
    near, off, wider = 0.5 * cell.ratio, cell.off, 1.0 + 0.5 * cell.ratio  # the largest |s| and |d|, and 1 + s
    inverse = 1.0 / ratios[:, None, None]

    def transform(values: Array) -> NDArray[np.complex128]:
        result: NDArray[np.complex128] = rfft(values, length)
        return result

    def convolve(one: NDArray[np.complex128], other: NDArray[np.complex128]) -> Array:
        product: Array = irfft(one * other, length)[..., :count]
        return product

    def sizes(one: NDArray[np.complex128], other: NDArray[np.complex128]) -> Array:
        return np.maximum(convolve(one, other), 0.0)

    # From here on responses are (ratios, k, N), by which they are convolved.
    late, early, velocity, position, integral, previous = (
        np.ascontiguousarray(np.swapaxes(getattr(responses, x.name), 1, 2)) for x in fields(Responses)
    )
    by_position, by_velocity = (early - late) / period, late  # y times the responses to steps of e and de at a sample

    def moved(position: float, velocity: float) -> Array:
        """Return y times the response to the motion of e and de until the next sample."""
        return _later(position * by_position + velocity * by_velocity)

    # Loops nearby.
    held = moved(0.5 * rest**2, rest) + _later(moved(0.5 * delay**2 + delay * rest, delay))  # w
    turned_position, turned_velocity = np.abs(_difference(by_position)), np.abs(_difference(by_velocity))
    pulse = off * _later((rest + 0.5 * off) * turned_position + turned_velocity)  # p D
    difference = near * np.abs(held) + wider * pulse
    difference_spectrum = transform(difference)
    echo = _neumann(_feedback(difference), lambda one, other: sizes(transform(one), transform(other)))
    echo_spectrum = transform(echo)
    echo_only = echo.copy()
    echo_only[..., 0] -= 1.0
    only_spectrum = transform(echo_only)

    def change(of: Array) -> Array:
        """Bound the change, from this loop to one nearby, of a response that is not proportional to y."""
        return sizes(difference_spectrum, transform(sizes(echo_spectrum, transform(np.abs(_feedback(of))))))

    # Factors of the second derivative by y that all kinds have in common.
    held_feedback, held_spectrum, held_size = transform(_feedback(held)), transform(held), np.abs(held)
    moved_feedback = np.abs(_feedback(held)) + _feedback(pulse)
    held_change = near * held_size + wider * (pulse + change(moved_feedback))
    held_sizes = transform(held_size), transform(held_size + held_change)
    echo_twice = transform(sizes(echo_spectrum, echo_spectrum))

    # Of that by the delay.
    by_position_change, by_velocity_change = change(by_position), change(by_velocity)
    impulse, turned = moved(rest, 1.0), moved(-1.0, 0.0)  # u and u'
    turned_change = _later(wider * by_position_change + near * np.abs(by_position))
    reached = (rest + off) * by_position_change + by_velocity_change + off * np.abs(by_position)
    impulse_size, impulse_change = np.abs(impulse), near * np.abs(impulse) + wider * _later(reached)
    stepped = _difference(_feedback(impulse))  # D u_f
    position_size, velocity_size = _feedback(turned_position), _feedback(turned_velocity)
    reached = (rest + off) * sizes(only_spectrum, transform(position_size)) + off * position_size
    reached += sizes(only_spectrum, transform(velocity_size))
    stepped_size, stepped_change = np.abs(stepped), near * np.abs(stepped) + wider * _later(reached)
    operator = turned + 2.0 * convolve(transform(impulse), transform(stepped))
    more = sizes(transform(impulse_size + impulse_change), transform(stepped_size + stepped_change))
    more -= sizes(transform(impulse_size), transform(stepped_size))
    operator_change = transform(turned_change + 2.0 * np.maximum(more, 0.0))
    operator_size, operator_spectrum = transform(np.abs(operator)), transform(operator)

    by_ratio, by_delay = [], []
    kinds = _feedback_of_kinds([_feedback(one) for one in (late, early, velocity, position)], period)
    for index, kind in enumerate(kinds):
        is_error = index in (VELOCITY_ERROR, POSITION_ERROR)  # of sensors, not proportional to y
        slope = (0.0 if is_error else kind) - convolve(held_feedback, transform(kind))
        size = np.abs(slope)
        moved_size = size + sizes(transform(_feedback(pulse)), transform(np.abs(kind))) if is_error else size
        largest = wider * sizes(echo_twice, transform(moved_size))
        curve = 2.0 * np.abs(convolve(held_spectrum, transform(slope)))
        curve += 2.0 * np.maximum(sizes(held_sizes[1], transform(largest)) - sizes(held_sizes[0], transform(size)), 0.0)
        acceleration = wider * inverse * (2.0 * largest + _feedback(curve))
        by_ratio.append(cell.ratio**2 / 8.0 * np.concatenate([curve, acceleration], axis=1))

        forced = _difference(kind)
        size = np.abs(forced)
        largest = wider * sizes(echo_spectrum, transform(size))
        bound = np.abs(convolve(operator_spectrum, transform(forced)))
        bound += sizes(operator_size, transform(np.maximum(largest - size, 0.0)))
        bound += sizes(operator_change, transform(largest))
        by_delay.append(cell.delay**2 / 8.0 * np.concatenate([bound, wider * inverse * _feedback(bound)], axis=1))
    for bounds in (by_ratio, by_delay):
        for index in (CORNERS, JUMPS):
            bounds[index] = _earlier(bounds[index])

    # The remainder of a state at the end; the last sample but one is that of a feedback that acts from the next one on.
    states = [by_position / inverse, by_velocity / inverse, integral, previous]
    left = [(np.abs(one) + change(one))[..., -2:].max(axis=2) for one in states]
    before = wider / ratios[:, None] * (0.5 * period**2 * left[0] + settings.delay * left[1])
    outputs = np.stack([*left[:3], before, left[3]], axis=1)
    outputs = np.concatenate([outputs, wider * inverse * outputs[:, :, FEEDBACK:]], axis=2)
    ratio, between = (np.swapaxes(np.stack(one, axis=1), 2, 3) for one in (by_ratio, by_delay))
    return Slack(ratio, between, outputs)


def _feedback_of_kinds(of: list[Array], period: float) -> list[Array]:
    """List the feedback of all kinds of responses; the last two begin a sample before their use.

    ``of`` is the feedback of late and early impulses and of errors of velocity and position.
    """
    late, early, velocity, position = of
    before = _later(early)
    corners = _difference(0.5 * (before + late))
    return [late, early, np.cumsum(0.5 * period * (late + early), axis=-1), velocity, position, corners, before - late]


def _neumann(share: Array, convolve: Callable[[Array, Array], Array]) -> Array:
    """Sum ``share`` convolved with itself 0, 1, 2, ... times, (loops, 1, N)."""
    if not share.sum(axis=-1).max() < _LARGEST_SHARE:
        raise BoundNotAvailable("the loops of neighbouring inertia ratios differ too much; lower the bandwidth")
    term = np.zeros_like(share)
    term[..., 0] = 1.0
    total = term
    while term.sum(axis=-1).max() > _ROUNDING:
        term = convolve(term, share)
        total = total + term
    return total + 1e3 * _ROUNDING


def _feedback(values: Array) -> Array:
    """Select the feedback of responses (loops, k, N), (loops, 1, N)."""
    return values[:, FEEDBACK : FEEDBACK + 1] if values.shape[1] > 1 else values


def _later(values: Array) -> Array:
    return np.concatenate([np.zeros_like(values[..., :1]), values[..., :-1]], axis=-1)


def _earlier(values: Array) -> Array:
    """Let responses (loops, k, N) come a sample earlier; the value after the last one is unknown."""
    return np.concatenate([values[..., 1:], np.zeros_like(values[..., :1])], axis=-1)


def _difference(values: Array) -> Array:
    """Return the backward differences of responses (loops, k, N), which are zero before the first sample."""
    return values - _later(values)
