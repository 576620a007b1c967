"""Settings of the receding-horizon planner."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from sysid_ros.core.common.errors import ParameterOutOfRange

COSTS = ("condition", "determinant", "bounds")

_ALLOWED: dict[str, tuple] = {
    "duration": (0.2, 20.0),
    "planning_time": (0.05, 10.0),
    "k_range": (1e-3, 2.0 * math.pi),
    "cost": COSTS,
    "window": (0.005, 5.0),
    "velocity_fraction": (0.01, 1.0),
    "acceleration_fraction": (0.01, 1.0),
    "torque_fraction": (0.01, 1.0),
    "position_margin": (0.0, 0.5),
    "distance_margin": (0.0, 0.5),
    "brake_time": (0.05, 10.0),
    "samples": (5, 500),
    "prior_error": (1e-6, 10.0),
    "draws": (4, 10000),
    "starts": (1, 100),
    "iterations": (1, 1000),
    "attempts": (1, 100),
    "improvements": (0, 100),
    "good_condition": (1.0, 1e12),
    "call_time": (0.0, 10.0),
    "seed": (0, 2**32 - 1),
}


@dataclass(frozen=True)
class RecedingSettings:
    """Settings of :class:`sysid_ros.core.planning.planner.RecedingPlanner`.

    Attributes:
        duration: Duration t_f of a plan [s].
        planning_time: Time t_p until the next plan takes over [s].
        k_range: Largest distance of a joint's end position from that of its gentlest motion to rest [rad]; joint limits
            make it smaller where they must.
        cost: What plans are chosen for, one of :data:`COSTS`: the condition number of the information (SAFE-ID (30)),
            its determinant, or the expected width of the bounds.
        window: Length of the momentum windows the data will be cut into [s].
        velocity_fraction: Part of the velocity limits that may be used, tracking error included [-].
        acceleration_fraction: Part of the acceleration limits that may be used [-].
        torque_fraction: Part of the torque limits that may be used at the samples, everything included [-].
        position_margin: Distance kept from position limits besides the tracking error [rad].
        distance_margin: Distance kept at the samples besides clearance and tracking error [m].
        brake_time: Time to rest of the stops along the path whose torque is looked at [s].
        samples: Times at which torques and distances are looked at.
        prior_error: Torque error with which the payload's prior counts as measured [Nm]; keeps the cost defined while
            nothing has been measured, see :mod:`sysid_ros.core.planning.costs`.
        draws: Random motions of which the best are starts.
        starts: Starts of the solver.
        iterations: Iterations of the solver per start.
        attempts: Searches for a first plan at most.
        improvements: Steps to better plans at most, while time is left.
        good_condition: Condition number up to which a plan is good enough and not improved.
        call_time: Time that bounding and verifying a candidate is expected to take until it has been measured [s].
        seed: Seed of the random motions; the same seed gives the same plan unless the time runs out.

    Raises:
        ParameterOutOfRange: A setting is outside its range.
    """

    duration: float = 3.0
    planning_time: float = 1.5
    k_range: float = math.pi / 2.0
    cost: str = "condition"
    window: float = 0.1
    velocity_fraction: float = 0.99
    acceleration_fraction: float = 0.99
    torque_fraction: float = 0.98
    position_margin: float = 0.002
    distance_margin: float = 0.003
    brake_time: float = 2.0
    samples: int = 25
    prior_error: float = 0.02
    draws: int = 64
    starts: int = 4
    iterations: int = 12
    attempts: int = 8
    improvements: int = 4
    good_condition: float = 20.0
    call_time: float = 0.3
    seed: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            _check(field.name, getattr(self, field.name), _ALLOWED[field.name])
        if not self.planning_time < self.duration:
            raise ParameterOutOfRange("planning_time [s]", self.planning_time, f"below the duration {self.duration}")


def _check(name: str, value: object, allowed: Sequence[object]) -> None:
    if isinstance(allowed[0], str):
        if value not in allowed:
            raise ParameterOutOfRange(name, value, f"one of {', '.join(map(str, allowed))}")
    elif not allowed[0] <= value <= allowed[1]:  # type: ignore[operator]  # false for NaN too
        raise ParameterOutOfRange(name, value, f"{allowed[0]:g} to {allowed[1]:g}")
