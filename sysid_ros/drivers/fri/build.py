"""The torque loop of an LBR, as ``mode:=hardware`` and ``mode:=emulated`` start it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sysid_ros.core.control import Controller, GravityPid, PidSettings, RobustController, RobustSettings
from sysid_ros.core.errors import ParameterOutOfRange
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.fri.arm import FriArm
from sysid_ros.drivers.fri.settings import FriSettings
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopSettings
from sysid_ros.drivers.mock import load_payload

_BANDWIDTH_PERIOD = 0.2
"""Bandwidth of the robust controller times period, as at 1 ms; more loses its phase margin to delay and hold [-]."""


@dataclass(frozen=True)
class FriSetup:
    """How the loop of an LBR is set up.

    Attributes:
        model: Robot, as :func:`load_robot` takes it.
        controller: Name of the control law.
        fri: The client.
        controller_load: Load that is configured on the controller: a name from ``config/payloads.yaml``, or ``none``.
        loop: Settings of the loop.
    """

    model: str
    controller: str = "robust"
    fri: FriSettings = FriSettings()
    controller_load: str = "none"
    loop: LoopSettings = LoopSettings()


def build_fri_loop(setup: FriSetup) -> ControlLoop:
    """Builds the loop; picklable, so that it can run in a process of its own. Nothing is connected yet.

    Raises:
        SysidError: The setup names something that does not exist, or the robot's settings do not fit FRI.
    """
    robot = load_robot(setup.model)
    load = load_payload(robot, setup.controller_load)
    arm = FriArm(robot, replace(setup.fri, controller_load=load))
    controller = build_control(setup.controller, robot, arm.period)
    loop = ControlLoop(arm, controller, robot, setup.loop)
    # The first evaluation takes milliseconds longer than all others, which FRI would count as missing answers.
    rest = np.zeros(robot.n)
    controller.compute(robot.home, rest, robot.home, rest, rest)
    controller.reset()
    return loop


def build_control(name: str, robot: RobotModel, period: float) -> Controller:
    """A control law with its default gains at the period of an arm.

    Its name tells the period, so no plan that was certified for another one is executed.

    Args:
        name: Name of the control law.
        robot: The arm.
        period: Time between two torques [s]; the delay may be as long.

    Raises:
        ParameterOutOfRange: There is no such law.
    """
    if name == "robust":
        bandwidth = min(RobustSettings().bandwidth, _BANDWIDTH_PERIOD / period)
        return RobustController(robot, RobustSettings(bandwidth=bandwidth, period=period, delay=period))
    if name == "gravity_pid":
        return GravityPid(robot, PidSettings(period=period))
    raise ParameterOutOfRange("controller", name, "one of robust, gravity_pid")
