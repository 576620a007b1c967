"""Torque regressor blocks of many samples at once, from the kinematics of a tree in the frames of its bodies.

In a frame of body i with the z axis along its joint, let d be the acceleration of its origin with gravity taken off, w
and u its angular velocity and acceleration, and ``A = [u]x + [w]x^2``. A body with unit parameter has the wrench

* ``(d, 0)`` for the mass, ``(A e_k, e_k x d)`` for the first moments, ``(0, J_k)`` for the moments of inertia,

with J linear in u and in products of w. Joint j, which moves the origin of body i with l and turns it with a per unit
of its speed, needs ``l . force + a . moment``. Everything is passed on from body to body: a constant map, the same for
``(d, u)`` and all ``(l, a)``, what the turning adds to d, and a turn about the axis of the joint.

Arrays keep the samples last, so that numpy's inner loops run over them. Sums of products are ``einsum``, which keeps no
products, and constant maps are matrix products. All operations work on fixed arrays and are recorded once: as a list
they take less time than the same statements with their slices.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.spatial import axis_frame, skew
from sysid_ros.core.model.robot import INERTIAL
from sysid_ros.core.regressors.body_columns import INERTIA_AXES
from sysid_ros.core.regressors.joint_tree import JointTree
from sysid_ros.core.regressors.operation_tape import Tape

Array = NDArray[np.float64]

_NEGLIGIBLE = 1e-15
"""Entries of constant rotations below this are rounding of zero."""
AXIS = np.array([0.0, 0.0, 1.0])
_PRODUCTS = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2))
"""Pairs of axes in the order in which products of the angular velocity are computed."""
_CENTRIPETAL = np.einsum("ij,k->ijk", np.eye(3), AXIS) - np.einsum("i,jk->ijk", AXIS, np.eye(3))
"""``w x (w x z)_i = sum_jk K_ijk w_j w_k``, z the axis of the joint."""


@dataclass(frozen=True)
class Link:
    """A body and its joint, in frames whose z axis is the axis of the joint.

    Attributes:
        parent: Body before it, -1 for the base.
        joints: Joints that move it, its own last, (k,).
        transform: Map of ``(l, a)`` from the parent's frame to this one at joint position zero, (6, 6).
        centripetal: What ``w_i w_k`` of the parent adds to d, (3, 6), in the order of the products; None for zero.
        spin: Rotation per unit of the joint position, 1 or 0.
        pitch: Translation along the axis per unit of the joint position.
        parameters: Map of a body's parameters to those in this frame, (10, 10); None where they are the same.
    """

    parent: int
    joints: NDArray[np.intp]
    transform: Array
    centripetal: Array | None
    spin: float
    pitch: float
    parameters: Array | None


def _snap(matrix: Array) -> Array:
    """Make entries that are 0 or 1 up to rounding exactly that."""
    snapped = np.where(np.abs(np.abs(matrix) - 1.0) < _NEGLIGIBLE, np.sign(matrix), matrix)
    return np.where(np.abs(snapped) < _NEGLIGIBLE, 0.0, snapped)


def as_slice(index: NDArray[np.intp]) -> slice | NDArray[np.intp]:
    """Return consecutive indices as a slice, with which numpy copies faster."""
    is_range = index[-1] - index[0] + 1 == index.size
    return slice(int(index[0]), int(index[-1]) + 1) if is_range else index


def _turn_parameters(turn: Array) -> Array:
    """Build the map (10, 10) of inertial parameters to another frame, given the rotation (3, 3) of vectors."""
    result = np.zeros((INERTIAL, INERTIAL))
    result[0, 0], result[1:4, 1:4] = 1.0, turn
    for column, (i, k) in enumerate(INERTIA_AXES):
        inertia = np.zeros((3, 3))
        inertia[i, k] = inertia[k, i] = 1.0
        turned = turn @ inertia @ turn.T
        result[4:, 4 + column] = [turned[pair] for pair in INERTIA_AXES]
    return result


def build_links(tree: JointTree) -> list[Link]:
    """Describe the bodies and joints of a tree in frames whose z axes are those of the joints."""
    frames = [np.eye(3)]  # of the base, then from each body's own frame to the one used here
    result: list[Link] = []
    for body, parent in enumerate(tree.parents):
        angular, linear = tree.axis_angular[body], tree.axis_linear[body]
        axis = angular if angular.any() else linear / np.linalg.norm(linear)
        frame = axis_frame(axis / np.linalg.norm(axis))
        terms = tree.pose_terms[body]
        zero = (terms[:9, 0] + terms[:9, 1]).reshape(3, 3).T  # of the body in its parent
        before = frames[parent + 1].T
        turn, position = _snap((before @ zero @ frame).T), before @ terms[9:, 0]
        outer = np.array([np.outer(_UNIT[i], _UNIT[k]) + (i != k) * np.outer(_UNIT[k], _UNIT[i]) for i, k in _PRODUCTS])
        square = outer - np.trace(outer, axis1=1, axis2=2)[:, None, None] * np.eye(3)  # (6, 3, 3): [w]x^2
        result.append(
            Link(
                parent=parent,
                joints=np.flatnonzero(tree.is_ancestor[:, body]),
                transform=np.block([[turn, -turn @ skew(position)], [np.zeros((3, 3)), turn]]),
                centripetal=turn @ (square @ position).T if position.any() else None,
                spin=float(np.linalg.norm(angular)),
                pitch=float(linear @ axis),
                parameters=None if np.array_equal(frame, np.eye(3)) else _turn_parameters(_snap(frame.T)),
            )
        )
        frames.append(frame)
    return result


_UNIT = np.eye(3)


def _feature_matrix() -> Array:
    """Build the matrix (39, 12) that makes force (4, 3) and moment (9, 3) from u, products of w, and d.

    Force holds d and A; moment ``e_k x d`` and J.
    """
    product = {pair: 3 + k for k, pair in enumerate(_PRODUCTS)} | {(j, i): 3 + k for k, (i, j) in enumerate(_PRODUCTS)}
    levi = np.zeros((3, 3, 3))
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        levi[i, j, k], levi[i, k, j] = 1.0, -1.0
    force, moment = np.zeros((3, 4, 12)), np.zeros((3, 9, 12))
    inertia = moment[:, 3:]
    for i in range(3):
        force[i, 0, 9 + i] = 1.0
        for k in range(3):
            force[i, 1 + k, :3] = levi[i, :, k]
            force[i, 1 + k, product[i, k]] += 1.0
            moment[i, k, 9:] = levi[i, k]
        force[i, 1 + i, [product[k, k] for k in range(3)]] -= 1.0
    for column, (i, k) in enumerate(INERTIA_AXES):
        for row, other in ((i, k), (k, i))[: 1 + (i != k)]:  # the unit inertia is e_row e_other^T + its transpose
            inertia[row, column, other] += 1.0
            for turned in range(3):
                for about in range(3):
                    inertia[turned, column, product[about, other]] += levi[turned, about, row]
    return np.concatenate([part.swapaxes(0, 1).reshape(-1, 12) for part in (force, moment)])


def _by_products() -> Array:
    """Build the matrix (9, 6) that spreads derivatives by products of w to a matrix B, for ``B w`` by w."""
    result = np.zeros((3, 3, 6))
    for column, (i, k) in enumerate(_PRODUCTS):
        result[i, k, column] += 1.0
        result[k, i, column] += 1.0
    return result.reshape(9, 6)


FEATURES = _feature_matrix()
_SPREAD = _by_products()
_REVERSE_FEATURES = np.ascontiguousarray(
    np.concatenate([FEATURES[:, :3], FEATURES[:, 3:9] @ _SPREAD.T, FEATURES[:, 9:]], axis=1).T
)  # (15, 39)


def record_rotations(tape: Tape, positions: Array, turns: Array) -> None:
    """Append the rotations (n, 2, 2, N) of x and y about z by the negative of the positions (n, N)."""
    tape.record(np.cos, positions, turns[:, 0, 0])
    tape.record(np.sin, positions, turns[:, 0, 1])
    tape.record(np.positive, turns[:, 0, 0], turns[:, 1, 1])
    tape.record(np.negative, turns[:, 0, 1], turns[:, 1, 0])


def record_move(tape: Tape, link: Link, position: Array, before: Array, flat: Array) -> None:
    """Append the map of motions (6, m, N) of the body before to the origin of this one, before the turn of its joint.

    Args:
        tape: Where to append it.
        link: The body.
        position: Of its joint, (N,).
        before: Motions in the frame of the body before, linear before angular.
        flat: The same after the map.
    """
    tape.record(np.matmul, link.transform, before.reshape(6, -1), flat.reshape(6, -1))
    if link.pitch:  # along the axis of the joint, which the turn about it leaves alone
        place = np.zeros_like(position)
        tape.record(np.multiply, position, link.pitch, place)
        tape.add_product(flat[4], place, flat[0])
        tape.add_product(flat[3], place, flat[1], -1.0)


def record_turn(tape: Tape, link: Link, turn: Array, flat: Array, turned: Array) -> None:
    """Append the turn (2, 2, N) of motions (6, m, N) about the axis of a joint."""
    if not link.spin:
        tape.record(np.positive, flat, turned)
        return
    count = flat.shape[1]
    pairs, result = (part.reshape(2, 3, count, -1)[:, :2] for part in (flat, turned))
    tape.sum_products("rpn,apmn->armn", turn, pairs, result)
    tape.record(np.positive, flat[2::3], turned[2::3])


def record_own(tape: Tape, link: Link, force: Array, moment: Array, own: Array) -> None:
    """Append what a body's force (4, 3, N) and moment (9, 3, N) are for its own joint, (10, N)."""
    tape.record(np.multiply, moment[:, 2], link.spin, own[1:])  # l = pitch e_z, a = spin e_z
    tape.record(np.multiply, force[0, 2], link.pitch, own[0])
    if link.pitch:
        tape.add_product(force[1:, 2], link.pitch, own[1:4])


