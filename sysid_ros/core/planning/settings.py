"""Settings of the receding-horizon planner."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, setting

COSTS = ("condition", "determinant", "bounds")


@dataclass(frozen=True)
class RecedingSettings(Settings):
    """Settings of :class:`sysid_ros.core.planning.planner.CertifiedPlanner`."""

    duration: float = setting(3.0, "s", lower=0.2, upper=20.0)
    """Duration t_f of a plan, its stop included."""
    planning_time: float = setting(1.5, "s", lower=0.05, upper=10.0)
    """Time t_p after which the next plan takes over; also the time to plan it in."""
    k_range: float = setting(math.pi / 2.0, "rad", lower=1e-3, upper=2.0 * math.pi)
    """Largest distance of a joint's end position from that of its minimum-acceleration stop; joint limits make it
    smaller where they must."""
    cost: str = setting("condition", choices=COSTS)
    """What exciting plans are chosen for: the condition number of the information (SAFE-ID (30)), its determinant, or
    the expected width of the bounds."""
    window: float = setting(0.1, "s", lower=0.005, upper=5.0)
    """Length of the momentum windows the data will be cut into."""
    velocity_fraction: float = setting(0.99, "-", lower=0.01, upper=1.0, library_only=True)
    """Fraction of the velocity limits that may be used, tracking error included."""
    acceleration_fraction: float = setting(0.99, "-", lower=0.01, upper=1.0, library_only=True)
    """Fraction of the acceleration limits that may be used."""
    torque_fraction: float = setting(0.98, "-", lower=0.01, upper=1.0)
    """Fraction of the torque limits that may be used at the samples, everything included."""
    position_margin: float = setting(0.002, "rad", lower=0.0, upper=0.5)
    """Distance plans keep from position limits besides the tracking error; a wide one leaves room for a later plan with
    a less certain payload."""
    distance_margin: float = setting(0.003, "m", lower=0.0, upper=0.5)
    """Distance plans keep to everything besides clearance and tracking error, for the same reason."""
    brake_time: float = setting(2.0, "s", lower=0.05, upper=10.0)
    """Time to rest of the stops along the path whose torque is looked at."""
    samples: int = setting(25, "-", lower=5, upper=500, library_only=True)
    """Times at which torques and distances are looked at."""
    prior_error: float = setting(0.02, "Nm", lower=1e-6, upper=10.0, library_only=True)
    """Torque error with which the payload's prior counts as measured; keeps the cost defined while nothing has been
    measured, see :mod:`sysid_ros.core.planning.costs`."""
    draws: int = setting(64, "-", lower=4, upper=10000, library_only=True)
    """Random motions of which the best are starts."""
    starts: int = setting(4, "-", lower=1, upper=100, library_only=True)
    """Starts of the solver."""
    iterations: int = setting(12, "-", lower=1, upper=1000, library_only=True)
    """Iterations of the solver per start."""
    attempts: int = setting(8, "-", lower=1, upper=100, library_only=True)
    """Largest number of searches for a first plan."""
    improvements: int = setting(4, "-", lower=0, upper=100, library_only=True)
    """Largest number of steps to better plans, while time is left."""
    good_condition: float = setting(20.0, "-", lower=1.0, upper=1e12, library_only=True)
    """Condition number up to which a plan is good enough and not improved."""
    call_time: float = setting(0.3, "s", lower=0.0, upper=10.0, library_only=True)
    """Time that bounding and verifying a candidate is expected to take until it has been measured."""
    seed: int = setting(0, "-", lower=0, upper=2**32 - 1)
    """Seed of the random motions; the same seed gives the same plan unless the time runs out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.planning_time < self.duration:
            raise ParameterOutOfRange("planning_time [s]", self.planning_time, f"below the duration {self.duration}")
