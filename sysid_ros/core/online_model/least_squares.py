"""Least squares with a prior over samples of a torque loop, growing or sliding, by updating a factorisation.

Samples are equations ``Y theta = u`` from the cycles of the loop, at a lower rate. Two ways lead to them. With
accelerations, which are not measured: the differences of velocities through an exponential moving average, as in SVA's
section VI; positions, velocities and torques pass the same filter, so that all of them lag alike, and the remaining
error is that the average of a product is not the product of averages. With momenta: the change of momentum over the
time between two samples, which needs no acceleration and loses no cycle (SAFE-ID (13)).

The triangular factor of the rows is updated by orthogonal transformations when a sample comes. A sliding buffer is a
queue of two stacks of such factors, so that a sample leaves without the cancellation of a downdate and without starting
again: each sample is factorised at most twice.

Source: SVA (101) to (107); its section V, "rank properties of the regressor", for the choice of samples.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.regressors.momentum import MomentumRegressor
from sysid_ros.core.regressors.torque import TorqueRegressor

Array = NDArray[np.float64]


_SLOWEST = 6.0
"""Speed of a joint over the error of its sensor below which its row is left out, from accelerations: at rest its
friction may be anything up to the Coulomb friction, and such rows are the largest error of all by far."""


class Observation(Enum):
    """Source of the equations.

    ``ACCELERATION``: an exponential moving average of everything, accelerations as differences of velocities.
    ``MOMENTUM``: the change of momentum since the last equation.
    """

    ACCELERATION = "acceleration"
    MOMENTUM = "momentum"


class ModelObserver:
    """Collects cycles and returns an equation every so many of them.

    Args:
        robot: The arm; its effort meaning says whether friction belongs to the equations.
        kind: Source of the equations.
        period: Time between cycles [s].
        every: Cycles per equation.
        time_constant: Of the exponential moving average [s].

    Raises:
        ParameterOutOfRange: ``every`` is less than 1.
    """

    def __init__(self, robot: RobotModel, kind: Observation, period: float, every: int, time_constant: float = 0.02):
        if every < 1:
            raise ParameterOutOfRange("cycles per equation", every, "1 or more")
        self._kind, self._period, self._every = kind, period, every
        self._share = 1.0 - float(np.exp(-period / time_constant))
        self._slowest = _SLOWEST * robot.sensors.velocity_error
        self._torque = TorqueRegressor(robot)
        self._momentum = MomentumRegressor(robot)
        self.reset()

    def reset(self) -> None:
        """Discard the cycles since the last equation, after a gap."""
        self._cycles: list[tuple[Array, Array, Array]] = []
        self._averages: Array | None = None  # of position, velocity, effort, (3, n)
        self._acceleration: Array | None = None

    def note(self, q: ArrayLike, v: ArrayLike, effort: ArrayLike) -> tuple[Array, Array] | None:
        """Add a cycle, and return an equation where one is due.

        Args:
            q: Measured positions, (n,) [rad].
            v: Measured velocities, (n,) [rad/s].
            effort: Mean effort since the cycle before, (n,) [Nm].

        Returns:
            ``Y`` (n, 14 n) and ``u`` (n,) [Nm], or None.
        """
        self._cycles.append((np.array(q, dtype=float), np.array(v, dtype=float), np.array(effort, dtype=float)))
        if self._kind is Observation.ACCELERATION:
            now = np.array(self._cycles[-1])
            last = now if self._averages is None else self._averages
            self._averages = last + self._share * (now - last)
            self._acceleration = (self._averages[1] - last[1]) / self._period
        if len(self._cycles) <= self._every:
            return None
        equation = self._from_momenta() if self._kind is Observation.MOMENTUM else self._from_acceleration()
        self._cycles = self._cycles[-1:]
        return equation

    def _from_acceleration(self) -> tuple[Array, Array]:
        assert self._averages is not None and self._acceleration is not None
        q, v, effort = self._averages
        rows = self._torque.evaluate(q[None], v[None], self._acceleration[None])[0]
        turns = np.abs(v) >= self._slowest
        return rows * turns[:, None], effort * turns

    def _from_momenta(self) -> tuple[Array, Array]:
        q, v, effort = (np.array(part) for part in zip(*self._cycles, strict=True))
        duration = self._period * (len(q) - 1)
        weights = np.full(len(q), self._period)
        weights[[0, -1]] *= 0.5
        ends = self._momentum.momentum(q[[0, -1]], v[[0, -1]])
        rows = (ends[1] - ends[0] - self._momentum.integrate(q, v, weights)) / duration
        return rows, effort[1:].mean(axis=0)


@dataclass(frozen=True)
class OnlineFitSettings(Settings, library_only=True):
    """Settings of the fit to the samples of a buffer."""

    capacity: int = setting(50, "-", lower=1, upper=100_000)
    """Samples in the buffer; the oldest leaves."""
    is_growing: bool = False
    """Whether samples beyond the capacity are kept, too: the fit is then one of all samples."""
    rate: float = setting(3.0, "Hz", lower=0.01, upper=1000.0)
    """Samples per second that are taken."""
    weight: float = setting(0.9, "-", above=0.0, below=1.0)
    """alpha: weight of the data; ``1 - alpha`` is the prior's."""
    least_information: float = setting(0.0, "-", lower=0.0, upper=10.0)
    """A sample is left out where it reduces the volume of the uncertainty of the parameters by less than this, as the
    logarithm; 0 takes all."""


