"""The driver node with an arm that is reached over topics alone: an emulated one, over real DDS."""

import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import rclpy
import yaml
from diagnostic_msgs.msg import DiagnosticArray
from node_bench import PATIENCE, Bench, DriverProbe, Trusting
from rcl_interfaces.srv import GetParameters
from rclpy.context import Context
from std_srvs.srv import Trigger
from suite_bench import GoalProbe
from textbook import load_textbook

from sysid_msgs.action import Identify
from sysid_msgs.msg import DriverStatus, SampleBatch
from sysid_ros.adapters.identification.monitor import SuiteMonitor
from sysid_ros.adapters.joint_link import LinkSetup, RosJointLink, from_joint_state, from_lbr_state, from_sample_batch
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.control import RobustSettings
from sysid_ros.core.estimation.parameters.estimate import EstimateStatus, Quantity
from sysid_ros.drivers.mujoco.simulation import load_payload
from sysid_ros.drivers.ros2_control.settings import Interface
from sysid_ros.emulators.arguments import ros2_control_parser
from sysid_ros.emulators.nodes import ros2_control_emulator
from sysid_ros.emulators.nodes.arm_emulator import ArmEmulatorNode, ArmEmulatorParameters
from sysid_ros.nodes.arm_driver import ArmDriverNode, ArmDriverParameters
from sysid_ros.nodes.estimator import EstimatorNode
from sysid_ros.nodes.identification import IdentificationNode
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.estimate import estimate_from_message

HOLD, IDLE, TRACK, FAULT = (getattr(DriverStatus, f"MODE_{name}") for name in ("HOLD", "IDLE", "TRACK", "FAULT"))
PAYLOAD = "dumbbell_4lb"
RATE = 500.0
PATIENT = {
    "heartbeat_timeout": 10.0, "commander_timeout": 10.0, "late_limit": 10.0, "cycle_timeout": 2.0,
    "session_timeout": 5.0,
}  # fmt: skip
EMULATOR_PATIENCE = 2.5
"""A controller that is dead on purpose is not answered either, so it is below the driver's own patience [s]."""


def make_bench(mode, robot, rate=RATE, **driver):
    """A bench with an emulated arm whose joints come in an order of their own, with others among them."""
    names = robot.joint_names
    lists = {"state_joints": ("finger", *names[::-1], "lid"), "command_joints": (*names[4:], *names[:4])}
    given = {"arm_emulator:mode": mode, "arm_emulator:payload": PAYLOAD,
             "arm_emulator:patience": EMULATOR_PATIENCE, "arm_driver:mode": mode}  # fmt: skip
    given |= {f"arm_emulator:{name}": f"[{', '.join(values)}]" for name, values in lists.items()}
    given |= {f"{node}:update_rate": rate for node in ("arm_emulator", "arm_driver")}
    given |= {"identification:strategy": "observe", "identification:service_timeout": 60.0}
    given |= {f"arm_driver:{name}": value for name, value in {**PATIENT, **driver}.items()}
    return Bench(*(word for name, value in given.items() for word in ("-p", f"{name}:={value}")))


def fault(bench, **values):
    assert bench.set_parameter("joint_state_broadcaster", **values) == ""


def reconnect(bench, probe):
    """As a person would: again, where the arm did not rest yet. From far away it comes back at half a rad/s."""
    end = time.monotonic() + PATIENCE
    while not bench.call(Trigger, "arm_driver/reconnect").success:
        assert time.monotonic() < end
    probe.wait_for(HOLD)


def execute(probe, trajectory):
    """With a certificate for the rate of this arm."""
    law = RobustSettings(bandwidth=100.0, period=1.0 / RATE, delay=1.0 / RATE).law
    return probe.execute(trajectory, control_law=law)


@pytest.fixture
def commanded(robot):
    bench = make_bench("emulated_ros2_control", robot, torque_command="full")
    yield bench
    bench.close()


