"""The monitor: it draws what it hears, and goes on when what it hears makes no sense."""

import numpy as np
import pytest
from node_bench import Bench
from sensor_msgs.msg import JointState
from visualization_msgs.msg import MarkerArray

from sysid_msgs.msg import CertifiedTrajectory
from sysid_msgs.msg import ParameterEstimate as EstimateMessage
from sysid_ros.core.estimation.estimate import ParameterEstimate
from sysid_ros.core.model.kinematics import BodyPoses
from sysid_ros.core.planning.certificate import Certificate
from sysid_ros.core.planning.trajectory import BezierTrajectory
from sysid_ros.nodes.monitor import MonitorNode
from sysid_ros.ros import qos
from sysid_ros.ros.conversions import certified_to_message, estimate_to_message, joint_state_message


@pytest.fixture(scope="module")
def bench():
    bench = Bench()
    bench.run(MonitorNode())
    yield bench
    bench.close()


@pytest.fixture(scope="module")
def markers(bench):
    return bench.listen(MarkerArray, "monitor/markers", qos.MARKERS)


def namespaces(array):
    return {marker.ns for marker in array.markers[1:]}


def test_everything_that_is_known_is_drawn(bench, markers, robot):
    assert namespaces(markers.wait()) == set()  # nobody has said where the arm is

    states = bench.node.create_publisher(JointState, "joint_states", qos.JOINT_STATES)
    plans = bench.node.create_publisher(CertifiedTrajectory, "safe_planner/plan", qos.LATCHED)
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

    trajectory = BezierTrajectory(robot.home, zero, zero, q, 1.0)
    certificate = Certificate(trajectory.hash(), "", robot.home, "sampled", "", {}, np.full(7, 0.05), 0.0, 1.0)
    plans.publish(certified_to_message(trajectory, certificate, robot.joint_names))
    prior = robot.payload_prior
    estimate = ParameterEstimate(
        values=prior.nominal, lower=0.9 * prior.nominal, upper=1.1 * prior.nominal, method="left_inverse",
        guarantee="", is_consistent=True, alarm="", target="payload", frame=robot.joint_names[-1],
        number_of_windows=1, data_seconds=1.0, condition_number=1.0,
    )  # fmt: skip
    estimates.publish(estimate_to_message(estimate, 1))
    everything = {"arm", "plan", "payload", "com", "com_bounds", "text"}
    array = markers.wait(lambda array: namespaces(array) >= everything)
    path = next(marker for marker in array.markers if marker.ns == "plan")
    assert len(path.points) == 100

    # What does not fit is not drawn, and the rest still is.
    plans.publish(certified_to_message(trajectory, certificate, [f"a{k}" for k in range(7)]))
    estimates.publish(EstimateMessage(names=[str(k) for k in range(10)]))
    markers.wait(lambda array: namespaces(array) >= everything, after=len(markers.messages) + 3)
    bench.node.destroy_timer(timer)
    states.publish(JointState(name=["elbow"], position=[float("nan")]))
    array = markers.wait(lambda array: "arm" not in namespaces(array), after=len(markers.messages))
    assert namespaces(array) == {"plan"}


def test_switches_reach_the_picture(bench, markers):
    assert bench.set_parameter("monitor", show_spheres=False, rate=20.0) == ""
    assert "out of range" in bench.set_parameter("monitor", rate=1000.0)
