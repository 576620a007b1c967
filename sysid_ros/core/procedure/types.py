"""Settings, progress, outcome and errors of the identification procedure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate


class IdentificationErrorCode(IntEnum):
    """Why an identification ended without an estimate; the same numbers as in the ``Identify`` action."""

    NONE = 0
    BUSY = 1
    NO_SAMPLES = 2
    DRIVER_NOT_READY = 3
    PLAN_FAILED = 4
    CERTIFICATE_REFUSED = 5
    EXECUTION_FAILED = 6
    INCONSISTENT = 7
    CANCELED = 8
    TIMEOUT = 9
    INTERNAL = 10
    INVALID_GOAL = 11
    RESULTS_NOT_WRITTEN = 12
    NO_WINDOWS = 13
    NOT_IDENTIFIED = 14
    INTERRUPTED = 15


class StopUnconfirmed(SysidError):
    """The arm was to brake, or could not be commanded, and its rest is not confirmed."""


class IdentificationFailed(SysidError):
    """The procedure ended without a valid result.

    Args:
        code: Why, as a number.
        text: Why, in a sentence.
        stop_unconfirmed: Why the arm's rest is not confirmed; None if it is.
    """

    def __init__(self, code: IdentificationErrorCode, text: str, stop_unconfirmed: StopUnconfirmed | None = None):
        self.code = code
        self.stop_unconfirmed = stop_unconfirmed
        super().__init__(text)


class Phase(IntEnum):
    """Phase of the procedure; the same numbers as in the feedback of the ``Identify`` action."""

    WAITING = 0
    PLANNING = 1
    CERTIFYING = 2
    MOVING = 3
    ESTIMATING = 4
    REPORTING = 5
    STOPPING = 6


class TareStep(IntEnum):
    """Step of a tare when the estimator is reset; the same numbers as in the service ``ResetEstimator``."""

    KEEP = 0
    BEGIN = 1
    END = 2


LEAST_POSTURES, MOST_POSTURES = 2, 6
"""Postures of the strategy "postures"; the least is the default."""
STRATEGIES = ("receding", "periodic", "postures", "observe")


@dataclass(frozen=True)
class IdentificationSettings(Settings):
    """Settings of the user."""

    strategy: str = setting("receding", choices=STRATEGIES)
    """receding: certified plans that take over from each other in motion (SAFE-ID Algorithm 2); periodic: trajectories
    of the excitation planner that end at rest, certified only where the payload is known to about a tenth;
    postures: slow motions through a few postures and back; observe: others move the arm."""
    trajectories: int = setting(0, "-", lower=0, upper=100)
    """Largest number of exciting trajectories; 0: as many as the time allows. With postures: motions, two for each."""
    max_motion_time: float = setting(15.0, "s", above=0.0, upper=600.0)
    """Largest total time of motion of one goal; monitoring time of an arm under another controller."""
    trajectory_duration: float = setting(6.0, "s", lower=1.0, upper=30.0)
    """Duration of one periodic trajectory."""
    target_mass_width: float = setting(0.0, "kg", lower=0.0, upper=1000.0)
    """Stop as soon as the mass interval is this narrow; 0 never stops early."""
    shrink_threshold: float = setting(0.02, "-", lower=0.0, below=1.0)
    """Stop when a trajectory has shrunk no interval by more than this fraction; 0 never stops early."""
    weighing_time: float = setting(1.0, "s", lower=0.0, upper=60.0)
    """Time at rest before the first motion, in which gravity narrows the payload's box; 0 starts at once."""
    settle_time: float = setting(1.2, "s", lower=0.0, upper=10.0)
    """Time at rest after a motion that still counts as data; a motion from rest has a tracking bound only after about a
    second."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.strategy == "periodic" and self.trajectory_duration > self.max_motion_time:
            allowed = f"at most max_motion_time = {self.max_motion_time} s"
            raise ParameterOutOfRange("trajectory_duration [s]", self.trajectory_duration, allowed)
        postures, odd = divmod(self.trajectories or 2 * LEAST_POSTURES, 2)
        if self.strategy == "postures" and (odd or not LEAST_POSTURES <= postures <= MOST_POSTURES):
            allowed = f"with postures twice their number, which is {LEAST_POSTURES} to {MOST_POSTURES}; or 0"
            raise ParameterOutOfRange("trajectories", self.trajectories, allowed)


@dataclass(frozen=True)
class Progress:
    """One line of progress.

    Attributes:
        phase: The phase.
        text: In words.
        progress: Part of the whole that is done, 0..1.
        trajectory: Number of the trajectory, from 1; 0 before the first.
        trajectories: Largest number of them.
        estimate: Latest estimate, None before the first.
    """

    phase: Phase
    text: str
    progress: float
    trajectory: int
    trajectories: int
    estimate: ParameterEstimate | None


@dataclass(frozen=True)
class Collection:
    """Motions that were made for their data.

    Attributes:
        plans: The plans that were executed.
        motion_time: Total time of motion [s].
        stop_reason: Stop rule that ended them, for people.
    """

    plans: tuple[CertifiedPlan, ...]
    motion_time: float
    stop_reason: str


@dataclass(frozen=True)
class Identification(Collection):
    """Outcome of a successful procedure: its motions and the final estimate."""

    estimate: ParameterEstimate
