"""Joint states of an arm under ros2_control: their link, joints picked by name, stamps, velocities.

It does not import ROS; the ROS side implements :class:`JointLink`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple, Protocol

import numpy as np

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import Arm, ArmError, ArmState, Array, Pacing
from sysid_ros.drivers.ros2_control.settings import Ros2ControlSettings
from sysid_ros.drivers.velocity_estimate import VelocityEstimate, VelocitySource, require_velocity_error

_TURN = 2.0 * np.pi
_VELOCITY_HINT = "; with velocity_source: positions velocities are computed"


class JointStates(NamedTuple):
    """One message, whatever its type was: [rad], [rad/s], and [Nm] with the sign of the arm; empty for none."""

    stamp_ns: int
    """Stated time of the measurement [ns]; 0 without one."""
    names: tuple[str, ...]
    """Names of the joints, of the arm or others, in the order of the values."""
    position: Sequence[float]
    velocity: Sequence[float] = ()
    effort: Sequence[float] = ()
    alarm: str | None = None
    """Why the arm does not obey commands; None if it does, or without this field."""


class JointReader:
    """Picks the joints of a model out of messages, by name; ``needs_velocity``: with their velocities."""

    def __init__(self, robot: RobotModel, needs_velocity: bool):
        self._wanted, self._needs_velocity = robot.joint_names, needs_velocity
        self._sign = robot.sensors.effort_sign
        # Drivers report endless joints within one turn.
        self._is_endless = ~np.isfinite(robot.limits.q_lower) & ~np.isfinite(robot.limits.q_upper)
        self._names: tuple[str, ...] = ()
        self._places: list[int] = []
        self._last: Array | None = None

    def is_about(self, states: JointStates) -> bool:
        """Return whether a message is about any joint of the model: grippers and tables may use the same topic."""
        return not set(self._wanted).isdisjoint(states.names)

    def read(self, states: JointStates) -> ArmState:
        """Return the joints of the model, endless ones unwrapped; velocities that are not needed are NaN.

        Raises:
            ArmError: A joint, a field or the stamp is missing, lengths differ, or a position or velocity is no number.
        """
        if states.names != self._names:
            self._find_places(states.names)
        if states.stamp_ns <= 0:
            raise ArmError("joint states", "header.stamp is zero; the arm has to say when it measured")
        q, v = self._pick_finite("position", states, states.position), np.full(len(self._wanted), np.nan)
        if self._needs_velocity:
            v = self._pick_finite("velocity", states, states.velocity)
        tau = self._sign * self._pick("effort", states, states.effort)
        if self._last is not None:
            q = np.where(self._is_endless, q + _TURN * np.round((self._last - q) / _TURN), q)
        self._last = q
        return ArmState(states.stamp_ns, q, v, tau)

    def _find_places(self, names: tuple[str, ...]) -> None:
        missing = [name for name in self._wanted if name not in names]
        if missing:
            raise ArmError(
                "joint states", f"joints {', '.join(missing)} are missing; it names {', '.join(names) or 'none'}"
            )
        twice = sorted({name for name in self._wanted if names.count(name) > 1})
        if twice:
            raise ArmError("joint states", f"joints {', '.join(twice)} are named twice")
        self._names, self._places = names, [names.index(name) for name in self._wanted]

    def _pick(self, field: str, states: JointStates, values: Sequence[float]) -> Array:
        if len(values) != len(states.names):
            hint = _VELOCITY_HINT if field == "velocity" else ""
            raise ArmError("joint states", f"{field} has {len(values)} entries for {len(states.names)} joints{hint}")
        return np.asarray(values, dtype=float)[self._places]

    def _pick_finite(self, field: str, states: JointStates, values: Sequence[float]) -> Array:
        picked = self._pick(field, states, values)
        is_finite = np.isfinite(picked)
        if not is_finite.all():
            joint = int(is_finite.argmin())
            hint = _VELOCITY_HINT if field == "velocity" else ""
            raise ArmError("joint states", f"the {field} of {self._wanted[joint]} is {picked[joint]}{hint}")
        return picked


@dataclass(frozen=True)
class ControllerInfo:
    """Joints of an effort controller, in the order of its commands, and the command interface it writes to."""

    joints: tuple[str, ...]
    interface: str = "effort"


class JointLink(Protocol):
    """The topics of one arm."""

    states_name: str
    """Where states come from, for messages to people."""
    commands_name: str
    """Where commands go; empty where none can be sent."""

    def now(self) -> float:
        """Time on this computer [s]; only differences count."""

    def next(self, timeout: float) -> JointStates | None:
        """Return the next message, after waiting for at most ``timeout`` [s]; None if there was none."""

    def waiting(self) -> int:
        """Return the number of messages that have arrived and were not taken yet."""

    def send(self, torque: Sequence[float], position: Sequence[float]) -> None:
        """Send commands in the order of the controller's joints [Nm], [rad]; not every type has positions."""

    def describe_timeout(self) -> str:
        """Describe the publishers of states, for the message of a timeout."""

    def find_command_problem(self) -> str | None:
        """Return why commands would not arrive, or not only ours; None if they would."""

    def ask_controller(self, timeout: float) -> ControllerInfo | None:
        """Return the parameters of the effort controller; None where it does not answer within ``timeout`` [s]."""

    def switch(self, is_torque: bool, timeout: float) -> str | None:
        """Let the controller manager activate the effort controller, or the one that holds the arm.

        Return the failure; None if it worked, or without such a controller.
        """

    @property
    def has_hold_controller(self) -> bool:
        """Whether there is a controller that holds the arm when ours does not."""

    def close(self) -> None:
        """End the connection."""


