"""The model a controller works with: parameters and the boxes that contain the truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sysid_ros.core.common.box import Box
from sysid_ros.core.model.inertia import PARAMETER_NAMES
from sysid_ros.core.model.robot import RobotModel, parameter_names
from sysid_ros.core.tracking_bound.nominal_payload import choose_payload
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.loop_types import LoopRefusal


@dataclass(frozen=True)
class LoopModel:
    """Parameters of arm and payload.

    Attributes:
        theta: Nominal parameters of the arm, (14 n,).
        theta_box: Box that contains the true ones, (14 n,).
        payload: Nominal payload about the frame of the last joint, (10,).
        payload_box: Box that contains the true one, (10,).
    """

    theta: Array
    theta_box: Box
    payload: Array
    payload_box: Box

    @classmethod
    def nominal(cls, robot: RobotModel) -> LoopModel:
        """Return the robot's nominal parameters with its payload prior."""
        prior = robot.payload_prior
        return cls.of_payload(robot, prior.box, prior.nominal)

    @classmethod
    def of_payload(cls, robot: RobotModel, box: Box, guess: Array, nominal: Array | None = None) -> LoopModel:
        """Return the robot's nominal parameters with a payload in a box.

        Args:
            robot: The arm.
            box: Box that contains the true payload, (10,).
            guess: What it most probably is, (10,).
            nominal: Nominal payload of the controller, (10,); None for what makes the tracking bound small.
        """
        payload = choose_payload(robot, (robot.theta_box, box), guess) if nominal is None else nominal
        return cls(robot.theta_nominal, robot.theta_box, payload, box)

    def torque_offset(self, robot: RobotModel) -> Array:
        """Return the torque offsets beta, (n,) [Nm]."""
        return robot.friction(self.theta)[:, 3]

    def require_fits(self, robot: RobotModel) -> None:
        """Check the numbers.

        Raises:
            LoopRefusal: A length is wrong, or a nominal value is not finite or, of the arm, outside its box; names it.
                The nominal payload may lie outside its box: the integral state makes up for what is wrong with it.
        """
        parts = (
            (self.theta, self.theta_box, parameter_names(robot)),
            (self.payload, self.payload_box, tuple(f"payload.{name}" for name in PARAMETER_NAMES)),
        )
        for values, box, names in parts:
            if not np.shape(values) == box.lower.shape == (len(names),):
                raise LoopRefusal("model", f"{len(names)} parameters are needed, {np.size(values)} were given")
            is_inside = (box.lower <= values) & (values <= box.upper)
            outside = np.flatnonzero(~(np.isfinite(values) if values is self.payload else is_inside))
            if outside.size:
                i = outside[0]
                raise LoopRefusal("model", f"{names[i]} = {values[i]} is not in [{box.lower[i]}, {box.upper[i]}]")

    def require_inside(self, other: LoopModel, robot: RobotModel) -> None:
        """Check that this model is at least as certain as another.

        Raises:
            LoopRefusal: A box is not inside that of the other model; names the parameter.
        """
        parts = (
            (self.theta_box, other.theta_box, parameter_names(robot)),
            (self.payload_box, other.payload_box, tuple(f"payload.{name}" for name in PARAMETER_NAMES)),
        )
        for box, present, names in parts:
            outside = np.flatnonzero((box.lower < present.lower) | (box.upper > present.upper))
            if outside.size:
                i = outside[0]
                raise LoopRefusal(
                    "model",
                    f"the interval of {names[i]}, [{box.lower[i]:.6g}, {box.upper[i]:.6g}], is not inside the one "
                    f"in use, [{present.lower[i]:.6g}, {present.upper[i]:.6g}]; "
                    "ask for a reset if the payload was changed",
                )
