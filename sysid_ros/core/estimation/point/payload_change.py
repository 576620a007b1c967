"""Statistical detection of a payload that changes on the way: a change that bounds must admit may still be unlikely.

A payload that slips in the gripper often stays within the errors of arm and sensors, so no bound is violated. But arm
and sensors are the same before and after, and the earlier data determine most of their effect. For every moment the
torques are explained once more with another mass and first moment from there on, beside least squares for payload and
nuisance parameters together. A change is reported where that explains a large share of the remainder, and the step is
many of its standard errors, which neighbouring windows share. Nothing is guaranteed: friction that changes, or a
contact, can look alike.

Source: D. W. K. Andrews, Tests for parameter instability and structural change with unknown change point, 1993,
section 4 (the largest Wald statistic over all moments); W. K. Newey, K. D. West, A simple, positive semi-definite,
heteroskedasticity and autocorrelation consistent covariance matrix, 1987, eq. (5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS
from sysid_ros.core.estimation.parameters.unknowns import Unknowns
from sysid_ros.core.estimation.windows.rows import Rows
from sysid_ros.core.model.robot import INERTIAL, RobotModel

Array = NDArray[np.float64]

CHANGING = 4
"""The mass and the first moment change; the inertia of an object that slips changes with them, by less than shows."""
LEAST = 10
"""Windows before and after a change without which it is not looked for."""
WALD, RATIO = 300.0, 150.0
"""From where on a change is told: squared step over its covariance, and what it explains over the variance of what is
left [-]. Without a change, the trials of bench/bench_payload_change.py and recordings of the simulated arm in closed
loop stay below half of them together."""
STICKING = 0.2
"""Largest share of a sticking joint in the error bound of a row that counts [-]."""
STEP = 3.0
"""Inverse variance of a step in units of the prior's radius [-]: uniform between -1 and 1."""
MOST_BLOCKS = 128
"""Sums are kept of so many runs of windows; when there are more, neighbours are merged."""
_STICTION = ERROR_TERMS.index("coulomb")
_UNIFORM, _WEAK = 3.0, 1e-8
"""Inverse variance of a number uniform between -1 and 1, and of one of which hardly anything is known."""


@dataclass(frozen=True)
class PayloadChange:
    """A payload that seems to have changed.

    Attributes:
        stamp_ns: First window after it, of the arm's clock [ns].
        seconds: The same since the first window [s].
        mass: Added mass [kg].
        first_moment: Added first moment, about the frame of the last joint, (3,) [kg m].
        ratio: Part explained by the step over the variance of the remainder [-].
    """

    stamp_ns: int
    seconds: float
    mass: float
    first_moment: Array
    ratio: float

    def __str__(self) -> str:
        moment = ", ".join(f"{value:+.3f}" for value in self.first_moment)
        return (
            f"the payload seems to have changed {self.seconds:.1f} s after the first window, by about {self.mass:+.2f} "
            f"kg and a first moment of ({moment}) kg m: has it slipped in the gripper? Bounds then hold neither before "
            "nor after; identify again. This is statistics, without a guarantee"
        )


class WeightedColumns:
    """Rows of windows as a least-squares problem, each unknown in units of its radius.

    Columns belong to the payload, then to every nuisance parameter that is not known exactly.

    Attributes:
        center: Middle of the payload's prior, (10,).
        radius: Its radii, (10,).
    """

    def __init__(self, robot: RobotModel, unknowns: Unknowns):
        self.center, self.radius = unknowns.prior.center, unknowns.prior.radius
        self._unknowns = unknowns
        self._gain_error = robot.sensors.effort_relative_error

    def build(self, rows: Rows) -> tuple[Array, Array, Array]:
        """Return columns (R, K), weights (R,) and right-hand side (R,) [Nms] of R rows."""
        unknowns = self._unknowns
        problem = Problem.build(rows, self.center, self.radius, unknowns.radius, unknowns.end_error)
        spans = problem.delta_radius.copy()
        gains = unknowns.groups["torque_gain"]
        # A relative error of the torque may last, as a gain does.
        spans[gains] = np.maximum(spans[gains], self._gain_error)
        columns = np.concatenate([problem.y * self.radius, (problem.b * spans)[:, spans > 0.0]], axis=1)
        allowed = problem.error + np.abs(problem.ends).sum(axis=1) @ problem.end_radius
        return columns, _UNIFORM / allowed**2, problem.r


def weak_prior(count: int) -> Array:
    """Return the inverse variances of the columns, (count,): hardly any for the payload, else uniform in the box."""
    prior = np.full(count, _UNIFORM)
    prior[:INERTIAL] = _WEAK
    return prior


def long_run_covariance(scores: Array) -> Array:
    """Return the covariance (K, K) of the sum of N correlated scores (N, K), with the kernel of Newey and West."""
    lags = _lags(len(scores))
    spread: Array = scores.T @ scores
    for lag in range(1, lags + 1):
        cross = scores[lag:].T @ scores[:-lag]
        spread += (1.0 - lag / (lags + 1.0)) * (cross + cross.T)
    return spread


