"""Settings, progress, outcome and errors of the identification procedure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.procedure.plan import CertifiedPlan


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


class StopUnconfirmed(SysidError):
    """The arm was told to brake, or could not be told, and nobody has said that it rests."""


class IdentificationFailed(SysidError):
    """The procedure ended without a result it can stand for.

    Args:
        code: Why, as a number.
        text: Why, in a sentence.
        stop_unconfirmed: Why nobody knows whether the arm has come to rest since; None if it has.
    """

    def __init__(self, code: IdentificationErrorCode, text: str, stop_unconfirmed: StopUnconfirmed | None = None):
        self.code = code
        self.stop_unconfirmed = stop_unconfirmed
        super().__init__(text)


class Phase(IntEnum):
    """Where the procedure is; the same numbers as in the feedback of the ``Identify`` action."""

    WAITING = 0
    PLANNING = 1
    CERTIFYING = 2
    MOVING = 3
    ESTIMATING = 4
    REPORTING = 5
    STOPPING = 6


STRATEGIES = ("receding", "periodic", "observe")


@dataclass(frozen=True)
class IdentificationSettings:
    """What the user asks for.

    Attributes:
        strategy: How the arm is moved, one of :data:`STRATEGIES`: "receding" by plans that take over from each other in
            motion (SAFE-ID Algorithm 2), "periodic" by trajectories that end at rest, "observe" not at all: somebody
            else moves it, and is watched.
        trajectories: Largest number of exciting trajectories; 0 for as many as the time allows.
        max_motion_time: Largest total time of motion [s]; how long an arm is watched that somebody else moves.
        trajectory_duration: Duration of one periodic trajectory [s].
        target_mass_width: Stop as soon as the mass interval is this narrow [kg]; 0 asks for all trajectories.
        shrink_threshold: Stop when a trajectory has shrunk no interval by more than this fraction [-].
        weighing_time: Time at rest before the first motion [s]: what gravity alone tells of the payload already narrows
            the box that the controller and the planners must be ready for; 0 starts at once.
        settle_time: Time at rest after a motion that still counts as data [s]. A motion from rest has a tracking bound
            only where the controller has settled, which takes about a second.
    """

    strategy: str = "receding"
    trajectories: int = 0
    max_motion_time: float = 15.0
    trajectory_duration: float = 6.0
    target_mass_width: float = 0.0
    shrink_threshold: float = 0.02
    weighing_time: float = 1.0
    settle_time: float = 1.2

    def __post_init__(self) -> None:
        checks = (
            ("strategy", self.strategy, self.strategy in STRATEGIES, f"one of {', '.join(STRATEGIES)}"),
            ("trajectories", self.trajectories, 0 <= self.trajectories <= 100, "0 to 100"),
            ("max_motion_time [s]", self.max_motion_time, 0.0 < self.max_motion_time <= 600.0, "above 0, at most 600"),
            ("trajectory_duration [s]", self.trajectory_duration, 1.0 <= self.trajectory_duration <= 30.0, "1 to 30"),
            ("target_mass_width [kg]", self.target_mass_width, 0.0 <= self.target_mass_width < np.inf, "0 or more"),
            ("shrink_threshold [-]", self.shrink_threshold, 0.0 <= self.shrink_threshold < 1.0, "0 to below 1"),
            ("weighing_time [s]", self.weighing_time, 0.0 <= self.weighing_time <= 60.0, "0 to 60"),
            ("settle_time [s]", self.settle_time, 0.0 <= self.settle_time <= 10.0, "0 to 10"),
        )
        for name, value, is_allowed, allowed in checks:
            if not is_allowed:
                raise ParameterOutOfRange(name, value, allowed)
        if self.strategy == "periodic" and self.trajectory_duration > self.max_motion_time:
            allowed = f"at most max_motion_time = {self.max_motion_time} s"
            raise ParameterOutOfRange("trajectory_duration [s]", self.trajectory_duration, allowed)


@dataclass(frozen=True)
class Progress:
    """One line of progress.

    Attributes:
        phase: Where the procedure is.
        text: In words.
        progress: Part of the whole that is done, 0..1.
        trajectory: Number of the trajectory, from 1; 0 before the first.
        trajectories: How many there may be.
        estimate: Latest estimate, None before the first.
    """

    phase: Phase
    text: str
    progress: float
    trajectory: int
    trajectories: int
    estimate: ParameterEstimate | None


@dataclass(frozen=True)
class Identification:
    """Outcome of a successful procedure.

    Attributes:
        estimate: The final estimate.
        plans: The plans that were executed.
        motion_time: Total time of motion [s].
        stop_reason: Which stop rule ended it, for people.
    """

    estimate: ParameterEstimate
    plans: tuple[CertifiedPlan, ...]
    motion_time: float
    stop_reason: str
