"""Stops on the path of a trajectory by slowing its clock down, and trajectories from messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.trajectories.base import Array, State, Trajectory, positive_number
from sysid_ros.core.trajectories.families import BezierTrajectory, CycloidTrajectory, FourierTrajectory

_Time = TypeVar("_Time", float, Array)

_PEAK_SLOWDOWN = 1.5
"""Largest ``-d^2 s / dt^2`` times the brake time."""
_BRAKED = "braked:"
_BRAKE_TIMES = ("path_duration", "t_brake", "brake_time")
_Numbers = Mapping[str, ArrayLike]


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
        ParameterOutOfRange: A time is out of range.
    """

    def __init__(self, trajectory: Trajectory, t_brake: float, brake_time: float):
        self.trajectory = trajectory
        self.t_brake = float(t_brake)
        if not 0.0 <= self.t_brake <= trajectory.duration:
            raise ParameterOutOfRange("t_brake [s]", self.t_brake, f"0 to the duration {trajectory.duration}")
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
        points: Number of fractions of the progress, the beginning and the end among them.

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
    """Compute the slowdown of the clock of a path in a stop.

    Args:
        x: Fractions of the brake time that have passed, 0..1.
        brake_time: Time to rest [s].

    Returns:
        Rate of the clock [-] and its derivative [1/s], each like ``x``.
    """
    return 1.0 - x * x * (3.0 - 2.0 * x), -6.0 * x * (1.0 - x) / brake_time


def trajectory_from_dict(kind: str, duration: float, coefficients: _Numbers) -> Trajectory:
    """Make a trajectory from its kind, duration and coefficients; the inverse of reading these three.

    Args:
        kind: Type, "bezier", "fourier", "cycloid" or "braked:" and one of these.
        duration: Duration [s].
        coefficients: Arrays by name; those with more than one axis may come flattened, row by row.

    Returns:
        The trajectory, with the same hash as the one the numbers were read from.

    Raises:
        ParameterOutOfRange: The kind is unknown, a coefficient is missing or unknown, or one cannot be used.
    """
    if kind.startswith(_BRAKED):
        inner = {name: value for name, value in coefficients.items() if name not in _BRAKE_TIMES}
        path_duration, t_brake, brake_time = (_scalar(coefficients, name) for name in _BRAKE_TIMES)
        return BrakedTrajectory(trajectory_from_dict(kind[len(_BRAKED) :], path_duration, inner), t_brake, brake_time)
    if kind not in _KINDS:
        raise ParameterOutOfRange("kind", kind, f"one of {', '.join(_KINDS)}")
    wanted, make = _KINDS[kind]
    if set(coefficients) != set(wanted):
        raise ParameterOutOfRange("coefficients", list(coefficients), f"exactly {', '.join(wanted)}")
    numbers = {key: _scalar(coefficients, key) if key in _SCALARS else value for key, value in coefficients.items()}
    return make(**numbers, duration=duration)


def _cycloid(knots: ArrayLike, period: float, duration: float) -> Trajectory:
    knots = np.asarray(knots, dtype=float)
    intervals = duration / period if period > 0.0 else np.nan
    if not (intervals < np.inf and abs(intervals - round(intervals)) <= 1e-9 * intervals):
        raise ParameterOutOfRange("duration [s]", duration, f"a whole number of periods of {period} s")
    rows = round(intervals) + 1
    if knots.ndim == 1 and knots.size % rows == 0:
        knots = knots.reshape(rows, -1)
    if len(knots) != rows:
        raise ParameterOutOfRange("the shape of knots", knots.shape, f"({rows}, n) for a duration of {duration} s")
    return CycloidTrajectory(knots, period)


_SCALARS = ("base_frequency", "period")
_KINDS: dict[str, tuple[tuple[str, ...], Callable[..., Trajectory]]] = {
    BezierTrajectory.kind: (("q0", "v0", "a0", "q1"), BezierTrajectory),
    FourierTrajectory.kind: (("q_start", "sine", "cosine", "base_frequency"), FourierTrajectory),
    CycloidTrajectory.kind: (("knots", "period"), _cycloid),
}


def _scalar(coefficients: _Numbers, name: str) -> float:
    values = np.asarray(coefficients.get(name, ()), dtype=float)
    if values.size != 1:
        raise ParameterOutOfRange(f"the number of entries of {name}", values.size, "1")
    return float(values.reshape(()))
