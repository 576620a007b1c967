"""The heaviest object that a motion is certified for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.certification.stop_model import PlanRejected
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.payload import object_box
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.request import PlanFailure, PlanRequest
from sysid_ros.core.tracking_bound.nominal_payload import choose_payload, easiest_payload
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable

Array = NDArray[np.float64]

_HEAVIEST, _STEPS = 2.5, 5
"""Largest mass that is tried, over the rated payload, and bisections."""


def find_heaviest(
    robot: RobotModel, start: Array, goal: Array, scene: Scene
) -> tuple[float, CertifiedPlan | None, str]:
    """Find the mass up to which any object of the payload prior's shape has a certified straight motion.

    Args:
        robot: The arm, whose prior is an object.
        start: Posture at rest, (n,) [rad].
        goal: Posture to get to, (n,) [rad].
        scene: Environment.

    Returns:
        Largest mass [kg], its plan, None if there is none, and why there is none for a heavier one.

    Raises:
        ParameterOutOfRange: The prior is a box, not an object.
    """
    shape = robot.payload_prior.shape
    if shape is None:
        raise ParameterOutOfRange("payload prior", robot.payload_prior.name, "one of an object: mass, CoM, gyration")
    low, high = 0.0, _HEAVIEST * (robot.rated_payload or 0.5 * robot.payload_prior.box.upper[0])
    found: CertifiedPlan | None = None
    reason = "the largest mass that is tried"
    for tried in range(_STEPS + 1):
        mass = high if tried == 0 else 0.5 * (low + high)
        box = object_box((0.0, mass), shape.com, shape.gyration)
        arm = replace(robot, payload_prior=replace(robot.payload_prior, box=box, nominal=box.center))
        nominal = easiest_payload(arm, (arm.theta_box, box), choose_payload(arm), goal)
        request = PlanRequest(Assumptions.of_payload(arm, nominal=nominal, scene=scene), start, goal=goal)
        try:
            found = CertifiedPlanner(arm).plan_to(request)
        except (PlanRejected, BoundNotAvailable, PlanFailure) as refused:
            high, reason = mass, str(refused).partition(";")[0]
            continue
        low = mass
        if tried == 0:
            break
    return low, found, reason
