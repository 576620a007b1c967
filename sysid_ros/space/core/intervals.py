"""Information of intervals of cycloids on the minimal parameters, or on an object, and its derivative with the motion.

With no initial momentum, the motion of the base follows from the joints' motion, seen from the base. So the information
of an interval is a Gram matrix that depends on its own two knots and the turns of its wheels alone, and matrices of
intervals add. Derivatives go backwards through the momentum equation, with its multiplier in place of the motion of the
base.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ModelError
from sysid_ros.core.common.spatial import cross
from sysid_ros.core.trajectories.families import CycloidTrajectory
from sysid_ros.space.core.minimal_parameters import MinimalParameters, build_minimal_parameters
from sysid_ros.space.core.momentum import (
    PARAMETERS,
    BodyStates,
    composite_inertia,
    joint_axis,
    link_kinematic_matrices,
    solve_base_twist,
)
from sysid_ros.space.core.robot import FreeFlyer

Array = NDArray[np.float64]

_CHUNK = 4096
"""Samples that are evaluated at once."""
_POWER = 6
"""Power of the norm that stands for the largest and the smallest eigenvalue: smooth where two of them meet."""
_SHORT = 1e-12
_COLUMNS = np.array([[0, 1, 3], [1, 2, 4], [3, 4, 5]])
"""Number of the inertia's entry (i, j) among INERTIA_ENTRIES."""


@dataclass(frozen=True, eq=False)
class FloatingMotion:
    """A motion of joints and reaction wheels.

    Attributes:
        joints: Motion of the joints.
        wheel_turns: Angle by which each wheel turns in each interval, (K, W) [rad].
    """

    joints: CycloidTrajectory
    wheel_turns: Array

    def part(self, begin: int, end: int | None = None) -> FloatingMotion:
        """Return some of its intervals, from one to before another."""
        turns = self.wheel_turns[begin:end]
        knots = self.joints.knots[begin : begin + len(turns) + 1]
        return FloatingMotion(CycloidTrajectory(knots, self.joints.period), turns)

    def wheel_rates(self, times: ArrayLike) -> Array:
        """Return the speeds of the wheels at times (N,) [s], (N, W) [rad/s]."""
        if not self.wheel_turns.shape[1]:
            return np.zeros((np.size(times), 0))
        angles = np.concatenate([np.zeros((1, self.wheel_turns.shape[1])), np.cumsum(self.wheel_turns, axis=0)])
        return CycloidTrajectory(angles, self.joints.period).sample(times)[1]


@dataclass(frozen=True, eq=False)
class EvaluatedIntervals:
    """M intervals at S samples each, N = M S of them in all.

    Attributes:
        states: The bodies with their absolute velocities, N samples.
        joints: Velocities of the bodies relative to the base, for the same samples.
        rates: Joint velocities, (N, n) [rad/s].
        twist: Twist of the base in its own axes, (N, 6) [m/s, rad/s].
        inertia: Composite inertia of the robot, (N, 6, 6).
        matrices: Link kinematic matrices, (N, B, 6, 10).
        rows: Regressor of the parameters of interest, (N, 6, P).
    """

    states: BodyStates
    joints: BodyStates
    rates: Array
    twist: Array
    inertia: Array
    matrices: Array
    rows: Array

    def gram(self) -> Array:
        """Compute the Gram matrix of all intervals, (P, P)."""
        flat = self.rows.reshape(-1, self.rows.shape[2])
        gram: Array = flat.T @ flat
        return gram

    def squares(self) -> float:
        """Compute the sum of the squares of base twist and joint rates."""
        return float((self.twist**2).sum() + (self.rates**2).sum())


