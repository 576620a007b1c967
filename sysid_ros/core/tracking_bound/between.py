"""Bounds of the second time derivative of the smooth model error, for the gaps between samples (step 1 of the proof).

A function f that is known at the ends of an interval of length h is within ``h^2 / 8 max |f''|`` of the straight line
between them. The model error is a sum over the bodies of Jacobian columns times the wrenches of their motion. Columns,
velocities and gravity, as seen from the bodies, are differentiated exactly at the nodes; between these, a derivative
exceeds its value at the nearer one by at most ``h / 2`` times the largest of the next one. The highest derivatives are
bounded by magnitudes: a column is a sum of products in which every rotation between joint and body appears once, with
coefficients that add up to the length L of the chain between them, and ``|R'| <= |v|``, ``|R''| <= |a| + v^2``, ...:
with ``s = sum |v_k|`` over these joints, ``|J'| <= L s``, ``|J''| <= L (s^2 + s')`` and so on, where derivatives of s
are sums of bounds of the ``v_k``'s derivatives. A body has three parameters: bounds of its mass, first moments and
moments of inertia.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.spatial import cross, skew
from sysid_ros.core.model.inertia import inertia_matrix
from sysid_ros.core.model.mechanics import joint_axis
from sysid_ros.core.model.robot import INERTIAL, RobotModel
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable
from sysid_ros.core.tracking_bound.uncertainty import InertialUncertainty

Array = NDArray[np.float64]


@dataclass(frozen=True)
class MotionRates:
    """Largest magnitudes of velocity, acceleration, jerk and snap in P intervals of a motion, each (P, n)."""

    v: Array
    a: Array
    jerk: Array
    snap: Array

    @property
    def orders(self) -> tuple[Array, Array, Array, Array]:
        """All four, by order."""
        return self.v, self.a, self.jerk, self.snap


@dataclass(frozen=True)
class BodySizes:
    """Largest magnitudes of inertial parameters, for each of n bodies.

    Attributes:
        mass: Mass, (n,) [kg].
        first: Norm of the first moments, (n,) [kg m].
        second: Norm of the matrix of moments of inertia, (n,) [kg m^2].
        armature: Armatures, (n,) [kg m^2].
    """

    mass: Array
    first: Array
    second: Array
    armature: Array

    @classmethod
    def of(cls, theta: Array, n: int) -> BodySizes:
        """Take the largest magnitudes (11 n,) of all inertial parameters and armatures."""
        bodies = np.abs(theta[: INERTIAL * n]).reshape(n, INERTIAL)
        matrices = np.stack([inertia_matrix(body) for body in bodies])
        norms = np.abs(np.linalg.eigvalsh(matrices)).max(axis=1)
        return cls(bodies[:, 0], np.linalg.norm(bodies[:, 1:4], axis=1), norms, np.abs(theta[INERTIAL * n :]))


Jets = list[Array]
"""Bounds of the magnitude of a function and of its time derivatives, one after the other."""


@dataclass(frozen=True)
class Twists:
    """Bounds of linear and angular parts, of accelerations or velocities, as seen from the bodies (last axis)."""

    linear: Jets
    angular: Jets

    def over(self, starts: NDArray[np.intp]) -> Twists:
        """Take the largest between the starts, along the first axis."""
        return Twists(*([np.maximum.reduceat(x, starts, axis=0) for x in part] for part in (self.linear, self.angular)))

    def expand(self, axis: int) -> Twists:
        """Insert an axis."""
        return Twists(*([np.expand_dims(x, axis) for x in part] for part in (self.linear, self.angular)))


def product(x: Jets, y: Jets, order: int) -> Array:
    """Bound a derivative of a product."""
    total: Array = np.sum([comb(order, k) * x[k] * y[order - k] for k in range(order + 1)], axis=0)
    return total


class ChainJets:
    """Jacobian columns and gravity as seen from every body, with their time derivatives, between nodes of a motion.

    At the nodes they are exact vectors, apart from the parts that jerk and snap add, which are bounded by magnitude.

    Args:
        robot: The arm.
        states: Positions [rad], velocities [rad/s] and accelerations [rad/s^2] at the nodes, (N, n) each.
        rates: Largest rates between the nodes.
        jumps: Jumps of the acceleration between them, (N - 1, n) [rad/s^2].
        width: Times between the nodes, (N - 1,) [s].

    Attributes:
        columns: Jacobian columns, derivatives 0 to 3, (N - 1, joint, body).
        velocity: Twists of the bodies, derivatives 0 to 3, (N - 1, body).
        gravity: Gravity, derivatives 0 to 2, (N - 1, body) [m/s^2].
    """

    def __init__(
        self, robot: RobotModel, states: tuple[Array, Array, Array], rates: MotionRates, jumps: Array, width: Array
    ):
        n, self._width = robot.n, width[:, None, None]
        index = np.arange(n)
        moves = (index[:, None] <= index).astype(float)  # (joint, body)
        between = ((index[:, None, None] < index) & (index <= index[:, None])).astype(float)  # (joint, body, k)
        turning = [np.einsum("abk,pk->pab", between, one) for one in (*rates.orders, jumps)]
        levers, axes, gravity = _jets(robot, *states)
        linear = self._differentiate(levers, chain_lengths(robot), turning, states, rates, jumps)
        angular = self._differentiate(axes, moves, turning, states, rates, jumps)
        self.columns = Twists(linear[0], angular[0])
        self.velocity = Twists(linear[1], angular[1])
        v, a, jerk, step = (np.cumsum(one, axis=1) for one in (*rates.orders[:3], jumps))
        weight = float(np.linalg.norm(robot.gravity))
        at = np.linalg.norm(gravity, axis=-1)
        at, flat = np.maximum(at[:, :-1], at[:, 1:]), width[:, None]
        second = at[2] + weight * step + 0.5 * flat * weight * (v**3 + 3.0 * v * (a + step) + jerk)
        self.gravity = [at[0] + flat**2 / 8.0 * second, at[1] + 0.5 * flat * second, second]

    def _differentiate(
        self,
        vectors: Array,
        size: Array,
        turning: list[Array],
        states: tuple[Array, Array, Array],
        rates: MotionRates,
        jumps: Array,
    ) -> tuple[Jets, Jets]:
        """Bound parts of the columns, (N - 1, joint, body), and of the velocities, (N - 1, body).

        Args:
            vectors: The parts, derivatives 0 to 3 at the nodes without jerk, (4, N, joint, body, 3).
            size: Their largest magnitudes, (joint, body).
            turning: Sums of the rates and of the jumps of the joints between, (N - 1, joint, body).
            states: Positions, velocities and accelerations at the nodes, (N, n) each.
            rates: Largest rates between the nodes.
            jumps: Jumps of the acceleration between them, (N - 1, n).
        """
        width, (s, ds, dds, d3s, step) = self._width, turning
        at = np.linalg.norm(vectors, axis=-1)
        at = np.maximum(at[:, :-1], at[:, 1:])
        ds = ds + step
        fourth = size * (s**4 + 6.0 * s**2 * ds + 4.0 * s * dds + 3.0 * ds**2 + d3s)
        jerked, bent, swung = size * dds, size * step, 3.0 * size * s * step
        third = at[3] + jerked + swung + 0.5 * width * fourth
        second = at[2] + bent + 0.5 * width * third
        first = at[1] + 0.5 * width * second
        column = [at[0] + width**2 / 8.0 * second, first, second, third]

        v, a = states[1][:, :, None, None], states[2][:, :, None, None]
        rows = [
            v * vectors[0],
            v * vectors[1] + a * vectors[0],
            v * vectors[2] + 2.0 * a * vectors[1],
            v * vectors[3] + 3.0 * a * vectors[2],
        ]
        at = np.stack([np.linalg.norm(row.sum(axis=1), axis=-1) for row in rows])
        at = np.maximum(at[:, :-1], at[:, 1:])
        v, a, jerk, snap = (one[:, :, None] for one in rates.orders)
        jump = jumps[:, :, None]
        a = a + jump
        # Parts of jerk, snap and a jump in the rows, and rates of the rows.
        added = [
            jump * column[0],
            jerk * column[0] + 2.0 * jump * column[1] + v * bent,
            snap * column[0] + 3.0 * (jerk * column[1] + jump * column[2] + a * bent) + v * (jerked + swung),
        ]
        change = [
            v * column[3] + 3.0 * a * column[2] + 2.0 * jerk * column[1],
            v * fourth + 4.0 * a * column[3] + 3.0 * jerk * column[2],
        ]
        flat = width[:, 0]
        third = at[3] + (added[2] + 0.5 * width * change[1]).sum(axis=1)
        second = at[2] + (added[1] + 0.5 * width * change[0]).sum(axis=1)
        first = at[1] + added[0].sum(axis=1) + 0.5 * flat * second
        return column, [at[0] + 0.5 * flat * first, first, second, third]


def _jets(robot: RobotModel, q: Array, v: Array, a: Array) -> tuple[Array, Array, Array]:
    """Differentiate levers and axes, (4, N, joint, body, 3), and gravity, (4, N, body, 3), without jerk.

    All are seen from the bodies: the lever of joint i is the velocity of the body's origin per velocity of the joint.
    """
    model, n, count = robot.pin_model, robot.n, len(q)
    levers, axes, gravities = np.zeros((4, count, n, n, 3)), np.zeros((4, count, n, n, 3)), np.zeros((4, count, n, 3))
    reach = np.zeros((4, count, 0, 3))
    direction = np.zeros((4, count, 0, 3))
    gravity = np.zeros((4, count, 1, 3))
    gravity[0] = robot.gravity
    base = np.array(model.frames[model.getFrameId(robot.base_frame)].placement.rotation)
    gravity = gravity @ base.T
    for body in range(n):
        placement, axis = model.jointPlacements[body + 1], joint_axis(model, body + 1)
        reach[0] += placement.translation
        vectors = np.concatenate([reach, direction, gravity], axis=2) @ placement.rotation
        vectors = _turned(vectors, axis, q[:, body], v[:, body], a[:, body])
        reach, direction, gravity = vectors[:, :, :body], vectors[:, :, body : 2 * body], vectors[:, :, 2 * body :]
        own = np.zeros((4, count, 1, 3))
        reach = np.concatenate([reach, own], axis=2)
        own = own.copy()
        own[0] = axis
        direction = np.concatenate([direction, own], axis=2)
        axes[:, :, : body + 1, body] = direction
        gravities[:, :, body] = gravity[:, :, 0]
        for order in range(4):
            for k in range(order + 1):
                levers[order, :, : body + 1, body] += comb(order, k) * cross(direction[k], reach[order - k])
    return levers, axes, gravities


def _turned(vectors: Array, axis: Array, q: Array, v: Array, a: Array) -> Array:
    """Differentiate vectors (4, N, K, 3) as seen from a body that turns about an axis, without jerk."""
    cosine, sine = np.cos(q), np.sin(q)
    cosines = [cosine - 1.0, -sine * v, -sine * a - cosine * v**2, -3.0 * cosine * v * a + sine * v**3]
    sines = [sine, cosine * v, cosine * a - sine * v**2, -3.0 * sine * v * a - cosine * v**3]
    turn = skew(axis).T
    aside = vectors @ turn
    across = -aside @ turn  # perpendicular to the axis
    result: Array = vectors.copy()
    for order in range(4):
        for k in range(order + 1):
            factor = comb(order, k)
            result[order] += factor * (cosines[k][:, None, None] * across[order - k])
            result[order] -= factor * (sines[k][:, None, None] * aside[order - k])
    return result


def chain_lengths(robot: RobotModel) -> Array:
    """Bound the distance of each body's origin from the axis of each joint before it, (joint, body) [m]."""
    n, model = robot.n, robot.pin_model
    offsets = [np.array(model.jointPlacements[index + 1].translation) for index in range(n)]
    lengths = np.zeros((n, n))
    for joint in range(n):
        for body in range(joint + 1, n):
            offset = offsets[body]
            if body == joint + 1:  # the part along the axis does not move with it
                offset = np.cross(joint_axis(model, body), offset)
            lengths[joint, body] = lengths[joint, body - 1] + np.linalg.norm(offset)
    return lengths


