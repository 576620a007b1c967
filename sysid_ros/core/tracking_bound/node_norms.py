"""Norms of the slowly varying terms and of their derivatives by position at nodes of a motion (step 1c of the proof).

Everything is linear in the parameters: nominal ones, center and vertices of the payload's set, and the spread about
these. Norms are defined in :mod:`model_terms`; of matrices and slopes the roots of sums of squares serve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.model.inertia import unit_inertias
from sysid_ros.core.model.robot import INERTIAL
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.tracking_bound.inertia_columns import (
    body_jacobians,
    christoffel,
    congruence,
    coriolis_columns,
    inertia_columns,
    largest_eigenvalue,
)
from sysid_ros.core.tracking_bound.model_terms import (
    ModelTerms,
    MotionSlopes,
    TermStates,
    compute_model_terms,
    compute_motion_slopes,
)
from sysid_ros.core.tracking_bound.term_derivatives import (
    ROUNDING,
    by_pair_and_joint,
    evaluate_near,
    inertia_derivatives,
    jacobian_derivatives,
    places,
    points_about,
    third_derivatives,
    up_to_second_order,
)
from sysid_ros.core.tracking_bound.tube import TubeMap
from sysid_ros.core.tracking_bound.uncertainty import extreme_inertias

Array = NDArray[np.float64]
_Norms = TypeVar("_Norms")

NAMES = ("inertia", "coriolis", "ratio", "drag")
"""Terms of the inertia, each with a slope and a rate."""
KINDS = ("slope", "rate")
_STEP = 1e-4
"""Step of the central differences in position [rad]."""
LINE_STEP = 0.05
"""Step of the differences along the lines between nodes, as a share of these."""
_ROUNDING = 1e-9
"""Rounding of eigenvalues of E."""
_BATCH = 16
"""Nodes that are worked on at once."""


def weighted(weights: Array, values: Array) -> Array:
    """Sum values times weights, (S, k) each, (S,)."""
    total: Array = np.einsum("sk,sk->s", weights, values)
    return total


def flat(metric: Array, entries: Array) -> Array:
    """Bound the norms of matrices with entries up to these, (S, ..., n, n), by the magnitudes of ``M^-1``."""
    metric = metric.reshape(len(metric), *(1,) * (entries.ndim - 3), *metric.shape[1:])
    squares: Array = np.sum(entries * (metric @ entries @ metric), axis=(-2, -1))
    return np.sqrt(squares)


def flat_length(metric: Array, entries: Array) -> Array:
    """Bound the norms of torques with entries up to these, (S, ..., n)."""
    squares: Array = np.einsum("s...i,sij,s...j->s...", entries, metric, entries, optimize=True)
    return np.sqrt(squares)


def frobenius(values: Array) -> Array:
    """Return the roots of sums of squares of values (S, c, k, ...), (S, c, k)."""
    flattened = values.reshape(*values.shape[:3], -1)
    norms: Array = np.sqrt(np.einsum("sckx,sckx->sck", flattened, flattened))
    return norms


def products_of(norms: Array) -> Array:
    """Return products of norms by joint, (S, k), in place of inner products, (S, 1, k, k); see :class:`Derivatives`."""
    return norms[:, None, :, None] * norms[:, None, None, :]


def norm_of_sum(weights: Array, products: Array) -> Array:
    """Bound norms of sums of parts by joint, (S,), times at most (S, n), by their products (S, m, n, n)."""
    squares = np.sum((weights[:, None, None] @ products)[:, :, 0] * weights[:, None], axis=-1)
    norm: Array = np.sqrt(np.maximum(squares, 0.0)).sum(axis=1)
    return norm


class PayloadNorms:
    """Norms of functions linear in the parameters, over all vertices of the set of the payload.

    Values are for the nominal parameters, the center, and each parameter of the last body, (S, c, k, ...).

    Args:
        payloads: The vertices, (p, 10).
        spread: Radii about these, (10,).
    """

    def __init__(self, payloads: Array, spread: Array):
        self.mean, self._spread = payloads.mean(axis=0), spread
        weights = np.column_stack([np.ones(len(payloads)), payloads - self.mean])
        # Of squares and products of weighted sums, (c c, p).
        self._products = (weights[:, :, None] * weights[:, None]).reshape(len(weights), -1).T.copy()

    def vertices(self, values: Array) -> Array:
        """Bound the norms of the deviation from the nominal parameters, (S, k)."""
        entries = values[:, 1:].reshape(*values[:, 1:].shape[:3], -1).swapaxes(1, 2)
        gram = entries @ entries.swapaxes(-1, -2)
        squares = (gram.reshape(*gram.shape[:2], -1) @ self._products).max(axis=-1)
        largest: Array = np.sqrt(np.maximum(squares, 0.0))
        return largest

    def spread(self, values: Array) -> Array:
        """Bound the norms of the spread about the vertices, (S, k)."""
        norms: Array = frobenius(values[:, 2:]).swapaxes(1, 2) @ self._spread
        return norms

    @staticmethod
    def nominal(values: Array) -> Array:
        """Return the norms for the nominal parameters, (S, k)."""
        return frobenius(values[:, :1])[:, 0]

    @staticmethod
    def weighted(values: Array, weights: Array) -> Array:
        """Return the largest norm, (S, k), for any weights (S or 1, p, c) of the values."""
        entries = values.reshape(*values.shape[:3], -1).swapaxes(1, 2)
        gram = entries @ entries.swapaxes(-1, -2)
        squares: Array = np.sum((weights[:, None] @ gram) * weights[:, None], axis=-1).max(axis=-1)
        return np.sqrt(np.maximum(squares, 0.0))

    # Magnitudes of inner products, (S, m, k, k), of which norms of sums over k follow.

    def products_of_vertices(self, values: Array) -> Array:
        """Bound the inner products of the deviations from the nominal parameters for any vertex."""
        count, sets, joints = values[:, 1:].shape[:3]
        entries = values[:, 1:].reshape(count, sets, joints, -1).swapaxes(1, 2).reshape(count, joints * sets, -1)
        gram = (entries @ entries.swapaxes(1, 2)).reshape(count, joints, sets, joints, sets).swapaxes(2, 3)
        rows, columns = np.triu_indices(joints)
        products = gram[:, rows, columns].reshape(count, len(rows), -1) @ self._products  # (S, pairs, p)
        largest = np.empty((count, 1, joints, joints))
        largest[:, 0, rows, columns] = largest[:, 0, columns, rows] = np.abs(products).max(axis=-1)
        return largest

    def products_of_spread(self, values: Array) -> Array:
        """Return the inner products of the spread about the vertices."""
        products: Array = self._own_products(values[:, 2:]) * self._spread[:, None, None] ** 2
        return products

    def products_of_nominal(self, values: Array) -> Array:
        """Return the inner products for the nominal parameters."""
        return self._own_products(values[:, :1])

    @staticmethod
    def _own_products(values: Array) -> Array:
        entries = values.reshape(*values.shape[:3], -1)
        products: Array = np.abs(entries @ entries.swapaxes(-1, -2))
        return products


@dataclass(frozen=True)
class Derivatives:
    """Norms of the derivatives of a form by joints, at S nodes.

    To first order a form changes by a sum over the joints. Its square has the inner products of derivatives by two
    joints, which are mostly much smaller than the products of their norms.

    Attributes:
        first: Magnitudes of inner products of first derivatives, (S, m, n, n), of the m summands of the form.
        second: Norms of the second ones, (S, n, n).
    """

    first: Array
    second: Array

    @classmethod
    def of(cls, first: Array, second: Array) -> Derivatives:
        """Take the second derivatives, (S, K), in the order of :func:`joints_of`."""
        return cls(first, second[:, places(first.shape[-1], 2)])

    def __add__(self, other: Derivatives) -> Derivatives:
        return Derivatives(np.concatenate([self.first, other.first], axis=1), self.second + other.second)

    def near(self, away: Array, third: Array) -> tuple[Array, Array]:
        """Bound the first and higher orders together, within (S, n) [rad] of the nodes.

        ``third`` bounds the third derivative in the direction of these largest distances ``away``, (S,), anywhere
        there.
        """
        return norm_of_sum(away, self.first), 0.5 * self.twice(away, away) + third / 6.0

    def first_along(self, turns: Array, away: Array, third: Array) -> Array:
        """Bound the first derivative along turns (S, n) [rad], within ``away`` (S, n) of the nodes.

        ``third`` bounds the third derivative once along the turns and twice away, anywhere there.
        """
        return norm_of_sum(turns, self.first) + self.twice(turns, away) + 0.5 * third

    def twice(self, one: Array, other: Array) -> Array:
        """Bound the second derivative at the nodes along two directions (S, n) [rad]."""
        twice: Array = np.einsum("sk,sk->s", one, (self.second @ other[..., None])[..., 0])
        return twice


@dataclass(frozen=True)
class ExtremeRatios:
    """An extreme eigenvalue of E at S nodes, and the change of ``H - E M`` for K inertias H that may have it.

    Attributes:
        ratio: The eigenvalue, (S,).
        below: By how much the inertias' own eigenvalues are less extreme, (S, K).
        gap: By how much their next ones are less extreme than that, (S, K).
        own: Change of ``H - E M`` in the direction of the eigenvector with each joint, (S, K, n).
        across: Its change between that and any other one.
        changes: Its whole change, for any of the inertias.
    """

    ratio: Array
    below: Array
    gap: Array
    own: Array
    across: Array
    changes: Derivatives

    def first_order(self, away: Array) -> Array:
        """Bound the largest eigenvalue of ``H - E M``, or of its negative, (S,), to first order in (S, n) [rad].

        With the eigenvector u and the gap g to all other directions, it is at most the eigenvalue of
        ``[[u^T X u, |X u|], [|X u|, |X| - g]]`` for a change X.
        """
        own, across = (self.own @ away[..., None])[..., 0], (self.across @ away[..., None])[..., 0]
        whole = norm_of_sum(away, self.changes.first)[:, None]
        first, second = own - self.below, whole - self.below - self.gap
        largest = 0.5 * (first + second) + np.sqrt(0.25 * (first - second) ** 2 + across**2)
        bound: Array = np.maximum(np.minimum(largest, whole - self.below).max(axis=1), 0.0)
        return bound


@dataclass(frozen=True)
class TorqueNorms:
    """The torque of a motion, nominal and its error by unknown parameters, at S nodes.

    Attributes:
        slopes: Its slopes with position.
        torque: Of its position gradient.
        rate: Of the gradient in the direction of the motion.
        model: Of the position gradient of the error: its first order includes the inverse inertia's.
        errors: Of the error.
        error: Norm of the error, (S,).
        error_spread: The same without the vertices, (S,); the next two likewise, by joint, (S, n).
        errors_spread: Of its derivatives.
        curved_spread: Of its gradient's derivatives.
        speed: Norm of the velocity with which positions change, (S,).
    """

    slopes: MotionSlopes
    torque: Derivatives
    rate: Derivatives
    model: Derivatives
    errors: Derivatives
    error: Array
    error_spread: Array
    errors_spread: Array
    curved_spread: Array
    speed: Array


@dataclass(frozen=True)
class LineNorms:
    """Second derivatives of torques along lines, at the nodes where these begin or end, (S - 1,), with their slopes.

    Attributes:
        torque: Of the position gradient of the nominal torque.
        model: Of the position gradient of the error.
        error: Of the error.
        torque_slope: Change of the first one with each joint, (S - 1, n).
        model_slope: Likewise.
        error_slope: Likewise.
    """

    torque: Array
    model: Array
    error: Array
    torque_slope: Array
    model_slope: Array
    error_slope: Array


def spread_norm(matrices: Array, radius: Array) -> Array:
    """Bound the norm of ``sum_l d_l X_l`` for ``|d_l| <= radius_l``, (S,), of X (S, l, n, n): :mod:`model_terms`."""
    size = np.maximum(np.sqrt(np.einsum("slab,slab->sl", matrices, matrices)), 1e-300)
    squares = np.einsum("sl,slab,slcb->sac", radius / size, matrices, matrices, optimize=True)
    bound: Array = np.sqrt((size @ radius) * np.maximum(largest_eigenvalue(squares), 0.0))
    return bound


def position_gradient(regressor: TorqueRegressor, q: Array, v: Array, a: Array) -> Array:
    """Differentiate the inertial columns of the motion's torque by position, (S, i, j, l)."""
    count, n = q.shape
    shifts = _STEP * np.concatenate([np.eye(n), -np.eye(n)])
    shifted = (q[:, None] + shifts).reshape(-1, n)
    v, a = np.repeat(v, 2 * n, axis=0), np.repeat(a, 2 * n, axis=0)
    values = regressor.evaluate(shifted, v, a).reshape(count, 2, n, n, -1)[..., : INERTIAL * n]
    result: Array = ((values[:, 0] - values[:, 1]) / (2.0 * _STEP)).transpose(0, 2, 1, 3)
    return result


