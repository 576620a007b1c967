"""From a message with joints in any order, and with joints of others, to the arrays of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import ArmError, Array

_TURN = 2.0 * np.pi
_VELOCITY_HINT = "; with velocity_source: positions velocities are computed"


class JointStates(NamedTuple):
    """One message, whatever its type was.

    Attributes:
        stamp_ns: When the arm says it was measured [ns]; 0 where it does not say.
        names: Names of the joints, of the arm or others.
        position: Positions in their order [rad]; empty for none. So are the others.
        velocity: Velocities [rad/s].
        effort: Efforts [Nm], with the sign of the arm.
        alarm: Why the arm does not obey commands; empty where it does or does not say.
    """

    stamp_ns: int
    names: tuple[str, ...]
    position: Sequence[float]
    velocity: Sequence[float] = ()
    effort: Sequence[float] = ()
    alarm: str = ""


class JointStatesUnusable(ArmError):
    """A message that does not say what is needed of all joints.

    Args:
        reason: What is missing, and what was there.
    """

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(f"joint states: {reason}")


class Reading(NamedTuple):
    """What a message says of the joints of the model. Arrays are (n,); efforts may be NaN.

    Attributes:
        stamp_ns: When it was measured [ns].
        q: Positions, unwrapped where the joint turns without end [rad].
        v: Velocities [rad/s]; None where they are not asked for.
        tau: Efforts in joint direction [Nm].
    """

    stamp_ns: int
    q: Array
    v: Array | None
    tau: Array


class JointReader:
    """Picks the joints of a model out of messages, by name.

    Args:
        robot: Joint names, limits, sign of the effort.
        needs_velocity: Whether velocities are taken from the messages.
    """

    def __init__(self, robot: RobotModel, needs_velocity: bool):
        self._wanted = robot.joint_names
        self._needs_velocity = needs_velocity
        self._sign = robot.sensors.effort_sign
        # Drivers report endless joints within one turn.
        self._is_endless = ~np.isfinite(robot.limits.q_lower) & ~np.isfinite(robot.limits.q_upper)
        self._names: tuple[str, ...] = ()
        self._places: list[int] = []
        self.reset()

    def reset(self) -> None:
        """Forgets how often endless joints have turned."""
        self._last: Array | None = None

    def is_about(self, states: JointStates) -> bool:
        """Whether a message is about any joint of the model: grippers and tables may use the same topic."""
        return not set(self._wanted).isdisjoint(states.names)

    def read(self, states: JointStates) -> Reading:
        """The joints of the model.

        Raises:
            JointStatesUnusable: A joint, a field or the stamp is missing, lengths differ, or a position or velocity is
                not a number.
        """
        if states.names != self._names:
            self._find_places(states.names)
        if states.stamp_ns <= 0:
            raise JointStatesUnusable("header.stamp is zero; the arm has to say when it measured")
        q = self._pick_finite("position", states, states.position)
        v = self._pick_finite("velocity", states, states.velocity) if self._needs_velocity else None
        tau = self._sign * self._pick("effort", states, states.effort)
        return Reading(states.stamp_ns, self._unwrap(q), v, tau)

    def _find_places(self, names: tuple[str, ...]) -> None:
        missing = [name for name in self._wanted if name not in names]
        if missing:
            raise JointStatesUnusable(f"joints {', '.join(missing)} are missing; it names {', '.join(names) or 'none'}")
        twice = sorted({name for name in self._wanted if names.count(name) > 1})
        if twice:
            raise JointStatesUnusable(f"joints {', '.join(twice)} are named twice")
        self._names, self._places = names, [names.index(name) for name in self._wanted]

    def _pick(self, field: str, states: JointStates, values: Sequence[float]) -> Array:
        if len(values) != len(states.names):
            hint = _VELOCITY_HINT if field == "velocity" else ""
            raise JointStatesUnusable(f"{field} has {len(values)} entries for {len(states.names)} joints{hint}")
        return np.asarray(values, dtype=float)[self._places]

    def _pick_finite(self, field: str, states: JointStates, values: Sequence[float]) -> Array:
        picked = self._pick(field, states, values)
        is_finite = np.isfinite(picked)
        if not is_finite.all():
            joint = int(is_finite.argmin())
            hint = _VELOCITY_HINT if field == "velocity" else ""
            raise JointStatesUnusable(f"the {field} of {self._wanted[joint]} is {picked[joint]}{hint}")
        return picked

    def _unwrap(self, q: Array) -> Array:
        if self._last is not None:
            q = np.where(self._is_endless, q + _TURN * np.round((self._last - q) / _TURN), q)
        self._last = q
        return q
