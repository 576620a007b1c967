"""An arm under ros2_control as an arm of the torque loop: its joint states pace it, effort commands answer them.

What this connection cannot promise is said where it matters: commands travel through a publisher, a network and a
callback of the controller manager, none of which has a deadline. What can be seen of it (stamps, gaps, what waits) is
watched, and stops the arm; the rest is an assumption.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import Arm, ArmLost, ArmNotConnected, ArmState, Array, Pacing, require_finite_command
from sysid_ros.drivers.arm_dynamics import ArmDynamics
from sysid_ros.drivers.ros2_control.holding import LastingHold
from sysid_ros.drivers.ros2_control.settings import Interface, Ros2ControlSettings, TorqueCommand
from sysid_ros.drivers.ros2_control.states import JointLink, JointStream, Measured, OpenLink
from sysid_ros.drivers.ros2_control.takeover import Watched, find_order, require_listener, require_rest, watch_arm
from sysid_ros.drivers.takeover import TakeoverRefused, check_rest, hold_and_probe

NO_GUARANTEE = "over ros2_control, without real-time guarantees"
"""What every status of such an arm says."""
_LISTENER_PERIOD = 0.5
"""How often it is looked whether somebody listens to commands [s]."""
_LOST_CYCLES = 8
"""Cycles without a state after which the arm is lost: sooner than the loop gives it up and balances it by its model.
The commands that have held the arm at rest balance it better than a model that does not know the payload."""
_SWITCH_SECONDS = 3.0
"""How long the controller manager may take to put one controller in the place of another [s]."""
_SETTLE_SECONDS = 1.0
"""How long the arm is brought to rest before it is let go [s]."""
_POSITION_STEP = 1.5
"""Largest step of the position sent with torques, in steps at the speed limit."""


class Ros2ControlArm(Arm):
    """One arm.

    Args:
        robot: Kinematics, limits, sensors; its ``effort_sign`` turns efforts into joint direction.
        settings: Set-up of the connection.
        open_link: Opens the topics.

    Raises:
        ParameterOutOfRange: What an effort command is was not stated, or the messages are for other arms.
    """

    pacing = Pacing.CONTROLLER

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
        self.settings = settings
        self.joint_names = robot.joint_names
        self.period = settings.period
        self._robot = robot
        self._open_link = open_link
        self._compensation = ArmDynamics(robot, robot.theta_nominal, settings.controller_load)
        self._model = ArmDynamics(robot, robot.theta_nominal, robot.payload_prior.nominal)
        self._link: JointLink | None = None
        self._stream: JointStream | None = None
        self._is_commanding = False
        self._holding: LastingHold | None = None
        self._closed_health: dict[str, object] = {}
        self._forget()

    def connect(self) -> None:
        """See :meth:`Arm.connect`: listens, tests gravity, asks the controller, holds the arm for a moment.

        Raises:
            TakeoverRefused: The arm, its states or its controller are not as set up.
            GravityCheckFailed: The measured efforts do not balance gravity.
        """
        held = (self._holding, self._order, self._sent_position)
        self._forget()
        if held[0] is not None:  # the arm is held until commands take over, in the order that was right so far
            self._holding, self._order, self._sent_position = held
        if self._link is None:
            self._link = self._open_link()
        try:
            self._take_over(self._link)
        except Exception:
            if self._holding is None:  # else the arm is held as before
                self.close()
            raise

    def read(self) -> ArmState:
        """See :meth:`Arm.read`. After :meth:`stop` it also goes on holding the arm."""
        link, stream = self._require("read()")
        if self._first is not None:
            state, self._first = self._first, None
            return state
        measured = stream.next(self.settings.cycle_wait)
        state = self._miss_cycle(stream) if measured is None else self._take(link, measured)
        if self._holding is not None:
            if state.ok:
                tau = self._holding.torque(state)
                self._holding.note(state, tau)
                self._send(tau)
            else:
                self._send_blindly(self._holding.torque(None))
        return state

    def command(self, tau: Array) -> None:
        """See :meth:`Arm.command`."""
        self._require("command()")
        if not self._is_commanding:
            raise ArmNotConnected("command()")
        require_finite_command(tau, self.joint_names)
        if not self._missed:
            self._memory.note(self._last, tau)
        self._send(tau)

    def stop(self, reason: str) -> None:
        """See :meth:`Arm.stop`. Another controller holds the arm, if there is one; else this driver until ``close``."""
        if not self._is_commanding:
            return
        self._is_commanding, self._first = False, None
        self._memory.start(self._last.q)
        self._send_blindly(self._memory.torque(None))
        if self._link.has_hold_controller:
            self._problem = self._link.switch(is_torque=False, timeout=_SWITCH_SECONDS)
            if not self._problem:
                return
        self._holding = self._memory

    def close(self) -> None:
        """See :meth:`Arm.close`. The controller keeps the last command, the one that has held the arm at rest."""
        self.stop("closed")
        if self._link is None:
            return
        if self._holding is not None:
            self._settle(self._holding)
            self._holding = None
        self._closed_health = {**self.health(), "connection": "closed"}
        self._link.close()
        self._link = self._stream = None

    def health(self) -> dict[str, object]:
        """See :meth:`Arm.health`."""
        if self._link is None or self._stream is None:
            return self._closed_health
        return {
            "connection": NO_GUARANTEE,
            **self._stream.health(),
            "commands": self._link.commands_name,
            "commands sent": self._sent_count,
            "torque command": self.settings.torque_command.value,
            "order of commands": ", ".join(self.joint_names[place] for place in self._order),
            "measured period [s]": self._measured_period,
            "static gravity check": self._gravity_words,
            "states waiting at most": self._most_waiting,
            "state to command p50 / p99 / max [us]": self._describe_reactions(),
            "last problem of handing back": self._problem or "none",
        }

    def _settle(self, hold: LastingHold) -> None:
        """Holds the arm until it rests; what holds it then is what the controller goes on with."""
        for _ in range(round(_SETTLE_SECONDS / self.period)):
            if not self.read().ok or hold.settled is not None:
                break
        if hold.settled is not None:
            self._send_blindly(hold.settled)

    def _describe_reactions(self) -> str:
        """How soon commands have answered states lately, from taking the one to publishing the other."""
        if not self._reactions:
            return "unknown"
        return " / ".join(f"{1e6 * value:.0f}" for value in np.quantile(self._reactions, (0.5, 0.99, 1.0)))

    # Taking over

    def _take_over(self, link: JointLink) -> None:
        settings, robot = self.settings, self._robot
        self._stream = JointStream(robot, settings, link)
        watched = watch_arm(self._stream, settings, robot, link.states_name, self._hold_meanwhile)
        self._measured_period = watched.period
        require_rest(watched, robot, settings.rest_time)
        check_rest(robot, watched.q, watched.tau)
        self._gravity_words = "passed"
        self._order = find_order(link, settings, robot)
        require_listener(link, settings)
        self._sent_position = np.array(watched.q)
        state = self._newest_state()
        require_rest(replace(watched, spread=np.abs(state.q - watched.q)), robot, settings.rest_time)
        self._is_commanding, self._holding = True, None
        if link.has_hold_controller:
            # Commands come first: a controller that starts without one would let the arm fall.
            self.command(watched.tau)
            problem = link.switch(is_torque=True, timeout=_SWITCH_SECONDS)
            if problem:
                self._is_commanding = False
                raise TakeoverRefused(f"the effort controller cannot be activated: {problem}")
            state = self._newest_state()
        question = (
            f"is torque_command '{settings.torque_command.value}' what the arm does, is the effort controller active, "
            "is the sign of the torques right?"
        )
        try:
            self._first = hold_and_probe(self, robot, settings, state, watched.tau, question)
        except TakeoverRefused:
            self._give_back(link, watched)
            raise

    def _give_back(self, link: JointLink, watched: Watched) -> None:
        """Ends a takeover that failed. Commands do not do what they should, so nothing is fed back any more."""
        self._is_commanding = False
        if link.has_hold_controller and not link.switch(is_torque=False, timeout=_SWITCH_SECONDS):
            return
        if np.abs(self._last.q - watched.q).max() > self.settings.hold_drift:
            # Whatever is wrong, a sign or what the arm adds, the torque that should have balanced it is what moves it.
            link.send([0.0] * self.n, self._sent_position[list(self._order)].tolist())
        else:
            self._send_blindly(watched.tau)

    def _hold_meanwhile(self, measured: Measured) -> None:
        """An arm that is taken over again is held until then."""
        state = self._state(measured, ())
        if self._holding is not None:
            self._send(self._holding.torque(state))

    def _newest_state(self) -> ArmState:
        """The latest state; those that have come in the meantime are left out.

        Raises:
            TakeoverRefused: None comes.
        """
        measured = self._stream.next(self.settings.session_timeout)
        while measured is not None and self._link.waiting():
            measured = self._stream.next(self.settings.cycle_wait) or measured
        if measured is None:
            raise TakeoverRefused(f"the arm fell silent ({self._stream.describe_silence()})")
        return self._state(measured, ())

    def _balance(self, q: Array) -> Array:
        """Whole torque that balances the arm as far as is known, (n,) [Nm]: an overlay of nothing where it is one."""
        if self.settings.torque_command is not TorqueCommand.FULL:
            return self._compensation.gravity(q)
        return self._model.gravity(q) + self._robot.friction(self._robot.theta_nominal)[:, 3]

    # States

    def _take(self, link: JointLink, measured: Measured) -> ArmState:
        if measured.alarm and self._is_commanding:
            raise ArmLost(measured.alarm)
        self._taken_at = link.now()
        self._waiting.append(link.waiting())
        self._most_waiting = max(self._most_waiting, self._waiting[-1])
        return self._state(measured, self._faults(link, measured))

    def _state(self, measured: Measured, faults: tuple[str, ...]) -> ArmState:
        m = measured
        state = ArmState(m.stamp_ns, m.q, m.v, m.tau, True, faults, max(0, m.missed - self._missed), m.is_exact)
        self._missed = 0
        self._last = state
        return state

    def _faults(self, link: JointLink, measured: Measured) -> tuple[str, ...]:
        if not self._is_commanding:
            return ()
        faults, settings = [], self.settings
        delay = measured.gap - self.period
        if delay > settings.late_limit:
            faults.append(f"a state came {1e3 * delay:.1f} ms after it was due")
        share = self._stream.missing_share
        if share > settings.missing_share:
            faults.append(f"{100.0 * share:.0f} % of the states of the last second are missing")
        lag = min(self._waiting) * self.period
        if len(self._waiting) == self._waiting.maxlen and lag > settings.late_limit:
            faults.append(f"states wait for {1e3 * lag:.1f} ms: the loop is too slow for their rate")
        self._cycles += 1
        if self._cycles % max(1, round(_LISTENER_PERIOD / self.period)) == 0:
            self._listener_problem = link.find_command_problem()
        if self._listener_problem:
            faults.append(self._listener_problem)
        return tuple(faults)

    def _miss_cycle(self, stream: JointStream) -> ArmState:
        self._missed += 1
        silence = stream.silence
        is_lost = silence > self.settings.session_timeout or self._missed >= _LOST_CYCLES
        if self._is_commanding and is_lost:
            raise ArmLost(f"no joint states for {silence:.3f} s ({stream.describe_silence()})")
        return replace(self._last, ok=False, missed=0, faults=())

    # Commands

    def _send(self, tau: Array) -> None:
        """Sends whole torques, (n,) [Nm], as the arm wants them."""
        added = tau - self._added_torque()
        q, step = self._last.q, _POSITION_STEP * self._robot.limits.v_max * self.period
        self._sent_position = self._sent_position + np.clip(q - self._sent_position, -step, step)
        order = list(self._order)
        self._link.send(added[order].tolist(), self._sent_position[order].tolist())
        self._sent_count += 1
        if self._taken_at:
            self._reactions.append(self._link.now() - self._taken_at)
            self.late_answers += self._reactions[-1] > self.period
            self._taken_at = 0.0

    def _send_blindly(self, tau: Array) -> None:
        """The same without a measurement: gravity where the arm was seen last, and no Coriolis torques."""
        self._last = replace(self._last, v=np.zeros(self.n))
        self._send(tau)

    def _added_torque(self) -> Array:
        """What the arm adds to a command, (n,) [Nm]."""
        q, v = self._last.q, self._last.v
        if self.settings.torque_command is TorqueCommand.OVERLAY:
            return self._compensation.torque(q, v, np.zeros(self.n))
        if self.settings.torque_command is TorqueCommand.OVERLAY_GRAVITY:
            return self._compensation.gravity(q)
        return np.zeros(self.n)

    def _forget(self) -> None:
        n = self._robot.n
        zero = np.zeros(n)
        self._is_commanding = False
        self._holding = None
        self._first: ArmState | None = None
        self._last = ArmState(0, np.array(self._robot.home), zero, zero, False)
        self._memory = LastingHold(self._robot, self.period, self._balance)
        self._order: tuple[int, ...] = tuple(range(n))
        self._sent_position = np.array(self._robot.home)
        self._waiting: deque[int] = deque(maxlen=20)
        self._reactions: deque[float] = deque(maxlen=5000)
        self._taken_at = 0.0
        self._missed = self._cycles = self._sent_count = self._most_waiting = 0
        self._listener_problem = self._problem = ""
        self._measured_period = self.period
        self._gravity_words = "not done"

    def _require(self, call: str) -> tuple[JointLink, JointStream]:
        if self._link is None or self._stream is None:
            raise ArmNotConnected(call)
        return self._link, self._stream
