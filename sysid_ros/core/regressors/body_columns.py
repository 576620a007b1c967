"""Inertias of bodies and subtrees for given parameters, many samples at once, in base axes about the base origin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.spatial import cross
from sysid_ros.core.model.inertia import inertia_matrix
from sysid_ros.core.model.robot import FRICTION, INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.regressors.joint_tree import Frames, last

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Inertias:
    """Inertia of each body, or of each subtree, about the base origin.

    Attributes:
        mass: (n,) [kg].
        first: First moment of mass, (n, 3, N) [kg m].
        second: Rotational inertia, (n, 3, 3, N) [kg m^2].
    """

    mass: Array
    first: Array
    second: Array

    def apply(self, motions: Array) -> Array:
        """Compute the momenta (n, 6, N) of the motions (n, 6, N)."""
        result = np.empty_like(motions)
        linear, angular = motions[:, :3], motions[:, 3:]
        cross(last(self.first), last(linear), last(result[:, 3:]))
        result[:, 3:] += np.einsum("iabt,ibt->iat", self.second, angular)
        cross(last(angular), last(self.first), last(result[:, :3]))
        result[:, :3] += self.mass[:, None, None] * linear
        return result

    def of_subtrees(self, parents: tuple[int, ...]) -> Inertias:
        """Return the inertia of each body together with all bodies beyond it."""
        return Inertias(*(sum_subtrees(values, parents) for values in (self.mass, self.first, self.second)))


def body_inertias(theta: Array, frames: Frames) -> Inertias:
    """Express the bodies' inertias in the base.

    Args:
        theta: Inertial parameters, (10 n,) or longer.
        frames: Poses of the bodies for N samples.

    Returns:
        Inertias of the n bodies.

    Source: parallel axes for any first moment ``c`` about the body's origin ``p``:
    ``R I R^T + 2 (p . c) 1 - c p^T - p c^T + m ((p . p) 1 - p p^T)``.
    """
    n = len(frames.origin)
    parameters = theta[: INERTIAL * n].reshape(n, INERTIAL)
    mass, rotation, origin = parameters[:, 0], frames.rotation, frames.origin
    moment = np.einsum("ibat,ib->iat", rotation, parameters[:, 1:4])  # about the body's origin
    first = moment + mass[:, None, None] * origin
    about_body = np.stack([inertia_matrix(values) for values in parameters])
    second = np.einsum("ibat,ibdt->iadt", rotation, np.einsum("ibc,icdt->ibdt", about_body, rotation))
    product = (moment + 0.5 * mass[:, None, None] * origin)[:, :, None] * origin[:, None]
    second -= product + product.transpose(0, 2, 1, 3)
    trace = 2.0 * np.einsum("iaat->it", product)
    second += np.eye(3)[:, :, None] * trace[:, None, None]
    return Inertias(mass, first, second)


def sum_subtrees(values: Array, parents: tuple[int, ...]) -> Array:
    """Add to the entry of each body, along the first axis, the entries of all bodies beyond it."""
    result: Array = values.copy()
    for body in reversed(range(len(parents))):
        if parents[body] >= 0:
            result[parents[body]] += result[body]
    return result


# Columns of the inertia (xx, xy, yy, xz, yz, zz), Pinocchio's order, as pairs of body axes.
INERTIA_AXES = ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))


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
        """Choose columns.

        Args:
            robot: The robot; a bare Pinocchio model counts as measured on the motor side.
            meaning: What the effort signal measures; by default what the robot's sensors say.
            bodies: Bodies whose inertial columns are wanted, 1..n; all by default.

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

    def write_friction(
        self, regressor: Array, coulomb: Array | float, viscous: Array | float, armature: Array | float, offset: float
    ) -> None:
        """Write the friction columns of (..., n, count).

        Args:
            regressor: Written in place.
            coulomb: Factor of F_c, (..., n) or the same for all.
            viscous: Factor of F_v, likewise.
            armature: Factor of I_a, likewise.
            offset: Factor of beta.
        """
        regressor[..., self.inertial :] = 0.0
        self.fill_friction(regressor, coulomb, viscous, armature, offset)

    def fill_friction(
        self, regressor: Array, coulomb: Array | float, viscous: Array | float, armature: Array | float, offset: float
    ) -> None:
        """Do what :meth:`write_friction` does, where all friction columns are zero already."""
        if not self.has_friction:
            return
        block = regressor[..., self.inertial :]
        joints = np.einsum("...jjk->...jk", block.reshape(*block.shape[:-1], self.n, FRICTION))  # a view: (..., n, 4)
        for k, factor in enumerate((coulomb, viscous, armature, offset)):
            joints[..., k] = factor
