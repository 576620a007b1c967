"""The monitor: it draws what it hears, and goes on when what it hears makes no sense."""

import sys

import numpy as np
import pytest
from doubles import make_certificate, make_estimate
from node_bench import Bench
from sensor_msgs.msg import JointState
from visualization_msgs.msg import MarkerArray

from sysid_msgs.msg import CertifiedTrajectory, DriverStatus
from sysid_msgs.msg import ParameterEstimate as EstimateMessage
from sysid_msgs.msg import Scene as SceneMessage
from sysid_ros.core.certification.certificate import Margin
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.certification.stop_model import LimitKind
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.model.mechanics import BodyPoses
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.nodes.monitor import MonitorNode
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.estimate import estimate_to_message
from sysid_ros.ros.conversions.plans import certified_plan_to_message, scene_to_message
from sysid_ros.ros.conversions.samples import joint_state_message
from sysid_ros.ros.other_nodes import wait_until


@pytest.fixture(scope="module")
def bench():
    bench = Bench()
    bench.monitor = MonitorNode()
    bench.run(bench.monitor)
    yield bench
    bench.close()


@pytest.fixture(scope="module")
def markers(bench):
    return bench.listen(MarkerArray, "monitor/markers", qos.MARKERS)


@pytest.fixture(scope="module")
def plan_markers(bench):
    return bench.listen(MarkerArray, "monitor/plan_markers", qos.MARKERS)


@pytest.fixture(scope="module")
def scene_markers(bench):
    return bench.listen(MarkerArray, "monitor/scene_markers", qos.MARKERS)


@pytest.fixture(scope="module")
def plans(bench):
    return bench.node.create_publisher(CertifiedTrajectory, "safe_planner/plan", qos.LATCHED)


def certified(robot, goal, names=None):
    zero = np.zeros(7)
    trajectory = BezierTrajectory(robot.home, zero, zero, robot.home + goal, 1.0)
    certificate = make_certificate(trajectory, margins=(Margin(LimitKind.TORQUE, 0.1, "joint 'joint_2'", 0.5),))
    boxes = robot.theta_box, robot.payload_prior.box
    plan = CertifiedPlan(trajectory, certificate, boxes, Scene(), robot.name)
    return plan.plan_id, certified_plan_to_message(plan, names or robot.joint_names)


def title_of(array):
    return next(marker.text for marker in array.markers if marker.ns == "margins").split("\n")[0]


def namespaces(array):
    return {marker.ns for marker in array.markers[1:]}


def test_everything_that_is_known_is_drawn(bench, markers, robot):
    assert namespaces(markers.wait()) == set()  # nobody has said where the arm is

    states = bench.node.create_publisher(JointState, "joint_states", qos.JOINT_STATES)
    estimates = bench.node.create_publisher(EstimateMessage, "estimator/estimate", qos.LATCHED)
    q, zero = robot.home + 0.1, np.zeros(7)
    order = np.arange(7)[::-1]
    names = [robot.joint_names[k] for k in order]
    # Joints are found by name, not by order.
    timer = bench.node.create_timer(0.05, lambda: states.publish(joint_state_message(1, names, q[order], zero, zero)))
    array = markers.wait(lambda array: "arm" in namespaces(array))
    rotations, origins = BodyPoses(robot).compute(q)
    first = robot.spheres[-1]
    center = origins[first.body] + rotations[first.body] @ first.center
    last = [marker for marker in array.markers if marker.ns == "arm"][-1]
    np.testing.assert_allclose([last.pose.position.x, last.pose.position.y, last.pose.position.z], center, atol=1e-9)
    assert last.header.frame_id == robot.base_frame

    prior = robot.payload_prior
    estimate = make_estimate(prior.nominal, 0.9 * prior.nominal, 1.1 * prior.nominal)
    estimates.publish(estimate_to_message(estimate, 1))
    everything = {"arm", "carried", "payload", "com", "com_bounds", "text"}
    markers.wait(lambda array: namespaces(array) >= everything)

    # What does not fit is not drawn, and the rest still is.
    estimates.publish(EstimateMessage(names=[str(k) for k in range(10)]))
    markers.wait(lambda array: namespaces(array) >= everything, after=len(markers.messages) + 3)
    bench.between_turns(bench.node, lambda: bench.node.destroy_timer(timer))  # it must not publish once more
    states.publish(JointState(name=["elbow"], position=[float("nan")]))
    array = markers.wait(lambda array: "arm" not in namespaces(array), after=len(markers.messages))
    assert namespaces(array) == set()


