"""The two planner nodes: what they find and certify, what they refuse and why."""

import numpy as np
import pytest
from node_bench import PATIENCE, Bench
from std_srvs.srv import Trigger

from sysid_msgs.msg import CertifiedTrajectory, ParameterEstimate, PlanStatus
from sysid_msgs.srv import CertifyTrajectory, PlanExcitation, PlanTo
from sysid_ros.core.estimation.estimate import ParameterEstimate as Estimate
from sysid_ros.core.planning.certificate import box_hash
from sysid_ros.core.planning.trajectory import BezierTrajectory
from sysid_ros.nodes.excitation_planner import ExcitationPlannerNode
from sysid_ros.nodes.safe_planner import SafePlannerNode
from sysid_ros.ros import qos
from sysid_ros.ros.conversions import (
    certificate_from_message,
    certified_from_message,
    estimate_to_message,
    trajectory_from_message,
    trajectory_to_message,
)
from sysid_ros.ros.waiting import wait_until

NAN = float("nan")


@pytest.fixture(scope="module")
def bench():
    quick = {"starts": 1, "max_iterations": 3, "time_budget": 0.5}
    bench = Bench(*(word for name in quick for word in ("-p", f"excitation_planner:{name}:={quick[name]}")))
    yield bench
    bench.close()


@pytest.fixture(scope="module")
def excitation(bench):
    return bench.run(ExcitationPlannerNode())


@pytest.fixture(scope="module")
def safe(bench):
    node = bench.run(SafePlannerNode())
    node.trigger_configure()
    node.trigger_activate()
    return node


@pytest.fixture
def make_request(robot):
    def make(**fields):
        given = {"joint_names": list(robot.joint_names), "start_position": robot.home.tolist(), "duration": 2.0}
        return PlanExcitation.Request(**{**given, **fields})

    return make


@pytest.fixture(scope="module")
def alarm(robot):
    nothing = np.full(10, NAN)
    return estimate_to_message(
        Estimate(
            values=nothing, lower=nothing, upper=nothing, method="left_inverse", guarantee="", is_consistent=False,
            alarm="no payload agrees", target="payload", frame=robot.joint_names[-1], number_of_windows=1,
            data_seconds=1.0, condition_number=1.0,
        ), 1,
    )  # fmt: skip


def test_excitation_is_found_certified_and_published(bench, excitation, safe, make_request, robot):
    statuses = bench.listen(PlanStatus, "excitation_planner/status", qos.STATUS)
    response = bench.call(PlanExcitation, "excitation_planner/plan", make_request(seed=2))
    assert response.success, response.message
    trajectory = trajectory_from_message(response.trajectory, robot.joint_names)
    np.testing.assert_allclose(trajectory.start, robot.home, atol=1e-9)
    assert trajectory.duration == 2.0 and 1.0 < response.condition_number < 1e4
    assert "condition number" in response.message
    statuses.wait(lambda status: status.plan_hash == trajectory.hash() and status.is_accepted)

    request = CertifyTrajectory.Request(trajectory=response.trajectory)
    answer = bench.call(CertifyTrajectory, "safe_planner/certify", request)
    assert answer.success, answer.message
    certificate = certificate_from_message(answer.certificate, robot.joint_names)
    certificate.matches(trajectory, robot.theta_box, robot.payload_prior.box)
    assert min(answer.status.margins) > 0.0 and answer.status.not_checked and answer.message == certificate.claims
    plan = bench.listen(CertifiedTrajectory, "safe_planner/plan", qos.LATCHED).wait()
    assert certified_from_message(plan, robot.joint_names)[1].plan_hash == trajectory.hash()


def test_excitation_requests_that_cannot_be_are_refused(bench, excitation, make_request, robot, alarm):
    matrix = np.eye(10)
    matrix[0, 0] = -1.0
    home = robot.home.tolist()
    cases = {
        "the unknown joint 'elbow'": {"joint_names": ["elbow", *robot.joint_names[1:]]},
        "has 6 entries for 7 joints": {"start_position": home[:6]},
        "start_position is nan for joint_1": {"start_position": [NAN, *home[1:]]},
        "duration is nan": {"duration": NAN},
        "duration is -1": {"duration": -1.0},
        "finite (10, 10) Gram matrix": {"information": np.full(100, NAN)},
        "smallest eigenvalue": {"information": matrix.reshape(100)},
        "without bounds (an alarm)": {"estimate": alarm},
        "joint_6": {"start_position": [*home[:5], 9.0, home[6]]},
    }
    for words, fields in cases.items():
        response = bench.call(PlanExcitation, "excitation_planner/plan", make_request(**fields))
        assert not response.success and words in response.message, response.message
        assert not response.status.is_accepted and response.status.text == response.message


