"""The KUKA LBR over FRI as an arm of the torque loop: the controller's messages pace it, torques answer them."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

import numpy as np

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.robot import EffortMeaning, JointLimits, RobotModel
from sysid_ros.drivers.arm import Arm, ArmError, ArmLost, ArmState, Array, Pacing, require_finite_command
from sysid_ros.drivers.kuka_fri.codec import FriCodec
from sysid_ros.drivers.kuka_fri.link import SEQUENCE_MODULUS, FriLink, is_message
from sysid_ros.drivers.kuka_fri.messages import JOINTS, CommandMode, ControlMode, Monitoring, Quality, SessionState
from sysid_ros.drivers.kuka_fri.settings import FriSettings, PositionSent, TorqueSetup
from sysid_ros.drivers.kuka_fri.takeover import (
    check_compensation,
    measure_at_rest,
    wait_for_controller,
    wait_for_torque_mode,
)
from sysid_ros.drivers.network import LARGEST_GAP, UdpEndpoint
from sysid_ros.drivers.takeover import hold_and_probe
from sysid_ros.drivers.velocity_estimate import VelocityEstimate, require_velocity_error

_STEP = 1.5
"""Largest step of the position sent, in steps at the speed limit: a measurement that jumps must not jump through."""


class SentPosition:
    """The positions to send, cycle by cycle.

    With an offset it lies beside the measured position, towards the middle of the joint's range. The side changes only
    where the joint is on the other side of the middle by more than half the distance to its limit: so it does not
    chatter, and a position within the limits is never sent beyond them.
    """

    def __init__(self, limits: JointLimits, settings: FriSettings):
        is_bounded = np.isfinite(limits.q_lower) & np.isfinite(limits.q_upper)
        lower, upper = (np.where(is_bounded, q, 0.0) for q in (limits.q_lower, limits.q_upper))
        self._middle = 0.5 * (lower + upper)
        self._turn = np.where(is_bounded, 0.25 * (upper - lower), np.inf)
        has_offset = settings.position is PositionSent.OFFSET
        self._offset = np.minimum(settings.position_offset, self._turn) if has_offset else np.zeros(len(lower))
        self._step = _STEP * limits.v_max * settings.period
        self._side = np.zeros(len(lower))
        self._sent = np.zeros(len(lower))

    def restart(self, q: Array) -> None:
        """Begin at the position last sent to the controller, (n,) [rad]."""
        self._sent = np.array(q)
        self._side = np.where(q > self._middle, -1.0, 1.0)

    def follow(self, q: Array) -> Array:
        """Return the position to send, (n,) [rad], for a measured one (n,) [rad]."""
        is_far = self._side * (q - self._middle) > self._turn
        self._side = np.where(is_far, -self._side, self._side)
        target = q + self._side * self._offset
        self._sent = self._sent + np.clip(target - self._sent, -self._step, self._step)
        return self._sent


_WAIT_PERIODS = 2.0
"""How long ``read`` waits for a message before it reports a missed cycle."""


class FriArm(Arm):
    """One LBR.

    Args:
        robot: Kinematics, limits, sensors; its ``effort_sign`` turns the vendor's torques into joint direction.
        settings: Set-up of the client.

    Raises:
        ParameterOutOfRange: The robot is none of KUKA's, or its settings promise better velocities than can be had.
    """

    pacing = Pacing.CONTROLLER

    def __init__(self, robot: RobotModel, settings: FriSettings | None = None):
        self.settings = settings or FriSettings()
        if robot.n != JOINTS:
            raise ParameterOutOfRange("robot", f"{robot.name} with {robot.n} joints", "an LBR; FRI arms have 7 joints")
        if robot.sensors.effort_meaning is not EffortMeaning.LINK_SIDE:
            raise ParameterOutOfRange("sensors.effort_meaning", robot.sensors.effort_meaning.value, "link_side for FRI")
        self.joint_names = robot.joint_names
        self.period = self.settings.period
        self._robot = robot
        self._velocity = VelocityEstimate(require_velocity_error(robot, self.period), self.period)
        self._sign = robot.sensors.effort_sign
        self._compensation = ArmDynamics(robot, robot.theta_nominal, self.settings.controller_load)
        self._position = SentPosition(robot.limits, self.settings)
        self._link: FriLink | None = None
        self._last: ArmState | None = None
        self._is_commanding = False
        self._epoch_ns = time.time_ns() - time.monotonic_ns()  # this machine's clock may be set later
        self._offset_ns: int | None = None
        self._sequence: int | None = None
        self._missed = self._late_before = 0
        self._first: ArmState | None = None
        self._closed_health: dict[str, object] = {}
        self._wait = self.settings.wait_time or _WAIT_PERIODS * self.period

    def connect(self) -> None:
        """See :meth:`Arm.connect`: monitors, tests gravity, waits for torque mode, holds the arm for a moment.

        Raises:
            TakeoverRefused: The controller, its application or the arm is not as set up.
        """
        self._is_commanding = False
        self._first = None
        if self._link is None:
            self._link = FriLink(self.settings, self._open())
        try:
            self._take_over(self._link)
        except Exception:
            self.close()
            raise

    def read(self) -> ArmState:
        """See :meth:`Arm.read`."""
        link = self._require_link("read()")
        if self._first is not None:
            state, self._first = self._first, None
            return state
        message = link.next(self._wait)
        while message is not None and message.state.is_commanding and not link.session.is_answer_due:
            message = link.next(self._wait)  # with a receive multiplier the others only count
        if message is not None and self._is_commanding:
            self._require_torque_mode(link, message)
        if message is None or message.q is None:  # in IDLE a message need not say where the arm is
            return self._miss_cycle(link)
        state = self._measure(link, message)
        if not self._is_commanding and not message.state.is_commanding:
            link.answer()  # keeps the session alive; in a commanding state a timeout ends the motion
        return state

    def command(self, tau: Array) -> None:
        """See :meth:`Arm.command`. Sends nothing where the last ``read`` brought no message: FRI answers only."""
        link, last = self._require_link("command()"), self._last
        if not self._is_commanding or last is None:
            raise ArmError("command() needs a connected arm; call connect() first")
        require_finite_command(tau, self.joint_names)
        is_full = self.settings.setup is TorqueSetup.FULL
        added = 0.0 if is_full else self._compensation.torque(last.q, last.v, np.zeros(JOINTS))
        link.answer(self._position.follow(last.q), tau - added)

    def stop(self, reason: str) -> None:
        """See :meth:`Arm.stop`. A last command that balances gravity, then none: the controller ends the motion.

        Later messages within the session are answered again as soon as it only monitors.
        """
        if self._is_commanding and self._link is not None and self._last is not None:
            is_overlay = self.settings.setup is TorqueSetup.OVERLAY
            balance = np.zeros(JOINTS) if is_overlay else self._compensation.gravity(self._last.q)
            self._link.answer(self._position.follow(self._last.q), balance)
        self._is_commanding = False

    def close(self) -> None:
        """See :meth:`Arm.close`."""
        self.stop("closed")
        if self._link is not None:
            self._late_before += self._link.late_answers
            self._closed_health = {**self._link.health(), "session state": "not connected"}
            self._link.close()
        self._link = None

    def health(self) -> dict[str, object]:
        """See :meth:`Arm.health`: state of the session and counters of the network, the last session's if closed."""
        return self._closed_health if self._link is None else self._link.health()

    @property
    def late_answers(self) -> int:
        """See :class:`Arm`; answers to messages of all states are counted, from the first connection on."""
        return self._late_before + (0 if self._link is None else self._link.late_answers)

    def _open(self) -> UdpEndpoint:
        is_from_peer = partial(is_message, FriCodec(self.settings.version))
        return UdpEndpoint(None, self.settings.port, self.settings.robot_ip or None, is_from_peer=is_from_peer)

    # Taking over

    def _take_over(self, link: FriLink) -> None:
        settings, robot = self.settings, self._robot
        wait_for_controller(link, settings)
        position, effort = measure_at_rest(link, settings, robot)
        if settings.setup is TorqueSetup.OVERLAY:
            modelled = self._compensation.gravity(position)
            check_compensation(link, settings, robot, effort, modelled)
        message = wait_for_torque_mode(link, settings)
        self._offset_ns = self._sequence = self._last = None
        self._missed = 0
        self._velocity.reset()
        state = self._measure(link, message)
        self._position.restart(state.q)
        self._is_commanding = True
        # The loop answers the message that the test ends with: between two answers there must be no pause.
        question = (
            f"does the controller compensate gravity as the set-up '{settings.setup.value}' says, are stiffness and "
            "damping zero, is the sign of the torques right?"
        )
        self._first = hold_and_probe(self, robot, settings, state, effort, question)

    # Messages

    def _require_torque_mode(self, link: FriLink, message: Monitoring) -> None:
        if message.state is not SessionState.COMMANDING_ACTIVE:
            self._is_commanding = False
            link.answer()
            reasons = "".join(f"; {reason}" for reason in message.stops)
            raise ArmLost(f"the session fell back to {message.state.name} (quality {message.quality.name}){reasons}")
        is_impedance = message.control_mode in (None, ControlMode.JOINT_IMPEDANCE)
        if message.command_mode is not CommandMode.TORQUE or not is_impedance:
            self._is_commanding = False
            raise ArmLost("; ".join(("the controller has left torque mode", *message.stops)))

    def _measure(self, link: FriLink, message: Monitoring) -> ArmState:
        q, tau, now_ns = message.q, message.tau, self._epoch_ns + time.monotonic_ns()
        if q is None or tau is None:  # the session lets no such message through but in IDLE
            raise ArmLost("a message without positions or torques")
        stamp = now_ns if message.stamp_ns is None else message.stamp_ns
        if self._offset_ns is None:
            self._offset_ns = now_ns - stamp
        stamp += self._offset_ns
        lost = self._count_lost(message)
        missed, self._missed = max(0, int(np.ceil(lost)) - self._missed), 0
        velocity = self._velocity.update(stamp, q, is_next=lost == 0.0)
        self._last = ArmState(
            stamp, q, velocity, self._sign * tau, True, self._faults(link, message), missed,
            self._velocity.is_exact,
        )  # fmt: skip
        return self._last

    def _count_lost(self, message: Monitoring) -> float:
        """Count periods between this message and the last used one, lost or overtaken [-]."""
        last, self._sequence = self._sequence, message.sequence
        if last is None:
            return 0.0
        steps = min((message.sequence - last) % SEQUENCE_MODULUS, LARGEST_GAP)  # counters may have begun again
        return steps / max(1, message.receive_multiplier) - 1.0

    def _faults(self, link: FriLink, message: Monitoring) -> tuple[str, ...]:
        if not self._is_commanding:
            return ()
        faults = list(message.stops)
        if message.quality < Quality.GOOD:
            faults.append(f"the connection's quality is {message.quality.name}")
        delay = link.arrivals.latest - self.period
        if delay > self.settings.late_limit:
            faults.append(f"a message came {1e3 * delay:.1f} ms late")
        return tuple(faults)

    def _miss_cycle(self, link: FriLink) -> ArmState:
        self._missed += 1
        age = link.arrivals.age
        if self._last is None or age > self.settings.session_timeout:
            self._is_commanding = False
            raise ArmLost(f"no message of the controller for {age:.3f} s ({link.describe_timeout()})")
        return replace(self._last, ok=False, missed=0)

    def _require_link(self, call: str) -> FriLink:
        if self._link is None:
            raise ArmError(f"{call} needs a connected arm; call connect() first")
        return self._link
