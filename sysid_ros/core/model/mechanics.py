"""Mechanics of one arm: places of the bodies and of the tool, and torques of its links with given parameters."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.joint_tree import JointTree
from sysid_ros.core.model.robot import FRICTION, INERTIAL, RobotModel, tool_transform

Array = NDArray[np.float64]


def joint_axis(model: pin.Model, joint: int) -> Array:
    """Return the axis of a revolute joint in its own frame, (3,)."""
    data = model.joints[joint].createData()
    model.joints[joint].calc(data, np.zeros(model.nq))
    return np.array(data.S[3:]).reshape(3)


class BodyPoses:
    """Forward kinematics of one robot; keeps Pinocchio's workspace, so use one per thread."""

    def __init__(self, robot: RobotModel):
        self._model = robot.pin_model
        self._data = robot.pin_model.createData()
        _, self._tool = tool_transform(robot)

    def compute(self, q: ArrayLike) -> tuple[Array, Array]:
        """Compute the poses of the base (0) and of the bodies 1..n in the base frame, at positions q (n,) [rad].

        Returns:
            Rotations, (n + 1, 3, 3), and origins, (n + 1, 3) [m].
        """
        pin.forwardKinematics(self._model, self._data, np.asarray(q, dtype=float))
        placements = self._data.oMi
        return np.array([m.rotation for m in placements]), np.array([m.translation for m in placements])

    def tool_path(self, positions: ArrayLike) -> Array:
        """Compute the origin of the tool frame in the base frame, (N, 3) [m], at positions (N, n) [rad]."""
        points = []
        for q in np.asarray(positions, dtype=float):
            rotations, origins = self.compute(q)
            points.append(origins[-1] + rotations[-1] @ self._tool)
        return np.array(points).reshape(-1, 3)


def add_payload(theta: ArrayLike, payload: ArrayLike) -> Array:
    """Add a payload (10,) to the last body of arm parameters (14 n,)."""
    total = np.array(theta, dtype=float)
    n = total.size // (INERTIAL + FRICTION)
    total[INERTIAL * (n - 1) : INERTIAL * n] += payload
    return total


class ArmDynamics:
    """Dynamics of an arm with given parameters, friction left out, in a few microseconds.

    Args:
        robot: Kinematics and gravity.
        theta: Parameters, (14 n,).
        payload: Payload about the frame of the last joint, (10,); None where it is in theta, or there is none.
        armature: Whether to include the armature.

    Raises:
        ParameterOutOfRange: A body has no mass.
    """

    def __init__(self, robot: RobotModel, theta: Array, payload: Array | None = None, armature: bool = False):
        self._robot, self._has_armature = robot, armature
        self._tree = JointTree.of(robot).compiled
        self._zero, self._unit = np.zeros((1, robot.n)), np.eye(robot.n)
        self.change(theta, payload)

    def change(self, theta: Array, payload: Array | None = None) -> None:
        """Change the parameters (14 n,), fast enough for a cycle of the torque loop.

        Raises:
            ParameterOutOfRange: A body has no mass.
        """
        total = add_payload(theta, 0.0 if payload is None else payload)
        bodies = total[: INERTIAL * self._robot.n]
        masses = bodies[::INERTIAL]
        if not masses.min() > 0.0:
            body = int(np.flatnonzero(~(masses > 0.0))[0])
            raise ParameterOutOfRange(f"mass of body {body + 1} [kg]", float(masses[body]), "more than 0")
        self._bodies = bodies
        self._armature = self._robot.friction(total)[:, 2] * (1.0 if self._has_armature else 0.0)

    def gravity(self, q: Array) -> Array:
        """Compute the torque that balances gravity, (n,) [Nm]."""
        torque: Array = self._evaluate(np.asarray(q, dtype=float)[None], self._zero, self._zero, self._zero)[0]
        return torque

    def torque(self, q: Array, v: Array, a: Array) -> Array:
        """Compute ``H a + C v + g``, (n,) [Nm]."""
        return self.passive_torque(q, v, v, a)

    def passive_torque(self, q: Array, v: Array, v_a: Array, a: Array) -> Array:
        """Compute ``H a + C(q, v) v_a + g``, (n,) [Nm], with the Christoffel ``C``, for which ``dH/dt - 2 C`` is skew.

        Source: polarisation, ``C(q, v) v_a = c(q, (v + v_a)/2) - c(q, (v - v_a)/2)`` with ``c(q, v) = C(q, v) v``.
        """
        states = np.array((q, v, v_a, a), dtype=float)[:, None]
        torque: Array = self._evaluate(*states)[0]
        return torque

    def inertia(self, q: Array) -> Array:
        """Compute ``H(q)`` at one position (n,) or several (N, n), (..., n, n) [kg m^2]."""
        n = self._robot.n
        positions = np.repeat(np.asarray(q, dtype=float).reshape(-1, n), n, axis=0)
        units = np.tile(self._unit, (len(positions) // n, 1))
        rows = self._momenta(positions, units)[0].reshape(-1, n, n)
        result: Array = 0.5 * (rows + rows.swapaxes(1, 2))
        return result.reshape(*np.shape(q)[:-1], n, n)

    def momentum(self, q: Array, v: Array) -> tuple[Array, Array]:
        """Compute the momentum ``H v`` [Nms] and its rate without torques, ``C^T v - g`` [Nm], each (n,).

        Source: SAFE-ID section IV.
        """
        momentum, force = self._momenta(*np.array((q, v), dtype=float)[:, None])
        return momentum[0], force[0]

    def mean_torque(self, before: tuple[Array, Array], after: tuple[Array, Array], period: float) -> Array:
        """Compute the mean of ``H a + C v + g`` between two states ``(q, v)`` a period [s] apart, (n,) [Nm].

        From the momentum of the links, so that it is right through a reversal too, where friction jumps:
        ``int tau dt = [H v] - int (C^T v - g) dt`` with the trapezoidal rule (error about 1e-5 Nm at 1 kHz).

        Source: SAFE-ID section IV (momentum form).
        """
        (momentum_0, force_0), (momentum_1, force_1) = self.momentum(*before), self.momentum(*after)
        return (momentum_1 - momentum_0) / period - 0.5 * (force_0 + force_1)

    def _evaluate(self, q: Array, v: Array, v_a: Array, a: Array) -> Array:
        """Compute passive torques of many states, (N, n)."""
        result = np.empty(q.shape)
        self._tree.passive_torque(self._bodies, q, v, v_a, a, result)
        return result + self._armature * a

    def _momenta(self, q: Array, v: Array) -> tuple[Array, Array]:
        """Compute momenta and their rates without torques of many states, (N, n) each."""
        momentum, force = np.empty((2, *q.shape))
        self._tree.momentum_of(self._bodies, q, v, momentum, force)
        return momentum + self._armature * v, force
