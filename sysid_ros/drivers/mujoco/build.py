"""The simulated arm as ``mode:=mock`` starts it: its hidden truth, its payload, the controller that drives it."""

from __future__ import annotations

from dataclasses import dataclass

from sysid_ros.core.control import build_controller
from sysid_ros.core.model.loader import load_robot
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopSettings
from sysid_ros.drivers.mujoco.arm import MujocoArm, MujocoSettings
from sysid_ros.drivers.mujoco.simulation import Noise
from sysid_ros.drivers.truth import draw_truth, load_payload


@dataclass(frozen=True)
class MockSetup:
    """How a simulated arm is set up.

    Attributes:
        model: Robot, as :func:`load_robot` takes it.
        controller: Name of the controller.
        truth: How the arm's own parameters are chosen, one of :data:`TRUTHS`.
        payload: Name of a payload in ``config/payloads.yaml``, or ``none``.
        noise: Name of a :class:`Noise`.
        seed: Seed of truth and noise.
        loop: Settings of the loop.
    """

    model: str = "kinova_gen3_2f85"
    controller: str = "robust"
    truth: str = "random"
    payload: str = "none"
    noise: str = Noise.UNIFORM.value
    seed: int = 0
    loop: LoopSettings = LoopSettings()


def build_mock_loop(setup: MockSetup) -> ControlLoop:
    """Builds the loop of a simulated arm; picklable, so that it can run in a process of its own.

    Raises:
        SysidError: The setup names something that does not exist.
    """
    robot = load_robot(setup.model)
    arm = MujocoArm(
        robot,
        theta=draw_truth(robot, setup.truth, setup.seed),
        payload=load_payload(robot, setup.payload),
        settings=MujocoSettings(noise=Noise(setup.noise), seed=setup.seed),
    )
    return ControlLoop(arm, build_controller(setup.controller, robot), robot, setup.loop)