class ChainRates:
    """Parameter-free part of the rates in P intervals.

    Args:
        jets: The chain between finer nodes.
        starts: Number of the first fine interval in each, (P,).
        added: Additional rates of the motion by jumps of jerk and acceleration.
    """

    def __init__(self, jets: ChainJets, starts: NDArray[np.intp], added: MotionRates):
        columns = self.columns = jets.columns.over(starts)
        speed = jets.velocity.over(starts)
        jerk, snap = added.jerk[:, :, None], added.snap[:, :, None]
        for part, own in ((speed.linear, columns.linear), (speed.angular, columns.angular)):
            part[2] = part[2] + (jerk * own[0]).sum(axis=1)
            part[3] = part[3] + (snap * own[0] + 3.0 * jerk * own[1]).sum(axis=1)
        gravity = self.gravity = [np.maximum.reduceat(x, starts, axis=0) for x in jets.gravity]
        self.velocity = speed  # of the bodies, (P, b)
        linear = [speed.linear[k + 1] + product(speed.angular, speed.linear, k) + gravity[k] for k in range(3)]
        angular = [speed.angular[k + 1] + product(speed.angular, speed.angular, k) for k in range(3)]
        self.acceleration = Twists(linear, angular)  # of the bodies, gravity included, (P, b)


