"""Exact derivatives of inertia and torque by the positions of the joints, up to the third order (step 1c of the proof).

*Inertia.* Let i <= j. With axes s as twists and the composite inertia I of the bodies beyond j, all in the frame of the
base, ``M_ij = s_i^T I s_j``. It depends on the joints k > i only. One of these up to j turns ``I s_j``, a wrench, and
one beyond j turns the inertia ``I_k`` of the bodies beyond k: ``D_k I = crf(s_k) I_k - I_k crm(s_k)``. With several of
them outer joints turn first, so that derivatives are products of these.

*Torque.* It is linear in the parameters, and differences of its regressor serve.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import combinations, combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.spatial import motion_cross, motion_transform, skew
from sysid_ros.core.model.inertia import unit_inertias
from sysid_ros.core.model.joint_tree import JointTree
from sysid_ros.core.model.robot import INERTIAL, RobotModel
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.tracking_bound.inertia_columns import position_derivative
from sysid_ros.core.tracking_bound.model_terms import TermStates

Array = NDArray[np.float64]
Index = NDArray[np.intp]

ORDER = 3
"""Highest order."""
_SECOND, _THIRD = 1e-3, 5e-3
"""Steps of the differences of the torque [rad], for derivatives up to the second order, and of the third."""
ROUNDING = 1.001
"""Allowance for the truncation and rounding of these differences."""


@lru_cache
def joints_of(n: int, order: int) -> list[tuple[int, ...]]:
    """List the joints of each derivative of an order, in ascending order: one row for each of K derivatives."""
    return list(combinations_with_replacement(range(n), order))


@lru_cache
def places(n: int, order: int) -> Index:
    """Return the number in :func:`joints_of` of a derivative by any joints, (n, ..., n)."""
    found = np.zeros((n,) * order, dtype=np.intp)
    numbers = {joints: k for k, joints in enumerate(joints_of(n, order))}
    for at in np.ndindex(found.shape):
        found[at] = numbers[tuple(sorted(at))]
    return found


@lru_cache
def by_pair_and_joint(n: int) -> Index:
    """Return the number of the third derivative by each pair of joints and another one, (K, n)."""
    return np.stack([places(n, ORDER)[pair] for pair in joints_of(n, ORDER - 1)])


def inertia_derivatives(robot: RobotModel, bodies: Array, q: Array) -> list[Array]:
    """Differentiate inertias by position.

    Args:
        robot: The arm.
        bodies: Parameters of its bodies, c sets of them, (c, 10 n).
        q: Positions, (S, n) [rad].

    Returns:
        The derivatives of order 1, 2 and 3, (S, c, K, n, n), in the order of :func:`joints_of`.
    """
    n, joint, (axes, frames) = robot.n, np.arange(robot.n), _axes_and_frames(robot, q)
    matrices = np.tensordot(bodies.reshape(len(bodies), n, INERTIAL), unit_inertias(), (2, 0))  # (c, b, 6, 6)
    own = np.einsum("sbxi,cbxy,sbyj->sbcij", frames, matrices, frames, optimize=True)
    composite = np.cumsum(own[:, ::-1], axis=1)[:, ::-1]  # (S, j, c, 6, 6)
    wrenches = np.zeros((*axes.shape[:2], 6, 6))  # crf of the axes
    wrenches[..., :3, :3] = wrenches[..., 3:, 3:] = skew(axes[..., 3:])
    wrenches[..., 3:, :3] = skew(axes[..., :3])
    turned, lefts = [composite], [axes[:, None]]
    for order in range(1, ORDER + 1):
        joints, before = np.array(joints_of(n, order)), places(n, order - 1)
        inner = turned[-1][:, before[tuple(joints[:, 1:].T)] if order > 1 else joint]
        half = wrenches[:, joints[:, 0], None] @ inner
        turned.append(half + half.swapaxes(-1, -2))
        # s_i^T crf(s_k) crf(s_l) ... for i < k <= l <= ...
        outer = lefts[-1][:, before[tuple(joints[:, :-1].T)] if order > 1 else np.zeros(n, dtype=np.intp)]
        left = motion_cross(outer, np.broadcast_to(axes[:, joints[:, -1], None], outer.shape))
        lefts.append(left * (joint < joints[:, :1])[..., None])
    return [_assemble(axes, turned, lefts, order) for order in range(1, ORDER + 1)]


def jacobian_derivatives(jacobian: Array) -> tuple[Array, Array]:
    """Differentiate Jacobians of a body in its own frame once and twice, (S, k, 6, m) and (S, k, j, 6, m).

    A column turns with all joints between its own and the body: ``dJ_i/dq_j = J_i x J_j`` for i before j. The Jacobian
    (S, 6, m) has the m joints that move the body, base first.
    """
    columns, joint = jacobian.swapaxes(1, 2), np.arange(jacobian.shape[2])  # (S, i, 6)
    once = position_derivative(jacobian)
    first = once.swapaxes(2, 3)  # (S, j, i, 6)
    second = motion_cross(first[:, :, None], columns[:, None, :, None])
    second = second + motion_cross(columns[:, None, None], first[:, :, :, None])
    return once, (second * (joint < joint[:, None])[..., None]).swapaxes(3, 4)


def _assemble(axes: Array, turned: list[Array], lefts: list[Array], order: int) -> Array:
    """Combine derivatives of one order: joints up to j act from the left, outer ones on the inertia."""
    count, n, _ = axes.shape
    sets = turned[0].shape[2]
    result = np.zeros((count, sets, len(joints_of(n, order)), n, n))
    for j in range(n):
        for inside in range(order + 1):
            near = [k for k, joints in enumerate(joints_of(n, inside)) if not joints or joints[-1] <= j]
            far = [k for k, joints in enumerate(joints_of(n, order - inside)) if not joints or joints[0] > j]
            if not (near and far):
                continue
            beyond = turned[0][:, j : j + 1] if inside == order else turned[order - inside][:, far]
            wrench = (beyond @ axes[:, None, None, j, :, None])[..., 0]  # (S, f, c, 6)
            left = lefts[inside][:, near, : j + 1].reshape(count, -1, 6)
            values = left[:, None] @ wrench.reshape(count, 1, -1, 6).swapaxes(-1, -2)  # (S, 1, k i, f c)
            values = values.reshape(count, len(near), j + 1, len(far), sets).transpose(0, 4, 1, 3, 2)
            joints = [(*joints_of(n, inside)[k], *joints_of(n, order - inside)[f]) for k in near for f in far]
            at = places(n, order)[tuple(np.array(joints).T)]
            values = values.reshape(count, sets, len(at), j + 1)
            result[..., j][:, :, at, : j + 1] = values
            result[..., j, :][:, :, at, : j + 1] = values
    return result


def _axes_and_frames(robot: RobotModel, q: Array) -> tuple[Array, Array]:
    """Compute the axes of the joints as twists in the base's frame, (S, n, 6), and motions seen from bodies (6, 6)."""
    frames = JointTree.of(robot).frames(q)
    rotations, origins = np.moveaxis(frames.rotation, -1, 0).swapaxes(-1, -2), np.moveaxis(frames.origin, -1, 0)
    return np.moveaxis(frames.axes, -1, 0).copy(), motion_transform(rotations, origins)


