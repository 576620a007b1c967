"""Columns of a regressor, and checks of the samples it is evaluated for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core import kernel
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.model.robot import FRICTION, INERTIAL, EffortMeaning, RobotModel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Columns:
    """Columns ``[10 per selected body | 4 per joint]`` of a regressor.

    Attributes:
        n: Number of joints.
        bodies: Selected bodies, 1..n, in the order of the columns.
        has_friction: Whether friction acts on the measured torque; if not, its columns stay zero.
        has_armature: Whether armature does.
    """

    n: int
    bodies: tuple[int, ...]
    has_friction: bool
    has_armature: bool

    @classmethod
    def select(
        cls, robot: RobotModel | pin.Model, meaning: EffortMeaning | None, bodies: Sequence[int] | None
    ) -> Columns:
        """Choose columns.

        Args:
            robot: The robot; a bare Pinocchio model counts as measured on the motor side.
            meaning: Meaning of the effort signal; by default the robot's.
            bodies: Bodies with inertial columns, 1..n; all by default.

        Raises:
            ParameterOutOfRange: A body does not exist or is listed twice.
        """
        n = robot.n if isinstance(robot, RobotModel) else robot.nv
        if meaning is None:
            is_robot = isinstance(robot, RobotModel)
            meaning = robot.sensors.effort_meaning if is_robot else EffortMeaning.MOTOR_SIDE
        chosen = tuple(range(1, n + 1)) if bodies is None else tuple(int(body) for body in bodies)
        if not chosen or len(set(chosen)) != len(chosen) or not all(1 <= body <= n for body in chosen):
            raise ParameterOutOfRange("bodies", chosen, f"different numbers of bodies, at least one, each 1 to {n}")
        return cls(n, chosen, meaning.has_friction, meaning.has_armature)

    @property
    def inertial(self) -> int:
        """Number of inertial columns; the friction columns follow."""
        return INERTIAL * len(self.bodies)

    @property
    def count(self) -> int:
        """Number of columns."""
        return self.inertial + FRICTION * self.n

    @property
    def indices(self) -> NDArray[np.intp]:
        """Entry of ``theta`` (14 n,) that each column multiplies, (count,)."""
        inertial = [np.arange(INERTIAL * (body - 1), INERTIAL * body) for body in self.bodies]
        return np.concatenate([*inertial, INERTIAL * self.n + np.arange(FRICTION * self.n)])

    @cached_property
    def compiled(self) -> Any:
        """The same for the kernel."""
        return kernel.Columns([body - 1 for body in self.bodies], self.n, self.has_friction, self.has_armature)


def as_samples(n: int, **arrays: ArrayLike | None) -> tuple[Array, ...]:
    """Convert arrays to float (N, n) and check them.

    Returns:
        The arrays in the given order.

    Raises:
        SysidError: A shape is not (N, n), or an entry is not finite.
    """
    result: list[Array] = []
    for name, values in arrays.items():
        array = np.asarray(values, dtype=float)
        if array.ndim != 2 or array.shape[1] != n:
            raise SysidError(
                f"samples '{name}'", f"shape {array.shape}, expected (N, {n}): a row per sample, a column per joint"
            )
        if result and len(array) != len(result[0]):
            raise SysidError(
                f"samples '{name}'", f"{len(array)} rows, expected {len(result[0])} as in '{next(iter(arrays))}'"
            )
        if not np.isfinite(array).all():
            row, joint = np.argwhere(~np.isfinite(array))[0]
            raise SysidError(
                f"samples '{name}'", f"entry {array[row, joint]} of sample {row}, joint {joint} is not finite"
            )
        result.append(array)
    return tuple(result)


def as_weights(weights: ArrayLike, samples: int) -> Array:
    """Convert quadrature weights to float (N,) and check them.

    Raises:
        SysidError: The shape is not (N,), or an entry is not finite.
    """
    array = np.asarray(weights, dtype=float)
    if array.shape != (samples,):
        raise SysidError("samples 'weights'", f"shape {array.shape}, expected ({samples},): one weight per sample")
    if not np.isfinite(array).all():
        raise SysidError("samples 'weights'", f"entry {np.flatnonzero(~np.isfinite(array))[0]} is not finite")
    return array


def as_output(shape: tuple[int, ...], given: Array | None) -> Array:
    """Return an array to write a regressor into, the caller's own if it fits.

    Raises:
        SysidError: The caller's array has another shape or is not of C-contiguous float64.
    """
    if given is None:
        return np.empty(shape)
    if given.shape != shape or given.dtype != np.float64 or not given.flags.c_contiguous:
        raise SysidError(
            "samples 'out'", f"shape {given.shape} of {given.dtype}, expected C-contiguous float64 of {shape}"
        )
    return given
