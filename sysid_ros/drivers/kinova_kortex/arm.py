"""The Kinova Gen3 over Kortex as an arm of the torque loop, which paces it.

``command`` keeps the torque; the next ``read``, at the next deadline of the loop, sends it in the one request of that
cycle and returns its reply. So requests leave the computer at the deadlines however long the controller computes, and
exactly one period lies between a measurement and the torque computed from it.

A resting arm is taken over and handed back step by step, in Kinova's order. Any mismatch ends it before a motion, or
within a few milliradians. Between the calls over TCP, each of which may take 25 ms, the cyclic service goes on at 1
kHz: an actuator under torque control must not be left alone.
"""

from __future__ import annotations

import time
from typing import TypeVar

import numpy as np

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.calibrated import require_same_arm
from sysid_ros.core.model.robot import KORTEX, RobotModel
from sysid_ros.drivers.arm import Arm, ArmError, ArmState, Array, Pacing, require_finite_command
from sysid_ros.drivers.kinova_kortex.client import KortexClient
from sysid_ros.drivers.kinova_kortex.enums import ArmState as KortexState
from sysid_ros.drivers.kinova_kortex.enums import (
    ControlMode,
    Function,
    KortexConnectionLost,
    KortexServerError,
    ServoingMode,
    SubError,
)
from sysid_ros.drivers.kinova_kortex.exchange import CyclicExchange, describe
from sysid_ros.drivers.kinova_kortex.frame import parse
from sysid_ros.drivers.kinova_kortex.messages import decode_actuators, decode_arm_state, decode_serial_number
from sysid_ros.drivers.kinova_kortex.settings import KortexSettings, VelocitySource
from sysid_ros.drivers.kinova_kortex.tcp import TcpCall, wait_for
from sysid_ros.drivers.pacing import Pacer
from sysid_ros.drivers.takeover import HoldingTorque, RestMonitor, TakeoverRefused, probe
from sysid_ros.drivers.velocity_estimate import VelocityEstimate, require_velocity_error

T = TypeVar("T")
_HOLD_STIFFNESS = 2.0
"""Stiffness meanwhile, in torque limits per radian: an error of the measured torque moves the arm by milliradians."""
_SLOW_ANSWER = 0.08
"""An answer that takes longer may be why the base has left low-level servoing; Kinova's takes 25 ms [s]."""


def take_over(exchange: CyclicExchange) -> None:
    """Take the arm over: check it, measure it at rest, switch to torque control, hold it for a moment.

    Raises:
        TakeoverRefused: It is another arm, has faults, moves, or does not stay where it is.
        KortexServerError: The base refuses a step.
        KortexConnectionLost: It does not answer.
    """
    exchange.devices = _prepare(exchange)
    q, effort = _measure_at_rest(exchange)
    holding = HoldingTorque(exchange.robot, q, effort, _HOLD_STIFFNESS)
    _enter_torque_mode(exchange, holding)

    def cycle(extra: float) -> Array:
        _hold(exchange, holding, extra)
        return exchange.latest.q

    probe(exchange.robot, exchange.settings, exchange.settings.period, holding, cycle)


def _require_stated_arm(exchange: CyclicExchange, stated: str) -> str:
    """Compare the serial number of the base with the stated one and the calibration's; return it, or the stated one."""
    call = exchange.client.start(Function.GET_SERIAL_NUMBER, decode_serial_number)
    try:
        told = wait_for(call, exchange.settings.connect_timeout, lambda _: exchange.monitor())
    except KortexServerError as error:
        if error.sub_code not in (SubError.UNSUPPORTED_SERVICE, SubError.UNSUPPORTED_METHOD):
            raise
        told = ""
    if stated and told and told != stated:
        raise TakeoverRefused(
            f"the base says that the serial number of its arm is {told}, but {stated} was stated (serial_number); "
            f"give serial_number:={told} if this is the arm you mean, or connect to the other one"
        )
    require_same_arm(exchange.robot, told or stated)
    return told or stated


def _prepare(exchange: CyclicExchange) -> tuple[int, ...]:
    """Clear the arm's faults and let the base hold it; return the device ids of its actuators, from base to flange."""
    client, n = exchange.client, exchange.robot.n

    def ask(call: TcpCall[T]) -> T:
        return wait_for(call, exchange.settings.connect_timeout, lambda _: exchange.monitor())

    count = ask(client.start(Function.GET_ACTUATOR_COUNT, lambda data: parse("ActuatorInformation", data).count))
    devices = ask(client.start(Function.READ_ALL_DEVICES, decode_actuators))
    if count != n or len(devices) != n:
        raise TakeoverRefused(
            f"the arm has {count} actuators (devices {', '.join(map(str, devices)) or 'none'}), "
            f"{exchange.robot.name} has {n}; choose the model that fits"
        )
    ask(client.start(Function.CLEAR_FAULTS))
    ask(client.set_servoing_mode(ServoingMode.SINGLE_LEVEL))
    for _ in range(round(exchange.settings.connect_timeout / exchange.settings.period)):
        feedback = exchange.monitor()
        if feedback is not None:
            break
    else:
        raise TakeoverRefused(f"no usable feedback came ({exchange.client.counts.rejected or 'no answer over UDP'})")
    state = ask(client.start(Function.GET_ARM_STATE, decode_arm_state))
    if state is not KortexState.SERVOING_READY or any(feedback.faults):
        raise TakeoverRefused(f"the arm is not ready: {describe(feedback, exchange.robot.joint_names, state)}")
    return devices


