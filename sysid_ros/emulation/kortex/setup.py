"""An emulated base from plain values, as the command line and the node give them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import KORTEX
from sysid_ros.drivers.mujoco.build import draw_truth, load_payload
from sysid_ros.emulation.kortex.base import BaseSettings, KortexBase
from sysid_ros.emulation.kortex.plant import EmulatedArm, PlantSettings


@dataclass(frozen=True)
class EmulatorSetup:
    """What is emulated.

    Attributes:
        robot: Robot, as :func:`load_robot` takes it.
        truth: How the arm's own parameters are chosen, see :data:`sysid_ros.drivers.mujoco.build.TRUTHS`.
        payload: What it holds: a name from ``config/payloads.yaml``, a mass [kg], or ``none``.
        base: The base.
        plant: The simulation.
    """

    robot: str = "kinova_gen3_2f85"
    truth: str = "random"
    payload: str = "none"
    base: BaseSettings = field(default_factory=BaseSettings)
    plant: PlantSettings = field(default_factory=PlantSettings)


def build_base(setup: EmulatorSetup, report: Callable[[str], None] = lambda _: None) -> KortexBase:
    """Builds the emulated base with its arm.

    Args:
        setup: What is emulated.
        report: Called with a sentence at every change of state.

    Raises:
        SysidError: The setup names something that does not exist, or a robot that is none of Kinova's.
    """
    robot = load_robot(setup.robot)
    if robot.protocol != KORTEX:
        raise ParameterOutOfRange("robot", robot.name, "one with 'protocol: kortex' in its settings")
    truth, payload = draw_truth(robot, setup.truth, setup.plant.seed), load_payload(robot, setup.payload)
    return KortexBase(EmulatedArm(robot, truth, payload, setup.plant), setup.base, report)
