"""The error budget of a window: integrals of torque and friction, derivative bounds, and the terms they lead to.

docs/theory/bounds.md derives every term. Each holds for all parameters in their box and all errors that the sensors
guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS, SHARED_TERMS
from sysid_ros.core.estimation.windows.model import WindowModel, WindowSignals
from sysid_ros.core.model.robot import FRICTION, INERTIAL, SensorModel, integral_bound

Array = NDArray[np.float64]

SMOOTH_STEP = 0.015
"""Longest step for which ``acceleration_change`` bounds the whole change of the acceleration [s]."""
_TURN = 0.08
"""Turn of a joint between points at which slopes of the inertia are evaluated, where more are known [rad]."""
ROUNDING = 1e-12
"""Bound on the relative rounding error of a computed row: some thousand operations of 1.1e-16 each."""


@dataclass(frozen=True)
class TorqueIntegral:
    """Integral of the true torque from ``start`` to ``stop``: ``value`` within the sum of the other four entries.

    Attributes:
        value: (n,) [Nms].
        relative: Bound of the relative sensor error, (n,) [Nms].
        absolute: Bound of the absolute sensor error without the vibration that windows share, (n,) [Nms].
        interpolation: Bound for the torque between samples, (n,) [Nms]; zero for a zero-order hold.
        jitter: Bound of the effect of wrong stamps, (n,) [Nms].
    """

    value: Array
    relative: Array
    absolute: Array
    interpolation: Array
    jitter: Array


def integrate_torque(seconds: Array, tau: Array, start: float, stop: float, sensors: SensorModel) -> TorqueIntegral:
    """Integrate torque samples from ``start`` to ``stop``.

    A held sample is the mean torque since the sample before it, so the sum of rectangles is exact. Otherwise the torque
    between two samples is assumed to lie in the hull of their error intervals. The part of a constant gain error is not
    included: with it the integral is ``(1 + g)`` times the value, within the same sum.

    Args:
        seconds: Stamps, (N,) [s], covering ``start`` to ``stop``.
        tau: Samples, (N, n) [Nm].
        start: Lower limit of the integral [s].
        stop: Upper limit [s].
        sensors: Guarantees of the sensors.
    """
    relative, absolute = sensors.sample_error(tau)
    gain = sensors.gain_radius
    error = relative + absolute
    if sensors.effort_is_held:
        center, radius, share_relative, share_absolute = tau[1:], error[1:], relative[1:], absolute[1:]
    else:
        error = error / (1.0 - gain)  # the hull of (1 + g) m_k +- e_k lies in 1 + g times that of m_k +- e_k / (1 - G)
        low = np.minimum(tau[:-1] - error[:-1], tau[1:] - error[1:])
        high = np.maximum(tau[:-1] + error[:-1], tau[1:] + error[1:])
        center, radius = 0.5 * (low + high), 0.5 * (high - low) * (1.0 + gain)
        share_relative, share_absolute = 0.5 * (relative[:-1] + relative[1:]), 0.5 * (absolute[:-1] + absolute[1:])
    steps = np.maximum(np.minimum(seconds[1:], stop) - np.maximum(seconds[:-1], start), 0.0)
    inside = steps > 0.0
    parts = [steps @ part for part in (center, share_relative, share_absolute, radius)]
    interpolation = np.maximum(parts[3] - parts[1] - parts[2], 0.0)
    jitter = sensors.stamp_jitter * ((1.0 + gain) * abel_bound(center[inside]) + abel_bound(radius[inside]))
    if sensors.effort_is_held:
        interpolation, parts[2] = np.zeros_like(parts[2]), sensors.effort_integral[0] * (stop - start)
    return TorqueIntegral(parts[0], parts[1], parts[2], interpolation, jitter)


def abel_bound(values: Array) -> Array:
    """Bound ``|sum values_k (ds_k - dt_k)|`` where every step end is wrong by at most one; (K, ...) to (...).

    Summation by parts: first and last value and the total variation between them.
    """
    return np.asarray(np.abs(values[0]) + np.abs(values[-1]) + np.sum(np.abs(np.diff(values, axis=0)), axis=0))


def sample_torque(seconds: Array, tau: Array, time: float) -> Array:
    """Interpolate the torque at a time linearly, (n,) [Nm]."""
    last = len(seconds) - 1
    k = min(max(int(np.searchsorted(seconds, time, side="right")) - 1, 0), last - 1)
    weight = (time - seconds[k]) / (seconds[k + 1] - seconds[k])
    return np.asarray((1.0 - weight) * tau[k] + weight * tau[k + 1])


def torque_change(model: WindowModel, signals: WindowSignals) -> Array:
    """Return the torque at the end of a window less that at its start, (n,) [Nm]."""
    lag, seconds, tau = model.settings.torque_lag, signals.torque_times, signals.tau
    return sample_torque(seconds, tau, signals.duration + lag) - sample_torque(seconds, tau, lag)


def range_around(seconds: Array, tau: Array, time: float, reach: float, sensors: SensorModel) -> tuple[Array, Array]:
    """Return the ends (n,) [Nm] of an interval that holds the true torque from ``time - reach`` to ``time + reach``."""
    first = max(int(np.searchsorted(seconds, time - reach, side="right")) - 1, 0)
    last = min(int(np.searchsorted(seconds, time + reach, side="left")) + 1, len(seconds))
    error = np.sum(sensors.sample_error(tau[first:last]), axis=0) + sensors.gain_radius * np.abs(tau[first:last])
    return np.min(tau[first:last] - error, axis=0), np.max(tau[first:last] + error, axis=0)


@dataclass(frozen=True)
class SignIntegral:
    """Integral of ``sign(v)`` over a window: ``value`` within ``uncertain``, for exact stamps.

    Attributes:
        value: The certain part, (n,) [s].
        uncertain: Time during which the sign is not known, (n,) [s].
        jitter_gain: Bound on the change of value and uncertain time per second of stamp error, (n,) [-].
        is_steady: Whether the signs of all joints are certain during a step, (N - 1,).
    """

    value: Array
    uncertain: Array
    jitter_gain: Array
    is_steady: NDArray[np.bool_]


def integrate_sign(v: Array, steps: Array, slack: Array) -> SignIntegral:
    """Integrate ``sign(v)`` over a window.

    The sign is certain during a step if both its ends are faster than ``slack`` in the same direction; in any other
    step the Coulomb torque may be anything between ``-F_c`` and ``F_c``, at rest included.

    Args:
        v: Measured speeds, (N, n) [rad/s].
        steps: Step lengths, (N - 1,) [s].
        slack: Sum of speed error, stiction speed and the largest change of speed in half a step, (n,) [rad/s].
    """
    sign = np.where(v > slack, 1.0, np.where(v < -slack, -1.0, 0.0))
    certain = np.where(sign[1:] == sign[:-1], sign[1:], 0.0)
    uncertain = np.where(certain == 0.0, 1.0, 0.0)
    jitter_gain = abel_bound(certain) + abel_bound(uncertain)
    return SignIntegral(steps @ certain, steps @ uncertain, jitter_gain, np.all(certain != 0.0, axis=1))


@dataclass(frozen=True)
class DerivativeBounds:
    """Bounds on derivatives of the rows for every parameter in the box; entry [i, l] is the effect of joint l on row i.

    Attributes:
        momentum_q: Columns of ``dp/dq`` at the start and at the end of the window, (2, n, 10 n, n).
        momentum_v: Columns of ``dp/dv`` there, without armature, (2, n, 10 n, n).
        momentum_rest: Bound on how far ``dp/dq`` is from these, at the start plus at the end, (n, n).
        force_q: Integral of the largest ``|dc/dq|`` over the window, (n, n).
        force_v: The same for ``|dc/dv|``, (n, n).
        mean_q: Columns of the mean of ``dc/dq`` over the window, (n, 10 n, n).
        mean_v: The same for ``dc/dv``, (n, 10 n, n).
        rest_q: Integral of the largest distance of ``dc/dq`` from its mean, (n, n).
        rest_v: The same for ``dc/dv``, (n, n).
        force_ends: Largest ``|c|`` at the start plus that at the end, (n,) [Nm].
        force_variation: Bound on the total variation of c over the samples, (n,) [Nm].
        chord_curvature: Bound on the second time derivative of c along straight lines between samples, (n,) [Nm/s^2].
    """

    momentum_q: Array
    momentum_v: Array
    momentum_rest: Array
    force_q: Array
    force_v: Array
    mean_q: Array
    mean_v: Array
    rest_q: Array
    rest_v: Array
    force_ends: Array
    force_variation: Array
    chord_curvature: Array

    @classmethod
    def of(cls, model: WindowModel, signals: WindowSignals) -> DerivativeBounds:
        """Bound the derivatives in one window."""
        derivatives, ends = signals.derivatives, [0, -1]
        neighbours = _Neighbours.of(signals)
        slopes = inertia_slopes(model, signals)
        second = model.curvature.force(signals.speed, slopes)
        dq = neighbours.largest_distance(signals.q) + signals.position_drift
        dv = neighbours.largest_distance(signals.v) + signals.velocity_drift
        first_moment = model.curvature.first_moment
        tilt = model.tilt * np.minimum(first_moment[:, None], first_moment)
        away_q = tilt + _apply(second.qq, dq) + _apply(second.qv, dv)
        away_v = _apply(second.qv.transpose(0, 2, 1), dq) + _apply(second.vv, dv)
        # Parameters last, as they lie in memory: (K, n, n, p) and (n, n, p).
        parts = [np.moveaxis(part, 3, 2) for part in (derivatives.force_q, derivatives.force_v)]
        means = [(neighbours.shares @ part.reshape(len(part), -1)).reshape(part.shape[1:]) for part in parts]
        by_q, by_v = (model.magnitude(part) + away for part, away in zip(parts, (away_q, away_v), strict=True))
        rest_q, rest_v = (
            model.magnitude(part - mean) + away for part, mean, away in zip(parts, means, (away_q, away_v), strict=True)
        )
        mean_q, mean_v = (np.moveaxis(mean, 2, 1) for mean in means)
        span = neighbours.shares * signals.duration + 2.0 * model.sensors.stamp_jitter
        variation = np.einsum("kil,kl->i", by_q, neighbours.travel(signals.q))
        variation += np.einsum("kil,kl->i", by_v, neighbours.travel(signals.v))
        speed, slope = signals.speed, signals.slope
        curvature = (second.qq @ speed + 2.0 * second.qv @ slope) @ speed + second.vv @ slope @ slope
        second_p = model.curvature.momentum(signals.speed, slopes)
        momentum_rest = 2.0 * (second_p.qq @ signals.position_error + second_p.qv @ model.sensors.velocity_error)
        return cls(
            momentum_q=derivatives.momentum_q[ends],
            momentum_v=derivatives.momentum_v[ends],
            momentum_rest=momentum_rest,
            force_q=np.tensordot(span, by_q, axes=1),
            force_v=np.tensordot(span, by_v, axes=1),
            mean_q=mean_q,
            mean_v=mean_v,
            rest_q=np.tensordot(span, rest_q, axes=1),
            rest_v=np.tensordot(span, rest_v, axes=1),
            force_ends=model.magnitude(derivatives.force[ends]).sum(axis=0) + 2.0 * model.tilt * first_moment,
            force_variation=variation,
            chord_curvature=curvature,
        )


def inertia_slopes(model: WindowModel, signals: WindowSignals) -> Array:
    """Bound ``dH_jk / dq_l`` in a window, (l, j, k): its values at some points, and its largest change between them."""
    longest = float(np.abs(np.diff(signals.q[signals.points], axis=0)).max())
    n, near = model.n, _Neighbours.of(signals).joined(max(1, int(_TURN / max(longest, 1e-3))))
    points = near.points
    units = np.tile(np.eye(n), (len(points), 1))
    columns = model.regressor.differentiate(np.repeat(signals.q[points], n, axis=0), units).momentum_q
    at_points = model.magnitude(np.moveaxis(columns, 3, 2)).reshape(-1, n, n, n).transpose(0, 3, 2, 1)
    away = near.largest_distance(signals.q) + signals.position_drift
    slopes = at_points + np.einsum("lmjk,pm->pljk", model.curvature.second, away)
    return np.asarray(np.minimum(slopes.max(axis=0), model.curvature.first))


def _apply(second: Array, distance: Array) -> Array:
    """Bound the change of first derivatives over distances (K, n), (K, n, n)."""
    return np.asarray(np.einsum("ilm,km->kil", second, distance))


@dataclass(frozen=True)
class _Neighbours:
    """The samples nearest to each point of a window; they follow each other."""

    points: NDArray[np.intp]  # The points, (K,)
    first: NDArray[np.intp]  # First sample of each, (K,)
    shares: Array  # Their share in the length of the window, (K,)

    @classmethod
    def of(cls, signals: WindowSignals) -> _Neighbours:
        points, steps = signals.points, signals.steps
        first = np.concatenate([[0], (points[1:] + points[:-1]) // 2 + 1])
        weights = 0.5 * (np.append(steps, 0.0) + np.append(0.0, steps)) / signals.duration
        return cls(points, first, np.add.reduceat(weights, first))

    def joined(self, count: int) -> _Neighbours:
        """Return the middle one of every ``count`` points with the samples of all, so a point has those it had."""
        starts = np.arange(0, len(self.points), count)
        middles = self.points[np.minimum(starts + count // 2, len(self.points) - 1)]
        return _Neighbours(middles, self.first[starts], np.add.reduceat(self.shares, starts))

    def largest_distance(self, values: Array) -> Array:
        counts = np.diff(np.append(self.first, len(values)))
        return np.maximum.reduceat(np.abs(values - values[self.points].repeat(counts, axis=0)), self.first, axis=0)

    def travel(self, values: Array) -> Array:
        """Return the total variation (K, n) of the steps with an end at a sample of each point.

        Half of such a step lies within the drift of its nearer end, so each step counts for the points of both ends.
        """
        lengths = np.abs(np.diff(values, axis=0))
        total = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(lengths, axis=0)])
        last = np.append(self.first[1:], len(values) - 1)
        return np.asarray(total[last] - total[np.maximum(self.first - 1, 0)])


def compute_errors(
    model: WindowModel,
    signals: WindowSignals,
    derivatives: DerivativeBounds,
    torque: TorqueIntegral,
    sign: SignIntegral,
) -> Array:
    """Compute the error budget of the rows of a window, (n, K) [Nms], one column for each of ``ERROR_TERMS``.

    Velocity and encoder errors that the rows share are in :func:`shared_gains`, the drift of the torque offset in
    :func:`drift_error`.
    """
    terms = {
        "torque_relative": torque.relative,
        "torque_absolute": torque.absolute,
        "torque_interpolation": torque.interpolation,
        "torque_lag": lag_error(model, signals),
        "torque_drift": np.zeros(model.n),
        "encoder": encoder_error(signals, derivatives),
        "velocity": velocity_error(model, derivatives),
        "jitter": jitter_error(model, derivatives, torque, sign),
        "quadrature": quadrature_error(model, signals, derivatives, sign.is_steady),
        "coulomb": model.unknowns.coulomb_upper * sign.uncertain,
        "friction": friction_error(model, signals),
        "gravity": gravity_error(model, signals),
        "calibration": np.zeros(model.n),  # of the rows of a calibration only
        "elasticity": model.elastic_momentum + model.elastic_turn * signals.position_error,
        "rounding": rounding_error(model, signals, derivatives),
    }
    counted = [name in model.settings.error_terms for name in ERROR_TERMS]
    return np.stack([terms[name] for name in ERROR_TERMS], axis=1) * counted


def drift_error(model: WindowModel, signals: WindowSignals, age: float) -> Array:
    """Bound the effect of the drift of the torque offset, (n,) [Nms].

    ``age`` is the longest time from any part of the window to the time at which the torque offset counts [s].
    """
    seconds = signals.duration + 2.0 * model.sensors.stamp_jitter
    return np.asarray(model.sensors.effort_drift * age * seconds * ("torque_drift" in model.settings.error_terms))


def encoder_error(signals: WindowSignals, derivatives: DerivativeBounds) -> Array:
    """Bound the effect of position errors beyond :func:`shared_gains`, (n,) [Nms]."""
    return np.asarray((derivatives.momentum_rest + derivatives.rest_q) @ signals.position_error)


def velocity_error(model: WindowModel, derivatives: DerivativeBounds) -> Array:
    """Bound the effect of velocity errors inside the window beyond :func:`shared_gains`, (n,) [Nms]."""
    return np.asarray(derivatives.rest_v @ model.sensors.velocity_error)


def velocity_integral(model: WindowModel, signals: WindowSignals, is_steady: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Bound the integral of the velocity error over a window, (n,) [rad] each: its middle and its radius.

    Single velocities and their mean limit it. So does the difference of the integral of the measured velocities and the
    encoder readings, up to the encoder steps, the quadrature error of a motion with bounded acceleration and the
    jitter.
    """
    sensors, steps = model.sensors, signals.steps
    longest = steps + 2.0 * sensors.stamp_jitter
    limit = integral_bound(
        sensors.velocity_error, sensors.velocity_mean_error, sensors.velocity_integral_error, float(np.sum(steps))
    )
    limit = limit + 2.0 * sensors.stamp_jitter * sensors.velocity_error
    middle = 0.5 * (signals.v[1:] + signals.v[:-1])
    seen = steps @ middle - (signals.q[-1] - signals.q[0])
    reach = 2.0 * signals.position_error + sensors.stamp_jitter * abel_bound(middle)
    reach = reach + longest**2 @ acceleration_range(model, steps, is_steady) / 8.0
    low, high = np.maximum(-limit, seen - reach), np.minimum(limit, seen + reach)
    # Nothing in between: the sensors disagree, which is an alarm of its own, or there is no error at all.
    is_open = (high > low) & ("velocity" in model.settings.error_terms)
    return np.where(is_open, 0.5 * (low + high), 0.0), np.where(is_open, 0.5 * (high - low), limit)


