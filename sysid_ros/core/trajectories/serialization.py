"""All trajectory types in one place, and how to make one from what came over the wire."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from sysid_ros.core.trajectories.base import InvalidTrajectory, Trajectory
from sysid_ros.core.trajectories.bezier import BezierTrajectory
from sysid_ros.core.trajectories.braking import BrakedTrajectory
from sysid_ros.core.trajectories.fourier import FourierTrajectory

__all__ = [
    "BezierTrajectory",
    "BrakedTrajectory",
    "FourierTrajectory",
    "InvalidTrajectory",
    "Trajectory",
    "trajectory_from_dict",
]

_BRAKED = "braked:"
_COEFFICIENTS = {
    BezierTrajectory.kind: ("q0", "v0", "a0", "q1"),
    FourierTrajectory.kind: ("q_start", "sine", "cosine", "base_frequency"),
}


def trajectory_from_dict(kind: str, duration: float, coefficients: Mapping[str, ArrayLike]) -> Trajectory:
    """Makes a trajectory from its kind, duration and coefficients; the inverse of reading these three.

    Args:
        kind: Type, "bezier", "fourier" or "braked:" and one of these.
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
    if kind not in _COEFFICIENTS:
        raise InvalidTrajectory("kind", repr(kind), f"one of {', '.join(_COEFFICIENTS)}")
    wanted = _COEFFICIENTS[kind]
    if set(coefficients) != set(wanted):
        raise InvalidTrajectory("coefficients", ", ".join(coefficients) or "empty", f"exactly {', '.join(wanted)}")
    if kind == BezierTrajectory.kind:
        return BezierTrajectory(*(coefficients[name] for name in wanted), duration=duration)
    frequency = _scalar(coefficients, "base_frequency")
    return FourierTrajectory(*(coefficients[name] for name in wanted[:-1]), frequency, duration)


_BRAKE_TIMES = ("path_duration", "t_brake", "brake_time")


def _scalar(coefficients: Mapping[str, ArrayLike], name: str) -> float:
    values = np.asarray(coefficients.get(name, ()), dtype=float)
    if values.size != 1:
        raise InvalidTrajectory(f"the number of entries of {name}", values.size, "1")
    return float(values.reshape(()))
