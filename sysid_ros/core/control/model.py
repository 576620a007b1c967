"""The nominal model of a controller, boxes of the true parameters, and the passive dynamics for given parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.robot import FRICTION, INERTIAL, PayloadShape, RobotModel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ControlModel:
    """Nominal parameters of arm and payload, and boxes that contain the true ones.

    Attributes:
        theta: Nominal parameters of the arm, (14 n,).
        theta_box: Box of the arm's parameters.
        payload: Nominal payload about the frame of the last joint, (10,). It need not lie in its box: a controller may
            keep one that has been ruled out, because a change costs more than it gains.
        payload_box: Box of the payload.
        shape: The payload as an object, where more than its box is known.

    Raises:
        ParameterOutOfRange: A length is wrong, a nominal parameter is not finite, or one of the arm is outside its box.
    """

    theta: Array
    theta_box: Box
    payload: Array
    payload_box: Box
    shape: PayloadShape | None = None

    def __post_init__(self) -> None:
        for name, values, box in (("theta", self.theta, self.theta_box), ("payload", self.payload, self.payload_box)):
            array = np.array(values, dtype=float)
            if array.shape != box.lower.shape:
                raise ParameterOutOfRange(f"length of {name}", array.size, f"{box.lower.size}, that of its box")
            is_allowed = (box.lower <= array) & (array <= box.upper) if name == "theta" else np.isfinite(array)
            outside = np.flatnonzero(~is_allowed)
            if outside.size:
                i = int(outside[0])
                raise ParameterOutOfRange(f"{name}[{i}]", float(array[i]), f"{box.lower[i]:.6g} to {box.upper[i]:.6g}")
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @classmethod
    def of_boxes(
        cls, robot: RobotModel, boxes: tuple[Box, Box] | None = None, payload: ArrayLike | None = None
    ) -> ControlModel:
        """Build a model for boxes of arm and payload.

        Args:
            robot: The arm.
            boxes: The boxes; those of the robot and its payload prior if None.
            payload: Nominal payload, (10,). Without it the prior's, or, if boxes are given, the middle of its box.

        A payload whose box lies inside that of the robot's payload prior is taken to be an object of that prior: the
        prior is an assumption about what may be held, of which its box is only a part.
        """
        arm_box, payload_box = boxes or (robot.theta_box, robot.payload_prior.box)
        theta = np.clip(robot.theta_nominal, arm_box.lower, arm_box.upper)
        if payload is None:
            payload = robot.payload_prior.nominal if payload_box is robot.payload_prior.box else payload_box.center
        prior = robot.payload_prior
        shape = prior.shape if payload_box.is_subset_of(prior.box) else None
        return cls(theta, arm_box, np.asarray(payload, dtype=float), payload_box, shape)

    @property
    def n(self) -> int:
        """Number of joints."""
        return self.theta.size // (INERTIAL + FRICTION)

    @property
    def total(self) -> Array:
        """Nominal parameters with the payload added to the last body, (14 n,)."""
        return add_payload(self.theta, self.payload)

    @property
    def friction(self) -> Array:
        """Nominal friction, (n, 4): F_c, F_v, I_a, beta."""
        return self.theta[INERTIAL * self.n :].reshape(self.n, FRICTION)

    @property
    def deviation(self) -> tuple[Array, Array]:
        """Smallest and largest difference of true and nominal parameters, payload included, each (14 n,)."""
        lower = add_payload(self.theta_box.lower - self.theta, self.payload_box.lower - self.payload)
        upper = add_payload(self.theta_box.upper - self.theta, self.payload_box.upper - self.payload)
        return np.nextafter(lower, -np.inf), np.nextafter(upper, np.inf)

    def friction_upper(self) -> Array:
        """Return the largest magnitudes of the friction parameters, (n, 4)."""
        largest = np.maximum(np.abs(self.theta_box.lower), np.abs(self.theta_box.upper))
        return largest[INERTIAL * self.n :].reshape(self.n, FRICTION)


def add_payload(theta: ArrayLike, payload: ArrayLike) -> Array:
    """Add a payload (10,) to the last body of arm parameters (14 n,)."""
    total = np.array(theta, dtype=float)
    n = total.size // (INERTIAL + FRICTION)
    total[INERTIAL * (n - 1) : INERTIAL * n] += payload
    return total


class PassiveDynamics:
    """``H(q) a + C(q, v) v_a + g(q)`` of an arm with given parameters, armature included, in a few microseconds.

    Args:
        robot: Kinematics and gravity.
        total: Parameters with the payload in the last body, (14 n,).

    Raises:
        ParameterOutOfRange: A body has no mass.
    """

    def __init__(self, robot: RobotModel, total: Array):
        self._robot = robot
        self._model, self._still = robot.pin_model.copy(), robot.pin_model.copy()
        self._still.gravity.linear = np.zeros(3)
        self._total = np.full_like(total, np.nan)
        self.change(total)
        self._data = self._model.createData()
        self._zero = np.zeros(robot.n)

    def change(self, total: Array) -> None:
        """Change the parameters (14 n,), fast enough for a cycle of the torque loop.

        Raises:
            ParameterOutOfRange: A body has no mass.
        """
        robot = self._robot
        for body in range(1, robot.n + 1):
            parameters = total[robot.inertial_slice(body)]
            if np.array_equal(parameters, self._total[robot.inertial_slice(body)]):
                continue
            if not parameters[0] > 0.0:
                raise ParameterOutOfRange(f"mass of body {body} [kg]", float(parameters[0]), "more than 0")
            inertia = pin.Inertia.FromDynamicParameters(parameters)
            self._model.inertias[body] = self._still.inertias[body] = inertia
        armature = robot.friction(total)[:, 2].copy()
        self._model.armature = self._still.armature = armature
        self._total = np.array(total)

    def torque(self, q: Array, v: Array, v_a: Array, a: Array) -> Array:
        """Compute the torque, (n,) [Nm], with the Christoffel ``C``, for which ``dH/dt - 2 C`` is skew.

        Source: polarisation, ``C(q, v) v_a = c(q, (v + v_a)/2) - c(q, (v - v_a)/2)`` with ``c(q, v) = C(q, v) v``.
        """
        tau = pin.rnea(self._model, self._data, q, 0.5 * (v + v_a), a).copy()
        tau -= pin.rnea(self._still, self._data, q, 0.5 * (v - v_a), self._zero)
        return np.asarray(tau, dtype=np.float64)

    def gravity(self, q: Array) -> Array:
        """Compute the torque that balances gravity, (n,) [Nm]."""
        return np.array(pin.computeGeneralizedGravity(self._model, self._data, q))

    def inertia(self, q: Array) -> Array:
        """Compute ``H(q)`` with armature at one position (n,) or several (N, n), (..., n, n) [kg m^2]."""
        positions = np.asarray(q).reshape(-1, self._zero.size)
        upper = np.triu(np.stack([pin.crba(self._model, self._data, one) for one in positions]))
        result: Array = upper + np.swapaxes(np.triu(upper, 1), -1, -2)
        return result.reshape(*np.shape(q)[:-1], *result.shape[1:])