@dataclass(frozen=True)
class NodeNorms:
    """Everything at S nodes.

    Attributes:
        terms: The terms.
        factor: ``M^-1/2``, (S, n, n).
        inertia: Of M.
        deviation: Of D, for the vertices.
        spread: Of the spread about these, without second derivatives of the arm's part.
        arm_change: First derivatives of the arm's part of the spread, (S, n).
        known: Its norm, (S,).
        slopes: Of slope and rate: of P, of the slope of D for the vertices, and of the spread about it, without second
            derivatives of the arm's part. Likewise of the Coriolis matrices of the motion.
        first: First derivatives of the terms, by name, as in :class:`Derivatives`.
        extremes: The smallest and the largest eigenvalue of E.
        moving: The torque of the motion.
        still: The torque at rest.
    """

    terms: ModelTerms
    factor: Array
    inertia: Derivatives
    deviation: Derivatives
    spread: Derivatives
    arm_change: Array
    known: Array
    slopes: dict[str, tuple[Derivatives, Derivatives, Derivatives]]
    first: dict[str, Array]
    extremes: tuple[ExtremeRatios, ExtremeRatios]
    moving: TorqueNorms
    still: TorqueNorms


def in_batches(compute: Callable[[slice], _Norms], count: int) -> _Norms:
    """Compute norms for some of ``count`` nodes or lines after the other, and join them."""
    joined: _Norms = _joined([compute(slice(begin, begin + _BATCH)) for begin in range(0, count, _BATCH)])
    return joined


