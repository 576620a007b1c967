"""The Kinova Gen3 over Kortex as an arm of the torque loop, which paces it.

``command`` keeps the torque and the next ``read``, at the next deadline of the loop, sends it in the one request of
that cycle; the reply is what ``read`` returns. So requests leave the computer at the deadlines however long the
controller computes, and exactly one period lies between a measurement and the torque computed from it.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

import numpy as np

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.model.robot import KORTEX, RobotModel
from sysid_ros.drivers.arm import Arm, ArmLost, ArmNotConnected, ArmState, Array, Pacing, require_finite_command
from sysid_ros.drivers.kinova_kortex.client import KortexClient
from sysid_ros.drivers.kinova_kortex.enums import ArmState as KortexState
from sysid_ros.drivers.kinova_kortex.enums import KortexConnectionLost, KortexServerError, name_faults
from sysid_ros.drivers.kinova_kortex.frame import ID_MODULUS
from sysid_ros.drivers.kinova_kortex.link import KortexLink
from sysid_ros.drivers.kinova_kortex.messages import Command, Feedback, Unwrapper, wrap_degrees
from sysid_ros.drivers.kinova_kortex.settings import REPLY_TIMEOUT, Api, KortexSettings, StampSource, VelocitySource
from sysid_ros.drivers.kinova_kortex.takeover import (
    HoldingTorque,
    describe,
    enter_torque_mode,
    hand_back,
    hold_and_probe,
    measure_at_rest,
    prepare,
)
from sysid_ros.drivers.pacing import Pacer
from sysid_ros.drivers.velocity_estimate import VelocityEstimate, require_velocity_error

_SPEED_MARGIN = 3.0
"""Readings that mean a speed of so many speed limits are not believed."""
_STEP_FLOOR = 1.0
"""Difference between two readings that is always believed [deg]."""
_STEP_CEILING = 90.0
"""And one that never is: the turn of a joint could get lost [deg]."""


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
        self._velocity: VelocityEstimate | None = None
        if self.settings.velocity is VelocitySource.POSITIONS:
            self._velocity = VelocityEstimate(require_velocity_error(robot, self.period), self.period)
        self._unwrapper = Unwrapper(robot)
        self._largest_speed = _SPEED_MARGIN * np.degrees(robot.limits.v_max)
        self._link: KortexLink | None = None
        self._devices: tuple[int, ...] = ()
        self._pacer = Pacer(self.period, catches_up=False)
        self.is_commanding = self._is_low_level = False
        self.is_torque = np.zeros(robot.n, dtype=bool)
        self.last_torque = np.zeros(robot.n)
        self._problem = ""
        self._handed_back_at = -np.inf
        self._forget()

    # What the loop calls

    def connect(self) -> None:
        """See :meth:`Arm.connect`: opens sessions, tests gravity, takes the torque over, holds the arm for a moment.

        Raises:
            TakeoverRefused: The arm or its base is not as it should be.
            GravityTestFailed: The measured torques do not balance gravity.
            KortexServerError: The base refuses a step.
            KortexConnectionLost: It cannot be reached, or falls silent.
        """
        self._close_link()
        self._forget()
        self._link = self._open()
        try:
            self._link.open()
            self._pacer = Pacer(self.period, catches_up=False)
            self._devices = prepare(self)
            holding = HoldingTorque(self, *measure_at_rest(self))
            enter_torque_mode(self, self._devices, holding)
            hold_and_probe(self, holding)
        except BaseException as error:
            broken = self._broken() if isinstance(error, KortexServerError) else ""
            self.close()
            if broken:  # it refuses because the connection is gone
                raise KortexConnectionLost(f"{broken}; {error}") from None
            raise
        self._first = self.latest

    def read(self) -> ArmState:
        """See :meth:`Arm.read`: the one exchange of this cycle."""
        self._require_link("read()")
        if self._first is not None:
            state, self._first = self._first, None
            return state
        try:
            feedback = self._exchange()
        except KortexConnectionLost as error:
            self.is_commanding = False
            raise ArmLost(str(error)) from None
        except KortexServerError as error:
            self._give_up_unless_obeying(error)
            feedback = None
        if feedback is not None:
            return self.latest
        silence = time.monotonic() - self._fresh_at
        if silence > self.settings.session_timeout:
            self.is_commanding = False
            raise ArmLost(f"no reply of the base for {silence:.3f} s")
        return replace(self.latest, ok=False)

    def command(self, tau: Array) -> None:
        """See :meth:`Arm.command`. It is sent at the beginning of the next cycle."""
        self._require_link("command()")
        if not self.is_commanding:
            raise ArmNotConnected("command()")
        require_finite_command(tau, self.joint_names)
        self.last_torque = np.array(tau, dtype=float)

    def health(self) -> dict[str, object]:
        """See :meth:`Arm.health`."""
        if self._link is None:
            return self._closed_health
        return {
            "arm state": KortexState.UNSPECIFIED.name if self._feedback is None else self._feedback.state.name,
            **self._link.counts.report(),
            "readings not believed": self._unbelieved,
            "errors of single requests": self._forgiven,
            "longest time between states [s]": self._longest,
            "TCP silence [s]": self._link.silence,
            "stamps": self._judge_stamps(),
            "last problem of handing back": self._problem or "none",
        }

    def stop(self, reason: str) -> None:
        """See :meth:`Arm.stop`. The base servoes again and holds the arm; it can still be read."""
        if self._link is not None and self._is_low_level:
            self._problem = hand_back(self, self._devices)
            self._handed_back_at = time.monotonic()
        self.is_commanding = self._is_low_level = False
        self.is_torque[:] = False
        self._first = None

    def close(self) -> None:
        """See :meth:`Arm.close`."""
        self.stop("closed")
        time.sleep(max(0.0, self._handed_back_at + self.settings.close_time - time.monotonic()))
        self._close_link()

    # What taking over and handing back need

    @property
    def link(self) -> KortexLink:
        """The connection.

        Raises:
            ArmNotConnected: There is none.
        """
        return self._require_link("the link")

    def monitor(self) -> Feedback | None:
        """Waits for the next deadline and asks for feedback; None if none came."""
        self._pacer.wait()
        return self._exchange()

    def cycle(self, tau: Array) -> None:
        """Waits for the next deadline and sends torques (n,) [Nm].

        Raises:
            KortexServerError: The base refuses.
            KortexConnectionLost: It has been silent for too long, or is no longer in low-level servoing.
        """
        self.last_torque = tau
        self._pacer.wait()
        try:
            feedback = self._exchange()
        except ArmLost as lost:
            raise KortexConnectionLost(lost.reason) from None
        if feedback is None and time.monotonic() - self._fresh_at > self.settings.session_timeout:
            raise KortexConnectionLost(f"no reply for {self.settings.session_timeout:g} s")

    def wait_a_period(self) -> None:
        """Waits for the next deadline without sending anything: commands are not allowed yet, or not any more."""
        self._pacer.wait()
        self.link.keep_alive()

    def begin_commanding(self) -> None:
        """From now on requests carry commands: actuators follow positions until they are told to follow torques."""
        self._held = np.array(self._feedback.q)
        self.is_commanding = self._is_low_level = True
        self._fresh_at = time.monotonic()

    # Exchanges

    def _exchange(self) -> Feedback | None:
        link = self._require_link("an exchange")
        link.keep_alive()
        command = self._next_command() if self.is_commanding else None
        self._exchanges += 1
        feedback = link.refresh(command, self.settings.reply_wait)
        if feedback is None or not self._is_believable(feedback):
            return None
        if self.is_commanding and feedback.state is not KortexState.SERVOING_LOW_LEVEL:
            self.is_commanding = False
            raise ArmLost(f"the arm has left low-level servoing: {describe(feedback, self.joint_names)}")
        self._take_in(feedback)
        return feedback

    def _give_up_unless_obeying(self, error: KortexServerError) -> None:
        """Asks an arm that refuses a command for its state; a request that was damaged on its way costs one cycle only.

        Raises:
            ArmLost: It is not in low-level servoing any more, has a fault, or does not tell.
        """
        text = ""
        with contextlib.suppress(KortexServerError, KortexConnectionLost):
            feedback = self.link.refresh(None, max(REPLY_TIMEOUT, self.settings.reply_wait))
            if feedback is not None:
                is_well = feedback.state is KortexState.SERVOING_LOW_LEVEL and not any(feedback.faults)
                if is_well and self.is_commanding:
                    self._forgiven += 1
                    return
                text = f"; {describe(feedback, self.joint_names)}"
        self.is_commanding = False
        broken = self._broken()
        raise ArmLost(f"{error}{text}{f'; {broken}' if broken else ''}")

    def _broken(self) -> str:
        """Why there is no TCP connection any more, as far as is known by now; empty where it stands."""
        self.link.keep_alive()
        return self.link.broken

    def _next_command(self) -> Command:
        """Positions follow the measurement under torque control, so that the following error stays a safeguard."""
        self._frame = (self._frame + 1) % ID_MODULUS
        q = np.where(self.is_torque, self._feedback.q, self._held)
        self._held = q
        return Command(self._frame, q, self.last_torque)

    def _is_believable(self, feedback: Feedback) -> bool:
        last, is_good = self._feedback, bool((np.abs(feedback.v) <= self._largest_speed).all())
        if last is not None:
            elapsed = time.monotonic() - self._fresh_at
            limit = np.clip(self._largest_speed * elapsed, _STEP_FLOOR, _STEP_CEILING)
            is_good &= bool((np.abs(wrap_degrees(feedback.q - last.q)) <= limit).all())
        self._unbelieved += not is_good
        return is_good

    def _take_in(self, feedback: Feedback) -> None:
        now = time.monotonic()
        elapsed = now - self._fresh_at if self._feedback is not None else self.period
        self._longest = max(self._longest, elapsed)
        self._fresh_at, self._feedback = now, feedback
        stamp = self._stamp()
        q = self._unwrapper.update(feedback.q)
        v = np.radians(feedback.v) if self._velocity is None else self._velocity.update(stamp, q)
        tau = self.robot.sensors.effort_sign * feedback.tau
        is_exact = self._velocity is None or self._velocity.is_exact
        self.latest = ArmState(stamp, q, v, tau, True, self._faults(feedback, elapsed), is_exact=is_exact)

    def _stamp(self) -> int:
        """Stamp of the state that the last request brought [ns], later than all before."""
        if self.settings.stamps is StampSource.FRAMES and self._stamp_ns:
            stamp = self._stamp_ns + self._exchanges * round(1e9 * self.period)
        else:
            stamp = self._epoch_ns + round(1e9 * self.link.sent_at)
        self._exchanges = 0
        self._stamp_ns = max(stamp, self._stamp_ns + 1)
        return self._stamp_ns

    def _judge_stamps(self) -> str:
        """Whether the stamps are as good as the robot file says, as far as round trips tell."""
        if self.settings.stamps is StampSource.FRAMES:
            return "one period per frame"
        counts, allowed = self.link.counts, self.robot.sensors.stamp_jitter
        if not counts.answered:
            return "unknown"
        spread = 0.5 * (float(np.quantile(counts.round_trips, 0.99)) - counts.shortest)
        text = f"half the spread of round trips is {1e6 * spread:.0f} us, stamp_jitter of the robot file "
        return text + f"{1e6 * allowed:.0f} us{'' if spread <= allowed else ': too small, bounds may be too tight'}"

    def _faults(self, feedback: Feedback, elapsed: float) -> tuple[str, ...]:
        if not self.is_commanding:
            return ()
        faults = [
            f"{name} warns of {name_faults(bits)}"
            for name, bits in zip(self.joint_names, feedback.warnings, strict=True)
            if bits
        ]
        if feedback.base_faults:
            faults.append(f"base faults {feedback.base_faults:#x}")
        if elapsed - self.period > self.settings.late_limit:
            faults.append(f"no fresh state for {1e3 * elapsed:.1f} ms")
        if self.link.silence > self.settings.connection_inactivity_timeout:
            reason = f" ({self.link.broken})" if self.link.broken else ""
            faults.append(f"the base does not answer over TCP{reason}: it cannot be handed back in order")
        return tuple(faults)

    # Connections

    def _open(self) -> KortexLink:
        if self.settings.api is Api.VENDOR:
            from sysid_ros.drivers.kinova_kortex.vendor import VendorClient

            return VendorClient(self.settings, self.n)
        return KortexClient(self.settings, self.n)

    def _close_link(self) -> None:
        if self._link is not None:
            self._closed_health = self.health()
            self._link.close()
            self._link = None

    def _forget(self) -> None:
        self._unwrapper.reset()
        if self._velocity is not None:
            self._velocity.reset()
        n = self.robot.n
        self.latest = ArmState(0, np.zeros(n), np.zeros(n), np.zeros(n), False)
        self._feedback: Feedback | None = None
        self._first: ArmState | None = None
        self._held = np.zeros(n)
        self._frame = self._exchanges = self._unbelieved = self._forgiven = self._stamp_ns = 0
        self._longest = 0.0
        self._fresh_at = time.monotonic()
        self._epoch_ns = time.time_ns() - time.monotonic_ns()
        if not hasattr(self, "_closed_health"):
            self._closed_health: dict[str, object] = {}

    def _require_link(self, call: str) -> KortexLink:
        if self._link is None:
            raise ArmNotConnected(call)
        return self._link
