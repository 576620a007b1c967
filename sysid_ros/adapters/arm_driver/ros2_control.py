"""Parameters of ``arm_driver`` for an arm under ros2_control, and what builds its loop in the loop's own process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from sysid_ros.adapters.arm_driver.kortex import KortexParameters
from sysid_ros.adapters.joint_link import LinkSetup, RosJointLink
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopSettings
from sysid_ros.drivers.ros2_control.arm import Ros2ControlArm
from sysid_ros.drivers.ros2_control.build import Ros2ControlSetup, build_monitor_loop, build_ros2_control_loop
from sysid_ros.drivers.ros2_control.monitor import MonitorLoop
from sysid_ros.drivers.ros2_control.settings import Interface, Ros2ControlSettings, TorqueCommand
from sysid_ros.drivers.truth import load_payload
from sysid_ros.drivers.velocity_estimate import VelocitySource, require_velocity_error
from sysid_ros.ros.parameters import parameter

_SETTINGS = Ros2ControlSettings()
MONITOR_MODES = ("monitor_only", "emulated_monitor_only")
"""Modes in which nothing is ever commanded."""
ROS2_CONTROL_MODES = ("ros2_control", "emulated_ros2_control", *MONITOR_MODES)
"""Modes in which the arm publishes its own joint states."""


@dataclass(frozen=True)
class Ros2ControlParameters(KortexParameters):
    """How the topics of an arm are used."""

    arm_interface: str = parameter(
        _SETTINGS.interface.value, "",
        "ros2_control: messages of the arm: forward_command_controller: JointState and Float64MultiArray; lbr_fri_idl: "
        "LBRState, LBRTorqueCommand", choices=tuple(i.value for i in Interface), read_only=True,
    )  # fmt: skip
    joint_states_topic: str = parameter(
        "", "", "ros2_control: topic of the states; empty for joint_states, or state with lbr_fri_idl", read_only=True
    )
    effort_controller: str = parameter(
        "effort_controller", "", "ros2_control: name of the controller that takes effort commands", read_only=True
    )
    command_topic: str = parameter(
        "", "", "ros2_control: topic of the commands; empty for <effort_controller>/commands, or command/torque with "
        "lbr_fri_idl", read_only=True,
    )  # fmt: skip
    command_joints: tuple[str, ...] = parameter(
        (), "", "ros2_control: joints in the order of the commands, the controller's parameter joints; empty asks it",
        read_only=True,
    )  # fmt: skip
    update_rate: float = parameter(
        1.0 / _SETTINGS.period, "Hz", "ros2_control: rate of states and commands, that of the controller manager",
        lower=50.0, upper=2000.0, read_only=True,
    )  # fmt: skip
    torque_command: str = parameter(
        _SETTINGS.torque_command.value, "",
        "ros2_control: what an effort command is: full: the whole torque; overlay_gravity, overlay: the arm adds "
        "gravity, or gravity and Coriolis torques; has to be set", choices=tuple(t.value for t in TorqueCommand),
        read_only=True,
    )  # fmt: skip
    hold_controller: str = parameter(
        "", "", "ros2_control: controller of the controller manager that holds the arm when this driver does not; "
        "empty: this driver holds it as long as it runs", read_only=True,
    )  # fmt: skip
    controller_manager: str = parameter(
        "controller_manager", "", "ros2_control: name of the controller manager", read_only=True
    )

    def connection_settings(self, late_limit: float) -> Ros2ControlSettings:
        """The settings of the connection that these parameters stand for.

        Args:
            late_limit: Time between two states beyond the period at which the arm brakes [s].
        """
        return replace(
            _SETTINGS,
            interface=Interface(self.arm_interface),
            period=1.0 / self.update_rate,
            velocity=self.state_velocity,
            torque_command=TorqueCommand(self.torque_command),
            command_joints=self.command_joints,
            connect_timeout=self.connect_timeout,
            session_timeout=self.session_timeout,
            late_limit=late_limit,
            wait_time=self.cycle_timeout,
        )

    @property
    def state_velocity(self) -> VelocitySource:
        """Where velocities come from: an LBRState has none."""
        is_lbr = Interface(self.arm_interface) is Interface.LBR
        return VelocitySource.POSITIONS if is_lbr else VelocitySource(self.velocity_source)

    def states_topic(self, resolve: Callable[[str], str]) -> str:
        """Full name of the topic of the states; ``resolve`` makes it of a relative one."""
        is_lbr = Interface(self.arm_interface) is Interface.LBR
        return resolve(self.joint_states_topic or ("state" if is_lbr else "joint_states"))

    def link_setup(self, robot: RobotModel, resolve: Callable[[str], str], is_commanded: bool) -> LinkSetup:
        """Names for the link, fully resolved."""
        is_lbr = Interface(self.arm_interface) is Interface.LBR
        commands = self.command_topic or ("command/torque" if is_lbr else f"{self.effort_controller}/commands")
        return LinkSetup(
            joint_names=robot.joint_names,
            interface=Interface(self.arm_interface),
            namespace=resolve("x").rsplit("/", 1)[0] or "/",
            states=self.states_topic(resolve),
            commands=resolve(commands) if is_commanded else "",
            effort_controller=resolve(self.effort_controller),
            hold_controller=self.hold_controller if is_commanded else "",
            controller_manager=resolve(self.controller_manager),
        )

    def build_ros2_control(
        self, robot: RobotModel, controller: str, loop: LoopSettings, late_limit: float, resolve: Callable[[str], str],
        is_monitor: bool,
    ) -> Callable[[], ControlLoop | MonitorLoop]:  # fmt: skip
        """What builds the loop in its own process.

        Raises:
            SysidError: What is set cannot work; says what.
        """
        connection = self.connection_settings(late_limit)
        if connection.velocity is VelocitySource.POSITIONS:
            require_velocity_error(robot, connection.period)
        load_payload(robot, self.controller_load)
        link = self.link_setup(robot, resolve, is_commanded=not is_monitor)
        link.require_packages()
        setup = Ros2ControlSetup(self.model, controller, connection, self.controller_load, loop)
        if is_monitor:
            return partial(build_monitor_loop, setup, partial(RosJointLink, link))
        Ros2ControlArm(robot, connection, partial(RosJointLink, link))  # refuses what it cannot work with
        return partial(build_ros2_control_loop, setup, partial(RosJointLink, link))
