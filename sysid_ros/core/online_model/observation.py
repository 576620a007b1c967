"""Equations ``Y theta = u`` from the cycles of a torque loop, at a lower rate.

Two ways lead to them. With accelerations, which nobody measures: the differences of velocities through an exponential
moving average, as SVA's section VI does; the average lags, and so the equation is not exact. With momenta: the change
of momentum over the time between two samples, which needs no acceleration and loses no cycle (SAFE-ID (13)).
"""

from __future__ import annotations

from enum import Enum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.regressors.momentum import MomentumRegressor
from sysid_ros.core.regressors.torque import TorqueRegressor

Array = NDArray[np.float64]


class Observation(Enum):
    """Where the equations come from.

    ``ACCELERATION``: an exponential moving average of differences of velocities.
    ``MOMENTUM``: the change of momentum since the last equation.
    """

    ACCELERATION = "acceleration"
    MOMENTUM = "momentum"


class ModelObserver:
    """Collects cycles and returns an equation every so many of them.

    Args:
        robot: The arm; its effort meaning says whether friction belongs to the equations.
        kind: Where they come from.
        period: Time between cycles [s].
        every: Cycles per equation.
        time_constant: Of the exponential moving average of accelerations [s].

    Raises:
        ParameterOutOfRange: ``every`` is less than 1.
    """

    def __init__(self, robot: RobotModel, kind: Observation, period: float, every: int, time_constant: float = 0.02):
        if every < 1:
            raise ParameterOutOfRange("cycles per equation", every, "1 or more")
        self._kind, self._period, self._every = kind, period, every
        self._share = 1.0 - float(np.exp(-period / time_constant))
        self._torque = TorqueRegressor(robot)
        self._momentum = MomentumRegressor(robot)
        self.reset()

    def reset(self) -> None:
        """Forget the cycles since the last equation, after a gap."""
        self._cycles: list[tuple[Array, Array, Array]] = []
        self._acceleration: Array | None = None

    def note(self, q: ArrayLike, v: ArrayLike, effort: ArrayLike) -> tuple[Array, Array] | None:
        """Take a cycle, and return an equation where one is due.

        Args:
            q: Measured positions, (n,) [rad].
            v: Measured velocities, (n,) [rad/s].
            effort: Mean effort since the cycle before, (n,) [Nm].

        Returns:
            ``Y`` (n, 14 n) and ``u`` (n,) [Nm], or None.
        """
        self._cycles.append((np.array(q, dtype=float), np.array(v, dtype=float), np.array(effort, dtype=float)))
        if len(self._cycles) < 2:
            return None
        if self._kind is Observation.ACCELERATION:
            difference = (self._cycles[-1][1] - self._cycles[-2][1]) / self._period
            last = np.zeros_like(difference) if self._acceleration is None else self._acceleration
            self._acceleration = last + self._share * (difference - last)
        if len(self._cycles) <= self._every:
            return None
        equation = self._from_momenta() if self._kind is Observation.MOMENTUM else self._from_acceleration()
        self._cycles = self._cycles[-1:]
        return equation

    def _from_acceleration(self) -> tuple[Array, Array]:
        q, v, effort = self._cycles[-1]
        assert self._acceleration is not None
        return self._torque.evaluate(q[None], v[None], self._acceleration[None])[0].copy(), effort

    def _from_momenta(self) -> tuple[Array, Array]:
        q, v, effort = (np.array(part) for part in zip(*self._cycles, strict=True))
        duration = self._period * (len(q) - 1)
        weights = np.full(len(q), self._period)
        weights[[0, -1]] *= 0.5
        ends = self._momentum.momentum(q[[0, -1]], v[[0, -1]])
        rows = (ends[1] - ends[0] - self._momentum.integrate(q, v, weights)) / duration
        return rows, effort[1:].mean(axis=0)
