"""The Kinova Gen3 over Kortex as an arm of the torque loop, which paces it.

``command`` keeps the torque and the next ``read``, at the next deadline of the loop, sends it in the one request of
that cycle; the reply is what ``read`` returns. So requests leave the computer at the deadlines however long the
controller computes, and exactly one period lies between a measurement and the torque computed from it.
"""

from __future__ import annotations

import time

import numpy as np

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.robot import KORTEX, RobotModel
from sysid_ros.drivers.arm import Arm, ArmNotConnected, ArmState, Array, Pacing, require_finite_command
from sysid_ros.drivers.kinova_kortex.client import KortexClient
from sysid_ros.drivers.kinova_kortex.enums import KortexConnectionLost, KortexServerError
from sysid_ros.drivers.kinova_kortex.exchange import CyclicExchange
from sysid_ros.drivers.kinova_kortex.settings import KortexSettings, VelocitySource
from sysid_ros.drivers.kinova_kortex.takeover import hand_back, take_over
from sysid_ros.drivers.pacing import Pacer
from sysid_ros.drivers.velocity_estimate import VelocityEstimate, require_velocity_error


class KortexArm(Arm):
    """One Gen3.

    Args:
        robot: Kinematics, limits, sensors; its ``effort_sign`` turns the vendor's torques into joint direction.
        settings: Set-up of the client.

    Raises:
        ParameterOutOfRange: The robot is none of Kinova's, or its settings promise better velocities than can be had.
    """

    pacing = Pacing.CLIENT

    def __init__(self, robot: RobotModel, settings: KortexSettings | None = None):
        self.settings = settings or KortexSettings()
        if robot.protocol != KORTEX:
            raise ParameterOutOfRange("robot", robot.name, "one with 'protocol: kortex' in its settings")
        self.robot, self.joint_names, self.period = robot, robot.joint_names, self.settings.period
        has_velocity = self.settings.velocity is VelocitySource.FEEDBACK
        self._velocity_plan = None if has_velocity else require_velocity_error(robot, self.period)
        self._client: KortexClient | None = None
        self._exchange: CyclicExchange | None = None
        self._first: ArmState | None = None
        self._problem: str | None = None
        self._handed_back_at = -np.inf
        self._closed_health: dict[str, object] = {}

    def connect(self) -> None:
        """See :meth:`Arm.connect`: opens sessions, checks gravity, takes the torque over, holds the arm for a moment.

        Raises:
            TakeoverRefused: The arm or its base is not as it should be.
            GravityCheckFailed: The measured torques do not balance gravity.
            KortexServerError: The base refuses a step.
            KortexConnectionLost: It cannot be reached, or does not answer any more.
        """
        self._disconnect()
        self._client = self._open()
        plan = self._velocity_plan
        velocity = None if plan is None else VelocityEstimate(plan, self.period)
        exchange = CyclicExchange(self.robot, self.settings, self._client, self._make_pacer(), velocity)
        self._exchange = exchange
        try:
            self._client.open()
            exchange.restart_clock()
            take_over(exchange)
        except BaseException as error:
            reason = exchange.find_break() if isinstance(error, KortexServerError) else None
            self.close()
            if reason is not None:  # it refuses because the connection is gone
                raise KortexConnectionLost(f"{reason}; {error}") from None
            raise
        self._first = exchange.latest

    def read(self) -> ArmState:
        """See :meth:`Arm.read`: the one exchange of this cycle."""
        exchange = self._require("read()")
        if self._first is not None:
            state, self._first = self._first, None
            return state
        return exchange.read()

    def command(self, tau: Array) -> None:
        """See :meth:`Arm.command`. It is sent at the beginning of the next cycle."""
        exchange = self._require("command()")
        if not exchange.is_commanding:
            raise ArmNotConnected("command()")
        require_finite_command(tau, self.joint_names)
        exchange.torque = np.array(tau, dtype=float)

    def health(self) -> dict[str, object]:
        """See :meth:`Arm.health`."""
        if self._exchange is None:
            return self._closed_health
        return {**self._exchange.health(), "last problem of handing back": self._problem or "none"}

    def stop(self, reason: str) -> None:
        """See :meth:`Arm.stop`. The base servoes again and holds the arm; it can still be read."""
        exchange = self._exchange
        if exchange is not None:
            if exchange.is_low_level:
                self._problem = hand_back(exchange)
                self._handed_back_at = time.monotonic()
            exchange.end_commanding()
        self._first = None

    def close(self) -> None:
        """See :meth:`Arm.close`."""
        self.stop("closed")
        time.sleep(max(0.0, self._handed_back_at + self.settings.close_time - time.monotonic()))
        self._disconnect()

    @property
    def exchange(self) -> CyclicExchange:
        """The cyclic exchange of the present connection.

        Raises:
            ArmNotConnected: There is none.
        """
        return self._require("the exchange")

    def _open(self) -> KortexClient:
        return KortexClient(self.settings, self.n)

    def _make_pacer(self) -> Pacer:
        return Pacer(self.period, catches_up=False)

    def _disconnect(self) -> None:
        if self._client is not None:
            self._closed_health = self.health()
            self._client.close()
            self._client = self._exchange = None

    def _require(self, call: str) -> CyclicExchange:
        if self._exchange is None:
            raise ArmNotConnected(call)
        return self._exchange