class TermRates:
    """Bounds of time derivatives of the parts of the model's terms, for parameters within given sizes."""

    def __init__(self, chain: ChainRates, sizes: BodySizes, rates: MotionRates):
        self._chain, self._sizes, self._rates = chain, sizes, rates

    def _paired(self, x: Twists, y: Twists, order: int) -> Array:
        """Bound a derivative of ``x^T I y``, I the inertia of a body, summed over the bodies."""
        sizes = self._sizes
        total = product(x.linear, y.linear, order) @ sizes.mass
        total = total + (product(x.linear, y.angular, order) + product(x.angular, y.linear, order)) @ sizes.first
        result: Array = total + product(x.angular, y.angular, order) @ sizes.second
        return result

    def inertia(self, order: int) -> Array:
        """Bound a derivative, the first or one up to the third, of the inertia, entry by entry, (P, n, n)."""
        columns = self._chain.columns
        return self._paired(columns.expand(2), columns.expand(1), order)

    def pushed(self, order: int, accelerations: Array) -> Array:
        """Bound a derivative of the inertia, armatures excluded, times constant accelerations (P, n), (P, n)."""
        columns, weight = self._chain.columns, accelerations[:, :, None]
        parts = ([(weight * x).sum(axis=1) for x in part] for part in (columns.linear, columns.angular))
        return self._paired(columns, Twists(*parts).expand(1), order)

    def torque(self, order: int) -> Array:
        """Bound a time derivative, up to the second, of the torque of the motion, (P, n) [Nm s^-order]."""
        armature: Array = self._sizes.armature * self._rates.orders[1 + order]
        return armature + self._paired(self._chain.columns, self._chain.acceleration.expand(1), order)

    def weight(self, order: int) -> Array:
        """Bound a derivative, up to the second, of the torque of gravity, (P, n) [Nm s^-order]."""
        gravity = self._chain.gravity
        return self._paired(self._chain.columns, Twists(gravity, [np.zeros_like(x) for x in gravity]).expand(1), order)

    def momentum(self, order: int) -> Array:
        """Bound a derivative, up to the second, of the inertia times the velocity, (P, n) [Nm s^(1 - order)]."""
        armature: Array = self._sizes.armature * self._rates.orders[order]
        return armature + self._paired(self._chain.columns, self._chain.velocity.expand(1), order)


