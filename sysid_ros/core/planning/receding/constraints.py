"""Torque limits and free distances of many motions at samples, as rows that must not be positive.

Torque rows are shares of the limits, distance rows are in units of 0.1 m, so that 0.01 is of like weight in both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.planning.base import State
from sysid_ros.core.planning.braked import clock_rates
from sysid_ros.core.planning.motion_checks import STOP_SPEED, stop_torque_growth, stop_torque_shape
from sysid_ros.core.planning.receding.distances import DistanceSamples, FreeDistances
from sysid_ros.core.planning.receding.motions import MotionBasis
from sysid_ros.core.planning.receding.torques import TorqueSamples, WorstTorque

Array = NDArray[np.float64]

DISTANCE_UNIT = 0.1  # [m]
_SEGMENTS = 3
"""Parts of a motion of which each contributes its own worst rows to a linear model."""
_STOP_PROGRESS = (0.5, 0.7)
"""Fractions of the progress of a stop where its torque tends to be largest."""


@dataclass(frozen=True)
class ConstraintSamples:
    """Rows of B motions and what their derivatives need.

    Attributes:
        torque: (B, stages, T, n) [-]: in the motion, at rest on its path, and in a stop.
        distance: (B, T, rows) [0.1 m].
        limits: What the torque rows are shares of, (B, stages, T, n) [Nm].
        states: The states of the torque rows, each (stages B T, n).
        torques: The torques there.
        distances: The distances, or None without any.
    """

    torque: Array
    distance: Array
    limits: Array
    states: State
    torques: TorqueSamples
    distances: DistanceSamples | None

    @property
    def worst(self) -> Array:
        """Largest row of each motion, (B,)."""
        torque = self.torque.reshape(len(self.torque), -1).max(axis=1)
        distance = self.distance.reshape(len(self.distance), -1)
        return np.maximum(torque, distance.max(axis=1)) if distance.shape[1] else torque


class MotionConstraints:
    """Torque and distance rows of the motions from one state.

    Args:
        torque: Worst-case torques, with the boxes set.
        distances: Free distances, with the tracking error taken off; None without collision spheres.
        basis: The motions at the sample times.
        torque_limits: What model and feedback may need together, (T, n) [Nm].
        torque_error: What of it the feedback needs on the path, (n,) [Nm].
        clearances: Distance to keep, margins included, (T,) [m].
        brake_time: Time to rest of the stops along the path [s]; None leaves stops out but for their end at rest.
    """

    def __init__(
        self,
        torque: WorstTorque,
        distances: FreeDistances | None,
        basis: MotionBasis,
        torque_limits: Array,
        torque_error: Array,
        clearances: Array,
        brake_time: float | None,
    ):
        self._torque, self._distances, self._basis = torque, distances, basis
        self._clearances = clearances
        # The motion, rest on its path, and points of a stop: rate and slowdown of the clock.
        self._stages = [(1.0, 0.0), (0.0, 0.0)]
        if brake_time is not None:
            self._stages += [tuple(map(float, clock_rates(progress, brake_time))) for progress in _STOP_PROGRESS]
        self._brake_time, self._torque_error = brake_time, torque_error
        self._room = torque_limits - torque_error  # (T, n)
        self._growths = np.zeros((len(self._stages), basis.times.size))  # of the feedback's torque, in fast motions
        if brake_time is not None:
            rates = np.array([rate for rate, _ in self._stages])[:, None]
            self._growths += stop_torque_shape(rates, rates**2) * self._stop_growths()

    def evaluate(self, x: Array) -> ConstraintSamples:
        """All rows of motions with end offsets x (B, n) [rad]."""
        count, n = x.shape
        q, v, a = self._basis.states(x)
        states = (
            np.concatenate([q] * len(self._stages)),
            np.concatenate([rate * v for rate, _ in self._stages]),
            np.concatenate([rate**2 * a + slowdown * v for rate, slowdown in self._stages]),
        )
        torques = self._torque.evaluate(states)
        demand = torques.demand.reshape(len(self._stages), count, -1, n).swapaxes(0, 1)
        share = np.minimum(self._fastest(states, count)[0] / STOP_SPEED, 1.0)
        growths = share[:, None, None] * self._growths
        limits = np.maximum(self._room - growths[..., None] * self._torque_error, 1e-3)  # (B, stages, T, n)
        usage = demand / limits - 1.0
        if self._distances is None:
            none = np.empty((count, self._basis.times.size, 0))
            return ConstraintSamples(usage, none, limits, states, torques, None)
        distances = self._distances.evaluate(q)
        free = distances.free.reshape(count, self._basis.times.size, -1)
        missing = (self._clearances[:, None] - free) / DISTANCE_UNIT
        return ConstraintSamples(usage, missing, limits, states, torques, distances)

    def _fastest(self, states: State, count: int) -> tuple[Array, Array]:
        """Largest speeds of any joint in B motions, (B,) [rad/s], and their derivatives along x, (B, n)."""
        n = states[1].shape[1]
        speeds = states[1].reshape(len(self._stages), count, -1)[0]
        index, motions = np.argmax(np.abs(speeds), axis=1), np.arange(count)
        speed, slope = speeds[motions, index], np.zeros((count, n))
        slope[motions, index % n] = np.sign(speed) * self._basis.blend[1, index // n]
        return np.abs(speed), slope

    def _stop_growths(self) -> Array:
        """About :func:`stop_torque_growths` of fast motions at the samples, (T,), the same for all of them.

        From rest all joints have the same course of speed, whatever the end; of other motions the first half counts as
        fast. Samples that stand for what may follow the motion begin in the middle of it and get the largest one.
        """
        basis = self._basis
        is_from_rest = not np.any(basis.free[1])
        falls = np.flatnonzero(np.diff(basis.times) < 0.0)
        count = int(falls[0]) + 1 if falls.size else basis.times.size
        share, duration = np.ones(basis.times.size), basis.times[count - 1]
        for i, time in enumerate(basis.times[:count]):
            begins = np.clip(np.linspace(time - 0.5 * self._brake_time, time, 20), 0.0, duration) / duration
            speeds = 16.0 * begins**2 * (1.0 - begins) ** 2
            share[i] = np.max(speeds if is_from_rest else np.where(begins < 0.5, 1.0, speeds))
        return stop_torque_growth(self._brake_time) * share

    def linearise(self, samples: ConstraintSamples, motions: Array, rows: int) -> tuple[Array, Array]:
        """The worst rows of some motions and their derivatives along x.

        Args:
            samples: Rows of B motions.
            motions: Which motions, (A,).
            rows: Number of rows of each kind.

        Returns:
            Values (A, 2 rows) and derivatives (A, 2 rows, n); what is missing is filled up with rows that never count.
        """
        n = self._room.shape[1]
        values = np.full((len(motions), 2 * rows), -1e3)
        slopes = np.zeros((len(motions), 2 * rows, n))
        picked = [_pick(samples.torque[b].swapaxes(0, 1), rows) for b in motions]
        count, times = len(samples.torque), self._basis.times.size
        stage = np.concatenate([index // n for _, index in picked])
        joint = np.concatenate([index % n for _, index in picked])
        time = np.concatenate([when for when, _ in picked])
        motion = np.repeat(motions, [len(when) for when, _ in picked])
        place = _places(picked, 0)
        chosen = (stage * count + motion) * times + time
        dq, dv, da = self._torque.gradients(samples.states, samples.torques, chosen, joint)
        rate, slowdown = np.array(self._stages).T[:, stage, None]
        blend = self._basis.blend[:, time, None]
        slope = dq * blend[0] + dv * rate * blend[1] + da * (rate**2 * blend[2] + slowdown * blend[1])
        values[place] = samples.torque[motion, stage, time, joint]
        # Demand over limit: the faster the motion, the less is left for the model.
        speed, faster = self._fastest(samples.states, count)
        faster = np.where(speed < STOP_SPEED, 1.0, 0.0)[:, None] * faster / STOP_SPEED
        taken = self._growths[stage, time] * self._torque_error[joint] * (1.0 + values[place])
        slope += taken[:, None] * faster[motion]
        slopes[place] = slope / samples.limits[motion, stage, time, joint, None]
        if samples.distances is not None and samples.distance.shape[2]:
            picked = [_pick(samples.distance[b], rows) for b in motions]
            time, row = (np.concatenate(part) for part in zip(*picked, strict=True))
            motion = np.repeat(motions, [len(when) for when, _ in picked])
            place = _places(picked, rows)
            slope = self._distances.gradients(samples.distances, motion * times + time, row)
            values[place] = samples.distance[motion, time, row]
            slopes[place] = -slope * self._basis.blend[0, time, None] / DISTANCE_UNIT
        return values, slopes


def _pick(values: Array, rows: int) -> tuple[Array, Array]:
    """Times and flat row numbers of the worst entries of (T, ...): of every row its worst in each part of the time."""
    flat = values.reshape(len(values), -1)
    times, entries = [], []
    for part in np.array_split(np.arange(len(flat)), _SEGMENTS):
        times.append(part[np.argmax(flat[part], axis=0)])
        entries.append(np.arange(flat.shape[1]))
    time, entry = np.concatenate(times), np.concatenate(entries)
    order = np.argsort(-flat[time, entry], kind="stable")[:rows]
    return time[order], entry[order]


def _places(picked: list[tuple[Array, Array]], offset: int) -> tuple[Array, Array]:
    """Where the picked rows go in the stacked arrays."""
    counts = [len(when) for when, _ in picked]
    return np.repeat(np.arange(len(picked)), counts), np.concatenate([np.arange(count) + offset for count in counts])
