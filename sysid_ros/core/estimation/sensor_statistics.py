"""Sensor errors in a recording at standstill: stray of means over a time, drift, steps, jitter of stamps.

At rest every true signal is constant, so all changes are errors. Constant errors, a gain or an offset, do not show. The
largest stray of means over windows of growing length bounds these data only: other data may stray further.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]

LENGTHS = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Lengths of the windows whose means are compared [s]; 0: single samples."""
_SHORTEST = 1.0
"""Shortest standstill that counts [s]."""
_GAP = 0.1
"""Time without samples in which the arm may have moved [s]."""
_REPEATS = 5
"""A length counts if the longest standstill holds so many such windows."""


@dataclass(frozen=True)
class SensorStatistics:
    """Errors of sensors at standstill, for n joints and W lengths of windows.

    Attributes:
        seconds: Standstill together [s].
        segments: Number of standstills.
        period: Median time between samples [s].
        lengths: Lengths of the windows [s], (W,); 0 for single samples.
        torque: Largest distance of the mean torque over such a window from its standstill's, (W, n) [Nm].
        velocity: Largest mean velocity over such a window, (W, n) [rad/s]; the true one is zero.
        torque_allan: Allan deviation of the torque over such a window, (W, n) [Nm].
        drift: Largest slope of the torque over a standstill, (n,) [Nm/s].
        position_step: Smallest change of position between samples, (n,) [rad]; NaN where it never changed.
        jitter: Largest distance of the stamps from the straight line through those of a standstill [s].
    """

    seconds: float
    segments: int
    period: float
    lengths: Array
    torque: Array
    velocity: Array
    torque_allan: Array
    drift: Array
    position_step: Array
    jitter: float

    def integral_bounds(self, means: Array) -> tuple[Array, Array]:
        """Return m and I, (n,) each, so that the integral of these errors stays within ``m T + I``.

        m is the largest mean over the longest windows, I the excess of the integral over shorter ones.

        Args:
            means: Largest means by length of the window, (W, n): :attr:`torque` or :attr:`velocity`.
        """
        lengths = np.maximum(self.lengths, self.period)[:, None]
        return means[-1], np.max(lengths * (means - means[-1]), axis=0)


def find_standstills(
    robot: RobotModel, blocks: Sequence[SampleBlock], settings: EstimatorSettings
) -> list[SampleBlock]:
    """Return the contiguous pieces in which no joint moves, at least a second each.

    A joint rests while its velocity stays within its error and the stiction speed.

    Raises:
        SysidError: There is none.
    """
    slow = robot.sensors.velocity_error + settings.stiction_speed
    pieces, longest = [], 0.0
    for block in _join(blocks):
        rests = np.all(np.abs(block.v) <= slow, axis=1)
        breaks = np.concatenate([[True], (np.diff(block.sequence) != 1) | (np.diff(block.stamps) > 1e9 * _GAP)])
        edges = np.flatnonzero(np.concatenate([breaks | ~rests | np.append(True, ~rests[:-1]), [True]]))
        for first, last in zip(edges[:-1], edges[1:], strict=True):
            if not rests[first] or last - first < 3:
                continue
            piece = block.slice(int(first), int(last))
            length = float(piece.seconds[-1])
            longest = max(longest, length)
            if length >= _SHORTEST:
                pieces.append(piece)
    if not pieces:
        advice = f"record at least {_SHORTEST:g} s without motion"
        raise SysidError(f"the longest standstill lasts {longest:.3g} s; {advice}")
    return pieces


def measure_sensors(
    robot: RobotModel, blocks: Sequence[SampleBlock], settings: EstimatorSettings | None = None
) -> SensorStatistics:
    """Measure the sensor errors at standstill.

    Raises:
        SysidError: The arm never rested for a second.
    """
    pieces = find_standstills(robot, blocks, settings or EstimatorSettings())
    period = float(np.median(np.concatenate([np.diff(piece.stamps) for piece in pieces]))) * 1e-9
    longest = max(float(piece.seconds[-1]) for piece in pieces)
    lengths = np.array([length for length in LENGTHS if length == 0.0 or 2 * period <= length <= longest / _REPEATS])
    torque, velocity, allan = (np.zeros((lengths.size, robot.n)) for _ in range(3))
    drift, step, jitter = np.zeros(robot.n), np.full(robot.n, np.inf), 0.0
    for piece in pieces:
        seconds = piece.seconds
        counts = piece.sequence - piece.sequence[0]
        line = np.polyfit(counts, seconds, 1)
        jitter = max(jitter, float(np.max(np.abs(seconds - np.polyval(line, counts)))))
        drift = np.maximum(drift, np.abs(np.polyfit(seconds, piece.tau, 1)[0]))
        moves = np.abs(np.diff(piece.q, axis=0))
        step = np.minimum(step, np.min(np.where(moves > 1e-12, moves, np.inf), axis=0))
        middle = piece.tau.mean(axis=0)
        for row, length in enumerate(lengths):
            size = max(round(length / period), 1)
            if len(piece) < max(size, 2 * size if row else 1):
                continue
            means = _moving_mean(piece.tau, size)
            torque[row] = np.maximum(torque[row], np.max(np.abs(means - middle), axis=0))
            velocity[row] = np.maximum(velocity[row], np.max(np.abs(_moving_mean(piece.v, size)), axis=0))
            if len(means) > size:
                allan[row] = np.maximum(allan[row], np.sqrt(0.5 * np.mean((means[size:] - means[:-size]) ** 2, axis=0)))
    return SensorStatistics(
        seconds=float(sum(piece.seconds[-1] for piece in pieces)),
        segments=len(pieces),
        period=period,
        lengths=lengths,
        torque=torque,
        velocity=velocity,
        torque_allan=allan,
        drift=drift,
        position_step=np.where(np.isfinite(step), step, np.nan),
        jitter=jitter,
    )


def _join(blocks: Sequence[SampleBlock]) -> list[SampleBlock]:
    runs: list[list[SampleBlock]] = []
    for block in (block for block in blocks if len(block)):
        last = runs[-1][-1] if runs else None
        if last is not None and block.stamps[0] > last.stamps[-1] and block.sequence[0] == last.sequence[-1] + 1:
            runs[-1].append(block)
        else:
            runs.append([block])
    return [SampleBlock.concatenate(run) for run in runs]


def _moving_mean(values: Array, size: int) -> Array:
    """Return the means over ``size`` consecutive samples, (N - size + 1, n)."""
    total = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values - values[0], axis=0)])
    return np.asarray((total[size:] - total[:-size]) / size + values[0])