def _lags(count: int) -> int:
    """Return how many neighbours count as correlated."""
    return int(np.floor(4.0 * (count / 100.0) ** (2.0 / 9.0)))


class ChangeMonitor:
    """Looks for a change of the payload in all windows so far, at bounded memory."""

    def __init__(self, robot: RobotModel, unknowns: Unknowns):
        self._columns = WeightedColumns(robot, unknowns)
        self._grams: list[Array] = []
        self._scores: list[Array] = []
        self._starts: list[int] = []
        self._sizes: list[int] = []
        self._gram, self._score = np.zeros(()), np.zeros(())  # of all windows
        self._squares, self._rows = 0.0, 0
        self._block = 1
        self._origin: int | None = None

    def add(self, rows: Rows) -> None:
        """Add the rows of a window."""
        if self._origin is None:
            self._origin = int(rows.start[0])
        # A joint that sticks holds any torque within its friction, the same for as long as it sticks.
        rows = rows.select(rows.errors[:, _STICTION] <= STICKING * rows.error)
        if not len(rows):
            return
        a, weight, r = self._columns.build(rows)
        weighted = a.T * weight
        gram, score = weighted @ a, weighted @ r
        self._gram, self._score = self._gram + gram, self._score + score
        if self._sizes and self._sizes[-1] < self._block:
            self._grams[-1] += gram
            self._scores[-1] += score
            self._sizes[-1] += 1
        else:
            self._grams.append(gram)
            self._scores.append(score)
            self._starts.append(int(rows.start[0]))
            self._sizes.append(1)
        self._squares += float(weight @ r**2)
        self._rows += r.size
        if len(self._sizes) > MOST_BLOCKS:
            self._merge()

    def _merge(self) -> None:
        self._block *= 2
        pairs = range(0, len(self._sizes), 2)
        self._grams = [sum(self._grams[i + 1 : i + 2], self._grams[i]) for i in pairs]
        self._scores = [sum(self._scores[i + 1 : i + 2], self._scores[i]) for i in pairs]
        self._sizes = [sum(self._sizes[i : i + 2]) for i in pairs]
        self._starts = self._starts[::2]

    def find(self) -> PayloadChange | None:
        """Find the most likely change; None without evidence of one."""
        count, least = len(self._sizes), -(-LEAST // self._block)
        if count < 2 * least + 1:
            return None
        # Of each block the parts its columns share with those of the change, (C, K, 4): the rest matters where there is
        # one.
        changing, scores = np.stack([gram[:, :CHANGING] for gram in self._grams]), np.stack(self._scores)
        inverse = np.linalg.inv(self._gram + np.diag(weak_prior(scores.shape[1])))
        fit = inverse @ self._score
        # Of all blocks from each one on: columns of the change, their overlap with the others, evidence for it.
        later = np.cumsum(changing[::-1], axis=0)[::-1]
        shared = (inverse @ later.transpose(1, 0, 2).reshape(len(fit), -1)).reshape(-1, count, CHANGING)
        shared = shared.transpose(1, 0, 2)
        speaks = np.cumsum((scores[:, :CHANGING] - fit @ changing)[::-1], axis=0)[::-1]
        curvature = later[:, :CHANGING] - np.transpose(later, (0, 2, 1)) @ shared
        moments = np.arange(least, count - least + 1)
        # A change that hardly shows in these postures is limited: payloads of the prior do not differ by more.
        curvature += np.diag(np.full(CHANGING, STEP))
        steps = np.linalg.solve(curvature[moments], speaks[moments, :, None])[..., 0]
        explained = np.einsum("cj,cj->c", speaks[moments], steps)
        best = int(np.argmax(explained))
        at, step = moments[best], steps[best]
        variance = (self._squares - float(fit @ self._score) - explained[best]) / self._rows
        ratio = float(explained[best] / max(variance, np.finfo(float).tiny))
        if ratio < RATIO:
            return None
        # Scores with the change taken out: else it would count as noise, and hide itself.
        grams = np.stack(self._grams)
        rest = scores - grams @ (fit - shared[at] @ step)
        rest[at:] -= grams[at:, :, :CHANGING] @ step
        single = -rest @ shared[at]
        single[at:] += rest[at:, :CHANGING]
        # Data without noise, as of a simulation, have no covariance in some directions, and no evidence there.
        wald = float(speaks[at] @ np.linalg.pinv(long_run_covariance(single), hermitian=True) @ speaks[at])
        if wald < WALD:
            return None
        added = step * self._columns.radius[:CHANGING]
        start = self._starts[at]
        return PayloadChange(start, 1e-9 * (start - (self._origin or 0)), float(added[0]), added[1:], ratio)
