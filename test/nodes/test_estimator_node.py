"""The estimator node, fed with the samples of a simulated arm in lock-step."""

import copy

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from doubles import make_certificate
from geometry_msgs.msg import WrenchStamped
from node_bench import Bench, batches_of
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool
from textbook import textbook_file

from sysid_msgs.msg import ParameterEstimate, SampleBatch
from sysid_msgs.srv import ResetEstimator
from sysid_ros.adapters.arm_driver.outputs import PayloadEpochs
from sysid_ros.core.certification.assumptions import box_hash, robot_hash
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.mujoco.simulation import load_payload
from sysid_ros.drivers.registry import LoopSetup, build_loop
from sysid_ros.emulators.lockstep import run_for, run_trajectory
from sysid_ros.nodes.estimator import EstimatorNode
from sysid_ros.ros import qos
from sysid_ros.ros.other_nodes import wait_until

BATCH = 20


@pytest.fixture(scope="module")
def bench():
    bench = Bench("-p", "publish_rate:=10.0")
    bench.run(EstimatorNode())
    yield bench
    bench.close()


class Arm:
    """A simulated arm in lock-step whose samples go to the estimator."""

    def __init__(self, bench, robot):
        self._robot, self._epochs = robot, PayloadEpochs()
        self._epochs.restart()
        self._bench = bench
        self._publisher = self._create_publisher()
        self.loop = build_loop(
            LoopSetup.mock(textbook_file(), payload="dumbbell_4lb", truth="corner", seed=5, gripper="closed")
        )
        self.loop.connect()
        self._last = run_for(self.loop, 0.3)

    def _create_publisher(self):
        publisher = self._bench.node.create_publisher(SampleBatch, "arm_driver/samples", qos.SAMPLES)
        assert wait_until(lambda: publisher.get_subscription_count() >= 1, 10.0)
        return publisher

    def replace_publisher(self):
        """Ends this driver and starts another one with the same arm; called between turns of the executor."""
        self._bench.node.destroy_publisher(self._publisher)
        self._publisher = self._create_publisher()

    def move(self, distance=0.4, duration=1.0):
        """Moves to and fro and sends the samples; returns them as batches."""
        batches = self.record(distance, duration)
        self.send(batches)
        return batches

    def record(self, distance=0.4, duration=1.0):
        """Moves to and fro; returns the samples as batches."""
        q, zero = self.loop.status().reference, np.zeros(7)
        parts = []
        for start, end in ((q, q + distance), (q + distance, q)):
            trajectory = BezierTrajectory(start, zero, zero, end, duration)
            parts.append(run_trajectory(self.loop, trajectory, self._certificate(trajectory), settle=0.1))
        return [batch for samples in parts for batch in batches_of(samples, self._epochs, self._robot)]

    def change_payload(self, name, announce):
        self.loop.arm.set_payload(load_payload(self._robot, name))
        if announce:
            self._epochs.begin(self.loop.status().cycles + 1)

    def send(self, batches):
        for batch in batches:
            self._publisher.publish(batch)

    def _certificate(self, trajectory):
        loop = self.loop
        return make_certificate(
            trajectory,
            box_hash=box_hash(*loop.boxes_of(None)),
            robot_hash=robot_hash(loop.robot),
            control_law=loop.status().law,
            nominal_payload=loop.model.payload,
        )


@pytest.fixture(scope="module")
def arm(bench, robot):
    return Arm(bench, robot)


@pytest.fixture(scope="module")
def estimates(bench):
    return bench.listen(ParameterEstimate, "estimator/estimate", qos.LATCHED)


def wait_for_end_of(batches, estimates, after=0):
    """The first estimate that rests on all of the samples."""
    last = batches[-1].header.stamp
    return estimates.wait(
        lambda one: (one.header.stamp.sec, one.header.stamp.nanosec) >= (last.sec, last.nanosec), after=after
    )


def contains(estimate, truth):
    return bool(np.all(estimate.lower <= truth) and np.all(truth <= estimate.upper))


def test_estimate_contains_the_truth(arm, bench, estimates, robot):
    estimate = wait_for_end_of(arm.move(), estimates)
    assert estimate.is_consistent and not estimate.alarm and estimate.payload_epoch == 0
    assert contains(estimate, load_payload(robot, "dumbbell_4lb"))
    assert estimate.header.frame_id == robot.joint_names[-1] and estimate.target == "payload"
    assert estimate.number_of_windows >= 3 and estimate.data_seconds > 1.5
    gram = np.array(estimate.information).reshape(10, 10)
    assert np.all(np.linalg.eigvalsh(gram) > -1e-9) and gram[0, 0] > 0.0
    late = bench.listen(ParameterEstimate, "estimator/estimate", qos.LATCHED).wait()
    assert late.number_of_windows >= estimate.number_of_windows


