"""The parameters of ``arm_driver``: which arm it is for and how it is reached; they build its loop in its own process.

Parameters of a Kinova have the names of ros2_kortex where it has them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sysid_ros.adapters.joint_link import LinkSetup, RosJointLink
from sysid_ros.core.certification.authentication import read_secret
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.control import CONTROLLERS
from sysid_ros.core.control.settings import ROBUST
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.model.robot_files import ELASTIC
from sysid_ros.drivers.arm import InjectedFaults
from sysid_ros.drivers.kinova_kortex.settings import KortexSettings, VelocitySource
from sysid_ros.drivers.kuka_fri.settings import FriSettings
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopSettings
from sysid_ros.drivers.modes import TRUTHS, Mode, Noise
from sysid_ros.drivers.mujoco.arm import MockSettings
from sysid_ros.drivers.mujoco.simulation import load_payload
from sysid_ros.drivers.registry import Driver, LoopSetup, build_loop, find_driver
from sysid_ros.drivers.ros2_control.monitor import MonitorLoop
from sysid_ros.drivers.ros2_control.settings import Interface, Ros2ControlSettings
from sysid_ros.ros.parameters import parameter, parameter_like, parameters_from
from sysid_ros.ros.robot import FixedSceneParameters, RobotParameters

_SHARED = ("connect_timeout", "session_timeout", "late_limit", "wait_time")
"""Settings of every connection."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""Addresses of this computer, where an emulated controller is."""

BuildLoop = Callable[[], ControlLoop | MonitorLoop]


