"""The continuous torque limit: the largest root mean square of a joint's torque over any minute.

A plan states bounds of the mean square of its torques in equal parts of its time, and while it is held afterwards. The
executor records the torques of the last minute and adds up both.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.held_feedback import WINDOW
from sysid_ros.core.model.robot import JointLimits

Array = NDArray[np.float64]

PART = 0.5
"""Longest part of it that counts as one [s]; mean squares are overestimated by no more than two parts of the window."""


@dataclass(frozen=True)
class Load:
    """Mean squares of the torques of n joints over K parts of time that follow each other.

    Attributes:
        seconds: Durations of the parts, (K,) [s].
        squares: Bounds of the mean squares, (K, n) [Nm^2].
    """

    seconds: Array
    squares: Array

    @classmethod
    def none(cls, n: int) -> Load:
        """Return the load of no time, for n joints."""
        return cls(np.zeros(0), np.zeros((0, n)))

    @classmethod
    def of_plan(cls, torque_squares: Array, duration: float, begin: float = 0.0) -> Load:
        """Return the load of a plan from a time of it on [s], without the hold after it.

        Args:
            torque_squares: Squares in its certificate, (K + 1, n) [Nm^2].
            duration: Of the plan [s].
            begin: Start of the load [s].
        """
        edges = np.linspace(0.0, duration, len(torque_squares))
        seconds = np.maximum(edges[1:] - np.maximum(edges[:-1], begin), 0.0)
        return cls(seconds, torque_squares[:-1])

    def until(self, time: float) -> Load:
        """Return the load before a time since the first part [s]."""
        edges = np.concatenate([[0.0], np.cumsum(self.seconds)])
        return Load(np.maximum(np.minimum(edges[1:], time) - edges[:-1], 0.0), self.squares)

    def followed_by(self, other: Load) -> Load:
        """Return this load and then another one."""
        return Load(np.append(self.seconds, other.seconds), np.concatenate([self.squares, other.squares]))


def average_squares(middle: Array, half: Array, torque: Array) -> Array:
    """Average bounds of squared torques over equal parts of a motion, (K, n) [Nm^2].

    Args:
        middle: Middles of P pieces that follow each other from 0 on, (P,) [s].
        half: Their half lengths, (P,) [s].
        torque: Largest torques in them, (n, P) [Nm].
    """
    ends = np.append(0.0, middle + half)
    total = np.concatenate([np.zeros((1, len(torque))), np.cumsum(2.0 * half * torque**2, axis=1).T])
    edges = np.linspace(0.0, ends[-1], max(int(np.ceil(ends[-1] / PART)), 1) + 1)
    at_edges = np.stack([np.interp(edges, ends, column) for column in total.T], axis=1)
    return np.diff(at_edges, axis=0) / np.diff(edges)[:, None]


@dataclass(frozen=True)
class Heat:
    """The largest root mean square that a load and a hold after it reach.

    Attributes:
        joint: Index of the joint whose share of its limit is largest.
        value: Root mean square there [Nm].
        time: Time since the beginning [s].
        share: Its share of the limit [-].
        hold: Allowed duration of the hold [s]; infinite, or none where the load itself is too much already.
    """

    joint: int
    value: float
    time: float
    share: float
    hold: float


def find_heat(limits: JointLimits, past: Load, coming: Load, hold: Array) -> Heat | None:
    """Compare every minute that ends from now on with the continuous limits.

    Args:
        limits: Limits of the joints.
        past: The load until now; only its last minute counts.
        coming: The coming load.
        hold: Squares of the torques of the hold that follows, (n,) [Nm^2].

    Returns:
        The largest root mean square; None where no joint has a continuous limit below its peak.
    """
    counted = np.flatnonzero(limits.tau_continuous < limits.tau_max)
    if not counted.size:
        return None
    parts = int(np.ceil(WINDOW / PART))
    held = Load(np.full(parts, PART), np.tile(hold, (parts, 1)))
    whole = past.followed_by(coming).followed_by(held)
    edges = np.concatenate([[0.0], np.cumsum(whole.seconds)])
    begin, end = edges[past.seconds.size], edges[past.seconds.size + coming.seconds.size]
    ratio = whole.squares[:, counted] / limits.tau_continuous[counted] ** 2
    total = np.concatenate([np.zeros((1, counted.size)), np.cumsum(ratio * whole.seconds[:, None], axis=0)])
    # A minute that ends within a part: all of that part, and all of the part in which it begins.
    last = np.arange(past.seconds.size, whole.seconds.size)
    first = np.maximum(np.searchsorted(edges, edges[last] - WINDOW, side="right") - 1, 0)
    means = (total[last + 1] - total[first]) / WINDOW
    steady = ratio[-1:]  # at last, with no part counted that is not all in the minute
    shares = np.sqrt(np.concatenate([means, steady]))
    times = np.append(edges[last + 1], edges[-1]) - begin
    broken = np.flatnonzero(~(shares <= 1.0).all(axis=1))
    row, joint = np.unravel_index(int(shares.argmax()), shares.shape)
    allowed = np.inf
    if broken.size:
        allowed = max(float(edges[last[broken[0]]] - end) if broken[0] < last.size else WINDOW, 0.0)
    index = int(counted[joint])
    value = float(shares[row, joint] * limits.tau_continuous[index])
    return Heat(index, value, float(times[row]), float(shares[row, joint]), allowed)


class TorqueRecord:
    """The torques of the last minute.

    Args:
        tau: Torque at the beginning, (n,) [Nm]: the past is unknown, so it counts as held for a minute.
        period: Time between two torques [s].
    """

    def __init__(self, tau: Array, period: float):
        self._period, self._cycles = period, max(round(PART / period), 1)
        count = int(np.ceil(WINDOW / PART)) + 1
        self._parts: deque[tuple[float, Array]] = deque([(PART, np.square(tau))] * count, maxlen=count)
        self._sum, self._count = np.zeros(len(tau)), 0

    def add(self, tau: Array) -> None:
        """Add the torque of a cycle, (n,) [Nm]."""
        self._sum += tau * tau
        self._count += 1
        if self._count == self._cycles:
            self._parts.append((self._count * self._period, self._sum / self._count))
            self._sum, self._count = np.zeros_like(self._sum), 0

    @property
    def load(self) -> Load:
        """The load until now."""
        parts = list(self._parts)
        if self._count:
            parts.append((self._count * self._period, self._sum / self._count))
        return Load(np.array([seconds for seconds, _ in parts]), np.array([square for _, square in parts]))
