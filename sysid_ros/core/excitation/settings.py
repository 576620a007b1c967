"""What an exciting trajectory may do and how long the search for it may take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from sysid_ros.core.common.errors import ParameterOutOfRange

CRITERIA = ("bounds", "d_optimal", "a_optimal", "condition_number", "weakest_directions")


_ALLOWED: dict[str, Any] = {
    "duration": (0.5, 60.0),
    "harmonics": (2, 20),
    "amplitude": (0.01, math.pi),
    "velocity_fraction": (0.01, 1.0),
    "acceleration_fraction": (0.01, 1.0),
    "torque_fraction": (0.01, 1.0),
    "brake_time": (0.05, 10.0),
    "clearance": (0.0, 1.0),
    "criterion": CRITERIA,
    "window": (0.005, 5.0),
    "samples_per_period": (4, 100),
    "starts": (1, 1000),
    "max_iterations": (1, 10000),
    "time_budget": (0.05, 3600.0),
    "seed": (0, 2**32 - 1),
}


@dataclass(frozen=True)
class ExcitationSettings:
    """Settings of :func:`sysid_ros.core.excitation.planner.plan_excitation`.

    Attributes:
        duration: Duration of the trajectory, one period of its base frequency [s].
        harmonics: Number of harmonics.
        amplitude: Largest distance of a joint from its start position [rad]; keeps the arm from flinging about.
        velocity_fraction: Part of the velocity limits that may be used [-].
        acceleration_fraction: Part of the acceleration limits that may be used [-].
        torque_fraction: Part of the torque limits that the worst model in the boxes may need, in the motion and in
            stops along its path [-].
        brake_time: Time to rest of these stops [s].
        clearance: Distance kept between collision spheres, and to ground and obstacles [m].
        criterion: What is optimised, one of ``CRITERIA`` (see :mod:`sysid_ros.core.excitation.criteria`).
        window: Length of the momentum windows the data will be cut into [s].
        samples_per_period: Samples per period of the highest harmonic at which limits are imposed [-].
        starts: Largest number of random starts [-].
        max_iterations: Iterations per start [-].
        time_budget: Time after which no further start begins and the current one ends [s].
        seed: Seed of the random starts; the same seed gives the same plan unless the time runs out.

    Raises:
        ParameterOutOfRange: A setting is outside its range.
    """

    duration: float = 5.0
    harmonics: int = 5
    amplitude: float = 0.8
    velocity_fraction: float = 0.95
    acceleration_fraction: float = 0.95
    torque_fraction: float = 0.9
    brake_time: float = 0.5
    clearance: float = 0.02
    criterion: str = "bounds"
    window: float = 0.1
    samples_per_period: int = 8
    starts: int = 2
    max_iterations: int = 40
    time_budget: float = 5.0
    seed: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            _check(field.name, getattr(self, field.name), _ALLOWED[field.name])

    def with_duration(self, duration: float) -> ExcitationSettings:
        """Return these settings for another duration [s], with about the same highest frequency.

        Raises:
            ParameterOutOfRange: The duration is outside its range.
        """
        _check("duration", duration, _ALLOWED["duration"])
        fewest, most = _ALLOWED["harmonics"]
        harmonics = min(max(round(self.harmonics * duration / self.duration), fewest), most)
        return replace(self, duration=duration, harmonics=harmonics)

    def with_limit_share(self, share: float) -> ExcitationSettings:
        """Return these settings with a share of their speed and acceleration limits [-].

        Raises:
            ParameterOutOfRange: The share is outside its range.
        """
        _check("limit_share [-]", share, (0.05, 1.0))
        fastest, strongest = self.velocity_fraction * share, self.acceleration_fraction * share
        return replace(self, velocity_fraction=max(fastest, 0.01), acceleration_fraction=max(strongest, 0.01))

    @property
    def samples(self) -> int:
        """Number of samples over the trajectory at which limits are imposed and information is counted."""
        return self.samples_per_period * self.harmonics


def _check(name: str, value: object, allowed: Sequence[object]) -> None:
    if isinstance(allowed[0], str):
        if value not in allowed:
            raise ParameterOutOfRange(name, value, f"one of {', '.join(map(str, allowed))}")
    elif not allowed[0] <= value <= allowed[1]:  # type: ignore[operator]  # false for NaN too
        raise ParameterOutOfRange(name, value, f"{allowed[0]} to {allowed[1]}")