def _measure_at_rest(exchange: CyclicExchange) -> tuple[Array, Array]:
    """Return mean positions (n,) [rad] and efforts in joint direction (n,) [Nm] while the base holds the arm."""
    settings = exchange.settings
    rest = RestMonitor(exchange.robot, settings.rest_time, settings.period)
    cycles = round((settings.connect_timeout + settings.rest_time) / settings.period)
    for _ in range(cycles):
        if exchange.monitor() is not None and rest.add(exchange.latest.q, exchange.latest.tau):
            return rest.check()
    if not rest.is_full:
        raise TakeoverRefused("the base does not answer over UDP")
    raise TakeoverRefused(f"{rest.find_motion()}")


def _enter_torque_mode(exchange: CyclicExchange, holding: HoldingTorque) -> None:
    """Switch to low-level servoing, then to torque control actuator by actuator."""
    timeout = exchange.settings.call_timeout
    periods = 0

    def wait_without_commands(_: float) -> None:
        nonlocal periods
        exchange.wait_a_period()
        periods += 1

    wait_for(exchange.client.set_servoing_mode(ServoingMode.LOW_LEVEL), timeout, wait_without_commands)
    exchange.begin_commanding()
    try:
        while not _hold(exchange, holding):
            pass
    except KortexServerError as error:
        if periods * exchange.settings.period < _SLOW_ANSWER:
            raise
        raise TakeoverRefused(
            f"the base answered after {periods * exchange.settings.period:.2f} s that it is in low-level servoing, and "
            f"left it again meanwhile, for no commands may be sent before ({error}); is the TCP connection slow?"
        ) from None
    for joint, device in enumerate(exchange.devices):
        # An actuator follows the last torque the base has received, which is zero before the first command.
        while not _hold(exchange, holding):
            pass
        call = exchange.client.set_control_mode(ControlMode.TORQUE, device)
        # From the request on: the actuator may follow torques before its answer is here.
        exchange.is_torque[joint] = True
        wait_for(call, timeout, lambda _: _hold(exchange, holding))


def _hold(exchange: CyclicExchange, holding: HoldingTorque, extra: float = 0.0) -> bool:
    """Do a cycle that keeps the arm in place, ``extra`` [Nm] on the last joint; return whether the base answered."""
    is_answered = exchange.cycle(holding.compute(exchange.latest.q, exchange.latest.v, extra))
    question = "is the sign of the torques right, is the arm touched?"
    holding.require_still(exchange.latest.q, exchange.settings.hold_drift, question)
    return is_answered


def hand_back(exchange: CyclicExchange) -> str | None:
    """Switch to position control actuator by actuator, then let the base servo again; return the failure, or None.

    Never raises.
    """
    holding = HoldingTorque(exchange.robot, exchange.latest.q, exchange.torque, _HOLD_STIFFNESS)
    is_cycling = exchange.is_commanding

    def meanwhile(remaining: float) -> None:
        nonlocal is_cycling
        if not is_cycling:
            exchange.wait_a_period()
            return
        try:
            exchange.cycle(holding.compute(exchange.latest.q, exchange.latest.v))
        except ArmError:
            is_cycling = False  # the base has left low-level servoing, or does not answer; the calls go on

    timeout = exchange.settings.call_timeout
    problem: str | None = None
    try:
        for joint, device in enumerate(exchange.devices):
            wait_for(exchange.client.set_control_mode(ControlMode.POSITION, device), timeout, meanwhile)
            exchange.is_torque[joint] = False
    except ArmError as error:
        problem = str(error)
    if problem is not None and exchange.client.overdue > timeout:
        return problem
    try:
        wait_for(exchange.client.set_servoing_mode(ServoingMode.SINGLE_LEVEL), timeout, meanwhile)
    except ArmError as error:
        problem = str(error) if problem is None else problem
    return problem


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
        self._exchange: CyclicExchange | None = None
        self._first: ArmState | None = None
        self._problem: str | None = None
        self._handed_back_at = -np.inf
        self._closed_health: dict[str, object] = {}

    def connect(self) -> None:
        """See :meth:`Arm.connect`: opens sessions, checks gravity, takes the torque over, holds the arm for a moment.

        Raises:
            TakeoverRefused: The arm or its base is not as it should be.
            KortexServerError: The base refuses a step.
            KortexConnectionLost: It cannot be reached, or does not answer any more.
        """
        self._disconnect()
        client, plan = self._open(), self._velocity_plan
        velocity = None if plan is None else VelocityEstimate(plan, self.period)
        exchange = self._exchange = CyclicExchange(self.robot, self.settings, client, self._make_pacer(), velocity)
        try:
            client.open()
            exchange.restart_clock()
            self.serial_number = _require_stated_arm(exchange, self.serial_number)
            take_over(exchange)
        except BaseException as error:
            reason = client.find_break() if isinstance(error, KortexServerError) else None
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
            raise ArmError("command() needs a connected arm; call connect() first")
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

    def _open(self) -> KortexClient:
        return KortexClient(self.settings, self.n)

    def _make_pacer(self) -> Pacer:
        return Pacer(self.period)

    def _disconnect(self) -> None:
        if self._exchange is not None:
            self._closed_health = self.health()
            self._exchange.client.close()
            self._exchange = None

    def _require(self, call: str) -> CyclicExchange:
        if self._exchange is None:
            raise ArmError(f"{call} needs a connected arm; call connect() first")
        return self._exchange