_IN_THE_TORQUE = [k for k, name in enumerate(ERROR_TERMS) if name.startswith("torque_") or name == "friction"]
"""Columns of the error budget that make the integral of the torque in a gear uncertain."""


def position_integral(
    model: WindowModel, signals: WindowSignals, torque: TorqueIntegral, errors: Array
) -> tuple[Array, Array]:
    """Bound the integral of the position error over a window, (n,) [rad s] each: its middle and its radius.

    Where motors are measured the error is mostly the deflection of the gears, and the integral of that follows from the
    integral of the torque in the gears: the measured one less friction, less what accelerates the motors where that is
    in it. See docs/theory/bounds.md, "Elastic joints".

    Args:
        model: Constants of the robot's windows.
        signals: Signals of the window.
        torque: Integral of the torque.
        errors: Error budget of the rows, (n, K) [Nms].
    """
    gears, sensors, unknowns = model.gears, model.sensors, model.unknowns
    duration = signals.duration + 2.0 * sensors.stamp_jitter
    most = signals.position_error * duration
    if gears is None or "encoder" not in model.settings.error_terms:
        return np.zeros(model.n), most
    wrong = errors[:, _IN_THE_TORQUE].sum(axis=1) + torque.jitter
    wrong = wrong + sensors.effort_integral[1] + sensors.gain_radius * np.abs(torque.value)
    wrong = wrong + model.settings.torque_lag_tolerance * np.abs(torque_change(model, signals))
    turn, change = (np.abs(one[-1] - one[0]) for one in (signals.q, signals.v))
    wrong = wrong + (unknowns.coulomb_upper + unknowns.offset_upper) * duration
    wrong = wrong + unknowns.viscous_upper * (turn + model.measured.position_resolution)
    wrong = wrong + unknowns.armature_upper * (change + 2.0 * model.measured.velocity_error)
    middle = gears.compliance * torque.value
    radius = gears.compliance_radius * np.abs(torque.value) + (gears.compliance + gears.compliance_radius) * wrong
    # Samples stand for the steps about them, in which the deflection changes.
    step = float(signals.steps.max()) + 2.0 * sensors.stamp_jitter
    radius = radius + (gears.rate * (step + gears.lag) + 0.5 * model.measured.position_resolution) * duration
    is_known = np.abs(middle) + radius < most
    return np.where(is_known, middle, 0.0), np.where(is_known, radius, most)


