"""Torque regressor: the equation of motion with accelerations.

Source: SAFE-ID (5), (6), (10). For few samples the inertial columns are Pinocchio's, sample by sample; many are
computed in batches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.model.robot import INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.regressors.body_columns import Columns
from sysid_ros.core.regressors.body_frames import LARGEST_CHUNK, SharedSweep
from sysid_ros.core.regressors.joint_tree import JointTree, pinocchio_model

Array = NDArray[np.float64]

_FEW = 100
"""Up to so many samples, calls of Pinocchio take less time than a batch."""


class InvalidSamples(SysidError):
    """Sample arrays of a wrong shape, or with an entry that is not a finite number.

    Args:
        name: The argument at fault.
        reason: What is wrong with it and what is expected.
    """

    def __init__(self, name: str, reason: str):
        self.name = name
        super().__init__(f"samples '{name}': {reason}")


def as_samples(n: int, **arrays: ArrayLike | None) -> tuple[Array, ...]:
    """Convert arrays to float (N, n) and check them.

    Args:
        n: Number of joints.
        **arrays: The arrays by name; the first sets N.

    Returns:
        The arrays in the given order.

    Raises:
        InvalidSamples: A shape is not (N, n), or an entry is not finite.
    """
    result: list[Array] = []
    for name, values in arrays.items():
        array = np.asarray(values, dtype=float)
        if array.ndim != 2 or array.shape[1] != n:
            raise InvalidSamples(name, f"shape {array.shape}, expected (N, {n}): a row per sample, a column per joint")
        if result and len(array) != len(result[0]):
            raise InvalidSamples(name, f"{len(array)} rows, expected {len(result[0])} as in '{next(iter(arrays))}'")
        if not np.isfinite(array).all():
            row, joint = np.argwhere(~np.isfinite(array))[0]
            raise InvalidSamples(name, f"entry {array[row, joint]} of sample {row}, joint {joint} is not finite")
        result.append(array)
    return tuple(result)


def as_weights(weights: ArrayLike, samples: int) -> Array:
    """Convert quadrature weights to float (N,) and check them.

    Raises:
        InvalidSamples: The shape is not (N,), or an entry is not finite.
    """
    array = np.asarray(weights, dtype=float)
    if array.shape != (samples,):
        raise InvalidSamples("weights", f"shape {array.shape}, expected ({samples},): one weight per sample")
    if not np.isfinite(array).all():
        raise InvalidSamples("weights", f"entry {np.flatnonzero(~np.isfinite(array))[0]} is not finite")
    return array


def as_output(shape: tuple[int, ...], given: Array | None) -> Array:
    """Return an array to write a regressor into, the caller's own if it fits.

    Raises:
        InvalidSamples: The caller's array has another shape or is not of C-contiguous float64.
    """
    if given is None:
        return np.empty(shape)
    if given.shape != shape or given.dtype != np.float64 or not given.flags.c_contiguous:
        raise InvalidSamples("out", f"shape {given.shape} of {given.dtype}, expected C-contiguous float64 of {shape}")
    return given


class TorqueRegressor:
    """Evaluates ``W`` with ``W theta = H a + C v + g + F_c sign(v) + F_v v + I_a a + beta = tau``.

    The columns are those of ``theta``, ``[10 per body | F_c, F_v, I_a, beta per joint]``. The object holds buffers: use
    one per thread.

    Args:
        robot: The robot, or a bare Pinocchio model of joints with one degree of freedom.
        meaning: What the effort signal measures, by default the robot's own setting; on the link side the friction
            columns are zero.
        bodies: Bodies whose inertial columns are wanted, 1..n, by default all.

    Attributes:
        columns: The columns, with their ``indices`` in ``theta``.

    Raises:
        UnsupportedJoint: A joint is not revolute, prismatic or helical.
        ParameterOutOfRange: A body does not exist.
    """

    def __init__(
        self,
        robot: RobotModel | pin.Model,
        meaning: EffortMeaning | None = None,
        bodies: Sequence[int] | None = None,
    ):
        self.columns = Columns.select(robot, meaning, bodies)
        tree = JointTree.of(robot)
        self._n = tree.n
        self._sweep = SharedSweep(tree, [body - 1 for body in self.columns.bodies])
        self._model = pinocchio_model(robot).copy()
        self._data = self._model.createData()
        self._selected = self.columns.indices[: self.columns.inertial]
        self._is_whole = self.columns.inertial == INERTIAL * self._n and bool((np.diff(self._selected) == 1).all())

    def evaluate(
        self,
        q: ArrayLike,
        v: ArrayLike,
        a: ArrayLike,
        direction: ArrayLike | None = None,
        out: Array | None = None,
    ) -> Array:
        """Evaluate the regressor.

        Args:
            q: Positions, (N, n) [rad].
            v: Velocities, (N, n) [rad/s].
            a: Accelerations, (N, n) [rad/s^2].
            direction: What to use for ``sign(v)``, (N, n) in [-1, 1].
            out: Array to write into.

        Returns:
            ``W``, (N, n, k) [Nm per unit of the parameter].

        Raises:
            InvalidSamples: A shape is wrong or an entry is not finite.

        Source: SAFE-ID (10).
        """
        if direction is None:
            q, v, a = as_samples(self._n, q=q, v=v, a=a)
            direction = np.sign(v)
        else:
            q, v, a, direction = as_samples(self._n, q=q, v=v, a=a, direction=direction)
        regressor = as_output((len(q), self._n, self.columns.count), out)
        if len(q) <= _FEW:
            inertial = regressor[:, :, : self.columns.inertial]
            for k in range(len(q)):
                columns = pin.computeJointTorqueRegressor(self._model, self._data, q[k], v[k], a[k])
                inertial[k] = columns if self._is_whole else columns[:, self._selected]
            self.columns.write_friction(regressor, direction, v, a, 1.0)
            return regressor
        sweep = self._sweep.get()
        for first in range(0, len(q), LARGEST_CHUNK):
            stop = min(first + LARGEST_CHUNK, len(q))
            sweep.evaluate(q[first:stop], v[first:stop], a[first:stop])
            part = slice(first, stop)
            regressor[part] = 0.0
            sweep.write(regressor[part])
            self.columns.fill_friction(regressor[part], direction[part], v[part], a[part], 1.0)
        return regressor
