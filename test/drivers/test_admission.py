from dataclasses import replace

import numpy as np
import pytest
from driver_doubles import make_certificate, make_move

from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.admission import admit_control, admit_start, admit_trajectory
from sysid_ros.drivers.loop_types import LoopRefusal

ZERO = np.zeros(7)
THIRD = np.array([0, 0, 0.1, 0, 0, 0, 0])


@pytest.fixture
def boxes(robot):
    return robot.theta_box, robot.payload_prior.box


def test_a_good_plan_is_admitted(robot, boxes):
    plan = make_move(robot.home)
    certificate = make_certificate(boxes, plan)
    assert admit_trajectory(robot, plan, certificate, boxes, 10.0) is certificate
    admit_control(certificate, certificate.control_law, robot.payload_prior.nominal)
    admit_start(robot, plan, certificate, robot.home, 0.0)


def test_a_proof_is_about_one_robot_and_one_start(robot, boxes):
    plan = make_move(robot.home)
    certificate = make_certificate(boxes, plan)
    admit_trajectory(robot, plan, certificate, boxes, 10.0)
    stronger = replace(robot, limits=replace(robot.limits, tau_max=10.0 * robot.limits.tau_max))
    assert robot.payload_prior.shape is not None
    for other in (
        stronger,
        replace(robot, spheres=robot.spheres[1:]),
        replace(robot, sensors=replace(robot.sensors, stamp_jitter=1e-3)),
        replace(robot, payload_prior=replace(robot.payload_prior, shape=None)),
        replace(robot, theta_nominal=1.01 * robot.theta_nominal),
        replace(robot, never_touch=(("shoulder_link", "bracelet_link"),)),
    ):
        refuse(other, boxes, plan, certificate, "planner and driver need the same model")
    admit_start(robot, plan, certificate, robot.home + 1e-7, 0.0)
    with pytest.raises(LoopRefusal, match="starts -0.000100 rad away from the held position of joint_3"):
        admit_start(robot, plan, certificate, robot.home + 1e-3 * THIRD, 0.0)


def refuse(robot, boxes, plan, certificate, message, now=10.0):
    with pytest.raises(LoopRefusal, match=message):
        admit_trajectory(robot, plan, certificate, boxes, now)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tracking_bound": np.full(7, np.inf)}, "tracking bound of its certificate"),
        ({"tracking_bound": np.full(6, 0.1)}, "tracking bound of its certificate"),
        ({"velocity_bound": np.full(7, np.inf)}, "velocity bound of its certificate"),
        ({"torque_bound": np.full(7, np.nan)}, "torque bound of its certificate"),
        ({"tracking_bound": 0.1 * np.array([1, 1, 0.0, 1, 1, 1, 1])}, "tracking bound of joint_3 .* is 0.0 rad"),
        ({"tracking_bound": np.full(7, 0.5)}, "tracking bound of joint_1 .* must be positive, at most 0.2 rad"),
        ({"velocity_bound": np.full(3, 0.1)}, "velocity bound of its certificate .* must be 7 finite numbers"),
        ({"velocity_bound": np.empty(0)}, "velocity bound of its certificate .* must be 7 finite numbers"),
        ({"torque_bound": np.empty(0)}, "torque bound of its certificate .* must be 7 finite numbers"),
        ({"velocity_bound": np.full(7, -0.1)}, "velocity bound of joint_1 .* is -0.1 rad/s; it must be positive"),
        ({"velocity_bound": np.full(7, 1.3)}, "velocity bound of joint_5 .* is 1.3 rad/s; .* at most 1.222 rad/s"),
        ({"torque_bound": np.full(7, 39.0)}, "torque bound of joint_5 .* is 39.0 Nm; .* at most 29.4 Nm"),
    ],
)
def test_certificates_that_do_not_fit(robot, boxes, changes, message):
    plan = make_move(robot.home)
    refuse(robot, boxes, plan, make_certificate(boxes, plan, **changes), message)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (lambda home: make_move(home, step=np.array([0, 2.5, 0, 0, 0, 0, 0])), r"the position of joint_2 .* by 0\.\d+"),
        (lambda home: make_move(home, step=0.5, duration=0.4), r"the velocity of joint_\d .* rad/s"),
        (lambda home: BezierTrajectory(home, THIRD, ZERO, home, 2.0), "starts with 0.100000 rad/s at joint_3"),
        (lambda home: BezierTrajectory(home, ZERO, THIRD, home, 2.0), r"0.100000 rad/s\^2 at joint_3"),
        (lambda home: make_move(home[:6]), "it has 6 joints, the arm has 7"),
    ],
)
def test_motions_that_are_not_allowed(robot, boxes, plan, message):
    plan = plan(robot.home)
    refuse(robot, boxes, plan, make_certificate(boxes, plan), message)


def test_a_limit_that_is_not_a_number_admits_nothing(robot, boxes):
    plan = make_move(robot.home)
    broken = replace(robot, limits=replace(robot.limits, v_max=np.full(7, np.nan)))
    refuse(
        broken,
        boxes,
        plan,
        make_certificate(boxes, plan, robot=broken, velocity_bound=robot.limits.v_max),
        "the velocity of joint_1",
    )