def shared_gains(model: WindowModel, derivatives: DerivativeBounds, integrals: tuple[Array, Array]) -> Array:
    """Compute the gains of the errors that rows share, (n, 2, 5 n, C + 2); see :class:`~.rows.Rows`.

    Args:
        model: Constants of the robot's windows.
        derivatives: Derivatives in the window.
        integrals: Radii of the integrals of the errors of velocities, (n,) [rad], and positions, (n,) [rad s].
    """
    unknowns, n, terms = model.unknowns, model.n, model.settings.error_terms
    coupled = unknowns.target.columns[: unknowns.target.coupled]
    # The variables of a window are attached to its end, in units of the bounds of a single error.
    inside = np.zeros((2, 2, *derivatives.mean_v.shape))
    single, means = (model.sensors.velocity_error, model.position_error), (derivatives.mean_v, derivatives.mean_q)
    for kind, (mean, integral, error) in enumerate(zip(means, integrals, single, strict=True)):
        inside[kind, 1] = -mean * np.divide(integral, error, out=np.zeros(n), where=error > 0.0)
    columns = np.concatenate([derivatives.momentum_v, derivatives.momentum_q, *inside], axis=-1)
    columns = columns.transpose(1, 0, 3, 2)  # (row, end, error, parameter)
    gains = np.zeros((n, 2, 5 * n, coupled.size + 2))
    gains[:, :, : 4 * n, : coupled.size] = columns[..., coupled]
    gains[:, :, : 4 * n, -2] = columns @ unknowns.rest_center[: INERTIAL * n]
    gains[:, :, : 4 * n, -1] = np.abs(columns) @ unknowns.rest_radius[: INERTIAL * n]
    joints = np.arange(n)
    gains[joints, :, 4 * n + joints, -2] = 1.0
    for first, entry in ((0, 2), (n, 1)):  # armature times velocity, viscous friction times position
        friction = slice(INERTIAL * n + entry, None, FRICTION)
        gains[joints, :, first + joints, -2] += unknowns.rest_center[friction][:, None]
        gains[joints, :, first + joints, -1] += unknowns.rest_radius[friction][:, None]
    counted = np.repeat([name in terms for name in SHARED_TERMS], n)
    return np.asarray(gains * counted[:, None])


