"""The cyclic exchange with one Gen3, of one connection: a command out, a state in, once per period."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

import numpy as np

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import ArmLost, ArmState, Array
from sysid_ros.drivers.kinova_kortex.client import KortexClient
from sysid_ros.drivers.kinova_kortex.enums import ArmState as KortexState
from sysid_ros.drivers.kinova_kortex.enums import KortexConnectionLost, KortexServerError, name_faults
from sysid_ros.drivers.kinova_kortex.frame import ID_MODULUS
from sysid_ros.drivers.kinova_kortex.messages import Command, Feedback, Unwrapper, wrap_degrees
from sysid_ros.drivers.kinova_kortex.settings import REPLY_TIMEOUT, KortexSettings, StampSource
from sysid_ros.drivers.pacing import Pacer
from sysid_ros.drivers.velocity_estimate import VelocityEstimate

_SPEED_MARGIN = 3.0
"""Readings that mean a speed of so many speed limits are not plausible."""
_STEP_FLOOR = 1.0
"""Difference between two readings that is always plausible [deg]."""
_STEP_CEILING = 90.0
"""And one that never is: the turn of a joint could get lost [deg]."""


class CyclicExchange:
    """State and command of one arm, exchanged once per period.

    Args:
        robot: Kinematics, limits, sensors.
        settings: Set-up of the client.
        client: Both sessions, open.
        pacer: Deadlines of the cycles, used while the arm is taken over and handed back.
        velocity: Velocities from positions; None for the base's.

    Attributes:
        latest: The latest state.
        torque: Torques of the next command, (n,) [Nm].
        is_commanding: Whether requests carry commands.
        is_low_level: Whether the base was put into low-level servoing, so that it has to be handed back.
        is_torque: Whether actuators follow torques, (n,) bool.
        devices: Device ids of the actuators, from base to flange.
    """

    def __init__(
        self,
        robot: RobotModel,
        settings: KortexSettings,
        client: KortexClient,
        pacer: Pacer,
        velocity: VelocityEstimate | None,
    ):
        n = robot.n
        self.robot, self.settings, self.client = robot, settings, client
        self._pacer, self._velocity = pacer, velocity
        self._unwrapper = Unwrapper(robot)
        self._largest_speed = _SPEED_MARGIN * np.degrees(robot.limits.v_max)
        self._epoch_ns = time.time_ns() - time.monotonic_ns()
        self._stamp_ns = self._exchanges = 0  # the latest stamp, and requests since then
        self.latest = ArmState(0, np.zeros(n), np.zeros(n), np.zeros(n), False)
        self.torque, self._held = np.zeros(n), np.zeros(n)
        self.is_commanding = self.is_low_level = False
        self.is_torque = np.zeros(n, dtype=bool)
        self.devices: tuple[int, ...] = ()
        self._feedback: Feedback | None = None
        self._fresh_at = time.monotonic()
        self._frame = self._implausible = self._tolerated = 0
        self._longest = 0.0

    def read(self) -> ArmState:
        """Do the exchange of this cycle and return its state, or the last one as not fresh.

        Raises:
            ArmLost: The arm no longer obeys.
        """
        try:
            feedback = self._exchange()
        except KortexConnectionLost as error:
            self.is_commanding = False
            raise ArmLost(str(error)) from None
        except KortexServerError as error:
            self._require_obedience(error)
            feedback = None
        if feedback is not None:
            return self.latest
        age = time.monotonic() - self._fresh_at
        if age > self.settings.session_timeout:
            self.is_commanding = False
            raise ArmLost(f"no reply of the base for {age:.3f} s")
        return replace(self.latest, ok=False)

    # Taking over and handing back

    def monitor(self) -> Feedback | None:
        """Wait for the next deadline and request feedback; None if none came."""
        self._pacer.wait()
        return self._exchange()

    def cycle(self, tau: Array) -> bool:
        """Wait for the next deadline, send torques (n,) [Nm], and return whether the base has answered to them.

        Raises:
            KortexServerError: The base refuses.
            KortexConnectionLost: No reply came within the session timeout, or low-level servoing has ended.
        """
        self.torque = tau
        self._pacer.wait()
        try:
            feedback = self._exchange()
        except ArmLost as lost:
            raise KortexConnectionLost(lost.reason) from None
        if feedback is None and time.monotonic() - self._fresh_at > self.settings.session_timeout:
            raise KortexConnectionLost(f"no reply for {self.settings.session_timeout:g} s")
        return feedback is not None

    def restart_clock(self) -> None:
        """Count deadlines and the age of the latest state from now on."""
        self._pacer.restart()
        self._fresh_at = time.monotonic()

    def wait_a_period(self) -> None:
        """Wait for the next deadline without sending, while commands are not allowed."""
        self._pacer.wait()
        self.client.keep_alive()

    def begin_commanding(self) -> None:
        """Send commands in requests from now on: actuators follow positions until they are switched to torques.

        Raises:
            KortexConnectionLost: No feedback has come yet.
        """
        if self._feedback is None:
            raise KortexConnectionLost("no feedback has come yet")
        self._held = np.array(self._feedback.q)
        self.is_commanding = self.is_low_level = True
        self._fresh_at = time.monotonic()

    def end_commanding(self) -> None:
        """Only request feedback from now on."""
        self.is_commanding = self.is_low_level = False
        self.is_torque[:] = False

    def health(self) -> dict[str, object]:
        """Return counters for diagnostics, by name."""
        return {
            "arm state": KortexState.UNSPECIFIED.name if self._feedback is None else self._feedback.state.name,
            **self.client.counts.report(),
            "readings not plausible": self._implausible,
            "errors of single requests": self._tolerated,
            "longest time between states [s]": self._longest,
            "TCP answer overdue [s]": self.client.overdue,
            "stamps": self._describe_stamps(),
        }

    # One exchange

    def _exchange(self) -> Feedback | None:
        client = self.client
        client.keep_alive()
        command = self._next_command() if self.is_commanding else None
        self._exchanges += 1
        feedback = client.refresh(command, self.settings.reply_wait)
        if feedback is None or not self._is_plausible(feedback):
            return None
        if self.is_commanding and feedback.state is not KortexState.SERVOING_LOW_LEVEL:
            self.is_commanding = False
            raise ArmLost(f"the arm has left low-level servoing: {describe(feedback, self.robot.joint_names)}")
        self._update(feedback)
        return feedback

    def _require_obedience(self, error: KortexServerError) -> None:
        """Query the state of an arm that refuses a command; a request damaged on its way costs one cycle."""
        text = ""
        with contextlib.suppress(KortexServerError, KortexConnectionLost):
            feedback = self.client.refresh(None, max(REPLY_TIMEOUT, self.settings.reply_wait))
            if feedback is not None:
                is_well = feedback.state is KortexState.SERVOING_LOW_LEVEL and not any(feedback.faults)
                if is_well and self.is_commanding:
                    self._tolerated += 1
                    return
                text = f"; {describe(feedback, self.robot.joint_names)}"
        self.is_commanding = False
        reason = self.client.find_break()
        raise ArmLost(f"{error}{text}{'' if reason is None else f'; {reason}'}")

    def _next_command(self) -> Command:
        """Return the next command; positions follow under torque control, so the following error stays a safeguard."""
        self._frame = (self._frame + 1) % ID_MODULUS
        measured = self._held if self._feedback is None else self._feedback.q
        self._held = np.where(self.is_torque, measured, self._held)
        return Command(self._frame, self._held, self.torque)

    def _is_plausible(self, feedback: Feedback) -> bool:
        last, is_good = self._feedback, bool((np.abs(feedback.v) <= self._largest_speed).all())
        if last is not None:
            elapsed = time.monotonic() - self._fresh_at
            limit = np.clip(self._largest_speed * elapsed, _STEP_FLOOR, _STEP_CEILING)
            is_good &= bool((np.abs(wrap_degrees(feedback.q - last.q)) <= limit).all())
        self._implausible += not is_good
        return is_good

    def _update(self, feedback: Feedback) -> None:
        now = time.monotonic()
        elapsed = now - self._fresh_at if self._feedback is not None else self.settings.period
        self._longest = max(self._longest, elapsed)
        self._fresh_at, self._feedback = now, feedback
        stamp = self._next_stamp()
        q = self._unwrapper.update(feedback.q)
        v = np.radians(feedback.v) if self._velocity is None else self._velocity.update(stamp, q)
        tau = self.robot.sensors.effort_sign * feedback.tau
        is_exact = self._velocity is None or self._velocity.is_exact
        self.latest = ArmState(stamp, q, v, tau, True, self._faults(feedback, elapsed), is_exact=is_exact)

    def _next_stamp(self) -> int:
        """Return the stamp of a reply [ns], which the base does not send; later than all before."""
        if self.settings.stamps is StampSource.FRAMES and self._stamp_ns:
            stamp = self._stamp_ns + self._exchanges * round(1e9 * self.settings.period)
        else:
            stamp = self._epoch_ns + round(1e9 * self.client.sent_at)
        self._stamp_ns, self._exchanges = max(stamp, self._stamp_ns + 1), 0
        return self._stamp_ns

    def _faults(self, feedback: Feedback, elapsed: float) -> tuple[str, ...]:
        if not self.is_commanding:
            return ()
        faults = [
            f"{name} warns of {name_faults(bits)}"
            for name, bits in zip(self.robot.joint_names, feedback.warnings, strict=True)
            if bits
        ]
        if feedback.base_faults:
            faults.append(f"base faults {feedback.base_faults:#x}")
        if elapsed - self.settings.period > self.settings.late_limit:
            faults.append(f"no fresh state for {1e3 * elapsed:.1f} ms")
        if self.client.overdue > self.settings.connection_inactivity_timeout:
            reason = self.client.find_break()
            words = "" if reason is None else f" ({reason})"
            faults.append(f"the base does not answer over TCP{words}: it cannot be handed back in order")
        return tuple(faults)

    def _describe_stamps(self) -> str:
        if self.settings.stamps is StampSource.FRAMES:
            return "one period per frame"
        counts, allowed = self.client.counts, self.robot.sensors.stamp_jitter
        if not counts.answered:
            return "unknown"
        spread = 0.5 * (float(np.quantile(counts.round_trips, 0.99)) - counts.shortest)
        text = f"half the spread of round trips is {1e6 * spread:.0f} us, stamp_jitter of the robot file "
        return text + f"{1e6 * allowed:.0f} us{'' if spread <= allowed else ': too small, bounds may be too tight'}"


def describe(feedback: Feedback, joint_names: tuple[str, ...], state: KortexState | None = None) -> str:
    """Describe state and faults of the arm in words."""
    parts = [(state or feedback.state).name]
    parts += [f"{name}: {name_faults(bits)}" for name, bits in zip(joint_names, feedback.faults, strict=True) if bits]
    if feedback.base_faults:
        parts.append(f"base faults {feedback.base_faults:#x}")
    return ", ".join(parts)