@dataclass(frozen=True)
class ConnectionParameters(RobotParameters):
    """Which arm it is and how it is reached; this has to agree with the application on the arm's controller."""

    mode: str = parameter("mock", choices=tuple(one.value for one in Mode), read_only=True)
    """Which arm: mock: simulated; hardware: a real one over FRI or Kortex; ros2_control: any that takes effort
    commands; monitor_only: any, nothing is commanded; emulated, emulated_...: the same, emulated."""
    controller: str = parameter("robust", choices=CONTROLLERS, read_only=True)
    """Control law."""
    accept_unproven_controller: bool = parameter(False, read_only=True)
    """On a real arm: accept a control law without a proven tracking bound. No motion is ever certified for one."""
    accept_rigid_joints: bool = parameter(False, read_only=True)
    """On a real arm: accept that its joints are taken for rigid, with gains that make elastic ones oscillate."""
    loop: LoopSettings = parameters_from(LoopSettings, read_only=True)
    robot_ip: str = parameter_like(FriSettings, "robot_ip", read_only=True)
    serial_number: str = parameter("", read_only=True)
    """Serial number of the arm, compared with its calibration before it is taken over; a Kinova reports its
    own, which must be this one; empty: not stated."""
    connect_timeout: float = parameter_like(FriSettings, "connect_timeout", read_only=True)
    session_timeout: float = parameter_like(FriSettings, "session_timeout", read_only=True)
    cycle_timeout: float = parameter_like(FriSettings, "wait_time", read_only=True)
    """How long a cycle waits for the arm; 0 for two periods, of a Kinova three quarters of one."""
    velocity_source: str = parameter_like(KortexSettings, "velocity", read_only=True)
    """Kinova, ros2_control: feedback: velocities the arm sends, within velocity_error of the robot file; positions:
    computed."""
    controller_load: str = parameter("none", read_only=True)
    """LBR, ros2_control: load that the arm itself compensates: a name from config/payloads.yaml, a mass [kg], a mass at
    X Y Z [kg, m], or none."""
    fri: FriSettings = parameters_from(
        FriSettings,
        rename={
            "version": "fri_version",
            "port": "port_id",
            "period": "send_period",
            "setup": "torque_setup",
            "position": "position_sent",
        },
        note="LBR: ",
        computed=("robot_ip", *_SHARED),
        read_only=True,
    )
    kortex: KortexSettings = parameters_from(
        KortexSettings,
        rename={"stamps": "stamp_source"},
        note="Kinova: ",
        computed=("robot_ip", "velocity", "session_inactivity_timeout", "connection_inactivity_timeout", *_SHARED),
        read_only=True,
    )
    password_file: str = parameter("", read_only=True)
    """Kinova: file with the password, which only its owner may read; used in place of password, which is readable
    on the whole ROS network; empty: password is used."""
    session_inactivity_timeout_ms: int = parameter(60000, "ms", lower=1000, upper=3600000, read_only=True)
    """Kinova: timeout after which the base ends a session without requests."""
    connection_inactivity_timeout_ms: int = parameter(2000, "ms", lower=100, upper=60000, read_only=True)
    """Kinova: timeout after which the base takes a connection without requests for dead."""
    ros2_control: Ros2ControlSettings = parameters_from(
        Ros2ControlSettings,
        rename={"interface": "arm_interface"},
        note="ros2_control: ",
        computed=("period", "velocity", *_SHARED),
        read_only=True,
    )
    update_rate: float = parameter(1000.0, "Hz", lower=50.0, upper=2000.0, read_only=True)
    """ros2_control: rate of states and commands: the update rate of the controller manager."""
    joint_states_topic: str = parameter("", read_only=True)
    """ros2_control: topic of the states; empty for joint_states, state with lbr_fri_idl, or sample_broadcaster/samples
    with sample_broadcaster."""
    command_topic: str = parameter("", read_only=True)
    """ros2_control: topic of the commands; empty for <effort_controller>/commands, or command/torque with
    lbr_fri_idl."""
    effort_controller: str = parameter("effort_controller", read_only=True)
    """ros2_control: name of the controller that takes effort commands."""
    hold_controller: str = parameter("", read_only=True)
    """ros2_control: controller of the controller manager that holds the arm when this driver does not; empty: this
    driver holds it as long as it runs."""
    controller_manager: str = parameter("controller_manager", read_only=True)
    """ros2_control: name of the controller manager."""
    truth: str = parameter("random", choices=TRUTHS, read_only=True)
    """mock: how the arm's own parameters are chosen in their box."""
    payload: str = parameter("none", read_only=True)
    """mock: payload of config/payloads.yaml the arm holds at the start, or none."""
    noise: str = parameter("uniform", choices=tuple(one.value for one in Noise), read_only=True)
    """mock: how the sensors use their allowed errors."""
    seed: int = parameter(0, "-", lower=0, upper=2**31 - 1, read_only=True)
    """mock: seed of truth and noise."""
    gripper: str = parameter("", read_only=True)
    """mock: state of the gripper, as the settings of the robot name it, such as open; empty: any of them."""

    @property
    def kind(self) -> Mode:
        """The mode."""
        return Mode(self.mode)

    @property
    def is_surely_simulated(self) -> bool:
        """Whether no real arm can move: simulated in the loop, or emulated on this computer.

        Over topics a real one may be at the other end, and so it may at another address.
        """
        is_emulated_here = self.kind is Mode.EMULATED and self.robot_ip in ("", *_LOOPBACK)
        return self.kind is Mode.MOCK or is_emulated_here

    @property
    def _shared(self) -> dict[str, Any]:
        return {
            "connect_timeout": self.connect_timeout,
            "session_timeout": self.session_timeout,
            "late_limit": self.loop.late_limit,
            "wait_time": self.cycle_timeout,
        }

    @property
    def fri_settings(self) -> FriSettings:
        """Settings of the FRI client; an emulated controller is on this computer unless an address is given."""
        address = self.robot_ip or ("127.0.0.1" if self.kind is Mode.EMULATED else "")
        return replace(self.fri, robot_ip=address, **self._shared)

    @property
    def kortex_settings(self) -> KortexSettings:
        """Settings of the Kortex client; an emulated base is on this computer unless an address is given."""
        return replace(
            self.kortex,
            robot_ip=self.robot_ip or ("127.0.0.1" if self.kind is Mode.EMULATED else self.kortex.robot_ip),
            password=self._password,
            velocity=VelocitySource(self.velocity_source),
            session_inactivity_timeout=1e-3 * self.session_inactivity_timeout_ms,
            connection_inactivity_timeout=1e-3 * self.connection_inactivity_timeout_ms,
            **self._shared,
        )

    @property
    def _password(self) -> str:
        if not self.password_file:
            return self.kortex.password
        try:
            return read_secret(Path(self.password_file).expanduser())
        except SysidError as error:
            allowed = f"a file that only its owner may read ({error})"
            raise ParameterOutOfRange("parameter 'password_file'", self.password_file, allowed) from error

    @property
    def ros2_control_settings(self) -> Ros2ControlSettings:
        """Settings of the connection over topics; an LBRState has no velocities."""
        velocity = VelocitySource.POSITIONS if self._is_lbr_fri_idl else VelocitySource(self.velocity_source)
        return replace(self.ros2_control, period=1.0 / self.update_rate, velocity=velocity, **self._shared)

    @property
    def _is_lbr_fri_idl(self) -> bool:
        return self.ros2_control.interface is Interface.LBR

    def states_topic(self, resolve: Callable[[str], str]) -> str:
        """Return the full name of the topic of the states; ``resolve`` makes it of a relative one."""
        names = {Interface.LBR: "state", Interface.BROADCASTER: "sample_broadcaster/samples"}
        return resolve(self.joint_states_topic or names.get(self.ros2_control.interface, "joint_states"))

    def link_setup(self, robot: RobotModel, resolve: Callable[[str], str]) -> LinkSetup:
        """Return the names for the link, fully resolved."""
        commands = self.command_topic or (
            "command/torque" if self._is_lbr_fri_idl else f"{self.effort_controller}/commands"
        )
        return LinkSetup(
            joint_names=robot.joint_names,
            interface=self.ros2_control.interface,
            namespace=resolve("x").rsplit("/", 1)[0] or "/",
            states=self.states_topic(resolve),
            commands=None if self.kind.is_monitor else resolve(commands),
            effort_controller=resolve(self.effort_controller),
            hold_controller=None if self.kind.is_monitor else self.hold_controller or None,
            controller_manager=resolve(self.controller_manager),
        )

    def build(self, robot: RobotModel, resolve: Callable[[str], str] = lambda name: f"/{name}") -> BuildLoop:
        """Return the setup that builds the loop of the arm in its own process.

        Args:
            robot: The arm.
            resolve: Makes the full name of a relative topic.

        Raises:
            ParameterOutOfRange: There is no driver for this arm in this mode.
            SysidError: The settings cannot work; the message names the fault.
        """
        is_unproven = self.controller != ROBUST and not self.kind.is_monitor
        if is_unproven and not self.is_surely_simulated and not self.accept_unproven_controller:
            allowed = (
                f"{ROBUST} where a real arm may move: no other law has a proven tracking bound; "
                "accept_unproven_controller=true"
            )
            raise ParameterOutOfRange("parameter 'controller'", self.controller, f"{allowed} accepts that")
        driver = find_driver(robot, self.kind)
        loop = replace(self.loop, allows_uncertified=is_unproven and self.is_surely_simulated)
        setup = LoopSetup(
            self.model, driver, self._connection(driver, robot, resolve), self.controller, loop, self.serial_number
        )
        setup.build_arm(robot)  # refuses unusable settings
        # Over topics an emulated controller is started with the driver; at another address a real arm may answer.
        is_emulated = self.is_surely_simulated or self.kind is Mode.EMULATED_ROS2_CONTROL
        moves_real_arm = not is_emulated and not self.kind.is_monitor
        if moves_real_arm and robot.elasticity is None and not self.accept_rigid_joints:
            allowed = (
                "an arm with elastic joints where a real one moves, as gains of rigid ones make real gears oscillate: "
                f"'{self.model}{ELASTIC}' where its settings say how elastic they are, or elasticity.is_elastic in "
                "settings of your own; accept_rigid_joints=true accepts rigid ones"
            )
            raise ParameterOutOfRange("parameter 'model'", self.model, allowed)
        return partial(build_loop, setup)

    def _connection(self, driver: Driver, robot: RobotModel, resolve: Callable[[str], str]) -> tuple[object, ...]:
        if driver is Driver.MOCK:
            return (MockSettings(self.truth, self.payload, self.noise, self.seed, self.gripper),)
        if driver is Driver.KORTEX:
            return (self.kortex_settings,)
        load = load_payload(robot, self.controller_load)
        if driver is Driver.FRI:
            return (replace(self.fri_settings, controller_load=load),)
        link = self.link_setup(robot, resolve)
        link.require_packages()
        return replace(self.ros2_control_settings, controller_load=load), partial(RosJointLink, link)


