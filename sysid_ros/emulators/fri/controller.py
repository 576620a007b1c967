"""The session of an emulated controller: states, quality, refusals, and motion of the arm.

It uses no socket and no clock, so tests run it in lock-step: :meth:`FriController.begin` takes the datagrams since the
last cycle and returns the next message, :meth:`FriController.finish` lets the arm move. Rules that KUKA does not
publish are marked as this emulator's own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.kuka_fri.codec import FriCodec
from sysid_ros.drivers.kuka_fri.messages import (
    JOINTS,
    Command,
    CommandMode,
    ControlMode,
    DriveState,
    IoValue,
    Monitoring,
    OverlayType,
    Quality,
    SafetyState,
    SessionState,
)
from sysid_ros.drivers.modes import FriVersion
from sysid_ros.drivers.network import Arrival, InvalidFrame, SequenceMonitor
from sysid_ros.emulators.fri.inner_loop import InnerLoop, LbrState, Overlay
from sysid_ros.emulators.fri.ios import IoTable
from sysid_ros.emulators.plant import PERIOD
from sysid_ros.emulators.program import RefusalReporter


class LimitMonitor:
    """Compares an arm with the limits of its robot file. That it may not leave them is an own rule."""

    def __init__(self, robot: RobotModel):
        limits = robot.limits
        self._names = robot.joint_names
        self._bounds = np.concatenate([limits.q_upper, -limits.q_lower, limits.v_max])

    def find_broken(self, q: Array, v: Array) -> str | None:
        """Return the first limit, in words, that positions (n,) [rad] or velocities (n,) [rad/s] exceed; or None."""
        is_broken = np.concatenate([q, -q, np.abs(v)]) > self._bounds
        if not is_broken.any():
            return None
        kind, joint = divmod(int(is_broken.argmax()), len(self._names))
        value, unit = ((q, "deg"), (q, "deg"), (v, "deg/s"))[kind]
        limit = np.degrees(self._bounds[kind * len(self._names) + joint]) * (-1.0 if kind == 1 else 1.0)
        return f"{self._names[joint]} at {np.degrees(value[joint]):.1f} {unit}, its limit is {limit:.1f} {unit}"


WINDOW = 100
"""Number of answers that count."""
_THRESHOLDS = ((0.99, Quality.EXCELLENT), (0.9, Quality.GOOD), (0.5, Quality.FAIR))


class QualityMonitor:
    """Whether the last due answers came; ``answers`` are those."""

    def __init__(self) -> None:
        self.answers: deque[bool] = deque(maxlen=WINDOW)

    def note(self, is_answered: bool) -> None:
        """Count a due answer."""
        self.answers.append(is_answered)

    @property
    def quality(self) -> Quality:
        """The present quality; POOR until half a window has been counted."""
        seen = len(self.answers)
        share = sum(self.answers) / seen if seen >= WINDOW // 2 else 0.0
        return next((quality for limit, quality in _THRESHOLDS if share >= limit), Quality.POOR)


_MODULUS = 1 << 32
_MIRROR_TOLERANCE = 1e-3
"""How far the mirrored position may be from the interpolated one in COMMANDING_WAIT [rad]; own rule."""
_STEP_FACTOR = 3.0
"""Largest step of the commanded position, in steps at the speed limit; own rule."""
_CONTROL_MODES = {
    CommandMode.POSITION: ControlMode.POSITION,
    CommandMode.WRENCH: ControlMode.CARTESIAN_IMPEDANCE,
    CommandMode.TORQUE: ControlMode.JOINT_IMPEDANCE,
}


@dataclass(frozen=True)
class ControllerSettings:
    """The application on the emulated controller."""

    version: FriVersion = FriVersion.V1_15
    send_period: float = 0.002
    """Time between messages [s], a multiple of 1 ms."""
    receive_multiplier: int = 1
    """The client has to answer every how many messages."""
    command_mode: CommandMode = CommandMode.TORQUE
    start_time: float = 0.5
    """Time in MONITORING_READY until the motion is started [s]; infinite never starts it."""
    restart_time: float = 2.0
    """The same after a motion was ended by an error; infinite never starts it again."""
    wait_answers: int = 50
    """Good answers in COMMANDING_WAIT until commands act; own rule."""
    answer_time: float = 0.005
    """Longest time between two answers while torques act [s]."""
    joint_count: int = JOINTS
    """Number of joints the messages carry; another one than 7 is for tests of clients."""
    ios: tuple[IoValue, ...] = ()
    """Inputs and outputs it shares with the client, with the values they begin with."""

    def __post_init__(self) -> None:
        cycles = self.send_period / PERIOD
        if not 0.5 < cycles < 100.5 or abs(cycles - round(cycles)) > 1e-9:
            raise ParameterOutOfRange("send_period [s]", self.send_period, "0.001 to 0.1 in steps of 0.001")
        if not 1 <= self.receive_multiplier <= 100:
            raise ParameterOutOfRange("receive_multiplier", self.receive_multiplier, "1 to 100")
        if self.send_period * self.receive_multiplier > 0.01 + 1e-9:
            raise ParameterOutOfRange(
                "send_period times receive_multiplier [s]", self.send_period * self.receive_multiplier, "at most 0.01"
            )
        if self.command_mode not in _CONTROL_MODES:
            raise ParameterOutOfRange("command_mode", self.command_mode.name, "POSITION, WRENCH or TORQUE")


class FriController:
    """One session with one arm; ``report`` is called with a sentence at every change of state."""

    def __init__(
        self,
        inner: InnerLoop,
        settings: ControllerSettings | None = None,
        report: Callable[[str], None] = lambda _: None,
    ):
        self.settings = settings or ControllerSettings()
        self.inner, self.arm = inner, inner.arm
        self._codec = FriCodec(self.settings.version)
        self.ios = IoTable(self.settings.ios)
        self._report, self._refusals = report, RefusalReporter(report)
        self._cycles_per_message = round(self.settings.send_period / PERIOD)
        self._quality = QualityMonitor()
        self._is_pressed = False
        self._limits = LimitMonitor(self.arm.robot)
        self._step_limit = _STEP_FACTOR * self.arm.robot.limits.v_max * self.settings.send_period
        self.malformed = self.rejected = self.rejected_ios = 0
        self._cycles = 0
        self._state = inner.advance(Overlay(self.arm.q), self._cycles_per_message)
        self.restart()

    def restart(self) -> None:
        """Start the application again: counters from zero, IDLE, the arm held in place."""
        self.state = SessionState.IDLE
        self._sequence = -1
        self._sequences = SequenceMonitor()
        self._quality.answers.clear()
        self._held = self.arm.q
        self._command = Command(0, 0)
        self._since_answer = self._answers_in_wait = 0
        self._time_in_state = 0.0
        self._wait = self.settings.start_time
        self._is_beyond_limits = False
        self.last_error: str | None = None

    def press_emergency_stop(self, is_pressed: bool = True) -> None:
        """Let a safety stop come into force, or reset it."""
        self._is_pressed = is_pressed
        if is_pressed and self.state.is_commanding:
            self.end_motion("a safety stop is in force")

    def end_motion(self, reason: str) -> None:
        """Fall back to monitoring, where the controller holds the arm; the motion is started again later."""
        self.last_error = reason
        self._held = self.arm.q
        self._wait = self.settings.restart_time
        self._enter(SessionState.MONITORING_READY, f"the motion is ended: {reason}")

    def lose_quality(self) -> None:
        """Judge the connection bad from now on, until enough messages have been answered again."""
        self._quality.answers.extend([False] * WINDOW)

    @property
    def safety(self) -> SafetyState:
        """The safety stop in force; the level of a limit is an own rule."""
        if self._is_beyond_limits:
            return SafetyState.SAFETY_STOP_LEVEL_0
        return SafetyState.SAFETY_STOP_LEVEL_1 if self._is_pressed else SafetyState.NORMAL_OPERATION

    @property
    def quality(self) -> Quality:
        """Quality of the connection."""
        return self._quality.quality

    @property
    def is_answer_expected(self) -> bool:
        """Whether the latest message needs an answer; the client may have begun to count at any message."""
        return self.state is not SessionState.IDLE and self._since_answer + 1 >= self.settings.receive_multiplier

    def cycle(self, datagrams: Sequence[bytes]) -> bytes:
        """One send period: :meth:`begin` and :meth:`finish`."""
        message = self.begin(datagrams)
        self.finish()
        return message

    def begin(self, datagrams: Sequence[bytes]) -> bytes:
        """Begin a send period: judge the client's datagrams since the last one, and return the message of this moment.

        Its answer, if it comes before the next cycle, acts from then on.
        """
        command = self._newest(datagrams)
        if self.state is not SessionState.IDLE and self._sequence >= 0:
            self._judge(command)
        self._check_limits()
        self._change_state()
        self._sequence = (self._sequence + 1) % _MODULUS
        self._cycles += 1
        return self._codec.encode_monitoring(self._message(self._state))

    def finish(self) -> None:
        """Finish the period: the arm moves under the present command."""
        self._state = self.inner.advance(self._overlay(), self._cycles_per_message)
        self._time_in_state += self.settings.send_period

    # Judging answers

    def _newest(self, datagrams: Sequence[bytes]) -> Command | None:
        newest = None
        for datagram in datagrams:
            try:
                command = self._codec.decode_command(datagram)
            except InvalidFrame as error:
                self.malformed += 1
                self._refuse(f"a datagram: {error}")
                continue
            if self._sequences.judge(command.sequence) is not Arrival.OLD:
                newest = command
        return newest

    def _judge(self, command: Command | None) -> None:
        self._since_answer += 1
        fault = None if command is None else self._find_fault(command)
        if fault is not None:
            self.rejected += 1
            self._refuse(f"an answer in {self.state.name}: {fault}")
            if self.state.is_commanding:
                self.end_motion(fault)
            command = None
        if command is not None:
            self._since_answer = 0
            self._set_outputs(command)
            if self.state is SessionState.COMMANDING_ACTIVE:
                self._command = command
            elif self.state is SessionState.COMMANDING_WAIT:
                self._answers_in_wait += 1
        if command is not None or self._since_answer % self.settings.receive_multiplier == 0:
            self._quality.note(command is not None)

    def _find_fault(self, command: Command) -> str | None:
        mode = self.settings.command_mode
        if not self.state.is_commanding:
            return None  # KUKA's clients of 1.x send a position here, others the header alone, which is a whole message
        if (self._sequence - command.reflected) % _MODULUS > 10 * self.settings.receive_multiplier:
            return f"answer to message {command.reflected}, the latest is {self._sequence}"
        if command.q is None:
            return "no joint position in a commanding state"
        if mode is CommandMode.TORQUE and command.tau is None:
            return "no joint torque in torque mode"
        if mode is CommandMode.WRENCH and command.wrench is None:
            return "no wrench in wrench mode"
        if self.state is SessionState.COMMANDING_WAIT:
            if np.abs(command.q - self._held).max() > _MIRROR_TOLERANCE:
                # An answer to an earlier message may still mirror another position; it does not count as good.
                return None if self._answers_in_wait == 0 else "the interpolated position is not mirrored"
            return None
        present = self._held if self._command.q is None else self._command.q
        step = np.abs(command.q - present) - (1 + self._since_answer) * self._step_limit
        joint = int(step.argmax())
        if step[joint] > 0.0:
            return f"the commanded position of A{joint + 1} jumps by {abs(command.q[joint] - present[joint]):.4f} rad"
        if command.tau is not None:
            excess = np.abs(command.tau) - self.arm.robot.limits.tau_max
            joint = int(excess.argmax())
            if excess[joint] > 0.0:
                return f"the commanded torque of A{joint + 1} is {command.tau[joint]:.1f} Nm"
        return None

    def _set_outputs(self, command: Command) -> None:
        """Set the outputs of an answer; one that cannot be set does not affect the rest of the answer: own rule."""
        try:
            changes = self.ios.set_outputs(command.ios)
        except SysidError as error:
            self.rejected_ios += 1
            self._refuse(f"an output in {self.state.name}: {error}")
        else:
            if changes:
                self._report(f"outputs: {', '.join(changes)}")

    def _refuse(self, text: str) -> None:
        self.last_error = text
        counts = f"{self.malformed} datagrams, {self.rejected} answers and {self.rejected_ios} outputs"
        self._refusals.say(text, counts, self._cycles * self.settings.send_period)

    # States

    def _change_state(self) -> None:
        state, quality = self.state, self.quality
        if state is SessionState.IDLE:
            if self._sequence >= 0:
                self._enter(SessionState.MONITORING_WAIT, "the session is open")
        elif state is SessionState.MONITORING_WAIT:
            if quality >= Quality.GOOD:
                self._enter(SessionState.MONITORING_READY, f"quality {quality.name}")
        elif state is SessionState.MONITORING_READY:
            if quality < Quality.GOOD:
                self._enter(SessionState.MONITORING_WAIT, f"quality {quality.name}")
            elif self._time_in_state >= self._wait and self.safety is SafetyState.NORMAL_OPERATION:
                self._held = self.arm.q
                self._answers_in_wait = 0
                self._enter(SessionState.COMMANDING_WAIT, "the motion is started")
        else:
            self._check_commanding(quality)

    def _check_limits(self) -> None:
        """Stop an arm that leaves its limits; one within them again may be started like after any error."""
        broken = self._limits.find_broken(self.arm.q, self.arm.v)
        if broken is not None and not self._is_beyond_limits:
            self._is_beyond_limits = True
            self._report(f"stopped: {broken}")
            if self.state.is_commanding:
                self.end_motion(broken)
            self._wait = self.settings.restart_time
        elif broken is None and not self.state.is_commanding and self._time_in_state >= self._wait:
            self._is_beyond_limits = False

    def _check_commanding(self, quality: Quality) -> None:
        unanswered = self._since_answer * self.settings.send_period
        allowed = max(self.settings.answer_time, 1.5 * self.settings.send_period * self.settings.receive_multiplier)
        if quality < Quality.GOOD:
            self.end_motion(f"the quality of the connection is {quality.name}")
        elif self.state is SessionState.COMMANDING_ACTIVE and unanswered > allowed:
            self.end_motion(f"no answer for {1e3 * unanswered:g} ms")
        elif self.state is SessionState.COMMANDING_WAIT and self._answers_in_wait >= self.settings.wait_answers:
            self._command = Command(0, 0, self._held)
            self._enter(SessionState.COMMANDING_ACTIVE, "commands act")

    def _enter(self, state: SessionState, reason: str) -> None:
        self._report(f"{self.state.name} -> {state.name}: {reason}")
        self.state, self._time_in_state = state, 0.0

    # The arm

    def _overlay(self) -> Overlay:
        if self.state is not SessionState.COMMANDING_ACTIVE:
            return Overlay(self._held)
        command = self._command
        q = self._held if command.q is None else command.q
        if self.settings.command_mode is CommandMode.POSITION:
            return Overlay(q)
        return Overlay(q, True, command.tau, command.wrench)

    def _message(self, lbr: LbrState) -> Monitoring:
        measured = lbr.measured
        settings, state = self.settings, self.state
        is_commanding = state.is_commanding
        is_on = self.safety is SafetyState.NORMAL_OPERATION
        n = settings.joint_count

        def fit(values: Array) -> Array:
            return values if n == JOINTS else np.resize(values, n)

        position = self._held if self._command.q is None or not is_commanding else self._command.q
        return Monitoring(
            sequence=self._sequence,
            reflected=self._sequences.last,
            state=state,
            quality=self.quality,
            send_period=settings.send_period,
            receive_multiplier=settings.receive_multiplier,
            joint_count=n,
            safety=self.safety,
            drives=(DriveState.ACTIVE if is_on else DriveState.OFF,) * n,
            operation_mode=0,
            control_mode=_CONTROL_MODES[settings.command_mode] if is_commanding else ControlMode.POSITION,
            stamp_ns=measured.stamp_ns,
            q=fit(measured.q),
            tau=fit(measured.tau),
            q_commanded=fit(position),
            tau_commanded=fit(lbr.tau_commanded),
            tau_external=fit(lbr.tau_external),
            q_ipo=fit(self._held) if is_commanding else None,
            command_mode=settings.command_mode if is_commanding else CommandMode.NO_COMMAND,
            overlay=OverlayType.JOINT if is_commanding else OverlayType.NO_OVERLAY,
            tracking_performance=1.0 if state is SessionState.COMMANDING_ACTIVE else 0.0,
            ios=self.ios.values,
            flange=lbr.flange,
            redundancy=float(measured.q[2]),
            force=lbr.force,
        )
