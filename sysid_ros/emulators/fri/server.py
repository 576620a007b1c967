"""The emulated controller built from plain values, and on its socket in real time."""

from __future__ import annotations

import time
from collections.abc import Callable

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import FRI
from sysid_ros.drivers.kuka_fri.messages import JOINTS, SessionState
from sysid_ros.drivers.mujoco.simulation import load_payload
from sysid_ros.drivers.network import Address, UdpEndpoint
from sysid_ros.drivers.pacing import Pacer
from sysid_ros.emulators.fri.controller import ControllerSettings, FriController
from sysid_ros.emulators.fri.inner_loop import InnerLoop, InnerLoopSettings
from sysid_ros.emulators.program import CyclicServer, EmulatorSetup, require_real_time_factor


def build_controller(
    setup: EmulatorSetup,
    settings: ControllerSettings | None = None,
    inner: InnerLoopSettings | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> FriController:
    """Build the emulated controller with its arm; its clock starts now."""
    robot = load_robot(f"kuka_{setup.robot}" if setup.robot in _SHORT_NAMES else setup.robot)
    if robot.n != JOINTS or robot.protocol != FRI:
        raise ParameterOutOfRange("robot", robot.name, "one with seven joints and 'protocol: fri' in its settings")
    loop = InnerLoop(setup.build_arm(robot, time.time_ns()), load_payload(robot, setup.load), inner)
    return FriController(loop, settings, report)


_SHORT_NAMES = ("lbr_iiwa7", "lbr_iiwa14", "lbr_med7", "lbr_med14")
"""Names of KUKA's, for people who do not use the rest of this package."""
_SLICE = 0.005
"""Patience is spent in slices [s]: where this computer stands still meanwhile, only one of them is lost."""


class EmulatorServer(CyclicServer[FriController]):
    """Sends messages to one client and takes its answers.

    Args:
        controller: The session and its arm.
        client: Address and port of the client; answers of others are ignored.
        bind: Own address and port; port 0 takes any.
        patience: Time that a cycle waits for the answer to the message before it [s]. 0 is a real controller. More lets
            simulated time slip instead of ending the motion on a busy computer. May be changed at any time.
        real_time_factor: Speed of simulated time [-].
        is_paced: Whether cycles keep to the clock; without, and with patience, they run as fast as the client answers.

    Raises:
        ArmError: The own port cannot be opened.
    """

    def __init__(
        self,
        controller: FriController,
        client: Address,
        bind: Address = ("127.0.0.1", 0),
        patience: float = 0.0,
        real_time_factor: float = 1.0,
        is_paced: bool = True,
    ):
        super().__init__(controller, controller.arm)
        self._endpoint = UdpEndpoint(*bind, peer=client, is_from_peer=lambda _: True)
        self.patience = patience
        require_real_time_factor(real_time_factor)
        period = controller.settings.send_period / real_time_factor
        self._pacer = Pacer(period) if is_paced else None
        self._was_answered = False

    @property
    def address(self) -> Address:
        """Own address and port."""
        return self._endpoint.address

    @property
    def is_in_use(self) -> bool:
        """Whether a client commands the arm."""
        return self._controller.state.is_commanding

    def cycle(self) -> None:
        """Wait for the next deadline, take the answers, and send the next message."""
        if self._pacer is not None:
            self._pacer.wait()
        self._call_waiting()
        answers = self._endpoint.receive_all()
        if not answers and self.patience and self._was_answered and self._controller.is_answer_expected:
            answers = self._wait_for_answer()
        self._was_answered = bool(answers) or (self._was_answered and not self._controller.is_answer_expected)
        # KUKA's example clients end on IDLE, so it is not sent; a session begins with MONITORING_WAIT.
        datagram = self._controller.begin(answers)
        if self._controller.state is not SessionState.IDLE:
            self._endpoint.send(datagram)
        self._controller.finish()  # while the client computes

    def _wait_for_answer(self) -> list[bytes]:
        spent, first = 0.0, None
        while first is None and spent < self.patience and self._controller.is_answer_expected:
            first = self._endpoint.receive(min(_SLICE, self.patience - spent))
            spent += _SLICE
            self._call_waiting()
        return [] if first is None else [first, *self._endpoint.receive_all()]

    def close(self) -> None:
        """Close the socket."""
        self._endpoint.close()
