"""Bounds of the errors in all stops of a motion at once, whenever they begin (step 8 of the proof).

A stop that begins at t_0 passes the positions ``q(s)`` of the path at the rate ``r`` of its clock, so that
``(q, v, a) = (q(s), r v(s), r^2 a(s) + r' v(s))`` with ``r = 1 - 3 x^2 + 2 x^3``, ``x = (t - t_0) / brake_time``. Its
inputs are bounded in cells of s and x, and its times of beginning are divided into parts. Time counts from t_0: before
it the inputs are the path's, after it those of the cells a stop of that part can be in. The tube map is monotone in its
inputs, so a tube that is invariant for the largest inputs of a part holds for every stop of that part.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from sysid_ros.core.model.robot import INERTIAL
from sysid_ros.core.tracking_bound.between import ModelRates, MotionRates, TermRates
from sysid_ros.core.tracking_bound.disturbance import (
    ResidualDisturbance,
    Signal,
    bound_friction,
    bound_torques,
)
from sysid_ros.core.tracking_bound.elasticity import link_errors
from sysid_ros.core.tracking_bound.loop_response import Kernel, loop_kernels
from sysid_ros.core.tracking_bound.model_terms import ModelTerms
from sysid_ros.core.tracking_bound.motion import larger_neighbour
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable, horizon
from sysid_ros.core.tracking_bound.tube import (
    SETTLED,
    SLOW_TERMS,
    ErrorBounds,
    LoopBounds,
    LoopInputs,
    Tube,
    TubeMap,
)

Array = NDArray[np.float64]

_CELLS = 12
"""Intervals of time into which the brake time is divided."""
_BEGIN_CELLS = 2
"""Such intervals in each part of the times at which stops begin."""
_LEAST_CELLS = 100
"""Cells of the path are made of as many intervals of the model error as leave this many cells, at most of
``_NODE_STRIDE``: the error of polygons in a cell grows with the square of its length."""
_NODE_STRIDE = 3
_AFTERWARDS = 0.5
"""Time at rest after a stop that the bound covers [s]."""
_NEAR = 3
"""Youngest intervals in which a change is bounded by its largest rate times the age, not by the sum of its rates."""
_REFINEMENTS = 1
"""Times a tube that maps into itself is replaced by its image, which is smaller."""
_START = 1.2
"""Size of the first tube that is tried, in units of the path's."""
_GROWTH = 1.03
"""Relative enlargement of a tube before it is tried, so that it can map into itself."""


@dataclass(frozen=True)
class StopBound:
    """Bounds that the errors never exceed in any stop along a path, from its begin to half a second after its end.

    Attributes:
        brake_time: Time to rest of the stops [s].
        position: ``|q_d - q|``, (n,) [rad].
        rates: Largest rate of the clock of the path in K intervals of the time since the stop began, (K,) [-].
        velocity: ``|v_d - v|`` in these intervals, (K, n) [rad/s].
        times: Ends of J cells of the time of the path, (J + 1,) [s].
        torque: Commanded torque less the torque the true arm needs for the stop, while it passes these cells of the
            path, (J, n) [Nm].
    """

    brake_time: float
    position: Array
    rates: Array
    velocity: Array
    times: Array
    torque: Array

    def __post_init__(self) -> None:
        for array in (self.position, self.rates, self.velocity, self.times, self.torque):
            array.setflags(write=False)

    def larger(self, other: StopBound) -> StopBound:
        """Return the larger of both bounds of the same stops, one by one."""
        values = ((getattr(self, name), getattr(other, name)) for name in ("position", "velocity", "torque"))
        position, velocity, torque = (np.maximum(*both) for both in values)
        return replace(self, position=position, velocity=velocity, torque=torque)

    def enlarged(self, share: float) -> StopBound:
        """Return errors that are larger by a share."""
        position, velocity, torque = ((1.0 + abs(share)) * x for x in (self.position, self.velocity, self.torque))
        return replace(self, position=position, velocity=velocity, torque=torque)

    def speed_errors(self, v_max: Array) -> Array:
        """Compute the velocity errors to leave to the speed of the path, so that stops keep speed limits, (n,) [rad/s].

        At the rate r of the clock a joint has r times its speed on the path, so with ``v_max - E`` on the path it stays
        below ``v_max`` [rad/s] in an interval with errors d and rates up to r if ``E >= (d - (1 - r) v_max) / r``.
        """
        moving = self.rates > 0.0
        rate = self.rates[moving, None]
        needed: Array = ((self.velocity[moving] - (1.0 - rate) * v_max) / rate).max(axis=0)
        too_much = np.any(self.velocity[~moving] > v_max, axis=0)
        return np.where(too_much, np.inf, np.maximum(needed, 0.0))

    def torque_over(self, middle: Array, half: Array) -> Array:
        """Return the largest torques while stops pass pieces of the path, (P, n) [Nm].

        Pieces have their middles (P,) [s] and half lengths (P,) [s].
        """
        return largest_over(self.times, self.torque, middle, half)