OpenLink = Callable[[], JointLink]


_CLOCK_STEP_NS = 1_000_000_000
"""A stamp that is older than the latest by more than this is of a clock that was set back, not a late one."""
_RESTART_STAMPS = 3
"""So many stamps of a clock that was set back are needed to accept it."""
_STATISTICS_SECONDS = 1.0


class Arrival(Enum):
    """Judgement of a stamp: ``NEW``, ``REPEATED``, ``LATE`` (older than the latest), or the first after a reset."""

    NEW = "new"
    REPEATED = "repeated"
    LATE = "late"
    RESTART = "restart"


class StampMonitor:
    """Judges one stamp after the other, nominally a period [s] apart.

    Attributes:
        counts: How many of each kind, and how many states are missing in gaps.
        missed: States missing just before the latest new one [-].
        gap: Time between the two latest new ones [s].
    """

    def __init__(self, period: float):
        self._period_ns = round(period * 1e9)
        self._latest: int | None = None
        self._older: list[int] = []
        self._gaps: deque[int] = deque(maxlen=max(20, round(_STATISTICS_SECONDS / period)))
        self.counts = {**{kind.value: 0 for kind in Arrival}, "missing": 0, "gaps": 0}
        self.missed, self.gap = 0, period

    def judge(self, stamp_ns: int) -> Arrival:
        """Judge a stamp [ns]."""
        arrival = self._judge(stamp_ns)
        self.counts[arrival.value] += 1
        if arrival in (Arrival.NEW, Arrival.RESTART):
            self._take(stamp_ns, arrival is Arrival.RESTART)
        return arrival

    @property
    def missing_share(self) -> float:
        """Share of the states of the last second that are missing [-]."""
        missing = sum(self._gaps)
        return missing / (missing + len(self._gaps)) if self._gaps else 0.0

    def _judge(self, stamp_ns: int) -> Arrival:
        latest = self._latest
        if latest is None or stamp_ns > latest:
            return Arrival.NEW
        if stamp_ns == latest:
            return Arrival.REPEATED
        if latest - stamp_ns < _CLOCK_STEP_NS:
            return Arrival.LATE
        if not self._older or stamp_ns > self._older[-1]:
            self._older.append(stamp_ns)
        return Arrival.RESTART if len(self._older) >= _RESTART_STAMPS else Arrival.LATE

    def _take(self, stamp_ns: int, is_restart: bool) -> None:
        self._older.clear()
        step = self._period_ns if self._latest is None or is_restart else stamp_ns - self._latest
        self._latest = stamp_ns
        self.gap = step * 1e-9
        self.missed = max(0, round(step / self._period_ns) - 1)
        self.counts["missing"] += self.missed
        self.counts["gaps"] += self.missed > 0
        self._gaps.append(self.missed)


def mean_period(stamps_ns: list[int]) -> float:
    """Compute the mean period of at least two increasing stamps [ns], missing ones left out [s].

    The median of the steps gives the whole periods.
    """
    steps = 1e-9 * np.diff(np.array(stamps_ns, dtype=np.int64)).astype(float)
    median = float(np.median(steps))
    return float(steps[steps < 1.5 * median].mean())


