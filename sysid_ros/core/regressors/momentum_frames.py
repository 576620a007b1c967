"""Blocks of the momentum regressors of many samples at once, in the frames of the bodies as in :mod:`.body_frames`.

In the frame of body i let (v, w) be its twist, g gravity, (l, a) the motion of joint j and (r, b) its rate: the twist
of the body that joint j moves, crossed with the motion of the joint. A body with unit parameter has the momentum

* ``(v, 0)`` for the mass, ``(w x e_k, e_k x v)`` for the first moments, ``(0, I_k w)`` for the moments of inertia,

and the weight ``(g, 0)`` or ``(0, e_k x g)``. ``W_m`` is ``l . linear + a . angular`` momentum, ``W_c`` the same with
(r, b), and ``l . force + a . moment`` of the weight. All motions are passed on from body to body by the same maps.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.model.robot import INERTIAL
from sysid_ros.core.regressors.body_frames import (
    AXIS,
    FEATURES,
    Link,
    as_slice,
    build_links,
    record_move,
    record_own,
    record_rotations,
    record_turn,
)
from sysid_ros.core.regressors.joint_tree import CHUNK, JointTree
from sysid_ros.core.regressors.operation_tape import Tape

Array = NDArray[np.float64]

_OF_TWIST = np.ascontiguousarray(FEATURES[:, [9, 10, 11, 0, 1, 2]])
"""Makes linear (4, 3) and angular momentum (9, 3) of unit parameters from a twist, (39, 6)."""
_OF_WEIGHT = np.ascontiguousarray(FEATURES[12:21, 9:])
"""Makes the moments (3, 3) of unit first moments from gravity, (9, 3)."""
_SIZES = (33, 66, 110, 150, 195, 220, 300, 355, 410, CHUNK)
"""Numbers of samples that operations are recorded for."""


class _Program:
    """The recorded operations for a number of samples.

    The motion of each body is (6, 2 + 2 k, N), linear before angular, with the columns ``(g, 0)``, ``(v, w)``, and
    ``(l, a)`` and ``(r, b)`` in turns of the k joints that move it, its own last.

    Args:
        links: Bodies and joints.
        order: Bodies whose motion is needed, each after the one before it.
        bodies: Bodies whose blocks are wanted.
        gravity: In the base frame, (3,) [m/s^2].
        samples: Number of samples.

    Attributes:
        states: Positions and velocities to fill in, (2, n, N).
        place: Operations that pass the motions on to each body, and what comes before them.
        values: Blocks of ``W_m`` and ``W_c`` of each body, (2, k, 10, N), all in the same place.
        blocks: Operations that write the blocks of each body.
    """

    def __init__(
        self, links: Sequence[Link], order: Sequence[int], bodies: Sequence[int], gravity: Array, samples: int
    ):
        n = len(links)
        self._links, self._samples = links, samples
        self._scratch = np.empty(2 * (n + 2) * samples)
        self._flat, self._other = np.empty((2, max(6 * (2 * n + 2), INERTIAL * n, 39) * samples))
        self.states, self._turns = np.zeros((2, n, samples)), np.zeros((n, 2, 2, samples))
        self._motions = {body: np.zeros((6, 2 + 2 * len(links[body].joints), samples)) for body in order}
        self._motions[-1] = np.zeros((6, 2, samples))
        self._motions[-1][:3, 0] = gravity[:, None]
        self._momenta = {body: np.zeros((39, samples)) for body in bodies}
        self._weights = {body: np.zeros((9, samples)) for body in bodies}
        values = np.zeros((2, n, INERTIAL, samples))
        self.values = {body: values[:, : len(links[body].joints)] for body in bodies}
        self.place = {body: Tape(self._scratch) for body in (-1, *order)}
        record_rotations(self.place[-1], self.states[0], self._turns)
        for body in order:
            self._record_motion(body)
        self.blocks = {body: self._record_blocks(body) for body in bodies}

    def _record_motion(self, body: int) -> None:
        link, tape, motion = self._links[body], self.place[body], self._motions[body]
        before = self._motions[link.parent]
        flat = self._flat[: before.size].reshape(before.shape)
        record_move(tape, link, self.states[0, body], before, flat)
        record_turn(tape, link, self._turns[body], flat, motion[:, : before.shape[1]])
        motion[:3, -2], motion[3:, -2] = link.pitch * AXIS[:, None], link.spin * AXIS[:, None]
        twist, rate, speed = motion[:, 1], motion[:, -1], self.states[1, body]
        for factor, part in ((link.pitch, twist[2]), (link.spin, twist[5])):
            if factor:
                tape.add_product(speed, factor, part)
        if link.spin:
            tape.record(np.positive, twist[1::3], rate[0::3])
            tape.record(np.negative, twist[0::3], rate[1::3])
        else:
            tape.record(rate.fill, 0.0)
        if link.pitch:
            tape.add_product(twist[4], link.pitch, rate[0])
            tape.add_product(twist[3], link.pitch, rate[1], -1.0)
        if body in self._momenta:
            tape.record(np.matmul, _OF_TWIST, twist, self._momenta[body])
            tape.record(np.matmul, _OF_WEIGHT, motion[:3, 0], self._weights[body])

    def _record_blocks(self, body: int) -> Tape:
        tape, link, motion, values = Tape(self._scratch), self._links[body], self._motions[body], self.values[body]
        result = values
        if link.parameters is not None:
            result = np.zeros(values.shape)
        momenta = self._momenta[body]
        linear, angular = momenta[:12].reshape(4, 3, -1), momenta[12:].reshape(9, 3, -1)
        joints, rates = motion[:, 2::2], motion[:, 3::2]
        if len(result[0]) > 1:
            self._record_products(tape, joints[:, :-1], linear, angular, result[0, :-1])
        record_own(tape, link, linear, angular, result[0, -1])
        self._record_products(tape, rates, linear, angular, result[1])
        count = joints.shape[1]
        of_mass, of_moments = (self._flat[: count * k * self._samples].reshape(count, k, -1) for k in (1, 3))
        tape.sum_products("cjn,cn->jn", joints[:3], motion[:3, 0], of_mass[:, 0])
        tape.record(np.add, result[1, :, :1], of_mass, result[1, :, :1])
        tape.sum_products("cjn,mcn->jmn", joints[3:], self._weights[body].reshape(3, 3, -1), of_moments)
        tape.record(np.add, result[1, :, 1:4], of_moments, result[1, :, 1:4])
        if link.parameters is not None:
            tape.record(np.matmul, np.ascontiguousarray(link.parameters.T), result, values)
        return tape

    def _record_products(self, tape: Tape, motions: Array, linear: Array, angular: Array, out: Array) -> None:
        """Append products of motions (6, k, N) and momenta (4, 3, N) and (9, 3, N), (k, 10, N)."""
        count = motions.shape[1]
        by_linear = self._flat[: 4 * count * self._samples].reshape(count, 4, -1)
        tape.sum_products("cjn,mcn->jmn", motions[:3], linear, by_linear)
        tape.sum_products("cjn,mcn->jmn", motions[3:], angular, out[:, 1:])
        tape.record(np.positive, by_linear[:, 0], out[:, 0])
        tape.record(np.add, out[:, 1:4], by_linear[:, 1:], out[:, 1:4])

    def integrate(self, body: int, weights: Array) -> Array:
        """Return the sum of the blocks of ``W_c`` of a body over the samples, weighted by (N,), (k, 10)."""
        link, motion = self._links[body], self._motions[body]
        momenta = np.multiply(self._momenta[body], weights, out=self._other[: 39 * self._samples].reshape(39, -1))
        linear, angular = (part.reshape(-1, 3, self._samples) for part in (momenta[:12], momenta[12:]))
        moments = (self._weights[body] * weights).reshape(3, 3, -1)
        result = np.zeros((len(link.joints), INERTIAL))
        for rows, columns, first in (
            (motion[:3, 3::2], linear, 0),
            (motion[3:, 3::2], angular, 1),
            (motion[3:, 2::2], moments, 1),
            (motion[:3, 2::2], (motion[:3, 0] * weights)[None], 0),
        ):
            sums = np.matmul(rows, columns.transpose(1, 2, 0)).sum(axis=0)
            result[:, first : first + sums.shape[1]] += sums
        return result if link.parameters is None else result @ link.parameters


class MomentumSweep:
    """Blocks of both momentum regressors, for one chunk of samples at a time.

    Args:
        tree: The kinematic tree.
        bodies: Bodies whose blocks are wanted, counted from 0.
    """

    def __init__(self, tree: JointTree, bodies: Sequence[int]):
        self._tree, self._links, self._bodies = tree, build_links(tree), tuple(bodies)
        self._order = tuple(np.flatnonzero(tree.is_ancestor[:, list(bodies)].any(axis=1)).tolist())
        self._joints = [as_slice(self._links[body].joints) for body in bodies]
        self._programs: dict[int, _Program] = {}

    def _begin(self, q: Array, v: Array) -> _Program:
        """Set the states (N, n), N at most ``CHUNK``."""
        count = len(q)
        size = next(size for size in _SIZES if size >= count)
        if size not in self._programs:
            self._programs[size] = _Program(self._links, self._order, self._bodies, self._tree.gravity, size)
        program = self._programs[size]
        for state, values in zip(program.states, (q, v), strict=True):
            state[:, :count] = values.T
        program.place[-1].run()
        return program

    def write(self, q: Array, v: Array, momentum: Array, rate: Array) -> None:
        """Write the inertial columns of ``W_m`` and ``W_c`` at states (N, n) into zeros, (N, n, 10 m or more)."""
        program, count = self._begin(q, v), len(q)
        for body in self._order:  # one body after the other, so that what is needed again is in the cache
            program.place[body].run()
            if body not in program.blocks:
                continue
            program.blocks[body].run()
            k = self._bodies.index(body)
            columns = slice(INERTIAL * k, INERTIAL * (k + 1))
            for regressor, values in zip((momentum, rate), program.values[body], strict=True):
                regressor[:, self._joints[k], columns] = values[..., :count].transpose(2, 0, 1)

    def integrate(self, q: Array, v: Array, weights: Array) -> Array:
        """Return the inertial columns of ``W_c`` at states (N, n), summed with weights (N,), (n, 10 m)."""
        program = self._begin(q, v)
        padded = np.zeros(program.states.shape[-1])
        padded[: len(q)] = weights
        result = np.zeros((self._tree.n, INERTIAL * len(self._bodies)))
        for body in self._order:
            program.place[body].run()
            if body in program.blocks:
                k = self._bodies.index(body)
                result[self._joints[k], INERTIAL * k : INERTIAL * (k + 1)] = program.integrate(body, padded)
        return result