def largest_over(times: Array, values: Array, middle: Array, half: Array) -> Array:
    """Return the largest values of the cells that pieces of time touch, (P, n).

    Args:
        times: Ends of J cells, (J + 1,) [s]; times before or after them belong to the first or the last one.
        values: Values of the cells, (J, n).
        middle: Middles of the pieces, (P,) [s].
        half: Their half lengths, (P,) [s].
    """
    last = len(values) - 1
    first = np.clip(np.searchsorted(times, middle - half, side="left") - 1, 0, last)
    final = np.clip(np.searchsorted(times, middle + half, side="right") - 1, first, last)
    return np.stack([values[i : j + 1].max(axis=0) for i, j in zip(first, final, strict=True)])


class _Clock:
    """Rates of the clock of a stop and the five factors of the rate of the model error, at the ends of cells of x.

    With G the model error at rest, P the path's and A the part of an acceleration equal to the velocity, all functions
    of the time s of the path, the model error in a stop is ``(1 - r^2) G + r^2 P + r' A``, and its rate
    ``(r - r^3) G_s + r^3 P_s + 2 r r' (P - G) + r'' A + r r' A_s``.

    Args:
        brake_time: Time to rest [s].
        ends: Ends of the cells, (X + 1,).
        age: Largest age of a held value [s].
    """

    def __init__(self, brake_time: float, ends: Array, age: float):
        x = np.polynomial.Polynomial([0.0, 1.0])
        rate = 1.0 - x**2 * (3.0 - 2.0 * x)
        slow, curve = rate.deriv() / brake_time, rate.deriv(2) / brake_time**2
        factors = [rate - rate**3, rate**3, 2.0 * rate * slow, curve, rate * slow]
        self.factors = np.stack([one(ends) for one in factors], axis=1)  # (X + 1, 5)
        width = float(np.diff(ends).max())
        self.sags = np.array([width**2 / 8.0 * _largest(one.deriv(2)) for one in factors])
        self.rate = rate(ends)
        self.lower, self.upper = self.rate[1:], self.rate[:-1]  # it falls, (X,)
        self.slow = np.array([_largest(slow, *pair) for pair in zip(ends[:-1], ends[1:], strict=True)])
        self.curve = larger_neighbour(np.abs(curve(ends)))  # a straight line
        # In the cells and before them by that age: the largest rate, and its first and second derivative; the last
        # ones are those at rest, (3, X + 1).
        begins = np.maximum(ends - age / brake_time, 0.0)
        late = [_largest(slow, *pair) for pair in zip(begins, np.append(ends[1:], 1.0), strict=True)]
        self.held = np.stack([rate(begins), late, np.maximum(np.abs(curve(begins)), np.append(self.curve, 0.0))])


@lru_cache(maxsize=32)
def _clock(brake_time: float, ends: tuple[float, ...], age: float) -> _Clock:
    """Return the clock of all stops of this duration: one for all motions."""
    return _Clock(brake_time, np.array(ends), age)


def _largest(polynomial: np.polynomial.Polynomial, begin: float = 0.0, end: float = 1.0) -> float:
    """Return the largest magnitude of a polynomial between two points."""
    roots = polynomial.deriv().roots() if polynomial.degree() > 1 else np.array([])
    inside = np.clip(np.real(roots[np.abs(np.imag(roots)) < 1e-6]), begin, end)
    return float(np.abs(polynomial(np.concatenate([[begin, end], inside]))).max()) * (1.0 + 1e-9)


