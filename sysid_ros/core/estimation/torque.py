"""The integral of the torque over a window, and how wrong it can be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.model.robot import SensorModel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class TorqueIntegral:
    """Integral of the true torque from ``start`` to ``stop``: ``value`` within the sum of the other four entries.

    Attributes:
        value: (n,) [Nms].
        relative: Bound of the relative sensor error, (n,) [Nms].
        absolute: Bound of the absolute sensor error, (n,) [Nms].
        interpolation: Bound of what the torque does between samples, (n,) [Nms]; zero for a held torque.
        jitter: Bound of the effect of wrong stamps, (n,) [Nms].
    """

    value: Array
    relative: Array
    absolute: Array
    interpolation: Array
    jitter: Array


def sensor_error(tau: Array, sensors: SensorModel) -> tuple[Array, Array]:
    """Relative and absolute part of the largest error of torque samples, each (N, n) [Nm].

    The relative error may refer to the true or to the measured torque: ``|error| <= rho |true| + a`` gives
    ``|error| <= (rho |measured| + a) / (1 - rho)``, which covers both.
    """
    scale = 1.0 / (1.0 - sensors.effort_relative_error)
    relative = scale * sensors.effort_relative_error * np.abs(tau)
    return relative, np.broadcast_to(scale * sensors.effort_absolute_error, tau.shape)


def integrate_torque(seconds: Array, tau: Array, start: float, stop: float, sensors: SensorModel) -> TorqueIntegral:
    """Integrates torque samples from ``start`` to ``stop``.

    A held sample is the mean torque since the sample before it, so the sum of rectangles is exact. Otherwise the
    torque between two samples is taken to lie between them (their error intervals joined).

    Args:
        seconds: Stamps, (N,) [s], covering ``start`` to ``stop``.
        tau: Samples, (N, n) [Nm].
        start: Lower limit of the integral [s].
        stop: Upper limit [s].
        sensors: Guarantees of the sensors.
    """
    relative, absolute = sensor_error(tau, sensors)
    error = relative + absolute
    if sensors.effort_is_held:
        center, radius, share_relative, share_absolute = tau[1:], error[1:], relative[1:], absolute[1:]
    else:
        low = np.minimum(tau[:-1] - error[:-1], tau[1:] - error[1:])
        high = np.maximum(tau[:-1] + error[:-1], tau[1:] + error[1:])
        center, radius = 0.5 * (low + high), 0.5 * (high - low)
        share_relative, share_absolute = 0.5 * (relative[:-1] + relative[1:]), 0.5 * (absolute[:-1] + absolute[1:])
    steps = np.maximum(np.minimum(seconds[1:], stop) - np.maximum(seconds[:-1], start), 0.0)
    inside = steps > 0.0
    parts = [steps @ part for part in (center, share_relative, share_absolute, radius)]
    interpolation = np.maximum(parts[3] - parts[1] - parts[2], 0.0)
    jitter = sensors.stamp_jitter * (abel_bound(center[inside]) + abel_bound(radius[inside]))
    return TorqueIntegral(parts[0], parts[1], parts[2], interpolation, jitter)


def abel_bound(values: Array) -> Array:
    """Bound on ``|sum values_k (ds_k - dt_k)|`` where every step end is wrong by at most one; (K, ...) to (...).

    Summation by parts: first and last value and the total variation between them.
    """
    return np.abs(values[0]) + np.abs(values[-1]) + np.sum(np.abs(np.diff(values, axis=0)), axis=0)


def sample_torque(seconds: Array, tau: Array, time: float) -> Array:
    """Torque at a time, linear between the samples, (n,) [Nm]."""
    last = len(seconds) - 1
    k = min(max(int(np.searchsorted(seconds, time, side="right")) - 1, 0), last - 1)
    weight = (time - seconds[k]) / (seconds[k + 1] - seconds[k])
    return (1.0 - weight) * tau[k] + weight * tau[k + 1]


def range_around(seconds: Array, tau: Array, time: float, reach: float, sensors: SensorModel) -> tuple[Array, Array]:
    """Interval that holds the true torque from ``time - reach`` to ``time + reach``: its ends, each (n,) [Nm]."""
    first = max(int(np.searchsorted(seconds, time - reach, side="right")) - 1, 0)
    last = min(int(np.searchsorted(seconds, time + reach, side="left")) + 1, len(seconds))
    error = np.sum(sensor_error(tau[first:last], sensors), axis=0)
    return np.min(tau[first:last] - error, axis=0), np.max(tau[first:last] + error, axis=0)
