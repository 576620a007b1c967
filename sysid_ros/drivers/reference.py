"""Segments of motion, the reference along them and the commanded torque: smooth where their source changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.core.trajectories.braking import BrakedTrajectory
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.loop_types import LoopModel

_EARLY = 1e-3
"""Share of a period that rounding may make the sum of all periods too short."""


_BRAKE_TIME = 0.3
"""Of a motion without a certificate [s]."""


@dataclass(frozen=True)
class Segment:
    """A trajectory that may be followed."""

    trajectory: Trajectory
    """The motion."""
    certificate: Certificate | None
    """Its certificate; None without one, as with a simulated arm under a control law without a proven bound."""
    model: LoopModel | None = None
    """Model the controller uses from its beginning on; None keeps the one in use."""

    @property
    def plan_id(self) -> str | None:
        """Its plan; None without a certificate."""
        return None if self.certificate is None else self.certificate.plan_id

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Bounds of position [rad] and velocity errors [rad/s], (n,) each; infinite without a certificate."""
        if self.certificate is None:
            nothing = np.full(self.trajectory.n, np.inf)
            return nothing, nothing
        return self.certificate.tracking_bound, self.certificate.velocity_bound

    @property
    def brake_time(self) -> float:
        """Time in which it may be braked [s]."""
        return _BRAKE_TIME if self.certificate is None else self.certificate.brake_time


class Reference:
    """Desired position, velocity and acceleration, one period at a time.

    Time is counted in cycles and not read from stamps: a late cycle delays the motion instead of making it jump.

    Attributes:
        q: Desired positions, (n,) [rad].
        v: Desired velocities, (n,) [rad/s].
        a: Desired accelerations, (n,) [rad/s^2].
        path: Positions of the trajectory itself, (n,) [rad]; ``q`` minus the start offset that is still decaying.
        trajectory: Trajectory being followed or braked on; None at rest.
        time: How long it has been followed [s].
    """

    def __init__(self, q: Array, blend_time: float):
        self._blend_time = blend_time
        self.hold(q)

    def hold(self, q: Array) -> None:
        """Rest at a position (n,) [rad]."""
        self.trajectory: Trajectory | None = None
        self.time = 0.0
        self._offset: Array | None = None
        self._offset_time = 0.0
        self._next: tuple[Trajectory, float] | None = None
        self.q = np.array(q, dtype=float)
        self.path = self.q
        self.v, self.a = np.zeros_like(self.q), np.zeros_like(self.q)

    def follow(self, trajectory: Trajectory) -> None:
        """Start a trajectory from rest; where it starts elsewhere, the difference fades out smoothly."""
        offset = self.q - trajectory.start
        self.trajectory, self.time = trajectory, 0.0
        self._offset = offset if np.any(offset) else None
        self._offset_time = 0.0

    def lead(self, q: Array, v: Array, a: Array) -> None:
        """Take the next positions, velocities and accelerations, (n,) each, from the caller, without a trajectory."""
        self.q = self.path = q
        self.v, self.a = v, a

    def continue_with(self, trajectory: Trajectory, at: float) -> None:
        """Let another trajectory take over when the present one has been followed for ``at`` [s]."""
        self._next = (trajectory, at)

    def brake(self, brake_time: float) -> None:
        """Slow the trajectory down along its path until it rests after ``brake_time`` [s]; do nothing at rest.

        A waiting takeover is dropped.
        """
        trajectory, self._next = self.trajectory, None
        if trajectory is not None and not isinstance(trajectory, BrakedTrajectory):
            self.trajectory = BrakedTrajectory(trajectory, min(self.time, trajectory.duration), brake_time)

    @property
    def is_finished(self) -> bool:
        """Whether the trajectory, if any, has come to its end and the start offset is gone."""
        trajectory = self.trajectory
        return trajectory is None or (self.time >= trajectory.duration and self._offset is None)

    @property
    def is_continued(self) -> bool:
        """Whether another trajectory waits to take over."""
        return self._next is not None

    @property
    def progress(self) -> float:
        """Part of the trajectory that is done, 0..1."""
        return 1.0 if self.trajectory is None else min(1.0, self.time / self.trajectory.duration)

    def advance(self, period: float) -> None:
        """Move on by one period [s]."""
        if self.trajectory is None:
            return
        self.time += period
        if self._next is not None and self.time >= self._next[1] - _EARLY * period:
            (self.trajectory, left), self._next = self._next, None
            self.time = max(0.0, self.time - left)
        self.path, self.v, self.a = self.trajectory.evaluate(self.time)
        self.q = self.path
        if self._offset is not None:
            self._add_offset(self._offset, period)

    def _add_offset(self, offset: Array, period: float) -> None:
        self._offset_time += period
        x = self._offset_time / self._blend_time
        if x >= 1.0:
            self._offset = None
            return
        rest, slope, curvature = fade_out(x)
        self.q = self.path + rest * offset
        self.v = self.v + slope / self._blend_time * offset
        self.a = self.a + curvature / self._blend_time**2 * offset


def fade_out(x: float) -> tuple[float, float, float]:
    """Return a factor that falls smoothly from 1 at x = 0 to 0 at x = 1, and its first and second derivative."""
    square = x * x
    return (
        1.0 - square * x * (10.0 - 15.0 * x + 6.0 * square),
        -30.0 * square * (1.0 - x) ** 2,
        -60.0 * x * (1.0 - x) * (1.0 - 2.0 * x),
    )


class TorqueOutput:
    """Blends torques over a time [s], cycle by cycle [s], and keeps their limits (n,) [Nm].

    Attributes:
        last: Torque of the last cycle, (n,) [Nm].
        saturated_cycles: Cycles in which a limit cut the torque.
        blend_left: Time until the present blend ends [s]; 0 without one.
    """

    def __init__(self, tau_max: Array, blend_time: float, period: float):
        self._limit, self._blend_time, self._period = tau_max, blend_time, period
        self._from: Array | None = None
        self._difference = np.zeros_like(tau_max)
        self.blend_left = 0.0
        self.last = np.zeros_like(tau_max)
        self.saturated_cycles = 0

    def start_blend(self, tau: Array) -> None:
        """Let the next torques start from ``tau`` (n,) [Nm]; do nothing where it is not finite."""
        if np.all(np.isfinite(tau)):
            self._from, self.blend_left = np.array(tau), self._blend_time

    def blend(self, tau: Array) -> Array:
        """Return the torque (n,) [Nm] with the rest of the difference to the one blended from."""
        if self.blend_left <= 0.0:
            return tau
        if self._from is not None:
            self._difference, self._from = self._from - tau, None
        share = fade_out(1.0 - self.blend_left / self._blend_time)[0]
        self.blend_left -= self._period
        return tau + share * self._difference

    def limit(self, tau: Array) -> Array:
        """Return the torque (n,) [Nm] within its limits; count cuts and remember the result."""
        self.last = np.minimum(np.maximum(tau, -self._limit), self._limit)
        if np.count_nonzero(self.last != tau):
            self.saturated_cycles += 1
        return self.last