class PathCells:
    """Common data of J cells of the time of a path for all stops along it, whatever their time to rest.

    Attributes:
        nodes: Ends of the cells, as numbers of the nodes of the path, (J + 1,).
        times: Their times from the start of the motion, (J + 1,) [s].
        inertia: Nominal inertia there, (J + 1, n, n) [kg m^2].
        inverse: Its inverse, (J + 1, n, n).
        nearby: Factors by which the inertia in a cell may differ from the nearer end's, (J,).
        rates: Largest rates of the path in the cells.
        speeds: Smallest and largest speeds there, (J, n) each [rad/s].
        turning: Largest norm of the rate of the inertia, (J,) [1/s].
        sizes: Bounds at the ends of the model errors G, P and A of :class:`_Clock`, and of P - G, (4, J + 1, ...).
        slopes: Bounds of the slopes of G, P and A, and of P - G, in the metric of either end of a cell, (4, J, 2, ...).
        missed: Torques by which G, P and A differ from polygons, (J, n) each [Nm].
        still: Largest slopes of the torque at rest between the nodes of the slowly varying terms, by name.
    """

    def __init__(self, path: TubeMap):
        self.path, samples = path, path.samples
        first = int(np.searchsorted(path.fine, samples.past, side="right")) - 1
        last = len(path.fine) - 1
        stride = min(max((last - first) // _LEAST_CELLS, 1), _NODE_STRIDE)
        picked = np.unique(np.append(np.arange(first, last, stride), last))
        self.nodes = path.fine[picked]
        self.times = samples.step * (self.nodes - samples.past)
        self.inertia, self.inverse = path.inertia[picked], path.inverse[picked]
        between = path.rates_between(self.nodes)
        self.nearby = between.inertia_change(self.inertia, self.inverse).nearby
        self.reach = np.sqrt(larger_neighbour(np.diagonal(self.inverse, axis1=1, axis2=2)))
        self.inertia_diagonal, self.inverse_diagonal = (
            self.nearby[:, None] * larger_neighbour(np.diagonal(x, axis1=1, axis2=2))
            for x in (self.inertia, self.inverse)
        )
        size = np.sqrt(self.inertia_diagonal)
        off = (self.nearby - 1.0)[:, None, None] * size[:, :, None] * size[:, None]
        self.magnitude = larger_neighbour(np.abs(self.inertia)) + off
        self.rates = samples.rates_over(self.nodes)
        slowest, fastest = path.speeds
        self.speeds = np.minimum.reduceat(slowest, self.nodes[:-1], axis=0), self.over(fastest)
        self.turning = np.maximum.reduceat(path.inertia_change.rate, picked[:-1])
        self._bound_model(np.diff(self.times), between)
        self.still = path.still_terms()

    def over(self, values: Array) -> Array:
        """Take the largest values of the intervals of the path (I, ...) in the cells, (J, ...)."""
        largest: Array = np.maximum.reduceat(values, self.nodes[:-1], axis=0)
        return largest

    def _bound_model(self, width: Array, between: ModelRates) -> None:
        """Bound the smooth model errors of rest and path, the part of accelerations, and their rates."""
        path, samples = self.path, self.path.samples
        n, split, uncertainty = samples.q.shape[1], INERTIAL * samples.q.shape[1], self.path.uncertainty
        q, v, a = (x[self.nodes] for x in (samples.q, samples.v, samples.a))
        still = np.zeros_like(v)
        states = (np.concatenate(x) for x in ([q, q, q], [still, v, still], [still, a, v]))
        columns = path.regressor.evaluate(*states)
        armatures = columns[:, :, split:].reshape(-1, n, n, 4)[..., 2]
        columns = np.concatenate([columns[..., :split], armatures], axis=2).reshape(3, len(q), n, -1)
        columns[2] -= columns[0]
        columns = np.concatenate([columns, columns[1:2] - columns[0:1]])
        values = self.inverse @ columns  # (4, N, n, l): G, P, A, P - G
        center, radius = uncertainty.center, uncertainty.spread
        slopes = np.diff(values, axis=1) / width[:, None, None]
        self._metric = np.stack([self.inertia[:-1], self.inertia[1:]], axis=1)  # (J, 2, n, n)
        used = radius > 0.0
        middles, lasts = values @ center, values[..., uncertainty.last]
        # As for :meth:`bound`, at the nodes and of the slopes.
        self._at_nodes = middles, lasts, np.abs(values[..., used]) @ radius[used]
        self._sloped = (
            np.diff(middles, axis=1) / width[:, None],
            slopes[..., uncertainty.last],
            np.abs(slopes[..., used]) @ radius[used],
        )
        self.sizes = self._bound(*self._at_nodes, self.inertia)
        middle, last, wide = (np.repeat(one[:, :, None], 2, axis=2) for one in self._sloped)
        self.slopes = self._bound(middle, last, wide, self._metric)
        torques = (TermRates.weight, TermRates.torque, TermRates.momentum)
        self.missed = [
            between.missed_torque(larger_neighbour(self.sizes.entries[k]), self.slopes.entries[k].max(axis=1), of)
            for k, of in enumerate(torques)
        ]

    def _bound(self, middle: Array, last: Array, wide: Array, metrics: Array) -> Signal:
        """Bound vectors by their middle (..., n), the part of each payload parameter, and the rest."""
        vertices, n, shape = self.path.uncertainty.vertices, middle.shape[-1], middle.shape
        middle, last, wide = middle.reshape(-1, n), last.reshape(-1, n, INERTIAL), wide.reshape(-1, n)
        metrics = metrics.reshape(-1, n, n)
        metrics = np.broadcast_to(metrics, (len(middle) // len(metrics), *metrics.shape)).reshape(-1, n, n)
        norm, entries = vertices.largest_vectors(middle, last, metrics)
        norm += np.sqrt(np.einsum("ti,ti->t", wide, (np.abs(metrics) @ wide[..., None])[..., 0]))
        return Signal((entries + wide).reshape(shape), norm.reshape(shape[:-1]))

    def bound_rate(self, factors: Array) -> Signal:
        """Bound the rate of the model error with the factors (X + 1, 5) of its parts, (X + 1, J, 2, ...)."""

        def combined(at_nodes: Array, sloped: Array, factors: Array) -> Array:
            ends = np.stack([at_nodes[:, :-1], at_nodes[:, 1:]], axis=2)
            still, moving, extra, _ = np.repeat(sloped[:, :, None], 2, axis=2)
            parts = np.stack([still, moving, ends[3], ends[2], extra])
            flat: Array = factors @ parts.reshape(5, -1)
            return flat.reshape(-1, *parts.shape[1:])

        signed = (factors, factors, np.abs(factors))
        pairs = zip(self._at_nodes, self._sloped, signed, strict=True)
        middle, last, wide = (combined(*three) for three in pairs)
        return self._bound(middle, last, wide, self._metric)


class _Cells:
    """Bounds of the inputs of stops in J cells of the time of the path and X + 1 cells of x, the last one at rest."""

    def __init__(self, path: PathCells, clock: _Clock):
        self.path, self.clock = path, clock
        # Of the clock in all cells of x, rest among them.
        self.upper, self.lower = np.append(clock.upper, 0.0), np.append(clock.lower, 0.0)
        self.slow, self.curve = np.append(clock.slow, 0.0), np.append(clock.curve, 0.0)
        self.squares = np.stack([self.lower**2, self.upper**2])  # (2, X + 1)
        rates, (slowest, fastest) = path.rates, path.speeds
        self.velocity = self.upper[:, None] * rates.v[:, None]  # (J, X + 1, n)
        self.acceleration = self.upper[:, None] ** 2 * rates.a[:, None] + self.slow[:, None] * rates.v[:, None]
        self.speeds = self.lower[:, None] * slowest[:, None], self.upper[:, None] * fastest[:, None]
        self._bound_model()
        self._bound_slow_terms()

    def mix(self, still: Array, moving: Array, upper: Array | None = None) -> Array:
        """Bound ``(1 - r^2) still + r^2 moving`` of magnitudes (J, ...), for r up to ``upper``, (J, X + 1, ...)."""
        shape = (-1, *[1] * (still.ndim - 1))
        low, high = self.squares
        low, high = (r.reshape(shape) for r in (low, high if upper is None else upper**2))
        still, moving = still[:, None], moving[:, None]
        mixed: Array = np.maximum((1.0 - low) * still + low * moving, (1.0 - high) * still + high * moving)
        return mixed

    def _bound_model(self) -> None:
        """Bound the smooth model error: its norm, its rate, and the torque by which it differs from polygons."""
        path, clock, whole = self.path, self.clock, self.path.path
        sizes, rates, nearby, n = path.sizes, path.slopes, path.nearby, path.inertia.shape[1]
        at = path.bound_rate(clock.factors)

        # Between the ends of a cell of x the factors are within their sags of straight lines.
        def swung(size: Array, rate: Array) -> Array:
            size = larger_neighbour(size.swapaxes(0, 1)).swapaxes(0, 1)  # (3, J, ...)
            parts = [rate[0], rate[1], size[3], size[2], rate[2]]
            total: Array = np.einsum("r,rj...->j...", clock.sags, np.stack(parts))
            return total

        entries, norm = at.entries.max(axis=2), at.norm.max(axis=2)  # (X + 1, J, ...)
        entries = larger_neighbour(entries).swapaxes(0, 1) + swung(sizes.entries, rates.entries.max(axis=2))[:, None]
        norm = larger_neighbour(norm).swapaxes(0, 1) + swung(sizes.norm, rates.norm.max(axis=2))[:, None]
        entries, norm = (np.concatenate([x, np.zeros_like(x[:, :1])], axis=1) for x in (entries, norm))

        # Coulomb and viscous friction and offsets, of which only magnitudes and rates are bounded.
        model, split = whole.model, INERTIAL * n
        low, high = (b[split:] - model.theta[split:] for b in (model.theta_box.lower, model.theta_box.upper))
        coulomb, viscous, _, offset = np.maximum(np.abs(low), np.abs(high)).reshape(n, 4).T
        speed = whole.settings.friction_speed
        bends = (self.speeds[0] <= speed) & (self.speeds[1] >= 0.5 * speed)
        share = np.where(self.speeds[1] >= 0.5 * speed, np.minimum(2.0 * self.speeds[1] / speed - 1.0, 1.0), 0.0)
        held = self.torques(coulomb * share + viscous * self.velocity + offset)
        moved = self.torques((coulomb * bends * 2.0 / speed + viscous) * self.acceleration)
        carried = (path.turning[:, None] * self.upper) * held.norm
        self.rate = Signal(
            entries + moved.entries + carried[..., None] * np.sqrt(path.inverse_diagonal)[:, None],
            np.sqrt(nearby)[:, None] * norm + moved.norm + carried,
        )
        missed = path.missed
        self.missed = self.mix(missed[0], missed[1]) + self.slow[:, None] * missed[2][:, None]
        # Before the stop the model error is near the polygon of the path, which may differ from these cells'.
        jump = self.torques((missed[1] + path.over(whole.missed))[:, None])
        self.jump = Signal(jump.entries[:, 0], jump.norm[:, 0])
        polygons = [np.sqrt(nearby) * larger_neighbour(size) for size in sizes.norm[:3]]
        polygon = self.mix(polygons[0], polygons[1]) + self.slow * polygons[2][:, None]
        self.smooth_norm = polygon + held.norm + self.torques(self.missed).norm

    def _bound_slow_terms(self) -> None:
        path, terms, still, count = self.path.path, self.path.path.terms, self.path.still, len(self.upper)
        largest, rates = terms.largest, terms.rates
        speed = np.sqrt(np.einsum("si,sij,sj->s", rates.v, largest.inertia, rates.v))[:, None]
        upper, slow, curve = self.upper, self.slow, self.curve
        if path.turned is not None:  # an allowance does not cover the age of held values
            upper, slow, curve = self.clock.held
        pushed = slow * speed

        def spread(values: Array) -> Array:  # (S, ...) to (S (X + 1), ...)
            return np.repeat(values, count, axis=0)

        def scaled(values: Array) -> Array:
            return np.ravel(values[:, None] * upper)

        columns = {name: spread(getattr(largest, name)) for name in (x.name for x in fields(ModelTerms))}
        ratio_slope, inertia_slope = largest.ratio_slope[:, None], largest.inertia_slope[:, None]
        inertia_rate = largest.inertia_rate[:, None]
        columns["model_slope"] = (
            self.mix(still["model_slope"], largest.model_slope, upper) + pushed * ratio_slope
        ).ravel()
        columns["torque_slope"] = (
            self.mix(still["torque_slope"], largest.torque_slope, upper) + pushed * inertia_slope
        ).ravel()
        turned_rate = self.mix(still["torque_rate"], largest.torque_rate, upper) + pushed * inertia_rate
        for name in ("inertia_rate", "ratio_rate", "coriolis_rate", "drag_rate"):
            columns[name] = scaled(getattr(largest, name))
        columns["torque_rate"] = (upper * turned_rate).ravel()
        v, a, jerk, jumps = (x[:, None] for x in (rates.v, rates.a, rates.jerk, terms.jumps))
        r, r1, r2 = (x[:, None] for x in (upper, slow, curve))
        parts = [r * v, r**2 * a + r1 * v, r**3 * jerk + 3.0 * r * r1 * a + r2 * v + r**2 * jumps]
        held = MotionRates(*(x.reshape(-1, x.shape[-1]) for x in (*parts, parts[-1])))
        wide = replace(terms, inverses=np.repeat(terms.inverses, count, axis=1))
        residual = wide.residual(path.arm, ModelTerms(**columns), held)

        def refined(values: Array) -> Array:  # to the cells, (J, X + 1)
            largest: Array = self.path.over(values.reshape(-1, count)[path.spread])
            return largest

        self.residual = {x.name: refined(getattr(residual, x.name)) for x in fields(ResidualDisturbance)}
        self.slow_terms = {name: refined(columns[name]) for name in SLOW_TERMS}
        self.turned = None
        if path.turned is not None:
            turned = np.maximum.reduceat(path.turned, np.flatnonzero(np.diff(path.spread, prepend=-1)))
            self.turned = refined(self.mix(still["turned"], turned, upper))
        size = np.sqrt(np.diagonal(largest.inertia, axis1=1, axis2=2))
        turned = (largest.inertia_slope * speed[:, 0])[:, None, None] * size[:, :, None] * size[:, None]
        gradient = self.mix(still["gradient"], largest.torque_gradient) + slow[:, None, None] * turned[:, None]
        self.torque_gradient = gradient.max(axis=0)  # (X + 1, n, n)

    def torques(self, torque: Array) -> Signal:
        """Bound ``M^-1 h`` for all torques ``|h| <= torque``, (J, X + 1, n)."""
        entries, norms = [], []
        for inverse in (self.path.inverse[:-1], self.path.inverse[1:]):
            size = np.abs(inverse)
            reached = np.einsum("jab,jxb->jxa", size, torque)
            entries.append(reached)
            norms.append(np.sqrt(np.einsum("jxa,jxa->jx", torque, reached)))
        return self._near(np.maximum(*entries), np.maximum(*norms))

    def corner_torques(self, torque: Array) -> Signal:
        """Bound the same with the largest norm of any signs."""
        count, several, n = torque.shape
        flat = torque.reshape(-1, n)
        found = [
            bound_torques(np.repeat(inverse, several, axis=0), flat)
            for inverse in (self.path.inverse[:-1], self.path.inverse[1:])
        ]
        entries, norm = (np.maximum(*(getattr(x, name) for x in found)) for name in ("entries", "norm"))
        return self._near(entries.reshape(torque.shape), norm.reshape(count, several))

    def _near(self, entries: Array, norm: Array) -> Signal:
        nearby = self.path.nearby
        off = (nearby - 1.0)[:, None, None] * norm[..., None] * self.path.reach[:, None]
        return Signal(entries + off, np.sqrt(nearby)[:, None] * norm)

    def norm_of(self, error: Array) -> Array:
        """Bound the norm of every vector whose entries are at most these, (n,), (J,)."""
        inertia = self.path.inertia
        size = np.broadcast_to(error, inertia.shape[1])
        norm = np.sqrt(np.einsum("tij,i,j->t", np.abs(inertia), size, size))
        bound: Array = np.sqrt(self.path.nearby) * larger_neighbour(norm)
        return bound


def bound_stops(path: PathCells, tube: Tube, bounds: ErrorBounds, duration: float, brake_time: float) -> StopBound:
    """Bound the errors in all stops of a motion.

    Args:
        path: Cells of the motion.
        tube: An invariant tube.
        bounds: Its image.
        duration: Duration of the motion: stops begin from 0 to it [s].
        brake_time: Time to rest of the stops [s].

    Raises:
        BoundNotAvailable: No tube was found.
    """
    return _StopMap(path, tube, bounds.inputs, duration, brake_time).solve()


class _StopMap(LoopBounds):
    """The tube map of all stops, for P parts of the times at which stops begin and K intervals."""

    def __init__(self, path_cells: PathCells, tube: Tube, inputs: LoopInputs, duration: float, brake_time: float):
        path, samples = path_cells.path, path_cells.path.samples
        self._path, self._tube, self._inputs = path, tube, inputs
        self.robot, self.model, self.settings = path.robot, path.model, path.settings
        fine = self._fine = max(1, round(brake_time / _CELLS / samples.step))
        width = self._width = fine * samples.step
        stop = int(np.ceil(brake_time / width - 1e-9))
        self._count = stop + int(np.ceil(_AFTERWARDS / width))
        parts = max(1, int(np.ceil(duration / (_BEGIN_CELLS * width) - 1e-9)))
        self._brake_time = brake_time
        self._begins = _BEGIN_CELLS * width * np.arange(parts + 1)
        self._times = width * np.arange(self._count + 1)
        x = np.minimum(self._times / brake_time, 1.0)
        self._cells = cells = _Cells(
            path_cells, _clock(brake_time, tuple(x[: stop + 1]), self.settings.period + self.settings.delay)
        )
        self._x = np.minimum(np.arange(self._count), stop)  # cells of x, (K,)
        clock = brake_time * (x - x**3 + 0.5 * x**4)
        last = len(path_cells.times) - 2
        # Cells of the path that a stop can be in, (P, K); where two meet, both count.
        slack = 1e-9
        begin, end = self._begins[:-1, None] + clock[:-1] - slack, self._begins[1:, None] + clock[1:] + slack
        self._first = np.clip(np.searchsorted(path_cells.times, begin, side="right") - 1, 0, last)
        self._last = np.clip(np.searchsorted(path_cells.times, end, side="left") - 1, self._first, last)
        self._past = int(np.ceil(horizon(path.settings) / width - 1e-9)) + 1
        # The norm of the cells of the path in which the stop begins.
        self._jump = Signal(*(self._gather_path(one)[:, 0] for one in (cells.jump.entries, cells.jump.norm)))
        self._rate_entries, self._rate_norm = (
            _joined(self._before(past_rate), self._gather(rate))
            for past_rate, rate in ((path.rate.entries, cells.rate.entries), (path.rate.norm, cells.rate.norm))
        )
        slow = path.terms_in(tube)
        inertia_rate = slow["inertia_rate"] + slow["inertia_slope"] * tube.velocity_norm
        self._past_friction = Signal(self._before(inputs.friction.entries), self._before(inputs.friction.norm))
        self._past_friction_torque, self._past_residual = (
            self._before(x) for x in (inputs.friction_torque, inputs.residual)
        )
        self._past_change = self._before(inputs.ratio_rate)
        self._past_errors = {x: self._before(getattr(tube, x)) for x in ("velocity_norm", "acceleration_norm")}
        self._past_inertia_rate = self._before(inertia_rate / (1.0 - inputs.shift))
        self.slow_terms = {name: self._gather(values) for name, values in cells.slow_terms.items()}
        self.turned = None if cells.turned is None else self._gather(cells.turned)
        self._residual = ResidualDisturbance(
            *(self._gather(cells.residual[x.name]) for x in fields(ResidualDisturbance))
        )
        self.smooth_norm, self.missed = self._gather(cells.smooth_norm), self._gather(cells.missed)
        self.largest_smooth_norm = max(float(self.smooth_norm.max()), path.largest_smooth_norm)
        self.inertia_diagonal, self._inverse_diagonal, self.magnitude = (
            self._gather_path(getattr(path_cells, x)) for x in ("inertia_diagonal", "inverse_diagonal", "magnitude")
        )
        self.sensor_errors = path.sensor_errors
        self.error_norms = [self._gather_path(cells.norm_of(error)) for error in path.sensor_errors]

    def solve(self) -> StopBound:
        """Find an invariant tube, and the bound it gives."""
        tube, settled = self._first_tube(), 1.0 + SETTLED
        bounds, refinements = None, 0
        for _ in range(20):
            bounds = self._evaluate(tube)
            found = self.image(tube, bounds).scaled(settled)
            if tube.contains(found):
                refinements += 1
                if refinements > _REFINEMENTS:
                    break
                tube = found
            elif refinements:
                break  # rounding
            else:
                tube = found.scaled(_GROWTH)
        if not refinements:
            raise BoundNotAvailable("no tube of the stops maps into itself: the motion is too fast, or stops too short")
        assert bounds is not None  # noqa: S101  # there is a round
        n = self._path.robot.n
        off, off_rate = link_errors(self._path.robot)
        torque = self._scatter(settled * self.bound_torque(tube, bounds)).max(axis=1)
        cells = self._cells
        rates = cells.upper[self._x]
        velocity = tube.velocity.max(axis=0) + off_rate
        position = tube.position.reshape(-1, n).max(axis=0) + off
        return StopBound(self._brake_time, position, rates, velocity, cells.path.times, torque)

    def _first_tube(self) -> Tube:
        after = np.minimum(self._begins[1:, None] + self._times[1:], self._path.samples.step * self._path.intervals)
        return Tube(
            *(
                _START * np.broadcast_to(x[self._path.samples.past :].max(axis=0), (*after.shape, *x.shape[1:]))
                for x in (getattr(self._tube, x.name) for x in fields(Tube))
            )
        )

    def _gather(self, values: Array) -> Array:
        """Take the largest values (J, X + 1, ...) of the cells that stops can be in, (P, K, ...)."""
        result: Array = values[self._first, self._x]
        for offset in range(1, int((self._last - self._first).max()) + 1):
            result = np.maximum(result, values[np.minimum(self._first + offset, self._last), self._x])
        return result

    def _gather_path(self, values: Array) -> Array:
        """Take the largest values (J, ...) of the cells of the path that stops can be in, (P, K, ...)."""
        shape = (len(values), len(self._cells.upper), *values.shape[1:])
        return self._gather(np.broadcast_to(values[:, None], shape))

    def _scatter(self, values: Array) -> Array:
        """Give the cells the largest values (P, K, n) of stops that can be in them, (J, X + 1, n)."""
        result = np.zeros((len(self._cells.path.nodes) - 1, len(self._cells.upper), values.shape[-1]))
        x = np.broadcast_to(self._x, self._first.shape)
        for offset in range(int((self._last - self._first).max()) + 1):
            np.maximum.at(result, (np.minimum(self._first + offset, self._last), x), values)
        return result

    def _before(self, values: Array) -> Array:
        past, fine = self._path.samples.past, self._fine
        front = -past % fine
        total = past + fine * _BEGIN_CELLS * (len(self._begins) - 1)
        head = np.repeat(values[:1], front, axis=0)
        tail = np.repeat(values[-1:], max(0, total - len(values)), axis=0)
        padded = np.concatenate([head, values[:total], tail])
        wide = padded.reshape(-1, fine, *values.shape[1:]).max(axis=1)
        start = (past + front) // fine
        index = start + _BEGIN_CELLS * np.arange(len(self._begins) - 1)[:, None] - np.arange(self._past, 0, -1)
        shifts = range(_BEGIN_CELLS + 1)
        result: Array = np.max([wide[np.clip(index + shift, 0, len(wide) - 1)] for shift in shifts], axis=0)
        return result

    def _bound_inputs(self, tube: Tube) -> LoopInputs:
        """Compute kernels and disturbances for errors in the tube; disturbances before the stops are among them."""
        path, past, cells = self._path, self._inputs, self._cells
        slow, allowance = self.terms_in(tube), self.allowance(tube)
        shift = max(past.shift, float(self.inertia_shift(tube).max()))
        if not shift < 0.5:
            raise BoundNotAvailable("the position errors in stops may change the inertia by half")
        ratios = path.ratios_near(tube.position.reshape(-1, path.robot.n).max(axis=0), float(allowance.max()))
        ratios = min(ratios[0], past.ratios[0]), max(ratios[1], past.ratios[1])
        rest = 1.0 - shift
        inertia_rate = (slow["inertia_rate"] + slow["inertia_slope"] * tube.velocity_norm) / rest
        rates = np.concatenate([self._past_inertia_rate, inertia_rate], axis=1)
        over = sliding_window_view(rates, self._past, axis=1).sum(axis=-1).max() * self._width
        is_difference = path.robot.sensors.velocity_is_difference
        kernels = loop_kernels(path.settings, ratios, 0.5 * float(rates.max()), 0.5 * float(over), is_difference)
        torque = bound_friction(path.model, path.settings, cells.speeds, self._scatter(tube.velocity)) + cells.missed
        friction = cells.corner_torques(torque)
        shrunk = np.sqrt(rest)
        reach = np.sqrt(self._inverse_diagonal)
        norm = self._gather(friction.norm)
        entries = self._gather(friction.entries) + reach * (shift / rest * norm)[..., None]
        feedback = np.sqrt(1.0 + shift) * self.smooth_norm + tube.feedback_norm
        errors = (tube.position_norm, tube.velocity_norm, tube.acceleration_norm)
        residual = allowance * self._residual.evaluate(*errors, feedback) / rest
        changing = slow["ratio_rate"] + slow["ratio_slope"] * tube.velocity_norm
        return LoopInputs(
            shift=shift,
            ratios=ratios,
            ratio_rate=_joined(self._past_change, changing / rest),
            kernels=kernels,
            friction_torque=_joined(self._past_friction_torque, self._gather(torque)),
            friction=Signal(
                _joined(self._past_friction.entries, entries), _joined(self._past_friction.norm, norm / shrunk)
            ),
            residual=_joined(self._past_residual, residual),
            joint_per_norm=reach / shrunk,
        )

    def _evaluate(self, tube: Tube) -> ErrorBounds:
        inputs = self._bound_inputs(tube)
        kernels, grown, n = inputs.kernels, inputs.growth, self.robot.n
        own = self.bound_self_induced(tube, inputs)
        coupled, norms = (
            self.convolve(of(kernels.residual), inputs.friction.norm)
            + grown
            * (self.convolve(of(kernels.smooth), self._rate_norm) + self._after_jump(of(kernels.step), self._jump.norm))
            for of in (_deviation, _largest_response)
        )
        norms += own
        sensors = np.zeros((n, 4))
        for (error, size), kernel in zip(
            self.feedback_errors(tube), (kernels.velocity_error, kernels.position_error), strict=True
        ):
            sensors += np.broadcast_to(error, n)[:, None] * kernel.center
            coupled += grown * size[..., None] * kernel.deviation
            norms += grown * size[..., None] * kernel.largest
        model = self.convolve(kernels.smooth.center, self._rate_entries)
        model += self._after_jump(kernels.step.center, self._jump.entries)
        causes = {
            "friction": self.convolve(kernels.residual.center, inputs.friction.entries),
            "model": model,
            "sensors": np.broadcast_to(sensors, model.shape),
            "coupling": inputs.joint_per_norm[..., None] * coupled[:, :, None],
            "errors themselves": inputs.joint_per_norm[..., None] * own[:, :, None],
        }
        return ErrorBounds(inputs, causes, norms)

    def feedback_errors(self, tube: Tube) -> list[tuple[Array, Array]]:
        path, cells = self._path, self._cells
        sensors = path.robot.sensors
        if not sensors.velocity_is_difference:
            return list(zip(path.sensor_errors, self.error_norms, strict=True))
        n = path.robot.n
        reached = np.maximum(cells.acceleration.reshape(-1, n).max(axis=0), path.samples.rates.a.max(axis=0))
        lag = 0.5 * path.settings.period * (reached + path.samples.jumps.max(axis=0))
        largest = np.maximum(tube.velocity.reshape(-1, n).max(axis=0), self._tube.velocity.max(axis=0))
        speed = path.samples.rates.v.max(axis=0) + largest
        position = 0.5 * sensors.position_resolution + sensors.stamp_jitter * speed
        return [(error, self._gather_path(cells.norm_of(error))) for error in (lag, position)]

    def with_past(self, values: Array, name: str) -> Array:
        """Put the bounds of an error on the path before those in stops, (P, B + K)."""
        return _joined(self._past_errors[name], values)

    def largest(self, tube: Tube, name: str) -> float:
        return max(float(getattr(one, name).max()) for one in (tube, self._tube))

    def apply_gradient(self, errors: Array) -> Array:
        """Multiply errors (P, K, n) by the largest magnitudes of the gradient in each cell of x."""
        turned: Array = np.einsum("kij,pkj->pki", self._cells.torque_gradient[self._x], errors)
        return turned

    def _widened(self, kernel: Array) -> Array:
        """Sum kernels (B,) or (B, k) over the bins of each interval of stops."""
        padded = np.concatenate([kernel, np.zeros((-len(kernel) % self._fine, *kernel.shape[1:]))])
        result: Array = padded.reshape(-1, self._fine, *kernel.shape[1:]).sum(axis=1)
        return result

    def _seen(self, signal: Array) -> Array:
        """Return the signals (P, B + K, ...) that bins of age see, (P, K, ..., B): the larger of two intervals."""
        larger = np.maximum(signal[:, 1:], signal[:, :-1])
        windows: Array = sliding_window_view(larger, self._past, axis=1)[..., ::-1]
        return windows

    def convolve(self, kernel: Array, signal: Array) -> Array:
        """Bound the convolution of kernels (B,) or (B, k) with signals (P, B + K, ...), (P, K, ...), then (k,)."""
        wide, seen = self._widened(kernel), self._seen(signal)
        bound: Array = seen[..., : len(wide)] @ wide
        return bound

    def convolve_change(self, kernels: tuple[Array, Array], rate: Array, signal: Array) -> Array:
        """Bound the same where the signal acts in proportion to the change since, (P, K, k)."""
        wide, wide_age = (self._widened(kernel) for kernel in kernels)
        back = sliding_window_view(rate, self._past + 1, axis=1)[..., ::-1]  # (P, K, B + 1)
        largest = np.maximum.accumulate(back, axis=-1)[..., 1:]
        passed = self._width * np.cumsum(back, axis=-1)[..., 1:]
        seen = self._seen(signal)
        count = len(wide)
        near = min(_NEAR, count)
        bound: Array = (seen * largest)[..., :near] @ wide_age[:near]
        bound += (seen * passed)[..., near:count] @ wide[near:]
        return bound

    def _after_jump(self, kernel: Array, size: Array) -> Array:
        """Bound the response to a jump (P, ...) as the stop begins, by kernels (B, k) of steps, (P, K, ..., k)."""
        padded = np.concatenate([kernel, np.zeros((-len(kernel) % self._fine, kernel.shape[1]))])
        wide = padded.reshape(-1, self._fine, kernel.shape[1]).max(axis=1)
        missing = max(0, self._count - len(wide))
        wide = np.concatenate([wide, np.zeros((missing, kernel.shape[1]))])[: self._count]
        response: Array = np.moveaxis(np.multiply.outer(size, wide), -2, 1)
        return response


def _joined(past: Array, present: Array) -> Array:
    return np.concatenate([past, present], axis=1)


def _deviation(kernel: Kernel) -> Array:
    return kernel.deviation


def _largest_response(kernel: Kernel) -> Array:
    return kernel.largest
