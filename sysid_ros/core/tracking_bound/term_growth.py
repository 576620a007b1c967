"""Proven bounds of the slowly varying terms between their nodes and anywhere in the tube (step 1c of the proof).

*Along a line between two nodes, moved by the errors of the moment,* a function is its straight line between both ends,
plus at most an eighth of its second derivative. *Near a node* it is the node's value, plus the sum of the norms of its
derivatives by each joint times the errors, plus higher orders: the second order is exact, too, and the third
derivatives are bounded anywhere near (:mod:`derivative_bounds`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.model.inertia import unit_inertias
from sysid_ros.core.model.robot import INERTIAL, RobotModel
from sysid_ros.core.tracking_bound.between import BodySizes
from sysid_ros.core.tracking_bound.derivative_bounds import Energies, TorqueDerivatives
from sysid_ros.core.tracking_bound.inertia_columns import congruence
from sysid_ros.core.tracking_bound.model_terms import TermStates
from sysid_ros.core.tracking_bound.motion import larger_neighbour
from sysid_ros.core.tracking_bound.node_norms import (
    KINDS,
    LINE_STEP,
    NAMES,
    ORDER,
    Derivatives,
    LineNorms,
    TorqueNorms,
    compute_node_norms,
    flat,
    flat_length,
    norm_of_sum,
    weighted,
)
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable
from sysid_ros.core.tracking_bound.tube import TubeMap
from sysid_ros.core.tracking_bound.uncertainty import InertialUncertainty

Array = NDArray[np.float64]
Index = NDArray[np.intp]

_LARGEST_CHANGE = 0.5
"""Relative change of the inertia from which there are no bounds."""

Parts = tuple[Array, Array, Array]
"""A value, its change of first order and the rest; or, along a line, value, first and second derivative."""
Both = tuple[Array, Array]
"""Of the nominal inertia, and of its error."""
Bound = Callable[..., Array]
"""A method of :class:`Energies`: bounds a derivative near the nodes, along directions."""


def both_sides(values: Array) -> Array:
    """Return the larger values of both intervals about each node."""
    return np.concatenate([values[:1], larger_neighbour(values), values[-1:]])


def carried(p: Parts, w: Parts, x: Parts) -> Array:
    """Bound the orders of ``P M^-1 X`` above the first: the product of all bounds less the terms up to it."""
    whole = sum(p) * sum(x) / (1.0 - w[1] - w[2])
    return whole - p[0] * x[0] - p[1] * x[0] - p[0] * w[1] * x[0] - p[0] * x[1]


def carried_along(p: Parts, w: Parts, x: Parts, inverse: Array) -> Array:
    """Bound the second derivative of ``P M^-1 X`` along a line, with those of all three."""
    one, two = inverse * w[1], inverse * w[2]
    second = p[2] * x[0] + 2.0 * p[1] * (one * x[0] + x[1])
    second = second + p[0] * ((two + 2.0 * one**2) * x[0] + 2.0 * one * x[1] + x[2])
    return inverse * second


def by_name(kind: str, slope: Both, coriolis: Both, product: Array) -> dict[str, Array]:
    """Combine bounds by term: of slopes of M and D, of their Coriolis matrices, and of ``P M^-1 D``."""
    several = 1.0 if kind == "slope" else 2.0
    terms = slope[0], coriolis[0], slope[1] + product, coriolis[0] + several * coriolis[1] + product
    return {f"{name}_{kind}": values for name, values in zip(NAMES, terms, strict=True)}


@dataclass(frozen=True)
class _Growth:
    """Change of slopes, rates or Coriolis matrices of M, and of D, near nodes and along the lines between them."""

    beyond: Both  # Higher orders near the nodes, (S,)
    first: Both  # First derivative along lines, (S - 1,)
    second: Both  # Second derivative

    def __mul__(self, factor: float) -> _Growth:
        parts = self.beyond, self.first, self.second
        return _Growth(*((factor * nominal, factor * off) for nominal, off in parts))

    def with_velocity(self, slopes: _Growth, thirds: Both, changed: Array) -> _Growth:
        """Add the change of the velocity to the second derivative.

        That is twice the first derivative of the slope, times that change, at both ends; between these a second
        derivative has twice the third one of the slope besides its fourth one.

        Args:
            slopes: The same for any direction.
            thirds: Third derivatives of these along the lines, (S - 1,).
            changed: Norm of the change of the velocity, (S - 1,).
        """
        nominal, off = (
            second + (2.0 * first + third / 4.0) * changed
            for second, first, third in zip(self.second, slopes.first, thirds, strict=True)
        )
        return _Growth(self.beyond, self.first, (nominal, off))


def are_bodies(theta: Array, n: int) -> bool:
    """Return whether no body has a negative kinetic energy."""
    bodies = theta[: INERTIAL * n].reshape(n, INERTIAL)
    return bool(np.linalg.eigvalsh(np.tensordot(bodies, unit_inertias(), (1, 0))).min() >= -1e-12)


# All together


@dataclass(frozen=True)
class ParameterBounds:
    """Sizes of the parameters, for bounds of derivatives at any positions.

    Attributes:
        nominal: The nominal bodies.
        off: Their largest deviations.
        last: Spread of the last body about the vertices of the payload's set.
        arm: Spread of the other bodies.
        is_nominal: Whether no nominal body has a negative kinetic energy.
        known: Nominal torque, by the order of the derivative.
        error: Error of the torque, likewise.
        arm_error: Error of the arm's torque, likewise.
    """

    nominal: BodySizes
    off: BodySizes
    last: BodySizes
    arm: BodySizes
    is_nominal: bool
    known: dict[int, TorqueDerivatives]
    error: dict[int, TorqueDerivatives]
    arm_error: dict[int, TorqueDerivatives]

    @classmethod
    def of(cls, robot: RobotModel, uncertainty: InertialUncertainty) -> ParameterBounds:
        """Collect the sizes."""
        of_last = np.zeros_like(uncertainty.spread)
        of_last[uncertainty.last] = uncertainty.spread[uncertainty.last]
        parameters = uncertainty.nominal, uncertainty.largest_deviation, of_last, uncertainty.spread - of_last
        nominal, off, last, arm = (BodySizes.of(x, robot.n) for x in parameters)
        known, error, arm_error = (
            {order: TorqueDerivatives(robot, sizes, order) for order in orders}
            for sizes, orders in ((nominal, (0, ORDER, ORDER + 1)), (off, (0, ORDER, ORDER + 1)), (arm, (2, ORDER)))
        )
        return cls(nominal, off, last, arm, are_bodies(uncertainty.nominal, robot.n), known, error, arm_error)


@dataclass(frozen=True)
class _Surroundings:
    """The inertia near the nodes and along the lines between them, in the errors of the moment."""

    away: Array  # Largest distances from the nodes, (S, n) [rad]
    turns: Array  # Turns between the nodes, (S - 1, n) [rad]
    slope: Parts  # Of P at the nodes: value, first order, beyond
    inertia: Parts  # Of M; without a value
    line_slope: Parts  # Of P along the lines: value, first and second derivative
    line_inertia: Parts  # Of M; without a value
    line_off: Parts  # Of D
    line_off_slope: Array  # Largest slope of D there
    inverse: Array  # Norm of ``M^-1`` there


class _Metric:
    """Norms at the nodes and between them.

    Args:
        inertia: The inertia at the nodes, (S, n, n) [kg m^2].
        factor: ``M^-1/2`` there.
        off: By how much it differs from the straight line between two of them, relative to either, (S - 1,).
    """

    def __init__(self, inertia: Array, factor: Array, off: Array):
        self.size = np.abs(np.swapaxes(factor, 1, 2) @ factor)
        self._inertia = np.abs(inertia)
        steps = np.diff(inertia, axis=0)
        both = (congruence(x, steps) for x in (factor[:-1], factor[1:]))
        change = np.max([np.abs(np.linalg.eigvalsh(x)).max(axis=1) for x in both], axis=0)
        if not np.all(change + off < _LARGEST_CHANGE):
            raise BoundNotAvailable("the motion may change the inertia by half between two samples: it is too fast")
        # From norms of both ends of a line, on it, to those of the moment: see docs/theory/tracking_bound.md.
        self.line = (1.0 - off / (1.0 - change)) ** -1.5 * (1.0 + change**2 / 8.0)
        # From products of up to four norms at either end to those of the moment.
        self.far = (1.0 - change - off) ** -4.0

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
    """The torque of a motion about the nodes and between them, and its error.

    Args:
        norms: Norms at the nodes.
        lines: Norms at the nodes, of lines that begin there and of lines that end there; None at rest.
        states: The nodes, with velocities and accelerations of the torque.
        along: Velocity with which the positions change, (S, n) [rad/s].
        sags: By how much position, velocity and acceleration differ from straight lines, (S - 1, n) each.
        metric: Norms between the nodes.
        bounds: Sizes of the parameters.
    """

    def __init__(
        self,
        norms: TorqueNorms,
        lines: tuple[LineNorms, ...] | None,
        states: TermStates,
        along: Array,
        sags: tuple[Array, Array, Array],
        metric: _Metric,
        bounds: ParameterBounds,
    ):
        self._norms, self._lines, self._states, self._along = norms, lines, states, along
        self._sags, self._metric, self._bounds = sags, metric, bounds

    def terms(self, near: _Surroundings) -> dict[str, Array]:
        """Bound the terms of the torque, by name, (S - 1,) each; see also :class:`EnclosedTerms`."""
        away, (p, w), metric, norms = near.away, (near.slope, near.inertia), self._metric, self._norms
        v, a, one, total = np.abs(self._states.v), np.abs(self._states.a), np.ones(len(away)), away.sum(axis=1)
        bounds, slopes = self._bounds, norms.slopes
        known, not_known = (flat(metric.size, x[ORDER].slope(v, a, one)) for x in (bounds.known, bounds.error))
        arm = flat(metric.size, bounds.arm_error[2].slope(v, a, one))
        pushed = flat_length(metric.size, bounds.error[ORDER].torque(v, a, one))
        error = norms.error, *norms.errors.near(away, total**ORDER * pushed)
        spread = weighted(away, norms.curved_spread) + 0.5 * total**2 * arm + p[1] * norms.error_spread
        spread = spread + p[0] * (w[1] * norms.error_spread + weighted(away, norms.errors_spread))
        model, changed_by, rate = (
            np.add(*of.near(away, total**ORDER * third))
            for of, third in ((norms.model, not_known), (norms.torque, known), (norms.rate, known * norms.speed))
        )
        model, rate = slopes.model_slope + model + spread + carried(p, w, error), slopes.torque_rate + rate

        changes, pushes = (np.abs(np.diff(x, axis=0)) for x in (self._states.v, self._states.a))
        moves = bool(v.any() or a.any())
        sagging, sagged = (x * moves for x in self._sags[1:])
        fastest, hardest, none = larger_neighbour(v), larger_neighbour(a), np.zeros(len(near.turns))
        bent_torque, bent_model, error_two = self._bent_along(near)
        speed, changed, swung, pushed_on, pulled = (metric.norm(x) for x in (fastest, changes, sagging, pushes, sagged))
        # The part of the gradient with accelerations is the slope of the inertia times these.
        slope_of_inertia = near.line_slope[0]

        def moved(of: dict[int, TorqueDerivatives], slope: Array, velocity: Array, acceleration: Array) -> Array:
            here, there = (of[0].slope(x, np.zeros_like(x), none) for x in (fastest, fastest + velocity))
            return metric.flat(there - here) + slope * acceleration

        sags = (
            moved(bounds.known, slope_of_inertia, sagging, pulled),
            moved(bounds.error, near.line_off_slope, sagging, pulled),
        )
        first = moved(bounds.known, slope_of_inertia, changes, pushed_on)
        longest = both_sides(near.turns)
        beside = away + 0.5 * longest
        third = longest.sum(axis=1) * beside.sum(axis=1) ** 2
        steep = (
            both_sides(metric.flat(bounds.known[ORDER].slope(fastest, hardest, none + 1.0))),
            both_sides(metric.flat_length(bounds.error[ORDER].torque(fastest, hardest, none + 1.0))),
        )
        turned, error_one = (
            larger_neighbour(of.first_along(longest, beside, third * bound))
            for of, bound in zip((norms.torque, norms.errors), steep, strict=True)
        )
        coriolis = 1.5 * near.line_off_slope
        error_one = error_one + 2.0 * coriolis * speed * changed + near.line_off[0] * pushed_on
        # The gradient is quadratic in the velocity, so between both ends it is less by that.
        bow = bounds.error[0].slope(changes, np.zeros_like(changes), none)
        error_one = error_one + metric.flat(bow) * metric.norm(near.turns) / 4.0
        parts = larger_neighbour(error[0] + error[1] + error[2]) + error_two / 8.0, error_one, error_two
        bent_model = bent_model + carried_along(near.line_slope, near.line_inertia, parts, near.inverse)
        aside = near.line_off[0] * pulled + (2.0 * speed + swung) * swung * coriolis
        aside = sags[1] + near.inverse * near.line_slope[0] * aside
        along_speed, along_changed = larger_neighbour(norms.speed), metric.norm(np.diff(self._along, axis=0))
        off_line = bent_torque / 8.0 + sags[0]
        slope = metric.line * larger_neighbour(slopes.torque_slope + changed_by) + metric.far * off_line
        across = off_line * along_speed + (turned + first) * along_changed / 4.0
        across = across + slope * metric.norm(self._sags[1])
        return {
            "model_slope": metric.line * larger_neighbour(model) + metric.far * (bent_model / 8.0 + aside),
            "torque_slope": slope,
            "torque_rate": metric.line * larger_neighbour(rate) + metric.far * across,
            "turned": metric.line * larger_neighbour(changed_by) + metric.far * off_line,
        }

    def _bent_along(self, near: _Surroundings) -> tuple[Array, Array, Array]:
        """Bound second derivatives along the lines, moved by the errors, (S - 1,) each; see :class:`LineNorms`.

        They are those at both ends, their change by the errors, and an eighth of the fourth derivative.
        """
        metric, bounds, norms = self._metric, self._bounds, self._norms
        v, a = (larger_neighbour(np.abs(x)) for x in (self._states.v, self._states.a))
        changes, pushes = (np.abs(np.diff(x, axis=0)) for x in (self._states.v, self._states.a))
        turn, total = near.turns.sum(axis=1)[:, None], larger_neighbour(near.away.sum(axis=1))

        def bent(of: dict[int, TorqueDerivatives], order: int) -> tuple[Array, Array]:  # of a slope, of a torque
            # Derivatives of products of v along a line, up to that order, are at most those of these.
            along = turn * v + order * changes, turn**2 * a + order * turn * pushes, turn[:, 0] ** 2
            return metric.flat(of[order].slope(*along)), metric.flat_length(of[order].torque(*along))

        known, error = bent(bounds.known, ORDER + 1)[0], bent(bounds.error, ORDER + 1)
        if self._lines is None:
            # At rest, second derivatives at the nodes are known except for the arm's part of the error.
            longest, beyond = both_sides(near.turns), turn[:, 0] ** 2 / 8.0
            ends = [larger_neighbour(of.twice(longest, longest)) for of in (norms.torque, norms.model, norms.errors)]
            changed, arm = bent(bounds.error, ORDER), bent(bounds.arm_error, ORDER - 1)[0]
            more = total * bent(bounds.known, ORDER)[0], total * changed[0] + arm, total * changed[1]
        else:
            away, beyond = larger_neighbour(near.away), 0.5 * total**2 + turn[:, 0] ** 2 / 8.0
            beyond = beyond + turn[:, 0] ** 2 * LINE_STEP**2 / 12.0  # of the differences
            both = [
                (
                    at.torque[ends] + weighted(away, at.torque_slope[ends]),
                    at.model[ends] + weighted(away, at.model_slope[ends]),
                    at.error[ends] + weighted(away, at.error_slope[ends]),
                )
                for at, ends in zip(self._lines, (slice(None, -1), slice(1, None)), strict=True)
            ]
            ends = [np.maximum(*x) for x in zip(*both, strict=True)]
            arms = bent(bounds.arm_error, ORDER)
            more = 0.0 * total, total * arms[0], total * arms[1]
        first, second, third = (x + y + beyond * z for x, y, z in zip(ends, more, (known, *error), strict=True))
        return first, second, third


@dataclass(frozen=True)
class EnclosedTerms:
    """Bounds of the terms between S nodes, by name, (S - 1,) each but for the last ones.

    Attributes:
        moving: Terms of the motion; ``turned`` is the norm by which the gradient of its torque differs from that at the
            nodes, and ``torque_gradient`` has the largest magnitudes there, (S - 1, n, n) [Nm/rad].
        still: Slopes of the torque at rest, likewise with ``turned`` and ``gradient``.
        ratios: Range of the eigenvalues of E.
    """

    moving: dict[str, Array]
    still: dict[str, Array]
    ratios: tuple[float, float]


class Enclosure:
    """The terms at nodes of a motion, and their bounds between these and in position errors of the moment.

    Args:
        tube_map: The tube map of the motion.
        nodes: Numbers of its samples, (S,), in turn.

    Raises:
        BoundNotAvailable: The motion is too fast for its samples.
    """

    def __init__(self, tube_map: TubeMap, nodes: Index):
        robot, samples, uncertainty = tube_map.robot, tube_map.samples, tube_map.uncertainty
        states = self._states = TermStates(*(x[nodes] for x in (samples.q, samples.v, samples.a)))
        curvature, width = samples.curvature_over(nodes), samples.step * np.diff(nodes)[:, None]
        sag = width**2 / 8.0
        self._sags = sag * curvature.a, sag * curvature.jerk, sag * curvature.snap
        bounds, norms = ParameterBounds.of(robot, uncertainty), compute_node_norms(tube_map, states)
        self._norms = norms
        speed = both_sides(larger_neighbour(np.abs(states.v)))

        def energies(sizes: BodySizes, is_nominal: bool = False) -> Energies:
            return Energies(robot, sizes, states.q, speed, norms.factor, is_nominal)

        self._own = energies(bounds.nominal, bounds.is_nominal)
        self._off, self._last, self._arm = (energies(one) for one in (bounds.off, bounds.last, bounds.arm))
        self._ratio_energies = [energies(one) for one in _sizes_of_ratios(uncertainty, robot.n)]
        lower, upper = (one.ratio for one in norms.extremes)
        self._largest_off = np.maximum(np.abs(1.0 - lower), np.abs(upper - 1.0))
        longest, sagging = both_sides(np.abs(np.diff(states.q, axis=0))), both_sides(self._sags[0])
        _, bent = self._along(norms.inertia, self._own.inertia, longest, sagging)
        swung = np.add(*norms.inertia.near(sagging, self._own.inertia(sagging, *(sagging,) * ORDER)))
        metric = self._metric = _Metric(norms.terms.inertia, norms.factor, bent / 8.0 + larger_neighbour(swung))
        rest = TermStates(states.q, np.zeros_like(states.v), np.zeros_like(states.a))
        self._torque = _Torque(norms.moving, norms.lines, states, states.v, self._sags, metric, bounds)
        self._rest = _Torque(norms.still, None, rest, states.v, self._sags, metric, bounds)

    @staticmethod
    def _along(of: Derivatives, bound: Bound, turns: Array, away: Array) -> tuple[Array, Array]:
        """Bound the first and the second derivative along lines between the nodes, (S - 1,) each.

        The second one is that at both ends, its change by the distances, and an eighth of the fourth derivative.

        Args:
            of: Derivatives at the nodes.
            bound: Bound of the derivatives near them.
            turns: Largest turns on either side, (S, n) [rad].
            away: Largest distances from the lines, (S, n) [rad].
        """
        beside = away + 0.5 * turns  # of the nearer node
        first = of.first_along(turns, beside, bound(beside, turns, beside, beside))
        second = of.twice(turns, turns) + bound(away, turns, turns, away)
        between = bound(beside, turns, turns, turns, turns) / 8.0
        return larger_neighbour(first), larger_neighbour(second) + larger_neighbour(between)

    @property
    def intervals(self) -> int:
        """Number of intervals between the nodes."""
        return len(self._states.q) - 1

    def bound(self, errors: Array) -> EnclosedTerms:
        """Bound the terms between the nodes in position errors of at most (S - 1, n) [rad].

        Raises:
            BoundNotAvailable: The inertia may change by half.
        """
        away, turns = both_sides(errors + self._sags[0]), np.abs(np.diff(self._states.q, axis=0))
        metric, norms, longest = self._metric, self._norms, both_sides(turns)
        beside = away + 0.5 * longest  # of the nearer node
        own, off, last, arm = self._own, self._off, self._last, self._arm

        def near(of: Derivatives, bound: Bound) -> tuple[Array, Array]:
            return of.near(away, bound(away, away, away, away))

        def along(of: Derivatives, bound: Bound, more: Bound | None = None) -> tuple[Array, Array]:
            first, second = self._along(of, bound, longest, away)
            if more is None:
                return first, second
            added = more(beside, longest, beside), more(beside, longest, longest)
            return first + larger_neighbour(added[0]), second + larger_neighbour(added[1])

        def growth(kind: str) -> _Growth:
            nominal, deviation, wide = norms.slopes[kind]
            bounds = [getattr(one, kind) for one in (own, off, last, arm)]
            beyond = np.add(*near(wide, bounds[2])) + 0.5 * bounds[3](away, away, away)
            lines = along(nominal, bounds[0]), along(deviation + wide, bounds[1], bounds[3])
            first, second = zip(*lines, strict=True)
            return _Growth((near(nominal, bounds[0])[1], near(deviation, bounds[1])[1] + beyond), first, second)

        w = np.zeros(len(away)), *near(norms.inertia, own.inertia)
        spread_first, spread_beyond = near(norms.spread, last.inertia)
        spread_changed = spread_first + spread_beyond + 0.5 * arm.inertia(away, away, away)
        first, beyond = near(norms.deviation, off.inertia)
        d = self._largest_off, first + spread_changed, beyond
        line_inertia = np.zeros(len(turns)), *along(norms.inertia, own.inertia)
        change = larger_neighbour(w[1] + w[2]) + line_inertia[1]
        if not np.all(change < _LARGEST_CHANGE):
            raise BoundNotAvailable("the position errors may change the inertia by half")
        inverse = 1.0 / (1.0 - change)
        off_first, off_second = along(norms.deviation + norms.spread, off.inertia, arm.inertia)
        line_off = larger_neighbour(d[0] + d[1] + d[2]) + off_second / 8.0, off_first, off_second
        known = norms.known + spread_changed
        changed, sagging = metric.norm(np.diff(self._states.v, axis=0)), metric.norm(self._sags[1])
        found: dict[str, Array] = {}
        steep: dict[str, tuple[Parts, Parts]] = {}
        slopes = growth("slope")
        for kind in KINDS:
            name = "inertia_" + kind
            if kind == "slope":
                # A Coriolis matrix for any direction is three halves of slopes.
                own_growth, coriolis, turning = slopes, slopes * 1.5, np.zeros(len(turns))
            else:
                thirds = [larger_neighbour(one.slope(beside, longest, longest, longest)) for one in (own, off)]
                given = slopes, (thirds[0], thirds[1]), changed
                own_growth = growth("rate").with_velocity(*given)
                coriolis = growth("coriolis").with_velocity(slopes * 1.5, (1.5 * thirds[0], 1.5 * thirds[1]), changed)
                turning = steep["slope"][1][0] * changed
            p = getattr(norms.terms, name), norm_of_sum(away, norms.first[name]), own_growth.beyond[0]
            product = carried(p, w, d) + p[1] * known + p[0] * (w[1] * known + spread_changed)
            beyond_first = by_name(kind, own_growth.beyond, coriolis.beyond, product)
            line = own_growth.first[0] + turning, own_growth.second[0]
            p_line = larger_neighbour(p[0] + p[1] + p[2]) + line[1] / 8.0, *line
            steep[kind] = p, p_line
            products = carried_along(p_line, line_inertia, line_off, inverse)
            seconds = by_name(kind, own_growth.second, coriolis.second, products)
            for name, more in beyond_first.items():
                at = getattr(norms.terms, name) + norm_of_sum(away, norms.first[name]) + more
                across = seconds[name] / 8.0
                if kind == "rate":
                    across = across + found[name.replace("rate", "slope")] * sagging
                found[name] = metric.line * larger_neighbour(at) + metric.far * across
        p, p_line = steep["slope"]
        # Of D at the nodes and between them: E has that less the effect of a changing M.
        off_slope = found["ratio_slope"] + inverse * found["inertia_slope"] * line_off[0]
        around = _Surroundings(away, turns, p, w, p_line, line_inertia, line_off, off_slope, inverse)
        still = self._rest.terms(around)
        moving = found | self._torque.terms(around)
        return EnclosedTerms(
            moving | {"torque_gradient": larger_neighbour(norms.terms.torque_gradient)},
            still | {"gradient": larger_neighbour(np.abs(norms.still.slopes.gradient))},
            self._bound_ratios(around, longest),
        )

    def _bound_ratios(self, near: _Surroundings, longest: Array) -> tuple[float, float]:
        away, w, norms, found = near.away, near.inertia, self._norms, []
        beside = away + 0.5 * longest
        widest, *several = (x.inertia for x in self._ratio_energies)
        for extreme, bodies, sign in zip(norms.extremes, several, (-1.0, 1.0), strict=True):
            third = _sum_of(bodies, self._own.inertia, np.abs(1.0 - extreme.ratio))
            _, beyond = extreme.changes.near(away, third(away, away, away, away))
            more = extreme.first_order(away) + beyond + weighted(away, norms.arm_change)
            more = more + 0.5 * widest(away, away, away)
            at = larger_neighbour(sign * extreme.ratio + more / (1.0 - w[1] - w[2]))
            _, bent = self._along(extreme.changes, third, longest, away)
            # Between two nodes with different eigenvalues, the more extreme one counts.
            differs = at + larger_neighbour(-sign * extreme.ratio)
            bent = bent + differs * near.line_inertia[2] + larger_neighbour(widest(beside, longest, longest))
            bent = near.inverse * bent
            found.append(sign * float((at + self._metric.far * bent / 8.0).max()))
        return found[0], found[1]


def _sum_of(one: Bound, other: Bound, share: Array) -> Bound:
    return lambda within, *directions: one(within, *directions) + share * other(within, *directions)


def _sizes_of_ratios(uncertainty: InertialUncertainty, n: int) -> list[BodySizes]:
    """List the uncertainty of the arm, and sizes of the lightest and heaviest bodies less nominal ones.

    Bodies in the order of energies take the place of the payload, so only the arm is uncertain.
    """
    payloads, last, off = uncertainty.payloads, uncertainty.last, uncertainty.arm - uncertainty.nominal
    found = [uncertainty.radius]
    none = np.zeros((1, INERTIAL))  # no payload is lighter
    for bodies in (np.concatenate([payloads.lower, none]), payloads.upper.reshape(-1, INERTIAL)):
        size = np.abs(off) + uncertainty.radius
        size[last] = np.abs(off[last] + bodies).max(axis=0) + uncertainty.radius[last]
        found.append(size)
    return [BodySizes.of(x, n) for x in found]
