"""Taking a resting Gen3 over and handing it back, step by step, in the order Kinova gives.

Whatever does not fit ends it before anything has moved, or within a few milliradians. Between the calls over TCP, each
of which may take 25 ms, the cyclic service goes on at 1 kHz: an actuator that is under torque control already must not
be left alone.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from sysid_ros.drivers.arm import ArmError, Array
from sysid_ros.drivers.kinova_kortex.enums import ArmState, ControlMode, KortexServerError, ServoingMode, name_faults
from sysid_ros.drivers.kinova_kortex.link import Call, T, wait_for
from sysid_ros.drivers.kinova_kortex.messages import Feedback
from sysid_ros.drivers.takeover import (
    HOLD_DAMPING,
    REST_SPREAD,
    TakeoverRefused,
    check_gravity,
    probe_last_joint,
    require_holdable,
)

if TYPE_CHECKING:
    from sysid_ros.drivers.kinova_kortex.arm import KortexArm

_HOLD_STIFFNESS = 2.0
"""Stiffness meanwhile, in torque limits per radian: an error of the measured torque moves the arm by milliradians."""
_SLOW_ANSWER = 0.08
"""An answer that takes longer may be why the base has left low-level servoing; Kinova's takes 25 ms [s]."""


class HoldingTorque:
    """Keeps the arm where it is with the torques that were measured to balance it, a little stiffness and damping.

    Args:
        arm: Limits.
        q: Where, (n,) [rad].
        effort: Torques that balance it there, in joint direction, (n,) [Nm].
    """

    def __init__(self, arm: KortexArm, q: Array, effort: Array):
        self.q, self._effort = np.array(q), np.array(effort)
        self._limit = arm.robot.limits.tau_max
        self._stiffness = _HOLD_STIFFNESS * self._limit
        self._damping = HOLD_DAMPING * self._limit / arm.robot.limits.v_max

    def compute(self, q: Array, v: Array) -> Array:
        """The torque, (n,) [Nm]."""
        tau = self._effort + self._stiffness * (self.q - q) - self._damping * v
        return np.clip(tau, -self._limit, self._limit)


def prepare(arm: KortexArm) -> tuple[int, ...]:
    """Checks which arm it is, clears its faults and lets the base hold it.

    Returns:
        Device ids of the actuators, from base to flange.

    Raises:
        TakeoverRefused: It is another arm, or has faults that cannot be cleared.
        KortexServerError: The base refuses a call.
        KortexConnectionLost: It does not answer.
    """
    link, n = arm.link, arm.n

    def ask(call: Call[T]) -> T:
        return wait_for(call, arm.settings.connect_timeout, lambda _: arm.monitor())

    count = ask(link.count_actuators())
    devices = ask(link.find_actuators())
    if count != n or len(devices) != n:
        raise TakeoverRefused(
            f"the arm has {count} actuators (devices {', '.join(map(str, devices)) or 'none'}), "
            f"{arm.robot.name} has {n}; choose the model that fits"
        )
    ask(link.clear_faults())
    ask(link.set_servoing_mode(ServoingMode.SINGLE_LEVEL))
    for _ in range(round(arm.settings.connect_timeout / arm.period)):
        feedback = arm.monitor()
        if feedback is not None:
            break
    else:
        raise TakeoverRefused(f"no usable feedback came ({arm.link.counts.rejected or 'no answer over UDP'})")
    state = ask(link.ask_arm_state())
    if state is not ArmState.SERVOING_READY or any(feedback.faults):
        raise TakeoverRefused(f"the arm is not ready: {describe(feedback, arm.joint_names, state)}")
    return devices


def measure_at_rest(arm: KortexArm) -> tuple[Array, Array]:
    """Measures the arm while the base holds it, and compares it with its model.

    Returns:
        Mean positions (n,) [rad] and efforts in joint direction (n,) [Nm].

    Raises:
        TakeoverRefused: The arm moves, feedback stays away, or torque limits are too low to hold it.
        GravityTestFailed: The efforts do not balance gravity.
    """
    length = max(10, round(arm.settings.rest_time / arm.period))
    positions: deque[Array] = deque(maxlen=length)
    efforts: deque[Array] = deque(maxlen=length)
    for _ in range(round(arm.settings.connect_timeout / arm.period) + length):
        if arm.monitor() is None:
            continue
        positions.append(arm.latest.q)
        efforts.append(arm.latest.tau)
        if len(positions) == length and np.ptp(positions, axis=0).max() <= REST_SPREAD:
            break
    else:
        if len(positions) < length:
            raise TakeoverRefused("the base does not answer over UDP")
        spread = np.ptp(positions, axis=0)
        joint = int(spread.argmax())
        raise TakeoverRefused(f"{arm.joint_names[joint]} moves: {spread[joint]:.4f} rad in {length * arm.period:g} s")
    q, effort = np.mean(positions, axis=0), np.mean(efforts, axis=0)
    check_gravity(arm.robot, q, effort)
    require_holdable(arm.robot, effort)
    return q, effort


