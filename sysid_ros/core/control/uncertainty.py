"""What may be wrong with the inertia of a model: the arm's parameters in a box, the last body in a smaller set.

Parameters are ordered as ``[inertial (10 n) | armature (n)]`` here: what the inertia depends on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.payload_set import PayloadSet, candidate_sets
from sysid_ros.core.control.vertices import Vertices
from sysid_ros.core.model.box import Box
from sysid_ros.core.model.robot import INERTIAL, RobotModel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class InertialUncertainty:
    """The true inertial parameters: ``arm +- radius``, and a member of ``payloads`` added to the last body.

    Attributes:
        theta: Nominal parameters of the arm without payload, (11 n,).
        arm: Middle of the box of the arm's, (11 n,); zero for the last body where ``payloads`` replaces it.
        radius: Half widths, (11 n,), likewise.
        payloads: Set of what the last body may carry, or be.
        last: Entries of the last body.
    """

    theta: Array
    arm: Array
    radius: Array
    payloads: PayloadSet
    last: slice

    @classmethod
    def of(cls, robot: RobotModel, model: ControlModel, payloads: PayloadSet) -> InertialUncertainty:
        """With one of the sets that :func:`inertial_uncertainties` offers."""
        last = robot.inertial_slice(robot.n)
        lower, upper = (inertial(robot, bound) for bound in (model.theta_box.lower, model.theta_box.upper))
        box = Box(lower, upper)
        arm, radius = box.center, box.radius.copy()
        if payloads.replaces:
            arm[last] = radius[last] = 0.0
        return cls(inertial(robot, model.theta), arm, radius, payloads, last)

    def nominal(self, payload: Array) -> Array:
        """Nominal parameters with nominal payloads (S, 10), (S, 11 n)."""
        total = np.repeat(self.theta[None], len(payload), axis=0)
        total[:, self.last] += payload
        return total

    def center(self, payload: Array) -> Array:
        """Deviation of the middle of the vertices from the nominal parameters with payloads (S, 10), (S, 11 n)."""
        values = self.arm - self.nominal(payload)
        values[:, self.last] += self.payloads.vertices.mean(axis=0)
        return values

    @cached_property
    def vertices(self) -> Vertices:
        """The vertices about their middle."""
        return Vertices(self.payloads.vertices - self.payloads.vertices.mean(axis=0))

    @property
    def spread(self) -> Array:
        """Half widths about the vertices, (11 n,)."""
        radius = self.radius.copy()
        radius[self.last] += self.payloads.radius
        return radius


def inertial_uncertainties(robot: RobotModel, model: ControlModel) -> list[InertialUncertainty]:
    """Descriptions of what may be wrong with a model, each of them valid."""
    last = robot.inertial_slice(robot.n)
    body = Box(model.theta_box.lower[last], model.theta_box.upper[last])
    return [InertialUncertainty.of(robot, model, payloads) for payloads in candidate_sets(model, body)]


def inertial(robot: RobotModel, theta: Array) -> Array:
    """The parameters the inertia depends on, (11 n,), of parameters (14 n,)."""
    return np.concatenate([theta[: INERTIAL * robot.n], robot.friction(theta)[:, 2]])