_SIZES = (132, 264, 528)
"""Numbers of samples that operations are recorded for; no powers of two, whose strides collide in the cache.

Those of one, two and four motions of the planner, by its usual settings, each just fit.
"""
LARGEST_CHUNK = _SIZES[-1]
"""Most samples at a time."""


class _Program:
    """The recorded operations for a number of samples.

    Of each body are kept: its motion (6, 2 + k, N), linear before angular, with the columns ``(-, w)``, ``(d, u)`` and
    ``(l, a)`` of the k joints that move it, its own last; products of w (6, N); and force and moment, (39, N).

    Args:
        links: Bodies and joints.
        order: Bodies whose motion is needed, each after the one before it.
        bodies: Bodies whose blocks are wanted.
        gravity: In the base frame, (3,) [m/s^2].
        samples: Number of samples.

    Attributes:
        states: Positions, velocities and accelerations to fill in, (3, n, N).
        place: Operations that pass the motion on.
        values: The blocks of each body, or the weights of their derivatives, (k, 10, N), all in the same place.
        blocks: Operations that write the blocks of each body.
    """

    def __init__(
        self, links: Sequence[Link], order: Sequence[int], bodies: Sequence[int], gravity: Array, samples: int
    ):
        n = len(links)
        self._links, self._order, self._bodies, self._samples = links, order, bodies, samples
        self._scratch = np.empty(max(n + 2, 4) * samples)
        self._flat, self._other = np.empty((2, max(6 * (n + 2), INERTIAL * n) * samples))
        self.states, self._turns = np.zeros((3, n, samples)), np.zeros((n, 2, 2, samples))
        self._features = np.zeros((12, samples))
        self._flats = {body: np.zeros((6, self._width(body) - 1, samples)) for body in order if links[body].pitch}
        self._motions = {body: np.zeros((6, self._width(body), samples)) for body in (*order, -1)}
        self._motions[-1][:3, 1] = -gravity[:, None]
        self._products = {body: np.zeros((6, samples)) for body in (*order, -1)}
        self._wrenches = {body: np.zeros((39, samples)) for body in bodies}
        self._values = np.zeros((n, INERTIAL, samples))
        self.values = {body: self._values[: len(links[body].joints)] for body in bodies}
        self.place = Tape(self._scratch)
        record_rotations(self.place, self.states[0], self._turns)
        for body in order:
            self._record_motion(body)
        self.blocks = [self._record_blocks(body) for body in bodies]
        self._reverse: list[tuple[int | None, Tape]] | None = None

    def _width(self, body: int) -> int:
        return 2 + (len(self._links[body].joints) if body >= 0 else 0)

    def _parts(self, body: int) -> tuple[Array, Array]:
        """Return force (4, 3, N) and moment (9, 3, N) of a body."""
        wrench = self._wrenches[body]
        return wrench[:12].reshape(4, 3, -1), wrench[12:].reshape(9, 3, -1)

    def _record_motion(self, body: int) -> None:
        link, tape, motion = self._links[body], self.place, self._motions[body]
        before = self._motions[link.parent]
        count = before.shape[1]
        flat = self._flats.get(body, self._flat[: 6 * count * self._samples].reshape(6, count, -1))
        record_move(tape, link, self.states[0, body], before, flat)
        if link.centripetal is not None and link.parent >= 0:
            added = self._other[: 3 * self._samples].reshape(3, -1)
            tape.record(np.matmul, link.centripetal, self._products[link.parent], added)
            tape.record(np.add, flat[:3, 1], added, flat[:3, 1])
        if link.pitch:
            self._record_slide(body, flat)
        turned = motion[:, :count]
        record_turn(tape, link, self._turns[body], flat, turned)
        motion[:3, -1], motion[3:, -1] = link.pitch * AXIS[:, None], link.spin * AXIS[:, None]
        w, u, d = motion[3:, 0], motion[3:, 1], motion[:3, 1]
        v, a = self.states[1:, body]
        for rate, factor in ((d, 2.0 * link.pitch), (u, link.spin)):
            if not factor:
                continue
            speed = v if factor == 1.0 else np.zeros(self._samples)
            if speed is not v:
                tape.record(np.multiply, v, factor, speed)
            tape.add_product(w[1], speed, rate[0])
            tape.add_product(w[0], speed, rate[1], -1.0)
        for rate, factor, value in ((d, link.pitch, a), (u, link.spin, a), (w, link.spin, v)):
            if factor == 1.0:
                tape.record(np.add, rate[2], value, rate[2])
            elif factor:
                tape.add_product(value, factor, rate[2])
        products = self._products[body]
        tape.record(np.multiply, w[0], w, products[:3])
        tape.record(np.multiply, w[1], w[1:], products[3:5])
        tape.record(np.multiply, w[2], w[2], products[5])
        if body in self._wrenches:
            for k, part in ((0, u), (3, products), (9, d)):
                tape.record(np.positive, part, self._features[k : k + len(part)])
            tape.record(np.matmul, FEATURES, self._features, self._wrenches[body])

    def _record_slide(self, body: int, flat: Array) -> None:
        """Add to d what the angular velocity does to an origin that is away along the axis of the joint."""
        tape, place, added = self.place, np.zeros(self._samples), np.zeros((3, self._samples))
        tape.record(np.multiply, self.states[0, body], self._links[body].pitch, place)
        w = flat[3:, 0]
        tape.sum_products("ijk,jn,kn,n->in", _CENTRIPETAL, w, w, place, added)
        tape.record(np.add, flat[:3, 1], added, flat[:3, 1])

    def _record_blocks(self, body: int) -> Tape:
        tape, link, motion, values = Tape(self._scratch), self._links[body], self._motions[body], self.values[body]
        force, moment = self._parts(body)
        result = values if link.parameters is None else self._other[: values.size].reshape(values.shape)
        others = result[:-1]
        if len(others):
            slides, axes = motion[:3, 2:-1], motion[3:, 2:-1]
            by_force = self._flat[: 4 * others[:, 0].size].reshape(len(others), 4, -1)
            tape.sum_products("cjn,mcn->jmn", slides, force, by_force)
            tape.sum_products("cjn,mcn->jmn", axes, moment, others[:, 1:])
            tape.record(np.positive, by_force[:, 0], others[:, 0])
            tape.record(np.add, others[:, 1:4], by_force[:, 1:], others[:, 1:4])
        record_own(tape, link, force, moment, result[-1])
        if link.parameters is not None:
            tape.record(np.matmul, np.ascontiguousarray(link.parameters.T), result, values)
        return tape

    # Reverse derivative

    @property
    def reverse(self) -> list[tuple[int | None, Tape]]:
        """Tapes in their order, each with the body whose weights it needs in the place of its blocks."""
        if self._reverse is None:
            self.slopes = np.zeros((3, len(self._links), self._samples))
            self._by = {body: np.zeros_like(self._motions[body]) for body in self._order}
            self._by_wrenches = {body: np.zeros((39, self._samples)) for body in self._bodies}
            self._by_products = {body: np.zeros((9, self._samples)) for body in self._order}
            self._reverse = self._record_reverse()
        return self._reverse

    def _record_reverse(self) -> list[tuple[int | None, Tape]]:
        result: list[tuple[int | None, Tape]] = []
        begun: set[int] = set()
        for body in reversed(self._order):
            for needed in (body, self._links[body].parent):  # what is passed on adds to what the blocks have written
                if needed >= 0 and needed not in begun:
                    begun.add(needed)
                    result.append((needed if needed in self.values else None, self._record_start(needed)))
            tape = Tape(self._scratch)
            self._record_reverse_products(tape, body)
            self._record_reverse_motion(tape, body)
            result.append((None, tape))
        return result

    def _record_start(self, body: int) -> Tape:
        """Set derivatives by a body's motion and its products to what its blocks contribute, zero for the others."""
        tape, by, products = Tape(self._scratch), self._by[body], self._by_products[body]
        if body not in self.values:
            tape.record(products.fill, 0.0)
            tape.record(by.fill, 0.0)
            return tape
        self._record_reverse_blocks(tape, body)
        wrench = self._by_wrenches[body]
        tape.record(by[:, 0].fill, 0.0)
        for rows, out in ((slice(3), by[3:, 1]), (slice(3, 12), products), (slice(12, 15), by[:3, 1])):
            tape.record(np.matmul, _REVERSE_FEATURES[rows], wrench, out)
        return tape

    def _record_reverse_blocks(self, tape: Tape, body: int) -> None:
        link, motion, weight = self._links[body], self._motions[body], self.values[body]
        if link.parameters is not None:
            given, weight = weight, self._other[: weight.size].reshape(weight.shape)
            tape.record(np.matmul, link.parameters, given, weight)
        by, wrench, (force, moment) = self._by[body], self._by_wrenches[body], self._parts(body)
        by_force, by_moment = wrench[:12].reshape(4, 3, -1), wrench[12:].reshape(9, 3, -1)
        mass, rest, others = weight[:, :4], weight[:, 1:], slice(2, -1)
        if len(weight) > 1:  # the own axis is constant
            tape.sum_products("mcn,jmn->cjn", force, mass[:-1], by[:3, others])
            tape.sum_products("mcn,jmn->cjn", moment, rest[:-1], by[3:, others])
        sliding = slice(2, None) if link.pitch else others
        if motion[:, sliding].size:
            tape.sum_products("cjn,jmn->mcn", motion[:3, sliding], mass[: motion[:, sliding].shape[1]], by_force)
        tape.sum_products("cjn,jmn->mcn", motion[3:, 2:], rest, by_moment)

    def _record_reverse_products(self, tape: Tape, body: int) -> None:
        """Pass derivatives by products of w on to w."""
        by, products = self._by[body], self._by_products[body]
        added = self._other[: 3 * self._samples].reshape(3, -1)
        tape.sum_products("ikn,kn->in", products.reshape(3, 3, -1), self._motions[body][3:, 0], added)
        tape.record(np.add, by[3:, 0], added, by[3:, 0])

    def _record_reverse_motion(self, tape: Tape, body: int) -> None:
        """Pass the derivatives on from a body to its joint and to the body before it."""
        link, motion, by = self._links[body], self._motions[body], self._by[body]
        v, w, by_w, by_u, by_d = self.states[1, body], motion[3:, 0], by[3:, 0], by[3:, 1], by[:3, 1]
        dq, dv, da = self.slopes[:, body]
        speed, total = np.zeros((2, self._samples))
        for rate, factor in ((by_u, link.spin), (by_d, 2.0 * link.pitch)):
            if not factor:
                continue
            tape.record(np.multiply, v, factor, speed)
            tape.record(np.multiply, w[1], rate[0], total)
            tape.add_product(w[0], rate[1], total, -1.0)
            tape.add_product(total, factor, dv)
            if link.spin:  # what the speed adds comes after the turn
                tape.sum_products("in,in->n", w[:2], rate[:2], total)
                tape.add_product(total, speed, dq)
            tape.add_product(rate[0], speed, by_w[1])
            tape.add_product(rate[1], speed, by_w[0], -1.0)
        for rate, factor, slope in ((by_w, link.spin, dv), (by_u, link.spin, da), (by_d, link.pitch, da)):
            if factor:
                tape.add_product(rate[2], factor, slope)
        count = motion.shape[1] - 1
        rates, values = by[:, :count].reshape(2, 3, count, -1), motion[:, :count].reshape(2, 3, count, -1)
        if link.spin:
            for row, other, function in ((0, 1, np.add), (1, 0, np.subtract)):
                tape.sum_products("amn,amn->n", rates[:, row], values[:, other], total)
                tape.record(function, dq, total, dq)
        if link.parent < 0 and not link.pitch:
            return
        flat = self._flat[: 6 * count * self._samples].reshape(6, count, -1)
        if link.spin:
            pairs = flat.reshape(2, 3, count, -1)
            tape.sum_products("rpn,armn->apmn", self._turns[body], rates[:, :2], pairs[:, :2])
            tape.record(np.positive, by[2::3, :count], flat[2::3])
        else:
            tape.record(np.positive, by[:, :count], flat)
        if link.pitch:
            self._record_reverse_slide(tape, body, flat)
        if link.parent < 0:
            return
        before = self._by[link.parent]
        if link.centripetal is not None:
            spread, products = self._other[: 9 * self._samples].reshape(9, -1), self._by_products[link.parent]
            tape.record(np.matmul, _SPREAD @ link.centripetal.T, flat[:3, 1], spread)
            tape.record(np.add, products, spread, products)
        tape.add_matmul(link.transform.T, flat.reshape(6, -1), before.reshape(6, -1))

    def _record_reverse_slide(self, tape: Tape, body: int, by: Array) -> None:
        """Pass the derivatives by what sliding added on to the joint and to what it was made of."""
        flat, pitch, dq = self._flats[body], self._links[body].pitch, self.slopes[0, body]
        place, slope, more = np.zeros((3, self._samples))
        by_w = np.zeros((3, self._samples))
        w, by_d = flat[3:, 0], by[:3, 1]
        twice = _CENTRIPETAL + _CENTRIPETAL.transpose(0, 2, 1)
        tape.record(np.multiply, self.states[0, body], pitch, place)
        tape.sum_products("ijk,in,jn,kn->n", _CENTRIPETAL, by_d, w, w, slope)
        for row, other, function in ((0, 4, np.add), (1, 3, np.subtract)):
            tape.sum_products("mn,mn->n", by[row], flat[other], more)
            tape.record(function, slope, more, slope)
        tape.add_product(slope, pitch, dq)
        tape.add_product(by[0], place, by[4])
        tape.add_product(by[1], place, by[3], -1.0)
        tape.sum_products("ijk,in,kn,n->jn", twice, by_d, w, place, by_w)
        tape.record(np.add, by[3:, 0], by_w, by[3:, 0])