def acceleration_range(model: WindowModel, steps: Array, is_steady: NDArray[np.bool_]) -> Array:
    """Return the largest change of the acceleration during each step, (N - 1, n) [rad/s^2]."""
    parts = np.maximum(np.ceil(steps[:, None] / SMOOTH_STEP - 1e-9), 1.0)
    change = np.minimum(parts * model.acceleration_change, 2.0 * model.acceleration)
    return np.where(is_steady[:, None], change, 2.0 * model.acceleration)


def quadrature_error(
    model: WindowModel, signals: WindowSignals, derivatives: DerivativeBounds, is_steady: NDArray[np.bool_]
) -> Array:
    """Bound the error of the quadrature for any motion with bounded acceleration, (n,) [Nms].

    Within a step the velocity departs from the straight line between its ends by an area of at most ``change h^2 / 8``
    if the acceleration changes by at most ``change``; it may jump at any time. ``acceleration_change`` bounds that for
    steps of up to ``SMOOTH_STEP``; in a longer one it bounds the change in each such part of it that has begun.
    """
    steps = signals.steps + 2.0 * model.sensors.stamp_jitter
    span = float(np.sum(steps))
    change = acceleration_range(model, signals.steps, is_steady)
    mean_v = steps**2 @ change / 8.0 / span
    mean_q = np.sum(steps**3) * model.acceleration / 12.0 / span
    chord = np.sum(steps**3) / 12.0 * derivatives.chord_curvature
    error = derivatives.force_v @ mean_v + derivatives.force_q @ mean_q + chord
    if model.settings.quadrature == "forward_euler":
        error = error + 0.5 * float(steps.max()) * derivatives.force_variation
    return error


