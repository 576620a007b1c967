"""The nominal model of a controller, and boxes of the true parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.mechanics import add_payload
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

        A payload whose box lies inside the prior's is assumed to be an object of that prior: its box is only a part of
        the assumption.
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
