"""An arm under ros2_control as an arm of the torque loop: its joint states pace it, effort commands answer them.

This connection cannot guarantee deadlines: commands travel through a publisher, a network and a callback of the
controller manager. Observable symptoms (stamps, gaps, waiting states) are monitored and stop the arm; the rest is an
assumption.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import ArmError, ArmLost, ArmState, Array, require_finite_command
from sysid_ros.drivers.modes import TorqueCommand
from sysid_ros.drivers.ros2_control.commands import CommandSender, Compensation, DelayMonitor, PositionHold
from sysid_ros.drivers.ros2_control.settings import Interface, Ros2ControlSettings
from sysid_ros.drivers.ros2_control.states import JointLink, JointStream, OpenLink, StreamedArm
from sysid_ros.drivers.ros2_control.takeover import RestMeasurement, measure_rest, order_of_commands
from sysid_ros.drivers.takeover import TakeoverRefused, check_rest, find_motion, hold_and_probe

NO_GUARANTEE = "over ros2_control, without real-time guarantees"
"""Sentence in every status of such an arm."""
_LOST_CYCLES = 8
"""Cycles without a state after which the arm is lost: sooner than the loop faults and balances it by its model.
The commands that have held the arm at rest balance it better than a model that does not know the payload."""
_SWITCH_SECONDS = 3.0
"""How long the controller manager may take to put one controller in the place of another [s]."""
_ASK_SECONDS = 2.0
_SETTLE_SECONDS = 1.0
"""How long the arm is brought to rest before it is let go [s]."""


class Ros2ControlArm(StreamedArm):
    """One arm.

    Raises:
        ParameterOutOfRange: See :class:`StreamedArm`; or the meaning of an effort command was not stated, or the
            messages are for other arms.
    """

    def __init__(self, robot: RobotModel, settings: Ros2ControlSettings, open_link: OpenLink):
        if settings.torque_command is TorqueCommand.UNSET:
            raise ParameterOutOfRange(
                "torque_command",
                settings.torque_command.value,
                "full (nothing is added to commands), overlay_gravity or overlay (the arm adds gravity, or gravity and "
                "Coriolis torques); see the manual of the arm, a wrong setting makes it fall or jump",
            )
        if settings.interface is Interface.LBR and robot.n != 7:
            raise ParameterOutOfRange("robot", f"{robot.name} with {robot.n} joints", "an LBR for lbr_fri_idl")
        super().__init__(robot, settings, open_link)
        self._compensation = Compensation(robot, settings)
        self._reset()

    def _reset(self) -> None:
        zero = np.zeros(self._robot.n)
        self._is_commanding = False
        self._hold = PositionHold(self._robot, self.period, self._compensation.balance)
        self._is_holding = False  # after stop(), without another controller that holds the arm
        self._first: ArmState | None = None
        self._last = ArmState(0, np.array(self._robot.home), zero, zero, False)
        self._missed = 0
        self._sender = CommandSender(self._robot, self.settings, self._compensation)
        self._delays = DelayMonitor(self.settings)
        self._rest: RestMeasurement | None = None
        self._problem: str | None = None

    def connect(self) -> None:
        """See :meth:`Arm.connect`: watches states, checks gravity, asks the controller, holds the arm for a moment.

        Raises:
            TakeoverRefused: The arm, its states or its controller are not as set up.
        """
        was_holding, hold, sender = self._is_holding, self._hold, self._sender
        self._reset()
        if was_holding:  # the arm is held until commands take over, in the order that was right so far
            self._is_holding, self._hold, self._sender.order = True, hold, sender.order
            self._sender.position = sender.position
        if self._link is None:
            self._link = self._open_link()
        try:
            self._take_over(self._link)
        except Exception:
            if not self._is_holding:  # else the arm is held as before
                self.close()
            raise

    def read(self) -> ArmState:
        """See :meth:`Arm.read`. After :meth:`stop` it also goes on holding the arm."""
        link, stream = self._require("read()")
        if self._first is not None:
            state, self._first = self._first, None
            return state
        new = stream.next(self.settings.cycle_wait)
        state = self._miss_cycle(stream) if new is None else self._take(link, stream, new)
        if self._is_holding:
            if state.ok:
                tau = self._hold.torque(state)
                self._hold.update(state, tau)
                self._sender.send(link, tau, state)
            else:
                self._send_at_rest(link, self._hold.torque(None))
        return state

    def command(self, tau: Array) -> None:
        """See :meth:`Arm.command`."""
        link, _ = self._require("command()")
        if not self._is_commanding:
            raise ArmError("command() needs a connected arm; call connect() first")
        require_finite_command(tau, self.joint_names)
        if not self._missed:
            self._hold.update(self._last, tau)
        self._sender.send(link, tau, self._last)

    def stop(self, reason: str) -> None:
        """See :meth:`Arm.stop`. Another controller holds the arm, if there is one; else this driver until ``close``."""
        link = self._link
        if not self._is_commanding or link is None:
            return
        self._is_commanding, self._first = False, None
        self._hold.start(self._last.q)
        self._send_at_rest(link, self._hold.torque(None))
        if link.has_hold_controller:
            self._problem = link.switch(is_torque=False, timeout=_SWITCH_SECONDS)
            if self._problem is None:
                return
        self._is_holding = True

    def close(self) -> None:
        """See :meth:`Arm.close`. The controller keeps the last command, the one that has held the arm at rest."""
        self.stop("closed")
        if self._link is None:
            return
        if self._is_holding:
            self._settle(self._link)
            self._is_holding = False
        super().close()

    def health(self) -> dict[str, object]:
        """See :meth:`Arm.health`."""
        if self._link is None or self._stream is None:
            return self._closed_health
        rest = self._rest
        return {
            "connection": NO_GUARANTEE,
            **self._stream.health(),
            "commands": self._link.commands_name,
            "commands sent": self._sender.count,
            "torque command": self.settings.torque_command.value,
            "order of commands": ", ".join(self.joint_names[place] for place in self._sender.order),
            "measured period [s]": self.period if rest is None else rest.period,
            "static gravity check": "not done" if rest is None else "passed",
            "states waiting at most": self._delays.most_waiting,
            "state to command p50 / p99 / max [us]": self._sender.describe_reactions(),
            "last problem of handing back": self._problem or "none",
        }

    @property
    def late_answers(self) -> int:
        """See :class:`Arm`; of the present connection."""
        return self._sender.late_answers

    def _settle(self, link: JointLink) -> None:
        """Hold the arm until it rests; the controller goes on with the last command."""
        for _ in range(round(_SETTLE_SECONDS / self.period)):
            if not self.read().ok or self._hold.settled is not None:
                break
        if self._hold.settled is not None:
            self._send_at_rest(link, self._hold.settled)

    # Taking over

    def _take_over(self, link: JointLink) -> None:
        settings, robot, sender = self.settings, self._robot, self._sender
        stream = self._stream = JointStream(robot, settings, link)
        rest = measure_rest(stream, settings, robot, link.states_name, self._hold_meanwhile)
        self._require_rest(rest.spread)
        check_rest(robot, rest.q, rest.tau)
        self._rest = rest
        sender.order = self._find_order(link)
        self._require_listener(link)
        sender.position = np.array(rest.q)
        state = self._newest_state(link, stream)
        self._require_rest(np.abs(state.q - rest.q))
        self._is_commanding, self._is_holding = True, False
        if link.has_hold_controller:
            # Commands come first: a controller that starts without one would let the arm fall.
            self.command(rest.tau)
            problem = link.switch(is_torque=True, timeout=_SWITCH_SECONDS)
            if problem is not None:
                self._is_commanding = False
                raise TakeoverRefused(f"the effort controller cannot be activated: {problem}")
            state = self._newest_state(link, stream)
        question = (
            f"does torque_command '{settings.torque_command.value}' match the arm, is the effort controller active, "
            "is the sign of the torques right?"
        )
        try:
            self._first = hold_and_probe(self, robot, settings, state, rest.tau, question)
        except TakeoverRefused:
            self._give_back(link, rest)
            raise

    def _require_rest(self, spread: Array) -> None:
        motion = find_motion(self._robot, spread, self.settings.rest_time)
        if motion is not None:
            raise TakeoverRefused(f"{motion}; it must rest, held by its own controller or brakes")

    def _find_order(self, link: JointLink) -> tuple[int, ...]:
        """Return which joint of the model each entry of a command is for."""
        settings, robot = self.settings, self._robot
        if settings.interface is Interface.LBR:  # the order is part of the message's definition
            return tuple(range(robot.n))
        # A controller that is not needed for the answer may have no parameter service at all.
        timeout = _ASK_SECONDS if settings.command_joints else settings.connect_timeout
        return order_of_commands(robot, settings.command_joints, link.ask_controller(timeout))

    def _require_listener(self, link: JointLink) -> None:
        """Wait until exactly the expected receiver of commands is there."""
        deadline = time.monotonic() + self.settings.connect_timeout
        while (problem := link.find_command_problem()) is not None:
            if time.monotonic() > deadline:
                raise TakeoverRefused(problem)
            time.sleep(0.02)

    def _give_back(self, link: JointLink, rest: RestMeasurement) -> None:
        """End a takeover that failed. Commands do not act as they should, so there is no feedback any more."""
        self._is_commanding = False
        if link.has_hold_controller and link.switch(is_torque=False, timeout=_SWITCH_SECONDS) is None:
            return
        if np.abs(self._last.q - rest.q).max() > self.settings.hold_drift:
            # Whatever the fault, a sign or the arm's own torques, the torque that should have balanced it moves it.
            self._sender.send_zero(link)
        else:
            self._send_at_rest(link, rest.tau)

    def _hold_meanwhile(self, state: ArmState) -> None:
        state = self._note(state, ())
        if self._is_holding and self._link is not None:
            self._sender.send(self._link, self._hold.torque(state), state)

    def _newest_state(self, link: JointLink, stream: JointStream) -> ArmState:
        state = stream.next(self.settings.session_timeout)
        while state is not None and link.waiting():
            state = stream.next(self.settings.cycle_wait) or state
        if state is None:
            raise TakeoverRefused(f"no more joint states of the arm come ({stream.describe_timeout()})")
        return self._note(state, ())

    # States

    def _take(self, link: JointLink, stream: JointStream, state: ArmState) -> ArmState:
        if stream.alarm is not None and self._is_commanding:
            raise ArmLost(stream.alarm)
        self._sender.taken_at = link.now()
        self._delays.update(link.waiting())
        return self._note(state, self._delays.find_faults(link, stream) if self._is_commanding else ())

    def _note(self, state: ArmState, faults: tuple[str, ...]) -> ArmState:
        self._last = replace(state, faults=faults, missed=max(0, state.missed - self._missed))
        self._missed = 0
        return self._last

    def _miss_cycle(self, stream: JointStream) -> ArmState:
        self._missed += 1
        age = stream.age
        is_lost = age > self.settings.session_timeout or self._missed >= _LOST_CYCLES
        if self._is_commanding and is_lost:
            raise ArmLost(f"no joint states for {age:.3f} s ({stream.describe_timeout()})")
        return replace(self._last, ok=False, missed=0, faults=())

    def _send_at_rest(self, link: JointLink, tau: Array) -> None:
        """Send torques without a measurement: gravity where the arm was seen last, and no Coriolis torques."""
        self._last = replace(self._last, v=np.zeros(self.n))
        self._sender.send(link, tau, self._last)
