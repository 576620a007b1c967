"""The two planner nodes: what they find and certify, what they refuse and why."""

from pathlib import Path

import numpy as np
import pytest
from doubles import make_estimate
from node_bench import PATIENCE, Bench
from std_srvs.srv import Trigger
from visualization_msgs.msg import Marker, MarkerArray

from sysid_msgs.msg import CertifiedTrajectory, ParameterEstimate, PlanStatus, Scene
from sysid_msgs.srv import CertifyTrajectory, PlanExcitation, PlanNext, PlanTo
from sysid_ros.core.certification.certificate import box_hash
from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.parameters.estimate import Alarm, AlarmCode
from sysid_ros.core.model.mechanics import BodyPoses
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.nodes import excitation_planner
from sysid_ros.nodes.excitation_planner import ExcitationPlannerNode
from sysid_ros.nodes.safe_planner import SafePlannerNode
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.estimate import estimate_to_message
from sysid_ros.ros.conversions.plans import certified_from_message, trajectory_from_message, trajectory_to_message
from sysid_ros.ros.other_nodes import wait_until

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
    return bench.run_active(SafePlannerNode())


@pytest.fixture
def make_request(robot):
    def make(**fields):
        given = {"joint_names": list(robot.joint_names), "start_position": robot.home.tolist(), "duration": 2.0}
        return PlanExcitation.Request(**{**given, **fields})

    return make


@pytest.fixture(scope="module")
def alarm(robot):
    nothing = np.full(10, NAN)
    reason = Alarm(AlarmCode.WINDOW_INCONSISTENT, "no payload is consistent")
    return estimate_to_message(make_estimate(nothing, nothing, nothing, is_consistent=False, alarm=reason), 1)


def narrow(robot):
    """A payload known to about a tenth."""
    prior = robot.payload_prior
    return Box.around(prior.nominal, 0.1 * prior.box.radius).intersect(prior.box)


@pytest.fixture(scope="module")
def known(robot):
    box = narrow(robot)
    return estimate_to_message(make_estimate(robot.payload_prior.nominal, box.lower, box.upper), 1)


def test_excitation_is_found_certified_and_published(bench, excitation, safe, make_request, robot, known):
    statuses = bench.listen(PlanStatus, "excitation_planner/status", qos.STATUS)
    response = bench.call(PlanExcitation, "excitation_planner/plan", make_request(seed=2, limit_share=0.3))
    assert response.success, response.message
    trajectory = trajectory_from_message(response.trajectory, robot.joint_names)
    np.testing.assert_allclose(trajectory.start, robot.home, atol=1e-9)
    assert trajectory.duration == 2.0 and 1.0 < response.condition_number < 1e4
    assert "condition number" in response.message
    statuses.wait(lambda status: status.is_accepted and not status.is_proven and not status.plan_id)

    request = CertifyTrajectory.Request(trajectory=response.trajectory, estimate=known)
    answer = bench.call(CertifyTrajectory, "safe_planner/certify", request)
    assert answer.success, answer.message
    _, certificate = certified_from_message(answer.plan, robot.joint_names)
    scene = bench.listen(Scene, "safe_planner/scene", qos.LATCHED).wait()
    certificate.matches(trajectory, robot.theta_box, narrow(robot), scene_hash=scene.hash)
    assert answer.status.is_proven and "Proven over continuous time" in certificate.claims
    assert min(answer.status.margins) > 0.0 and answer.status.not_checked and answer.message == certificate.claims
    plan = bench.listen(CertifiedTrajectory, "safe_planner/plan", qos.LATCHED).wait()
    assert certified_from_message(plan, robot.joint_names)[1].plan_id == certificate.plan_id == answer.status.plan_id


def test_excitation_requests_that_cannot_be_are_refused(bench, excitation, make_request, robot, alarm):
    matrix = np.eye(10)
    matrix[0, 0] = -1.0
    home = robot.home.tolist()
    cases = {
        "the unknown joint 'elbow'": {"joint_names": ["elbow", *robot.joint_names[1:]]},
        "has 6 entries for 7 joints": {"start_position": home[:6]},
        "start_position is nan for joint_1": {"start_position": [NAN, *home[1:]]},
        "duration [s] nan": {"duration": NAN},
        "duration [s] -1": {"duration": -1.0},
        "criterion 'beauty'": {"criterion": "beauty"},
        "finite (10, 10) Gram matrix": {"information": np.full(100, NAN)},
        "smallest eigenvalue": {"information": matrix.reshape(100)},
        "without bounds (an alarm)": {"estimate": alarm},
        "joint_6": {"start_position": [*home[:5], 9.0, home[6]]},
    }
    for words, fields in cases.items():
        response = bench.call(PlanExcitation, "excitation_planner/plan", make_request(**fields))
        assert not response.success and words in response.message, response.message
        assert not response.status.is_accepted and response.status.text == response.message


