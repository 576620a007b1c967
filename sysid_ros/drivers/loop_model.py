"""The model a controller works with: parameters and the boxes that contain the truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sysid_ros.core.common.box import Box
from sysid_ros.core.model.inertia import PARAMETER_NAMES
from sysid_ros.core.model.robot import RobotModel, parameter_names
from sysid_ros.core.tracking_bound.nominal_payload import choose_payload
from sysid_ros.core.trajectories.serialization import Trajectory
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
        """The robot's nominal parameters and its payload prior."""
        prior = robot.payload_prior
        return cls.of_payload(robot, prior.box, prior.nominal)

    @classmethod
    def of_payload(cls, robot: RobotModel, box: Box, guess: Array, nominal: Array | None = None) -> LoopModel:
        """The robot's nominal parameters and a payload in a box.

        Args:
            robot: The arm.
            box: Box that contains the true payload, (10,).
            guess: What it most probably is, (10,).
            nominal: What the controller takes it for, (10,); None for what makes the tracking bound small.
        """
        payload = choose_payload(robot, (robot.theta_box, box), guess) if nominal is None else nominal
        return cls(robot.theta_nominal, robot.theta_box, payload, box)

    def torque_offset(self, robot: RobotModel) -> Array:
        """Torque offsets beta, (n,) [Nm]."""
        return robot.friction(self.theta)[:, 3]

    def require_fits(self, robot: RobotModel) -> None:
        """Checks the numbers.

        Raises:
            LoopRefusal: A length is wrong, or a nominal value is not finite or, of the arm, outside its box; names it.
                The payload may be taken for another one than its box allows: what is wrong with it is learnt.
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
        """Checks that this model is at least as certain as another.

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


_TOLERANCES = (("position", "rad", 1e-9), ("velocity", "rad/s", 1e-8), ("acceleration", "rad/s^2", 1e-7))
"""Largest differences at the take-over: what rounding leaves of two evaluations of the same state."""


@dataclass(frozen=True)
class Continuation:
    """Where a trajectory begins that does not begin at rest.

    Attributes:
        after: ``hash()`` of the trajectory it takes over from.
        at: Time of that trajectory at which it takes over [s].
        model: Model the controller uses from then on; None keeps the present one.
    """

    after: str
    at: float
    model: LoopModel | None = None


def admit_continuation(
    robot: RobotModel, trajectory: Trajectory, continuation: Continuation, present: Trajectory, present_hash: str
) -> None:
    """Checks that a trajectory begins exactly in the state in which the present one is left.

    Args:
        robot: Joint names.
        trajectory: What is to be executed.
        continuation: Where it begins.
        present: The trajectory that is being followed.
        present_hash: Its ``hash()``.

    Raises:
        LoopRefusal: It continues another trajectory, from a time that trajectory does not have, or with a jump.
    """
    if continuation.after != present_hash:
        raise LoopRefusal(
            "trajectory",
            f"it continues plan {continuation.after[:12]}, but the arm follows {present_hash[:12]}; plan it again",
        )
    if not 0.0 < continuation.at <= present.duration:
        raise LoopRefusal(
            "trajectory",
            f"it takes over after {continuation.at:g} s of a plan of {present.duration:g} s; "
            "allowed: above 0, at most that",
        )
    states = zip(trajectory.evaluate(0.0), present.evaluate(continuation.at), _TOLERANCES, strict=True)
    for starts, left, (name, unit, tolerance) in states:
        jump = np.abs(starts - left)
        joint = int(np.argmax(np.where(np.isnan(jump), np.inf, jump)))
        if not jump[joint] <= tolerance:
            raise LoopRefusal(
                "trajectory",
                f"the {name} of {robot.joint_names[joint]} would jump by {jump[joint]:.3g} {unit} at the take-over",
            )
