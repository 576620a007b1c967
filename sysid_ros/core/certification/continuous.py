"""The continuous torque limit: the largest root mean square of a joint's torque over any minute.

A plan states bounds of the mean square of its torques in equal parts of its time, and while it is held afterwards. The
executor records the torques of the last minute and adds up both.

**While a posture is held**, the torque is S, needed at rest, and a feedback of at most D that averages out but for
friction: its mean square is at most ``S^2 + 2 S m + D^2``, with a bound m of the mean feedback. The momentum p = H v
of the joints changes by the torque less gravity, friction, offset and the change of kinetic energy T with the posture:

    integral (tau - S) ds = [p + F_v (q - q_d)] + integral (Coulomb friction + g(q) - g(q_d) - dT/dq) ds.

With errors of positions and velocities up to E and V the bracket is an impulse that does not grow with time, and the
rest small. Let the bodies beyond joint j be stretched out from its axis, with the first moment f_j and the second S_j:

    |d g_j / d q_k| <= |g| f_m,      |p_j| <= sum_k (S_j S_k)^1/2 V_k + I_a V_j,
    |d T / d q_j| <= sum_k S_k^1/2 V_k  sum_k S_m^1/2 V_k,      m = max(j, k):

the second derivative of the place of a mass by two joints is the cross product of one's axis with the velocity that the
outer one gives it, and then Cauchy and Schwarz over the masses. Springs in gears are internal forces, and E and V bound
motors and links alike.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.stop_model import TrackingErrors
from sysid_ros.core.model.robot import INERTIAL, JointLimits
from sysid_ros.core.tracking_bound.between import BodySizes, chain_lengths

Array = NDArray[np.float64]

WINDOW = 60.0
"""Time over which the mean square is bounded [s]."""
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
class HeldFeedback:
    """Bounds of the feedback's torque while a posture is held.

    Attributes:
        largest: D, (n,) [Nm].
        mean: m, (n,) [Nm]: over a time t its integral is at most ``m t + impulse``. Infinite where no bound is known.
        impulse: (n,) [Nms].
    """

    largest: Array
    mean: Array
    impulse: Array

    @classmethod
    def bound(cls, assumptions: Assumptions, errors: TrackingErrors) -> HeldFeedback:
        """Bound the feedback by the equations above, for errors of the controller while it holds a posture.

        A torque acts late, which an impulse of the torque limit covers.
        """
        robot, law = assumptions.robot, assumptions.control_law
        n, position, velocity, feedback = robot.n, errors.position, errors.velocity, errors.torque
        if not all(robot.pin_model.joints[k + 1].shortname().startswith("JointModelR") for k in range(n)):
            return cls(feedback, np.full(n, np.inf), np.zeros(n))  # a slide has no lever
        arm, payload = (np.maximum(np.abs(box.lower), np.abs(box.upper)) for box in assumptions.boxes)
        arm[robot.inertial_slice(n)] += payload
        coulomb, viscous, armature, _ = robot.friction(arm).T
        sizes, levers = BodySizes.of(np.append(arm[: INERTIAL * n], armature), n), chain_lengths(robot)
        beyond = np.triu(np.ones((n, n)))
        first = (beyond * (sizes.mass * levers + sizes.first)).sum(axis=1)
        second = (beyond * (sizes.mass * levers**2 + 2.0 * sizes.first * levers + sizes.second)).sum(axis=1)
        outer = np.maximum.outer(np.arange(n), np.arange(n))
        gravity = float(np.linalg.norm(robot.pin_model.gravity.linear)) * (first[outer] @ position)
        speed = float(np.sqrt(second) @ velocity)
        late = law.period + law.delay + np.zeros(n)
        if robot.elasticity is not None:
            late += robot.elasticity.actuator_lag + robot.elasticity.torque_damping
        momentum = np.sqrt(second) * speed + armature * velocity + viscous * position
        mean = coulomb + gravity + speed * (np.sqrt(second[outer]) @ velocity)
        return cls(feedback, mean, 2.0 * (momentum + late * robot.limits.tau_max))

    def squares(self, rest: Array) -> tuple[Array, Array]:
        """Bound the mean square of the torque with one of up to ``rest`` (n,) [Nm] at rest.

        Returns:
            The mean square over a minute, (n,) [Nm^2]; and what a part of a minute may have more, (n,) [Nm^2 s].
        """
        peak = (rest + self.largest) ** 2
        mean = rest**2 + 2.0 * rest * (self.mean + self.impulse / WINDOW) + self.largest**2
        return np.minimum(peak, mean), np.where(mean < peak, 2.0 * rest * self.impulse, 0.0)

    def largest_rest(self, limits: JointLimits) -> Array:
        """Return the torque at rest that may be planned with, (n,) [Nm]: held for ever, with this feedback."""
        steady = self.mean + self.impulse / WINDOW
        room = np.maximum(limits.tau_held**2 - self.largest**2, 0.0)
        # Of the root of S^2 + 2 S m = room, in a form that an infinite m leaves zero.
        averaged = room / (steady + np.sqrt(steady**2 + room))
        is_lower = limits.tau_continuous < limits.tau_max
        allowed = np.maximum(limits.tau_held - self.largest, np.where(is_lower, averaged, 0.0))
        return np.minimum(allowed, limits.tau_max - self.largest)


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
    broken = np.flatnonzero((shares > 1.0).any(axis=1))
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