def test_criterion_of_the_parameter_and_of_the_request(bench, excitation, make_request):
    def plan(criterion=""):
        response = bench.call(PlanExcitation, "excitation_planner/plan", make_request(seed=3, criterion=criterion))
        assert response.success, response.message
        return response.trajectory.hash

    # The number of iterations ends the search, not the clock: the same question has the same answer.
    assert not bench.set_parameter("excitation_planner", time_budget=60.0)
    ours, other = plan(), plan("condition_number")
    assert ours != other
    assert not bench.set_parameter("excitation_planner", criterion="condition_number")
    assert plan() == other and plan("bounds") == ours
    assert not bench.set_parameter("excitation_planner", criterion="bounds", time_budget=0.5)


def test_one_search_at_a_time_which_can_be_cancelled(bench, excitation, make_request):
    assert not bench.call(Trigger, "excitation_planner/cancel").success  # nothing to cancel
    assert not bench.set_parameter("excitation_planner", time_budget=300.0, max_iterations=10000, starts=100)
    client = bench.node.create_client(PlanExcitation, "excitation_planner/plan")
    client.wait_for_service(PATIENCE)
    first = client.call_async(make_request())
    assert wait_until(lambda: excitation._is_planning, PATIENCE)
    repeated = client.call_async(make_request())
    second = bench.call(PlanExcitation, "excitation_planner/plan", make_request(seed=4))
    assert not second.success and "another search is running" in second.message
    assert bench.call(Trigger, "excitation_planner/cancel").success
    for call in (first, repeated):
        assert wait_until(call.done, PATIENCE)
        assert not call.result().success and "cancelled" in call.result().message
    assert not bench.set_parameter("excitation_planner", time_budget=0.5, max_iterations=3, starts=1)


def test_nodes_that_wait_for_their_work_do_so_when_they_end(excitation, monkeypatch):
    """``spin_main`` calls ``close``; under another name nobody ends a search."""
    waited = []
    monkeypatch.setattr(excitation_planner, "spin_while", lambda node, is_busy, seconds: waited.append(is_busy()))
    excitation.close()
    assert waited == [False] and excitation._is_cancelled
    sources = [path.read_text() for path in Path(excitation_planner.__file__).parent.glob("*.py")]
    waiting = [source for source in sources if "spin_while(self" in source]
    assert len(waiting) >= 3 and all("    def close(self)" in source for source in waiting)


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
        "no payload is consistent": (good, alarm),
    }
    for words, (trajectory, estimate) in cases.items():
        request = CertifyTrajectory.Request(trajectory=trajectory, estimate=estimate)
        response = bench.call(CertifyTrajectory, "safe_planner/certify", request)
        assert not response.success and words in response.message, response.message
        assert response.plan.certificate.plan_id == "" and not response.status.is_accepted
        assert response.status.failure in (PlanStatus.FAILURE_LIMIT, PlanStatus.FAILURE_REQUEST)


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
        "goal_position: expected": {"start_position": home},
        "goal_position is inf for joint_7": {"start_position": home, "goal_position": [*home[:6], np.inf]},
        "joint_4": {"start_position": home, "goal_position": [*home[:3], 9.0, *home[4:]]},
    }
    for words, fields in cases.items():
        request = PlanTo.Request(joint_names=names, **fields)
        refused = bench.call(PlanTo, "safe_planner/plan_to", request)
        assert not refused.success and words in refused.message, refused.message


def test_a_flood_of_requests_leaves_no_work_behind(bench, safe, robot):
    home, names = robot.home.tolist(), list(robot.joint_names)
    requests = [
        PlanTo.Request(joint_names=names, start_position=home, goal_position=(robot.home + 0.15 + 1e-3 * k).tolist())
        for k in range(9)
    ]
    client = bench.node.create_client(PlanTo, "safe_planner/plan_to")
    assert client.wait_for_service(PATIENCE)
    with safe._service._one_at_a_time:  # as if a search took long
        calls = [client.call_async(request) for request in requests[:8]]
        assert wait_until(lambda: sum(call.done() for call in calls) == 4, PATIENCE), "four wait, four are refused"
        refused = [call.result() for call in calls if call.done()]
    assert all(not one.success and "ask again when one of them is answered" in one.message for one in refused)
    assert all(one.status.failure == PlanStatus.FAILURE_NOT_READY for one in refused)
    assert wait_until(lambda: all(call.done() for call in calls), PATIENCE)
    assert sum(call.result().success for call in calls) == 4
    assert bench.call(PlanTo, "safe_planner/plan_to", requests[8]).success, "none is left waiting"