def test_one_search_at_a_time_which_can_be_cancelled(bench, excitation, make_request):
    assert not bench.call(Trigger, "excitation_planner/cancel").success  # nothing to cancel
    assert not bench.set_parameter("excitation_planner", time_budget=300.0, max_iterations=10000, starts=100)
    client = bench.node.create_client(PlanExcitation, "excitation_planner/plan")
    client.wait_for_service(PATIENCE)
    first = client.call_async(make_request())
    assert wait_until(lambda: excitation._is_planning, PATIENCE)
    second = bench.call(PlanExcitation, "excitation_planner/plan", make_request())
    assert not second.success and "another search is running" in second.message
    assert bench.call(Trigger, "excitation_planner/cancel").success
    assert wait_until(first.done, PATIENCE)
    assert not first.result().success and "cancelled" in first.result().message
    assert not bench.set_parameter("excitation_planner", time_budget=0.5, max_iterations=3, starts=1)


def test_trajectories_that_break_a_limit_or_do_not_fit_get_no_certificate(bench, safe, robot, alarm):
    zero, home = np.zeros(7), robot.home
    good = trajectory_to_message(BezierTrajectory(home, zero, zero, home + 0.2, 2.0), robot.joint_names)
    fast = trajectory_to_message(BezierTrajectory(home, zero, zero, home + 0.5, 0.2), robot.joint_names)
    renamed = trajectory_to_message(BezierTrajectory(home, zero, zero, home, 2.0), [f"a{k}" for k in range(7)])
    turned = trajectory_to_message(BezierTrajectory(home, zero, zero, home, 2.0), robot.joint_names[::-1])
    forged = trajectory_to_message(BezierTrajectory(home, zero, zero, home, 2.0), robot.joint_names)
    forged.duration = 3.0
    cases = {
        "limit broken at joint 'joint_": (fast, ParameterEstimate()),
        "the unknown joint 'a0'": (renamed, ParameterEstimate()),
        "in another order than the robot's": (turned, ParameterEstimate()),
        "but the content has": (forged, ParameterEstimate()),
        "no payload agrees": (good, alarm),
    }
    for words, (trajectory, estimate) in cases.items():
        request = CertifyTrajectory.Request(trajectory=trajectory, estimate=estimate)
        response = bench.call(CertifyTrajectory, "safe_planner/certify", request)
        assert not response.success and words in response.message, response.message
        assert response.certificate.plan_hash == "" and not response.status.is_accepted


def test_motion_to_a_posture_is_planned_and_certified(bench, safe, robot):
    home, names = robot.home.tolist(), list(robot.joint_names)
    goal = (robot.home + 0.1).tolist()
    response = bench.call(
        PlanTo, "safe_planner/plan_to", PlanTo.Request(joint_names=names, start_position=home, goal_position=goal)
    )
    assert response.success, response.message
    trajectory, certificate = certified_from_message(response.plan, robot.joint_names)
    assert certificate.box_hash == box_hash(robot.theta_box, robot.payload_prior.box)
    np.testing.assert_allclose(trajectory.evaluate(trajectory.duration)[0], goal, atol=1e-9)
    cases = {
        "goal_position is 'empty'": {"start_position": home},
        "goal_position is inf for joint_7": {"start_position": home, "goal_position": [*home[:6], np.inf]},
        "joint_4": {"start_position": home, "goal_position": [*home[:3], 9.0, *home[4:]]},
    }
    for words, fields in cases.items():
        request = PlanTo.Request(joint_names=names, **fields)
        refused = bench.call(PlanTo, "safe_planner/plan_to", request)
        assert not refused.success and words in refused.message, refused.message


def test_safe_planner_certifies_only_while_it_is_active(bench, safe, robot):
    zero = np.zeros(7)
    trajectory = BezierTrajectory(robot.home, zero, zero, robot.home + 0.1, 2.0)
    request = CertifyTrajectory.Request(trajectory=trajectory_to_message(trajectory, robot.joint_names))
    assert bench.change_state("safe_planner", "deactivate")
    refused = bench.call(CertifyTrajectory, "safe_planner/certify", request)
    assert not refused.success and "not active" in refused.message and refused.certificate.plan_hash == ""
    assert bench.change_state("safe_planner", "cleanup")
    assert not bench.change_state("safe_planner", "activate")  # not configured
    assert bench.change_state("safe_planner", "configure")
    assert bench.change_state("safe_planner", "activate")
    assert bench.call(CertifyTrajectory, "safe_planner/certify", request).success


def test_parameters_reach_the_judgement(bench, safe, robot):
    zero = np.zeros(7)
    trajectory = BezierTrajectory(robot.home, zero, zero, robot.home + 0.1, 2.0)
    request = CertifyTrajectory.Request(trajectory=trajectory_to_message(trajectory, robot.joint_names))
    assert not bench.set_parameter("safe_planner", ground_height=5.0)
    refused = bench.call(CertifyTrajectory, "safe_planner/certify", request)
    assert not refused.success and "ground" in refused.message
    assert not bench.set_parameter("safe_planner", ground_height=0.0, validity=5.0)
    certificate = bench.call(CertifyTrajectory, "safe_planner/certify", request).certificate
    assert certificate.expires_at - certificate.issued_at == pytest.approx(5.0)
    assert "out of range" in bench.set_parameter("safe_planner", step=0.1)