def enter_torque_mode(arm: KortexArm, devices: tuple[int, ...], holding: HoldingTorque) -> None:
    """Low-level servoing, then torque control actuator by actuator.

    Raises:
        TakeoverRefused: The arm does not stay where it is.
        KortexServerError: The base refuses a step.
        KortexConnectionLost: It does not answer.
    """
    timeout = arm.settings.call_timeout
    periods = 0

    def wait_without_commands(_: float) -> None:
        nonlocal periods
        arm.wait_a_period()
        periods += 1

    wait_for(arm.link.set_servoing_mode(ServoingMode.LOW_LEVEL), timeout, wait_without_commands)
    arm.begin_commanding()
    try:
        hold(arm, holding)
    except KortexServerError as error:
        if periods * arm.period < _SLOW_ANSWER:
            raise
        raise TakeoverRefused(
            f"the base answered after {periods * arm.period:.2f} s that it is in low-level servoing, and left it again "
            f"meanwhile, for no commands may be sent before ({error}); is the TCP connection slow?"
        ) from None
    for joint, device in enumerate(devices):
        call = arm.link.set_control_mode(ControlMode.TORQUE, device)
        # From the request on: the actuator may follow torques before its answer is here.
        arm.is_torque[joint] = True
        wait_for(call, timeout, lambda _: hold(arm, holding))


def hold_and_probe(arm: KortexArm, holding: HoldingTorque) -> None:
    """Watches that the arm stays, and that a torque that rises slowly on the last joint moves it the right way.

    Raises:
        TakeoverRefused: The arm moves where it should not, or not the way it should.
    """
    settings, last = arm.settings, arm.n - 1
    cycles = round(settings.hold_time / arm.period)
    for _ in range(cycles):
        hold(arm, holding)
    if not settings.probe_torque:
        return

    def push(torque: float) -> float:
        hold(arm, holding, extra=torque)
        return float(arm.latest.q[last])

    probe_last_joint(arm.joint_names[last], settings.probe_torque * arm.robot.limits.tau_max[last], arm.period, push)
    for _ in range(cycles):
        hold(arm, holding)


def hold(arm: KortexArm, holding: HoldingTorque, extra: float = 0.0) -> None:
    """One cycle under torque control that keeps the arm where it is.

    Args:
        arm: The arm.
        holding: What keeps it.
        extra: Torque added to the last joint [Nm].

    Raises:
        TakeoverRefused: It has moved too far.
    """
    tau = holding.compute(arm.latest.q, arm.latest.v)
    tau[-1] += extra
    arm.cycle(tau)
    drift = np.abs(arm.latest.q - holding.q)
    joint = int(drift.argmax())
    if drift[joint] > arm.settings.hold_drift:
        raise TakeoverRefused(
            f"{arm.joint_names[joint]} moved by {drift[joint]:.4f} rad under the torque that balances it (allowed "
            f"{arm.settings.hold_drift:g} rad): is the sign of the torques right, is the arm touched?"
        )


def hand_back(arm: KortexArm, devices: tuple[int, ...]) -> str:
    """Position control actuator by actuator, then the base servoes again. Never raises.

    Returns:
        What went wrong; empty if nothing.
    """
    holding = HoldingTorque(arm, arm.latest.q, arm.last_torque)
    is_cycling = arm.is_commanding

    def meanwhile(remaining: float) -> None:
        nonlocal is_cycling
        if not is_cycling:
            arm.wait_a_period()
            return
        try:
            arm.cycle(holding.compute(arm.latest.q, arm.latest.v))
        except ArmError:
            is_cycling = False  # the base has left low-level servoing, or is silent; the calls go on

    timeout, problem = arm.settings.call_timeout, ""
    try:
        for joint, device in enumerate(devices):
            wait_for(arm.link.set_control_mode(ControlMode.POSITION, device), timeout, meanwhile)
            arm.is_torque[joint] = False
    except ArmError as error:
        problem = str(error)
    if problem and arm.link.silence > timeout:
        return problem
    try:
        wait_for(arm.link.set_servoing_mode(ServoingMode.SINGLE_LEVEL), timeout, meanwhile)
    except ArmError as error:
        problem = problem or str(error)
    return problem


def describe(feedback: Feedback, joint_names: tuple[str, ...], state: ArmState | None = None) -> str:
    """State and faults of the arm in words."""
    parts = [(state or feedback.state).name]
    parts += [f"{name}: {name_faults(bits)}" for name, bits in zip(joint_names, feedback.faults, strict=True) if bits]
    if feedback.base_faults:
        parts.append(f"base faults {feedback.base_faults:#x}")
    return ", ".join(parts)
