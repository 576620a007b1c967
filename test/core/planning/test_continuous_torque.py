"""Plans of an arm that may use more torque for a while than it may hold."""

import numpy as np
import pytest

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.stop_model import LimitKind, PlanRejected
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.request import PlanFailure, PlanRequest
from sysid_ros.core.trajectories.families import BezierTrajectory

STRETCHED = np.array([0.0, 0.1, 0.0, 1.5, 0.0, 0.0, 0.0])
"""A posture in which a payload of the prior may need more than the continuous torque, and not more than the peak."""


@pytest.fixture(scope="module")
def assumptions(robot):
    return Assumptions.of_payload(robot, scene=Scene())


def test_a_posture_that_cannot_be_held_is_refused_with_how_long_it_can(robot, assumptions):
    rest, planner = np.zeros(7), CertifiedPlanner(robot)
    with pytest.raises(PlanRejected, match="continuous torque.*may be held for [1-9][0-9]* s") as caught:
        planner.certify(BezierTrajectory(STRETCHED, rest, rest, STRETCHED, 1.0), assumptions)
    assert caught.value.limit is LimitKind.CONTINUOUS_TORQUE
    with pytest.raises(PlanFailure, match="cannot be held at the goal.*continuous torque"):
        planner.plan(PlanRequest(assumptions, robot.home, goal=STRETCHED, time_limit=30.0))


@pytest.mark.slow
def test_plans_use_more_than_may_be_held_and_end_where_the_arm_can_stay(robot, assumptions):
    """Also from a posture that it has to leave, as after a stop."""
    planner, limits = CertifiedPlanner(robot), robot.limits
    for start in (robot.home, STRETCHED):
        plan = planner.plan(PlanRequest(assumptions, start, time_limit=60.0))
        squares = plan.certificate.torque_squares
        assert np.all(squares[-1] <= limits.tau_continuous**2)
        assert LimitKind.CONTINUOUS_TORQUE in {margin.limit for margin in plan.certificate.margins}
    assert np.any(squares[0] > limits.tau_continuous**2), "it begins where it could not stay"
