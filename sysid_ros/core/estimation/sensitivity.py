"""How much momentum and force can change in the neighbourhood of the measured samples of a window.

The derivatives are exact at some of the samples; bounds on second derivatives carry them to everything in between.
By the mean value theorem they then bound the effect of every measurement error, however it varies from sample to
sample.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.signals import WindowSignals
from sysid_ros.core.estimation.window_model import WindowModel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Sensitivity:
    """Bounds for every parameter in the box; entry [i, l] is the effect on row i of joint l.

    Attributes:
        momentum_q: Largest ``|dp/dq|`` at the start plus that at the end of the window, (n, n).
        momentum_v: Columns of ``dp/dv`` at the start and at the end, without armature, (2, n, 10 n, n).
        force_q: Integral of the largest ``|dc/dq|`` over the window, (n, n).
        force_v: The same for ``|dc/dv|``, (n, n).
        force_ends: Largest ``|c|`` at the start plus that at the end, (n,) [Nm].
        force_variation: Bound on the total variation of c over the samples, (n,) [Nm].
        chord_curvature: Bound on the second time derivative of c along straight lines between samples, (n,) [Nm/s^2].
    """

    momentum_q: Array
    momentum_v: Array
    force_q: Array
    force_v: Array
    force_ends: Array
    force_variation: Array
    chord_curvature: Array

    @classmethod
    def of(cls, model: WindowModel, signals: WindowSignals) -> Sensitivity:
        """Computes the bounds for one window."""
        derivatives, ends = signals.derivatives, [0, -1]
        second = model.curvature.force(signals.speed)
        neighbours = _Neighbours.of(signals)
        dq = neighbours.largest_distance(signals.q) + signals.position_drift
        dv = neighbours.largest_distance(signals.v) + signals.velocity_drift
        first_moment = model.curvature.first_moment
        tilt = model.tilt * np.minimum(first_moment[:, None], first_moment)
        by_q = _largest(model, derivatives.force_q) + tilt + _apply(second.qq, dq) + _apply(second.qv, dv)
        by_v = _largest(model, derivatives.force_v) + _apply(second.qv.transpose(0, 2, 1), dq) + _apply(second.vv, dv)
        span = neighbours.shares * signals.duration + 2.0 * model.sensors.stamp_jitter
        variation = np.einsum("kil,kl->i", by_q, neighbours.travel(signals.q))
        variation += np.einsum("kil,kl->i", by_v, neighbours.travel(signals.v))
        speed, slope = signals.speed, signals.slope
        curvature = (second.qq @ speed + 2.0 * second.qv @ slope) @ speed + second.vv @ slope @ slope
        return cls(
            momentum_q=_momentum(model, signals),
            momentum_v=derivatives.momentum_v[ends],
            force_q=np.tensordot(span, by_q, axes=1),
            force_v=np.tensordot(span, by_v, axes=1),
            force_ends=model.magnitude(derivatives.force[ends]).sum(axis=0) + 2.0 * model.tilt * first_moment,
            force_variation=variation,
            chord_curvature=curvature,
        )


def _momentum(model: WindowModel, signals: WindowSignals) -> Array:
    second = model.curvature.momentum(signals.speed)
    dq, dv = model.position_error, model.sensors.velocity_error
    largest = _largest(model, signals.derivatives.momentum_q[[0, -1]]).sum(axis=0)
    return largest + 2.0 * (second.qq @ dq + second.qv @ dv)


def _largest(model: WindowModel, derivative: Array) -> Array:
    """Largest derivatives over the parameter box, (K, n, p, n) to (K, n, n)."""
    return model.magnitude(np.moveaxis(derivative, 2, 3))


def _apply(second: Array, distance: Array) -> Array:
    """Change of the first derivatives over distances (K, n), (K, n, n)."""
    return np.einsum("ilm,km->kil", second, distance)


@dataclass(frozen=True)
class _Neighbours:
    """The samples nearest to each point of a window; they follow each other.

    Attributes:
        points: The points, (K,).
        first: First sample of each, (K,).
        shares: Their share in the length of the window, (K,).
    """

    points: NDArray[np.intp]
    first: NDArray[np.intp]
    shares: Array

    @classmethod
    def of(cls, signals: WindowSignals) -> _Neighbours:
        points, steps = signals.points, signals.steps
        first = np.concatenate([[0], (points[1:] + points[:-1]) // 2 + 1])
        weights = 0.5 * (np.append(steps, 0.0) + np.append(0.0, steps)) / signals.duration
        return cls(points, first, np.add.reduceat(weights, first))

    def largest_distance(self, values: Array) -> Array:
        """Largest distance of the samples (N, n) from their point, (K, n)."""
        counts = np.diff(np.append(self.first, len(values)))
        return np.maximum.reduceat(np.abs(values - values[self.points].repeat(counts, axis=0)), self.first, axis=0)

    def travel(self, values: Array) -> Array:
        """Total variation (K, n) of the steps with an end at a sample of each point.

        Half of such a step lies within the drift of its nearer end, so each step counts for the points of both ends.
        """
        lengths = np.abs(np.diff(values, axis=0))
        total = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(lengths, axis=0)])
        last = np.append(self.first[1:], len(values) - 1)
        return total[last] - total[np.maximum(self.first - 1, 0)]
