"""Torque regressor blocks of many samples at once, from the kinematics of a tree in the frames of its bodies.

In the frame of body i let d be the acceleration of its origin with gravity taken off, w and u its angular velocity and
acceleration, and ``A = [u]x + [w]x^2``. A body with unit parameter has the wrench

* ``(d, 0)`` for the mass, ``(A e_k, e_k x d)`` for the first moments, ``(0, J_k)`` for the moments of inertia,

with J linear in u and in products of w. Joint j, which moves the origin of body i with l and turns it with a per unit
of its speed, needs ``l . force + a . moment``. Everything is passed on from body to body: a turn about the axis of the
joint, the z axis of the frames used here, and constant matrices that are mostly permutations.

Arrays keep the samples last, so that numpy's inner loops run over them. All operations work on fixed arrays and are
recorded once: as a list they take half the time of the same statements with their slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.spatial import axis_frame
from sysid_ros.core.model.robot import INERTIAL
from sysid_ros.core.regressors.body_columns import INERTIA_AXES
from sysid_ros.core.regressors.joint_tree import JointTree
from sysid_ros.core.regressors.operation_tape import Tape, Terms

Array = NDArray[np.float64]
Map = tuple[Terms, ...]

_NEGLIGIBLE = 1e-15
"""Entries of constant rotations below this are rounding of zero."""
_AXIS = np.array([0.0, 0.0, 1.0])


@dataclass(frozen=True)
class _Link:
    """A body and its joint, in frames whose z axis is the axis of the joint.

    Attributes:
        parent: Body before it, -1 for the base.
        joints: Joints that move it, its own last, (k,).
        turn: Map of vectors from the parent's frame to this one at joint position zero.
        back: The transposed map.
        position: Origin in the parent's frame at joint position zero, (3,) [m].
        slide: Change of it per unit of the joint position, (3,).
        spin: Rotation per unit of the joint position, 1 or 0.
        pitch: Translation along the axis per unit of the joint position.
        own_axis: Axis of the joint in the frame of the body's parameters, (3,).
        local: Map from this frame to that of the body's parameters; None where they are the same.
        local_back: The transposed map.
    """

    parent: int
    joints: NDArray[np.intp]
    turn: Map
    back: Map
    position: Array
    slide: Array
    spin: float
    pitch: float
    own_axis: Array
    local: Map | None
    local_back: Map | None


def _constant_map(matrix: Array) -> Map:
    """Return the nonzero entries of a rotation, row by row; entries that are 1 up to rounding are exactly 1."""
    snapped = np.where(np.abs(np.abs(matrix) - 1.0) < _NEGLIGIBLE, np.sign(matrix), matrix)
    return tuple(tuple((k, float(x)) for k, x in enumerate(row) if abs(x) > _NEGLIGIBLE) for row in snapped)


def _as_slice(index: NDArray[np.intp]) -> slice | NDArray[np.intp]:
    """Return consecutive indices as a slice, with which numpy copies faster."""
    is_range = index[-1] - index[0] + 1 == index.size
    return slice(int(index[0]), int(index[-1]) + 1) if is_range else index


def _links(tree: JointTree) -> list[_Link]:
    frames = [np.eye(3)]  # of the base, then from each body's own frame to the one used here
    result: list[_Link] = []
    for body, parent in enumerate(tree.parents):
        angular, linear = tree.axis_angular[body], tree.axis_linear[body]
        axis = angular if angular.any() else linear / np.linalg.norm(linear)
        frame = axis_frame(axis / np.linalg.norm(axis))
        terms = tree.pose_terms[body]
        zero = (terms[:9, 0] + terms[:9, 1]).reshape(3, 3).T  # of the body in its parent
        before = frames[parent + 1].T
        turn = (before @ zero @ frame).T
        is_own = bool(np.array_equal(frame, np.eye(3)))
        result.append(
            _Link(
                parent=parent,
                joints=np.flatnonzero(tree.is_ancestor[:, body]),
                turn=_constant_map(turn),
                back=_constant_map(turn.T),
                position=before @ terms[9:, 0],
                slide=before @ terms[9:, 3],
                spin=float(np.linalg.norm(angular)),
                pitch=float(linear @ axis),
                own_axis=frame @ _AXIS,
                local=None if is_own else _constant_map(frame),
                local_back=None if is_own else _constant_map(frame.T),
            )
        )
        frames.append(frame)
    return result


def _feature_matrix() -> Array:
    """Build the matrix (27, 9) that makes A (9) and J (3, 6) from the angular acceleration and ``w_i w_k``."""
    product = {pair: 3 + k for k, pair in enumerate(INERTIA_AXES)} | {
        (j, i): 3 + k for k, (i, j) in enumerate(INERTIA_AXES)
    }
    levi = np.zeros((3, 3, 3))
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        levi[i, j, k], levi[i, k, j] = 1.0, -1.0
    spin = np.zeros((3, 3, 9))
    inertia = np.zeros((3, 6, 9))
    for i in range(3):
        for k in range(3):
            spin[i, k, :3] = levi[i, :, k]
            spin[i, k, product[i, k]] += 1.0
        spin[i, i, [3, 5, 8]] -= 1.0
    for column, (i, k) in enumerate(INERTIA_AXES):
        for row, other in ((i, k), (k, i))[: 1 + (i != k)]:  # the unit inertia is e_row e_other^T + its transpose
            inertia[row, column, other] += 1.0
            for turned in range(3):
                for about in range(3):
                    inertia[turned, column, product[about, other]] += levi[turned, about, row]
    return np.concatenate([spin.reshape(9, 9), inertia.reshape(18, 9)])


_FEATURES = _feature_matrix()


_SIZES = (130, 260, 520)
"""Numbers of samples that operations are recorded for; no powers of two, whose strides collide in the cache."""
LARGEST_CHUNK = _SIZES[-1]
"""Most samples at a time."""


@dataclass(frozen=True)
class _Motion:
    """Motion of a body in its frame, for N samples and k joints that move it; or the derivatives by all that.

    Attributes:
        turning: Angular velocity and acceleration, then the axes a of the joints, (3, 2 + k, N).
        moving: Acceleration d of the origin, then the velocities l of it by the joints, (3, 1 + k, N).
        known: A and J, (27, N).
    """

    turning: Array
    moving: Array
    known: Array

    @classmethod
    def zeros(cls, joints: int, samples: int) -> _Motion:
        """Return arrays of zeros."""
        shapes = ((3, 2 + joints, samples), (3, 1 + joints, samples), (27, samples))
        return cls(*(np.zeros(shape) for shape in shapes))

    @property
    def spin(self) -> Array:
        """The matrix A, (3, 3, N)."""
        return np.asarray(self.known[:9].reshape(3, 3, -1))


@dataclass(frozen=True)
class _Columns:
    """What the blocks of a body are products of, in the frame of its parameters.

    Attributes:
        motion: Its motion in that frame.
        force: Acceleration d and the columns of A, (3, 4, N).
    """

    motion: _Motion
    force: Array

    @property
    def axes(self) -> Array:
        """Axes a of the joints, (3, k, N)."""
        return self.motion.turning[:, 2:]

    @property
    def slides(self) -> Array:
        """Velocities l of the origin, (3, k, N)."""
        return self.motion.moving[:, 1:]

    @property
    def moment(self) -> Array:
        """Columns of J, (3, 6, N)."""
        return np.asarray(self.motion.known[9:].reshape(3, 6, -1))


class _Program:
    """The recorded operations for a number of samples.

    Args:
        links: Bodies and joints.
        order: Bodies whose motion is needed, each after the one before it.
        bodies: Bodies whose blocks are wanted.
        gravity: In the base frame, (3,) [m/s^2].
        samples: Number of samples.

    Attributes:
        states: Positions, velocities and accelerations to fill in, (3, n, N).
        place: Operations that pass the motion on.
        values: The blocks of each body, or the weights of their derivatives, (k, 10, N).
        blocks: Operations that write the blocks of each body.
    """

    def __init__(
        self, links: Sequence[_Link], order: Sequence[int], bodies: Sequence[int], gravity: Array, samples: int
    ):
        n = len(links)
        self._links, self._order, self._bodies, self._samples = links, order, bodies, samples
        self._scratch = np.empty(12 * (n + 2) * samples)
        self.states, self._waves = np.zeros((3, n, samples)), np.zeros((2, n, samples))  # cosines and sines
        self._features = np.zeros((9, samples))
        self._offsets: dict[int, list[Array | float]] = {}
        self._motions = {body: _Motion.zeros(len(links[body].joints), samples) for body in order}
        ground = _Motion.zeros(0, samples)
        ground.moving[:, 0] = -gravity[:, None]
        self._motions[-1] = ground
        self.values = {body: np.zeros((len(links[body].joints), INERTIAL, samples)) for body in bodies}
        self.place = Tape(self._scratch)
        self.place.record(np.cos, self.states[0], self._waves[0])
        self.place.record(np.sin, self.states[0], self._waves[1])
        for body in order:
            self._record_motion(body)
        self._columns = {body: self._record_columns(body) for body in bodies}
        self.blocks = [self._record_blocks(body) for body in bodies]
        self._reverse: tuple[list[Tape], Tape] | None = None

    def _offset(self, link: _Link, body: int) -> list[Array | float]:
        """Return the origin of a body in its parent's frame: constants, and arrays (N,) where the joint slides."""
        result: list[Array | float] = []
        for position, slide in zip(link.position.tolist(), link.slide.tolist(), strict=True):
            if not slide:
                result.append(position)
                continue
            place = np.zeros(self._samples)
            self.place.record(np.multiply, self.states[0, body], slide, place)
            self.place.record(np.add, place, position, place)
            result.append(place)
        return result

    def _record_motion(self, body: int) -> None:
        link, tape, motion = self._links[body], self.place, self._motions[body]
        before = self._motions[link.parent]
        axes, count = before.turning[:, 2:], before.moving.shape[1]
        shifted = np.zeros((3, count, self._samples))
        tape.record(np.positive, before.moving, shifted)
        self._offsets[body] = self._offset(link, body)
        for k, p in enumerate(self._offsets[body]):
            if isinstance(p, float) and p == 0.0:
                continue
            i, j = (k + 1) % 3, (k + 2) % 3
            tape.add_product(before.spin[:, k], p, shifted[:, 0])
            if count > 1:  # (a x p)_i holds a_j p_k, (a x p)_j its negative
                tape.add_product(axes[j], p, shifted[i, 1:])
                tape.add_product(axes[i], p, shifted[j, 1:], -1.0)
        self._record_turn(link, body, before.turning, motion.turning[:, :-1])
        self._record_turn(link, body, shifted, motion.moving[:, :-1])
        motion.turning[:, -1], motion.moving[:, -1] = link.spin * _AXIS[:, None], link.pitch * _AXIS[:, None]
        w, u, d = motion.turning[:, 0], motion.turning[:, 1], motion.moving[:, 0]
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
            if factor:
                tape.add_product(value, factor, rate[2])
        self._record_features(motion)

    def _record_turn(self, link: _Link, body: int, vectors: Array, out: Array) -> None:
        """Express vectors of the parent's frame (3, m, N) in that of the body."""
        tape = self.place
        if not link.spin:
            for terms, part in zip(link.turn, out, strict=True):
                tape.combine(terms, vectors, part)
            return
        flat = np.empty((2, *vectors.shape[1:]))
        for k in range(2):  # where the constant map only exchanges vectors, there is nothing to compute
            if link.turn[k][1:] or link.turn[k][0][1] != 1.0:
                tape.combine(link.turn[k], vectors, flat[k])
        x, y = (
            flat[k] if link.turn[k][1:] or link.turn[k][0][1] != 1.0 else vectors[link.turn[k][0][0]] for k in range(2)
        )
        cos, sin = self._waves[:, body]
        tape.record(np.multiply, x, cos, out[0])
        tape.add_product(y, sin, out[0])
        tape.record(np.multiply, y, cos, out[1])
        tape.add_product(x, sin, out[1], -1.0)
        tape.combine(link.turn[2], vectors, out[2])

    def _record_features(self, motion: _Motion) -> None:
        """Compute A and J from angular velocity and acceleration."""
        tape, w = self.place, motion.turning[:, 0]
        tape.record(np.positive, motion.turning[:, 1], self._features[:3])
        for k, (i, j) in enumerate(INERTIA_AXES):
            tape.record(np.multiply, w[i], w[j], self._features[3 + k])
        tape.record(np.matmul, _FEATURES, self._features, motion.known)

    def _record_columns(self, body: int) -> _Columns:
        link, motion, tape = self._links[body], self._motions[body], self.place
        if link.local is not None:
            local = _Motion.zeros(len(link.joints), self._samples)
            for k, terms in enumerate(link.local):
                tape.combine(terms, motion.turning, local.turning[k])
                tape.combine(terms, motion.moving, local.moving[k])
            self._record_features(local)
            motion = local
        force = np.zeros((3, 4, self._samples))
        tape.record(np.positive, motion.moving[:, 0], force[:, 0])
        tape.record(np.positive, motion.spin, force[:, 1:])
        return _Columns(motion, force)

    def _record_blocks(self, body: int) -> Tape:
        tape, link, parts, result = Tape(self._scratch), self._links[body], self._columns[body], self.values[body]
        others, d, axes = result[:-1], parts.force[:, 0], parts.axes[:, :-1]
        if len(others):
            for left, right, out in (
                (parts.slides[:, :-1, None], parts.force, others[:, :4]),
                (axes[:, :, None], parts.moment, others[:, 4:]),
            ):
                tape.record(np.multiply, left[0], right[0], out)
                tape.add_product(left[1], right[1], out)
                tape.add_product(left[2], right[2], out)
            for m in range(3):  # d x a
                i, j = (m + 1) % 3, (m + 2) % 3
                tape.add_product(axes[j], d[i], others[:, 1 + m])
                tape.add_product(axes[i], d[j], others[:, 1 + m], -1.0)
        own, along, about = result[-1], link.pitch * link.own_axis, link.spin * link.own_axis  # constants
        for constants, columns, out in ((along, parts.force, own[:4]), (about, parts.moment, own[4:])):
            terms = tuple((k, float(x)) for k, x in enumerate(constants) if x)
            tape.combine(terms or ((0, 0.0),), columns, out)
        for m in range(3):
            i, j = (m + 1) % 3, (m + 2) % 3
            for factor, part in ((about[j], d[i]), (-about[i], d[j])):
                if factor:
                    tape.add_product(part, float(factor), own[1 + m])
        return tape

    # Reverse derivative

    @property
    def reverse(self) -> tuple[list[Tape], Tape]:
        """Tapes that read the weights of the blocks of each body, and the one that passes the derivatives on."""
        if self._reverse is None:
            self.slopes = np.zeros((3, len(self._links), self._samples))
            self._by = {body: _Motion.zeros(len(self._links[body].joints), self._samples) for body in self._order}
            self._reverse = [self._record_reverse_blocks(body) for body in self._bodies], self._record_reverse()
        return self._reverse

    def clear_slopes(self) -> None:
        """Set all derivatives to zero."""
        for array in (self.slopes, *(part for by in self._by.values() for part in (by.turning, by.moving, by.known))):
            array.fill(0.0)

    def _record_reverse_blocks(self, body: int) -> Tape:
        tape, link, parts = Tape(self._scratch), self._links[body], self._columns[body]
        weight, by = self.values[body], self._by[body]
        if link.local is not None:
            by = _Motion.zeros(len(link.joints), self._samples)
            for array in (by.turning, by.moving, by.known):
                tape.record(array.fill, 0.0)
        d, axes, by_d = parts.force[:, 0], parts.axes, by.moving[:, 0]
        by_spin, by_moment, first = by.known[:9].reshape(3, 3, -1), by.known[9:].reshape(3, 6, -1), weight[:, 1:4]
        for c in range(3):
            tape.add_products(parts.slides[c][:, None], first, 0, by_spin[c])
            tape.add_products(parts.slides[c], weight[:, 0], 0, by_d[c])
            tape.add_products(weight[:, :4], parts.force[c], 1, by.moving[c, 1:])
            tape.add_products(axes[c][:, None], weight[:, 4:], 0, by_moment[c])
            tape.add_products(weight[:, 4:], parts.moment[c], 1, by.turning[c, 2:])
            i, j = (c + 1) % 3, (c + 2) % 3  # t . (d x a) = d . (a x t) = a . (t x d)
            tape.add_products(axes[i], first[:, j], 0, by_d[c])
            tape.add_products(axes[j], first[:, i], 0, by_d[c], -1.0)
            tape.add_product(first[:, i], d[j], by.turning[c, 2:])
            tape.add_product(first[:, j], d[i], by.turning[c, 2:], -1.0)
        if link.local_back is not None:
            self._record_reverse_features(tape, parts.motion, by)
            for source, target in ((by.turning, self._by[body].turning), (by.moving, self._by[body].moving)):
                for k, terms in enumerate(link.local_back):
                    for c, factor in terms:
                        tape.add_product(source[c], factor, target[k])
        return tape

    def _record_reverse_features(self, tape: Tape, motion: _Motion, by: _Motion) -> None:
        """Pass derivatives by A and J on to angular velocity and acceleration."""
        w, by_w, found = motion.turning[:, 0], by.turning[:, 0], np.zeros((9, self._samples))
        tape.record(np.matmul, np.ascontiguousarray(_FEATURES.T), by.known, found)
        tape.record(np.add, by.turning[:, 1], found[:3], by.turning[:, 1])
        for k, (i, j) in enumerate(INERTIA_AXES):
            tape.add_product(found[3 + k], w[j], by_w[i])
            tape.add_product(found[3 + k], w[i], by_w[j])

    def _record_reverse(self) -> Tape:
        tape = Tape(self._scratch)
        for body in reversed(self._order):
            self._record_reverse_motion(tape, body)
        return tape

    def _record_reverse_motion(self, tape: Tape, body: int) -> None:
        """Pass the derivatives on from a body to its joint and to the body before it."""
        link, motion, by = self._links[body], self._motions[body], self._by[body]
        self._record_reverse_features(tape, motion, by)
        v, w, by_w, by_u, by_d = (
            self.states[1, body],
            motion.turning[:, 0],
            by.turning[:, 0],
            by.turning[:, 1],
            by.moving[:, 0],
        )
        dq, dv, da = self.slopes[:, body]
        speed = np.zeros(self._samples)
        for rate, factor in ((by_u, link.spin), (by_d, 2.0 * link.pitch)):
            if not factor:
                continue
            tape.record(np.multiply, v, factor, speed)
            along, across = np.zeros((2, self._samples))
            for total, parts in (
                (along, ((w[0], rate[0], 1.0), (w[1], rate[1], 1.0))),
                (across, ((w[1], rate[0], 1.0), (w[0], rate[1], -1.0))),
            ):
                tape.record(np.multiply, *parts[0][:2], total)
                tape.add_product(parts[1][0], parts[1][1], total, parts[1][2])
            tape.add_product(across, factor, dv)
            if link.spin:  # what the speed adds comes after the turn
                tape.add_product(along, speed, dq)
            tape.add_product(rate[0], speed, by_w[1])
            tape.add_product(rate[1], speed, by_w[0], -1.0)
        for rate, factor, slope in ((by_w, link.spin, dv), (by_u, link.spin, da), (by_d, link.pitch, da)):
            if factor:
                tape.add_product(rate[2], factor, slope)
        if link.spin:
            for rate, value in (
                (by.turning[:, :-1], motion.turning[:, :-1]),
                (by.moving[:, :-1], motion.moving[:, :-1]),
            ):
                tape.add_products(rate[0], value[1], 0, dq)
                tape.add_products(rate[1], value[0], 0, dq, -1.0)
        if link.parent < 0:
            return
        before, by_before = self._motions[link.parent], self._by[link.parent]
        self._record_turn_back(tape, link, body, by.turning[:, :-1], by_before.turning)
        shifted = np.zeros_like(by_before.moving)
        tape.record(shifted.fill, 0.0)
        self._record_turn_back(tape, link, body, by.moving[:, :-1], shifted)
        tape.record(np.add, by_before.moving, shifted, by_before.moving)
        axes, by_axes = before.turning[:, 2:], by_before.turning[:, 2:]
        for k, p in enumerate(self._offsets[body]):
            i, j = (k + 1) % 3, (k + 2) % 3
            if link.slide[k]:
                along = np.zeros(self._samples)
                tape.record(along.fill, 0.0)
                tape.add_products(shifted[:, 0], before.spin[:, k], 0, along)
                tape.add_products(shifted[i, 1:], axes[j], 0, along)
                tape.add_products(shifted[j, 1:], axes[i], 0, along, -1.0)
                tape.add_product(along, float(link.slide[k]), dq)
            if isinstance(p, float) and p == 0.0:
                continue
            tape.add_product(shifted[:, 0], p, by_before.spin[:, k])
            tape.add_product(shifted[i, 1:], p, by_axes[j])
            tape.add_product(shifted[j, 1:], p, by_axes[i], -1.0)

    def _record_turn_back(self, tape: Tape, link: _Link, body: int, vectors: Array, out: Array) -> None:
        """Add vectors of the frame of a body (3, m, N), expressed in that of its parent."""
        turned = vectors
        if link.spin:
            cos, sin = self._waves[:, body]
            turned = np.empty((2, *vectors.shape[1:]))
            tape.record(np.multiply, vectors[0], cos, turned[0])
            tape.add_product(vectors[1], sin, turned[0], -1.0)
            tape.record(np.multiply, vectors[1], cos, turned[1])
            tape.add_product(vectors[0], sin, turned[1])
        parts = (turned[0], turned[1], vectors[2])
        for target, terms in zip(out, link.back, strict=True):
            for c, factor in terms:
                if abs(factor) == 1.0:
                    tape.record(np.add if factor > 0.0 else np.subtract, target, parts[c], target)
                else:
                    tape.add_product(parts[c], factor, target)


