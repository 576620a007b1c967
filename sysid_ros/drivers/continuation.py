"""How one certified trajectory takes over from another in motion."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.trajectory import Trajectory
from sysid_ros.drivers.loop_model import LoopModel
from sysid_ros.drivers.loop_types import LoopRefusal

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
