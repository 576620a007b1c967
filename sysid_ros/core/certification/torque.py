"""Worst-case torques over pieces of a path, for every parameter in the boxes.

The torque of a motion whose clock runs at the rate r with the slowdown d is (see
:mod:`sysid_ros.core.trajectories.braking`)

    tau = g(q) + r (F_v v) + r^2 (M(q) a + c(q, v) + I_a a) + d (M(q) v + I_a v) + F_c sign + beta,

with q, v, a of the path; the path itself has r = 1 and d = 0. Every term is linear in the parameters. Only Coulomb
friction outside the bound of the feedback counts, see :func:`counted_friction`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.certification.chain import Motion
from sysid_ros.core.certification.stop_model import counted_friction
from sysid_ros.core.common.box import Box
from sysid_ros.core.model.robot import INERTIAL, RobotModel
from sysid_ros.core.regressors.rest_torque import RestSavings, rest_of

Array = NDArray[np.float64]

GRAVITY, RATE, SQUARE, SLOWDOWN = range(4)
"""The four parts of the torque: the factors of 1, r, r^2 and d."""


@dataclass(frozen=True)
class ParameterSpread:
    """Centres and radii of the parameters, joint by joint and body by body.

    Row k of the first two is a pair of a joint and a body it moves, sorted by joint.

    Attributes:
        joints: Joint of each pair, (pairs,).
        bodies: Body of each pair, (pairs,), counted from 0.
        center: Centres, (pairs, 10); the last body's include the payload's.
        radius: Radii, (pairs, 10).
        friction_center: Centres of F_v, I_a and beta, (n, 3).
        friction_radius: Radii of F_v, I_a and beta, (n, 3).
        coulomb: Largest Coulomb friction, (n,) [Nm].
        savings: Reduction by a known torque at rest; None without one.
    """

    joints: NDArray[np.int64]
    bodies: NDArray[np.int64]
    center: Array
    radius: Array
    friction_center: Array
    friction_radius: Array
    coulomb: Array
    savings: RestSavings | None


def spread_parameters(robot: RobotModel, boxes: tuple[Box, Box]) -> ParameterSpread:
    """Sorts the parameters of the arm's (14 n,) and the payload's (10,) box to where they act."""
    n = robot.n
    arm, payload = boxes
    joints, bodies = np.triu_indices(n)
    center, radius = arm.center[: INERTIAL * n].reshape(n, INERTIAL).copy(), arm.radius[: INERTIAL * n].reshape(n, -1)
    # The payload has the same regressor as the last body, so radii add: |Y| r1 + |Y| r2.
    radius = radius.copy()
    center[-1] += payload.center
    radius[-1] += payload.radius
    friction, friction_radius = robot.friction(arm.center), robot.friction(arm.radius)
    largest = np.maximum(np.abs(robot.friction(arm.lower)), np.abs(robot.friction(arm.upper)))
    friction, friction_radius, rest = friction[:, 1:], friction_radius[:, 1:], rest_of(payload)
    savings = None if rest is None else RestSavings(robot, arm, payload, rest)
    return ParameterSpread(
        joints, bodies, center[bodies], radius[bodies], friction, friction_radius, largest[:, 0], savings
    )


_MIDDLE = 2


@dataclass(frozen=True)
class _Sizes:
    nominal: Array  # Torque of the centre of the parameters, (3, n, P) [Nm]
    # Its magnitude, less the known torque at rest where that has been computed, (3, n, P) [Nm]
    size: Array
    spread: Array  # Part of the parameters' spread, (3, n, P) [Nm]
    columns: Array  # Rows of the regressor, (3, pairs, 10, P)
    remainder: Array  # Remainder between the points, (n, P) [Nm]
    rest: Array  # Friction and uncertainty of torque offsets, for the middle, (n, P) [Nm]

    @property
    def over_pieces(self) -> Array:
        """Upper bound in a piece, (n, P) [Nm]."""
        ends = self.size[:_MIDDLE] + self.spread[:_MIDDLE]
        return np.asarray(np.maximum(ends[0], ends[1]) + self.remainder)

    @property
    def middle(self) -> Array:
        """Largest possible torque in its middle, (n, P) [Nm]."""
        return np.asarray(self.size[_MIDDLE] + self.spread[_MIDDLE] + self.rest)


class TorqueBounds:
    """Worst-case torques over pieces of a path, in stops along it too.

    Args:
        spread: The parameters.
        motion: The chain over P pieces.
        friction_speed: Of the control law that the bound of the feedback is for [rad/s], see
            :func:`counted_friction`; 0 for none.
    """

    def __init__(self, spread: ParameterSpread, motion: Motion, friction_speed: float = 0.0):
        self._spread, self._friction_speed = spread, friction_speed
        parts = motion.regressors()
        v, a = motion.velocity, motion.acceleration
        self._starts = np.flatnonzero(np.diff(spread.joints, prepend=-1))
        pieces = v.shape[-1]
        n = v.shape[1]
        nominal = np.zeros((4, 4, n, pieces))  # part, coefficient
        remainder = np.zeros((4, n, pieces))
        viscous, armature, offset = spread.friction_center.T[..., None]
        nominal[GRAVITY, 0] += offset
        for part, factor, series in ((RATE, viscous, v), (SQUARE, armature, a), (SLOWDOWN, armature, v)):
            nominal[part, :3] += factor * series[:3]
            nominal[part, 3] += np.abs(factor) * series[3]
        size = np.abs(spread.center) + spread.radius
        for part, series in zip((GRAVITY, SQUARE, SLOWDOWN), parts, strict=True):
            nominal[part, :3] += self._by_joint(np.einsum("pk,cpkt->cpt", spread.center, series[:3]), axis=1)
            curvature = 0.5 * np.einsum("pk,pkt->pt", spread.radius, np.abs(series[2]))
            rest = np.einsum("pk,pkt->pt", size, series[3])
            remainder[part] += self._by_joint(curvature + rest, axis=0)
        viscous_radius, armature_radius, offset_radius = spread.friction_radius.T[..., None]
        for part, factor, series in ((RATE, viscous_radius, v), (SQUARE, armature_radius, a)):
            remainder[part] += factor * (0.5 * np.abs(series[2]) + series[3])
        remainder[SLOWDOWN] += armature_radius * (0.5 * np.abs(v[2]) + v[3])
        remainder[GRAVITY] += offset_radius
        remainder += 0.5 * np.abs(nominal[:, 2]) + nominal[:, 3]
        self._remainder = remainder
        # Ends of the piece, where a sum of absolute values of lines is largest, and its middle.
        self._nominal = _at_points(nominal[:, :3])
        self._columns = np.stack([_at_points(series[None, :3])[0] for series in parts])  # (3, 3, pairs, 10, P)
        self._viscous, self._speed, self._rate = viscous_radius, _at_points(v[None, :3])[0], _at_points(a[None, :3])[0]
        self._armature = armature_radius
        self._exact_rest = offset_radius
        # Largest speeds over a piece and in its middle, which Coulomb friction depends on.
        self._speeds = np.abs(v[:3]).sum(axis=0) + v[3], np.abs(v[0])

    def evaluate(self, rate: float, square: float, slowdown: float) -> tuple[Array, Array]:
        """Bounds of the torque while the clock of the path runs at a rate.

        Args:
            rate: Rate r of the clock [-].
            square: Its square [-]; given by itself, since bounds at the corners of a polytope of (r, r^2, d) hold
                inside.
            slowdown: Slowdown d of the clock [1/s].

        Returns:
            Upper bounds of the torque in a piece, and reachable torques in its middle, each (n, P) [Nm].
        """
        sizes = self._sizes(rate, square, slowdown)
        for joint in range(len(self._starts)):
            self._save(sizes, joint, np.ones(sizes.nominal[:, joint].shape, dtype=bool))
        return sizes.over_pieces, sizes.middle

    def largest(self, clocks: ArrayLike, feedback: Sequence[Array], limits: Array) -> tuple[Array, Array]:
        """Bounds of torque and feedback together, the largest of several clocks.

        The known torque at rest is computed only where it can decide: an entry that is smaller without it than the
        largest one in a middle, as a share of its limit, stays as it is.

        Args:
            clocks: Rates, their squares and slowdowns, (K, 3), see :meth:`evaluate`.
            feedback: Torque of the feedback with each of them, (n, P) or (n, 1) [Nm].
            limits: Torque limits, (n,) [Nm].

        Returns:
            Upper bounds of torque and feedback in a piece, and reachable values in its middle, each (n, P) [Nm].
        """
        found = [self._sizes(*clock) for clock in np.asarray(clocks)]
        if self._spread.savings is not None:
            self._save_what_decides(found, [one / limits[:, None] for one in feedback], limits[:, None])
        over = [sizes.over_pieces + more for sizes, more in zip(found, feedback, strict=True)]
        middle = [sizes.middle + more for sizes, more in zip(found, feedback, strict=True)]
        return np.maximum.reduce(over), np.maximum.reduce(middle)

    def _save_what_decides(self, found: list[_Sizes], feedback: list[Array], limits: Array) -> None:
        """Subtract the known torque at rest where that can change the largest share of a limit."""
        shares = [sizes.middle / limits + more for sizes, more in zip(found, feedback, strict=True)]
        highest = np.array([share.max(axis=1) for share in shares])  # (K, n)
        reached = -np.inf
        for which in np.argsort(-highest, axis=None):
            clock, joint = np.unravel_index(which, highest.shape)
            if highest[clock, joint] <= reached:
                break
            sizes, chosen = found[clock], np.zeros(found[clock].nominal[:, joint].shape, dtype=bool)
            chosen[_MIDDLE] = shares[clock][joint] > reached
            self._save(sizes, int(joint), chosen)
            share = sizes.middle[joint] / limits[joint] + feedback[clock][joint]
            reached = max(reached, float(share[chosen[_MIDDLE]].max()))
        for sizes, more in zip(found, feedback, strict=True):
            decides = sizes.over_pieces / limits + more > reached
            for joint in np.flatnonzero(decides.any(axis=1)):
                self._save(sizes, int(joint), np.stack([decides[joint], decides[joint], np.zeros_like(decides[joint])]))

    def _sizes(self, rate: float, square: float, slowdown: float) -> _Sizes:
        """Bound the torque for one clock without the known torque at rest."""
        factors = np.array([1.0, rate, square, slowdown])
        nominal = np.einsum("i,icnt->cnt", factors, self._nominal)
        gravity, inertial, braking = self._columns
        columns = gravity + square * inertial + slowdown * braking
        spread = self._by_joint(np.einsum("pk,cpkt->cpt", self._spread.radius, np.abs(columns)), axis=1)
        spread += self._viscous * np.abs(rate * self._speed)
        spread += self._armature * np.abs(square * self._rate + slowdown * self._speed)
        over, middle = (
            self._spread.coulomb[:, None] * counted_friction(speed, rate, self._friction_speed)
            for speed in self._speeds
        )
        remainder = np.tensordot(np.abs(factors), self._remainder, axes=1) + over
        return _Sizes(nominal, np.abs(nominal), spread, columns, remainder, self._exact_rest + middle)

    def _save(self, sizes: _Sizes, joint: int, chosen: NDArray[np.bool_]) -> None:
        """Subtract the known torque at rest, of a joint at chosen points, (3, P).

        The largest torque over a convex set of parameters is convex in the row, so for a row that changes along a line
        it is largest at its ends, with a torque at rest, too.
        """
        savings = self._spread.savings
        if savings is None or not chosen.any():
            return
        start = self._starts[joint]
        stop = self._starts[joint + 1] if joint + 1 < len(self._starts) else sizes.columns.shape[1]
        rows = np.moveaxis(sizes.columns[:, start:stop], 3, 1)[chosen].reshape(-1, INERTIAL * (stop - start))
        above, below = savings.evaluate_both(joint, rows)
        nominal = sizes.nominal[:, joint][chosen]
        sizes.size[:, joint][chosen] = np.maximum(nominal - above, -nominal - below)

    def _by_joint(self, pairs: Array, axis: int) -> Array:
        return np.add.reduceat(pairs, self._starts, axis=axis)


def _at_points(coefficients: Array) -> Array:
    """Values at u = -1 and 1 of the parabola (k, 3, ..., P) with its mean curvature, and at its middle.

    ``c2 u^2`` lies within ``c2 / 2 +- |c2| / 2``; the second part is in the remainder.
    """
    middle, slope, curve = np.moveaxis(coefficients, 1, 0)
    shifted = middle + 0.5 * curve
    return np.stack([shifted - slope, shifted + slope, middle], axis=1)