class BodyFrameSweep:
    """Blocks of the torque regressor and their reverse derivative, for one chunk of samples at a time.

    Args:
        tree: The kinematic tree.
        bodies: Bodies whose blocks are wanted, counted from 0; all by default.
    """

    def __init__(self, tree: JointTree, bodies: Sequence[int] | None = None):
        self._tree, self._links = tree, _links(tree)
        self._bodies = tuple(range(tree.n)) if bodies is None else tuple(bodies)
        self._order = tuple(np.flatnonzero(tree.is_ancestor[:, list(self._bodies)].any(axis=1)).tolist())
        self._joints = [_as_slice(self._links[body].joints) for body in self._bodies]
        self._programs: dict[int, _Program] = {}
        self._used: _Program | None = None

    def evaluate(self, q: Array, v: Array, a: Array) -> None:
        """Evaluate the blocks at states (N, n), N at most :data:`LARGEST_CHUNK`, for :meth:`write`."""
        count = len(q)
        size = next(size for size in _SIZES if size >= count)
        if size not in self._programs:
            self._programs[size] = _Program(self._links, self._order, self._bodies, self._tree.gravity, size)
        program = self._used = self._programs[size]
        for state, values in zip(program.states, (q, v, a), strict=True):
            state[:, :count] = values.T
        program.place.run()
        for tape in program.blocks:
            tape.run()

    def write(self, regressor: Array, samples: slice) -> None:
        """Write inertial columns of some of the samples that were evaluated last into zeros, (N', n, 10 m or more)."""
        if self._used is None:
            raise RuntimeError("evaluate the blocks before they are written")
        for k, values in enumerate(self._used.values.values()):
            part = values[..., samples].transpose(2, 0, 1)
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
        tapes, last = program.reverse
        program.clear_slopes()
        for k, (body, tape) in enumerate(zip(self._bodies, tapes, strict=True)):
            part = weight[:, self._joints[k], INERTIAL * k : INERTIAL * (k + 1)]
            program.values[body][..., :count] = part.transpose(1, 2, 0)
            tape.run()
        last.run()
        return np.ascontiguousarray(program.slopes[:, :, :count].transpose(0, 2, 1))
