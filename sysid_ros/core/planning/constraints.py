"""Torque limits and free distances of many motions at samples, as rows that must not be positive.

Torque rows are shares of the limits, distance rows are in units of 0.1 m, so that 0.01 is of like weight in both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.stop_model import STOP_SPEED, stop_torque_growth, stop_torque_shape
from sysid_ros.core.planning.distances import DistanceSamples, FreeDistances
from sysid_ros.core.planning.dynamics import Index, TorqueSamples, WorstTorque
from sysid_ros.core.planning.motions import MotionBasis
from sysid_ros.core.trajectories.base import State
from sysid_ros.core.trajectories.braking import clock_rates

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
        torque: Array = self.torque.reshape(len(self.torque), -1).max(axis=1)
        distance = self.distance.reshape(len(self.distance), -1)
        return np.maximum(torque, distance.max(axis=1)) if distance.shape[1] else torque


@dataclass(frozen=True)
class Room:
    """What motions may use at T sample times.

    Attributes:
        torque: Torque that model and feedback may need together, (T, n) [Nm].
        feedback: What of it the feedback needs on the path, (n,) [Nm].
        clearance: Distance to keep, margins included, (T,) [m].
    """

    torque: Array
    feedback: Array
    clearance: Array


class MotionConstraints:
    """Torque and distance rows of the motions from one state.

    Args:
        torque: Worst-case torques, with the boxes set.
        distances: Free distances, with the tracking error taken off; None without collision spheres.
        basis: The motions at the sample times.
        room: What they may use there.
        brake_time: Time to rest of the stops along the path [s]; None leaves stops out but for their end at rest.
    """

    def __init__(
        self,
        torque: WorstTorque,
        distances: FreeDistances | None,
        basis: MotionBasis,
        room: Room,
        brake_time: float | None,
    ):
        self._torque, self._distances, self._basis = torque, distances, basis
        self._clearances, self._feedback = room.clearance, room.feedback
        self._model_limits = room.torque - room.feedback  # (T, n)
        # The motion, rest on its path, and points of a stop: rate and slowdown of the clock.
        self._stages = [(1.0, 0.0), (0.0, 0.0)]
        if brake_time is not None:
            self._stages += [clock_rates(progress, brake_time) for progress in _STOP_PROGRESS]
        self._growths = np.zeros((len(self._stages), basis.times.size))  # of the feedback's torque, in fast motions
        if brake_time is not None:
            rates = np.array([rate for rate, _ in self._stages])[:, None]
            self._growths += stop_torque_shape(rates, rates**2) * self._stop_growths(brake_time)

    def evaluate(self, x: Array) -> ConstraintSamples:
        """Compute all rows of motions with end offsets x (B, n) [rad]."""
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
        limits = np.maximum(self._model_limits - growths[..., None] * self._feedback, 1e-3)  # (B, stages, T, n)
        usage = demand / limits - 1.0
        if self._distances is None:
            none = np.empty((count, self._basis.times.size, 0))
            return ConstraintSamples(usage, none, limits, states, torques, None)
        distances = self._distances.evaluate(q)
        free = distances.free.reshape(count, self._basis.times.size, -1)
        missing = (self._clearances[:, None] - free) / DISTANCE_UNIT
        return ConstraintSamples(usage, missing, limits, states, torques, distances)

    def _fastest(self, states: State, count: int) -> tuple[Array, Array]:
        """Find the largest speeds of any joint in B motions, (B,) [rad/s], and their derivatives along x, (B, n)."""
        n = states[1].shape[1]
        speeds = states[1].reshape(len(self._stages), count, -1)[0]
        index, motions = np.argmax(np.abs(speeds), axis=1), np.arange(count)
        speed, slope = speeds[motions, index], np.zeros((count, n))
        slope[motions, index % n] = np.sign(speed) * self._basis.blend[1, index // n]
        return np.abs(speed), slope

    def _stop_growths(self, brake_time: float) -> Array:
        """Estimate :func:`stop_torque_growths` of fast motions at the samples, (T,), the same for all of them.

        From rest all joints have the same course of speed, whatever the end; of other motions the first half counts as
        fast. Samples that stand for what may follow the motion begin in the middle of it and get the largest one.
        """
        basis = self._basis
        is_from_rest = not np.any(basis.free[1])
        falls = np.flatnonzero(np.diff(basis.times) < 0.0)
        count = int(falls[0]) + 1 if falls.size else basis.times.size
        share, duration = np.ones(basis.times.size), basis.times[count - 1]
        for i, time in enumerate(basis.times[:count]):
            begins = np.clip(np.linspace(time - 0.5 * brake_time, time, 20), 0.0, duration) / duration
            speeds = 16.0 * begins**2 * (1.0 - begins) ** 2
            share[i] = np.max(speeds if is_from_rest else np.where(begins < 0.5, 1.0, speeds))
        return stop_torque_growth(brake_time) * share

    def linearise(self, samples: ConstraintSamples, motions: Index, rows: int) -> tuple[Array, Array]:
        """Compute the worst rows of some motions and their derivatives along x.

        Args:
            samples: Rows of B motions.
            motions: Which motions, (A,).
            rows: Number of rows of each kind.

        Returns:
            Values (A, 2 rows) and derivatives (A, 2 rows, n); what is missing is filled up with rows that never count.
        """
        n, times = self._model_limits.shape[1], self._basis.times.size
        values = np.full((len(motions), 2 * rows), -1e3)
        slopes = np.zeros((len(motions), 2 * rows, n))
        time, index = _pick(samples.torque[motions].swapaxes(1, 2), rows)
        found = time.shape[1]
        motion, time, index = (x.ravel() for x in np.broadcast_arrays(motions[:, None], time, index))
        stage, joint = np.divmod(index, n)
        chosen = (stage * len(samples.torque) + motion) * times + time
        dq, dv, da = self._torque.gradients(samples.states, samples.torques, chosen, joint)
        rate, slowdown = np.array(self._stages).T[:, stage, None]
        blend = self._basis.blend[:, time, None]
        slope = dq * blend[0] + dv * rate * blend[1] + da * (rate**2 * blend[2] + slowdown * blend[1])
        usage = samples.torque[motion, stage, time, joint]
        # Demand over limit: the faster the motion, the less is left for the model.
        speed, faster = self._fastest(samples.states, len(samples.torque))
        faster = np.where(speed < STOP_SPEED, 1.0, 0.0)[:, None] * faster / STOP_SPEED
        taken = self._growths[stage, time] * self._feedback[joint] * (1.0 + usage)
        slope += taken[:, None] * faster[motion]
        values[:, :found] = usage.reshape(len(motions), -1)
        slopes[:, :found] = (slope / samples.limits[motion, stage, time, joint, None]).reshape(len(motions), -1, n)
        if self._distances is not None and samples.distances is not None and samples.distance.shape[2]:
            time, row = _pick(samples.distance[motions], rows)
            found = rows + time.shape[1]
            motion, time, row = (x.ravel() for x in np.broadcast_arrays(motions[:, None], time, row))
            slope = self._distances.gradients(samples.distances, motion * times + time, row)
            slope *= -self._basis.blend[0, time, None] / DISTANCE_UNIT
            values[:, rows:found] = samples.distance[motion, time, row].reshape(len(motions), -1)
            slopes[:, rows:found] = slope.reshape(len(motions), -1, n)
        return values, slopes


def _pick(values: Array, rows: int) -> tuple[Index, Index]:
    """Find the worst entries of motions (A, T, ...): of every row its worst in each part of the time, worst first.

    Returns:
        Their times and flat row numbers, (A, at most rows) each.
    """
    flat = values.reshape(*values.shape[:2], -1)
    parts = np.array_split(np.arange(flat.shape[1]), _SEGMENTS)
    worst = [part[0] + flat[:, part[0] : part[-1] + 1].argmax(axis=1) for part in parts]
    time = np.concatenate(worst, axis=1)  # (A, parts R)
    entry = np.tile(np.arange(flat.shape[2]), len(parts))
    motion = np.arange(len(flat))[:, None]
    order = np.argsort(-flat[motion, time, entry], axis=1, kind="stable")[:, :rows]
    return time[motion, order], entry[order]