def test_a_request_that_is_repeated_is_worked_on_once(bench, safe, robot):
    goal = (robot.home + 0.12).tolist()
    request = PlanTo.Request(
        joint_names=list(robot.joint_names), start_position=robot.home.tolist(), goal_position=goal
    )
    client = bench.node.create_client(PlanTo, "safe_planner/plan_to")
    assert client.wait_for_service(PATIENCE)
    searches = safe._service
    before = searches._begun
    calls = [client.call_async(request) for _ in range(6)]
    assert wait_until(lambda: all(call.done() for call in calls), PATIENCE)
    assert all(call.result().success for call in calls), calls[0].result().message
    assert len({call.result().plan.certificate.plan_id for call in calls}) == 1 and searches._begun == before + 1
    bench.call(Trigger, "safe_planner/cancel")
    assert bench.call(PlanTo, "safe_planner/plan_to", request).success
    assert searches._begun == before + 2, "what was asked for before a cancellation is searched for anew"


def test_safe_planner_certifies_only_while_it_is_active(bench, safe, robot):
    zero = np.zeros(7)
    trajectory = BezierTrajectory(robot.home, zero, zero, robot.home + 0.1, 8.0)
    request = CertifyTrajectory.Request(trajectory=trajectory_to_message(trajectory, robot.joint_names))
    assert bench.change_state("safe_planner", "deactivate")
    refused = bench.call(CertifyTrajectory, "safe_planner/certify", request)
    assert not refused.success and "not active" in refused.message and refused.plan.certificate.plan_id == ""
    assert refused.status.failure == PlanStatus.FAILURE_NOT_READY
    assert bench.change_state("safe_planner", "cleanup")
    assert not bench.change_state("safe_planner", "activate")  # not configured
    assert bench.change_state("safe_planner", "configure")
    assert bench.change_state("safe_planner", "activate")
    assert bench.call(CertifyTrajectory, "safe_planner/certify", request).success


def test_parameters_and_obstacles_reach_the_judgement(bench, safe, robot):
    zero = np.zeros(7)
    trajectory = BezierTrajectory(robot.home, zero, zero, robot.home + 0.1, 8.0)
    request = CertifyTrajectory.Request(trajectory=trajectory_to_message(trajectory, robot.joint_names))
    scenes = bench.listen(Scene, "safe_planner/scene", qos.LATCHED)
    obstacles = bench.node.create_publisher(MarkerArray, "obstacles", qos.LATCHED)

    def show(**fields):
        before, said = len(scenes.messages), (scenes.latest.hash, scenes.latest.fault)
        obstacles.publish(MarkerArray(markers=[marker(**{"frame": robot.base_frame, **fields})]))
        # The planner says again and again what has not changed.
        return scenes.wait(lambda scene: (scene.hash, scene.fault) != said, after=before)

    scenes.wait()
    hashes = [scenes.latest.hash]
    assert "read-only" in bench.set_parameter("safe_planner", ground_height=-0.01)
    assert bench.change_state("safe_planner", "deactivate")
    assert "read-only" in bench.set_parameter("safe_planner", has_ground=False)
    refused = bench.call(CertifyTrajectory, "safe_planner/certify", request)
    assert not refused.success and "not active" in refused.message
    assert bench.change_state("safe_planner", "activate")
    assert bench.call(CertifyTrajectory, "safe_planner/certify", request).success
    tool = BodyPoses(robot).tool_path(robot.home[None])[0]
    hashes.append(show(x=tool[0], y=tool[1], z=tool[2]).hash)  # a box where the tool is
    refused = bench.call(CertifyTrajectory, "safe_planner/certify", request)
    assert not refused.success and "box 1" in refused.message, refused.message
    assert "not finite" in show(x=NAN).fault
    refused = bench.call(CertifyTrajectory, "safe_planner/certify", request)
    assert not refused.success and "invalid scene 'not known" in refused.message
    assert "given in frame 'map'" in show(frame="map").fault
    hashes.append(show(x=0.0, y=1.5, z=0.5).hash)
    assert scenes.latest.is_known and len(set(hashes)) == 3
    answer = bench.call(CertifyTrajectory, "safe_planner/certify", request)
    assert answer.success and answer.plan.certificate.scene_hash == hashes[-1]
    show(action=Marker.DELETEALL)
    assert scenes.latest.hash == hashes[0]


