"""An LBR under lbr_fri_ros2_stack: the messages of lbr_fri_idl, as stand-ins of the same fields, without a network."""

import sys
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from types import SimpleNamespace

import numpy as np
import pytest
from arm_double import PlantLink, connection

from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.drivers.arm import ArmLost
from sysid_ros.drivers.modes import TorqueCommand
from sysid_ros.drivers.ros2_control.arm import Ros2ControlArm
from sysid_ros.drivers.ros2_control.settings import Interface
from sysid_ros.drivers.velocity_estimate import VelocitySource

link_module = pytest.importorskip("sysid_ros.adapters.joint_link", reason="needs rclpy")


def seven():
    return [0.0] * 7


class Strict:
    """As in messages of ROS: no other fields, and seven floats where there are seven joints."""

    def __setattr__(self, name, value):
        if name not in self.__dataclass_fields__:
            raise AttributeError(name)
        if name in ("joint_position", "torque"):
            assert len(value) == 7 and all(type(one) is float for one in value), value
        super().__setattr__(name, value)


@dataclass
class LBRTorqueCommand(Strict):
    joint_position: list = field(default_factory=seven)
    torque: list = field(default_factory=seven)


@dataclass
class LBRState(Strict):
    session_state: int = 4
    time_stamp_sec: int = 0
    time_stamp_nano_sec: int = 0
    measured_joint_position: list = field(default_factory=seven)
    measured_torque: list = field(default_factory=seven)


class Controllers:
    """What subscribes the commands and publishes the states: an emulated LBR behind both topics."""

    def __init__(self, plant):
        self.plant, self.topics, self.published, self.session_state = plant, {}, [], 4

    # The node
    def create_publisher(self, kind, topic, _):
        self.topics["commands"] = topic, kind
        return self

    def count_publishers(self, _):
        return 1

    def destroy_node(self):
        pass

    # The publisher
    def get_subscription_count(self):
        return 1

    def publish(self, message):
        self.published.append(type(message)(list(message.joint_position), list(message.torque)))
        self.plant.send(message.torque, message.joint_position)

    # The inbox
    def subscribe(self, _, kind, topic, __):
        self.topics["states"] = topic, kind
        return self

    def wait(self, timeout):
        found = self.plant.next(timeout)
        if found is not None:
            self.plant.queue.insert(0, found)

    def take(self):
        taken, self.plant.queue = self.plant.queue, []
        return [
            LBRState(self.session_state, *divmod(one.stamp_ns, 10**9), list(one.position), list(one.effort))
            for one in taken
        ]


@pytest.fixture
def open_link(lbr, monkeypatch):
    """Opens the driver's side of both topics, with an emulated LBR at the other end that compensates as KUKA's does."""
    package, messages = type(sys)("lbr_fri_idl"), type(sys)("lbr_fri_idl.msg")
    package.__spec__ = ModuleSpec("lbr_fri_idl", None)
    messages.LBRState, messages.LBRTorqueCommand = LBRState, LBRTorqueCommand
    monkeypatch.setitem(sys.modules, "lbr_fri_idl", package)
    monkeypatch.setitem(sys.modules, "lbr_fri_idl.msg", messages)
    plant = PlantLink(lbr, payload="1.0", measured_sign=lbr.sensors.effort_sign, torque_command=TorqueCommand.OVERLAY)
    controllers = Controllers(plant)
    monkeypatch.setattr(link_module, "Node", lambda *_, **__: controllers)
    monkeypatch.setattr(link_module, "Inbox", controllers.subscribe)
    monkeypatch.setattr(link_module, "Context", object)
    monkeypatch.setattr(link_module, "rclpy", SimpleNamespace(init=lambda **_: None, try_shutdown=lambda **_: None))
    monkeypatch.setattr(link_module, "time", SimpleNamespace(monotonic=plant.now))
    setup = link_module.LinkSetup(
        lbr.joint_names, Interface.LBR, "/lbr", states="/lbr/state", commands="/lbr/command/torque"
    )
    return controllers, lambda: link_module.RosJointLink(setup)


def take_over(lbr, open_link):
    settings = connection(
        interface=Interface.LBR, torque_command=TorqueCommand.OVERLAY, velocity=VelocitySource.POSITIONS
    )
    arm = Ros2ControlArm(lbr, settings, open_link)
    arm.connect()
    return arm


def test_commands_and_states_have_the_types_and_topics_of_the_stack(open_link):
    controllers, opened = open_link
    opened()
    assert controllers.topics == {
        "commands": ("/lbr/command/torque", LBRTorqueCommand), "states": ("/lbr/state", LBRState)
    }  # fmt: skip


def test_a_command_carries_the_measured_position_and_the_torque_less_what_kukas_controller_adds(lbr, open_link):
    controllers, opened = open_link
    arm = take_over(lbr, opened)
    state = arm.read()
    for k in range(20):
        tau = state.tau + 0.5 * np.sin(0.3 * k + np.arange(7.0))
        arm.command(tau)
        sent = controllers.published[-1]
        added = ArmDynamics(lbr, lbr.theta_nominal, None).torque(state.q, state.v, np.zeros(7))
        np.testing.assert_allclose(sent.torque, tau - added, atol=1e-9)
        np.testing.assert_allclose(sent.joint_position, state.q, atol=1e-9)
        state = arm.read()
        np.testing.assert_allclose(controllers.plant.controller.command, tau - added, atol=1e-9)
    assert np.ptp([one.torque[1] for one in controllers.published[-20:]]) > 0.5
    assert np.abs(controllers.plant.hardware.arm.q - lbr.home).max() < 0.02
    arm.close()


def test_the_position_sent_follows_a_jump_of_the_measurement_no_faster_than_the_arm_could_move(lbr, open_link):
    controllers, opened = open_link
    arm = take_over(lbr, opened)
    state = arm.read()
    arm.command(state.tau)
    before = np.array(controllers.published[-1].joint_position)
    arm._last = type(state)(state.stamp_ns, state.q + 0.3, state.v, state.tau)
    arm.command(state.tau)
    step = np.array(controllers.published[-1].joint_position) - before
    np.testing.assert_allclose(step, 1.5 * lbr.limits.v_max * arm.period, atol=1e-3)
    arm.close()


def test_a_session_that_falls_back_loses_the_arm_and_ends_commands(lbr, open_link):
    controllers, opened = open_link
    arm = take_over(lbr, opened)
    arm.command(arm.read().tau)
    controllers.session_state = 2
    with pytest.raises(ArmLost, match="the FRI session is in MONITORING_READY"):
        arm.read()


def test_the_stand_ins_refuse_what_messages_refuse():
    with pytest.raises(AttributeError):
        LBRTorqueCommand().joint_positions = seven()
    with pytest.raises(AssertionError):
        LBRTorqueCommand().torque = [0.0] * 6
