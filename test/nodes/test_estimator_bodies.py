"""The estimator node for another body than the payload: what it publishes, and that planners see nothing of it."""

import numpy as np
import pytest
from node_bench import PATIENCE, Bench, batches_of
from textbook import textbook_file

from sysid_msgs.msg import IdentifiabilityReport, ParameterEstimate, SampleBatch
from sysid_ros.adapters.arm_driver.outputs import PayloadEpochs
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.drivers.registry import LoopSetup, build_loop
from sysid_ros.emulators.lockstep import run_for
from sysid_ros.nodes.estimator import EstimatorNode
from sysid_ros.ros import qos
from sysid_ros.ros.other_nodes import wait_until


@pytest.fixture(scope="module")
def recording(robot):
    """2 s of a mock arm with an empty hand that holds still, as messages, and its true parameters."""
    loop, epochs = build_loop(LoopSetup.mock(textbook_file(), payload="none", truth="corner", seed=5)), PayloadEpochs()
    loop.connect()
    epochs.restart()
    return batches_of(run_for(loop, 2.0), epochs, robot), loop.arm.truth().theta


def run_node(body, batches, wanted):
    """Runs the node over the samples; returns the last message of each topic on which something came."""
    bench = Bench("-p", f"body:={body}", "-p", "publish_rate:=10.0")
    try:
        bench.run(EstimatorNode())
        topics = {"estimate": ParameterEstimate, "body_estimate": ParameterEstimate}
        topics["combinations"] = IdentifiabilityReport
        heard = {name: bench.listen(kind, f"estimator/{name}", qos.LATCHED) for name, kind in topics.items()}
        publisher = bench.node.create_publisher(SampleBatch, "arm_driver/samples", qos.SAMPLES)
        assert wait_until(lambda: publisher.get_subscription_count() > 0, PATIENCE)
        for batch in batches:
            publisher.publish(batch)
        stamp = batches[-1].header.stamp
        for name in wanted:
            heard[name].wait(lambda message: message.header.stamp == stamp)
        return {name: listener.messages[-1] for name, listener in heard.items() if listener.messages}
    finally:
        bench.close()


def test_all_bodies_come_as_combinations(recording, robot):
    batches, theta = recording
    heard = run_node("all", batches, ["combinations"])
    assert set(heard) == {"combinations"}
    report = heard["combinations"]
    target = describe_unknowns(robot, EstimatorSettings(body="all")).target
    assert list(report.base_names) == list(target.combinations.names) and len(report.names) == 70
    assert list(report.base_parameters) == list(target.combinations.formulas)
    values = target.combinations.matrix @ theta[:70]
    assert np.all((np.array(report.lower) <= values) & (values <= np.array(report.upper)))
    assert 0 < report.determined < 43 and "Contains the true parameters if" in report.text
    assert report.header.frame_id == ""


def test_a_body_by_its_link_comes_as_parameters_and_combinations(recording, robot):
    heard = run_node("spherical_wrist_2_link", recording[0], ["body_estimate", "combinations"])
    assert set(heard) == {"body_estimate", "combinations"}
    estimate = heard["body_estimate"]
    assert estimate.header.frame_id == "joint_6" and estimate.target == "object on joint_6"
    assert estimate.is_consistent
    assert np.all(np.array(estimate.lower) <= 0.0) and np.all(np.array(estimate.upper) >= 0.0)  # nothing is on it
    assert heard["combinations"].header.frame_id == "joint_6" and len(heard["combinations"].lower) == 10


def test_an_unknown_body_is_refused_at_the_start():
    bench = Bench("-p", "body:=elbow")
    try:
        with pytest.raises(ParameterOutOfRange, match="body"):
            EstimatorNode()
    finally:
        bench.close()