@pytest.fixture(scope="module")
def external(bench):
    names = ("external_torque", "external_torque/lower", "external_torque/upper")
    topics = [bench.listen(JointState, f"estimator/{name}", qos.JOINT_STATES) for name in names]
    wrench = bench.listen(WrenchStamped, "estimator/external_wrench/smallest_detectable", qos.JOINT_STATES)
    return topics, wrench, bench.listen(Bool, "estimator/contact", qos.STATUS)


def test_external_torques_are_zero_within_their_bounds(external, arm, robot):
    topics, wrench, contact = external
    arm.move()
    middle, lower, upper = (topic.wait() for topic in topics)
    assert list(middle.name) == list(robot.joint_names) and not len(middle.position)
    assert np.all(np.array(lower.effort) < 0.0) and np.all(np.array(upper.effort) > 0.0)
    assert np.all((np.array(lower.effort) <= middle.effort) & (np.array(middle.effort) <= upper.effort))
    smallest = wrench.wait()
    assert smallest.header.frame_id == robot.tool_frame and 0.0 < smallest.wrench.force.x < 1e3
    assert not contact.wait().data


def test_batches_that_do_not_fit_change_nothing(arm, estimates):
    before = estimates.latest
    q = np.zeros(7 * BATCH)
    wrong = SampleBatch(joint_names=["a", "b"], stamps=list(range(BATCH)))
    short = SampleBatch(
        joint_names=[f"joint_{k}" for k in range(1, 8)], stamps=list(range(BATCH)), positions=list(q[:7])
    )
    empty = SampleBatch(joint_names=[f"joint_{k}" for k in range(1, 8)])
    arm.send([wrong, short, empty])
    count = len(estimates.messages)
    estimate = wait_for_end_of(arm.move(), estimates, after=count)  # the node still works
    assert estimate.is_consistent and estimate.number_of_windows > before.number_of_windows


def test_announced_change_starts_again(arm, estimates, robot):
    arm.change_payload("dumbbell_5lb", announce=True)
    count = len(estimates.messages)
    estimate = wait_for_end_of(arm.move(), estimates, after=count)
    assert estimate.is_consistent and estimate.payload_epoch == 1
    assert contains(estimate, load_payload(robot, "dumbbell_5lb"))
    assert estimate.number_of_windows < 30


def test_unannounced_change_is_an_alarm_until_the_reset(arm, bench, estimates, robot):
    arm.change_payload("none", announce=False)
    count = len(estimates.messages)
    batches = arm.move()
    alarm = wait_for_end_of(batches, estimates, after=count)
    assert not alarm.is_consistent and "The payload has changed" in alarm.alarm and "joint_" in alarm.alarm
    assert np.all(np.isnan([alarm.values, alarm.lower, alarm.upper]))

    late = arm.move()  # still on its way when the reset comes
    until = late[-1].stamps[-1]
    count = len(estimates.messages)
    response = bench.call(ResetEstimator, "estimator/reset", ResetEstimator.Request(reason="a test", until=until))
    assert response.success and response.until == until
    arm.send(late)
    estimate = wait_for_end_of(arm.move(), estimates, after=count)
    assert estimate.is_consistent and estimate.number_of_windows < 30 and estimate.payload_epoch == 1
    assert contains(estimate, np.zeros(10))
    stamps = [message.header.stamp for message in estimates.messages[count:] if message.is_consistent]
    assert min(stamp.sec * 10**9 + stamp.nanosec for stamp in stamps) > until


def test_a_payload_whose_first_batches_a_reset_leaves_out_has_begun_with_it(arm, bench, estimates):
    arm.change_payload("none", announce=True)
    late = arm.record(0.4)  # the goal has heard them, this node not yet
    begin = ResetEstimator.Request(tare=ResetEstimator.Request.BEGIN_TARE, until=late[-1].stamps[-1], gripper="closed")
    assert bench.call(ResetEstimator, "estimator/reset", begin).success
    count = len(estimates.messages)
    arm.send(late)
    assert wait_for_end_of(arm.move(), estimates, after=count).gripper == "closed"
    tare = ResetEstimator.Request(tare=ResetEstimator.Request.END_TARE)
    response = bench.call(ResetEstimator, "estimator/reset", tare)
    assert response.success and response.tare, response.message
    estimate = wait_for_end_of(arm.move(), estimates, after=len(estimates.messages))
    assert estimate.is_consistent and contains(estimate, np.zeros(10)) and "tare" in estimate.guarantee


