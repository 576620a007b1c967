"""An emulated controller from plain values, as the command line and the node give them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import FRI
from sysid_ros.drivers.kuka_fri.messages import JOINTS
from sysid_ros.drivers.mujoco.build import draw_truth, load_payload
from sysid_ros.emulation.fri.controller import ControllerSettings, FriController
from sysid_ros.emulation.fri.plant import EmulatedArm, PlantSettings


@dataclass(frozen=True)
class EmulatorSetup:
    """What is emulated.

    Attributes:
        robot: Robot, as :func:`load_robot` takes it; ``lbr_med7`` is ``kuka_lbr_med7``.
        truth: How the arm's own parameters are chosen, see :data:`sysid_ros.drivers.mujoco.build.TRUTHS`.
        payload: What it holds: a name from ``config/payloads.yaml``, a mass [kg], or ``none``.
        load: The same for the load that is configured on the controller.
        controller: The application.
        plant: The simulation.
    """

    robot: str = "kuka_lbr_med7"
    truth: str = "random"
    payload: str = "none"
    load: str = "none"
    controller: ControllerSettings = field(default_factory=ControllerSettings)
    plant: PlantSettings = field(default_factory=PlantSettings)


def build_controller(setup: EmulatorSetup, report: Callable[[str], None] = lambda _: None) -> FriController:
    """Builds the emulated controller with its arm; its clock starts now.

    Args:
        setup: What is emulated.
        report: Called with a sentence at every change of state.

    Raises:
        SysidError: The setup names something that does not exist, or a robot that is no LBR.
    """
    name = f"kuka_{setup.robot}" if setup.robot.startswith("lbr_") else setup.robot
    robot = load_robot(name)
    if robot.n != JOINTS or robot.protocol != FRI:
        raise ParameterOutOfRange("robot", robot.name, "one with seven joints and 'protocol: fri' in its settings")
    arm = EmulatedArm(
        robot,
        draw_truth(robot, setup.truth, setup.plant.seed),
        load_payload(robot, setup.payload),
        load_payload(robot, setup.load),
        setup.plant,
        time.time_ns(),
    )
    return FriController(arm, setup.controller, report)
