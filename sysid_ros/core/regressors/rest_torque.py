"""Torques at rest: bounds of arm and payload together by weighing, and their effect on worst-case torques.

Boxes of single parameters ignore their coupling. Where an arm has rested, the torque that gravity needs in each joint
is known almost as well as it was measured, whatever the masses behind it: a strip ``|d (theta - c) - m| <= w`` for each
joint, with the row d of the torque regressor in that posture and the centre c of the boxes. For any number z,

    y theta  <=  y c + |y - z d| radius + z m + |z| w,

which is the dual of the linear program over boxes and strip, and least for one of the z at which an entry of
``y - z d`` vanishes, or for 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.mechanics import add_payload
from sysid_ros.core.model.robot import INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.regressors.torque import TorqueRegressor

Array = NDArray[np.float64]

_ROUNDING = 1e-12
"""Allowance for rounding, relative to a torque, some thousand times the largest possible one."""


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
    """Return the torque at rest of a box; None without one."""
    return box.rest if isinstance(box, WeighedBox) else None


def gravity_rows(robot: RobotModel, posture: Array) -> Array:
    """Compute the regressor of the torque that balances gravity in a posture (n,) [rad], (n, 10 n)."""
    rest = np.zeros((1, robot.n))
    rows = TorqueRegressor(robot, EffortMeaning.MOTOR_SIDE).evaluate(posture[None], rest, rest)
    result: Array = rows[0, :, : INERTIAL * robot.n]
    return result


def _whole_bodies(robot: RobotModel, arm: Box, payload: Box) -> tuple[Array, Array]:
    """Return centre and radius of the inertial parameters of all bodies, the payload added to the last, (10 n,)."""
    sums = add_payload(arm.center, payload.center), add_payload(arm.radius, payload.radius)
    return sums[0][: INERTIAL * robot.n], sums[1][: INERTIAL * robot.n]


def largest_rest_torque(robot: RobotModel, boxes: tuple[Box, Box], posture: Array) -> Array:
    """Compute the largest torques that any parameters in the boxes need at rest, without Coulomb friction, (n,) [Nm].

    ``boxes`` are those of the parameters of arm (14 n,) and payload (10,), ``posture`` is (n,) [rad].
    """
    arm, payload = boxes
    center, radius = _whole_bodies(robot, arm, payload)
    offset, rows = robot.friction(arm.center)[:, 3], gravity_rows(robot, posture)
    nominal, spread = rows @ center + offset, np.abs(rows) @ radius + robot.friction(arm.radius)[:, 3]
    above, below, rest = nominal, -nominal, rest_of(payload)
    if rest is not None:
        savings = RestSavings(robot, arm, payload, rest)
        each = [savings.evaluate_both(joint, row[None, INERTIAL * joint :]) for joint, row in enumerate(rows)]
        own, negative = np.array(each)[..., 0].T
        above, below = above - own, below - negative
    largest: Array = np.maximum(above, below) + spread
    return largest


class RestSavings:
    """Reduction of the largest torques over the boxes by a torque at rest.

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
        center, radius = _whole_bodies(robot, arm, payload)
        rows = gravity_rows(robot, rest.posture)
        size = np.abs(rows) @ (np.abs(center) + radius) + np.abs(rest.torque.lower) + np.abs(rest.torque.upper)
        self._center, self._radius = center, radius
        self._middle = rest.torque.center - rows @ center
        self._half = rest.torque.radius + _ROUNDING * size
        self._rows = rows

    def evaluate(self, joint: int, rows: Array) -> Array:
        """Bound the reduction from ``|row| radius`` of the largest torque of a joint beyond the centre's.

        Args:
            joint: The joint, counted from 0.
            rows: Its rows of the torque regressor, the columns of the bodies that it moves, (N, 10 (n - joint)).

        Returns:
            The savings, (N,) [Nm], not negative.
        """
        own, _ = self.evaluate_both(joint, rows)
        return own

    def evaluate_both(self, joint: int, rows: Array) -> tuple[Array, Array]:
        """Return :meth:`evaluate` of the rows, and of their negatives, (N,) each [Nm]."""
        columns, moved = self._columns(joint), slice(INERTIAL * joint, None)
        if not columns.size:
            return np.zeros(len(rows)), np.zeros(len(rows))
        some, d, radius = rows[:, columns], self._rows[joint, moved][columns], self._radius[moved][columns]
        size = np.abs(some) @ radius
        rounding = _ROUNDING * (np.abs(rows) @ (np.abs(self._center[moved]) + self._radius[moved]))

        def saved(side: float, z: Array) -> Array:
            left = np.abs(some - side * z[:, None] * d) @ radius
            gain = size - left - z * self._middle[joint] - np.abs(z) * self._half[joint] - rounding
            result: Array = np.maximum(gain, 0.0)
            return result

        own, negative = self._solve(joint, columns, some)
        return saved(1.0, own), saved(-1.0, negative)

    def locate(self, joint: int, rows: Array) -> Array:
        """Return the deviations from the centre at which ``|row| radius - savings`` is reached: its gradient.

        Args:
            joint: The joint, counted from 0.
            rows: See :meth:`evaluate`.

        Returns:
            Deviations of the parameters, (N, 10 (n - joint)).
        """
        radius = self._radius[INERTIAL * joint :]
        places: Array = np.sign(rows) * radius
        active = np.flatnonzero(self.evaluate(joint, rows))
        if not active.size:
            return places
        columns = self._columns(joint)
        some, d, r = rows[np.ix_(active, columns)], self._rows[joint, INERTIAL * joint :][columns], radius[columns]
        z = self._solve(joint, columns, some)[0]
        rest = some - z[:, None] * d
        # The strip is active: the vanishing entries share the remainder of the others equally.
        vanish = np.abs(rest) <= _ROUNDING * (np.abs(some) + np.abs(z[:, None] * d))
        at = np.where(vanish, 0.0, np.sign(rest)) * r
        room, needed = vanish @ (np.abs(d) * r), self._middle[joint] + self._half[joint] * np.sign(z) - at @ d
        share = np.divide(needed, room, out=np.zeros_like(room), where=room > 0.0)
        places[np.ix_(active, columns)] = at + vanish * (np.clip(share, -1.0, 1.0)[:, None] * np.sign(d) * r)
        return places

    def _columns(self, joint: int) -> NDArray[np.intp]:
        """Return the columns of the bodies a joint moves on which the strip depends."""
        moved = slice(INERTIAL * joint, None)
        return np.flatnonzero(self._rows[joint, moved] * self._radius[moved])

    def _solve(self, joint: int, columns: NDArray[np.intp], some: Array) -> tuple[Array, Array]:
        """Return the best z for each row and for its negative, (N,) each, from rows of these columns, (N, columns).

        The cost is a convex polygon in z, the sum of weights |z - corner| and m z: its slope changes sign at a corner.
        That of a negative row is the same polygon, with the other sign of m, turned over.
        """
        moved = slice(INERTIAL * joint, None)
        d, r = self._rows[joint, moved][columns], self._radius[moved][columns]
        corners = np.concatenate([some / d, np.zeros((len(some), 1))], axis=1)
        weights = np.append(np.abs(d) * r, self._half[joint])
        order = np.argsort(corners, axis=1)
        before = 2.0 * np.cumsum(weights[order], axis=1) - weights.sum()
        middle, each = self._middle[joint], np.arange(len(some))
        corners = np.take_along_axis(corners, order, axis=1)
        # Corners from which on costs grow; of the negative row, in -z.
        own, negative = np.argmax(before + middle >= 0.0, axis=1), np.argmax(before - middle >= 0.0, axis=1)
        return corners[each, own], -corners[each, negative]
