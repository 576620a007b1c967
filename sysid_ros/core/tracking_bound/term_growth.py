"""Proven bounds of the slowly varying terms between their nodes and anywhere in the tube (step 1c of the proof).

*Along a line between two nodes, moved by the errors of the moment,* a function is that of the straight line between
both ends, plus at most an eighth of its second derivative. *Near a node* it is that of the node, plus the sum of the
norms of its derivatives by each joint times the errors, plus what is beyond first order.

*What is beyond first order.* With ``B v`` the velocities of all bodies and E their inertias, ``M = B^T E B``. A
derivative of B by joints, the innermost of them k, is the velocity of the link before k, crossed with the axis of k and
turned by what is between k and the body, however often it is differentiated further. In the energy of the bodies
beyond, of which distances are at most the lengths of the chain, its norm is at most ``kappa_k`` at the node, and at
most that plus ``sum_(i < k) kappa_i |e_i|`` near it. So all derivatives of B are bounded by one number for each joint,
and those of its products follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.spatial import cross
from sysid_ros.core.model.inertia import unit_inertias
from sysid_ros.core.model.mechanics import joint_axis
from sysid_ros.core.model.robot import INERTIAL, RobotModel
from sysid_ros.core.tracking_bound.between import BodySizes, chain_lengths
from sysid_ros.core.tracking_bound.inertia_columns import body_jacobians, congruence
from sysid_ros.core.tracking_bound.model_terms import (
    InertiaTerms,
    ModelTerms,
    MotionSlopes,
    TermStates,
    compute_model_terms,
    compute_motion_slopes,
    position_gradient,
)
from sysid_ros.core.tracking_bound.motion import larger_neighbour
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable
from sysid_ros.core.tracking_bound.tube import TubeMap
from sysid_ros.core.tracking_bound.uncertainty import inertia_ratios

Array = NDArray[np.float64]
Index = NDArray[np.intp]

STEP = 1e-3
"""Step of the second differences of the torque in position [rad]."""
ROUNDING = 1.0001
"""Allowance for their truncation and rounding."""
_LEADING = 24
"""Number of parameters whose spread is bounded most tightly."""
_LARGEST_CHANGE = 0.5
"""Relative change of the inertia from which there are no bounds."""
NAMES = ("inertia", "coriolis", "ratio", "drag")
"""Terms of the inertia, each with a slope and a rate."""


# Derivatives at the nodes


def motion_cross(left: Array, right: Array) -> Array:
    """Compute the motion cross products of all columns of two matrices (..., 6, n), (..., 6, column, column)."""
    a, b = (np.swapaxes(x, -1, -2) for x in (left, right))
    a, b = a[..., :, None, :], b[..., None, :, :]
    linear = cross(a[..., 3:], b[..., :3]) + cross(a[..., :3], b[..., 3:])
    return np.moveaxis(np.concatenate([linear, cross(a[..., 3:], b[..., 3:])], axis=-1), -1, -3)


def inertia_bends(robot: RobotModel, bodies: Array, q: Array) -> Array:
    """Differentiate inertias twice by position, (S, c, k, j, n, n), for c sets of parameters (c, 10 n) at (S, n)."""
    n, units = robot.n, unit_inertias()
    result = np.zeros((len(q), len(bodies), n, n, n, n))
    is_before = np.arange(n)[:, None] < np.arange(n)
    for body, own in enumerate(body_jacobians(robot, q)):
        inertias = np.tensordot(bodies[:, robot.inertial_slice(body + 1)], units, (1, 0))
        used = np.flatnonzero(inertias.any(axis=(1, 2)))
        # dJ_i/dq_j = J_i x J_j for i before j, (S, j, 6, i).
        first = np.moveaxis(motion_cross(own, own) * is_before, -1, 1)
        second = motion_cross(first, own[:, None]) + motion_cross(own[:, None], first)
        second = np.moveaxis(second * is_before, -1, 2)  # (S, k, j, 6, i)
        turned = np.einsum("cxy,syb->scxb", inertias[used], own)
        half = np.einsum("skjxa,scxb->sckjab", second, turned, optimize=True)
        turned = np.einsum("cxy,skyb->sckxb", inertias[used], first)
        half += np.einsum("sjxa,sckxb->sckjab", first, turned, optimize=True)
        result[:, used] += half + half.swapaxes(-1, -2)
    return result


def torque_derivatives(tube_map: TubeMap, states: TermStates) -> tuple[Array, Array, Array]:
    """Differentiate the inertial columns of the torque by positions: (S, i, l), (S, k, i, l) and (S, j, k, i, l)."""
    count, n = states.q.shape
    (rows, columns), units = np.triu_indices(n, 1), np.eye(n)
    pairs = units[rows] + units[columns]
    shifts = STEP * np.concatenate([np.zeros((1, n)), units, -units, pairs, -pairs])
    shifted = (states.q[:, None] + shifts).reshape(-1, n)
    v, a = (np.repeat(x, len(shifts), axis=0) for x in (states.v, states.a))
    values = tube_map.regressor.evaluate(shifted, v, a).reshape(count, len(shifts), n, -1)[..., : INERTIAL * n]
    at, ahead, behind, *both = np.split(values, np.cumsum([1, n, n, len(rows)]), axis=1)
    single = ahead + behind - 2.0 * at
    bends = np.zeros((count, n, n, n, values.shape[-1]))
    bends[:, np.arange(n), np.arange(n)] = single / STEP**2
    mixed = 0.5 * (both[0] + both[1] - 2.0 * at - single[:, rows] - single[:, columns]) / STEP**2
    bends[:, rows, columns] = bends[:, columns, rows] = mixed
    return at[:, 0], (ahead - behind) / (2.0 * STEP), bends


# What is beyond first order


Parts = tuple[Array, Array, Array]
"""A value, its change of first order and what is beyond that; or, along a line, value, first and second derivative."""


def weighted(weights: Array, values: Array) -> Array:
    """Sum values times weights, (S, k) each, (S,)."""
    total: Array = np.einsum("sk,sk->s", weights, values)
    return total


def both_sides(values: Array) -> Array:
    """Return the larger values of both intervals about each node."""
    return np.concatenate([values[:1], larger_neighbour(values), values[-1:]])


@dataclass(frozen=True)
class Change:
    """Norms of M and of its change along a direction: values, and two more.

    Near a node what they change by in all and what of that is beyond first order; along a line the first and the
    second derivative.

    Attributes:
        slope: Of P, the slope of M: for any direction of norm one.
        rate: For the velocity.
        inertia: Of M.
    """

    slope: Parts
    rate: Parts
    inertia: Parts


class Energies:
    """Bounds of all derivatives of B, for bodies of some inertias, at S nodes.

    Args:
        robot: The arm.
        sizes: Largest magnitudes of the bodies.
        states: The nodes.
        factor: ``M^-1/2`` there, (S, n, n).
        is_nominal: Whether M itself is meant: then ``|B|`` is 1.
    """

    def __init__(self, robot: RobotModel, sizes: BodySizes, states: TermStates, factor: Array, is_nominal: bool):
        q, n, model = states.q, robot.n, robot.pin_model
        steps = [float(np.linalg.norm(model.jointPlacements[body + 1].translation)) for body in range(n)]
        self._speed = both_sides(larger_neighbour(np.abs(states.v)))
        jacobians, tiny = body_jacobians(robot, q), 1e-12
        mass, first, second = (np.maximum(x, tiny) for x in (sizes.mass, sizes.first, sizes.second))
        if not is_nominal:  # x^T I y of a body that need not be one is at most |x| |y| in these
            scale = np.sqrt(second / mass)
            mass, first, second = mass + first / scale, np.zeros(n), second + first * scale
        self.kappa = np.zeros((len(q), n))
        for k in range(1, n):
            placement, axis = model.jointPlacements[k + 1], joint_axis(model, k + 1)
            linear, angular = np.split(np.swapaxes(jacobians[k - 1], 1, 2), 2, axis=-1)  # (S, j, 3)
            linear = linear + cross(angular, np.broadcast_to(placement.translation, angular.shape))
            linear, angular = (cross(axis, x @ placement.rotation) for x in (linear, angular))
            far = np.concatenate([[0.0], np.cumsum(steps[k + 1 :])])  # of the bodies' origins from that of link k
            total = mass[k:].sum()
            moment = (mass[k:] * far + first[k:]).sum()
            spin = (mass[k:] * far**2 + 2.0 * first[k:] * far + second[k:]).sum()
            scale = np.sqrt(spin / total)
            squares = (total + moment / scale) * linear @ np.swapaxes(linear, 1, 2)
            squares += (spin + moment * scale) * angular @ np.swapaxes(angular, 1, 2)
            self.kappa[:, k] = np.sqrt(np.linalg.eigvalsh(congruence(factor, squares))[:, -1])
        if is_nominal:
            self.size = np.ones(len(q))
        else:
            weights = np.repeat(np.stack([mass, second], axis=1), 3, axis=1)
            whole = np.einsum("bsxi,bx,bsxj->sij", jacobians, weights, jacobians)
            self.size = np.sqrt(np.linalg.eigvalsh(congruence(factor, whole))[:, -1])
        self._metric = np.abs(np.swapaxes(factor, 1, 2) @ factor)
        joint = np.arange(n)
        self._inner = np.minimum(joint[:, None], joint)
        self._innermost = np.minimum(self._inner[..., None], joint)

    def _near(self, away: Array) -> Array:
        """Bound the norms within (S, n) [rad] of the nodes."""
        kappa: Array = self.kappa.copy()
        for k in range(kappa.shape[1]):
            kappa[:, k] += np.einsum("si,si->s", kappa[:, :k], away[:, :k])
        return kappa

    def _slope(self, kappa: Array) -> Array:
        """Bound norms of ``sum_k x_k X_k`` for ``|x| <= 1``, (S, ...), of those of X_k, (S, ..., n)."""
        squares: Array = np.einsum("s...k,skl,s...l->s...", kappa, self._metric, kappa, optimize=True)
        return np.sqrt(squares)

    def _rate(self, kappa: Array) -> Array:
        """Bound them for x the velocity, (S, ...)."""
        rate: Array = np.einsum("s...k,sk->s...", kappa, self._speed)
        return rate

    def _turned(self, kappa: Array, turns: Array) -> tuple[Array, Array]:
        """Bound the first and the second derivative of B along turns, (S,) each."""
        return weighted(turns, kappa), np.einsum("sk,sl,skl->s", turns, turns, kappa[:, self._inner])

    def change(self, away: Array) -> Change:
        """Bound changes within (S, n) [rad] of the nodes."""
        near, size = self._near(away), self.size
        one, two = self._turned(self.kappa, away)[0], 0.5 * self._turned(near, away)[1]
        changed = (size + one + two) ** 2 - size**2

        def part(of: Callable[[Array], Array]) -> Parts:
            value, value_one = of(self.kappa), weighted(away, of(self.kappa[:, self._inner]))
            value_two = 0.5 * np.einsum("sk,sl,skl->s", away, away, of(near[:, self._innermost]))
            steep = 2.0 * ((value + value_one + value_two) * (size + one + two) - value * size)
            return 2.0 * value * size, steep, steep - 2.0 * (value_one * size + value * one)

        return Change(part(self._slope), part(self._rate), (size**2, changed, changed - 2.0 * size * one))

    def line(self, turns: Array, away: Array) -> Change:
        """Bound derivatives along turns (S, n) [rad], within (S, n) of the nodes."""
        kappa = self._near(away)
        one, two = self._turned(kappa, turns)
        size = self.size + weighted(away, kappa)

        def part(of: Callable[[Array], Array]) -> Parts:
            value, value_one = of(kappa), weighted(turns, of(kappa[:, self._inner]))
            value_two = np.einsum("sk,sl,skl->s", turns, turns, of(kappa[:, self._innermost]))
            first = value_one * size + value * one
            return 2.0 * value * size, 2.0 * first, 2.0 * (value_two * size + 2.0 * value_one * one + value * two)

        inertia = size**2, 2.0 * one * size, 2.0 * (two * size + one**2)
        return Change(part(self._slope), part(self._rate), inertia)


def are_bodies(robot: RobotModel, theta: Array) -> bool:
    """Tell whether no body has a negative kinetic energy."""
    bodies = theta[: INERTIAL * robot.n].reshape(robot.n, INERTIAL)
    return bool(np.linalg.eigvalsh(np.tensordot(bodies, unit_inertias(), (1, 0))).min() >= -1e-12)


class TorqueBends:
    """Bounds of the second derivatives of a torque's derivatives by position, entry by entry, at any positions.

    An entry of the inertia is a sum over the bodies of products of two columns, in which joint k turns 0, 1 or 2.
    """

    def __init__(self, robot: RobotModel, sizes: BodySizes):
        n, lengths = robot.n, chain_lengths(robot)
        joint, levers = np.arange(n), lengths.T  # (b, i)
        moves = joint <= joint[:, None]
        parts = sizes.mass[:, None, None] * levers[:, :, None] * levers[:, None]
        parts = (
            parts + sizes.first[:, None, None] * (levers[:, :, None] + levers[:, None]) + sizes.second[:, None, None]
        )
        parts = parts * (moves[:, :, None] & moves[:, None])  # (b, i, j)
        turned = ((joint[:, None] < joint) & (joint <= joint[:, None, None])).transpose(0, 2, 1).astype(float)
        places = turned[..., None] + turned[:, :, None]  # (b, k, i, j)
        squares = parts * places.max(axis=1) ** 2
        self.size = squares.sum(axis=0)
        self._slope = np.einsum("bkij,bij->kij", places, squares)
        self._bent = np.einsum("blij,bkij,bij->lkij", places, places, squares)
        # Of the potential energy: only what is beyond the outermost of two joints moves with both.
        beyond = np.einsum("b,ob->o", sizes.mass, lengths) + np.cumsum(sizes.first[::-1])[::-1]
        self._weight = float(np.linalg.norm(robot.gravity)) * beyond

    def slope(self, v: Array, a: Array, weight: Array) -> Array:
        """Bound ``d2/ds2 dtau_i/dq_k``, (S, k, i), for a step of one radian in all; gravity times ``weight``, (S,)."""
        n = len(self._weight)
        # The torque of velocities is sum_jl (dM_ij/dq_l - dM_jl/dq_i / 2) v_j v_l.
        quadratic = self._bent.transpose(1, 2, 3, 0) + 0.5 * self._bent.transpose(1, 0, 2, 3)  # (k, i, j, l)
        outer = np.maximum(np.arange(n)[:, None], np.arange(n))
        moved = np.einsum("kij,sj->ski", self._slope, a) + np.einsum("kijl,sj,sl->ski", quadratic, v, v, optimize=True)
        bound: Array = moved + weight[:, None, None] * self._weight[outer]
        return bound

    def torque(self, v: Array, a: Array, weight: Array) -> Array:
        """Bound the second derivative of the torque likewise, (S, i)."""
        quadratic = self._slope.transpose(1, 2, 0) + 0.5 * self._slope  # (i, j, l)
        moved = a @ self.size + np.einsum("ijl,sj,sl->si", quadratic, v, v, optimize=True)
        bound: Array = moved + weight[:, None] * self._weight
        return bound


def flat(metric: Array, entries: Array) -> Array:
    """Bound the norms of matrices with entries up to these, (S, ..., n, n), by the magnitudes of ``M^-1``."""
    metric = metric.reshape(len(metric), *(1,) * (entries.ndim - 3), *metric.shape[1:])
    squares: Array = np.sum(entries * (metric @ entries @ metric), axis=(-2, -1))
    return np.sqrt(squares)


def flat_length(metric: Array, entries: Array) -> Array:
    """Bound the norms of torques with entries up to these, (S, n) or (S, K, n)."""
    squares: Array = np.einsum("s...i,sij,s...j->s...", entries, metric, entries, optimize=True)
    return np.sqrt(squares)


def carried(p: Parts, w: Parts, x: Parts) -> Array:
    """Bound what ``P M^-1 X`` has beyond first order: the product of all bounds less what there is up to it."""
    whole = sum(p) * sum(x) / (1.0 - w[1] - w[2])
    return whole - p[0] * x[0] - p[1] * x[0] - p[0] * w[1] * x[0] - p[0] * x[1]


def carried_along(p: Parts, w: Parts, x: Parts, inverse: Array) -> tuple[Array, Array]:
    """Bound the first and the second derivative of ``P M^-1 X`` along a line, with those of all three."""
    one, two = inverse * w[1], inverse * w[2]
    first = p[1] * x[0] + p[0] * (one * x[0] + x[1])
    second = p[2] * x[0] + 2.0 * p[1] * (one * x[0] + x[1])
    second = second + p[0] * ((two + 2.0 * one**2) * x[0] + 2.0 * one * x[1] + x[2])
    return inverse * first, inverse * second


def by_name(kind: str, nominal: Array, off: Array, product: Array) -> dict[str, Array]:
    """Combine bounds of P, of the slope of D and of their product, by term; a Coriolis matrix is 1.5 slopes."""
    several = 1.0 if kind == "slope" else 2.0
    drag = 1.5 * (nominal + several * off) + product
    terms = {"inertia": nominal, "coriolis": 1.5 * nominal, "ratio": off + product, "drag": drag}
    return {f"{name}_{kind}": values for name, values in terms.items()}


# All together


@dataclass(frozen=True)
class _Surroundings:
    """What the inertia is near the nodes and along the lines between them, in the errors of the moment.

    Attributes:
        away: Largest distances from the nodes, (S, n) [rad].
        turns: Turns between the nodes, (S - 1, n) [rad].
        slope: Of P at the nodes: value, first order, beyond.
        inertia: Of M; without a value.
        line_slope: Of P along the lines: value, first and second derivative.
        line_inertia: Of M; without a value.
        line_off: Of D.
        line_off_slope: Largest slope of D there.
        inverse: Norm of ``M^-1`` there.
    """

    away: Array
    turns: Array
    slope: Parts
    inertia: Parts
    line_slope: Parts
    line_inertia: Parts
    line_off: Parts
    line_off_slope: Array
    inverse: Array


class _Metric:
    """Norms at the nodes and between them.

    Args:
        inertia: The inertia at the nodes.
        off: By how much it differs from the straight line between two of them, relative to either, (S - 1,).
    """

    def __init__(self, inertia: InertiaTerms, off: Array):
        self.factor = inertia.factor
        self.size = np.abs(np.swapaxes(self.factor, 1, 2) @ self.factor)
        self._inertia = np.abs(inertia.inertia)
        steps = np.diff(inertia.inertia, axis=0)
        both = (congruence(x, steps) for x in (self.factor[:-1], self.factor[1:]))
        change = np.max([np.abs(np.linalg.eigvalsh(x)).max(axis=1) for x in both], axis=0)
        if not np.all(change + off < _LARGEST_CHANGE):
            raise BoundNotAvailable("the motion may change the inertia by half between two samples: it is too fast")
        nearby = 1.0 / (1.0 - 0.5 * change - off)
        # From norms of both ends of a line, on it, to those of the moment: see docs/theory/tracking_bound.md.
        self.line = nearby**1.5 * (1.0 + change**2 / 8.0)
        # From products of up to four norms at either end to those of the moment.
        self.far = (nearby / (1.0 - change)) ** 4

    def norm(self, vectors: Array) -> Array:
        """Bound the norms of vectors between the nodes with entries of these sizes, (S - 1, n)."""
        sizes = np.abs(vectors)
        squares = [np.einsum("si,sij,sj->s", sizes, x, sizes) for x in (self._inertia[:-1], self._inertia[1:])]
        norm: Array = np.sqrt(np.max(squares, axis=0))
        return norm

    def flat(self, entries: Array) -> Array:
        """Bound the norms of matrices between the nodes with entries up to these, (S - 1, n, n)."""
        return np.maximum(*(flat(x, entries) for x in (self.size[:-1], self.size[1:])))

    def flat_length(self, entries: Array) -> Array:
        """Bound the norms of torques between the nodes with entries up to these, (S - 1, n)."""
        return np.maximum(*(flat_length(x, entries) for x in (self.size[:-1], self.size[1:])))


class _Torque:
    """The torque of a motion about the nodes, and what is not known of it.

    Args:
        tube_map: The tube map.
        states: The nodes; velocities and accelerations are those of the torque.
        slopes: The terms there.
        metric: Norms.
        length: :meth:`Enclosure.length`.
        nominal: Second derivatives of the nominal inertia, its slope, and its change by joint.
        combinations: Nominal parameters, center, and parameters of the last body, (c, 10 n).
        bends: Second derivatives of the torque, nominal and of what is not known of it.
        along: Velocity with which the positions change, (S, n) [rad/s].
        sags: By how much velocity and acceleration differ from straight lines, (S - 1, n) each.
    """

    def __init__(
        self,
        tube_map: TubeMap,
        states: TermStates,
        slopes: ModelTerms | MotionSlopes,
        metric: _Metric,
        length: Callable[[Array], Array],
        nominal: tuple[Array, Array, Array],
        combinations: Array,
        bends: list[TorqueBends],
        along: Array,
        sags: tuple[Array, Array],
    ):
        uncertainty, factor = tube_map.uncertainty, metric.factor
        self._metric, self._slopes, self._states, self._sags, self._along = metric, slopes, states, sags, along
        self._bends = bends
        values, gradient, curves = torque_derivatives(tube_map, states)
        radius = uncertainty.spread[: values.shape[-1]]
        torque, by_joint, curved = (np.moveaxis(x @ combinations.T, -1, 1) for x in (values, gradient, curves))
        torque = np.einsum("sab,scb->sca", factor, torque)[:, 1:]
        by_joint = np.einsum("sab,sckb->scka", factor, by_joint)[:, 1:]
        curved = congruence(factor, curved.swapaxes(-1, -2))  # (S, c, k, torque, direction)
        curvature, slope, moved = nominal
        inner = by_joint - np.einsum("skab,scb->scka", moved, torque, optimize=True)
        model = curved[:, 1:] - np.einsum("skxab,scb->sckax", curvature, torque, optimize=True)
        model = model - np.einsum("sxab,sckb->sckax", slope, inner, optimize=True)
        xi = np.linalg.solve(np.swapaxes(factor, 1, 2), along[..., None])[..., 0]
        self._speed = np.linalg.norm(xi, axis=1)
        self._model, self._torque = ROUNDING * length(model), ROUNDING * length(curved[:, :1])
        self._rate = ROUNDING * length(np.einsum("sckax,sx->scka", curved[:, :1], xi))
        self._curved_spread = ROUNDING * flat(metric.size, np.abs(curves) @ radius)
        self._error_spread = flat_length(metric.size, np.abs(values) @ radius)
        self._errors_spread = ROUNDING * flat_length(metric.size, np.abs(gradient) @ radius)
        self._error = length(torque[:, :, None])[:, 0] + self._error_spread
        self._errors = ROUNDING * length(by_joint) + self._errors_spread
        self._bumps = self._bound_bumps(tube_map, length, combinations, radius, (gradient, curves))

    def _bound_bumps(
        self,
        tube_map: TubeMap,
        length: Callable[[Array], Array],
        combinations: Array,
        radius: Array,
        derivatives: tuple[Array, Array],
    ) -> tuple[Array, Array]:
        """Bound cubics with the slopes of the gradients at both ends, less straight lines, (S - 1,) each.

        That is ``s (1 - s) ((1 - s) g_0 + s g_1)``, with the differences g of the slopes at the ends and that of the
        line; of the nominal torque, and of what is not known of it.
        """
        states, factor, size = self._states, self._metric.factor, self._metric.size
        gradient, curves = derivatives
        dq, dv, da = (np.diff(x, axis=0) for x in (states.q, states.v, states.a))
        change, nominal, deviation = np.diff(gradient, axis=0), np.zeros(len(dq)), np.zeros(len(dq))
        for end in (slice(None, -1), slice(1, None)):
            # Quadratic in velocities, so that the difference is exact.
            ahead, behind = (
                position_gradient(tube_map.regressor, states.q[end], states.v[end] + x * dv, states.a[end] + x * da)
                for x in (1.0, -1.0)
            )
            off = np.einsum("sjkil,sj->skil", curves[end], dq) + 0.5 * (ahead - behind).swapaxes(1, 2) - change
            each = congruence(factor[end], np.moveaxis(off @ combinations.T, -1, 1).swapaxes(-1, -2))[:, :, None]
            nominal += length(each[:, :1])[:, 0]
            deviation += length(each[:, 1:])[:, 0] + flat(size[end], np.abs(off) @ radius)
        return ROUNDING * 4.0 / 27.0 * nominal, ROUNDING * 4.0 / 27.0 * deviation

    def terms(self, near: _Surroundings) -> dict[str, Array]:
        """Bound the terms of the torque, by name, (S - 1,) each."""
        away, (p, w), metric, slopes = near.away, (near.slope, near.inertia), self._metric, self._slopes
        half = 0.5 * away.sum(axis=1) ** 2
        v, a, one = np.abs(self._states.v), np.abs(self._states.a), np.ones(len(away))
        bends = [flat(metric.size, x.slope(v, a, one)) for x in self._bends]
        error_bent = flat_length(metric.size, self._bends[1].torque(v, a, one))
        error = self._error, weighted(away, self._errors), half * error_bent
        spread = weighted(away, self._curved_spread) + p[1] * self._error_spread
        spread = spread + p[0] * (w[1] * self._error_spread + weighted(away, self._errors_spread))
        model = slopes.model_slope + weighted(away, self._model) + spread + half * bends[1] + carried(p, w, error)
        torque = slopes.torque_slope + weighted(away, self._torque) + half * bends[0]
        rate = slopes.torque_rate + weighted(away, self._rate) + half * bends[0] * self._speed

        changes, pushes = (np.abs(np.diff(x, axis=0)) for x in (self._states.v, self._states.a))
        moves = bool(v.any() or a.any())
        sagging, sagged = (x * moves for x in self._sags)
        turn, fastest, hardest = near.turns.sum(axis=1), larger_neighbour(v), larger_neighbour(a)
        reach = turn + larger_neighbour(away.sum(axis=1))
        # Derivatives along a line of products of v, up to the second one, are at most those of these.
        along = turn[:, None] * fastest + 2.0 * changes, turn[:, None] ** 2 * hardest + 2.0 * turn[:, None] * pushes
        none = np.zeros(len(turn))
        second, sags, first = [], [], []
        for x in self._bends:
            second.append(metric.flat(x.slope(*along, turn**2)))
            here = x.slope(fastest, np.zeros_like(fastest), none)
            sags.append(metric.flat(x.slope(fastest + sagging, sagged, none) - here))
            first.append(metric.flat(x.slope(fastest + changes, pushes, none) - here))
        # The fourth derivative along a line, of which cubics miss at most 1/384, is at most 16 turn^2 times what bounds
        # the second one, and errors change the second one by at most twice its bound per radian.
        bumps = [
            bump + (turn**2 / 3.0 + 2.0 * larger_neighbour(away.sum(axis=1))) * more / 8.0
            for bump, more in zip(self._bumps, second, strict=True)
        ]
        error_two = metric.flat_length(self._bends[1].torque(*along, turn**2))
        bent = metric.flat_length(self._bends[1].torque(fastest, hardest, none + 1.0))
        speed, changed, swung = (metric.norm(x) for x in (fastest, changes, sagging))
        coriolis = 1.5 * near.line_off_slope
        error_one = weighted(near.turns, larger_neighbour(self._errors)) + turn * reach * bent
        error_one = error_one + 2.0 * coriolis * speed * changed + near.line_off[0] * metric.norm(pushes)
        parts = larger_neighbour(error[0] + error[1] + error[2]) + error_two / 8.0, error_one, error_two
        curved = bumps[1] + carried_along(near.line_slope, near.line_inertia, parts, near.inverse)[1] / 8.0
        beside = near.line_off[0] * metric.norm(sagged) + (2.0 * speed + swung) * swung * coriolis
        beside = sags[1] + near.inverse * near.line_slope[0] * beside
        turned = (
            weighted(near.turns, larger_neighbour(self._torque)) + turn * reach * larger_neighbour(bends[0]) + first[0]
        )
        along_speed, along_changed = larger_neighbour(self._speed), metric.norm(np.diff(self._along, axis=0))
        slope = metric.line * larger_neighbour(torque) + metric.far * (bumps[0] + sags[0])
        across = (bumps[0] + sags[0]) * along_speed + turned * along_changed / 4.0
        across = across + slope * metric.norm(self._sags[0])
        return {
            "model_slope": metric.line * larger_neighbour(model) + metric.far * (curved + beside),
            "torque_slope": slope,
            "torque_rate": metric.line * larger_neighbour(rate) + metric.far * across,
        }


@dataclass(frozen=True)
class EnclosedTerms:
    """Bounds of the terms between S nodes, by name, (S - 1,) each but for the last ones.

    Attributes:
        moving: Those of the motion; ``turned`` is the norm by which the gradient of its torque differs from that at the
            nodes, and ``torque_gradient`` has the largest magnitudes there, (S - 1, n, n) [Nm/rad].
        still: Slopes of the torque at rest, likewise with ``turned`` and ``gradient``.
        ratios: Range of the eigenvalues of E.
    """

    moving: dict[str, Array]
    still: dict[str, Array]
    ratios: tuple[float, float]


class Enclosure:
    """The terms at nodes of a motion, and what they may be between these and in position errors of the moment.

    Args:
        tube_map: The tube map of the motion.
        nodes: Numbers of its samples, (S,), in turn.

    Raises:
        BoundNotAvailable: The motion is too fast for its samples.
    """

    def __init__(self, tube_map: TubeMap, nodes: Index):
        robot, samples, uncertainty = tube_map.robot, tube_map.samples, tube_map.uncertainty
        self._uncertainty, n = uncertainty, robot.n
        states = self._states = TermStates(*(x[nodes] for x in (samples.q, samples.v, samples.a)))
        inertia = InertiaTerms.of(robot, uncertainty, states.q)
        of = robot, tube_map.regressor, uncertainty, states
        self.terms = compute_model_terms(*of, inertia, leading=_LEADING)
        part, width = samples.last(int(nodes[-1]), int(nodes[-1] - nodes[0])), samples.step * np.diff(nodes)[:, None]
        curvature = part.curvature_over(nodes - nodes[0])
        sag = width**2 / 8.0
        self._sags = sag * curvature.a, sag * curvature.jerk, sag * curvature.snap
        sizes = [BodySizes.of(x, n) for x in (uncertainty.nominal, uncertainty.largest_deviation, uncertainty.spread)]
        self._energies = [
            Energies(robot, one, states, inertia.factor, k == 0 and are_bodies(robot, uncertainty.nominal))
            for k, one in enumerate(sizes)
        ]
        longest, sagging = (both_sides(np.abs(x)) for x in (np.diff(states.q, axis=0), self._sags[0]))
        bent = self._energies[0].line(longest, longest).inertia[2] / 8.0
        metric = self._metric = _Metric(inertia, larger_neighbour(bent + self._energies[0].change(sagging).inertia[1]))
        last = np.zeros((INERTIAL, uncertainty.nominal.size))
        last[:, uncertainty.last] = np.eye(INERTIAL)
        combinations = np.concatenate([[uncertainty.nominal, uncertainty.center], last])
        nominal = self._differentiate(robot, inertia, combinations)
        rest = TermStates(states.q, np.zeros_like(states.v), np.zeros_like(states.a))
        slopes = compute_motion_slopes(*of[1:3], rest, inertia, states.v, _LEADING)
        self._still = slopes
        bends = [TorqueBends(robot, one) for one in sizes[:2]]
        tools = metric, self.length, nominal, combinations[:, : INERTIAL * n], bends, states.v, self._sags[1:]
        self._torque, self._rest = (
            _Torque(tube_map, states, self.terms, *tools),
            _Torque(tube_map, rest, slopes, *tools),
        )

    @property
    def intervals(self) -> int:
        """Number of intervals between the nodes."""
        return len(self._states.q) - 1

    def length(self, values: Array) -> Array:
        """Bound the norm of matrices or slopes by the root of the sum of squares, over all vertices, (S, k).

        Args:
            values: (S, c, k, ...): of the nominal parameters, c = 1, or of the center and each of the last body.
        """
        payloads = self._uncertainty.payloads.vertices
        entries = values.reshape(*values.shape[:3], -1).swapaxes(1, 2)
        if values.shape[1] == 1:
            return np.asarray(np.linalg.norm(entries[:, :, 0], axis=-1))
        weights = np.column_stack([np.ones(len(payloads)), payloads - payloads.mean(axis=0)])
        return _largest(entries @ entries.swapaxes(-1, -2), weights[None])

    def _differentiate(
        self, robot: RobotModel, inertia: InertiaTerms, combinations: Array
    ) -> tuple[Array, Array, Array]:
        """Bound the norms of the derivatives of the terms of the inertia by each joint, (S, k).

        Returns:
            Second derivatives of the nominal inertia, (S, k, x, n, n), its slope, (S, x, n, n), and its change by
            joint, (S, k, n, n), in coordinates in which M is the unit matrix.
        """
        factor, states = self._metric.factor, self._states
        columns, christoffel = (
            np.moveaxis(np.tensordot(x, combinations[:, : x.shape[1]], (1, 1)), -1, 1)
            for x in (inertia.columns, inertia.christoffel)
        )
        changes = congruence(factor, christoffel + christoffel.swapaxes(-1, -2))
        each = congruence(factor, inertia.christoffel + inertia.christoffel.swapaxes(-1, -2))  # by parameter
        each = np.linalg.norm(each, axis=(-2, -1))  # (S, l, k)
        uncertainty = self._uncertainty
        self._spread, self._arm_spread = (
            np.einsum("slk,l->sk", each, x[: each.shape[1]]) for x in (uncertainty.spread, uncertainty.radius)
        )
        deviation = congruence(factor, columns)[:, 1:]
        bends = congruence(factor, inertia_bends(robot, combinations[:, : INERTIAL * robot.n], states.q))
        bends = np.einsum("sxj,sckjab->sckxab", factor, bends, optimize=True)
        slope = np.einsum("sxj,sjab->sxab", factor, changes[:, 0])
        moved, off = changes[:, 0], changes[:, 1:]
        # Derivatives of P M^-1 D.
        product = np.einsum("skxab,scbd->sckxad", bends[:, 0], deviation, optimize=True)
        inner = off - np.einsum("skab,scbd->sckad", moved, deviation, optimize=True)
        product = product + np.einsum("sxab,sckbd->sckxad", slope, inner, optimize=True)
        coriolis = 0.5 * (bends + bends.swapaxes(3, 5) - bends.swapaxes(3, 4))  # see :func:`coriolis_columns`
        turned = coriolis[:, 1:].swapaxes(4, 5)
        xi = np.linalg.solve(np.swapaxes(factor, 1, 2), states.v[..., None])[..., 0]

        def rate(values: Array) -> Array:
            return self.length(np.einsum("sckxab,sx->sckab", values, xi, optimize=True))

        slopes = (bends[:, :1], coriolis[:, :1], bends[:, 1:] - product, product - turned)
        self._first = {name + "_slope": self.length(values) for name, values in zip(NAMES, slopes, strict=True)}
        slopes = (*slopes[:3], product + coriolis[:, 1:] - turned)
        self._first |= {name + "_rate": rate(values) for name, values in zip(NAMES, slopes, strict=True)}
        for kind in ("_slope", "_rate"):
            self._first["drag" + kind] += self._first["coriolis" + kind]
        self._moved, self._off = self.length(changes[:, :1]), self.length(off)
        self._bound_ratio_changes(robot, changes)
        return bends[:, 0], slope, moved

    def _bound_ratio_changes(self, robot: RobotModel, changes: Array) -> None:
        """Bound the eigenvalues of E at the nodes, and how ``H - E M`` changes with each joint for the extreme ones."""
        uncertainty, q = self._uncertainty, self._states.q
        payloads, mean = uncertainty.payloads, uncertainty.payloads.vertices.mean(axis=0)
        entries = changes.reshape(*changes.shape[:3], -1).swapaxes(1, 2)
        gram = entries @ entries.swapaxes(-1, -2)

        def largest(value: Array, bodies: Array) -> Array:
            weights = np.ones((len(value), len(bodies), 2 + INERTIAL))
            weights[..., 0], weights[..., 2:] = (1.0 - value)[:, None], bodies - mean
            return _largest(gram, weights)

        lower, upper = inertia_ratios(robot, uncertainty, q)
        none = np.zeros((1, INERTIAL))  # no payload is lighter
        bare, _ = inertia_ratios(robot, replace(uncertainty, payloads=replace(payloads, lower=none)), q)
        below = np.where((bare >= lower)[:, None], largest(lower, none), largest(lower, payloads.lower))
        above = largest(upper, payloads.upper.reshape(-1, INERTIAL))
        self._ratios, self._ratio_changes = (lower, upper), (below, above)
        # Bodies in the order of energies take the place of the payload, so only the arm is not known.
        off, last = uncertainty.arm - uncertainty.nominal, uncertainty.last
        sizes = [uncertainty.radius]
        for bodies in (np.concatenate([payloads.lower, none]), payloads.upper.reshape(-1, INERTIAL)):
            size = np.abs(off) + uncertainty.radius
            size[last] = np.abs(off[last] + bodies).max(axis=0) + uncertainty.radius[last]
            sizes.append(size)
        factor, n = self._metric.factor, robot.n
        self._ratio_energies = [Energies(robot, BodySizes.of(x, n), self._states, factor, False) for x in sizes]
        self._largest_off = np.maximum(np.abs(1.0 - lower), np.abs(upper - 1.0))

    def bound(self, errors: Array) -> EnclosedTerms:
        """Bound the terms between the nodes in position errors of at most (S - 1, n) [rad].

        Raises:
            BoundNotAvailable: The inertia may change by half.
        """
        away, turns, metric = both_sides(errors + self._sags[0]), np.abs(np.diff(self._states.q, axis=0)), self._metric
        own, off, spread = (x.change(away) for x in self._energies)
        # Along the lines, from either end, at most the turns away from it.
        longest = both_sides(turns)
        lines = [x.line(longest, away + longest) for x in self._energies[:2]]
        lines = [Change(*(_at_ends(part) for part in (x.slope, x.rate, x.inertia))) for x in lines]
        w = np.zeros(len(away)), weighted(away, self._moved), own.inertia[2]
        spread_changed = weighted(away, self._spread) + spread.inertia[2]
        d = self._largest_off, weighted(away, self._off) + spread_changed, off.inertia[2]
        change = larger_neighbour(w[1] + w[2]) + lines[0].inertia[1]
        if not np.all(change < _LARGEST_CHANGE):
            raise BoundNotAvailable("the position errors may change the inertia by half")
        inverse = 1.0 / (1.0 - change)
        line_off = larger_neighbour(d[0] + d[1] + d[2]) + lines[1].inertia[2] / 8.0, *lines[1].inertia[1:]
        known = spread.inertia[0] + spread_changed
        changed, sagging = metric.norm(np.diff(self._states.v, axis=0)), metric.norm(self._sags[1])
        found: dict[str, Array] = {}
        first_slopes: dict[str, Array] = {}
        steep: list[tuple[Parts, Parts]] = []
        for kind in ("slope", "rate"):
            name = "inertia_" + kind
            nominal, deviation, wide = (getattr(x, kind) for x in (own, off, spread))
            p = getattr(self.terms, name), weighted(away, self._first[name]), nominal[2]
            product = carried(p, w, d) + p[1] * known + p[0] * (w[1] * known + spread_changed)
            beyond = by_name(kind, nominal[2], deviation[2] + wide[1], product)
            nominal, deviation = (getattr(x, kind) for x in lines)
            p_line = larger_neighbour(p[0] + p[1] + p[2]) + nominal[2] / 8.0, *nominal[1:]
            steep.append((p, p_line))
            products = carried_along(p_line, lines[0].inertia, line_off, inverse)
            first = by_name(kind, nominal[1], deviation[1], products[0])
            second = by_name(kind, nominal[2], deviation[2], products[1])
            for name, more in beyond.items():
                at = getattr(self.terms, name) + weighted(away, self._first[name]) + more
                across = second[name] / 8.0
                if kind == "rate":
                    slope = name.replace("rate", "slope")
                    across = across + first_slopes[slope] * changed / 4.0 + found[slope] * sagging
                found[name] = metric.line * larger_neighbour(at) + metric.far * across
            first_slopes |= first
        p, p_line = steep[0]
        near = _Surroundings(away, turns, p, w, p_line, lines[0].inertia, line_off, lines[1].slope[0], inverse)
        ratios = []
        widest, *several = (x.change(away).inertia for x in self._ratio_energies)
        for value, by_joint, bodies, sign in zip(self._ratios, self._ratio_changes, several, (-1.0, 1.0), strict=True):
            share = np.abs(1.0 - value)
            more = weighted(away, by_joint + self._arm_spread) + widest[2] + bodies[2] + share * own.inertia[2]
            at = larger_neighbour(sign * value + more / (1.0 - w[1] - w[2]))
            bent = inverse * (lines[1].inertia[2] + larger_neighbour(share) * lines[0].inertia[2])
            ratios.append(sign * float((at + metric.far * bent / 8.0).max()))
        still = self._rest.terms(near)
        moving = found | self._torque.terms(near)
        changes = (
            x["torque_slope"] - larger_neighbour(at.torque_slope)
            for x, at in ((moving, self.terms), (still, self._still))
        )
        return EnclosedTerms(
            moving | {"turned": next(changes), "torque_gradient": larger_neighbour(self.terms.torque_gradient)},
            still | {"turned": next(changes), "gradient": larger_neighbour(np.abs(self._still.gradient))},
            (ratios[0], ratios[1]),
        )


def _largest(gram: Array, weights: Array) -> Array:
    """Return the largest root of ``w^T G w``, (S, k), of G (S, k, c, c) and weights (S or 1, p, c)."""
    weights = np.broadcast_to(weights, (len(gram), *weights.shape[1:]))
    squares: Array = np.einsum("skpc,spc->skp", weights[:, None] @ gram, weights).max(axis=-1)
    return np.sqrt(np.maximum(squares, 0.0))


def _at_ends(parts: Parts) -> Parts:
    return larger_neighbour(parts[0]), larger_neighbour(parts[1]), larger_neighbour(parts[2])
