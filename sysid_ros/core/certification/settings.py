"""Settings of the verifier."""

from __future__ import annotations

from dataclasses import dataclass

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, setting


@dataclass(frozen=True)
class VerifierSettings(Settings):
    """What a plan may use, and how finely its time is divided."""

    torque_fraction: float = setting(1.0, "-", lower=0.01, upper=1.0)
    """Fraction of the torque limits that may be used."""
    brake_times: tuple[float, ...] = setting((0.5, 0.8, 1.2, 2.0), "s", lower=0.01, upper=10.0)
    """Times to rest of stops along the path that are tried, ascending; the first that passes is noted, and a plan none
    of them can stop is rejected."""
    piece: float = setting(0.15, "s", above=0.0, upper=1.0, library_only=True)
    """Longest piece of time."""
    shortest_piece: float = setting(0.002, "s", lower=1e-5, upper=0.1, library_only=True)
    """A piece this short whose bound still breaks a limit is not divided further."""
    rate_tolerance: float = setting(0.01, "-", above=0.0, below=1.0, library_only=True)
    """Share of a velocity, acceleration or torque limit by which a margin may be underestimated for want of division,
    where the plan passes anyway."""
    distance_tolerance: float = setting(0.005, "m", above=0.0, below=1.0, library_only=True)
    """The same of distances, and of distances to position limits [rad]."""
    validity: float = setting(60.0, "s", above=0.0, upper=86400.0)
    """How long a certificate is valid."""

    def __post_init__(self) -> None:
        super().__post_init__()
        times = self.brake_times
        if any(earlier >= later for earlier, later in zip(times, times[1:], strict=False)):
            raise ParameterOutOfRange("brake_times [s]", times, "ascending")