def test_the_state_of_the_gripper_holds_until_the_next_reset(arm, bench, estimates):
    refused = bench.call(ResetEstimator, "estimator/reset", ResetEstimator.Request(gripper="shut"))
    assert not refused.success and "gripper 'shut': expected one of open, closed" in refused.message
    before = estimates.latest
    assert before.is_consistent and before.gripper == ""
    response = bench.call(ResetEstimator, "estimator/reset", ResetEstimator.Request(gripper="closed"))
    assert response.success and response.gripper == "closed"
    estimate = wait_for_end_of(arm.move(), estimates, after=len(estimates.messages))
    assert estimate.is_consistent and contains(estimate, np.zeros(10)) and estimate.gripper == "closed"
    assert "the gripper is closed, as stated" in estimate.guarantee
    assert estimate.upper[3] - estimate.lower[3] < 0.99 * (before.upper[3] - before.lower[3])
    assert bench.call(ResetEstimator, "estimator/reset").gripper == ""


def test_a_mass_from_a_scale_holds_until_the_next_reset(arm, bench, estimates):
    def ask(**fields):
        return bench.call(ResetEstimator, "estimator/reset", ResetEstimator.Request(**fields))

    assert "expected more than 0" in ask(mass=-1.0).message and not ask(mass=1.0, mass_tolerance=2.0).success
    assert ask(mass=0.5, mass_tolerance=0.25).success
    heavy = wait_for_end_of(arm.move(), estimates, after=len(estimates.messages))
    assert heavy.stated_mass == 0.5 and (not heavy.is_consistent or heavy.lower[0] >= 0.25)
    assert ask().success
    light = wait_for_end_of(arm.move(), estimates, after=len(estimates.messages))
    assert light.stated_mass == 0.0 and light.is_consistent and contains(light, np.zeros(10))


def test_clock_that_was_set_back_is_not_taken_for_late_samples(arm, bench, estimates):
    future = ResetEstimator.Request(reason="a test", until=10**18)
    assert bench.call(ResetEstimator, "estimator/reset", future).until == 10**18
    count = len(estimates.messages)
    assert wait_for_end_of(arm.move(), estimates, after=count).is_consistent


def test_rate_changes_at_run_time_within_its_range(bench):
    assert bench.set_parameter("estimator", publish_rate=5.0) == ""
    assert "out of range" in bench.set_parameter("estimator", publish_rate=500.0)
    assert "read-only" in bench.set_parameter("estimator", window_duration=0.2)


def test_batches_of_a_second_publisher_are_refused_and_named(arm, bench, estimates, robot):
    """Efforts that are a tenth too large are consistent with another mass: only their sender gives them away."""
    truth = np.zeros(10)
    diagnostics = bench.listen(DiagnosticArray, "/diagnostics", qos.DIAGNOSTICS)
    forger = bench.node.create_publisher(SampleBatch, "arm_driver/samples", qos.SAMPLES)
    assert wait_until(lambda: forger.get_subscription_count() >= 1, 10.0)
    try:
        count, said = len(estimates.messages), len(diagnostics.messages)
        batches = arm.move()
        for batch in batches:
            forged = copy.deepcopy(batch)
            forged.efforts = [1.1 * effort for effort in batch.efforts]
            forged.first_sequence += 10**6
            forged.stamps = [stamp + 10**10 for stamp in batch.stamps]
            forger.publish(forged)
        estimate = wait_for_end_of(batches, estimates, after=count)
        assert estimate.is_consistent and contains(estimate, truth)
        fault = diagnostics.wait(lambda one: one.status[0].level == DiagnosticStatus.ERROR, after=said).status[0]
        assert fault.name == "estimator: samples" and fault.hardware_id == robot.name
        assert "/tester (publisher " in fault.message and "are refused" in fault.message
        refused = next(int(one.value) for one in fault.values if one.key == "refused batches")
        assert refused > 0
        estimate = wait_for_end_of(arm.move(), estimates, after=len(estimates.messages))
        assert estimate.is_consistent and contains(estimate, truth) and estimate.header.stamp.sec < 10**6
    finally:
        bench.between_turns(bench.node, lambda: bench.node.destroy_publisher(forger))


def test_another_driver_begins_with_the_prior(arm, bench, estimates):
    before = estimates.latest.number_of_windows
    bench.between_turns(bench.node, arm.replace_publisher)
    estimate = wait_for_end_of(arm.move(), estimates, after=len(estimates.messages))
    assert estimate.is_consistent and estimate.number_of_windows < before