def test_plans_are_drawn_until_the_arm_rests(bench, plan_markers, plans, robot):
    statuses = bench.node.create_publisher(DriverStatus, "arm_driver/status", qos.STATUS)
    whole = {"plan", "swept", "closest", "closest_text", "margins"}
    first, message = certified(robot, 0.2)
    plans.publish(message)
    array = plan_markers.wait(lambda array: namespaces(array) == whole)
    assert title_of(array) == "plan not followed yet"
    assert "torque: 10.0 %  (joint 'joint_2', 0.500 s)" in [m for m in array.markers if m.ns == "margins"][0].text
    assert len(next(marker for marker in array.markers if marker.ns == "plan").points) == 100
    swept = [marker for marker in array.markers if marker.ns == "swept"]
    assert {len(marker.points) for marker in swept} == {12} and swept[0].header.frame_id == robot.base_frame

    second, message = certified(robot, -0.2)
    plans.publish(message)
    statuses.publish(DriverStatus(plan_id=first, next_plan_id=second))
    array = plan_markers.wait(lambda array: namespaces(array) == whole | {"next_plan"})
    assert title_of(array) == "plan followed"
    # A plan that cannot be read changes nothing.
    before = len(plan_markers.messages)
    plans.publish(certified(robot, 0.3, [f"a{k}" for k in range(7)])[1])
    statuses.publish(DriverStatus(plan_id=second))
    array = plan_markers.wait(lambda array: namespaces(array) == whole, after=before)
    assert title_of(array) == "plan followed"
    assert bench.set_parameter("monitor", swept_postures=0) == ""
    plan_markers.wait(lambda array: namespaces(array) == {"plan", "margins"}, after=before)
    statuses.publish(DriverStatus())
    plan_markers.wait(lambda array: namespaces(array) == set(), after=before)
    assert bench.set_parameter("monitor", swept_postures=12) == ""


def test_a_scene_is_drawn_and_one_with_a_fault_says_so(bench, scene_markers, robot):
    scenes = bench.node.create_publisher(SceneMessage, "safe_planner/scene", qos.LATCHED)
    scene = Scene(obstacles=(Obstacle("table", [0.5, 0.0, 0.1], [0.1, 0.2, 0.1]),), ground_height=0.0)
    scenes.publish(scene_to_message(scene, 1, robot.base_frame))
    array = scene_markers.wait(lambda array: namespaces(array) == {"obstacles", "scene_text", "ground"})
    message = scene_to_message(scene, 1, robot.base_frame, fault="an obstacle is not a number")
    scenes.publish(message)
    red = {"obstacles_unknown", "scene_text", "ground"}
    array = scene_markers.wait(lambda array: namespaces(array) == red)
    assert any("an obstacle is not a number" in marker.text for marker in array.markers)
    # A scene that cannot be read leaves the last one in the picture, as one that is not known to be true.
    scenes.publish(scene_to_message(scene, 1, robot.base_frame))
    before = len(scene_markers.messages)
    scene_markers.wait(lambda array: "obstacles" in namespaces(array), after=before - 1)
    message.is_known, message.obstacle_centers[0] = True, float("nan")
    scenes.publish(message)
    array = scene_markers.wait(lambda array: namespaces(array) == red, after=before)
    assert any("cannot be used" in marker.text for marker in array.markers)


def test_switches_reach_the_picture(bench, markers):
    assert bench.set_parameter("monitor", show_spheres=False, rate=20.0) == ""
    assert "out of range" in bench.set_parameter("monitor", rate=1000.0)


def test_a_browser_is_shown_the_same(bench, plans, robot, monkeypatch):
    pytest.importorskip("viser", reason="the view needs viser: pip install 'sysid_ros[view]'")
    view = bench.monitor._open_view(8400)
    monkeypatch.setattr(type(view), "is_watched", True)
    try:
        bench.between_turns(bench.monitor, lambda: setattr(bench.monitor, "_view", view))
        q, zero = robot.home - 0.2, np.zeros(7)
        states = bench.node.create_publisher(JointState, "joint_states", qos.JOINT_STATES)
        timer = bench.node.create_timer(
            0.05, lambda: states.publish(joint_state_message(1, robot.joint_names, q, zero, zero))
        )
        _, origins = BodyPoses(robot).compute(q)
        assert wait_until(lambda: np.allclose(view._bodies[-1].position, origins[-1]), 20.0)
        plans.publish(certified(robot, 0.1)[1])
        assert wait_until(lambda: {part.name for part in view._parts["plans"]} >= {"/plans/0", "/plans/swept"}, 20.0)
        assert view._parts["payload"] and "kg" in view._words.content, "what came before is shown, too"
        assert any(part.name == "/environment/fault" for part in view._parts["environment"])
        bench.between_turns(bench.node, lambda: bench.node.destroy_timer(timer))
    finally:
        bench.between_turns(bench.monitor, lambda: setattr(bench.monitor, "_view", None))
        view.close()


def test_without_viser_the_monitor_goes_on(bench, monkeypatch):
    monkeypatch.setitem(sys.modules, "viser", None)
    assert bench.monitor._open_view(8400) is None and bench.monitor._open_view(0) is None
