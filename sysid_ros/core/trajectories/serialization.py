"""All trajectory types in one place, and how to make one from what came over the wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from sysid_ros.core.trajectories.base import InvalidTrajectory, Trajectory
from sysid_ros.core.trajectories.bezier import BezierTrajectory
from sysid_ros.core.trajectories.braking import BrakedTrajectory
from sysid_ros.core.trajectories.cycloid import CycloidTrajectory
from sysid_ros.core.trajectories.fourier import FourierTrajectory

__all__ = [
    "BezierTrajectory",
    "BrakedTrajectory",
    "CycloidTrajectory",
    "FourierTrajectory",
    "InvalidTrajectory",
    "Trajectory",
    "trajectory_from_dict",
]

_BRAKED = "braked:"
_BRAKE_TIMES = ("path_duration", "t_brake", "brake_time")
_Numbers = Mapping[str, ArrayLike]


def trajectory_from_dict(kind: str, duration: float, coefficients: _Numbers) -> Trajectory:
    """Make a trajectory from its kind, duration and coefficients; the inverse of reading these three.

    Args:
        kind: Type, "bezier", "fourier", "cycloid" or "braked:" and one of these.
        duration: Duration [s].
        coefficients: Arrays by name; those with more than one axis may come flattened, row by row.

    Returns:
        The trajectory, with the same hash as the one the numbers were read from.

    Raises:
        InvalidTrajectory: The kind is unknown, a coefficient is missing or unknown, or one cannot be used.
    """
    if kind.startswith(_BRAKED):
        inner = {name: value for name, value in coefficients.items() if name not in _BRAKE_TIMES}
        path_duration, t_brake, brake_time = (_scalar(coefficients, name) for name in _BRAKE_TIMES)
        return BrakedTrajectory(trajectory_from_dict(kind[len(_BRAKED) :], path_duration, inner), t_brake, brake_time)
    if kind not in _KINDS:
        raise InvalidTrajectory("kind", repr(kind), f"one of {', '.join(_KINDS)}")
    wanted, make = _KINDS[kind]
    if set(coefficients) != set(wanted):
        raise InvalidTrajectory("coefficients", ", ".join(coefficients) or "empty", f"exactly {', '.join(wanted)}")
    return make(coefficients, duration)


def _bezier(numbers: _Numbers, duration: float) -> Trajectory:
    return BezierTrajectory(numbers["q0"], numbers["v0"], numbers["a0"], numbers["q1"], duration)


def _fourier(numbers: _Numbers, duration: float) -> Trajectory:
    frequency = _scalar(numbers, "base_frequency")
    return FourierTrajectory(numbers["q_start"], numbers["sine"], numbers["cosine"], frequency, duration)


def _cycloid(numbers: _Numbers, duration: float) -> Trajectory:
    period, knots = _scalar(numbers, "period"), np.asarray(numbers["knots"], dtype=float)
    intervals = duration / period if period > 0.0 else np.nan
    if not (intervals < np.inf and abs(intervals - round(intervals)) <= _ROUNDING * intervals):
        raise InvalidTrajectory("duration [s]", duration, f"a whole number of periods of {period} s")
    rows = round(intervals) + 1
    if knots.ndim == 1 and knots.size % rows == 0:
        knots = knots.reshape(rows, -1)
    if len(knots) != rows:
        raise InvalidTrajectory("the shape of knots", knots.shape, f"({rows}, n) for a duration of {duration} s")
    return CycloidTrajectory(knots, period)


_ROUNDING = 1e-9
_KINDS: dict[str, tuple[tuple[str, ...], Callable[[_Numbers, float], Trajectory]]] = {
    BezierTrajectory.kind: (("q0", "v0", "a0", "q1"), _bezier),
    FourierTrajectory.kind: (("q_start", "sine", "cosine", "base_frequency"), _fourier),
    CycloidTrajectory.kind: (("knots", "period"), _cycloid),
}


def _scalar(coefficients: _Numbers, name: str) -> float:
    values = np.asarray(coefficients.get(name, ()), dtype=float)
    if values.size != 1:
        raise InvalidTrajectory(f"the number of entries of {name}", values.size, "1")
    return float(values.reshape(()))