def jitter_error(
    model: WindowModel, derivatives: DerivativeBounds, torque: TorqueIntegral, sign: SignIntegral
) -> Array:
    """Bound the effect of wrong stamps on every integral, (n,) [Nms]."""
    unknowns = model.unknowns
    force = derivatives.force_ends + 2.0 * derivatives.force_variation
    friction = unknowns.coulomb_upper * sign.jitter_gain + 2.0 * unknowns.offset_upper
    return torque.jitter + model.sensors.stamp_jitter * (force + friction)


def lag_error(model: WindowModel, signals: WindowSignals) -> Array:
    """Bound the effect of a wrong torque lag beyond its shared first-order effect, (n,) [Nms]."""
    tolerance, lag = model.settings.torque_lag_tolerance, model.settings.torque_lag
    total = np.zeros(model.n)
    if tolerance == 0.0:
        return total
    for time in (lag, signals.duration + lag):
        lower, upper = range_around(signals.torque_times, signals.tau, time, tolerance, model.sensors)
        value = sample_torque(signals.torque_times, signals.tau, time)
        total += tolerance * np.maximum(upper - value, value - lower)
    return total


def friction_error(model: WindowModel, signals: WindowSignals) -> Array:
    """Bound the impulse of friction beyond the simple law, (n,) [Nms].

    Each term is bounded, whatever its sign: Stribeck friction by the slowest speed possible in each step, asymmetry by
    the fastest, load dependence by the largest torque of the window, ripple as it is. On the link side there is none,
    unless the settings ask for friction behind the sensor.
    """
    settings, unknowns, sensors = model.settings, model.unknowns, model.sensors
    steps = (signals.steps + 2.0 * sensors.stamp_jitter)[:, None]
    speed = np.abs(signals.v)
    total = np.zeros(model.n)
    if settings.stribeck_friction:
        slowest = np.maximum(np.minimum(speed[1:], speed[:-1]) - signals.velocity_drift, 0.0)
        decay = np.sum(steps * np.exp(-slowest / settings.stribeck_speed), axis=0)
        total += settings.stribeck_friction * unknowns.coulomb_upper * decay
    if settings.friction_asymmetry:
        fastest = np.maximum(speed[1:], speed[:-1]) + signals.velocity_drift
        total += settings.friction_asymmetry * unknowns.viscous_upper * np.sum(steps * fastest, axis=0)
    if settings.load_friction and 0 not in model.unseen_friction:
        errors = np.sum(sensors.sample_error(signals.tau), axis=0)
        largest = np.max((1.0 + sensors.gain_radius) * np.abs(signals.tau) + errors, axis=0)
        total += settings.load_friction * largest * steps.sum()
    return np.asarray(total + settings.friction_ripple * unknowns.coulomb_upper * steps.sum())


def gravity_error(model: WindowModel, signals: WindowSignals) -> Array:
    """Bound the product of uncertain gravity direction and uncertain parameters of the rest of the arm, (n,) [Nms]."""
    total, unknowns = np.zeros(model.n), model.unknowns
    for axis, columns in enumerate(signals.tilted):
        spread = np.abs(columns) @ unknowns.rest_radius[: INERTIAL * model.n]
        total += unknowns.radius[unknowns.groups["gravity_direction"][axis]] * spread
    return total


def rounding_error(model: WindowModel, signals: WindowSignals, derivatives: DerivativeBounds) -> Array:
    """Bound the rounding of the computed rows, (n,) [Nms]."""
    size = np.abs(model.center) + model.radius
    ends = [0, -1]
    momentum = np.abs(signals.derivatives.momentum[ends]).sum(axis=0) @ size
    force = np.abs(signals.derivatives.force[ends]).sum(axis=0) @ size + derivatives.force_variation
    return np.asarray(ROUNDING * (momentum + signals.duration * (force + np.max(np.abs(signals.tau), axis=0))))