class IntervalInformation:
    """Information of intervals on the minimal parameters, or on other ones.

    Args:
        robot: The robot.
        parameters: Inertial parameters to plan with, (10 B,).
        period: Length of an interval [s].
        samples: Samples of an interval that count [-].
        columns: Effect of the P parameters of interest on the parameters of the tree, (10 B, P), see
            :func:`~sysid_ros.space.core.bounds.object_columns`; None for the minimal parameters.

    Attributes:
        minimal: The minimal parameters.

    Raises:
        ModelError: A joint has no axis.
    """

    def __init__(
        self, robot: FreeFlyer, parameters: ArrayLike, period: float, samples: int, columns: Array | None = None
    ):
        self.robot, self.samples = robot, samples
        self.minimal: MinimalParameters = build_minimal_parameters(robot.tree)
        self._columns = columns
        self._parameters = np.asarray(parameters, dtype=float)
        phases = (np.arange(samples) + 0.5) / samples
        self._progress = phases - np.sin(2.0 * np.pi * phases) / (2.0 * np.pi)
        self._rate = (1.0 - np.cos(2.0 * np.pi * phases)) / period
        self._sliding, self._turning = _joint_axes(robot)
        self._behind = _descent(robot)

    @property
    def count(self) -> int:
        """Number P of parameters of interest [-]."""
        return self.minimal.count if self._columns is None else int(self._columns.shape[1])

    def evaluate(self, starts: Array, ends: Array, wheel_turns: Array) -> EvaluatedIntervals:
        """Evaluate intervals.

        Args:
            starts: First knots, (M, n) [rad].
            ends: Second knots, (M, n) [rad].
            wheel_turns: Turns of the wheels, (M, W) [rad].
        """
        count = len(starts) * self.samples
        turn = ends - starts
        q = (starts[:, None] + turn[:, None] * self._progress[:, None]).reshape(count, -1)
        v = (turn[:, None] * self._rate[:, None]).reshape(count, -1)
        wheels = (wheel_turns[:, None] * self._rate[:, None]).reshape(count, -1)
        joints = self.robot.tree.evaluate(q, v)
        inertia = composite_inertia(joints, self._parameters)
        twist = solve_base_twist(joints, self._parameters, -self.robot.wheels.momentum(wheels), inertia)
        states = joints.with_base_twist(twist)
        matrices = link_kinematic_matrices(states)
        rows = np.swapaxes(matrices, 1, 2).reshape(count, 6, -1)
        rows = rows[..., self.minimal.kept] if self._columns is None else rows @ self._columns
        return EvaluatedIntervals(states, joints, v, twist, inertia, matrices, rows)

    def grams(self, knots: Array, wheel_turns: Array) -> Array:
        """Compute the Gram matrices of the intervals of a motion, (K, P, P)."""
        result = np.empty((len(wheel_turns), self.count, self.count))
        for part in self._parts(len(wheel_turns)):
            rows = self.evaluate(knots[:-1][part], knots[1:][part], wheel_turns[part]).rows
            flat = rows.reshape(-1, 6 * self.samples, self.count)
            result[part] = np.swapaxes(flat, 1, 2) @ flat
        return result

    def gram(self, knots: Array, wheel_turns: Array) -> Array:
        """Compute the Gram matrix of a motion, (P, P)."""
        total = np.zeros((self.count, self.count))
        for part in self._parts(len(wheel_turns)):
            total += self.evaluate(knots[:-1][part], knots[1:][part], wheel_turns[part]).gram()
        return total

    def condition_number(self, knots: Array, wheel_turns: Array) -> float:
        """Compute the condition number of the regressor of a motion [-]."""
        return condition_number(self.gram(knots, wheel_turns))

    def gradient(
        self, intervals: EvaluatedIntervals, weights: Array, square_weight: float = 0.0, forces: Array | None = None
    ) -> tuple[Array, Array, Array]:
        """Compute the derivative of ``sum(weights * gram) + square_weight * squares`` of intervals.

        Args:
            intervals: The intervals.
            weights: Symmetric weights, (P, P).
            square_weight: Weight of the squares of velocities.
            forces: Derivative of something else with displacements of the bodies, (N, B, 6), see
                :meth:`SelfCollisionModel.penalty`.

        Returns:
            Derivatives along first knots, second knots, (M, n), and turns of the wheels, (M, W).
        """
        states, joints = intervals.states, intervals.joints
        bodies, count = self.robot.tree.count, len(intervals.rows)
        slopes = 2.0 * (intervals.rows.reshape(-1, self.count) @ weights)
        if self._columns is None:
            every = np.zeros((len(slopes), bodies * PARAMETERS))
            every[:, self.minimal.kept] = slopes
        else:
            every = slopes @ self._columns.T
        slopes = np.ascontiguousarray(np.swapaxes(every.reshape(count, 6, bodies, PARAMETERS), 1, 2))
        along_twist = _velocity_slopes(states, slopes)
        # The base has to move so that momentum stays: its change counts with the multiplier of the equation.
        origin = along_twist.sum(axis=1) + 2.0 * square_weight * intervals.twist
        multiplier = np.linalg.solve(intervals.inertia, origin[..., None])[..., 0]
        slopes -= multiplier[:, None, :, None] * self._parameters.reshape(bodies, 1, PARAMETERS)
        along_twist, along_frame = _velocity_slopes(states, slopes), _frame_slopes(intervals.matrices, slopes)
        along_frame += 0.0 if forces is None else forces
        turning = (joints.rotations[:, 1:] @ self._turning[..., None])[..., 0]
        sliding = (joints.rotations[:, 1:] @ self._sliding[..., None])[..., 0] + cross(joints.positions[:, 1:], turning)
        axes = np.concatenate([sliding, turning], axis=-1)
        # A joint moves the bodies behind it.
        rates, frames = self._behind @ along_twist, self._behind @ along_frame
        angular = states.angular[:, 1:]
        linear = states.linear[:, 1:] - cross(angular, states.positions[:, 1:])
        carried = np.concatenate([cross(turning, linear) + cross(sliding, angular), cross(turning, angular)], axis=-1)
        along_v = (axes * rates).sum(axis=-1) + 2.0 * square_weight * intervals.rates
        along_q = (axes * frames - carried * rates).sum(axis=-1)
        wheels = self.robot.wheels
        along_wheels = -(multiplier[:, 3:] @ wheels.axes.T) * wheels.inertias
        q_slopes, v_slopes, wheel_slopes = (
            part.reshape(-1, self.samples, part.shape[1]) for part in (along_q, along_v, along_wheels)
        )
        progress, rate = self._progress[:, None], self._rate[:, None]
        ends: Array = (q_slopes * progress + v_slopes * rate).sum(axis=1)
        starts: Array = q_slopes.sum(axis=1) - ends
        return starts, ends, (wheel_slopes * rate).sum(axis=1)

    def _parts(self, count: int) -> list[slice]:
        step = max(1, _CHUNK // self.samples)
        return [slice(begin, begin + step) for begin in range(0, count, step)]


def condition_number(gram: Array) -> float:
    """Compute the condition number of the regressor with a Gram matrix (P, P) [-]."""
    values = np.linalg.eigvalsh(gram)
    return float(np.sqrt(values[-1]) / np.sqrt(max(values[0], np.finfo(float).tiny))) if values[-1] > 0.0 else np.inf


def smooth_condition(gram: Array) -> tuple[float, Array]:
    """Compute a smooth stand-in for twice the log of the condition number, and its derivative with the matrix."""
    values, vectors = np.linalg.eigh(gram)
    values = np.maximum(values, _SHORT * values[-1])
    large, small = (values / values[-1]) ** _POWER, (values[0] / values) ** _POWER
    cost = np.log(values[-1]) + np.log(large.sum()) / _POWER - np.log(values[0]) + np.log(small.sum()) / _POWER
    slopes = large / large.sum() / values - small / small.sum() / values
    return float(cost), (vectors * slopes) @ vectors.T


def _joint_axes(robot: FreeFlyer) -> tuple[Array, Array]:
    """Return linear and angular velocity of the joints at unit speed, in the axes of the moved bodies, (n, 3)."""
    sliding, turning = np.zeros((2, robot.n, 3))
    for body in range(1, robot.tree.count):
        joint = robot.tree.model.joints[body + 1]
        axis = joint_axis(joint)
        if axis is None or joint.nv != 1 or joint.idx_v != body + 5:
            raise ModelError(f"{robot.tree.body_names[body]} is a {joint.shortname()}; exciting motions need an axis")
        (sliding if joint.shortname().startswith("JointModelP") else turning)[body - 1] = axis
    return sliding, turning


def _descent(robot: FreeFlyer) -> Array:
    result = np.zeros((robot.n, robot.tree.count))
    for body in range(robot.tree.count - 1, 0, -1):
        result[body - 1, body] = 1.0
        parent = robot.tree.parents[body]
        while parent > 0:
            result[parent - 1, body] = 1.0
            parent = robot.tree.parents[parent]
    return result


def _velocity_slopes(states: BodyStates, slopes: Array) -> Array:
    """Return the derivative of ``sum(slopes * K_i)`` with the motion of each body, (N, B, 6), at the base's origin."""
    turn, r = states.rotations, states.positions
    back = np.swapaxes(turn, -1, -2)
    upper, lower = slopes[..., :3, :], slopes[..., 3:, :]
    moments = lower[..., 1:4] @ back
    linear = upper[..., 0] + cross(lower[..., 0], r) + _crossed(moments)
    # axis x (slope x r), summed over the axes
    angular = (moments @ r[..., None])[..., 0] - np.trace(moments, axis1=-2, axis2=-1)[..., None] * r
    angular += _crossed(turn @ np.swapaxes(upper[..., 1:4], -1, -2))
    along = back @ lower[..., 4:]  # axis by entry of the inertia
    spin = along[..., 0, _COLUMNS[0]] + along[..., 1, _COLUMNS[1]] + along[..., 2, _COLUMNS[2]]
    angular += (turn @ spin[..., None])[..., 0]
    # The velocity of the body's origin is that at the base's origin plus the part of turning.
    return np.concatenate([linear, angular + cross(r, linear)], axis=-1)


def _frame_slopes(matrices: Array, slopes: Array) -> Array:
    """Return the derivative of ``sum(slopes * K_i)`` with a displacement of each body that carries its motion along."""
    upper, lower = np.swapaxes(slopes[..., :3, :], -1, -2), np.swapaxes(slopes[..., 3:, :], -1, -2)
    force, moment = matrices[..., :3, :], matrices[..., 3:, :]
    return np.concatenate([_crossed(force @ lower), _crossed(force @ upper + moment @ lower)], axis=-1)


def _crossed(products: Array) -> Array:
    """Return the sum of ``a_k x b_k`` (..., 3) from the sum of ``a_k b_k^T`` (..., 3, 3)."""
    difference = products - np.swapaxes(products, -1, -2)
    return np.stack([difference[..., 1, 2], difference[..., 2, 0], difference[..., 0, 1]], axis=-1)
