"""The KUKA LBR over FRI as an arm of the torque loop: the controller's messages pace it, torques answer them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.robot import EffortMeaning, JointLimits, RobotModel
from sysid_ros.drivers.arm import Arm, ArmError, ArmLost, ArmState, Array, Pacing, require_finite_command
from sysid_ros.drivers.kuka_fri.codec import FriCodec
from sysid_ros.drivers.kuka_fri.link import SEQUENCE_MODULUS, FriLink, is_message
from sysid_ros.drivers.kuka_fri.messages import (
    JOINTS,
    CommandMode,
    ControlMode,
    Monitoring,
    OverlayType,
    Quality,
    SafetyState,
    SessionState,
)
from sysid_ros.drivers.kuka_fri.settings import FriSettings, PositionSent, TorqueSetup
from sysid_ros.drivers.network import LARGEST_GAP, UdpEndpoint
from sysid_ros.drivers.takeover import RestMonitor, TakeoverRefused, hold_and_probe
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
        """Take a resting arm over, step by step; any mismatch ends it before a motion."""
        settings, robot = self.settings, self._robot
        self._wait_for_controller(link)
        effort = self._measure_at_rest(link)
        message = self._wait_for_torque_mode(link)
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

    def _wait_for_controller(self, link: FriLink) -> None:
        """Wait until the controller monitors, at the right period, and answer it."""
        settings, before = self.settings, link.session.last
        message = self._follow(link, lambda m: m.state is not SessionState.IDLE)
        if message is None:
            if link.session.last is before:  # the state of the session is old, if there is one
                raise TakeoverRefused(
                    f"no message of an FRI {settings.version.value} controller came for {settings.connect_timeout:g} s "
                    f"({link.describe_timeout()}); is its application running, with this computer's address and port?"
                )
            name = link.session.state.name
            raise TakeoverRefused(f"the session stayed in {name}; restart the controller's application")
        if abs(message.period - settings.period) > 1e-9:
            raise TakeoverRefused(
                f"the controller wants a command every {1e3 * message.period:g} ms (send period "
                f"{1e3 * message.send_period:g} ms, receive multiplier {message.receive_multiplier}), this driver is "
                f"set up for {1e3 * settings.period:g} ms"
            )
        link.answer()

    def _measure_at_rest(self, link: FriLink) -> Array:
        """Measure the arm while its own controller holds it, and compare it with its model and compensation.

        Returns:
            Mean efforts in joint direction, (7,) [Nm].
        """
        settings, robot = self.settings, self._robot
        rest = RestMonitor(robot, settings.rest_time, settings.period)

        def rests(message: Monitoring) -> bool:
            return message.q is not None and message.tau is not None and rest.add(message.q, self._sign * message.tau)

        if self._follow(link, rests) is None:
            if not rest.is_full:
                raise TakeoverRefused(f"the controller sends no more messages ({link.describe_timeout()})")
            raise TakeoverRefused(f"{rest.find_motion()}")
        link.answer()
        position, effort = rest.check()
        message = link.session.last
        if settings.setup is not TorqueSetup.OVERLAY or message is None or message.tau_external is None:
            return effort
        # The external torque is the measured one less the torque of the controller's own model, so at rest the model's
        # gravity is the joint effort plus the external torque.
        compensated, modelled = effort + message.tau_external, self._compensation.gravity(position)
        joint, tolerance = int(np.abs(compensated - modelled).argmax()), settings.compensation_tolerance
        if abs(compensated[joint] - modelled[joint]) > tolerance:
            raise TakeoverRefused(
                f"the controller compensates {compensated[joint]:.2f} Nm of gravity in {robot.joint_names[joint]}, "
                f"this driver expects {modelled[joint]:.2f} Nm (allowed difference {tolerance:g} Nm); give it the load "
                "that is configured on the controller, or identify the arm first"
            )
        return effort

    def _wait_for_torque_mode(self, link: FriLink) -> Monitoring:
        """Mirror the interpolated position, with zero torque, until torques act."""

        def is_active(message: Monitoring) -> bool:
            if not message.state.is_commanding:
                return False
            if message.command_mode is not CommandMode.TORQUE or message.overlay is not OverlayType.JOINT:
                mode = CommandMode.NO_COMMAND if message.command_mode is None else message.command_mode
                raise TakeoverRefused(
                    f"the client command mode is {mode.name}; the controller's application has to overlay with "
                    "ClientCommandMode.TORQUE"
                )
            return message.state is SessionState.COMMANDING_ACTIVE

        message = self._follow(link, is_active, mirrors=True)
        if message is None:
            session = link.session
            raise TakeoverRefused(
                f"no COMMANDING_ACTIVE for {self.settings.connect_timeout:g} s, the session is in {session.state.name} "
                f"with quality {session.quality.name}; start the motion in the controller's application"
            )
        if message.control_mode is not ControlMode.JOINT_IMPEDANCE:
            name = "none" if message.control_mode is None else message.control_mode.name
            raise TakeoverRefused(f"the control mode is {name}; torques act under JOINT_IMPEDANCE only")
        return message

    def _follow(self, link: FriLink, is_done: Callable[[Monitoring], bool], mirrors: bool = False) -> Monitoring | None:
        """Answer every message until ``is_done``; that one is not answered yet.

        With ``mirrors``, messages of the commanding states are answered. If not, the controller goes back to
        monitoring, where it holds the arm; answered with zero torque in COMMANDING_ACTIVE, the arm would float and
        could sink.
        """
        deadline = time.monotonic() + self.settings.connect_timeout
        while (remaining := deadline - time.monotonic()) > 0.0:
            message = link.next(min(remaining, self.settings.session_timeout))
            if message is None:
                continue
            if message.safety not in (None, SafetyState.NORMAL_OPERATION):
                raise TakeoverRefused(f"a safety stop is in force ({message.safety.name})")
            if message.state.is_commanding and not mirrors:
                continue
            if is_done(message):
                return message
            link.answer()
        return None

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
