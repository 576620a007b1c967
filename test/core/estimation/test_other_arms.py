"""Arms whose friction nobody knows: a payload is identified from a simulated recording, and the truth is inside."""

import numpy as np
import pytest

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.collision.clearance import describe_unchecked_links
from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.parameters.estimate import Quantity
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import EffortMeaning
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable

ARMS = (
    "franka_fr3",
    "franka_panda",
    "kinova_gen3_6dof",
    "kinova_gen3_lite",
    "ur3e",
    "ur5e",
    "ur10e",
    "ur16e",
    "xarm6",
    "xarm7",
)
VAGUE = ("franka_panda", "kinova_gen3_lite")
"""Arms whose files are too wide for a payload's mass to be bounded within seconds: they need a calibration first."""


def recorded(tools, robot, seed, seconds=3.0):
    """A truth of the boxes, at their corners for even seeds, and what sensors make of a motion with it."""
    rng = np.random.default_rng(seed)
    theta, payload = sample_parameters(robot, rng, seed % 2 == 0), sample_payload(robot.payload_prior, rng)
    motion = tools.FourierMotion(robot, seed, amplitude=0.6)
    exact = tools.record(robot, theta, payload, motion, seconds)
    return payload, tools.measure(robot, exact.q, exact.v, exact.tau, rng)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ARMS)
def test_a_payload_is_identified_and_the_truth_is_inside(tools, name, seed):
    robot = load_robot(name)
    payload, block = recorded(tools, robot, seed)
    estimator = StreamingEstimator(robot, EstimatorSettings(bound_tolerance=0.05))
    notices = estimator.add(block)
    estimate = estimator.estimate()
    assert estimate.is_consistent, (notices, estimate.alarm_text)
    assert np.all(estimate.lower <= payload) and np.all(payload <= estimate.upper)
    if name not in VAGUE:
        assert {Quantity.MASS} <= estimate.narrower
        assert estimate.upper[0] - estimate.lower[0] < 0.95 * robot.payload_prior.box.width[0]


@pytest.mark.parametrize("name", ARMS)
def test_of_these_arms_nothing_is_taken_as_known_exactly(name):
    robot = load_robot(name)
    radius = robot.theta_box.radius
    assert np.all(radius[: 10 * robot.n] > 0.0)
    friction = robot.friction(robot.theta_box.lower)
    assert friction[:, :3] == pytest.approx(np.zeros((robot.n, 3))) and np.all(robot.friction(radius) > 0.0)
    assert (robot.sensors.effort_meaning is EffortMeaning.LINK_SIDE) == name.startswith("franka")
    assert (robot.sensors.effort_meaning is EffortMeaning.GEAR_SIDE) == (name == "kinova_gen3_6dof")
    assert robot.protocol == "", "there is no driver"
    with pytest.raises(BoundNotAvailable, match="most is the rotor behind the gear, which may be 0 to"):
        Assumptions.of_payload(robot).bound(robot.home)


@pytest.mark.parametrize("name", ARMS)
def test_known_within_a_fifth_they_can_be_held(name):
    robot, none = load_robot(name, known_within=0.2), np.zeros(10)
    bound = Assumptions(robot, (robot.theta_box, Box(none, none)), none).bound(robot.home)
    assert bound.inertia_ratios == pytest.approx((0.8, 1.2), abs=1e-6)
    assert np.degrees(bound.position).max() < (2.0 if name == "franka_panda" else 1.0)
    assert describe_unchecked_links(robot) == []


def test_an_arm_with_friction_that_is_known_to_nobody_raises_no_alarm(tools):
    """A Panda with 0.3 Nm of friction, described by its URDF alone, used to alarm in the first window."""
    from sysid_ros.core.model.loader import load_robot_from_urdf

    robot = load_robot_from_urdf(load_robot("franka_fr3").urdf)
    assert robot.sensors.effort_meaning is EffortMeaning.MOTOR_SIDE
    theta = robot.theta_nominal.copy()
    theta[10 * robot.n :] = np.tile([0.3, 0.1, 0.0, 0.0], robot.n)
    payload = 0.2 * robot.payload_prior.nominal
    motion = tools.FourierMotion(robot, 3)
    exact = tools.record(robot, theta, payload, motion, 1.0)
    estimator = StreamingEstimator(robot, EstimatorSettings(update_windows=5))
    estimator.add(tools.measure(robot, exact.q, exact.v, exact.tau, np.random.default_rng(0)))
    estimate = estimator.estimate()
    assert estimate.is_consistent and estimate.contains(payload)