def test_any_arm_is_held_moved_lost_and_held_again(commanded, robot):
    bench = commanded
    bench.run(ArmEmulatorNode())
    driver = bench.run_active(ArmDriverNode(Trusting))
    probe = DriverProbe(bench, robot, scene=Scene())
    status = probe.wait_for(HOLD)
    assert "over ros2_control, without real-time guarantees" in status.text
    assert status.is_simulated and status.timing == DriverStatus.TIMING_TOPICS
    np.testing.assert_allclose(status.reference_position, robot.home, atol=0.02)
    assert driver.count_publishers("joint_states") == 1  # those of the arm itself, and no others

    found = bench.listen(DiagnosticArray, "/diagnostics", qos.DIAGNOSTICS).wait(lambda m: len(m.status[0].values) > 20)
    values = {one.key: one.value for one in found.status[0].values}
    assert values["connection"] == "over ros2_control, without real-time guarantees"
    assert values["order of commands"].startswith("joint_5, joint_6, joint_7, joint_1")
    assert values["static gravity check"] == "passed" and int(values["commands sent"]) > 100

    fault(bench, fault_nan_efforts=["joint_2"])
    status = probe.status.wait(lambda s: "no motion may start: the torque of joint_2 is nan" in s.text)
    refused = execute(probe, probe.move())
    assert not refused.accepted and "the torque of joint_2 is nan" in refused.message
    fault(bench, fault_nan_efforts=[""])
    probe.status.wait(lambda s: "no motion may start" not in s.text, after=len(probe.status.messages))

    watch = SuiteMonitor(bench.node, robot)
    trajectory, before = probe.move(distance=0.1), len(probe.status.messages)
    response = execute(probe, trajectory)
    assert response.accepted and "assumed by its certificate, not known" in response.message
    probe.wait_for(TRACK, after=before)
    status = probe.wait_for_rest(0.1)
    np.testing.assert_allclose(status.reference_position, trajectory.end, atol=1e-6)
    assert status.code == DriverStatus.CODE_OK
    # What a goal that moved the arm writes under its result.
    assert watch.records.timing_doubt.startswith("the arm was moved over ros2_control, without real-time guarantees: ")

    # It must not be over before the controller is dead.
    longer, before = probe.move(distance=0.2, duration=6.0), len(probe.status.messages)
    assert execute(probe, longer).accepted
    probe.wait_for(TRACK, after=before)
    fault(bench, fault_controller_dead=True)
    count = len(probe.status.messages)
    failed = probe.status.wait(lambda s: s.code != DriverStatus.CODE_OK, after=count)
    assert failed.code in (DriverStatus.CODE_INVALID_MEASUREMENT, DriverStatus.CODE_TRACKING_ERROR)
    # Whether the last torque makes it drift, or friction holds it: it is given up, or rests and is moved no more.
    probe.status.wait(lambda s: s.mode == FAULT or "no motion may start" in s.text, after=count)
    assert not execute(probe, trajectory).accepted
    fault(bench, fault_controller_dead=False)
    # At rest it is believed again by itself, unless what was commanded meanwhile moves it too far.
    count = len(probe.status.messages)
    status = probe.status.wait(lambda s: s.mode == FAULT or "no motion may start" not in s.text, after=count)
    if status.mode == FAULT:
        reconnect(bench, probe)

    fault(bench, fault_silent=True)
    assert "no joint states" in probe.wait_for(FAULT).text
    fault(bench, fault_silent=False)
    reconnect(bench, probe)

    count = len(probe.status.messages)
    assert bench.change_state("arm_driver", "deactivate")
    assert probe.status.wait(lambda s: s.mode == IDLE, after=count).text == "the driver is deactivated"


