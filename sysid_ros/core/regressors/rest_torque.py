"""Torques at rest: what weighing proves of arm and payload together, and what that takes off worst-case torques.

Boxes of single parameters forget what belongs together. Where an arm has rested, the torque that gravity needs in each
joint is known almost as well as it was measured, whatever the masses behind it: a strip ``|d (theta - c) - m| <= w``
for each joint, with the row d of the torque regressor in that posture and the centre c of the boxes. For any number z,

    y theta  <=  y c + |y - z d| radius + z m + |z| w,

which is the dual of the linear programme over boxes and strip, and least for one of the z at which an entry of
``y - z d`` vanishes, or for 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.robot import INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.regressors.torque import TorqueRegressor

Array = NDArray[np.float64]

_ROUNDING = 1e-12
"""Share of the size of a torque that rounding is allowed for, some thousand times what it can be."""


@dataclass(frozen=True, eq=False)
class RestTorque:
    """Torque that balances the gravity of arm and payload together in a posture.

    Attributes:
        joint_names: Names of the n joints.
        posture: The posture, (n,) [rad].
        torque: The torque, motor side, without friction and torque offset, (n,) [Nm].

    Raises:
        ParameterOutOfRange: Lengths do not fit, or a number is not finite.
    """

    joint_names: tuple[str, ...]
    posture: Array
    torque: Box

    def __post_init__(self) -> None:
        posture = np.array(self.posture, dtype=float)
        posture.setflags(write=False)
        object.__setattr__(self, "posture", posture)
        for what, values in (("posture", posture), ("torque", self.torque.lower), ("torque", self.torque.upper)):
            if values.shape != (len(self.joint_names),) or not np.all(np.isfinite(values)):
                allowed = f"a finite number for each of {len(self.joint_names)} joints"
                raise ParameterOutOfRange(f"{what} of a torque at rest", values.tolist(), allowed)


@dataclass(frozen=True)
class WeighedBox(Box):
    """Box of a payload's parameters with the torque that it needs, together with the arm, in a posture.

    Attributes:
        lower: Lower bounds, (10,).
        upper: Upper bounds, (10,).
        rest: The torque at rest.
    """

    rest: RestTorque

    @classmethod
    def of(cls, box: Box, rest: RestTorque | None) -> Box:
        """Add a torque at rest to a box; None leaves the box as it is."""
        return box if rest is None else cls(box.lower, box.upper, rest)


def rest_of(box: Box) -> RestTorque | None:
    """Return the torque at rest that belongs to a box; None where there is none."""
    return box.rest if isinstance(box, WeighedBox) else None


def gravity_rows(robot: RobotModel, posture: Array) -> Array:
    """Compute the regressor of the torque that balances gravity in a posture (n,) [rad], (n, 10 n)."""
    rest = np.zeros((1, robot.n))
    rows = TorqueRegressor(robot, EffortMeaning.MOTOR_SIDE).evaluate(posture[None], rest, rest)
    result: Array = rows[0, :, : INERTIAL * robot.n]
    return result


class RestSavings:
    """What a torque at rest takes off the largest torques over the boxes.

    Args:
        robot: The arm.
        arm: Box of its parameters, (14 n,).
        payload: Box of the payload's, (10,).
        rest: The torque at rest.

    Raises:
        ParameterOutOfRange: It is about other joints.
    """

    def __init__(self, robot: RobotModel, arm: Box, payload: Box, rest: RestTorque):
        if rest.joint_names != tuple(robot.joint_names):
            given, allowed = ", ".join(rest.joint_names), ", ".join(robot.joint_names)
            raise ParameterOutOfRange("joints of the torque at rest", given, allowed)
        inertial, last = slice(0, INERTIAL * robot.n), robot.inertial_slice(robot.n)
        center, radius = arm.center[inertial].copy(), arm.radius[inertial].copy()
        center[last] += payload.center
        radius[last] += payload.radius
        rows = gravity_rows(robot, rest.posture)
        size = np.abs(rows) @ (np.abs(center) + radius) + np.abs(rest.torque.lower) + np.abs(rest.torque.upper)
        self._center, self._radius = center, radius
        self._middle = rest.torque.center - rows @ center
        self._half = rest.torque.radius + _ROUNDING * size
        self._rows = rows

    def evaluate(self, joint: int, rows: Array) -> tuple[Array, Array]:
        """Bound by how much less than ``|row| radius`` the torque of a joint can exceed that of the centre.

        Args:
            joint: The joint, counted from 0.
            rows: Its rows of the torque regressor, the columns of the bodies that it moves, (N, 10 (n - joint)).

        Returns:
            The savings, (N,) [Nm], not negative; and the deviation of the parameters from the centre for which
            ``|row| radius - savings`` is reached, which is its gradient by the row, (N, 10 (n - joint)).
        """
        moved = slice(INERTIAL * joint, None)
        radius, direction = self._radius[moved], self._rows[joint, moved]
        places: Array = np.sign(rows) * radius
        columns = np.flatnonzero(direction * radius)
        if not columns.size:
            return np.zeros(len(rows)), places
        some, d, r, m, w = rows[:, columns], direction[columns], radius[columns], self._middle[joint], self._half[joint]
        # The cost is a convex polygon in z, the sum of weights |z - corner| and m z: its slope changes sign at one.
        corners = np.concatenate([some / d, np.zeros((len(some), 1))], axis=1)
        weights = np.append(np.abs(d) * r, w)
        order = np.argsort(corners, axis=1)
        slopes = m - weights.sum() + 2.0 * np.cumsum(weights[order], axis=1)
        least = np.argmax(slopes >= 0.0, axis=1)[:, None]
        z = np.take_along_axis(corners, np.take_along_axis(order, least, axis=1), axis=1)
        rest = some - z * d
        saved = (np.abs(some) - np.abs(rest)) @ r - z[:, 0] * m - np.abs(z[:, 0]) * w
        saved -= _ROUNDING * (np.abs(rows) @ (np.abs(self._center[moved]) + radius))
        # There the strip is active: the entries that vanish are where the others leave them, in equal shares.
        vanish = np.abs(rest) <= _ROUNDING * (np.abs(some) + np.abs(z * d))
        at = np.where(vanish, 0.0, np.sign(rest)) * r
        room = vanish @ (np.abs(d) * r)
        share = np.divide(m + w * np.sign(z[:, 0]) - at @ d, room, out=np.zeros_like(room), where=room > 0.0)
        at += vanish * (np.clip(share, -1.0, 1.0)[:, None] * np.sign(d) * r)
        active = np.flatnonzero(saved > 0.0)
        places[active[:, None], columns] = at[active]
        return np.maximum(saved, 0.0), places
