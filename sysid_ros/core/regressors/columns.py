"""Which columns of ``theta`` a regressor has, and how its friction columns are filled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.errors import ParameterOutOfRange
from sysid_ros.core.model.robot import FRICTION, INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.regressors.tree import JointTree

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Columns:
    """Columns ``[10 per selected body | 4 per joint]`` of a regressor.

    Attributes:
        n: Number of joints.
        bodies: Selected bodies, 1..n, in the order of the columns.
        has_friction: Whether friction and armature act on the measured torque; if not, their columns stay zero.
    """

    n: int
    bodies: tuple[int, ...]
    has_friction: bool

    @classmethod
    def select(
        cls, robot: RobotModel | pin.Model, meaning: EffortMeaning | None, bodies: Sequence[int] | None
    ) -> Columns:
        """Chooses columns.

        Args:
            robot: The robot; a bare Pinocchio model counts as measured on the motor side.
            meaning: What the effort signal measures; by default what the robot's sensors say.
            bodies: Bodies whose inertial columns are wanted, 1..n; all by default.

        Raises:
            ParameterOutOfRange: A body does not exist or is listed twice.
        """
        is_robot = isinstance(robot, RobotModel)
        n = robot.n if is_robot else robot.nv
        if meaning is None:
            meaning = robot.sensors.effort_meaning if is_robot else EffortMeaning.MOTOR_SIDE
        chosen = tuple(range(1, n + 1)) if bodies is None else tuple(int(body) for body in bodies)
        if not chosen or len(set(chosen)) != len(chosen) or not all(1 <= body <= n for body in chosen):
            raise ParameterOutOfRange("bodies", chosen, f"different numbers of bodies, at least one, each 1 to {n}")
        return cls(n, chosen, meaning is EffortMeaning.MOTOR_SIDE)

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

    @property
    def body_index(self) -> slice | NDArray[np.intp]:
        """0-based index of the selected bodies, a slice (which numpy need not copy) if they are consecutive."""
        first, last = self.bodies[0] - 1, self.bodies[-1]
        is_range = self.bodies == tuple(range(first + 1, last + 1))
        return slice(first, last) if is_range else np.array(self.bodies) - 1

    def clear_unrelated(self, regressor: Array, tree: JointTree) -> None:
        """Zeroes, in (..., n, count), the columns of bodies that the joint of the row does not move."""
        for k, body in enumerate(self.bodies):
            rows = np.flatnonzero(~tree.is_ancestor[:, body - 1])
            if rows.size:
                block = slice(rows[0], rows[-1] + 1) if rows[-1] - rows[0] + 1 == rows.size else rows
                regressor[..., block, INERTIAL * k : INERTIAL * (k + 1)] = 0.0

    def write_friction(self, regressor: Array, coulomb: Array, viscous: Array, armature: Array, offset: float) -> None:
        """Writes the friction columns of (..., n, count).

        Args:
            regressor: Written in place.
            coulomb: Factor of F_c, (..., n).
            viscous: Factor of F_v, (..., n).
            armature: Factor of I_a, (..., n).
            offset: Factor of beta.
        """
        block = regressor[..., self.inertial :]
        block[...] = 0.0
        if not self.has_friction:
            return
        joints = np.einsum("...jjk->...jk", block.reshape(*block.shape[:-1], self.n, FRICTION))  # a view: (..., n, 4)
        for k, factor in enumerate((coulomb, viscous, armature, offset)):
            joints[..., k] = factor
