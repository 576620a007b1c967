"""The loop of an arm under ros2_control, and that of an arm that is only monitored."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sysid_ros.core.control import build_controller
from sysid_ros.core.model.loader import load_robot
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopSettings
from sysid_ros.drivers.ros2_control.arm import Ros2ControlArm
from sysid_ros.drivers.ros2_control.monitor import MonitoredArm, MonitorLoop
from sysid_ros.drivers.ros2_control.settings import Ros2ControlSettings
from sysid_ros.drivers.ros2_control.states import OpenLink
from sysid_ros.drivers.truth import load_payload


@dataclass(frozen=True)
class Ros2ControlSetup:
    """How the loop is set up.

    Attributes:
        model: Robot, as :func:`load_robot` takes it.
        controller: Name of the control law.
        connection: The connection.
        controller_load: Load that the arm itself compensates: a name from ``config/payloads.yaml``, or ``none``.
        loop: Settings of the loop.
    """

    model: str
    controller: str = "robust"
    connection: Ros2ControlSettings = Ros2ControlSettings()
    controller_load: str = "none"
    loop: LoopSettings = LoopSettings()


def build_ros2_control_loop(setup: Ros2ControlSetup, open_link: OpenLink) -> ControlLoop:
    """Builds the loop of an arm that is commanded. Nothing is connected yet.

    Raises:
        SysidError: The setup names something that does not exist, or does not state what it has to.
    """
    robot = load_robot(setup.model)
    load = load_payload(robot, setup.controller_load)
    arm = Ros2ControlArm(robot, replace(setup.connection, controller_load=load), open_link)
    controller = build_controller(setup.controller, robot, arm.period)
    loop = ControlLoop(arm, controller, robot, setup.loop)
    loop.warm_up()
    return loop


def build_monitor_loop(setup: Ros2ControlSetup, open_link: OpenLink) -> MonitorLoop:
    """Builds the loop of an arm that is only monitored.

    Raises:
        SysidError: The setup names something that does not exist.
    """
    robot = load_robot(setup.model)
    return MonitorLoop(MonitoredArm(robot, setup.connection, open_link), robot, setup.loop)