def test_a_stated_order_that_is_not_the_controllers_is_refused(robot):
    names = ", ".join(robot.joint_names)
    bench = make_bench("emulated_ros2_control", robot, torque_command="full", command_joints=f"[{names}]")
    try:
        bench.run(ArmEmulatorNode())
        said = []
        driver = bench.run(ArmDriverNode(Trusting))
        driver.get_logger().fatal = said.append
        assert bench.change_state("arm_driver", "configure")
        status = bench.listen(DriverStatus, "arm_driver/status", qos.STATUS)
        assert not bench.change_state("arm_driver", "activate")
        told = status.wait(lambda s: s.mode == FAULT)
        assert told.code == DriverStatus.CODE_HARDWARE and told.text == said[0]
        assert "the controller takes commands in the order joint_5, joint_6" in said[0]
        told = bench.call(GetParameters, "effort_controller/get_parameters", GetParameters.Request(names=["joints"]))
        assert list(told.values[0].string_array_value)[:2] == ["joint_5", "joint_6"]
    finally:
        bench.close()


def test_an_arm_that_moves_by_itself_is_weighed_and_never_commanded(robot, tmp_path):
    bench = make_bench("emulated_monitor_only", robot, rate=200.0)
    try:
        bench.run(ArmEmulatorNode())
        bench.run(EstimatorNode())
        bench.run(IdentificationNode())
        driver = bench.run_active(ArmDriverNode(Trusting))
        probe = DriverProbe(bench, robot)
        status = probe.status.wait(lambda s: s.mode == IDLE and "monitoring; nothing is commanded" in s.text)
        assert status.is_simulated and status.timing == DriverStatus.TIMING_TOPICS
        refused = probe.execute(probe.stay())
        assert not refused.accepted
        assert "the arm is only monitored: this driver commands nothing" in refused.message
        brake = bench.call(Trigger, "arm_driver/brake")
        assert not brake.success and "brake refused: the arm is only monitored" in brake.message

        goal = GoalProbe(bench).send(max_motion_time=4.0, results_directory=str(tmp_path))
        result = goal.wait()
        assert any("watching the arm" in feedback.text for feedback in goal.feedback)
        estimate, prior = estimate_from_message(result.estimate), robot.payload_prior.box
        assert estimate.is_consistent, estimate.alarm
        assert Quantity.MASS in estimate.narrower
        # At this rate, in this time, the watched motion decides whether CoM and inertia are known, too.
        files = {path.name for path in tmp_path.iterdir()}
        if estimate.status is EstimateStatus.PARTIAL:
            assert result.error_code == Identify.Result.RESULTS_NOT_WRITTEN, result.error_text
            assert "identified in part" in result.error_text
            assert files == {"estimate.yaml", "report.html", "recording.mcap"}
        else:
            assert result.error_code == Identify.Result.NONE, result.error_text
            assert files > {"estimate.yaml", "report.html", "recording.mcap"}
        truth = load_payload(robot, PAYLOAD)
        assert np.all((estimate.lower <= truth) & (truth <= estimate.upper))
        assert estimate.upper[0] - estimate.lower[0] < 0.8 * (prior.upper[0] - prior.lower[0])
        written = yaml.safe_load((tmp_path / "estimate.yaml").read_text())
        assert written["motions"] == [] and "the arm was watched for 4 s" in str(written)
        assert driver.count_publishers("effort_controller/commands") == 0
        assert driver.count_publishers("joint_states") == 1
    finally:
        bench.close()


def names_of(**values):
    return ArmDriverParameters().with_values(**{"mode": "ros2_control", "torque_command": "full", **values})


def test_names_are_those_that_users_of_ros2_control_know(robot):
    def resolve(name):
        return f"/lbr/{name}"

    setup = names_of(hold_controller="joint_trajectory_controller").link_setup(robot, resolve)
    assert (setup.states, setup.commands) == ("/lbr/joint_states", "/lbr/effort_controller/commands")
    assert setup.effort_controller == "/lbr/effort_controller" and setup.namespace == "/lbr"
    assert setup.hold_controller == "joint_trajectory_controller"
    assert setup.controller_manager == "/lbr/controller_manager"

    setup = names_of(arm_interface="lbr_fri_idl").link_setup(robot, resolve)
    assert (setup.states, setup.commands) == ("/lbr/state", "/lbr/command/torque")
    setup = names_of(mode="monitor_only", hold_controller="x", command_topic="tau").link_setup(robot, resolve)
    assert setup.commands is None and setup.hold_controller is None


