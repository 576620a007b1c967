"""The driver node with its real loop process: what it publishes, what it refuses, how every fault ends."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray
from doubles import make_estimate
from node_bench import PATIENCE, Bench, DriverProbe, Trusting
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from std_srvs.srv import SetBool, Trigger

from sysid_msgs.msg import DriverStatus, SimulationTruth
from sysid_msgs.msg import Scene as SceneMessage
from sysid_msgs.srv import ApplyEstimate, ExecuteTrajectory, SetPayload
from sysid_ros.adapters.arm_driver.outputs import ArmOutputs, LateCycles
from sysid_ros.core.certification.assumptions import box_hash
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.loop_types import LoopMode, RefusalCode
from sysid_ros.drivers.mujoco.simulation import load_payload
from sysid_ros.drivers.pacing import Scheduling
from sysid_ros.nodes.arm_driver import ArmDriverNode, ArmDriverParameters
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.estimate import estimate_to_message
from sysid_ros.ros.conversions.plans import certified_to_message, scene_to_message
from sysid_ros.ros.node import Level
from sysid_ros.ros.other_nodes import wait_until

HOLD, TRACK, FAULT, IDLE = (getattr(DriverStatus, f"MODE_{name}") for name in ("HOLD", "TRACK", "FAULT", "IDLE"))
GUIDE = LoopMode.GUIDE.value
PATIENT = ("-p", "heartbeat_timeout:=10.0", "-p", "late_limit:=10.0", "-p", "commander_timeout:=10.0")
"""On a busy machine any process may stand still for a while."""
LONG = 6.0
"""Duration of motions that are broken off [s]: they must not be over before that, on whatever machine."""


@pytest.fixture(scope="module")
def bench():
    bench = Bench(*PATIENT, "-p", "payload:=dumbbell_4lb", "-p", "allows_guiding:=true", "-p", "serial_number:=M1")
    yield bench
    bench.close()


@pytest.fixture(scope="module")
def node(bench):
    return bench.run_active(ArmDriverNode(Trusting))


@pytest.fixture(scope="module")
def driver(bench, node, robot):
    return DriverProbe(bench, robot, scene=Scene())


@pytest.fixture(autouse=True)
def _arm_in_order(bench, driver, robot):
    """Every test begins and ends with an arm that holds near home, without faults and with a live commander."""
    driver.is_alive = True
    yield
    driver.is_alive = True
    assert not bench.set_parameter(
        "arm_driver",
        fault_drop_cycles=0,
        fault_drop_probability=0.0,
        fault_stuck_encoders=[""],
        fault_nan_torques=[""],
        fault_command_delay=0,
        fault_power_loss=False,
    )
    if driver.status.latest.mode == FAULT:  # the arm may not rest yet
        assert wait_until(lambda: bench.call(Trigger, "arm_driver/reconnect").success, PATIENCE)
    status = driver.wait_for(HOLD)
    if np.abs(np.array(status.reference_position) - robot.home).max() > 0.5:  # a new loop begins at home
        assert bench.change_state("arm_driver", "deactivate") and bench.change_state("arm_driver", "activate")
        driver.wait_for(HOLD, scene_hash=Scene().hash())


def brake(bench, driver):
    """Breaks a motion off; returns the status at rest."""
    assert bench.call(Trigger, "arm_driver/brake").success
    return driver.wait_for_rest()


def test_what_is_published_at_rest(bench, driver, robot):
    status = driver.wait_for(HOLD)
    assert tuple(status.joint_names) == robot.joint_names and status.is_simulated and status.serial_number == "M1"
    assert status.header.frame_id == robot.base_frame and status.code == DriverStatus.CODE_OK
    np.testing.assert_allclose(status.reference_position, robot.home, atol=0.01)

    batches = driver.samples.messages[-5:]
    for earlier, later in zip(batches[:-1], batches[1:], strict=True):
        assert later.first_sequence == earlier.first_sequence + len(earlier.stamps)
    assert all(tuple(batch.joint_names) == robot.joint_names and all(batch.valid) for batch in batches)

    joint_state = bench.listen(JointState, "joint_states", qos.JOINT_STATES_SUBSCRIBER).wait()
    assert tuple(joint_state.name) == robot.joint_names and np.all(np.isfinite(joint_state.effort))
    assert bench.listen(String, "robot_description", qos.LATCHED).wait().data == robot.urdf  # also for late comers
    diagnostics = bench.listen(DiagnosticArray, "/diagnostics", qos.DIAGNOSTICS).wait().status[0]
    assert diagnostics.hardware_id == robot.name and diagnostics.message == status.text
    assert diagnostics.name == "arm_driver: control loop"
    truth = bench.listen(SimulationTruth, "arm_driver/truth", qos.LATCHED).wait()
    np.testing.assert_array_equal(truth.payload, load_payload(robot, "dumbbell_4lb"))


def test_joint_states_follow_the_clock_of_a_simulation(bench, driver):
    """As TF and RViz need them; samples keep the time in which torques are integrated."""
    clock, message = bench.node.create_publisher(Clock, "/clock", 1), Clock()
    states = bench.listen(JointState, "joint_states", qos.JOINT_STATES_SUBSCRIBER)
    assert not bench.set_parameter("arm_driver", use_sim_time=True)
    first, samples, time_ns = len(states.messages), len(driver.samples.messages), [500 * 10**9]

    def tick():
        time_ns[0] += 10_000_000
        message.clock.sec, message.clock.nanosec = divmod(time_ns[0], 10**9)
        clock.publish(message)
        on_clock = [one for one in states.messages[first:] if 499 <= one.header.stamp.sec <= message.clock.sec]
        return len(on_clock) > 3 and len(driver.samples.messages) > samples + 3

    try:
        assert wait_until(tick, PATIENCE)
        assert states.messages[-1].header.stamp.sec < 1000 and driver.samples.messages[-1].stamps[-1] > 10**18
    finally:
        assert not bench.set_parameter("arm_driver", use_sim_time=False)
        bench.between_turns(bench.node, lambda: bench.node.destroy_publisher(clock))
    before = len(driver.samples.messages)
    assert wait_until(lambda: len(driver.samples.messages) > before + 3, PATIENCE)


def test_motion_ends_at_rest_within_its_bound(driver):
    trajectory, before = driver.move(), len(driver.status.messages)
    certificate = driver.certificate(trajectory)
    assert driver.execute(trajectory, certificate).accepted
    moving = driver.wait_for(TRACK, after=before, plan_id=certificate.plan_id)
    assert moving.code == DriverStatus.CODE_OK
    status = driver.wait_for_rest()
    assert status.code == DriverStatus.CODE_OK and status.text == "trajectory done" and not status.plan_id
    assert max(status.tracking_error_max) < 0.05
    np.testing.assert_allclose(status.reference_position, trajectory.evaluate(trajectory.duration)[0], atol=1e-9)


def test_uncertified_motions_are_refused_with_the_reason(driver, robot):
    trajectory = driver.move()
    other = driver.move(distance=0.1)
    certificate = driver.certificate(trajectory)
    names = [f"joint_{k}" for k in range(7)]
    cases = {
        "the unknown joint 'joint_0'": driver.execute(trajectory, joint_names=names),
        "was issued for path": driver.execute(trajectory, driver.certificate(other)),
        "was certified for scene 1111": driver.execute(trajectory, scene_hash="1" * 64),
    }
    plan = certified_to_message(trajectory, certificate, robot.joint_names)
    plan.certificate.plan_id = ""
    cases["it has no certificate"] = driver.send(plan)
    for words, response in cases.items():
        assert not response.accepted
        assert words in response.message, response.message
    assert driver.wait_for(HOLD).code == DriverStatus.CODE_OK


def test_a_motion_ends_when_its_environment_changes(bench, driver):
    wall = Obstacle("wall", np.array([0.0, 2.0, 0.5]), np.array([1.0, 0.1, 0.5]))
    driver.show(Scene((wall,)))
    driver.start(duration=LONG)
    driver.show(Scene())  # an obstacle less harms nobody
    driver.wait_for(TRACK)
    driver.show(Scene((replace(wall, center=wall.center - [0.0, 0.1, 0.0]),)))
    status = driver.wait_for_rest()
    assert status.code == DriverStatus.CODE_STALE
    assert "the scene has changed since the motion was certified" in status.text
    driver.show(Scene())
    driver.start(duration=LONG)
    brake(bench, driver)


def test_nothing_moves_while_the_environment_is_not_known(bench, driver):
    driver.start(duration=LONG)
    driver.show(Scene(), fault="the camera sees nothing")
    status = driver.wait_for_rest()
    assert "the scene is no longer known: the camera sees nothing" in status.text
    refused = driver.execute(driver.move())
    assert not refused.accepted and "not known: the camera sees nothing" in refused.message
    driver.show(Scene())
    driver.start(duration=LONG)
    brake(bench, driver)


def test_two_planners_are_as_good_as_none(bench, driver):
    other = bench.node.create_publisher(SceneMessage, "safe_planner/scene", qos.SCENE)
    driver.start(duration=LONG)

    def is_said(words):
        driver.repeat(Scene())
        other.publish(scene_to_message(Scene(ground_height=-2.0), source="other"))
        return words in driver.status.latest.text

    words = "2 safe planners publish a scene (one without a name, other); stop all but one"
    assert wait_until(lambda: is_said(words), PATIENCE)
    status = driver.wait_for_rest()
    assert status.code == DriverStatus.CODE_STALE
    refused = driver.execute(driver.move())
    assert not refused.accepted and "not known: 2 safe planners" in refused.message
    # The other one has ended; who remains says again what it knows, and that is believed again.
    bench.between_turns(bench.node, lambda: bench.node.destroy_publisher(other))

    def is_known():
        driver.repeat(Scene())
        return driver.status.latest.scene_hash == Scene().hash()

    assert wait_until(is_known, PATIENCE)
    driver.start(duration=LONG)
    brake(bench, driver)


def test_a_plan_takes_over_in_motion(bench, driver, robot):
    first = driver.move(duration=6.0)
    state = first.evaluate(3.0)
    second = BezierTrajectory(*state, state[0] + 0.05, 2.0)
    own = driver.certificate(first)
    certificate = driver.certificate(second, predecessor=own.plan_id, takeover_time=3.0)
    request = ExecuteTrajectory.Request(plan=certified_to_message(second, certificate, robot.joint_names))
    early = bench.call(ExecuteTrajectory, "arm_driver/execute", request)
    assert not early.accepted and "it continues a motion, but the loop is in HOLD" in early.message
    before = len(driver.status.messages)
    assert driver.execute(first, own).accepted
    response = bench.call(ExecuteTrajectory, "arm_driver/execute", request)
    assert response.accepted and response.message == "waits to take over"
    twice = bench.call(ExecuteTrajectory, "arm_driver/execute", request)
    assert not twice.accepted and "has been used" in twice.message and twice.code == RefusalCode.REPLAYED
    again = replace(certificate, issued_at=certificate.issued_at + 1.0)
    request = ExecuteTrajectory.Request(plan=certified_to_message(second, again, robot.joint_names))
    twice = bench.call(ExecuteTrajectory, "arm_driver/execute", request)
    assert not twice.accepted and "already waits to take over" in twice.message
    driver.wait_for(TRACK, after=before, plan_id=own.plan_id, next_plan_id=certificate.plan_id)
    driver.wait_for(TRACK, after=before, plan_id=certificate.plan_id, next_plan_id="")
    status = driver.wait_for_rest()
    np.testing.assert_allclose(status.reference_position, second.end, atol=1e-9)
    assert status.code == DriverStatus.CODE_OK
    assert max(status.tracking_error_max) < 0.05


def test_brake_on_request(bench, driver):
    driver.start(duration=LONG)
    status = brake(bench, driver)
    assert status.code == DriverStatus.CODE_BRAKE_REQUESTED
    assert status.text == "at rest after braking: a brake was requested"


def test_a_person_may_guide_the_arm_where_that_is_allowed(bench, driver):
    driver.wait_for(HOLD, is_taking_over=False)
    response = bench.call(SetBool, "arm_driver/guide", SetBool.Request(data=True))
    assert response.success and "without a certificate" in response.message
    driver.wait_for(GUIDE)
    assert not bench.call(SetBool, "arm_driver/guide", SetBool.Request(data=True)).success
    assert bench.call(SetBool, "arm_driver/guide", SetBool.Request(data=False)).success
    driver.wait_for(HOLD)


def test_silent_commander_brakes(bench, driver, node, monkeypatch):
    monkeypatch.setattr(node._config, "values", replace(node._config.values, commander_timeout=1.0))
    driver.start(duration=LONG)
    for timeout in (0.0, 10.0):  # nobody switches that off
        assert "read-only" in bench.set_parameter("arm_driver", commander_timeout=timeout)
    driver.is_alive = False
    status = driver.wait_for_rest()
    assert status.code == DriverStatus.CODE_STALE
    assert "no heartbeat of the commanding node" in status.text and "allowed 1 s" in status.text


@pytest.mark.parametrize(
    ("fault", "mode", "code", "words"),
    [
        ({"fault_drop_cycles": 5}, HOLD, "INVALID_MEASUREMENT", "no usable measurement in 3 cycles"),
        ({"fault_drop_cycles": 200}, FAULT, "INVALID_MEASUREMENT", "no usable measurement in 10 cycles"),
        ({"fault_stuck_encoders": ["joint_2"]}, FAULT, "INVALID_MEASUREMENT", "joint_2"),
        ({"fault_nan_torques": ["joint_4"]}, HOLD, "INVALID_MEASUREMENT", "the torque of joint_4 is nan"),
        ({"fault_command_delay": 100}, FAULT, "TRACKING_ERROR LIMIT", "rad away from|times that"),
        ({"fault_power_loss": True}, FAULT, "HARDWARE", "power"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_injected_fault_ends_at_rest(bench, driver, fault, mode, code, words):
    # The narrower the bound of the velocity error, the sooner a reading that stands still counts as stuck.
    driver.start(duration=3.0, velocity_bound=0.05 if "fault_stuck_encoders" in fault else 1.2)
    assert not bench.set_parameter("arm_driver", **fault)
    status = driver.wait_for(mode)
    assert status.code in [getattr(DriverStatus, f"CODE_{one}") for one in code.split()], status.text
    assert any(word in status.text for word in words.split("|")), status.text
    reach = 0.2
    if "fault_command_delay" in fault:
        # That makes the loop itself unstable: given up at 0.1 rad, the arm swings on, but not for long.
        status, reach = wait_for_standstill(driver), 1.0
    assert status.mode == mode and max(np.abs(status.tracking_error)) < reach and not status.is_taking_over
    if mode == FAULT:
        refused = driver.execute(driver.stay())
        assert not refused.accepted and "the loop is in FAULT" in refused.message


def wait_for_standstill(driver):
    """The status of an arm that is not followed any more and stands still."""
    heard, first = driver.status.messages, len(driver.status.messages)

    def is_still():
        before, now = heard[-2:]
        return len(heard) > first and np.allclose(before.tracking_error, now.tracking_error, atol=1e-3)

    assert wait_until(is_still, PATIENCE)
    return heard[-1]


def test_parameters_out_of_range_are_refused_at_run_time(bench, driver, robot):
    cases = {
        "fault_drop_probability out of range Min: 0.0, Max: 1.0": {"fault_drop_probability": 2.0},
        "Wrong parameter type": {"fault_drop_probability": 1},
        "fault_drop_probability": {"fault_drop_probability": float("nan")},
        ", ".join(robot.joint_names): {"fault_stuck_encoders": ["elbow"]},
        "read-only": {"model": "kinova_gen3"},
    }
    for words, values in cases.items():
        reason = bench.set_parameter("arm_driver", **values)
        assert words in reason, reason


def test_announced_payload_changes_epoch_and_model_unannounced_does_not(bench, driver, robot):
    truth = bench.listen(SimulationTruth, "arm_driver/truth", qos.LATCHED)
    payload = load_payload(robot, "dumbbell_5lb")
    epoch = driver.wait_for(HOLD).payload_epoch

    def change(operation, values, announce):
        request = SetPayload.Request(operation=operation, payload=values, announce=announce)
        return bench.call(SetPayload, "arm_driver/set_payload", request)

    unannounced = change(SetPayload.Request.CHANGE, payload, False)
    assert unannounced.success and unannounced.payload_epoch == epoch
    truth.wait(lambda message: np.array_equal(message.payload, payload))

    narrow = apply_narrow_estimate(bench, robot)
    driver.wait_for(HOLD, model_box_hash=narrow)
    before = len(driver.samples.messages)
    announced = change(SetPayload.Request.DETACH, np.zeros(10), True)
    assert announced.success and announced.payload_epoch == epoch + 1
    driver.wait_for(HOLD, payload_epoch=epoch + 1, model_box_hash=box_hash(robot.theta_box, robot.payload_prior.box))
    driver.samples.wait(lambda batch: batch.payload_epoch == epoch + 1)
    epochs = [batch.payload_epoch for batch in driver.samples.messages[before:]]
    assert epochs == sorted(epochs)
    assert not truth.wait(lambda message: message.payload_epoch == epoch + 1).valid

    driver.start(duration=LONG)
    assert change(SetPayload.Request.ATTACH, payload, True).payload_epoch == epoch + 2
    status = driver.wait_for_rest()
    assert status.code == DriverStatus.CODE_STALE and "the payload was changed" in status.text
    assert wait_until(lambda: driver.execute(driver.move(duration=LONG)).accepted, PATIENCE)
    brake(bench, driver)
    assert change(SetPayload.Request.DETACH, np.zeros(10), True).payload_epoch == epoch + 3

    impossible = np.array(payload)
    impossible[4] = -1.0
    refused = change(SetPayload.Request.ATTACH, impossible, True)
    assert not refused.success and refused.payload_epoch == epoch + 3 and refused.message


def apply_narrow_estimate(bench, robot):
    prior = robot.payload_prior
    box = Box.around(prior.box.center, 0.5 * prior.box.radius)
    estimate = make_estimate(box.center, box.lower, box.upper)
    wrong = replace(estimate, target="end_effector")
    refused = apply_estimate(bench, wrong)
    assert not refused.success and "estimate.target" in refused.message
    response = apply_estimate(bench, estimate)
    assert response.success, response.message
    assert response.model_box_hash == box_hash(robot.theta_box, box)
    return response.model_box_hash


def apply_estimate(bench, estimate):
    request = ApplyEstimate.Request(estimate=estimate_to_message(estimate, 1))
    return bench.call(ApplyEstimate, "arm_driver/set_model", request)


def test_lifecycle_without_autostart(bench, driver):
    count = len(driver.status.messages)
    assert bench.change_state("arm_driver", "deactivate")
    status = driver.status.wait(lambda status: status.mode == IDLE, after=count)
    assert status.text == "the driver is deactivated"
    assert not bench.change_state("arm_driver", "deactivate")  # not active
    assert bench.change_state("arm_driver", "cleanup")
    count = len(driver.samples.messages)  # now: the last ones may be heard after the status
    assert bench.set_parameter("arm_driver", fault_nan_torques=["joint_3"]) == ""
    assert bench.change_state("arm_driver", "configure")
    assert len(driver.samples.messages) == count
    epoch = status.payload_epoch
    assert bench.change_state("arm_driver", "activate")
    # The simulated arm holds its first payload again.
    driver.wait_for(HOLD, payload_epoch=epoch + 1, scene_hash=Scene().hash())
    response = driver.execute(driver.move())
    assert not response.accepted and "joint_3" in response.message  # given before the start, and yet it counts
    assert not bench.set_parameter("arm_driver", fault_nan_torques=[""])


def test_an_error_of_the_node_hands_the_arm_back_and_it_can_start_again(bench, driver, node, monkeypatch):
    release = node._release

    def break_once(reason):
        monkeypatch.setattr(node, "_release", release)
        raise RuntimeError("something inside")

    monkeypatch.setattr(node, "_release", break_once)
    count, loop = len(driver.status.messages), node._arm.loop
    assert not bench.change_state("arm_driver", "deactivate")
    assert driver.status.wait(lambda status: status.mode == IDLE, after=count).text == "the driver has an error"
    assert not loop.is_alive
    assert bench.change_state("arm_driver", "configure") and bench.change_state("arm_driver", "activate")
    driver.wait_for(HOLD)


@pytest.mark.parametrize(
    ("mode", "has_priority", "level"),
    [("mock", False, Level.OK), ("hardware", True, Level.OK), ("hardware", False, Level.WARN)],
)
def test_diagnostics_warn_where_a_real_arm_has_no_real_time_priority(mode, has_priority, level):
    outputs = object.__new__(ArmOutputs)  # without a node and its topics
    values = ArmDriverParameters(mode=mode, robot_ip="192.0.2.1")
    outputs._arm = SimpleNamespace(values=values, loop=SimpleNamespace(scheduling=Scheduling(has_priority, "normal")))
    found, text = outputs.judge(SimpleNamespace(has_failed=False, reason="holding"), 0.0)
    assert found is level
    assert text == ("holding; no real-time priority: normal" if level is Level.WARN else "holding")
    assert outputs.judge(SimpleNamespace(has_failed=True, reason="lost"), 0.0)[0] is Level.ERROR


@pytest.mark.parametrize(
    ("late", "level"), [(0, Level.OK), (9, Level.OK), (10, Level.WARN), (70, Level.WARN), (100, Level.ERROR)]
)
def test_diagnostics_follow_the_share_of_late_cycles_of_the_last_ten_seconds(late, level):
    outputs = object.__new__(ArmOutputs)
    values = ArmDriverParameters(mode="mock")
    outputs._arm = SimpleNamespace(values=values, loop=SimpleNamespace(scheduling=Scheduling(False, "normal")))
    cycles, status = LateCycles(), SimpleNamespace(has_failed=False, reason="holding")

    def state(second, is_bad):
        state.late += late if is_bad else 0
        return outputs.judge(status, cycles.note(float(second), 1000 * second, state.late))

    state.late = 5000  # long ago
    assert state(0, False)[0] is Level.OK
    found = [state(second, is_bad=True) for second in range(1, 21)]
    assert {one for one, _ in found} == {level}
    assert all(
        (f"; {late / 1000:.1%} of the cycles of the last 10 s came late" in text) == (late >= 10) for _, text in found
    )
    found = [state(second, is_bad=False)[0] for second in range(21, 32)]
    assert found[-1] is Level.OK and (late < 70 or found[0] is not Level.OK)  # it is forgotten after ten seconds
    assert cycles.note(40.0, 10, 0) == 0.0  # a loop that was started again


def test_driver_that_was_never_activated_can_be_closed(bench):
    node = ArmDriverNode(Trusting)
    node.close()
    node.destroy_node()
