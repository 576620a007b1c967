"""The measured signals of one window and the regressors evaluated on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.windows.model import WindowModel
from sysid_ros.core.estimation.windows.samples import SampleBlock

Array = NDArray[np.float64]


Evaluate = Callable[[Array, Array], tuple[Array, Array]]

# Every entry of a regressor is a trigonometric polynomial of degree two in each angle, so that four shifted values
# give its derivative exactly (parameter-shift rule).
_SHIFTS = (2.0 * np.arange(1, 5) - 1.0) * np.pi / 4.0
_WEIGHTS = np.array([1.0, -1.0, 1.0, -1.0]) / (8.0 * np.sin(0.5 * _SHIFTS) ** 2)


@dataclass(frozen=True)
class RegressorDerivatives:
    """Both momentum regressors and their derivatives at K points; the last axis is the joint of the derivative.

    Attributes:
        momentum: ``W_m``, (K, n, p).
        force: ``W_c``, (K, n, p).
        momentum_q: ``d W_m / d q``, (K, n, p, n).
        momentum_v: ``d W_m / d v``, (K, n, p, n).
        force_q: ``d W_c / d q``, (K, n, p, n).
        force_v: ``d W_c / d v``, (K, n, p, n).
    """

    momentum: Array
    force: Array
    momentum_q: Array
    momentum_v: Array
    force_q: Array
    force_v: Array


def differentiate_regressors(evaluate: Evaluate, q: Array, v: Array) -> RegressorDerivatives:
    """Compute the inertial columns of the momentum regressors and their derivatives at K points, exact up to rounding.

    Args:
        evaluate: Maps q (N, n) and v (N, n) to ``W_m`` and ``W_c``, each (N, n, p), without friction columns.
        q: Positions, (K, n) [rad].
        v: Velocities, (K, n) [rad/s].
    """
    count, n = q.shape
    units = np.eye(n)
    # One batch: the points, 4 n angle shifts, then n unit velocities, of K points each.
    angles = _SHIFTS[:, None, None, None] * units[:, None, :]
    shifted = (q + angles).reshape(-1, n)
    velocities = np.concatenate([np.tile(v, (4 * n + 1, 1)), units.repeat(count, axis=0)])
    momentum, force = evaluate(np.concatenate([q, shifted, np.tile(q, (n, 1))]), velocities)
    first, last = count, (4 * n + 1) * count

    def by_angle(regressor: Array) -> Array:
        turned = regressor[first:last].reshape(4, -1)
        return np.moveaxis((_WEIGHTS @ turned).reshape(n, count, n, -1), 0, -1)

    momentum_q = by_angle(momentum)
    return RegressorDerivatives(
        momentum=momentum[:first],
        force=force[:first],
        momentum_q=momentum_q,
        momentum_v=np.moveaxis(momentum[last:].reshape(n, count, n, -1), 0, -1),
        force_q=by_angle(force),
        force_v=momentum_q.transpose(0, 3, 2, 1),
    )


@dataclass(frozen=True)
class WindowSignals:
    """Signals of one window of N samples; times count from its first sample.

    Attributes:
        start_stamp: First stamp [ns].
        stop_stamp: Last stamp [ns].
        times: Stamps, (N,) [s].
        q: Positions, (N, n) [rad].
        v: Velocities, (N, n) [rad/s].
        torque_times: Stamps of the torque samples, which extend beyond the window where the torque lags, (N',) [s].
        tau: Torques, (N', n) [Nm].
        points: Samples at which the regressors and their derivatives are known: both ends and some between, (K,).
        derivatives: The inertial columns of the regressors and their derivatives there.
        inertial: Inertial columns of the rows, (n, 10 n).
        tilted: The same for unit gravity in three directions (none if gravity is known), each (n, 10 n).
        speed: Bound on the speed during the window, (n,) [rad/s].
        slope: Bound on the mean acceleration between two samples, (n,) [rad/s^2].
        velocity_drift: Bound on the distance of the true velocity from the nearest measured one, (n,) [rad/s].
        position_drift: The same for positions, (n,) [rad].
    """

    start_stamp: int
    stop_stamp: int
    times: Array
    q: Array
    v: Array
    torque_times: Array
    tau: Array
    points: NDArray[np.intp]
    derivatives: RegressorDerivatives
    inertial: Array
    tilted: tuple[Array, ...]
    speed: Array
    slope: Array
    velocity_drift: Array
    position_drift: Array

    @classmethod
    def of(cls, model: WindowModel, block: SampleBlock, start: int, stop: int) -> WindowSignals:
        """Evaluate the signals of the window from sample ``start`` to sample ``stop`` of contiguous samples."""
        seconds = (block.stamps - block.stamps[start]).astype(float) * 1e-9
        times, q, v = (array[start : stop + 1] for array in (seconds, block.q, block.v))
        points = choose_points(times, model.settings.derivative_spacing)
        derivatives = differentiate_regressors(model.regressor.evaluate, q[points], v[points])
        change = derivatives.momentum[-1] - derivatives.momentum[0]
        weights = quadrature_weights(times, model.settings.quadrature)
        steps = np.diff(times)
        half_step = 0.5 * float(steps.max()) + model.sensors.stamp_jitter
        shortest = max(float(steps.min()) - 2.0 * model.sensors.stamp_jitter, 1e-9)
        slope = (np.max(np.abs(np.diff(v, axis=0)), axis=0) + 2.0 * model.sensors.velocity_error) / shortest
        velocity_drift = model.sensors.velocity_error + model.acceleration * half_step
        speed = np.max(np.abs(v), axis=0) + velocity_drift
        return cls(
            start_stamp=int(block.stamps[start]),
            stop_stamp=int(block.stamps[stop]),
            times=times,
            q=q,
            v=v,
            torque_times=seconds[start:],
            tau=block.tau[start:],
            points=points,
            derivatives=derivatives,
            inertial=change - model.regressor.integrate(q, v, weights),
            tilted=tuple(-regressor.integrate(q, np.zeros_like(v), weights) for regressor in model.tilted),
            speed=speed,
            slope=np.minimum(slope, model.acceleration),
            velocity_drift=velocity_drift,
            position_drift=model.position_error + speed * half_step,
        )

    @property
    def steps(self) -> Array:
        """Step lengths, (N - 1,) [s]."""
        return np.diff(self.times)

    @property
    def duration(self) -> float:
        """Length of the window [s]."""
        return float(self.times[-1])


def choose_points(times: Array, spacing: float) -> NDArray[np.intp]:
    """Choose samples about ``spacing`` [s] apart, both ends included."""
    count = max(int(np.ceil((times[-1] - times[0]) / spacing)) + 1, 2)
    return np.unique(np.linspace(0, len(times) - 1, count).round().astype(int))


def quadrature_weights(times: Array, quadrature: str) -> Array:
    """Return the weights (N,) [s] of the samples in the integral from the first to the last of ``times``."""
    steps = np.diff(times)
    if quadrature == "forward_euler":
        return np.append(steps, 0.0)
    return np.asarray(0.5 * (np.append(steps, 0.0) + np.append(0.0, steps)))