def marker(frame, x=0.0, y=0.0, z=0.0, action=Marker.ADD, number=1):
    one = Marker(ns="box", id=number, type=Marker.CUBE, action=action)
    one.header.frame_id = frame
    one.pose.position.x, one.pose.position.y, one.pose.position.z = float(x), float(y), float(z)
    one.scale.x = one.scale.y = one.scale.z = 0.1
    return one


def test_obstacles_of_publishers_with_the_defaults_of_ros_are_heard(bench, safe, robot):
    scenes = bench.listen(Scene, "safe_planner/scene", qos.LATCHED)
    scenes.wait()
    obstacles = bench.node.create_publisher(MarkerArray, "obstacles", 10)
    assert wait_until(lambda: obstacles.get_subscription_count() > 0, PATIENCE)
    for number in range(5):  # each adds to those before
        obstacles.publish(MarkerArray(markers=[marker(robot.base_frame, y=2.0 + number, number=number)]))
    scenes.wait(lambda scene: len(scene.obstacle_names) == 5)
    obstacles.publish(MarkerArray(markers=[marker(robot.base_frame, action=Marker.DELETEALL)]))
    scenes.wait(lambda scene: len(scene.obstacle_names) == 0, after=len(scenes.messages))


def test_plans_that_take_over_from_each_other(bench, safe, robot, known):
    names, prior, nominal = list(robot.joint_names), robot.payload_prior.box, 0.9 * robot.payload_prior.nominal
    request = PlanNext.Request(
        joint_names=names, start_position=robot.home.tolist(), estimate=known, time_limit=30.0,
        nominal_payload=nominal.tolist(),
    )  # fmt: skip
    first = bench.call(PlanNext, "safe_planner/plan_next", request)
    assert first.success, first.message
    path, certificate = certified_from_message(first.plan, names)
    np.testing.assert_array_equal(path.start, robot.home)
    assert certificate.predecessor is None and certificate.box_hash == box_hash(robot.theta_box, narrow(robot))
    assert first.handover_time == 1.5 and first.condition_number > 1.0
    assert np.linalg.eigvalsh(np.array(first.information_gained).reshape(10, 10))[-1] > 0.0
    request = PlanNext.Request(
        joint_names=names, predecessor=certificate.plan_id, takeover_time=1.5, estimate=known, time_limit=30.0,
        information=first.information_gained,
    )  # fmt: skip
    second = bench.call(PlanNext, "safe_planner/plan_next", request)
    assert second.success, second.message
    following, its = certified_from_message(second.plan, names)
    assert its.predecessor == certificate.plan_id and its.takeover_time == 1.5
    np.testing.assert_array_equal(its.nominal_payload, nominal)  # kept in motion where none is asked for
    for ours, theirs in zip(following.evaluate(0.0), path.evaluate(1.5), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)
    assert second.condition_number < first.condition_number
    cases = {
        "plan to take over from": {"predecessor": "f" * 64},
        "a multiple of": {"predecessor": certificate.plan_id, "takeover_time": 1.5003},
        "start_position: expected": {},
        "goal_position: expected": {"start_position": robot.home.tolist(), "purpose": PlanNext.Request.MOVE},
        "purpose": {"start_position": robot.home.tolist(), "purpose": 7},
        "time_limit": {"start_position": robot.home.tolist(), "time_limit": 0.05},
        "no certified plan": {"start_position": [0.0, 2.2, 0.0, 0.0, 0.0, 0.0, 0.0], "time_limit": 20.0},
    }
    for words, fields in cases.items():
        refused = bench.call(PlanNext, "safe_planner/plan_next", PlanNext.Request(joint_names=names, **fields))
        assert not refused.success and words in refused.message, refused.message
    assert narrow(robot).is_subset_of(prior)


def test_a_move_to_a_goal_is_one_plan_from_rest_to_rest(bench, safe, robot, known):
    names, goal = list(robot.joint_names), robot.home + [0.5, -0.3, 0.2, 0.3, 0.2, -0.3, 0.4]
    request = PlanNext.Request(
        joint_names=names, purpose=PlanNext.Request.MOVE, start_position=robot.home.tolist(),
        goal_position=goal.tolist(), estimate=known, time_limit=30.0,
    )  # fmt: skip
    found = bench.call(PlanNext, "safe_planner/plan_next", request)
    assert found.success, found.message
    path, certificate = certified_from_message(found.plan, names)
    np.testing.assert_allclose(path.start, robot.home, atol=1e-12)
    np.testing.assert_allclose(path.end, goal, atol=1e-12)
    assert not certificate.predecessor and found.handover_time == path.duration < 10.0