class JointStream:
    """Reads states from its link.

    Attributes:
        stamps: Judges their stamps: gaps, missing states.
        alarm: Why the arm does not obey commands, by its latest message; None if it does, or without this field.
        problem: Fault of the latest unusable message; None without any.

    Raises:
        ParameterOutOfRange: Velocities are to be computed, and ``sensors.velocity_error`` promises better ones than
            possible at this period.
    """

    def __init__(self, robot: RobotModel, settings: Ros2ControlSettings, link: JointLink):
        self.link = link
        self.stamps = StampMonitor(settings.period)
        is_computed = settings.velocity is VelocitySource.POSITIONS
        self._reader = JointReader(robot, not is_computed)
        plan = require_velocity_error(robot, settings.period) if is_computed else None
        self._velocity = None if plan is None else VelocityEstimate(plan, settings.period)
        self._received_at = link.now()
        self._others = self._unusable = 0
        self._longest = 0.0
        self.problem: str | None = None
        self.alarm: str | None = None

    @property
    def age(self) -> float:
        """Time since the last new state, or since the beginning [s]."""
        return self.link.now() - self._received_at

    def next(self, timeout: float) -> ArmState | None:
        """Return the next new state, after waiting for at most ``timeout`` [s]; None if there was none."""
        remaining, deadline = timeout, self.link.now() + timeout
        while (states := self.link.next(remaining)) is not None:
            state = self._judge(states)
            remaining = deadline - self.link.now()
            if state is not None or remaining < 0.0:
                return state
        return None

    def describe_timeout(self) -> str:
        """Describe what came instead of usable states."""
        received = []
        if self._unusable:
            received.append(f"{self._unusable} unusable messages, the last one: {self.problem}")
        if self._others:
            received.append(f"{self._others} messages about other joints")
        return "; ".join(received) or self.link.describe_timeout()

    def health(self) -> dict[str, object]:
        """Counters for diagnostics."""
        counts = self.stamps.counts
        return {
            "joint states": self.link.states_name,
            "states received": counts["new"] + counts["restart"],
            "states missing": counts["missing"],
            "gaps": counts["gaps"],
            "states missing lately [-]": self.stamps.missing_share,
            "states repeated": counts["repeated"],
            "states late": counts["late"],
            "clock set back": counts["restart"],
            "messages about other joints": self._others,
            "messages unusable": self._unusable,
            "last unusable": self.problem or "none",
            "longest pause [s]": self._longest,
        }

    def _judge(self, states: JointStates) -> ArmState | None:
        if not self._reader.is_about(states):
            self._others += 1
            return None
        try:
            state = self._reader.read(states)
        except ArmError as error:
            self._unusable += 1
            self.problem = str(error)
            return None
        arrival = self.stamps.judge(state.stamp_ns)
        if arrival not in (Arrival.NEW, Arrival.RESTART):
            return None
        now, velocity, is_next = self.link.now(), self._velocity, arrival is Arrival.NEW
        self._longest, self._received_at = max(self._longest, now - self._received_at), now
        self.alarm, missed = states.alarm, self.stamps.missed
        if velocity is None:
            return replace(state, missed=missed)
        if not is_next:
            velocity.reset()
        v = velocity.update(state.stamp_ns, state.q, is_next)
        return replace(state, v=v, missed=missed, is_exact=velocity.is_exact)


class StreamedArm(Arm):
    """An arm whose states come over topics.

    Args:
        robot: Kinematics, limits, sensors; its ``effort_sign`` turns efforts into joint direction.
        settings: Set-up of the connection.
        open_link: Opens the topics.

    Raises:
        ParameterOutOfRange: Velocities cannot be computed as well as the robot's settings promise.
    """

    pacing = Pacing.CONTROLLER

    def __init__(self, robot: RobotModel, settings: Ros2ControlSettings, open_link: OpenLink):
        if settings.velocity is VelocitySource.POSITIONS:
            require_velocity_error(robot, settings.period)
        self.settings, self.joint_names, self.period = settings, robot.joint_names, settings.period
        self._robot, self._open_link = robot, open_link
        self._link: JointLink | None = None
        self._stream: JointStream | None = None
        self._closed_health: dict[str, object] = {}
        self._last = ArmState(0, np.array(robot.home), np.zeros(robot.n), np.zeros(robot.n), False)

    def close(self) -> None:
        """See :meth:`Arm.close`."""
        if self._link is not None:
            self._closed_health = {**self.health(), "connection": "closed"}
            self._link.close()
        self._link = self._stream = None

    def _require(self, call: str) -> tuple[JointLink, JointStream]:
        if self._link is None or self._stream is None:
            raise ArmError(f"{call} needs a connected arm; call connect() first")
        return self._link, self._stream