@dataclass(frozen=True)
class OnlineFit:
    """A fitted model.

    Attributes:
        theta: Parameters, (P,).
        determination: Coefficient of determination of each joint over the buffer, (n,); NaN without a sample, and 1 at
            most. It compares with a model of zero torque, not with the mean (SVA (104)).
        samples: Samples in the buffer.
        is_full: Whether the buffer has reached its capacity.
    """

    theta: Array
    determination: Array
    samples: int
    is_full: bool


def coefficient_of_determination(measured: ArrayLike, predicted: ArrayLike) -> Array:
    """Compute R^2 of each column, ``1 - e'e / u'u`` (SVA (104)); NaN for a column of zeros.

    Args:
        measured: Torques, (N, n).
        predicted: Torques of the model, (N, n).
    """
    measured, predicted = np.asarray(measured, dtype=float), np.asarray(predicted, dtype=float)
    total = np.sum(measured**2, axis=0)
    left = np.sum((measured - predicted) ** 2, axis=0)
    return np.asarray(1.0 - np.divide(left, total, out=np.full_like(total, np.nan), where=total > 0.0))


class OnlineLeastSquares:
    """Fits ``Y theta = u`` to the samples of a buffer, with a prior.

    ``theta`` minimises ``alpha^2 |U - Y theta|^2 + (1 - alpha)^2 |(theta - theta_0) / scale|^2`` (SVA (105), (107)).

    Args:
        prior: theta_0, (P,).
        joints: Number of joints, n.
        settings: Buffer and weight.
        scale: Scale of each parameter's departure from the prior, (P,); 1 as in the paper if None.

    Raises:
        ParameterOutOfRange: The prior is not finite, or a scale is not positive.
    """

    def __init__(
        self, prior: ArrayLike, joints: int, settings: OnlineFitSettings | None = None, scale: ArrayLike | None = None
    ):
        self.settings = settings or OnlineFitSettings()
        self._prior, self._joints = np.array(prior, dtype=float), joints
        self._scale = np.ones_like(self._prior) if scale is None else np.array(scale, dtype=float)
        if self._prior.ndim != 1 or not np.isfinite(self._prior).all():
            raise ParameterOutOfRange("prior of the online fit", self._prior, "a vector of finite numbers")
        if self._scale.shape != self._prior.shape or not (np.isfinite(self._scale) & (self._scale > 0.0)).all():
            raise ParameterOutOfRange("scale of the online fit", self._scale, f"{self._prior.size} positive numbers")
        self.reset()

    def reset(self) -> None:
        """Discard all samples."""
        self._samples: deque[tuple[Array, Array]] = deque()
        size = self._prior.size + 1
        # The prior's rows never leave; the last column is the right-hand side, here of departures from the prior.
        own = (1.0 - self.settings.weight) / self._scale
        self._base: Array = np.zeros((size, size))
        self._base[: self._prior.size, : self._prior.size] = np.diag(own)
        self._front: list[Array] = []  # factors of the oldest i samples, the largest i first: the oldest leaves last
        self._back: Array | None = None  # factor of the samples that came since
        self._back_rows: list[Array] = []

    @property
    def samples(self) -> int:
        """Samples in the buffer."""
        return len(self._samples)

    def add(self, regressor: ArrayLike, torque: ArrayLike) -> bool:
        """Add a sample, and let the oldest go where the buffer slides and is full.

        Args:
            regressor: Y, (n, P).
            torque: u, (n,) [Nm].

        Returns:
            Whether it was taken: samples with too little information are not.

        Raises:
            ParameterOutOfRange: A shape is wrong or an entry is not finite.
        """
        y, u = np.array(regressor, dtype=float), np.array(torque, dtype=float)
        shape = (self._joints, self._prior.size)
        if y.shape != shape or u.shape != shape[:1] or not (np.isfinite(y).all() and np.isfinite(u).all()):
            raise ParameterOutOfRange(
                "sample of the online fit", f"shapes {y.shape} and {u.shape}", f"finite numbers of {shape}, {shape[:1]}"
            )
        if self.settings.least_information > 0.0 and self.information(y) < self.settings.least_information:
            return False
        rows = self.settings.weight * np.column_stack([y, u - y @ self._prior])
        self._samples.append((y, u))
        self._back = _triangle(rows if self._back is None else np.vstack([self._back, rows]))
        self._back_rows.append(rows)
        if len(self._samples) > self.settings.capacity and not self.settings.is_growing:
            self._drop_oldest()
        elif self.settings.is_growing:
            self._back_rows.clear()  # none of them will leave
        return True

    def information(self, regressor: Array) -> float:
        """Return half the increase of the logarithm of the information's determinant by a sample."""
        factor = self._factor()[: self._prior.size, : self._prior.size]
        reach = scipy.linalg.solve_triangular(factor, self.settings.weight * regressor.T, trans="T")
        return 0.5 * float(np.linalg.slogdet(np.eye(self._joints) + reach.T @ reach)[1])

    def solve(self) -> OnlineFit:
        """Solve for the parameters, and compare the model's torques with those of the buffer."""
        factor = self._factor()
        p = self._prior.size
        theta = self._prior + scipy.linalg.solve_triangular(factor[:p, :p], factor[:p, p])
        determination = np.full(self._joints, np.nan)
        if self._samples:
            measured = np.array([u for _, u in self._samples])
            determination = coefficient_of_determination(measured, np.array([y @ theta for y, _ in self._samples]))
        return OnlineFit(theta, determination, self.samples, self.samples >= self.settings.capacity)

    def _factor(self) -> Array:
        """Return the triangular factor of all rows, the prior's included, (P + 1, P + 1)."""
        parts = [self._base, *self._front[-1:], *([] if self._back is None else [self._back])]
        return _triangle(np.vstack(parts)) if len(parts) > 1 else self._base

    def _drop_oldest(self) -> None:
        if not self._front:
            # Turn the stack around: factors of the newest one, two, ... samples, so that the oldest leaves by a pop.
            factor: Array | None = None
            for rows in reversed(self._back_rows):
                factor = _triangle(rows if factor is None else np.vstack([factor, rows]))
                self._front.append(factor)
            self._back, self._back_rows = None, []
        self._front.pop()
        self._samples.popleft()


def _triangle(rows: Array) -> Array:
    """Return the triangular factor R of rows, with ``R'R = rows' rows``."""
    return np.asarray(scipy.linalg.qr(rows, mode="r", check_finite=False)[0][: rows.shape[1]])