@lru_cache
def _odd_points(n: int) -> Array:
    """List the points at which odd functions are evaluated for third derivatives, in steps, (P, n)."""
    units = np.eye(n)
    pairs = [units[k] + sign * units[m] for sign in (1.0, -1.0) for k, m in combinations(range(n), 2)]
    triples = [units[[k, m, o]].sum(axis=0) for k, m, o in combinations(range(n), 3)]
    return np.concatenate([units, 2.0 * units, pairs, triples])


def evaluate_near(regressor: TorqueRegressor, states: TermStates, shifts: Array) -> Array:
    """Evaluate the inertial columns of the torque at positions shifted by (P, n) [rad], (S, P, i, l)."""
    count, n = states.q.shape
    shifted = (states.q[:, None] + shifts).reshape(-1, n)
    v, a = (np.repeat(x, len(shifts), axis=0) for x in (states.v, states.a))
    values: Array = regressor.evaluate(shifted, v, a).reshape(count, len(shifts), n, -1)[..., : INERTIAL * n]
    return values


@lru_cache
def points_about(n: int) -> Array:
    """List the shifts [rad] from which :func:`up_to_second_order` differentiates, (P, n)."""
    units, (rows, columns) = np.eye(n), np.triu_indices(n, 1)
    pairs = units[rows] + units[columns]
    return _SECOND * np.concatenate([np.zeros((1, n)), units, -units, pairs, -pairs])