@dataclass(frozen=True)
class ArmDriverParameters(ConnectionParameters, FixedSceneParameters):
    """Parameters of the node ``arm_driver``. Nothing moves in a scene that contains less than they say."""

    autostart: bool = parameter(True, read_only=True)
    """Take the arm over as soon as the node runs."""
    batch_rate: float = parameter(50.0, "Hz", lower=5.0, upper=200.0, read_only=True)
    """How often a batch of samples is published and heartbeats are passed on."""
    joint_state_rate: float = parameter(50.0, "Hz", lower=1.0, upper=1000.0, read_only=True)
    """How often joint_states is published; at most the rate of samples."""
    status_rate: float = parameter(10.0, "Hz", lower=1.0, upper=50.0, read_only=True)
    """How often the status is published; at most the rate of batches."""
    real_time_priority: bool = parameter(False, read_only=True)
    """mock, emulated: ask for real-time priority, as the loop of a real arm always does; it starves the planner where
    processors are few."""
    commander_timeout: float = parameter(0.5, "s", lower=0.0, upper=10.0, read_only=True)
    """Silence on ~/heartbeat after which a moving arm brakes; 0 needs no heartbeat."""
    allow_unauthenticated: bool = parameter(False, read_only=True)
    """Without a key (SYSID_ROS_KEY_FILE): accept unsigned certificates where the driver can prove the plan. Any
    program on the network can then move the arm; otherwise nothing moves without a key."""
    faults: InjectedFaults = parameters_from(InjectedFaults, prefix="fault_", note="mock: ")

    def check(self) -> None:
        """Refuse a heartbeat that this node, which passes one on with each batch, could not keep."""
        super().check()
        if self.commander_timeout and self.commander_timeout < 0.2:
            raise ParameterOutOfRange("parameter 'commander_timeout' [s]", self.commander_timeout, "0, or 0.2 to 10")
        shortest = 2.0 / self.batch_rate
        if self.loop.heartbeat_timeout < shortest:
            allowed = f"{shortest:g} to 10: heartbeats come with the batches, at a batch_rate of {self.batch_rate:g} Hz"
            raise ParameterOutOfRange("parameter 'heartbeat_timeout' [s]", self.loop.heartbeat_timeout, allowed)