class BodyFrameSweep:
    """Blocks of the torque regressor and their reverse derivative, for one chunk of samples at a time.

    Args:
        tree: The kinematic tree.
        bodies: Bodies whose blocks are wanted, counted from 0; all by default.
    """

    def __init__(self, tree: JointTree, bodies: Sequence[int] | None = None):
        self._tree, self._links = tree, build_links(tree)
        self._bodies = tuple(range(tree.n)) if bodies is None else tuple(bodies)
        self._order = tuple(np.flatnonzero(tree.is_ancestor[:, list(self._bodies)].any(axis=1)).tolist())
        self._joints = [as_slice(self._links[body].joints) for body in self._bodies]
        self._programs: dict[int, _Program] = {}
        self._used: _Program | None = None

    def evaluate(self, q: Array, v: Array, a: Array) -> None:
        """Set the states (N, n), N at most :data:`LARGEST_CHUNK`, for :meth:`write`."""
        count = len(q)
        size = next(size for size in _SIZES if size >= count)
        if size not in self._programs:
            self._programs[size] = _Program(self._links, self._order, self._bodies, self._tree.gravity, size)
        program = self._used = self._programs[size]
        for state, values in zip(program.states, (q, v, a), strict=True):
            state[:, :count] = values.T
        program.place.run()

    def write(self, regressor: Array) -> None:
        """Write inertial columns of the samples that were evaluated last into zeros, (N, n, 10 m or more)."""
        if self._used is None:
            raise RuntimeError("evaluate the blocks before they are written")
        count = len(regressor)
        program = self._used
        for k, (tape, values) in enumerate(zip(program.blocks, program.values.values(), strict=True)):
            tape.run()
            part = values[..., :count].transpose(2, 0, 1)
            regressor[:, self._joints[k], INERTIAL * k : INERTIAL * (k + 1)] = part

    def pull_back(self, weight: Array) -> Array:
        """Differentiate ``sum(weight * regressor)`` of the last evaluation by q, v and a, (3, N, n).

        Args:
            weight: (N, n, 10 m or more).

        Raises:
            RuntimeError: Nothing was evaluated before.
        """
        if self._used is None:
            raise RuntimeError("evaluate the regressor before its derivative")
        program, count = self._used, len(weight)
        tapes = program.reverse
        program.slopes.fill(0.0)
        for body, tape in tapes:
            if body is not None:
                k = self._bodies.index(body)
                part = weight[:, self._joints[k], INERTIAL * k : INERTIAL * (k + 1)]
                program.values[body][..., :count] = part.transpose(1, 2, 0)
            tape.run()
        return np.ascontiguousarray(program.slopes[:, :, :count].transpose(0, 2, 1))