@dataclass(frozen=True)
class InertiaChange:
    """Change of the nominal inertia M in P intervals, in the order of energies (Lemma 4).

    Attributes:
        nearby: M is between its value at the nearer end divided by this and times this, (P,) [-].
        rate: Largest norm of its rate, relative to M itself, (P,) [1/s].
    """

    nearby: Array
    rate: Array


class ModelRates:
    """Second derivatives of the nominal model and of its uncertainty in P intervals of a motion.

    Args:
        robot: The arm.
        uncertainty: Deviation of the true inertial parameters from the nominal ones.
        chain: The chain in the intervals.
        rates: Largest rates in the intervals, jumps of jerk and acceleration included.
        width: Widths of the intervals, (P,) [s].
    """

    def __init__(
        self,
        robot: RobotModel,
        uncertainty: InertialUncertainty,
        chain: ChainRates,
        rates: MotionRates,
        width: Array,
    ):
        n = robot.n
        self.curvature, self._width = rates, width
        self.sag = width**2 / 8.0
        self.nominal = TermRates(chain, BodySizes.of(uncertainty.nominal, n), rates)
        self.deviation = TermRates(chain, BodySizes.of(uncertainty.largest_deviation, n), rates)

    def inertia_change(self, inertia: Array, inverse: Array) -> InertiaChange:
        """Bound the change of the nominal inertia by its difference from straight lines between the nodes.

        A matrix with entries up to R has a norm of at most ``sum_ijkl R_ij R_kl |M^-1_ik| |M^-1_jl|``, squared.

        Args:
            inertia: M at the nodes, (P + 1, n, n) [kg m^2].
            inverse: Its inverse, (P + 1, n, n).

        Raises:
            BoundNotAvailable: The inertia may double within an interval.
        """
        step, entries = np.diff(inertia, axis=0), self.nominal.inertia(2)
        steps, misses = [], []
        for one, other in ((inertia[:-1], inverse[:-1]), (inertia[1:], inverse[1:])):
            factor, size = np.linalg.inv(np.linalg.cholesky(one)), np.abs(other)
            steps.append(np.abs(np.linalg.eigvalsh(factor @ step @ np.swapaxes(factor, 1, 2))).max(axis=1))
            misses.append(np.sqrt((entries * (size @ entries @ size)).sum(axis=(1, 2))))
        moved, missed = np.maximum(*steps), self.sag * np.maximum(*misses)
        off = 0.5 * moved + missed
        if not np.all(off < 0.5):
            raise BoundNotAvailable("the motion may change the inertia by half between two samples: it is too fast")
        nearby = 1.0 / (1.0 - off)
        return InertiaChange(nearby, nearby * (moved + 4.0 * missed) / self._width)

    def missed_torque(
        self, size: Array, rate: Array, of: Callable[[TermRates, int], Array] = TermRates.torque
    ) -> Array:
        """Bound the difference of M times a polygon of accelerations and the inertial model error, (P, n) [Nm].

        With ``w = M a`` known at the ends and b the straight line between these a, ``w - M b`` vanishes there, and its
        second derivative is that of w less ``M'' b + 2 M' b'``.

        Args:
            size: Largest entries of b, (P, n) [rad/s^2].
            rate: Largest entries of its slope, (P, n) [rad/s^3].
            of: The torque whose error it is; by default the motion's.
        """
        second = of(self.deviation, 2) + self.nominal.pushed(2, size) + 2.0 * self.nominal.pushed(1, rate)
        missed: Array = self.sag[:, None] * second
        return missed
