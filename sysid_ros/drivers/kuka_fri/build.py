"""The torque loop of an LBR, as ``mode:=hardware`` and ``mode:=emulated`` start it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sysid_ros.core.control import build_controller
from sysid_ros.core.model.loader import load_robot
from sysid_ros.drivers.kuka_fri.arm import FriArm
from sysid_ros.drivers.kuka_fri.settings import FriSettings
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopSettings
from sysid_ros.drivers.truth import load_payload


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
    controller = build_controller(setup.controller, robot, arm.period)
    loop = ControlLoop(arm, controller, robot, setup.loop)
    loop.warm_up()
    return loop
