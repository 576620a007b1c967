"""Bounds of the derivatives of inertia and torque by position that hold at any positions near a node (step 1c).

*Inertia.* With ``B v`` the velocities of all bodies and E their inertias, ``M = B^T E B``. A derivative of B by joints,
the innermost of them k, is the velocity of the link before k, crossed with the axis of k and turned by the joints
between k and the body, for any number of derivatives. In the energy of the bodies beyond, of which distances are at
most the lengths of the chain, its norm is at most ``kappa_k`` at the node, and at most that plus
``sum_(i < k) kappa_i |e_i|`` near it. So one number for each joint bounds all derivatives of B, and bounds of its
products follow.

*Torque.* An entry of the inertia is a sum over the bodies of products of two columns, of magnitudes that the chain
bounds, in which a joint turns none, one or both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.spatial import cross
from sysid_ros.core.model.mechanics import joint_axis
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.tracking_bound.between import BodySizes, chain_lengths
from sysid_ros.core.tracking_bound.inertia_columns import body_jacobians, congruence
from sysid_ros.core.tracking_bound.node_norms import weighted

Array = NDArray[np.float64]

_TINY = 1e-12
"""Least mass and inertia [kg, kg m^2] of a body, so that scales exist."""


class Energies:
    """Bounds of all derivatives of B, for bodies of some inertias, at S nodes.

    Args:
        robot: The arm.
        sizes: Largest magnitudes of the bodies.
        q: Positions of the nodes, (S, n) [rad].
        speed: Largest speeds near them, (S, n) [rad/s].
        factor: ``M^-1/2`` there, (S, n, n).
        is_nominal: Whether the bodies are those of M: then ``|B|`` is 1.

    Attributes:
        kappa: See above, (S, n).
    """

    def __init__(self, robot: RobotModel, sizes: BodySizes, q: Array, speed: Array, factor: Array, is_nominal: bool):
        n, model, self._speed = robot.n, robot.pin_model, speed
        steps = [float(np.linalg.norm(model.jointPlacements[body + 1].translation)) for body in range(n)]
        jacobians = body_jacobians(robot, q)
        mass, first, second = (np.maximum(x, _TINY) for x in (sizes.mass, sizes.first, sizes.second))
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
            self._size = np.ones(len(q))
        else:
            weights = np.repeat(np.stack([mass, second], axis=1), 3, axis=1)
            whole = np.einsum("bsxi,bx,bsxj->sij", jacobians, weights, jacobians)
            self._size = np.sqrt(np.linalg.eigvalsh(congruence(factor, whole))[:, -1])
        inverse = np.swapaxes(factor, 1, 2) @ factor
        self._metric = np.abs(inverse)
        self._speed_norm = np.sqrt(np.einsum("sk,skl,sl->s", speed, np.abs(np.linalg.inv(inverse)), speed))

    def inertia(self, away: Array, *directions: Array) -> Array:
        """Bound the derivative of the inertia of the bodies along directions (S, n) [rad] of joints, (S,).

        It holds within ``away`` (S, n) [rad] of the nodes, for one direction of largest magnitudes per order.
        """
        form = self._near(away)
        return _of_product(form, form, directions)

    def slope(self, away: Array, *directions: Array) -> Array:
        """Bound the derivative of the slope of the inertia, for any velocity of norm one; see :meth:`inertia`."""
        return self._turned(self._any_direction, away, directions)

    def rate(self, away: Array, *directions: Array) -> Array:
        """Bound the derivative of the rate of the inertia; see :meth:`inertia`."""
        return self._turned(lambda kappa: np.einsum("s...k,sk->s...", kappa, self._speed), away, directions)

    def coriolis(self, away: Array, *directions: Array) -> Array:
        """Bound the derivative of the Coriolis matrix of the velocity; see :meth:`inertia`.

        Half of it is the rate; in both other parts the velocity takes the place of a direction.
        """
        bound: Array = 0.5 * self.rate(away, *directions) + self._speed_norm * self.slope(away, *directions)
        return bound

    def _any_direction(self, kappa: Array) -> Array:
        """Bound norms of ``sum_k x_k X_k`` for ``|x| <= 1``, (S, ...), of those of X_k, (S, ..., n)."""
        rows = kappa.reshape(len(kappa), -1, kappa.shape[-1]) @ self._metric
        squares: Array = np.sum(rows.reshape(kappa.shape) * kappa, axis=-1)
        return np.sqrt(squares)

    def _near(self, away: Array) -> tuple[Array, Array]:
        """Bound kappa and the norm of B within (S, n) [rad] of the nodes."""
        kappa: Array = self.kappa.copy()
        for k in range(kappa.shape[1]):
            kappa[:, k] += np.einsum("si,si->s", kappa[:, :k], away[:, :k])
        return kappa, self._size + weighted(away, kappa)

    def _turned(self, of: Callable[[Array], Array], away: Array, directions: Sequence[Array]) -> Array:
        kappa, size = self._near(away)
        joint = np.arange(kappa.shape[1])
        turned = of(kappa[:, np.minimum(joint[:, None], joint)])
        return 2.0 * _of_product((turned, of(kappa)), (kappa, size), directions)


def _of_product(left: tuple[Array, Array], right: tuple[Array, Array], directions: Sequence[Array]) -> Array:
    """Differentiate a product of two factors along directions (S, n), (S,).

    Args:
        left: Bounds of the derivatives of a factor by the innermost of some joints, (S, n), and of itself, (S,).
        right: Of the other factor.
        directions: Largest magnitudes.
    """
    # Of one factor along any of the directions, numbered in binary, and of the other along all others.
    through = np.ones((1, *left[0].shape))
    for one in directions:
        tails = np.cumsum(one[:, ::-1], axis=1)[:, ::-1]  # all joints from k on
        through = np.concatenate([through, through * tails])
    innermost = through.copy()
    innermost[..., :-1] -= through[..., 1:]
    factors = []
    for by_joint, value in (left, right):
        values = np.einsum("msk,sk->ms", innermost, by_joint)
        values[0] = value
        factors.append(values)
    total: Array = np.sum(factors[0] * factors[1][::-1], axis=0)
    return total


class TorqueDerivatives:
    """Bounds of the derivatives of a torque by position, entry by entry, at any positions.

    The derivative has this order, along a direction in which all joints together turn by one radian.

    Args:
        robot: The arm.
        sizes: Largest magnitudes of the bodies.
        order: The order.
    """

    def __init__(self, robot: RobotModel, sizes: BodySizes, order: int):
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
        parts = parts * places.max(axis=1) ** order
        self._size = parts.sum(axis=0)
        self._slope = np.einsum("bkij,bij->kij", places, parts)
        bent = np.einsum("blij,bkij,bij->lkij", places, places, parts)
        # The torque of velocities is sum_jl (dM_ij/dq_l - dM_jl/dq_i / 2) v_j v_l.
        self._quadratic = self._slope.transpose(1, 2, 0) + 0.5 * self._slope  # (i, j, l)
        self._bent = bent.transpose(1, 2, 3, 0) + 0.5 * bent.transpose(1, 0, 2, 3)  # (k, i, j, l)
        # Of the potential energy, only the part beyond the outermost of two joints moves with both.
        beyond = np.einsum("b,ob->o", sizes.mass, lengths) + np.cumsum(sizes.first[::-1])[::-1]
        self._weight = float(np.linalg.norm(robot.gravity)) * beyond

    def slope(self, v: Array, a: Array, weight: Array) -> Array:
        """Bound the derivative of ``dtau_i/dq_k``, (S, k, i), with gravity times ``weight``, (S,)."""
        n = len(self._weight)
        outer = np.maximum(np.arange(n)[:, None], np.arange(n))
        moved = np.tensordot(a, self._slope, (1, 2)) + np.tensordot(_pairs(v), self._bent, ((1, 2), (2, 3)))
        bound: Array = moved + weight[:, None, None] * self._weight[outer]
        return bound

    def torque(self, v: Array, a: Array, weight: Array) -> Array:
        """Bound the derivative of the torque likewise, (S, i)."""
        moved = a @ self._size + np.tensordot(_pairs(v), self._quadratic, ((1, 2), (1, 2)))
        bound: Array = moved + weight[:, None] * self._weight
        return bound


def _pairs(v: Array) -> Array:
    """Return the products of all pairs of entries of vectors (S, n), (S, n, n)."""
    products: Array = v[:, :, None] * v[:, None]
    return products