def _joined(parts: list[Any]) -> Any:
    one = parts[0]
    if isinstance(one, tuple):
        return tuple(_joined(list(some)) for some in zip(*parts, strict=True))
    if isinstance(one, dict):
        return {name: _joined([part[name] for part in parts]) for name in one}
    if is_dataclass(one) and not isinstance(one, type):
        return replace(one, **{x.name: _joined([getattr(part, x.name) for part in parts]) for x in fields(one)})
    return np.concatenate(parts)


class NodeEvaluation:
    """Norms at nodes of a motion, and along the lines between them."""

    def __init__(self, tube_map: TubeMap, states: TermStates):
        uncertainty = self._uncertainty = tube_map.uncertainty
        self._robot, self._regressor, self._states = tube_map.robot, tube_map.regressor, states
        combinations = np.zeros((2 + INERTIAL, uncertainty.nominal.size))
        combinations[:2] = uncertainty.nominal, uncertainty.center
        combinations[2:, uncertainty.last] = np.eye(INERTIAL)
        self._combinations, self._bodies = combinations, combinations[:, : INERTIAL * tube_map.robot.n]
        self._norms = PayloadNorms(uncertainty.payloads.vertices, uncertainty.spread[uncertainty.last])
        self._radius = uncertainty.spread[: INERTIAL * tube_map.robot.n]

    def at_nodes(self) -> NodeNorms:
        """Evaluate them at the nodes."""
        extremes = extreme_inertias(self._robot, self._uncertainty, self._states.q)
        return in_batches(lambda part: self._at_nodes(part, extremes), len(self._states.q))

    def along_lines(self, factor: Array) -> tuple[LineNorms, LineNorms]:
        """Evaluate norms at both ends of the lines between the nodes, of the motion; ``factor`` is at the nodes."""
        return in_batches(lambda part: self._along_lines(part, factor), len(self._states.q) - 1)

    def _combined(self, values: Array) -> Array:
        """Combine values (S, ..., l) by parameter to those of nominal parameters, center and last body, (S, c, ...)."""
        both = values @ self._bodies[:2].T
        return np.moveaxis(np.concatenate([both, values[..., self._uncertainty.last]], axis=-1), -1, 1)

    def _at_nodes(self, part: slice, extremes: tuple[tuple[Array, Array], tuple[Array, Array]]) -> NodeNorms:
        robot, uncertainty, norms = self._robot, self._uncertainty, self._norms
        states = TermStates(*(x[part] for x in (self._states.q, self._states.v, self._states.a)))
        terms = compute_model_terms(robot, uncertainty, states)
        factor, n = np.linalg.inv(np.linalg.cholesky(terms.inertia)), robot.n
        inertia = np.moveaxis(inertia_columns(robot, states.q), -1, 1)  # by parameter, (S, l, n, n)
        by_joint = np.moveaxis(coriolis_columns(robot, states.q), -1, 1)  # (S, l, j, n, n)
        first, second, third = inertia_derivatives(robot, self._bodies, states.q)
        changes, bent = congruence(factor, first), congruence(factor, second)
        columns = np.moveaxis(np.tensordot(inertia, self._combinations[1:], (1, 1)), -1, 1)
        deviation = congruence(factor, columns)
        xi = np.asarray(np.linalg.solve(np.swapaxes(factor, 1, 2), states.v[..., None])[..., 0], dtype=np.float64)

        def by_direction(values: Array) -> Array:  # (S, c, k, x, n, n), any of x by velocities of norm one
            count, sets, joints = values.shape[:3]
            turned = factor[:, None, None] @ congruence(factor, values).reshape(count, sets, joints, n, -1)
            return turned.reshape(values.shape)

        def moving(values: Array) -> Array:
            flattened = values.reshape(*values.shape[:4], -1)
            return (xi[:, None, None, None] @ flattened)[..., 0, :].reshape(*values.shape[:3], n, n)

        bends = by_direction(second[:, :, places(n, 2)])
        more = by_direction(third[:, :, by_pair_and_joint(n)])
        slope = (factor @ changes[:, 0].reshape(len(factor), n, -1)).reshape(-1, n, n, n)
        moved, off = changes[:, 0], changes[:, 1:]
        # Derivatives of P M^-1 D.
        inner = off - moved[:, None] @ deviation[:, :, None]
        product = bends[:, None, 0] @ deviation[:, :, None, None] + slope[:, None, None] @ inner[:, :, :, None]
        coriolis = christoffel(bends)
        turned = coriolis[:, 1:].swapaxes(4, 5)
        slopes = (bends[:, :1], coriolis[:, :1], bends[:, 1:] - product, product - turned)
        rates = (*slopes[:3], product + coriolis[:, 1:] - turned)
        found: dict[str, Array] = {}
        for kind, values in (("slope", slopes), ("rate", tuple(moving(x) for x in rates))):
            for name, one in zip(NAMES, values, strict=True):
                both = np.concatenate([one[:, :1], one], axis=1)
                is_nominal = one.shape[1] == 1
                products = norms.products_of_nominal(one) if is_nominal else norms.products_of_vertices(both)
                found[f"{name}_{kind}"] = products
            parts = found[f"drag_{kind}"], found[f"coriolis_{kind}"]
            found[f"drag_{kind}"] = np.concatenate(parts, axis=1)
        arm = {kind: products_of(x) for kind, x in self._slopes_of_arm(states.q, factor, xi).items()}
        growths: dict[str, tuple[Derivatives, Derivatives, Derivatives]] = {
            kind: (
                Derivatives.of(norms.products_of_nominal(once), norms.nominal(twice)),
                Derivatives.of(norms.products_of_vertices(once), norms.vertices(twice)),
                Derivatives.of(
                    np.concatenate([norms.products_of_spread(once), arm[kind]], axis=1), norms.spread(twice)
                ),
            )
            for kind, once, twice in (
                ("slope", bends, more),
                ("rate", moving(bends), moving(more)),
                ("coriolis", moving(coriolis), moving(christoffel(more))),
            )
        }
        each = congruence(factor, by_joint + by_joint.swapaxes(-1, -2))  # by parameter
        each = frobenius(each).swapaxes(1, 2)  # (S, k, l)
        others = uncertainty.spread[: each.shape[2]].copy()
        others[uncertainty.last] = 0.0
        spread = np.concatenate([norms.products_of_spread(changes), products_of(each @ others)], axis=1)
        rest = TermStates(states.q, np.zeros_like(states.v), np.zeros_like(states.a))
        still = compute_motion_slopes(robot, uncertainty, rest, states.v)
        moving_slopes = MotionSlopes(terms.model_slope, terms.torque_slope, terms.torque_rate, terms.torque_gradient)
        nominal = bends[:, 0], slope, moved
        moving_torque, still_torque = (
            self._torque(at, slopes, factor, xi, nominal) for at, slopes in ((states, moving_slopes), (rest, still))
        )
        return NodeNorms(
            terms=terms,
            factor=factor,
            inertia=Derivatives.of(norms.products_of_nominal(changes), norms.nominal(bent)),
            deviation=Derivatives.of(norms.products_of_vertices(changes), norms.vertices(bent)),
            spread=Derivatives.of(spread, norms.spread(bent)),
            arm_change=each @ uncertainty.radius[: each.shape[2]],
            known=spread_norm(congruence(factor, inertia), uncertainty.spread),
            slopes=growths,
            first=found,
            extremes=(
                self._extreme_ratios(-1.0, extremes[0][0][part], extremes[0][1], changes, bent),
                self._extreme_ratios(1.0, extremes[1][0][part], extremes[1][1], changes, bent),
            ),
            moving=moving_torque,
            still=still_torque,
        )

    def _slopes_of_arm(self, q: Array, factor: Array, xi: Array) -> dict[str, Array]:
        """Bound first derivatives of the arm's unknown part in slope, rate and Coriolis matrix, (S, k) each.

        Parameters count one by one: their inertias ``J^T I J`` are differentiated through the Jacobians.
        """
        robot, n, count = self._robot, self._robot.n, len(q)
        found = {kind: np.zeros((count, n)) for kind in (*KINDS, "coriolis")}
        for body, jacobian in enumerate(body_jacobians(robot, q)[:-1]):
            radius, m = self._radius[robot.inertial_slice(body + 1)], body + 1
            inertias = radius[:, None, None] * unit_inertias()
            once, twice = jacobian_derivatives(jacobian[..., :m])
            root = factor[..., :m]  # (S, a, i), also for directions: (S, x, j)
            here = jacobian[..., :m] @ root.swapaxes(1, 2)  # (S, 6, a)
            once = once @ root[:, None].swapaxes(2, 3)  # (S, k, 6, a)
            twice = twice @ root[:, None, None].swapaxes(3, 4)  # (S, k, j, 6, a)
            along = (root @ once.reshape(count, m, -1)).reshape(count, n, 6, n)
            both = (root[:, None] @ twice.reshape(count, m, m, -1)).reshape(count, m, n, 6, n)
            turned = np.einsum("lpq,sqb->splb", inertias, here).reshape(count, 6, -1)
            parts = both.swapaxes(3, 4).reshape(count, -1, 6) @ turned
            values = parts.reshape(count, m, n, n, -1, n).transpose(0, 1, 4, 2, 3, 5)  # (S, k, l, x, a, b)
            turned = np.einsum("lpq,skqb->spklb", inertias, once, optimize=True).reshape(count, 6, -1)
            parts = along.swapaxes(2, 3).reshape(count, -1, 6) @ turned
            values = values + parts.reshape(count, n, n, m, -1, n).transpose(0, 3, 4, 1, 2, 5)
            values = values + values.swapaxes(-1, -2)
            found["slope"][:, :m] += frobenius(values).sum(axis=2)
            for kind, of_direction in (("rate", values), ("coriolis", christoffel(values))):
                moving = xi[:, None, None, None] @ of_direction.reshape(*values.shape[:4], -1)
                found[kind][:, :m] += frobenius(moving[..., 0, :]).sum(axis=2)
        return found

    def _extreme_ratios(
        self, sign: float, inertias: Array, payloads: Array, changes: Array, bent: Array
    ) -> ExtremeRatios:
        """Bound the smallest or the largest eigenvalue of E, and its change.

        Args:
            sign: -1 for the smallest one, or 1.
            inertias: Inertias that may have it, (S, K, n, n).
            payloads: Their payloads, (K, 10).
            changes: First derivatives of the inertia, (S, c, k, n, n).
            bent: Second derivatives.
        """
        count, several, n, _ = inertias.shape
        values, vectors = np.linalg.eigh(sign * inertias)
        extreme, most = vectors[..., -1], values[..., -1].max(axis=1) + _ROUNDING
        weights = np.ones((count, several, 2 + INERTIAL))
        weights[..., 0], weights[..., 2:] = (1.0 - sign * most)[:, None], payloads - self._norms.mean
        each = (weights @ changes.reshape(count, 2 + INERTIAL, -1)).reshape(count, several, n, n, n)
        turned = (each @ extreme[:, :, None, :, None])[..., 0]  # (S, K, k, n)
        own = np.sum(turned * extreme[:, :, None], axis=-1)
        entries = each.reshape(count, several, n, -1)
        products = np.abs(entries @ entries.swapaxes(-1, -2)).max(axis=1)[:, None]
        return ExtremeRatios(
            ratio=sign * most,
            below=most[:, None] - values[..., -1],
            gap=values[..., -1] - values[..., -2],
            own=np.abs(own),
            across=np.linalg.norm(turned - own[..., None] * extreme[:, :, None], axis=-1),
            changes=Derivatives.of(products, self._norms.weighted(bent, weights)),
        )

    def _torque(
        self, states: TermStates, slopes: MotionSlopes, factor: Array, xi: Array, nominal: tuple[Array, Array, Array]
    ) -> TorqueNorms:
        """Evaluate norms of the torque of a motion.

        Args:
            states: Nodes, with velocities and accelerations of the torque.
            slopes: The terms there.
            factor: ``M^-1/2``, (S, n, n).
            xi: Velocity with which the positions change, in coordinates in which M is the unit matrix, (S, n).
            nominal: Second derivatives of the nominal inertia, its slope, and its change by joint, in these.
        """
        n, norms, radius = factor.shape[-1], self._norms, self._radius
        size = np.abs(np.swapaxes(factor, 1, 2) @ factor)
        every = up_to_second_order(evaluate_near(self._regressor, states, points_about(n)), n)
        values, gradient, bends = (self._combined(x) for x in every)  # (S, c, i), (S, c, k, i), (S, c, j, k, i)
        thirds = third_derivatives(self._regressor, states, self._combined)
        torque, by_joint, pushed = (
            x @ factor.swapaxes(1, 2).reshape(-1, *(1,) * (x.ndim - 3), n, n) for x in (values, gradient, bends)
        )
        curved = congruence(factor, bends.swapaxes(-1, -2))  # (S, c, k, torque, direction)
        curvature, slope, moved = nominal
        inner = by_joint[:, 1:] - np.einsum("skab,scb->scka", moved, torque[:, 1:], optimize=True)
        turned = np.einsum("skxab,scb->sckax", curvature, torque[:, 1:], optimize=True)
        turned = turned + np.einsum("sxab,sckb->sckax", slope, inner, optimize=True)
        model = np.concatenate([curved[:, :1], curved[:, 1:] - turned], axis=1)
        twice = congruence(factor, thirds[:, :, by_pair_and_joint(n)].swapaxes(-1, -2))
        spreads = [np.abs(x) @ radius for x in every]

        def rounded(first: Array, second: Array) -> Derivatives:
            return Derivatives.of(ROUNDING**2 * first, ROUNDING * second)

        def rate(values: Array) -> Array:
            return (values[:, :1] @ xi[:, None, None, :, None])[..., 0]

        error_spread, errors_spread, second_spread = (flat_length(size, x) for x in spreads)
        errors = np.concatenate([norms.products_of_vertices(by_joint), products_of(errors_spread)], axis=1)
        second = norms.vertices(pushed.reshape(*pushed.shape[:2], -1, n)).reshape(second_spread.shape) + second_spread
        return TorqueNorms(
            slopes=slopes,
            torque=rounded(norms.products_of_nominal(curved), norms.nominal(twice)),
            rate=rounded(norms.products_of_nominal(rate(curved)), norms.nominal(rate(twice))),
            model=rounded(norms.products_of_vertices(model), norms.vertices(twice) + norms.spread(twice)),
            errors=Derivatives(ROUNDING**2 * errors, ROUNDING * second),
            error=norms.vertices(torque[:, :, None])[:, 0] + error_spread,
            error_spread=error_spread,
            errors_spread=ROUNDING * errors_spread,
            curved_spread=ROUNDING * flat(size, spreads[2]),
            speed=np.linalg.norm(xi, axis=1),
        )

    def _along_lines(self, part: slice, factor: Array) -> tuple[LineNorms, LineNorms]:
        n, norms, points = self._robot.n, self._norms, points_about(self._robot.n)
        whole = slice(part.start, part.stop + 1)
        every = [x[whole] for x in (self._states.q, self._states.v, self._states.a)]
        moves, found = [np.diff(x, axis=0) for x in every], []

        def evaluate(states: TermStates) -> tuple[Array, Array, Array]:
            return (
                position_gradient(self._regressor, states.q, states.v, states.a),
                evaluate_near(self._regressor, states, points[:1])[:, 0],
                self._combined(evaluate_near(self._regressor, states, points)).swapaxes(1, 2),  # (S, P, c, i)
            )

        middle = evaluate(TermStates(*every))
        for end in (slice(None, -1), slice(1, None)):
            root = factor[whole][end]
            turned, size = root.swapaxes(1, 2), np.abs(root.swapaxes(1, 2) @ root)
            ahead, behind = (
                evaluate(TermStates(*(x[end] + step * dx for x, dx in zip(every, moves, strict=True))))
                for step in (LINE_STEP, -LINE_STEP)
            )
            entries, pushes, near = (
                (x + y - 2.0 * here[end]) / LINE_STEP**2 for x, y, here in zip(ahead, behind, middle, strict=True)
            )
            _, first, second = up_to_second_order(near, n)
            gradients = congruence(root, self._combined(entries))[:, :, None]
            vectors = self._combined(pushes)[:, :, None] @ turned[:, None]
            first = np.moveaxis(first, 2, 1) @ turned[:, None]
            second = congruence(root, np.moveaxis(second, 3, 1).swapaxes(-1, -2))
            values = (
                norms.nominal(gradients)[:, 0],
                norms.vertices(gradients)[:, 0] + flat(size, np.abs(entries) @ self._radius),
                norms.vertices(vectors)[:, 0] + flat_length(size, np.abs(pushes) @ self._radius),
                norms.nominal(second),
                norms.vertices(second) + norms.spread(second),
                norms.vertices(first) + norms.spread(first),
            )
            found.append(LineNorms(*(ROUNDING * x for x in values)))
        return found[0], found[1]