def up_to_second_order(values: Array, n: int) -> tuple[Array, Array, Array]:
    """Differentiate values known at :func:`points_about`, (S, P, ...), by position.

    Returns:
        Values (S, ...), first (S, k, ...) and second derivatives (S, j, k, ...).
    """
    (rows, columns), joint = np.triu_indices(n, 1), np.arange(n)
    at, ahead, behind, *both = np.split(values, np.cumsum([1, n, n, len(rows)]), axis=1)
    single = ahead + behind - 2.0 * at
    bends = np.zeros((len(values), n, n, *values.shape[2:]))
    bends[:, joint, joint] = single / _SECOND**2
    mixed = 0.5 * (both[0] + both[1] - 2.0 * at - single[:, rows] - single[:, columns]) / _SECOND**2
    bends[:, rows, columns] = bends[:, columns, rows] = mixed
    return at[:, 0], (ahead - behind) / (2.0 * _SECOND), bends


def third_derivatives(regressor: TorqueRegressor, states: TermStates, combine: Callable[[Array], Array]) -> Array:
    """Differentiate the torque three times by position, (S, c, K, i), in the order of :func:`joints_of`.

    ``combine`` turns values (S, ..., l) by parameter into those of some parameters, (S, c, ...).
    """
    shifts = _THIRD * _odd_points(states.q.shape[1])
    more, less = (combine(evaluate_near(regressor, states, sign * shifts)) for sign in (1.0, -1.0))
    odd = 0.5 * (more - less)  # (S, c, P, i)
    third = _third_derivatives(odd.reshape(-1, *odd.shape[2:]))
    return third.reshape(*odd.shape[:2], *third.shape[1:])


def _third_derivatives(odd: Array) -> Array:
    """Combine odd parts at :func:`_odd_points`, (N, P, i), (N, K, i)."""
    n = odd.shape[2]
    (rows, columns), triples = np.triu_indices(n, 1), np.array(list(combinations(range(n), 3))).reshape(-1, 3)
    count = len(rows)
    single, double, total, difference, three = np.split(odd, np.cumsum([n, n, count, count]), axis=1)
    result, place = np.zeros((len(odd), len(joints_of(n, ORDER)), n)), places(n, ORDER)
    joint = np.arange(n)
    result[:, place[joint, joint, joint]] = double - 2.0 * single
    total = total - single[:, rows] - single[:, columns]
    difference = difference - single[:, rows] + single[:, columns]
    result[:, place[rows, rows, columns]] = total - difference
    result[:, place[rows, columns, columns]] = total + difference
    if len(triples):
        first, second, last = triples.T
        pair = np.zeros((n, n), dtype=np.intp)
        pair[rows, columns] = np.arange(count)
        by_pair = total[:, pair[first, second]] + total[:, pair[first, last]] + total[:, pair[second, last]]
        alone = single[:, first] + single[:, second] + single[:, last]
        result[:, place[first, second, last]] = three - by_pair - alone
    return result / _THIRD**ORDER