def test_settings_reach_the_connection(robot):
    parameters = names_of(
        update_rate=500.0, velocity_source="positions", session_timeout=0.2, connect_timeout=3.0, cycle_timeout=0.01,
        command_joints=("a", "b"), late_limit=0.05,
    )  # fmt: skip
    settings = parameters.ros2_control_settings
    assert settings.period == 0.002 and settings.velocity.value == "positions"
    assert (settings.session_timeout, settings.connect_timeout, settings.wait_time) == (0.2, 3.0, 0.01)
    assert settings.late_limit == 0.05 and settings.command_joints == ("a", "b")
    assert settings.torque_command.value == "full"
    assert names_of(arm_interface="lbr_fri_idl").ros2_control_settings.velocity.value == "positions"


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ({"torque_command": "unset"}, ParameterOutOfRange, "expected full .* a wrong setting makes it fall or jump"),
        ({"arm_interface": "lbr_fri_idl"}, SysidError, "lbr_fri_idl is not installed here; it is part"),
        ({"hold_controller": "jtc"}, SysidError, "controller_manager_msgs is not installed here"),
        ({"velocity_source": "positions"}, ParameterOutOfRange, "velocity_error of joint_"),
    ],
)
def test_what_cannot_work_is_refused_when_the_driver_is_configured(robot, values, error, words):
    if error is SysidError and "arm_interface" in values:
        parameters = names_of(model="kuka_lbr_med7", torque_command="overlay", **values)
        robot = load_textbook("kuka_lbr_med7")
    else:
        parameters = names_of(**values)
    with pytest.raises(error, match=words):
        parameters.build(robot)
    if "torque_command" in values or "hold_controller" in values:  # needs neither: nothing is commanded
        ArmDriverParameters().with_values(mode="monitor_only", **values).build(robot)


class Lbr:
    """Stands for an ``lbr_fri_idl/LBRState``."""

    session_state, time_stamp_sec, time_stamp_nano_sec = 4, 12, 34
    measured_joint_position, measured_torque = [0.1] * 7, [1.0] * 7


def test_states_of_both_kinds_become_the_same():
    from sensor_msgs.msg import JointState

    message = JointState(name=["a", "b"], position=[1.0, 2.0], effort=[3.0, 4.0])
    message.header.stamp.sec, message.header.stamp.nanosec = 12, 34
    states = from_joint_state(message)
    assert states.stamp_ns == 12_000_000_034 and states.names == ("a", "b")
    assert list(states.position) == [1.0, 2.0] and len(states.velocity) == 0 and states.alarm is None

    names = tuple(f"lbr_A{k}" for k in range(1, 8))
    states = from_lbr_state(Lbr(), names)
    assert states.stamp_ns == 12_000_000_034 and states.names == names and states.alarm is None
    assert states.position == [0.1] * 7 and states.effort == [1.0] * 7
    fallen = Lbr()
    fallen.session_state = 2
    assert from_lbr_state(fallen, names).alarm == "the FRI session is in MONITORING_READY"


class Switched:
    """Stands for the service type of controller_manager_msgs; it keeps what was asked."""

    class Request:
        STRICT = 2

        def __init__(self):
            self.timeout = type("Duration", (), {"sec": 0})()