_KEPT = 4
"""Sweeps that each thread keeps."""


class _OfThread(threading.local):
    """The sweeps that a thread has used last."""

    def __init__(self) -> None:
        self.sweeps: OrderedDict[tuple[object, ...], BodyFrameSweep] = OrderedDict()


_KEPT_SWEEPS = _OfThread()


class SharedSweep:
    """The sweep of a tree that everybody in a thread uses, since recording takes several times as long as running.

    Args:
        tree: The kinematic tree.
        bodies: Bodies whose blocks are wanted, counted from 0.
    """

    def __init__(self, tree: JointTree, bodies: Sequence[int]):
        self._tree, self._bodies = tree, tuple(bodies)
        arrays = (tree.pose_terms, tree.axis_angular, tree.axis_linear, tree.gravity)
        self._key = (tree.parents, self._bodies, *(array.tobytes() for array in arrays))

    def get(self) -> BodyFrameSweep:
        """Return the sweep; it holds what was evaluated until somebody else evaluates."""
        sweeps = _KEPT_SWEEPS.sweeps
        sweep = sweeps.pop(self._key, None) or BodyFrameSweep(self._tree, self._bodies)
        sweeps[self._key] = sweep
        if len(sweeps) > _KEPT:
            sweeps.popitem(last=False)
        return sweep
