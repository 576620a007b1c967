"""Stopping on the path of a trajectory by slowing its clock down."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from sysid_ros.core.trajectories.base import Array, InvalidTrajectory, State, Trajectory, positive_number

_Time = TypeVar("_Time", float, Array)

_PEAK_SLOWDOWN = 1.5
"""Largest ``-d^2 s / dt^2`` times the brake time."""


class BrakedTrajectory(Trajectory):
    """The same path, but from ``t_brake`` on its clock ``s`` slows down and stands still after ``brake_time``.

    ``ds/dt = 1 - 3 x^2 + 2 x^3`` with ``x = (t - t_brake) / brake_time``, so s is twice continuously differentiable and
    moves on by half the brake time: ``v = v_path ds/dt`` never exceeds that of the path and
    ``a = a_path (ds/dt)^2 + v_path d^2s/dt^2`` stays within ``|a_path| + 1.5 |v_path| / brake_time``.

    Args:
        trajectory: Trajectory to stop.
        t_brake: Time braking starts [s], from 0 to the duration of the trajectory.
        brake_time: Time until rest [s].

    Raises:
        InvalidTrajectory: A time is out of range.
    """

    def __init__(self, trajectory: Trajectory, t_brake: float, brake_time: float):
        self.trajectory = trajectory
        self.t_brake = float(t_brake)
        if not 0.0 <= self.t_brake <= trajectory.duration:
            raise InvalidTrajectory("t_brake [s]", self.t_brake, f"0 to the duration {trajectory.duration}")
        self.brake_time = positive_number("brake_time [s]", brake_time)
        self.n = trajectory.n
        self.duration = self.t_brake + self.brake_time
        self.kind = f"braked:{trajectory.kind}"

    def evaluate(self, t: float) -> State:
        """See :meth:`Trajectory.evaluate`."""
        if t < self.t_brake:
            return self.trajectory.evaluate(t)
        clock, rate, slowdown = self._clock(min((t - self.t_brake) / self.brake_time, 1.0))
        q, v, a = self.trajectory.evaluate(clock)
        return q, v * rate, a * (rate * rate) + v * slowdown

    def sample(self, times: ArrayLike) -> State:
        """See :meth:`Trajectory.sample`."""
        t = np.asarray(times, dtype=float)
        clock, rate, slowdown = self._clock(np.clip((t - self.t_brake) / self.brake_time, 0.0, 1.0))
        before = t < self.t_brake
        clock = np.where(before, t, clock)
        q, v, a = self.trajectory.sample(clock)
        return q, v * rate[:, None], a * rate[:, None] ** 2 + v * slowdown[:, None]

    def position_extrema(self) -> tuple[Array, Array]:
        """See :meth:`Trajectory.position_extrema`; those of the whole path, as the arm stays on it."""
        return self.trajectory.position_extrema()

    def velocity_extrema(self) -> tuple[Array, Array]:
        """See :meth:`Trajectory.velocity_extrema`; those of the path with 0 included."""
        lower, upper = self.trajectory.velocity_extrema()
        return np.minimum(lower, 0.0), np.maximum(upper, 0.0)

    def acceleration_extrema(self) -> tuple[Array, Array]:
        """See :meth:`Trajectory.acceleration_extrema`; the sum of the extremes of the two terms."""
        lower, upper = self.trajectory.acceleration_extrema()
        slowest, fastest = self.velocity_extrema()
        peak = _PEAK_SLOWDOWN / self.brake_time
        return np.minimum(lower, 0.0) - peak * fastest, np.maximum(upper, 0.0) - peak * slowest

    @property
    def coefficients(self) -> dict[str, Array]:
        """Those of the trajectory, its duration and the two times, [s] each (1,)."""
        times = {"path_duration": self.trajectory.duration, "t_brake": self.t_brake, "brake_time": self.brake_time}
        return {**self.trajectory.coefficients, **{name: np.array([value]) for name, value in times.items()}}

    def _clock(self, x: _Time) -> tuple[_Time, _Time, _Time]:
        """Compute path time [s], its rate [-] and the slowdown [1/s] at the fraction x of the brake time."""
        rate, slowdown = clock_rates(x, self.brake_time)
        return self.t_brake + self.brake_time * (x - x**3 + 0.5 * x**4), rate, slowdown


def slowdown_states(on_path: State, brake_time: float, points: int) -> State:
    """Compute the states of stops that pass given positions of a path.

    A stop may pass a position at any fraction of its progress; at each it has a known rate and slowdown of the clock.

    Args:
        on_path: Positions, velocities and accelerations of the path, each (N, n).
        brake_time: Time to rest of the stops [s].
        points: Fractions of the progress that are looked at, the beginning and the end among them.

    Returns:
        Positions, velocities and accelerations, each (points N, n).
    """
    q, v, a = on_path
    progress: Array = np.linspace(0.0, 1.0, points)[:, None, None]
    rate, slowdown = clock_rates(progress, brake_time)
    shape = (-1, q.shape[1])
    velocity, acceleration = (v * rate).reshape(shape), (a * rate**2 + v * slowdown).reshape(shape)
    return np.tile(q, (points, 1)), velocity, acceleration


def clock_rates(x: _Time, brake_time: float) -> tuple[_Time, _Time]:
    """Compute how the clock of a path slows down in a stop.

    Args:
        x: Fractions of the brake time that have passed, 0..1.
        brake_time: Time to rest [s].

    Returns:
        Rate of the clock [-] and its derivative [1/s], each like ``x``.
    """
    return 1.0 - x * x * (3.0 - 2.0 * x), -6.0 * x * (1.0 - x) / brake_time