@pytest.mark.parametrize(("is_torque", "active"), [(True, "effort_controller"), (False, "jtc")])
def test_switching_asks_for_one_controller_in_the_place_of_the_other(monkeypatch, is_torque, active):
    """With stand-ins for the package of the messages and for the call itself; no controller manager has been asked."""
    monkeypatch.setitem(sys.modules, "controller_manager_msgs", type(sys)("controller_manager_msgs"))
    services = type(sys)("controller_manager_msgs.srv")
    services.SwitchController = Switched
    monkeypatch.setitem(sys.modules, "controller_manager_msgs.srv", services)
    link = object.__new__(RosJointLink)
    link._setup = LinkSetup(("a",), Interface.FORWARD, commands="/c", effort_controller="/lbr/effort_controller",
                            hold_controller="jtc", controller_manager="/lbr/controller_manager")  # fmt: skip
    asked = []
    answers = {"ok": True, "message": "jtc is not loaded"}
    link._call = lambda kind, name, request, timeout, resends: (
        asked.append((name, request)) or type("Response", (), answers)()
    )
    assert link.switch(is_torque, 1.0) is None
    name, request = asked[0]
    assert name == "/lbr/controller_manager/switch_controller"
    assert request.activate_controllers == [active] and request.strictness == 2
    assert {*request.activate_controllers, *request.deactivate_controllers} == {"effort_controller", "jtc"}
    answers["ok"] = False
    assert "jtc is not loaded" in link.switch(is_torque, 1.0)
    link._call = lambda *_, **__: None
    assert "did not answer within 1 s" in link.switch(is_torque, 1.0)


def test_samples_of_a_broadcaster_arrive_one_by_one_and_it_is_never_commanded():
    setup = LinkSetup(("a", "b"), Interface.BROADCASTER, states="/sample_broadcaster/samples")
    context = Context()
    rclpy.init(context=context)
    link, node = RosJointLink(setup), rclpy.create_node("sample_broadcaster", context=context)
    publisher = node.create_publisher(SampleBatch, "/sample_broadcaster/samples", qos.SAMPLES)
    deadline = time.monotonic() + 10.0
    while not publisher.get_subscription_count() and time.monotonic() < deadline:
        time.sleep(0.01)
    for first in (0, 3):
        stamps = [10**9 + k for k in range(first, first + 3)]
        rows = {"positions": 0.0, "velocities": 100.0, "efforts": 200.0}
        values = {name: [more + k for k in range(2 * first, 2 * first + 6)] for name, more in rows.items()}
        publisher.publish(SampleBatch(joint_names=["b", "a"], stamps=stamps, **values))
    found = [link.next(10.0) for _ in range(6)]
    assert [one.stamp_ns for one in found] == [10**9 + k for k in range(6)] and link.next(0.0) is None
    assert all(one.names == ("b", "a") for one in found)
    assert [list(one.position) for one in found] == [[2 * k, 2 * k + 1] for k in range(6)]
    assert list(found[4].velocity) == [108, 109] and list(found[4].effort) == [208, 209]
    link.close()
    node.destroy_node()
    rclpy.try_shutdown(context=context)
    with pytest.raises(SysidError, match="monitor_only"):
        RosJointLink(replace(setup, commands="/commands"))


def test_samples_that_a_broadcaster_calls_invalid_do_not_count():
    batch = SampleBatch(joint_names=["a"], stamps=[1, 2, 3], valid=[True, False, False], velocities=[0.0] * 3)
    batch.positions, batch.efforts = [1.0, 2.0, 3.0], [0.0, 0.0, np.nan]
    assert [one.stamp_ns for one in from_sample_batch(batch)] == [1, 3]  # the driver says of 3 what is no number


def test_the_emulator_takes_what_its_node_gives(tmp_path):
    values = ArmEmulatorParameters(
        mode="emulated_monitor_only", update_rate=500.0, state_joints=("x", "joint_1"), torque_command="overlay",
        seed=7, real_time_factor=0.5,
    )  # fmt: skip
    command = values.command("left")
    assert command[1:3] == ["-m", "sysid_ros.emulators.nodes.ros2_control_emulator"]
    options = ros2_control_parser().parse_args(command[3:])
    arm, setup = ros2_control_emulator.setup_of(options)
    assert setup.motion and setup.state_joints == ("x", "joint_1") and setup.command_joints == ()
    assert setup.hardware.period == 0.002 and setup.hardware.torque_command.value == "overlay" and arm.plant.seed == 7
    assert setup.real_time_factor == 0.5
    assert arm.plant.measured_sign == -1.0 and options.namespace == "left" and options.while_stdin
    assert ros2_control_emulator.main(["--robot", "dream", "--seconds", "0"]) == 2
