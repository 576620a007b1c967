"""The torque loop of a Gen3, as ``mode:=hardware`` and ``mode:=emulated`` start it."""

from __future__ import annotations

from dataclasses import dataclass

from sysid_ros.core.control import build_controller
from sysid_ros.core.model.loader import load_robot
from sysid_ros.drivers.kinova_kortex.arm import KortexArm
from sysid_ros.drivers.kinova_kortex.settings import KortexSettings
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopSettings


@dataclass(frozen=True)
class KortexSetup:
    """How the loop of a Gen3 is set up.

    Attributes:
        model: Robot, as :func:`load_robot` takes it.
        controller: Name of the control law.
        kortex: The client.
        loop: Settings of the loop.
    """

    model: str
    controller: str = "robust"
    kortex: KortexSettings = KortexSettings()
    loop: LoopSettings = LoopSettings()


def build_kortex_loop(setup: KortexSetup) -> ControlLoop:
    """Builds the loop; picklable, so that it can run in a process of its own. Nothing is connected yet.

    Raises:
        SysidError: The setup names something that does not exist, or the robot's settings do not fit Kortex.
    """
    robot = load_robot(setup.model)
    arm = KortexArm(robot, setup.kortex)
    controller = build_controller(setup.controller, robot)
    loop = ControlLoop(arm, controller, robot, setup.loop)
    loop.warm_up()
    return loop
