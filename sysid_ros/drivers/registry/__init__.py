"""All drivers of arms in one table: from mode and protocol to the arm, and from the arm to its loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control import build_controller
from sysid_ros.core.model.calibrated import require_same_arm
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import FRI, KORTEX, RobotModel
from sysid_ros.drivers.arm import Arm
from sysid_ros.drivers.kinova_kortex.arm import KortexArm
from sysid_ros.drivers.kuka_fri.arm import FriArm
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopSettings
from sysid_ros.drivers.modes import Mode
from sysid_ros.drivers.mujoco.arm import MockSettings, build_mock_arm
from sysid_ros.drivers.ros2_control.arm import Ros2ControlArm
from sysid_ros.drivers.ros2_control.monitor import MonitoredArm, MonitorLoop


class Driver(Enum):
    """Ways to reach an arm."""

    MOCK = "mock"
    FRI = FRI
    KORTEX = KORTEX
    ROS2_CONTROL = "ros2_control"
    MONITOR = "monitor_only"


ARMS: Mapping[Driver, Callable[..., Arm]] = {
    Driver.MOCK: build_mock_arm,
    Driver.FRI: FriArm,
    Driver.KORTEX: KortexArm,
    Driver.ROS2_CONTROL: Ros2ControlArm,
    Driver.MONITOR: MonitoredArm,
}
"""Builders of the arm of a driver, from robot and connection settings; over topics, from the link too."""
_BY_MODE = {
    Mode.MOCK: Driver.MOCK,
    Mode.ROS2_CONTROL: Driver.ROS2_CONTROL,
    Mode.EMULATED_ROS2_CONTROL: Driver.ROS2_CONTROL,
    Mode.MONITOR_ONLY: Driver.MONITOR,
    Mode.EMULATED_MONITOR_ONLY: Driver.MONITOR,
}
_BY_PROTOCOL = {FRI: Driver.FRI, KORTEX: Driver.KORTEX}


def find_driver(robot: RobotModel, mode: Mode) -> Driver:
    """Find the driver of a robot in a mode.

    Raises:
        ParameterOutOfRange: There is none.
    """
    driver = _BY_MODE.get(mode) or _BY_PROTOCOL.get(robot.protocol)
    if driver is None:
        raise ParameterOutOfRange(
            f"mode of {robot.name}",
            mode.value,
            "mock, ros2_control or monitor_only, as its settings name no protocol of its controller (fri for "
            "KUKA LBR, kortex for Kinova Gen3)",
        )
    return driver


@dataclass(frozen=True)
class LoopSetup:
    """Data from which the loop of an arm is built; picklable, so that it can be built in a process of its own."""

    model: str
    """Robot, as :func:`load_robot` takes it."""
    driver: Driver
    connection: tuple[object, ...]
    """Settings of the connection, and over topics the opener of the link: the arguments of :data:`ARMS` beside the
    robot."""
    controller: str = "robust"
    loop: LoopSettings = LoopSettings()
    serial_number: str = ""

    @classmethod
    def mock(cls, model: str = "kinova_gen3_2f85", controller: str = "robust", **settings: Any) -> LoopSetup:
        """Set up a simulated arm with :class:`MockSettings`."""
        return cls(model, Driver.MOCK, (MockSettings(**settings),), controller)

    def build_arm(self, robot: RobotModel) -> Arm:
        """Make the arm, not yet connected.

        Raises:
            SysidError: Robot and settings do not match, or the calibration is of another arm.
        """
        require_same_arm(robot, self.serial_number)
        arm = ARMS[self.driver](robot, *self.connection)
        arm.serial_number = self.serial_number
        return arm


def build_loop(setup: LoopSetup) -> ControlLoop | MonitorLoop:
    """Build the loop of an arm; nothing is connected yet."""
    robot = load_robot(setup.model)
    arm = setup.build_arm(robot)
    if isinstance(arm, MonitoredArm):
        return MonitorLoop(arm, robot, setup.loop)
    loop = ControlLoop(arm, build_controller(setup.controller, robot, arm.period), robot, setup.loop)
    loop.warm_up()
    return loop
