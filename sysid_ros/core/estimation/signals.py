"""The measured signals of one window and the regressors evaluated on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.derivatives import RegressorDerivatives, differentiate_regressors
from sysid_ros.core.estimation.samples import SampleBlock
from sysid_ros.core.estimation.window_model import WindowModel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class WindowSignals:
    """Signals of one window of N samples; times count from its first sample.

    Attributes:
        start_stamp: First stamp [ns].
        stop_stamp: Last stamp [ns].
        times: Stamps, (N,) [s].
        q: Positions, (N, n) [rad].
        v: Velocities, (N, n) [rad/s].
        torque_times: Stamps of the torque samples, which go on behind the window where the torque lags, (N',) [s].
        tau: Torques, (N', n) [Nm].
        points: Samples at which the regressors and their derivatives are known: both ends and some between, (K,).
        derivatives: The inertial columns of the regressors and their derivatives there.
        inertial: Inertial columns of the rows, (n, 10 n).
        tilted: The same for unit gravity in three directions (none if gravity is known), each (n, 10 n).
        speed: No joint is faster than this during the window, (n,) [rad/s].
        slope: Mean acceleration between two samples is never above this, (n,) [rad/s^2].
        velocity_drift: Distance of the true velocity from the nearest measured one, at any time, (n,) [rad/s].
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
        """Signals of the window from sample ``start`` to sample ``stop`` of contiguous samples."""
        seconds = (block.stamps - block.stamps[start]).astype(float) * 1e-9
        times, q, v = (array[start : stop + 1] for array in (seconds, block.q, block.v))
        points = choose_points(times, model.settings.sensitivity_spacing)
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
    """Samples about ``spacing`` [s] apart, both ends included."""
    count = max(int(np.ceil((times[-1] - times[0]) / spacing)) + 1, 2)
    return np.unique(np.linspace(0, len(times) - 1, count).round().astype(int))


def quadrature_weights(times: Array, quadrature: str) -> Array:
    """Weights (N,) [s] of the samples in the integral from the first to the last of ``times``."""
    steps = np.diff(times)
    if quadrature == "forward_euler":
        return np.append(steps, 0.0)
    return 0.5 * (np.append(steps, 0.0) + np.append(0.0, steps))
