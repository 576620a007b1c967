from dataclasses import replace

import numpy as np
import pytest
from driver_doubles import make_certificate, make_move

from sysid_ros.core.certification.certificate import Margin
from sysid_ros.core.certification.stop_model import LimitKind
from sysid_ros.core.common.box import Box
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


def test_a_proof_is_about_one_robot_one_start_and_one_brake_time(robot, boxes):
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
    refuse(robot, boxes, plan, make_certificate(boxes, plan, robot_hash=""), "that is not stated")
    for brake_time in (0.0, -1.0, np.nan, np.inf, 1e6):
        bad = make_certificate(boxes, plan, brake_time=brake_time)
        refuse(
            robot, boxes, plan, bad, f"the brake time of its certificate is {brake_time} s; it must be from 0.1 to 10 s"
        )
    admit_start(robot, plan, certificate, robot.home + 1e-7, 0.0)
    with pytest.raises(LoopRefusal, match="starts -0.000100 rad away from the held position"):
        admit_start(robot, plan, certificate, robot.home + 1e-4, 0.0)


def refuse(robot, boxes, plan, certificate, message, now=10.0):
    with pytest.raises(LoopRefusal, match=message):
        admit_trajectory(robot, plan, certificate, boxes, now)


def test_without_certificate(robot, boxes):
    refuse(robot, boxes, make_move(robot.home), None, "no certificate")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"path_hash": "0" * 64}, "issued for path 000000000000"),
        ({"box_hash": "0" * 64}, "issued for parameter box 000000000000"),
        ({"expires_at": 5.0}, "valid from 0.000 s to 5.000 s, but the time is 10.000 s"),
        ({"issued_at": 20.0}, "valid from 20.000 s"),
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
        ({"torque_fraction": 5.0}, "torque fraction of its certificate is 5.0; it must be from 0.01 to 1"),
        ({"torque_fraction": np.nan}, "torque fraction of its certificate is nan"),
        ({"brake_time": 0.05}, "brake time of its certificate is 0.05 s; it must be from 0.1 to 10 s"),
        ({"rest_before": -1.0}, "rest before of its certificate is -1.0 s"),
        ({"rest_before": np.nan}, "rest before of its certificate is nan s"),
        ({"expires_at": 1e12}, "validity of its certificate is 1000000000000.0 s; it must be from 0 to 86400 s"),
        ({"expires_at": np.inf}, "validity of its certificate is inf s"),
        ({"margins": (Margin(LimitKind.TORQUE, -0.1, "joint_1", 0.5),)}, "margin of the torque limit .* is -0.1 at"),
        ({"margins": (Margin(LimitKind.GROUND, np.nan, "arm", 0.5),)}, "margin of the ground limit .* is nan at"),
        ({"margins": (Margin(LimitKind.GROUND, 0.1, "arm", np.nan),)}, "margin of the ground limit .* at nan s"),
    ],
)
def test_certificates_that_do_not_fit(robot, boxes, changes, message):
    plan = make_move(robot.home)
    refuse(robot, boxes, plan, make_certificate(boxes, plan, **changes), message)


def test_another_model(robot, boxes):
    plan = make_move(robot.home)
    certificate = make_certificate(boxes, plan)
    other = (boxes[0], Box(boxes[1].lower, 0.99 * boxes[1].upper))
    refuse(robot, other, plan, certificate, "certify the plan again")


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


def test_another_start(robot, boxes):
    plan, reference = make_move(robot.home), robot.home.copy()
    reference[2] += 0.01
    with pytest.raises(LoopRefusal, match="starts -0.010000 rad away from the held position of joint_3"):
        admit_start(robot, plan, make_certificate(boxes, plan), reference, 0.0)


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
