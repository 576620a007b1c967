"""Limits of an exciting trajectory and of the search for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, setting

CRITERIA = ("bounds", "d_optimal", "condition_number")
PARAMETERS = MEASURED, INERTIAL_ONLY = "measured", "inertial"
TARGETS = PAYLOAD_TARGET, ARM_TARGET = "payload", "arm"
_FEWEST_HARMONICS, MOST_HARMONICS = 2, 20
_FASTER = 1.5
"""How much higher the highest frequency of slow motions may be."""


@dataclass(frozen=True)
class ExcitationSettings(Settings):
    """Settings of :func:`sysid_ros.core.excitation.planner.plan_excitation`."""

    duration: float = setting(5.0, "s", lower=0.5, upper=60.0)
    """Duration of the trajectory, one period of its base frequency."""
    harmonics: int = setting(5, "-", lower=_FEWEST_HARMONICS, upper=MOST_HARMONICS)
    """Number of harmonics."""
    amplitude: float = setting(0.8, "rad", lower=0.01, upper=math.pi)
    """Largest distance of a joint from its start position; keeps the arm from flinging about."""
    velocity_fraction: float = setting(0.95, "-", lower=0.01, upper=1.0)
    """Fraction of the velocity limits that the desired motion may use; tracking errors may use the rest of them."""
    acceleration_fraction: float = setting(0.95, "-", lower=0.01, upper=1.0)
    """Fraction of the acceleration limits that may be used."""
    torque_fraction: float = setting(0.9, "-", lower=0.01, upper=1.0)
    """Fraction of the torque limits that the worst model in the boxes may need, in the motion and in stops along
    its path."""
    brake_time: float = setting(0.5, "s", lower=0.05, upper=10.0)
    """Time to rest of these stops."""
    clearance: float = setting(0.02, "m", lower=0.0, upper=1.0)
    """Distance kept between collision spheres, and to ground and obstacles."""
    target: str = setting(PAYLOAD_TARGET, choices=TARGETS)
    """Target: the payload, or the base parameters of the whole arm with its load."""
    parameters: str = setting(MEASURED, choices=PARAMETERS)
    """Base parameters of a whole arm that count: all that the torque sensor sees (measured), or the inertial ones
    alone."""
    criterion: str = setting("bounds", choices=CRITERIA)
    """The criterion, see docs/theory/excitation.md."""
    window: float = setting(0.1, "s", lower=0.005, upper=5.0)
    """Length of the estimator's momentum windows."""
    samples_per_period: int = setting(8, "-", lower=4, upper=100)
    """Samples per period of the highest harmonic at which limits are imposed."""
    starts: int = setting(2, "-", lower=1, upper=1000)
    """Largest number of random starts."""
    max_iterations: int = setting(120, "-", lower=1, upper=10000)
    """Iterations of the solver per start and stage: without distances (for a whole arm), with them, with a heavier
    penalty."""
    wanted_condition_number: float = setting(0.0, "-", lower=0.0, upper=1e6)
    """The search for a whole arm ends with a proven motion that has, with those before it, this condition number; 0:
    best of all starts and iterations. Only for the criterion condition_number."""
    time_budget: float = setting(5.0, "s", lower=0.05, upper=3600.0)
    """Time after which no further start begins and the current one ends."""
    seed: int = setting(0, "-", lower=0, upper=2**32 - 1, library_only=True)
    """Seed of the random starts; the same seed gives the same plan unless the time runs out."""

    def with_duration(self, duration: float) -> ExcitationSettings:
        """Return these settings for another duration [s], with harmonics that about keep the highest frequency.

        Raises:
            ParameterOutOfRange: The duration is outside its range.
        """
        stretched = replace(self, duration=duration)
        harmonics = round(self.harmonics * duration / self.duration)
        return replace(stretched, harmonics=min(max(harmonics, _FEWEST_HARMONICS), MOST_HARMONICS))

    def with_limit_share(self, share: float) -> ExcitationSettings:
        """Return these settings with only a share of their speed and acceleration limits [-].

        Raises:
            ParameterOutOfRange: The share is outside its range.
        """
        if not 0.05 <= share <= 1.0:
            raise ParameterOutOfRange("limit_share [-]", share, "from 0.05 to 1")
        fastest, strongest = self.velocity_fraction * share, self.acceleration_fraction * share
        return replace(self, velocity_fraction=max(fastest, 0.01), acceleration_fraction=max(strongest, 0.01))

    def with_speed_share(self, share: float) -> ExcitationSettings:
        """Return these settings with only a share of their speed limits [-], and up to half as many harmonics more.

        Slow motions show inertias by accelerations, which are larger at higher frequencies for the same speed.

        Raises:
            ParameterOutOfRange: The share is outside its range.
        """
        if not 0.05 <= share <= 1.0:
            raise ParameterOutOfRange("speed_share [-]", share, "from 0.05 to 1")
        most = max(self.harmonics, MOST_HARMONICS)
        harmonics = min(round(self.harmonics / max(share, 1.0 / _FASTER)), most)
        return replace(self, velocity_fraction=max(self.velocity_fraction * share, 0.01), harmonics=harmonics)

    @classmethod
    def for_arm(cls, duration: float = 20.0, **changes: object) -> ExcitationSettings:
        """Return settings for a whole arm: whole range of its joints, harmonics up to 0.5 Hz, condition number of 20.

        Args:
            duration: Duration of a motion [s].
            **changes: Other settings.

        Raises:
            ParameterOutOfRange: One of them is out of range.
        """
        harmonics = min(max(round(0.5 * duration), _FEWEST_HARMONICS), MOST_HARMONICS)
        values: dict[str, Any] = {
            "target": ARM_TARGET,
            "criterion": "condition_number",
            "duration": duration,
            "harmonics": harmonics,
            "amplitude": math.pi,
            "velocity_fraction": 0.995,
            "acceleration_fraction": 0.995,
            "torque_fraction": 0.97,
            "starts": 20,
            "max_iterations": 400,
            "wanted_condition_number": 20.0,
            "time_budget": 60.0,
            **changes,
        }
        return cls(**values)

    @property
    def enough(self) -> float:
        """Condition number with which a search may end [-]; 0 without one."""
        counts = self.target == ARM_TARGET and self.criterion == "condition_number"
        return self.wanted_condition_number if counts else 0.0

    @property
    def samples(self) -> int:
        """Number of samples over the trajectory at which limits are imposed and information is counted."""
        return self.samples_per_period * self.harmonics
