"""Norms of the slowly varying terms and of their derivatives by position at nodes of a motion (step 1c of the proof).

Everything is linear in the parameters: nominal ones, center and vertices of the payload's set, and the spread about
these. Norms are defined in :mod:`model_terms`; of matrices and slopes the roots of sums of squares serve. The kernel
(``node_norms.hpp``) computes them; derivatives of the inertia are exact, those of the torque are differences with an
allowance for their truncation and rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core import kernel
from sysid_ros.core.model.joint_tree import JointTree
from sysid_ros.core.model.robot import INERTIAL
from sysid_ros.core.tracking_bound.model_terms import OF_INERTIA, ModelTerms, MotionSlopes, TermStates
from sysid_ros.core.tracking_bound.tube import TubeMap
from sysid_ros.core.tracking_bound.uncertainty import Vertices, extreme_inertias

Array = NDArray[np.float64]

NAMES = ("inertia", "coriolis", "ratio", "drag")
"""Terms of the inertia, each with a slope and a rate."""
KINDS = ("slope", "rate")
ORDER = 3
"""Highest order of derivatives at the nodes."""
LINE_STEP: float = kernel.LINE_STEP
"""Step of the differences along the lines between nodes, as a share of these."""


def weighted(weights: Array, values: Array) -> Array:
    """Sum values times weights, (S, k) each, (S,)."""
    total: Array = np.einsum("sk,sk->s", weights, values)
    return total


def flat(metric: Array, entries: Array) -> Array:
    """Bound the norms of matrices with entries up to these, (S, n, n), by the magnitudes of ``M^-1``."""
    squares: Array = np.sum(entries * (metric @ entries @ metric), axis=(-2, -1))
    return np.sqrt(squares)


def flat_length(metric: Array, entries: Array) -> Array:
    """Bound the norms of torques with entries up to these, (S, n)."""
    squares: Array = np.einsum("si,si->s", (entries[:, None] @ metric)[:, 0], entries)
    return np.sqrt(squares)


def norm_of_sum(weights: Array, products: Array) -> Array:
    """Bound norms of sums of parts by joint, (S,), times at most (S, n), by their products (S, m, n, n)."""
    squares = np.sum((weights[:, None, None] @ products)[:, :, 0] * weights[:, None], axis=-1)
    norm: Array = np.sqrt(np.maximum(squares, 0.0)).sum(axis=1)
    return norm


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
    """Second derivatives of torques along lines, at the nodes where these begin or end, (S,), with their slopes.

    Attributes:
        torque: Of the position gradient of the nominal torque.
        model: Of the position gradient of the error.
        error: Of the error.
        torque_slope: Change of the first one with each joint, (S, n).
        model_slope: Likewise.
        error_slope: Likewise.
    """

    torque: Array
    model: Array
    error: Array
    torque_slope: Array
    model_slope: Array
    error_slope: Array


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
        lines: Along the line to the next node, and along that from the one before; zero where there is none.
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
    lines: tuple[LineNorms, ...]


class _Results:
    """Reads the results of the kernel, (S, width), in the order in which it writes them."""

    def __init__(self, rows: Array):
        self._rows, self._at = rows, 0

    def take(self, *shape: int) -> Array:
        begin, self._at = self._at, self._at + int(np.prod(shape))
        return self._rows[:, begin : self._at].reshape(-1, *shape)

    def derivatives(self, n: int, summands: int = 1) -> Derivatives:
        return Derivatives(self.take(summands, n, n), self.take(n, n))

    def slopes(self, n: int) -> MotionSlopes:
        model, torque, rate = self.take(3).T
        return MotionSlopes(model, torque, rate, self.take(n, n))

    def torque(self, n: int, slopes: MotionSlopes) -> TorqueNorms:
        torque, rate, model, errors = (self.derivatives(n, summands) for summands in (1, 1, 1, 2))
        error, error_spread, speed = self.take(3).T
        return TorqueNorms(
            slopes, torque, rate, model, errors, error, error_spread, self.take(n), self.take(n), speed
        )  # fmt: skip

    def line(self, n: int) -> LineNorms:
        torque, model, error = self.take(3).T
        return LineNorms(torque, model, error, self.take(n), self.take(n), self.take(n))


def compute_node_norms(tube_map: TubeMap, states: TermStates) -> NodeNorms:
    """Compute the norms at nodes of a motion, and where the lines between them begin and end."""
    robot, uncertainty = tube_map.robot, tube_map.uncertainty
    n, count = robot.n, len(states.q)
    given = extreme_inertias(robot, uncertainty, states.q)
    center = uncertainty.payloads.vertices.mean(axis=0)
    sets = [uncertainty.vertices, *(Vertices(payloads - center) for _, payloads in given)]
    extremes = [np.empty((*inertias.shape[:2], 2 + 2 * n)) for inertias, _ in given]
    rows = np.empty((count, kernel.node_norms_width(n)))
    JointTree.of(robot).compiled.node_norms(
        np.stack([uncertainty.nominal, uncertainty.center, uncertainty.spread, uncertainty.radius]),
        [(one.used.tolist(), one.weights) for one in sets], [np.ascontiguousarray(x) for x, _ in given],
        np.stack([states.q, states.v, states.a]), rows, extremes,
    )  # fmt: skip
    results = _Results(rows)
    inertia, factor = results.take(n, n), results.take(n, n)
    of_inertia = dict(zip(OF_INERTIA, results.take(len(OF_INERTIA)).T, strict=True))
    moving, still = (results.slopes(n) for _ in range(2))
    terms = ModelTerms(
        moving.model_slope, moving.torque_slope, moving.torque_rate, **of_inertia, inertia=inertia,
        torque_gradient=np.abs(moving.gradient),
    )  # fmt: skip
    arm_change, known = results.take(n), results.take(1)[:, 0]

    def growth() -> tuple[Derivatives, Derivatives, Derivatives]:
        return results.derivatives(n), results.derivatives(n), results.derivatives(n, 1 + INERTIAL)

    of_m, *others = (growth() for _ in range(4))
    first = {f"{name}_{kind}": results.take(1, n, n) for kind in KINDS for name in NAMES}
    for kind in KINDS:
        parts = first[f"drag_{kind}"], first[f"coriolis_{kind}"]
        first[f"drag_{kind}"] = np.concatenate(parts, axis=1)
    ratios = [
        ExtremeRatios(
            results.take(1)[:, 0], one[..., 0], one[..., 1], one[..., 2 : 2 + n], one[..., 2 + n :],
            results.derivatives(n),
        )
        for one in extremes
    ]  # fmt: skip
    return NodeNorms(
        terms, factor, *of_m, arm_change, known, dict(zip((*KINDS, "coriolis"), others, strict=True)), first,
        (ratios[0], ratios[1]), results.torque(n, moving), results.torque(n, still),
        tuple(results.line(n) for _ in range(2)),
    )  # fmt: skip
