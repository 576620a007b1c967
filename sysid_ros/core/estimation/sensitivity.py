"""How much momentum and force can change in the neighbourhood of the measured samples of a window.

The derivatives are exact at some of the samples; bounds on second derivatives carry them to everything in between.
By the mean value theorem they then bound the effect of every measurement error, however it varies from sample to
sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.derivatives import differentiate_regressors
from sysid_ros.core.estimation.signals import WindowSignals
from sysid_ros.core.estimation.window_model import WindowModel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Sensitivity:
    """Bounds for every parameter in the box; entry [i, l] is the effect on row i of joint l.

    Attributes:
        momentum_q: Largest ``|dp/dq|`` at the start plus that at the end of the window, (n, n).
        momentum_v: Columns of ``dp/dv`` at the start and at the end, without armature, (2, n, 10 n, n).
        momentum_drift: Largest change of ``|dp/dv|`` by position errors, of both ends together, (n, n).
        force_q: Integral of the largest ``|dc/dq|`` over the window, (n, n).
        force_v: The same for ``|dc/dv|``, (n, n).
        force_ends: Largest ``|c|`` at the start plus that at the end, (n,) [Nm].
        force_variation: Bound on the total variation of c over the samples, (n,) [Nm].
        chord_curvature: Bound on the second time derivative of c along straight lines between samples, (n,) [Nm/s^2].
    """

    momentum_q: Array
    momentum_v: Array
    momentum_drift: Array
    force_q: Array
    force_v: Array
    force_ends: Array
    force_variation: Array
    chord_curvature: Array

    @classmethod
    def of(cls, model: WindowModel, signals: WindowSignals) -> Sensitivity:
        """Computes the bounds for one window."""
        points = _choose_points(signals, model.settings.sensitivity_spacing)
        derivatives = differentiate_regressors(model.regressor.evaluate, signals.q[points], signals.v[points])
        momentum_q, momentum_drift = _momentum(model, signals, derivatives.momentum_q)
        second = model.curvature.force(signals.speed)
        first_moment = model.curvature.first_moment
        tilt = model.tilt * np.minimum(first_moment[:, None], first_moment)
        nearest = np.argmin(np.abs(np.arange(len(signals.times))[:, None] - points), axis=1)
        share = _time_shares(signals.times)
        span = signals.duration + 2.0 * model.sensors.stamp_jitter
        force_q, force_v = np.zeros((model.n, model.n)), np.zeros((model.n, model.n))
        variation = np.zeros(model.n)
        for k, point in enumerate(points):
            members = nearest == k
            dq = np.max(np.abs(signals.q[members] - signals.q[point]), axis=0) + signals.position_drift
            dv = np.max(np.abs(signals.v[members] - signals.v[point]), axis=0) + signals.velocity_drift
            by_q = _largest(model, derivatives.force_q[k]) + tilt + second.qq @ dq + second.qv @ dv
            by_v = _largest(model, derivatives.force_v[k]) + np.einsum("iml,m->il", second.qv, dq) + second.vv @ dv
            force_q += share[members].sum() * span * by_q
            force_v += share[members].sum() * span * by_v
            # Steps with an end at a member: their whole path lies within the drift of it.
            variation += by_q @ _travel(signals.q, members) + by_v @ _travel(signals.v, members)
        speed, slope = signals.speed, signals.slope
        curvature = (second.qq @ speed + 2.0 * second.qv @ slope) @ speed + second.vv @ slope @ slope
        ends = model.magnitude(signals.force).sum(axis=0) + 2.0 * model.tilt * first_moment
        momentum_v = derivatives.momentum_v[[0, -1]]
        return cls(momentum_q, momentum_v, momentum_drift, force_q, force_v, ends, variation, curvature)


def _momentum(model: WindowModel, signals: WindowSignals, by_q: Array) -> tuple[Array, Array]:
    second = model.curvature.momentum(signals.speed)
    dq, dv = model.position_error, model.sensors.velocity_error
    largest_q = sum(_largest(model, by_q[end]) for end in (0, -1)) + 2.0 * (second.qq @ dq + second.qv @ dv)
    return largest_q, 2.0 * np.einsum("iml,m->il", second.qv, dq)


def _largest(model: WindowModel, derivative: Array) -> Array:
    """Largest derivative over the parameter box, (n, p, n) to (n, n)."""
    return model.magnitude(derivative.transpose(0, 2, 1))


def _choose_points(signals: WindowSignals, spacing: float) -> NDArray[np.intp]:
    """Samples at which derivatives are taken: both ends and some between."""
    count = max(int(np.ceil(signals.duration / spacing)) + 1, 2)
    return np.unique(np.linspace(0, len(signals.times) - 1, count).round().astype(int))


def _time_shares(times: Array) -> Array:
    """Share of each sample in the length of the window, (N,) [-]."""
    steps = np.diff(times)
    return 0.5 * (np.append(steps, 0.0) + np.append(0.0, steps)) / times[-1]


def _travel(values: Array, members: NDArray[np.bool_]) -> Array:
    """Total variation of the steps that end or start at a member, (n,)."""
    touched = members[1:] | members[:-1]
    return np.sum(np.abs(np.diff(values, axis=0))[touched], axis=0)
